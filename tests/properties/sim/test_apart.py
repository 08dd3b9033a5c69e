"""Programs share nothing but the world: what both could change is refused, by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from tidegate.model.effects import Effect, Note
from tidegate.model.errors import Misuse
from tidegate.sim.actors import Process, factory
from tidegate.sim.automaton import Birth
from tidegate.sim.report import Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.world import Plain

Coded = Callable[[], Coroutine[Effect[object], object, object]]


def around() -> tuple[Birth, Birth]:
    """A box that two programs are written around."""
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
    """In a tuple, in a partial, in a dictionary of each one's own."""
    return partial(lambda held, _: takes(held), (1, (box,))), factory(takes_by_name, box={"own": box})


def defaults() -> tuple[Birth, Birth]:
    async def holds(box: list[int] = []) -> int:  # noqa: B006  it is the case
        await Note("m", 0)
        return len(box)

    return factory(holds), factory(holds)


SHARED: dict[str, Callable[[], tuple[Birth, Birth]]] = {
    "a list around them": around,
    "a default": defaults,
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
    """Before anything is explored; both are named, and what they share."""
    with pytest.raises(Misuse, match=r"^ann and bob share a \w+ \(`\w+`"):
        scenario(SHARED[shared]())


def test_whoever_has_its_own_shares_nothing() -> None:
    """Equal ones are two; what cannot change is no channel; nor is a variable that is empty so far."""

    def calls_what_is_defined_below() -> Coroutine[Effect[object], object, object]:
        return later()

    async def later() -> object:
        return await takes((1, frozenset({2}), "a"))

    assert explore(scenario((factory(takes, [1]), factory(takes, [1])))).verdict is Verdict.COMPLETE
    assert explore(scenario((lambda _: calls_what_is_defined_below(), factory(later)))).verdict is Verdict.COMPLETE


def test_one_program_may_reach_a_list_twice() -> None:
    """It is its own."""
    box: list[int] = []
    births = (factory(takes, (box, box)), factory(takes, ()))
    assert explore(scenario(births)).verdict is Verdict.COMPLETE
