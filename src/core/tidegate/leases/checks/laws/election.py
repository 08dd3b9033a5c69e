"""The laws of `tidegate.leases.election`, over a step, one candidate's history, or all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from tidegate.leases.election import (
    Answered,
    Begin,
    ElectionState,
    ElectionStep,
    End,
    Following,
    Leading,
    Look,
    StartTimer,
    Stopped,
    Swap,
    Unanswered,
    WorkEnded,
)


def _is_release(command: object) -> bool:
    return isinstance(command, Swap) and command.lease.holder is None


def is_stopping(state: ElectionState) -> bool:
    return isinstance(state, Stopped) or state.is_stopping


def one_leads(leaders: Collection[str]) -> bool:
    """Law EL1."""
    return len(leaders) <= 1


def epochs_grow(epochs: Sequence[int]) -> bool:
    """Law EL2, over all epochs in the order in which they began."""
    return all(earlier < later for earlier, later in pairwise(epochs))


def work_begins_and_ends_once(deeds: Sequence[Begin | End | WorkEnded]) -> bool:
    """Law EL3, for one life of a candidate."""
    running: int | None = None
    is_asked = False
    for deed in deeds:
        if isinstance(deed, WorkEnded):
            running = None if running == deed.epoch else running
        elif isinstance(deed, Begin):
            if running is not None:
                return False
            running, is_asked = deed.epoch, False
        elif running != deed.epoch or is_asked:
            return False
        else:
            is_asked = True
    return True


def takes_nothing_once_it_is_to_stop(step: ElectionStep) -> bool:
    """Law EL4; a stopping candidate renews only while its work runs."""
    if not is_stopping(step.state):
        return True
    renews = isinstance(step.state, Leading)
    return not any(
        isinstance(command, Begin) or (isinstance(command, Swap) and not _is_release(command) and not renews)
        for command in step.commands
    )


def releases_without_work(running: int | None, step: ElectionStep) -> bool:
    """Law EL4: no candidate releases a lease or stops while its work (`running`) runs."""
    return running is None or not (isinstance(step.state, Stopped) or any(map(_is_release, step.commands)))


def stops_with_nothing_left(before: ElectionState, event: object, step: ElectionStep) -> bool:
    """Law EL4: when the candidate stops."""
    if not isinstance(step.state, Stopped) or isinstance(before, Stopped) or isinstance(event, Unanswered):
        return True
    if isinstance(event, Answered):  # held by another, free, or just released
        return event.lease is None or event.lease.holder is None or not _holds_it(before, event)
    return isinstance(before, Following) and before.claim is None


def _holds_it(before: ElectionState, answer: Answered) -> bool:
    claim = before.claim if isinstance(before, Following) else None
    return claim is not None and answer.lease is not None and answer.lease.request == claim.request


def awaits_something(step: ElectionStep) -> bool:
    """Law EL5."""
    wakes = any(isinstance(command, StartTimer) for command in step.commands)
    if isinstance(step.state, Following):
        return step.state.flight is not None or wakes
    return isinstance(step.state, Stopped) or step.state.is_over or wakes


def one_request_is_under_way(before: ElectionState, event: object, step: ElectionStep) -> bool:
    """Law EL6: a request is sent only if none is in flight or the one in flight is answered."""
    sent = [command for command in step.commands if isinstance(command, (Look, Swap))]
    flight = None if isinstance(before, Stopped) else before.flight
    is_answered = flight is not None and isinstance(event, (Answered, Unanswered)) and event.request == flight.request
    after = None if isinstance(step.state, Stopped) else step.state.flight
    if not sent:
        return after is None or after == flight
    return len(sent) == 1 and (flight is None or is_answered) and after is not None and after.request == sent[0]


def somebody_leads(leaders: Collection[str], willing: Collection[str]) -> bool:
    """Law EL7, long enough after the last fault."""
    return not willing or any(leader in willing for leader in leaders)


def changes_nothing(step: ElectionStep, woken: ElectionStep) -> bool:
    """Law EL8: such a reply causes the same step as a timer at that time."""
    return step == woken
