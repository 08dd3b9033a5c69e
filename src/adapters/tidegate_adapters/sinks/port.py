"""The port of sinks, and what takes payloads to one: `tidegate.sinks.outbox`, carried out.

    sink      `deliver` takes payloads in bulk, and returns what became of each; it neither waits nor tries again
    outbox    says which payloads are tried and when; here that is done, and whoever submitted a payload waits for its end

    outbox = Outbox(sink, OutboxRules())
    await outbox.deliver(payload)          # returns once the sink has it for good; raises what it was refused with
    await outbox.stop()

All that is submitted in one turn of the event loop is delivered by one attempt. Whoever is cancelled while it waits withdraws
its payload: what is under way then may still arrive, and nothing is tried again.
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
    """Where payloads are delivered.

    Attributes:
        name: What logs, health and metrics call it.
    """

    @property
    def name(self) -> str: ...

    async def deliver(self, payloads: Sequence[P_contra], /) -> Sequence[Failure | None]:
        """Deliver payloads, in this order where the sink has one, and end within a bounded time.

        Returns:
            What became of each: None once the sink has it for good, `Refused` if it never takes it, and another failure if it
            is to be tried again. What the driver raised is its `__cause__`. An exception is no answer to any of them.
        """
        ...

    async def stop(self) -> None:
        """Deliver nothing more, and release what it holds."""
        ...


@final
class SinkStatus(NamedTuple):
    """What a sink is like now: its name, what is to be delivered, and how many attempts were made, by outcome."""

    name: str
    state: OutboxState
    attempts: Mapping[str, int]


@final
class _Entry(Generic[P]):
    """A payload that has not ended, and what it failed with last."""

    __slots__ = ("end", "error", "payload")

    def __init__(self, payload: P, end: asyncio.Future[None]) -> None:
        self.payload, self.end = payload, end
        self.error: BaseException | None = None


@final
class Outbox(Generic[P]):
    """Takes payloads to a sink, within the event loop in which it is made.

    Args:
        sink: Where to.
        rules: When they are tried, and what follows a failure.
    """

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
        """What the sink is like now; from any thread."""
        return SinkStatus(self._sink.name, self._runtime.state, dict(self._attempts))

    async def deliver(self, payload: P) -> None:
        """Wait until the sink has a payload for good.

        Raises:
            TidegateError: The outbox was stopped.
            Exception: What the sink raised, or said, when it was given up.
        """
        if self._is_stopped:
            raise _stopped()
        number = self._count
        self._count += 1
        entry = self._entries[number] = _Entry(payload, self._loop.create_future())
        if not self._submitted:
            self._loop.call_soon(self._submit)
        self._submitted.append(number)
        try:
            await entry.end
        except asyncio.CancelledError:
            if number in self._entries:
                self._submit()
                self._runtime.tell(Withdrawn((number,), self._now()))
            raise

    async def stop(self) -> None:
        """Try nothing more; whoever waits gets an error."""
        self._is_stopped = True
        await self._runtime.close()
        for entry in self._entries.values():
            if not entry.end.done():
                entry.end.set_exception(_stopped())
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
                if not entry.end.done():
                    entry.end.set_exception(entry.error or TidegateError(f"{self._sink.name}: {payload}"))
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
                entry.error = failure.__cause__ or failure
                continue
            del self._entries[number]
            if not entry.end.done():
                entry.end.set_result(None)
        return AttemptEnded(command.numbers, command.era, failures, self._now())

    @staticmethod
    def _failures(command: Deliver, reply: object) -> tuple[Failure | None, ...]:
        """What became of each payload."""
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
        """Forget what was withdrawn, count attempts, and say what fails."""
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
        """A line for what is tried again; what is handed back is for whoever submitted it to tell."""
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
