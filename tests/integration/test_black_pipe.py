from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from pymongo.errors import (
    AutoReconnect,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)
from tests.integration.counting import Raw, client, counter, increment, value
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import free_ports

from tidegate.model.errors import Misuse, TidegateError
from tidegate_adapters.testing.black_pipe import (
    Action,
    BlackPipe,
    Link,
    MakePipe,
    Rule,
    command_error,
    write_concern_error,
)

MakeProxy: TypeAlias = Callable[..., BlackPipe]
LOOPBACK: Final = "127.0.0.1"

FAULTS: Final[tuple[tuple[Rule, type[PyMongoError], int], ...]] = (
    (Rule("update", Action.CUT_REQUEST, times=1), AutoReconnect, 0),
    (Rule("update", Action.HANG_REQUEST, times=1), NetworkTimeout, 0),
    (Rule("update", Action.CUT_REPLY, times=1), AutoReconnect, 1),
    (Rule("update", Action.HANG_REPLY, times=1), NetworkTimeout, 1),
    (Rule("update", Action.DELAY_REPLY, times=1, delay=timedelta(seconds=0.6)), NetworkTimeout, 1),
    (Rule("update", Action.TRUNCATE_REPLY, times=1), AutoReconnect, 1),
    (Rule("update", Action.GARBLE_REPLY, times=1), ProtocolError, 1),
    (Rule("update", Action.ANSWER, times=1, reply=command_error(10107)), NotPrimaryError, 0),
    (Rule("update", Action.ANSWER, times=1, reply=command_error(8000)), OperationFailure, 0),
    (Rule("update", Action.AMEND, times=1, reply=write_concern_error(64)), WriteConcernError, 1),
    (Rule("update", Action.AMEND, times=1, reply=command_error(11602)), AutoReconnect, 1),
)
"""For each rule, without retryable writes: the client's error and the increments applied."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{rule.action.name} {error.__name__}" for rule, error, _ in FAULTS])
def test_a_fault_is_an_error_that_does_not_tell_the_effect(
    mongod: MongoServer, make_proxy: MakeProxy, database: str, fault: tuple[Rule, type[PyMongoError], int]
) -> None:
    rule, error, counted = fault
    proxy = make_proxy()
    options = {"retryWrites": False, "socketTimeoutMS": 300}
    with client(proxy.uri, **options) as mongo, client(mongod.uri) as direct:
        collection = counter(mongo, database)
        proxy.obey(rule)
        with pytest.raises(error):
            increment(collection)

        assert value(direct[database]["counters"]) == counted
        assert proxy.count("update", rule.action) == 1

        increment(collection)

        assert value(collection) == counted + 1
        assert proxy.count("update", rule.action) == 1


def test_the_async_driver_sees_the_same(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy(Rule("insert", Action.CUT_REPLY, times=1))

    async def run() -> int:
        async with AsyncMongoClient[Raw](proxy.uri, retryWrites=False) as mongo:
            with pytest.raises(AutoReconnect):
                await mongo[database]["things"].insert_one({"_id": 1})
            return await mongo[database]["things"].count_documents({})

    assert asyncio.run(run()) == 1


def test_the_third_request_alone_is_taken(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy()
    with client(proxy.uri, retryWrites=False) as mongo:
        collection = counter(mongo, database)
        proxy.obey(Rule("update", Action.CUT_REQUEST, skip=2, times=1))
        outcomes = [fails(collection) for _ in range(5)]

        assert outcomes == [False, False, True, False, False]
        assert value(collection) == 4


def fails(collection: Collection[Raw]) -> bool:
    try:
        increment(collection)
    except AutoReconnect:
        return True
    return False


def test_a_rule_for_any_command_leaves_alone_what_the_driver_does_for_itself(
    make_proxy: MakeProxy, database: str
) -> None:
    proxy = make_proxy(Rule(None, Action.ANSWER, reply=command_error(13)))
    with client(proxy.uri) as mongo:
        for ask in (mongo[database]["things"].find_one, mongo[database].list_collection_names):
            with pytest.raises(OperationFailure, match="a black pipe's"):
                ask()
    assert proxy.count("hello", Action.FORWARD) + proxy.count("ismaster", Action.FORWARD) > 0


def test_labels_are_those_of_the_rule(make_proxy: MakeProxy, database: str) -> None:
    """The driver follows labels: `RetryableWriteError` makes it retry."""
    again = Rule("update", Action.ANSWER, times=1, reply=command_error(91, "RetryableWriteError"))
    proxy = make_proxy()
    with client(proxy.uri) as mongo:
        collection = counter(mongo, database)
        proxy.obey(again)
        increment(collection)

        assert value(collection) == 1
        assert proxy.count("update", Action.ANSWER) == proxy.count("update", Action.FORWARD) == 1


def test_who_asks_for_no_answer_gets_none(make_proxy: MakeProxy, database: str) -> None:
    """The driver would match such a reply with the next request on the connection."""
    proxy = make_proxy(Rule("insert", Action.ANSWER, reply=command_error(91)))
    with client(proxy.uri, w=0, maxPoolSize=1) as mongo:
        mongo[database]["things"].insert_one({})

        assert mongo.admin.command("ping")["ok"]
        assert mongo[database]["things"].find_one() is None
    assert proxy.count("insert", Action.ANSWER) == 1


def test_the_first_hello_may_be_answered_and_amended(make_proxy: MakeProxy) -> None:
    everywhere = [Rule(name, Action.AMEND, reply={"maxWireVersion": 1}) for name in ("hello", "ismaster")]
    proxy = make_proxy(*everywhere)
    with client(proxy.uri, serverSelectionTimeoutMS=1_000) as mongo, pytest.raises(PyMongoError, match="wire version"):
        mongo.admin.command("ping")


def test_a_refused_link_ends_what_was_there_and_takes_nothing_until_it_is_up(
    make_proxy: MakeProxy, database: str
) -> None:
    proxy = make_proxy()
    with client(proxy.uri, retryWrites=False, serverSelectionTimeoutMS=1_000) as mongo:
        collection = counter(mongo, database)
        proxy.turn(Link.REFUSED)
        with pytest.raises(AutoReconnect):
            increment(collection)
        with pytest.raises(ServerSelectionTimeoutError, match="refused"):
            increment(collection)
        proxy.turn(Link.UP)
        increment(collection)

        assert value(collection) == 1


def test_what_is_sent_into_a_hanging_link_arrives_when_it_is_up(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy()
    with client(proxy.uri, retryWrites=False, socketTimeoutMS=200) as mongo:
        collection = counter(mongo, database)
        proxy.turn(Link.HANGING)
        with pytest.raises(NetworkTimeout):
            increment(collection)
        proxy.turn(Link.UP)
        deadline = time.monotonic() + 10
        while value(collection) == 0 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert value(collection) == 1


@pytest.mark.mongo
@pytest.mark.long
def test_a_primary_behind_a_pipe_is_cut_off_from_its_set(black_pipe: MakePipe) -> None:
    """The pipes' ports in the set's configuration fault traffic between nodes too."""
    ports = free_ports(3)
    pipes = [black_pipe(f"mongodb://127.0.0.1:{port}/") for port in ports]
    known = tuple(pipe.port for pipe in pipes)
    with MongoServer(nodes=3, ports=ports, advertised=known) as server, client(server.uri) as mongo:
        collection = counter(mongo, "survives")
        old = server.primary()
        assert old is not None
        pipes[old].turn(Link.REFUSED)
        increment(collection)  # the driver waits for the new primary

        assert value(collection) == 1
        assert mongo.primary is not None
        assert mongo.primary[1] in {port for port in known if port != known[old]}


@pytest.mark.parametrize("action", [Action.CUT_REQUEST, Action.CUT_REPLY])
def test_retryable_writes_hide_a_loss(make_proxy: MakeProxy, database: str, action: Action) -> None:
    proxy = make_proxy()
    with client(proxy.uri) as mongo:
        collection = counter(mongo, database)
        proxy.obey(Rule("update", action, times=1))
        increment(collection)

        assert value(collection) == 1
        assert proxy.count("update", action) == 1
        assert proxy.count("update", Action.FORWARD) == 1


def test_a_late_request_arrives_after_its_client_gave_up(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy()
    with client(proxy.uri, retryWrites=False, socketTimeoutMS=200) as mongo:
        collection = counter(mongo, database)
        proxy.obey(Rule("update", Action.DELAY_REQUEST, times=1, delay=timedelta(seconds=0.6)))
        with pytest.raises(NetworkTimeout):
            increment(collection)

        assert value(collection) == 0

        deadline = time.monotonic() + 10
        while value(collection) == 0 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert value(collection) == 1


def test_a_reply_counts_as_lost_after_its_client_gave_up(
    mongod: MongoServer, make_proxy: MakeProxy, database: str
) -> None:
    """The proxy reads on after the client left, so it counts losses, not waits."""
    proxy = make_proxy()
    with client(proxy.uri, retryWrites=False, socketTimeoutMS=200) as mongo:
        collection = counter(mongo, database)
        proxy.obey(Rule("update", Action.HANG_REPLY, times=1))
        slow = mongod.fail("update", times=1, blockConnection=True, blockTimeMS=600)
        with slow, pytest.raises(NetworkTimeout):
            increment(collection)
        deadline = time.monotonic() + 10
        while proxy.count("update", Action.HANG_REPLY) == 0 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert proxy.count("update", Action.HANG_REPLY) == 1
        assert value(collection) == 1


def test_a_delayed_reply_is_late(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy()
    with client(proxy.uri) as mongo:
        collection = counter(mongo, database)
        proxy.obey(Rule("find", Action.DELAY_REPLY, times=1, delay=timedelta(seconds=0.3)))
        started = time.monotonic()

        assert value(collection) == 0
        assert time.monotonic() - started >= 0.3


def test_a_predicate_reads_the_whole_body(make_proxy: MakeProxy, database: str) -> None:
    def second(body: Mapping[str, Any]) -> bool:
        return bool(body["$db"] == database and body["updates"][0]["q"] == {"_id": 2})

    proxy = make_proxy(Rule("update", Action.CUT_REQUEST, where=second))
    with client(proxy.uri, retryWrites=False) as mongo:
        collection = mongo[database]["counters"]
        collection.insert_many([{"_id": 1}, {"_id": 2}])
        increment(collection)
        with pytest.raises(AutoReconnect):
            collection.update_one({"_id": 2}, {"$inc": {"n": 1}})

        assert value(collection) == 1


def test_a_predicate_may_count_and_change_the_rules(make_proxy: MakeProxy, database: str) -> None:
    """The proxy calls it while it chooses a rule; this once deadlocked."""

    def third(_: Mapping[str, Any]) -> bool:
        is_third = proxy.count("insert", Action.FORWARD) == 2
        if is_third:
            proxy.obey()
        return is_third

    proxy = make_proxy(Rule("insert", Action.CUT_REQUEST, where=third))
    with client(proxy.uri, retryWrites=False) as mongo:
        for number in range(5):
            with pytest.raises(AutoReconnect) if number == 2 else nullcontext():
                mongo[database]["things"].insert_one({"_id": number})

        assert mongo[database]["things"].count_documents({}) == 4


def test_a_broken_predicate_is_an_error(mongod: MongoServer) -> None:
    """Otherwise an error in the proxy's thread would appear as a lost connection."""

    def broken(body: Mapping[str, Any]) -> bool:
        return bool(body["no such key"])

    with (
        pytest.raises(KeyError, match="no such key"),
        BlackPipe(mongod.uri, Rule("ping", Action.CUT_REQUEST, where=broken)) as proxy,
        client(proxy.uri) as mongo,
        pytest.raises(AutoReconnect),
    ):
        mongo.admin.command("ping")


def test_a_seed_decides_which_requests_are_lost(make_proxy: MakeProxy, database: str) -> None:
    def lost(seed: int) -> list[int]:
        proxy = make_proxy(Rule("count", Action.HANG_REPLY, probability=0.3), seed=seed)
        with client(proxy.uri, retryReads=False, socketTimeoutMS=100) as mongo:
            return [number for number in range(16) if is_lost(mongo, proxy)]

    def is_lost(mongo: MongoClient[Raw], proxy: BlackPipe) -> bool:
        """A timeout does not count if the proxy lost nothing: the machine is busy."""
        before = proxy.count("count", Action.HANG_REPLY)
        try:
            _ = mongo[database].command("count", "things")
        except NetworkTimeout:
            return proxy.count("count", Action.HANG_REPLY) > before
        assert proxy.count("count", Action.HANG_REPLY) == before, "what is lost is not reported"
        return False

    first = lost(1)

    assert first == lost(1) != lost(2)
    assert 3 <= len(first) <= 9


def test_many_threads_lose_replies_and_the_count_is_exact(
    mongod: MongoServer, make_proxy: MakeProxy, database: str
) -> None:
    proxy = make_proxy(Rule("update", Action.HANG_REPLY, probability=0.05), seed=3)
    errors: list[NetworkTimeout] = []

    def work(collection: Collection[Raw]) -> None:
        for _ in range(50):
            try:
                increment(collection)
            except NetworkTimeout as error:
                errors.append(error)

    with client(proxy.uri, retryWrites=False, socketTimeoutMS=500) as mongo, client(mongod.uri) as direct:
        collection = counter(direct, database)
        threads = [threading.Thread(target=work, args=[mongo[database]["counters"]]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert value(collection) == 400
        assert proxy.count("update", Action.HANG_REPLY) == len(errors) > 10


@pytest.mark.parametrize(("option", "what"), [("tls=true", "TLS"), ("compressors=zlib", "compressed")])
def test_what_a_pipe_cannot_read_is_an_error_that_says_what_to_set(mongod: MongoServer, option: str, what: str) -> None:
    """The client alone would only report a closed connection."""
    with (
        pytest.raises(TidegateError, match=f"(?s)reads no {what}.*leave"),
        BlackPipe(mongod.uri) as pipe,
        client(f"{pipe.uri}&{option}", serverSelectionTimeoutMS=500) as mongo,
    ):
        mongo.admin.command("ping")
    with pytest.raises(Misuse, match="neither TLS nor"):
        BlackPipe(f"{mongod.uri}&{option}")


@pytest.mark.parametrize(
    "uri", ["", "localhost:27017", "mongodb+srv://some.host/", "mongodb://a:1,b:2/", "mongodb://%2Ftmp%2Fmongo.sock/", "mongodb://a:b:c/"]
)  # fmt: skip
def test_a_uri_that_names_no_single_node_is_refused(uri: str) -> None:
    """The message shows no part of the URI, which may be secret."""
    with pytest.raises(Misuse, match="one node") as raised:
        BlackPipe(uri)
    assert not uri or uri not in str(raised.value)


def test_the_uri_of_a_pipe_is_the_one_given_by_way_of_it() -> None:
    with BlackPipe(
        "mongodb://ann:p%40ss@some.host:27018/bank?authSource=admin&replicaSet=a&directConnection=false"
    ) as pipe:
        assert pipe.uri == (
            f"mongodb://ann:p%40ss@127.0.0.1:{pipe.port}/bank"
            "?directConnection=true&authSource=admin&heartbeatFrequencyMS=500"
        )


def test_a_port_that_is_taken_is_an_error(mongod: MongoServer) -> None:
    with (
        pytest.raises(TidegateError, match=f"cannot listen on port {mongod.ports[0]}"),
        BlackPipe(mongod.uri, port=mongod.ports[0]),
    ):
        pass


def test_a_pipe_that_is_not_listening_has_no_uri_and_no_link(mongod: MongoServer) -> None:
    pipe = BlackPipe(mongod.uri)
    for _ in range(2):
        with pytest.raises(Misuse, match="not listening"):
            _ = pipe.uri
        with pytest.raises(Misuse, match="not listening"):
            pipe.turn(Link.HANGING)
        with pipe:
            pipe.turn(Link.UP)


def test_who_connects_while_it_ends_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is left for the garbage collector to report in a later test."""
    found: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: found.append(each.exc_value))

    def connect(port: int) -> None:
        with suppress(OSError):
            while True:
                socket.create_connection((LOOPBACK, port)).close()

    with socket.create_server((LOOPBACK, 0), backlog=4_096) as target, ThreadPoolExecutor() as threads:
        for _ in range(3):
            with BlackPipe(f"mongodb://{LOOPBACK}:{target.getsockname()[1]}") as pipe:
                clients = [threads.submit(connect, pipe.port) for _ in range(4)]
                time.sleep(0.02)
            wait(clients)
            _ = gc.collect()
    assert found == []


BAD_RULES: Final[tuple[Mapping[str, Any], ...]] = (
    {"command": ""},
    {"command": 7},
    {"action": "forward"},
    {"where": "yes"},
    {"skip": -1},
    {"times": 0},
    {"times": True},
    {"probability": 0},
    {"probability": 1.5},
    {"probability": float("nan")},
    {"delay": timedelta(seconds=1)},
    {"action": Action.DELAY_REPLY},
    {"action": Action.DELAY_REPLY, "delay": timedelta(-1)},
    {"action": Action.DELAY_REPLY, "delay": 1},
    {"action": Action.ANSWER},
    {"action": Action.ANSWER, "reply": "no"},
    {"reply": {"ok": 1}},
)


@pytest.mark.parametrize("bad", BAD_RULES, ids=str)
def test_a_rule_that_means_nothing_is_misuse(bad: Mapping[str, Any]) -> None:
    with pytest.raises(Misuse):
        Rule(**{"command": "find", "action": Action.FORWARD, **bad})
