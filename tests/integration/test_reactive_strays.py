"""A process finds claims whose replies it lost (RT8), and retries ends it cannot write (WK19)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.test_reactive_app import QUICK, follows, has_status, served, shop_of, until

from tidegate.model.instants import SECOND
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Body, Rule, command_error

RARELY: Final = PollingBounds(least=60 * SECOND, most=60 * SECOND, jitter=0)
"""So that no process claims it again meanwhile."""
LEASE_S: Final = 24
LATE_S, PATIENCE_S = 3.0, 2.0
"""It arrives after its sender gave up and looked for it."""


def is_claim(body: Body) -> bool:
    sets = (each["u"].get("$set", {}) for each in body["updates"] if isinstance(each["u"], Mapping))
    return any({"claimed_at", "owner"} <= each.keys() for each in sets)


def late() -> list[Rule]:
    first: list[float] = []

    def is_first(body: Body) -> bool:
        if is_claim(body):
            first.append(time.monotonic())
        return len(first) == 1

    def is_early(body: Body) -> bool:
        return is_claim(body) and time.monotonic() < first[0] + LATE_S + 0.5

    return [
        Rule("update", Action.DELAY_REQUEST, is_first, times=1, delay=timedelta(seconds=LATE_S)),
        Rule("update", Action.ANSWER, is_early, reply=command_error(112)),
    ]


def refused() -> list[Rule]:
    claims: list[Body] = []

    def has_claimed(body: Body) -> bool:
        if is_claim(body):
            claims.append(body)
        return bool(claims)

    def is_look(body: Body) -> bool:
        return bool(claims) and body["find"] == "orders_tasks" and "_id" in body["filter"]

    told = command_error(13)
    return [
        Rule("update", Action.CUT_REPLY, has_claimed, times=1),
        Rule("find", Action.ANSWER, is_look, times=1, reply=told),
    ]


@pytest.mark.parametrize("rules", [late, refused])
def test_what_a_process_was_not_told_of_is_handled_long_before_its_lease_ends(
    mongod: MongoServer,
    make_proxy: Callable[..., BlackPipe],
    database: str,
    rules: Callable[[], list[Rule]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipe, handled = make_proxy(), list[tuple[float, Change]]()

    async def main() -> float:
        async with shop_of("mongod", mongod.uri, database) as shop:
            settings: Any = {**QUICK, "database": database, "polling": RARELY}
            uri = f"{pipe.uri}&retryWrites=false&socketTimeoutMS={round(PATIENCE_S * 1_000)}"
            app = Reactive(uri, settings=ReactiveSettings(**settings))

            @app.task("orders", watch=["total"], debounce=timedelta(seconds=0.2), lease=timedelta(seconds=LEASE_S))
            async def invoice(change: Change) -> None:
                handled.append((time.monotonic(), change))

            async with served(app):
                await until(lambda: follows(app), "it follows")
                pipe.obey(*rules())
                began = time.monotonic()
                await shop.insert({"_id": 1, "total": 5})
                await until(lambda: handled, "it is handled")
                pipe.obey()
                return began

    with caplog.at_level(logging.WARNING):
        began = in_loop(main())
    ((at, change),) = handled
    assert at - began < LEASE_S / 2
    assert (change.attempt, change.token) == (1, 2)
    assert "gave back 1 of invoice, which nobody had said were claimed" in caplog.text


def is_end(body: Body) -> bool:
    return any("owner" in each["u"].get("$unset", {}) for each in body["updates"] if isinstance(each["u"], Mapping))


def test_an_end_that_is_refused_is_written_long_before_its_lease_ends(
    mongod: MongoServer, make_proxy: Callable[..., BlackPipe], database: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, handled = make_proxy(), list[Change]()

    async def main() -> float:
        async with shop_of("mongod", mongod.uri, database) as shop:
            settings: Any = {**QUICK, "database": database, "polling": RARELY}
            app = Reactive(f"{pipe.uri}&retryWrites=false", settings=ReactiveSettings(**settings))

            @app.task("orders", debounce=timedelta(0), lease=timedelta(seconds=LEASE_S))
            async def invoice(change: Change) -> None:
                handled.append(change)

            async with served(app):
                pipe.obey(Rule("update", Action.ANSWER, is_end, times=2, reply=command_error(13)))
                began = time.monotonic()
                await shop.insert({"_id": 1})
                await until(lambda: has_status(shop, "completed"), "its end is written")
                return time.monotonic() - began

    with caplog.at_level(logging.WARNING):
        took_s = in_loop(main())
    assert len(handled) == 1
    assert 2 <= took_s < LEASE_S / 2
    assert "nobody knows whether the ends of 1 runs of invoice are written: they are asked for again" in caplog.text
