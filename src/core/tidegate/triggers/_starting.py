"""Starts runs of triggers: claims them, registers their invocations, and records that.

A hundred runs go together, in eight requests:

    claim     a find, the time, an insert
    invoke    an insert of the calls, the time, an insert of the invocations
    settle    the time, a bulk write of the results

A call whose task has a rule counts as ten. Runs with uploaded data go one at a time. So each group
takes far less time than a claim lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.admission import Call, Rule
from tidegate.invocations.limits.registration import NotRegistered, Registrar
from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.record.jobs import Job
from tidegate.model.documents import Document, Field, Put, Remove, Update
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, check_failure
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, UpdateOne, insert_many, update_one
from tidegate.model.programs import insert_new
from tidegate.retries.attempt_delays import Pauses, begins, goes_on
from tidegate.triggers._documents import Skipped, at_version, by_ids, readable, skipped_for, write_all
from tidegate.triggers.contexts import Context
from tidegate.triggers.firing import (
    Changed,
    Claimed,
    Claims,
    Exhausted,
    Firing,
    Ignored,
    TriggerRun,
    claim,
    failed,
    fired,
    set_aside,
)
from tidegate.triggers.outbox_relay import is_whole, whole
from tidegate.triggers.trigger import NotProvided, Static, Trigger, provided
from tidegate.triggers.trigger_documents import loaded_run, origin_of, stored_progress, stored_run

TOGETHER: Final = 100
"""How many runs are claimed, invoked and settled together, if each counts as one."""
_RULED: Final = 10
"""What a run counts if its task has a rule: it takes at least five requests of its own."""
_CHANGING: Final = ("by", "until", "reasons", "at")
"""The fields of a run that not every state has."""

_Invoked: TypeAlias = tuple[tuple[str, tuple[str, ...] | None], ...]
"""Per run id, why its invocation was refused: () if it exists, None if unknown."""

_Asked: TypeAlias = tuple[tuple[TriggerRun, Registrar], ...]
_Ended: TypeAlias = tuple[tuple[TriggerRun, tuple[str, ...]], ...]
"""Runs as claimed, and why each failed; without a reason it fired."""


@final
@attrs.frozen
class _ClaimedRuns:
    held: tuple[TriggerRun, ...]
    left: tuple[Firing, ...]
    skipped: tuple[Skipped, ...]


@final
@attrs.frozen(kw_only=True)
class RunStarter:
    triggers: tuple[Trigger, ...]
    make_job: Callable[[str, Document], Job] = attrs.field(eq=id)
    make_call: Callable[[Job], Call] = attrs.field(eq=id)
    rules: tuple[tuple[str, Rule], ...]
    runs: str
    invocations: str
    places: str
    calls: str
    claims: Claims
    attempts: int | None
    pauses: Pauses
    failed: Callable[[TriggerRun, tuple[str, ...]], None] | None = attrs.field(repr=False)

    def together(self, firings: tuple[Firing, ...]) -> tuple[tuple[Firing, ...], ...]:
        triggers = {each.id: each for each in self.triggers}
        ruled = {task for task, _ in self.rules}
        made: list[list[Firing]] = []
        load = TOGETHER
        for each in firings:
            trigger = triggers[each.trigger_id]
            is_read = not isinstance(trigger.provider, Static) and not all(
                is_whole(of.context) for of in each.occurrences
            )
            more = TOGETHER if is_read else _RULED if trigger.task in ruled else 1
            if load + more > TOGETHER:
                made.append([])
                load = 0
            made[-1].append(each)
            load += more
        return tuple(map(tuple, made))

    async def start(self, wanted: tuple[Firing, ...], by: str) -> tuple[Skipped, ...]:
        """Claim runs, register their invocations, record the results; return what failed."""
        held, skipped = await self._claimed(wanted, by)
        asked: _Asked = ()
        ended: _Ended = ()
        for run in held:
            try:
                found = await self._prepared(run)
            except (Refused, Misuse) as trouble:
                skipped += (skipped_for(run.id, trouble),)
                continue
            if isinstance(found, Registrar):
                asked = (*asked, (run, found))
            else:
                ended = (*ended, (run, found))
        # Invocations BEFORE records: after a crash in between, the next claim registers the same
        # one again.
        answers = await _invoke(self, asked) if asked else ()
        ended = (*ended, *_known(asked, answers))
        for run, reasons in ended:
            if reasons and self.failed is not None:
                self.failed(run, reasons)
        return (*skipped, *(await _settle(self, ended) if ended else ()))

    async def start_apart(self, wanted: tuple[Firing, ...], by: str) -> tuple[Skipped, ...]:
        """Start each run alone after the group failed. The pass recognises its own claims."""
        skipped: tuple[Skipped, ...] = ()
        for each in wanted:
            try:
                skipped += await self.start((each,), by)
            except (Refused, Misuse) as trouble:
                skipped += (skipped_for(each.id, trouble),)
        return skipped

    async def _prepared(self, run: TriggerRun) -> Registrar | tuple[str, ...]:
        trigger = next(each for each in self.triggers if each.id == run.firing.trigger_id)
        contexts: tuple[Context, ...] = ()
        try:
            for each in run.firing.occurrences:
                contexts = (
                    *contexts,
                    each.context if isinstance(trigger.provider, Static) else await whole(each.context),
                )
        except Refused as refused:
            return (f"what was uploaded cannot be read: {refused.reason}",)
        answer = provided(trigger.provider, contexts)
        made = answer if isinstance(answer, NotProvided) else _made(self, trigger.task, answer.arguments)
        if isinstance(made, NotProvided):
            return made.reasons
        job, call = made
        return Registrar(
            key=run.id,
            call=call,
            rule=dict(self.rules).get(job.task, Rule()),
            request=run.id,
            job=job,
            origin=origin_of(run.firing),
            records=self.invocations,
            places=self.places,
            calls=self.calls,
            attempts=self.attempts,
            pauses=self.pauses,
        )

    async def _claimed(self, wanted: tuple[Firing, ...], by: str) -> tuple[tuple[TriggerRun, ...], tuple[Skipped, ...]]:
        """Return the runs claimed and those that failed; others' and settled ones are left."""
        held: tuple[TriggerRun, ...] = ()
        skipped: tuple[Skipped, ...] = ()
        left = wanted
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not left or not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                claimed = await self._claim(left, by)
            except (Ambiguous, NotApplied, NotDurable):
                continue  # the next attempt recognises a claim of this pass
            held, left, skipped = (*held, *claimed.held), claimed.left, (*skipped, *claimed.skipped)
        return held, skipped

    async def _claim(self, wanted: tuple[Firing, ...], by: str) -> _ClaimedRuns:
        found = await by_ids(self.runs, tuple([each.id for each in wanted]))
        now = await StoreTime()
        read, skipped = readable(loaded_run, found)
        mine, new, changed = self._judged(wanted, read, skipped, by, now)
        recorded, refused = await _record(self, new, now) if new else ((), ())
        matched, also = await write_all(tuple([(run.id, change_of(self.runs, run)) for run in changed]))
        written = (*(run for run in new if run.id in recorded), *(changed if matched == len(changed) else ()))
        skipped = (*skipped, *refused, *also)
        over = {run.id for run in written}.union(each.key for each in skipped)
        asked = {run.id for run in (*new, *changed)} - over
        held = (*mine, *(run for run in written if not run.state.settled))
        return _ClaimedRuns(held, tuple(each for each in wanted if each.id in asked), skipped)

    def _judged(
        self,
        wanted: tuple[Firing, ...],
        read: tuple[TriggerRun, ...],
        spoiled: tuple[Skipped, ...],
        by: str,
        now: Instant,
    ) -> tuple[tuple[TriggerRun, ...], ...]:
        """Return the runs that this pass holds already, those to insert, and those to update."""
        known = {run.id: run for run in read}
        unread = {each.key for each in spoiled}
        verdicts = [
            claim(each, known.get(each.id), self.claims, by=by, now=now) for each in wanted if each.id not in unread
        ]
        runs = [each.run for each in verdicts if isinstance(each, (Claimed, Exhausted))]
        return (
            tuple(run for run in runs if run == known.get(run.id)),
            tuple(run for run in runs if run.id not in known),
            tuple(run for run in runs if run.id in known and run != known[run.id]),
        )


async def _record(
    starter: RunStarter, runs: tuple[TriggerRun, ...], now: Instant
) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Insert the records of runs, and set aside those that the store refuses."""
    if len(runs) > 1:
        try:
            inserted = await insert_many(starter.runs, *map(stored_run, runs))
        except Refused:
            pass
        else:  # if other passes inserted some, the next read shows which
            return (tuple([run.id for run in runs]) if inserted == len(runs) else ()), ()
    recorded: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    for run in runs:
        try:
            if await _recorded(starter, run, now):
                recorded = (*recorded, run.id)
        except Refused as trouble:
            skipped = (*skipped, skipped_for(run.id, trouble))
    return recorded, skipped


async def _recorded(starter: RunStarter, run: TriggerRun, now: Instant) -> bool:
    try:
        return await insert_new(starter.runs, stored_run(run))
    except Refused as refused:
        reason = refused.reason
    await insert_new(starter.runs, stored_run(set_aside(run, reason, now)))
    return False


def _made(starter: RunStarter, task: str, arguments: Document) -> tuple[Job, Call] | NotProvided:
    try:
        job = starter.make_job(task, arguments)
        return job, starter.make_call(job)
    except Misuse as misuse:
        return NotProvided((misuse.what,))
    except BaseException as error:  # noqa: BLE001  the user's types must not stop other triggers
        check_failure(error)
        return NotProvided((f"what makes the call of {task!r} raised {type(error).__name__}",))


async def _invoke(starter: RunStarter, asked: _Asked) -> _Invoked:
    free = tuple([registrar for _, registrar in asked if registrar.is_free])
    answers = await _registered(starter, free) if len(free) > 1 else ()
    for _, registrar in asked:
        if registrar.key in dict(answers):
            continue
        reasons: tuple[str, ...] | None
        try:
            reasons = None if isinstance(await registrar.run(), NotRegistered) else ()
        except Refused as refused:
            reasons = (refused.reason,)
        answers = (*answers, (registrar.key, reasons))
    return answers


async def _registered(starter: RunStarter, free: tuple[Registrar, ...]) -> _Invoked:
    """Register invocations together. Return () after a refusal, so that each is tried alone."""
    wanted = tuple([NewInvocation(each.key, each.job) for each in free if each.job is not None])
    command = Enqueue(
        wanted=wanted,
        request=free[0].request,
        records=starter.invocations,
        attempts=starter.attempts,
        pauses=starter.pauses,
    )
    since = await begins(starter.pauses)
    attempt = 0
    while True:
        if not await goes_on(starter.pauses, starter.attempts, attempt, since):
            break
        attempt += 1
        try:
            await insert_many(starter.calls, *[each.stored_call for each in free])
            outcomes = await command.run()
        except Refused:
            return ()
        except (Ambiguous, NotApplied, NotDurable):
            continue
        pairs = zip(free, outcomes, strict=True)
        return tuple((each.key, None if isinstance(outcome, NotRegistered) else ()) for each, outcome in pairs)
    return tuple((each.key, None) for each in free)


def _known(asked: _Asked, answers: _Invoked) -> _Ended:
    became = dict(answers)
    return tuple((run, reasons) for run, _ in asked if (reasons := became[run.id]) is not None)


async def _settle(starter: RunStarter, ended: _Ended) -> tuple[Skipped, ...]:
    skipped: tuple[Skipped, ...] = ()
    since = await begins(starter.pauses)
    attempt = 0
    while True:
        if not await goes_on(starter.pauses, starter.attempts, attempt, since):
            break
        attempt += 1
        try:
            is_done, skipped = await _settled(starter, ended, is_known=attempt == 1)
        except (Ambiguous, NotApplied, NotDurable):
            continue
        if is_done:
            break
    return skipped


async def _settled(starter: RunStarter, ended: _Ended, *, is_known: bool) -> tuple[bool, tuple[Skipped, ...]]:
    """Write the results to the runs, as claimed or as read; return whether all are written."""
    runs, skipped = tuple([run for run, _ in ended]), tuple[Skipped, ...]()
    if not is_known:
        found = await by_ids(starter.runs, tuple([run.id for run in runs]))
        runs, skipped = readable(loaded_run, found)
    now = await StoreTime()
    changed = _changed(runs, ended, starter.claims, now)
    matched, refused = await write_all(tuple([(run.id, change_of(starter.runs, run)) for run in changed]))
    return matched + len(refused) == len(changed), (*skipped, *refused)


def _changed(runs: tuple[TriggerRun, ...], ended: _Ended, claims: Claims, now: Instant) -> tuple[TriggerRun, ...]:
    """Return the runs to write, without those that another attempt has taken or settled."""
    came = {claimed.id: (claimed.attempt, reasons) for claimed, reasons in ended}

    def became(run: TriggerRun) -> Changed | Ignored:
        attempt, reasons = came[run.id]
        return failed(run, attempt, reasons, claims, now) if reasons else fired(run, now)

    return tuple(verdict.run for run in runs if isinstance(verdict := became(run), Changed))


def change_of(runs: str, run: TriggerRun) -> UpdateOne:
    return update_one(runs, at_version(run.id, run.version - 1), *_changes(run))


def _changes(run: TriggerRun) -> tuple[Update, ...]:
    fields = dict(stored_progress(run))
    puts = tuple(Put(Field[object](key), value) for key, value in fields.items())
    return (*puts, *(Remove(Field[object](key)) for key in _CHANGING if key not in fields))
