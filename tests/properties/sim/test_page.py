"""The text of a run's page. tests/integration/test_page_assembly.py covers its HTML."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import cast

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.sim.hostile_traces import PLAIN, SPECIMENS, counting, everywhere, traces

from tidegate.model.documents import Value
from tidegate.model.errors import Misuse
from tidegate.model.patches import Json, applied, from_json, patch_from_json
from tidegate.sim.trace.page import page_data, page_data_of, windowed
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Breach, Trace, TraceStep
from tidegate.sim.trace.trace_json import decoded, encoded


@given(traces())
@settings(max_examples=20)
def test_the_page_carries_the_trace_and_its_story(trace: Trace) -> None:
    """Laws G1 and G4 for the data: the decoded JSON equals the trace, in ASCII."""
    for each in (trace, *map(everywhere, SPECIMENS)):
        data = page_data(each)

        assert decoded(json.loads(data.trace)) == each
        assert data.trace.isascii()
        assert data.story == render(each)


def fact(trace: Trace, term: str) -> str:
    return dict(page_data(trace).facts)[term]


def test_the_head_counts_the_faults() -> None:
    once, twice = TraceStep("a", "moves", "late", ()), TraceStep("a", "moves", "dropped", ())

    assert fact(attrs.evolve(PLAIN, steps=(twice, once, twice)), "Faults") == "dropped, 2 times, late"
    assert fact(attrs.evolve(PLAIN, steps=()), "Faults") == "none"


def test_a_run_that_breaks_nothing_has_a_page() -> None:
    clean = page_data(attrs.evolve(PLAIN, law="", seed=None))

    assert (clean.verdict, clean.title) == ("No law broken", "plain")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("safety", "Law broken at step 1,234"),
        ("liveness", "Law broken at rest, after step 1,234"),
        ("deadlock", "Deadlock after step 1,234"),
        ("error", "A program raised at step 1,234"),
        ("of a later version", "Law broken at step 1,234"),
        ("none", "No law broken"),
    ],
)
def test_the_head_says_how_the_run_ends(kind: str, says: str) -> None:
    law = "" if kind == "none" else "a law"
    run = encoded(PLAIN) | {"verdict": {"law": law, "kind": kind, "step": 1_234}}

    assert page_data_of(run, "").verdict == says


def test_the_head_says_who_goes_round_and_from_which_step_on() -> None:
    trace = attrs.evolve(counting(20), law="a law", breach=Breach.LIVELOCK, why="goes round for ever", loop=12)

    assert page_data(trace).verdict == "Livelock from step 9: goes round for ever"


# --- a long run ---------------------------------------------------------------------------------------------------------


def seen_states(run: dict[str, Json]) -> list[Value]:
    steps = cast("list[dict[str, object]]", run["steps"])
    patches = [patch_from_json(step["patch"]) for step in steps]
    return list(accumulate(patches, lambda state, patch: applied(patch, state), initial=from_json(run["initial"])))


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 30))
@example(30, 8, 30)
@example(30, 8, 1)
@example(8, 8, 8)
def test_of_a_long_run_the_page_holds_what_is_around_the_violation(steps: int, most: int, broken: int) -> None:
    """Law G1, second half: at most `most` steps, the violation among them, states unchanged."""
    trace = counting(steps)
    run = windowed(trace, most, min(broken, steps))
    window = cast("dict[str, int]", run.get("window", {"first": 1, "last": steps, "of": steps}))
    first, last = window["first"], window["last"]

    assert ("window" in run) == (steps > most)
    assert (last - first + 1, window["of"]) == (min(steps, most), steps)
    assert not broken or steps <= most or first <= min(broken, steps) <= last
    assert seen_states(run) == list(trace.states())[first - 1 : last + 1]
    assert [cast("dict[str, object]", step)["i"] for step in cast("list[Json]", run["steps"])] == list(
        range(first, last + 1)
    )


def test_a_part_of_a_run_says_so_and_is_not_replayed() -> None:
    run = windowed(counting(1_500), 1_000)

    assert dict(page_data_of(run, "").facts)["Steps"] == "1,500, of which this page holds 501 to 1,500"
    with pytest.raises(Misuse, match="window"):
        decoded(run)
