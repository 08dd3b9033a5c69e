"""Encodes done offsets that repeat: a period, and the offsets at which it does not hold.

If one of ten keys is blocked and the keys alternate, every tenth offset is open. Codes of runs and
gaps spend bits on each of them; this code stores only differences from the offset one period
earlier. Offsets before the beginning count as done, so the first period differs at its open
offsets. Bits are in big integers, bit i for offset i, so a million of them take a few milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from tidegate.consumer.offsets._pages import PAGE, PAGE_BITS, Pages, done_within, leaves

PERIOD_BITS: Final = 12
WINDOW: Final = 1 << PERIOD_BITS
"""The period is searched in this many offsets from the beginning, so it is the same for every part
that is written.
"""
SPAN_MAX: Final = 1 << 20
"""A longer stretch is neither written nor read this way, because it has too many bits."""

_BLOCK: Final = 64
_BLOCKS: Final = 8
_EDGE: Final = re.compile("10")


def bits_between(pages: Pages, start: int, stop: int) -> int:
    """The done offsets with `start` <= offset < `stop`; bit 0 is `start`."""
    first = start >> PAGE_BITS
    room = bytearray(((stop - 1 >> PAGE_BITS) - first + 1) * PAGE // 8)
    for page, _, done in leaves(done_within(pages, start, stop)):
        at = (page - first) * PAGE // 8
        room[at : at + PAGE // 8] = done.to_bytes(PAGE // 8, "little")
    return int.from_bytes(room, "little") >> (start & PAGE - 1)


def period_of(window: int) -> int | None:
    """The best of some periods in a `WINDOW`: the distances from an edge to the next place with the
    same bits.

    None if differences would be no fewer than gaps or runs.
    """
    within = _ones(WINDOW)
    text = f"{window:0{WINDOW}b}"[::-1]
    edges = [edge.start() for edge in islice(_EDGE.finditer(text), _BLOCKS)]
    shown = {text.find(text[at : at + _BLOCK], at + 1) - at for at in edges}
    differing = {period: _differing(window, period) & within for period in shown if period > 0}
    if not differing:
        return None
    period = min(differing, key=lambda each: (differing[each].bit_count(), each))
    numbers = min(window.bit_count(), WINDOW - window.bit_count(), (_differing(window, 1) & within).bit_count())
    later = (differing[period] >> period).bit_count()  # the first period is stored once
    return period if later * WINDOW < numbers * (WINDOW - period) else None


def differences(bits: int, span: int, period: int) -> list[int]:
    """The number of bits before each one that differs from the bit a period earlier, and after the
    last.
    """
    differing = _differing(bits, period) & _ones(span)
    return [*map(len, f"{differing:0{span}b}"[::-1].split("1"))]


def repeated(gaps: Sequence[int], period: int) -> str:
    """The bits with these `differences`, one character each."""
    text = "1".join("0" * gap for gap in gaps)
    within = _ones(len(text))
    bits = (int(text[::-1] or "0", 2) ^ _ones(period)) & within
    while period < len(text):  # each bit is the XOR of all differences one period apart: doubling
        bits, period = (bits ^ bits << period) & within, 2 * period
    return f"{bits:0{len(text)}b}"[::-1]


def _differing(bits: int, period: int) -> int:
    return bits ^ (bits << period | _ones(period))


def _ones(count: int) -> int:
    return (1 << count) - 1
