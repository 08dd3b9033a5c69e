"""Evaluates laws in a search, once per distinct value of the bits that each law was seen to read.

always, eventually   Judged a layer at a time (`Always`); the latter at states at rest.
step                 Judged when a step is learned, if it touches bits that the law reads
                     (`Between`). These must be known before. So each law also runs on (state,
                     state) for all states, where it must hold. If its footprint grows late, the
                     search starts again (`Grew`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import CoroutineType
from typing import final

import attrs

from tidegate.model.errors import ControlFlow, Misuse, TidegateError, shown
from tidegate.sim.program.automaton import Raised
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.program.source_locations import told, used_at
from tidegate.sim.scenario import Law, StepLaw, parts_of
from tidegate.sim.search.space import Space, View
from tidegate.sim.trace.trace import Breach
from tidegate.sim.world.packing import Looked, Packed


@final
@attrs.define(eq=False)
class Always:
    """A predicate over states, evaluated once per distinct value of the bits it was seen to
    read.
    """

    name: str
    holds: Law
    space: Space
    looked: Looked = attrs.field(factory=Looked)
    good: set[int] = attrs.field(factory=set)

    def broken_by(self, states: list[Packed]) -> Packed | None:
        mask = -1
        while mask != self.looked.bits:
            mask = self.looked.bits
            fresh = {state & mask for state in states} - self.good
            for state in states if fresh else ():
                if state & mask in fresh and state & self.looked.bits not in self.good:
                    view = self.space.view(state, self.looked)
                    if not judged(self.name, partial(self.holds, view), self.space):
                        return state
                    self.good.add(state & self.looked.bits)
        return None


@final
class Grew(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step law reads bits unknown when steps were learned: start again."""


@final
class BrokenStep(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step breaks a law. Its arguments: the law, the state before, the state after."""


@final
class Between:
    """A step law: a predicate over the states before and after a step."""

    def __init__(self, name: str, holds: StepLaw, space: Space, footprint: Looked) -> None:
        self.name, self.holds, self.space, self.footprint = name, holds, space, footprint
        self.unchanged = Always(name, lambda view: holds(view, view), space, footprint)
        self.looked = Looked()
        self.good: set[tuple[int, int]] = set()
        self.good_later: set[tuple[int, int]] = set()

    def judge(self, before: Packed, after: Packed, looked: Looked) -> None:
        """Judge a step that touches the footprint; adds the bits read to `looked`.

        Raises:
            BrokenStep: The step breaks the law.
        """
        if (before ^ after) & self.footprint.bits:
            self.judge_views(before, after, self.space.view(after, self.looked), self.good)
            looked.bits |= self.looked.bits

    def judge_time(self, before: Packed, after: Packed) -> None:
        """Judge a step in which relative time passes.

        Raises:
            BrokenStep: The step breaks the law.
            InstantRefused: The same, but no state changes, so there is no step.
        """
        try:
            self.judge_views(before, after, self.space.later(before, self.looked), self.good_later)
        except BrokenStep:
            if before == after:
                raise InstantRefused(f"the law {self.name!r} looks at how time passes", "judge a change") from None
            raise

    def judge_views(self, before: Packed, after: Packed, seen: View, good: set[tuple[int, int]]) -> None:
        mask = self.looked.bits
        if (before & mask, after & mask) in good:
            return
        if not judged(self.name, lambda: self.holds(self.space.view(before, self.looked), seen), self.space):
            raise BrokenStep(self.name, before, after)
        good.add((before & self.looked.bits, after & self.looked.bits))


def judge_steps(laws: Iterable[Between], before: Packed, successors: Iterable[Packed], looked: Looked) -> None:
    """Judge the steps from a state; adds the bits read to `looked`.

    Raises:
        BrokenStep: A step breaks a law.
    """
    for law in laws:
        for after in successors:
            law.judge(before, after, looked)


@final
@attrs.frozen
class Broken:
    """A broken law.

    Attributes:
        path: The states on a shortest path there.
        breach: How it is broken, if the kind of law leaves that open.
        why: The waiting or looping processes; "" if the states suffice.
        loop: The number of final steps that repeat for ever; 0 if the run ends.
    """

    law: str
    path: tuple[Packed, ...]
    breach: Breach | None = None
    why: str = ""
    loop: int = 0


def raises_nothing(process: str) -> Law:
    return lambda state: not isinstance(state.status(process), Raised)


def negated(name: str, holds: Law | tuple[Law, ...]) -> Law:
    return lambda view: not all(answered(name, part(view)) for part in parts_of(holds))


def judged(law: str, ask: Callable[[], object], space: Space) -> bool:
    """The answer of a law.

    Raises:
        InstantRefused: Relative time forbids a use of an instant.
        Exception: An error of the law, with a note that names it.
    """
    try:
        answer = answered(law, ask())
        if space.packing.horizon is not None:
            space.packing.horizon.check()
    except InstantRefused as refused:
        if space.packing.horizon is not None:
            space.packing.horizon.refused = None
        raise refused.of(f"the law {law!r}", used_at(refused)) from refused
    except Exception as error:
        error.add_note(f"in the law {law!r}")
        if isinstance(error, TidegateError):
            error.where = error.where or used_at(error)
        raise
    except (KeyboardInterrupt, ControlFlow):
        raise
    except BaseException as error:
        raise Misuse(
            f"the law {law!r} raised {told(error)}",
            where=used_at(error),
            why="a law answers a bool, and what is no Exception would end more than the search",
            todo="catch it in the law",
        ) from error
    return answer


def answered(law: str, answer: object) -> bool:
    """The answer of a law.

    Raises:
        Misuse: It is not a bool: a coroutine, for example, would always count as true.
    """
    if answer is True or answer is False:
        return answer
    if isinstance(answer, CoroutineType):
        answer.close()  # never awaited, on purpose: avoid the warning
    raise Misuse(
        f"the law {law!r} answered {shown(answer)}",
        why="a law answers a bool: anything else would count as true or false whatever it is about",
        todo="write a plain `def` that returns True or False; wrap what it yields in all(...) or any(...)",
    )
