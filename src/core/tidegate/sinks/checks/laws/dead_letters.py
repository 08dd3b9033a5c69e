"""The laws of `tidegate.sinks.dead_letters` as predicates."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.sinks.dead_letters import DeadLetter, Undecodable


def comes_back(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DE1."""
    return decoded == letter


def notices_a_change(letter: DeadLetter, decoded: DeadLetter | Undecodable) -> bool:
    """Law DE2: changed bytes still encode that dead letter, or have a flaw."""
    return isinstance(decoded, Undecodable) or decoded == letter


def shows_nothing(secrets: Iterable[str], texts: Iterable[str]) -> bool:
    """Law DE3: no text contains a secret."""
    shown = tuple(texts)
    return not any(secret in text for secret in secrets for text in shown)
