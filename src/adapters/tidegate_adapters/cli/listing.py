"""`tidegate list` and `tidegate diagram`: scenarios that ship, or those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from tidegate.catalogue import CATALOGUE
from tidegate.exit_codes import ExitCode
from tidegate.invocations.record.diagrams import mermaid
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.sim.runs.registry import Shipped, Specimen
from tidegate.sim.scenario import Kind
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.exploring.targets import Target, there
from tidegate_adapters.shell.terminal import Terminal


def list_all(texts: Sequence[str], terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Print scenarios; of a specimen also its source."""
    rows: list[_Row] = []
    for text in texts or CATALOGUE:
        if text in CATALOGUE:
            rows.append(_shipped(CATALOGUE[text]))
            continue
        found, silent = there(text)
        rows += map(_found, found)
        if silent:
            named = ", ".join(f"{text}:{name}" for name in silent)
            terminal.tell(f"not called, for no annotation says that they make a Scenario: {one_line(named)}")
    if is_json:
        named_once = {row["name"]: row for row in rows}
        terminal.answer({"schema": "tidegate/list@1", "scenarios": list(named_once.values()), "ok": True})
        return ExitCode.OK
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        scopes, summary = " ".join(row["scopes"]), row["summary"]
        terminal.say(one_line(f"{row['name']:<{width}}  {row['kind']:<8}  {row['expect']:<8}  {scopes:<22}  {summary}"))
    return ExitCode.OK


class _Row(TypedDict):
    name: str
    kind: str
    expect: str
    law: str | None
    scopes: Sequence[str]
    summary: str
    of: str | None
    source: str | None


def _shipped(ships: Shipped | Specimen) -> _Row:
    """The faulty program of a specimen is not made."""
    law, of, source = (ships.law, ships.of, ships.source) if isinstance(ships, Specimen) else (None, None, None)
    row = _row(ships.name, Kind.DESIGN if law is None else Kind.SPECIMEN, law, ships.summary)
    return {**row, "scopes": list(ships.scopes), "of": of, "source": source}


def _found(target: Target) -> _Row:
    """A user's scenario has one unnamed scope."""
    if target.identity in CATALOGUE:
        return _shipped(CATALOGUE[target.identity])
    return _row(target.identity, target.scenario.kind, target.scenario.expect, target.scenario.summary)


def _row(name: str, kind: Kind, law: str | None, summary: str) -> _Row:
    return {
        "name": name,
        "kind": kind.value,
        "expect": "clean" if law is None else "violated",
        "law": law,
        "scopes": [],
        "summary": summary,
        "of": None,  # the design that it varies
        "source": None,  # where the bug was seen
    }


def draw(name: str, terminal: Terminal, *, is_json: bool) -> ExitCode:
    drawn = mermaid({"invocation": INVOCATION}[name])
    if is_json:
        terminal.answer({"schema": "tidegate/diagram@1", "name": name, "mermaid": drawn, "ok": True})
    else:
        terminal.say(drawn.rstrip("\n"))
    return ExitCode.OK
