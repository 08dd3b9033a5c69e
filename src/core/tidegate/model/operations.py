"""The commands of a document store; each is atomic for one document.

    FindOne            a document that matches, or None; in full or these fields; the first of a
        sort, if given
    FindAll            the matching documents of one snapshot, in the order of a sort or of their
        ids; likewise
    FindOneAndUpdate   the document after the updates, or None if none matched; with a sort, the
        most urgent one
    UpdateOne          how many documents matched: 0 or 1
    UpsertOne          the document after the updates; if none matched, the one that the filter
        describes is inserted
    InsertOne          no reply; Refused if the id is taken
    InsertMany         how many of the documents were inserted: those whose ids were free
    DeleteOne          how many documents were deleted: 0 or 1
    UpdateMany         how many documents matched; each of them is updated
    DeleteMany         how many documents were deleted: all that matched
    BulkUpdate         how many of these UpdateOne matched, in total
    StoreTime          the store's time

`UpdateMany`, `DeleteMany`, `BulkUpdate` and `InsertMany` are not atomic over documents: others may
read and write in between, and a part may stay done.

    a total        tells how many, never which
    Ambiguous      none, some or all may be done; also if one document is refused
    Refused        no change was made
    NotDurable     all was done, and no majority has confirmed all of it

To learn which, read the documents; a version or a request id must show it. No driver resends
`UpdateMany` or `DeleteMany`: a second one changes the documents that still match, so an update of
many should change what its filter tests.

A write is Refused if a unique index would contain the same values twice, as in MongoDB: a missing
field counts as null, an array as each of its elements, and numbers compare by value. If several
documents match, the first of the sort is taken, without a sort the first in natural order. The
exact meaning is in `tidegate.sim.world.world`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Never, TypeAlias, final

import attrs

from tidegate.model.documents import (
    FILTERS,
    ID,
    UPDATES,
    AllOf,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Ge,
    Gt,
    HasOther,
    Le,
    Lt,
    OlderThan,
    Sort,
    Update,
    Value,
    checked,
    equalities,
    exactly,
    fields_of,
    has_lone_surrogate,
    parts_of,
    show,
)
from tidegate.model.documents.bson import ZERO_TIMESTAMP, is_object_id, is_regex, is_uuid
from tidegate.model.documents.orders import check_sort
from tidegate.model.documents.value import check_field_name
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, Duration, Instant, seconds
from tidegate.model.values import check_int, check_tuple, check_type

_COLLECTION_BYTES_MAX: Final = 191
"""MongoDB allows 255 bytes for database name (at most 63), dot and collection name."""
FOUND_MAX: Final = 1_000
"""The most documents in one find; for more, continue with `after`."""
UPDATES_MAX: Final = FOUND_MAX
"""One find can read the results of a bulk back."""
INSERTS_MAX: Final = FOUND_MAX
Unique: TypeAlias = Mapping[str, tuple[Fields, ...]]


@final
@attrs.frozen
class Index:
    """An index that speeds up a find and changes no result.

    It serves a find with the same sort, optionally with an equality on its first fields:
    `Index((Ascending(STATE), Descending(PRIORITY)))` finds the most urgent one of a state.

    Invariants: it has a key; a partial index uses only `Eq`, `Lt`, `Le`, `Gt`, `Ge`, `Exists`, and
    `AllOf` of them.

    Attributes:
        where: The documents in it, which a find by it must ask for too; None for all.
    """

    keys: Sort
    where: Filter | None = None

    def __attrs_post_init__(self) -> None:
        check_sort(self.keys)
        if not self.keys:
            raise Misuse("an index by nothing", todo="name what it is sorted by: Index((Ascending(...),))")
        if self.where is not None:
            check_type(self.where, FILTERS, "a filter")
            for part in parts_of(self.where):
                if not isinstance(part, _PARTIAL):
                    raise Misuse(
                        f"a partial index where {part}",
                        why="MongoDB takes no such filter for one",
                        todo="use Eq, Exists, Ge",
                    )


_PARTIAL: Final = (Eq, Lt, Le, Gt, Ge, Exists, AllOf)
Indexes: TypeAlias = Mapping[str, tuple[Index, ...]]
NO_INDEXES: Final[Mapping[str, tuple[Never, ...]]] = MappingProxyType({})


def check_collection(name: object) -> None:
    if not isinstance(name, str):
        raise Misuse(f"{shown(name)} is not a name of a collection", why="it is not a string")
    _check_collection_name(name)


@cache
def _check_collection_name(name: str) -> None:
    """Cached, because every operation is checked and names are few."""
    if has_lone_surrogate(name) or not 1 <= len(name.encode()) <= _COLLECTION_BYTES_MAX:
        raise Misuse(
            f"{shown(name)} is not a name of a collection", why=f"it takes 1 to {_COLLECTION_BYTES_MAX} bytes of UTF-8"
        )
    if "$" in name or "\0" in name or name.startswith((".", "system.")) or name.endswith(".") or ".." in name:
        raise Misuse(f"{name!r} is not a name of a collection", why="MongoDB gives it a meaning of its own")


def _check_query(collection: object, where: object) -> None:
    check_collection(collection)
    check_type(where, FILTERS, "a filter", "write a term, such as Eq(ID, ...), or AllOf((..., ...)) of several")


def _check_within(within: Duration | None) -> None:
    if within is not None:
        check_int(within, "a time limit in microseconds", MILLISECOND)


def _in(within: Duration | None) -> str:
    return "" if within is None else f" within {seconds(within)}"


def _check_fields(fields: object) -> None:
    if fields is not None:
        check_tuple(fields, Field, "a field to find")


def _of(fields: Fields | None) -> str:
    if fields is None:
        return ""
    return f"{len(fields)} fields of " if len(fields) > _NAMED_MAX else f"{', '.join(map(str, fields)) or ID.name} of "


_NAMED_MAX: Final = 6


def _by(sort: Sort) -> str:
    return f", {', '.join(map(str, sort))}," if sort else ""


def _check_updates(updates: tuple[Update, ...]) -> None:
    if type(updates) is not tuple or not _UPDATES.issuperset(map(type, updates)):
        check_tuple(updates, UPDATES, "an update")
    names = {update.field.name for update in updates}
    if not updates:
        raise Misuse("an update that changes nothing", todo="use find_one, or name the fields that change")
    if len(names) != len(updates):
        fields = ", ".join(update.field.name for update in updates)
        raise Misuse(f"two updates of one field: {shown(fields)}", why="MongoDB refuses conflicting updates")
    if ID.name in names:
        raise Misuse("an update of _id", why="the id of a document never changes")


_UPDATES: Final = frozenset(UPDATES)


def _check_described(where: Filter) -> None:
    """Raise Misuse unless the filter determines the document that an upsert inserts."""
    asked = equalities(where)
    if not any(each.field == ID and is_key(each.value) for each in asked):
        raise Misuse(
            "an upsert without an id",
            why="it does not say which id a new document gets, so MongoDB would make one up, another in each run",
            todo="ask for the id: AllOf((Eq(ID, ...), ...))",
        )
    if any(isinstance(part, (OlderThan, HasOther)) for part in parts_of(where)):
        raise Misuse(
            "an upsert by an age, or by what else there is",
            why="MongoDB judges neither in an upsert ($expr)",
            todo="insert_one first, and where that is refused as a duplicate, update_one",
        )
    if len({each.field for each in asked}) != len(asked):
        raise Misuse(
            "an upsert that contradicts itself", why="it asks for a field twice", todo="ask for each field once"
        )


def _key_of(where: Filter) -> Value:
    keys = [each.value for each in equalities(where) if each.field.name == ID.name and is_key(each.value)]
    if not keys:
        raise Misuse(
            "an update without an id in a bulk",
            why="the reply is a total, so that only the document shows what became of its update",
            todo="ask for the id: AllOf((Eq(ID, ...), ...)), or use update_many",
        )
    return keys[0]


def is_key(value: object) -> bool:
    return type(value) in {str, int} or is_object_id(value) or is_uuid(value)


def check_key(key: object, what: str) -> None:
    """Raise Misuse unless MongoDB allows the value as an `_id`, and it is not null or ""."""
    if type(key) is str and key:  # as most are; the filter checks the rest
        return
    checked(key, what)
    if key is None or key == "" or isinstance(key, tuple) or is_regex(key):
        raise Misuse(
            f"{shown(key)} cannot name {what}",
            why="an _id is a text that is not empty, or another value, but not null, an array or a regular expression",
            todo="pass the _id of the document",
        )


def check_inserted(doc: Document) -> None:
    check_type(doc, Document, "a document", "make one: Document.of({'_id': ..., ...})")
    if not is_key(doc.held(ID)):
        raise Misuse(
            "a document needs an _id that is a string, an integer, an ObjectId or a UUID",
            why="tidegate inserts under ids that are equal only if their types and bytes are",
            todo="make the _id one of these, and keep the other value in a field with a unique index",
        )
    for key, value in doc.items:
        check_field_name(key)
        if value == ZERO_TIMESTAMP and key != ID.name:
            raise Misuse(
                f"a document to insert holds a timestamp of 0 in {shown(key)}",
                why="MongoDB would store its own time there",
                todo="put it there once the document is inserted, or deeper",
            )


@final
@attrs.frozen(cache_hash=True)
class FindOne(Effect["Document | None"]):
    """Reply a document that matches, or None.

    `fields` are returned besides the id, all of them for None. `sort` decides if several match.
    """

    collection: str
    where: Filter
    fields: Fields | None = None
    sort: Sort = ()

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_fields(self.fields)
        check_sort(self.sort)

    def __str__(self) -> str:
        return f"find {_of(self.fields)}{self.collection}{_by(self.sort)} where {self.where}"


@final
@attrs.frozen(cache_hash=True)
class FindAll(Effect["tuple[Document, ...]"]):
    """Reply the documents that match, in the order of a sort over all types, or of their ids.

    Invariants: 1 <= limit <= FOUND_MAX; the cursor fits the sort; `fields` includes the sort
    fields.

    Attributes:
        after: The cursor of the document before the page, an id without a sort; empty to start.
        fields: The fields to return besides the id; None for all.
    """

    collection: str
    where: Filter
    limit: int
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)
    fields: Fields | None = None
    sort: Sort = ()

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_fields(self.fields)
        check_int(self.limit, "a limit", 1, FOUND_MAX)
        check_sort(self.sort)
        check_type(self.after, tuple, "a cursor")
        if self.after and len(self.after) != len(fields_of(self.sort)):
            raise Misuse(
                f"{len(self.after)} values to begin after, in an order by {', '.join(map(str, fields_of(self.sort)))}",
                todo="give the place of the last document that was found, as in cursor(doc, sort), or (doc[ID],)",
            )
        checked(self.after, "the place to begin after")
        if self.fields is not None and not {ID, *self.fields}.issuperset(fields_of(self.sort)):
            raise Misuse(
                "documents sorted by a field that is not found",
                why="whoever asks for the next page needs it to say where that begins",
                todo="name it in fields",
            )

    def __str__(self) -> str:
        after = f" after {', '.join(map(show, self.after))}" if self.after else ""
        return (
            f"find up to {self.limit} of {_of(self.fields)}{self.collection}{_by(self.sort)}{after} where {self.where}"
        )


@final
@attrs.frozen(cache_hash=True)
class FindOneAndUpdate(Effect["Document | None"]):
    """Update the document that matches, the first of `sort`; reply it as it is afterwards, or
    None.
    """

    collection: str
    where: Filter
    updates: tuple[Update, ...]
    sort: Sort = ()

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_updates(self.updates)
        check_sort(self.sort)

    def __str__(self) -> str:
        changes = ", ".join(map(str, self.updates))
        return f"find and update {self.collection}{_by(self.sort)} where {self.where}: {changes}"


@final
@attrs.frozen(cache_hash=True)
class UpdateOne(Effect[int]):
    """Reply how many documents matched: 0 or 1.

    Attributes:
        within: The time limit at the store in microseconds. A write waits for an open transaction
            that has written the document; after the limit it is `Ambiguous` (`is_too_late`).
    """

    collection: str
    where: Filter
    updates: tuple[Update, ...]
    within: Duration | None = None

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_updates(self.updates)
        _check_within(self.within)

    def __str__(self) -> str:
        changes = ", ".join(map(str, self.updates))
        return f"update {self.collection}{_in(self.within)} where {self.where}: {changes}"


@final
@attrs.frozen(cache_hash=True)
class UpsertOne(Effect[Document]):
    """Update the document that matches, or insert it; reply it as it is afterwards.

    As with MongoDB's `upsert=True`, a new document holds the fields of the filter's equalities,
    alone or in `AllOf`, and then the updates apply. Refused if a document with the id exists and
    does not match, or was inserted after the server's read; if the filter is the id alone, the
    server reads again.

    Invariants: the filter has the id in an `Eq`, so that no server invents one, no field twice, and
    no age.
    """

    collection: str
    where: Filter
    updates: tuple[Update, ...]

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_updates(self.updates)
        _check_described(self.where)

    def __str__(self) -> str:
        return f"upsert in {self.collection} where {self.where}: {', '.join(map(str, self.updates))}"


@final
@attrs.frozen(cache_hash=True)
class InsertOne(Effect[None]):
    """Insert the document; Refused if its id is taken."""

    collection: str
    doc: Document

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_inserted(self.doc)

    def __str__(self) -> str:
        return f"insert into {self.collection}: {self.doc}"


@final
@attrs.frozen(cache_hash=True)
class InsertMany(Effect[int]):
    """Insert each of the documents whose id is free, in any order, and reply how many.

    Another refusal does not stop the other inserts: the reply is `Refused` if none was inserted,
    else `Ambiguous`.

    Invariants: 1 <= len(docs) <= INSERTS_MAX; ids are distinct.
    """

    collection: str
    docs: tuple[Document, ...]

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_tuple(self.docs, Document, "a document")
        check_int(len(self.docs), "a number of documents to insert", 1, INSERTS_MAX)
        for doc in self.docs:
            check_inserted(doc)
        if len({exactly(doc.held(ID)) for doc in self.docs}) != len(self.docs):
            raise Misuse("two documents of one id to insert", todo="insert one of them")

    def __str__(self) -> str:
        return f"insert into {self.collection}: {'; '.join(map(str, self.docs))}"


@final
@attrs.frozen(cache_hash=True)
class DeleteOne(Effect[int]):
    """Reply how many documents were deleted: 0 or 1."""

    collection: str
    where: Filter

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)

    def __str__(self) -> str:
        return f"delete {self.collection} where {self.where}"


@final
@attrs.frozen(cache_hash=True)
class UpdateMany(Effect[int]):
    """Update each document that matches; reply how many matched.

    The first document that cannot be updated stops it: `Ambiguous`, because earlier ones are
    updated.
    """

    collection: str
    where: Filter
    updates: tuple[Update, ...]

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)
        _check_updates(self.updates)

    def __str__(self) -> str:
        return f"update all of {self.collection} where {self.where}: {', '.join(map(str, self.updates))}"


@final
@attrs.frozen(cache_hash=True)
class DeleteMany(Effect[int]):
    """Delete each document that matches; reply how many."""

    collection: str
    where: Filter

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)

    def __str__(self) -> str:
        return f"delete all of {self.collection} where {self.where}"


@final
@attrs.frozen(cache_hash=True)
class BulkUpdate(Effect[int]):
    """Execute each of the updates, in any order; reply how many matched in total.

    A refusal does not stop the others: `Refused` if none of them matched, else `Ambiguous`.
    `within` limits all together; their own limits are ignored.

    Invariants: 1 <= len(updates) <= UPDATES_MAX; one collection; each filter has another id in an
    `Eq`.
    """

    updates: tuple[UpdateOne, ...]
    within: Duration | None = None

    def __attrs_post_init__(self) -> None:
        check_tuple(self.updates, UpdateOne, "an update of one document")
        check_int(len(self.updates), "a number of updates in a bulk", 1, UPDATES_MAX)
        _check_within(self.within)
        if len({each.collection for each in self.updates}) > 1:
            raise Misuse("a bulk of several collections", todo="make a bulk for each collection")
        keys = [_key_of(each.where) for each in self.updates]
        if len(set(map(exactly, keys))) != len(keys):
            raise Misuse(
                "two updates of one document in a bulk",
                why="a bulk has no order, so nobody knows which is done first",
                todo="make one update of the two, or a bulk after the other",
            )

    @property
    def collection(self) -> str:
        return self.updates[0].collection

    def __str__(self) -> str:
        return f"in bulk{_in(self.within)}: {'; '.join(map(str, self.updates))}"


@final
@attrs.frozen
class StoreTime(Effect[Instant]):
    """Reply the store's time (`STORE`) in whole milliseconds.

    It may be `behind` microseconds too early, never too late, so a driver need not always request
    it.
    """

    behind: Duration = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.behind, "a time in microseconds", 0)

    def __str__(self) -> str:
        return "ask for the store's time"


def check_unique(unique: Unique) -> None:
    check_type(unique, Mapping, "unique indexes by collection")
    for collection, indexes in unique.items():
        check_collection(collection)
        check_type(indexes, tuple, "the unique indexes of a collection")
        for index in indexes:
            check_tuple(index, Field, "a field of a unique index")
            if not index or len(set(index)) != len(index):
                raise Misuse(f"a unique index on {shown(index)}", todo="name each of its fields, once")


def check_indexes(indexes: Indexes) -> None:
    check_type(indexes, Mapping, "indexes by collection")
    for collection, each in indexes.items():
        check_collection(collection)
        check_tuple(each, Index, "an index")


Operation: TypeAlias = (
    FindOne
    | FindAll
    | FindOneAndUpdate
    | UpdateOne
    | UpsertOne
    | InsertOne
    | InsertMany
    | DeleteOne
    | UpdateMany
    | DeleteMany
    | BulkUpdate
)


def find_one(collection: str, *where: Filter, fields: Fields | None = None, sort: Sort = ()) -> FindOne:
    """Find a document that matches all filters; for the options see `FindOne`."""
    return FindOne(collection, _together(where), fields, sort)


def find_all(
    collection: str,
    *where: Filter,
    limit: int,
    after: tuple[Value, ...] = (),
    fields: Fields | None = None,
    sort: Sort = (),
) -> FindAll:
    """Find the documents that match all filters; for the options see `FindAll`.

    The reply does not tell whether there are more.
    """
    return FindAll(collection, _together(where or (Exists(ID),)), limit, after, fields, sort)


def find_one_and_update(collection: str, where: Filter, *updates: Update, sort: Sort = ()) -> FindOneAndUpdate:
    """Update the document that matches, the first of the sort; reply it as it is afterwards."""
    return FindOneAndUpdate(collection, where, updates, sort)


def update_one(collection: str, where: Filter, *updates: Update, within: Duration | None = None) -> UpdateOne:
    return UpdateOne(collection, where, updates, within)


def upsert_one(collection: str, where: Filter, *updates: Update) -> UpsertOne:
    """Update or insert the document that matches; reply it as it is afterwards."""
    return UpsertOne(collection, where, updates)


def insert_one(collection: str, doc: Document) -> InsertOne:
    return InsertOne(collection, doc)


def insert_many(collection: str, *docs: Document) -> InsertMany:
    return InsertMany(collection, docs)


def delete_one(collection: str, *where: Filter) -> DeleteOne:
    return DeleteOne(collection, _together(where))


def update_many(collection: str, where: Filter, *updates: Update) -> UpdateMany:
    return UpdateMany(collection, where, updates)


def delete_many(collection: str, *where: Filter) -> DeleteMany:
    return DeleteMany(collection, _together(where))


def bulk_update(*updates: UpdateOne, within: Duration | None = None) -> BulkUpdate:
    """Send several results of `update_one` on one collection in one request; see `BulkUpdate`."""
    return BulkUpdate(updates, within)


def _together(where: tuple[Filter, ...]) -> Filter:
    return where[0] if len(where) == 1 else AllOf(where)
