"""The embedded store and a real MongoDB answer every operation alike, and then hold the same documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from hypothesis.strategies import DrawFn, SearchStrategy
from pymongo import MongoClient
from pymongo.collection import Collection

from tidegate.documents import (
    ID,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Contains,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    In,
    Lt,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    Value,
    exactly,
    matches,
)
from tidegate.effects import DUPLICATE_KEY, Failure
from tidegate.instants import MILLISECOND, MINUTE, SECOND, Instant
from tidegate.operations import DeleteOne, FindOne, FindOneAndUpdate, InsertOne, Operation, UpdateOne
from tidegate.sim.world import pinned
from tidegate.strategies import documents, field_names, instants, pairs, values
from tidegate_adapters.bson_values import CODEC, loaded
from tidegate_adapters.embedded import Embedded, process_clock
from tidegate_adapters.mongo import Mongo

SEQUENCES: Final = 1_000
COLLECTION: Final = "things"
HOUR: Final = 60 * MINUTE
YEAR: Final = 365 * 24 * HOUR

# A small stock, so that operations meet the documents that others left.
BEGUN: Final[tuple[str | int, ...]] = ("x", "y", 1)
IDS: Final[SearchStrategy[str | int]] = st.one_of(st.sampled_from(BEGUN), st.sampled_from((2, "$a", "")))
NAMES: Final = st.one_of(st.sampled_from(("a", "b", "c")), st.sampled_from(("a", "b", "c")), field_names())
FIELDS: Final = NAMES.filter(lambda name: name != ID.name).map(Field[Any])
INTEGERS: Final = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1))
NUMBERS: Final = st.one_of(INTEGERS, st.floats())
AGES: Final = st.one_of(st.sampled_from((0, 1, -HOUR, HOUR, 50 * YEAR)), st.integers(-8_000 * YEAR, 3_000 * YEAR))


def filters(value: SearchStrategy[Value]) -> SearchStrategy[Filter]:
    """Every filter, most of them about one document."""
    field = st.one_of(FIELDS, FIELDS, FIELDS, st.just(ID))
    leaf: SearchStrategy[Filter] = st.one_of(
        st.builds(Eq[Any], field, value),
        st.builds(Lt, field, INTEGERS),
        st.builds(In[Any], field, st.lists(st.one_of(value, IDS), max_size=3).map(tuple)),
        st.builds(Exists, field),
        st.builds(Contains[Any], field, value),
        st.builds(OlderThan, field, AGES),
    )
    tree: SearchStrategy[Filter] = st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda kind, parts: kind(tuple(parts)),
            st.sampled_from((AllOf, AnyOf)),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=4,
    )
    one = st.builds(Eq[Any], st.just(ID), IDS)
    return st.one_of(one, one, st.builds(lambda first, then: AllOf((first, then)), one, tree), tree)


def updates(value: SearchStrategy[Value]) -> SearchStrategy[tuple[Update, ...]]:
    """One to three updates of every kind, of different fields."""
    scalar = value.filter(lambda each: not isinstance(each, (tuple, Document)))
    update: SearchStrategy[Update] = st.one_of(
        st.builds(Put[Any], FIELDS, value),
        st.builds(Add, FIELDS, INTEGERS),
        st.builds(Push[Any], FIELDS, value, st.sampled_from((None, 1, 2, 3))),
        st.builds(Pull[Any], FIELDS, scalar),
        st.builds(AddToSet[Any], FIELDS, value),
        st.builds(Remove, FIELDS),
        st.builds(PutServerTime, FIELDS),
    )
    return st.lists(update, min_size=1, max_size=3, unique_by=lambda each: each.field.name).map(tuple)


def operations(value: SearchStrategy[Value]) -> SearchStrategy[Operation]:
    """Every operation, updates more often than others."""
    kind = st.just(COLLECTION)
    where, changes = filters(value), updates(value)
    find = st.builds(FindOne, kind, where)
    find_and_update = st.builds(FindOneAndUpdate, kind, where, changes)
    update = st.builds(UpdateOne, kind, where, changes)
    insert = st.builds(InsertOne, kind, inserted(value))
    delete = st.builds(DeleteOne, kind, where)
    return st.one_of(find_and_update, find_and_update, find_and_update, update, update, find, insert, delete)


@st.composite
def inserted(draw: DrawFn, value: SearchStrategy[Value]) -> Document:
    """A document whose id stands anywhere in it."""
    fields = draw(st.dictionaries(FIELDS.map(str), value, max_size=3))
    items = [(name, held) for name, held in fields.items() if name != ID.name]
    items.insert(draw(st.integers(0, len(items))), (ID.name, draw(IDS)))
    return Document(tuple(items))


class Agreement(RuleBasedStateMachine):
    """Both stores do the same, one operation after the other."""

    known: ClassVar[Bundle[Value]] = Bundle("known")
    value: ClassVar[SearchStrategy[Value]] = st.one_of(known, known, values())

    def __init__(self, collection: Collection[dict[str, Any]]) -> None:
        super().__init__()
        self.collection = collection
        self.real = Mongo(collection.database.client, collection.database.name)
        self.clock = process_clock()
        self.embedded = Embedded(clock=lambda: self.clock)

    @initialize(target=known, drawn=st.lists(pairs(), min_size=1, max_size=3), number=NUMBERS)
    def begin(self, drawn: list[tuple[Value, Value]], number: float) -> Any:
        """A few documents, and the stock of values that operations choose from: those, and nearly those."""
        for key, (held, near) in zip(BEGUN, drawn, strict=False):
            self.operate(
                InsertOne(COLLECTION, Document((("_id", key), ("a", held), ("b", (near, held)), ("c", number))))
            )
        both = [each for pair in drawn for each in pair]
        return multiple(*both, *(item for each in both if isinstance(each, tuple) for item in each))

    @rule(operation=operations(value))
    def operation(self, operation: Operation) -> None:
        self.operate(operation)

    def operate(self, operation: Operation) -> None:
        """Carry the operation out in both, and compare what they answer and hold."""
        before = self.embedded.contents(COLLECTION)
        self.clock = process_clock()
        if not isinstance(operation, InsertOne) and is_about_order(operation.where, before, self.clock):
            return
        real = self.real(operation)
        there = self.contents()
        self.clock = put_by_server(operation, before, there) or self.clock
        embedded = self.embedded(operation)

        assert comparable(embedded) == comparable(real), f"{operation} answers {embedded}, in MongoDB {real}"

        here = self.embedded.contents(COLLECTION)

        assert exactly(here) == exactly(there), f"after {operation}:\n  {here}, in MongoDB\n  {there}"

    def contents(self) -> tuple[Document, ...]:
        return tuple(loaded(each, COLLECTION) for each in self.collection.find())

    def teardown(self) -> None:
        self.collection.delete_many({})


def is_about_order(where: Filter, docs: tuple[Document, ...], now: Instant) -> bool:
    """Several documents match, and MongoDB would take the first in the order of its index on _id."""
    is_indexed = any(getattr(part, "field", None) == ID for part in parts(where)) and pinned(where) is None
    return is_indexed and sum(matches(where, doc, lambda: now) for doc in docs) > 1


def parts(where: Filter) -> Iterator[Filter]:
    yield where
    if isinstance(where, (AllOf, AnyOf)):
        for part in where.parts:
            yield from parts(part)


def put_by_server(operation: Operation, before: tuple[Document, ...], after: tuple[Document, ...]) -> Instant | None:
    """The time that MongoDB's clock showed, where the operation has put it."""
    if isinstance(operation, (FindOneAndUpdate, UpdateOne)):
        fields = [update.field for update in operation.updates if isinstance(update, PutServerTime)]
        changed = [new for old, new in zip(before, after, strict=True) if exactly(old) != exactly(new)]
        for held in (doc.held(field) for doc in changed for field in fields):
            assert isinstance(held, Instant)
            assert abs(held - process_clock()) < 10 * SECOND
            return held
    return None


def comparable(reply: object) -> object:
    """A reply without the words of a refusal; only a taken id is told by its words."""
    if isinstance(reply, Failure):
        return (type(reply), reply.reason == DUPLICATE_KEY)
    return exactly(reply)


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield client.get_database(database, codec_options=CODEC)[COLLECTION]


def check(machine: Callable[[], RuleBasedStateMachine], sequences: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=8,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_embedded_store_and_mongodb_agree(collection: Collection[dict[str, Any]]) -> None:
    """Whatever the operations, replies and contents are equal: values, types, and the order of keys."""
    check(lambda: Agreement(collection), SEQUENCES)
