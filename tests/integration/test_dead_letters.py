"""Dead letters of workers and pipelines: written, listed, shown and replayed."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.command_lines import said_here
from tests.integration.servers import create_topic

from tidegate.exit_codes import ExitCode
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import DeadLetter, decode
from tidegate_adapters.base.errors import NothingSelectedError
from tidegate_adapters.kafka import OnFailure, Worker
from tidegate_adapters.kafka.client import Producer, transactional_producer
from tidegate_adapters.kafka.embedded import EmbeddedLog, record_of
from tidegate_adapters.pipeline import OnFailure as OfPipeline
from tidegate_adapters.pipeline import Output, Pipeline, Result, Task
from tidegate_adapters.pipeline.embedded import EmbeddedPipeline, Kept
from tidegate_adapters.pipeline.letters import output_json, output_of
from tidegate_adapters.pipeline.replay import LetterTopics, list_letters, replay, show
from tidegate_adapters.shell.application import Answer
from tidegate_adapters.sinks.outputs import Delete, Delivery, Insert, Statement, Update, Upsert

SECRET: Final = "hunter2"  # noqa: S105  contents that are not to be shown
NO_FILTERS: Final[Mapping[str, Any]] = {
    "topics": (), "partitions": (), "offsets": (), "sinks": (), "error": None, "since": None, "until": None,
}  # fmt: skip
REPLAY: Final = {
    "group": None, "requeues": False, "limit": None, "rate": None, "skip_failed": False, "dry_run": False, **NO_FILTERS,
}  # fmt: skip
LIST: Final = {"group": None, "limit": 50, "is_all": False, **NO_FILTERS}


class Refusing(Kept):
    """A sink that refuses some values."""

    def __init__(self, name: str, *refused: object) -> None:
        super().__init__(name)
        self.refused: set[object] = {*refused}
        self.delivered: list[object] = []

    async def deliver(self, payloads: Sequence[Delivery], /) -> Sequence[Failure | None]:
        good = [each for each in payloads if each.output.value not in self.refused]
        self.delivered += [each.output.value for each in good]
        await super().deliver(good)
        return [Refused("too large") if each.output.value in self.refused else None for each in payloads]


def shop(sink: Kept, **settings: Any) -> Pipeline:
    """A pipeline that refuses to arrange `bad`, and makes one output of any other record."""
    tiny = {
        "backoff": timedelta(milliseconds=1),
        "backoff_max": timedelta(milliseconds=2),
        "retries": 0,
        "hook_retries": 0,
    }
    told: dict[str, Any] = {"topics": ["searches"], "bootstrap": "localhost:1", "group": "shop", **tiny, **settings}
    app = Pipeline(sinks={"hits": sink}, **told)

    @app.arrange
    async def arrange(record: Record) -> list[Task]:
        if record.value == b"bad":
            raise ValueError(f"bad, with {SECRET}")
        return [Task(args=[(record.value or b"").decode()])]

    @app.task
    async def run(task: Task) -> str:
        return str(task.args[0])

    @app.task_done
    async def done(result: Result) -> Output:
        return Output("hits", result.value, op=Upsert("id"), key=b"\xff")

    return app


def record(value: str) -> Record:
    return attrs.evolve(
        record_of({"topic": "searches", "key": f"key-{SECRET}", "value": value, "headers": [["trace", "7"]]})
    )


def written(sink: Kept, *values: str) -> tuple[Send, ...]:
    """The dead letters of a pipeline, on an embedded log."""
    return asyncio.run(EmbeddedPipeline(shop(sink), map(record, values), {"hits": sink}).run()).letters


def log_of(letters: Sequence[Send]) -> EmbeddedLog:
    return EmbeddedLog([Record(each.topic, 0, 0, each.key, each.value, each.headers) for each in letters])


class Broker:
    """A dead-letter topic in memory, and commands on it."""

    def __init__(self, sink: Kept, letters: Sequence[Send]) -> None:
        self.log, self.sink = log_of(letters), sink
        self.topics = LetterTopics(shop(sink).settings, {"hits": sink}, self.log.connect, self.log.produce)

    def replay(self, **options: Any) -> Answer:
        return asyncio.run(replay(self.topics, **{**REPLAY, **options}))

    def list(self, **options: Any) -> list[str]:
        answer = asyncio.run(list_letters(self.topics, **{**LIST, **options}))
        return [str(each["letter"]) for each in answer.data["letters"]]  # type: ignore[attr-defined]


def places(*offsets: int) -> list[str]:
    return [f"searches.dead-0@{offset}" for offset in offsets]


# --- the letters --------------------------------------------------------------------------------------------------------


def test_a_letter_has_the_whole_record_and_the_whole_output() -> None:
    sink = Refusing("hits", "a")
    by_value = {}
    for sent in written(sink, "a", "bad"):
        letter = decode(Record(sent.topic, 0, 0, sent.key, sent.value, sent.headers))
        assert isinstance(letter, DeadLetter)
        by_value[letter.record.value] = letter
    refused, failed = by_value[b"a"], by_value[b"bad"]

    assert attrs.evolve(failed.record, timestamp=None) == attrs.evolve(record("bad"), offset=1)
    assert (failed.error, failed.group, failed.output) == ("ValueError", "shop", None)
    assert refused.record == record("a")
    assert refused.output is not None
    assert output_of(refused.output.content or b"") == Output("hits", "a", op=Upsert("id"), key=b"\xff")
    assert refused.output.key.endswith("/task_done/hits/0")


class Unwritable(Producer):
    """A producer whose dead-letter topic refuses a number of records."""

    def __init__(self, log: EmbeddedLog, failing: list[int]) -> None:
        self._log, self._failing = log, failing

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, record: Send) -> Awaitable[object]:
        if self._failing[0]:
            self._failing[0] -= 1
            raise PermissionError("the topic is not allowed")
        self._log.sent.append(record)
        return asyncio.sleep(0)


async def handle(record: Record) -> None:
    raise ValueError(record.value)


def dead_lettering(kind: str) -> Worker | Pipeline:
    if kind == "pipeline":
        return shop(Kept("hits"))
    return Worker(
        ["searches"], handle, bootstrap="localhost:1", group="g", on_failure=OnFailure.DEAD_LETTER, dead_letter="{topic}.dead"
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["worker", "pipeline"])
@pytest.mark.parametrize("failing", [2, 10**9])
def test_a_failing_dead_letter_topic_holds_the_offset(kind: str, failing: int) -> None:
    log, left = EmbeddedLog([record("bad")]), [failing]
    app = dead_lettering(kind)

    async def run() -> None:
        running = asyncio.create_task(app.run(log.connect, lambda _, __: Unwritable(log, left)))
        while failing - left[0] < 2:
            assert log.positions == dict.fromkeys(log.positions, 0)
            await asyncio.sleep(0.01)
        if failing == 2:
            while log.positions != log.ends:  # noqa: ASYNC110  another task commits
                await asyncio.sleep(0.01)
        app.stop()
        app.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 30))
    assert len(log.sent) == (1 if failing == 2 else 0)
    assert (log.positions == log.ends) is (failing == 2)


VALUES: Final = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.datetimes(), st.dates(),
        st.datetimes(timezones=st.just(UTC)), st.times(), st.timedeltas(), st.decimals(allow_nan=False), st.uuids(),
        st.frozensets(st.integers() | st.dates()),
    ),
    lambda each: st.lists(each)
    | st.dictionaries(st.text() | st.integers() | st.sampled_from(("$set", "$items", "$base64")), each, max_size=3)
    | st.sets(st.text()),
    max_leaves=6,
)  # fmt: skip
OUTPUTS: Final = st.builds(
    Output,
    sink=st.just("hits"),
    value=VALUES,
    op=st.sampled_from(
        (Insert(), Upsert("a", "b"), Update({"at": date(2026, 1, 1)}), Delete({"id": b"\0"}), Statement("add"))
    ),
    to=st.sampled_from((None, "table")),
    key=st.sampled_from((None, "text", b"\xff")),
    headers=st.sampled_from(({}, {"a": "b", "c": b"\xff"})),
    ttl=st.sampled_from((None, timedelta(days=1, microseconds=1))),
)


@given(OUTPUTS)
def test_an_output_comes_back_as_it_was(output: Output) -> None:
    assert output_of(output_json(output)) == output


@attrs.define
class Point:
    x: int
    at: datetime


def test_objects_are_stored_as_their_fields() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = output_of(output_json(Output("hits", [Point(1, at), (Decimal("1.50"), time(12))])))
    assert found.value == [{"x": 1, "at": at}, [Decimal("1.50"), time(12)]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"sink": "hits"}',
        b'{"sink": "hits", "op": {"op": "drop"}}',
        b'{"sink": "hits", "op": {"op": "upsert"}}',
        b'{"sink": "hits", "op": {"op": "insert"}, "value": {"$decimal": "x"}}',
        b'{"sink": "hits", "op": {"op": "insert"}, "value": {"$base64": "&"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_an_output_is_refused(content: bytes) -> None:
    with pytest.raises(Misuse, match="not an output"):
        output_of(content)


def test_an_output_that_json_cannot_hold_has_a_letter_of_its_record() -> None:
    class Opaque(Kept):
        async def deliver(self, payloads: Sequence[Delivery], /) -> Sequence[Failure | None]:
            return [Refused("unknown type") for _ in payloads]

    app = shop(Opaque("hits"))
    app._hooks.pop("task_done")  # type: ignore[call-overload]  # noqa: SLF001  another hook

    @app.task_done
    async def done(_: Result) -> Output:
        return Output("hits", object())

    sink = Opaque("hits")
    (sent,) = asyncio.run(EmbeddedPipeline(app, [record("a")], {"hits": sink}).run()).letters
    broker = Broker(sink, [sent])
    assert broker.replay().data["replayed"] == 1
    assert broker.log.sent == [Send("searches", b"a", f"key-{SECRET}".encode(), (("trace", b"7"),), 0)]


# --- list and show ------------------------------------------------------------------------------------------------------


def test_the_list_has_neither_contents_nor_texts_of_errors() -> None:
    broker = Broker(Kept("hits"), written(Refusing("hits", f"{SECRET}"), SECRET, "bad"))
    answer = asyncio.run(list_letters(broker.topics, **LIST))
    assert len(broker.list()) == 2
    assert SECRET not in f"{answer.data}{list(answer.lines)}{answer!r}"


def test_a_letter_is_shown_with_its_contents_if_they_are_wanted() -> None:
    broker = Broker(Kept("hits"), written(Refusing("hits", "a"), "a"))
    (place,) = broker.list()
    shown = asyncio.run(show(broker.topics, letter=place, is_payload=False))
    assert SECRET not in f"{shown.data}{list(shown.lines)}"
    whole: Any = asyncio.run(show(broker.topics, letter=place, is_payload=True)).data["letter"]
    assert (whole["key"], whole["value"], whole["headers"]) == (f"key-{SECRET}", "a", [["trace", "7"]])
    assert json.loads(whole["output"])["value"] == "a"
    for wrong in ("searches.dead-0@9", "searches.dead-1@0", "orders.dead-0@0"):
        with pytest.raises(NothingSelectedError):
            asyncio.run(show(broker.topics, letter=wrong, is_payload=False))
    with pytest.raises(Misuse):
        asyncio.run(show(broker.topics, letter="searches", is_payload=False))


def test_records_that_are_no_letters_are_counted_and_left() -> None:
    broker = Broker(Kept("hits"), [Send("searches.dead", b"by hand"), *written(Refusing("hits", "a"), "a")])
    answer = asyncio.run(list_letters(broker.topics, **LIST))
    assert broker.list() == places(1)
    assert [*answer.notes] == ["1 records of the topics are not dead letters"]
    assert broker.replay().data["unreadable"] == 1


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"topics": ("searches",), "partitions": (0,)}, 4),
        ({"topics": ("others",)}, 0),
        ({"partitions": (1,)}, 0),
        ({"offsets": ("0", "2-3")}, 3),
        ({"sinks": ("hits",)}, 2),
        ({"error": "WITH hunter"}, 2),
        ({"since": "1h"}, 4),
        ({"until": "1h"}, 0),
        ({"since": "2026-01-01T00:00:00Z", "limit": 3}, 3),
    ],
    ids=range(9),
)
def test_filters_select_by_source_and_error(filters: Mapping[str, Any], count: int) -> None:
    assert len(mixed()[1].list(**filters)) == count


@pytest.mark.parametrize("filters", [{"offsets": ("3-2",)}, {"offsets": ("x",)}, {"since": "yesterday"}])
def test_a_filter_that_means_nothing_is_refused(filters: Mapping[str, Any]) -> None:
    with pytest.raises(Misuse, match="help: "):
        mixed()[1].list(**filters)


# --- replays ------------------------------------------------------------------------------------------------------------


def mixed() -> tuple[Refusing, Broker]:
    """Four letters, of outputs and of records, in any order, and a sink that takes everything now."""
    sink = Refusing("hits", "a", "c")
    broker = Broker(sink, written(sink, "a", "bad", "c", "bad"))
    sink.refused.clear()
    return sink, broker


def test_a_replay_delivers_outputs_to_their_sink_and_records_to_their_topic() -> None:
    sink, broker = mixed()
    answer = broker.replay()
    assert (answer.data["replayed"], answer.data["failed"], answer.code) == (4, {}, ExitCode.OK)
    assert sorted(map(str, sink.delivered)) == ["a", "c"]
    assert broker.log.sent == [Send("searches", b"bad", f"key-{SECRET}".encode(), (("trace", b"7"),), 0)] * 2
    assert (broker.list(), broker.list(is_all=True)) == ([], places(0, 1, 2, 3))
    assert broker.replay().data["replayed"] == 0


def test_an_output_that_is_replayed_has_the_key_that_it_had() -> None:
    first, again = Kept("hits"), Refusing("hits", "a")
    asyncio.run(EmbeddedPipeline(shop(first), [record("a")], {"hits": first}).run())
    broker = Broker(again, written(again, "a"))
    again.refused.clear()
    _ = broker.replay()
    assert again.outputs == first.outputs


def test_a_letter_that_fails_again_stays_and_makes_no_other() -> None:
    """N16: a replay that fails does not let the topic grow, and no position passes the letter."""
    sink, broker = mixed()
    sink.refused = {"a"}
    before = broker.list()
    for _ in range(3):
        answer = broker.replay(sinks=("hits",))
        assert answer.code is ExitCode.NOT_MET
        assert answer.data["stopped"] == "failed"
        assert len(answer.data["failed"]) == 1  # type: ignore[arg-type]
    assert broker.log.sent == []
    assert len(broker.list()) == len(before) - 1, "c was delivered"
    answer = broker.replay(skip_failed=True)
    assert (answer.data["replayed"], answer.data["stopped"]) == (2, None)
    assert len(broker.list()) == 1
    sink.refused = set()
    assert broker.replay().data["replayed"] == 1
    assert broker.list() == []


def test_a_filtered_replay_leaves_the_other_letters_to_a_later_one() -> None:
    sink, broker = mixed()
    assert broker.replay(error="valueerror").data["replayed"] == 2
    assert len(broker.list()) == len(broker.list(sinks=("hits",))) == 2
    assert broker.replay(requeues=True).data["replayed"] == 2
    assert sink.delivered == []
    assert len(broker.log.sent) == 4


def test_a_dry_run_and_a_limit() -> None:
    _, broker = mixed()
    answer = broker.replay(dry_run=True, limit=3)
    assert (answer.data["letters"], answer.data["stopped"]) == (places(0, 1, 2), "limit")
    assert len(broker.list()) == 4
    assert broker.replay(limit=3).data["replayed"] == 3
    assert broker.list() == places(3)


def test_a_replay_that_dies_goes_on_where_it_stopped() -> None:
    sink, broker = mixed()
    commits: list[object] = []

    async def dies(offsets: Mapping[object, object]) -> None:
        commits.append(offsets)
        raise KeyboardInterrupt

    commit = broker.log.commit
    broker.log.commit = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        broker.replay(rate=2.0)
    broker.log.commit = commit  # type: ignore[method-assign]
    before = len(sink.delivered) + len(broker.log.sent)
    assert before == 2, "a plan of as many as the rate allows in a second"
    assert len(broker.list()) == 4
    _ = broker.replay()
    assert len(sink.delivered) + len(broker.log.sent) == before + 4
    assert broker.list() == []


def test_an_output_for_a_sink_that_is_not_there_stays() -> None:
    _, broker = mixed()
    worker = LetterTopics(broker.topics.settings, {}, broker.log.connect, broker.log.produce)
    answer = asyncio.run(replay(worker, **{**REPLAY, "skip_failed": True}))
    assert (answer.data["replayed"], len(answer.data["failed"])) == (2, 2)  # type: ignore[arg-type]
    assert any("there is no sink 'hits'" in each for each in answer.notes)


def test_an_application_without_dead_letters_is_refused() -> None:
    settings = attrs.evolve(
        shop(Kept("hits")).settings, dead_letter=None, on_failure=OfPipeline.SKIP, undecodable=OfPipeline.SKIP
    )
    with pytest.raises(Misuse, match="no dead letters"):
        LetterTopics(settings, {})


def of_format_1(topic: str) -> Send:
    """A letter that a worker wrote before, of a record with a header whose name is not UTF-8."""
    told = {
        "topic": topic,
        "partition": "1",
        "offset": "7",
        "group": "shop",
        "attempts": "3",
        "error": "KeyError",
        "at": "5",
    }
    headers = (("\udcff", b"x"), *((f"tidegate.{name}", text.encode()) for name, text in told.items()))
    return Send(f"{topic}.dead", b"5", SECRET.encode(), headers, 1)


def test_a_letter_of_format_1_is_replayed() -> None:
    broker = Broker(Kept("hits"), [of_format_1("searches")])
    assert broker.replay().data["replayed"] == 1
    assert broker.log.sent == [Send("searches", b"5", SECRET.encode(), (("\udcff", b"x"),), 1)]


def test_a_replay_has_the_security_options_of_its_application() -> None:
    told: list[Mapping[str, object]] = []
    log = log_of(written(Kept("hits"), "bad"))

    def connect(bootstrap: str, group: str, options: Mapping[str, object]) -> Any:
        told.append({"bootstrap": bootstrap, "group": group, **options})
        return log

    def produce(bootstrap: str, options: Mapping[str, object]) -> Any:
        told.append({"bootstrap": bootstrap, **options})
        return log.produce(bootstrap, options)

    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_password": SECRET}
    app = shop(Kept("hits"), options=options)
    _ = asyncio.run(replay(LetterTopics(app.settings, {}, connect, produce), **REPLAY))
    assert told == [
        {"bootstrap": "localhost:1", "group": "shop.replay", "isolation_level": "read_committed", **options},
        {"bootstrap": "localhost:1", **options},
    ]


# --- a real broker ------------------------------------------------------------------------------------------------------


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  another task fills the sink
        await asyncio.sleep(0.05)


def test_letters_of_a_pipeline_are_replayed_from_the_command_line(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline writes letters to a real broker; the commands list, show and replay them."""
    topic = f"searches-{uuid.uuid4().hex}"
    for name in (topic, f"{topic}.dead"):
        create_topic(kafka, name, 2)
    sink = Refusing("hits", "a")

    async def run() -> None:
        from aiokafka import AIOKafkaProducer

        sending = AIOKafkaProducer(bootstrap_servers=kafka)
        await sending.start()
        for value in (b"a", b"bad", b"c"):
            await sending.send_and_wait(topic, value, key=SECRET.encode(), partition=0)
        await sending.stop()
        exactly_once = transactional_producer(kafka, {}, topic)
        await exactly_once.start()
        await exactly_once.begin()
        await (await exactly_once.send(of_format_1(topic)))
        await exactly_once.commit()
        await exactly_once.stop()
        app = shop(sink, topics=[topic], bootstrap=kafka, group=topic)
        running = asyncio.create_task(app.run())
        async with asyncio.timeout(30):
            await until(lambda: "c" in sink.delivered)
        app.stop()
        await running

    asyncio.run(run())
    (tmp_path / "search.py").write_text(
        "from tests.integration.test_dead_letters import Kept, shop\n"
        f"app = shop(Kept('hits'), topics=[{topic!r}], bootstrap={kafka!r}, group={topic!r})\n",
        encoding="utf-8",
    )

    def said(*arguments: str) -> Any:
        told = said_here(["dead-letters", arguments[0], "search.py:app", *arguments[1:], "--json"], tmp_path, capsys)
        assert SECRET not in told.out or "--payload" in arguments
        return json.loads(told.out)

    letters = said("list")["letters"]
    assert sorted((each["sink"] or "", each["error"]) for each in letters) == [
        ("", "KeyError"),
        ("", "ValueError"),
        ("hits", "tidegate.model.effects.Refused"),
    ]
    before = next(each["letter"] for each in letters if each["error"] == "KeyError")
    whole = said("show", before, "--payload")["letter"]
    assert (whole["key"], whole["headers"]) == (SECRET, [["\udcff", "x"]])
    assert said("replay", "--sink", "hits", "--dry-run")["replayed"] == 1
    assert said("replay", "--sink", "hits")["replayed"] == 1
    assert [each["sink"] for each in said("list")["letters"]] == [None, None]
    assert said("replay")["replayed"] == 2
    assert said("replay")["replayed"] == 0
    assert said("list")["letters"] == []
    assert len(said("list", "--all")["letters"]) == 3
