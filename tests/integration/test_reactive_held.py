"""Handlers that complete their runs in transactions, on a real MongoDB.

An open transaction blocks its own record alone. After a kill the server ends it in 60 to 90 s.
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from asyncio.subprocess import PIPE
from datetime import timedelta
from signal import SIGKILL
from typing import Any, Final
from uuid import UUID

import pytest
from bson import Binary
from pymongo.asynchronous.client_session import AsyncClientSession
from tests.integration.mongo_loop import in_loop
from tests.integration.test_reactive_app import AT_ONCE, Shop, has_status, served, shop_of, until

from tidegate_adapters.reactive import Change, Later

LEASE: Final = timedelta(seconds=1)
DIES: Final = """
    import asyncio, sys
    from datetime import timedelta
    from pymongo import AsyncMongoClient
    from tidegate_adapters.reactive import Reactive

    async def main(uri, database):
        client = AsyncMongoClient(uri)
        app = Reactive(client, database=database)

        @app.task(collection="orders", watch=["n"], debounce=timedelta(0), lease=timedelta(seconds=1), name="invoice")
        async def invoice(change):
            async with client.start_session() as session, await session.start_transaction():
                await change.complete(session)
                print(session.session_id["id"].hex(), flush=True)
                await asyncio.sleep(60)

        await app.serve()

    asyncio.run(main(*sys.argv[1:]))
"""
LATE_S: Final = 3.0
"""A blocking wait at the server would delay all for a minute."""


async def killed_while_it_completes(shop: Shop, uri: str) -> UUID:
    code = textwrap.dedent(DIES)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, uri, shop.name, stdout=PIPE)
    assert process.stdout is not None
    await shop.insert({"_id": "held", "n": 0})
    session = UUID((await process.stdout.readline()).decode().strip())
    process.kill()
    assert await process.wait() == -SIGKILL
    return session


def test_a_process_that_dies_in_its_transaction_holds_up_its_document_alone(mongodb: str, database: str) -> None:
    seen: dict[tuple[Any, int], float] = {}
    is_dead = False

    async def invoice(change: Change) -> None:
        if not is_dead:
            raise Later(timedelta(milliseconds=50))  # it leads, and leaves the document to the process that dies
        seen[change.id, change.values["n"]] = time.monotonic()

    async def run() -> None:
        nonlocal is_dead
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app()
            _ = app.task("orders", watch=["n"], debounce=AT_ONCE, lease=LEASE, name="invoice")(invoice)
            async with served(app):
                session = await killed_while_it_completes(shop, mongodb)
                is_dead = True
                await shop.put("held", "n", 1)
                written: dict[tuple[Any, int], float] = {}
                for number in range(12):
                    written[f"d{number}", 1] = time.monotonic()
                    await shop.insert({"_id": f"d{number}", "n": 1})
                    await asyncio.sleep(0.25)
                await until(lambda: written.keys() <= seen.keys(), "the others are handled")
                late = max(seen[each] - at for each, at in written.items())
                assert late < LATE_S
                assert ("held", 1) not in seen
                assert shop.client is not None
                _ = await shop.client.admin.command("killSessions", [{"id": Binary.from_uuid(session)}])
                await until(lambda: ("held", 1) in seen, "the run that was held")

    in_loop(run())


@pytest.mark.parametrize("others", [0, 3])
def test_a_transaction_that_is_open_for_longer_than_the_lease_keeps_it(
    mongodb: str, database: str, others: int
) -> None:
    """A renewal waits for its own handler's transaction, without loss and apart from others."""
    calls: list[Any] = []

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:

            async def invoice(change: Change) -> None:
                calls.append(change.id)
                if change.id != "long":
                    await asyncio.sleep(2)
                    return

                async def inside(session: AsyncClientSession) -> None:
                    await change.complete(session)
                    await asyncio.sleep(2)

                assert shop.client is not None
                async with shop.client.start_session() as session:
                    await session.with_transaction(inside)

            apps = [shop.app(), shop.app()]
            for app in apps:
                _ = app.task("orders", debounce=AT_ONCE, lease=LEASE)(invoice)
            async with served(apps[0]), served(apps[1], leads=False):
                await shop.insert({"_id": "long"}, *({"_id": number} for number in range(others)))
                await until(lambda: has_status(shop, "completed", 1 + others), "all is done")

    in_loop(run())
    assert sorted(map(str, calls)) == [*map(str, range(others)), "long"]
