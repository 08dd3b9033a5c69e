"""Cases of what is decided about invocations and their runners."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

import attrs
from benchmarks.cases.changes import is_written
from benchmarks.cases.table import (
    BACK_THEN,
    BATCH,
    BYTES,
    CLAIMS,
    CONDITIONS,
    NOW,
    PLACES,
    RECORDS,
    ROWS,
    RUNNERS,
    TOKENS,
    Made,
    Table,
    drawn,
)

from tidegate.counters import counter
from tidegate.invocations.admin import invocation_queries
from tidegate.invocations.limits import admission
from tidegate.invocations.limits import rate_limit as rates
from tidegate.invocations.queue.completion import Succeeded
from tidegate.invocations.record import invocation, status
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.upkeep import recovery
from tidegate.invocations.worker import worker
from tidegate.leases import claim_lock, election, lease
from tidegate.model import history as remembered
from tidegate.model.documents import Document
from tidegate.model.instants import MINUTE, PPM, SECOND
from tidegate.payloads import upload_records
from tidegate.retries import schedule
from tidegate.services import atomic_service, executions, membership, retention
from tidegate.triggers import conditions, contexts, firing, trigger
from tidegate.work import events, vocabulary
from tidegate.work import worker as work
from tidegate.work.state import Running, WorkerState, WorkerStep

table: Final = Table("Invocations and their runners")


@table.case(status, "what became of a request")
def telling_fate(_: int) -> Made[remembered.RequestOutcome]:
    history = tuple(remembered.Change(version, f"request {version}", "running") for version in range(5, 21))
    return lambda: remembered.outcome_of(20, history, 9, "request 10"), lambda fate: fate == remembered.Won(10)


@table.case(invocation, "may it become running?")
def moving(_: int) -> Made[status.TransitionVerdict]:
    record = status.StatusRecord(invocation.PENDING, "runner", 2)
    return (
        lambda: status.decide_transition(invocation.INVOCATION, record, invocation.RUNNING, "runner"),
        lambda answer: isinstance(answer, status.Accepted),
    )


CALL: Final = admission.Call("task", (("a", '"' + "x" * 100 + '"'), ("b", "1")))


@table.case(admission, "what excludes a call")
def reserving(_: int) -> Made[str | None]:
    rule = admission.Rule(admission.Control.KEYS, ("a",))
    return lambda: admission.reservation_id(admission.Purpose.RUNNING, rule, CALL), bool


def places(size: int) -> admission.Reservation:
    return admission.Reservation(tuple(admission.Place(f"invocation {number}", 1) for number in range(size)))


@table.case(rates, "how many may begin?", PLACES)
def rating(size: int) -> Made[rates.Admission]:
    rate, meter = rates.Rate(10, SECOND), rates.Meter(NOW, NOW)
    return lambda: rates.decide_rate(rate, meter, NOW, size), lambda found: len(found.dues) == max(size - 10, 0)


@table.case(admission, "may it be registered?", PLACES)
def registering(size: int) -> Made[admission.RegistrationVerdict]:
    reservation, gone = places(size), admission.Found(CALL, status.StatusRecord(invocation.SUCCESS, None, 5))
    known = {place.invocation: gone for place in reservation.places}
    return (
        lambda: admission.decide_registration(reservation, "new", CALL, known),
        lambda answer: isinstance(answer, admission.Admitted),
    )


@table.case(admission, "may it run?", PLACES)
def running(size: int) -> Made[admission.RunningVerdict]:
    reservation, at_work = places(size), status.StatusRecord(invocation.RUNNING, "runner", 3)
    record = status.StatusRecord(invocation.REGISTERED, None, 1)
    known = {place.invocation: at_work for place in reservation.places}
    return (
        lambda: admission.decide_running(reservation, "new", record, known, at_most=size),
        lambda answer: isinstance(answer, admission.NoFreePlace) and len(answer.by) == size,
    )


@table.case(invocation_queries, "what was found, as a row")
def showing(_: int) -> Made[invocation_queries.InvocationRow]:
    found = new_invocation("invocation", Job(task="bill"), "request", BACK_THEN)
    return lambda: invocation_queries.row(found), lambda shown: shown.created_at == BACK_THEN


@table.case(work, "handlers of a batch end by life, of as many as run", RECORDS)
def dispatching(size: int) -> Made[WorkerStep]:
    rules = vocabulary.WorkerRules(
        queues=(vocabulary.Queue(name="q"),), results=worker.InvocationResults(), concurrency=size, prefetch=True,
        liveness=vocabulary.ByLife(heartbeat_every=SECOND, dead_after=MINUTE),
    )  # fmt: skip
    reducer, runs = work.Worker(rules), [vocabulary.Run("bill", f"invocation {number}", 2) for number in range(size)]
    step = reducer.step(WorkerState(), events.TimerFired(NOW))
    step = reducer.step(step.state, events.HeartbeatAcked(NOW, vocabulary.Heartbeat(1, ()), is_alive=True))
    running = tuple(Running(run, "q", 1, NOW, NOW, vocabulary.Slot.HAS) for run in runs)
    state = attrs.evolve(step.state, running=running, used=size)
    told = events.HandlersEnded(NOW, tuple((run, Succeeded("7")) for run in runs[:BATCH]))
    return lambda: reducer.step(state, told), is_written


def beating(number: int) -> membership.Member:
    at = BACK_THEN + number
    return membership.Member(
        id=f"runner {number}", name=f"name {number}", life=1, runner=None, created=at, joined=at, seen=at
    )


def members(size: int) -> membership.Membership:
    """So many runners in any order, all of which are alive."""
    return membership.Membership(tuple(map(beating, drawn(size).sample(range(size), size))))


@table.case(recovery, "what frees an invocation", RUNNERS)
def freeing(size: int) -> Made[recovery.RecoveryVerdict]:
    pending, alive = status.StatusRecord(invocation.PENDING, "runner 5", 2), members(size)
    item = recovery.Item("invocation", pending, NOW + -2 * MINUTE)
    return lambda: recovery.decide_recovery(item, alive, NOW), lambda answer: isinstance(answer, recovery.Move)


@table.case(recovery, "an invocation for each runner", RUNNERS)
def freeing_many(size: int) -> Made[tuple[recovery.Move, ...]]:
    stuck = [
        recovery.Item(f"invocation {number}", status.StatusRecord(invocation.PENDING, f"runner {number}", 2), NOW + -at)
        for number, at in enumerate(drawn(size).choices((SECOND, 2 * MINUTE), k=size))
    ]
    alive = members(size)
    return lambda: recovery.plan_recovery(stuck, alive, NOW), lambda steps: 0 < len(steps) < size


@table.case(membership, "made of what was read", RUNNERS)
def gathering(size: int) -> Made[membership.Membership]:
    read = members(size).members
    return lambda: membership.Membership(read), lambda made: len(made.by_id) == size


@table.case(membership, "is it alive?", RUNNERS)
def judging_life(size: int) -> Made[membership.Liveness]:
    alive = members(size)
    return lambda: membership.liveness(alive, "runner 5", NOW), lambda answer: isinstance(answer, membership.Alive)


@table.case(membership, "who takes part", RUNNERS)
def lining_up(size: int) -> Made[tuple[atomic_service.Runner, ...]]:
    alive = members(size)
    return lambda: membership.runners(alive, NOW), lambda answer: len(answer) == size


@table.case(membership, "a beat", RUNNERS)
def beating_again(size: int) -> Made[membership.Beaten | membership.Gone | membership.Unseen]:
    alive = members(size)
    return lambda: membership.beat(alive, "runner 5", NOW), lambda answer: isinstance(answer, membership.Beaten)


@table.case(membership, "who may be forgotten", RUNNERS)
def forgetting(size: int) -> Made[tuple[str, ...]]:
    silent, later = members(size), NOW + 60 * MINUTE
    return lambda: membership.forgettable(silent, later, 30 * MINUTE), lambda answer: len(answer) == size


SERVICE: Final = atomic_service.AtomicService(
    interval=5 * MINUTE, spread=timedelta(microseconds=1), start_fraction_ppm=PPM
)


@table.case(atomic_service, "is it cleared?", RUNNERS)
def clearing(size: int) -> Made[atomic_service.AtomicServiceClaim]:
    runners = tuple(atomic_service.Runner(f"runner {number}", BACK_THEN + number) for number in range(size))
    decide = partial(atomic_service.decide_atomic_service_claim, service=SERVICE, runners=runners, run_id="run")
    turn = decide(runner_id="runner 0", now=NOW).assigned or "runner 0"
    return lambda: decide(runner_id=turn, now=NOW), lambda claim: claim.owner_now


@table.case(atomic_service, "what to warn of", RUNNERS)
def warning(size: int) -> Made[atomic_service.StartUp]:
    service, asking = atomic_service.AtomicService(), atomic_service.Claiming()
    return lambda: atomic_service.check_start_up(service, asking, size), lambda answer: answer.runners_max > 0


def run(number: int) -> atomic_service.AtomicServiceRun:
    window = atomic_service.Window(BACK_THEN, NOW + MINUTE)
    return atomic_service.AtomicServiceRun(f"runner {number}", f"run {number}", BACK_THEN, window, NOW)


def history(size: int) -> list[executions.Execution]:
    """So many rows, each of another runner, every second of them under way."""
    begun = enumerate(drawn(size).sample(range(10 * size), size))
    rows = [executions.Execution(id=f"run {at}", runner_id=f"runner {at}", start=NOW + -ago) for at, ago in begun]
    over = executions.ExecutionStatus.COMPLETED
    return [attrs.evolve(row, status=over, end=NOW) if at % 2 else row for at, row in enumerate(rows)]


@table.case(executions, "is a run let in?", RUNNERS)
def letting_in(size: int) -> Made[executions.GateVerdict]:
    live = frozenset(f"runner {number}" for number in range(1, size))
    gone = executions.Execution(id="run 0", runner_id="runner 0", start=BACK_THEN)
    gate, coming = executions.Gate(1, gone), run(1)
    return (
        lambda: executions.admit(gate, coming, live=live, now=NOW),
        lambda answer: isinstance(answer, executions.Admitted) and len(answer.reaped) == 1,
    )


@table.case(executions, "what is abandoned", ROWS)
def reaping(size: int) -> Made[tuple[executions.Execution, ...]]:
    rows, live = history(size), frozenset(f"runner {number}" for number in range(size // 2))
    return lambda: executions.reaped(rows, live=live, now=NOW), lambda gone: len(gone) == size // 4


@table.case(executions, "what overlaps an hour", ROWS)
def looking_back(size: int) -> Made[tuple[executions.Execution, ...]]:
    rows = history(size)
    return (
        lambda: executions.in_range(rows, NOW + -60 * MINUTE, NOW, limit=BATCH),
        lambda found: len(found) == BATCH,
    )


@table.case(executions, "a run ends")
def ending(_: int) -> Made[executions.Ended | executions.AlreadyEnded]:
    execution = executions.Execution(id="run 1", runner_id="runner 1", start=NOW)
    ending_run = run(1)
    return (
        lambda: executions.ended(execution, ending_run, executions.ExecutionStatus.COMPLETED, now=NOW + SECOND),
        lambda answer: isinstance(answer, executions.Ended),
    )


@table.case(retention, "which rows may go", ROWS)
def tidying(size: int) -> Made[tuple[str, ...]]:
    rows = [execution.row for execution in history(size)]
    keep = retention.Retention(age=0, count=size // 4)
    return lambda: retention.surplus(rows, keep, now=NOW), lambda ids: len(ids) == size // 2 - size // 4


def event_codes(size: int) -> tuple[conditions.OnEvent, ...]:
    """So many conditions, ten to a code."""
    filters = [conditions.Equal(Document.of({"tenant": number})) for number in range(10)]
    return tuple(conditions.OnEvent(f"code {number // 10}", filters[number % 10]) for number in range(size))


def event(number: int) -> contexts.EventContext:
    return contexts.EventContext(f"code {number // 10}", f"event {number}", Document.of({"tenant": number % 10}))


def triggers(size: int) -> list[trigger.Trigger]:
    """Each waits for two conditions."""
    waited = event_codes(size)
    return [trigger.Trigger(task="task", conditions=waited[at : at + 2]) for at in range(0, size, 2)]


def occurrences(size: int) -> list[trigger.Occurrence]:
    """So many conditions hold, once each."""
    ids = map(conditions.condition_id, event_codes(size))
    return [trigger.Occurrence(each, event(number), BACK_THEN + number) for number, each in enumerate(ids)]


@table.case(trigger, "what holds of an event", CONDITIONS)
def noticing(size: int) -> Made[trigger.Noticed]:
    waiting, context = event_codes(size), event(7)
    return lambda: trigger.noticed(waiting, context, NOW), lambda answer: len(answer.occurrences) == 1


@table.case(trigger, "a task registers its triggers", CONDITIONS)
def registering_triggers(size: int) -> Made[trigger.Registration]:
    stored = triggers(size)
    wanted = stored[: len(stored) // 2]
    return (
        lambda: trigger.registration(stored, "task", wanted),
        lambda answer: len(answer.remove) == len(stored) - len(wanted),
    )


@table.case(trigger, "arguments")
def providing(_: int) -> Made[trigger.Provided | trigger.NotProvided]:
    take: Callable[[contexts.Context], object] = lambda context: {"of": context.source[1]}  # noqa: E731
    provider = trigger.FirstOf((trigger.FromContext("take", contexts.Kind.EVENT, take), trigger.Static()))
    seen = (event(7),)
    return lambda: trigger.provided(provider, seen), lambda answer: isinstance(answer, trigger.Provided)


@table.case(conditions, "does it hold?")
def holding_of(_: int) -> Made[conditions.ConditionVerdict]:
    condition, context = event_codes(10)[7], event(7)
    return lambda: conditions.holds(condition, context), lambda answer: answer == conditions.Holds()


@table.case(conditions, "does one of this many hold?", CONDITIONS)
def holding_any(size: int) -> Made[conditions.ConditionVerdict]:
    composite, context = conditions.Composite(conditions.Logic.ANY, event_codes(size)), event(size - 1)
    return lambda: conditions.holds(composite, context), lambda answer: answer == conditions.Holds()


@table.case(conditions, "id")
def naming(_: int) -> Made[str]:
    condition = event_codes(10)[7]
    return lambda: conditions.condition_id(condition), lambda name: len(name) == 64


@table.case(schedule, "is it due?")
def looking(_: int) -> Made[schedule.Look]:
    cron, cell = schedule.Schedule("* * * * *"), schedule.ScheduleCell(BACK_THEN + -MINUTE)
    return (
        lambda: schedule.look(cron, lambda _, after: after + MINUTE, cell, NOW),
        lambda answer: isinstance(answer, schedule.Due),
    )


@table.case(schedule, f"one of {schedule.PENDING_MAX} has fired")
def closing(_: int) -> Made[schedule.ScheduleCell]:
    pending = tuple(BACK_THEN + number for number in range(schedule.PENDING_MAX))
    cell = schedule.ScheduleCell(NOW, pending=pending)
    return lambda: schedule.closed(cell, pending[:1]), lambda after: len(after.pending) == schedule.PENDING_MAX - 1


@table.case(firing, "what fires", CONDITIONS)
def firing_all(size: int) -> Made[firing.Plan]:
    registered, seen = triggers(size), occurrences(size)
    return lambda: firing.plan(registered, seen, (), NOW), lambda plan: len(plan.firings) == size // 2


@table.case(firing, "who makes it happen")
def claiming(_: int) -> Made[firing.RunClaim]:
    fires, claims = firing.Firing("trigger", tuple(occurrences(2)), 1), firing.Claims()
    return (
        lambda: firing.claim(fires, None, claims, by="pass", now=NOW),
        lambda answer: isinstance(answer, firing.Claimed),
    )


@table.case(firing, "what may be deleted", CONDITIONS)
def purging(size: int) -> Made[firing.Purge]:
    seen = occurrences(size)
    runs = [firing.TriggerRun(firing.Firing("trigger", (each,)), firing.Fired(BACK_THEN)) for each in seen]
    events = {f"event {number}": BACK_THEN for number in range(size)}
    keep = retention.Retention(age=SECOND, count=0)
    return (
        lambda: firing.purge(events, runs, (), now=NOW, keep_events=keep, keep_runs=keep),
        lambda answer: len(answer.runs) == size,
    )


TERMS: Final = lease.Terms()
LEASE: Final = lease.Lease(7, 9, "holder", "take 7", TERMS.ttl, stamp=BACK_THEN)


@table.case(lease, "may it be taken?")
def taking(_: int) -> Made[lease.Take | lease.Mine | lease.Busy]:
    return (
        lambda: lease.decide_take(
            LEASE, holder="me", request="take 8", terms=TERMS, observation=LEASE.stamped, now=NOW
        ),
        lambda answer: isinstance(answer, lease.Take),
    )


@table.case(lease, "what a holder has to do")
def keeping(_: int) -> Made[lease.Rest | lease.Renew | lease.Lapsed]:
    tenure = lease.Tenure(LEASE, NOW + -15 * SECOND)
    return lambda: lease.next_action(TERMS, tenure, NOW), lambda answer: isinstance(answer, lease.Renew)


@table.case(claim_lock, "a lock of this many claims", CLAIMS)
def queueing(size: int) -> Made[claim_lock.LockView]:
    claims = tuple(f"claim {number}" for number in range(size))
    seen = lease.observe(None, claims[0], BACK_THEN)
    return (
        lambda: claim_lock.lock_view(claims, claims[-1], observation=seen, now=NOW, threshold=2 * MINUTE),
        lambda view: isinstance(view, claim_lock.Waiting),
    )


@table.case(election, "each candidate looks", RUNNERS)
def electing(size: int) -> Made[list[election.ElectionStep]]:
    candidates = [election.Candidate(f"runner {number}", f"life {number}", TERMS) for number in range(size)]
    woke = election.TimerFired(NOW)
    return (
        lambda: [each.step(election.Following(), woke) for each in candidates],
        lambda steps: all(step.commands == (election.Look(),) for step in steps),
    )


@table.case(election, "a free lease is seen")
def seeing_it_free(_: int) -> Made[election.ElectionStep]:
    me = election.Candidate("runner", "life", TERMS)
    asked = me.step(election.Following(), election.TimerFired(NOW))
    answer = election.Answered(NOW + SECOND, election.Look(), None)
    return lambda: me.step(asked.state, answer), lambda step: isinstance(step.commands[0], election.Swap)


def noted(size: int) -> counter.Counter:
    """So many tokens, half of them pending since the round before."""
    return counter.Counter(size, 3, tuple((f"token {number}", 1 + number % 3) for number in range(size)))


@table.case(counter, "an increment", TOKENS)
def counting(size: int) -> Made[counter.IncrementVerdict]:
    full, increment = noted(size), counter.Increment(f"token {size - 1}", asked=1 + (size - 1) % 3, is_noted=True)
    return lambda: counter.decide_increment(full, increment), lambda answer: isinstance(answer, counter.CountToken)


@table.case(counter, "a sweep", TOKENS)
def sweeping(size: int) -> Made[counter.Sweep]:
    full = noted(size)
    return lambda: counter.decide_sweep(full), lambda sweep: len(sweep.count) > size // 2


@table.case(upload_records, "a chunk, stored and checked", BYTES)
def checking(size: int) -> Made[bytes | upload_records.Damaged]:
    data = drawn(size).randbytes(size)
    return (
        lambda: upload_records.chunk_data(upload_records.chunk_document("upload", 0, "key", data)),
        lambda answer: answer == data,
    )
