"""A worker that prints its resource use: `python -m tests.integration.soak_member BOOTSTRAP TOPIC
EVERY_S LEAK...`.

Records fail at times, are retried, answered with others and dead-lettered, in the event loop and in
threads, by key. Each line has the records handled, the `MEASURES` after a collection, and the live
objects of tidegate by class. Each LEAK is planted in a handler; `kept` leaks one object a
rebalance.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from tests.integration.leftovers import kept

from tidegate.consumer.partition.partition import Ordering, PartitionRules
from tidegate.consumer.protocol.commands import Assigned, Event
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.instants import SECOND
from tidegate.model.records import Record
from tidegate.retries.backoff import Fixed
from tidegate_adapters.kafka.worker import Later, OnFailure, Send, Worker

MEASURES: Final = ("bytes", "blocks", "descriptors", "tasks", "threads")
KEPT: Final = "kept"
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
EVERY: Final = 10
"""How many records leak one descriptor, task and thread."""


def measured() -> tuple[int, ...]:
    _ = gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return (
        pages * PAGE, sys.getallocatedblocks(), descriptors, len(asyncio.all_tasks()), threading.active_count(),
    )  # fmt: skip


class Handler:
    def __init__(self, topic: str, leaks: frozenset[str]) -> None:
        self.topic, self.leaks = topic, leaks
        self.count = self.generation = 0
        self.kept: list[object] = []
        self.is_over = threading.Event()
        self._failed: set[tuple[int, int]] = set()

    async def __call__(self, record: Record) -> Send | None:
        if "tasks" in self.leaks and self.count % EVERY == 0:
            self.kept.append(asyncio.create_task(asyncio.Event().wait()))
        return self.handle(record)

    def observe(self, event: Event, _: ConsumerState) -> None:
        if KEPT in self.leaks and isinstance(event, Assigned) and event.generation != self.generation:
            self.generation = event.generation
            self.kept.append(event)

    def handle(self, record: Record) -> Send | None:
        self.count += 1
        if "blocks" in self.leaks or "bytes" in self.leaks:
            self.kept.append([bytearray(1_000) for _ in range(8)])
        if self.count % EVERY == 0 and "descriptors" in self.leaks:
            self.kept.append(os.open(os.devnull, os.O_RDONLY))
        if self.count % EVERY == 0 and "threads" in self.leaks:
            threading.Thread(target=self.is_over.wait, daemon=True).start()
        place, number = (record.partition, record.offset), record.offset
        if number % 101 == 0 and place not in self._failed:
            self._failed.add(place)
            raise ValueError("once") if number % 2 else Later(timedelta(milliseconds=10))
        self._failed.discard(place)
        if number % 503 == 0:
            raise ValueError("always")
        return Send(f"{self.topic}.out", b"x") if number % 50 == 0 else None


async def main() -> None:
    bootstrap, topic, every_s, *leaks = sys.argv[1:]
    handler = Handler(topic, frozenset(leaks))
    partition = PartitionRules(ordering=Ordering.BY_KEY)
    worker = Worker(
        {f"{topic}.a": handler, f"{topic}.b": handler.handle}, bootstrap=bootstrap, group=f"group-{topic}",
        concurrency=16, consumer=ConsumerRules(partition=partition), metrics=CollectorRegistry(), retries=1, backoff=Fixed(SECOND // 100),
        on_failure=OnFailure.DEAD_LETTER, dead_letter=f"{topic}.out", observe=handler.observe, heartbeat_interval_ms=500,
    )  # fmt: skip
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)

    async def watch() -> None:
        while True:
            print(handler.count, *measured(), json.dumps(kept(), separators=(",", ":")), flush=True)
            await asyncio.sleep(float(every_s))

    watching = asyncio.create_task(watch())
    await worker.run()
    watching.cancel()
    handler.is_over.set()
    for each in handler.kept:
        if isinstance(each, asyncio.Task):
            each.cancel()


if __name__ == "__main__":
    asyncio.run(main())
