from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from decimal import Decimal
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.invocations.checks.laws import array_push_lock as laws
from tidegate.invocations.record.array_push_lock import (
    HOLDS,
    INVOCATION_ID,
    RUNNER,
    STATUS,
    TIMESTAMP,
    TRANSITION_LOCK,
    UNREADABLE,
    ArrayPushLock,
    ClaimedRecord,
    NoRecord,
    RaceCondition,
    Written,
    claim_time,
    claimed,
    is_stale,
    left_of,
)
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import NotAllowed, NotOwner
from tidegate.leases.checks.scenarios.small_lock import count, small_lock
from tidegate.model.documents import AllOf, Contains, Document, Eq, Pull, Push, Put, PutServerTime
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Note, Now, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, WALL, Duration, Instant
from tidegate.model.operations import UpdateOne, find_one, update_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import CLOCK, Plain, document, notes, perform, world_with

T = TypeVar("T")

RECORDS: Final = "invocations"
ME: Final = Eq(INVOCATION_ID, "x")
FOUND: Final = find_one(RECORDS, ME)
CLEARED: Final = update_one(RECORDS, ME, Put(TRANSITION_LOCK, ()))
ENTERS: Final = Note(HOLDS, value=True)
LEAVES: Final = Note(HOLDS, value=False)
SUCCEEDS: Final = update_one(RECORDS, ME, Put(STATUS, "success"), Put(RUNNER, None), PutServerTime(TIMESTAMP))
NOW: Final = Instant(1_700_000_000 * SECOND, WALL)
LOST_REPLY: Final = Ambiguous("no reply")


def lock(target: str = "success", runner: str | None = "r1", request: str = "me", attempts: int = 4) -> ArrayPushLock:
    return ArrayPushLock(RECORDS, INVOCATION, "x", target, runner, request, attempts)


def mine(attempt: int = 0) -> str:
    return f"me-{attempt}:1700000000.000000"


def pushed(claim: str) -> UpdateOne:
    return update_one(RECORDS, ME, Push(TRANSITION_LOCK, claim))


def pulled(claim: str) -> UpdateOne:
    return update_one(RECORDS, ME, Pull(TRANSITION_LOCK, claim))


def record(*claims: str, status: str = "running", runner: str | None = "r1") -> Document:
    return Document.of(
        {"_id": "x", "invocation_id": "x", "status": status, "status_runner_id": runner, "transition_lock": claims}
    )


def age(claim_id: str, old: Duration) -> str:
    return claimed(claim_id, NOW + -old)


Turn: TypeAlias = tuple[Effect[object], object]


def outcome(program: Coroutine[Effect[object], object, T], *turns: Turn) -> T:
    asked: list[Effect[object]] = []
    answer: object = None
    try:
        for _, reply in (*turns, (None, None)):
            asked.append(program.throw(answer) if isinstance(answer, Failure) else program.send(answer))
            answer = reply
    except StopIteration as stopped:
        return cast("T", stopped.value)
    finally:
        assert asked == [expected for expected, _ in turns]
    raise AssertionError("it goes on")


def tries(attempt: int, *claims: str) -> list[Turn]:
    claim = mine(attempt)
    return [(Now(), NOW), (pushed(claim), 1), (FOUND, record(*claims))]


def loses(attempt: int, *claims: str) -> list[Turn]:
    return [*tries(attempt, *claims), (pulled(mine(attempt)), 1), (Now(), NOW)]


def waits(milliseconds: int) -> Turn:
    return (Sleep(milliseconds * MILLISECOND), None)


WRITES: Final[list[Turn]] = [(ENTERS, None), (FOUND, record(mine())), (SUCCEEDS, 1), (LEAVES, None), (CLEARED, 1)]
YOUNG: Final = age("other", SECOND)


# --- step by step -----------------------------------------------------------------------------------------------------


def test_a_free_lock_is_taken_written_under_and_cleared() -> None:
    """Steps 1, 2, 5 and 6."""
    assert outcome(lock().run(), *tries(0, mine()), *WRITES) == Written("success", None)


def test_being_first_is_enough() -> None:
    """Step 2."""
    assert outcome(lock().run(), *tries(0, mine(), YOUNG), *WRITES) == Written("success", None)


def test_a_lock_that_another_holds_is_waited_for() -> None:
    """Steps 3 and 4."""
    second = [(ENTERS, None), (FOUND, record(mine(1))), *WRITES[2:]]
    turns = [*loses(0, YOUNG, mine()), waits(50), *tries(1, mine(1)), *second]

    assert outcome(lock().run(), *turns) == Written("success", None)


@pytest.mark.parametrize("first", ["other", "other:", "other:soon", "other:1.5e9", "::"])
def test_a_claim_without_a_time_is_told_and_cleared(first: str) -> None:
    """Step 3. The runtime logs it as an error."""
    bad = [*tries(0, first, mine()), (pulled(mine()), 1), (Note(UNREADABLE, first), None), (Now(), NOW)]
    second = [(ENTERS, None), (FOUND, record(mine(1))), *WRITES[2:]]

    assert outcome(lock().run(), *bad, (CLEARED, 1), waits(50), *tries(1, mine(1)), *second) == Written("success", None)


def test_a_claim_that_was_cleared_meanwhile_is_pulled_and_nothing_is_judged() -> None:
    """Step 3."""
    turns = [*tries(0), (pulled(mine()), 0), waits(50), *tries(1, mine(1))]
    second = [(ENTERS, None), (FOUND, record(mine(1))), *WRITES[2:]]

    assert outcome(lock().run(), *turns, *second) == Written("success", None)


@pytest.mark.parametrize("bare", [True, False])
def test_a_record_without_the_array_has_no_claims(bare: bool) -> None:
    there = record().without(TRANSITION_LOCK) if bare else Document((("transition_lock", None), *record().items[:-1]))
    turns = [(Now(), NOW), (pushed(mine()), 1), (FOUND, there), (pulled(mine()), 0), (FOUND, record())]

    assert outcome(lock(attempts=1).run(), *turns) == RaceCondition(1, "running")


def test_a_stale_claim_is_cleared_with_all_others() -> None:
    """Step 3."""
    turns = [*loses(0, age("other", 5 * SECOND + 1), mine()), (CLEARED, 1), waits(50), *tries(1, mine(1))]
    second = [(ENTERS, None), (FOUND, record(mine(1))), *WRITES[2:]]

    assert outcome(lock().run(), *turns, *second) == Written("success", None)


@pytest.mark.parametrize("old", [5 * SECOND, 5 * SECOND - 1, 0, -SECOND])
def test_a_claim_is_stale_strictly_beyond_5_seconds(old: Duration) -> None:
    """Step 3."""
    turns = [*loses(0, age("other", old), mine()), (FOUND, record())]

    assert outcome(lock(attempts=1).run(), *turns) == RaceCondition(1, "running")


def test_the_age_of_a_claim_is_judged_after_it_was_read() -> None:
    """Step 3. A claim that was fresh at the push may be stale now."""
    later = NOW + 1
    first = age("other", 5 * SECOND)
    turns = [*tries(0, first, mine()), (pulled(mine()), 1), (Now(), later), (CLEARED, 1), (FOUND, record())]

    assert outcome(lock(attempts=1).run(), *turns) == RaceCondition(1, "running")


def test_after_four_attempts_it_gives_up() -> None:
    """Step 4."""
    turns: list[Turn] = []
    for attempt, wait in enumerate((50, 100, 200)):
        turns += [*loses(attempt, YOUNG, mine(attempt)), waits(wait)]
    last = [*loses(3, YOUNG, mine(3)), (FOUND, record(YOUNG, status="killed", runner=None))]

    assert outcome(lock().run(), *turns, *last) == RaceCondition(4, "killed")


def test_the_last_attempt_clears_a_stale_claim_and_gives_up_all_the_same() -> None:
    """Step 3. Clearing in the last attempt helps only the next caller."""
    turns = [*loses(0, age("other", 6 * SECOND), mine()), (CLEARED, 1), (FOUND, record())]

    assert outcome(lock(attempts=1).run(), *turns) == RaceCondition(1, "running")


# --- no record, denials -----------------------------------------------------------------------------------------------


def test_without_a_record_nothing_is_held() -> None:
    assert outcome(lock().run(), (Now(), NOW), (pushed(mine()), 0), (FOUND, None)) == NoRecord()


def test_a_record_that_disappears_after_the_last_attempt_is_not_a_race() -> None:
    assert outcome(lock(attempts=1).run(), *loses(0, YOUNG), (FOUND, None)) == NoRecord()


def test_a_record_that_disappears_under_the_lock_is_released_all_the_same() -> None:
    """Step 6."""
    turns = [*tries(0, mine()), (ENTERS, None), (FOUND, None), (LEAVES, None), (CLEARED, 0)]

    assert outcome(lock().run(), *turns) == NoRecord()


@pytest.mark.parametrize(
    ("target", "runner", "reason"),
    [
        ("success", "r2", NotOwner("running", "success", "r1", "r2")),
        ("pending", "r1", NotAllowed("running", "pending", INVOCATION["running"].targets)),
    ],
)
def test_a_denial_writes_nothing_and_releases(target: str, runner: str, reason: object) -> None:
    """Step 5."""
    turns = [*tries(0, mine()), (ENTERS, None), (FOUND, record(mine())), (LEAVES, None), (CLEARED, 1)]

    assert outcome(lock(target, runner).run(), *turns) == reason


def test_the_owner_is_read_from_the_record() -> None:
    """Step 5."""
    there = record(mine()).without(RUNNER)
    turns = [*tries(0, mine()), (ENTERS, None), (FOUND, there), (LEAVES, None), (CLEARED, 1)]

    assert outcome(lock().run(), *turns) == NotOwner("running", "success", None, "r1")


# --- failures ---------------------------------------------------------------------------------------------------------


AGAIN: Final = (NotApplied("no"), LOST_REPLY, NotDurable("no"))


@pytest.mark.parametrize("failure", AGAIN[:2])
def test_a_push_without_an_answer_is_sent_again(failure: Failure) -> None:
    turns = [(Now(), NOW), (pushed(mine()), failure), waits(50), (pushed(mine()), 1), (FOUND, record(mine(), mine()))]
    assert outcome(lock().run(), *turns, *WRITES) == Written("success", None)

    with pytest.raises(type(failure)):
        outcome(lock(attempts=2).run(), *turns[:3], (pushed(mine()), failure))


def test_a_push_that_is_done_and_may_not_stay_is_not_sent_again() -> None:
    turns = [(Now(), NOW), (pushed(mine()), NotDurable("no")), (FOUND, record(mine()))]

    assert outcome(lock().run(), *turns, *WRITES) == Written("success", None)


def test_a_refusal_is_passed_on_at_once() -> None:
    with pytest.raises(Refused, match="no"):
        outcome(lock().run(), (Now(), NOW), (pushed(mine()), Refused("no")))


@pytest.mark.parametrize("failure", AGAIN)
@pytest.mark.parametrize("at", [2, 3, 9, 10, 12])
def test_a_read_and_a_pull_without_an_answer_are_asked_for_again(at: int, failure: Failure) -> None:
    """A claim left in the array blocks the record until it is stale."""
    first = [*tries(0, age("other", 6 * SECOND), mine()), (pulled(mine()), 1), (Now(), NOW), (CLEARED, 1)]
    turns = [*first, waits(50), *tries(1, YOUNG), (pulled(mine(1)), 1), (Now(), NOW), (FOUND, record(YOUNG))]
    turns[at:at] = [(turns[at][0], failure), waits(50)]

    assert outcome(lock(attempts=2).run(), *turns) == RaceCondition(2, "running")


@pytest.mark.parametrize("failure", AGAIN)
def test_the_clearing_of_a_stale_claim_is_sent_again_only_where_it_was_not_done(failure: Failure) -> None:
    """A repeated clearing could remove a newer claim."""
    again = [waits(50), (CLEARED, 1)] if isinstance(failure, NotApplied) else []
    turns = [*loses(0, age("other", 6 * SECOND), mine()), (CLEARED, failure), *again, waits(50), *tries(1, mine(1))]
    second = [(ENTERS, None), (FOUND, record(mine(1))), *WRITES[2:]]

    assert outcome(lock().run(), *turns, *second) == Written("success", None)


def test_who_was_ended_while_it_took_the_lock_pulls_what_it_has_pushed() -> None:
    """Without a reply, the claim is left to the stale threshold."""
    there = record(YOUNG, mine(), mine(), "me-like:1", mine(1))
    pulls = [
        (update_one(RECORDS, AllOf((ME, Contains(TRANSITION_LOCK, each))), Pull(TRANSITION_LOCK, each)), 1)
        for each in (mine(), "me-like:1", mine(1))
    ]

    outcome(OWN.leave(), (FOUND, LOST_REPLY), waits(50), (FOUND, there), *pulls)
    outcome(OWN.leave(), (FOUND, None))
    outcome(OWN.leave(), (FOUND, record().without(TRANSITION_LOCK)))
    for endless in (OWN, attrs.evolve(OWN, attempts=None)):
        most = endless.attempts or 4
        turns = [turn for wait in (50, 100, 200)[: most - 1] for turn in ((FOUND, LOST_REPLY), waits(wait))]
        outcome(endless.leave(), *turns, (FOUND, LOST_REPLY))


def test_a_lock_is_tried_for_without_end_or_for_as_long_as_it_may() -> None:
    limited = attrs.evolve(OWN, attempts=None, pauses=Pauses(Fixed(SECOND), jitter_ppm=0, elapsed_max=2 * SECOND))
    begun: Turn = (Now(), NOW)
    asked: list[Turn] = [(pushed(mine()), 1), (FOUND, record(YOUNG)), (pulled(mine()), 1)]
    first = [begun, (Now(), NOW), *(turn for each in asked for turn in (begun, each)), (Now(), NOW)]
    over = [(Now(), NOW + (SECOND + 1)), begun, (FOUND, record(YOUNG))]

    async def nothing(claim: str) -> str:
        return claim

    assert outcome(limited.take(nothing), *first, *over) == RaceCondition(1, "running")


FAILURES: Final = (Refused("no"), NotApplied("no"), LOST_REPLY, NotDurable("no"))


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("at", ["read", "write"])
def test_the_lock_is_released_also_after_a_failure_which_is_raised_again(at: str, failure: Failure) -> None:
    """Step 6."""
    inside = [(FOUND, failure)] if at == "read" else [(FOUND, record(mine())), (SUCCEEDS, failure)]

    with pytest.raises(type(failure)) as caught:
        outcome(lock().run(), *tries(0, mine()), (ENTERS, None), *inside, (LEAVES, None), (CLEARED, 1))

    assert caught.value == failure


@pytest.mark.parametrize("failure", [each for each in FAILURES if not isinstance(each, NotApplied)])
def test_a_release_that_fails_is_not_tried_again(failure: Failure) -> None:
    """The claim is left to the stale threshold."""
    turns = [*tries(0, mine()), (ENTERS, None), (FOUND, record(mine())), (SUCCEEDS, 1), (LEAVES, None)]
    again = [(CLEARED, NotApplied("no")), waits(50), (CLEARED, 1)]
    assert outcome(lock().run(), *turns, *again) == Written("success", None)

    with pytest.raises(type(failure)) as caught:
        outcome(lock().run(), *turns, (CLEARED, failure))

    assert caught.value == failure


@pytest.mark.parametrize("bad", [record().without(STATUS), record(status=""), record(runner="")])
def test_the_lock_is_released_also_where_the_record_is_none(bad: Document) -> None:
    """Step 6."""
    turns: list[Turn] = [*tries(0, mine()), (ENTERS, None), (FOUND, bad), (LEAVES, None), (CLEARED, 1)]

    with pytest.raises((KeyError, Misuse)):
        outcome(lock().run(), *turns)


# --- the text of a claim ----------------------------------------------------------------------------------------------

IDS: Final = st.one_of(st.uuids().map(str), st.text(min_size=1, max_size=8))
MOMENTS: Final = st.integers(0, 4_000_000_000 * SECOND)


@given(IDS, MOMENTS)
@example("me", 0)
@example("a:1:2", 1_700_000_000 * SECOND + 1)
def test_the_time_of_a_claim_is_read_as_it_was_written(claim_id: str, at: int) -> None:
    claim = claimed(claim_id, Instant(at, WALL))

    assert claim == f"{claim_id}:{Decimal(at) / SECOND:.6f}"
    assert claim_time(claim) == Instant(at, WALL)


@given(IDS, MOMENTS, st.integers(0, 9))
def test_the_time_of_any_decimal_is_read_to_the_microsecond(claim_id: str, at: int, digits: int) -> None:
    """Other clients write as many digits as Python's float has."""
    text = f"{Decimal(at * 1_000 + 999) / (1_000 * SECOND):.{digits}f}"

    assert claim_time(f"{claim_id}:{text}") == Instant(int(Decimal(text) * SECOND), WALL)


@given(st.floats(1.0, 4e9))
def test_the_time_of_a_float_is_read(at: float) -> None:
    read = claim_time(f"id:{at}")
    assert read is not None
    assert abs(read.at - Decimal(at) * SECOND) < 1


@pytest.mark.parametrize(
    ("claim", "at"),
    [
        ("uuid:1700000000.123456", 1_700_000_000_123_456),
        ("uuid:1700000000.1", 1_700_000_000_100_000),
        ("uuid:1700000000.0", 1_700_000_000_000_000),
        ("uuid:1700000000.", 1_700_000_000_000_000),
        ("uuid:1700000000", 1_700_000_000_000_000),
        ("uuid:1700000000.1234567", 1_700_000_000_123_456),
        ("uuid", None),
        ("1700000000", None),
        ("", None),
        (":", None),
        ("uuid:", None),
        ("uuid:.5", None),
        ("uuid:-1700000000.0", None),
        ("uuid:1.7e+09", None),
        ("uuid:nan", None),
        ("uuid:1700000000.1.2", None),
        ("uuid: 1700000000.0", None),
    ],
)
def test_the_time_of_claims_as_others_write_them(claim: str, at: int | None) -> None:
    assert claim_time(claim) == (None if at is None else Instant(at, WALL))
    assert at is not None or is_stale(claim, Instant(0, WALL), 5 * SECOND)


@given(
    st.one_of(st.text(), st.from_regex(r"\A[^:]*:\d*\.?\d*\Z"), st.integers(1, 6_000).map(lambda n: f"id:{'9' * n}"))
)
@example("id:" + "9" * 5_000)
def test_every_text_has_a_time(claim: str) -> None:
    """Totality: one bad claim must not block all others for ever."""
    read = claim_time(claim)
    assert read is None or read.clock == WALL
    assert isinstance(is_stale(claim, NOW, 5 * SECOND), bool)


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"key": ""},
        {"key": None},
        {"request": ""},
        {"request": 1},
        {"target": ""},
        {"target": None},
        {"runner": ""},
        {"runner": 1},
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.0},
        {"pauses": 0.05},
        {"attempts": None, "pauses": Pauses(Fixed(0))},
        {"stale": -1},
        {"stale": 5.0},
    ],
)
def test_bad_input_is_refused_before_a_claim_is_pushed(bad: dict[str, object]) -> None:
    """An error under the lock would leave the lock behind."""
    with pytest.raises(Misuse):
        attrs.evolve(lock(), **bad)  # type: ignore[arg-type]


# --- any schedule -----------------------------------------------------------------------------------------------------

TARGETS: Final = {"a": "success", "b": "failed", "c": "retry"}


@final
@attrs.frozen
class Setting:
    """`pause` is in microseconds."""

    pause: Duration = 20 * MILLISECOND
    loses: bool = False
    delays: bool = False


PROMISED: Final = Setting()
"""The clock moves at most 60 times, so no process pauses beyond 5 s."""


@final
@attrs.define
class Room:
    setting: Setting
    names: tuple[str, ...]
    world: Plain = attrs.field(factory=lambda: world_with({RECORDS: (record(),)}).write(CLOCK, Instant(NOW.at)))
    programs: dict[str, Coroutine[Effect[object], object, object]] = attrs.field(factory=dict)
    pending: dict[str, Effect[object]] = attrs.field(factory=dict)
    late: list[Effect[object]] = attrs.field(factory=list)
    broken: set[str] = attrs.field(factory=set)
    struck: bool = False

    @property
    def record(self) -> Document:
        found = self.world.read(document(RECORDS, "x"))
        assert found is not None
        return found

    @property
    def claims(self) -> tuple[str, ...]:
        return self.record[TRANSITION_LOCK]

    def begin(self) -> None:
        for name in self.names:
            self.programs[name] = lock(TARGETS[name], request=name, attempts=2).run()
            self.go_on(name, None)

    def go_on(self, name: str, answer: object) -> None:
        self.pending.pop(name, None)
        program = self.programs[name]
        with suppress(StopIteration):
            self.pending[name] = program.throw(answer) if isinstance(answer, Failure) else program.send(answer)

    def move(self, name: str, *, struck: bool = False) -> None:
        effect = self.pending[name]
        struck = struck and is_push(effect) and not self.struck
        self.struck |= struck
        if isinstance(effect, Sleep):
            self.pass_by(effect.duration)
            self.go_on(name, None)
        elif struck and self.setting.delays:
            self.late.append(effect)
            self.go_on(name, LOST_REPLY)
        else:
            reply = self.do(name, effect)
            self.go_on(name, LOST_REPLY if struck and self.setting.loses else reply)

    def do(self, name: str, effect: Effect[object]) -> object:
        before = self.record
        ((after, reply),) = perform(effect, self.world, name)
        assert isinstance(after, Plain)
        self.world = after
        holders = [who for who in self.names if (HOLDS, True) in after.read(notes(who))]
        kept = {
            "AL1": laws.at_most_one_holds(holders),
            "AL2": laws.finished_stays(INVOCATION, before[STATUS], self.record[STATUS]),
            "AL3": laws.claims_stand_once(self.claims),
        }
        self.broken |= {law for law, holds in kept.items() if not holds}
        return reply

    def pass_by(self, duration: Duration) -> None:
        self.world = self.world.write(CLOCK, self.world.read(CLOCK) + duration)

    def rest(self) -> None:
        while self.pending:
            self.move(min(self.pending))
        while self.late:
            self.do("network", self.late.pop(0))
        if self.claims:
            self.broken.add("AL4")


def is_push(effect: Effect[object]) -> bool:
    return isinstance(effect, UpdateOne) and isinstance(effect.updates[0], Push)


MOVES: Final = st.tuples(st.integers(0, 5), st.sampled_from(["goes on", "goes on", "time passes", "fault", "arrival"]))


def check_laws(setting: Setting, judged: Collection[str], runs: int, phases: Collection[Phase] = tuple(Phase)) -> None:
    @settings(max_examples=runs, phases=phases)
    @given(st.sampled_from([("a", "b"), ("a", "b", "c")]), st.lists(MOVES, min_size=10, max_size=60))
    def holds(names: tuple[str, ...], moves: list[tuple[int, str]]) -> None:
        room = Room(setting, names)
        room.begin()
        for number, what in moves:
            if what == "time passes":
                room.pass_by(setting.pause)
            elif what == "arrival" and room.late:
                room.do("network", room.late.pop(0))
            elif room.pending:
                room.move(sorted(room.pending)[number % len(room.pending)], struck=what == "fault")
        room.rest()
        assert not room.broken & set(judged)

    holds()


def test_while_nobody_stalls_and_nothing_is_lost_all_laws_hold() -> None:
    """Laws AL1, AL2, AL3 and AL4, with two and three lockers."""
    check_laws(PROMISED, ["AL1", "AL2", "AL3", "AL4"], 300)


@pytest.mark.parametrize(
    ("setting", "law"),
    [
        (Setting(pause=3 * SECOND), "AL1"),
        (Setting(pause=3 * SECOND), "AL2"),
        (Setting(loses=True), "AL3"),
        (Setting(delays=True), "AL4"),
    ],
)
def test_where_the_promise_ends_the_law_breaks(setting: Setting, law: str) -> None:
    with pytest.raises(AssertionError):
        check_laws(setting, [law], 3_000, [Phase.generate])


# --- the smallest form of it ------------------------------------------------------------------------------------------


async def rushes(me: int) -> None:
    await count(me)


def test_the_small_lock_excludes() -> None:
    """Law SL1: two lockers, two attempts each, one fault. The planted bug breaks it."""
    scenario = small_lock(2, 2, 1, 1)
    rushing = attrs.evolve(scenario, actors=tuple(Process(f"p{me}", factory(rushes, me)) for me in range(2)))

    assert explore(scenario).verdict is Verdict.COMPLETE
    assert explore(rushing).law == "at most one is inside"


# --- work of one's own under it -----------------------------------------------------------------------------------------

OWN: Final = ClaimedRecord(RECORDS, "x", "me", attempts=3)
GUARDED: Final = update_one(RECORDS, AllOf((ME, Contains(TRANSITION_LOCK, mine()))), Pull(TRANSITION_LOCK, mine()))


def test_only_one_s_own_claim_is_pulled_in_the_end() -> None:
    assert outcome(OWN.release(mine()), (GUARDED, 1)) is True
    assert outcome(OWN.release(mine()), (GUARDED, 0)) is False


@pytest.mark.parametrize("failure", [Ambiguous("no reply"), NotApplied("not sent"), NotDurable("no majority")])
def test_a_release_without_an_answer_is_asked_for_again(failure: Failure) -> None:
    """A missing claim proves nothing, since the first release may have removed it."""
    assert outcome(OWN.release(mine()), (GUARDED, failure), waits(50), (GUARDED, 0)) is True
    again = [(GUARDED, failure), waits(50), (GUARDED, failure), waits(100), (GUARDED, failure)]
    assert outcome(OWN.release(mine()), *again) is True


@given(st.integers(0, 60 * SECOND), st.integers(-SECOND, 60 * SECOND), st.integers(0, 60 * SECOND))
@example(5 * SECOND, 4 * SECOND - 1, SECOND)
@example(5 * SECOND, 4 * SECOND, SECOND)
def test_a_holder_stops_a_margin_before_others_think_it_dead(stale: Duration, old: Duration, margin: Duration) -> None:
    """Law AL5, without a clock."""
    claim = age("me", old)
    left = left_of(claim, NOW, stale=stale, margin=margin)

    assert left == 0 or not is_stale(claim, NOW + (left + margin), stale)
    assert left == max(0, stale - margin - max(0, old))
    assert left_of("no time", NOW, stale=stale, margin=margin) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ClaimedRecord("", "x", "me"),
        lambda: ClaimedRecord(RECORDS, "", "me"),
        lambda: ClaimedRecord(RECORDS, "x", ""),
        lambda: ClaimedRecord(RECORDS, "x", "me", 0),
        lambda: ClaimedRecord(RECORDS, "x", "me", None, Pauses(Fixed(0))),
        lambda: ClaimedRecord(RECORDS, "x", "me", stale=-1),
        lambda: OWN.guarded(""),
        lambda: OWN.guarded(mine()),
        lambda: left_of(mine(), NOW, stale=-1, margin=0),
        lambda: left_of(mine(), NOW, stale=0, margin=-1),
        lambda: left_of(mine(), 5, stale=0, margin=0),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
