"""The laws of `tidegate.services.retention` as predicates over a history and the deleted rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.model.instants import Instant
from tidegate.services.retention import Retention, Row


def goes_for_a_reason(
    rows: Collection[Row], retention: Retention, protected: Collection[str], now: Instant, gone: Collection[str]
) -> bool:
    """Law RN1."""
    over = {row.id: row for row in rows if row.end is not None and row.id not in protected}
    return all(
        row_id in over
        and (
            _is_old(over[row_id], retention, now)
            or 0 < retention.count <= sum(_began(each) > _began(over[row_id]) for each in over.values())
        )
        for row_id in gone
    )


def stays_within_bounds(
    rows: Collection[Row], retention: Retention, protected: Collection[str], now: Instant, gone: Collection[str]
) -> bool:
    """Law RN2."""
    stays = [row for row in rows if row.end is not None and row.id not in protected and row.id not in gone]
    few = not retention.count or len(stays) <= retention.count
    return few and not any(_is_old(row, retention, now) for row in stays)


def the_oldest_go(
    rows: Collection[Row], retention: Retention, protected: Collection[str], now: Instant, gone: Collection[str]
) -> bool:
    """Law RN3."""
    fresh = [
        row for row in rows if row.end is not None and row.id not in protected and not _is_old(row, retention, now)
    ]
    stays = [_began(row) for row in fresh if row.id not in gone]
    return not stays or all(_began(row) < min(stays) for row in fresh if row.id in gone)


def nothing_more_goes(again: Sequence[str], shuffled: Sequence[str], gone: Sequence[str]) -> bool:
    """Law RN4."""
    return not again and shuffled == gone


def _is_old(row: Row, retention: Retention, now: Instant) -> bool:
    return row.end is not None and 0 < retention.age < now - row.end


def _began(row: Row) -> tuple[int, str]:
    return row.start.at, row.id
