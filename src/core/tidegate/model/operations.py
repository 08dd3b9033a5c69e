"""What a program may ask of a document store: each is one command, and what it does to one document is atomic.

    FindOne            a document that matches, or None; all of it, or these fields; the first one of a sort, if there is one
    FindAll            the documents that match, in the order of a sort or of their ids, as they were at one time; likewise
    FindOneAndUpdate   the document as it is after the updates, or None if none matched; that is how the most urgent is taken
    UpdateOne          how many documents matched: 0 or 1
    UpsertOne          the document as it is after the updates; one that the filter describes is inserted if none matched
    InsertOne          nothing; Refused where the id is taken
    InsertMany         how many of the documents were inserted: those whose ids were free
    DeleteOne          how many documents were deleted: 0 or 1
    UpdateMany         how many documents matched; each of them is updated
    DeleteMany         how many documents were deleted: all that matched
    BulkUpdate         how many of these UpdateOne matched, all together
    StoreTime          the store's time

`UpdateMany`, `DeleteMany`, `BulkUpdate` and `InsertMany` are not atomic over documents. A server carries them out one document after the other, in an order of
its own: others may look, and write, in between, and where it stops midway, a part stays done. So

    a total        says how many, never which
    Ambiguous      none, some or all of it may be done; also where one document is refused, for others may be changed
    Refused        nothing was done
    NotDurable     all was done, and a majority has not confirmed all of it

and whoever needs to know which looks: each document has to show it, as by a version or the id of a request. No driver sends
`UpdateMany` or `DeleteMany` a second time. Who does that himself changes again what still matches, so an update of many is
to change what its filter asks for.

A write is Refused where a unique index (`Unique`) would have the same values twice, as MongoDB has it: a missing field
counts as null, an array as each of its elements, and numbers are compared by value.

Where several documents match, the first one of the sort is meant, and without a sort the first one in natural order;
programs that care name an id or a sort.
What they mean exactly is in `tidegate.sim.world`, their translation in the MongoDB adapter.
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
"""MongoDB takes 255 for the names of a database and of a collection with a dot between them, 63 of them for the database."""
FOUND_MAX: Final = 1_000
"""How many documents one find replies at most; for more, ask again after the last id (`after`)."""
UPDATES_MAX: Final = FOUND_MAX
"""How many updates one bulk has at most, so that one find reads back what became of them."""
INSERTS_MAX: Final = FOUND_MAX
"""How many documents are inserted in one request at most, likewise."""

Unique: TypeAlias = Mapping[str, tuple[Fields, ...]]
"""The unique indexes of each collection, besides that of the ids, which every collection has."""


@final
@attrs.frozen
class Index:
    """An index that makes a find quick, and changes no answer.

    It serves a find that is sorted as it is, and asks for the first of its fields to be equal to something, if need be:
    `Index((Ascending(STATE), Descending(PRIORITY)))` for the most urgent one of a state. Whoever finds by it page by page
    reads no further than a page.

    Invariants: it has a key; what a partial one holds is said by `Eq`, `Lt`, `Le`, `Gt`, `Ge`, `Exists`, and `AllOf` of them.

    Attributes:
        keys: What it is sorted by, and behind that by the id.
        where: The documents that it holds, and that are asked for whenever it is to serve; None for all.
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
"""The other indexes of each collection."""
NO_INDEXES: Final[Mapping[str, tuple[Never, ...]]] = MappingProxyType({})


def check_collection(name: object) -> None:
    """Raise Misuse unless `name` may name a collection."""
    if not isinstance(name, str):
        raise Misuse(f"{shown(name)} is not a name of a collection", why="it is not a string")
    _check_collection_name(name)


@cache
def _check_collection_name(name: str) -> None:
    """The same for strings; remembered, because every operation is checked and names are few."""
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
    """Within which time, for people."""
    return "" if within is None else f" within {seconds(within)}"


def _check_fields(fields: object) -> None:
    if fields is not None:
        check_tuple(fields, Field, "a field to find")


def _of(fields: Fields | None) -> str:
    """Which part of a document is found, for people."""
    if fields is None:
        return ""
    return f"{len(fields)} fields of " if len(fields) > _NAMED_MAX else f"{', '.join(map(str, fields)) or ID.name} of "


_NAMED_MAX: Final = 6


def _by(sort: Sort) -> str:
    """In which order, for people."""
    return f", {', '.join(map(str, sort))}," if sort else ""


def _check_updates(updates: tuple[Update, ...]) -> None:
    """Raise Misuse unless the updates touch different fields, and not the id."""
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
    """Raise Misuse unless the filter says what an upsert is to insert."""
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
    """The id that the filter asks for; Misuse if it asks for none."""
    keys = [each.value for each in equalities(where) if each.field.name == ID.name and is_key(each.value)]
    if not keys:
        raise Misuse(
            "an update without an id in a bulk",
            why="the reply is a total, so that only the document shows what became of its update",
            todo="ask for the id: AllOf((Eq(ID, ...), ...)), or use update_many",
        )
    return keys[0]


def is_key(value: object) -> bool:
    """Tell whether it may be the id of a document."""
    return type(value) in {str, int} or is_object_id(value) or is_uuid(value)


def check_key(key: object, what: str) -> None:
    """Raise Misuse unless the value can be the `_id` of a document that exists: any value that MongoDB allows, but for null and ""."""
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
    """Raise Misuse unless the document can be inserted: a scalar id, and names that updates can address."""
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
    """Replies a document that matches, or None.

    Attributes:
        collection: Where it is.
        where: What it matches.
        fields: Those that it replies with, besides the id, as far as they are there; None for all.
        sort: The first one of it, where several match; empty for any.
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
    """Replies the documents that match, in the order of a sort; without one, in the order of their ids.

    The order is that of `tidegate.model.documents.orders`, over values of all types; MongoDB's `$gt` looks at one type only.

    Invariants: 1 <= limit <= FOUND_MAX; a cursor is one of the sort; what is sorted by is found.

    Attributes:
        collection: Where they are.
        where: What they match.
        limit: How many at most, the first ones.
        after: The cursor that they come after, which is an id where there is no sort; empty for none.
        fields: Those that they are replied with, besides the id, as far as they are there; None for all.
        sort: In which order.
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
    """Replies the document as it is after the updates, or None if none matched.

    Attributes:
        collection: Where it is.
        where: What it matches.
        updates: What is changed.
        sort: The first one of it, where several match; empty for any.
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
    """Replies how many documents matched: 0 or 1.

    Attributes:
        collection: Where it is.
        where: What it matches.
        updates: What is changed.
        within: The time limit at the store, in microseconds; None for no limit. A write waits for a transaction that has written
            the same document, however long that stays open. When the limit runs out the reply is `Ambiguous` (`is_too_late`).
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
    """Replies the document as it is after the updates; if none matched, it is inserted first, of what the filter equals.

    That is what MongoDB does for `update_one` and `find_one_and_update` with `upsert=True`: the new document holds the
    fields that the filter asks to be equal to something, itself or as a part of `AllOf`, and then the updates are done.

    Refused where the id is taken, for two reasons: the document is there and does not match; or it matches, and was not
    there when the server looked, for it was inserted in between. If the filter is the id alone, the server looks again in the
    second case.

    Invariants: the filter asks for the id by `Eq`, so that no server makes one up, for no field twice, and for no age.
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
    """Inserts the document; Refused where its id is taken."""

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
    """Inserts each of the documents whose id is free, in any order, and replies how many they were.

    Where the id of one is taken, what is there stays; which ones those are, whoever needs to know reads back. One that is
    refused otherwise keeps none of the others from being inserted: `Refused` where none was, else `Ambiguous`.

    Invariants: 1 <= len(docs) <= INSERTS_MAX; each has another id.
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
    """Replies how many documents were deleted: 0 or 1."""

    collection: str
    where: Filter

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)

    def __str__(self) -> str:
        return f"delete {self.collection} where {self.where}"


@final
@attrs.frozen(cache_hash=True)
class UpdateMany(Effect[int]):
    """Updates each document that matches, one after the other, and replies how many matched.

    Where one of them cannot be changed so, no more are: `Ambiguous`, for those before it are.
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
    """Deletes each document that matches, one after the other, and replies how many were deleted."""

    collection: str
    where: Filter

    def __attrs_post_init__(self) -> None:
        _check_query(self.collection, self.where)

    def __str__(self) -> str:
        return f"delete all of {self.collection} where {self.where}"


@final
@attrs.frozen(cache_hash=True)
class BulkUpdate(Effect[int]):
    """Carries each of the updates out, in any order, and replies how many matched, all together.

    One that is refused keeps none of the others from being done: `Refused` where none of them matched, else `Ambiguous`.

    Invariants: 1 <= len(updates) <= UPDATES_MAX; all are of one collection; the filter of each asks for another id by `Eq`.

    Attributes:
        updates: Each of one document; their own time limits count for nothing.
        within: The time limit of all of them together, as of `UpdateOne`.
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
        """Where the documents are."""
        return self.updates[0].collection

    def __str__(self) -> str:
        return f"in bulk{_in(self.within)}: {'; '.join(map(str, self.updates))}"


@final
@attrs.frozen
class StoreTime(Effect[Instant]):
    """Replies the store's time (`STORE`), in whole milliseconds: for decisions that store when something is due.

    Attributes:
        behind: So much earlier than it is the answer may be, in microseconds, and never later: then it need not be asked for each time
            (`tidegate.model.instants.reckoned`).
    """

    behind: Duration = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.behind, "a time in microseconds", 0)

    def __str__(self) -> str:
        return "ask for the store's time"


def check_unique(unique: Unique) -> None:
    """Raise Misuse unless these are unique indexes: each has at least one field, and none of them twice."""
    check_type(unique, Mapping, "unique indexes by collection")
    for collection, indexes in unique.items():
        check_collection(collection)
        check_type(indexes, tuple, "the unique indexes of a collection")
        for index in indexes:
            check_tuple(index, Field, "a field of a unique index")
            if not index or len(set(index)) != len(index):
                raise Misuse(f"a unique index on {shown(index)}", todo="name each of its fields, once")


def check_indexes(indexes: Indexes) -> None:
    """Raise Misuse unless these are indexes by collection."""
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
    """Ask for a document that all of the filters match.

    Args:
        collection: Where it is.
        where: What it matches.
        fields: Those that it is replied with, besides the id; None for all.
        sort: The first one of it; empty for any.
    """
    return FindOne(collection, _together(where), fields, sort)


def find_all(
    collection: str,
    *where: Filter,
    limit: int,
    after: tuple[Value, ...] = (),
    fields: Fields | None = None,
    sort: Sort = (),
) -> FindAll:
    """Ask for the documents that all of the filters match, in the order of a sort, or of their ids; for all without any.

    Args:
        collection: Where they are.
        where: What they match.
        limit: How many at most; the reply does not say whether there are more.
        after: The cursor that they come after, that of the last one of the reply before, which is its id where there is no
            sort; empty for none.
        fields: Those that they are replied with, besides the id; None for all.
        sort: In which order.
    """
    return FindAll(collection, _together(where or (Exists(ID),)), limit, after, fields, sort)


def find_one_and_update(collection: str, where: Filter, *updates: Update, sort: Sort = ()) -> FindOneAndUpdate:
    """Ask to update the document that matches, the first one of the sort, and for what it is afterwards."""
    return FindOneAndUpdate(collection, where, updates, sort)


def update_one(collection: str, where: Filter, *updates: Update, within: Duration | None = None) -> UpdateOne:
    """Ask to update the document that matches, within a time limit at the store if there is one."""
    return UpdateOne(collection, where, updates, within)


def upsert_one(collection: str, where: Filter, *updates: Update) -> UpsertOne:
    """Ask to update the document that matches, or to insert it, and for what it is afterwards."""
    return UpsertOne(collection, where, updates)


def insert_one(collection: str, doc: Document) -> InsertOne:
    """Ask to insert the document."""
    return InsertOne(collection, doc)


def insert_many(collection: str, *docs: Document) -> InsertMany:
    """Ask to insert the documents whose ids are free, and for how many they were."""
    return InsertMany(collection, docs)


def delete_one(collection: str, *where: Filter) -> DeleteOne:
    """Ask to delete the document that all of the filters match."""
    return DeleteOne(collection, _together(where))


def update_many(collection: str, where: Filter, *updates: Update) -> UpdateMany:
    """Ask to update each document that matches, and for how many matched."""
    return UpdateMany(collection, where, updates)


def delete_many(collection: str, *where: Filter) -> DeleteMany:
    """Ask to delete each document that all of the filters match, and for how many they were."""
    return DeleteMany(collection, _together(where))


def bulk_update(*updates: UpdateOne, within: Duration | None = None) -> BulkUpdate:
    """Ask for several updates in one request, each of a document of its own, and for how many of them matched.

    Args:
        updates: What `update_one` makes, of one collection, each with the id of its document in the filter.
        within: The time limit at the store, in microseconds; None for no limit.
    """
    return BulkUpdate(updates, within)


def _together(where: tuple[Filter, ...]) -> Filter:
    return where[0] if len(where) == 1 else AllOf(where)
