"""Applications of reactive tasks in short runs on the simulated MongoDB (`mongo_runs`): two
processes, ten documents, a fault.

    python -m tests.integration.mongo_runs 17 --workloads reactive

Each process is a whole `Reactive`. A killed process sends nothing more, and another replaces it.
Documents are changed, removed and recreated, in watched fields or others. Handlers succeed, fail,
postpone, outlast their lease, ignore cancellation, or throttle their task. Some runs pause and
resume a task. In some, one process has an older version of the application, without a task or with
an older handler. It leaves when a newer process has come, or it comes after the newer one has led,
which leaves and returns later.

Judges:
    R1  In the end each task has handled the final state of each of its documents, and no record is
        open (RT1).
    R2  Handlers of one task and document never overlap, unless one ignores cancellation (RT2).
    R3  Each version of a record is unique and follows the one before, and no holder loses its lease
        (RT3, RT6, RT7).
    R4  Without a fault, each state of a document is handled successfully once, and again only after
        a change (RT5).
    R5  The stream's record is never written under an epoch that is over (SR1), nor with a position
        of another history (SR2).
    R6  A process that stops ends in time.
    R7  A record that is given up has used all attempts. Unless a process or its requests are lost,
        or it leaves while they are late, each attempt was a call, and no lease runs out without a
        call or after the handler returned (RT5, RT8).
    R8  What a new version of a handler reprocesses, by its policy, is reprocessed once, and nothing
        else is (DEP1, DEP2).
    R9  Where all are reachable, no handler of a paused task begins after its process has polled
        (PS1).
    R10 While the transaction of a dead process is open, all documents are handled except those
        whose records it holds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, ClassVar, Final, NamedTuple, final

import attrs
from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession
from tests.integration.mongo_runs import DATABASE, HELD_S, Run
from tests.integration.mongo_workloads import Documents, Work

from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Add, Document, Eq, Field, Put, Value, exactly, show
from tidegate.model.effects import Failure, Program, Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.operations import Operation, delete_one, insert_one, update_one
from tidegate.reactive.admin.pausing import Pausing
from tidegate.reactive.planning.change_stream import ChangeStreamConsumer
from tidegate.reactive.planning.deployments import DEFINITIONS, RESET_FOR
from tidegate.reactive.planning.evolution import STATUSES, OnNewVersion
from tidegate.reactive.planning.reconciler import EPOCH, HISTORY
from tidegate.reactive.planning.stream_records import AFTER
from tidegate.reactive.record.task_documents import DOCUMENT, STATUS, TASK, VERSION, loaded, record_id
from tidegate.reactive.record.task_records import FINISHED, PROCESSED, Ended, TaskRecord, TaskStatus
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.reactive import Change, Later, Reactive
from tidegate_adapters.reactive.names import KEY as KEY_OF_LEASE
from tidegate_adapters.reactive.names import LEASES, STREAMS
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.settings import ReactiveSettings

SOURCE: Final = "orders"
RECORDS: Final = f"{SOURCE}_tasks"
KEYS: Final = (1, 2, "x", "1", ObjectId("5f5f5f5f5f5f5f5f5f5f5f5f"), "y", 7, -1, "#1", "")
N, NOTE, KIND = Field[int]("n"), Field[int]("note"), Field[str]("kind")
KEY: Final = Field[Value](ID.name)
SETTINGS: Final = ReactiveSettings(
    database=DATABASE,
    concurrency=6,
    drain=timedelta(seconds=2),
    leave=timedelta(seconds=2),
    polling=PollingBounds(least=200 * MILLISECOND, most=5 * SECOND, jitter=10 * MILLISECOND),
    paused_every=timedelta(seconds=20),
    planner=PlannerRules(
        terms=Terms(ttl=4 * SECOND, heartbeat=1_500 * MILLISECOND, margin=500 * MILLISECOND),
        stream=ChangeStreamConsumer(wait=0, idle=5 * SECOND, pause=200 * MILLISECOND),
        pause=timedelta(milliseconds=800),
        drain=timedelta(seconds=1),
    ),
)
LEASE_S: Final = 2.0
SETTLED_S, STOPPED_S = 120.0, 15.0
POLICIES: Final = tuple(Policy(backoff=Fixed(200 * MILLISECOND), attempts_max=most) for most in (None, None, 1, 2))
DIES_S: Final = 10.0
OTHERS_S: Final = 12.0
"""How long the rest takes after the death: a new leader, and the end of leases."""
LONG: Final = ("x", 7)
"""Documents whose handlers keep transactions open beyond a lease."""
HEARD: Final = ("nothing", "stop", "robbed", "unheard", "cursors")
PAUSED_S: Final = 0.5
ASKED: Final = ("nothing", "stop", "kill", "forget")
MORE_TASKS: Final = ("another task", "rolled back")
REPROCESSING: Final = (OnNewVersion.REPROCESS_ALL, OnNewVersion.REPROCESS_FAILED)


class Handled(NamedTuple):
    began_s: float
    ended_s: float
    token: int
    n: int
    is_done: bool
    is_stubborn: bool


def is_for(task: str, doc: Document) -> bool:
    return task == "all" or doc.held(KIND) == "big"


@final
class Reactively(Work):
    documents: ClassVar[Documents] = {
        f"{DATABASE}.{SOURCE}": tuple(
            Document.of({"_id": key, "n": 0, "kind": "big" if at % 3 == 0 else "small", "note": 0})
            for at, key in enumerate(KEYS)
        )
    }

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.handled: dict[str, list[Handled]] = defaultdict(list)
        self.done: dict[tuple[str, Value], list[int]] = defaultdict(list)
        self.called: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.tasks = self.random.choice((("all",), ("all",), ("big",), ("all", "big")))
        self.policy = self.random.choice(POLICIES)
        self.quiet = timedelta(milliseconds=self.random.choice((0, 20)))
        self.deploys = self.random.choice((*("",) * 6, "another task", "another version", "rolled back"))
        self.older = self.random.choice("ab") if self.deploys else ""
        self.going = "ab" if self.deploys == "rolled back" else self.older
        self.again = self.random.choice(REPROCESSING)
        if self.deploys in MORE_TASKS:
            self.tasks = ("all", "big")
        self.pauses = self.random.choice((0, 0, 0, 0, 1, 2))
        self.paused: list[tuple[str, float, float]] = []
        """The task, when every living process has learned of the pause, and its end."""
        self.begun: list[tuple[str, str, float]] = []
        self.apps: dict[str, Reactive] = {}
        self.killed_s: dict[str, float] = {}
        self._values = iter(range(1, 1_000))

        self.insides = Random(f"insides {run.course.seed}")
        """Its own generator, so that other draws are those of runs without this fault."""
        self.dies = asyncio.Event()
        self.holding: set[str] = set()
        """Records that open transactions of the dying process will complete."""
        self.changed_s = 0.0

    async def begin(self) -> None:
        self.run.rob = self._rob
        self.run.lives += bool(self.deploys)
        for name in ("a", "b"):
            is_last = self.deploys and (name == self.older) == (self.deploys == "rolled back")
            self.run.begin(name, self._live(name, self.random.choice((0.0, 0.5, 2.0)) if is_last else 0.0))
        self.run.begin("w", self._change())
        if self.pauses:
            self.run.begin("o", self._pause())
        self.run.begin("judge", self._settle())

    # --- processes ---

    async def _live(self, name: str, after_s: float = 0.0) -> None:
        app = self.apps[name] = self._application(name)
        try:
            await asyncio.sleep(after_s)
            await app.serve()
        except asyncio.CancelledError:
            if name not in self.killed_s:
                raise
        except (Refused, TidegateError):  # its checks fail, so it does not start
            if not self.run.refuses:
                raise

    def _rob(self) -> None:
        self.story.tell("faults", "the lease is another's", fault="robbed")
        taken = {"$inc": {"version": 1, "token": 1}, "$set": {"holder": "thief", "request": "thief"}}
        leases = self.run.client("w")[DATABASE][LEASES]
        self.run.begin(
            "thief", _done(leases.update_one({"_id": KEY_OF_LEASE}, {**taken, "$currentDate": {"stamp": True}}))
        )

    async def _replace(self) -> None:
        """A process is killed or stopped, and replaced. A history is truncated in between."""
        told = self.run.course
        await asyncio.sleep(4 * told.at_s)
        gone = ("a", "b") if told.fault == "forget" else (told.whom,)
        self.story.tell("faults", f"{told.fault}: {gone}", fault=told.fault)
        for name in gone:
            if told.fault == "stop":
                self.apps[name].stop()
            else:
                self.killed_s[name] = self._now()
                self.run.dead.add(name)
        await asyncio.sleep(told.lasts_s)
        if told.fault == "forget":
            self.run.forget()
        self.run.begin("c", self._live("c"))

    async def _retire(self) -> None:
        if "c" not in self.run.tasks:
            self.run.begin("c", self._live("c"))
        await asyncio.sleep(self.random.random() * self.random.choice((0.5, 3.0)))
        self.story.tell("faults", f"{self.older} is of an older version, and goes", fault="stop")
        self.apps[self.older].stop()

    async def _roll_back(self) -> None:
        await asyncio.sleep(self.random.random() * self.random.choice((0.5, 2.0)))
        (young,) = {*"ab"} - {self.older}
        self.story.tell("faults", f"{young} is of a version that is rolled back, and goes", fault="stop")
        self.apps[young].stop()
        await asyncio.sleep(self.random.random() * 4.0)

    async def _pause(self) -> None:
        for _ in range(self.pauses):
            task = self.random.choice(self.tasks)
            await asyncio.sleep(self.random.random() * self.random.choice((0.1, 2.0)))
            await self._say(Pausing.pause, task)
            heard_s = self._now() + PAUSED_S + 0.25
            await asyncio.sleep(self.random.random() * self.random.choice((0.5, 4.0)))
            self.paused.append((task, heard_s, self._now()))
            await self._say(Pausing.resume, task)

    async def _say(self, what: Callable[[Pausing, str], Program[object]], task: str) -> None:
        while True:
            with suppress(Failure):
                await self.asked(what(Pausing(), task), "w")
                self.story.tell("o", f"{what.__name__} {task}")
                return

    def _application(self, name: str) -> Reactive:
        settings = attrs.evolve(SETTINGS, paused_every=timedelta(seconds=PAUSED_S)) if self.pauses else SETTINGS
        app = Reactive(self.run.store(name), settings=settings)
        options: Any = {"debounce": self.quiet, "retries": self.policy, "lease": timedelta(seconds=LEASE_S)}
        if self.deploys == "another version" and name != self.older:
            options |= {"version": 2, "on_new_version": self.again}

        async def handle(change: Change) -> None:
            await self._handle(name, change)

        is_short = self.deploys in MORE_TASKS and name == self.older
        for task in self.tasks[:1] if is_short else self.tasks:
            where = None if task == "all" else {"kind": "big"}
            app.task(SOURCE, watch=["n", "kind"], where=where, name=task, **options)(handle)
        return app

    async def _handle(self, process: str, change: Change) -> None:
        began_s, drawn = self._now(), self.random.random()
        id_, is_done = _value(change.id), False
        self.called[record_id(change.task, id_)].append((change.token, change.values["n"]))
        self.begun.append((process, change.task, began_s))
        is_stubborn = drawn > 0.97 and not self.run.is_calm
        try:
            if self.run.course.fault == "cut" and process == self.run.course.whom and not self.run.cut_until_s:
                self.story.tell("faults", f"{process} is cut off while it works", fault="cut")
                self.run.cut_until_s = began_s + self.run.course.lasts_s
                await asyncio.sleep(1.5 * LEASE_S)
            if drawn < 0.1:
                await asyncio.sleep(self.random.random() * 0.05)
                raise ArithmeticError("a bad day")
            if drawn < 0.15:
                raise Later(timedelta(milliseconds=50))
            if drawn < 0.18:
                change.throttle(timedelta(milliseconds=300))
            if self.run.course.fault == "holds" and (change.id in LONG or self.insides.random() < 0.3):
                await self._complete(process, change)
                is_done = True
                return
            await (_stubbornly(3 * LEASE_S) if is_stubborn else asyncio.sleep(1.5 * LEASE_S if drawn > 0.9 else 0.01))
            is_done = True
            return
        finally:
            ended_s = min(self._now(), self.killed_s.get(process, self._now()))
            if ended_s >= began_s:  # unless it was killed before
                is_done = is_done and process not in self.killed_s
                n = change.values["n"]
                self.handled[record_id(change.task, id_)].append(
                    Handled(began_s, ended_s, change.token, n, is_done, is_stubborn)
                )
                if is_done:
                    self.done[change.task, id_].append(n)

    async def _complete(self, process: str, change: Change) -> None:
        client = self.run.client(process)

        async def inside(session: AsyncClientSession) -> None:
            await change.complete(session)
            if process == self.run.course.whom and process not in self.run.dead:
                self.story.tell("faults", f"{process} dies in its transaction", fault="holds")
                self.killed_s[process] = self._now()
                self.run.dead.add(process)
                self.run.begin("v", self._change_held(_value(change.id)))
                self.dies.set()
            await asyncio.sleep(2 * LEASE_S if change.id in LONG else 0.01)

        record = record_id(change.task, _value(change.id))
        try:
            if process == self.run.course.whom and process not in self.run.dead:
                self.holding.add(record)
            async with client.start_session() as session:
                await session.with_transaction(inside)
        finally:
            if process == self.run.course.whom and process not in self.run.dead:
                self.holding.discard(record)

    async def _change_held(self, key: Value) -> None:
        other = self.insides.choice([each for each in KEYS if each != key])
        for each in (key, _value(other)):
            _ = await self.run.asking("w")(update_one(SOURCE, Eq(KEY, each), Put(N, next(self._values))))
            self.changed_s = self._now()
            await asyncio.sleep(2.0 * self.insides.random())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- documents ---

    async def _change(self) -> None:
        asked = self.run.asking("w")
        for _ in range(self.random.randint(3, 8)):
            await asyncio.sleep(self.random.random() * self.random.choice((0.01, 0.1, 2.0)))
            key, drawn = _value(self.random.choice(KEYS)), self.random.random()
            is_it = Eq(KEY, key)
            if drawn < 0.12:
                effect: Operation = delete_one(SOURCE, is_it)
            elif drawn < 0.25:
                made = Document.of({"_id": key, "n": next(self._values), "kind": "big", "note": 0})
                effect = insert_one(SOURCE, made)
            elif drawn < 0.35:
                effect = update_one(SOURCE, is_it, Add(NOTE, 1))
            elif drawn < 0.5:
                kind = self.random.choice(("big", "small"))
                effect = update_one(SOURCE, is_it, Put(KIND, kind), Put(N, next(self._values)))
            else:
                effect = update_one(SOURCE, is_it, Put(N, next(self._values)))
            _ = await asked(effect)
            self.changed_s = self._now()

    # --- judges ---

    async def _settle(self) -> None:
        if self.run.course.fault in ("kill", "stop", "forget"):
            await self._replace()
        if self.run.course.fault == "holds":
            with suppress(TimeoutError):
                await asyncio.wait_for(self.dies.wait(), DIES_S)
                await asyncio.sleep(self.run.course.lasts_s)
                self.run.begin("c", self._live("c"))
        if self.deploys == "rolled back":
            await self._roll_back()
        if self.older and self.older not in self.killed_s:
            await self._retire()
        await asyncio.wait([self.run.tasks[name] for name in ("w", "v", "o") if name in self.run.tasks])
        left: list[str] = []
        if self.run.course.fault == "holds" and self.run.dead:
            await self._judge_others(self.killed_s[self.run.course.whom])
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                while left := [*self._left()]:  # noqa: ASYNC110  documents report no changes
                    await asyncio.sleep(0.25)
        if left:
            self.story.accuse("R1", f"after {SETTLED_S} s there is left to do: {left[:3]}")
        for name in self.killed_s:
            self.run.tasks[name].cancel()
        for app in self.apps.values():
            app.stop()
        _, late = await asyncio.wait([self.run.tasks[name] for name in self.apps], timeout=STOPPED_S)
        for task in late:
            if task.get_name() not in self.killed_s:
                self.story.accuse("R6", f"{task.get_name()} was asked to stop, and goes on")

    async def _judge_others(self, since_s: float) -> None:
        """R10."""
        begins_s = max(self.changed_s, since_s)
        while (left := [*self._left(self.holding)]) and self._now() - begins_s < OTHERS_S:  # noqa: ASYNC110  as below
            await asyncio.sleep(0.25)
        if left and self._now() - since_s < HELD_S:
            self.story.accuse("R10", f"{OTHERS_S} s after a process has died in its transaction: {left[:3]}")

    def _left(self, but: Collection[str] = ()) -> Iterator[str]:
        docs, records = self.run.contents(SOURCE), self.run.contents(RECORDS)
        given_up = {
            (doc[TASK], exactly(doc[DOCUMENT])): _said(loaded(doc)) for doc in records if self._is_given_up(doc)
        }
        for task in self.tasks:
            for doc in docs:
                is_given_up = given_up.get((task, exactly(doc[KEY]))) == doc[N]
                if record_id(task, doc[KEY]) in but:
                    continue
                if is_for(task, doc) and doc[N] not in self.done[task, doc[KEY]] and not is_given_up:
                    yield f"{show(doc)} by {task}, which has handled {self.done[task, doc[KEY]]}"
        for doc in records:
            if doc[STATUS] != TaskStatus.COMPLETED.value and not self._is_given_up(doc) and doc[KEY] not in but:
                yield show(doc)

    def _is_given_up(self, doc: Document) -> bool:
        most = self.policy.attempts_max
        return most is not None and doc[STATUS] == TaskStatus.FAILED.value and loaded(doc).attempts == most

    async def end(self) -> None:
        for key, calls in self.handled.items():
            self._judge_calls(key, sorted(calls))
        before: dict[str, TaskRecord] = {}
        for change in self.run.changes(RECORDS):
            self._judge_version(before, str(change.key), change.after)
        self._judge_stream()
        if self.deploys == "another version":
            self._judge_versions()
        if self.run.course.fault in ASKED:
            self._judge_pauses()

    def _judge_calls(self, key: str, calls: list[Handled]) -> None:
        for one, other in pairwise(calls):
            if one.ended_s > other.began_s and not one.is_stubborn:
                self.story.accuse("R2", f"{key}: two at one time: {one} and {other}")
        if self.run.is_calm and self.deploys != "another version":
            done = [each.n for each in calls if each.is_done]
            if len(set(done)) != len(done):
                self.story.accuse("R4", f"{key} was handled for {done}")

    def _judge_version(self, before: dict[str, TaskRecord], key: str, held: Document | None) -> None:
        """R3."""
        was = before.pop(key, None)
        if held is None:
            return
        try:
            after = before[key] = loaded(held)
        except Misuse as wrong:
            self.story.accuse("R3", f"{key} is no record: {wrong}")
            return
        if record_id(held[TASK], held[DOCUMENT]) != key:
            self.story.accuse("R3", f"{key} is of {held[TASK]} and {show(held[DOCUMENT])}")
        if was is None:
            began = (0, TaskStatus.PENDING), (1, TaskStatus.PROCESSING)  # or the planner claimed it
            is_right = after.version == 1 and (after.token, after.status) in began
        else:
            is_claim = after.token > was.token
            is_right = after.id == was.id and after.version == was.version + 1 and after.token <= was.token + 1
            if is_claim:
                due = was.next_run_at
                is_due = due is not None and after.claimed_at is not None and after.claimed_at - due >= 0
                is_news = (after.snapshot, after.changed_at) != (was.snapshot, was.changed_at)
                is_right &= is_due or (was.owner is None and is_news)  # or the planner claimed it
            elif was.status in PROCESSED:
                is_right &= after.owner in (None, was.owner)
            else:
                is_right &= after.owner is None
        if not is_right:
            self.story.accuse("R3", f"{key}: {was} became {after}")
        self._judge_calls_of(key, was, after)

    def _judge_calls_of(self, key: str, was: TaskRecord | None, after: TaskRecord) -> None:
        """R7."""
        told, calls = self.run.course, self.called[key]
        # A process that leaves never finds its own late writes.
        is_heard = told.fault in HEARD and (self.run.is_calm or told.whom not in self.going)
        if is_heard and was is not None and _lapsed(was.token, after) and not _lapsed(was.token, was):
            what = f"under token {was.token}, and its lease ran out"
            if was.token not in dict(calls):
                self.story.accuse("R7", f"{key}: nobody was called {what}")
            if any(each.token == was.token and each.is_done and not each.is_stubborn for each in self.handled[key]):
                self.story.accuse("R7", f"{key}: the handler has returned {what}")
        # A document that is gone gets no call: the policy may give it up if its lease runs out
        # first.
        is_given_up = after.status is TaskStatus.FAILED and after.snapshot is not None
        if is_given_up and (was is None or was.status is not TaskStatus.FAILED):
            number = sum(n == _said(after) for _, n in calls)
            if after.attempts != self.policy.attempts_max or (is_heard and number < after.attempts):
                self.story.accuse("R7", f"{key} is given up after {number} calls: {after}")

    def _judge_versions(self) -> None:
        """R8. Records over when the leader's epoch began are reset before it stores the version."""
        over, known, began = STATUSES[self.again], dict[str, Document](), dict[str, Document]()
        reset: dict[str, int] = {}
        for change in self.run.history:
            if change.collection == STREAMS and change.after is not None:
                was = change.before or Document()
                if was.get(EPOCH) != change.after[EPOCH]:
                    began = dict(known)
                for task in _versioned(change.after) - _versioned(was):
                    for key, doc in known.items():
                        is_over = doc[TASK] == task and TaskStatus(doc[STATUS]) in over and not doc.has(RESET_FOR)
                        if is_over and began.get(key) == doc:
                            self.story.accuse("R8", f"{key} was not done over: {show(doc)}")
            if change.collection == RECORDS:
                key, before = str(change.key), change.before
                if change.after is None:
                    _ = known.pop(key, None), reset.pop(key, None)
                    continue
                known[key] = change.after
                if before is not None and _is_reset(loaded(before), loaded(change.after)):
                    reset[key] = loaded(change.after).token
                    if before.has(RESET_FOR) or TaskStatus(before[STATUS]) not in over:
                        self.story.accuse("R8", f"{key} is done over: {show(before)}")
        said = {exactly(doc[KEY]): doc for doc in self.run.contents(SOURCE)}
        for key, token in reset.items():
            there = said.get(exactly(known[key][DOCUMENT]))
            is_meant = there is not None and is_for(known[key][TASK], there) and not self._is_given_up(known[key])
            if is_meant and all(of <= token for of, _ in self.called[key]):
                self.story.accuse("R8", f"{key} was to be done over, and nobody was called")

    def _judge_pauses(self) -> None:
        """R9."""
        for process, task, at_s in self.begun:
            is_alive = at_s < self.killed_s.get(process, at_s + 1)
            for of, from_s, until_s in self.paused:
                if is_alive and task == of and from_s < at_s < until_s:
                    self.story.accuse("R9", f"{process} calls a handler of {task}, which is paused since {from_s:.3f}")

    def _judge_stream(self) -> None:
        """R5."""
        last = (0, 0)
        for change in self.run.changes(STREAMS):
            if change.after is None:
                continue
            at = change.after[EPOCH], change.after[HISTORY]
            if at[0] < last[0] or at[1] < last[1]:
                self.story.accuse("R5", f"epoch and history {at} after {last}")
            if change.before is not None and at[1] > last[1] and change.after.has(AFTER):
                self.story.accuse("R5", f"history {at[1]} begins with a position of {last[1]}")
            last = at


def _versioned(stream: Document) -> set[str]:
    return {each[TASK] for each in stream.get(DEFINITIONS) or () if each[VERSION] > 1}


def _is_reset(was: TaskRecord, after: TaskRecord) -> bool:
    is_again = was.status in FINISHED and after.status is TaskStatus.PENDING
    return is_again and was.snapshot is not None and was.snapshot == after.snapshot


def _lapsed(token: int, record: TaskRecord) -> bool:
    """Whether the record newly says that this run's lease expired."""
    return any((run.token, run.ended) == (token, Ended.LOST) for run in record.history)


def _said(record: TaskRecord) -> int | None:
    """The document's value in a record; None once it is gone."""
    if record.snapshot is None:
        return None
    assert isinstance(record.snapshot, Document)
    return record.snapshot[N]


async def _done(asked: Awaitable[object]) -> None:
    _ = await asked


def _value(key: Any) -> Value:
    return Document.of({"_id": key})[KEY]


async def _stubbornly(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
