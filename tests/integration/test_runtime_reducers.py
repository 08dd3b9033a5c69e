"""Reducers that ship, each on the runtime of reducers, with sinks and streams that fail and hang, on the deterministic loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, final

import pytest

from tidegate.model.effects import Ambiguous
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.reactive import change_stream as stream
from tidegate.reactive.change_stream import DocumentChange
from tidegate.sinks.circuit_breaker import AttemptOutcome, CircuitBreaker
from tidegate.sinks.outbox import (
    AttemptEnded,
    Deliver,
    OutboxCommand,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    StartTimer,
    Submitted,
    TimerFired,
)
from tidegate_adapters.runtime import After, Call, Job, Runtime, as_failure


def now() -> Instant:
    return Instant(round(asyncio.get_running_loop().time() * SECOND), WALL)


async def outbox(random: Random) -> None:
    """Payloads for a sink that is away for a while, hangs, and raises whatever it likes."""
    taken: Counter[int] = Counter()
    at_once = [0]
    away_until = random.choice([0, 10, 200])

    async def deliver(number: int) -> None:
        at_once.append(at_once[-1] + 1)
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(random.choice([0, 0.1, 1, 60]))
        finally:
            at_once.append(at_once[-1] - 1)
        if asyncio.get_running_loop().time() < away_until or random.random() < 0.2:
            raise random.choice([OSError, asyncio.CancelledError, TimeoutError])
        taken[number] += 1

    def begin(command: OutboxCommand) -> Job:
        match command:
            case Deliver(number):
                return Call(lambda: deliver(number))
            case StartTimer(until):
                return After((until - now()) / SECOND)

    def event(command: OutboxCommand, reply: object) -> OutboxEvent:
        match command:
            case Deliver(number, era):
                is_away = isinstance(reply, BaseException)
                outcome = AttemptOutcome.UNANSWERED if is_away else AttemptOutcome.ANSWERED
                return AttemptEnded(number, era, outcome, now())
            case StartTimer():
                return TimerFired(now())

    rules = OutboxRules(CircuitBreaker(threshold=3, cooldown=10 * SECOND), most=4)
    runtime = Runtime(rules, OutboxState(), begin, event)
    for number in range(12):
        runtime.tell(Submitted((number,), now()))
        await asyncio.sleep(random.choice([0, 0, 3]))
    await runtime.until(lambda state: not state.waiting and not state.under_way)
    await runtime.close()

    assert taken == dict.fromkeys(range(12), 1), "CU1"
    assert max(at_once) <= 4, "CU3"


@pytest.mark.tidegate(runs=100)
def test_every_payload_is_delivered_in_the_end(seeded: Any) -> None:
    seeded.run(outbox)


@final
class Stream:
    """A stream of changes of six documents, and what looks at them; all of it fails in all ways."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.changes: list[DocumentChange] = []
        self.looked: dict[object, int] = {}
        self.lost: list[DocumentChange] = []

    async def may_fail(self) -> None:
        await asyncio.sleep(self.random.choice([0, 0.05, 0.5]))
        if self.random.random() < 0.2:
            raise self.random.choice([Ambiguous("lost"), ValueError("of the user's"), asyncio.CancelledError()])

    async def locate(self) -> stream.Position:
        await self.may_fail()
        return stream.After(len(self.changes))

    async def read(self, at: int) -> object:
        await self.may_fail()
        if self.random.random() < 0.1:
            return self.random.choice([stream.Broken(11600), "nonsense"])
        if len(self.changes) == at:
            await asyncio.sleep(0.5)
        return stream.Page(tuple(self.changes[at:]), stream.After(len(self.changes)))

    async def handle(self, ids: tuple[Any, ...]) -> None:
        seen = len(self.changes)
        await self.may_fail()
        self.looked.update(dict.fromkeys(ids, seen))

    async def save(self, at: int) -> None:
        self.lost += self.waiting(self.changes[:at])
        await self.may_fail()

    def waiting(self, changes: list[DocumentChange]) -> list[DocumentChange]:
        return [change for place, change in enumerate(changes) if self.looked.get(change.id, 0) <= place]

    def begin(self, command: stream.StreamCommand) -> Job | None:
        match command:
            case stream.Locate():
                return Call(self.locate)
            case stream.Read(_, stream.After(int() as at)):
                return Call(lambda: self.read(at))
            case stream.HandleDeleted(_, _, _, ids) | stream.HandleChanged(_, _, _, ids):
                return Call(lambda: self.handle(ids))
            case stream.Save(_, _, stream.After(int() as at)):
                return Call(lambda: self.save(at))
            case stream.StartTimer(duration=duration):
                return After(duration / SECOND)
            case stream.Reconcile():
                return None  # a program of its own
            case _:
                raise AssertionError(command)


async def leads(random: Random) -> None:
    """The leader is asked to stop at last."""
    world = Stream(random)
    runtime: Runtime[stream.StreamState, stream.StreamEvent, stream.StreamCommand] = Runtime(
        stream.ChangeStreamConsumer(), stream.Following(), world.begin,
        lambda command, reply: stream.event_for(command, as_failure(reply)),
    )  # fmt: skip
    runtime.tell(stream.Elected(1, 0, None))
    await asyncio.sleep(20)
    for _ in range(20):
        world.changes.append(DocumentChange("documents", random.randrange(6), random.random() < 0.2))
        await asyncio.sleep(random.choice([0, 0.1, 1]))
    await asyncio.sleep(60)
    assert not world.waiting(world.changes), "CS2"
    runtime.tell(stream.StopRequested())
    await runtime.until(lambda state: isinstance(state, stream.Stopped))
    await runtime.close()

    assert not world.lost, "CS1"


@pytest.mark.tidegate(runs=40)
def test_no_change_is_lost(seeded: Any) -> None:
    seeded.run(leads)
