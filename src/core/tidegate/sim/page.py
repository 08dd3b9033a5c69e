r"""The page of a run: one HTML file that explains it, from any disk, offline, for as long as there are browsers.

It has a head (the law as a sentence, the facts, the commands that replay the run), a strip a law, a lane a process, and
for the step that is looked at what it changed, the state, what else could have happened, and what it depends on. The
states are not stored: the page carries the encoded trace and builds them from the first one and the patches, as a replay
does. Where scripts do not run, it shows the trace as text.

What a trace says is hostile: names, keys and payloads come from whoever wrote the scenario, or sent the records that a
recorded run met. So it takes three ways into the page and no other: as text that is escaped here, as JSON in which no
character can end the element that holds it, and from there through the script, which sets text and never markup. If all
that failed, the policy in the head would still let nothing run and nothing load but the style and the script of this
module, named by their hashes. Characters that cannot be seen, or that turn the direction of what follows them, are
written out as `\u202e`, as `tidegate.model.documents.show` does.

Laws
    G1  the page carries the trace: its one JSON element, decoded, is exactly the trace; of a run of more than STEPS_MAX
        steps, those around the violation, and where they stand in it.
    G2  nothing that a trace says becomes markup: elements and attributes are the same for every trace.
    G3  the page runs its own script, applies its own style and loads nothing: the policy names both by their hashes,
        and there is no other script, no handler, no reference and no address.
    G4  without scripts the page tells the story of the trace, character by character, invisible ones written out.
    G5  the page of a trace is always the same text, and it has a UTF-8 form.

After Porcupine and simloop, which write one file a history; theirs show no state. After Spectacle and the explorer of
Stateright, which show states and properties; theirs need a server or an interpreter. We differ: the state is rebuilt at
every step, and what changed comes first, for finding it by eye is what users of model checkers complain about most.

Known not to work: what is written out looks like a text that has a backslash there; the JSON tells them apart. A file
name with invisible characters is written out as well, so its command does not find it. On paper there are the rows
around the chosen step, no more than fit on one sheet.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from itertools import islice
from typing import Final, TypeAlias, cast

from tidegate.model.documents import one_line
from tidegate.model.patches import Json, to_json
from tidegate.sim.page_code import SCRIPT, STYLE
from tidegate.sim.page_code.furniture import FRAME, HELP, INK, REASONS
from tidegate.sim.rendering import render
from tidegate.sim.trace import Trace
from tidegate.sim.trace_json import SCHEMA, encoded

STEPS_MAX: Final = 20_000
"""A page holds no more steps; of a longer run it holds those around the violation."""

PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
"""What no shell reads as anything else."""

IN_SCRIPT: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})
"""JSON that holds none of these ends no element and opens no comment."""

Object: TypeAlias = dict[str, Json]


def page(trace: Trace, file: str, also: str = "") -> str:
    """The page of one run.

    Args:
        trace: The run.
        file: What the encoded trace is called where the page is read; it goes into the command that replays it.
        also: Another command that replays it, such as one of pytest; "" for none.

    Returns:
        An HTML document; it says that it is UTF-8.
    """
    return page_of(windowed(trace), render(trace), file, also)


def page_of(told: Object, text: str, file: str, also: str = "") -> str:
    """The page of an encoded trace, and of the same as text for where no script runs."""
    law = law_of(told)
    commands = [("command", f"tidegate replay {quoted(file)}")]
    if also:
        commands.append(("also", also))
    copied = "".join(
        f'<code id="{name}">{line(command)}</code>\n<button type="button" data-copies="{name}" aria-live="polite">Copy</button>\n'
        for name, command in commands
    )
    facts = "".join(f"<div><dt>{term}</dt><dd>{line(fact)}</dd></div>\n" for term, fact in facts_of(told))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{line(law or text_in(told, "meta", "scenario"))} (tidegate)</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<div>
<p class="verdict">{verdict_of(told)}</p>
<h1>{line(law or "Every law holds in this run")}</h1>
</div>
<div class="replay">
{copied}<button type="button" id="save">Save trace</button></div>
<dl class="facts">
{facts}</dl>
</header>
<svg id="ink" hidden>
{INK}
</svg>
<dialog id="help" class="help" aria-label="Keys and signs">
{HELP}
</dialog>
<p id="reason" hidden>{REASONS.get(text_in(told, "meta", "policy"), "")}</p>
<p class="undrawn">The lanes and states of this page are drawn by its script, which has not run here.</p>
<main>
{FRAME}
</main>
<noscript><pre>
{escape(text)}</pre></noscript>
<script type="application/json" id="trace">{in_script(told)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def windowed(trace: Trace, most: int = STEPS_MAX, step: int = 0) -> Object:
    """The encoded trace; of a longer one, the steps around the violation, from the state in which they begin.

    Args:
        trace: The run.
        most: How many steps there may be.
        step: The one that must be among them; 0 for the last one.
    """
    told = encoded(trace)
    count = len(trace.steps)
    if count <= most:
        return told
    step = step or count
    last = min(count, max(most, step + most // 4))
    first = last - most
    return (
        told
        | {
            "schema": f"{SCHEMA}/window",  # nothing replays a part of a run
            "initial": to_json(next(islice(trace.states(), first, None))),
            "steps": cast("list[Json]", told["steps"])[first:last],
            "window": {"first": first + 1, "last": last, "of": count},
            "passing": None,
            "original": None,
        }
    )


def found_in(told: Json, *names: str) -> Json:
    """The member of a member of an object; None where there is none."""
    for name in names:
        told = told.get(name) if isinstance(told, dict) else None
    return told


def text_in(told: Json, *names: str) -> str:
    found = found_in(told, *names)
    return found if isinstance(found, str) else ""


def number_in(told: Json, *names: str) -> int:
    found = found_in(told, *names)
    return found if isinstance(found, int) else 0


def steps_in(told: Json) -> list[Json]:
    found = found_in(told, "steps")
    return found if isinstance(found, list) else []


def law_of(told: Object) -> str:
    return text_in(told, "verdict", "law")


BREACHES: Final = {
    "liveness": "Law broken at rest, after step {}",
    "deadlock": "Deadlock after step {}",
    "livelock": "Livelock from step {}",
    "error": "A program raised at step {}",
    "linearizability": "History without an order, at step {}",
}


def verdict_of(told: Object) -> str:
    kind, step = text_in(told, "verdict", "kind"), number_in(told, "verdict", "step") or len(steps_in(told))
    if not law_of(told) and kind in {"", "none"}:
        return "No law broken"
    loop = number_in(told, "verdict", "loop")
    said = BREACHES.get(kind, "Law broken at step {}").format(f"{step - loop + 1 if loop else step:,}")
    why = text_in(told, "verdict", "why")
    return f"{said}: {line(why)}" if why else said


def facts_of(told: Object) -> tuple[tuple[str, str], ...]:
    """What the head says of the run, by term."""
    struck = found_in(told, "meta", "faults")
    counts = struck.items() if isinstance(struck, dict) else ()
    faults = ", ".join(kind if count == 1 else f"{kind}, {count} times" for kind, count in counts)
    return (
        ("Scenario", ": ".join(filter(None, (text_in(told, "meta", "scenario"), text_in(told, "meta", "summary"))))),
        ("Steps", length_of(told)),
        ("Faults", faults or "none"),
        ("Time", text_in(told, "meta", "time")),
        ("Schedule", text_in(told, "meta", "policy") or "not told"),
        ("Seed", text_in(told, "meta", "seed") or "none: every schedule was searched"),
        ("Written by", ", ".join(filter(None, versions_of(told)))),
    )


def length_of(told: Object) -> str:
    count, before = len(steps_in(told)), len(steps_in(found_in(told, "original")))
    if of := number_in(told, "window", "of"):
        first, last = number_in(told, "window", "first"), number_in(told, "window", "last")
        return f"{of:,}, of which this page holds {first:,} to {last:,}"
    return f"{count:,}, {before:,} before shrinking" if before else f"{count:,}"


def versions_of(told: Object) -> Iterator[str]:
    yield f"tidegate {text_in(told, 'meta', 'versions', 'tidegate')}"
    if python := text_in(told, "meta", "versions", "python"):
        yield f"Python {python}"
    yield text_in(told, "schema")


def in_script(told: Object) -> str:
    """The encoded trace as JSON that any element can hold; all of it is ASCII."""
    return json.dumps(told, separators=(",", ":")).translate(IN_SCRIPT)


def line(text: str) -> str:
    """A text on one line, as HTML."""
    return escape(one_line(text))


def quoted(file: str) -> str:
    """The file's name as one word of a POSIX shell."""
    return file if file and PLAIN.issuperset(file) else "'" + file.replace("'", "'\"'\"'") + "'"


def fingerprint(text: str) -> str:
    """How a policy names a script or a style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src {fingerprint(STYLE)}",
        f"script-src {fingerprint(SCRIPT)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
