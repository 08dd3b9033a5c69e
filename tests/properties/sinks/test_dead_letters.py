from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, ClockName, Instant
from tidegate.model.records import Record
from tidegate.sinks import dead_letters
from tidegate.sinks.checks.laws import dead_letters as laws
from tidegate.sinks.checks.strategies import dead_letters as drawn
from tidegate.sinks.dead_letters import DeadLetter, Flaw, Undecodable
from tidegate.sinks.delivery import DeadLettering, Failures, Sending

START = Instant(0, WALL)
RECORD = Record("orders", 3, 7, b"key-hunter2", b"value-hunter2", (("h", b"header-hunter2"),), Instant(5))


# --- the laws ---------------------------------------------------------------------------------------------------------


def letter(payload: bytes | None = b"payload-hunter2", error: str = "no reply", record: Record = RECORD) -> DeadLetter:
    return DeadLetter(
        record=record,
        sink="results",
        index=0,
        payload=payload,
        error=error,
        attempts=3,
        first_failed=START,
        last_failed=START + 5,
    )


@given(drawn.dead_letters())
@example(letter(b"\xff\xfe"))
@example(letter(b"\xed\xa0\x80"))
@example(letter(None))
@example(letter(error="postgres://me:p@ss/w@host gone \ud800"))
def test_de1_letters_come_back(each: DeadLetter) -> None:
    assert laws.comes_back(each, dead_letters.decode(dead_letters.encode(each)))


@given(drawn.dead_letters(), st.integers(0), st.binary(max_size=2), st.integers(0, 2))
@example(letter(b"payload"), len('{"format": "tidegate dead letter", "version": 1, "topic": "'), b"p", 1)
def test_de2_changes_are_noticed(each: DeadLetter, at: int, other: bytes, length: int) -> None:
    data = dead_letters.encode(each)
    at %= len(data)
    assert laws.notices_a_change(each, dead_letters.decode(data[:at] + other + data[at + length :]))


@given(st.sampled_from((b"", b"\xff")), st.text(max_size=9))
def test_de3_nothing_is_shown(prefix: bytes, error: str) -> None:
    carried = prefix + b"hunter2"
    record = Record("orders", 3, 7, carried, carried, (("h", carried),))
    each = letter(carried, f"{error}://me:hunter2@host", record)
    foreign = json.dumps({**json.loads(dead_letters.encode(each)), "attempts": "hunter2"}).encode()
    texts = (repr(each), str(each), each.id, repr(dead_letters.decode(foreign)), repr(dead_letters.decode(carried)))
    assert laws.shows_nothing(("hunter2",), texts)


# --- planted bugs -----------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    dead_letters,
    # Drakkar dumps only the shell of a payload.
    bug("without its body", ("_blob(letter.payload)", '_blob(b"{}")'), test_de1_letters_come_back),
    bug(
        "bytes that are not text are replaced",
        ("_blob(record.key)", '_blob(record.key and record.key.decode("utf-8", "replace").encode())'),
        test_de1_letters_come_back,
    ),
    bug(
        "the digest is not looked at", ("if given_digest != actual_digest:", "if False:"),
        test_de2_changes_are_noticed,
    ),
    bug(
        "shown with its payload", ("to {self.sink!r}:", "to {self.sink!r}: {self.payload!r}"),
        test_de3_nothing_is_shown,
    ),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def changed(each: DeadLetter, change: Callable[[dict[str, Any]], object]) -> bytes:
    fields = json.loads(dead_letters.encode(each))
    del fields["sha256"]
    change(fields)
    digest = sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**fields, "sha256": digest}).encode()


def test_a_dead_letter_can_be_read_and_found() -> None:
    dead_lettering = DeadLettering(Failures(3, START, START + 5, "smtp://me:hunter2@mail is away"))
    record = Record("orders", 3, 7, b"\xff", '{"name": "J\u00fcrgen"}'.encode(), (("h", None),), Instant(5))
    each = dead_letters.dead_letter(dead_lettering, record, "results", 0, b"line\x1b[31m\n")
    fields = json.loads(dead_letters.encode(each))

    assert b"\n" not in dead_letters.encode(each)
    assert b"\x1b" not in dead_letters.encode(each)
    assert len(fields.pop("sha256")) == 64
    assert fields == {
        "format": "tidegate dead letter",
        "version": 1,
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "key": {"base64": "/w=="},
        "value": {"text": '{"name": "J\u00fcrgen"}'},
        "headers": [["h", None]],
        "timestamp": {"us": 5, "clock": "store"},
        "sink": "results",
        "index": 0,
        "payload": {"text": "line\x1b[31m\n"},
        "error": "smtp://***@mail is away",
        "attempts": 3,
        "first_failed": {"us": 0, "clock": "wall"},
        "last_failed": {"us": 5, "clock": "wall"},
    }
    assert str(each) == "orders-3 @7 to 'results': 'smtp://***@mail is away', attempts: 3"


def test_a_dead_letter_may_be_written_otherwise() -> None:
    fields = json.loads(dead_letters.encode(letter()))

    assert dead_letters.decode(json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False).encode()) == letter()


def test_the_same_payload_of_the_same_record_has_one_id() -> None:
    one = letter()
    others = (
        attrs.evolve(one, payload=b"other"),
        attrs.evolve(one, sink="results-2"),
        attrs.evolve(one, index=1),
        attrs.evolve(one, record=attrs.evolve(RECORD, offset=8)),
        attrs.evolve(one, record=attrs.evolve(RECORD, topic="orders-3")),
    )

    assert attrs.evolve(one, attempts=9, error="later", last_failed=START + 99).id == one.id
    assert one.id.startswith("orders-3@7:")
    assert len({each.id for each in (one, *others)}) == 6


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(
    ("flaw", "data"),
    [
        (Flaw.NOT_JSON, b""),
        (Flaw.NOT_JSON, b"\xff"),
        (Flaw.NOT_JSON, b"{"),
        (Flaw.NOT_JSON, b'{"format": NaN}'),
        (Flaw.NOT_JSON, b'{"format": 1, "format": 1}'),
        (Flaw.NOT_JSON, b'{"format": ' + b"9" * 100_000 + b"}"),
        (Flaw.NOT_JSON, b"[" * 100_000),
        (Flaw.NOT_JSON, DEEP),
        (Flaw.FOREIGN, b"[]"),
        (Flaw.FOREIGN, b"null"),
        (Flaw.FOREIGN, b"{}"),
        (Flaw.FOREIGN, b'{"original_payloads": ["{}"], "sink_name": "results", "attempt_count": 1}'),
        (Flaw.FIELDS, b'{"format": "tidegate dead letter"}'),
        (Flaw.CORRUPT, b'{"format": "tidegate dead letter", "version": 1}'),
        (Flaw.CORRUPT, dead_letters.encode(letter()).replace(b"payload-", b"payl0ad-")),
        (Flaw.CORRUPT, dead_letters.encode(letter()).replace(b'"attempts": 3', b'"attempts": 1000000000')),
        (Flaw.VERSION, changed(letter(), lambda fields: fields.update(version=2))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(version=True))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.pop("payload"))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(more=1))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(topic=""))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(topic=5))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(sink="\ud800"))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(partition=True))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(offset=2**63))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(attempts=-1))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(attempts=1.0))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(headers=5))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(headers=[["h"]]))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload="text"))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload={"hex": "00"}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload={"text": "a", "base64": ""}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload={"base64": "&&&&"}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload={"base64": "\u00e9"}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(payload={"text": "\ud800"}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(last_failed=5))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(last_failed={"us": 5, "clock": 5}))),
        (Flaw.FIELDS, changed(letter(), lambda fields: fields.update(last_failed={"us": 5, "zone": "utc"}))),
    ],
    ids=range(38),
)
def test_what_is_not_a_dead_letter_says_why(flaw: Flaw, data: bytes) -> None:
    assert dead_letters.decode(data) == Undecodable(flaw)
    assert str(Undecodable(flaw)) == f"undecodable: {flaw.value}"


@given(st.binary(max_size=60))
def test_any_bytes_are_answered(data: bytes) -> None:
    assert isinstance(dead_letters.decode(data), Undecodable)


# --- bad input ----------------------------------------------------------------------------------------------------------


def lettered(**changes: Any) -> DeadLetter:
    return attrs.evolve(letter(), **changes)


def recorded(**changes: Any) -> DeadLetter:
    return letter(record=attrs.evolve(RECORD, **changes))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: dead_letters.dead_letter(Sending(), RECORD, "results", 0, b""),  # type: ignore[arg-type]
        lambda: dead_letters.encode(None),  # type: ignore[arg-type]
        lambda: dead_letters.decode("{}"),  # type: ignore[arg-type]
        lambda: lettered(record=None),
        lambda: lettered(sink=""),
        lambda: lettered(sink="\ud800"),
        lambda: lettered(index=-1),
        lambda: lettered(index=2**63),
        lambda: lettered(payload="text"),
        lambda: lettered(error=""),
        lambda: lettered(attempts=0),
        lambda: lettered(attempts=2**63),
        lambda: lettered(first_failed=0),
        lambda: lettered(last_failed=Instant(2**63, WALL)),
        lambda: lettered(last_failed=Instant(0, ClockName("\ud800"))),
        lambda: recorded(topic="\ud800"),
        lambda: recorded(offset=2**63),
        lambda: recorded(headers=(("\ud800", b""),)),
        lambda: recorded(timestamp=Instant(2**63)),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse) as raised:
        wrong()

    assert "hunter2" not in str(raised.value)
