"""The laws of `tidegate.pipeline` as predicates."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.consumer.fanout import Tasks
from tidegate.pipeline.effects import Output, TaskSpec
from tidegate.pipeline.identity import KEY_MAX


def is_answered(wanted: Collection[str], settled: Collection[str], *, has_letter: bool) -> bool:
    """Law PN1, of a record that counts as done: its outputs are settled, or it is itself.

    Args:
        wanted: The keys of its outputs.
        settled: The keys of all outputs that are delivered, dead-lettered or skipped.
        has_letter: Whether the record is dead-lettered or skipped.
    """
    return has_letter or set(wanted) <= set(settled)


def has_no_end_without_answer(is_at_rest: bool, open_requests: int) -> bool:
    """Law PN2: at rest no request waits for an answer."""
    return not is_at_rest or open_requests == 0


def is_not_delivered_again(attempts: Sequence[Collection[Output]], failed: Sequence[Collection[Output]]) -> bool:
    """Law PN3: each attempt of a program takes only outputs that the one before it has failed at.

    Args:
        attempts: The outputs of each `Deliver` of one hook call, in order.
        failed: Those of each that were not confirmed.
    """
    return all(set(again) <= set(before) for again, before in zip(attempts[1:], failed, strict=False))


def calls_are_bounded(calls: int, records: int, retries: int) -> bool:
    """Law PN4, of one request: each hook is called at most once, plus its retries, plus once for
    each record.
    """
    return calls <= 1 + retries + records


def fails_alone(tasks: Tasks, bad: Collection[int], good: Collection[int]) -> bool:
    """Law PN5: what stands for failed records is for one record each, and for no other record."""
    failed = [tasks.offsets[number] for number in tasks.failed]
    return {(offset,) for offset in bad} <= set(failed) and not any((offset,) in failed for offset in good)


def is_numbered(tasks: Tasks, specs: Sequence[TaskSpec]) -> bool:
    """Law PN6, where no result is given."""
    own, others = tasks.offsets[: len(specs)], range(len(specs), len(tasks.offsets))
    return own == tuple(each.offsets for each in specs) and tasks.failed == tuple(others)


def are_own_tasks(specs: Sequence[TaskSpec], offsets: Collection[int], live: Collection[str]) -> bool:
    """Law TK1."""
    ids = [each.id for each in specs]
    of_window = all(each.offsets and set(each.offsets) <= set(offsets) for each in specs)
    return of_window and len({*ids}) == len(ids) and not {*ids} & {*live}


def keeps_numbers(before: Sequence[object], made: Sequence[object], after: Sequence[object]) -> bool:
    """Law TK2."""
    return list(after) in ([*before], [*before, *made])


def keys_differ(keys: Collection[str]) -> bool:
    """Laws ID1 and ID3, of the keys or ids of different parts."""
    return len({*keys}) == len(keys)


def is_short_and_printable(key: str) -> bool:
    """Law ID2."""
    return 0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable() and " " not in key
