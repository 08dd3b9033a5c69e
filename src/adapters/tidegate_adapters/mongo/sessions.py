"""Transactions of a real MongoDB: one driver session per open transaction, by session name.

A transaction reads a snapshot and commits by a majority (read concern `snapshot`, write concern
`majority`, journaled). The driver repeats an unanswered commit once; it is the same commit, so a
program may repeat it too.

After a commit attempt the driver sends no abort. If the outcome is unknown, this module aborts by
starting another transaction in the driver's session, which makes the server end the previous one if
open.

A session ends with its transaction: at an answered commit, an abort, or the next transaction of its
name. `tidegate_adapters.runtime.driver` aborts transactions that a run leaves open. Only other
runners leave sessions over, at most `SESSIONS_MAX`: a new one then replaces the oldest.

Known not to work
    - The outcome of an abort is unknown: the driver hides its errors. The transaction has no effect
      all the same, and the server ends it after 60 s.
    - An abort that `tidegate_adapters.runtime.driver` gives up (`ABORT_SECONDS`) leaves its session
      here until another replaces it.
    - Without an arriving abort, later attempts conflict with the first one's writes until then.
    - A conflicting write outside the transaction waits at the server, a `findAndModify` even past
      its own maxTimeMS; an update with a limit (`UpdateOne.within`) stops at it.
    - A transaction without a session here is unknown: a later commit is `Ambiguous`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final, TypeAlias, final

import attrs
from pymongo import ReadPreference, WriteConcern

from tidegate.model.documents import ID
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate_adapters.base.at_once import Calling
from tidegate_adapters.mongo.elections import at_one_time
from tidegate_adapters.mongo.errors import DRIVER_ERRORS, failure_of_commit, failure_of_statement

SESSIONS_MAX: Final = 1_000

Carry: TypeAlias = Callable[[Any], tuple[Callable[[], Any], Callable[[Any], object]]]
"""For a session: an operation's driver call, and the conversion of its answer."""

_OPTIONS: Final[dict[str, Any]] = {
    "write_concern": WriteConcern("majority", j=True),
    "read_preference": ReadPreference.PRIMARY,
}


@final
@attrs.define(eq=False)
class _Session:
    raw: Any
    number: int
    has_failed: bool = False
    is_asked: bool = False


@final
class Sessions:
    """The open sessions of one database."""

    def __init__(self, client: Any, database: Any) -> None:
        self._client, self._database, self._lock = client, database, Lock()
        self._options = {"read_concern": at_one_time(client), **_OPTIONS}
        self._open: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def forget(self) -> None:
        """Drop the parent process's sessions after a fork."""
        self._lock, self._open = Lock(), {}

    async def state(self, effect: InTransaction[Any], carry: Carry, call: Calling) -> object:
        asked = effect.transaction
        session = _Session(self._client.start_session(), asked.number) if effect.begins else self._of(asked)
        if session is None or session.has_failed:
            return NotApplied("no such transaction")
        send, reply = carry(session.raw)
        if effect.begins:
            for former in self._begun(asked, session):
                await call(former.raw.end_session)
            await call(partial(session.raw.start_transaction, **self._options))
        session.has_failed = True  # until it succeeds
        try:
            answer = await call(send)
        except DRIVER_ERRORS as error:
            return failure_of_statement(error)
        session.has_failed = False
        return reply(answer)

    async def end(self, effect: CommitTransaction | AbortTransaction, call: Calling) -> object:
        asked = effect.transaction
        session = self._of(asked)
        if isinstance(effect, AbortTransaction):
            if session is not None:
                if session.is_asked:
                    await self._supersede(session.raw, call)
                await self._over(asked, session, call)
            return None
        if session is None:
            return Ambiguous("nothing is known of the transaction here")
        session.is_asked = True
        try:
            await call(session.raw.commit_transaction)
        except DRIVER_ERRORS as error:
            said = failure_of_commit(error)
        else:
            said = True
        if isinstance(said, bool):
            await self._over(asked, session, call)
        return said

    async def _supersede(self, raw: Any, call: Calling) -> None:
        with suppress(*DRIVER_ERRORS):
            await call(partial(raw.start_transaction, **self._options))
            await call(partial(self._database["transactions"].find_one, {ID.name: None}, session=raw))

    def _of(self, asked: Transaction) -> _Session | None:
        with self._lock:
            session = self._open.get(asked.session)
        return session if session is not None and session.number == asked.number else None

    def _begun(self, asked: Transaction, session: _Session) -> list[_Session]:
        """Returns the sessions to end: the former one of its name, and the oldest above the
        limit.
        """
        with self._lock:
            former = [self._open.pop(asked.session, None)]
            if len(self._open) == SESSIONS_MAX:
                former.append(self._open.pop(next(iter(self._open))))
            self._open[asked.session] = session
        return [each for each in former if each is not None]

    async def _over(self, asked: Transaction, session: _Session, call: Calling) -> None:
        with self._lock:
            if self._open.get(asked.session) is session:
                del self._open[asked.session]
        await call(session.raw.end_session)  # aborts, unless a commit was sent
