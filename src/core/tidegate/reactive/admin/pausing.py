"""Pause tasks, for all processes: one control document {_id, version, paused: [{task, since}]}.

    pause     no handler of these tasks begins; runs go on, and documents are still looked at
    resume    handlers begin again
    paused    the paused tasks, which processes read periodically

Changes are a compare-and-set on the version, so two concurrent commands keep each other's change
and a late write undoes nothing. After no match or no reply the program reads again.

Law
    PS1  A caller that is told that a task is paused, or is not, found or made it so, and it stays
         so until another command.

Known not to work: a process that read before a pause begins handlers until it reads again.
"""

from __future__ import annotations

from functools import partial
from typing import Final, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, check_collection, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.reactive.record.task_documents import TASK
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.idempotent import repeat

CONTROL: Final = "tidegate_reactive"
"""The collection of the control document."""
_KEY: Final = Eq(ID, "reactive")
_VERSION: Final = Field[int]("version")
_PAUSED: Final = Field[tuple[Document, ...]]("paused")
_SINCE: Final = Field[Instant]("since")
_NEW: Final = Document.of({"_id": "reactive", "version": 0, "paused": ()})
_ATTEMPTS: Final = 8


@final
@attrs.frozen
class PausedTask:
    """A paused task.

    Attributes:
        task: Its name.
        since: When it was paused, by the store's clock.
    """

    task: str
    since: Instant

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_type(self.since, Instant, "a time")


@final
@attrs.frozen(kw_only=True)
class Pausing:
    """The programs. Invariant: 1 <= attempts.

    Attributes:
        control: The collection of the control document.
        attempts: Tries of each; None for any number.
        pauses: The waits between tries.
    """

    control: str = CONTROL
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_collection(self.control)
        check_attempts(self.attempts, self.pauses)

    async def pause(self, *names: str) -> tuple[PausedTask, ...]:
        """Pause these tasks.

        Args:
            names: The tasks, known or not (`tidegate.reactive.admin.commands` checks that).

        Returns:
            The tasks that are paused now.

        Raises:
            Failure: No reply, or others wrote each time: the result is unknown.
        """
        return await self._say(names, is_paused=True)

    async def resume(self, *names: str) -> tuple[PausedTask, ...]:
        """Resume these tasks; otherwise as `pause`."""
        return await self._say(names, is_paused=False)

    async def paused(self) -> tuple[PausedTask, ...]:
        """The paused tasks.

        Raises:
            Failure: No reply.
        """
        return paused_in(await repeat(partial(find_one, self.control, _KEY), self.attempts, self.pauses))

    async def _say(self, names: tuple[str, ...], *, is_paused: bool) -> tuple[PausedTask, ...]:
        for name in names:
            check_name(name, "a task")
        failure: Failure = NotApplied("others have written each time")
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                raise failure
            attempt += 1
            try:
                found = await find_one(self.control, _KEY)
                after = paused_after(paused_in(found), names, await StoreTime(), is_paused=is_paused)
                if after == paused_in(found):
                    return after
                if found is None:
                    await insert_new(self.control, _NEW)
                version = 0 if found is None else needed(found, _VERSION)
                updates = (Put(_VERSION, version + 1), Put(_PAUSED, tuple(map(_written, after))))
                if await update_one(self.control, AllOf((_KEY, Eq(_VERSION, version))), *updates):
                    return after
            except (Ambiguous, NotApplied, NotDurable) as trouble:
                failure = trouble.fresh()


def paused_after(
    paused: tuple[PausedTask, ...], names: tuple[str, ...], now: Instant, *, is_paused: bool
) -> tuple[PausedTask, ...]:
    """The paused tasks after a command.

    Args:
        paused: The paused tasks; others than the named ones stay.
        names: The tasks of the command.
        now: The store's time.
        is_paused: Whether the command pauses.
    """
    check_tuple(paused, PausedTask, "a paused task")
    check_tuple(names, str, "the name of a task")
    if not is_paused:
        return tuple(each for each in paused if each.task not in names)
    already = {each.task for each in paused}
    return (*paused, *(PausedTask(name, now) for name in dict.fromkeys(names) if name not in already))


def paused_in(control: Document | None) -> tuple[PausedTask, ...]:
    """The tasks in the control document; none without one.

    Raises:
        Misuse: It holds something else.
    """
    if control is None:
        return ()
    each = needed(control, _PAUSED)
    check_tuple(each, Document, "a paused task")
    return tuple(PausedTask(needed(one, TASK), needed(one, _SINCE)) for one in each)


def _written(paused: PausedTask) -> Document:
    return Document(((TASK.name, paused.task), (_SINCE.name, paused.since)))
