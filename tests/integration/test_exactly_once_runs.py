# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.integration.kafka_runs import ONCE, Story, found, judged, line, page_of
from tests.integration.planting import Bug, first, own_seeds
from tests.integration.transactional_runs import OUT, Place, places_in, producing
from tests.length import ONCE_RUNS

from tidegate.consumer.protocol.commands import Commit
from tidegate.consumer.worker.transactions import FENCED, commit_together, resolved, take_over
from tidegate.model.effects import Failure
from tidegate.model.records import Send, TopicPartition
from tidegate_adapters.kafka.assignment import Assignment
from tidegate_adapters.kafka.commits import Committing
from tidegate_adapters.kafka.handler_calls import UserCode
from tidegate_adapters.kafka.transactions import Transactions
from tidegate_adapters.testing.event_loop import run
from tidegate_adapters.testing.kafka import Network, SimulatedBroker
from tidegate_adapters.testing.kafka.requests import Code, InitProducerId, Partition, Position, ProducerEpoch
from tidegate_adapters.testing.kafka.transactions import TransactionCoordinator

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Killed members leave coroutines that never end and warn when collected."""

BUGS: Final[Mapping[str, Bug]] = {
    "what was committed is sent again": Bug(Transactions.commit, "life.answers.pop(offset, None)", "pass", ONCE),
    "what waits is forgotten when a transaction fails": Bug(Transactions.commit, "return together.reply", "life.answers.clear(); return together.reply", ONCE),
    "answers of what the commit does not cover go along": Bug(Transactions.commit, "answers_due(commit, tuple(life.answers))", "tuple(life.answers)", ONCE, shown_by=("once", 20)),
    "answers are not kept": Bug(Transactions.keep, "life.answers[offset] = answers", "pass", ONCE),
    "an answer is sent at once": Bug(UserCode._ended, "if self._transactions is None or", "if True or", ONCE),
    "who was fenced does not take over again": Bug(Committing._together, "if reply == FENCED and", "if False and", ONCE),
    "who was put out fences its successor": Bug(Assignment.is_current, "(granted != ports.NO_GENERATION and granted == now)", "True", ONCE, shown_by=("once", 20)),
    "answers are not waited for": Bug(Transactions._asked, "await acknowledged(records, await queued(producer, records))", "await queued(producer, records)", ONCE),
    "the position is read before the fence": Bug(take_over, "epoch = await Fence(partition)\n    position, metadata = await ReadPosition(partition)", "position, metadata = await ReadPosition(partition)\n    epoch = await Fence(partition)", ONCE),
    "what fails is taken for committed": Bug(Transactions.commit, "if together.reply is not None:", "if together.reply == FENCED:", ONCE),
    "what nothing is heard of was not committed": Bug(resolved, "if there == (commit.position, commit.metadata):", "if there != before:\n        return Together(NotApplied(why), after)\n    if False:", ONCE, shown_by=("once", 191)),
    "a fence takes the producer that is there": Bug(Transactions._fenced, "self._end(partition)", "if partition in self._producers and self._producers[partition][0] == self._count:\n        return self._count", ONCE),
    "a transaction goes on without its position": Bug(commit_together, "await SendPosition(partition, epoch, commit.position, commit.metadata)", "pass", ONCE),
    "who takes over again reads on": Bug(Assignment._resumed, "self.seek(partition, position)", "self.positions[partition] = position", ONCE),
}  # fmt: skip
SEEDS: Final = own_seeds(ONCE, ONCE_RUNS, BUGS.values())


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()


def test_no_run_is_wrong() -> None:
    """Laws EO1 to EO5, on the real worker under evictions, kills, pauses and failing requests."""
    story = found(SEEDS[ONCE[0]], ONCE)
    if story is not None:
        page = page_of(story.course.seed, ONCE, Path(".tidegate/failures"))
        pytest.fail(f"{story.wrong}\n    {line(story.course.seed, ONCE)}\n    {page}", pytrace=False)


def test_somebody_is_fenced() -> None:
    """Otherwise the runs prove nothing."""
    fenced: list[int] = []

    def begin(self: TransactionCoordinator, request: InitProducerId) -> ProducerEpoch | Code:
        producer = right(self, request)
        fenced.append(producer.epoch if isinstance(producer, ProducerEpoch) else 0)
        return producer

    right = TransactionCoordinator.begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionCoordinator, "begin", begin)
        for seed in range(5):
            assert judged(seed, ONCE).wrong == []
    assert max(fenced) > 2


def of_kind(seed: int, kind: str) -> Story:
    return judged(seed, (kind,))


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first(BUGS[name], of_kind, SEEDS) is not None


def test_producers_with_ids_of_their_own_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = iter(range(1_000_000))
    monkeypatch.setattr("tidegate_adapters.kafka.worker.transactional_id", lambda _group, _partition: f"{next(epochs)}")
    assert found(SEEDS[ONCE[0]], ONCE) is not None


def test_what_is_answered_in_an_earlier_life_is_not_sent() -> None:
    """Law EO1: the handler outlives its partition; the next life handles and answers the record."""
    committed: list[tuple[list[Place], list[int]]] = []
    partition = TopicPartition("t", 0)

    async def main(random: Random) -> None:
        broker = SimulatedBroker({"t": 1, OUT: 1})
        network = Network(broker, random)

        def decided(_name: str, offsets: Mapping[Partition, tuple[int, ...]], at: Mapping[Partition, Position]) -> None:
            answers = [place for each, written in offsets.items() for place in places_in(broker, each, written)]
            committed.append((answers, [position.offset for position in at.values()]))

        async def position_of(_: TopicPartition) -> tuple[int, str]:
            return 0, ""

        broker.decided = decided
        made = Transactions(lambda each: producing(network, "a", str(each))[1], "g", position_of, lambda _: True)
        for generation in (1, 2):
            await made.take_over(partition, generation)
        for generation, offset in ((2, 0), (1, 0), (1, 1)):
            made.keep(partition, generation, offset, (Send(OUT, b"%d %d" % (generation, offset)),))
        assert await made.commit(Commit(partition, 2, 2, "")) is None
        await made.stop()

    run(main, 1)
    assert committed == [([(2, 0)], [2])]


def test_nothing_is_sent_for_an_assignment_that_is_over() -> None:
    """Laws EO1 and EO3: the client learns of it before the broker fences the producer."""
    committed: list[object] = []
    partition, are_current = TopicPartition("t", 0), {1}

    async def main(random: Random) -> None:
        broker = SimulatedBroker({"t": 1, OUT: 1})
        broker.decided = lambda *what: committed.append(what)
        network = Network(broker, random)

        async def position_of(_: TopicPartition) -> tuple[int, str]:
            return 0, ""

        made = Transactions(
            lambda each: producing(network, "a", str(each))[1], "g", position_of, lambda each: each in are_current
        )
        await made.take_over(partition, 1)
        made.keep(partition, 1, 0, (Send(OUT, b"answer"),))
        are_current.clear()
        assert await made.commit(Commit(partition, 1, 1, "")) == FENCED
        with pytest.raises(Failure, match="taken over"):
            await made.take_over(partition, 2)
        await made.stop()

    run(main, 1)
    assert committed == []
