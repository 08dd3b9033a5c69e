"""Trackers whose done offsets come in patterns, their texts, and texts that are not what they seem.

They aim at where one layout becomes shorter than another, at the edges of pages, and at what is nearly right: one letter
of a text that is another one, missing, or twice.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.checks.strategies.watermark import known_done, trackers
from tidegate.consumer.committing.commit_metadata import (
    FIRST,
    LETTERS,
    MARK,
    VERSION,
    Alphabet,
    Survey,
    encoded,
    surveyed,
)
from tidegate.consumer.offsets._pages import PAGE
from tidegate.consumer.offsets.watermark import OffsetTracker, delivered, restored

_LENGTHS: Final = st.sampled_from(
    (
        st.integers(1, 2),
        st.integers(1, 12),
        st.one_of(st.just(1), st.integers(20, 300)),
        st.integers(1, 2 * PAGE),
        st.one_of(st.just(1), st.integers(1, 2**33)),
    )
)


@st.composite
def patterned(draw: DrawFn) -> OffsetTracker:
    """Trackers of a partition whose head is stuck: runs of open and of done ones, alike in length, in turn."""
    position = draw(st.one_of(st.integers(0, 9), st.sampled_from((PAGE - 1, PAGE, 2**40))))
    gaps, runs = draw(_LENGTHS), draw(_LENGTHS)
    lengths = draw(st.lists(st.tuples(gaps, runs.map(lambda run: min(run, 3 * PAGE))), min_size=1, max_size=40))
    edges = tuple(accumulate((length for each in lengths for length in each), initial=position))
    done = [(start, stop) for start, stop in list(pairwise(edges))[1::2]]
    return delivered(restored(position, done), (position,))


def restored_trackers() -> SearchStrategy[OffsetTracker]:
    """Trackers that were restored, and those of `trackers` and `patterned`."""
    return st.one_of(patterned(), known_done(5).map(lambda runs: restored(5, runs)), trackers())


def surveys() -> SearchStrategy[Survey]:
    """Surveys of such trackers."""
    return restored_trackers().map(surveyed)


def alphabets() -> SearchStrategy[Alphabet]:
    """Both."""
    return st.sampled_from(Alphabet)


@st.composite
def damaged(draw: DrawFn, text: str) -> str:
    """The text, which is not empty, and something has happened to it: never the same text."""
    at = draw(st.integers(0, len(text) - 1))
    letter = draw(st.one_of(st.sampled_from(LETTERS), st.integers(FIRST - 1, FIRST + 2**15).map(chr), st.characters()))
    return draw(
        st.sampled_from(
            (
                text[:at] + letter + text[at + 1 :],
                text[:at] + letter + text[at:],
                text[:at] + text[at + 1 :],
                text[: at + 1] + text[at:],
                text[:at],
                text[at:] + text[:at],
                text[::-1],
                text + text,
            )
        ).filter(lambda other: other != text)
    )


@st.composite
def texts(draw: DrawFn) -> str:
    """What may stand in a commit's metadata: our own, and whatever else."""
    ours = encoded(draw(surveys()), alphabet=draw(alphabets())).text
    letters = draw(st.sampled_from((LETTERS, "".join(map(chr, range(FIRST, FIRST + 2**15, 999))))))
    foreign = st.one_of(
        st.text(max_size=30),
        st.text(letters, max_size=30),
        st.text(letters, max_size=30).map((MARK + VERSION).__add__),
        st.sampled_from(("", "{}", "null", MARK, MARK + VERSION, MARK + "2A", "bzAAAAEAAAAA")),
    )
    return draw(st.one_of(foreign, st.just(ours), damaged(ours) if ours else st.just(MARK)))
