"""Carries out what the programs of a pipeline ask for: calls hooks, runs tasks, delivers outputs, writes dead letters.

The programs (`tidegate.pipeline.programs`) decide; here is what they leave out, the payloads: the
records and tasks of each window in work, the results of tasks, and the outputs that hooks returned.
A window's payloads are dropped once it is settled, or its partition has gone.

    effect               what is done                                    reply
    DecodeRecords        decode each record                              those that cannot be decoded
    CallArrange          call arrange, check its tasks                   their specs
    CallHook             call the hook once for each subject             sinks, verdicts or failures
    Deliver              hand outputs to the outboxes of their sinks     failures
    WriteRecords, ...    send dead letters                               failures
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import length_hint
from typing import Any, Final, Protocol, TypeVar, cast, final

import attrs

from tidegate.consumer.fanout import Report, Start, TasksReported
from tidegate.consumer.protocol.commands import Batch, Event, Work, WorkReported
from tidegate.consumer.worker.worker import ShutdownEvent
from tidegate.model.effects import Ambiguous, Effect, Failure, Refused, Sleep
from tidegate.model.errors import Misuse, TidegateError, typed
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, TopicPartition
from tidegate.pipeline.effects import (
    CallArrange,
    CallDeliveryError,
    CallHook,
    DecodeRecords,
    Deliver,
    FindUndecodable,
    Hook,
    LogSkipped,
    PipelineRules,
    TaskSpec,
    Verdict,
    WriteOutputs,
    WriteRecords,
)
from tidegate.pipeline.effects import Output as CoreOutput
from tidegate.pipeline.identity import output_key
from tidegate.pipeline.programs import Answer, events_for, program_for
from tidegate.pipeline.tasks import refused_tasks
from tidegate.sinks.delivery import Action
from tidegate_adapters.base.log_fields import named, placed
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.producer import Failed, failed_by
from tidegate_adapters.pipeline.executors import Executor
from tidegate_adapters.pipeline.values import FailedOutput, Kind, RecordResult, Result, Task, WindowResult
from tidegate_adapters.pipeline.windows import WindowPayloads, Windows
from tidegate_adapters.runtime.driver import run_async
from tidegate_adapters.runtime.reducers import Call, CallEach, Ended, Job, as_failure
from tidegate_adapters.sinks.outputs import Delivery, Output
from tidegate_adapters.sinks.port import Outbox

T = TypeVar("T")
U = TypeVar("U")
say: Final = Lines(logging.getLogger("tidegate_adapters.pipeline"))
_AT_ONCE: Final = 64
"""The number of hooks of one request that run at once."""


class WriteLetter(Protocol):
    """Writes dead letters."""

    async def record(self, record: Record, why: Failed) -> None:
        """Write the letter of a record; raises if no broker has confirmed it."""

    async def output(self, record: Record, delivery: Delivery, index: int, why: Failed) -> None:
        """Write the letter of an output, of this record; raises if no broker has confirmed it."""


@final
class Hooks:
    """The user's functions, each async.

    Attributes:
        decode: Makes of a record what hooks get; None where they get the record.
        arrange: Called with what was decoded of records, and the ids of the live tasks of their partition.
        others: The other hooks, each called with one value.
    """

    def __init__(
        self,
        arrange: Callable[[Sequence[Any], Collection[str]], Awaitable[Iterable[tuple[Task, tuple[int, ...]]]]],
        others: Mapping[Hook, Callable[[Any], Awaitable[object]]],
        decode: Callable[[Record], object] | None = None,
    ) -> None:
        self.arrange, self.others, self.decode = arrange, others, decode


@final
class HookCalls:
    """Calls the hooks of a pipeline for a member.

    Args:
        hooks: The user's.
        rules: What follows failures.
        records: The records that the member has.
        executor: Runs tasks.
        outboxes: The outbox of each sink, by name.
        letters: Writes dead letters.
        notify: Called with "assigned" or "revoked" and a partition.
        stopped: Called with a partition that has stopped and the first failed offset, perhaps again.

    Attributes:
        begun: The number of requests so far.
        running: The number of requests without an answer.
    """

    def __init__(  # noqa: PLR0917  they are what it stands between
        self,
        hooks: Hooks,
        rules: PipelineRules,
        records: Records,
        executor: Executor,
        outboxes: Mapping[str, Outbox[Delivery]],
        letters: WriteLetter,
        notify: Callable[[str, TopicPartition], None],
        stopped: Callable[[TopicPartition, int], None],
    ) -> None:
        self._hooks, self._rules, self._records, self._executor = hooks, rules, records, executor
        self._outboxes, self._letters = outboxes, letters
        self._windows = Windows(notify, stopped)
        self.follow = self._windows.follow
        self.begun, self.running = 0, 0
        self._handlers: Mapping[type[Effect[Any]], Callable[[Any], Awaitable[object]]] = {
            DecodeRecords: self._decode,
            CallArrange: self._arrange,
            CallHook: self._call,
            CallDeliveryError: self._call_delivery_error,
            Deliver: self._deliver,
            WriteRecords: self._write_records,
            WriteOutputs: self._write_outputs,
            LogSkipped: self._log_skipped,
            FindUndecodable: self._find_undecodable,
            Sleep: _sleep,
        }

    # --- what a member asks for -------------------------------------------------------------------

    def beware(self) -> None:
        """Records with headers that are not UTF-8 are like others."""

    def job(self, work: Work) -> Job:
        """The call for this request."""
        self.begun += 1
        self.running += 1
        if isinstance(work.request, Start):
            self.running += len(work.request.numbers) - 1
            window, attempt = self._windows.of(work), work.request.attempt
            if attempt == 1:
                run, tasks = (
                    self._executor.run,
                    cast("Sequence[Task]", window.tasks),
                )  # one for a failed record does not run
                return CallEach(lambda number: run(tasks[number]), work.request.numbers)
            return CallEach(lambda number: self._run(window, number, attempt), work.request.numbers)
        return Call(lambda: self._answer(work))

    async def _answer(self, work: Work) -> Answer:
        program = program_for(self._rules, work)
        assert program is not None, "tasks are run by the executor"
        return await run_async(program, self._handlers)

    def event(self, work: Work, reply: object) -> ShutdownEvent | None:
        """The event that reports the end of a request, or of some of its tasks."""
        self.running -= len(reply) if isinstance(work.request, Start) and isinstance(reply, tuple) else 1
        if isinstance(work.request, Start) and isinstance(reply, tuple):
            return self._tasks_ended(work, work.request, reply)
        if isinstance(reply, BaseException):
            say(logging.ERROR, "%s failed: %s", work.request, named(reply), extra=placed(work.partition, work.offsets))
        return events_for(work, as_failure(reply))

    def _tasks_ended(self, work: Work, start: Start, ended: tuple[Ended, ...]) -> ShutdownEvent:
        window = self._windows.of(work)
        reports: dict[Report, list[int]] = {}
        for number, reply, _ in ended:
            assert isinstance(number, int)
            good = isinstance(reply, Result) and reply.is_ok
            if isinstance(reply, Result):
                window.results[number] = reply
            reports.setdefault(Report.SUCCEEDED if good else Report.FAILED, []).append(number)
            if not good:
                self._note_failed_task(work, window, number, reply, start.attempt)
        at = (work.partition, work.generation)
        events: list[Event] = [
            WorkReported(*at, TasksReported(start.window, tuple(numbers), start.attempt, report))
            for report, numbers in reports.items()
        ]
        return events[0] if len(events) == 1 else Batch(tuple(events))

    def _note_failed_task(self, work: Work, window: WindowPayloads, number: int, reply: object, attempt: int) -> None:
        error: object = reply.error if isinstance(reply, Result) else reply
        task = window.tasks[number]
        text = named(error) if isinstance(error, BaseException) else str(error)
        say(
            logging.WARNING, "task %s failed at attempt %s: %s", task.id if task else number, attempt, text,
            extra=placed(work.partition, work.offsets, attempt),
        )  # fmt: skip
        if task is not None:
            why = failed_by(error, attempt) if isinstance(error, BaseException) else Failed(attempt, "TaskFailed", text)
            window.failures |= dict.fromkeys(task.offsets, why)

    # --- effects ----------------------------------------------------------------------------------

    async def _decode(self, effect: DecodeRecords) -> tuple[int, ...]:
        window, decode = self._windows.of(effect.work), self._hooks.decode
        assert decode is not None, "only decoded records are asked for"
        for record in self._records.given(effect.work):
            try:
                window.records[record.offset] = decode(record)
            except Exception as error:  # noqa: BLE001  of the user's types
                window.undecodable.add(record.offset)
                window.failures[record.offset] = failed_by(error, 0)
                say(
                    logging.WARNING,
                    "%s cannot be decoded: %s",
                    record,
                    type(error).__name__,
                    extra=placed(record.of, record.offset),
                )
        return tuple(sorted(window.undecodable & {*effect.work.offsets}))

    async def _arrange(self, effect: CallArrange) -> tuple[TaskSpec, ...]:
        work, window = effect.work, self._windows.of(effect.work)
        if self._hooks.decode is None and not window.records:
            window.records = {record.offset: record for record in self._records.given(work)}
        live = self._windows.live_ids(work)
        try:
            made = await self._hooks.arrange([window.records[offset] for offset in effect.offsets], live)
            tasks, specs = _checked_tasks(made, effect.offsets, len(window.arranged), live)
        except Exception as error:
            self._note_failure(work, effect.offsets, Hook.ARRANGE, error)
            raise _failure(error) from error
        window.arranged += tasks
        return specs

    async def _run(self, window: WindowPayloads, number: int, attempt: int) -> Result:
        task = window.tasks[number]
        assert task is not None, "a task that stands for a failed record does not run"
        return attrs.evolve(await self._executor.run(task), attempt=attempt)

    async def _call(self, effect: CallHook) -> tuple[object, ...]:
        work, window, hook = effect.work, self._windows.of(effect.work), effect.hook
        if hook is Hook.TASK_ERROR:
            return tuple(await _each(lambda number: self._decide(work, window, number), effect.subjects))
        return tuple(await _each(lambda subject: self._outputs(work, window, hook, subject), effect.subjects))

    async def _outputs(self, work: Work, window: WindowPayloads, hook: Hook, subject: int) -> tuple[str, ...] | Failure:
        """The sinks of what a hook returned."""
        try:
            returned = await self._hooks.others[hook](self._given(window, hook, subject))
            outputs = self._checked(returned)
        except Exception as error:  # noqa: BLE001  of the user's
            offsets = (subject,) if hook is Hook.RECORD_DONE else work.offsets
            if hook is Hook.TASK_DONE and (task := window.tasks[subject]) is not None:
                offsets = task.offsets
            self._note_failure(work, offsets, hook, error)
            return _failure(error)
        window.outputs[hook, subject] = outputs
        return tuple(each.sink for each in outputs)

    @staticmethod
    def _given(window: WindowPayloads, hook: Hook, subject: int) -> object:
        if hook is Hook.TASK_DONE:
            return window.results[subject]
        if hook is Hook.RECORD_DONE:
            numbers = [
                number for number, task in enumerate(window.tasks) if task is not None and subject in task.offsets
            ]
            return RecordResult(window.records[subject], tuple(window.results[each] for each in numbers))
        results = tuple(window.results[each] for each in sorted(window.results))
        return WindowResult(tuple(window.records.values()), results)

    def _checked(self, returned: object) -> Sequence[Output]:
        """What a hook returned, as outputs for sinks that there are."""
        if returned is None:
            return ()
        outputs = (returned,) if isinstance(returned, Output) else returned
        if not isinstance(outputs, (list, tuple)):
            raise Misuse(f"a hook returned {typed(returned)}", todo="return Output(...), a list of them, or None")
        for each in outputs:
            if not isinstance(each, Output):
                raise Misuse(f"a hook returned {typed(each)} in a list", todo="return a list of Output(...)")
            if each.sink not in self._outboxes:
                raise Misuse(f"there is no sink {each.sink!r}", todo=f"there are: {', '.join(self._outboxes)}")
        return outputs

    async def _decide(self, work: Work, window: WindowPayloads, number: int) -> object:
        task = window.tasks[number]
        if task is None:
            return Verdict.SKIP
        result = window.results.get(number) or Result(task=task, kind=Kind.RAISED)
        try:
            decision = await self._hooks.others[Hook.TASK_ERROR](result)
            if isinstance(decision, Verdict):
                return decision
            everything = tuple(range(len(task.offsets)))
            others = [(each, everything) for each in listed(decision, "task_error", "RETRY, SKIP or a list of tasks")]
            made, specs = _checked_tasks(
                others, task.offsets, len(window.tasks), self._windows.live_ids(work) - {task.id or ""}
            )
        except Exception as error:  # noqa: BLE001  of the user's
            self._note_failure(work, task.offsets, Hook.TASK_ERROR, error)
            return _failure(error)
        window.replacing[number] = tuple(made)
        return specs

    async def _deliver(self, effect: Deliver) -> tuple[Failure | None, ...]:
        window, outputs = self._windows.of(effect.work), effect.outputs
        by_sink: dict[str, list[int]] = {}
        for place, output in enumerate(outputs):
            by_sink.setdefault(output.sink, []).append(place)
        replies: list[Failure | None] = [None] * len(outputs)

        async def delivered(sink: str, places: Sequence[int]) -> None:
            deliveries = [self._delivery(effect.work, window, outputs[place]) for place in places]
            for place, error in zip(places, await self._outboxes[sink].deliver_all(deliveries), strict=True):
                if error is not None:
                    output = outputs[place]
                    at = (output.hook, output.subject, output.position)
                    window.failed_outputs[at] = (
                        window.failed_outputs.get(at, (0, error))[0] + 1,
                        error.__cause__ or error,
                    )
                    replies[place] = _failure(error)

        if len(by_sink) == 1:
            await delivered(*by_sink.popitem())
        else:
            await asyncio.gather(*(delivered(*each) for each in by_sink.items()))
        return tuple(replies)

    @staticmethod
    def _delivery(work: Work, window: WindowPayloads, output: CoreOutput) -> Delivery:
        task = window.tasks[output.subject] if output.hook is Hook.TASK_DONE else None
        if task is not None:
            offset = min(task.offsets)
        else:
            offset = output.subject if output.hook is Hook.RECORD_DONE else work.offsets[0]
        of = None if task is None else task.id
        key = output_key(
            work.partition.topic, work.partition.partition, offset, of, output.hook, output.sink, output.position
        )
        return Delivery(key, window.outputs[output.hook, output.subject][output.position])

    async def _call_delivery_error(self, effect: CallDeliveryError) -> tuple[object, ...]:
        window = self._windows.of(effect.work)

        async def decided(output: CoreOutput) -> object:
            delivery = self._delivery(effect.work, window, output)
            attempts, _ = window.failed_outputs[output.hook, output.subject, output.position]
            try:
                return await self._hooks.others[Hook.DELIVERY_ERROR](
                    FailedOutput(delivery.output, delivery.key, attempts)
                )
            except Exception as error:  # noqa: BLE001  of the user's
                say(
                    logging.ERROR,
                    "delivery_error raised: %s",
                    named(error),
                    extra=placed(effect.work.partition, effect.work.offsets),
                )
                return _failure(error)

        found = await _each(decided, effect.outputs)
        for each in found:
            if not isinstance(each, (Action, Failure)):
                say(
                    logging.ERROR,
                    "delivery_error returned %s: return Action.RETRY, SKIP, DEAD_LETTER or HOLD",
                    typed(each),
                )
        return tuple(found)

    async def _write_records(self, effect: WriteRecords) -> tuple[Failure | None, ...]:
        window = self._windows.of(effect.work)
        records = {record.offset: record for record in self._records.given(effect.work)}

        async def written(offset: int) -> Failure | None:
            why = window.failures.get(offset, Failed(0))
            return await self._written(effect.work, offset, self._letters.record(records[offset], why))

        return tuple(await asyncio.gather(*map(written, effect.offsets)))

    async def _write_outputs(self, effect: WriteOutputs) -> tuple[Failure | None, ...]:
        window = self._windows.of(effect.work)
        records = {record.offset: record for record in self._records.given(effect.work)}

        async def written(output: CoreOutput) -> Failure | None:
            delivery = self._delivery(effect.work, window, output)
            attempts, error = window.failed_outputs[output.hook, output.subject, output.position]
            task = window.tasks[output.subject] if output.hook is Hook.TASK_DONE else None
            offset = task.offsets[0] if task is not None else effect.work.offsets[0]
            record = records[output.subject if output.hook is Hook.RECORD_DONE else offset]
            letter = self._letters.output(record, delivery, output.position, failed_by(error, attempts))
            return await self._written(effect.work, record.offset, letter)

        return tuple(await asyncio.gather(*map(written, effect.outputs)))

    @staticmethod
    async def _written(work: Work, offset: int, letter: Awaitable[None]) -> Failure | None:
        at = placed(work.partition, offset)
        try:
            await letter
        except Exception as error:  # noqa: BLE001  whatever it is, it is not written
            say(
                logging.ERROR,
                "%s @%s is held: its dead letter cannot be written: %s",
                work.partition,
                offset,
                named(error),
                extra=at,
            )
            return _failure(error)
        say(logging.WARNING, "%s @%s is dead-lettered", work.partition, offset, extra=at)
        return None

    async def _log_skipped(self, effect: LogSkipped) -> None:
        what = effect.offsets or ", ".join(map(str, effect.outputs))
        say(
            logging.ERROR,
            "skipped %s of %s",
            what,
            effect.work.partition,
            extra=placed(effect.work.partition, effect.work.offsets),
        )

    async def _find_undecodable(self, effect: FindUndecodable) -> tuple[int, ...]:
        return tuple(sorted(self._windows.of(effect.work).undecodable & {*effect.work.offsets}))

    def _note_failure(self, work: Work, offsets: Iterable[int], hook: Hook, error: BaseException) -> None:
        offsets = tuple(offsets)
        text = "%s raised at %s @%s: %s"
        say(
            logging.ERROR,
            text,
            hook,
            work.partition,
            ", ".join(map(str, offsets)),
            named(error),
            extra=placed(work.partition, offsets),
        )
        self._windows.of(work).failures |= dict.fromkeys(offsets, failed_by(error, 1))


def listed(returned: object, hook: str, what: str) -> Sequence[Any]:
    if not isinstance(returned, (list, tuple)):
        raise Misuse(f"{hook} returned {typed(returned)}", todo=f"return {what}")
    return returned


def _checked_tasks(
    made: Iterable[tuple[Task, tuple[int, ...]]], offsets: tuple[int, ...], first: int, live: Collection[str]
) -> tuple[list[Task], tuple[TaskSpec, ...]]:
    """The tasks that a hook returned, each with an id and the records that it is for.

    Args:
        made: Each task with the positions of the records that it is for, unless it names them.
        offsets: The records that the hook was called with.
        first: The number of the first of them, for their ids.
        live: The ids of other tasks in work.
    """
    tasks: list[Task] = []
    for number, (task, places) in enumerate(made, first):
        if not isinstance(task, Task):
            raise Misuse(f"a hook returned {typed(task)} as a task", todo="return Task(...)")
        own = task.offsets
        if not own:
            own = (task.record.offset,) if task.record is not None else tuple([offsets[each] for each in places])
        tasks.append(task.bound(own, task.id or f"{own[0] if own else ''}-{number}"))
    specs = tuple(map(_spec, tasks))
    refused = refused_tasks(specs, offsets, live)
    if refused is not None:
        raise Misuse(refused)
    return tasks, specs


def _spec(task: Task) -> TaskSpec:
    return TaskSpec(task.id or "", task.offsets, None if task.result is None else task.result.is_ok)


def _failure(error: BaseException) -> Failure:
    found = as_failure(error)
    if isinstance(error, (Misuse, TidegateError)):
        return Refused(type(error).__name__)
    return found if isinstance(found, Failure) else Ambiguous(type(error).__name__)


async def _sleep(effect: Sleep) -> None:
    await asyncio.sleep(effect.duration / SECOND)


async def _each(code: Callable[[T], Awaitable[U]], given: Sequence[T]) -> list[U]:
    """Call the code with each of these, many at once if it waits; code that does not wait costs no task."""
    replies: list[Any] = [None] * len(given)
    left = iter(range(len(given)))
    others: list[asyncio.Task[None]] = []

    async def pull() -> None:
        if length_hint(left) > 1 and len(others) + 1 < _AT_ONCE:
            others.append(asyncio.ensure_future(pull()))  # it begins once this one waits, or has called all
        for place in left:
            replies[place] = await code(given[place])

    try:
        await pull()
        for other in others:  # the list grows meanwhile
            await other
    finally:
        for other in others:
            other.cancel()
    return replies
