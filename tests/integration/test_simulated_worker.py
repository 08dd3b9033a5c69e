"""One worker on the simulated Kafka: its requests, their times, and its reports."""

# ruff: noqa: SLF001  leaks are planted in private functions

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from itertools import groupby, pairwise
from random import Random
from statistics import linear_regression
from typing import Any, Final, NamedTuple, cast

import pytest
from aiokafka import errors
from prometheus_client import CollectorRegistry
from tests.integration.leftovers import kept, no_others
from tests.integration.planting import Bug, planted
from tests.integration.transactional_runs import OUT, Reader, fence, producing

from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.flow.offset_reset import LogRange, begins, goes_on
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import (
    CommitRefused,
    Committed,
    CommitUnknown,
    Event,
    Measured,
    MetadataRefused,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, Send, TopicPartition
from tidegate_adapters.kafka import client as kafka_ports
from tidegate_adapters.kafka import poll_loop
from tidegate_adapters.kafka.assignment import Assignment
from tidegate_adapters.kafka.client import Client, Producing, Transact, join_no_more, transactional_producer
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.start_positions import Beginnings
from tidegate_adapters.kafka.worker import OnFailure, Undecodable, Worker
from tidegate_adapters.testing.event_loop import run
from tidegate_adapters.testing.kafka import Network, Outcome, SimulatedBroker, SimulatedConsumer
from tidegate_adapters.testing.kafka.requests import (
    Fetch,
    JoinGroup,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    Partition,
    Position,
    Request,
    TxnOffsetCommit,
)

DEAD: Final = "dead"
EVER: Final = 1_000_000 * SECOND


def played(
    during: Callable[[SimulatedBroker], Awaitable[object]],
    handle: Callable[[Record], Awaitable[object]],
    strike: Callable[[Request], Any] = lambda _: None,
    transact: Transact = transactional_producer,
    fetched_max: int = 500,
    **told: Any,
) -> float:
    async def main(random: Random) -> float:
        broker, loop = SimulatedBroker({"t": 1, OUT: 1, DEAD: 1}, fetched_max=fetched_max), asyncio.get_running_loop()
        network = Network(broker, random, strike=lambda _, request: strike(request))

        def connect(_address: str, _group: str, options: Mapping[str, object]) -> Client:
            kept: Any = {each: options[each] for each in ("auto_offset_reset", "isolation_level") if each in options}
            return cast("Client", SimulatedConsumer(network, group_id="g", enable_auto_commit=False, **kept))

        worker = Worker(["t"], handle, bootstrap="simulated", group="g", **told)
        running = loop.create_task(worker.run(connect, transact=transact))
        await during(broker)
        stopped_s = loop.time()
        worker.stop()
        await running
        return loop.time() - stopped_s

    return run(main, 1)


def appends(broker: SimulatedBroker, count: int) -> None:
    for _ in range(count):
        broker.append("t", 0, b"key")


LEAKS: Final = {
    "none": None,
    "an object": Bug(
        Assignment.begin,
        "self.count += 1",
        "self.count += 1; self.positions[TopicPartition('gone', self.count)] = []",
    ),
    "a task": Bug(Lifecycle.spawn, "self._tasks.discard(task)", "pass"),
    "a number": Bug(Assignment.begin, "del self.granted[over]", "pass"),
}
VISITS: Final = 8


@pytest.mark.parametrize("leak", LEAKS)
def test_a_rebalance_leaves_nothing_behind(leak: str) -> None:
    """By the slope over rebalances once tables are full: 0, or at least 1 with the planted leak."""
    seen = list[int]()

    async def handle(_: Record) -> None: ...

    async def during(broker: SimulatedBroker) -> None:
        for _ in range(VISITS):
            appends(broker, 3)
            await asyncio.sleep(5)
            broker.group("g").rebalance()
            await asyncio.sleep(5)
            seen.append(kept().total())

    bug = LEAKS[leak]
    with no_others(), nullcontext() if bug is None else planted(bug):
        played(during, handle)
    half = seen[VISITS // 2 :]
    slope = linear_regression(range(len(half)), half).slope
    assert slope == 0 if bug is None else slope >= 1, seen


def test_a_client_that_ends_by_itself_ends_the_worker() -> None:
    """It never rejoins, so the worker would hang."""

    async def main(random: Random) -> None:
        network = Network(SimulatedBroker({"t": 1}), random)
        client = SimulatedConsumer(network, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)

        async def handle(_: Record) -> None: ...

        worker = Worker(["t"], handle, bootstrap="simulated", group="g")
        running = asyncio.get_running_loop().create_task(worker.run(lambda *_: cast("Client", client)))
        await asyncio.sleep(5)
        join_no_more(cast("Client", client))
        await running

    with pytest.raises(TidegateError, match="the Kafka client has ended"):
        run(main, 1)


def test_a_record_that_cannot_be_read_otherwise_either_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unread(*_: object) -> None: ...

    async def undecodable(*_: object, **__: object) -> None:
        await asyncio.sleep(0.1)
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    async def main(random: Random) -> None:
        client = SimulatedConsumer(
            Network(SimulatedBroker({"t": 1}), random),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        monkeypatch.setattr(client, "getmany", undecodable)

        async def handle(_: Record) -> None: ...

        worker = Worker(["t"], handle, bootstrap="simulated", group="g")
        async with asyncio.timeout(60):
            await worker.run(lambda *_: cast("Client", client))

    monkeypatch.setattr(poll_loop, "read", unread)
    with pytest.raises(TidegateError, match="cannot decode a record"):
        run(main, 1)


def test_as_many_handlers_begin_as_may_though_none_has_ended() -> None:
    ended = list[int]()

    async def during(broker: SimulatedBroker) -> None:
        meeting.append(asyncio.Barrier(9))
        await asyncio.sleep(5)
        appends(broker, 9)
        await asyncio.sleep(1)
        assert sorted(ended) == [*range(9)]

    async def handle(record: Record) -> None:
        await meeting[0].wait()
        ended.append(record.offset)

    meeting = list[asyncio.Barrier]()
    played(during, handle, concurrency=9)


def test_a_partition_that_is_there_no_more_is_given_back_at_once() -> None:
    """Law CA4: the broker refuses its commit, and the group does not wait for the drain."""
    joined_s, asked_s = list[float](), list[float]()

    def strike(request: Request) -> Any:
        if isinstance(request, JoinGroup):
            joined_s.append(asyncio.get_running_loop().time())
        return errors.UnknownTopicOrPartitionError if isinstance(request, OffsetCommit) else None

    async def handle(_: Record) -> None: ...

    async def during(broker: SimulatedBroker) -> None:
        await asyncio.sleep(5)
        appends(broker, 1)
        await asyncio.sleep(0.5)
        asked_s.append(asyncio.get_running_loop().time())
        broker.group("g").rebalance()
        await asyncio.sleep(30)

    played(during, handle, strike, heartbeat_interval_ms=1_000)
    assert joined_s[-1] > asked_s[0]
    assert min(at for at in joined_s if at > asked_s[0]) < asked_s[0] + 3


@pytest.mark.parametrize("batch", [None, 1])
def test_what_is_held_up_is_measured(batch: int | None) -> None:
    ages: dict[int, int] = {}
    sizes: list[int] = []

    async def during(broker: SimulatedBroker) -> None:
        await asyncio.sleep(4)
        appends(broker, 3)
        await asyncio.sleep(0.7)
        appends(broker, 1)
        await asyncio.sleep(2)

    async def handle(_: Record) -> None:
        await asyncio.sleep(1)

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, Measured):
            ages[event.size] = max(event.age, ages.get(event.size, 0))
            sizes.append(event.size)

    limits = PartitionLimits(size=Thresholds(high=1_000, low=1), age=Thresholds(high=EVER, low=1))
    played(
        during, handle, consumer=ConsumerRules(partition=PartitionRules(limits=limits)), observe=observe, batch=batch
    )
    assert ages.keys() == {0, 12, 16, 4}
    assert [size for size, _ in groupby(sizes)][-2:] == [4, 0]
    assert ages[0] == 0
    assert ages[16] > SECOND // 2


def test_the_gate_is_asked_before_more_is_taken_in() -> None:
    """Law AS2: whatever the client holds, the worker exceeds its limit by one batch at most."""
    begun = list[Record]()
    seen = list[int]()

    async def during(broker: SimulatedBroker) -> None:
        broker.append("t", 0, *[b"key"] * 12_000)
        await asyncio.sleep(5)

    async def handle(record: Record) -> None:
        begun.append(record)
        await asyncio.sleep(1_000)

    def observe(_: Event, state: ConsumerState) -> None:
        seen.append(state.load)

    played(during, handle, observe=observe, fetched_max=12_000)
    assert 0 < max(seen) <= 5_000


def test_commits_keep_their_pace_unless_partitions_are_given_back() -> None:
    sent_s: list[float] = []

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 1_000)
        await asyncio.sleep(4)
        broker.group("g").rebalance()
        await asyncio.sleep(4)

    async def handle(_: Record) -> None:
        await asyncio.sleep(0.01)

    def strike(request: Request) -> None:
        if isinstance(request, OffsetCommit):
            sent_s.append(asyncio.get_running_loop().time())

    played(during, handle, strike, concurrency=1)
    quickly_s = [round(after) for before, after in pairwise(sent_s) if after - before < 0.099]
    assert len(sent_s) > 70
    assert set(quickly_s) == {6, 8}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.IllegalGenerationError, CommitRefused),
        (errors.OffsetMetadataTooLargeError, MetadataRefused),
        (errors.UnknownError, CommitUnknown),
        (None, Committed),
    ],
)
def test_what_a_commit_is_answered_is_told(code: Any, kind: type[Event], caplog: pytest.LogCaptureFixture) -> None:
    told: list[type[Event]] = []
    answers = [code]

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 1)
        await asyncio.sleep(15)

    async def handle(_: Record) -> None: ...

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, CommitRefused | MetadataRefused | CommitUnknown | Committed):
            told.append(type(event))

    played(
        during,
        handle,
        lambda request: answers.pop() if answers and isinstance(request, OffsetCommit) else None,
        observe=observe,
    )
    assert told[:1] == [kind]
    assert ("commit of t-0 @1 failed: " in caplog.text) == (code is not None)


def test_commits_that_fail_lastingly_are_told_to_people_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """Law P12: retries slow down, too, and the work is committed once the broker accepts."""
    is_away = True

    async def during(broker: SimulatedBroker) -> None:
        nonlocal is_away
        appends(broker, 1)
        await asyncio.sleep(60)
        is_away = False
        await asyncio.sleep(30)
        assert broker.committed("g")[Partition("t", 0)].offset == 1

    async def handle(_: Record) -> None: ...

    def strike(request: Request) -> object:
        return errors.UnknownError if is_away and isinstance(request, OffsetCommit) else None

    played(during, handle, strike)
    told = [each for each in caplog.messages if each.endswith("commits of t-0 were not answered, now @1")]
    assert [int(each.split()[0]) for each in told] == [4, 8, 16, 32]


def with_beginnings(during: Callable[[SimulatedBroker, Beginnings], Awaitable[None]]) -> None:
    async def main(random: Random) -> None:
        broker = SimulatedBroker({"t": 1})
        options: Any = {"auto_offset_reset": "latest"}
        consumer = SimulatedConsumer(Network(broker, random), group_id="g", enable_auto_commit=False, **options)
        consumer.subscribe(["t"])
        await consumer.start()
        await asyncio.sleep(5)
        try:
            appends(broker, 3)
            settings = WorkerSettings(("t",), "simulated", "g", options=options)
            await during(broker, Beginnings(cast("Client", consumer), settings))
        finally:
            await consumer.stop()

    run(main, 1)


def commits(broker: SimulatedBroker, position: int) -> None:
    broker.positions.take(OffsetCommit("g", 1, "a", {Partition("t", 0): Position(position, "done")}))


def test_where_a_partition_begins_that_nothing_is_committed_for_stays_so() -> None:
    async def during(broker: SimulatedBroker, beginnings: Beginnings) -> None:
        partition = TopicPartition("t", 0)
        assert await beginnings.known(partition) == (3, None)
        appends(broker, 2)
        assert await beginnings.known(partition) == (3, None)
        commits(broker, 4)
        assert await beginnings.known(partition) == (4, "done")

    with_beginnings(during)


def test_where_a_partition_begins_whose_position_is_beyond_the_end_stays_so_until_another_is_committed() -> None:
    async def during(broker: SimulatedBroker, beginnings: Beginnings) -> None:
        partition = TopicPartition("t", 0)
        for at, found in ((9, (3, None)), (8, (5, None))):
            commits(broker, at)
            assert await beginnings.known(partition) == found
            appends(broker, 2)
            assert await beginnings.known(partition) == found
        commits(broker, 5)
        assert await beginnings.known(partition) == (5, "done")

    with_beginnings(during)


@pytest.mark.parametrize(("before", "begins_at"), [(2, (2, "")), (9, (3, None))])
def test_what_is_committed_after_a_log_has_lost_its_end_holds(before: int, begins_at: tuple[int, str | None]) -> None:
    """A new owner once began at the old end, and sent answers twice."""

    async def during(broker: SimulatedBroker, beginnings: Beginnings) -> None:
        partition = TopicPartition("t", 0)
        commits(broker, before)
        await beginnings.cut(partition, LogRange(0, 3))
        assert await beginnings.known(partition) == begins_at
        appends(broker, 3)
        assert await beginnings.known(partition) == begins_at
        commits(broker, 5)
        assert await beginnings.known(partition) == (5, "done")

    with_beginnings(during)


def test_a_position_beyond_the_end_that_is_taken_for_one_is_found() -> None:
    """Runs by seed miss it: the partition restarts, but at an end no record returns."""
    with (
        planted(Bug(begins, "committed > end", "committed > end and cut is not None")),
        pytest.raises(AssertionError),
    ):
        test_where_a_partition_begins_whose_position_is_beyond_the_end_stays_so_until_another_is_committed()


def test_positions_come_alone_where_the_client_has_no_word_of_what_was_committed_along_with_them() -> None:
    class Alone:
        async def committed(self, partition: Partition) -> int | None:
            return 4 if partition.partition else None

    asked = [TopicPartition("t", each) for each in (0, 1)]
    found = asyncio.run(kafka_ports.committed(cast("Client", Alone()), asked))
    assert found == {TopicPartition("t", 1): (4, "")}


def test_who_does_not_reach_the_broker_ends_when_it_is_asked_to() -> None:
    async def during(_: SimulatedBroker) -> None:
        await asyncio.sleep(1)

    async def handle(_: Record) -> None: ...

    assert played(during, handle, lambda _: Outcome.SILENCE) < 1


def test_what_nobody_expects_of_the_client_ends_the_worker_with_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    async def during(_: SimulatedBroker) -> None:
        await asyncio.sleep(10)

    async def handle(_: Record) -> None: ...

    monkeypatch.setattr(SimulatedConsumer, "getmany", fails)
    with pytest.raises(TidegateError, match=r"^the Kafka client has failed") as raised:
        played(during, handle)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_where_all_is_cancelled_at_once_nothing_is_raised_but_that() -> None:
    found: list[object] = []

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 1)
        await asyncio.sleep(10)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        found.extend(await asyncio.gather(*tasks, return_exceptions=True))

    async def handle(_: Record) -> None: ...

    with pytest.raises(asyncio.CancelledError):
        played(during, handle, lambda request: Outcome.SILENCE if isinstance(request, OffsetCommit) else None)
    assert {type(each) for each in found} <= {asyncio.CancelledError, type(None)}


class Once(NamedTuple):
    """When a worker with `exactly_once` made producers, its visible answers, and the time to
    stop.
    """

    made_s: list[float]
    seen: int
    stopped_s: float


def once(
    during_s: float,
    *refusals: Any,
    fenced_s: float | None = None,
    odd_fail: bool = False,
    **told: Any,
) -> Once:
    made_s: list[float] = []
    left, readers = [*refusals], list[Reader]()
    network: Network

    def transact(_bootstrap: str, _options: object, name: str) -> Producing:
        made_s.append(asyncio.get_running_loop().time())
        return producing(network, "a", name)[1]

    def strike(request: Request) -> Any:
        return left.pop() if left and isinstance(request, TxnOffsetCommit) else None

    async def during(broker: SimulatedBroker) -> None:
        nonlocal network
        network = Network(broker, Random(1), strike=lambda _, request: strike(request))
        readers.append(Reader(network, OUT, DEAD))
        appends(broker, 100)
        if fenced_s is not None:
            await asyncio.sleep(fenced_s)
            await fence(network, "g:t:0")
        await asyncio.sleep(during_s)

    async def handle(record: Record) -> Send:
        await asyncio.sleep(0.05)
        if odd_fail and record.offset % 2:
            raise ValueError
        return Send(OUT, b"%d %d" % (record.partition, record.offset))

    stopped_s = played(during, handle, transact=transact, exactly_once=True, concurrency=1, **told)
    [reader] = readers
    assert set(reader.seen.values()) == {1}
    return Once(made_s, len(reader.seen), stopped_s)


def test_who_is_fenced_takes_over_again_after_a_while() -> None:
    """The delay lets the group report a new owner; two would fence each other in turn."""
    (first_s, again_s), seen, _ = once(10, fenced_s=2)
    assert first_s < 1
    assert again_s > 3
    assert seen == 100


def test_who_is_refused_otherwise_is_not_fenced(caplog: pytest.LogCaptureFixture) -> None:
    """It fences itself at once to learn the outcome of its transaction."""
    made_s, seen, _ = once(10, errors.OffsetMetadataTooLargeError)
    assert max(made_s) < 1
    assert seen == 100
    assert "failed: Refused(the metadata of the offset is too large)" in caplog.text


def test_who_stops_waits_for_no_next_transaction() -> None:
    assert once(1.05).stopped_s < 0.2


def test_dead_letters_of_what_cannot_be_decoded_are_answers() -> None:
    def decode(record: Record) -> Record:
        if record.offset % 2:
            raise ValueError
        return record

    told = once(10, decode=decode, undecodable=Undecodable.DEAD_LETTER, dead_letter=DEAD)
    assert told.seen == 100


def test_dead_letters_of_what_has_failed_are_answers() -> None:
    told = once(10, odd_fail=True, on_failure=OnFailure.DEAD_LETTER, dead_letter=DEAD)
    assert told.seen == 100


def test_what_cannot_be_decoded_is_read_once() -> None:
    handled: list[int] = []
    read: list[int] = []

    async def during(broker: SimulatedBroker) -> None:
        for _ in range(3):
            broker.append("t", 0, b"key", poison=True)
            await asyncio.sleep(4)

    async def handle(record: Record) -> None:
        handled.append(record.offset)

    def strike(request: Request) -> None:
        if isinstance(request, Fetch):
            read.extend(request.positions.values())

    played(during, handle, strike, undecodable=Undecodable.RAW)
    assert handled == [0, 1, 2]
    assert read == sorted(read)


def test_whoever_alone_has_seen_that_a_topic_was_away_joins_again_and_begins_anew() -> None:
    """The leader missed it, so no other member would rejoin, and no commit would succeed."""
    handled: list[tuple[int, int]] = []

    async def handle(record: Record) -> None:
        handled.append((record.partition, record.offset))

    async def main(random: Random) -> Mapping[Partition, Position]:
        broker, is_deaf = SimulatedBroker({"t": 2}), False
        network = Network(
            broker,
            random,
            strike=lambda client, request: (
                Outcome.UNSENT if is_deaf and client == "leader" and isinstance(request, Metadata) else None
            ),
        )

        def begun(name: str) -> tuple[Worker, asyncio.Task[None]]:
            def connect(*_: object) -> Client:
                options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": name}
                return cast("Client", SimulatedConsumer(network, group_id="g", **options))

            worker = Worker(["t"], handle, bootstrap="simulated", group="g")
            return worker, asyncio.get_running_loop().create_task(worker.run(connect))

        def filled(count: int) -> None:
            for number in range(2):
                broker.append("t", number, *[b"key"] * count)

        members = [begun("leader")]
        await asyncio.sleep(5)
        members.append(begun("other"))
        filled(3)
        await asyncio.sleep(10)
        assert {each.partition: at.offset for each, at in broker.committed("g").items()} == {0: 3, 1: 3}
        is_deaf = True
        broker.delete("t")
        await asyncio.sleep(2)
        is_deaf = False
        handled.clear()
        broker.grow("t", 2)
        filled(5)
        await asyncio.sleep(20)
        for worker, task in members:
            worker.stop()
            await task
        return broker.committed("g")

    committed = run(main, 1)
    assert sorted(at for at in handled if at[0] == 1) == [(1, offset) for offset in range(5)]
    assert committed[Partition("t", 1)].offset == 5


@pytest.mark.parametrize("failures_max", [3, None])
def test_an_observer_that_raises_is_counted_and_not_called_again_if_that_is_set(failures_max: int | None) -> None:
    """Law RT4."""
    registry, handled, calls = CollectorRegistry(), list[int](), list[object]()

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 5)
        await asyncio.sleep(5)
        assert registry.get_sample_value("tidegate_worker_observer_failures_total") == len(calls)
        assert broker.positions.committed("g")[Partition("t", 0)].offset == 5

    async def handle(record: Record) -> None:
        handled.append(record.offset)

    def observe(*told: object) -> None:
        calls.append(told)
        raise OSError("no space left on device")

    played(during, handle, observe=observe, metrics=registry, observer_failures_max=failures_max)
    assert handled == [0, 1, 2, 3, 4]
    assert len(calls) == 3 if failures_max else len(calls) > 3


def test_a_commit_for_which_there_is_no_coordinator_is_told_as_unknown() -> None:
    """Law P12: the client looks for one for ever, silently."""
    told: list[float] = []
    is_away = False

    async def during(broker: SimulatedBroker) -> None:
        nonlocal is_away
        await asyncio.sleep(4)
        is_away = True
        appends(broker, 1)
        await asyncio.sleep(30)
        is_away = False
        await asyncio.sleep(3)
        assert broker.positions.committed("g")[Partition("t", 0)].offset == 1

    async def handle(_: Record) -> None: ...

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, CommitUnknown):
            told.append(asyncio.get_running_loop().time())

    def strike(request: Request) -> object:
        if not is_away or isinstance(request, Fetch | Metadata):
            return None
        return errors.GroupCoordinatorNotAvailableError

    played(during, handle, strike, observe=observe)
    assert [round(at) for at in told[:2]] == [4, 14]


CUT: Final = {
    "nothing of it is left": (0, "earliest", [*range(10), *range(6)]),
    "nothing of it is left, and the group begins at ends": (0, "latest", [*range(2, 6)]),
    "what is committed is left": (7, "earliest", [*range(10), *range(6, 13)]),
}
CUT_BUGS: Final = {
    "it is not seen": Bug(goes_on, "GoesOn.AGAIN", "GoesOn.WHERE_IT_IS"),
    "what is committed holds": Bug(begins, "committed > end", "committed > end and cut is None"),
    "nothing that is committed holds": Bug(begins, "else Begins.AT_THE_POSITION", "else Begins.WHERE_IT_GOES_ON"),
    "what is done beyond it holds": Bug(Beginnings._held, '(committed[0], "")', "committed"),
    "it reads on where it was": Bug(
        Assignment._resumed, "self.seek(partition, position)", "self.positions[partition] = position"
    ),
    "it begins as where nothing is committed": Bug(begins, "Begins.AS_TOLD if cut is None", "Begins.AS_TOLD if True"),
}


def with_a_log_that_is_cut(left: int, reset: str, **told: Any) -> tuple[list[int], int]:
    """Of ten records, `left` remain; two follow before the member notices, four later."""
    handled, committed, is_answered = list[int](), list[int](), True

    def strike(request: Request) -> object:
        return errors.GroupLoadInProgressError if isinstance(request, OffsetFetch) and not is_answered else None

    async def handle(record: Record) -> None:
        handled.append(record.offset)
        if left and len(handled) <= 10:
            await asyncio.sleep({5: 1, 6: 30, 8: 30, 9: 30}.get(record.offset, 0))

    async def during(broker: SimulatedBroker) -> None:
        nonlocal is_answered
        appends(broker, 10)
        await asyncio.sleep(5)
        broker.delete_from("t", 0, left)
        appends(broker, 2)
        is_answered = False
        await asyncio.sleep(5)
        appends(broker, 4)
        is_answered = True
        await asyncio.sleep(15)
        committed.append(broker.committed("g")[Partition("t", 0)].offset)

    played(during, handle, strike, auto_offset_reset=reset, **told)
    return handled, committed[0]


@pytest.mark.parametrize("case", CUT)
def test_a_log_that_loses_its_end_under_a_worker_is_read_on(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """Records below its position were once silently skipped until the log passed it."""
    left, reset, handled = CUT[case]
    assert with_a_log_that_is_cut(left, reset) == (handled, left + 6)
    assert "has lost its end" in caplog.text


@pytest.mark.parametrize("bug", CUT_BUGS)
def test_a_log_that_loses_its_end_shows_what_is_planted(bug: str) -> None:
    with planted(CUT_BUGS[bug]):
        assert any(with_a_log_that_is_cut(left, reset) != (handled, left + 6) for left, reset, handled in CUT.values())


# --- positions that are not in the log ----------------------------------------------------------------------------------

RESETS: Final = ("earliest", "latest", "none")
HERE: Final = Partition("t", 0)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("left", [3, 0])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_group_whose_position_was_removed_begins_at_the_first_record_that_is_left(
    reset: str, left: int, caplog: pytest.LogCaptureFixture, *, exactly_once: bool
) -> None:
    """Laws BG5 and P16, whatever the settings: commit that position first, and report the gap."""
    registry, handled, began, brokers = CollectorRegistry(), list[int](), list[int](), list[SimulatedBroker]()

    async def handle(record: Record) -> None:
        began.append(brokers[0].committed("g")[HERE].offset)
        handled.append(record.offset)

    async def during(broker: SimulatedBroker) -> None:
        brokers.append(broker)
        appends(broker, 10)
        commits(broker, 2)
        broker.delete_below("t", 0, 10 - left)
        await asyncio.sleep(8)
        assert broker.committed("g")[HERE].offset == 10
        where = {"topic": "t", "partition": "0"}
        assert registry.get_sample_value("tidegate_worker_removed_offsets_total", where) == 8 - left
        appends(broker, 2)
        await asyncio.sleep(5)

    def transact(_bootstrap: str, _options: object, name: str) -> Producing:
        return producing(Network(brokers[0], Random(1)), "a", name)[1]

    played(during, handle, transact=transact, auto_offset_reset=reset, metrics=registry, exactly_once=exactly_once)
    assert handled == [*range(10 - left, 12)]
    assert began[0] == 10 - left
    assert [(each.levelname, each.getMessage()) for each in caplog.records if "removed" in each.getMessage()] == [
        (
            "ERROR",
            f"{8 - left} offsets of t-0 were removed before group g read them: its position was @2, and it goes on @{10 - left}, the first that is left",
        )
    ]


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_member_that_retention_overtakes_goes_on_at_the_first_record_that_is_left(
    reset: str, caplog: pytest.LogCaptureFixture, *, exactly_once: bool
) -> None:
    """Law BG6: its running work continues, and is committed."""
    registry, ended, begun, is_read = CollectorRegistry(), list[int](), list[int](), True
    brokers = list[SimulatedBroker]()

    def transact(_bootstrap: str, _options: object, name: str) -> Producing:
        return producing(Network(brokers[0], Random(1)), "a", name)[1]

    def strike(request: Request) -> object:
        return Outcome.UNSENT if isinstance(request, Fetch) and not is_read else None

    async def handle(record: Record) -> None:
        begun.append(record.offset)
        await asyncio.sleep(20 if record.offset == 1 else 0)
        ended.append(record.offset)

    async def during(broker: SimulatedBroker) -> None:
        nonlocal is_read
        brokers.append(broker)
        commits(broker, 0)
        appends(broker, 2)
        await asyncio.sleep(5)
        is_read = False
        await asyncio.sleep(1)
        appends(broker, 8)
        broker.delete_below("t", 0, 6)
        is_read = True
        await asyncio.sleep(10)
        assert sorted(ended) == [0, 6, 7, 8, 9]
        assert broker.committed("g")[HERE].offset == 1
        await asyncio.sleep(15)
        assert broker.committed("g")[HERE].offset == 10
        where = {"topic": "t", "partition": "0"}
        assert registry.get_sample_value("tidegate_worker_removed_offsets_total", where) == 4

    played(during, handle, strike, transact, auto_offset_reset=reset, metrics=registry, exactly_once=exactly_once)
    assert sorted(begun) == [0, 1, 6, 7, 8, 9]
    assert (
        "4 offsets of t-0 were removed before group g read them: its position was @2, and it goes on @6" in caplog.text
    )


def test_what_cannot_be_decoded_may_be_removed_before_it_is_read_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    handled, brokers, is_next = list[int](), list[SimulatedBroker](), False

    async def handle(record: Record) -> None:
        handled.append(record.offset)

    def strike(request: Request) -> None:
        if is_next and isinstance(request, ListOffsets):
            brokers[0].delete_below("t", 0, 4)

    async def during(broker: SimulatedBroker) -> None:
        nonlocal is_next
        brokers.append(broker)
        appends(broker, 2)
        await asyncio.sleep(5)
        is_next = True
        broker.append("t", 0, b"key", b"key", poison=True)
        appends(broker, 2)
        await asyncio.sleep(5)
        assert broker.committed("g")[HERE].offset == 6

    played(during, handle, strike, undecodable=Undecodable.RAW)
    assert handled == [0, 1, 4, 5]
    assert "2 offsets of t-0 were removed" in caplog.text


@pytest.mark.parametrize("committed", [None, 9])
def test_a_group_without_a_position_fails_where_it_may_begin_nowhere(committed: int | None) -> None:
    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 3)
        if committed is not None:
            commits(broker, committed)
        await asyncio.sleep(8)

    async def handle(_: Record) -> None: ...

    why = "committed nothing" if committed is None else "committed @9, and its log ends @3"
    with pytest.raises(TidegateError, match=f'(?s)no position in t-0.*auto_offset_reset = "none".*{why}'):
        played(during, handle, auto_offset_reset="none")


INSIDE: Final = {
    "at a control marker": ("commit", 5, [6]),
    "at an aborted record": ("abort", 3, [6]),
    "behind an aborted record": ("abort", 4, [6]),
    "at an open transaction": ("", 3, [3, 4, 5]),
    "in an open transaction": ("", 4, [4, 5]),
    "behind an open transaction": ("", 5, [5]),
}


def inside(case: str, reset: str) -> list[int]:
    """The log: three records, a transaction of two that ends as given or last, and one more."""
    end, position, _ = INSIDE[case]
    handled = list[int]()

    async def handle(record: Record) -> None:
        handled.append(record.offset)

    async def during(broker: SimulatedBroker) -> None:
        commits(broker, position)
        appends(broker, 3)
        producer, sends = producing(Network(broker, Random(1)), "x", "x")
        await sends.start()
        await sends.begin()
        for _ in range(2):
            await (await sends.send(Send("t", b"x", partition=0)))
        if end:
            await getattr(producer, f"{end}_transaction")()
        await asyncio.sleep(8)
        appends(broker, 1)
        await asyncio.sleep(5)
        assert end or not handled
        if not end:
            await producer.commit_transaction()
        await asyncio.sleep(5)
        await producer.stop()

    played(during, handle, auto_offset_reset=reset, isolation_level="read_committed")
    return handled


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("case", INSIDE)
def test_a_position_in_a_transaction_is_within_the_log(case: str, reset: str) -> None:
    """Law BG2, also for readers of committed records."""
    assert sorted(inside(case, reset)) == INSIDE[case][2]


def test_a_log_that_ends_where_the_first_transaction_is_open_shows() -> None:
    """Once a group that switched to `read_committed` repeated all records."""
    with (
        planted(Bug(kafka_ports._log_ends, "if own is not None:", "if False:")),
        pytest.raises(AssertionError),
    ):
        test_a_position_in_a_transaction_is_within_the_log("in an open transaction", "earliest")
