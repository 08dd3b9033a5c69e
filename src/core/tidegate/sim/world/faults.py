"""The kinds of faults, each with a one-line meaning, and their budgets.

Each fault spends one of the scenario's budget, and one of its kind's if the kind has a bound. So
the search covers every run with up to that many faults. A scenario can allow two faults of which at
most one is a crash.

A budget is a cell whose number only falls. Code only takes from it (`taken`) and never reads it. A
step depends only on whether any is left, so one remembered step serves for all amounts. A kind
without a bound has no cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from functools import cache
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.model.values import check_callable, check_type
from tidegate.sim.world.world import BUDGET, UNBOUNDED, Cell, World


@final
@unique
class Fault(StrEnum):
    """What may go wrong, one line each."""

    CRASH_BEFORE = "crash_before"
    """The process dies before its next effect; with `late`, also with a request in flight (two faults)."""
    CRASH_AFTER = "crash_after"
    """The process dies after its last effect, before anyone knows its result."""
    RESTART = "restart"
    """A dead process may restart with new request ids; `comes_back=True` always restarts it."""
    UNSENT = "unsent"
    """The request was never sent, and the caller knows it (NotApplied)."""
    DROPPED = "dropped"
    """The request is lost; the caller cannot tell (Ambiguous)."""
    LOST_REPLY = "lost_reply"
    """The request takes effect, a majority has it, and its reply is lost (Ambiguous)."""
    PARTLY_DONE = "partly_done"
    """A write of many documents ends after any part of them; its reply is lost (Ambiguous)."""
    NOT_DURABLE = "not_durable"
    """The write takes effect, and no majority confirms it (NotDurable)."""
    ROLLED_BACK = "rolled_back"
    """A failover rolls back writes that no majority has; a find shows them until then."""
    LATE = "late"
    """The caller gives up (Ambiguous); the request takes effect at any later point."""
    DUPLICATE = "duplicate"
    """The request is delivered twice, the second time at any later point; that reply is lost."""
    STALL = "stall"
    """The process pauses beyond a lease or a timer, and then continues."""
    CANCELLED = "cancelled"
    """The await is cancelled: the program is closed, and its request may take effect."""
    CLOCK_FORWARD = "clock_forward"
    """The clock of one machine was set forward since it was last read."""
    CLOCK_BACK = "clock_back"
    """The clock of one machine was set back since it was last read."""
    SKEW = "skew"
    """The clock of one machine is ahead or behind from the beginning."""
    STALE_READ = "stale_read"
    """A lagging member answers a find with the store as before one of the newest writes."""
    REBALANCE = "rebalance"
    """The group reassigns its partitions, for no reason visible to its members."""
    EVICTED = "evicted"
    """A group evicts a member that stalls beyond its session; the member works on."""
    COMMIT_REFUSED = "commit_refused"
    """The broker refuses a commit."""
    HISTORY_LOST = "history_lost"
    """The store forgets the oldest changes: a stream cannot resume from a position before them."""
    FAILED = "failed"
    """User code raises."""
    NEVER_RETURNS = "never_returns"
    """User code never returns."""
    SINK_FAILED = "sink_failed"
    """A sink refuses a delivery of user code."""
    DEAD_LETTER_FAILED = "dead_letter_failed"
    """The dead-letter topic refuses a record."""
    GAVE_UP = "gave_up"
    """The drain timeout ends before the work does."""


FAULTS: Final = Cell[int]((BUDGET, "faults"), 0)

REBALANCES: Final = Cell[int]((BUDGET, "rebalances"), 0)
"""How many rebalances may still begin in a group, outside the total."""


@cache
def bound(kind: Fault) -> Cell[int]:
    """How many faults of this kind may still strike, if it has a bound."""
    return Cell((BUDGET, "faults", kind.value), UNBOUNDED)


def spent(world: World, fault: Fault) -> World | None:
    """The world with one fault fewer left, in total and of its kind; None if none is left."""
    after = world.taken(FAULTS)
    return None if after is None else after.taken(bound(fault))


Which: TypeAlias = Callable[[Effect[object]], bool]


def all_effects(effect: Effect[object]) -> bool:  # noqa: ARG001  the predicate that is true of all
    return True


def no_effects(effect: Effect[object]) -> bool:  # noqa: ARG001  the predicate that is true of none
    return False


def check_which(which: object, what: str) -> None:
    """Raise Misuse for an `async def` or generator: its result always counts as true."""
    check_callable(which, "a choice of effects")
    if iscoroutinefunction(which) or isgeneratorfunction(which) or isasyncgenfunction(which):
        raise Misuse(
            f"{what} is an `async def` or a generator",
            why="what it answers is always true",
            todo="write a plain `def` that returns a bool",
        )


@final
@attrs.frozen
class Faults:
    """The faults that may strike a process, and at which effects.

    Attributes:
        kinds: Maps each kind to its choice of effects; crashes and restarts strike at any effect.
    """

    kinds: Mapping[Fault, Which] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        todo = "write Faults.of(Fault.CRASH_BEFORE, ...)"
        check_type(self.kinds, Mapping, "a mapping of faults to the effects that they may strike", todo)
        for kind, which in self.kinds.items():
            check_type(kind, Fault, "a kind of fault")
            check_which(which, f"the choice of effects for {kind}")

    @classmethod
    def of(cls, *kinds: Fault, on: Which = all_effects) -> Faults:
        return cls(dict.fromkeys(kinds, on))

    def strikes(self, kind: Fault, effect: Effect[object]) -> bool:
        which = self.kinds.get(kind)
        return which is not None and which(effect)

    def allows(self, kind: Fault) -> bool:
        return kind in self.kinds
