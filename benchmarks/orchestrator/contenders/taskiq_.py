"""taskiq-mongodb: messages are claimed as its workers claim them, by `MongoBroker.listen`, and not acknowledged.

python taskiq_.py enqueue|takes|stale URI DATABASE SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time

from pymongo.monitoring import register
from tally import Counted, say, window
from taskiq import BrokerMessage
from taskiq_mongodb import MongoBroker

MESSAGES = 10
TIMEOUT_S = 0.2


def message(number: int) -> BrokerMessage:
    return BrokerMessage(task_id=f"m{number}", task_name="work", message=b'{"at": 0}', labels={})


async def enqueue(uri: str, database: str, _: float) -> None:
    """One, and the indexes."""
    broker = MongoBroker(uri, database)
    await broker.startup()
    await broker.kick(message(0))
    await broker.shutdown()


async def takes(uri: str, database: str, seconds: float) -> None:
    counted, taken = Counted(), 0
    register(counted)
    broker = MongoBroker(uri, database)
    await broker.startup()
    counted.number = 0
    until, messages = window(seconds), broker.listen()
    async for _ in messages:
        taken += 1
        if time.monotonic() >= until:
            break
    say(taken, counted.number)
    await messages.aclose()
    await broker.shutdown()


async def stale(uri: str, database: str, _: float) -> None:
    """A holder stands still beyond the time-out, another one takes its message, and the first one acknowledges.

    The second holder then dies, and whoever looks finds nothing: says how many of the messages are left, of how many.
    """
    broker = MongoBroker(uri, database, queues={"name": "taskiq", "visibility_timeout": TIMEOUT_S, "max_retries": 100})
    await broker.startup()
    await broker.collection.delete_many({})
    for number in range(MESSAGES):
        await broker.kick(message(number))
    first = broker.listen()
    held = [await anext(first) for _ in range(MESSAGES)]
    await first.aclose()
    await asyncio.sleep(2 * TIMEOUT_S)
    second = broker.listen()
    again = [await anext(second) for _ in range(MESSAGES)]
    await second.aclose()  # it dies, and never acknowledges
    for each in held:
        await each.ack()
    await asyncio.sleep(2 * TIMEOUT_S)
    say(await broker.collection.count_documents({}), len(again))
    await broker.shutdown()


asyncio.run({"enqueue": enqueue, "takes": takes, "stale": stale}[sys.argv[1]](*sys.argv[2:4], float(sys.argv[4])))
