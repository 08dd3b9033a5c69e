"""What an invocation is to do, and where it waits until a runner takes it: the part of its record that never changes.

    {task, arguments | payload, queue, priority, tenant, limited_by, rated_by, parent, root, deadline, trace}    absent where there is none

Among those that are due in a queue the more urgent comes first, and of equal ones the one that is due longest. Tenants take turns
(`tidegate.invocations.taking`): nobody waits behind all the work of somebody else.

Laws
    JB1  A job is read from a record as it was kept there.
"""

from __future__ import annotations

from hashlib import sha256
from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.invocation import REGISTERED
from tidegate.invocations.record_documents import (
    ARGUMENTS,
    CREATED_AT,
    DEADLINE,
    LIMITED_BY,
    PARENT,
    PAYLOAD,
    PRIORITY,
    QUEUE,
    RATED_BY,
    ROOT,
    TASK,
    TENANT,
    TRACE,
    TRIES,
    new_record,
)
from tidegate.invocations.status import StatusRecord
from tidegate.model.documents import Document, Field
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type

DEFAULT_QUEUE: Final = "default"
PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100
_STEM_BYTES_MAX: Final = 900


@final
@attrs.frozen(kw_only=True)
class Job:
    """What an invocation is to do. Invariants: no name is empty; -100 <= priority <= 100; 1 <= deadline; it has arguments or a payload.

    Attributes:
        task: The name of the task.
        arguments: What it is called with: by name, as text or as values; not shown.
        payload: Where they are too large for a record: the key of the upload that holds them.
        queue: The queue that it waits in.
        priority: The more urgent of a queue has the larger one.
        tenant: On whose behalf; None for nobody in particular.
        limited_by: The set of invocations of which no more than a number run at once (`admission.reservation_id`); None if none.
        rated_by: The set of which no more begin in a time than may (`tidegate.invocations.metering`); None if none.
        parent: The invocation that has called it; None where there is none.
        root: The first of its callers; None where there is no parent.
        deadline: How long a run may take, in microseconds; None for as long as it likes.
        trace: The trace that it belongs to, as a `traceparent` of W3C has it; None if none.
    """

    task: str
    arguments: Document = attrs.field(default=Document(), repr=False)
    payload: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    tenant: str | None = None
    limited_by: str | None = None
    rated_by: str | None = None
    parent: str | None = None
    root: str | None = None
    deadline: Duration | None = None
    trace: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_type(self.arguments, Document, "the arguments of a call")
        check_name(self.queue, "a queue")
        check_int(self.priority, "a priority", PRIORITY_MIN, PRIORITY_MAX)
        for name, what in (
            (self.payload, "a payload"), (self.tenant, "a tenant"), (self.limited_by, "a set of invocations"), (self.rated_by, "a set of invocations"), (self.parent, "an invocation"), (self.root, "an invocation"), (self.trace, "a trace"),
        ):  # fmt: skip
            if name is not None:
                check_name(name, what)
        check_type(self.deadline, (int, NoneType), "a time in microseconds")
        if self.deadline is not None:
            check_int(self.deadline, "a time in microseconds", 1)
        if self.payload is not None and self.arguments.items:
            raise Misuse("a job with arguments and a payload", todo="keep all of them in one of the two")
        if (self.parent is None) != (self.root is None):
            raise Misuse("a job with a parent or a root alone", why="a child has both, and a root has none")

    def __str__(self) -> str:
        return f"{self.task!r} in {self.queue!r}"


_OPTIONAL: Final[tuple[Field[str] | Field[int], ...]] = (
    PAYLOAD,
    TENANT,
    LIMITED_BY,
    RATED_BY,
    PARENT,
    ROOT,
    DEADLINE,
    TRACE,
)


def job_fields(job: Job) -> Document:
    """What is kept of a job in the record of its invocation.

    Raises:
        Misuse: It is not a job.
    """
    check_type(job, Job, "a job")
    there = tuple((field.name, getattr(job, field.name)) for field in _OPTIONAL)
    return Document((
        (TASK.name, job.task), (ARGUMENTS.name, job.arguments), (QUEUE.name, job.queue), (PRIORITY.name, job.priority),
        *(each for each in there if each[1] is not None),
    ))  # fmt: skip


def job_of(record: Document) -> Job:
    """The job of an invocation.

    Raises:
        Misuse: The document is not the record of one: a field is missing or of the wrong type.
    """
    return Job(
        task=needed(record, TASK),
        arguments=needed(record, ARGUMENTS),
        payload=record.get(PAYLOAD),
        queue=needed(record, QUEUE),
        priority=needed(record, PRIORITY),
        tenant=record.get(TENANT),
        limited_by=record.get(LIMITED_BY),
        rated_by=record.get(RATED_BY),
        parent=record.get(PARENT),
        root=record.get(ROOT),
        deadline=record.get(DEADLINE),
        trace=record.get(TRACE),
    )


def new_invocation(key: str, job: Job, request: str, now: Instant, due: Instant | None = None) -> Document:
    """The record of an invocation that is registered.

    Args:
        key: Its id.
        job: What it is to do.
        request: The id of the request that makes it.
        now: The time, by the store's clock.
        due: From when on a runner may take it; None for now.

    Returns:
        The document, to be inserted.

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    first = StatusRecord(REGISTERED, None, 1)
    more = job_fields(job).put(CREATED_AT, now).put(TRIES, 0)
    return new_record(key, first, request, now, due=now if due is None else due, more=more)


def upload_stem(key: str) -> str:
    """What the names of all uploads of an invocation begin with: its id, or the digest of one that is too long for a name.

    Args:
        key: The id of the invocation.

    Raises:
        Misuse: It is empty or no string.
    """
    check_name(key, "an invocation")
    written = key.encode(errors="surrogatepass")
    return key if len(written) <= _STEM_BYTES_MAX else sha256(written).hexdigest()
