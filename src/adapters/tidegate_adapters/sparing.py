"""Answers that are asked for again and again, by however many, and cost the store something each time.

An answer holds for ten times as long as it took to get, and a second at least. So whatever is asked for, the store is busy with
it for a tenth of the time at most; and whoever asks while others do gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast, final

__all__ = ["Sparing"]

T = TypeVar("T")

_HOLDS_S: Final = 1.0
_TIMES: Final = 10
_KEPT_MAX: Final = 64
"""How many answers are kept: as many as there are filters that somebody looks through."""


@final
class _Asked:
    """A question that was asked, and until when its answer holds."""

    def __init__(self, question: Callable[[], Awaitable[object]]) -> None:
        self._clock = asyncio.get_running_loop().time
        self._since = self.at = self._clock()
        self._until = float("inf")
        self.answer: asyncio.Future[Any] = asyncio.ensure_future(question())
        self.answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        self.at = self._clock()
        has_failed = answer.cancelled() or answer.exception() is not None
        self._until = self.at if has_failed else self.at + max(_HOLDS_S, _TIMES * (self.at - self._since))

    @property
    def holds(self) -> bool:
        """Whether it is not yet answered, or the answer is good."""
        return self._clock() < self._until


@final
class Sparing:
    """Answers of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, _Asked] = {}

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """The answer to a question, or that of a while ago.

        Whoever is cancelled leaves the question to those who ask next.

        Args:
            key: Of the question: two of one key have one answer.
            question: Asks; what it raises is raised, and asked again next time.

        Returns:
            The answer, and how old it is, in seconds.
        """
        asked = self._asked.get(key)
        if asked is None or not asked.holds:
            self._asked.pop(key, None)
            asked = self._asked[key] = _Asked(question)
            if len(self._asked) > _KEPT_MAX:
                del self._asked[next(iter(self._asked))]
        value = cast("T", await asyncio.shield(asked.answer))
        return value, asyncio.get_running_loop().time() - asked.at

    def forget(self) -> None:
        """What was answered holds no more: something was done."""
        self._asked.clear()
