"""The commands of a partition and its events: the words between a consumer and whoever carries its commands out.

A command is an effect that is not awaited. What becomes of it comes back as an event, any time later and in any order, and
`event_for` says which. Each command and event names the partition, and nearly each the generation of the assignment that it
belongs to, so that whoever gets an older one can tell.

User code is asked through `Work`. Where each record has a handler and no more, it is asked to `Handle` records: each by itself,
however many one command names, and one `RecordsHandled` tells of as many as have ended. Where there is more to it, it is asked
to arrange a window, to run tasks, to judge failures, to deliver (`tidegate.consumer.fanout`). When user code raises, that is an
event like others, `WorkFailed`.

A `Handle` of several records is the same as one for each, and a `RecordsHandled` the same as one for each. So whoever carries
commands out keeps account of records, and not of commands: an `Interrupt` or a `Cancel` names records as they are in work by
then, in other batches than those in which they were begun.

    Work of Handle    call the handler with each record             RecordsHandled: of any of them, as they end, in any batches;
                                                                    or RecordsParked, in the same way
    Work of the rest  ask user code once                            WorkReported with `ended`, or WorkFailed: once; before that,
                                                                    as many WorkReported without `ended` as it likes
    Interrupt         cancel what user code does there              the event of the work itself, once it has ended
    Cancel of Work    the same, and nobody waits for the end        the event of the work itself, which changes nothing
    WorkUnanswered,   tell the people who run it                    nothing
    CommitsUnanswered

What comes to an end at the same time, of one partition or of several, is told to a consumer as one `Batch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.consumer import fanout
from tidegate.consumer._offsets import check_numbers, ranges
from tidegate.consumer.drain import InFlight, Stage
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
from tidegate.consumer.watermark import OFFSET_MAX
from tidegate.model.documents import show
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.retries.backoff import check_delay


@attrs.frozen
class _OfPartition:
    """What names a partition."""

    partition: TopicPartition


@attrs.frozen
class _OfAssignment(_OfPartition):
    """What names a partition and the generation of an assignment of it, which is -1, Kafka's word for none, or more."""

    generation: int


@attrs.frozen
class _OfPosition(_OfAssignment):
    """What names a position, too. Invariant: 0 <= position <= OFFSET_MAX + 1."""

    position: int


# --- commands -------------------------------------------------------------------------------------


Key: TypeAlias = bytes | None
"""The key of a record; None is not a key."""


@final
@attrs.frozen(cache_hash=True)
class Records:
    """Records that came: their offsets, and the key of each, or no keys where the order of work does not depend on them.

    `again` and `is_anew` say what is known of them from an earlier life of the partition, as in `Fetched`.
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
    """Fetch records from the position on; it replies their offsets, or `Records` with their keys, once there are any."""

    def __str__(self) -> str:
        return f"fetch {self.partition} from {self.position} (generation {self.generation})"


@final
@attrs.frozen
class Handle:
    """Call the handler with each of these records by itself.

    Attributes:
        offsets: The records, in order.
        attempt: Which attempt at them it is, from 1 on.
    """

    offsets: tuple[int, ...]
    attempt: int = 1

    def __str__(self) -> str:
        return f"handle {ranges(self.offsets)}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


Request: TypeAlias = Handle | UserRequest
"""What user code is asked for."""


@final
@attrs.frozen(cache_hash=True)
class Work(_OfAssignment, Effect[object]):
    """Ask user code for something; what it replies tells which event it is (`event_for`).

    Of the records in `DeliverRecords.to_dead_letter` it answers for the failure. Where records are handled without windows,
    the number of a window is the offset of its record.

    Attributes:
        partition: Which one.
        generation: Of the assignment.
        request: What is asked for.
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
    """Ask user code to end now. If it ends, that is the event of the work itself."""

    work: Work

    def __str__(self) -> str:
        return f"interrupt {self.work}"


@final
@attrs.frozen(cache_hash=True)
class Commit(_OfPosition, Effect[None]):
    """Commit the position: everything below it is done. The metadata tells what beyond it is (`commit_metadata`)."""

    metadata: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.metadata)} characters of metadata" if self.metadata else ""
        return f"commit {self.partition} @{self.position}{more} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartDrainTimer(_OfAssignment, Effect[None]):
    """Wait for the time of a stage of draining to be over."""

    stage: Stage
    duration: Duration

    def __str__(self) -> str:
        what = f"{self.partition} to drain, {self.stage.value}"
        return f"wait {seconds(self.duration)} for {what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class StartRetryTimer(_OfAssignment, Effect[None]):
    """Wait until what has failed is tried again: these records or tasks, or the commit.

    Attributes:
        partition: Which one.
        generation: Of the assignment.
        start: The records or tasks; None for the commit.
        duration: How long.
        jitter_ppm: Which part of that is left out, at most; how much of it is for whoever waits to draw.
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
    """Let the partition go, as the group has asked: no command for it follows. Each `Revoked` has one."""

    def __str__(self) -> str:
        return f"release {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class WorkUnanswered(_OfAssignment, Effect[None]):
    """Tell the people who run it: user code has ended without an answer for all it was asked for, so the rest has failed."""

    request: Request

    def __str__(self) -> str:
        return f"say that {self.request} of {self.partition} was not answered (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitsUnanswered(_OfPosition, Effect[None]):
    """Tell the people who run it: that many commits in a row had no answer."""

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
    """The partition is ours.

    Attributes:
        partition: Which one.
        generation: From this one on.
        committed: The group's position; where there is none, where the partition begins.
        metadata: What was committed along with it. None where nothing was, and another owner may find another beginning: at the
            end of the log, say, by a setting of its own, or at the first record that is left where the position was removed.
        end: One past the last offset of the log, as far as it is known; metadata that speaks of more is not believed.
    """

    committed: int
    metadata: str | None = attrs.field(default="", repr=False)
    end: int = 0

    def __str__(self) -> str:
        return f"assigned {self.partition} from {self.committed} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Revoked(_OfPartition):
    """The group wants the partition back; it waits until it is released.

    Attributes:
        partition: Which one.
        in_flight: What is known of the records in work, in any order; a record that is in several works may be named for
            each. Nothing is known of those that are not named.
    """

    in_flight: tuple[InFlight, ...] = ()

    def __str__(self) -> str:
        return f"revoked {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Lost(_OfPartition):
    """The group has taken the partition already.

    So it has where the client's generation was reset, because its member was put out or fenced: whoever carries out the
    commands says so BEFORE anything else is committed, and never commits without a generation. A group without members
    takes such a commit from anybody, and its position falls (`tidegate explore partition.resets_its_generation`).
    """

    def __str__(self) -> str:
        return f"lost {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Fetched(_OfAssignment):
    """Records came. Invariant: there are as many keys as offsets, or none.

    Attributes:
        partition: Which one.
        generation: Of the assignment.
        offsets: Theirs.
        keys: Theirs; empty where the order of work does not depend on them.
        again: Which of them whoever tells this knows from an earlier life of the partition: the same in all that they carry, and not
            only in their offsets, for a topic may have been made anew.
        is_anew: Whether there is another in the place of one that is known.
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
    """The handlers of these records have ended, at this attempt; well, or badly.

    Attributes:
        done: The records that were handled, in any order.
        failed: Those at which the handler raised, in any order.
        attempt: Which attempt it was.
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
    """The handlers of these records have ended, and ask to be called again later: neither well nor badly.

    Attributes:
        offsets: The records, in any order.
        delay: How long to wait until then, in microseconds.
        attempt: Which attempt it was, and will be again.
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
    """User code has reported something of its records, or of a window.

    Attributes:
        partition: Which one.
        generation: Of the assignment.
        what: What it has reported.
        ended: What was asked for, where that has ended with this: whatever of it is not answered by now has failed.
    """

    what: FanoutEvent | RecordsHandled | RecordsParked
    ended: Request | None = None

    def __str__(self) -> str:
        return f"{self.partition} reports {self.what} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class WorkFailed(_OfAssignment):
    """User code raised, or was interrupted: nothing came of the work, or of what is left of it."""

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
    """The group no longer lets this generation commit."""

    def __str__(self) -> str:
        return f"refused to commit {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class MetadataRefused(_OfPosition):
    """The broker does not take the metadata; the position is not committed."""

    def __str__(self) -> str:
        return f"refused the metadata of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitUnknown(_OfPosition):
    """Nobody knows whether the position was committed."""

    def __str__(self) -> str:
        return f"no answer to the commit of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class DrainTimerFired(_OfAssignment):
    """The time of a stage of draining is over."""

    stage: Stage

    def __str__(self) -> str:
        return f"time to drain {self.partition} is over, {self.stage.value} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class RetryTimerFired(_OfAssignment):
    """The time until these records or tasks are tried again is over; or the commit, for None."""

    start: Handle | Start | None

    def __str__(self) -> str:
        again = "commit again" if self.start is None else str(self.start)
        return f"time to {again} of {self.partition} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Measured(_OfAssignment):
    """How much the partition holds up, which only the holder of the records and the clock knows.

    Attributes:
        partition: Which one.
        generation: Of the assignment.
        size: How many bytes its undone records take.
        age: How long ago the oldest undone one came, in microseconds.
    """

    size: int
    age: Duration

    def __str__(self) -> str:
        return f"{self.partition} holds {self.size} bytes for {seconds(self.age)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class SlotFreed(_OfPartition):
    """Elsewhere a handler has ended, so one more may run here."""

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
OF_ANY_LIFE: Final = (Revoked, Lost, SlotFreed)
"""Events that name no generation."""
"""Their classes."""


@final
@attrs.frozen(cache_hash=True)
class Batch:
    """What has happened at the same time; executors that it frees are given out after all of it."""

    events: tuple[Event, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.events)) or "nothing"


ConsumerEvent: TypeAlias = Event | Batch
"""What a consumer is told."""

ANSWERS: Final[Mapping[Report, type[Start | Judge | DeliverTasks]]] = {
    Report.SUCCEEDED: Start,
    Report.FAILED: Start,
    Report.RETRIED: Judge,
    Report.SKIPPED: Judge,
    Report.DELIVERED: DeliverTasks,
    Report.UNDELIVERED: DeliverTasks,
}
"""Which request a report answers."""

METADATA_REFUSED: Final = Refused("the metadata of the offset is too large")
"""What a broker that does not take the metadata of a commit answers.

A runtime answers with this very value: the whole text decides, for a commit that is refused otherwise ends the assignment.
"""


def event_for(command: Effect[object], reply: object) -> Event | None:
    """The event that says what became of a command; None where nothing follows.

    Args:
        command: What was to be done.
        reply: What the world answered, a Failure included. User code that was asked to arrange answers `Tasks`, that was
            asked to judge answers a `Report`; it may answer `RecordsHandled`, `RecordsParked`, any event of `tidegate.consumer.fanout`, or
            None: done.

    Raises:
        Misuse: It is not a command of a partition, or not an answer to it.
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
    """What user code has reported by its reply."""
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
"""What names no generation."""


def check_event(event: Event) -> None:
    """Look at an event that comes from outside; nobody else does.

    Args:
        event: What happened.

    Raises:
        Misuse: It is not an event of a partition, or one of its fields is of another type, or out of range.
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
    """Look at what was asked for; of windows only the type, for what is not asked for is ignored."""
    check_type(request, _REQUESTS, "a request to user code")
    if isinstance(request, Handle):
        check_numbers(request.offsets, "offsets", OFFSET_MAX)
        check_int(request.attempt, "the number of an attempt", 1)


def _check_records(offsets: tuple[int, ...], keys: tuple[Key, ...], again: tuple[int, ...]) -> None:
    """Raise Misuse unless these are offsets, and there are as many keys, or none; what comes again is among them."""
    check_numbers(offsets, "offsets", OFFSET_MAX)
    if type(keys) is not tuple or not {*map(type, keys)} <= {bytes, NoneType}:
        raise Misuse("these are not keys of records", why="each is bytes or None, in a tuple")
    if len(keys) not in {0, len(offsets)}:
        raise Misuse(f"{len(keys)} keys of {len(offsets)} records", todo="give one for each, or none at all")
    if again:
        check_numbers(again, "offsets", OFFSET_MAX)
        if not {*again} <= {*offsets}:
            raise Misuse("a record comes again that has not come", todo="name only offsets of these records")
