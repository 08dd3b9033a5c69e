"""Payloads on a real MongoDB, in each kind of client, under faults."""

from __future__ import annotations

import asyncio
import io
import random
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.servers import MongoServer
from tests.length import PAYLOAD_FAULTS_STEP, PAYLOAD_MIB, PAYLOAD_RACES

from tidegate.model.errors import MissingExtra, Misuse, TidegateError
from tidegate.model.instants import MILLISECOND
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate_adapters.kit.payloads import (
    THRESHOLD,
    AsyncPayloads,
    PayloadAbsent,
    PayloadDamaged,
    PayloadReplaced,
    Payloads,
    PayloadUnsettled,
    Swept,
    UploadAbandoned,
)
from tidegate_adapters.mongo import connect, connect_async
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

MakeProxy = Callable[..., BlackPipe]
AT_ONCE = timedelta()
SMALL = {"threshold": 100, "chunk_bytes": 64}
OLD, NEW = bytes(range(250)), random.Random(3).randbytes(300)


class Either(Protocol):
    def put(self, key: str, source: Any) -> None: ...
    def get(self, key: str) -> bytes: ...
    def open(self, key: str) -> Iterator[bytes]: ...
    def delete(self, key: str) -> bool: ...
    def sweep(self, older_than: timedelta = ...) -> Swept: ...


class InLoop:
    def __init__(self, runner: asyncio.Runner, payloads: AsyncPayloads) -> None:
        self.runner, self.payloads = runner, payloads

    def put(self, key: str, source: Any) -> None:
        self.runner.run(self.payloads.put(key, source))

    def get(self, key: str) -> bytes:
        return self.runner.run(self.payloads.get(key))

    def open(self, key: str) -> Iterator[bytes]:
        pieces = self.runner.run(self.payloads.open(key))

        async def more() -> bytes | None:
            return await anext(pieces, None)

        return iter(lambda: self.runner.run(more()), None)

    def delete(self, key: str) -> bool:
        return self.runner.run(self.payloads.delete(key))

    def sweep(self, older_than: timedelta = timedelta(days=1)) -> Swept:
        return self.runner.run(self.payloads.sweep(older_than))


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, mongodb: str, database: str) -> Iterator[Callable[..., Either]]:
    if request.param == "sync":
        with connect(mongodb) as client:
            yield lambda **settings: Payloads(client, database, **(SMALL | settings))
        return
    with asyncio.Runner() as runner:
        later = runner.run(connect_async(mongodb))
        yield lambda **settings: InLoop(runner, AsyncPayloads(later, database, **(SMALL | settings)))
        runner.run(later.close())


@pytest.fixture
def held(mongodb: str, database: str) -> Iterator[Any]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield client[database]


def chunks_are_those_of(held: Any, *keys: str) -> bool:
    records = {record["_id"]: record["content"] for record in held["payloads"].find()}
    referred = {f"{records[key]['upload']}/{number:010}" for key in keys for number in range(records[key]["chunks"])}
    return referred == {chunk["_id"] for chunk in held["payload_chunks"].find({}, {"_id": 1})}


# --- round trips --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zlib"])
@pytest.mark.parametrize("size", [0, 1, 64, 100, 101, 128, 129, 1_000])
def test_what_was_put_is_read_whole_and_in_pieces(
    make: Callable[..., Either], held: Any, size: int, codec: str
) -> None:
    payloads, payload = make(codec=codec), random.Random(size).randbytes(size)
    payloads.put("k", payload)

    assert payloads.get("k") == b"".join(payloads.open("k")) == payload
    assert held["payload_chunks"].count_documents({}) == (0 if size <= 100 else -(-size // 64))


def test_sources_are_bytes_files_and_what_gives_bytes(make: Callable[..., Either]) -> None:
    payloads, again = make(), bytearray(70)

    def used_again() -> Iterator[bytearray]:
        for number in range(4):
            again[:] = bytes([number]) * 70
            yield again

    sources = {
        "bytes": OLD,
        "bytearray": bytearray(OLD),
        "view": memoryview(OLD),
        "every second byte": memoryview(bytes(byte for byte in OLD for _ in range(2)))[::2],
        "file": io.BytesIO(OLD),
        "list": [OLD[:1], b"", OLD[1:130], memoryview(OLD)[130:]],
    }
    for key, source in sources.items():
        payloads.put(key, source)
        assert payloads.get(key) == OLD, key
    payloads.put("again", used_again())
    assert payloads.get("again") == b"".join(bytes([number]) * 70 for number in range(4))


def test_a_source_may_be_asynchronous(mongodb: str, database: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(OLD), 30):
            await asyncio.sleep(0)
            yield OLD[start : start + 30]

    async def puts() -> bytes:
        async with await connect_async(mongodb) as client:
            payloads = AsyncPayloads(client, database, **SMALL)  # type: ignore[arg-type]
            await payloads.put("k", pieces())
            return await payloads.get("k")

    assert asyncio.run(puts()) == OLD


def test_a_payload_has_one_thread_beside_the_event_loop(mongodb: str, database: str) -> None:
    """Each further thread would keep some memory of large payloads."""

    async def puts() -> list[set[int]]:
        seen: list[set[int]] = [set() for _ in range(6)]

        def pieces(threads: set[int]) -> Iterator[bytes]:
            for _ in range(40):
                threads.add(threading.get_ident())
                yield OLD[:50]

        async with await connect_async(mongodb) as client:
            payloads = AsyncPayloads(client, database, **SMALL)  # type: ignore[arg-type]
            async with asyncio.TaskGroup() as group:
                for key, threads in enumerate(seen):
                    group.create_task(payloads.put(str(key), pieces(threads)))
        return seen

    assert [len(each) for each in asyncio.run(puts())] == [1] * 6


def test_how_often_it_is_tried_is_told() -> None:
    told: Any = {"attempts": 2, "pauses": Pauses(Fixed(MILLISECOND))}
    nobody: Any = {"host": "mongodb://127.0.0.1:1", "timeoutMS": 5}

    async def work() -> None:
        async with AsyncMongoClient[dict[str, Any]](**nobody) as client:
            with pytest.raises(PayloadUnsettled, match="others were faster, 2 times"):
                await AsyncPayloads(client, "nowhere", **told).delete("k")

    with MongoClient[dict[str, Any]](**nobody) as client:
        with pytest.raises(PayloadUnsettled, match="others were faster, 2 times"):
            Payloads(client, "nowhere", **told).delete("k")
        with pytest.raises(Misuse, match="a number of attempts"):
            Payloads(client, "nowhere", attempts=0)
    asyncio.run(work())


def test_the_largest_record_and_the_largest_chunk_fit() -> None:
    """Chunks of 4 MiB by default; one of 15 MiB may grow by compression."""
    payload = random.Random(1).randbytes(THRESHOLD + 1)
    with MongoServer(cache_gb=1.0) as roomy, connect(roomy.uri) as client:
        for settings, size, chunks in (({}, 0, 0), ({}, 1, 4), ({"threshold": 0, "chunk_bytes": THRESHOLD}, 0, 5)):
            payloads = Payloads(client, "largest", **settings)  # type: ignore[arg-type]
            payloads.put(f"{chunks} chunks", payload[: THRESHOLD + size])
            assert client["largest"]["payload_chunks"].count_documents({}) == chunks
            assert payloads.get(f"{chunks} chunks") == payload[: THRESHOLD + size]


def test_what_was_large_and_is_small_is_read_as_it_is(make: Callable[..., Either]) -> None:
    """W29 of the weaknesses, and the other way round."""
    payloads = make()
    for payload in (OLD, b"small", NEW, b""):
        payloads.put("k", payload)
        assert payloads.get("k") == b"".join(payloads.open("k")) == payload


def test_zstd_is_an_extra(make: Callable[..., Either]) -> None:
    if find_spec("zstandard") is None:
        with pytest.raises(MissingExtra, match=r"(?s)zstd.*pip install 'tidegate\[zstd\]'"):
            make(codec="zstd")
        return
    payloads, payload = make(codec="zstd"), NEW + bytes(1_000)
    payloads.put("k", payload)
    assert payloads.get("k") == b"".join(make(codec="none").open("k")) == payload


@pytest.mark.parametrize("kind", [pytest.param("sync", marks=pytest.mark.long), "async"])
def test_memory_does_not_grow_with_the_payload(mongodb: str, database: str, kind: str) -> None:
    """64 MiB above the start suffice."""
    command = [sys.executable, str(Path(__file__).with_name("payload_memory.py"))]
    done = subprocess.run(
        [*command, mongodb, database, str(PAYLOAD_MIB), kind], check=True, capture_output=True, text=True, timeout=500
    )
    assert float(done.stdout) <= 64


# --- replaced, deleted and swept ----------------------------------------------------------------------------------------


def test_a_reader_gets_to_the_end_of_what_it_began(make: Callable[..., Either], held: Any) -> None:
    payloads = make()
    for ends in (lambda: payloads.put("k", NEW), lambda: payloads.delete("k")):
        payloads.put("k", OLD)
        pieces, cut_short = payloads.open("k"), payloads.open("k")
        first, _ = next(pieces), next(cut_short)
        ends()
        assert payloads.sweep() == Swept(0, 0)
        assert first + b"".join(pieces) == OLD
        assert payloads.sweep(AT_ONCE).removed > 0
        with pytest.raises(PayloadReplaced, match="'k' was replaced"):
            next(cut_short)
    with pytest.raises(PayloadAbsent, match="'k' is not there"):
        payloads.open("k")
    with pytest.raises(KeyError):
        payloads.get("k")
    assert not payloads.delete("k")
    assert not payloads.delete("never put")
    assert payloads.sweep(AT_ONCE) == Swept(0, 0)
    assert held["payload_chunks"].count_documents({}) == 0


def test_a_sweep_leaves_a_slow_upload_alone(make: Callable[..., Either], mongodb: str, database: str) -> None:
    payloads = make()

    def swept_after(older_than: timedelta) -> Iterator[bytes]:
        with connect(mongodb) as client:
            for start in range(0, len(NEW), 100):
                yield NEW[start : start + 100]
                Payloads(client, database).sweep(older_than)

    payloads.put("k", OLD)
    with pytest.raises(UploadAbandoned, match="upload of the payload 'k' was swept"):
        payloads.put("k", swept_after(AT_ONCE))
    assert payloads.get("k") == OLD
    payloads.put("k", swept_after(timedelta(hours=1)))
    assert payloads.get("k") == NEW


def test_what_a_source_raises_is_raised_and_leaves_the_payload(make: Callable[..., Either], held: Any) -> None:
    def fails() -> Iterator[bytes]:
        yield NEW
        raise OSError("the disk is gone")

    payloads = make()
    payloads.put("k", OLD)
    payloads.put("other", NEW)
    with pytest.raises(OSError, match="the disk is gone"):
        payloads.put("k", fails())
    assert payloads.sweep() == Swept(0, 0)
    assert not chunks_are_those_of(held, "k", "other")
    assert payloads.sweep(AT_ONCE) == Swept(1, 1)
    assert chunks_are_those_of(held, "k", "other")
    assert (payloads.get("k"), payloads.get("other")) == (OLD, NEW)


# --- damage and misuse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", ["whole", "in pieces"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda held, _: held["payload_chunks"].update_one({}, {"$set": {"data": b"secret"}}),
        lambda held, _: held["payload_chunks"].update_one({}, {"$unset": {"data": ""}}),
        lambda held, _: held["payload_chunks"].delete_one({}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.length": 249}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.length": 251}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.length": 2**63 - 1}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.chunks": 3}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.digest": "0" * 64}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.codec": "secret"}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.codec": "none"}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content.chunks": 0}}),
        lambda held, _: held["payloads"].update_one({}, {"$set": {"content": "secret"}}),
        lambda held, _: held["payloads"].update_one({}, {"$unset": {"version": ""}}),
    ],
)
def test_what_is_damaged_is_an_error_that_names_the_key(
    make: Callable[..., Either], held: Any, damage: Callable[[Any, int], object], reads: str
) -> None:
    payloads = make()
    payloads.put("k", OLD)
    damage(held, 0)
    with pytest.raises(PayloadDamaged, match="the payload 'k' is damaged") as error:
        payloads.get("k") if reads == "whole" else b"".join(payloads.open("k"))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("source", ["text", 7, None, {"k": b"v"}, ["text"], [7], io.StringIO("text"), [b"x", None]])
def test_what_is_no_payload_is_refused(make: Callable[..., Either], source: object) -> None:
    payloads = make()
    payloads.put("k", OLD)
    with pytest.raises(Misuse):
        payloads.put("k", source)
    assert payloads.get("k") == OLD


@pytest.mark.parametrize("key", ["", 7, None, "k" * 1_025, "\ud800"])
def test_what_is_no_key_is_refused(make: Callable[..., Either], key: Any) -> None:
    payloads = make()
    for use in (payloads.get, payloads.open, payloads.delete, lambda key: payloads.put(key, b"")):
        with pytest.raises(Misuse, match="cannot be the key of a payload"):
            use(key)


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": THRESHOLD + 1},
        {"threshold": -1},
        {"chunk_bytes": 0},
        {"chunk_bytes": THRESHOLD + 1},
        {"codec": "lzma"},
        {"codec": 7},
        {"records": ""},
        {"records": "x", "chunks": "x"},
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[..., Either], settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        make(**settings)
    for age in (timedelta(seconds=-1), 7):
        with pytest.raises(Misuse):
            make().sweep(age)  # type: ignore[arg-type]


# --- faults -------------------------------------------------------------------------------------------------------------

COMMANDS = ("find", "insert", "update", "delete")


@pytest.mark.parametrize(
    ("action", "retries"), [(Action.CUT_REQUEST, "false"), (Action.CUT_REPLY, "false"), (Action.CUT_REPLY, "true")]
)
@pytest.mark.parametrize("what", ["first", "large", "small", "delete", "get", "sweep"])
def test_any_command_may_fail(make_proxy: MakeProxy, held: Any, what: str, action: Action, retries: str) -> None:
    proxy, keys = make_proxy(), list[str]()
    uses: dict[str, Callable[[Payloads, str], object]] = {
        "first": lambda payloads, key: payloads.put(key, NEW),
        "large": lambda payloads, key: payloads.put(key, NEW),
        "small": lambda payloads, key: payloads.put(key, b"small"),
        "delete": lambda payloads, key: payloads.delete(key) or pytest.fail("it was there"),
        "get": lambda payloads, key: payloads.get(key) == OLD or pytest.fail("it is the old one"),
        "sweep": lambda payloads, _: payloads.sweep(AT_ONCE),
    }
    with connect(f"{proxy.uri}&retryWrites={retries}&retryReads={retries}") as client:
        payloads = Payloads(client, held.name, threshold=100, chunk_bytes=200)
        first = 1 + (action is Action.CUT_REPLY) % PAYLOAD_FAULTS_STEP
        number, has_failed = first - PAYLOAD_FAULTS_STEP, True
        while has_failed:
            number += PAYLOAD_FAULTS_STEP
            keys = [*keys, f"first {number}"] if what == "first" else ["k"]
            if what != "first":
                payloads.put("k", OLD)
            before = proxy_failures(proxy, action)
            proxy.obey(Rule(None, action, skip=number - 1, times=1))
            uses[what](payloads, keys[-1])
            proxy.obey()
            has_failed = proxy_failures(proxy, action) > before

            if what == "delete":
                with pytest.raises(PayloadAbsent):
                    payloads.get("k")
            else:
                assert payloads.get(keys[-1]) == {"first": NEW, "large": NEW, "small": b"small"}.get(what, OLD)
            payloads.sweep(AT_ONCE)
            assert held["payloads"].count_documents({"pending": {"$ne": []}}) == 0
            assert chunks_are_those_of(held, *([] if what == "delete" else keys))
        assert number > 2


def proxy_failures(proxy: BlackPipe, action: Action) -> int:
    return sum(proxy.count(command, action) for command in COMMANDS)


def test_readers_see_the_old_or_the_new_while_replies_are_lost(make_proxy: MakeProxy, mongodb: str, held: Any) -> None:
    faults = [Rule(None, action, probability=0.02) for action in (Action.CUT_REQUEST, Action.CUT_REPLY)]
    proxy, over, wrong = make_proxy(*faults, seed=7), threading.Event(), list[object]()
    read, refused = list[bytes](), list[Exception]()

    def payload(who: int, number: int) -> bytes:
        return bytes([who, number % 256, number // 256]) * (20 + number % 100)

    put = {payload(who, number) for who in (1, 2) for number in range(PAYLOAD_RACES)}

    def writes(payloads: Payloads, who: int) -> None:
        for number in range(PAYLOAD_RACES):
            try:
                payloads.put("k", payload(who, number))
            except (UploadAbandoned, PayloadUnsettled) as error:
                refused.append(error)

    def reads(payloads: Payloads, _: int) -> None:
        while not over.is_set():
            with suppress(PayloadReplaced, PayloadUnsettled):
                found = payloads.get("k")
                read.append(found)
                assert found in put
                assert b"".join(payloads.open("k")) in put

    def sweeps(payloads: Payloads, _: int) -> None:
        while not over.wait(0.05):
            with suppress(PayloadUnsettled):
                payloads.sweep(timedelta(milliseconds=100))

    def guarded(work: Callable[[Payloads, int], None], payloads: Payloads, who: int) -> None:
        try:
            work(payloads, who)
        except BaseException as error:  # noqa: BLE001  reported below
            wrong.append(error)

    with connect(f"{proxy.uri}&retryWrites=false&retryReads=false") as client, connect(mongodb) as calm:
        payloads = Payloads(client, held.name, **SMALL)  # type: ignore[arg-type]
        Payloads(calm, held.name, **SMALL).put("k", payload(1, 0))  # type: ignore[arg-type]
        writers = [threading.Thread(target=guarded, args=(writes, payloads, who)) for who in (1, 2)]
        others = [threading.Thread(target=guarded, args=(work, payloads, 0)) for work in (reads, reads, sweeps)]
        for thread in (*writers, *others):
            thread.start()
        for thread in writers:
            thread.join()
        over.set()
        for thread in others:
            thread.join()
        assert not wrong
        assert len(set(read)) > 1
        assert len(refused) < PAYLOAD_RACES
        last = Payloads(calm, held.name, **SMALL)  # type: ignore[arg-type]
        assert last.get("k") in put
        last.sweep(AT_ONCE)
        assert chunks_are_those_of(held, "k")
        assert last.get("k") in put


def test_who_may_not_write_is_told(make: Callable[..., Either], held: Any) -> None:
    held.create_collection("payload_chunks", validator={"never": {"$exists": True}})
    with pytest.raises(TidegateError, match="the store refuses"):
        make().put("k", OLD)


def test_the_sample_of_the_page_runs_and_prints_what_is_shown(mongodb: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "payloads.md").read_text()
    (sample,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    there = sample.replace("mongodb://localhost:27017/?replicaSet=rs0", mongodb).replace(
        '"services"', f'"{tmp_path.name}"'
    )
    done = subprocess.run([sys.executable, "-c", there], check=True, capture_output=True, text=True, cwd=tmp_path)

    assert done.stdout == shown
    assert (tmp_path / "copy.txt").read_bytes() == b"".join(
        f"page {number}\n".encode() * 10_000 for number in range(200)
    )
