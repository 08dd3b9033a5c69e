"""A worker on Kafka: it carries out what `tidegate.consumer.group` and `tidegate.consumer.shutdown` say, and decides nothing.

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
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, assert_never, final

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
    Work,
    WorkReported,
)
from tidegate.consumer.drain import InFlight
from tidegate.consumer.fanout import Report, Start, TasksReported
from tidegate.consumer.group import ConsumerRules, ConsumerState
from tidegate.consumer.shutdown import (
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
from tidegate.consumer.watermark import open_offsets
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
    Received,
    client,
    committed,
    end,
    listener,
    ours,
    record,
    theirs,
)

__all__ = ["Estimate", "Handler", "Hooks", "Observer", "Recording", "Worker"]


log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

_POLL_MS: Final = 100
Handler: TypeAlias = Callable[[Record], Awaitable[None]]
Hooks: TypeAlias = Callable[[Work, tuple[Record, ...]], Awaitable[object]]
Observer: TypeAlias = Callable[[Event, ConsumerState], None]
Recording: TypeAlias = Callable[[ShutdownEvent, Sequence[ShutdownCommand]], None]
Estimate: TypeAlias = Callable[[Record], Duration | None]


class _Kept(NamedTuple):
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

    Raises:
        Misuse: no topic, no group, a handler that is not an async function, or rules that need hooks, and none.
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
        if isinstance(topics, str) or not topics or not all(topics):
            raise Misuse(f"{topics!r} are not topics", todo="pass a list of names")
        if not group:
            raise Misuse("a worker needs a consumer group", why="its commits are the group's")
        if not callable(handle):
            raise Misuse(f"{handle!r} cannot handle records", todo="pass an async function of one record")
        if hooks is None and consumer.partition.needs_hooks:
            raise Misuse("these rules ask for more than to handle records", todo="pass hooks=")
        self.topics, self.handle, self.bootstrap, self.consumer = tuple(topics), handle, bootstrap, consumer
        self.hooks, self.expected, self.observe, self.record = hooks, expected, observe, record
        self.client: Client = client(bootstrap, group, options)
        self.rules = WorkerRules(consumer)
        self.held = WorkerState()
        self.generation = 0
        self.kept: dict[TopicPartition, dict[int, _Kept]] = {}
        self.began: dict[Work, float] = {}
        self.tasks: dict[Effect[object], asyncio.Task[None]] = {}
        self.interrupted: set[Effect[object]] = set()
        self.releases: dict[TopicPartition, list[asyncio.Event]] = {}
        self.is_assigned = asyncio.Event()
        self.is_assigned.set()
        self.asked = 0
        self.is_gone = asyncio.Event()

    @property
    def state(self) -> ConsumerState:
        """Its partitions."""
        return self.held.consumer

    async def run(self) -> None:
        """Consume until `stop` is called, or the task is cancelled; then drain, commit and leave the group.

        Raises:
            TidegateError: the broker cannot be reached at the start.
        """
        try:
            await self.client.start()
        except CONNECTION_ERROR as error:
            await self.client.stop()
            raise TidegateError(
                f"no Kafka broker answers at {self.bootstrap}", todo="check the address, and that the broker runs"
            ) from error
        try:
            self.client.subscribe(self.topics, listener=listener(self))
            while not self.asked:
                await self.poll()
            for _ in range(self.asked):
                self.apply(self.to_stop())
            await self.is_gone.wait()
        finally:
            await self.leave()

    def stop(self) -> None:
        """Let `run` drain, commit, leave the group and return; called once more, it waits for nothing."""
        self.asked += 1
        if self.held.phase is not ShutdownPhase.WORKING:
            self.apply(self.to_stop())

    def to_stop(self) -> StopRequested:
        return StopRequested(
            tuple(Revoked(part.partition, self.in_flight(part.partition)) for part in self.state.partitions)
        )

    async def poll(self) -> None:
        """One turn: measure, pause and resume as planned, fetch, and hand over what came."""
        self.measure()
        plan = self.consumer.polling(self.state, tuple(map(ours, self.client.paused())))
        assigned = set(map(ours, self.client.assignment()))
        self.client.pause(*(theirs(each) for each in plan.pause if each in assigned))
        self.client.resume(*(theirs(each) for each in plan.resume if each in assigned))
        fetched = await self.client.getmany(*map(theirs, plan.poll), timeout_ms=_POLL_MS)
        generation = self.generation  # of the assignment in force as the poll returns
        await self.is_assigned.wait()
        for partition, received in fetched.items():
            self.hand_over(ours(partition), generation, received)

    def hand_over(self, partition: TopicPartition, generation: int, received: Sequence[Received]) -> None:
        now = time.monotonic()
        self.kept.setdefault(partition, {}).update((each.offset, _Kept(record(each), now)) for each in received)
        offsets = tuple(each.offset for each in received)
        self.apply(Fetched(partition, generation, offsets, tuple(each.key for each in received)))

    def measure(self) -> None:
        """Forget the records that are done, and measure how much the others hold up, where that matters."""
        now, bounds = time.monotonic(), self.consumer.partition.limits
        for part in self.state.partitions:
            undone, kept = set(open_offsets(part.tracker)), self.kept[part.partition]
            self.kept[part.partition] = kept = {offset: kept[offset] for offset in kept if offset in undone}
            if bounds.size is not None or bounds.age is not None:
                size = sum(len(each.record.key or b"") + len(each.record.value or b"") for each in kept.values())
                oldest = min((each.came for each in kept.values()), default=now)
                self.apply(Measured(part.partition, part.generation, size, round((now - oldest) * SECOND)))

    # --- what the group says ---

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain and commit, then let go."""
        waits = {partition: asyncio.Event() for partition in revoked}
        for partition, wait in waits.items():
            self.releases.setdefault(partition, []).append(wait)
        for partition in revoked:
            self.apply(Revoked(partition, self.in_flight(partition)))
        for wait in waits.values():
            await wait.wait()

    def in_flight(self, partition: TopicPartition) -> tuple[InFlight, ...]:
        """What is known of the records in work."""
        if self.expected is None:
            return ()
        now, kept = time.monotonic(), self.kept.get(partition, {})
        return tuple(
            InFlight(offset, round((now - began) * SECOND), self.expected(kept[offset].record))
            for work, began in self.began.items()
            if work.partition == partition
            for offset in work.offsets
        )

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin a new generation where the group has committed, with what it knows to be done beyond."""
        self.generation += 1
        generation = self.generation
        self.is_assigned.clear()
        try:
            for partition in assigned:
                self.kept[partition] = {}
                position, metadata = await committed(self.client, partition)
                log_end = await end(self.client, partition) if metadata else position
                self.apply(Assigned(partition, generation, position, metadata, log_end))
        finally:
            self.is_assigned.set()

    # --- the commands of the reducer ---

    def apply(self, event: ShutdownEvent) -> None:
        """Step, and begin to carry out the commands."""
        step = self.rules.step(self.held, event)
        self.held = step.state
        if self.record is not None:
            self.record(event, step.commands)
        if self.observe is not None and isinstance(event, Event):
            self.observe(event, self.state)
        for command in step.commands:
            self.carry_out(command)
        if self.held.phase is ShutdownPhase.GONE:
            self.is_gone.set()

    def carry_out(self, command: ShutdownCommand) -> None:
        match command:
            case Fetch():
                pass  # the next turn polls it
            case Work() | Commit() | StartDrainTimer() | Leave() | StartLeaveTimer():
                if isinstance(command, Work):
                    self.began[command] = time.monotonic()
                self.tasks[command] = asyncio.create_task(self.perform(command), name=str(command))
            case Interrupt(work):
                if task := self.tasks.get(work):
                    self.interrupted.add(work)
                    task.cancel()
            case Cancel(effect):
                self.interrupted.discard(effect)
                if task := self.tasks.pop(effect, None):
                    task.cancel()
            case Release(partition):
                for wait in self.releases.pop(partition, ()):
                    wait.set()

    async def perform(self, command: Work | Commit | StartDrainTimer | Leave | StartLeaveTimer) -> None:
        """Do it, and pass on how it ended; of a task that was cancelled, nothing."""
        try:
            reply = await self.replied(command)
        except asyncio.CancelledError:
            if command not in self.interrupted:
                raise
            reply = Refused("interrupted")
        finally:
            self.interrupted.discard(command)
            if isinstance(command, Work):
                self.began.pop(command, None)
            if self.tasks.get(command) is asyncio.current_task():
                del self.tasks[command]
        try:
            event = event_for(command, reply)
        except Misuse as error:  # the user's code has answered something that is not an answer
            log.exception("no answer to %s", command)
            event = event_for(command, error)
        if event is not None:
            self.apply(event)

    async def replied(self, command: Work | Commit | StartDrainTimer | Leave | StartLeaveTimer) -> object:
        match command:
            case Work(partition, _, Start() as task, offsets) if not self.consumer.partition.hooks:
                kept = self.kept[partition]
                given = [kept[offset].record for offset in offsets]
                await asyncio.gather(*map(partial(self.handled, command), task.numbers, given))
                return TasksReported(task.window, (), task.attempt, Report.SUCCEEDED)  # each was reported on its own
            case Work(partition, _, _, offsets):
                return await self.hooked(command, tuple(self.kept[partition][offset].record for offset in offsets))
            case Commit(partition, _, position, metadata):
                return await self.committed(partition, position, metadata)
            case StartDrainTimer(duration=duration) | StartLeaveTimer(duration):
                await asyncio.sleep(duration / SECOND)
                return None
            case Leave():
                return await self.left()
            case _:
                assert_never(command)

    async def handled(self, work: Work, number: int, given: Record) -> None:
        """Call the handler with a record, and report at once how that ended."""
        assert isinstance(work.request, Start)
        report = Report.SUCCEEDED
        try:
            await self.handle(given)
        except Exception:
            log.exception("handler failed at %s", given)
            report = Report.FAILED
        self.apply(
            WorkReported(
                work.partition,
                work.generation,
                TasksReported(work.request.window, (number,), work.request.attempt, report),
            )
        )

    async def hooked(self, work: Work, given: tuple[Record, ...]) -> object:
        assert self.hooks is not None, "the rules need none"
        try:
            return await self.hooks(work, given)
        except Exception as error:
            log.exception("hook failed: %s", work)
            return error

    async def committed(self, partition: TopicPartition, position: int, metadata: str) -> Failure | None:
        try:
            await self.client.commit({theirs(partition): (position, metadata)})
        except TOO_LARGE as error:
            log.warning("metadata of %s @%s refused: %s", partition, position, type(error).__name__)
            return METADATA_REFUSED
        except REFUSED as error:
            log.warning("commit of %s @%s refused: %s", partition, position, type(error).__name__)
            return Refused(type(error).__name__)
        except KAFKA_ERROR as error:
            log.warning("commit of %s @%s unanswered: %s", partition, position, type(error).__name__)
            return Ambiguous(type(error).__name__)
        return None

    async def left(self) -> Failure | None:
        try:
            await self.client.stop()
        except KAFKA_ERROR as error:
            log.warning("leaving the group unanswered: %s", type(error).__name__)
            return Ambiguous(type(error).__name__)
        return None

    async def leave(self) -> None:
        """Leave nothing running, also after a failure."""
        tasks = tuple(self.tasks.values())
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.stop()
