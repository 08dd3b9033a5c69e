"""The twin's states of one partition."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import TypeAlias, final

import attrs
from tests.properties.consumer.twin.commands import Command
from tests.properties.consumer.twin.outstanding import AllAsked

from tidegate.consumer import fanout
from tidegate.consumer.committing.commit_metadata import Alphabet, Survey
from tidegate.consumer.fanout import Fanout, Start
from tidegate.consumer.flow.backpressure import Free, Load, PartitionHold
from tidegate.consumer.flow.drain import InFlight, Stage
from tidegate.consumer.offsets.watermark import OffsetTracker, done_offsets
from tidegate.model.documents import show
from tidegate.model.instants import Duration
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step


@final
@unique
class Phase(StrEnum):
    FLOWING = "flowing"
    STOPPED = "stopped"
    DRAINING = "draining"


@final
@attrs.frozen
class Unassigned:
    def __str__(self) -> str:
        return "unassigned"


@final
@attrs.frozen
class Owned:
    """Invariant: queued, running and failed records are open in the tracker."""

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
        waiting = (*self.ready, *self.backing_off)
        active = {each.work.request.window for each in self.asked} | {start.window for start in waiting}
        return Load(waiting=len(self.queued)) + fanout.load(self.windows, active)


PartitionState: TypeAlias = Unassigned | Owned


PartitionStep: TypeAlias = Step[PartitionState, Command]
