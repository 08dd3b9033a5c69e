from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest
from pymongo import MongoClient

from tidegate.invocations.checks.laws import transition as laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.checks.specimens.settling import NOT_LOOKED, TOTAL_IS_FOR_EACH
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record.record_documents import history, new_record
from tidegate.invocations.record.status import StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.record.transition import Granted, Outdated
from tidegate.model.documents import ID, Eq
from tidegate.model.history import HISTORY_MAX
from tidegate.model.instants import Instant
from tidegate.model.operations import FindOne, InsertOne
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.runtime.driver import choosing, documents, local, run
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

MakeProxy: TypeAlias = Callable[..., BlackPipe]

RECORDS: Final = "records"
TABLE: Final = StatusTable({"free"}, (StatusDefinition("free", {"held"}), StatusDefinition("held", {"free"})))
FIRST: Final = StatusRecord("free", None, 1)
KEYS: Final = tuple(f"record {number}" for number in range(12))
RUNNERS: Final = 6
ROUNDS: Final = 12
LOSSES: Final = (
    Rule("update", Action.CUT_REPLY, times=2, probability=0.1),
    Rule("update", Action.HANG_REPLY, probability=0.2),
    Rule("update", Action.HANG_REQUEST, probability=0.05),
    Rule("update", Action.DELAY_REQUEST, probability=0.05, delay=timedelta(seconds=0.5)),
    Rule("find", Action.HANG_REPLY, probability=0.02),
)


def settle(made: type[Settling], number: int, mongo: Mongo) -> list[tuple[str, Answered]]:
    """Move records repeatedly, only while their history holds all versions; returns the answers."""
    chance, handle = random.Random(number), choosing(documents(mongo), local())
    known = dict.fromkeys(KEYS, FIRST)
    answered: list[tuple[str, Answered]] = []
    for turn in range(ROUNDS):
        keys = [key for key in chance.sample(KEYS, 6) if known[key].version < HISTORY_MAX]
        moves = tuple(
            RecordMove(key, known[key], "held" if known[key].status == "free" else "free", f"{number}.{turn}")
            for key in keys
        )
        if not moves:
            break
        answers = run(made(RECORDS, TABLE, moves, None, 40).run(), handle)
        for move, answer in zip(moves, answers, strict=True):
            answered.append((move.key, Answered(move.request, answer)))
            if isinstance(answer, Granted):
                known[move.key] = answer.record
            elif isinstance(answer, Outdated) and answer.actual is not None:
                known[move.key] = answer.actual
    return answered


@pytest.fixture(params=[False, True], ids=["once", "retried"])
def race(
    request: pytest.FixtureRequest, mongodb: str, make_proxy: MakeProxy, database: str
) -> Callable[[type[Settling]], tuple[dict[str, list[Version]], list[tuple[str, Answered]]]]:
    def raced(made: type[Settling]) -> tuple[dict[str, list[Version]], list[tuple[str, Answered]]]:
        with MongoClient[dict[str, Any]](mongodb) as looking:
            store = Mongo(looking, database)
            for key in KEYS:
                assert store(InsertOne(RECORDS, new_record(key, FIRST, "made", Instant(0)))) is None
            proxy = make_proxy(*LOSSES, seed=7)
            options: dict[str, Any] = {
                "socketTimeoutMS": 200, "retryWrites": request.param, "event_listeners": [Attempts()],
            }  # fmt: skip
            with (
                MongoClient[dict[str, Any]](proxy.uri, **options) as client,
                ThreadPoolExecutor(RUNNERS) as threads,
            ):
                mongo = Mongo(client, database)
                found = list(threads.map(lambda number: settle(made, number, mongo), range(RUNNERS)))
            versions: dict[str, list[Version]] = {}
            for key in KEYS:
                record: Any = store(FindOne(RECORDS, Eq(ID, key)))
                versions[key] = [
                    Version(StatusRecord(each.status, None, each.version), each.request_id, None)
                    for each in history(record)
                ]
        return versions, [each for answers in found for each in answers]

    return raced


def lies(made: dict[str, list[Version]], answered: list[tuple[str, Answered]]) -> list[tuple[str, Answered]]:
    return [(key, each) for key, each in answered if not laws.answers_are_true(made[key], [each])]


def test_every_record_is_moved_at_most_once_by_a_request_and_every_answer_is_true(
    race: Callable[[type[Settling]], tuple[dict[str, list[Version]], list[tuple[str, Answered]]]],
) -> None:
    """Law TB1, on the complete histories."""
    made, answered = race(Settling)

    assert lies(made, answered) == []
    assert laws.nothing_is_unknown(each for _, each in answered)
    assert all(laws.versions_are_consecutive(each) and laws.requests_count_once(each) for each in made.values())
    assert all(laws.changes_are_legal(TABLE, each) and each[0].record == FIRST for each in made.values())
    kinds = {type(each.answer) for _, each in answered}
    assert {Granted, Outdated} <= kinds


@pytest.mark.parametrize("bug", [TOTAL_IS_FOR_EACH, NOT_LOOKED], ids=["total_is_for_each", "not_looked"])
def test_a_planted_bug_is_found_on_a_real_server(
    race: Callable[[type[Settling]], tuple[dict[str, list[Version]], list[tuple[str, Answered]]]],
    bug: Callable[[], type[Settling]],
) -> None:
    """Law TB1."""
    made, answered = race(bug())

    assert lies(made, answered) != []
