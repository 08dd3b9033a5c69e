"""Shipped reducers on the runtime of reducers, with sinks and streams that fail and hang."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final, final

import pytest

from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.reactive.planning import change_stream as stream
from tidegate.reactive.planning.change_stream import DocumentChange
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate_adapters.runtime.reducers import After, Call, Job, Runtime, as_failure
from tidegate_adapters.sinks.port import Outbox, Sink

REFUSED: Final = 7
WITHDRAWN: Final = 5


@final
class Away(Sink[int]):
    name = "away"

    def __init__(self, random: Random) -> None:
        self.random, self.away_until = random, random.choice([0, 10, 200])
        self.taken: Counter[int] = Counter()
        self.at_once = [0]
        self.is_stopped = False

    async def deliver(self, payloads: Sequence[int], /) -> Sequence[Failure | None]:
        self.at_once.append(self.at_once[-1] + 1)
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(self.random.choice([0, 0.1, 1, 60]))
        finally:
            self.at_once.append(self.at_once[-1] - 1)
        if asyncio.get_running_loop().time() < self.away_until or self.random.random() < 0.2:
            raise self.random.choice([OSError, asyncio.CancelledError, TimeoutError])
        if self.random.random() < 0.1:
            return [None] * (len(payloads) + 1)  # of another length, as a plug-in may
        self.taken.update(each for each in payloads if each != REFUSED)
        return [Refused("too large") if each == REFUSED else None for each in payloads]

    async def stop(self) -> None:
        self.is_stopped = True


async def outbox(random: Random) -> None:
    sink = Away(random)
    rules = OutboxRules(
        breaker=CircuitBreaker(threshold=3, cooldown=10 * SECOND),
        delivery=DeliveryRules(
            sending=Policy(backoff=Fixed(SECOND), attempts_max=None), refused=Action.HOLD, lasting=Action.HOLD, dead_lettering=None
        ),
        most=4, batch=random.choice([1, 3, 100]),
    )  # fmt: skip
    made = Outbox(sink, rules)
    tasks = []
    for number in range(12):
        tasks.append(asyncio.ensure_future(made.deliver(number)))
        await asyncio.sleep(random.choice([0, 0, 3]))
    tasks[WITHDRAWN].cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(ends[REFUSED], Refused), "CU1"
    assert [each for number, each in enumerate(ends) if number not in (REFUSED, WITHDRAWN)] == [None] * 10, "CU1"
    await asyncio.sleep(300)
    told, often = made.status.state, sink.taken[WITHDRAWN]
    assert sink.taken.keys() | {WITHDRAWN} == {*range(12)} - {REFUSED}, "CU1"
    assert (told.waiting, told.under_way, told.failed, told.withdrawn, often <= 1) == ((), (), (), (), True), "CU5"
    assert max(sink.at_once) <= 4, "CU3"
    waits = asyncio.ensure_future(made.deliver(12))
    await made.stop()
    with pytest.raises(TidegateError, match="nothing is sent any more"):
        await waits
    with pytest.raises(TidegateError, match="nothing is sent any more"):
        await made.deliver(13)
    assert sink.is_stopped


@pytest.mark.tidegate(runs=100)
def test_every_payload_is_delivered_in_the_end(seeded: Any) -> None:
    seeded.run(outbox)


@final
class Stream:
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
