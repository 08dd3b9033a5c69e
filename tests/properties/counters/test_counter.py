from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.counters import counter as counting
from tidegate.counters.checks import laws
from tidegate.counters.checks.strategies import counters, increments, sweeps, tokens
from tidegate.counters.increments import SWEPT_AT_ONCE, sweep_all
from tidegate.model.documents import ID, Add, Document, Eq, Put, Remove, matches, updated
from tidegate.model.effects import Effect, Program
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import FindAll, UpdateOne, update_one
from tidegate.sim.world.world import World as Cells
from tidegate.sim.world.world import contents, perform, world_with

ALL, KEY = "counters", "today"


def applied(write: UpdateOne, record: Document) -> Document:
    if not matches(write.where, record, lambda: Instant(0)):
        return record
    return updated(record, write.updates, lambda: Instant(0))


# --- a world of owners and sweeps, where requests are late, lost and doubled ------------------------------------------


@attrs.define(eq=False)
class Sent:
    write: UpdateOne
    kind: str
    token: str
    in_round: int
    matched: bool | None = None


@attrs.define(eq=False)
class Owner:
    increment: counting.Increment
    awaits: Sent | None = None
    answer: counting.IncrementVerdict | None = None
    is_gone: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_gone or isinstance(self.answer, (counting.Counted, counting.Forgotten))


Turn: TypeAlias = tuple[str, int]
DEEDS = (
    "read",
    "read",
    "apply",
    "apply",
    "answer",
    "answer",
    "apply again",
    "lose",
    "sweep",
    "close",
    "restart",
    "crash",
)


@attrs.define(eq=False)
class World:
    owners: list[Owner]
    record: Document = attrs.Factory(lambda: counting.new_counter(KEY))
    flights: list[Sent] = attrs.Factory(list)
    counted: dict[str, int] = attrs.Factory(dict)

    @property
    def counter(self) -> counting.Counter:
        return counting.counter_of(self.record)

    def turn(self, what: str, much: int) -> None:
        owner = self.owners[much % len(self.owners)]
        recent = self.flights[-1 - much % len(self.flights)] if self.flights else None
        match what:
            case "read" if owner.awaits is None and not owner.is_done:
                self.read(owner)
            case "apply" if recent is not None and recent.matched is None:
                self.apply(recent)
            case "apply again" if recent is not None and recent.matched is not None:
                self.apply(recent)
            case "answer" if owner.awaits is not None and owner.awaits.matched is not None:
                self.answer(owner, owner.awaits)
            case "lose":
                owner.awaits = None
            case "restart":  # it keeps its token, and the round stored before the request
                owner.awaits, owner.increment = None, attrs.evolve(owner.increment, is_noted=False)
            case "crash":
                owner.awaits, owner.is_gone = None, True
            case "sweep":
                self.sweep(close_it=False)
            case "close":
                self.sweep(close_it=True)
            case _:
                pass

    def read(self, owner: Owner) -> None:
        increment, counter = owner.increment, self.counter
        owner.answer = answer = counting.decide_increment(counter, increment, 2)
        pending = [token for token, noted in counter.tokens if noted > 0]

        assert laws.the_answer_is_true(answer, increment, self.counted, pending, counter.round), "CN4"
        match answer:
            case counting.NoteToken(in_round):
                owner.increment = counting.Increment(increment.token, in_round)
                write = counting.first_step(ALL, KEY, increment.token, in_round)
                owner.awaits = Sent(write, "first", increment.token, in_round)
                self.flights.append(owner.awaits)
            case counting.CountToken(noted):
                owner.increment = counting.Increment(increment.token, noted, is_noted=True)
                write = counting.second_step(ALL, KEY, increment.token, noted)
                owner.awaits = Sent(write, "second", increment.token, noted)
                self.flights.append(owner.awaits)
            case _:
                pass

    def apply(self, sent: Sent) -> None:
        before, record = self.counter, self.record
        self.record = applied(sent.write, record)
        matched = matches(sent.write.where, record, lambda: Instant(0))
        sent.matched = matched if sent.matched is None else sent.matched
        if sent.kind == "second" and self.counter.count > before.count:
            self.counted[sent.token] = self.counted.get(sent.token, 0) + 1

        assert laws.each_counts_once(self.counter, self.counted), "CN1"
        assert laws.only_counting_takes_away(before, self.counter), "CN2"
        if sent.kind == "first":
            assert laws.comes_late_in_vain(before, self.counter, sent.token, sent.in_round), "CN3"

    def answer(self, owner: Owner, sent: Sent) -> None:
        owner.awaits = None
        if sent.matched:
            owner.increment = attrs.evolve(owner.increment, is_noted=True)

    def sweep(self, *, close_it: bool) -> None:
        sweep = counting.decide_sweep(self.counter)
        if not close_it:
            self.flights += [
                Sent(counting.second_step(ALL, KEY, token, noted), "second", token, noted)
                for token, noted in sweep.count
            ]
        if sweep.closing is not None:
            closing = counting.close(ALL, KEY, sweep.closing, sweep.drop)
            self.flights.append(Sent(closing, "close", "", sweep.closing))

    def serve(self) -> None:
        for sent in list(self.flights):
            if sent.matched is None:
                self.apply(sent)
        for owner in self.owners:
            if owner.awaits is not None:
                self.answer(owner, owner.awaits)

    def calm(self) -> None:
        self.serve()
        for _ in range(10):
            for number in range(len(self.owners)):
                self.turn("read", number)
            self.serve()
            self.sweep(close_it=False)
            self.serve()
        for sent in list(self.flights):
            self.apply(sent)


SCHEDULES = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 5)), max_size=40)


def render(*words: str) -> list[Turn]:
    return [(word, 0) for word in words]


NOTED = render("read", "apply", "answer")
RESURRECTED = [*NOTED, *render("read", "apply", "answer"), ("apply again", 1)]
COUNTED_TWICE = [*NOTED, *render("read", "apply", "apply again")]
SWEPT_BESIDE = [*NOTED, *render("sweep", "apply", "sweep"), ("read", 0), ("apply", 0), ("apply", 1), ("apply", 2)]
LATE = [*render("read", "lose"), ("read", 1), *render("apply", "close", "apply", "read")]
CRASHED = render("read", "apply", "crash")
RESTARTED = [*NOTED, *render("read", "apply", "lose", "restart", "close", "apply", "read")]
FORGOTTEN = [*render("read", "lose"), ("apply", 0), *3 * [*render("sweep", "apply"), ("apply", 1)], ("read", 0)]


@settings(max_examples=120)
@given(st.integers(1, 3), SCHEDULES)
@example(1, RESURRECTED)
@example(1, COUNTED_TWICE)
@example(1, SWEPT_BESIDE)
@example(2, LATE)
@example(1, CRASHED)
@example(1, RESTARTED)
@example(1, FORGOTTEN)
def test_cn1_to_cn5_in_a_world(count: int, turns: list[Turn]) -> None:
    """Laws CN1 to CN5, for two owners and sweeps."""
    world = World([Owner(counting.Increment(token)) for token in "tuv"[:count]])
    for what, much in turns:
        world.turn(what, much)
    world.calm()

    sure = [each.increment.token for each in world.owners if isinstance(each.answer, counting.Counted)]
    assert all(each.is_done for each in world.owners), "CN4"
    assert set(sure) <= set(world.counted), "CN2"
    assert laws.only_the_count_is_left(world.record, KEY, len(world.counted)), "CN5"


@settings(max_examples=120)
@given(counters(), tokens(), st.integers(1, 5))
def test_cn3_a_late_first_step_does_what_it_may(counter: counting.Counter, token: str, in_round: int) -> None:
    after = applied(counting.first_step(ALL, KEY, token, in_round), recorded(counter))

    assert laws.comes_late_in_vain(counter, counting.counter_of(after), token, in_round), "CN3"


@settings(max_examples=120)
@given(counters(), increments(), st.integers(1, 6))
def test_cn6_what_is_full_takes_no_more(
    counter: counting.Counter, increment: counting.Increment, tokens_max: int
) -> None:
    answer = counting.decide_increment(counter, increment, tokens_max)

    assert laws.what_is_full_takes_no_more(counter, tokens_max, answer), "CN6"


def recorded(counter: counting.Counter) -> Document:
    record = Document.of({"_id": KEY, "count": counter.count, "round": counter.round})
    for token, noted in counter.tokens:
        record = record.put(counting.token_field(token), noted)
    return record


# --- planted bugs -----------------------------------------------------------------------------------------------------

COUNT_DROPPED = "tuple(token for token, noted in before if noted < 0)"
CAN_BE_NOTED = "Eq(ROUND, in_round), Eq(field, None)"

test_a_planted_bug_is_found = planted(
    counting,
    # The article's second step removes the counted token, so a late first step brings it back.
    bug("without a tombstone", ("Put(field, -noted)", "Remove(field)"), test_cn1_to_cn5_in_a_world, says="CN[12]"),
    # A blind increment: a second copy counts again.
    bug(
        "counted again", ("AllOf((_key_is(key), Eq(field, noted)))", "_key_is(key)"),
        test_cn1_to_cn5_in_a_world, says="CN1",
    ),
    # The article's clean-up clears the tokens that it has read.
    bug(
        "the sum of what was read", (COUNT_DROPPED, "tuple(token for token, _ in counter.tokens)"),
        ("Eq(ROUND, in_round), *counted", "Eq(ROUND, in_round)"),
        test_cn1_to_cn5_in_a_world, says="CN2",
    ),
    bug(
        "never counted", ("count=tuple((token, noted) for token, noted in before if noted > 0)", "count=()"),
        test_cn1_to_cn5_in_a_world, says="CN5",
    ),
    # A late first step of a closed round finds its tombstone gone.
    bug(
        "in any round", (CAN_BE_NOTED, "Eq(field, None)"),
        test_cn1_to_cn5_in_a_world, test_cn3_a_late_first_step_does_what_it_may, says="CN3",
    ),
    # The token is noted again after it is counted.
    bug("whatever stands", (CAN_BE_NOTED, "Eq(ROUND, in_round)"), test_cn1_to_cn5_in_a_world, says="CN[123]"),
    bug(
        "whatever stands", (CAN_BE_NOTED, "Eq(ROUND, in_round)"),
        test_cn3_a_late_first_step_does_what_it_may, says="CN3",
    ),
    # A missing token counts as not noted: UNKNOWN becomes NOT DONE.
    bug(
        "missing is not done", ("return Forgotten(asked, now)", "return NoteToken(now)"),
        test_cn1_to_cn5_in_a_world, says="CN4",
    ),
    # A missing token counts as counted and removed.
    bug(
        "missing is done",
        (
            "        if now > asked + 1:\n",
            "        if now <= asked + 1:\n            return Counted()\n        if True:\n",
        ),
        test_cn1_to_cn5_in_a_world, says="CN4",
    ),
    bug("given up early", ("if now > asked + 1:", "if True:"), test_cn1_to_cn5_in_a_world, says="CN4"),
    # It removes the tombstones of the current round, too: its owners come back too late.
    bug(
        "this round is dropped", (COUNT_DROPPED, COUNT_DROPPED.replace("before", "counter.tokens")),
        test_cn1_to_cn5_in_a_world, says="CN4",
    ),
    bug("never dropped", (COUNT_DROPPED, "()"), test_cn1_to_cn5_in_a_world, says="CN5"),
    bug("never full", (">= tokens_max", ">= TOKENS_MAX"), test_cn6_what_is_full_takes_no_more, says="CN6"),
    bug("full too soon", (">= tokens_max", ">= tokens_max - 1"), test_cn6_what_is_full_takes_no_more, says="CN6"),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def test_an_increment_takes_two_steps() -> None:
    record, lines = counting.new_counter(KEY), list[str]()
    increment = counting.Increment("t")
    for _ in range(3):
        answer = counting.decide_increment(counting.counter_of(record), increment)
        lines.append(f"{answer}: {record}")
        match answer:
            case counting.NoteToken(in_round):
                record = applied(counting.first_step(ALL, KEY, "t", in_round), record)
                increment = counting.Increment("t", in_round, is_noted=True)
            case counting.CountToken(noted):
                record = applied(counting.second_step(ALL, KEY, "t", noted), record)
            case _:
                pass
    for _ in range(3):
        sweep = counting.decide_sweep(counting.counter_of(record))
        for write in counting.updates(ALL, KEY, sweep):
            record = applied(write, record)
        lines.append(f"{sweep}: {record}")

    assert lines == [
        'note it in round 1: {_id: "today", count: 0, round: 1}',
        'count it, noted in round 1: {_id: "today", count: 0, round: 1, token t: 1}',
        'counted: {_id: "today", count: 1, round: 1, token t: -1}',
        'count 0, close round 1, drop 0: {_id: "today", count: 1, round: 2, token t: -1}',
        'count 0, close round 2, drop 1: {_id: "today", count: 1, round: 3}',
        'count 0, nothing to close, drop 0: {_id: "today", count: 1, round: 3}',
    ]
    assert (
        str(counting.first_step(ALL, KEY, "t", 1))
        == 'update counters where _id = "today" and round = 1 and token t = null: token t := 1'
    )


@pytest.mark.parametrize(
    ("expected", "asked", "is_noted", "now"),
    [
        (counting.NoteToken(4), None, False, 4),
        (counting.NoteToken(4), 4, False, 4),
        (counting.NoteToken(4), 3, False, 4),
        (counting.Forgotten(2, 4), 2, False, 4),
        (counting.Counted(), 3, True, 4),
        (counting.Counted(), 2, True, 4),
        (counting.OldRead(), 4, True, 4),
        (counting.OldRead(), 5, False, 4),
        (counting.OldRead(), 5, True, 4),
    ],
)
def test_a_missing_token_is_explained_by_the_rounds(
    expected: counting.IncrementVerdict, asked: int | None, is_noted: bool, now: int
) -> None:
    """Law CN4: the owner's knowledge and the open round decide."""
    assert expected == counting.decide_increment(counting.Counter(7, now), counting.Increment("t", asked, is_noted))


@pytest.mark.parametrize(("expected", "noted"), [(counting.CountToken(2), 2), (counting.Counted(), -2)])
def test_a_token_that_stands_explains_itself(expected: counting.IncrementVerdict, noted: int) -> None:
    """Law CN4, also for an owner that knows nothing after a restart."""
    for increment in (counting.Increment("t"), counting.Increment("t", 2), counting.Increment("t", 2, is_noted=True)):
        assert expected == counting.decide_increment(counting.Counter(7, 4, (("t", noted),)), increment, 1)


def test_answers_are_printed_in_a_line() -> None:
    assert [
        str(each) for each in (counting.Full(3), counting.Forgotten(2, 4), counting.OldRead(), counting.Counted())
    ] == [
        "full: 3 tokens",
        "forgotten: asked for in round 2, and it is round 4",
        "an old read",
        "counted",
    ]


def test_a_round_is_closed_once() -> None:
    record = recorded(counting.Counter(1, 2, (("t", -1), ("u", 2))))
    closing = counting.close(ALL, KEY, 2, ("t",))
    closed = applied(closing, record)

    assert counting.counter_of(closed) == counting.Counter(1, 3, (("u", 2),))
    assert applied(closing, closed) == closed


@given(counters())
def test_a_record_is_read_as_it_was_written(counter: counting.Counter) -> None:
    assert counting.counter_of(recorded(counter)) == counter


@given(counters())
def test_a_sweep_leaves_this_rounds_tokens_alone(counter: counting.Counter) -> None:
    sweep = counting.decide_sweep(counter)
    swept = {*sweep.count, *((token, counter.noted(token)) for token in sweep.drop)}

    assert swept == {(token, noted) for token, noted in counter.tokens if abs(noted) < counter.round}
    assert all(noted > 0 for _, noted in sweep.count)
    assert (sweep.closing is None) == (not counter.tokens)
    assert len(counting.updates(ALL, KEY, sweep)) == len(sweep.count) + bool(counter.tokens)


@given(counters(), sweeps())
def test_a_sweep_that_comes_again_changes_nothing(counter: counting.Counter, sweep: counting.Sweep) -> None:
    once = recorded(counter)
    for update in counting.updates(ALL, KEY, sweep):
        once = applied(update, once)
    twice = once
    for update in counting.updates(ALL, KEY, sweep):
        twice = applied(update, twice)

    assert twice == once


@given(increments())
def test_increments_are_values(increment: counting.Increment) -> None:
    assert increment == attrs.evolve(increment)
    assert len({increment, attrs.evolve(increment)}) == 1


def test_the_articles_protocol_counts_wrong() -> None:
    """A late copy of step one makes 2 of one increment; a clean-up makes 1 of two (both
    measured).
    """
    resurrected = counting.Counter(1, 1, (("t", 1),))  # counted, its token gone, and noted again by a late first step
    counted = update_one(
        ALL, counting.second_step(ALL, KEY, "t", 1).where, Remove(counting.token_field("t")), Add(counting.COUNT, 1)
    )
    assert applied(counted, recorded(resurrected)).held(counting.COUNT) == 2

    read, beside = (
        counting.Counter(0, 1, (("t", 1),)),
        counting.Counter(1, 1, ()),
    )  # as the clean-up read it; counted since
    summed = update_one(
        ALL, Eq(ID, KEY), Put(counting.COUNT, read.count + len(read.tokens)), Remove(counting.token_field("t"))
    )
    assert applied(summed, recorded(attrs.evolve(beside, count=2))).held(counting.COUNT) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda: counting.Counter(-1),
        lambda: counting.Counter(True),
        lambda: counting.Counter(0, 0),
        lambda: counting.Counter(2**63),
        lambda: counting.Counter(0, 10**6_000),
        lambda: counting.Counter(0, 1, [("t", 1)]),  # type: ignore[arg-type]
        lambda: counting.Counter(0, 1, ("t",)),  # type: ignore[arg-type]
        lambda: counting.Counter(0, 1, (("t",),)),  # type: ignore[arg-type]
        lambda: counting.Counter(0, 1, (("t", 1, 1),)),  # type: ignore[arg-type]
        lambda: counting.Counter(0, 1, (("t", 2),)),
        lambda: counting.Counter(0, 1, (("t", 0),)),
        lambda: counting.Counter(0, 1, (("t", None),)),  # type: ignore[arg-type]
        lambda: counting.Counter(0, 1, (("t", True),)),
        lambda: counting.Counter(0, 1, (("", 1),)),
        lambda: counting.Counter(0, 1, (("a.b", 1),)),
        lambda: counting.Counter(0, 1, (("t", 1), ("t", -1))),
        lambda: counting.Increment(""),
        lambda: counting.Increment("a.b"),
        lambda: counting.Increment("\0"),
        lambda: counting.Increment("\ud800"),
        lambda: counting.Increment("t", 0),
        lambda: counting.Increment("t", None, is_noted=True),
        lambda: counting.Increment("t", 1, is_noted=1),  # type: ignore[arg-type]
        lambda: counting.new_counter(""),
        lambda: counting.counter_of({"count": 0}),  # type: ignore[arg-type]
        lambda: counting.counter_of(Document.of({"_id": KEY, "count": 0})),
        lambda: counting.counter_of(Document.of({"_id": KEY, "count": "0", "round": 1})),
        lambda: counting.counter_of(Document.of({"_id": KEY, "count": 0, "round": 1, "token t": "pending"})),
        lambda: counting.first_step(ALL, "", "t", 1),
        lambda: counting.first_step(ALL, KEY, "t", 0),
        lambda: counting.second_step(ALL, KEY, "t", -1),
        lambda: counting.close(ALL, KEY, 0, ()),
        lambda: counting.close(ALL, KEY, 1, ["t"]),  # type: ignore[arg-type]
        lambda: counting.decide_increment(None, counting.Increment("t")),  # type: ignore[arg-type]
        lambda: counting.decide_increment(counting.Counter(), "t"),  # type: ignore[arg-type]
        lambda: counting.decide_increment(counting.Counter(), counting.Increment("t"), 0),
        lambda: counting.decide_increment(counting.Counter(), counting.Increment("t"), -(10**6_000)),
        lambda: counting.decide_sweep(None),  # type: ignore[arg-type]
        lambda: counting.updates(ALL, KEY, None),  # type: ignore[arg-type]
        lambda: counting.updates(ALL, "", counting.Sweep((), 1)),
        lambda: counting.close(ALL, KEY, 1, (["t"],)),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        build()


def carried_out(program: Program[object], world: Cells) -> tuple[Cells, list[Effect[object]]]:
    asked: list[Effect[object]] = []
    reply: object = None
    while True:
        try:
            asked.append(program.send(reply))
        except StopIteration:
            return world, asked
        ((world, reply),) = perform(asked[-1], world, "sweeper")


def test_a_sweep_of_all_goes_over_what_is_left() -> None:
    left = [
        Document.of({"_id": f"c{n:03}", "count": 0, "round": 1, f"token t{n}": 1}) for n in range(SWEPT_AT_ONCE + 5)
    ]
    others = (
        counting.new_counter("idle"),
        Document.of({"_id": 7, "more": 1}),
        Document.of({"_id": "c", "count": "x", "more": 1}),
    )
    world: Cells = world_with({"counters": (*left, *others)})
    for _ in range(3):
        world, asked = carried_out(sweep_all("counters"), world)
        assert {type(each) for each in asked} <= {FindAll, UpdateOne}
    held = {doc.held(ID): doc for doc in contents(world, "counters")}
    for doc in left:
        assert held[doc[ID]] == Document.of({"_id": doc[ID], "count": 1, "round": held[doc[ID]][counting.ROUND]})
    assert all(held[doc.held(ID)] == doc for doc in others)
