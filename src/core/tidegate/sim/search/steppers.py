"""Steppers: an actor each, with a memory of its steps; only a gap in it touches Python objects.

A step of the search masks, looks up and adds. The memory depends on the actor's reads:
    Remembering  by the bits that its `steps` read, for each value of its place
    Overwriting  an actor that writes without reading (a crash): the bits to clear and to set
    Aging        relative time: moves all instants, by a sum of one remembered difference per slot

The step laws check a step when it is learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast, final

from tidegate.model.instants import seconds
from tidegate.sim.program.relative_time import InstantRefused, aged
from tidegate.sim.scenario import CLOCK_LANE, Actor, ActorStep, Clock, Label
from tidegate.sim.search.properties import Between, judge_steps
from tidegate.sim.search.space import IDLE, KnownSteps, Space, in_order, remembered
from tidegate.sim.world.packing import Lens, Looked, Packed, Slot
from tidegate.sim.world.world import BUDGET, CLOCK, IDS, LIFE, QUANTUM

UNAGED: Final = frozenset({BUDGET, IDS, LIFE, CLOCK.name[0], QUANTUM.name[0]})
"""Kinds of cells without instants."""

_StepLaws: TypeAlias = Sequence[Between]


@final
class Remembering:
    """An actor whose steps are remembered by the bits that they read."""

    def __init__(self, actor: Actor, space: Space, laws: _StepLaws) -> None:
        self.actor, self.name = actor, actor.name
        self.space, self.laws = space, laws
        slot = None if actor.place is None else space.packing.slot(actor.place)
        self.shift, self.low = (slot.shift, slot.low) if slot else (0, 0)
        self.masks: list[int] = []
        self.memo: dict[int, KnownSteps] = {}
        self.own_masks: dict[int, int] = {}
        self.own: dict[int, tuple[KnownSteps, int]] = {}

    def learn(self, state: Packed) -> KnownSteps:
        entry, bits = self.own_steps(state)
        looked = Looked(bits)
        judge_steps(self.laws, state, [state + step for step in entry[1]], looked)
        at = (state >> self.shift) & self.low
        self.masks += [self.low << self.shift] * (at + 64 - len(self.masks))
        self.masks[at] |= looked.bits
        self.memo[state & self.masks[at]] = entry
        return entry

    def own_steps(self, state: Packed) -> tuple[KnownSteps, int]:
        """The steps and the bits that they depend on; kept apart, because step laws read more."""
        at, place = (state >> self.shift) & self.low, self.low << self.shift
        mask = self.own_masks.get(at, place)
        known = self.own.get(state & mask) if self.laws else None
        if known is None:
            looked = Looked(place)
            known = self.space.entry(state, list(self.looking(state, looked))), looked.bits
            if self.laws:
                mask = self.own_masks[at] = mask | looked.bits
                self.own[state & mask] = known
        return known

    def unjudged(self, state: Packed) -> KnownSteps:
        """The steps without a check of step laws."""
        return self.own_steps(state)[0] if self.laws else remembered(self, state)

    def looking(self, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        return self.space.steps(self.actor, state, looked)

    def steps(self, state: Packed) -> Iterator[tuple[ActorStep, Packed]]:
        return self.looking(state, Looked())


@final
class Overwriting(dict[int, KnownSteps]):
    """An actor that overwrites cells without a read; it remembers the bits to clear and to set."""

    def __init__(self, actor: Actor, space: Space, laws: _StepLaws) -> None:
        super().__init__()
        self.actor, self.name = actor, actor.name
        self.space, self.laws = space, laws
        # The only mask has all bits: the key is the whole state. The memo is this empty dictionary,
        # which computes missing keys. So the search loop treats all steppers alike.
        self.masks, self.shift, self.low = [-1], 0, 0
        self.looked = Looked()
        self.known: dict[int, tuple[int, tuple[tuple[int, Packed], ...]]] = {}

    @property
    def memo(self) -> Mapping[int, KnownSteps]:
        return self

    def learn(self, state: Packed) -> KnownSteps:
        entry = self.unjudged(state)
        if self.laws and entry[1]:
            judge_steps(self.laws, state, [state + step for step in entry[1]], Looked())
        return entry

    def unjudged(self, state: Packed) -> KnownSteps:
        kind, writes = self.known.get(state & self.looked.bits) or self.look(state)
        return (kind, tuple([put - (state & wrote) for wrote, put in writes])) if writes else IDLE

    def look(self, state: Packed) -> tuple[int, tuple[tuple[int, Packed], ...]]:
        taken = list(self.actor.steps(Lens(self.space.packing, state, self.looked, blind=True)))
        kind = self.space.kinds.number(tuple([step.fault for step in taken]), tuple([step.must for step in taken]))
        lenses = [cast("Lens", step.world) for step in taken]
        writes = tuple([(after.wrote, after.state & after.wrote) for after in lenses])
        found = self.known[state & self.looked.bits] = (kind, writes)
        return found

    __missing__ = learn  # stores nothing: each whole state is looked up once

    def looking(self, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        return self.space.steps(self.actor, state, looked)

    def steps(self, state: Packed) -> Iterator[tuple[ActorStep, Packed]]:
        return self.looking(state, Looked())


@final
class Aging(dict[int, KnownSteps]):
    """Relative time passes: every instant, in cells and in processes, moves back by a quantum."""

    def __init__(self, clock: Clock, space: Space, laws: _StepLaws) -> None:
        super().__init__()
        assert clock.horizon is not None
        self.quantum, self.horizon, self.name = clock.quantum, clock.horizon, CLOCK_LANE
        self.space, self.laws = space, laws
        self.masks, self.shift, self.low = [-1], 0, 0  # all bits: the key is the whole state, as in `Overwriting`
        self.tables: list[tuple[int, int, dict[int, int], Slot]] = []
        self.seen = 0

    @property
    def memo(self) -> Mapping[int, KnownSteps]:
        return self

    def learn(self, state: Packed) -> KnownSteps:
        entry = self.unjudged(state)
        for law in self.laws:
            law.judge_time(state, state + sum(entry[1]))
        return entry

    def unjudged(self, state: Packed) -> KnownSteps:
        difference = self.later(state)
        return (self.space.kinds.number((None,), (True,)), (difference,)) if difference else IDLE

    def later(self, state: Packed) -> int:
        slots = self.space.packing.slots
        if self.seen != len(slots):
            new = list(slots.values())[self.seen :]
            self.tables += [(slot.shift, slot.low, {0: 0}, slot) for slot in new if slot.name[0] not in UNAGED]
            self.seen = len(slots)
        difference = 0
        for shift, low, table, slot in self.tables:
            at = (state >> shift) & low
            difference += table[at] if at in table else self.age(table, slot, at)
        return difference

    def age(self, table: dict[int, int], slot: Slot, at: int) -> int:
        try:
            older = aged(slot.values[at], self.quantum, self.horizon)
        except InstantRefused as refused:
            raise refused.of(f"the cell {'/'.join(slot.name)}", "") from None
        table[at] = slot.put(0, in_order(slot.name[0], older)) - (at << slot.shift)
        return table[at]

    __missing__ = learn

    def looking(self, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:  # noqa: ARG002  at all of it
        difference = self.later(state)
        if difference:
            passed = ActorStep(
                Label(f"{seconds(self.quantum)} pass"), Lens(self.space.packing, state + difference, Looked())
            )
            yield passed, state + difference

    def steps(self, state: Packed) -> Iterator[tuple[ActorStep, Packed]]:
        return self.looking(state, Looked())
