"""A change stream under changing leaders: no change is missed, whatever is lost.

An editor changes documents. A leader consumes the stream and looks at each change; its looks are
recorded. It may lose the leadership without knowing, or crash, and the store may forget changes
that
it has not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, AddToSet, Document, Eq, Field, Put, Value
from tidegate.model.effects import Effect, Program
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import DeleteOne, UpdateOne, delete_one, find_one, update_one
from tidegate.reactive.checks import laws
from tidegate.reactive.planning import stream_records
from tidegate.reactive.planning.change_stream import (
    After,
    ChangeStreamConsumer,
    Consuming,
    Following,
    From,
    HandleChanged,
    HandleDeleted,
    LeadershipLost,
    Pass,
    Read,
    Reconcile,
    ResetHistory,
    Save,
    StartTimer,
    event_for,
    is_followed,
)
from tidegate.reactive.planning.reconciler import Reconciler, ScannedTask, progress_of, stored_progress
from tidegate.reactive.planning.reconciliation import Progress, ReconciliationRun, TaskTrigger
from tidegate.sim.program.automaton import Asking
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, ActorStep, Label, Law, Scenario, State
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.group import dead, tell
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess
from tidegate.sim.servers.streams import AFTER, EPOCH, FROM, Forgetful, Stream
from tidegate.sim.world.faults import Fault, Faults, Which
from tidegate.sim.world.world import BUDGET, Cell, Meaning, Outcomes, Plain, Reads, World, document, world_with

ORDERS: Final = "orders"
USERS: Final = "users"
LOOKS: Final = "looks"
STREAM: Final = "stream"
TOTAL: Final = Field[int]("total")
Totals: TypeAlias = tuple[int, ...]
SEEN: Final = Field[Totals]("seen")
CONSUMERS: Final = ("a", "b")

LOOKED: Final = "at rest each change was looked at"
PROMISE: Final = "a stored position is a promise"
PASSED: Final = "what is reconciled was looked at"
LATER: Final = "what changes during a pass is looked at later"

HANDOVERS: Final = Cell[int]((BUDGET, "handovers"), 0)
LEADER: Final = Cell[str](("leader",), "")
Changes: TypeAlias = tuple[tuple[str, int], ...]
CHANGED: Final = Cell[Changes](("changed",), ())
"""Each change of the stream: the document, and its value then."""


def place_of(collection: str, key: str) -> str:
    return f"{collection}/{key}"


def total(amount: int, key: str = "x", collection: str = ORDERS) -> Effect[object]:
    return update_one(collection, Eq(ID, key), Put(TOTAL, amount))


Docs: TypeAlias = tuple[tuple[str, str], ...]
X: Final[Docs] = ((ORDERS, "x"),)
BOTH: Final[Docs] = ((ORDERS, "x"), (ORDERS, "y"))
SAME_ID: Final[Docs] = ((ORDERS, "x"), (USERS, "x"))
TASK: Final = ScannedTask(ORDERS, TaskTrigger("looks", None))
DELETE: Final = delete_one(ORDERS, Eq(ID, "x"))
AUDITS: Final = "audits"
BETWEEN_OTHERS: Final = (total(2, collection=AUDITS), total(2), total(3, collection=AUDITS))
ONE_CHANGE: Final = (total(2),)


# --- what a pass does -----------------------------------------------------------------------------------------------------


async def look(collection: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Read each document and record its value; 0 for a missing one."""
    for key in ids:
        found = await find_one(collection, Eq(ID, key))
        said = 0 if found is None else found[TOTAL]
        await update_one(LOOKS, Eq(ID, place_of(collection, key)), AddToSet(SEEN, said))
    return ()


async def look_at_orders(collection: str, ids: tuple[Value, ...], _: frozenset[str]) -> tuple[Value, ...]:
    return await look(collection, tuple(map(str, ids)))


async def passed(command: Pass) -> None:
    await look(command.collection, tuple(map(str, command.ids)))


# --- who leads ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class Election:
    """One process leads; another takes over after its death or at any time, which the first learns
    later.
    """

    stream: Stream
    name: str = "election"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        leader = world.read(LEADER)
        for who in CONSUMERS:
            if who == leader or world.read(dead(who)):
                continue
            if not leader or world.read(dead(leader)):
                yield ActorStep(Label(f"elects {who}"), self.elect(world, who))
                return
            if after := world.taken(HANDOVERS):
                yield ActorStep(Label(f"elects {who}, and {leader} does not know"), self.elect(after, who), must=False)

    def elect(self, world: World, who: str) -> World:
        epoch = self.stream.record(world)[EPOCH] + 1
        after, elected = self.stream.elected(world, epoch)
        before = world.read(LEADER)
        if before and not world.read(dead(before)):
            after = tell(after, before, LeadershipLost(epoch - 1))
        return tell(after.write(LEADER, who), who, elected)


# --- laws -----------------------------------------------------------------------------------------------------------------


def seen_of(state: Reads, where: str) -> Totals:
    found = state.read(document(LOOKS, where))
    return () if found is None else found[SEEN]


def said(state: Reads, collection: str, key: str) -> int:
    found = state.read(document(collection, key))
    return 0 if found is None else found[TOTAL]


def record(state: Reads, stream: Stream) -> Document:
    found = state.read(document(stream.collection, stream.name))
    assert found is not None
    return found


def stored(state: Reads, stream: Stream) -> tuple[int, bool]:
    """The number of the first change after the stored position, and whether all is reconciled."""
    found = record(state, stream)
    end = found[AFTER] + 1 if found.has(AFTER) else found[FROM] if found.has(FROM) else 0
    return end, bool(progress_of(found).reconciled)


def is_passed(stream: Stream, docs: Docs) -> Law:
    def holds(state: State) -> bool:
        end, is_reconciled = stored(state, stream)
        reported = {where for where, _ in state.read(CHANGED)[end:]}
        return all(
            laws.change_stream.what_is_reconciled_was_looked_at(
                said(state, collection, key),
                seen_of(state, place_of(collection, key)),
                is_reconciled=is_reconciled,
                is_reported=place_of(collection, key) in reported,
            )
            for collection, key in docs
        )

    return holds


def is_promise(stream: Stream, docs: Docs) -> Law:
    watched_places = {place_of(collection, key) for collection, key in docs}

    def holds(state: State) -> bool:
        end, is_reconciled = stored(state, stream)
        order: dict[str, list[int]] = {}
        before: list[tuple[int, Totals]] = []
        changes = state.read(CHANGED)
        for where, amount in changes:
            order.setdefault(where, [1]).append(amount)
        for number, (where, amount) in enumerate(changes):
            if number < end and where in watched_places:
                of = order[where]
                ranks = tuple(of.index(each) for each in seen_of(state, where) if each in of)
                before.append((of.index(amount), ranks))
        return laws.change_stream.a_position_is_a_promise(before, is_reconciled=is_reconciled)

    return holds


def is_later(stream: Stream, reducers: Mapping[str, ReducerProcess]) -> Law:
    def holds(state: State) -> bool:
        leader = state.read(LEADER)
        machine = state.status(leader) if leader else None
        if not isinstance(machine, Machine) or not isinstance(machine.state, Consuming):
            return True
        asked, (end, is_reconciled) = asked_up_to(machine.state), stored(state, stream)
        lease_left = int(machine.state.epoch == record(state, stream)[EPOCH])
        changes = state.read(CHANGED)
        return all(
            laws.change_stream.is_looked_at_later(number, asked, end, is_scanned=not is_reconciled)
            for command, where, said in seen_in_passes(machine, reducers[leader])
            if is_followed(machine.state, command, lease_left)
            for number, change in enumerate(changes)
            if change[0] == where and (where, said) not in changes[number:]
        )

    return holds


def asked_up_to(state: Consuming) -> int:
    """The number of the first change in no batch yet."""
    match laws.change_stream.asked_up_to(state):
        case After(int() as last):
            return last + 1
        case From(int() as first):
            return first
        case _:
            return 0


def seen_in_passes(machine: Machine, reducer: ReducerProcess) -> Iterator[tuple[Pass, str, int]]:
    """The looks of passes at a document that are not recorded yet."""
    for each in machine.running:
        match each.command, reducer.at(each):
            case (HandleChanged() | HandleDeleted()) as command, Asking(
                UpdateOne(_, Eq(_, str() as where), (AddToSet(_, int() as said),))
            ):
                yield command, where, said
            case _:
                pass


def is_looked_at(places: Docs) -> Law:
    def holds(state: State) -> bool:
        leader = state.read(LEADER)
        machine = state.status(leader) if leader else None
        if not isinstance(machine, Machine) or not isinstance(machine.state, Consuming):
            return True
        return all(
            laws.change_stream.each_change_is_looked_at(
                said(state, collection, key), seen_of(state, place_of(collection, key))
            )
            for collection, key in places
        )

    return holds


# --- scenarios ------------------------------------------------------------------------------------------------------------


def watched(stream: Stream) -> Meaning:
    """The semantics of the stream, with all changes so far."""
    means = stream.meaning()

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply in means(effect, world, who):
            is_write = isinstance(effect, (UpdateOne, DeleteOne)) and effect.collection in (
                *stream.watched,
                *stream.others,
            )
            yield (changed(world, after, stream) if is_write else after), reply

    return meaning


def changed(before: World, after: World, stream: Stream) -> World:
    for collection in (*stream.watched, *stream.others):
        for key in ("x", "y"):
            cell = document(collection, key)
            if after.read(cell) != before.read(cell):
                now = (*after.read(CHANGED), (place_of(collection, key), said(after, collection, key)))
                after = after.write(CHANGED, now)
    return after


def is_pass(effect: Effect[object]) -> bool:
    return isinstance(effect, UpdateOne) and effect.collection == LOOKS


Saving: TypeAlias = Callable[[str, str, Save], Program[None]]
NO_FAULTS: Final[Mapping[Fault, Which]] = MappingProxyType({})
PASSES_FAIL: Final[Mapping[Fault, Which]] = MappingProxyType({Fault.DROPPED: is_pass})


def change_stream(
    made: type[ChangeStreamConsumer] = ChangeStreamConsumer,
    *,
    summary: str = "documents change while leaders come and go: each change is looked at, or will be",
    edits: tuple[Effect[object], ...] = ONE_CHANGE,
    docs: Docs = X,
    handovers: int = 0,
    budget: int = 1,
    kinds: Mapping[Fault, Which] = NO_FAULTS,
    forgetful: bool = False,
    size: int = 1,
    wait: Duration = 0,
    rest: Duration = 0,
    is_new: bool = True,
    save: Saving = stream_records.save,
    reconciles: type[Reconciler] = Reconciler,
    others: tuple[str, ...] = (),
    only: str | None = None,
) -> Scenario:
    """Two consumers of one stream, one of which leads.

    Args:
        made: The consumer, perhaps with a planted bug.
        summary: One line for people.
        edits: The changes of the documents.
        docs: The documents: collection and id.
        handovers: How often the leadership may pass to the other.
        budget: How many faults may strike: crashes, and those of these kinds.
        kinds: Those that may strike passes, and which of their effects.
        forgetful: Whether the store may forget its oldest changes.
        is_new: Whether there was no leader before; otherwise all was looked at and the position is
            stored.
        size: The number of documents that fills a batch.
        wait: How long the first change of a batch waits for others.
        rest: The time between two saves of the position.
        save: The program that stores a position.
        reconciles: The program that reconciles.
        others: Collections without tasks, whose changes move the position too.
        only: The only law to judge; None for all.
    """
    stream = Stream(STREAM, tuple(dict.fromkeys(collection for collection, _ in docs)), others)
    means = watched(stream)
    consumer = made(size=size, wait=wait, rest=rest)
    orders = reconciles(STREAM, stream.collection, (TASK,), look_at_orders, swept, batch=1, pause=0)

    def carried_out(command: Effect[object]) -> Program[object] | None:
        match command:
            case HandleChanged() | HandleDeleted():
                return passed(command)
            case Reconcile(epoch, history):
                return orders.run(ReconciliationRun(epoch, history))
            case Save():
                return save(stream.collection, STREAM, command)
            case ResetHistory():
                return stream_records.reset_history(stream.collection, STREAM, command)
            case _:
                return None

    reducers = tuple(
        ReducerProcess(
            name,
            Following(),
            consumer.step,
            event_for,
            Faults(kinds),
            means,
            split=lambda command: not isinstance(command, (Read, StartTimer)),
            carried_out=carried_out,
        )
        for name in CONSUMERS
    )
    actors: tuple[Actor, ...] = (
        Process("editor", lambda _: edit(edits), meaning=means),
        *reducers,
        *(Crash(f"{each.name}'s host", (each,), dead(each.name)) for each in reducers),
        Election(stream),
        *((Forgetful(),) if forgetful else ()),
    )
    contents: dict[str, tuple[Document, ...]] = {LOOKS: ()}
    contents |= {collection: (Document.of({"_id": "x", "total": 1}),) for collection in others}
    for collection, key in docs:
        contents[collection] = (*contents.get(collection, ()), Document.of({"_id": key, "total": 1}))
        contents[LOOKS] += (Document.of({"_id": place_of(collection, key), "seen": () if is_new else (1,)}),)
    world: Plain = stream.begun(world_with(contents)).write(HANDOVERS, handovers)
    if not is_new:
        progress = stored_progress(Progress(reconciled=frozenset({TASK.trigger})))
        done = stream.record(world).put(progress.field, progress.value).put(FROM, 0)
        world = world.write(document(stream.collection, stream.name), done)
    always: dict[str, Law] = {
        PROMISE: is_promise(stream, docs),
        PASSED: is_passed(stream, docs),
        LATER: is_later(stream, {each.name: each for each in reducers}),
    }
    at_rest: dict[str, Law] = {LOOKED: is_looked_at(docs)}
    return Scenario(
        name="change_stream",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always={law: holds for law, holds in always.items() if only in (None, law)},
        eventually={law: holds for law, holds in at_rest.items() if only in (None, law)},
        sometimes={
            "a change is looked at": lambda state: max(seen_of(state, place_of(*docs[0])), default=0) > 1,
            **({"the position is behind all changes": is_behind_all(stream, len(edits))} if others else {}),
        },
    )


def is_behind_all(stream: Stream, changes: int) -> Law:
    """Whether the position after this number of changes is stored."""
    return lambda state: stored(state, stream)[0] == changes


async def edit(edits: tuple[Effect[object], ...]) -> None:
    for each in edits:
        await each


async def swept(_: str, __: frozenset[str]) -> tuple[str, ...]:
    """Look at the record of a deleted document."""
    return () if await find_one(ORDERS, Eq(ID, "x")) else await look(ORDERS, ("x",))


# fmt: off
LOST_DURING_A_PASS: Final = partial(
    change_stream, edits=(total(2), total(3)), size=2, wait=SECOND, forgetful=True, is_new=False,
    summary="the store forgets changes while a pass is under way: what has changed since that began is looked at")
"""A page is under way when a batch begins, because the batch waited."""
_CRASHES: Final = partial(
    change_stream, size=2, wait=SECOND, summary="a leader crashes, and another goes on from what is stored")
_RESTS: Final = partial(
    change_stream, rest=SECOND,
    summary="positions are stored once in a while: what has changed since is looked at again after a crash")
_HISTORY_LOST: Final = partial(
    change_stream, docs=BOTH, forgetful=True,
    summary="the store forgets changes that it has not reported: everything is looked at")
_PASSES_FAIL: Final = partial(
    change_stream, edits=(total(2), total(3)), kinds=PASSES_FAIL, summary="a look fails: the position waits for it")
_SAME_ID: Final = partial(
    change_stream, edits=(total(2), total(2, "x", USERS)), docs=SAME_ID, size=2, is_new=False,
    summary="documents of two collections have one id, and one batch")
_DELETED: Final = partial(
    change_stream, edits=(total(2), DELETE), size=2,
    summary="a document changes and is deleted: its last change counts")
_OTHERS: Final = partial(
    change_stream, edits=BETWEEN_OTHERS, others=(AUDITS,),
    summary="most changes are of what nobody watches: the position moves with them, and none of the rest is missed")
_LEADERS: Final = partial(
    change_stream, handovers=1,
    summary="leaders change, and each change is looked at; crashes strike in `change_stream.crashes`, both in `@thorough`")
_THREE: Final = (total(2), total(2, "y"), total(3))

SCENARIOS: Final = (
    Shipped(
        "change_stream", partial(_LEADERS, budget=0), thorough=_LEADERS,
        large=partial(_LEADERS, docs=BOTH, edits=(total(2), total(2, "y"), DELETE), handovers=2, budget=2)),
    Shipped(
        "change_stream.crashes", partial(_CRASHES, edits=(total(2), total(3)), is_new=False),
        thorough=partial(_CRASHES, docs=BOTH, edits=(total(2), total(2, "y")), budget=2),
        large=partial(_CRASHES, docs=BOTH, edits=_THREE, handovers=1, budget=4)),
    Shipped(
        "change_stream.rests", partial(_RESTS, edits=(total(2), total(3)), is_new=False),
        thorough=partial(_RESTS, handovers=1, is_new=False),
        large=partial(_RESTS, docs=BOTH, edits=_THREE, handovers=1, budget=4)),
    Shipped(
        "change_stream.history_lost", _HISTORY_LOST, thorough=partial(_HISTORY_LOST, budget=2),
        large=partial(_HISTORY_LOST, edits=_THREE, budget=4)),
    Shipped(
        "change_stream.lost_during_a_pass", LOST_DURING_A_PASS, thorough=partial(LOST_DURING_A_PASS, budget=2),
        large=partial(LOST_DURING_A_PASS, docs=BOTH, edits=(total(2), total(3), total(2, "y")), budget=4)),
    Shipped(
        "change_stream.passes_fail", partial(_PASSES_FAIL, is_new=False), thorough=partial(_PASSES_FAIL, budget=2),
        large=partial(_PASSES_FAIL, docs=BOTH, edits=_THREE, handovers=1, budget=4)),
    Shipped(
        "change_stream.same_id", _SAME_ID, thorough=partial(_SAME_ID, budget=2),
        large=partial(_SAME_ID, edits=(total(2), total(2, "x", USERS), total(3)), handovers=1, budget=4)),
    Shipped(
        "change_stream.deleted", partial(_DELETED, is_new=False), thorough=partial(_DELETED, budget=1),
        large=partial(_DELETED, docs=BOTH, edits=(total(2), DELETE, total(2, "y")), is_new=False, handovers=1, budget=4)),
    Shipped(
        "change_stream.others", partial(_OTHERS, is_new=False), thorough=partial(_OTHERS, is_new=False, budget=2),
        large=partial(_OTHERS, handovers=1, budget=4)),
)
# fmt: on
