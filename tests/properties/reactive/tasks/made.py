from __future__ import annotations

from typing import Any, Final

import attrs

from tidegate.model.documents import Document
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.reactive.record import tasks
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.record.tasks import (
    BeginVerdict,
    Claim,
    Claimed,
    Failed,
    GiveUp,
    HandlerOutcome,
    InsertRecord,
    Matching,
    NotMatching,
    Seen,
    TaskRules,
    TryAgain,
    UpdateRecord,
)

T: Final = TaskRules(debounce=Debounce(500 * MILLISECOND, 2 * SECOND))
KEEPING: Final = attrs.evolve(T, resets_on_change=False)


def at(milliseconds: int) -> Instant:
    return Instant(milliseconds * MILLISECOND)


def doc(**items: object) -> Document:
    return Document.of(items)


def first(rules: TaskRules = T, **items: object) -> TaskRecord:
    verdict = tasks.plan(None, Matching(doc(**items)), rules=rules, now=at(0), new_id="r1")
    assert isinstance(verdict, InsertRecord)
    return verdict.record


def seen(record: TaskRecord, now: Instant, rules: TaskRules = T, **items: object) -> TaskRecord:
    verdict = tasks.plan(record, Matching(doc(**items)), rules=rules, now=now, new_id="r2")
    return verdict.record if isinstance(verdict, UpdateRecord) else record


def left(record: TaskRecord, now: Instant) -> TaskRecord:
    verdict = tasks.plan(record, NotMatching(), rules=T, now=now, new_id="r2")
    assert isinstance(verdict, UpdateRecord)
    return verdict.record


def taken(
    record: TaskRecord, now: Instant, rules: TaskRules = T, worker: str = "w1", **more: Any
) -> tuple[TaskRecord, Claim]:
    verdict = tasks.claim(record, worker=worker, rules=rules, now=now, **more)
    assert isinstance(verdict, Claimed), verdict
    return verdict.write.record, verdict.claim


def over(record: TaskRecord, claim: Claim, outcome: HandlerOutcome, now: Instant, rules: TaskRules = T) -> TaskRecord:
    verdict = tasks.finalise(record, claim, outcome, rules=rules, now=now)
    assert isinstance(verdict, UpdateRecord), verdict
    return verdict.record


def failed(retry_at: int | None, error: str = "it broke") -> Failed:
    return Failed(error, GiveUp() if retry_at is None else TryAgain(at(retry_at)))


def begun(record: TaskRecord, claim: Claim, there: Seen, rules: TaskRules = T) -> BeginVerdict:
    return tasks.begin(record, claim, there, rules=rules, now=at(600))
