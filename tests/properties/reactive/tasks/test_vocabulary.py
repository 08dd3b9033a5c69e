from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from tests.properties.reactive.tasks.made import (
    T,
    at,
    begun,
    doc,
    first,
    taken,
)

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.reactive.checks.strategies.tasks import claimings, claims, guards, plans, records
from tidegate.reactive.record import tasks
from tidegate.reactive.record.snapshot import NotComputed
from tidegate.reactive.record.task_records import Ended, Guard, RunEnd, TaskRecord
from tidegate.reactive.record.tasks import (
    Claim,
    ClaimVerdict,
    GiveUp,
    Go,
    Gone,
    Lapsed,
    Leave,
    Matching,
    PlanVerdict,
    TaskRules,
    Wait,
    WhyNot,
)


@pytest.mark.parametrize(
    "broken",
    [
        {"debounce": 500},
        {"lease": 0},
        {"lease": 1.5},
        {"resets_on_change": None},
        {"resets_on_change": 1},
        {"history_max": -1},
        {"snapshot_bytes_max": None},
    ],
)
def test_a_task_that_means_nothing_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        TaskRules(**broken)


TASKS: Final[Any] = tasks


@pytest.mark.parametrize(
    "construct",
    [
        lambda: TASKS.Matching({"a": 1}),
        lambda: TASKS.TryAgain(5),
        lambda: TASKS.Failed(None, GiveUp()),
        lambda: TASKS.Failed("x", None),
        lambda: TASKS.Deferred(None),
        lambda: TASKS.plan(1, Gone(), rules=T, now=at(0), new_id="r1"),
        lambda: TASKS.plan(None, None, rules=T, now=at(0), new_id="r1"),
        lambda: TASKS.plan(None, Gone(), rules=None, now=at(0), new_id="r1"),
        lambda: TASKS.plan(None, Gone(), rules=T, now=5, new_id="r1"),
        lambda: TASKS.plan(None, Matching(doc()), rules=T, now=at(0), new_id=""),
        lambda: TASKS.claim(None, worker="w1", rules=T, now=at(0)),
        lambda: TASKS.claim(first(a=1), worker="", rules=T, now=at(0)),
        lambda: TASKS.claim(first(a=1), worker="w1", rules=T, now=at(0), lapsed=5),
        lambda: TASKS.begin(None, None, Gone(), rules=T, now=at(0)),
        lambda: TASKS.begin(None, Claim("r1", "w1", 1, None, 1, None), None, rules=T, now=at(0)),
        lambda: TASKS.renew(1, Claim("r1", "w1", 1, None, 1, None), rules=T, now=at(0)),
        lambda: TASKS.finalise(None, Claim("r1", "w1", 1, None, 1, None), None, rules=T, now=at(0)),
        lambda: TASKS.reset(None, now=at(0)),
        lambda: TASKS.reset(first(a=1), now=None),
    ],
)
def test_wrong_types_are_refused(construct: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        construct()


@given(records(), claims(), plans(), claimings(), guards())
def test_all_of_it_prints_on_one_line(
    record: TaskRecord, claim: Claim, planned: PlanVerdict, claiming: ClaimVerdict, guard: Guard
) -> None:
    for value in (record, claim, planned, claiming, guard, *record.history):
        assert str(value)
        assert len(str(value).splitlines()) == 1
        assert hash(value) == hash(value)


def test_verdicts_say_why() -> None:
    held, claim = taken(first(a=1), at(500))
    insert = tasks.plan(None, Matching(doc(a=1)), rules=T, now=at(0), new_id="r1")
    adopted = begun(held, claim, Matching(doc(a=2)))

    assert (
        str(insert) == "insert, for it was seen for the first time: pending until 500 ms@store, version 1, 0 attempts"
    )
    assert str(claim) == "run 1 of 'r1' by 'w1', attempt 1"
    assert str(Leave(WhyNot.ENDED)) == "leave: this run has ended already"
    assert str(Wait(WhyNot.HELD, at(5))) == "wait until 5 ms@store: another run holds it"
    assert str(Lapsed(2, at(5))) == "lapsed: ask the policy after 2 attempts"
    assert str(Go(claim)) == f"go: {claim}"
    assert str(adopted) == f"adopt: {claim}"
    broken = begun(held, claim, NotComputed("a", "it broke"))
    assert str(broken) == "cannot run: a cannot be computed: it broke"
    assert str(held.guard) == "'r1' at version 2"
    assert str(RunEnd(3, Ended.LOST, at(0), SECOND)) == "run 3 its lease ran out after 1 s"
