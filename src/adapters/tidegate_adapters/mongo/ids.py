"""Document ids as people write and read them.

    order-7                          the text; also the number or ObjectId that it spells
    {"$oid": "65a5..."}, "7", 7      MongoDB Extended JSON v2: exactly this

Printed ids can be parsed again. Source: the MongoDB specification "MongoDB Extended JSON (v2)",
relaxed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import JSONMode, JSONOptions

from tidegate.model.documents import Field, Value
from tidegate.model.errors import Misuse, shown
from tidegate_adapters.mongo import bson

_HOW: Final = JSONOptions(
    json_mode=JSONMode.RELAXED, document_class=dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_OBJECT_ID: Final = re.compile("[0-9a-f]{24}")
_WITH_DIGITS: Final = re.compile('{"\\$oid": "([0-9a-f]{24})"}')
_BEGINS: Final = '{["'


def exact(value: Value) -> str:
    return json_util.dumps(bson.encoded(value), json_options=_HOW)


def readable(value: Value) -> str:
    """Plain text if it parses back unambiguously, else Extended JSON."""
    if isinstance(value, str):
        return value if value and value[0] not in _BEGINS and meant(value) == (value,) else exact(value)
    text = exact(value)
    found = _WITH_DIGITS.fullmatch(text)
    return found[1] if found else text


def meant(text: str) -> tuple[Value, ...]:
    """All possible meanings of a text; Misuse for invalid Extended JSON."""
    if not text:
        raise Misuse("an id without a character")
    if _OBJECT_ID.fullmatch(text):
        return (text, _read(f'{{"$oid": "{text}"}}'))
    if text[0] in _BEGINS:
        return (_read(text),)
    try:
        return (text, _read(text))  # 7, 7.5, true
    except Misuse:
        return (text,)


def _read(text: str) -> Value:
    try:
        read: Any = json_util.loads(text, json_options=_HOW)
        return bson.loaded({_FIELD: read}, "what was given")[Field[Value](_FIELD)]
    except Misuse:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, BSONError) as error:
        raise Misuse(
            f"{shown(text)} is no Extended JSON",
            why=str(error),
            todo="""write it as {"$oid": "..."}, {"$numberLong": "7"} or "text"; what begins otherwise is taken as it is""",
        ) from None


_FIELD: Final = "_id"
