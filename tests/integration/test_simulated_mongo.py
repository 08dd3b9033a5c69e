"""The simulated MongoDB answers as a real one, call by call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from uuid import uuid4

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import AsyncMongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.mongo_scripts import (
    ACTIONS,
    COLLECTION,
    Account,
    Admin,
    Ask,
    Begin,
    Call,
    Damage,
    Finish,
    Heard,
    Read,
    Real,
    Script,
    Simulated,
    Step,
    Strike,
    Wait,
    play,
)
from tests.integration.servers import MongoServer
from tests.length import (
    MONGO_CODES_STEP,
    MONGO_NETWORK_STEP,
    MONGO_SCRIPTS,
    MONGO_STEP_DOWNS,
    MONGO_TRANSACTION_CODES_STEP,
    REQUESTS_READ,
)

from tidegate.model.documents import (
    ID,
    Add,
    Ascending,
    Descending,
    Document,
    Eq,
    Field,
    Filter,
    Gt,
    Lt,
    Push,
    Put,
    Sort,
    Value,
    matches,
    sort_key_of,
)
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import (
    BulkUpdate,
    Operation,
    StoreTime,
    bulk_update,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate.strategies import operations, values
from tidegate_adapters.kit.resilience import AsyncKit
from tidegate_adapters.mongo import AsyncMongo, changes, condition
from tidegate_adapters.mongo.bson import CODEC
from tidegate_adapters.mongo.error_codes import CODES
from tidegate_adapters.mongo.sorts import behind, ordered
from tidegate_adapters.testing.black_pipe import BlackPipe
from tidegate_adapters.testing.event_loop import run
from tidegate_adapters.testing.mongo import (
    Code,
    Network,
    NotUnderstood,
    Outcome,
    SimulatedReplicaSet,
    commands,
    replica_set,
)
from tidegate_adapters.testing.mongo.reading import filter_of, query_of, sort_of, updates_of
from tidegate_adapters.testing.mongo.replica_set import Executed

Told = TypeVar("Told")
TURNS: Final = 3
N: Final = Field[int]("n")
NO_ARRAY: Final = Field[tuple[Any, ...]]("n")
S: Final = Field[Any]("s")
A, B = Eq(ID, "a"), Eq(ID, "b")


def doc(key: str, n: int) -> Document:
    return Document.of({"_id": key, "n": n})


def record(key: str, n: int) -> Document:
    return Document.of(
        {"_id": f"bill/{key}", "task": "bill", "document": key, "status": "completed", "snapshot": {"n": n}}
    )


PLANNED: Final[tuple[tuple[tuple[str, ...], Filter | None, tuple[str, ...]], ...]] = (
    (("n",), None, ()), (("n",), Gt(N, 1), ()), (("n",), None, ("a",)), ((), None, ()), (("n", "s.t"), None, ("b",)),
)  # fmt: skip
OPERATIONS: Final[Mapping[str, tuple[Operation, str]]] = {
    "find": (find_one(COLLECTION, A), "find"),
    "find all": (find_all(COLLECTION, Gt(N, 0), limit=10), "find"),
    "found": (find_one_and_update(COLLECTION, A, Add(N, 1)), "findAndModify"),
    "not found": (find_one_and_update(COLLECTION, Eq(ID, "z"), Add(N, 1)), "findAndModify"),
    "updated": (update_one(COLLECTION, A, Add(N, 1)), "update"),
    "not updated": (update_one(COLLECTION, Eq(ID, "z"), Add(N, 1)), "update"),
    "as it was": (update_one(COLLECTION, A, Put(N, 1)), "update"),
    "deleted": (delete_one(COLLECTION, A), "delete"),
    "inserted": (insert_one(COLLECTION, doc("c", 3)), "insert"),
    "a duplicate": (insert_one(COLLECTION, doc("a", 3)), "insert"),
    "upserted": (upsert_one(COLLECTION, Eq(ID, "c"), Add(N, 1)), "findAndModify"),
    "all updated": (update_many(COLLECTION, Gt(N, 0), Add(N, 1)), "update"),
    "all deleted": (delete_many(COLLECTION, Gt(N, 0)), "delete"),
    "all inserted": (insert_many(COLLECTION, doc("c", 3), doc("a", 3), doc("d", 4)), "insert"),
    "in bulk": (bulk_update(update_one(COLLECTION, A, Add(N, 1)), update_one(COLLECTION, Eq(ID, "z"), Add(N, 1))), "update"),
}  # fmt: skip
BY_HAND: Final[Mapping[str, Script]] = {
    "a wrong type": (Ask(update_one(COLLECTION, A, Put(S, "text"))), Ask(update_one(COLLECTION, A, Add(S, 1)))),
    "too large a number": (Ask(update_one(COLLECTION, A, Put(N, 2**63 - 1))), Ask(update_one(COLLECTION, A, Add(N, 1)))),
    "no array": (Ask(update_one(COLLECTION, A, Push(NO_ARRAY, 1))), Ask(find_one_and_update(COLLECTION, A, Push(NO_ARRAY, 1)))),
    "a bulk that is refused in part": (
        Ask(update_one(COLLECTION, A, Put(S, "text"))),
        Ask(bulk_update(update_one(COLLECTION, A, Add(S, 1)), update_one(COLLECTION, B, Add(N, 1)))),
    ),
    "an update of many that is refused midway": (
        Ask(update_one(COLLECTION, B, Put(S, "text"))),
        Ask(update_many(COLLECTION, Gt(N, 0), Add(S, 1))),
    ),
    "an upsert of what does not match": (Ask(upsert_one(COLLECTION, A, Add(N, 1))),),
    "the retry overtakes the first request": (
        Strike("update", Outcome.SLOW),
        Ask(update_one(COLLECTION, A, Add(N, 1))),
        Wait(),
    ),
    "what matched nothing is done late": (
        Strike("update", Outcome.SLOW),
        Ask(update_one(COLLECTION, Eq(ID, "c"), Add(N, 1))),
        Ask(insert_one(COLLECTION, doc("c", 3))),
        Wait(),
    ),
    "what was refused is done late": (
        Strike("insert", Outcome.SLOW),
        Ask(insert_one(COLLECTION, doc("a", 7))),
        Ask(delete_one(COLLECTION, A)),
        Wait(),
    ),
    "what planners ask": (
        Ask(insert_one("records", record("a", 1))), Ask(insert_one("records", record("z", 1))),
        *(Ask(FindChanged(COLLECTION, "records", "bill", Projection(paths), where, 10, after)) for paths, where, after in PLANNED),
        *(Ask(FindOrphaned("records", COLLECTION, "bill", where, 1, after)) for where, after in ((None, ()), (Gt(N, 1), ("bill/a",)))),
    ),
    "ids that are taken, which no majority confirms": (
        Strike("insert", Code(64, concern=True)),
        Ask(insert_many(COLLECTION, doc("a", 1), doc("b", 2))),
        Strike("insert", Code(64, concern=True)),
        Ask(insert_many(COLLECTION, doc("a", 1), doc("c", 3))),
        Ask(insert_many(COLLECTION, doc("a", 1), doc("c", 3))),
    ),
    "a stream": (Read(), Ask(update_one(COLLECTION, A, Add(N, 1))), Ask(delete_one(COLLECTION, B)), Read(), Ask(insert_one("others", doc("x", 1))), Ask(insert_one("strange", doc("x", 1))), Read()),
    "a stream whose reply is lost": (Read(), Ask(update_one(COLLECTION, A, Add(N, 1))), Strike("getMore", Outcome.LOST_REPLY), Read(), Read()),
    "a stream that cannot be opened": (Strike("aggregate", Code(286)), Read(), Read()),
    "a stream whose token is damaged": (Read(), Damage(), Read(), Read()),
    "a stream whose cursor is gone": (Read(), Strike("getMore", Code(43)), Read(), Read()),
    "a collection that is dropped": (Read(), Ask(update_one(COLLECTION, A, Add(N, 1))), Admin("drop"), Read()),
    "a collection that is renamed": (Read(), Admin("rename"), Read()),
    "a database that is dropped": (Read(), Admin("dropDatabase"), Read()),
    "the kit inserts": (Call("insert", ({"_id": "k", "n": 1},)), Call("insert", ({"_id": "k", "n": 1},)), Call("insert", ({"_id": "k", "n": 2},))),
    "the kit inserts, and the reply is lost": (Strike("insert", Outcome.LOST_REPLY), Call("insert", ({"_id": "k", "n": 1},))),
    "the kit deletes": (Call("delete_many", ({"n": {"$gt": 1}},)), Call("delete", ("a",)), Call("delete", ("a",))),
    "the kit deletes many, and the reply is lost": (Strike("delete", Outcome.LOST_REPLY), Call("delete_many", ({"n": 2},))),
    "the kit counts": (Call("count", ("key", "t1")), Call("count", ("key", "t1")), Call("count", ("key", "t2")), Call("counted", ("key",))),
    "the kit counts, and the reply is lost": (Strike("update", Outcome.LOST_REPLY), Call("count", ("key", "t1")), Call("counted", ("key",))),
}  # fmt: skip
T, U = Transaction("t", 1), Transaction("u", 1)
ADDED, ADDED_B = update_one(COLLECTION, A, Add(N, 1)), update_one(COLLECTION, B, Add(N, 1))
LIMITED = update_one(COLLECTION, A, Add(N, 1), within=100 * MILLISECOND)


def first(operation: Operation, of: Transaction = T) -> Ask:
    return Ask(InTransaction(of, operation, begins=True))


def then(operation: Operation, of: Transaction = T) -> Ask:
    return Ask(InTransaction(of, operation))


def commit(of: Transaction = T) -> Ask:
    return Ask(CommitTransaction(of))


def abort(of: Transaction = T) -> Ask:
    return Ask(AbortTransaction(of))


NEXT: Final = Transaction("t", 2)
SEEN: Final = find_all(COLLECTION, Gt(N, 0), limit=10)
IN_TRANSACTIONS: Final[Mapping[str, Script]] = {
    "all statements": (
        first(find_one(COLLECTION, A)),
        then(find_one_and_update(COLLECTION, A, Add(N, 1))),
        then(find_one_and_update(COLLECTION, Eq(ID, "z"), Add(N, 1))),
        then(ADDED),
        then(update_one(COLLECTION, A, Put(N, 3))),
        then(update_one(COLLECTION, Eq(ID, "z"), Add(N, 1))),
        then(insert_one(COLLECTION, doc("c", 3))),
        then(upsert_one(COLLECTION, Eq(ID, "d"), Add(N, 4))),
        then(update_many(COLLECTION, Gt(N, 2), Add(N, 1))),
        then(bulk_update(ADDED, ADDED_B)),
        then(delete_one(COLLECTION, B)),
        then(delete_many(COLLECTION, Gt(N, 4))),
        then(SEEN),
        Ask(SEEN),
        commit(),
        Ask(SEEN),
    ),
    "two that are interleaved": (first(ADDED), first(ADDED_B, U), then(SEEN), then(SEEN, U), commit(U), then(SEEN), commit(), Ask(SEEN)),
    "a conflict of two": (first(ADDED), first(ADDED_B, U), then(ADDED, U), then(SEEN, U), commit(), commit(U), abort(U)),
    "a conflict with what was written since": (first(find_one(COLLECTION, B)), Ask(ADDED), then(SEEN), then(ADDED), abort(), Ask(SEEN)),
    "a conflict at once, and the next one": (first(ADDED), first(ADDED, U), abort(U), commit(), first(ADDED, NEXT), commit(NEXT)),
    "a commit that is asked for twice": (first(ADDED), commit(), commit()),
    "nothing is committed": (first(find_one(COLLECTION, A)), commit()),
    "an abort": (first(ADDED), abort(), Ask(SEEN), commit()),
    "a duplicate": (first(ADDED), then(insert_one(COLLECTION, doc("b", 3))), then(SEEN), commit(), abort()),
    "a wrong type": (Ask(update_one(COLLECTION, B, Put(S, "text"))), first(ADDED), then(update_one(COLLECTION, B, Add(S, 1))), abort(), Ask(SEEN)),
    "the next one ends the one before": (first(ADDED), first(ADDED, NEXT), commit(NEXT), Ask(SEEN)),
    "a write beside it waits": (first(ADDED), Begin(ADDED), commit(), Finish(), Ask(SEEN)),
    "a write beside it runs out of its time limit": (first(ADDED), Ask(LIMITED), commit(), Ask(LIMITED), Ask(SEEN)),
    "a bulk beside it runs out of its time limit": (first(ADDED), Ask(bulk_update(ADDED_B, ADDED, within=100 * MILLISECOND)), Ask(SEEN), abort(), Ask(SEEN)),
    "a write beside it ends within its time limit": (first(ADDED), Begin(update_one(COLLECTION, A, Add(N, 1), within=5 * SECOND)), commit(), Finish(), Ask(SEEN)),
    "a bulk with a time limit": (Ask(bulk_update(ADDED, ADDED_B, update_one(COLLECTION, Eq(ID, "c"), Add(N, 1)), within=SECOND)), Ask(update_one(COLLECTION, B, Put(S, "text"))), Ask(bulk_update(ADDED, update_one(COLLECTION, B, Add(S, 1)), within=SECOND)), Ask(update_one(COLLECTION, B, Add(S, 1), within=SECOND)), Ask(SEEN)),
    "a write of many beside it waits": (first(ADDED_B), Begin(update_many(COLLECTION, Gt(N, 0), Add(N, 1))), Ask(find_one(COLLECTION, A)), abort(), Finish(), Ask(SEEN)),
    "a write of another document does not wait": (first(ADDED), Begin(ADDED_B), Finish(), commit()),
    "an insert beside it waits": (first(insert_one(COLLECTION, doc("c", 3))), Begin(insert_one(COLLECTION, doc("c", 4))), commit(), Finish()),
    **{
        f"a statement, {how.value}": (first(find_one(COLLECTION, A)), Strike("update", how), then(ADDED), Wait(), commit(), abort(), Ask(ADDED))
        for how in ACTIONS
    },
    **{
        f"the first statement, {how.value}": (Strike("update", how), first(ADDED), abort(), first(ADDED_B, NEXT), commit(NEXT))
        for how in (Outcome.UNSENT, Outcome.LOST_REPLY)
    },
    **{f"a commit, {how.value}": (first(ADDED), Strike("commitTransaction", how), commit(), Wait(), commit()) for how in ACTIONS},
    **{
        f"a commit, twice {how.value}": (first(ADDED), Strike("commitTransaction", how, times=2), commit(), Ask(find_one(COLLECTION, A)), commit())
        for how in (Outcome.LOST_REPLY,)
    },
    **{f"an abort, {how.value}": (first(ADDED), Strike("abortTransaction", how), abort(), Ask(ADDED)) for how in (Outcome.LOST_REPLY, Outcome.UNSENT)},
    **{
        f"a statement, {code}": (first(find_one(COLLECTION, A)), Strike("update", Code(code)), then(ADDED), abort())
        for code in (13, 24, 50, 91, 112, 189, 239, 246, 251, 10107, 11600)
    },
    **{
        f"a commit, {code}{' of its write concern' * concern}": (first(ADDED), Strike("commitTransaction", Code(code, concern=concern)), commit(), commit())
        for code in (13, 50, 64, 91, 112, 251, 10107, 11602)
        for concern in (False, True)
    },
}  # fmt: skip
STEP_DOWNS: Final[Mapping[str, Script]] = {
    "between statements": (first(ADDED), Admin("stepDown"), Wait(), then(ADDED_B), abort(), Ask(SEEN)),
    "before the commit": (first(ADDED), Admin("stepDown"), Wait(), commit(), Ask(SEEN)),
    "after the commit": (first(ADDED), Strike("commitTransaction", Outcome.LOST_REPLY, times=2), commit(), Admin("stepDown"), Wait(), commit()),
}  # fmt: skip
ALL_BY_HAND: Final[Mapping[str, Script]] = {**BY_HAND, **IN_TRANSACTIONS, **STEP_DOWNS}
UNSAID: Final = frozenset({121, 249, 283, 346, 356, 11000, 13388})
"""Errors that a fail point cannot produce: they carry more than a code."""
OPTIONS: Final = {"with": {"retryWrites": True}, "without": {"retryWrites": False}}


def of_the_network() -> dict[str, Script]:
    return {
        f"{name}, {how.value}": (Strike(command, how), Ask(operation), Wait())
        for name, (operation, command) in OPERATIONS.items()
        for how in ACTIONS
    }


def of_the_codes() -> dict[str, Script]:
    table: dict[str, Script] = {}
    for number, code in enumerate(sorted(CODES.keys() - UNSAID)):
        each = tuple(OPERATIONS)[number % len(OPERATIONS)]
        operation, command = OPERATIONS[each]
        table[f"{each}, {code}"] = (Strike(command, Code(code)), Ask(operation))
        if command != "find":
            table[f"{each}, {code} of its write concern"] = (
                Strike(command, Code(code, concern=True)),
                Ask(operation),
            )
    return table


def any_operation(random: Random) -> Operation:
    keys = [Eq(ID, each) for each in "abc"]
    where, update = random.choice(keys), random.choice((Add(N, 1), Put(N, 2), Put(S, "s"), Push(S, 1), Add(S, 1)))
    many = random.choice((Gt(N, 1), Lt(N, 3)))
    return random.choice(
        (
            find_one(COLLECTION, many),
            find_all(COLLECTION, many, limit=random.randint(1, 3)),
            find_one_and_update(COLLECTION, where, update),
            update_one(COLLECTION, where, update),
            upsert_one(COLLECTION, where, update),
            insert_one(COLLECTION, doc(random.choice("abc"), random.randint(1, 3))),
            delete_one(COLLECTION, where),
            update_many(COLLECTION, many, update),
            delete_many(COLLECTION, many),
            bulk_update(*(update_one(COLLECTION, each, update) for each in keys)),
        )
    )


def any_strike(random: Random, asked: Operation | CommitTransaction | AbortTransaction) -> Strike:
    command = {
        "FindOne": "find", "FindAll": "find", "FindOneAndUpdate": "findAndModify", "UpsertOne": "findAndModify",
        "InsertOne": "insert", "DeleteOne": "delete", "DeleteMany": "delete",
        "CommitTransaction": "commitTransaction", "AbortTransaction": "abortTransaction",
    }.get(type(asked).__name__, "update")  # fmt: skip
    return Strike(command, random.choice((Outcome.UNSENT, Outcome.LOST_REPLY)))


def by_seed(seed: int) -> Script:
    random = Random(seed)
    steps: list[Step] = []
    for _ in range(random.randint(4, 10)):
        operation = any_operation(random)
        if random.random() < 0.2:
            steps.append(any_strike(random, operation))
        steps.append(Ask(operation))
    return steps


def interleaved(seed: int) -> Script:
    """Transactions end before the script awaits a write that may wait for them.

    The other half of the scripts loses a message instead: a client without a connection is as slow.
    """
    random = Random(seed)
    under_way: dict[str, Transaction] = {}
    numbers = {"t": 0, "u": 0}
    steps: list[Step] = []
    is_struck = random.random() < 0.5
    strikes_at = random.randint(0, 10) if is_struck else 1_000

    def asked(effect: Operation | CommitTransaction | AbortTransaction, step: Step) -> None:
        nonlocal strikes_at
        if len(steps) >= strikes_at:
            strikes_at = 1_000
            steps.append(any_strike(random, effect))
        steps.append(step)

    def ended(session: str) -> None:
        end = random.choice((CommitTransaction, CommitTransaction, AbortTransaction))(under_way.pop(session))
        asked(end, Ask(end))

    for _ in range(random.randint(6, 14)):
        session, operation = random.choice("tu"), any_operation(random)
        match random.choices(("statement", "end", "look", "write"), (8, 2, 1, 1))[0]:
            case "statement":
                if begins := session not in under_way:
                    numbers[session] += 1
                    under_way[session] = Transaction(session, numbers[session])
                asked(operation, Ask(InTransaction(under_way[session], operation, begins=begins)))
            case "end" if session in under_way:
                ended(session)
            case "write" if not is_struck:
                steps.append(Begin(operation))
                for each in tuple(under_way):
                    ended(each)
                steps.append(Finish())
            case _:
                steps.append(Ask(SEEN))
    for each in tuple(under_way):
        ended(each)
    return [*steps, Ask(SEEN)]


def simulated(script: Script, options: Mapping[str, Any] = OPTIONS["with"], seed: int = 1) -> Account:
    async def played(random: Random) -> Account:
        heard = Heard()
        return await play(script, Simulated(random, "db", heard, options), heard)

    return run(played, seed)


async def really(server: MongoServer, script: Script, options: Mapping[str, Any]) -> Account:
    heard, database = Heard(), f"agreement_{uuid4().hex}"
    with BlackPipe(server.uri) as pipe:
        return await play(script, Real(server, database, pipe, heard, options), heard)


def check(server: MongoServer, scripts: Mapping[str, Script], options: Mapping[str, Any], at_once: int = 12) -> None:
    """Play the scripts on both; a difference is replayed, as a busy machine may be late."""

    async def all_of_them(names: Collection[str]) -> list[Account]:
        turn = asyncio.Semaphore(at_once)

        async def one(name: str) -> Account:
            async with turn:
                return await really(server, scripts[name], options)

        return await asyncio.gather(*map(one, names))

    expected = {name: simulated(script, options) for name, script in scripts.items()}
    differs: dict[str, tuple[Account, Account]] = {}
    for _ in range(TURNS):
        names = tuple(differs or scripts)
        real = zip(names, in_loop(all_of_them(names)), strict=True)
        differs = {name: (told, expected[name]) for name, told in real if told != expected[name]}
        if not differs:
            return
    lines = [
        f"{name}\n  real      {mine}\n  simulated {other}"
        for name, accounts in differs.items()
        for mine, other in zip(*accounts, strict=True)
        if mine != other
    ]
    pytest.fail(f"{len(differs)} of {len(scripts)}\n" + "\n".join(lines), pytrace=False)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scripts_by_hand_are_answered_alike(mongod: MongoServer, options: Mapping[str, Any]) -> None:
    coded = {
        name: script
        for name, script in BY_HAND.items()
        if any(isinstance(each, Strike) and isinstance(each.how, Code) for each in script)
    }
    check(mongod, coded, options, at_once=1)
    check(mongod, {name: script for name, script in BY_HAND.items() if name not in coded}, options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_the_network_does_is_answered_alike(mongod: MongoServer, options: Mapping[str, Any]) -> None:
    table = of_the_network()
    check(mongod, {name: table[name] for name in tuple(table)[::MONGO_NETWORK_STEP]}, options)


def test_the_codes_are_answered_alike(mongod: MongoServer) -> None:
    table = of_the_codes()
    check(mongod, {name: table[name] for name in tuple(table)[::MONGO_CODES_STEP]}, OPTIONS["with"], at_once=1)


@pytest.mark.usefixtures("collected")
def test_scripts_at_random_are_answered_alike(mongod: MongoServer) -> None:
    check(mongod, {f"seed {seed}": by_seed(seed) for seed in range(MONGO_SCRIPTS)}, OPTIONS["with"])


def test_transactions_at_random_are_answered_alike(mongod: MongoServer) -> None:
    check(mongod, {f"seed {seed}": interleaved(seed) for seed in range(MONGO_SCRIPTS)}, OPTIONS["with"], at_once=4)


def test_a_difference_is_noticed(mongod: MongoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "the kit deletes many, and the reply is lost"
    table = {name: BY_HAND[name], "labels": (Strike("update", Code(11600)), Ask(update_one(COLLECTION, A, Add(N, 1))))}
    monkeypatch.setattr(commands, "RETRYABLE", frozenset[int]())
    monkeypatch.setattr(SimulatedReplicaSet, "begin", lambda *_: Executed(1, {}))
    lost = (Strike("update", Outcome.LOST_REPLY), Ask(update_one(COLLECTION, A, Add(N, 1))))
    with pytest.raises(pytest.fail.Exception, match="2 of 3"):
        check(mongod, {**table, "an update whose reply is lost": lost}, OPTIONS["with"], at_once=1)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_transactions_are_answered_alike(mongod: MongoServer, options: Mapping[str, Any]) -> None:
    coded = {
        name: script
        for name, script in IN_TRANSACTIONS.items()
        if any(isinstance(each, Strike) and isinstance(each.how, Code) for each in script)
    }
    check(mongod, {name: coded[name] for name in tuple(coded)[::MONGO_TRANSACTION_CODES_STEP]}, options, at_once=1)
    check(mongod, {name: script for name, script in IN_TRANSACTIONS.items() if name not in coded}, options)


def test_an_election_ends_transactions_alike(disposable_mongod: MongoServer) -> None:
    check(disposable_mongod, {name: STEP_DOWNS[name] for name in MONGO_STEP_DOWNS}, OPTIONS["with"], at_once=1)


def test_a_difference_of_transactions_is_noticed(mongod: MongoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a conflict of two", "an abort", "a write beside it waits")
    monkeypatch.setattr(commands, "_TRANSIENT", frozenset[int]())
    monkeypatch.setattr(replica_set, "LIFETIME_S", 0.1)
    with pytest.raises(pytest.fail.Exception, match="2 of 3"):
        check(mongod, {name: IN_TRANSACTIONS[name] for name in names}, OPTIONS["with"])


@pytest.mark.parametrize("name", ALL_BY_HAND)
def test_a_script_is_answered_alike_whatever_goes_first(name: str) -> None:
    assert len({simulated(ALL_BY_HAND[name], seed=seed) for seed in range(5)}) == 1


@pytest.mark.parametrize("is_stepped_down", [False, True], ids=["forgotten", "stepped down"])
def test_who_waits_for_a_transaction_that_nobody_ends_waits_a_minute(*, is_stepped_down: bool) -> None:
    """Or until the primary steps down, which is final for the transaction."""

    async def main(random: Random) -> tuple[float, object, object, list[Any]]:
        here = SimulatedReplicaSet(random, {f"db.{COLLECTION}": (doc("a", 1),)})
        async with Network(here, random).client("client", socketTimeoutMS=100_000) as client:
            mongo = AsyncMongo(client, "db")
            await mongo(InTransaction(T, ADDED, begins=True))
            if is_stepped_down:
                here.loop.call_later(10, here.step_down, 1.0)
            answer = await mongo(ADDED)
            return here.loop.time(), answer, await mongo(CommitTransaction(T)), list(here.history)

    seconds, answer, is_committed, history = run(main, 1)
    assert round(seconds) == (11 if is_stepped_down else 60)
    assert (answer, is_committed, len(history)) == (1, False, 1)


def told_alike(mongodb: str, ask: Callable[[AsyncMongoClient[dict[str, Any]]], Awaitable[Told]]) -> Told:
    async def really() -> Told:
        async with AsyncMongoClient[dict[str, Any]](mongodb) as client:
            return await ask(client)

    async def simulated(random: Random) -> Told:
        async with Network(SimulatedReplicaSet(random, {}), random).client("a") as client:
            return await ask(client)

    told = asyncio.run(really())
    assert run(simulated, 1) == told
    return told


def test_a_collection_is_listed_alike(mongodb: str, database: str) -> None:
    async def listed(client: AsyncMongoClient[dict[str, Any]]) -> list[dict[str, Any]]:
        async def asked() -> list[dict[str, Any]]:
            answer = await client[database].command({"listCollections": 1, "filter": {"name": "things"}})
            return [
                {name: each[name] for name in ("name", "type", "options")} for each in answer["cursor"]["firstBatch"]
            ]

        found = await asked()
        await client[database]["things"].insert_one({"_id": 1})
        return [*found, *await asked()]

    _ = told_alike(mongodb, listed)


def test_unique_indexes_are_listed_alike(mongodb: str, database: str) -> None:
    async def listed(client: AsyncMongoClient[dict[str, Any]]) -> list[dict[str, Any]]:
        held = client[database]["things"]
        found = [dict(await held.index_information())]
        await held.create_index([("n", 1), ("kind", 1)], unique=True)
        await held.insert_one({"_id": 1})
        return [*found, dict(await held.index_information())]

    _ = told_alike(mongodb, listed)


def test_no_index_is_being_built_alike(mongodb: str, database: str) -> None:
    async def told(client: AsyncMongoClient[dict[str, Any]]) -> object:
        await client[database]["things"].insert_one({"_id": 1})
        found = await (await client[database]["things"].aggregate([{"$collStats": {"storageStats": {}}}])).to_list()
        return [each["storageStats"]["indexBuilds"] for each in found]

    assert told_alike(mongodb, told) == [[]]


def test_what_is_not_known_of_transactions_is_an_error() -> None:
    async def main(random: Random) -> None:
        here = SimulatedReplicaSet(random, {f"db.{COLLECTION}": (doc("a", 1),)})
        async with Network(here, random).client("client") as client, client.start_session() as session:
            await session.start_transaction()
            await client["db"][COLLECTION].find_one({"_id": "a"}, session=session)
            with pytest.raises(NotUnderstood, match="aggregate"):
                await client["db"][COLLECTION].count_documents({}, session=session)
            with pytest.raises(NotUnderstood, match="a change of collections"):
                await client["db"][COLLECTION].drop()

    run(main, 1)


# --- reading ------------------------------------------------------------------------------------------------------------


def on_the_wire(raw: Mapping[str, Any]) -> dict[str, Any]:
    return bson.decode(bson.encode(raw, codec_options=CODEC), CODEC)


@settings(max_examples=REQUESTS_READ)
@given(st.data())
def test_what_is_read_means_what_was_written(data: st.DataObject) -> None:
    """Law RM1: also for updates."""
    stock = data.draw(st.lists(values(), min_size=2, max_size=4))
    operation = data.draw(operations(COLLECTION, st.sampled_from(stock)))
    where = getattr(operation, "where", None)
    if where is not None:
        items = [("_id", "x"), *((name, data.draw(st.sampled_from(stock))) for name in ("a", "b", "c"))]
        held, now = Document(tuple(items)), Instant(0)
        assert matches(filter_of(on_the_wire(condition(where))), held, lambda: now) == matches(where, held, lambda: now)
    updates = getattr(operation, "updates", ())
    if updates and not isinstance(operation, BulkUpdate):
        found = updates_of(on_the_wire(changes(updates)))
        assert {each.field: each for each in found} == {each.field: each for each in updates}


@pytest.mark.parametrize("sort", [(), (Ascending(S),), (Descending(S), Ascending(N))], ids=str)
@pytest.mark.parametrize("held", [None, 3, "text", (), (1, 2), 1.5], ids=str)
def test_a_cursor_is_read_back(sort: Sort, held: Value) -> None:
    after = (*(held for _ in sort), "id")
    asked = on_the_wire({"$and": [condition(A), behind(after, sort)]})

    assert sort_of(dict(ordered(sort))) == sort
    where, found = query_of(asked, sort)
    assert where == A
    assert sort_key_of(found, sort) == sort_key_of(after, sort)


@pytest.mark.parametrize(
    "raw",
    [
        {"a.b": 1},
        {"$where": "1"},
        {"a": {"$regex": "x"}},
        {"a": {"$in": [bson.Regex("x")]}},
        {"$expr": {"$gt": ["$a", 1]}},
    ],
    ids=str,
)
def test_what_is_not_understood_is_an_error(raw: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        filter_of(raw)


@pytest.mark.parametrize(
    "raw", [{"a": 1}, [{"$set": {"a": 1}}], {"$rename": {"a": "b"}}, {"$set": {"a.b": 1}}], ids=str
)
def test_an_update_that_is_not_understood_is_an_error(raw: object) -> None:
    with pytest.raises(NotUnderstood):
        updates_of(raw)


def test_a_command_that_is_not_known_is_an_error_of_whoever_sends_it() -> None:
    async def main(random: Random) -> None:
        place = Simulated(random, "db", Heard(), {})
        async with place.client:
            await place.client["db"].command("collStats", "things")

    with pytest.raises(NotUnderstood, match="collStats"):
        run(main, 1)


def test_a_document_that_the_core_cannot_hold_is_an_error() -> None:
    """A small 64-bit integer would return as 32-bit, and the kit would see another's document."""

    async def main(random: Random) -> None:
        place = Simulated(random, "db", Heard(), {})
        async with place.client:
            await AsyncKit(place.client, "db").insert("things", {"_id": "x", "n": bson.Int64(5)})

    with pytest.raises(NotUnderstood):
        run(main, 1)


def test_the_page_on_resilience_is_typed_along() -> None:
    page = Path("docs/resilience.md").read_text("utf-8").partition("## Without a server, by seed")[2]
    made: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], made)  # noqa: S102  our own source

    made["test_an_order_is_placed_once_whatever_is_lost"]()


def test_a_new_primary_knows_later_what_a_majority_has() -> None:
    """Law RS5: it confirms nothing until then, and answers from before unless asked for later."""

    async def main(random: Random) -> tuple[list[object], list[object]]:
        here, told, told_the_other = (
            SimulatedReplicaSet(random, {f"db.{COLLECTION}": (doc("a", 1),)}),
            list[object](),
            list[object](),
        )
        network = Network(here, random)
        async with network.client("one") as listens, network.client("another", event_listeners=[]) as does_not:
            one, another = AsyncMongo(listens, "db"), AsyncMongo(does_not, "db")
            for number in range(20):
                assert await one(update_one(COLLECTION, Eq(ID, "a"), Put(N, number))) == 1
                here.step_down(0.2)
                for store, kept in ((another, told_the_other), (one, told)):
                    found = await store(find_one(COLLECTION, Eq(ID, "a")))
                    assert isinstance(found, Document)
                    kept.append(found[N])
        return told, told_the_other

    told, told_the_other = run(main, 1)
    assert told == list(range(20))
    assert told_the_other != told


def test_the_time_is_asked_for_once_until_another_is_primary() -> None:
    """It may be a little early, but never late."""
    asked: list[str] = []

    def heard(_: str, command: Mapping[str, Any]) -> None:
        asked.append(next(iter(command)))

    async def main(random: Random) -> list[int]:
        here, counts = SimulatedReplicaSet(random), list[int]()
        async with Network(here, random, strike=heard).client("client") as client:
            store = AsyncMongo(client, "db")

            async def look() -> None:
                asked.clear()
                for _ in range(20):
                    at = await store(StoreTime(50 * MILLISECOND))
                    assert isinstance(at, Instant)
                    assert 0 <= here.now() - at <= 50 * MILLISECOND
                    await asyncio.sleep(0.1)
                counts.append(asked.count("hello"))

            assert isinstance(await store(StoreTime()), Instant)
            await look()
            await look()
            here.step_down(0.2)
            await asyncio.sleep(1)
            await look()
        return counts

    assert run(main, 1) == [0, 0, 1]
