"""What is sent to a dead-letter topic: laws DT1 and DT2, and what is planted against them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.instants import Instant
from tidegate.model.records import PRODUCER, Record, Send
from tidegate.model.strategies.records import records
from tidegate.sinks.dead_records import GivenUp, dead_record
from tidegate.sinks.laws import dead_records as laws

Clerk = Callable[[Record, GivenUp, str], Send]
TEXTS = st.one_of(st.none(), st.text())
WHYS = st.builds(
    GivenUp,
    group=st.just("shop"),
    attempts=st.integers(0),
    error=TEXTS,
    message=TEXTS,
    at=st.builds(Instant, st.integers(0)),
)
WHY = GivenUp(
    group="shop", attempts=3, error="ValueError", message="smtp://me:hunter2@mail is away", at=Instant(9_999_999)
)
BINARY = Record(
    "orders", 3, 7, None, None, (("h", b"\xff"), ("h", None), ("tidegate.topic", b"before")), Instant(5_000, PRODUCER)
)


def check_dt1(clerk: Clerk) -> None:
    @given(records(), WHYS)
    @example(BINARY, WHY)
    def the_record_is_kept(record: Record, why: GivenUp) -> None:
        assert laws.keeps_the_record(record, clerk(record, why, "dead"))

    the_record_is_kept()


def check_dt2(clerk: Clerk) -> None:
    @given(records(), WHYS)
    @example(BINARY, attrs.evolve(WHY, message="x" * 100_000))
    @example(BINARY, attrs.evolve(WHY, message="\ud800"))
    def little_is_added(record: Record, why: GivenUp) -> None:
        assert laws.adds_little(record, clerk(record, why, "dead"))

    little_is_added()


LAWS: dict[str, Callable[[Clerk], None]] = {"DT1": check_dt1, "DT2": check_dt2}


@pytest.mark.parametrize("law", LAWS)
def test_dead_records_keep_the_law(law: str) -> None:
    """Laws DT1 and DT2, as the header of `tidegate.sinks.dead_records` states them."""
    LAWS[law](dead_record)


def text_only(record: Record, why: GivenUp, topic: str) -> Send:
    """Bytes that are no text are replaced."""
    sent = dead_record(record, why, topic)
    headers = tuple((name, value and value.decode("utf-8", "replace").encode()) for name, value in sent.headers)
    return attrs.evolve(sent, headers=headers)


def as_a_dictionary(record: Record, why: GivenUp, topic: str) -> Send:
    """A name that comes twice is kept once."""
    sent = dead_record(record, why, topic)
    return attrs.evolve(sent, headers=tuple(dict(sent.headers).items()))


def whole_message(record: Record, why: GivenUp, topic: str) -> Send:
    sent = dead_record(record, why, topic)
    return attrs.evolve(
        sent, headers=(*sent.headers, ("tidegate.trace", (why.message or "").encode("utf-8", "replace")))
    )


@pytest.mark.parametrize(("law", "planted"), [("DT1", text_only), ("DT1", as_a_dictionary), ("DT2", whole_message)])
def test_a_planted_bug_breaks_the_law(law: str, planted: Clerk) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](planted)


def test_a_dead_record_says_where_it_came_from_and_why() -> None:
    sent = dead_record(BINARY, WHY, "orders.dead")

    assert sent == Send(
        "orders.dead",
        None,
        None,
        (
            *BINARY.headers,
            ("tidegate.topic", b"orders"),
            ("tidegate.partition", b"3"),
            ("tidegate.offset", b"7"),
            ("tidegate.timestamp", b"5"),
            ("tidegate.group", b"shop"),
            ("tidegate.attempts", b"3"),
            ("tidegate.error", b"ValueError"),
            ("tidegate.message", b"smtp://***@mail is away"),
            ("tidegate.at", b"9999"),
        ),
    )
    assert "hunter2" not in f"{sent!r} {sent} {WHY!r}"
