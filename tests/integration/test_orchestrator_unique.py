"""`Unique`: one waiting invocation answers further callers, on a real MongoDB and embedded."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any, Final

import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.test_orchestrator_app import STORES, Mail, office_of, served, until
from tests.integration.test_orchestrator_triggers import TURNS

from tidegate.model.errors import Misuse
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo.clients import close_shared
from tidegate_adapters.orchestrator import ArgumentsDiffer, Orchestrator, Unique, on_event

DAY: Final = timedelta(days=1)


@pytest.mark.parametrize("store", STORES)
def test_whoever_enqueues_what_waits_already_is_answered_by_it(mongodb: str, database: str, store: str) -> None:
    calls: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(inline_bytes=1024)

            @app.task(unique=Unique())
            async def index(page: str) -> str:
                calls.append(page)
                return page[:1]

            handles = await asyncio.gather(*(index.enqueue("a") for _ in range(10)))
            assert Counter(each.is_new for each in handles) == {True: 1, False: 9}
            assert len({each.id for each in handles}) == 1
            large = "b" * 5_000
            a, b, again = await index.enqueue_many([("a",), (large,), (large,)], delay=timedelta(milliseconds=1))
            assert (a.id, a.is_new, b.is_new, again.is_new, again.id) == (handles[0].id, False, True, False, b.id)
            async with served(app):
                assert [await each.result() for each in (*handles, again)] == ["a"] * 10 + ["b"]
                assert (await index.enqueue("a", delay=DAY)).is_new
                assert not (await index.enqueue("a")).is_new

    in_loop(run())
    assert calls == ["a", "b" * 5_000]


@pytest.mark.parametrize("store", STORES)
def test_what_is_answered_by_another_says_in_what_it_differs(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task(unique=Unique.per(lambda mail: mail.to))
            async def send(mail: Mail, copies: int = 1) -> None:
                del mail, copies

            @app.task(unique=Unique.per_task(must_agree=True))
            async def backup(place: str) -> str:
                return place

            first = await send.enqueue(Mail("ada"), 2)
            other = await send.enqueue(Mail("ada"), 3)
            assert (other.id, other.is_new, other.differing) == (first.id, False, ("copies",))
            assert (await send.enqueue(Mail("bob"), 3)).is_new
            waiting = await backup.enqueue("here")
            assert (await backup.enqueue("here")).id == waiting.id
            with pytest.raises(ArgumentsDiffer, match=f"'{waiting.id}' is registered") as caught:
                _ = await backup.enqueue("there")
            assert caught.value.differing == ("place",)
            assert "there" not in str(caught.value)
            assert await waiting.cancel()
            assert (await backup.enqueue("there")).is_new
            assert not [each for each in await office.records("orchestrator_calls") if "ada" in str(each["values"])]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_a_trigger_is_answered_by_what_waits_already(mongodb: str, database: str, store: str) -> None:
    seen: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task(
                unique=Unique.per(lambda mail: mail.to),
                triggers=[
                    on_event("ada").calls_with(mail={"to": "ada"}),
                    on_event("bob").calls_with(mail={"to": "bob"}),
                ],
            )
            async def send(mail: Mail) -> None:
                seen.append(mail.to)

            _ = await send.enqueue(Mail("ada"), delay=DAY)
            async with served(app):
                await app.emit("ada")
                await app.emit("bob")
                await until(lambda: seen, "it starts what nobody waits with")

                async def settled() -> bool:
                    return [each["state"] for each in await office.records("orchestrator_runs")] == ["fired"] * 2

                await until(settled, "both runs of triggers are answered")
            assert len([each for each in await office.records() if each["task"] == "send"]) == 2

    in_loop(run())
    assert seen == ["bob"]


def test_code_that_is_not_async_is_answered_too(mongodb: str, database: str) -> None:
    app = Orchestrator(mongodb, database)

    @app.task(unique=Unique())
    def index(page: str) -> None:
        del page

    first = index.enqueue_sync("a", delay=DAY)
    again = index.enqueue_sync("a")
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    assert index.enqueue_sync("b").is_new
    close_shared()


def test_what_cannot_be_unique_is_said_at_once() -> None:
    """A transaction hides other waiting invocations; an id of the caller's is not the answer's."""
    app = Orchestrator(Embedded(), "jobs")

    async def index(page: str) -> None:
        del page

    task: Any = app.task(unique=Unique())(index)
    with pytest.raises(Misuse, match="write Unique"):
        _ = app.task(name="x", unique=True)(index)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="the key of its unique wants mail"):
        _ = app.task(name="x", unique=Unique.per(lambda mail: mail))(index)
    with pytest.raises(Misuse, match="key must be callable, got str"):
        _ = Unique.per("page")  # type: ignore[arg-type]

    async def run() -> None:
        with pytest.raises(
            Misuse, match=r"(?s)session= for index.* leave session= out, or unique= of the task and use key="
        ):
            _ = await task.enqueue("a", session=object())
        with pytest.raises(Misuse, match="key= for index"):
            _ = await task.enqueue("a", key="one")
        with pytest.raises(Misuse, match="key= for index"):
            _ = await task.enqueue_many([("a",)], keys=["one"])
        await app.close()

    asyncio.run(run())
