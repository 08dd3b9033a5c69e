"""Invocations as they are found, in every status, and what is decided on them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.invocations.record.invocation import INVOCATION, PENDING
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.upkeep.recovery import Item, Patience, RecoveryVerdict, decide_recovery
from tidegate.model.instants import Instant
from tidegate.services.checks.strategies.membership import memberships, short_times

_STATUSES: Final = st.sampled_from([PENDING, PENDING, *(each.status for each in INVOCATION.definitions)])
_OWNERS: Final = st.sampled_from(("a-1", "a-2", "b-1", "a-1w", "nobody", None))
_LIMITS: Final = st.integers(1, 12)
_STRANGER: Final = Item("i0", StatusRecord("resumed", "a-1", 1), Instant(0))
_IN_TWENTY: Final = st.integers(1, 20)


def patiences() -> SearchStrategy[Patience]:
    """Limits so short that they meet the instants of `short_times`."""
    return st.builds(Patience, pending_max=_LIMITS, passing_max=_LIMITS)


@st.composite
def items(draw: DrawFn) -> Item:
    """Invocations in every status, owned where it is, and now and then broken: owned by nobody.

    The owners are among `memberships`, or nowhere.
    """
    status = draw(_STATUSES)
    owner = draw(_OWNERS) if INVOCATION[status].requires_owner else None
    record = StatusRecord(status, owner, draw(st.integers(1, 20)))
    return Item(f"i{draw(st.integers(0, 9))}", record, Instant(draw(st.integers(-20, 20))))


@st.composite
def recoveries(draw: DrawFn) -> RecoveryVerdict:
    """What is decided: a step, or why there is none, also of a record that is not an invocation's."""
    return decide_recovery(
        _STRANGER if draw(_IN_TWENTY) == 1 else draw(items()),
        draw(memberships()),
        draw(short_times()),
        draw(patiences()),
    )
