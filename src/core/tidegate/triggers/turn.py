"""What a process does while it has its turn: it frees what would stop the others for ever, and lets triggers fire.

The turn is that of `tidegate.services.service_runner`, of which this is the work. It goes round until its window is over:

    1  recover     what is stuck of the services that look after everything else
    2  notice      what has become of invocations, and events
    3  evaluate    triggers, crons among them
    4  works       the user's own, under the token of the turn

Recovering what is stuck is a task like any other, started by a cron, of which one
runs at a time. So where its runner dies, the next one has no place until somebody has freed the last; and who would free it is
that very task. What recovers everything is therefore recovered by whoever has its turn, and before all else.

Whatever of these gets no answer, or fails, keeps none of the others from being done, in this round and the next. Where more is due
than the window has time for, a round fires the first hundred in any case, and stops where the window is over.

Laws
    TU1  At rest no service stands still whose runner is gone, as long as anybody has a turn.
    TU2  What fails keeps nothing else from being done; it is named once the turn is over.
    TU3  A round begins only where it may still end in the window of the turn, as far as the last one tells.

Known not to work
    - How long a work of the user's takes is not limited: what takes longer than the window runs beyond it, with nobody beside it,
      for the gate is left afterwards only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.recoverer import Recoverer, RecoveryPass
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Program, Sleep
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import StoreTime
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.triggers.evaluator import Evaluator, TriggerPass
from tidegate.triggers.noticing import NoticePass, Noticer

EVERY: Final = SECOND

Round: TypeAlias = Callable[[AtomicServiceRun, int, int], Program[object]]
"""What is done in each round: a program, given the run, its token, and the number of the round, from 0."""


@final
@attrs.frozen
class Duty:
    """Something that is done in each round. Invariant: it has a name.

    Attributes:
        name: What it is called, for people.
        round: Does it.
    """

    name: str
    round: Round = attrs.field(repr=False, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a duty")
        check_callable(self.round, "what is done in each round")


@final
class DutyFailedError(TidegateError):
    """Something that was to be done in a turn has failed; it is raised once the turn is over."""


@final
@attrs.frozen(kw_only=True)
class Turn:
    """The work of a turn. Invariant: 1 <= every.

    Attributes:
        duties: What is done in each round, in this order.
        every: From the end of a round to the next, in microseconds.
    """

    duties: tuple[Duty, ...]
    every: Duration = EVERY

    def __attrs_post_init__(self) -> None:
        check_tuple(self.duties, Duty, "a duty")
        check_int(self.every, "a time between rounds in microseconds", 1)

    async def work(self, run: AtomicServiceRun, token: int) -> bool | Instant:
        """Do all of it: the work of a `ServiceRunner`.

        Returns:
            When it was over; true where nobody says what time it is.

        Raises:
            DutyFailedError: Something has failed, other than for want of an answer; all else was done.
        """
        check_type(run, AtomicServiceRun, "a run")
        failed: tuple[str, ...] = ()
        number = 0
        began = run.started
        over: Instant | None = None
        while True:
            failed += await _done(self.duties, run, token, number)
            number += 1
            try:
                now = over = await StoreTime()
            except (Ambiguous, NotApplied, NotDurable):
                break  # nobody knows whether the window is over
            if not _has_time(run, began, now, self.every):
                break
            await Sleep(self.every)
            began = now + self.every
        if failed:
            raise DutyFailedError("; ".join(dict.fromkeys(failed)))
        return True if over is None else over


def duties(
    recoverer: Recoverer, noticer: Noticer, evaluator: Evaluator, works: tuple[Duty, ...] = ()
) -> tuple[Duty, ...]:
    """What is done in each round, in the order of the header.

    Args:
        recoverer: Of the tasks that look after everything else, and of them alone.
        noticer: Hears what has become of invocations.
        evaluator: Lets triggers fire.
        works: The user's own.

    Raises:
        Misuse: An argument is of the wrong type, or the recoverer is of all tasks.
    """
    check_type(recoverer, Recoverer, "a recoverer")
    check_type(noticer, Noticer, "a noticer")
    check_type(evaluator, Evaluator, "an evaluator")
    check_tuple(works, Duty, "a duty")
    if recoverer.tasks is None:
        raise Misuse(
            "a turn that recovers all tasks",
            why="each round would read whatever is not finished",
            todo="name the tasks that look after the others: Recoverer(tasks=...)",
        )
    upkeep = _Upkeep(recoverer, noticer, evaluator)
    return (Duty("recover", upkeep.recover), Duty("notice", upkeep.notice), Duty("evaluate", upkeep.evaluate), *works)


@final
@attrs.frozen
class _Upkeep:
    recoverer: Recoverer
    noticer: Noticer
    evaluator: Evaluator

    async def recover(self, run: AtomicServiceRun, token: int, number: int) -> RecoveryPass:
        del run, token, number
        return await self.recoverer.run()

    async def notice(self, run: AtomicServiceRun, token: int, number: int) -> NoticePass:
        del run, token, number
        return await self.noticer.run()

    async def evaluate(self, run: AtomicServiceRun, token: int, number: int) -> TriggerPass:
        del token
        return await self.evaluator.evaluate(f"{run.run_id}.{number}", run.window.end)


def _has_time(run: AtomicServiceRun, began: Instant, now: Instant, every: Duration) -> bool:
    """Whether another round, with the pause before it, ends in the window, if it takes as long as the last one."""
    return run.window.end - now > every + max(0, now - began)


async def _done(duties: tuple[Duty, ...], run: AtomicServiceRun, token: int, number: int) -> tuple[str, ...]:
    """What has failed."""
    failed: tuple[str, ...] = ()
    for each in duties:
        try:
            await each.round(run, token, number)
        except (Ambiguous, NotApplied, NotDurable):
            continue  # the next round asks again
        except Exception as error:  # noqa: BLE001  one must not keep the others
            failed = (*failed, _named(each, error))
    return failed


def _named(duty: Duty, error: Exception) -> str:
    """Without the text of an error that is the user's, which may hold a secret."""
    return f"{duty.name}: {error if isinstance(error, Failure) else type(error).__name__}"
