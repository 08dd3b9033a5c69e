from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import done, is_read_or_misuse

from tidegate.invocations.invocation import INVOCATION
from tidegate.invocations.record_documents import (
    CHANGED_AT,
    DUE,
    HISTORY,
    RECORD,
    TIMED,
    VersionMade,
    changes,
    history,
    new_record,
    versions,
    viewed,
)
from tidegate.invocations.status import Accepted, StatusDefinition, StatusRecord, StatusTable
from tidegate.model.documents import ID, Document, Eq, Field, Put, Remove, Update
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import insert_one, update_one
from tidegate.sim.world import CLOCK, document, world_with

Made = Callable[[str, StatusRecord, str, Instant], Document]

RECORDS: Final = st.builds(
    StatusRecord, st.sampled_from(("registered", "pending")), st.none() | st.just("r"), st.integers(1, 3)
)


def check_iv1(make: Made) -> None:
    @given(RECORDS, st.integers(0, 9).map(lambda second: Instant(second * SECOND)))
    def holds(first: StatusRecord, now: Instant) -> None:
        record = make("x", first, "mine", now)

        found = record[ID], viewed(record), record.get(CHANGED_AT), history(record)
        assert found == ("x", first, now, (Change(first.version, "mine", first.status),))
        assert versions(record) == (VersionMade(first.version, first.status, "", now),)

    holds()


def test_a_record_is_read_as_it_was_made() -> None:
    """Law IV1."""
    check_iv1(new_record)


def undated(key: str, first: StatusRecord, request: str, now: Instant) -> Document:
    """As it was once inserted: nobody knew since when it is so."""
    return new_record(key, first, request, now).without(CHANGED_AT)


def without_history(key: str, first: StatusRecord, request: str, now: Instant) -> Document:
    """The request that made it is forgotten."""
    return new_record(key, first, request, now).put(HISTORY, ())


def without_times(key: str, first: StatusRecord, request: str, now: Instant) -> Document:
    """As it was once: nobody knew when it became what."""
    record = new_record(key, first, request, now)
    return Document(tuple(each for each in record.items if not each[0].startswith("at")))


@pytest.mark.parametrize("wrong", [undated, without_history, without_times])
def test_law_iv1_notices(wrong: Made) -> None:
    """Each breaks law IV1."""
    with pytest.raises(AssertionError):
        check_iv1(wrong)


def test_each_change_is_read_as_it_was_written() -> None:
    """Law IV1, and the history has the last versions."""
    start = new_record("x", StatusRecord("registered", None, 1), "r1", Instant(0))
    world = done(world_with({}), insert_one("c", start))
    for version in range(2, HISTORY_MAX + 3):
        later = world.write(CLOCK, Instant(version * SECOND))
        made = Accepted("pending", "r", version)
        world = done(later, update_one("c", Eq(ID, "x"), *changes(INVOCATION, made, f"r{version}")))
        record = world.read(document("c", "x"))
        assert record is not None
        assert viewed(record) == made.record
        assert record[CHANGED_AT] == Instant(version * SECOND)
        assert history(record)[-1] == Change(version, f"r{version}", "pending")
        assert len(history(record)) == min(version, HISTORY_MAX)
        of = range(max(version - HISTORY_MAX, 0) + 1, version + 1)
        assert [(each.version, each.at) for each in versions(record)][1:] == [
            (each, Instant(each * SECOND)) for each in of[1:]
        ]


@pytest.mark.parametrize(
    ("request_id", "by"),
    [
        ("host.org:1.a.b.6", "host.org:1"),
        ("host.org:1.6.pending", "host.org:1"),
        ("host.org:1.a.b.place", "host.org:1"),
        ("x1.a.b", "x1"),
        ("x2.6", "x2"),
        ("x3", ""),
    ],
)
def test_a_request_tells_who_has_asked(request_id: str, by: str) -> None:
    """A runner that takes or ends, whoever enqueued it, an operator; the ids of invocations and hosts have dots in them."""
    record = new_record("a.b", StatusRecord("pending", "r", 7), request_id, Instant(0))
    assert [each.by for each in versions(record)] == [by]


def test_a_record_of_before_has_no_times() -> None:
    """Whoever shows it is told what is known."""
    record = new_record("x", StatusRecord("registered", None, 1), "r.x", Instant(0)).without(Field("at1"))
    assert versions(record) == (VersionMade(1, "registered", "r", None),)
    assert set(TIMED) > set(RECORD)


Changes = Callable[[StatusTable, Accepted, str], tuple[Update, ...]]


def check_iv2(change: Changes) -> None:
    """A record that waits, or does not, is changed; it waits afterwards exactly if a runner may take it."""

    @given(st.sampled_from(INVOCATION.definitions), st.sampled_from([each.status for each in INVOCATION.definitions]))
    def holds(was: StatusDefinition, status: str) -> None:
        zero = Instant(0)
        start = new_record("x", StatusRecord(was.status, None, 1), "one", zero, due=zero if was.available else None)
        changed = change(INVOCATION, Accepted(status, None, 2), "two")
        world = done(world_with({"c": (start,)}), update_one("c", Eq(ID, "x"), *changed))
        record = world.read(document("c", "x"))

        assert record is not None
        assert record.has(DUE) is INVOCATION[status].available

    holds()


def test_a_record_is_due_exactly_while_it_is_available() -> None:
    """Law IV2."""
    check_iv2(changes)


def left_in_the_queue(table: StatusTable, verdict: Accepted, request: str) -> tuple[Update, ...]:
    """What was taken is found again, as where a message is acknowledged later."""
    return tuple(each for each in changes(table, verdict, request) if not isinstance(each, Remove))


def not_sent(table: StatusTable, verdict: Accepted, request: str) -> tuple[Update, ...]:
    """pynenc, W22: the status is written, and the message is published later, or never."""
    return tuple(each for each in changes(table, verdict, request) if each.field != DUE or isinstance(each, Remove))


@pytest.mark.parametrize("wrong", [left_in_the_queue, not_sent])
def test_law_iv2_notices(wrong: Changes) -> None:
    """Each breaks law IV2."""
    with pytest.raises(AssertionError):
        check_iv2(wrong)


def test_the_same_write_says_when_it_is_due_again() -> None:
    """A back-off after a failure: due later, and once."""
    at = Instant(9 * SECOND)
    changed = changes(INVOCATION, Accepted("retry", None, 4), "q", Put(DUE, at))

    assert [each for each in changed if each.field == DUE] == [Put(DUE, at)]


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    record = new_record("x", StatusRecord("registered", None, 1), "mine", Instant(0))
    assert is_read_or_misuse(lambda doc: (viewed(doc), history(doc)), record)
