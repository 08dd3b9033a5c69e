"""The embedded store and a real MongoDB answer every operation alike and then hold the same
documents.

Not drawn: a filter on an indexed field that several documents match. MongoDB takes the first in the
order of any index, the embedded store in natural order.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, ClassVar, Final, TypeAlias, final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from pymongo import MongoClient
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.length import BULK_EDGES_STEP, EDGES_STEP, NOTICED, SEQUENCES, SIZES_BEYOND

from tidegate.model.documents import (
    DEPTH_MAX,
    ID,
    SIZE_MAX,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Ascending,
    Contains,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Ge,
    Gt,
    HasOther,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Sort,
    Update,
    Value,
    cursor,
    exactly,
    matches,
    parts_of,
    size_of,
)
from tidegate.model.effects import Failure, Refused, is_duplicate
from tidegate.model.errors import TidegateError
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, STORE, Instant
from tidegate.model.operations import (
    NO_INDEXES,
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    StoreTime,
    Unique,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    bulk_update,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    upsert_one,
)
from tidegate.sim.world.world import pinned
from tidegate.strategies import operations, pairs, values
from tidegate_adapters.embedded.store import Embedded, process_clock
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async, make_unique, make_unique_async
from tidegate_adapters.mongo.bson import CODEC, loaded, stored
from tidegate_adapters.runtime.driver import choosing, documents, run, run_async

STEPS: Final = 6
COLLECTION: Final = "things"
HOUR: Final = 60 * MINUTE
YEAR: Final = 365 * 24 * HOUR


A: Final = Field[Any]("a")
B: Final = Field[Any]("b")

Spoil: TypeAlias = Callable[[object], object]


def same(reply: object) -> object:
    return reply


UNORDERED: Final = (InsertOne, InsertMany, FindAll, DeleteMany, BulkUpdate)
"""Independent of the order of documents, or with an order of their own."""
Ordered: TypeAlias = FindOne | FindOneAndUpdate | UpdateOne | UpsertOne | DeleteOne | UpdateMany


def times_put(operation: Operation) -> list[Field[Any]]:
    if isinstance(operation, BulkUpdate):
        return list(chain.from_iterable(map(times_put, operation.updates)))
    return [update.field for update in getattr(operation, "updates", ()) if isinstance(update, PutServerTime)]


@final
class Both:
    """Sends each operation to both stores; `spoil` changes the embedded store's answers."""

    def __init__(
        self, collection: Collection[dict[str, Any]], spoil: Spoil = same, *docs: Document, unique: Unique = NO_INDEXES
    ) -> None:
        self.collection = collection
        self.real = Mongo(collection.database.client, collection.database.name)
        self.clock = process_clock()
        self.embedded = Embedded({COLLECTION: docs}, clock=lambda: self.clock, unique=unique)
        self.indexed = {ID, *chain.from_iterable(chain.from_iterable(unique.values()))}
        self.spoil = spoil

    def ask(self, operation: Operation) -> None:
        before = self.embedded.contents(COLLECTION)
        self.clock = process_clock()
        if not isinstance(operation, UNORDERED) and self.is_about_order(operation, before):
            return
        put = times_put(operation)
        if put and isinstance(operation, BulkUpdate):
            return  # a bulk's stored time is not read back
        if len(put) > 1 or (put and isinstance(operation, UpdateMany) and len(before) > 1):
            return  # the stored times may differ by a millisecond
        real = self.real(operation)
        self.clock = self.put_by_server(put, before) or self.clock
        embedded = self.spoil(self.embedded(operation))

        assert comparable(embedded) == comparable(real), f"{operation} answers {embedded}, in MongoDB {real}"

    def is_about_order(self, operation: Ordered, docs: tuple[Document, ...]) -> bool:
        """Several documents match without a sort, and MongoDB may choose any index."""
        if isinstance(operation, (FindOne, FindOneAndUpdate)) and operation.sort:
            return False
        where = operation.where
        is_indexed = pinned(where) is None and any(
            getattr(part, "field", None) in self.indexed for part in parts_of(where)
        )
        return is_indexed and sum(matches(where, doc, lambda: self.clock) for doc in docs) > 1

    def compare(self) -> None:
        here, there = self.embedded.contents(COLLECTION), self.contents()

        assert exactly(here) == exactly(there), f"there is {here}, in MongoDB {there}"

    def contents(self) -> tuple[Document, ...]:
        return tuple(loaded(each, COLLECTION) for each in self.collection.find())

    def put_by_server(self, fields: list[Field[Any]], before: tuple[Document, ...]) -> Instant | None:
        for new in self.contents() if fields else ():
            if new not in before:
                put = new.held(fields[0])

                assert isinstance(put, Instant)
                assert abs(put - self.clock) < 10 * SECOND
                return put
        return None


def comparable(reply: object) -> object:
    """Without the text of a refusal, unless a unique index refused."""
    if isinstance(reply, Failure):
        return (type(reply), reply.reason if is_duplicate(reply) else "")
    return exactly(reply)


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield client.get_database(database, codec_options=CODEC)[COLLECTION]


# --- random sequences ---------------------------------------------------------------------------------------------------

# A small stock, so that operations meet documents of earlier ones.
BEGUN: Final[tuple[Value, ...]] = ("x", "y", 1)
NUMBERS: Final = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1), st.floats())


class Agreement(RuleBasedStateMachine):
    known: ClassVar[Bundle[Value]] = Bundle("known")

    def __init__(self, both: Both) -> None:
        super().__init__()
        self.both = both

    @initialize(target=known, drawn=st.lists(pairs(), min_size=1, max_size=3), number=NUMBERS)
    def begin(self, drawn: list[tuple[Value, Value]], number: float) -> Any:
        for key, (held, near) in zip(BEGUN, drawn, strict=False):
            items = ((ID.name, key), ("a", held), ("b", (near, held)), ("c", number))
            self.operate(InsertOne(COLLECTION, Document(items)))
        values = [each for pair in drawn for each in pair]
        return multiple(*values, *(item for each in values if isinstance(each, tuple) for item in each))

    @rule(operation=operations(COLLECTION, st.one_of(known, known, values())))
    def operate(self, operation: Operation) -> None:
        self.both.ask(operation)
        if not isinstance(operation, (FindOne, FindAll)):
            self.both.compare()

    def teardown(self) -> None:
        self.both.collection.delete_many({})


def named(index: Fields) -> str:
    return "+".join(map(str, index))


def check(both: Callable[[], Both], sequences: int, *phases: Phase) -> None:
    class Fresh(Agreement):
        def __init__(self) -> None:
            super().__init__(both())

    run_state_machine_as_test(
        Fresh,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=phases or (Phase.generate, Phase.shrink),
        ),
    )


def test_the_embedded_store_and_mongodb_agree(collection: Collection[dict[str, Any]]) -> None:
    check(lambda: Both(collection), SEQUENCES)


UNIQUE: Final[tuple[tuple[Fields, ...], ...]] = (((A,),), ((A, B),), ((B,), (A, B)))


@pytest.mark.parametrize("indexes", UNIQUE, ids=lambda indexes: " and ".join(map(named, indexes)))
def test_they_agree_on_what_a_unique_index_refuses(
    collection: Collection[dict[str, Any]], indexes: tuple[Fields, ...]
) -> None:
    unique = {COLLECTION: indexes}
    make_unique(collection.database.client, collection.database.name, unique)
    check(lambda: Both(collection, unique=unique), SEQUENCES // 4)


def test_an_index_that_documents_break_is_not_made(collection: Collection[dict[str, Any]]) -> None:
    collection.insert_many([{"_id": 1, "a": "secret"}, {"_id": 2, "a": "secret"}])
    client, database = collection.database.client, collection.database.name
    with pytest.raises(TidegateError, match="an index cannot be made") as raised:
        make_unique(client, database, {COLLECTION: ((A,),)})
    assert "secret" not in str(raised.value)
    collection.delete_one({"_id": 2})
    for _ in range(2):
        make_unique(client, database, {COLLECTION: ((A,),)})


def test_an_event_loop_is_answered_alike(mongodb: str, database: str) -> None:
    async def asks() -> tuple[Any, ...]:
        async with await connect_async(mongodb) as client:
            await make_unique_async(client, database, {COLLECTION: ((A,),)})
            real = AsyncMongo(client, database)
            for key in ("y", "x", 10, 9):
                await real(InsertOne(COLLECTION, Document.of({"_id": key, "a": key})))
            return (
                await real(find_all(COLLECTION, limit=3)),
                await real(FindAll(COLLECTION, In(A, ("y", 10)), 3)),
                await real(FindOneAndUpdate(COLLECTION, Eq(ID, "x"), (Put(A, 9),))),
            )

    first, matching, refused = asyncio.run(asks())
    assert [doc[ID] for doc in first] == [9, 10, "x"]
    assert [doc[ID] for doc in matching] == [10, "y"]
    assert refused == Refused("duplicate key of the index on a")


def test_a_client_that_tells_of_each_request_knows_how_many_were_inserted(mongodb: str, database: str) -> None:
    """A duplicate id is not mistaken for an earlier try of the same insert."""
    docs = tuple(Document.of({"_id": key}) for key in "abc")
    with connect(mongodb) as client:
        real = Mongo(client, database)
        assert real(InsertMany(COLLECTION, docs[:2])) == 2
        assert real(InsertMany(COLLECTION, docs)) == 1
        assert real(InsertMany(COLLECTION, docs)) == 0
        assert isinstance(real(BulkUpdate((UpdateOne(COLLECTION, Eq(ID, "a"), (Push(A, 1),)),))), int)
        assert isinstance(real(BulkUpdate((UpdateOne(COLLECTION, Eq(ID, "a"), (Add(A, 1),)),))), Refused)


def test_what_the_driver_sends_in_parts_is_not_taken_for_sent_again(mongodb: str, database: str) -> None:
    docs = tuple(Document.of({"_id": key, "a": "." * 12_000_000}) for key in "abcdef")
    with connect(mongodb) as client:
        real = Mongo(client, database)
        assert real(InsertMany(COLLECTION, docs[1:])) == 5
        assert real(InsertMany(COLLECTION, docs)) == 1
        assert real(InsertMany(COLLECTION, docs)) == 0
        each = tuple(UpdateOne(COLLECTION, Eq(ID, key), (Put(Field[str]("a"), "," * 12_000_000),)) for key in "abcdeg")
        assert real(BulkUpdate(each)) == 5


TIME: Final = Field[Instant]("at")
BEHIND: Final = 50 * MILLISECOND


async def times() -> tuple[Instant, Instant, Instant]:
    """An estimated time is at most `BEHIND` early."""
    before = await StoreTime()
    for _ in range(3):
        asked = await StoreTime()
        reckoned = await StoreTime(BEHIND)
        assert reckoned - asked >= -BEHIND
        assert await StoreTime() - reckoned >= 0
    put = await find_one_and_update(COLLECTION, Eq(ID, "x"), PutServerTime(TIME))
    assert put is not None
    return before, put[TIME], await StoreTime()


def test_the_time_of_a_store_is_that_by_which_it_judges(mongodb: str, database: str) -> None:
    doc = Document.of({"_id": "x"})

    async def looped() -> tuple[Instant, Instant, Instant]:
        async with await connect_async(mongodb) as client:
            return await run_async(times(), choosing(documents(AsyncMongo(client, database))))

    with connect(mongodb) as client:
        real = Mongo(client, database)
        assert real(InsertOne(COLLECTION, doc)) is None
        found = [run(times(), choosing(documents(real))), in_loop(looped())]
        assert real(FindOne(COLLECTION, OlderThan(TIME, MINUTE))) is None
        ahead = Instant(found[-1][2].at - MINUTE)
        assert real(UpdateOne(COLLECTION, Eq(ID, "x"), (Put(TIME, ahead),))) == 1
        assert real(FindOne(COLLECTION, OlderThan(TIME, MINUTE))) is not None
    found.append(run(times(), choosing(documents(Embedded({COLLECTION: (doc,)})))))
    for before, put, after in found:
        assert before.at <= put.at <= after.at < before.at + MINUTE
        assert (before.clock, before.at % MILLISECOND) == (STORE, 0)


SPOILT: Final[dict[str, Spoil]] = {
    "one document too few": lambda reply: reply[:-1] if isinstance(reply, tuple) else reply,
    "documents in another order": lambda reply: reply[::-1] if isinstance(reply, tuple) else reply,
    "a document without its last field": lambda reply: (
        Document(reply.items[:-1]) if isinstance(reply, Document) else reply
    ),
    "a refusal that reads as no match": lambda reply: 0 if isinstance(reply, Refused) else reply,
    "a deletion that is not counted": lambda reply: 0 if reply == 1 else reply,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_store_that_answers_otherwise_is_found_out(collection: Collection[dict[str, Any]], how: str) -> None:
    with pytest.raises(AssertionError, match="in MongoDB"):
        check(lambda: Both(collection, SPOILT[how]), NOTICED, Phase.generate)


# --- every filter and update on every edge ------------------------------------------------------------------------------


def deep(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = (value,)
    return value


def obj(**items: Value) -> Document:
    return Document(tuple((key.replace("S", "$"), item) for key, item in items.items()))


SCALARS: Final[tuple[Value, ...]] = (
    *(None, False, True, 0, -0.0, 1, 1.0, 0.1, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 2.0**63),
    *(math.nan, math.inf, -math.inf, "", "a", "$a", "a\0b", b"", b"a"),
    *(Instant(0), Instant(-1_000), Instant(-(2**63) * MILLISECOND), Instant((2**63 - 1) * MILLISECOND)),
)
CONTAINERS: Final[tuple[Value, ...]] = (
    *((), (None,), (1,), (1.0,), ((1,),), (((1,),),), (math.nan,), (-0.0,), (Instant(0),), (1, "a"), (1, 1.0, True, 0)),
    *(obj(), obj(x=1), obj(x=1.0), obj(x=1, y=2), obj(y=2, x=1), (obj(),), (obj(x=1),)),
    *(obj(Sgt=0), obj(Seq=1), obj(Sset=1), obj(x=obj(Sgt=0)), (obj(Sgt=0),), obj(Seach=(1, 2)), obj(Sregex="a")),
    *(obj(Sref="c", Sid=1), obj(Sref="c", Sid=1, Sdb="d", x=2), obj(Sref="c"), obj(Sref=1, Sid=1), deep(98)),
    Document((("x.y", 1), ("", 2), ("0", 3), ("\u00e9", 4))),
)
HELD: Final[tuple[Document, ...]] = (
    Document(),
    *(Document((("a", value),)) for value in (*SCALARS, *CONTAINERS)),
)
LIMITS: Final = tuple(
    value for value in SCALARS if isinstance(value, (int, float, str, Instant)) and not isinstance(value, bool)
)
INTS: Final = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FILTERS: Final[tuple[Filter, ...]] = (
    Exists(A),
    In(A, ()),
    *(Eq(A, value) for value in (*SCALARS, *CONTAINERS)),
    *(In(A, (value, "no")) for value in (*SCALARS, *CONTAINERS)),
    *(Contains(A, value) for value in (*SCALARS, *CONTAINERS)),
    *(Ne(A, value) for value in (*SCALARS, *CONTAINERS)),
    *(NotIn(A, (value, "no")) for value in (*SCALARS, *CONTAINERS)),
    *(kind(A, value) for kind in (Lt[Any], Le[Any], Gt[Any], Ge[Any]) for value in (*INTS, *LIMITS)),
    *(Not(kind(A, value)) for kind in (Lt[Any], Le[Any], Gt[Any], Ge[Any]) for value in LIMITS),
    *(Not(Eq(A, value)) for value in (None, 1, (1,), obj(Sgt=0))),
    Not(OlderThan(A, HOUR)),
    *(HasOther(fields) for fields in ((), (A,), (B,), (B, A))),
    Not(Not(Contains(A, 1))),
    Not(AnyOf((Eq(A, None), AllOf((Exists(A), Lt(A, 1)))))),
    *(OlderThan(A, age) for age in (0, 1, -1, 999, HOUR, -HOUR, 10_000 * YEAR, -10_000 * YEAR)),
    AllOf((Exists(A), AnyOf((Eq(A, None), Lt(A, 1))))),
)
UPDATES: Final[tuple[tuple[Update, ...], ...]] = (
    *((Put(A, value),) for value in (None, 1.0, -0.0, math.nan, "$a", *CONTAINERS)),
    *((Add(A, amount),) for amount in INTS),
    *((Push(A, value),) for value in (None, 1, "$a", (1, 2), obj(Seach=(1, 2)), obj(Sref="c"))),
    *((Push(A, 0, last),) for last in (1, 2, 2**31, 2**63 - 1)),
    *((Pull(A, value),) for value in SCALARS),
    *((AddToSet(A, value),) for value in (*SCALARS, *CONTAINERS)),
    *((Remove(A),), (PutServerTime(A),), (Remove(A), PutServerTime(B)), (Add(A, 1), Put(B, 1))),
    tuple(
        Put(Field[Any](name), 1) for name in ("z", "B", "-5", "01a", "a b", "\u0663x", "\x80", "\uffff", "\U00010000")
    ),
)


def filled(collection: Collection[dict[str, Any]]) -> Both:
    docs = [Document(((ID.name, number), *doc.items)) for number, doc in enumerate(HELD)]
    collection.delete_many({})
    collection.insert_many(stored(doc, COLLECTION) for doc in docs)
    return Both(collection, same, *docs)


def test_every_filter_means_the_same_of_every_edge(collection: Collection[dict[str, Any]]) -> None:
    both = filled(collection)
    both.compare()
    for where in FILTERS:
        both.ask(FindOne(COLLECTION, where))
        both.ask(FindAll(COLLECTION, where, len(HELD)))


SORTS: Final[tuple[Sort, ...]] = (
    *((Ascending(A),), (Descending(A),), (Ascending(A), Descending(ID)), (Descending(ID),)),
    *((Ascending(B), Descending(A)), (Descending(B), Ascending(A))),
)


def test_every_edge_has_the_same_place_in_an_order(collection: Collection[dict[str, Any]]) -> None:
    """Law WO5, including null, missing, NaN, nested and empty arrays."""
    docs = [Document(((ID.name, number), *doc.items, ("b", number % 3 or None))) for number, doc in enumerate(HELD)]
    collection.insert_many(stored(doc, COLLECTION) for doc in docs)
    both = Both(collection, same, *docs)
    for sort in SORTS:
        both.ask(find_all(COLLECTION, limit=len(docs), sort=sort))
        both.ask(find_one(COLLECTION, Exists(ID), sort=sort))
        for doc in docs:
            both.ask(find_all(COLLECTION, limit=3, after=cursor(doc, sort), sort=sort, fields=(A, B)))


KEY: Final = Field[int](ID.name)


def test_two_arrays_are_not_combined(collection: Collection[dict[str, Any]]) -> None:
    """Both stores refuse to sort by two array fields, also when finding by id."""
    docs = [Document.of({"_id": n, "a": a, "b": b}) for n, (a, b) in enumerate([(0, [1]), ([1], 0), ([5], []), (9, 9)])]
    collection.insert_many(stored(doc, COLLECTION) for doc in docs)
    both = Both(collection, same, *docs)
    sort = (Ascending(A), Descending(B))
    for where in (Exists(ID), Eq(KEY, 2), Lt(KEY, 2), Ge(KEY, 3)):
        both.ask(find_one(COLLECTION, where, sort=sort))
        both.ask(find_all(COLLECTION, where, limit=9, sort=sort))
        both.ask(find_one_and_update(COLLECTION, where, Put(A, 7), sort=sort))
        both.compare()
    for place in ((6, 0, 0), (1, 0, 0), ((5,), (1,), 0)):
        both.ask(find_all(COLLECTION, limit=9, sort=sort, after=place))


def test_every_update_makes_the_same_of_every_edge(collection: Collection[dict[str, Any]]) -> None:
    for changes in UPDATES[::EDGES_STEP]:
        both = filled(collection)
        for number in range(len(HELD)):
            both.ask(FindOneAndUpdate(COLLECTION, Eq(ID, number), changes))
        both.compare()


def test_every_filter_means_the_same_to_many(collection: Collection[dict[str, Any]]) -> None:
    both = filled(collection)
    for number, where in enumerate(FILTERS):
        both.ask(UpdateMany(COLLECTION, where, (Put(B, number),)))
        both.compare()
    for where in FILTERS[::EDGES_STEP]:
        both = filled(collection)
        both.ask(DeleteMany(COLLECTION, where))
        both.compare()


def test_every_update_of_many_makes_the_same(collection: Collection[dict[str, Any]]) -> None:
    """An update of many stops at the first refusal; a bulk skips refused updates."""
    for changes in UPDATES[BULK_EDGES_STEP - 1 :: BULK_EDGES_STEP]:
        if any(isinstance(update, PutServerTime) for update in changes):
            continue
        both = filled(collection)
        both.ask(UpdateMany(COLLECTION, Ne(B, 0), changes))
        both.compare()
        both = filled(collection)
        both.ask(bulk_update(*(UpdateOne(COLLECTION, Eq(ID, number), changes) for number in range(len(HELD)))))
        both.compare()


X: Final = Eq(ID, "x")
SMALL: Final = Document.of({"_id": "x"})
HALF: Final = bytes(SIZE_MAX // 2)
GROWING: Final[dict[str, tuple[tuple[Document, ...], Callable[[bytes], Operation]]]] = {
    "insert": ((), lambda data: InsertOne(COLLECTION, SMALL.put(A, data))),
    "upsert that inserts": ((), lambda data: upsert_one(COLLECTION, X, Put(A, data))),
    "upsert of what it asks for": ((), lambda data: upsert_one(COLLECTION, AllOf((X, Eq(A, data))), Remove(B))),
    "upsert that updates": ((SMALL,), lambda data: upsert_one(COLLECTION, X, Put(A, data))),
    "put": ((SMALL,), lambda data: UpdateOne(COLLECTION, X, (Put(A, data),))),
    "put beside what is there": ((SMALL.put(B, HALF),), lambda data: UpdateOne(COLLECTION, X, (Put(A, data),))),
    "push": ((SMALL.put(B, HALF),), lambda data: UpdateOne(COLLECTION, X, (Push(A, data),))),
    "push that drops another": (
        (SMALL.put(A, (HALF,)),),
        lambda data: find_one_and_update(COLLECTION, X, Push(A, data, 1)),
    ),
    "add to a set": ((SMALL.put(A, (HALF,)),), lambda data: find_one_and_update(COLLECTION, X, AddToSet(A, data))),
}


@pytest.fixture(scope="module")
def large() -> Iterator[Collection[dict[str, Any]]]:
    with MongoServer(cache_gb=1) as server, MongoClient[dict[str, Any]](server.uri) as client:
        yield client.get_database("large", codec_options=CODEC)[COLLECTION]


@pytest.mark.parametrize("how", GROWING)
def test_they_refuse_the_same_size(large: Collection[dict[str, Any]], how: str) -> None:
    """Law WO3: around the limit, and beyond the server's limit for any document."""
    held, grow = GROWING[how]
    made = Embedded({COLLECTION: held})
    made(grow(b""))
    (least,) = made.contents(COLLECTION)
    for beyond in SIZES_BEYOND:
        large.delete_many({})
        large.insert_many([stored(doc, COLLECTION) for doc in held] or [{"_id": "other"}])
        both = Both(large, same, *(held or (Document.of({"_id": "other"}),)))
        both.ask(grow(bytes(SIZE_MAX - size_of(least) + beyond)))
        both.compare()
        assert (max(map(size_of, both.contents())) == SIZE_MAX + beyond) == (beyond <= 0)


def test_no_depth_that_can_be_asked_for_is_refused(collection: Collection[dict[str, Any]]) -> None:
    """MongoDB 6.0.5 accepts some 80 levels more."""
    both = Both(collection)
    lowest, pushed = deep(DEPTH_MAX - 1), deep(DEPTH_MAX - 2)
    operations: tuple[Operation, ...] = (
        InsertOne(COLLECTION, SMALL.put(A, lowest)),
        upsert_one(COLLECTION, AllOf((NEW, Eq(A, lowest))), Put(B, lowest)),
        FindOneAndUpdate(COLLECTION, X, (Put(B, lowest),)),
        *(FindOneAndUpdate(COLLECTION, X, (Put(A, pushed), kind(B, pushed))) for kind in (Push[Any], AddToSet[Any])),
    )
    for operation in operations:
        both.ask(operation)
        both.compare()


NEW: Final = Eq(ID, "new")
TAKEN: Final = Document.of({"_id": "taken", "a": "something else"})


NEARLY_EQ: Final[tuple[Filter, ...]] = (
    *(In(A, values) for values in ((1,), (1, 1.0), (obj(),), ((1,),), (None,))),
    *(AnyOf((Eq(A, 1),)), AnyOf((Eq(A, 1), Eq(A, 1))), AnyOf((AllOf((Eq(A, 1),)), In(A, (1,))))),
    *(Not(Ne(A, 1)), Not(Not(Eq(A, 1))), NotIn(A, ()), AllOf((Exists(A), In(A, (1,)))), Not(NotIn(A, (1,)))),
)


def is_of_no_age(where: Filter) -> bool:
    return not any(isinstance(part, (OlderThan, HasOther)) for part in parts_of(where))


def test_every_upsert_makes_the_same_of_every_edge(collection: Collection[dict[str, Any]]) -> None:
    both = Both(collection, same, TAKEN)
    collection.insert_one(stored(TAKEN, COLLECTION))
    equalities = (where for where in FILTERS if isinstance(where, Eq))
    for where in (*equalities, *NEARLY_EQ, *filter(is_of_no_age, FILTERS[::20])):
        both.ask(upsert_one(COLLECTION, AllOf((where, NEW)), Put(B, 1)))
        both.compare()
        both.ask(upsert_one(COLLECTION, AllOf((Eq(ID, "taken"), where)), Put(B, 1)))
        both.ask(delete_one(COLLECTION, NEW))
    for changes in UPDATES:
        for held in (Eq(A, 1), Eq(A, (1, "a"))):
            both.ask(UpsertOne(COLLECTION, AllOf((held, NEW, Eq(Field[Any]("aa"), None))), changes))
            both.compare()
            both.ask(delete_one(COLLECTION, NEW))
