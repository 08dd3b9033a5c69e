"""What a case of a benchmark is.

A case builds the inputs of a call at a size, with the modules' own functions and seeded randomness, and answers the call
and what is true of its answer. That is looked at once, before anything is timed, so that no row times an error. Decisions
are pure, so the same call can be made again and again; what a value remembers of itself (the hash of a document) it has
remembered by then.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from tidegate.model.instants import MINUTE, Instant

T = TypeVar("T")

Made: TypeAlias = tuple[Callable[[], T], Callable[[T], bool]]
"""The call, and what is true of its answer."""

Make: TypeAlias = Callable[[int], Made[T]]
"""Takes the size."""


@attrs.frozen
class Sizes:
    """What is counted, a typical number of it, and an extreme one; nothing where no size matters."""

    of: str = ""
    at: tuple[int, ...] = (0,)


ANY: Final = Sizes()
BYTES: Final = Sizes("bytes", (10_000, 1_000_000))
CLAIMS: Final = Sizes("claims", (10, 10_000))
CONDITIONS: Final = Sizes("conditions", (100, 100_000))
OFFSETS: Final = Sizes("offsets", (1_000, 1_000_000))
PARTITIONS: Final = Sizes("partitions", (10, 1_000))
PAYLOADS: Final = Sizes("payloads", (10, 10_000))
PLACES: Final = Sizes("places", (10, 10_000))
RECORDS: Final = Sizes("records", (100, 10_000))
ROWS: Final = Sizes("rows", (1_000, 100_000))
RUNNERS: Final = Sizes("runners", (10, 10_000))
SOURCES: Final = Sizes("sources", (10, 10_000))
TOKENS: Final = Sizes("tokens", (10, 10_000))


@attrs.frozen
class Case:
    """A decision that is timed: which module makes it, in which situation."""

    module: str
    what: str
    sizes: Sizes
    make: Make[Any]

    def __str__(self) -> str:
        return f"{self.module}: {self.what}"


@attrs.frozen
class Table:
    """The cases of one of the README's tables."""

    title: str
    cases: list[Case] = attrs.field(factory=list)

    def case(self, module: ModuleType, what: str, sizes: Sizes = ANY) -> Callable[[Make[T]], Make[T]]:
        """Add what is decorated."""

        def add(make: Make[T]) -> Make[T]:
            self.cases.append(Case(module.__name__.rpartition(".")[2], what, sizes, make))
            return make

        return add


# --- what cases share ---------------------------------------------------------------------------------------------------

BATCH: Final = 100
NOW: Final = Instant(10**15)
BACK_THEN: Final = NOW + -MINUTE


def drawn(size: int) -> Random:
    return Random(size)  # noqa: S311  it draws a workload, no secret
