"""The laws of `tidegate.reactive.record.debounce`."""

from __future__ import annotations

from tidegate.model.instants import Instant
from tidegate.reactive.record.debounce import Debounce


def waits_for_quiet(debounce: Debounce, first: Instant, last: Instant, due: Instant) -> bool:
    """Law RE21: not due before it was quiet, unless the maximum is reached."""
    return due - last >= debounce.quiet or due - first >= debounce.wait_max


def waits_no_longer_than_the_maximum(debounce: Debounce, first: Instant, due: Instant) -> bool:
    """Law RE22: due within the maximum after the first change that waits."""
    return due - first <= debounce.wait_max


def is_due_no_earlier(due: Instant, due_later: Instant) -> bool:
    """Law RE23: a later change never makes it due earlier, nor does a later first one."""
    return due_later - due >= 0
