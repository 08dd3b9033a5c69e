from __future__ import annotations

import attrs
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.checks.strategies.records import records
from tidegate.model.instants import Instant
from tidegate.model.records import PRODUCER, Record, Send
from tidegate.sinks import dead_records
from tidegate.sinks.checks.laws import dead_records as laws
from tidegate.sinks.dead_records import GivenUp, dead_record

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


@given(records(), WHYS)
@example(BINARY, WHY)
def test_dt1_the_record_is_kept(record: Record, why: GivenUp) -> None:
    assert laws.keeps_the_record(record, dead_record(record, why, "dead"))


@given(records(), WHYS)
@example(BINARY, attrs.evolve(WHY, message="x" * 100_000))
@example(BINARY, attrs.evolve(WHY, message="\ud800"))
def test_dt2_little_is_added(record: Record, why: GivenUp) -> None:
    assert laws.adds_little(record, dead_record(record, why, "dead"))


test_a_planted_bug_is_found = planted(
    dead_records,
    bug(
        "bytes that are no text are replaced",
        (
            "(*record.headers, *added)",
            '(*((name, value and value.decode("utf-8", "replace").encode()) for name, value in record.headers), *added)',
        ),
        test_dt1_the_record_is_kept,
    ),
    bug(
        "a name that comes twice is kept once",
        ("(*record.headers, *added)", "(*dict((*record.headers, *added)).items(),)"),
        test_dt1_the_record_is_kept,
    ),
    bug(
        "the whole message",
        (
            "(*record.headers, *added)",
            '(*record.headers, *added, ("t", (why.message or "").encode("utf-8", "replace")))',
        ),
        test_dt2_little_is_added,
    ),
)  # fmt: skip


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
