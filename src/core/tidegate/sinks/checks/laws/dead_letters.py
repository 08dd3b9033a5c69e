"""The laws of `tidegate.sinks.dead_letters` as predicates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import KIP_1191, OURS, DeadLetter, Undecodable
from tidegate.sinks.delivery import ERROR_MAX

_OF_THE_ERROR: Final = (f"{KIP_1191}message", f"{OURS}error")


def comes_back(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Laws DE1 and DE6, for a letter with times of whole milliseconds."""
    return decoded == letter


def shows_nothing(secrets: Iterable[str], texts: Iterable[str]) -> bool:
    """Law DE3: no text contains a secret."""
    shown = tuple(texts)
    return not any(secret in text for secret in secrets for text in shown)


def keeps_the_record(record: Record, sent: Send) -> bool:
    """Law DE4."""
    before, behind = sent.headers[: len(record.headers)], sent.headers[len(record.headers) :]
    is_marked = all(name.startswith((OURS, KIP_1191)) for name, _ in behind)
    return (sent.key, sent.value, before) == (record.key, record.value, record.headers) and is_marked


def adds_little(record: Record, sent: Send) -> bool:
    """Law DE5."""
    added = sent.headers[len(record.headers) :]
    names = [name for name, _ in added]
    texts = {name: (value or b"").decode("utf-8", "replace") for name, value in added if name != f"{OURS}output"}
    is_text = all(texts[name].encode() == value for name, value in added if name in texts)
    is_bounded = all(len(texts.get(name, "")) <= ERROR_MAX for name in _OF_THE_ERROR)
    return is_text and len({*names}) == len(names) and is_bounded
