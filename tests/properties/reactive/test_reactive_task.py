"""The programs of a reactive task under request failures. Scenarios explore how they meet."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast, final

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.model.checks.strategies.documents import documents
from tidegate.model.checks.strategies.operations import filters
from tidegate.model.documents import (
    ID,
    AllOf,
    Document,
    Eq,
    Field,
    Filter,
    Lt,
    OlderThan,
    Put,
    exactly,
    matches,
    parts_of,
)
from tidegate.model.effects import (
    TOO_LATE,
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Now,
    Refused,
    Sleep,
)
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import MINUTE, PPM, SECOND, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    InsertMany,
    InsertOne,
    StoreTime,
    UpdateOne,
    find_all,
)
from tidegate.reactive.checks.laws import reactive_task as laws
from tidegate.reactive.checks.strategies.snapshot import computed_projections, projections
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp, DeleteWhen
from tidegate.reactive.record.snapshot import Computed, Projection, snapshot
from tidegate.reactive.record.task_documents import DOCUMENT, NEXT_RUN_AT, RECORD, loaded, record_id, stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Claim, Deferred, Succeeded, TaskRules, Why, WhyNot, claim_of
from tidegate.reactive.task.completion import Later
from tidegate.reactive.task.fetching import Idle, Run, SetAside, dues
from tidegate.reactive.task.reactive_task import Ran, ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Exponential, Fixed, Policy
from tidegate.retries.polling import PollingBounds
from tidegate.sim.world.world import CLOCK, Plain, World, contents, document, ids, perform, world_with

T = TypeVar("T")

TOTAL: Final = Field[int]("total")
DOC: Final = Document.of({"_id": "x", "total": 1, "state": "open"})
LEASE: Final = 10 * SECOND
TASK: Final = ReactiveTask(
    name="bill",
    source="orders",
    records="orders_tasks",
    watched=Projection(("total",)),
    rules=TaskRules(debounce=Debounce(0, 0), lease=LEASE),
    policy=Policy(backoff=Fixed(SECOND), attempts_max=2),
    cleaning=CleanUp(keep_for=0),
    attempts=2,
    pauses=Pauses(Fixed(0)),
)

Trouble = Callable[["Store", Effect[object]], object]


@final
@attrs.define
class Store:
    """`trouble` fails requests by number; a bounded write of a `held` record times out."""

    world: World = attrs.field(factory=lambda: world_with({"orders": (DOC,)}))
    answers: list[object] = attrs.field(factory=list)
    calls: list[Claim] = attrs.field(factory=list)
    trouble: dict[int, Trouble] = attrs.field(factory=dict)
    held: tuple[str, ...] = ()
    asked: list[Effect[object]] = attrs.field(factory=list)

    def do(self, effect: Effect[object]) -> object:
        if isinstance(effect, Call):
            claim = effect.arguments[1]
            assert isinstance(claim, Claim)
            self.calls.append(claim)
            return self.answers.pop(0) if self.answers else None
        if isinstance(effect, (UpdateOne, BulkUpdate)) and self.held and effect.collection == TASK.records:
            return self._updated(effect)
        ((self.world, reply),) = perform(effect, self.world, "caller")
        return reply

    def _updated(self, effect: UpdateOne | BulkUpdate) -> object:
        total, ways = 0, tuple(Eq(ID, record_id("bill", key)) for key in self.held)
        for each in effect.updates if isinstance(effect, BulkUpdate) else (effect,):
            if not isinstance(each.where, AllOf) or each.where.parts[0] in ways:
                assert effect.within is not None, "it waits for a minute"
                return Ambiguous(f"{TOO_LATE} (ExecutionTimeout 50)")
            ((self.world, reply),) = perform(each, self.world, "caller")
            total += cast("int", reply)
        return total

    def run(self, program: Coroutine[Effect[object], object, T]) -> T:
        reply: object = None
        try:
            while True:
                asked = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
                self.asked.append(asked)
                reply = self.trouble.get(len(self.asked), Store.do)(self, asked)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def later(self, by: int) -> None:
        self.world = self.world.write(CLOCK, self.world.read(CLOCK) + by)

    def put(self, **values: Any) -> None:
        changes = tuple(Put(Field[Any](name), value) for name, value in values.items())
        self.do(UpdateOne("orders", Eq(ID, "x"), changes))

    @property
    def record(self) -> TaskRecord | None:
        found = self.world.read(document("orders_tasks", record_id("bill", "x")))
        return None if found is None else loaded(found)


def unsent(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return NotApplied("not sent")


def dropped(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return Ambiguous("no reply")


def reply_lost(store: Store, effect: Effect[object]) -> object:
    store.do(effect)
    return Ambiguous("no reply")


def not_durable(store: Store, effect: Effect[object]) -> object:
    reply = store.do(effect)
    return NotDurable("no majority") if isinstance(effect, (InsertOne, UpdateOne, DeleteOne)) else reply


TROUBLES: Final = (unsent, dropped, reply_lost, not_durable)


def planned(task: ReactiveTask = TASK, **values: Any) -> Store:
    store = Store()
    if values:
        store.put(**values)
    assert store.run(task.plan_pass(("x",), "p1")) == ()
    store.asked.clear()
    return store


def no_clock() -> Instant:
    raise AssertionError("nobody asks for an age")


@given(projections() | computed_projections(), st.none() | filters(), documents())
def test_a_look_sees_the_same_in_the_fields_that_it_reads(
    watched: Projection, where: Filter | None, doc: Document
) -> None:
    assume(where is None or not any(isinstance(part, OlderThan) for part in parts_of(where)))
    task = ReactiveTask(name="bill", source="orders", watched=watched, where=where)
    fields = task.reader.fields
    if watched.computed or not watched.paths:
        assert fields is None
    elif fields is not None:
        read = Document(tuple(item for item in doc.items if item[0] in {ID.name, *(each.name for each in fields)}))
        assert exactly(snapshot(read, watched)) == exactly(snapshot(doc, watched))
        assert where is None or matches(where, read, no_clock) == matches(where, doc, no_clock)


# --- request failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("at", range(1, 5))
def test_a_look_is_written_whatever_becomes_of_one_request(at: int, trouble: Trouble) -> None:
    """Law RT1: the request for the record, the document, the time or the write."""
    store = Store(trouble={at: trouble})

    assert store.run(TASK.plan_pass(("x",), "p1")) == ()
    assert store.record is not None
    assert store.record.status is TaskStatus.PENDING
    assert len([*store.world.read(ids("orders_tasks"))]) == 1


def test_a_pass_tells_which_looks_are_not_known_to_be_written() -> None:
    """The position of a stream must not pass them."""
    store = Store(world_with({"orders": (DOC, DOC.put(ID, "y"))}), trouble={4: the_first_alone, 8: dropped})

    assert store.run(TASK.plan_pass(("x", "y"), "p1")) == ("y",)
    assert store.record is not None


def the_first_alone(store: Store, effect: Effect[object]) -> object:
    assert isinstance(effect, InsertMany)
    store.do(InsertOne(effect.collection, effect.docs[0]))
    return Ambiguous("no reply")


def test_a_thousand_new_documents_are_planned_and_removed_in_a_few_requests() -> None:
    keys = tuple(f"{number:03}" for number in range(FOUND_MAX))
    store = Store(world_with({"orders": tuple(DOC.put(ID, key) for key in keys)}))
    assert store.run(TASK.plan_pass(keys[::2], "p1")) == ()
    assert [type(effect) for effect in store.asked] == [FindAll, FindAll, StoreTime, InsertMany]
    store.asked.clear()

    def another_was_faster(store: Store, effect: Effect[object]) -> object:
        assert isinstance(effect, InsertMany)
        store.do(InsertOne(effect.collection, effect.docs[7]))
        return store.do(effect)

    store.trouble = {4: another_was_faster}
    assert store.run(TASK.plan_pass(keys, "p2")) == ()
    assert [type(effect) for effect in store.asked] == [
        FindAll,
        FindAll,
        StoreTime,
        InsertMany,
        FindAll,
        FindAll,
        StoreTime,
    ]
    records = contents(store.world, "orders_tasks")
    assert len(records) == FOUND_MAX
    made = {record[DOCUMENT]: str(record[RECORD]).partition("/")[0] for record in records}
    assert made == {key: f"p{number % 2 + 1}" for number, key in enumerate(keys)}

    store.asked.clear()
    store.trouble = {}
    store.world = world_with({"orders_tasks": tuple(map(over, records))}).write(CLOCK, Instant(SECOND))
    assert store.run(TASK.clean_up(keys)) == ()
    assert [type(effect) for effect in store.asked] == [FindAll, FindAll, StoreTime, *[DeleteMany] * 5]
    assert contents(store.world, "orders_tasks") == ()


def over(record: Document) -> Document:
    done = attrs.evolve(
        loaded(record), status=TaskStatus.COMPLETED, next_run_at=None, snapshot=None, waiting_since=None
    )
    return stored(done, "bill", record[DOCUMENT])


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("at", range(1, 9))
def test_whatever_becomes_of_one_request_the_next_worker_goes_on(at: int, trouble: Trouble) -> None:
    """Laws RT1 and RT5."""
    store = planned()
    store.trouble = {at: trouble}
    if at == 6:  # the handler is called
        store.trouble = {}
    store.run(TASK.work_one("w1"))
    store.later(LEASE)
    store.run(TASK.work_one("w2"))

    assert store.record is not None
    assert (store.record.status, 1 <= len(store.calls) <= 2) == (TaskStatus.COMPLETED, True)
    assert laws.no_change_is_lost(store.record, 1, [1])


def test_a_claim_whose_reply_is_lost_is_recognised() -> None:
    store = planned()
    store.trouble = {3: reply_lost}
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.SUCCEEDED)

    store = planned()
    store.trouble = {3: dropped}
    assert store.run(TASK.work_one("w1")) is Idle.UNHEARD

    store = planned()
    store.trouble = {3: reply_lost, 4: dropped}
    assert store.run(TASK.work_one("w1")) is Idle.UNHEARD
    assert store.record is not None
    assert store.record.status is TaskStatus.PROCESSING


def test_where_nobody_answers_nothing_is_known() -> None:
    store = planned()
    store.trouble = {7: dropped, 8: dropped}
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], None)

    store.trouble = dict.fromkeys(range(100), dropped)
    assert store.run(TASK.completer.renew("x", store.calls[0])) is None
    assert store.run(TASK.clean_up(("x",))) == ("x",)
    assert store.run(TASK.work_one("w1")) is Idle.NOT_CLAIMED


def test_a_run_that_cannot_begin_leaves_its_claim() -> None:
    store = planned()
    store.trouble = {4: dropped, 5: dropped}
    assert store.run(TASK.work_one("w1")) is Idle.UNHEARD

    def deleted(at: Store, effect: Effect[object]) -> object:
        at.do(DeleteOne("orders_tasks", Eq(ID, record_id("bill", "x"))))
        return dropped(at, effect)

    store = planned()
    store.trouble = {4: deleted}
    assert store.run(TASK.work_one("w1")) is Idle.STALE
    assert not store.calls


def test_what_a_worker_was_not_told_of_is_given_back() -> None:
    """Law RT8: no record of another worker, in progress here, or free. It counts as no attempt."""
    store = planned()
    store.run(_claims(TASK, store))
    record = store.record
    assert record is not None
    assert store.run(TASK.fetcher.give_back("w2", ())) == 0
    assert store.run(TASK.fetcher.give_back("w1", (Run("x", record, claim_of(record)),))) == 0
    assert store.record == record
    assert store.run(TASK.fetcher.give_back("w1", ())) == 1
    assert store.record is not None
    assert (store.record.status, store.record.attempts) == (TaskStatus.PENDING, 0)
    assert store.run(TASK.work_one("w2")) == Ran(store.calls[0], Why.SUCCEEDED)

    store = planned()
    store.run(_claims(TASK, store))
    store.later(LEASE)
    assert store.run(TASK.fetcher.give_back("w1", ())) == 0


def test_what_the_store_refuses_is_passed_on() -> None:
    with pytest.raises(Refused) as first:
        Store(trouble={4: refused}).run(TASK.plan_pass(("x",), "p1"))
    store = planned()
    store.trouble = {3: refused}
    with pytest.raises(Refused) as second:
        store.run(TASK.work_one("w1"))
    assert first.value == second.value == Refused("not authorised")


def refused(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return Refused("not authorised")


# --- results of handlers ----------------------------------------------------------------------------------------------


def test_records_are_kept_beside_their_documents() -> None:
    assert ReactiveTask(name="bill", source="orders").records == "orders_tasks"
    assert ReactiveTask(name="bill", source="orders", records="bills").records == "bills"


def test_nothing_is_due_before_its_time_and_after_its_end() -> None:
    store = Store()
    assert store.run(TASK.work_one("w1")) is Idle.NOTHING_DUE
    assert store.run(TASK.plan_pass(("x",), "p1")) == ()
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.SUCCEEDED)
    assert store.run(TASK.work_one("w1")) is Idle.NOTHING_DUE
    assert str(Ran(store.calls[0], None)).endswith("nobody knows")


def test_a_handler_that_fails_is_called_again_and_given_up() -> None:
    store = planned()
    store.answers = [Refused("no"), Refused("")]

    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.RETRIED)
    assert store.run(TASK.work_one("w1")) is Idle.NOTHING_DUE
    store.later(SECOND)
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[1], Why.GIVEN_UP)
    assert store.record is not None
    assert store.record.last_error == "Refused()"


@pytest.mark.parametrize(
    "answer", [False, True, 0, "", "done", (), Deferred(Instant(0)), Succeeded(), ValueError("no"), Later, Document()]
)
def test_what_is_no_answer_is_a_run_that_has_failed(answer: object) -> None:
    store = planned()
    store.answers = [answer]

    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.RETRIED)
    assert store.record is not None
    assert f"answered {typed(answer)}:" in str(store.record.last_error)
    store.later(SECOND)
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[1], Why.SUCCEEDED)


def test_errors_of_handlers_are_asked_for() -> None:
    store = planned()
    store.run(TASK.work_one("w1"))
    assert [each.catches for each in store.asked if isinstance(each, Call)] == [True]


def test_a_handler_may_ask_to_be_called_later() -> None:
    store = planned()
    store.answers = [Later(5 * SECOND)]

    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.DEFERRED)
    store.later(5 * SECOND)
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[1], Why.SUCCEEDED)
    assert [claim.attempts for claim in store.calls] == [1, 1]


def test_later_may_be_at_once_and_not_before() -> None:
    assert Later(0).after == 0
    with pytest.raises(Misuse):
        Later(-1)


def test_a_worker_that_never_comes_back_is_given_up() -> None:
    """Law RT5: the claim counted its attempt, so the next worker asks the policy."""
    task = attrs.evolve(TASK, policy=Policy(backoff=Fixed(0), attempts_max=1))
    store = planned(task)
    store.run(_claims(task, store))
    store.later(LEASE)
    store.asked.clear()
    store.trouble = {3: dropped}

    assert store.run(task.work_one("w2")) is Idle.NOT_CLAIMED
    assert store.run(task.work_one("w2")) is Idle.GIVEN_UP
    assert store.run(task.work_one("w2")) is Idle.NOTHING_DUE
    assert store.calls == []


async def _claims(task: ReactiveTask, store: Store) -> None:
    store.trouble = {len(store.asked) + at: dropped for at in (4, 5)}
    assert await task.work_one("w1") is Idle.UNHEARD


def test_what_does_not_match_is_completed_without_its_handler() -> None:
    task = attrs.evolve(TASK, where=Eq(Field[str]("state"), "open"))
    store = planned(task)
    store.put(state="closed")

    assert store.run(task.work_one("w1")) is Idle.SKIPPED
    assert (store.calls, store.record and store.record.status) == ([], TaskStatus.COMPLETED)
    store.put(at=Instant(0))
    with pytest.raises(Misuse):
        store.run(attrs.evolve(TASK, where=OlderThan(Field[Instant]("at"), 1)).plan_pass(("x",), "p2"))


def test_what_cannot_be_computed_is_a_failure() -> None:
    watched = Projection((), (("total", Computed(lambda doc: 1 // doc[TOTAL])),))
    task = attrs.evolve(TASK, watched=watched)
    store = planned(task)
    store.put(total=0)
    ran = store.run(task.work_one("w1"))

    assert isinstance(ran, Ran)
    assert (ran.end, store.calls) == (Why.RETRIED, [])
    before = store.record
    assert store.run(task.plan_pass(("x",), "p2")) == ()
    assert store.run(task.clean_up(("x",))) == ()
    assert store.record == before


def junk(**values: object) -> Document:
    """Due by its fields, but no valid record, or that of another document."""
    record = planned().world.read(document("orders_tasks", record_id("bill", "x")))
    assert record is not None
    return Document.of({**dict(record.items), **values})


UNREADABLE: Final = (
    Document.of({"_id": "bill/x", "task": "bill", "document": "x", "status": "pending", "next_run_at": Instant(0)}),
    Document.of({"_id": "bill/x", "task": "bill", "next_run_at": Instant(0)}),
    junk(status="of the next version"),
    junk(version="1"),
    junk(document=7),
)


@pytest.mark.parametrize("doc", [*UNREADABLE, junk(_id="x"), junk(document="z")])
def test_nothing_waits_behind_what_is_no_record(doc: Document) -> None:
    other = Document.of({"_id": "y", "total": 7})
    for at, trouble in ((0, unsent), (2, dropped), (3, reply_lost)):
        store = Store(world_with({"orders": (DOC, other), "orders_tasks": (doc,)}), trouble={at: trouble})
        if at:
            assert store.run(TASK.work_one("w1")) is Idle.NOT_CLAIMED
        if at != 3:  # it was quarantined then, unreported
            told = store.run(TASK.work_one("w1"))
            assert isinstance(told, SetAside)
            assert (told.record, str(told).startswith(f'set "{doc[ID]}" aside: ')) == (doc[ID], True)
        assert store.run(TASK.plan_pass(("y",), "p1")) == ()
        assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.SUCCEEDED)
        assert store.calls[0].snapshot == Document.of({"total": 7})


@pytest.mark.parametrize("doc", [*UNREADABLE, junk(task="another")])
def test_a_look_at_what_has_no_record_makes_one(doc: Document) -> None:
    """The change is not lost because of an invalid record under its id."""
    store = Store(world_with({"orders": (DOC,), "orders_tasks": (doc,)}), trouble={2: dropped})

    assert store.run(TASK.plan_pass(("x",), "p1")) == ()
    assert store.run(TASK.work_one("w1")) == Ran(store.calls[0], Why.SUCCEEDED)
    assert store.calls[0].snapshot == Document.of({"total": 1})


@pytest.mark.parametrize("doc", [*UNREADABLE, junk(task="another"), junk(document=(7,)), junk(document="y")])
def test_a_look_at_many_is_not_held_up_by_what_is_no_record(doc: Document) -> None:
    other = Document.of({"_id": "y", "total": 7})
    store = Store(world_with({"orders": (DOC, other), "orders_tasks": (doc,)}))

    assert store.run(TASK.plan_pass(("x", "y"), "p1")) == ()
    for _ in range(2):
        assert isinstance(store.run(TASK.work_one("w1")), Ran)
    assert {each.snapshot for each in store.calls} == {Document.of({"total": 1}), Document.of({"total": 7})}


def test_a_run_adopts_what_is_there_when_it_begins() -> None:
    """Law RE2 of the programs: the handler gets a change that was made after the look."""
    store = planned()
    store.put(total=2)
    store.run(TASK.work_one("w1"))

    assert store.calls[0].snapshot == Document.of({"total": 2})


# --- renewal, and the end of records ------------------------------------------------------------------------------------


def test_a_lease_is_renewed_while_its_claim_stands() -> None:
    store = planned()

    async def renewing() -> object:
        (run,), _ = await TASK.fetcher.take("w1", 1)
        await Sleepy(8 * SECOND)
        assert await TASK.completer.renew(run.key, run.claim) is Why.RENEWED
        await Sleepy(8 * SECOND)
        assert await TASK.handle(run.key, run.claim) is None
        return await TASK.completer.end(((run, None),))

    def slept(at: Store, effect: Effect[object]) -> object:
        if isinstance(effect, Sleepy):
            at.later(effect.by)
            return None
        return at.do(effect)

    store.trouble = dict.fromkeys(range(100), slept)
    assert store.run(renewing()) == (Why.SUCCEEDED,)
    assert store.run(TASK.completer.renew("x", store.calls[0])) is WhyNot.ENDED


@attrs.frozen
class Sleepy(Effect[None]):
    by: int


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("at", range(1, 5))
def test_what_is_gone_loses_its_record_whatever_becomes_of_one_request(at: int, trouble: Trouble) -> None:
    """Law RT4. It is completed first, and removed when it is old enough."""
    store = planned()
    store.do(DeleteOne("orders", Eq(ID, "x")))
    assert store.run(TASK.clean_up(("x",))) == ()
    store.run(TASK.work_one("w1"))
    store.later(SECOND)
    store.asked.clear()
    store.trouble = {at: trouble}

    assert store.run(TASK.clean_up(("x", "y"))) == ()
    assert store.record is None
    assert store.calls == []


def test_what_comes_back_as_it_was_keeps_its_record() -> None:
    """Law RE45. A sweep sees a document that does not match; it matches again, unchanged."""
    cleaning = CleanUp(delete_when=DeleteWhen.SOURCE_GONE_OR_LEFT, keep_for=0)
    task = attrs.evolve(TASK, where=Eq(Field[str]("state"), "open"), cleaning=cleaning)
    store = planned(task)
    store.answers = [Later(SECOND)]
    assert store.run(task.work_one("w1")) == Ran(store.calls[0], Why.DEFERRED)
    store.later(SECOND)
    store.put(state="closed")

    def opened(at: Store, effect: Effect[object]) -> object:
        at.trouble = {}
        at.put(state="open")
        before = at.record
        assert at.run(task.plan_pass(("x",), "p2")) == ()
        assert at.record == before
        return at.do(effect)

    store.asked.clear()
    store.trouble = {3: opened}
    assert store.run(task.clean_up(("x",))) == ()
    assert store.run(task.work_one("w1")) == Ran(store.calls[1], Why.SUCCEEDED)


# --- delays -----------------------------------------------------------------------------------------------------------


def test_retries_are_scattered_as_the_policy_says() -> None:
    """The jitter depends on record and claim, so joint failures do not retry together."""
    task = attrs.evolve(TASK, policy=Policy(backoff=Fixed(10 * SECOND), jitter_ppm=PPM // 2, attempts_max=9))
    waits: list[int] = []
    for request in ("p1", "p2"):
        store = Store(answers=[Refused("no")] * 3)
        assert store.run(task.plan_pass(("x",), request)) == ()
        for _ in range(3):
            store.run(task.work_one("w1"))
            assert store.record is not None
            assert store.record.next_run_at is not None
            waits.append(store.record.next_run_at - store.world.read(CLOCK))
            store.later(10 * SECOND)

    assert all(5 * SECOND <= each <= 10 * SECOND for each in waits)
    assert len(set(waits)) == 6


def test_a_request_that_failed_waits_before_it_is_sent_again() -> None:
    task = attrs.evolve(TASK, attempts=4, pauses=Pauses(Exponential(SECOND, cap=3 * SECOND)))
    store = Store(trouble=dict.fromkeys(range(100), silent))

    assert store.run(task.plan_pass(("x",), "p1")) == ("x",)
    assert [each.duration for each in store.asked if isinstance(each, Sleep)] == [SECOND, 2 * SECOND, 3 * SECOND]
    claim = Claim("r1", "w1", 1, None, 1, None)
    for program in (task.clean_up(("x",)), task.completer.renew("x", claim)):
        store.asked.clear()
        store.run(program)
        assert [each.duration for each in store.asked if isinstance(each, Sleep)] == [SECOND, 2 * SECOND, 3 * SECOND]


def silent(store: Store, effect: Effect[object]) -> object:
    return store.do(effect) if isinstance(effect, Sleep) else dropped(store, effect)


@pytest.mark.parametrize("at", [4, 7])
def test_the_begin_and_the_end_of_a_run_wait_likewise(at: int) -> None:
    task = attrs.evolve(TASK, pauses=Pauses(Fixed(SECOND)))
    store = planned(task)

    def changed(there: Store, effect: Effect[object]) -> object:
        there.trouble = {}
        there.put(total=2)
        assert there.run(task.plan_pass(("x",), "p2")) == ()
        return there.do(effect)

    store.trouble = {at: changed if at == 7 else dropped}
    ran = store.run(task.work_one("w1"))
    assert isinstance(ran, Ran)
    assert ran.end is (Why.RUNS_AGAIN if at == 7 else Why.SUCCEEDED)
    assert [each.duration for each in store.asked if isinstance(each, Sleep)] == [SECOND]


def test_a_worker_looks_ever_more_rarely_until_it_finds_something() -> None:
    """Laws PO1 and PO2 of the program, with jitter."""
    task = attrs.evolve(TASK, polling=PollingBounds(least=SECOND, most=5 * SECOND, jitter=0))
    store = Store()
    program = task.work("w1")
    slept = worked(store, program, 5)
    assert slept == [SECOND, 2 * SECOND, 4 * SECOND, 5 * SECOND, 5 * SECOND]

    assert store.run(task.plan_pass(("x",), "p1")) == ()
    assert worked(store, program, 3) == [SECOND, 2 * SECOND, 4 * SECOND]
    assert store.record is not None
    assert store.record.status is TaskStatus.COMPLETED

    store.trouble = dict.fromkeys(range(1_000), silent_store)
    assert worked(store, program, 3) == [5 * SECOND, 5 * SECOND, 5 * SECOND]
    jittering = attrs.evolve(task, polling=PollingBounds(least=SECOND, most=SECOND, jitter=SECOND))
    first, second = (worked(Store(), jittering.work(name), 3) for name in ("w1", "w2"))
    assert all(SECOND <= each <= 2 * SECOND for each in (*first, *second))
    assert first != second


def silent_store(store: Store, effect: Effect[object]) -> object:
    return store.do(effect) if isinstance(effect, (Now, Sleep)) else dropped(store, effect)


def worked(store: Store, program: Coroutine[Effect[object], object, object], sleeps: int) -> list[int]:
    asked, slept = program.send(None), list[int]()
    while True:
        if isinstance(asked, Sleep):
            slept.append(asked.duration)
            store.later(asked.duration)
            if len(slept) == sleeps:
                return slept
        store.asked.append(asked)
        reply = None if isinstance(asked, Sleep) else store.trouble.get(len(store.asked), Store.do)(store, asked)
        asked = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)


def test_what_is_due_of_many_tasks_is_one_request() -> None:
    rests = attrs.evolve(TASK, name="mail", rules=attrs.evolve(TASK.rules, debounce=Debounce(5 * SECOND)))
    tasks, store = (TASK, attrs.evolve(TASK, name="ship"), rests, attrs.evolve(TASK, name="none")), Store()
    for task in tasks[:3]:
        assert store.run(task.plan_pass(("x",), "p1")) == ()
    assert len(store.run(tasks[1].fetcher.take("a worker", 1))[0]) == 1
    names, before = tuple(task.name for task in tasks), len(store.asked)

    assert store.run(dues("orders_tasks", names, MINUTE)) == (("bill", 0), ("ship", LEASE), ("mail", 5 * SECOND))
    assert len(store.asked) == before + 2
    assert store.run(dues("orders_tasks", names, SECOND // 2)) == (("bill", 0),)
    store.later(MINUTE)
    assert store.run(dues("orders_tasks", names, 0)) == (("bill", 0), ("ship", 0), ("mail", 0))
    assert store.run(dues("orders_tasks", ("none",), MINUTE)) == ()
    with pytest.raises(Misuse):
        store.run(dues("orders_tasks", names, -1))


def test_what_is_no_time_keeps_no_other_task_of_its_collection_from_being_found_due() -> None:
    """MongoDB matches a list of times if one element does, and sorts it first."""
    store = planned()
    foreign = Document.of({"_id": "y", "task": "ship", "next_run_at": [Instant(0)]})
    records = contents(store.world, "orders_tasks")
    store.world = world_with({"orders_tasks": (foreign, *records)}).write(CLOCK, store.world.read(CLOCK))
    assert len(store.run(_due_in("orders_tasks"))) == 2
    assert store.run(dues("orders_tasks", ("bill", "ship"), MINUTE)) == (("bill", 0),)


async def _due_in(records: str) -> tuple[Document, ...]:
    return await find_all(records, Lt(NEXT_RUN_AT, Instant(MINUTE)), limit=9)


def test_the_store_is_asked_for_its_time() -> None:
    store = planned()
    store.later(SECOND)
    assert store.run(_asked()) == Instant(SECOND)
    assert str(StoreTime()) == "ask for the store's time"
    assert Plain() != store.world


async def _asked() -> Instant:
    return await StoreTime()


# --- records held by transactions ---------------------------------------------------------------------------------------

KEYS: Final = ("a", "b", "c")


def running(*keys: str) -> tuple[Store, tuple[Run, ...]]:
    store = Store(world_with({"orders": tuple(Document.of({"_id": key, "total": 1}) for key in keys)}))
    assert store.run(TASK.plan_pass(keys, "r")) == ()
    runs, others = store.run(TASK.fetcher.take("dead", len(keys)))
    assert (len(runs), others) == (len(keys), ())
    return store, runs


def test_a_record_that_is_held_holds_up_no_other_claim() -> None:
    store, _ = running(*KEYS)
    store.do(InsertOne("orders", Document.of({"_id": "new", "total": 1})))
    assert store.run(TASK.plan_pass(("new",), "s")) == ()
    store.later(LEASE + SECOND)
    store.held = ("b",)

    runs, others = store.run(TASK.fetcher.take("w", 10))
    assert sorted(str(run.key) for run in runs) == ["a", "c", "new"]
    assert others == (Idle.HELD,)
    store.held = ()
    (run,), others = store.run(TASK.fetcher.take("w", 10))
    assert (run.key, others) == ("b", ())


def test_a_record_that_is_held_holds_up_no_other_renewal_and_no_other_end() -> None:
    store, runs = running(*KEYS)
    store.held = ("b",)
    claims, (_, held, _) = tuple((run.key, run.claim) for run in runs), runs

    assert store.run(TASK.completer.renew_all(claims)) == (Why.RENEWED, None, Why.RENEWED)
    asked = len(store.asked)
    completing = store.run(TASK.completer.renew_all(claims, (held.claim,)))
    assert completing == (Why.RENEWED, Why.COMPLETING, Why.RENEWED)
    updates = [each for each in store.asked[asked:] if isinstance(each, (UpdateOne, BulkUpdate))]
    assert [type(each) for each in updates] == [BulkUpdate, UpdateOne]
    ends = store.run(TASK.completer.end(tuple((run, None) for run in runs)))
    assert ends[1] is None
    assert {ends[0], ends[2]} <= {Why.SUCCEEDED, WhyNot.ENDED}  # the joint request wrote the first one
    store.held = ()
    assert store.run(TASK.completer.end(((held, None),))) == (Why.SUCCEEDED,)


def test_a_lease_that_is_another_s_is_lost_though_its_handler_completes_it() -> None:
    store, (one,) = running("a")
    store.later(LEASE + SECOND)
    assert store.run(TASK.fetcher.take("w", 1))[0]
    assert store.run(TASK.completer.renew_all(((one.key, one.claim),), (one.claim,))) == (WhyNot.ANOTHER_CLAIM,)


def test_a_record_that_is_held_holds_up_no_other_look() -> None:
    store, _ = running(*KEYS)
    for key in KEYS:
        store.do(UpdateOne("orders", Eq(ID, key), (Put(TOTAL, 2),)))
    store.do(InsertOne("orders", Document.of({"_id": "new", "total": 1})))
    store.held = ("b",)
    planned = store.run(TASK.plan_and_take((*KEYS, "new"), "s", "w", 10))
    assert [run.key for run in planned.runs] == ["new"]
    assert planned.held == ("b",)
    assert store.run(TASK.plan_pass(planned.left, "t")) == ()
    assert store.run(TASK.plan_pass((*KEYS, "new"), "u")) == ("b",)
    store.held = ()
    assert store.run(TASK.plan_pass(("b",), "v")) == ()


def test_after_some_that_are_held_the_others_of_a_request_are_left() -> None:
    """Else a process that died in many transactions would block the request for long."""
    keys = tuple(f"d{number}" for number in range(12))
    store, runs = running(*keys)
    store.held = keys
    asked = len(store.asked)
    assert store.run(TASK.completer.renew_all(tuple((run.key, run.claim) for run in runs))) == (None,) * 12
    assert sum(isinstance(each, UpdateOne) for each in store.asked[asked:]) == 8


@pytest.mark.parametrize(("lease", "within"), [(100_000, 50_000), (5 * SECOND, 208_333), (MINUTE, 250_000)])
def test_the_limit_of_a_write_is_a_small_part_of_the_lease(lease: int, within: int) -> None:
    task = attrs.evolve(TASK, rules=TaskRules(debounce=Debounce(0, 0), lease=lease))
    assert task.within == within
    store = Store(world_with({"orders": tuple(Document.of({"_id": key, "total": 1}) for key in KEYS)}))
    _ = store.run(task.plan_pass(KEYS, "r"))
    runs, _ = store.run(task.fetcher.take("w", 3))
    _ = store.run(task.completer.end(tuple((run, None) for run in runs)))
    limits = [each.within for each in store.asked if isinstance(each, BulkUpdate)]
    assert limits == [None, 4 * within]
