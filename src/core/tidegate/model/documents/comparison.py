"""Whether MongoDB takes two values for equal. Whether they are the same, `exactly` tells."""

from __future__ import annotations

import math

from tidegate.model.documents.bson import Foreign, is_number, numeric
from tidegate.model.documents.value import DEPTH_MAX, Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant

__all__ = ["equal"]


def equal(left: object, right: object) -> bool:
    """MongoDB's equality: numbers by value, NaN equal to itself, documents by key, value and order.

    Raises:
        Misuse: Both are nested deeper than any document.
    """
    try:
        return _equal(left, right)
    except RecursionError:
        raise Misuse("nested too deep to be compared", why=f"no document is nested deeper than {DEPTH_MAX}") from None


def _equal(left: object, right: object) -> bool:
    if is_number(left) and is_number(right):
        return left == right or (_is_nan(left) and _is_nan(right))
    if isinstance(left, Foreign) or isinstance(right, Foreign):
        return left == right or None is not numeric(left) == numeric(right)
    if isinstance(left, Document) and isinstance(right, Document):
        return len(left.items) == len(right.items) and all(
            key == other and _equal(value, against)
            for (key, value), (other, against) in zip(left.items, right.items, strict=True)
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Instant) and isinstance(right, Instant):
        return left.at == right.at  # a stored date does not say which clock it came from
    return type(left) is type(right) and left == right


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
