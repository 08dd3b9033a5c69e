from __future__ import annotations

from typing import Final, cast

import attrs
import pytest
from tests.properties.on_documents import run

from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.record_documents import ASKED, STATUS, TRIES, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.worker.heartbeat import heed
from tidegate.invocations.worker.worker import UntrackedRun
from tidegate.model.documents import Document, Value
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.instants import Instant
from tidegate.model.operations import BulkUpdate
from tidegate.sim.world.world import document, world_with
from tidegate.work.vocabulary import HeartbeatReply, InterruptReason, Run

RECORDS: Final = "invocations"


def record(
    key: str,
    version: int = 2,
    asked: str | None = None,
    *,
    status_: str = status.RUNNING,
    owner: str | None = "r",
    more: tuple[tuple[str, Value], ...] = (),
) -> Document:
    more = more if asked is None else ((ASKED.name, asked), *more)
    return new_record(key, StatusRecord(status_, owner, version), "made", Instant(0), more=Document(more))


def runs(*keys: str) -> tuple[Run, ...]:
    return tuple(Run("bill", key, 2) for key in keys)


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
    told, _ = run(heed(RECORDS, "r", mine), world_with({RECORDS: held}))
    of = dict(told.asked)
    assert [of.get(each) for each in mine] == [
        None, InterruptReason.LOST, InterruptReason.CANCEL, None, InterruptReason.LOST, InterruptReason.LOST,
    ]  # fmt: skip


def test_what_is_in_its_name_twice_and_not_in_its_hands_is_given_back() -> None:
    """Laws HD3 and HD4: due at once, as if no run had begun."""
    picked = new_record(
        "p", StatusRecord(status.PENDING, "r", 3), "made", Instant(0), more=Document(((TRIES.name, 1),))
    )
    others = (record("mine"), record("other", owner="s"), record("ended", status_=status.KILLED, owner=None))
    begun = record("b", more=((TRIES.name, 2),))
    again = record("mine again", 4, more=((TRIES.name, 3),))
    world = world_with({RECORDS: (*others, picked, begun, again)})
    mine = runs("mine", "mine again")
    told, _ = run(heed(RECORDS, "r", mine), world)
    assert told.asked == ((mine[1], InterruptReason.LOST),)
    strays = tuple(
        UntrackedRun(key, StatusRecord(which, "r", version), tries)
        for key, which, version, tries in (
            ("b", status.RUNNING, 2, 2), ("mine again", status.RUNNING, 4, 3), ("p", status.PENDING, 3, 1),
        )
    )  # fmt: skip
    assert told.untracked == strays
    passed = attrs.evolve(strays[1], record=attrs.evolve(strays[1].record, version=3))
    told, after = run(heed(RECORDS, "r", mine, (strays[0], passed, strays[2])), world)
    assert told.untracked == (strays[1],)
    found = {key: after.read(document(RECORDS, key)) for key in ("b", "p", "mine", "mine again")}
    assert {key: (doc[STATUS], doc.get(TRIES)) for key, doc in found.items() if doc is not None} == {
        "b": (status.REROUTED, 1),
        "p": (status.REROUTED, 1),
        "mine": (status.RUNNING, None),
        "mine again": (status.RUNNING, 3),
    }


def test_a_store_that_will_not_have_it_back_costs_no_beat() -> None:
    world = world_with({RECORDS: (record("b"),)})
    told, _ = run(heed(RECORDS, "r", ()), world)
    told, _ = run(
        heed(RECORDS, "r", (), cast("tuple[UntrackedRun, ...]", told.untracked)),
        world,
        lambda asked: Refused("not authorised") if isinstance(asked, BulkUpdate) else None,
    )
    assert told == HeartbeatReply()


def test_of_nothing_nobody_asks() -> None:
    told, _ = run(heed(RECORDS, "r", ()), world_with({}))
    assert told == HeartbeatReply()


def test_where_nobody_answers_nothing_is_told() -> None:
    with pytest.raises(Ambiguous):
        run(heed(RECORDS, "r", runs("a")), world_with({}), lambda _: Ambiguous("no answer"))
