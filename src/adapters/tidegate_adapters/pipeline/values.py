"""What hooks get and return: tasks, results, records, and decisions about failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum, unique
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse, TidegateError, shown, typed
from tidegate.model.records import Record
from tidegate.model.values import check_name, check_type
from tidegate.pipeline.effects import Verdict
from tidegate_adapters.sinks.outputs import Output


@final
@unique
class Kind(StrEnum):
    """How a task has ended."""

    OK = "ok"
    RAISED = "raised"
    """The function raised."""
    NONZERO_EXIT = "nonzero_exit"
    TIMEOUT = "timeout"
    LAUNCH_FAILURE = "launch_failure"
    """The program could not be started."""


@final
@attrs.frozen(kw_only=True)
class Task:
    """A piece of work for an executor, made by arrange.

    Attributes:
        id: Unique among the live tasks of a partition; None for one made of the record's offset and
            the place of the task. `tidegate.pipeline.identity.stable_id` makes one of parts.
        args: Arguments of the program or function.
        stdin: What the program reads.
        env: Variables of the program, besides those of this process.
        metadata: Whatever the hooks want to find again in the result.
        priority: Tasks with a lower number start first.
        timeout: How long it may take; None for the limit of the executor.
        record: The record that it is for; None for `offsets`, or for the only record.
        offsets: The records that it is for, by offset, where there are several.
        result: A result that is known already: no executor runs the task.
    """

    id: str | None = None
    args: Sequence[Any] = attrs.field(default=(), repr=False)
    stdin: str | bytes | None = attrs.field(default=None, repr=False)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    metadata: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    priority: int = 0
    timeout: timedelta | None = None
    record: Record | None = attrs.field(default=None, repr=False)
    offsets: tuple[int, ...] = ()
    result: Result | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.id is not None:
            check_name(self.id, "the id of a task")
        if type(self.args) not in (list, tuple):
            raise Misuse(f"args must be a list, got {typed(self.args)}", todo="write args=[...]")
        if self.stdin is not None:
            check_type(self.stdin, (str, bytes, type(None)), "stdin")
        if type(self.env) is not dict:
            check_type(self.env, (dict, MappingProxyType), "env")
        if type(self.metadata) is not dict:
            check_type(self.metadata, (dict, MappingProxyType), "metadata")
        check_type(self.priority, int, "priority")
        if self.timeout is not None:
            check_type(self.timeout, (timedelta, type(None)), "timeout")
            if self.timeout <= timedelta(0):
                raise Misuse(
                    f"timeout must be a positive timedelta, got {shown(self.timeout)}",
                    todo="write timedelta(seconds=30)",
                )
        if self.record is not None:
            check_type(self.record, (Record, type(None)), "record")
        if self.result is not None:
            check_type(self.result, (Result, type(None)), "result")

    def bound(self, offsets: tuple[int, ...], id: str) -> Task:  # noqa: A002  its field
        """The task with these records and this id, in a tenth of the time of `attrs.evolve`."""
        made = object.__new__(Task)
        for write, value in zip(_WRITES, _READ(self), strict=True):
            write(made, value)
        _ID(made, id)
        _OFFSETS(made, offsets)
        return made


_NAMES: Final = tuple(each.name for each in attrs.fields(Task))
_READ: Final = attrgetter(*_NAMES)
_WRITES: Final = tuple(getattr(Task, name).__set__ for name in _NAMES)
_ID, _OFFSETS = _WRITES[_NAMES.index("id")], _WRITES[_NAMES.index("offsets")]


@final
@attrs.frozen(kw_only=True)
class Result:
    """How a run of a task has ended.

    Attributes:
        task: The task.
        value: What the function returned, or the result that was known.
        error: What the function raised, or why the program failed; None if it did well.
        kind: How it ended.
        exit_code: The exit code of the program; negative for a signal, None for a function.
        stdout: What the program wrote there, up to the limit of the executor.
        stderr: The same of stderr.
        is_truncated: Whether more was written.
        seconds: How long it took.
        attempt: The number of the run, from 1 on.
    """

    task: Task = attrs.field(default=attrs.Factory(Task))
    value: Any = attrs.field(default=None, repr=False)
    error: BaseException | str | None = attrs.field(default=None, repr=False)
    kind: Kind = Kind.OK
    exit_code: int | None = None
    stdout: bytes = attrs.field(default=b"", repr=False)
    stderr: bytes = attrs.field(default=b"", repr=False)
    is_truncated: bool = False
    seconds: float = 0.0
    attempt: int = 1

    @property
    def is_ok(self) -> bool:
        """Whether it did well."""
        return self.kind is Kind.OK


@final
@attrs.frozen
class RecordResult:
    """A record whose tasks are settled, for record_done.

    Attributes:
        record: The record, or what was decoded of it.
        results: The results of its tasks, in the order of the tasks.
    """

    record: Any = attrs.field(repr=False)
    results: tuple[Result, ...]


@final
@attrs.frozen
class WindowResult:
    """A window whose tasks and records are settled, for window_done.

    Attributes:
        records: Its records, or what was decoded of them.
        results: The results of all its tasks, in the order of the tasks.
    """

    records: tuple[Any, ...] = attrs.field(repr=False)
    results: tuple[Result, ...]


@final
@attrs.frozen
class FailedOutput:
    """An output that its sink did not take, for delivery_error.

    Attributes:
        output: The output.
        key: Its key.
        attempts: How often it was delivered.
    """

    output: Output
    key: str
    attempts: int


@final
class PartitionStopped(TidegateError):  # noqa: N818  it says what happened
    """A record of the partition has failed for good, and nothing may pass it."""


RETRY: Final = Verdict.RETRY
SKIP: Final = Verdict.SKIP
Decision: TypeAlias = "Verdict | Sequence[Task]"
"""What task_error returns: `RETRY`, `SKIP`, or the tasks that replace the failed one."""
