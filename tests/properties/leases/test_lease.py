from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.leases import lease as leasing
from tidegate.leases.checks.laws import lease as laws
from tidegate.leases.checks.strategies.lease import instants, leases, observations, tenures, terms
from tidegate.leases.lease import (
    Admitted,
    Expired,
    Fenced,
    Held,
    Kept,
    Lapsed,
    Lease,
    LeaseStatus,
    LockDelay,
    Mine,
    NotHolder,
    Observation,
    Release,
    Renew,
    Rest,
    Take,
    Tenure,
    Terms,
    Vacant,
    decide_fence,
    decide_release,
    taken,
    takeover_delay,
)
from tidegate.model.documents import Document, Field, OlderThan, matches
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import SECOND, STORE, WALL, ClockName, Duration, Instant
from tidegate.retries.backoff import LONGEST

HERE = ClockName("monotonic clock of an observer")
PPM = 1_000_000


# --- a world in which several take, renew and release -----------------------------------------------------------------


@attrs.frozen
class Change:
    before: Lease | None
    after: Lease
    request: str
    stood: Duration


@attrs.define(eq=False)
class Flight:
    version: int
    wanted: Lease
    request: str
    takeover_delay: Duration
    outcome: bool | None = None


@attrs.define(eq=False)
class Party:
    name: str
    offset: int
    lives: int = 0
    seen: Lease | None = None
    has_looked: bool = False
    observation: Observation | None = None
    tenure: Tenure | None = None
    awaits: Flight | None = None
    sent: Instant | None = None
    first_sent: Instant | None = None

    @property
    def request(self) -> str:
        return f"{self.name}{self.lives}"


Turn = tuple[int, int, int]
"""(party, action, amount)"""
DEEDS = ("wait", "look", "take", "renew", "release", "apply", "apply again", "answer", "lose the answer", "read back")


@attrs.define(eq=False)
class World:
    terms: Terms
    store_has_clock: bool
    parties: tuple[Party, ...]
    now: int = 0
    lease: Lease | None = None
    made: int = 0
    flights: list[Flight] = attrs.Factory(list)
    changes: list[Change] = attrs.Factory(list)
    duties: list[tuple[Tenure, Instant, Rest | Renew | Lapsed]] = attrs.Factory(list)

    def clock(self, party: Party) -> Instant:
        return Instant(self.now + party.offset, ClockName(party.name))

    def begins(self, party: Party) -> Instant:
        assert party.sent is not None
        return party.sent

    def turn(self, turn: Turn) -> None:
        who, what, much = turn
        party = self.parties[who % len(self.parties)]
        match DEEDS[what % len(DEEDS)]:
            case "wait":
                self.now += much
            case "look":
                self.look(party)
            case "take" if party.has_looked and party.tenure is None and party.awaits is None:
                self.take(party)
            case "renew" if party.tenure is not None and party.awaits is None:
                self.renew(party, party.tenure)
            case "release" if party.tenure is not None and party.awaits is None:
                self.release(party, party.tenure)
            case "apply" if self.flights:
                self.apply(self.flights[much % len(self.flights)], again=False)
            case "apply again" if self.flights:
                self.apply(self.flights[much % len(self.flights)], again=True)
            case "answer" if party.awaits is not None and party.awaits.outcome is not None:
                self.answer(party, party.awaits)
            case "lose the answer" if party.awaits is not None:
                party.awaits = None
                if party.first_sent is None:
                    party.first_sent = party.sent
            case "read back" if party.tenure is not None and party.first_sent is not None and party.awaits is None:
                kept = leasing.read_back(party.tenure, self.lease, party.first_sent)
                party.tenure = kept.tenure if isinstance(kept, Kept) else None
            case _:
                pass

    def look(self, party: Party) -> None:
        party.seen, party.has_looked = self.lease, True
        mark = None if self.lease is None else self.lease.version
        party.observation = leasing.observe(party.observation, mark, self.clock(party))

    def take(self, party: Party) -> None:
        seen, stand = party.seen, 0
        verdict = leasing.decide_take(
            seen,
            holder=party.name,
            request=party.request,
            terms=self.terms,
            observation=party.observation,
            now=self.clock(party),
        )
        if self.store_has_clock and not isinstance(verdict, Mine):
            verdict = Take(leasing.taken(seen, holder=party.name, request=party.request, ttl=self.terms.ttl))
            stand = leasing.takeover_delay(seen, self.terms.lock_delay)
        match verdict:
            case Take(lease):
                self.send(party, seen, lease, stand)
            case Mine(lease) if party.first_sent is not None:
                party.tenure, party.first_sent = Tenure(lease, party.first_sent), None
            case _:
                pass

    def renew(self, party: Party, tenure: Tenure) -> None:
        now = self.clock(party)
        verdict = leasing.next_action(self.terms, tenure, now)
        self.duties.append((tenure, now, verdict))
        match verdict:
            case Renew(lease):
                self.send(party, tenure.lease, lease, 0)
            case Lapsed():
                party.tenure, party.lives = None, party.lives + 1
            case Rest():
                pass

    def release(self, party: Party, tenure: Tenure) -> None:
        verdict = leasing.decide_release(tenure.lease, party.request)
        party.tenure = None
        if isinstance(verdict, Release):
            self.send(party, tenure.lease, verdict.lease, 0)
        party.lives += 1

    def send(self, party: Party, before: Lease | None, wanted: Lease, stand: Duration) -> None:
        party.awaits = Flight(0 if before is None else before.version, wanted, party.request, stand)
        party.sent = self.clock(party)
        self.flights.append(party.awaits)

    def apply(self, flight: Flight, *, again: bool) -> None:
        if flight.outcome is not None and not again:
            return
        stood = self.now - self.made
        outcome = (0 if self.lease is None else self.lease.version) == flight.version and stood >= flight.takeover_delay
        if flight.outcome is None:
            flight.outcome = outcome
        if outcome:
            stamp = Instant(self.now, STORE) if self.store_has_clock else None
            before, self.lease, self.made = self.lease, attrs.evolve(flight.wanted, stamp=stamp), self.now
            self.changes.append(Change(before, self.lease, flight.request, stood))

    def answer(self, party: Party, flight: Flight) -> None:
        if flight.outcome and flight.wanted.holder is not None and flight.request == party.request:
            party.tenure, party.first_sent = Tenure(flight.wanted, self.begins(party)), None
        party.awaits = None

    def believers(self) -> list[str]:
        return [
            party.name
            for party in self.parties
            if party.tenure is not None
            and not isinstance(leasing.next_action(self.terms, party.tenure, self.clock(party)), Lapsed)
        ]


TERMS = Terms(ttl=8, heartbeat=2, margin=1, lock_delay=3)
TURNS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, len(DEEDS) - 1), st.integers(0, 4)), max_size=60)


def wait(much: int) -> Turn:
    return (0, 0, much)


def deeds(who: int, *names: str) -> list[Turn]:
    """Its newest request is last, since the list is indexed from the end."""
    return [(who, DEEDS.index(name), -1) for name in names]


TOOK = deeds(0, "look", "take", "apply", "answer")
VANISHED = [*TOOK, *deeds(1, "look"), wait(11), *deeds(1, "look", "take", "apply", "answer")]
AT_ONCE, IN_GRACE = (
    [*TOOK, *deeds(1, "look"), wait(much), *deeds(1, "look", "take", "apply", "answer")] for much in (1, 8)
)
SLOW_ANSWER = [
    *deeds(0, "look", "take", "apply"),
    *deeds(1, "look"),
    wait(11),
    *deeds(0, "answer"),
    *deeds(1, "look", "take", "apply", "answer"),
]
RELEASED = [*TOOK, *deeds(0, "release", "apply", "answer"), *deeds(1, "look", "take", "apply", "answer")]
SLOW_HOLDER = [*TOOK, wait(8), *deeds(0, "renew", "apply", "answer"), wait(1)]
RENEWED = [
    *TOOK,
    *deeds(1, "look"),
    wait(6),
    *deeds(0, "renew", "apply", "answer"),
    wait(5),
    *deeds(1, "look", "take", "apply", "answer"),
]
LATE_RENEWAL = [
    *TOOK,
    *deeds(1, "look"),
    wait(6),
    *deeds(0, "renew", "lose the answer"),
    wait(5),
    *deeds(1, "look", "take", "apply", "answer"),
    *deeds(0, "read back", "renew", "apply"),
]


LOST_ANSWER = [*deeds(0, "look", "take", "apply", "lose the answer"), wait(5), *deeds(0, "look", "take")]
TELLING = [
    (False, VANISHED, -40),
    (True, VANISHED, -40),
    (True, AT_ONCE, 0),
    *((clock, turns, 0) for turns in (IN_GRACE, SLOW_ANSWER, RELEASED) for clock in (False, True)),
    (True, SLOW_HOLDER, 0),
    (False, RENEWED, 0),
    (True, LATE_RENEWAL, 0),
    (False, LOST_ANSWER, 0),
]


def every_world(check: Callable[[World, list[Turn]], None]) -> Callable[..., None]:
    def run(store_has_clock: bool, turns: list[Turn], offset: int) -> None:
        check(World(TERMS, store_has_clock, (Party("ann", 0), Party("bob", offset))), turns)

    run.__name__ = check.__name__
    for each in TELLING:
        run = example(*each)(run)
    return settings(max_examples=120)(given(st.booleans(), TURNS, st.integers(-50, 50))(run))


@every_world
def test_le1_tokens_grow(world: World, turns: list[Turn]) -> None:
    for turn in turns:
        world.turn(turn)

    assert all(laws.tokens_grow(change.before, change.after) for change in world.changes)


@every_world
def test_le2_nobody_takes_what_is_held(world: World, turns: list[Turn]) -> None:
    for turn in turns:
        world.turn(turn)

    assert all(laws.was_free(each.before, each.after, each.stood, world.terms.lock_delay) for each in world.changes)


@every_world
def test_le4_only_the_holder_changes_it(world: World, turns: list[Turn]) -> None:
    for turn in turns:
        world.turn(turn)

    assert all(laws.only_the_holder_changes_it(each.before, each.after, each.request) for each in world.changes)


@settings(max_examples=100)
@given(leases(), st.sampled_from(("r1", "r2")))
def test_le4_others_do_not_release(lease: Lease, request: str) -> None:
    match leasing.decide_release(lease, request):
        case Release(after):
            assert laws.only_the_holder_changes_it(lease, after, request)
            assert laws.tokens_grow(lease, after)
            assert after.holder is None
        case NotHolder(there):
            assert there == lease
            assert lease.holder is None or lease.request != request


@settings(max_examples=100)
@given(tenures(HERE), st.none() | leases(), instants(HERE))
@example(Tenure(Lease(1, 1, "ann", "r1", 9), Instant(0, HERE)), Lease(2, 2, "bob", "r2", 9), Instant(1, HERE))
@example(Tenure(Lease(1, 1, "ann", "r1", 9), Instant(0, HERE)), Lease(1, 2, None, "r1", 9), Instant(1, HERE))
def test_le4_others_are_not_kept(tenure: Tenure, lease: Lease | None, sent: Instant) -> None:
    kept = leasing.read_back(tenure, lease, sent)
    if isinstance(kept, Kept) and kept.tenure != tenure:
        assert lease == kept.tenure.lease
        assert lease.token == tenure.lease.token
        assert kept.tenure.since == sent


@every_world
def test_le5_there_is_no_way_back(world: World, turns: list[Turn]) -> None:
    for turn in turns:
        world.turn(turn)

    assert all(laws.there_is_no_way_back(world.terms, *each) for each in world.duties)


@every_world
def test_le6_one_believes(world: World, turns: list[Turn]) -> None:
    for turn in turns:
        world.turn(turn)

        assert laws.one_believes(world.believers())


@settings(max_examples=100)
@given(st.none() | leases(), terms(), st.sampled_from((STORE, HERE)), st.integers(-9, 30), st.sampled_from("rs"))
@example(Lease(1, 1, "ann", "r1", 8), TERMS, HERE, 11, "r")
@example(Lease(1, 2, None, "r1", 8), TERMS, HERE, 0, "r")
@example(None, TERMS, STORE, 0, "r")
def test_le3_what_is_free_can_be_taken(
    lease: Lease | None, given_terms: Terms, clock: ClockName, stood: int, kind: str
) -> None:
    request, now = f"{kind}1", Instant(7, clock)
    verdict = leasing.decide_take(
        lease,
        holder="cid",
        request=request,
        terms=given_terms,
        observation=None if lease is None else Observation(lease.version, now + -stood),
        now=now,
    )

    assert laws.what_is_free_can_be_taken(lease, request, stood, given_terms.lock_delay, verdict)
    assert leasing.takeover_delay(lease, given_terms.lock_delay) <= max(stood, 0) or not isinstance(verdict, Take)


@attrs.frozen
class Clock:
    """A clock with an offset, and a drift in parts per million."""

    name: str
    offset: int
    ppm: int

    def at(self, real: int) -> Instant:
        return Instant(self.offset + real * (PPM + self.ppm) // PPM, ClockName(self.name))


RATES = st.integers(-20_000, 20_000)  # so 4 % of the TTL, and rounding: a margin of 50
WIDE = Terms(ttl=1_000, heartbeat=300, margin=50, lock_delay=0)


@settings(max_examples=100)
@given(st.builds(Clock, st.just("a"), st.integers(), RATES), st.builds(Clock, st.just("b"), st.integers(), RATES))
@example(Clock("a", 0, -20_000), Clock("b", 5, 20_000))
def test_le6_the_holder_stops_first(holders: Clock, judges: Clock) -> None:
    lease = Lease(1, 1, "ann", "r1", WIDE.ttl)
    tenure, observation = Tenure(lease, holders.at(0)), leasing.observe(None, 1, judges.at(0))
    for real in range(WIDE.ttl - 60, WIDE.ttl + 60):
        lapsed = isinstance(leasing.next_action(WIDE, tenure, holders.at(real)), Lapsed)
        expired = isinstance(leasing.status_of(lease, observation, judges.at(real), WIDE.lock_delay), Expired)

        assert laws.one_believes([*([] if lapsed else ["holder"]), *(["taker"] if expired else [])])


@settings(max_examples=100)
@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
@example([(1, 0), (2, 1), (1, 1)])
@example([(1, 0), (None, 1), (1, 1)])
@example([(1, 1), (1, 1)])
def test_le7_an_observation_begins_with_the_first(steps: list[tuple[int | None, int]]) -> None:
    at, observation, looks = Instant(0, HERE), None, list[tuple[int | None, Instant]]()
    for mark, later in steps:
        at += later
        looks.append((mark, at))
        observation = leasing.observe(observation, mark, at)

        assert laws.began_when_first_seen(looks, observation)


@settings(max_examples=100)
@given(st.lists(st.integers(1, 5)))
@example([2, 1])
def test_le8_what_is_older_is_fenced(tokens: list[int]) -> None:
    highest, admitted = 0, list[int]()
    for token in tokens:
        match leasing.decide_fence(highest, token):
            case Admitted(highest):
                admitted.append(token)
            case Fenced():
                assert token not in admitted[-1:]

    assert laws.admits_no_older(admitted)


@settings(max_examples=100)
@given(st.none() | leases(), st.sampled_from(("r1", "r2")), st.none() | observations(HERE), instants(HERE))
@example(Lease(1, 1, "ann", "r1", 1), "r1", Observation(1, Instant(-20, HERE)), Instant(20, HERE))
@example(Lease(1, 2, None, "r1", 1), "r1", None, Instant(20, HERE))
def test_le9_ones_own_take_is_recognised(
    lease: Lease | None, request: str, observation: Observation | None, now: Instant
) -> None:
    verdict = leasing.decide_take(lease, holder="ann", request=request, terms=TERMS, observation=observation, now=now)

    assert laws.success_is_recognised(lease, request, verdict)


# --- planted bugs -----------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    leasing,
    bug("a take renews the token of before", ("Lease(before[0] + 1,", "Lease(before[0] or 1,"), test_le1_tokens_grow),
    bug(
        "taken without the lock delay", ("else lease.ttl + lock_delay", "else lease.ttl"),
        test_le2_nobody_takes_what_is_held,
    ),
    bug(
        "taken at once", ("return 0 if lease is None or lease.holder is None else lease.ttl + lock_delay", "return 0"),
        test_le2_nobody_takes_what_is_held, test_le6_one_believes,
    ),
    # The taker's TTL counts instead of the holder's: half of it.
    bug(
        "by the taker's terms",
        ("status = status_of(lease,", "status = status_of(lease and attrs.evolve(lease, ttl=(lease.ttl + 1) // 2),"),
        test_le2_nobody_takes_what_is_held,
    ),
    # A lease renewed between two reads has stood for both, and the observation is of the new
    # version.
    bug(
        "any version, renamed",
        ("before if is_same else Observation(mark, now)", "Observation(mark, now if before is None else before.since)"),
        test_le2_nobody_takes_what_is_held, test_le6_one_believes, test_le7_an_observation_begins_with_the_first,
    ),
    bug(
        "any version",
        (
            "is_same = before is not None and before.mark == mark and now - before.since >= 0",
            "is_same = before is not None",
        ),
        test_le7_an_observation_begins_with_the_first,
    ),
    bug(
        "a release is treated as a disappearance",
        (
            "case Vacant() | Expired():",
            "case Vacant() if terms.lock_delay > 0:\n            return Busy(lease, terms.lock_delay)\n        case Vacant() | Expired():",
        ),
        test_le3_what_is_free_can_be_taken,
    ),
    # It compares the version, not the token.
    bug(
        "whatever is there is kept",
        ("lease.holder is None or lease.token != tenure.lease.token:", "lease.holder is None:"),
        test_le4_only_the_holder_changes_it, test_le4_others_are_not_kept, test_le6_one_believes,
    ),
    bug(
        "whoever holds it, it is released",
        ("lease is not None and _holds(lease, request)", "lease is not None and lease.holder is not None"),
        test_le4_others_do_not_release,
    ),
    # The holder goes on if it knows no other taker.
    bug(
        "renewed late", ("return Lapsed(-left)", "return Renew(renewed(tenure), 1)"),
        test_le5_there_is_no_way_back, test_le6_one_believes,
    ),
    bug("no margin", ("ttl - terms.margin - gone", "ttl - gone"), test_le6_the_holder_stops_first),
    bug(
        "any token is admitted", ("Admitted(token) if token >= highest else Fenced(token, highest)", "Admitted(token)"),
        test_le8_what_is_older_is_fenced,
    ),
    bug("only newer tokens are admitted", ("token >= highest", "token > highest"), test_le8_what_is_older_is_fenced),
    # A take with a lost reply counts as another's.
    bug(
        "a take forgets itself", ("    if _holds(lease, request):\n        return Mine(lease)\n", ""),
        test_le9_ones_own_take_is_recognised,
    ),
    # mongodash: any process with the holder's name is the holder.
    bug(
        "a take knows names", ("if _holds(lease, request):", "if lease.holder == holder or _holds(lease, request):"),
        test_le9_ones_own_take_is_recognised,
    ),
)  # fmt: skip


def test_a_planted_tenure_from_its_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "begins", World.clock)
    with pytest.raises(AssertionError):
        test_le6_one_believes()


# --- facts ------------------------------------------------------------------------------------------------------------


def test_the_world_gets_somewhere() -> None:
    reached = set[str]()
    for store_has_clock in (False, True):
        for turns in (VANISHED, RELEASED, RENEWED, SLOW_HOLDER, LATE_RENEWAL, LOST_ANSWER):
            world = World(TERMS, store_has_clock, (Party("ann", 0), Party("bob", -40)))
            for turn in turns:
                world.turn(turn)
            for change in world.changes:
                before, after = change.before, change.after
                took = before is not None and after.token > before.token and before.holder is not None
                reached |= {"taken over"} if took else set()
                reached |= {"released"} if after.holder is None else set()
                reached |= {"renewed"} if before is not None and after.token == before.token and after.holder else set()
            reached |= {"lapsed"} if any(isinstance(verdict, Lapsed) for *_, verdict in world.duties) else set()

    assert reached == {"taken over", "released", "renewed", "lapsed"}


def test_a_lease_goes_its_way() -> None:
    lines = list[str]()
    lease: Lease | None = None
    for now, holder, request in ((0, "ann", "a1"), (7, "bob", "b1"), (9, "bob", "b1"), (11, "bob", "b1")):
        verdict = leasing.decide_take(
            lease,
            holder=holder,
            request=request,
            terms=TERMS,
            observation=None if lease is None else lease.stamped,
            now=Instant(now),
        )
        lines.append(str(verdict))
        lease = attrs.evolve(verdict.lease, stamp=Instant(now)) if isinstance(verdict, Take) else lease
    gone = decide_release(lease, "b1")
    lines += [str(gone), str(decide_release(lease, "a1")), str(decide_release(None, "a1"))]
    assert isinstance(gone, Release)
    lines.append(
        str(leasing.decide_take(gone.lease, holder="ann", request="a2", terms=TERMS, observation=None, now=SOON))
    )
    lines.append(str(leasing.decide_take(lease, holder="bob", request="b1", terms=TERMS, observation=None, now=SOON)))

    assert lines == [
        "take it: token 1 held by 'ann', version 1",
        "busy for another 4 us: token 1 held by 'ann', version 1",
        "busy for another 2 us: token 1 held by 'ann', version 1",
        "take it: token 2 held by 'bob', version 2",
        "release it: token 2 released, version 3",
        "not the holder: token 2 held by 'bob', version 2",
        "not the holder: no record",
        "take it: token 3 held by 'ann', version 4",
        "mine: token 2 held by 'bob', version 2",
    ]


SOON = Instant(12)


@pytest.mark.parametrize(
    ("expected", "stood"),
    [
        (Held(8), -3),
        (Held(8), 0),
        (Held(1), 7),
        (LockDelay(3), 8),
        (LockDelay(1), 10),
        (Expired(), 11),
        (Expired(), 99),
    ],
)
def test_a_version_is_held_then_closed_then_expired(expected: LeaseStatus, stood: int) -> None:
    lease, now = Lease(4, 9, "ann", "r", 8), Instant(50, HERE)

    assert expected == leasing.status_of(lease, Observation(9, now + -stood), now, 3)


@pytest.mark.parametrize("lease", [None, Lease(4, 9, None, "r", 8)])
def test_what_nobody_holds_is_vacant(lease: Lease | None) -> None:
    assert leasing.status_of(lease, None, SOON, 3) == Vacant()
    assert str(Vacant()) == "vacant"
    assert takeover_delay(lease, 3) == 0


def test_an_observation_of_another_version_says_nothing() -> None:
    lease = Lease(4, 9, "ann", "r", 8)

    assert leasing.status_of(lease, Observation(8, Instant(0)), Instant(100), 0) == Held(8)
    assert leasing.status_of(lease, None, Instant(100), 0) == Held(8)


@given(leases(held=True), st.integers(0, 5), st.integers(0, 20))
def test_the_store_judges_in_the_filter_as_the_decision_does(lease: Lease, lock_delay: int, stood: int) -> None:
    """Agreement of `OlderThan(stamp, takeover_delay)` with the decision by the store's clock."""
    ms = 1_000
    stamp, field = Instant(0), Field[Instant]("stamp")
    lease = attrs.evolve(lease, ttl=lease.ttl * ms, stamp=stamp)
    now = Instant(stood * ms)
    filtered = matches(
        OlderThan(field, takeover_delay(lease, lock_delay * ms)), Document().put(field, stamp), lambda: now
    )

    assert filtered == (leasing.status_of(lease, lease.stamped, now, lock_delay * ms) == Expired())


def test_a_clock_that_went_back_begins_anew() -> None:
    early, late = Instant(3, HERE), Instant(5, HERE)

    assert leasing.observe(Observation(1, late), 1, early) == Observation(1, early)
    assert leasing.observe(Observation(1, early), 1, late) == Observation(1, early)
    assert isinstance(leasing.next_action(TERMS, Tenure(Lease(1, 1, "ann", "r", 8), late), early), Rest)


def test_a_holder_rests_renews_and_lapses() -> None:
    tenure = Tenure(Lease(1, 1, "ann", "r", 8), Instant(0, HERE))

    next_version = Lease(1, 2, "ann", "r", 8)

    assert [leasing.next_action(TERMS, tenure, Instant(at, HERE)) for at in (0, 1, 2, 6, 7, 9)] == [
        Rest(2, 7),
        Rest(1, 6),
        Renew(next_version, 5),
        Renew(next_version, 1),
        Lapsed(0),
        Lapsed(2),
    ]


def test_a_renewal_without_an_answer_is_read_back() -> None:
    tenure, sent = Tenure(Lease(2, 5, "ann", "r", 8), Instant(0, HERE)), Instant(3, HERE)

    def read(lease: Lease | None) -> Kept | NotHolder:
        return leasing.read_back(tenure, lease, sent)

    applied = Lease(2, 6, "ann", "r", 8)
    assert read(applied) == Kept(Tenure(applied, sent))
    assert read(tenure.lease) == Kept(tenure)
    assert read(Lease(1, 4, "bob", "q", 8)) == Kept(tenure)
    assert read(Lease(2, 6, None, "r", 8)) == NotHolder(Lease(2, 6, None, "r", 8))
    assert read(Lease(3, 6, "bob", "q", 8)) == NotHolder(Lease(3, 6, "bob", "q", 8))
    assert read(None) == NotHolder(None)


def test_a_fence_tells_what_is_newer() -> None:
    assert str(decide_fence(7, 6)) == "fenced: token 6 is older than 7"
    assert decide_fence(7, 7) == Admitted(7)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Terms(ttl=10, heartbeat=8, margin=2),
        lambda: Terms(ttl=10, heartbeat=10, margin=0),
        lambda: Terms(heartbeat=0),
        lambda: Terms(margin=-1),
        lambda: Terms(lock_delay=-1),
        lambda: Terms(ttl=True),
        lambda: Terms(lock_delay=LONGEST + 1),
        lambda: Terms(ttl=10**6_000),
        lambda: Terms(margin=-(10**6_000)),
        lambda: Lease(0, 1, "ann", "r", 8),
        lambda: Lease(2, 1, "ann", "r", 8),
        lambda: Lease(1, INT64_MAX + 1, "ann", "r", 8),
        lambda: Lease(1, 1, "", "r", 8),
        lambda: Lease(1, 1, "ann", "", 8),
        lambda: Lease(1, 1, "ann", "r", 0),
        lambda: Lease(1, 1, "ann", "r", 8, 5),  # type: ignore[arg-type]
        lambda: taken(Lease(INT64_MAX, INT64_MAX, "ann", "r", 8), holder="bob", request="q", ttl=8),
        lambda: taken(None, holder="", request="q", ttl=8),
        lambda: taken("lease", holder="ann", request="q", ttl=8),  # type: ignore[arg-type]
        lambda: Tenure(Lease(1, 1, None, "r", 8), SOON),
        lambda: Tenure(None, SOON),  # type: ignore[arg-type]
        lambda: leasing.observe(None, 1.5, SOON),  # type: ignore[arg-type]
        lambda: leasing.observe(5, 1, SOON),  # type: ignore[arg-type]
        lambda: leasing.observe(None, 1, 5),  # type: ignore[arg-type]
        lambda: leasing.observe(Observation(1, SOON), 1, Instant(0, WALL)),
        lambda: leasing.status_of(None, None, SOON, -1),
        lambda: leasing.status_of(Lease(1, 1, "ann", "r", 8), Observation(1, SOON), Instant(0, WALL), 0),
        lambda: leasing.decide_take(
            None,
            holder="ann",
            request="r",
            terms=8,  # type: ignore[arg-type]
            observation=None,
            now=SOON,
        ),
        lambda: decide_release("lease", "r"),  # type: ignore[arg-type]
        lambda: decide_release(None, ""),
        lambda: leasing.next_action(TERMS, None, SOON),  # type: ignore[arg-type]
        lambda: leasing.next_action(TERMS, Tenure(Lease(1, 1, "ann", "r", 8), SOON), Instant(0, WALL)),
        lambda: leasing.read_back(None, None, SOON),  # type: ignore[arg-type]
        lambda: decide_fence(0, 0),
        lambda: decide_fence(-1, 1),
        lambda: decide_fence(0, "1"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        build()


def test_the_defaults_are_those_of_mongodash() -> None:
    """30 s and 10 s; the margin is ours."""
    assert Terms() == Terms(ttl=30 * SECOND, heartbeat=10 * SECOND, margin=SECOND, lock_delay=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Lease(4, 9, "ann", "r", 8), "token 4 held by 'ann', version 9"),
        (Vacant(), "vacant"),
        (Held(8), "held for another 8 us"),
        (LockDelay(3), "closed by its lock delay for another 3 us"),
        (Expired(), "expired"),
        (Rest(2, 7), "rest: renew in 2 us, 7 us left"),
        (Renew(Lease(1, 2, "ann", "r", 8), 5), "renew it: token 1 held by 'ann', version 2, 5 us left"),
        (Lapsed(2), "lapsed 2 us ago"),
        (NotHolder(None), "not the holder: no record"),
    ],
)
def test_values_say_what_they_are_in_one_line(value: object, text: str) -> None:
    assert str(value) == text


@given(terms(), st.sampled_from((STORE, HERE)).flatmap(tenures))
def test_what_is_drawn_is_of_use(given_terms: Terms, tenure: Tenure) -> None:
    assert len({given_terms, tenure.lease, tenure}) == 3
