"""All that ships, by name, in the order in which it is explored: designs first, then specimens, room by room.

Each room lists its own: SCENARIOS of `Shipped` in its `scenarios`, SPECIMENS of `Specimen` in its `specimens`. A room is
loaded when something of it is asked for: who explores one scenario need not wait for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from tidegate.model.errors import Misuse
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Scope, Shipped, Specimen

__all__ = ["CATALOGUE", "DESIGNS", "SAMPLE", "SPECIMENS", "find", "shipped"]

_ROOMS: Final = (
    "leases", "counters", "transactions", "payloads", "services", "invocations", "triggers", "reactive", "consumer", "sinks",
)  # fmt: skip

if TYPE_CHECKING:  # made by __getattr__ below, when somebody asks
    DESIGNS: tuple[Shipped, ...]
    SPECIMENS: tuple[Specimen, ...]
    CATALOGUE: Mapping[str, Shipped | Specimen]
    SAMPLE: Mapping[str, Shipped | Specimen]


def find(name: str) -> Shipped | Specimen | None:
    """What ships under that name, without a scope, if anything does."""
    for room in _ROOMS:
        for each in chain[Shipped | Specimen](_designs(room), _specimens(room)):
            if each.name == name:
                return each
    return None


def shipped(name: str) -> Scenario:
    """The scenario of that name, or in another scope, of `name@scope`.

    Raises:
        Misuse: there is none; the message lists them.
    """
    bare, _, scope = name.partition("@")
    found = find(bare)
    if found is None:
        raise Misuse(f"there is no scenario {bare!r}", todo=f"there are: {', '.join(each.name for each in _all())}")
    if scope not in ("", *Scope):
        raise Misuse(f"there is no scope {scope!r}", where=name, todo=f"there are: {', '.join(Scope)}")
    return found.scenario(Scope(scope or Scope.DEFAULT))


def _designs(room: str) -> tuple[Shipped, ...]:
    return cast("tuple[Shipped, ...]", import_module(f"tidegate.{room}.scenarios").SCENARIOS)


def _specimens(room: str) -> tuple[Specimen, ...]:
    return cast("tuple[Specimen, ...]", import_module(f"tidegate.{room}.specimens").SPECIMENS)


def _all() -> Iterator[Shipped | Specimen]:
    for room in _ROOMS:
        yield from _designs(room)
    for room in _ROOMS:
        yield from _specimens(room)


@cache
def __getattr__(name: str) -> object:
    match name:
        case "DESIGNS":
            return tuple(each for room in _ROOMS for each in _designs(room))
        case "SPECIMENS":
            return tuple(each for room in _ROOMS for each in _specimens(room))
        case "CATALOGUE":
            return {each.name: each for each in _all()}
        case "SAMPLE":  # the first design and the first specimen of each family
            first = {(each.name.partition(".")[0], type(each)): each for each in reversed(list(_all()))}
            return {each.name: each for each in reversed(first.values())}
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
