"""A worker on Kafka: it carries out what `tidegate.consumer.worker` says, and decides nothing.

Records go to the user's async function with bounded concurrency, complete out of order, and are committed in the
background, along with what is done beyond the position; polling never waits for a commit. A revocation waits until what
is in work has ended and is committed, or until the time to drain is over, and only then lets go. At least once is what it
promises: user code must bear repetition.

    effect -> call                                      reply -> event
    Fetch        poll the partition (`polling`)         Fetched
    Work         a task that awaits the user's code     WorkReported, or WorkFailed
    Interrupt    that task is cancelled                 WorkFailed, once it has ended
    Commit       a task that awaits the commit          Committed, CommitRefused, MetadataRefused, CommitUnknown
    StartDrainTimer   a task that sleeps                DrainTimerFired
    StartRetryTimer   a task that sleeps                RetryTimerFired
    Cancel       that task is cancelled                 nothing
    Release      the revocation may return
    Leave        a task that stops the client           LeaveAnswered
    StartLeaveTimer   a task that sleeps                LeaveTimerFired

A generation is counted from the client's own assignments: records that a poll brings belong to the assignment in force
when it returns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, assert_never, cast, final

from tidegate.consumer.commands import (
    METADATA_REFUSED,
    Assigned,
    Commit,
    Event,
    Fetch,
    Fetched,
    Interrupt,
    Measured,
    Release,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkReported,
)
from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.drain import InFlight
from tidegate.consumer.fanout import Report, Start, TasksReported
from tidegate.consumer.watermark import open_offsets
from tidegate.consumer.worker import (
    Leave,
    ShutdownCommand,
    ShutdownEvent,
    ShutdownPhase,
    StartLeaveTimer,
    StopRequested,
    WorkerRules,
    WorkerState,
    event_for,
)
from tidegate.model.effects import Ambiguous, Cancel, Effect, Failure, Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, Duration
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka_ports import (
    CONNECTION_ERROR,
    KAFKA_ERROR,
    REFUSED,
    TOO_LARGE,
    Client,
    Connect,
    Received,
    check_options,
    client,
    committed,
    end,
    listener,
    ours,
    record_of,
    theirs,
)
from tidegate_adapters.worker_settings import ClientOptions, WorkerSettings

__all__ = ["Estimate", "Handler", "Hooks", "Observer", "Recording", "Worker"]


log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

_POLL_MS: Final = 100
_Task: TypeAlias = Work | Commit | StartDrainTimer | StartRetryTimer | Leave | StartLeaveTimer
Handler: TypeAlias = Callable[[Record], Awaitable[None]]
Hooks: TypeAlias = Callable[[Work, tuple[Record, ...]], Awaitable[object]]
Observer: TypeAlias = Callable[[Event, ConsumerState], None]
Recording: TypeAlias = Callable[[ShutdownEvent, Sequence[ShutdownCommand]], None]
Estimate: TypeAlias = Callable[[Record], Duration | None]


class _Undone(NamedTuple):
    """A record that is not done, and when it came, in seconds of the monotonic clock."""

    record: Record
    came: float


@final
class Worker:
    """Consumes topics as a member of a group.

    Args:
        topics: What to consume.
        handle: The user's code, called with each record at least once. What follows when it raises, the consumer's rules
            say (`FailurePolicy`); by default the record's partition stops.
        bootstrap: `host:port`, several separated by commas.
        group: The consumer group.
        consumer: What may run at once, and how long a revocation may drain.
        hooks: The user's code for whatever else the rules ask for: to answer for a failed record, to deliver, to arrange
            windows, run their tasks and judge failures. It is called with the work and the records that it is about, and
            answers as `tidegate.consumer.commands.event_for` says.
        expected: How long user code takes with a record, in microseconds, or None where that is not known; a revocation
            does not wait in vain for what takes longer than there is time.
        observe: Called with every event of a partition and the state after it, for logs and metrics.
        record: Called with every event and the commands that follow: `tidegate_adapters.recorder.Recorder.stepped`.
        options: More options of aiokafka's consumer, for example `session_timeout_ms`.

    Attributes:
        settings: What it was told that is not code.
        handle: The user's code.
        hooks: The user's code for whatever else is asked for.

    Raises:
        Misuse: no topic, no group, a handler that is not an async function, an option that the client does not have, or
            rules that need hooks, and none.
    """

    def __init__(
        self,
        topics: Sequence[str],
        handle: Handler,
        *,
        bootstrap: str,
        group: str,
        consumer: ConsumerRules = ConsumerRules(),
        hooks: Hooks | None = None,
        expected: Estimate | None = None,
        observe: Observer | None = None,
        record: Recording | None = None,
        **options: object,
    ) -> None:
        if isinstance(topics, str):
            raise Misuse(f"{topics!r} are not topics", todo="pass a list of names")
        self.settings: Final = WorkerSettings(tuple(topics), bootstrap, group, consumer, cast("ClientOptions", options))
        check_options(options)
        if not callable(handle):
            raise Misuse(f"{handle!r} cannot handle records", todo="pass an async function of one record")
        if hooks is None and consumer.partition.needs_hooks:
            raise Misuse("these rules ask for more than to handle records", todo="pass hooks=")
        self.handle: Final = handle
        self.hooks: Final = hooks
        self._consumer = consumer
        self._expected, self._observe, self._record = expected, observe, record
        self._client: Client
        self._rules = WorkerRules(consumer)
        self._worker = WorkerState()
        self._generation = 0
        self._records: dict[TopicPartition, dict[int, _Undone]] = {}
        """Those that are not done, by offset."""
        self._began_s: dict[Work, float] = {}
        """When work began, in seconds of the monotonic clock."""
        self._tasks: dict[Effect[object], asyncio.Task[None]] = {}
        self._interrupted: set[Effect[object]] = set()
        self._releases: dict[TopicPartition, list[asyncio.Event]] = {}
        """Revocations that wait for the release of their partition."""
        self._is_assigned = asyncio.Event()
        self._is_assigned.set()
        self._stop_calls = 0
        """How often it was asked to stop."""
        self._is_gone = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Worker on {', '.join(self.settings.topics)} in group {self.settings.group}>"

    def configured(self, settings: WorkerSettings, handle: Handler | None = None, hooks: Hooks | None = None) -> Worker:
        """A worker with the same code that is told something else.

        Args:
            settings: What it is told.
            handle: What takes the place of the handler, if anything.
            hooks: What takes the place of the hooks, if anything.

        Raises:
            Misuse: As for a new one.
        """
        return Worker(
            settings.topics, handle or self.handle, bootstrap=settings.bootstrap, group=settings.group,
            consumer=settings.consumer, hooks=hooks or self.hooks, expected=self._expected, observe=self._observe,
            record=self._record, **settings.options,
        )  # fmt: skip

    @property
    def state(self) -> ConsumerState:
        """Its partitions."""
        return self._worker.consumer

    async def run(self, connect: Connect = client) -> None:
        """Consume until `stop` is called, or the task is cancelled; then drain, commit and leave the group.

        Args:
            connect: Makes the client.

        Raises:
            Misuse: an option has a value that the client does not take.
            TidegateError: the broker cannot be reached at the start.
        """
        told = self.settings
        self._client = connect(told.bootstrap, told.group, told.options)
        try:
            await self._client.start()
        except CONNECTION_ERROR as error:
            await self._client.stop()
            raise TidegateError(
                f"no Kafka broker answers at {told.bootstrap}",
                todo="check the address, that the broker runs, and that security_protocol is what it wants",
            ) from error
        try:
            self._client.subscribe(told.topics, listener=listener(self._revoked, self._assigned))
            while not self._stop_calls:
                await self._poll()
            for _ in range(self._stop_calls):
                self._apply(self._stop_event())
            await self._is_gone.wait()
        finally:
            await self._leave()

    def stop(self) -> None:
        """Let `run` drain, commit, leave the group and return; called once more, it waits for nothing."""
        self._stop_calls += 1
        if self._worker.phase is not ShutdownPhase.WORKING:
            self._apply(self._stop_event())

    def _stop_event(self) -> StopRequested:
        return StopRequested(
            tuple(Revoked(part.partition, self._in_flight(part.partition)) for part in self.state.partitions)
        )

    async def _poll(self) -> None:
        """One turn: measure, pause and resume as planned, fetch, and hand over what came."""
        self._measure()
        plan = self._consumer.polling(self.state, tuple(map(ours, self._client.paused())))
        assigned = set(map(ours, self._client.assignment()))
        self._client.pause(*(theirs(each) for each in plan.pause if each in assigned))
        self._client.resume(*(theirs(each) for each in plan.resume if each in assigned))
        fetched = await self._client.getmany(*map(theirs, plan.poll), timeout_ms=_POLL_MS)
        generation = self._generation  # of the assignment in force as the poll returns
        await self._is_assigned.wait()
        for partition, received in fetched.items():
            self._hand_over(ours(partition), generation, received)

    def _hand_over(self, partition: TopicPartition, generation: int, received: Sequence[Received]) -> None:
        now = time.monotonic()
        self._records.setdefault(partition, {}).update(
            (each.offset, _Undone(record_of(each), now)) for each in received
        )
        offsets = tuple(each.offset for each in received)
        self._apply(Fetched(partition, generation, offsets, tuple(each.key for each in received)))

    def _measure(self) -> None:
        """Forget the records that are done, and measure how much the others hold up, where that matters."""
        now, bounds = time.monotonic(), self._consumer.partition.limits
        for part in self.state.partitions:
            undone, records = set(open_offsets(part.tracker)), self._records[part.partition]
            self._records[part.partition] = records = {
                offset: records[offset] for offset in records if offset in undone
            }
            if bounds.size is not None or bounds.age is not None:
                size = sum(len(each.record.key or b"") + len(each.record.value or b"") for each in records.values())
                oldest = min((each.came for each in records.values()), default=now)
                self._apply(Measured(part.partition, part.generation, size, round((now - oldest) * SECOND)))

    # --- what the group says ---

    async def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain and commit, then let go."""
        waits = {partition: asyncio.Event() for partition in revoked}
        for partition, wait in waits.items():
            self._releases.setdefault(partition, []).append(wait)
        for partition in revoked:
            self._apply(Revoked(partition, self._in_flight(partition)))
        for wait in waits.values():
            await wait.wait()

    def _in_flight(self, partition: TopicPartition) -> tuple[InFlight, ...]:
        """What is known of the records in work."""
        if self._expected is None:
            return ()
        now, records = time.monotonic(), self._records.get(partition, {})
        return tuple(
            InFlight(offset, round((now - began) * SECOND), self._expected(records[offset].record))
            for work, began in self._began_s.items()
            if work.partition == partition
            for offset in work.offsets
        )

    async def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin a new generation where the group has committed, with what it knows to be done beyond."""
        self._generation += 1
        generation = self._generation
        self._is_assigned.clear()
        try:
            for partition in assigned:
                self._records[partition] = {}
                position, metadata = await committed(self._client, partition)
                log_end = await end(self._client, partition) if metadata else position
                self._apply(Assigned(partition, generation, position, metadata, log_end))
        finally:
            self._is_assigned.set()

    # --- the commands of the reducer ---

    def _apply(self, event: ShutdownEvent) -> None:
        """Step, and begin to carry out the commands."""
        step = self._rules.step(self._worker, event)
        self._worker = step.state
        if self._record is not None:
            self._record(event, step.commands)
        if self._observe is not None and isinstance(event, Event):
            self._observe(event, self.state)
        for command in step.commands:
            self._carry_out(command)
        if self._worker.phase is ShutdownPhase.GONE:
            self._is_gone.set()

    def _carry_out(self, command: ShutdownCommand) -> None:
        match command:
            case Fetch():
                pass  # the next turn polls it
            case Work() | Commit() | StartDrainTimer() | StartRetryTimer() | Leave() | StartLeaveTimer():
                if isinstance(command, Work):
                    self._began_s[command] = time.monotonic()
                self._tasks[command] = asyncio.create_task(self._perform(command), name=str(command))
            case Interrupt(work):
                if task := self._tasks.get(work):
                    self._interrupted.add(work)
                    task.cancel()
            case Cancel(effect):
                self._interrupted.discard(effect)
                if task := self._tasks.pop(effect, None):
                    task.cancel()
            case Release(partition):
                for wait in self._releases.pop(partition, ()):
                    wait.set()

    async def _perform(self, command: _Task) -> None:
        """Do it, and pass on how it ended; of a task that was cancelled, nothing."""
        try:
            reply = await self._replied(command)
        except asyncio.CancelledError:
            if command not in self._interrupted:
                raise
            reply = Refused("interrupted")
        finally:
            self._interrupted.discard(command)
            if isinstance(command, Work):
                self._began_s.pop(command, None)
            if self._tasks.get(command) is asyncio.current_task():
                del self._tasks[command]
        try:
            event = event_for(command, reply)
        except Misuse as error:  # the user's code has answered something that is not an answer
            log.exception("no answer to %s", command)
            event = event_for(command, error)
        if event is not None:
            self._apply(event)

    async def _replied(self, command: _Task) -> object:
        match command:
            case Work(partition, _, Start() as start, offsets) if not self._consumer.partition.hooks:
                records = self._records[partition]
                given = [records[offset].record for offset in offsets]
                await asyncio.gather(*map(partial(self._handled, command), start.numbers, given))
                return TasksReported(start.window, (), start.attempt, Report.SUCCEEDED)  # each was reported on its own
            case Work(partition, _, _, offsets):
                return await self._hooked(command, tuple(self._records[partition][offset].record for offset in offsets))
            case Commit(partition, _, position, metadata):
                return await self._committed(partition, position, metadata)
            case StartDrainTimer(duration=duration) | StartRetryTimer(duration=duration) | StartLeaveTimer(duration):
                await asyncio.sleep(duration / SECOND)
                return None
            case Leave():
                return await self._left()
            case _:
                assert_never(command)

    async def _handled(self, work: Work, number: int, given: Record) -> None:
        """Call the handler with a record, and report at once how that ended."""
        assert isinstance(work.request, Start)
        report = Report.SUCCEEDED
        try:
            await self.handle(given)
        except Exception:
            log.exception("handler failed at %s", given, extra=_placed(given.of, given.offset, work.request.attempt))
            report = Report.FAILED
        self._apply(
            WorkReported(
                work.partition,
                work.generation,
                TasksReported(work.request.window, (number,), work.request.attempt, report),
            )
        )

    async def _hooked(self, work: Work, given: tuple[Record, ...]) -> object:
        assert self.hooks is not None, "the rules need none"
        try:
            return await self.hooks(work, given)
        except Exception as error:
            log.exception("hook failed: %s", work, extra=_placed(work.partition, work.offsets))
            return error

    async def _committed(self, partition: TopicPartition, position: int, metadata: str) -> Failure | None:
        try:
            await self._client.commit({theirs(partition): (position, metadata)})
        except TOO_LARGE as error:
            log.warning(
                "metadata of %s @%s refused: %s",
                partition,
                position,
                type(error).__name__,
                extra=_placed(partition, position),
            )
            return METADATA_REFUSED
        except REFUSED as error:
            log.warning(
                "commit of %s @%s refused: %s",
                partition,
                position,
                type(error).__name__,
                extra=_placed(partition, position),
            )
            return Refused(type(error).__name__)
        except KAFKA_ERROR as error:
            log.warning(
                "commit of %s @%s unanswered: %s",
                partition,
                position,
                type(error).__name__,
                extra=_placed(partition, position),
            )
            return Ambiguous(type(error).__name__)
        return None

    async def _left(self) -> Failure | None:
        try:
            await self._client.stop()
        except KAFKA_ERROR as error:
            log.warning("leaving the group unanswered: %s", type(error).__name__)
            return Ambiguous(type(error).__name__)
        return None

    async def _leave(self) -> None:
        """Leave nothing running, also after a failure."""
        tasks = tuple(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.stop()


def _placed(
    partition: TopicPartition, offset: int | tuple[int, ...], attempt: int | None = None
) -> Mapping[str, object]:
    """Where something happened, for whoever reads logs by fields."""
    found = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    return found if attempt is None else {**found, "attempt": attempt}
