"""Which triggers are there, whoever knows them: what versions of an application that run side by side must not take from each other.

A trigger is code, for it has functions of the user's; its definition is what everybody may know: {_id, task, conditions, tasks,
declared_at}. Each process declares what it knows when it starts, and again from time to time (`declare`). So during a deployment
the triggers of both versions are there; an evaluator lets fire what it knows, and leaves alone what others wait for (`spared`).
What nobody has declared for long is forgotten, and with it the cells of crons that nobody waits for (`forget`): who declares such
a cron later begins anew, and makes up for nothing.

Laws
    DF1  What is declared is there until nobody has declared it for `keep`; to declare it again changes nothing but that time.
    DF2  A cell of a cron is forgotten only where no trigger that is there waits for it.
    DF3  What is spared is dropped and given up as planned, but for what others wait for.

Known not to work
    - An event that a process emits, or the end of a run that it writes, is heard of by the triggers that are known there; of a task
      that triggers of other versions wait for, its notice stays for them (`tidegate.triggers.noticing`).
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
    """A trigger, as everybody may know it. Invariant: the id is not empty.

    Attributes:
        id: Of the trigger.
        task: What it starts.
        condition_ids: The ids of the conditions that it waits for.
        tasks: Of which tasks it wants to hear how runs end.
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
    """The definition of a trigger.

    Raises:
        Misuse: It is none.
    """
    check_type(trigger, Trigger, "a trigger")
    heard = {of for each in trigger.conditions for kind, of in sources(each) if kind in _OF_INVOCATIONS}
    return Definition(trigger.id, trigger.task, trigger.condition_ids, tuple(sorted(heard)))


def definition_of(doc: Document) -> Definition:
    """The definition that a document holds.

    Raises:
        Misuse: It holds none.
    """
    check_type(doc, Document, "a document")
    return Definition(needed(doc, ID), needed(doc, _TASK), needed(doc, _CONDITIONS), needed(doc, _TASKS))


def spared(made: Plan, others: Collection[Definition], occurrences: Collection[Occurrence]) -> Plan:
    """A plan that leaves alone what others wait for.

    Args:
        made: Of the triggers that this process knows.
        others: The definitions of those that it does not know.
        occurrences: What it was made of.

    Raises:
        Misuse: An argument is of the wrong type.
    """
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
    """What a process declares. Invariant: 1 <= keep.

    Attributes:
        triggers: Those that it knows.
        definitions, cells: The collections.
        keep: How long a trigger is there that nobody declares any more, in microseconds.
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
        """Say that these triggers are there; done again where there was no answer it changes nothing.

        Returns:
            Whether that is known.
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
        """Forget what nobody has declared for long; where there is no answer, the next one does."""
        try:
            await delete_many(self.definitions, OlderThan(_DECLARED_AT, self.keep))
            # The cells BEFORE the definitions: one of a trigger that is declared meanwhile is not among them, or begins anew.
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
    """The definition as a document, under its id.

    Args:
        definition: The definition.
        now: When it is declared, by the store's clock.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    check_type(definition, Definition, "a definition")
    check_type(now, Instant, "an instant")
    return Document((
        (ID.name, definition.id), (_TASK.name, definition.task), (_CONDITIONS.name, definition.condition_ids),
        (_TASKS.name, definition.tasks), (_DECLARED_AT.name, now),
    ))  # fmt: skip
