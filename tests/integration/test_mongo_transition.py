from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, final
from uuid import UUID

import attrs
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.length import RACING_TRANSITIONS

from tidegate import laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.checks.specimens.transition import AMBIGUOUS_IS_REFUSED, OWNER_NOT_CHECKED, REQUEST_ID_IGNORED
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import HISTORY, OWNER, REQUEST, STATUS, VERSION, history, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition, transition
from tidegate.model.documents import ID, Document, Eq, Push
from tidegate.model.effects import Ambiguous, Call, Failure, NotApplied, Program
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.operations import InsertOne, Operation, UpdateOne, find_one
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect
from tidegate_adapters.mongo.bson import CODEC, loaded
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

Raw: TypeAlias = dict[str, Any]
MakeProxy: TypeAlias = Callable[..., BlackPipe]

COLLECTION: Final = "invocations"
THE_END: Final = "the end"
ANY_RECORD: Final = {"$ne": THE_END}
RECORDS: Final = 50
THREADS: Final = 16
TASKS: Final = 64
RUNNERS: Final = ("r1", "r2", "r3", "r4")
STATUSES: Final = tuple(definition.status for definition in INVOCATION.definitions)
LASTING: Final = tuple(definition.status for definition in INVOCATION.definitions if not definition.final)
ATTEMPTS: Final = 40  # enough for the faults below, so that no answer is Unknown
TIMEOUT_MS: Final = 400

# A hanging reply costs a timeout. A cut connection delays all callers by up to 0.5 s, because the
# driver looks for the server again, so cuts are rare. Delayed requests arrive after their callers
# have continued.
LOSSES: Final = (
    Rule("update", Action.CUT_REPLY, times=3, probability=0.01),
    Rule("update", Action.CUT_REQUEST, times=3, probability=0.01),
    Rule("update", Action.HANG_REPLY, probability=0.15),
    Rule("update", Action.HANG_REQUEST, probability=0.02),
    Rule("update", Action.DELAY_REQUEST, probability=0.02, delay=timedelta(seconds=1.5 * TIMEOUT_MS / 1_000)),
    Rule("insert", Action.HANG_REPLY, probability=0.2),
    Rule("find", Action.HANG_REPLY, probability=0.01),
)


@final
@attrs.frozen
class Choice:
    target: str
    runner: str | None
    expected: StatusRecord | None


async def command(made: type[Transition], key: str, name: str) -> Answered:
    record = await look(key)
    choice = await Call("choose", (None if record is None else viewed(record),))
    assert isinstance(choice, Choice)
    request = f"{key}/{name}:{choice.runner or ''}"
    known = choice.expected
    wanted = made(COLLECTION, INVOCATION, key, choice.target, choice.runner, request, ATTEMPTS, expected=known)
    return Answered(request, await wanted.run())


async def look(key: str) -> Document | None:
    while True:
        try:
            return await find_one(COLLECTION, Eq(ID, key))
        except (Ambiguous, NotApplied):
            pass


def record_of(request: str) -> str:
    return request.partition("/")[0]


def runner_of(request: str) -> str | None:
    return request.rpartition(":")[2] or None


@final
class Worker:
    def __init__(self, number: int, made: type[Transition]) -> None:
        self.chance = random.Random(number)
        self.confirmed: set[str] = set()
        self.number, self.made = number, made

    def programs(self, commands: int) -> Iterator[Program[Answered]]:
        for n in range(commands):
            key = min(self.chance.randrange(RECORDS), self.chance.randrange(RECORDS))
            yield command(self.made, f"record {key}", f"{self.number}.{n}")

    def choose(self, record: StatusRecord | None) -> Choice:
        following = [status for status in LASTING if status in INVOCATION.following(record and record.status)]
        legal = bool(following) and self.chance.random() < 0.85
        owner = None if record is None else record.owner
        mine = owner is not None and self.chance.random() < 0.85
        return Choice(
            self.chance.choice(following if legal else STATUSES),
            owner if mine else self.chance.choice((*RUNNERS, *RUNNERS, None)),
            record if self.chance.random() < 0.5 else None,
        )

    def stall(self) -> float:
        return self.chance.random() * 0.02 if self.chance.random() < 0.1 else 0

    def note(self, effect: Operation, reply: object) -> object:
        match effect:
            case UpdateOne(_, _, updates) if reply == 1:
                self.confirmed |= {update.value[REQUEST] for update in updates if isinstance(update, Push)}
            case InsertOne(_, doc) if not isinstance(reply, Failure):
                self.confirmed.add(doc[HISTORY][0][REQUEST])
            case _:
                pass
        return reply


Race: TypeAlias = Callable[[str, str, list[Worker], int], list[Answered]]


def in_threads(uri: str, database: str, workers: list[Worker], commands: int) -> list[Answered]:
    with MongoClient[Raw](uri) as client, ThreadPoolExecutor(len(workers)) as pool:
        store = Mongo(client, database)

        def work(worker: Worker) -> list[Answered]:
            def carry_out(effect: Operation) -> object:
                time.sleep(worker.stall())
                return worker.note(effect, store(effect))

            handle = choosing(documents(carry_out), local({"choose": worker.choose}))
            return [run(program, handle) for program in worker.programs(commands)]

        return [answered for answers in pool.map(work, workers) for answered in answers]


def in_tasks(uri: str, database: str, workers: list[Worker], commands: int) -> list[Answered]:
    async def race() -> list[Answered]:
        async with AsyncMongoClient[Raw](uri) as client:
            store = AsyncMongo(client, database)

            async def work(worker: Worker) -> list[Answered]:
                async def carry_out(effect: Operation) -> object:
                    await asyncio.sleep(worker.stall())
                    return worker.note(effect, await store(effect))

                async def choose(record: StatusRecord | None) -> Choice:
                    return worker.choose(record)

                handle = choosing(documents(carry_out), local_async({"choose": choose}))
                return [await run_async(program, handle) for program in worker.programs(commands)]

            return [answered for answers in await asyncio.gather(*map(work, workers)) for answered in answers]

    return in_loop(race())


@final
class Observer:
    def __init__(self, collection: Collection[Raw]) -> None:
        self.collection = collection
        self.stream = collection.watch()

    def histories(self) -> dict[str, list[Version]]:
        """Every version of each record; call it once, after the race."""
        self.collection.insert_one({"_id": THE_END})
        now: dict[str, Raw] = {}
        seen: dict[str, list[Version]] = {}
        while (event := self.stream.next())["documentKey"]["_id"] != THE_END:
            key = event["documentKey"]["_id"]
            match event["operationType"]:
                case "insert":
                    fields: Raw = event["fullDocument"]
                case "update":
                    fields = event["updateDescription"]["updatedFields"]
                case other:
                    raise AssertionError(f"a record met {other}")
            now[key] = now.get(key, {}) | fields
            seen.setdefault(key, []).append(version(now[key], fields))
        self.stream.close()
        return seen


def version(record: Mapping[str, Any], changed: Mapping[str, Any]) -> Version:
    number = record[VERSION.name]
    entries = [
        entry
        for name, held in changed.items()
        if name.partition(".")[0] == HISTORY.name
        for entry in (held if isinstance(held, list) else [held])
    ]
    requests = [entry[REQUEST.name] for entry in entries if entry[VERSION.name] == number]
    request = requests[0] if requests else ""
    return Version(StatusRecord(record[STATUS.name], record[OWNER.name], number), request, runner_of(request))


@final
@attrs.frozen
class Raced:
    """The facts after a race; no reply confirmed the `recognised` requests."""

    answered: list[Answered]
    histories: dict[str, list[Version]]
    left: dict[str, Document]
    recognised: set[str]
    lost: int

    @property
    def granted(self) -> set[str]:
        return {each.request for each in self.answered if isinstance(each.answer, Granted)}


@pytest.fixture
def compete(mongod: MongoServer, make_proxy: MakeProxy, database: str) -> Callable[..., Raced]:
    def compete(race: Race, runners: int, commands: int, *, retry_writes: bool, made: type[Transition]) -> Raced:
        workers = [Worker(number, made) for number in range(runners)]
        proxy = make_proxy(*LOSSES)
        uri = f"{proxy.uri}&socketTimeoutMS={TIMEOUT_MS}&retryWrites={str(retry_writes).lower()}"
        with MongoClient[Raw](mongod.uri) as client:
            collection = client.get_database(database, codec_options=CODEC)[COLLECTION]
            observer = Observer(collection)
            started = time.monotonic()
            answered = race(uri, database, workers, -(-commands // runners))
            seconds = time.monotonic() - started
            time.sleep(2 * TIMEOUT_MS / 1_000)  # requests in flight arrive
            histories = observer.histories()
            left = {doc[ID]: doc for doc in (loaded(raw, COLLECTION) for raw in collection.find({"_id": ANY_RECORD}))}
        confirmed = {request for worker in workers for request in worker.confirmed}
        granted = {each.request for each in answered if isinstance(each.answer, Granted)}
        lost = proxy.count("update", Action.HANG_REPLY) + proxy.count("update", Action.CUT_REPLY)
        kinds = dict(Counter(type(each.answer).__name__ for each in answered))
        print(f"{seconds:.1f} s, {kinds}, replies lost: {lost}, recognised: {len(granted - confirmed)}")
        return Raced(answered, histories, left, granted - confirmed, lost)

    return compete


def check(raced: Raced) -> None:
    assert raced.granted == {each.request for seen in raced.histories.values() for each in seen}
    for key, seen in raced.histories.items():
        theirs = [each for each in raced.answered if record_of(each.request) == key]

        assert seen[0].record.version == 1
        assert laws.transition.versions_are_consecutive(seen)
        assert laws.transition.changes_are_legal(INVOCATION, seen)
        assert laws.transition.requests_count_once(seen)
        assert laws.transition.versions_are_recorded(seen)
        assert laws.transition.answers_are_true(seen, theirs)
        assert laws.transition.nothing_is_unknown(theirs)
        assert viewed(raced.left[key]) == seen[-1].record
        assert history(raced.left[key]) == tuple(
            Change(each.record.version, each.request, each.record.status) for each in seen[-HISTORY_MAX:]
        )


@pytest.mark.parametrize(
    ("race", "runners", "retry_writes"),
    [
        pytest.param(in_threads, THREADS, False, id="threads-without retryWrites"),
        pytest.param(in_threads, THREADS, True, id="threads-with retryWrites", marks=pytest.mark.long),
        pytest.param(in_tasks, TASKS, False, id="tasks-without retryWrites", marks=pytest.mark.long),
        pytest.param(in_tasks, TASKS, True, id="tasks-with retryWrites"),
    ],
)
def test_every_accepted_transition_is_legal_and_every_answer_true(
    compete: Callable[..., Raced], race: Race, runners: int, *, retry_writes: bool
) -> None:
    """Laws TR1 to TR6, over the full history of each record."""
    raced = compete(race, runners, RACING_TRANSITIONS, retry_writes=retry_writes, made=Transition)
    check(raced)

    assert len(raced.answered) >= RACING_TRANSITIONS
    assert len(raced.granted) >= RACING_TRANSITIONS // 3
    assert raced.lost >= RACING_TRANSITIONS // 20
    if not retry_writes:
        assert len(raced.recognised) >= RACING_TRANSITIONS // 20


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(AMBIGUOUS_IS_REFUSED, id="ambiguous_is_refused"),
        pytest.param(REQUEST_ID_IGNORED, id="request_id_ignored", marks=pytest.mark.long),
        pytest.param(OWNER_NOT_CHECKED, id="owner_not_checked", marks=pytest.mark.long),
    ],
)
def test_a_planted_bug_is_found_out(compete: Callable[..., Raced], bug: Callable[[], type[Transition]]) -> None:
    raced = compete(in_threads, THREADS, 400, retry_writes=False, made=bug())
    with pytest.raises(AssertionError):
        check(raced)


@pytest.mark.parametrize(
    "key",
    [
        ObjectId("0" * 24),
        UUID(int=7),
        7,
        Int64(2**40),
        "x",
        Decimal128("1.50"),
        1.5,
        True,
        datetime(2020, 1, 1, tzinfo=UTC),
        {"b": 1, "a": 2},
        b"x",
    ],
    ids=repr,
)
def test_a_document_of_an_application_is_adopted_whatever_its_id(mongodb: str, database: str, key: object) -> None:
    """It has neither version nor owner."""
    stored = Binary.from_uuid(key) if isinstance(key, UUID) else key
    with connect(mongodb) as client:
        rows, handle = client[database].orders, Mongo(client, database)
        rows.insert_many(
            [{"_id": stored, "status": "registered", "total": 5}, {"_id": "other", "status": "registered"}]
        )

        def move(target: str) -> object:
            return run(transition("orders", INVOCATION, key, target, runner="r1", request=f"to {target}"), handle)

        assert [str(move(target)) for target in ("pending", "running")] == ["granted: version 1", "granted: version 2"]
        assert "not allowed" in str(move("pending"))
        found = rows.find_one({"_id": stored})
        assert found is not None
        assert (found["status"], found["owner"], found["version"], found["total"]) == ("running", "r1", 2, 5)
        assert rows.count_documents({"status": "registered"}) == 1
