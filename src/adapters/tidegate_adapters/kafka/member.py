"""One life of a worker in its group: from the start of its client until it has left.

`tidegate.consumer.worker.worker` decides what to do; `tidegate_adapters.runtime.reducers` executes it.
This module maps commands to Kafka calls, and callbacks of client and clock to events.

    command           execution                                reply -> event
    Work              `handler_calls`, on a runner             WorkReported, or WorkFailed
    Interrupt         the code is cancelled                    that of the work, once it has ended
    Commit            `commits`, with those of others, or      Committed, CommitRefused,
                      `transactions`, with replies             MetadataRefused, CommitUnknown
    Start...Timer     a timer                                  ...TimerFired
    Cancel of Work    the code is cancelled, without waiting   the same: it counts until then
    Cancel            the timer or call is cancelled           none
    Release           the revocation may return                none
    Leave             the client is stopped                    LeaveAnswered
    ...Unanswered     a log line                               none
    Fetch             none: the poll loop reads `polling`      Fetched

Its parts, each with a state of its own:

    `lifecycle`           the state machine, its tasks, and its final error
    `assignment`          partitions, generations and read positions; which topics exist
    `static_membership`   whether another member has taken its name
    `poll_loop`           its polls
    `commits`             its commits and their replies
    `handler_calls`       its handlers
    `member_status`       its health and metrics

A revocation without a generation means that the partitions are lost. A removed static member
(`group_instance_id`) asks, BEFORE its client rejoins, whether another member has its name. If so it
ends without rejoining, which would take the name back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import randint
from typing import Final, final

from tidegate.consumer.flow.drain import InFlight
from tidegate.consumer.protocol.commands import (
    Assigned,
    Batch,
    Commit,
    CommitsUnanswered,
    Event,
    Fetch,
    Handle,
    Interrupt,
    Lost,
    Release,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkUnanswered,
)
from tidegate.consumer.worker.worker import (
    Leave,
    ShutdownCommand,
    ShutdownEvent,
    ShutdownPhase,
    StartLeaveTimer,
    StopRequested,
    WorkerState,
    event_for,
    merged,
)
from tidegate.model.effects import Cancel
from tidegate.model.errors import TidegateError
from tidegate.model.instants import PPM, SECOND, Duration, duration, jittered
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import delay_after
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.log_fields import attempt_of, fields_of, named, placed, say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.assignment import ASK_AGAIN, Assignment, Topics
from tidegate_adapters.kafka.client import Client, TransactionalProducer, theirs
from tidegate_adapters.kafka.commits import Committing
from tidegate_adapters.kafka.handler_calls import Calls, Code, UserCode
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle, WorkerRuntime
from tidegate_adapters.kafka.member_status import MemberStatus
from tidegate_adapters.kafka.poll_loop import PollLoop
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.start_positions import Beginning, Beginnings
from tidegate_adapters.kafka.static_membership import OwnName
from tidegate_adapters.kafka.stats import Tallies
from tidegate_adapters.kafka.transactions import Transactions
from tidegate_adapters.runtime.handlers import is_pattern
from tidegate_adapters.runtime.reducers import After, Call, InterruptEach, Job, Runtime, Withdraw, as_failure
from tidegate_adapters.runtime.reducers import Interrupt as EndCode
from tidegate_adapters.sinks.port import Outbox

_STARTS_MAX: Final = 6
"""Start attempts, spread over three seconds."""


@final
class Member:
    """A member of a group, bound to the event loop in which it is made; `status` is readable from
    any thread.
    """

    def __init__(  # noqa: PLR0917
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
        self._loop = asyncio.get_running_loop()
        observers = [
            self._follow,
            *([tallies.follow] if tallies is not None else []),
            *([self._observe] if code.observe else []),
            *([self._note] if code.record else []),
        ]
        self._runtime: WorkerRuntime
        self._runtime = Runtime(
            rules, WorkerState(), self._begin, self._event_for, merge=merged, observers=observers, fields=fields_of,
            observer_failures_max=settings.observer_failures_max,
        )  # fmt: skip
        self.life = life = Lifecycle(self._runtime, self.stop)
        self._name = OwnName(client, settings, life)
        self._records = records = Records(self._loop.time, knows=transact is None)
        self._beginnings = beginnings = Beginnings(client, settings, tallies)
        self._assignment = assignment = Assignment(client, life, self._name, records, beginnings, self._begins_at)
        self._topics = Topics(client, settings.topics, life, assignment)
        self._transactions = (
            None
            if transact is None
            else Transactions(transact, settings.group, beginnings.known, assignment.is_current)
        )
        self._user_code: Calls = (
            UserCode(code, settings, records, outbox, tallies, life.tell, self._transactions)
            if code.calls is None
            else code.calls(records, outbox, tallies)
        )
        self._committing = Committing(client, life, assignment, self._topics, records, self._transactions)
        self.status = MemberStatus(client, life, assignment, records, outbox, duration(settings.stalled_after))
        self._polls = PollLoop(
            client, settings, life, self._name, assignment, records, beginnings, self.status, self._user_code
        )
        self._watches_ends = tallies is not None
        self._releases: dict[TopicPartition, list[asyncio.Event]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._is_started = False
        self._leave_by_s: float | None = None
        """The deadline to leave, on the loop's clock."""
        self._leaving: list[asyncio.Future[None]] = []

    # --- life cycle -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until a stop, a cancellation, an exit of user code, or a fatal error; then drain,
        commit and leave.

        Raises as `Worker.run`.
        """
        life = self.life
        try:
            if not await self._started():
                return
            life.spawn(self._polls.run())
            if self._watches_ends:
                life.spawn(self.status.watch_ends())
            while self._runtime.state.phase is not ShutdownPhase.GONE:
                try:
                    await self._runtime.until(lambda state: state.phase is ShutdownPhase.GONE)
                except asyncio.CancelledError as error:  # the caller may cancel twice
                    life.error = life.error or error
                    self.stop()
                except (SystemExit, KeyboardInterrupt) as error:
                    life.end_with(error)
        finally:
            await self._finish()
        if life.error is not None:
            raise life.error

    def stop(self) -> None:
        """Drain, commit and leave; a second call skips the waiting."""
        self.life.is_called_off = True
        if not self._is_started:
            if self._starting is not None:
                self._starting.cancel()
            return
        self._committing.hurry(hurries=True)
        partitions = self.life.state.partitions
        known = tuple(Revoked(part.partition, self._in_flight(part.partition)) for part in partitions)
        self.life.tell(StopRequested(known))

    async def _started(self) -> bool:
        if not self.life.is_called_off:
            self._starting = asyncio.create_task(self._start())
            try:
                await self._starting
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if (me is not None and me.cancelling()) or not self.life.is_called_off:
                    raise
        self._is_started = not self.life.is_called_off
        return self._is_started

    async def _start(self) -> None:
        try:
            await self._connect()
            ports.watch(self._client, self._topics.look)
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
        self._topics.look()

    async def _connect(self) -> None:
        """A restarting broker, or a proxy, may close a connection at any time."""
        for failures in range(1, _STARTS_MAX + 1):
            try:
                await ports.start(self._client)
            except ports.CONNECTION_ERROR as error:
                if failures == _STARTS_MAX or ports.has_begun(self._client):
                    raise
                say(logging.WARNING, "no Kafka broker answers at %s yet: %s", self._settings.bootstrap, named(error))
                await asyncio.sleep(delay_after(ASK_AGAIN, failures) / SECOND)
            else:
                return

    async def _finish(self) -> None:
        await self.life.close()
        for waits in self._releases.values():  # the client waits for its listener
            for wait in waits:
                wait.set()
        await self._beginnings.close()
        await self._committing.close()
        await self._runtime.close(min(max(self._left_s / 2, 0.1), 1.0))
        with suppress(ports.KAFKA_ERROR):
            await self._left()
        self._topics.close()

    async def _left(self) -> None:
        """Leave the group and stop the producers concurrently; idempotent.

        Slow stops continue alone: an interrupted client considers itself closed, but its tasks keep
        running.
        """
        if self._leave_by_s is None:
            self._leave_by_s = self._loop.time() + self._rules.leave / SECOND
            client_ends = self._client_stopped() if self._name.is_asking.locked() else self._client.stop()
            ends = [client_ends, self._outbox.stop()]
            if self._transactions is not None:
                ends.append(self._transactions.stop())
            self._leaving = [*map(asyncio.ensure_future, ends)]
        await asyncio.wait(self._leaving, timeout=max(self._left_s, 0))
        for each in self._leaving:
            if each.done() and not each.cancelled() and (error := each.exception()) is not None:
                raise error

    async def _client_stopped(self) -> None:
        async with self._name.is_asking:  # lets a listener finish that the client would wait for
            pass
        await self._client.stop()

    @property
    def _left_s(self) -> float:
        return self._rules.leave / SECOND if self._leave_by_s is None else self._leave_by_s - self._loop.time()

    # --- rebalances -------------------------------------------------------------------------------

    async def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Partitions stay paused until their start positions are known."""
        if self.life.is_working:
            self._committing.hurry(hurries=False)
        self._beginnings.assigned(assigned)
        for partition in assigned:  # or the client fetches a position, and fails without one
            self._client.seek(theirs(partition), 0)
        self._assignment.begin(assigned)
        self._topics.log_absent()

    async def _begins_at(self, partition: TopicPartition, generation: int) -> Beginning:
        """With transactions, the former owner is fenced BEFORE the position is read."""
        if self._transactions is None:
            return await self._beginnings.at(partition)
        return await self._transactions.take_over(partition, generation)

    async def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain, commit and release; release lost partitions at once.

        Raises:
            CancelledError: Another member has the name: do not rejoin.
        """
        self._committing.hurry(hurries=True)
        waits = {partition: asyncio.Event() for partition in revoked}
        is_lost = ports.generation_of(self._client) == ports.NO_GENERATION
        for partition, wait in waits.items():
            self._assignment.generations.pop(partition, None)
            if is_lost:
                self.life.tell(Lost(partition))
            else:
                self._releases.setdefault(partition, []).append(wait)
                self.life.tell(Revoked(partition, self._in_flight(partition)))
        if not is_lost:
            for wait in waits.values():
                await wait.wait()
        is_none = (
            ports.generation_of(self._client) == ports.NO_GENERATION
        )  # it may have lost its generation during the drain
        if is_none and await self._name.is_taken():
            raise asyncio.CancelledError  # after any other exception the client would rejoin

    def _in_flight(self, partition: TopicPartition) -> tuple[InFlight, ...]:
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
        assert self._code.expected is not None
        try:
            found = self._code.expected(record)
            return InFlight(record.offset, age, None if found is None else length_of(found, "expected", 0))
        except BaseException as error:  # noqa: BLE001  it is the user's
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self.life.end_with(error)
            where = placed(record.of, record.offset)
            say(logging.ERROR, "expected failed at %s @%s", record.of, record.offset, error=error, extra=where)
            return InFlight(record.offset, age)

    # --- commands ---------------------------------------------------------------------------------

    def _begin(self, command: ShutdownCommand) -> Job | None:
        match command:
            case Work():
                return self._user_code.job(command)
            case Fetch():
                return None
            case Commit():
                return self._committing.job(command)
            case StartRetryTimer(duration=duration, jitter_ppm=jitter_ppm):
                draw = randint(0, PPM) if jitter_ppm else 0  # noqa: S311  jitter, not a secret
                return After(jittered(duration, jitter_ppm, draw) / SECOND)
            case StartDrainTimer(duration=duration) | StartLeaveTimer(duration):
                return After(duration / SECOND)
            case Leave():
                return Call(self._left)
            case Interrupt(Work(partition, generation, Handle(), offsets)) | Cancel(
                Work(partition, generation, Handle(), offsets)
            ):
                wanted = frozenset(offsets)  # they need not have begun together
                return InterruptEach(
                    lambda command, record: (
                        isinstance(command, Work)
                        and (command.partition, command.generation) == (partition, generation)
                        and record.offset in wanted
                    )
                )
            case Interrupt(work) | Cancel(Work() as work):  # a cancelled one reports its end, too
                return EndCode(work)
            case Cancel(effect):
                return Withdraw(effect)
            case Release(partition):
                self._forget(partition)
                for wait in self._releases.pop(partition, ()):
                    wait.set()
                return None
            case WorkUnanswered(partition, _, request):
                where = placed(partition, getattr(request, "offsets", None), attempt_of(request))
                say(logging.ERROR, "%s", command, extra=where)
                return None
            case CommitsUnanswered(partition, _, position, failures):
                what = "%s commits of %s were not answered, now @%s"
                say(logging.ERROR, what, failures, partition, position, extra=placed(partition, position))
                return None

    def _forget(self, partition: TopicPartition) -> None:
        kept = next((each for each in self.life.state.kept if each.partition == partition), None)
        generation = self._assignment.generations.get(partition)
        self._records.forget(partition, generation, kept)
        if self._transactions is not None:
            self._transactions.forget(partition, generation)

    def _event_for(self, command: ShutdownCommand, reply: object) -> ShutdownEvent | None:
        match command:
            case Work():
                return self._user_code.event(command, reply)
            case StartDrainTimer() | StartRetryTimer() | StartLeaveTimer():
                return event_for(command, reply)
            case _:
                return event_for(command, as_failure(reply))

    # --- observers --------------------------------------------------------------------------------

    def _follow(self, event: ShutdownEvent, state: WorkerState, _: Sequence[ShutdownCommand]) -> None:
        if isinstance(event, Lost | Assigned):
            self._forget(event.partition)
        self._user_code.follow(event, state.consumer)
        self._polls.wake(state.consumer)

    def _observe(self, event: ShutdownEvent, state: WorkerState, _: Sequence[ShutdownCommand]) -> None:
        if (observe := self._code.observe) is None:
            return
        for each in event.events if isinstance(event, Batch) else (event,):
            if isinstance(each, Event):
                observe(each, state.consumer)

    def _note(self, event: ShutdownEvent, _: WorkerState, commands: Sequence[ShutdownCommand]) -> None:
        if self._code.record is not None:
            self._code.record(event, commands)
