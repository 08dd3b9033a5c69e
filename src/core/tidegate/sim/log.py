"""A partitioned log: what producers append, what a consumer fetches, and offsets at which there is nothing.

Each partition is a cell: its entries from offset 0 on. An entry is a record, or a hole: a control record (the mark of a
transaction), or what compaction has removed. No consumer ever sees a hole, and no offset is ever used again, so the
offsets that a consumer sees grow, and not by one each.

    Append   a record goes to the end; replies its offset. Sent twice, it is there twice: producers are not idempotent here
    Pause    a consumer gets no records of the partition until it resumes it, or gets it anew, or starts again; what it has
             fetched it has
    Resume

    world = begun(0, b"k", None, CONTROL, b"k")      # four offsets: two records of one key, one without, one hole
    actors = (..., Compaction(numbers=(0,)))         # a step removes a record that has a later one of its key

A topic may be deleted, and made anew with other records (`made_anew` counts that): `tidegate.sim.group.Recreation`.

Laws
    LO1  What is fetched are the records from the position on, in order, none twice, holes left out.
    LO2  In one life, an offset never holds another record than before; it may come to hold none.
    LO3  Compaction leaves the last record of each key, and every record without a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, unique
from functools import lru_cache
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.commands import Key, Records
from tidegate.model.effects import Effect
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_type
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.world import CELLS_KEPT, Cell, Outcomes, Plain, World, paused, unpaused

__all__ = [
    "CONTROL", "Append", "Compaction", "Entries", "Hole", "LogEntry", "Pause", "Resume", "begun", "fetched", "log",
    "made_anew", "paused", "perform_on_log",
]  # fmt: skip


@final
@unique
class Hole(Enum):
    """An offset at which there is nothing to tell."""

    CONTROL = "control"
    """The mark of a transaction."""
    COMPACTED = "compacted"
    """There was a record, and a later one of its key."""


CONTROL: Final = Hole.CONTROL
LogEntry: TypeAlias = Key | Hole
Entries: TypeAlias = tuple[LogEntry, ...]


@lru_cache(CELLS_KEPT)
def log(partition: int) -> Cell[Entries]:
    """The entries of the partition, the key of each record."""
    return Cell(("log", str(partition)), ())


@lru_cache(CELLS_KEPT)
def made_anew(partition: int) -> Cell[int]:
    """How often it was made anew."""
    return Cell(("life", str(partition)), 0)


def begun(partition: int, *entries: LogEntry, world: Plain | None = None) -> Plain:
    """A world in which the partition holds that."""
    for entry in entries:
        check_type(entry, (bytes, Hole, NoneType), "the key of a record", 'write b"key", None or CONTROL')
    return (world or Plain()).write(log(partition), entries)


def fetched(entries: Entries, position: int, most: int) -> Records | None:
    """The next records from the position on, up to a number; None while there are none."""
    found = [(at, key) for at, key in enumerate(entries) if at >= position and not isinstance(key, Hole)][:most]
    return Records(tuple(at for at, _ in found), tuple(key for _, key in found)) if found else None


# --- what is asked of it ------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Append(Effect[int]):
    """Append a record of that key; replies its offset."""

    partition: TopicPartition
    key: Key = None

    def __attrs_post_init__(self) -> None:
        check_type(self.partition, TopicPartition, "a partition of a topic")
        check_type(self.key, (bytes, NoneType), "the key of a record", 'write b"key"')

    def __str__(self) -> str:
        return f"append to {self.partition}" + ("" if self.key is None else f" with key {self.key!r}")


@final
@attrs.frozen(cache_hash=True)
class Pause(Effect[None]):
    """Get no more records of the partition."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"pause {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Resume(Effect[None]):
    """Get records of the partition again."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"resume {self.partition}"


def perform_on_log(effect: Append | Pause | Resume, world: World, who: str) -> Outcomes:
    """What it means."""
    number = effect.partition.partition
    match effect:
        case Append(_, key):
            entries = world.read(log(number))
            yield world.write(log(number), (*entries, key)), len(entries)
        case Pause():
            waits = paused(who)
            yield world.write(waits, tuple(sorted({*world.read(waits), number}))), None
        case Resume():
            yield unpaused(world, who, number), None


@final
@attrs.frozen(eq=False)
class Compaction:
    """Removes records that have a later one of their key, one after the other, at any time; the newest one stays."""

    numbers: tuple[int, ...]
    name: str = "compaction"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        for number in self.numbers:
            entries = world.read(log(number))
            for at, key in enumerate(entries):
                if isinstance(key, bytes) and key in entries[at + 1 :]:
                    left = (*entries[:at], Hole.COMPACTED, *entries[at + 1 :])
                    yield ActorStep(Label(f"removes {number}@{at}"), world.write(log(number), left), must=False)
