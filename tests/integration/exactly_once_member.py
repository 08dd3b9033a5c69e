"""Answers each record exactly once: `exactly_once_member.py BOOTSTRAP TOPIC OUT NAME`."""

from __future__ import annotations

import asyncio
import random
import signal
import sys

from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, Send
from tidegate_adapters.kafka.worker import Worker


async def main() -> None:
    bootstrap, topic, out, name = sys.argv[1:]
    stalls = random.Random(name)

    async def handle(record: Record) -> Send:
        await asyncio.sleep(stalls.expovariate(1 / 0.02))
        return Send(out, record.value, key=b"%d" % record.partition)

    worker = Worker(
        [topic], handle, bootstrap=bootstrap, group=f"group-{topic}", exactly_once=True,
        concurrency=16, consumer=ConsumerRules(partition=PartitionRules(drain=Budget(5 * SECOND, SECOND, SECOND))),
        session_timeout_ms=2_000, heartbeat_interval_ms=300, rebalance_timeout_ms=10_000, max_poll_records=100,
    )  # fmt: skip
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
