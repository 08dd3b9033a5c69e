from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import done, is_read_or_misuse

from tidegate.invocations.record_documents import CHANGED_AT, HISTORY, changes, history, new_record, viewed
from tidegate.invocations.status import Accepted, StatusRecord
from tidegate.model.documents import ID, Document, Eq
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


@pytest.mark.parametrize("wrong", [undated, without_history])
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
        world = done(later, update_one("c", Eq(ID, "x"), *changes(made, f"r{version}")))
        record = world.read(document("c", "x"))
        assert record is not None
        assert viewed(record) == made.record
        assert record[CHANGED_AT] == Instant(version * SECOND)
        assert history(record)[-1] == Change(version, f"r{version}", "pending")
        assert len(history(record)) == min(version, HISTORY_MAX)


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    record = new_record("x", StatusRecord("registered", None, 1), "mine", Instant(0))
    assert is_read_or_misuse(lambda doc: (viewed(doc), history(doc)), record)
