"""tidegate's worker, in its default rules or others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from prometheus_client import CollectorRegistry
from tally import Tally, arguments, say

from tidegate.consumer.consumer import ConsumerRules
from tidegate.consumer.partition import Ordering, PartitionRules
from tidegate_adapters.kafka import Worker

RULES = {
    "default": ConsumerRules(),
    "thousand": ConsumerRules(executors=1_000),
    "by_key": ConsumerRules(partition=PartitionRules(ordering=Ordering.BY_KEY)),
    "metrics": ConsumerRules(),
}


async def main() -> None:
    told = arguments()
    tally = Tally(told.count, told.seconds)
    worker = Worker(
        [told.topic],
        tally.handler(told.workload),
        bootstrap=told.bootstrap,
        group=told.group,
        consumer=RULES[told.variant],
        metrics=CollectorRegistry() if told.variant == "metrics" else None,
    )
    running = asyncio.create_task(worker.run())
    say(await tally.told())
    worker.stop()
    await running


asyncio.run(main())
