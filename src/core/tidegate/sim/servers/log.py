"""A partitioned log: appends by producers, fetches by a consumer, and offsets without a record.

Each partition is a cell with its entries from offset 0. An entry is a record or a hole: a control
record (a transaction marker), or a compacted record. A consumer never sees holes, and offsets are
never reused. So the offsets seen by a consumer grow, with gaps.

    Append   Adds a record at the end; replies its offset. Sent twice, the record is there twice:
             producers are not idempotent here.
    Pause    The consumer gets no records of the partition until it resumes it, is assigned it
             again, or restarts. It keeps records already fetched.
    Resume

    world = begun(0, b"k", None, CONTROL, b"k")      # 2 records of one key, 1 without, 1 hole
    actors = (..., Compaction(numbers=(0,)))         # removes older records of a key

A topic may be deleted and recreated with other records (`made_anew` counts that):
`tidegate.sim.servers.group.Recreation`.

Laws
    LO1  A fetch returns the records from the position on, in order, each once, without holes.
    LO2  In one life, an offset never gets another record; it may become empty.
    LO3  Compaction keeps the last record of each key, and every record without a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, unique
from functools import lru_cache
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.protocol.commands import Key, Records
from tidegate.model.effects import Effect
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_type
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.world.world import CELLS_KEPT, Cell, Outcomes, Plain, World, paused, unpaused

__all__ = [
    "CONTROL", "Append", "Compaction", "Entries", "Hole", "LogEntry", "Pause", "Resume", "begun", "fetched", "log",
    "made_anew", "paused", "perform_on_log",
]  # fmt: skip


@final
@unique
class Hole(Enum):
    """An offset without a record."""

    CONTROL = "control"
    """A transaction marker."""
    COMPACTED = "compacted"
    """A compacted record: a later one has its key."""


CONTROL: Final = Hole.CONTROL
LogEntry: TypeAlias = Key | Hole
Entries: TypeAlias = tuple[LogEntry, ...]


@lru_cache(CELLS_KEPT)
def log(partition: int) -> Cell[Entries]:
    return Cell(("log", str(partition)), ())


@lru_cache(CELLS_KEPT)
def made_anew(partition: int) -> Cell[int]:
    """How often the partition was recreated."""
    return Cell(("life", str(partition)), 0)


def begun(partition: int, *entries: LogEntry, world: Plain | None = None) -> Plain:
    for entry in entries:
        check_type(entry, (bytes, Hole, NoneType), "the key of a record", 'write b"key", None or CONTROL')
    return (world or Plain()).write(log(partition), entries)


def fetched(entries: Entries, position: int, most: int) -> Records | None:
    """The next records from the position, up to `most`; None if there are none."""
    found = [(at, key) for at, key in enumerate(entries) if at >= position and not isinstance(key, Hole)][:most]
    return Records(tuple(at for at, _ in found), tuple(key for _, key in found)) if found else None


# --- effects --------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Append(Effect[int]):
    """Append a record with that key; replies its offset."""

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
    """Stop fetching records of the partition."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"pause {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Resume(Effect[None]):
    """Fetch records of the partition again."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"resume {self.partition}"


def perform_on_log(effect: Append | Pause | Resume, world: World, who: str) -> Outcomes:
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
    """Removes records that have a later one of their key, one at a time, at any time."""

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
