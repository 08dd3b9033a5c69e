"""Ids that are hashes (SHA-256) of an unambiguous JSON text of all that defines the value."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final

from tidegate.model.errors import Misuse
from tidegate.model.patches import Json
from tidegate.retries.schedule import Schedule

_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def identity(*parts: Json) -> str:
    """Return the SHA-256 of the JSON of these parts, in hexadecimal digits.

    A JSON list delimits its parts, so ("a", "bc") and ("ab", "c") differ. Lone surrogates are kept,
    because a JSON escape would merge two of them into one character.
    """
    try:
        written = _WRITER.encode(parts)
    except (TypeError, ValueError, RecursionError):
        raise Misuse(
            "what an id is made of is not JSON", why="text, numbers that are finite, lists and dicts"
        ) from None
    return sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def written_schedule(schedule: Schedule) -> list[Json]:
    return [schedule.expression, schedule.missed.value, schedule.late_max]
