"""The kit's answers are true on a real MongoDB: each call and fault, with and without retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final, Protocol, TypeAlias, final
from uuid import UUID

import attrs
import pytest
from bson import ObjectId, Timestamp
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from tests.integration.counting import Raw
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import wait_until
from tests.length import RESILIENCE_FAILOVERS, RESILIENCE_STEP

from tidegate.model.effects import NotApplied, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, WALL, Instant
from tidegate.retries.backoff import Cron, Fixed, Policy
from tidegate.retries.budget import Budget
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate_adapters.kit import resilience
from tidegate_adapters.kit.resilience import AsyncKit, Done, Kit, NotDone, Rules, Sent, Unknown
from tidegate_adapters.mongo import connect, connect_async
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Link, Rule, command_error, write_concern_error

MakeProxy: TypeAlias = Callable[..., BlackPipe]

RULES: Final = Rules(
    retries=Policy(backoff=Fixed(10 * MILLISECOND), attempts_max=3),
    attempt=timedelta(milliseconds=400),
    deadline=timedelta(seconds=10),
)
NEVER_OPEN: Final = CircuitBreaker(threshold=1_000)
LATE: Final = 0.6

# --- calls --------------------------------------------------------------------------------------------------------------


@final
class Data:
    def __init__(self, client: MongoClient[Raw], database: str) -> None:
        self.things, self.counters = client[database]["things"], client[database]["counters"]
        self.kit = Kit(client, database)


class Call(Protocol):
    command: str

    def prepare(self, data: Data) -> None: ...

    def ask(self, kit: Any) -> Any: ...

    def is_done(self, data: Data) -> bool: ...

    def is_undone(self, data: Data) -> bool: ...


@final
class Insert:
    command = "insert"

    def __init__(self) -> None:
        self.document: Raw = {"at": 1.5, "lines": [{"of": "wool"}]}

    def prepare(self, data: Data) -> None:
        data.things.insert_one({"_id": "other"})

    def ask(self, kit: Any) -> Any:
        return kit.insert("things", self.document)

    def is_done(self, data: Data) -> bool:
        return list(data.things.find({"_id": {"$ne": "other"}})) == [self.document]

    def is_undone(self, data: Data) -> bool:
        return data.things.count_documents({}) == 1


@final
class Delete:
    command = "delete"

    def __init__(self, there: int) -> None:
        self.there = there

    def prepare(self, data: Data) -> None:
        data.things.insert_many([{"_id": "other"}, *({"_id": n, "of": "ann"} for n in range(self.there))])

    def ask(self, kit: Any) -> Any:
        return kit.delete("things", 0) if self.there == 1 else kit.delete_many("things", {"of": "ann"})

    def is_done(self, data: Data) -> bool:
        return list(data.things.find()) == [{"_id": "other"}]

    def is_undone(self, data: Data) -> bool:
        return data.things.count_documents({}) == 1 + self.there


@final
class Count:
    command = "update"

    def __init__(self) -> None:
        self.token = str(ObjectId())

    def prepare(self, data: Data) -> None:
        pass

    def ask(self, kit: Any) -> Any:
        return kit.count("counters", "visits", self.token)

    def counted(self, data: Data) -> int:
        assert [data.kit.sweep("counters", "visits") for _ in range(3)] == [Done(None)] * 3
        found = data.counters.find_one({"_id": "visits"}) or {"_id": "visits", "count": 0, "round": 1}
        assert set(found) == {"_id", "count", "round"}
        return int(found["count"])

    def is_done(self, data: Data) -> bool:
        return self.counted(data) == 1

    def is_undone(self, data: Data) -> bool:
        return self.counted(data) == 0


@final
class SetFields:
    command = "update"

    def __init__(self, *, is_upsert: bool) -> None:
        self.is_upsert = is_upsert

    def prepare(self, data: Data) -> None:
        data.things.create_index("mail", unique=True)
        data.things.insert_many([{"mail": "other"}, *([] if self.is_upsert else [{"mail": "ann", "at": 0}])])

    def ask(self, kit: Any) -> Any:
        return (kit.upsert if self.is_upsert else kit.set_fields)("things", "ann", {"at": 1}, by="mail")

    def is_done(self, data: Data) -> bool:
        assert data.kit.find_one("things", "ann", by="mail").reply["at"] == 1  # type: ignore[union-attr]
        return data.things.count_documents({"mail": "ann"}) == 1 and data.things.count_documents({}) == 2

    def is_undone(self, data: Data) -> bool:
        return data.things.count_documents({"at": 1}) == 0


CALLS: Final[Mapping[str, Callable[[], Call]]] = {
    "insert": Insert, "delete": lambda: Delete(1), "delete many": lambda: Delete(3), "count": Count,
    "set fields": lambda: SetFields(is_upsert=False), "upsert": lambda: SetFields(is_upsert=True),
}  # fmt: skip


# --- faults -------------------------------------------------------------------------------------------------------------

Fault: TypeAlias = Callable[[str], tuple[Rule, ...]]
LOSSES: Final = (
    Action.CUT_REQUEST, Action.HANG_REQUEST, Action.CUT_REPLY, Action.HANG_REPLY, Action.TRUNCATE_REPLY, Action.GARBLE_REPLY,
)  # fmt: skip
GONE: Final = tuple(Rule(name, Action.CUT_REQUEST) for name in ("hello", "ismaster"))


def losing(action: Action, skip: int, times: int | None) -> Fault:
    return lambda command: (Rule(command, action, skip=skip, times=times),)


def late(action: Action, times: int | None) -> Fault:
    return lambda command: (Rule(command, action, times=times, delay=timedelta(seconds=LATE)),)


def answering(code: int, times: int | None) -> Fault:
    return lambda command: (Rule(command, Action.ANSWER, times=times, reply=command_error(code)),)


def unconfirmed(code: int, times: int | None) -> Fault:
    return lambda command: (Rule(command, Action.AMEND, times=times, reply=write_concern_error(code)),)


FAULTS: Final[Mapping[str, Fault]] = {
    **{f"{each.value}, {skip}, {times}": losing(each, skip, times) for each in LOSSES for skip, times in ((0, 1), (1, 1), (0, None))},
    **{f"{each.value}, {times}": late(each, times) for each in (Action.DELAY_REQUEST, Action.DELAY_REPLY) for times in (1, 2, None)},
    **{f"error {code}, {times}": answering(code, times) for code in (13, 112, 189, 10107, 11600, 91) for times in (1, None)},
    **{f"write concern {code}, {times}": unconfirmed(code, times) for code in (64, 91, 11602) for times in (1, None)},
    "done, and the reply says that it was interrupted": lambda command: (
        Rule(command, Action.AMEND, times=1, reply=command_error(11602)),
    ),
    "lost, then late": lambda command: (
        Rule(command, Action.HANG_REPLY, times=1), Rule(command, Action.DELAY_REQUEST, times=1, delay=timedelta(seconds=LATE)),
    ),
    "late, then refused": lambda command: (
        Rule(command, Action.DELAY_REQUEST, times=1, delay=timedelta(seconds=LATE)), Rule(command, Action.ANSWER, reply=command_error(13)),
    ),
    "done, then refused": lambda command: (
        Rule(command, Action.CUT_REPLY, times=1), Rule(command, Action.ANSWER, reply=command_error(13)),
    ),
    "cut, and nobody is there any more": lambda command: (Rule(command, Action.CUT_REPLY, times=1), *GONE),
    "finds are lost, too": lambda command: (
        Rule(command, Action.HANG_REPLY, times=1), Rule("find", Action.CUT_REPLY, times=2),
    ),
}  # fmt: skip
CASES: Final = [*product(FAULTS, CALLS, ("sync", "async"), (False, True))]
ALWAYS_TRIED: Final = [("done, then refused", "insert", "sync", True)]


def asked(call: Call, how: str, pipe: BlackPipe, database: str, *, fault: str, retries: bool) -> Sent[Any]:
    uri, rules = f"{pipe.uri}&retryWrites={str(retries).lower()}", FAULTS[fault](call.command)

    async def in_a_loop() -> Sent[Any]:
        async with AsyncMongoClient[Raw](uri, event_listeners=[Attempts()], serverSelectionTimeoutMS=1_000) as client:
            _ = await client.admin.command("ping")
            pipe.obey(*rules)
            sent: Sent[Any] = await call.ask(AsyncKit(client, database, RULES))
            return sent

    if how == "async":
        return in_loop(in_a_loop())
    with MongoClient[Raw](uri, event_listeners=[Attempts()], serverSelectionTimeoutMS=1_000) as client:
        _ = client.admin.command("ping")
        pipe.obey(*rules)
        sent: Sent[Any] = call.ask(Kit(client, database, RULES))
        return sent


@pytest.mark.parametrize(
    ("fault", "name", "how", "retries"),
    [*ALWAYS_TRIED, *CASES[::RESILIENCE_STEP]],
    ids=lambda each: str(each).replace(" ", "-"),
)
def test_what_is_said_of_a_call_is_true(
    make_proxy: MakeProxy, mongod: MongoServer, database: str, *, fault: str, name: str, how: str, retries: bool
) -> None:
    call, pipe = CALLS[name](), make_proxy()
    with MongoClient[Raw](mongod.uri, event_listeners=[Attempts()]) as mongo:
        data = Data(mongo, database)
        call.prepare(data)
        sent = asked(call, how, pipe, database, fault=fault, retries=retries)
        pipe.obey()
        if "late" in fault or "delay the request" in fault:
            time.sleep(3 * LATE)  # late requests arrive
        if isinstance(sent, NotDone):
            assert call.is_undone(data), sent
        if not isinstance(sent, Done):
            assert isinstance(call.ask(data.kit), Done), sent
        assert call.is_done(data), sent


# --- limits of a call ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe(make_proxy: MakeProxy) -> BlackPipe:
    return make_proxy()


@pytest.fixture
def client(pipe: BlackPipe) -> Iterator[MongoClient[Raw]]:
    with MongoClient[Raw](pipe.uri, event_listeners=[Attempts()], serverSelectionTimeoutMS=500) as client:
        yield client


PATIENT: Final = attrs.evolve(RULES, attempt=timedelta(seconds=5))
"""No answered attempt takes so long, even on a busy machine."""
ALWAYS: Final = Policy(backoff=Fixed(10 * MILLISECOND), attempts_max=None)
CONFLICT: Final = Rule("insert", Action.ANSWER, reply=command_error(112))


def test_whoever_tries_for_ever_gets_through_in_the_end(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    kit = Kit(client, database, attrs.evolve(RULES, retries=ALWAYS, deadline=None, breaker=NEVER_OPEN))
    pipe.turn(Link.REFUSED)
    back = threading.Timer(2, pipe.turn, [Link.UP])
    back.start()

    assert isinstance(kit.insert("things", {"_id": 1}), Done)

    back.join()


def test_a_deadline_ends_what_would_be_tried_for_ever(pipe: BlackPipe, client: MongoClient[Raw], database: str) -> None:
    seldom = Policy(backoff=Fixed(2 * SECOND), attempts_max=None)
    kit = Kit(client, database, attrs.evolve(RULES, retries=seldom, deadline=timedelta(seconds=1)))
    pipe.obey(CONFLICT)
    sent = kit.insert("things", {"_id": 1})

    assert isinstance(sent, NotDone)
    assert isinstance(sent.failure, NotApplied)
    assert "the deadline is over; before that: write conflict" in sent.failure.reason
    assert sent.attempts == 1
    assert sent.todo == "send it again"

    pipe.obey(Rule("insert", Action.HANG_REPLY))

    assert isinstance(kit.insert("things", {"_id": 1}), Unknown)

    pipe.obey(Rule("update", Action.HANG_REQUEST))

    assert isinstance(kit.count("counters", "visits", "t"), Unknown)


def test_a_maximum_duration_ends_what_would_be_tried_for_ever(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    soon = Policy(backoff=Fixed(10 * MILLISECOND), attempts_max=None, elapsed_max=300 * MILLISECOND)
    kit = Kit(client, database, attrs.evolve(PATIENT, retries=soon, deadline=None, breaker=NEVER_OPEN))
    assert isinstance(kit.count("counters", "visits", "t"), Done)
    pipe.obey(CONFLICT, Rule("update", Action.ANSWER, reply=command_error(112)))

    assert isinstance(kit.insert("things", {"_id": 1}), NotDone)
    assert not isinstance(kit.count("counters", "visits", "u"), Done)


def test_a_reply_that_never_comes_costs_one_attempt(pipe: BlackPipe, client: MongoClient[Raw], database: str) -> None:
    pipe.obey(Rule("insert", Action.HANG_REPLY, times=2))

    assert Kit(client, database, attrs.evolve(RULES, attempt=timedelta(seconds=1))).insert(
        "things", {"_id": 1}
    ) == Done(None, 3)


def test_a_budget_that_is_used_up_ends_retries_and_not_first_attempts(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    kit = Kit(
        client, database, attrs.evolve(PATIENT, budget=Budget(capacity=10, cost=10, refund=5), breaker=NEVER_OPEN)
    )
    pipe.obey(CONFLICT)
    first, second = kit.insert("things", {}), kit.insert("things", {})

    assert isinstance(first, NotDone)
    assert isinstance(second, NotDone)
    assert (first.attempts, second.attempts) == (2, 1)
    assert "too many retries" in second.failure.reason
    assert pipe.count("insert", Action.ANSWER) == 3

    pipe.obey()
    for _ in range(2):
        assert isinstance(kit.insert("things", {}), Done)
    pipe.obey(attrs.evolve(CONFLICT, times=1))

    assert kit.insert("things", {}) == Done(None, 2)

    pipe.obey(CONFLICT)
    assert isinstance(kit.insert("things", {}), NotDone)
    pipe.obey()
    for _ in range(2):
        assert isinstance(kit.insert("things", {"_id": ["not an id"]}), NotDone)  # a refusal is an answer
    pipe.obey(attrs.evolve(CONFLICT, times=1))

    assert kit.insert("things", {}) == Done(None, 2)


def test_a_probe_in_vain_keeps_the_circuit_open(
    pipe: BlackPipe, client: MongoClient[Raw], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Instant(0, WALL)
    monkeypatch.setattr(resilience, "_now", lambda: now)
    kit = Kit(client, database, attrs.evolve(PATIENT, breaker=CircuitBreaker(threshold=3, cooldown=SECOND)))
    pipe.obey(CONFLICT)
    sent = []
    for seconds in (0, 0, 1, 1, 2):
        now = Instant(seconds * SECOND, WALL)
        assert isinstance(kit.insert("things", {"_id": 1}), NotDone)
        sent.append(pipe.count("insert", Action.ANSWER))

    assert sent == [3, 3, 4, 4, 5]


def test_a_circuit_that_is_open_costs_no_attempt_and_closes_again(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    breaker = CircuitBreaker(threshold=3, cooldown=300 * MILLISECOND)
    kit = Kit(client, database, attrs.evolve(PATIENT, breaker=breaker))
    pipe.obey(CONFLICT)

    assert isinstance(kit.insert("things", {"_id": 1}), NotDone)

    held = kit.insert("things", {"_id": 1})

    assert isinstance(held, NotDone)
    assert "the circuit is open" in held.failure.reason
    assert held.attempts == 0
    assert pipe.count("insert", Action.ANSWER) == 3

    pipe.obey()
    time.sleep(0.4)

    assert kit.insert("things", {"_id": 1}) == Done(None, 1)


def test_whoever_has_begun_before_a_circuit_opens_waits_for_it(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    """A primary's death is no reason to give up what succeeds a second later."""
    breaker = CircuitBreaker(threshold=1, cooldown=300 * MILLISECOND)
    kit = Kit(client, database, attrs.evolve(PATIENT, retries=ALWAYS, breaker=breaker))
    pipe.obey(attrs.evolve(CONFLICT, times=2))

    assert isinstance(kit.insert("things", {"_id": 1}), Done)
    assert pipe.count("insert", Action.ANSWER) == 2


@pytest.mark.parametrize("retries", [False, True])
def test_attempts_are_all_that_were_sent(pipe: BlackPipe, database: str, *, retries: bool) -> None:
    with MongoClient[Raw](pipe.uri, retryWrites=retries, event_listeners=[Attempts()]) as client:
        kit = Kit(client, database, attrs.evolve(PATIENT, retries=attrs.evolve(RULES.retries, attempts_max=5)))
        pipe.obey(Rule("update", Action.CUT_REPLY, times=2), Rule("insert", Action.CUT_REPLY, times=2))

        assert kit.count("counters", "visits", "t") == Done(None, 5)
        assert kit.upsert("things", 1, {"a": 2}) == Done(None, 1)
        assert kit.find_one("things", 1) == Done({"_id": 1, "a": 2})


def test_one_of_two_upserts_finds_what_the_other_has_inserted(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    client[database]["things"].create_index("mail", unique=True)
    client[database]["things"].create_index("name", unique=True)
    raced = {"index": 0, "code": 11000, "errmsg": "E11000", "keyPattern": {"mail": 1}, "keyValue": {"mail": "ann"}}
    pipe.obey(Rule("update", Action.ANSWER, times=1, reply={"ok": 1.0, "n": 0, "writeErrors": [raced]}))
    kit = Kit(client, database, PATIENT)

    assert kit.upsert("things", "ann", {"name": "Ann"}, by="mail") == Done(None, 2)
    assert isinstance(kit.upsert("things", "bob", {"name": "Ann"}, by="mail"), NotDone)
    assert kit.delete("things", "ann", by="mail") == Done(1)
    assert kit.set_fields("things", "ann", {"name": "Eve"}, by="mail") == Done(0)


def test_what_is_refused_is_sent_once(pipe: BlackPipe, client: MongoClient[Raw], database: str) -> None:
    pipe.obey(Rule("insert", Action.ANSWER, reply=command_error(13)))
    sent = Kit(client, database, PATIENT).insert("things", {})

    assert isinstance(sent, NotDone)
    assert isinstance(sent.failure, Refused)
    assert sent.todo.startswith("correct")
    assert pipe.count("insert", Action.ANSWER) == 1


WRONG: Final[tuple[tuple[Raw, type[NotDone | Unknown], int], ...]] = (
    ({"n": {"$nope": 1}}, NotDone, 3),
    ({"n": {"$in": 1}}, NotDone, 3),
    ({"n": {"$regex": "("}}, NotDone, 3),
    ({"$and": [{"$nope": 1}]}, NotDone, 3),
    ({"$where": "("}, Unknown, 3),
    ({"$where": "this.of.nothing"}, Unknown, 3),
    ({"$where": "throw this.s"}, Unknown, 3),
    ({"$where": "if (this.n == 1) throw 'no'; return true"}, Unknown, 2),
    ({"$expr": {"$function": {"body": "function() { throw 'no'; }", "args": [], "lang": "js"}}}, Unknown, 3),
    ({"$expr": {"$nope": 1}}, Unknown, 3),
    ({"$expr": {"$divide": [1, "$n"]}}, Unknown, 1),
    ({"$or": [{"$expr": {"$toInt": {"$arrayElemAt": ["$s", "$n"]}}}]}, Unknown, 3),
    ({"$expr": {"$add": ["$s", 1]}}, Unknown, 3),
)
"""Filters no server can evaluate; the answer to a deletion, which may fail midway; what is left."""


@pytest.mark.parametrize(("where", "answer", "left"), WRONG, ids=str)
def test_a_filter_that_is_wrong_for_good_is_sent_once(
    pipe: BlackPipe, client: MongoClient[Raw], database: str, *, where: Raw, answer: type[NotDone | Unknown], left: int
) -> None:
    client[database]["things"].insert_many([{"_id": n, "n": n, "s": "wool"} for n in (2, 1, 0)])
    kit = Kit(client, database, attrs.evolve(PATIENT, breaker=CircuitBreaker(threshold=1)))
    sent = kit.delete_many("things", where)

    assert type(sent) is answer, sent
    assert isinstance(sent.failure, Refused)
    assert "refused again" in sent.todo
    assert pipe.count("delete", Action.FORWARD) == 1
    assert client[database]["things"].count_documents({}) == left
    assert isinstance(kit.delete_many("things", {}), Done)


def test_what_its_store_says_under_the_code_of_thrown_javascript_passes(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    """Code 8 ("unknown error") covers both; the message distinguishes them."""
    failed: Raw = {"index": 0, "code": 8, "errmsg": "5: Input/output error"}
    pipe.obey(Rule("delete", Action.ANSWER, times=1, reply={"ok": 1.0, "n": 0, "writeErrors": [failed]}))

    assert Kit(client, database, PATIENT).delete_many("things", {"$where": "true"}) == Done(0, 2)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("2dsphere", "at", "here"),
        ("2d", "at", [200, 0]),
        ("2d", "at", [0]),
        ("2d", "at", ["a", "b"]),
        ("hashed", "at", [1]),
        ("text", "language", "none of this world"),
        ("text", "language", 1),
    ],
)
def test_what_no_index_can_hold_is_sent_once(
    pipe: BlackPipe, client: MongoClient[Raw], database: str, *, kind: str, key: str, value: object
) -> None:
    client[database]["things"].create_index([("at", kind)])
    sent = Kit(client, database, PATIENT).insert("things", {"at": "there", key: value})

    assert isinstance(sent, NotDone), sent
    assert isinstance(sent.failure, Refused)
    assert pipe.count("insert", Action.FORWARD) == 1


def test_writes_are_acknowledged_by_a_majority_whatever_the_client_asks_for(pipe: BlackPipe, database: str) -> None:
    """A smaller write concern could be lost with a stale primary. Reads use majority concern."""
    asked: list[Mapping[str, Any]] = []

    def listed(body: Mapping[str, Any]) -> bool:
        asked.append(body)
        return False

    with MongoClient[Raw](f"{pipe.uri}&w=1&journal=false", event_listeners=[Attempts()]) as client:
        kit, document = Kit(client, database), {"_id": 1}
        pipe.obey(Rule(None, Action.FORWARD, listed))
        answers = [kit.insert("things", document), kit.insert("things", document), kit.delete("things", 1)]
        answers += [
            kit.delete_many("things", {}),
            kit.count("counters", "visits", "t"),
            kit.sweep("counters", "visits"),
        ]

    assert all(isinstance(each, Done) for each in answers)

    concerns = [body.get("writeConcern") for body in asked if body.keys() & {"insert", "delete", "update"}]

    assert concerns == [{"w": "majority", "j": True}] * len(concerns)
    assert len(concerns) >= 7
    assert {body["readConcern"]["level"] for body in asked if "find" in body} == {"majority"}


# --- duplicates ---------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_a_success_if_it_is_one_s_own(mongod: MongoServer, database: str) -> None:
    """Compared by id and the whole content, to the bit."""
    with MongoClient[Raw](mongod.uri, event_listeners=[Attempts()]) as mongo:
        kit, things = Kit(mongo, database), mongo[database]["things"]
        mine: Raw = {
            "n": 1,
            "_id": "x",
            "at": datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
            "of": {"b": 1, "a": 2},
        }

        assert kit.insert("things", mine) == kit.insert("things", mine) == Done(None, 1)

        for other in ({**mine, "n": 1.0}, {**mine, "of": {"a": 2, "b": 1}}, {"_id": "x"}):
            sent = kit.insert("things", dict(other))

            assert isinstance(sent, NotDone)
            assert sent.failure == Refused("duplicate key")
        assert things.count_documents({"n": 1}) == 1

        things.create_index("n", unique=True)
        taken = kit.insert("things", {"n": 1})

        assert isinstance(taken, NotDone)
        assert "duplicate key of the index on n" in taken.failure.reason


def test_one_s_own_is_known_by_the_options_of_the_client(pipe: BlackPipe, database: str) -> None:
    pipe.obey(Rule("insert", Action.CUT_REPLY, times=1))
    options: Raw = {"uuidRepresentation": "standard", "retryWrites": False, "tz_aware": True}
    with MongoClient[Raw](pipe.uri, **options) as client:
        sent = Kit(client, database, RULES).insert("things", {"_id": UUID(int=1)})

        assert isinstance(sent, Done), sent
        assert pipe.count("insert", Action.FORWARD) == 1
        assert client[database]["things"].count_documents({"_id": UUID(int=1)}) == 1


def test_another_s_content_after_a_lost_reply_is_not_said_to_be_another_s(
    pipe: BlackPipe, client: MongoClient[Raw], mongod: MongoServer, database: str
) -> None:
    """It may be one's own, changed since, as it is here."""
    with MongoClient[Raw](mongod.uri) as direct:

        def change(_: Mapping[str, Any]) -> bool:
            direct[database]["things"].update_one({"_id": 1}, {"$set": {"seen": True}})
            return False

        pipe.obey(Rule("insert", Action.HANG_REPLY, times=1), Rule("insert", Action.FORWARD, where=change))
        sent = Kit(client, database, RULES).insert("things", {"_id": 1, "n": 1})

        assert direct[database]["things"].find_one() == {"_id": 1, "n": 1, "seen": True}
    assert isinstance(sent, Unknown)


def test_what_is_noted_and_then_refused_is_not_said_to_be_undone(
    pipe: BlackPipe, client: MongoClient[Raw], database: str
) -> None:
    """A sweep counts it."""
    kit = Kit(client, database, PATIENT)
    assert isinstance(kit.count("counters", "c", "one"), Done)
    pipe.obey(Rule("update", Action.ANSWER, reply=command_error(13), skip=1))
    assert isinstance(kit.count("counters", "c", "two"), Unknown)
    pipe.obey()
    for _ in range(3):
        assert isinstance(kit.sweep("counters", "c"), Done)

    assert kit.counted("counters", "c") == Done(2, 1)


def test_many_threads_count_and_each_increment_counts_once(
    make_proxy: MakeProxy, mongod: MongoServer, database: str
) -> None:
    proxy = make_proxy(
        Rule("update", Action.HANG_REPLY, probability=0.1),
        Rule("update", Action.HANG_REQUEST, probability=0.05),
        Rule("find", Action.HANG_REPLY, probability=0.03),
    )
    patient = attrs.evolve(RULES, retries=attrs.evolve(RULES.retries, attempts_max=4), breaker=NEVER_OPEN)
    with (
        MongoClient[Raw](proxy.uri, event_listeners=[Attempts()]) as lossy,
        MongoClient[Raw](mongod.uri, event_listeners=[Attempts()]) as mongo,
        ThreadPoolExecutor(8) as pool,
    ):
        kit, direct = Kit(lossy, database, patient), Kit(mongo, database)
        tokens = [str(ObjectId()) for _ in range(80)]
        sent = dict(zip(tokens, pool.map(lambda token: kit.count("counters", "visits", token), tokens), strict=True))
        done = [token for token in tokens if isinstance(sent[token], Done)]

        assert proxy.count("update", Action.HANG_REPLY) > 0
        assert len(done) <= direct.counted("counters", "visits").reply  # type: ignore[union-attr]

        for token in sent.keys() - done:
            assert isinstance(direct.count("counters", "visits", token), Done)
        assert direct.counted("counters", "visits") == Done(80)


@pytest.mark.mongo
@pytest.mark.parametrize("retries", RESILIENCE_FAILOVERS)
def test_a_primary_that_dies_and_one_that_steps_down_lose_and_double_nothing(*, retries: bool) -> None:
    options: Raw = {"retryWrites": retries, "event_listeners": [Attempts()]}
    with MongoServer(nodes=3) as server, MongoClient[Raw](server.uri, **options) as client:
        kit, is_over = Kit(client, "shop"), threading.Event()

        def work(number: int) -> list[tuple[Raw, Sent[None], Sent[None]]]:
            sent: list[tuple[Raw, Sent[None], Sent[None]]] = []
            while not is_over.is_set():
                document: Raw = {"_id": f"{number}-{len(sent)}", "of": number}
                sent.append(
                    (document, kit.insert("orders", document), kit.count("counters", "orders", document["_id"]))
                )
            return sent

        with ThreadPoolExecutor(6) as pool:
            working = [pool.submit(work, number) for number in range(6)]
            time.sleep(0.5)
            old = server.primary()
            assert old is not None
            server.kill(old)
            wait_until(lambda: server.primary() not in (None, old), "another primary")
            time.sleep(0.5)
            server.restart(old)
            with server.client(server.primary() or 0) as direct, suppress(PyMongoError):
                direct.admin.command({"replSetStepDown": 5, "force": True})
            wait_until(lambda: server.primary() is not None, "a primary")
            time.sleep(0.5)
            is_over.set()
        sent = [each for done in working for each in done.result()]

        assert {type(answer) for _, *answers in sent for answer in answers} == {Done}
        assert max(answer.attempts for _, *answers in sent for answer in answers) > 1 or retries
        assert sorted(client["shop"]["orders"].find(), key=str) == sorted((document for document, *_ in sent), key=str)
        assert kit.counted("counters", "orders") == Done(len(sent))


def test_a_delete_of_many_that_was_cut_short_is_not_said_to_be_undone(
    pipe: BlackPipe, client: MongoClient[Raw], mongod: MongoServer, database: str
) -> None:
    """A conflict, or the loss of the primary, may follow some deletions: here two of three."""
    with MongoClient[Raw](mongod.uri) as direct:
        things = direct[database]["things"]
        things.insert_many([{"_id": n} for n in range(3)])

        def two(_: Mapping[str, Any]) -> bool:
            things.delete_many({"_id": {"$lt": 2}})
            return True

        once = attrs.evolve(PATIENT, retries=Policy(attempts_max=1))
        for code in (112, 189, 10107):
            pipe.obey(Rule("delete", Action.ANSWER, two, reply=command_error(code)))

            assert isinstance(Kit(client, database, once).delete_many("things", {}), Unknown)

        pipe.obey()

        assert Kit(client, database, PATIENT).delete_many("things", {}) == Done(1)


# --- misuse -------------------------------------------------------------------------------------------------------------


def test_a_client_that_does_not_tell_of_its_requests_is_refused_if_it_sends_again(mongod: MongoServer) -> None:
    """Its refusal would not show whether an earlier request is under way."""
    with MongoClient[Raw](mongod.uri) as silent, MongoClient[Raw](mongod.uri, retryWrites=False) as once:
        with pytest.raises(Misuse, match="event_listeners"):
            _ = Kit(silent, "shop")
        assert Kit(once, "shop") is not None


def test_bad_input_is_misuse_and_nothing_is_sent(mongod: MongoServer, database: str) -> None:
    """Errors omit the values, which may be secret."""
    endless: Raw = {}
    endless["a"] = endless
    with MongoClient[Raw](mongod.uri, event_listeners=[Attempts()]) as mongo:
        kit = Kit(mongo, database)
        asked: tuple[Callable[[], object], ...] = (
            lambda: kit.insert("things", {"_id": 1, "a": {1, 2}}),
            lambda: kit.insert("things", {"_id": 1, "a": 2**70}),
            lambda: kit.insert("things", {"_id": 1, 2: 3}),  # type: ignore[dict-item]
            lambda: kit.insert("things", endless),
            lambda: kit.delete_many("things", endless),
            lambda: kit.insert("", {"_id": 1}),
            lambda: kit.insert("things", [("_id", 1)]),  # type: ignore[arg-type]
            lambda: kit.insert("things", {"_id": 1, "at": Timestamp(0, 0)}),
            lambda: kit.delete("things", object()),
            lambda: kit.delete("things", UUID(int=1)),  # the client has no UUID representation
            lambda: kit.delete_many("things", {"a": UUID(int=1)}),
            lambda: kit.find_one("things", object()),
            lambda: kit.find_one("things", 1, by="$where"),
            lambda: kit.set_fields("things", 1, {}),
            lambda: kit.set_fields("things", 1, {"a": object()}),
            lambda: kit.set_fields("things", 1, {"_id": 2}),
            lambda: kit.upsert("things", 1, {"mail": 2}, by="mail"),
            lambda: kit.delete_many("things", None),  # type: ignore[arg-type]
            lambda: kit.count("counters", "", "t"),
            lambda: kit.count("counters", "visits", ""),
            lambda: kit.count("counters", "visits", "a.b"),
            lambda: kit.count("counters", 7, "t"),  # type: ignore[arg-type]
            lambda: Kit(mongo, "a b"),
            lambda: Kit("mongodb://localhost", "shop"),  # type: ignore[arg-type]
            lambda: Kit(mongo, "shop", 7),  # type: ignore[arg-type]
            lambda: Rules(retries=Policy(backoff=Cron("* * * * *", lambda *_: None))),
            lambda: Rules(attempt=timedelta(0)),
            lambda: Rules(attempt=5),  # type: ignore[arg-type]
            lambda: Rules(deadline=0.5),  # type: ignore[arg-type]
            lambda: Rules(budget=3),  # type: ignore[arg-type]
        )
        for ask in asked:
            with pytest.raises(Misuse):
                ask()
        assert mongo[database].list_collection_names() == []


def test_a_document_that_is_no_counter_is_misuse(mongod: MongoServer, database: str) -> None:
    with MongoClient[Raw](mongod.uri, event_listeners=[Attempts()]) as mongo:
        mongo[database]["counters"].insert_one({"_id": "visits", "n": 7})
        with pytest.raises(Misuse, match="counter"):
            _ = Kit(mongo, database).count("counters", "visits", "t")


@pytest.mark.parametrize("key", ["c0", None])
@pytest.mark.parametrize("command", ["find", "update"])
def test_each_request_of_a_sweep_is_sent_again(
    pipe: BlackPipe, client: MongoClient[Raw], database: str, command: str, key: str | None
) -> None:
    """A whole second sweep would close a second round."""
    held = client[database].counters
    held.insert_many([{"_id": f"c{n}", "count": 0, "round": 1, "token t": 1} for n in range(2)])
    kit = Kit(client, database, attrs.evolve(PATIENT, retries=attrs.evolve(ALWAYS, attempts_max=3)))
    pipe.obey(Rule(command, Action.ANSWER, times=2, reply=command_error(112)))
    assert kit.sweep("counters", key) == Done(None, 3)
    pipe.obey(Rule(command, Action.ANSWER, times=3, reply=command_error(112)))
    not_done = kit.sweep("counters", key)
    assert isinstance(not_done, NotDone)
    assert not_done.attempts == 3
    pipe.obey(Rule("update", Action.AMEND, times=2, reply=command_error(50)))
    assert kit.sweep("counters", key) == Done(None, 3)
    assert kit.sweep("counters", key) == Done(None)
    assert held.find_one({"_id": "c0"}) == {"_id": "c0", "count": 1, "round": 4}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_sweep_of_all_finds_what_is_left_behind(mongodb: str, database: str, is_async: bool) -> None:
    with MongoClient[dict[str, Any]](mongodb) as plain:
        counters = plain[database].counters
        counters.insert_many([{"_id": f"idle {n}", "count": n, "round": 1} for n in range(50)])
        counters.insert_many([{"_id": 7, "other": 1}, {"_id": "a text", "count": "many", "round": 1, "more": 1}])
        for n in range(3):
            counters.insert_one({"_id": f"left {n}", "count": 0, "round": 1, f"token t{n}": 1})
        found: list[Any] = []

        async def swept() -> list[Any]:
            async with await connect_async(mongodb) as client:
                kit = AsyncKit(client, database)
                return [await kit.sweep("counters") for _ in range(3)]

        if is_async:
            found = in_loop(swept())
        else:
            with connect(mongodb) as client:
                found = [Kit(client, database).sweep("counters") for _ in range(3)]
        assert found == [Done(None)] * 3
        left = [*counters.find({"_id": {"$regex": "^left"}}, sort=[("_id", 1)])]
        assert [(each["count"], {*each}) for each in left] == [(1, {"_id", "count", "round"})] * 3
        assert counters.count_documents({"round": 1, "_id": {"$regex": "^idle"}}) == 50
        assert counters.find_one({"_id": "a text"}) == {"_id": "a text", "count": "many", "round": 1, "more": 1}
