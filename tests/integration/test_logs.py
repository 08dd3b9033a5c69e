from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from io import StringIO
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.records import TopicPartition
from tidegate_adapters.base.redaction import SHOWN_MAX, redacted
from tidegate_adapters.observe.logs import LogFormat, log_to

LOG = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.basicConfig(level=level, handlers=handlers, force=True)
    logging.getLogger("aiokafka.conn").setLevel(logging.NOTSET)


def logged(form: LogFormat, level: str, message: object, *values: object, **more: Any) -> str:
    stream = StringIO()
    log_to(stream, form, level)
    LOG.info(message, *values, **more)
    return stream.getvalue()


def failure() -> Exception:
    try:
        return int("token=hunter2\x1b[31m")  # type: ignore[return-value]
    except ValueError as error:
        return error


def test_a_line_has_time_level_logger_and_message() -> None:
    time, level, name, rest = logged("text", "INFO", "paid %s", "5\n\x1b[2J").split(maxsplit=3)

    assert (time[4], time[10], time[-1]) == ("-", "T", "Z")
    assert (level, name, rest) == ("INFO", "shop:", "paid 5\\n\\x1b[2J\n")


def test_a_traceback_stands_below_its_line() -> None:
    line, *trace = logged("text", "INFO", "failed", exc_info=failure()).splitlines()

    assert line.endswith("shop: failed")
    assert trace[0].startswith("    Traceback")
    assert trace[-1] == "    ValueError: invalid literal for int() with base 10: 'token=***'"


def test_the_lines_of_an_error_are_no_lines_of_the_log() -> None:
    forged = "2026-11-29T00:00:00.000Z INFO    shop: paid 5"
    lines = logged("text", "INFO", "failed", exc_info=ValueError(f"no\n{forged}\r{forged}\u2028{forged}")).splitlines()

    assert [each for each in lines if re.match(r"\S", each)] == lines[:1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_a_message_of_megabytes_the_beginning_is_logged(form: LogFormat) -> None:
    """A secret does not appear because its end was cut off."""
    text = f"{'x' * (SHOWN_MAX - 3)} pwd='{'hunter2 ' * 3_000_000}"
    said = logged(form, "INFO", "%s", text, exc_info=ValueError(text), extra={"why": text})

    assert len(said) < 4 * SHOWN_MAX
    assert said.count(" characters in all)") == (2 if form == "text" else 3)
    assert "hunter2" not in said


def test_an_object_has_the_fields_of_what_is_logged() -> None:
    """Of any type, since errors in logging go unseen."""
    extra = {
        "topic": "orders",
        "offset": (1, 2),
        "at": TopicPartition("orders", 3),
        "api_key": 5,
        "uri": "mongodb://me:hunter2@h",
        "of": {"pwd": "hunter2"},
    }
    found = json.loads(logged("json", "INFO", "password: %s", "hunter2", extra=extra, exc_info=failure()))

    assert found.pop("time").endswith("Z")
    assert found.pop("exception").splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'token=***'"
    assert found == {
        "level": "info",
        "logger": "shop",
        "message": "password: ***",
        "topic": "orders",
        "offset": [1, 2],
        "at": "orders-3",
        "api_key": "***",
        "uri": "mongodb://***@h",
        "of": "{'pwd': ***}",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_below_the_level_is_not_written(form: LogFormat) -> None:
    assert logged(form, "WARNING", "quiet") == ""
    logged(form, "DEBUG", "loud")
    assert LOG.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("aiokafka.conn").isEnabledFor(logging.DEBUG)


@given(st.lists(st.sampled_from(["://", "@", "a", " ", "\n", ":", "/", "pw", ",", "=x"])))
def test_what_is_before_the_last_at_of_an_address_is_not_shown(parts: list[str]) -> None:
    text = "".join(parts)

    assert redacted(text) == re.sub(r"(?<=://)\S*@", "***@", text)


NAMES: Final = (
    "password", "Password", "PGPASSWORD", "db_pass", "DB_PASS", "spring.datasource.password", "pwd", "passphrase", "secret",
    "client_secret", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "SECRET_KEY", "access_key", "AccountKey", "api-key", "apiKey",
    "X-Api-Key", "private_key", "token", "access_token", "csrftoken", "jwt", "dsn", "signature", "session", "session_id", "credentials",
    "sasl_plain_password", "password_hash", "auth", "auth_token",
)  # fmt: skip
SHAPES: Final = (
    "{}=hunter2", "{} = 'hunter2'", '{}: "hunter2"', '"{}": "hunter2"', "'{}': 'a\\'hunter2'", '{{\\"{}\\": \\"hunter2\\"}}',
    "{}='one\nhunter2\ntwo'", "('{}', 'hunter2')", "--{} hunter2", "--{}=hunter2", "x=1;{}=hunter2;y=2", "a&{}=hunter2&b", "{}: hunter2",
    "{{'{}': ('user', 'hunter2')}}", 'said {} "hunter2"',
)  # fmt: skip
OTHERS: Final = (
    "Authorization: ApiKey hunter2", "Authorization: Bearer hunter2", "Proxy-Authorization: Basic hunter2", "Cookie: a=b; c=hunter2",
    'Authorization: Digest username="u", response="hunter2"', "Set-Cookie: id=hunter2; Path=/", "mongodb://u:hunter2@h/db",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", "is eyJhbGciOiJI.hunter2hunter2.x", "AKIAHUNTER2HUNTER2AB",
    "ghp_hunter2hunter2hunter2", "xoxb-hunter2hunter2", "sk_live_hunter2hunter2",
)  # fmt: skip
HARMLESS: Final = (
    "compass", "passenger", "bypass", "author", "session_timeout_ms", "token_count", "max_tokens", "keyboard", "key", "monkey",
    "primary_key", "foreign_key", "sort_key", "partition_key", "idempotency_key", "authSource", "auth_mechanism", "password_min_length",
    "tokenizer", "assignment", "design", "cookie_max_age", "surpass", "secretary", "credit", "sessions", "passed", "signed",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_like_a_secret_is_not_shown(name: str) -> None:
    shown = [text for shape in SHAPES if "hunter2" in redacted(text := shape.format(name))]

    assert shown == []


@pytest.mark.parametrize("text", OTHERS)
def test_what_looks_like_a_secret_is_not_shown(text: str) -> None:
    assert "hunter2" not in redacted(text).lower()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_one_stays_readable(name: str) -> None:
    changed = [text for shape in SHAPES if redacted(text := shape.format(name)) != text]

    assert changed == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Authorization: Bearer hunter2 is refused", "Authorization: *** is refused"),
        ("{'authorization': 'Basic aHVudGVyMg==', 'status': 401}", "{'authorization': ***, 'status': 401}"),
        ("X-Api-Key: hunter2", "X-Api-Key: ***"),
        ('{"password": "hunter 2", "user": "x"}', '{"password": ***, "user": "x"}'),
    ],
)
def test_what_errors_of_http_clients_quote_is_not_shown(text: str, said: str) -> None:
    """The second word of such values once appeared."""
    assert redacted(text) == said


def test_a_long_text_of_many_addresses_holds_nobody_up() -> None:
    """Redaction once scanned the text once for each address, such as in a server's reply."""
    began = time.monotonic()

    assert redacted("https://a/b," * 200_000).startswith("https://a/b,https")
    assert time.monotonic() - began < 10
