from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final, Protocol, TypeAlias, assert_never, get_args

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types

from tidegate.invocations.admission import (
    COUNTS,
    KEPT_MAX,
    Admitted,
    AlreadyAdmitted,
    Ask,
    Call,
    Control,
    Differs,
    Found,
    NoFreePlace,
    NotAvailable,
    NotThere,
    Place,
    Purpose,
    RegistrationVerdict,
    Released,
    Reservation,
    Reuse,
    Rule,
    RunningVerdict,
    StillHeld,
    decide_registration,
    decide_running,
    differing,
    is_held,
    release,
    reservation_id,
)
from tidegate.invocations.invocation import CANCELLED, INVOCATION
from tidegate.invocations.laws import admission as laws
from tidegate.invocations.status import Accepted, StatusRecord, StatusTable, decide_transition
from tidegate.invocations.strategies.admission import (
    calls,
    founds,
    invocation_records,
    places,
    registrations,
    releases,
    reservations,
    rules,
    runnings,
)
from tidegate.model.errors import Misuse

Places: TypeAlias = tuple[Place, ...]
WAITING: Final = {
    "registered",
    "concurrency_controlled",
    "rerouted",
    "pending_recovery",
    "running_recovery",
    "killed",
    "retry",
}
"""The statuses in which an invocation waits to run."""


class DecideRunning(Protocol):
    """Whether an invocation may be picked up."""

    def __call__(
        self,
        reservation: Reservation,
        invocation: str,
        record: StatusRecord,
        known: Mapping[str, StatusRecord | None],
        *,
        at_most: int = 1,
        reroute: bool = False,
    ) -> RunningVerdict: ...


class DecideRegistration(Protocol):
    """Whether an invocation is registered."""

    def __call__(
        self,
        reservation: Reservation,
        invocation: str,
        call: Call,
        known: Mapping[str, Found],
        *,
        must_agree: bool = False,
    ) -> RegistrationVerdict: ...


def is_as_it_was(now: Places, was: Places) -> bool:
    """The condition of the write: the places are those that were decided on."""
    return now == was


@attrs.frozen
class Entrance:
    """What those use who ask for a place: the real functions, but for one that is planted."""

    running: DecideRunning = decide_running
    registration: DecideRegistration = decide_registration
    release: Callable[[Purpose, Reservation, Place, StatusRecord | None], Released | StillHeld | NotThere] = release
    may_write: Callable[[Places, Places], bool] = is_as_it_was
    id_of: Callable[[Purpose, Rule, Call], str | None] = reservation_id
    table: StatusTable = INVOCATION


def effort(entrance: Entrance, runs: int = 100) -> settings:
    """A specimen is searched for as long as its profile says."""
    return settings(max_examples=runs) if entrance == Entrance() else settings()


# --- a world in which many ask at once --------------------------------------------------------------------------------

Operation: TypeAlias = Callable[[], object]
Program: TypeAlias = Generator[Operation, object, None]
IDS = ("x", "y", "z")


@attrs.define
class World:
    """The records of one set of invocations, and the document of places: each method is one atomic operation."""

    entrance: Entrance
    at_most: int = 1
    purpose: Purpose = Purpose.RUNNING
    records: dict[str, StatusRecord] = attrs.field(factory=dict[str, StatusRecord])
    places: Places = ()
    choice: int = 0

    def read(self, invocation: str) -> StatusRecord | None:
        return self.records.get(invocation)

    def reserved(self) -> Reservation:
        return Reservation(self.places)

    def write(self, was: Reservation, becomes: Reservation) -> bool:
        if not self.entrance.may_write(self.places, was.places):
            return False
        self.places = becomes.places
        return True

    def move(self, invocation: str, was: StatusRecord | None, target: str, runner: str | None) -> StatusRecord | None:
        """The record as it is then, or None if it was no longer what it was."""
        verdict = decide_transition(INVOCATION, was, target, runner)
        if self.records.get(invocation) != was or not isinstance(verdict, Accepted):
            return None
        self.records[invocation] = verdict.record
        return self.records[invocation]

    def chosen(self) -> int:
        return self.choice


def pick_up_and_run(world: World, invocation: str) -> Program:
    """Ask for a place, pick the invocation up, run it, and give the place back."""
    record = yield lambda: world.read(invocation)
    assert isinstance(record, StatusRecord)
    for _ in range(4):
        reserved = yield world.reserved
        assert isinstance(reserved, Reservation)
        known = dict[str, StatusRecord | None]()
        decided = world.entrance.running(reserved, invocation, record, known, at_most=world.at_most, reroute=True)
        while isinstance(decided, Ask):
            for other in decided.invocations:
                found = yield lambda other=other: world.read(other)  # type: ignore[misc]
                assert found is None or isinstance(found, StatusRecord)
                known[other] = found
            decided = world.entrance.running(reserved, invocation, record, known, at_most=world.at_most, reroute=True)
        if isinstance(decided, NoFreePlace):
            target = decided.target
            _ = yield lambda target=target: world.move(invocation, record, target, None)  # type: ignore[misc]
            return
        if isinstance(decided, NotAvailable):
            return
        if isinstance(decided, AlreadyAdmitted):
            break
        assert isinstance(decided, Admitted)
        after = decided.reservation
        if (yield lambda was=reserved, after=after: world.write(was, after)):  # type: ignore[misc]
            break
    else:
        return
    mine = Place(invocation, record.version)
    owned = yield lambda: world.move(invocation, record, "pending", "r")
    if owned is not None:
        yield from run(world, invocation, owned)
    yield from give_back(world, mine)


def run(world: World, invocation: str, owned: object) -> Program:
    """As its owner, to an end of the world's choice; whoever lost it stops."""
    for target in ("running", "paused", "running", ""):
        assert isinstance(owned, StatusRecord)
        choice = yield world.chosen
        if target == "paused" and not choice:
            continue
        if target == "running" and owned.status == "running":
            continue
        end = target or ("retry", "success")[choice == 2]
        was = owned
        owned = yield lambda was=was, end=end: world.move(invocation, was, end, "r")  # type: ignore[misc]
        if owned is None:
            return


def give_back(world: World, place: Place) -> Program:
    reserved = yield world.reserved
    record = yield lambda: world.read(place.invocation)
    assert isinstance(reserved, Reservation)
    assert record is None or isinstance(record, StatusRecord)
    answer = world.entrance.release(world.purpose, reserved, place, record)
    if isinstance(answer, Released):
        after = answer.reservation
        _ = yield lambda: world.write(reserved, after)


def recover(world: World, invocation: str) -> None:
    """Whoever owns it is presumed dead; what passes is moved on; it is all one to those who ask for places."""
    record = world.records.get(invocation)
    way_on = {
        "pending": "pending_recovery",
        "running": "running_recovery",
        "paused": "running_recovery",
        "pending_recovery": "rerouted",
        "running_recovery": "rerouted",
        "concurrency_controlled": "rerouted",
    }
    if record is not None and record.status in way_on:
        _ = world.move(invocation, record, way_on[record.status], None)


@attrs.frozen
class Begins:
    """Somebody begins with an invocation; what it was about to do before, it never does."""

    who: int
    key: int


@attrs.frozen
class Steps:
    """Somebody's next operation happens."""

    who: int
    choice: int


@attrs.frozen
class Sends:
    """Somebody's next operation is under way, and its sender crashes."""

    who: int


@attrs.frozen
class Arrives:
    """What was under way the longest happens."""


@attrs.frozen
class Recovers:
    """An invocation is taken from its owner, or moved on."""

    key: int


Event: TypeAlias = Begins | Steps | Sends | Arrives | Recovers
THREE = range(3)
OFTEN = (
    *[Steps(who, choice) for who in THREE for choice in THREE] * 8,
    *[Begins(who, key) for who in THREE for key in THREE],
    *[Sends(who) for who in THREE] * 3,
    *[Arrives()] * 9,
    *[Recovers(key) for key in THREE] * 6,
)
schedules = st.binary(min_size=10, max_size=80).map(lambda drawn: [OFTEN[byte % len(OFTEN)] for byte in drawn])
"""One byte an event: drawn one by one, events cost a hundred times as much, and few of them are of the rarer kinds."""


def told(text: str) -> list[Event]:
    """A schedule by hand: `12` is a step of 1 where the world chooses 2, `b12` that 1 begins with 2, `r2` that 2 is recovered."""
    kinds = {"b": Begins, "r": Recovers}
    return [kinds.get(each[0], Steps)(*map(int, each.lstrip("br"))) for each in text.split()]


COMES_BACK = told("01 00 00 00 00 r1 b00 00 00 00 b21 r1 20 20 00 00 20")
"""A place is asked for before it is lost, and written after: one schedule in some thousands, where an old place will do."""

OVERTAKEN = told("b00 00 b10" + 13 * " 10" + " b10 10 10 10 00 00 b21 21 21 21 21 21 10")
"""It is read, and meanwhile another one runs it, gives it back, and has the next place: the old record may not displace that."""


@attrs.define
class Crowd:
    """Who is about to do what."""

    begin: Callable[[int], Program]
    programs: dict[int, tuple[Program, Operation]] = attrs.field(factory=dict[int, tuple[Program, Operation]])
    under_way: list[Operation] = attrs.field(factory=list[Operation])

    def begins(self, who: int, key: int) -> None:
        self.goes_on(who, self.begin(key), None)

    def goes_on(self, who: int, program: Program, answer: object) -> None:
        try:
            self.programs[who] = (program, program.send(answer))
        except StopIteration:
            _ = self.programs.pop(who, None)

    def steps(self, who: int) -> bool:
        if who not in self.programs:
            return False
        program, operation = self.programs[who]
        self.goes_on(who, program, operation())
        return True

    def sends(self, who: int) -> None:
        if who in self.programs:
            self.under_way.append(self.programs.pop(who)[1])


def happen(world: World, crowd: Crowd, event: Event) -> None:
    match event:
        case Begins(who, key):
            crowd.begins(who, key)
        case Steps(who, choice):
            world.choice = choice
            if not crowd.steps(who):
                crowd.begins(who, choice)
        case Sends(who):
            crowd.sends(who)
        case Arrives():
            if crowd.under_way:
                _ = crowd.under_way.pop(0)()
        case Recovers(key):
            recover(world, IDS[key])
        case _:
            assert_never(event)


# --- the laws ---------------------------------------------------------------------------------------------------------


def runs(entrance: Entrance, at_most: int) -> tuple[World, Crowd]:
    world = World(entrance, at_most, records={each: StatusRecord("registered", None, 1) for each in IDS})
    return world, Crowd(lambda key: pick_up_and_run(world, IDS[key]))


def check_ad1(entrance: Entrance) -> None:
    @effort(entrance, 300)
    @given(st.sampled_from((1, 1, 1, 2)), schedules)
    @example(1, COMES_BACK)
    @example(1, OVERTAKEN)
    def holds(at_most: int, happened: list[Event]) -> None:
        world, crowd = runs(entrance, at_most)
        for event in happened:
            happen(world, crowd, event)

            assert laws.no_more_run(world.records.values(), at_most), world.records

    holds()


def check_ad3_over_time(entrance: Entrance) -> None:
    @effort(entrance, 200)
    @given(st.sampled_from((1, 1, 2)), schedules)
    def nobody_waits_for_ever(at_most: int, happened: list[Event]) -> None:
        world, crowd = runs(entrance, at_most)
        for event in happened:
            happen(world, crowd, event)
        for operation in crowd.under_way:
            _ = operation()
        crowd.programs.clear()
        world.choice = 2
        for _ in IDS:
            for key, invocation in enumerate(IDS):
                for _ in range(3):
                    recover(world, invocation)
                crowd.begins(0, key)
                while crowd.steps(0):
                    pass

        assert {record.status for record in world.records.values()} == {"success"}

    nobody_waits_for_ever()


@attrs.frozen
class Question:
    """An invocation that asks for a place, and the records of all who have one."""

    reservation: Reservation
    invocation: str
    record: StatusRecord
    known: dict[str, StatusRecord | None]
    at_most: int
    reroute: bool

    def answered(self, entrance: Entrance) -> RunningVerdict:
        return entrance.running(
            self.reservation, self.invocation, self.record, self.known, at_most=self.at_most, reroute=self.reroute
        )

    def holding(self) -> list[str]:
        """The others that hold a place, said once more."""
        holding: list[str] = []
        for place in self.reservation.places:
            record = self.known[place.invocation]
            waits = record is not None and record.version <= place.version
            works = record is not None and record.status in ("pending", "running", "paused")
            made_yet = record is None and place.version == 0
            if place.invocation != self.invocation and (waits or works or made_yet):
                holding.append(place.invocation)
        return holding


known = st.fixed_dictionaries({each: st.one_of(st.none(), invocation_records()) for each in IDS})
available = st.builds(StatusRecord, st.sampled_from(("registered", "rerouted", "retry")), st.none(), st.integers(1, 5))
questions = st.builds(
    Question, reservations(), st.sampled_from((*IDS, "new")), available, known, st.integers(1, 2), st.booleans()
)
RETRY = StatusRecord("retry", None, 4)
IN_BETWEEN = Question(Reservation((Place("x", 3),)), "y", RETRY, {"x": RETRY}, at_most=1, reroute=False)
BLOCKED = attrs.evolve(IN_BETWEEN, known={"x": StatusRecord("paused", "r1", 6)})


def check_ad3(entrance: Entrance) -> None:
    @effort(entrance)
    @given(questions)
    @example(IN_BETWEEN)
    def holds(question: Question) -> None:
        verdict = question.answered(entrance)

        assert laws.refused_by_those_who_hold(verdict, question.holding(), question.at_most)

    holds()


def check_registrations(entrance: Entrance) -> None:
    @effort(entrance)
    @given(reservations(), calls(), st.dictionaries(st.sampled_from(IDS), invocation_records()), calls(), st.booleans())
    @example(Reservation((Place("x", 0),)), Call("t"), {"x": StatusRecord("pending", "r1", 2)}, Call("t"), False)
    @example(Reservation((Place("x", 0),)), Call("t"), {}, Call("t", (("a", "1"),)), True)
    def holds(taken: Reservation, call: Call, records: dict[str, StatusRecord], other: Call, must_agree: bool) -> None:
        found = {each: Found(other, records.get(each)) for each in IDS}
        verdict = entrance.registration(taken, "new", call, found, must_agree=must_agree)
        holding = [
            place.invocation
            for place in taken.places
            if (place.version == 0 and place.invocation not in records)
            or (
                (record := records.get(place.invocation)) is not None
                and (record.version <= place.version or record.status in WAITING)
            )
        ]

        assert laws.refused_by_those_who_hold(verdict, holding, 1)
        assert laws.answered_by_who_waits(verdict, holding)

    holds()


def check_ad4(entrance: Entrance) -> None:
    @effort(entrance)
    @given(questions)
    @example(attrs.evolve(IN_BETWEEN, reservation=Reservation()))
    def holds(question: Question) -> None:
        verdict = question.answered(entrance)
        if isinstance(verdict, Admitted):
            again = attrs.evolve(question, reservation=verdict.reservation).answered(entrance)

            assert laws.asking_again_changes_nothing(again)

    holds()


def check_ad4_of_registrations(entrance: Entrance) -> None:
    @effort(entrance)
    @given(calls())
    def holds(call: Call) -> None:
        verdict = entrance.registration(Reservation(), "new", call, {})
        assert isinstance(verdict, Admitted)

        assert laws.asking_again_changes_nothing(
            entrance.registration(verdict.reservation, "new", call, {"new": Found(call, None)})
        )

    holds()


def check_ad5(entrance: Entrance) -> None:
    @effort(entrance)
    @given(questions)
    @example(BLOCKED)
    @example(attrs.evolve(BLOCKED, reroute=True))
    @example(attrs.evolve(BLOCKED, record=attrs.evolve(RETRY, status="rerouted")))
    def holds(question: Question) -> None:
        verdict = question.answered(entrance)
        if isinstance(verdict, NoFreePlace):
            assert laws.has_a_way_on(entrance.table, question.record, verdict)

    holds()


def check_ad6(entrance: Entrance) -> None:
    @effort(entrance, 300)
    @given(st.sampled_from(Purpose), rules(), calls(), calls())
    @example(Purpose.RUNNING, Rule(Control.ARGUMENTS), Call("t", (("a", "b"),)), Call("ta", (("b", ""),)))
    @example(Purpose.RUNNING, Rule(Control.ARGUMENTS), Call("t", (("a", "1b"),)), Call("t", (("a", "1"), ("b", ""))))
    @example(Purpose.RUNNING, Rule(Control.KEYS, ("a",)), Call("t", (("a", ""),)), Call("t"))
    @example(Purpose.RUNNING, Rule(Control.KEYS, ("b",)), Call("t", (("a", "1"), ("b", "1"))), Call("t", (("b", "1"),)))
    def holds(purpose: Purpose, rule: Rule, call: Call, other: Call) -> None:
        ids = entrance.id_of(purpose, rule, call), entrance.id_of(purpose, rule, other)

        assert laws.share_exactly_if_they_exclude_each_other(rule, call, other, ids)

    holds()


def check_ad7(entrance: Entrance) -> None:
    @effort(entrance)
    @given(st.sampled_from(Purpose), reservations(), places(), known)
    @example(Purpose.RUNNING, Reservation((Place("x", 3),)), Place("x", 1), dict.fromkeys(IDS, RETRY))
    @example(Purpose.RUNNING, Reservation((Place("x", 3), Place("y", 2))), Place("x", 3), dict.fromkeys(IDS, RETRY))
    @example(Purpose.RUNNING, Reservation((Place("x", 4),)), Place("x", 4), dict.fromkeys(IDS, RETRY))
    def holds(purpose: Purpose, taken: Reservation, place: Place, records: dict[str, StatusRecord | None]) -> None:
        held = {each: is_held(purpose, each, records[each.invocation]) for each in taken.places}

        assert laws.takes_away_one_place(
            taken, place, held, entrance.release(purpose, taken, place, records[place.invocation])
        )

    holds()


def check_ad8(entrance: Entrance) -> None:
    @effort(entrance)
    @given(questions)
    @example(attrs.evolve(IN_BETWEEN, invocation="x", record=attrs.evolve(RETRY, version=1)))
    def holds(question: Question) -> None:
        assert laws.no_place_goes_back(question.reservation, question.answered(entrance))

    holds()


# --- registrations ----------------------------------------------------------------------------------------------------

SAME = Call("task")


def register(world: World, invocation: str) -> Program:
    """Reserve, then make the record; or see to it that the one that answers the call is made."""
    for _ in range(4):
        reserved = yield world.reserved
        assert isinstance(reserved, Reservation)
        known = dict[str, Found]()
        decided = world.entrance.registration(reserved, invocation, SAME, known)
        while isinstance(decided, Ask):
            for other in decided.invocations:
                record = yield lambda other=other: world.read(other)  # type: ignore[misc]
                assert record is None or isinstance(record, StatusRecord)
                known[other] = Found(SAME, record)
            decided = world.entrance.registration(reserved, invocation, SAME, known)
        if isinstance(decided, Reuse):
            other = decided.invocation
            if not decided.is_made:
                _ = yield lambda other=other: world.move(other, None, "registered", None)  # type: ignore[misc]
            return
        if isinstance(decided, Admitted):
            after = decided.reservation
            if not (yield lambda was=reserved, after=after: world.write(was, after)):  # type: ignore[misc]
                continue
        _ = yield lambda: world.move(invocation, None, "registered", None)
        yield from give_back(world, Place(invocation, 0))
        return


def check_ad2(entrance: Entrance) -> None:
    @effort(entrance, 300)
    @given(schedules)
    def holds(happened: list[Event]) -> None:
        world = World(entrance, purpose=Purpose.REGISTRATION)
        crowd = Crowd(lambda _: register(world, f"i{len(begun)}"))
        begun = list[Event]()
        for event in happened:
            begun.append(event)
            if isinstance(event, Recovers):  # here: a runner picks up what is registered
                for invocation, record in tuple(world.records.items()):
                    if record.status == "registered" and event.key:
                        _ = world.move(invocation, record, "pending", "r")
            else:
                happen(world, crowd, event)

            assert laws.no_more_are_registered(world.records.values()), world.records

    holds()


LAWS: dict[str, Callable[[Entrance], None]] = {
    "AD1": check_ad1,
    "AD2": check_ad2,
    "AD3": check_ad3,
    "AD3 over time": check_ad3_over_time,
    "AD3 and AD9 of registrations": check_registrations,
    "AD4": check_ad4,
    "AD4 of registrations": check_ad4_of_registrations,
    "AD5": check_ad5,
    "AD6": check_ad6,
    "AD7": check_ad7,
    "AD8": check_ad8,
}


@pytest.mark.parametrize("law", LAWS)
def test_admission_keeps_the_law(law: str) -> None:
    """Laws AD1 to AD9, as the header of `tidegate.invocations.admission` states them."""
    LAWS[law](Entrance())


# --- specimens --------------------------------------------------------------------------------------------------------


def whatever_it_was(_: Places, __: Places) -> bool:
    """What pynenc does: look, and then write; nobody asks whether it still is what was looked at."""
    return True


def seen_as(change: Callable[[StatusRecord], StatusRecord]) -> DecideRunning:
    """The decision with the records of others mistaken."""

    def decide(
        reservation: Reservation,
        invocation: str,
        record: StatusRecord,
        known: Mapping[str, StatusRecord | None],
        *,
        at_most: int = 1,
        reroute: bool = False,
    ) -> RunningVerdict:
        mistaken = {other: None if found is None else change(found) for other, found in known.items()}
        return decide_running(reservation, invocation, record, mistaken, at_most=at_most, reroute=reroute)

    return decide


def about_to_be_picked_up_is_free(record: StatusRecord) -> StatusRecord:
    """Only what works holds its place; that an admitted one is not pending yet is not thought of."""
    return attrs.evolve(record, version=record.version + 1_000)


def paused_is_free(record: StatusRecord) -> StatusRecord:
    """As in pynenc: only pending and running count."""
    return attrs.evolve(record, status="retry", owner=None) if record.status == "paused" else record


def ended_holds(record: StatusRecord) -> StatusRecord:
    """A place is held until it is given back."""
    return attrs.evolve(record, status="running", owner="r")


def seen_here(change: Callable[[RunningVerdict, Reservation, str, StatusRecord], RunningVerdict]) -> DecideRunning:
    """The decision with its verdict mistaken."""

    def decide(
        reservation: Reservation,
        invocation: str,
        record: StatusRecord,
        known: Mapping[str, StatusRecord | None],
        *,
        at_most: int = 1,
        reroute: bool = False,
    ) -> RunningVerdict:
        verdict = decide_running(reservation, invocation, record, known, at_most=at_most, reroute=reroute)
        return change(verdict, reservation, invocation, record)

    return decide


def an_old_place_will_do(
    verdict: RunningVerdict, reservation: Reservation, invocation: str, _: StatusRecord
) -> RunningVerdict:
    """The version is not looked at: its place of an earlier turn may be taken over at this moment."""
    has_one = any(place.invocation == invocation for place in reservation.places)
    return AlreadyAdmitted() if has_one and isinstance(verdict, Admitted) else verdict


def displaces_its_later_self(
    reservation: Reservation,
    invocation: str,
    record: StatusRecord,
    known: Mapping[str, StatusRecord | None],
    *,
    at_most: int = 1,
    reroute: bool = False,
) -> RunningVerdict:
    """Its own place is thought to be of an earlier turn, though it is the record that is old."""
    before = tuple(
        each for each in reservation.places if each.invocation != invocation or each.version <= record.version
    )
    return decide_running(Reservation(before), invocation, record, known, at_most=at_most, reroute=reroute)


def never_asks(verdict: RunningVerdict, reservation: Reservation, _: str, __: StatusRecord) -> RunningVerdict:
    """Whoever has a place is thought to hold it."""
    return NoFreePlace(reservation.places, "concurrency_controlled") if isinstance(verdict, Ask) else verdict


def asks_for_ever(verdict: RunningVerdict, reservation: Reservation, _: str, __: StatusRecord) -> RunningVerdict:
    """Whoever has a place is asked for once more."""
    return Ask(tuple(place.invocation for place in reservation.places)) if isinstance(verdict, NoFreePlace) else verdict


def is_in_its_own_way(verdict: RunningVerdict, reservation: Reservation, _: str, __: StatusRecord) -> RunningVerdict:
    """A retry after a lost reply finds its own place, and takes it for another's."""
    return (
        NoFreePlace(reservation.places, "concurrency_controlled") if isinstance(verdict, AlreadyAdmitted) else verdict
    )


def straight_back(verdict: RunningVerdict, _: Reservation, __: str, ___: StatusRecord) -> RunningVerdict:
    """What pynenc does at the start of a run: rerouted, from wherever it is."""
    return attrs.evolve(verdict, target="rerouted") if isinstance(verdict, NoFreePlace) else verdict


def not_made_is_free(
    reservation: Reservation, invocation: str, call: Call, known: Mapping[str, Found], *, must_agree: bool = False
) -> RegistrationVerdict:
    """Whoever has no record is gone: it may be about to make it."""
    gone = StatusRecord("success", None, 9)
    mistaken = {other: attrs.evolve(found, record=found.record or gone) for other, found in known.items()}
    return decide_registration(reservation, invocation, call, mistaken, must_agree=must_agree)


def registered_for_ever(
    reservation: Reservation, invocation: str, call: Call, known: Mapping[str, Found], *, must_agree: bool = False
) -> RegistrationVerdict:
    """A place is held until it is given back."""
    still = {other: attrs.evolve(found, record=None) for other, found in known.items()}
    return decide_registration(reservation, invocation, call, still, must_agree=must_agree)


def only_registered_counts(
    reservation: Reservation, invocation: str, call: Call, known: Mapping[str, Found], *, must_agree: bool = False
) -> RegistrationVerdict:
    """What was planned to be tried again was not seen: two of a kind waited."""
    as_ended = {
        other: attrs.evolve(found, record=StatusRecord("success", None, found.record.version))
        if found.record is not None and found.record.status in WAITING - {"registered"}
        else found
        for other, found in known.items()
    }
    return decide_registration(reservation, invocation, call, as_ended, must_agree=must_agree)


def reserves_again(
    reservation: Reservation, invocation: str, call: Call, known: Mapping[str, Found], *, must_agree: bool = False
) -> RegistrationVerdict:
    """After a lost reply it answers its own call with itself."""
    verdict = decide_registration(reservation, invocation, call, known, must_agree=must_agree)
    return Reuse(invocation, False, ()) if isinstance(verdict, AlreadyAdmitted) else verdict


def run_together(purpose: Purpose, rule: Rule, call: Call) -> str | None:
    """Names and values one after the other, with nothing that keeps them apart."""
    made = reservation_id(purpose, rule, call)
    kept = [each for each in call.arguments if rule.control is Control.ARGUMENTS or each[0] in rule.keys]
    return None if made is None else call.task + "".join(name + value for name, value in kept)


def with_commas(purpose: Purpose, rule: Rule, call: Call) -> str | None:
    """A missing argument looks like an empty one."""
    made = reservation_id(purpose, rule, call)
    values = dict(call.arguments)
    names = [*values] if rule.control is Control.ARGUMENTS else rule.keys
    return None if made is None else f"{call.task}: {[(name, values.get(name, '')) for name in names]}"


def of_all_arguments(purpose: Purpose, rule: Rule, call: Call) -> str | None:
    """KEYS is taken for ARGUMENTS."""
    return reservation_id(purpose, Rule(Control.ARGUMENTS) if rule.control is Control.KEYS else rule, call)


def at_once(
    _: Purpose, reservation: Reservation, place: Place, __: StatusRecord | None
) -> Released | StillHeld | NotThere:
    """Whoever gives up gives the place back, also where another one has it together with him."""
    kept = tuple(each for each in reservation.places if each != place)
    return NotThere() if place not in reservation.places else Released(Reservation(kept))


def by_invocation(
    purpose: Purpose, reservation: Reservation, place: Place, record: StatusRecord | None
) -> Released | StillHeld | NotThere:
    """A late release takes the later place of the same invocation."""
    same = [each for each in reservation.places if each.invocation == place.invocation]
    return release(purpose, reservation, same[0] if same else place, record)


def of_everybody(
    purpose: Purpose, reservation: Reservation, place: Place, record: StatusRecord | None
) -> Released | StillHeld | NotThere:
    """As the array-push lock does: cleared, whoever is in it."""
    answer = release(purpose, reservation, place, record)
    return Released(Reservation()) if isinstance(answer, Released) else answer


PYNENC = StatusTable(
    INVOCATION.initial,
    tuple(
        attrs.evolve(each, targets=each.targets - {edge.target for edge in each.added}, added=())
        for each in INVOCATION.definitions
        if each.status != CANCELLED  # to which nothing but our edges leads
    ),
)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("AD1", Entrance(may_write=whatever_it_was)),
        ("AD1", Entrance(running=seen_as(about_to_be_picked_up_is_free))),
        ("AD1", Entrance(running=seen_as(paused_is_free))),
        ("AD1", Entrance(running=seen_here(an_old_place_will_do))),
        ("AD1", Entrance(running=displaces_its_later_self)),
        ("AD1", Entrance(release=at_once)),
        ("AD2", Entrance(may_write=whatever_it_was)),
        ("AD2", Entrance(registration=not_made_is_free)),
        ("AD2", Entrance(release=at_once)),
        ("AD3", Entrance(running=seen_as(ended_holds))),
        ("AD3", Entrance(running=seen_here(asks_for_ever))),
        ("AD3 and AD9 of registrations", Entrance(registration=registered_for_ever)),
        ("AD3 and AD9 of registrations", Entrance(registration=only_registered_counts)),
        ("AD3 over time", Entrance(running=seen_here(never_asks))),
        ("AD3 over time", Entrance(running=seen_as(ended_holds))),
        ("AD4", Entrance(running=seen_here(is_in_its_own_way))),
        ("AD4 of registrations", Entrance(registration=reserves_again)),
        ("AD5", Entrance(running=seen_here(straight_back))),
        ("AD5", Entrance(table=PYNENC)),
        ("AD6", Entrance(id_of=run_together)),
        ("AD6", Entrance(id_of=with_commas)),
        ("AD6", Entrance(id_of=of_all_arguments)),
        ("AD7", Entrance(release=at_once)),
        ("AD7", Entrance(release=by_invocation)),
        ("AD7", Entrance(release=of_everybody)),
        ("AD8", Entrance(running=displaces_its_later_self)),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Entrance) -> None:
    """Each law is broken by a small faulty variant of what it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts ------------------------------------------------------------------------------------------------------------

FIRST = StatusRecord("registered", None, 1)


def call(task: str = "task", **arguments: str) -> Call:
    return Call(task, tuple(arguments.items()))


def ids(rule: Rule, *of: Call) -> list[str | None]:
    return [reservation_id(Purpose.RUNNING, rule, each) for each in of]


def test_calls_of_one_key_wait_for_each_other_and_others_do_not() -> None:
    """KEYS on the account: the same one is held back, another one is picked up (pynenc, case 45)."""
    one, same, other = ids(
        Rule(Control.KEYS, ("account",)),
        call(account="1", amount="5"),
        call(account="1", amount="7"),
        call(account="2", amount="5"),
    )

    assert one == same != other
    assert ids(Rule(), call()) == [None]
    assert len({*ids(Rule(Control.TASK), call(), call(a="1"), call("other"))}) == 2


def test_an_id_says_what_it_is_for_and_hides_the_arguments() -> None:
    """Arguments may be secret: neither the id nor the text of a call shows them."""
    secret = call(password="hunter2")  # noqa: S106  not a real secret
    registration, running = (reservation_id(each, Rule(Control.ARGUMENTS), secret) for each in Purpose)

    assert registration is not None
    assert running is not None
    assert registration.startswith("registration-")
    assert running == running.replace("hunter2", "") != registration
    assert repr(secret) == "Call(task='task')"


def test_further_arguments_make_another_call() -> None:
    """To pynenc f(1) waits for f(1, 2), and f(1, 2) does not for f(1)."""
    one, more = ids(Rule(Control.ARGUMENTS), call(a="1"), call(a="1", b="2"))

    assert one != more


def test_the_order_of_arguments_does_not_matter() -> None:
    """They go by their names; so do the keys of a rule."""
    swapped = Call("task", (("b", "2"), ("a", "1")))

    assert swapped == call(a="1", b="2")
    assert ids(Rule(Control.KEYS, ("a", "b")), swapped) == ids(Rule(Control.KEYS, ("b", "a")), swapped)


def test_a_call_that_is_registered_already_is_answered_by_that() -> None:
    """ARGUMENTS: (a, b) twice is one invocation; another call has another document (pynenc, case 46)."""
    taken = decide_registration(Reservation(), "x", call(a="1"), {})

    assert isinstance(taken, Admitted)
    assert taken.reservation == Reservation((Place("x", 0),))
    assert decide_registration(taken.reservation, "y", call(a="1"), {}) == Ask(("x",))
    for record in (None, FIRST):
        found = {"x": Found(call(a="1"), record)}
        answer = decide_registration(taken.reservation, "y", call(a="1"), found)

        assert answer == Reuse("x", record is not None, ())


def test_a_call_with_other_arguments_learns_which_or_is_an_error() -> None:
    """TASK: with the flag, the id and the difference (pynenc, case 47); without it, the same as an answer."""
    taken, found = Reservation((Place("x", 0),)), {"x": Found(call(a="1", b="2"), FIRST)}
    other = call(a="3", c="4")

    assert decide_registration(taken, "y", other, found, must_agree=True) == Differs("x", ("a", "b", "c"))
    assert decide_registration(taken, "y", other, found) == Reuse("x", is_made=True, differing=("a", "b", "c"))
    assert decide_registration(taken, "y", call(a="1", b="2"), found, must_agree=True) == Reuse("x", True, ())


@pytest.mark.parametrize("status", [each.status for each in INVOCATION.definitions])
def test_what_waits_to_run_answers_and_what_runs_keeps_its_place(status: str) -> None:
    """Whatever it waits for, its next try too: two of a kind waited and ran. What has ended gives way."""
    record = StatusRecord(status, "r1" if status in {"pending", "running", "paused"} else None, 2)
    answer = decide_registration(Reservation((Place("x", 0),)), "y", SAME, {"x": Found(SAME, record)})

    if status in WAITING:
        assert answer == Reuse("x", is_made=True, differing=())
    else:
        kept = () if INVOCATION[status].final else (Place("x", 0),)
        assert answer == Admitted(Reservation((*kept, Place("y", 0))))


def test_one_that_ran_beside_another_and_waits_again_answers_once_that_has_ended() -> None:
    taken = Reservation((Place("x", 0), Place("y", 0)))
    found = {"x": Found(SAME, StatusRecord("retry", None, 4)), "y": Found(SAME, StatusRecord("success", None, 4))}

    assert decide_registration(taken, "z", SAME, found) == Reuse("x", is_made=True, differing=())


def test_of_many_that_run_the_last_ones_keep_their_places() -> None:
    """Whoever enqueues reads the records of all who have one."""
    taken = Reservation(tuple(Place(f"i{number}", 0) for number in range(KEPT_MAX + 3)))
    found = {each.invocation: Found(SAME, StatusRecord("running", "r1", 4)) for each in taken.places}
    answer = decide_registration(taken, "z", SAME, found)

    assert answer == Admitted(Reservation((*taken.places[-KEPT_MAX:], Place("z", 0))))


def test_of_five_in_the_queue_one_succeeds_and_four_end_refused() -> None:
    """TASK with rerouting off (pynenc, case 48)."""
    records = {f"i{number}": FIRST for number in range(5)}
    taken = Reservation()
    for each, record in tuple(records.items()):
        known = {place.invocation: records[place.invocation] for place in taken.places}
        answer = decide_running(taken, each, record, known)
        if isinstance(answer, Admitted):
            taken, records[each] = answer.reservation, StatusRecord("running", "r1", 3)
        else:
            assert isinstance(answer, NoFreePlace)
            records[each] = StatusRecord(answer.target, None, 2)
    records["i0"] = StatusRecord("success", None, 4)

    assert [record.status for record in records.values()] == ["success", *["concurrency_controlled_final"] * 4]


def test_of_two_that_look_at_once_one_is_admitted() -> None:
    """Pynenc lets both pass, at the pick and at the start: each looks before the other has set its status."""
    world = World(Entrance(), records={"x": FIRST, "y": FIRST})
    crowd = Crowd(lambda key: pick_up_and_run(world, IDS[key]))
    crowd.begins(0, 0)
    crowd.begins(1, 1)
    for _ in range(6):
        crowd.steps(0)
        crowd.steps(1)

    assert {each: record.status for each, record in world.records.items()} == {
        "x": "running",
        "y": "concurrency_controlled",
    }
    assert world.places == (Place("x", 1),)


@pytest.mark.parametrize(
    ("status", "reroute", "target"),
    [
        (status, reroute, "concurrency_controlled" if reroute else "concurrency_controlled_final")
        for status in ("registered", "rerouted", "retry")
        for reroute in (True, False)
    ],
)
def test_each_refused_status_has_a_way_on(status: str, reroute: bool, target: str) -> None:
    """Pynenc has none from retry, nor with rerouting off from rerouted: it raises, with the message gone."""
    record = StatusRecord(status, None, 4)
    known = {"x": StatusRecord("running", "r1", 3)}
    answer = decide_running(Reservation((Place("x", 1),)), "y", record, known, reroute=reroute)

    assert answer == NoFreePlace((Place("x", 1),), target)
    assert isinstance(decide_transition(INVOCATION, record, target, None), Accepted)


@pytest.mark.parametrize(
    ("record", "held"),
    [
        (StatusRecord("registered", None, 3), True),
        (StatusRecord("registered", None, 2), True),
        (StatusRecord("success", None, 2), True),
        (StatusRecord("pending", "r1", 4), True),
        (StatusRecord("running", "r1", 5), True),
        (StatusRecord("paused", "r1", 6), True),
        (StatusRecord("retry", None, 6), False),
        (StatusRecord("rerouted", None, 4), False),
        (StatusRecord("running_recovery", None, 6), False),
        (StatusRecord("concurrency_controlled", None, 4), False),
        (StatusRecord("success", None, 6), False),
        (None, False),
    ],
)
def test_a_place_is_held_as_long_as_its_holder_may_run(record: StatusRecord | None, held: bool) -> None:
    """A record older than the place proves nothing, and one that is missing was deleted."""
    assert is_held(Purpose.RUNNING, Place("x", 3), record) is held


def test_a_place_for_registration_is_held_until_its_holder_is_registered_no_more() -> None:
    """Before its record is made, too: whoever reserved may be about to make it."""
    held = [
        is_held(Purpose.REGISTRATION, Place("x", 0), record)
        for record in (None, FIRST, StatusRecord("pending", "r1", 2), StatusRecord("success", None, 4))
    ]

    assert held == [True, True, False, False]
    assert {Purpose.REGISTRATION, Purpose.RUNNING} == COUNTS.keys()


def test_two_may_run_where_two_places_are_there() -> None:
    """`at_most` is two: with one unknown and one that works it asks, with two that work it refuses."""
    taken, working = Reservation((Place("x", 1), Place("y", 1))), StatusRecord("running", "r1", 3)

    assert decide_running(Reservation((Place("x", 1),)), "z", FIRST, {}, at_most=2) == Admitted(
        Reservation((Place("x", 1), Place("z", 1)))
    )
    assert decide_running(taken, "z", FIRST, {}, at_most=2) == Ask(("x", "y"))
    assert decide_running(taken, "z", FIRST, {"x": working}, at_most=2) == Ask(("y",))
    assert isinstance(decide_running(taken, "z", FIRST, {"x": working, "y": working}, at_most=2), NoFreePlace)
    assert decide_running(taken, "z", FIRST, {"x": working, "y": None}, at_most=2) == Admitted(
        Reservation((Place("x", 1), Place("z", 1)))
    )
    assert decide_running(taken, "z", FIRST, {"x": working}, at_most=1) == NoFreePlace(
        (Place("x", 1),), "concurrency_controlled_final"
    ), "it names who holds a place, and not who may"


def test_an_earlier_turn_gives_its_place_to_the_next() -> None:
    """It is written anew, so that whoever has judged the old one finds the document changed."""
    again = StatusRecord("rerouted", None, 5)

    assert decide_running(Reservation((Place("x", 1),)), "x", again, {}) == Admitted(Reservation((Place("x", 5),)))
    assert decide_running(Reservation((Place("x", 5),)), "x", again, {}) == AlreadyAdmitted()


@pytest.mark.parametrize("status", ["pending", "running", "paused", "success", "concurrency_controlled", "elsewhere"])
def test_what_may_not_be_picked_up_needs_no_place(status: str) -> None:
    """Totality: every other status, known or not."""
    record = StatusRecord(status, None, 2)

    assert decide_running(Reservation(), "x", record, {}) == NotAvailable(record)


def test_a_place_is_given_back_when_it_is_held_no_more() -> None:
    """Two pickers have one place together: the one that lost may not give it back."""
    taken, ended = Reservation((Place("x", 1), Place("y", 2))), StatusRecord("success", None, 4)
    running = StatusRecord("running", "r1", 3)

    assert release(Purpose.RUNNING, taken, Place("x", 1), ended) == Released(Reservation((Place("y", 2),)))
    assert release(Purpose.RUNNING, taken, Place("x", 1), running) == StillHeld(Place("x", 1))
    assert release(Purpose.RUNNING, taken, Place("y", 1), ended) == NotThere()


def test_each_answer_is_one_line() -> None:
    """What a person can paste into an issue."""
    some = Reservation((Place("x", 1), Place("y", 2)))

    assert [
        str(each)
        for each in (
            Admitted(some),
            AlreadyAdmitted(),
            Ask(("x", "y")),
            NoFreePlace(some.places[:1], "concurrency_controlled"),
            NotAvailable(StatusRecord("pending", "r1", 2)),
            Reuse("x", True, ()),
            Reuse("x", False, ("a", "b")),
            Differs("x", ("a",)),
            Released(Reservation()),
            StillHeld(some.places[1]),
            NotThere(),
        )
    ] == [
        "admitted: 'x' at version 1, 'y' at version 2",
        "admitted already",
        "ask for 'x', 'y'",
        "refused, and becomes 'concurrency_controlled': 'x' at version 1",
        "not available: 'pending' of 'r1' at version 2",
        "reuse 'x'",
        "reuse 'x', which is to be made, with other arguments: a, b",
        "refused: 'x' is registered, with other arguments: a",
        "released: nobody",
        "still held: 'y' at version 2",
        "not there",
    ]


# --- misuse, and the strategies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: Rule(Control.KEYS), "'keys' does not go with the keys"),
        (lambda: Rule(Control.TASK, ("a",)), "'task' does not go with the keys"),
        (lambda: Rule(Control.KEYS, ("a", "a")), "named twice"),
        (lambda: Rule(Control.KEYS, ("",)), "the name of an argument must be"),
        (lambda: Call("task", (("a", "1"), ("a", "2"))), "given twice"),
        (lambda: Call("task", (("a", "1", "2"),)), "not a pair"),  # type: ignore[arg-type]
        (lambda: Call("task", (("a", 1),)), "must be a string, got int 1"),  # type: ignore[arg-type]
        (lambda: Reservation((Place("x", 1), Place("x", 2))), "two places"),
        (lambda: decide_running(Reservation(), "x", FIRST, {}, at_most=0), "a number of places must be"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object], complaint: str) -> None:
    """At construction, with what is wrong; no value of an argument is shown."""
    with pytest.raises(Misuse, match=complaint):
        _ = wrong()


CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Rule": (Rule, {"control": Control.KEYS, "keys": ("a",)}),
    "Call": (Call, {"task": "task", "arguments": (("a", "1"),)}),
    "Place": (Place, {"invocation": "x", "version": 1}),
    "Reservation": (Reservation, {"places": (Place("x", 1),)}),
    "Found": (Found, {"call": SAME, "record": FIRST}),
    "reservation_id": (reservation_id, {"purpose": Purpose.RUNNING, "rule": Rule(), "call": SAME}),
    "differing": (differing, {"call": SAME, "other": SAME}),
    "is_held": (is_held, {"purpose": Purpose.RUNNING, "place": Place("x", 1), "record": FIRST}),
    "decide_registration": (
        decide_registration,
        {"reservation": Reservation(), "invocation": "x", "call": SAME, "known": {}, "must_agree": False},
    ),
    "decide_running": (
        decide_running,
        {
            "reservation": Reservation(),
            "invocation": "x",
            "record": FIRST,
            "known": {},
            "at_most": 1,
            "reroute": False,
        },
    ),
    "release": (
        release,
        {"purpose": Purpose.RUNNING, "reservation": Reservation(), "place": Place("x", 1), "record": FIRST},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_meet_misuse_and_nothing_else(name: str) -> None:
    """Each argument of each public constructor and function, one at a time; each refuses what is of no type at all."""
    refuses_wrong_types(*CALLS[name], FIRST)


@pytest.mark.parametrize(
    ("drawn", "case"),
    [
        *((registrations().map(type), verdict) for verdict in get_args(RegistrationVerdict)),
        *((runnings().map(type), verdict) for verdict in get_args(RunningVerdict)),
        *((releases().map(type), verdict) for verdict in (Released, StillHeld, NotThere)),
        *((rules().map(lambda rule: rule.control), control) for control in Control),
        *((founds().map(lambda found: type(found.record)), kind) for kind in (StatusRecord, type(None))),
    ],
)
def test_every_case_is_drawn(drawn: st.SearchStrategy[object], case: object) -> None:
    """The strategies reach each verdict, each kind of rule, and those who have a record and those who have none."""
    must_draw(drawn, lambda each: each == case)
