r"""The page of a run: one HTML file that explains it, from any disk, offline, for as long as there are browsers.

It has a head (the law as a sentence, the facts, the command that replays the run), a lane a process, and for the step
that is looked at what it changed and the whole state. The states are not stored: the page carries the encoded trace and
builds them from the first one and the patches, as a replay does. Where scripts do not run, it shows the trace as text.

What a trace says is hostile: names, keys and payloads come from whoever wrote the scenario, or sent the records that a
recorded run met. So it takes three ways into the page and no other: as text that is escaped here, as JSON in which no
character can end the element that holds it, and from there through the script, which sets text and never markup. If all
that failed, the policy in the head would still let nothing run and nothing load but the style and the script of this
module, named by their hashes. Characters that cannot be seen, or that turn the direction of what follows them, are
written out as `\u202e`, as `tidegate.documents.show` does.

Laws
    G1  the page carries the trace: its one JSON element, decoded, is exactly the trace.
    G2  nothing that a trace says becomes markup: elements and attributes are the same for every trace.
    G3  the page runs its own script, applies its own style and loads nothing: the policy names both by their hashes,
        and there is no other script, no handler, no reference and no address.
    G4  without scripts the page tells the story of the trace, character by character, invisible ones written out.
    G5  the page of a trace is always the same text, and it has a UTF-8 form.

After Porcupine and simloop, which write one file a history; theirs show no state. We differ: the state is rebuilt at every
step, and what changed comes first, for finding it by eye is what users of model checkers complain about most.

Known not to work: what is written out looks like a text that has a backslash there; the JSON tells them apart. A file
name with invisible characters is written out as well, so its command does not find it. All steps are elements of the
page, so it is slow beyond some thousands of them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html import escape
from typing import Final

from tidegate.documents import one_line
from tidegate.sim.page_assets import SCRIPT, STYLE
from tidegate.sim.story import story
from tidegate.sim.trace import Trace
from tidegate.sim.trace_json import SCHEMA, encoded

PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
"""What no shell reads as anything else."""

IN_SCRIPT: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})
"""JSON that holds none of these ends no element and opens no comment."""


def page(trace: Trace, file: str) -> str:
    """The page of one run.

    Args:
        trace: The run.
        file: What the encoded trace is called where the page is read; it goes into the command that replays it.

    Returns:
        An HTML document; it says that it is UTF-8.
    """
    verdict = f"Law broken at step {len(trace.steps)}" if trace.law else "No law broken"
    facts = "".join(f"<div><dt>{term}</dt><dd>{told(fact)}</dd></div>\n" for term, fact in facts_of(trace))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{told(trace.law or trace.scenario)} (tidegate)</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<p class="verdict">{verdict}</p>
<h1>{told(trace.law or "Every law holds in this run")}</h1>
<dl>
{facts}</dl>
<div class="replay"><code id="command">{told(f"tidegate replay {quoted(file)}")}</code>
<button type="button" id="copy" aria-live="polite">Copy command</button>
<button type="button" id="save">Save trace</button></div>
{LEGEND}
</header>
<main id="main"><p>The lanes and states of this page are drawn by its script, which has not run here.</p></main>
<noscript><pre>
{escape(story(trace))}</pre></noscript>
<script type="application/json" id="trace">{carried(trace)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def facts_of(trace: Trace) -> tuple[tuple[str, str], ...]:
    """What the head says of the run, by term."""
    struck = Counter(step.fault for step in trace.steps if step.fault)
    faults = ", ".join(kind if count == 1 else f"{kind}, {count} times" for kind, count in struck.items())
    return (
        ("Scenario", trace.scenario),
        ("Verdict", "violated" if trace.law else "no law is broken"),
        ("Steps", str(len(trace.steps))),
        ("Faults", faults or "none"),
        ("Time", trace.time),
        ("Seed", trace.seed or "none: every schedule was searched"),
        ("Written by", f"tidegate {trace.version}, {SCHEMA}"),
    )


def carried(trace: Trace) -> str:
    """The encoded trace as JSON that any element can hold; all of it is ASCII."""
    return json.dumps(encoded(trace), separators=(",", ":")).translate(IN_SCRIPT)


def told(text: str) -> str:
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

LEGEND: Final = """<details class="legend"><summary>How to read this page</summary>
<p>Time runs downwards, one row a step, one lane a process. Choose a step to see what it changed and the state after it:
click it, or press <kbd>j</kbd> and <kbd>k</kbd> or the arrow keys; <kbd>Home</kbd> and <kbd>End</kbd> in the lanes.</p>
<p>A thick lane: the process says something of itself, such as that it holds a lock. A dotted lane: it has crashed.
A thin one: it has ended. A diamond marks a fault, a square with a cross the step that breaks the law.
In what changed, <b>+</b> is added, <b>\u2212</b> removed, <b>~</b> replaced; in the state, these marks stand where it
changed, and a dot where it changed further inside.</p></details>"""
