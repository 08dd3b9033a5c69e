"""Dead letters whose bytes are text, nearly text, or not text."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.checks.strategies.records import records
from tidegate.model.instants import MILLISECOND, WALL, Instant
from tidegate.model.records import PRODUCER, Record
from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput

_SOON: Final = st.integers(0, 60).map(lambda at: Instant(at * MILLISECOND, WALL))
_BLOBS: Final = st.one_of(
    st.none(),
    st.sampled_from(
        (b"", b"\0", b"{}", b"\xff\xfe", b"\xed\xa0\x80", b"=cmd()", b"\x1b[31m\n", '"\u2028\U0001f600'.encode())
    ),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
_HEADERS: Final = st.lists(
    st.tuples(
        st.sampled_from(("trace", "", "tidegate.letter", "tidegate.topic", "tidegate.sink", "__dlq.errors.topic")),
        _BLOBS,
    ),
    max_size=3,
).map(tuple)
"""Names of a letter among them: a record that was copied from a dead-letter topic has them."""


def _source(record: Record, topic: str, partition: int, headers: tuple[tuple[str, bytes | None], ...]) -> Record:
    timestamp = None if record.timestamp is None else Instant(record.timestamp.at, PRODUCER)
    return attrs.evolve(record, topic=topic, partition=partition, headers=headers, timestamp=timestamp)


_RECORDS: Final = st.builds(_source, records(), _TEXTS, st.integers(0, 9), _HEADERS)
_OUTPUTS: Final = st.builds(RefusedOutput, sink=_TEXTS, key=_TEXTS, index=st.integers(0, 9), content=_BLOBS)
_ERRORS: Final = st.one_of(st.none(), st.text(max_size=20))
_DEAD_LETTERS: Final = st.builds(
    DeadLetter,
    record=_RECORDS,
    group=_TEXTS,
    attempts=st.integers(0, 4),
    error=_ERRORS,
    message=_ERRORS,
    at=_SOON,
    output=st.one_of(st.none(), _OUTPUTS),
)


def dead_letters() -> SearchStrategy[DeadLetter]:
    """Dead letters of records and of outputs, including text that terminals and tables would
    interpret.
    """
    return _DEAD_LETTERS
