"""Dead letters whose bytes are text, nearly text, or not text."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.checks.strategies.records import records
from tidegate.model.instants import WALL, Instant
from tidegate.sinks.dead_letters import DeadLetter

_SOON: Final = st.integers(0, 60).map(lambda at: Instant(at, WALL))
_BLOBS: Final = st.one_of(
    st.none(),
    st.sampled_from(
        (b"", b"\0", b"{}", b"\xff\xfe", b"\xed\xa0\x80", b"=cmd()", b"\x1b[31m\n", '"\u2028\U0001f600'.encode())
    ),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
_RECORDS: Final = st.builds(
    lambda record, topic, partition: attrs.evolve(record, topic=topic, partition=partition),
    records(),
    _TEXTS,
    st.integers(0, 9),
)
_DEAD_LETTERS: Final = st.builds(
    DeadLetter,
    record=_RECORDS,
    sink=_TEXTS,
    index=st.integers(0, 9),
    payload=_BLOBS,
    error=st.text(min_size=1, max_size=20),
    attempts=st.integers(1, 4),
    first_failed=_SOON,
    last_failed=_SOON,
)


def dead_letters() -> SearchStrategy[DeadLetter]:
    """Dead letters with every kind of payload, including text that terminals and tables would
    interpret.
    """
    return _DEAD_LETTERS
