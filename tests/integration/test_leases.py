from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from random import Random
from typing import Any, Final

import attrs
import pytest
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.mongo_loop import in_loop
from tests.length import LEASE_FAULTS_STEP

from tidegate.leases.election import StopRequested
from tidegate.leases.leader import FENCE, fenced, lease_of
from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Add, Document, Eq, Field
from tidegate.model.effects import Ambiguous, NotApplied, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, STORE, Instant
from tidegate.model.operations import InsertOne, find_one, insert_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.kit import leases
from tidegate_adapters.kit.leases import Held, LeaseBusy, LeaseLost, leader, leader_async, lease, lease_async
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.testing import event_loop
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Body, Link, Rule, command_error, write_concern_error

TERMS: Final = Terms(ttl=6 * SECOND, heartbeat=2 * SECOND, margin=SECOND // 2)
QUICK: Final = Terms(ttl=1_500 * MILLISECOND, heartbeat=200 * MILLISECOND, margin=100 * MILLISECOND)
COUNT: Final = Field[int]("count")
SEEDS: Final = 60


# --- logging ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 3, None])
def test_a_request_without_an_answer_is_logged_by_how_many_there_were(
    lost: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidegate_adapters")
    store, unanswered = Embedded(), 0

    async def main(_: Random) -> None:
        is_out = False

        async def asked(effect: Any) -> object:
            nonlocal unanswered
            if is_out and (lost is None or unanswered < lost):
                unanswered += 1
                return Ambiguous("no reply")
            return await store.awaited(effect)

        async with lease_async(asked, "l", terms=TERMS):
            is_out = True
            await asyncio.sleep(20)

    if lost is None:
        with pytest.raises(LeaseLost):
            event_loop.run(main, 0)
    else:
        event_loop.run(main, 0)
    told = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == leases.__name__]
    levels = [level for level, _ in told]
    assert {each.levelname for each in caplog.records if each.name != leases.__name__} <= {"DEBUG"}
    assert told[0] == ("DEBUG", "the lease 'l': no answer (1): Ambiguous(no reply)")
    assert told.count(("ERROR", "the lease 'l' is lost")) == levels.count("ERROR") == (lost is None)
    assert levels.count("DEBUG") == 1
    assert levels.count("WARNING") == unanswered - 1


def test_its_record_is_asked_for_as_long_as_it_may() -> None:
    asked = list[float]()

    async def main(_: Random) -> None:
        async def silent(effect: Any) -> object:
            del effect
            asked.append(asyncio.get_running_loop().time())
            return NotApplied("no server")

        pauses = Pauses(Fixed(SECOND), jitter_ppm=0, elapsed_max=5 * SECOND)
        with pytest.raises(NotApplied):
            async with lease_async(silent, "l", pauses=pauses):
                raise AssertionError("it is held")

    event_loop.run(main, 0)
    assert [round(each - asked[0]) for each in asked] == [0, 1, 2, 3, 4, 5]


# --- random runs --------------------------------------------------------------------------------------------------------


@attrs.define
class Course:
    """Observes the holders of one lease; `until` is when each holder's belief ends."""

    store: Embedded
    chance: Random
    until: dict[str, float] = attrs.field(factory=dict)
    epochs: list[int] = attrs.field(factory=list)
    lost: int = 0
    is_out: bool = False

    async def asked(self, effect: Any) -> object:
        await asyncio.sleep(self.chance.uniform(0, 0.3))
        fault = self.chance.random()
        if self.is_out or fault < 0.05:
            return self.chance.choice([Ambiguous("no reply"), NotApplied("not sent")])
        reply = self.store(effect)
        await asyncio.sleep(self.chance.uniform(0, 0.3))
        return Ambiguous("no reply") if fault > 0.95 else reply

    def checks(self, name: str, held: Held) -> None:
        """Law EL1."""
        now = asyncio.get_running_loop().time()
        held.check()
        others = [each for each, until in self.until.items() if each != name and until > now]
        assert not others, f"{name} and {others} at {now}"
        self.until[name] = now + held.left.total_seconds()

    async def member(self, name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(self.chance.uniform(0, 5))
            task = asyncio.current_task()
            try:
                async with lease_async(self.asked, "l", terms=TERMS) as held:
                    self.epochs.append(held.epoch)
                    for _ in range(self.chance.randrange(1, 20)):
                        self.checks(name, held)
                        self.store(fenced("rows", "r", held.epoch, Add(COUNT, 1)))
                        await asyncio.sleep(self.chance.uniform(0, 1.5))
                        if not held.left:
                            await asyncio.sleep(0.001)  # the process was paused
                            raise AssertionError("its time is over, and it is not cancelled")
            except LeaseLost:
                self.lost += 1
            finally:
                self.until.pop(name, None)
            assert task is not None
            assert task.cancelling() == 0

    async def weather(self) -> None:
        for _ in range(3):
            await asyncio.sleep(self.chance.uniform(0, 20))
            self.is_out = True
            await asyncio.sleep(self.chance.uniform(0, 12))
            self.is_out = False
            if self.chance.random() < 0.5:
                event_loop.stall(timedelta(seconds=self.chance.uniform(0, 10)))


def course(seed: int) -> Course:
    async def main(chance: Random) -> Course:
        loop = asyncio.get_running_loop()
        rows = (Document.of({"_id": "r", "count": 0, "fence": 0}),)
        store = Embedded({"rows": rows}, lambda: Instant(round(loop.time() * 1_000) * MILLISECOND, STORE))
        seen = Course(store, chance)
        weather = asyncio.create_task(seen.weather())
        async with asyncio.timeout(600):  # in simulated time
            await asyncio.gather(*(seen.member(name) for name in "abc"))
            await weather
        return seen

    return event_loop.run(main, seed)


def check(seed: int) -> Course:
    seen = course(seed)
    record = seen.store(find_one("leases", Eq(ID, "l")))
    row = seen.store(find_one("rows", Eq(ID, "r")))
    assert isinstance(record, Document)
    assert isinstance(row, Document)
    assert seen.epochs == sorted(set(seen.epochs)), "law EL2"
    assert seen.epochs[-1] >= row[FENCE] > 0
    found = lease_of(record)
    assert found is not None
    return seen


def test_at_no_instant_do_two_hold_it() -> None:
    """Laws EL1 and EL2. All members finish, and some lose the lease."""
    runs = [check(seed) for seed in range(SEEDS)]

    assert sum(each.lost for each in runs) > SEEDS // 10
    assert sum(len(each.epochs) for each in runs) == 6 * SEEDS


def plant(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]) -> None:
    monkeypatch.setattr(leases._Tenancy, name, wrong)  # noqa: SLF001  a bug is planted


async def released_early(self: Any) -> None:
    """Planted bug: the lease is released while the block works."""
    self.is_lost = True
    self._runtime.tell(StopRequested(self._now()))


async def not_told(self: Any) -> None:
    """Planted bug: the block gets no notice of a lost lease."""
    self.is_lost = True
    await self._ended.wait()


def wakes_no_more(self: Any) -> None:
    """Planted bug: no renewals."""


@pytest.mark.parametrize(
    ("name", "wrong"), [("_work_ended", released_early), ("_work_ended", not_told), ("_wake", wakes_no_more)]
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]) -> None:
    plant(monkeypatch, name, wrong)
    with pytest.raises((AssertionError, TimeoutError, ExceptionGroup, event_loop.Deadlock)):  # noqa: PT012  the block is under test
        for seed in range(SEEDS):
            check(seed)


# --- on a real MongoDB --------------------------------------------------------------------------------------------------


def test_threads_hold_it_one_after_the_other(mongodb: str, database: str) -> None:
    inside, seen = threading.Lock(), list[int]()
    with MongoClient[dict[str, Any]](mongodb) as client:
        store = Mongo(client, database)

        def work() -> None:
            with lease(store, "l", terms=QUICK) as held:
                assert inside.acquire(blocking=False)
                held.check()
                seen.append(held.epoch)
                time.sleep(0.05)
                inside.release()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        record = store(find_one("leases", Eq(ID, "l")))

    assert seen == [1, 2, 3, 4]
    assert isinstance(record, Document)
    assert (found := lease_of(record)) is not None
    assert found.holder is None


def taken_by_force(uri: str, database: str) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        forced = {"$inc": {"token": 1, "version": 1}, "$set": {"holder": "other", "request": "other@1"}}
        assert client[database].leases.update_one({"_id": "l"}, forced).matched_count == 1


def test_a_block_that_checks_hears_that_its_lease_is_lost(mongodb: str, database: str) -> None:
    with MongoClient[dict[str, Any]](mongodb) as client:
        store = Mongo(client, database)
        store(insert_one("rows", Document.of({"_id": "r", "fence": 0})))
        with (  # noqa: PT012  the block is under test
            pytest.raises(LeaseLost, match="'l' is lost, which was held under epoch 1"),
            lease(store, "l", terms=QUICK) as held,
        ):
            assert store(fenced("rows", "r", held.epoch, Add(COUNT, 1))) == 1
            taken_by_force(mongodb, database)
            assert store(fenced("rows", "r", held.epoch + 1, Add(COUNT, 1))) == 1
            assert store(fenced("rows", "r", held.epoch, Add(COUNT, 1))) == 0
            until = time.monotonic() + 10
            while time.monotonic() < until:
                held.check()
                time.sleep(0.01)


def test_who_never_checks_hears_it_in_the_end(mongodb: str, database: str) -> None:
    for error in (None, KeyError("of the block")):
        with MongoClient[dict[str, Any]](mongodb) as client:
            client[database].leases.delete_many({})
            with pytest.raises(KeyError if error else LeaseLost), lease(Mongo(client, database), "l", terms=QUICK):  # noqa: PT012  the block is under test
                taken_by_force(mongodb, database)
                time.sleep(0.6)
                if error:
                    raise error


def with_tasks(mongodb: str, work: Callable[[AsyncMongo], Awaitable[None]], database: str) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongodb) as client:
            await work(AsyncMongo(client, database))

    in_loop(main())


def test_a_block_of_an_event_loop_is_cancelled(mongodb: str, database: str) -> None:
    async def work(store: AsyncMongo) -> None:
        with pytest.raises(LeaseLost):  # noqa: PT012  the block is under test
            async with lease_async(store, "l", terms=QUICK):
                await asyncio.to_thread(taken_by_force, mongodb, database)
                await asyncio.sleep(30)
                raise AssertionError("it was not cancelled")
        await asyncio.sleep(0)

    with_tasks(mongodb, work, database)


def test_a_leader_that_has_lost_its_lease_leads_again_under_a_higher_epoch(mongodb: str, database: str) -> None:
    async def work(store: AsyncMongo) -> None:
        await store(insert_one("rows", Document.of({"_id": "r", "fence": 0})))
        epochs = list[int]()
        for term in leader_async(store, "l", terms=QUICK):
            async with term as held:
                epochs.append(held.epoch)
                assert await store(fenced("rows", "r", held.epoch, Add(COUNT, 1))) == 1
                if len(epochs) == 1:
                    await asyncio.to_thread(taken_by_force, mongodb, database)
                    await asyncio.sleep(30)
        assert epochs == [1, 3]
        assert await store(fenced("rows", "r", 1, Add(COUNT, 1))) == 0

    with_tasks(mongodb, work, database)


def test_a_leader_in_a_thread_leads_again_until_its_block_ends() -> None:
    """`check` or the end of the `with` raises the loss; either way another term follows."""
    store, epochs = Embedded(), list[int]()
    is_out = False

    def asked(effect: Any) -> object:
        return NotApplied("no server") if is_out else store(effect)

    for term in leader(asked, "l", terms=QUICK):
        with term as held:
            epochs.append(held.epoch)
            is_out = len(epochs) < 3
            until = time.monotonic() + (20 if len(epochs) == 1 else 2 if is_out else 0)
            try:
                while time.monotonic() < until:
                    time.sleep(0.01)
                    if len(epochs) == 1:
                        held.check()
            finally:
                is_out = False
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize("error", [KeyError("of the block"), LeaseLost("the lease 'other' is lost"), None], ids=repr)
def test_what_else_ends_a_term_is_no_reason_for_another(error: Exception | None) -> None:
    """Nor does a caller that never enters the block get another term."""
    store, begun = Embedded(), list[int]()

    async def work() -> None:
        for term in leader_async(store.awaited, "l"):
            async with term as held:
                begun.append(held.epoch)
                if error:
                    raise error

    def in_thread() -> None:
        for term in leader(store, "l"):
            with term as held:
                begun.append(held.epoch)
                if error:
                    raise error

    for lead in (in_thread, lambda: asyncio.run(work())):
        with pytest.raises(type(error)) if error else nullcontext():
            lead()
    assert begun == [1, 2]
    assert len([*leader(store, "l")]) == len([*leader_async(store.awaited, "l")]) == 1
    with pytest.raises(Misuse):
        next(leader(store, "")).__enter__()


def test_who_is_not_patient_goes_without(mongodb: str, database: str) -> None:
    async def work(store: AsyncMongo) -> None:
        async with lease_async(store, "l", terms=QUICK) as held:
            with pytest.raises(LeaseBusy, match="was not to be had in 300 ms"):
                async with lease_async(store, "l", terms=QUICK, patience=timedelta(milliseconds=300)):
                    raise AssertionError("two hold it")
            held.check()

    with_tasks(mongodb, work, database)
    with MongoClient[dict[str, Any]](mongodb) as client:
        store = Mongo(client, database)
        with lease(store, "l", terms=QUICK) as held:
            with pytest.raises(LeaseBusy), lease(store, "l", terms=QUICK, patience=timedelta(milliseconds=300)):
                raise AssertionError("two hold it")
            held.check()


def test_a_cancellation_releases_it_and_goes_on_its_way(mongodb: str, database: str) -> None:
    async def work(store: AsyncMongo) -> None:
        inside = asyncio.Event()

        async def hold() -> None:
            async with lease_async(store, "l", terms=QUICK):
                inside.set()
                await asyncio.sleep(30)

        holder, waiter = asyncio.create_task(hold()), asyncio.create_task(hold())
        await inside.wait()
        await asyncio.sleep(0.3)
        for each in (holder, waiter):
            each.cancel()
        ended = await asyncio.gather(holder, waiter, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError] * 2
        async with lease_async(store, "l", terms=QUICK, patience=timedelta(seconds=5)) as held:
            assert held.epoch > 1

    with_tasks(mongodb, work, database)


@pytest.mark.parametrize("what", ["swallows it", "raises", "is a group that fails"])
def test_a_block_that_makes_something_else_of_its_cancellation_leaves_none_behind(what: str) -> None:
    is_out = False

    async def asked(effect: Any) -> object:
        await asyncio.sleep(0.01)
        return Ambiguous("no reply") if is_out else store(effect)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if what != "swallows it":
                raise KeyError("of the block") from None

    async def block() -> None:
        nonlocal is_out
        async with lease_async(asked, "l", terms=QUICK):
            is_out = True
            if what == "is a group that fails":
                async with asyncio.TaskGroup() as group:
                    group.create_task(stubborn())
            else:
                await stubborn()

    async def work() -> None:
        expected = {"swallows it": LeaseLost, "raises": KeyError}.get(what, ExceptionGroup)
        with pytest.raises(TimeoutError):  # noqa: PT012  the limit around it is under test
            async with asyncio.timeout(10) as limit:
                with pytest.raises(expected):
                    await block()
                limit.reschedule(asyncio.get_running_loop().time())
                await asyncio.sleep(30)

    store = Embedded()
    asyncio.run(work())


@pytest.mark.parametrize("times", [1, 3])
def test_a_block_that_swallows_its_cancellation_is_cancelled_again(times: int) -> None:
    """Libraries swallow it, and so does Python 3.11 if the awaited event ends at that moment."""
    is_out, swallowed = False, 0

    async def asked(effect: Any) -> object:
        await asyncio.sleep(0.01)
        return Ambiguous("no reply") if is_out else store(effect)

    async def work() -> None:
        nonlocal is_out, swallowed
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):  # noqa: PT012  the block is under test
            async with lease_async(asked, "l", terms=QUICK):
                is_out = True
                while True:
                    try:
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        swallowed += 1
                        if swallowed > times:
                            raise
        assert task.cancelling() == 0

    store = Embedded()
    asyncio.run(work())
    assert swallowed == times + 1


def test_who_is_cancelled_while_the_lease_is_lost_is_cancelled() -> None:
    """The cancellation wins over the lost lease."""
    is_out = False

    async def asked(effect: Any) -> object:
        await asyncio.sleep(0.01)
        return Ambiguous("no reply") if is_out else store(effect)

    async def block() -> None:
        nonlocal is_out
        task = asyncio.current_task()
        assert task is not None
        async with lease_async(asked, "l", terms=QUICK):
            is_out = True
            try:
                await asyncio.sleep(30)
            finally:
                task.cancel()
                await asyncio.sleep(30)

    async def work() -> None:
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    store = Embedded()
    asyncio.run(work())


def test_a_lease_leaves_nothing_behind_and_wakes_no_more_than_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    wakes = 0
    wake = leases._Tenancy._wake  # noqa: SLF001  it is counted

    def counted(self: Any) -> None:
        nonlocal wakes
        wakes += 1
        wake(self)

    async def main(_: Random) -> None:
        async with lease_async(Embedded().awaited, "l", terms=TERMS):
            await asyncio.sleep(60)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        woken = wakes
        await asyncio.sleep(60)
        assert wakes == woken

    monkeypatch.setattr(leases._Tenancy, "_wake", counted)  # noqa: SLF001
    event_loop.run(main, 0)
    assert 60 * SECOND // TERMS.heartbeat <= wakes + 2 < 60 * SECOND // TERMS.heartbeat + 10


def test_nobody_waits_for_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, make_proxy: Callable[..., BlackPipe], database: str
) -> None:
    monkeypatch.setattr(leases, "_RELEASE_S", 0.2)
    pipe = make_proxy()
    with MongoClient[dict[str, Any]](f"{pipe.uri}&socketTimeoutMS=60000&serverSelectionTimeoutMS=100") as client:
        store = Mongo(client, database)
        ended = threading.Event()

        def work() -> None:
            with lease(store, "l", terms=QUICK):
                pipe.turn(Link.HANGING)
            pipe.turn(Link.REFUSED)
            with pytest.raises(LeaseBusy), lease(store, "other", patience=timedelta(milliseconds=300)):
                raise AssertionError("nobody has answered")
            ended.set()

        threading.Thread(target=work, daemon=True).start()
        assert ended.wait(30)
        while any(each.name == "lease" for each in threading.enumerate()):
            time.sleep(0.01)  # otherwise its program would retry forever
        pipe.turn(Link.UP)


RENEWED: Final = Terms(ttl=900 * MILLISECOND, heartbeat=60 * MILLISECOND, margin=0)
FAULTS: Final[dict[str, tuple[Action, Body]]] = {
    "the reply is lost": (Action.AMEND, command_error(50)),
    "the request is lost": (Action.ANSWER, command_error(50)),
    "not applied": (Action.ANSWER, command_error(112)),
    "not durable": (Action.AMEND, write_concern_error(64)),
    "refused": (Action.ANSWER, command_error(13)),
}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("fault", [*FAULTS][::LEASE_FAULTS_STEP])
def test_any_command_of_a_block_under_a_lease_may_fail(
    make_proxy: Callable[..., BlackPipe], mongodb: str, database: str, fault: str, kind: str
) -> None:
    """Laws LP2 to LP4: one epoch for each holder, a higher one for the next."""
    (action, reply), proxy = FAULTS[fault], make_proxy()
    said: tuple[type[Exception], ...] = (LeaseLost, LeaseBusy, *([Refused] if fault == "refused" else []))
    with MongoClient[dict[str, Any]](mongodb) as client, MongoClient[dict[str, Any]](proxy.uri) as struck:
        spared = Mongo(client, database)

        def in_a_block(store: Mongo) -> int:
            with lease(store, key, terms=RENEWED, patience=timedelta(seconds=5)) as held:
                assert spared(fenced("rows", key, held.epoch, Add(COUNT, 1))) == 1
                time.sleep(0.15)
                return held.epoch

        async def in_a_block_of_a_loop() -> int:
            async with (
                AsyncMongoClient[dict[str, Any]](proxy.uri) as loops,
                lease_async(AsyncMongo(loops, database), key, terms=RENEWED, patience=timedelta(seconds=5)) as held,
            ):
                assert spared(fenced("rows", key, held.epoch, Add(COUNT, 1))) == 1
                await asyncio.sleep(0.15)
                return held.epoch

        n, has_struck = 0, True
        while has_struck:
            n, key = n + 1, f"l{n + 1}"
            assert spared(insert_one("rows", Document.of({"_id": key, "fence": 0, "count": 0}))) is None
            before = counted(proxy, action)
            proxy.obey(Rule(None, action, skip=n - 1, times=1, reply=reply))
            try:
                epoch = in_a_block(Mongo(struck, database)) if kind == "sync" else in_loop(in_a_block_of_a_loop())
            except said:
                epoch = 0
            proxy.obey()
            has_struck = counted(proxy, action) > before
            row = spared(find_one("rows", Eq(ID, key)))
            assert isinstance(row, Document)
            assert epoch in {0, row[FENCE]}
            assert (row[COUNT], row[FENCE]) in {(0, 0), (1, row[FENCE])}
            if n < 3 or not has_struck:
                with lease(spared, key, terms=RENEWED, patience=timedelta(seconds=20)) as held:
                    assert held.epoch > row[FENCE]
        assert n > 4


def counted(pipe: BlackPipe, action: Action) -> int:
    return sum(pipe.count(command, action) for command in ("find", "insert", "update", "findAndModify"))


def test_a_process_that_is_forked_in_a_block_leaves_it() -> None:
    """The child neither holds the lease nor waits for it; the parent keeps it."""
    code = textwrap.dedent("""
        import os
        from tidegate_adapters.embedded.store import Embedded
        from tidegate_adapters.kit.leases import lease

        with lease(Embedded(), "l") as held:
            child = os.fork()
            held.check()
        if not child:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_where_no_thread_can_have_an_event_loop_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with too many open files."""

    def none() -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio.events, "new_event_loop", none)
    with pytest.raises(OSError, match="too many"), lease(Embedded(), "l"):
        raise AssertionError("there is no lease")


def test_what_the_store_refuses_comes_out() -> None:
    def broken(_: object) -> object:
        raise Misuse("the store is closed")

    with pytest.raises(Misuse, match="the store is closed"), lease(broken, "l"):
        raise AssertionError("there is no lease")


def test_what_is_refused_once_the_record_is_there_comes_out() -> None:
    """For example a user who may insert but not read."""
    store = Embedded()

    def refuses(effect: Any) -> object:
        return store(effect) if isinstance(effect, InsertOne) else Refused("not authorised")

    with pytest.raises(Refused, match="not authorised"), lease(refuses, "l", patience=timedelta(seconds=10)):
        raise AssertionError("there is no lease")


def test_who_is_interrupted_while_he_waits_waits_no_more() -> None:
    """Ctrl-C also ends its thread. SIGINT may be ignored when tests run in the background."""
    code = textwrap.dedent("""
        import os, signal, threading
        from tidegate_adapters.embedded.store import Embedded
        from tidegate_adapters.kit.leases import lease

        signal.signal(signal.SIGINT, signal.default_int_handler)
        store = Embedded()
        with lease(store, "l"):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                with lease(store, "l"):
                    raise AssertionError("two hold it")
            except KeyboardInterrupt:
                pass
        with lease(store, "l") as held:
            assert held.epoch == 2
    """)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"key": ""}, "the name of a lease must be"),
        ({"terms": 5}, "the terms of a lease must be"),
        ({"patience": timedelta(0)}, "patience=0:00:00 is too short"),
        ({"patience": 5}, "patience must be a timedelta, got int 5"),
        ({"collection": "a..b"}, "not a name of a collection"),
        ({"store": 7}, "a store must be callable, got int 7"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_asked(bad: dict[str, Any], said: str) -> None:
    asked = list[object]()
    told: Any = {"store": asked.append, "key": "l"} | bad
    with pytest.raises(Misuse, match=said), lease(**told):
        pass

    async def work() -> None:
        async with lease_async(**told):
            pass

    with pytest.raises(Misuse, match=said):
        asyncio.run(work())
    assert not asked
