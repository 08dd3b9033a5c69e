"""Planners on a simulated event loop, by seed, with failing stores, streams and processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Final

import attrs
import pytest
from tests.integration.test_reactive_planner import Full
from tests.length import PLANNER_SEEDS

from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.instants import MILLISECOND, SECOND, STORE, Instant
from tidegate.model.operations import delete_one, insert_one, update_one
from tidegate.reactive.planning.change_stream import Broken, ChangeStreamConsumer, Page, Position
from tidegate.reactive.planning.evolution import EvolutionPolicy
from tidegate.reactive.planning.reconciler import EPOCH
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.task_documents import DOCUMENT, SNAPSHOT, TASK
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.embedded.changes import EmbeddedChanges
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.reactive import planner
from tidegate_adapters.reactive.names import STREAMS
from tidegate_adapters.reactive.planner import Planner, PlannerRules
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.testing import event_loop

RULES: Final = PlannerRules(
    terms=Terms(ttl=6 * SECOND, heartbeat=2 * SECOND, margin=SECOND // 2),
    stream=ChangeStreamConsumer(size=3, idle=2 * SECOND, pause=200 * MILLISECOND),
    batch=2,
    sweep=timedelta(seconds=3),
    pause=timedelta(milliseconds=200),
)
KEPT: Final = CleanUp(keep_for=SECOND)
TASKS: Final = (
    ReactiveTask(name="all", source="orders", attempts=1),
    ReactiveTask(name="totals", source="orders", watched=Projection(("total",)), attempts=1),
    ReactiveTask(name="names", source="customers", attempts=1, cleaning=KEPT),
)
TOTAL: Final = Field[int]("total")
EDITS: Final = 25
LATE_S: Final = 8.0


@attrs.frozen
class Told:
    task: ReactiveTask
    version: int = 1
    evolution: EvolutionPolicy = attrs.field(factory=EvolutionPolicy)


@attrs.define
class Course:
    """The planners of one store; `epoch` is the highest in the record of the stream."""

    store: Embedded
    chance: Random
    is_out: bool = False
    is_calm: bool = False
    is_over: asyncio.Event = attrs.field(factory=asyncio.Event)
    epoch: int = 0
    killed: int = 0
    lost: int = 0
    planners: list[Planner] = attrs.field(factory=list)

    def checks(self) -> None:
        assert sum(each.standing.leads for each in self.planners) <= 1
        for record in self.store.contents(STREAMS):
            assert record[EPOCH] >= self.epoch
            self.epoch = record[EPOCH]

    def keys(self, source: str) -> set[Any]:
        return {each[ID] for each in self.store.contents(source)}

    async def weather(self) -> None:
        for _ in range(2):
            await asyncio.sleep(self.chance.uniform(0, 10))
            self.is_out = True
            await asyncio.sleep(self.chance.uniform(0, 8))
            self.is_out = False
            if self.chance.random() < 0.3:
                event_loop.stall(timedelta(seconds=self.chance.uniform(0, 8)))

    async def edit(self) -> None:
        for number in range(EDITS):
            await asyncio.sleep(self.chance.uniform(0, 1.5))
            source, key = self.chance.choice(["orders", "customers"]), self.chance.choice(["a", "b", "c", "d"])
            if key not in self.keys(source):
                self.store(insert_one(source, Document.of({"_id": key, "total": number, "note": 0})))
            elif self.chance.random() < 0.3:
                self.store(delete_one(source, Eq(ID, key)))
            else:
                field = TOTAL if self.chance.random() < 0.5 else Field[int]("note")
                self.store(update_one(source, Eq(ID, key), Put(field, number)))

    async def lives(self) -> None:
        while not self.is_over.is_set():
            life = Life(self)
            is_older = not self.is_calm and self.chance.random() < 0.3
            tasks = tuple(Told(each) for each in TASKS if not is_older or each.name != "totals")
            made = Planner(Site("here", life.asked), tasks, RULES, Full(), "one")
            self.planners.append(made)
            running = asyncio.create_task(made.run())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.is_calm else self.chance.uniform(1, 25)):
                    await self.is_over.wait()
            if self.is_calm or self.chance.random() < 0.5:
                made.stop()
            else:
                life.is_killed = True
                self.killed += 1
                running.cancel()
            await asyncio.wait({running})
            self.planners.remove(made)
            assert running.cancelled() or running.exception() is None

    def is_planned(self) -> bool:
        if {each[DOCUMENT] for each in self.store.contents("customers_tasks")} - self.keys("customers"):
            return False
        for task in TASKS:
            there = {each[ID]: each for each in self.store.contents(task.source)}
            records = [each for each in self.store.contents(task.records) if each[TASK] == task.name]
            known = {each[DOCUMENT]: each.held(SNAPSHOT) for each in records if each.held(SNAPSHOT) is not None}
            if known != {key: seen(task, each) for key, each in there.items()}:
                return False
        return True


def seen(task: ReactiveTask, document: Document) -> Document:
    return Document.of({"total": document[TOTAL]}) if task.watched.paths else document


@attrs.define
class Life:
    course: Course
    is_killed: bool = False

    async def asked(self, effect: Any) -> object:
        course, chance = self.course, self.course.chance
        await self.on_the_way(0.05)
        fault = 0.5 if course.is_calm else chance.random()
        if course.is_out or fault < 0.03:
            return chance.choice([Ambiguous("no reply"), NotApplied("not sent")])
        if fault < 0.05:
            _ = asyncio.get_running_loop().call_later(chance.uniform(0, LATE_S), course.store, effect)
            return Ambiguous("no reply")
        reply = course.store(effect)
        course.checks()
        await self.on_the_way(0.05)
        return Ambiguous("no reply") if fault > 0.97 else reply

    async def on_the_way(self, longest: float) -> None:
        await asyncio.sleep(self.course.chance.uniform(0, longest))
        if self.is_killed:
            await asyncio.Event().wait()

    def changes(self, watched: Collection[str]) -> Unsteady:
        return Unsteady(self, self.course.store.changes(watched))


@attrs.define
class Unsteady:
    life: Life
    changes: EmbeddedChanges

    async def check(self) -> None: ...

    async def locate(self) -> Position | Ambiguous:
        return Ambiguous("no reply") if await self._fails() else await self.changes.locate()

    async def read(self, position: Position) -> Page | Broken:
        course = self.life.course
        if not course.is_calm and course.chance.random() < 0.01:
            course.lost += 1
            return Broken(286)
        return Broken(course.chance.choice([None, 91])) if await self._fails() else await self.changes.read(position)

    async def _fails(self) -> bool:
        await self.life.on_the_way(0.02)
        course = self.life.course
        return course.is_out or (not course.is_calm and course.chance.random() < 0.03)

    def reached(self, position: Position) -> None: ...

    async def close(self) -> None: ...


def course(seed: int) -> Course:
    async def main(chance: Random) -> Course:
        loop = asyncio.get_running_loop()
        rows = tuple(Document.of({"_id": key, "total": 0, "note": 0}) for key in ("a", "b"))
        now = lambda: Instant(round(loop.time() * 1_000) * MILLISECOND, STORE)  # noqa: E731
        run = Course(Embedded({"orders": rows, "customers": rows}, now), chance)
        lives = [asyncio.create_task(run.lives()) for _ in range(2)]
        await asyncio.gather(run.weather(), run.edit())
        run.is_calm = True
        await asyncio.sleep(LATE_S)
        async with asyncio.timeout(120):  # simulated time
            while not run.is_planned():  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        run.is_over.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*lives)
        assert run.is_planned()
        return run

    return event_loop.run(main, seed)


def test_all_that_changes_is_planned_whatever_fails() -> None:
    runs = [course(seed) for seed in range(PLANNER_SEEDS)]

    assert sum(each.killed for each in runs) > PLANNER_SEEDS // 2
    assert sum(each.lost for each in runs) > PLANNER_SEEDS // 10


_look = Planner._look  # noqa: SLF001  bugs are planted in it


async def forgives(self: Planner, command: Any) -> None:
    """Planted: a failed look passes for done."""
    with suppress(Exception):
        await _look(self, command)


async def looks_for_one(self: Planner, command: Any) -> None:
    """Planted: of several tasks on a collection the first one alone looks."""
    task = self._looks.tasks[command.collection][0]
    await self._looks.look(task, command, task.followed)


async def reconciles_nothing(self: Planner, run: object) -> None:
    """Planted: existing documents are ignored."""
    del self, run


async def deploys_nothing(*_: object, **__: object) -> None:
    """Planted: a new leader with fewer tasks goes unnoticed."""


async def sweeps_nothing(self: Planner, epoch: int) -> None:
    """Planted: records outlive their documents."""
    del self, epoch


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (Planner, "_look", forgives),
        (Planner, "_look", looks_for_one),
        (Planner, "_reconcile", reconciles_nothing),
        (Planner, "_sweep", sweeps_nothing),
        (planner, "deploy", deploys_nothing),
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, wrong: Callable[..., Any]
) -> None:
    """The rarest shows in 25 of 300 runs, so 400 runs miss it once in 10^15."""
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises((AssertionError, TimeoutError, ExceptionGroup)):  # noqa: PT012  the block is under test
        for seed in range(10 * PLANNER_SEEDS):
            course(seed)
