"""A state as one int: every cell has a slot of bits that holds the number of its value.

`Lens` is a World over such an int; it notes which bits were looked at. A write looks as well, for the difference that it
makes depends on what was there. A slot is added when its cell is first touched; number 0 is the cell's empty value, so
states that were packed before need no change.

A budget is numbered so that the top bit of its slot is set while something is left. To take from it looks at that bit
alone and always makes the same difference, so that one memory of a step serves whatever is left; but whoever takes twice looks
at how much is left. A budget of nothing has a slot of no bits, and one without a bound has no slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.immutable import must_be_value
from tidegate.model.instants import Instant
from tidegate.sim.aging import Horizon
from tidegate.sim.fingerprint import Canon
from tidegate.sim.world import (
    BUDGET,
    CLOCK,
    DOCUMENTS,
    IDS,
    LIFE,
    NOTES,
    PROCESS,
    QUANTUM,
    UNBOUNDED,
    UNIQUE,
    WAKES,
    Cell,
)

V = TypeVar("V")
_Name: TypeAlias = tuple[str, ...]
Packed: TypeAlias = int

_WIDTH: Final = 8
_WIDTHS: Final[Mapping[str, int]] = {
    BUDGET: 4,
    PROCESS: 10,
    DOCUMENTS: 12,
    IDS: 1,
    "in flight": 12,
    "journal": 12,
    LIFE: 2,
    WAKES: 4,
    NOTES: 0,
    "paused": 0,
    "halfway": 8,
    "unconfirmed": 0,
    "open transactions": 0,
    "session": 12,
    UNIQUE: 0,
    QUANTUM.name[0]: 0,
}
"""Bits of a slot to begin with, by the kind of its cell: a state of few words is quick, a restart of the search is not.

What most scenarios never write has none. The first write shows the need early, and widens all of its kind.
"""
NARROW: Final = 4
"""If a slot of fewer bits is full, the others of its kind get this many, too."""


class Overflow(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A slot is too narrow: start again with a wider one."""


@final
@attrs.define(eq=False)
class Slot:
    """The bits of one cell, and the values that they number.

    Attributes:
        values: By number: what the cell holds.
        seen: By number: what code sees of it, which differs in relative time.
    """

    name: _Name
    shift: int
    width: int
    values: list[object]
    numbers: dict[object, int]
    canon: Canon
    horizon: Horizon | None
    seen: list[object] = attrs.field(init=False)
    is_full: bool = False
    low: int = attrs.field(init=False)
    mask: int = attrs.field(init=False)
    top: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.low = (1 << self.width) - 1
        self.mask = self.low << self.shift
        self.top = 1 << self.shift + self.width - 1 if self.width else 0
        self.seen = self.values if self.horizon is None else [self.as_seen(value) for value in self.values]

    @property
    def is_filling(self) -> bool:
        """Is it so full that a longer search may need a wider one? Slots tend to overflow one after the other."""
        return self.is_full or (self.name[0] != BUDGET and len(self.values) > 2 and len(self.values) << 3 > self.low)

    def get(self, state: Packed) -> object:
        return self.values[(state >> self.shift) & self.low]

    def as_seen(self, value: object) -> object:
        assert self.horizon is not None
        return self.horizon.now(cast("Instant", value)) if self.name == CLOCK.name else self.horizon.seen(value)

    def put(self, state: Packed, value: object) -> Packed:
        key = value if type(value) is int or type(value) is Document else self.key(value)
        number = self.numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
            if self.horizon is not None:
                self.seen.append(self.as_seen(value))
        if number > self.low:
            self.is_full = True
            raise Overflow
        return state + ((number - ((state >> self.shift) & self.low)) << self.shift)

    def key(self, value: object) -> object:
        """What is equal for the same values only; of what is immutable, each part is looked through once."""
        try:
            key = self.canon.key(value)
        except Misuse as deep:
            deep.where = f"the cell {'/'.join(self.name)}"
            raise
        if key is None:
            must_be_value(value, f"what the cell {'/'.join(self.name)} would hold")
        return key


@final
class Packing:
    """All slots, in the order in which their cells were first touched.

    Args:
        widths: Bits of the slots that are known to need more than others of their kind, and of kinds that need more.
        horizon: Of relative time; None where time stands or is absolute.
    """

    def __init__(self, widths: Mapping[_Name, int], horizon: Horizon | None = None) -> None:
        self.widths, self.horizon, self.bits = widths, horizon, 0
        self.slots: dict[_Name, Slot] = {}
        self.canon = Canon()

    def slot(self, cell: Cell[V]) -> Slot:
        found = self.slots.get(cell.name)
        if found is None:
            kind = cell.name[0]
            width = self.widths.get(cell.name, self.widths.get((kind,), _WIDTHS.get(kind, _WIDTH)))
            found = Slot(cell.name, self.bits, width, [cell.empty], {}, self.canon, self.horizon)
            found.numbers[found.key(cell.empty)] = 0
            if kind == BUDGET:
                none = found.low >> 1
                found.values[0] = 0
                found.values += [max(0, number - none) for number in range(1, found.low + 1)]
                found.numbers |= {number - none: number for number in range(none, found.low + 1)}
                found.seen = found.values  # a number is seen as it is
            self.slots[cell.name] = found
            self.bits += width
        return found


@final
@attrs.define(eq=False)
class Looked:
    """Which bits were looked at."""

    bits: int = 0


@final
@attrs.define(eq=False)  # not frozen, for that takes twice as long to make
class Lens:
    """A world over a packed state.

    Attributes:
        blind: Whoever overwrites a cell without reading it need not know what was there.
        wrote: The bits that were overwritten so.
        took: The top bits of the budgets that were taken from.
    """

    packing: Packing
    state: Packed
    looked: Looked
    blind: bool = False
    wrote: int = 0
    took: int = 0

    def read(self, cell: Cell[V]) -> V:
        slot = self.packing.slots.get(cell.name) or self.packing.slot(cell)
        self.looked.bits |= slot.mask
        return cast("V", slot.seen[(self.state >> slot.shift) & slot.low])

    def taken(self, budget: Cell[int]) -> Lens | None:
        if budget.empty == UNBOUNDED and budget.name not in self.packing.slots:
            return self
        if self.blind:
            left = self.read(budget)
            return self.write(budget, left - 1) if left else None
        slot = self.packing.slot(budget)
        self.looked.bits |= slot.mask if self.took & slot.top else slot.top
        if not self.state & slot.top:
            return None
        took = self.took | slot.top
        return Lens(self.packing, self.state - (1 << slot.shift), self.looked, self.blind, self.wrote, took)

    def write(self, cell: Cell[V], value: V) -> Lens:
        slot = self.packing.slots.get(cell.name) or self.packing.slot(cell)
        kept = value if self.packing.horizon is None else self.packing.horizon.stored(value)
        wrote = self.wrote
        if self.blind:
            wrote |= slot.mask
        else:
            self.looked.bits |= slot.mask
        return Lens(self.packing, slot.put(self.state, kept), self.looked, self.blind, wrote, self.took)
