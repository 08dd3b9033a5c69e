"""Laws of `tidegate.work.worker`, over its state, what it commands, and what it was told."""

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
"""Which life of a process is confirmed, and until when; None where none is."""
_PART: Final = 12


def runs_have_slots(rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand]) -> bool:
    """Law WK1: the runs with slots are no more than `concurrency`, with those asked for; beside them a batch, and only with prefetch.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
    """
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
    """Law WK2: each run is started at most once, and its result is written once, unless its claim was lost.

    Args:
        taken: The runs that were taken.
        commands: All that was commanded.
        left: The runs whose results were not known to be written by a request, each as often as that was so.
        lost: The runs whose claims were lost.
        is_over: The worker has stopped with nothing under way, so nothing more will come.
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
    """Law WK3: a process that is a member polls only under a life that is confirmed."""
    polls = [each for each in commands if isinstance(each, Poll)]
    is_alive = life is not None and life[1] - at > 0
    return not isinstance(rules.liveness, ByLife) or all(
        is_alive and life is not None and each.life == life[0] for each in polls
    )


def a_lost_claim_interrupts(rules: WorkerRules, state: WorkerState, life: Life, at: Instant) -> bool:
    """Law WK4: a run whose lease has expired, or whose life is over, was interrupted; and the lease was to be renewed before that."""
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
    """Law WK5: of each kind one request for a queue is under way at most, and none polls what is paused or throttled.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
    under_way: list[object] = []
    for each, _ in state.requests:
        of = each.group if isinstance(each, PollGroup) else "" if isinstance(each, Heartbeat) else each.queue
        under_way.append((Poll if isinstance(each, CapacityGranted) else type(each), of))
    polled = {each.queue for each in commands if isinstance(each, Poll)}
    polled |= {name for each in commands if isinstance(each, PollGroup) for name in each.queues}
    return len(set(under_way)) == len(under_way) and not polled & _held(rules, state, at)


def timeouts_and_orders_are_obeyed(state: WorkerState, at: Instant) -> bool:
    """Law WK6: a run that has taken longer than its timeout was interrupted, and so was one of which that was asked."""
    return state.is_stopped or all(
        each.why is not None
        or (
            each.asked is None
            and (each.started_at is None or each.run.timeout is None or at - each.started_at < each.run.timeout)
        )
        for each in state.running
    )


def it_stops_in_time(rules: WorkerRules, state: WorkerState, commands: Iterable[WorkerCommand], at: Instant) -> bool:
    """Law WK7: a worker that is to stop takes nothing, interrupts what runs in time, and stops when all is done, or late."""
    if state.stop_at is None:
        return not state.is_stopped
    is_late = at - (state.stop_at + rules.leave) >= 0
    is_done = state.is_idle and (state.membership is None or state.membership.leaving is None)
    if state.is_stopped or is_late:
        return state.is_stopped and (is_late or is_done)
    are_asked = at - state.stop_at < 0 or all(each.why is not None for each in state.running)
    return are_asked and not is_done and not any(isinstance(each, Poll) for each in commands)


def it_has_something_to_wait_for(rules: WorkerRules, state: WorkerState) -> bool:
    """Law WK8: until it stops a worker awaits an answer or its timer, unless all its queues are paused."""
    if state.is_stopped or state.wake_at is not None:
        return True
    if isinstance(rules.liveness, ByLife):
        return any(isinstance(each, Heartbeat) for each, _ in state.requests)
    may_poll = state.stop_at is None and any(queue.name not in state.paused for queue in rules.queues)
    return not state.is_idle or not may_poll


def announced_work_is_polled(
    rules: WorkerRules, state: WorkerState, event: events.WorkerEvent, commands: Iterable[WorkerCommand]
) -> bool:
    """Law WK9: a queue of which something is announced is polled at once where that is possible, or is due then.

    Args:
        rules: How the process works.
        state: The state after the event.
        event: What happened.
        commands: What follows.
    """
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
    """Law WK10: what is known to be due later is polled within the least interval after that, where there is room.

    Args:
        rules: How the process works.
        state: The state after a step.
        expected: Queues of which something is due, each with when, and that were not polled after that.
        at: When that was.
    """
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
    """Law WK11: as long as a run wants its slot, no slot is free, and nothing is taken.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
    """
    if not any(each.slot is Slot.WANTS for each in state.running):
        return True
    used = sum(each.slot is Slot.HAS for each in state.running)
    is_taking = any(isinstance(each, Poll) for each in commands)
    return not is_taking and (used >= rules.concurrency or state.unwritten > rules.batch or state.is_stopped)


def suspended_runs_have_no_slot(state: WorkerState, suspended: Collection[Run]) -> bool:
    """Law WK12: a run has given its slot away if and only if it is suspended, and an interrupted one waits for none.

    Args:
        state: The state.
        suspended: The runs that are, by what was told last.
    """
    return state.is_stopped or all(
        (each.slot is Slot.AWAY) == (each.run in suspended) and not (each.slot is Slot.WANTS and each.why)
        for each in state.running
    )


def untracked_claims_are_returned_by_heartbeat(
    heartbeat: Heartbeat, found: Iterable[Identified], told: Collection[str], *, is_known: bool
) -> bool:
    """Law WK13: a heartbeat gives back what the one before it has found, but for what polls have told of, or will.

    Args:
        heartbeat: The heartbeat.
        found: The claims that were found under this life.
        told: The ids of the records that polls have told of, and those that the one under way will tell of.
        is_known: Whether the poll has ended that was under way when they were found.
    """
    left = {each for each in found if each.id not in told} if is_known else set[Identified]()
    return {*heartbeat.untracked} == left


def untracked_claims_are_looked_for(
    rules: WorkerRules, state: WorkerState, uncertain: Mapping[str, Instant], looked: Mapping[str, Instant], at: Instant
) -> bool:
    """Law WK14: for as long as a lease lasts after a poll that did not tell of all, untracked claims are given back.

    Args:
        rules: How the process works.
        state: The state after a step.
        uncertain: The queues of such polls, each with when the last one has ended.
        looked: When untracked claims were last given back, by queue.
        at: When the step was.
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
    """Law WK15: while untracked claims are given back no poll of the queue is under way, and all runs are named that are tracked.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
    """
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
    """Law WK16: a run that has waited for a slot for `PREFETCH_TIMEOUT` was started or given back."""
    return state.is_stopped or all(
        each.started_at is not None or at - each.taken_at < PREFETCH_TIMEOUT for each in state.running
    )


def a_rejected_run_is_not_started(state: WorkerState, commands: Iterable[WorkerCommand]) -> bool:
    """Law WK17: a rejected run is not started, and its result is what it was rejected with, unless it was taken under a life that is
    over, or the store has refused that.

    Args:
        state: The state after a step.
        commands: What that commands.
    """
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
    """Law WK18: a handler that was not interrupted may be called just as long as no other process can have its record.

    Args:
        held_until: Until when its lease or the life of its process holds, counted from before that was last asked for.
        at: When it would be called.
        may_call: What the worker says.
    """
    return may_call == (held_until is not None and held_until - at > 0)


def unconfirmed_results_are_written_again(
    rules: WorkerRules,
    state: WorkerState,
    left: Mapping[str, events.ResultsWritten],
    commands: Iterable[WorkerCommand],
    at: Instant,
) -> bool:
    """Law WK19: results that are not confirmed are written again after `retry_pause`, and no sooner.

    Args:
        rules: How the process works.
        state: The state after a step.
        left: The last event, by queue, that told of some that are not confirmed, and were not written again.
        commands: What the step commands.
        at: When the step was.
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
    """Law WK20: capacity is granted only where no poll is due that could be sent.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
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
    """Law WK21: each request for capacity is answered once: when the polls have ended that were under way, and no later.

    Args:
        state: The state after a step.
        asked: All requests.
        commands: All that was commanded, in order.
    """
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
    """Law WK22: the queues of a group are polled together, and none is polled alone in which nothing is known to be due.

    Args:
        rules: How the process works.
        state: The state after a step.
        known: The queues in which something is known to be due.
        commands: What that commands.
        at: When that was.
    """
    granted = {
        each.queue for each in commands if isinstance(each, CapacityGranted) and each.most
    }  # after the group was polled
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
    """Law WK23: where a queue is polled, so that there was room, each group that is due is being polled.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
    if not any(isinstance(each, Poll) for each in commands):
        return True
    away = _held(rules, state, at) | _claiming(state) | _woken(rules, state)
    polled = _polled_groups(state)
    return all(
        queue.group is None or queue.group in polled or queue.name in away or not _is_due(known, at)
        for queue, known in zip(rules.queues, state.queues, strict=True)
    )


def failed_queues_are_not_polled_in_groups(failed: Collection[str], commands: Iterable[WorkerCommand]) -> bool:
    """Law WK24: a queue whose last poll has failed is not polled with its group, so nothing wakes it before its pause is over.

    Args:
        failed: The queues whose last poll has failed.
        commands: What a step commands.
    """
    return not any({*failed}.intersection(each.queues) for each in commands if isinstance(each, PollGroup))


def _held(rules: WorkerRules, state: WorkerState, at: Instant) -> set[str]:
    """The queues that are paused or throttled."""
    known = zip(rules.queues, state.queues, strict=True)
    return {*state.paused} | {
        queue.name for queue, of in known if of.throttled_until is not None and of.throttled_until - at > 0
    }


def _woken(rules: WorkerRules, state: WorkerState) -> set[str]:
    return {queue.name for queue, known in zip(rules.queues, state.queues, strict=True) if known.is_woken}


def _is_due(known: QueueState, at: Instant) -> bool:
    return known.pace is None or known.pace.due - at <= 0


def _claimed(state: WorkerState) -> int:
    """How many runs are asked for."""
    return sum(each.most for each, _ in state.requests if isinstance(each, Poll | CapacityGranted))


def _claiming(state: WorkerState) -> set[str]:
    """The queues that are being polled, or of which untracked claims are being given back."""
    return {each.queue for each, _ in state.requests if isinstance(each, Poll | CapacityGranted | ReturnUntracked)}


def _polled_groups(state: WorkerState) -> set[str | None]:
    return {each.group for each, _ in state.requests if isinstance(each, PollGroup)}
