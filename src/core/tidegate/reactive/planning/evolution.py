"""Decide what to redo when a task is deployed with another definition.

A definition has two parts. The trigger (filter and watched values) decides which documents have
records. After a change of it each document needs a look, because no event reports unchanged
documents. The handler has a version, which its author raises. After a change, finished records may
have to run again.

    trigger differs, or there is none   forget that the documents were reconciled, unless the
                                        policy leaves them
    version is higher                   reset failed records, all finished ones, or none, by policy
    version is lower                    nothing: a rollback; the higher version stays stored

The result is a list of actions. The definition is stored last, so a crash before that repeats them;
each action may be repeated.

Laws
    RE31 Once all actions are done, there is nothing left to do.
    RE32 After a crash anywhere, all actions that were not done are required again.
    RE33 The stored definition never goes back: its version is the highest so far.
    RE34 Records run again only for a higher version and by the policy; documents are looked at
         again only for another trigger, or for none.

Known not to work: a watched function (`snapshot.Computed`) or a handler that changes without a
higher version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import Value, checked, exactly, show
from tidegate.model.values import check_int, check_type
from tidegate.reactive.record.task_records import TaskStatus

_UNKNOWN_VERSION: Final = 1
"""The handler version of a task that was never stored."""


class OnNewVersion(Enum):
    """The effect of a new handler version on finished records."""

    NOTHING = "nothing"
    REPROCESS_FAILED = "reprocess_failed"
    REPROCESS_ALL = "reprocess_all"


STATUSES: Final[Mapping[OnNewVersion, frozenset[TaskStatus]]] = {
    OnNewVersion.NOTHING: frozenset(),
    OnNewVersion.REPROCESS_FAILED: frozenset({TaskStatus.FAILED}),
    OnNewVersion.REPROCESS_ALL: frozenset({TaskStatus.FAILED, TaskStatus.COMPLETED}),
}
"""The records that run again."""


@final
@attrs.frozen(kw_only=True)
class EvolutionPolicy:
    """The effects of a changed definition.

    Attributes:
        on_new_version: Which records run again under a higher handler version.
        reconciles: Documents are looked at again after a change of the trigger.
    """

    on_new_version: OnNewVersion = OnNewVersion.NOTHING
    reconciles: bool = True

    def __attrs_post_init__(self) -> None:
        check_type(self.on_new_version, OnNewVersion, "what a new version means")
        check_type(self.reconciles, bool, "reconciles")


@final
@attrs.frozen
class Definition:
    """The stored definition of a task. Invariant: 0 <= version; 0 only if none was stored.

    Attributes:
        trigger: The filter and the watched values (`snapshot.described`), as data; compared
            exactly.
        version: The version of the handler.
    """

    trigger: Value = attrs.field(eq=exactly)
    version: int = 1

    def __attrs_post_init__(self) -> None:
        checked(self.trigger, "trigger")
        check_int(self.version, "the version of a handler", 0)

    def __str__(self) -> str:
        return f"version {self.version} on {show(self.trigger)}"


@final
@attrs.frozen
class Reprocess:
    """Reset each record of the task with one of these statuses (`tasks.reset`)."""

    statuses: frozenset[TaskStatus]

    def __str__(self) -> str:
        return f"reset what is {' or '.join(sorted(status.value for status in self.statuses))}"


@final
@attrs.frozen
class ForgetReconciled:
    """Forget that the documents of this task were reconciled, and any position of a scan."""

    def __str__(self) -> str:
        return "look at every document again"


@final
@attrs.frozen
class Remember:
    """Store this definition."""

    definition: Definition

    def __str__(self) -> str:
        return f"remember {self.definition}"


Action: TypeAlias = Reprocess | ForgetReconciled | Remember


def evolve(stored: Definition | None, current: Definition, policy: EvolutionPolicy) -> tuple[Action, ...]:
    """Decide what to do for the current definition of a task.

    Args:
        stored: The stored definition; None for a new task.
        current: The deployed one.
        policy: The effects of a change.

    Returns:
        The actions in order, each to be done BEFORE the next; none without a change.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(stored, (Definition, NoneType), "a definition")
    check_type(current, Definition, "a definition")
    check_type(policy, EvolutionPolicy, "a policy")
    version = _UNKNOWN_VERSION if stored is None else stored.version
    is_another = stored is None or exactly(stored.trigger) != exactly(current.trigger)
    statuses = STATUSES[policy.on_new_version] if current.version > version else frozenset[TaskStatus]()
    remembered = Definition(current.trigger, max(version, current.version))
    actions: list[
        Action
    ] = []  # what is remembered comes last: after a crash before that, all is asked for again (RE32)
    if statuses:
        actions.append(Reprocess(statuses))
    if is_another and (stored is None or policy.reconciles):
        actions.append(ForgetReconciled())
    if remembered != stored:
        actions.append(Remember(remembered))
    return tuple(actions)
