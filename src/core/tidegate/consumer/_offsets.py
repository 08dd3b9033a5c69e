"""Batches of numbers (offsets, tasks) as they come from outside: checked, and shown in short."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model.errors import Misuse

__all__ = [
    "check_numbers", "ranges",
]  # fmt: skip


def check_numbers(batch: object, what: str, most: int) -> None:
    """Raise Misuse unless it is a tuple of integers, no bools, from 0 to `most`. It may be long, so it is not shown."""
    if type(batch) is not tuple or not {*map(type, batch)} <= {int}:
        raise Misuse(f"these are not {what}", why="they are integers, in a tuple")
    if batch and not 0 <= min(batch) <= max(batch) <= most:
        raise Misuse(f"these are not {what}", why=f"they are from 0 to {most}")


def ranges(numbers: Sequence[int]) -> str:
    """For people: `3-5 8`."""
    starts = [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number - 1]
    ends = [number for at, number in enumerate(numbers, 1) if at == len(numbers) or numbers[at] != number + 1]
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
