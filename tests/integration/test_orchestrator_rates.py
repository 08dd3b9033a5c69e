"""Rate limits over all processes, on a real MongoDB and on the embedded store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.test_orchestrator_app import STORES, office_of, served

from tidegate.model.errors import Misuse
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import InvocationCancelled, MaxRunning, Orchestrator, Rate


@pytest.mark.parametrize("store", STORES)
def test_no_more_begin_in_a_time_than_may_and_all_do(mongodb: str, database: str, store: str) -> None:
    """Ten at once, then one every 20 ms; a faster app costs the other a request."""
    began: list[float] = []
    began_s = time.monotonic()

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            apps = [office.app() for _ in range(2)]
            tasks = []
            for app in apps:

                @app.task(rate=Rate(50, per=timedelta(seconds=1), burst=10))
                async def send(number: int) -> int:
                    began.append(time.monotonic())
                    return number

                tasks.append(send)
            handles = await tasks[0].enqueue_many([(number,) for number in range(60)])
            async with served(apps[0]), served(apps[1]):
                assert [await each.result() for each in handles] == [*range(60)]
            (meter,) = await office.records("orchestrator_meters")
            assert 60 <= meter["admitted"] <= 120
            records = await office.records()
            assert {each["status"] for each in records} == {"success"}

    in_loop(run())
    assert 0.95 <= max(began) - began_s < 10.0  # law GC1: fifty behind the burst


@pytest.mark.parametrize("store", STORES)
def test_keys_have_rates_of_their_own_and_who_has_a_place_gives_it_back(
    mongodb: str, database: str, store: str
) -> None:
    began: list[tuple[str, float]] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task(
                rate=Rate(5, per=timedelta(seconds=1), burst=1, key=lambda to: to),
                max_running=MaxRunning.per(lambda to: to),
            )
            async def send(to: str) -> None:
                began.append((to, time.monotonic()))

            handles = await send.enqueue_many([(to,) for to in "aaabbb"])
            async with served(app):
                for each in handles:
                    await each.result()
            assert len(await office.records("orchestrator_meters")) == 2

    in_loop(run())
    assert Counter(to for to, _ in began) == {"a": 3, "b": 3}
    for to in "ab":
        times = sorted(at for whose, at in began if whose == to)
        assert times[2] - times[0] > 0.3


@pytest.mark.parametrize("store", STORES)
def test_who_finds_no_place_ends_where_it_is_not_to_wait(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task(max_running=MaxRunning(waits=False))
            async def sweep() -> str:
                await asyncio.sleep(0.2)
                return "swept"

            handles = await sweep.enqueue_many([()] * 3)
            async with served(app):
                told = await asyncio.gather(*(each.result() for each in handles), return_exceptions=True)
            assert [type(each) for each in told if each != "swept"] == [InvocationCancelled] * 2
            assert told.count("swept") == 1

    in_loop(run())


RATES: dict[str, Callable[[], Any]] = {
    "none": lambda: Rate(0, per=timedelta(seconds=1)),
    "no time": lambda: Rate(1, per=timedelta(0)),
    "too many at once": lambda: Rate(1, per=timedelta(seconds=1), burst=2),
    "no key": lambda: Rate(1, per=timedelta(seconds=1), key="to"),  # type: ignore[arg-type]
    "no such parameter": lambda: declared_with(Rate(1, per=timedelta(seconds=1), key=lambda whom: whom)),
    "no rate": lambda: declared_with("10/s"),
}


def declared_with(rate: Any) -> None:
    @Orchestrator(Embedded(), database="x").task(rate=rate)
    async def send(to: str) -> None:
        del to


@pytest.mark.parametrize("name", RATES)
def test_what_is_no_rate_is_refused(name: str) -> None:
    with pytest.raises(Misuse):
        RATES[name]()
