"""A record moves from status to status along a table, and in some statuses it has an owner.

The table is data: for each status the statuses that may follow, and what entering and leaving it means for the owner.
A decision takes the record as it was read and a request (this runner, that status), and answers what the record would
become, or why not. It is carried out by one compare-and-set on (status, owner, version), so of all decisions made on
one version at most one comes true: optimistic concurrency control after Kung and Robinson 1981.

Each write leaves its request id in the record, so that after a lost reply `tidegate.model.history` says what became of
it.

Laws
    S1  Nothing leaves a final status.
    S2  A record has an owner where its status acquires or requires one, and none where its status releases it.
    S3  Only the owner leaves a status that requires it, unless the status entered overrides ownership.
    S4  Every accepted transition makes exactly one version; the first is 1, also of a record that had none.
    S5  Only edges of the table are taken.

The checks come in this order: edge, owner, runner, new owner. An edge that the system which a table was taken from
lacks is marked as `Added`, with its reason.
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
    """The statuses as a set; Misuse where they are not statuses: a string, too, is a collection of strings."""
    check_types(statuses, str, "a status")
    for status in statuses:
        _plain(status)
    return frozenset(statuses)


# --- the table --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Added:
    """A mark on an edge that the system which the table was taken from does not have. Invariant: it has a reason.

    Attributes:
        target: The status that may follow.
        why: Who needs this way on.
    """

    target: str
    why: str

    def __attrs_post_init__(self) -> None:
        _plain(self.target)
        check_name(self.why, "the reason of an edge")


@final
@attrs.frozen
class StatusDefinition:
    """What it means to be in a status.

    Invariants: not (acquires_owner and releases_owner); not (requires_owner and overrides_owner); final implies no
    targets; status not in targets; what is marked as added is among the targets, and marked once.

    Attributes:
        status: Its name.
        targets: The statuses that may follow.
        final: Nothing follows.
        available: A runner may pick the record up.
        requires_owner: Only the owner leaves.
        acquires_owner: On entry, the runner becomes the owner.
        releases_owner: On entry, there is no owner any more.
        overrides_owner: Entered by anybody, whoever owns the record.
        added: Which of the edges are not of the system that the table was taken from, each with its reason.
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

    Invariants: each status is defined once; initial statuses and targets are defined; every status can be reached; a
    status that requires an owner cannot be entered without one.

    Attributes:
        initial: The statuses in which a new record may begin.
        definitions: In the order in which people read them.
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
        """What the table says of a status.

        Raises:
            Misuse: the table does not know it.
        """
        for definition in self.definitions:
            if definition.status == status:
                return definition
        raise Misuse(
            f"no status {shown(status)} here", why=f"there are {_listed(each.status for each in self.definitions)}"
        )

    def following(self, status: str | None) -> frozenset[str]:
        """The statuses that may follow; those of a new record for None, and none for a status that is not known."""
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
    """What a decision needs to know of a record. Invariants: 0 <= version; the owner is a runner's id or None.

    Version 0 is a record that was there before its transitions were decided here, and has no version yet.
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
    """What the record becomes, once it is written."""

    status: str
    owner: str | None
    version: int

    @property
    def record(self) -> StatusRecord:
        """The record that others read then, and decide on."""
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
    """The current status requires its owner, and another (or nobody) attempted to leave it."""

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
    """What becomes of a record when `runner` wants to move it to `target`.

    Args:
        table: The rules.
        record: The record as it was read; None where there is none.
        target: The status to enter.
        runner: Who asks; None where nobody in particular does.

    Returns:
        `Accepted` with the record to be written if it is still as it was read, or the reason why not. A status that
        the table does not know has no edges: that is `NotAllowed` too.

    Raises:
        Misuse: The target or the runner is empty or no string, or the table or the record is of the wrong type.
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
    """Raise Misuse unless `status` is what a store gives back for it."""
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
