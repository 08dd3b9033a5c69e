"""Trigger definitions in the store, so that versions running side by side spare each other's work.

A trigger is code, because it has functions of the user's. Its definition is what every version can
read: {_id, task, conditions, tasks, declared_at}. Each process declares its triggers at the start
and again from time to time (`declare`). So during a deployment the triggers of both versions exist.
An evaluator fires the triggers it knows, and leaves alone what the others wait for (`spared`).
`forget` deletes definitions not declared for long, and the cells of crons that no trigger waits
for. A process that declares such a cron later starts it afresh, and makes up for no missed instant.

Laws
    DF1  A definition exists until no process has declared it for `keep`; declaring it again changes
         only that time.
    DF2  A cell of a cron is deleted only if no existing trigger waits for it.
    DF3  `spared` drops and gives up what the plan does, except what others wait for.

Known not to work
    - Only the triggers known to a process notice an event that it emits or a run that it ends. For
      tasks that triggers of other versions wait for, the notice stays
      (`tidegate.triggers.outbox_relay`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

import attrs

from tidegate.model.documents import ID, Document, Eq, Field, In, OlderThan, PutServerTime
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.operations import StoreTime, check_collection, delete_many, delete_one, insert_many, update_many
from tidegate.model.programs import find_every
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type, check_types
from tidegate.triggers.conditions import sources
from tidegate.triggers.contexts import Kind
from tidegate.triggers.firing import Plan
from tidegate.triggers.trigger import Occurrence, Trigger
from tidegate.triggers.trigger_documents import VERSION

KEEP: Final[Duration] = 10 * MINUTE

_TASK: Final = Field[str]("task")
_CONDITIONS: Final = Field[tuple[str, ...]]("conditions")
_TASKS: Final = Field[tuple[str, ...]]("tasks")
_DECLARED_AT: Final = Field[Instant]("declared_at")
_OF_INVOCATIONS: Final = (Kind.STATUS, Kind.RESULT, Kind.EXCEPTION)


@final
@attrs.frozen
class Definition:
    """A trigger as every version can read it: the conditions and tasks that it waits for.

    Invariant: the id is not empty.
    """

    id: str
    task: str
    condition_ids: tuple[str, ...]
    tasks: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a trigger")
        check_name(self.task, "a task")
        check_tuple(self.condition_ids, str, "the id of a condition")
        check_tuple(self.tasks, str, "a task")


def defined(trigger: Trigger) -> Definition:
    """Return the definition of a trigger."""
    check_type(trigger, Trigger, "a trigger")
    heard = {of for each in trigger.conditions for kind, of in sources(each) if kind in _OF_INVOCATIONS}
    return Definition(trigger.id, trigger.task, trigger.condition_ids, tuple(sorted(heard)))


def definition_of(doc: Document) -> Definition:
    """Load a definition from a document."""
    check_type(doc, Document, "a document")
    return Definition(needed(doc, ID), needed(doc, _TASK), needed(doc, _CONDITIONS), needed(doc, _TASKS))


def spared(made: Plan, others: Collection[Definition], occurrences: Collection[Occurrence]) -> Plan:
    """Remove from a plan what the definitions of other versions wait for (DF3)."""
    check_type(made, Plan, "a plan")
    check_types(others, Definition, "a definition")
    check_types(occurrences, Occurrence, "an occurrence")
    theirs = {each.id for each in others}
    waited_for = {condition for each in others for condition in each.condition_ids}
    kept = {each.id for each in occurrences if each.condition_id in waited_for}
    return attrs.evolve(
        made,
        given_up=tuple(run for run in made.given_up if run.firing.trigger_id not in theirs),
        dropped=tuple(each for each in made.dropped if each not in kept),
    )


@final
@attrs.frozen(kw_only=True)
class Definitions:
    """Declares triggers. Invariant: 1 <= keep.

    `keep` is how long a definition outlives its last declaration, in microseconds.
    """

    triggers: tuple[Trigger, ...]
    definitions: str = "triggers"
    cells: str = "crons"
    keep: Duration = KEEP

    def __attrs_post_init__(self) -> None:
        check_tuple(self.triggers, Trigger, "a trigger")
        check_collection(self.definitions)
        check_collection(self.cells)
        check_int(self.keep, "a time in microseconds", 1)

    async def declare(self) -> bool:
        """Declare these triggers; whether the store confirmed it. Idempotent, so repeat it after a
        lost reply.
        """
        if not self.triggers:
            return True
        ids = tuple([each.id for each in self.triggers])
        try:
            if await update_many(self.definitions, In(ID, ids), PutServerTime(_DECLARED_AT)) == len(ids):
                return True
            now = await StoreTime()
            await insert_many(
                self.definitions, *tuple([stored_definition(defined(each), now) for each in self.triggers])
            )
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    async def forget(self) -> None:
        """Delete old definitions and unneeded cells. Without a reply, the next call continues."""
        try:
            await delete_many(self.definitions, OlderThan(_DECLARED_AT, self.keep))
            # Cells BEFORE definitions: the cell of a trigger declared in between is not in `cells`,
            # or starts afresh.
            cells = await find_every(self.cells)
            found = await find_every(self.definitions)
            waited_for = frozenset(
                [condition for each in tuple(map(definition_of, found)) for condition in each.condition_ids]
            )
            for cell in cells:
                if needed(cell, ID) not in waited_for:
                    await delete_one(self.cells, Eq(ID, needed(cell, ID)), Eq(VERSION, needed(cell, VERSION)))
        except (Ambiguous, NotApplied, NotDurable):
            return


def stored_definition(definition: Definition, now: Instant) -> Document:
    """Return the definition as a document, declared at `now`."""
    check_type(definition, Definition, "a definition")
    check_type(now, Instant, "an instant")
    return Document((
        (ID.name, definition.id), (_TASK.name, definition.task), (_CONDITIONS.name, definition.condition_ids),
        (_TASKS.name, definition.tasks), (_DECLARED_AT.name, now),
    ))  # fmt: skip
