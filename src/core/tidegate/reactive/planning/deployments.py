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
"""In a task record: the handler version it was last reset for."""
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
        version: The version of its handler, which its author raises.
        policy: The effects of a changed definition.
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
        """The stored definition: collections of documents and records, filter, watched values,
        version.
        """
        trigger: tuple[tuple[str, Value], ...] = (
            (_SOURCE.name, self.task.source),
            ("records", self.task.records),
            ("where", None if self.task.where is None else str(self.task.where)),
            ("watched", described(self.task.watched)),
        )
        return Definition(Document(trigger), self.version)

    @property
    def scanned(self) -> ScannedTask:
        """How it is reconciled: by a query, unless a value is computed in this process only."""
        can_ask = all(computed.expression is not None for _, computed in self.task.watched.computed)
        trigger = TaskTrigger(self.task.name, self.definition.trigger)
        return ScannedTask(self.task.source, trigger, self.task.find_changed if can_ask else None)


@final
@attrs.frozen
class RememberedTasks:
    """The tasks in the record of a stream.

    Attributes:
        definitions: By task name, sorted.
        progress: The progress of reconciliation.
        deployed: The names of the last deployed tasks, sorted.
    """

    definitions: tuple[tuple[str, Definition], ...] = ()
    progress: Progress = attrs.field(factory=Progress)
    deployed: tuple[str, ...] = ()


@final
@attrs.frozen
class Reset:
    """Reset, once for this version, each record of the task with one of these statuses."""

    task: ReactiveTask
    statuses: frozenset[TaskStatus]
    version: int

    def __str__(self) -> str:
        return f"{self.task.name}, version {self.version}: {Reprocess(self.statuses)}"


@final
@attrs.frozen
class DeploymentPlan:
    """A deployment: these resets, and THEN the stored state."""

    resets: tuple[Reset, ...]
    known: RememberedTasks


def decide_deployment(known: RememberedTasks, deployments: tuple[Deployment, ...]) -> DeploymentPlan:
    """Decide what a deployment does.

    Args:
        known: The stored state.
        deployments: All tasks of this version of the application that follow the stream.

    Returns:
        The resets, and the state to store after them.

    Raises:
        Misuse: Two tasks have one name, or an argument has a wrong type.
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
                # If the policy forgets nothing, the task stays reconciled with its new trigger, for
                # the same documents.
                now = TaskTrigger(name, action.definition.trigger)
                kept = (each for each in progress.reconciled if each.task != name or _source(each) == _source(now))
                flags = frozenset(now if flag.task == name else flag for flag in kept)
                progress = attrs.evolve(progress, reconciled=flags)
    after = RememberedTasks(tuple(sorted(definitions.items(), key=_name)), progress, tuple(sorted(names)))
    return DeploymentPlan(tuple(resets), after)


def _source(of: TaskTrigger) -> Value:
    """The collections of its documents."""
    return of.trigger.get(_SOURCE) if isinstance(of.trigger, Document) else None


def _name(item: tuple[str, Definition]) -> str:
    return item[0]


def remembered_in(record: Document) -> RememberedTasks:
    """The tasks in the record of a stream.

    Raises:
        Misuse: The document is no such record.
    """
    progress = progress_of(record)
    definitions = {
        needed(each, _TASK): Definition(needed(each, _TRIGGER), needed(each, VERSION))
        for each in record.get(DEFINITIONS) or ()
    }
    return RememberedTasks(tuple(sorted(definitions.items(), key=_name)), progress, record.get(DEPLOYED) or ())


def unplanned(record: Document | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks that no process plans, because the leader does not have them.

    Args:
        record: The record of the stream; None if there is none.
        names: The tasks of this process.

    Returns:
        Their names; none if there was no leader yet.
    """
    check_tuple(names, str, "the name of a task")
    deployed = () if record is None else remembered_in(record).deployed
    return tuple(name for name in names if name not in deployed) if deployed else ()


def stored_tasks(known: RememberedTasks) -> tuple[Put[tuple[Document, ...]], Put[Document], Put[tuple[str, ...]]]:
    """The updates that store it in the record of the stream."""
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
    """Take the record over AFTER its lease was acquired, and deploy; BEFORE changes are followed.

    Args:
        streams: The collection of the record.
        stream: Its id.
        epoch: The epoch of the lease.
        deployments: All tasks of this version of the application that follow the stream.
        batch: As for `deploy`.
        pause: As for `deploy`.

    Returns:
        The first event of the consumer; None if a higher epoch has taken over, before or meanwhile.

    Raises:
        Refused: The store refuses for good.
        Misuse: The stored document is no record of a stream, or an argument has a wrong type.
        Failure: No reply to the takeover; later failures are retried.
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
    """Deploy tasks, AFTER the takeover and BEFORE changes are followed; failures are retried.

    Args:
        streams: The collection of the record.
        stream: Its id.
        epoch: The epoch of the takeover.
        deployments: All tasks of this version of the application that follow the stream.
        batch: Records that one request resets; 1 <= batch <= FOUND_MAX.
        pause: The wait after a failure, in microseconds.

    Raises:
        Refused: Another epoch has taken over, or the store refuses for good.
        Misuse: Two tasks have one name, or an argument has a wrong type.
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
    """The remaining records, which no write has reset for this version or a later one."""
    check_type(reset, Reset, "a reset")
    statuses = tuple(sorted(each.value for each in reset.statuses))
    is_left = Not(Ge(RESET_FOR, reset.version))
    return AllOf((Eq(TASK, reset.task.name), In(STATUS, statuses), Gt(VERSION, 0), is_left))


async def reprocess(reset: Reset, *, batch: int) -> None:
    """Reset the records of a task for a handler version, page by page; a repetition resets the
    rest.

    Args:
        reset: The records.
        batch: Records that one request resets; 1 <= batch <= FOUND_MAX.

    Raises:
        Failure: No reply, or the store refuses; some are reset.
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
                # One of them may be refused, which an update of many does not report. A bulk takes
                # five times as long, but does all others, and is `Refused` if nothing else is left.
                each = (AllOf((Eq(ID, key), left)) for key in keys)
                await bulk_update(*(update_one(reset.task.records, still, *done) for still in each))
        if len(page) < batch:
            return
        after = cursor(page[-1], _BY_DOCUMENT)


_BY_DOCUMENT: Final = (Ascending(DOCUMENT),)
"""The index of a task's records has this order (`ReactiveTask.indexes`), so each page begins where
the last one ended.
"""
