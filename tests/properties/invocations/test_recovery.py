from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never, get_args

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types
from tests.properties.lawbook import bug, planted

from tidegate.invocations.checks.laws import recovery as laws
from tidegate.invocations.checks.laws.recovery import carried_out
from tidegate.invocations.checks.strategies.recovery import items, patiences, recoveries
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
from tidegate.invocations.upkeep import recovery
from tidegate.invocations.upkeep.recovery import (
    PATIENCE,
    Finished,
    InHand,
    Item,
    LeftAlone,
    Move,
    NoInvocation,
    Patience,
    Queued,
    RecoveryVerdict,
    Trouble,
    decide_recovery,
    plan_recovery,
)
from tidegate.model.documents import Document, Field, OlderThan, matches
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, WALL, Duration, Instant
from tidegate.services.checks.strategies.membership import memberships, short_times
from tidegate.services.membership import DEAD_AFTER, Member, Membership

START = Instant(1_800_000_000 * SECOND)
OWNED = ("pending", "running", "paused")
LASTING = [each.status for each in INVOCATION.definitions if not each.final]
STUCK = [each.status for each in INVOCATION.definitions if not each.final and not each.available]
FINAL = [each.status for each in INVOCATION.definitions if each.final]


def runner(who: str, **changes: object) -> Member:
    plain = Member(id=who, name=who, life=1, runner=None, created=START, joined=START, seen=START)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def item(status: str, owner: str | None = None, version: int = 7) -> Item:
    return Item("i", StatusRecord(status, owner, version), START)


# --- the laws of one decision -----------------------------------------------------------------------------------------

every_case = (items(), memberships(), short_times(), patiences())


@settings(max_examples=100)
@given(*every_case)
@example(item("paused"), Membership(), START + DEAD_AFTER, PATIENCE)
@example(item("retry"), Membership(), START + DEAD_AFTER, PATIENCE)
def test_rc1_each_step_is_legal(found: Item, known: Membership, now: Instant, patience: Patience) -> None:
    assert laws.step_is_legal(decide_recovery(found, known, now, patience))


@settings(max_examples=100)
@given(*every_case)
@example(item("running", "new"), Membership(), START + (DEAD_AFTER - 1), PATIENCE)
@example(item("paused", "a"), Membership((runner("a", seen=START + 1),)), START + DEAD_AFTER, PATIENCE)
@example(item("pending", "a"), Membership((runner("a"),)), START + (MINUTE - 1), PATIENCE)
@example(item("pending", "a"), Membership((runner("a"),)), START + MINUTE, PATIENCE)
def test_rc2_who_owns_it_and_lives_is_spared(found: Item, known: Membership, now: Instant, patience: Patience) -> None:
    verdict = decide_recovery(found, known, now, patience)

    assert laws.living_owners_are_spared(found, known, now, patience.pending_max, verdict)


@settings(max_examples=100)
@given(*every_case)
@example(item("pending", "a"), Membership((runner("a"),)), START, PATIENCE)
@example(item("pending", "new"), Membership(dead_after=SECOND), START, PATIENCE)
@example(item("running", "a"), Membership((runner("a"),)), START, PATIENCE)
@example(item("killed"), Membership(), START, PATIENCE)
@example(item("retry"), Membership(), START, PATIENCE)
def test_rc3_until_when_is_exact(found: Item, known: Membership, now: Instant, patience: Patience) -> None:
    verdict = decide_recovery(found, known, now, patience)
    if isinstance(verdict, InHand):
        just_before = decide_recovery(found, known, verdict.until + -1, patience)
        then = decide_recovery(found, known, verdict.until, patience)

        assert laws.until_is_exact(verdict, just_before, then)


@settings(max_examples=100)
@given(st.sampled_from(STUCK), st.sampled_from(("a", "gone", "new", None)), patiences())
@example("concurrency_controlled", None, PATIENCE)
def test_rc4_the_way_to_the_queue_is_short(status: str, owner: str | None, patience: Patience) -> None:
    found = item(status, owner if status in OWNED else None)
    known = Membership((runner("a"), runner("gone", left=START)))
    now, path = START, list[RecoveryVerdict]()
    for _ in range(laws.STEPS_MAX + 1):
        now += 2 * DEAD_AFTER
        path.append(decide_recovery(found, known, now, patience))
        match path[-1]:
            case Move() as step:
                found = Item(found.key, carried_out(step, found.record), now)
                if step.frees:
                    break
            case _:
                break

    assert laws.path_is_short(path)


@settings(max_examples=100)
@given(st.lists(items(), max_size=6), memberships(), short_times(), patiences(), st.data())
@example([item("success"), item("killed")], Membership(), START + MINUTE, PATIENCE, None)
def test_rc6_each_is_judged_alone(
    found: list[Item], known: Membership, now: Instant, patience: Patience, data: st.DataObject | None
) -> None:
    for listed in (found, found if data is None else data.draw(st.permutations(found))):
        alone = [decide_recovery(each, known, now, patience) for each in listed]

        assert laws.judged_alone(plan_recovery(listed, known, now, patience), alone)


# --- several recoverers and one runner --------------------------------------------------------------------------------


@attrs.frozen
class Looks:
    who: int


@attrs.frozen
class Acts:
    who: int


@attrs.frozen
class Stops:
    who: int


@attrs.frozen
class Frees:
    pass


@attrs.frozen
class Runs:
    choice: int
    by: str


@attrs.frozen
class Passes:
    duration: Duration


EPOCH = Instant(0)
Event: TypeAlias = Looks | Acts | Stops | Frees | Runs | Passes
SHORT = Patience(pending_max=2, passing_max=1)
SILENCE = 4
LIVING, DEAD, NEVER = "living", "dead", "never"

who = st.integers(0, 1)
anything = st.lists(
    st.one_of(
        st.builds(Looks, who),
        st.builds(Acts, who),
        st.builds(Stops, who),
        *[st.builds(Frees)] * 2,
        *[st.builds(Runs, st.integers(0, 2), st.sampled_from((LIVING, LIVING, DEAD)))] * 3,
        *[st.builds(Passes, st.sampled_from((1, 2, SILENCE)))] * 2,
    ),
    max_size=20,
)


def at_a_distance(before: list[Event], between: list[Event], after: list[Event]) -> list[Event]:
    return [*before, Looks(2), *between, Acts(2), *after]


happenings = st.builds(at_a_distance, anything, anything, anything)
beginnings = st.tuples(st.sampled_from((*OWNED, *LASTING)), st.sampled_from((LIVING, DEAD, NEVER)))


@attrs.define
class Play:
    record: StatusRecord
    now: Instant = EPOCH
    changed: Instant = EPOCH
    decided: dict[int, RecoveryVerdict] = attrs.field(factory=dict[int, RecoveryVerdict])
    robbed: list[str] = attrs.field(factory=list[str])

    @property
    def known(self) -> Membership:
        then = Instant(-SILENCE)
        dead = Member(id=DEAD, name=DEAD, life=1, runner=None, created=then, joined=then, seen=then)
        return Membership((dead, attrs.evolve(dead, id=LIVING, name=LIVING, seen=self.now)), SILENCE)

    def found(self) -> Item:
        return Item("i", self.record, self.changed)

    def become(self, record: StatusRecord) -> None:
        if record != self.record:
            self.record, self.changed = record, self.now

    def look(self, who: int) -> None:
        found = self.found()
        if not isinstance(self.decided.get(who), Move):
            self.decided[who] = decide_recovery(found, self.known, self.now, SHORT)

    def act(self, who: int) -> None:
        match self.decided.pop(who, Finished()):
            case Move() as step:
                before, waited = self.record, self.now - self.changed
                after = carried_out(step, before)
                may_be_taken = before.status == "pending" and waited >= SHORT.pending_max
                if after != before and before.owner == LIVING and not may_be_taken:
                    self.robbed.append(f"{before} became {after}")
                self.become(after)
            case _:
                pass

    def free(self) -> None:
        self.look(-1)
        self.act(-1)

    def run(self, choice: int, by: str) -> None:
        record = self.record
        if record.owner == by:
            targets = {"pending": ("running",), "running": ("paused", "retry", "success"), "paused": ("running",)}
            target = targets[record.status][choice % len(targets[record.status])]
        elif INVOCATION[record.status].available:
            target = "pending" if choice else "running"
        else:
            return
        verdict = decide_transition(INVOCATION, record, target, by)
        if isinstance(verdict, Accepted):
            self.become(verdict.record)


def played(begin: tuple[str, str], happened: list[Event]) -> Play:
    status, owner = begin
    record = StatusRecord(status, owner if status in OWNED else None, 5)
    play = Play(record)
    for event in happened:
        match event:
            case Looks(who):
                play.look(who)
            case Acts(who):
                play.act(who)
            case Stops(who):
                play.decided.pop(who, None)
            case Frees():
                for _ in range(laws.STEPS_MAX):
                    play.free()
                    play.now += SHORT.passing_max
            case Runs(choice, by):
                play.run(choice, by)
            case Passes(duration):
                play.now += duration
            case _:
                assert_never(event)
    return play


@settings(max_examples=400)
@given(beginnings, happenings)
@example(("paused", DEAD), [])
@example(
    ("running", DEAD),
    [Looks(0), Frees(), Runs(1, LIVING), Runs(1, LIVING), Acts(0)],
)
def test_rc5_it_is_free_in_the_end_and_taken_from_nobody_who_lives(
    begin: tuple[str, str], happened: list[Event]
) -> None:
    play = played(begin, happened)
    for _ in range(2 * laws.STEPS_MAX):  # one finishes at last, in spite of stops; the others are late
        play.now += SILENCE
        play.free()
    for who in tuple(play.decided):
        play.act(who)

    assert not play.robbed
    assert laws.is_free(play.found(), play.known, play.now)


# --- planted bugs -----------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    recovery,
    bug("straight to the queue", ("_WAY_ON[item.record.status]", "'rerouted'"), test_rc1_each_step_is_legal),  # only the dead owner may do that
    bug("running recovery for all", ("_WAY_ON[item.record.status]", "'running_recovery'"), test_rc1_each_step_is_legal),
    bug("no record means dead", ("item.changed + membership.dead_after", "now"), test_rc2_who_owns_it_and_lives_is_spared),  # as in pynenc
    bug("by age alone", ("return until\n", "return item.changed + membership.dead_after\n"), test_rc2_who_owns_it_and_lives_is_spared),
    bug("too impatient", ("item.changed + patience.pending_max", "item.changed + 1"), test_rc2_who_owns_it_and_lives_is_spared),
    bug(
        "late by one",  # the strict comparison of one of pynenc's backends
        ("now - owned_until >= 0", "now - owned_until > 0"), ("now - due >= 0", "now - due > 0"), ("now - due < 0", "now - due <= 0"),
        test_rc3_until_when_is_exact,
    ),
    bug("until the later", ("due if owned_until - due > 0", "due if owned_until - due < 0"), test_rc3_until_when_is_exact),
    bug(
        "pending and running alone",  # as pynenc's two tasks read and change them at once
        ("    definition = next(", "    if status not in ('pending', 'running'):\n        return Queued()\n    definition = next("),
        test_rc4_the_way_to_the_queue_is_short,
        test_rc5_it_is_free_in_the_end_and_taken_from_nobody_who_lives,
    ),
    bug(
        "up to the first that is not stuck",
        (
            "    return tuple(verdict for verdict in verdicts if isinstance(verdict, Move))",
            """    steps = []
    for verdict in verdicts:
        if not isinstance(verdict, Move):
            break
        steps.append(verdict)
    return tuple(steps)""",
        ),
        test_rc6_each_is_judged_alone,
    ),
    bug("sorted by key", ("for item in items)", "for item in sorted(items, key=lambda each: each.key))"), test_rc6_each_is_judged_alone),
)  # fmt: skip
test_a_planted_bug_of_a_write_is_found = planted(
    laws,
    bug(  # as the lock-free part of pynenc's recovery
        "by status alone", ("record != step.expected", "record.status != step.expected.status"), test_rc5_it_is_free_in_the_end_and_taken_from_nobody_who_lives
    ),
    bug("unguarded", ("record != step.expected or ", ""), test_rc5_it_is_free_in_the_end_and_taken_from_nobody_who_lives),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------

GROUP = Membership(
    (
        runner("alive", seen=START + DEAD_AFTER),
        runner("silent"),
        runner("left", left=START),
        runner("old", name="pod"),
        runner("new", name="pod", life=2, seen=START + DEAD_AFTER),
        runner("worker", runner="left", seen=START + DEAD_AFTER),
        runner("child", runner="silent", seen=START + DEAD_AFTER),
    )
)
LATER = START + DEAD_AFTER
HELD = InHand(START + 2 * DEAD_AFTER)


def moved(found: Item, target: str, trouble: Trouble) -> Move:
    return Move("i", found.record, target, trouble)


@pytest.mark.parametrize(
    ("status", "owner", "expected", "trouble"),
    [
        ("running", "alive", None, None),
        ("running", "child", None, None),
        ("running", "new", None, None),
        ("running", "silent", "running_recovery", Trouble.OWNER_GONE),
        ("running", "left", "running_recovery", Trouble.OWNER_GONE),
        ("running", "old", "running_recovery", Trouble.OWNER_GONE),
        ("running", "worker", "running_recovery", Trouble.OWNER_GONE),
        ("running", "nobody", "running_recovery", Trouble.OWNER_GONE),
        ("running", None, "running_recovery", Trouble.OWNER_GONE),
        ("paused", "alive", None, None),
        ("paused", "silent", "running_recovery", Trouble.OWNER_GONE),
        ("pending", "alive", "pending_recovery", Trouble.PENDING_TOO_LONG),
        ("pending", "silent", "pending_recovery", Trouble.OWNER_GONE),
        ("pending_recovery", None, "rerouted", Trouble.LEFT_HALFWAY),
        ("running_recovery", None, "rerouted", Trouble.LEFT_HALFWAY),
        ("killed", None, "rerouted", Trouble.LEFT_HALFWAY),
        ("concurrency_controlled", None, "rerouted", Trouble.LEFT_HALFWAY),
    ],
)
def test_each_stuck_invocation_is_moved_on(
    status: str, owner: str | None, expected: str | None, trouble: Trouble | None
) -> None:
    """An owner is alive by its own heartbeats, not by its runner's."""
    found = item(status, owner)
    verdict = decide_recovery(found, GROUP, LATER)

    assert verdict == (HELD if expected is None or trouble is None else moved(found, expected, trouble))


@pytest.mark.parametrize("status", ["registered", "rerouted", "retry"])
def test_what_is_available_is_in_the_queue(status: str) -> None:
    """In pynenc, the message of a crashed consumer is lost (W22)."""
    assert decide_recovery(item(status), GROUP, START + 1_000 * MINUTE) == Queued()


def test_everything_has_an_answer() -> None:
    for status in (*LASTING, *FINAL, "elsewhere"):
        for owner in (None, *GROUP.by_id, "nobody"):
            for now in (START, LATER):
                verdict = decide_recovery(item(status, owner), GROUP, now)

                assert isinstance(verdict, RecoveryVerdict)
                assert (status in FINAL) is (verdict == Finished())
                assert (status == "elsewhere") is (verdict == NoInvocation("elsewhere"))


def test_a_pending_invocation_is_taken_at_the_limit_and_no_sooner() -> None:
    """Pynenc, case 32."""
    known = Membership((runner("a"), runner("b", left=START)))
    slow, dead = item("pending", "a"), item("pending", "b")

    assert decide_recovery(slow, known, START + 5 * SECOND) == InHand(START + MINUTE)
    assert decide_recovery(slow, known, START + (MINUTE - 1)) == InHand(START + MINUTE)
    assert decide_recovery(slow, known, START + MINUTE) == moved(slow, "pending_recovery", Trouble.PENDING_TOO_LONG)
    assert decide_recovery(dead, known, START) == moved(dead, "pending_recovery", Trouble.OWNER_GONE)


def test_a_worker_is_judged_by_its_own_beats() -> None:
    """Pynenc, cases 33 and 34."""
    silent, beating = (
        Membership((runner("a", seen=LATER), runner("w", runner="a", seen=seen))) for seen in (START, LATER)
    )
    found = item("running", "w")

    assert decide_recovery(found, silent, LATER) == moved(found, "running_recovery", Trouble.OWNER_GONE)
    assert decide_recovery(found, beating, LATER) == HELD


def test_an_owner_that_has_not_beaten_yet_has_as_long_as_a_silent_one() -> None:
    found = item("running", "newcomer")

    assert decide_recovery(found, Membership(), LATER + -1) == InHand(LATER)
    assert decide_recovery(found, Membership(), LATER) == moved(found, "running_recovery", Trouble.OWNER_GONE)


@given(st.sampled_from(["pending", "killed"]), st.integers(-3, 3))
def test_it_is_time_when_the_filter_of_the_store_says_so(status: str, late: Duration) -> None:
    """Agreement with `OlderThan`, the store's filter for stuck records."""
    limit = {"pending": PATIENCE.pending_max, "killed": PATIENCE.passing_max}[status]
    now = START + (limit + late * MILLISECOND)
    older = matches(OlderThan(Field[Instant]("at"), limit), Document.of({"_id": "i", "at": START}), lambda: now)
    found = item(status, "alive" if status == "pending" else None)

    assert older is isinstance(decide_recovery(found, GROUP, now), Move)


def test_one_that_began_to_run_in_between_stops_no_other() -> None:
    """Pynenc moves all, then moves all on: the second of three pending ones runs."""
    known = Membership((runner("a", seen=LATER),))
    found = [Item(key, StatusRecord("pending", "a", 2), START) for key in "xyz"]
    steps = plan_recovery(found, known, START + MINUTE)
    records = {each.key: each.record for each in found} | {"y": StatusRecord("running", "a", 3)}
    for step in steps:
        assert isinstance(step, Move)
        records[step.key] = carried_out(step, records[step.key])

    assert records == {
        "x": StatusRecord("pending_recovery", None, 3),
        "y": StatusRecord("running", "a", 3),
        "z": StatusRecord("pending_recovery", None, 3),
    }


def test_what_stays_half_way_is_found_by_the_next() -> None:
    known = Membership((runner("a", left=START),))
    found, now, lines = item("paused", "a", version=4), START, list[str]()
    for _ in range(3):
        now += 10 * MINUTE
        verdict = decide_recovery(found, known, now)
        lines.append(str(verdict))
        if isinstance(verdict, Move):
            found = Item("i", carried_out(verdict, found.record), now)

    assert lines == [
        "move 'i', 'paused' of 'a' at version 4, to 'running_recovery': its owner is gone",
        "move 'i', 'running_recovery' at version 5, to 'rerouted': nobody moved it on",
        "queued",
    ]


def test_the_last_step_frees_it() -> None:
    found = item("killed")

    assert moved(found, "rerouted", Trouble.LEFT_HALFWAY).frees
    assert not moved(found, "running_recovery", Trouble.OWNER_GONE).frees


def test_what_is_left_alone_says_why() -> None:
    assert [str(each) for each in (HELD, Queued(), Finished(), NoInvocation("x"))] == [
        "in hand until 1800001200 s@store",
        "queued",
        "finished",
        "no invocation: 'x'",
    ]


@given(items(), short_times(), patiences(), st.integers(-(10**18), 10**18))
def test_the_epoch_does_not_matter(found: Item, now: Instant, patience: Patience, by: Duration) -> None:
    verdict = decide_recovery(found, Membership(), now, patience)
    later = decide_recovery(attrs.evolve(found, changed=found.changed + by), Membership(), now + by, patience)

    assert later == (InHand(verdict.until + by) if isinstance(verdict, InHand) else verdict)


# --- misuse, and the strategies ---------------------------------------------------------------------------------------

CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Patience": (Patience, {"pending_max": 1, "passing_max": 1}),
    "Item": (Item, {"key": "i", "record": item("killed").record, "changed": START}),
    "decide_recovery": (
        decide_recovery,
        {"item": item("running", "alive"), "membership": GROUP, "now": LATER, "patience": PATIENCE},
    ),
    "decide_recovery, killed": (
        decide_recovery,
        {"item": item("killed"), "membership": GROUP, "now": LATER, "patience": PATIENCE},
    ),
    "plan_recovery": (
        plan_recovery,
        {"items": [item("running", "alive")], "membership": GROUP, "now": LATER, "patience": PATIENCE},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_meet_misuse_and_nothing_else(name: str) -> None:
    refuses_wrong_types(*CALLS[name], START)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: Item("", item("killed").record, START), "the name of an invocation must be"),
        (lambda: Patience(pending_max=0), "a limit in microseconds must be"),
        (lambda: Patience(passing_max=0), "a limit in microseconds must be"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object], complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint):
        _ = wrong()


def test_the_limits_are_minutes() -> None:
    assert Patience(pending_max=MINUTE, passing_max=MINUTE) == PATIENCE


@pytest.mark.parametrize("status", ["pending", "killed", "running"])
def test_two_clocks_are_never_compared(status: str) -> None:
    with pytest.raises(Misuse, match="two clocks"):
        decide_recovery(item(status, "alive" if status in OWNED else None), GROUP, Instant(LATER.at, WALL))


@pytest.mark.parametrize("case", [Move, *get_args(LeftAlone), *Trouble])
def test_every_case_is_drawn(case: type[RecoveryVerdict] | Trouble) -> None:
    def is_the_case(verdict: RecoveryVerdict) -> bool:
        return case in (type(verdict), verdict.trouble if isinstance(verdict, Move) else None)

    must_draw(recoveries(), is_the_case)
