"""Log records as lines for people, or as one JSON object a line, with the fields of `extra=`.

Output contains no apparent secrets, control characters or forged lines:
`tidegate_adapters.base.redaction`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from textwrap import indent
from typing import Final, Literal, TextIO, TypeAlias, assert_never, final

from tidegate_adapters.base.redaction import clean, is_secret_name, one_line, redacted

LogFormat: TypeAlias = Literal["text", "json"]
_OF_ALL: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_BELOW: Final = "    "


def log_to(stream: TextIO, form: LogFormat, level: str) -> None:
    """Send all logs to one stream only, without aiokafka's requests."""
    handler = logging.StreamHandler(stream)
    match form:
        case "text":
            handler.setFormatter(_Lines())
        case "json":
            handler.setFormatter(_Objects())
        case _:
            assert_never(form)
    logging.getLogger("aiokafka.conn").setLevel(logging.INFO)  # DEBUG writes requests with passwords
    logging.basicConfig(level=level, handlers=[handler], force=True)


@final
class _Lines(logging.Formatter):
    """Indents tracebacks, so that they cannot imitate a log line."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_at(record)} {record.levelname:<7} {record.name}: {one_line(redacted(record.getMessage()))}"
        trace = _trace(self, record)
        return f"{line}\n{indent(clean(trace), _BELOW, lambda _: True)}" if trace else line


@final
class _Objects(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "time": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OF_ALL:
                found[name] = "***" if is_secret_name(name) else _field(value)
        if trace := _trace(self, record):
            found["exception"] = trace
        return json.dumps(found)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return redacted(formatter.formatException(record.exc_info)) if record.exc_info else ""


def _field(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [*map(_field, value)]
        case _:
            return redacted(str(value))
