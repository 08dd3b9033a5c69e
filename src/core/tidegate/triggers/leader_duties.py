"""What a process does during its service window: recover stuck services and fire triggers.

`tidegate.services.service_runner` grants the window and calls `Turn.work`. A turn runs rounds until
its window is over. In each round:

    1  recover     stuck invocations of the core services
    2  notice      status changes of invocations
    3  evaluate    triggers, crons included
    4  works       the user's own, under the token of the turn

Recovery is a task that a cron starts, with at most one run at a time. If its runner dies, the dead
run blocks the next one, and only recovery itself would free it. So each turn recovers the core
services directly, before anything else.

If one step fails or gets no reply, the others still run, in this round and the next. If more is due
than the window has time for, a round fires the first hundred anyway, and stops at the window's end.

Laws
    TU1  At rest no service is stuck because its runner died, as long as some process gets turns.
    TU2  A failed step does not prevent the others; the turn reports it at its end.
    TU3  A round starts only if it fits into the window, assuming it takes as long as the last one.

Known not to work
    - The turn does not limit a user's work. One that takes longer than the window overruns it; no
      other process runs meanwhile, because the gate is left only afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.upkeep.recoverer import Recoverer, RecoveryPass
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Program, Sleep
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import StoreTime
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.triggers.evaluator import Evaluator, TriggerPass
from tidegate.triggers.outbox_relay import NoticePass, Noticer

EVERY: Final = SECOND

Round: TypeAlias = Callable[[AtomicServiceRun, int, int], Program[object]]
"""One step of a round: a program, given the run, its token, and the number of the round, from 0."""


@final
@attrs.frozen
class Duty:
    """One step of each round."""

    name: str
    round: Round = attrs.field(repr=False, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a duty")
        check_callable(self.round, "what is done in each round")


@final
class DutyFailedError(TidegateError):
    """A step of a turn failed. `Turn.work` raises it after the turn."""


@final
@attrs.frozen(kw_only=True)
class Turn:
    """The work of a turn: the steps of each round in order, and the pause between rounds.

    Invariant: 1 <= every, in microseconds.
    """

    duties: tuple[Duty, ...]
    every: Duration = EVERY

    def __attrs_post_init__(self) -> None:
        check_tuple(self.duties, Duty, "a duty")
        check_int(self.every, "a time between rounds in microseconds", 1)

    async def work(self, run: AtomicServiceRun, token: int) -> bool | Instant:
        """Run rounds until the window is over: the work of a `ServiceRunner`.

        Returns:
            When it ended; True if the store does not return the time.

        Raises:
            DutyFailedError: A step failed, other than for lack of a reply; all other steps ran.
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
                break  # without the time, the end of the window is unknown
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
    """Return the steps of a round, in the order of the header.

    The recoverer is for the core services only; `works` are the user's own steps.
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
    """Return whether pause and round fit into the window, if the round takes as long as the last
    (TU3).
    """
    return run.window.end - now > every + max(0, now - began)


async def _done(duties: tuple[Duty, ...], run: AtomicServiceRun, token: int, number: int) -> tuple[str, ...]:
    failed: tuple[str, ...] = ()
    for each in duties:
        try:
            await each.round(run, token, number)
        except (Ambiguous, NotApplied, NotDurable):
            continue  # the next round retries
        except Exception as error:  # noqa: BLE001  law TU2
            failed = (*failed, _named(each, error))
    return failed


def _named(duty: Duty, error: Exception) -> str:
    # The text of a user's error may hold a secret, so only its type is reported.
    return f"{duty.name}: {error if isinstance(error, Failure) else type(error).__name__}"
