"""The array-push lock on a real MongoDB, beside services that follow its protocol by hand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import attrs
import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop

from tidegate.invocations.record.array_push_lock import INVOCATION_ID, STALE, TRANSITION_LOCK, ArrayPushLock, Written
from tidegate.invocations.record.invocation import INVOCATION, PENDING
from tidegate.model.documents import Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.operations import find_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.kit.array_push_lock import LockBusy, LockLost, array_push_lock, array_push_lock_async
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Raw = dict[str, Any]
RECORDS: Final = "invocations"
COUNT: Final = Field[int]("count")
SHORT: Final[dict[str, Any]] = {"stale": timedelta(seconds=1), "margin": timedelta(milliseconds=300)}


@attrs.define
class Other:
    """Pushes, pulls and clears claims by hand, as pynenc-mongo does."""

    records: Collection[Raw]
    claim: str = ""

    def push(self, age: float = 0) -> bool:
        self.claim = f"other:{time.time() - age:.6f}"
        self.records.update_one({"invocation_id": "x"}, {"$push": {"transition_lock": self.claim}})
        return self.claims[0] == self.claim

    def pull(self) -> None:
        self.records.update_one({"invocation_id": "x"}, {"$pull": {"transition_lock": self.claim}})

    def clear(self) -> None:
        self.records.update_one({"invocation_id": "x"}, {"$set": {"transition_lock": []}})

    @property
    def claims(self) -> list[str]:
        found = self.records.find_one({"invocation_id": "x"})
        assert found is not None
        claims: list[str] = found["transition_lock"]
        return claims


@pytest.fixture
def client(mongodb: str) -> Iterator[MongoClient[Raw]]:
    with MongoClient[Raw](mongodb) as client:
        yield client


@pytest.fixture
def other(client: MongoClient[Raw], database: str) -> Other:
    records = client[database][RECORDS]
    records.insert_one(
        {
            "_id": 1,
            "invocation_id": "x",
            "status": "registered",
            "status_runner_id": None,
            "transition_lock": [],
            "count": 0,
        }
    )
    return Other(records)


def test_threads_count_under_the_lock(client: MongoClient[Raw], database: str, other: Other) -> None:
    store, counted = Mongo(client, database), list[object]()

    def work() -> None:
        with array_push_lock(store, RECORDS, "x", attempts=9) as held:
            held.check()
            found = store(find_one(RECORDS, Eq(INVOCATION_ID, "x")))
            assert isinstance(found, Document)
            time.sleep(0.02)
            counted.append(store(held.guarded(Put(COUNT, found[COUNT] + 1))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    found = other.records.find_one({})
    assert found is not None
    assert counted == [1] * 4
    assert (found["count"], found["transition_lock"]) == (4, [])


def test_others_of_the_protocol_and_we_wait_for_each_other(
    client: MongoClient[Raw], database: str, other: Other
) -> None:
    store = Mongo(client, database)
    with array_push_lock(store, RECORDS, "x") as held:
        assert not other.push()
        assert other.claims == [held.claim, other.claim]
        other.pull()
        assert held.left <= timedelta(microseconds=STALE - SECOND)
    assert other.push()
    with (
        pytest.raises(LockBusy, match="another was first at each of 2 attempts"),
        array_push_lock(store, RECORDS, "x", attempts=2),
    ):
        raise AssertionError("two hold it")
    assert other.claims == [other.claim]
    other.clear()
    assert other.push(age=60)
    with array_push_lock(store, RECORDS, "x"):
        assert other.claim not in other.claims
    moved = run(ArrayPushLock(RECORDS, INVOCATION, "x", PENDING, "r", "q").run(), choosing(documents(store), local()))
    assert moved == Written(PENDING, "r")


def test_a_block_that_checks_hears_that_its_time_is_over(client: MongoClient[Raw], database: str, other: Other) -> None:
    """Without `check` the block gets `LockLost` at its end, unless it raised itself."""
    store = Mongo(client, database)
    with (  # noqa: PT012  the block is under test
        pytest.raises(LockLost, match="the lock of 'x' is lost"),
        array_push_lock(store, RECORDS, "x", **SHORT) as held,
    ):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            assert other.claims == [held.claim]
            held.check()
            time.sleep(0.01)
    assert other.claims == []
    for error in (None, KeyError("of the block")):
        with pytest.raises(KeyError if error else LockLost), array_push_lock(store, RECORDS, "x", **SHORT):  # noqa: PT012  the block is under test
            time.sleep(0.75)
            if error:
                raise error
    assert other.claims == []


def test_who_lost_the_lock_writes_nothing_and_pulls_nobody_else_s_claim(
    client: MongoClient[Raw], database: str, other: Other
) -> None:
    """Law AL5."""
    store = Mongo(client, database)
    with pytest.raises(LockLost, match="its claim was gone"), array_push_lock(store, RECORDS, "x") as held:  # noqa: PT012  the block is under test
        assert store(held.guarded(Put(COUNT, 1))) == 1
        other.clear()
        assert other.push()
        assert store(held.guarded(Put(COUNT, 2))) == 0

    assert other.claims == [other.claim]
    assert other.records.find_one({}, {"_id": 0, "count": 1}) == {"count": 1}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_claim_whose_time_cannot_be_read_is_logged(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    made = Document.of({"_id": 1, "invocation_id": "x", "status": "registered", "transition_lock": ("secret",)})
    store = Embedded({RECORDS: (made,)})

    async def work() -> None:
        async with array_push_lock_async(store.awaited, RECORDS, "x", attempts=2):
            pass

    if is_async:
        asyncio.run(work())
    else:
        with array_push_lock(store, RECORDS, "x", attempts=2):
            pass
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "cannot be read" in caplog.text
    assert "secret" not in caplog.text


def with_tasks(mongodb: str, database: str, work: Callable[[AsyncMongo], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncMongoClient[Raw](mongodb) as client:
            await work(AsyncMongo(client, database))

    in_loop(main())


def test_a_block_of_an_event_loop_is_cancelled_in_time(mongodb: str, database: str, other: Other) -> None:
    async def work(store: AsyncMongo) -> None:
        with pytest.raises(LockLost):  # noqa: PT012  the block is under test
            async with array_push_lock_async(store, RECORDS, "x", **SHORT) as held:
                try:
                    await asyncio.sleep(30)
                    raise AssertionError("it was not cancelled")
                except asyncio.CancelledError:
                    assert other.claims == [held.claim]
                    raise
        assert other.claims == []
        with pytest.raises(TimeoutError):
            async with array_push_lock_async(store, RECORDS, "x"), asyncio.timeout(0.01):
                await asyncio.sleep(30)
        async with array_push_lock_async(store, RECORDS, "x") as held:
            assert await store(held.guarded(Put(COUNT, 7))) == 1
            with pytest.raises(LockBusy):
                async with array_push_lock_async(store, RECORDS, "x", attempts=1):
                    raise AssertionError("two hold it")
        with pytest.raises(LockLost, match="its claim was gone"):  # noqa: PT012  the block is under test
            async with array_push_lock_async(store, RECORDS, "x") as held:
                other.clear()
                assert await store(held.guarded(Put(COUNT, 8))) == 0

    with_tasks(mongodb, database, work)


def test_a_cancellation_leaves_the_lock_and_goes_on_its_way(mongodb: str, database: str, other: Other) -> None:
    async def work(store: AsyncMongo) -> None:
        inside = asyncio.Event()

        async def hold() -> None:
            async with array_push_lock_async(store, RECORDS, "x"):
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(hold())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert other.claims == []

    with_tasks(mongodb, database, work)


QUICK: Final = Pauses(Fixed(MILLISECOND))


def claims_in(store: Embedded) -> tuple[str, ...]:
    (record,) = store.contents(RECORDS)
    claims: tuple[str, ...] = record[TRANSITION_LOCK]
    return claims


FREE: Final = Document.of({"_id": 1, "invocation_id": "x", "status": "registered"})


@pytest.mark.parametrize(
    "failure", [NotApplied("not the primary"), Ambiguous("no reply"), NotDurable("no majority")], ids=str
)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_one_failure_that_passes_is_not_noticed(at: int, is_done: bool, failure: Failure) -> None:
    store, asked = Embedded({RECORDS: (FREE,)}), list[object]()

    def fails_once(effect: Any) -> object:
        asked.append(effect)
        answer = store(effect) if is_done or len(asked) != at else None
        return failure if len(asked) == at else answer

    with array_push_lock(fails_once, RECORDS, "x", pauses=QUICK) as held:
        assert set(claims_in(store)) == {held.claim}
    assert claims_in(store) == ()


@pytest.mark.parametrize("raised", [Refused("no"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at", [1, 2])
def test_who_is_ended_while_it_takes_the_lock_leaves_no_claim(at: int, raised: BaseException) -> None:
    store, asked = Embedded({RECORDS: (FREE,)}), list[object]()

    def ends(effect: Any) -> object:
        asked.append(effect)
        answer = store(effect)
        if len(asked) == at:
            raise raised
        return answer

    with pytest.raises(type(raised)), array_push_lock(ends, RECORDS, "x"):
        raise AssertionError("it is held")
    assert claims_in(store) == ()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_who_is_cancelled_leaves_no_claim(at: int) -> None:
    store, asked = Embedded({RECORDS: (FREE,)}), list[object]()

    async def work() -> None:
        reached = asyncio.Event()

        async def slow(effect: Any) -> object:
            asked.append(effect)
            answer = store(effect)
            if len(asked) == at:
                reached.set()
            await asyncio.sleep(0.01)
            return answer

        async def hold() -> None:
            async with array_push_lock_async(slow, RECORDS, "x"):
                pass

        task = asyncio.create_task(hold())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert claims_in(store) == ()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"key": ""}, "the name of a record must be"),
        ({"key": "none"}, "no record 'none' to lock"),
        ({"collection": "a..b"}, "not a name of a collection"),
        ({"attempts": 0}, "a number of attempts must be"),
        ({"pauses": 1}, "what lies between attempts"),
        ({"stale": timedelta(-1)}, "is too short"),
        ({"stale": 5}, "stale must be a timedelta, got int 5"),
        ({"margin": 5}, "margin must be a timedelta, got int 5"),
        ({"margin": timedelta(microseconds=STALE + 1)}, "is longer than stale="),
        ({"store": 7}, "a store must be callable, got int 7"),
    ],
    ids=str,
)
def test_bad_input_is_refused(bad: dict[str, Any], said: str) -> None:
    embedded = Embedded()
    told: Any = {"collection": RECORDS, "key": "x"} | bad
    with pytest.raises(Misuse, match=said), array_push_lock(**({"store": embedded} | told)):
        pass

    async def work() -> None:
        async with array_push_lock_async(**({"store": embedded.awaited} | told)):
            pass

    with pytest.raises(Misuse, match=said):
        asyncio.run(work())
