"""A service that runs on one of several runners at a time: slots, a gate behind them, and a history beside it.

What is decided is in `tidegate.services.atomic_service`, `tidegate.services.membership` and `tidegate.services.executions`; this is what is asked of
the store, and when. Nobody reads a clock of its own: a beat replies what the store's clock shows, and so does the write of
the gate. So a machine whose clock is wrong, or jumps, takes part like any other.

    1  beat, and read who is there; decide whose turn it is. A skipped run is told in the history
    2  read the gate, THEN who is alive; a run that was cleared is let in, in place of one whose runner is gone, by
       compare-and-set on the token and on the run that was read there
    3  from what the store's clock showed when the gate was written: is there time left to work?
    4  work, under the token of the gate; what is written to refuses older ones
    5  whatever happened, tell the history, then leave the gate: insisted upon, for a run that stays there blocks all

Laws
    AP1  Each run that is let in has the next token, and nothing else makes one.
    AP2  A run is put out of the gate only by itself, or when its runner is gone.
    AP3  What is written under a token is never written after a greater one.
    AP4  A run leaves the gate only after the history tells of it, whoever puts it out.
    AP5  A run is blocked by none whose runner was gone when it looked.
    AP6  Who says that its run is over is right: it has a row in the history, and is not in the gate.
    AP7  Who was skipped and says that this is told finds a row that says why.

Found by the simulator: to read who is alive before the gate, as the description of the flow has it, lets a runner be put
out that is alive. It joined after the list was read, and stood in the gate when that was read. The described order is kept
as a specimen (`atomic_service.members_before_gate`).

Where we differ from pynenc, see `tidegate.services.executions`: its gate has no token and nobody reaps, so a runner that is killed
at work stops all services, and one that was only slow writes over the next.

Known not to work
    - A runner that stalls in its work beyond `dead_after` is reaped, and another run begins: two are at work. The token
      keeps what the older one writes from counting (AP3).
    - Insisting has an end. A runner that has asked in vain so many times says so, beats no more, and is reaped.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.leases.leader import fenced
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Filter, Put, PutServerTime, Update
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, NotApplied, NotDurable, Note, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    UpdateOne,
    check_collection,
    find_one,
    find_one_and_update,
    insert_one,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    AtomicServiceRun,
    Runner,
    decide_atomic_service_claim,
)
from tidegate.services.executions import (
    Admitted,
    Blocked,
    Execution,
    ExecutionStatus,
    Gate,
    NoMargin,
    admit,
    margin,
    skipped,
)
from tidegate.services.members import SEEN, announce, beat, begin, everybody, leave, membership_of
from tidegate.services.membership import Alive, liveness, runners

TOKEN: Final = Field[int]("token")
RUN: Final = Field[str | None]("run")
RUNNER: Final = Field[str | None]("runner")
STARTED: Final = Field[Instant]("started")
STATUS: Final = Field[str]("status")
REASON: Final = Field[str]("reason")

INSISTING: Final = 8
WORKS: Final = "works"
"""The note of a runner: which run it is at work on."""


def new_gate(service: str) -> Document:
    """The record of a gate that nobody stands in, to insert: where the id is taken, another did."""
    check_name(service, "a service")
    return Document.of({"_id": service, "token": 0, "run": None, "runner": None})


def gate_of(record: Document) -> Gate:
    """The gate that a record holds.

    Raises:
        Misuse: It is no record of a gate.
    """
    token, run, runner = needed(record, TOKEN), needed(record, RUN), needed(record, RUNNER)
    if run is None or runner is None:
        return Gate(token)
    return Gate(token, Execution(id=run, runner_id=runner, start=needed(record, STARTED)))


@final
@attrs.frozen
class Ran:
    """The run did its work, told so and left the gate."""

    run: str


@final
@attrs.frozen
class Over:
    """The run was let in, did not work, told so and left the gate."""

    run: str
    reason: str


@final
@attrs.frozen
class Skipped:
    """The run was not let in; `is_told` in the history, where somebody should know why."""

    run: str
    reason: str
    is_told: bool


@final
@attrs.frozen
class Unanswered:
    """Nobody answered, often enough: what was begun is left to those who reap."""

    run: str


ServiceOutcome: TypeAlias = Ran | Over | Skipped | Unanswered


@final
class _Gone(Exception):  # noqa: N818  control flow of this program, never seen outside
    """Nobody answered, often enough."""


@attrs.frozen(kw_only=True)
class ServiceRunner:
    """A runner that joins, polls so many times, and leaves.

    Invariants: the names are not empty; 1 <= polls, dead_after, insisting; 0 <= pause, least.

    Attributes:
        me: Its id, used for this life only.
        service: Whose turn it is; the same for all.
        key: The id of the gate, and of what the work writes to.
        polls: How often to ask.
        pause: How long to wait in between, in microseconds.
        least: What has to be left of a window, in microseconds.
        dead_after: After how much silence a runner is presumed dead, in microseconds.
        members, gates, history, work: The collections.
        insisting: How often to ask for what must be done before giving up.
    """

    me: str
    service: AtomicService
    key: str
    polls: int
    pause: Duration
    least: Duration = 0
    dead_after: Duration
    members: str = "members"
    gates: str = "gates"
    history: str = "executions"
    work: str = "work"
    insisting: int = INSISTING

    def __attrs_post_init__(self) -> None:
        check_name(self.me, "a runner")
        check_type(self.service, AtomicService, "a service")
        check_name(self.key, "a service")
        check_int(self.polls, "a number of polls", 1)
        check_int(self.pause, "a pause in microseconds", 0)
        check_int(self.least, "what has to be left in microseconds", 0)
        check_int(self.dead_after, "a time of silence in microseconds", 1)
        check_int(self.insisting, "a number of attempts", 1)
        for collection in (self.members, self.gates, self.history, self.work):
            check_collection(collection)

    async def run(self) -> tuple[ServiceOutcome, ...]:
        """The program."""
        outcomes: tuple[ServiceOutcome, ...] = ()
        if not await self._joined():
            return outcomes
        for poll in range(self.polls):
            if poll:
                await Sleep(self.pause)
            outcome = await self.attempt(f"{self.me}.{poll}")
            outcomes = (*outcomes, outcome)
            if isinstance(outcome, Unanswered):
                return outcomes  # it does not leave: what it holds is reaped once it is silent
        try:
            await leave(self.members, self.me)
        except (Ambiguous, NotApplied, NotDurable):
            return outcomes  # it will be silent
        return outcomes

    async def _joined(self) -> bool:
        try:
            await announce(self.members, self.me)
        except Refused as refused:
            if refused.reason != DUPLICATE_KEY:
                raise
        except (Ambiguous, NotApplied, NotDurable):
            return False
        try:
            await begin(self.members, self.me)
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    async def attempt(self, run_id: str) -> ServiceOutcome:
        """Ask once whether it is one's turn, and run if it is."""
        try:
            beaten = await beat(self.members, self.me)
            if beaten is None:
                return Unanswered(run_id)
            records = await everybody(self.members)
        except (Ambiguous, NotApplied, NotDurable):
            return Skipped(run_id, "no reply", is_told=False)
        now = beaten[SEEN]
        claim = decide_atomic_service_claim(
            service=self.service, runner_id=self.me, runners=self._runners(records, now), now=now, run_id=run_id
        )
        if not isinstance(claim.verdict, Assigned):
            told = False
            for row in skipped(claim, run_id=run_id, now=now):
                told = await self._told(row)
            return Skipped(run_id, str(claim.verdict), is_told=told)
        return await self._entered(claim.verdict.run, self._live(records, now))

    def _runners(self, records: tuple[Document, ...], now: Instant) -> tuple[Runner, ...]:
        return runners(membership_of(records, self.dead_after), now)

    def _live(self, records: tuple[Document, ...], now: Instant) -> tuple[str, ...]:
        known = membership_of(records, self.dead_after)
        return tuple(member.id for member in known.members if isinstance(liveness(known, member.id, now), Alive))

    async def _entered(self, run: AtomicServiceRun, live: tuple[str, ...]) -> ServiceOutcome:
        """Enter the gate, work, and leave it."""
        attempt = 0
        while attempt < self.insisting:
            attempt += 1
            try:
                record = await find_one(self.gates, Eq(ID, self.key))
                if record is None:
                    raise Misuse(f"there is no gate {self.key!r}", todo="insert new_gate(service)")
                gate = gate_of(record)
                if gate.active is not None and gate.active.id != run.run_id:
                    live = await self._living(live)
                verdict = admit(gate, run, live=live, now=run.started)
                if isinstance(verdict, Blocked):
                    told = await self._told(verdict.execution)
                    return Skipped(run.run_id, verdict.execution.reason, is_told=told)
                for row in verdict.reaped:
                    await self._end(row)
                if verdict.gate.active == gate.active:  # it is in already
                    return await self._at_work(run, gate.token, record[STARTED])
                written = await find_one_and_update(self.gates, self._unchanged(gate), *self._entering(verdict, run))
            except (Ambiguous, NotApplied, NotDurable):
                continue
            if written is not None:
                return await self._at_work(run, written[TOKEN], written[STARTED])
        return Unanswered(run.run_id)

    async def _living(self, live: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002  a specimen uses it
        """Who is alive, read AFTER the gate: who stands there may have joined since it was last read who is there."""
        beaten = await beat(self.members, self.me)
        records = await everybody(self.members)
        return () if beaten is None else self._live(records, beaten[SEEN])

    def _unchanged(self, gate: Gate) -> Filter:
        """The gate is as it was read."""
        active = None if gate.active is None else gate.active.id
        return AllOf((Eq(ID, self.key), Eq(TOKEN, gate.token), Eq(RUN, active)))

    def _entering(self, admitted: Admitted, run: AtomicServiceRun) -> tuple[Update, ...]:
        return (
            Put(TOKEN, admitted.gate.token),
            Put(RUN, run.run_id),
            Put(RUNNER, run.runner_id),
            PutServerTime(STARTED),
        )

    async def _at_work(self, run: AtomicServiceRun, token: int, entered: Instant) -> ServiceOutcome:
        """The run is in the gate: work if there is time, tell how it ended, leave."""
        left = margin(run, self.least, entered)
        outcome: ServiceOutcome
        if isinstance(left, NoMargin):
            outcome, row = Over(run.run_id, str(left)), self._row(run, entered, ExecutionStatus.ABANDONED, str(left))
        else:
            await Note(WORKS, run.run_id)
            try:
                matched = await self._piece(run, token)
            except (Ambiguous, NotApplied, NotDurable):
                matched = -1
            await Note(WORKS, None)
            if matched == 1:
                outcome, row = Ran(run.run_id), self._row(run, entered, ExecutionStatus.COMPLETED, "")
            else:
                why = "fenced" if matched == 0 else "no reply"
                outcome, row = Over(run.run_id, why), self._row(run, entered, ExecutionStatus.ABANDONED, why)
        try:
            await self._insisted(row, token)
        except _Gone:
            return Unanswered(run.run_id)
        return outcome

    def _piece(self, run: AtomicServiceRun, token: int) -> UpdateOne:
        """What the service does: one write under the token."""
        return fenced(self.work, self.key, token, Put(RUN, run.run_id))

    def _row(self, run: AtomicServiceRun, entered: Instant, status: ExecutionStatus, reason: str) -> Execution:
        return Execution(
            id=run.run_id, runner_id=run.runner_id, start=entered, status=status, end=entered, reason=reason
        )

    async def _insisted(self, row: Execution, token: int) -> None:
        """Tell the history, THEN leave the gate, until the store has answered."""
        attempt = 0
        is_told = False
        while attempt < self.insisting:
            attempt += 1
            try:
                if not is_told:
                    await self._end(row)
                    is_told = True
                await self._left(row, token)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            return
        raise _Gone

    async def _left(self, row: Execution, token: int) -> None:
        inside = AllOf((Eq(ID, self.key), Eq(TOKEN, token), Eq(RUN, row.id)))
        await update_one(self.gates, inside, Put(RUN, None), Put(RUNNER, None))

    async def _end(self, row: Execution) -> None:
        """The first end of a run counts: its row is inserted once."""
        try:
            await insert_one(self.history, self._kept(row))
        except Refused as refused:
            if refused.reason != DUPLICATE_KEY:
                raise

    async def _told(self, row: Execution) -> bool:
        """A row for people; one that nobody answers for is let go."""
        try:
            await self._end(row)
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    def _kept(self, row: Execution) -> Document:
        return Document.of({"_id": row.id, "runner": row.runner_id, "status": row.status.value, "reason": row.reason})
