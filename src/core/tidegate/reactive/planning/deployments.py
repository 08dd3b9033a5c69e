"""Decide what a deploy makes the tasks do again, and what the store remembers of them.

The record of the stream (`tidegate.reactive.planning.stream_records`) holds each task's definition:

    definitions: [{task, trigger, version}, ...]
    deployed: [task, ...]                           the planned tasks of the last deployer

A leader starts with `begin_leading`: take over the record, THEN deploy the tasks, THEN follow
changes. `evolution.evolve` decides what each task repeats. Then, in this order:

    reset each record that must run again, page by page, and note the handler's version in it
    store what is forgotten and what is remembered in one write under the epoch

After a crash or a takeover the next leader continues. It resets the records that no write has reset
for this version. A record of a page that no longer matches has moved on, or another request reset
it. If the last write matches nothing, another epoch has taken over.

In a rolling deploy, versions with different tasks lead in turn. A task unknown to this version
keeps its definition and records, so that its return repeats nothing. But the leader moves the
position for all tasks and looks at changes for its own only. So it removes the flags of the others,
and the next version that knows them scans every document for them once. A version that is rolled
back remembers the handler's higher version, so that the higher one repeats nothing on its return.

Laws
    DEP1  What is remembered was done: a definition is stored when each record that is over was
          reset for its version, if its policy says so.
    DEP2  A record is reset once for a version, however many interruptions and leaders there are.
    DEP3  The definitions and the records of other tasks stay as they are.
    DEP4  A flag is of a task for which each change before the position was looked at, by its
          trigger.
    DEP5  The remembered version of a handler never decreases.
    DEP6  Once a leader follows, the tasks that are stored as planned are its own.

Known limits
    - While both versions run, a worker of the older one may run a record reset for the newer.
    - A record that an older worker ends after its page was read is not reset.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Document,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    In,
    Not,
    Put,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import (
    FOUND_MAX,
    bulk_update,
    check_collection,
    find_all,
    find_one,
    update_many,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.planning.change_stream import Elected
from tidegate.reactive.planning.evolution import Definition, EvolutionPolicy, ForgetReconciled, Reprocess, evolve
from tidegate.reactive.planning.reconciler import EPOCH, ScannedTask, progress_of, stored_progress
from tidegate.reactive.planning.reconciliation import Progress, TaskTrigger, forgotten_task, of_tasks
from tidegate.reactive.planning.stream_records import take_over
from tidegate.reactive.record.snapshot import described
from tidegate.reactive.record.task_documents import DOCUMENT, RESET, STATUS, TASK, VERSION
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask

DEFINITIONS: Final = Field[tuple[Document, ...]]("definitions")
DEPLOYED: Final = Field[tuple[str, ...]]("deployed")
RESET_FOR: Final = Field[int]("reset_for")
"""In a task record: for which version of the handler it was last reset."""
_TASK: Final = Field[str]("task")
_TRIGGER: Final = Field[Value]("trigger")
_SOURCE: Final = Field[Value]("source")


# --- what is deployed, and what is remembered -------------------------------------------------------------------------


@final
@attrs.frozen
class Deployment:
    """A task of this version of the application. Invariant: 1 <= version.

    Attributes:
        task: The task.
        version: Of its handler; its author raises it.
        policy: What a change of its definition means.
    """

    task: ReactiveTask
    version: int = 1
    policy: EvolutionPolicy = attrs.field(factory=EvolutionPolicy)

    def __attrs_post_init__(self) -> None:
        check_type(self.task, ReactiveTask, "a task")
        check_int(self.version, "the version of a handler", 1)
        check_type(self.policy, EvolutionPolicy, "a policy")

    @property
    def definition(self) -> Definition:
        """What is remembered of it: where its documents and its records are, its filter, what it watches, and its version."""
        trigger: tuple[tuple[str, Value], ...] = (
            (_SOURCE.name, self.task.source),
            ("records", self.task.records),
            ("where", None if self.task.where is None else str(self.task.where)),
            ("watched", described(self.task.watched)),
        )
        return Definition(Document(trigger), self.version)

    @property
    def scanned(self) -> ScannedTask:
        """How it is reconciled: the store is asked, unless a value is computed here only."""
        can_ask = all(computed.expression is not None for _, computed in self.task.watched.computed)
        trigger = TaskTrigger(self.task.name, self.definition.trigger)
        return ScannedTask(self.task.source, trigger, self.task.find_changed if can_ask else None)


@final
@attrs.frozen
class RememberedTasks:
    """What the record of a stream knows of tasks.

    Attributes:
        definitions: By the name of the task, in the order of the names.
        progress: What is reconciled.
        deployed: The names of the tasks that were deployed last, in their order.
    """

    definitions: tuple[tuple[str, Definition], ...] = ()
    progress: Progress = attrs.field(factory=Progress)
    deployed: tuple[str, ...] = ()


@final
@attrs.frozen
class Reset:
    """Each record of this task that has one of these statuses is to be reset, once for this version."""

    task: ReactiveTask
    statuses: frozenset[TaskStatus]
    version: int

    def __str__(self) -> str:
        return f"{self.task.name}, version {self.version}: {Reprocess(self.statuses)}"


@final
@attrs.frozen
class DeploymentPlan:
    """What a deployment does: these, and THEN what it knows is stored."""

    resets: tuple[Reset, ...]
    known: RememberedTasks


def decide_deployment(known: RememberedTasks, deployments: tuple[Deployment, ...]) -> DeploymentPlan:
    """What is to be done now that these are the tasks.

    Args:
        known: What is stored.
        deployments: All tasks of this version of the application that follow the stream.

    Returns:
        The resets, and what is stored when all of them are done.

    Raises:
        Misuse: Two tasks have one name, or an argument is of another type.
    """
    check_type(known, RememberedTasks, "what is known of tasks")
    check_tuple(deployments, Deployment, "a task that is deployed")
    names = frozenset(each.task.name for each in deployments)
    if len(names) != len(deployments):
        raise Misuse("two tasks are deployed under one name", todo="name each task of a database differently")
    definitions, progress = dict(known.definitions), of_tasks(known.progress, names)
    resets: list[Reset] = []
    for each in deployments:
        name = each.task.name
        for action in evolve(definitions.get(name), each.definition, each.policy):
            if isinstance(action, Reprocess):
                resets.append(Reset(each.task, action.statuses, each.version))
            elif isinstance(action, ForgetReconciled):
                progress = forgotten_task(progress, each.task.source, name)
            else:
                definitions[name] = action.definition
                # Where its policy forgets nothing, what was reconciled stays so for the trigger that it has now, of the same documents.
                now = TaskTrigger(name, action.definition.trigger)
                kept = (each for each in progress.reconciled if each.task != name or _source(each) == _source(now))
                flags = frozenset(now if flag.task == name else flag for flag in kept)
                progress = attrs.evolve(progress, reconciled=flags)
    after = RememberedTasks(tuple(sorted(definitions.items(), key=_name)), progress, tuple(sorted(names)))
    return DeploymentPlan(tuple(resets), after)


def _source(of: TaskTrigger) -> Value:
    """Whose documents it is for."""
    return of.trigger.get(_SOURCE) if isinstance(of.trigger, Document) else None


def _name(item: tuple[str, Definition]) -> str:
    return item[0]


def remembered_in(record: Document) -> RememberedTasks:
    """What the record of a stream knows of tasks.

    Raises:
        Misuse: It is no such record.
    """
    progress = progress_of(record)
    definitions = {
        needed(each, _TASK): Definition(needed(each, _TRIGGER), needed(each, VERSION))
        for each in record.get(DEFINITIONS) or ()
    }
    return RememberedTasks(tuple(sorted(definitions.items(), key=_name)), progress, record.get(DEPLOYED) or ())


def unplanned(record: Document | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which tasks nobody plans, for whoever leads does not have them.

    Args:
        record: That of the stream; None where there is none.
        names: The tasks of somebody else.

    Returns:
        Their names; none where nobody has led yet, for nobody can tell then.
    """
    check_tuple(names, str, "the name of a task")
    deployed = () if record is None else remembered_in(record).deployed
    return tuple(name for name in names if name not in deployed) if deployed else ()


def stored_tasks(known: RememberedTasks) -> tuple[Put[tuple[Document, ...]], Put[Document], Put[tuple[str, ...]]]:
    """What stores it in the record of the stream."""
    check_type(known, RememberedTasks, "what is known of tasks")
    definitions = tuple(
        Document(((_TASK.name, name), (_TRIGGER.name, each.trigger), (VERSION.name, each.version)))
        for name, each in known.definitions
    )
    return Put(DEFINITIONS, definitions), stored_progress(known.progress), Put(DEPLOYED, known.deployed)


# --- the programs -----------------------------------------------------------------------------------------------------


async def begin_leading(
    streams: str,
    stream: str,
    epoch: int,
    deployments: tuple[Deployment, ...],
    *,
    batch: int,
    pause: Duration,
) -> Elected | None:
    """Take the record over AFTER its lease was taken, and deploy tasks; BEFORE changes are followed.

    Args:
        streams: The collection of the record.
        stream: Its id.
        epoch: That of the lease.
        deployments: All tasks of this version of the application that follow the stream.
        batch: As for `deploy`.
        pause: As for `deploy`.

    Returns:
        What the consumer of changes is told; None where a higher epoch has taken over, before that or meanwhile.

    Raises:
        Refused: The store refuses for good.
        Misuse: What is stored is no record of a stream, or an argument is of another type.
        Failure: Nobody answers whether the record is taken over; once it is, what fails is tried again.
    """
    elected = await take_over(streams, stream, epoch)
    if elected is None:
        return None
    try:
        await deploy(streams, stream, epoch, deployments, batch=batch, pause=pause)
    except Refused as refused:
        if refused.reason != _FENCED:
            raise
        return None
    return elected


async def deploy(
    streams: str,
    stream: str,
    epoch: int,
    deployments: tuple[Deployment, ...],
    *,
    batch: int = FOUND_MAX,
    pause: Duration = SECOND,
) -> None:
    """Deploy tasks, AFTER the record was taken over and BEFORE its changes are followed; what fails is tried again.

    Args:
        streams: The collection of the record.
        stream: Its id.
        epoch: Under which it was taken over.
        deployments: All tasks of this version of the application that follow the stream.
        batch: How many records are reset in one request; 1 <= batch <= FOUND_MAX.
        pause: How long what failed waits before it is tried again, in microseconds.

    Raises:
        Refused: Another epoch has taken over, or the store refuses for good.
        Misuse: Two tasks have one name, or an argument is of another type.
    """
    check_collection(streams)
    check_name(stream, "a stream")
    check_int(epoch, "an epoch", 1)
    check_int(batch, "a number of records", 1, FOUND_MAX)
    check_int(pause, "a duration in microseconds", 0)
    _ = decide_deployment(RememberedTasks(), deployments)
    while True:
        try:
            return await _deployed(streams, stream, epoch, deployments, batch)
        except (Ambiguous, NotApplied, NotDurable):
            pass
        await Sleep(pause)


async def _deployed(streams: str, stream: str, epoch: int, deployments: tuple[Deployment, ...], batch: int) -> None:
    record = await find_one(streams, Eq(ID, stream))
    if record is None or needed(record, EPOCH) != epoch:
        raise Refused(_FENCED)
    known = remembered_in(record)
    plan = decide_deployment(known, deployments)
    for each in plan.resets:
        try:
            await reprocess(each, batch=batch)
        except Refused as refused:
            raise Refused(f"{each.task.records} cannot be reset ({each}): {refused.reason}") from None
    of_epoch = AllOf((Eq(ID, stream), Eq(EPOCH, epoch)))
    if plan.known != known and not await update_one(streams, of_epoch, *stored_tasks(plan.known)):
        raise Refused(_FENCED)


_FENCED: Final = "another epoch is stored"


def must_be_reset(reset: Reset) -> Filter:
    """The records that are left, which no write has reset for this version, or for a later one."""
    check_type(reset, Reset, "a reset")
    statuses = tuple(sorted(each.value for each in reset.statuses))
    is_left = Not(Ge(RESET_FOR, reset.version))
    return AllOf((Eq(TASK, reset.task.name), In(STATUS, statuses), Gt(VERSION, 0), is_left))


async def reprocess(reset: Reset, *, batch: int) -> None:
    """Reset the records of a task for a version of its handler, page by page; to do it again resets what is left.

    Args:
        reset: Which ones.
        batch: How many are reset in one request; 1 <= batch <= FOUND_MAX.

    Raises:
        Failure: Nobody answers, or the store refuses; some of them are reset.
    """
    left = must_be_reset(reset)
    after: tuple[Value, ...] = ()
    while True:
        page = await find_all(reset.task.records, left, limit=batch, after=after, fields=(DOCUMENT,), sort=_BY_DOCUMENT)
        if page:
            keys, done = tuple(doc[ID] for doc in page), (*RESET, Put(RESET_FOR, reset.version))
            try:
                await update_many(reset.task.records, AllOf((In(ID, keys), left)), *done)
            except Ambiguous:
                # One of them may be refused, and of many that is never a no. A bulk takes five times as long, but does all others,
                # and is `Refused` where nothing else is left.
                each = (AllOf((Eq(ID, key), left)) for key in keys)
                await bulk_update(*(update_one(reset.task.records, still, *done) for still in each))
        if len(page) < batch:
            return
        after = cursor(page[-1], _BY_DOCUMENT)


_BY_DOCUMENT: Final = (Ascending(DOCUMENT),)
"""The index of a task's records has this order (`ReactiveTask.indexes`), so each page is read from where the last one ended."""
