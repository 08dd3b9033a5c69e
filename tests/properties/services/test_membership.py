from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol, TypeAlias, assert_never

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types

from tidegate.model.documents import Document, Field, OlderThan, matches
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, WALL, Duration, Instant
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    Runner,
    ScheduledRunnerInGrace,
    decide_atomic_service_claim,
)
from tidegate.services.laws import membership as laws
from tidegate.services.laws.membership import deleted, written
from tidegate.services.membership import (
    DEAD_AFTER,
    Alive,
    Beaten,
    Departed,
    Gone,
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
from tidegate.services.strategies.membership import answers_to_members, livenesses, memberships, short_times


class Join(Protocol):
    """What becomes of a process that joins."""

    def __call__(
        self, membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
    ) -> Joined | Taken | RunnerNotAlive: ...


@attrs.frozen
class Service:
    """What processes and those who ask about them use: the real functions, but for one that is planted."""

    liveness: Callable[[Membership, str, Instant], Liveness] = liveness
    runners: Callable[[Membership, Instant], tuple[Runner, ...]] = runners
    join: Join = join
    beat: Callable[[Membership, str, Instant], Beaten | Gone | Unseen] = beat
    leave: Callable[[Membership, str, Instant], Left | Unseen] = leave
    forgettable: Callable[[Membership, Instant, Duration], tuple[str, ...]] = forgettable

    def found(self, known: Membership, now: Instant) -> dict[str, Liveness]:
        return {member.id: self.liveness(known, member.id, now) for member in known.members}


# --- random lives of a group ------------------------------------------------------------------------------------------


@attrs.frozen
class Joins:
    """A process joins, with a name or without, perhaps as a worker of somebody, by a list that is some writes old."""

    name: str | None
    runner: int | None
    stale: int = 0


@attrs.frozen
class Beats:
    """Somebody who joined once beats."""

    who: int


@attrs.frozen
class Leaves:
    """Somebody who joined once leaves."""

    who: int


@attrs.frozen
class Passes:
    """Time passes."""

    duration: Duration


@attrs.frozen
class Forgets:
    """Some of what may be forgotten is."""

    count: int


Event: TypeAlias = Joins | Beats | Leaves | Passes | Forgets
SILENCE = 4
"""How long one must be silent here; so small that instants meet."""

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
    """What is known at an instant, and what was done to bring it about."""

    known: Membership
    now: Instant
    event: Event | None = None
    joined: Joined | None = None


def play(service: Service, happened: list[Event]) -> list[Moment]:
    """All moments, one a write; each id is given out once, and a later one is not the higher one."""
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
                answer = service.join(view, who, now, name=name, runner=worked_for)
                ids.append(who)
                if isinstance(answer, Joined):
                    fresh = answer if view is known else None
                    moments.append(Moment(written(known, answer.member), now, event, fresh))
            case Beats(number) if ids:
                beaten = service.beat(known, ids[number % len(ids)], now)
                if isinstance(beaten, Beaten):
                    moments.append(Moment(written(known, beaten.member), now, event))
            case Leaves(number) if ids:
                left = service.leave(known, ids[number % len(ids)], now)
                if isinstance(left, Left):
                    moments.append(Moment(written(known, left.member), now, event))
            case Forgets(count):
                for who in service.forgettable(known, now, SILENCE)[:count]:
                    moments.append(Moment(deleted(moments[-1].known, who), now, event))
            case Passes(duration):
                moments.append(Moment(known, now + duration, event))
            case Beats() | Leaves():
                pass
            case _:
                assert_never(event)
    return moments


# --- the laws ---------------------------------------------------------------------------------------------------------


def check_m1(service: Service) -> None:
    @given(memberships(), short_times())
    def of_any_members(known: Membership, now: Instant) -> None:
        for who in (*known.by_id, "nobody"):
            assert laws.who_beats_is_alive(known, who, now, service.liveness(known, who, now))

    @given(lives)
    @example([Joins("a", None), Joins("b", 0), Passes(SILENCE - 1), Beats(1), Passes(1)])
    def over_time(happened: list[Event]) -> None:
        for moment in play(service, happened):
            for who, found in service.found(moment.known, moment.now).items():
                assert laws.who_beats_is_alive(moment.known, who, moment.now, found)

    of_any_members()
    over_time()


def check_m2(service: Service) -> None:
    @given(lives)
    @example([Joins("a", None), Passes(SILENCE), Beats(0)])
    @example([Joins("a", None), Joins("a", None), Beats(0)])
    @example([Joins("a", None), Joins("b", 0), Leaves(0), Joins("b", None), Beats(1)])
    def holds(happened: list[Event]) -> None:
        moments = play(service, happened)
        for earlier, later in pairwise(moments):
            before, after = service.found(earlier.known, earlier.now), service.found(later.known, later.now)

            assert all(laws.gone_is_gone(before.get(who, Unseen()), found) for who, found in after.items())

    holds()


def check_m3(service: Service) -> None:
    @given(lives)
    @example([Joins("a", None), Joins("b", 0), Passes(1), Joins("a", None)])
    def holds(happened: list[Event]) -> None:
        for moment in play(service, happened):
            found = service.found(moment.known, moment.now)

            assert laws.runners_are_the_living(moment.known, found, service.runners(moment.known, moment.now))

    holds()


def check_m4(service: Service) -> None:
    @given(lives)
    @example([Joins("b", None), Joins("a", None), Passes(1), Beats(1), Passes(1), Beats(0)])
    @example([Joins("b", None), Passes(1), Joins("a", None), Passes(1), Beats(0)])
    def holds(happened: list[Event]) -> None:
        before: tuple[Runner, ...] = ()
        for moment in play(service, happened):
            after = service.runners(moment.known, moment.now)

            assert laws.they_stand_by_creation(moment.known, after)
            assert laws.nobody_overtakes(before, after)
            before = after

    holds()


def check_m5(service: Service) -> None:
    @given(lives)
    @example([Joins("a", None), Passes(1), Joins("b", None), Passes(1), Joins("a", None)])
    @example([Joins("b", None), Joins("b", None), Joins("a", None), Joins("a", None)])
    def holds(happened: list[Event]) -> None:
        moments = play(service, happened)
        for earlier, later in pairwise(moments):
            if later.joined is None or later.joined.member.runner is not None:
                continue
            new = later.joined.member
            former = earlier.known.latest.get(new.place)
            before = service.runners(earlier.known, later.now)
            if former is not None and former.id in {runner.id for runner in before}:
                after = service.runners(later.known, later.now)

                assert laws.a_restart_moves_nobody(before, after, former.id, Runner(new.id, later.now))

    holds()


def check_m6(service: Service) -> None:
    @given(lives, st.sampled_from((SILENCE, SILENCE + 1, 2 * SILENCE)))
    @example([Joins("a", None), Joins("b", 0), Leaves(0), Passes(1), Beats(1)], SILENCE)
    @example([Joins("a", None), Joins("b", 0), Passes(SILENCE - 1), Beats(1), Leaves(0), Passes(1)], SILENCE)
    @example([Joins("a", None), Passes(SILENCE - 1)], SILENCE)
    def along_the_way(happened: list[Event], retention: Duration) -> None:
        moment = play(service, happened)[-1]
        forgets(moment.known, moment.now, retention)

    @given(memberships(), short_times(), st.integers(0, 9))
    def of_any_members(known: Membership, now: Instant, longer: Duration) -> None:
        forgets(known, now, known.dead_after + longer)

    def forgets(known: Membership, now: Instant, retention: Duration) -> None:
        for who in service.forgettable(known, now, retention):
            before, known = service.found(known, now), deleted(known, who)

            assert laws.only_the_forgotten_go(before, service.found(known, now), who)

    along_the_way()
    of_any_members()


def check_m7(service: Service) -> None:
    @given(lives)
    @example([Joins("a", None), Passes(1), Joins("b", None)])
    @example([Joins("a", None), Joins("b", None), Passes(1), Leaves(0)])
    @example([Joins("a", None), Joins("b", None), Passes(1), Joins("a", None)])
    @example([Joins("a", None), Passes(SILENCE), Joins("a", None)])
    def holds(happened: list[Event]) -> None:
        # Nobody is forgotten, and nobody joins by an old list: see what is known not to work.
        kept: list[Event] = [
            attrs.evolve(each, stale=0) if isinstance(each, Joins) else each
            for each in happened
            if not isinstance(each, Forgets)
        ]
        moments = play(service, kept)
        over = {moment.now: moment.known for moment in moments}  # the last one of each instant
        last = moments[-1].known
        for at, known in over.items():
            assert laws.an_instant_keeps_its_list(service.runners(known, at), service.runners(last, at), last, at)

    holds()


LAWS: dict[str, Callable[[Service], None]] = {
    "M1": check_m1,
    "M2": check_m2,
    "M3": check_m3,
    "M4": check_m4,
    "M5": check_m5,
    "M6": check_m6,
    "M7": check_m7,
}


@pytest.mark.parametrize("law", LAWS)
def test_the_members_keep_the_law(law: str) -> None:
    """Laws M1 to M7, as the header of `tidegate.services.membership` states them."""
    LAWS[law](Service())


# --- specimens --------------------------------------------------------------------------------------------------------


def covered_by_its_runner(known: Membership, who: str, now: Instant) -> Liveness:
    """A worker is as alive as its runner."""
    runner = known.by_id[who].runner if who in known.by_id else None
    return liveness(known, who if runner is None or runner not in known.by_id else runner, now)


def since_it_joined(known: Membership, who: str, now: Instant) -> Liveness:
    """Beats are not looked at."""
    still = tuple(attrs.evolve(member, seen=member.joined) for member in known.members)
    return liveness(attrs.evolve(known, members=still), who, now)


def a_little_later(known: Membership, who: str, now: Instant) -> Liveness:
    """What pynenc asks: silent for longer than the limit."""
    return liveness(attrs.evolve(known, dead_after=known.dead_after + 1), who, now)


def as_long_as_it_beats(known: Membership, who: str, now: Instant) -> Liveness:
    """As in pynenc: whoever beats is alive; that there is a later life does not matter, nor what it said."""
    member = known.by_id.get(who)
    if member is None:
        return Unseen()
    alone = Membership((attrs.evolve(member, left=None, runner=None),), known.dead_after)
    return liveness(alone, who, now)


def beats_bring_back(known: Membership, who: str, now: Instant) -> Beaten | Gone | Unseen:
    """What pynenc does: the record is overwritten, whatever was found out meanwhile."""
    member = known.by_id.get(who)
    return Unseen() if member is None else Beaten(attrs.evolve(member, seen=now, left=None))


def beats_make_a_runner(known: Membership, who: str, now: Instant) -> Beaten | Gone | Unseen:
    """As with pynenc's flag: each beat says anew whether its sender may run the service."""
    beaten = beat(known, who, now)
    return Beaten(attrs.evolve(beaten.member, runner=None)) if isinstance(beaten, Beaten) else beaten


def workers_too(known: Membership, now: Instant) -> tuple[Runner, ...]:
    """All the living ones, without asking what they are."""
    living = [member for member in known.members if isinstance(liveness(known, member.id, now), Alive)]
    return tuple(Runner(each.id, each.joined) for each in sorted(living, key=lambda each: (each.created.at, each.name)))


def ghosts_too(known: Membership, now: Instant) -> tuple[Runner, ...]:
    """As in pynenc's list: by id, so a restarted runner is two until its former life is silent."""
    beating = [
        member
        for member in known.members
        if member.runner is None and member.left is None and now - member.seen < known.dead_after
    ]
    return tuple(
        Runner(each.id, each.joined) for each in sorted(beating, key=lambda each: (each.created.at, each.name))
    )


def by_last_beat(known: Membership, now: Instant) -> tuple[Runner, ...]:
    listed = runners(known, now)
    return tuple(sorted(listed, key=lambda runner: -known.by_id[runner.id].seen.at))


def by_age(known: Membership, now: Instant) -> tuple[Runner, ...]:
    """By when each life began: a restart goes to the end, and everybody behind it moves up."""
    return tuple(sorted(runners(known, now), key=lambda runner: (runner.created.at, runner.id)))


def by_now(known: Membership, at: Instant) -> tuple[Runner, ...]:
    """Whoever has joined by now is counted, since when does not matter."""
    since = tuple(attrs.evolve(each, created=min(each.created, at, key=lambda it: it.at)) for each in known.members)
    return runners(attrs.evolve(known, members=since), at)


def left_at_once(known: Membership, at: Instant) -> tuple[Runner, ...]:
    """Whoever has left by now is not counted, whenever it was."""
    return tuple(each for each in runners(known, at) if known.by_id[each.id].left is None)


def silent_at_once(known: Membership, at: Instant) -> tuple[Runner, ...]:
    """Only the latest life of a name is looked at, also where its place is younger than the instant."""
    latest = tuple(known.latest.values())
    return runners(attrs.evolve(known, members=latest), at)


def at_the_end(
    membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """A restart is a newcomer: created now."""
    answer = join(membership, who, now, name=name, runner=runner)
    return Joined(attrs.evolve(answer.member, created=answer.member.joined)) if isinstance(answer, Joined) else answer


def always_the_first(
    membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """Lives are not counted, so the id decides which is the later one."""
    answer = join(membership, who, now, name=name, runner=runner)
    return Joined(attrs.evolve(answer.member, life=1)) if isinstance(answer, Joined) else answer


def as_old_as_before(
    membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """A restart takes over the age too: no stabilisation, while its former life may be at work."""
    answer = join(membership, who, now, name=name, runner=runner)
    return Joined(attrs.evolve(answer.member, joined=answer.member.created)) if isinstance(answer, Joined) else answer


def the_silent(known: Membership, now: Instant, retention: Duration) -> tuple[str, ...]:
    """Each on its own, runners and later lives first."""
    silent = [member for member in known.members if now - member.seen >= retention]
    return tuple(each.id for each in sorted(silent, key=lambda each: (each.runner is not None, -each.life)))


def the_departed(known: Membership, _: Instant, __: Duration) -> tuple[str, ...]:
    """At once, with what says that their workers are orphans."""
    return tuple(member.id for member in known.members if member.left is not None)


def the_silent_too_soon(known: Membership, now: Instant, retention: Duration) -> tuple[str, ...]:
    return forgettable(attrs.evolve(known, dead_after=1), now, retention - 1)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("M1", Service(liveness=covered_by_its_runner)),
        ("M1", Service(liveness=since_it_joined)),
        ("M1", Service(liveness=a_little_later)),
        ("M1", Service(liveness=as_long_as_it_beats)),
        ("M2", Service(beat=beats_bring_back)),
        ("M2", Service(liveness=covered_by_its_runner, beat=beats_bring_back)),
        ("M3", Service(beat=beats_make_a_runner, runners=workers_too)),
        ("M3", Service(runners=workers_too)),
        ("M3", Service(runners=ghosts_too)),
        ("M4", Service(runners=by_last_beat)),
        ("M4", Service(runners=by_age)),
        ("M5", Service(join=at_the_end)),
        ("M5", Service(join=always_the_first)),
        ("M5", Service(join=as_old_as_before)),
        ("M5", Service(runners=ghosts_too)),
        ("M6", Service(forgettable=the_silent)),
        ("M6", Service(forgettable=the_departed)),
        ("M6", Service(forgettable=the_silent_too_soon)),
        ("M7", Service(runners=by_now)),
        ("M7", Service(runners=left_at_once)),
        ("M7", Service(runners=silent_at_once)),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Service) -> None:
    """Each law is broken by a small faulty variant of what it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts ------------------------------------------------------------------------------------------------------------

START = Instant(1_800_000_000 * SECOND)


def member(who: str, **changes: object) -> Member:
    """A runner that joined at the start, but for what is said otherwise."""
    plain = Member(id=who, name=who, life=1, runner=None, created=START, joined=START, seen=START)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def on_the_wall(who: str) -> Member:
    """A runner that was seen by another clock."""
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
    """Each case once, and both sides of the limit; a worker called like a runner is not its next life."""
    found = liveness(GROUP, who, START + after)

    assert found == expected
    assert str(found) == text


@given(st.integers(-3, 3))
def test_silence_begins_when_the_filter_of_the_store_says_so(late: Duration) -> None:
    """Agreement with `OlderThan`, which judges the same beat by the store's clock."""
    now = START + (DEAD_AFTER + late * MILLISECOND)
    older = matches(
        OlderThan(Field[Instant]("seen"), DEAD_AFTER), Document.of({"_id": "a", "seen": START}), lambda: now
    )

    assert older is isinstance(liveness(of(member("a")), "a", now), Silent)


def test_runners_stand_by_creation_then_by_name() -> None:
    """Registered in one batch as 2, 1, 3 they stand as 1, 2, 3 (pynenc, case 18); who is older stands before."""
    known = of(member("2"), member("1"), member("3"), member("9", created=START + -1))

    assert ids(runners(known, START)) == ["9", "1", "2", "3"]


def test_a_later_beat_moves_nobody() -> None:
    """Not by the oldest (pynenc, case 19)."""
    known = of(member("1"), member("2", created=START + -1), member("3"))
    beaten = beat(known, "2", START + MINUTE)

    assert isinstance(beaten, Beaten)
    assert runners(written(known, beaten.member), START + MINUTE) == runners(known, START)


def test_workers_never_take_part() -> None:
    """However they are called and whoever beats (pynenc, case 20); a runner does while it is alive."""
    known = of(member("1"), member("1-w", runner="1", created=START + -1), member("2", left=START))

    assert ids(runners(known, START)) == ["1"]
    assert ids(runners(known, START + DEAD_AFTER)) == []


def restarted(known: Membership, now: Instant, *, named: bool, leaves: bool = False) -> Membership:
    """Two runners that were restarted twice, a minute apart, and beat in between."""
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
    """Two runners that restart twice are six to pynenc for ten minutes, and its defaults stop at five."""
    later = START + 3 * MINUTE

    assert len(runners(restarted(Membership(), START, named=False), later)) == 6
    assert ids(runners(restarted(Membership(), START, named=True), later)) == ["a-2", "b-2"]
    assert ids(runners(restarted(Membership(), START, named=False, leaves=True), later)) == ["a-2", "b-2"]


def test_a_restarted_runner_takes_its_place_and_waits_for_stabilisation() -> None:
    """Its slot stays where it was, and empty, for its former life may still be at work in it."""
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
    """Both read the list before the other was in it: they are told apart by their ids, the same for all who look."""
    known = of(member("a-1", name="a"))
    both = added(added(known, join(known, "x", START, name="a")), join(known, "y", START, name="a"))

    assert [liveness(both, who, START) for who in ("a-1", "x", "y")] == [
        Replaced("y"),
        Replaced("y"),
        Alive(START + DEAD_AFTER),
    ]
    assert beat(both, "x", START) == Replaced("y")


def test_a_join_may_be_repeated_and_takes_no_id_of_another() -> None:
    """After a lost reply it learns that it is in; an id of another kind, name or runner, or of the dead, is taken."""
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
    """Else there is nobody who would take it along when it goes."""
    known = of(member("a"), member("d", left=START))

    assert join(known, "w", START, runner="a") == Joined(member("w", runner="a"))
    assert join(known, "w", START, runner="d") == RunnerNotAlive("d", Departed())
    assert join(known, "w", START, runner="x") == RunnerNotAlive("x", Unseen())


def test_a_name_is_of_all_workers() -> None:
    """Known not to work: a worker that is called like one of another runner is its next life."""
    known = of(member("a"), member("b"))
    known = added(known, join(known, "a-w", START, name="1", runner="a"))
    known = added(known, join(known, "b-w", START, name="1", runner="b"))

    assert liveness(known, "a-w", START) == Replaced("b-w")


def test_whoever_is_not_alive_does_not_beat() -> None:
    """It learns why, and joins anew: at the end of the order, as the next life of its name."""
    known = of(member("a"), member("b", created=START + 1, joined=START + 1, seen=START + DEAD_AFTER))
    now = START + DEAD_AFTER

    assert beat(known, "a", now) == Silent(START)
    assert beat(known, "x", now) == Unseen()
    assert join(known, "a-2", now, name="a") == Joined(
        member("a-2", name="a", life=2, created=now, joined=now, seen=now)
    )
    assert ids(runners(added(known, join(known, "a-2", now, name="a")), now)) == ["b", "a-2"]


def test_leaving_is_said_as_often_as_one_likes() -> None:
    """By the dead, too: a reply may be lost, and a stalled process may come to its end late."""
    known = of(member("a", left=START), member("b"))

    assert leave(known, "a", START) == Left(known.by_id["a"])
    assert leave(known, "b", START) == Left(member("b", left=START))
    assert leave(known, "c", START) == Unseen()


def test_a_clock_that_is_set_back_takes_nobody_back() -> None:
    """A beat does not make the last one earlier, and the next life does not begin before its place was taken."""
    known = of(member("a", seen=START + MINUTE))
    before = START + -MINUTE

    assert beat(known, "a", before) == Beaten(member("a", seen=START + MINUTE))
    assert join(known, "b", before, name="a") == Joined(member("b", name="a", life=2))


def test_what_is_forgotten_goes_in_order() -> None:
    """Earlier lives before later ones, workers before their runners; what is needed to tell that it is gone stays."""
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
    """Metamorphic: the same members in another order, and all of it at another time."""
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
    """With what is wrong; two clocks are never compared."""
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
    """Each argument of each public constructor and function, one at a time; each refuses what is of no type at all."""
    refuses_wrong_types(*CALLS[name], START)


def test_a_membership_is_a_value() -> None:
    """Equal members are equal and hash alike; what is looked up in them is not shown."""
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
    """The strategies reach each verdict."""
    must_draw(drawn, lambda each: isinstance(each, case))
