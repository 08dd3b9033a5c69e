"""A trace as a Mermaid sequence diagram, for pull requests, step summaries and documents.

A participant is an active lane or the object of effects. An effect is an arrow, its reply a dotted
arrow back. A request lost in the network ends in a cross; one that may arrive late has an open
head. Other steps are notes.

Viewers refuse diagrams of more than 50,000 characters, so a longer one is cut, with a note. All
text of a trace follows a number or a colon, with special characters as entities. It thus cannot
form a statement, a comment or a directive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.model.documents import one_line
from tidegate.sim.runs.exports.text import cut
from tidegate.sim.trace.trace import Done, Trace, TraceStep

CHARACTERS_MAX: Final = 50_000
_TEXT_MAX: Final = 160
_ENTITIES: Final = str.maketrans({char: f"#{ord(char)};" for char in "#;<>&%$"})
_IN_NAMES: Final = str.maketrans({":": "#58;"})
_ASIDE: Final = frozenset({"clock", "notes"})
"""Effects on these are notes, because they involve no other process."""
_LOST: Final = frozenset({"unsent", "dropped"})
_REPLY_LOST: Final = "lost_reply"
_LATE: Final = "late"


def mermaid(trace: Trace) -> str:
    names = {mover.name: f"p{number}" for number, mover in enumerate(trace.movers)}
    places = dict.fromkeys(done.on for step in trace.steps for done in _asked(step))
    names_of_places = {on: f"s{number}" for number, on in enumerate(places)}
    moving = {step.process for step in trace.steps}
    lines = ["sequenceDiagram"]
    lines += [
        f"  participant {key} as {_said(name).translate(_IN_NAMES)}" for name, key in names.items() if name in moving
    ]
    lines += [
        f"  participant {key} as {_said('/'.join(on)).translate(_IN_NAMES)}" for on, key in names_of_places.items()
    ]
    first = next((key for name, key in names.items() if name in moving), "")
    broken = [f"  Note over {first}: breaks the law {_said(trace.law)}"] if trace.law and first else []
    left = CHARACTERS_MAX - sum(len(line) + 1 for line in (*lines, *broken)) - _TEXT_MAX
    for number, step in enumerate(trace.steps, 1):
        arrows = list(_drawn(number, step, names, names_of_places))
        left -= sum(len(line) + 1 for line in arrows)
        if left < 0:
            rest = f"  Note over {first}: {len(trace.steps) - number + 1} more steps are left out"
            return "\n".join([*lines, rest, *broken]) + "\n"
        lines += arrows
    return "\n".join([*lines, *broken]) + "\n"


def _drawn(number: int, step: TraceStep, names: dict[str, str], places: dict[tuple[str, ...], str]) -> Iterator[str]:
    who = names.get(step.process, "")
    if not who:
        return
    fault = f" [{step.fault}]" if step.fault else ""
    if not _asked(step):
        yield f"  Note over {who}: {number}. {_said(step.event + fault)}"
    for done in _asked(step):
        yield from _arrow(f"{number}. {_said(done.what + fault)}", step.fault, who, places[done.on], done)


def _asked(step: TraceStep) -> list[Done]:
    return [done for done in step.effects if done.on and done.on[0] not in _ASIDE]


def _arrow(text: str, fault: str, who: str, place: str, done: Done) -> Iterator[str]:
    if fault in _LOST:
        yield f"  {who}-x{place}: {text}"
        return
    yield f"  {who}{'-)' if fault == _LATE else '->>'}{place}: {text}"
    if fault == _REPLY_LOST:
        yield f"  {place}--x{who}: {_said(done.reply)}"
    elif done.reply and fault != _LATE:
        yield f"  {place}-->>{who}: {_said(done.reply)}"


def _said(words: str) -> str:
    """The words as diagram text: one line, cut, special characters as entities; a dash if empty."""
    return cut(one_line(words), _TEXT_MAX).translate(_ENTITIES).strip() or "-"
