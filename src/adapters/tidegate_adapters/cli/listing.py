"""`tidegate list` and `tidegate diagram`: what ships, or stands in a file, in words and as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.catalogue import CATALOGUE
from tidegate.exit_codes import ExitCode
from tidegate.invocations.diagrams import mermaid
from tidegate.invocations.invocation import INVOCATION
from tidegate.sim.shipping import Specimen
from tidegate_adapters.printable import one_line
from tidegate_adapters.shell.terminal import Terminal
from tidegate_adapters.targets import Target, there

__all__ = ["draw", "list_all"]


def list_all(texts: Sequence[str], terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Tell name, kind, expectation, scopes and summary of scenarios; of a specimen also its source.

    Args:
        texts: Targets, and files with scenarios; none for all that ship.
        terminal: Where it is shown.
        is_json: Answer with one JSON object.

    Raises:
        TidegateError: There is no such scenario, or it cannot be loaded.
    """
    targets: list[Target] = []
    for text in texts or CATALOGUE:
        found, silent = there(text)
        targets += found
        if silent:
            named = ", ".join(f"{text}:{name}" for name in silent)
            terminal.tell(f"not called, for no annotation says that they make a Scenario: {one_line(named)}")
    rows = {target.identity: _row(target) for target in targets}
    if is_json:
        terminal.answer({"schema": "tidegate/list@1", "scenarios": list(rows.values()), "ok": True})
        return ExitCode.OK
    width = max(map(len, rows), default=0)
    for target in targets:
        expect = "clean" if target.scenario.expect is None else "violated"
        scopes, kind = " ".join(_scopes(target)), target.scenario.kind
        line = f"{target.identity:<{width}}  {kind:<8}  {expect:<8}  {scopes:<22}  {target.scenario.summary}"
        terminal.say(one_line(line))
    return ExitCode.OK


def _row(target: Target) -> dict[str, object]:
    scenario, ships = target.scenario, CATALOGUE.get(target.identity)
    specimen = ships if isinstance(ships, Specimen) else None
    return {
        "name": target.identity,
        "kind": scenario.kind.value,
        "expect": "clean" if scenario.expect is None else "violated",
        "law": scenario.expect,
        "scopes": list(_scopes(target)),
        "summary": scenario.summary,
        "of": specimen.of if specimen else None,  # the design that it is a variant of
        "source": specimen.source if specimen else None,  # where the bug was seen
    }


def _scopes(target: Target) -> Sequence[str]:
    """What does not ship has but one scope, and no name for it."""
    return CATALOGUE[target.identity].scopes if target.identity in CATALOGUE else ()


def draw(name: str, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Draw the table of that name."""
    drawn = mermaid({"invocation": INVOCATION}[name])
    if is_json:
        terminal.answer({"schema": "tidegate/diagram@1", "name": name, "mermaid": drawn, "ok": True})
    else:
        terminal.say(drawn.rstrip("\n"))
    return ExitCode.OK
