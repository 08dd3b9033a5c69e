"""Answers that are asked for again and again, by however many, and cost the store something each time.

An answer holds for ten times as long as it took to get, and a second at least. Whoever asks while others do gets the same answer.
Questions are asked one after the other, and all of them together keep the store busy for a tenth of the time, beyond the first
second: whoever asks when that is spent gets the answer from before, or waits where there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast, final

T = TypeVar("T")

_HOLDS_S: Final = 1.0
_TIMES: Final = 10
_AT_ONCE_S: Final = 1.0
"""How long the store may be asked at once after a while without questions."""
_KEPT_MAX: Final = 64
"""How many answers are kept: as many as there are filters that somebody looks through."""


@final
class _Budget:
    """The time that questions may take: a tenth of all time."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._left, self._at = _AT_ONCE_S, self._clock()
        self._asking = asyncio.Lock()

    @property
    def is_free(self) -> bool:
        """Would a question be asked now?"""
        return not self._asking.locked() and self._refilled() > 0

    async def spend(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask as soon as there is time for it."""
        async with self._asking:
            await asyncio.sleep(max(0.0, -self._refilled() * _TIMES))
            began = self._clock()
            try:
                return await question()
            finally:
                self._left -= self._clock() - began

    def _refilled(self) -> float:
        now = self._clock()
        self._left = min(_AT_ONCE_S, self._left + (now - self._at) / _TIMES)
        self._at = now
        return self._left


@final
class _Asked:
    """A question that was asked, and until when its answer holds."""

    def __init__(self, question: Callable[[], Awaitable[object]], budget: _Budget, before: _Asked | None) -> None:
        self._clock = asyncio.get_running_loop().time
        self._since = self.at = self._clock()
        self._until = float("inf")
        self._question = question
        self.before = before
        self.answer: asyncio.Future[Any] = asyncio.ensure_future(budget.spend(self._ask))
        self.answer.add_done_callback(self._answered)

    async def _ask(self) -> object:
        self._since = self._clock()
        return await self._question()

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        self.at, self.before = self._clock(), None
        has_failed = answer.cancelled() or answer.exception() is not None
        self._until = self.at if has_failed else self.at + max(_HOLDS_S, _TIMES * (self.at - self._since))

    @property
    def is_good(self) -> bool:
        """Whether it is answered, and not by an error."""
        return self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None

    @property
    def holds(self) -> bool:
        """Whether it is not yet answered, or the answer is good."""
        return self._clock() < self._until


@final
class Sparing:
    """Answers of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, _Asked] = {}
        self._budget: _Budget | None = None

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """The answer to a question, or that of a while ago.

        Whoever is cancelled leaves the question to those who ask next.

        Args:
            key: Of the question: two of one key have one answer.
            question: Asks; what it raises is raised, and asked again next time.

        Returns:
            The answer, and how old it is, in seconds.
        """
        self._budget = budget = self._budget or _Budget()
        asked, is_free = self._asked.get(key), budget.is_free
        if asked is None or not asked.holds:
            self._asked.pop(key, None)
            before = asked if asked is not None and asked.is_good and not is_free else None
            asked = self._asked[key] = _Asked(question, budget, before)
            if len(self._asked) > _KEPT_MAX:
                del self._asked[next(iter(self._asked))]
        given = asked if asked.before is None else asked.before
        value = cast("T", await asyncio.shield(given.answer))
        return value, asyncio.get_running_loop().time() - given.at

    def forget(self) -> None:
        """What was answered holds no more: something was done."""
        self._asked.clear()
