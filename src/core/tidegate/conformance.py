"""Checks that a store or a log keeps the contract of programs; any adapter can run them.

The check of a store is a program that compares replies and documents with the simulator's meaning
(`tidegate.sim.world.world.perform`). A driver runs it:

    assert run(agreement(probes("scratch")), handle) == ()

The check of a log is a function of the events that the members of a group received, in order.

Laws
    K1  A store that implements the operations has no disagreement, whatever the operations.
    K2  A log that delivers every record from the position on, in order, and accepts commits of the
        current assignment only, has no breach.

The check lets the store write its time, and compares ages with a day of margin.

Known not to work
    - Which of several matching documents a store takes is undefined, so `agreement` needs filters
      that match at most one; and `UpdateMany` and `DeleteMany` that match only documents it
      inserted.
    - Durability and atomicity need two clients or a crash: test them on a real server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, cast, final, get_args

import attrs

from tidegate.consumer.protocol.commands import Assigned, Committed, CommitUnknown, Event, Fetched, check_event
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
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Ne,
    Not,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    exactly,
    show,
)
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, Refused
from tidegate.model.instants import MINUTE, Instant
from tidegate.model.operations import (
    BulkUpdate,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    bulk_update,
    delete_many,
    delete_one,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_tuple, check_type
from tidegate.sim.world.world import CLOCK, MANY, Key, Plain, World, perform, pinned

# --- a store ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Disagreement:
    """The store's reply, or a stored document, is wrong after `operation`.

    `about` names what was compared: the answer, or a document by its id.
    """

    operation: Operation
    about: str
    expected: object
    actual: object

    def __str__(self) -> str:
        return f"{self.operation}: {self.about} is {show(self.actual)}, and should be {show(self.expected)}"


async def agreement(operations: tuple[Operation, ...]) -> tuple[Disagreement, ...]:
    """Execute the operations in turn and compare; return the first disagreement, if any.

    Their documents are deleted before and after. A failure that is no refusal is raised: no result.
    """
    check_tuple(operations, get_args(Operation), "an operation")
    inserts: set[_Key] = {(each.collection, doc[ID]) for each in operations for doc in _inserted(each)}
    upserts = {(each.collection, pinned(each.where)) for each in operations if isinstance(each, UpsertOne)}
    stored = sorted(inserts | cast("set[_Key]", upserts), key=repr)
    world: World = Plain()
    await _cleared(stored)
    for operation in operations:
        actual = await _answer(operation)
        held = [await find_one(collection, Eq(ID, key)) for collection, key in stored]
        world = world.write(CLOCK, _put_time(operation, held) or world.read(CLOCK))
        ((world, expected),) = perform(operation, world, "conformance")
        found = _compared(operation, expected, actual) or _documents_compared(operation, stored, held, world)
        if found:
            return (found,)
    await _cleared(stored)
    return ()


_Key: TypeAlias = "tuple[str, Key]"


async def _answer(operation: Operation) -> object:
    """The reply of the store; a refusal counts as one, also a partial refusal of many documents."""
    try:
        return await operation
    except Failure as failure:
        if not isinstance(failure, (Refused, Ambiguous) if isinstance(operation, MANY) else Refused):
            raise
        return failure.fresh()


def _inserted(operation: Operation) -> tuple[Document, ...]:
    match operation:
        case InsertOne(_, doc):
            return (doc,)
        case InsertMany(_, docs):
            return docs
        case _:
            return ()


async def _cleared(keys: Iterable[_Key]) -> None:
    for collection, key in keys:
        await delete_one(collection, Eq(ID, key))


def _put_time(operation: Operation, held: list[Document | None]) -> Instant | None:
    """The time that the store has just written, if any."""
    fields = [update.field for update in _updates_of(operation) if isinstance(update, PutServerTime)]
    times = (doc.held(field) for doc in held if doc is not None for field in fields)
    return max((time for time in times if isinstance(time, Instant)), key=lambda time: time.at, default=None)


def _updates_of(operation: Operation) -> tuple[Update, ...]:
    if isinstance(operation, BulkUpdate):
        return tuple(update for each in operation.updates for update in each.updates)
    if isinstance(operation, (FindOneAndUpdate, UpdateOne, UpsertOne, UpdateMany)):
        return operation.updates
    return ()


def _compared(operation: Operation, expected: object, actual: object, about: str = "the answer") -> Disagreement | None:
    """Empty if both are exactly the same; of a refusal only whether the id was taken is
    compared.
    """
    same = _comparable(expected) == _comparable(actual)
    return None if same else Disagreement(operation, about, expected, actual)


def _comparable(reply: object) -> object:
    return (type(reply), reply.reason == DUPLICATE_KEY) if isinstance(reply, Failure) else exactly(reply)


def _documents_compared(
    operation: Operation, keys: list[_Key], held: list[Document | None], world: World
) -> Disagreement | None:
    for (collection, key), actual in zip(keys, held, strict=True):
        ((_, expected),) = perform(find_one(collection, Eq(ID, key)), world, "conformance")
        if found := _compared(operation, expected, actual, f"what {collection} holds as {show(key)}"):
            return found
    return None


PROBED: Final = ("tidegate conformance x", "tidegate conformance $y")
"""The ids of the two documents of `probes`."""

_X, _Y = PROBED
_N: Final = Field[object]("n")
_LIST: Final = Field["tuple[object, ...]"]("list")
_AT: Final = Field[Instant | None]("at")
_COUNT: Final = Field[int]("count")
_DAY: Final = 24 * 60 * MINUTE
_VALUES: Final = (
    0,
    0.0,
    True,
    None,
    "",
    "$n",
    b"",
    (),
    (1, "a"),
    Document.of({"$gt": ""}),
    Document.of({"a": 1, "b": 2}),
)


def probes(collection: str) -> tuple[Operation, ...]:
    """Operations of every kind, on the two documents `PROBED`."""
    x, y = Eq(ID, _X), Eq(ID, _Y)
    return (
        find_one(collection, x),
        insert_one(collection, Document.of({"n": 1, "_id": _X, "list": ()})),
        insert_one(collection, Document.of({"_id": _X, "n": 2})),
        insert_one(collection, Document.of({"_id": _Y, "version": 1})),
        *(each for value in _VALUES for each in _about_value(collection, value)),
        *_compare_and_set(collection),
        *_about_arrays(collection),
        *_refused(collection),
        *_many(collection),
        find_one_and_update(collection, x, PutServerTime(_AT)),
        *(find_one(collection, AllOf((x, OlderThan(_AT, age)))) for age in (_DAY, -_DAY)),
        find_one(collection, AllOf((y, OlderThan(_AT, -_DAY)))),
        update_one(collection, x, Put(Field[int]("z"), 1), Put(Field[int]("b"), 2)),
        delete_one(collection, AllOf((x, Eq(_N, "no such value")))),
        upsert_one(collection, AllOf((x, Eq(_N, "no such value"))), Put(_N, 1)),
        delete_one(collection, x),
        delete_one(collection, x),
        *(upsert_one(collection, AllOf((x, Eq(_N, 1), Lt(_COUNT, 5))), Add(_COUNT, 5), Put(_AT, None)) for _ in "ab"),
        upsert_one(collection, x, Add(_COUNT, 1)),
        delete_one(collection, x),
        find_one_and_update(collection, x, Put(_N, 1)),
        update_one(collection, x, Put(_N, 1)),
    )


def _about_value(collection: str, value: object) -> Iterator[Operation]:
    """Put the value, and find it as itself, not as its neighbours."""
    x = Eq(ID, _X)
    yield find_one_and_update(collection, x, Put(_N, value))
    for other in _VALUES:
        yield find_one(collection, AllOf((x, Eq(_N, other))))
    yield find_one(collection, AllOf((x, In(_N, (1, None)))))
    yield find_one(collection, AllOf((x, Ne(_N, 0))))
    yield find_one(collection, AllOf((x, Not(In(_N, (1, None))))))
    for limit in (1, 0.0, "", Instant(0)):
        limited: tuple[Filter, ...] = (Lt(_N, limit), Ge(_N, limit), Not(AnyOf((Le(_N, limit), Gt(_N, limit)))))
        yield from (find_one(collection, AllOf((x, where))) for where in limited)
    yield find_one(collection, AllOf((x, Exists(_N))))
    yield find_one(
        collection, AllOf((x, AnyOf((Contains(_LIST, value), Contains(Field["tuple[object, ...]"]("n"), 1)))))
    )


def _compare_and_set(collection: str) -> Iterator[Operation]:
    """The basis of every program: of two writers with one version in their filters, the second
    changes nothing.
    """
    version = Field[int]("version")
    at = AllOf((Eq(ID, _Y), Eq(version, 1)))
    yield update_one(collection, at, Put(version, 2), Put(_N, "first"))
    yield update_one(collection, at, Put(version, 2), Put(_N, "second"))
    yield find_one_and_update(collection, at, Put(_N, "third"))
    yield find_one_and_update(collection, AllOf((Eq(ID, _Y), Eq(version, 2.0))), Add(version, 1))


def _about_arrays(collection: str) -> Iterator[Operation]:
    x = Eq(ID, _X)
    changes: tuple[Update, ...] = (
        *(Push(_LIST, value) for value in (1, 1.0, "a", (1,))),
        Push(_LIST, "last", 3),
        *(AddToSet(_LIST, value) for value in ("last", True, 1)),
        *(Pull(_LIST, value) for value in (1, "nothing", "a")),
        Remove(_LIST),
        Pull(_LIST, 1),
        Remove(_LIST),
        AddToSet(_LIST, "again"),
    )
    for change in changes:
        yield find_one_and_update(collection, x, change)
    yield find_one(collection, AllOf((x, Contains(_LIST, "again"))))
    yield find_one(collection, AllOf((x, Eq(Field[object]("list"), "again"))))


def _refused(collection: str) -> Iterator[Operation]:
    """A refused update changes nothing, its valid half included."""
    x = Eq(ID, _X)
    yield update_one(collection, x, Put(_N, "text"), Put(_COUNT, 2**63 - 1))
    yield update_one(collection, x, Add(Field[int]("n"), 1), Put(_LIST, ("changed",)))
    yield update_one(collection, x, Add(_COUNT, 1), Put(_LIST, ("changed",)))
    yield find_one_and_update(collection, x, Push(Field["tuple[object, ...]"]("n"), 1))
    yield find_one_and_update(collection, x, AddToSet(Field["tuple[object, ...]"]("n"), 1), Remove(_LIST))
    yield update_one(collection, x, Add(_COUNT, -1))


def _many(collection: str) -> Iterator[Operation]:
    """Every match and no other is changed; a bulk applies each update by itself and replies one
    total.
    """
    both, which = In(ID, PROBED), Field[str]("which")
    yield update_many(collection, both, Put(which, "all"))
    yield update_many(collection, AllOf((both, Eq(Field[int]("version"), -1))), Put(which, "none"))
    yield bulk_update(
        update_one(collection, AllOf((Eq(ID, _X), Eq(which, "all"))), Put(which, "x")),
        update_one(collection, AllOf((Eq(ID, _Y), Eq(which, "x"))), Put(which, "y")),
    )
    yield bulk_update(
        update_one(collection, Eq(ID, _X), Add(Field[int]("which"), 1)),
        update_one(collection, Eq(ID, _Y), Put(which, "y")),
    )
    yield bulk_update(update_one(collection, Eq(ID, _X), Add(Field[int]("which"), 1)))
    yield delete_many(collection, AllOf((both, Eq(which, "x"))))
    yield insert_many(collection, Document.of({"_id": _X, "n": 1}), Document.of({"_id": _Y, "n": 2}))
    yield delete_many(collection, AnyOf((AllOf((Eq(ID, _X), Eq(_N, 1))), AllOf((Eq(ID, _Y), Eq(_N, 2))))))
    yield insert_one(collection, Document.of({"_id": _X, "n": 1}))


# --- a log --------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Breach:
    """An event that a log must not cause, and the broken promise."""

    event: Event
    why: str

    def __str__(self) -> str:
        return f"{self.event}: {self.why}"


@final
@attrs.frozen
class _Log:
    """One partition of a log, as the events so far tell. `unsure`: commits that may have been
    done.
    """

    generation: int = -1
    at: int = 0
    known: frozenset[int] = frozenset()
    committed: int | None = None
    unsure: frozenset[int] = frozenset()


def breaches(events: Iterable[Event]) -> tuple[Breach, ...]:
    """The events that break law K2, in order."""
    check_type(events, Iterable, "a number of events")
    logs: dict[TopicPartition, _Log] = {}
    found: list[Breach] = []
    for event in events:
        check_event(event)
        log = logs.get(event.partition, _Log())
        if why := _broken(log, event):
            found.append(Breach(event, why))
        logs[event.partition] = _learned(log, event)
    return tuple(found)


def _broken(log: _Log, event: Event) -> str:
    """The broken promise; empty if none."""
    match event:
        case Assigned(_, generation, committed):
            if generation <= log.generation:
                return f"generation {log.generation} was before it"
            if log.committed is None or committed in {log.committed, *log.unsure}:
                return ""
            return f"what was committed is one of {sorted({log.committed, *log.unsure})}"
        case Fetched(_, generation, offsets) if generation == log.generation and offsets:
            if any(after <= before for before, after in zip((log.at - 1, *offsets), offsets, strict=False)):
                return f"offsets increase, from {log.at} on"
            skipped = {offset for offset in log.known if log.at <= offset <= offsets[-1]} - set(offsets)
            return f"{sorted(skipped)} were there before" if skipped else ""
        case Committed(_, generation):
            return "" if generation == log.generation else f"generation {log.generation} is in force"
        case _:
            return ""


def _learned(log: _Log, event: Event) -> _Log:
    match event:
        case Assigned(_, generation, committed):
            return _Log(max(generation, log.generation), committed, log.known, committed)
        case Fetched(_, generation, offsets) if generation == log.generation and offsets:
            return attrs.evolve(log, at=offsets[-1] + 1, known=log.known.union(offsets))
        case Committed(_, _, position):
            return attrs.evolve(log, committed=position)
        case CommitUnknown(_, _, position):  # it may be done now or later
            return attrs.evolve(log, unsure=log.unsure | {position})
        case _:
            return log
