"""One consumer's partitions together: executors are shared, the gate bounds the load, partitions do not disturb others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import permutations
from operator import attrgetter

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import laws
from tidegate.consumer import _one_record, commands
from tidegate.consumer.backpressure import Flow, Free, GateReason, Held, PartitionLimits, Plan, Thresholds
from tidegate.consumer.consumer import ConsumerRules, ConsumerState, ConsumerStep
from tidegate.consumer.drain import Budget
from tidegate.consumer.fanout import Arrange, Judge, Report, Rules, Tasks
from tidegate.consumer.handling import Handling
from tidegate.consumer.kept import Kept
from tidegate.consumer.partition import FailurePolicy, Ordering, Owned, PartitionRules, Unassigned
from tidegate.model.effects import Ambiguous, Cancel, Effect, Refused
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step

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

# A script is what a random world does: an event of the group, or which command comes true, and how.
ACTIONS = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.sampled_from(["revoke", "lose"]), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("command"), st.integers(0, 20), st.integers(0, 4)),
)
SCRIPTS = st.lists(ACTIONS, max_size=40)


@attrs.frozen
class Machine:
    """What a consumer does: as it does, or wrongly."""

    rules: ConsumerRules = RULES
    step: Callable[[ConsumerRules, ConsumerState, commands.Event], ConsumerStep] = ConsumerRules.step
    polling: Callable[[ConsumerRules, ConsumerState, Collection[TopicPartition]], Plan[TopicPartition]] = (
        ConsumerRules.polling
    )

    def plan(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        return self.polling(self.rules, state, paused)


Check = Callable[[Machine, ConsumerState, ConsumerState, commands.Event], bool]


class World:
    """Carries commands out as a script says, and checks every step."""

    def __init__(self, machine: Machine, check: Check) -> None:
        self.machine, self.check = machine, check
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
        polled = self.machine.plan(self.state, ()).poll
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
        step = self.machine.step(self.machine.rules, before, event)
        self.state = step.state
        for command in step.commands:
            if isinstance(command, Cancel):  # of user code, which goes on until it ends
                self.commands = [
                    other for other in self.commands if isinstance(other, commands.Work) or other != command.effect
                ]
            elif not isinstance(command, (commands.Release, commands.Interrupt)):
                self.commands.append(command)
        assert self.check(self.machine, before, self.state, event), (before, event, self.state)
        if self.check is as8:
            in_work = [command for command in self.commands if isinstance(command, commands.Work)]
            assert laws.consumer.nothing_runs_uncounted(self.state, in_work), (before, event, self.state)


def _reply(request: commands.Request, how: int) -> object:
    """What user code answers, where it does not raise."""
    match request:
        case Arrange(_, offsets):
            return Tasks((*((offset,) for offset in offsets), offsets))
        case Judge():
            return (Report.RETRIED, Report.SKIPPED)[how % 2]
        case _:
            return None


def holds(check: Check, machine: Machine) -> None:
    """Plays random scripts, and checks the law at every step."""

    @given(SCRIPTS)
    @example(
        [("assign", 0, 0), ("assign", 1, 0), ("command", 0, 2), ("command", 0, 2), ("command", 0, 0)]
    )  # a slot moves on
    @example(
        [("assign", 0, 0), ("command", 0, 3), ("assign", 1, 0), ("command", 2, 1), ("command", 0, 0)]
    )  # to the other one
    @example(
        [
            ("assign", 0, 0),
            *(("command", *each) for each in ((0, 1), (0, 2))),
            ("assign", 1, 0),
            ("command", 3, 1),
            ("command", 0, 0),
        ]
    )
    @example([("assign", 0, 0), *(("command", *each) for each in ((0, 1), (0, 1), (1, 1), (0, 0), (0, 0)))])
    @example([("assign", 0, 0), *(("command", *each) for each in ((0, 1), (0, 1), (1, 2), (0, 0), (0, 0)))])
    def played(script: list[tuple[str, int, int]]) -> None:
        World(machine, check).play(script)

    played()


def as1(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.executors_bound_the_running(machine.rules, after)


def as2(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.nothing_is_polled_at_high(machine.rules, after, machine.plan(after, ()))


def as3(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return laws.consumer.no_executor_waits(machine.rules, after)


def as4(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del machine
    return laws.consumer.others_are_left_alone(before, after, event.partition)


def as5(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del before, event
    return all(
        laws.consumer.holds_what_is_not_polled(after, paused, machine.plan(after, paused)) for paused in ((), P, P[:1])
    )


def as6(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    return laws.consumer.slots_go_round(machine.rules, before, after, event.partition)


def as8(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    """What is in work the world knows, which looks itself; and what is counted follows from the state."""
    del machine, before, event
    counted = ConsumerState(after.partitions, after.verdict, after.outliving)
    return (after.running, after.load) == (counted.running, counted.load)


def as9(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del after
    alone = machine.step(machine.rules, before, event)
    among_others = machine.rules.step(before, commands.Batch((event, commands.SlotFreed(event.partition))))
    return alone == among_others and attrs.astuple(alone.state, recurse=False) == attrs.astuple(
        among_others.state, recurse=False
    )


def as10(machine: Machine, before: ConsumerState, after: ConsumerState, event: commands.Event) -> bool:
    del machine
    return laws.consumer.what_was_done_counts(before, after, event)


LAWS = {"AS1": as1, "AS2": as2, "AS3": as3, "AS4": as4, "AS5": as5, "AS6": as6, "AS8": as8, "AS9": as9, "AS10": as10}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("each", [EACH, IN_ORDER, RETRIED], ids=["each", "in order", "tried again"])
def test_whatever_happens_the_laws_hold(law: str, each: PartitionRules) -> None:
    """Laws AS1 to AS6, and AS8 to AS10, over random scripts of the group, of records and of user code."""
    holds(LAWS[law], Machine(attrs.evolve(RULES, partition=each)))


@pytest.mark.parametrize("law", ["AS1", "AS2", "AS8"])
def test_with_hooks_too_the_laws_hold(law: str) -> None:
    """A window is arranged before its tasks may begin, so that an executor may wait."""
    holds(LAWS[law], Machine(attrs.evolve(RULES, partition=WINDOWS)))


def runs_twice_as_many(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """There are more executors than there are."""
    return attrs.evolve(rules, executors=2 * rules.executors).step(state, event)


def polls_through_the_gate(
    rules: ConsumerRules, state: ConsumerState, paused: Collection[TopicPartition]
) -> Plan[TopicPartition]:
    """The verdict of the gate is not asked."""
    return rules.polling(attrs.evolve(state, verdict=Flow(GateReason.BELOW_HIGH)), paused)


def leaves_one_executor_free(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """One executor waits, whatever is queued."""
    return attrs.evolve(rules, executors=rules.executors - 1).step(state, event)


def loses_all_with_one(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """A partition that is lost takes the others with it."""
    return Step(ConsumerState()) if isinstance(event, commands.Lost) else rules.step(state, event)


def resumes_nothing(
    rules: ConsumerRules, state: ConsumerState, paused: Collection[TopicPartition]
) -> Plan[TopicPartition]:
    """What was paused stays paused."""
    return attrs.evolve(rules.polling(state, paused), resume=())


def polls_who_asks_for_nothing(
    rules: ConsumerRules, state: ConsumerState, paused: Collection[TopicPartition]
) -> Plan[TopicPartition]:
    """A partition that was given records is polled for more before it asks."""
    asks = tuple(
        attrs.evolve(part, holding=attrs.evolve(part.holding, fetching=0)) if isinstance(part.hold, Free) else part
        for part in state.partitions
    )
    return rules.polling(attrs.evolve(state, partitions=asks), paused)


def keeps_its_slot(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """A partition takes the slot that it made free, and the others wait until it has nothing more."""
    own = state[event.partition]
    room = rules.executors - state.running + (own.running if isinstance(own, Owned) else 0)
    done = attrs.evolve(rules.partition, running_max=room).step(own, event)
    parts = [part for part in state.partitions if part.partition != event.partition]
    if isinstance(done.state, Owned):
        parts.append(done.state)
    kept = ConsumerState(tuple(sorted(parts, key=attrgetter("partition"))), state.verdict)
    again = rules.step(kept, commands.SlotFreed(event.partition))
    return Step(again.state, (*done.commands, *again.commands))


def forgets_what_it_gave_up(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """What outlives its partition counts no more."""
    done = rules.step(state, event)
    return Step(ConsumerState(done.state.partitions, done.state.verdict), done.commands)


def forgets_one_that_ends_alone(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS9: planted."""
    done = rules.step(state, event)
    if rules._shortly(state, event) is None:  # noqa: SLF001  where it would be forgotten
        return done
    parts = tuple(
        attrs.evolve(part, commits=attrs.evolve(part.commits, unrecorded=0)) for part in done.state.partitions
    )
    return Step(attrs.evolve(done.state, partitions=parts), done.commands)


def keeps_nothing(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS10: what was done is done again."""
    done = rules.step(state, event)
    return Step(attrs.evolve(done.state, kept=()), done.commands)


def keeps_what_was_delivered(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS10: what was in work counts as done."""
    done, own = rules.step(state, event), state[event.partition]
    if done.state.kept == state.kept or not isinstance(event, commands.Lost) or not isinstance(own, Owned):
        return done
    lost = Kept(own.partition, own.tracker.floor, ((own.tracker.floor, own.tracker.frontier),))
    others = tuple(each for each in done.state.kept if each.partition != own.partition)
    return Step(attrs.evolve(done.state, kept=(*others, lost)), done.commands)


def takes_any_for_its_own(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS10: by offset alone."""
    return rules.step(state, attrs.evolve(event, again=event.offsets) if isinstance(event, commands.Fetched) else event)


def goes_back(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS10: the position may have gone back."""
    return rules.step(attrs.evolve(state, kept=tuple(attrs.evolve(each, position=0) for each in state.kept)), event)


def goes_on_after_another(rules: ConsumerRules, state: ConsumerState, event: commands.Event) -> ConsumerStep:
    """Law AS10: what is kept stays, though a record has come that is another."""
    done = rules.step(state, event)
    return (
        Step(attrs.evolve(done.state, kept=state.kept), done.commands) if isinstance(event, commands.Fetched) else done
    )


SPECIMENS = {
    "AS10": Machine(step=keeps_nothing),
    "AS10 what is done": Machine(step=keeps_what_was_delivered),
    "AS10 the record": Machine(step=takes_any_for_its_own),
    "AS10 the log": Machine(step=goes_on_after_another),
    "AS10 the position": Machine(step=goes_back),
    "AS1": Machine(step=runs_twice_as_many),
    "AS2": Machine(polling=polls_through_the_gate),
    "AS3": Machine(step=leaves_one_executor_free),
    "AS4": Machine(step=loses_all_with_one),
    "AS5": Machine(polling=resumes_nothing),
    "AS5 of those that wait": Machine(polling=polls_who_asks_for_nothing),
    "AS6": Machine(step=keeps_its_slot),
    "AS8": Machine(step=forgets_what_it_gave_up),
    "AS9": Machine(step=forgets_one_that_ends_alone),
}


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_planted_bug_breaks_the_law(name: str) -> None:
    """Each law has a specimen that breaks it."""
    with pytest.raises(AssertionError):
        holds(LAWS[name.split(maxsplit=1)[0]], SPECIMENS[name])


def as9_while_held(order: Sequence[int]) -> list[bool]:
    """Law AS9 for six records that end one by one in this order; and whether each ended while the partition was held."""
    machine = Machine(attrs.evolve(RULES, executors=6))
    state = machine.rules.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = machine.rules.step(state, commands.Fetched(P[0], 1, tuple(range(6)))).state
    held = []
    for offset in order:
        event = commands.WorkReported(P[0], 1, commands.RecordsHandled((offset,)))
        assert as9(machine, state, state, event)
        is_held = isinstance(state.partitions[0].holding.hold, Held)
        held.append(is_held and machine.rules._shortly(state, event) is not None)  # noqa: SLF001  it has no other sign
        state = machine.rules.step(state, event).state
    return held


def test_while_a_partition_is_held_the_short_way_is_taken_until_it_may_be_let_go() -> None:
    """Law AS9 in each order, where two undone records let it go; the first to be committed goes the long way."""
    for order in permutations(range(6)):
        first = order.index(0)
        assert as9_while_held(order)[first + 1 : 3] == [True] * (2 - first), order


def test_a_partition_that_is_held_for_ever_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law AS9: planted."""
    monkeypatch.setattr(_one_record, "_stays_held", lambda *_: True)
    with pytest.raises(AssertionError):
        as9_while_held(range(6))


def as9_while_one_backs_off() -> list[bool]:
    """Law AS9 for records that end one by one, of which the second fails first; and for which of them the short way was taken."""
    machine = Machine(attrs.evolve(RULES, executors=3, partition=RETRIED))
    state = machine.rules.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = machine.rules.step(state, commands.Fetched(P[0], 1, tuple(range(4)))).state
    short = []
    for what in (
        commands.RecordsHandled((0,)),
        commands.RecordsHandled((), (1,)),
        commands.RecordsHandled((2,)),
        commands.RecordsHandled((1,)),  # which was told before
        commands.RecordsHandled((3,)),
    ):
        event = commands.WorkReported(P[0], 1, what)
        short.append(machine.rules._shortly(state, event) is not None)  # noqa: SLF001  it has no other sign
        assert as9(machine, state, state, event)
        state = machine.rules.step(state, event).state
    return short


def test_while_one_backs_off_the_short_way_is_taken_for_others() -> None:
    """Law AS9: what deviates costs others nothing."""
    assert as9_while_one_backs_off() == [False, False, True, False, True]


def test_one_that_backs_off_and_is_taken_for_running_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law AS9: planted."""
    monkeypatch.setattr(Handling, "of", lambda *_: None)
    with pytest.raises(AssertionError):
        as9_while_one_backs_off()


def test_a_consumer_has_a_hundred_executors_by_default() -> None:
    """What a user leaves out."""
    assert ConsumerRules().executors == 100


def test_slots_go_round() -> None:
    """The partitions behind the one that made room come first."""
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
    """For traces and issues: the gate, then each partition."""
    state = RULES.step(ConsumerState(), commands.Assigned(P[0], 1, 7)).state

    assert str(state) == "flow: the load is below high; t-0 flowing (generation 1), floor 7"
    assert state[P[1]] == Unassigned()


def test_a_partition_that_is_held_is_not_polled_while_others_are() -> None:
    """Selective polling: what one partition holds up does not stop the others, and nothing is paused."""
    state = RULES.step(ConsumerState(), commands.Assigned(P[0], 1, 0)).state
    state = RULES.step(state, commands.Assigned(P[1], 1, 0)).state
    big = attrs.evolve(RULES, thresholds=Thresholds(high=99, low=9))
    state = big.step(state, commands.Fetched(P[0], 1, tuple(range(6)))).state
    plan = big.polling(state, ())
    assert (plan.poll, plan.pause, plan.resume) == ((P[1],), (), ())


def test_by_default_the_gate_is_for_the_executors() -> None:
    """32 and 4 records for each, as in Drakkar."""
    assert ConsumerRules(executors=3).thresholds == Thresholds(high=96, low=12)


@pytest.mark.parametrize("executors", [0, -1, True, 1.0])
def test_bounds_that_are_none_are_refused(executors: int) -> None:
    """Bad input: at least one handler must be able to run."""
    with pytest.raises(Misuse, match="executors"):
        ConsumerRules(executors=executors)


def test_a_number_of_tasks_that_would_be_ignored_is_refused() -> None:
    """The executors are shared out, so what each partition may run is not for the user to say."""
    with pytest.raises(Misuse, match="running_max=5"):
        ConsumerRules(partition=PartitionRules(running_max=5))
