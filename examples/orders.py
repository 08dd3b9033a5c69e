"""Confirm each order once: tasks that are enqueued in the transaction of the order, on your own MongoDB.

    TIDEGATE_MONGODB_URI=mongodb://host:port/?replicaSet=rs python examples/orders.py        # in DATABASE, if that is set

An order that is rolled back is confirmed by nobody. A handler may be called again for what it has done, after a crash, so each
confirmation has the id of its order.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession

from tidegate.model.errors import TidegateError
from tidegate_adapters.orchestrator import MaxRunning, Orchestrator

URI = os.environ.get("TIDEGATE_MONGODB_URI")
if not URI:
    print("set TIDEGATE_MONGODB_URI to your replica set", file=sys.stderr)
    sys.exit(2)
ORDERS = 20
PATIENCE = timedelta(minutes=1)
client = AsyncMongoClient[dict[str, Any]](URI)
app = Orchestrator(client, database=os.environ.get("DATABASE", "tidegate-orders"))
database = client[app.settings.database]
calls: Counter[int] = Counter()


@app.task(retries=3, backoff=timedelta(milliseconds=100), max_running=MaxRunning.per(lambda customer: customer))
async def confirm(order: int, customer: str) -> str:
    """Of a customer one at a time."""
    calls[order] += 1
    if order == 8 and calls[order] == 1:
        raise ConnectionError("the printer does not answer")  # it is tried again
    await database.confirmations.update_one({"_id": order}, {"$set": {"customer": customer}}, upsert=True)
    return f"{customer}: {order}"


@app.task()
async def confirm_all(orders: list[int]) -> int:
    """Wait for all of them, without a place among those that run."""
    handles = [await confirm.enqueue(order, _customer(order), key=f"order-{order}") for order in orders]
    return len({await handle.result() for handle in handles})


def _customer(order: int) -> str:
    return f"customer {order % 5}"


class OutOfStock(Exception):  # noqa: N818
    """The order is rolled back."""


async def place(order: int, session: AsyncClientSession) -> None:
    """An order, and what follows from it: both or none."""
    await database.orders.insert_one({"_id": order}, session=session)
    _ = await confirm.enqueue(order, _customer(order), key=f"order-{order}", session=session)
    if order % 2:
        raise OutOfStock


async def main() -> None:
    """Place orders, of which every other one is rolled back, and say what has become of them."""
    serving = asyncio.create_task(app.serve())
    try:
        async with client.start_session() as session:
            for order in range(2 * ORDERS):
                with suppress(OutOfStock):
                    await session.with_transaction(partial(place, order))
        placed = [each["_id"] async for each in database.orders.find()]
        confirmed = await (await confirm_all.enqueue(placed)).result(PATIENCE)
        written = {each["_id"] async for each in database.confirmations.find()}
    finally:
        app.stop()
        await serving
        await client.close()
    again = sum(calls.values()) - len(calls)
    print(
        f"{confirmed} of {len(placed)} orders confirmed, {len(written - {*placed})} that are none, {again} tried again"
    )


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TidegateError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
