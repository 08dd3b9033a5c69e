"""The vocabulary of a pipeline: what its programs ask of the world, and the rules between.

A pipeline turns records into tasks, runs the tasks, and delivers outputs to sinks. The partition
(`tidegate.consumer.partition.partition`) asks user code for each step by a `Work`. A program of
`tidegate.pipeline.programs` answers one `Work`: it calls hooks, delivers what they return, and
writes dead letters. The effects below are its requests. None of them holds a payload: a task is
known by its number in the window, an output by the hook that returned it and its position there.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.offsets._offsets import ranges
from tidegate.consumer.protocol.commands import Work
from tidegate.model.effects import Effect, Failure
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Exponential
from tidegate.sinks.delivery import Action


@final
@unique
class Hook(StrEnum):
    """The functions of the user that a pipeline calls."""

    ARRANGE = "arrange"
    """Makes tasks of the records of a window."""
    TASK_DONE = "task_done"
    """Makes outputs of the result of a task."""
    RECORD_DONE = "record_done"
    """Makes outputs of a record, once all of its tasks are settled."""
    WINDOW_DONE = "window_done"
    """Makes outputs of a window, once all of its tasks and records are settled."""
    TASK_ERROR = "task_error"
    """Decides what follows a failed task."""
    DELIVERY_ERROR = "delivery_error"
    """Decides what follows an output that its sink did not take."""


@final
@unique
class OnFailure(StrEnum):
    """What becomes of a record that has failed for good."""

    DEAD_LETTER = "dead_letter"
    """It is written to the dead-letter topic, and counts as done."""
    SKIP = "skip"
    """It is logged, and counts as done."""
    STOP = "stop"
    """Its partition takes nothing new; nothing from this record on is committed."""


_BACKOFF: Final = Exponential(SECOND // 10, cap=10 * SECOND)
_RETRIES_MAX: Final = 3


@final
@attrs.frozen(kw_only=True)
class PipelineRules:
    """What follows when a hook raises, and when an output is not delivered.

    Invariants: 0 <= hook_retries, delivery_retries; `refused` and `lasting` are not RETRY.

    Attributes:
        decodes: Whether records are decoded before they are arranged.
        decides: Which of `TASK_ERROR` and `DELIVERY_ERROR` the user has.
        undecodable: What becomes of a record that cannot be decoded.
        on_failure: What becomes of a record that has failed for good.
        hook_retries: How often `ARRANGE`, `RECORD_DONE` and `WINDOW_DONE` are called again after
            they raised. `TASK_DONE` is not: its task runs again, as for any failure.
        delivery_retries: How often `DELIVERY_ERROR` may answer RETRY in a row.
        refused: What follows when a sink refuses an output.
        lasting: What follows when the attempts of a sink are used up.
        backoff: The delays before these calls and deliveries.
    """

    decodes: bool = False
    decides: frozenset[Hook] = frozenset()
    undecodable: OnFailure = OnFailure.DEAD_LETTER
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    hook_retries: int = _RETRIES_MAX
    delivery_retries: int = _RETRIES_MAX
    refused: Action = Action.DEAD_LETTER
    lasting: Action = Action.HOLD
    backoff: Exponential = _BACKOFF

    def __attrs_post_init__(self) -> None:
        check_type(self.decodes, bool, "whether records are decoded")
        check_type(self.decides, frozenset, "a set of hooks")
        check_type(self.undecodable, OnFailure, "undecodable")
        check_type(self.on_failure, OnFailure, "on_failure")
        check_int(self.hook_retries, "a number of retries", 0)
        check_int(self.delivery_retries, "a number of retries", 0)
        check_type(self.backoff, Exponential, "an exponential back-off")
        for action in (self.refused, self.lasting):
            check_type(action, Action, "what follows a failed delivery")
            if action is Action.RETRY:
                raise Misuse("an output is delivered again without end", todo="use Action.HOLD, which waits in between")


@final
@attrs.frozen
class TaskSpec:
    """A task that user code asks for, as far as the core needs to know it.

    Attributes:
        id: Its id; unique among the live tasks of the partition.
        offsets: The records that it is for.
        given: Whether its result is given, and good; None where the task is to run.
    """

    id: str
    offsets: tuple[int, ...]
    given: bool | None = None


@final
@attrs.frozen
class Output:
    """One output, by the hook that returned it.

    Attributes:
        hook: That hook.
        subject: What the hook was called for: the number of a task, the offset of a record, or the
            number of a window.
        position: The position in what the hook returned.
        sink: The name of its sink.
    """

    hook: Hook
    subject: int
    position: int
    sink: str

    def __str__(self) -> str:
        return f"output {self.position} of {self.hook} {self.subject} for {self.sink}"


Sinks: TypeAlias = tuple[str, ...]
"""What a hook returned: the sink of each output, in order."""


@final
@unique
class Verdict(StrEnum):
    """What `TASK_ERROR` decides about a failed task, unless it replaces the task."""

    RETRY = "retry"
    SKIP = "skip"
    """The failure stands: its records have failed."""


Replacement: TypeAlias = tuple[TaskSpec, ...]
"""The tasks that replace a failed one."""


# --- effects --------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class DecodeRecords(Effect[tuple[int, ...]]):
    """Decode the records; the reply is the offsets of those that cannot be decoded."""

    work: Work

    def __str__(self) -> str:
        return f"decode {ranges(self.work.offsets)}"


@final
@attrs.frozen(cache_hash=True)
class CallArrange(Effect[tuple[TaskSpec, ...]]):
    """Call `ARRANGE` with these records. Fails if the hook raised, or `refused_tasks` names a
    reason.
    """

    work: Work
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"arrange {ranges(self.offsets)}"


@final
@attrs.frozen(cache_hash=True)
class CallHook(Effect[tuple[object, ...]]):
    """Call a hook once for each subject.

    The reply has one entry for each: a `Failure` if the hook raised; else `Sinks` of `TASK_DONE`,
    `RECORD_DONE` and `WINDOW_DONE`, a `Verdict` or a `Replacement` of `TASK_ERROR`. A task with
    which no user code was called, since its record could not be decoded or arranged, has the
    verdict SKIP.

    Attributes:
        subjects: Numbers of tasks, offsets of records, or the number of the window.
    """

    hook: Hook
    work: Work
    subjects: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.hook} {ranges(self.subjects)}"


@final
@attrs.frozen(cache_hash=True)
class CallDeliveryError(Effect[tuple[object, ...]]):
    """Call `DELIVERY_ERROR` for each output; the reply has an `Action` or a `Failure` for each."""

    work: Work
    outputs: tuple[Output, ...]

    def __str__(self) -> str:
        return f"delivery error of {', '.join(map(str, self.outputs))}"


@final
@attrs.frozen(cache_hash=True)
class Deliver(Effect[tuple[Failure | None, ...]]):
    """Deliver the outputs to their sinks; the reply says for each how it failed, if it did."""

    work: Work
    outputs: tuple[Output, ...]

    def __str__(self) -> str:
        return f"deliver {', '.join(map(str, self.outputs))}"


@final
@attrs.frozen(cache_hash=True)
class WriteRecords(Effect[tuple[Failure | None, ...]]):
    """Write the dead letters of these records; the reply says for each how it failed, if it did."""

    work: Work
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"dead-letter {ranges(self.offsets)}"


@final
@attrs.frozen(cache_hash=True)
class WriteOutputs(Effect[tuple[Failure | None, ...]]):
    """Write the dead letters of these outputs; the reply is that of `WriteRecords`."""

    work: Work
    outputs: tuple[Output, ...]

    def __str__(self) -> str:
        return f"dead-letter {', '.join(map(str, self.outputs))}"


@final
@attrs.frozen(cache_hash=True)
class LogSkipped(Effect[None]):
    """Log that these records, or these outputs, are skipped."""

    work: Work
    offsets: tuple[int, ...] = ()
    outputs: tuple[Output, ...] = ()

    def __str__(self) -> str:
        what = ", ".join([*([ranges(self.offsets)] if self.offsets else []), *map(str, self.outputs)])
        return f"log that {what} is skipped"


@final
@attrs.frozen(cache_hash=True)
class FindUndecodable(Effect[tuple[int, ...]]):
    """Find those of the failed records of this work that could not be decoded."""

    work: Work

    def __str__(self) -> str:
        return f"find which of {ranges(self.work.offsets)} could not be decoded"


PipelineEffect: TypeAlias = (
    DecodeRecords
    | CallArrange
    | CallHook
    | CallDeliveryError
    | Deliver
    | WriteRecords
    | WriteOutputs
    | LogSkipped
    | FindUndecodable
)
