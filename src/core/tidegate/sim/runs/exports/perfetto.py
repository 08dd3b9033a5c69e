"""A trace as JSON for Perfetto and chrome://tracing, for long runs of many processes.

Each process is a track, and each step a complete slice on it. Time is the order of steps, one
millisecond each, because many happen at one instant; the slice contains the real time. An arrow
links a step to a dependent step of another process. Its ends lie inside the slices, because viewers
bind an arrow to the enclosing slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from tidegate.model.patches import Json, patch_to_json
from tidegate.sim.trace.trace import Trace, TraceStep

_STEP_US: Final = 1_000
_SLICE_US: Final = 900
"""Shorter than a step, so slices on a track do not touch."""
_PID: Final = 1


def perfetto(trace: Trace) -> dict[str, Json]:
    """The trace in the JSON object form of the trace event format."""
    names = [mover.name for mover in trace.movers]
    tracks = {name: number for number, name in enumerate(dict.fromkeys((*names, *(s.process for s in trace.steps))), 1)}
    events: list[dict[str, Json]] = [_named("process_name", 0, trace.scenario)]
    for name, track in tracks.items():
        events.append(_named("thread_name", track, name))
        events.append(
            {"ph": "M", "pid": _PID, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
        )
    for number, step in enumerate(trace.steps, 1):
        events.append(_sliced(number, step, tracks[step.process], trace))
        events += _arrows(number, step, tracks, trace)
    return {"displayTimeUnit": "ms", "traceEvents": cast("list[Json]", events)}


def _named(what: str, track: int, name: str) -> dict[str, Json]:
    return {"ph": "M", "pid": _PID, "tid": track, "name": what, "args": {"name": name}}


def _sliced(number: int, step: TraceStep, track: int, trace: Trace) -> dict[str, Json]:
    is_last = bool(trace.law) and number == len(trace.steps)
    return {
        "ph": "X",
        "pid": _PID,
        "tid": track,
        "ts": number * _STEP_US,
        "dur": _SLICE_US,
        "name": step.event,
        "cat": step.fault or step.kind.value,
        "args": {
            "step": number,
            "t": step.at,
            "fault": step.fault,
            "src": step.src,
            "patch": cast("Json", patch_to_json(step.patch)),
            **({"breaks the law": trace.law} if is_last else {}),
        },
    }


def _arrows(number: int, step: TraceStep, tracks: dict[str, int], trace: Trace) -> Iterator[dict[str, Json]]:
    for cause in step.causes:
        before = trace.steps[cause - 1]
        if before.process != step.process:
            flow: dict[str, Json] = {"pid": _PID, "id": f"{cause}-{number}", "name": "happens before", "cat": "cause"}
            yield {**flow, "ph": "s", "tid": tracks[before.process], "ts": cause * _STEP_US + _SLICE_US - 1}
            yield {**flow, "ph": "f", "bp": "e", "tid": tracks[step.process], "ts": number * _STEP_US + 1}
