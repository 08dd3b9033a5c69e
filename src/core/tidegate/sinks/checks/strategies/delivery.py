"""Rules, payloads, their events, and offsets; events have the numbers of past, current and future
attempts.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import WALL, Instant
from tidegate.retries.backoff import Exponential, Policy
from tidegate.retries.checks.strategies.backoff import draws
from tidegate.retries.checks.strategies.failures import failures
from tidegate.sinks.delivery import (
    Acknowledged,
    Action,
    DeadLettered,
    DeadLetterFailed,
    DeadLettering,
    DeadLetterWritten,
    Delivered,
    DeliveryEvent,
    DeliveryRules,
    Dismissed,
    Failed,
    Failures,
    Held,
    OffsetDelivery,
    Payload,
    Reason,
    Released,
    Sending,
    Skipped,
)

_COUNTS: Final = st.integers(1, 4)
_SOON: Final = st.integers(0, 60).map(lambda at: Instant(at, WALL))
_POLICIES: Final = st.builds(
    Policy,
    backoff=st.builds(Exponential, st.integers(1, 9), st.integers(9, 99)),
    attempts_max=st.one_of(_COUNTS, st.none()),
    elapsed_max=st.one_of(st.none(), st.integers(9, 99)),
    jitter_ppm=draws(),
)
_LAST: Final = (Action.SKIP, Action.DEAD_LETTER, Action.HOLD)
_RULES: Final = st.one_of(
    st.builds(
        DeliveryRules,
        sending=_POLICIES,
        refused=st.sampled_from(_LAST),
        lasting=st.sampled_from(_LAST),
        dead_lettering=_POLICIES,
    ),
    st.builds(
        DeliveryRules,
        sending=_POLICIES,
        refused=st.sampled_from((Action.SKIP, Action.HOLD)),
        lasting=st.sampled_from((Action.SKIP, Action.HOLD)),
        dead_lettering=st.none(),
    ),
)
_FAILURES: Final = st.builds(Failures, _COUNTS, _SOON, _SOON, st.sampled_from(("no reply", "the table is not there")))
_SOMETIMES: Final = st.one_of(st.none(), _FAILURES)
_TIMES: Final = st.one_of(st.none(), _SOON)
_SENDING: Final = st.builds(Sending, _SOMETIMES, _TIMES)
_BURYING: Final = st.builds(DeadLettering, _FAILURES, _SOMETIMES, _TIMES)
_PAYLOADS: Final[SearchStrategy[Payload]] = st.one_of(
    _SENDING,
    _BURYING,
    st.builds(Held, st.sampled_from(Reason), st.one_of(_SENDING, _BURYING)),
    st.builds(Delivered),
    st.builds(Skipped, st.sampled_from(Reason)),
    st.builds(DeadLettered),
)
_EVENTS: Final[SearchStrategy[DeliveryEvent]] = st.one_of(
    st.builds(Failed, _COUNTS, failures(), st.sampled_from(Action), _SOON, draws()),
    st.builds(DeadLetterFailed, _COUNTS, failures(), _SOON, draws()),
    st.sampled_from((Acknowledged(), DeadLetterWritten(), Released(), Dismissed())),
)
_OFFSETS: Final = st.builds(OffsetDelivery, st.lists(_PAYLOADS, max_size=4).map(tuple), st.booleans())


def rules() -> SearchStrategy[DeliveryRules]:
    return _RULES


def payloads() -> SearchStrategy[Payload]:
    return _PAYLOADS


def delivery_events() -> SearchStrategy[DeliveryEvent]:
    return _EVENTS


def offset_deliveries() -> SearchStrategy[OffsetDelivery]:
    return _OFFSETS
