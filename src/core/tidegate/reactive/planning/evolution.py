"""A task was deployed with another definition: what has to be done over?

A definition has two parts. What triggers it (the filter, and what is watched) decides which documents have records; if
that has changed, every document has to be looked at again, for no event reports those that stood still. What it does
(the handler, whose version its author raises) decides what becomes of a record; if that has changed, records that are
over may have to run again.

    trigger differs, or there is none     forget that the documents were reconciled, unless the policy leaves them
    version is higher                     reset what failed, or all that is over, or nothing, as the policy says
    version is lower                      nothing: this is a rollback, and the higher version is still remembered

The answer is a list of actions. What is remembered comes last: whoever crashes before that begins again, and each action
may be carried out again.

Laws
    RE31 Once all of it is carried out, there is nothing left to do.
    RE32 After a crash anywhere, all that was not carried out is asked for again.
    RE33 What is remembered never goes back: its version is the highest there ever was.
    RE34 Records run again only for a higher version, and only as the policy says; documents are looked at again only for
         another trigger, or for none.

Known not to work: a function that is watched (`snapshot.Computed`), or a handler, can change without anybody raising its
version.
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
"""The version of the handler of a task that was never stored."""


class OnNewVersion(Enum):
    """What a new version of a handler means for records that are over."""

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
    """What a change of a definition means.

    Attributes:
        on_new_version: Which records run again under a higher version of the handler.
        reconciles: Documents are looked at again when the trigger has changed.
    """

    on_new_version: OnNewVersion = OnNewVersion.NOTHING
    reconciles: bool = True

    def __attrs_post_init__(self) -> None:
        check_type(self.on_new_version, OnNewVersion, "what a new version means")
        check_type(self.reconciles, bool, "reconciles")


@final
@attrs.frozen
class Definition:
    """What a task is, as far as that is stored. Invariant: 0 <= version, and 0 only where none was ever stored.

    Attributes:
        trigger: The filter and what is watched (`snapshot.described`), as data; compared exactly.
        version: Of the handler.
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
    """Reset each record of the task that has one of these statuses (`tasks.reset`)."""

    statuses: frozenset[TaskStatus]

    def __str__(self) -> str:
        return f"reset what is {' or '.join(sorted(status.value for status in self.statuses))}"


@final
@attrs.frozen
class ForgetReconciled:
    """Forget that the documents of this task were looked at, and from where a look at them would go on."""

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
    """What has to be done now that a task is defined so.

    Args:
        stored: What was remembered; None for a task that was never stored.
        current: What is deployed.
        policy: What a change means.

    Returns:
        The actions, to be carried out in this order, each BEFORE the next; none where nothing has changed.

    Raises:
        Misuse: An argument is of another type.
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
