"""A worker's memory, descriptors, tasks and threads do not grow while it works.

Another member joins and leaves all the time, to show what rebalances leave behind. Each measure
counts by its slope over the second half, each class by its least count per visit. A second worker
has planted leaks. `test_simulated_worker` counts what a lone rebalance leaves: nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Final, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from tests.integration.servers import create_topic
from tests.integration.soak_member import KEPT, MEASURES
from tests.length import BRIEF_SOAK, SOAK, Soak

from tidegate.consumer.protocol.commands import Assigned
from tidegate.model.records import Record
from tidegate_adapters.kafka.worker import Worker

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 2
MAY: Final = {"bytes": 4_000_000.0, "blocks": 6_500.0, "descriptors": 2.0, "tasks": 12.0, "threads": 2.0}
"""The growth allowed in the second half, for records in flight."""
MAY_BY_VISIT: Final = 0.5
"""The growth of a class allowed per visit, which is two rebalances."""


class Line(NamedTuple):
    handled: int
    taken: Mapping[str, int]
    kept: Mapping[str, int]
    visit: int


def growth(lines: Sequence[Line]) -> Mapping[str, float]:
    half = [line for line in lines if line.handled >= lines[-1].handled / 2]
    handled = [line.handled for line in half]
    return {
        name: linear_regression(handled, [line.taken[name] for line in half]).slope * (handled[-1] - handled[0])
        for name in MEASURES
    }


def grown(lines: Sequence[Line]) -> Mapping[str, float]:
    """The growth per visit of the least count, from the second third of the visits to the last."""
    working = [line for line in lines if line.handled]
    first, visits = working[0].visit, (working[-1].visit - working[0].visit) // 3
    before, after = ([line.kept for line in working if (line.visit - first) // visits == nth] for nth in (1, 2))
    names = {name for kept in (*before, *after) for name in kept}
    least = {name: [min(kept.get(name, 0) for kept in looks) for looks in (before, after)] for name in names}
    return {name: (now - then) / visits for name, (then, now) in least.items() if now - then > MAY_BY_VISIT * visits}


async def soaked(bootstrap: str, soak: Soak, leaks: Sequence[str]) -> list[Line]:
    topic = f"soak-{uuid.uuid4().hex}"
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}.out"):
        await asyncio.to_thread(create_topic, bootstrap, name, PARTITIONS)
    command = (sys.executable, "-m", "tests.integration.soak_member", bootstrap, topic, str(soak.sample_s), *leaks)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    assert process.stdout is not None
    visits = list[int]()
    others = [
        asyncio.create_task(fed(bootstrap, topic, soak)),
        asyncio.create_task(visited(bootstrap, topic, soak, visits)),
    ]
    lines: list[Line] = []
    try:
        async with asyncio.timeout(None) as limit:
            while text := await process.stdout.readline():
                *numbers, kept = text.split()
                handled, *taken = map(int, numbers)
                if handled and limit.when() is None:  # a busy machine may delay the start as long
                    limit.reschedule(asyncio.get_running_loop().time() + soak.seconds)
                lines.append(Line(handled, dict(zip(MEASURES, taken, strict=True)), json.loads(kept), len(visits)))
            raise AssertionError("the worker has ended")
    except TimeoutError:
        pass
    finally:
        for other in others:
            other.cancel()
        _ = await asyncio.gather(*others, return_exceptions=True)
        process.terminate()
        _, status = await asyncio.gather(process.stdout.read(), process.wait())
    assert status == 0
    assert not [error for other in others if not other.cancelled() and (error := other.exception())]
    return lines


async def fed(bootstrap: str, topic: str, soak: Soak) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    await producer.start()
    try:
        number = 0
        while True:
            for _ in range(soak.rate // 10):
                number += 1
                key = b"%d" % (number % 100)
                _ = await producer.send(f"{topic}.{'ab'[number % 2]}", bytes(100), key)
            await asyncio.sleep(0.1)
    finally:
        await producer.stop()


async def visited(bootstrap: str, topic: str, soak: Soak, visits: list[int]) -> None:
    async def handle(_: Record) -> None:
        pass

    while True:
        await asyncio.sleep(soak.visits_s)
        topics = [f"{topic}.a", f"{topic}.b"]
        worker = Worker(topics, handle, bootstrap=bootstrap, group=f"group-{topic}", heartbeat_interval_ms=500)
        run = asyncio.create_task(worker.run())
        visits.append(len(visits))
        try:
            await asyncio.sleep(soak.visits_s)
        finally:
            worker.stop()
            await run


@pytest.mark.timeout(SOAK.seconds + 300)
def test_what_a_worker_takes_does_not_grow_and_leaks_are_seen(kafka: str) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def both() -> tuple[list[Line], list[Line]]:
        return await asyncio.gather(soaked(kafka, SOAK, ()), soaked(kafka, BRIEF_SOAK, (*MEASURES, KEPT)))

    tight, leaking = asyncio.run(both())
    for lines in (tight, leaking):
        told = ", ".join(f"{name} {now:+.1f}" for name, now in growth(lines).items())
        print(f"{lines[-1].handled} records, {len(lines)} looks: {told}; at the end {dict(lines[-1].taken)}")
        print(f"by a visit, of {len({line.visit for line in lines})}: {grown(lines)}")
    assert not [name for name, now in growth(tight).items() if now > MAY[name]]
    assert [name for name, now in growth(leaking).items() if now > MAY[name]] == list(MEASURES)
    assert Assigned.__name__ in grown(leaking)
    assert SOAK is BRIEF_SOAK or not grown(tight), "tables have not their sizes in a short time"
