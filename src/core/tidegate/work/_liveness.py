"""How a process keeps its claims (`ByLease`, `ByLife`), and finds claims that it does not track.

By lease, each claim has an expiry, counted from before the claiming or renewing request was sent,
so the process sees it before any other may. A failed poll may have made claims that its lost reply
named. So the worker repeatedly gives back all claims in its name except the tracked ones, for as
long as such a claim could last.

By life, the process is a member (`tidegate.services.members`) that sends heartbeats, also counted
from before sending. After a silence the life is over: the worker interrupts all its runs, and joins
again under the next life. Each heartbeat's reply lists the untracked claims. A poll in flight may
still report some of them. The next heartbeat gives back the rest, because recovery ignores the
claims of a living process.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX
from tidegate.model.sealed import evolve
from tidegate.work._updates import answered, asked, with_queue
from tidegate.work.events import HeartbeatAcked, LeasesRenewed, UntrackedReturned
from tidegate.work.state import Membership, Running, WorkerState
from tidegate.work.vocabulary import (
    ByLife,
    CapacityGranted,
    Heartbeat,
    InterruptReason,
    Poll,
    Queue,
    Renewal,
    RenewLeases,
    ReturnUntracked,
    Run,
    WorkerCommand,
    WorkerRules,
    WriteResults,
)  # fmt: skip

_RENEWED: Final = 3
"""A lease is renewed after this part of it;"""
_RETRIED: Final = 12
"""after an unknown result, again after this part, or after half of what is left."""
_BEATS: Final = 4
"""A heartbeat without a reply is repeated after this part of the interval."""
RETRY_MAX: Final = SECOND
"""The longest wait before an unconfirmed request is retried."""


def taken(queue: Queue, run: Run, life: int, at: Instant, sent: Instant) -> Running:
    if queue.lease is None:
        return Running(run, queue.name, life, at)
    held_until, renew_at = sent + queue.lease, sent + queue.lease // _RENEWED
    return Running(run, queue.name, life, at, held_until=held_until, renew_at=renew_at)


def lost(state: WorkerState, each: Running, at: Instant) -> InterruptReason | None:
    """Return why another process may have a run's record; None if none may."""
    if each.life != life(state):
        return InterruptReason.SILENT
    is_held = each.held_until is None or each.held_until - at > 0
    return None if is_held else InterruptReason.LEASE_LOST


def retry_pause(queue: Queue) -> Duration:
    return RETRY_MAX if queue.lease is None else max(min(queue.lease // _RETRIED, RETRY_MAX), 1)


# --- by lease -------------------------------------------------------------------------------------


def renew(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    due: dict[str, list[Run]] = {}
    for each in state.running:
        if each.renew_at is not None and each.why is None and at - each.renew_at >= 0:
            due.setdefault(each.queue, []).append(each.run)
    for queue in rules.queues if due else ():
        if queue.name in due and queue.name not in renewing(state):
            command = RenewLeases(queue.name, tuple(due[queue.name][:FOUND_MAX]))
            commands.append(command)
            state = asked(state, command, at)
    return state


def renewing(state: WorkerState) -> set[str]:
    return {each.queue for each, _ in state.requests if isinstance(each, RenewLeases)}


def renewed(rules: WorkerRules, state: WorkerState, event: LeasesRenewed) -> WorkerState:
    sent, queue = state.sent_at(event.command), rules.queue(event.command.queue)
    if sent is None or queue is None or queue.lease is None:
        return state
    lease, at = queue.lease, event.at
    found = dict(zip(event.command.runs, event.renewals, strict=True))

    def after(each: Running) -> Running:
        match found.get(each.run):
            case Renewal.RENEWED:
                return evolve(each, held_until=sent + lease, renew_at=sent + lease // _RENEWED)
            case Renewal.BUSY:
                return evolve(each, held_until=sent + lease, renew_at=at + lease // _RETRIED)
            case Renewal.LOST:
                return evolve(each, held_until=at)
            case Renewal.UNKNOWN if each.held_until is not None:
                return evolve(each, renew_at=at + min(lease // _RETRIED, (each.held_until - at) // 2))
            case _:
                return each

    return evolve(answered(state, event.command), running=tuple(map(after, state.running)), must_check=True)


def mark_uncertain(state: WorkerState, place: int, queue: Queue, at: Instant) -> WorkerState:
    """Note that a queue may have untracked claims, now or later, for the length of a lease."""
    if queue.lease is None:
        return state
    known = state.queues[place]
    begins = at if known.uncertain is None else known.uncertain[0]
    return with_queue(state, place, evolve(known, uncertain=(begins, at + queue.lease)))


def return_untracked(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    """Give back untracked claims of uncertain queues, unless a poll in flight may report them."""
    for place, queue in enumerate(rules.queues):
        known = state.queues[place]
        if known.uncertain is None:
            continue
        begins, ends = known.uncertain
        if ends - at <= 0:
            state = with_queue(state, place, evolve(known, uncertain=None))
        elif begins - at <= 0 and not _is_claiming(state, queue):
            command = ReturnUntracked(queue.name, _tracked(state, place, queue))
            commands.append(command)
            state = asked(state, command, at)
    return state


def _is_claiming(state: WorkerState, queue: Queue) -> bool:
    kinds = (Poll, CapacityGranted, ReturnUntracked)
    return any(isinstance(each, kinds) and each.queue == queue.name for each, _ in state.requests)


def _tracked(state: WorkerState, place: int, queue: Queue) -> tuple[Run, ...]:
    running = (each.run for each in state.running if each.queue == queue.name)
    waiting = (each.run for each in state.queues[place].results)
    requests = (each for each, _ in state.requests if isinstance(each, WriteResults) and each.queue == queue.name)
    return (*running, *waiting, *(each.run for request in requests for each in request.results))


def returned(rules: WorkerRules, state: WorkerState, event: UntrackedReturned) -> WorkerState:
    """Untracked claims were given back; repeat later, as more may appear."""
    place = rules.places.get(event.command.queue)
    if place is None:
        return state
    lease, known = rules.queues[place].lease or 0, state.queues[place]
    state = answered(state, event.command)
    if known.uncertain is None:
        return state
    again_at = event.at + max(lease // _RETRIED, 1)
    return with_queue(state, place, evolve(known, uncertain=(again_at, known.uncertain[1])))


# --- by life --------------------------------------------------------------------------------------


def life(state: WorkerState) -> int:
    return 1 if state.membership is None else state.membership.life


def expired(state: WorkerState, at: Instant) -> WorkerState:
    member = state.membership
    is_over = member is not None and member.alive_until is not None and at - member.alive_until >= 0
    return _next_life(state, member) if is_over and member is not None else state


def _next_life(state: WorkerState, member: Membership) -> WorkerState:
    return evolve(state, membership=Membership(member.life + 1, leaving=member.leaving), must_check=True)


def may_beat(state: WorkerState) -> bool:
    is_member = state.membership is not None and state.membership.leaving is False
    return is_member and not any(isinstance(each, Heartbeat) for each, _ in state.requests)


def send_heartbeat(rules: WorkerRules, state: WorkerState, at: Instant, commands: list[WorkerCommand]) -> WorkerState:
    member = state.membership
    if member is None or not may_beat(state) or (member.heartbeat_at is not None and at - member.heartbeat_at < 0):
        return state
    mine = (each for each in state.running if each.life == member.life and each.why is not InterruptReason.LOST)
    command = Heartbeat(member.life, tuple(each.run for each in mine), member.untracked)
    commands.append(command)
    assert isinstance(rules.liveness, ByLife)
    member = evolve(member, heartbeat_at=at + rules.liveness.heartbeat_every)
    return evolve(asked(state, command, at), membership=member)


def acked(rules: WorkerRules, state: WorkerState, event: HeartbeatAcked) -> WorkerState:
    sent, liveness = state.sent_at(event.command), rules.liveness
    if sent is None or not isinstance(liveness, ByLife):
        return state
    state = answered(state, event.command)
    member = state.membership
    if member is None or event.command.life != member.life:
        return state
    if event.is_alive is None:
        soon = event.at + liveness.heartbeat_every // _BEATS
        return evolve(state, membership=evolve(member, heartbeat_at=soon))
    if not event.is_alive:
        return _next_life(state, member)
    reply = event.reply
    member = evolve(member, alive_until=sent + liveness.dead_after, doubted=reply.untracked, untracked=())
    state = evolve(state, membership=member)
    if reply.asked:
        asked_of = dict(reply.asked)
        running = tuple(_asked(each, asked_of.get(each.run)) for each in state.running)
        state = evolve(state, running=running, must_check=True)
    return mark_untracked(state)


def _asked(each: Running, what: InterruptReason | None) -> Running:
    """An interrupted run keeps its reason, except that LOST discards its answer."""
    if each.why is None:
        return evolve(each, asked=what or each.asked)
    return evolve(each, why=what) if what is InterruptReason.LOST else each


def mark_untracked(state: WorkerState) -> WorkerState:
    """Treat doubted claims that are still not tracked as untracked, once no poll is in flight."""
    member = state.membership
    if member is None or not member.doubted:
        return state
    runs = (*(each.run for each in state.running), *(each.run for each in state.results))
    tracked = {(run.id, run.token) for run in runs}
    left = tuple(each for each in member.doubted if (each.id, each.token) not in tracked)
    if any(isinstance(each, Poll) for each, _ in state.requests):
        return evolve(state, membership=evolve(member, doubted=left))
    return evolve(state, membership=evolve(member, doubted=(), untracked=left))
