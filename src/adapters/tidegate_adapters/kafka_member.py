"""One life of a worker in its group: from the start of its client until the group is left.

What is to be done, and in which order, `tidegate.consumer.worker` says; `tidegate_adapters.runtime` carries it out. Here is
what those two do not know: Kafka's calls for the commands, and the events that its client and the clock tell.

    command            what is done                                reply -> event
    Work               `user_code`, on a runner                WorkReported, or WorkFailed
    Interrupt          that code is cancelled                      that of the work, once it has ended
    Commit             `committing`, with those of others, or      Committed, CommitRefused, MetadataRefused, CommitUnknown
                       `exactly_once`, with answers
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

The client resets no position by itself: where the broker refuses one, `tidegate.consumer.beginning` says where to go on. So each
partition has a position from its assignment on, and it is sought again once it is known where the partition begins.

A generation is counted from the client's own assignments. A commit names the client's generation of then, and is not sent
under another one, nor under none; a revocation that comes without a generation finds the partitions lost. Nor is anything
committed of an assignment during which the client has learned that the topic is not there.

A member with a name (`group_instance_id`) that is none any more asks, before its client joins again, whether another has that
name (`namesakes`): then it ends, and its client joins no more, or it would take the name back from the other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from random import randint
from typing import Final, final

from tidegate.consumer.backpressure import Plan
from tidegate.consumer.beginning import GoesOn, LogRange, goes_on
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
    Release,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkUnanswered,
)
from tidegate.consumer.commit_answers import verdict
from tidegate.consumer.consumer import ConsumerState
from tidegate.consumer.drain import InFlight
from tidegate.consumer.health import Health, Watch, judged, looked, polled, sights
from tidegate.consumer.partition import Ordering, Owned
from tidegate.consumer.transactions import FENCED
from tidegate.consumer.watermark import open_offsets
from tidegate.consumer.worker import (
    Leave,
    NameTaken,
    ShutdownCommand,
    ShutdownEvent,
    ShutdownPhase,
    StartLeaveTimer,
    StopRequested,
    WorkerState,
    event_for,
    fenced,
    merged,
)
from tidegate.model.effects import Cancel, Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import PPM, SECOND, ClockName, Duration, Instant, duration, jittered
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import Exponential, delay_after
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.beginnings import Beginning, Beginnings
from tidegate_adapters.committing import Committing
from tidegate_adapters.declaring import length_of
from tidegate_adapters.exactly_once import Transactions
from tidegate_adapters.handlers import is_pattern
from tidegate_adapters.kafka_ports import Client, Received, TransactionalProducer, ours, theirs
from tidegate_adapters.namesakes import Seat, is_taken, join_no_more, seat_of
from tidegate_adapters.record_fields import attempt_of, fields_of, named, placed, say
from tidegate_adapters.runtime import After, Call, InterruptEach, Job, Runtime, Withdraw, as_failure
from tidegate_adapters.runtime import Interrupt as EndCode
from tidegate_adapters.sinks import Outbox, SinkStatus
from tidegate_adapters.tallies import Glance, Tallies
from tidegate_adapters.undecodable import is_undecodable, read
from tidegate_adapters.undone import Records
from tidegate_adapters.user_code import Code, UserCode
from tidegate_adapters.worker_settings import WorkerSettings

__all__ = ["Member"]

_POLL_MS: Final = 100
_POLL_S: Final = _POLL_MS / 1_000
_PARSED_AT_ONCE: Final = 5_000
"""Records, which take some hundredths of a second; a megabyte of each partition may take longer than a session.

More are not taken in before the gate was asked again (AS2): the client fetches on while it is emptied, so there is no end to
what it has.
"""
_ASK_AGAIN: Final = Exponential(SECOND // 10, cap=5 * SECOND)
"""How long it waits before it asks again what is committed."""
_STARTS_MAX: Final = 6
"""How often a client is started, with those pauses in between: for three seconds."""
_LOOK_AGAIN_S: Final = 1.0
"""After which it is asked for a topic again that is not there; by itself, the client asks every five minutes."""
_LONG: Final = 5
"""As many failures as make it wait for about the time between two heartbeats."""
_LOOP: Final = ClockName("loop")
"""The clock of the event loop, by which it is judged how long something stands."""


@final
class Member:
    """A member of a group, within the event loop in which it is made.

    Args:
        client: Not started yet.
        settings: What the worker was told.
        code: The user's.
        outbox: Delivers what the worker has to send.
        tallies: Where it is counted what happens, if anywhere.
        transact: Makes the producer of a partition, where answers and positions are committed together.
    """

    def __init__(  # noqa: PLR0917  they are what it stands between
        self,
        client: Client,
        settings: WorkerSettings,
        code: Code,
        outbox: Outbox[Sequence[Send]],
        tallies: Tallies | None = None,
        transact: Callable[[TopicPartition], TransactionalProducer] | None = None,
    ) -> None:
        self._client, self._settings, self._code, self._outbox = client, settings, code, outbox
        self._rules = rules = settings.rules
        self._needs_keys = rules.consumer.partition.ordering is Ordering.BY_KEY
        self._loop = asyncio.get_running_loop()
        observers = [
            self._follow,
            *([tallies.follow] if tallies is not None else []),
            *([self._observe] if code.observe else []),
            *([self._note] if code.record else []),
        ]
        self._runtime: Runtime[WorkerState, ShutdownEvent, ShutdownCommand]
        self._runtime = Runtime(
            rules, WorkerState(), self._begin, self._event_for, merge=merged, observers=observers, fields=fields_of,
            observer_failures_max=settings.observer_failures_max,
        )  # fmt: skip
        self._generations: dict[TopicPartition, int] = {}
        """Of the partitions that are assigned, by our count."""
        self._stands: dict[TopicPartition, int] = {}
        """Where each is read on, those included that were its own before."""
        self._count = 0
        self._granted: dict[int, int | None] = {}
        """By our generation, the client's."""
        self._records = Records(self._loop.time, knows=transact is None)
        self._beginnings = Beginnings(client, settings, self._removed)
        self._transactions = (
            None
            if transact is None
            else Transactions(transact, settings.group, self._beginnings.known, self._is_current)
        )
        self._user_code = UserCode(
            code, settings, self._records, outbox, tallies, self._runtime.tell, self._transactions
        )
        self._seat: Seat | None = None
        """As whom the group knew it last, where it has a name."""
        self._asks_for_its_name = asyncio.Lock()
        self._gone: dict[str, int] = {}
        """Topics that have gone, and the last assignment until then."""
        self._may_poll: asyncio.Event | None = None
        """Where the loop of polls waits until something may be polled."""
        self._releases: dict[TopicPartition, list[asyncio.Event]] = {}
        """Revocations that wait for the release of their partition."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Questions for what is committed, and the loop of polls."""
        self._starting: asyncio.Task[None] | None = None
        self._called_off = asyncio.Event()
        self._committing = Committing(client, self._granted, self._commit_answered, self._is_gone)
        self._named = frozenset(each for each in settings.topics if not is_pattern(each))
        """Topics to consume, but for patterns."""
        self._absent = frozenset[str]()
        """Those of them that were not there at the last assignment."""
        self._looks_again: asyncio.TimerHandle | None = None
        self._tallies = tallies
        self._ends: dict[TopicPartition, int] = {}
        """Of logs from which nothing is fetched, at the last look."""
        self._read: dict[TopicPartition, int] = {}
        """Up to where logs were read, at the last look."""
        self._is_started = False
        self._leave_by_s: float | None = None
        """When it is to have left, on the loop's clock, once it begins to."""
        self._leaving: list[asyncio.Future[None]] = []
        self._owed: BaseException | None = None
        """What `run` raises in the end."""
        self._watch, self._looked_s = Watch(), self._loop.time()
        self._looked: tuple[ConsumerState | None, dict[TopicPartition, int]] = (None, {})

    @property
    def state(self) -> ConsumerState:
        """Its partitions."""
        return self._runtime.state.consumer

    def glance(self) -> Glance:
        """What it is like now; from any thread."""
        state, now_s = self.state, self._loop.time()
        seen = sights(state, dict(self._generations))
        came = {each.partition: self._records.first(each.partition, each.generation) for each in seen}
        ages_s = {partition: now_s - undone.came_s for partition, undone in came.items() if undone is not None}
        ends = {each.partition: self._end(each.partition) for each in seen}
        known = {partition: end for partition, end in ends.items() if end is not None}
        return Glance(
            state=state,
            seen=seen,
            ages_s=ages_s,
            ends=known,
            observer_failures=self._runtime.observer_failures,
            read=self._read,
            sinks=self.sinks,
        )

    @property
    def sinks(self) -> tuple[SinkStatus, ...]:
        """Where what handlers answer with is delivered, as it is now; from any thread."""
        return (self._outbox.status,)

    def _end(self, partition: TopicPartition) -> int | None:
        """How far the log goes: the client hears it along with records, and where nothing is fetched it is asked for."""
        return self._ends.get(partition, ports.end_seen(self._client, partition))

    def health(self) -> Health:
        """How it is now; from any thread."""
        now, state = self._now, self._runtime.state
        watch = looked(self._watch, sights(state.consumer, dict(self._generations)), now)
        return judged(watch, state.phase, duration(self._settings.stalled_after), now)

    @property
    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    async def run(self) -> None:
        """Consume until `stop`, a cancellation, an exit of user code, or an error that lasts; then drain, commit and leave.

        Raises:
            TidegateError: The broker cannot be reached, or has failed it for good.
            Misuse: Another has its name.
            CancelledError, SystemExit, KeyboardInterrupt: As it came, after what was owed.
        """
        try:
            if not await self._started():
                return
            self._spawn(self._poll_on())
            if self._tallies is not None:
                self._spawn(self._look_at_ends())
            while self._runtime.state.phase is not ShutdownPhase.GONE:
                try:
                    await self._runtime.until(lambda state: state.phase is ShutdownPhase.GONE)
                except asyncio.CancelledError as error:  # whoever runs it asks, and may ask twice
                    self._owed = self._owed or error
                    self.stop()
                except (SystemExit, KeyboardInterrupt) as error:
                    self._end_with(error)
        finally:
            await self._finish()
        if self._owed is not None:
            raise self._owed

    def stop(self) -> None:
        """Drain, commit and leave; called once more, wait for nothing. Before the client has started there is nothing to leave."""
        self._called_off.set()
        if not self._is_started:
            if self._starting is not None:
                self._starting.cancel()
            return
        self._hurry(hurries=True)
        known = tuple(Revoked(part.partition, self._in_flight(part.partition)) for part in self.state.partitions)
        self._runtime.tell(StopRequested(known))

    def _hurry(self, *, hurries: bool) -> None:
        """Whether partitions are being given back."""
        self._committing.hurry(hurries=hurries)
        if self._transactions is not None:
            self._transactions.hurry(hurries=hurries)

    def _end_with(self, error: BaseException) -> None:
        """Stop, and raise this in the end; what else goes wrong meanwhile does not ask a second time."""
        self._owed = self._owed or error
        if not self._called_off.is_set():
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
            await self._connect()
            ports.watch(self._client, self._look_for_topics)
        except ports.CONNECTION_ERROR as error:
            raise TidegateError(
                f"no Kafka broker answers at {self._settings.bootstrap}",
                todo="check the address, that the broker runs, and that security_protocol is what it wants",
            ) from error
        except ports.KAFKA_ERROR as error:
            raise TidegateError("the Kafka client does not start", why=named(error)) from error
        topics, listener = self._settings.topics, ports.listener(self._revoked, self._assigned)
        if any(map(is_pattern, topics)):
            self._client.subscribe(pattern=self._settings.pattern, listener=listener)
        else:
            self._client.subscribe(topics, listener=listener)
        self._look_for_topics()

    async def _connect(self) -> None:
        """Start the client, and again for a while: a broker that restarts, or a proxy, may close a connection at any time."""
        for failures in range(1, _STARTS_MAX + 1):
            try:
                await ports.start(self._client)
            except ports.CONNECTION_ERROR as error:
                if failures == _STARTS_MAX or ports.has_begun(self._client):
                    raise
                say(logging.WARNING, "no Kafka broker answers at %s yet: %s", self._settings.bootstrap, named(error))
                await asyncio.sleep(delay_after(_ASK_AGAIN, failures) / SECOND)
            else:
                return

    async def _finish(self) -> None:
        """Leave nothing running, whatever has failed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waits in self._releases.values():  # or the client waits for its listener
            for wait in waits:
                wait.set()
        await self._beginnings.close()
        await self._committing.close()
        await self._runtime.close(min(max(self._left_s / 2, 0.1), 1.0))
        with suppress(ports.KAFKA_ERROR):
            await self._left()
        if self._looks_again is not None:
            self._looks_again.cancel()

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
            self._records.turned()
            try:
                await self._poll()
            except asyncio.CancelledError:
                # A client whose own task was cancelled raises it at each call, and joins no more.
                me = asyncio.current_task()
                if self._called_off.is_set() or me is None or me.cancelling():
                    raise
                raise TidegateError("the Kafka client has ended", why="its task was cancelled") from None
            except ports.OUT_OF_RANGE as error:
                for partition, position in ports.out_of_range(error).items():
                    await self._go_on(partition, position)
            except ports.KAFKA_ERROR as error:
                if not error.retriable:
                    if (seat := self._seat_now()) is not None:
                        join_no_more(self._client)
                        if await self._has_namesake(seat):
                            return
                    raise _ours(error) from error
                say(logging.WARNING, "poll failed: %s", named(error))
                await asyncio.sleep(_POLL_S)

    @property
    def _is_working(self) -> bool:
        return self._runtime.state.phase is ShutdownPhase.WORKING

    async def _poll(self) -> None:
        """Poll what may be polled; where nothing may, wait until something may, and pause what is held for longer."""
        state = (await self._runtime.stepped()).consumer
        self._look(state)
        self._measure(state)
        plan = self._plan(state)
        if not plan.poll:
            self._may_poll = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._may_poll.wait()
            self._may_poll = None
            plan = self._plan(self.state)
        if plan.pause or plan.resume:
            assigned = set(map(ours, self._client.assignment()))
            self._client.pause(*(theirs(each) for each in plan.pause if each in assigned))
            self._client.resume(*(theirs(each) for each in plan.resume if each in assigned))
        asked = plan.poll or tuple(map(ours, self._client.paused()))
        most = None if "max_poll_records" in self._settings.options else _PARSED_AT_ONCE
        lives = dict(self._generations)
        try:
            fetched = await self._client.getmany(
                *map(theirs, asked), timeout_ms=_POLL_MS if plan.poll else 0, max_records=most
            )
        except (UnicodeDecodeError, ports.KAFKA_ERROR) as error:
            if not is_undecodable(error):
                raise
            await self._read_on(plan.poll, lives, error)
            return
        for partition, received in fetched.items():  # of those that are its own now: the client looks when it hands out
            self._hand_over(ours(partition), received)

    async def _read_on(
        self, polled: Sequence[TopicPartition], lives: Mapping[TopicPartition, int], error: Exception
    ) -> None:
        """Hand over what the client cannot decode, of one partition; others are read again, but for those that have another life.

        Raises:
            TidegateError: It cannot be read otherwise either.
        """
        self._user_code.beware()
        for partition in polled:
            if self._generations.get(partition) == lives.get(partition):
                with suppress(ports.NOT_ASSIGNED):
                    self._client.seek(theirs(partition), self._stands[partition])
        for partition in polled:
            log = await self._beginnings.log(partition)
            is_left = not log.removed(self._stands[partition])
            found = await read(self._client, partition, self._stands[partition]) if is_left else None
            if self._generations != lives or partition not in self._plan(self.state).poll:
                return  # whoever polls it finds it again
            if not is_left:
                self._skip_removed(partition, self._stands[partition], log)
                return  # what cannot be decoded may be removed, too
            if found is not None:
                self._hand_over(partition, found.records)
                self._stands[partition] = found.stop
                self._client.seek(theirs(partition), found.stop)
                return
        raise TidegateError("the Kafka client cannot decode a record", why=named(error)) from error

    async def _look_at_ends(self) -> None:
        """Ask how far the logs go from which nothing is fetched, and look up to where all were read, again and again."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            held, found = tuple(map(ours, self._client.paused())), dict[TopicPartition, int]()
            with suppress(ports.KAFKA_ERROR, TimeoutError):
                found = await ports.ends(self._client, held) if held else found
            self._ends = found
            state = (await self._runtime.stepped()).consumer  # by then each record below a position is delivered
            read = {each.partition: ports.position_seen(self._client, each.partition) for each in state.partitions}
            self._read = {partition: position for partition, position in read.items() if position is not None}

    def _look(self, state: ConsumerState) -> None:
        """Note which partitions stand, and that they are polled; a look at what is as it was changes nothing (HE2)."""
        if self._watch.polled is None or self._loop.time() >= self._looked_s + _POLL_S:
            self._looked_s, now = self._loop.time(), self._now
            if state is not self._looked[0] or self._generations != self._looked[1]:
                self._looked = state, dict(self._generations)
                self._watch = looked(self._watch, sights(*self._looked), now)
            self._watch = polled(self._watch, now)

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
        self._stands[partition] = received[-1].offset + 1
        self._records.came(partition, generation, received, self._loop.time())
        keys = tuple([each.key for each in received]) if self._needs_keys else ()
        again, is_anew = self._records.compared(partition, received) if self.state.kept else ((), False)
        offsets = tuple([each.offset for each in received])
        self._runtime.tell(Fetched(partition, generation, offsets, keys, again, is_anew))

    async def _go_on(self, partition: TopicPartition, position: int) -> None:
        """The broker has refused to read at this position; go on where there is something to read.

        Raises:
            TidegateError: The settings say nowhere.
        """
        generation = self._generations.get(partition)
        try:
            log = await self._beginnings.log(partition)
            if self._generations.get(partition) != generation or position < self._stands.get(partition, position + 1):
                return  # it is not its own any more, or reads elsewhere by now
            match goes_on(position, log):
                case GoesOn.AT_THE_START:
                    self._skip_removed(partition, position, log)
                case GoesOn.AGAIN:
                    await self._cut(partition, log)
                case GoesOn.WHERE_IT_IS:
                    pass
        except (ports.KAFKA_ERROR, TimeoutError) as error:  # the client raises that the position is out of range again
            say(logging.WARNING, "the log of %s was not found: %s", partition, named(error), extra=placed(partition))
            await asyncio.sleep(_POLL_S)

    def _skip_removed(self, partition: TopicPartition, position: int, log: LogRange) -> None:
        """Go on at the first record that is left."""
        self._client.seek(theirs(partition), log.start)
        self._stands[partition] = log.start
        self._removed(partition, position, log)

    def _removed(self, partition: TopicPartition, position: int, log: LogRange) -> None:
        """Say and count that offsets are removed that the group has not handled."""
        say(
            logging.ERROR,
            "%s offsets of %s were removed before group %s read them: its position was @%s, and it goes on @%s, the first that is left",
            log.removed(position),
            partition,
            self._settings.group,
            position,
            log.start,
            extra=placed(partition, log.start),
        )
        if self._tallies is not None:
            self._tallies.removed[partition] += log.removed(position)

    async def _cut(self, partition: TopicPartition, log: LogRange) -> None:
        """The log has lost its end: nothing holds of what was read of it, and the partition begins again."""
        generation = self._generations.get(partition)
        cut = await self._beginnings.cut(partition, log)
        if self._generations.get(partition) != generation:
            return
        say(
            logging.WARNING,
            "the log of %s was read up to @%s and has lost its end: it goes on @%s",
            partition,
            self._stands[partition],
            cut.goes_on,
            extra=placed(partition, cut.goes_on),
        )
        self._runtime.tell(Lost(partition))
        self._begin_all((partition,))

    def _measure(self, state: ConsumerState) -> None:
        """Forget the records that are done, and measure how much the others hold up, where that matters."""
        now, rules = self._loop.time(), self._rules.consumer.partition
        is_bounded = rules.limits.size is not None or rules.limits.age is not None
        kept = {each.partition for each in state.kept}
        for part in state.partitions if is_bounded or not rules.is_plain or kept else ():
            if not rules.is_plain or part.partition in kept:  # otherwise each is forgotten when it is done
                self._records.keep(part.partition, part.generation, set(open_offsets(part.tracker)))
            if is_bounded:
                records = self._records.of(part.partition, part.generation)
                size = sum(len(each.received.key or b"") + len(each.received.value or b"") for each in records)
                oldest = min((each.came_s for each in records), default=now)
                self._runtime.tell(Measured(part.partition, part.generation, size, round((now - oldest) * SECOND)))

    # --- what the group says ---

    async def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain and commit, then let go; where the group has taken them already, only the latter.

        Raises:
            CancelledError: Another has its name: the client joins no more.
        """
        self._hurry(hurries=True)
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
        is_none = ports.generation_of(self._client) == ports.NO_GENERATION  # it may have heard so while it drained
        if is_none and self._seat is not None and await self._has_namesake(self._seat):
            raise asyncio.CancelledError  # what else a listener raises is logged, and the client joins

    def _seat_now(self) -> Seat | None:
        return seat_of(self._client, self._settings.group, self._settings.options.get("group_instance_id"))

    async def _has_namesake(self, seat: Seat) -> bool:
        """Whether another has its name; then it is told, and ends with an error. The client is not stopped meanwhile."""
        async with self._asks_for_its_name:
            if not await is_taken(self._client, seat):
                return False
            error = fenced(seat.name, seat.group, self._settings.topics)
            say(logging.ERROR, "%s; all is left to it", error.what)
            if not self._called_off.is_set():  # who was asked to stop ends as it was asked to
                self._owed = self._owed or error
                self._called_off.set()
            self._runtime.tell(NameTaken())
            return True

    def _in_flight(self, partition: TopicPartition) -> tuple[InFlight, ...]:
        """What is known of the records in work."""
        if self._code.expected is None:
            return ()
        now = self._loop.time()
        return tuple(
            self._estimated(record, round((now - each.began_s) * SECOND))
            for each in self._runtime.working()
            if isinstance(each.command, Work) and each.command.partition == partition
            for record in (each.given if isinstance(each.given, tuple) else (each.given,))
            if isinstance(record, Record)
        )

    def _estimated(self, record: Record, age: Duration) -> InFlight:
        """A record in work; an estimate that raises, or is no length of time, is none, and what is given back is drained."""
        assert self._code.expected is not None
        try:
            found = self._code.expected(record)
            return InFlight(record.offset, age, None if found is None else length_of(found, "expected", 0))
        except BaseException as error:  # noqa: BLE001  it is the user's
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._end_with(error)
            where = placed(record.of, record.offset)
            say(logging.ERROR, "expected failed at %s @%s", record.of, record.offset, error=error, extra=where)
            return InFlight(record.offset, age)

    async def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin a new generation; each partition is held until it is known where it begins."""
        if self._is_working:
            self._hurry(hurries=False)
        self._beginnings.assigned(assigned)
        for partition in assigned:  # or the client asks for a position by itself, and fails where there is none
            self._client.seek(theirs(partition), 0)
        self._begin_all(assigned)
        self._note_absent()

    def _begin_all(self, partitions: Collection[TopicPartition]) -> None:
        """A new generation by our count, of these."""
        self._count += 1
        for over in self._granted.keys() - self._generations.values():
            del self._granted[over]
        self._granted[self._count] = ports.generation_of(self._client)
        self._seat = self._seat_now()
        self._client.pause(*map(theirs, partitions))
        for partition in partitions:
            self._generations[partition] = self._count
            self._records.begin(partition, self._count)
            self._spawn(self._resumed(partition, self._count))

    def _look_for_topics(self) -> None:
        """Commit nothing more of what was assigned of a topic that has gone; when one of its name is there, have it assigned anew.

        The broker does not tell the two apart: it would take positions of the one for the other, and nobody would handle what
        is there before them. A leader that has seen it go lets all join again, too.
        """
        known = {part.partition.topic for part in self.state.partitions} | {each.topic for each in self._generations}
        absent = ports.absent(self._client, sorted(known | self._named))
        self._gone.update(dict.fromkeys(absent, self._count))
        if self._looks_again is not None:
            self._looks_again.cancel()
        if absent and not self._called_off.is_set():
            self._looks_again = self._loop.call_later(_LOOK_AGAIN_S, ports.refresh, self._client)
        if any(
            each.topic not in absent and generation <= self._gone.get(each.topic, 0)
            for each, generation in self._generations.items()
        ):
            ports.rejoin(self._client)

    def _is_gone(self, commit: Commit) -> bool:
        """Whether its topic has gone since the partition was assigned."""
        return commit.generation <= self._gone.get(commit.partition.topic, 0)

    def _note_absent(self) -> None:
        """Say which topics are not there; whether they are is seen before partitions are assigned, which they are then."""
        absent = ports.absent(self._client, sorted(self._named))
        for topic in sorted(absent - self._absent):
            say(
                logging.WARNING,
                "there is no topic %s; it is consumed as soon as it is there",
                topic,
                extra={"topic": topic},
            )
        for topic in sorted(self._absent - absent):
            say(logging.INFO, "there is a topic %s now", topic, extra={"topic": topic})
        self._absent = absent

    async def _resumed(self, partition: TopicPartition, generation: int) -> None:
        """Begin where the group has committed, with what it knows to be done beyond; ask until that is answered.

        Raises:
            TidegateError: It never will be.
        """
        failures = 0
        while self._is_working and self._generations.get(partition) == generation:
            try:
                position, metadata = await self._begins_at(partition, generation)
                if self._generations.get(partition) != generation:
                    return
                self._client.seek(theirs(partition), position)
                log_end = self._beginnings.logs[partition].end if metadata else position
            except Failure:
                return  # the assignment is over
            except (ports.KAFKA_ERROR, TimeoutError) as error:
                if self._generations.get(partition) != generation:
                    return
                if not getattr(error, "retriable", True) and not isinstance(error, ports.TIMED_OUT):
                    raise TidegateError(f"nobody says what is committed for {partition}", why=named(error)) from error
                say(
                    logging.WARNING,
                    "no word of what is committed for %s: %s",
                    partition,
                    named(error),
                    extra=placed(partition),
                )
                failures += 1
                await asyncio.sleep(delay_after(_ASK_AGAIN, failures) / SECOND)
                continue
            self._stands[partition] = position
            self._runtime.tell(Assigned(partition, generation, position, metadata, log_end))
            return

    async def _begins_at(self, partition: TopicPartition, generation: int) -> Beginning:
        """Where it begins; where positions are committed in transactions, once its former owner is fenced."""
        if self._transactions is None:
            return await self._beginnings.at(partition)
        return await self._transactions.take_over(partition, generation)

    def _is_current(self, generation: int) -> bool:
        """Whether the client is a member of the generation in which something was assigned."""
        granted, now = self._granted.get(generation, ports.NO_GENERATION), ports.generation_of(self._client)
        return granted is None or (granted != ports.NO_GENERATION and granted == now)

    # --- commands ---

    def _begin(self, command: ShutdownCommand) -> Job | None:
        match command:
            case Work():
                return self._user_code.job(command)
            case Fetch():
                return None
            case Commit() if (transactions := self._transactions) is not None and not self._is_gone(command):
                return Call(lambda: self._committed_together(command, transactions))
            case Commit():
                self._committing.send(command)
                return None
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
                wanted = frozenset(offsets)  # which need not have begun together
                return InterruptEach(
                    lambda command, record: (
                        isinstance(command, Work)
                        and (command.partition, command.generation) == (partition, generation)
                        and record.offset in wanted
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
                say(
                    logging.ERROR,
                    "%s",
                    command,
                    extra=placed(partition, getattr(request, "offsets", None), attempt_of(request)),
                )
                return None
            case CommitsUnanswered(partition, _, position, failures):
                what = "%s commits of %s were not answered, now @%s"
                say(logging.ERROR, what, failures, partition, position, extra=placed(partition, position))
                return None

    def _forget(self, partition: TopicPartition) -> None:
        """Records of its earlier lives."""
        kept = next((each for each in self.state.kept if each.partition == partition), None)
        self._records.forget(partition, self._generations.get(partition), kept)
        if self._transactions is not None:
            self._transactions.forget(partition, self._generations.get(partition))

    def _event_for(self, command: ShutdownCommand, reply: object) -> ShutdownEvent | None:
        match command:
            case Work():
                return self._user_code.event(command, reply)
            case StartDrainTimer() | StartRetryTimer() | StartLeaveTimer():
                return event_for(command, reply)
            case _:
                return event_for(command, as_failure(reply))

    def _commit_answered(self, commit: Commit, error: BaseException | None) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._end_with(error)
        event = event_for(commit, self._commit_reply(commit, error))
        if event is not None:
            self._runtime.tell(event)

    def _commit_reply(self, commit: Commit, error: BaseException | None) -> Failure | None:
        """What a commit is answered, as the worker takes it."""
        partition, position = commit.partition, commit.position
        if error is None:
            self._records.committed(partition, position)
            return None
        say(
            logging.WARNING,
            "commit of %s @%s failed: %s",
            partition,
            position,
            named(error),
            extra=placed(partition, position),
        )
        is_given_back = not self._is_working or self._generations.get(partition) != commit.generation
        found = verdict(ports.commit_failure(error), type(error).__name__, is_given_back=is_given_back)
        if found.ends and self._is_working:
            self._end_with(TidegateError(f"the position of {partition} may not be committed", why=named(error)))
        return found.reply

    async def _committed_together(self, commit: Commit, transactions: Transactions) -> Failure | None:
        """In a transaction; a partition that was fenced and is still its own is taken over again."""
        reply = await transactions.commit(commit)
        if reply is None:
            return None
        partition, position = commit.partition, commit.position
        say(
            logging.WARNING,
            "commit of %s @%s failed: %s",
            partition,
            position,
            reply,
            extra=placed(partition, position),
        )
        if reply == FENCED and self._generations.get(partition) == commit.generation:
            self._count += 1
            self._granted[self._count] = self._granted.get(commit.generation, ports.NO_GENERATION)
            self._generations[partition] = self._count
            self._records.begin(partition, self._count)
            self._spawn(self._taken_again(partition, self._count))
        return reply

    async def _taken_again(self, partition: TopicPartition, generation: int) -> None:
        """After a while, in which the group may say that it is another's."""
        await asyncio.sleep(delay_after(_ASK_AGAIN, _LONG) / SECOND)
        await self._resumed(partition, generation)

    async def _left(self) -> None:
        """Leave the group and end what sends, side by side, in the time to leave, however often it is called.

        What takes longer ends by itself: a client that is interrupted takes itself for closed, and its tasks stay.
        """
        if self._leave_by_s is None:
            self._leave_by_s = self._loop.time() + self._rules.leave / SECOND
            client_ends = self._client_stopped() if self._asks_for_its_name.locked() else self._client.stop()
            ends = [client_ends, self._outbox.stop()]
            if self._transactions is not None:
                ends.append(self._transactions.stop())
            self._leaving = [*map(asyncio.ensure_future, ends)]
        await asyncio.wait(self._leaving, timeout=max(self._left_s, 0))
        for each in self._leaving:
            if each.done() and not each.cancelled() and (error := each.exception()) is not None:
                raise error

    async def _client_stopped(self) -> None:
        async with self._asks_for_its_name:  # whoever is told then ends what the client would wait for
            pass
        await self._client.stop()

    @property
    def _left_s(self) -> float:
        """How much of the time to leave is left, in seconds; all of it as long as nothing has begun to."""
        return self._rules.leave / SECOND if self._leave_by_s is None else self._leave_by_s - self._loop.time()

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


_TODO_OF_A_SESSION: Final = (
    "set session_timeout_ms to what the broker takes, group.min.session.timeout.ms to group.max.session.timeout.ms"
)


def _ours(error: BaseException) -> BaseException:
    """What the caller of a worker gets to see of an error."""
    if isinstance(error, TidegateError):
        return error
    todo = _TODO_OF_A_SESSION if isinstance(error, ports.WRONG_SESSION) else ""
    found = TidegateError("the Kafka client has failed", why=named(error), todo=todo)
    found.__cause__ = error
    return found
