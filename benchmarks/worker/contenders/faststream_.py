"""FastStream as it comes and without its logger, and with the middleware that makes it concurrent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream_concurrent_aiokafka import KafkaConcurrentProcessingMiddleware, initialize_concurrent_processing
from tally import Tally, arguments, say


async def main() -> None:
    told = arguments()
    tally = Tally(told.count, told.seconds)
    handle = tally.handler(told.workload)
    concurrent = told.variant == "concurrent"
    broker = KafkaBroker(told.bootstrap) if told.variant == "as_it_comes" else KafkaBroker(told.bootstrap, logger=None)
    policy = {"ack_policy": AckPolicy.MANUAL} if concurrent else {}
    if concurrent:
        broker.add_middleware(KafkaConcurrentProcessingMiddleware)
        await initialize_concurrent_processing(
            context=broker.context, concurrency_limit=1_000, commit_batch_size=1_000
        )  # by default it commits each ten

    @broker.subscriber(told.topic, group_id=told.group, auto_offset_reset="earliest", **policy)
    async def handled(message: bytes) -> None:
        await handle(message)

    running = asyncio.create_task(FastStream(broker, logger=None).run())
    say(await tally.told())
    running.cancel()
    await asyncio.wait([running], timeout=20)


asyncio.run(main())
