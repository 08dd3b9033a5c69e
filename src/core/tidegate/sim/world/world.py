"""The world as a value: named cells that hold immutable values, and the meaning of each effect.

A cell is the unit of interference: one document, the ids of one collection, a clock, a budget. A
meaning reads and writes cells only through `World`. The explorer therefore sees every cell that a
step reads, and remembers the step by them (`tidegate.sim.search.search`).

A meaning is `effect x world x who -> (world, reply), ...`: one outcome, several, or none while the
effect must wait.

A write of many documents consists of writes of one (`parts`). An upsert whose filter has more than
the id searches first and inserts later. A meaning does this at once, as an embedded store does;
`tidegate.sim.servers.halfway` adds the steps between which other actors may act.

Known not to work
    - A write of one document by a filter without an id finds and writes in one step. A server may
      miss a document that begins to match, and reply that none did.

Laws
    WO1  No two documents of a collection share an id, or the values of a unique index.
    WO2  A find returns each matching document, as of one time, in the order of their ids.
    WO3  A write that makes a document larger than the real store takes is refused
         (`tidegate.model.documents.sizes`).
    WO4  A write of many documents has the result of its parts, in any order, if none is refused.
    WO5  A sorted find returns the first of all matches, whatever their natural order; its pages
         return all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice, product
from typing import Final, TypeAlias, TypeVar, cast, final, get_args

import attrs

from tidegate.model.documents import (
    ID,
    SIZE_MAX,
    AllOf,
    AnyOf,
    Document,
    Eq,
    Field,
    Fields,
    Filter,
    In,
    Sort,
    Value,
    cursor,
    equal,
    equalities,
    in_order,
    matches,
    show,
    size_of,
    sort_key,
    sort_key_of,
    updated,
)
from tidegate.model.effects import (
    TOO_LATE,
    Ambiguous,
    Call,
    Effect,
    Failure,
    Note,
    Now,
    Refused,
    Sleep,
    duplicate_key,
    is_too_late,
)
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.instants import STORE, WALL, Duration, Instant
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
    StoreTime,
    Unique,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    check_collection,
    check_inserted,
    check_unique,
    is_key,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.model.values import check_type
from tidegate.sim.program.relative_time import by_text, plain_text, same
from tidegate.sim.world.cells import (
    DOCUMENTS,
    IDS,
    UNCONFIRMED,
    Cell,
    Key,
    Meaning,
    Order,
    Outcomes,
    Overwritten,
    Reads,
    World,
    without,
)
from tidegate.sim.world.transactions import Claim, Waits, all_confirmed, contend, has_rivals, put, transacted

__all__ = [
    "BUDGET",
    "CELLS_KEPT",
    "CLOCK",
    "DOCUMENTS",
    "FLIGHT",
    "IDS",
    "LIFE",
    "MANY",
    "MOVES",
    "NOTES",
    "PROCESS",
    "QUANTUM",
    "UNBOUNDED",
    "UNCONFIRMED",
    "UNIQUE",
    "WAKES",
    "Cell",
    "Flying",
    "Key",
    "Many",
    "Meaning",
    "Outcomes",
    "Overwritten",
    "Part",
    "PartsDone",
    "Plain",
    "Reads",
    "World",
    "calling",
    "contents",
    "document",
    "ids",
    "inbox",
    "journal",
    "journaled",
    "life",
    "notes",
    "parts",
    "paused",
    "perform",
    "pinned",
    "place",
    "target",
    "to_insert",
    "uniques",
    "unpaused",
    "wakes",
    "world_with",
]  # fmt: skip


V = TypeVar("V")

CLOCK: Final = Cell[Instant](("clock",), Instant(0, STORE))
BUDGET: Final = "budget"
"""The first part of the names of budget cells. Their numbers only fall, and only by `taken`."""

# The simulator recognises these cells by the first part of their names; see `Cell`.
LIFE: Final = "life"
NOTES: Final = "notes"
PROCESS: Final = "process"
UNIQUE: Final = "unique"
WAKES: Final = "wakes"

UNBOUNDED: Final = -1
"""A budget without limit: the value of a budget cell that the world does not begin with, if the
cell declares it.
"""

MOVES: Final = Cell[int]((BUDGET, "clock moves"), 0)
QUANTUM: Final = Cell[Duration](("quantum",), 0)
"""The step in which time passes; 0 if it does not. It never changes."""


@final
@attrs.frozen
class Flying:
    """A sent request that its sender no longer awaits, and its progress."""

    sender: str
    effect: Effect[object]
    come: Halfway | None = None

    def in_order(self) -> Flying:
        return self if self.come is None else attrs.evolve(self, come=self.come.in_order())

    def __str__(self) -> str:
        return f"{self.sender}'s late request: {self.effect}"


CELLS_KEPT: Final = 1_000

FLIGHT: Final = Cell["tuple[Flying, ...]"](("in flight",), ())


def place(process: str) -> Cell[object]:
    return Cell((PROCESS, process), None)


def life(process: str) -> Cell[int]:
    return Cell((LIFE, process), 0)


def wakes(process: str) -> Cell[Instant | None]:
    return Cell((WAKES, process), None)


@lru_cache(CELLS_KEPT)
def notes(process: str) -> Cell[tuple[tuple[str, object], ...]]:
    """The notes of the process by name; they die with it."""
    return Cell((NOTES, process), ())


@lru_cache(CELLS_KEPT)
def paused(consumer: str) -> Cell[tuple[int, ...]]:
    return Cell(("paused", consumer), ())


def unpaused(world: World, consumer: str, *numbers: int) -> World:
    """Resume these partitions; all of them if none are named."""
    waits = world.read(paused(consumer))
    left = tuple(each for each in waits if numbers and each not in numbers)
    return world if left == waits else world.write(paused(consumer), left)


def inbox(process: str) -> Cell[tuple[object, ...]]:
    return Cell(("inbox", process), ())


@lru_cache(CELLS_KEPT, typed=True)
def document(collection: str, key: Key) -> Cell[Document | None]:
    if isinstance(key, str):
        return Cell((DOCUMENTS, collection, key), None)
    typed = ("int", str(key)) if isinstance(key, int) else (key.type, key.payload.hex())
    return Cell((DOCUMENTS, collection, *typed), None)


def ids(collection: str) -> Cell[tuple[Key, ...] | Order]:
    """The ids in natural order. A scan reads this cell; an insert or a delete writes it."""
    return Cell((IDS, collection), ())


def contents(world: Reads, collection: str) -> tuple[Document, ...]:
    """All documents of a collection in natural order; for laws."""
    found = (world.read(document(collection, key)) for key in world.read(ids(collection)))
    return tuple(doc for doc in found if doc is not None)


@final
@attrs.frozen
class Plain:
    """The world as a plain value: the start of a scenario, and the state of the embedded store."""

    cells: Mapping[tuple[str, ...], tuple[Cell[object], object]] = attrs.field(factory=dict)

    def read(self, cell: Cell[V]) -> V:
        held = self.cells.get(cell.name)
        return cell.empty if held is None else cast("V", held[1])

    def write(self, cell: Cell[V], value: V) -> Plain:
        return Plain({**self.cells, cell.name: (cast("Cell[object]", cell), value)})

    def taken(self, budget: Cell[int]) -> Plain | None:
        left = self.read(budget)
        if left == UNBOUNDED:
            return self
        return self.write(budget, left - 1) if left else None


@lru_cache(CELLS_KEPT)
def uniques(collection: str) -> Cell[tuple[Fields, ...]]:
    """The unique indexes of the collection; they never change."""
    return Cell((UNIQUE, collection), ())


def world_with(contents: Mapping[str, tuple[Document, ...]], unique: Unique = NO_INDEXES) -> Plain:
    """A world with these documents.

    Args:
        contents: The documents by collection.
        unique: The unique indexes by collection, each a tuple of fields.

    Raises:
        Misuse: A server cannot hold them, for example a document that is too large.
    """
    check_unique(unique)
    check_type(contents, Mapping, "documents by collection", 'write {"rows": (Document.of({...}), ...)}')
    for collection, docs in contents.items():
        check_collection(collection)
        check_type(docs, tuple, f"the documents of {collection}", "write a tuple: (Document.of({...}), ...)")
        for doc in docs:
            check_inserted(doc)
            if size_of(doc) > SIZE_MAX:
                raise Misuse(
                    f"a document has {size_of(doc):,} bytes",
                    where=f"{collection}, {show(doc.held(ID))}",
                    why=f"MongoDB holds documents of {SIZE_MAX:,} bytes at most",
                )
    world = Plain()
    for collection, indexes in unique.items():
        world = world.write(uniques(collection), indexes)
    for collection, docs in contents.items():
        world = world.write(ids(collection), tuple(doc[ID] for doc in docs))
        for doc in docs:
            world = world.write(document(collection, doc[ID]), _id_first(doc))
    return world


def _id_first(doc: Document) -> Document:
    """MongoDB stores the id first."""
    return Document(((ID.name, doc[ID]), *doc.without(ID).items))


def perform(effect: Effect[object], world: World, who: str, size_max: int = SIZE_MAX) -> Outcomes:
    """The meaning of effects on documents, clocks and notes: one outcome, or none while it must
    wait.

    An update with a time limit that must wait fails as too late. A bulk has then done its parts
    before the blocked one, or all that need not wait.

    Args:
        effect: The request.
        world: The current world.
        who: The process that sends it.
        size_max: Bytes per document at most. A scenario about the limit sets a smaller one, so that
            its traces stay readable: `partial(perform, size_max=1_000)`.

    Raises:
        UnknownEffect: The effect has no meaning here, as user code (`Call`): the scenario defines
            one.
    """
    try:
        yield from _performed(effect, world, who, size_max)
    except Waits:
        if isinstance(effect, (UpdateOne, BulkUpdate)) and effect.within is not None:
            late = Ambiguous(f"{TOO_LATE}: a transaction has written the same")
            first, last = _around_held(effect, world, who, size_max)
            yield first, late
            if last is not first:
                yield last, late


def _around_held(effect: UpdateOne | BulkUpdate, world: World, who: str, size_max: int) -> tuple[World, World]:
    first: World | None = None
    for each in parts(effect, world) if isinstance(effect, BulkUpdate) else ():
        try:
            ((world, _),) = _performed(each, world, who, size_max)
        except Waits:
            first = world if first is None else first
    return world if first is None else first, world


def _performed(effect: Effect[object], world: World, who: str, size_max: int) -> Outcomes:
    match effect:
        case FindOne() | FindAll():
            try:
                yield world, _found(effect, world)
            except Refused as refused:
                yield world, refused.fresh()
        case FindOneAndUpdate(collection, where, updates, sort):
            try:
                found = _find(world, collection, where, sort)
                after = found and _fitting(updated(found, updates, lambda: world.read(CLOCK)), size_max)
                yield all_confirmed(_put(world, collection, after) if after else world), after
            except Refused as refused:
                yield all_confirmed(world), refused.fresh()
        case UpdateOne(collection, where, updates):
            for after_world, reply in _performed(FindOneAndUpdate(collection, where, updates), world, who, size_max):
                yield after_world, reply if isinstance(reply, Failure) else int(reply is not None)
        case UpsertOne(collection, where, updates):
            yield from _upserted(effect, world, who, size_max)
        case InsertOne(collection, doc):
            try:
                yield _inserted(world, collection, _fitting(doc, size_max)), None
            except Refused as refused:
                yield all_confirmed(world), refused.fresh()
        case DeleteOne(collection, where):
            found = _find(world, collection, where)
            yield (
                all_confirmed(world if found is None else _deleted(world, collection, found[ID])),
                int(found is not None),
            )
        case UpdateMany() | DeleteMany() | BulkUpdate() | InsertMany():
            yield _done_to_many(effect, world, who, size_max)
        case InTransaction() | CommitTransaction() | AbortTransaction():
            yield from transacted(effect, world, who, partial(_performed, size_max=size_max))
        case StoreTime():
            yield world, world.read(CLOCK)
        case Now():
            yield world, Instant(world.read(CLOCK).at, WALL)
        case Sleep():  # `wakes` was written when the process reached it
            until = world.read(wakes(who))
            if until is None or world.read(CLOCK) - until >= 0:
                yield world.write(wakes(who), None), None
        case Note(name, value):
            cell = notes(who)
            before = world.read(cell)
            said = dict(before) | {name: value}
            yield world.write(cell, tuple(sorted(said.items(), key=lambda item: item[0]))), None
        case _:
            raise UnknownEffect(
                f"{effect} has no meaning in this world",
                todo="give the scenario a meaning for it" + (" (calls=...)" if isinstance(effect, Call) else ""),
            )


def _found(effect: FindOne | FindAll, world: World) -> Document | tuple[Document, ...] | None:
    collection, where, fields, sort = effect.collection, effect.where, effect.fields, effect.sort
    if isinstance(effect, FindOne):
        found = _find(world, collection, where, sort)
        return None if found is None else _part(found, fields)
    if sort:
        docs = iter(_ordered(_matching(world, collection, where), sort, effect.after))
    else:  # by id, so that documents behind the limit are not read
        some = _pinned_to(where)
        there = world.read(ids(collection)) if some is None else some
        keys = sorted((str(each) if isinstance(each, str) else each for each in there), key=in_order)
        later = (key for key in keys if not effect.after or in_order(key) > in_order(effect.after[0]))
        read = filter(None, (world.read(document(collection, key)) for key in later))
        docs = (doc for doc in read if matches(where, doc, lambda: world.read(CLOCK)))
    return tuple(_part(doc, fields) for doc in islice(docs, effect.limit))


def _upserted(effect: UpsertOne, world: World, who: str, size_max: int) -> Outcomes:
    try:
        insert = to_insert(effect, world)
    except Refused as refused:
        yield all_confirmed(world), refused.fresh()
        return
    if insert is None:
        yield from _performed(FindOneAndUpdate(effect.collection, effect.where, effect.updates), world, who, size_max)
        return
    for after, reply in _performed(insert, world, who, size_max):
        yield after, insert.doc if reply is None else reply


def to_insert(effect: UpsertOne, world: World) -> InsertOne | None:
    """The insert of an upsert; None if a document matches.

    Raises:
        Refused: No document matches, and such a document cannot exist.
    """
    if _find(world, effect.collection, effect.where) is not None:
        return None
    described = Document(tuple((each.field.name, each.value) for each in equalities(effect.where)))
    return InsertOne(effect.collection, _id_first(updated(described, effect.updates, lambda: world.read(CLOCK))))


Many: TypeAlias = UpdateMany | DeleteMany | BulkUpdate | InsertMany
MANY: Final = get_args(Many)


Part: TypeAlias = UpdateOne | DeleteOne | InsertOne


def parts(effect: Many, world: Reads, known: frozenset[Key | None] = frozenset()) -> tuple[Part, ...]:
    """Its writes of one document; by a filter, those of matches that are not known."""
    if isinstance(effect, InsertMany):
        return tuple(InsertOne(effect.collection, doc) for doc in effect.docs)
    if isinstance(effect, BulkUpdate):
        return tuple(attrs.evolve(each, within=effect.within) for each in effect.updates)
    keys = (doc[ID] for doc in _matching(world, effect.collection, effect.where, known))
    each = (AllOf((Eq(ID, key), effect.where)) for key in keys)
    if isinstance(effect, DeleteMany):
        return tuple(DeleteOne(effect.collection, where) for where in each)
    return tuple(UpdateOne(effect.collection, where, effect.updates) for where in each)


def target(part: Part) -> Key | None:
    return part.doc[ID] if isinstance(part, InsertOne) else pinned(part.where)


@final
@attrs.frozen
class PartsDone:
    """Progress of a write of many documents."""

    total: int = 0
    refused: int = 0
    failure: Failure | None = None

    def plus(self, effect: Many, part: Part, reply: object) -> PartsDone:
        """Count the reply of a part. Only a bulk continues after a refusal, and inserts, which also
        ignore an id that exists.
        """
        if not isinstance(reply, Failure):
            return attrs.evolve(self, total=self.total + (1 if isinstance(part, InsertOne) else cast("int", reply)))
        if is_too_late(reply):
            return attrs.evolve(self, failure=reply)
        if isinstance(effect, (BulkUpdate, InsertMany)):
            is_there = isinstance(part, InsertOne) and reply == duplicate_key(ID.name)
            return self if is_there else attrs.evolve(self, refused=self.refused + 1)
        return attrs.evolve(self, failure=Ambiguous("a document was refused, and those before it may be changed"))

    def reply(self, effect: Many) -> object:
        if self.failure is not None or not self.refused:
            return self.total if self.failure is None else self.failure
        return (Ambiguous if self.total else Refused)(
            f"{self.refused} of a bulk refused, {self.total} "
            f"{'inserted' if isinstance(effect, InsertMany) else 'matched'}"
        )


@final
@attrs.frozen
class Halfway:
    """Progress of a request that takes the store several steps (`tidegate.sim.servers.halfway`).

    Attributes:
        left: The writes that remain; for an upsert without a match, its insert.
        passed: The documents written; the request does not write them again.
        done: The counts.
    """

    left: tuple[Part, ...]
    passed: tuple[Key, ...] = ()
    done: PartsDone = attrs.field(factory=PartsDone)

    @property
    def is_over(self) -> bool:
        return not self.left or self.done.failure is not None

    def in_order(self) -> Halfway:
        left = self.left
        if len(left) > 1:
            left = tuple(sorted(left, key=lambda part: plain_text(target(part))))
        return Halfway(left, by_text(self.passed), self.done)


def _done_to_many(effect: Many, world: World, who: str, size_max: int) -> tuple[World, object]:
    world, tally = all_confirmed(world), PartsDone()
    for part in parts(effect, world):
        ((world, reply),) = _performed(part, world, who, size_max)
        tally = tally.plus(effect, part, reply)
        if tally.failure is not None:
            break
    return world, tally.reply(effect)


def _matching(
    world: Reads, collection: str, where: Filter, known: frozenset[Key | None] = frozenset()
) -> tuple[Document, ...]:
    """Unknown matches in natural order. It reads only documents that can match."""
    some = _pinned_to(where)
    there = some if some is not None and len(some) < 2 else world.read(ids(collection))
    keys = (each for each in there if (some is None or each in some) and each not in known)
    docs = filter(None, (world.read(document(collection, each)) for each in keys))
    return tuple(doc for doc in docs if matches(where, doc, lambda: world.read(CLOCK)))


def _part(doc: Document, fields: Fields | None) -> Document:
    if fields is None:
        return doc
    wanted = {ID.name, *(field.name for field in fields)}
    return Document(tuple(item for item in doc.items if item[0] in wanted))


def _inserted(world: World, collection: str, doc: Document) -> World:
    """Insert the document.

    Raises:
        Refused: Its id or a value of a unique index exists.
    """
    there = ids(collection)
    if world.read(document(collection, doc[ID])) is not None:
        raise duplicate_key(ID.name)
    there_now = world.read(there) + (doc[ID],)  # noqa: RUF005  an `Order` need not be copied
    return all_confirmed(put(_put(world, collection, _id_first(doc)), there, there_now))


def _deleted(world: World, collection: str, key: Key) -> World:
    there = ids(collection)
    left = without(world.read(there), key)
    return put(put(world, document(collection, key), None), there, left)


def _fitting(doc: Document, size_max: int) -> Document:
    if size_of(doc) > size_max:
        raise Refused("document too large")
    return doc


def _put(world: World, collection: str, doc: Document) -> World:
    """Write the document.

    Raises:
        Refused: A value of a unique index exists, or an index cannot hold it.
    """
    indexes = world.read(uniques(collection))
    there = document(collection, doc[ID])
    is_contended = has_rivals(world) and not same(world.read(there), doc)
    if is_contended:
        contend(world, there)
    for index in indexes:
        names = [field.name for field in index]
        own = _keys_of(doc, index)
        if is_contended:
            contend(world, there, _claims(collection, (index,), world.read(there), doc))
        others = (key for key in world.read(ids(collection)) if key != doc[ID])
        for other in filter(None, (world.read(document(collection, key)) for key in others)):
            if any(equal(key, theirs) for key in own for theirs in _keys_of(other, index)):
                raise duplicate_key(*names)
    return put(world, there, doc, lambda: _claims(collection, indexes, world.read(there), doc))


def _claims(
    collection: str, indexes: tuple[Fields, ...], before: Document | None, after: Document
) -> tuple[Claim, ...]:
    return tuple(
        (collection, tuple(field.name for field in index), key)
        for index in indexes
        for key in _keys_of(after, index)
        if before is None or not any(equal(key, had) for had in _keys_of(before, index))
    )


def _keys_of(doc: Document, index: Fields) -> tuple[tuple[object, ...], ...]:
    """The keys of a document in an index: one for each element of an array.

    Raises:
        Refused: Two of the fields are arrays.
    """
    held = [_elements_of(doc.held(field)) for field in index]
    if sum(isinstance(doc.held(field), tuple) for field in index) > 1:
        raise Refused("an index cannot combine two arrays")
    return tuple(product(*held))


_UNDEFINED: Final[frozenset[object]] = frozenset()


def _elements_of(held: object) -> tuple[object, ...]:
    """The elements of an array; for an empty one `undefined`, which is not null."""
    return (held or (_UNDEFINED,)) if isinstance(held, tuple) else (held,)


def _ordered(docs: tuple[Document, ...], sort: Sort, after: tuple[Value, ...] = ()) -> list[Document]:
    """The documents behind the cursor, sorted.

    Raises:
        Refused: Two fields of the sort are arrays.
    """
    begin = sort_key_of(after, sort) if after else None
    later = [(at, doc) for doc in docs if (at := sort_key(doc, sort)) and (begin is None or at > begin)]
    if any(sum(isinstance(held, tuple) for held in cursor(doc, sort)) > 1 for _, doc in later):
        raise Refused("a sort cannot combine two arrays")
    return [doc for _, doc in sorted(later, key=lambda each: each[0])]


def _find(world: World, collection: str, where: Filter, sort: Sort = ()) -> Document | None:
    """The first match by the sort; without one by the id in the filter, else in natural order."""
    if sort:
        return next(iter(_ordered(_matching(world, collection, where), sort)), None)
    key = pinned(where)
    for candidate in world.read(ids(collection)) if key is None else (key,):
        doc = world.read(document(collection, candidate))
        if doc is not None and (
            (type(where) is Eq and key is not None) or matches(where, doc, lambda: world.read(CLOCK))
        ):
            return doc
    return None


def pinned(where: Filter) -> Key | None:
    match where:
        case Eq(Field("_id"), value):
            return cast("Key", value) if is_key(value) else None
        case AllOf(parts):
            return next((key for part in parts if (key := pinned(part)) is not None), None)
        case _:
            return None


def _pinned_to(where: Filter) -> frozenset[Key] | None:
    match where:
        case Eq(Field("_id"), value):
            return frozenset((cast("Key", value),)) if is_key(value) else None
        case In(Field("_id"), values):
            return frozenset(cast("tuple[Key, ...]", values)) if all(map(is_key, values)) else None
        case AllOf(parts):
            return next((some for part in parts if (some := _pinned_to(part)) is not None), None)
        case AnyOf(parts):
            each = [_pinned_to(part) for part in parts]
            return None if None in each else frozenset(key for some in each if some is not None for key in some)
        case _:
            return None


def calling(calls: Mapping[str, tuple[object, ...]], otherwise: Meaning = perform) -> Meaning:
    """A meaning in which user code returns each of the given values; it raises a Failure."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Call):
            if effect.name not in calls:
                raise UnknownEffect(f"{effect} has no outcomes", todo=f"name them; known are {sorted(calls)}")
            for reply in calls[effect.name]:
                yield world, reply
        else:
            yield from otherwise(effect, world, who)

    return meaning


def journal(collection: str, key: str) -> Cell[tuple[Document, ...]]:
    """All versions of the document, projected, as a perfect observer of its changes sees them."""
    return Cell(("journal", collection, key), ())


def journaled(
    collection: str, key: str, entry: Callable[[Document], Document], otherwise: Meaning = perform
) -> Meaning:
    watched = document(collection, key)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply in otherwise(effect, world, who):
            if isinstance(effect, CommitTransaction) or (
                isinstance(
                    effect, (FindOneAndUpdate, UpdateOne, UpsertOne, InsertOne, UpdateMany, BulkUpdate, InsertMany)
                )
                and effect.collection == collection
            ):
                doc = after.read(watched)
                if doc is not None and not same(doc, world.read(watched)):
                    seen = journal(collection, key)
                    yield after.write(seen, (*after.read(seen), entry(doc))), reply
                    continue
            yield after, reply

    return meaning
