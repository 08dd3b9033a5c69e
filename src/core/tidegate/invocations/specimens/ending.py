"""Six ways to write the end of a run wrongly, each in one place of `tidegate.invocations.ending`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.invocations.ending import ENDING_PARTS, Ending, EndingOutcome, Failed, RunEnd, Succeeded
from tidegate.invocations.record_documents import DUE, NOTICE, RESULT
from tidegate.invocations.scenarios.ending import (
    ALLOWED,
    AVAILABLE,
    DELAY,
    NOTICED,
    RESULTS,
    TRUE,
    EndingProgram,
    ending,
)
from tidegate.invocations.settling import RecordMove, Settling
from tidegate.invocations.specimens.settling import NOT_LOOKED
from tidegate.invocations.transition import TransitionOutcome
from tidegate.model.documents import ID, Eq, Push, Put, Remove
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.instants import Instant
from tidegate.model.operations import update_one
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

Move: TypeAlias = Callable[[RunEnd, Instant | None], RecordMove]


def without_result(run: RunEnd, now: Instant | None) -> RecordMove:
    move = ENDING_PARTS.move(run, now)
    return attrs.evolve(move, also=tuple(each for each in move.also if each.field != RESULT))


async def result_before(command: Ending) -> EndingOutcome:
    """The result is stored first, and by the id of the invocation; then its status is moved."""
    for run in command.runs:
        if isinstance(run.end, Succeeded):
            try:  # noqa: SIM105  an await in a `with` would not be merged
                await update_one(command.records, Eq(ID, run.key), Put(RESULT, run.end.result))
            except (Ambiguous, NotApplied):
                pass
    return await attrs.evolve(command, parts=attrs.evolve(ENDING_PARTS, move=without_result)).run()


def due_is_removed(run: RunEnd, now: Instant | None) -> RecordMove:
    """It becomes available, and its place in the queue is left for another write."""
    move = ENDING_PARTS.move(run, now)
    return attrs.evolve(move, also=tuple(Remove(DUE) if each.field == DUE else each for each in move.also))


def tries_from_zero(run: RunEnd, now: Instant | None) -> RecordMove:
    """The first run is counted as none."""
    return ENDING_PARTS.move(attrs.evolve(run, tries=max(1, run.tries - 1)), now)


def notice_of_the_old(run: RunEnd, now: Instant | None) -> RecordMove:
    """The notice names the version that was decided on, not the one that is made."""
    move = ENDING_PARTS.move(run, now)
    old = Push(NOTICE, run.record.version)
    return attrs.evolve(move, also=tuple(old if each.field == NOTICE else each for each in move.also))


def due_at_once(run: RunEnd, now: Instant | None) -> RecordMove:
    """What has failed is due from the moment at which it failed."""
    move = ENDING_PARTS.move(run, now)
    at_once = isinstance(run.end, Failed) and now is not None
    return attrs.evolve(
        move, also=tuple(Put(DUE, now) if at_once and each.field == DUE else each for each in move.also)
    )


def of_part(move: Move) -> EndingProgram:
    return partial(_with_move, move)


async def _with_move(move: Move, command: Ending) -> EndingOutcome:
    return await attrs.evolve(command, parts=attrs.evolve(ENDING_PARTS, move=move)).run()


SETTLING: Final = NOT_LOOKED(("move.request, *move.also)", "move.request)"))


async def not_looked(command: Settling) -> tuple[TransitionOutcome, ...]:
    return await SETTLING(
        command.collection, command.table, command.moves, command.runner, command.attempts, pauses=command.pauses
    ).run()


async def not_looked_at(command: Ending) -> EndingOutcome:
    """No reply is taken for nothing done."""
    return await attrs.evolve(command, parts=attrs.evolve(ENDING_PARTS, settle=not_looked)).run()


def planted(program: EndingProgram, name: str, law: str, summary: str, source: str) -> Specimen:
    make = partial(ending, program, summary=summary, budget=0)
    return Specimen(f"ending.{name}", make, law, source, of="ending", alone=law == RESULTS)


SPECIMENS: Final = (
    planted(
        result_before,
        "result_before",
        RESULTS,
        "The result is stored before the status is moved, by the id alone: one that was taken over has it, too.",
        "pynenc 0.4.0 stores a result, then sets the status; so does Celery's backend, which knows no owner.",
    ),
    Specimen(
        "ending.not_looked",
        partial(ending, not_looked_at, summary="An end whose reply is lost is taken for one that was not written."),
        TRUE,
        "The resilience article: a time-out says nothing about whether the write was done.",
        of="ending",
    ),
    planted(
        of_part(due_is_removed),
        "due_is_removed",
        AVAILABLE,
        "A run is to be tried again, and its place in the queue is left for a second write.",
        "pynenc 0.4.0 sets `retry`, then routes the invocation: a crash in between leaves one that nobody runs (W22).",
    ),
    planted(
        of_part(tries_from_zero),
        "tries_from_zero",
        ALLOWED,
        "Tries are counted from the second one on, so there is one more than is allowed.",
        "Planted: is `retries=3` three tries, or four? Three: the first one counts.",
    ),
    planted(
        of_part(notice_of_the_old),
        "notice_of_the_old",
        NOTICED,
        "The notice for triggers names the version that was decided on.",
        "Planted: off by one.",
    ),
    planted(
        of_part(due_at_once),
        "due_at_once",
        DELAY,
        "What has failed is tried again at once.",
        "pynenc 0.4.0 routes what is to be retried back at once, without a delay.",
    ),
)
