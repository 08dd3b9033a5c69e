"""The laws of `tidegate.work.worker`, over its state, commands and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tidegate.model.instants import Instant
from tidegate.work import events
from tidegate.work._liveness import retry_pause
from tidegate.work.state import QueueState, WorkerState
from tidegate.work.vocabulary import (
    ByLife,
    CapacityGranted,
    Heartbeat,
    Identified,
    Poll,
    PollGroup,
    Renewal,
    ReturnUntracked,
    Run,
    Slot,
    StartHandlers,
    WorkerCommand,
    WorkerRules,
    WriteResults,
)
from tidegate.work.worker import PREFETCH_TIMEOUT

Life: TypeAlias = tuple[int, Instant] | None
_PART: Final = 12


def runs_have_slots(rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand]) -> bool:
    """Law WK1."""
    slots = Counter(each.slot for each in state.running)
    used, queued = slots[Slot.HAS], slots[Slot.NEXT]
    if (used, queued, slots[Slot.WANTS]) != (state.used, state.queued, state.wanting) or used > rules.concurrency:
        return False
    if rules.prefetch:
        return queued + _claimed(state) <= rules.concurrency + rules.batch
    is_asking = any(isinstance(each, Poll | CapacityGranted) and each.most for each in commands)
    return not is_asking or used + queued + _claimed(state) <= rules.concurrency


def each_run_is_settled_once(
    taken: Iterable[Run],
    commands: Iterable[WorkerCommand],
    left: Iterable[Run],
    lost: Collection[Run],
    *,
    is_over: bool,
) -> bool:
    """Law WK2.

    Args:
        taken: The runs that were taken.
        commands: All commands.
        left: The runs whose results a request left unconfirmed, once per request.
        lost: The runs whose claims were lost.
        is_over: Whether the worker has stopped with no request in flight.
    """
    started, written = Counter[Run](), Counter[Run]()
    for each in commands:
        if isinstance(each, StartHandlers):
            started.update(each.runs)
        elif isinstance(each, WriteResults):
            written.update(result.run for result in each.results)
    written.subtract(left)
    if any(times > 1 for times in (*started.values(), *written.values())):
        return False
    return not is_over or all(written[run] == 1 or run in lost for run in taken)


def only_members_poll(rules: WorkerRules, life: Life, commands: Iterable[WorkerCommand], at: Instant) -> bool:
    """Law WK3, of polls."""
    polls = [each for each in commands if isinstance(each, Poll)]
    is_alive = life is not None and life[1] - at > 0
    return not isinstance(rules.liveness, ByLife) or all(
        is_alive and life is not None and each.life == life[0] for each in polls
    )


def a_lost_claim_interrupts(rules: WorkerRules, state: WorkerState, life: Life, at: Instant) -> bool:
    """Law WK4."""
    if state.is_stopped:
        return True
    going_on = [each for each in state.running if each.why is None]
    if isinstance(rules.liveness, ByLife):
        return not going_on or (
            life is not None and life[1] - at > 0 and all(each.life == life[0] for each in going_on)
        )
    return all(
        each.held_until is not None
        and each.renew_at is not None
        and each.held_until - at > 0
        and each.renew_at - each.held_until < 0
        for each in going_on
    )


def one_request_of_each_kind(
    rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand], at: Instant
) -> bool:
    """Law WK5."""
    under_way: list[object] = []
    for each, _ in state.requests:
        of = each.group if isinstance(each, PollGroup) else "" if isinstance(each, Heartbeat) else each.queue
        under_way.append((Poll if isinstance(each, CapacityGranted) else type(each), of))
    polled = {each.queue for each in commands if isinstance(each, Poll)}
    polled |= {name for each in commands if isinstance(each, PollGroup) for name in each.queues}
    return len(set(under_way)) == len(under_way) and not polled & _held(rules, state, at)


def timeouts_and_orders_are_obeyed(state: WorkerState, at: Instant) -> bool:
    """Law WK6."""
    return state.is_stopped or all(
        each.why is not None
        or (
            each.asked is None
            and (each.started_at is None or each.run.timeout is None or at - each.started_at < each.run.timeout)
        )
        for each in state.running
    )


def it_stops_in_time(rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand], at: Instant) -> bool:
    """Law WK7."""
    if state.stop_at is None:
        return not state.is_stopped
    is_late = at - (state.stop_at + rules.leave) >= 0
    is_done = state.is_idle and (state.membership is None or state.membership.leaving is None)
    if state.is_stopped or is_late:
        return state.is_stopped and (is_late or is_done)
    are_asked = at - state.stop_at < 0 or all(each.why is not None for each in state.running)
    return are_asked and not is_done and not any(isinstance(each, Poll) for each in commands)


def it_has_something_to_wait_for(rules: WorkerRules, state: WorkerState) -> bool:
    """Law WK8."""
    if state.is_stopped or state.wake_at is not None:
        return True
    if isinstance(rules.liveness, ByLife):
        return any(isinstance(each, Heartbeat) for each, _ in state.requests)
    may_poll = state.stop_at is None and any(queue.name not in state.paused for queue in rules.queues)
    return not state.is_idle or not may_poll


def announced_work_is_polled(
    rules: WorkerRules, state: WorkerState, event: events.WorkerEvent, commands: Iterable[WorkerCommand]
) -> bool:
    """Law WK9."""
    match event:
        case events.WorkAnnounced(_, name, None):
            pass
        case events.ResultsWritten(_, WriteResults(name), reply) if reply.is_more:
            pass
        case _:
            return True
    if state.stop_at is not None or any(isinstance(each, Poll) and each.queue == name for each in commands):
        return True
    return all(
        known.pace is not None and known.pace.due - event.at <= 0
        for queue, known in zip(rules.queues, state.queues, strict=True)
        if queue.name == name
    )


def expected_work_is_polled(
    rules: WorkerRules, state: WorkerState, expected: Iterable[tuple[str, Instant]], at: Instant
) -> bool:
    """Law WK10; `expected` are queues with due times that no later poll has covered."""
    is_free = state.used + state.queued + _claimed(state) < rules.concurrency and not state.queued + state.wanting
    is_alive = state.membership is None or state.membership.alive_until is not None
    if state.stop_at is not None or not is_free or not is_alive or state.unwritten > rules.batch:
        return True
    held = state.paused | _claiming(state)
    for name, due in expected:
        place = rules.places.get(name)
        if place is None or name in held:
            continue
        until = state.queues[place].throttled_until
        waits = max(due - at, 0, 0 if until is None else until - at) + rules.queues[place].polling.least
        if state.wake_at is None or state.wake_at - at > waits:
            return False
    return True


def a_wanted_slot_comes_first(rules: WorkerRules, state: WorkerState, commands: Sequence[WorkerCommand]) -> bool:
    """Law WK11: while a run wants its slot, no slot is free, and no run is taken."""
    if not any(each.slot is Slot.WANTS for each in state.running):
        return True
    used = sum(each.slot is Slot.HAS for each in state.running)
    is_taking = any(isinstance(each, Poll) for each in commands)
    return not is_taking and (used >= rules.concurrency or state.unwritten > rules.batch or state.is_stopped)


def suspended_runs_have_no_slot(state: WorkerState, suspended: Collection[Run]) -> bool:
    """Law WK12; `suspended` by their last events."""
    return state.is_stopped or all(
        (each.slot is Slot.AWAY) == (each.run in suspended) and not (each.slot is Slot.WANTS and each.why)
        for each in state.running
    )


def untracked_claims_are_returned_by_heartbeat(
    heartbeat: Heartbeat, found: Iterable[Identified], told: Collection[str], *, is_known: bool
) -> bool:
    """Law WK13.

    Args:
        heartbeat: The heartbeat.
        found: The claims that the last one found under this life.
        told: The ids of the records that polls have reported, the one in flight included.
        is_known: Whether the poll in flight at that time has ended.
    """
    left = {each for each in found if each.id not in told} if is_known else set[Identified]()
    return {*heartbeat.untracked} == left


def untracked_claims_are_looked_for(
    rules: WorkerRules, state: WorkerState, uncertain: Mapping[str, Instant], looked: Mapping[str, Instant], at: Instant
) -> bool:
    """Law WK14.

    `uncertain` says when the last such poll of a queue ended, `looked` when claims were last given
    back.
    """
    for name, since in uncertain.items():
        queue = rules.queue(name)
        lease = 0 if queue is None else queue.lease or 0
        if at - since >= lease or state.is_stopped or name in _claiming(state):
            continue
        last, every = looked.get(name), lease // _PART
        if last is None or at - last >= every or state.wake_at is None or state.wake_at - last > every:
            return False
    return True


def untracked_claims_are_not_in_hand(rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand]) -> bool:
    """Law WK15."""
    polled = {each.queue for each, _ in state.requests if isinstance(each, Poll | CapacityGranted)}
    if any(isinstance(each, ReturnUntracked) and each.queue in polled for each, _ in state.requests):
        return False
    for each in commands:
        if isinstance(each, ReturnUntracked):
            tracked = [one.run for one in state.running if one.queue == each.queue]
            tracked += [result.run for result in state.queues[rules.places[each.queue]].results]
            for write, _ in state.requests:
                if isinstance(write, WriteResults) and write.queue == each.queue:
                    tracked += [result.run for result in write.results]
            if Counter(tracked) != Counter(each.tracked):
                return False
    return True


def prefetched_runs_wait_briefly(state: WorkerState, at: Instant) -> bool:
    """Law WK16."""
    return state.is_stopped or all(
        each.started_at is not None or at - each.taken_at < PREFETCH_TIMEOUT for each in state.running
    )


def a_rejected_run_is_not_started(state: WorkerState, commands: Iterable[WorkerCommand]) -> bool:
    """Law WK17; a replacement of a refused result is allowed too."""
    life = 1 if state.membership is None else state.membership.life
    for each in commands:
        if isinstance(each, StartHandlers) and any(run.rejected is not None for run in each.runs):
            return False
        if isinstance(each, WriteResults):
            mine = (result for result in each.results if result.run.rejected is not None)
            if any(one.value != one.run.rejected and one.life == life and not one.is_last for one in mine):
                return False
    return True


def it_may_call_while_it_holds(held_until: Instant | None, at: Instant, *, may_call: bool) -> bool:
    """Law WK18, in both directions, for a handler that was not interrupted.

    `held_until` ends its lease or life, counted from before the last request for it.
    """
    return may_call == (held_until is not None and held_until - at > 0)


def unconfirmed_results_are_written_again(
    rules: WorkerRules,
    state: WorkerState,
    left: Mapping[str, events.ResultsWritten],
    commands: Iterable[WorkerCommand],
    at: Instant,
) -> bool:
    """Law WK19; `left` is the last event per queue with unconfirmed results that were not written
    since.
    """
    if state.is_stopped:
        return True
    written = {each.queue for each in commands if isinstance(each, WriteResults)}
    for name, told in left.items():
        pause, passed = retry_pause(rules.queues[rules.places[name]]), at - told.at
        if name in written:
            if passed < pause:
                return False
        elif passed >= pause or state.wake_at is None or state.wake_at - told.at > pause:
            return False
    return True


def capacity_is_granted_last(
    rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand], at: Instant
) -> bool:
    """Law WK20."""
    if not any(isinstance(each, CapacityGranted) and each.most for each in commands):
        return True
    held, polled = _held(rules, state, at) | _claiming(state), _polled_groups(state)
    return all(
        queue.name in held or (queue.group in polled and not known.is_woken) or not _is_due(known, at)
        for queue, known in zip(rules.queues, state.queues, strict=True)
    )


def each_capacity_request_is_answered(
    state: WorkerState, asked: Iterable[events.CapacityRequested], commands: Iterable[WorkerCommand]
) -> bool:
    """Law WK21, over all requests and commands."""
    answers = Counter(each.request for each in commands if isinstance(each, CapacityGranted))
    polls = [sent for each, sent in state.requests if isinstance(each, Poll)]
    known = {each.request: each for each in asked}
    return set(answers) <= set(known) and all(
        answers[name] == 1
        or (answers[name] == 0 and any(sent - each.at < 0 for sent in polls) and not state.is_stopped)
        for name, each in known.items()
    )


def a_group_is_polled_together(
    rules: WorkerRules, state: WorkerState, known: Collection[str], commands: Sequence[WorkerCommand], at: Instant
) -> bool:
    """Law WK22; `known` are the queues with known due work."""
    granted = {
        each.queue for each in commands if isinstance(each, CapacityGranted) and each.most
    }  # granted after the group was polled
    away = _held(rules, state, at) | (_claiming(state) - granted) | _woken(rules, state)
    for each in commands:
        if isinstance(each, PollGroup):
            if {*each.queues} != {queue.name for queue in rules.queues if queue.group == each.group} - away:
                return False
        elif isinstance(each, Poll) and each.queue not in known:
            queue = rules.queue(each.queue)
            if queue is not None and queue.group is not None:
                return False
    return True


def a_group_is_polled_first(
    rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand], at: Instant
) -> bool:
    """Law WK23: if a queue is polled, there was room."""
    if not any(isinstance(each, Poll) for each in commands):
        return True
    away = _held(rules, state, at) | _claiming(state) | _woken(rules, state)
    polled = _polled_groups(state)
    return all(
        queue.group is None or queue.group in polled or queue.name in away or not _is_due(known, at)
        for queue, known in zip(rules.queues, state.queues, strict=True)
    )


def failed_queues_are_not_polled_in_groups(failed: Collection[str], commands: Iterable[WorkerCommand]) -> bool:
    """Law WK24: no group poll includes a queue whose last poll has failed."""
    return not any({*failed}.intersection(each.queues) for each in commands if isinstance(each, PollGroup))


def a_busy_lease_is_kept(
    rules: WorkerRules, before: WorkerState, event: events.LeasesRenewed, after: WorkerState
) -> bool:
    """Law WK25: the lease counts from the request, and the next one is due after a twelfth of it."""
    sent, queue = before.sent_at(event.command), rules.queue(event.command.queue)
    if sent is None or queue is None or queue.lease is None:
        return True
    pairs = zip(event.command.runs, event.renewals, strict=True)
    busy = {run for run, renewal in pairs if renewal is Renewal.BUSY}
    wanted = (sent + queue.lease, event.at + queue.lease // _PART)
    return all((each.held_until, each.renew_at) == wanted for each in after.running if each.run in busy)


def _held(rules: WorkerRules, state: WorkerState, at: Instant) -> set[str]:
    known = zip(rules.queues, state.queues, strict=True)
    return {*state.paused} | {
        queue.name for queue, of in known if of.throttled_until is not None and of.throttled_until - at > 0
    }


def _woken(rules: WorkerRules, state: WorkerState) -> set[str]:
    return {queue.name for queue, known in zip(rules.queues, state.queues, strict=True) if known.is_woken}


def _is_due(known: QueueState, at: Instant) -> bool:
    return known.pace is None or known.pace.due - at <= 0


def _claimed(state: WorkerState) -> int:
    return sum(each.most for each, _ in state.requests if isinstance(each, Poll | CapacityGranted))


def _claiming(state: WorkerState) -> set[str]:
    return {each.queue for each, _ in state.requests if isinstance(each, Poll | CapacityGranted | ReturnUntracked)}


def _polled_groups(state: WorkerState) -> set[str | None]:
    return {each.group for each, _ in state.requests if isinstance(each, PollGroup)}
