from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.effects import Note, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.reducer import Step
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.world.faults import FAULTS, Fault, Faults, bound, no_effects, spent
from tidegate.sim.world.packing import Lens, Looked, Packing
from tidegate.sim.world.world import Plain, World


def test_faults_strike_what_they_may_strike() -> None:
    faults = Faults.of(Fault.LATE, Fault.DROPPED, on=no_effects)
    assert faults.allows(Fault.LATE)
    assert not faults.strikes(Fault.LATE, Sleep(SECOND))
    assert not faults.allows(Fault.UNSENT)
    assert not faults.strikes(Fault.UNSENT, Sleep(SECOND))
    assert Faults.of(Fault.LATE).strikes(Fault.LATE, Sleep(SECOND))


def packed(all_kinds: int, late: int) -> World:
    widths = {FAULTS.name: all_kinds.bit_length() + 1, bound(Fault.LATE).name: late.bit_length() + 1 if late else 0}
    return Lens(Packing(widths), 0, Looked()).write(FAULTS, all_kinds).write(bound(Fault.LATE), late)


def plain(all_kinds: int, late: int) -> World:
    return Plain().write(FAULTS, all_kinds).write(bound(Fault.LATE), late)


def how_often(world: World | None, *kinds: Fault) -> int:
    for count, kind in enumerate(kinds):
        assert world is not None
        world = spent(world, kind)
        if world is None:
            return count
    return len(kinds)


@pytest.mark.parametrize("begun", [plain, packed])
@pytest.mark.parametrize("all_kinds", range(4))
@pytest.mark.parametrize("late", range(4))
def test_each_occurrence_spends_one_of_all_and_one_of_its_kind(
    begun: Callable[[int, int], World], all_kinds: int, late: int
) -> None:
    world = begun(all_kinds, late)
    assert how_often(world, *[Fault.LATE] * 5) == min(all_kinds, late)
    assert how_often(world, *[Fault.UNSENT] * 5) == all_kinds
    assert how_often(world, *[Fault.LATE] * late, *[Fault.UNSENT] * 5) == min(all_kinds, late + all_kinds - late)


def test_a_kind_without_a_bound_costs_nothing() -> None:
    """It needs no bit of a state; neither does a kind that never strikes."""
    packing, looked = Packing({FAULTS.name: 2, bound(Fault.LATE).name: 0}), Looked()
    world = Lens(packing, 0, Looked()).write(FAULTS, 1).write(bound(Fault.LATE), 0)
    assert packing.bits == 2
    assert spent(Lens(packing, world.state, looked), Fault.UNSENT) is not None
    assert spent(Lens(packing, world.state, looked), Fault.LATE) is None
    assert (packing.bits, looked.bits) == (2, packing.slot(FAULTS).top)


def test_each_kind_has_a_line_in_the_documentation() -> None:
    (said,) = ast.parse(inspect.getsource(Fault)).body
    assert isinstance(said, ast.ClassDef)
    lines = [ast.literal_eval(each.value) for each in said.body if isinstance(each, ast.Expr)][1:]
    rows = [f"| `{kind}` | {line} |" for kind, line in zip(Fault, lines, strict=True)]
    page = (Path(__file__).parents[3] / "docs" / "faults.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


async def answers_later(_: object) -> bool:
    return False


def yields_an_answer(_: object) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize("which", [answers_later, yields_an_answer])
def test_a_choice_of_effects_that_is_always_true_is_misuse(which: Any) -> None:
    with pytest.raises(Misuse, match="the choice of effects for lost_reply is an `async def` or a generator"):
        Faults.of(Fault.LOST_REPLY, on=which)
    with pytest.raises(Misuse, match="is_timer of r is an `async def` or a generator"):
        ReducerProcess("r", None, lambda *_: Step[object, Note](None, ()), lambda *_: None, is_timer=which)
