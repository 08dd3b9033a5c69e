"""Two workers run a pipeline over one partition: rebalances, crashes, hooks that raise, sinks that fail.

Each record has two tasks, and each window up to two records. Every hook returns one output. The
sink keeps the set of the keys that it was given, as an idempotent sink does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

import attrs

from tidegate.consumer.fanout import Report, Rules, Start, TasksReported
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition import FailurePolicy, Owned, PartitionRules, Phase
from tidegate.consumer.protocol.commands import (
    Commit,
    CommitsUnanswered,
    Interrupt,
    Release,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkReported,
    WorkUnanswered,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.effects import Ambiguous, Cancel, Effect, Failure, Program, Refused
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.pipeline.checks import laws
from tidegate.pipeline.effects import (
    CallArrange,
    CallDeliveryError,
    CallHook,
    DecodeRecords,
    Deliver,
    FindUndecodable,
    Hook,
    LogSkipped,
    OnFailure,
    Output,
    PipelineRules,
    TaskSpec,
    Verdict,
    WriteOutputs,
    WriteRecords,
)
from tidegate.pipeline.identity import output_key
from tidegate.pipeline.programs import Answer, events_for, program_for
from tidegate.retries.backoff import Exponential
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.group import GROUP, REBALANCES, Coordinator, Group, broker, committed, dead, end
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Stepping
from tidegate.sim.world.faults import Fault, Faults, Which
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, World, place
from tidegate.sinks.delivery import Action

TOPIC: Final = "t"
WORKERS: Final = ("a", "b")
SINK: Final = "s"

DELIVERED: Final = Cell[tuple[tuple[str, str], ...]](("sink",), ())
"""The outputs that the sink has, by key: (key, output). It ignores an output whose key it has already."""
LETTERS: Final = Cell[tuple[str, ...]](("dead letters",), ())
"""The outputs, and the offsets of records, that the dead-letter topic has or that were skipped."""

ANSWERED: Final = "the committed position never passes a record whose outputs are not settled"
ONE_KEY: Final = "an output that comes again has the key that it had, and no other output has that"
ALL: Final = "at rest every record is committed, unless its failure stops the partition"

Programs: TypeAlias = Callable[[PipelineRules, Effect[object]], Program[Answer] | None]


def is_hook(effect: Effect[object]) -> bool:
    return isinstance(effect, (CallArrange, CallHook, CallDeliveryError)) or is_task(effect)


def is_task(effect: Effect[object]) -> bool:
    return isinstance(effect, Work) and isinstance(effect.request, Start)


def is_hook_of(*hooks: Hook) -> Which:
    """Calls of these hooks."""

    def which(effect: Effect[object]) -> bool:
        match effect:
            case CallHook(hook):
                return hook in hooks
            case CallArrange():
                return Hook.ARRANGE in hooks
            case CallDeliveryError():
                return Hook.DELIVERY_ERROR in hooks
            case _:
                return False

    return which


def is_delivery(effect: Effect[object]) -> bool:
    return isinstance(effect, Deliver)


def is_letter(effect: Effect[object]) -> bool:
    return isinstance(effect, (WriteRecords, WriteOutputs))


def is_commit(effect: Effect[object]) -> bool:
    return isinstance(effect, Commit)


def _is_timer(effect: Effect[object]) -> bool:
    return isinstance(effect, StartDrainTimer)


def _is_at_once(effect: Effect[object]) -> bool:
    return isinstance(effect, (Release, Interrupt, WorkUnanswered, CommitsUnanswered))


# --- what tasks and outputs are -------------------------------------------------------------------


def _tasks_of(offsets: tuple[int, ...]) -> tuple[TaskSpec, ...]:
    return tuple(TaskSpec(f"{offset}{letter}", (offset,)) for offset in offsets for letter in "ab")


def _window(world: World, who: str, work: Work) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """The records of the window of this work, and the positions of the records of each of its tasks."""
    machine = world.read(place(who))
    assert isinstance(machine, Machine)
    assert isinstance(machine.state, ConsumerState)
    part = machine.state[work.partition]
    if not isinstance(part, Owned) or part.generation != work.generation or not isinstance(part.work, Windowed):
        return None
    for window in part.work.windows.windows:
        if window.roll.number == getattr(work.request, "window", None):
            return window.roll.offsets, window.roll.records
    return None


def _task(world: World, who: str, work: Work, number: int) -> tuple[int, str | None]:
    """The record and the id of a task; no id where it stands for a record that could not be arranged."""
    found = _window(world, who, work)
    if found is None:
        return work.offsets[0], f"{work.offsets[0]}?"
    offsets, records = found
    mine = records[number]
    before = sum(each == mine for each in records[:number])
    alone = sum(each == mine for each in records) == 1
    offset = offsets[mine[0]]
    return offset, None if alone else f"{offset}{'ab'[before % 2]}{'+' * (before // 2)}"


def by_source(offset: int, task: str | None, output: Output) -> str:
    """The key of an output of this record and task."""
    return output_key(TOPIC, 0, offset, task, output.hook, output.sink, output.position)


def _source(world: World, who: str, work: Work, output: Output) -> tuple[int, str | None]:
    """The record and the task that an output is of."""
    if output.hook is Hook.TASK_DONE:
        return _task(world, who, work, output.subject)
    return (output.subject if output.hook is Hook.RECORD_DONE else work.offsets[0]), None


def _name(world: World, who: str, work: Work, output: Output) -> str:
    """The output itself, whatever its key."""
    offset, task = _source(world, who, work, output)
    return f"{task or offset} {output.hook} {output.position}"


def wanted(offset: int, hooks: frozenset[Hook], outputs: int) -> set[str]:
    """The outputs of a record, without those of its window."""
    of = [*(f"{offset}{each} {Hook.TASK_DONE}" for each in "ab" if Hook.TASK_DONE in hooks)]
    of += [f"{offset} {Hook.RECORD_DONE}"] if Hook.RECORD_DONE in hooks else []
    return {f"{each} {position}" for each in of for position in range(outputs)}


# --- what hooks and sinks do ----------------------------------------------------------------------


def _delivered(world: World, pairs: Mapping[str, str]) -> World:
    taken = world.read(DELIVERED)
    has = dict(taken)
    return world.write(DELIVERED, tuple(sorted({**pairs, **has}.items())))


def _with_letters(world: World, *names: str) -> World:
    return world.write(LETTERS, tuple(sorted({*world.read(LETTERS), *names})))


@attrs.frozen
class Users:
    """What the user's code and the sink do.

    Attributes:
        poison: The record that can be neither decoded nor arranged, if any.
        raises: The hooks that always raise.
        outputs: How many outputs a hook returns.
        partly: Whether the sink may refuse the first of several outputs.
        key_of: Makes the key of an output, of its record, its task and itself.
    """

    poison: int | None = None
    raises: frozenset[Hook] = frozenset()
    outputs: int = 1
    partly: bool = False
    key_of: Callable[[int, str | None, Output], str] = by_source


def means(users: Users, otherwise: Meaning) -> Meaning:
    """The hooks of the user and the sink."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Work(_, _, Start()) | StartRetryTimer():
                yield world, None
            case DecodeRecords(work) | FindUndecodable(work):
                yield world, tuple(offset for offset in work.offsets if offset == users.poison)
            case CallArrange(_, offsets):
                yield world, Ambiguous("ValueError") if users.poison in offsets else _tasks_of(offsets)
            case CallHook(hook, work, subjects):
                yield from called(hook, work, subjects, world, who)
            case CallDeliveryError(_, outputs):
                for action in Action:
                    yield world, (action,) * len(outputs)
            case Deliver(work, outputs):
                names = [_name(world, who, work, each) for each in outputs]
                keys = [users.key_of(*_source(world, who, work, each), each) for each in outputs]
                yield _delivered(world, dict(zip(keys, names, strict=True))), (None,) * len(outputs)
                if users.partly and len(outputs) > 1:
                    rest = dict(zip(keys[1:], names[1:], strict=True))
                    yield _delivered(world, rest), (Refused("too large"), *(None for _ in outputs[1:]))
            case WriteRecords(_, offsets):
                yield _with_letters(world, *map(str, offsets)), (None,) * len(offsets)
            case WriteOutputs(work, outputs):
                names = [_name(world, who, work, each) for each in outputs]
                yield _with_letters(world, *names), (None,) * len(outputs)
            case LogSkipped(work, offsets, outputs):
                names = [_name(world, who, work, each) for each in outputs]
                yield _with_letters(world, *names, *map(str, offsets)), None
            case _:
                yield from otherwise(effect, world, who)

    def called(hook: Hook, work: Work, subjects: tuple[int, ...], world: World, who: str) -> Outcomes:
        if hook in users.raises:
            yield world, (Ambiguous("ValueError"),) * len(subjects)
        elif hook is not Hook.TASK_ERROR:
            yield world, ((SINK,) * users.outputs,) * len(subjects)
        elif any(_task(world, who, work, each)[1] is None for each in subjects):
            yield world, (Verdict.SKIP,) * len(subjects)
        else:
            yield world, (Verdict.RETRY,) * len(subjects)
            yield world, (Verdict.SKIP,) * len(subjects)

    return meaning


# --- tasks that end one by one --------------------------------------------------------------------


def _one_by_one(step: Stepping, state: object, event: object) -> Step[object, Effect[object]]:
    """Each task is a command of its own, as a runtime runs it."""
    after = step(state, event)
    return Step(after.state, tuple(chain.from_iterable(map(_split, after.commands))))


def _split(command: Effect[object]) -> Iterator[Effect[object]]:
    match command:
        case Work(_, _, Start(_, numbers) as start) if len(numbers) > 1:
            yield from (attrs.evolve(command, request=attrs.evolve(start, numbers=(each,))) for each in numbers)
        case Cancel(Work(_, _, Start()) as work):
            yield from map(Cancel, _split(work))
        case Interrupt(Work(_, _, Start()) as work):
            yield from map(Interrupt, _split(work))  # type: ignore[arg-type]
        case _:
            yield command


def _event_for(command: Effect[object], reply: object) -> object:
    """The end of a task ends no request: others of it may run."""
    match command:
        case Work(partition, generation, Start(window, numbers, attempt)):
            report = Report.FAILED if isinstance(reply, Failure) else Report.SUCCEEDED
            return WorkReported(partition, generation, TasksReported(window, numbers, attempt, report))
        case _:
            return events_for(command, reply)


# --- the scenario ---------------------------------------------------------------------------------

ALL_HOOKS: Final = frozenset({Hook.TASK_DONE, Hook.RECORD_DONE, Hook.WINDOW_DONE})
TASKS_ONLY: Final = frozenset({Hook.TASK_DONE})
RULES: Final = PipelineRules(hook_retries=1, delivery_retries=1, backoff=Exponential(SECOND, cap=SECOND))
LOST: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_commit}
SINK_FAILS: Final[Mapping[Fault, Which]] = {
    Fault.SINK_FAILED: is_delivery, Fault.LOST_REPLY: is_delivery, Fault.DEAD_LETTER_FAILED: is_letter,
}  # fmt: skip
UNANSWERED: Final[Mapping[Fault, Which]] = {Fault.SINK_FAILED: is_delivery, Fault.LOST_REPLY: is_delivery}
_NO_FAULTS: Final[Mapping[Fault, Which]] = {}
_NO_GOALS: Final[Mapping[str, Law]] = {}


def pipeline(
    programs: Programs = program_for,
    *,
    summary: str = "two workers, windows of two records, two tasks each: every output is settled before a commit",
    rules: PipelineRules = RULES,
    hooks: frozenset[Hook] = TASKS_ONLY,
    users: Users = Users(),
    records: int = 2,
    rebalances: int = 1,
    budget: int = 1,
    crashes: int = 0,
    kinds: Mapping[Fault, Which] = _NO_FAULTS,
    executors: int = 1,
    goals: Mapping[str, Law] = _NO_GOALS,
) -> Scenario:
    """Two workers on one partition.

    Args:
        programs: What answers requests, or a faulty variant of it.
        summary: One line for people.
        rules: What follows failures.
        hooks: The hooks that return outputs.
        users: What the user's code and the sink do.
        records: How many records the partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike.
        crashes: How many of these may be crashes.
        kinds: What else may fail.
        executors: How many tasks run at once in a worker.
        goals: What must be reached.
    """
    fanout = Rules(
        1, 0, task_delivery=Hook.TASK_DONE in hooks, record_delivery=Hook.RECORD_DONE in hooks,
        window_delivery=Hook.WINDOW_DONE in hooks,
    )  # fmt: skip
    part = PartitionRules(window_max=2, hooks=True, fanout=fanout, failure_policy=FailurePolicy.SKIP, metadata_max=0)
    consumer = ConsumerRules(executors=executors, partition=part)
    meaning = means(users, broker(records))
    reducers = {
        name: ReducerProcess(
            name, ConsumerState(), partial(_one_by_one, consumer.step), _event_for, Faults(kinds), meaning, is_commit, _is_timer,
            _is_at_once, carried_out=partial(programs, rules),
        )
        for name in WORKERS
    }  # fmt: skip
    coordinator = Coordinator(TOPIC, lambda member, _: member)
    logs = Plain().write(REBALANCES, rebalances).write(end(0), records)
    world = coordinator.assign(logs, Group(0, WORKERS, ("",), target=("",)))
    assert isinstance(world, Plain)
    hosts = (Crash(f"{name}'s host", (each,), dead(name)) for name, each in reducers.items()) if crashes else ()
    stops = OnFailure.STOP in (rules.on_failure, rules.undecodable)
    return Scenario(
        name="pipeline",
        summary=summary,
        world=world,
        actors=(*reducers.values(), coordinator, *hosts),
        budget=budget,
        budgets={Fault.CRASH_BEFORE: crashes} if crashes else {},
        always={ANSWERED: partial(_is_answered, hooks, users.outputs), ONE_KEY: _has_one_key},
        eventually={ALL: partial(_is_done, records, stops=stops)},
        sometimes={**({"the partition moves": _moves} if rebalances else _COMMITTED), **goals},
    )


def _moves(state: State) -> bool:
    return state.read(GROUP).generation > 1


def _is_answered(hooks: frozenset[Hook], outputs: int, state: State) -> bool:
    letters = state.read(LETTERS)
    settled = {*(name for _, name in state.read(DELIVERED)), *letters}
    done = range(state.read(committed(0)))
    of_windows = {f"{offset} {Hook.WINDOW_DONE} 0" for offset in done} if Hook.WINDOW_DONE in hooks and done else {""}
    has_window = bool(of_windows & {*settled, ""}) or any(str(offset) in letters for offset in done)
    return has_window and all(
        laws.is_answered(wanted(offset, hooks, outputs), settled, has_letter=str(offset) in letters) for offset in done
    )


def _has_one_key(state: State) -> bool:
    names = [name for _, name in state.read(DELIVERED)]
    return len({*names}) == len(names)


def _is_done(records: int, state: State, *, stops: bool) -> bool:
    alive = [machine for machine in map(state.status, WORKERS) if isinstance(machine, Machine)]
    if state.read(committed(0)) == records or not alive:
        return True
    parts = [each.state[TopicPartition(TOPIC, 0)] for each in alive if isinstance(each.state, ConsumerState)]
    return stops and any(isinstance(part, Owned) and part.phase is Phase.STOPPED for part in parts)


def has_letter(state: State) -> bool:
    return bool(state.read(LETTERS))


def is_committed(state: State) -> bool:
    return state.read(committed(0)) > 0


_COMMITTED: Final[Mapping[str, Law]] = {"a record is committed": is_committed}
_LETTER: Final[Mapping[str, Law]] = {"something is dead-lettered or skipped": has_letter}


def _decides(hook: Hook) -> PipelineRules:
    return attrs.evolve(RULES, decides=frozenset({hook}))


def is_task_or_decision(effect: Effect[object]) -> bool:
    return is_task(effect) or is_hook_of(Hook.TASK_ERROR)(effect)


crashed = partial(pipeline, crashes=1, kinds=LOST)
raising = partial(
    pipeline,
    hooks=ALL_HOOKS,
    kinds={Fault.FAILED: is_hook},
    rebalances=0,
    summary="any hook or task may raise: it is called again, or its records are dead-lettered; nothing waits for ever",
)
sinking = partial(
    pipeline,
    kinds=SINK_FAILS,
    summary="the sink refuses outputs or does not answer, and so may the dead-letter topic: nothing is lost",
)
refusing = partial(
    pipeline,
    users=Users(outputs=2, partly=True),
    kinds={Fault.DEAD_LETTER_FAILED: is_letter},
    rebalances=0,
    summary="the sink takes one of two outputs and refuses the other one, which is dead-lettered",
)
deciding = partial(
    pipeline,
    rules=_decides(Hook.DELIVERY_ERROR),
    records=1,
    rebalances=0,
    budget=2,
    kinds={Fault.SINK_FAILED: is_delivery, Fault.DROPPED: is_delivery, Fault.FAILED: is_hook_of(Hook.DELIVERY_ERROR)},
    summary="user code decides about outputs that are not delivered, or raises",
)
judging = partial(
    pipeline,
    rules=_decides(Hook.TASK_ERROR),
    records=1,
    rebalances=0,
    budget=2,
    kinds={Fault.FAILED: is_task_or_decision},
    summary="user code decides about failed tasks, or raises",
)
poisoned = partial(
    pipeline,
    rules=attrs.evolve(RULES, decodes=True),
    users=Users(poison=1),
    budget=0,
    summary="a record cannot be decoded: it fails alone, and is dead-lettered",
)
unarranged = partial(
    pipeline,
    hooks=ALL_HOOKS,
    users=Users(poison=0),
    budget=0,
    summary="arrange always raises at a record: it fails alone, and is dead-lettered",
)
stopping = partial(
    pipeline,
    rules=attrs.evolve(RULES, on_failure=OnFailure.STOP),
    users=Users(poison=1),
    budget=0,
    summary="a record that has failed for good stops its partition, and nothing from there on is committed",
)

SCENARIOS: Final = (
    Shipped("pipeline", crashed, partial(crashed, executors=2), partial(crashed, records=3, budget=2, executors=2)),
    Shipped("pipeline.hook_raises", raising, partial(raising, budget=2), partial(raising, budget=2, rebalances=1)),
    Shipped(
        "pipeline.sink_fails", partial(sinking, kinds=UNANSWERED), partial(sinking, budget=2),
        partial(sinking, budget=3, records=3)),
    Shipped(
        "pipeline.sink_refuses", partial(refusing, goals=_LETTER), partial(refusing, rebalances=1),
        partial(refusing, rebalances=1, records=3, budget=2)),
    Shipped(
        "pipeline.delivery_error", deciding, partial(deciding, records=2), partial(deciding, records=2, rebalances=1)),
    Shipped("pipeline.task_error", judging, partial(judging, records=2), partial(judging, records=2, rebalances=1)),
    Shipped(
        "pipeline.undecodable", partial(poisoned, goals=_LETTER), partial(poisoned, records=3),
        partial(poisoned, records=4, executors=2)),
    Shipped(
        "pipeline.arrange_fails", partial(unarranged, goals=_LETTER), partial(unarranged, records=3),
        partial(unarranged, records=4, executors=2)),
    Shipped("pipeline.stops", stopping, partial(stopping, records=3), partial(stopping, records=4, executors=2)),
)  # fmt: skip
