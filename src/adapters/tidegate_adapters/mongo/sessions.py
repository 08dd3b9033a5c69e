"""Transactions of a real MongoDB: a session of the driver's for each that is open, by the name of its session.

A transaction reads a snapshot and is committed by a majority (read concern `snapshot`, write concern `majority`, journaled). What
becomes of it is said by `tidegate_adapters.mongo.errors`: of a statement, of a commit. The driver sends a commit once more by
itself where it has no answer; that is the same commit, and so it can be asked for again by a program.

After a commit that was asked for the driver sends no abort. If nobody knows what became of it, an abort is the beginning of another
transaction in the driver's session, with which the server ends the one before if it is open.

A session ends when its transaction is known to be over: by a commit that was answered, by an abort, by the next transaction of its
name. `tidegate_adapters.runtime.driver` aborts what a run leaves open, however that run ends. So sessions are left over only where
others run programs, and of those there are `SESSIONS_MAX` at most: the oldest one is ended for a new one.

Known not to work
    - Whether an abort was carried out is not known: the driver tells no error of it. Nothing of the transaction will be seen all
      the same, and the server ends it after 60 s.
    - An abort that `tidegate_adapters.runtime.driver` gives up (`ABORT_SECONDS`) leaves its session here, one of `SESSIONS_MAX`, until it makes
      room for another one.
    - So where no abort arrives, the attempts that follow meet what the first one has written, and are write conflicts until then.
    - A write beside a transaction that has written its document waits at the server, a `findAndModify` also past its own maxTimeMS;
      an update with a time limit (`UpdateOne.within`) ends when that runs out.
    - A transaction whose session has ended here is not known any more: a commit that is asked for then is `Ambiguous`.
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
"""In a session of the driver's: the call that carries an operation out, and what is made of its answer."""

_OPTIONS: Final[dict[str, Any]] = {
    "write_concern": WriteConcern("majority", j=True),
    "read_preference": ReadPreference.PRIMARY,
}


@final
@attrs.define(eq=False)
class _Session:
    """One of the driver's: the number of its transaction, whether a statement of that has failed, and whether a commit was asked for."""

    raw: Any
    number: int
    has_failed: bool = False
    is_asked: bool = False


@final
class Sessions:
    """Those of one database that are open.

    Args:
        client: Of either kind.
        database: Its handle.
    """

    def __init__(self, client: Any, database: Any) -> None:
        self._client, self._database, self._lock = client, database, Lock()
        self._options = {"read_concern": at_one_time(client), **_OPTIONS}
        self._open: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def forget(self) -> None:
        """Know none any more, in a process that was forked: they are of the other one."""
        self._lock, self._open = Lock(), {}

    async def state(self, effect: InTransaction[Any], carry: Carry, call: Calling) -> object:
        """Carry a statement out, and answer it.

        Args:
            effect: What is asked.
            carry: What its operation is, in a session.
            call: How the driver is called.
        """
        asked = effect.transaction
        session = _Session(self._client.start_session(), asked.number) if effect.begins else self._of(asked)
        if session is None or session.has_failed:
            return NotApplied("no such transaction")
        send, reply = carry(session.raw)
        if effect.begins:
            for former in self._begun(asked, session):
                await call(former.raw.end_session)
            await call(partial(session.raw.start_transaction, **self._options))
        session.has_failed = True  # until it is known that it has not
        try:
            answer = await call(send)
        except DRIVER_ERRORS as error:
            return failure_of_statement(error)
        session.has_failed = False
        return reply(answer)

    async def end(self, effect: CommitTransaction | AbortTransaction, call: Calling) -> object:
        """The same for the end of a transaction."""
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
        """Begin another transaction in the session."""
        with suppress(*DRIVER_ERRORS):
            await call(partial(raw.start_transaction, **self._options))
            await call(partial(self._database["transactions"].find_one, {ID.name: None}, session=raw))

    def _of(self, asked: Transaction) -> _Session | None:
        with self._lock:
            session = self._open.get(asked.session)
        return session if session is not None and session.number == asked.number else None

    def _begun(self, asked: Transaction, session: _Session) -> list[_Session]:
        """Those whose place it takes: the one of its name, and the oldest if there are too many."""
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
        await call(session.raw.end_session)  # which aborts, unless a commit was asked for
