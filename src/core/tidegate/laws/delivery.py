"""The laws of `tidegate.delivery` as predicates over payloads, offsets, circuits, and what was heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from tidegate.delivery import (
    SETTLED,
    Acknowledged,
    Action,
    Admit,
    Breaker,
    Buried,
    Burying,
    Circuit,
    Closed,
    Complete,
    DeadLetter,
    Delivered,
    Dismissed,
    Event,
    Failed,
    Held,
    Incomplete,
    Open,
    Outcome,
    Payload,
    Released,
    Rules,
    Sending,
    Skipped,
    Undecodable,
    Unwritten,
    Why,
    Written,
)
from tidegate.effects import Refused
from tidegate.instants import Instant


def decided_to_skip(rules: Rules, heard: Iterable[Event], why: Why) -> bool:
    """Tell whether what was heard of a payload contains the decision to skip it for that reason."""
    events = tuple(heard)
    failed = [event for event in events if isinstance(event, Failed)]
    match why:
        case Why.ANSWERED:
            return any(event.answer is Action.SKIP for event in failed)
        case Why.REFUSED:
            return rules.refused is Action.SKIP and any(isinstance(event.failure, Refused) for event in failed)
        case Why.LASTING:
            return rules.lasting is Action.SKIP and bool(failed)
        case Why.DISMISSED:
            return any(isinstance(event, Dismissed) for event in events)
        case _:
            return False


def completes_only_what_is_done(
    payloads: int, done: Collection[int], verdict: Complete | Incomplete, *, sealed: bool
) -> bool:
    """Law DL1: complete only if user code is done with the offset, and each payload is.

    Args:
        payloads: How many there are.
        done: Those of them that are in their sink or in the dead letters, or that were skipped by a decision.
        verdict: What was judged of the offset.
        sealed: Whether user code is done with it.
    """
    return isinstance(verdict, Incomplete) or (sealed and set(done).issuperset(range(payloads)))


def is_true_of_the_past(rules: Rules, heard: Sequence[Event], payload: Payload) -> bool:
    """Law DL1: delivered only if it was acknowledged, dead-lettered only if that was confirmed, skipped by a decision."""
    match payload:
        case Delivered():
            return any(isinstance(event, Acknowledged) for event in heard)
        case Buried():
            return any(isinstance(event, Written) for event in heard)
        case Skipped(why):
            return decided_to_skip(rules, heard, why)
        case _:
            return True


def stays_settled(before: Payload, after: Payload) -> bool:
    """Law DL2: what is settled stays as it is."""
    return not isinstance(before, SETTLED) or after == before


def stays_complete(before: Complete | Incomplete, after: Complete | Incomplete) -> bool:
    """Law DL2: an offset that is complete stays complete."""
    return not isinstance(before, Complete) or after == before


def is_sent_again_as_allowed(rules: Rules, before: Payload, event: Event, after: Payload) -> bool:
    """Law DL3: after a failure sent again only below the maximum, later than now, not if refused; else only if released."""
    if not isinstance(after, Sending) or after == before:
        return True
    if isinstance(before, Held):
        return isinstance(event, Released) and after.failures is not None
    if not isinstance(before, Sending) or not isinstance(event, Failed) or after.failures is None:
        return False
    allowed = rules.sending.attempts_max is None or after.failures.count < rules.sending.attempts_max
    later = after.not_before is not None and after.not_before - event.now >= 0
    one_more = after.failures.count == event.attempt == before.attempt
    return allowed and later and one_more and not isinstance(event.failure, Refused) and event.answer is Action.RETRY


def is_never_dropped(before: Payload, event: Event, after: Payload) -> bool:
    """Law DL4: from being dead-lettered there is no way but to be written, held back, or acknowledged after all."""
    if not isinstance(before, Burying):
        return True
    if isinstance(after, Skipped) or (isinstance(event, Unwritten) and isinstance(after, SETTLED)):
        return False
    return not isinstance(after, Held) or isinstance(after.then, Burying)


def is_deaf_to_the_past(before: Payload, event: Event, after: Payload) -> bool:
    """Law DL5: a failure with the number of another attempt than the one that is under way changes nothing."""
    match event:
        case Failed(attempt):
            under_way = isinstance(before, Sending) and attempt == before.attempt
        case Unwritten(attempt):
            under_way = isinstance(before, Burying) and attempt == before.attempt
        case _:
            return True
    return under_way or after == before


def comes_to_rest(rules: Rules, failures: int, payload: Payload) -> bool:
    """Law DL6: after as many failures as the policies allow, whatever was answered, it is settled or held."""
    sending, burying = rules.sending.attempts_max, rules.burying.attempts_max if rules.burying else 0
    if sending is None or burying is None or failures < sending + burying:
        return True
    return not isinstance(payload, (Sending, Burying))


def opens_at_the_threshold(breaker: Breaker, before: Circuit, era: int, outcome: Outcome, after: Circuit) -> bool:
    """Law DL7: a closed circuit counts what is unanswered in a row, opens at the threshold, and not before."""
    if not isinstance(before, Closed) or era != before.era:
        return True
    if outcome is Outcome.UNANSWERED and before.unanswered + 1 >= breaker.threshold:
        return isinstance(after, Open)
    row = {Outcome.ANSWERED: 0, Outcome.UNANSWERED: before.unanswered + 1, Outcome.NOT_TRIED: before.unanswered}
    return after == Closed(before.era, row[outcome])


def probes_one_by_one(breaker: Breaker, probes: Sequence[tuple[int, Instant]], settled: Iterable[int]) -> bool:
    """Law DL8: while it is not closed, each probe comes a cooldown after the one before, or after that was heard of.

    Args:
        breaker: How long the cooldown is.
        probes: The era and the time of each admission while the circuit was not closed, on a clock that was not set back.
        settled: The eras of those of which something was heard before the next one was admitted.
    """
    known = frozenset(settled)
    return len({era for era, _ in probes}) == len(probes) and all(
        era in known or later - earlier >= breaker.cooldown for (era, earlier), (_, later) in pairwise(probes)
    )


def waits_out_the_cooldown(breaker: Breaker, tripped: Instant, admitted: Instant) -> bool:
    """Law DL8: nothing is admitted within a cooldown after an attempt that opened the circuit."""
    return admitted - tripped >= breaker.cooldown


def does_not_stay_shut(breaker: Breaker, now: Instant, held_until: Instant | None) -> bool:
    """Law DL9: what is held back now may be tried again within a cooldown; None where it is admitted."""
    return held_until is None or 0 < held_until - now <= breaker.cooldown


def is_deaf_to_other_eras(before: Circuit, era: int, after: Circuit) -> bool:
    """Law DL10: what is heard under another era changes nothing."""
    return era == before.era or after == before


def has_its_own_era(before: Circuit, verdict: Admit) -> bool:
    """Law DL10: a probe has an era that no admission before it had; without a probe the circuit is as it was."""
    return verdict.circuit == before if isinstance(before, Closed) else verdict.era > before.era


def comes_back(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DL11: decoding an encoded dead letter gives the same one."""
    return decoded == letter


def notices_a_change(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DL12: bytes that differ from those of a dead letter are that dead letter, written otherwise, or have a flaw."""
    return isinstance(decoded, Undecodable) or decoded == letter


def shows_nothing(secrets: Iterable[str], texts: Iterable[str]) -> bool:
    """Law DL13: none of these texts holds one of these secrets."""
    shown = tuple(texts)
    return not any(secret in text for secret in secrets for text in shown)
