"""One life of a worker in its group: from the start of its client until the group is left.

What is to be done, and in which order, `tidegate.consumer.worker` says; `tidegate_adapters.runtime` carries it out. Here is
what those two do not know: Kafka's calls for the commands, and the events that its client and the clock tell.

    command            what is done                                reply -> event
    Work               the user's code, on a runner                WorkReported, or WorkFailed
    Work of Handle     the handler with each record; what it       WorkReported: all that ended in one turn is one `Batch`
                       answers with is sent
    Work of Deliver-   a dead letter is written, where there is    WorkReported, once it is
    Records            a topic for them, or it is logged
    Interrupt          that code is cancelled                      that of the work, once it has ended
    Commit             `kafka_ports.commit`                        Committed, CommitRefused, MetadataRefused, CommitUnknown
    Start...Timer      a timer                                     ...TimerFired
    Cancel of Work     the same, and nobody waits for it           the same, so that it counts until then
    Cancel             that timer or call is cancelled             nothing
    Release            the revocation may return                   nothing
    Leave              the client is stopped                       LeaveAnswered
    ...Unanswered      it is logged                                nothing
    Fetch              nothing: the loop of polls asks `polling`   Fetched

Three things go on at once: the runtime; polls, one after the other; and for each assignment the question for what is
committed. A partition is polled when that has been answered, and not before; the question is asked again until it is, or
until the partition is gone. Records of a partition that is not known yet are sought back to, for the client takes them as
read once it has handed them out.

A generation is counted from the client's own assignments. A commit names the client's generation of then, and is not sent
under another one, nor under none; a revocation that comes without a generation finds the partitions lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from random import randint
from typing import Final, NamedTuple, TypeAlias, final

from tidegate.consumer.backpressure import Plan
from tidegate.consumer.commands import (
    Assigned,
    Batch,
    Commit,
    CommitsUnanswered,
    Event,
    Fetch,
    Fetched,
    Handle,
    Interrupt,
    Lost,
    Measured,
    RecordsHandled,
    RecordsParked,
    Release,
    Request,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkReported,
    WorkUnanswered,
)
from tidegate.consumer.commit_answers import verdict
from tidegate.consumer.consumer import ConsumerState
from tidegate.consumer.drain import InFlight
from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Report, Start, Tasks, TasksReported
from tidegate.consumer.health import Health, Watch, judged, looked, polled, sights
from tidegate.consumer.partition import Owned
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
    merged,
)
from tidegate.model.effects import Cancel, Failure, Refused
from tidegate.model.errors import TidegateError
from tidegate.model.instants import PPM, SECOND, ClockName, Duration, Instant, jittered, seconds
from tidegate.model.records import Record, TopicPartition
from tidegate.retries.backoff import Exponential, delay_after
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.handlers import Called, Later, Undecodable, Unread, is_pattern, pattern_of, unread_and_sends
from tidegate_adapters.kafka_ports import Client, Received, ours, record_of, theirs
from tidegate_adapters.runtime import After, Call, CallEach, Ended, InterruptEach, Job, Runtime, Withdraw, as_failure
from tidegate_adapters.runtime import Interrupt as EndCode
from tidegate_adapters.sending import DeadLetters, Failed, Sender, failed_by
from tidegate_adapters.tallies import Glance, Tallies
from tidegate_adapters.worker_settings import WorkerSettings

__all__ = ["Code", "Estimate", "Hooks", "Member", "Observer", "Recording"]

log: Final = logging.getLogger("tidegate_adapters.kafka")

Hooks: TypeAlias = Callable[[Work, tuple[Record, ...]], Awaitable[object]]
Observer: TypeAlias = Callable[[Event, ConsumerState], None]
Recording: TypeAlias = Callable[[ShutdownEvent, Sequence[ShutdownCommand]], None]
Estimate: TypeAlias = Callable[[Record], Duration | None]

_POLL_MS: Final = 100
_POLL_S: Final = _POLL_MS / 1_000
_SEARCH_S: Final = 5.0
"""How long it looks for a record that cannot be decoded."""
_BETWEEN_COMMITS_S: Final = 0.1
"""How long a partition waits at least from one commit to the next, unless it is to be given back."""
_ASK_AGAIN: Final = Exponential(SECOND // 10, cap=5 * SECOND)
"""How long it waits before it asks again what is committed."""
_LOOP: Final = ClockName("loop")
"""The clock of the event loop, by which it is judged how long something stands."""


@final
class Code(NamedTuple):
    """The user's code; `is_batch` says that it handles the records of a window together."""

    handle: Called
    hooks: Hooks | None
    expected: Estimate | None
    observe: Observer | None
    record: Recording | None
    is_batch: bool = False


class _Undone(NamedTuple):
    """A record that is not done, when it came, in seconds of the loop's clock, and how it has failed, if it has."""

    received: Received
    came_s: float
    failed: Failed = Failed()


@final
class Member:
    """A member of a group, within the event loop in which it is made.

    Args:
        client: Not started yet.
        settings: What the worker was told.
        code: The user's.
        sender: Sends what the worker has to send.
        tallies: Where it is counted what happens, if anywhere.
    """

    def __init__(
        self, client: Client, settings: WorkerSettings, code: Code, sender: Sender, tallies: Tallies | None = None
    ) -> None:
        self._client, self._settings, self._code, self._sender = client, settings, code, sender
        self._tallies = tallies
        self._dead_letters = (
            None if settings.dead_letter is None else DeadLetters(sender, settings.dead_letter, settings.group)
        )
        self._rules = rules = WorkerRules(settings.consumer, settings.leave)
        self._loop = asyncio.get_running_loop()
        observers = [
            self._follow,
            *([tallies.follow] if tallies is not None else []),
            *([self._observe] if code.observe else []),
            *([self._note] if code.record else []),
        ]
        self._runtime: Runtime[WorkerState, ShutdownEvent, ShutdownCommand]
        self._runtime = Runtime(
            rules, WorkerState(), self._begin, self._event_for, merge=merged, observers=observers, fields=_fields_of
        )
        self._generations: dict[TopicPartition, int] = {}
        """Of the partitions that are assigned, by our count."""
        self._count = 0
        self._granted: dict[int, int | None] = {}
        """By our generation, the client's."""
        self._records: dict[tuple[TopicPartition, int], dict[int, _Undone]] = {}
        """Those that are not done, by partition and our generation, and by offset."""
        self._may_poll: asyncio.Event | None = None
        """Where the loop of polls waits until something may be polled."""
        self._releases: dict[TopicPartition, list[asyncio.Event]] = {}
        """Revocations that wait for the release of their partition."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Questions for what is committed, and the loop of polls."""
        self._starting: asyncio.Task[None] | None = None
        self._called_off = asyncio.Event()
        self._hurries = asyncio.Event()
        """Set while partitions are given back."""
        self._is_started = False
        self._owed: BaseException | None = None
        """What `run` raises in the end."""
        self._watch, self._looked_s = Watch(), self._loop.time()

    @property
    def state(self) -> ConsumerState:
        """Its partitions."""
        return self._runtime.state.consumer

    def glance(self) -> Glance:
        """What it is like now; from any thread."""
        state, now_s = self.state, self._loop.time()
        seen = sights(state, dict(self._generations))
        came = {each.partition: _first(self._records.get((each.partition, each.generation), {})) for each in seen}
        ages_s = {partition: now_s - undone.came_s for partition, undone in came.items() if undone is not None}
        ends = {each.partition: ports.end_seen(self._client, each.partition) for each in seen}
        return Glance(state, seen, ages_s, {partition: end for partition, end in ends.items() if end is not None})

    def health(self) -> Health:
        """How it is now; from any thread."""
        now, state = self._now, self._runtime.state
        watch = looked(self._watch, sights(state.consumer, dict(self._generations)), now)
        return judged(watch, state.phase, self._settings.stalled_after, now)

    @property
    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    async def run(self) -> None:
        """Consume until `stop`, a cancellation, an exit of user code, or an error that lasts; then drain, commit and leave.

        Raises:
            TidegateError: The broker cannot be reached, or has failed it for good.
            CancelledError, SystemExit, KeyboardInterrupt: As it came, after what was owed.
        """
        try:
            if not await self._started():
                return
            self._spawn(self._poll_on())
            while self._runtime.state.phase is not ShutdownPhase.GONE:
                try:
                    await self._runtime.until(lambda state: state.phase is ShutdownPhase.GONE)
                except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                    self._end_with(error)
        finally:
            await self._finish()
        if self._owed is not None:
            raise self._owed

    def stop(self) -> None:
        """Drain, commit and leave; called once more, wait for nothing. Before the client has started there is nothing to leave."""
        if not self._is_started:
            self._called_off.set()
            if self._starting is not None:
                self._starting.cancel()
            return
        self._hurries.set()
        known = tuple(Revoked(part.partition, self._in_flight(part.partition)) for part in self.state.partitions)
        self._runtime.tell(StopRequested(known))

    def _end_with(self, error: BaseException) -> None:
        """Stop, and raise this in the end."""
        self._owed = self._owed or error
        self.stop()

    async def _started(self) -> bool:
        """Start the client; tell whether it has not been called off."""
        if not self._called_off.is_set():
            self._starting = asyncio.create_task(self._start())
            try:
                await self._starting
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if not self._called_off.is_set() or (me is not None and me.cancelling()):
                    raise
        self._is_started = not self._called_off.is_set()
        return self._is_started

    async def _start(self) -> None:
        try:
            await self._client.start()
        except ports.CONNECTION_ERROR as error:
            raise TidegateError(
                f"no Kafka broker answers at {self._settings.bootstrap}",
                todo="check the address, that the broker runs, and that security_protocol is what it wants",
            ) from error
        except ports.KAFKA_ERROR as error:
            raise TidegateError("the Kafka client does not start", why=_named(error)) from error
        topics, listener = self._settings.topics, ports.listener(self._revoked, self._assigned)
        if any(map(is_pattern, topics)):
            self._client.subscribe(pattern=pattern_of(topics), listener=listener)
        else:
            self._client.subscribe(topics, listener=listener)

    async def _finish(self) -> None:
        """Leave nothing running, whatever has failed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waits in self._releases.values():  # or the client waits for its listener
            for wait in waits:
                wait.set()
        await self._runtime.close()
        with suppress(ports.KAFKA_ERROR, TimeoutError):
            async with asyncio.timeout(self._rules.leave / SECOND):
                await self._client.stop()
                await self._sender.stop()

    def _spawn(self, code: Awaitable[None]) -> None:
        """Do it beside the rest; an error of it ends the worker."""
        task = asyncio.ensure_future(code)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and self._is_working:  # whoever leaves hears all kinds of errors
                self._end_with(_ours(error))

        task.add_done_callback(ended)

    # --- records ---

    async def _poll_on(self) -> None:
        """One poll after the other, until it is asked to stop.

        Raises:
            TidegateError: The client will not go on.
        """
        while self._is_working:
            await asyncio.sleep(0)  # where nobody waits, others come to their turn
            try:
                await self._poll()
            except UnicodeDecodeError as error:
                if (found := await self._place_of(error)) is not None:
                    raise found from error
            except ports.KAFKA_ERROR as error:
                if not error.retriable:
                    raise TidegateError("the Kafka client has failed", why=_named(error)) from error
                log.warning("poll failed: %s", _named(error))
                await asyncio.sleep(_POLL_S)

    @property
    def _is_working(self) -> bool:
        return self._runtime.state.phase is ShutdownPhase.WORKING

    async def _poll(self) -> None:
        """Poll what may be polled; where nothing may, wait until something may, and pause what is held for longer."""
        state = (await self._runtime.stepped()).consumer
        self._look(state)
        self._measure(state)
        if not self._plan(state).poll:
            self._may_poll = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._may_poll.wait()
            self._may_poll = None
        plan, assigned = self._plan(self.state), set(map(ours, self._client.assignment()))
        self._client.pause(*(theirs(each) for each in plan.pause if each in assigned))
        self._client.resume(*(theirs(each) for each in plan.resume if each in assigned))
        asked = plan.poll or tuple(map(ours, self._client.paused()))
        fetched = await self._client.getmany(*map(theirs, asked), timeout_ms=_POLL_MS if plan.poll else 0)
        for partition, received in fetched.items():
            self._hand_over(ours(partition), received)

    def _look(self, state: ConsumerState) -> None:
        """Note which partitions stand, and that they are polled."""
        if self._watch.polled is None or self._loop.time() >= self._looked_s + _POLL_S:
            self._looked_s, now = self._loop.time(), self._now
            self._watch = polled(looked(self._watch, sights(state, self._generations), now), now)

    def _plan(self, state: ConsumerState) -> Plan[TopicPartition]:
        return self._rules.consumer.polling(state, tuple(map(ours, self._client.paused())))

    def _hand_over(self, partition: TopicPartition, received: Sequence[Received]) -> None:
        """Tell of records; those of a partition that is not known yet are to come again."""
        part, generation = self.state[partition], self._generations.get(partition)
        if generation is None:
            return
        if not isinstance(part, Owned) or part.generation != generation:
            self._client.seek(theirs(partition), received[0].offset)
            return
        now = self._loop.time()
        self._records[partition, generation].update((each.offset, _Undone(each, now)) for each in received)
        keys = tuple(each.key for each in received)
        self._runtime.tell(Fetched(partition, generation, tuple(each.offset for each in received), keys))

    def _measure(self, state: ConsumerState) -> None:
        """Forget the records that are done, and measure how much the others hold up, where that matters."""
        now, rules = self._loop.time(), self._rules.consumer.partition
        for part in state.partitions:
            records = self._records[part.partition, part.generation]
            if not rules.is_plain:  # otherwise each is forgotten when it is done
                undone = set(open_offsets(part.tracker))
                records = self._records[part.partition, part.generation] = {
                    offset: each for offset, each in records.items() if offset in undone
                }
            if rules.limits.size is not None or rules.limits.age is not None:
                size = sum(len(each.received.key or b"") + len(each.received.value or b"") for each in records.values())
                oldest = min((each.came_s for each in records.values()), default=now)
                self._runtime.tell(Measured(part.partition, part.generation, size, round((now - oldest) * SECOND)))

    async def _place_of(self, error: UnicodeDecodeError) -> TidegateError | None:
        """Which record it is that the client cannot decode: each partition is polled once more, one record at a time.

        None where it is of a partition that was revoked meanwhile: whoever has that then will find it.
        """
        with suppress(TimeoutError, ports.KAFKA_ERROR):
            async with asyncio.timeout(_SEARCH_S):
                for partition in tuple(self._generations):
                    with suppress(ports.NOT_ASSIGNED):
                        if await self._is_undecodable(partition):
                            return TidegateError(
                                f"the record of {partition} at {await self._client.position(theirs(partition))} cannot be"
                                " decoded",
                                why=f"a name of a header is not UTF-8 ({error.reason}), and aiokafka decodes no other",
                                todo="have its producer mended, and commit the position behind it for the group",
                            )
                return None
        return TidegateError(
            "a record cannot be decoded", why=error.reason, todo="poll one record at a time to find it"
        )

    async def _is_undecodable(self, partition: TopicPartition) -> bool:
        """Tell whether a record of the partition cannot be decoded; then the position is its offset, else as before."""
        generation, at = self._generations.get(partition), theirs(partition)
        part, log_end = self.state[partition], await ports.end(self._client, partition)
        if not isinstance(part, Owned) or part.generation != generation:
            return False  # it is not polled yet
        began = await self._client.position(at)
        self._client.seek(at, began)
        self._client.resume(at)
        try:
            while self._generations.get(partition) == generation and await self._client.position(at) < log_end:
                _ = await self._client.getmany(at, timeout_ms=_POLL_MS, max_records=1)
        except UnicodeDecodeError:
            return True
        if self._generations.get(partition) == generation:
            self._client.seek(at, began)
        return False

    # --- what the group says ---

    async def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain and commit, then let go; where the group has taken them already, only the latter."""
        self._hurries.set()
        waits = {partition: asyncio.Event() for partition in revoked}
        is_lost = ports.generation_of(self._client) == ports.NO_GENERATION
        for partition, wait in waits.items():
            self._generations.pop(partition, None)
            if is_lost:
                self._runtime.tell(Lost(partition))
            else:
                self._releases.setdefault(partition, []).append(wait)
                self._runtime.tell(Revoked(partition, self._in_flight(partition)))
        if not is_lost:
            for wait in waits.values():
                await wait.wait()

    def _in_flight(self, partition: TopicPartition) -> tuple[InFlight, ...]:
        """What is known of the records in work."""
        if self._code.expected is None:
            return ()
        now, expected = self._loop.time(), self._code.expected
        return tuple(
            InFlight(record.offset, round((now - each.began_s) * SECOND), expected(record))
            for each in self._runtime.working()
            if isinstance(each.command, Work) and each.command.partition == partition
            for record in (each.given if isinstance(each.given, tuple) else (each.given,))
            if isinstance(record, Record)
        )

    async def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin a new generation; each partition is held until it is known where it begins."""
        if self._is_working:
            self._hurries.clear()
        self._count += 1
        self._granted = {
            **{each: self._granted[each] for each in self._generations.values() if each in self._granted},
            self._count: ports.generation_of(self._client),
        }
        self._client.pause(*map(theirs, assigned))
        for partition in assigned:
            self._generations[partition], self._records[partition, self._count] = self._count, {}
            self._spawn(self._resumed(partition, self._count))

    async def _resumed(self, partition: TopicPartition, generation: int) -> None:
        """Begin where the group has committed, with what it knows to be done beyond; ask until that is answered.

        Raises:
            TidegateError: It never will be.
        """
        failures = 0
        while self._is_working and self._generations.get(partition) == generation:
            try:
                position, metadata = await ports.committed(self._client, partition) or await self._beginning(partition)
                log_end = await ports.end(self._client, partition) if metadata else position
            except ports.KAFKA_ERROR as error:
                if not error.retriable and not isinstance(error, ports.TIMED_OUT):
                    raise TidegateError(f"nobody says what is committed for {partition}", why=_named(error)) from error
                log.warning(
                    "no word of what is committed for %s: %s", partition, _named(error), extra=_placed(partition)
                )
                failures += 1
                await asyncio.sleep(delay_after(_ASK_AGAIN, failures) / SECOND)
                continue
            if self._generations.get(partition) == generation:
                self._runtime.tell(Assigned(partition, generation, position, metadata, log_end))
            return

    async def _beginning(self, partition: TopicPartition) -> tuple[int, str]:
        """Where nothing is committed: where the settings say, or where the client finds by itself."""
        time, position = self._settings.start_time, self._settings.start_offsets.get(partition)
        if position is None and time is not None:
            position = await ports.offset_at(self._client, partition, time)
        if position is None:
            return 0, ""
        self._client.seek(theirs(partition), position)
        return position, ""

    # --- commands ---

    def _begin(self, command: ShutdownCommand) -> Job | None:
        match command:
            case Work(request=Handle(attempt=attempt)):
                return CallEach(self._code.handle, self._given(command), partial(self._ended, attempt))
            case Work(request=DeliverRecords(to_dead_letter=failed)) if failed and self._answers_itself:
                return Call(lambda: self._answered_for(command))
            case Work(request=Start(attempt=attempt)) if not self._rules.consumer.partition.hooks:
                return CallEach(self._code.handle, self._given(command), partial(self._ended, attempt))
            case Work():
                given = self._given(command)
                hooks = self._of_batches if self._code.is_batch else self._code.hooks
                assert hooks is not None, "the rules need none"
                return Call(lambda: hooks(command, given))
            case Commit():
                return Call(lambda: self._committed(command))
            case StartRetryTimer(duration=duration, jitter_ppm=jitter_ppm):
                draw = randint(0, PPM) if jitter_ppm else 0  # noqa: S311  it scatters, and keeps no secret
                return After(jittered(duration, jitter_ppm, draw) / SECOND)
            case StartDrainTimer(duration=duration) | StartLeaveTimer(duration):
                return After(duration / SECOND)
            case Leave():
                return Call(self._left)
            case Interrupt(Work(partition, generation, Handle(), offsets)) | Cancel(
                Work(partition, generation, Handle(), offsets)
            ):
                named = frozenset(offsets)  # which need not have begun together
                return InterruptEach(
                    lambda command, record: (
                        isinstance(command, Work)
                        and (command.partition, command.generation) == (partition, generation)
                        and record.offset in named
                    )
                )
            case Interrupt(work) | Cancel(Work() as work):  # that it has ended is told of what is given up, too
                return EndCode(work)
            case Cancel(effect):
                return Withdraw(effect)
            case Release(partition):
                self._forget(partition)
                for wait in self._releases.pop(partition, ()):
                    wait.set()
                return None
            case WorkUnanswered(partition, _, request):
                log.error(
                    "%s", command, extra=_placed(partition, getattr(request, "offsets", None), _attempt_of(request))
                )
                return None
            case CommitsUnanswered(partition, _, position):
                log.error("%s", command, extra=_placed(partition, position))
                return None
            case Fetch():
                return None

    async def _ended(self, attempt: int, _: object, reply: object) -> None:
        """What a handler has answered with is done before its record is."""
        unread, sends = unread_and_sends(reply)
        for each in unread:
            await self._put_aside(each, attempt)
        await self._sender.send(sends)

    async def _put_aside(self, unread: Unread, attempt: int) -> None:
        """Skip or dead-letter what cannot be decoded."""
        record = unread.record
        if self._settings.undecodable is Undecodable.DEAD_LETTER:
            assert self._dead_letters is not None, "it was checked"
            await self._dead_letters.write(record, failed_by(unread.error, 0))
            return
        placed = _placed(record.of, record.offset, attempt)
        log.error(
            "skipped %s @%s, which cannot be decoded", record.of, record.offset, exc_info=unread.error, extra=placed
        )

    async def _of_batches(self, work: Work, given: tuple[Record, ...]) -> object:
        """A window is one task, which is tried again as often as it may be."""
        match work.request:
            case Arrange(_, offsets):
                return Tasks((offsets,))
            case Judge():
                return Report.RETRIED
            case Start(attempt=attempt):
                began_s, done, failed = self._loop.time(), 0, 0
                try:
                    await self._ended(attempt, given, await self._code.handle(given))
                    done = len(given)
                except Exception:
                    failed = 1
                    raise
                finally:
                    self._tally(work, done, failed, [self._loop.time() - began_s])
                return None
            case _:
                raise AssertionError(work)

    @property
    def _answers_itself(self) -> bool:
        """Whether it answers for records that have failed, and no hook does."""
        return self._dead_letters is not None or self._code.hooks is None

    async def _answered_for(self, work: Work) -> None:
        """Write the dead letters of records that have failed, or skip them."""
        records = self._records[work.partition, work.generation]
        for undone in [records[offset] for offset in work.offsets]:
            record, failed = record_of(undone.received), undone.failed
            if self._dead_letters is not None:
                await self._dead_letters.write(record, failed)
            else:
                placed = _placed(work.partition, record.offset, failed.attempts)
                log.error(
                    "skipped %s, which has failed %s times: %s", record, failed.attempts, failed.error, extra=placed
                )

    def _done(self, work: Work, offsets: Iterable[int]) -> None:
        """Forget these; where there is more to records than to handle them, `_measure` finds out that they are done."""
        if self._rules.consumer.partition.is_plain:
            records = self._records.get((work.partition, work.generation), {})
            for offset in offsets:
                records.pop(offset, None)

    def _given(self, work: Work) -> tuple[Record, ...]:
        records = self._records[work.partition, work.generation]
        return tuple(record_of(records[offset].received) for offset in work.offsets)

    def _forget(self, partition: TopicPartition) -> None:
        """Records of its earlier lives."""
        now = self._generations.get(partition)
        self._records = {key: each for key, each in self._records.items() if key[0] != partition or key[1] == now}

    def _event_for(self, command: ShutdownCommand, reply: object) -> ShutdownEvent | None:
        match command:
            case Work(request=Start() as start) if not self._rules.consumer.partition.hooks and isinstance(
                reply, tuple
            ):
                return self._tasks_event(command, start, reply)
            case Work(request=Handle() as handle) if isinstance(reply, tuple):
                return self._handled_event(command, handle, reply)
            case Work(request=request) if isinstance(reply, BaseException):
                self._log_failure(command, command.offsets, reply, _attempt_of(request))
                if isinstance(request, Start):
                    self._note_failure(command, command.offsets, reply, request.attempt)
                return event_for(command, reply)
            case Work(request=DeliverRecords()) if reply is None:
                self._done(command, command.offsets)
                return event_for(command, reply)
            case Work() | StartDrainTimer() | StartRetryTimer() | StartLeaveTimer():
                return event_for(command, reply)
            case _:
                return event_for(command, as_failure(reply))

    def _handled_event(self, work: Work, handle: Handle, ended: tuple[Ended, ...]) -> ShutdownEvent:
        """What the handlers of some records have come to."""
        done: list[int] = []
        failed: list[int] = []
        parked: dict[Duration, list[int]] = {}
        for record, reply, _ in ended:
            assert isinstance(record, Record)
            if isinstance(reply, Later):
                parked.setdefault(reply.delay, []).append(record.offset)
            elif isinstance(reply, BaseException):
                self._log_failure(work, record.offset, reply, handle.attempt)
                self._note_failure(work, (record.offset,), reply, handle.attempt)
                failed.append(record.offset)
            else:
                done.append(record.offset)
        self._done(work, done)
        for delay, offsets in parked.items():
            placed = _placed(work.partition, tuple(offsets), handle.attempt)
            log.info("%s of %s are parked for %s", offsets, work.partition, seconds(delay), extra=placed)
            put_off = RecordsParked(tuple(offsets), delay, handle.attempt)
            self._runtime.tell(WorkReported(work.partition, work.generation, put_off))
        if self._tallies is not None:  # it is on the way of each record
            self._tally(work, len(done), _raised(ended) if failed else 0, [*map(_SECONDS, ended)])
        what = RecordsHandled(tuple(done), tuple(failed), handle.attempt)
        return WorkReported(work.partition, work.generation, what)

    def _tasks_event(self, work: Work, start: Start, ended: tuple[Ended, ...]) -> ShutdownEvent:
        """What the handlers of some records have come to; what failed is told behind what did not."""
        numbers = dict(zip(work.offsets, start.numbers, strict=True))
        reported: dict[Report, list[int]] = {}
        for record, reply, _ in ended:
            assert isinstance(record, Record)
            has_failed = isinstance(reply, BaseException)
            if has_failed:
                self._log_failure(work, record.offset, reply, start.attempt)
                self._note_failure(work, (record.offset,), reply, start.attempt)
            else:
                self._done(work, (record.offset,))
            reported.setdefault(Report.FAILED if has_failed else Report.SUCCEEDED, []).append(numbers[record.offset])
        done = len(reported.get(Report.SUCCEEDED, ()))
        self._tally(work, done, _raised(ended), [*map(_SECONDS, ended)])
        first, *others = (
            WorkReported(
                work.partition, work.generation, TasksReported(start.window, tuple(places), start.attempt, report)
            )
            for report, places in sorted(reported.items(), key=lambda each: each[0] is Report.FAILED)
        )
        for event in others:
            self._runtime.tell(event)
        return first

    def _tally(self, work: Work, done: int, failed: int, seconds: Sequence[float]) -> None:
        """Calls of handlers have ended: so many records are done, so many calls have failed."""
        if self._tallies is not None and seconds:
            self._tallies.handled[work.partition].add(done, failed, seconds)

    def _note_failure(self, work: Work, offsets: Iterable[int], error: object, attempt: int) -> None:
        """Keep what was raised, for whoever answers for the records."""
        if not self._rules.consumer.partition.needs_hooks or isinstance(error, Refused):
            return
        assert isinstance(error, BaseException)
        records = self._records.get((work.partition, work.generation), {})
        for offset in offsets:
            if offset in records:
                records[offset] = records[offset]._replace(failed=failed_by(error, attempt))

    def _log_failure(
        self, work: Work, offset: int | tuple[int, ...], error: object, attempt: int | None = None
    ) -> None:
        if isinstance(error, Refused):
            log.warning("interrupted: %s", work, extra=_placed(work.partition, offset, attempt))
            return
        is_handler = isinstance(work.request, Handle | Start)
        what = "handler failed at %s @%s" if is_handler else "hook failed for %s @%s"
        log.error(what, work.partition, offset, exc_info=error, extra=_placed(work.partition, offset, attempt))  # type: ignore[arg-type]  # an exception

    async def _committed(self, commit: Commit) -> Failure | None:
        partition, position = commit.partition, commit.position
        try:
            await ports.commit(
                self._client,
                partition,
                position,
                commit.metadata,
                self._granted.get(commit.generation, ports.NO_GENERATION),
            )
        except ports.KAFKA_ERROR as error:
            log.warning(
                "commit of %s @%s failed: %s", partition, position, _named(error), extra=_placed(partition, position)
            )
            found = verdict(ports.commit_failure(error), type(error).__name__)
            if found.ends and self._is_working:
                self._end_with(TidegateError(f"the position of {partition} may not be committed", why=_named(error)))
            return found.reply
        with suppress(TimeoutError):
            async with asyncio.timeout(_BETWEEN_COMMITS_S):
                await self._hurries.wait()
        return None

    async def _left(self) -> None:
        await self._client.stop()
        await self._sender.stop()

    # --- observers ---

    def _follow(self, event: ShutdownEvent, state: WorkerState, _: Sequence[ShutdownCommand]) -> None:
        """Let polls go on, and forget what was lost."""
        if isinstance(event, Lost | Assigned):
            self._forget(event.partition)
        if self._may_poll is not None and self._plan(state.consumer).poll:
            self._may_poll.set()

    def _observe(self, event: ShutdownEvent, state: WorkerState, _: Sequence[ShutdownCommand]) -> None:
        if (observe := self._code.observe) is None:
            return
        for each in event.events if isinstance(event, Batch) else (event,):
            if isinstance(each, Event):
                observe(each, state.consumer)

    def _note(self, event: ShutdownEvent, _: WorkerState, commands: Sequence[ShutdownCommand]) -> None:
        if self._code.record is not None:
            self._code.record(event, commands)


def _first(records: Mapping[int, _Undone]) -> _Undone | None:
    """The one that came first, though the event loop changes them meanwhile."""
    while True:
        try:
            return next(iter(records.values()), None)
        except RuntimeError:
            continue


_SECONDS: Final = attrgetter("seconds")


def _raised(ended: Iterable[Ended]) -> int:
    """How many of the calls have raised, but for those that were interrupted, or ask to be called again."""
    return sum(isinstance(each.reply, BaseException) and not isinstance(each.reply, Refused | Later) for each in ended)


def _ours(error: BaseException) -> BaseException:
    """What the caller of a worker gets to see of an error."""
    if isinstance(error, TidegateError) or not isinstance(error, Exception):
        return error
    found = TidegateError("the Kafka client has failed", why=_named(error))
    found.__cause__ = error
    return found


def _fields_of(command: ShutdownCommand, given: object) -> Mapping[str, object]:
    """Where it stands what a command is about; of a call, the record that it was given."""
    match command:
        case Work(partition, _, request, offsets):
            return _placed(partition, given.offset if isinstance(given, Record) else offsets, _attempt_of(request))
        case Commit(partition, _, position):
            return _placed(partition, position)
        case _:
            return {}


def _attempt_of(request: Request) -> int | None:
    """Which attempt it is, where it is one."""
    return request.attempt if isinstance(request, Handle | Start | Judge) else None


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _placed(
    partition: TopicPartition, offset: int | tuple[int, ...] | None = None, attempt: int | None = None
) -> Mapping[str, object]:
    """Where something happened, for whoever reads logs by fields."""
    found = {"topic": partition.topic, "partition": partition.partition, "offset": offset, "attempt": attempt}
    return {name: value for name, value in found.items() if value is not None}
