"""Attempts a search, and repeats it with other settings if the attempt shows the need.

    a value does not fit into its slot          The slot becomes wider.
    a step law reads bits not known before      They are known from then on.
    relative time does not fit                  Time becomes absolute, if the clock has moves
                                                (`tidegate.sim.program.relative_time`).

An attempt keeps only these findings, so the last one is the whole search.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final, TypeVar, final

from tidegate.model.errors import Misuse
from tidegate.model.instants import seconds
from tidegate.sim.program.relative_time import Horizon, InstantRefused
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.properties import Grew
from tidegate.sim.search.search import PLAIN, Reductions, Search
from tidegate.sim.world.packing import NARROW, Looked, Overflow, Packing

_WIDER: Final = 4
T = TypeVar("T")


def attempt(scenario: Scenario, run: Callable[[Search], T], reductions: Reductions = PLAIN) -> T:
    clock = scenario.clock
    attempts = Attempts(scenario, None if clock is None or clock.horizon is not None else "", reductions)
    try:
        while True:
            try:
                return attempts.run(run)
            except InstantRefused as refused:
                attempts = Attempts(scenario, why_absolute(scenario, refused), reductions)
    finally:
        let_go(scenario)


def let_go(scenario: Scenario) -> None:
    """Close suspended programs. Dropping one that awaits in a `finally` would cause warnings."""
    for automaton in chain.from_iterable(getattr(actor, "automata", ()) for actor in scenario.actors):
        automaton.let_go()


@final
class Attempts:
    """Searches of one scenario in one kind of time. Each is reused until slots or footprints must
    grow.

    Args:
        absolute: The reason for absolute time ("" if by choice); None for relative time.
    """

    def __init__(self, scenario: Scenario, absolute: str | None, reductions: Reductions = PLAIN) -> None:
        self.scenario, self.absolute, self.reductions = scenario, absolute, reductions
        budgets = scenario.allowance().items()
        self.widths = {budget.name: left.bit_length() + 1 if left else 0 for budget, left in budgets}
        self.packing = self.new_packing()
        self.footprints: dict[str, Looked] = {}
        self.search: Search | None = None

    def run(self, run: Callable[[Search], T]) -> T:
        """Run it, and repeat it in a wider search if this one does not fit.

        Raises:
            InstantRefused: Relative time forbids a use of an instant.
        """
        while True:
            try:
                if self.search is None:
                    self.search = Search(
                        self.scenario, self.packing, self.footprints, absolute=self.absolute, reductions=self.reductions
                    )
                return run(self.search)
            except Grew:
                self.search = None
            except Overflow:
                slots = self.packing.slots.values()
                self.widths |= {slot.name[:1]: NARROW for slot in slots if slot.is_full and slot.width < NARROW}
                self.widths |= {slot.name: slot.width + _WIDER for slot in slots if slot.is_filling}
                self.packing, self.footprints, self.search = self.new_packing(), {}, None

    def new_packing(self) -> Packing:
        clock = self.scenario.clock
        horizon = None if clock is None or self.absolute is not None else clock.horizon
        return Packing(dict(self.widths), None if horizon is None else Horizon(horizon))


def why_absolute(scenario: Scenario, refused: InstantRefused) -> str:
    """Why the scenario must run in absolute time.

    Raises:
        Misuse: It cannot.
    """
    if scenario.clock is None or not scenario.clock.moves:
        raise Misuse(
            f"relative time does not fit: {refused}",
            where=f"scenario {scenario.name}",
            why="so time is absolute, and the clock has no moves",
            todo=f"{refused.todo}; or give the clock moves (docs/time.md)",
        ) from refused
    return f", for {refused}"


def timing(search: Search) -> str:
    clock = search.scenario.clock
    if clock is None:
        return "time stands"
    if search.space.relative:
        return f"relative time, quantum {seconds(clock.quantum)}"
    return f"absolute time, {clock.moves} moves of {seconds(clock.quantum)}{search.space.absolute}"
