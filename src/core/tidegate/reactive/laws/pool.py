"""Laws of `tidegate.reactive.pool`, over its state, what it commands, and what it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.fetching import Run
from tidegate.reactive.pool import (
    Announced,
    End,
    EndsWritten,
    GiveBack,
    Glance,
    Granted,
    Handle,
    Interrupt,
    InterruptReason,
    PoolCommand,
    PoolEvent,
    PoolRules,
    PoolState,
    RoomAsked,
    Take,
)

__all__ = [
    "a_glance_goes_first", "a_glance_is_of_all", "a_grant_passes_nothing_by", "a_late_handler_has_failed", "a_lost_lease_interrupts", "each_run_is_settled_once", "gives_back_what_is_in_no_hands", "nothing_is_taken_to_stop",
    "one_request_a_task", "one_who_waits_is_woken", "what_is_announced_is_looked_for", "what_is_astray_is_looked_for", "what_is_expected_is_looked_for",
    "what_nobody_confirms_is_asked_for_again", "who_asks_is_answered", "who_has_no_lease_calls_nobody",
    "who_runs_has_an_executor",
]  # fmt: skip


def who_runs_has_an_executor(rules: PoolRules, state: PoolState) -> bool:
    """Law PW1: handlers that run, and runs that are asked for, are no more than the executors."""
    return len(state.working) + sum(command.most for command, _ in state.looking) <= rules.executors


def each_run_is_settled_once(
    taken: Iterable[Run], commands: Sequence[PoolCommand], left: Iterable[Run], *, is_over: bool
) -> bool:
    """Law PW2: each run is handled at most once, and its end is written once, unless its lease was lost.

    Args:
        taken: The runs that were taken.
        commands: All that was commanded, in order.
        left: The runs of which nobody knew whether their ends were written, each as often as that was so.
        is_over: The pool has stopped, so nothing more will come.
    """
    handled = Counter(_key(run) for each in commands if isinstance(each, Handle) for run in each.runs)
    ended = Counter(_key(run) for each in commands if isinstance(each, End) for run, _ in each.ended)
    ended.subtract(map(_key, left))
    lost = {
        _key(run)
        for each in commands
        if isinstance(each, Interrupt) and each.why is InterruptReason.LEASE_LOST
        for run in each.runs
    }
    if any(times > 1 for times in (*handled.values(), *ended.values())):
        return False
    return not is_over or all(ended[_key(run)] == 1 or _key(run) in lost for run in taken)


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


def one_request_a_task(state: PoolState, commands: Iterable[PoolCommand], at: Instant) -> bool:
    """Law PW4: one look, one renewal and one request to write ends at most, and no look or glance at what is paused or throttled.

    Args:
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
    for under_way in (
        [command.task for command, _ in state.looking],
        [command.task for command, _ in state.renewing],
        [command.task for command in state.ending],
        [command.records for command in state.glancing],
    ):
        if len(set(under_way)) < len(under_way):
            return False
    held = state.paused | {task for task, until in state.throttled if until - at > 0}
    glanced = {name for each in commands if isinstance(each, Glance) for name in each.tasks}
    return not held & glanced and not any(isinstance(each, Take) and each.task in held for each in commands)


def a_late_handler_has_failed(rules: PoolRules, state: PoolState, at: Instant) -> bool:
    """Law PW5: a handler that has taken longer than its task allows was interrupted."""
    longest = {task.name: task.longest for task in rules.tasks}
    return all(
        each.why is not None or each.since is None or (most := longest[each.task]) is None or at - each.since < most
        for each in state.working
    )


def nothing_is_taken_to_stop(rules: PoolRules, state: PoolState, commands: Iterable[PoolCommand], at: Instant) -> bool:
    """Law PW6: who is to stop takes nothing, interrupts what runs when the time is over, and stops when all is done, or late."""
    if state.stop_at is None:
        return not state.is_stopped
    is_late = at - (state.stop_at + rules.leave) >= 0
    if state.is_stopped or is_late:
        return state.is_stopped and (state.is_idle or is_late)
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
    if not isinstance(event, Announced) or event.due is not None or rules.task(event.task) is None:
        return True
    if state.stop_at is not None:
        return True
    if any(isinstance(each, Take) and each.task == event.task for each in commands):
        return True
    return all(pace.due - event.at <= 0 for name, pace in state.paces if name == event.task)


def what_is_expected_is_looked_for(
    rules: PoolRules, state: PoolState, expected: Iterable[tuple[str, Instant]], at: Instant
) -> bool:
    """Law PW9: what is known to be due later is looked for within the least interval after that, where there is room.

    Args:
        rules: How the process works.
        state: The state after a step.
        expected: The tasks of which something is due, each with when, and of which no look was sent after that.
        at: When that was.
    """
    is_free = len(state.working) + sum(command.most for command, _ in state.looking) < rules.executors
    held = state.paused | _looked_for(state)
    if state.stop_at is not None or not is_free or len(state.ended) > rules.batch:
        return True
    throttled = dict(state.throttled)
    for name, due in expected:
        task = rules.task(name)
        if task is None or name in held:
            continue
        waits = max(due - at, 0, throttled[name] - at if name in throttled else 0)
        if state.wake_at is None or state.wake_at - at > waits + task.polling.least:
            return False
    return True


def a_grant_passes_nothing_by(rules: PoolRules, state: PoolState, commands: Iterable[PoolCommand], at: Instant) -> bool:
    """Law PW10: room is granted only where no look is due that may be sent.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
    if not any(isinstance(each, Granted) and each.most for each in commands):
        return True
    held = state.paused | {task for task, until in state.throttled if until - at > 0}
    held |= _looked_for(state)
    glanced = {each.records for each in state.glancing}
    held |= {task.name for task in rules.tasks if task.records in glanced and task.name not in state.woken}
    due = {name: pace.due for name, pace in state.paces}
    return all(task.name in held or due.get(task.name, at) - at > 0 for task in rules.tasks)


def who_asks_is_answered(state: PoolState, asked: Sequence[RoomAsked], commands: Sequence[PoolCommand]) -> bool:
    """Law PW11: who asks for room is answered once, when the looks have ended that were under way, and no later.

    Args:
        state: The state after a step.
        asked: Who has asked, all in all.
        commands: All that was commanded, in order.
    """
    answers = Counter(each.request for each in commands if isinstance(each, Granted))
    looks = [sent for each, sent in state.looking if isinstance(each, Take)]
    return set(answers) <= {each.request for each in asked} and all(
        answers[each.request] == 1
        or (answers[each.request] == 0 and any(sent - each.at < 0 for sent in looks) and not state.is_stopped)
        for each in asked
    )


def a_glance_is_of_all(
    rules: PoolRules, state: PoolState, known: frozenset[str], commands: Iterable[PoolCommand], at: Instant
) -> bool:
    """Law PW12: tasks of one collection are glanced at together, and none of them is looked for that is not known to be due.

    Args:
        rules: How the process works.
        state: The state after a step.
        known: The tasks of which something is known to be due.
        commands: What that commands.
        at: When that was.
    """
    away = state.paused | state.woken | _looked_for(state)
    away |= {task for task, until in state.throttled if until - at > 0}
    for each in commands:
        if isinstance(each, Glance):
            mine = {task.name for task in rules.tasks if task.records == each.records}
            if {*each.tasks} != mine - away:
                return False
        elif isinstance(each, Take) and each.task not in known:
            task = rules.task(each.task)
            if task is not None and task.records is not None:
                return False
    return True


def a_glance_goes_first(rules: PoolRules, state: PoolState, commands: Iterable[PoolCommand], at: Instant) -> bool:
    """Law PW13: where a look is sent, so that there was room, each glance that is due is under way.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
        at: When that was.
    """
    if not any(isinstance(each, Take) for each in commands):
        return True
    away = state.paused | state.woken | _looked_for(state)
    away |= {task for task, until in state.throttled if until - at > 0}
    glanced = {each.records for each in state.glancing}
    due = {name: pace.due for name, pace in state.paces}
    return all(
        task.records is None or task.records in glanced or task.name in away or due.get(task.name, at) - at > 0
        for task in rules.tasks
    )


def what_fails_is_not_glanced(failed: frozenset[str], commands: Iterable[PoolCommand]) -> bool:
    """Law PW14: no glance is of a task whose last look has failed, so none can wake it before its pause is over.

    Args:
        failed: The tasks whose last look has failed.
        commands: What a step commands.
    """
    return not any(failed.intersection(each.tasks) for each in commands if isinstance(each, Glance))


def what_is_astray_is_looked_for(
    rules: PoolRules, state: PoolState, astray: Mapping[str, Instant], looked: Mapping[str, Instant], at: Instant
) -> bool:
    """Law PW15: for a lease's time after a look that did not tell of all, what is in the name of the process is looked through.

    Args:
        rules: How the process works.
        state: The state after a step.
        astray: The tasks of which a look did not tell of all, each with when the last such look has ended.
        looked: When what is in the name of the process was last looked through, by task.
        at: When the step was.
    """
    for name, since in astray.items():
        task = rules.task(name)
        if task is None or at - since >= task.lease or state.is_stopped or name in _looked_for(state):
            continue
        last, every = looked.get(name), task.lease // _TIMES
        if last is None or at - last >= every or state.wake_at is None or state.wake_at - last > every:
            return False
    return True


_TIMES: Final = 12


def gives_back_what_is_in_no_hands(state: PoolState, commands: Iterable[PoolCommand]) -> bool:
    """Law PW16: while a process looks through its name no look of that task is under way, and it names all that it has in hand.

    Args:
        state: The state after a step.
        commands: What that commands.
    """
    if {each.task for each in state.giving} & {look.task for look, _ in state.looking}:
        return False
    for each in commands:
        if isinstance(each, GiveBack):
            hands = [run for name, run, _ in state.ended if name == each.task]
            hands += [of.run for of in state.working if of.task == each.task]
            hands += [run for end in state.ending if end.task == each.task for run, _ in end.ended]
            if sorted(map(_key, hands)) != sorted(map(_key, each.hands)):
                return False
    return True


def what_nobody_confirms_is_asked_for_again(
    rules: PoolRules, state: PoolState, left: Mapping[str, EndsWritten], commands: Iterable[PoolCommand], at: Instant
) -> bool:
    """Law PW17: an end that nobody confirms is asked for again a twelfth of the lease later, after a second at most and no sooner.

    Args:
        rules: How the process works.
        state: The state after a step.
        left: What was last told of ends, by task, where somebody was asked for them and nobody knew of some.
        commands: What the step commands.
        at: When the step was.
    """
    if state.is_stopped:
        return True
    ends = {each.task for each in commands if isinstance(each, End)}
    for name, told in left.items():
        task = rules.task(name)
        if task is None:
            continue
        pause, passed = min(task.lease // _TIMES, SECOND), at - told.at
        if name in ends:
            if passed < pause:
                return False
        elif passed >= pause or state.wake_at is None or state.wake_at - told.at > pause:
            return False
    return True


def who_has_no_lease_calls_nobody(held_until: Instant, at: Instant, *, may_call: bool) -> bool:
    """Law PW18: a handler that was not interrupted may be called just as long as its lease can be nobody else's.

    Args:
        held_until: When its lease is over, counted from before it was last asked for.
        at: When it would be called.
        may_call: What the pool says.
    """
    return may_call == (held_until - at > 0)


def _looked_for(state: PoolState) -> set[str]:
    """The tasks of which a look is under way, or one through what is in the name of the process."""
    return {look.task for look, _ in state.looking} | {each.task for each in state.giving}


def _key(run: Run) -> tuple[str, int]:
    return run.claim.id, run.claim.token
