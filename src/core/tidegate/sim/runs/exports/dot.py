"""Graphs in DOT, for Graphviz: the states of a scenario, or the happens-before order of a trace.

States are found breadth first, so the drawn ones are those nearest to the start. A large graph is
cut, with a note. The first state has a double border; a state at rest is a box. A state that breaks
a law is filled and has no edges; faults are dashed. Labels count the states in order of discovery;
tooltips give the positions of processes. In a trace each step is a node, in its process's column,
with edges to the steps that depend on it.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import Document, one_line, show
from tidegate.sim.runs.exports.text import cut
from tidegate.sim.runs.state_view import described
from tidegate.sim.runs.successors import Way, event, ways
from tidegate.sim.runs.tracing import is_at_rest, is_sound
from tidegate.sim.search.search import Search
from tidegate.sim.trace.trace import Trace
from tidegate.sim.world.packing import Packed

_STATES_MAX: Final = 500
_LABEL_MAX: Final = 60
_TOOLTIP_MAX: Final = 1_000


def dot(search: Search, states_max: int = _STATES_MAX) -> str:
    """The graph of the states of a scenario.

    Args:
        search: A search of the scenario; it need not have run.
        states_max: The maximum number of drawn states.
    """
    numbers: dict[Packed, int] = {search.first: 0}
    nodes, edges, cut_off = [], [], 0
    todo = [(search.first, search.first)]
    while todo:
        before, state = todo.pop(0)
        could = _led(search, before, state)
        nodes.append(_node(search, state, numbers[state], could))
        for way in could or ():
            if way.after not in numbers:
                if len(numbers) == states_max:
                    cut_off += 1
                    continue
                numbers[way.after] = len(numbers)
                todo.append((state, way.after))
            edges.append(_edge(numbers[state], numbers[way.after], way))
    note = [f"  note [shape=plaintext, label={_quoted(f'the first {len(numbers)} states; {cut_off} steps lead on')}];"]
    head = [f"digraph {_quoted(search.scenario.name)} {{", "  node [shape=circle];"]
    return "\n".join([*head, *nodes, *edges, *(note if cut_off else ()), "}"]) + "\n"


def _led(search: Search, before: Packed, state: Packed) -> tuple[Way, ...] | None:
    """The steps from the state; None if it breaks a law, since later steps explain nothing."""
    if not is_sound(search, before, state, is_at_rest=False):
        return None
    could = ways(search, state)
    rests = is_at_rest(search, state, could)
    return could if not rests or is_sound(search, before, state, is_at_rest=True) else None


def _node(search: Search, state: Packed, number: int, could: tuple[Way, ...] | None) -> str:
    stands = dict(described(search.space, state).items).get("processes", Document())
    marks = {"tooltip": _quoted(cut(show(stands), _TOOLTIP_MAX))}
    if not number:
        marks["peripheries"] = "2"
    if could is None:
        marks |= {"style": "filled", "fillcolor": _quoted("tomato")}
    elif not any(way.step.must for way in could):
        marks["shape"] = "box"
    return f"  n{number} [label={number}, {', '.join(f'{name}={mark}' for name, mark in marks.items())}];"


def _edge(before: int, after: int, way: Way) -> str:
    label = _quoted(cut(one_line(f"{way.stepper.name}: {event(way.step)}"), _LABEL_MAX))
    dashed = "" if way.step.fault is None else ", style=dashed"
    return f"  n{before} -> n{after} [label={label}{dashed}];"


def happens_before(trace: Trace) -> str:
    """The steps of a trace, each with edges to those that depend on it directly."""
    columns = {mover.name: f"c{number}" for number, mover in enumerate(trace.movers)}
    lines = [f"digraph {_quoted(trace.scenario)} {{", "  node [shape=box];"]
    for number, step in enumerate(trace.steps[:_STATES_MAX], 1):
        is_last = bool(trace.law) and number == len(trace.steps)
        marks = f", group={columns.get(step.process, 'c')}" + (', style=filled, fillcolor="tomato"' if is_last else "")
        label = _quoted(cut(one_line(f"{number} {step.process}: {step.event}"), _LABEL_MAX))
        lines.append(f"  n{number} [label={label}{marks}];")
        lines += [f"  n{cause} -> n{number};" for cause in step.causes]
    if len(trace.steps) > _STATES_MAX:
        lines.append(
            f"  note [shape=plaintext, label={_quoted(f'the first {_STATES_MAX} of {len(trace.steps)} steps')}];"
        )
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(words: str) -> str:
    escaped = one_line(words).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
