"""The changes that `tidegate.reactive.record.snapshot` detects are those of MongoDB's aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import bson
import pytest
from bson import Binary, Code, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from tests.length import FILTERED, NOTICED, PAIRS, PROJECTED

from tidegate.model.checks.strategies.bson import (
    ODD_DECIMALS,
    binary,
    decimal,
    foreign_document_pairs,
    foreign_pairs,
    foreigns,
    javascript,
    regex,
)
from tidegate.model.documents import (
    AddToSet,
    AnyOf,
    Contains,
    Document,
    Eq,
    Field,
    Filter,
    Foreign,
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Ne,
    Not,
    Pull,
    Push,
    Put,
    Update,
    Value,
    equal,
    exactly,
    matches,
    updated,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.reactive.checks.laws import snapshot as laws
from tidegate.reactive.checks.strategies.snapshot import computed_projections
from tidegate.reactive.record.snapshot import (
    Changed,
    Projection,
    SnapshotVerdict,
    Unchanged,
    changed,
    differs,
    expression,
    snapshot,
)
from tidegate_adapters.mongo import changes, condition
from tidegate_adapters.mongo.bson import CODEC, loaded, stored

Raw: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[Document, Document]
Decide: TypeAlias = Callable[[Document | None, Document], SnapshotVerdict]
Ask: TypeAlias = Callable[[Projection], Value]
Differ: TypeAlias = Callable[[Projection, Document | str], Document]

BATCH: Final = 20

FIELD: Final = Field[Value]("v")
MISSING: Final = Document()
EDGES: Final[tuple[Value, ...]] = (
    *(None, False, True, 0, 0.0, -0.0, 1, 1.0, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, 2.0**63, math.nan, math.inf),
    *("", "a", "A", "$v", b"", b"a", Instant(0), Instant(-1_000), (), (None,), (1,), (1.0,), ((),), Document()),
    *(
        Document((("a", 1), ("b", 2))),
        Document((("b", 2), ("a", 1))),
        Document((("a", None),)),
        Document((("$gt", 0),)),
    ),
    *ODD_DECIMALS,
    *(decimal(10, -1), decimal(2**53, 0), decimal(2**53 + 1, 0), decimal(2**63 - 1, 0), decimal(2**63, 0)),
    *(Foreign("objectId", b"a" * 12), Foreign("timestamp", b"\1" * 8), Foreign("minKey", b""), Foreign("maxKey", b"")),
    *(regex(""), regex("a"), regex("a", "i"), javascript(""), javascript("a")),
    *(binary(data, subtype) for data in (b"", b"a") for subtype in (2, 4, 5)),
    (decimal(1, 0),),
)


def held(value: Value) -> Document:
    return Document(((FIELD.name, value),))


EVERY_TWO: Final = [(left, right) for left in (MISSING, *map(held, EDGES)) for right in (MISSING, *map(held, EDGES))]


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[Raw]]:
    with MongoClient[Raw](mongodb) as client:
        yield client.get_database(database, codec_options=CODEC)["pairs"]


def examples(batches: int, *phases: Phase) -> settings:
    return settings(
        max_examples=batches,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=phases or (Phase.generate, Phase.shrink),
    )


def computed(collection: Collection[Raw], drawn: Sequence[Pair], expression: Raw) -> list[Raw]:
    docs = [{"_id": n, "l": stored(left, "l"), "r": stored(right, "r")} for n, (left, right) in enumerate(drawn)]
    collection.insert_many(docs)
    try:
        return list(collection.aggregate([{"$sort": {"_id": 1}}, {"$replaceWith": expression}]))
    finally:
        collection.delete_many({})


def check_values(decide: Decide, collection: Collection[Raw], drawn: Sequence[Pair]) -> None:
    answers = computed(collection, drawn, {"differ": {"$ne": [f"$l.{FIELD}", f"$r.{FIELD}"]}})
    for (before, after), answer in zip(drawn, answers, strict=True):
        verdict = decide(before, after)

        assert isinstance(verdict, Changed) == answer["differ"], f"{before} and {after}: {verdict}"


def check_random_values(decide: Decide, collection: Collection[Raw], count: int, *phases: Phase) -> int:
    compared = 0

    @examples(count // BATCH, *phases)
    @given(st.lists(foreign_pairs(), min_size=BATCH, max_size=BATCH))
    def check(drawn: list[tuple[Value, Value]]) -> None:
        nonlocal compared
        check_values(decide, collection, [(held(left), held(right)) for left, right in drawn])
        compared += len(drawn)

    check()
    return compared


def test_random_values_compare_as_in_mongodb(collection: Collection[Raw]) -> None:
    assert check_random_values(changed, collection, PAIRS) >= PAIRS


def test_edges_compare_as_in_mongodb(collection: Collection[Raw]) -> None:
    """Numbers by value, NaN equal to NaN, true no number, missing not null, keys in order."""
    check_values(changed, collection, EVERY_TWO)


WRONG: Final[dict[str, Callable[[Document, Document], bool]]] = {
    "identity": lambda before, after: before == after,
    "the equality of Python": lambda before, after: before.held(FIELD) == after.held(FIELD),
    "missing as null": lambda before, after: equal(before.held(FIELD), after.held(FIELD)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_another_equality_is_found_out(collection: Collection[Raw], wrong: str) -> None:
    def decide(before: Document | None, after: Document) -> SnapshotVerdict:
        assert before is not None
        return Unchanged() if WRONG[wrong](before, after) else changed(None, after)

    with pytest.raises(AssertionError, match=" and "):
        check_values(decide, collection, EVERY_TWO)


@pytest.mark.parametrize("wrong", ["identity", "the equality of Python"])
def test_random_values_find_it_out_as_well(collection: Collection[Raw], wrong: str) -> None:
    def decide(before: Document | None, after: Document) -> SnapshotVerdict:
        assert before is not None
        return Unchanged() if WRONG[wrong](before, after) else changed(None, after)

    with pytest.raises(AssertionError, match=" and "):
        check_random_values(decide, collection, NOTICED * BATCH, Phase.generate)


def with_id(number: int, document: Document) -> Document:
    return Document((("_id", number), *((key, value) for key, value in document.items if key != "_id")))


def check_projections(collection: Collection[Raw], ask: Ask, differ: Differ, count: int, *phases: Phase) -> int:
    compared = 0

    @examples(count // BATCH, *phases)
    @given(computed_projections(), st.lists(foreign_document_pairs(), min_size=BATCH, max_size=BATCH))
    def check(projection: Projection, drawn: list[Pair]) -> None:
        nonlocal compared
        pairs = [(with_id(n, before), with_id(n, after)) for n, (before, after) in enumerate(drawn)]
        known, seen = ([taken(pair[side], projection) for pair in pairs] for side in (0, 1))
        branches = [
            {"case": {"$eq": ["$_id", n]}, "then": stored(differ(projection, each))} for n, each in enumerate(known)
        ]
        answer = {"seen": stored(ask(projection)), "differs": {"$switch": {"branches": branches}}}
        collection.insert_many([stored(after, "after") for _, after in pairs])
        try:
            answers = list(collection.aggregate([{"$sort": {"_id": 1}}, {"$replaceWith": answer}]))
        finally:
            collection.delete_many({})
        for before, after, answer in zip(known, seen, answers, strict=True):
            verdict = changed(before, after)

            assert laws.the_server_sees_the_same(after, loaded(answer["seen"], "seen"), answer["differs"], verdict), (
                f"{projection}: from {before} to {after}, in MongoDB {answer}"
            )
        compared += len(pairs)

    check()
    return compared


def taken(document: Document, projection: Projection) -> Document:
    result = snapshot(document, projection)
    assert isinstance(result, Document)
    return result


def test_a_projection_sees_what_mongodb_sees(collection: Collection[Raw]) -> None:
    """Law N11, by MongoDB itself; stored snapshots are literals."""
    assert check_projections(collection, expression, differs, PROJECTED) >= PROJECTED


def without_literal(projection: Projection, before: Document | str) -> Document:
    """Planted bug of mongodash: the server evaluates the stored snapshot."""
    return Document((("$ne", (before, expression(projection))),))


def first_names(projection: Projection) -> Value:
    """Planted bug: the query requests the whole top-level fields of paths."""
    fields = {way[0].name: f"${way[0].name}" for way, _ in projection.ways}
    return Document(tuple(fields.items())) if fields else expression(projection)


@pytest.mark.parametrize(("ask", "differ"), [(expression, without_literal), (first_names, differs)])
def test_another_expression_is_found_out(collection: Collection[Raw], ask: Ask, differ: Differ) -> None:
    with pytest.raises((AssertionError, OperationFailure)):
        check_projections(collection, ask, differ, NOTICED * BATCH, Phase.generate)


def test_only_ids_travel_to_the_planner(collection: Collection[Raw]) -> None:
    projection = Projection.of({"status": 1, "place.city": 1})
    records = collection.database["records"]
    documents: dict[str, tuple[Raw, Raw | None]] = {
        "same": (
            {"status": decimal(1, 0), "place": {"city": "x", "street": "y"}},
            {"place": {"city": "x"}, "status": 1},
        ),
        "other": ({"status": 2, "place": {"city": "x"}}, {"place": {"city": "x"}, "status": 1}),
        "null": ({"status": None}, {"place": {}}),
        "missing": ({"other": 1}, {"place": {}}),
        "dollar": ({"status": "$status"}, {"place": {}, "status": "$status"}),
        "new": ({"status": 1}, None),
    }
    for id_, (document, seen) in documents.items():
        collection.insert_one({"_id": id_, **stored(Document.of(document))})
        if seen is not None:
            records.insert_one({"source": id_, "snapshot": stored(Document.of(seen))})
    asked = differs(projection, "$$record.snapshot")
    found = collection.aggregate(
        [
            {"$lookup": {"from": "records", "localField": "_id", "foreignField": "source", "as": "records"}},
            {"$match": {"$expr": {"$let": {"vars": {"record": {"$first": "$records"}}, "in": stored(asked)}}}},
            {"$project": {"_id": 1}},
            {"$sort": {"_id": 1}},
        ]
    )

    assert list(found) == [{"_id": "new"}, {"_id": "null"}, {"_id": "other"}]


@examples(200)
@given(foreign_document_pairs(), foreigns())
def test_what_only_bson_has_comes_back_as_it_was(pair: Pair, value: Foreign) -> None:
    """Law D1, through pymongo's codec, at every depth."""
    document = pair[0].put(FIELD, value)
    read: Raw = bson.decode(bson.encode(stored(document)), CODEC)

    assert exactly(loaded(read, "c")) == exactly(document)


@pytest.mark.parametrize(
    ("value", "kind", "payload"),
    [
        (ObjectId("000102030405060708090a0b"), "objectId", bytes(range(12))),
        (Decimal128("1.50"), "decimal", decimal(150, -2).payload),
        (Binary(b"a", 4), "binData", binary(b"a", 4).payload),
        (Binary(b"a", 2), "binData", binary(b"a", 2).payload),
        (Regex("a", "ix"), "regex", b"a\0ix\0"),
        (Code("f()"), "javascript", javascript("f()").payload),
        (Timestamp(1, 2), "timestamp", b"\2\0\0\0\1\0\0\0"),
        (Code("a", {"b": 1}), "javascriptWithScope", b"\x16\0\0\0\2\0\0\0a\0\x0c\0\0\0\x10b\0\1\0\0\0\0"),
        (Timestamp(0, 0), "timestamp", bytes(8)),
        (MinKey(), "minKey", b""),
        (MaxKey(), "maxKey", b""),
    ],
)
def test_types_of_bson_are_taken_over(value: object, kind: str, payload: bytes) -> None:
    document = loaded({"v": value}, "c")

    assert document == held(Foreign(kind, payload))
    assert bson.encode(stored(document)) == bson.encode({"v": value})


@pytest.mark.parametrize(
    "value", [Code("a\udcff", {}), "\udcff", object(), 1j], ids=["code", "text", "object", "complex"]
)
def test_what_has_no_counterpart_is_refused(value: object) -> None:
    with pytest.raises(Misuse):
        loaded({"v": value}, "c")


@pytest.mark.parametrize("value", [*EDGES, Foreign("objectId", b"b" * 12)], ids=str)
def test_updates_do_the_same_with_what_only_bson_has(collection: Collection[Raw], value: Value) -> None:
    """Including the text of a pattern."""
    held_now = Document((("v", (*EDGES, "ba", value)),))
    field = Field[tuple[Value, ...]](FIELD.name)
    terms: list[Callable[[], Update]] = [
        lambda: Put(FIELD, value),
        lambda: Push(field, value, 3),
        lambda: AddToSet(field, value),
        lambda: Pull(field, value),
    ]
    for term in terms:
        try:
            update = term()
        except Misuse:  # MongoDB would read it as a condition
            assert isinstance(value, (tuple, Document)) or (isinstance(value, Foreign) and value.type == "regex")
            continue
        collection.delete_many({})
        collection.insert_one({"_id": 1, **stored(held_now)})
        collection.update_one({"_id": 1}, changes((update,)))
        read = collection.find_one({"_id": 1}, {"_id": 0})

        assert read is not None
        assert exactly(loaded(read, "c")) == exactly(updated(held_now, (update,), lambda: Instant(0))), str(update)


FOREIGN_FILTERS: Final[tuple[Callable[[Foreign], Filter], ...]] = (
    lambda value: Eq(FIELD, value),
    lambda value: In(FIELD, (1, value) if value.type != "regex" else (1,)),
    lambda value: Contains(Field[tuple[Value, ...]](FIELD.name), value),
    lambda _: Lt(Field[int](FIELD.name), 1),
    lambda _: Gt(FIELD, 0.1),
    lambda _: AnyOf((Le(FIELD, 2**53), Ge(FIELD, math.inf))),
    lambda value: Ne(FIELD, value if value.type != "regex" else None),
    lambda value: Not(Eq(FIELD, value)),
)


@pytest.mark.parametrize("number", range(len(FOREIGN_FILTERS)))
def test_filters_find_what_only_bson_has(collection: Collection[Raw], number: int) -> None:
    compared = 0

    @examples(FILTERED)
    @given(foreigns(), st.lists(foreign_pairs(), min_size=BATCH, max_size=BATCH))
    def check(value: Foreign, drawn: list[tuple[Value, Value]]) -> None:
        nonlocal compared
        docs = [held(each) for each in (*EDGES, value, (value,), *(each for pair in drawn for each in pair))]
        where = FOREIGN_FILTERS[number](value)
        collection.delete_many({})
        collection.insert_many([{"_id": n, **stored(doc, "doc")} for n, doc in enumerate(docs)])
        found = {each["_id"] for each in collection.find(condition(where), {"_id": 1})}

        assert found == {n for n, doc in enumerate(docs) if matches(where, doc, lambda: Instant(0))}, str(where)
        compared += len(docs)

    check()
    assert compared > FILTERED * BATCH
