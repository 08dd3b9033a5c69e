"""The parts of a page that are the same for every run: its signs, its controls, its help.

They are markup, hidden until the script has run, and know nothing of a trace. A button names the key that does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STEPS: Final = MappingProxyType(
    {
        "read": "M8 3v9M4.5 8.5 8 12l3.5-3.5",
        "write": "M3 13l.8-3L11 2.8 13.2 5 6 12.2z",
        "insert": "M8 3v10M3 8h10",
        "delete": "M3 8h10",
        "sleep": "M5 3.5h6L5 12.5h6",
        "note": "M4.5 14V3h8l-2.5 2.8 2.5 2.7h-8",
        "call": "M6 2.5C3 5.5 3 10.5 6 13.5M10 2.5c3 3 3 8 0 11",
        "fetch": "M8 2v7M5 6.5 8 9.5l3-3M2.5 13.5h11",
        "commit": "M3 8.5 6.5 12 13 4",
        "deliver": "M2.5 4h11v8h-11zM2.5 4.5 8 9l5.5-4.5",
        "crash": "M9.5 1.5 4 9h3.5l-1 5.5L12 7H8.5z",
        "restart": "M13 8a5 5 0 1 1-1.5-3.5M12 1.5v3.3H8.7",
        "time": "M8 4v4.2l3 1.8M8 1.5a6.5 6.5 0 1 0 .01 0",
        "rebalance": "M3 5.5h9.5L10 3M13 10.5H3.5L6 13",
        "other": "M7.5 8h1",
    }
)
"""What a step of each kind looks like, in a square of 16."""

SIGNS: Final = MappingProxyType(
    {
        "hourglass": "M4.5 2.5h7L8 8zM8 8l3.5 5.5h-7z",
        "cross": "M4 4l8 8M12 4l-8 8",
        "first": "M4 3v10M12.5 3 6 8l6.5 5",
        "back": "M10.5 3 5 8l5.5 5",
        "play": "M5 3v10l7-5z",
        "pause": "M5.5 3v10M10.5 3v10",
        "next": "M5.5 3 11 8l-5.5 5",
        "last": "M12 3v10M3.5 3 10 8l-6.5 5",
        "pin": "M5 2h6M6 2v5L4 9.5h8L10 7V2M8 9.5V14",
    }
)

KEYS: Final = MappingProxyType(
    {
        "j k \u2193 \u2191": "next, previous step; with Shift ten",
        "Home End": "the beginning, the end",
        "space": "play, stop",
        "n p": "next, previous violation",
        "f F": "next, previous fault",
        "w W": "next, previous change of the watched path",
        "/": "search; Enter next, Shift Enter previous",
        "d": "only what changed, or the whole state",
        "t": "one row a step, or virtual time",
        "x": "dim what the step does not depend on",
        "m": "the shortest run, or as it was found",
        "v": "compare with the nearest run that passes",
        "h": "hide the lane",
        "c": "copy a link to this step",
        "?": "this help",
    }
)


def icon(path: str) -> str:
    return f'<svg viewBox="0 0 16 16" class="icon" aria-hidden="true"><path class="glyph" d="{path}"></path></svg>'


def button(key: str, does: str, shows: str, more: str = "") -> str:
    named = key.replace(" ", "space")
    return f'<button type="button" data-key="{key}" title="{does} ({named})" aria-label="{does}"{more}>{shows}</button>'


def group(label: str, *buttons: str) -> str:
    return f'<div class="group" role="group" aria-label="{label}">\n' + "\n".join(buttons) + "\n</div>"


def keys(all_keys: Mapping[str, str]) -> str:
    return "\n".join(
        f"<div><dt>{' '.join(f'<kbd>{each}</kbd>' for each in some.split())}</dt><dd>{does}</dd></div>"
        for some, does in all_keys.items()
    )


def frame(controls: str) -> str:
    """Where the script draws, and what it reacts to."""
    return f"""<div class="band">
<div id="controls" class="controls">
{controls}
</div>
<div id="strips" class="strips"></div>
</div>
<div class="work">
<div id="listed" class="lanes">
<p id="notice" class="notice"></p>
<div id="scroller" class="scroller">
<div id="names" class="names"></div>
<div id="rows" class="rows" role="listbox" aria-label="Steps" tabindex="0"><svg id="canvas" class="canvas" aria-hidden="true"></svg></div>
</div>
</div>
<div class="side">
<div id="tabs" class="tabs" role="tablist">
<button type="button" role="tab" aria-controls="detail">This step</button>
<button type="button" role="tab" aria-controls="compared">Compare</button>
</div>
<section id="detail" class="detail" role="tabpanel" aria-label="The chosen step" tabindex="0"></section>
<section id="compared" class="compare" role="tabpanel" aria-label="Compared with the nearest run that passes" tabindex="0"></section>
</div>
</div>"""


INK: Final = "\n".join(f'<path id="sign-{name}" d="{path}"></path>' for name, path in {**STEPS, **SIGNS}.items())

CONTROLS: Final = "\n".join(
    (
        group(
            "Steps",
            button("Home", "First step", icon(SIGNS["first"])),
            button("k", "Previous step", icon(SIGNS["back"])),
            button(" ", "Play, or stop", icon(SIGNS["play"]), ' aria-pressed="false"'),
            button("j", "Next step", icon(SIGNS["next"])),
            button("End", "Last step", icon(SIGNS["last"])),
        ),
        group(
            "Jumps",
            button("n", "Next violation", "\u00d7 violation"),
            button("f", "Next fault", "\u25c6 fault"),
            button("w", "Next change of the watched path", "\u0394 watched"),
        ),
        group(
            "View",
            button("t", "Virtual time, waits folded", "time", ' aria-pressed="false"'),
            button("x", "Dim what this step does not depend on", "causes", ' aria-pressed="false"'),
        ),
        '<div class="group" role="group" aria-label="Run" id="runs"></div>',
        group(
            "Filters",
            '<input id="query" type="search" placeholder="search" aria-label="Search events and values; Enter goes to the next">',
            '<select id="by-process" aria-label="Only steps of a process"></select>',
            '<select id="by-kind" aria-label="Only steps of a kind"></select>',
            '<input id="by-key" type="search" placeholder="key, or 0:17" '
            'aria-label="Only steps at a key, or at a partition and offset such as 0:17">',
        ),
        '<output id="said"></output>',
        button("?", "Keys and signs", "?"),
    )
)

FRAME: Final = frame(CONTROLS)

HELP: Final = f"""<h2>How to read this page</h2>
<p>Time runs downwards, one row a step, one lane a process; the grey lanes are what processes share. An arrow shows what
is done to what. A thick lane: the process says something of itself, such as that it holds a lock. A dotted one: it has
crashed. A thin one: it has ended. A diamond is a fault; a square with a cross breaks a law. An arrow that ends in a cross
was lost; a double head came twice; an hourglass came late.</p>
<p>Above the lanes, a strip a law, a cell a step: a bar where it holds, a line where it is not judged, a cross where it is
broken, a full cell where a goal is reached. In what changed, + is added, \u2212 removed, ~ replaced. The pin beside a path
watches it in all steps. Drag the name of a lane to move it, or press Shift and an arrow on it.</p>
<ul class="signs">
{"".join(f"<li>{icon(path)} {name}</li>" for name, path in STEPS.items())}
</ul>
<dl class="keys">
{keys(KEYS)}
</dl>
<button type="button" id="close">Close</button>"""

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
