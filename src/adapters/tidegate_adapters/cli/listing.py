"""`tidegate list` and `tidegate diagram`: what ships, in words and as a picture."""

from __future__ import annotations

from tidegate.catalogue import CATALOGUE
from tidegate.exit_codes import ExitCode
from tidegate.invocations.diagrams import mermaid
from tidegate.invocations.invocation import INVOCATION
from tidegate.sim.shipping import Shipped, Specimen
from tidegate_adapters.cli.console import Terminal

__all__ = ["draw", "list_all"]


def list_all(terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Tell name, kind, expectation, scopes and summary of every scenario that ships; of a specimen also its source."""
    made = {name: each.scenario() for name, each in CATALOGUE.items()}
    rows = [
        {
            "name": name,
            "kind": scenario.kind.value,
            "expect": "clean" if scenario.expect is None else "violated",
            "law": scenario.expect,
            "scopes": list(CATALOGUE[name].scopes),
            "summary": scenario.summary,
            **_origin(CATALOGUE[name]),
        }
        for name, scenario in made.items()
    ]
    if is_json:
        terminal.answer({"schema": "tidegate/list@1", "scenarios": rows, "ok": True})
        return ExitCode.OK
    width = max(map(len, CATALOGUE))
    for name, scenario in made.items():
        expect = "clean" if scenario.expect is None else "violated"
        scopes = " ".join(CATALOGUE[name].scopes)
        terminal.say(f"{name:<{width}}  {scenario.kind:<8}  {expect:<8}  {scopes:<22}  {scenario.summary}")
    return ExitCode.OK


def _origin(each: Shipped | Specimen) -> dict[str, object]:
    """Of a specimen: where the bug was seen, and the design that it is a variant of."""
    return {"of": each.of, "source": each.source} if isinstance(each, Specimen) else {"of": None, "source": None}


def draw(name: str, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Draw the table of that name."""
    drawn = mermaid({"invocation": INVOCATION}[name])
    if is_json:
        terminal.answer({"schema": "tidegate/diagram@1", "name": name, "mermaid": drawn, "ok": True})
    else:
        terminal.say(drawn.rstrip("\n"))
    return ExitCode.OK
