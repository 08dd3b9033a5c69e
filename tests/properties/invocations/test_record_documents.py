from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted
from tests.properties.on_documents import done, is_read_or_misuse

from tidegate.invocations.record import record_documents
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import (
    CHANGED_AT,
    DUE,
    RECORD,
    TIMED,
    VersionMade,
    changes,
    history,
    new_record,
    versions,
    viewed,
)
from tidegate.invocations.record.status import Accepted, StatusDefinition, StatusRecord
from tidegate.model.documents import ID, Eq, Field, Put
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import insert_one, update_one
from tidegate.sim.world.world import CLOCK, document, world_with

RECORDS: Final = st.builds(
    StatusRecord, st.sampled_from(("registered", "pending")), st.none() | st.just("r"), st.integers(1, 3)
)


@given(RECORDS, st.integers(0, 9).map(lambda second: Instant(second * SECOND)))
def test_a_record_is_read_as_it_was_made(first: StatusRecord, now: Instant) -> None:
    """Law IV1."""
    record = new_record("x", first, "mine", now)

    found = record[ID], viewed(record), record.get(CHANGED_AT), history(record)
    assert found == ("x", first, now, (Change(first.version, "mine", first.status),))
    assert versions(record) == (VersionMade(first.version, first.status, "", now),)


def test_each_change_is_read_as_it_was_written() -> None:
    """Law IV1; the history has the last versions."""
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
    record = new_record("a.b", StatusRecord("pending", "r", 7), request_id, Instant(0))
    assert [each.by for each in versions(record)] == [by]


def test_a_record_of_before_has_no_times() -> None:
    record = new_record("x", StatusRecord("registered", None, 1), "r.x", Instant(0)).without(Field("at1"))
    assert versions(record) == (VersionMade(1, "registered", "r", None),)
    assert set(TIMED) > set(RECORD)


@given(st.sampled_from(INVOCATION.definitions), st.sampled_from([each.status for each in INVOCATION.definitions]))
def test_a_record_is_due_exactly_while_it_is_available(was: StatusDefinition, status: str) -> None:
    """Law IV2."""
    zero = Instant(0)
    start = new_record("x", StatusRecord(was.status, None, 1), "one", zero, due=zero if was.available else None)
    changed = changes(INVOCATION, Accepted(status, None, 2), "two")
    world = done(world_with({"c": (start,)}), update_one("c", Eq(ID, "x"), *changed))
    record = world.read(document("c", "x"))

    assert record is not None
    assert record.has(DUE) is INVOCATION[status].available


WAITS: Final = "(_IS_DUE_NOW if table[verdict.status].available else _IS_NOT_DUE,)"
test_a_planted_bug_is_found = planted(
    record_documents,
    bug("nobody knows since when it is so", ("(CHANGED_AT.name, now), ", ""), test_a_record_is_read_as_it_was_made),
    bug("the request that made it is forgotten", ("(_entry(first, request),)", "()"), test_a_record_is_read_as_it_was_made),
    bug("nobody knows when it became what", ("(_time(first.version).name, now), ", ""), test_a_record_is_read_as_it_was_made),
    bug(
        "what was taken is found again",  # as where a message is acknowledged later
        (WAITS, "(_IS_DUE_NOW,) if table[verdict.status].available else ()"),
        test_a_record_is_due_exactly_while_it_is_available,
    ),
    bug(
        "the message is published later, or never",  # pynenc, W22
        (WAITS, "() if table[verdict.status].available else (_IS_NOT_DUE,)"),
        test_a_record_is_due_exactly_while_it_is_available,
    ),
)  # fmt: skip


def test_the_same_write_says_when_it_is_due_again() -> None:
    at = Instant(9 * SECOND)
    changed = changes(INVOCATION, Accepted("retry", None, 4), "q", Put(DUE, at))

    assert [each for each in changed if each.field == DUE] == [Put(DUE, at)]


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    record = new_record("x", StatusRecord("registered", None, 1), "mine", Instant(0))
    assert is_read_or_misuse(lambda doc: (viewed(doc), history(doc)), record)
