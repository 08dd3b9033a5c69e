"""Calls public functions with one argument of the wrong type at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.model.errors import Misuse

NOTHING: Final = object()
HOSTILE: Final[tuple[object, ...]] = (
    None, True, -1, 2**70, 1.5, math.nan, "", "x", b"x", (), (1,), [], [1], [[]], {}, {1: 2}, NOTHING, int,
)  # fmt: skip


def refuses_wrong_types(call: Callable[..., object], arguments: Mapping[str, object], *more: object) -> None:
    """Check that `call` returns or raises Misuse, and refuses an argument of an unrelated type."""
    _ = call(**arguments)
    for argument in arguments:
        refused: list[object] = []
        for hostile in (*HOSTILE, *more):
            try:
                _ = call(**{**arguments, argument: hostile})
            except Misuse:
                refused.append(hostile)
        assert NOTHING in refused, argument
