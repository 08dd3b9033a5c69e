"""Five ways to get what operators do wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.reactive.admin.commands import Desk, Retried
from tidegate.reactive.admin.pausing import Pausing
from tidegate.reactive.checks.scenarios.desk import ONCE, PAUSED, RUNS, TAKEN, pausing, retrying
from tidegate.reactive.record.record_queries import Query
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant


async def asks_until_known(desk: Desk) -> object:
    """An operator's tool that asks again from the beginning where a reply is lost."""
    retried = Retried(unknown=1)
    while retried.unknown:
        retried = await attrs.evolve(desk, attempts=1).retry(Query())
    return retried


RESET: Final = "tasks.reset(record, now=now)"
COUNTED: Final = "attrs.evolve(record, version=record.version + 1, attempts=0, first_error_at=None)"

SPECIMENS: Final = (
    specimen(
        "desk.by_id", TAKEN,
        "A record is reset by its id alone, though a worker may have claimed it since it was read.",
        "mongodash 2.3.1 resets what matches when it is written, but an operator's script goes by ids that it has listed.",
        partial(variant, Desk, ("guarded(key, write.on)", "Eq(ID, key)")),
        make=partial(retrying, status=TaskStatus.PENDING, budget=0, moves=1), of="desk.running",
        alone=True),  # it leaves what is no record
    specimen(
        "desk.counted_anew", RUNS,
        "A reset counts the attempts anew, and leaves a record that is finished as it is: nobody runs it.",
        "Planted: so does whoever clears the attempts of a failed job by hand.",
        partial(variant, Desk, (RESET, f"attrs.evolve({RESET}, record={COUNTED})")),
        make=partial(retrying, budget=0), of="desk"),
    specimen(
        "desk.sent_is_done", ONCE,
        "Whoever resets records counts what was sent, and not what has matched.",
        "Planted: so does whoever reports the number of ids that he has listed.",
        partial(variant, Desk, ("Retried(reset=matched, changed=len(left) - matched)", "Retried(reset=len(left))")),
        make=partial(retrying, status=TaskStatus.PENDING, budget=0), of="desk.running"),
    specimen(
        "desk.asks_until_known", ONCE,
        "A retry whose reply is lost is begun again, and resets what it has reset and what has failed again since.",
        "Planted: so does whoever sends POST /retry again after a time-out.",
        lambda: Desk, make=partial(retrying, operates=asks_until_known), of="desk"),
    specimen(
        "pausing.whatever_it_is", PAUSED,
        "The list of paused tasks is written without a look at what it has become since it was read.",
        "Planted: a lost update (Gray and Reuter 1993), as of any setting that is read, changed and written back.",
        partial(variant, Pausing, ("AllOf((_KEY, Eq(_VERSION, version)))", "_KEY")),
        make=partial(pausing, budget=0), of="pausing"),
)  # fmt: skip
