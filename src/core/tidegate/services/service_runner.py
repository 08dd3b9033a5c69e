"""The program of a runner: a service that runs on one of several runners at a time.

`atomic_service`, `membership` and `executions` decide; this module reads and writes. A beat and the
write of the gate return the store's time, so no runner reads its own clock.

    1  beat, and read the members. Decide whose turn it is among those present when the cycle began.
       Write a skipped run into the history. Reap a dead runner in the gate, in any runner's turn
    2  read the gate, THEN the living members; admit a cleared run, in place of one whose runner is
       gone, by compare-and-set on the token and on the run that was read there
    3  from the store's time of the gate write: is there time left to work? (a gate write that
       matches nothing lost, or is a second copy: read the gate again; it names its run)
    4  work: a program of the user's, under the token of the gate; its targets refuse older ones
       (`fenced`)
    5  however it ended, write the history, THEN leave the gate; repeat until the store replies,
       because a run that stays there blocks all
    6  cut the history by its retention

Laws
    AP1  Each admitted run has the next token, and only an admission makes one.
    AP2  A run leaves the gate only by itself, or when its runner is gone.
    AP3  A write under a token never follows one under a greater token, if the work asks for that
         (`fenced`).
    AP4  A run leaves the gate only after the history has its row, whichever runner removes it.
    AP5  A run does not block others once its runner is seen to be gone.
    AP6  A run reported as over has a row in the history, and is not in the gate.
    AP7  If a skipped run is reported as recorded, the history has a row that says why.
    AP8  A runner present at the start of a cycle that polls in its window has its turn, whichever
         runners join, leave or die meanwhile.
    AP9  A runner presumed dead does not beat, enter or reap: it reports that it is no member any
         more.
    AP10 At rest no run is in the gate if its runner was gone at the last poll of any runner.

Found by the simulator: reading the members before the gate, as the description of the flow says,
reaps a living runner that joined and entered in between. A specimen keeps that order
(`atomic_service.members_before_gate`).

The collections have no prefix: name them if several programs share a database. Work that claims
each run, such as `tidegate.triggers.evaluator`, needs no token.

Known not to work
    - A runner beats when it polls, not while it works: work that takes longer than `dead_after` is
      reaped, unless its process beats beside it.
    - A runner that stalls in its work beyond `dead_after` is reaped, and another run begins: two
      work. The token makes the older one's writes fail (AP3).
    - Step 5 has an end: a runner without a reply after enough attempts reports that, beats no more,
      and is reaped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Filter, Put, PutServerTime
from tidegate.model.effects import (
    Ambiguous,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Program,
    Sleep,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    FindOneAndUpdate,
    StoreTime,
    check_collection,
    delete_one,
    find_one,
    find_one_and_update,
    update_one,
)
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed, one_of
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.retries.attempt_delays import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    AtomicServiceRun,
    Claiming,
    SlotWindowInvalid,
    decide_atomic_service_claim,
)
from tidegate.services.executions import (
    Blocked,
    Execution,
    ExecutionStatus,
    Gate,
    NoMargin,
    admit,
    margin,
    reaped,
    skipped,
)
from tidegate.services.members import SEEN, beat, begin, everybody, leave, membership_of, new_member
from tidegate.services.membership import DEAD_AFTER, Alive, Membership, liveness, runners
from tidegate.services.retention import Retention, surplus

_TOKEN: Final = Field[int]("token")
RUN: Final = Field[str | None]("run")
RUNNER: Final = Field[str | None]("runner")
_STARTED: Final = Field[Instant]("started")
_BY: Final = Field[str]("runner")
_START: Final = Field[Instant]("start")
_END: Final = Field[Instant]("end")
STATUS: Final = Field[str]("status")
REASON: Final = Field[str]("reason")

_INSISTING: Final = 8
_CLAIMING: Final = Claiming()
_WORKS: Final = "works"


def new_gate(service: str) -> Document:
    """Return the record of an empty gate, to insert."""
    check_name(service, "a service")
    return Document.of({"_id": service, "token": 0, "run": None, "runner": None})


def execution_of(record: Document) -> Execution:
    return Execution(
        id=needed(record, ID),
        runner_id=needed(record, _BY),
        start=needed(record, _START),
        status=one_of(ExecutionStatus, needed(record, STATUS)),
        end=needed(record, _END),
        reason=needed(record, REASON),
    )


def gate_of(record: Document) -> Gate:
    token, run, runner = needed(record, _TOKEN), needed(record, RUN), needed(record, RUNNER)
    if run is None or runner is None:
        return Gate(token)
    return Gate(token, Execution(id=run, runner_id=runner, start=needed(record, _STARTED)))


@final
@attrs.frozen
class Completed:
    """The run did its work, is in the history and has left the gate."""

    run: str


@final
@attrs.frozen
class Abandoned:
    """The run was admitted but abandoned, is in the history and has left the gate."""

    run: str
    reason: str


@final
@attrs.frozen
class Skipped:
    """The run was not admitted.

    Attributes:
        is_recorded: The history has a row that says why.
        is_crowded: More runners than have windows: no run is admitted until some have left.
    """

    run: str
    reason: str
    is_recorded: bool
    is_crowded: bool = False


@final
@attrs.frozen
class Unanswered(Attempted):
    """No reply after all attempts: the run is left for other runners to reap."""

    run: str


@final
@attrs.frozen
class NoMember:
    """The runner left, was replaced, or is presumed dead: its process must join under another
    id.
    """

    run: str


ServiceOutcome: TypeAlias = Completed | Abandoned | Skipped | Unanswered | NoMember


Work: TypeAlias = Callable[[AtomicServiceRun, int], Program[bool | Instant]]
"""The user's program of a run, given the run and its token.

It returns False if a greater token's write refused it; else True (the row ends as it starts), or
the store's time when it ended. An exception ends the run as abandoned, and is raised again AFTER
the gate was left, except for a missing reply.
"""


@final
class _NoAnswerError(Exception):
    """No reply after all attempts."""


@final
@attrs.frozen(kw_only=True)
class ServiceRunner:
    """A runner that joins, polls a number of times, and leaves; times are in microseconds.

    Invariants: the names are not empty; 1 <= polls, dead_after, insisting; 0 <= pause, least.

    Attributes:
        me: The runner's id, used for this life only.
        key: The id of the gate.
        pause: The time between polls.
        least: What must be left of a window.
        dead_after: The silence after which a runner is presumed dead.
        keep: How long and how many rows of the history are kept.
        insisting: The attempts of writes that must succeed; None for no limit.
    """

    me: str
    service: AtomicService
    key: str
    work: Work = attrs.field(repr=False)
    polls: int
    pause: Duration = _CLAIMING.check_interval
    least: Duration = _CLAIMING.run_margin_min
    dead_after: Duration = DEAD_AFTER
    members: str = "members"
    gates: str = "gates"
    history: str = "executions"
    keep: Retention = attrs.field(factory=Retention)
    insisting: int | None = _INSISTING
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.me, "a runner")
        check_type(self.service, AtomicService, "a service")
        check_name(self.key, "a service")
        check_int(self.polls, "a number of polls", 1)
        check_int(self.pause, "a pause in microseconds", 0)
        check_int(self.least, "what has to be left in microseconds", 0)
        check_int(self.dead_after, "a time of silence in microseconds", 1)
        check_attempts(self.insisting, self.pauses)
        check_callable(self.work, "the work of a run")
        check_type(self.keep, Retention, "how long rows are kept")
        for collection in (self.members, self.gates, self.history):
            check_collection(collection)

    async def run(self) -> tuple[ServiceOutcome, ...]:
        outcomes: tuple[ServiceOutcome, ...] = ()
        if not await self._joined():
            return outcomes
        for poll in range(self.polls):
            if poll:
                await Sleep(self.pause)
            outcome = await self.attempt(f"{self.me}.{poll}")
            outcomes = (*outcomes, outcome)
            if isinstance(outcome, (Unanswered, NoMember)):
                return outcomes  # do not leave: others reap its run once it is silent
        try:
            await leave(self.members, self.me)
        except (Ambiguous, NotApplied, NotDurable):
            return outcomes  # others see its silence
        return outcomes

    async def _joined(self) -> bool:
        try:
            await insert_new(self.members, new_member(self.me))
            await begin(self.members, self.me)
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    async def attempt(self, run_id: str) -> ServiceOutcome:
        try:
            beaten = await self._beat()
            if beaten is None:
                return NoMember(run_id)
            records = await everybody(self.members)
        except (Ambiguous, NotApplied, NotDurable):
            return Skipped(run_id, "no reply", is_recorded=False)
        now = beaten[SEEN]
        known = membership_of(records, self.dead_after)
        if not isinstance(liveness(known, self.me, now), Alive):
            return NoMember(run_id)
        claim = decide_atomic_service_claim(
            service=self.service,
            runner_id=self.me,
            runners=runners(known, self.service.cycle_start(now)),
            now=now,
            run_id=run_id,
        )
        if not isinstance(claim.verdict, Assigned):
            is_recorded = False
            for row in skipped(claim, run_id=run_id, now=now):
                is_recorded = await self._record(row)
            await self._reap(_living(known, now), now)
            is_crowded = isinstance(claim.verdict, SlotWindowInvalid)
            return Skipped(run_id, str(claim.verdict), is_recorded=is_recorded, is_crowded=is_crowded)
        return await self._entered(claim.verdict.run, _living(known, now))

    async def _entered(self, run: AtomicServiceRun, live: tuple[str, ...]) -> ServiceOutcome:
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.insisting, attempt, since):
                break
            attempt += 1
            try:
                record = await find_one(self.gates, Eq(ID, self.key))
                if record is None:
                    raise Misuse(f"there is no gate {self.key!r}", todo="insert new_gate(service)")
                gate = gate_of(record)
                if gate.active is not None and gate.active.id != run.run_id:
                    looked = await self._look()
                    if looked is None:
                        return NoMember(run.run_id)
                    live = looked
                verdict = admit(gate, run, live=live, now=run.started)
                if isinstance(verdict, Blocked):
                    is_recorded = await self._record(verdict.execution)
                    return Skipped(run.run_id, verdict.execution.reason, is_recorded=is_recorded)
                for row in verdict.reaped:
                    await _end(self, row)  # BEFORE the gate is written, or a crash in between loses the row (AP4)
                if verdict.gate.active == gate.active:  # the run is already in the gate, after a lost reply
                    return await self._at_work(run, gate.token, record[_STARTED])
                written = await find_one_and_update(
                    self.gates,
                    _unchanged(self.key, gate),
                    Put(_TOKEN, verdict.gate.token),
                    Put(RUN, run.run_id),
                    Put(RUNNER, run.runner_id),
                    PutServerTime(_STARTED),
                )
            except (Ambiguous, NotApplied, NotDurable):
                continue
            if written is not None:
                return await self._at_work(run, written[_TOKEN], written[_STARTED])
        return Unanswered(run.run_id)

    async def _at_work(self, run: AtomicServiceRun, token: int, entered: Instant) -> ServiceOutcome:
        """Work if there is time, record how it ended, and leave the gate."""
        left = margin(run, self.least, entered)
        outcome: ServiceOutcome
        failure: Exception | None = None
        end = entered
        if isinstance(left, NoMargin):
            outcome, row = (
                Abandoned(run.run_id, str(left)),
                _row(run, entered, end, ExecutionStatus.ABANDONED, str(left)),
            )
        else:
            await Note(_WORKS, run.run_id)
            try:
                answer = await self.work(run, token)
                why = "" if answer else "fenced"
                end = _no_earlier(entered, answer) if isinstance(answer, Instant) else entered
            except (Ambiguous, NotApplied, NotDurable):
                why = "no reply"
            except Exception as failed:  # noqa: BLE001  leave the gate in every case, then raise again
                why = f"failed: {type(failed).__name__}"
                failure = failed.fresh() if isinstance(failed, Failure) else failed
                end = await _now(entered)
            await Note(_WORKS, None)
            status = ExecutionStatus.ABANDONED if why else ExecutionStatus.COMPLETED
            outcome = Abandoned(run.run_id, why) if why else Completed(run.run_id)
            row = _row(run, entered, end, status, why)
        try:
            await self._insist(row, token)
        except _NoAnswerError:
            outcome = Unanswered(run.run_id)
        else:
            await self._cut(entered)
        if failure is not None:
            raise failure
        return outcome

    async def _cut(self, now: Instant) -> None:
        """Delete old and excess rows. Without a reply, the next run continues."""
        try:
            found = await find_every(self.history)
            rows = tuple([execution_of(each).row for each in found])
            for gone in surplus(rows, self.keep, now=now):
                await delete_one(self.history, Eq(ID, gone))
        except (Ambiguous, NotApplied, NotDurable):
            return

    def _beat(self) -> FindOneAndUpdate:
        return beat(self.members, self.me, self.dead_after)

    async def _look(self) -> tuple[str, ...] | None:
        """Return the living members, None if this runner is not one.

        Read AFTER the gate, because the runner in it may have joined since.
        """
        beaten = await self._beat()
        if beaten is None:
            return None
        records = await everybody(self.members)
        return _living(membership_of(records, self.dead_after), beaten[SEEN])

    async def _reap(self, live: tuple[str, ...], now: Instant) -> None:
        """Remove a gone runner's run from the gate, outside this runner's turn (AP10)."""
        try:
            record = await find_one(self.gates, Eq(ID, self.key))
            gate = Gate() if record is None else gate_of(record)
            if gate.active is None or gate.active.runner_id in live:
                return
            looked = await self._look()
            if looked is None:
                return
            for row in reaped((gate.active,), live=looked, now=now):
                await _end(self, row)  # AP4
                await self._leave(row, gate.token)
        except (Ambiguous, NotApplied, NotDurable):
            return  # the next poll of any runner retries

    async def _insist(self, row: Execution, token: int) -> None:
        """Write the history, THEN leave the gate, until the store replies."""
        since = await begins(self.pauses)
        attempt = 0
        is_recorded = False
        while True:
            if not await goes_on(self.pauses, self.insisting, attempt, since):
                break
            attempt += 1
            try:
                if not is_recorded:
                    await _end(self, row)
                    is_recorded = True
                await self._leave(row, token)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            return
        raise _NoAnswerError

    async def _leave(self, row: Execution, token: int) -> None:
        inside = AllOf((Eq(ID, self.key), Eq(_TOKEN, token), Eq(RUN, row.id)))
        await update_one(self.gates, inside, Put(RUN, None), Put(RUNNER, None))

    async def _record(self, row: Execution) -> bool:
        """Write a row for people; return False, without a retry, if there was no reply."""
        try:
            await _end(self, row)
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True


def _living(known: Membership, now: Instant) -> tuple[str, ...]:
    return tuple(member.id for member in known.members if isinstance(liveness(known, member.id, now), Alive))


def _unchanged(key: str, gate: Gate) -> Filter:
    active = None if gate.active is None else gate.active.id
    return AllOf((Eq(ID, key), Eq(_TOKEN, gate.token), Eq(RUN, active)))


# --- rows of the history --------------------------------------------------------------------------


def _row(run: AtomicServiceRun, start: Instant, end: Instant, status: ExecutionStatus, reason: str) -> Execution:
    return Execution(id=run.run_id, runner_id=run.runner_id, start=start, status=status, end=end, reason=reason)


def _no_earlier(than: Instant, found: Instant) -> Instant:
    # The store's clock may have been set back meanwhile.
    return found if found - than > 0 else than


async def _now(entered: Instant) -> Instant:
    """Return the store's time; without a reply, the time of entry."""
    try:
        return _no_earlier(entered, await StoreTime())
    except (Ambiguous, NotApplied, NotDurable):
        return entered


async def _end(runner: ServiceRunner, row: Execution) -> None:
    """Insert the row once: the first end of a run counts."""
    doc = Document.of(
        {
            "_id": row.id,
            "runner": row.runner_id,
            "start": row.start,
            "end": row.end,
            "status": row.status.value,
            "reason": row.reason,
        }
    )
    await insert_new(runner.history, doc)
