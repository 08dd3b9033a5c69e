"""Cells: the named places of a world, and the protocols to read and write them.

A cell is the unit of interference: one document, the ids of one collection, a clock, a budget. A
meaning accesses cells through `World` only (`tidegate.sim.world.world`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import Foreign
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.sim.program.relative_time import holds_instant

V = TypeVar("V")


@final
@attrs.frozen(cache_hash=True)
class Cell(Generic[V]):
    """A named place; `empty` is its value before the first write.

    The first word of the name is the kind of the cell. The simulator reserves these kinds: `BUDGET`
    (only ever `taken` from), `PROCESS` (the node of a process), `DOCUMENTS` and `IDS` (the store's
    data, which a failover may lose and streams read), `LIFE`, `WAKES`, `NOTES`, `UNIQUE`, and those
    of `CLOCK` and `FLIGHT`. The kind decides a slot's initial width (`packing`), ageing
    (`steppers.UNAGED`), renaming (`symmetry`) and display (`picture`).

    Invariant: `empty` holds no instant, which in relative time would always be now.
    """

    name: tuple[str, ...]
    empty: V

    def __attrs_post_init__(self) -> None:
        if self.empty and self.name != ("clock",) and holds_instant(self.empty):
            raise Misuse(
                f"an empty cell holds an instant: {self.name}",
                why="where instants are kept relative to now, it would always be now",
                todo="let it be None, and begin the world with the instant",
            )


class Reads(Protocol):
    """An object with readable cells."""

    def read(self, cell: Cell[V], /) -> V: ...


class World(Reads, Protocol):
    """An object with readable and writable cells."""

    def write(self, cell: Cell[V], value: V) -> World: ...
    def taken(self, budget: Cell[int], /) -> World | None:
        """Take one from the budget; None if none is left. The amount is not read, so few states
        differ in it.
        """
        ...


Outcomes: TypeAlias = Iterator[tuple[World, object]]
Meaning: TypeAlias = Callable[[Effect[object], World, str], Outcomes]

# The first words of the names of cells with a store's data.
DOCUMENTS: Final = "documents"
IDS: Final = "ids"

Overwritten: TypeAlias = tuple[tuple[Cell[object], object], ...]
"""The changed cells of a write, with their old values."""

UNCONFIRMED: Final = Cell[tuple[Overwritten, ...]](("unconfirmed",), ())
"""The old values at the newest unconfirmed writes, oldest first (`tidegate.sim.servers.failover`)."""

EARLIER: Final = Cell[tuple[Overwritten, ...]](("earlier",), ())
"""The stored values before the newest writes, newest first. Each covers all cells overwritten
since.
"""


Key: TypeAlias = str | int | Foreign


class Order(Protocol):
    """Ids in natural order, where copying a tuple of all would be too slow."""

    def __iter__(self) -> Iterator[Key]: ...
    def __add__(self, keys: tuple[Key, ...], /) -> Order: ...
    def without(self, key: Key, /) -> Order: ...


@final
class First(str):
    """The id of a document of the initial world, under symmetry.

    Only a scan of these documents reveals their order, and thus tells processes apart. A deleted
    and reinserted document is another one: its id is plain text, like that of any later document.

    Attributes:
        order: All of them, in natural order.
    """

    __slots__ = ("order",)
    _is_sealed = True  # as in `model.sealed`: the slot never changes
    order: tuple[str, ...]

    def __new__(cls, key: str, order: tuple[str, ...]) -> First:
        made = super().__new__(cls, key)
        made.order = order
        return made


def natural(keys: tuple[Key, ...] | Order) -> tuple[Key, ...] | Order:
    """The order after a renaming: initial ids first, in their original order."""
    first = [each for each in keys if type(each) is First]
    if not first:
        return keys
    return (
        *sorted(first, key=lambda each: (*each.order, each).index(each)),
        *(each for each in keys if type(each) is not First),
    )


def by_name(held: Overwritten) -> Overwritten:
    """Cell values in the order of the cells' names, so that each set has one form under all
    names.
    """
    return tuple(sorted(((cell, _in_order(cell, had)) for cell, had in held), key=lambda each: each[0].name))


def _in_order(cell: Cell[object], had: object) -> object:
    if cell.name[0] == IDS and isinstance(had, tuple):
        return natural(had)
    if cell.name == EARLIER.name:
        return tuple(map(by_name, cast("tuple[Overwritten, ...]", had)))
    ordered: Callable[[], object] | None = getattr(had, "in_order", None)
    return had if ordered is None else ordered()


def without(keys: tuple[Key, ...] | Order, key: Key) -> tuple[Key, ...] | Order:
    return tuple(each for each in keys if each != key) if isinstance(keys, tuple) else keys.without(key)
