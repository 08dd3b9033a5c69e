"""Batches of numbers (offsets, tasks) from outside: checked, and shown in short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from tidegate.model.errors import Misuse, shown
from tidegate.model.values import is_run

T = TypeVar("T")

OFFSET_MAX: Final = 2**63 - 1
"""The highest offset of a record: Kafka's offsets are signed 64-bit integers."""

Run: TypeAlias = tuple[int, int]
"""Offsets from the first, included, to the second, excluded."""


def check_numbers(batch: object, what: str, most: int) -> None:
    """Raise Misuse unless it is a tuple of ints from 0 to `most`. It may be long, so it is not
    shown.
    """
    if type(batch) is tuple and len(batch) == 1 and type(batch[0]) is int and 0 <= batch[0] <= most:
        return
    if type(batch) is not tuple or not {*map(type, batch)} <= {int}:
        raise Misuse(f"these are not {what}", why="they are integers, in a tuple")
    if batch and not 0 <= min(batch) <= max(batch) <= most:
        raise Misuse(f"these are not {what}", why=f"they are from 0 to {most}")


def ranges(numbers: Sequence[int]) -> str:
    """For people: `3-5 8`."""
    if len(numbers) > 1 and is_run((*numbers,)):
        return f"{numbers[0]}-{numbers[-1]}"
    starts = [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number - 1]
    ends = [number for at, number in enumerate(numbers, 1) if at == len(numbers) or numbers[at] != number + 1]
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def batch_of(offsets: Iterable[T]) -> tuple[T, ...]:
    try:
        return tuple(offsets)
    except TypeError:
        raise Misuse(f"{shown(offsets)} is not a batch", todo="pass a tuple") from None


def check_position(position: int) -> None:
    """A position is one past a record, so it may be one past the last."""
    if type(position) is not int or not 0 <= position <= OFFSET_MAX + 1:
        raise not_an_offset(position, OFFSET_MAX + 1)


def not_an_offset(offset: object, most: int) -> Misuse:
    return Misuse(
        f"{shown(offset)} is not an offset",
        why=f"offsets are whole numbers from 0 to {most}",
        todo="pass the offset of a record, or the position after it, as the broker gave it",
    )
