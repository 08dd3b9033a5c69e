"""The work of an invocation and its queue: the part of its record that never changes.

    {task, arguments | payload, queue, priority, tenant, limited_by, rated_by, parent, root,
    deadline, trace}    each may be absent

In a queue, due invocations run by priority, then longest due first. Tenants take turns
(`tidegate.invocations.queue.fetching`), so none waits behind all the work of another.

Laws
    JB1  A job is read from a record as it was kept there.
"""

from __future__ import annotations

from hashlib import sha256
from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.record.invocation import REGISTERED
from tidegate.invocations.record.record_documents import (
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
from tidegate.invocations.record.status import StatusRecord
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
    """The work of an invocation.

    Invariants: no name is empty; -100 <= priority <= 100; 1 <= deadline; arguments or a payload.

    Attributes:
        task: The name of the task.
        arguments: The arguments by name, as text or as values; not shown.
        payload: The key of their upload, if they are too large for a record.
        queue: Its queue.
        priority: Larger is more urgent.
        tenant: Its tenant; None for none.
        limited_by: The set with a concurrency limit (`admission.reservation_id`); None for none.
        rated_by: The set with a rate limit (`tidegate.invocations.limits.rate_limiting`); None for none.
        parent: The calling invocation; None for none.
        root: The first of its callers; None without a parent.
        deadline: The time limit of a run, in microseconds; None for no limit.
        trace: Its trace, as a W3C `traceparent`; None for none.
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
    """The fields of a job in a record.

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
    """Read the job of an invocation.

    Raises:
        Misuse: The document is not its record: a field is missing or of the wrong type.
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
    """The record of a newly registered invocation.

    Args:
        key: Its id.
        job: Its work.
        request: The id of the request that creates it.
        now: The store's time.
        due: When a runner may take it; None for now.

    Returns:
        The document to insert.

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    first = StatusRecord(REGISTERED, None, 1)
    more = job_fields(job).put(CREATED_AT, now).put(TRIES, 0)
    return new_record(key, first, request, now, due=now if due is None else due, more=more)


def upload_stem(key: str) -> str:
    """The prefix of all upload names of an invocation: its id, or a digest if that is too long.

    Args:
        key: The id of the invocation.

    Raises:
        Misuse: It is empty or no string.
    """
    check_name(key, "an invocation")
    written = key.encode(errors="surrogatepass")
    return key if len(written) <= _STEM_BYTES_MAX else sha256(written).hexdigest()
