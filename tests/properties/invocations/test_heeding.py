"""What a process is told with each beat of the invocations that it runs."""

from __future__ import annotations

from typing import Final

import pytest
from tests.properties.on_documents import run

from tidegate.invocations import invocation as status
from tidegate.invocations.dispatch import InterruptReason, Run
from tidegate.invocations.heeding import heed
from tidegate.invocations.record_documents import ASKED, new_record
from tidegate.invocations.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous
from tidegate.model.instants import Instant
from tidegate.sim.world import world_with

RECORDS: Final = "invocations"


def record(key: str, version: int = 2, asked: str | None = None) -> Document:
    more = () if asked is None else ((ASKED.name, asked),)
    return new_record(key, StatusRecord(status.RUNNING, "r", version), "made", Instant(0), more=Document(more))


def runs(*keys: str) -> tuple[Run, ...]:
    return tuple(Run(key, 2, "bill") for key in keys)


def test_what_was_asked_and_what_is_lost_is_told() -> None:
    """Laws HD1 and HD2."""
    held = (
        record("a"),
        record("b", 3),
        record("c", asked="cancel"),
        record("d", asked="kill"),
        record("e", 4, "cancel"),
    )
    mine = runs("a", "b", "c", "d", "e", "gone")
    told, _ = run(heed(RECORDS, mine), world_with({RECORDS: held}))
    of = dict(told)
    assert [of.get(each) for each in mine] == [
        None, InterruptReason.LOST, InterruptReason.CANCEL, None, InterruptReason.LOST, InterruptReason.LOST,
    ]  # fmt: skip


def test_of_nothing_nobody_asks() -> None:
    told, _ = run(heed(RECORDS, ()), world_with({}))
    assert told == ()


def test_where_nobody_answers_nothing_is_told() -> None:
    with pytest.raises(Ambiguous):
        run(heed(RECORDS, runs("a")), world_with({}), lambda _: Ambiguous("no answer"))
