"""Scripts of calls for a real MongoDB and for the simulated one, and the accounts of both.

The adapters play a script on a client each. On the real server a proxy loses messages and a fail
point sends codes; on the simulated one its network does. An account has the answer to each step,
the driver's requests with their outcomes, and the final documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from tests.integration.servers import MongoServer

from tidegate.model.documents import Document, Field
from tidegate.model.effects import Ambiguous, Failure
from tidegate.model.operations import Operation
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.reactive.planning.change_stream import After, Broken, Position
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate_adapters.kit.resilience import AsyncKit
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.bson import encoded
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule
from tidegate_adapters.testing.mongo import Code, Network, Outcome, SimulatedReplicaSet

COLLECTION: Final = "things"
THERE: Final = ({"_id": "a", "n": 1}, {"_id": "b", "n": 2})
"""The initial documents. A script that recreates the collection waits longer than a client does."""
PATIENCE_MS: Final = 700
SOON_S: Final = 0.2
LATE_S: Final = 1.2
Account: TypeAlias = tuple[str, ...]


class Ask(NamedTuple):
    operation: Operation | FindChanged | FindOrphaned | InTransaction[Any] | CommitTransaction | AbortTransaction


class Begin(NamedTuple):
    operation: Operation


class Finish(NamedTuple):
    pass


class Strike(NamedTuple):
    """The next command of that name fails, after so many; once or several times."""

    command: str
    how: Outcome | Code
    skip: int = 0
    times: int = 1


class Wait(NamedTuple):
    pass


class Read(NamedTuple):
    pass


class Damage(NamedTuple):
    pass


class Call(NamedTuple):
    name: str
    arguments: tuple[Any, ...]


class Admin(NamedTuple):
    what: str


Step: TypeAlias = Ask | Begin | Finish | Strike | Wait | Read | Damage | Call | Admin
Script: TypeAlias = Sequence[Step]


class Place(Protocol):
    client: AsyncMongoClient[dict[str, Any]]
    database: str

    async def strike(self, strike: Strike, stack: AsyncExitStack) -> None: ...
    async def contents(self) -> list[dict[str, Any]]: ...
    async def admin(self, command: Mapping[str, Any], whole: str) -> None: ...
    async def step_down(self) -> None: ...


@final
class Heard(CommandListener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, event: CommandStartedEvent) -> None: ...

    def succeeded(self, event: CommandSucceededEvent) -> None:
        reply = event.reply
        wrong = reply.get("writeConcernError", {}).get("code"), [each["code"] for each in reply.get("writeErrors", ())]
        told = {name: reply[name] for name in ("n", "nModified", "lastErrorObject", "retriedStmtIds") if name in reply}
        self._tell(event.command_name, f"{told} {wrong} {sorted(reply.get('errorLabels', ()))}")

    def failed(self, event: CommandFailedEvent) -> None:
        failure = event.failure
        told = failure.get("code", failure.get("errtype")), sorted(failure.get("errorLabels", ()))
        more = {name: failure[name] for name in ("keyPattern", "keyValue") if name in failure}
        self._tell(event.command_name, f"fails: {told} {more}")

    def _tell(self, command: str, what: str) -> None:
        if command not in {"hello", "endSessions", "killCursors", "getMore", "aggregate", "drop", "renameCollection"}:
            self.lines.append(f"{command} {what}")


@final
class Real:
    def __init__(
        self, server: MongoServer, database: str, pipe: BlackPipe, heard: Heard, options: Mapping[str, Any]
    ) -> None:
        self._server, self.database, self._pipe = server, database, pipe
        self.client = AsyncMongoClient(
            pipe.uri, appname=database, event_listeners=[Attempts(), heard], socketTimeoutMS=PATIENCE_MS, **options
        )

        with MongoClient[dict[str, Any]](server.uri) as looking:
            looking[database][COLLECTION].insert_many(map(dict, THERE))

    async def strike(self, strike: Strike, stack: AsyncExitStack) -> None:
        if isinstance(strike.how, Code):
            code = strike.how
            said: dict[str, Any] = {"code": code.number, "errmsg": "struck"} if code.concern else {}
            more: dict[str, Any] = {"writeConcernError": said} if code.concern else {"errorCode": code.number}
            stack.enter_context(self._server.fail(strike.command, times=1, appName=self.database, **more))
            return
        action = ACTIONS[strike.how]
        seconds = LATE_S if action is Action.DELAY_REQUEST else 0.0
        self._pipe.obey(
            Rule(strike.command, action, skip=strike.skip, times=strike.times, delay=timedelta(seconds=seconds))
        )

    async def contents(self) -> list[dict[str, Any]]:
        with MongoClient[dict[str, Any]](self._server.uri) as looking:
            return sorted(looking[self.database][COLLECTION].find(), key=lambda each: str(each["_id"]))

    async def admin(self, command: Mapping[str, Any], whole: str) -> None:
        with MongoClient[dict[str, Any]](self._server.uri) as client:
            client[whole].command(dict(command))

    async def step_down(self) -> None:
        with MongoClient[dict[str, Any]](self._server.uri, directConnection=True) as client:
            client.admin.command("replSetStepDown", 1, secondaryCatchUpPeriodSecs=0, force=True)


ACTIONS: Final[Mapping[Outcome, Action]] = {
    Outcome.UNSENT: Action.CUT_REQUEST,
    Outcome.LOST_REPLY: Action.CUT_REPLY,
    Outcome.DROPPED: Action.HANG_REQUEST,
    Outcome.SILENCE: Action.HANG_REPLY,
    Outcome.SLOW: Action.DELAY_REQUEST,
}
"""What the proxy does for an outcome. (`LATE` is `SLOW` for a client that broke the connection.)"""


@final
class Simulated:
    def __init__(self, random: Random, database: str, heard: Heard, options: Mapping[str, Any]) -> None:
        docs = tuple(Document.of(each) for each in THERE)
        self._set, self.database = SimulatedReplicaSet(random, {f"{database}.{COLLECTION}": docs}), database
        self._network = Network(self._set, random, strike=self._struck, late_s=(LATE_S, LATE_S))
        self._strikes: list[Strike] = []
        self.client = self._network.client(
            "client", event_listeners=[Attempts(), heard], socketTimeoutMS=PATIENCE_MS, **options
        )

    def _struck(self, _: str, command: Mapping[str, Any]) -> Outcome | Code | None:
        for number, each in enumerate(self._strikes):
            if each.command == next(iter(command)):
                if each.skip:
                    self._strikes[number] = each._replace(skip=each.skip - 1)
                    return None
                del self._strikes[number]
                return each.how
        return None

    async def strike(self, strike: Strike, stack: AsyncExitStack) -> None:
        self._strikes += [strike] * strike.times
        stack.callback(self._strikes.clear)

    async def contents(self) -> list[dict[str, Any]]:
        await asyncio.sleep(0.1)
        docs = [encoded(doc) for doc in self._set.contents(self.database, COLLECTION)]
        return sorted(docs, key=lambda each: str(each["_id"]))

    async def admin(self, command: Mapping[str, Any], whole: str) -> None:
        answered: list[dict[str, Any]] = []
        self._network.commands.handle({**command, "$db": whole}, "admin", None, answered.append)
        if not answered[0]["ok"]:
            raise OperationFailure("refused", answered[0]["code"])
        await asyncio.sleep(0.1)

    async def step_down(self) -> None:
        self._set.step_down(1.0)


async def play(script: Script, place: Place, heard: Heard) -> Account:
    told: list[str] = []
    mongo = AsyncMongo(place.client, place.database)
    kit = AsyncKit(place.client, place.database)
    stream = ChangeStream(place.client, place.database, (COLLECTION, "others"), wait=timedelta(milliseconds=200))
    position: Position | None = None
    begun: asyncio.Task[object] | None = None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(place.client.close)
        stack.push_async_callback(stream.close)
        for step in script:
            if begun is None:
                heard.lines.clear()
            match step:
                case Ask(operation):
                    answer = await mongo(operation)
                    told.append(f"{said(answer)}  {heard.lines if begun is None else ''}")
                case Begin(operation):
                    begun = asyncio.create_task(asked(mongo, operation))
                    await asyncio.sleep(SOON_S)
                    told.append(f"{'done' if begun.done() else 'waits'}")
                case Finish():
                    assert begun is not None
                    told.append(f"{said(await begun)}  {sorted(heard.lines)}")  # of all since then
                    begun = None
                case Call(name, arguments):
                    answer = await getattr(kit, name)(COLLECTION, *arguments)
                    told.append(f"{answer}  {heard.lines}")
                case Strike():
                    await place.strike(step, stack)
                case Wait():
                    await asyncio.sleep(2 * LATE_S)
                case Read():
                    if position is None:
                        found = await stream.locate()
                        assert not isinstance(found, Ambiguous)
                        position = found
                    position, line = await followed(stream, position)
                    told.append(line)
                case Damage():
                    assert isinstance(position, After)
                    assert isinstance(position.token, Document)
                    position = After(position.token.put(Field("token"), Document.of({"_data": "none"})))
                case Admin(what):
                    with suppress(OperationFailure):
                        await administered(place, what)
        told.append(str(await place.contents()))
    return tuple(told)


async def asked(mongo: AsyncMongo, operation: Operation) -> object:
    return await mongo(operation)


async def administered(place: Place, what: str) -> None:
    if what == "stepDown":
        await place.step_down()
    elif what == "drop":
        await place.admin({"drop": COLLECTION}, place.database)
    elif what == "rename":
        names = f"{place.database}.{COLLECTION}", f"{place.database}.new"
        await place.admin({"renameCollection": names[0], "to": names[1]}, "admin")
    else:
        await place.admin({"dropDatabase": 1}, place.database)


async def followed(stream: ChangeStream, position: Position) -> tuple[Position, str]:
    changes: list[str] = []
    while True:
        page = await stream.read(position)
        if isinstance(page, Broken):
            return position, f"{changes} {page}"
        position = page.position
        if not page.changes:
            return position, f"{changes}"
        changes += map(str, page.changes)


def said(answer: object) -> str:
    return f"{type(answer).__name__} {answer}" if isinstance(answer, Failure) else repr(answer)
