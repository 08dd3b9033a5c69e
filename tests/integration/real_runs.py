"""Scenarios on a real MongoDB: their own programs, a network fault at any command, their own laws.

Processes take turns, one effect each, as in the simulator. Effects on documents go to the server
through a proxy; the others are simulated. A change stream reports each command's documents, as the
reply may be lost. Of the outcomes that the simulated world allows, the run takes the one with the
same documents; if none has them, simulator and server disagree, which is an error. So laws see
every state of the server, with the scenario's journals and notes.

    a command is done             its outcome, with the reply of the server
    it is done, its reply lost    its outcome, and a failure that does not say it was not done
    it is not done                nothing, and a failure that does not say it was done

Initial instants move to now: the clock is the server's. Sleeps are real only in scenarios with a
clock.
"""

from __future__ import annotations

import random
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import CoroutineType
from typing import Any, Final, TypeAlias, TypeVar, cast, final, get_args

import attrs
from pymongo import MongoClient, WriteConcern

from tidegate.model.documents import ID, Document, Field, PutServerTime, exactly, show
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Program, Refused, Sleep
from tidegate.model.errors import NUMBER_MAX
from tidegate.model.instants import PPM, SECOND, STORE, Duration, Instant
from tidegate.model.operations import FindAll, FindOne, Operation, StoreTime, Unique
from tidegate.model.record_counts import CountRecords
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate.sim.program.automaton import Asking, Failed, ProcessStatus, ProgramAutomaton, Raised, resume
from tidegate.sim.program.relative_time import aged
from tidegate.sim.scenario import NO_ERROR, Scenario, parts_of
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.world import (
    CLOCK,
    IDS,
    MANY,
    UNIQUE,
    Cell,
    Key,
    Many,
    Plain,
    document,
    ids,
    parts,
    target,
    uniques,
)
from tidegate_adapters.mongo.bson import CODEC, loaded, stored

Raw: TypeAlias = dict[str, Any]
Contents: TypeAlias = dict[tuple[str, Key], Document]
Changed: TypeAlias = tuple[tuple[str, Key], Document | None]
Store: TypeAlias = Callable[[Any], object]
V = TypeVar("V")

TRUE: Final = "the server does what the simulator says"
ENDS: Final = "it comes to an end"
STEPS_MAX: Final = 1_000
_MARKS: Final = "marks"
_KEY: Final = Field[Key](ID.name)
_PLANNING: Final = (FindChanged, FindOrphaned, CountRecords)
_TRANSACTIONAL: Final = (InTransaction, CommitTransaction, AbortTransaction)
_OPERATIONS: Final = (*get_args(Operation), StoreTime, *_PLANNING, *_TRANSACTIONAL)
_READS: Final = (FindOne, FindAll, StoreTime, *_PLANNING)
"""Reads check no changes; a write by one of them shows with the next write, or at the end."""


# --- the history of a database ------------------------------------------------------------------------------------------


@final
class Watched:
    """A database and its document changes in order, followed by a client without faults."""

    def __init__(self, client: MongoClient[Raw], name: str) -> None:
        self.database = client.get_database(name, codec_options=CODEC, write_concern=WriteConcern("majority", j=True))
        self._known: set[str] = set()
        self._mark = 0
        self.database.create_collection(_MARKS)
        self._stream = self.database.watch(full_document="required")

    def know(self, collection: str) -> None:
        if collection not in self._known:
            self._known.add(collection)
            self.database.create_collection(collection, changeStreamPreAndPostImages={"enabled": True})

    def begin(self, contents: Contents) -> None:
        for each in {name for name, _ in contents}:
            self.know(each)
        for each in self._known:
            self.database[each].delete_many({})
        for (each, _), doc in contents.items():
            self.database[each].insert_one(stored(doc))
        for _ in self.changes():
            pass

    def changes(self) -> Iterator[Changed]:
        self._mark += 1
        self.database[_MARKS].insert_one({"_id": self._mark})
        for event in self._stream:
            collection, key = event["ns"]["coll"], event["documentKey"]["_id"]
            if collection == _MARKS:
                if key == self._mark:
                    return
                continue
            found = event.get("fullDocument")
            assert (found is None) is (event["operationType"] == "delete"), event
            yield (collection, loaded({"_id": key}, "id")[_KEY]), None if found is None else loaded(found, collection)


# --- a run --------------------------------------------------------------------------------------------------------------


@final
class Broken(Exception):  # noqa: N818  control flow of a run
    """A law is broken: its name, and where."""


@final
@attrs.frozen
class Ended:
    """The outcome of a run.

    Attributes:
        struck: The process whose effect the fault struck; None if it struck none.
        failed: The processes that passed a failure on.
        ran: The core's coroutine functions that issued effects, as `module.function`.
        heard: Effects and replies by process; a process that waits at the end is cancelled.
    """

    law: str | None
    steps: tuple[str, ...]
    commands: int
    struck: tuple[str, Effect[object]] | None
    failed: Mapping[str, Failure]
    ran: frozenset[str]
    heard: Mapping[str, list[tuple[Effect[object], object]]]

    def __str__(self) -> str:
        return "\n".join((f"{self.law or 'nothing'} is broken", *self.steps))


@final
@attrs.define(eq=False)
class _Seen:
    world: Plain
    statuses: Mapping[str, ProcessStatus]

    def read(self, cell: Cell[V]) -> V:
        return self.world.read(cell)

    def status(self, process: str) -> object:
        return self.statuses[process]


@final
class RealRun:
    """One run, in which `store` carries operations out through the proxy."""

    def __init__(
        self,
        scenario: Scenario,
        watched: Watched,
        store: Store,
        faults: Callable[[], int],
        *,
        seed: int,
        ago: Duration = 0,
    ) -> None:
        self.scenario, self.watched, self.store, self.faults = scenario, watched, store, faults
        self.chance = random.Random(seed)
        self.processes = {each.name: each for each in scenario.actors if isinstance(each, Process)}
        self.lines, self.wakes, self.ran = list[str](), dict[str, float](), set[str]()
        self.commands, self.struck = 0, cast("tuple[str, Effect[object]] | None", None)
        self.world = _moved(scenario.world, _now().at - ago)
        self.contents = contents_of(self.world)
        watched.begin(self.contents)
        self.programs: dict[str, Program[object]] = {name: each.birth(0) for name, each in self.processes.items()}
        self.statuses: dict[str, ProcessStatus] = {}
        for name, process in self.processes.items():
            self.world = _plain(process.begin(self.world))
            self.statuses[name] = resume(self.programs[name], None)
        self.heard: dict[str, list[tuple[Effect[object], object]]] = {name: [] for name in self.processes}
        self.before = self.state()

    def state(self) -> _Seen:
        return _Seen(self.world, dict(self.statuses))

    def run(self) -> Ended:
        law = None
        try:
            self.judge()
            while self.step():
                pass
            self.end()
        except Broken as broken:
            law = broken.args[0]
            self.lines.append(f"<- {': '.join(map(str, broken.args))}")
        finally:
            for name, status in self.statuses.items():
                if isinstance(status, Asking):
                    self.heard[name].append((status.effect, CancelledError()))
                self.programs[name].close()
            self.abort()
        failed = {name: each.failure for name, each in self.statuses.items() if isinstance(each, Failed)}
        return Ended(law, tuple(self.lines), self.commands, self.struck, failed, frozenset(self.ran), self.heard)

    def abort(self) -> None:
        asked = (effect for heard in self.heard.values() for effect, _ in heard)
        begun = {each.transaction.session: each.transaction for each in asked if isinstance(each, InTransaction)}
        for transaction in begun.values():
            with suppress(Failure):
                self.store(AbortTransaction(transaction))

    def step(self) -> bool:
        if len(self.lines) > STEPS_MAX:
            raise Broken(ENDS, "it goes on and on")
        while True:
            asking = [name for name, status in self.statuses.items() if isinstance(status, Asking)]
            self.chance.shuffle(asking)
            if any(map(self.does, asking)):
                return True
            if not self.wakes:
                return False
            time.sleep(0.001)

    def does(self, who: str) -> bool:
        status = self.statuses[who]
        assert isinstance(status, Asking)
        effect = status.effect
        self.ran.update(_coroutines(self.programs[who]))
        if isinstance(effect, Sleep):
            if self.scenario.clock is not None and time.monotonic() < self.wakes.setdefault(
                who, time.monotonic() + effect.lasting(PPM) / SECOND
            ):
                return False
            self.wakes.pop(who, None)
            self.goes(who, None)
            return True
        self.passes(_now())
        outcomes = [*self.processes[who].meaning(effect, self.world, who)]
        if not outcomes:
            return False
        if isinstance(effect, _OPERATIONS):
            reply = self.asked(who, effect)
        else:
            world, reply = self.chance.choice(outcomes)
            self.world = _plain(world)
        self.lines.append(f"{who}: {effect} -> {reply if isinstance(reply, Failure) else show(reply)}")
        self.goes(who, reply)
        return True

    def passes(self, now: Instant) -> None:
        if now.at > self.world.read(CLOCK).at:
            self.world = self.world.write(CLOCK, now)
            self.judge()

    def goes(self, who: str, reply: object) -> None:
        asking = self.statuses[who]
        assert isinstance(asking, Asking)
        self.heard[who].append((asking.effect, reply))
        self.statuses[who] = status = resume(self.programs[who], reply)
        if not isinstance(status, Asking):
            self.world = self.world.write(self.processes[who].place, ProgramAutomaton.CRASHED)  # the process has ended
            self.lines.append(f"{who}: {status}")
        self.judge()

    # Operations

    def asked(self, who: str, effect: Effect[Any]) -> object:
        since, struck = _now(), self.faults()
        operation = effect.operation if isinstance(effect, InTransaction) else effect
        if (collection := getattr(operation, "collection", None)) is not None:
            self.watched.know(collection)
        try:
            reply = self.store(effect)
        except Failure as failure:
            reply = failure
        self.commands += 1
        if self.faults() > struck:
            self.struck = self.struck or (who, effect)
        happened = [] if isinstance(operation, _READS) else [*self.watched.changes()]
        for key, doc in happened:
            if doc is None:
                self.contents.pop(key)
            else:
                self.contents[key] = doc
        if isinstance(effect, MANY) and self.is_of_parts(who, effect, reply, happened):
            return reply
        times = [reply] if isinstance(reply, Instant) else [since, _now()]
        for at in dict.fromkeys(max(each.at, self.world.read(CLOCK).at) for each in times):
            then = self.world.write(CLOCK, Instant(at, STORE))
            for world, said in ((then, _NOTHING), *self.processes[who].meaning(effect, then, who)):
                stamped, said_then = _stamped(_plain(world), said, effect, happened, since)
                if _agrees(reply, said_then) and contents_of(stamped) == self.contents:
                    self.passes(Instant(at, STORE))
                    self.world = stamped
                    return reply
        self.lines.append(f"{who}: {effect} -> {reply if isinstance(reply, Failure) else show(reply)}")
        raise Broken(TRUE, "; ".join(f"{key}: {'gone' if doc is None else doc}" for key, doc in happened) or "nothing")

    def is_of_parts(self, who: str, effect: Many, reply: object, happened: list[Changed]) -> bool:
        """Whether it was done as one write after the other, with reads possible in between."""
        left = {(part.collection, cast("Key", target(part))): part for part in parts(effect, self.world)}
        total = 0
        for key, doc in happened:
            part = left.pop(key)
            ((world, matched),) = self.processes[who].meaning(part, self.world, who)
            world, _ = _stamped(_plain(world), matched, part, [(key, doc)], self.world.read(CLOCK))
            self.world, total = world, total + (1 if matched is None else cast("int", matched))
            self.judge()
        return contents_of(self.world) == self.contents and (isinstance(reply, Failure) or reply == total)

    # Laws

    def judge(self) -> None:
        before, after = self.before, self.state()
        self.before = after
        for name, status in self.statuses.items():
            if isinstance(status, Raised):
                raise Broken(NO_ERROR, f"{name} {status}")
        for law, holds in self.scenario.always.items():
            if not all(part(after) for part in parts_of(holds)):
                raise Broken(law, "here")
        for law, leads in self.scenario.step.items():
            if not all(part(before, after) for part in parts_of(leads)):
                raise Broken(law, "here")

    def end(self) -> None:
        """Judge the end, if the scenario allows the fault that struck."""
        self.passes(_now())
        if left := [*self.watched.changes()]:
            raise Broken(TRUE, f"a read has written: {left}")
        if self.struck is not None:
            who, effect = self.struck
            allowed = self.processes[who].faults
            if not any(allowed.strikes(kind, effect) for kind in (Fault.DROPPED, Fault.LOST_REPLY, Fault.CRASH_BEFORE)):
                return
        if any(isinstance(status, Failed) and isinstance(status.failure, Refused) for status in self.statuses.values()):
            return
        for law, holds in self.scenario.eventually.items():
            if not all(part(self.state()) for part in parts_of(holds)):
                raise Broken(law, "at rest")


# --- worlds -------------------------------------------------------------------------------------------------------------

_NOTHING: Final = object()


def _agrees(reply: object, said: object) -> bool:
    """Whether the scenario allows that reply to what was done, or to nothing done."""
    if said is _NOTHING:
        return isinstance(reply, (Ambiguous, NotApplied, Refused))
    if isinstance(reply, (Ambiguous, NotDurable)):
        return not isinstance(said, Failure) or type(said) is type(reply)
    return type(reply) is type(said) and (isinstance(reply, Failure) or exactly(reply) == exactly(said))


def _stamped(
    world: Plain, said: object, effect: Effect[Any], happened: list[Changed], since: Instant
) -> tuple[Plain, object]:
    """With the server's times, which may differ by 1 ms within an update."""
    updates = getattr(effect, "updates", ())
    fields = [Field[Instant](each.field.name) for each in updates if isinstance(each, PutServerTime)]
    for (collection, key), doc in happened if fields else ():
        cell = document(collection, key)
        would_be = world.read(cell)
        if doc is None or would_be is None:
            continue
        its_times = [doc[field] for field in fields if doc.has(field)]
        if all(since - at <= 0 and _now() - at >= 0 for at in its_times):
            after = would_be
            for field in fields:
                after = after.put(field, doc[field]) if doc.has(field) else after
            if not all(map(would_be.has, fields)):  # times that a scenario leaves out keep their place
                order = {name: at for at, (name, _) in enumerate(doc.items)}
                after = Document(tuple(sorted(after.items, key=lambda item: order.get(item[0], len(order)))))
            world, said = world.write(cell, after), after if said == would_be else said
    return world, said


def _coroutines(program: Any) -> Iterator[str]:
    while isinstance(program, CoroutineType):
        assert program.cr_frame is not None
        yield f"{program.cr_frame.f_globals['__name__']}.{program.__qualname__}"
        program = program.cr_await


def _now() -> Instant:
    """The server's time: it runs on this machine."""
    return Instant(time.time_ns() // 1_000_000 * 1_000, STORE)


def _plain(world: object) -> Plain:
    assert isinstance(world, Plain)
    return world


def _moved(world: Plain, at: int) -> Plain:
    before, moved = world.read(CLOCK).at, world
    for cell, held in world.cells.values():
        moved = moved.write(cell, aged(held, before - at, NUMBER_MAX))
    return moved.write(CLOCK, Instant(at, STORE))


def contents_of(world: Plain) -> Contents:
    cells = (name for name in world.cells if name[0] == IDS)
    found = ((name[1], key, world.read(document(name[1], key))) for name in cells for key in world.read(ids(name[1])))
    return {(collection, key): doc for collection, key, doc in found if doc is not None}


def unique_of(world: Plain) -> Unique:
    return {name[1]: world.read(uniques(name[1])) for name in world.cells if name[0] == UNIQUE}
