"""The laws of `tidegate.sinks.dead_letters` as predicates over dead letters, and what is decoded and shown of them."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.sinks.dead_letters import DeadLetter, Undecodable


def comes_back(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DE1: decoding an encoded dead letter gives the same one."""
    return decoded == letter


def notices_a_change(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DE2: bytes that differ from those of a dead letter are that dead letter, written otherwise, or have a flaw."""
    return isinstance(decoded, Undecodable) or decoded == letter


def shows_nothing(secrets: Iterable[str], texts: Iterable[str]) -> bool:
    """Law DE3: none of these texts holds one of these secrets."""
    shown = tuple(texts)
    return not any(secret in text for secret in secrets for text in shown)
