from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.integration.command_lines import said_here
from tests.integration.servers import create_topic

from tidegate.model.effects import Failure, NotApplied, Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.records import Record, TopicPartition
from tidegate.pipeline.effects import Hook
from tidegate.sinks.dead_letters import DeadLetter, decode
from tidegate_adapters.kafka.embedded import EmbeddedLog, record_of
from tidegate_adapters.pipeline import (
    RETRY,
    SKIP,
    Action,
    FailedOutput,
    OnFailure,
    Output,
    Pipeline,
    RecordResult,
    Result,
    Task,
    WindowResult,
)
from tidegate_adapters.pipeline.embedded import EmbeddedPipeline, Kept, Processed
from tidegate_adapters.pipeline.letters import output_of
from tidegate_adapters.pipeline.settings import OnStop
from tidegate_adapters.sinks.outputs import Delivery

AT = TopicPartition("searches", 0)


@attrs.define
class Search:
    text: str
    pages: int = 1


def record(text: str, pages: int = 1) -> Mapping[str, object]:
    return {"topic": "searches", "value": json.dumps({"text": text, "pages": pages})}


@attrs.define
class Shop:
    """A pipeline whose hooks raise as often as a test says."""

    raises: dict[str, int] = attrs.field(factory=dict)
    calls: list[str] = attrs.field(factory=list)

    def may_raise(self, name: str, text: str = "") -> None:
        self.calls.append(f"{name} {text}".rstrip())
        if self.raises.get(name, 0) > 0:
            self.raises[name] -= 1
            raise ValueError(f"{name} raises")

    def app(self, *more: str, **settings: Any) -> Pipeline:
        tiny = {"backoff": timedelta(milliseconds=1), "backoff_max": timedelta(milliseconds=2)}
        options = {"retries": 1, "hook_retries": 1, **tiny, **settings}
        app = Pipeline(
            topics=["searches"],
            group="g",
            bootstrap="localhost:1",
            sinks={"hits": Kept("hits")},
            concurrency=4,
            **options,
        )

        @app.arrange
        async def arrange(search: Search) -> list[Task]:
            self.may_raise("arrange", search.text)
            return [Task(args=[search.text, page]) for page in range(search.pages)]

        @app.task
        async def run(task: Task) -> str:
            self.may_raise("task")
            return f"{task.args[0]}{task.args[1]}"

        @app.task_done
        async def task_done(result: Result) -> Output:
            self.may_raise("task_done")
            return Output("hits", result.value)

        if "record_done" in more:

            @app.record_done
            def record_done(done: RecordResult) -> list[Output]:
                self.may_raise("record_done")
                return [Output("hits", f"{done.record.text} {len(done.results)}")]

        if "window_done" in more:

            @app.window_done
            async def window_done(done: WindowResult) -> Output:
                self.may_raise("window_done")
                return Output("hits", len(done.results))

        return app


async def _processed(app: Pipeline, records: Sequence[Mapping[str, object]]) -> Processed:
    async with app.testing() as process:
        return await process(*records)


def processed(app: Pipeline, *records: Mapping[str, object]) -> Processed:
    return asyncio.run(_processed(app, records))


def values(done: Processed) -> list[Any]:
    return sorted((each.value for each in done.outputs["hits"]), key=str)


def letters(done: Processed) -> dict[int, str]:
    headers = [dict(letter.headers) for letter in done.letters]
    return {int(each["__dlq.errors.offset"] or b""): (each.get("tidegate.error") or b"").decode() for each in headers}


def test_records_become_tasks_and_tasks_become_outputs() -> None:
    done = processed(Shop().app("record_done", "window_done"), record("a", 2), record("b"))
    assert values(done) == sorted([3, "a 2", "b 1", "a0", "a1", "b0"], key=str)
    assert done.is_whole
    assert done.letters == ()


@pytest.mark.parametrize("hook", ["arrange", "task", "task_done", "record_done", "window_done"])
def test_a_hook_that_raises_once_is_called_again(hook: str) -> None:
    shop = Shop({hook: 1})
    done = processed(shop.app("record_done", "window_done"), record("a"), record("b"))
    assert values(done) == sorted([2, "a 1", "b 1", "a0", "b0"], key=str)
    assert (done.is_whole, done.letters) == (True, ())


@pytest.mark.parametrize(
    ("hook", "wanted"),
    [
        ("arrange", [0]),
        ("task", [2]),
        ("task_done", [2]),
        ("record_done", [2, "a0", "b0"]),
        ("window_done", ["a 1", "a0", "b 1", "b0"]),
    ],
)
def test_records_at_which_a_hook_raises_for_good_are_dead_lettered(hook: str, wanted: list[str]) -> None:
    done = processed(Shop({hook: 99}).app("record_done", "window_done"), record("a"), record("b"))
    assert values(done) == wanted
    assert letters(done) == {0: "ValueError", 1: "ValueError"}
    assert done.is_whole


def test_a_record_at_which_arrange_raises_fails_alone() -> None:
    app = Shop().app()
    app._hooks.clear()  # noqa: SLF001  another arrange

    @app.arrange
    def arrange(search: Search) -> list[Task]:
        if search.text == "bad":
            raise ValueError(search.text)
        return [Task(args=[search.text, 0])]

    @app.task_done
    def done(result: Result) -> Output:
        return Output("hits", result.value)

    found = processed(app, record("a"), record("bad"), record("c"))
    assert values(found) == ["a0", "c0"]
    assert letters(found) == {1: "ValueError"}


@pytest.mark.parametrize("policy", OnFailure)
def test_an_undecodable_record_follows_its_policy(policy: OnFailure) -> None:
    bad = {"topic": "searches", "value": '{"text": 1, "pages": "many"}'}
    done = processed(Shop().app(undecodable=policy), record("a"), bad, record("c"))
    assert values(done) == ["a0", "c0"]
    assert letters(done) == ({1: "tidegate.model.errors.Misuse"} if policy is OnFailure.DEAD_LETTER else {})
    assert done.positions == {AT: 1 if policy is OnFailure.STOP else 3}


def test_a_failed_record_may_stop_its_partition() -> None:
    done = processed(Shop({"task": 99}).app(on_failure=OnFailure.STOP), record("a"))
    assert (done.positions, done.letters, done.is_whole) == ({AT: 0}, (), False)
    assert "searches-0 has stopped at @0, which has failed for good" in done.stopped


@pytest.mark.parametrize("on_stop", OnStop)
def test_a_stopped_partition_ends_the_run_or_leaves_the_group(on_stop: OnStop) -> None:
    app = Shop({"task": 99}).app(on_failure=OnFailure.STOP, on_stop=on_stop, retries=0)
    log = EmbeddedLog([record_of(dict(record("a")))])

    async def run() -> None:
        running = asyncio.create_task(app.run(log.connect, log.produce))
        await asyncio.wait([running], timeout=0.5)
        assert running.done() is (on_stop is OnStop.END)
        app.stop()
        await running

    if on_stop is OnStop.LEAVE:
        asyncio.run(run())
    else:
        with pytest.raises(TidegateError, match="has stopped at @0"):
            asyncio.run(run())
    assert log.positions == {AT: 0}


@pytest.mark.parametrize(
    ("decisions", "wanted", "dead"),
    [
        ([RETRY], ["a0"], {}),
        ([SKIP], [], {0: "ValueError"}),
        ([[Task(args=["other", 1]), Task(args=["other", 2])]], ["other1", "other2"], {}),
        ([[Task(result=Result(value="known"))]], ["known"], {}),
        (["nonsense"], [], {0: "tidegate.model.errors.Misuse"}),
        ([ValueError("no")], [], {0: "ValueError"}),
    ],
)
def test_task_error_decides_about_a_failed_task(decisions: list[Any], wanted: list[str], dead: dict[int, str]) -> None:
    app = Shop({"task": 1}).app()

    @app.task_error
    async def decide(result: Result) -> Any:
        assert isinstance(result.error, ValueError)
        decision = decisions.pop(0)
        if isinstance(decision, Exception):
            raise decision
        return decision

    done = processed(app, record("a"))
    assert values(done) == wanted
    assert letters(done) == dead
    assert done.is_whole


def test_a_task_whose_result_is_known_does_not_run() -> None:
    shop = Shop()
    app = shop.app()
    app._hooks.clear()  # noqa: SLF001  another arrange

    @app.arrange(window=10)
    def arrange(records: list[Search], live: set[str]) -> list[Task]:
        assert not live
        return [Task(offsets=(0, 1), result=Result(value=[each.text for each in records]))]

    @app.task_done
    def done(result: Result) -> Output:
        return Output("hits", result.value)

    assert values(processed(app, record("a"), record("b"))) == [["a", "b"]]
    assert shop.calls == []


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([Task(id="x", offsets=(0,)), Task(id="x", offsets=(1,))], "there is a live task 'x' already"),
        ([Task(id="x", offsets=(7,))], "record 7, which is not in the window"),
        ([Task(id="x")], "is for no record: pass record= or offsets="),
        (["text"], "returned a str as a task"),
        ("text", "arrange returned a str"),
    ],
)
def test_tasks_that_cannot_be_are_refused(tasks: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Shop().app(hook_retries=0)
    app._hooks.clear()  # noqa: SLF001  another arrange
    app.arrange(window=10)(lambda records: tasks if len(records) > 1 else [])
    done = processed(app, record("a"), record("b"))
    assert said in caplog.text
    assert done.is_whole


class Picky(Kept):
    """Refuses some values, and is away for a while."""

    def __init__(self, refused: Sequence[object] = (), away: int = 0) -> None:
        super().__init__("hits")
        self.refused, self.away, self.attempts = refused, away, 0

    async def deliver(self, payloads: Sequence[Delivery], /) -> Sequence[Failure | None]:
        self.attempts += 1
        if self.attempts <= self.away:
            return [NotApplied("away")] * len(payloads)
        good = [each for each in payloads if each.output.value not in self.refused]
        await super().deliver(good)
        return [Refused("too large") if each.output.value in self.refused else None for each in payloads]


async def run_with(app: Pipeline, sink: Kept, *records: Mapping[str, object]) -> Processed:
    return await EmbeddedPipeline(app, [record_of(dict(each)) for each in records], {"hits": sink}).run()


def test_an_output_that_its_sink_refuses_is_dead_lettered_with_its_record() -> None:
    done = asyncio.run(run_with(Shop().app(), Picky(["a1"]), record("a", 3)))
    assert values(done) == ["a0", "a2"]
    (sent,) = done.letters
    letter = decode(Record(sent.topic, 0, 0, sent.key, sent.value, sent.headers))
    assert isinstance(letter, DeadLetter)
    assert letter.output is not None
    assert (letter.output.sink, letter.record.value) == ("hits", b'{"text": "a", "pages": 3}')
    assert output_of(letter.output.content or b"") == Output("hits", "a1")
    assert done.is_whole


def test_a_sink_that_is_away_gets_every_output_once_it_is_back() -> None:
    sink = Picky(away=2)
    done = asyncio.run(run_with(Shop().app(), sink, record("a", 2), record("b")))
    assert values(done) == ["a0", "a1", "b0"]
    assert (done.is_whole, done.letters) == (True, ())
    assert sink.attempts > 2


@pytest.mark.parametrize("action", [Action.SKIP, Action.DEAD_LETTER, "nonsense", ValueError("no")])
def test_delivery_error_decides_about_a_refused_output(action: Any) -> None:
    app = Shop().app()
    seen: list[FailedOutput] = []

    @app.delivery_error
    async def decide(failed: FailedOutput) -> Any:
        seen.append(failed)
        if isinstance(action, Exception):
            raise action
        return action

    done = asyncio.run(run_with(app, Picky(["a0"]), record("a")))
    assert len(done.letters) == (0 if action is Action.SKIP else 1)
    assert done.is_whole
    assert [(each.output.value, each.attempts) for each in seen] == [("a0", 1)]


def test_keys_of_outputs_are_the_same_in_every_run() -> None:
    def keys() -> list[str]:
        sink = Kept("hits")
        asyncio.run(run_with(Shop().app("record_done"), sink, record("a", 2)))
        return sorted(sink.outputs)

    assert keys() == keys()
    assert len(keys()) == 3


def test_lifecycle_hooks_are_called_and_their_errors_lose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app, calls = Shop().app(), list[str]()
    app.ready(lambda: calls.append("ready"))

    @app.assigned
    async def assigned(partition: TopicPartition) -> None:
        calls.append(f"assigned {partition}")
        raise ValueError(partition)

    @app.periodic(timedelta(milliseconds=1))
    async def tick() -> None:
        calls.append("tick")
        raise ValueError("tick")

    @app.periodic(timedelta(milliseconds=1), stops=True)
    def once() -> None:
        calls.append("once")
        raise ValueError("once")

    @app.task_error
    async def slow(_: Result) -> Any:
        await asyncio.sleep(0.05)
        return RETRY

    app._hooks.pop(Hook.TASK_DONE)  # noqa: SLF001  one that fails once, so that there is time

    @app.task_done
    async def done(result: Result) -> Output:
        if result.attempt == 1:
            raise ValueError("again")
        return Output("hits", result.value)

    found = processed(app, record("a"))
    assert (values(found), found.is_whole) == (["a0"], True)
    assert calls[:2] == ["ready", "assigned searches-0"]
    assert calls.count("once") == 1
    assert calls.count("tick") > 2
    assert "assigned raised: ValueError" in caplog.text
    assert "tick raised" in caplog.text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pipeline(topics="t", bootstrap="h:1", group="g", sinks={"s": Kept("s")}), "topics must be a list"),
        (lambda: Pipeline(topics=["t"], bootstrap="h:1", group="g", sinks={}), "a pipeline without sinks"),
        (lambda: Pipeline(topics=["t"], bootstrap="h:1", group="g", sinks={"s": 3}), "is not a sink"),  # type: ignore[dict-item]
        (
            lambda: Pipeline(topics=["t"], bootstrap="h:1", group="g", sinks={"s": Kept("s")}, windw=3),
            "no setting 'windw'",
        ),
        (
            lambda: Pipeline(topics=["t"], bootstrap="h:1", group="g", sinks={"s": Kept("s")}, dead_letter=None),
            "no topic for",
        ),
        (lambda: Pipeline(topics=["t"], bootstrap="h:1", group="g", sinks={"s": Kept("s")}, window=0), "window"),
        (lambda: Shop().app().task_done(lambda _: None), "two hooks task_done"),
        (lambda: Shop().app().task(lambda _: None), "one executor"),
        (lambda: Task(args="text"), "args must be a list"),
        (lambda: Task(id=""), "the id of a task"),
        (lambda: Output(""), "a sink"),
    ],
)
def test_a_mistake_is_refused_at_once(make: Callable[[], object], said: str) -> None:
    with pytest.raises(Misuse, match=re.escape(said)):
        make()


def test_a_sink_that_cannot_start_ends_the_run_before_the_first_record() -> None:
    class Absent(Kept):
        async def start(self) -> None:
            raise TidegateError("no server answers")

    with pytest.raises(TidegateError, match="no server answers") as raised:
        asyncio.run(run_with(Shop().app(), Absent("hits"), record("a")))
    assert raised.value.where == "sink hits"


def test_the_command_line_runs_a_pipeline_without_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "search.py").write_text(
        "from tests.integration.test_pipeline import Shop\napp = Shop().app()\n", encoding="utf-8"
    )
    (tmp_path / "records.jsonl").write_text(json.dumps(record("a", 2)) + "\n", encoding="utf-8")
    told = said_here(["pipeline", "run", "search.py:app", "--embedded", "records.jsonl", "--json"], tmp_path, capsys)
    assert [each["value"] for each in json.loads(told.out)["outputs"]["hits"]] == ["a0", "a1"]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  another task fills the sink
        await asyncio.sleep(0.05)


async def produced(kafka: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    for number in range(count):
        await producer.send(topic, json.dumps({"text": str(number), "pages": 2}).encode(), partition=number % 2)
    await producer.stop()


def test_two_processes_share_the_partitions_of_a_broker(kafka: str) -> None:
    """Two members of a group, of which one stops half-way: every output is there, under one key each."""
    topic = f"searches-{uuid.uuid4().hex}"
    create_topic(kafka, topic, 2)
    sink = Kept("hits")

    def member() -> Pipeline:
        app = Shop().app("record_done")
        return app.configured(
            attrs.evolve(app.settings, topics=(topic,), bootstrap=kafka, group=topic), sinks={"hits": sink}
        )

    async def run() -> None:
        await produced(kafka, topic, 60)
        first, second = member(), member()
        runs = [asyncio.create_task(first.run()), asyncio.create_task(second.run())]
        async with asyncio.timeout(30):
            await until(lambda: len(sink.outputs) >= 60)
            first.stop()
            await produced(kafka, topic, 60)
            await until(lambda: len(sink.outputs) >= 360)
        second.stop()
        await asyncio.gather(*runs)

    asyncio.run(run())
    assert len(sink.outputs) == 360
    assert sorted({each.value for each in sink.outputs.values()}, key=str)[:1] == ["0 2"]
