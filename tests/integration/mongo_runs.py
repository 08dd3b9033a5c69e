"""Short runs on the simulated MongoDB, by seed: a few tasks that use the adapters, and a fault.

    python -m tests.integration.mongo_runs 17              runs 17 and prints what is wrong
    python -m tests.integration.mongo_runs 17 --page D     also writes the trace and its page
    python -m tests.integration.mongo_runs 0 --runs 10000  that many runs, a line for each wrong one

The seed draws the workload (`mongo_workloads`), the fault, its time and target, the order of the
event loop, and how long messages, majorities and elections take. The clients are pymongo's. The
tasks run under the fault until they end. After recovery, a client without faults reads the final
state.

Judges:
    M1  A transition happens at most once, is an edge of the table, and each answer is true (TR1 to
        TR4, TR6).
    M2  The kit's answers are true: a majority has a Done write when the kit returns, and a NotDone
        write never happens (RS1, RS2).
    M3  Each increment counts once: the change that counts a token removes it, and a Counted
        increment is counted (CN2, CN4).
    M4  Leases: one holder at a time is inside, each epoch is granted once, and epochs grow (EL1,
        LE6).
    M5  A write under an epoch is refused after a write under a newer one.
    M6  A read returns a payload whole, as it was put, and none that was replaced before the read
        began.
    M7  A change stream reports each change once and in order, and saves a position after all
        changes before it were processed (CS1).
    M8  In the end each document was processed in its final state (CS2).
    M9  A single fault is survived: the answer is definite.
    M10 Every task ends: with an answer, or as cancelled if it was cancelled.
    M11 No session, cursor or task is left.
    M12 A sweep leaves what is used: no stray chunk of a payload or token of a counter remains.
    M13 A transfer is done whole, at most once, or not at all; each answer is true; no transaction
        stays open (TF1 to TF4).
    M14 A transition is denied for a state that the record had during the request, also just after
        an election.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias, cast, final
from uuid import UUID

import attrs
import pytest
from pymongo import AsyncMongoClient
from tests.integration.embedded_runs import REFUSED, EmbeddedSet, Process
from tests.integration.run_pages import JUDGE, Told, laws_of, trace_of

from tidegate.model.documents import Document, Value, show
from tidegate.model.errors import TidegateError
from tidegate.sim.trace.trace import StepKind
from tidegate_adapters.exploring.counterexamples import Store
from tidegate_adapters.kit import leases, payloads
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.orchestrator import client as orchestrator
from tidegate_adapters.reactive import planner
from tidegate_adapters.runtime import connection
from tidegate_adapters.testing import event_loop
from tidegate_adapters.testing.mongo import Change, Code, Network, Outcome, SimulatedReplicaSet

DATABASE: Final = "db"
AT_ONCE: Final = ("M4", "M7")
WORKLOADS: Final = (
    "transitions",
    "settling",
    "increments",
    "kit",
    "counters",
    "leases",
    "payloads",
    "streams",
    "transfers",
)
APPLICATIONS: Final = ("reactive", "orchestrator")
FAULTS: Final = (
    "nothing", "command", "command", "command", "overtaken", "storm", "step_down", "die", "lost_and_die", "closed", "cancel",
    "cursors", "forget",
)  # fmt: skip
REACTIVE_FAULTS: Final = (
    "nothing", "kill", "kill", "stop", "forget", "cut", "robbed", "unheard", "command", "storm", "step_down", "die", "lost_and_die", "closed",
    "cursors", "holds",
)  # fmt: skip
ORCHESTRATOR_FAULTS: Final = (
    "nothing", "kill", "kill", "stop", "cut", "command", "command", "unheard", "storm", "step_down", "die", "lost_and_die", "closed",
)  # fmt: skip
FAULTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(WORKLOADS, FAULTS),
    "reactive": REACTIVE_FAULTS,
    "orchestrator": ORCHESTRATOR_FAULTS,
}
ON_EMBEDDED: Final = ("nothing", "kill", "stop", "command")
"""Where four of five applications run on the embedded store, in a third of the time."""
ONCE: Final = ("nothing", "command")
OF_WRITES: Final = ("overtaken", "lost_and_die")
OF_COMMANDS: Final = ("command", "storm", "unheard", *OF_WRITES)
ENOUGH_S: Final = 200.0
LATE_S, GIVEN_UP_S = 4.0, 6.0
HELD_S: Final = 20.0
"""How long an abandoned transaction stays open; a server's 60 s would double the runs."""
CANCELLED_S: Final = 12.0
TURNS_MAX: Final = 100_000
INDEXED: Final = 8
NOT_DONE: Final = (6, 7, 13, 50, 89, 91, 112, 189, 262, 462, 8000, 9001, 10107, 11600, 11602, 13435, 13436)
DONE: Final = (6, 7, 50, 89, 91, 262, 9001, 11600, 11602)
"""Ambiguous codes, which a server may also send for a command that it carried out."""
CONCERNS: Final = (64, 91, 100, 189, 11600)
COMMANDS: Final = (
    "find",
    "findAndModify",
    "insert",
    "update",
    "delete",
    "aggregate",
    "getMore",
    "hello",
    "killCursors",
    "commitTransaction",
    "abortTransaction",
)
WRITES: Final = ("findAndModify", "insert", "update", "delete", "commitTransaction")
Way: TypeAlias = Outcome | Code


@final
@attrs.frozen
class Course:
    """The plan of a run; `way` chooses the outcome of the command with `number`."""

    seed: int
    workload: str
    fault: str
    whom: str
    at_s: float
    lasts_s: float
    number: int
    way: float
    retries: bool
    tasks: int

    @property
    def is_embedded(self) -> bool:
        return self.workload in APPLICATIONS and self.fault in ON_EMBEDDED and self.seed % 5 > 0


def course(seed: int, workloads: tuple[str, ...] = WORKLOADS, faults: tuple[str, ...] | None = None) -> Course:
    random = Random(f"course {seed}")
    return Course(
        seed,
        workload := random.choice(workloads),
        random.choice(faults or FAULTS_OF[workload]),
        random.choice("ab"),
        random.random() * random.choice((0.02, 0.1, 1.5)),
        random.choice((0.05, 0.5, 2.0, 6.0)),
        random.randrange(4) * random.randrange(4),
        random.random(),
        random.random() < 0.6,
        random.choice((2, 3)),
    )


@final
class Story:
    def __init__(self, told: Course) -> None:
        self.course = told
        self.wrong: list[str] = []
        self.told: list[Told] = []
        self.see: Any = None
        self.told_s = 0.0

    @property
    def lines(self) -> list[str]:
        return [*map(str, self.told)]

    def tell(self, who: str, what: str, kind: StepKind = StepKind.OTHER, fault: str = "", law: str = "") -> None:
        self.told_s = asyncio.get_running_loop().time()
        self.told.append(Told(self.told_s, who, what, kind, fault, law, self._seen()))

    def accuse(self, law: str, what: str) -> None:
        self.tell(JUDGE, f"{law}: {what}", law=law)
        self.wrong.append(f"{law}: {what}")

    def is_stuck(self, what: str) -> None:
        self.told.append(Told(self.told_s, JUDGE, f"M10: {what}", StepKind.OTHER, "", "M10", self._seen()))
        self.wrong.append(f"M10: {what}")

    def _seen(self) -> Document:
        return Document() if self.see is None else cast("Document", self.see())


COLLATED: Final = (f"{DATABASE}.orders",)


@final
class Run:
    def __init__(self, told: Course, random: Random, story: Story, there: Mapping[str, tuple[Document, ...]]) -> None:
        self.course, self.random, self.story = told, random, story
        lag_s = (0.05, 1.0) if told.fault == "lost_and_die" else (0.000_5, 0.005)
        late_s = {"robbed": (0.8, 1.6), "unheard": (0.005, 0.2)}.get(told.fault, (0.001, 3.0))
        self.set = SimulatedReplicaSet(random, there, lag_s=lag_s, lifetime_s=HELD_S)
        if told.workload in APPLICATIONS:  # commands need an explicit collation here
            self.set.collated.update({each: {"locale": "en", "strength": 2} for each in COLLATED})
        self.net = Network(self.set, random, strike=self._struck, late_s=late_s)
        self.embedded = EmbeddedSet(random, there, self._struck) if told.is_embedded else None
        self.clients: dict[str, AsyncMongoClient[dict[str, Any]]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.cancelled: set[str] = set()
        self.dead: set[str] = set()
        self._sessions: list[Any] = []
        self._sent = 0
        self._began_s: float | None = None
        self._ways = Random(f"ways {told.seed}")
        self._number = told.number * (8 if told.workload in APPLICATIONS else 1)  # applications send more
        self._number += told.workload == "transfers"  # after the first `hello`: commits are rare

    @property
    def is_calm(self) -> bool:
        return self.course.fault == "nothing"

    @property
    def is_survived(self) -> bool:
        return self.course.fault in ONCE and not self.refuses

    cut_until_s: float = 0.0
    rob: Callable[[], None] = staticmethod(lambda: None)
    kept: int = 0
    refuses: bool = False
    lives: int = 2

    def client(self, name: str) -> AsyncMongoClient[dict[str, Any]]:
        if name not in self.clients:
            patience_ms = 700 if self.course.workload == "leases" else 5_000  # less than a lease lasts
            options = {
                "retryWrites": self.course.retries,
                "serverSelectionTimeoutMS": 5_000,
                "socketTimeoutMS": patience_ms,
            }
            client = self.clients[name] = self.net.client(name, **options)
            start = client.start_session
            client.start_session = lambda *args, **more: self._kept(start(*args, **more))  # type: ignore[method-assign]
        return self.clients[name]

    def store(self, name: str) -> AsyncMongoClient[dict[str, Any]] | Process:
        return self.client(name) if self.embedded is None else Process(self.embedded, name)

    def asking(self, name: str) -> Callable[[Any], Awaitable[object]]:
        return (
            AsyncMongo(self.client(name), DATABASE) if self.embedded is None else Process(self.embedded, name).awaited
        )

    def _kept(self, session: Any) -> Any:
        self._sessions.append(session)
        return session

    @property
    def history(self) -> list[Change]:
        return (self.embedded or self.set).history

    def changes(self, collection: str) -> list[Change]:
        return [each for each in self.history if each.collection == collection]

    def contents(self, collection: str) -> tuple[Document, ...]:
        if self.embedded is not None:
            return self.embedded.store.contents(collection)
        return self.set.contents(DATABASE, collection)

    def begin(self, name: str, body: Any) -> None:
        self.tasks[name] = asyncio.get_running_loop().create_task(body, name=name)

    def _struck(self, client: str, command: Mapping[str, Any]) -> Way | None:
        told, name = self.course, next(iter(command))
        if client in self.dead:
            return Outcome.DROPPED
        if client == told.whom and told.fault == "cut" and name in COMMANDS:
            return Outcome.UNSENT if self.set.loop.time() < self.cut_until_s else None
        if client == told.whom and told.fault == "robbed":
            return self._robbed(name, command)
        if client != told.whom or told.fault not in OF_COMMANDS or name not in COMMANDS:
            return None
        if told.fault == "unheard":
            return self._unclaimed(name, command) if told.workload == "reactive" else self._unheard(name)
        if told.fault in OF_WRITES and (name not in WRITES or self._sent > self._number + 1):
            return None
        self._sent += 1
        now = self.set.loop.time()
        if told.fault in OF_WRITES:
            return self._of_a_write(name)
        if told.fault == "command":
            return self._way(name, command, told.way) if self._sent == self._number + 1 else None
        if self._sent > self._number and self._began_s is None:
            self._began_s = now
        if self._began_s is None or now - self._began_s > told.lasts_s or self._ways.random() < 0.6:
            return None
        return self._way(name, command, self._ways.random())

    def _robbed(self, name: str, command: Mapping[str, Any]) -> Way | None:
        self._sent += _sets(command, "changed_at", "owner")
        if self._began_s is not None or self._sent <= self._number // 32:
            return None
        self._began_s = self.set.loop.time()
        self.rob()
        return self._told(name, Outcome.SLOW)

    def _unheard(self, name: str) -> Way | None:
        """An update and its retry lose their replies, and the find that would tell is refused."""
        number = self.course.number // 2
        self._sent += name == "update" or (name == "find" and self._sent > number)
        if name == "update" and number < self._sent <= number + 2:
            return self._told(name, Outcome.LOST_REPLY)
        is_first = name == "find" and self._sent > number and not self.refuses
        return self._told(name, Code(REFUSED)) if is_first else None

    def _unclaimed(self, name: str, command: Mapping[str, Any]) -> Way | None:
        """A claim loses its replies and the find that would tell is refused, or it is late."""
        number = self._number // 32
        if self.course.way > 0.7:
            self._sent += (is_end := _removes(command, "owner"))
            return self._told(name, Code(REFUSED)) if is_end and number < self._sent <= number + 2 else None
        is_claim = _sets(command, "claimed_at", "owner")
        self._sent += is_claim
        is_late = self.course.way < 0.5
        if is_claim and number < self._sent <= number + 2:
            return self._told(name, Outcome.LATE if is_late else Outcome.LOST_REPLY)
        is_look = name == "find" and "_id" in command.get("filter", {}) and command["find"].endswith("_tasks")
        is_first = is_look and self._sent > number and not self.refuses
        return self._told(name, Code(REFUSED)) if is_first and not is_late else None

    def _of_a_write(self, name: str) -> Way | None:
        """A late write and a refused one; or a lost reply, and then the primary dies."""
        told = self.course
        if self._sent == self._number + 2 and told.fault == "overtaken":
            return self._told(name, Code((REFUSED, REFUSED, 112, 10107)[int(told.way * 4)]))
        if self._sent != self._number + 1:
            return None
        if told.fault == "overtaken":
            return self._told(name, Outcome.LATE)
        self.set.loop.call_later(told.way * 0.3, self.set.die)
        return self._told(name, Outcome.LOST_REPLY)

    def _way(self, name: str, command: Mapping[str, Any], drawn: float) -> Way:
        ways: list[Way] = [*Outcome, *Outcome, *(Code(number) for number in NOT_DONE)]
        ways.append(Code(462, ("RetryableError", "SystemOverloadedError")))
        if name in WRITES:
            ways += (Code(number, is_done=True) for number in DONE)
            ways += (Code(number, concern=True) for number in CONCERNS)
            ways.append(Code(11602, ("RetryableWriteError", "NoWritesPerformed")))
        if _is_of_many(command):
            ways += (Code(number, parts=parts) for parts in range(3) for number in (REFUSED, 10107, 11602, 11602))
        return self._told(name, ways[int(drawn * len(ways))])

    def _told(self, name: str, way: Way) -> Way:
        if name == "commitTransaction" and way == Code(112):
            way = Code(10107)  # after 112 a server's transaction is over; here it is open
        self.refuses |= isinstance(way, Code) and way.number == REFUSED
        said = way.value if isinstance(way, Outcome) else way
        self.story.tell("network", f"strikes {name} of {self.course.whom}: {said}", fault=str(said))
        return way

    async def fault(self) -> None:
        told, story = self.course, self.story
        await asyncio.sleep(told.at_s)
        match told.fault:
            case "step_down":
                story.tell("faults", "the primary steps down", fault="step_down")
                self.set.step_down(min(told.lasts_s, 3.0))
            case "die":
                story.tell("faults", "the primary dies", fault="die")
                self.set.die(min(told.lasts_s, 3.0))
            case "closed":
                story.tell("faults", "nobody reaches the set", fault="closed")
                self.net.close()
                await asyncio.sleep(
                    told.lasts_s * (12 if told.workload in APPLICATIONS else 1)
                )  # so that retries run out
                story.tell("faults", "the set is reached again")
                self.net.open()
            case "cancel":
                names = sorted(self.tasks.keys() - {"judge"})  # it ends the application's other tasks
                name = names[told.number % len(names)]
                if not self.tasks[name].done():
                    story.tell("faults", f"{name} is cancelled", fault="cancel")
                    self.cancelled.add(name)
                    self.tasks[name].cancel()
            case "cursors":
                story.tell("faults", "cursors are killed", fault="cursors")
                self.net.commands.cursors.kill_all()
            case "forget" if told.workload not in APPLICATIONS:
                self.forget()
            case _:
                pass

    def forget(self) -> None:
        self.story.tell("faults", "the set forgets its history", fault="forget")
        self.set.forget()

    async def played(self, workload: Any) -> None:
        await workload.begin()
        fault = asyncio.get_running_loop().create_task(self.fault(), name="fault")
        await self._ended()
        await fault
        await asyncio.sleep(GIVEN_UP_S if self.course.workload in APPLICATIONS else LATE_S)
        await workload.end()
        for client in self.clients.values():
            await client.close()
        await asyncio.sleep(0)
        self._judge_what_is_left()

    async def _ended(self) -> None:
        """M10."""
        left = set(self.tasks.values())
        began = self.set.loop.time()
        if self.course.fault == "cancel":
            await asyncio.wait(left, timeout=self.course.at_s + CANCELLED_S)
            for name in self.cancelled:
                if not self.tasks[name].done():
                    self.story.accuse("M10", f"{name} was cancelled, and goes on")
        _, late = await asyncio.wait(left, timeout=ENOUGH_S - (self.set.loop.time() - began))
        for task in late:
            self.story.accuse("M10", f"{task.get_name()} does not end")
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCELLED_S)
        for name, task in self.tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self.story.accuse("M10", f"{name} raises {error!r}")
            if task.done() and task.cancelled() and name not in self.cancelled and task not in late:
                self.story.accuse("M10", f"{name} is cancelled, and nobody has cancelled it")
            if name in self.cancelled and task.done() and not task.cancelled():
                self.story.accuse("M10", f"{name} was cancelled, and ends as if it was not")

    def _judge_what_is_left(self) -> None:
        """M11, except for cursors of abandoned reads, which the server ends."""
        left = [each for each in self._sessions if not each.has_ended]
        if len(left) > self.kept and not self.dead:
            self.story.accuse("M11", f"{len(left)} sessions are left")
        if self.is_calm and len(self.net.commands.cursors.open) > self.lives * (
            self.course.workload in {"streams", *APPLICATIONS}
        ):
            self.story.accuse("M11", f"{len(self.net.commands.cursors.open)} cursors are left")
        codes = [cast("Any", task.get_coro()).cr_code for task in asyncio.all_tasks()]
        files = ((each, Path(each.co_filename).parent) for each in codes)
        ours = sorted({each.co_qualname for each, folder in files if folder.parent == _ADAPTERS and folder != _TESTING})
        if ours and not self.dead:
            self.story.accuse("M11", f"{ours} are left running")


_TESTING: Final = Path(event_loop.__file__).parent
_ADAPTERS: Final = _TESTING.parent


def _sets(command: Mapping[str, Any], *fields: str) -> bool:
    sets = (*command.get("documents", ()), *(each["u"].get("$set", {}) for each in command.get("updates", ())))
    return any({*fields} <= each.keys() for each in sets)


def _removes(command: Mapping[str, Any], field: str) -> bool:
    return any(field in each["u"].get("$unset", {}) for each in command.get("updates", ()))


def _is_of_many(command: Mapping[str, Any]) -> bool:
    return any(
        each.get("multi") or each.get("limit") == 0
        for each in (*command.get("updates", ()), *command.get("deletes", ()))
    )


def judged(
    seed: int,
    workloads: tuple[str, ...] = WORKLOADS,
    faults: tuple[str, ...] | None = None,
    *,
    is_seen: bool = False,
) -> Story:
    from tests.integration.mongo_workloads import WORKLOAD
    from tests.integration.orchestrator_workload import Orchestrating
    from tests.integration.reactive_workload import Reactively

    told = course(seed, workloads, faults)
    story = Story(told)

    async def main(random: Random) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        ids = Random(f"ids {seed}")
        for module in (leases, payloads, connection, planner, orchestrator):
            patch.setattr(module, "uuid4", lambda: UUID(int=ids.getrandbits(128)))
        if seed % INDEXED:
            patch.setattr(connection, "AsyncMongo", lambda client, name, **_: AsyncMongo(client, name))
        workload: Any = {**WORKLOAD, "reactive": Reactively, "orchestrator": Orchestrating}[told.workload]
        run = Run(told, random, story, workload.documents)
        if is_seen:
            story.see = lambda: _seen(run)
        story.tell("run", f"is {told}")
        await run.played(workload(run))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_loop, "TURNS_MAX", TURNS_MAX)
        try:
            event_loop.run(main, seed)
        except TidegateError as error:
            story.is_stuck(f"the run is stuck: {str(error)[:300]}")
    return story


def _seen(run: Run) -> Document:
    held: dict[str, Value] = {}
    stable = {name: entry for name, (_, entry) in run.set.stable.world.cells.items()}
    for name, entry in (stable if run.embedded is None else run.embedded.cells).items():
        if name[0] == "documents" and entry is not None:
            collection = name[1].removeprefix(f"{DATABASE}.")
            held[f"{collection} {show(cast('Document', entry).items[0][1])}"] = cast("Value", entry)
    held["not with a majority"] = run.set.state.changes - run.set.stable.changes
    return Document(tuple(sorted(held.items(), key=lambda item: item[0])))


def line(seed: int, workloads: tuple[str, ...] = WORKLOADS, faults: tuple[str, ...] | None = None) -> str:
    more = "" if workloads == WORKLOADS else f" --workloads {','.join(workloads)}"
    more += "" if faults is None else f" --faults {','.join(faults)}"
    return f"python -m tests.integration.mongo_runs {seed}{more}"


def page_of(seed: int, workloads: tuple[str, ...], faults: tuple[str, ...] | None, folder: Path) -> Path:
    from tests.integration import orchestrator_workload, reactive_workload

    story = judged(seed, workloads, faults, is_seen=True)
    more = {"reactive": reactive_workload, "orchestrator": orchestrator_workload}.get(story.course.workload)
    judges = "" if more is None else more.__doc__
    trace = trace_of(
        story.told,
        laws_of(f"{__doc__}{judges}"),
        of="clients of MongoDB",
        at_once=AT_ONCE,
        seed=seed,
        summary=f"{story.course.tasks} tasks, {story.course.workload}, {story.course.fault}",
    )
    name = f"mongo-run-{seed}-{story.course.workload}-{story.course.fault}"
    return Store(folder).keep(name, trace, lambda _: line(seed, workloads, faults)).with_suffix(".html")


def found(
    seeds: Iterable[int], workloads: tuple[str, ...] = WORKLOADS, faults: tuple[str, ...] | None = None
) -> Story | None:
    return next((story for seed in seeds if (story := judged(seed, workloads, faults)).wrong), None)


def _refused(workloads: tuple[str, ...], faults: tuple[str, ...] | None) -> str:
    """What cannot be drawn: judges hold only under a workload's own faults."""
    for workload in workloads:
        if workload not in FAULTS_OF:
            return f"no workload is named {workload!r}: there are {', '.join(FAULTS_OF)}"
        has = dict.fromkeys(FAULTS_OF[workload])
        for fault in faults or ():
            if fault not in has:
                return f"{workload} has no fault {fault!r}: it has {', '.join(has)}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--workloads", type=lambda text: tuple(text.split(",")), default=WORKLOADS)
    parser.add_argument("--faults", type=lambda text: tuple(text.split(",")), help="those of the workload, unless told")
    parser.add_argument("--page", type=Path)
    told = parser.parse_args()
    if refused := _refused(told.workloads, told.faults):
        parser.error(refused)
    logging.disable(logging.CRITICAL)
    gc.freeze()  # spare older objects each collection
    wrong = 0
    for seed in range(told.seed, told.seed + told.runs):
        story = judged(seed, told.workloads, told.faults)
        wrong += bool(story.wrong)
        if told.runs == 1:
            print("\n".join(story.lines))
        if told.page is not None and (story.wrong or told.runs == 1):
            print(page_of(seed, told.workloads, told.faults, told.page))
        if story.wrong:
            print(f"{seed} ({story.course.workload}, {story.course.fault}): {'; '.join(story.wrong)}")
            print(f"    {line(seed, told.workloads, told.faults)}")
    print(f"{wrong} of {told.runs} runs are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
