from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, WALL, Instant
from tidegate.model.records import BROKER, PRODUCER, Record, Send
from tidegate.sinks import dead_letters
from tidegate.sinks.checks.laws import dead_letters as laws
from tidegate.sinks.checks.strategies import dead_letters as drawn
from tidegate.sinks.dead_letters import DeadLetter, Flaw, RefusedOutput, Undecodable, decode, encode
from tidegate.sinks.delivery import shown

AT: Final = Instant(9_999 * MILLISECOND, WALL)
RECORD: Final = Record(
    "orders", 3, 7, b"key-hunter2", b"value-hunter2", (("h", b"header-hunter2"),), Instant(5_000, PRODUCER)
)
OUTPUT: Final = RefusedOutput(sink="results", key="orders/3/7//task_done/results/0", index=0, content=b"output-hunter2")
LETTER: Final = DeadLetter(
    record=RECORD, group="shop", attempts=3, error="ValueError", message="no reply", at=AT, output=OUTPUT
)
BINARY: Final = attrs.evolve(
    RECORD,
    key=None,
    value=None,
    headers=(("h", b"\xff"), ("h", None), ("tidegate.topic", b"before"), ("tidegate.letter", b"2")),
)


def stored(letter: DeadLetter) -> Record:
    return as_stored(encode(letter, "orders.dead"))


def as_stored(sent: Send) -> Record:
    return Record(sent.topic, 0, 42, sent.key, sent.value, sent.headers, Instant(1, BROKER))


def as_before(letter: DeadLetter) -> Record:
    """The letter as workers wrote it in format 1."""
    record = letter.record
    said = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": None if record.timestamp is None else str(record.timestamp.at // MILLISECOND),
        "group": letter.group,
        "attempts": str(letter.attempts),
        "error": letter.error,
        "message": letter.message,
        "at": str(letter.at.at // MILLISECOND),
    }
    added = tuple((f"tidegate.{name}", shown(text).encode()) for name, text in said.items() if text)
    return as_stored(Send("orders.dead", record.value, record.key, (*record.headers, *added)))


# --- the laws ---------------------------------------------------------------------------------------------------------


@given(drawn.dead_letters())
@example(LETTER)
@example(attrs.evolve(LETTER, record=BINARY))
@example(attrs.evolve(LETTER, output=attrs.evolve(OUTPUT, content=None)))
@example(attrs.evolve(LETTER, error="postgres://me:p@ss/w@host gone \ud800", message=""))
def test_de1_letters_come_back(letter: DeadLetter) -> None:
    assert laws.comes_back(letter, decode(stored(letter)))


@given(
    drawn.dead_letters(), st.integers(0), st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)) | st.none()
)
@example(LETTER, 7, None)
@example(attrs.evolve(LETTER, record=BINARY), 4, ("tidegate.letter", b"9"))
@example(LETTER, 5, ("__dlq.errors.offset", b"7.0"))
@example(LETTER, 5, ("__dlq.errors.group", b"\xff"))
def test_de2_any_record_has_a_verdict(letter: DeadLetter, at: int, header: tuple[str, bytes | None] | None) -> None:
    """Law DE2."""
    record = stored(letter)
    at %= len(record.headers)
    headers = (*record.headers[:at], *((header,) if header else ()), *record.headers[at + 1 :])
    assert isinstance(decode(attrs.evolve(record, headers=headers)), (DeadLetter, Undecodable))


@given(st.sampled_from((b"", b"\xff")), st.text(max_size=9))
def test_de3_nothing_is_shown(prefix: bytes, error: str) -> None:
    carried = prefix + b"hunter2"
    record = Record("orders", 3, 7, carried, carried, (("h", carried),))
    letter = attrs.evolve(
        LETTER, record=record, error=f"{error}://me:hunter2@host", output=attrs.evolve(OUTPUT, content=carried)
    )
    texts = (
        repr(letter),
        str(letter),
        repr(decode(stored(letter))),
        repr(decode(record)),
        repr(encode(letter, "dead")),
    )
    assert laws.shows_nothing(("hunter2",), texts)


@given(drawn.dead_letters())
@example(attrs.evolve(LETTER, record=BINARY))
def test_de4_the_record_is_kept(letter: DeadLetter) -> None:
    assert laws.keeps_the_record(letter.record, encode(letter, "dead"))


@given(drawn.dead_letters())
@example(attrs.evolve(LETTER, message="x" * 100_000))
@example(attrs.evolve(LETTER, message="\ud800", group="\ud800"))
def test_de5_little_is_added(letter: DeadLetter) -> None:
    assert laws.adds_little(letter.record, encode(letter, "dead"))


@given(drawn.dead_letters())
@example(LETTER)
@example(attrs.evolve(LETTER, record=BINARY, attempts=0, error=None))
@example(attrs.evolve(LETTER, record=attrs.evolve(RECORD, headers=encode(LETTER, "dead").headers)))
def test_de6_letters_of_format_1_are_read(letter: DeadLetter) -> None:
    alone = attrs.evolve(letter, output=None)
    assert laws.comes_back(alone, decode(as_before(alone)))


# --- planted bugs -----------------------------------------------------------------------------------------------------

ADDED = "(*record.headers, *added)"
test_a_planted_bug_is_found = planted(
    dead_letters,
    # Drakkar dumps only the shell of a payload.
    bug("without its output", ("(_OUTPUT, output.content)", '(_OUTPUT, b"{}")'), test_de1_letters_come_back),
    bug("without its time", ("_TIMESTAMP: None if record.timestamp is None else", "_TIMESTAMP: None if True else"), test_de1_letters_come_back),
    bug(
        "the first mark of several", ("marks[-1]]", "marks[0]]"),
        test_de1_letters_come_back,
    ),
    bug("the new position", ("offset=_number(fields[_OFFSET])", "offset=stored.offset"), test_de1_letters_come_back),
    bug(
        "a wrong text has no verdict",
        ("return Undecodable(Flaw.FIELDS)\n\n\ndef", "return None\n\n\ndef"),
        test_de2_any_record_has_a_verdict,
    ),
    bug("shown with its record", ('return f"{self.record}', 'return f"{self.record.value!r}'), test_de3_nothing_is_shown),
    bug(
        "bytes that are no text are replaced",
        (
            ADDED,
            '(*((name, value and value.decode("utf-8", "replace").encode()) for name, value in record.headers), *added)',
        ),
        test_de4_the_record_is_kept,
    ),
    bug("a name that comes twice is kept once", (ADDED, f"(*dict({ADDED}).items(),)"), test_de4_the_record_is_kept),
    bug("the whole message", ("_MESSAGE: letter.message,", '_MESSAGE: (letter.message or "") * 9,'), test_de5_little_is_added),
    bug(
        "the names of format 1 are not known",
        ("_BEFORE.get(name, name) if is_before else name", "name"),
        test_de6_letters_of_format_1_are_read,
    ),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_letter_has_the_headers_of_kip_1191_and_ours() -> None:
    letter = attrs.evolve(LETTER, record=BINARY, message="smtp://me:hunter2@mail is away")
    sent = encode(letter, "orders.dead")

    assert sent == Send(
        "orders.dead",
        None,
        None,
        (
            *BINARY.headers,
            ("tidegate.letter", b"2"),
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"3"),
            ("__dlq.errors.offset", b"7"),
            ("__dlq.errors.group", b"shop"),
            ("__dlq.errors.delivery.count", b"3"),
            ("__dlq.errors.message", b"smtp://***@mail is away"),
            ("tidegate.error", b"ValueError"),
            ("tidegate.timestamp", b"5"),
            ("tidegate.at", b"9999"),
            ("tidegate.sink", b"results"),
            ("tidegate.key", b"orders/3/7//task_done/results/0"),
            ("tidegate.index", b"0"),
            ("tidegate.output", b"output-hunter2"),
        ),
    )
    assert str(letter) == "orders-3 @7 to 'results': ValueError, attempts: 3"


def test_headers_that_other_programs_add_are_ignored() -> None:
    record = stored(LETTER)
    assert decode(attrs.evolve(record, headers=(*record.headers, ("copied.by", b"mirror")))) == LETTER


def changed(name: str, value: bytes | None) -> Record:
    """The letter with another value of a header; None removes the header."""
    record = stored(LETTER)
    kept = tuple(
        (each, value if each == name else other) for each, other in record.headers if each != name or value is not None
    )
    return attrs.evolve(record, headers=kept)


@pytest.mark.parametrize(
    ("flaw", "record"),
    [
        (Flaw.FOREIGN, RECORD),
        (Flaw.FOREIGN, attrs.evolve(RECORD, headers=(("__dlq.errors.topic", b"orders"),))),
        (Flaw.FOREIGN, changed("tidegate.letter", None)),
        (Flaw.VERSION, changed("tidegate.letter", b"3")),
        (Flaw.VERSION, changed("tidegate.letter", b"")),
        (Flaw.FIELDS, attrs.evolve(RECORD, headers=(("tidegate.topic", b"orders"),))),
        *((Flaw.FIELDS, changed(f"__dlq.errors.{each}", None)) for each in ("topic", "partition", "offset", "group")),
        *((Flaw.FIELDS, changed(f"tidegate.{each}", None)) for each in ("at", "key", "index")),
        (Flaw.FIELDS, changed("__dlq.errors.topic", b"")),
        (Flaw.FIELDS, changed("__dlq.errors.topic", b"\xff")),
        (Flaw.FIELDS, changed("__dlq.errors.offset", b"-1")),
        (Flaw.FIELDS, changed("__dlq.errors.offset", b"7_0")),
        (Flaw.FIELDS, changed("__dlq.errors.offset", b"\xd9\xa7")),
        (Flaw.FIELDS, changed("__dlq.errors.delivery.count", b"9" * 19)),
        (Flaw.FIELDS, changed("tidegate.at", b"soon")),
        (Flaw.FIELDS, changed("tidegate.sink", b"")),
        (Flaw.FIELDS, attrs.evolve(stored(LETTER), headers=(*stored(LETTER).headers, ("tidegate.at", b"1")))),
    ],
    ids=range(22),
)
def test_what_is_not_a_dead_letter_says_why(flaw: Flaw, record: Record) -> None:
    assert decode(record) == Undecodable(flaw)
    assert str(Undecodable(flaw)) == f"undecodable: {flaw.value}"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: encode(None, "dead"),  # type: ignore[arg-type]
        lambda: encode(LETTER, ""),
        lambda: decode(b"{}"),  # type: ignore[arg-type]
        lambda: attrs.evolve(LETTER, record=None),  # type: ignore[arg-type]
        lambda: attrs.evolve(LETTER, group=""),
        lambda: attrs.evolve(LETTER, attempts=-1),
        lambda: attrs.evolve(LETTER, attempts=2**63),
        lambda: attrs.evolve(LETTER, error=b"hunter2"),  # type: ignore[arg-type]
        lambda: attrs.evolve(LETTER, at=0),  # type: ignore[arg-type]
        lambda: attrs.evolve(LETTER, output=b"hunter2"),  # type: ignore[arg-type]
        lambda: attrs.evolve(OUTPUT, sink=""),
        lambda: attrs.evolve(OUTPUT, key=""),
        lambda: attrs.evolve(OUTPUT, index=-1),
        lambda: attrs.evolve(OUTPUT, content="hunter2"),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(Misuse) as raised:
        wrong()

    assert "hunter2" not in str(raised.value)
