"""Operations on documents: every filter and update, on a few ids and fields, so that they meet what others left."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import (
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
)
from tidegate.model.instants import MINUTE
from tidegate.model.operations import DeleteOne, FindAll, FindOne, FindOneAndUpdate, InsertOne, Operation, UpdateOne
from tidegate.model.strategies.documents import field_names, values

HOUR: Final = 60 * MINUTE
YEAR: Final = 365 * 24 * HOUR
IDS: Final[SearchStrategy[str | int]] = st.sampled_from(("x", "y", 1, "x", "y", 1, 2, "$a", ""))
NAMES: Final = st.one_of(st.sampled_from(("a", "b", "c")), st.sampled_from(("a", "b", "c")), field_names())
FIELDS: Final = NAMES.filter(lambda name: name != ID.name).map(Field[Any])
INTEGERS: Final = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1))
AGES: Final = st.one_of(st.sampled_from((0, 1, -HOUR, HOUR, 50 * YEAR)), st.integers(-8_000 * YEAR, 3_000 * YEAR))


def filters(value: SearchStrategy[Value] | None = None) -> SearchStrategy[Filter]:
    """Every filter, most of them about one document.

    Args:
        value: What fields are compared with; any value if it is not given.
    """
    against = values() if value is None else value
    field = st.one_of(FIELDS, FIELDS, FIELDS, st.just(ID))
    leaf: SearchStrategy[Filter] = st.one_of(
        st.builds(Eq[Any], field, against),
        st.builds(Lt, field, INTEGERS),
        st.builds(In[Any], field, st.lists(st.one_of(against, IDS), max_size=3).map(tuple)),
        st.builds(Exists, field),
        st.builds(Contains[Any], field, against),
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


def updates(value: SearchStrategy[Value] | None = None) -> SearchStrategy[tuple[Update, ...]]:
    """One to three updates of every kind, of different fields.

    Args:
        value: What is put; any value if it is not given.
    """
    put = values() if value is None else value
    scalar = put.filter(lambda each: not isinstance(each, (tuple, Document)))
    update: SearchStrategy[Update] = st.one_of(
        st.builds(Put[Any], FIELDS, put),
        st.builds(Add, FIELDS, INTEGERS),
        st.builds(Push[Any], FIELDS, put, st.sampled_from((None, 1, 2, 3))),
        st.builds(Pull[Any], FIELDS, scalar),
        st.builds(AddToSet[Any], FIELDS, put),
        st.builds(Remove, FIELDS),
        st.builds(PutServerTime, FIELDS),
    )
    return st.lists(update, min_size=1, max_size=3, unique_by=lambda each: each.field.name).map(tuple)


def operations(collection: str, value: SearchStrategy[Value] | None = None) -> SearchStrategy[Operation]:
    """Every operation, updates more often than others.

    Args:
        collection: On which it operates.
        value: What is put, and compared with; any value if it is not given.
    """
    name, where, changes = st.just(collection), filters(value), updates(value)
    find_and_update = st.builds(FindOneAndUpdate, name, where, changes)
    update = st.builds(UpdateOne, name, where, changes)
    find = st.builds(FindOne, name, where)
    insert = st.builds(InsertOne, name, inserted(values() if value is None else value))
    delete = st.builds(DeleteOne, name, where)
    find_all = st.builds(FindAll, name, st.one_of(st.just(Exists(ID)), where), st.integers(1, 4))
    return st.one_of(
        find_and_update, find_and_update, find_and_update, update, update, find, find_all, insert, insert, delete
    )


@st.composite
def inserted(draw: DrawFn, value: SearchStrategy[Value]) -> Document:
    """A document whose id stands anywhere in it."""
    items = list(draw(st.dictionaries(FIELDS.map(str), value, max_size=3)).items())
    items.insert(draw(st.integers(0, len(items))), (ID.name, draw(IDS)))
    return Document(tuple(items))
