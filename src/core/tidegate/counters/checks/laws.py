"""The laws of `tidegate.counters.counter` as predicates over the record and a perfect observer's
view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.counters.counter import (
    Counted,
    Counter,
    CountToken,
    Forgotten,
    Full,
    Increment,
    IncrementVerdict,
    NoteToken,
)
from tidegate.model.documents import Document


def each_counts_once(counter: Counter, counted: Mapping[str, int]) -> bool:
    """Law CN1; `counted` is how often each token was counted since the beginning."""
    return all(times == 1 for times in counted.values()) and counter.count == len(counted)


def only_counting_takes_away(before: Counter, after: Counter) -> bool:
    """Law CN2: a pending token of `before` is pending in `after`, or counted by this change."""
    pending = {token for token, noted in before.tokens if noted > 0}
    missing = {token for token in pending if after.noted(token) != before.noted(token)}
    return all(after.noted(token) == -(before.noted(token) or 0) for token in missing) and (
        after.count == before.count + len(missing)
    )


def comes_late_in_vain(before: Counter, after: Counter, token: str, in_round: int) -> bool:
    """Law CN3, for one first step."""
    if before.noted(token) is not None or before.round != in_round:
        return after == before
    return after == Counter(before.count, before.round, (*before.tokens, (token, in_round)))


def the_answer_is_true(
    answer: IncrementVerdict, increment: Increment, counted: Collection[str], pending: Collection[str], open_round: int
) -> bool:
    """Law CN4; first steps of rounds before `open_round` have no effect."""
    match answer:
        case Counted():
            return increment.token in counted
        case CountToken():
            return increment.token in counted or increment.token in pending
        case NoteToken(in_round):
            again = increment.asked in (None, in_round) or (increment.asked or 0) < open_round
            return again and increment.token not in counted and increment.token not in pending
        case Forgotten():
            return increment.asked is not None and open_round >= increment.asked + 2
        case _:
            return True


def only_the_count_is_left(record: Document, key: str, count: int) -> bool:
    """Law CN5."""
    return [name for name, _ in record.items] == ["_id", "count", "round"] and (
        dict(record.items)["_id"] == key and dict(record.items)["count"] == count
    )


def what_is_full_takes_no_more(counter: Counter, tokens_max: int, answer: IncrementVerdict) -> bool:
    """Law CN6; a record is not called full before its limit either."""
    is_full = len(counter.tokens) >= tokens_max
    return not isinstance(answer, NoteToken if is_full else Full)
