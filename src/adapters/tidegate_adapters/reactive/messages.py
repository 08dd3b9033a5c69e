"""The wording of counts and outcomes, for the page and the command line."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.reactive.admin.commands import Retried, TaskCounts
from tidegate.reactive.record.task_records import TaskStatus


def numbers_of(counts: TaskCounts) -> Mapping[str, int]:
    found = dict(counts.counts)
    numbers = {status.value: found.get(status, 0) for status in TaskStatus}
    return {**numbers, "unreadable": found.get(None, 0)}


def retried(found: Retried) -> str:
    left = (
        (found.changed, "changed by others meanwhile: ask again"),
        (found.unknown, "of which nobody knows: ask again"),
        (found.unreadable, "that cannot be read"),
    )
    parts = [f"{found.reset:,} to run again", *(f"{number:,} {what}" for number, what in left if number)]
    return ", ".join(parts) + ("" if found.is_complete else "; nobody answers any more, so there may be others")
