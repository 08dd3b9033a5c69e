"""A client's connection to the broker: delays and failures of requests.

The broker handles a connection's next request after it answers the one before (Kafka mutes the
channel). A commit sent while a join waits is therefore judged after the join, by the generation it
was sent with. The client drops the answer to an abandoned request, but the broker has executed it.

The outcomes of a request, apart from an error code:
    UNSENT      the connection breaks before the broker has the request
    LOST_REPLY  the connection breaks after the broker executed the request
    SILENCE     the broker executes the request; the client waits until it gives up
A break fails all other requests queued on the connection, unsent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, unique
from functools import partial
from random import Random
from typing import Final, TypeAlias, cast, final

from aiokafka import errors

from tidegate_adapters.testing.kafka.broker import SimulatedBroker
from tidegate_adapters.testing.kafka.requests import OF_ONE, Code, OffsetCommit, Request, refusal


@final
@unique
class Outcome(Enum):
    """Failures of a request."""

    UNSENT = "unsent"
    LOST_REPLY = "lost reply"
    SILENCE = "silence"


Strike: TypeAlias = Callable[[str, Request], "Outcome | Code | None"]
"""Chooses the outcome of a client's request; None for no failure."""

_PATIENCE_S: Final = 40.0


@final
class Network:
    """The network to a broker; `delay_s` bounds the one-way delay."""

    def __init__(
        self,
        broker: SimulatedBroker,
        random: Random,
        *,
        delay_s: tuple[float, float] = (0.000_2, 0.002),
        strike: Strike = lambda _client, _request: None,
    ) -> None:
        self.broker, self.strike = broker, strike
        self._random, self._delay_s = random, delay_s

    def connect(self, client: str) -> Connection:
        return Connection(self, client)

    def delay_s(self) -> float:
        shortest, longest = self._delay_s
        return shortest + self._random.random() * (longest - shortest)


@final
class Connection:
    """Executes requests one at a time."""

    def __init__(self, network: Network, client: str) -> None:
        self._network, self._client = network, client
        self._clock = network.broker.clock
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Request, asyncio.Future[object]]] = deque()
        self._is_abandoned = False

    def send(self, request: Request) -> asyncio.Future[object]:
        answer = self._loop.create_future()
        if self._is_abandoned:
            return answer
        self._queue.append((request, answer))
        if len(self._queue) == 1:
            self._begin()
        return answer

    def close(self) -> None:
        self._fail_all()

    def abandon(self) -> None:
        self._queue.clear()
        self._is_abandoned = True

    def _begin(self) -> None:
        request, answer = self._queue[0]
        struck = self._network.strike(self._client, request)
        self._clock.call_later(self._network.delay_s(), self._arrive, request, answer, struck)

    def _arrive(self, request: Request, answer: asyncio.Future[object], struck: Outcome | Code | None) -> None:
        broker = self._network.broker
        if struck is None:
            broker.handle(request, partial(self._return, answer))
        elif struck is Outcome.UNSENT:
            self._break(answer)
        elif struck is Outcome.LOST_REPLY:
            broker.handle(request, lambda _: None)
            self._break(answer)
        elif struck is Outcome.SILENCE:
            broker.handle(request, lambda _: None)
            self._clock.call_later(_PATIENCE_S, self._give_up, answer)
        elif isinstance(request, OffsetCommit) and struck in OF_ONE and len(request.offsets) > 1:
            refused, *others = request.offsets
            rest = request._replace(offsets={each: request.offsets[each] for each in others})
            broker.handle(
                rest, lambda codes: self._return(answer, {refused: struck, **cast("dict[object, Code]", codes)})
            )
        else:
            self._return(answer, refusal(request, struck))

    def _return(self, answer: asyncio.Future[object], reply: object) -> None:
        self._clock.call_later(self._network.delay_s(), self._end, answer, reply)

    def _waits(self, answer: asyncio.Future[object]) -> bool:
        return bool(self._queue) and self._queue[0][1] is answer

    def _end(self, answer: asyncio.Future[object], reply: object) -> None:
        if not self._waits(answer):
            return
        del self._queue[0]
        if not answer.done():
            answer.set_result(reply)
        if self._queue:
            self._begin()

    def _give_up(self, answer: asyncio.Future[object]) -> None:
        if self._waits(answer):  # the caller may be gone; queued requests fail all the same
            if not answer.done():
                answer.set_exception(errors.RequestTimedOutError())
            self._break(answer)

    def _break(self, answer: asyncio.Future[object]) -> None:
        if self._waits(answer):
            self._fail_all()

    def _fail_all(self) -> None:
        broken, self._queue = self._queue, deque()
        for _, each in broken:
            if not each.done():
                each.set_exception(errors.KafkaConnectionError("connection broken"))
