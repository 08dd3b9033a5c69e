"""What `tidegate.snapshot` watches, and what it takes for a change, is what MongoDB's aggregation says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection

from tidegate.documents import Document, Field, Value, equal, exactly
from tidegate.instants import Instant
from tidegate.snapshot import Changed, Projection, Unchanged, Verdict, Way, changed, snapshot
from tidegate.strategies import document_pairs, pairs, projections
from tidegate_adapters.bson_values import CODEC, loaded, stored

Raw: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[Document, Document]
Decide: TypeAlias = Callable[[Document | None, Document], Verdict]

PAIRS: Final = 10_000
PROJECTED: Final = 2_000
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
    """What MongoDB makes of the expression over each pair, stored as `l` and `r`."""
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
    """How many random pairs `decide` was compared on with `$ne`."""
    compared = 0

    @examples(count // BATCH, *phases)
    @given(st.lists(pairs(), min_size=BATCH, max_size=BATCH))
    def check(drawn: list[tuple[Value, Value]]) -> None:
        nonlocal compared
        check_values(decide, collection, [(held(left), held(right)) for left, right in drawn])
        compared += len(drawn)

    check()
    return compared


def test_random_values_compare_as_in_mongodb(collection: Collection[Raw]) -> None:
    """Of ten thousand random pairs, those have changed for which `$ne` holds."""
    assert check_random_values(changed, collection, PAIRS) >= PAIRS


def test_edges_compare_as_in_mongodb(collection: Collection[Raw]) -> None:
    """Each edge with each: numbers by value, NaN equal to NaN, true no number, missing not null, keys in order."""
    check_values(changed, collection, EVERY_TWO)


WRONG: Final[dict[str, Callable[[Document, Document], bool]]] = {
    "identity": lambda before, after: before == after,
    "the equality of Python": lambda before, after: before.held(FIELD) == after.held(FIELD),
    "missing as null": lambda before, after: equal(before.held(FIELD), after.held(FIELD)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_another_equality_is_found_out(collection: Collection[Raw], wrong: str) -> None:
    """The comparison with MongoDB notices equalities that are near but wrong."""

    def decide(before: Document | None, after: Document) -> Verdict:
        assert before is not None
        return Unchanged() if WRONG[wrong](before, after) else changed(None, after)

    with pytest.raises(AssertionError, match=" and "):
        check_values(decide, collection, EVERY_TWO)


@pytest.mark.parametrize("wrong", ["identity", "the equality of Python"])
def test_random_values_find_it_out_as_well(collection: Collection[Raw], wrong: str) -> None:
    """A tenth of the random pairs is enough to notice."""

    def decide(before: Document | None, after: Document) -> Verdict:
        assert before is not None
        return Unchanged() if WRONG[wrong](before, after) else changed(None, after)

    with pytest.raises(AssertionError, match=" and "):
        check_random_values(decide, collection, PAIRS // 10, Phase.generate)


def expression(ways: tuple[Way, ...], root: str) -> Any:
    """What mongodash lets MongoDB compute: {a: {b: "$a.b"}} for a watched a.b."""
    if not ways:
        return root
    tree: Raw = {}
    for way in ways:
        *outer, leaf = (field.name for field in way)
        inside = tree
        for name in outer:
            inside = inside.setdefault(name, {})
        inside[leaf] = ".".join([root, *outer, leaf])
    return tree


def test_a_projection_sees_what_mongodb_sees(collection: Collection[Raw]) -> None:
    """A snapshot is the value, key order included, that MongoDB computes; and it has changed where `$ne` holds."""

    @examples(PROJECTED // BATCH)
    @given(projections(), st.lists(document_pairs(), min_size=BATCH, max_size=BATCH))
    def check(projection: Projection, drawn: list[Pair]) -> None:
        both = [expression(projection.ways, root) for root in ("$l", "$r")]
        for pair, answer in zip(
            drawn, computed(collection, drawn, {"cut": both, "differ": {"$ne": both}}), strict=True
        ):
            before, after = (snapshot(doc, projection) for doc in pair)
            seen = tuple(loaded(each, "seen") for each in answer["cut"])

            assert exactly((before, after)) == exactly(seen), f"{projection} of {pair}: {before}, {after}"
            assert isinstance(changed(before, after), Changed) == answer["differ"], f"{before} and {after}"

    check()
