"""pyrallel-consumer without an order, a thousand records at once, which is its default."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer
from pyrallel_consumer.dto import ExecutionMode, OrderingMode
from tally import Tally, arguments, say


async def main() -> None:
    logging.disable(logging.WARNING)
    told = arguments()
    tally = Tally(told.count, told.seconds)
    config = KafkaConfig()
    config.BOOTSTRAP_SERVERS = [told.bootstrap]
    config.CONSUMER_GROUP = told.group
    config.parallel_consumer.ordering_mode = OrderingMode.UNORDERED
    config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
    consumer = PyrallelConsumer(config=config, worker=tally.handler(told.workload), topic=told.topic)
    await consumer.start()
    say(await tally.told())
    os._exit(0)  # its stop waits for minutes where records are in flight


asyncio.run(main())
