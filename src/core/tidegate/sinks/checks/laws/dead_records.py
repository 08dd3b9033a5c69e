"""The laws of `tidegate.sinks.dead_records` as predicates over a record and its dead record."""

from __future__ import annotations

from tidegate.model.records import Record, Send
from tidegate.sinks.dead_records import PREFIX
from tidegate.sinks.delivery import ERROR_MAX


def keeps_the_record(record: Record, sent: Send) -> bool:
    """Law DT1."""
    before, behind = sent.headers[: len(record.headers)], sent.headers[len(record.headers) :]
    is_marked = all(name.startswith(PREFIX) for name, _ in behind)
    return (sent.key, sent.value, before) == (record.key, record.value, record.headers) and is_marked


def adds_little(record: Record, sent: Send) -> bool:
    """Law DT2."""
    added = sent.headers[len(record.headers) :]
    names = [name for name, _ in added]
    texts = [(value or b"").decode("utf-8", "replace") for _, value in added]
    is_text = all(text.encode() == value for text, (_, value) in zip(texts, added, strict=True))
    return is_text and len({*names}) == len(names) and all(len(text) <= ERROR_MAX for text in texts)
