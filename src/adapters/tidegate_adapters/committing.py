"""How the commits of a member are sent: when, and which of them together, `tidegate.consumer.commit_pacing` says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, final

from tidegate.consumer.commands import Commit
from tidegate.consumer.commit_pacing import Pace, asked, due
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.kafka_ports import Client

__all__ = [
    "Committing",
]  # fmt: skip

_GAP: Final[Duration] = SECOND // 10
"""How long it waits from one request to the next."""
_LASTS_S: Final = 10.0
"""How long a request may take until nobody knows what became of it: the client looks for a coordinator for ever."""
_LOOP: Final = ClockName("loop")


@final
class Committing:
    """The commits of one member.

    Args:
        client: What sends them.
        granted: The client's generation, by the member's.
        answered: Called with each commit that was sent, and with what the client has raised, if anything.
        is_gone: Whether the topic of a commit has gone since the partition was assigned.
    """

    def __init__(
        self,
        client: Client,
        granted: Mapping[int, int | None],
        answered: Callable[[Commit, BaseException | None], None],
        is_gone: Callable[[Commit], bool],
    ) -> None:
        self._client, self._granted, self._answered, self._is_gone = client, granted, answered, is_gone
        self._loop = asyncio.get_running_loop()
        self._pace, self._hurries = Pace(), False
        self._next_look: asyncio.Handle | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def send(self, commit: Commit) -> None:
        """Send it, when its time has come."""
        self._pace = asked(self._pace, commit)
        if self._next_look is None:
            self._next_look = self._loop.call_soon(self._look)  # others of this turn go along

    def hurry(self, *, hurries: bool) -> None:
        """Whether partitions are being given back."""
        self._hurries = hurries
        if hurries and self._next_look is not None:
            self._next_look.cancel()
            self._next_look = self._loop.call_soon(self._look)

    async def close(self) -> None:
        """Send nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        turn = due(self._pace, Instant(round(self._loop.time() * SECOND), _LOOP), _GAP, hurries=self._hurries)
        self._pace = turn.pace
        self._next_look = None if turn.wait is None else self._loop.call_later(turn.wait / SECOND, self._look)
        for request in turn.requests:
            self._spawn(self._sent(request))

    async def _sent(self, request: tuple[Commit, ...]) -> None:
        there = tuple(each for each in request if not self._is_gone(each))
        if len(there) < len(request):
            self._tell(set(request).difference(there), ports.GONE())
            request = there
        if not request:
            return
        positions = {each.partition: (each.position, each.metadata) for each in request}
        error: BaseException | None = None
        try:
            async with asyncio.timeout(_LASTS_S):
                generation = self._granted.get(request[0].generation, ports.NO_GENERATION)
                await ports.commit(self._client, positions, generation)
        except ports.NOT_OF_ALL:
            for each in request:
                self._spawn(self._sent((each,)))
            return
        except BaseException as raised:  # noqa: BLE001  whoever asked says what it means
            error = raised
        self._tell(request, error)

    def _tell(self, request: Iterable[Commit], error: BaseException | None) -> None:
        for each in request:
            try:
                self._answered(each, error)
            except Exception as raised:  # noqa: BLE001  as an answer of which nothing can be made (RT3): all hear of theirs
                self._answered(each, raised)

    def _spawn(self, code: Awaitable[None]) -> None:
        task = asyncio.ensure_future(code)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
