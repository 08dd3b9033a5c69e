"""A state as one int: each cell has a slot of bits with the number of its value.

`Lens` is a World over such an int; it notes the bits that it reads. A write reads too, because its
difference depends on the previous value. The first access to a cell adds its slot. Number 0 is the
cell's empty value, so states packed earlier stay valid.

In the slot of a budget, the top bit is set while something is left. `taken` reads only that bit and
always makes the same difference, so one remembered step serves for any rest. A second `taken` in a
step reads the whole slot. A budget of 0 has a slot without bits, an unbounded one has no slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.immutable import must_be_value
from tidegate.model.instants import Instant
from tidegate.sim.program.fingerprint import Canon
from tidegate.sim.program.relative_time import Horizon
from tidegate.sim.world.world import (
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
"""Initial bits of a slot, by kind of cell: small states are fast, a restart of the search is not.

Cells that most scenarios never write have none. The first write overflows early, and widens all of
the kind.
"""
NARROW: Final = 4
"""When a narrower slot overflows, the others of its kind get this many bits, too."""


class Overflow(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A slot is too narrow: restart with a wider one."""


@final
@attrs.define(eq=False)
class Slot:
    """The bits of one cell, and its numbered values.

    Attributes:
        values: By number, the value of the cell.
        seen: By number, the value that code reads; it differs in relative time.
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
        """Whether a longer search may overflow it. Slots tend to overflow one after the other."""
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
        """A key equal only for the same values; each immutable part is visited once."""
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
    """All slots, in the order of first access to their cells.

    Args:
        widths: Bits of slots, and of kinds of cells, that need more than the default.
        horizon: Of relative time; None otherwise.
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
                found.seen = found.values  # relative time does not change numbers
            self.slots[cell.name] = found
            self.bits += width
        return found


@final
@attrs.define(eq=False)
class Looked:
    """The bits that were read."""

    bits: int = 0


@final
@attrs.define(eq=False)  # not frozen: that takes twice as long to construct
class Lens:
    """A world over a packed state.

    Attributes:
        blind: A write does not read the previous value.
        wrote: The bits overwritten blindly.
        took: The top bits of the budgets taken from.
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
