r"""The page of a run: one offline HTML file that explains it.

It shows the law, the facts, the replay commands, a strip per law and a lane per process. For the
chosen step it shows changes, state, alternatives and dependencies. The script rebuilds states from
the first one and the patches, as a replay does. Without scripts the page shows the trace as text.

A trace is hostile: names, keys and payloads come from the scenario's author, or from recorded data.
It enters the page in three ways only: as escaped text, as JSON that cannot end its element, and as
text that the script sets. As a second defence the policy allows only the page's own style and
script, by hash. Invisible and direction-changing characters are written out as `\u202e`, as in
`tidegate.model.documents.show`.

Laws
    G1  the page carries the trace: its one JSON element, decoded, is exactly the trace; of a run of
        more than STEPS_MAX steps, the steps around the violation, and their place.
    G2  no text of a trace becomes markup: elements and attributes are the same for every trace.
    G3  the page runs its own script, applies its own style and loads nothing: the policy names both
        by their hashes. There is no other script, no handler, no reference and no address.
    G4  without scripts the page shows the story of the trace, character by character, invisible
        ones written out.
    G5  the page of a trace is always the same text, and it has a UTF-8 form.

Known not to work: a written-out character looks like a text with a backslash; the JSON
distinguishes them. The command for a file name with invisible characters does not find the file.
Printing shows only the rows around the chosen step.
"""

from __future__ import annotations

from html import escape
from typing import Final

from tidegate.model.documents import one_line
from tidegate.sim.trace.page import PageData, page_data
from tidegate.sim.trace.trace import PolicyName, Trace
from tidegate_adapters.page.parts import frame, policy, script_of, style_of

MODULES: Final = (
    "values",
    "dom",
    "elements",
    "runs",
    "lanes",
    "view",
    "search",
    "layout",
    "rows",
    "diagram",
    "timeline",
    "overview",
    "detail",
    "compare",
    "controls",
    "main",
)
"""The script modules, in the order of their imports."""

_SHEETS: Final = ("base", "page")

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
_IN_SCRIPT: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})
"""Without these characters JSON ends no element and opens no comment."""


def page(trace: Trace, file: str, also: str = "") -> str:
    """The page of one run, to be stored as UTF-8; `file` and `also` are for its replay commands."""
    return page_of(page_data(trace), file, also, is_recorded=trace.policy is PolicyName.RECORDED)


def page_of(data: PageData, file: str, also: str = "", *, is_recorded: bool = False) -> str:
    """Only the command `also` replays a recorded run."""
    commands = [("command", also if also and is_recorded else f"tidegate replay {_quoted(file)}")]
    if also and not is_recorded:
        commands.append(("also", also))
    return frame("page").substitute(
        policy=policy(style(), script(), "form-action 'none'"),
        style=style(),
        script=script(),
        title=_line(data.title),
        verdict=_line(data.verdict),
        heading=_line(data.heading),
        commands="".join(
            f'<code id="{name}">{_line(command)}</code>\n<button type="button" data-copies="{name}" aria-live="polite">Copy</button>\n'
            for name, command in commands
        ),
        facts="".join(f"<div><dt>{term}</dt><dd>{_line(fact)}</dd></div>\n" for term, fact in data.facts),
        reason=_line(data.reason),
        story=escape(data.story),
        trace=data.trace.translate(_IN_SCRIPT),
    )


def script() -> str:
    return script_of(MODULES)


def style() -> str:
    return style_of(_SHEETS)


def _line(text: str) -> str:
    return escape(one_line(text))


def _quoted(file: str) -> str:
    return file if file and _PLAIN.issuperset(file) else "'" + file.replace("'", "'\"'\"'") + "'"
