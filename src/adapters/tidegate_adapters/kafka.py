"""A worker on Kafka: it carries out what `tidegate.assignment` says, and decides nothing.

Records go to the user's async function with bounded concurrency, complete out of order, and are committed in the
background; polling never waits for a commit. A revocation waits until what runs has ended and is committed, or until the
time to drain is over, and only then lets go. At least once is what it promises: user code must bear repetition.

    effect -> call                                      reply -> event
    Fetch        poll the partition (`polling`)         Fetched
    Handle       a task that awaits the user's code     Completed, or Failed if it raises
    Commit       a task that awaits the commit          Committed, CommitRefused, CommitUnanswered
    AwaitDrain   a task that sleeps                     DrainTimedOut
    Cancel       that task is cancelled
    Release      the revocation may return

A generation is counted from the client's own assignments: records that a poll brings belong to the assignment in force
when it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeAlias, final

from tidegate.assignment import Assignment, Consumer
from tidegate.effects import Ambiguous, Cancel, Effect, Failure, Refused
from tidegate.errors import Misuse, TidegateError
from tidegate.instants import SECOND
from tidegate.partition import (
    Assigned,
    AwaitDrain,
    Commit,
    Event,
    Fetch,
    Fetched,
    Handle,
    Release,
    Revoked,
    TopicPartition,
    Wish,
    heard,
)
from tidegate.records import Record
from tidegate_adapters.kafka_ports import (
    CONNECTION_ERROR,
    KAFKA_ERROR,
    REFUSED,
    Client,
    Received,
    client,
    listener,
    ours,
    record,
    theirs,
)

log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

POLL_MS: Final = 100
Handler: TypeAlias = Callable[[Record], Awaitable[None]]
Observer: TypeAlias = Callable[[Event, Assignment], None]


@final
class Worker:
    """Consumes topics as a member of a group.

    Args:
        topics: What to consume.
        handle: The user's code, called with each record at least once; its error stops the record's partition.
        bootstrap: `host:port`, several separated by commas.
        group: The consumer group.
        consumer: What may run at once, and how long a revocation may drain.
        observe: Called with every event and the state after it, for logs and metrics.
        options: More options of aiokafka's consumer, for example `session_timeout_ms`.

    Raises:
        Misuse: no topic, no group, or a handler that is no async function.
    """

    def __init__(
        self,
        topics: Sequence[str],
        handle: Handler,
        *,
        bootstrap: str,
        group: str,
        consumer: Consumer = Consumer(),
        observe: Observer | None = None,
        **options: object,
    ) -> None:
        if isinstance(topics, str) or not topics or not all(topics):
            raise Misuse(f"{topics!r} are no topics", todo="pass a list of names")
        if not group:
            raise Misuse("a worker needs a consumer group", why="its commits are the group's")
        if not callable(handle):
            raise Misuse(f"{handle!r} cannot handle records", todo="pass an async function of one record")
        self.topics, self.handle, self.bootstrap, self.consumer = tuple(topics), handle, bootstrap, consumer
        self.client: Client = client(bootstrap, group, options)
        self.observe = observe
        self.state = Assignment()
        self.generation = 0
        self.records: dict[tuple[TopicPartition, int], Record] = {}
        self.tasks: dict[Effect[object], asyncio.Task[None]] = {}
        self.releases: dict[TopicPartition, asyncio.Event] = {}
        self.is_assigned = asyncio.Event()
        self.is_assigned.set()
        self.is_stopping = False

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
            while not self.is_stopping:
                await self.poll()
            await self.on_partitions_revoked(tuple(part.partition for part in self.state.parts))
        finally:
            await self.end()

    def stop(self) -> None:
        """Let `run` drain and return."""
        self.is_stopping = True

    async def poll(self) -> None:
        """One turn: pause and resume as planned, fetch, and hand over what came."""
        poll = self.consumer.polling(self.state, tuple(map(ours, self.client.paused())))
        assigned = set(map(ours, self.client.assignment()))
        self.client.pause(*(theirs(each) for each in poll.hold if each in assigned))
        self.client.resume(*(theirs(each) for each in poll.release if each in assigned))
        fetched = await self.client.getmany(*map(theirs, poll.partitions), timeout_ms=POLL_MS)
        generation = self.generation  # of the assignment in force as the poll returns
        await self.is_assigned.wait()
        for partition, received in fetched.items():
            self.hand_over(ours(partition), generation, received)

    def hand_over(self, partition: TopicPartition, generation: int, received: Sequence[Received]) -> None:
        self.records |= {(partition, each.offset): record(each) for each in received}
        self.apply(Fetched(partition, generation, tuple(each.offset for each in received)))

    # --- what the group says ---

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain and commit, then let go."""
        waits = {partition: asyncio.Event() for partition in revoked}
        self.releases |= waits
        for partition in revoked:
            self.apply(Revoked(partition))
        for wait in waits.values():
            await wait.wait()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin a new generation where the group has committed."""
        self.generation += 1
        generation = self.generation
        self.is_assigned.clear()
        try:
            self.records.clear()
            for partition in assigned:
                committed = await self.client.committed(theirs(partition))
                self.apply(Assigned(partition, generation, committed or 0))
        finally:
            self.is_assigned.set()

    # --- what the reducer wishes ---

    def apply(self, event: Event) -> None:
        """Step, and begin to carry out what is wished for."""
        step = self.consumer.step(self.state, event)
        self.state = step.state
        if self.observe is not None:
            self.observe(event, self.state)
        for wish in step.wishes:
            self.carry_out(wish)

    def carry_out(self, wish: Wish) -> None:
        match wish:
            case Fetch():
                pass  # the next turn polls it
            case Handle() | Commit() | AwaitDrain():
                self.tasks[wish] = asyncio.create_task(self.come_true(wish), name=str(wish))
            case Cancel(effect):
                if task := self.tasks.pop(effect, None):
                    task.cancel()
            case Release(partition):
                if wait := self.releases.pop(partition, None):
                    wait.set()

    async def come_true(self, wish: Handle | Commit | AwaitDrain) -> None:
        """Do it, and tell the reducer what became of it; a task that was cancelled tells nothing."""
        try:
            reply = await self.replied(wish)
        finally:
            if self.tasks.get(wish) is asyncio.current_task():
                del self.tasks[wish]
        event = heard(wish, reply)
        if event is not None:
            self.apply(event)

    async def replied(self, wish: Handle | Commit | AwaitDrain) -> object:
        match wish:
            case Handle(partition, _, offset):
                return await self.handled(self.records.pop((partition, offset)))
            case Commit(partition, _, position):
                return await self.committed(partition, position)
            case AwaitDrain(_, _, duration):
                await asyncio.sleep(duration / SECOND)
                return None

    async def handled(self, given: Record) -> object:
        try:
            await self.handle(given)
        except Exception as error:
            log.exception("handler failed at %s", given)
            return error
        return None

    async def committed(self, partition: TopicPartition, position: int) -> Failure | None:
        try:
            await self.client.commit({theirs(partition): (position, "")})
        except REFUSED as error:
            log.warning("commit of %s @%s refused: %s", partition, position, type(error).__name__)
            return Refused(type(error).__name__)
        except KAFKA_ERROR as error:
            log.warning("commit of %s @%s unanswered: %s", partition, position, type(error).__name__)
            return Ambiguous(type(error).__name__)
        return None

    async def end(self) -> None:
        """Leave nothing running."""
        tasks = tuple(self.tasks.values())
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.stop()
