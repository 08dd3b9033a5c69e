"""The laws of `tidegate.sinks.delivery` as predicates over payloads, their events, and offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidegate.model.effects import Refused
from tidegate.sinks.delivery import (
    SETTLED,
    Acknowledged,
    Action,
    Complete,
    DeadLettered,
    DeadLetterFailed,
    DeadLettering,
    DeadLetterWritten,
    Delivered,
    DeliveryEvent,
    DeliveryRules,
    Dismissed,
    Failed,
    Held,
    Incomplete,
    Payload,
    Reason,
    Released,
    Sending,
    Skipped,
)


def decided_to_skip(rules: DeliveryRules, events: Iterable[DeliveryEvent], reason: Reason) -> bool:
    """Whether the events contain the decision to skip the payload for that reason."""
    known = tuple(events)
    failed = [event for event in known if isinstance(event, Failed)]
    match reason:
        case Reason.ANSWERED:
            return any(event.answer is Action.SKIP for event in failed)
        case Reason.REFUSED:
            return rules.refused is Action.SKIP and any(isinstance(event.failure, Refused) for event in failed)
        case Reason.LASTING:
            return rules.lasting is Action.SKIP and bool(failed)
        case Reason.DISMISSED:
            return any(isinstance(event, Dismissed) for event in known)
        case _:
            return False


def completes_only_what_is_done(
    payloads: int, done: Collection[int], verdict: Complete | Incomplete, *, sealed: bool
) -> bool:
    """Law DL1 for an offset; `done` are the payloads in their sink, dead-lettered, or skipped by a
    decision.
    """
    return isinstance(verdict, Incomplete) or (sealed and set(done).issuperset(range(payloads)))


def is_true_of_the_past(rules: DeliveryRules, events: Sequence[DeliveryEvent], payload: Payload) -> bool:
    """Law DL1 for a payload, judged by its events."""
    match payload:
        case Delivered():
            return any(isinstance(event, Acknowledged) for event in events)
        case DeadLettered():
            return any(isinstance(event, DeadLetterWritten) for event in events)
        case Skipped(reason):
            return decided_to_skip(rules, events, reason)
        case _:
            return True


def stays_settled(before: Payload, after: Payload) -> bool:
    """Law DL2 for a payload."""
    return not isinstance(before, SETTLED) or after == before


def stays_complete(before: Complete | Incomplete, after: Complete | Incomplete) -> bool:
    """Law DL2 for an offset."""
    return not isinstance(before, Complete) or after == before


def is_sent_again_as_allowed(rules: DeliveryRules, before: Payload, event: DeliveryEvent, after: Payload) -> bool:
    """Law DL3: after a failure only below the maximum, later, and not if refused; else only after a
    release.
    """
    if not isinstance(after, Sending) or after == before:
        return True
    if isinstance(before, Held):
        return isinstance(event, Released) and after == before.then
    if not isinstance(before, Sending) or not isinstance(event, Failed) or after.failures is None:
        return False
    allowed = rules.sending.attempts_max is None or after.failures.count < rules.sending.attempts_max
    later = after.not_before is not None and after.not_before - event.now >= 0
    one_more = after.failures.count == event.attempt == before.attempt
    return allowed and later and one_more and not isinstance(event.failure, Refused) and event.answer is Action.RETRY


def is_never_dropped(before: Payload, event: DeliveryEvent, after: Payload) -> bool:
    """Law DL4: dead-lettering ends only by a write, a hold, or a late acknowledgement."""
    if not isinstance(before, DeadLettering):
        return True
    if isinstance(after, Skipped) or (isinstance(event, DeadLetterFailed) and isinstance(after, SETTLED)):
        return False
    return not isinstance(after, Held) or isinstance(after.then, DeadLettering)


def ignores_the_past(before: Payload, event: DeliveryEvent, after: Payload) -> bool:
    """Law DL5: a failure with the number of another attempt changes nothing."""
    match event:
        case Failed(attempt):
            under_way = isinstance(before, Sending) and attempt == before.attempt
        case DeadLetterFailed(attempt):
            under_way = isinstance(before, DeadLettering) and attempt == before.attempt
        case _:
            return True
    return under_way or after == before


def comes_to_rest(rules: DeliveryRules, failures: int, payload: Payload) -> bool:
    """Law DL6, whatever user code answers."""
    sending, dead_lettering = (
        rules.sending.attempts_max,
        rules.dead_lettering.attempts_max if rules.dead_lettering else 0,
    )
    if sending is None or dead_lettering is None or failures < sending + dead_lettering:
        return True
    return not isinstance(payload, (Sending, DeadLettering))
