"""The reducer of a process that runs handlers.

A worker polls queues for as many runs as it has slots, calls their handlers, keeps the claims of
long ones, and writes the results, many in a request. Reactive tasks (`tidegate.reactive.task.worker`)
and invocations (`tidegate.invocations.worker.worker`) define their runs and results. Each event carries
the time of the machine's own monotonic clock.

The commands are in `vocabulary`, and `_liveness` keeps the claims.

Starting. A process may stall anywhere, and continues before it reads its clock again. So the driver
checks `WorkerState.may_call` immediately before it calls a handler.

Polling. The worker polls a queue as soon as it knows of due work. It keeps the first and the last
of the known due times, and polls once per least interval in between, so many records due in
sequence cost no more. One request polls the queues of a group; a queue is polled alone only if its
work is known to be due.

Capacity. A planner in this process asks how many runs it may claim in the write that plans them. It
gets slots that no due poll wants, so that older due work is not passed over. The request waits for
polls in flight. Otherwise records planned without a grant would make the next poll due, and the
next request would get no slots either.

Prefetch. Short handlers end while a poll is in flight, and leave slots idle. So a poll asks for as
many more runs as would end within `PREFETCH_WINDOW`, or during two polls, at the rate since the
last poll.

Suspension. A run that waits for other runs gives up its slot, and takes one again before it
continues. So waiting runs never block the runs that they wait for. An interrupted one resumes at
once, without a slot.

Results. The worker writes an unconfirmed result again until it is confirmed: it holds the claim, so
no other process would end that run. After a failure, the next request is half as large. So a
refused result is soon alone in its request, and the rules' `refused` result replaces it, if there
is one.

Laws
    WK1  Runs with slots, and those requested, are at most `concurrency`; with prefetch, at most a
         batch more is taken.
    WK2  Each run is started at most once. Its result is written in the end, unless its claim was
         lost or the time to leave was over, and again only if it was not known to be written.
    WK3  A member polls only while its life is confirmed, and under that life. Runs taken under an
         ended life are given back, and not started.
    WK4  A run whose lease has expired, or whose life is over, was interrupted; its renewal was due
         before.
    WK5  Each kind of request has at most one in flight for a queue, and at most one heartbeat is in
         flight. Paused and throttled queues are not polled.
    WK6  A run past its timeout was interrupted, and so was one whose interruption was requested.
    WK7  A stopping worker takes no work. When its time is over, it has interrupted all runs. It
         stops when no request or run is left and it has left, and not before, unless the time to
         leave is over too.
    WK8  Until it stops, a worker awaits a reply or its timer, unless all its queues are paused.
    WK9  A queue with announced work is polled at once if there is room and no poll in flight, or is
         then due.
    WK10 A queue with work due later is polled then, or within the least interval, if there is room.
    WK11 A run that wants its slot again gets the next free one, before any run is taken or started.
    WK12 A run has given up its slot if and only if it is suspended; an interrupted one waits for no
         slot.
    WK13 A heartbeat gives back exactly the claims that the one before found, under the same life,
         that were not tracked, and that no poll in flight at that time could report.
    WK14 For the length of a lease after a poll that may have made unreported claims, untracked
         claims are given back at each twelfth of it, or as soon as no poll is in flight.
    WK15 While they are given back no poll of the queue is in flight, and the request names all its
         runs that are not known to be written.
    WK16 A prefetched run that has waited for a slot for `PREFETCH_TIMEOUT` is started or given
         back.
    WK17 A rejected run is not started. Its result is the rejection, or its replacement if the store
         refused that, unless it was taken under an ended life.
    WK18 No handler is called, even if commanded, when another process may have its record.
    WK19 Unconfirmed results are written again after `retry_pause`, and no sooner.
    WK20 Capacity is granted only if no due poll could be sent: older due work never waits for
         planned work.
    WK21 Each capacity request is answered once: when the polls in flight at that time have ended,
         and no later.
    WK22 The queues of a group are polled together, all that are due for it at once. A queue without
         known due work is not polled alone.
    WK23 If there is room, a due group is polled before any queue, so a queue that takes all room
         cannot hide the due work of others.
    WK24 A queue whose poll has failed is polled at its own pace, ever more rarely, whatever its
         group's polls find.
    WK25 A lease that cannot be renewed because its own handler's transaction holds the record does
         not count as lost; it is renewed again after a twelfth of it.

Known not to work
    - A process that stalls between `may_call` and the first line of a handler continues with that
      line.
    - A process that dies takes all its runs along, and a death of each of these is counted.
    - A handler that ignores its cancellation holds its slot until the time to leave is over.
    - The next poll finds records that another process plans and that are due at once.
    - A stopping worker does not wait for claims that may arrive late: their leases expire.
    - Suspended runs have no limit: any limit would block the runs that they wait for.
    - A handler that returns despite an interruption has returned; its answer counts unless its
      claim was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Duration, Instant
from tidegate.model.reducer import Step
from tidegate.model.sealed import evolve
from tidegate.model.values import check_type
from tidegate.retries.contention import widened
from tidegate.retries.polling import Ask, Pace, fresh, turn, woken
from tidegate.work import _liveness as liveness
from tidegate.work import events
from tidegate.work._updates import answered, asked, with_queue, with_running
from tidegate.work.state import Membership, QueueState, Running, WorkerState, WorkerStep
from tidegate.work.vocabulary import (
    ByLife,
    CapacityGranted,
    Interrupt,
    InterruptReason,
    Leave,
    NoAnswer,
    Poll,
    PollGroup,
    PollResult,
    Queue,
    Result,
    Results,
    Resume,
    ReturnUntracked,
    Run,
    Slot,
    StartHandlers,
    StartTimer,
    WorkerCommand,
    WorkerRules,
    WriteResults,
)  # fmt: skip

PREFETCH_WINDOW: Final = 100 * MILLISECOND
"""At least as many runs are prefetched as would end in this time."""
PREFETCH_TIMEOUT: Final = SECOND
"""A prefetched run that is not started within this time is given back."""
_UNHEARD: Final = (InterruptReason.LOST, InterruptReason.LEASE_LOST)
"""An answer after one of these is discarded: another process has the record."""


@final
@attrs.frozen
class Worker:
    """The reducer of a process that runs handlers."""

    rules: WorkerRules

    def __attrs_post_init__(self) -> None:
        check_type(self.rules, WorkerRules, "the rules of a worker")

    def step(self, state: WorkerState, event: events.WorkerEvent) -> WorkerStep:
        """Return the next state and commands.

        Raises:
            Misuse: The event has a wrong type, or the state is that of other rules.
        """
        check_type(state, WorkerState, "a state of a worker")
        events.check_event(event)
        if state.is_stopped:
            return Step(state, _denied((event,) if isinstance(event, events.CapacityRequested) else ()))
        if len(state.queues) != len(self.rules.queues):
            if state.queues:
                raise Misuse(
                    f"the state has {len(state.queues)} queues, and the rules {len(self.rules.queues)}",
                    todo="pass the state that this worker returned, or WorkerState()",
                )
            member = Membership() if isinstance(self.rules.liveness, ByLife) else None
            state = evolve(state, queues=tuple(QueueState() for _ in self.rules.queues), membership=member)
        return _advance(self.rules, _apply(self.rules, state, event), event.at)


# --- what events tell -----------------------------------------------------------------------------


def _apply(rules: WorkerRules, state: WorkerState, event: events.WorkerEvent) -> WorkerState:
    match event:
        case events.TimerFired(at):
            is_over = state.wake_at is not None and state.wake_at - at <= 0
            return evolve(state, wake_at=None) if is_over else state
        case events.PollCompleted():
            return liveness.mark_untracked(_poll_completed(rules, state, event))
        case events.GroupPolled():
            return _group_polled(rules, state, event)
        case events.HandlersEnded(_, ended):
            return _handlers_ended(rules, state, dict(ended))
        case events.ResultsWritten():
            return _results_written(rules, state, event)
        case events.ResultsRefused():
            return _results_refused(rules, state, event)
        case events.LeasesRenewed():
            return liveness.renewed(rules, state, event)
        case events.UntrackedReturned(at, command, number):
            state = liveness.returned(rules, state, event)
            return _announce(rules, state, command.queue, at) if number else state
        case events.HeartbeatAcked():
            return liveness.acked(rules, state, event)
        case events.Left():
            member = state.membership
            if member is None or not member.leaving:
                return state
            return evolve(state, membership=evolve(member, leaving=None))
        case events.WorkAnnounced(at, queue, due):
            return _announce(rules, state, queue, at) if due is None else _expect(rules, state, queue, due)
        case events.CapacityRequested():
            return evolve(state, capacity_requests=(*state.capacity_requests, event))
        case events.QueuesPaused(_, queues):
            return evolve(state, paused=queues)
        case events.QueueThrottled(_, queue, until):
            return _throttle(rules, state, queue, until)
        case events.RunSuspended(_, run):
            return _move(state, run, _ACTIVE, Slot.AWAY)
        case events.ResumeRequested(_, run):
            return _move(state, run, frozenset({Slot.AWAY}), Slot.WANTS)
        case events.StopRequested(at):
            until = at if state.stop_at else at + rules.drain
            is_later = state.stop_at is not None and at - state.stop_at >= 0
            return state if is_later else evolve(state, stop_at=until, must_check=True)
        case _:
            assert_never(event)


def _poll_completed(rules: WorkerRules, state: WorkerState, event: events.PollCompleted) -> WorkerState:
    """Add the runs of a poll. A stopping worker, or a new life, gives them back (WK3, WK7)."""
    at, command, result = event.at, event.command, event.result
    if isinstance(command, CapacityGranted):  # its planner may have given up while the request still waits
        waiting = tuple(each for each in state.capacity_requests if each.request != command.request)
        state = evolve(state, capacity_requests=waiting)
    sent, place = state.sent_at(command), rules.places.get(command.queue)
    if sent is None or place is None:
        return state
    queue, state = rules.queues[place], answered(state, command)
    if result.is_uncertain:
        state = liveness.mark_uncertain(state, place, queue, at)
    if isinstance(command, Poll):
        state = _set_pace(rules, state, command, result, at)
        if rules.prefetch:
            state = evolve(state, prefetch=evolve(state.prefetch, poll_took=max(at - sent, 0)))
    life = command.life if isinstance(command, Poll) else liveness.life(state)
    is_over, begun, over = life != liveness.life(state), list[Running](), list[tuple[str, Result]]()
    for run in result.runs:
        if run.rejected is not None and not is_over:
            over.append((queue.name, Result(run, life, run.rejected)))
        elif is_over or state.stop_at is not None:
            why = InterruptReason.SILENT if is_over else InterruptReason.STOPPING
            over.append((queue.name, Result(run, life, rules.results.result(run, NoAnswer.NO_ANSWER, why))))
        else:
            begun.append(liveness.taken(queue, run, life, at, sent))
    state = _add_results(rules, state, over)
    return evolve(with_running(state, (*state.running, *begun)), must_check=True) if begun else state


def _set_pace(rules: WorkerRules, state: WorkerState, command: Poll, result: PollResult, at: Instant) -> WorkerState:
    place = rules.places[command.queue]
    polling, known = rules.queues[place].polling, state.queues[place]
    factor = widened(command.factor, len(result.runs), result.lost)
    # Still known to be due after a failure. Polled with its group it would be woken too early
    # (WK24).
    known = evolve(known, factor=factor, cursor=result.cursor, is_woken=known.is_woken or result.has_failed)
    if result.is_more or len(result.runs) == command.most:
        known = _woken(rules, known, place, at)
    elif result.runs:  # fewer than requested: no more are due, unless announced, for a moment
        known = evolve(known, pace=woken(polling, known.pace or fresh(polling, at), at + polling.least))
    if result.due_in is not None:
        known = _expecting(known, at + result.due_in)
    return with_queue(state, place, known)


def _group_polled(rules: WorkerRules, state: WorkerState, event: events.GroupPolled) -> WorkerState:
    state, queues = answered(state, event.command), list(state.queues)
    for name, after in event.dues:
        place = rules.places.get(name)
        if place is not None:
            known = queues[place]
            queues[place] = _expecting(known, event.at + after) if after else _woken(rules, known, place, event.at)
    return evolve(state, queues=tuple(queues))


def _handlers_ended(rules: WorkerRules, state: WorkerState, answers: dict[Run, object]) -> WorkerState:
    left, over, number = list[Running](), list[tuple[str, Result]](), 0
    for each in state.running:
        if each.run not in answers:
            left.append(each)
            continue
        number += 1
        if each.why not in _UNHEARD:
            value = rules.results.result(each.run, answers[each.run], each.why)
            over.append((each.queue, Result(each.run, each.life, value)))
    if rules.prefetch:
        state = evolve(state, prefetch=evolve(state.prefetch, ended=state.prefetch.ended + number))
    return _add_results(rules, with_running(state, left) if number else state, over)


def _add_results(rules: WorkerRules, state: WorkerState, found: Iterable[tuple[str, Result]]) -> WorkerState:
    of: dict[str, list[Result]] = {}
    for queue, result in found:
        of.setdefault(queue, []).append(result)
    for queue, results in of.items():
        place = rules.places[queue]
        known = state.queues[place]
        state = with_queue(state, place, evolve(known, results=(*known.results, *results)))
    return evolve(state, unwritten=state.unwritten + sum(map(len, of.values()))) if of else state


def _results_written(rules: WorkerRules, state: WorkerState, event: events.ResultsWritten) -> WorkerState:
    at, command, reply = event.at, event.command, event.reply
    place = rules.places.get(command.queue)
    if state.sent_at(command) is None or place is None:
        return state
    state = answered(state, command)
    left = tuple(each for each in command.results if each in reply.left)
    if left:
        state = _write_again(rules, state, command, left, at + liveness.retry_pause(rules.queues[place]))
    elif most := state.queues[place].results_max:
        most = 2 * most if 2 * most < rules.results_max else None
        state = with_queue(state, place, evolve(state.queues[place], results_max=most))
    for after in reply.dues:
        state = _expect(rules, state, command.queue, at + after)
    return _announce(rules, state, command.queue, at) if reply.is_more else state


def _results_refused(rules: WorkerRules, state: WorkerState, event: events.ResultsRefused) -> WorkerState:
    """Write again. A single refused result is replaced; a refused replacement is dropped."""
    command, refused = event.command, rules.results.refused
    queue = rules.queue(command.queue)
    if state.sent_at(command) is None or queue is None:
        return state
    state, results = answered(state, command), command.results
    if refused is None:
        return _write_again(rules, state, command, results, event.at + liveness.retry_pause(queue))
    if len(results) == 1:
        results = () if results[0].is_last else (attrs.evolve(results[0], value=refused, is_last=True),)
    return _write_again(rules, state, command, results, None)


def _write_again(
    rules: WorkerRules, state: WorkerState, command: WriteResults, results: Results, at: Instant | None
) -> WorkerState:
    """Queue these results again, half as many per request; a single one goes behind all others."""
    place, number = rules.places[command.queue], len(command.results)
    known = state.queues[place]
    both = (*results, *known.results) if number > 1 or at is None else (*known.results, *results)
    known = evolve(known, results=both, retry_at=at, results_max=max(number // 2, 1))
    state = with_queue(state, place, known)
    return evolve(state, unwritten=state.unwritten + len(results))


_ACTIVE: Final = frozenset({Slot.HAS, Slot.WANTS, Slot.WITHOUT})
"""Slots of runs that may suspend: one task may wait while another wants the slot again."""


def _move(state: WorkerState, run: Run, before: frozenset[Slot], after: Slot) -> WorkerState:
    """Change a run's slot and move it behind the others, which have waited longer."""
    moved = tuple(evolve(each, slot=after) for each in state.running if each.run == run and each.slot in before)
    if not moved:
        return state
    return with_running(state, (*(each for each in state.running if each.run != run), *moved))


def _announce(rules: WorkerRules, state: WorkerState, name: str, at: Instant) -> WorkerState:
    place = rules.places.get(name)
    if place is None:
        return state
    return with_queue(state, place, _woken(rules, state.queues[place], place, at))


def _woken(rules: WorkerRules, known: QueueState, place: int, at: Instant) -> QueueState:
    polling = rules.queues[place].polling
    return evolve(known, pace=woken(polling, known.pace or fresh(polling, at), at), is_woken=True)


def _expect(rules: WorkerRules, state: WorkerState, name: str, due: Instant) -> WorkerState:
    place = rules.places.get(name)
    if place is None:
        return state
    return with_queue(state, place, _expecting(state.queues[place], due))


def _expecting(known: QueueState, due: Instant) -> QueueState:
    first, last = known.expected or (due, due)
    return evolve(known, expected=(due if due - first < 0 else first, due if due - last > 0 else last))


def _throttle(rules: WorkerRules, state: WorkerState, name: str, until: Instant) -> WorkerState:
    place = rules.places.get(name)
    if place is None:
        return state
    known = state.queues[place]
    before = known.throttled_until
    later = until if before is None or until - before > 0 else before
    return with_queue(state, place, evolve(known, throttled_until=later))


# --- what follows ---------------------------------------------------------------------------------


def _advance(rules: WorkerRules, state: WorkerState, at: Instant) -> WorkerStep:
    """Interrupt, write, resume, start, renew, poll and grant, in this order."""
    commands: list[WorkerCommand] = []
    state = liveness.expired(state, at)
    is_due = state.must_check or (state.check_at is not None and at - state.check_at >= 0)
    if is_due:
        state = _interrupt(rules, state, at, commands)
    state = _write_results(rules, state, at, commands)
    state = liveness.return_untracked(rules, state, at, commands)
    state = _resume(rules, state, commands)
    state = _start_handlers(rules, state, at, commands)
    if is_due or state.must_check:
        state = liveness.renew(rules, state, at, commands)
        state = evolve(state, check_at=_next_check(state), must_check=False)
    if state.stop_at is None:
        state = _poll_groups(rules, _due_now(rules, state, at), at, commands)  # it takes no room from a poll
        state = _poll(rules, state, at, commands)
        state = _grant_capacity(rules, state, at, commands)
    else:
        state = _stop(rules, state, at, commands)
        if state.is_stopped:
            return Step(state, tuple(commands))
    state = liveness.send_heartbeat(rules, state, at, commands)
    wake_at = _next_wake(rules, state, at)
    if wake_at is not None and wake_at != state.wake_at:
        commands.append(StartTimer(max(wake_at - at, 0)))
    return Step(state if wake_at == state.wake_at else evolve(state, wake_at=wake_at), tuple(commands))


def _interrupt(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Interrupt handlers. A run that is not started ends at once."""
    reasons = [_reason(state, each, at) for each in state.running]
    if not any(reasons):
        return state
    left, over, ends = list[Running](), list[tuple[str, Result]](), dict[InterruptReason, list[Run]]()
    for each, why in zip(state.running, reasons, strict=True):
        if why is None:
            left.append(each)
        elif each.started_at is not None:
            ends.setdefault(why, []).append(each.run)
            left.append(evolve(each, why=why))
        elif why is not InterruptReason.LOST:
            value = rules.results.result(each.run, NoAnswer.NO_ANSWER, why)
            over.append((each.queue, Result(each.run, each.life, value)))
    commands.extend(Interrupt(tuple(ends[why]), why) for why in InterruptReason if why in ends)
    return _add_results(rules, with_running(state, left), over)


def _reason(state: WorkerState, each: Running, at: Instant) -> InterruptReason | None:
    if each.why is not None:
        return None
    if each.asked is not None:
        return each.asked
    if (lost := liveness.lost(state, each, at)) is not None:
        return lost
    started, timeout = each.started_at, each.run.timeout
    if started is not None and timeout is not None and at - started >= timeout:
        return InterruptReason.TOO_LONG
    if state.stop_at is not None and (started is None or at - state.stop_at >= 0):
        return InterruptReason.STOPPING
    return InterruptReason.LATE if started is None and at - each.taken_at >= PREFETCH_TIMEOUT else None


def _next_check(state: WorkerState) -> Instant | None:
    renewing = liveness.renewing(state)
    times: list[Instant] = []
    for each in state.running:
        if each.why is not None:
            continue
        if each.started_at is None:
            times.append(each.taken_at + PREFETCH_TIMEOUT)
        elif each.run.timeout is not None:
            times.append(each.started_at + each.run.timeout)
        if each.held_until is not None:
            times.append(each.held_until)
        if each.renew_at is not None and each.queue not in renewing:
            times.append(each.renew_at)
    if state.stop_at is not None and any(each.why is None for each in state.running):
        times.append(state.stop_at)
    return _first(times)


def _write_results(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Write results, one request per queue: of one life, and the first of each record."""
    if not state.unwritten:
        return state
    writing = {each.queue for each, _ in state.requests if isinstance(each, WriteResults)}
    for place, queue in enumerate(rules.queues):
        known = state.queues[place]
        is_early = known.retry_at is not None and at - known.retry_at < 0
        if not known.results or is_early or queue.name in writing:
            continue
        most, life = known.results_max or rules.results_max, known.results[0].life
        chosen, left = dict[str, Result](), list[Result]()
        for each in known.results:
            if len(chosen) < most and each.life == life and each.run.id not in chosen:
                chosen[each.run.id] = each
            else:
                left.append(each)
        command = WriteResults(queue.name, tuple(chosen.values()))
        commands.append(command)
        known = evolve(known, results=tuple(left), retry_at=None)
        state = asked(with_queue(state, place, known), command, at)
        state = evolve(state, unwritten=state.unwritten - len(chosen))
    return state


def _resume(rules: WorkerRules, state: WorkerState, commands: list[WorkerCommand]) -> WorkerState:
    """Give slots to runs that want to continue, longest waiting first."""
    if not state.wanting:
        return state
    wanting = [each for each in state.running if each.slot is Slot.WANTS]
    whole = [each.run for each in wanting if each.why is None]
    given = {each.run: Slot.WITHOUT for each in wanting if each.why is not None}
    given |= dict.fromkeys(whole[: _room(rules, state)], Slot.HAS)
    if not given:
        return state
    commands.append(Resume(tuple(given)))
    return with_running(state, (evolve(each, slot=given.get(each.run, each.slot)) for each in state.running))


def _start_handlers(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Give slots to runs that are not started, in the order in which they were taken."""
    # Without prefetch the poll filled free slots only. Unwritable results hold up prefetched
    # runs only.
    room = _room(rules, state) if rules.prefetch else rules.concurrency - state.used
    if not state.queued or room <= 0:
        return state
    running, started = list[Running](), list[Run]()
    for each in state.running:
        if each.slot is Slot.NEXT and len(started) < room:
            started.append(each.run)
            running.append(evolve(each, started_at=at, slot=Slot.HAS))
        else:
            running.append(each)
    commands.append(StartHandlers(tuple(started)))
    state = with_running(state, running)
    return evolve(state, must_check=True) if any(run.timeout for run in started) else state


def _due_now(rules: WorkerRules, state: WorkerState, at: Instant) -> WorkerState:
    for place, queue in enumerate(rules.queues):
        known = state.queues[place]
        if known.expected is None or known.expected[0] - at > 0:
            continue
        soon, last = at + queue.polling.least, known.expected[1]
        left = (soon if soon - last < 0 else last, last) if last - at > 0 else None
        state = with_queue(state, place, _woken(rules, evolve(known, expected=left), place, at))
    return state


def _poll_groups(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    if not _most(rules, state):
        return state
    claiming, idle = _claiming(state), dict[str, list[int]]()
    for place, queue in enumerate(rules.queues):
        known = state.queues[place]
        if queue.group is not None and not known.is_woken and _may_poll(state, queue, known, claiming, at):
            idle.setdefault(queue.group, []).append(place)
    polling = _polling(state)
    for group, places in idle.items():
        if group in polling or all(_wait(rules.queues[place], state.queues[place], at) for place in places):
            continue
        queues, dues = list(state.queues), list[Duration]()
        for place in places:
            queue = rules.queues[place]
            pace = _next_pace(rules, queue, Pace(at, _pace(queue, queues[place], at).interval), at)
            queues[place] = evolve(queues[place], pace=pace)
            dues.append(pace.due - at)
        command = PollGroup(group, tuple(rules.queues[place].name for place in places), min(dues))
        commands.append(command)
        state = asked(evolve(state, queues=tuple(queues)), command, at)
    return state


def _poll(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    if not _most(rules, state):
        return state
    claiming, due = _claiming(state), list[tuple[Duration, int]]()
    for place, queue in enumerate(rules.queues):
        known = state.queues[place]
        is_grouped = queue.group is not None and not known.is_woken
        if not is_grouped and not _wait(queue, known, at) and _may_poll(state, queue, known, claiming, at):
            due.append((_pace(queue, known, at).due - at, place))
    for _, place in sorted(due):
        if rules.prefetch:
            state = evolve(state, prefetch=evolve(state.prefetch, ahead=_ahead(rules, state, at)))
        most = _most(rules, state)
        if not most:
            break
        queue, known = rules.queues[place], state.queues[place]
        command = Poll(queue.name, most, known.factor, known.cursor, liveness.life(state))
        commands.append(command)
        pace = _next_pace(rules, queue, _pace(queue, known, at), at)
        state = asked(with_queue(state, place, evolve(known, pace=pace, is_woken=False)), command, at)
        if rules.prefetch:
            state = evolve(state, prefetch=evolve(state.prefetch, polled_at=at, ended=0))
    return state


def _ahead(rules: WorkerRules, state: WorkerState, at: Instant) -> int:
    """Return how many runs to prefetch: those that would end in `PREFETCH_WINDOW` or two polls."""
    prefetch = state.prefetch
    if prefetch.polled_at is None:
        return 0
    span = min(max(PREFETCH_WINDOW, 2 * prefetch.poll_took), PREFETCH_TIMEOUT // 2)
    return min(prefetch.ended * span // max(at - prefetch.polled_at, 1), rules.batch)


def _grant_capacity(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Grant the room that due polls leave, once earlier polls have ended (WK20, WK21)."""
    for request in state.capacity_requests:
        if any(isinstance(each, Poll) and sent - request.at < 0 for each, sent in state.requests):
            continue
        place, most = rules.places.get(request.queue), 0
        if place is not None and state.membership is None:
            queue, known = rules.queues[place], state.queues[place]
            if _may_poll(state, queue, known, _claiming(state), at):
                most = min(_most(rules, state), request.most)
        command = CapacityGranted(request.queue, request.request, most)
        commands.append(command)
        left = tuple(each for each in state.capacity_requests if each != request)
        state = evolve(asked(state, command, at) if most else state, capacity_requests=left)
    return state


def _denied(requests: Iterable[events.CapacityRequested]) -> tuple[CapacityGranted, ...]:
    return tuple(CapacityGranted(each.queue, each.request) for each in requests)


def _stop(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Leave when no run or request is left, then stop; or stop when the time to leave is over."""
    commands.extend(_denied(state.capacity_requests))
    member, is_idle = state.membership, state.is_idle
    state = evolve(state, capacity_requests=())
    is_late = state.stop_at is not None and at - (state.stop_at + rules.leave) >= 0
    if is_late or (is_idle and (member is None or member.leaving is None)):
        return evolve(state, is_stopped=True)
    if is_idle and member is not None and not member.leaving:
        commands.append(Leave(member.life))
        state = evolve(state, membership=evolve(member, leaving=True))
    return state


def _next_wake(rules: WorkerRules, state: WorkerState, at: Instant) -> Instant | None:
    member = state.membership
    times = [] if state.check_at is None else [state.check_at]
    times += [] if member is None or member.alive_until is None else [member.alive_until]
    if member is not None and liveness.may_beat(state):
        times.append(member.heartbeat_at or at)
    is_polling = state.stop_at is None and _most(rules, state) > 0
    if state.stop_at is not None:
        times.append(state.stop_at if at - state.stop_at < 0 else state.stop_at + rules.leave)
    claiming, polling = _claiming(state), _polling(state)
    for queue, known in zip(rules.queues, state.queues, strict=True):
        if known.results and known.retry_at is not None:
            times.append(known.retry_at)
        if known.uncertain is not None and queue.name not in claiming:
            times.append(known.uncertain[0])
        if not is_polling:
            continue
        if known.throttled_until is not None and known.throttled_until - at > 0 and queue.name not in state.paused:
            times.append(known.throttled_until)
        if _may_poll(state, queue, known, claiming, at):
            times += [] if known.expected is None else [known.expected[0]]
            if known.is_woken or queue.group not in polling:
                times.append(at + _wait(queue, known, at))
    return _first(times)


def _first(times: list[Instant]) -> Instant | None:
    return min(times, key=lambda each: each - times[0], default=None)


# --- rooms and queues -----------------------------------------------------------------------------


def _room(rules: WorkerRules, state: WorkerState) -> int:
    return max(rules.concurrency - state.used - max(state.unwritten - rules.batch, 0), 0)


def _most(rules: WorkerRules, state: WorkerState) -> int:
    """Return how many more runs to request.

    None while half of the prefetched runs wait, a run wants its slot again, or no life is
    confirmed.
    """
    ahead, is_known = state.prefetch.ahead, state.membership is None or state.membership.alive_until is not None
    if not is_known or state.wanting or 2 * state.queued > ahead:
        return 0
    reserved = sum(each.most for each, _ in state.requests if isinstance(each, Poll | CapacityGranted))
    return min(max(_room(rules, state) - reserved + ahead - state.queued, 0), rules.batch)


def _claiming(state: WorkerState) -> set[str]:
    return {each.queue for each, _ in state.requests if isinstance(each, Poll | CapacityGranted | ReturnUntracked)}


def _polling(state: WorkerState) -> set[str | None]:
    return {each.group for each, _ in state.requests if isinstance(each, PollGroup)}


def _may_poll(state: WorkerState, queue: Queue, known: QueueState, claiming: set[str], at: Instant) -> bool:
    is_throttled = known.throttled_until is not None and known.throttled_until - at > 0
    return not (is_throttled or queue.name in state.paused or queue.name in claiming)


def _pace(queue: Queue, known: QueueState, at: Instant) -> Pace:
    return known.pace or fresh(queue.polling, at)


def _wait(queue: Queue, known: QueueState, at: Instant) -> Duration:
    """Return the time until a queue is due; 0 if it is due, or later than possible (law PO7)."""
    wait = 0 if known.pace is None else max(known.pace.due - at, 0)
    return wait if wait <= queue.polling.longest else 0


def _next_pace(rules: WorkerRules, queue: Queue, pace: Pace, at: Instant) -> Pace:
    ask = turn(queue.polling, {queue.name: pace}, at, rules.draw_ppm)
    assert isinstance(ask, Ask), "it is due"
    return ask.pace
