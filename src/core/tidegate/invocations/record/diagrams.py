"""A status table as a Mermaid state diagram, drawn from the table itself.

Equal tables give equal text: states in the order of the table, edges in the order of names. A
status that is not a plain word, or is a Mermaid keyword, appears by its number. Labels are escaped,
so that no status breaks the diagram, or a page that shows it.
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.record.status import StatusDefinition, StatusTable
from tidegate.model.values import check_type

LEGEND: Final = (
    "available: a runner may pick it up",
    "requires: only the owner leaves",
    "acquires: the runner becomes the owner",
    "releases: nobody owns it any more",
    "overrides: entered by anybody, whoever owns it",
)

KEYWORDS: Final = frozenset({"class", "classdef", "default", "end", "note", "scale", "state", "statediagram"})
"""Words that begin a statement of Mermaid's state diagrams, in any case."""


def mermaid(table: StatusTable) -> str:
    """Draw `table` as a `stateDiagram-v2`.

    Each status is a state whose label names its flags. Final ones lead to the end; initial ones
    come
    from the start.

    Args:
        table: The table.

    Returns:
        Lines, each with a newline at its end.

    Raises:
        Misuse: It is not a table.
    """
    check_type(table, StatusTable, "a table of statuses")
    alias = {each.status: _identifier(number, each.status) for number, each in enumerate(table.definitions)}
    lines = ["stateDiagram-v2", *(f"    %% {line}" for line in LEGEND)]
    lines += [f'    state "{_label(each)}" as {alias[each.status]}' for each in table.definitions]
    lines += [f"    [*] --> {alias[status]}" for status in sorted(table.initial)]
    for each in table.definitions:
        lines += [f"    {alias[each.status]} --> {alias[target]}" for target in sorted(each.targets)]
        if each.final:
            lines.append(f"    {alias[each.status]} --> [*]")
    return "\n".join([*lines, ""])


def _identifier(number: int, status: str) -> str:
    plain = status.isascii() and status.isidentifier() and status.lower() not in KEYWORDS
    return status if plain else str(number)


def _label(definition: StatusDefinition) -> str:
    flags = {
        "available": definition.available,
        "requires": definition.requires_owner,
        "acquires": definition.acquires_owner,
        "releases": definition.releases_owner,
        "overrides": definition.overrides_owner,
    }
    listed = ", ".join(flag for flag, is_set in flags.items() if is_set)
    return _escaped(definition.status) + (f" ({listed})" if listed else "")


def _escaped(text: str) -> str:
    return "".join(char if char.isalnum() or char == "_" else f"#{ord(char)};" for char in text)
