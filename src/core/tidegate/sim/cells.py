"""Cells: the named places that a world is made of, and how one is looked at.

A cell is the grain of interference: one document, the ids of one collection, a clock, a budget. A meaning reads and
writes cells through `World` and nothing else (`tidegate.sim.world`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import Foreign
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.sim.aging import holds_instant

V = TypeVar("V")


@final
@attrs.frozen(cache_hash=True)
class Cell(Generic[V]):
    """A named place; `empty` is what it holds before anything is written there.

    The first word of the name says what kind of cell it is, and the simulator treats some kinds apart, so these words are
    its own: `BUDGET` (only ever `taken` from), `PROCESS` (where a process stands, as a node of its behaviour), `DOCUMENTS`
    and `IDS` (what a server stores: it may be lost with a primary, and streams read it), `LIFE`, `WAKES`, `NOTES`,
    `UNIQUE`, and those of `CLOCK` and `FLIGHT`. By them a slot begins wide or narrow (`packing`), a value grows older with
    time or does not (`steppers.UNAGED`), is renamed (`symmetry`) and is shown (`picture`).

    Invariant: `empty` holds no instant, for in relative time that would always be now.
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
    """Whatever has cells to look at."""

    def read(self, cell: Cell[V], /) -> V: ...


class World(Reads, Protocol):
    """Whatever has cells."""

    def write(self, cell: Cell[V], value: V) -> World: ...
    def taken(self, budget: Cell[int], /) -> World | None:
        """One less of what is left; None if nothing is. How much is left is not looked at, so few states differ in it."""
        ...


Outcomes: TypeAlias = Iterator[tuple[World, object]]
Meaning: TypeAlias = Callable[[Effect[object], World, str], Outcomes]

# The first parts of the names of cells that hold what a store has.
DOCUMENTS: Final = "documents"
IDS: Final = "ids"

Overwritten: TypeAlias = tuple[tuple[Cell[object], object], ...]
"""Cells that a write has changed, each with what it held before."""

UNCONFIRMED: Final = Cell[tuple[Overwritten, ...]](("unconfirmed",), ())
"""What the newest writes have overwritten, oldest first, as long as no majority has them (`tidegate.sim.failover`)."""

EARLIER: Final = Cell[tuple[Overwritten, ...]](("earlier",), ())
"""What was stored before the newest writes, the newest first: each holds what it and those after it have overwritten."""


Key: TypeAlias = str | int | Foreign
"""What the id of a document may be (`is_key`); of what only BSON has, an ObjectId or a UUID."""


class Order(Protocol):
    """Ids in natural order, where a tuple of all of them would be too long to copy."""

    def __iter__(self) -> Iterator[Key]: ...
    def __add__(self, keys: tuple[Key, ...], /) -> Order: ...
    def without(self, key: Key, /) -> Order: ...


@final
class First(str):
    """The id of a document that has been there since the beginning, where interchangeable processes are renamed.

    In the order of those documents nobody but a scan can tell processes apart. One that was deleted and inserted again is
    another one: its id is plain text, as that of whatever comes later.

    Attributes:
        order: All of them, in natural order.
    """

    __slots__ = ("order",)
    _is_sealed = True  # as `model.sealed` has it: the slot never changes
    order: tuple[str, ...]

    def __new__(cls, key: str, order: tuple[str, ...]) -> First:
        made = super().__new__(cls, key)
        made.order = order
        return made


def natural(keys: tuple[Key, ...] | Order) -> tuple[Key, ...] | Order:
    """The ids under other names: those of the beginning in the order that these have, before all others."""
    first = [each for each in keys if type(each) is First]
    if not first:
        return keys
    return (
        *sorted(first, key=lambda each: (*each.order, each).index(each)),
        *(each for each in keys if type(each) is not First),
    )


def by_name(held: Overwritten) -> Overwritten:
    """What cells held, in the order of their names: a set has one form, under all names."""
    return tuple(sorted(((cell, _in_order(cell, had)) for cell, had in held), key=lambda each: each[0].name))


def _in_order(cell: Cell[object], had: object) -> object:
    if cell.name[0] == IDS and isinstance(had, tuple):
        return natural(had)
    if cell.name == EARLIER.name:
        return tuple(map(by_name, cast("tuple[Overwritten, ...]", had)))
    ordered: Callable[[], object] | None = getattr(had, "in_order", None)
    return had if ordered is None else ordered()


def without(keys: tuple[Key, ...] | Order, key: Key) -> tuple[Key, ...] | Order:
    """The ids but for that one, in their order."""
    return tuple(each for each in keys if each != key) if isinstance(keys, tuple) else keys.without(key)
