"""A member of a group under a storm: `storm_member.py BOOTSTRAP TOPIC GROUP NAME LOG`.

It writes one fact a line into LOG, each with one system call, so that a kill loses no fact.
Instants are in ns of the machine's monotonic clock:

    assigned P COMMITTED GENERATION   delivered P OFFSET...    began P OFFSET INSTANT
    ended P OFFSET INSTANT            left P OFFSET INSTANT, undone
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Mapping

from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import Assigned, Event, Fetched
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.instants import SECOND
from tidegate.model.records import Record
from tidegate_adapters.kafka.client import Client, client, generation_of
from tidegate_adapters.kafka.worker import Worker

RULES = ConsumerRules(executors=64, partition=PartitionRules(drain=Budget(4 * SECOND, SECOND, SECOND)))


async def main() -> None:
    bootstrap, topic, group, name, path = sys.argv[1:]
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # from here on it can be stopped
    pauses = random.Random(name)

    def write(*facts: object) -> None:
        os.write(log, (" ".join(map(str, facts)) + "\n").encode())

    async def handle(record: Record) -> None:
        write("began", record.partition, record.offset, time.monotonic_ns())
        how = "left"
        try:
            await asyncio.sleep(pauses.expovariate(1 / 0.01))
            how = "ended"
        finally:
            write(how, record.partition, record.offset, time.monotonic_ns())

    def observe(event: Event, _: ConsumerState) -> None:
        match event:
            case Assigned(partition, _, committed):
                write("assigned", partition.partition, committed, generation_of(clients[0]))
            case Fetched(partition, _, offsets):
                write("delivered", partition.partition, *offsets)
            case _:
                pass

    clients: list[Client] = []

    def connect(bootstrap: str, group: str, options: Mapping[str, object]) -> Client:
        clients.append(client(bootstrap, group, options))
        return clients[0]

    worker = Worker(
        [topic], handle, bootstrap=bootstrap, group=group, concurrency=RULES.executors, consumer=RULES, observe=observe,
        session_timeout_ms=2_000, heartbeat_interval_ms=300, rebalance_timeout_ms=6_000,
    )  # fmt: skip
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    if not ends.is_set():
        await worker.run(connect)


if __name__ == "__main__":
    asyncio.run(main())
