"""Workloads of `mongo_runs`; the judges read the history, and a client without faults."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, final

import attrs
from tests.integration.mongo_runs import DATABASE, Run

from tidegate.counters.checks import laws as counter_laws
from tidegate.counters.counter import Counted, counter_of, new_counter
from tidegate.counters.increments import increment, sweep
from tidegate.invocations.checks.laws import transition as laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record.record_documents import history, new_record, viewed
from tidegate.invocations.record.status import NotAllowed, StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.record.transition import Granted, Outdated, Transition
from tidegate.leases.leader import FENCE, fenced
from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Failure, Program, Refused
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import find_one
from tidegate.reactive.planning import change_stream as stream
from tidegate.reactive.planning.change_stream import After, Page, Position
from tidegate.retries.retrying import RETRIES
from tidegate.transactions.checks import laws as transfer_laws
from tidegate.transactions.transacting import CONTENDING, in_transaction
from tidegate.transactions.transfers import BALANCE, Transfer, Transferred, account, transfer
from tidegate_adapters.kit.leases import LeaseBusy, LeaseLost, lease_async
from tidegate_adapters.kit.payloads import AsyncPayloads, PayloadAbsent, PayloadUnsettled
from tidegate_adapters.kit.resilience import AsyncKit, Done, NotDone, Rules, Sent
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.runtime.driver import choosing, documents, local_async, run_async
from tidegate_adapters.runtime.reducers import After as AfterSeconds
from tidegate_adapters.runtime.reducers import Call, Job, Runtime, as_failure
from tidegate_adapters.testing.mongo import Change

T = TypeVar("T")
Documents: TypeAlias = Mapping[str, tuple[Document, ...]]
THINGS: Final = "things"
THERE: Final = f"{DATABASE}.{THINGS}"
N: Final = Field[int]("n")
IMPATIENT: Final = attrs.evolve(RETRIES, attempts_max=2)


class Work:
    documents: ClassVar[Documents] = {}
    is_patient = True

    def __init__(self, run: Run) -> None:
        self.run, self.story, self.random = run, run.story, run.random

    async def begin(self) -> None:
        for number in range(self.run.course.tasks):
            client = "ab"[number % 2]
            self.run.begin(f"{client}{number}", self.task(f"{client}{number}", client))

    async def task(self, name: str, client: str) -> None:
        raise NotImplementedError

    async def end(self) -> None: ...

    async def a_while(self) -> None:
        await asyncio.sleep(self.random.random() * self.random.choice((0.0, 0.01, 0.1)))

    def asked(self, program: Program[T], client: str) -> Any:
        return run_async(program, choosing(documents(self.run.asking(client)), local_async()))

    def kit(self, client: str) -> AsyncKit:
        self.is_patient = self.run.course.seed % 2 == 0
        rules = (
            Rules()
            if self.is_patient
            else Rules(retries=IMPATIENT, attempt=timedelta(seconds=1), deadline=timedelta(seconds=4))
        )
        return AsyncKit(self.run.client(client), DATABASE, rules)

    def changes(self, collection: str = THINGS) -> list[Change]:
        return self.run.changes(collection)

    def held(self, key: str, collection: str = THINGS) -> Document | None:
        return next((doc for doc in self.run.contents(collection) if doc.items[0][1] == key), None)


# --- records ------------------------------------------------------------------------------------------------------------

TABLE: Final = StatusTable({"free"}, (StatusDefinition("free", {"held"}), StatusDefinition("held", {"free"})))
FIRST: Final = StatusRecord("free", None, 1)
MADE: Final = Instant(0)


class Records(Work):
    keys: ClassVar[tuple[str, ...]] = ("one",)
    documents: ClassVar[Documents] = {
        THERE: tuple(new_record(key, FIRST, "made", MADE) for key in ("one", "two", "three"))
    }

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.answered: dict[str, list[Answered]] = {key: [] for key in self.keys}

    async def end(self) -> None:
        for key, answered in self.answered.items():
            docs = [
                self.documents[THERE][self.keys.index(key)],
                *(each.after for each in self.changes() if each.key == key),
            ]
            versions = [_version(doc) for doc in docs if doc is not None]
            for holds, law in (
                (laws.versions_are_consecutive(versions), "TR1: versions are not one after the other"),
                (laws.changes_are_legal(TABLE, versions), "TR2: a change is no edge of the table"),
                (laws.requests_count_once(versions), "TR3: a request has made two versions"),
                (laws.answers_are_true(versions, answered), "TR4: an answer is not true"),
                (laws.versions_are_recorded(versions), "TR6: a version is not in its history"),
            ):
                if not holds:
                    self.story.accuse(
                        "M1", f"{law}: {[str(each.answer) for each in answered]}, {[v.request for v in versions]}"
                    )
            if self.run.is_survived and not laws.nothing_is_unknown(answered):
                self.story.accuse("M9", f"unknown: {[str(each.answer) for each in answered]}")


def _version(doc: Document) -> Version:
    record = viewed(doc)
    assert record is not None
    last = history(doc)[-1]
    return Version(record, last.request_id if last.version == record.version else "", None)


@final
class Transitions(Records):
    async def task(self, name: str, client: str) -> None:
        known: StatusRecord | None = FIRST
        for turn in range(self.random.randint(1, 3)):
            await self.a_while()
            target = "held" if known is None or known.status == "free" else "free"
            expected = known if self.random.random() < 0.6 else None
            request = f"{name}.{turn}"
            since = self.run.set.stable.changes
            try:
                answer = await self.asked(
                    Transition(THINGS, TABLE, "one", target, None, request, expected=expected).run(), client
                )
            except Refused:
                continue
            self.story.tell(name, f"{request} to {target}: {answer}")
            self.answered["one"].append(Answered(request, answer))
            self._check_so(request, answer, since)
            known = _learned(answer, known)

    def _check_so(self, request: str, answer: object, since: int) -> None:
        """M14."""
        docs = [self.documents[THERE][0], *(each.after for each in self.changes() if each.number < since)][-1:]
        docs += [each.after for each in self.changes() if each.number >= since]
        records = [_version(doc).record for doc in docs if doc is not None]
        if (isinstance(answer, NotAllowed) and answer.current not in {each.status for each in records}) or (
            isinstance(answer, Outdated) and answer.actual not in records
        ):
            self.story.accuse("M14", f"{request} is told {answer}, and since it was asked there were {records}")


def _learned(answer: object, known: StatusRecord | None) -> StatusRecord | None:
    if isinstance(answer, Granted):
        return answer.record
    return answer.actual if isinstance(answer, Outdated) else known


@final
class InBulk(Records):
    keys: ClassVar[tuple[str, ...]] = ("one", "two", "three")

    async def task(self, name: str, client: str) -> None:
        known = dict.fromkeys(self.keys, FIRST)
        for turn in range(self.random.randint(1, 2)):
            await self.a_while()
            keys = self.random.sample(self.keys, 2)
            moves = tuple(
                RecordMove(key, known[key], "held" if known[key].status == "free" else "free", f"{name}.{turn}")
                for key in keys
            )
            try:
                answers = await self.asked(Settling(THINGS, TABLE, moves, None).run(), client)
            except Refused:
                continue
            for move, answer in zip(moves, answers, strict=True):
                self.story.tell(name, f"{move.request} of {move.key} to {move.target}: {answer}")
                self.answered[move.key].append(Answered(move.request, answer))
                known[move.key] = _learned(answer, known[move.key]) or FIRST


# --- counters -----------------------------------------------------------------------------------------------------------


class Counting(Work):
    documents: ClassVar[Documents] = {THERE: (new_counter("counter"),)}

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.is_swept = False
        """After two sweeps a token is forgotten."""
        self.counted: list[str] = []
        self.not_counted: list[str] = []

    def check(self, token: str, answer: object) -> None:
        """M3, as soon as the answer is there."""
        self.story.tell("run", f"{token}: {answer}")
        if isinstance(answer, (Counted, Done)):
            self.counted.append(token)
            if token not in self.taken(self.run.set.stable.changes):
                self.story.accuse("M3", f"{token} is told as counted, and is not")

    def taken(self, until: int) -> list[str]:
        found: list[str] = []
        for change in self.changes():
            if (
                change.number < until
                and change.key == "counter"
                and change.before is not None
                and change.after is not None
            ):
                before, after = counter_of(change.before), counter_of(change.after)
                was, now = dict(before.tokens), dict(after.tokens)
                found += [token for token, times in was.items() if times > 0 and now.get(token, 0) <= 0]
        return found

    async def end(self) -> None:
        for change in self.changes():
            if change.key == "counter" and change.before is not None and change.after is not None:
                before, after = counter_of(change.before), counter_of(change.after)
                if not counter_laws.only_counting_takes_away(before, after):
                    self.story.accuse("M3", f"{before} has become {after}")
        for _ in range(3):
            await self.asked(sweep(THINGS, "counter"), "z")
        taken = self.taken(len(self.run.set.history))
        doc = cast("Document", self.held("counter"))
        if not counter_laws.each_counts_once(counter_of(doc), {token: taken.count(token) for token in taken}):
            self.story.accuse("M3", f"{taken} were counted, and there is {doc}")
        if missing := set(self.counted) - set(taken):
            self.story.accuse("M3", f"{sorted(missing)} are told as counted, and are not")
        if done := set(self.not_counted) & set(taken):
            self.story.accuse("M2", f"{sorted(done)} are told as not counted, and are")
        if not counter_laws.only_the_count_is_left(doc, "counter", len(taken)):
            self.story.accuse("M12", f"three sweeps leave {doc}")


@final
class Increments(Counting):
    async def task(self, name: str, client: str) -> None:
        for turn in range(self.random.randint(1, 3)):
            await self.a_while()
            token = f"{name}-{turn}"
            try:
                if self.random.random() < 0.2:
                    self.is_swept = True
                    await self.asked(sweep(THINGS, "counter"), client)
                    continue
                answer = await self.asked(increment(THINGS, "counter", token), client)
            except Failure:
                continue
            self.check(token, answer)
            if self.run.is_survived and not self.is_swept and not isinstance(answer, Counted):
                self.story.accuse("M9", f"{token} is {answer}")


@final
class KitCounters(Counting):
    async def task(self, name: str, client: str) -> None:
        kit = self.kit(client)
        for turn in range(self.random.randint(1, 3)):
            await self.a_while()
            token = f"{name}-{turn}"
            if self.random.random() < 0.2:
                self.is_swept = True
                _ = await kit.sweep(THINGS, "counter")
                continue
            answer = await kit.count(THINGS, "counter", token)
            self.check(token, answer)
            if isinstance(answer, NotDone):
                self.not_counted.append(token)
            if not self.is_swept:
                survived(self, name, answer)


# --- transfers ----------------------------------------------------------------------------------------------------------

ACCOUNTS: Final = "accounts"
ENTRIES: Final = "entries"
BEGAN: Final = {"one": 3, "two": 3}
HASTY: Final = attrs.evolve(RETRIES, attempts_max=1)
OF_A_TRANSFER: Final = 3


async def summed() -> int:
    held = [await find_one(ACCOUNTS, Eq(ID, key)) for key in BEGAN]
    return sum(each[BALANCE] for each in held if each is not None)


@final
class Transfers(Work):
    documents: ClassVar[Documents] = {
        f"{DATABASE}.{ACCOUNTS}": tuple(account(key, balance) for key, balance in BEGAN.items()),
        f"{DATABASE}.{ENTRIES}": (),
    }

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.is_patient = run.course.seed % 3 != 0
        self.policy = CONTENDING if self.is_patient else HASTY
        self.stores = {each: AsyncMongo(run.client(each), DATABASE) for each in "ab"}
        self.answers: dict[Transfer, Sent[Transferred]] = {}
        """The last answer of each. A NotDone counts only after a single request."""

    async def task(self, name: str, client: str) -> None:
        handle = choosing(documents(self.stores[client]), local_async())
        for turn in range(self.random.randint(1, 2)):
            await self.a_while()
            if self.random.random() < 0.3:
                self._check_sum(name, await run_async(in_transaction(f"{name}.{turn}", summed, self.policy), handle))
                continue
            giver, taker = self.random.sample(tuple(BEGAN), 2)
            asked = Transfer(f"{name}.{turn}", giver, taker, self.random.randint(1, 3))
            for again in range(self.random.randint(1, 2)):
                session = f"{asked.request}.{again}"
                self.answers.pop(asked, None)
                answer = await run_async(transfer(ACCOUNTS, ENTRIES, asked, session, self.policy), handle)
                self._check(name, asked, answer, is_again=again > 0)
                if isinstance(answer, NotDone):
                    break  # judged as it is

    def _check_sum(self, name: str, answer: Sent[int]) -> None:
        self.story.tell(name, f"the sum: {answer}")
        if isinstance(answer, Done) and answer.reply != sum(BEGAN.values()):
            self.story.accuse("M13", f"{name} sees a half of a transfer: {answer.reply}")
        self._check_survived(name, answer)

    def _check(self, name: str, asked: Transfer, answer: Sent[Transferred], *, is_again: bool) -> None:
        """M13, as soon as the answer is there."""
        self.story.tell(name, f"{asked}: {answer}")
        if not (is_again and isinstance(answer, NotDone)):
            self.answers[asked] = answer
        if isinstance(answer, Done) and answer.reply is Transferred.MOVED:
            until = self.run.set.stable.changes
            if asked.request not in {each.key for each in self.changes(ENTRIES) if each.number < until}:
                self.story.accuse("M13", f"{asked} is told as moved, and is not")
        self._check_survived(name, answer)

    def _check_survived(self, name: str, answer: Sent[Any]) -> None:
        if self.run.is_survived and self.is_patient and not isinstance(answer, Done):
            self.story.accuse("M9", f"{name} is told {answer}")

    async def end(self) -> None:
        if self.run.is_calm and (left := self.run.set.open_transactions):
            self.story.accuse("M13", f"{len(left)} transactions are open")
        elif not self.run.is_calm:
            self.run.kept = sum(len(store.sessions) for store in self.stores.values())
        entered = [each.key for each in self.changes(ENTRIES)]
        if len(entered) != len(set(entered)):
            self.story.accuse("M13", f"a transfer was done twice: {entered}")
        for asked, answer in self.answers.items():
            if not transfer_laws.the_answer_is_true(answer, is_entered=asked.request in entered):
                self.story.accuse("M13", f"{asked} is told {answer}, and done are {entered}")
        self._judge_history()

    def _judge_history(self) -> None:
        accounts = {key: account(key, balance) for key, balance in BEGAN.items()}
        entries: list[Document] = []
        for number, change in enumerate(self.run.set.history, 1):
            if change.after is None:
                self.story.accuse("M13", f"nobody deletes, and there is a {change}")
            elif change.collection == ENTRIES:
                entries.append(change.after)
            else:
                accounts[str(change.key)] = change.after
            if number % OF_A_TRANSFER == 0 or number == len(self.run.set.history):
                held = tuple(accounts.values())
                if not transfer_laws.balances_are_what_entries_say(BEGAN, held, entries):
                    self.story.accuse("M13", f"there is {held}, and entries say {entries}")
                if not transfer_laws.nobody_owes(held):
                    self.story.accuse("M13", f"somebody owes: {held}")


def survived(work: Work, name: str, sent: Sent[Any]) -> None:
    """M9."""
    if work.run.is_survived and work.is_patient and not isinstance(sent, Done):
        work.story.accuse("M9", f"{name} is told {sent}")
    if work.run.is_calm and isinstance(sent, Done) and sent.attempts != 1:
        work.story.accuse("M9", f"{name} was sent {sent.attempts} times, and nothing struck")


@final
class KitWrites(Work):
    documents: ClassVar[Documents] = {
        THERE: tuple(
            Document.of({"_id": f"{of}.{each}", "of": of, "n": each})
            for of in ("a0.0", "a0.1", "a0.2", "b1.0", "b1.1", "b1.2", "a2.0", "a2.1", "a2.2")
            for each in range(3)
        )
    }

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.not_done: list[tuple[str, str]] = []

    async def task(self, name: str, client: str) -> None:
        kit = self.kit(client)
        for turn in range(self.random.randint(1, 3)):
            await self.a_while()
            of, sent = f"{name}.{turn}", cast("Sent[Any]", None)
            match self.random.choice(("insert", "insert twice", "delete", "delete_many")):
                case "delete":
                    sent = await kit.delete(THINGS, f"{of}.1")
                    self._check(name, "delete", [f"{of}.1"], sent)
                case "delete_many":
                    sent = await kit.delete_many(THINGS, {"of": of, "n": {"$gte": 1}})
                    self._check(name, "delete", [f"{of}.1", f"{of}.2"], sent)
                case how:
                    for _ in range(2 if how == "insert twice" else 1):
                        sent = await kit.insert(THINGS, {"_id": f"{of}.new", "n": turn})
                        self._check(name, "insert", [f"{of}.new"], sent, is_last=how == "insert")
            survived(self, name, sent)

    def _check(self, name: str, kind: str, keys: list[str], sent: Sent[Any], *, is_last: bool = True) -> None:
        self.story.tell(name, f"{kind} of {keys}: {sent}")
        if isinstance(sent, Done):
            if wrong := [key for key in keys if (self.held(key) is None) is (kind == "insert")]:
                self.story.accuse("M2", f"{kind} of {keys} is {sent}, and a majority has it otherwise: {wrong}")
        elif isinstance(sent, NotDone) and is_last:
            self.not_done += [(kind, key) for key in keys]

    async def end(self) -> None:
        done = {(each.kind, each.key) for each in self.changes()}
        if wrong := [each for each in self.not_done if each in done]:
            self.story.accuse("M2", f"{wrong} are told as not done, and were")


# --- leases -------------------------------------------------------------------------------------------------------------

TERMS: Final = Terms(ttl=3 * SECOND, heartbeat=SECOND, margin=300 * MILLISECOND)
PATIENCE: Final = timedelta(seconds=40)


@final
class Leases(Work):
    documents: ClassVar[Documents] = {THERE: (Document.of({"_id": "work", "n": 0, "fence": 0}),)}

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.inside: str | None = None
        self.epoch = 0

    async def task(self, name: str, client: str) -> None:
        store = AsyncMongo(self.run.client(client), DATABASE)
        handle = choosing(documents(store), local_async())
        for _ in range(self.random.randint(1, 2)):
            await self.a_while()
            try:
                async with lease_async(store, "lease", terms=TERMS, patience=PATIENCE) as held:
                    self._enter(name, held.epoch)
                    try:
                        for _ in range(self.random.randint(1, 3)):
                            await asyncio.sleep(self.random.random() * self.random.choice((0.1, 1.0, 4.0)))
                            if not held.left:
                                self.story.accuse("M4", f"{name} goes on under a lease that is over")
                            with suppress(Failure):
                                reply = await run_async(_written(held.epoch), handle)
                                self.story.tell(name, f"writes under epoch {held.epoch}: {reply}")
                    finally:
                        self._leave(name)
            except LeaseLost:
                self.story.tell(name, "has lost the lease")
                if self.run.is_survived:
                    self.story.accuse("M9", f"{name} has lost the lease, and nothing has lasted")
            except LeaseBusy:
                self.story.tell(name, "does not get the lease")
                if self.run.is_survived:
                    self.story.accuse("M9", f"{name} does not get the lease, and nothing has lasted")
            except Refused as refused:
                self.story.tell(name, f"is told {refused}")

    def _enter(self, name: str, epoch: int) -> None:
        self.story.tell(name, f"is inside under epoch {epoch}")
        if self.inside is not None:
            self.story.accuse("M4", f"{name} is inside, and {self.inside} is")
        if epoch <= self.epoch:
            self.story.accuse("M4", f"epoch {epoch} is given after {self.epoch}")
        self.inside, self.epoch = name, epoch

    def _leave(self, name: str) -> None:
        self.story.tell(name, "is outside")
        self.inside = None if self.inside == name else self.inside

    async def end(self) -> None:
        fences = [cast("int", each.after.held(FENCE)) for each in self.changes() if each.after is not None]
        if any(after < before for before, after in pairwise(fences)):
            self.story.accuse("M5", f"under these epochs it was written: {fences}")
        record = self.held("lease", "leases")
        if (
            self.run.is_calm
            and record is not None
            and "holder" in (held := dict(record.items))
            and held["holder"] is not None
        ):
            self.story.accuse("M11", f"the lease was not released: {record}")


async def _written(epoch: int) -> int:
    return await fenced(THINGS, "work", epoch, Put(N, epoch))


# --- payloads -----------------------------------------------------------------------------------------------------------


@final
class Uploads(Work):
    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.begun: dict[bytes, float] = {}
        self.put: dict[bytes, tuple[float, float]] = {}

    def payloads(self, client: str) -> AsyncPayloads:
        return AsyncPayloads(self.run.client(client), DATABASE, threshold=12, chunk_bytes=8, codec="none")

    async def task(self, name: str, client: str) -> None:
        payloads = self.payloads(client)
        for turn in range(self.random.randint(1, 2)):
            await self.a_while()
            try:
                if self.random.random() < 0.7:
                    await self._put(payloads, name, f"{name}.{turn} ".encode() * self.random.choice((1, 3, 5)))
                else:
                    await self._read(payloads, name)
            except (PayloadUnsettled, Refused, Failure) as error:
                self._not(name, error)
            except Exception as error:  # noqa: BLE001  any other error about stored data
                if self.run.refuses:
                    continue
                self.story.accuse("M6", f"{name} is told {error!r}")

    def _not(self, name: str, error: BaseException) -> None:
        self.story.tell(name, f"is told {type(error).__name__}")
        if self.run.is_survived:
            self.story.accuse("M9", f"{name} is told {error!r}")

    async def _put(self, payloads: AsyncPayloads, name: str, data: bytes) -> None:
        began = self.begun[data] = self.run.set.loop.time()
        self.story.tell(name, f"puts {data!r}")
        await payloads.put("key", data)
        self.put[data] = (began, self.run.set.loop.time())
        self.story.tell(name, f"has put {data!r}")

    async def _read(self, payloads: AsyncPayloads, name: str) -> None:
        began = self.run.set.loop.time()
        ended = {data for data, (_, end) in self.put.items() if end < began}
        try:
            data = await payloads.get("key")
        except PayloadAbsent:
            if ended:
                self.story.accuse("M6", f"{name} finds nothing, and {ended} were put")
            return
        self.story.tell(name, f"reads {data!r}")
        if data not in self.begun:
            self.story.accuse("M6", f"{name} reads {data!r}, which nobody has put")
        elif data in self.put and any(
            self.put[other][0] > self.put[data][1] and self.put[other][1] < began for other in ended
        ):
            self.story.accuse("M6", f"{name} reads {data!r}, which was replaced before")

    async def end(self) -> None:
        clean = self.payloads("z")
        for _ in range(3):
            _ = await clean.sweep(timedelta())
            await asyncio.sleep(0.01)
        with suppress(PayloadAbsent):
            data = await clean.get("key")
            needed = 0 if len(data) <= 12 else -(-len(data) // 8)
            left = len(self.run.contents("payload_chunks"))
            if left != needed:
                self.story.accuse("M12", f"there are {left} chunks, of a payload that has {needed}")
        await self._read(clean, "z")


# --- change streams -----------------------------------------------------------------------------------------------------

WATCHED: Final = (THINGS, "others")
TOKEN, TIME = Field[Any]("token"), Field[Any]("time")
CAUGHT_UP_S, STOPPED_S = 60.0, 12.0


@final
class Streams(Work):
    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.looked: dict[tuple[str, object], int] = {}
        """The number of changes when a finished processing of each document began."""
        self.saved: tuple[int, Position | None] = (0, None)
        self.reconciled = -1

    async def begin(self) -> None:
        self.run.begin("a0", self._consume())
        for number in range(1, self.run.course.tasks):
            self.run.begin(f"b{number}", self.task(f"b{number}", "b"))

    async def task(self, name: str, client: str) -> None:
        mongo = self.run.client(client)[DATABASE]
        for turn in range(self.random.randint(2, 6)):
            await self.a_while()
            held, key = mongo[self.random.choice((*WATCHED, "strange"))], self.random.randrange(3)
            with suppress(Exception):
                if self.random.random() < 0.3:
                    await held.delete_one({"_id": key})
                elif self.random.random() < 0.5:
                    await held.insert_one({"_id": key, "by": f"{name}.{turn}"})
                else:
                    await held.update_one({"_id": key}, {"$set": {"by": f"{name}.{turn}"}})

    async def _consume(self) -> None:
        for epoch in (1, 2):
            changes = ChangeStream(self.run.client("a"), DATABASE, WATCHED, wait=timedelta(milliseconds=50))
            runtime: Runtime[stream.StreamState, stream.StreamEvent, stream.StreamCommand] = Runtime(
                stream.ChangeStreamConsumer(wait=20 * MILLISECOND, pause=50 * MILLISECOND, idle=100 * MILLISECOND),
                stream.Following(),
                lambda command, changes=changes: self._begin(changes, command),  # type: ignore[misc]
                lambda command, reply: stream.event_for(command, as_failure(reply)),
            )
            try:
                history, position = self.saved
                runtime.tell(stream.Elected(epoch, history, position))
                if epoch == 1:
                    await asyncio.sleep(self.random.random() * 0.3)
                    self.story.tell("a0", "is cut off")
                    continue
                async with asyncio.timeout(CAUGHT_UP_S):
                    while not self._all_looked():  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                runtime.tell(stream.StopRequested())
                async with asyncio.timeout(STOPPED_S):
                    await runtime.until(lambda state: isinstance(state, stream.Stopped))
            except TimeoutError:
                self.story.accuse("M8", f"of {self._all()} these were looked at: {self.looked}")
            finally:
                await runtime.close()
                await changes.close()

    def _all(self) -> dict[tuple[str, object], int]:
        return self._all_until(len(self.run.set.history))

    def _all_looked(self) -> bool:
        is_over = all(task.done() for name, task in self.run.tasks.items() if name != "a0")
        return is_over and all(self.looked.get(each, -1) > number for each, number in self._all().items())

    def _begin(self, changes: ChangeStream, command: stream.StreamCommand) -> Job:
        match command:
            case stream.Locate():
                return Call(changes.locate)
            case stream.Read(_, position):
                return Call(lambda: self._read(changes, position))
            case stream.HandleChanged(_, _, collection, ids) | stream.HandleDeleted(_, _, collection, ids):
                return Call(lambda: self._look(tuple((collection, each) for each in ids)))
            case stream.Save(_, history, position):
                return Call(lambda: self._save(history, position))
            case stream.ResetHistory(_, history):
                return Call(lambda: self._reset(history))
            case stream.Reconcile(_, history):
                return Call(lambda: self._reconcile(history))
            case stream.StartTimer(duration=duration):
                return AfterSeconds(duration / SECOND)

    async def _read(self, changes: ChangeStream, position: Position) -> object:
        page = await changes.read(position)
        if isinstance(page, Page) and isinstance(page.position, After):
            first, last = self._number(position), self._number(page.position)
            expected = [
                (each.collection, each.key, each.kind == "delete")
                for each in self.run.set.history[first:last]
                if each.collection in WATCHED
            ]
            told = [(each.collection, each.id, each.is_gone) for each in page.changes]
            if told != expected:
                self.story.accuse("M7", f"from {first} to {last} there is {expected}, and told is {told}")
        return page

    def _number(self, position: Position) -> int:
        if isinstance(position, After):
            return int(cast("Document", cast("Document", position.token)[TOKEN])[Field[str]("_data")], 16)
        begun = _ticks_of(cast("Document", position.time)[TIME])
        later = (each.number for each in self.run.set.history if _ticks(each) >= begun)
        return next(later, len(self.run.set.history))

    async def _look(self, ids: tuple[tuple[str, object], ...]) -> None:
        begun = len(self.run.set.history)
        await asyncio.sleep(self.random.random() * 0.02)
        self.looked.update(dict.fromkeys(ids, begun))

    async def _save(self, history: int, position: Position) -> None:
        number = self._number(position)
        if self.reconciled == history:
            for each, last in self._all_until(number).items():
                if self.looked.get(each, -1) <= last:
                    self.story.accuse(
                        "M7", f"position {number} is saved, and change {last} of {each} was not looked at"
                    )
        self.saved = (history, position)
        self.story.tell("a0", f"saves position {number}")

    def _all_until(self, number: int) -> dict[tuple[str, object], int]:
        return {
            (each.collection, each.key): each.number
            for each in self.run.set.history[:number]
            if each.collection in WATCHED
        }

    async def _reset(self, history: int) -> None:
        self.saved = (history, None)
        self.story.tell("a0", f"begins history {history}")

    async def _reconcile(self, history: int) -> None:
        begun = len(self.run.set.history)
        await asyncio.sleep(self.random.random() * 0.02)
        self.looked.update(dict.fromkeys(self._all_until(begun), begun))
        self.reconciled = history
        self.story.tell("a0", "has looked at everything")


def _ticks(change: Change) -> int:
    return (change.time.time << 32) + change.time.inc


def _ticks_of(time: object) -> int:
    return int.from_bytes(cast("Any", time).payload, "little")


WORKLOAD: Final[Mapping[str, type[Work]]] = {
    "transitions": Transitions,
    "settling": InBulk,
    "increments": Increments,
    "counters": KitCounters,
    "kit": KitWrites,
    "leases": Leases,
    "payloads": Uploads,
    "streams": Streams,
    "transfers": Transfers,
}
