"""Times, counts and outcomes of reactive tasks in words, for the page and the command line."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Duration, Instant, moment, seconds
from tidegate.reactive.desk import Retried, TaskCounts
from tidegate.reactive.task_records import TaskStatus

__all__ = ["length", "numbers_of", "retried", "when"]


def when(at: Instant) -> str:
    """A time, with its time zone, to the millisecond."""
    try:
        return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except Misuse:  # beyond the year 9999
        return str(at)


def length(time: Duration) -> str:
    """A length of time, in two units at most: `3.2 s`, `5 min 3 s`, `2 h 7 min`, `3 d 4 h`."""
    if time < MINUTE:
        return seconds(time // 100_000 * 100_000) if time >= SECOND else seconds(time // 1_000 * 1_000)
    whole = time // SECOND
    for size, unit, below, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {name}"
    raise AssertionError("it is a minute at least")


def numbers_of(counts: TaskCounts) -> Mapping[str, int]:
    """How many records of a task have each status, and cannot be read."""
    found = dict(counts.counts)
    numbers = {status.value: found.get(status, 0) for status in TaskStatus}
    return {**numbers, "unreadable": found.get(None, 0)}


def retried(found: Retried) -> str:
    """What became of records that were to run again."""
    left = (
        (found.changed, "changed by others meanwhile: ask again"),
        (found.unknown, "of which nobody knows: ask again"),
        (found.unreadable, "that cannot be read"),
    )
    parts = [f"{found.reset:,} to run again", *(f"{number:,} {what}" for number, what in left if number)]
    return ", ".join(parts) + ("" if found.is_complete else "; nobody answers any more, so there may be others")
