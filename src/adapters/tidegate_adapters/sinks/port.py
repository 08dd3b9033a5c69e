"""The port of sinks, and the outbox that delivers to one: executes `tidegate.sinks.outbox`.

    outbox = Outbox(sink, OutboxRules())
    await outbox.deliver(payload)          # returns once delivered; raises the sink's refusal
    await outbox.stop()

A sink takes payloads in bulk and returns the outcome of each, without waits or retries. The outbox
decides what to try and when. One attempt delivers all payloads submitted in one turn of the event
loop. A cancelled caller withdraws its payload: a running attempt may still deliver it, and no other
follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast, final

from tidegate.model.effects import Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND, ClockName, Instant, seconds
from tidegate.model.values import check_int, check_tuple
from tidegate.sinks.circuit_breaker import Closed, Open
from tidegate.sinks.outbox import (
    AttemptEnded,
    Deliver,
    HandBack,
    OutboxCommand,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    StartTimer,
    Submitted,
    TimerFired,
    Withdrawn,
)
from tidegate_adapters.base.log_fields import named, say
from tidegate_adapters.runtime.reducers import After, Call, Job, Runtime, as_failure

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
_LOOP: Final = ClockName("loop")


class Sink(Protocol[P_contra]):
    """A destination of payloads; `name` appears in logs, health and metrics."""

    @property
    def name(self) -> str: ...

    async def deliver(self, payloads: Sequence[P_contra], /) -> Sequence[Failure | None]:
        """Deliver payloads, in order if the sink has one, within a bounded time.

        Returns:
            The outcome of each: None once delivered, `Refused` if it never can be, another failure
                to retry. The driver's error is its `__cause__`. An exception is an outcome for none
                of them.
        """
        ...

    async def stop(self) -> None:
        """Stop deliveries and release resources."""
        ...


@final
class SinkStatus(NamedTuple):
    """A sink's name, its outbox state, and the number of attempts by outcome."""

    name: str
    state: OutboxState
    attempts: Mapping[str, int]


@final
class _Bulk:
    """Payloads that were submitted together; one future ends when each of them has ended."""

    __slots__ = ("end", "errors", "left")

    def __init__(self, count: int, end: asyncio.Future[None]) -> None:
        self.errors: list[BaseException | None] = [None] * count
        self.left, self.end = count, end

    def settle(self, place: int, error: BaseException | None) -> None:
        self.errors[place] = error
        self.left -= 1
        if not self.left and not self.end.done():
            self.end.set_result(None)


@final
class _Entry(Generic[P]):
    __slots__ = ("bulk", "error", "payload", "place")

    def __init__(self, payload: P, bulk: _Bulk, place: int) -> None:
        self.payload, self.bulk, self.place = payload, bulk, place
        self.error: BaseException | None = None

    def settle(self, error: BaseException | None) -> None:
        self.bulk.settle(self.place, error)


@final
class Outbox(Generic[P]):
    """Delivers payloads to a sink, in the event loop that creates it."""

    def __init__(self, sink: Sink[P], rules: OutboxRules) -> None:
        self._sink, self._loop = sink, asyncio.get_running_loop()
        self._runtime: Runtime[OutboxState, OutboxEvent, OutboxCommand]
        self._runtime = Runtime(rules, OutboxState(), self._begin, self._event_for, observers=[self._follow])
        self._entries: dict[int, _Entry[P]] = {}
        self._submitted: list[int] = []
        self._count = 0
        self._circuit_is_closed = True
        self._attempts: Counter[str] = Counter()
        self._is_stopped = False

    @property
    def status(self) -> SinkStatus:
        return SinkStatus(self._sink.name, self._runtime.state, dict(self._attempts))

    async def deliver(self, payload: P) -> None:
        """Wait until the sink has the payload.

        Raises:
            TidegateError: The outbox is stopped.
            Exception: The sink's final error.
        """
        (error,) = await self.deliver_all((payload,))
        if error is not None:
            raise error.__cause__ if isinstance(error, Failure) and error.__cause__ is not None else error

    async def deliver_all(self, payloads: Sequence[P]) -> Sequence[BaseException | None]:
        """Wait until the sink has each payload, or has refused it.

        Returns:
            For each payload None, or its final error; a Failure of the sink has its driver's error as
            its cause.
        """
        if self._is_stopped:
            return (_stopped(),) * len(payloads)
        first, bulk = self._count, _Bulk(len(payloads), self._loop.create_future())
        self._count += len(payloads)
        for place, payload in enumerate(payloads):
            self._entries[first + place] = _Entry(payload, bulk, place)
        if not self._submitted:
            self._loop.call_soon(self._submit)
        self._submitted.extend(range(first, self._count))
        try:
            await bulk.end
        except asyncio.CancelledError:
            left = tuple(number for number in range(first, first + len(payloads)) if number in self._entries)
            if left:
                self._submit()
                self._runtime.tell(Withdrawn(left, self._now()))
            raise
        return bulk.errors

    async def stop(self) -> None:
        self._is_stopped = True
        await self._runtime.close()
        for entry in self._entries.values():
            entry.settle(_stopped())
        self._entries.clear()
        await self._sink.stop()

    def _submit(self) -> None:
        if self._submitted:
            numbers, self._submitted = tuple(self._submitted), []
            self._runtime.tell(Submitted(numbers, self._now()))

    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def _begin(self, command: OutboxCommand) -> Job | None:
        match command:
            case Deliver(numbers):
                payloads = [self._entries[number].payload for number in numbers]
                return Call(lambda: self._sink.deliver(payloads))
            case HandBack(number, payload):
                entry = self._entries.pop(number)
                entry.settle(entry.error or TidegateError(f"{self._sink.name}: {payload}"))
                return None
            case StartTimer(until):
                return After((until - self._now()) / SECOND)

    def _event_for(self, command: OutboxCommand, reply: object) -> OutboxEvent | None:
        if not isinstance(command, Deliver):
            return TimerFired(self._now())
        failures = self._failures(command, reply)
        for number, failure in zip(command.numbers, failures, strict=True):
            entry = self._entries.get(number)
            if entry is None:  # it was withdrawn
                continue
            if failure is not None:
                entry.error = failure
                continue
            del self._entries[number]
            entry.settle(None)
        return AttemptEnded(command.numbers, command.era, failures, self._now())

    @staticmethod
    def _failures(command: Deliver, reply: object) -> tuple[Failure | None, ...]:
        if isinstance(reply, BaseException):
            failure = as_failure(reply)
            assert isinstance(failure, Failure)
            if failure is not reply:
                failure.__cause__ = reply
            return (failure,) * len(command.numbers)
        found = tuple(cast("Sequence[Failure | None]", reply))
        check_tuple(found, (Failure, NoneType), "what became of a payload")
        check_int(len(found), "how many were answered for", len(command.numbers), len(command.numbers))
        return found

    def _follow(self, event: OutboxEvent, state: OutboxState, commands: Sequence[OutboxCommand]) -> None:
        if isinstance(event, Withdrawn):
            for number in event.numbers:
                self._entries.pop(number, None)
        if isinstance(event, AttemptEnded):
            self._attempts[event.outcome.name.lower()] += 1
            if any(event.failures):
                self._say_failures(event, commands)
        is_closed = isinstance(state.circuit, Closed)
        if isinstance(state.circuit, Open | Closed) and is_closed is not self._circuit_is_closed:
            self._circuit_is_closed = is_closed
            if isinstance(state.circuit, Open):
                wait = seconds(state.circuit.until - event.now)
                say(logging.ERROR, "%s does not answer: nothing is delivered for %s", self._sink.name, wait)
            else:
                say(logging.INFO, "%s answers again", self._sink.name)

    def _say_failures(self, event: AttemptEnded, commands: Sequence[OutboxCommand]) -> None:
        back = {each.number for each in commands if isinstance(each, HandBack)}
        errors = [
            failure
            for number, failure in zip(event.numbers, event.failures, strict=True)
            if failure and number not in back
        ]
        if errors:
            text = "%s of %s payloads were not delivered to %s, and are tried again: %s"
            last = errors[-1].__cause__ or errors[-1]
            say(logging.WARNING, text, len(errors), len(event.numbers), self._sink.name, named(last))


def _stopped() -> TidegateError:
    return TidegateError("nothing is sent any more", why="the worker has left its group")
