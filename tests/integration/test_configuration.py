from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, get_type_hints

import aiokafka
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.checks.strategies import backpressure, partition
from tidegate.consumer.flow.backpressure import Thresholds, for_executors
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import RUNNING_MAX, FailurePolicy, Ordering, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.errors import MissingExtra, Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.retries.backoff import Exponential, Fixed, Linear, Series
from tidegate_adapters.kafka.settings import ClientOptions, WorkerSettings
from tidegate_adapters.runtime.handlers import Undecodable
from tidegate_adapters.shell import configuration
from tidegate_adapters.shell.configuration import Row, Setting, configured, from_arguments, from_environment, from_file

CODE: Final = WorkerSettings(
    ("orders",),
    "broker:9092",
    "shop",
    ConsumerRules(partition=PartitionRules(drain=Budget(20 * SECOND, SECOND, SECOND))),
    {"sasl_plain_password": "hunter2"},
    concurrency=9,
)


@st.composite
def settings(draw: st.DrawFn) -> WorkerSettings:
    rules = attrs.evolve(draw(partition.rules()), running_max=RUNNING_MAX)
    gate = draw(st.none() | backpressure.thresholds())
    concurrency = draw(st.integers(1, 50))
    consumer = ConsumerRules(concurrency, for_executors(concurrency) if gate is None else gate, rules)
    names = st.text("abcdef-._", min_size=1).filter(lambda name: name.strip("."))
    topics = tuple(draw(st.lists(names, min_size=1, max_size=3)))
    leave = draw(st.timedeltas(timedelta(0), timedelta(minutes=10)))
    options: ClientOptions = {"session_timeout_ms": draw(st.integers(1)), "check_crcs": draw(st.booleans())}
    return WorkerSettings(
        topics, draw(names), draw(names), consumer, options, concurrency,
        timeout=draw(st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=10))),
        undecodable=draw(st.sampled_from(Undecodable)),
        start_time=draw(st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC))),  # noqa: DTZ001  it wants none
        leave=leave,
        observer_failures_max=draw(st.none() | st.integers(1, 10)),
        grace=timedelta(microseconds=rules.drain.total + draw(st.integers(1, 10**9))) + leave,
    )  # fmt: skip


Said: TypeAlias = list[tuple[int, int]]


def keeps_what_no_layer_speaks_of(code: WorkerSettings) -> bool:
    """Law CF1."""
    other = configured(code, from_arguments(["group=another"])).settings
    return configured(code, ()).settings == code and other == attrs.evolve(code, group="another")


def is_read_as_it_is_shown(code: WorkerSettings) -> bool:
    """Law CF2: each row, given as an argument, over other settings."""
    shown = from_arguments(f"{row.path}={row.value}" for row in configured(code).rows)
    return configured(WorkerSettings(("x",), "y", "z"), shown).settings == code


def has_what_the_uppermost_says(said: Said) -> bool:
    """Law CF3."""
    layers = [
        [Setting(("concurrency",), value, f"layer {number}") for at, value in said if at == number]
        for number in range(3)
    ]
    found = configured(CODE, *layers)
    at, value = max(said, default=(None, CODE.concurrency))
    origin = "code" if at is None else f"layer {at}"
    told = found.settings
    return Row("concurrency", str(value), origin) in found.rows and told.concurrency == told.consumer.executors == value


def tells_no_secret(password: str) -> bool:
    """Law CF4: passwords of the code and of a layer, in the output and in errors."""
    code = attrs.evolve(CODE, options={"sasl_plain_password": password})
    told = repr(configured(code, from_arguments([f"options.ssl_password={password}"])))
    for path, wrong in ((("options", "sasl_plain_password"), [password]), (("options",), [password])):
        try:
            configured(code, [Setting(path, wrong, "a file")])
        except Misuse as error:
            told += str(error)
        else:
            return False
    return password not in told


@given(settings())
def test_what_no_layer_speaks_of_is_what_the_code_says(code: WorkerSettings) -> None:
    assert keeps_what_no_layer_speaks_of(code)


@given(settings())
def test_what_is_shown_is_read_as_it_is(code: WorkerSettings) -> None:
    assert is_read_as_it_is_shown(code)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 99)), unique_by=lambda each: each[0]))
def test_the_uppermost_layer_wins_and_is_the_origin(said: Said) -> None:
    assert has_what_the_uppermost_says(said)


@given(st.text("0123456789", min_size=9).map("hunter".__add__))
def test_no_secret_is_told(password: str) -> None:
    assert tells_no_secret(password)


def keeps_the_first(tree: dict[str, Any], origins: dict[tuple[str, ...], str], setting: Setting) -> None:
    """Planted bug: a lower layer wins over those above it."""
    for name in setting.path[:-1]:
        tree = tree.setdefault(name, {})
    tree.setdefault(setting.path[-1], setting.value)
    origins.setdefault(setting.path, setting.origin)


@pytest.mark.parametrize(
    ("name", "wrong", "breaks"),
    [
        ("_follows", lambda _base, _field: True, partial(keeps_what_no_layer_speaks_of, CODE)),
        ("seconds", str, partial(is_read_as_it_is_shown, attrs.evolve(CODE, options={}))),
        ("_put", keeps_the_first, partial(has_what_the_uppermost_says, [(0, 1), (2, 2)])),
        ("HIDDEN", "hunter2", partial(tells_no_secret, "hunter2")),
        ("_secret", configuration._str, partial(tells_no_secret, "hunter2")),  # noqa: SLF001  text like any other
    ],
)
def test_each_law_is_broken_by_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: object, breaks: Callable[[], bool]
) -> None:
    assert breaks()
    monkeypatch.setattr(configuration, name, wrong)

    try:
        holds = breaks()
    except (Misuse, TypeError):
        holds = False
    assert not holds


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("topics=a, b", "topics", ("a", "b")),
        ("group=a=b", "group", "a=b"),
        ("concurrency=8", "concurrency", 8),
        ("concurrency=8", "consumer.executors", 8),
        ("consumer.thresholds.low=7", "consumer.thresholds", Thresholds(288, 7)),
        ("consumer.partition.hooks=True", "consumer.partition.hooks", True),
        ("consumer.partition.ordering=by_key", "consumer.partition.ordering", Ordering.BY_KEY),
        ("consumer.partition.ordering=BY-OFFSET", "consumer.partition.ordering", Ordering.BY_OFFSET),
        ("consumer.partition.failure_policy=skip", "consumer.partition.failure_policy", FailurePolicy.SKIP),
        ("consumer.partition.limits.span=none", "consumer.partition.limits.span", None),
        ("consumer.partition.limits.span.high=11000", "consumer.partition.limits.span", Thresholds(11_000, 5_000)),
        ("consumer.partition.drain.total=24 s", "consumer.partition.drain", Budget(24 * SECOND, SECOND, SECOND)),
        ("consumer.partition.drain.cancel=1500ms", "consumer.partition.drain.cancel", 1_500 * MILLISECOND),
        ("stalled_after=1.5 min", "stalled_after", timedelta(seconds=90)),
        ("stalled_after=2h", "stalled_after", timedelta(hours=2)),
        ("consumer.partition.backoff.cap=2 s", "consumer.partition.backoff", Exponential(SECOND // 10, 2 * SECOND)),
        ("options.sasl_mechanism=scram-sha-256", "options.sasl_mechanism", "SCRAM-SHA-256"),
        ("options.sasl_plain_password=pass, word", "options.sasl_plain_password", "pass, word"),
        ("options.auto_offset_reset=none", "options.auto_offset_reset", "none"),
    ],
)
def test_text_is_read_by_the_type_of_what_it_sets(text: str, path: str, value: object) -> None:
    found: Any = configured(CODE, from_arguments([text])).settings
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)

    assert found == value


@pytest.mark.parametrize(
    ("texts", "backoff"),
    [
        (["kind=fixed", "interval=1 s"], Fixed(SECOND)),
        (["interval=1 s", "kind=linear", "cap=3 s"], Linear(SECOND, 3 * SECOND)),
        (["kind=series", "intervals=1 s,20 ms"], Series((SECOND, 20 * MILLISECOND))),
        (["kind=exponential"], Exponential()),
    ],
)
def test_one_of_several_is_chosen_by_its_kind(texts: list[str], backoff: object) -> None:
    lower = [
        Setting(("consumer", "partition", "backoff", "factor_ppm"), 3_000_000, "a file"),
        Setting(("consumer", "partition", "window_max"), 3, "a file"),
    ]
    found = configured(CODE, lower, from_arguments(f"consumer.partition.backoff.{text}" for text in texts))

    assert found.settings.consumer.partition.backoff == backoff
    assert [row.path for row in found.rows if row.origin == "a file"] == ["consumer.partition.window_max"]


def test_who_chose_one_of_several_is_told() -> None:
    def chosen(code: WorkerSettings, *texts: str) -> list[str]:
        rows = configured(code, from_arguments(texts)).rows
        return [f"{row.value} {row.origin}" for row in rows if row.path == "consumer.partition.backoff.kind"]

    rules = attrs.evolve(CODE.consumer, partition=PartitionRules(backoff=Fixed(SECOND)))
    assert chosen(CODE) == ["exponential default"]
    assert chosen(CODE, "consumer.partition.backoff.cap=2 s") == ["exponential default"]
    assert chosen(attrs.evolve(CODE, consumer=rules)) == ["fixed code"]
    name = "consumer.partition.backoff.kind"
    assert chosen(CODE, f"{name}=series", "consumer.partition.backoff.intervals=1 s") == [f"series argument {name}"]


def test_a_field_that_follows_from_others_goes_on_to_do_so() -> None:
    more = from_arguments(["concurrency=32"])
    own = attrs.evolve(CODE, consumer=ConsumerRules(9, Thresholds(50, 5)))

    assert configured(CODE, more).settings.consumer == attrs.evolve(
        CODE.consumer, executors=32, thresholds=for_executors(32)
    )
    assert configured(own, more).settings.consumer.thresholds == Thresholds(50, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("concurency=4", "there is no setting concurency\n  where: {}\n  help: did you mean concurrency?"),
        ("consumer.partition.parts=4", "there is no setting consumer.partition.parts"),
        ("options.sasl_plain_pasword=hunter2", "help: did you mean sasl_plain_password?"),
        ("concurrency=x", "concurrency: 'x' is no whole number\n  where: {}"),
        ("concurrency=4.0", "concurrency: '4.0' is no whole number\n  where: {}"),
        ("concurrency=0", "concurrency must be an integer from 1 on, got 0\n  where: {}"),
        ("consumer.partition.hooks=1", "'1' is neither true nor false"),
        ("consumer.partition.ordering=by_kee", "is none of unordered, by_key, by_offset; did you mean by_key?"),
        ("options.security_protocol=TLS", "'TLS' is none of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("consumer.partition.drain.total=20", "'20' is no length of time; write it with its unit: 20 s, 500 ms, 5 min"),
        ("consumer.partition.drain.total=5 y", "'5 y' is no length of time"),
        ("consumer.partition.drain.total=-5 s", "'-5 s' is no length of time"),
        ("consumer.partition.drain.total=0.1 us", "'0.1 us' is no whole number of microseconds"),
        ("consumer.partition.drain.total=1 s", "do not fit into 1 s\n  where: consumer.partition.drain: {}"),
        ("consumer.partition.backoff.kind=fix", "is none of exponential, fixed, linear, series; did you mean fixed?"),
        ("consumer.partition.backoff.kind=fixed", "consumer.partition.backoff.interval is missing\n  where: {}"),
        ("consumer.partition.backoff.intervl=1 s", "there is no setting consumer.partition.backoff.intervl"),
        ("consumer.partition.limits.size.high=5", "consumer.partition.limits.size.low is missing"),
        ("consumer.partition.backoff=5", "consumer.partition.backoff: '5' is no table"),
        ("consumer.kind=fixed", "there is no setting consumer.kind"),
        ("consumer=5", "consumer: '5' is no table"),
        ("options=5", "options: a str is no table"),
        ("bootstrap=me:hunter2@broker:9092", "the address of a broker with a user in it"),
        ("group=", "a worker needs a consumer group"),
        ("topics=", "topics must be a list of names"),
        ("start_time=yesterday", "'yesterday' is no point in time; write it as 2026-11-23T08:00:00Z"),
        ("start_time=2026-11-23", "'2026-11-23' has no time zone"),
        ("start_time=1969-12-31T23:59:59Z", "1969-12-31 23:59:59+00:00 is before 1970\n  where: {}"),
        ("undecodable=drop", "is none of fail, skip, raw"),
        ("topics=^(", "'^(' is no pattern of topics"),
        ("leave=10 s", "20 s to drain and 10 s to leave do not fit into 30 s"),
        ("grace=25 s", "set grace to more than 25 s"),
        ("observer_failures_max=0", "observer_failures_max must be an integer from 1 on, got 0"),
        ("timeout=0 s", "timeout=0:00:00 is too short"),
        ("consumer.partition.running_max=8", "help: leave running_max out, and set executors"),
    ],
)
def test_what_cannot_be_is_refused_with_where_it_came_from(text: str, said: str) -> None:
    """Law CF4."""
    with pytest.raises(Misuse) as refused:
        configured(CODE, from_arguments([text]))

    origin = f"argument {text.partition('=')[0]}"
    assert said.format(origin) in str(refused.value)
    assert origin in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("group = 5", "group: 5 is no text"),
        ("concurrency = '8'", "concurrency: '8' is no whole number"),
        ("concurrency = true", "concurrency: True is no whole number"),
        ("consumer.partition.hooks = 'true'", "'true' is neither true nor false"),
        ("consumer.partition.drain.total = 20", "20 is no length of time"),
        ("consumer.partition.backoff = {kind = 'fixed', interval = '1 s', cap = '2 s'}", "backoff.cap"),
        ("consumer.partition.backoff = {kind = 'series', intervals = '1 s'}", "'1 s' is no list"),
        ("consumer.partition.backoff = {kind = 'series', intervals = ['1 s', 2]}", "2 is no length of time"),
    ],
)
def test_a_file_has_types_of_its_own(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "worker.toml"
    file.write_text(f"[worker]\n{text}")
    with pytest.raises(Misuse, match=re.escape(said)) as refused:
        configured(CODE, from_file(file, "worker"))

    assert str(file) in refused.value.where


def test_a_file_has_values_of_their_types(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text("""
[worker]
topics = ["a", "b"]
concurrency = 3
[worker.consumer.partition]
hooks = true
limits = {span = "none", age = {high = 9, low = 1}}
backoff = {kind = "series", intervals = ["1 s", "2 s"]}
""")
    rules = attrs.evolve(
        CODE.consumer.partition,
        hooks=True,
        limits=attrs.evolve(CODE.consumer.partition.limits, span=None, age=Thresholds(9, 1)),
        backoff=Series((SECOND, 2 * SECOND)),
    )

    assert configured(CODE, from_file(file, "worker")).settings == attrs.evolve(
        CODE, topics=("a", "b"), concurrency=3, consumer=ConsumerRules(partition=rules)
    )


def test_a_secret_of_a_wrong_type_is_not_shown() -> None:
    """Law CF4."""
    with pytest.raises(Misuse) as refused:
        configured(CODE, [Setting(("options", "sasl_plain_password"), 123456, "a file")])

    assert "options.sasl_plain_password: an int is no text" in str(refused.value)
    assert "123456" not in str(refused.value)


def test_no_secret_is_shown() -> None:
    """Law CF4, including objects that may hold a secret."""
    options: Any = {"sasl_plain_password": "hunter2", "ssl_context": "hunter2", "sasl_oauth_token_provider": object()}
    code = attrs.evolve(CODE, options=options)
    found = configured(code, from_arguments(["options.ssl_password=hunter2"]))

    assert "hunter2" not in repr(found)
    assert {row.path: row.value for row in found.rows if row.path.startswith("options")} == {
        "options.sasl_oauth_token_provider": "<object>",
        "options.sasl_plain_password": "***",
        "options.ssl_context": "<str>",
        "options.ssl_password": "***",
    }


# --- layers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.other]\nx = 1\n[tool.tidegate.worker]\ngroup = 'g'\nconcurrency = 3"),
        ("worker.toml", "[worker]\ngroup = 'g'\nconcurrency = 3"),
        ("worker.yaml", "worker:\n  group: g\n  concurrency: 3"),
    ],
)
def test_a_file_is_toml_or_yaml(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)

    assert from_file(file, "worker") == (
        Setting(("group",), "g", f"file {file}"),
        Setting(("concurrency",), 3, f"file {file}"),
    )


_BOMB: Final = (
    "worker: {a0: &a0 {x: 1, y: 1}"
    + "".join(f", a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 40))
    + "}"
)
"""Each name refers to the one before it, twice."""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyproject.toml", "[tool]\ntidegate = 5", "tidegate is no table, but an int"),
        ("worker.toml", "[wroker]\n", "did you mean worker?"),
        ("worker.toml", "worker = 5", "worker is no table, but an int"),
        ("worker.toml", "[worker\n", "line 1"),
        ("worker.yaml", "worker: [\n", "line 2"),
        ("worker.yaml", "- worker", "holds no table, but a list"),
        ("worker.yaml", "worker: !!python/object/apply:os.abort []", "line 1"),
        ("worker.yaml", "worker: &a {consumer: *a}", "it is nested too deeply"),
        ("worker.yaml", _BOMB, "has more than 1000 values of worker"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, name: str, text: str, said: str) -> None:
    """YAML is parsed as data and creates no objects."""
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(Misuse, match=re.escape(said)):
        from_file(file, "worker")


@pytest.mark.parametrize(("name", "begins"), [("worker.toml", "x = "), ("worker.yaml", "x: ")])
def test_a_file_that_is_nested_too_deeply_is_told(tmp_path: Path, name: str, begins: str) -> None:
    (tmp_path / name).write_text(begins + "[" * 3_000)
    with pytest.raises(Misuse) as refused:
        from_file(tmp_path / name, "worker")

    assert refused.value.why == "it is nested too deeply"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        from_file(tmp_path / "nothing.toml", "worker")


def test_yaml_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker.yaml").write_text("")
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingExtra, match=re.escape("a file in YAML needs an extra")):
        from_file(tmp_path / "worker.yaml", "worker")


def test_the_environment_nests_by_two_underscores() -> None:
    """Kubernetes sets TIDEGATE_WORKER_SERVICE_HOST for a service of that name."""
    environ = {
        "TIDEGATE_WORKER__CONSUMER__PARTITION__DRAIN__TOTAL": "25 s",
        "TIDEGATE_WORKER_SERVICE_HOST": "10.0.0.1",
        "TIDEGATE_SEED": "7",
        "PATH": "/bin",
    }
    [found] = from_environment(environ, "worker")

    assert found.path == ("consumer", "partition", "drain", "total")
    assert found.origin == "environment TIDEGATE_WORKER__CONSUMER__PARTITION__DRAIN__TOTAL"


def test_a_section_of_the_environment_that_there_is_not_is_refused() -> None:
    """Otherwise a misspelt setting would silently keep its default."""
    with pytest.raises(Misuse, match="there is no setting workr") as caught:
        from_environment({"TIDEGATE_WORKR__GROUP": "g"}, "worker")

    assert "did you mean worker?" in str(caught.value)
    assert "environment TIDEGATE_WORKR__GROUP" in str(caught.value)


@pytest.mark.parametrize("text", ["executors", "=8", ".executors=8", "consumer..batch=8"])
def test_an_argument_that_sets_nothing_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="sets nothing"):
        from_arguments([text])


def test_the_options_are_those_of_the_client() -> None:
    """Includes each option of aiokafka that text can express."""
    made_here = {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"}
    the_workers = {
        "bootstrap_servers",
        "group_id",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "loop",
        "api_version",
    }
    objects = {
        "topics", "key_deserializer", "value_deserializer", "partition_assignment_strategy", "ssl_context",
        "sasl_oauth_token_provider",
    }  # fmt: skip
    theirs = inspect.signature(aiokafka.AIOKafkaConsumer).parameters.keys()

    assert get_type_hints(ClientOptions).keys() - made_here == theirs - the_workers - objects
