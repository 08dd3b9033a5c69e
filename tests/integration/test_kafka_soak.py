"""What a worker takes does not grow while it works: memory, descriptors, tasks and threads.

Another member joins and leaves the group all the while, so that what a partition's life leaves behind is seen, too. What is
taken is looked at in the second half, by its slope over the records that were handled; the same is done with a worker in which
leaks are planted, each of which is to be seen.
"""

from __future__ import annotations

import asyncio
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
from tests.integration.soak_member import MEASURES
from tests.length import BRIEF_SOAK, SOAK, Soak

from tidegate.model.records import Record
from tidegate_adapters.kafka import Worker

MEMBER: Final = Path(__file__).with_name("soak_member.py")
PARTITIONS: Final = 2
MAY: Final = {"bytes": 4_000_000.0, "blocks": 5_000.0, "descriptors": 2.0, "tasks": 12.0, "threads": 2.0}
"""By how much each may be more at the end of the second half than at its beginning: what is in work comes and goes."""


class Line(NamedTuple):
    """What a worker took when it had handled so many records."""

    handled: int
    taken: Mapping[str, int]


def growth(lines: Sequence[Line]) -> Mapping[str, float]:
    """By what each measure has grown in the second half, by its slope."""
    half = [line for line in lines if line.handled >= lines[-1].handled / 2]
    handled = [line.handled for line in half]
    return {
        name: linear_regression(handled, [line.taken[name] for line in half]).slope * (handled[-1] - handled[0])
        for name in MEASURES
    }


async def soaked(bootstrap: str, soak: Soak, leaks: Sequence[str]) -> list[Line]:
    """What a worker with these leaks says in that time, once it has handled something."""
    topic = f"soak-{uuid.uuid4().hex}"
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}.out"):
        await asyncio.to_thread(create_topic, bootstrap, name, PARTITIONS)
    command = (sys.executable, MEMBER, bootstrap, topic, str(soak.sample_s), *leaks)
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    others = [asyncio.create_task(fed(bootstrap, topic, soak)), asyncio.create_task(visited(bootstrap, topic, soak))]
    lines: list[Line] = []
    try:
        async with asyncio.timeout(None) as limit:
            while text := await process.stdout.readline():
                handled, *taken = map(int, text.split())
                if handled and limit.when() is None:  # on a busy machine a worker takes as long to start
                    limit.reschedule(asyncio.get_running_loop().time() + soak.seconds)
                lines.append(Line(handled, dict(zip(MEASURES, taken, strict=True))))
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
    """So many records a second, of a hundred keys."""
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


async def visited(bootstrap: str, topic: str, soak: Soak) -> None:
    """Another member comes and goes."""

    async def handle(_: Record) -> None:
        pass

    while True:
        await asyncio.sleep(soak.visits_s)
        topics = [f"{topic}.a", f"{topic}.b"]
        worker = Worker(topics, handle, bootstrap=bootstrap, group=f"group-{topic}", heartbeat_interval_ms=500)
        run = asyncio.create_task(worker.run())
        try:
            await asyncio.sleep(soak.visits_s)
        finally:
            worker.stop()
            await run


@pytest.mark.timeout(SOAK.seconds + 300)
def test_what_a_worker_takes_does_not_grow_and_leaks_are_seen(kafka: str) -> None:
    """Side by side: one as it is, and one in which all leaks are planted, for a short time."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def both() -> tuple[list[Line], list[Line]]:
        return await asyncio.gather(soaked(kafka, SOAK, ()), soaked(kafka, BRIEF_SOAK, MEASURES))

    tight, leaking = asyncio.run(both())
    for lines in (tight, leaking):
        told = ", ".join(f"{name} {now:+.0f}" for name, now in growth(lines).items())
        print(f"{lines[-1].handled} records, {len(lines)} looks: {told}; at the end {dict(lines[-1].taken)}")
    assert not [name for name, now in growth(tight).items() if now > MAY[name]]
    assert [name for name, now in growth(leaking).items() if now > MAY[name]] == list(MEASURES)
