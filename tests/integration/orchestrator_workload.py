"""Applications of tasks in short runs on the simulated MongoDB (`mongo_runs`): two processes, five
invocations, a fault.

    python -m tests.integration.mongo_runs 17 --workloads orchestrator

Each process is a whole `Orchestrator`. A third one enqueues and waits, and at times cancels, kills,
holds and repeats. A killed process sends nothing more, and another replaces it. Handlers succeed,
fail, call others and wait for them, at times with a timeout, exceed their limit, or ignore
cancellation; some exclude each other. Some emit an event that meets two conditions.

Judges:
    O1  In the end each invocation has ended (RP3). Each caller that waits gets the result or the
        error of the run that the record names (EN1).
    O2  Handlers of one invocation never overlap, unless one ignores cancellation; nor do handlers
        that exclude each other (AD1).
    O3  Each version of a record is unique, an edge of the table, by the owner where that is
        required, and due exactly while a runner may take it (TR1, TR2, IV2). A final status stays.
    O4  Without a fault, a handler that has returned is not called again; and none is called more
        often than its task allows (EN3).
    O5  An invocation enqueued under an id exists once, and each confirmed one exists.
    O6  A process that stops ends in time, and requeues its runs (WK7).
    O7  An invocation confirmed as cancelled has ended, and no run of it begins after that (AK2).
    O8  A process has no more active handlers than slots; those that wait do not count (WK1).
    O9  Both conditions see an emitted event or neither does; both do where `emit` confirmed it
        (TE12).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, final

import attrs
from tests.integration.mongo_runs import DATABASE, Run
from tests.integration.mongo_workloads import Documents, Work

from tidegate.invocations.admin.commands import Asked, Asking, Command
from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.invocations.record.invocation import CANCELLED, FAILED, INVOCATION, SUCCESS
from tidegate.invocations.record.record_documents import DUE, OWNER, RESULT, STATUS, TASK, VERSION, WAITS
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
from tidegate.model.documents import ID, Document, Field, Value, show
from tidegate.model.effects import Refused
from tidegate.model.errors import TidegateError
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.orchestrator import (
    Handle,
    InvocationCancelled,
    InvocationFailed,
    MaxRunning,
    Orchestrator,
    Task,
    on_event,
)
from tidegate_adapters.orchestrator.handles import CURRENT
from tidegate_adapters.orchestrator.services import RECOVERY
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules

RECORDS: Final = "orchestrator_invocations"
OCCURRENCES: Final = "orchestrator_occurrences"
KEY: Final = Field[Value](ID.name)
CONTEXT, EVENT = Field[Document]("context"), Field[str]("event")
INVOCATIONS: Final = 5
SETTINGS: Final = OrchestratorSettings(
    database=DATABASE,
    drain=timedelta(seconds=2),
    leave=timedelta(seconds=2),
    polling=PollingBounds(least=200 * MILLISECOND, most=4 * SECOND, jitter=10 * MILLISECOND),
    beat_every=timedelta(seconds=1),
    dead_after=timedelta(seconds=3),
    paused_every=timedelta(seconds=20),
    result_every=timedelta(seconds=2),
    services=ServiceRules(
        processes=3,
        interval=timedelta(seconds=12),
        spread=timedelta(milliseconds=100),
        check_every=timedelta(milliseconds=1_500),
        round_every=timedelta(seconds=2),
        recover="*/3 * * * * *",
    ),
)
LIMIT_S: Final = 0.7
TRIES: Final = 3
SETTLED_S, STOPPED_S = 120.0, 15.0
POLICY: Final = Policy(backoff=Fixed(200 * MILLISECOND), attempts_max=TRIES)
FINAL: Final = frozenset(each.status for each in INVOCATION.definitions if each.final)
AVAILABLE: Final = frozenset(each.status for each in INVOCATION.definitions if each.available)
HEARD_S: Final = 2.5
"""Within this time a runner sees a cancellation."""
PATIENCE: Final[tuple[tuple[float | None, bool], ...]] = (
    (None, True),
    (0.1, True),
    (0.7, True),
    (0.7, False),
    (2.0, False),
)
"""How long a handler waits for another, in s, and whether `result` gets that timeout."""
MANNERS: Final = ("well", "well", "well", "badly", "slowly", "too long", "for long", "stubbornly")


class Handled(NamedTuple):
    began_s: float
    ended_s: float
    version: int
    is_done: bool
    is_stubborn: bool
    alone: str
    task: str


@final
class Orchestrating(Work):
    documents: ClassVar[Documents] = {}

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.handled: dict[str, list[Handled]] = defaultdict(list)
        self.apps: dict[str, Orchestrator] = {}
        self.tasks: dict[str, dict[str, Task[Any, Any]]] = {}
        self.killed_s: dict[str, float] = {}
        self.slots: dict[str, set[str]] = defaultdict(set)
        """The runs of each process whose handlers are active and do not wait."""
        self.made: set[str] = set()
        self.cancelled: dict[str, float] = {}
        self.told: dict[str, float] = {}
        self.disturbed: set[str] = set()
        self.heard: dict[str, object] = {}
        self.emitted: set[str] = set()
        self._requests = iter(range(1_000))

    async def begin(self) -> None:
        for name in ("a", "b"):
            self.run.begin(name, self._live(name))
        self.run.begin("w", self._enqueue())
        self.run.begin("judge", self._settle())

    # --- processes ---

    async def _live(self, name: str) -> None:
        app = self.apps[name] = self._application(name)
        try:
            await app.serve()
        except asyncio.CancelledError:
            if name not in self.killed_s:
                raise
        except (Refused, TidegateError):  # its checks fail, so it does not start
            if not self.run.refuses:
                raise

    async def _replace(self) -> None:
        told = self.run.course
        await asyncio.sleep(4 * told.at_s)
        self.story.tell("faults", f"{told.fault}: {told.whom}", fault=told.fault)
        if told.fault == "stop":
            self.apps[told.whom].stop()
        else:
            self.killed_s[told.whom] = self._now()
            self.run.dead.add(told.whom)
        await asyncio.sleep(told.lasts_s)
        self.run.begin("c", self._live("c"))

    def _application(self, name: str) -> Orchestrator:
        settings = attrs.evolve(SETTINGS, concurrency=self.random.choice((1, 2)))
        app = Orchestrator(self.run.store(name), settings=settings)
        options: Any = {"retries": POLICY}

        async def plain(manner: str) -> str:
            return await self._handle(name, manner)

        async def limited(manner: str) -> str:
            return await self._handle(name, manner)

        async def alone(manner: str, of: str) -> str:
            return await self._handle(name, manner, of)

        async def parent(manner: str) -> str:
            with self._handling(name) as run:
                key = CURRENT.get().run.id
                children = [await plain_task.enqueue(manner, key=f"{key}/{number}") for number in range(2)]
                ended = [await self._patient(name, run, each) for each in children]
                await self._work(name, "well")
                return f"{run} {len(ended)}"

        async def hasty(manner: str) -> str:
            return await parent(manner)

        plain_task = app.task(**options)(plain)
        self.tasks[name] = {
            "plain": plain_task,
            "limited": app.task(timeout=timedelta(seconds=LIMIT_S), **options)(limited),
            "alone": app.task(max_running=MaxRunning.per(_of), **options)(alone),
            "parent": app.task(**options)(parent),
            "hasty": app.task(timeout=timedelta(seconds=LIMIT_S), **options)(hasty),
        }
        return app

    async def _handle(self, process: str, manner: str, alone: str = "") -> str:
        with self._handling(process, alone, is_stubborn=manner == "stubbornly") as run:
            await self._work(process, manner)
            return run

    @contextmanager
    def _handling(self, process: str, alone: str = "", *, is_stubborn: bool = False) -> Generator[str, None, None]:
        began_s, run, is_done = self._now(), CURRENT.get().run, False
        named = f"{run.id}@{run.token}"
        self._has_slot(process, named)
        try:
            yield named
            is_done = True
        finally:
            self.slots[process].discard(named)
            ended_s = min(self._now(), self.killed_s.get(process, self._now()))
            if ended_s >= began_s:  # unless it was killed before
                is_done &= process not in self.killed_s
                call = Handled(began_s, ended_s, run.token, is_done, is_stubborn, alone, run.task)
                self.handled[run.id].append(call)

    def _has_slot(self, process: str, run: str) -> None:
        """O8."""
        slots, most = self.slots[process], self.apps[process].settings.concurrency
        slots.add(run)
        if len(slots) > most:
            self.story.accuse("O8", f"{process} has {most} slots, and runs {sorted(slots)}")

    async def _work(self, process: str, manner: str) -> None:
        if self.run.course.fault == "cut" and process == self.run.course.whom and not self.run.cut_until_s:
            self.story.tell("faults", f"{process} is cut off while it works", fault="cut")
            self.run.cut_until_s = self._now() + self.run.course.lasts_s
            await asyncio.sleep(1.5 * self.run.course.lasts_s)
        match manner:
            case "badly":
                await asyncio.sleep(self.random.random() * 0.05)
                if self.random.random() < 0.7:
                    raise ArithmeticError("a bad day")
            case "slowly" | "too long" | "for long":
                await self._emit(process)
                await asyncio.sleep({"slowly": 0.3, "too long": 1.5, "for long": 5.0}[manner])
            case "stubbornly" if not self.run.is_calm:
                await _stubbornly(3.0)
            case _:
                await asyncio.sleep(0.01)

    async def _emit(self, process: str) -> None:
        """Each process drops the notice. A limit would interrupt the handler, which waits for its
        transaction.
        """
        app, run = Orchestrator(self.run.store(process), settings=SETTINGS), CURRENT.get().run
        if run.task in ("limited", "hasty"):
            return

        @app.task(triggers=[on_event("begun"), on_event("begun", where={})])
        async def hear() -> None: ...

        event = f"{run.id}@{run.token}"
        try:
            await app.emit("begun", event=event)
            self.emitted.add(event)
        except (Refused, TidegateError):
            pass
        finally:
            if not self.run.is_calm:  # no event reports it
                self.run.kept += sum(len(getattr(there.site.store, "sessions", ())) for there in app._open.values())  # noqa: SLF001

    async def _patient(self, process: str, run: str, handle: Handle[Any]) -> object:
        while True:
            patience_s, is_told = self.random.choice(PATIENCE)
            self.slots[process].discard(run)
            try:
                if is_told or patience_s is None:
                    return await handle.result(None if patience_s is None else timedelta(seconds=patience_s))
                return await asyncio.wait_for(handle.result(), patience_s)
            except (InvocationFailed, InvocationCancelled) as ended:
                return ended
            except TimeoutError:
                self._has_slot(process, run)
            except (Refused, TidegateError):
                self._has_slot(process, run)
                await asyncio.sleep(0.5)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- callers -------------

    async def _enqueue(self) -> None:
        app = self.apps["w"] = self._application("w")
        waiting = []
        for number in range(INVOCATIONS):
            await asyncio.sleep(self.random.random() * self.random.choice((0.0, 0.01, 0.1, 1.0)))
            waiting.append(asyncio.create_task(self._one(f"i{number}")))
        await asyncio.wait(waiting)
        for each in waiting:
            each.result()
        await app.close()

    async def _one(self, key: str) -> None:
        drawn, manner = self.random.random(), self.random.choice(MANNERS)
        name = self.random.choice(("plain", "plain", "limited", "alone", "parent", "hasty"))
        given = (manner, self.random.choice("xy")) if name == "alone" else (manner,)
        task = self.tasks["w"][name]
        handle: Handle[Any] | None = None
        while handle is None:
            try:
                handle = await task.enqueue(*given, key=key, delay=timedelta(seconds=0.3 if drawn < 0.1 else 0))
            except (Refused, TidegateError):
                await asyncio.sleep(0.5)
        self.made.add(key)
        if drawn > 0.6:
            await self._ask(key)
        self.heard[key] = await self._heard(handle)

    async def _ask(self, key: str) -> None:
        await asyncio.sleep(self.random.random() * self.random.choice((0.1, 0.5, 2.0)))
        self.disturbed.add(key)
        command = self.random.choice((Command.CANCEL, Command.CANCEL, Command.KILL, Command.HOLD))
        query = InvocationQuery(ids=(key,))
        asked = await self._asked(key, command, query)
        if command is Command.CANCEL and (asked.done or asked.told):
            (self.cancelled if asked.done else self.told)[key] = self._now()
        if command is Command.HOLD:
            await asyncio.sleep(0.5)
            await self._asked(key, Command.RELEASE, query)

    async def _asked(self, key: str, command: Command, query: InvocationQuery) -> Asked:
        while True:
            asking = Asking(request=f"{key}.{next(self._requests)}", records=RECORDS)
            with suppress(Refused):
                asked: Asked = await self.asked(asking.ask(command, query), "w")
                if asked.is_complete and not asked.unknown:
                    return asked
            await asyncio.sleep(0.5)

    async def _heard(self, handle: Handle[Any]) -> object:
        while True:
            try:
                return await handle.result()
            except (InvocationFailed, InvocationCancelled) as ended:
                return ended
            except (Refused, TidegateError):
                await asyncio.sleep(0.5)

    # --- judges ---

    async def _settle(self) -> None:
        if self.run.course.fault in ("kill", "stop"):
            await self._replace()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                await asyncio.wait([self.run.tasks["w"]])
                while self._left():  # noqa: ASYNC110  records report no changes
                    await asyncio.sleep(0.25)
        is_heard = self.run.tasks["w"].done()
        left = self._left()
        if left or not is_heard:
            self.story.accuse("O1", f"after {SETTLED_S} s there is left to do: {left[:3]}")
        if not is_heard:
            self.run.cancelled.add("w")
            self.run.tasks["w"].cancel()
        serving = [name for name in self.apps if name != "w"]
        for name in serving:
            if name in self.killed_s:
                self.run.tasks[name].cancel()
            self.apps[name].stop()
        _, late = await asyncio.wait([self.run.tasks[name] for name in serving], timeout=STOPPED_S)
        for task in late:
            if task.get_name() not in self.killed_s:
                self.story.accuse("O6", f"{task.get_name()} was asked to stop, and goes on")

    def _left(self) -> list[str]:
        docs = self.run.contents(RECORDS)
        return [show(doc) for doc in docs if doc[STATUS] not in FINAL and doc[TASK] != RECOVERY]

    async def end(self) -> None:
        self._judge_calls()
        before: dict[str, Document] = {}
        for change in self.run.changes(RECORDS):
            self._judge_version(before, str(change.key), change.after)
        self._judge_ends()
        self._judge_events()

    def _judge_calls(self) -> None:
        """O2 and O4."""
        alone: dict[str, list[tuple[Handled, str]]] = defaultdict(list)
        for key, calls in self.handled.items():
            for one, other in pairwise(sorted(calls)):
                if one.ended_s > other.began_s and not one.is_stubborn:
                    self.story.accuse("O2", f"{key}: two at one time: {one} and {other}")
            if self.run.is_calm and key not in self.disturbed:
                done = [number for number, each in enumerate(calls) if each.is_done]
                if done and done != [len(calls) - 1]:
                    self.story.accuse("O4", f"{key} was called again: {calls}")
                if len(calls) > TRIES:
                    self.story.accuse("O4", f"{key} was called {len(calls)} times")
            for each in calls:
                if (
                    each.task in ("limited", "hasty")
                    and each.ended_s - each.began_s > LIMIT_S + 0.1
                    and not each.is_stubborn
                ):
                    self.story.accuse("O4", f"{key} runs for longer than it may: {each}")
                told_s = self.told.get(key, each.ended_s)
                if each.began_s < told_s < each.ended_s - HEARD_S and self.run.is_calm and not each.is_stubborn:
                    self.story.accuse("O7", f"its runner was asked to cancel {key}, and goes on: {each}")
                if each.alone:
                    alone[each.alone].append((each, key))
        for of, found in alone.items():
            for (one, of_one), (other, of_other) in pairwise(sorted(found)):
                if one.ended_s > other.began_s and not one.is_stubborn:
                    self.story.accuse("O2", f"{of_one} and {of_other} of {of} at one time: {one} and {other}")

    def _judge_version(self, before: dict[str, Document], key: str, after: Document | None) -> None:
        """O3."""
        was = before.pop(key, None)
        if after is None:
            self.story.accuse("O3", f"{key} is gone")
            return
        before[key] = after
        made = _record(after)
        if was is None:
            is_right = made.version == 1 and made.status in INVOCATION.initial
        elif (old := _record(was)).version == made.version:
            is_put_off = was.has(WAITS) or after.has(WAITS)  # until it gets a place
            is_right = old == made and (is_put_off or was.held(DUE) == after.held(DUE))
        elif old.status == made.status:  # it is due at another time
            is_right = made.version == old.version + 1 and made.status in AVAILABLE
        else:
            verdict = decide_transition(INVOCATION, old, made.status, made.owner or old.owner)
            is_right = isinstance(verdict, Accepted) and verdict.record == made
        if not is_right or after.has(DUE) != (made.status in AVAILABLE):
            self.story.accuse("O3", f"{key}: {'nothing' if was is None else show(was)} became {show(after)}")

    def _judge_ends(self) -> None:
        """O1, O5 and O7, in the final state."""
        there = {str(doc[KEY]): doc for doc in self.run.contents(RECORDS) if doc[TASK] != RECOVERY}
        for key in self.made - there.keys():
            self.story.accuse("O5", f"{key} was said to be there, and is not")
        for key, told in self.heard.items():
            doc = there.get(key)
            match told:
                case InvocationFailed():
                    is_right = doc is not None and doc[STATUS] == FAILED
                case InvocationCancelled():
                    is_right = doc is not None and doc[STATUS] == CANCELLED
                case _:
                    is_right = doc is not None and doc[STATUS] == SUCCESS and doc.held(RESULT) == f'"{told}"'
            if not is_right:
                self.story.accuse("O1", f"{key} is {doc and show(doc)}; who waited was told {told}")
        for key, doc in there.items():
            if doc[STATUS] == SUCCESS and not self._was_done(key, doc):
                self.story.accuse("O1", f"{key} has succeeded by no run: {show(doc)}, {self.handled[key]}")
            calls = self.handled[key]
            if self.run.is_calm and key not in self.disturbed and doc[STATUS] == FAILED and len(calls) != TRIES:
                self.story.accuse("O4", f"{key} has failed after {len(calls)} tries: {show(doc)}")
            if key in self.cancelled and doc[STATUS] != CANCELLED:
                self.story.accuse("O7", f"{key} was cancelled, and is {show(doc)}")
            if any(each.began_s > self.cancelled.get(key, each.began_s) for each in self.handled[key]):
                self.story.accuse("O7", f"{key} was cancelled, and runs after that: {self.handled[key]}")

    def _judge_events(self) -> None:
        """O9."""
        noticed: dict[str, set[str]] = {event: set() for event in self.emitted}
        for change in self.run.changes(OCCURRENCES):
            if change.after is not None:
                noticed.setdefault(change.after[CONTEXT][EVENT], set()).add(str(change.key))
        for event, by in noticed.items():
            if len(by) != 2:
                self.story.accuse("O9", f"{len(by)} of two conditions have noticed {event}")

    def _was_done(self, key: str, doc: Document) -> bool:
        """Whether the run before this version has returned, and its result is stored."""
        version = doc[VERSION] - 1
        is_its = str(doc.held(RESULT)).startswith(f'"{key}@{version}')
        return is_its and any(each.is_done and each.version == version for each in self.handled[key])


def _record(doc: Document) -> StatusRecord:
    return StatusRecord(doc[STATUS], doc.get(OWNER), doc[VERSION])


def _of(manner: str, of: str) -> str:
    del manner
    return of


async def _stubbornly(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
