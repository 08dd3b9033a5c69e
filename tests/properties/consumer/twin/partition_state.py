"""What is known of one partition: that it is not ours, or what of it is queued, in work, done and failed.

`tidegate.consumer.partition` makes these values, and nobody else.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import TypeAlias, final

import attrs
from tests.properties.consumer.twin.commands import Command
from tests.properties.consumer.twin.outstanding import AllAsked

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import Free, Load, PartitionHold
from tidegate.consumer.commit_metadata import Alphabet, Survey
from tidegate.consumer.drain import InFlight, Stage
from tidegate.consumer.fanout import Fanout, Start
from tidegate.consumer.watermark import OffsetTracker, done_offsets
from tidegate.model.documents import show
from tidegate.model.instants import Duration
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step


@final
@unique
class Phase(StrEnum):
    """How an owned partition is doing."""

    FLOWING = "flowing"
    """Records are fetched and worked on."""
    STOPPED = "stopped"
    """A failure stands: nothing new is taken."""
    DRAINING = "draining"
    """It is revoked: what is in work may end."""


@final
@attrs.frozen
class Unassigned:
    """It is not ours."""

    def __str__(self) -> str:
        return "unassigned"


@final
@attrs.frozen
class Owned:
    """It is ours.

    Invariants: what is queued, in work or failed is open in the tracker; committing is not below the tracker's floor.

    Attributes:
        partition: Which one.
        generation: Of this assignment.
        phase: How it is doing.
        tracker: What was delivered, and what of it is done.
        queued: Offsets that wait to be taken in a window, in order.
        windows: What is in work.
        ready: Tasks that wait for an executor, in order.
        backing_off: Tasks that have failed, and wait until they are tried again.
        asked: What user code was asked for.
        running: How many tasks run.
        failed: Offsets of records whose failure stands, or that are not settled without one of these, in order.
        keys: The keys of what is queued or in work, by offset, where the order depends on them.
        closed: The keys whose rest is held back or diverted.
        fetching: The position of the fetch in flight.
        committing: The position of the commit in flight.
        commit_failures: How many commits in a row had no answer.
        commit_backs_off: Whether the next one waits for that.
        alphabet: In which letters to write the metadata of commits; None if the broker takes none.
        unrecorded: How many offsets were completed since the last commit was made.
        size: How many bytes the undone records take, as last measured.
        age: How long ago the oldest undone one came, likewise.
        hold: Whether it is held on its own account.
        stage: Of draining.
        in_flight: What was known of the records in work when it was revoked.
        survey: Of the tracker, for the size of the metadata; it follows from the tracker.
    """

    partition: TopicPartition
    generation: int
    phase: Phase
    tracker: OffsetTracker
    queued: tuple[int, ...] = ()
    windows: Fanout = Fanout()
    ready: tuple[Start, ...] = ()
    backing_off: tuple[Start, ...] = ()
    asked: AllAsked = ()
    running: int = 0
    failed: tuple[int, ...] = ()
    keys: tuple[tuple[int, bytes], ...] = attrs.field(default=(), repr=False)
    closed: frozenset[bytes] = attrs.field(default=frozenset(), repr=False)
    fetching: int | None = None
    committing: int | None = None
    commit_failures: int = 0
    commit_backs_off: bool = False
    alphabet: Alphabet | None = None
    unrecorded: int = 0
    size: int = 0
    age: Duration = 0
    hold: PartitionHold = Free()
    stage: Stage = Stage.WAITING
    in_flight: tuple[InFlight, ...] = ()
    survey: Survey | None = attrs.field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        parts = [f"{self.phase.value} (generation {self.generation}), floor {self.tracker.floor}"]
        lists = (
            ("queued", self.queued),
            ("in work", fanout.records(self.windows)),
            ("failed", self.failed),
            ("done", done_offsets(self.tracker)),
        )
        parts += [f"{name} {show(offsets)}" for name, offsets in lists if offsets]
        return ", ".join([*parts, *(() if self.committing is None else (f"committing {self.committing}",))])

    @property
    def load(self) -> Load:
        """The records that were delivered and are not settled, without those for which nothing is under way any more."""
        waiting = (*self.ready, *self.backing_off)
        active = {each.work.request.window for each in self.asked} | {start.window for start in waiting}
        return Load(waiting=len(self.queued)) + fanout.load(self.windows, active)


PartitionState: TypeAlias = Unassigned | Owned


PartitionStep: TypeAlias = Step[PartitionState, Command]
