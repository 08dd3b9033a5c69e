"""Parts of the worker without a broker: effects that no run of a whole worker shows."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Mapping
from inspect import Parameter, signature
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast, final

import attrs
import pytest
from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from tests.integration.test_worker_failures import Faulty, faulty

from tidegate.consumer.fanout import Report, Start, TasksReported
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import Handle, RecordsHandled, Work
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.effects import Failure
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.records import BROKER, PRODUCER, Record, Send, TopicPartition
from tidegate.model.reducer import Step
from tidegate.sinks import letter_writing
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate_adapters.kafka import producer
from tidegate_adapters.kafka.client import (
    NO_GENERATION,
    Client,
    Producer,
    Received,
    check_options,
    generation_of,
    record_of,
    theirs,
)
from tidegate_adapters.kafka.decoding import is_undecodable
from tidegate_adapters.kafka.handler_calls import Code, UserCode
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.producer import DeadLetters, Failed, KafkaSink
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.start_positions import Beginnings
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.runtime.reducers import Runtime
from tidegate_adapters.sinks.port import Outbox
from tidegate_adapters.testing.event_loop import run
from tidegate_adapters.testing.kafka import Network, Outcome, SimulatedBroker, SimulatedConsumer
from tidegate_adapters.testing.kafka.requests import OffsetFetch, Request

HANDED_BACK: Final = DeliveryRules(refused=Action.HOLD, lasting=Action.HOLD, dead_lettering=None)
P: Final = tuple(TopicPartition("t", number) for number in range(3))


def received(**more: Any) -> Received:
    parts = {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "key": b"k",
        "value": None,
        "headers": (),
        "timestamp": 3,
        "timestamp_type": 0,
    }
    return cast("Received", SimpleNamespace(**{**parts, **more}))


# --- records ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "record"),
    [
        ({}, Record("t", 1, 7, b"k", None, (), Instant(3 * MILLISECOND, PRODUCER))),
        ({"timestamp_type": 1}, Record("t", 1, 7, b"k", None, (), Instant(3 * MILLISECOND, BROKER))),
        ({"timestamp": -1}, Record("t", 1, 7, b"k")),
        ({"timestamp": None, "key": None, "value": b""}, Record("t", 1, 7, None, b"")),
        (
            {"headers": (("h", b"1"),), "timestamp_type": 1},
            Record("t", 1, 7, b"k", None, (("h", b"1"),), Instant(3 * MILLISECOND, BROKER)),
        ),
        ({"headers": (("h", None),), "timestamp": -1}, Record("t", 1, 7, b"k", None, (("h", None),))),
    ],
)
def test_a_record_of_the_client_is_a_value(more: Mapping[str, Any], record: Record) -> None:
    assert record_of(received(**more)) == record


@pytest.mark.parametrize("more", [{"key": "text"}, {"value": "text"}])
def test_what_the_client_has_decoded_is_no_record(more: Mapping[str, Any]) -> None:
    with pytest.raises(Misuse, match="must be bytes or None, got str"):
        record_of(received(**more))


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Handle((6, 7)), [RecordsHandled((6,), (7,), 1)]),
        (Start(0, (0, 1), 1), [TasksReported(0, (1,), 1, Report.FAILED), TasksReported(0, (0,), 1, Report.SUCCEEDED)]),
    ],
    ids=["handle", "start"],
)
def test_of_what_no_record_can_be_made_has_failed(
    request_: Handle | Start, said: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a handler that is never called would block its partition for ever."""
    work = Work(P[1], 1, request_, (6, 7))
    handled: list[int] = []
    told: list[object] = []

    async def handle(record: Record) -> None:
        handled.append(record.offset)

    @attrs.frozen
    class Telling:
        def step(self, state: int, event: Any) -> Step[int, Work]:
            told.extend([] if event is work else [event.what])
            return Step(state, (work,) if event is work else ())

    async def scenario() -> None:
        records, settings = Records(lambda: 0.0), Worker(["t"], handle, bootstrap="nowhere", group="g").settings
        records.begin(P[1], 1)
        records.came(P[1], 1, [received(offset=6), received(value="text")], 0.0)
        their = Code(handle, None, None, None)

        def tell(event: object) -> None:
            runtime.tell(event)

        code = UserCode(their, settings, records, cast("Outbox[Any]", None), None, tell)
        runtime = Runtime[int, Any, Work](Telling(), 0, code.job, code.event)
        runtime.tell(work)
        await runtime.until(lambda _: len(told) == len(said))
        await runtime.close()

    run(lambda _: scenario(), 1)
    assert (handled, sorted(told, key=str)) == ([6], sorted(said, key=str))
    assert ["a value must be bytes or None, got str" in str(each.exc_info) for each in caplog.records] == [True]


def test_the_record_that_came_first_is_the_oldest_that_is_undone() -> None:
    records = Records(lambda: 0.0)
    assert records.first(P[0], 1) is None
    records.begin(P[0], 1)
    assert records.first(P[0], 1) is None
    records.came(P[0], 1, [received(offset=4)], 5.0)
    records.came(P[0], 1, [received(offset=5)], 6.0)
    assert (first := records.first(P[0], 1)) is not None
    assert (first.received.offset, first.came_s) == (4, 5.0)


@pytest.mark.parametrize(
    ("error", "cause", "is_so"),
    [
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), None, True),
        (errors.CorruptRecordException(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), True),
        (errors.CorruptRecordException(), None, False),
        (ValueError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), False),
    ],
)
def test_what_cannot_be_decoded_is_told_from_what_is_corrupt(
    error: Exception, cause: Exception | None, is_so: bool
) -> None:
    """Otherwise a worker would search for a poisonous record in a damaged log."""
    error.__cause__ = cause
    assert is_undecodable(error) is is_so


# --- options and rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "why"),
    [("group_id", "the worker says that itself"), ("sesion_timeout_ms", "neither it nor aiokafka's consumer has it")],
)
def test_an_option_that_there_is_not_is_told_from_one_that_is_the_workers(option: str, why: str) -> None:
    with pytest.raises(Misuse, match=option) as found:
        check_options({option: None})
    assert found.value.why == why


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("isolation_level", "nonsense", "choose one of read_uncommitted, read_committed"),
        ("max_poll_interval_ms", "x", "must be an integer from 0 on"),
        ("fetch_max_wait_ms", -1, "must be an integer from 0 on"),
        ("fetch_min_bytes", 0.5, "must be an integer from 0 on"),
        ("check_crcs", 1, "must be True or False, got int 1"),
        ("sasl_plain_password", b"hunter2", "must be a string, got bytes"),
    ],
)
def test_an_option_that_the_client_cannot_take_is_refused(option: str, value: object, what: str) -> None:
    """Once it failed later with a Python error, or silently fetched nothing."""
    with pytest.raises(Misuse, match=what) as found:
        check_options({option: value})
    assert "hunter2" not in str(found.value)
    check_options({option: None})


def test_rules_that_ask_for_more_than_to_handle_records_are_refused() -> None:
    rules = ConsumerRules(partition=PartitionRules(hooks=True))
    with pytest.raises(Misuse, match="more than to handle records") as found:
        _ = Worker(["t"], lambda _: None, bootstrap="nowhere", group="g", consumer=rules)
    assert "batch=" in found.value.todo


def test_with_transactions_a_commit_is_due_for_whatever_is_done() -> None:
    worker = Worker(["t"], lambda _: None, bootstrap="nowhere", group="g", exactly_once=True)
    assert worker.settings.consumer.partition.replay_max == 1


@pytest.mark.parametrize("exactly_once", [False, True])
def test_with_transactions_only_what_is_committed_is_read(*, exactly_once: bool) -> None:
    """Aborted answers would be read otherwise; without transactions the client's default stays."""
    told: list[Mapping[str, object]] = []

    def connect(_bootstrap: str, _group: str, options: Mapping[str, object]) -> Client:
        told.append(options)
        raise OSError("no client")

    worker = Worker(["t"], lambda _: None, bootstrap="nowhere", group="g", exactly_once=exactly_once)
    with pytest.raises((TidegateError, OSError), match=r"client"):
        asyncio.run(worker.run(connect))
    assert [each.get("isolation_level") for each in told] == ["read_committed" if exactly_once else None]


def test_each_setting_is_an_argument_of_a_worker_with_the_same_default_and_documented_once() -> None:
    arguments, told = signature(Worker).parameters, Worker.__doc__ or ""
    defaults = {"consumer": ConsumerRules(), "start_offsets": None}
    for field in attrs.fields(WorkerSettings):
        if field.name in {"topics", "options"}:
            continue
        default = Parameter.empty if field.default is attrs.NOTHING else field.default
        assert arguments[field.name].default == defaults.get(field.name, default), field.name
        assert told.count(f" {field.name}: ") == 1, field.name


# --- dead letters -------------------------------------------------------------------------------------------------------


def test_a_dead_letter_says_when_it_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "time", lambda: 1_700_000_000.25)
    letter = DeadLetters(cast("Outbox[Any]", None), "{topic}.dead", "shop").letter(
        Record("t", 0, 7), Failed(1, "ValueError", "no")
    )
    assert dict(letter.headers)["tidegate.at"] == b"1700000000250"


def test_a_dead_letter_that_is_refused_waits_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Faulty, "error", errors.MessageSizeTooLargeError)
    first_s = letter_writing.after_attempt(letter_writing.Attempt.FAILED, 0).delay / SECOND  # type: ignore[union-attr]
    second_s = letter_writing.after_attempt(letter_writing.Attempt.FAILED, 1).delay / SECOND  # type: ignore[union-attr]

    async def main(_: Random) -> float:
        outbox = Outbox(faulty("queue", "queue")[0], OutboxRules(delivery=HANDED_BACK))
        began = asyncio.get_running_loop().time()
        await DeadLetters(outbox, "{topic}.dead", "shop").write(Record("t", 0, 7), Failed(1, "ValueError", "no"))
        return asyncio.get_running_loop().time() - began

    with caplog.at_level(logging.ERROR, "tidegate_adapters.kafka"):
        assert run(main, 1) == pytest.approx(first_s + second_s, abs=0.01)
    assert len([each for each in caplog.records if "is held" in each.message]) == 2


@final
class Unlucky(Producer):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, record: Send) -> Awaitable[object]:
        if record.value != b"1":
            raise OSError("queue")

        async def sent() -> None:
            raise OSError("late")

        return sent()


def test_of_what_nobody_waits_for_any_more_nothing_is_said() -> None:
    """One was under way when the next could not be queued: the sender gets that error alone."""
    said: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        sink = KafkaSink(Unlucky)
        [failure] = await sink.deliver([[Send("t", b"1"), Send("t", b"2")]])
        assert "queue" in str(cast("Failure", failure).__cause__)
        await asyncio.sleep(0)
        await sink.stop()
        gc.collect()

    asyncio.run(scenario())
    assert said == []


# --- the client ---------------------------------------------------------------------------------------------------------


def test_a_client_that_has_not_joined_is_a_member_of_no_generation() -> None:
    """Its commit is not sent: a group without members would accept it from any client."""

    async def main(random: Random) -> tuple[int | None, int | None]:
        network = Network(SimulatedBroker({"t": 1}), random)
        consumer = SimulatedConsumer(network, group_id="g", enable_auto_commit=False)
        await consumer.start()
        before = generation_of(cast("Client", consumer))
        consumer.subscribe(["t"])
        await asyncio.sleep(5)
        after = generation_of(cast("Client", consumer))
        await consumer.stop()
        return before, after

    assert run(main, 1) == (NO_GENERATION, 1)


def test_a_broker_that_knows_of_none_does_not_answer() -> None:
    """A starting broker: aiokafka's client would accept it and fail later, as a storm has shown."""

    async def main(random: Random) -> bool:
        assert not AIOKafkaClient().cluster.brokers()
        network = Network(SimulatedBroker({"t": 1}), random)
        consumer = SimulatedConsumer(network, group_id="g", enable_auto_commit=False)
        consumer._client.cluster.brokers = set  # noqa: SLF001  where aiokafka has it
        worker = Worker(["t"], handle, bootstrap="here:9092", group="g")
        with pytest.raises(TidegateError, match="no Kafka broker answers at here:9092"):
            await worker.run(lambda *_: cast("Client", consumer))
        return consumer.is_closed

    async def handle(_: Record) -> None: ...

    assert run(main, 1)


# --- where partitions begin ---------------------------------------------------------------------------------------------


def asked(strike: Any, during: Any) -> list[tuple[int, ...]]:
    requests: list[tuple[int, ...]] = []

    def struck(_: str, request: Request) -> Any:
        if not isinstance(request, OffsetFetch) or not started:
            return None
        requests.append(tuple(each.partition for each in request.partitions))
        return strike(len(requests))

    started: list[bool] = []

    async def main(random: Random) -> None:
        network = Network(SimulatedBroker({"t": 3}), random, strike=struck)
        consumer = SimulatedConsumer(network, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        await consumer.start()
        await asyncio.sleep(5)
        started.append(True)
        beginnings = Beginnings(cast("Client", consumer), WorkerSettings(("t",), "simulated", "g"))
        try:
            await during(beginnings)
        finally:
            await consumer.stop()

    run(main, 1)
    return requests


def test_who_is_refused_for_all_asks_for_each() -> None:
    async def during(beginnings: Beginnings) -> None:
        async with asyncio.timeout(60):
            assert await asyncio.gather(*map(beginnings.at, P)) == [(0, "")] * 3

    requests = asked(lambda count: errors.UnknownError if count == 1 else None, during)
    assert requests == [(0, 1, 2), (0,), (1,), (2,)]


def test_who_is_refused_for_each_as_well_hears_of_it() -> None:
    async def during(beginnings: Beginnings) -> None:
        async with asyncio.timeout(60):
            found = await asyncio.gather(*map(beginnings.at, P), return_exceptions=True)
        assert [isinstance(each, errors.KafkaError) for each in found] == [True, True, False]

    requests = asked(lambda count: errors.UnknownError if count < 4 else None, during)
    assert requests == [(0, 1, 2), (0,), (1,), (2,)]


def test_a_log_without_a_leader_holds_up_no_other() -> None:
    async def during(beginnings: Beginnings) -> None:
        client = beginnings._client  # noqa: SLF001
        told = client.beginning_offsets

        async def without(partitions: Any) -> Any:
            if theirs(P[1]) in partitions:
                await asyncio.sleep(40)
                raise errors.KafkaTimeoutError
            return await told(partitions)

        cast("Any", client).beginning_offsets = without
        await client.commit({theirs(each): (0, "") for each in P})
        waits = [asyncio.ensure_future(beginnings.at(each)) for each in P]
        await asyncio.sleep(10)
        assert [each.done() for each in waits] == [True, False, True]
        with pytest.raises(errors.KafkaTimeoutError):
            await waits[1]

    assert [len(each) for each in asked(lambda _: None, during)] == [3]


def test_who_asks_while_an_answer_is_awaited_is_asked_for_next() -> None:
    """One request at a time, so that closing ends them all."""

    async def during(beginnings: Beginnings) -> None:
        some = asyncio.create_task(beginnings.at(P[0]))
        await asyncio.sleep(1)
        more = asyncio.create_task(beginnings.at(P[1]))
        await asyncio.sleep(1)
        assert sum("_ask" in str(each.get_coro()) for each in asyncio.all_tasks()) == 1
        await beginnings.close()
        assert not any("_ask" in str(each.get_coro()) for each in asyncio.all_tasks())
        for each in (some, more):
            each.cancel()
        await asyncio.wait({some, more})

    assert asked(lambda _: Outcome.SILENCE, during) == [(0,)]
