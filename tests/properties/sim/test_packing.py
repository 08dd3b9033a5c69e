from __future__ import annotations

import pytest

from tidegate.model.errors import Misuse
from tidegate.sim.world.faults import FAULTS
from tidegate.sim.world.packing import Lens, Looked, Overflow, Packing
from tidegate.sim.world.world import Cell

A, B = Cell[object](("a",), 0), Cell[object](("b",), "")


def lens(packing: Packing, *, blind: bool = False) -> Lens:
    return Lens(packing, 0, Looked(), blind)


def test_what_is_written_is_read_and_nothing_else_changes() -> None:
    packing = Packing({})
    first = lens(packing).write(A, 1)
    second = first.write(B, "x").write(A, 2)
    assert (first.read(A), first.read(B), second.read(A), second.read(B)) == (1, "", 2, "x")
    assert second.write(A, 0).write(B, "").state == 0


def test_equal_values_are_one_number_only_if_they_are_the_same() -> None:
    """1, 1.0 and true are three states."""
    packing = Packing({})
    assert len({lens(packing).write(A, value).state for value in (1, 1.0, True, 1)}) == 3


def test_what_may_change_is_not_written() -> None:
    with pytest.raises(Misuse, match="what the cell a would hold is an object, which is not known to be immutable"):
        lens(Packing({})).write(A, object())


def test_every_look_is_noted_and_a_write_is_one() -> None:
    """A write's difference depends on the old value, unless it overwrites blindly."""
    packing = Packing({})
    looking, writing, blind = lens(packing), lens(packing), lens(packing, blind=True)
    looking.read(A)
    writing.write(B, "x")
    after = blind.write(A, 1).write(B, "x")
    assert looking.looked.bits == packing.slot(A).mask
    assert writing.looked.bits == packing.slot(B).mask
    assert (blind.looked.bits, blind.wrote) == (0, 0)
    assert after.wrote == packing.slot(A).mask | packing.slot(B).mask


def test_who_takes_twice_from_a_budget_looks_at_how_much_is_left() -> None:
    """A single use of a budget depends only on whether any is left."""
    packing = Packing({})
    for left in (1, 2, 3):
        looked = Looked()
        once = Lens(packing, lens(packing).write(FAULTS, left).state, looked).taken(FAULTS)
        assert (once is not None, looked.bits) == (True, packing.slot(FAULTS).top)
        assert once is not None
        assert (once.write(A, 1).taken(FAULTS) is not None, looked.bits & packing.slot(FAULTS).mask) == (
            left > 1,
            packing.slot(FAULTS).mask,
        )


def test_two_ways_of_writing_blindly_do_not_know_of_each_other() -> None:
    packing = Packing({})
    shared = lens(packing, blind=True).write(A, 1)
    shared.write(B, "x")
    assert shared.wrote == packing.slot(A).mask


def test_a_slot_that_is_too_narrow_is_noticed() -> None:
    packing = Packing({A.name: 3})
    world = lens(packing)
    for value in range(1, 8):
        world = world.write(A, value)
    with pytest.raises(Overflow):
        world.write(A, 8)
    world.write(B, "x")
    assert packing.slot(A).is_filling
    assert not packing.slot(B).is_filling
    assert (packing.slot(A).width, packing.slot(B).width, packing.bits) == (3, 8, 11)
