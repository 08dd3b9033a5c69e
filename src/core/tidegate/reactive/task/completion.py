"""Write the ends of runs, and renew the leases of those that go on.

An end without a reply does not make the record due again, because its handler was called: the
worker sends it again until it knows the result.

`complete` writes in a transaction, which locks the record until it ends. If its process dies, the
server aborts it after 60 s; until then other writes of that record wait. A renewal that waits for
the transaction of its own handler is no lost lease (`Why.COMPLETING`): no other worker can claim
the record.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.model.documents import Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import typed
from tidegate.model.instants import Duration, Instant, micros
from tidegate.model.operations import find_one, update_one
from tidegate.model.values import check_int
from tidegate.reactive.record import tasks
from tidegate.reactive.record._record_store import RecordStore, Sent
from tidegate.reactive.record.task_documents import changes, loaded
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.record.tasks import (
    Claim,
    Deferred,
    Failed,
    HandlerOutcome,
    Leave,
    Succeeded,
    UpdateRecord,
    Why,
    WhyNot,
)
from tidegate.reactive.task.fetching import Run, next_attempt
from tidegate.retries import backoff
from tidegate.retries.attempt_delays import Pauses, begins, goes_on


@final
@attrs.frozen
class Later:
    """The answer of a handler that is to be called again later: neither a failure nor an attempt.

    Invariant: 0 <= after <= LONGEST (`tidegate.retries.backoff`), in microseconds or as a
    timedelta.
    """

    after: Duration = attrs.field(converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.after, "a time in microseconds", 0, backoff.LONGEST)


HandlerAnswer: TypeAlias = str | Later | None
"""The end of a handler: the text of a failure, a later call, or success."""
_Ending: TypeAlias = tuple[Value, Claim, TaskRecord | None, HandlerAnswer]


def answered(reply: object) -> HandlerAnswer:
    """The answer of a handler by its return value. Any other value is not a success."""
    if reply is None or isinstance(reply, Later):
        return reply
    return f"the handler answered {typed(reply)}: None is a success; raise Later(...) to be called again"


@final
@attrs.frozen
class Completer:
    """Ends the runs of a task, and renews their leases.

    Attributes:
        records: The records.
        rules, policy, attempts, pauses: As in `ReactiveTask`.
    """

    records: RecordStore
    rules: tasks.TaskRules
    policy: backoff.Policy
    attempts: int | None
    pauses: Pauses

    async def end(self, ended: tuple[tuple[Run, HandlerAnswer], ...]) -> tuple[Why | WhyNot | None, ...]:
        """Write the ends of runs.

        Args:
            ended: Each run with the answer of its handler (`answered`).

        Returns:
            For each run why its end was written or not; None if unknown: retry, or the next claim
            finds out.
        """
        runs = tuple((run.key, run.claim, run.record, answer) for run, answer in ended)
        return await self._settled(runs, renews=False)

    async def complete(self, run: Run) -> Why | WhyNot:
        """Write the end of one successful run in the handler's own transaction, without retries.

        Args:
            run: The run.

        Returns:
            Why its end was written or not; if not, the transaction must be aborted.

        Raises:
            Failure: No reply, or the store refuses.
        """
        while True:
            found = await find_one(self.records.collection, self.records.by_id(run.key))
            record = None if found is None else loaded(found)
            verdict = self._finalise(record, run.claim, Succeeded(), await self.records.now())
            if isinstance(verdict, Leave):
                return verdict.why
            assert record is not None, "an end is of a record"
            still = self.records.unchanged(run.key, verdict)
            if await update_one(
                self.records.collection, still, *changes(record, verdict.record, self.records.history_max)
            ):
                return verdict.why  # else it was renewed meanwhile, or is another's

    async def renew(self, key: Value, claim: Claim) -> Why | WhyNot | None:
        """Renew the lease of a run while its handler runs.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            `Why.RENEWED`, or why not, and the handler should stop; None if unknown.
        """
        (renewed,) = await self.renew_all(((key, claim),))
        return renewed

    async def renew_all(
        self, runs: tuple[tuple[Value, Claim], ...], completing: tuple[Claim, ...] = ()
    ) -> tuple[Why | WhyNot | None, ...]:
        """Renew the leases of runs, as `renew` does. A second renewal does no harm.

        Args:
            runs: The document's id of each, and the run.
            completing: The runs whose handlers complete them in an open transaction. If that
                transaction
                holds the record, no other worker can claim it: `Why.COMPLETING`.
        """
        settling = tuple((key, claim, None, None) for key, claim in runs)
        verdicts = await self._settled(tuple(each for each in settling if each[1] not in completing), renews=True)
        others, renewed = iter(verdicts), tuple[Why | WhyNot | None, ...]()
        for each in settling:  # these alone, or they would hold up the others
            if each[1] in completing:
                (verdict,) = await self._settled((each,), renews=True, if_held=Why.COMPLETING)
            else:
                verdict = next(others)
            renewed = (*renewed, verdict)
        return renewed

    async def _settled(
        self, runs: tuple[_Ending, ...], *, renews: bool, if_held: Why | None = None
    ) -> tuple[Why | WhyNot | None, ...]:
        """Renew runs or write their ends; for each why it was written or not, None if unknown.

        Args:
            runs: The runs.
            renews: Whether to renew.
            if_held: The result for a record that a transaction holds; it is not retried here.
        """
        settled: tuple[Why | WhyNot | None, ...] = (None,) * len(runs)
        left = tuple(range(len(runs)))
        known: tuple[TaskRecord | None, ...] = () if renews else tuple(record for _, _, record, _ in runs)
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                if attempt > 1 or renews:
                    known = await self.records.find(tuple(runs[at][0] for at in left))
                now = await self.records.now()
                verdicts = tuple(
                    self._end_of(runs[at], record, now, renews=renews) for at, record in zip(left, known, strict=True)
                )
                decided = tuple(zip(left, known, verdicts, strict=True))
                for at, _, verdict in decided:
                    if isinstance(verdict, Leave):
                        settled = (*settled[:at], verdict.why, *settled[at + 1 :])
                writes = tuple(
                    (runs[at][0], record, verdict)
                    for at, record, verdict in decided
                    if record is not None and isinstance(verdict, UpdateRecord)
                )
                left = tuple(at for at, _, verdict in decided if isinstance(verdict, UpdateRecord))
                matched, marks = await self.records.update(writes)
                if matched == len(writes):
                    for at, _, verdict in decided:
                        settled = (*settled[:at], verdict.why, *settled[at + 1 :])
                    left = ()
                elif Sent.HELD in marks:
                    for at, mark in zip(left, marks, strict=True):
                        if mark is Sent.HELD:
                            settled = (*settled[:at], if_held, *settled[at + 1 :])
                    left = tuple(at for at, mark in zip(left, marks, strict=True) if mark is not Sent.HELD)
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return settled

    def _end_of(self, run: _Ending, record: TaskRecord | None, now: Instant, *, renews: bool) -> UpdateRecord | Leave:
        _, claim, _, answer = run
        if renews:
            return tasks.renew(record, claim, rules=self.rules, now=now)
        return self._finalise(record, claim, self._outcome(claim, answer, now), now)

    def _outcome(self, claim: Claim, answer: HandlerAnswer, now: Instant) -> HandlerOutcome:
        match answer:
            case None:
                return Succeeded()
            case Later(after):
                return Deferred(now + after)
            case _:
                since = now if claim.failing_since is None else claim.failing_since
                draw = backoff.draw_of(f"{claim.id} {claim.token}")
                return Failed(answer, next_attempt(self.policy, max(claim.attempts, 1), since, now, draw))

    def _finalise(
        self, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
    ) -> UpdateRecord | Leave:
        """The end of a run."""
        return tasks.finalise(record, claim, outcome, rules=self.rules, now=now)
