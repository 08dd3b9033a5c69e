"""A state as one int: every cell has a slot of bits that holds the number of its value.

`Lens` is a World over such an int; it notes which bits were looked at. A write looks as well, for the difference that it
makes depends on what was there. A slot is added when its cell is first touched; number 0 is the cell's empty value, so
states that were packed before need no change.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar, cast, final

import attrs

from tidegate.documents import exactly
from tidegate.sim.world import Cell

V = TypeVar("V")
Name: TypeAlias = tuple[str, ...]
Packed: TypeAlias = int


class Overflow(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A slot is too narrow: start again with a wider one."""


@final
@attrs.define(eq=False)
class Slot:
    """The bits of one cell, and the values that they number."""

    name: Name
    shift: int
    width: int
    low: int
    values: list[object]
    numbers: dict[object, int]

    @property
    def is_filling(self) -> bool:
        """Is it so full that a longer search may need a wider one? Slots tend to overflow one after the other."""
        return len(self.values) << 3 > self.low

    @property
    def mask(self) -> int:
        return self.low << self.shift

    def get(self, state: Packed) -> object:
        return self.values[(state >> self.shift) & self.low]

    def put(self, state: Packed, value: object) -> Packed:
        number = self.numbers.setdefault(exactly(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        if number > self.low:
            raise Overflow
        return state + ((number - ((state >> self.shift) & self.low)) << self.shift)


@final
class Packing:
    """All slots, in the order in which their cells were first touched.

    Args:
        widths: Bits of the slots that are known to need more or fewer than `width`.
        width: Bits of all other slots.
    """

    def __init__(self, widths: dict[Name, int], width: int) -> None:
        self.widths, self.width, self.bits = widths, width, 0
        self.slots: dict[Name, Slot] = {}

    def slot(self, cell: Cell[V]) -> Slot:
        found = self.slots.get(cell.name)
        if found is None:
            width = self.widths.get(cell.name, self.width)
            found = Slot(cell.name, self.bits, width, (1 << width) - 1, [cell.empty], {exactly(cell.empty): 0})
            self.slots[cell.name] = found
            self.bits += width
        return found


@final
@attrs.define(eq=False)
class Looked:
    """Which bits were looked at."""

    bits: int = 0


@final
@attrs.frozen(eq=False)
class Lens:
    """A world over a packed state.

    Attributes:
        blind: Whoever overwrites a cell without reading it need not know what was there.
        wrote: The bits that were overwritten so.
    """

    packing: Packing
    state: Packed
    looked: Looked
    blind: bool = False
    wrote: int = 0

    def read(self, cell: Cell[V]) -> V:
        slot = self.packing.slot(cell)
        self.looked.bits |= slot.mask
        return cast("V", slot.get(self.state))

    def write(self, cell: Cell[V], value: V) -> Lens:
        slot = self.packing.slot(cell)
        wrote = self.wrote
        if self.blind:
            wrote |= slot.mask
        else:
            self.looked.bits |= slot.mask
        return Lens(self.packing, slot.put(self.state, value), self.looked, self.blind, wrote)
