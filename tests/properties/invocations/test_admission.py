from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias, assert_never, get_args

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types
from tests.properties.lawbook import Law, bug, finds, planted

from tidegate.invocations.checks.laws import admission as laws
from tidegate.invocations.checks.strategies.admission import (
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
from tidegate.invocations.limits import admission
from tidegate.invocations.limits.admission import (
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
from tidegate.invocations.record.invocation import CANCELLED, INVOCATION
from tidegate.invocations.record.status import Accepted, StatusRecord, StatusTable, decide_transition
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


def is_as_it_was(now: Places, was: Places) -> bool:
    return now == was


# --- a world of concurrent requests -----------------------------------------------------------------------------------

Operation: TypeAlias = Callable[[], object]
Program: TypeAlias = Generator[Operation, object, None]
IDS = ("x", "y", "z")


@attrs.define
class World:
    """Each method is one atomic operation."""

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
        if not is_as_it_was(self.places, was.places):
            return False
        self.places = becomes.places
        return True

    def move(self, invocation: str, was: StatusRecord | None, target: str, runner: str | None) -> StatusRecord | None:
        verdict = decide_transition(INVOCATION, was, target, runner)
        if self.records.get(invocation) != was or not isinstance(verdict, Accepted):
            return None
        self.records[invocation] = verdict.record
        return self.records[invocation]

    def chosen(self) -> int:
        return self.choice


def pick_up_and_run(world: World, invocation: str) -> Program:
    record = yield lambda: world.read(invocation)
    assert isinstance(record, StatusRecord)
    for _ in range(4):
        reserved = yield world.reserved
        assert isinstance(reserved, Reservation)
        known = dict[str, StatusRecord | None]()
        decided = decide_running(reserved, invocation, record, known, at_most=world.at_most, reroute=True)
        while isinstance(decided, Ask):
            for other in decided.invocations:
                found = yield lambda other=other: world.read(other)  # type: ignore[misc]
                assert found is None or isinstance(found, StatusRecord)
                known[other] = found
            decided = decide_running(reserved, invocation, record, known, at_most=world.at_most, reroute=True)
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
    answer = release(world.purpose, reserved, place, record)
    if isinstance(answer, Released):
        after = answer.reservation
        _ = yield lambda: world.write(reserved, after)


def recover(world: World, invocation: str) -> None:
    """Its owner counts as dead."""
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
    who: int
    key: int


@attrs.frozen
class Steps:
    who: int
    choice: int


@attrs.frozen
class Sends:
    who: int


@attrs.frozen
class Arrives:
    pass


@attrs.frozen
class Recovers:
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
"""Drawn one by one, events cost a hundred times as much, and rare kinds hardly occur."""


def told(text: str) -> list[Event]:
    """`12`: 1 takes a step with the choice 2. `b12`: 1 begins with 2. `r2`: 2 is recovered."""
    kinds = {"b": Begins, "r": Recovers}
    return [kinds.get(each[0], Steps)(*map(int, each.lstrip("br"))) for each in text.split()]


COMES_BACK = told("01 00 00 00 00 r1 b00 00 00 00 b21 r1 20 20 00 00 20")
"""A slot request arrives after its slot was lost: one random schedule in some thousands."""

OVERTAKEN = told("b00 00 b10" + 13 * " 10" + " b10 10 10 10 00 00 b21 21 21 21 21 21 10")
"""A late write of an old record must not displace the next slot of the same invocation."""


@attrs.define
class Crowd:
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


def runs(at_most: int) -> tuple[World, Crowd]:
    world = World(at_most, records={each: StatusRecord("registered", None, 1) for each in IDS})
    return world, Crowd(lambda key: pick_up_and_run(world, IDS[key]))


@settings(max_examples=300)
@given(st.sampled_from((1, 1, 1, 2)), schedules)
@example(1, COMES_BACK)
@example(1, OVERTAKEN)
def test_ad1_no_more_run_than_may(at_most: int, happened: list[Event]) -> None:
    world, crowd = runs(at_most)
    for event in happened:
        happen(world, crowd, event)

        assert laws.no_more_run(world.records.values(), at_most), world.records


@settings(max_examples=200)
@given(st.sampled_from((1, 1, 2)), schedules)
def test_ad3_nobody_waits_for_ever(at_most: int, happened: list[Event]) -> None:
    world, crowd = runs(at_most)
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


@attrs.frozen
class Question:
    reservation: Reservation
    invocation: str
    record: StatusRecord
    known: dict[str, StatusRecord | None]
    at_most: int
    reroute: bool

    def answered(self) -> RunningVerdict:
        return decide_running(
            self.reservation, self.invocation, self.record, self.known, at_most=self.at_most, reroute=self.reroute
        )

    def holding(self) -> list[str]:
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


@settings(max_examples=100)
@given(questions)
@example(IN_BETWEEN)
def test_ad3_who_is_refused_is_refused_by_those_who_hold(question: Question) -> None:
    verdict = question.answered()

    assert laws.refused_by_those_who_hold(verdict, question.holding(), question.at_most)


@settings(max_examples=100)
@given(reservations(), calls(), st.dictionaries(st.sampled_from(IDS), invocation_records()), calls(), st.booleans())
@example(Reservation((Place("x", 0),)), Call("t"), {"x": StatusRecord("pending", "r1", 2)}, Call("t"), False)
@example(Reservation((Place("x", 0),)), Call("t"), {}, Call("t", (("a", "1"),)), True)
def test_ad3_and_ad9_a_call_is_answered_by_who_waits(
    taken: Reservation, call: Call, records: dict[str, StatusRecord], other: Call, must_agree: bool
) -> None:
    found = {each: Found(other, records.get(each)) for each in IDS}
    verdict = decide_registration(taken, "new", call, found, must_agree=must_agree)
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


@settings(max_examples=100)
@given(questions)
@example(attrs.evolve(IN_BETWEEN, reservation=Reservation()))
def test_ad4_asking_again_changes_nothing(question: Question) -> None:
    verdict = question.answered()
    if isinstance(verdict, Admitted):
        again = attrs.evolve(question, reservation=verdict.reservation).answered()

        assert laws.asking_again_changes_nothing(again)


@settings(max_examples=100)
@given(calls())
def test_ad4_registering_again_changes_nothing(call: Call) -> None:
    verdict = decide_registration(Reservation(), "new", call, {})
    assert isinstance(verdict, Admitted)

    assert laws.asking_again_changes_nothing(
        decide_registration(verdict.reservation, "new", call, {"new": Found(call, None)})
    )


@settings(max_examples=100)
@given(questions)
@example(BLOCKED)
@example(attrs.evolve(BLOCKED, reroute=True))
@example(attrs.evolve(BLOCKED, record=attrs.evolve(RETRY, status="rerouted")))
def test_ad5_who_is_refused_has_a_way_on(question: Question) -> None:
    verdict = question.answered()
    if isinstance(verdict, NoFreePlace):
        assert laws.has_a_way_on(INVOCATION, question.record, verdict)


@settings(max_examples=300)
@given(st.sampled_from(Purpose), rules(), calls(), calls())
@example(Purpose.RUNNING, Rule(Control.ARGUMENTS), Call("t", (("a", "b"),)), Call("ta", (("b", ""),)))
@example(Purpose.RUNNING, Rule(Control.ARGUMENTS), Call("t", (("a", "1b"),)), Call("t", (("a", "1"), ("b", ""))))
@example(Purpose.RUNNING, Rule(Control.KEYS, ("a",)), Call("t", (("a", ""),)), Call("t"))
@example(Purpose.RUNNING, Rule(Control.KEYS, ("b",)), Call("t", (("a", "1"), ("b", "1"))), Call("t", (("b", "1"),)))
def test_ad6_ids_are_shared_by_those_who_exclude_each_other(
    purpose: Purpose, rule: Rule, call: Call, other: Call
) -> None:
    ids = reservation_id(purpose, rule, call), reservation_id(purpose, rule, other)

    assert laws.share_exactly_if_they_exclude_each_other(rule, call, other, ids)


@settings(max_examples=100)
@given(st.sampled_from(Purpose), reservations(), places(), known)
@example(Purpose.RUNNING, Reservation((Place("x", 3),)), Place("x", 1), dict.fromkeys(IDS, RETRY))
@example(Purpose.RUNNING, Reservation((Place("x", 3), Place("y", 2))), Place("x", 3), dict.fromkeys(IDS, RETRY))
@example(Purpose.RUNNING, Reservation((Place("x", 4),)), Place("x", 4), dict.fromkeys(IDS, RETRY))
def test_ad7_one_place_is_taken_away(
    purpose: Purpose, taken: Reservation, place: Place, records: dict[str, StatusRecord | None]
) -> None:
    held = {each: is_held(purpose, each, records[each.invocation]) for each in taken.places}

    assert laws.takes_away_one_place(taken, place, held, release(purpose, taken, place, records[place.invocation]))


@settings(max_examples=100)
@given(questions)
@example(attrs.evolve(IN_BETWEEN, invocation="x", record=attrs.evolve(RETRY, version=1)))
def test_ad8_no_place_goes_back(question: Question) -> None:
    assert laws.no_place_goes_back(question.reservation, question.answered())


# --- registrations ----------------------------------------------------------------------------------------------------

SAME = Call("task")


def register(world: World, invocation: str) -> Program:
    for _ in range(4):
        reserved = yield world.reserved
        assert isinstance(reserved, Reservation)
        known = dict[str, Found]()
        decided = decide_registration(reserved, invocation, SAME, known)
        while isinstance(decided, Ask):
            for other in decided.invocations:
                record = yield lambda other=other: world.read(other)  # type: ignore[misc]
                assert record is None or isinstance(record, StatusRecord)
                known[other] = Found(SAME, record)
            decided = decide_registration(reserved, invocation, SAME, known)
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


@settings(max_examples=300)
@given(schedules)
def test_ad2_no_more_are_registered_than_may(happened: list[Event]) -> None:
    world = World(purpose=Purpose.REGISTRATION)
    crowd = Crowd(lambda _: register(world, f"i{len(begun)}"))
    begun = list[Event]()
    for event in happened:
        begun.append(event)
        if isinstance(event, Recovers):  # here: a runner picks up registered ones
            for invocation, record in tuple(world.records.items()):
                if record.status == "registered" and event.key:
                    _ = world.move(invocation, record, "pending", "r")
        else:
            happen(world, crowd, event)

        assert laws.no_more_are_registered(world.records.values()), world.records


# --- planted bugs -----------------------------------------------------------------------------------------------------

HELD = "record.version <= place.version or record.status in COUNTS[purpose]"
REFUSED = "NoFreePlace(by, CONCURRENCY_CONTROLLED if reroute else CONCURRENCY_CONTROLLED_FINAL)"
IN_ITS_WAY = "NoFreePlace(reservation.places, CONCURRENCY_CONTROLLED)"

test_a_planted_bug_is_found = planted(
    admission,
    bug("who is about to be picked up is free", (HELD, "record.status in COUNTS[purpose]"), test_ad1_no_more_run_than_may),
    bug("paused is free", (HELD, f"{HELD} - {{'paused'}}"), test_ad1_no_more_run_than_may),  # as in pynenc
    bug(
        "an old place will do",  # its place of an earlier turn may be taken over at this moment
        ("if mine in reservation.places", "if any(place.invocation == invocation for place in reservation.places)"),
        test_ad1_no_more_run_than_may,
    ),
    bug(
        "it displaces its later self",  # though it is the record that is old
        ("if any(place.invocation == invocation and place.version > record.version for place in reservation.places)", "if False"),
        test_ad1_no_more_run_than_may,
        test_ad8_no_place_goes_back,
    ),
    bug(
        "a place is given back at once",  # also where another one has it together with him
        ("    if held:\n        return StillHeld(place)\n", ""),
        test_ad1_no_more_run_than_may,
        test_ad2_no_more_are_registered_than_may,
        test_ad7_one_place_is_taken_away,
    ),
    bug("who has no record yet is gone", ("return place.version == 0", "return False"), test_ad2_no_more_are_registered_than_may),
    bug(
        "a place is held until it is given back",
        (f"return {HELD}", "return True"),
        test_ad3_who_is_refused_is_refused_by_those_who_hold,
        test_ad3_nobody_waits_for_ever,
        test_ad3_and_ad9_a_call_is_answered_by_who_waits,
    ),
    bug("it asks for ever", (REFUSED, "Ask(tuple(place.invocation for place in by))"), test_ad3_who_is_refused_is_refused_by_those_who_hold),
    bug("it never asks", ("Ask(tuple(place.invocation for place in held if place not in by))", IN_ITS_WAY), test_ad3_nobody_waits_for_ever),
    bug("only who is registered counts", (HELD, "record.status == 'registered'"), test_ad3_and_ad9_a_call_is_answered_by_who_waits),
    bug(
        "it is in its own way",  # a retry after a lost reply finds its own place, and takes it for another's
        ("if mine in reservation.places:\n        return AlreadyAdmitted()", f"if mine in reservation.places:\n        return {IN_ITS_WAY}"),
        test_ad4_asking_again_changes_nothing,
    ),
    bug(
        "after a lost reply it answers its own call with itself",
        (
            "if any(place.invocation == invocation for place in reservation.places):\n        return AlreadyAdmitted()",
            "if any(place.invocation == invocation for place in reservation.places):\n        return Reuse(invocation, False, ())",
        ),
        test_ad4_registering_again_changes_nothing,
    ),
    bug("straight back", (REFUSED, "NoFreePlace(by, 'rerouted')"), test_ad5_who_is_refused_has_a_way_on),  # as in pynenc, from wherever it is
    bug("nothing keeps names and values apart", ('b"%d:%b" % (len(written), written)', "written"), test_ad6_ids_are_shared_by_those_who_exclude_each_other),
    bug(
        "a missing argument looks like an empty one",
        ("for name, value in call.arguments:", "for name, value in {**dict.fromkeys(rule.keys, ''), **dict(call.arguments)}.items():"),
        test_ad6_ids_are_shared_by_those_who_exclude_each_other,
    ),
    bug(
        "keys are taken for arguments",
        ("if rule.control is Control.ARGUMENTS or name in rule.keys", "if True"),
        test_ad6_ids_are_shared_by_those_who_exclude_each_other,
    ),
    bug(
        "a late release takes the later place of the same invocation",
        (
            "    held = is_held(",
            "    place = next((each for each in reservation.places if each.invocation == place.invocation), place)\n    held = is_held(",
        ),
        test_ad7_one_place_is_taken_away,
    ),
    bug(
        "cleared, whoever is in it",  # as the array-push lock does
        ("Reservation(tuple(each for each in reservation.places if each != place))", "Reservation()"),
        test_ad7_one_place_is_taken_away,
    ),
)  # fmt: skip


@pytest.mark.parametrize("law", [test_ad1_no_more_run_than_may, test_ad2_no_more_are_registered_than_may])
def test_a_planted_write_without_a_condition_is_found(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pynenc reads, then writes without a condition."""
    monkeypatch.setitem(globals(), "is_as_it_was", lambda *_: True)
    finds(law, monkeypatch)


PYNENC = StatusTable(
    INVOCATION.initial,
    tuple(
        attrs.evolve(each, targets=each.targets - {edge.target for edge in each.added}, added=())
        for each in INVOCATION.definitions
        if each.status != CANCELLED  # only our edges lead there
    ),
)


def test_ad5_there_is_no_way_on_in_pynencs_table() -> None:
    verdict = BLOCKED.answered()

    assert isinstance(verdict, NoFreePlace)
    assert laws.has_a_way_on(INVOCATION, BLOCKED.record, verdict)
    assert not laws.has_a_way_on(PYNENC, BLOCKED.record, verdict)


# --- facts ------------------------------------------------------------------------------------------------------------

FIRST = StatusRecord("registered", None, 1)


def call(task: str = "task", **arguments: str) -> Call:
    return Call(task, tuple(arguments.items()))


def ids(rule: Rule, *of: Call) -> list[str | None]:
    return [reservation_id(Purpose.RUNNING, rule, each) for each in of]


def test_calls_of_one_key_wait_for_each_other_and_others_do_not() -> None:
    """KEYS with the account as key (pynenc, case 45)."""
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
    secret = call(password="hunter2")  # noqa: S106  not a real secret
    registration, running = (reservation_id(each, Rule(Control.ARGUMENTS), secret) for each in Purpose)

    assert registration is not None
    assert running is not None
    assert registration.startswith("registration-")
    assert running == running.replace("hunter2", "") != registration
    assert repr(secret) == "Call(task='task')"


def test_further_arguments_make_another_call() -> None:
    """In pynenc, f(1) waits for f(1, 2), but f(1, 2) does not wait for f(1)."""
    one, more = ids(Rule(Control.ARGUMENTS), call(a="1"), call(a="1", b="2"))

    assert one != more


def test_the_order_of_arguments_does_not_matter() -> None:
    swapped = Call("task", (("b", "2"), ("a", "1")))

    assert swapped == call(a="1", b="2")
    assert ids(Rule(Control.KEYS, ("a", "b")), swapped) == ids(Rule(Control.KEYS, ("b", "a")), swapped)


def test_a_call_that_is_registered_already_is_answered_by_that() -> None:
    """ARGUMENTS (pynenc, case 46)."""
    taken = decide_registration(Reservation(), "x", call(a="1"), {})

    assert isinstance(taken, Admitted)
    assert taken.reservation == Reservation((Place("x", 0),))
    assert decide_registration(taken.reservation, "y", call(a="1"), {}) == Ask(("x",))
    for record in (None, FIRST):
        found = {"x": Found(call(a="1"), record)}
        answer = decide_registration(taken.reservation, "y", call(a="1"), found)

        assert answer == Reuse("x", record is not None, ())


def test_a_call_with_other_arguments_learns_which_or_is_an_error() -> None:
    """TASK, with and without the flag (pynenc, case 47)."""
    taken, found = Reservation((Place("x", 0),)), {"x": Found(call(a="1", b="2"), FIRST)}
    other = call(a="3", c="4")

    assert decide_registration(taken, "y", other, found, must_agree=True) == Differs("x", ("a", "b", "c"))
    assert decide_registration(taken, "y", other, found) == Reuse("x", is_made=True, differing=("a", "b", "c"))
    assert decide_registration(taken, "y", call(a="1", b="2"), found, must_agree=True) == Reuse("x", True, ())


@pytest.mark.parametrize("status", [each.status for each in INVOCATION.definitions])
def test_what_waits_to_run_answers_and_what_runs_keeps_its_place(status: str) -> None:
    """Also a retry: once, two of a kind waited and both ran."""
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
    taken = Reservation(tuple(Place(f"i{number}", 0) for number in range(KEPT_MAX + 3)))
    found = {each.invocation: Found(SAME, StatusRecord("running", "r1", 4)) for each in taken.places}
    answer = decide_registration(taken, "z", SAME, found)

    assert answer == Admitted(Reservation((*taken.places[-KEPT_MAX:], Place("z", 0))))


def test_of_five_in_the_queue_one_succeeds_and_four_end_refused() -> None:
    """TASK without rerouting (pynenc, case 48)."""
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
    """Pynenc admits both: each checks before the other has set its status."""
    world = World(records={"x": FIRST, "y": FIRST})
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
    """Pynenc raises from retry, and from rerouted without rerouting, after its message is gone."""
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
    assert is_held(Purpose.RUNNING, Place("x", 3), record) is held


def test_a_place_for_registration_is_held_until_its_holder_is_registered_no_more() -> None:
    held = [
        is_held(Purpose.REGISTRATION, Place("x", 0), record)
        for record in (None, FIRST, StatusRecord("pending", "r1", 2), StatusRecord("success", None, 4))
    ]

    assert held == [True, True, False, False]
    assert {Purpose.REGISTRATION, Purpose.RUNNING} == COUNTS.keys()


def test_two_may_run_where_two_places_are_there() -> None:
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
    again = StatusRecord("rerouted", None, 5)

    assert decide_running(Reservation((Place("x", 1),)), "x", again, {}) == Admitted(Reservation((Place("x", 5),)))
    assert decide_running(Reservation((Place("x", 5),)), "x", again, {}) == AlreadyAdmitted()


@pytest.mark.parametrize("status", ["pending", "running", "paused", "success", "concurrency_controlled", "elsewhere"])
def test_what_may_not_be_picked_up_needs_no_place(status: str) -> None:
    record = StatusRecord(status, None, 2)

    assert decide_running(Reservation(), "x", record, {}) == NotAvailable(record)


def test_a_place_is_given_back_when_it_is_held_no_more() -> None:
    taken, ended = Reservation((Place("x", 1), Place("y", 2))), StatusRecord("success", None, 4)
    running = StatusRecord("running", "r1", 3)

    assert release(Purpose.RUNNING, taken, Place("x", 1), ended) == Released(Reservation((Place("y", 2),)))
    assert release(Purpose.RUNNING, taken, Place("x", 1), running) == StillHeld(Place("x", 1))
    assert release(Purpose.RUNNING, taken, Place("y", 1), ended) == NotThere()


def test_each_answer_is_one_line() -> None:
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
    """The complaint shows no value of an argument."""
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
    must_draw(drawn, lambda each: each == case)
