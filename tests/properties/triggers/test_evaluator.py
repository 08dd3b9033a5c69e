"""The programs of triggers under request failures. Scenarios explore how evaluators meet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from itertools import product
from typing import Any, Final, TypeVar, final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.invocations.limits.admission import Call, Control, Rule
from tidegate.invocations.limits.registration import ORIGIN
from tidegate.invocations.limits.slot_acquisition import PickedUp, Picker
from tidegate.invocations.record.jobs import Job, job_fields, job_of
from tidegate.invocations.record.record_documents import viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.upkeep.recoverer import Recoverer, RecoveryPass
from tidegate.model.documents import ID, SIZE_MAX, Document, Eq, Field, Filter, exactly
from tidegate.model.effects import Ambiguous, Effect, NotApplied, Refused, Sleep
from tidegate.model.effects import Call as Ask
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import (
    BulkUpdate,
    DeleteOne,
    InsertMany,
    InsertOne,
    StoreTime,
    UpdateOne,
    find_all,
    insert_one,
)
from tidegate.model.programs import find_every
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.retries.schedule import Missed, Never, Schedule, ScheduleCell
from tidegate.services.members import begin, new_member
from tidegate.services.retention import Retention
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.world import CLOCK, World, contents, perform, world_with
from tidegate.strategies import documents
from tidegate.triggers import _cron_cells, _documents, _starting
from tidegate.triggers import evaluator as evaluators
from tidegate.triggers.checks import laws
from tidegate.triggers.checks.strategies import firing as strategies
from tidegate.triggers.conditions import Equal, Judge, OnCron, OnEvent, OnResult, condition_id
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    Kind,
    ResultContext,
    StatusContext,
)
from tidegate.triggers.evaluator import Evaluator, Noted, Skipped, TriggerPass, plain_job
from tidegate.triggers.firing import (
    Claims,
    Failed,
    Fired,
    Firing,
    GivenUp,
    Held,
    Plan,
    RunState,
    TriggerRun,
    plan,
    purge,
)
from tidegate.triggers.trigger import FromAll, FromContext, Occurrence, Static, Trigger
from tidegate.triggers.trigger_documents import (
    STATE,
    TRIGGER,
    arguments_of,
    call_of,
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    stored_cell,
    stored_occurrence,
    stored_run,
)

T = TypeVar("T")

MINUTE: Final = 60 * SECOND
A: Final = OnEvent("a")
MINUTELY: Final = OnCron(Schedule("* * * * *", Missed.EACH))
ON_A: Final = Trigger(task="t", conditions=(A,))
ON_N: Final = Trigger(task="t", conditions=(OnEvent("a", Equal(Document.of({"n": 1}))),))
ON_MINUTE: Final = Trigger(task="t", conditions=(MINUTELY,))
EVENT: Final = EventContext("a", "a1", Document.of({"n": 1}))
TIMES: Final = st.integers(0, 10**6).map(lambda second: Instant(second * SECOND))


def next_minute(expression: str, after: Instant) -> Instant:
    assert expression == MINUTELY.schedule.expression
    return Instant((after.at // MINUTE + 1) * MINUTE, after.clock)


def evaluator(
    *triggers: Trigger, attempts: int = 3, keep: int = 0, batch: int = 2, made: type[Evaluator] = Evaluator
) -> Evaluator:
    return made(
        triggers=triggers,
        next_after=next_minute,
        claims=Claims(expiry=MINUTE, attempts_max=2),
        keep=keep,
        batch=batch,
        attempts=attempts,
        pauses=Pauses(Fixed(0)),
    )


Trouble = Callable[["Store", Effect[object]], object]


@final
@attrs.define
class Store:
    """`trouble` gives failures by request number."""

    world: World = attrs.field(factory=lambda: world_with({}))
    trouble: dict[int, Trouble] = attrs.field(factory=dict)
    asked: list[Effect[object]] = attrs.field(factory=list)

    def do(self, effect: Effect[object]) -> object:
        ((self.world, reply),) = perform(effect, self.world, "caller")
        return reply

    def run(self, program: Coroutine[Effect[object], object, T]) -> T:
        self.asked.clear()
        reply: object = None
        try:
            while True:
                asked = program.throw(reply) if isinstance(reply, Exception) else program.send(reply)
                self.asked.append(asked)
                reply = self.trouble.get(len(self.asked), Store.do)(self, asked)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def run_beside(self, program: Coroutine[Effect[object], object, object]) -> None:
        other = Store(self.world)
        other.run(program)
        self.world = other.world

    def later(self, by: int) -> None:
        self.world = self.world.write(CLOCK, self.world.read(CLOCK) + by)

    @property
    def runs(self) -> list[TriggerRun]:
        return [loaded_run(doc) for doc in contents(self.world, "runs")]

    @property
    def readable_runs(self) -> list[TriggerRun]:
        return [loaded_run(doc) for doc in contents(self.world, "runs") if doc.has(STATE)]

    @property
    def invocations(self) -> tuple[Document, ...]:
        return contents(self.world, "invocations")


def unsent(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return NotApplied("not sent")


def dropped(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return Ambiguous("no reply")


def reply_lost(store: Store, effect: Effect[object]) -> object:
    store.do(effect)
    return Ambiguous("no reply")


def refused(store: Store, effect: Effect[object]) -> object:
    del store, effect
    return Refused("not authorised")


# --- documents --------------------------------------------------------------------------------------------------------

CONTEXTS: Final[tuple[Context, ...]] = (
    EVENT,
    StatusContext("t", "i", 3, "failed", Document.of({"n": 1})),
    ResultContext("t", "i", 3, (1, "two", None)),
    ResultContext("t", "i", 3, arguments_at="i#a", result_at="i@2"),
    ExceptionContext("t", "i", 3, "ValueError"),
    ExceptionContext("t", "i", 3, "ValueError", arguments_at="i#a"),
    ExceptionContext("t", "i", 3, "IndexError", above=("LookupError", "Exception")),
    CronContext(Schedule("* * * * *"), Instant(MINUTE)),
    CronContext(Schedule("3 * * * *", Missed.EACH, 5), Instant(MINUTE)),
)
OCCURRENCES: Final = st.builds(Occurrence, st.sampled_from(("c1", "c2")), st.sampled_from(CONTEXTS), TIMES)
REASONS: Final = st.lists(st.sampled_from(("no", "none")), min_size=1, max_size=2).map(tuple)
STATES: Final = st.one_of(
    st.builds(Held, st.just("p"), TIMES),
    st.builds(Failed, REASONS),
    st.builds(GivenUp, REASONS, TIMES),
    st.builds(Fired, TIMES),
)
FIRINGS: Final = st.lists(OCCURRENCES, min_size=1, max_size=3, unique_by=lambda each: each.id).flatmap(
    lambda each: st.builds(Firing, st.just("t"), st.just(tuple(each)), st.integers(1, 3))
)


@given(OCCURRENCES)
def test_an_occurrence_is_loaded_as_it_was_stored(occurrence: Occurrence) -> None:
    """Law TO1, of every kind of context."""
    assert loaded_occurrence(stored_occurrence(occurrence)) == occurrence


@given(FIRINGS, STATES, st.integers(1, 3), st.integers(3, 5))
def test_a_run_is_loaded_as_it_was_stored(firing: Firing, state: Held, attempt: int, version: int) -> None:
    """Law TO1."""
    run = TriggerRun(firing, state, attempt, version)
    assert loaded_run(stored_run(run)) == run


@given(st.lists(TIMES, unique=True, max_size=3))
def test_a_cell_is_loaded_as_it_was_stored(times: list[Instant]) -> None:
    """Law TO1."""
    cell = ScheduleCell(Instant(10**6 * SECOND), 2, tuple(sorted(times, key=lambda each: each.at)))
    assert loaded_cell(stored_cell("c", cell)) == cell


def test_a_document_that_holds_none_of_these_is_misuse() -> None:
    run = stored_run(TriggerRun(Firing("t", (Occurrence("c", EVENT, Instant(0)),)), Fired(Instant(0))))
    with pytest.raises(Misuse, match="has no 'state'"):
        loaded_run(run.without(STATE))
    with pytest.raises(Misuse, match="'lost' is not a state of a run"):
        loaded_run(run.put(STATE, "lost"))
    context = Field[Document]("context")
    occurrence = stored_occurrence(Occurrence("c", EVENT, Instant(0)))
    with pytest.raises(Misuse, match="a context has no 'event'"):
        loaded_occurrence(occurrence.put(context, occurrence[context].without(Field[str]("event"))))


# --- a pass -----------------------------------------------------------------------------------------------------------


def noticed(*triggers: Trigger) -> Store:
    store = Store()
    assert store.run(evaluator(*triggers).notice(EVENT, "r")).is_kept
    return store


def test_what_happened_is_kept_once_whatever_becomes_of_a_request() -> None:
    for trouble in (unsent, dropped, reply_lost):
        for at in (1, 2):
            store = Store(trouble={at: trouble})
            assert store.run(evaluator(ON_A).notice(EVENT, "r")) == Noted(is_kept=True)
            assert len(contents(store.world, "occurrences")) == 1
    nobody = Store(trouble=dict.fromkeys(range(9), dropped))
    assert nobody.run(evaluator(ON_A).notice(EVENT, "r")) == Noted(is_kept=False)
    store = Store()
    assert store.run(evaluator(ON_A).notice(EventContext("b", "b1"), "r")) == Noted(is_kept=True)
    assert contents(store.world, "occurrences") == ()


@pytest.mark.parametrize("trouble", [unsent, dropped, reply_lost])
@pytest.mark.parametrize("at", range(1, 13))
def test_it_fires_once_whatever_becomes_of_one_request(at: int, trouble: Trouble) -> None:
    """Laws TE1 and TE2: once its claim expires, the next pass completes it."""
    store = noticed(ON_A)
    store.trouble = {at: trouble}
    programs = evaluator(ON_A)
    store.run(programs.evaluate("p1"))
    store.trouble = {}
    for number in range(2, 5):
        store.later(MINUTE)
        store.run(programs.evaluate(f"p{number}"))

    assert [run.state.settled for run in store.runs] == [True]
    assert [doc[ID] for doc in store.invocations] == [store.runs[0].id]
    assert contents(store.world, "occurrences") == ()


def test_a_pass_waits_before_it_asks_again() -> None:
    programs = attrs.evolve(evaluator(ON_A), pauses=Pauses(Fixed(SECOND), 0))
    met: set[str] = set()
    for at, trouble in product(range(1, 20), (dropped, too_late)):
        store = noticed(ON_A)
        store.trouble = {at: trouble}
        store.run(programs.evaluate("p1"))
        (asked, *after) = store.asked[at - 1 :] or (None,)
        if asked in after and (trouble is dropped or isinstance(asked, UpdateOne)):
            assert Sleep(SECOND) in after[: after.index(asked)]
            met.add(f"{trouble.__name__} {getattr(asked, 'collection', '')}".strip())
    assert met == {"dropped", "dropped runs", "dropped invocations", "dropped calls", "too_late runs"}


def too_late(store: Store, effect: Effect[object]) -> object:
    return 0 if isinstance(effect, UpdateOne) else store.do(effect)


def test_an_invocation_is_registered_with_what_it_is_of() -> None:
    ask = FromContext("n", Kind.EVENT, lambda context: getattr(context, "payload", None))
    trigger = Trigger(task="t", conditions=(A,), provider=ask)
    store = noticed(trigger)
    store.run(evaluator(trigger).evaluate("p1"))

    (made,) = store.invocations
    assert viewed(made) == StatusRecord("registered", None, 1)
    (call,) = contents(store.world, "calls")
    origin = {"trigger": trigger.id, "of": (contents(store.world, "occurrences")[0][ID],), "parent": "a1"}
    stored = {"_id": made[ID], "task": "t", "names": ("n",), "values": ("1",), "origin": Document.of(origin)}
    assert call == Document.of({**stored, "job": job_fields(plain_job("t", Document.of({"n": 1})))})
    assert job_of(made) == plain_job("t", Document.of({"n": 1}))


def test_a_call_waits_where_its_task_says() -> None:
    def made(task: str, arguments: Document) -> Job:
        if task == "t":
            raise Misuse("t has no parameter 'n'")
        if task == "u":
            raise ValueError("a secret")
        return attrs.evolve(plain_job(task, arguments), queue="slow", priority=7)

    triggers = tuple(Trigger(task=task, conditions=(A,)) for task in ("t", "u", "v"))
    store = noticed(*triggers)
    store.run(attrs.evolve(evaluator(*triggers), make_job=made).evaluate("p1"))

    (of,) = [job_of(each) for each in store.invocations]
    assert (of.task, of.queue, of.priority) == ("v", "slow", 7)
    reasons = {
        run.state.reasons for run in map(loaded_run, contents(store.world, "runs")) if isinstance(run.state, Failed)
    }
    assert reasons == {("t has no parameter 'n'",), ("what makes the call of 'u' raised ValueError",)}


def test_what_was_fired_is_picked_up_and_recovered_like_any_other() -> None:
    store = noticed(ON_A)
    store.run(evaluator(ON_A).evaluate("p1"))
    (made,) = store.invocations
    key = str(made[ID])
    picker = Picker(key=key, call=Call("t"), rule=Rule(Control.TASK), runner="r", request="q")
    assert store.run(picker.run()) == PickedUp(2)

    async def join() -> None:
        await insert_one("members", new_member("me"))
        await begin("members", "me")

    store.run(join())
    store.later(MINUTE)
    assert store.run(Recoverer(me="me", dead_after=MINUTE).run()) == RecoveryPass(is_done=True, owners=("r",))
    assert [viewed(doc) for doc in store.invocations] == [StatusRecord("rerouted", None, 4)]


def test_the_rule_of_a_task_holds_for_what_is_fired() -> None:
    """Laws TE6 and AD2: one invocation serves two events."""
    store = noticed(ON_A)
    programs = attrs.evolve(evaluator(ON_A), rules=(("t", Rule(Control.TASK)),))
    assert store.run(programs.notice(EventContext("a", "a2"), "r")).is_kept
    for number in range(2):
        assert store.run(programs.evaluate(f"p{number}")) == TriggerPass(is_whole=True)

    assert [type(run.state) for run in store.runs] == [Fired, Fired]
    assert len(store.invocations) == 1
    assert contents(store.world, "occurrences") == ()


@given(documents())
def test_arguments_are_read_from_a_call_as_they_were_written(arguments: Document) -> None:
    """Law TO2."""
    found = arguments_of(call_of("t", arguments))
    assert exactly(Document(tuple(sorted(found.items)))) == exactly(Document(tuple(sorted(arguments.items))))


def test_what_has_no_arguments_is_given_up_in_the_end() -> None:
    trigger = Trigger(task="t", conditions=(A,), provider=FromContext("none", Kind.CRON, lambda _: {}))
    store = noticed(trigger)
    for number in range(4):
        store.run(evaluator(trigger).evaluate(f"p{number}"))

    assert [(run.attempt, type(run.state)) for run in store.runs] == [(2, GivenUp)]
    assert store.invocations == ()
    assert contents(store.world, "occurrences") == ()


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_provider_is_given_what_was_uploaded(*, is_there: bool, is_given: bool) -> None:
    """Law NO6: an unreadable upload fails the run; other providers do not need it."""
    seen: list[Context] = []

    def given(what: tuple[Context, ...]) -> dict[str, int]:
        seen.extend(what)
        return {"n": 1}

    trigger = Trigger(task="t", conditions=(OnResult("s"),), provider=FromAll("all", given) if is_given else Static())
    store = Store()
    store.run(evaluator(trigger).notice(ResultContext("s", "i", 3, arguments_at="i#a", result_at="i@2"), "r"))
    texts = {"i@2": "[1]", "i#a": """{"x": "[2]"}"""} if is_there else {}

    def answered(store: Store, effect: Effect[object]) -> object:
        if not isinstance(effect, Ask):
            return Store.do(store, effect)
        return texts.get(str(effect.arguments[0]), Refused("PayloadAbsent: i@2 is not there"))

    store.trouble = dict.fromkeys(range(100), answered)
    store.run(evaluator(trigger).evaluate("p"))
    (made,) = store.runs

    if is_there and is_given:
        assert seen == [ResultContext("s", "i", 3, (1,), Document.of({"x": (2,)}))]
    if is_there or not is_given:
        assert isinstance(made.state, Fired)
    else:
        assert made.state == Failed(("what was uploaded cannot be read: PayloadAbsent: i@2 is not there",))


def test_a_claim_that_expires_again_and_again_is_given_up() -> None:
    store = noticed(ON_A)
    for number in range(3):
        store.trouble = dict.fromkeys(range(8, 99), dropped)
        store.run(evaluator(ON_A).evaluate(f"p{number}"))
        store.later(MINUTE)

    assert [type(run.state) for run in store.runs] == [GivenUp]


def test_a_run_whose_trigger_is_gone_is_given_up() -> None:
    store = noticed(ON_A)
    store.trouble = dict.fromkeys(range(8, 99), dropped)
    store.run(evaluator(ON_A).evaluate("p1"))
    store.trouble = {}
    store.run(evaluator().evaluate("p2"))

    assert [type(run.state) for run in store.runs] == [GivenUp]
    assert contents(store.world, "occurrences") == ()


def test_what_another_was_faster_with_is_left_to_it() -> None:
    store = Store()
    programs = evaluator(ON_MINUTE)
    store.run(programs.evaluate("p1"))
    store.later(MINUTE)

    def moved(at: Store, effect: Effect[object]) -> object:
        at.run_beside(programs.evaluate("other"))
        return at.do(effect)

    store.trouble = {3: moved}
    store.run(programs.evaluate("p2"))
    assert len(store.invocations) == 1

    def taken(at: Store, effect: Effect[object]) -> object:
        at.do(DeleteOne("runs", Eq(ID, at.runs[0].id)))
        return at.do(effect)

    store = noticed(ON_A)
    store.trouble = {8: taken}
    store.run(evaluator(ON_A).evaluate("p1"))
    assert store.runs == []
    assert len(store.invocations) == 1

    def never(at: Store, effect: Effect[object]) -> object:
        return Refused("duplicate key") if isinstance(effect, InsertOne) else at.do(effect)

    store = noticed(ON_A)
    store.trouble = dict.fromkeys(range(50), never)
    store.run(evaluator(ON_A).evaluate("p1"))
    assert store.runs == []


GOOD: Final = Trigger(task="good", conditions=(OnEvent("good"),))
BOTH: Final = Trigger(task="both", conditions=(A, OnEvent("b")), within=MINUTE)
BAD: Final = Trigger(task="bad", conditions=(OnCron(Schedule("61 * * * *")),))
LARGE: Final = Trigger(task="large", conditions=(OnEvent("large"),))
PAGE: Final = 5
MANY: Final = 2 * PAGE + 2


def occurrence(code: str, name: str, second: int) -> Occurrence:
    return Occurrence(condition_id(OnEvent(code)), EventContext(code, name), Instant(second * SECOND))


USED: Final = TriggerRun(
    Firing(BOTH.id, (occurrence("a", "used", 1), occurrence("b", "used", 0)), 3), Fired(Instant(0))
)


def full() -> Store:
    waiting = [occurrence("a", f"a{number}", 1) for number in range(MANY)]
    fired = [
        TriggerRun(Firing(BOTH.id, (occurrence("a", f"{n}", 0), occurrence("b", f"{n}", 0)), n), Fired(Instant(0)))
        for n in range(1, MANY)
        if n != USED.firing.number
    ]
    others = (occurrence("b", "b1", 2), occurrence("good", "g1", 3), occurrence("large", "l1", 3))
    events = (*waiting, USED.firing.occurrences[0], *others)
    return Store(
        world_with(
            {
                "occurrences": (*map(stored_occurrence, events), Document.of({"_id": "0", "old": 1})),
                "runs": (*map(stored_run, fired), stored_run(USED).without(STATE)),
            }
        ).write(CLOCK, Instant(9 * SECOND))
    )


def takes_not(reason: str, is_it: Callable[[str, Document], bool]) -> Trouble:
    def told(store: Store, effect: Effect[object]) -> object:
        if not isinstance(effect, (InsertOne, InsertMany)):
            return store.do(effect)
        docs = effect.docs if isinstance(effect, InsertMany) else (effect.doc,)
        good = tuple(doc for doc in docs if not is_it(effect.collection, doc))
        if len(good) == len(docs):
            return store.do(effect)
        return Ambiguous(reason) if good and store.do(InsertMany(effect.collection, good)) else Refused(reason)

    return told


too_large: Final = takes_not("document too large", lambda _, doc: doc.held(Field[str]("task")) == "large")


def port(expression: str, after: Instant) -> Instant:
    if expression.startswith("61"):
        raise ValueError(expression)
    return next_minute(expression, after)


async def page_by_page(collection: str, *where: Filter) -> tuple[Document, ...]:
    return await find_every(collection, *where, limit=PAGE)


def check_te7(monkeypatch: pytest.MonkeyPatch, **wrong: object) -> None:
    for name, part in {"FOUND_MAX": PAGE, "find_every": page_by_page, **wrong}.items():
        for module in (evaluators, _cron_cells, _documents, _starting):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, part)
    store = full()
    store.trouble = dict.fromkeys(range(999), too_large)
    programs = attrs.evolve(evaluator(GOOD, BOTH, BAD, LARGE), next_after=port)
    for number in range(2):
        store.run(programs.evaluate(f"p{number}"))
    answer = store.run(programs.evaluate("last"))

    assert {origin: len(of) for origin, of in fired_by(store).items()} == {GOOD.id: 1, BOTH.id: MANY + 1}
    assert [each.state.reasons for each in store.readable_runs if isinstance(each.state, GivenUp)] == [
        ("document too large",)
    ]
    assert {each.key: each.reason for each in answer.skipped} == {
        "0": "a record has no 'condition'",
        condition_id(BAD.conditions[0]): "the port raised ValueError",
        USED.id: "a record has no 'state'",
    }


def fired_by(store: Store) -> dict[str, tuple[str, ...]]:
    origins = [doc[ORIGIN] for doc in contents(store.world, "calls")]
    return {origin[TRIGGER]: origin[Field[tuple[str, ...]]("of")] for origin in origins}


def test_a_pass_does_what_there_is_to_do_whatever_becomes_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law TE7."""
    check_te7(monkeypatch)


async def one_page(collection: str, *where: Filter) -> tuple[Document, ...]:
    return await find_all(collection, *where, limit=PAGE)


def all_or_none(
    load: Callable[[Document], T], found: Collection[Document]
) -> tuple[tuple[T, ...], tuple[Skipped, ...]]:
    """Planted: one unreadable document ends the pass."""
    return tuple(map(load, found)), ()


def silent(_: str, reason: str) -> Skipped:
    return Skipped("", reason)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("find_every", one_page),
        ("readable", all_or_none),
        ("skipped_for", silent),
        ("_used", lambda *_: frozenset()),
        ("Broken", Never),
    ],
)
def test_law_te7_notices(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssertionError, Misuse)):
        check_te7(monkeypatch, **{name: wrong})


def test_who_reports_learns_of_what_could_not_be_decided() -> None:
    """Law TE8."""
    broken = OnEvent("a", Judge("j", lambda _: 1 // 0))
    store = Store()
    answer = store.run(evaluator(ON_A, Trigger(task="t", conditions=(broken,))).notice(EVENT, "r"))

    assert answer.is_kept
    assert [key for key, _ in answer.unknown] == [condition_id(broken)]
    assert len(contents(store.world, "occurrences")) == 1


@pytest.mark.parametrize("is_there", [False, True])
def test_what_is_reported_in_a_transaction_is_kept_with_it(*, is_there: bool) -> None:
    """Law TE10: a duplicate key would end the transaction, so existing ones are searched."""
    programs, store = evaluator(ON_A), Store()
    if is_there:
        store.run(programs.notice(EVENT, "r"))
    assert store.run(programs.notice_beside(EVENT)).is_kept
    assert laws.evaluator.is_kept_with_the_rest(is_kept=len(contents(store.world, "occurrences")) == 1, is_written=True)


@pytest.mark.parametrize("trouble", [unsent, dropped, reply_lost, refused])
def test_all_conditions_of_an_event_notice_it_or_none(trouble: Trouble) -> None:
    """Law TE12: whichever request fails, or all from one on."""
    programs, kept = evaluator(ON_A, ON_N), 0
    for at, times in product(range(1, 12), (1, 99)):
        store = Store(trouble=dict.fromkeys(range(at, at + times), trouble))
        try:
            is_kept = store.run(programs.notice(EVENT, "r")).is_kept
        except Refused:
            is_kept = False
        kept += is_kept
        found = len(contents(store.world, "occurrences"))
        assert laws.evaluator.all_have_noticed_or_none(found, 2, is_kept=is_kept)
        assert is_kept or times == 99 or trouble is refused
    assert kept


def test_what_several_conditions_have_noticed_before_fires_no_more() -> None:
    """The event is reported again after some conditions have it, and after each firing."""
    programs, store = evaluator(ON_A, ON_N), noticed(ON_A)
    for number in range(3):
        assert store.run(programs.notice(EVENT, f"r{number}")).is_kept
        assert len(contents(store.world, "occurrences")) == 2
        for name in ("p", "q"):
            store.run(programs.evaluate(f"{name}{number}"))
        assert contents(store.world, "occurrences") == ()
    assert len(store.invocations) == 2


def test_a_run_that_cannot_be_recorded_is_given_up() -> None:
    """Its occurrences together exceed a document; no other run waits for it."""
    programs, store = evaluator(BOTH, GOOD), Store()
    half = Document.of({"data": bytes(SIZE_MAX // 2)})
    for context in (EventContext("a", "1", half), EventContext("b", "1", half), EventContext("good", "good")):
        assert store.run(programs.notice(context, "r")).is_kept
    for number in range(2):
        assert store.run(programs.evaluate(f"p{number}")) == TriggerPass(is_whole=True)
    assert [run.state.reasons for run in store.runs if isinstance(run.state, GivenUp)] == [("document too large",)]
    for context in (EventContext("a", "2"), EventContext("b", "2")):
        assert store.run(programs.notice(context, "r")).is_kept
    assert store.run(programs.evaluate("last")).skipped == ()
    assert fired_by(store).keys() == {BOTH.id, GOOD.id}
    assert [run.firing.number for run in store.runs if run.firing.trigger_id == BOTH.id] == [1, 2]


def test_what_cannot_even_be_given_up_is_named_by_each_pass() -> None:
    refuses = takes_not("not authorised", lambda name, doc: name == "runs" and doc[TRIGGER] == LARGE.id)
    store = noticed(LARGE, GOOD)
    for code in ("large", "good"):
        assert store.run(evaluator(LARGE, GOOD).notice(EventContext(code, code), "r")).is_kept
    store.trouble = dict.fromkeys(range(99), refuses)
    for number in range(2):
        answer = store.run(evaluator(LARGE, GOOD).evaluate(f"p{number}"))
        assert [each.reason for each in answer.skipped] == ["not authorised"]
    assert fired_by(store).keys() == {GOOD.id}


def burst(number: int) -> Store:
    events = [occurrence("a", f"a{each}", 0) for each in range(number)]
    return Store(world_with({"occurrences": tuple(map(stored_occurrence, events)), "calls": (), "runs": ()}))


def test_what_fires_together_costs_as_much_as_one() -> None:
    programs, store = evaluator(ON_A), burst(250)
    assert store.run(programs.evaluate("p1")) == TriggerPass(is_whole=True)
    assert len(store.asked) == 4 + 3 * 8
    assert {type(run.state) for run in store.runs} == {Fired}
    assert {doc[ID] for doc in store.invocations} == {run.id for run in store.runs}
    assert len(store.invocations) == 250
    store.run(programs.evaluate("p2"))
    assert len(store.asked) == 4 + 1
    assert contents(store.world, "occurrences") == ()


def test_what_takes_longer_counts_for_more() -> None:
    """A claim has to last: ten with a rule weigh as much as a hundred without."""
    store, ruled = burst(25), attrs.evolve(evaluator(ON_A), rules=(("t", Rule(Control.ARGUMENTS)),))
    store.run(ruled.evaluate("p1"))
    assert sum(isinstance(each, InsertMany) and each.collection == "runs" for each in store.asked) == 3
    assert {type(run.state) for run in store.runs} == {Fired}

    given = Trigger(task="t", conditions=(OnResult("s"),), provider=FromAll("all", lambda _: {}))
    for trigger, alone in ((given, 2), (Trigger(task="t", conditions=(OnResult("s"),)), 0)):
        store = Store()
        for key in ("i", "j"):
            store.run(evaluator(trigger).notice(ResultContext("s", key, 3, result_at=f"{key}@2"), "r"))
        read: Trouble = lambda at, effect: "[1]" if isinstance(effect, Ask) else at.do(effect)  # noqa: E731
        store.trouble = dict.fromkeys(range(100), read)
        store.run(evaluator(trigger).evaluate("p1"))
        assert sum(isinstance(each, InsertOne) and each.collection == "runs" for each in store.asked) == alone
        assert {type(run.state) for run in store.runs} == {Fired}


def test_a_pass_whose_time_is_over_stops_between_two_hundreds() -> None:
    store, programs = burst(250), evaluator(ON_A)
    assert store.run(programs.evaluate("p1", Instant(0))) == TriggerPass(is_whole=False)
    assert [type(run.state) for run in store.runs] == [Fired] * 100
    assert store.run(programs.evaluate("p2", Instant(1))) == TriggerPass(is_whole=True)
    assert [type(run.state) for run in store.runs] == [Fired] * 250
    assert len(contents(store.world, "occurrences")) == 150


@pytest.mark.parametrize("trouble", [unsent, dropped, reply_lost])
@pytest.mark.parametrize("at", range(1, 17))
def test_several_fire_once_whatever_becomes_of_one_request(at: int, trouble: Trouble) -> None:
    """Laws TE1 and TE2."""
    store, programs = burst(3), evaluator(ON_A)
    store.trouble = {at: trouble}
    store.run(programs.evaluate("p1"))
    store.trouble = {}
    for number in range(2, 5):
        store.later(MINUTE)
        store.run(programs.evaluate(f"p{number}"))

    assert [type(run.state) for run in store.runs] == [Fired] * 3
    assert sorted(str(doc[ID]) for doc in store.invocations) == sorted(run.id for run in store.runs)
    assert contents(store.world, "occurrences") == ()


def test_others_may_be_faster_with_some() -> None:
    store, programs = burst(3), evaluator(ON_A)
    other = evaluator(ON_A, made=variant(Evaluator, plan=one_alone))

    def taken(at: Store, effect: Effect[object]) -> object:
        at.run_beside(other.evaluate("other"))
        return at.do(effect)

    store.trouble = {7: taken}
    assert store.run(programs.evaluate("p1")) == TriggerPass(is_whole=True)
    assert isinstance(store.asked[6], InsertMany)
    assert [type(run.state) for run in store.runs] == [Fired] * 3
    assert len(store.invocations) == 3


def one_alone(*seen: Any) -> Plan:
    made = plan(*seen)
    return attrs.evolve(made, firings=made.firings[:1])


def test_a_run_that_could_not_be_started_is_told_though_its_pass_ends_in_an_error() -> None:
    told: list[str] = []

    def compared(job: Job) -> Call:
        raise ValueError(job.task)

    def refuses(at: Store, effect: Effect[object]) -> object:
        has_failed = any(isinstance(run.state, Failed) for run in at.runs)
        return Refused("not authorised") if has_failed and isinstance(effect, StoreTime) else at.do(effect)

    store = burst(250)
    store.trouble = dict.fromkeys(range(99), refuses)
    programs = attrs.evolve(evaluator(ON_A), make_call=compared, failed=lambda run, _: told.append(run.id))
    with pytest.raises(Refused, match="not authorised"):
        store.run(programs.evaluate("p1", Instant(0)))
    assert sorted(told) == sorted(run.id for run in store.runs)
    assert len(told) == 100


def test_a_call_that_cannot_be_made_keeps_no_other() -> None:
    """A call with an unknown outcome is repeated when its claim expires."""
    told: list[tuple[str, tuple[str, ...]]] = []

    def compared(job: Job) -> Call:
        if job.task == "t":
            raise ValueError("a secret")
        return Call(job.task)

    store = burst(1)
    programs = attrs.evolve(
        evaluator(ON_A, Trigger(task="u", conditions=(A,))),
        make_call=compared,
        failed=lambda run, reasons: told.append((run.firing.trigger_id, reasons)),
    )
    store.run(programs.evaluate("p1"))
    why = ("what makes the call of 't' raised ValueError",)
    assert told == [(ON_A.id, why)]
    states = [run.state for run in store.runs]
    assert [each.reasons for each in states if isinstance(each, Failed)] == [why]
    assert [job_of(each).task for each in store.invocations] == ["u"]

    store = burst(2)
    store.trouble = dict.fromkeys(range(8, 99), lambda at, effect: too_busy(at, effect, "invocations"))
    store.run(evaluator(ON_A).evaluate("p1"))
    assert [type(run.state) for run in store.runs] == [Held] * 2
    store.trouble = dict.fromkeys(range(99), lambda at, effect: too_busy(at, effect, "calls"))
    store.later(MINUTE)
    store.run(evaluator(ON_A).evaluate("p2"))
    assert [(type(run.state), run.attempt) for run in store.runs] == [(Held, 2)] * 2


def too_busy(store: Store, effect: Effect[object], collection: str) -> object:
    is_it = isinstance(effect, InsertMany) and effect.collection == collection
    return NotApplied("too busy") if is_it else store.do(effect)


def test_one_that_is_no_run_any_more_keeps_no_other() -> None:
    store, programs = burst(2), evaluator(ON_A)

    def spoiled(at: Store, effect: Effect[object]) -> object:
        found = at.do(effect)
        assert isinstance(found, tuple)
        at.do(InsertOne("runs", Document.of({"_id": wanted_of(at)[0]})))
        return at.do(effect)

    store.trouble = {5: spoiled}
    answer = store.run(programs.evaluate("p1"))
    assert [each.reason for each in answer.skipped] == ["a record has no 'occurrences'"]
    assert [type(run.state) for run in store.readable_runs] == [Fired]

    store, first = burst(2), wanted_of(burst(2))[0]

    def unwritable(at: Store, effect: Effect[object]) -> object:
        if isinstance(effect, BulkUpdate) and effect.collection == "runs":
            for each in effect.updates:
                at.do(each) if first not in str(each.where) else None
            return Ambiguous("1 of a bulk refused")
        is_it = isinstance(effect, UpdateOne) and first in str(effect.where)
        return Refused("no room") if is_it else at.do(effect)

    store.trouble = dict.fromkeys(range(99), unwritable)
    answer = store.run(programs.evaluate("p1"))
    assert [(each.key, each.reason) for each in answer.skipped] == [(first, "no room")]
    assert sorted(type(run.state).__name__ for run in store.runs) == ["Fired", "Held"]


def wanted_of(store: Store) -> list[str]:
    found = [loaded_occurrence(doc) for doc in contents(store.world, "occurrences")]
    return [Firing(ON_A.id, (each,)).id for each in found]


def test_a_request_that_is_refused_is_asked_for_one_by_one() -> None:
    store, programs = burst(2), evaluator(ON_A)
    store.trouble = dict.fromkeys(range(5, 99), refused)
    answer = store.run(programs.evaluate("p1"))
    assert {each.key for each in answer.skipped} == {*wanted_of(store)}
    assert {each.reason for each in answer.skipped} == {"not authorised"}

    store = burst(2)
    store.run(programs.evaluate("p1"))
    store.trouble = {5: refused}
    answer = store.run(programs.evaluate("p2"))
    assert {each.key for each in answer.skipped} == {str(doc[ID]) for doc in contents(store.world, "occurrences")}


def test_what_no_run_of_a_request_can_have_is_told_of_each() -> None:
    store, programs = burst(2), evaluator(ON_A)
    store.trouble = dict.fromkeys(range(99), takes_not("not authorised", lambda name, _: name == "runs"))
    answer = store.run(programs.evaluate("p1"))
    assert {each.key for each in answer.skipped} == {*wanted_of(store)}

    def no_reply(at: Store, effect: Effect[object]) -> object:
        return Ambiguous("no reply") if isinstance(effect, (BulkUpdate, UpdateOne)) else at.do(effect)

    store.trouble = dict.fromkeys(range(99), no_reply)
    assert store.run(programs.evaluate("p2")).skipped == ()
    assert [type(run.state) for run in store.runs] == [Held] * 2
    assert len(store.invocations) == 2


def test_what_was_uploaded_and_is_none_of_it_keeps_no_other() -> None:
    given = Trigger(task="t", conditions=(OnResult("s"),), provider=FromAll("all", lambda _: {}))
    store = Store()
    for context in (ResultContext("s", "i", 3, arguments_at="i#a"), EVENT):
        store.run(evaluator(given, ON_A).notice(context, "r"))
    store.trouble = dict.fromkeys(range(99), lambda at, effect: "[1]" if isinstance(effect, Ask) else at.do(effect))
    answer = store.run(evaluator(given, ON_A).evaluate("p1"))
    assert [each.reason for each in answer.skipped] == ["arguments that were uploaded must be a Document, got tuple"]
    assert sorted(type(run.state).__name__ for run in store.runs) == ["Fired", "Held"]


def test_a_cron_that_cannot_be_looked_at_keeps_no_other() -> None:
    crons = tuple(OnCron(Schedule(f"{number} * * * *", Missed.EACH)) for number in range(4))
    triggers = tuple(Trigger(task="t", conditions=(each,)) for each in crons)
    keys = tuple(map(condition_id, crons))

    def once(expression: str, after: Instant) -> Instant | None:
        return None if expression.startswith("2") and after.at else next_minute("* * * * *", after)

    programs = attrs.evolve(evaluator(*triggers), next_after=once)
    cells = (*(stored_cell(key, ScheduleCell(Instant(0))) for key in keys[2:]), Document.of({"_id": keys[1]}))
    store = Store(world_with({"crons": cells}))
    store.later(MINUTE)
    store.trouble = dict.fromkeys(range(99), takes_not("not authorised", lambda name, _: name == "crons"))
    answer = store.run(programs.evaluate("p1"))
    assert {each.key: each.reason for each in answer.skipped} == {
        keys[0]: "not authorised",
        keys[1]: "a record has no 'last'",
        keys[2]: f"the cron {crons[2].schedule} names no instant any more",
    }
    assert len(store.invocations) == 2


def test_crons_are_looked_at_together() -> None:
    crons = tuple(OnCron(Schedule(f"{number} * * * *", Missed.EACH)) for number in range(3))
    triggers = tuple(Trigger(task="t", conditions=(each,)) for each in crons)
    programs = attrs.evolve(evaluator(*triggers), next_after=lambda _, after: next_minute("* * * * *", after))
    cells = tuple(stored_cell(condition_id(each), ScheduleCell(Instant(0))) for each in crons)
    store = Store(world_with({"crons": cells}))
    store.later(5 * MINUTE)
    store.run(programs.evaluate("p1"))
    assert [type(each).__name__ for each in store.asked[:3]] == ["StoreTime", "FindAll", "BulkUpdate"]
    assert [loaded_cell(doc).version for doc in contents(store.world, "crons")] == [2] * 3
    assert len(store.invocations) == 15
    store.run(programs.evaluate("p2"))
    assert sum(isinstance(each, BulkUpdate) for each in store.asked) == 1
    assert {loaded_cell(doc).pending for doc in contents(store.world, "crons")} == {()}


@pytest.mark.parametrize(
    "rules", [(("t",),), (("t", 1),), (("", Rule()),), (("t", Rule()), ("t", Rule())), ("t", Rule())]
)
def test_each_rule_is_of_one_task(rules: tuple[tuple[str, Rule], ...]) -> None:
    with pytest.raises(Misuse):
        attrs.evolve(evaluator(), rules=rules)


def test_what_the_store_refuses_is_passed_on() -> None:
    store = noticed(ON_A)
    for at in (1, 2, 3):
        store.trouble = {at: refused}
        with pytest.raises(Refused, match="not authorised"):
            store.run(evaluator(ON_A).evaluate("p1"))


def test_each_minute_of_a_cron_fires_and_is_closed() -> None:
    """Law TE4: from its first sight on, however late."""
    store = Store()
    programs = evaluator(ON_MINUTE, ON_A)
    store.run(programs.notice(EVENT, "r"))
    store.run(programs.evaluate("p1"))
    assert len(store.invocations) == 1
    store.later(3 * MINUTE)
    for number in range(2, 5):
        store.run(programs.evaluate(f"p{number}"))

    assert len(contents(store.world, "invocations")) == 4
    (cell,) = contents(store.world, "crons")
    assert loaded_cell(cell) == ScheduleCell(Instant(3 * MINUTE), loaded_cell(cell).version, ())
    assert cell[ID] == condition_id(MINUTELY)


def test_runs_that_are_over_are_forgotten() -> None:
    store = noticed(ON_A)
    programs = evaluator(ON_A, keep=SECOND)
    store.run(programs.evaluate("p1"))
    store.later(MINUTE)
    assert store.run(programs.purge())
    assert len(store.runs) == 1, "its occurrence is still there"
    store.run(programs.evaluate("p2"))
    for at in (1, 2, 3):
        store.trouble = {at: dropped}
        assert not store.run(programs.purge())
        assert len(store.runs) == 1
    store.trouble = {}
    assert store.run(programs.purge())
    assert store.runs == []


def test_a_run_of_an_event_is_kept_as_long_as_others() -> None:
    """Law TE11. An earlier version removed it at the first purge, as events are not kept."""
    store = noticed(ON_A)
    programs = evaluator(ON_A, keep=MINUTE)
    store.run(programs.evaluate("p1"))
    store.run(programs.evaluate("p2"))
    store.later(MINUTE - 1)
    store.run(programs.purge())
    assert len(store.runs) == 1
    store.later(1)
    store.run(programs.purge())
    assert store.runs == []


def test_a_run_stays_while_its_instant_is_pending() -> None:
    """Law TE11: the run tells the next process if the cell was not updated."""
    store = Store()
    programs = evaluator(ON_MINUTE)
    store.run(programs.evaluate("p1"))
    store.later(MINUTE)
    store.run(programs.evaluate("p2"))
    (run,) = store.runs
    assert run.state.settled
    store.run(programs.purge())
    store.run(programs.evaluate("p3"))
    assert len(store.invocations) == 1
    store.run(programs.purge())
    assert store.runs == []


def test_a_run_that_cannot_be_read_stays() -> None:
    store = Store(
        world_with({"runs": (Document.of({"_id": "r", "at": Instant(0), "trigger": "t", "number": 0, "of": 5}),)})
    )
    assert store.run(evaluator(ON_A).purge())
    assert len(contents(store.world, "runs")) == 1


@given(strategies.found(), st.integers(0, 40))
def test_a_purge_forgets_what_the_decision_says(found: strategies.Found, keep: int) -> None:
    """Laws FI9 and TE11, page by page."""
    found = storable(found)
    runs, keep = found.runs, keep * MILLISECOND
    occurrences = {each.id: stored_occurrence(each) for each in found.occurrences}
    world = world_with({"runs": tuple(map(stored_run, runs)), "occurrences": tuple(occurrences.values())})
    store = Store(world.write(CLOCK, found.now))
    before = store.world
    assert store.run(evaluator(*found.triggers, keep=keep).purge())
    gone = {run.id for run in runs} - {run.id for run in store.runs}
    others, waiting = store.runs, [each.id for each in found.occurrences]
    assert all(
        laws.evaluator.what_is_forgotten_is_over(run, others, waiting, keep, before.read(CLOCK))
        for run in runs
        if run.id in gone
    )
    assert gone == old_ones(found, runs, keep)


def storable(found: strategies.Found) -> strategies.Found:
    def later(at: Instant) -> Instant:
        return Instant(at.at * MILLISECOND, at.clock)

    def of(each: Occurrence) -> Occurrence:
        return attrs.evolve(each, seen=later(each.seen))

    def state(each: RunState) -> RunState:
        match each:
            case Fired(at) | GivenUp(_, at):
                return attrs.evolve(each, at=later(at))
            case Held(by, until):
                return Held(by, later(until))
            case Failed():
                return each

    runs = {
        run.id: attrs.evolve(
            run,
            firing=attrs.evolve(run.firing, occurrences=tuple(map(of, run.firing.occurrences))),
            state=state(run.state),
        )
        for run in found.runs
    }
    return attrs.evolve(
        found, occurrences=tuple(map(of, found.occurrences)), runs=tuple(runs.values()), now=later(found.now)
    )


def old_ones(found: strategies.Found, runs: tuple[TriggerRun, ...], keep: int) -> set[str]:
    events = {
        each.context.event_id: each.seen
        for run in runs
        for each in run.firing.occurrences
        if isinstance(each.context, EventContext)
    }
    off = Retention(age=0, count=0)
    over = [run for run in runs if isinstance(run.state, (Fired, GivenUp)) and found.now - run.state.at >= keep]
    what = purge(
        events, runs, found.occurrences, now=found.now + MINUTE, keep_events=off, keep_runs=Retention(age=1, count=0)
    )
    return {run.id for run in over}.intersection(what.runs)
