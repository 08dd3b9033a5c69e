"""Programs share only the world: mutable objects that two could change are refused by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from functools import cached_property, partial
from typing import Any

import attrs
import pytest

from tidegate.model.effects import Effect, Note
from tidegate.model.errors import Misuse
from tidegate.sim.program.automaton import Birth
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import Plain

Coded = Callable[[], Coroutine[Effect[object], object, object]]


def around() -> tuple[Birth, Birth]:
    box: list[int] = []

    async def puts() -> None:
        box.append(1)
        await Note("m", 0)
        box.append(2)

    async def looks() -> str:
        await Note("m", 0)
        return "bad" if box == [1] else "good"

    return factory(puts), factory(looks)


async def takes(box: object) -> object:
    await Note("m", 0)
    return str(box)


async def takes_by_name(*, box: object = None) -> object:
    await Note("m", 0)
    return str(box)


def passed(box: object) -> tuple[Birth, Birth]:
    return factory(takes, box), factory(takes, box)


def deep(box: object) -> tuple[Birth, Birth]:
    return partial(lambda held, _: takes(held), (1, (box,))), factory(takes_by_name, box={"own": box})


def defaults() -> tuple[Birth, Birth]:
    async def holds(box: list[int] = []) -> int:  # noqa: B006  it is the case
        await Note("m", 0)
        return len(box)

    return factory(holds), factory(holds)


def in_a_class() -> tuple[Birth, Birth]:
    class Kept:
        seen: list[int] = []  # noqa: RUF012  it is the case

    async def looks() -> int:
        await Note("m", 0)
        return len(Kept.seen)

    return factory(looks), factory(looks)


SHARED: dict[str, Callable[[], tuple[Birth, Birth]]] = {
    "a list around them": around,
    "a default": defaults,
    "a class that was made in a function": in_a_class,
    **{
        f"a {type(box).__name__} {how.__name__}": partial(how, box)
        for box in ([1], {1}, {"a": 1}, bytearray(b"a"), deque([1]))
        for how in (passed, deep)
    },
}


def scenario(births: tuple[Birth, Birth]) -> Scenario:
    return Scenario("shared", "", Plain(), tuple(map(Process, ("ann", "bob"), births)), always={"L": lambda _: True})


@pytest.mark.parametrize("shared", SHARED)
def test_what_two_programs_could_both_change_is_refused(shared: str) -> None:
    with pytest.raises(Misuse, match=r"^ann and bob share a \w+ \(`\w+`"):
        scenario(SHARED[shared]())


def test_whoever_has_its_own_shares_nothing() -> None:
    """Equal objects are two; an immutable one, or an unset variable, is no channel."""

    def calls_what_is_defined_below() -> Coroutine[Effect[object], object, object]:
        return later()

    async def later() -> object:
        return await takes((1, frozenset({2}), "a"))

    assert explore(scenario((factory(takes, [1]), factory(takes, [1])))).verdict is Verdict.COMPLETE
    assert explore(scenario((lambda _: calls_what_is_defined_below(), factory(later)))).verdict is Verdict.COMPLETE


def test_one_program_may_reach_a_list_twice() -> None:
    box: list[int] = []
    births = (factory(takes, (box, box)), factory(takes, ()))
    assert explore(scenario(births)).verdict is Verdict.COMPLETE


class Text(str):  # noqa: SLOT000  it is the case
    pass


@attrs.frozen(slots=False)
class Loose:
    a: int = 0

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


class Colour(Enum):
    RED = 1


def namespace() -> type:
    class Constants:
        numbers = (1, 2)

    return Constants


def with_more(item: object) -> object:
    vars(item)["more"] = 1
    return item


GIVEN: dict[str, Callable[[], object]] = {
    "a generator": lambda: (number for number in (1, 2)),
    "an iterator": lambda: iter((1, 2)),
    "a map": lambda: map(str, (1, 2)),
    "a text with more": lambda: with_more(Text("a")),
    "a value with more": lambda: with_more(Loose(1)),
    "in a tuple": lambda: (1, (with_more(Loose(1)),)),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("takes_it", [takes, takes_by_name])
def test_what_runs_use_up_or_equality_does_not_see_is_refused(given: str, takes_it: Callable[..., Any]) -> None:
    item = GIVEN[given]()
    birth = factory(takes_it, item) if takes_it is takes else factory(takes_it, box=item)
    with pytest.raises(Misuse, match=r"^ann is given a \w+ \(`\w+`\)"):
        scenario((birth, factory(takes, ())))


def worked_out() -> Loose:
    loose = Loose(1)
    assert loose.twice == 2
    return loose


INNOCENT: dict[str, object] = {
    "a range": range(2),
    "a text of a class of one's own": Text("a"),
    "a frozen value": Loose(1),
    "one that has worked something out": worked_out(),
    "a member of an enumeration": Colour.RED,
    "a class with constants, made in a function": namespace(),
}


@pytest.mark.parametrize("given", INNOCENT)
def test_what_stays_as_it_is_is_given_to_anybody(given: str) -> None:
    assert explore(scenario(passed(INNOCENT[given]))).verdict is Verdict.COMPLETE
