"""Laws of `tidegate.invocations.queue.completion`, over a record and the answers about its runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.invocations.record.invocation import INVOCATION, RETRY, SUCCESS
from tidegate.invocations.record.record_documents import DUE, ERROR, NOTICE, RESULT, RESULT_PAYLOAD, STATUS, VERSION
from tidegate.model.documents import Document, Value, exactly
from tidegate.model.instants import Duration, Instant
from tidegate.model.reading import needed


def result_is_of_the_granted(record: Document, granted: Iterable[Value]) -> bool:
    """Law EN1: a succeeded record holds the one granted result; other records hold none.

    Args:
        record: The record.
        granted: The results, or upload names, of runs whose request made its last version.
    """
    held = [exactly(record.held(field)) for field in (RESULT, RESULT_PAYLOAD) if record.has(field)]
    return held == [exactly(each) for each in granted] and bool(held) is (record[STATUS] == SUCCESS)


def available_is_due(record: Document) -> bool:
    """Law EN2: a record has a due time exactly if it is available.

    Args:
        record: The record.
    """
    return record.has(DUE) is INVOCATION[needed(record, STATUS)].available


def as_often_as_allowed(record: Document, tries: int, attempts_max: int | None) -> bool:
    """Law EN3: after the allowed attempts none follows, and a failed record has its error.

    Args:
        record: The record after a failed run.
        tries: How many runs have begun.
        attempts_max: The allowed number; None for any.
    """
    is_over = attempts_max is not None and tries >= attempts_max
    return record.has(ERROR) and (record[STATUS] != RETRY or not is_over)


def versions_are_noticed(record: Document, listened: Collection[int]) -> bool:
    """Law EN4: the notices are the versions made for listeners.

    Args:
        record: The record.
        listened: Those versions.
    """
    noticed = record.get(NOTICE) or ()
    return sorted(noticed) == sorted(listened) and all(version <= needed(record, VERSION) for version in noticed)


def a_try_is_due_after_the_delay(due: Instant, failed: Instant, least: Duration, most: Duration) -> bool:
    """Law EN5: the next attempt is due after the delay, less the jitter.

    Args:
        due: Its due time.
        failed: The earliest time of the failure.
        least: The delay without jitter, in microseconds.
        most: The delay plus the time that its write may have taken.
    """
    return least <= due - failed <= most
