"""The laws of `tidegate.invocations.record.status` as predicates: over a record, or a step of one.

A step that changes nothing keeps every law. A status that the table does not know is Misuse, as everywhere.
"""

from __future__ import annotations

from tidegate.invocations.record.status import StatusRecord, StatusTable


def nothing_leaves_a_final_status(table: StatusTable, before: StatusRecord | None, after: StatusRecord) -> bool:
    """Law S1: nothing leaves a final status."""
    return before is None or not table[before.status].final or after == before


def owned_as_the_table_says(table: StatusTable, record: StatusRecord) -> bool:
    """Law S2: a record has an owner where its status acquires or requires one, and none where it releases it."""
    definition = table[record.status]
    if definition.acquires_owner or definition.requires_owner:
        return record.owner is not None
    return record.owner is None or not definition.releases_owner


def only_the_owner_leaves(
    table: StatusTable, before: StatusRecord | None, after: StatusRecord, runner: str | None
) -> bool:
    """Law S3: only the owner leaves a status that requires it, unless the status entered overrides ownership."""
    if before is None or after == before or not table[before.status].requires_owner:
        return True
    return table[after.status].overrides_owner or (runner is not None and runner == before.owner)


def each_change_makes_one_version(before: StatusRecord | None, after: StatusRecord) -> bool:
    """Law S4: every accepted transition makes exactly one version; the first is 1."""
    return after == before or after.version == 1 + (0 if before is None else before.version)


def only_edges_are_taken(table: StatusTable, before: StatusRecord | None, after: StatusRecord) -> bool:
    """Law S5: only edges of the table are taken."""
    return after == before or after.status in table.following(None if before is None else before.status)
