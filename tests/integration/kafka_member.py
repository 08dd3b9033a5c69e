"""A member of a group in its own process: `kafka_member.py BOOTSTRAP TOPIC GROUP NAME LOG`.

It writes one fact a line into LOG, each with one system call, so that a kill loses no fact:

    assigned P GENERATION COMMITTED      delivered P OFFSET...      processed P OFFSET      closed
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

from tidegate.consumer.flow.backpressure import Thresholds
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import Assigned, Event, Fetched
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.instants import SECOND
from tidegate.model.records import Record
from tidegate_adapters.kafka.worker import Worker

RULES = ConsumerRules(
    executors=16,
    thresholds=Thresholds(high=400, low=100),
    partition=PartitionRules(drain=Budget(5 * SECOND, SECOND, SECOND)),
)


async def main() -> None:
    bootstrap, topic, group, name, path = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stalls = random.Random(name)

    def write(*facts: object) -> None:
        os.write(log, (" ".join(map(str, facts)) + "\n").encode())

    async def handle(record: Record) -> None:
        await asyncio.sleep(stalls.expovariate(1 / 0.012))
        write("processed", record.partition, record.offset)

    def observe(event: Event, state: ConsumerState) -> None:
        match event:
            case Assigned(partition, generation, committed):
                write("assigned", partition.partition, generation, committed)
            case Fetched(partition, _, offsets):
                write("delivered", partition.partition, *offsets)
            case _:
                pass
        if state.verdict.changed and state.verdict.gate.value == "closed":
            write("closed")

    worker = Worker(
        [topic], handle, bootstrap=bootstrap, group=group, concurrency=RULES.executors, consumer=RULES, observe=observe,
        session_timeout_ms=2_000, heartbeat_interval_ms=300, rebalance_timeout_ms=10_000, max_poll_records=250,
    )  # fmt: skip
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
