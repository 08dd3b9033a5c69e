from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.leases import election
from tidegate.leases.checks.laws import election as laws
from tidegate.leases.checks.strategies.election import candidates, events, requests, states
from tidegate.leases.election import (
    Answered,
    Begin,
    Candidate,
    DoesNotLead,
    ElectionCommand,
    ElectionEvent,
    ElectionState,
    ElectionStep,
    End,
    Flight,
    Following,
    Leading,
    Leads,
    Look,
    Request,
    StartTimer,
    Stopped,
    StopRequested,
    Swap,
    TimerFired,
    Unanswered,
    WorkEnded,
    event_for,
)
from tidegate.leases.lease import Lease, Tenure, Terms, takeover_delay
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Now, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import STORE, WALL, ClockName, Instant

TERMS = Terms(ttl=12, heartbeat=4, margin=1, lock_delay=2)
HERE = ClockName("monotonic")


# --- a world in which candidates are elected, and much goes wrong -----------------------------------------------------


@attrs.define(eq=False)
class Sent:
    by: Actor
    life: int
    request: Request
    outcome: tuple[Lease | None] | None = None
    is_answered: bool = False


@attrs.define(eq=False)
class Actor:
    name: str
    offset: int
    life: int = 0
    state: ElectionState = attrs.Factory(Following)
    wake_at: int | None = 0
    running: int | None = None
    is_asked: bool = False
    deeds: list[Begin | End | WorkEnded] = attrs.Factory(list)

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.name, f"{self.name}{self.life}", TERMS)


@attrs.define(eq=False)
class World:
    store_has_clock: bool
    actors: tuple[Actor, ...]
    now: int = 0
    lease: Lease | None = None
    confirmed: Lease | None = None
    made: int = 0
    flights: list[Sent] = attrs.Factory(list)
    epochs: list[int] = attrs.Factory(list)
    taken_over: int = 0

    def clock(self, actor: Actor) -> Instant:
        return Instant(self.now + actor.offset, ClockName(actor.name))

    def tell(self, actor: Actor, event: ElectionEvent) -> None:
        before, running = actor.state, actor.running
        step = actor.candidate.step(before, event)

        assert laws.takes_nothing_once_it_is_to_stop(step), "EL4"
        if isinstance(event, WorkEnded) and event.epoch == running:
            actor.deeds.append(event)
            running = actor.running = None
        assert laws.releases_without_work(running, step), "EL4"
        assert laws.stops_with_nothing_left(before, event, step), "EL4"
        assert laws.awaits_something(step), "EL5"
        assert laws.one_request_is_under_way(before, event, step), "EL6"

        actor.state = step.state
        for command in step.commands:
            self.commanded(actor, command)
        assert laws.work_begins_and_ends_once(actor.deeds), "EL3"
        assert laws.epochs_grow(self.epochs), "EL2"

    def commanded(self, actor: Actor, command: ElectionCommand) -> None:
        match command:
            case Look() | Swap():
                self.flights.append(Sent(actor, actor.life, command))
            case Begin(epoch):
                actor.deeds.append(command)
                actor.running, actor.is_asked = epoch, False
                self.epochs.append(epoch)
            case End():
                actor.deeds.append(command)
                actor.is_asked = True
            case StartTimer(duration):
                actor.wake_at = self.now + duration

    def apply(self, sent: Sent) -> None:
        outcome: Lease | None = None
        match sent.request:
            case Look():
                outcome = self.confirmed
            case Swap(version, wanted, stood):
                if version == (0 if self.lease is None else self.lease.version) and self.now - self.made >= stood:
                    held = self.lease is not None and self.lease.holder is not None
                    self.taken_over += held and self.lease is not None and wanted.token > self.lease.token
                    stamp = Instant(self.now, STORE) if self.store_has_clock else None
                    outcome = self.lease = attrs.evolve(wanted, stamp=stamp)
                    self.made = self.now
        sent.outcome = sent.outcome or (outcome,)

    def answer(self, sent: Sent, *, lost: bool) -> None:
        if sent.is_answered or sent.life != sent.by.life:
            return
        if lost:
            sent.is_answered = True
            self.tell(sent.by, Unanswered(self.clock(sent.by), sent.request))
        elif sent.outcome is not None and self.is_confirmed(*sent.outcome):
            sent.is_answered = True
            self.tell(sent.by, Answered(self.clock(sent.by), sent.request, *sent.outcome))

    def is_confirmed(self, lease: Lease | None) -> bool:
        """A write gets a reply once a majority has it, and reads do not see it before."""
        return lease is None or (self.confirmed is not None and self.confirmed.version >= lease.version)

    def end(self, actor: Actor) -> None:
        if actor.running is not None:
            self.tell(actor, WorkEnded(self.clock(actor), actor.running))

    def crash(self, actor: Actor) -> None:
        actor.life += 1
        actor.state, actor.wake_at, actor.running, actor.deeds = Following(), self.now, None, []

    def turn(self, what: str, who: int, much: int) -> None:
        actor = self.actors[who % len(self.actors)]
        recent = self.flights[-1 - much % len(self.flights)] if self.flights else None
        match what:
            case "wait":
                self.now += much
            case "wake":
                self.tell(actor, TimerFired(self.clock(actor)))
            case "wake all":
                self.wake_all()
            case "serve":
                self.serve()
            case "apply" if recent is not None:
                self.apply(recent)
            case "answer" if recent is not None:
                self.answer(recent, lost=False)
            case "lose" if recent is not None:
                self.answer(recent, lost=True)
            case "confirm":
                self.confirmed = self.lease
            case "end" if actor.is_asked:
                self.end(actor)
            case "fail":
                self.end(actor)
            case "stop":
                self.tell(actor, StopRequested(self.clock(actor)))
            case "crash":
                self.crash(actor)
            case _:
                pass

    def wake_all(self) -> None:
        for actor in self.actors:
            if actor.wake_at is not None and actor.wake_at <= self.now:
                self.tell(actor, TimerFired(self.clock(actor)))

    def serve(self) -> None:
        for sent in islice(self.flights, len(self.flights) + 8):
            if sent.outcome is None:
                self.apply(sent)
            self.confirmed = self.lease
            self.answer(sent, lost=False)

    def calm(self, time: int) -> None:
        for _ in range(time):
            self.wake_all()
            self.serve()
            for actor in self.actors:
                if actor.is_asked:
                    self.end(actor)
            self.serve()
            self.now += 1

    def leaders(self) -> list[str]:
        return [
            actor.name
            for actor in self.actors
            if isinstance(actor.candidate.leads(actor.state, self.clock(actor)), Leads)
        ]

    def willing(self) -> list[str]:
        return [actor.name for actor in self.actors if not laws.is_stopping(actor.state)]


USUAL = ("wait", "wait", "wake all", "wake all", "serve", "serve", "apply", "confirm", "answer", "end")
FAULTS = ("lose", "lose", "wake", "apply", "crash", "fail", "stop")
TURNS = st.lists(
    st.tuples(st.sampled_from(USUAL) | st.sampled_from(FAULTS), st.integers(0, 2), st.integers(0, 8)),
    min_size=20,
    max_size=60,
)
Turn = tuple[str, int, int]
WHO = {"ann": 0, "bob": 1}


def turns(story: str) -> list[Turn]:
    """`ann` and `bob` wake; numbers are time; the rest applies to the last request."""
    return [
        ("wake", WHO[word], 0) if word in WHO else ("wait", 0, int(word)) if word.isdigit() else (word, 0, 0)
        for word in story.split()
    ]


BOB_TAKES = " bob apply answer apply confirm answer"
SLOW_ANSWER = [*turns("ann apply answer apply confirm bob apply answer 14"), ("answer", 0, 1), *turns(BOB_TAKES)]
RENEWED = turns("ann serve bob serve 4 ann serve 4 ann serve 6" + BOB_TAKES)
LATE_LOOK = turns("ann serve bob serve 4 ann apply lose bob serve 1 ann apply 5 answer 8" + BOB_TAKES)
LATE_MAJORITY = turns(
    "ann apply answer apply 8 lose 1 ann apply answer apply answer confirm 4 ann apply answer 1" + BOB_TAKES
)
FAILED = turns("ann serve fail serve")
STOPPED = turns("ann serve stop serve end serve")
STOPPED_TAKING = turns("ann apply answer apply confirm stop answer")
LAPSED = turns("ann serve 8 4 ann serve")
LONG_ENOUGH = TERMS.ttl + TERMS.lock_delay + TERMS.heartbeat + 1


quietly = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@quietly
@given(st.booleans(), TURNS, st.integers(1, 3))
@example(False, SLOW_ANSWER, 2)
@example(True, SLOW_ANSWER, 2)
@example(False, RENEWED, 2)
@example(False, LATE_LOOK, 2)
@example(True, LATE_MAJORITY, 2)
@example(False, FAILED, 1)
@example(False, STOPPED, 1)
@example(False, STOPPED_TAKING, 1)
@example(True, LAPSED, 1)
@example(True, [*turns("ann serve"), ("crash", 0, 0)], 1)
def test_el1_to_el7_in_a_world(store_has_clock: bool, schedule: list[Turn], count: int) -> None:
    """Laws EL1 to EL6 at each step, and EL7 once faults have stopped."""
    actors = tuple(Actor(name, offset) for name, offset in (("a", 0), ("b", 1_000), ("c", -7))[:count])
    world = World(store_has_clock, actors)
    for what, who, much in schedule:
        world.turn(what, who, much)

        assert laws.one_leads(world.leaders()), "EL1"

    world.calm(LONG_ENOUGH)

    assert laws.one_leads(world.leaders()), "EL1"
    assert laws.somebody_leads(world.leaders(), world.willing()), "EL7"
    assert all(isinstance(actor.state, Stopped) or actor.name in world.willing() for actor in actors), "EL4"


@quietly
@given(candidates(), states(HERE), requests(), st.none() | st.just(Lease(3, 4, "bob", "r1", 9)), st.integers(-9, 9))
def test_el8_what_is_not_under_way_does_not_matter(
    candidate: Candidate, state: ElectionState, request: Request, lease: Lease | None, at: int
) -> None:
    now = Instant(at, HERE)
    if not isinstance(state, Stopped) and state.flight is not None and state.flight.request == request:
        state = attrs.evolve(state, flight=None)
    woken = candidate.step(state, TimerFired(now))

    assert laws.changes_nothing(candidate.step(state, Answered(now, request, lease)), woken), "EL8"
    assert laws.changes_nothing(candidate.step(state, Unanswered(now, request)), woken), "EL8"


# --- planted bugs -----------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    election,
    # It does not count from the request.
    bug(
        "a tenure counts from the answer",
        (
            "self._follower_answered(attrs.evolve(state, flight=None), request, lease, state.flight.sent, at)",
            "self._follower_answered(attrs.evolve(state, flight=None), request, lease, at, at)",
        ),
        test_el1_to_el7_in_a_world, says="EL1",
    ),
    bug(
        "whatever is there is taken", ("if is_stamped:", "if True:"), ("takeover_delay(lease, lock_delay),", "0,"),
        test_el1_to_el7_in_a_world, says="EL1",
    ),
    # Renewed or not.
    bug(
        "what was seen once stands since then",
        (
            "observe(state.observation, mark, at)",
            "mark and Observation(mark, at if state.observation is None else state.observation.since)",
        ),
        test_el1_to_el7_in_a_world, says="EL1",
    ),
    bug(
        "a renewal without an answer counts from when it was found to be done",
        ("lease, state.unsure or sent)", "lease, at if state.unsure else sent)"),
        test_el1_to_el7_in_a_world, says="EL1",
    ),
    bug(
        "a take that a look did not find is done after that",
        (
            "return self._saw(state, lease, at)\n",
            ("is_found = state.claim and lease and lease.request == state.claim.request\n"
            "            return self._saw(state if is_found else attrs.evolve(state, claim=None), lease, at)\n"),
        ),
        ("claim=None if is_only else state.claim", "claim=state.claim"),
        test_el1_to_el7_in_a_world, says="EL1",
    ),
    # mongodash: a lock under the own configured id counts as own, whatever the life.
    bug(
        "a lock is held by name", ('f"{self.life}@{version}"', 'f"same@{version}"'),
        ("life == self.life", 'life == "same"'),
        test_el1_to_el7_in_a_world, says="EL",
    ),
    # mongodash: after an error it finds its own lease and leads again, in the same epoch.
    bug(
        "it leads on", ("tenure.since, is_over=True", "tenure.since, is_over=False"),
        test_el1_to_el7_in_a_world, says="EL2",
    ),
    bug(
        "a leader whose tenure lapses does not wait for its work to end",
        (
            "return self._led(after, event.at, *ending)",
            ("back = self._ended(after, event.at)\n"
            "        return Step(back.state, (*ending, *back.commands)) if after.is_over else self._led(after, event.at, *ending)"),
        ),
        test_el1_to_el7_in_a_world, says="EL[34]",
    ),
    bug(
        "work is asked to end at each event", ("if after.is_ending and not before.is_ending", "if after.is_ending"),
        test_el1_to_el7_in_a_world, says="EL3",
    ),
    # mongodash: it does not await the attempt under way, which takes the lease after the stop.
    bug(
        "it takes after a stop", ("Step(Stopped()) if state.is_stopping else self._tried", "self._tried"),
        test_el1_to_el7_in_a_world, says="EL4",
    ),
    bug(
        "a leader that is to stop releases first",
        (
            "request = Look()",
            ("mine = decide_release(state.tenure.lease, state.tenure.lease.request)\n"
            "        request = Swap(mine.lease.version - 1, mine.lease, 0) if state.is_stopping else Look()"),
        ),
        test_el1_to_el7_in_a_world, says="EL4",
    ),
    bug(
        "it stops without a release",
        (
            "def _following(self, state: Following, event: ElectionEvent) -> ElectionStep:\n",
            ("def _following(self, state: Following, event: ElectionEvent) -> ElectionStep:\n"
            "        if state.is_stopping:\n            return Step(Stopped())\n"),
        ),
        test_el1_to_el7_in_a_world, says="EL4",
    ),
    bug(
        "nobody tells a leader that it is time to renew",
        ("(*commands, StartTimer(left if state.flight is not None else min(due, left)))", "commands"),
        test_el1_to_el7_in_a_world, says="EL5",
    ),
    bug(
        "a follower looks whenever it is woken",
        (
            "case _:  # a reply to no request in flight, or the end of no running work (EL8)\n",
            "case TimerFired(at):\n                return self._settled(attrs.evolve(state, flight=None), at)\n            case _:\n",
        ),
        test_el1_to_el7_in_a_world, says="EL6",
    ),
    bug(
        "each look begins to count anew", ("observe(state.observation,", "observe(None,"),
        test_el1_to_el7_in_a_world, says="EL7",
    ),
    # The tenure is over when it is granted.
    bug(
        "a take counts from the first time that it was tried",
        ("claim=None if is_only else state.claim", "claim=state.claim"),
        ("state.claim is not None and state.claim.is_over else Claim", "state.claim is not None else Claim"),
        test_el1_to_el7_in_a_world, says="EL7",
    ),
    bug(
        "a leader whose work has ended keeps the lease",
        (
            "Swap(lease.version, mine.lease, 0)",
            "Swap(lease.version, mine.lease if state.is_stopping else attrs.evolve(mine.lease, holder=self.name), 0)",
        ),
        test_el1_to_el7_in_a_world, says="EL7",
    ),
    bug(
        "any answer is taken for one to what is under way",
        (
            ("case Answered(at, request, lease) if state.flight is not None and state.flight.request == request:\n"
            "                return self._follower_answered(attrs.evolve(state, flight=None), request, lease, state.flight.sent, at)"),
            ("case Answered(at, request, lease):\n"
            "                return self._follower_answered(attrs.evolve(state, flight=None), request, lease, at, at)"),
        ),
        test_el8_what_is_not_under_way_does_not_matter, says="EL8",
    ),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def changed(lease: Lease, *, holder: str | None) -> Lease:
    return attrs.evolve(lease, version=lease.version + 1, holder=holder, stamp=None)


def at(time: int) -> Instant:
    return Instant(time, HERE)


def lines(steps: list[ElectionStep]) -> list[str]:
    return [f"{step.state}: {'; '.join(map(str, step.commands)) or '-'}" for step in steps]


def test_a_candidate_is_elected_renews_and_hands_over() -> None:
    ann, steps = Candidate("ann", "a1", TERMS), list[ElectionStep]()
    taken_, renewed, again = (Lease(1, version, "ann", "a1@0", 12) for version in (1, 2, 3))
    released = changed(again, holder=None)

    def tell(event: ElectionEvent) -> None:
        steps.append(ann.step(steps[-1].state if steps else Following(), event))

    tell(TimerFired(at(0)))
    tell(Answered(at(1), Look(), None))
    tell(Answered(at(2), Swap(0, taken_, 0), taken_))
    tell(TimerFired(at(5)))
    tell(Answered(at(6), Swap(1, renewed, 0), renewed))
    tell(StopRequested(at(7)))
    tell(TimerFired(at(9)))
    tell(Answered(at(10), Swap(2, again, 0), again))
    tell(WorkEnded(at(11), 1))
    tell(Answered(at(12), Look(), again))
    tell(Answered(at(13), Swap(3, released, 0), released))
    tell(TimerFired(at(14)))

    assert lines(steps) == [
        "following: look at the lease",
        "following: write the lease at version 0: token 1 held by 'ann', version 1",
        "leading in epoch 1: begin epoch 1; wake in 3 us",
        "leading in epoch 1: write the lease at version 1: token 1 held by 'ann', version 2; wake in 7 us",
        "leading in epoch 1: wake in 3 us",
        "leading in epoch 1, to stop: end epoch 1; wake in 2 us",
        "leading in epoch 1, to stop: write the lease at version 2: token 1 held by 'ann', version 3; wake in 7 us",
        "leading in epoch 1, to stop: wake in 3 us",
        "following, to stop: look at the lease",
        "following, to stop: write the lease at version 3: token 1 released, version 4",
        "stopped: -",
        "stopped: -",
    ]


def test_a_stamped_lease_is_taken_under_the_condition_of_its_store() -> None:
    """A follower cannot read the store's time, so a write that the store judges follows."""
    held = Lease(1, 3, "bob", "b@0", 12, Instant(0, STORE))
    step = Candidate("ann", "a", TERMS).step(Following(Flight(Look(), at(0))), Answered(at(1), Look(), held))

    assert lines([step]) == [
        "following: write the lease at version 3 for 14 us: token 2 held by 'ann', version 4",
    ]


def test_a_lapsed_leader_ends_its_work_and_releases() -> None:
    """Also if the first event after the pause is the reply to the renewal."""
    lease = Lease(1, 1, "ann", "a@0", 12)
    renewed = changed(lease, holder="ann")
    swap = Swap(1, renewed, 0)
    ann, leading = Candidate("ann", "a", TERMS), Leading(Tenure(lease, at(0)), at(4), Flight(swap, at(4)))

    assert ann.leads(leading, at(10)) == Leads(1, 1)
    assert ann.leads(leading, at(11)) == DoesNotLead()
    assert str(ann.leads(leading, at(10))) == "leads in epoch 1 for another 1 us"
    over = ann.step(leading, Answered(at(11), swap, renewed))
    assert lines([over]) == ["leading in epoch 1, over: end epoch 1"]
    assert str(ann.leads(over.state, at(11))) == "does not lead"
    back = ann.step(over.state, WorkEnded(at(12), 1))
    gone = ann.step(back.state, Answered(at(13), Look(), renewed))
    assert lines([back, gone]) == [
        "following: look at the lease",
        "following: write the lease at version 2: token 1 released, version 3",
    ]
    released = changed(renewed, holder=None)
    assert lines([ann.step(gone.state, Answered(at(14), Swap(2, released, 0), released))]) == [
        "following: wake in 4 us"
    ]


@pytest.mark.parametrize(("life", "other"), [("a", "a@1"), ("a@1", "a"), ("a", "a@"), ("a@0", "a@0@0")])
def test_a_life_that_begins_like_another_is_another(life: str, other: str) -> None:
    ann, bob = Candidate("ann", life, TERMS), Candidate("bob", other, TERMS)
    looks = bob.step(Following(), TimerFired(at(0)))
    takes = bob.step(looks.state, Answered(at(1), Look(), None))
    (swap,) = takes.commands
    assert isinstance(swap, Swap)

    looks = ann.step(Following(), TimerFired(at(0)))
    seen = ann.step(looks.state, Answered(at(2), Look(), swap.lease))
    assert lines([seen]) == ["following: wake in 4 us"]


@pytest.mark.parametrize(
    ("expected", "deeds"),
    [
        (True, [Begin(1), End(1), WorkEnded(at(0), 1), Begin(2), WorkEnded(at(0), 2), Begin(3)]),
        (True, [Begin(2), WorkEnded(at(0), 1), End(2)]),
        (False, [Begin(1), Begin(2)]),
        (False, [Begin(1), End(1), End(1)]),
        (False, [Begin(1), End(2)]),
        (False, [Begin(1), WorkEnded(at(0), 1), End(1)]),
    ],
)
def test_the_law_of_work_tells_good_from_bad(expected: bool, deeds: list[Begin | End | WorkEnded]) -> None:
    """Law EL3."""
    assert laws.work_begins_and_ends_once(deeds) == expected


def test_what_becomes_of_a_command_is_an_event() -> None:
    lease = Lease(1, 1, "ann", "a@0", 12)

    for failure in (Ambiguous("x"), NotApplied("x"), NotDurable("x"), Refused("x")):
        assert event_for(Look(), failure, at(1)) == Unanswered(at(1), Look())
    assert event_for(Swap(0, lease, 0), lease, at(1)) == Answered(at(1), Swap(0, lease, 0), lease)
    assert event_for(Look(), None, at(1)) == Answered(at(1), Look(), None)
    assert event_for(End(3), None, at(1)) == WorkEnded(at(1), 3)
    assert event_for(StartTimer(3), None, at(1)) == TimerFired(at(1))
    assert event_for(Begin(3), None, at(1)) is None
    with pytest.raises(Misuse, match="was answered an int"):
        event_for(Look(), 1, at(1))
    with pytest.raises(Misuse, match="a Now is not a command"):
        event_for(Now(), None, at(1))


@given(candidates(), states(HERE), events(HERE))
def test_every_state_has_an_answer_for_every_event(
    candidate: Candidate, state: ElectionState, event: ElectionEvent
) -> None:
    """Totality, also for unreachable states."""
    step = candidate.step(state, event)

    assert isinstance(step.state, (Following, Leading, Stopped))
    assert hash(step) == hash(candidate.step(state, event))
    assert isinstance(candidate.leads(state, event.at), (Leads, DoesNotLead))


@settings(max_examples=25)
@given(TURNS)
def test_time_may_begin_at_any_instant(schedule: list[Turn]) -> None:
    epochs = list[list[int]]()
    for offset in (0, 10**12):
        world = World(store_has_clock=False, actors=(Actor("a", offset), Actor("b", -offset)))
        for what, who, much in schedule:
            world.turn(what, who, much)
        epochs.append(world.epochs)

    assert epochs[0] == epochs[1]


def test_the_world_gets_somewhere() -> None:
    for store_has_clock in (False, True):
        world = World(store_has_clock, (Actor("ann", 0), Actor("bob", 5)))
        for what, who, much in turns("ann serve bob serve"):
            world.turn(what, who, much)
        world.crash(world.actors[0])
        world.actors[0].wake_at = None
        world.calm(TERMS.ttl + TERMS.lock_delay + TERMS.heartbeat + 1)

        assert world.leaders() == ["bob"]
        assert (world.epochs, world.taken_over) == ([1, 2], 1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Candidate("", "life"),
        lambda: Candidate("ann", ""),
        lambda: Candidate("ann", "life", 30),  # type: ignore[arg-type]
        lambda: Candidate("ann", "life").step(None, TimerFired(at(0))),  # type: ignore[arg-type]
        lambda: Candidate("ann", "life").step(Following(), None),  # type: ignore[arg-type]
        lambda: Candidate("ann", "life").leads(None, at(0)),  # type: ignore[arg-type]
        lambda: Candidate("ann", "life").step(Following(look_at=at(0)), TimerFired(Instant(0, WALL))),
        *(
            lambda event=event: Candidate("ann", "life").step(Following(), event)
            for event in (
                TimerFired(0),  # type: ignore[arg-type]
                StopRequested(None),  # type: ignore[arg-type]
                Answered(at(0), Begin(1), None),  # type: ignore[arg-type]
                Answered(at(0), Look(), 5),  # type: ignore[arg-type]
                Unanswered(at(0), None),  # type: ignore[arg-type]
                WorkEnded(at(0), 0),
            )
        ),
        lambda: event_for(Look(), None, 0),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        build()


def test_the_store_judges_what_an_observer_would() -> None:
    assert takeover_delay(Lease(1, 1, "ann", "r", 12), TERMS.lock_delay) == 14
    assert election.Candidate("ann", "life").pause == 2_500_000
