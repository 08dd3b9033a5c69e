from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.test_mongo_agreement import COLLECTION, comparable
from tests.length import NOTICED, SEQUENCES, TRANSACTION_FAULTS_STEP

from tidegate.model.documents import ID, Add, Document, Eq, Exists, Field, Fields, Put, Remove, exactly
from tidegate.model.effects import Ambiguous, Call, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, Instant
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
    find_all,
    find_one,
    insert_one,
    update_one,
)
from tidegate.model.programs import insert_new
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Done, NotDone, Sent, Unknown
from tidegate.sim.program.recording import Same, executed, read
from tidegate.transactions.checks import laws
from tidegate.transactions.transacting import in_transaction
from tidegate.transactions.transfers import Transfer, Transferred, account, transfer
from tidegate_adapters.embedded.store import Embedded, process_clock
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, make_unique, sessions
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.bson import CODEC, loaded
from tidegate_adapters.observe.recorder import Recorder
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

A: Final = Field[Any]("a")
KEYS: Final = ("x", "y", "z")
T: Final = Transaction("t", 1)
BEGAN: Final = {"a": 5, "b": 5}
MOVE: Final = Transfer("r", "a", "b", 2)
TWICE: Final = Policy(backoff=Fixed(20 * MILLISECOND), attempts_max=3)

Step: TypeAlias = tuple[str, Operation | str]
Spoil: TypeAlias = Callable[[object], object]
MakeProxy: TypeAlias = Callable[..., BlackPipe]


# --- agreement with the embedded store ----------------------------------------------------------------------------------


def same(reply: object) -> object:
    return reply


@final
class Both:
    """Two transactions and plain writes on both stores; steps that would block are skipped."""

    def __init__(self, collection: Collection[Any], unique: tuple[Fields, ...] = (), spoil: Spoil = same) -> None:
        collection.delete_many({})
        self.collection, self.spoil = collection, spoil
        self.real = Mongo(collection.database.client, collection.database.name)
        self.embedded = Embedded({COLLECTION: ()}, unique={COLLECTION: unique})
        self.numbers: dict[str, int] = {}
        self.open: set[str] = set()

    def do(self, who: str, what: Operation | str) -> None:
        if isinstance(what, str):
            if who and who in self.open:
                asked = Transaction(who, self.numbers[who])
                self.open.discard(who)
                self.ask(CommitTransaction(asked) if what == "commit" else AbortTransaction(asked))
            return
        if not who:
            if self.embedded.would_wait(what):
                return
            self.ask(what)
            return
        begins = who not in self.open
        self.numbers[who] = self.numbers.get(who, 0) + begins
        self.open.add(who)
        reply = self.ask(InTransaction(Transaction(who, self.numbers[who]), what, begins=begins))
        if isinstance(reply, Failure):
            self.ask(AbortTransaction(Transaction(who, self.numbers[who])))
            self.open.discard(who)

    def ask(self, effect: Any) -> object:
        here, there = self.embedded(effect), self.real(effect)
        assert comparable(self.spoil(here)) == comparable(there), f"{effect} answers {here}, in MongoDB {there}"
        return here

    def finish(self) -> None:
        for who in tuple(self.open):
            self.do(who, "commit")
        here = self.embedded.contents(COLLECTION)
        there = (loaded(each, COLLECTION) for each in self.collection.find())
        assert sorted(map(exactly, here), key=str) == sorted(map(exactly, there), key=str)
        assert len(self.real.sessions) == 0


def operations() -> SearchStrategy[Operation]:
    where = st.sampled_from(KEYS).map(lambda key: Eq(ID, key))
    change = st.sampled_from((Put(A, 1), Put(A, 2), Put(A, 2.0), Add(A, 1), Remove(A), Put(A, (1, 3))))
    new = st.builds(
        lambda key, held: Document.of({"_id": key} | held),
        st.sampled_from(KEYS),
        st.sampled_from(({}, {"a": 1}, {"a": 2}, {"a": (2, 3)})),
    )
    return st.one_of(
        st.builds(FindOne, st.just(COLLECTION), where),
        st.just(FindAll(COLLECTION, Exists(ID), 9)),
        st.builds(lambda one, to: UpdateOne(COLLECTION, one, (to,)), where, change),
        st.builds(lambda one, to: FindOneAndUpdate(COLLECTION, one, (to,)), where, change),
        st.builds(lambda one, to: UpsertOne(COLLECTION, one, (to,)), where, change),
        st.builds(InsertOne, st.just(COLLECTION), new),
        st.builds(InsertOne, st.just(COLLECTION), new),
        st.builds(DeleteOne, st.just(COLLECTION), where),
        st.builds(lambda to: UpdateMany(COLLECTION, Exists(A), (to,)), change),
        st.just(DeleteMany(COLLECTION, Exists(A))),
        st.builds(
            lambda one, other: bulk_update(*(update_one(COLLECTION, Eq(ID, k), c) for k, c in zip("xy", (one, other)))),  # noqa: B905
            change,
            change,
        ),
    )


STEPS: Final[SearchStrategy[list[Step]]] = st.lists(
    st.tuples(
        st.sampled_from(("t", "t", "u", "u", "")),
        st.one_of(*[operations()] * 4, st.sampled_from(("commit", "commit", "abort"))),
    ),
    min_size=4,
    max_size=14,
)


def check(both: Callable[[], Both], sequences: int, *phases: Phase) -> None:
    @settings(
        max_examples=sequences,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=phases or (Phase.generate, Phase.shrink),
    )
    @given(STEPS)
    def agree(steps: list[Step]) -> None:
        stores = both()
        try:
            for who, what in steps:
                stores.do(who, what)
            stores.finish()
        finally:
            for who in stores.open:
                stores.real(AbortTransaction(Transaction(who, stores.numbers[who])))

    agree()


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        made = client.get_database(database, codec_options=CODEC)
        made.create_collection(COLLECTION)  # a transaction that creates it behaves differently
        yield made[COLLECTION]


@pytest.mark.parametrize("unique", [(), ((A,),)], ids=["no index", "a unique index"])
def test_two_transactions_and_others_are_answered_alike(
    collection: Collection[dict[str, Any]], unique: tuple[Fields, ...]
) -> None:
    """Laws TX1, TX2, TX3 and TX4."""
    if unique:
        make_unique(collection.database.client, collection.database.name, {COLLECTION: unique})
    check(partial(Both, collection, unique), SEQUENCES // 2)


SPOILT: Final[dict[str, Spoil]] = {
    "a write conflict that is none": lambda reply: 1 if isinstance(reply, NotApplied) else reply,
    "a refusal that is a conflict": lambda reply: NotApplied("") if isinstance(reply, Refused) else reply,
    "a commit of nothing": lambda reply: False if reply is True else reply,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_store_that_answers_otherwise_is_found_out(collection: Collection[dict[str, Any]], how: str) -> None:
    with pytest.raises(AssertionError, match="in MongoDB"):
        check(partial(Both, collection, (), SPOILT[how]), NOTICED, Phase.generate)


# --- outcomes are true --------------------------------------------------------------------------------------------------


class Bank:
    def __init__(self, client: MongoClient[Any], name: str) -> None:
        self.name = name
        self.db = client.get_database(name, codec_options=CODEC)
        self.db["accounts"].insert_many([{"_id": key, "balance": balance} for key, balance in BEGAN.items()])
        self.db.create_collection("entries")

    def docs(self, collection: str) -> tuple[Document, ...]:
        return tuple(loaded(each, collection) for each in self.db[collection].find())

    def is_whole(self) -> bool:
        return laws.balances_are_what_entries_say(BEGAN, self.docs("accounts"), self.docs("entries"))

    def moved(self) -> int:
        return len(self.docs("entries"))


@pytest.fixture
def bank(mongod: MongoServer, database: str) -> Iterator[Bank]:
    with MongoClient[Any](mongod.uri) as client:
        yield Bank(client, database)
        client.admin.command({"killAllSessions": []})  # failed transactions still run and would block the drop


Ask: TypeAlias = Callable[[str, str, dict[str, Any]], object]


def made(session: str) -> Any:
    return transfer("accounts", "entries", MOVE, session, TWICE)


TOLD: Final[dict[str, Any]] = {"event_listeners": [Attempts()], "socketTimeoutMS": 20_000}
"""As in `connect`: with a deadline the driver would resend the commit until then."""


def ask_sync(uri: str, database: str, options: dict[str, Any]) -> object:
    with MongoClient[Any](uri, appname=database, **TOLD, **options) as client:
        store = Mongo(client, database)
        answer = run(made("s"), choosing(documents(store), local()))
        assert len(store.sessions) == 0
        return answer


def ask_async(uri: str, database: str, options: dict[str, Any]) -> object:
    async def ask() -> object:
        async with AsyncMongoClient[Any](uri, appname=database, **TOLD, **options) as client:
            store = AsyncMongo(client, database)
            answer = await run_async(made("s"), choosing(documents(store), local_async()))
            assert len(store.sessions) == 0
            return answer

    return in_loop(ask())


CUTS: Final[Mapping[str, tuple[tuple[Rule, ...], int | None]]] = {
    "the reply to a commit, once": ((Rule("commitTransaction", Action.CUT_REPLY, times=1),), 1),
    "the reply to a commit, twice": ((Rule("commitTransaction", Action.CUT_REPLY, times=2),), 1),
    "a commit, before it arrives, twice": ((Rule("commitTransaction", Action.CUT_REQUEST, times=2),), 1),
    "the reply to the first statement": ((Rule("find", Action.CUT_REPLY, times=1),), 1),
    "the first statement": ((Rule("find", Action.CUT_REQUEST, times=1),), 1),
    "the reply to a write": ((Rule("findAndModify", Action.CUT_REPLY, times=1),), 1),
    "a write": ((Rule("update", Action.CUT_REQUEST, times=1),), 1),
    "the reply to the last statement": ((Rule("insert", Action.CUT_REPLY, times=1),), 1),
    "the abort after a reply": (
        (Rule("insert", Action.CUT_REPLY, times=1), Rule("abortTransaction", Action.CUT_REQUEST)),
        0,  # its open transaction conflicts with later attempts
    ),
    "every reply to a commit": ((Rule("commitTransaction", Action.CUT_REPLY),), None),
    "every commit": ((Rule("commitTransaction", Action.CUT_REQUEST),), None),
    "every reply to a write": ((Rule("update", Action.CUT_REPLY),), 0),
}
"""The cut, and how often the transfer is applied; None if the answer is Unknown."""


@pytest.mark.parametrize(
    ("what", "ask", "retries"),
    list(product(CUTS, (ask_sync, ask_async), (False, True)))[::TRANSACTION_FAULTS_STEP],
)
def test_what_is_cut_is_answered_truly(
    make_proxy: MakeProxy, bank: Bank, *, ask: Ask, what: str, retries: bool
) -> None:
    """Laws TN1, TN2 and TN3."""
    rules, times = CUTS[what]
    proxy = make_proxy(*rules)
    answer = ask(proxy.uri, bank.name, {"retryWrites": retries})
    assert bank.is_whole()
    assert laws.the_answer_is_true(answer, is_entered=bank.moved() == 1)
    if times is None:
        assert isinstance(answer, Unknown)
        assert bank.moved() == (what == "every reply to a commit")
    else:
        assert bank.moved() == times
        assert isinstance(answer, Done if times else NotDone)


def coded(code: int, *labels: str) -> dict[str, Any]:
    return {"errorCode": code, **({"errorLabels": list(labels)} if labels else {})}


CONCERN: Final = {"writeConcernError": {"code": 64, "errmsg": "as the server would say", "errInfo": {"wtimeout": True}}}
FAILS: Final[Mapping[str, tuple[str, dict[str, Any], int | None, type[Sent[Any]] | None, int]]] = {
    "a write conflict": ("update", coded(112, "TransientTransactionError"), 1, Done, 1),
    "no such transaction": ("insert", coded(251, "TransientTransactionError"), 1, Done, 1),
    "not the primary": ("findAndModify", coded(10107, "TransientTransactionError"), 1, Done, 1),
    "a shutdown": ("update", coded(91, "TransientTransactionError"), 1, Done, 1),
    "closed at the first statement": ("find", {"closeConnection": True}, 1, Done, 1),
    "not authorised": ("update", coded(13), 1, NotDone, 0),
    "a bad value": ("insert", coded(2), 1, NotDone, 0),
    "a commit that nobody knows of": ("commitTransaction", coded(50), 1, Done, 1),
    "a commit at a shutdown": ("commitTransaction", coded(91), 2, Done, 1),
    "a commit that is closed": ("commitTransaction", {"closeConnection": True}, 2, Done, 1),
    "no majority, once": ("commitTransaction", CONCERN, 1, Done, 1),
    "no majority, ever": ("commitTransaction", CONCERN, None, Unknown, 1),
    "a commit that always ends in a shutdown": ("commitTransaction", coded(91), None, Unknown, 0),
}
"""Command, fault and its count, answer, and whether the transfer is applied."""


@pytest.mark.parametrize(("what", "ask"), list(product(FAILS, (ask_sync, ask_async)))[::TRANSACTION_FAULTS_STEP])
def test_what_the_server_says_is_answered_truly(mongod: MongoServer, bank: Bank, ask: Ask, what: str) -> None:
    command, data, times, outcome, is_done = FAILS[what]
    with mongod.fail(command, times=times, appName=bank.name, **data):
        answer = ask(mongod.uri, bank.name, {})
    assert bank.is_whole()
    assert isinstance(answer, outcome or object), answer
    assert bank.moved() == is_done


SAID: Final[Mapping[str, tuple[str, dict[str, Any], object]]] = {
    "a write conflict": ("update", coded(112, "TransientTransactionError"), NotApplied),
    "too late": ("update", coded(50), Ambiguous),
    "not authorised": ("update", coded(13), Refused),
    "a commit of no such transaction": ("commitTransaction", coded(251, "TransientTransactionError"), bool),
    "a commit without a majority": ("commitTransaction", CONCERN, NotDurable),
    "a commit that is not authorised": ("commitTransaction", coded(13), Ambiguous),
}


@pytest.mark.parametrize("what", SAID)
def test_what_a_statement_and_a_commit_are_told(mongod: MongoServer, bank: Bank, what: str) -> None:
    """After a failed statement the store sends no other."""
    command, data, kind = SAID[what]
    with mongod.fail(command, appName=bank.name, **data), MongoClient[Any](mongod.uri, appname=bank.name) as client:
        store = Mongo(client, bank.name)
        first = store(InTransaction(T, update_one("accounts", Eq(ID, "a"), Add(A, 1)), begins=True))
        if command == "update":
            assert isinstance(first, kind)  # type: ignore[arg-type]
            assert store(InTransaction(T, find_one("accounts", Eq(ID, "a")))) == NotApplied("no such transaction")
        else:
            assert first == 1
            said = store(CommitTransaction(T))
            assert isinstance(said, kind)  # type: ignore[arg-type]
            assert said is not True
        store(AbortTransaction(T))
        assert len(store.sessions) == 0
        assert isinstance(store(CommitTransaction(T)), Ambiguous)


def test_what_the_server_has_ended_begins_anew(bank: Bank, mongod: MongoServer) -> None:
    """The commit's answer is that there is no such transaction."""
    ended = iter([True])

    async def body() -> int:
        matched = await update_one("accounts", Eq(ID, "a"), Add(A, 1))
        await Call("end")
        return matched

    def end() -> None:
        if next(ended, False):
            bank.db.client.admin.command({"killAllSessions": []})

    with MongoClient[Any](mongod.uri) as client:
        handle = choosing(documents(Mongo(client, bank.name)), local({"end": end}))
        assert run(in_transaction("s", body, TWICE), handle) == Done(1, 2)
    assert [doc.held(A) for doc in bank.docs("accounts")] == [1, None]


def test_nobody_waits_for_a_commit_that_is_given_up(make_proxy: MakeProxy, bank: Bank) -> None:
    """The commit never arrived; the session's next transaction ends it on the server."""
    proxy = make_proxy(Rule("commitTransaction", Action.CUT_REQUEST))
    assert isinstance(ask_async(proxy.uri, bank.name, {}), Unknown)
    assert is_free(bank)
    assert bank.moved() == 0


def test_a_step_down_in_the_midst_begins_the_whole_anew(disposable_mongod: MongoServer) -> None:
    """Law TN1."""
    with connect(disposable_mongod.uri) as client:
        bank = Bank(client, "bank")
        stepped = iter([True])

        async def body() -> Transferred:
            await update_one("accounts", Eq(ID, "a"), Add(Field[int]("balance"), -2))
            await Call("step down")
            await update_one("accounts", Eq(ID, "b"), Add(Field[int]("balance"), 2))
            await insert_one("entries", Document.of({"_id": "r", "from": "a", "to": "b", "amount": 2}))
            return Transferred.MOVED

        def step_down() -> None:
            if next(stepped, False):
                with MongoClient[Any](disposable_mongod.uri, directConnection=True) as direct:
                    direct.admin.command("replSetStepDown", 1, secondaryCatchUpPeriodSecs=0, force=True)

        policy = Policy(backoff=Fixed(500 * MILLISECOND), attempts_max=40)
        answer = run(
            in_transaction("s", body, policy),
            choosing(documents(Mongo(client, "bank")), local({"step down": step_down})),
        )
        assert isinstance(answer, Done)
        assert answer.attempts > 1
        assert bank.is_whole()
        assert bank.moved() == 1


# --- open transactions --------------------------------------------------------------------------------------------------


async def left_open() -> None:
    await InTransaction(T, update_one("accounts", Eq(ID, "a"), Add(A, 1)), begins=True)


async def stands(until: str) -> None:
    await left_open()
    await Call(until)


def is_free(bank: Bank) -> bool:
    done = bank.db.command(
        "update", "accounts", updates=[{"q": {"_id": "a"}, "u": {"$inc": {"a": 1}}}], maxTimeMS=5_000
    )
    return bool(done["n"] == 1)


def test_a_run_ends_what_it_leaves_open(bank: Bank, mongod: MongoServer) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def looped() -> None:
        async with AsyncMongoClient[Any](mongod.uri) as client:
            store, begun = AsyncMongo(client, bank.name), asyncio.Event()

            async def stand() -> None:
                begun.set()
                await asyncio.sleep(60)

            handle = choosing(documents(store), local_async({"stand": stand}))
            await run_async(left_open(), handle)
            task = asyncio.create_task(run_async(stands("stand"), handle))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(store.sessions) == 0

    with MongoClient[Any](mongod.uri) as client:
        store = Mongo(client, bank.name)
        handle = choosing(documents(store), local({"fail": fails}))
        run(left_open(), handle)
        assert is_free(bank)
        with pytest.raises(ZeroDivisionError):
            run(stands("fail"), handle)
        assert is_free(bank)
        assert len(store.sessions) == 0
    in_loop(looped())
    assert is_free(bank)


def test_sessions_are_bounded(bank: Bank, mongod: MongoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    read = find_one("accounts", Eq(ID, "a"))
    with MongoClient[Any](mongod.uri) as client:
        store = Mongo(client, bank.name)
        for name in ("t", "u", "v"):
            store(InTransaction(Transaction(name, 1), read, begins=True))
        assert len(store.sessions) == 2
        assert store(InTransaction(T, read)) == NotApplied("no such transaction")
        store(InTransaction(Transaction("v", 2), read, begins=True))
        assert store(InTransaction(Transaction("v", 1), read)) == NotApplied("no such transaction")
        assert store(CommitTransaction(Transaction("v", 2))) is True
        store(AbortTransaction(Transaction("u", 1)))
        assert len(store.sessions) == 0


def test_a_recorded_run_is_executed_again_with_what_the_driver_has_ended(tmp_path: Path) -> None:
    """The abort at the end is the driver's, not the program's."""
    store = Embedded({"accounts": (account("a", 1),)})
    with Recorder(tmp_path / "run.jsonl", "left_open") as recorder:
        run(left_open(), recorder.recorded(choosing(documents(store), local())))
    found = read(recorder.path.read_text())
    assert [each.what.partition(" ")[0] for each in found.entries] == ["transaction", "abort"]
    assert isinstance(executed(found, left_open(), {}), Same)


# --- the user's own session -----------------------------------------------------------------------------------------------


async def enqueued(key: str) -> bool:
    is_new = await insert_new("entries", Document.of({"_id": key}))
    return is_new and await update_one("accounts", Eq(ID, "a"), Add(A, 1)) == 1


@pytest.mark.parametrize("is_committed", [False, True], ids=["aborted", "committed"])
def test_operations_go_with_the_transaction_of_a_session_of_yours(
    bank: Bank, mongod: MongoServer, *, is_committed: bool
) -> None:
    async def looped() -> None:
        async with AsyncMongoClient[Any](mongod.uri) as client, client.start_session() as session:
            await session.start_transaction()
            await client[bank.name]["entries"].insert_one({"_id": "theirs, too"}, session=session)
            store = AsyncMongo(client, bank.name, session=session)
            assert await run_async(enqueued("ours, too"), choosing(documents(store)))
            await (session.commit_transaction() if is_committed else session.abort_transaction())

    with MongoClient[Any](mongod.uri) as client, client.start_session() as session:
        session.start_transaction()
        client[bank.name]["entries"].insert_one({"_id": "theirs"}, session=session)
        assert run(enqueued("ours"), choosing(documents(Mongo(client, bank.name, session=session))))
        assert bank.moved() == 0
        (session.commit_transaction if is_committed else session.abort_transaction)()
    in_loop(looped())
    assert bank.moved() == (4 if is_committed else 0)


def test_a_failure_in_a_session_of_yours_is_the_end_of_its_transaction(bank: Bank, mongod: MongoServer) -> None:
    change = update_one("accounts", Eq(ID, "a"), Add(A, 1))
    with MongoClient[Any](mongod.uri) as client, client.start_session() as session:
        store = Mongo(client, bank.name, session=session)
        assert store(change) == 1
        session.start_transaction()
        assert store(find_one("accounts", Eq(ID, "b"))) is not None
        assert Mongo(client, bank.name)(change) == 1
        for _ in range(2):
            assert isinstance(store(change), NotApplied)
        session.abort_transaction()
        assert store(change) == 1


def test_what_is_no_session_is_misuse(bank: Bank, mongod: MongoServer) -> None:
    with MongoClient[Any](mongod.uri) as client, client.start_session() as session:
        with pytest.raises(Misuse, match="a str where a ClientSession belongs"):
            Mongo(client, bank.name, session="session")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="indexes to be made"):
            Mongo(client, bank.name, {"accounts": ((A,),)}, session=session)
        store = Mongo(client, bank.name, session=session)
        with pytest.raises(Misuse, match="a CommitTransaction in a session of yours"):
            store(CommitTransaction(T))


# --- the embedded store alone -------------------------------------------------------------------------------------------


def test_who_writes_beside_a_transaction_waits_for_it_in_the_embedded_store() -> None:
    now = count()
    store = Embedded({"accounts": (account("a", 1),)}, clock=process_clock)
    change = update_one("accounts", Eq(ID, "a"), Add(Field[int]("balance"), 1))
    store(InTransaction(T, change, begins=True))

    async def waits() -> object:
        waiting = asyncio.create_task(store.awaited(change))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert store(CommitTransaction(T)) is True
        return await waiting

    assert asyncio.run(waits()) == 1
    assert store.contents("accounts") == (account("a", 3),)
    late = Embedded({"accounts": (account("a", 1),)}, clock=lambda: Instant(next(now) * MINUTE))
    late(InTransaction(T, change, begins=True))
    assert late(change) == 1
    assert late(CommitTransaction(T)) is False
    assert isinstance(late(CommitTransaction(T)), Ambiguous)
    assert late.contents("accounts") == (account("a", 2),)


def test_sessions_can_be_used_again_in_the_embedded_store() -> None:
    store = Embedded({"accounts": tuple(account(key, balance) for key, balance in BEGAN.items())})
    handle = choosing(documents(store), local())
    for number in range(3):
        asked = Transfer(f"r{number}", "a", "b", 1)
        assert run(transfer("accounts", "entries", asked, "same"), handle) == Done(Transferred.MOVED, 1)
    assert store.contents("accounts") == (account("a", 2), account("b", 8))
    assert run(find_all_of("entries"), handle) == 3
    run(left_open(), handle)
    assert store(update_one("accounts", Eq(ID, "a"), Add(A, 1))) == 1


async def find_all_of(collection: str) -> int:
    return len(await find_all(collection, limit=9))
