from __future__ import annotations

from itertools import product
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.checks.strategies.documents import pairs, values
from tidegate.model.documents import ID, Document, Field, Foreign, Update, Value, equal, matches, show, updated
from tidegate.model.documents.bson import is_regex
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.reactive.checks.strategies.tasks import records
from tidegate.reactive.record.task_documents import (
    DECIDED_ON,
    RESET,
    changes,
    guarded,
    loaded,
    record_id,
    set_aside,
    stored,
)
from tidegate.reactive.record.task_records import Ended, Guard, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import reset

NOW: Final = Instant(0)


def whole(record: TaskRecord) -> TaskRecord:
    def rounded(value: Any) -> Any:
        match value:
            case Instant(at, clock):
                return Instant(at // MILLISECOND * MILLISECOND, clock)
            case RunEnd():
                return attrs.evolve(value, at=rounded(value.at))
            case tuple():
                return tuple(map(rounded, value))
            case _:
                return value

    return TaskRecord(**{field.name: rounded(getattr(record, field.name)) for field in attrs.fields(TaskRecord)})


RECORD: Final = TaskRecord(
    id="r1",
    version=1,
    status=TaskStatus.PENDING,
    snapshot=Document(),
    next_run_at=NOW,
    due_at=NOW,
    changed_at=NOW,
    waiting_since=None,
    created_at=NOW,
)
RECORDS: Final = records().map(whole)
FINISHED_STATUSES: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)
OVER: Final = attrs.evolve(RECORD, status=TaskStatus.FAILED, next_run_at=None)


@given(RECORDS)
def test_what_was_stored_is_loaded_the_same(record: TaskRecord) -> None:
    """Law TK1. Its id combines task and document; None values are omitted."""
    doc = stored(record, "bill", "x")

    assert loaded(doc) == record
    assert doc.items[0] == ("_id", record_id("bill", "x"))
    assert all(value is not None for _, value in doc.items)


@given(RECORDS, RECORDS)
def test_what_a_write_has_made_is_loaded_the_same(before: TaskRecord, after: TaskRecord) -> None:
    """Law TK1 of a write: it sets only fields that differ, and unsets fields that became None."""
    after = attrs.evolve(after, id=before.id, version=before.version + 1)
    changed = changes(before, after)

    assert loaded(updated(stored(before, "bill", "x"), changed, lambda: NOW)) == after
    assert {change.field.name for change in changes(before, attrs.evolve(before, version=9))} == {"version"}


@given(RECORDS, st.sampled_from(Ended), st.integers(1, 6))
def test_an_end_is_written_the_same_whether_the_history_was_read_or_not(
    record: TaskRecord, ended: Ended, history_max: int
) -> None:
    """Law TK6: the server appends and keeps as many entries as the decision."""
    whole = attrs.evolve(record, history=record.history[-history_max:])
    doc = stored(whole, "bill", "x")
    brief = loaded(Document(tuple((key, held) for key, held in doc.items if Field(key) in {ID, *DECIDED_ON})))
    run = RunEnd(1, ended, NOW, 0, "no" if ended is Ended.FAILED else None)

    def over(before: TaskRecord) -> TaskRecord:
        return attrs.evolve(before, version=before.version + 1, history=(*before.history, run)[-history_max:])

    written = changes(brief, over(brief), history_max)
    assert written == changes(whole, over(whole), history_max)
    assert loaded(updated(doc, written, lambda: NOW)) == over(whole)


@given(RECORDS)
def test_a_guard_finds_its_record_and_no_other(record: TaskRecord) -> None:
    """Law TK2: each part of the guard counts, and so does the id."""
    doc = stored(record, "bill", "x")

    def is_found(key: str, on: Guard) -> bool:
        return matches(guarded(key, on), doc, lambda: NOW)

    others = product((record.id, "other"), (record.version, 9), (record.owner, "other"), (record.token, 9))
    found = [Guard(*each) for each in others if is_found(record_id("bill", "x"), Guard(*each))]
    assert found == [record.guard]
    assert not is_found(record_id("bill", "y"), record.guard)


def resets_as_decided(updates: tuple[Update, ...]) -> None:
    @given(records(FINISHED_STATUSES).map(whole), st.integers(0, 99).map(lambda at: Instant(at * MILLISECOND)))
    @example(attrs.evolve(OVER, attempts=3, first_error_at=NOW), Instant(77 * MILLISECOND))
    def law(record: TaskRecord, now: Instant) -> None:
        after = updated(stored(record, "bill", "x"), updates, lambda: now)
        assert loaded(after) == reset(record, now=now).record, "TK5"

    law()


def test_what_resets_many_does_what_is_decided_for_one() -> None:
    """Law TK5."""
    resets_as_decided(RESET)


@pytest.mark.parametrize("left_out", range(len(RESET)))
def test_a_reset_without_one_of_its_changes_breaks_the_law(left_out: int) -> None:
    """Law TK5: each change of the reset is necessary."""
    with pytest.raises((AssertionError, Misuse)):
        resets_as_decided((*RESET[:left_out], *RESET[left_out + 1 :]))


@given(RECORDS)
def test_a_write_that_changes_nothing_is_misuse(record: TaskRecord) -> None:
    with pytest.raises(Misuse):
        changes(record, record)


@given(RECORDS)
def test_a_document_that_holds_no_record_is_misuse(record: TaskRecord) -> None:
    with pytest.raises(Misuse, match=r"(?s)version.*bill/x"):
        loaded(stored(record, "bill", "x").without(Field[int]("version")))
    with pytest.raises(Misuse):
        loaded({"_id": "x"})  # type: ignore[arg-type]
    assert isinstance(stored(record, "bill", "x"), Document)


FIELDS: Final = st.sampled_from([field.name for field in attrs.fields(TaskRecord)] + ["record", "digest", "task"])


@given(RECORDS, st.lists(st.tuples(FIELDS, values()), max_size=3))
@example(RECORD, [("status", "unheard of")])
@example(RECORD, [("history", (1,))])
@example(RECORD, [("last_success", 1)])
def test_whatever_a_document_holds_a_record_can_be_made_of_it(
    record: TaskRecord, others: list[tuple[str, Any]]
) -> None:
    """Law TK3: it is failed and not due; a write overwrites only the fields that were read."""
    doc = stored(record, "bill", "x")
    for name, value in others:
        doc = doc.put(Field[Any](name), value)
    try:
        loaded(doc)
    except Misuse as error:
        why = error.what
    else:
        why = "it stands under another id"
    still, updates = set_aside(doc, why, Instant(MILLISECOND))
    after = updated(doc, updates, lambda: NOW)
    made = loaded(after)

    assert matches(still, doc, lambda: NOW)
    assert not matches(still, after, lambda: NOW)
    assert (made.status, made.next_run_at, made.snapshot) == (TaskStatus.FAILED, None, None)
    assert why in str(made.last_error)
    assert after[Field[str]("unreadable")] == show(doc)[:10_000]


TASKS: Final = ("a", "a/b", "a#", "a#7", "a%2Fb", "a%")


@given(pairs(), st.tuples(st.sampled_from(TASKS), st.sampled_from(TASKS)))
@example((7, Foreign("decimal", bytes.fromhex("46000000000000000000000000003e30"))), ("a", "a"))
@example(("b/c", "c"), ("a", "a/b"))
@example(("7", 7), ("a", "a"))
@example(("", None), ("a", "a"))
@example(("x", b"x"), ("a", "a"))
@example((Document.of({"a": 1, "b": 2}), Document.of({"a": 1.0, "b": 2})), ("a", "a"))
@example((Document.of({"a": "1, b: 2"}), Document.of({"a": 1, "b": 2})), ("a", "a"))
def test_two_documents_have_two_records(documents: tuple[Value, Value], tasks: tuple[str, str]) -> None:
    """Law TK4. `task/document` would be ambiguous: a/b with c, and a with b/c."""
    if any(isinstance(each, tuple) or is_regex(each) for each in documents):
        with pytest.raises(Misuse):
            [record_id("a", each) for each in documents]
        return
    one, other = map(record_id, tasks, documents)

    assert (one == other) == (tasks[0] == tasks[1] and equal(*documents))


def test_the_ids_of_records_are_those_that_there_were() -> None:
    """Documents with string ids keep their old record ids; other ids are readable."""
    oid = Foreign("objectId", bytes(range(12)))
    ids: dict[Value, str] = {
        "x": "bill/x",
        "": "bill/",
        7: "bill#7",
        7.5: "bill#75E-1",
        oid: "bill#objectId(000102030405060708090a0b)",
    }
    assert {key: record_id("bill", key) for key in ids} == ids
    assert record_id("bill", True) == "bill#true"
    assert record_id("bill", Document.of({"a": Instant(MILLISECOND), "b": (None, b"x")})) == (
        'bill#{"a": date(1), "b": [null, bytes(78)]}'
    )
