"""Transactions have snapshot isolation; compared with a twin that copies everything."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast, final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model import reducer
from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Exists, Field, Put
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    Note,
    Refused,
    duplicate_key,
    is_too_late,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.operations import (
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertOne,
    Operation,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    bulk_update,
    delete_one,
    find_all,
    find_one,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.sim import explore
from tidegate.sim.program.automaton import Birth, Failed, Returned
from tidegate.sim.runs.report import Verdict
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.failover import Failover, noted, unconfirmed
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.servers.streams import KEPT, Stream
from tidegate.sim.world.faults import FAULTS, Fault, Faults
from tidegate.sim.world.transactions import OPEN, known
from tidegate.sim.world.world import (
    UNCONFIRMED,
    World,
    calling,
    contents,
    document,
    inbox,
    journal,
    journaled,
    notes,
    perform,
    world_with,
)

ROWS: Final = "rows"
N: Final = Field[int]("n")
M: Final = Field[Any]("m")
A, B = Document.of({"_id": "a", "n": 1}), Document.of({"_id": "b", "n": 1})
AT_A, AT_B = Eq(ID, "a"), Eq(ID, "b")
T, U = Transaction("t", 1), Transaction("u", 1)
CONFLICT: Final = NotApplied("write conflict")
GONE: Final = NotApplied("no such transaction")
WAITS: Final = "waits"


@final
class Store:
    def __init__(self, *docs: Document, unique: tuple[tuple[Field[Any], ...], ...] = ()) -> None:
        self.world: World = world_with({ROWS: docs or (A, B)}, {ROWS: unique})

    def ask(self, effect: Effect[Any]) -> object:
        outcomes = tuple(perform(effect, self.world, "p"))
        if not outcomes:
            return WAITS
        ((self.world, reply),) = outcomes
        return reply

    def rows(self) -> tuple[Document, ...]:
        return contents(self.world, ROWS)


def begun(transaction: Transaction, operation: Operation) -> InTransaction[Any]:
    return InTransaction(transaction, operation, begins=True)


def test_what_is_not_committed_nobody_else_sees_and_then_all_at_once() -> None:
    """Law TX1: an update, an insert and a delete; an aborted one is never seen."""
    for end, seen in ((CommitTransaction(T), True), (AbortTransaction(T), False)):
        store = Store()
        store.ask(begun(T, update_one(ROWS, AT_A, Add(N, 1))))
        store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "c"}))))
        store.ask(InTransaction(T, delete_one(ROWS, AT_B)))
        assert store.rows() == (A, B)
        assert store.ask(begun(U, find_all(ROWS, limit=9))) == (A, B)
        assert store.ask(end) is (True if seen else None)
        assert store.rows() == ((A.put(N, 2), Document.of({"_id": "c"})) if seen else (A, B))
        assert store.ask(InTransaction(U, find_all(ROWS, limit=9))) == (A, B)


def test_a_transaction_sees_what_was_there_when_it_began_and_its_own() -> None:
    """Law TX2: by id and by scan, while others write."""
    store = Store()
    store.ask(begun(T, find_one(ROWS, AT_A)))
    store.ask(update_one(ROWS, AT_A, Add(N, 5)))
    store.ask(delete_one(ROWS, AT_B))
    store.ask(insert_one(ROWS, Document.of({"_id": "c", "n": 1})))
    assert store.ask(InTransaction(T, find_all(ROWS, limit=9))) == (A, B)
    assert store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "d", "n": 1})))) is None
    found = store.ask(InTransaction(T, find_all(ROWS, Eq(N, 1), limit=9)))
    assert [doc[ID] for doc in found] == ["a", "b", "d"]  # type: ignore[attr-defined]
    assert store.ask(InTransaction(T, delete_one(ROWS, Eq(ID, "d")))) == 1
    assert store.ask(InTransaction(T, find_one(ROWS, Eq(ID, "d")))) is None


CONFLICTS: Final[dict[str, tuple[Operation, Operation, object]]] = {
    "an update of what was updated": (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_A, Add(N, 1)), CONFLICT),
    "a delete of it": (update_one(ROWS, AT_A, Add(N, 1)), delete_one(ROWS, AT_A), CONFLICT),
    "an update of what was deleted": (delete_one(ROWS, AT_A), update_one(ROWS, AT_A, Add(N, 1)), CONFLICT),
    "an insert of what was inserted": (
        insert_one(ROWS, Document.of({"_id": "c"})),
        insert_one(ROWS, Document.of({"_id": "c"})),
        CONFLICT,
    ),
    "an upsert of it": (
        insert_one(ROWS, Document.of({"_id": "c"})),
        upsert_one(ROWS, Eq(ID, "c"), Put(N, 1)),
        CONFLICT,
    ),
    "an insert of what was deleted": (delete_one(ROWS, AT_A), insert_one(ROWS, A), duplicate_key("_id")),
    "an update of another one": (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_B, Add(N, 1)), 1),
    "an update that changes nothing": (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_A, Put(N, 1)), 1),
    "an update after one that changed nothing": (
        update_one(ROWS, AT_A, Put(N, 1)),
        update_one(ROWS, AT_A, Add(N, 1)),
        1,
    ),
}


@pytest.mark.parametrize("how", CONFLICTS)
def test_of_two_that_write_a_document_one_is_committed(how: str) -> None:
    """Law TX3: the first one open, committed, or outside a transaction."""
    first, second, reply = CONFLICTS[how]
    for ways in ((begun(U, first),), (begun(U, first), CommitTransaction(U)), (first,)):
        store = Store()
        store.ask(begun(T, find_one(ROWS, AT_B)))
        for each in ways:
            store.ask(each)
        assert store.ask(InTransaction(T, second)) == reply
        is_over = isinstance(reply, Failure)
        assert (store.ask(InTransaction(T, find_one(ROWS, AT_B))) == GONE) is is_over
        assert store.ask(CommitTransaction(T)) is not is_over


def test_what_changed_and_changed_back_has_changed() -> None:
    """As in MongoDB: versions do not depend on contents."""
    store = Store()
    store.ask(begun(T, find_one(ROWS, AT_A)))
    store.ask(update_one(ROWS, AT_A, Add(N, 1)))
    store.ask(update_one(ROWS, AT_A, Add(N, -1)))
    assert store.ask(InTransaction(T, update_one(ROWS, AT_A, Add(N, 1)))) == CONFLICT


def test_an_update_with_a_limit_is_too_late_while_a_transaction_holds_its_document() -> None:
    """Earlier writes of a bulk stay; a write without a match never waits."""
    store = Store()
    store.ask(InTransaction(T, update_one(ROWS, AT_A, Put(N, 2)), begins=True))

    late = store.ask(update_one(ROWS, AT_A, Put(N, 3), within=SECOND))
    assert isinstance(late, Ambiguous)
    assert is_too_late(late)
    each = (update_one(ROWS, AT_B, Put(N, 4)), update_one(ROWS, AT_A, Put(N, 4)))
    assert store.ask(bulk_update(*each)) == WAITS
    assert is_too_late(cast("Failure", store.ask(bulk_update(*each, within=SECOND))))
    assert store.rows() == (A, Document.of({"_id": "b", "n": 4}))
    assert store.ask(update_one(ROWS, AllOf((AT_A, Eq(N, 2))), Put(N, 5), within=SECOND)) == 0
    other = bulk_update(each[1], update_one(ROWS, AT_B, Put(N, 7)), within=SECOND)
    rows = [contents(after, ROWS)[1].get(N) for after, _ in perform(other, store.world, "p")]
    assert rows == [4, 7]  # the held one comes first, or last
    store.ask(CommitTransaction(T))
    assert store.ask(update_one(ROWS, AT_A, Put(N, 6), within=SECOND)) == 1


@pytest.mark.parametrize(
    ("written", "beside", "reply"),
    [
        (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_A, Add(N, 1)), WAITS),
        (update_one(ROWS, AT_A, Add(N, 1)), delete_one(ROWS, AT_A), WAITS),
        (update_one(ROWS, AT_A, Add(N, 1)), update_many(ROWS, Exists(N), Add(N, 1)), WAITS),
        (insert_one(ROWS, Document.of({"_id": "c"})), insert_one(ROWS, Document.of({"_id": "c"})), WAITS),
        (delete_one(ROWS, AT_A), insert_one(ROWS, A), duplicate_key("_id")),
        (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_A, Put(N, 1)), 1),
        (update_one(ROWS, AT_A, Add(N, 1)), find_one(ROWS, AT_A), A),
        (update_one(ROWS, AT_A, Add(N, 1)), update_one(ROWS, AT_B, Add(N, 1)), 1),
    ],
)
def test_who_writes_beside_a_transaction_waits_for_it(written: Operation, beside: Operation, reply: object) -> None:
    store = Store()
    store.ask(begun(T, written))
    assert store.ask(beside) == reply
    store.ask(AbortTransaction(T))
    assert store.ask(beside) != WAITS


def test_values_of_a_unique_index_meet_as_documents_do() -> None:
    """Later or open writers' values conflict; a value that the snapshot shows is a duplicate."""
    two = Document.of({"_id": "two", "m": 2.0})
    for ways, reply in (
        ([begun(U, insert_one(ROWS, two))], CONFLICT),
        ([begun(U, insert_one(ROWS, two)), CommitTransaction(U)], CONFLICT),
        ([begun(U, insert_one(ROWS, two)), AbortTransaction(U)], None),
        ([insert_one(ROWS, two)], CONFLICT),
        ([insert_one(ROWS, two), delete_one(ROWS, Eq(ID, "two"))], CONFLICT),
        ([begun(U, update_one(ROWS, AT_A, Put(M, 2)))], CONFLICT),
        ([update_one(ROWS, AT_A, Put(M, 9))], None),
    ):
        store = Store(A.put(M, 7), unique=((M,),))
        store.ask(begun(T, find_one(ROWS, AT_A)))
        for each in ways:
            store.ask(each)
        assert store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "c", "m": 2})))) == reply
    store = Store(A.put(M, 7), unique=((M,),))
    store.ask(begun(T, find_one(ROWS, AT_A)))
    store.ask(update_one(ROWS, AT_A, Put(M, 9)))
    assert store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "c", "m": 7})))) == duplicate_key("m")
    store.ask(begun(U, insert_one(ROWS, two)))
    assert store.ask(insert_one(ROWS, Document.of({"_id": "c", "m": 2}))) == WAITS


def test_a_conflict_comes_before_a_duplicate() -> None:
    """Document first, then each index: conflicts before duplicates, as in MongoDB."""
    store = Store(A.put(M, 7), unique=((M,),))
    store.ask(begun(T, find_one(ROWS, AT_A)))
    store.ask(begun(U, insert_one(ROWS, Document.of({"_id": "c"}))))
    assert store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "c", "m": 7})))) == CONFLICT
    store = Store(A.put(M, 7), unique=((M,),))
    store.ask(begun(T, find_one(ROWS, AT_A)))
    store.ask(delete_one(ROWS, AT_A))
    store.ask(begun(U, insert_one(ROWS, Document.of({"_id": "c", "m": 7}))))
    assert store.ask(InTransaction(T, insert_one(ROWS, Document.of({"_id": "d", "m": 7})))) == CONFLICT


def test_what_was_there_is_saved_once() -> None:
    store = Store()
    store.ask(begun(T, find_one(ROWS, AT_A)))
    for _ in range(3):
        store.ask(update_one(ROWS, AT_A, Add(N, 1)))
    now = store.world.read(known("t"))
    assert now is not None
    assert now.current is not None
    assert [had for _, had in now.current.was] == [A]


def test_a_refusal_is_the_end_and_undoes_what_was_done_to_others() -> None:
    store = Store(A, B.put(M, "text"))
    bulk = bulk_update(update_one(ROWS, AT_A, Add(M, 1)), update_one(ROWS, AT_B, Add(M, 1)))
    assert isinstance(store.ask(begun(T, bulk)), Refused)
    assert store.ask(CommitTransaction(T)) is False
    assert store.rows()[0] == A


def test_a_transaction_is_committed_once_or_never() -> None:
    """Law TX4."""
    store = Store()
    more = update_one(ROWS, AT_A, Add(N, 1))
    store.ask(begun(T, more))
    assert store.ask(CommitTransaction(T)) is True
    assert store.ask(CommitTransaction(T)) is True
    assert store.ask(AbortTransaction(T)) is None
    assert store.ask(CommitTransaction(T)) is True
    assert isinstance(store.ask(begun(T, more)), NotApplied)
    assert store.ask(InTransaction(T, more)) == GONE
    assert store.rows()[0] == A.put(N, 2)
    later = Transaction("t", 3)
    assert store.ask(CommitTransaction(later)) is False
    store.ask(begun(later, more))
    assert isinstance(store.ask(CommitTransaction(T)), Ambiguous)
    assert isinstance(store.ask(begun(Transaction("t", 2), more)), NotApplied)
    store.ask(AbortTransaction(later))
    assert store.ask(CommitTransaction(later)) is False
    assert isinstance(store.ask(begun(later, more)), NotApplied)
    assert store.rows()[0] == A.put(N, 2)


def test_a_session_that_begins_another_one_ends_the_one_before() -> None:
    store = Store()
    store.ask(begun(T, update_one(ROWS, AT_A, Add(N, 1))))
    store.ask(begun(Transaction("t", 2), find_one(ROWS, AT_A)))
    assert store.ask(update_one(ROWS, AT_A, Add(N, 1))) == 1
    assert store.world.read(OPEN) == ("t",)


# --- a twin that copies everything --------------------------------------------------------------------------------------

KEYS: Final = ("a", "b", "c")
Step: TypeAlias = tuple[str, Operation | str]
"""Actor and action: 't' and 'u' are in transactions, '' is not."""


@final
class Twin:
    """Transactions work on full copies, with the last write of each document."""

    def __init__(self) -> None:
        self.store = Store()
        self.time = 0
        self.written_at: dict[str, int] = {}
        self.open: dict[str, tuple[int, Store, set[str]]] = {}

    def do(self, who: str, what: Operation | str) -> object:
        if not who:
            return self.beside(what)
        if what == "commit":
            return self.commits(who)
        if what == "abort":
            self.open.pop(who, None)
            return None
        began, copy, mine = self.open.get(who, (self.time, self.copy(), set[str]()))
        changed, reply = self.tried(copy, what)
        others = set().union(*(theirs for name, (_, _, theirs) in self.open.items() if name != who))
        if any(key in others or self.written_at.get(key, -1) >= began for key in changed):
            reply = CONFLICT
        if isinstance(reply, Failure):
            self.open.pop(who, None)
        else:
            self.open[who] = (began, copy, mine | changed)
        return reply

    def copy(self) -> Store:
        return Store(*self.store.rows()) if self.store.rows() else self.emptied()

    def emptied(self) -> Store:
        store = Store()
        store.world = world_with({ROWS: ()})
        return store

    def tried(self, store: Store, what: Any) -> tuple[set[str], object]:
        before = {doc[ID]: doc for doc in store.rows()}
        reply = store.ask(what)
        after = {doc[ID]: doc for doc in store.rows()}
        return {key for key in KEYS if before.get(key) != after.get(key)}, reply

    def beside(self, what: Any) -> object:
        was = self.store.world
        changed, reply = self.tried(self.store, what)
        if any(key in theirs for _, _, theirs in self.open.values() for key in changed):
            self.store.world = was
            return WAITS
        self.wrote(changed)
        return reply

    def wrote(self, keys: set[str]) -> None:
        self.written_at |= dict.fromkeys(keys, self.time)
        self.time += 1

    def commits(self, who: str) -> bool:
        if who not in self.open:
            return False
        _, copy, mine = self.open.pop(who)
        now = {doc[ID]: doc for doc in copy.rows()}
        for key in sorted(mine):
            self.store.ask(delete_one(ROWS, Eq(ID, key)))
            if key in now:
                self.store.ask(insert_one(ROWS, now[key]))
        self.wrote(mine)
        return True


def operations() -> SearchStrategy[Operation]:
    key = st.sampled_from(KEYS)
    where = key.map(lambda each: Eq(ID, each))
    change = st.sampled_from((Add(N, 1), Put(N, 1), Put(M, "x")))
    new = key.map(lambda each: Document.of({"_id": each, "n": 5}))
    return st.one_of(
        st.builds(FindOne, st.just(ROWS), where),
        st.just(FindAll(ROWS, Exists(ID), 9)),
        st.builds(lambda one, to: UpdateOne(ROWS, one, (to,)), where, change),
        st.builds(lambda one, to: FindOneAndUpdate(ROWS, one, (to,)), where, change),
        st.builds(lambda one, to: UpsertOne(ROWS, one, (to,)), where, change),
        st.builds(InsertOne, st.just(ROWS), new),
        st.builds(DeleteOne, st.just(ROWS), where),
        st.builds(lambda to: UpdateMany(ROWS, Exists(M), (to,)), change),
        st.just(DeleteMany(ROWS, Exists(M))),
    )


STEPS: Final[SearchStrategy[list[Step]]] = st.lists(
    st.tuples(
        st.sampled_from(("t", "t", "u", "u", "")),
        st.one_of(operations(), operations(), operations(), st.sampled_from(("commit", "abort"))),
    ),
    max_size=14,
)


def asked(store: Store, who: str, what: Any) -> object:
    if not who:
        return store.ask(what)
    now = store.world.read(known(who))
    is_open = who in store.world.read(OPEN)
    number = (now.number if now else 0) + (not is_open)
    if isinstance(what, str):
        ends = (
            CommitTransaction(Transaction(who, number))
            if what == "commit"
            else AbortTransaction(Transaction(who, number))
        )
        return store.ask(ends)
    return store.ask(InTransaction(Transaction(who, number), what, begins=not is_open))


@given(STEPS)
def test_it_answers_as_one_that_copies_everything(steps: list[Step]) -> None:
    """Laws TX1 to TX4, on random runs of two transactions and others."""
    store, twin = Store(), Twin()
    for who, what in steps:
        if not who and isinstance(what, str):
            continue
        assert asked(store, who, what) == twin.do(who, what), (who, what)
        assert {doc[ID]: doc for doc in store.rows()} == {doc[ID]: doc for doc in twin.store.rows()}


# --- faults -------------------------------------------------------------------------------------------------------------


async def bulk_in_a_hurry() -> None:
    await Note("open", 1)
    try:
        await bulk_update(update_one(ROWS, AT_A, Put(N, 7)), update_one(ROWS, AT_B, Put(N, 7)), within=SECOND)
    except Ambiguous as failure:
        if is_too_late(failure):
            await Note("too late", 1)


async def bulk_that_stops() -> None:
    try:
        await bulk_update(update_one(ROWS, AT_A, Put(N, 9)), update_one(ROWS, AT_B, Put(N, 9)), within=SECOND)
    except Ambiguous as failure:
        await Note("late" if is_too_late(failure) else "partly", 1)


async def holds_one() -> None:
    await begun(T, update_one(ROWS, AT_A, Put(N, 2)))
    await Note("open", 1)


def test_a_bulk_that_comes_late_keeps_its_limit() -> None:
    late = Process("late", factory(bulk_in_a_hurry), Faults.of(Fault.LATE), perform)
    owner = Process("owner", factory(holds_one), meaning=perform)

    def is_told(state: State) -> bool:
        found = state.read(document(ROWS, "a"))
        return ("too late", 1) in state.read(notes("late")) or found == Document.of({"_id": "a", "n": 7})

    actors = (late, owner, Network(perform), Expiry((owner,)))
    world = world_with({ROWS: (A, B)})
    report = explore(Scenario("late", "", world, actors, budget=1, eventually={"done, or told": is_told}))
    assert report.verdict is Verdict.VIOLATED


async def left_open() -> None:
    await begun(T, update_one(ROWS, AT_A, Add(N, 1)))


async def beside() -> int:
    return await update_one(ROWS, AT_A, Add(N, 1))


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_waits_for_ever_for_a_transaction_that_nobody_ends(*, is_there: bool) -> None:
    """Its owner ended or crashed: the server ends it, else other writers block."""
    owner = Process("owner", factory(left_open), Faults.of(Fault.CRASH_BEFORE))
    waiting = Process("waiting", factory(beside))
    scenario = Scenario(
        "left open",
        "",
        world_with({ROWS: (A,)}),
        (owner, waiting, *((Expiry((owner,)),) if is_there else ())),
        eventually={"done": lambda state: state.status("waiting") == Returned(1)},
    )
    assert explore(scenario).ok is is_there


async def waits_for(own: str, other: str) -> None:
    await begun(Transaction(own, 1), update_one(ROWS, Eq(ID, own), Put(N, 7)))
    await update_one(ROWS, Eq(ID, other), Put(N, 8))


async def never_comes_back() -> None:
    await left_open()
    await Call("user")


@pytest.mark.parametrize(
    "births",
    [
        (factory(waits_for, "a", "a"),),
        (factory(waits_for, "a", "b"), factory(waits_for, "b", "a")),
        (factory(never_comes_back), factory(beside)),
    ],
    ids=["for itself", "for each other", "for user code"],
)
def test_the_transaction_of_an_owner_that_waits_for_ever_is_over(births: tuple[Birth, ...]) -> None:
    faults = Faults.of(Fault.NEVER_RETURNS)
    owners = tuple(Process(f"p{at}", birth, faults, calling({"user": ()})) for at, birth in enumerate(births))
    scenario = Scenario(
        "waits",
        "",
        world_with({ROWS: (A, B)}),
        (*owners, Expiry(owners)),
        eventually={"no transaction is open": lambda state: not state.read(OPEN)},
    )
    assert explore(scenario).verdict is Verdict.COMPLETE


def test_a_transaction_that_a_program_of_a_reducer_has_begun_expires() -> None:
    owner = ReducerProcess(
        "owner",
        0,
        lambda state, event: reducer.Step(state, (Call("leave"),) if event == "go" else ()),
        lambda *_: None,
        carried_out=lambda command: left_open() if command == Call("leave") else None,
    )
    waiting = Process("waiting", factory(beside))
    scenario = Scenario(
        "left open",
        "",
        world_with({ROWS: (A,)}).write(inbox("owner"), ("go",)),
        (owner, waiting, Expiry((owner,))),
        eventually={"done": lambda state: state.status("waiting") == Returned(1)},
    )
    assert explore(scenario).ok
    with pytest.raises(Misuse, match="owner has an open transaction"):
        explore(attrs.evolve(scenario, actors=(owner, waiting, Expiry((waiting,)))))


async def twice() -> bool:
    await begun(T, update_one(ROWS, AT_A, Add(N, 1)))
    await InTransaction(T, update_one(ROWS, AT_A, Add(N, 1)))
    return await CommitTransaction(T)


def test_who_stalls_may_find_that_it_is_over() -> None:
    owner = Process("owner", factory(twice), Faults.of(Fault.STALL))
    ends: set[object] = set()

    def is_whole(state: State) -> bool:
        ends.add(state.status("owner"))
        is_done = state.status("owner") == Returned(value=True)
        return state.read(document(ROWS, "a")) == A.put(N, 3 if is_done else 1)

    scenario = Scenario(
        "stalls",
        "",
        world_with({ROWS: (A,)}),
        (owner, Expiry((owner,))),
        always={"all or nothing": is_whole},
    )
    report = explore(scenario)
    assert report.ok
    assert report.faults[Fault.STALL]
    assert {Returned(True), Returned(False), Failed(GONE)} <= ends


def test_no_statement_is_delivered_twice_or_waits_for_a_majority() -> None:
    """No driver resends a statement; only a commit is confirmed."""
    faults = Faults.of(Fault.DUPLICATE, Fault.NOT_DURABLE)
    report = explore(Scenario("twice", "", world_with({ROWS: (A,)}), (Process("owner", factory(twice), faults),)))
    assert report.faults == {Fault.DUPLICATE: 1, Fault.NOT_DURABLE: 1}


def test_a_failover_ends_what_is_open_and_takes_back_a_commit_whole() -> None:
    store = Store()
    store.world = store.world.write(FAULTS, 2)
    store.ask(begun(T, update_one(ROWS, AT_A, Add(N, 1))))
    store.ask(InTransaction(T, delete_one(ROWS, AT_B)))
    store.ask(begun(Transaction("v", 1), find_one(ROWS, AT_A)))
    ((done, reply, overwritten),) = noted(perform, CommitTransaction(T), store.world, "p")
    assert reply is True
    store.world = unconfirmed(store.world, done, overwritten, alone=True)
    store.ask(begun(U, find_one(ROWS, AT_A)))
    (step,) = Failover().steps(store.world)
    store.world = step.world
    assert store.rows() == (A, B)
    assert store.world.read(OPEN) == ()
    assert [store.ask(CommitTransaction(each)) for each in (T, U, Transaction("v", 1))] == [False] * 3


def test_a_commit_confirms_what_was_written_before_it() -> None:
    store = Store()
    ((done, _, overwritten),) = noted(perform, update_one(ROWS, AT_A, Add(N, 1)), store.world, "p")
    store.world = unconfirmed(store.world, done, overwritten, alone=True)
    store.ask(begun(T, update_one(ROWS, AT_B, Add(N, 1))))
    assert store.world.read(UNCONFIRMED)
    store.ask(CommitTransaction(T))
    assert store.world.read(UNCONFIRMED) == ()


def test_a_commit_that_is_asked_for_again_is_confirmed() -> None:
    store = Store()
    store.ask(begun(T, update_one(ROWS, AT_A, Add(N, 1))))
    ((done, _, overwritten),) = noted(perform, CommitTransaction(T), store.world, "p")
    store.world = unconfirmed(store.world, done, overwritten, alone=True)
    assert store.world.read(UNCONFIRMED)
    assert store.ask(CommitTransaction(T)) is True
    assert store.world.read(UNCONFIRMED) == ()


def test_a_stream_and_a_journal_hear_of_a_commit_and_of_nothing_before() -> None:
    stream = Stream("s", (ROWS,))
    meaning = stream.meaning(journaled(ROWS, "a", lambda doc: doc))
    world: World = stream.begun(world_with({ROWS: (A, B)}))
    for effect, told in (
        (begun(T, update_one(ROWS, AT_B, Add(N, 1))), 0),
        (InTransaction(T, update_one(ROWS, AT_A, Add(N, 1))), 0),
        (CommitTransaction(T), 2),
    ):
        ((world, _),) = meaning(effect, world, "p")
        assert len(world.read(KEPT).changes) == told
    assert [change and change.id for change in world.read(KEPT).changes] == ["b", "a"]
    assert world.read(journal(ROWS, "a")) == (A.put(N, 2),)


def test_a_stream_tells_each_write_of_a_transaction_in_order() -> None:
    stream = Stream("s", (ROWS,))
    world: World = stream.begun(world_with({ROWS: (A, B)}))
    effects: tuple[Effect[object], ...] = (
        begun(T, update_one(ROWS, AT_B, Add(N, 1))),
        AbortTransaction(T),
        begun(attrs.evolve(T, number=2), delete_one(ROWS, AT_A)),
        *(
            InTransaction(attrs.evolve(T, number=2), each)
            for each in (update_one(ROWS, AT_B, Add(N, 1)), insert_one(ROWS, A), update_one(ROWS, AT_B, Add(N, 1)))
        ),
        CommitTransaction(attrs.evolve(T, number=2)),
        CommitTransaction(attrs.evolve(T, number=2)),
    )
    for effect in effects:
        ((world, _),) = stream.meaning()(effect, world, "p")
    told = [(change.id, change.is_gone) for change in world.read(KEPT).changes if change]
    assert told == [("a", True), ("b", False), ("a", False), ("b", False)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Transaction("", 1),
        lambda: Transaction("t", 0),
        lambda: InTransaction(T, CommitTransaction(T)),
        lambda: InTransaction("t", find_one(ROWS, AT_A)),  # type: ignore[arg-type]
        lambda: CommitTransaction("t"),  # type: ignore[arg-type]
        lambda: AbortTransaction("t"),  # type: ignore[arg-type]
        lambda: InTransaction(T, find_one(ROWS, AT_A), begins=1),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_transaction_is_misuse(wrong: Any) -> None:
    with pytest.raises(Misuse):
        wrong()


def test_what_is_asked_has_one_line() -> None:
    assert str(begun(T, find_one(ROWS, AT_A))) == 'transaction 1 of t begins: find rows where _id = "a"'
    assert str(InTransaction(T, find_one(ROWS, AT_A))) == 'transaction 1 of t: find rows where _id = "a"'
    assert [str(CommitTransaction(T)), str(AbortTransaction(T))] == [
        "commit transaction 1 of t",
        "abort transaction 1 of t",
    ]
    assert attrs.evolve(T, number=2) == Transaction("t", 2)


def test_a_write_of_many_that_is_partly_done_waits_for_no_transaction() -> None:
    """It ends after documents that no transaction holds."""

    async def holds() -> None:
        await begun(T, update_one(ROWS, AT_A, Put(N, 7)))
        await CommitTransaction(T)

    async def writes() -> None:
        try:
            await update_many(ROWS, Exists(N), Put(N, 9))
        except Ambiguous:
            await Note("partly", 1)

    processes = (Process("t", factory(holds)), Process("m", factory(writes), Faults.of(Fault.PARTLY_DONE)))

    def leaves_what_is_held(before: State, after: State) -> bool:
        is_open = before.read(OPEN) and after.read(OPEN)
        return not is_open or contents(before, ROWS)[0] == contents(after, ROWS)[0]

    report = explore(
        Scenario(
            name="partly",
            summary="",
            world=world_with({ROWS: (A, B)}),
            actors=(*processes, Expiry(processes)),
            budget=1,
            step={"what is held is not written": leaves_what_is_held},
            sometimes={"b alone": lambda state: bool(state.read(OPEN)) and contents(state, ROWS)[1][N] == 9},
        )
    )
    assert (report.verdict, report.goals) == (Verdict.COMPLETE, {"b alone": True})


def test_a_part_of_a_bulk_that_is_too_late_is_not_done() -> None:
    bulk = Process("bulk", factory(bulk_that_stops), Faults.of(Fault.PARTLY_DONE), perform)
    owner = Process("owner", factory(holds_one), meaning=perform)

    def is_done_in_part(state: State) -> bool:
        return ("partly", 1) not in state.read(notes("bulk")) or any(row[N] == 9 for row in contents(state, ROWS))

    scenario = Scenario(
        name="partly", summary="", world=world_with({ROWS: (A, B)}), actors=(bulk, owner, Expiry((owner,))), budget=1,
        always={"something is done": is_done_in_part},
        sometimes={"partly": lambda state: ("partly", 1) in state.read(notes("bulk"))},
    )  # fmt: skip
    report = explore(scenario)
    assert (report.verdict, report.goals) == (Verdict.COMPLETE, {"partly": True})
