"""Laws of `tidegate.invocations.dispatch`, over its state, what it commands, and what it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from tidegate.invocations.dispatch import (
    LATE,
    Announced,
    Beat,
    DispatchCommand,
    DispatchEvent,
    DispatchRules,
    DispatchState,
    EndsWritten,
    Handle,
    Run,
    Slot,
    Stray,
    Take,
    WriteEnds,
)
from tidegate.invocations.ending import Failed
from tidegate.model.instants import Instant

__all__ = [
    "Life", "a_killer_is_not_called", "a_life_that_is_over_interrupts", "an_end_is_written_at_last", "nothing_is_taken_by_the_silent",
    "nothing_is_taken_to_stop", "one_of_each_is_under_way", "one_who_waits_is_woken", "strays_are_given_back", "what_is_ahead_waits_not_for_long",
    "what_is_announced_is_looked_for", "what_is_asked_is_obeyed", "who_is_active_has_a_slot", "who_may_be_dead_calls_nobody", "who_waits_has_no_slot", "who_wants_a_slot_comes_first",
]  # fmt: skip


def who_is_active_has_a_slot(rules: DispatchRules, state: DispatchState) -> bool:
    """Law DI1: handlers that have slots are no more than the slots; beside them no more is taken than a batch."""
    asked = 0 if state.looking is None else state.looking.most
    called = sum(each.slot is Slot.HAS for each in state.active)
    ahead = sum(each.slot is Slot.NEXT for each in state.active)
    return called <= rules.slots and asked <= rules.batch and (asked == 0 or ahead + asked <= rules.slots + rules.batch)


def what_is_ahead_waits_not_for_long(state: DispatchState, at: Instant) -> bool:
    """Law DI12: what is taken ahead and has waited for a slot for `LATE` was called or given back."""
    return state.is_stopped or all(each.since is not None or at - each.taken < LATE for each in state.active)


def an_end_is_written_at_last(
    taken: Iterable[Run], commands: Sequence[DispatchCommand], settled: Iterable[Run], *, is_over: bool
) -> bool:
    """Law DI2: each run is handled at most once, and its end is written at last, unless it was lost.

    Args:
        taken: The runs that were taken.
        commands: All that was commanded, in order.
        settled: The runs whose ends the store has confirmed, or has refused for good, and those that were lost.
        is_over: It has stopped with nothing under way.
    """
    handled = Counter(run for each in commands if isinstance(each, Handle) for run in each.runs)
    if any(times > 1 for times in handled.values()):
        return False
    return not is_over or {*taken} <= {*settled}


Life: TypeAlias = tuple[int, Instant] | None
"""Which life of a process is confirmed, and until when that holds; None where none is."""


def nothing_is_taken_by_the_silent(life: Life, commands: Iterable[DispatchCommand], at: Instant) -> bool:
    """Law DI3: whoever takes is known to be alive, under the life that it takes under.

    Args:
        life: What is confirmed.
        commands: What a step commands.
        at: When that was.
    """
    return all(
        life is not None and each.life == life[0] and life[1] - at > 0 for each in commands if isinstance(each, Take)
    )


def a_life_that_is_over_interrupts(life: Life, state: DispatchState, at: Instant) -> bool:
    """Law DI4: what runs under a life that is over was interrupted, and a life is over when it was silent for too long."""
    is_over = life is None or life[1] - at <= 0
    return state.is_stopped or all(
        each.why or (not is_over and life is not None and each.life == life[0]) for each in state.active
    )


def one_of_each_is_under_way(before: DispatchState, event: DispatchEvent, commands: Sequence[DispatchCommand]) -> bool:
    """Law DI5: a look, a beat, or a request to write ends is sent only when none of its kind is under way.

    Args:
        before: The state before a step.
        event: What happened.
        commands: What that commands.
    """
    answered = getattr(event, "command", None)
    for kind, under_way in (
        (Take, before.looking),
        (Beat, None if before.beating is None else before.beating[0]),
        (WriteEnds, before.ending),
    ):
        sent = sum(isinstance(each, kind) for each in commands)
        if sent > (under_way is None or under_way == answered):
            return False
    return True


def what_is_asked_is_obeyed(state: DispatchState, at: Instant) -> bool:
    """Law DI6: who has taken longer than its task allows was interrupted, and so was one of which that was asked."""
    return state.is_stopped or all(
        each.why is not None
        or (
            each.asked is None
            and (each.since is None or each.run.longest is None or at - each.since < each.run.longest)
        )
        for each in state.active
    )


def nothing_is_taken_to_stop(
    rules: DispatchRules, state: DispatchState, commands: Iterable[DispatchCommand], at: Instant
) -> bool:
    """Law DI7: who is to stop takes nothing, interrupts what runs when the time is over, and stops when all is done and it has
    left, or late.
    """
    if state.stop_at is None:
        return not state.is_stopped
    is_late = at - (state.stop_at + rules.leave) >= 0
    if state.is_stopped or is_late:
        return state.is_stopped and (is_late or (state.is_idle and state.leaving is None))
    are_asked = at - state.stop_at < 0 or all(each.why is not None for each in state.active)
    is_done = state.is_idle and state.leaving is None
    return are_asked and not is_done and not any(isinstance(each, Take) for each in commands)


def one_who_waits_is_woken(state: DispatchState) -> bool:
    """Law DI8: until it stops it awaits its timer, or the answer to a beat."""
    return state.is_stopped or state.wake_at is not None or state.beating is not None


def what_is_announced_is_looked_for(
    state: DispatchState, event: DispatchEvent, commands: Iterable[DispatchCommand]
) -> bool:
    """Law DI9: what is announced or woken is looked for at once, where there is room and no look is under way; or is due then.

    Args:
        state: The state after the event.
        event: What happened.
        commands: What follows.
    """
    is_due = (isinstance(event, EndsWritten) and event.is_more) or (isinstance(event, Announced) and event.due is None)
    if not is_due or state.stop_at is not None:
        return True
    if any(isinstance(each, Take) for each in commands):
        return True
    return state.pace is not None and state.pace.due - event.at <= 0


def who_wants_a_slot_comes_first(
    rules: DispatchRules, state: DispatchState, commands: Sequence[DispatchCommand]
) -> bool:
    """Law DI10: as long as somebody wants a slot, no slot is free and nothing is taken; and they get them in turn.

    Args:
        rules: How the process works.
        state: The state after a step.
        commands: What that commands.
    """
    wants = any(each.slot is Slot.WANTS for each in state.active)
    if not wants:
        return True
    used = sum(each.slot is Slot.HAS for each in state.active)
    is_held_up = len(state.ended) > rules.batch
    is_taking = any(isinstance(each, Take) for each in commands)
    return not is_taking and (used >= rules.slots or is_held_up or state.is_stopped)


def who_waits_has_no_slot(state: DispatchState, waiting: Collection[Run]) -> bool:
    """Law DI13: whoever waits for others, and nobody else, has given its slot away; and who was interrupted waits for none.

    Args:
        state: The state.
        waiting: The runs that wait for others, by what was told last.
    """
    return state.is_stopped or all(
        (each.slot is Slot.AWAY) == (each.run in waiting) and not (each.slot is Slot.WANTS and each.why)
        for each in state.active
    )


def a_killer_is_not_called(rules: DispatchRules, state: DispatchState, commands: Iterable[DispatchCommand]) -> bool:
    """Law DI14: whose owners have died `deaths_max` times is not called, and fails, unless it was taken by who is to stop, or under
    a life that is over.
    """
    called = [run for each in commands if isinstance(each, Handle) for run in each.runs]
    ended = [one for each in commands if isinstance(each, WriteEnds) for one in each.ends]
    return all(run.deaths < rules.deaths_max for run in called) and all(
        isinstance(one.end, Failed) or one.life != state.life or state.stop_at is not None
        for one in ended
        if one.run.deaths >= rules.deaths_max
    )


def who_may_be_dead_calls_nobody(life: Life, at: Instant, *, may_call: bool) -> bool:
    """Law DI15: a handler that was not interrupted may be called just as long as nobody can have taken its process for dead.

    Args:
        life: What is confirmed.
        at: When it would be called.
        may_call: What the dispatch says.
    """
    return may_call == (life is not None and life[1] - at > 0)


def strays_are_given_back(beat: Beat, found: Iterable[Stray], told: Collection[str], *, is_known: bool) -> bool:
    """Law DI11: a beat gives back what the one before it has found, but for what looks have told of, or will.

    Args:
        beat: The beat.
        found: What was found in the name of this life.
        told: The invocations that looks have told of, and those that the one under way will tell of.
        is_known: Whether the look that was under way when that was found has ended: before that nothing is given back.
    """
    strays = {each for each in found if each.key not in told} if is_known else set[Stray]()
    return {*beat.strays} == strays
