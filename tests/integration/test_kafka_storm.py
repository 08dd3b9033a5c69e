"""A storm over a group on a real broker: members and broker are killed, paused and restarted.

A record repeats only if it was uncommitted at a reassignment and its owner or the broker was killed
or paused. Committed positions never fall and never pass unfinished work. Two members work on one
record only while one of them, or the broker, is paused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from tests.integration.servers import KafkaServer
from tests.integration.servers.processes import Keeper, wait_until
from tests.length import STORM

TOPIC, GROUP, PARTITIONS = "storm", "stormy", 12
MEMBER: Final = Path(__file__).with_name("storm_member.py")
S: Final = 1_000_000_000
SESSION_S: Final = 2.0
PATIENCE_S: Final = 30.0
GRACE_NS: Final = 8 * S
"""After a pause a member may not know of its lost session for a session and a drain."""
At = tuple[int, int]


class Interval(NamedTuple):
    began: int
    ended: int

    def meets(self, other: Interval) -> bool:
        return self.began < other.ended and other.began < self.ended


class Work(NamedTuple):
    generation: int
    name: str
    interval: Interval


class Facts:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.began: dict[tuple[str, At], tuple[int, int]] = {}
        """Unfinished work: generation and start."""
        self.work: dict[At, list[Work]] = defaultdict(list)
        self.delivered: Counter[At] = Counter()
        self.floors: dict[int, list[int]] = defaultdict(list)
        self.broken: list[tuple[At, str, Interval]] = []
        self.generations: dict[tuple[str, int], int] = {}
        """The last generation in which each member got the partition."""
        self.rebalances: set[int] = set()
        """The generations that had members."""
        self._read: Counter[Path] = Counter()

    def read(self) -> None:
        for log in sorted(self.folder.glob("*.log")):
            with log.open() as opened:
                opened.seek(self._read[log])
                text = opened.read()
            text = text[: text.rfind("\n") + 1]
            self._read[log] += len(text)
            for line in text.splitlines():
                word, *numbers = line.split()
                self._noted(log.stem, word, list(map(int, numbers)))

    def _noted(self, name: str, word: str, numbers: list[int]) -> None:
        match word, numbers:
            case "assigned", [partition, committed, generation]:
                self.floors[partition].append(committed)
                self.generations[name, partition] = generation
                self.rebalances.add(generation)
            case "delivered", [partition, *offsets]:
                self.delivered.update((partition, offset) for offset in offsets)
            case "began", [partition, offset, instant]:
                self.began[name, (partition, offset)] = self.generations[name, partition], instant
            case "ended", [partition, offset, instant]:
                at = partition, offset
                generation, began = self.began.pop((name, at))
                self.work[at].append(Work(generation, name, Interval(began, instant)))
            case "left", [partition, offset, instant]:
                at = partition, offset
                _, began = self.began.pop((name, at))
                self.broken.append((at, name, Interval(began, instant)))
            case _:
                raise AssertionError(f"{name} wrote {word} {numbers}")


class Storm:
    def __init__(self, broker: KafkaServer, folder: Path, seed: int) -> None:
        self.broker, self.folder, self.chance = broker, folder, random.Random(seed)
        self.members: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.killed: set[str] = set()
        self.standstills: dict[str, list[Interval]] = defaultdict(list)
        """By member; the broker's under ""."""
        self.strikes: list[str] = []
        self._keeper, self._born = Keeper(), 0

    def join(self) -> None:
        self._born += 1
        name = f"member-{self._born}"
        told = [self.broker.bootstrap, TOPIC, GROUP, name, str(self.folder / f"{name}.log")]
        self.members[name] = self._keeper.start(self.folder / f"{name}.stderr", sys.executable, MEMBER, *told)

    def replace_ended(self) -> None:
        """A member that finds no broker at its start exits; platforms restart it."""
        for name in [name for name, pid in self.members.items() if self._keeper.status(pid) is not None]:
            assert "no Kafka broker answers" in self._said(name), self._said(name)
            del self.members[name]
            self.join()

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.stderr").read_text()[-2000:]

    async def strike(self) -> None:
        name, how = self.chance.choice(sorted(self.members)), self.chance.choice(["kill", "end", "stop", "stop"])
        self.strikes.append(f"{how} {name}")
        match how:
            case "kill":
                self.killed.add(name)
                await self._gone(name, signal.SIGKILL)
                self.join()
            case "end":
                self.join()
                await self.end(name)
            case _:
                began = time.monotonic_ns()
                self._keeper.signal(self.members[name], signal.SIGSTOP)
                await asyncio.sleep(SESSION_S * self.chance.uniform(0.5, 2.5))
                self._keeper.signal(self.members[name], signal.SIGCONT)
                self.standstills[name].append(Interval(began, time.monotonic_ns() + GRACE_NS))

    async def _gone(self, name: str, number: signal.Signals) -> int | None:
        pid = self.members.pop(name)
        self._keeper.signal(pid, number)
        await asyncio.to_thread(wait_until, lambda: self._keeper.status(pid) is not None, f"the end of {name}", 30)
        self.ended[name] = time.monotonic_ns()
        return self._keeper.status(pid)

    async def end(self, name: str) -> None:
        await asyncio.to_thread(wait_until, (self.folder / f"{name}.log").exists, f"the start of {name}", 30)
        status = await self._gone(name, signal.SIGTERM)
        assert status == 0, f"{name} ended with {status}:\n{self._said(name)}"

    async def break_broker(self, seconds: float, *, restarts: bool) -> None:
        self.strikes.append("broker restarts" if restarts else f"broker stands still for {seconds} s")
        began = time.monotonic_ns()
        if restarts:
            await asyncio.to_thread(self.broker.restart)
        else:
            self.broker.signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self.broker.signal(signal.SIGCONT)
        self.standstills[""].append(Interval(began, time.monotonic_ns() + GRACE_NS))

    def stood_still(self, interval: Interval, *names: str) -> bool:
        return any(each.meets(interval) for name in (*names, "") for each in self.standstills[name])

    def close(self) -> None:
        self._keeper.close()


class Positions:
    def __init__(self, bootstrap: str, facts: Facts) -> None:
        self.bootstrap, self.facts = bootstrap, facts
        self.committed = [0] * PARTITIONS
        self.looks = 0

    async def look(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=3_000)
        found = None
        with suppress(KafkaError, OSError, TimeoutError):
            try:
                await admin.start()
                found = await admin.list_consumer_group_offsets(GROUP)
            finally:
                await admin.close()
        self.facts.read()  # AFTER the positions: work below them must be recorded
        if found is None:
            return
        for partition, before in enumerate(self.committed):
            entry = found.get(TopicPartition(TOPIC, partition))
            position = max(0, entry.offset) if entry else before
            assert position >= before, f"the position of {partition} fell from {before} to {position}"
            missing = [offset for offset in range(before, position) if (partition, offset) not in self.facts.work]
            assert not missing, f"{partition} is committed to {position}, unfinished: {missing[:5]}"
            self.committed[partition] = position
        self.looks += 1


async def produce(bootstrap: str, records: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20)
    await producer.start()
    try:
        for start in range(0, records, 20_000):
            numbers = range(start, min(start + 20_000, records))
            sent = [await producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS) for n in numbers]
            await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def weathered(storm: Storm, positions: Positions) -> None:
    await produce(storm.broker.bootstrap, STORM.records)
    for _ in range(STORM.members):
        storm.join()
    looking = asyncio.create_task(looks(positions))
    breaks = {round(STORM.strikes * (each + 1) / (len(STORM.outages) + 1)): s for each, s in enumerate(STORM.outages)}
    for number in range(STORM.strikes):
        assert not looking.done(), looking.exception()
        await asyncio.sleep(storm.chance.uniform(0.2, STORM.pause_s))
        if number in breaks:
            await storm.break_broker(breaks[number], restarts=breaks[number] == 0)
        storm.replace_ended()
        await storm.strike()
    moved, limit = -1, 0.0
    while (committed := sum(positions.committed)) < STORM.records:
        if committed > moved:
            moved, limit = committed, time.monotonic() + PATIENCE_S
        assert not looking.done(), looking.exception()
        assert time.monotonic() < limit, f"committed {positions.committed}, no more in {PATIENCE_S} s of calm"
        storm.replace_ended()
        await asyncio.sleep(0.2)
    looking.cancel()
    await asyncio.gather(*(storm.end(name) for name in sorted(storm.members)))


async def looks(positions: Positions) -> None:
    while True:
        await positions.look()
        await asyncio.sleep(0.3)


def two_at_work(storm: Storm, facts: Facts) -> list[str]:
    """Records with two concurrent handlers although neither member nor the broker was paused."""
    now = time.monotonic_ns()
    works = {at: [(each.name, each.interval) for each in works] for at, works in facts.work.items()}
    for at, name, interval in facts.broken:
        works[at].append((name, interval))
    for (name, at), (_, began) in facts.began.items():  # work without a recorded end
        works[at].append((name, Interval(began, storm.ended.get(name, now))))
    return [
        f"{at}: {one} {first} and {other} {second}"
        for at, each in works.items()
        for (one, first), (other, second) in combinations(each, 2)
        if first.meets(second) and not (storm.stood_still(first, one, other) or storm.stood_still(second, one, other))
    ]


def needlessly_again(storm: Storm, facts: Facts) -> list[str]:
    """The earlier member may finish last: it woke up with outdated knowledge."""
    return [
        f"{at}: {one}, then {other}"
        for at, works in facts.work.items()
        for one, other in pairwise(sorted(works))
        if one.name not in storm.killed and not storm.stood_still(_between(one.interval, other.interval), one.name)
    ]


def _between(one: Interval, other: Interval) -> Interval:
    return Interval(min(one.began, other.began), max(one.began, other.began))


def test_nothing_is_lost_in_a_storm(tmp_path: Path) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs each attempt while the broker is down
    seed = 20_261_123
    with KafkaServer() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        facts, storm = Facts(tmp_path), Storm(broker, tmp_path, seed)
        positions = Positions(broker.bootstrap, facts)
        try:
            asyncio.run(weathered(storm, positions))
        except BaseException:
            print("\n".join(storm.strikes))
            raise
        finally:
            storm.close()
    facts.read()
    everything = {(n % PARTITIONS, n // PARTITIONS) for n in range(STORM.records)}
    assert set(facts.work) == everything
    for (partition, offset), times in facts.delivered.items():
        assert times <= sum(floor <= offset for floor in facts.floors[partition]), (
            f"{partition} @{offset}: {times} times"
        )
    surplus = facts.delivered.total() - len(facts.delivered)
    duplicates = sum(map(len, facts.work.values())) - STORM.records
    assert duplicates <= surplus, f"{duplicates} duplicates, where {surplus} were delivered again"
    assert not (found := two_at_work(storm, facts)), found[:5]
    assert not (found := needlessly_again(storm, facts)), found[:5]
    assert positions.looks > 10
    rebalances = len(facts.rebalances)
    assert rebalances >= STORM.rebalances
    print(
        f"{len(storm.strikes)} strikes, {rebalances} rebalances, {duplicates} duplicates of at most {surplus}, "
        f"{positions.looks} looks"
    )
