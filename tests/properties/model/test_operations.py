from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.documents import (
    ID,
    Add,
    AllOf,
    AnyOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    Foreign,
    HasOther,
    Not,
    OlderThan,
    Push,
    Put,
    Remove,
)
from tidegate.model.documents.bson import ZERO_TIMESTAMP
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    FOUND_MAX,
    INSERTS_MAX,
    UPDATES_MAX,
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    Unique,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    bulk_update,
    check_unique,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)

COUNT: Final = Field[int]("count")
STATUS: Final = Field[str]("status")
NAMES: Final = Field[tuple[str, ...]]("names")
SECRET: Final = "canary-7c1f"  # noqa: S105  that is the point
WHERE: Final = Eq(ID, "x")
DOC: Final = Document.of({"_id": "x"})

ON: Final[dict[str, Callable[[str], Operation]]] = {
    "find_one": lambda collection: find_one(collection, WHERE),
    "find_all": lambda collection: find_all(collection, WHERE, limit=1),
    "find_one_and_update": lambda collection: find_one_and_update(collection, WHERE, Put(COUNT, 1)),
    "update_one": lambda collection: update_one(collection, WHERE, Put(COUNT, 1)),
    "upsert_one": lambda collection: upsert_one(collection, WHERE, Put(COUNT, 1)),
    "insert_one": lambda collection: insert_one(collection, DOC),
    "delete_one": lambda collection: delete_one(collection, WHERE),
    "update_many": lambda collection: update_many(collection, WHERE, Put(COUNT, 1)),
    "delete_many": lambda collection: delete_many(collection, WHERE),
    "insert_many": lambda collection: insert_many(collection, DOC),
    "bulk_update": lambda collection: bulk_update(update_one(collection, WHERE, Put(COUNT, 1))),
}

# --- collections ------------------------------------------------------------------------------------------------------


BAD: Final = (
    *("", None, 1, b"c", ("c",), "$cmd", "a$b", "a\0b", ".a", "a.", "a..b", ".", "system.users"),
    *("c" * 192, "\u00e9" * 96, "c\ud800"),
)


@pytest.mark.parametrize("operation", ON)
def test_a_name_that_means_something_else_is_refused(operation: str) -> None:
    """MongoDB reserves `$`, NUL, `system.` and empty parts between dots."""
    for bad in BAD:
        with pytest.raises(Misuse, match="name of a collection"):
            ON[operation](cast("str", bad))


@pytest.mark.parametrize("operation", ON)
def test_any_other_name_is_taken(operation: str) -> None:
    for good in ("c", "c" * 191, "a.b", "systems", "a system.x", "\u00e9", "_", "0"):
        assert ON[operation](good).collection == good


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [find_one, delete_one, delete_many])
def test_several_filters_must_all_match(operation: Callable[..., FindOne | DeleteOne | DeleteMany]) -> None:
    assert operation("c", WHERE).where == WHERE
    assert operation("c", WHERE, Exists(COUNT)).where == AllOf((WHERE, Exists(COUNT)))
    with pytest.raises(Misuse, match="at least one filter"):
        operation("c")


@pytest.mark.parametrize("limit", [0, FOUND_MAX + 1, -1, True, 1.0])
def test_a_find_of_several_is_bounded(limit: int) -> None:
    with pytest.raises(Misuse, match="a limit must be"):
        _ = find_all("c", limit=limit)
    for good in (1, FOUND_MAX):
        assert (find_all("c", limit=good).where, find_all("c", WHERE, limit=good).limit) == (Exists(ID), good)


@pytest.mark.parametrize(
    ("unique", "said"),
    [
        ({"c": ((),)}, "a unique index on"),
        ({"c": ((COUNT, COUNT),)}, "a unique index on"),
        ({"$c": ((COUNT,),)}, "name of a collection"),
        ({"c": (("count",),)}, "a field of a unique index"),
    ],
)
def test_a_unique_index_names_its_fields(unique: Unique, said: str) -> None:
    check_unique({"c": ((COUNT,), (COUNT, STATUS))})
    with pytest.raises(Misuse, match=said):
        check_unique(unique)


# --- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [find_one_and_update, update_one, upsert_one, update_many])
def test_updates_touch_different_fields_and_never_the_id(
    operation: Callable[..., FindOneAndUpdate | UpdateOne | UpsertOne | UpdateMany],
) -> None:
    """MongoDB refuses both."""
    with pytest.raises(Misuse, match="changes nothing"):
        operation("c", WHERE)
    with pytest.raises(Misuse, match="two updates of one field: 'count, names, count'"):
        operation("c", WHERE, Put(COUNT, 1), Push(NAMES, "n"), Add(COUNT, 1))
    for update in (Put(ID, "y"), Remove(ID)):
        with pytest.raises(Misuse, match="an update of _id"):
            operation("c", WHERE, update)

    assert operation("c", WHERE, Put(COUNT, 1), Remove(NAMES)).updates == (Put(COUNT, 1), Remove(NAMES))


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (Eq(COUNT, 1), "which id"),
        (AnyOf((WHERE, WHERE)), "which id"),
        (Eq(Field[float]("_id"), 1.0), "which id"),
        (AllOf((WHERE, Eq(COUNT, 1), AllOf((Eq(COUNT, 1),)))), "a field twice"),
        (AllOf((WHERE, Not(OlderThan(Field[Instant]("at"), 1)))), "by an age"),
        (AllOf((WHERE, HasOther((COUNT,)))), "by what else there is"),
    ],
)
def test_an_upsert_says_what_it_inserts(where: Filter, why: str) -> None:
    with pytest.raises(Misuse, match=why) as raised:
        _ = upsert_one("c", where, Add(COUNT, 1))

    assert str(where) not in str(raised.value)


def bumped(*where: Filter, collection: str = "c") -> tuple[UpdateOne, ...]:
    return tuple(update_one(collection, each, Add(COUNT, 1)) for each in where)


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ((), "a number of updates in a bulk must be"),
        (bumped(*(Eq(ID, number) for number in range(UPDATES_MAX + 1))), "a number of updates in a bulk must be"),
        ((delete_one("c", WHERE),), "an update of one document"),
        (bumped(WHERE, Eq(COUNT, 1)), "without an id"),
        (bumped(WHERE, AnyOf((WHERE, WHERE))), "without an id"),
        (bumped(Eq(ID, None)), "without an id"),
        (bumped(WHERE, AllOf((Eq(COUNT, 1), WHERE))), "two updates of one document"),
        ((*bumped(WHERE), *bumped(Eq(ID, "y"), collection="d")), "several collections"),
    ],
)
def test_a_bulk_is_of_updates_that_can_be_told_apart(updates: tuple[UpdateOne, ...], why: str) -> None:
    with pytest.raises(Misuse, match=why) as raised:
        _ = bulk_update(*updates)

    assert str(WHERE) not in str(raised.value)


def test_a_bulk_takes_as_many_as_a_find_replies() -> None:
    assert len(bulk_update(*bumped(*(Eq(ID, number) for number in range(FOUND_MAX)))).updates) == FOUND_MAX
    assert bulk_update(*bumped(Eq(ID, 1), Eq(ID, "1"))).collection == "c"


@pytest.mark.parametrize(
    ("docs", "why"),
    [
        ((), "a number of documents to insert must be"),
        (
            tuple(Document.of({"_id": number}) for number in range(INSERTS_MAX + 1)),
            "a number of documents to insert must be",
        ),
        ((DOC, DOC.put(COUNT, 7)), "two documents of one id"),
        ((DOC, Document.of({"n": 1})), "needs an _id"),
        ((DOC, "x"), "a document"),
        ((DOC, Document.of({"_id": 9, "at": ZERO_TIMESTAMP})), "holds a timestamp of 0"),
    ],
    ids=["none", "too many", "one id", "no id", "no document", "no time"],
)
def test_many_are_inserted_under_ids_of_their_own(docs: tuple[Document, ...], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        _ = insert_many("c", *docs)
    assert len(insert_many("c", *(Document.of({"_id": number}) for number in range(INSERTS_MAX))).docs) == INSERTS_MAX


# --- inserts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"a": 1},
        {"_id": None},
        {"_id": True},
        {"_id": 1.0},
        {"_id": b"x"},
        {"_id": Foreign("binData", b"\1\0\0\0\5x")},
        {"_id": Foreign("timestamp", bytes(7) + b"\1")},
        {"_id": Instant(0)},
        {"_id": ("x",)},
        {"_id": {"$gt": ""}},
    ],
)
def test_an_inserted_document_has_a_scalar_id(bad: dict[str, object]) -> None:
    with pytest.raises(Misuse, match="_id that is a string, an integer, an ObjectId or a UUID") as raised:
        _ = insert_one("c", Document.of({**bad, "secret": SECRET}))

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("name", ["$set", "a.b", "", "1"])
def test_an_inserted_document_has_names_that_updates_can_address(name: str) -> None:
    with pytest.raises(Misuse, match="cannot name a field"):
        _ = insert_one("c", Document.of({"_id": "x", name: 1}))

    assert insert_one("c", Document.of({"_id": "x", "a": {name: 1}})).doc[ID] == "x"


@given(
    st.text() | st.integers(-(2**63), 2**63 - 1) | st.binary(min_size=12, max_size=12).map(partial(Foreign, "objectId"))
)
@example("$where")
def test_an_id_is_data_whatever_it_looks_like(key: str | int | Foreign) -> None:
    """Injection has no entry point."""
    assert insert_one("c", Document.of({"_id": key})).doc.held(ID) == key


# --- values, printing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ON)
def test_operations_are_values(operation: str) -> None:
    one, same, other = ON[operation]("c"), ON[operation]("c"), ON[operation]("d")

    assert one == same
    assert hash(one) == hash(same)
    assert one != other


EITHER: Final[Filter] = AnyOf((Eq(STATUS, "free"), Eq(COUNT, 0)))


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (find_one("c", WHERE), 'find c where _id = "x"'),
        (find_one("c", WHERE, EITHER), 'find c where _id = "x" and (status = "free" or count = 0)'),
        (find_one("c", WHERE, sort=(Descending(COUNT),)), 'find c, count descending, where _id = "x"'),
        (
            find_all("c", limit=2, sort=(Ascending(STATUS),), after=("free", "x")),
            'find up to 2 of c, status ascending, after "free", "x" where has _id',
        ),
        (
            find_one_and_update("c", EITHER, Add(COUNT, 1), sort=(Ascending(COUNT), Descending(STATUS))),
            'find and update c, count ascending, status descending, where (status = "free" or count = 0): count += 1',
        ),
        (
            find_one_and_update("c", WHERE, Put(STATUS, "held"), Add(COUNT, 1)),
            'find and update c where _id = "x": status := "held", count += 1',
        ),
        (update_one("c", WHERE, Push(NAMES, "n", last=2)), 'update c where _id = "x": push "n" to names, keep 2'),
        (upsert_one("c", WHERE, Add(COUNT, 1)), 'upsert in c where _id = "x": count += 1'),
        (insert_one("c", Document.of({"_id": 7, "n": None})), "insert into c: {_id: 7, n: null}"),
        (insert_many("c", DOC, Document.of({"_id": 7})), 'insert into c: {_id: "x"}; {_id: 7}'),
        (delete_one("c", Exists(NAMES)), "delete c where has names"),
        (update_many("c", Exists(NAMES), Add(COUNT, 1)), "update all of c where has names: count += 1"),
        (delete_many("c", Exists(NAMES)), "delete all of c where has names"),
        (
            bulk_update(update_one("c", WHERE, Add(COUNT, 1)), update_one("c", Eq(ID, "y"), Remove(COUNT))),
            'in bulk: update c where _id = "x": count += 1; update c where _id = "y": remove count',
        ),
    ],
)
def test_an_operation_is_one_line_that_a_person_can_read(operation: Operation, text: str) -> None:
    assert str(operation) == text


@given(st.text())
@example("x\n\x1b[31m\u2028")
def test_no_value_forges_a_line(hostile: str) -> None:
    doc = Document.of({"_id": hostile})

    assert all(str(operation).isprintable() for operation in (insert_one("c", doc), find_one("c", Eq(ID, hostile))))


def test_there_are_eleven_operations() -> None:
    made = {type(ON[name]("c")) for name in ON}

    assert made == {
        FindOne,
        FindAll,
        FindOneAndUpdate,
        UpdateOne,
        UpsertOne,
        InsertOne,
        DeleteOne,
        UpdateMany,
        DeleteMany,
        BulkUpdate,
        InsertMany,
    }
