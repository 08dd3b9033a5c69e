"""tidegate's worker, in its default rules or others.

windows    handlers get up to 100 records at a time
retries    one of a hundred records fails once, and is tried again
stuck      the handler of the first record of a partition does not end, and nothing holds that partition for it
recorded   a recording is written
sends      handlers answer with a record each, to the topic of the same name with "-answers" behind it
health     metrics and health are served at the port STATUS_PORT
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from prometheus_client import CollectorRegistry
from tally import Handle, Tally, arguments, say

from tidegate.consumer.flow.backpressure import PartitionLimits
from tidegate.consumer.partition.partition import Ordering, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate_adapters.kafka.worker import Send, Worker
from tidegate_adapters.observe.recorder import Recorder

RULES = {
    "by_key": ConsumerRules(partition=PartitionRules(ordering=Ordering.BY_KEY)),
    "stuck": ConsumerRules(partition=PartitionRules(limits=PartitionLimits(span=None, metadata=None))),
}


def of_batches(handle: Handle) -> Handle:
    async def handle_all(records: list[Any]) -> None:
        for each in records:
            await handle(each)

    return handle_all


def failing(handle: Handle) -> Handle:
    tried: set[tuple[int, int]] = set()

    async def handle_or_fail(record: Any) -> None:
        place = (record.partition, record.offset)
        if record.offset % 100 == 0 and place not in tried:
            tried.add(place)
            raise ValueError(place)
        await handle(record)

    return handle_or_fail


def stuck(handle: Handle) -> Handle:
    async def handle_or_hang(record: Any) -> None:
        if (record.partition, record.offset) == (0, 0):
            await asyncio.Event().wait()
        await handle(record)

    return handle_or_hang


def answering(handle: Handle) -> Handle:
    async def handle_and_answer(record: Any) -> Send:
        await handle(record)
        return Send(f"{record.topic}-answers", record.value, record.key)

    return handle_and_answer


CHANGED = {"sends": answering, "windows": of_batches, "retries": failing, "stuck": stuck}


async def main() -> None:
    told = arguments()
    tally = Tally(told.count - (told.variant == "stuck"), told.seconds)
    handle = CHANGED.get(told.variant, lambda same: same)(tally.handler(told.workload))
    with (
        TemporaryDirectory() as folder,
        Recorder(Path(folder) / "recording.jsonl", "bench", kind="reducer") as recorder,
    ):
        registry = CollectorRegistry() if told.variant in ("metrics", "stuck") else None
        worker = Worker(
            [told.topic],
            handle,
            bootstrap=told.bootstrap,
            group=told.group,
            concurrency=1_000 if told.variant == "thousand" else 100,
            consumer=RULES.get(told.variant, ConsumerRules()),
            metrics=registry,
            metrics_port=int(os.environ["STATUS_PORT"]) if told.variant == "health" else None,
            batch=100 if told.variant == "windows" else None,
            retries=1 if told.variant == "retries" else None,
            backoff=timedelta(milliseconds=10) if told.variant == "retries" else None,
            record=recorder.stepped if told.variant == "recorded" else None,
        )
        running = asyncio.create_task(worker.run())
        began = time.monotonic()
        said = await tally.told()
        if told.variant == "stuck" and registry is not None:
            made = sum(
                each.value for one in registry.collect() for each in one.samples if each.name.endswith("_commits_total")
            )
            said["commits"] = made / (time.monotonic() - began)
        say(said)
        worker.stop()
        if told.variant == "stuck":
            worker.stop()
        await running


asyncio.run(main())
