"""Every operation, filter and update, on a few ids and fields, so that they interact."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.checks.strategies.documents import field_names, instants, values
from tidegate.model.documents import (
    ID,
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
    Foreign,
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
    equalities,
    exactly,
    fields_of,
    parts_of,
)
from tidegate.model.instants import MINUTE
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    is_key,
)

_HOUR: Final = 60 * MINUTE
_YEAR: Final = 365 * 24 * _HOUR
_IDS: Final[SearchStrategy[str | int | Foreign]] = st.sampled_from(
    (
        "x",
        "y",
        1,
        "x",
        "y",
        1,
        2,
        "$a",
        "",
        Foreign("objectId", b"object id 12"),
        Foreign("binData", b"\x10\0\0\0\x04of a UUID: 16 by"),
    )
)
_NAMES: Final = st.one_of(st.sampled_from(("a", "b", "c")), st.sampled_from(("a", "b", "c")), field_names())
_FIELDS: Final = _NAMES.filter(lambda name: name != ID.name).map(Field[Any])
_INTEGERS: Final = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1))
_LIMITS: Final = st.one_of(_INTEGERS, st.floats(), st.text(max_size=2), instants())
_AGES: Final = st.one_of(st.sampled_from((0, 1, -_HOUR, _HOUR, 50 * _YEAR)), st.integers(-8_000 * _YEAR, 3_000 * _YEAR))


def filters(value: SearchStrategy[Value] | None = None) -> SearchStrategy[Filter]:
    """Every filter, most of them about one document; `value` draws the compared values."""
    against = values() if value is None else value
    field = st.one_of(_FIELDS, _FIELDS, _FIELDS, st.just(ID))
    leaf: SearchStrategy[Filter] = st.one_of(
        st.builds(Eq[Any], field, against),
        st.builds(Ne[Any], field, against),
        *(st.builds(kind, field, _LIMITS) for kind in (Lt[Any], Le[Any], Gt[Any], Ge[Any])),
        *(
            st.builds(kind, field, st.lists(st.one_of(against, _IDS), max_size=3).map(tuple))
            for kind in (In[Any], NotIn[Any])
        ),
        st.builds(Exists, field),
        st.builds(HasOther, st.lists(_FIELDS, max_size=2).map(tuple)),
        st.builds(Contains[Any], field, against),
        st.builds(OlderThan, field, _AGES),
    )
    tree: SearchStrategy[Filter] = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(
                lambda kind, parts: kind(tuple(parts)),
                st.sampled_from((AllOf, AnyOf)),
                st.lists(inner, min_size=1, max_size=3),
            ),
            st.builds(Not, inner),
        ),
        max_leaves=4,
    )
    one = st.builds(Eq[Any], st.just(ID), _IDS)
    return st.one_of(one, one, st.builds(lambda first, then: AllOf((first, then)), one, tree), tree)


def updates(value: SearchStrategy[Value] | None = None) -> SearchStrategy[tuple[Update, ...]]:
    """One to three updates of every kind, of different fields; `value` draws the new values."""
    put = values() if value is None else value
    scalar = put.filter(lambda each: not isinstance(each, (tuple, Document)))
    update: SearchStrategy[Update] = st.one_of(
        st.builds(Put[Any], _FIELDS, put),
        st.builds(Add, _FIELDS, _INTEGERS),
        st.builds(Push[Any], _FIELDS, put, st.sampled_from((None, 1, 2, 3))),
        st.builds(Pull[Any], _FIELDS, scalar),
        st.builds(AddToSet[Any], _FIELDS, put),
        st.builds(Remove, _FIELDS),
        st.builds(PutServerTime, _FIELDS),
    )
    return st.lists(update, min_size=1, max_size=3, unique_by=lambda each: each.field.name).map(tuple)


def sorts() -> SearchStrategy[Sort]:
    """Sorts by up to two fields, some with the id last, in either direction."""
    field = st.sampled_from(("a", "b", "c")).map(Field[Any])
    term = st.one_of(st.builds(Ascending, field), st.builds(Descending, field))
    terms = st.lists(term, max_size=2, unique_by=lambda each: each.field).map(tuple)
    last = st.one_of(st.just(()), st.just((Ascending(ID),)), st.just((Descending(ID),)))
    return st.builds(lambda first, last: (*first, *last), terms, last)


def operations(collection: str, value: SearchStrategy[Value] | None = None) -> SearchStrategy[Operation]:
    """Every operation, updates more often than others; `value` draws new and compared values."""
    name, where, changes = st.just(collection), filters(value), updates(value)
    sort = st.one_of(st.just(()), sorts())
    find_and_update = st.builds(FindOneAndUpdate, name, where, changes, sort)
    update = st.builds(UpdateOne, name, where, changes)
    upsert = st.builds(UpsertOne, name, filters(value).filter(_describes_one), changes)
    part = st.none() | st.lists(_FIELDS, max_size=3, unique=True).map(tuple)
    find = st.builds(FindOne, name, where, part, sort)
    insert = st.builds(InsertOne, name, inserted(values() if value is None else value))
    delete = st.builds(DeleteOne, name, where)
    many = st.one_of(
        st.builds(UpdateMany, name, st.one_of(st.builds(Exists, _FIELDS), where), changes),
        st.builds(DeleteMany, name, where),
        st.builds(InsertMany, name, _documents(values() if value is None else value)),
        st.builds(BulkUpdate, _updates_of_documents(collection, filters(value), changes)),
    )
    find_all = _pages(collection, st.one_of(st.just(Exists(ID)), where), part, values() if value is None else value)
    return st.one_of(
        find_and_update,
        find_and_update,
        find_and_update,
        update,
        update,
        upsert,
        find,
        find_all,
        insert,
        insert,
        delete,
        many,
    )


def _documents(value: SearchStrategy[Value]) -> SearchStrategy[tuple[Document, ...]]:
    return st.lists(inserted(value), min_size=1, max_size=3, unique_by=lambda doc: exactly(doc.held(ID))).map(tuple)


@st.composite
def _pages(
    draw: DrawFn,
    collection: str,
    where: SearchStrategy[Filter],
    part: SearchStrategy[Fields | None],
    value: SearchStrategy[Value],
) -> FindAll:
    sort, fields = draw(st.one_of(st.just(()), sorts())), draw(part)
    held = draw(st.tuples(*(value for _ in fields_of(sort)[:-1]), _IDS))
    wanted = None if fields is None else tuple({*fields, *fields_of(sort)})
    return FindAll(collection, draw(where), draw(st.integers(1, 4)), draw(st.sampled_from(((), held))), wanted, sort)


def _updates_of_documents(
    collection: str, where: SearchStrategy[Filter], changes: SearchStrategy[tuple[Update, ...]]
) -> SearchStrategy[tuple[UpdateOne, ...]]:
    return st.lists(st.tuples(_IDS, where, changes), min_size=1, max_size=3, unique_by=lambda each: each[0]).map(
        lambda drawn: tuple(UpdateOne(collection, AllOf((Eq(ID, key), when)), what) for key, when, what in drawn)
    )


def _describes_one(where: Filter) -> bool:
    asked = [each.field.name for each in equalities(where)]
    keys = [each for each in equalities(where) if each.field == ID and is_key(each.value)]
    ages = any(isinstance(part, (OlderThan, HasOther)) for part in parts_of(where))
    return bool(keys) and len(set(asked)) == len(asked) and not ages


@st.composite
def inserted(draw: DrawFn, value: SearchStrategy[Value]) -> Document:
    items = list(draw(st.dictionaries(_FIELDS.map(str), value, max_size=3)).items())
    items.insert(draw(st.integers(0, len(items))), (ID.name, draw(_IDS)))
    return Document(tuple(items))
