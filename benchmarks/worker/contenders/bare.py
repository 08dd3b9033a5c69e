"""aiokafka by hand: a loop that commits in the background, one that awaits each commit, and a queue with a semaphore.

None of the three survives a failing handler; the last commits only what no unfinished record is before.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]  # it has no types
from tally import Handle, Tally, arguments, say

AT_ONCE = 1_000


async def loop(consumer: Any, handle: Handle, tally: Tally, *, awaits: bool) -> None:
    committing: asyncio.Task[None] | None = None
    while tally.done < tally.count:
        got = await consumer.getmany(timeout_ms=200, max_records=500)
        for records in got.values():
            for record in records:
                await handle(record)
        ends = {partition: records[-1].offset + 1 for partition, records in got.items()}
        if ends and awaits:
            await consumer.commit(ends)
        elif ends and (committing is None or committing.done()):
            committing = asyncio.create_task(consumer.commit(ends))


async def semaphore(consumer: Any, handle: Handle, tally: Tally) -> None:
    """A task a record, at most `AT_ONCE`; after each batch of the client, what is done without a gap is committed."""
    free, open_offsets = asyncio.Semaphore(AT_ONCE), dict[Any, set[int]]()
    ends, tasks = dict[Any, int](), set[asyncio.Task[None]]()
    committing: asyncio.Task[None] | None = None

    async def one(partition: object, record: Any) -> None:
        try:
            await handle(record)
        finally:
            free.release()
            open_offsets[partition].discard(record.offset)

    while tally.done < tally.count:
        got = await consumer.getmany(timeout_ms=200, max_records=500)
        for partition, records in got.items():
            for record in records:
                await free.acquire()
                open_offsets.setdefault(partition, set()).add(record.offset)
                ends[partition] = record.offset + 1
                task = asyncio.create_task(one(partition, record))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        if ends and (committing is None or committing.done()):
            safe = {partition: min(open_offsets[partition], default=end) for partition, end in ends.items()}
            committing = asyncio.create_task(consumer.commit(safe))


async def main() -> None:
    told = arguments()
    tally = Tally(told.count, told.seconds)
    handle = tally.handler(told.workload)
    consumer = AIOKafkaConsumer(
        told.topic,
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    if told.variant == "semaphore":
        running = asyncio.create_task(semaphore(consumer, handle, tally))
    else:
        running = asyncio.create_task(loop(consumer, handle, tally, awaits=told.variant == "awaited"))
    say(await tally.told())
    running.cancel()
    await consumer.stop()


asyncio.run(main())
