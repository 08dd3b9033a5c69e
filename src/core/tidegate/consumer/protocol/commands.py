"""The commands and events of a partition: the protocol between a consumer and its runtime.

A command is an effect that is not awaited. Its result returns as an event, at any later time and in
any order; `event_for` maps one to the other. Each command and event names the partition. Nearly all
name the generation of the assignment, which identifies outdated ones.

`Work` calls user code. Without windows it contains a `Handle`. Its records are handled one by one;
a `RecordsHandled` reports the ended ones. With windows, user code arranges a window, runs tasks,
judges failures and delivers (`tidegate.consumer.fanout`). An exception of user code is an event
too, `WorkFailed`.

A `Handle` of several records equals one for each, and so does `RecordsHandled`. The runtime
therefore tracks records, not commands: an `Interrupt` or `Cancel` groups the records still in work,
perhaps in other batches than they were started in.

    Work of Handle    call the handler with each record       RecordsHandled or RecordsParked, as
                      records end, in any batches
    other Work        call user code once                     WorkReported with `ended`, or
                      WorkFailed, once; before that, any number of WorkReported without `ended`
    Interrupt         cancel the user code of the work        the event of the work itself, once it
                      has ended
    Cancel of Work    the same, without waiting for the end   the event of the work itself, which
                      changes nothing
    WorkUnanswered    alert the operators                     none
    CommitsUnanswered alert the operators                     none

A `Batch` groups what ends at the same time, of one or several partitions.
"""

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
from tidegate.consumer.offsets._offsets import check_numbers, ranges
from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.documents import show
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.retries.backoff import check_delay


@attrs.frozen
class _OfPartition:
    """Base of commands and events of a partition."""

    partition: TopicPartition


@attrs.frozen
class _OfAssignment(_OfPartition):
    """Base of commands and events of an assignment. The generation is at least -1, Kafka's value
    for none.
    """

    generation: int


@attrs.frozen
class _OfPosition(_OfAssignment):
    """Base of commands and events with a position. Invariant: 0 <= position <= OFFSET_MAX + 1."""

    position: int


# --- commands -------------------------------------------------------------------------------------


Key: TypeAlias = bytes | None
"""The key of a record; None for a record without a key."""


@final
@attrs.frozen(cache_hash=True)
class Records:
    """Fetched records: their offsets, and their keys unless the order of work ignores keys.

    `again` and `is_anew` compare them with an earlier assignment of the partition, as in `Fetched`.
    """

    offsets: tuple[int, ...]
    keys: tuple[Key, ...] = attrs.field(default=(), repr=False)
    again: tuple[int, ...] = attrs.field(default=(), repr=False)
    is_anew: bool = attrs.field(default=False, repr=False)

    def __str__(self) -> str:
        return f"records {show(self.offsets)}"


@final
@attrs.frozen(cache_hash=True)
class Fetch(_OfPosition, Effect["tuple[int, ...] | Records"]):
    """Fetch records from the position on.

    The reply is their offsets, or `Records` with their keys, once there are any.
    """

    def __str__(self) -> str:
        return f"fetch {self.partition} from {self.position} (generation {self.generation})"


@final
@attrs.frozen
class Handle:
    """Call the handler with each of these records by itself.

    Attributes:
        offsets: The records, in order.
        attempt: The number of the attempt, from 1 on.
    """

    offsets: tuple[int, ...]
    attempt: int = 1

    def __str__(self) -> str:
        return f"handle {ranges(self.offsets)}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


Request: TypeAlias = Handle | UserRequest
"""A request to user code."""


@final
@attrs.frozen(cache_hash=True)
class Work(_OfAssignment, Effect[object]):
    """Call user code; `event_for` turns its reply into an event.

    User code answers for the failure of the records in `DeliverRecords.to_dead_letter`. Without
    windows, the offset of a record is its window number.

    Attributes:
        offsets: The records that it is about, in order.
    """

    request: Request
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        if isinstance(self.request, Handle):
            return f"{self.request} of {self.partition} (generation {self.generation})"
        return f"{self.request} of {self.partition} @{' '.join(map(str, self.offsets))} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Interrupt(Effect[None]):
    """Ask user code to end now. Its end is reported by the event of the work itself."""

    work: Work

    def __str__(self) -> str:
        return f"interrupt {self.work}"


@final
@attrs.frozen(cache_hash=True)
class Commit(_OfPosition, Effect[None]):
    """Commit the position: all records below it are done. The metadata lists those done beyond it
    (`commit_metadata`).
    """

    metadata: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.metadata)} characters of metadata" if self.metadata else ""
        return f"commit {self.partition} @{self.position}{more} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartDrainTimer(_OfAssignment, Effect[None]):
    """Wait until the time of a drain stage is over."""

    stage: Stage
    duration: Duration

    def __str__(self) -> str:
        what = f"{self.partition} to drain, {self.stage.value}"
        return f"wait {seconds(self.duration)} for {what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartRetryTimer(_OfAssignment, Effect[None]):
    """Wait before the next attempt at these records or tasks, or at the commit.

    Attributes:
        start: The records or tasks; None for the commit.
        duration: The delay, in microseconds.
        jitter_ppm: The largest part of the delay that the runtime may leave out at random.
    """

    start: Handle | Start | None
    duration: Duration
    jitter_ppm: int = 0

    def __str__(self) -> str:
        again = "commit again" if self.start is None else str(self.start)
        return f"wait {seconds(self.duration)} to {again} of {self.partition} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Release(_OfPartition, Effect[None]):
    """Release the partition to the group. No command for it follows; each `Revoked` has one."""

    def __str__(self) -> str:
        return f"release {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class WorkUnanswered(_OfAssignment, Effect[None]):
    """Alert the operators: user code ended without an answer for some records or tasks, which
    therefore failed.
    """

    request: Request

    def __str__(self) -> str:
        return f"say that {self.request} of {self.partition} was not answered (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitsUnanswered(_OfPosition, Effect[None]):
    """Alert the operators: this many commits in a row had no answer."""

    failures: int

    def __str__(self) -> str:
        what = f"{self.failures} commits of {self.partition} were not answered"
        return f"say that {what}, now @{self.position} (generation {self.generation})"


Command: TypeAlias = (
    Fetch
    | Work
    | Interrupt
    | Commit
    | StartDrainTimer
    | StartRetryTimer
    | Release
    | WorkUnanswered
    | CommitsUnanswered
    | Cancel
)


# --- events ---------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Assigned(_OfAssignment):
    """The group assigned the partition to this member.

    Attributes:
        generation: The generation of this assignment.
        committed: The group's position; without one, the offset at which the partition begins.
        metadata: The metadata committed with the position. None if there is no position and another
            owner might begin elsewhere: at the end of the log by its settings, or at the first
            record left if the position was removed.
        end: One past the last offset of the log, as far as known; metadata with higher offsets is
            ignored.
    """

    committed: int
    metadata: str | None = attrs.field(default="", repr=False)
    end: int = 0

    def __str__(self) -> str:
        return f"assigned {self.partition} from {self.committed} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Revoked(_OfPartition):
    """The group revokes the partition, and waits for its release.

    Attributes:
        in_flight: What is known of the records in work, in any order. A record in several works may
            appear once for each. Missing records are unknown.
    """

    in_flight: tuple[InFlight, ...] = ()

    def __str__(self) -> str:
        return f"revoked {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Lost(_OfPartition):
    """The group has already taken the partition.

    This includes a client whose generation was reset because its member was evicted or fenced. The
    runtime sends this event BEFORE any further commit, and never commits without a generation. A
    group without members accepts such a commit, and its position falls (`tidegate explore
    partition.resets_its_generation`).
    """

    def __str__(self) -> str:
        return f"lost {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Fetched(_OfAssignment):
    """Records arrived. Invariant: there are as many keys as offsets, or none.

    Attributes:
        keys: Their keys; empty if the order of work ignores keys.
        again: Those that the sender knows from an earlier assignment and that are equal in all
            fields. Equal offsets are not enough, because a topic may have been recreated.
        is_anew: Whether a known offset now has another record.
    """

    offsets: tuple[int, ...]
    keys: tuple[Key, ...] = attrs.field(default=(), repr=False)
    again: tuple[int, ...] = attrs.field(default=(), repr=False)
    is_anew: bool = attrs.field(default=False, repr=False)

    def __str__(self) -> str:
        return f"fetched {self.partition} {show(self.offsets)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class RecordsHandled:
    """The handlers of these records have ended at this attempt, with success or failure.

    Attributes:
        done: The handled records, in any order.
        failed: The records at which the handler raised, in any order.
    """

    done: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    attempt: int = 1

    def __str__(self) -> str:
        parts = (("handled", self.done), ("failed", self.failed))
        shown = ", ".join(f"{name} {ranges(sorted(offsets))}" for name, offsets in parts if offsets)
        return f"{shown or 'nothing'}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


@final
@attrs.frozen(cache_hash=True)
class RecordsParked:
    """The handlers of these records ended without success or failure, and must be called again
    later.

    Attributes:
        offsets: The records, in any order.
        delay: The time until the next call, in microseconds.
        attempt: The number of the attempt; the next call has the same.
    """

    offsets: tuple[int, ...]
    delay: Duration
    attempt: int = 1

    def __str__(self) -> str:
        again = f" (attempt {self.attempt})" if self.attempt > 1 else ""
        return f"parked {ranges(sorted(self.offsets))} for {seconds(self.delay)}{again}"


@final
@attrs.frozen(cache_hash=True)
class WorkReported(_OfAssignment):
    """User code has reported a result for its records or for a window.

    Attributes:
        what: The reported result.
        ended: The request, if it ends with this report; its parts without an answer have failed.
    """

    what: FanoutEvent | RecordsHandled | RecordsParked
    ended: Request | None = None

    def __str__(self) -> str:
        return f"{self.partition} reports {self.what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class WorkFailed(_OfAssignment):
    """User code raised or was interrupted: the work, or the rest of it, has no result."""

    request: Request

    def __str__(self) -> str:
        return f"{self.partition} raised at {self.request} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Committed(_OfPosition):
    """The position is committed."""

    def __str__(self) -> str:
        return f"committed {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitRefused(_OfPosition):
    """The group no longer accepts commits of this generation."""

    def __str__(self) -> str:
        return f"refused to commit {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class MetadataRefused(_OfPosition):
    """The broker refused the metadata; the position is not committed."""

    def __str__(self) -> str:
        return f"refused the metadata of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitUnknown(_OfPosition):
    """The commit has no definite result: it may have been applied."""

    def __str__(self) -> str:
        return f"no answer to the commit of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class DrainTimerFired(_OfAssignment):
    """The time of a drain stage is over."""

    stage: Stage

    def __str__(self) -> str:
        return f"time to drain {self.partition} is over, {self.stage.value} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class RetryTimerFired(_OfAssignment):
    """The delay before the next attempt is over, of these records or tasks, or of the commit for
    None.
    """

    start: Handle | Start | None

    def __str__(self) -> str:
        again = "commit again" if self.start is None else str(self.start)
        return f"time to {again} of {self.partition} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Measured(_OfAssignment):
    """The memory and age of the backlog, which only the runtime knows.

    Attributes:
        size: The bytes of its undone records.
        age: The time since the oldest undone record arrived, in microseconds.
    """

    size: int
    age: Duration

    def __str__(self) -> str:
        return f"{self.partition} holds {self.size} bytes for {seconds(self.age)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class SlotFreed(_OfPartition):
    """A handler of another partition has ended, so one more may run here."""

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

EVENTS: Final = get_args(Event)
"""The classes of events."""
OF_ANY_LIFE: Final = (Revoked, Lost, SlotFreed)
"""Events without a generation."""


@final
@attrs.frozen(cache_hash=True)
class Batch:
    """Events that happened at the same time; the consumer assigns freed executors after all of
    them.
    """

    events: tuple[Event, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.events)) or "nothing"


ConsumerEvent: TypeAlias = Event | Batch
"""An event of a consumer."""

ANSWERS: Final[Mapping[Report, type[Start | Judge | DeliverTasks]]] = {
    Report.SUCCEEDED: Start,
    Report.FAILED: Start,
    Report.RETRIED: Judge,
    Report.SKIPPED: Judge,
    Report.DELIVERED: DeliverTasks,
    Report.UNDELIVERED: DeliverTasks,
}
"""The request that each report answers."""

METADATA_REFUSED: Final = Refused("the metadata of the offset is too large")
"""The reply of a broker that refuses the metadata of a commit.

A runtime must reply with this very value: any other refusal of a commit ends the assignment.
"""


def event_for(command: Effect[object], reply: object) -> Event | None:
    """The event that reports the result of a command; None if there is none.

    Args:
        command: The command.
        reply: What the world replied, or a Failure. User code replies `Tasks` to an arrangement and
            a `Report` to a judgement. It may also reply `RecordsHandled`, `RecordsParked`, an event
            of `tidegate.consumer.fanout`, or None for done.

    Raises:
        Misuse: It is not a command of a partition, or not a reply to it.
    """
    match command:
        case Fetch(partition, generation):
            records = reply if isinstance(reply, Records) else Records(reply if isinstance(reply, tuple) else ())
            _check_records(records.offsets, records.keys, records.again)
            return Fetched(partition, generation, records.offsets, records.keys, records.again, records.is_anew)
        case Work(partition, generation, request):
            if isinstance(reply, BaseException):
                return WorkFailed(partition, generation, request)
            return WorkReported(partition, generation, _report_of(command, reply), request)
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
        case Release() | Interrupt() | Cancel() | WorkUnanswered() | CommitsUnanswered():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a partition")


def _report_of(work: Work, reply: object) -> FanoutEvent | RecordsHandled | RecordsParked:
    match work.request, reply:
        case (
            _,
            TasksReported()
            | WindowArranged()
            | ArrangeFailed()
            | TaskReplaced()
            | RecordsDelivered()
            | WindowDelivered()
            | RecordsHandled()
            | RecordsParked(),
        ):
            return reply
        case Handle(offsets, attempt), None:
            return RecordsHandled(offsets, (), attempt)
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


# --- at the entrance ------------------------------------------------------------------------------

_REQUESTS: Final = get_args(Request)
_KINDS: Final = frozenset(EVENTS)


def check_event(event: Event) -> None:
    """Validate an event from outside. This is the only check of it.

    Raises:
        Misuse: It is not an event of a partition, or a field has a wrong type or is out of range.
    """
    if type(event) not in _KINDS:
        check_type(event, EVENTS, "an event of a partition")
    check_type(event.partition, TopicPartition, "a partition of a topic")
    if not isinstance(event, OF_ANY_LIFE):
        check_int(event.generation, "a generation", -1)
    match event:
        case WorkReported(_, _, what, ended):
            if type(what) is RecordsHandled:
                _check_handled(what)
            elif type(what) is RecordsParked:
                check_numbers(what.offsets, "offsets", OFFSET_MAX)
                check_delay(what.delay, "a delay in microseconds", 0)
                check_int(what.attempt, "the number of an attempt", 1)
            else:
                fanout.check_event(what)
            if ended is not None:
                _check_request(ended)
        case WorkFailed(_, _, request):
            _check_request(request)
        case Assigned(_, _, committed, metadata, end):
            check_int(committed, "a position", 0, OFFSET_MAX + 1)
            check_type(metadata, (str, NoneType), "the metadata of a commit,")
            check_int(end, "the end of a log", 0)
        case Revoked(_, in_flight):
            check_tuple(in_flight, InFlight, "a record in flight")
        case Fetched(_, _, offsets, keys, again, is_anew):
            _check_records(offsets, keys, again)
            check_type(is_anew, bool, "whether there is another record in the place of one")
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
            check_type(start, (Handle, Start, NoneType), "what is to start again,")
            if isinstance(start, Handle):
                _check_request(start)
        case Measured(_, _, size, age):
            check_int(size, "a number of bytes", 0)
            check_int(age, "an age in microseconds", 0)
        case Lost() | SlotFreed():
            pass
        case _:
            assert_never(event)


def _check_handled(what: RecordsHandled) -> None:
    check_numbers(what.done, "offsets", OFFSET_MAX)
    if what.failed:
        check_numbers(what.failed, "offsets", OFFSET_MAX)
        if not {*what.done}.isdisjoint(what.failed):
            raise Misuse("a record is reported both as handled and as failed", todo="name it once")
    check_int(what.attempt, "the number of an attempt", 1)


def _check_request(request: Request) -> None:
    """Validate a request; of windows only the type, because an unknown request is ignored (P3)."""
    check_type(request, _REQUESTS, "a request to user code")
    if isinstance(request, Handle):
        check_numbers(request.offsets, "offsets", OFFSET_MAX)
        check_int(request.attempt, "the number of an attempt", 1)


def _check_records(offsets: tuple[int, ...], keys: tuple[Key, ...], again: tuple[int, ...]) -> None:
    check_numbers(offsets, "offsets", OFFSET_MAX)
    if type(keys) is not tuple or not {*map(type, keys)} <= {bytes, NoneType}:
        raise Misuse("these are not keys of records", why="each is bytes or None, in a tuple")
    if len(keys) not in {0, len(offsets)}:
        raise Misuse(f"{len(keys)} keys of {len(offsets)} records", todo="give one for each, or none at all")
    if again:
        check_numbers(again, "offsets", OFFSET_MAX)
        if not {*again} <= {*offsets}:
            raise Misuse("a record comes again that has not come", todo="name only offsets of these records")
