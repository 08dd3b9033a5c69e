"""The content of a run's page as a value: its head, its trace as JSON, and its story as text.

`tidegate_adapters.page` makes one HTML file of it. For a run of more than PAGE_STEPS_MAX steps, it
holds the steps around the violation and the state before them. This module escapes nothing: the
code that makes markup does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.patches import Json, to_json
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Trace
from tidegate.sim.trace.trace_json import SCHEMA, encoded

PAGE_STEPS_MAX: Final = 20_000
"""Limit of steps on a page; of a longer run it holds those around the violation."""

Object: TypeAlias = dict[str, Json]


@final
@attrs.frozen
class PageData:
    """The content of a run's page.

    Attributes:
        title: The broken law, or the scenario.
        verdict: The end of the run, with the step.
        heading: The broken law, as a sentence.
        facts: Facts about the run, by term.
        reason: A sentence on the policy that chose its steps.
        trace: The encoded trace as ASCII JSON.
        story: The run as text.
    """

    title: str
    verdict: str
    heading: str
    facts: tuple[tuple[str, str], ...]
    reason: str
    trace: str
    story: str


def page_data(trace: Trace) -> PageData:
    return page_data_of(windowed(trace), render(trace))


def page_data_of(run: Object, story: str) -> PageData:
    """The page of an encoded trace; `story` is its text for browsers without scripts."""
    law = _law(run)
    return PageData(
        title=law or _text(run, "meta", "scenario"),
        verdict=_verdict(run),
        heading=law or "Every law holds in this run",
        facts=_facts(run),
        reason=REASONS.get(_text(run, "meta", "policy"), ""),
        trace=json.dumps(run, separators=(",", ":")),
        story=story,
    )


def windowed(trace: Trace, most: int = PAGE_STEPS_MAX, step: int = 0) -> Object:
    """The encoded trace; of a longer one, the steps around the violation and the state before them.

    Args:
        trace: The run.
        most: Limit of steps.
        step: A step to include; 0 for the last one.
    """
    whole = encoded(trace)
    count = len(trace.steps)
    if count <= most:
        return whole
    step = step or count
    last = min(count, max(most, step + most // 4))
    first = last - most
    return (
        whole
        | {
            "schema": f"{SCHEMA}/window",  # another schema, because a part of a run cannot be replayed
            "initial": to_json(next(islice(trace.states(), first, None))),
            "steps": cast("list[Json]", whole["steps"])[first:last],
            "window": {"first": first + 1, "last": last, "of": count},
            "passing": None,
            "original": None,
        }
    )


REASONS: Final = MappingProxyType(
    {
        "exhaustive": "All were tried in turn; this one is on a shortest way to the broken law.",
        "random": "Drawn at random, from the seed.",
        "pct": "Its process had the highest priority that the seed drew.",
        "swarm": "Drawn at random among the kinds of fault that this run allows.",
        "shrunk": "Kept when the run was shrunk: without it, the law was not broken.",
        "replayed": "As it was recorded.",
        "recorded": "It happened so.",
    }
)
"""Why a step was taken, by the policy of the run."""

BREACHES: Final = MappingProxyType(
    {
        "liveness": "Law broken at rest, after step {}",
        "deadlock": "Deadlock after step {}",
        "livelock": "Livelock from step {}",
        "error": "A program raised at step {}",
        "linearizability": "History without an order, at step {}",
    }
)


def _verdict(run: Object) -> str:
    kind, step = _text(run, "verdict", "kind"), _number(run, "verdict", "step") or len(_steps(run))
    if not _law(run) and kind in {"", "none"}:
        return "No law broken"
    loop = _number(run, "verdict", "loop")
    said = BREACHES.get(kind, "Law broken at step {}").format(f"{step - loop + 1 if loop else step:,}")
    why = _text(run, "verdict", "why")
    return f"{said}: {why}" if why else said


def _facts(run: Object) -> tuple[tuple[str, str], ...]:
    faults = _found(run, "meta", "faults")
    counts = faults.items() if isinstance(faults, dict) else ()
    return (
        ("Scenario", ": ".join(filter(None, (_text(run, "meta", "scenario"), _text(run, "meta", "summary"))))),
        ("Steps", _length(run)),
        ("Faults", ", ".join(kind if count == 1 else f"{kind}, {count} times" for kind, count in counts) or "none"),
        ("Time", _text(run, "meta", "time")),
        ("Schedule", _text(run, "meta", "policy") or "unknown"),
        ("Seed", _text(run, "meta", "seed") or "none: every schedule was searched"),
        ("Written by", ", ".join(filter(None, _versions(run)))),
    )


def _length(run: Object) -> str:
    count, before = len(_steps(run)), len(_steps(_found(run, "original")))
    if of := _number(run, "window", "of"):
        first, last = _number(run, "window", "first"), _number(run, "window", "last")
        return f"{of:,}, of which this page holds {first:,} to {last:,}"
    return f"{count:,}, {before:,} before shrinking" if before else f"{count:,}"


def _versions(run: Object) -> Iterator[str]:
    yield f"tidegate {_text(run, 'meta', 'versions', 'tidegate')}"
    if python := _text(run, "meta", "versions", "python"):
        yield f"Python {python}"
    yield _text(run, "schema")


def _law(run: Object) -> str:
    return _text(run, "verdict", "law")


# Older traces lack members, and hostile ones have wrong types: a misfit counts as absent.


def _found(json_: Json, *names: str) -> Json:
    for name in names:
        json_ = json_.get(name) if isinstance(json_, dict) else None
    return json_


def _text(json_: Json, *names: str) -> str:
    found = _found(json_, *names)
    return found if isinstance(found, str) else ""


def _number(json_: Json, *names: str) -> int:
    found = _found(json_, *names)
    return found if isinstance(found, int) else 0


def _steps(json_: Json) -> list[Json]:
    found = _found(json_, "steps")
    return found if isinstance(found, list) else []
