"""`tidegate list` and `tidegate diagram`: what ships, in words and as a picture."""

from __future__ import annotations

from tidegate.diagrams import mermaid
from tidegate.exit_codes import ExitCode
from tidegate.invocation import INVOCATION
from tidegate.scenarios.catalogue import CATALOGUE
from tidegate_adapters.cli.console import Terminal


def list_all(terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Tell name, kind, expectation and summary of every scenario that ships."""
    rows = [
        {
            "name": name,
            "kind": scenario.kind.value,
            "expect": "clean" if scenario.expect is None else "violated",
            "law": scenario.expect,
            "summary": scenario.summary,
        }
        for name, scenario in ((name, make()) for name, make in CATALOGUE.items())
    ]
    if is_json:
        terminal.answer({"schema": "tidegate/list@1", "scenarios": rows, "ok": True})
        return ExitCode.OK
    width = max(map(len, CATALOGUE))
    for row in rows:
        terminal.say(f"{row['name']:<{width}}  {row['kind']:<8}  {row['expect']:<8}  {row['summary']}")
    return ExitCode.OK


def draw(name: str, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Draw the table of that name."""
    drawn = mermaid({"invocation": INVOCATION}[name])
    if is_json:
        terminal.answer({"schema": "tidegate/diagram@1", "name": name, "mermaid": drawn, "ok": True})
    else:
        terminal.say(drawn.rstrip("\n"))
    return ExitCode.OK
