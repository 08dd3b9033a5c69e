r"""The page of a run: one HTML file that explains it, from any disk, offline, for as long as there are browsers.

It has a head (the law as a sentence, the facts, the commands that replay the run), a strip a law, a lane a process, and
for the step that is looked at what it changed, the state, what else could have happened, and what it depends on. The
states are not stored: the page carries the encoded trace and builds them from the first one and the patches, as a replay
does. Where scripts do not run, it shows the trace as text.

What a trace says is hostile: names, keys and payloads come from whoever wrote the scenario, or sent the records that a
recorded run met. So it takes three ways into the page and no other: as text that is escaped here, as JSON in which no
character can end the element that holds it, and from there through the script, which sets text and never markup. If all
that failed, the policy in the head would still let nothing run and nothing load but the page's own style and script,
named by their hashes. Characters that cannot be seen, or that turn the direction of what follows them, are written out as
`\u202e`, as `tidegate.model.documents.show` does.

Laws
    G1  the page carries the trace: its one JSON element, decoded, is exactly the trace; of a run of more than STEPS_MAX
        steps, those around the violation, and where they stand in it.
    G2  nothing that a trace says becomes markup: elements and attributes are the same for every trace.
    G3  the page runs its own script, applies its own style and loads nothing: the policy names both by their hashes,
        and there is no other script, no handler, no reference and no address.
    G4  without scripts the page tells the story of the trace, character by character, invisible ones written out.
    G5  the page of a trace is always the same text, and it has a UTF-8 form.

Known not to work: what is written out looks like a text that has a backslash there; the JSON tells them apart. A file
name with invisible characters is written out as well, so its command does not find it. On paper there are the rows
around the chosen step, no more than fit on one sheet.
"""

from __future__ import annotations

from html import escape
from typing import Final

from tidegate.model.documents import one_line
from tidegate.sim.page import PageData, page_data
from tidegate.sim.trace import PolicyName, Trace
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
"""The modules of the script, each behind those that it imports."""

_SHEETS: Final = ("base", "page")

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
"""What no shell reads as anything else."""

_IN_SCRIPT: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})
"""JSON that holds none of these ends no element and opens no comment."""


def page(trace: Trace, file: str, also: str = "") -> str:
    """The page of one run.

    Args:
        trace: The run.
        file: What the encoded trace is called where the page is read; it goes into the command that replays it.
        also: Another command that replays it, such as one of pytest; "" for none.

    Returns:
        An HTML document; it says that it is UTF-8.
    """
    return page_of(page_data(trace), file, also, is_recorded=trace.policy is PolicyName.RECORDED)


def page_of(data: PageData, file: str, also: str = "", *, is_recorded: bool = False) -> str:
    """The page that shows this; what was recorded elsewhere than in a scenario is run again by the other command alone."""
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
    """The whole script."""
    return script_of(MODULES)


def style() -> str:
    """The whole style."""
    return style_of(_SHEETS)


def _line(text: str) -> str:
    """A text on one line, as HTML."""
    return escape(one_line(text))


def _quoted(file: str) -> str:
    """The file's name as one word of a POSIX shell."""
    return file if file and _PLAIN.issuperset(file) else "'" + file.replace("'", "'\"'\"'") + "'"
