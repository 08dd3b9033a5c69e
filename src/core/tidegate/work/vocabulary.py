"""The values of a worker process: its rules, its runs, and its commands."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeAlias, final

import attrs

from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, SECOND, Duration, seconds
from tidegate.model.operations import UPDATES_MAX
from tidegate.model.sealed import sealed
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.retries.polling import PollingBounds

# --- runs -----------------------------------------------------------------------------------------


class Identified(Protocol):
    """One claim of a record."""

    @property
    def id(self) -> str: ...

    @property
    def token(self) -> int:
        """The version or fencing token of the claim; unique among the claims of a record."""
        ...


@final
@attrs.frozen(cache_hash=True)
class Run:
    """A claim of a record whose handler this process calls; equal if task, id and token are.

    Invariants: the task and the id are not empty; 1 <= token, timeout.

    Attributes:
        timeout: How long its handler may take, in microseconds; None for no limit.
        rejected: The result of a run that is not to be started; None for others.
        detail: Data for the handler; the worker does not read it.
    """

    task: str
    id: str
    token: int
    timeout: Duration | None = attrs.field(default=None, eq=False)
    rejected: object = attrs.field(default=None, eq=False, repr=False)
    detail: object = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_name(self.id, "the id of a record")
        check_int(self.token, "the token of a claim", 1)
        if self.timeout is not None:
            check_int(self.timeout, "a timeout in microseconds", 1)


class InterruptReason(Enum):
    """Why a handler is interrupted."""

    CANCEL = "it was cancelled"
    KILL = "it is to run elsewhere"
    LOST = "it is another's now, or has ended"
    TOO_LONG = "it has taken longer than its task allows"
    LEASE_LOST = "its lease is lost"
    SILENT = "this process was silent for too long"
    STOPPING = "the time to stop is over"
    LATE = "it was taken ahead, and has waited for too long"


class NoAnswer(Enum):
    """Takes the place of an answer."""

    NO_ANSWER = "the handler was not called, or was interrupted before it answered"


class Slot(Enum):
    """Whether a run has one of the slots in which handlers run."""

    NEXT = "it is started when there is a slot"
    HAS = "it has a slot"
    AWAY = "it waits for other runs, and has given its slot away"
    WANTS = "it resumes when there is a slot"
    WITHOUT = "it was interrupted while it waited, and resumes without a slot"


@final
@sealed
class Result:
    """The result of a run, to be written to its record.

    If `is_last`, the worker drops it if the store refuses it.
    """

    run: Run
    life: int
    value: object
    is_last: bool = False


class ResultRules(Protocol):
    """Makes the results of runs; the worker only carries them."""

    def result(self, run: Run, answer: object, why: InterruptReason | None) -> object:
        """Return the result of a run, from its handler's answer and the reason of its
        interruption.
        """
        ...

    @property
    def refused(self) -> object:
        """The result that replaces one that the store refuses for good; None to retry that one."""
        ...


# --- rules ----------------------------------------------------------------------------------------


@final
@attrs.frozen
class ByLease:
    """Each claim has a lease (`Queue.lease`). The process renews it; others take expired ones."""


@final
@attrs.frozen(kw_only=True)
class ByLife:
    """A process sends heartbeats, and holds its claims while it is alive; both in microseconds.

    Invariant: 1 <= heartbeat_every < dead_after, which is the same for all.
    """

    heartbeat_every: Duration
    dead_after: Duration

    def __attrs_post_init__(self) -> None:
        check_int(self.heartbeat_every, "an interval of heartbeats in microseconds", 1)
        check_int(self.dead_after, "a time of silence in microseconds", self.heartbeat_every + 1)


@final
@attrs.frozen(kw_only=True)
class Queue:
    """A queue that a worker polls. Invariants: the name is not empty; 1 <= lease.

    Attributes:
        lease: How long a claim lasts unless renewed, in microseconds; None if liveness is by life.
        group: One request polls all queues of a group that have no known due work.
    """

    name: str
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    lease: Duration | None = None
    group: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a queue")
        check_type(self.polling, PollingBounds, "the bounds of an interval")
        if self.lease is not None:
            check_int(self.lease, "a lease in microseconds", 1)
        if self.group is not None:
            check_name(self.group, "a group of queues")


@final
@attrs.frozen(kw_only=True)
class WorkerRules:
    """How a process works.

    Invariants: queue names are distinct, and each queue has a lease if liveness is by lease; a
    process that prefetches has one queue; 1 <= concurrency; 1 <= batch, results_max <= UPDATES_MAX;
    0 <= drain, leave; 0 <= draw_ppm <= PPM.

    Attributes:
        concurrency: How many handlers run at a time: the number of slots.
        batch: The most runs taken in a request.
        results_max: The most results written in a request.
        prefetch: Whether to take more runs than there are slots if handlers are short.
        drain: How long handlers may continue after a stop request, in microseconds.
        leave: How long the worker may write results after that, in microseconds.
        draw_ppm: How much of the polling jitter is added; another for each process.
    """

    queues: tuple[Queue, ...]
    results: ResultRules = attrs.field(repr=False)
    liveness: ByLease | ByLife = ByLease()
    concurrency: int = 10
    batch: int = 100
    results_max: int = 100
    prefetch: bool = False
    drain: Duration = 20 * SECOND
    leave: Duration = 5 * SECOND
    draw_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_tuple(self.queues, Queue, "a queue")
        if len(self.places) < len(self.queues):
            raise Misuse("two queues of one name", todo="give each a name of its own")
        check_callable(getattr(self.results, "result", None), "what the results of runs are")
        check_type(self.liveness, (ByLease, ByLife), "how a process keeps its claims")
        if isinstance(self.liveness, ByLease) and any(queue.lease is None for queue in self.queues):
            raise Misuse("a queue without a lease", todo="say how long a claim holds, or pass ByLife")
        check_int(self.concurrency, "a number of handlers", 1)
        check_int(self.batch, "a number of runs", 1, UPDATES_MAX)
        check_int(self.results_max, "a number of results", 1, UPDATES_MAX)
        check_type(self.prefetch, bool, "prefetch")
        if self.prefetch and len(self.queues) > 1:
            raise Misuse("prefetch with several queues", todo="pass one queue, or prefetch=False")
        check_int(self.drain, "a time to drain in microseconds", 0)
        check_int(self.leave, "a time to leave in microseconds", 0)
        check_int(self.draw_ppm, "a draw in parts per million", 0, PPM)

    @cached_property
    def places(self) -> Mapping[str, int]:
        return {queue.name: place for place, queue in enumerate(self.queues)}

    def queue(self, name: str) -> Queue | None:
        check_name(name, "a queue")
        place = self.places.get(name)
        return None if place is None else self.queues[place]


# --- commands -------------------------------------------------------------------------------------

Runs: TypeAlias = tuple[Run, ...]
Results: TypeAlias = tuple[Result, ...]
Ended: TypeAlias = tuple[tuple[Run, object], ...]
Dues: TypeAlias = tuple[tuple[str, Duration], ...]


@final
@attrs.frozen
class PollResult:
    """The result of a poll.

    Attributes:
        is_more: Whether more may be due.
        due_in: When the next one is due, in microseconds from now; None if unknown.
        lost: How many claims were lost to other processes.
        cursor: Where the next poll begins.
        has_failed: Whether the store did not reply, or refused.
        is_uncertain: Whether more than `runs` may be claimed, now or later.
    """

    runs: Runs = ()
    is_more: bool = False
    due_in: Duration | None = None
    lost: int = 0
    cursor: str | None = None
    has_failed: bool = False
    is_uncertain: bool = False


@final
@attrs.frozen(cache_hash=True)
class Poll(Effect[PollResult]):
    """Claim due work of a queue, for this life, at most `most` runs.

    Attributes:
        factor: Choose among this many times as many records (`tidegate.retries.contention`).
        cursor: The cursor of the poll before.
    """

    queue: str
    most: int
    factor: int = 1
    cursor: str | None = None
    life: int = 1

    def __str__(self) -> str:
        return f"poll {self.queue}, {self.most} at most{f', of {self.factor * self.most}' if self.factor > 1 else ''}"


@final
@attrs.frozen(cache_hash=True)
class PollGroup(Effect[Dues]):
    """Find out how soon work is due in these queues of one group, up to that time."""

    group: str
    queues: tuple[str, ...]
    within: Duration

    def __str__(self) -> str:
        return f"ask what is due in {len(self.queues)} queues of {self.group} within {seconds(self.within)}"


@final
@attrs.frozen(cache_hash=True)
class CapacityGranted(Effect[None]):
    """Let a planner in this process claim runs of a queue instead of a poll, unless `most` is 0.

    `most` is not compared, so the reply need not know it.
    """

    queue: str
    request: str
    most: int = attrs.field(default=0, eq=False)

    def __str__(self) -> str:
        return f"let the planner of {self.queue} claim {self.most} at most"


@final
@attrs.frozen(cache_hash=True)
class StartHandlers(Effect[Ended]):
    """Call the handlers of these runs; any number of events report their ends."""

    runs: Runs

    def __str__(self) -> str:
        return f"start {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Resume(Effect[None]):
    """Let these suspended runs continue: they have slots again, or were interrupted."""

    runs: Runs

    def __str__(self) -> str:
        return f"resume {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Interrupt(Effect[None]):
    """End the handlers of these runs."""

    runs: Runs
    why: InterruptReason

    def __str__(self) -> str:
        return f"interrupt {len(self.runs)}: {self.why.value}"


@final
@attrs.frozen
class WriteReply:
    """The result of a request to write results.

    Attributes:
        left: The results that may or may not be written.
        is_more: Whether the write made work due, or may have.
        lost: The results not written because their records have changed.
        dues: When records are due again after the write, in microseconds from now.
    """

    left: Results = ()
    is_more: bool = False
    lost: Results = ()
    dues: tuple[Duration, ...] = ()


@final
@attrs.frozen(cache_hash=True)
class WriteResults(Effect[WriteReply]):
    """Write these results, of runs of one queue and one life."""

    queue: str
    results: Results

    def __str__(self) -> str:
        return f"write {len(self.results)} results of {self.queue}"


class Renewal(Enum):
    """The result of renewing a lease."""

    RENEWED = "the lease goes on"
    BUSY = "the open transaction of its own handler holds the record: the lease is not written, and cannot be lost"
    LOST = "the record is another's, or gone"
    UNKNOWN = "nobody knows"


@final
@attrs.frozen(cache_hash=True)
class RenewLeases(Effect[tuple[Renewal, ...]]):
    """Renew the leases of these runs; the reply has a result for each."""

    queue: str
    runs: Runs

    def __str__(self) -> str:
        return f"renew {len(self.runs)} leases of {self.queue}"


@final
@attrs.frozen(cache_hash=True)
class ReturnUntracked(Effect[int]):
    """Give back this process's claims in a queue except these runs; the reply is their number."""

    queue: str
    tracked: Runs

    def __str__(self) -> str:
        return f"give back the claims of this process in {self.queue} but for {len(self.tracked)}"


@final
@attrs.frozen
class HeartbeatReply:
    """The runs that must be interrupted or are lost, and the other claims of this process."""

    asked: tuple[tuple[Run, InterruptReason], ...] = ()
    untracked: tuple[Identified, ...] = ()


@final
@attrs.frozen(cache_hash=True)
class Heartbeat(Effect["HeartbeatReply | None"]):
    """Join as the member of this life, or renew it, and check its claims.

    The reply is None if that member is gone. `untracked` claims are given back if unchanged.
    """

    life: int
    runs: Runs
    untracked: tuple[Identified, ...] = ()

    def __str__(self) -> str:
        return f"send a heartbeat for {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Leave(Effect[None]):
    """End the membership of this life."""

    life: int

    def __str__(self) -> str:
        return "leave"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[None]):
    """Send `TimerFired` after this time, in microseconds; replaces the timer before."""

    duration: Duration

    def __str__(self) -> str:
        return f"wake in {seconds(self.duration)}"


Request: TypeAlias = Poll | PollGroup | CapacityGranted | WriteResults | RenewLeases | ReturnUntracked | Heartbeat
WorkerCommand: TypeAlias = Request | StartHandlers | Resume | Interrupt | Leave | StartTimer
