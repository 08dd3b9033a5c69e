"""What has an id is named by all that makes it what it is, written down so that nothing can be mistaken for something else,
and hashed (SHA-256).
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final

from tidegate.model.errors import Misuse
from tidegate.model.patches import Json
from tidegate.retries.schedule import Schedule

_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def identity(*parts: Json) -> str:
    """The name of something that is made of these parts: SHA-256 of their JSON, in hexadecimal digits.

    JSON of lists says where a part begins and ends, so that ("a", "bc") and ("ab", "c") are two. Lone surrogates, which
    JSON would take for the halves of one character, are kept apart.

    Raises:
        Misuse: A part is not JSON.
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
