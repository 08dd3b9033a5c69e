"""A table of statuses, and the decision whether a record may move to another status.

The table is data: for each status, its possible successors, and the effect of entering and leaving
it on the owner. A decision takes the record as read and a request (runner, target status). It
returns the new record or the reason for a denial. The caller writes it by one compare-and-set on
(status, owner, version), so of all decisions on one version at most one succeeds: optimistic
concurrency control (Kung and Robinson 1981).

Each write leaves its request id in the record; after a lost reply, `tidegate.model.history` finds
the outcome by it.

Laws
    S1  No record leaves a final status.
    S2  A record has an owner where its status acquires or requires one, and none where its status
        releases it.
    S3  Only the owner leaves a status that requires it, unless the new status overrides ownership.
    S4  Every accepted transition makes exactly one version; the first is 1, also of a record that
        had none.
    S5  Only edges of the table are taken.

The checks run in this order: edge, owner, runner, new owner. `Added` marks an edge that the
table's original system lacks, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_int, check_name, check_type, check_types


def _frozen(statuses: Iterable[str]) -> frozenset[str]:
    """The statuses as a set. Misuse for a string, which is also a collection of strings."""
    check_types(statuses, str, "a status")
    for status in statuses:
        _plain(status)
    return frozenset(statuses)


# --- the table --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Added:
    """Marks an edge that the table's original system lacks. Invariant: it has a reason.

    Attributes:
        target: The successor.
        why: Why this edge is needed.
    """

    target: str
    why: str

    def __attrs_post_init__(self) -> None:
        _plain(self.target)
        check_name(self.why, "the reason of an edge")


@final
@attrs.frozen
class StatusDefinition:
    """The rules of a status.

    Invariants: not (acquires_owner and releases_owner); not (requires_owner and overrides_owner);
    final implies no targets; status not in targets; added edges are among the targets, each once.

    Attributes:
        status: Its name.
        targets: The possible successors.
        final: It has no successor.
        available: A runner may pick the record up.
        requires_owner: Only the owner leaves.
        acquires_owner: On entry, the runner becomes the owner.
        releases_owner: On entry, the owner is removed.
        overrides_owner: Any caller may enter it, whoever owns the record.
        added: The edges that the table's original system lacks.
    """

    status: str
    targets: frozenset[str] = attrs.field(default=frozenset[str](), converter=_frozen)
    final: bool = attrs.field(default=False, kw_only=True)
    available: bool = attrs.field(default=False, kw_only=True)
    requires_owner: bool = attrs.field(default=False, kw_only=True)
    acquires_owner: bool = attrs.field(default=False, kw_only=True)
    releases_owner: bool = attrs.field(default=False, kw_only=True)
    overrides_owner: bool = attrs.field(default=False, kw_only=True)
    added: tuple[Added, ...] = attrs.field(default=(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        _plain(self.status)
        for flag in _FLAGS:
            check_type(getattr(self, flag), bool, f"what {flag} of a status is")
        check_type(self.added, tuple, "a tuple of edges")
        check_types(self.added, Added, "an added edge")
        marked = [edge.target for edge in self.added]
        if len(set(marked)) != len(marked) or not self.targets.issuperset(marked):
            raise Misuse(
                f"{_listed(marked)} cannot be the edges added to {self.status!r}",
                why=f"each is marked once, and {_listed(self.targets)} may follow",
            )
        if self.acquires_owner and self.releases_owner:
            raise Misuse(f"{self.status!r} acquires and releases its owner", todo="choose one, or neither to keep it")
        if self.requires_owner and self.overrides_owner:
            raise Misuse(f"{self.status!r} requires its owner and overrides ownership", todo="choose one")
        if self.final and self.targets:
            raise Misuse(
                f"{self.status!r} is final, yet {_listed(self.targets)} may follow", todo="drop one of the two"
            )
        if self.status in self.targets:
            raise Misuse(f"{self.status!r} may follow itself", why="a transition is a change of status")


_FLAGS: Final = ("final", "available", "requires_owner", "acquires_owner", "releases_owner", "overrides_owner")


@final
@attrs.frozen
class StatusTable:
    """All statuses of one kind of record.

    Invariants: each status is defined once; initial statuses and targets are defined; every status
    is
    reachable; a status that requires an owner cannot be entered without one.

    Attributes:
        initial: The statuses in which a new record may begin.
        definitions: The definitions, in reading order.
    """

    initial: frozenset[str] = attrs.field(converter=_frozen)
    definitions: tuple[StatusDefinition, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.definitions, tuple, "a tuple of definitions")
        check_types(self.definitions, StatusDefinition, "the definition of a status")
        edges = {definition.status: definition.targets for definition in self.definitions}
        if len(edges) != len(self.definitions):
            raise Misuse(f"a status is defined twice: {_listed(each.status for each in self.definitions)}")
        if unknown := self.initial.union(*edges.values()) - edges.keys():
            raise Misuse(f"no definition of {_listed(unknown)}", todo="define it, or drop the edges to it")
        if unreachable := edges.keys() - _reachable(edges, self.initial):
            raise Misuse(f"nothing leads to {_listed(unreachable)}", todo="add an edge to it, or drop it")
        acquiring = {each.status for each in self.definitions if each.acquires_owner}
        releasing = {each.status for each in self.definitions if each.releases_owner}
        # What can be entered without an owner: from a start or a release, along edges that do not acquire one.
        ownerless = _reachable(
            {status: targets - acquiring for status, targets in edges.items()}, (self.initial | releasing) - acquiring
        )
        if stuck := frozenset(status for status in ownerless if self[status].requires_owner):
            raise Misuse(
                f"{_listed(stuck)} requires an owner and may be entered without one",
                why="nobody could leave it",
                todo="acquire the owner on entry, or on every way to it",
            )

    def __getitem__(self, status: str) -> StatusDefinition:
        """The definition of a status.

        Raises:
            Misuse: the status is not in the table.
        """
        for definition in self.definitions:
            if definition.status == status:
                return definition
        raise Misuse(
            f"no status {shown(status)} here", why=f"there are {_listed(each.status for each in self.definitions)}"
        )

    def following(self, status: str | None) -> frozenset[str]:
        """The successors; the initial statuses for None; none for an unknown status."""
        if status is None:
            return self.initial
        for definition in self.definitions:
            if definition.status == status:
                return definition.targets
        return frozenset()


# --- the decision -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class StatusRecord:
    """The input of a decision. Invariants: 0 <= version; the owner is a runner's id or None.

    Version 0 is a foreign record without a version.
    """

    status: str
    owner: str | None
    version: int

    def __attrs_post_init__(self) -> None:
        check_name(self.status, "a status")
        if self.owner is not None:
            check_name(self.owner, "a runner")
        check_int(self.version, "the version of a record", 0)

    def __str__(self) -> str:
        return f"{self.status!r}{'' if self.owner is None else f' of {self.owner!r}'} at version {self.version}"


@final
@attrs.frozen
class Accepted:
    """The new record, once it is written."""

    status: str
    owner: str | None
    version: int

    @property
    def record(self) -> StatusRecord:
        return StatusRecord(self.status, self.owner, self.version)

    def __str__(self) -> str:
        return f"accepted: {self.record}"


@final
@attrs.frozen
class NotAllowed:
    """The table has no such edge."""

    current: str | None
    target: str
    allowed: frozenset[str]

    def __str__(self) -> str:
        return f"not allowed: {_known(self.current)} may become {_listed(self.allowed)}, not {self.target!r}"


@final
@attrs.frozen
class NotOwner:
    """The current status requires its owner, and another caller attempted to leave it."""

    current: str
    target: str
    owner: str | None
    attempted: str | None

    def __str__(self) -> str:
        return f"not the owner: {self.current!r} of {self.owner!r} may not become {self.target!r} by {self.attempted!r}"


@final
@attrs.frozen
class NoRunner:
    """The target acquires an owner, and no runner was given."""

    current: str | None
    target: str

    def __str__(self) -> str:
        return f"no runner: {_known(self.current)} may become {self.target!r} only by a runner"


Denied: TypeAlias = NotAllowed | NotOwner | NoRunner
TransitionVerdict: TypeAlias = Accepted | Denied


def decide_transition(
    table: StatusTable, record: StatusRecord | None, target: str, runner: str | None
) -> TransitionVerdict:
    """Decide whether `runner` may move a record to `target`.

    Args:
        table: The rules.
        record: The record as read; None if there is none.
        target: The status to enter.
        runner: The caller; None for an anonymous one.

    Returns:
        `Accepted` with the record to write if it still is as it was read, or the reason for a
        denial. A
        status that is not in the table has no edges: `NotAllowed`.

    Raises:
        Misuse: The target or the runner is empty or no string, or the table or the record is of the
            wrong type.
    """
    check_type(table, StatusTable, "a table of statuses")
    check_type(record, (StatusRecord, NoneType), "a record")
    check_name(target, "a status")
    if runner is not None:
        check_name(runner, "a runner")
    current = None if record is None else record.status
    allowed = table.following(current)
    if target not in allowed:
        return NotAllowed(current, target, allowed)
    entered = table[target]
    owner = None if record is None else record.owner
    if (
        current is not None
        and table[current].requires_owner
        and not entered.overrides_owner
        and (runner is None or runner != owner)
    ):
        return NotOwner(current, target, owner, runner)
    if entered.acquires_owner:
        if runner is None:
            return NoRunner(current, target)
        owner = runner
    elif entered.releases_owner:
        owner = None
    return Accepted(entered.status, owner, 1 if record is None else record.version + 1)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _plain(status: object) -> None:
    """Raise Misuse if a store would not return `status` unchanged."""
    if type(status) is not str or not status:
        raise Misuse(
            f"{shown(status)} cannot name a status",
            why="a stored status is a plain string that is not empty",
            todo="of an enum, pass the value",
        )


def _reachable(edges: Mapping[str, AbstractSet[str]], start: AbstractSet[str]) -> AbstractSet[str]:
    reached = frozenset(start)
    while more := reached.union(*(edges[status] for status in reached)) - reached:
        reached |= more
    return reached


def _listed(statuses: Iterable[str]) -> str:
    return ", ".join(repr(status) for status in sorted(statuses)) or "nothing"


def _known(status: str | None) -> str:
    return "a new record" if status is None else repr(status)
