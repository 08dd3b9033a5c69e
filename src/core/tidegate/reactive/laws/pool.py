"""Laws of `tidegate.reactive.pool`, over its state, what it commands, and what it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tidegate.model.instants import Instant
from tidegate.reactive.pool import (
    Announced,
    End,
    Handle,
    Interrupt,
    InterruptReason,
    PoolCommand,
    PoolEvent,
    PoolRules,
    PoolState,
    Take,
)
from tidegate.reactive.reactive_task import Run

__all__ = [
    "a_late_handler_has_failed", "a_lost_lease_interrupts", "each_run_is_settled_once", "nothing_is_taken_to_stop",
    "one_request_a_task", "one_who_waits_is_woken", "what_is_announced_is_looked_for", "who_runs_has_an_executor",
]  # fmt: skip


def who_runs_has_an_executor(rules: PoolRules, state: PoolState) -> bool:
    """Law PW1: handlers that run, and runs that are asked for, are no more than the executors."""
    return len(state.working) + sum(command.most for command, _ in state.looking) <= rules.executors


def each_run_is_settled_once(taken: Iterable[Run], commands: Sequence[PoolCommand], *, is_over: bool) -> bool:
    """Law PW2: each run is handled at most once, and its end is written once, unless its lease was lost.

    Args:
        taken: The runs that were taken.
        commands: All that was commanded, in order.
        is_over: The pool has stopped, so nothing more will come.
    """
    handled = Counter(_key(run) for each in commands if isinstance(each, Handle) for run in each.runs)
    ended = Counter(_key(run) for each in commands if isinstance(each, End) for run, _ in each.ended)
    lost = {
        _key(run)
        for each in commands
        if isinstance(each, Interrupt) and each.why is InterruptReason.LEASE_LOST
        for run in each.runs
    }
    if any(times > 1 for times in (*handled.values(), *ended.values())):
        return False
    return not is_over or all(_key(run) in ended or _key(run) in lost for run in taken)


def a_lost_lease_interrupts(rules: PoolRules, state: PoolState, at: Instant) -> bool:
    """Law PW3: a handler whose lease is over was interrupted, and before that it was asked to be renewed in time.

    Args:
        rules: How the process works.
        state: The state after a step.
        at: When that was.
    """
    leases = {task.name: task.lease for task in rules.tasks}
    return all(
        each.why is not None or (each.held_until - at > 0 and each.renew_at - each.held_until < 0)
        for each in state.working
        if each.task in leases
    )


def one_request_a_task(state: PoolState, commands: Iterable[PoolCommand]) -> bool:
    """Law PW4: one look, one renewal and one request to write ends at most, and no look at what is paused.

    Args:
        state: The state after a step.
        commands: What that commands.
    """
    for under_way in (
        [command.task for command, _ in state.looking],
        [command.task for command, _ in state.renewing],
        [command.task for command in state.ending],
    ):
        if len(set(under_way)) < len(under_way):
            return False
    return not any(isinstance(each, Take) and each.task in state.paused for each in commands)


def a_late_handler_has_failed(rules: PoolRules, state: PoolState, at: Instant) -> bool:
    """Law PW5: a handler that has taken longer than its task allows was interrupted."""
    longest = {task.name: task.longest for task in rules.tasks}
    return all(
        each.why is not None or each.since is None or (most := longest[each.task]) is None or at - each.since < most
        for each in state.working
    )


def nothing_is_taken_to_stop(state: PoolState, commands: Iterable[PoolCommand], at: Instant) -> bool:
    """Law PW6: who is to stop takes nothing, interrupts what runs when the time is over, and stops when all is done."""
    if state.is_stopped:
        return state.is_idle
    if state.stop_at is None:
        return True
    are_asked = at - state.stop_at < 0 or all(each.why is not None for each in state.working)
    return are_asked and not state.is_idle and not any(isinstance(each, Take) for each in commands)


def one_who_waits_is_woken(rules: PoolRules, state: PoolState) -> bool:
    """Law PW7: until it stops a pool awaits an answer or its timer, unless all of its tasks are paused."""
    may_look = state.stop_at is None and any(task.name not in state.paused for task in rules.tasks)
    return state.is_stopped or not state.is_idle or state.wake_at is not None or not may_look


def what_is_announced_is_looked_for(
    rules: PoolRules, state: PoolState, event: PoolEvent, commands: Iterable[PoolCommand]
) -> bool:
    """Law PW8: what is announced is looked for at once, where there is room and no look is under way; or is due then.

    Args:
        rules: How the process works.
        state: The state after the event.
        event: What happened.
        commands: What follows.
    """
    if not isinstance(event, Announced) or state.stop_at is not None or rules.task(event.task) is None:
        return True
    if any(isinstance(each, Take) and each.task == event.task for each in commands):
        return True
    return all(pace.due - event.at <= 0 for name, pace in state.paces if name == event.task)


def _key(run: Run) -> tuple[str, int]:
    return run.claim.id, run.claim.token
