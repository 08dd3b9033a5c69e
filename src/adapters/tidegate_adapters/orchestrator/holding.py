"""What operators have paused: the tasks and the queues that no process takes from, until they are resumed.

What runs goes on. It is one document for all of an app (`tidegate.reactive.pausing`), and each process looks at it every so often; of
whom nobody hears, what was known goes on to hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, final

from tidegate.invocations.worker import Held
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration
from tidegate.reactive.pausing import PausedTask, Pausing
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.shell.app import look_on, look_until_answered

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_TASK: Final = "task:"
_QUEUE: Final = "queue:"


@final
class Holding:
    """What is paused of an app.

    Args:
        site: Where that is kept.
        control: In which collection.
    """

    def __init__(self, site: Site, control: str) -> None:
        self._site, self._pausing = site, Pausing(control=control)

    async def held(self) -> Held:
        """What is paused now.

        Raises:
            Failure: Nobody answers.
        """
        return _held(await self._site.run(self._pausing.paused()))

    async def pause(self, tasks: Iterable[str], queues: Iterable[str]) -> Held:
        """Take nothing more of these; what is paused then.

        Raises:
            Failure: Nobody answers: it is paused, or is not, or will be.
        """
        return _held(await self._site.run(self._pausing.pause(*_names(tasks, queues))))

    async def resume(self, tasks: Iterable[str], queues: Iterable[str]) -> Held:
        """Take of these again; what is paused then. Otherwise as `pause`."""
        return _held(await self._site.run(self._pausing.resume(*_names(tasks, queues))))

    async def begin(self, hold: Callable[[Held], None], every: Duration) -> None:
        """Look until that is answered: nothing is taken before it is known."""
        await look_until_answered(partial(self.look, hold), every)

    async def heed(self, hold: Callable[[Held], None], every: Duration) -> None:
        """Look again and again, and tell what is paused, until it is cancelled."""
        await look_on(partial(self.look, hold), every)

    async def look(self, hold: Callable[[Held], None]) -> bool:
        """Tell what is paused now, if anybody answers: whether anybody has, or nobody ever will."""
        try:
            hold(await self.held())
        except (Failure, Misuse) as failure:  # nobody answers, or others have written there
            log.warning("nobody says what is paused: %s", failure)
            return isinstance(failure, (Refused, Misuse))
        return True


def _names(tasks: Iterable[str], queues: Iterable[str]) -> tuple[str, ...]:
    """What the document calls them."""
    return (*(f"{_TASK}{each}" for each in tasks), *(f"{_QUEUE}{each}" for each in queues))


def _held(paused: Iterable[PausedTask]) -> Held:
    names = [each.task for each in paused]
    return Held(
        queues=frozenset(each.removeprefix(_QUEUE) for each in names if each.startswith(_QUEUE)),
        tasks=frozenset(each.removeprefix(_TASK) for each in names if each.startswith(_TASK)),
    )
