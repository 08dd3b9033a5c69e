"""Requests that take several steps: laws under any interleaving with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import permutations
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from tidegate.model import operations as ask
from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Exists, Field, Put, Value
from tidegate.model.effects import Effect, Failure, NotApplied, NotDurable, Refused
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.sim.program.automaton import Asking, Failed, Returned
from tidegate.sim.runs.report import explore
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers import halfway
from tidegate.sim.servers.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.servers.failover import Failover
from tidegate.sim.servers.halfway import answers, ending, stepping
from tidegate.sim.servers.streams import KEPT, Stream
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    FLIGHT,
    UNCONFIRMED,
    Halfway,
    PartsDone,
    World,
    contents,
    document,
    perform,
    world_with,
)

N: Final = Field[int]("n")
EFFECTS: Final[tuple[Effect[object], ...]] = (
    ask.update_many("rows", Exists(N), Add(N, 1)),
    ask.update_many("rows", Eq(N, 0), Add(N, 1)),
    ask.delete_many("rows", Exists(N)),
    ask.bulk_update(*(ask.update_one("rows", Eq(ID, key), Add(N, 1)) for key in "ab")),
    ask.insert_many("rows", *(Document.of({"_id": key, "n": 1}) for key in ("b", "c", "new"))),
    ask.upsert_one("rows", AllOf((Eq(ID, "new"), Eq(N, 1))), Add(N, 1)),
)
OTHERS: Final[tuple[Effect[object], ...]] = (
    ask.insert_one("rows", Document.of({"_id": "new", "n": 1, "m": 1})),
    ask.delete_one("rows", Eq(ID, "a")),
    ask.update_one("rows", Eq(ID, "b"), Put(N, 0)),
    ask.update_one("rows", Eq(ID, "a"), Put(Field("n"), "no number")),
)
Case: TypeAlias = tuple[Effect[object], tuple[object, ...], list[Effect[object]]]
CASES: Final[st.SearchStrategy[Case]] = st.tuples(
    st.sampled_from(EFFECTS),
    st.lists(st.sampled_from((0, 0, 5, "no number")), min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(OTHERS), max_size=2, unique=True),
)


@attrs.frozen
class Run:
    effect: Effect[object]
    before: World
    wrote: tuple[tuple[object, ...], ...]  # the ids that each step touches
    is_alone: bool  # no other process did anything
    world: World  # at the end
    reply: object

    @property
    def written(self) -> list[object]:
        return [key for step in self.wrote for key in step]


def rows(world: World) -> dict[object, Document]:
    return {doc[ID]: doc for doc in contents(world, "rows")}


def changed(before: World, after: World) -> tuple[object, ...]:
    old, new = rows(before), rows(after)
    return tuple(key for key in {**old, **new} if old.get(key) != new.get(key))


def runs(case: Case) -> Iterator[Run]:
    effect, held, others = case
    docs = tuple(Document.of({"_id": key, "n": each}) for key, each in zip("abc", held, strict=False))
    before = world_with({"rows": docs})

    def onward(world: World, at: Halfway | None, did: int, *wrote: tuple[object, ...]) -> Iterator[Run]:
        whole = () if at else answers(perform, effect, world, "p")
        for _, after, come, _ in stepping(effect, world, "p", perform, at, whole):
            yield from onward(after, come, did, *wrote, changed(world, after))
        if at is not None:
            for after, reply in ending(at, effect, world, "p", perform):
                yield Run(effect, before, (*wrote, changed(world, after)), not did, after, reply)
            if did < len(others):
                ((after, _),) = perform(others[did], world, "q")
                yield from onward(after, at, did + 1, *wrote)

    return onward(before, None, 0)


def counts(run: Run) -> bool:
    told = 0 if isinstance(run.reply, Refused) else run.reply
    return not isinstance(told, int) or len(run.written) == told


def comes_to_the_whole(run: Run) -> bool:
    ((world, reply),) = perform(run.effect, run.before, "p")
    return not run.is_alone or isinstance(reply, Failure) or (rows(run.world), run.reply) == (rows(world), reply)


def inserts_or_is_refused(run: Run) -> bool:
    ((_, meant),) = perform(run.effect, run.before, "p")
    return not isinstance(run.effect, ask.UpsertOne) or (
        run.written == [] if isinstance(run.reply, Refused) else run.reply == meant == rows(run.world)["new"]
    )


LAWS: Final[Mapping[str, Callable[[Run], bool]]] = {
    "HW1": lambda run: len(run.written) == len(set(run.written)),
    "HW2": counts,
    "HW3": comes_to_the_whole,
    "HW4": lambda run: (
        not (isinstance(run.effect, ask.UpdateMany) and isinstance(run.reply, Failure) and run.wrote[-1])
    ),
    "HW5": inserts_or_is_refused,
}


@given(CASES)
def test_whatever_others_do_in_between_its_laws_hold(case: Case) -> None:
    """Laws HW1, HW2, HW3, HW4 and HW5."""
    for run in runs(case):
        assert [name for name, law in LAWS.items() if not law(run)] == [], run


def goes_on(plus: Callable[..., PartsDone]) -> Callable[..., PartsDone]:
    return lambda self, effect, part, reply: (
        attrs.evolve(self, refused=1) if isinstance(reply, Failure) else plus(self, effect, part, reply)
    )


PLANTED: Final[Mapping[str, tuple[object, str, Callable[[Any], Any]]]] = {
    "HW1": (
        halfway,
        "_new",
        lambda new: lambda effect, at, world: new(effect, attrs.evolve(at, passed=at.passed[1:]), world),
    ),
    "HW2": (PartsDone, "plus", lambda plus: lambda self, effect, part, reply: plus(self, effect, part, reply and 1)),
    "HW3": (halfway, "all_confirmed", lambda _: lambda world: world_with({"rows": contents(world, "rows")[1:]})),
    "HW4": (PartsDone, "plus", goes_on),
    "HW5": (halfway, "_inserting", lambda _: lambda _, world, who, meaning: answers(meaning, EFFECTS[-1], world, who)),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_planted_bug_breaks_a_law(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are forgotten, miscounted or dropped; an update goes on; an upsert looks again."""
    owner, name, planted = PLANTED[law]
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    find(CASES, lambda case: not all(map(LAWS[law], runs(case))))


U: Final = Field[int]("u")
LATE: Final = Transaction("t", 1)


async def holds_y() -> None:
    await InTransaction(LATE, ask.update_one("rows", Eq(ID, "y"), Add(U, 5)), begins=True)
    await CommitTransaction(LATE)


@pytest.mark.parametrize("order", tuple(permutations("xyz")), ids="".join)
@pytest.mark.parametrize("how", ["refused", "too late", "late", "taken back"])
def test_in_which_order_documents_stand_makes_no_difference(how: str, order: tuple[str, ...]) -> None:
    """Any may end a write of many: it is refused, or waits too long. Writes may be rolled back."""
    effect: Effect[object] = ask.update_many("rows", Exists(Field("many")), Add(U, 1))
    if how == "too late":
        effect = ask.bulk_update(*(ask.update_one("rows", Eq(ID, key), Add(U, 1)) for key in order), within=1_000)

    async def asks() -> object:
        return await effect

    struck = {"late": (Fault.LATE,), "taken back": (Fault.NOT_DURABLE, Fault.ROLLED_BACK)}.get(how, ())
    process = Process("p", factory(asks), Faults.of(*struck), raises=True)
    actors: tuple[Process | Network | Failover, ...] = (process, Failover() if how == "taken back" else Network())
    seen, left_open = set[tuple[object, ...]](), set[tuple[object, ...]]()

    def sees(state: State) -> bool:
        held = [state.read(document("rows", key)) for key in "xyz"]
        if not isinstance(status := state.status("p"), Asking):
            numbers = tuple(doc and doc[U] for doc in held)
            seen.add((*numbers, type(status), len(state.read(FLIGHT))))
            if state.read(UNCONFIRMED):
                left_open.add(numbers)
        return True

    first = {"x": 10, "y": 20, "z": 30}
    docs = [Document.of({"_id": key, "u": first[key], "many": 1}) for key in order]
    taken = Document.of({"_id": "w", "u": 99 if how == "too late" else 21})
    if how == "too late":
        actors = (*actors, Process("t", factory(holds_y)))
    world = world_with({"rows": (*docs, taken)}, unique={"rows": ((U,),)})
    explore(Scenario("orders", "", world, actors, budget=len(struck), always={"seen": sees}))
    left = (10, 20, 30, Failed, 0)
    others = {(11, 20, 30, Failed, 0), (10, 20, 31, Failed, 0), (11, 20, 31, Failed, 0)}
    assert {left, *others} <= seen
    if how in ("refused", "taken back"):
        assert seen == {left, *others}
    assert left_open == ({numbers[:3] for numbers in others} if how == "taken back" else set())


@pytest.mark.parametrize("order", ["xyw", "yxw"])
@pytest.mark.parametrize("is_bulk", [False, True], ids=["update many", "bulk"])
def test_in_which_order_a_transaction_writes_documents_makes_no_difference(order: str, *, is_bulk: bool) -> None:
    """Either of two ends the statement: refused, or a write conflict."""
    ask_many: Effect[object] = ask.update_many("rows", Exists(Field("many")), Add(U, 1))
    if is_bulk:
        ask_many = ask.bulk_update(*(ask.update_one("rows", Eq(ID, key), Add(U, 1)) for key in order if key != "w"))

    async def asks() -> object:
        return await InTransaction(Transaction("p", 1), ask_many, begins=True)

    first = {"x": 10, "y": 20, "w": 11}
    many = {key: {} if key == "w" else {"many": 1} for key in order}
    docs = [Document.of({"_id": key, "u": first[key], **many[key]}) for key in order]
    world = world_with({"rows": tuple(docs)}, unique={"rows": ((U,),)})
    actors = (Process("p", factory(asks), raises=True), Process("t", factory(holds_y)))
    seen = set[object]()

    def sees(state: State) -> bool:
        match state.status("p"):
            case Failed(failure):
                seen.add(type(failure))
            case Returned():
                seen.add("done")
            case _:
                pass
        return True

    explore(Scenario("orders", "", world, actors, always={"seen": sees}))
    assert seen == {NotApplied, Refused}


@pytest.mark.parametrize("order", ["xyz", "zyx"])
@pytest.mark.parametrize("how", ["update many", "bulk", "insert many", "transaction"])
def test_orders_in_which_other_documents_are_refused_or_none_are_tried_at_once(how: str, order: str) -> None:
    """Each makes room for the previous one or takes the same; all may be rolled back."""
    effect: Effect[object] = ask.update_many("rows", Exists(U), Add(U, 1))
    if how == "bulk":
        effect = ask.bulk_update(*(ask.update_one("rows", Eq(ID, key), Add(U, 1)) for key in order))
    elif how == "insert many":
        effect = ask.insert_many("rows", *(Document.of({"_id": key, "u": 1}) for key in order))

    async def asks() -> object:
        if how != "transaction":
            return await effect
        await InTransaction(Transaction("p", 1), effect, begins=True)
        return await CommitTransaction(Transaction("p", 1))

    docs = tuple(Document.of({"_id": key, "u": "xyz".index(key)}) for key in order)
    process = Process("p", factory(asks), Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK), raises=True)
    begun = (None, None, None) if how == "insert many" else (0, 1, 2)
    seen = set[object]()

    def sees(state: State) -> bool:
        held = tuple(doc and doc[U] for doc in (state.read(document("rows", key)) for key in "xyz"))
        changed = {
            document("rows", key).name for key, n in zip("xyz", held, strict=True) if n != begun["xyz".index(key)]
        }
        kept = {cell.name for write in state.read(UNCONFIRMED) for cell, _ in write}
        if isinstance(state.status("p"), Failed) and kept and changed <= kept:
            seen.add(held)
        return True

    world = world_with({"rows": () if how == "insert many" else docs}, unique={"rows": ((U,),)})
    explore(Scenario("orders", "", world, (process, Failover()), budget=2, always={"seen": sees}))
    assert (
        seen
        == {
            "update many": {(1, 2, 3), (0, 1, 3)},
            "bulk": {(1, 2, 3), (0, 2, 3), (0, 1, 3)},
            "insert many": {(1, None, None), (None, 1, None), (None, None, 1)},
            "transaction": {(1, 2, 3)},
        }[how]
    )


@pytest.mark.parametrize("order", ["xyz", "zxy"])
def test_what_two_documents_take_ends_a_statement_before_a_third_one_has_a_conflict(order: str) -> None:
    async def asks() -> object:
        await QUIET  # so z is locked
        many = ask.update_many("rows", Exists(U), Put(U, 5))
        return await InTransaction(Transaction("p", 1), many, begins=True)

    async def holds_z() -> None:
        await InTransaction(LATE, ask.update_one("rows", Eq(ID, "z"), Put(U, 7)), begins=True)

    docs = tuple(Document.of({"_id": key, "u": "xyz".index(key)}) for key in order)
    seen = set[object]()

    def sees(state: State) -> bool:
        if isinstance(status := state.status("p"), Failed):
            seen.add(type(status.failure))
        return True

    holder = Process("t", factory(holds_z))
    actors = (holder, Process("p", factory(asks), meaning=when_quiet((holder,)), raises=True))
    world = world_with({"rows": docs}, unique={"rows": ((U,),)})
    explore(Scenario("orders", "", world, actors, always={"seen": sees}))
    assert seen == {NotApplied, Refused}


@pytest.mark.parametrize("order", ["vy", "yv"])
def test_what_is_too_late_before_it_has_written_confirms_nothing(order: str) -> None:
    async def asks() -> object:
        with suppress(NotDurable):
            await ask.update_one("rows", Eq(ID, "w"), Put(U, 7))
        await QUIET
        return await ask.bulk_update(*(ask.update_one("rows", Eq(ID, key), Add(U, 1)) for key in order), within=1_000)

    async def holds() -> None:
        await InTransaction(LATE, ask.update_one("rows", Eq(ID, "y"), Add(U, 5)), begins=True)

    docs = tuple(Document.of({"_id": key, "u": 0}) for key in "wy")
    holder, kinds = Process("t", factory(holds)), Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)
    process = Process("p", factory(asks), kinds, meaning=when_quiet((holder,)), raises=True)
    seen = set[bool]()

    def sees(state: State) -> bool:
        if isinstance(state.status("p"), Failed) and state.read(document("rows", "w")) != docs[0]:
            seen.add(bool(state.read(UNCONFIRMED)))
        return True

    actors = (process, holder, Failover())
    explore(Scenario("orders", "", world_with({"rows": docs}), actors, budget=2, always={"seen": sees}))
    assert True in seen


def test_what_begins_to_match_because_of_an_update_of_many_may_end_it() -> None:
    async def asks() -> object:
        return await ask.update_many("rows", Exists(Field("many")), Add(U, 1))

    async def follows() -> None:
        if (await ask.find_one("rows", Eq(ID, "x"))) == Document.of({"_id": "x", "u": 11, "many": 1}):
            await ask.update_one("rows", Eq(ID, "z"), Put(Field("many"), 1))

    numbers = {"x": 10, "y": 20, "z": 30, "w": 31}
    many: dict[str, Value] = {"many": 1}
    docs = tuple(Document.of({"_id": key, "u": n, **(many if key in "xy" else {})}) for key, n in numbers.items())
    world = world_with({"rows": docs}, unique={"rows": ((U,),)})
    seen = set[object]()

    def sees(state: State) -> bool:
        if isinstance(state.status("p"), Failed):
            seen.add(tuple(doc and doc[U] for doc in (state.read(document("rows", key)) for key in "xyz")))
        return True

    actors = (Process("p", factory(asks), raises=True), Process("o", factory(follows)))
    explore(Scenario("follows", "", world, actors, always={"seen": sees}))
    assert seen == {(11, 20, 30), (11, 21, 30)}


@pytest.mark.parametrize("order", ["xy", "yx"])
def test_a_stream_tells_what_a_statement_has_written_in_any_order(order: str) -> None:
    async def asks() -> object:
        await InTransaction(Transaction("p", 1), ask.update_many("rows", Exists(U), Add(U, 1)), begins=True)
        return await CommitTransaction(Transaction("p", 1))

    stream, told = Stream("changes", ("rows",)), set[tuple[object, ...]]()

    def sees(state: State) -> bool:
        told.add(tuple(change and change.id for change in state.read(KEPT).changes))
        return True

    world = stream.begun(world_with({"rows": tuple(Document.of({"_id": key, "u": 0}) for key in order)}))
    process = Process("p", factory(asks), meaning=stream.meaning())
    explore(Scenario("orders", "", world, (process,), always={"seen": sees}))
    assert told == {(), ("x", "y"), ("y", "x")}


@pytest.mark.parametrize("number", [0, 1])
def test_what_begins_to_match_before_a_write_by_filter_has_written_may_be_passed_by(number: int) -> None:
    """Also without initial matches: a scan has passed `x`, on its way to `y`."""

    async def asks() -> object:
        return await ask.delete_many("rows", Eq(N, 1))

    async def joins() -> object:
        await ask.update_one("rows", Eq(ID, "x"), Put(N, 1))
        await ask.update_one("rows", Eq(ID, "y"), Put(N, 1))
        return await ask.find_one("rows", Eq(ID, "y")) is not None

    docs = (Document.of({"_id": "x", "n": 0}), Document.of({"_id": "y", "n": number}))
    seen = set[object]()

    def sees(state: State) -> bool:
        if state.status("o") == Returned(value=True) and isinstance(state.status("p"), Returned):
            seen.add(tuple(doc[ID] for doc in contents(state, "rows")))
        return True

    actors = (Process("p", factory(asks)), Process("o", factory(joins)))
    explore(Scenario("joins", "", world_with({"rows": docs}), actors, always={"seen": sees}))
    assert ("x",) in seen
