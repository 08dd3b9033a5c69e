"""Rules, payloads and what is heard of them, offsets, circuits, and dead letters.

What is heard has the numbers of attempts that are under way, over, or to come; dead letters carry bytes that are text,
nearly text, and none.
"""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.delivery import (
    Acknowledged,
    Action,
    Breaker,
    Buried,
    Burying,
    Circuit,
    Closed,
    DeadLetter,
    Delivered,
    Dismissed,
    Event,
    Failed,
    Failures,
    HalfOpen,
    Held,
    Open,
    Outbox,
    Payload,
    Released,
    Rules,
    Sending,
    Skipped,
    Unwritten,
    Why,
    Written,
)
from tidegate.instants import WALL, Instant
from tidegate.retry import Exponential, Policy
from tidegate.strategies.offsets import records
from tidegate.strategies.retry import draws, failures

_COUNTS: Final = st.integers(1, 4)
_SOON: Final = st.integers(0, 60).map(lambda at: Instant(at, WALL))
_POLICIES: Final = st.builds(
    Policy,
    schedule=st.builds(Exponential, st.integers(1, 9), st.integers(9, 99)),
    attempts_max=st.one_of(_COUNTS, st.none()),
    elapsed_max=st.one_of(st.none(), st.integers(9, 99)),
    jitter_ppm=draws(),
)
_LAST: Final = (Action.SKIP, Action.DEAD_LETTER, Action.HOLD)
_RULES: Final = st.one_of(
    st.builds(
        Rules,
        sending=_POLICIES,
        refused=st.sampled_from(_LAST),
        lasting=st.sampled_from(_LAST),
        burying=_POLICIES,
    ),
    st.builds(
        Rules,
        sending=_POLICIES,
        refused=st.sampled_from((Action.SKIP, Action.HOLD)),
        lasting=st.sampled_from((Action.SKIP, Action.HOLD)),
        burying=st.none(),
    ),
)
_FAILURES: Final = st.builds(Failures, _COUNTS, _SOON, _SOON, st.sampled_from(("no reply", "the table is not there")))
_SOMETIMES: Final = st.one_of(st.none(), _FAILURES)
_TIMES: Final = st.one_of(st.none(), _SOON)
_SENDING: Final = st.builds(Sending, _SOMETIMES, _TIMES)
_BURYING: Final = st.builds(Burying, _FAILURES, _SOMETIMES, _TIMES)
_PAYLOADS: Final[SearchStrategy[Payload]] = st.one_of(
    _SENDING,
    _BURYING,
    st.builds(Held, st.sampled_from(Why), st.one_of(_SENDING, _BURYING)),
    st.builds(Delivered),
    st.builds(Skipped, st.sampled_from(Why)),
    st.builds(Buried),
)
_EVENTS: Final[SearchStrategy[Event]] = st.one_of(
    st.builds(Failed, _COUNTS, failures(), st.sampled_from(Action), _SOON, draws()),
    st.builds(Unwritten, _COUNTS, failures(), _SOON, draws()),
    st.sampled_from((Acknowledged(), Written(), Released(), Dismissed())),
)
_BREAKERS: Final = st.builds(Breaker, threshold=st.integers(1, 4), cooldown=st.integers(1, 20))
_ERAS: Final = st.integers(0, 4)
_CIRCUITS: Final[SearchStrategy[Circuit]] = st.one_of(
    st.builds(Closed, _ERAS, st.integers(0, 4)), st.builds(Open, _ERAS, _SOON), st.builds(HalfOpen, _ERAS, _SOON)
)
_BLOBS: Final = st.one_of(
    st.none(),
    st.sampled_from(
        (b"", b"\0", b"{}", b"\xff\xfe", b"\xed\xa0\x80", b"=cmd()", b"\x1b[31m\n", '"\u2028\U0001f600'.encode())
    ),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
_RECORDS: Final = st.builds(
    lambda record, topic, partition: attrs.evolve(record, topic=topic, partition=partition),
    records(),
    _TEXTS,
    st.integers(0, 9),
)
_DEAD_LETTERS: Final = st.builds(
    DeadLetter,
    record=_RECORDS,
    sink=_TEXTS,
    index=st.integers(0, 9),
    payload=_BLOBS,
    error=st.text(min_size=1, max_size=20),
    attempts=_COUNTS,
    first_failed=_SOON,
    last_failed=_SOON,
)
_OUTBOXES: Final = st.builds(Outbox, st.lists(_PAYLOADS, max_size=4).map(tuple), st.booleans())


def rules() -> SearchStrategy[Rules]:
    """Rules of every kind, with and without dead letters."""
    return _RULES


def payloads() -> SearchStrategy[Payload]:
    """Payloads in every state."""
    return _PAYLOADS


def delivery_events() -> SearchStrategy[Event]:
    """What may be heard of a payload, of any of its first attempts."""
    return _EVENTS


def outboxes() -> SearchStrategy[Outbox]:
    """Offsets with up to four payloads."""
    return _OUTBOXES


def breakers() -> SearchStrategy[Breaker]:
    """Breakers that open soon, and for a short time."""
    return _BREAKERS


def circuits() -> SearchStrategy[Circuit]:
    """Circuits in every state."""
    return _CIRCUITS


def dead_letters() -> SearchStrategy[DeadLetter]:
    """Dead letters of all payloads: text, nearly text, what terminals and tables would carry out, and none."""
    return _DEAD_LETTERS
