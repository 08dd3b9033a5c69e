"""Fusion: steps that concern nobody else are taken at once, so that the search does not see them interleaved.

A step is private where nobody else changes what it looks at, and nobody else looks at what it changes: no other actor, no
law over states or steps, and no goal. Where it stands in the order of events then makes no difference to anyone, so the search
takes it together with the step before it. After ample sets (Peled 1993; SPIN), which our private steps are: whoever has
one has no other step just then.

What somebody looks at is observed while the search runs, as everything here is. So a step is thought to be private until
somebody is seen to look where it was taken; then the search starts again and knows (`Grew`).

Laws
    FU1  A state at rest is found by the fused search exactly if the plain one finds it.
    FU2  A law over states, over steps, or over states at rest is broken in the one exactly if it is broken in the other.
    FU3  A goal is reached in the one exactly if it is reached in the other.
    FU4  What the fused search tells as a run is a run, step by step.

Not private is
    - a step beside which there is another one of the same actor that need not happen, such as a fault: while a process may
      crash, it matters when. A budget that is used up can be looked at by all, for it only falls;
    - a step on anything in which there is an instant, where time is relative: the clock moves it;
    - a step that leads back to where private steps came from: what goes round for ever must leave room for others.

Known not to work: a law about cycles (a livelock) needs the steps in between, so it is judged without fusion. The way to a
broken law is a shortest one in fused steps only, so it is looked for again without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias, final

import attrs

from tidegate.sim.judging import Grew
from tidegate.sim.packing import Looked, Packed
from tidegate.sim.space import KnownSteps, Space, Stepper
from tidegate.sim.world import BUDGET

__all__ = ["LAWS", "Fusion", "Looks", "Own", "unfused"]


LAWS: Final = "laws"
_CHAIN_MAX: Final = 1_000

Own: TypeAlias = tuple[KnownSteps, int]
"""An actor's own steps, and the bits that it looked at."""


class _Alone(Stepper, Protocol):
    """A stepper that knows an actor's own steps, before private ones are added."""

    def alone(self, state: Packed) -> Own: ...


@final
@attrs.define
class Looks:
    """What somebody was seen to look at, and which bits were seen to change by it. Whoever writes looks as well."""

    at: int = 0
    changes: int = 0

    def meets(self, other: Looks) -> bool:
        """Does one change what the other looks at? Looking at the same thing does not matter."""
        return bool(self.at & other.changes or self.changes & other.at)

    def add(self, other: Looks) -> bool:
        """Was any of it new?"""
        before = (self.at, self.changes)
        self.at |= other.at
        self.changes |= other.changes
        return before != (self.at, self.changes)


@final
class Fusion:
    """What is private in one search.

    Args:
        space: In which the steps are taken.
        looks: What each actor was seen to look at, in earlier searches too.
    """

    def __init__(self, space: Space, looks: dict[str, Looks]) -> None:
        self.kinds, self.looks = space.kinds, looks
        self.budgets = [slot for slot in space.packing.slots.values() if slot.name[0] == BUDGET]
        self.taken: dict[str, Looks] = {}
        self.shared: set[tuple[str, Packed]] = set()

    def saw(self, who: str, at: int, changes: int) -> None:
        """Somebody looks there, and changes that.

        Raises:
            Grew: private steps of another one were taken there.
        """
        looks = Looks(at, changes)
        is_new = self.looks.setdefault(who, Looks()).add(looks)
        if is_new and any(taken.meets(looks) for name, taken in self.taken.items() if name != who):
            raise Grew

    def saw_steps(self, who: str, state: Packed, at: int, successors: Iterable[Packed]) -> None:
        """Somebody has taken steps from the state."""
        self.saw(who, at & ~self.used_up(state), _changed(state, successors))

    def fused(self, stepper: _Alone, state: Packed, entry: KnownSteps, looked: Looked) -> KnownSteps:
        """The same steps, each as many times as it has ends, and to there; what is looked at on the way is added."""
        kind, steps = entry
        ends = [self.ends(stepper, state + step, looked) for step in steps]
        if all(len(each) == 1 for each in ends):
            reached = tuple([end - state for (end,) in ends])
            return entry if reached == steps else (kind, reached)  # mostly it is the same, and then one is kept
        faults = tuple([fault for fault, each in zip(self.kinds.faults[kind], ends, strict=True) for _ in each])
        musts = tuple([must for must, each in zip(self.kinds.musts[kind], ends, strict=True) for _ in each])
        return self.kinds.number(faults, musts), tuple([end - state for each in ends for end in each])

    def ends(self, stepper: _Alone, state: Packed, looked: Looked) -> list[Packed]:
        """Where the actor stands when it has taken all of its private steps from the state; what they look at is added."""
        found: dict[Packed, None] = {}
        todo, passed = [state], {state}
        while todo:
            here = todo.pop()
            after = self.private(stepper, here, looked) if len(passed) < _CHAIN_MAX else []
            if not after or not passed.isdisjoint(after):
                found[here] = None
            else:
                passed.update(after)
                todo += after
        return list(found)

    def private(self, stepper: _Alone, state: Packed, looked: Looked) -> list[Packed]:
        """The states after a private step; none if what the actor does next is not private."""
        at = (stepper.name, (state >> stepper.shift) & stepper.low)
        if at in self.shared:
            return []
        (kind, steps), bits = stepper.alone(state)
        if not steps or not all(self.kinds.musts[kind]) or any(self.kinds.faults[kind]):
            return []
        after = list(dict.fromkeys(state + step for step in steps))
        looks = Looks(bits & ~self.used_up(state), _changed(state, after))
        if any(looks.meets(seen) for name, seen in self.looks.items() if name != stepper.name):
            self.shared.add(at)
            return []
        looked.bits |= bits
        self.looks.setdefault(stepper.name, Looks()).add(looks)
        self.taken.setdefault(stepper.name, Looks()).add(looks)
        return after

    def used_up(self, state: Packed) -> int:
        """The bits of budgets of which nothing is left: they stay as they are."""
        return sum(slot.mask for slot in self.budgets if not state & slot.top)


def unfused(steppers: Sequence[Stepper], before: Packed, after: Packed) -> tuple[Packed, ...]:
    """The states in between and the last one, where a fused step leads from one state to the other."""
    ways: list[tuple[Stepper, tuple[Packed, ...]]] = [
        (stepper, (first,)) for stepper in steppers for _, first in stepper.steps(before)
    ]
    for stepper, way in ways:  # which grows on the way
        if way[-1] == after:
            return way
        ways += [(stepper, (*way, further)) for _, further in stepper.steps(way[-1]) if further not in way]
    raise AssertionError("no step leads there")


def _changed(state: Packed, successors: Iterable[Packed]) -> int:
    bits = 0
    for successor in successors:
        bits |= state ^ successor
    return bits
