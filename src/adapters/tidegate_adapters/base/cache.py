"""Caches answers to repeated questions that cost the store time.

An answer is valid for ten times as long as it took, at least a second. Concurrent callers share one
question. Questions run one at a time, and together may occupy the store for a tenth of the time,
beyond a first second. A caller above that budget gets the previous answer, or waits if there is
none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast, final

T = TypeVar("T")

_HOLDS_S: Final = 1.0
_TIMES: Final = 10
_AT_ONCE_S: Final = 1.0
"""Store time available at once after a quiet period."""
_KEPT_MAX: Final = 64


@final
class _Budget:
    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._left, self._at = _AT_ONCE_S, self._clock()
        self._asking = asyncio.Lock()

    @property
    def is_free(self) -> bool:
        return not self._asking.locked() and self._refilled() > 0

    async def spend(self, question: Callable[[], Awaitable[T]]) -> T:
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
        return self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None

    @property
    def holds(self) -> bool:
        return self._clock() < self._until


@final
class Sparing:
    """Answers of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, _Asked] = {}
        self._budget: _Budget | None = None

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """The answer, possibly a recent one of the same key, and its age in seconds.

        A cancelled caller leaves the question to later ones. Errors are not cached.
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
        self._asked.clear()
