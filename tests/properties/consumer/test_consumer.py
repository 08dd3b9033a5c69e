from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import Law, bug, planted

from tidegate import laws
from tidegate.consumer.fanout import Arrange, Judge, Report, Rules, Tasks
from tidegate.consumer.flow.backpressure import Held, PartitionLimits, Thresholds
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition import _fast_path
from tidegate.consumer.partition.in_flight_records import Handling
from tidegate.consumer.partition.partition import FailurePolicy, Ordering, PartitionRules, Unassigned
from tidegate.consumer.protocol import commands
from tidegate.consumer.worker import consumer
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.effects import Ambiguous, Cancel, Effect, Refused
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition

P = tuple(TopicPartition("t", number) for number in range(3))
BOUNDS = PartitionLimits(span=Thresholds(high=5, low=2), metadata=Thresholds(high=6, low=3))
EACH = PartitionRules(limits=BOUNDS, replay_max=1)
IN_ORDER = attrs.evolve(EACH, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY)
RETRIED = attrs.evolve(EACH, fanout=Rules(2, 0, task_delivery=False, record_delivery=False, window_delivery=False))
WINDOWS = attrs.evolve(
    EACH, window_max=2, hooks=True, fanout=Rules(1, 0, window_delivery=False), drain=Budget(3, cancel=1, commit=1)
)
RULES = ConsumerRules(executors=2, thresholds=Thresholds(high=4, low=1), partition=EACH)
KEYS = (b"a", b"b", None)

# A script drives a random world: a group event, or which command completes, and how.
ACTIONS = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.sampled_from(["revoke", "lose"]), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("command"), st.integers(0, 20), st.integers(0, 4)),
)
SCRIPTS = st.lists(ACTIONS, max_size=40)


Check = Callable[[ConsumerRules, ConsumerState, ConsumerState, commands.Event], bool]


class World:
    def __init__(self, rules: ConsumerRules, check: Check) -> None:
        self.rules, self.check = rules, check
        self.state = ConsumerState()
        self.commands: list[Effect[object]] = []
        self.generation = 0

    def play(self, script: list[tuple[str, int, int]]) -> None:
        for action, which, how in script:
            match action:
                case "assign":
                    self.generation += 1
                    self.happen(commands.Assigned(P[which], self.generation, how))
                case "revoke":
                    self.happen(commands.Revoked(P[which]))
                case "lose":
                    self.happen(commands.Lost(P[which]))
                case _:
                    self.come_true(which, how)

    def come_true(self, which: int, how: int) -> None:
        polled = self.rules.polling(self.state, ()).poll
        able = [
            command
            for command in self.commands
            if not isinstance(command, commands.Fetch) or command.partition in polled
        ]
        if not able:
            return
        command = able[which % len(able)]
        self.commands.remove(command)
        reply: object = None
        match command:
            case commands.Fetch(partition, generation, position):
                offsets = tuple(range(position, position + how))
                keys, again = tuple(KEYS[each % 3] for each in offsets), offsets[max(0, which - 15) :]
                self.happen(commands.Fetched(partition, generation, offsets, keys, again, which == 20))
                return
            case commands.Commit():
                reply = (None, None, None, Ambiguous(), Refused())[how]
            case commands.Work():
                reply = ValueError() if how == 4 else _reply(command.request, how)
            case _:
                pass
        event = commands.event_for(command, reply)
        if event is not None:
            self.happen(event)

    def happen(self, event: commands.Event) -> None:
        before = self.state
        step = self.rules.step(before, event)
        self.state = step.state
        for command in step.commands:
            if isinstance(command, Cancel):  # of user code, which goes on until it ends
                self.commands = [
                    other for other in self.commands if isinstance(other, commands.Work) or other != command.effect
                ]
            elif not isinstance(command, (commands.Release, commands.Interrupt)):
                self.commands.append(command)
        assert self.check(self.rules, before, self.state, event), (before, event, self.state)
        if self.check is as8:
            in_work = [command for command in self.commands if isinstance(command, commands.Work)]
            assert laws.consumer.nothing_runs_uncounted(self.state, in_work), (before, event, self.state)


def _reply(request: commands.Request, how: int) -> object:
    match request:
        case Arrange(_, offsets):
            return Tasks((*((offset,) for offset in offsets), offsets))
        case Judge():
            return (Report.RETRIED, Report.SKIPPED)[how % 2]
        case _:
            return None


def as1(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.executors_bound_the_running(rules, after)


def as2(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.nothing_is_polled_at_high(rules, after, rules.polling(after, ()))


def as3(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.no_executor_waits(rules, after)


def as4(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del rules
    return laws.consumer.others_are_left_alone(before, after, event.partition)


def as5(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return all(
        laws.consumer.holds_what_is_not_polled(after, paused, rules.polling(after, paused)) for paused in ((), P, P[:1])
    )


def as6(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    return laws.consumer.slots_go_round(rules, before, after, event.partition)


def as8(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del rules, before, event
    counted = ConsumerState(after.partitions, after.verdict, after.outliving)
    return (after.running, after.load) == (counted.running, counted.load)


def as9(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del after
    alone = rules.step(before, event)
    among_others = rules.step(before, commands.Batch((event, commands.SlotFreed(event.partition))))
    return alone == among_others and attrs.astuple(alone.state, recurse=False) == attrs.astuple(
        among_others.state, recurse=False
    )


def as10(rules: ConsumerRules, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del rules
    return laws.consumer.what_was_done_counts(before, after, event)


LAWS = {"AS1": as1, "AS2": as2, "AS3": as3, "AS4": as4, "AS5": as5, "AS6": as6, "AS8": as8, "AS9": as9, "AS10": as10}


def told(*commanded: tuple[int, int]) -> list[tuple[str, int, int]]:
    return [("command", which, how) for which, how in commanded]


FIRST, SECOND = ("assign", 0, 0), ("assign", 1, 0)
TELLING = (
    [FIRST, SECOND, *told((0, 2), (0, 2), (0, 0))],  # a slot moves on
    [FIRST, *told((0, 3)), SECOND, *told((2, 1), (0, 0))],  # to the other one
    [FIRST, *told((0, 1), (0, 2)), SECOND, *told((3, 1), (0, 0))],
    [FIRST, *told((0, 1), (0, 1), (1, 1), (0, 0), (0, 0))],
    [FIRST, *told((0, 1), (0, 1), (1, 2), (0, 0), (0, 0))],
    [FIRST, *told((0, 4), (0, 0), (0, 4)), FIRST, *told((0, 0), (16, 1))],  # some come again, and others
    [FIRST, *told((0, 4), (0, 0), (0, 4)), FIRST, *told((0, 0), (20, 0))],
)


def scripted(test: Law) -> Law:
    for each in TELLING:
        test = example(each)(test)
    return given(SCRIPTS)(test)


KINDS = {"each": EACH, "in order": IN_ORDER, "tried again": RETRIED}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", KINDS)
@scripted
def test_whatever_happens_the_laws_hold(law: str, kind: str, script: list[tuple[str, int, int]]) -> None:
    """Laws AS1 to AS6, and AS8 to AS10, over random scripts of group, records and user code."""
    World(attrs.evolve(RULES, partition=KINDS[kind]), LAWS[law]).play(script)


@pytest.mark.parametrize("law", ["AS1", "AS2", "AS8"])
@scripted
def test_with_hooks_too_the_laws_hold(law: str, script: list[tuple[str, int, int]]) -> None:
    World(attrs.evolve(RULES, partition=WINDOWS), LAWS[law]).play(script)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def over(law: str) -> Law:
    return partial(test_whatever_happens_the_laws_hold, law, "each")


POLLED = "plan(state.verdict, [part.partition for part in state.partitions], paused, held)"
LEFT = "while left and running < self.executors:"
ROOM = "part, self.executors - running"
IN_TURN = "        last = at + is_ours"
RESULT = "ConsumerState(tuple(partitions), verdict, outliving, running, load, startable, kept)"

test_a_planted_bug_is_found = planted(
    consumer,
    # More executors run than exist.
    bug(
        "twice as many run", (LEFT, LEFT.replace("self", "2 * self")), (ROOM, ROOM.replace("self", "2 * self")),
        over("AS1"),
    ),
    # It ignores the gate's verdict.
    bug(
        "polled through the gate", (POLLED, POLLED.replace("state.verdict", "Flow(GateReason.BELOW_HIGH)")),
        over("AS2"),
    ),
    # One executor always idles.
    bug("one executor stays free", (LEFT, LEFT.replace(":", " - 1:")), (ROOM, f"{ROOM} - 1"), over("AS3")),
    # A lost partition removes the others.
    bug(
        "all are lost with one",
        (IN_TURN, f"        if isinstance(events[0], Lost):\n            return Step(ConsumerState())\n{IN_TURN}"),
        over("AS4"),
    ),
    # A paused partition stays paused.
    bug("nothing is resumed", (POLLED, f"attrs.evolve({POLLED}, resume=())"), over("AS5")),
    # A partition that was given records is polled again before it requests more.
    bug(
        "polled who asks for nothing",
        ("part.holding.fetching is None or isinstance(part.holding.hold, Held)", "isinstance(part.holding.hold, Held)"),
        over("AS5"),
    ),
    # A partition keeps the slot that it freed, and the others wait until it has no more work.
    bug(
        "it keeps its slot", (IN_TURN, "        last = at"), ("startable >> at + 1 << at + 1", "startable >> at << at"),
        over("AS6"),
    ),
    # Handlers that outlive their partition are not counted.
    bug("what it gave up is forgotten", (RESULT, "ConsumerState(tuple(partitions), verdict)"), over("AS8")),
    bug(
        "one that ends alone is forgotten",
        (
            "partitions[at] = done\n",
            "partitions[at] = attrs.evolve(done, commits=attrs.evolve(done.commits, unrecorded=0))\n",
        ),
        over("AS9"),
    ),
    # A done record is handled again.
    bug("nothing is kept", (RESULT, RESULT.replace(", kept", "")), over("AS10")),
    # A record in work counts as done.
    bug(
        "what was delivered is kept",
        (
            "after_loss(_kept_of(kept, lost.partition), lost.partition, lost.tracker)",
            "Kept(lost.partition, lost.tracker.floor, ((lost.tracker.floor, lost.tracker.frontier),))",
        ),
        over("AS10"),
    ),
    # It compares the offset alone.
    bug("any is taken for its own", ("in event.again if is_kept(", "in event.offsets if is_kept("), over("AS10")),
    # The kept records stay although another record has come.
    bug("it goes on after another", ("None if event.is_anew else found", "found"), over("AS10")),
    # The position may have gone back.
    bug("it goes back", ("from_position(found,", "from_position(attrs.evolve(found, position=0),"), over("AS10")),
)  # fmt: skip


def as9_while_held(order: Sequence[int]) -> list[bool]:
    """Six records end in this order; also returns whether each ended while the partition was
    held.
    """
    rules = attrs.evolve(RULES, executors=6)
    state = rules.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = rules.step(state, commands.Fetched(P[0], 1, tuple(range(6)))).state
    held = []
    for offset in order:
        event = commands.WorkReported(P[0], 1, commands.RecordsHandled((offset,)))
        assert as9(rules, state, state, event)
        is_held = isinstance(state.partitions[0].holding.hold, Held)
        held.append(is_held and rules._shortly(state, event) is not None)  # noqa: SLF001  it has no other sign
        state = rules.step(state, event).state
    return held


def test_while_a_partition_is_held_the_short_way_is_taken_until_it_may_be_let_go() -> None:
    """Law AS9. Two undone records release it; the first to commit takes the long path."""
    for order in permutations(range(6)):
        first = order.index(0)
        assert as9_while_held(order)[first + 1 : 3] == [True] * (2 - first), order


def test_a_partition_that_is_held_for_ever_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law AS9: planted."""
    monkeypatch.setattr(_fast_path, "_stays_held", lambda *_: True)
    with pytest.raises(AssertionError):
        as9_while_held(range(6))


def as9_while_one_backs_off() -> list[bool]:
    """The second of several records fails first; also returns which took the fast path."""
    rules = attrs.evolve(RULES, executors=3, partition=RETRIED)
    state = rules.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = rules.step(state, commands.Fetched(P[0], 1, tuple(range(4)))).state
    short = []
    for what in (
        commands.RecordsHandled((0,)),
        commands.RecordsHandled((), (1,)),
        commands.RecordsHandled((2,)),
        commands.RecordsHandled((1,)),  # a repetition
        commands.RecordsHandled((3,)),
    ):
        event = commands.WorkReported(P[0], 1, what)
        short.append(rules._shortly(state, event) is not None)  # noqa: SLF001  it has no other sign
        assert as9(rules, state, state, event)
        state = rules.step(state, event).state
    return short


def test_while_one_backs_off_the_short_way_is_taken_for_others() -> None:
    """Law AS9."""
    assert as9_while_one_backs_off() == [False, False, True, False, True]


def test_one_that_backs_off_and_is_taken_for_running_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law AS9: planted."""
    monkeypatch.setattr(Handling, "of", lambda *_: None)
    with pytest.raises(AssertionError):
        as9_while_one_backs_off()


def test_a_consumer_has_a_hundred_executors_by_default() -> None:
    assert ConsumerRules().executors == 100


def test_slots_go_round() -> None:
    one = attrs.evolve(RULES, executors=1)
    state, works = ConsumerState(), list[commands.Work]()
    for partition in P:
        state = one.step(state, commands.Assigned(partition, 1, 0)).state
        step = one.step(state, commands.Fetched(partition, 1, (0, 1, 2)))
        state = step.state
        works += [command for command in step.commands if isinstance(command, commands.Work)]
    for _ in range(3):
        event = commands.event_for(works[-1], None)
        assert event is not None
        step = one.step(state, event)
        state = step.state
        works += [command for command in step.commands if isinstance(command, commands.Work)]
    assert [(work.partition, work.offsets) for work in works] == [
        (P[0], (0,)),
        (P[1], (0,)),
        (P[2], (0,)),
        (P[0], (1,)),
    ]


def test_an_assignment_shows_itself_on_one_line() -> None:
    state = RULES.step(ConsumerState(), commands.Assigned(P[0], 1, 7)).state

    assert str(state) == "flow: the load is below high; t-0 flowing (generation 1), floor 7"
    assert state[P[1]] == Unassigned()


def test_a_partition_that_is_held_is_not_polled_while_others_are() -> None:
    state = RULES.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = RULES.step(state, commands.Assigned(P[1], 1, 0)).state
    big = attrs.evolve(RULES, thresholds=Thresholds(high=99, low=9))
    state = big.step(state, commands.Fetched(P[0], 1, tuple(range(6)))).state
    plan = big.polling(state, ())
    assert (plan.poll, plan.pause, plan.resume) == ((P[1],), (), ())


def test_by_default_the_gate_is_for_the_executors() -> None:
    assert ConsumerRules(executors=3).thresholds == Thresholds(high=96, low=12)


@pytest.mark.parametrize("executors", [0, -1, True, 1.0])
def test_bounds_that_are_none_are_refused(executors: int) -> None:
    with pytest.raises(Misuse, match="executors"):
        ConsumerRules(executors=executors)


def test_a_number_of_tasks_that_would_be_ignored_is_refused() -> None:
    """The consumer shares its executors out, so the limit would have no effect."""
    with pytest.raises(Misuse, match="running_max=5"):
        ConsumerRules(partition=PartitionRules(running_max=5))
