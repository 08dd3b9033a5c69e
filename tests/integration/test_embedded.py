"""The same programs run on the embedded store and on a real MongoDB."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo import MongoClient

from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.array_push_lock import TRANSITION_LOCK, ArrayPushLock, RaceCondition, Written
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import CHANGED_AT, HISTORY, OWNER, REQUEST, STATUS, VERSION
from tidegate.invocations.record.status import NotAllowed, NotOwner
from tidegate.invocations.record.transition import Granted, transition
from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Ge, In, OlderThan, Put, PutServerTime
from tidegate.model.effects import DUPLICATE_KEY, Effect, Refused
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, STORE, Instant
from tidegate.model.operations import (
    delete_many,
    find_one,
    find_one_and_update,
    insert_one,
    update_one,
)
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Exponential
from tidegate.sim.world.world import Cell, Key, document, ids, perform
from tidegate_adapters.embedded.store import Embedded, _Changed, _Draft, _Order
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.runtime.driver import Handle, choosing, documents, local, local_async, run, run_async

COLLECTION: Final = "jobs"
COUNT: Final = Field[int]("count")
THREADS: Final = 16
TASKS: Final = 64


async def asked(effect: Effect[Any]) -> Any:
    return await effect


def doc(**contents: object) -> Document:
    return Document.of({"_id": "x", **contents})


async def move(key: str, target: str, runner: str | None, request: str) -> object:
    return await transition(COLLECTION, INVOCATION, key, target, runner=runner, request=request)


def test_what_many_deletes_leave_is_in_natural_order() -> None:
    """A document that was deleted and inserted again comes last, once."""
    store = Embedded({COLLECTION: tuple(Document.of({"_id": key}) for key in "abcd")})

    assert store(delete_many(COLLECTION, In(ID, ("a", "c")))) == 2
    store(insert_one(COLLECTION, Document.of({"_id": "a"})))
    assert [each[ID] for each in store.contents(COLLECTION)] == ["b", "d", "a"]


def cpu_of_many(count: int) -> float:
    cells: dict[tuple[str, ...], Any] = {
        document(COLLECTION, key).name: Document.of({"_id": key, "count": key}) for key in range(count)
    }
    store = _Draft({**cells, ids(COLLECTION).name: _Order(dict.fromkeys(range(count)))}, {})
    began = time.thread_time()
    ((_, deleted),) = perform(delete_many(COLLECTION, Ge(COUNT, 0)), store, "embedded")
    assert deleted == count
    return time.thread_time() - began


def test_a_write_of_many_costs_what_it_writes() -> None:
    """Copying all written documents for each write would take sixty times as long."""
    few, many = (min(cpu_of_many(count) for _ in range(3)) for count in (250, 4_000))

    assert many < 32 * few


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abcd"), st.integers()), max_size=12))
def test_what_an_operation_saw_before_a_write_it_sees_still(writes: list[tuple[int, str, int]]) -> None:
    cells = {name: Cell[int | None]((name,), None) for name in "abcd"}
    drafts: list[tuple[_Draft, dict[tuple[str, ...], int]]] = [(_Draft({("a",): -1}, {}), {})]
    for at, name, value in writes:
        draft, written = drafts[at % len(drafts)]
        drafts.append((draft.write(cells[name], value), {**written, (name,): value}))

    for draft, written in drafts:
        assert draft.written == written
        seen = {("a",): -1} | written
        assert [draft.read(cell) for cell in cells.values()] == [seen.get((name,)) for name in cells]


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=12))
def test_an_order_of_ids_stays_as_it_was_when_more_is_done_to_it(done: list[tuple[int, bool]]) -> None:
    base = _Order(dict.fromkeys(range(4)))
    orders: list[tuple[_Order | _Changed, list[Key], list[Key]]] = [(base, [0, 1, 2, 3], [])]
    for new, (at, is_added) in enumerate(done, 4):
        order, old, added = orders[at % len(orders)]
        key = at % 5
        orders.append(
            (order + (new,), old, [*added, new])  # noqa: RUF005  no tuple
            if is_added
            else (order.without(key), [each for each in old if each != key], added)
        )

    assert [list(order) for order, _, _ in orders] == [old + added for _, old, added in orders]


# The same programs on either store


@pytest.fixture(params=["embedded", pytest.param("mongodb", marks=pytest.mark.mongo)])
def handle(request: pytest.FixtureRequest) -> Iterator[Handle]:
    if request.param == "embedded":
        yield choosing(documents(Embedded()), local())
        return
    with MongoClient[dict[str, Any]](request.getfixturevalue("mongodb")) as client:
        yield choosing(documents(Mongo(client, request.getfixturevalue("database"))), local())


def test_a_record_lives(handle: Handle) -> None:
    answers = [
        run(move("x", *command), handle)
        for command in (
            (status.REGISTERED, None, "q1"),
            (status.PENDING, "ann", "q2"),
            (status.RUNNING, "bob", "q3"),
            (status.RUNNING, "ann", "q4"),
            (status.PENDING, "ann", "q5"),
            (status.SUCCESS, "ann", "q6"),
        )
    ]
    record = run(asked(find_one(COLLECTION, Eq(ID, "x"))), handle)

    assert [answer.version for answer in answers if isinstance(answer, Granted)] == [1, 2, 3, 4]
    assert [type(answers[2]), type(answers[4])] == [NotOwner, NotAllowed]
    assert (record[STATUS], record[OWNER], record[VERSION]) == (status.SUCCESS, None, 4)
    assert [entry[REQUEST] for entry in record[HISTORY]] == ["q1", "q2", "q4", "q6"]
    assert abs(record[CHANGED_AT].at - time.time_ns() // 1_000) < MINUTE


def test_the_array_push_lock_moves_a_record(handle: Handle) -> None:
    made = doc(invocation_id="i", status=status.REGISTERED, status_runner_id=None, transition_lock=())
    run(asked(insert_one(COLLECTION, made)), handle)

    answer = run(ArrayPushLock(COLLECTION, INVOCATION, "i", status.PENDING, "ann", "q1").run(), handle)
    record = run(asked(find_one(COLLECTION, Eq(ID, "x"))), handle)

    assert answer == Written(status.PENDING, "ann")
    assert (record[STATUS], record[TRANSITION_LOCK]) == (status.PENDING, ())


def test_the_array_push_lock_gives_way(handle: Handle) -> None:
    claim = f"rival-0:{time.time_ns() // 10**9}.000000"
    made = doc(invocation_id="i", status=status.REGISTERED, status_runner_id=None, transition_lock=(claim,))
    run(asked(insert_one(COLLECTION, made)), handle)

    pauses = Pauses(Exponential(10 * MILLISECOND), jitter_ppm=0)
    program = ArrayPushLock(
        COLLECTION, INVOCATION, "i", status.PENDING, "ann", "q1", attempts=3, pauses=pauses, stale=MINUTE
    )
    started = time.monotonic()
    answer = run(program.run(), handle)
    record = run(asked(find_one(COLLECTION, Eq(ID, "x"))), handle)

    assert answer == RaceCondition(3, status.REGISTERED)
    assert time.monotonic() - started >= 0.03
    assert record[TRANSITION_LOCK] == (claim,)


def test_the_clock_of_the_store_judges(handle: Handle) -> None:
    """`PutServerTime` stores whole milliseconds; ages use the same clock."""
    run(asked(insert_one(COLLECTION, doc())), handle)
    record = run(asked(find_one_and_update(COLLECTION, Eq(ID, "x"), PutServerTime(CHANGED_AT))), handle)
    run(asked(update_one(COLLECTION, Eq(ID, "x"), Put(COUNT, 1))), handle)

    def is_older(age: int) -> bool:
        return run(asked(find_one(COLLECTION, Eq(ID, "x"), OlderThan(CHANGED_AT, age))), handle) is not None

    assert record[CHANGED_AT].clock == STORE
    assert record[CHANGED_AT].at % MILLISECOND == 0
    assert not is_older(10 * SECOND)

    time.sleep(0.05)

    assert is_older(20 * MILLISECOND)


def test_an_id_is_taken_once(handle: Handle) -> None:
    run(asked(insert_one(COLLECTION, doc(count=1))), handle)
    with pytest.raises(Refused) as raised:
        run(asked(insert_one(COLLECTION, doc(count=2))), handle)

    assert raised.value.reason == DUPLICATE_KEY
    assert run(asked(find_one(COLLECTION, Eq(ID, "x"))), handle)[COUNT] == 1


# The embedded store


def test_it_begins_with_what_it_is_given() -> None:
    given = tuple(Document.of({"_id": key, "count": 0}) for key in ("b", "a", 1))
    store = Embedded({COLLECTION: given})
    before = store.contents(COLLECTION)
    run(asked(update_one(COLLECTION, Eq(ID, "a"), Add(COUNT, 1))), choosing(documents(store)))

    assert before == given
    assert [each[COUNT] for each in store.contents(COLLECTION)] == [0, 1, 0]
    assert store.contents("others") == ()


def test_threads_take_turns() -> None:
    store = Embedded({COLLECTION: (doc(count=0),)})
    handle = choosing(documents(store), local())

    def work(number: int) -> list[object]:
        for _ in range(100):
            run(asked(update_one(COLLECTION, Eq(ID, "x"), Add(COUNT, 1))), handle)
        run(move("job", status.REGISTERED, None, f"{number} registers"), handle)
        return [run(move("job", status.PENDING, f"{number}", f"{number} claims"), handle)]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for some in pool.map(work, range(THREADS)) for answer in some]
    counted, job = store.contents(COLLECTION)

    assert counted[COUNT] == THREADS * 100
    assert sum(isinstance(each, Granted) and each.version == 2 for each in answers) == 1
    assert job[VERSION] == 2


def test_tasks_share_it() -> None:
    store = Embedded({COLLECTION: (doc(count=0),)})
    handle = choosing(documents(store.awaited), local_async())

    async def race() -> list[object]:
        await run_async(move("job", status.REGISTERED, None, "made"), handle)
        claims = (run_async(move("job", status.PENDING, f"{n}", f"{n} claims"), handle) for n in range(TASKS))
        return await asyncio.gather(*claims)

    assert sum(isinstance(each, Granted) for each in asyncio.run(race())) == 1


def test_its_clock_can_be_given() -> None:
    now = Instant(0)
    store = Embedded({COLLECTION: (doc(changed_at=Instant(0)),)}, clock=lambda: now)
    is_old = asked(find_one(COLLECTION, AllOf((Eq(ID, "x"), OlderThan(CHANGED_AT, MINUTE)))))
    handle = choosing(documents(store))
    now += MINUTE

    assert run(is_old, handle) is not None
