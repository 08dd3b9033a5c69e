"""Sends the commits of a member and turns their replies into events.

`tidegate.consumer.committing.commit_pacing` decides when to send them, and which together;
`tidegate.consumer.committing.commit_answers` classifies errors. A commit with handlers' replies is a
transaction (`transactions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Final, final

from tidegate.consumer.committing.commit_answers import verdict
from tidegate.consumer.committing.commit_pacing import Pace, asked, due
from tidegate.consumer.protocol.commands import Commit
from tidegate.consumer.worker.transactions import FENCED
from tidegate.consumer.worker.worker import event_for
from tidegate.model.effects import Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate_adapters.base.log_fields import named, placed, say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.assignment import Assignment, Topics
from tidegate_adapters.kafka.client import Client
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.transactions import Transactions
from tidegate_adapters.runtime.reducers import Call

_GAP: Final[Duration] = SECOND // 10
_LASTS_S: Final = 10.0
"""After it the outcome is unknown: the client searches a coordinator for ever."""
_LOOP: Final = ClockName("loop")


@final
class Committing:
    """The commits of one member."""

    def __init__(  # noqa: PLR0917
        self,
        client: Client,
        life: Lifecycle,
        assignment: Assignment,
        topics: Topics,
        records: Records,
        transactions: Transactions | None,
    ) -> None:
        self._client, self._life, self._assignment, self._topics = client, life, assignment, topics
        self._records, self._transactions = records, transactions
        self._loop = asyncio.get_running_loop()
        self._pace, self._hurries = Pace(), False
        self._next_look: asyncio.Handle | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def job(self, commit: Commit) -> Call | None:
        """Queue the commit; a transaction is a job of its own."""
        if (transactions := self._transactions) is not None and not self._topics.is_gone(commit):
            return Call(lambda: self._together(commit, transactions))
        self._pace = asked(self._pace, commit)
        if self._next_look is None:
            self._next_look = self._loop.call_soon(self._look)  # batches those of this turn
        return None

    def hurry(self, *, hurries: bool) -> None:
        """Set whether a revocation waits for commits."""
        self._hurries = hurries
        if hurries and self._next_look is not None:
            self._next_look.cancel()
            self._next_look = self._loop.call_soon(self._look)
        if self._transactions is not None:
            self._transactions.hurry(hurries=hurries)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        turn = due(self._pace, Instant(round(self._loop.time() * SECOND), _LOOP), _GAP, hurries=self._hurries)
        self._pace = turn.pace
        self._next_look = None if turn.wait is None else self._loop.call_later(turn.wait / SECOND, self._look)
        for request in turn.requests:
            self._spawn(self._sent(request))

    async def _sent(self, request: tuple[Commit, ...]) -> None:
        there = tuple(each for each in request if not self._topics.is_gone(each))
        if len(there) < len(request):
            self._tell(set(request).difference(there), ports.GONE())
            request = there
        if not request:
            return
        positions = {each.partition: (each.position, each.metadata) for each in request}
        error: BaseException | None = None
        try:
            async with asyncio.timeout(_LASTS_S):
                generation = self._assignment.granted.get(request[0].generation, ports.NO_GENERATION)
                await ports.commit(self._client, positions, generation)
        except ports.NOT_OF_ALL:
            for each in request:
                self._spawn(self._sent((each,)))
            return
        except BaseException as raised:  # noqa: BLE001  the reply classifies it
            error = raised
        self._tell(request, error)

    def _spawn(self, code: Awaitable[None]) -> None:
        task = asyncio.ensure_future(code)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- answers ---

    def _tell(self, request: Iterable[Commit], error: BaseException | None) -> None:
        for each in request:
            try:
                self._answered(each, error)
            except Exception as raised:  # noqa: BLE001  an unusable reply (RT3): all others get theirs
                self._answered(each, raised)

    def _answered(self, commit: Commit, error: BaseException | None) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._life.end_with(error)
        event = event_for(commit, self._reply(commit, error))
        if event is not None:
            self._life.tell(event)

    def _reply(self, commit: Commit, error: BaseException | None) -> Failure | None:
        if error is None:
            self._records.committed(commit.partition, commit.position)
            return None
        _log_failed(commit, named(error))
        is_given_back = not self._life.is_working or not self._is_ours(commit)
        found = verdict(ports.commit_failure(error), type(error).__name__, is_given_back=is_given_back)
        if found.ends and self._life.is_working:
            what = f"the position of {commit.partition} may not be committed"
            self._life.end_with(TidegateError(what, why=named(error)))
        return found.reply

    async def _together(self, commit: Commit, transactions: Transactions) -> Failure | None:
        """A fenced partition that still belongs to the member is taken over again."""
        reply = await transactions.commit(commit)
        if reply is not None:
            _log_failed(commit, reply)
        if reply == FENCED and self._is_ours(commit):
            self._assignment.take_over_again(commit.partition, commit.generation)
        return reply

    def _is_ours(self, commit: Commit) -> bool:
        return self._assignment.generations.get(commit.partition) == commit.generation


def _log_failed(commit: Commit, why: object) -> None:
    partition, position = commit.partition, commit.position
    where = placed(partition, position)
    say(logging.WARNING, "commit of %s @%s failed: %s", partition, position, why, extra=where)
