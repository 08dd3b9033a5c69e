"""A change stream over the simulated store: every change once and in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.plain_search import agree

from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Lt, Put
from tidegate.model.effects import Effect, Failure, Note, Program, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import delete_one, find_all, find_one, find_one_and_update, insert_one, update_one
from tidegate.reactive.planning import change_stream
from tidegate.reactive.planning.change_stream import (
    CANNOT_RESUME,
    After,
    Broken,
    ChangeStreamConsumer,
    DocumentChange,
    From,
    HandleChanged,
    Locate,
    Page,
    Read,
    Reconcile,
    ResetHistory,
    Save,
    SaveIdle,
    StartTimer,
)
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Actor, Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.failover import Failover
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Restart, Running
from tidegate.sim.servers.streams import HISTORY_LOST, KEPT, Forgetful, Kept, Stream
from tidegate.sim.world.faults import FAULTS, Fault, Faults
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, World, document, inbox, notes, perform, world_with

N = Field[int]("n")
STREAM = Stream("s", ("rows",), others=("else",))
MEANS = STREAM.meaning()
BEGUN = STREAM.begun(world_with({"rows": (Document.of({"_id": "a", "n": 0}),)}), epoch=1)


def outcome(effect: Effect[object], world: World, meaning: Meaning = MEANS) -> tuple[World, object]:
    (one,) = meaning(effect, world, "p")
    return one


def wrote(world: World, *effects: Effect[object]) -> World:
    for effect in effects:
        world, _ = outcome(effect, world)
    return world


# --- its changes --------------------------------------------------------------------------------------------------------

CHANGES: tuple[tuple[Effect[object], DocumentChange | None], ...] = (
    (find_one_and_update("rows", Eq(ID, "a"), Add(N, 1)), DocumentChange("rows", "a")),
    (insert_one("else", Document.of({"_id": "x"})), None),
    (insert_one("rows", Document.of({"_id": 1})), DocumentChange("rows", 1)),
    (update_one("rows", Eq(ID, 1), Put(N, 1)), DocumentChange("rows", 1)),
    (delete_one("rows", Eq(ID, "a")), DocumentChange("rows", "a", is_gone=True)),
    (delete_one("else", Eq(ID, "x")), None),
)
UNWATCHED: tuple[Effect[object], ...] = (
    update_one("rows", Eq(ID, "b"), Put(N, 1)),
    update_one("rows", Eq(ID, "a"), Put(N, 0)),
    insert_one("rows", Document.of({"_id": "a"})),
    insert_one("nobody asks", Document.of({"_id": "a"})),
    find_one("rows", Eq(ID, "a")),
)


def read_all(world: World, position: change_stream.Position, stream: Stream) -> list[DocumentChange]:
    changes: list[DocumentChange] = []
    while True:
        page = stream.read(world, position)
        assert isinstance(page, Page)
        assert len(page.changes) <= stream.page
        if page.position == position:
            assert not page.changes
            return changes
        changes += page.changes
        position = page.position


@given(
    st.lists(st.sampled_from([*CHANGES, *((each, None) for each in UNWATCHED)]), max_size=12),
    st.integers(1, 4),
    st.integers(0, 12),
)
def test_from_a_position_every_change_is_read_once_and_in_order(
    steps: list[tuple[Effect[object], DocumentChange | None]], page: int, start: int
) -> None:
    """Law ST1, for any page size."""
    world: World = BEGUN
    changes: list[tuple[int, DocumentChange]] = []
    for effect, _ in steps:
        before = {key: world.read(document("rows", key)) for key in ("a", 1)}
        number = world.read(KEPT).end
        world, _ = outcome(effect, world)
        for key, had in before.items():
            has = world.read(document("rows", key))
            if has != had:
                changes.append((number, DocumentChange("rows", key, has is None)))
    stream = attrs.evolve(STREAM, page=page)
    assert read_all(world, From(start), stream) == [change for number, change in changes if number >= start]
    assert read_all(world, After(start), stream) == [change for number, change in changes if number > start]


def test_each_kind_of_write_is_a_change_and_nothing_else_is() -> None:
    """Law ST1. An unwatched write moves the position; a write without effect is no change."""
    world: World = BEGUN
    for effect in UNWATCHED:
        world, _ = outcome(effect, world)
    assert world.read(KEPT) == Kept()
    for effect, change in CHANGES:
        here, _ = outcome(Locate(1), world)
        _, start = outcome(Locate(1), world)
        world, _ = outcome(effect, here)
        assert isinstance(start, From)
        _, page = outcome(Read(1, start), world)
        assert page == Page((change,) if change else (), After(world.read(KEPT).end - 1))
    last = After(world.read(KEPT).end - 1)
    assert outcome(Read(1, last), world) == (world, Page((), last))


def test_a_write_is_kept_by_one_stream_and_also_if_it_comes_late() -> None:
    """Two streams would keep it twice; a network with another meaning would lose it."""
    with pytest.raises(Misuse, match="the meanings of two streams"):
        outcome(CHANGES[0][0], BEGUN, STREAM.meaning(MEANS))
    writer = Process("w", factory(writes, "a"), Faults.of(Fault.LATE), MEANS)
    with pytest.raises(Misuse, match="network delivers what w writes, and keeps no history of it"):
        Scenario(name="s", summary="", world=BEGUN, actors=(writer, Network(perform)))
    for network in (Network(MEANS), Network()):
        Scenario(name="s", summary="", world=BEGUN, actors=(writer, network))


def test_what_is_forgotten_can_never_be_read_again() -> None:
    """Law ST3: with the error code that the consumer knows."""
    world = wrote(BEGUN, *(effect for effect, _ in CHANGES))
    assert HISTORY_LOST in CANNOT_RESUME
    assert list(Forgetful(keep=2).steps(world)) == []

    (forgets,) = Forgetful(keep=2).steps(world.write(FAULTS, 1))
    assert (forgets.fault, forgets.must) == (Fault.HISTORY_LOST, False)
    for lost in (From(0), From(3), After(0), After(2)):
        assert outcome(Read(1, lost), forgets.world)[1] == Broken(HISTORY_LOST)
    for known in (From(4), After(3)):
        assert read_all(forgets.world, known, STREAM) == read_all(world, known, STREAM) != []


def test_the_record_is_written_under_its_epoch_and_history_only() -> None:
    """Law ST4."""
    world, reply = outcome(Save(1, 0, After(3)), BEGUN)
    assert (reply, STREAM.position(world)) == (None, After(3))
    for wrong in (Save(2, 0, After(4)), Save(1, 1, After(4)), ResetHistory(2, 1)):
        after, reply = outcome(wrong, world)
        assert isinstance(reply, Refused)
        assert after == world
    world, reply = outcome(Save(1, 0, From(5)), world)
    assert (reply, STREAM.position(world)) == (None, From(5))
    world, reply = outcome(ResetHistory(1, 1), world)
    assert (reply, STREAM.position(world)) == (None, None)
    assert outcome(ResetHistory(1, 1), world) == (world, None)
    assert isinstance(outcome(Save(1, 0, After(9)), world)[1], Refused)
    later, elected = STREAM.elected(world, 2)
    assert (elected.epoch, elected.history, elected.position) == (2, 1, None)
    assert isinstance(outcome(Save(1, 1, After(9)), later)[1], Refused)


# --- rollbacks of a failover --------------------------------------------------------------------------------------------


async def adds() -> object:
    try:
        await find_one_and_update("rows", Eq(ID, "a"), Add(N, 1))
    except Failure as failure:
        return str(failure)
    return "done"


async def reads() -> object:
    page = await Read(1, From(0))
    assert isinstance(page, Page)
    await Note("read", len(page.changes))
    return page.changes


def read_is_there(state: State) -> bool:
    row = state.read(document("rows", "a"))
    counts = [value for _, value in state.read(notes("reader"))]
    return row is not None and all(isinstance(value, int) and value <= row[N] for value in counts)


def failing_over(meaning: Meaning) -> Scenario:
    faults = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)
    return Scenario(
        name="failover",
        summary="",
        world=BEGUN,
        actors=(
            Process("one", factory(adds), faults, meaning),
            Process("two", factory(adds), faults, meaning),
            Process("reader", factory(reads), meaning=meaning),
            Failover(),
        ),
        budget=3,
        always={"what was read is there": read_is_there},
    )


def reads_at_once(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Planted bug: unconfirmed writes are read."""
    if isinstance(effect, Read):
        kept = world.read(KEPT)
        if kept.changes:
            yield world, Page(tuple(filter(None, kept.changes)), After(kept.end - 1))
        return
    yield from MEANS(effect, world, who)


def test_what_was_read_is_never_taken_back() -> None:
    """Law ST2, over all runs of two writers, a reader and three faults."""
    right = agree(failing_over(MEANS))
    assert right.faults.keys() == {Fault.NOT_DURABLE, Fault.ROLLED_BACK}
    assert explore(failing_over(reads_at_once)).law == "what was read is there"


# --- a consumer with programs as passes ---------------------------------------------------------------------------------

Looking = Callable[[tuple[object, ...]], Program[None]]
PLANNED = Field[int]("planned")
DEAD = Cell[bool](("dead", "consumer"), empty=False)


async def looks(ids: tuple[object, ...]) -> None:
    for key in ids:
        row = await find_one("rows", Eq(ID, str(key)))
        if row is not None:
            await update_one("plans", AllOf((Eq(ID, str(key)), Lt(PLANNED, row[N]))), Put(PLANNED, row[N]))


async def looks_at_all(looking: Looking) -> None:
    for row in await find_all("rows", limit=10):
        await looking((row[ID],))


async def overwrites(ids: tuple[object, ...]) -> None:
    """Planted bug: the pass overwrites newer records."""
    for key in ids:
        row = await find_one("rows", Eq(ID, str(key)))
        await update_one("plans", Eq(ID, str(key)), Put(PLANNED, row[N] if row else -1))


async def forgets_to_look(ids: tuple[object, ...]) -> None:
    """Planted bug: the pass skips half of the documents."""
    await looks(ids[:-1])


def carried_out(
    looking: Looking,
) -> Callable[[Effect[object]], Program[object] | None]:
    def program(command: Effect[object]) -> Program[object] | None:
        match command:
            case HandleChanged():
                return looking(command.ids)
            case Reconcile():
                return looks_at_all(looking)
            case _:
                return None

    return program


def is_keep(command: Effect[object]) -> bool:
    return isinstance(command, StartTimer) and isinstance(command.then, SaveIdle)


def consuming(
    looking: Looking = looks, *, keys: str = "a", faults: tuple[Fault, ...] = (), budget: int = 0
) -> Scenario:
    consumer = ChangeStreamConsumer(size=1)

    reducer = ReducerProcess(
        "consumer",
        change_stream.Following(),
        consumer.step,
        change_stream.event_for,
        Faults.of(*faults, on=lambda effect: isinstance(effect, Save)),
        MEANS,
        split=lambda _: False,
        is_timer=is_keep,
        carried_out=carried_out(looking),
    )

    def with_leader(world: World) -> World:
        after, elected = STREAM.elected(world, STREAM.record(world)[Field[int]("epoch")] + 1)
        return after.write(inbox("consumer"), (elected,))

    rows = tuple(Document.of({"_id": key, "n": 0}) for key in keys)
    plans = tuple(Document.of({"_id": key, "planned": 0}) for key in keys)
    begun = with_leader(STREAM.begun(world_with({"rows": rows, "plans": plans})))
    assert isinstance(begun, Plain)
    writers: tuple[Actor, ...] = tuple(Process(f"writes {key}", factory(writes, key), meaning=MEANS) for key in keys)
    return Scenario(
        name="consumer",
        summary="",
        world=begun,
        actors=(
            *writers,
            reducer,
            Crash("host", (reducer,), DEAD),
            Restart("host again", (reducer,), DEAD, with_leader),
            Forgetful(),
        ),
        budget=budget,
        eventually={"all is planned": partial(is_planned, keys)},
        sometimes={"a pass is under way": is_under_way},
    )


async def writes(key: str) -> None:
    await update_one("rows", Eq(ID, key), Add(N, 1))


def is_planned(keys: str, state: State) -> bool:
    pairs = [(state.read(document("rows", key)), state.read(document("plans", key))) for key in keys]
    return state.read(DEAD) or all(row and plan and row[N] == plan[PLANNED] for row, plan in pairs)


def is_under_way(state: State) -> bool:
    machine = state.status("consumer")
    return isinstance(machine, Machine) and any(isinstance(each.command, HandleChanged) for each in machine.running)


@pytest.mark.parametrize(
    "kinds",
    [(), (Fault.CRASH_BEFORE, Fault.RESTART), (Fault.HISTORY_LOST,), (Fault.LOST_REPLY,)],
    ids=lambda kinds: "+".join(kinds) or "none",
)
def test_the_shipped_consumer_loses_no_change(kinds: tuple[Fault, ...]) -> None:
    scope = {"keys": "a", "budget": 2} if kinds else {"keys": "ab", "budget": 0}
    report = explore(consuming(faults=kinds, **scope).choosing(kinds))  # type: ignore[arg-type]
    assert (report.verdict, report.law, report.reason) == (Verdict.COMPLETE, None, "")
    assert set(report.faults) == set(kinds)
    assert report.unmerged == ()


@pytest.mark.parametrize("looking", [forgets_to_look, overwrites])
def test_a_pass_that_leaves_one_out_is_found_out(looking: Looking) -> None:
    assert explore(consuming(looking, keys="ab")).law == "all is planned"


def test_laws_can_ask_where_the_program_of_a_wish_stands() -> None:
    scenario = consuming()
    reducer = next(actor for actor in scenario.actors if isinstance(actor, ReducerProcess))
    node = reducer.behaviour(HandleChanged(1, 0, "rows", ("a",))).start(0)
    assert str(reducer.at(Running(HandleChanged(1, 0, "rows", ("a",)), node))).startswith("about to find rows")
