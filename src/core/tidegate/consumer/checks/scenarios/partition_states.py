"""Partitions and consumers in a state of the simulator: inputs for `tidegate.laws`, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from tidegate.consumer.checks import laws
from tidegate.consumer.fanout import DeliverRecords
from tidegate.consumer.flow.backpressure import Held, Hold, Plan
from tidegate.consumer.offsets.watermark import open_offsets
from tidegate.consumer.partition.in_flight_records import Handling, RecordPhase
from tidegate.consumer.partition.partition import Ordering, Owned, Phase, Unassigned
from tidegate.consumer.protocol.commands import Handle, Work
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.effects import Effect
from tidegate.model.records import TopicPartition
from tidegate.sim.scenario import Law, State
from tidegate.sim.servers.group import GROUP, committed, processed
from tidegate.sim.servers.log import Entries, Hole, log, made_anew, paused
from tidegate.sim.servers.reducers import Machine
from tidegate.sim.world.world import Cell

Commands: TypeAlias = tuple[Effect[object], ...]
Polling: TypeAlias = Callable[[ConsumerState, Collection[TopicPartition]], Plan[TopicPartition]]

TOPIC: Final = "t"
CONSUMERS: Final = ("a", "b")
NUMBERS: Final = (0, 1)
KEYS: Final = (b"k", b"l", b"k", b"l")

FINISHED: Final = "the committed position never passes unfinished work"
NEVER_FALLS: Final = "the committed position never falls"
ONE_COMMIT: Final = "at most one commit is in flight"
OWNER: Final = "only the owner works on records"
BOUNDED: Final = "no more tasks run than may"
LOAD: Final = "the load is bounded"
IN_TURN: Final = "each record waits for those before it"
NOT_RUN: Final = "what is diverted is not run"
DRAINS: Final = "nothing is left to start once it is revoked"
FREE: Final = "nothing is fetched while the partition is held"
PARKED: Final = "what is parked has not failed"
BEGINS: Final = "nothing is taken before its beginning is committed"
ALL: Final = "at rest every record is processed and committed"


def taken(partition: int) -> Cell[int]:
    """The first offset whose record any member got, if the group does not begin at offset 0."""
    return Cell(("taken", str(partition)), 0)


def of_owned(name: str, holds: Callable[[Owned, Commands], bool]) -> Law:
    """A law of a partition and its commands, while it is owned."""

    def law(state: State) -> bool:
        match state.status(name):
            case Machine(Owned() as part, commands):
                return holds(part, commands)
            case _:
                return True

    return law


def is_finished(number: int) -> Law:
    def holds(state: State) -> bool:
        position, done = state.read(committed(number)), state.read(processed(number))
        records = (each for each in range(state.read(taken(number)), position) if each not in _holes(state, number))
        return laws.partition.committed_is_finished(position, records, done)

    return holds


def never_falls(before: State, after: State) -> bool:
    return all(
        laws.partition.committed_never_falls(before.read(committed(number)), after.read(committed(number)))
        or before.read(made_anew(number)) != after.read(made_anew(number))
        for number in NUMBERS
    )


def _works(machine: Machine, number: int) -> tuple[Work, ...]:
    """The requests to user code for a partition."""
    return tuple(
        command for command in machine.commands if isinstance(command, Work) and command.partition.partition == number
    )


def is_handled_by_owner(name: str) -> Law:
    def holds(state: State) -> bool:
        machine = state.status(name)
        if not isinstance(machine, Machine):
            return True
        group = state.read(GROUP)
        return all(
            laws.partition.only_the_owner_handles(_works(machine, number), group.generation_of(number))
            for number in NUMBERS
        )

    return holds


def is_bounded(name: str, running_max: int) -> Law:
    def holds(state: State) -> bool:
        machine = state.status(name)
        return not isinstance(machine, Machine) or laws.partition.tasks_are_bounded(machine.commands, running_max)

    return holds


def _in_work(state: State, name: str) -> Iterator[tuple[Owned, Work, int]]:
    """The requests to user code in this generation, record by record, and their partition."""
    machine = state.status(name)
    if isinstance(machine, Machine) and isinstance(machine.state, Owned):
        for command in machine.commands:
            if isinstance(command, Work) and command.generation == machine.state.generation:
                for offset in command.offsets:
                    yield machine.state, command, offset


def is_in_turn(name: str, ordering: Ordering, records: int) -> Law:
    """Whether the partition, or a key, is one line; a window's task then has all of its records."""

    def line(offset: int, work: Work) -> tuple[int, ...]:
        together = () if isinstance(work.request, Handle) else work.offsets
        of_key = (each for each in range(records) if ordering is Ordering.BY_OFFSET or KEYS[each] == KEYS[offset])
        return tuple([each for each in of_key if each == offset or each not in together])

    return lambda state: all(
        laws.partition.waits_its_turn(offset, line(offset, work), open_offsets(part.tracker))
        for part, work, offset in _in_work(state, name)
    )


def runs_nothing_diverted(name: str) -> Law:
    """Whether all records of the partition have one key."""
    return lambda state: all(
        laws.partition.is_not_run(offset, work.request, (offset,) if part.order.closed else ())
        for part, work, offset in _in_work(state, name)
    )


def is_loaded_less(name: str, rules: ConsumerRules, batch: int) -> Law:
    def holds(state: State) -> bool:
        match state.status(name):
            case Machine(ConsumerState() as consumer):
                return laws.consumer.load_is_bounded(rules, consumer, batch)
            case _:
                return True

    return holds


def is_closed(state: State, name: str) -> bool:
    match state.status(name):
        case Machine(ConsumerState(_, Hold())):
            return True
        case _:
            return False


def _entries_of(state: State, number: int) -> Entries:
    """The log of the partition; nothing if records are only counted."""
    return state.read(log(number))


def _holes(state: State, number: int) -> frozenset[int]:
    """The offsets without a record."""
    return frozenset(at for at, entry in enumerate(_entries_of(state, number)) if isinstance(entry, Hole))


def is_done(state: State, number: int, records: int) -> bool:
    """The committed position is past the last record; holes need no work."""
    none = _holes(state, number)
    if entries := _entries_of(state, number):
        records = 1 + max(at for at in range(len(entries)) if at not in none)
    none = none.union(range(state.read(taken(number))))
    done = state.read(processed(number))
    position = state.read(committed(number))
    return not state.read(GROUP).members or laws.partition.all_is_processed(position, none.union(done), records)


def stands_still(state: State, name: str, *, may_be_refused: bool) -> bool:
    """A failure is final; or a commit was refused, so the member believes that the group has moved
    on.
    """
    match state.status(name):
        case Machine(Owned(_, _, Phase.STOPPED)):
            return True
        case Machine(Unassigned()):
            return may_be_refused
        case Machine(Owned(failed=failed)):
            return bool(failed)
        case _:
            return False


def is_stuck(state: State, name: str) -> bool:
    """User code never ends and is not abandoned: then the group waits for it."""
    machine = state.status(name)
    return isinstance(machine, Machine) and bool(machine.stuck)


def crosses_a_hole(state: State) -> bool:
    """Whether a position is committed past a record that compaction removed before any fetch."""
    return any(
        at < state.read(committed(number)) and at not in state.read(processed(number))
        for number in NUMBERS
        for at, entry in enumerate(_entries_of(state, number))
        if entry is Hole.COMPACTED
    )


def is_removed_in_work(state: State) -> bool:
    """Whether compaction removed a fetched record."""
    return any(
        entry is Hole.COMPACTED and at in state.read(processed(number))
        for number in NUMBERS
        for at, entry in enumerate(_entries_of(state, number))
    )


def _paused_by(state: State, name: str) -> tuple[int, ...]:
    return state.read(paused(name))


def pauses_and_resumes(polling: Polling) -> Mapping[str, Law]:
    def resumes(state: State) -> bool:
        return any(planned(polling, state.status(name), _paused_by(state, name)).resume for name in CONSUMERS)

    return {
        "a client pauses": lambda state: any(_paused_by(state, name) for name in CONSUMERS),
        "a client is to resume": resumes,
    }


def is_held(state: State) -> bool:
    """Whether a partition is paused by its own limits."""
    for consumer in CONSUMERS:
        for number in NUMBERS:
            match state.status(f"{consumer}.{number}"):
                case Machine(Owned(hold=Held())):
                    return True
                case _:
                    pass
    return False


def _owned(state: State) -> Iterator[tuple[int, Machine, Owned]]:
    """The owned partitions and their states."""
    for consumer in CONSUMERS:
        for number in NUMBERS:
            match state.status(f"{consumer}.{number}"):
                case Machine(Owned() as part) as machine:
                    yield number, machine, part
                case _:
                    pass


def is_dead_lettered(state: State) -> bool:
    """Whether a failed delivery needs a verdict."""
    return any(is_answer(command) for _, machine, _ in _owned(state) for command in machine.commands)


def is_tried_again(state: State) -> bool:
    """Whether a record or window that failed before is in work, or about to be."""
    works = [part.work for _, _, part in _owned(state)]
    again = [work.deviations if isinstance(work, Handling) else work.backing_off for work in works]
    return any(each.attempt > 1 for those in again for each in those)


def is_unanswered(state: State) -> bool:
    """Whether a partition has stopped because a failure got no verdict."""
    return any(part.phase is Phase.STOPPED for _, _, part in _owned(state))


def goes_on_behind_a_failure(state: State) -> bool:
    """Whether a record of another key is done behind a failed one."""
    for number, _, part in _owned(state):
        done = state.read(processed(number))
        if part.failed and any(offset > part.failed[0] for offset in done):
            return True
    return False


def holds_back(state: State) -> bool:
    """Whether a record is open behind a failed one of its key."""
    return any(
        waiting > failed and KEYS[waiting] == KEYS[failed]
        for _, _, part in _owned(state)
        for waiting in open_offsets(part.tracker)
        for failed in part.failed
    )


def is_parked(state: State) -> bool:
    """Whether a record waits for its time at its first attempt."""
    return any(
        each.attempt == 1
        for _, _, part in _owned(state)
        if isinstance(part.work, Handling)
        for each in part.work.those(RecordPhase.BACKING_OFF)
    )


def is_answer(effect: Effect[object]) -> bool:
    """It settles failures, for example by a dead letter."""
    return (
        isinstance(effect, Work) and isinstance(effect.request, DeliverRecords) and bool(effect.request.to_dead_letter)
    )


def planned(polling: Polling, machine: object, numbers: tuple[int, ...]) -> Plan[TopicPartition]:
    """The next action of a client that has paused these."""
    if not isinstance(machine, Machine) or not isinstance(machine.state, ConsumerState):
        return Plan()
    return polling(machine.state, [TopicPartition(TOPIC, number) for number in numbers])
