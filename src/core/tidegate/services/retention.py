"""Decides which rows of a history to delete, by age and by count.

Rows of unfinished work and protected rows (others refer to them) always stay, and do not count.

Laws
    RN1  No row goes that is under way, protected, or neither too old nor in excess.
    RN2  A finished, unprotected row that stays is not too old, and at most `count` of them stay.
    RN3  Of rows that may go and are not too old, none that stays started before one that goes.
    RN4  A second cut deletes no row, and the order of the rows does not matter.

Known not to work
    Rows added after the cut are not counted: with several writers more than `count` rows may exist.
"""

from __future__ import annotations

from collections.abc import Collection
from types import NoneType
from typing import final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, Duration, Instant, micros
from tidegate.model.values import check_int, check_name, check_type, check_types


@final
@attrs.frozen(kw_only=True)
class Retention:
    """How long and how many rows stay. Invariants: 0 <= age; 0 <= count.

    Attributes:
        age: A row may go when it ended longer ago than this, in microseconds; 0 for no limit.
        count: How many of the newest rows stay; 0 for any number.
    """

    age: Duration = attrs.field(default=60 * MINUTE, converter=micros)
    count: int = 1000

    def __attrs_post_init__(self) -> None:
        check_int(self.age, "an age in microseconds", 0)
        check_int(self.count, "a number of rows", 0)


@final
@attrs.frozen
class Row:
    """The fields of a row that a cut needs; `end` is None while it is under way.

    Invariants: the id is not empty; start <= end, on one clock.
    """

    id: str
    start: Instant
    end: Instant | None

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a row")
        check_type(self.start, Instant, "an instant")
        check_type(self.end, (Instant, NoneType), "an instant")
        if self.end is not None and self.end - self.start < 0:
            raise Misuse(f"{self.id!r} ends before it starts", why=f"from {self.start} to {self.end}")


def surplus(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = frozenset(), now: Instant
) -> tuple[str, ...]:
    """Return the ids of the rows to delete, oldest start first.

    Rows in `protected` are referred to by others.

    Raises:
        Misuse: A row was timed on another clock than `now`, or two rows have one id.
    """
    check_types(rows, Row, "a row")
    if len({row.id for row in rows}) != len(rows):
        raise Misuse("two rows have one id", why="an id says which row goes")
    check_type(retention, Retention, "a retention")
    check_types(protected, str, "the id of a row")
    check_type(now, Instant, "an instant")
    spared = frozenset(protected)
    oldest_first = sorted(
        (row.start.at, row.id, now - row.end) for row in rows if row.end is not None and row.id not in spared
    )
    # An age of 0 keeps every row, because `0 < 0` is false. The slice is all but the newest
    # `count`.
    fresh = [row_id for _, row_id, age in oldest_first if not 0 < retention.age < age]
    gone = {row_id for _, row_id, _ in oldest_first}.difference(fresh)
    gone.update(fresh[: -retention.count] if retention.count else ())
    return tuple(row_id for _, row_id, _ in oldest_first if row_id in gone)
