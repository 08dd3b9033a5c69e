"""Partitions and their consumers in a state of the simulator: what `tidegate.laws` judges there, and the goals."""

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
    """The first offset of which anybody was handed the record, where the group does not begin at the beginning."""
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
    """What user code is asked for of a partition."""
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
    """What user code is asked for in this generation, record by record, and the partition that asks."""
    machine = state.status(name)
    if isinstance(machine, Machine) and isinstance(machine.state, Owned):
        for command in machine.commands:
            if isinstance(command, Work) and command.generation == machine.state.generation:
                for offset in command.offsets:
                    yield machine.state, command, offset


def is_in_turn(name: str, ordering: Ordering, records: int) -> Law:
    """Where all records of the partition are one line, or those of a key; the task of a window has all that are in it."""

    def line(offset: int, work: Work) -> tuple[int, ...]:
        together = () if isinstance(work.request, Handle) else work.offsets
        of_key = (each for each in range(records) if ordering is Ordering.BY_OFFSET or KEYS[each] == KEYS[offset])
        return tuple([each for each in of_key if each == offset or each not in together])

    return lambda state: all(
        laws.partition.waits_its_turn(offset, line(offset, work), open_offsets(part.tracker))
        for part, work, offset in _in_work(state, name)
    )


def runs_nothing_diverted(name: str) -> Law:
    """Where all records of the partition have one key."""
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
    """What the log of the partition holds; nothing where records are but counted."""
    return state.read(log(number))


def _holes(state: State, number: int) -> frozenset[int]:
    """The offsets at which there is nothing."""
    return frozenset(at for at, entry in enumerate(_entries_of(state, number)) if isinstance(entry, Hole))


def is_done(state: State, number: int, records: int) -> bool:
    """The position that is committed lies behind the last record, and what is a hole needs no work."""
    none = _holes(state, number)
    if entries := _entries_of(state, number):
        records = 1 + max(at for at in range(len(entries)) if at not in none)
    none = none.union(range(state.read(taken(number))))
    done = state.read(processed(number))
    position = state.read(committed(number))
    return not state.read(GROUP).members or laws.partition.all_is_processed(position, none.union(done), records)


def stands_still(state: State, name: str, *, may_be_refused: bool) -> bool:
    """A failure stands; or a commit was refused, so that it believes that the group has moved on."""
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
    """User code never ends, and nobody gives up: then the group waits for it."""
    machine = state.status(name)
    return isinstance(machine, Machine) and bool(machine.stuck)


def crosses_a_hole(state: State) -> bool:
    """Is a position committed behind an offset at which compaction has removed a record that nobody had fetched?"""
    return any(
        at < state.read(committed(number)) and at not in state.read(processed(number))
        for number in NUMBERS
        for at, entry in enumerate(_entries_of(state, number))
        if entry is Hole.COMPACTED
    )


def is_removed_in_work(state: State) -> bool:
    """Has compaction removed a record that somebody had fetched?"""
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
    """Is a partition held on its own account?"""
    for consumer in CONSUMERS:
        for number in NUMBERS:
            match state.status(f"{consumer}.{number}"):
                case Machine(Owned(hold=Held())):
                    return True
                case _:
                    pass
    return False


def _owned(state: State) -> Iterator[tuple[int, Machine, Owned]]:
    """Which partitions are owned, and how they do."""
    for consumer in CONSUMERS:
        for number in NUMBERS:
            match state.status(f"{consumer}.{number}"):
                case Machine(Owned() as part) as machine:
                    yield number, machine, part
                case _:
                    pass


def is_dead_lettered(state: State) -> bool:
    """Is a delivery that failed to be answered for?"""
    return any(is_answer(command) for _, machine, _ in _owned(state) for command in machine.commands)


def is_tried_again(state: State) -> bool:
    """Is a record or a window in work, or about to be, that has failed before?"""
    works = [part.work for _, _, part in _owned(state)]
    again = [work.deviations if isinstance(work, Handling) else work.backing_off for work in works]
    return any(each.attempt > 1 for those in again for each in those)


def is_unanswered(state: State) -> bool:
    """Has a partition stopped, for nobody could answer for a failure?"""
    return any(part.phase is Phase.STOPPED for _, _, part in _owned(state))


def goes_on_behind_a_failure(state: State) -> bool:
    """Is a record of another key done behind one that has failed?"""
    for number, _, part in _owned(state):
        done = state.read(processed(number))
        if part.failed and any(offset > part.failed[0] for offset in done):
            return True
    return False


def holds_back(state: State) -> bool:
    """Is a record open behind one of its key that has failed?"""
    return any(
        waiting > failed and KEYS[waiting] == KEYS[failed]
        for _, _, part in _owned(state)
        for waiting in open_offsets(part.tracker)
        for failed in part.failed
    )


def is_parked(state: State) -> bool:
    """Waits a record for its time at its first attempt?"""
    return any(
        each.attempt == 1
        for _, _, part in _owned(state)
        if isinstance(part.work, Handling)
        for each in part.work.those(RecordPhase.BACKING_OFF)
    )


def is_answer(effect: Effect[object]) -> bool:
    """It answers for failures: a dead letter, say."""
    return (
        isinstance(effect, Work) and isinstance(effect.request, DeliverRecords) and bool(effect.request.to_dead_letter)
    )


def planned(polling: Polling, machine: object, numbers: tuple[int, ...]) -> Plan[TopicPartition]:
    """What a client that has paused these is to do now."""
    if not isinstance(machine, Machine) or not isinstance(machine.state, ConsumerState):
        return Plan()
    return polling(machine.state, [TopicPartition(TOPIC, number) for number in numbers])
