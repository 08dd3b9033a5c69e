"""The twin's commands and events; `tidegate.consumer.protocol.commands` documents them."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    FanoutEvent,
    Judge,
    RecordsDelivered,
    Report,
    Start,
    TaskReplaced,
    Tasks,
    TasksReported,
    UserRequest,
    WindowArranged,
    WindowDelivered,
)
from tidegate.consumer.flow.drain import InFlight, Stage
from tidegate.consumer.offsets._offsets import check_numbers
from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.documents import show
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_tuple, check_type


@attrs.frozen
class _OfPartition:
    partition: TopicPartition


@attrs.frozen
class _OfAssignment(_OfPartition):
    """The generation is -1, Kafka's value for none, or more."""

    generation: int


@attrs.frozen
class _OfPosition(_OfAssignment):
    """Invariant: 0 <= position <= OFFSET_MAX + 1."""

    position: int


# --- commands -------------------------------------------------------------------------------------------------------------


Key: TypeAlias = bytes | None


@final
@attrs.frozen(cache_hash=True)
class Records:
    offsets: tuple[int, ...]
    keys: tuple[Key, ...] = attrs.field(default=(), repr=False)

    def __str__(self) -> str:
        return f"records {show(self.offsets)}"


@final
@attrs.frozen(cache_hash=True)
class Fetch(_OfPosition, Effect["tuple[int, ...] | Records"]):
    """The reply is offsets, or `Records` with keys, once there are any."""

    def __str__(self) -> str:
        return f"fetch {self.partition} from {self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Work(_OfAssignment, Effect[object]):
    """The reply determines the event (`event_for`)."""

    request: UserRequest
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.request} of {self.partition} @{' '.join(map(str, self.offsets))} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Interrupt(Effect[None]):
    work: Work

    def __str__(self) -> str:
        return f"interrupt {self.work}"


@final
@attrs.frozen(cache_hash=True)
class Commit(_OfPosition, Effect[None]):
    metadata: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.metadata)} characters of metadata" if self.metadata else ""
        return f"commit {self.partition} @{self.position}{more} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartDrainTimer(_OfAssignment, Effect[None]):
    stage: Stage
    duration: Duration

    def __str__(self) -> str:
        what = f"{self.partition} to drain, {self.stage.value}"
        return f"wait {seconds(self.duration)} for {what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartRetryTimer(_OfAssignment, Effect[None]):
    """Before a retry of these tasks; of the commit if `start` is None."""

    start: Start | None
    duration: Duration

    def __str__(self) -> str:
        again = "commit again" if self.start is None else str(self.start)
        return f"wait {seconds(self.duration)} to {again} of {self.partition} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Release(_OfPartition, Effect[None]):
    def __str__(self) -> str:
        return f"release {self.partition}"


Command: TypeAlias = Fetch | Work | Interrupt | Commit | StartDrainTimer | StartRetryTimer | Release | Cancel


# --- events -------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Assigned(_OfAssignment):
    """Metadata about offsets from `end` on is not believed; `committed` is 0 without a position."""

    committed: int
    metadata: str = attrs.field(default="", repr=False)
    end: int = 0

    def __str__(self) -> str:
        return f"assigned {self.partition} from {self.committed} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Revoked(_OfPartition):
    in_flight: tuple[InFlight, ...] = ()

    def __str__(self) -> str:
        return f"revoked {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Lost(_OfPartition):
    """Also after a reset of the client's generation. It comes BEFORE the next commit."""

    def __str__(self) -> str:
        return f"lost {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Fetched(_OfAssignment):
    offsets: tuple[int, ...]
    keys: tuple[Key, ...] = attrs.field(default=(), repr=False)

    def __str__(self) -> str:
        return f"fetched {self.partition} {show(self.offsets)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class WorkReported(_OfAssignment):
    what: FanoutEvent

    def __str__(self) -> str:
        return f"{self.partition} reports {self.what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class WorkFailed(_OfAssignment):
    request: UserRequest

    def __str__(self) -> str:
        return f"{self.partition} raised at {self.request} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Committed(_OfPosition):
    def __str__(self) -> str:
        return f"committed {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitRefused(_OfPosition):
    def __str__(self) -> str:
        return f"refused to commit {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class MetadataRefused(_OfPosition):
    def __str__(self) -> str:
        return f"refused the metadata of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitUnknown(_OfPosition):
    def __str__(self) -> str:
        return f"no answer to the commit of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class DrainTimerFired(_OfAssignment):
    stage: Stage

    def __str__(self) -> str:
        return f"time to drain {self.partition} is over, {self.stage.value} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class RetryTimerFired(_OfAssignment):
    start: Start | None

    def __str__(self) -> str:
        again = "commit again" if self.start is None else str(self.start)
        return f"time to {again} of {self.partition} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Measured(_OfAssignment):
    """The size is in bytes, the age in microseconds."""

    size: int
    age: Duration

    def __str__(self) -> str:
        return f"{self.partition} holds {self.size} bytes for {seconds(self.age)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class SlotFreed(_OfPartition):
    def __str__(self) -> str:
        return f"room for another handler of {self.partition}"


Event: TypeAlias = (
    Assigned
    | Revoked
    | Lost
    | Fetched
    | WorkReported
    | WorkFailed
    | Committed
    | CommitRefused
    | MetadataRefused
    | CommitUnknown
    | DrainTimerFired
    | RetryTimerFired
    | Measured
    | SlotFreed
)

ANSWERS: Final[Mapping[Report, type[Start | Judge | DeliverTasks]]] = {
    Report.SUCCEEDED: Start,
    Report.FAILED: Start,
    Report.RETRIED: Judge,
    Report.SKIPPED: Judge,
    Report.DELIVERED: DeliverTasks,
    Report.UNDELIVERED: DeliverTasks,
}
METADATA_REFUSED: Final = Refused("the metadata of the offset is too large")
"""The whole text decides, since any other refusal ends the assignment."""


def event_for(command: Effect[object], reply: object) -> Event | None:
    match command:
        case Fetch(partition, generation):
            records = reply if isinstance(reply, Records) else Records(reply if isinstance(reply, tuple) else ())
            _check_records(records.offsets, records.keys)
            return Fetched(partition, generation, records.offsets, records.keys)
        case Work(partition, generation, request):
            if isinstance(reply, BaseException):
                return WorkFailed(partition, generation, request)
            return WorkReported(partition, generation, _report_of(command, reply))
        case Commit(partition, generation, position):
            match reply:
                case None:
                    return Committed(partition, generation, position)
                case Ambiguous() | NotApplied() | NotDurable():
                    return CommitUnknown(partition, generation, position)
                case Refused():
                    kind = MetadataRefused if reply == METADATA_REFUSED else CommitRefused
                    return kind(partition, generation, position)
                case _:
                    raise Misuse(f"{command} was answered by {typed(reply)}", todo="answer None or a Failure")
        case StartDrainTimer(partition, generation, stage):
            return DrainTimerFired(partition, generation, stage)
        case StartRetryTimer(partition, generation, start):
            return RetryTimerFired(partition, generation, start)
        case Release() | Interrupt() | Cancel():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a partition")


def _report_of(work: Work, reply: object) -> FanoutEvent:
    match work.request, reply:
        case (
            _,
            TasksReported()
            | WindowArranged()
            | ArrangeFailed()
            | TaskReplaced()
            | RecordsDelivered()
            | WindowDelivered(),
        ):
            return reply
        case Arrange(window), Tasks():
            return WindowArranged(window, reply)
        case Start(window, numbers, attempt), None:
            return TasksReported(window, numbers, attempt, Report.SUCCEEDED)
        case (
            (
                Start(window, numbers, attempt)
                | Judge(window, numbers, attempt)
                | DeliverTasks(window, numbers, attempt)
            ) as request,
            Report(),
        ) if ANSWERS[reply] is type(request):
            return TasksReported(window, numbers, attempt, reply)
        case DeliverTasks(window, numbers, attempt), None:
            return TasksReported(window, numbers, attempt, Report.DELIVERED)
        case DeliverRecords(window, offsets), None:
            return RecordsDelivered(window, offsets)
        case DeliverWindow(window), None:
            return WindowDelivered(window)
        case _:
            raise Misuse(
                f"{typed(reply)} is not an answer to {work}",
                todo="answer Tasks to Arrange, a Report to Judge, None to the others, or an event of the window",
            )


# --- at the entrance ----------------------------------------------------------------------------------------------------

_EVENTS: Final = get_args(Event)
_REQUESTS: Final = get_args(UserRequest)
_UNNUMBERED: Final = (Revoked, Lost, SlotFreed)


def check_event(event: Event) -> None:
    """The only check of an event from outside."""
    check_type(event, _EVENTS, "an event of a partition")
    check_type(event.partition, TopicPartition, "a partition of a topic")
    if not isinstance(event, _UNNUMBERED):
        check_int(event.generation, "a generation", -1)
    match event:
        case Assigned(_, _, committed, metadata, end):
            check_int(committed, "a position", 0, OFFSET_MAX + 1)
            check_type(metadata, str, "the metadata of a commit")
            check_int(end, "the end of a log", 0)
        case Revoked(_, in_flight):
            check_tuple(in_flight, InFlight, "a record in flight")
        case Fetched(_, _, offsets, keys):
            _check_records(offsets, keys)
        case WorkReported(_, _, what):
            fanout.check_event(what)
        case WorkFailed(_, _, request):
            check_type(request, _REQUESTS, "a request to user code")
        case (
            Committed(_, _, position)
            | CommitRefused(_, _, position)
            | CommitUnknown(_, _, position)
            | MetadataRefused(_, _, position)
        ):
            check_int(position, "a position", 0, OFFSET_MAX + 1)
        case DrainTimerFired(_, _, stage):
            check_type(stage, Stage, "a stage of draining")
        case RetryTimerFired(_, _, start):
            check_type(start, (Start, NoneType), "tasks to start again, or None")
        case Measured(_, _, size, age):
            check_int(size, "a number of bytes", 0)
            check_int(age, "an age in microseconds", 0)
        case Lost() | SlotFreed():
            pass
        case _:
            assert_never(event)


def _check_records(offsets: tuple[int, ...], keys: tuple[Key, ...]) -> None:
    check_numbers(offsets, "offsets", OFFSET_MAX)
    if type(keys) is not tuple or not {*map(type, keys)} <= {bytes, NoneType}:
        raise Misuse("these are not keys of records", why="each is bytes or None, in a tuple")
    if len(keys) not in {0, len(offsets)}:
        raise Misuse(f"{len(keys)} keys of {len(offsets)} records", todo="give one for each, or none at all")
