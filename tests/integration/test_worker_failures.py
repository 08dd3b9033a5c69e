"""Failing records and the answers of handlers, on an embedded log and on a real broker."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast, final

import attrs
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from tests.integration.servers import create_topic

from tidegate.consumer.partition.partition import Ordering, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import Exponential, Fixed
from tidegate.sinks import letter_writing
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Producer, producer, theirs
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun, Outcome
from tidegate_adapters.kafka.producer import DeadLetters, Failed, KafkaSink, failed_by
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.worker import Later, OnFailure, Worker
from tidegate_adapters.runtime.handlers import Undecodable, unread_and_sends
from tidegate_adapters.sinks.port import Outbox

SOON: Final = Exponential(MILLISECOND, cap=2 * MILLISECOND)
BY_KEY: Final = ConsumerRules(partition=PartitionRules(ordering=Ordering.BY_KEY))
BY_OFFSET: Final = ConsumerRules(partition=PartitionRules(ordering=Ordering.BY_OFFSET))


def worker(handle: Callable[..., object], **more: Any) -> Worker:
    return Worker(["orders"], handle, bootstrap="nowhere:1", group="shop", **more)


def on_log(made: Worker, *values: bytes, keys: Sequence[bytes | None] = ()) -> Outcome:
    pairs = zip(values, keys or (None,) * len(values), strict=True)
    log = EmbeddedLog(Record("orders", 0, 0, key, value) for value, key in pairs)
    return asyncio.run(EmbeddedRun(made, log).run())


def headers_of(sent: Send) -> dict[str, str]:
    return {name.removeprefix("tidegate."): (value or b"").decode() for name, value in sent.headers}


@final
class Poisoned:
    def __init__(self, times: int = 1_000) -> None:
        self.times, self.seen = times, Counter[bytes]()

    async def __call__(self, record: Record) -> None:
        value = record.value or b""
        self.seen[value] += 1
        if value.startswith(b"poison") and self.seen[value] <= self.times:
            raise ValueError(f"no {value.decode()}, thank you")


# --- after a failure ----------------------------------------------------------------------------------------------------


def test_a_record_is_tried_again_as_often_as_it_may_be() -> None:
    handle = Poisoned(times=3)
    outcome = on_log(worker(handle, retries=3, backoff=SOON, jitter_ppm=500_000), b"a", b"poison", b"b")

    assert handle.seen == {b"a": 1, b"poison": 4, b"b": 1}
    assert outcome.is_whole
    assert outcome.failed == 3


def test_by_default_what_fails_stops_its_partition() -> None:
    handle = Poisoned()
    outcome = on_log(worker(handle, retries=1, backoff=SOON), b"a", b"poison")

    assert handle.seen[b"poison"] == 2
    assert outcome.positions == {TopicPartition("orders", 0): 1}


@pytest.mark.parametrize("rules", [ConsumerRules(), BY_KEY, BY_OFFSET], ids=["no order", "by key", "by offset"])
def test_what_is_skipped_is_logged_and_counts_as_done(rules: ConsumerRules, caplog: pytest.LogCaptureFixture) -> None:
    handle = Poisoned()
    made = worker(handle, consumer=rules, on_failure=OnFailure.SKIP, retries=1, backoff=SOON)
    outcome = on_log(made, b"a", b"poison 1", b"b", b"poison 2", b"c", keys=[b"x", b"y", b"y", b"x", b"x"])

    assert outcome.is_whole
    assert outcome.sent == ()
    assert handle.seen == {b"a": 1, b"poison 1": 2, b"b": 1, b"poison 2": 2, b"c": 1}
    assert [each.getMessage() for each in caplog.records if "skipped" in each.message] == [
        "skipped orders-0 @1, which has failed 2 times: ValueError", "skipped orders-0 @3, which has failed 2 times: ValueError",
    ]  # fmt: skip


@pytest.mark.parametrize("rules", [ConsumerRules(), BY_KEY, BY_OFFSET], ids=["no order", "by key", "by offset"])
def test_a_dead_letter_is_the_record_and_why(rules: ConsumerRules) -> None:
    made = worker(
        Poisoned(),
        consumer=rules,
        on_failure=OnFailure.DEAD_LETTER,
        dead_letter="{topic}.dead",
        retries=2,
        backoff=SOON,
    )
    outcome = on_log(made, b"a", b"poison", b"b", keys=[b"k"] * 3)

    assert outcome.is_whole
    [sent] = outcome.sent
    assert (sent.topic, sent.key, sent.value) == ("orders.dead", b"k", b"poison")
    said = headers_of(sent)
    assert said.pop("at").isdigit()
    assert said == {
        "topic": "orders", "partition": "0", "offset": "1", "group": "shop", "attempts": "3", "error": "ValueError",
        "message": "no poison, thank you",
    }  # fmt: skip


def test_the_rest_of_a_key_may_go_with_it() -> None:
    handle = Poisoned()
    made = worker(handle, consumer=BY_KEY, on_failure=OnFailure.DEAD_LETTER_KEY, dead_letter="dead")
    outcome = on_log(made, b"poison", b"a", b"b", b"c", keys=[b"x", b"y", b"x", None])

    assert outcome.is_whole
    assert handle.seen == {b"poison": 1, b"a": 1, b"c": 1}
    assert [(each.value, headers_of(each)["attempts"], headers_of(each).get("error")) for each in outcome.sent] == [
        (b"poison", "1", "ValueError"),
        (b"b", "0", None),
    ]


@pytest.mark.parametrize("topic", ["orders", "^ord.*"])
def test_what_cannot_be_decoded_may_go_there_and_no_handler_sees_it(topic: str) -> None:
    seen: list[object] = []

    def decode(record: Record) -> int:
        return int(record.value or b"")

    def handle(number: int) -> None:
        seen.append(number)

    made = Worker(
        {topic: handle}, bootstrap="nowhere:1", group="shop", decode=decode, undecodable=Undecodable.DEAD_LETTER, dead_letter="dead"
    )  # fmt: skip
    outcome = on_log(made, b"1", b"\xff", b"3")

    assert outcome.is_whole
    assert sorted(map(str, seen)) == ["1", "3"]
    [sent] = outcome.sent
    assert sent.value == b"\xff"
    assert {"error": "ValueError", "attempts": "0"}.items() <= headers_of(sent).items()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"on_failure": OnFailure.DEAD_LETTER}, "no topic for them"),
        ({"undecodable": Undecodable.DEAD_LETTER}, "no topic for them"),
        ({"dead_letter": "dead"}, "none that go there"),
        ({"dead_letter": "dead", "on_failure": OnFailure.SKIP}, "none that go there"),
        ({"dead_letter": "orders", "on_failure": OnFailure.DEAD_LETTER}, "which the worker consumes"),
        ({"dead_letter": "{topic}", "on_failure": OnFailure.DEAD_LETTER}, "which the worker consumes"),
        ({"dead_letter": "{top}.dead", "on_failure": OnFailure.DEAD_LETTER}, "cannot name a topic"),
        ({"on_failure": OnFailure.BLOCK_KEY}, "BLOCK_KEY without an order"),
        ({"on_failure": "skip"}, r"(?s)on_failure must be an OnFailure, got str.*write OnFailure\.SKIP"),
        ({"retries": -1}, "a number of retries"),
        ({"jitter_ppm": -1}, "a jitter"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: Mapping[str, object], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        worker(Poisoned(), **said)


@pytest.mark.parametrize(
    ("topics", "dead_letter", "consumed", "left_out"),
    [
        (["^orders.*"], "{topic}.dead", ["orders", "orders.eu", "orders.deadly"], ["orders.dead", "orders.dead.dead", "orders.eu.dead"]),
        (["^.*"], "dead", ["orders", "deadly"], ["dead"]),
        (["^.*"], "dead.{topic}.of.{topic}", ["dead", "dead.a"], ["dead.a.of.a"]),
        (["^(a|b)c$", "d"], "{topic}.dead", ["ac", "bc", "d"], ["ac.dead", "d.dead", "a"]),
    ],
)  # fmt: skip
def test_a_pattern_leaves_out_the_dead_letters_of_what_it_matches(
    topics: list[str], dead_letter: str, consumed: list[str], left_out: list[str]
) -> None:
    """Otherwise they would be dead-lettered again for ever."""
    told = WorkerSettings(tuple(topics), "b", "g", dead_letter=dead_letter)

    assert all(re.fullmatch(told.pattern, each) for each in consumed)
    assert not any(re.fullmatch(told.pattern, each) for each in left_out)


@pytest.mark.parametrize(
    ("topics", "dead_letter", "why"),
    [
        (["^orders.*", "orders.dead"], "{topic}.dead", "'orders.dead', which the worker consumes"),
        (["a", "a.dead"], "{topic}.dead", "'a.dead', which the worker consumes"),
        (["^.*"], "{topic}", "which the worker consumes"),
        (["^(?P<name>a|b)"], "{topic}.dead", "are to be one pattern"),
    ],
)
def test_dead_letters_that_are_consumed_by_name_are_refused(topics: list[str], dead_letter: str, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        _ = WorkerSettings(tuple(topics), "b", "g", dead_letter=dead_letter)

    assert why in str(refused.value)


def test_a_worker_that_is_told_something_else_fails_as_before() -> None:
    made = worker(Poisoned(), on_failure=OnFailure.DEAD_LETTER, dead_letter="dead", retries=2, backoff=Fixed(SECOND))
    again = made.configured(made.settings)

    assert again.settings == made.settings
    assert again.settings.consumer.partition.backoff == Fixed(SECOND)
    stops = attrs.evolve(made.settings, consumer=ConsumerRules())
    with pytest.raises(Misuse, match="none that go there"):
        made.configured(stops)


# --- answers of handlers ------------------------------------------------------------------------------------------------


async def one(record: Record) -> Send:
    return Send("shipped", record.value, record.key, (("by", b"us"),), 3)


async def several(record: Record) -> list[Send]:
    return [Send("shipped", record.value), Send("billed", None, record.key)]


def generated(record: Record) -> object:
    yield Send("shipped", record.value)
    yield Send("billed", None, record.key)


BOTH: Final = (Send("shipped", b"a"), Send("billed", None, b"k"))


@pytest.mark.parametrize(
    ("handle", "sent"),
    [(one, (Send("shipped", b"a", b"k", (("by", b"us"),), 3),)), (several, BOTH), (generated, BOTH), (Poisoned(), ())],
    ids=["one", "several", "a generator in a thread", "none"],
)
def test_what_a_handler_answers_with_is_sent(handle: Callable[..., object], sent: tuple[Send, ...]) -> None:
    outcome = on_log(worker(handle), b"a", keys=[b"k"])

    assert outcome.is_whole
    assert outcome.sent == sent


@pytest.mark.parametrize("answer", [5, "text", b"bytes", {"a": 1}, [Send("a", b""), 5]], ids=repr)
def test_anything_else_is_a_failure_that_says_so(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: Record) -> object:
        return answer

    outcome = on_log(worker(handle, on_failure=OnFailure.DEAD_LETTER, dead_letter="dead"), b"a")

    assert [each.topic for each in outcome.sent] == ["dead"]
    assert "a handler has returned a" in headers_of(outcome.sent[0])["message"]
    assert "return None, a Send, or an iterable of them" in caplog.text


def test_none_and_no_records_are_the_same() -> None:
    assert unread_and_sends(None) == unread_and_sends([]) == unread_and_sends(iter(())) == ((), ())


def number(record: Record) -> int:
    return int(record.value or b"")


# --- parked records -----------------------------------------------------------------------------------------------------


@final
class Parks:
    def __init__(self, times: int = 2) -> None:
        self.times, self.seen = times, list[bytes]()

    async def __call__(self, record: Record) -> None:
        value = record.value or b""
        self.seen.append(value)
        if value == b"early" and self.seen.count(value) <= self.times:
            raise Later(timedelta(milliseconds=30))


def test_what_is_parked_is_no_failure_and_others_go_on() -> None:
    handle = Parks()
    outcome = on_log(worker(handle), b"early", b"a", b"b")

    assert outcome.is_whole
    assert (outcome.handled, outcome.failed) == (3, 0)
    assert handle.seen == [b"early", b"a", b"b", b"early", b"early"]


def test_the_key_of_what_is_parked_waits_and_other_keys_go_on() -> None:
    handle = Parks()
    assert on_log(worker(handle, consumer=BY_KEY), b"early", b"a", b"b", keys=[b"x", b"x", b"y"]).is_whole
    assert handle.seen == [b"early", b"b", b"early", b"early", b"a"]


def test_a_plain_function_may_park_and_an_embedded_run_waits_for_it() -> None:
    seen: list[bytes | None] = []

    def handle(record: Record) -> None:
        seen.append(record.value)
        if len(seen) == 1:
            raise Later(timedelta(seconds=2.2))

    assert on_log(worker(handle), b"a").is_whole
    assert seen == [b"a", b"a"]


def test_to_park_does_not_use_up_what_may_be_tried_again() -> None:
    count = 0

    async def handle(_: Record) -> None:
        nonlocal count
        count += 1
        if count in (1, 2, 4):
            raise Later(timedelta(milliseconds=1))
        raise ValueError

    made = worker(handle, retries=1, backoff=SOON, on_failure=OnFailure.DEAD_LETTER, dead_letter="dead")
    [sent] = on_log(made, b"a").sent
    assert (count, headers_of(sent)["attempts"]) == (5, "2")


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        (5, r"(?s)delay must be a timedelta, got int 5.*write timedelta\(seconds=5\)"),
        (0.5, r"(?s)got float 0.5.*timedelta\(seconds=0.5\)"),
        ("5 s", r"(?s)got str.*timedelta\(seconds=...\)"),
        (timedelta(seconds=-1), "is too short"),
    ],
)
def test_only_a_length_of_time_can_be_waited_for(delay: Any, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        Later(delay)
    assert str(Later(timedelta(seconds=2))) == "again in 2 s"


# --- batches ------------------------------------------------------------------------------------------------------------


@final
class Batches:
    def __init__(self, times: int = 1_000) -> None:
        self.times, self.seen = times, list[list[bytes | None]]()

    async def __call__(self, records: list[Record]) -> list[Send]:
        self.seen.append([each.value for each in records])
        if b"poison" in self.seen[-1] and len(self.seen) <= self.times:
            raise ValueError("no poison, thank you")
        return [Send("sums", b"%d" % len(records))]


def test_a_batch_is_a_list_in_the_order_of_the_log_and_is_answered_for_as_a_whole() -> None:
    handle = Batches()
    outcome = on_log(worker(handle, batch=4), *(b"%d" % at for at in range(10)))

    assert outcome.is_whole
    assert outcome.handled == 10
    assert sorted(handle.seen, key=str) == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]
    assert sorted(each.value or b"" for each in outcome.sent) == [b"2", b"4", b"4"]


def test_a_plain_function_may_handle_batches_by_topic() -> None:
    seen: list[list[int]] = []

    def handle(numbers: list[int]) -> None:
        seen.append(numbers)

    made = Worker(
        {"orders": handle, "^other.*": handle},
        bootstrap="nowhere:1",
        group="shop",
        batch=3,
        decode=number,
    )
    assert on_log(made, b"1", b"2", b"3", b"4").is_whole
    assert sorted(seen) == [[1, 2, 3], [4]]


def test_with_an_order_by_key_a_batch_has_one_record_of_each() -> None:
    handle = Batches()
    outcome = on_log(worker(handle, batch=10, consumer=BY_KEY), b"1", b"2", b"3", b"4", keys=[b"x", b"y", b"x", b"x"])

    assert outcome.is_whole
    assert handle.seen == [[b"1", b"2"], [b"3"], [b"4"]]


def test_a_batch_is_tried_again_as_a_whole() -> None:
    handle = Batches(times=2)
    outcome = on_log(worker(handle, batch=3, retries=2, backoff=SOON), b"a", b"poison", b"b")

    assert outcome.is_whole
    assert handle.seen == [[b"a", b"poison", b"b"]] * 3


@pytest.mark.parametrize("policy", [OnFailure.SKIP, OnFailure.DEAD_LETTER, OnFailure.STOP])
def test_a_batch_fails_as_a_whole(policy: OnFailure) -> None:
    letters = {"dead_letter": "dead"} if policy is OnFailure.DEAD_LETTER else {}
    outcome = on_log(
        worker(Batches(), batch=3, retries=1, backoff=SOON, on_failure=policy, **letters), b"a", b"poison", b"b"
    )

    assert outcome.is_whole == (policy is not OnFailure.STOP)
    if policy is OnFailure.STOP:
        assert outcome.positions == {TopicPartition("orders", 0): 0}
    dead = [(each.value, headers_of(each)["attempts"], headers_of(each)["error"]) for each in outcome.sent]
    assert dead == [(each, "2", "ValueError") for each in (b"a", b"poison", b"b") if letters]


@pytest.mark.parametrize(
    ("undecodable", "seen", "sent"),
    [
        (Undecodable.SKIP, [1, 3], []),
        (Undecodable.DEAD_LETTER, [1, 3], [b"x"]),
        (Undecodable.RAW, [1, "raw", 3], []),
        (Undecodable.FAIL, [], []),
    ],
)
def test_what_cannot_be_decoded_is_not_the_business_of_its_batch(
    undecodable: Undecodable, seen: list[object], sent: list[bytes]
) -> None:
    got: list[object] = []

    async def handle(given: list[object]) -> None:
        got.extend("raw" if isinstance(each, Record) else each for each in given)

    letters = {"dead_letter": "dead"} if undecodable is Undecodable.DEAD_LETTER else {}
    made = worker(handle, batch=5, decode=number, undecodable=undecodable, **letters)
    outcome = on_log(made, b"1", b"x", b"3")

    assert got == seen
    assert [each.value for each in outcome.sent] == sent
    assert outcome.is_whole == (undecodable is not Undecodable.FAIL)


def test_a_batch_of_which_nothing_can_be_decoded_is_done_without_its_handler() -> None:
    handle = Batches()
    made = worker(handle, batch=5, decode=number, undecodable=Undecodable.SKIP)

    assert on_log(made, b"x", b"y").is_whole
    assert handle.seen == []


@pytest.mark.parametrize("times", [1, 1_000])
def test_batches_by_offset_follow_one_another(times: int) -> None:
    """Law P8: a failed one is retried before the next begins, or is dead-lettered whole."""
    course: list[str] = []

    async def handle(records: list[Record]) -> None:
        values = "".join([(each.value or b"").decode() for each in records])
        course.append(f"{values} begins")
        await asyncio.sleep(0.01 if values == "012" else 0)
        if "4" in values and course.count("345 begins") <= times:
            raise ValueError("on purpose")
        course.append(f"{values} ends")

    letters: dict[str, Any] = {
        "on_failure": OnFailure.DEAD_LETTER,
        "dead_letter": "dead",
        "retries": 1,
        "backoff": SOON,
    }
    outcome = on_log(worker(handle, batch=3, consumer=BY_OFFSET, **letters), *(b"%d" % at for at in range(8)))

    assert outcome.is_whole
    assert course == [
        *("012 begins", "012 ends", "345 begins", "345 begins"),
        *(["345 ends"] if times == 1 else []),
        *("67 begins", "67 ends"),
    ]
    assert [each.value for each in outcome.sent] == ([] if times == 1 else [b"3", b"4", b"5"])


def test_to_park_a_batch_is_a_failure_of_it() -> None:
    seen: list[int] = []

    async def handle(records: list[Record]) -> None:
        seen.append(len(records))
        if len(seen) == 1:
            raise Later(timedelta(milliseconds=1))

    assert not on_log(worker(handle, batch=2), b"a", b"b").is_whole
    seen.clear()
    assert on_log(worker(handle, batch=2, retries=1, backoff=SOON), b"a", b"b").is_whole
    assert seen == [2, 2]


def test_how_large_a_batch_is_can_be_told_from_outside() -> None:
    handle = Batches()
    made = worker(handle, batch=100)
    part = made.settings.consumer.partition
    smaller = attrs.evolve(made.settings, consumer=ConsumerRules(partition=attrs.evolve(part, window_max=2)))

    assert part.window_max == 100
    assert on_log(made.configured(smaller), b"1", b"2", b"3").is_whole
    assert sorted(map(len, handle.seen)) == [1, 2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"batch": 0}, "a number of records"),
    ],
)
def test_batches_that_cannot_be_are_refused(said: Mapping[str, object], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        worker(Batches(), **said)


# --- failing sends ------------------------------------------------------------------------------------------------------


@final
class Faulty(Producer):
    error: type[Exception] = OSError

    def __init__(self, fails: list[str], kept: list[Send]) -> None:
        self.fails, self.kept, self.is_stopped = fails, kept, False

    def _try(self, where: str) -> None:
        if self.fails and self.fails[0] == where:
            raise self.error(self.fails.pop(0))

    async def start(self) -> None:
        self._try("start")

    async def stop(self) -> None:
        self.is_stopped = True

    async def send(self, record: Send) -> Awaitable[object]:
        self._try("queue")

        async def sent() -> None:
            await asyncio.sleep(0)
            self._try("send")
            self.kept.append(record)

        return sent()


def faulty(*fails: str) -> tuple[KafkaSink, list[Faulty], list[Send]]:
    left, made, kept = [*fails], list[Faulty](), list[Send]()

    def make() -> Producer:
        made.append(Faulty(left, kept))
        return made[-1]

    return KafkaSink(make), made, kept


def test_what_could_not_be_sent_spoils_its_producer_and_the_next_has_another() -> None:
    async def scenario() -> None:
        sink, made, kept = faulty("start", "send", "queue")
        for where in ("start", "send", "queue"):
            [failure] = await sink.deliver([[Send("a", b"1"), Send("a", b"2")]])
            assert (failure, str(cast("Failure", failure).__cause__)) == (Ambiguous("OSError"), where)
        assert await sink.deliver([[Send("a", b"3"), Send("a", b"4")], [Send("a", b"5")]]) == [None, None]
        assert [each.value for each in kept] == [b"2", b"3", b"4", b"5"]
        assert len(made) == 3
        await sink.stop()
        assert all(each.is_stopped for each in made)
        [failure] = await sink.deliver([[Send("a", b"6")]])
        assert "nothing is sent any more" in str(failure)

    asyncio.run(scenario())


def test_one_payload_of_several_fails_alone_and_a_full_partition_holds_up_no_other() -> None:
    """The queue of a partition may stay full while its leader is away."""
    large = b"." * 10_000

    @final
    class Full(Producer):
        async def start(self) -> None: ...
        async def stop(self) -> None: ...
        async def send(self, record: Send) -> Awaitable[object]:
            if record.topic == "full":
                await free.wait()
            if record.topic == "forbidden":
                raise errors.TopicAuthorizationFailedError
            sent.append(record.topic)
            return asyncio.sleep(0)

    async def scenario() -> None:
        sink = KafkaSink(Full)
        run = asyncio.ensure_future(sink.deliver([[Send(each, large)] for each in ("full", "forbidden", "other")]))
        while sent != ["other"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        free.set()
        assert [type(each) for each in await run] == [type(None), Refused, type(None)]

    free, sent = asyncio.Event(), list[str]()
    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.MessageSizeTooLargeError(), Refused),
        (errors.UnknownTopicOrPartitionError(), Refused),
        (errors.TopicAuthorizationFailedError(), Refused),
        (Misuse("no partition 7"), Refused),
        (TypeError("no bytes"), Refused),
        (errors.NotEnoughReplicasError(), Ambiguous),
        (errors.KafkaTimeoutError(), Ambiguous),
        (errors.KafkaConnectionError(), Ambiguous),
        (errors.ProducerClosed(), Ambiguous),
        (errors.OutOfOrderSequenceNumber(), Ambiguous),
        (TimeoutError(), Ambiguous),
        (ConnectionResetError(), Ambiguous),
    ],
)
def test_what_a_broker_refuses_is_told_from_what_nobody_has_answered(error: Exception, kind: type[Failure]) -> None:
    found = ports.send_failure(error)
    assert (type(found), found.__cause__) == (kind, error)


def sending(left: list[str], error: type[Exception] = OSError) -> tuple[list[Send], Counter[bytes]]:
    seen, kept = Counter[bytes](), list[Send]()

    @final
    class Failing(Producer):
        async def start(self) -> None: ...
        async def stop(self) -> None: ...
        async def send(self, record: Send) -> Awaitable[object]:
            if left:
                raise error(left.pop())
            kept.append(record)
            return asyncio.sleep(0)

    async def handle(record: Record) -> Send:
        seen[record.value or b""] += 1
        return Send("shipped", record.value)

    async def scenario() -> None:
        log = EmbeddedLog([Record("orders", 0, 0, None, b"a")])
        made = worker(handle, retries=1, backoff=SOON)
        run = asyncio.create_task(made.run(log.connect, lambda *_: Failing()))
        async with asyncio.timeout(30):
            while log.positions != log.ends:  # noqa: ASYNC110  of a log
                await asyncio.sleep(0.01)
        made.stop()
        await run

    asyncio.run(scenario())
    return kept, seen


def test_what_was_not_answered_is_sent_again_and_not_handled_again() -> None:
    kept, seen = sending(["a", "b"])
    assert [each.value for each in kept] == [b"a"]
    assert seen == {b"a": 1}


def test_what_is_refused_is_a_failure_of_its_record() -> None:
    kept, seen = sending(["a"], errors.MessageSizeTooLargeError)
    assert [each.value for each in kept] == [b"a"]
    assert seen == {b"a": 2}


def test_a_dead_letter_that_is_refused_is_written_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(letter_writing, "_BACKOFF", SOON)
    monkeypatch.setattr(Faulty, "error", errors.MessageSizeTooLargeError)

    async def scenario() -> list[Send]:
        sink, _, kept = faulty("start", "send", "queue")
        outbox = Outbox(sink, worker(print).settings.outbox)
        await DeadLetters(outbox, "{topic}.dead", "shop").write(Record("orders", 0, 7), Failed(1, "ValueError", "no"))
        return kept

    assert [each.topic for each in asyncio.run(scenario())] == ["orders.dead"]
    told = [each for each in caplog.records if "is held" in each.message]
    assert len(told) == 3
    assert {(vars(each)["topic"], vars(each)["offset"]) for each in told} == {("orders", 7)}


def test_a_record_whose_dead_letter_cannot_be_written_is_not_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tidegate_adapters.kafka")

    async def scenario() -> tuple[Counter[bytes], EmbeddedLog]:
        handle = Poisoned()
        log = EmbeddedLog(Record("orders", 0, 0, None, value) for value in (b"a", b"poison", b"b"))
        made = worker(handle, on_failure=OnFailure.DEAD_LETTER, dead_letter="dead")
        run = asyncio.create_task(made.run(log.connect, lambda *_: Faulty(["start"] * 1_000, [])))
        async with asyncio.timeout(30):
            while handle.seen[b"b"] == 0 or log.positions != {TopicPartition("orders", 0): 1}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        made.stop()
        made.stop()
        await run
        return handle.seen, log

    seen, log = asyncio.run(scenario())
    assert seen == {b"a": 1, b"poison": 1, b"b": 1}
    assert log.positions == {TopicPartition("orders", 0): 1}


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_a_failure_is_named_by_its_class_whatever_it_says() -> None:
    assert failed_by(KeyError("x"), 2) == (2, "KeyError", "'x'")
    assert failed_by(UnspeakableError(), 1) == (1, f"{__name__}.UnspeakableError", None)


# --- on a real broker ---------------------------------------------------------------------------------------------------


async def read(kafka: str, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


async def until_committed(kafka: str, group: str, topic: str, position: int) -> None:
    asks = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    await asks.start()
    try:
        async with asyncio.timeout(60):
            while await asks.committed(theirs(TopicPartition(topic, 0))) != position:  # noqa: ASYNC110  of a broker
                await asyncio.sleep(0.1)
    finally:
        await asks.stop()


def test_a_real_dead_letter_is_the_record_to_the_byte(kafka: str, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(1)
    dead = f"{topic}.dead"
    create_topic(kafka, dead, 1)
    given: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", None, [("h", b"\xff\x00"), ("h", None), ("é", b"")]),
        (None, b"", []),
        (b"\xff", b"\x00" * 1_000_000, []),
        (b"k", b"good", []),
    ]

    async def handle(record: Record) -> None:
        if record.value != b"good":
            raise ValueError(record.offset)

    async def scenario() -> list[Any]:
        sends = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=2_000_000)
        await sends.start()
        for key, value, headers in given:
            await sends.send_and_wait(topic, value, key, headers=headers)
        await sends.stop()
        nothing = producer(kafka, {})
        await nothing.start()
        await (await nothing.send(Send(topic, None)))
        await nothing.stop()
        made = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", on_failure=OnFailure.DEAD_LETTER, dead_letter="{topic}.dead",
            consumer=BY_OFFSET, retries=1, backoff=SOON,
        )  # fmt: skip
        run = asyncio.create_task(made.run())
        found = await read(kafka, dead, 4)
        await until_committed(kafka, f"group-{topic}", topic, 5)
        made.stop()
        await run
        return found

    found = asyncio.run(scenario())
    wanted = [each for each in given if each[1] != b"good"] + [(None, None, [])]
    for offset, (each, (key, value, headers)) in zip((0, 1, 2, 4), zip(found, wanted, strict=True), strict=True):
        assert (each.key, each.value) == (key, value)
        assert list(each.headers[: len(headers)]) == headers
        said = dict(each.headers[len(headers) :])
        assert (said["tidegate.topic"], said["tidegate.offset"]) == (topic.encode(), b"%d" % offset)
        assert (said["tidegate.error"], said["tidegate.attempts"]) == (b"ValueError", b"2")
        assert said["tidegate.timestamp"].isdigit()


def test_what_a_handler_answers_with_is_on_a_real_broker_before_its_record_is_done(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    topic, out = make_topic(1), make_topic(2)

    async def handle(record: Record) -> list[Send]:
        where = int(record.value or b"0")
        return [Send(out, b"%d" % record.offset, b"k", partition=where), Send(out, b"again", partition=where)]

    async def scenario() -> list[Any]:
        sends = AIOKafkaProducer(bootstrap_servers=kafka)
        await sends.start()
        for where in (b"1", b"7", b"0", b"1"):
            await sends.send_and_wait(topic, where)
        await sends.stop()
        made = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", consumer=BY_OFFSET, on_failure=OnFailure.SKIP
        )
        run = asyncio.create_task(made.run())
        await until_committed(kafka, f"group-{topic}", topic, 4)
        made.stop()
        await run
        return await read(kafka, out, 6)

    found = asyncio.run(scenario())
    assert [each.value for each in found if each.partition == 1] == [b"0", b"again", b"3", b"again"]
    assert [each.value for each in found if each.partition == 0] == [b"2", b"again"]
