"""Laws in a search: each is remembered, and run once per distinct value of the bits that it has been seen to look at.

always, eventually   judged a layer at a time (`Always`), the latter over the states at rest
step                 judged when a step is learned, where it touches what the law looks at (`Between`). What that is
must be known before: so each is also run on (state, state) for all states, where it must hold,
and if its footprint grows late, the search starts again (`Grew`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar, final

import attrs

from tidegate.sim.automaton import Raised
from tidegate.sim.packing import Lens, Looked, Packed
from tidegate.sim.scenario import Law, ProcessActor, StepLaw
from tidegate.sim.trace import Breach
from tidegate.sim.world import Cell

if TYPE_CHECKING:
    from tidegate.sim.search import Search

V = TypeVar("V")

NO_ERROR: Final = "no program raises an error"


@final
@attrs.frozen(eq=False)
class View:
    """What a law sees: the cells, and where processes stand."""

    lens: Lens
    processes: Mapping[str, ProcessActor]

    def read(self, cell: Cell[V]) -> V:
        return self.lens.read(cell)

    def status(self, process: str) -> object:
        actor = self.processes[process]
        assert actor.place is not None
        return actor.status(self.lens.read(actor.place))


@final
@attrs.define(eq=False)
class Always:
    """A predicate over states, run once per distinct value of the bits that it has been seen to look at."""

    name: str
    holds: Callable[[View], bool]
    search: Search
    looked: Looked = attrs.field(factory=Looked)
    good: set[int] = attrs.field(factory=set)

    def broken_by(self, states: list[Packed]) -> Packed | None:
        """The first of the states that breaks it."""
        mask = -1
        while mask != self.looked.bits:  # again if it looked at something new
            mask = self.looked.bits
            fresh = {state & mask for state in states} - self.good
            for state in states if fresh else ():
                if state & mask in fresh and state & self.looked.bits not in self.good:
                    if not self.holds(self.search.view(state, self.looked)):
                        return state
                    self.good.add(state & self.looked.bits)
        return None


@final
class Grew(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step law looks at more than was known when steps were learned: start again."""


@final
class BrokenStep(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step breaks a law. Its arguments: the law, the state before, the state after."""


@final
class Between:
    """A step law: a predicate over the states before and after a step."""

    def __init__(self, name: str, holds: StepLaw, search: Search, footprint: Looked) -> None:
        self.name, self.holds, self.search, self.footprint = name, holds, search, footprint
        self.unchanged = Always(name, lambda view: holds(view, view), search, footprint)
        self.looked = Looked()
        self.good: set[tuple[int, int]] = set()

    def judge(self, before: Packed, after: Packed, looked: Looked) -> None:
        """Judge one step, where it touches the footprint; what was looked at is added to `looked`."""
        if not (before ^ after) & self.footprint.bits:
            return
        mask = self.looked.bits
        if (before & mask, after & mask) not in self.good:
            if not self.holds(self.search.view(before, self.looked), self.search.view(after, self.looked)):
                raise BrokenStep(self.name, before, after)
            self.good.add((before & self.looked.bits, after & self.looked.bits))
        looked.bits |= self.looked.bits


@final
@attrs.frozen
class Broken:
    """A law is broken.

    Attributes:
        law: Its name.
        path: The states on a shortest way there.
        breach: In which way, where the kind of law does not say.
        why: Who waits, or goes round for ever; "" where the states say all.
        loop: How many of the last steps repeat for ever; 0 if the run ends.
    """

    law: str
    path: tuple[Packed, ...]
    breach: Breach | None = None
    why: str = ""
    loop: int = 0


def raises_nothing(process: str) -> Law:
    return lambda state: not isinstance(state.status(process), Raised)


def negated(holds: Law) -> Callable[[View], bool]:
    return lambda view: not holds(view)
