from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, assert_never

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import Document, Field, OlderThan, matches
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, WALL, Duration, Instant
from tidegate.services import membership
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    Runner,
    ScheduledRunnerInGrace,
    decide_atomic_service_claim,
)
from tidegate.services.checks.laws import membership as laws
from tidegate.services.checks.laws.membership import deleted, written
from tidegate.services.checks.strategies.membership import answers_to_members, livenesses, memberships, short_times
from tidegate.services.membership import (
    DEAD_AFTER,
    Alive,
    Beaten,
    Departed,
    Joined,
    Left,
    Liveness,
    Member,
    Membership,
    Orphaned,
    Replaced,
    RunnerNotAlive,
    Silent,
    Taken,
    Unseen,
    beat,
    forgettable,
    join,
    leave,
    liveness,
    runners,
)

# --- random histories of a group --------------------------------------------------------------------------------------


@attrs.frozen
class Joins:
    name: str | None
    runner: int | None
    stale: int = 0


@attrs.frozen
class Beats:
    who: int


@attrs.frozen
class Leaves:
    who: int


@attrs.frozen
class Passes:
    duration: Duration


@attrs.frozen
class Forgets:
    count: int


Event: TypeAlias = Joins | Beats | Leaves | Passes | Forgets
SILENCE = 4
somebody, names = st.integers(0, 5), st.sampled_from((None, "a", "b"))
joining = st.builds(Joins, names, st.sampled_from((None, None, None, 0, 1, 2)), st.sampled_from((0, 0, 0, 1, 2)))
events = st.one_of(
    joining,
    joining,
    st.builds(Beats, somebody),
    st.builds(Beats, somebody),
    st.builds(Leaves, somebody),
    st.builds(Passes, st.sampled_from((1, 1, 2, SILENCE - 1, SILENCE))),
    st.builds(Forgets, st.integers(0, 4)),
)
lives = st.lists(events, max_size=24)


@attrs.frozen
class Moment:
    known: Membership
    now: Instant
    event: Event | None = None
    joined: Joined | None = None


def everybody(known: Membership, now: Instant) -> dict[str, Liveness]:
    return {member.id: liveness(known, member.id, now) for member in known.members}


def play(happened: list[Event]) -> list[Moment]:
    moments = [Moment(Membership(dead_after=SILENCE), Instant(0))]
    ids: list[str] = []
    for event in happened:
        known, now = moments[-1].known, moments[-1].now
        match event:
            case Joins(name, runner, stale):
                who, worked_for = (
                    f"{37 * len(ids) % 100:02d}",
                    ids[runner % len(ids)] if runner is not None and ids else None,
                )
                view = moments[-1 - min(stale, len(moments) - 1)].known
                answer = join(view, who, now, name=name, runner=worked_for)
                ids.append(who)
                if isinstance(answer, Joined):
                    fresh = answer if view is known else None
                    moments.append(Moment(written(known, answer.member), now, event, fresh))
            case Beats(number) if ids:
                beaten = beat(known, ids[number % len(ids)], now)
                if isinstance(beaten, Beaten):
                    moments.append(Moment(written(known, beaten.member), now, event))
            case Leaves(number) if ids:
                left = leave(known, ids[number % len(ids)], now)
                if isinstance(left, Left):
                    moments.append(Moment(written(known, left.member), now, event))
            case Forgets(count):
                for who in forgettable(known, now, SILENCE)[:count]:
                    moments.append(Moment(deleted(moments[-1].known, who), now, event))
            case Passes(duration):
                moments.append(Moment(known, now + duration, event))
            case Beats() | Leaves():
                pass
            case _:
                assert_never(event)
    return moments


# --- the laws ---------------------------------------------------------------------------------------------------------


@given(memberships(), short_times())
def test_m1_of_any_members(known: Membership, now: Instant) -> None:
    for who in (*known.by_id, "nobody"):
        assert laws.who_beats_is_alive(known, who, now, liveness(known, who, now))


@given(lives)
@example([Joins("a", None), Joins("b", 0), Passes(SILENCE - 1), Beats(1), Passes(1)])
def test_m1_over_time(happened: list[Event]) -> None:
    for moment in play(happened):
        for who, found in everybody(moment.known, moment.now).items():
            assert laws.who_beats_is_alive(moment.known, who, moment.now, found)


@given(lives)
@example([Joins("a", None), Passes(SILENCE), Beats(0)])
@example([Joins("a", None), Joins("a", None), Beats(0)])
@example([Joins("a", None), Joins("b", 0), Leaves(0), Joins("b", None), Beats(1)])
def test_m2_who_is_gone_stays_gone(happened: list[Event]) -> None:
    moments = play(happened)
    for earlier, later in pairwise(moments):
        before, after = everybody(earlier.known, earlier.now), everybody(later.known, later.now)

        assert all(laws.gone_is_gone(before.get(who, Unseen()), found) for who, found in after.items())


@given(lives)
@example([Joins("a", None), Joins("b", 0), Passes(1), Joins("a", None)])
def test_m3_runners_are_the_living(happened: list[Event]) -> None:
    for moment in play(happened):
        found = everybody(moment.known, moment.now)

        assert laws.runners_are_the_living(moment.known, found, runners(moment.known, moment.now))


@given(lives)
@example([Joins("b", None), Joins("a", None), Passes(1), Beats(1), Passes(1), Beats(0)])
@example([Joins("b", None), Passes(1), Joins("a", None), Passes(1), Beats(0)])
def test_m4_nobody_overtakes(happened: list[Event]) -> None:
    before: tuple[Runner, ...] = ()
    for moment in play(happened):
        after = runners(moment.known, moment.now)

        assert laws.they_stand_by_creation(moment.known, after)
        assert laws.nobody_overtakes(before, after)
        before = after


@given(lives)
@example([Joins("a", None), Passes(1), Joins("b", None), Passes(1), Joins("a", None)])
@example([Joins("b", None), Joins("b", None), Joins("a", None), Joins("a", None)])
def test_m5_a_restart_moves_nobody(happened: list[Event]) -> None:
    moments = play(happened)
    for earlier, later in pairwise(moments):
        if later.joined is None or later.joined.member.runner is not None:
            continue
        new = later.joined.member
        former = earlier.known.latest.get(new.place)
        before = runners(earlier.known, later.now)
        if former is not None and former.id in {runner.id for runner in before}:
            after = runners(later.known, later.now)

            assert laws.a_restart_moves_nobody(before, after, former.id, Runner(new.id, later.now))


def forgets(known: Membership, now: Instant, retention: Duration) -> None:
    for who in forgettable(known, now, retention):
        before, known = everybody(known, now), deleted(known, who)

        assert laws.only_the_forgotten_go(before, everybody(known, now), who)


@given(lives, st.sampled_from((SILENCE, SILENCE + 1, 2 * SILENCE)))
@example([Joins("a", None), Joins("b", 0), Leaves(0), Passes(1), Beats(1)], SILENCE)
@example([Joins("a", None), Joins("b", 0), Passes(SILENCE - 1), Beats(1), Leaves(0), Passes(1)], SILENCE)
@example([Joins("a", None), Passes(SILENCE - 1)], SILENCE)
def test_m6_along_the_way(happened: list[Event], retention: Duration) -> None:
    moment = play(happened)[-1]
    forgets(moment.known, moment.now, retention)


@given(memberships(), short_times(), st.integers(0, 9))
def test_m6_of_any_members(known: Membership, now: Instant, longer: Duration) -> None:
    forgets(known, now, known.dead_after + longer)


@given(lives)
@example([Joins("a", None), Passes(1), Joins("b", None)])
@example([Joins("a", None), Joins("b", None), Passes(1), Leaves(0)])
@example([Joins("a", None), Joins("b", None), Passes(1), Joins("a", None)])
@example([Joins("a", None), Passes(SILENCE), Joins("a", None)])
def test_m7_an_instant_keeps_its_list(happened: list[Event]) -> None:
    # Without forgetting and joins by old lists, which are known limits.
    kept: list[Event] = [
        attrs.evolve(each, stale=0) if isinstance(each, Joins) else each
        for each in happened
        if not isinstance(each, Forgets)
    ]
    moments = play(kept)
    over = {moment.now: moment.known for moment in moments}  # the last of each instant
    last = moments[-1].known
    for at, known in over.items():
        assert laws.an_instant_keeps_its_list(runners(known, at), runners(last, at), last, at)


# --- planted bugs -----------------------------------------------------------------------------------------------------

BROUGHT_BACK = (
    ("if not isinstance(found, Alive):", "if isinstance(found, Unseen):"),
    ("seen=_later(member.seen, now)", "seen=now, left=None"),
)
COVERED = (
    "    runner = None if member.runner is None else",
    "    member = membership.by_id.get(member.runner, member)\n    runner = None if member.runner is None else",
)
WORKERS_TOO = ("member.runner is None and at -", "at -")

test_a_planted_bug_is_found = planted(
    membership,
    bug("a worker is as alive as its runner", COVERED, test_m1_of_any_members, test_m1_over_time),
    bug(
        "beats are not looked at", ("if now - member.seen >=", "if now - member.joined >="),
        test_m1_of_any_members, test_m1_over_time,
    ),
    # pynenc: silent for longer than the limit.
    bug(
        "silent a little later", ("if now - member.seen >=", "if now - member.seen >"),
        test_m1_over_time,
    ),
    # pynenc ignores a later life and its messages.
    bug(
        "whoever beats is alive",
        ("    if member.left is not None:\n        return", "    return None\n    if True:\n        return"),
        test_m1_of_any_members, test_m1_over_time,
    ),
    bug("beats bring back", *BROUGHT_BACK, test_m2_who_is_gone_stays_gone),
    bug("beats bring back who is as alive as its runner", COVERED, *BROUGHT_BACK, test_m2_who_is_gone_stays_gone),
    # pynenc: each beat sets anew whether its sender may run the service.
    bug(
        "beats make a runner", ("seen=_later(member.seen, now)", "seen=_later(member.seen, now), runner=None"),
        WORKERS_TOO, test_m3_runners_are_the_living,
    ),
    bug("workers are listed, too", WORKERS_TOO, test_m3_runners_are_the_living),
    # pynenc's list is by id: a restarted runner is two until its former life is silent.
    bug(
        "former lives are listed, too", ("        member.name: member\n", "        member.id: member\n"),
        test_m3_runners_are_the_living, test_m5_a_restart_moves_nobody,
    ),
    bug("by the last beat", ("key=_by_creation", "key=lambda each: -each.seen.at"), test_m4_nobody_overtakes),
    # A restart goes to the end, and runners behind it move up.
    bug("by age", ("key=_by_creation", "key=lambda each: (each.joined.at, each.id)"), test_m4_nobody_overtakes),
    bug(
        "a restart is a newcomer", ("created=former.created, joined", "created=since, joined"),
        test_m5_a_restart_moves_nobody,
    ),
    bug("lives are not counted", ("life=former.life + 1", "life=1"), test_m5_a_restart_moves_nobody),
    # No stabilisation, although its former life may still work.
    bug(
        "a restart takes over the age", ("joined=since, seen", "joined=former.created, seen"),
        test_m5_a_restart_moves_nobody,
    ),
    bug(
        "each goes on its own, runners and later lives first",
        ("< retention or member.place in kept or member.id in kept:", "< retention:"),
        ("(each.runner is None, *_by_life(each))", "(each.runner is not None, -each.life)"),
        test_m6_along_the_way, test_m6_of_any_members,
    ),
    # It also forgets the evidence that their workers are orphans.
    bug(
        "the departed go at once",
        ("if now - member.seen < retention or member.place in kept or member.id in kept:", "if member.left is None:"),
        test_m6_along_the_way, test_m6_of_any_members,
    ),
    bug(
        "the silent go too soon", ("member.seen < retention or", "member.seen < retention - 1 or"),
        test_m6_along_the_way,
    ),
    bug(
        "since when somebody is there does not matter", (" and at - member.created >= 0", ""),
        test_m7_an_instant_keeps_its_list,
    ),
    bug(
        "when somebody left does not matter", ("(member.left is None or member.left - at > 0)", "member.left is None"),
        test_m7_an_instant_keeps_its_list,
    ),
    bug(
        "a former life goes with a place that is younger than the instant",
        ("in sorted(membership.members, key=_by_life)\n        if", "in membership.latest.values()\n        if"),
        test_m7_an_instant_keeps_its_list,
    ),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------

START = Instant(1_800_000_000 * SECOND)


def member(who: str, **changes: object) -> Member:
    plain = Member(id=who, name=who, life=1, runner=None, created=START, joined=START, seen=START)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def on_the_wall(who: str) -> Member:
    at = Instant(START.at, WALL)
    return member(who, created=at, joined=at, seen=at)


def of(*joined: Member) -> Membership:
    return Membership(joined)


def added(known: Membership, answer: Joined | Taken | RunnerNotAlive) -> Membership:
    assert isinstance(answer, Joined)
    return written(known, answer.member)


def ids(listed: tuple[Runner, ...]) -> list[str]:
    return [runner.id for runner in listed]


GROUP = of(
    member("a-1", name="a"),
    member("a-2", name="a", life=2),
    member("w-1", runner="a-1"),
    member("w-2", runner="a-2"),
    member("b", left=START),
    member("w-3", runner="b"),
    member("c", created=START + -MINUTE, seen=START + SECOND),
    member("w-4", runner="c", left=START),
    member("w-5", runner="nobody"),
    member("c-2", name="c", runner="a-2", life=9),
)


@pytest.mark.parametrize(
    ("who", "after", "expected", "text"),
    [
        ("a-1", 0, Replaced("a-2"), "replaced by 'a-2'"),
        ("a-2", 0, Alive(START + DEAD_AFTER), "alive until 1800000600 s@store"),
        ("a-2", DEAD_AFTER - 1, Alive(START + DEAD_AFTER), "alive until 1800000600 s@store"),
        ("a-2", DEAD_AFTER, Silent(START), "silent since 1800000000 s@store"),
        ("a-2", -DEAD_AFTER, Alive(START + DEAD_AFTER), "alive until 1800000600 s@store"),
        ("w-1", 0, Orphaned("a-1"), "orphaned by 'a-1'"),
        ("w-2", 0, Alive(START + DEAD_AFTER), "alive until 1800000600 s@store"),
        ("b", 0, Departed(), "departed"),
        ("b", 2 * DEAD_AFTER, Departed(), "departed"),
        ("w-3", 0, Orphaned("b"), "orphaned by 'b'"),
        ("c", DEAD_AFTER, Alive(START + (DEAD_AFTER + SECOND)), "alive until 1800000601 s@store"),
        ("w-4", 0, Departed(), "departed"),
        ("w-5", 0, Alive(START + DEAD_AFTER), "alive until 1800000600 s@store"),
        ("d", 0, Unseen(), "unseen"),
    ],
)
def test_it_is_said_who_is_alive_and_why_not(who: str, after: Duration, expected: Liveness, text: str) -> None:
    found = liveness(GROUP, who, START + after)

    assert found == expected
    assert str(found) == text


@given(st.integers(-3, 3))
def test_silence_begins_when_the_filter_of_the_store_says_so(late: Duration) -> None:
    now = START + (DEAD_AFTER + late * MILLISECOND)
    older = matches(
        OlderThan(Field[Instant]("seen"), DEAD_AFTER), Document.of({"_id": "a", "seen": START}), lambda: now
    )

    assert older is isinstance(liveness(of(member("a")), "a", now), Silent)


def test_runners_stand_by_creation_then_by_name() -> None:
    """pynenc, case 18; older ones come first."""
    known = of(member("2"), member("1"), member("3"), member("9", created=START + -1))

    assert ids(runners(known, START)) == ["9", "1", "2", "3"]


def test_a_later_beat_moves_nobody() -> None:
    """Unlike an order by the oldest beat (pynenc, case 19)."""
    known = of(member("1"), member("2", created=START + -1), member("3"))
    beaten = beat(known, "2", START + MINUTE)

    assert isinstance(beaten, Beaten)
    assert runners(written(known, beaten.member), START + MINUTE) == runners(known, START)


def test_workers_never_take_part() -> None:
    """pynenc, case 20."""
    known = of(member("1"), member("1-w", runner="1", created=START + -1), member("2", left=START))

    assert ids(runners(known, START)) == ["1"]
    assert ids(runners(known, START + DEAD_AFTER)) == []


def restarted(known: Membership, now: Instant, *, named: bool, leaves: bool = False) -> Membership:
    for life in range(3):
        for name in ("a", "b"):
            known = added(known, join(known, f"{name}-{life}", now, name=name if named else None))
        now += MINUTE
        if leaves and life < 2:
            for name in ("a", "b"):
                left = leave(known, f"{name}-{life}", now)
                assert isinstance(left, Left)
                known = written(known, left.member)
    return known


def test_ghosts_take_no_slots() -> None:
    """pynenc: counts two twice-restarted runners as six for ten minutes; it allows five."""
    later = START + 3 * MINUTE

    assert len(runners(restarted(Membership(), START, named=False), later)) == 6
    assert ids(runners(restarted(Membership(), START, named=True), later)) == ["a-2", "b-2"]
    assert ids(runners(restarted(Membership(), START, named=False, leaves=True), later)) == ["a-2", "b-2"]


def test_a_restarted_runner_takes_its_place_and_waits_for_stabilisation() -> None:
    """Its former life may still be at work in the slot."""
    service = AtomicService(stabilisation=5 * MINUTE)
    now = START + 10 * SECOND  # the first slot of a cycle
    known = of(member("a-1", name="a"), member("b"))
    known = added(known, join(known, "a-2", now, name="a"))

    def decided(now: Instant) -> object:
        return decide_atomic_service_claim(
            service=service, runner_id="a-2", runners=runners(known, now), now=now, run_id="run"
        ).verdict

    assert runners(known, now) == (Runner("a-2", now), Runner("b", START))
    assert decided(now) == ScheduledRunnerInGrace(now + 5 * MINUTE)
    assert isinstance(decided(now + 5 * MINUTE), Assigned)


def test_of_two_that_join_at_once_under_a_name_one_counts() -> None:
    known = of(member("a-1", name="a"))
    both = added(added(known, join(known, "x", START, name="a")), join(known, "y", START, name="a"))

    assert [liveness(both, who, START) for who in ("a-1", "x", "y")] == [
        Replaced("y"),
        Replaced("y"),
        Alive(START + DEAD_AFTER),
    ]
    assert beat(both, "x", START) == Replaced("y")


def test_a_join_may_be_repeated_and_takes_no_id_of_another() -> None:
    known = of(member("a"), member("w", runner="a", name="worker"), member("d", left=START))
    now = START + SECOND

    assert join(known, "a", now) == Joined(known.by_id["a"])
    assert join(known, "w", now, name="worker", runner="a") == Joined(known.by_id["w"])
    assert join(known, "a", now, name="b") == Taken(known.by_id["a"])
    assert join(known, "a", now, runner="w") == Taken(known.by_id["a"])
    assert join(known, "w", now, name="worker", runner="d") == Taken(known.by_id["w"])
    assert join(known, "d", now) == Taken(known.by_id["d"])
    assert join(known, "a", START + DEAD_AFTER) == Taken(known.by_id["a"])


def test_a_worker_joins_a_runner_that_is_alive() -> None:
    known = of(member("a"), member("d", left=START))

    assert join(known, "w", START, runner="a") == Joined(member("w", runner="a"))
    assert join(known, "w", START, runner="d") == RunnerNotAlive("d", Departed())
    assert join(known, "w", START, runner="x") == RunnerNotAlive("x", Unseen())


def test_a_name_is_of_all_workers() -> None:
    """Known limit: a worker with the name of another runner's worker is its next life."""
    known = of(member("a"), member("b"))
    known = added(known, join(known, "a-w", START, name="1", runner="a"))
    known = added(known, join(known, "b-w", START, name="1", runner="b"))

    assert liveness(known, "a-w", START) == Replaced("b-w")


def test_whoever_is_not_alive_does_not_beat() -> None:
    known = of(member("a"), member("b", created=START + 1, joined=START + 1, seen=START + DEAD_AFTER))
    now = START + DEAD_AFTER

    assert beat(known, "a", now) == Silent(START)
    assert beat(known, "x", now) == Unseen()
    assert join(known, "a-2", now, name="a") == Joined(
        member("a-2", name="a", life=2, created=now, joined=now, seen=now)
    )
    assert ids(runners(added(known, join(known, "a-2", now, name="a")), now)) == ["b", "a-2"]


def test_leaving_is_said_as_often_as_one_likes() -> None:
    known = of(member("a", left=START), member("b"))

    assert leave(known, "a", START) == Left(known.by_id["a"])
    assert leave(known, "b", START) == Left(member("b", left=START))
    assert leave(known, "c", START) == Unseen()


def test_a_clock_that_is_set_back_takes_nobody_back() -> None:
    """A beat does not make the last one earlier, nor a life begin before its place was taken."""
    known = of(member("a", seen=START + MINUTE))
    before = START + -MINUTE

    assert beat(known, "a", before) == Beaten(member("a", seen=START + MINUTE))
    assert join(known, "b", before, name="a") == Joined(member("b", name="a", life=2))


def test_what_is_forgotten_goes_in_order() -> None:
    """Earlier lives before later ones, workers before their runners."""
    known = of(
        member("a-2", name="a", life=2),
        member("w", runner="a-2"),
        member("a-1", name="a"),
        member("b", left=START),
        member("v", runner="b", seen=START + 1),
        member("c-2", name="c", life=2),
        member("c-1", name="c", seen=START + 1),
    )

    assert forgettable(known, START + DEAD_AFTER, DEAD_AFTER) == ("w", "a-1", "a-2")
    assert forgettable(known, START + (DEAD_AFTER - 1), DEAD_AFTER) == ()
    assert forgettable(known, START + (DEAD_AFTER + 1), DEAD_AFTER) == ("v", "w", "a-1", "b", "c-1", "a-2", "c-2")


@given(memberships(), short_times(), st.integers(-(10**18), 10**18), st.data())
def test_neither_the_order_of_records_nor_the_epoch_matters(
    known: Membership, now: Instant, by: Duration, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(known.members))
    moved = tuple(
        attrs.evolve(
            each,
            created=each.created + by,
            joined=each.joined + by,
            seen=each.seen + by,
            left=None if each.left is None else each.left + by,
        )
        for each in shuffled
    )
    later = Membership(moved, known.dead_after)

    assert runners(later, now + by) == tuple(Runner(each.id, each.created + by) for each in runners(known, now))
    for who in known.by_id:
        assert type(liveness(later, who, now + by)) is type(liveness(known, who, now))


# --- misuse, and the strategies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: member("a", runner="a"), "worker of itself"),
        (lambda: member("a", joined=START + -1), "before it was there"),
        (lambda: member("a", seen=START + -1), "before it was there"),
        (lambda: member("a", left=START + -1), "before it was there"),
        (lambda: member("a", seen=Instant(START.at, WALL)), "cannot compare"),
        (lambda: of(member("a"), member("a", life=2)), "one id"),
        (lambda: of(member("a"), on_the_wall("b")), "different clocks"),
        (lambda: liveness(GROUP, "c", Instant(0, WALL)), "cannot compare"),
        (lambda: runners(GROUP, Instant(0, WALL)), "cannot compare"),
        (lambda: beat(GROUP, "c", Instant(0, WALL)), "cannot compare"),
        (lambda: join(GROUP, "d", Instant(0, WALL)), "cannot compare"),
        (lambda: leave(GROUP, "c", Instant(0, WALL)), "cannot compare"),
        (lambda: liveness(GROUP, "nobody", Instant(0, WALL)), "cannot compare"),
        (lambda: forgettable(GROUP, Instant(0, WALL), DEAD_AFTER), "cannot compare"),
        (lambda: forgettable(GROUP, START, DEAD_AFTER - 1), "a retention in microseconds must be"),
        (lambda: Membership(dead_after=0), "a time of silence in microseconds must be"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object], complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint):
        _ = wrong()


CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Member": (Member, {field.name: getattr(GROUP.by_id["w-2"], field.name) for field in attrs.fields(Member)}),
    "Membership": (Membership, {"members": (), "dead_after": 1}),
    "liveness": (liveness, {"membership": GROUP, "who": "a-2", "now": START}),
    "runners": (runners, {"membership": GROUP, "at": START}),
    "join": (join, {"membership": GROUP, "who": "x", "now": START, "name": "a", "runner": "a-2"}),
    "beat": (beat, {"membership": GROUP, "who": "a-2", "now": START}),
    "leave": (leave, {"membership": GROUP, "who": "a-2", "now": START}),
    "forgettable": (forgettable, {"membership": GROUP, "now": START, "retention": DEAD_AFTER}),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_meet_misuse_and_nothing_else(name: str) -> None:
    refuses_wrong_types(*CALLS[name], START)


def test_a_membership_is_a_value() -> None:
    assert Membership(GROUP.members) == GROUP
    assert hash(Membership(GROUP.members)) == hash(GROUP)
    assert repr(of(member("a"))).count("'a'") == 2


@pytest.mark.parametrize(
    ("drawn", "case"),
    [
        *((livenesses(), kind) for kind in (Alive, Silent, Departed, Replaced, Orphaned, Unseen)),
        *((answers_to_members(), kind) for kind in (Joined, Taken, RunnerNotAlive, Beaten, Left)),
    ],
)
def test_every_case_is_drawn(drawn: st.SearchStrategy[object], case: type) -> None:
    must_draw(drawn, lambda each: isinstance(each, case))
