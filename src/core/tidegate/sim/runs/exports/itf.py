"""A trace in the Informal Trace Format, for the tools around Apalache and Quint (their ADR-015).

The top-level entries of the state tree are variables; a missing one is null. Three more give the
last step's process and event, and the possible next steps.

    tidegate                ITF
    bool, str               the same
    int                     {"#bigint": "1"}, because many read JSON numbers as doubles
    tuple                   a sequence
    Document                {"#map": [[key, value], ...]}
    null                    {"tag": "Null", "value": "U_OF_UNIT"}, as Apalache writes the unit
    float, bytes            {"tag": "Float", "value": "1.5"}, {"tag": "Bytes", "value": "00ff"}
    Instant                 {"tag": "Instant", "value": {"at": ..., "clock": "store"}}
    Foreign                 {"tag": "Foreign", "value": {"kind": ..., "payload": "00ff"}}

ITF has no null, floats or bytes. They are variants, so text cannot be mistaken for them. Known not
to work: types are not annotated, so Apalache does not accept a map with values of several types as
an argument.
"""

from __future__ import annotations

from typing import Final, assert_never

from tidegate.model.documents import Document, Foreign, Value
from tidegate.model.instants import Instant
from tidegate.model.patches import Json
from tidegate.sim.trace.trace import Option, Trace, TraceStep

_NULL: Final[Json] = {"tag": "Null", "value": "U_OF_UNIT"}
ACTION: Final = "mbt::actionTaken"
"""The name in Quint and its tools."""
WHO: Final = "mbt::process"
NEXT: Final = "mbt::enabled"


def itf(trace: Trace) -> dict[str, Json]:
    states = [dict(state.items) for state in trace.states()]
    names = list(dict.fromkeys(name for state in states for name in state))
    steps: list[TraceStep | None] = [None, *trace.steps]
    return {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "source": trace.scenario,
            "status": "violation" if trace.law else "ok",
            "description": f"breaks the law: {trace.law}" if trace.law else "no law is broken",
        },
        "params": [],
        "vars": [*(variable(name) for name in names), WHO, ACTION, NEXT],
        "states": [
            {
                "#meta": {"index": number},
                **{variable(name): itf_value(state[name]) if name in state else _NULL for name in names},
                WHO: "" if step is None else step.process,
                ACTION: "init" if step is None else step.event,
                NEXT: {"#set": [_option(each) for each in could]},
            }
            for number, (state, step, could) in enumerate(zip(states, steps, _enabled(trace), strict=True))
        ],
    }


def _enabled(trace: Trace) -> list[tuple[Option, ...]]:
    return [*(tuple(dict.fromkeys(step.choice.enabled)) for step in trace.steps), ()]


def variable(name: str) -> str:
    """A variable's name. ITF reserves names that begin with "#"."""
    return f"_{name}" if name.startswith(("#", "_", "mbt::")) else name


def _option(each: Option) -> Json:
    return {"process": each.process, "event": each.event, "fault": each.fault}


def itf_value(value: Value) -> Json:
    match value:
        case bool() | str():
            return value
        case int():
            return {"#bigint": str(value)}
        case None:
            return _NULL
        case float():
            return {"tag": "Float", "value": repr(value)}
        case bytes():
            return {"tag": "Bytes", "value": value.hex()}
        case tuple():
            return [itf_value(item) for item in value]
        case Document(items):
            return {"#map": [[key, itf_value(item)] for key, item in items]}
        case Instant(at, clock):
            return {"tag": "Instant", "value": {"at": {"#bigint": str(at)}, "clock": clock}}
        case Foreign(kind, payload):
            return {"tag": "Foreign", "value": {"kind": kind, "payload": payload.hex()}}
        case _:
            assert_never(value)
