"""Calls of user code, and the events that its replies mean to the worker.

    work                call                                 event
    Handle              the handler, with each record        one for all that ended in one turn;
                                                             parked records apart
    Start, no hooks     the same, for a window without       the same: failures after successes
                        order
    DeliverRecords      writes dead letters, or a log line   the records are answered for
                        if there are no hooks
    anything, batches   the handler with a whole window,     the reply of
                        if `batching` says so                `tidegate.consumer.protocol.batching`
    anything            hooks                                by `tidegate.consumer.worker.worker`

A handler's reply is sent BEFORE the worker learns of its end; with transactions it waits for the
one that covers its record, as dead letters do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from tidegate.consumer.fanout import DeliverRecords, Report, Start, TasksReported
from tidegate.consumer.protocol.batching import BatchAnswer, CallEnd, Nothing, RunBatch, batch_answer, counted
from tidegate.consumer.protocol.commands import Event, Handle, RecordsHandled, RecordsParked, Work, WorkReported
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.worker import ShutdownCommand, ShutdownEvent, event_for
from tidegate.model.effects import Refused
from tidegate.model.errors import shown
from tidegate.model.instants import Duration, seconds
from tidegate.model.records import Record, Send
from tidegate_adapters.base.errors import message, place
from tidegate_adapters.base.log_fields import attempt_of, placed, say
from tidegate_adapters.kafka.client import record_of
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.producer import DeadLetters, failed_by
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.stats import Tallies
from tidegate_adapters.kafka.transactions import Transactions
from tidegate_adapters.runtime.handlers import Around, Called, Undecodable, Unread, undecoded, unread, unread_and_sends
from tidegate_adapters.runtime.later import Later
from tidegate_adapters.runtime.reducers import Call, CallEach, Ended, Job
from tidegate_adapters.sinks.port import Outbox

Hooks: TypeAlias = Callable[[Work, tuple[Record, ...]], Awaitable[object]]
Observer: TypeAlias = Callable[[Event, ConsumerState], None]
Recording: TypeAlias = Callable[[ShutdownEvent, Sequence[ShutdownCommand]], None]
Estimate: TypeAlias = Callable[[Record], timedelta | None]


class Calls(Protocol):
    """Calls user code for a member."""

    def beware(self) -> None:
        """From now on, records may come that the client could not decode."""

    def job(self, work: Work) -> Job:
        """The call for this request."""

    def event(self, work: Work, reply: object) -> ShutdownEvent | None:
        """The event that reports its end."""

    def follow(self, event: ShutdownEvent, state: ConsumerState) -> None:
        """Called with each event, in order, and the partitions after it."""


class MakeCalls(Protocol):
    """Called once a member has started, with its records, what sends records, and what counts."""

    def __call__(self, records: Records, outbox: Outbox[Sequence[Send]], tallies: Tallies | None) -> Calls: ...


@final
class Code(NamedTuple):
    """The user's code. `hooks` answers the rules' other requests, in seeded runs; `calls` calls all
    user code of a pipeline, in the place of `UserCode`.
    """

    handle: Called
    expected: Estimate | None
    observe: Observer | None
    record: Recording | None
    is_batch: bool = False
    around: Around | None = None
    hooks: Hooks | None = None
    calls: MakeCalls | None = None


@final
class UserCode:
    """Calls user code for a member.

    Args:
        transactions: Keeps replies until the commit of their records; None to send at once.
    """

    def __init__(  # noqa: PLR0917
        self,
        code: Code,
        settings: WorkerSettings,
        records: Records,
        outbox: Outbox[Sequence[Send]],
        tallies: Tallies | None,
        tell: Callable[[ShutdownEvent], None],
        transactions: Transactions | None = None,
    ) -> None:
        self._code, self._settings, self._records, self._outbox = code, settings, records, outbox
        self._rules, self._tallies, self._tell = settings.consumer.partition, tallies, tell
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        topic = settings.dead_letter
        self._dead_letters = None if topic is None else DeadLetters(outbox, topic, settings.group)
        self._handle = code.handle

    def beware(self) -> None:
        """From now on, check records for the client's decoding errors."""
        self._handle = self._looked_at

    def follow(self, event: ShutdownEvent, state: ConsumerState) -> None:
        """Nothing depends on events."""

    async def _looked_at(self, record: Record) -> object:
        error = undecoded(record)
        aside = None if error is None else unread(record, error, self._settings.undecodable)
        return aside or await self._code.handle(record)

    def job(self, work: Work) -> Job:
        match work.request:
            case Handle(attempt=attempt):
                return self._calls(work, attempt)
            case DeliverRecords(to_dead_letter=failed) if failed and self._answers_itself:
                return Call(lambda: self._answered_for(work))
            case Start(attempt=attempt) if not self._rules.hooks:
                return self._calls(work, attempt)
            case request if self._code.is_batch:
                return self._job_of_batch(work, batch_answer(request))
            case _:
                hooks = self._code.hooks
                assert hooks is not None, "the rules need none"
                records = self._records.given(work)
                return Call(lambda: hooks(work, records))

    def _calls(self, work: Work, attempt: int) -> CallEach:
        given, then = self._records.received(work), partial(self._ended, work, attempt)
        if self._code.around is not None:
            return CallEach(self._code.around(self._handle, then), given, None, record_of)
        return CallEach(self._handle, given, then, record_of)

    def event(self, work: Work, reply: object) -> ShutdownEvent | None:
        match work.request:
            case Start() as start if not self._rules.hooks and isinstance(reply, tuple):
                return self._tasks_event(work, start, reply)
            case Handle() as handle if isinstance(reply, tuple):
                return self._handled_event(work, handle, reply)
            case request if isinstance(reply, BaseException):
                self._log_failure(work, work.offsets, reply, attempt_of(request))
                if isinstance(request, Start):
                    self._note_failure(work, work.offsets, reply, request.attempt)
            case DeliverRecords() if reply is None:
                self._done(work, work.offsets)
        return event_for(work, reply)

    async def _ended(self, work: Work, attempt: int, given: object, reply: object) -> None:
        """Send the reply BEFORE its record is done, or keep it for the commit."""
        aside, sends = unread_and_sends(reply)
        if self._transactions is None or not isinstance(given, Record):
            for each in aside:
                await self._put_aside(each, attempt)
            if sends:
                await self._outbox.deliver(sends)
            return
        letters = [await self._put_aside(each, attempt) for each in aside]
        answers = (*(each for each in letters if each is not None), *sends)
        self._transactions.keep(work.partition, work.generation, given.offset, answers)

    async def _put_aside(self, aside: Unread, attempt: int) -> Send | None:
        """Skip or dead-letter an undecodable record; returns a letter that has to wait."""
        record = aside.record
        if self._settings.undecodable is Undecodable.DEAD_LETTER:
            assert self._dead_letters is not None, "it was checked"
            if self._transactions is not None:
                return self._dead_letters.letter(record, failed_by(aside.error, 0))
            await self._dead_letters.write(record, failed_by(aside.error, 0))
            return None
        where = placed(record.of, record.offset, attempt)
        say(
            logging.ERROR,
            "skipped %s @%s, attempt %s, which cannot be decoded",
            record.of,
            record.offset,
            attempt,
            error=aside.error,
            extra=where,
        )
        return None

    def _job_of_batch(self, work: Work, answer: BatchAnswer) -> Job:
        if isinstance(answer, RunBatch):
            attempt, records = answer.attempt, self._records.given(work)
            return Call(lambda: self._run_batch(work, records, attempt))

        async def answered() -> object:
            return None if isinstance(answer, Nothing) else answer

        return Call(answered)

    async def _run_batch(self, work: Work, given: tuple[Record, ...], attempt: int) -> None:
        began_s, end = self._loop.time(), CallEnd.RAISED
        try:
            await self._handled_batch(work, given, attempt)
            end = CallEnd.RETURNED
        except asyncio.CancelledError:
            end = CallEnd.INTERRUPTED
            raise
        finally:
            self._tally(work, *counted(len(given), end), [self._loop.time() - began_s])

    async def _handled_batch(self, work: Work, given: tuple[Record, ...], attempt: int) -> None:
        handle, around = self._code.handle, self._code.around
        if around is not None:
            await around(handle, partial(self._ended, work, attempt))(given)
        else:
            await self._ended(work, attempt, given, await handle(given))

    @property
    def _answers_itself(self) -> bool:
        return self._dead_letters is not None or self._code.hooks is None

    async def _answered_for(self, work: Work) -> None:
        for record, (_, _, failed) in zip(self._records.given(work), self._records.undone(work), strict=True):
            if self._dead_letters is not None and self._transactions is not None:
                letter = self._dead_letters.letter(record, failed)
                self._transactions.keep(work.partition, work.generation, record.offset, (letter,))
            elif self._dead_letters is not None:
                await self._dead_letters.write(record, failed)
            else:
                where = placed(work.partition, record.offset, failed.attempts)
                say(
                    logging.ERROR,
                    "skipped %s, which has failed %s times: %s",
                    record,
                    failed.attempts,
                    failed.error,
                    extra=where,
                )

    def _done(self, work: Work, offsets: Collection[int]) -> None:
        if self._rules.is_plain:
            self._records.done(work, offsets)

    def _handled_event(self, work: Work, handle: Handle, ended: tuple[Ended, ...]) -> ShutdownEvent:
        done = [_OFFSET(record) for record, reply, _ in ended if reply is None]
        failed: list[int] = []
        parked: dict[Duration, list[int]] = {}
        for record, reply, _ in ended if len(done) < len(ended) else ():
            if reply is None:
                continue
            offset: int = _OFFSET(record)
            if isinstance(reply, Later):
                parked.setdefault(reply.delay, []).append(offset)
            elif isinstance(reply, BaseException):
                self._log_failure(work, offset, reply, handle.attempt)
                self._note_failure(work, (offset,), reply, handle.attempt)
                failed.append(offset)
            else:
                done.append(offset)
        self._done(work, done)
        for delay, offsets in parked.items():
            where = placed(work.partition, tuple(offsets), handle.attempt)
            text = "the handler raised Later at %s @%s, attempt %s: it is called again in %s"
            say(logging.INFO, text, work.partition, shown(offsets), handle.attempt, seconds(delay), extra=where)
            put_off = RecordsParked(tuple(offsets), delay, handle.attempt)
            self._tell(WorkReported(work.partition, work.generation, put_off))
        if self._tallies is not None:
            self._tally(work, len(done), _raised(ended) if failed else 0, [*map(_SECONDS, ended)])
        what = RecordsHandled(tuple(done), tuple(failed), handle.attempt)
        return WorkReported(work.partition, work.generation, what)

    def _tasks_event(self, work: Work, start: Start, ended: tuple[Ended, ...]) -> ShutdownEvent:
        """Failures are reported after successes."""
        numbers = dict(zip(work.offsets, start.numbers, strict=True))
        reported: dict[Report, list[int]] = {}
        for record, reply, _ in ended:
            offset: int = _OFFSET(record)
            report = Report.SUCCEEDED
            if isinstance(reply, BaseException):
                self._log_failure(work, offset, reply, start.attempt)
                self._note_failure(work, (offset,), reply, start.attempt)
                report = Report.FAILED
            else:
                self._done(work, (offset,))
            reported.setdefault(report, []).append(numbers[offset])
        done = len(reported.get(Report.SUCCEEDED, ()))
        self._tally(work, done, _raised(ended), [*map(_SECONDS, ended)])
        first, *others = (
            WorkReported(
                work.partition, work.generation, TasksReported(start.window, tuple(places), start.attempt, report)
            )
            for report, places in sorted(reported.items(), key=lambda each: each[0] is Report.FAILED)
        )
        for event in others:
            self._tell(event)
        return first

    def _tally(self, work: Work, done: int, failed: int, seconds: Sequence[float]) -> None:
        if self._tallies is not None and seconds:
            self._tallies.handled[work.partition].add(done, failed, seconds)

    def _note_failure(self, work: Work, offsets: Iterable[int], error: BaseException, attempt: int) -> None:
        if self._rules.needs_hooks and not isinstance(error, Refused):
            self._records.failed(work, offsets, failed_by(error, attempt))

    def _log_failure(
        self, work: Work, offset: int | tuple[int, ...], error: BaseException, attempt: int | None = None
    ) -> None:
        """A traceback costs more than the rest of a failure, so only the last attempt logs one."""
        where, at = placed(work.partition, offset, attempt), "%s @%s" if attempt is None else "%s @%s, attempt %s"
        about = (work.partition, offset) if attempt is None else (work.partition, offset, attempt)
        if isinstance(error, Refused):
            say(logging.WARNING, f"{at}: interrupted: %s", *about, work, extra=where)
            return
        if attempt is not None and attempt <= self._rules.fanout.retries_max and not self._rules.hooks:
            what = f"handler failed at {at}, and is called again: %s (%s)"
            say(logging.WARNING, what, *about, message(error), place(error), extra=where)
            return
        what = "handler failed at" if isinstance(work.request, Handle | Start) else "hook failed for"
        say(logging.ERROR, f"{what} {at}", *about, error=error, extra=where)


_OFFSET: Final = attrgetter("offset")
_SECONDS: Final = attrgetter("seconds")


def _raised(ended: Iterable[Ended]) -> int:
    """Interruptions and `Later` are no failures."""
    return sum(isinstance(each.reply, BaseException) and not isinstance(each.reply, Refused | Later) for each in ended)
