"""What an invocation is to do, and where it waits until a runner takes it: the part of its record that never changes.

    {task, arguments | payload, queue, priority, tenant, parent, root, deadline, trace}        absent where there is none

Among those that are due in a queue the more urgent comes first, and of equal ones the one that is due longest. Tenants take turns
(`tidegate.invocations.taking`): nobody waits behind all the work of somebody else.

Laws
    JB1  A job is read from a record as it was kept there.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.record_documents import (
    ARGUMENTS,
    DEADLINE,
    PARENT,
    PAYLOAD,
    PRIORITY,
    QUEUE,
    ROOT,
    TASK,
    TENANT,
    TRACE,
)
from tidegate.model.documents import Document, Field
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type

__all__ = ["DEFAULT_QUEUE", "PRIORITY_MAX", "PRIORITY_MIN", "Job", "job_fields", "job_of"]

DEFAULT_QUEUE: Final = "default"
PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100


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
            (self.payload, "a payload"), (self.tenant, "a tenant"), (self.parent, "an invocation"), (self.root, "an invocation"), (self.trace, "a trace"),
        ):  # fmt: skip
            if name is not None:
                check_name(name, what)
        check_type(self.deadline, (int, NoneType), "a time in microseconds or None")
        if self.deadline is not None:
            check_int(self.deadline, "a time in microseconds", 1)
        if self.payload is not None and self.arguments.items:
            raise Misuse("a job with arguments and a payload", todo="keep all of them in one of the two")
        if (self.parent is None) != (self.root is None):
            raise Misuse("a job with a parent or a root alone", why="a child has both, and a root has none")

    def __str__(self) -> str:
        return f"{self.task!r} in {self.queue!r}"


_OPTIONAL: Final[tuple[Field[str] | Field[int], ...]] = (PAYLOAD, TENANT, PARENT, ROOT, DEADLINE, TRACE)


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
        parent=record.get(PARENT),
        root=record.get(ROOT),
        deadline=record.get(DEADLINE),
        trace=record.get(TRACE),
    )
