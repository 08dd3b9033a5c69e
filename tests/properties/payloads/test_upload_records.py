from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import ID, Document, Field
from tidegate.model.errors import Misuse
from tidegate.model.operations import UpdateOne
from tidegate.payloads import upload_records
from tidegate.payloads.checks.laws import upload_records as laws
from tidegate.payloads.checks.strategies.upload_records import records, torn
from tidegate.payloads.upload_records import (
    CONTENT,
    DATA,
    DIGEST,
    HISTORY,
    KEY,
    PENDING,
    VERSION,
    Content,
    Damaged,
    Found,
    UploadRecord,
    chunk_data,
    chunk_document,
    chunk_id,
    end_of,
    new_record,
    upload_of,
    upload_record_of,
)
from tidegate.sim.world.world import World, document, perform, world_with

RECORDS = "records"
Turn: TypeAlias = tuple[str, str, int]
"""(party, action, how many versions ago it was decided)"""


def record_in(world: World) -> UploadRecord:
    found = world.read(document(RECORDS, "k"))
    assert found is not None
    record = upload_record_of(found)
    assert isinstance(record, UploadRecord)
    return record


def asked(turn: Turn, seen: UploadRecord) -> UpdateOne | None:
    who, what, _ = turn
    if what == "announce":
        return upload_records.announce(RECORDS, "k", seen.version, who)
    if what == "undo":
        return upload_records.undo(RECORDS, "k", seen.version, 0)
    if what == "delete":
        return upload_records.switch(RECORDS, "k", seen.version, who, None)
    if who not in seen.pending:
        return None
    return upload_records.switch(RECORDS, "k", seen.version, who, Found(Content(who, 2, 9, "0" * 64, "none")))


TURNS = st.lists(
    st.tuples(
        st.sampled_from(("ann", "bob")), st.sampled_from(("announce", "switch", "undo", "delete")), st.integers(0, 3)
    ),
    max_size=12,
)
TWO = [("ann", "announce", 0), ("bob", "announce", 0), ("ann", "switch", 0), ("bob", "switch", 1)]
LATE = [("ann", "announce", 0), ("bob", "undo", 0), ("ann", "switch", 1)]


@settings(max_examples=100)
@given(TURNS)
@example(TWO)
@example(LATE)
def test_ur1_changes_are_switches(turns: list[Turn]) -> None:
    """Law UR1: any writes, decided on old or new reads, in any order."""
    world: World = world_with({RECORDS: (new_record("k"),)})
    seen = [record_in(world)]
    for turn in turns:
        decided = seen[-1 - min(turn[2], len(seen) - 1)]
        write = asked(turn, decided)
        if write is not None:
            world = next(perform(write, world, "a"))[0]
        assert laws.changes_by_switches(seen[-1], record_in(world), decided.version), "UR1"
        seen.append(record_in(world))


@settings(max_examples=100)
@given(st.binary(max_size=20).flatmap(lambda data: st.tuples(st.just(data), st.just(data) | torn(data))))
def test_ur4_a_chunk_is_what_was_inserted(case: tuple[bytes, bytes]) -> None:
    """Law UR4, for any change to the chunk's data."""
    data, became = case
    found = chunk_data(chunk_document("ann", 0, "k", data).put(DATA, became))

    assert laws.is_what_was_inserted(data, found), "UR4"
    assert isinstance(found, bytes) == (became == data)


test_a_planted_bug_is_found = planted(
    upload_records,
    # The last writer wins.
    bug(
        "switched at any version", ("_unchanged(key, version), *changes", "Eq(ID, key), *changes"),
        test_ur1_changes_are_switches, says="UR1",
    ),
    # A decision on an old read still matches.
    bug(
        "undone at the same version", ("Put(PENDING, ()), *_next_version(version, UNDONE, UNDONE)", "Put(PENDING, ())"),
        test_ur1_changes_are_switches, says="UR1",
    ),
    bug("unchecked", (" or sha256(data).hexdigest() != digest", ""), test_ur4_a_chunk_is_what_was_inserted, says="UR4"),
)  # fmt: skip


def test_the_laws_of_what_is_there_are_of_all_chunks() -> None:
    """Laws UR2 and UR3, as predicates."""
    there = tuple(chunk_id("ann", number) for number in range(2))
    kept = (UploadRecord(1, Content("ann", 2, 9, "0" * 64, "none"), ("bob",)), UploadRecord())

    assert laws.refers_to_what_is_there(kept, there)
    assert not laws.refers_to_what_is_there(kept, there[:1])
    assert laws.only_what_is_referred_to_is_left(kept, there)
    assert not laws.only_what_is_referred_to_is_left(kept, (*there, chunk_id("bob", 0)))


@settings(max_examples=40)
@given(records())
def test_a_record_is_read_as_it_was_written(record: UploadRecord) -> None:
    content = None if record.content is None else record.content.document()
    stored = new_record("k").put(VERSION, record.version).put(CONTENT, content).put(PENDING, record.pending)
    history = [
        Document.of({"version": each.version, "upload": each.request_id, "status": each.status})
        for each in record.history
    ]

    assert upload_record_of(stored.put(HISTORY, tuple(history))) == record
    assert upload_record_of(new_record("k")) == UploadRecord()


@pytest.mark.parametrize(
    "broken",
    [
        Document(),
        new_record("k").put(VERSION, -1),
        new_record("k").put(Field[object]("content"), "x"),
        new_record("k").put(CONTENT, Document.of({"upload": "a/b"})),
        new_record("k").put(Field[object]("pending"), (1,)),
        new_record("k").without(PENDING),
        new_record("k").put(HISTORY, (Document.of({"version": {}}),)),
    ],
)
def test_a_record_of_something_else_is_a_verdict(broken: Document) -> None:
    """A sweep then removes nothing of its key, which may need any upload."""
    verdict = upload_record_of(broken)
    assert isinstance(verdict, Damaged)
    assert verdict.where == "the record"
    assert str(verdict).startswith("the record cannot be read")


def test_chunks_of_an_upload_stand_together_and_in_order() -> None:
    """Also with more than ten chunks, and beside an id that begins with another's."""
    ids = [chunk_id("a", number) for number in (0, 9, 10, 99_999)]
    others = [chunk_id("a0", 0), chunk_id("A", 3), chunk_id("b", 0)]

    assert sorted([*others, *ids], key=str.encode)[1:5] == ids
    assert all(each < end_of("a") for each in ids)
    assert all(not ids[0] <= each < end_of("a") for each in others)
    assert {upload_of(each) for each in ids} == {"a"}


def test_a_chunk_says_whose_it_is() -> None:
    chunk = chunk_document("ann", 7, "k", b"secret")

    assert (chunk[ID], chunk[KEY], chunk_data(chunk)) == (chunk_id("ann", 7), "k", b"secret")
    damaged = chunk_data(chunk.put(DIGEST, "0" * 64))
    assert "secret" not in str(damaged)
    assert isinstance(chunk_data(chunk.without(DATA)), Damaged)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Content("", 1, 1, "0", "none"),
        lambda: Content("a/b", 1, 1, "0", "none"),
        lambda: Content("a", -1, 1, "0", "none"),
        lambda: Content("a", 1, -1, "0", "none"),
        lambda: Content("a", 1, 1, "", "none"),
        lambda: Content("a", 1, 1, "0", ""),
        lambda: Found(Content("a", 1, 1, "0", "none"), b"x"),
        lambda: Found(Content("a", 0, 1, "0", "none")),
        lambda: Found(None),  # type: ignore[arg-type]
        lambda: UploadRecord(-1),
        lambda: UploadRecord(content="x"),  # type: ignore[arg-type]
        lambda: UploadRecord(pending=(1,)),  # type: ignore[arg-type]
        lambda: new_record(""),
        lambda: upload_record_of({}),  # type: ignore[arg-type]
        lambda: chunk_id("a/b", 0),
        lambda: chunk_id("a", -1),
        lambda: chunk_id("a", 10**10),
        lambda: chunk_document("a", 0, "", b""),
        lambda: chunk_document("a", 0, "k", "x"),  # type: ignore[arg-type]
        lambda: chunk_data({}),  # type: ignore[arg-type]
        lambda: upload_records.announce(RECORDS, "", 0, "a"),
        lambda: upload_records.announce(RECORDS, "k", -1, "a"),
        lambda: upload_records.announce(RECORDS, "k", 0, ""),
        lambda: upload_records.switch(RECORDS, "k", 0, "a", "x"),  # type: ignore[arg-type]
        lambda: upload_records.undo(RECORDS, "k", True, 0),
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        build()
