"""Five ways to get what operators do wrong, each in one place of `tidegate.reactive.desk` or `tidegate.reactive.pausing`."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, Eq, Filter
from tidegate.model.instants import Instant
from tidegate.model.operations import UpdateOne
from tidegate.reactive.desk import DESK_PARTS, Desk, Retried
from tidegate.reactive.pausing import Pausing
from tidegate.reactive.record_queries import Query
from tidegate.reactive.scenarios.desk import NO_PAUSE, ONCE, PAUSED, RUNS, TAKEN, pausing, retrying
from tidegate.reactive.task_records import TaskRecord, TaskStatus
from tidegate.reactive.tasks import UpdateRecord
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def by_id(key: str, _: UpdateRecord) -> Filter:
    return Eq(ID, key)


def counted_anew(record: TaskRecord, now: Instant) -> UpdateRecord:
    """It may be tried again, and nobody does."""
    whole = DESK_PARTS.reset(record, now)
    after = attrs.evolve(record, version=record.version + 1, attempts=0, first_error_at=None)
    return attrs.evolve(whole, record=after)


async def sent_is_done(updates: tuple[UpdateOne, ...]) -> int:
    """Whoever sends them takes them for done."""
    await DESK_PARTS.send(updates)
    return len(updates)


async def asks_until_known(desk: Desk) -> object:
    """An operator's tool that asks again from the beginning where a reply is lost."""
    retried = Retried(unknown=1)
    while retried.unknown:
        retried = await attrs.evolve(desk, attempts=1).retry(Query())
    return retried


def whatever_it_is(_: int) -> Filter:
    return Eq(ID, "reactive")


SPECIMENS: Final = (
    Specimen(
        "desk.by_id",
        partial(
            retrying,
            attrs.evolve(DESK_PARTS, unchanged=by_id),
            summary="A record is reset by its id alone, though a worker may have claimed it since it was read.",
            status=TaskStatus.PENDING,
            budget=0,
            moves=1,
        ),
        TAKEN,
        "mongodash 2.3.1 resets what matches when it is written, but an operator's script goes by ids that it has listed.",
        of="desk.running",
        alone=True,  # it leaves what is no record
    ),
    Specimen(
        "desk.counted_anew",
        partial(
            retrying,
            attrs.evolve(DESK_PARTS, reset=counted_anew),
            summary="A reset counts the attempts anew, and leaves a record that is finished as it is: nobody runs it.",
            budget=0,
        ),
        RUNS,
        "Planted: so does whoever clears the attempts of a failed job by hand.",
        of="desk",
    ),
    Specimen(
        "desk.sent_is_done",
        partial(
            retrying,
            attrs.evolve(DESK_PARTS, send=sent_is_done),
            summary="Whoever resets records counts what was sent, and not what has matched.",
            status=TaskStatus.PENDING,
            budget=0,
        ),
        ONCE,
        "Planted: so does whoever reports the number of ids that he has listed.",
        of="desk.running",
    ),
    Specimen(
        "desk.asks_until_known",
        partial(
            retrying,
            operates=asks_until_known,
            summary="A retry whose reply is lost is begun again, and resets what it has reset and what has failed again since.",
        ),
        ONCE,
        "Planted: so does whoever sends POST /retry again after a time-out.",
        of="desk",
    ),
    Specimen(
        "pausing.whatever_it_is",
        partial(
            pausing,
            Pausing(attempts=4, pauses=NO_PAUSE, unchanged=whatever_it_is),
            summary="The list of paused tasks is written without a look at what it has become since it was read.",
            budget=0,
        ),
        PAUSED,
        "Planted: a lost update (Gray and Reuter 1993), as of any setting that is read, changed and written back.",
        of="pausing",
    ),
)
