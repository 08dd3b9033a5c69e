"""A partition moves between two members, while results and position are committed in one
transaction.

The old owner is not asked: it goes on until it learns of the move (`EVICTED`), the worst case of a
group. Of Kafka there is what matters to transactions: one producer with epochs, a transaction that
is open or being committed, and a reader with `read_committed`. The results and the position of a
commit become visible one after the other, as the markers are written to the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.checks import laws
from tidegate.consumer.committing.commit_metadata import decoded
from tidegate.consumer.offsets.watermark import done_offsets
from tidegate.consumer.partition.partition import Owned, PartitionRules, PartitionState, Unassigned
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    Event,
    Lost,
    RecordsHandled,
    WorkReported,
    event_for,
)
from tidegate.consumer.worker import transactions as programs
from tidegate.consumer.worker.transactions import (
    FENCED,
    BeginTransaction,
    CommitTransaction,
    Fence,
    ReadPosition,
    SendAnswers,
    SendPosition,
    Tenure,
    Together,
)
from tidegate.model.effects import Cancel, Effect, Failure, Program, Refused, Sleep
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import ActorStep, Label, Scenario, State
from tidegate.sim.servers.actors import Network
from tidegate.sim.servers.group import broker, committed, dead, processed, tell
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess
from tidegate.sim.world.faults import Fault, Faults, Which, no_effects, spent
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, World

ONCE: Final = "nobody sees the answers of a record twice"
TOGETHER: Final = "the position and the answers appear together"
FENCE: Final = "who is fenced writes nothing more"
HANDLED: Final = "what is covered was handled"
NEVER_FALLS: Final = "the committed position never falls"
ALL: Final = "at rest every record is covered"

PARTITION: Final = TopicPartition("t", 0)
MEMBERS: Final = ("a", "b")
RIGHT: Final = PartitionRules(running_max=2, replay_max=1, batch_max=1)
EARLY: Final = attrs.evolve(RIGHT, metadata_max=0)


# --- the world: Kafka, as far as transactions go ----------------------------------------------------------------------


@final
@attrs.frozen
class Transaction:
    """The transaction that is open or being committed.

    Attributes:
        epoch: The epoch that began it.
        answers: The records whose results are in it.
        position: Its position and metadata, if any.
        is_committing: Whether the commit is decided.
    """

    epoch: int
    answers: tuple[int, ...] = ()
    position: tuple[int, str] | None = None
    is_committing: bool = False


EPOCH: Final = Cell[int](("transactions", "epoch"), 0)
OPEN: Final = Cell[Transaction | None](("transactions", "open"), None)
SEEN: Final = Cell[tuple[int, ...]](("transactions", "seen"), ())
"""The records whose results a reader with `read_committed` sees, with repetitions."""
OWNER: Final = Cell[str](("transactions", "owner"), "")
METADATA: Final = Cell[str](("metadata", "0"), "")


def kafka(records: int) -> Meaning:
    """The semantics of a member's commands.

    Args:
        records: The number of records.
    """
    others = broker(records)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        is_open = world.read(OPEN)
        match effect:
            case Fence():
                if is_open is None or not is_open.is_committing:
                    epoch = world.read(EPOCH) + 1
                    yield world.write(OPEN, None).write(EPOCH, epoch), epoch
            case ReadPosition():
                yield world, (world.read(committed(0)), world.read(METADATA))
            case AwaitOwnership():
                if world.read(OWNER) == who:
                    yield world, None
            case (
                BeginTransaction(_, epoch)
                | SendAnswers(_, epoch)
                | SendPosition(_, epoch)
                | CommitTransaction(_, epoch)
            ) if epoch != world.read(EPOCH):
                yield world, FENCED.fresh()
            case BeginTransaction(_, epoch):
                if is_open is None:
                    yield world.write(OPEN, Transaction(epoch)), None
            case SendAnswers() | SendPosition() | CommitTransaction() if is_open is None or is_open.is_committing:
                yield world, Refused("no transaction is open")
            case SendAnswers(_, _, offsets) if is_open:
                answers = tuple(sorted((*is_open.answers, *offsets)))
                yield world.write(OPEN, attrs.evolve(is_open, answers=answers)), None
            case SendPosition(_, _, position, metadata) if is_open:
                yield world.write(OPEN, attrs.evolve(is_open, position=(position, metadata))), None
            case CommitTransaction() if is_open:
                yield world.write(OPEN, attrs.evolve(is_open, is_committing=True)), None
            case _:
                yield from others(effect, world, who)

    return meaning


@final
@attrs.frozen(eq=False)
class Committing:
    """A decided commit becomes visible, results and position one after the other."""

    name: str = "transaction coordinator"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        now = world.read(OPEN)
        if now is None or not now.is_committing:
            return
        if now.answers:
            seen = tuple(sorted((*world.read(SEEN), *now.answers)))
            yield self.marked(world.write(SEEN, seen), attrs.evolve(now, answers=()), "marks the answers")
        if now.position is not None:
            position, metadata = now.position
            after = world.write(committed(0), position).write(METADATA, metadata)
            yield self.marked(after, attrs.evolve(now, position=None), "marks the position")

    def marked(self, world: World, left: Transaction, what: str) -> ActorStep:
        is_over = not left.answers and left.position is None
        return ActorStep(Label(what), world.write(OPEN, None if is_over else left))


@final
@attrs.frozen(eq=False)
class Moves:
    """The group moves the partition at once; its owner learns of it some time later."""

    name: str = "coordinator"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        owner = world.read(OWNER)
        for member in MEMBERS:
            if member == owner or world.read(dead(member)):
                continue
            if world.read(dead(owner)):
                yield ActorStep(
                    Label(f"gives the partition of {owner}, who is dead, to {member}"), given(world, member)
                )
            elif after := spent(world, Fault.EVICTED):
                moved = given(tell(after, owner, Lost(PARTITION)), member)
                yield ActorStep(
                    Label(f"takes the partition from {owner}, who goes on, and gives it to {member}"),
                    moved, must=False, fault=Fault.EVICTED,
                )  # fmt: skip


def given(world: World, member: str) -> World:
    return tell(world.write(OWNER, member), member, Given())


# --- a member: the reducer of a partition, and the two programs ---------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class TakeOver(Effect["Tenure"]):
    """Take the partition over, in this life of it."""

    life: int

    def __str__(self) -> str:
        return f"take over (life {self.life})"


@final
@attrs.frozen(cache_hash=True)
class CommitTogether(Effect["Together"]):
    """Commit the position together with these results."""

    commit: Commit
    answers: tuple[int, ...]
    tenure: Tenure

    def __str__(self) -> str:
        return f"{self.commit} with answers {self.answers}"


@final
@attrs.frozen(cache_hash=True)
class AwaitOwnership(Effect[None]):
    """Wait until the group assigns the partition."""

    def __str__(self) -> str:
        return "wait for word of the group"


@final
@attrs.frozen
class Given:
    """The group has assigned the partition."""

    def __str__(self) -> str:
        return "given"


@final
@attrs.frozen
class TakenOver:
    """The result of the takeover."""

    life: int
    reply: Tenure | Failure

    def __str__(self) -> str:
        return f"taken over: {self.reply}"


@final
@attrs.frozen
class Ended:
    """The result of a commit."""

    command: CommitTogether
    together: Together

    def __str__(self) -> str:
        return f"{self.command.commit}: {self.together}"


@final
@attrs.frozen
class Member:
    """A member's state.

    Attributes:
        life: The number of takeovers.
        part: The partition.
        tenure: What is committed, while it owns the partition.
        answered: The records whose results wait.
        committing: The commit under way.
    """

    life: int = 0
    part: PartitionState = attrs.field(factory=Unassigned)
    tenure: Tenure | None = None
    answered: tuple[int, ...] = ()
    committing: CommitTogether | None = None

    def __str__(self) -> str:
        return f"life {self.life}: {self.part}" + (f", answered {self.answered}" if self.answered else "")


Told: TypeAlias = Event | Given | TakenOver | Ended
_Due: TypeAlias = Callable[[Commit, tuple[int, ...]], tuple[int, ...]]
_Taking: TypeAlias = Callable[[TopicPartition], Program[Tenure]]
_Committing: TypeAlias = Callable[[Commit, tuple[int, ...], Tenure], Program[Together]]


@final
@attrs.frozen
class Membership:
    """The reducer of a member.

    Attributes:
        rules: Those of the partition.
        end: One past the last record.
        answers_due: Selects the results for a transaction.
        takes_over_again: Whether a fenced member that still owns the partition takes it over again.
    """

    rules: PartitionRules
    end: int
    answers_due: _Due
    takes_over_again: bool

    def step(self, member: Member, event: Told) -> Step[Member, Effect[object]]:
        match event:
            case Given():
                return self.begun(member)
            case TakenOver(life, reply) if life == member.life and member.tenure is None:
                if isinstance(reply, Failure):
                    return Step(member, (TakeOver(life),))
                ours = attrs.evolve(member, tenure=reply)
                return self.told(ours, Assigned(PARTITION, life, reply.position, reply.metadata, self.end))
            case Ended(command, Together(reply, tenure)) if command == member.committing:
                sent = command.answers if reply is None else ()
                left = tuple(each for each in member.answered if each not in sent)
                after = attrs.evolve(member, tenure=tenure, answered=left, committing=None)
                told = event_for(command.commit, reply)
                assert told is not None
                return self.told(after, told)
            case TakenOver() | Ended():
                return Step(member)
            case Lost():
                gone = self.told(member, event)
                return Step(Member(member.life + 1), (*gone.commands, *self.under_way(member)))
            case WorkReported(_, generation, RecordsHandled(done)) if generation == member.life:
                kept = tuple(sorted({*member.answered, *done}))
                return self.told(attrs.evolve(member, answered=kept), event)
            case _:
                return self.told(member, event)

    def begun(self, member: Member) -> Step[Member, Effect[object]]:
        gone = self.told(member, Lost(PARTITION))
        life = member.life + 1
        return Step(Member(life), (*gone.commands, *self.under_way(member), TakeOver(life)))

    def under_way(self, member: Member) -> tuple[Cancel, ...]:
        """Requests of an earlier life, cancelled."""
        asked = (TakeOver(member.life), *(() if member.committing is None else (member.committing,)), AwaitOwnership())
        return tuple(map(Cancel, asked))

    def told(self, member: Member, event: Event) -> Step[Member, Effect[object]]:
        """The state after this event of its partition."""
        done = self.rules.step(member.part, event)
        after = attrs.evolve(member, part=done.state)
        commands: list[Effect[object]] = []
        for each in done.commands:
            if isinstance(each, Commit):
                assert after.tenure is not None, "it commits what is its own"
                due = self.answers_due(each, after.answered)
                after = attrs.evolve(after, committing=CommitTogether(each, due, after.tenure))
                assert after.committing is not None
                commands.append(after.committing)
            else:
                commands.append(each)
        if isinstance(member.part, Owned) and isinstance(after.part, Unassigned) and not isinstance(event, Lost):
            commands += (AwaitOwnership(),) if self.takes_over_again else ()
        return Step(after, tuple(commands))


def told_of(command: Effect[object], reply: object) -> Told | None:
    match command:
        case TakeOver(life):
            assert isinstance(reply, Tenure | Failure)
            return TakenOver(life, reply)
        case CommitTogether():
            assert isinstance(reply, Together)
            return Ended(command, reply)
        case AwaitOwnership():
            return Given()
        case _:
            return event_for(command, reply)


# --- laws ---------------------------------------------------------------------------------------------------------------


def seen(state: State) -> tuple[int, ...]:
    return state.read(SEEN)


def covered(state: State, records: int) -> tuple[int, ...]:
    """The offsets that the committed position and metadata cover."""
    position = state.read(committed(0))
    beyond = done_offsets(decoded(state.read(METADATA), position=position, end=records).tracker)
    return tuple(sorted({*range(position), *beyond}))


def is_seen_together(state: State, records: int) -> bool:
    now = state.read(OPEN)
    if now is not None and now.is_committing:
        return True
    return laws.transactions.appear_together(seen(state), covered(state, records))


def is_handled(state: State, records: int) -> bool:
    handled = state.read(processed(0))
    return laws.transactions.covers_what_is_handled(covered(state, records), handled)


def is_of_newest(state: State) -> bool:
    now = state.read(OPEN)
    is_open = now is not None and not now.is_committing
    return not is_open or laws.transactions.writes_nothing_when_fenced(now.epoch if now else 0, state.read(EPOCH))


def is_all_covered(state: State, records: int) -> bool:
    is_deserted = all(state.read(dead(member)) for member in MEMBERS)
    return is_deserted or laws.transactions.all_is_covered(covered(state, records), range(records))


def never_falls(before: State, after: State) -> bool:
    return laws.transactions.position_never_falls(before.read(committed(0)), after.read(committed(0)))


def is_zombie(state: State, name: str) -> bool:
    """It goes on as owner of a partition that is another's."""
    machine = state.status(name)
    return (
        isinstance(machine, Machine)
        and isinstance(machine.state, Member)
        and machine.state.committing is not None
        and state.read(OWNER) != name
    )


# --- the scenario -------------------------------------------------------------------------------------------------------


def is_request(effect: Effect[object]) -> bool:
    """It is a request about transactions."""
    return isinstance(effect, Fence | SendAnswers | SendPosition | CommitTransaction)


_LOST: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_request}
_NO_BUDGETS: Final[Mapping[Fault, int]] = MappingProxyType({})
KINDS: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_request, Fault.LATE: is_request, Fault.UNSENT: is_request}


def transactions(
    made: ModuleType = programs,
    *,
    rules: PartitionRules = RIGHT,
    summary: str = "a partition moves from a member that goes on; answers and position appear together, once",
    records: int = 2,
    budget: int = 1,
    kinds: Mapping[Fault, Which] = KINDS,
    budgets: Mapping[Fault, int] = _NO_BUDGETS,
    means: Callable[[int], Meaning] = kafka,
    takes_over_again: bool = True,
) -> Scenario:
    """Two members, one of which is assigned the partition.

    Args:
        made: The programs, perhaps with a planted bug.
        rules: The rules of the partition.
        summary: One line for people.
        records: The number of records.
        budget: How many faults may strike: moves, crashes, and those of these kinds.
        kinds: Those that may strike requests.
        budgets: How many of a kind.
        means: The semantics of Kafka, perhaps with a planted bug.
        takes_over_again: Whether a member takes over again what it still owns.
    """
    meaning = means(records)
    take_over: _Taking = made.take_over
    commit_together: _Committing = made.commit_together
    membership = Membership(rules, records, made.answers_due, takes_over_again)

    def carried_out(command: Effect[object]) -> Program[object] | None:
        match command:
            case TakeOver():
                return attempted(take_over)
            case CommitTogether(commit, answers, tenure):
                return commit_together(commit, answers, tenure)
            case _:
                return None

    members = tuple(
        ReducerProcess(
            name, Member(), membership.step, told_of, Faults(kinds), meaning,
            split=no_effects, carried_out=carried_out,
        )
        for name in MEMBERS
    )  # fmt: skip
    world = given(Plain(), MEMBERS[0])
    assert isinstance(world, Plain)
    return Scenario(
        name="transactions",
        summary=summary,
        world=world,
        actors=(
            *members,
            Moves(),
            Committing(),
            *(Crash(f"{each.name}'s host", (each,), dead(each.name)) for each in members),
            *((Network(meaning),) if Fault.LATE in kinds else ()),
        ),
        budget=budget,
        budgets=budgets,
        always={
            ONCE: lambda state: laws.transactions.seen_at_most_once(seen(state)),
            TOGETHER: partial(is_seen_together, records=records),
            FENCE: is_of_newest,
            HANDLED: partial(is_handled, records=records),
        },
        step={NEVER_FALLS: never_falls},
        eventually={ALL: partial(is_all_covered, records=records)},
        sometimes={
            "a member that has lost the partition commits": lambda state: any(
                is_zombie(state, each) for each in MEMBERS
            ),
            "answers appear before the position": lambda state: _half(state) == (0, 1),
            "the position appears before the answers": lambda state: _half(state) == (1, 0),
        },
    )


async def attempted(take_over: _Taking) -> Tenure | Failure:
    """The result, a failure as a value."""
    try:
        return await take_over(PARTITION)
    except Failure as failure:
        await Sleep(0)
        return failure


def _half(state: State) -> tuple[int, int] | None:
    """The part of a commit that is not visible yet: the results, or the position."""
    now = state.read(OPEN)
    return (int(bool(now.answers)), int(now.position is not None)) if now is not None and now.is_committing else None


SCENARIOS: Final = (
    Shipped(
        "transactions",
        transactions,
        thorough=partial(transactions, budget=2, kinds=_LOST),
        large=partial(transactions, records=5, budget=4),
    ),
    Shipped(
        "transactions.two_faults",
        partial(
            transactions,
            summary="the same with one record, and two faults, such as a move and a lost reply",
            records=1,
            budget=2,
        ),
        thorough=partial(transactions, records=1, budget=3, kinds=_LOST),
        large=partial(transactions, records=3, budget=5),
    ),
    Shipped(
        "transactions.no_metadata",
        partial(
            transactions,
            rules=EARLY,
            summary="the broker takes no metadata: answers of what is done beyond the position wait until that comes to them",
        ),
        thorough=partial(transactions, rules=EARLY, budget=2, kinds=_LOST),
        large=partial(transactions, rules=EARLY, records=5, budget=4),
    ),
)
