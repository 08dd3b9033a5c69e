"""Paused tasks and queues, from which no process starts runs; current runs continue.

One document holds the pauses of an app (`tidegate.reactive.admin.pausing`), and each process polls it.
Without an answer, the last known pauses apply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, final

from tidegate.invocations.worker.worker import Held
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration
from tidegate.reactive.admin.pausing import PausedTask, Pausing
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.shell.app import look_on, look_until_answered

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_TASK: Final = "task:"
_QUEUE: Final = "queue:"


@final
class Holding:
    """The pauses of an app."""

    def __init__(self, site: Site, control: str) -> None:
        self._site, self._pausing = site, Pausing(control=control)

    async def held(self) -> Held:
        return _held(await self._site.run(self._pausing.paused()))

    async def pause(self, tasks: Iterable[str], queues: Iterable[str]) -> Held:
        """Pause these; return all pauses. A Failure leaves the outcome open."""
        return _held(await self._site.run(self._pausing.pause(*_names(tasks, queues))))

    async def resume(self, tasks: Iterable[str], queues: Iterable[str]) -> Held:
        return _held(await self._site.run(self._pausing.resume(*_names(tasks, queues))))

    async def begin(self, hold: Callable[[Held], None], every: Duration) -> None:
        """Poll until the first answer: workers must not start before it."""
        await look_until_answered(partial(self.look, hold), every)

    async def heed(self, hold: Callable[[Held], None], every: Duration) -> None:
        await look_on(partial(self.look, hold), every)

    async def look(self, hold: Callable[[Held], None]) -> bool:
        """Report the pauses once; False if a later attempt may succeed."""
        try:
            hold(await self.held())
        except (Failure, Misuse) as failure:  # no answer, or a foreign document
            log.warning("nobody says what is paused: %s", failure)
            return isinstance(failure, (Refused, Misuse))
        return True


def _names(tasks: Iterable[str], queues: Iterable[str]) -> tuple[str, ...]:
    return (*(f"{_TASK}{each}" for each in tasks), *(f"{_QUEUE}{each}" for each in queues))


def _held(paused: Iterable[PausedTask]) -> Held:
    names = [each.task for each in paused]
    return Held(
        queues=frozenset(each.removeprefix(_QUEUE) for each in names if each.startswith(_QUEUE)),
        tasks=frozenset(each.removeprefix(_TASK) for each in names if each.startswith(_TASK)),
    )
