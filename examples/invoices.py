"""Keep an invoice for each order that is paid: reactive tasks, on your own MongoDB.

    TIDEGATE_MONGODB_URI=mongodb://host:port/?replicaSet=rs python examples/invoices.py        # in DATABASE, if that is set
    TIDEGATE_MONGODB_URI=... tidegate reactive run examples/invoices.py:app        # goes on until Ctrl-C

A handler may be called again for what it has done, after a crash. So each invoice has the id of its order, and the token of the
run that wrote it: a run that stood still, and was taken over, overwrites nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import DuplicateKeyError

from tidegate.model.errors import TidegateError
from tidegate_adapters.reactive import Change, Reactive

URI = os.environ.get("TIDEGATE_MONGODB_URI")
if not URI:
    print("set TIDEGATE_MONGODB_URI to your replica set", file=sys.stderr)
    sys.exit(2)
ORDERS = 20
RIGHT = {"$expr": {"$eq": ["$total", {"$multiply": [3, "$_id"]}]}}
client = AsyncMongoClient[dict[str, Any]](URI)
app = Reactive(client, database=os.environ.get("DATABASE", "tidegate-invoices"))
database = client[app.settings.database]
runs = 0


@app.task(
    collection="orders", watch=["total"], where={"status": "paid"},
    debounce=timedelta(milliseconds=200), backoff=timedelta(milliseconds=100),
)  # fmt: skip
async def invoice(change: Change) -> None:
    """Write it, unless a later run has."""
    global runs  # noqa: PLW0603  it is an example
    runs += 1
    if change.id == 7 and change.attempt == 1:
        raise ConnectionError("the printer does not answer")  # it is tried again
    newer = {"_id": change.id, "token": {"$lt": change.token}}
    try:
        await database.invoices.update_one(newer, {"$set": {**change.values, "token": change.token}}, upsert=True)
    except DuplicateKeyError:
        print(f"the invoice of {change.id} is newer")


async def main() -> None:
    """Change each order in a burst, and say what has become of it."""
    serving = asyncio.create_task(app.serve())
    for total in (1, 2, 3):
        for order in range(ORDERS):
            said = {"status": "paid", "total": order * total}
            await database.orders.update_one({"_id": order}, {"$set": said}, upsert=True)
    await database.orders.insert_one({"status": "open", "total": 1})
    while await database.invoices.count_documents(RIGHT) < ORDERS:
        await asyncio.wait([serving], timeout=0.1)
        if serving.done():
            break
    app.stop()
    await serving
    written, right = [await database.invoices.count_documents(which) for which in ({}, RIGHT)]
    await client.close()
    print(f"{written} invoices, {right} of them right, of {3 * ORDERS} changes in {runs} runs")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TidegateError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
