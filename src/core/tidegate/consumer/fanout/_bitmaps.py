"""Sets of small numbers as one integer: bit i is set if i is in the set."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_FEW: Final = 8
"""Below this size, a loop over the numbers is cheaper."""


def bits_of(numbers: Collection[int]) -> int:
    if len(numbers) < _FEW:
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return bits
    low, high = min(numbers), max(numbers)
    if high - low + 1 == len({*numbers}):  # no gaps, the common case: ones, shifted to the lowest
        return (1 << high - low + 1) - 1 << low
    octets = bytearray((high >> 3) + 1)  # setting a bit of an integer would copy all of it
    for number in numbers:
        octets[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(octets, "little")


def numbers_in(bits: int) -> list[int]:
    """The numbers whose bits are set, in order."""
    if not bits & bits + 1:  # only ones, from bit 0 on
        return [*range(bits.bit_length())]
    if bits.bit_count() >= _FEW:
        return [number for number, bit in enumerate(f"{bits:b}"[::-1]) if bit == "1"]
    numbers: list[int] = []
    while bits:
        lowest = bits & -bits
        numbers.append(lowest.bit_length() - 1)
        bits ^= lowest
    return numbers


def picked(offsets: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """The offsets at the positions whose bits are set."""
    return offsets if bits.bit_count() == len(offsets) else tuple([offsets[place] for place in numbers_in(bits)])
