"""Queries and admin commands of an application succeed although one request fails. Each test
repeats a query while its first request fails, then its second, and so on, until no request fails.
On MongoDB the failure is code 246 (a new collection has no snapshot yet), which no driver retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from itertools import count
from typing import Any, Final, Protocol, TypeVar, final
from uuid import uuid4

import pytest

from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.model.effects import Ambiguous, Failure
from tidegate.reactive.record.record_queries import Order, Query
from tidegate.reactive.record.tasks import Claim
from tidegate.reactive.task.fetching import Run
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.orchestrator.page import Page
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Body, Rule, command_error

T = TypeVar("T")
NO_SNAPSHOT: Final = 246
NEVER: Final = 10**9
READS: Final = ("find", "aggregate")
STORES: Final = ("mongod", "embedded")
NOTHING: Final[Any] = None


class Striking(Protocol):
    @property
    def store(self) -> Any: ...

    def strike(self, nth: int) -> None: ...

    @property
    def is_struck(self) -> bool: ...


def is_read(body: Body) -> bool:
    return next(iter(body)) in READS


@final
class Piped:
    def __init__(self, pipe: BlackPipe) -> None:
        self._pipe, self.store, self._before = pipe, pipe.uri, 0

    def strike(self, nth: int) -> None:
        self._before = self._struck()
        error = command_error(NO_SNAPSHOT)
        self._pipe.obey(Rule(None, Action.ANSWER, is_read, skip=nth - 1, times=1, reply=error))

    def _struck(self) -> int:
        return sum(self._pipe.count(each, Action.ANSWER) for each in READS)

    @property
    def is_struck(self) -> bool:
        return self._struck() > self._before


@final
class Within:
    def __init__(self) -> None:
        self._embedded, self._left, self.is_struck = Embedded(), 0, False

    @property
    def store(self) -> Within:
        return self

    def strike(self, nth: int) -> None:
        self._left, self.is_struck = nth, False

    async def awaited(self, effect: Any) -> object:
        self._left -= 1
        if not self._left:
            self.is_struck = True
            raise Ambiguous("no snapshot yet")
        return await self._embedded.awaited(effect)


@pytest.fixture
def striking(request: pytest.FixtureRequest) -> Striking:
    return Within() if request.param == "embedded" else Piped(request.getfixturevalue("make_proxy")())


async def unanswered(striking: Striking, of: T, questions: Mapping[str, Callable[[T], Awaitable[object]]]) -> list[str]:
    found = list[str]()
    for name, ask in questions.items():
        assert await ask(of) is not None, name
        for nth in count(1):
            striking.strike(nth)
            try:
                await ask(of)
            except Failure as failure:
                found.append(f"{name}, {nth}: {failure}")
            if not striking.is_struck:
                assert nth > 1 or name == "now", name  # `now` sends `hello`, as the driver's own monitoring does
                break
        striking.strike(NEVER)
    return found


OF_JOBS: Final[Mapping[str, Callable[[Orchestrator], Awaitable[object]]]] = {
    "now": lambda app: app.now(),
    "show": lambda app: app.show("mail"),
    "listed": lambda app: app.listed(InvocationQuery()),
    "counts": lambda app: app.counts(),
    "standing": lambda app: app.standing(),
    "held": lambda app: app.held(),
    "page": lambda app: Page(app, "page").shown({}),
    "story": lambda app: Page(app, "page").story("mail"),
}


@pytest.mark.parametrize("striking", STORES, indirect=True)
def test_an_orchestrator_answers(striking: Striking) -> None:
    async def scenario() -> list[str]:
        app = Orchestrator(striking.store, f"jobs-{uuid4().hex}")

        @app.task()
        async def send(to: str) -> None:
            del to

        _ = await send.enqueue("ann", key="mail")
        try:
            return await unanswered(striking, app, OF_JOBS)
        finally:
            await app.close()

    assert asyncio.run(scenario()) == []


OF_TASKS: Final[Mapping[str, Callable[[Office], Awaitable[object]]]] = {
    "now": lambda office: office.now(),
    "leaderships": lambda office: office.leaderships(),
    "tallies": lambda office: office.tallies(Query()),
    "listed": lambda office: office.listed(Query(), order=Order.CHANGED, limit=5),
    "paused": lambda office: office.paused(),
}


@pytest.mark.parametrize("striking", STORES, indirect=True)
def test_an_app_of_reactive_tasks_answers(striking: Striking) -> None:
    async def scenario() -> list[str]:
        app = Reactive(striking.store, f"tasks-{uuid4().hex}")

        @app.task(collection="orders", debounce=timedelta(0))
        async def bill(change: Change) -> None:
            del change

        async with app.connected() as sites:
            (made,) = (each.at(sites[app.settings.database]) for each in app.declared.values())
            change = Change(
                made.task, Run(7, NOTHING, Claim("bill@7", "w", 1, None, 1, None)), made.site, lambda *_: None
            )
            about = {
                "find": lambda office: found(office.find("bill", 7)),
                "document": lambda _: found(change.document()),
            }
            return await unanswered(striking, Office([made]), {**OF_TASKS, **about})

    assert asyncio.run(scenario()) == []


async def found(asked: Awaitable[object]) -> bool:
    return await asked is None
