"""A proxy for MongoDB's wire protocol that injects the faults a test asks for.

    with BlackPipe(uri) as pipe:
        client = MongoClient(pipe.uri)
        pipe.obey(Rule("update", Action.CUT_REPLY, times=1))
        count_an_event(client)  # the server runs the first update, its reply is lost
        assert pipe.count("update", Action.CUT_REPLY) == 1

After "Black Pipe Testing" (Davis 2015): server and driver are real, and the data shows what the
server executed. The pytest fixture `black_pipe` starts and stops pipes.

The proxy sits between clients and one node, in a thread with its own event loop, so any test can
use it. It matches replies to requests by responseTo, so a rule can lose the third `update`'s reply
alone.

For a set of several nodes, put a pipe with a fixed `port` before each, and configure the set with
the pipes' addresses: traffic between nodes then passes them too.

Known not to work
    - TLS and compression; either raises an error at the end of the block.
    - Reply actions on unacknowledged writes (`w=0`), which have no reply.
    - moreToCome replies other than those of monitors, which pass untouched.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from enum import Enum, unique
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypeAlias, final

import attrs

from tidegate.model.errors import MissingExtra, Misuse, TidegateError
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate_adapters.base.decorators import check_lengths

try:
    import bson
    from pymongo.errors import PyMongoError
    from pymongo.uri_parser import parse_uri
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.testing.black_pipe", "mongo", missing) from missing

Body: TypeAlias = Mapping[str, Any]
"""A command; its document sequences ("updates", "documents", "deletes") are keys."""

_HEADER: Final = struct.Struct("<iiii")  # length, requestID, responseTo, opCode; then the payload
_OP_REPLY: Final = 1
_OP_QUERY: Final = 2004  # the first hello of a connection
_OP_COMPRESSED: Final = 2012
_OP_MSG: Final = 2013
_MORE_TO_COME: Final = 2  # the flag of an unacknowledged write
_CHECKSUM: Final = 1  # a flag of OP_MSG between servers
_TLS: Final = b"\x16\x03"  # the start of a handshake
_BUFFER_BYTES: Final = 1 << 20
_ACCEPTING_TURNS: Final = 4
"""Upper bound on loop turns between accepting a socket and its connection."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds
_LOOPBACK: Final = "127.0.0.1"
_OF_THE_DRIVER: Final = {"hello", "ismaster", "isMaster", "endSessions", "killCursors"}
_NOTHING: Final[Body] = MappingProxyType({})


@final
@unique
class Action(Enum):
    """The fate of a request and its reply."""

    FORWARD = "forward"
    CUT_REQUEST = "cut the request"
    """The connection is reset before the server sees the request."""
    HANG_REQUEST = "hang the request"
    """The request is lost silently."""
    DELAY_REQUEST = "delay the request"
    """The request arrives late, even if the client has closed the connection."""
    CUT_REPLY = "cut the reply"
    """The server executes the request; then the connection is reset."""
    HANG_REPLY = "hang the reply"
    """The server executes the request; its reply is lost silently."""
    DELAY_REPLY = "delay the reply"
    """The reply is late."""
    TRUNCATE_REPLY = "truncate the reply"
    """The connection closes after half of the reply."""
    GARBLE_REPLY = "garble the reply"
    """Every bit of the reply is inverted."""
    ANSWER = "answer"
    """The pipe replies instead of the server."""
    AMEND = "amend the reply"
    """The rule's fields replace those of the server's reply."""


_DELAYS: Final = {Action.DELAY_REQUEST, Action.DELAY_REPLY}
_ANSWERS: Final = {Action.ANSWER, Action.AMEND}


@final
@unique
class Link(Enum):
    """The state of the connection."""

    UP = "up"
    REFUSED = "refused"
    """As if the server died: connections are reset and refused."""
    HANGING = "hanging"
    """As if the network were gone: connections open, without data."""


@final
@attrs.frozen
class Rule:
    """An action on some requests; the first matching rule applies.

    Args:
        command: A wire name such as "getMore"; None for any but the driver's own (hello,
            endSessions, killCursors).
        action: The fault.
        where: A condition on the body, called in the pipe's thread.
        skip: Number of matching requests to leave to later rules first.
        times: Most applications. The third request alone: `skip=2, times=1`.
        probability: Chance to take a matching request, from the seeded generator.
        delay: For the two delaying actions.
        reply: From `command_error` or `write_concern_error`, or your own.

    Raises:
        Misuse: A value has the wrong type or range, or does not fit the action.
    """

    command: str | None
    action: Action
    where: Callable[[Body], bool] | None = None
    skip: int = attrs.field(default=0, kw_only=True)
    times: int | None = attrs.field(default=None, kw_only=True)
    probability: float = attrs.field(default=1.0, kw_only=True)
    delay: timedelta = attrs.field(default=timedelta(0), kw_only=True)
    reply: Body = attrs.field(default=_NOTHING, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.command is not None:
            check_name(self.command, "a command")
        check_type(self.action, Action, "action")
        if self.where is not None:
            check_callable(self.where, "where")
        check_int(self.skip, "skip", 0)
        if self.times is not None:
            check_int(self.times, "times", 1)
        check_type(self.probability, (int, float), "probability")
        check_lengths(self, delay=0)
        check_type(self.reply, Mapping, "reply")
        if not 0 < self.probability <= 1:
            raise Misuse(f"{self.probability} cannot be a probability", why="it is above 0 and at most 1")
        if bool(self.delay) != (self.action in _DELAYS):
            raise Misuse(f"{self.action} by {self.delay}", why="what delays takes more than 0 s, and nothing else any")
        if bool(self.reply) != (self.action in _ANSWERS):
            raise Misuse(
                f"{self.action} with a reply of {len(self.reply)} fields",
                why="what answers needs some, and nothing else any",
            )


def command_error(code: int, *labels: str, message: str = "a black pipe's") -> Body:
    """A rejection with MongoDB's error code, for `Action.ANSWER`."""
    check_int(code, "the code of an error", 1)
    return {"ok": 0.0, "code": code, "codeName": f"Code{code}", "errmsg": message, "errorLabels": list(labels)}


def write_concern_error(code: int, *labels: str, message: str = "a black pipe's") -> Body:
    """What to add to the reply of a write that no majority confirms, for `Action.AMEND`."""
    check_int(code, "the code of an error", 1)
    error = {"code": code, "codeName": f"Code{code}", "errmsg": message}
    return {"writeConcernError": error, **({"errorLabels": list(labels)} if labels else {})}


class MakePipe(Protocol):
    """The type of the fixture `black_pipe`."""

    def __call__(self, uri: str, *rules: Rule, port: int = 0, seed: int = 0) -> BlackPipe: ...


@final
class BlackPipe:
    """Listens on the loopback address within its `with` block.

    Methods may be called from any thread. The end of the block raises errors of the pipe and of
    rules' predicates.

    Args:
        uri: The MongoClient URI of one node.
        rules: The first rules, see `obey`.
        port: The port to listen on, 0 for any free one.
        seed: For the generator of probabilities.

    Raises:
        Misuse: A wrong type, or a URI that is unreadable, names several nodes, or asks for TLS or
            compression.
    """

    port: int

    def __init__(self, uri: str, *rules: Rule, port: int = 0, seed: int = 0) -> None:
        self._given, self._target = uri, _node(uri)
        check_int(port, "a port", 0, 65_535)
        check_type(seed, int, "a seed")
        self.port = port
        self._lock = threading.RLock()  # a predicate may count
        self._random = random.Random(seed)  # noqa: S311  it draws faults
        self._counts: Counter[tuple[str, Action]] = Counter()
        self._errors: list[BaseException] = []
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.obey(*rules)

    @property
    def uri(self) -> str:
        """The node's URI through the pipe, within the block."""
        _ = self._running()
        return _by_way_of(self.port, self._given)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self._loop.is_running():
            raise Misuse("the pipe is not listening", todo="use it in a block: with BlackPipe(uri) as pipe")
        return self._loop

    def obey(self, *rules: Rule) -> None:
        """Replaces all rules from the next request on."""
        check_tuple(rules, Rule, "a rule")
        with self._lock:
            self._rules = rules
            self._skips = [rule.skip for rule in rules]
            self._left = [rule.times for rule in rules]

    def count(self, command: str, action: Action) -> int:
        """Applications of the action; a lost reply counts when the server has sent it."""
        with self._lock:
            return self._counts[command, action]

    def turn(self, link: Link) -> None:
        check_type(link, Link, "a link")
        loop = self._running()
        asyncio.run_coroutine_threadsafe(self._turn(link), loop).result()

    def __enter__(self) -> Self:
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(listening)), name="black pipe", daemon=True
        )
        self._thread.start()
        self.port = listening.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._running().call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    async def _run(self, listening: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped, self._passing = asyncio.Event(), asyncio.Event()
        self._passing.set()
        try:
            self._server = await self._listening()
        except OSError as error:
            what = TidegateError(f"a black pipe cannot listen on port {self.port}", why=str(error), todo="name another")
            listening.set_exception(what)
            return
        listening.set_result(self._server.sockets[0].getsockname()[1])
        await self._stopped.wait()
        await self._cut()

    async def _listening(self) -> asyncio.Server:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._connection(reader, writer))
            self._connections[task] = writer
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[None]) -> None:
            self._connections.pop(task).transport.abort()  # needed for a task cancelled before it began

        return await asyncio.start_server(connected, _LOOPBACK, self.port, limit=_BUFFER_BYTES)

    async def _turn(self, link: Link) -> None:
        if link is Link.HANGING:
            self._passing.clear()
        else:
            self._passing.set()
        if link is Link.REFUSED:
            await self._cut()
        elif not self._server.is_serving():
            self._server = await self._listening()

    async def _cut(self) -> None:
        """Resets all; first turns accepted sockets into connections, which `close` would lose."""
        with suppress(NotImplementedError):  # on Windows
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for task in (connections := tuple(self._connections)):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        writers = [client_out]
        is_reset = True  # if a side closed, a rule cut, or the link is refused
        try:
            server_in, server_out = await asyncio.open_connection(*self._target, limit=_BUFFER_BYTES)
            writers.append(server_out)
            pending: dict[int, tuple[str, Rule]] = {}
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._requests(client_in, client_out, server_out, pending))
                pumps.create_task(self._replies(server_in, client_out, pending))
            is_reset = False
        except* (OSError, EOFError):
            pass
        except* Exception as errors:  # noqa: BLE001  raised in the thread of the test
            self._errors.extend(errors.exceptions)
        finally:
            if is_reset:
                with suppress(OSError):
                    client_out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _requests(
        self,
        client_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        pending: dict[int, tuple[str, Rule]],
    ) -> None:
        while True:
            try:
                header, payload = await _message(client_in)
            except (OSError, EOFError):
                break
            await self._passing.wait()
            _, request_id, _, opcode = _HEADER.unpack(header)
            start = _body_start(opcode, payload)
            command = _name_of(payload, start)
            rule = self._rule(command, opcode, payload, start)
            match rule.action:
                case Action.CUT_REQUEST:
                    self._did(command, rule)
                    raise ConnectionResetError
                case Action.HANG_REQUEST:
                    self._did(command, rule)
                    continue
                case Action.ANSWER:
                    self._did(command, rule)
                    if opcode != _OP_MSG or not payload[0] & _MORE_TO_COME:
                        await _sent(client_out, _reply(opcode, request_id, rule.reply))
                    continue
                case Action.DELAY_REQUEST:
                    await asyncio.sleep(rule.delay.total_seconds())
                    self._did(command, rule)
                case Action.FORWARD:
                    self._did(command, rule)
                case _:
                    pending[request_id] = command, rule
            await _sent(server, header + payload)
        # The server reads all that was sent, late requests included, before it sees the end.
        server.write_eof()

    async def _replies(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, pending: dict[int, tuple[str, Rule]]
    ) -> None:
        while True:
            header, payload = await _message(server)
            await self._passing.wait()
            message = header + payload
            _, _, answered, opcode = _HEADER.unpack(header)
            if (expected := pending.pop(answered, None)) is not None:
                command, rule = expected
                self._did(command, rule)
                match rule.action:
                    case Action.CUT_REPLY:
                        raise ConnectionResetError
                    case Action.HANG_REPLY:
                        continue
                    case Action.TRUNCATE_REPLY:
                        await _sent(client, message[: len(message) // 2])
                        client.write_eof()
                        return
                    case Action.GARBLE_REPLY:
                        message = bytes(each ^ 0xFF for each in message)
                    case Action.AMEND:
                        start = _REPLY_START[opcode]
                        said = bson.decode(payload[start : start + _size(payload, start)])
                        message = _reply(opcode, answered, {**said, **rule.reply})
                    case _:
                        await asyncio.sleep(rule.delay.total_seconds())
            await _sent(client, message)

    def _rule(self, command: str, opcode: int, payload: bytes, start: int) -> Rule:
        with self._lock:
            skips, lefts = self._skips, self._left  # a predicate may replace the rules
            for index, rule in enumerate(self._rules):
                left = lefts[index]
                if left == 0 or (rule.command != command if rule.command else command in _OF_THE_DRIVER):
                    continue
                if rule.where is not None and not rule.where(_body_of(opcode, payload, start)):
                    continue
                if skips[index]:
                    skips[index] -= 1
                elif self._random.random() < rule.probability:
                    lefts[index] = None if left is None else left - 1
                    return rule
        return Rule(command, Action.FORWARD)

    def _did(self, command: str, rule: Rule) -> None:
        with self._lock:
            self._counts[command, rule.action] += 1


# --- addresses ----------------------------------------------------------------------------------------------------------


def _node(uri: str) -> tuple[str, int]:
    check_type(uri, str, "the URI of a node", "write mongodb://host:port/")
    try:
        found = parse_uri(uri, warn=False) if uri.startswith("mongodb://") else None
    except (PyMongoError, ValueError):
        found = None
    nodes = found["nodelist"] if found else []
    if found is None or len(nodes) != 1 or nodes[0][1] is None:
        raise Misuse(
            f"a black pipe stands in front of one node, and the URI names {len(nodes)}",
            why="or it cannot be read, looks its nodes up (mongodb+srv), or names a socket",
            todo="write mongodb://host:port/, and make a pipe for each node",
        )
    if found["options"].get("tls") or found["options"].get("compressors"):
        raise Misuse(
            "a black pipe reads neither TLS nor compressed messages",
            todo="leave tls, ssl and compressors out of the URI",
        )
    host, number = nodes[0]
    return str(host), int(number)


def _by_way_of(port: int, uri: str) -> str:
    hosts, path, options = re.fullmatch(r"mongodb://([^/?]*)(/[^?]*)?(?:\?(.*))?", uri).groups()  # type: ignore[union-attr]  # it was parsed
    user, at, _ = hosts.rpartition("@")
    # A refused client would report the set's name instead of the reason.
    given = [each for each in (options or "").split("&") if each and not _REPLACED.match(each)]
    if not any(each.lower().startswith("heartbeatfrequencyms=") for each in given):
        given.append("heartbeatFrequencyMS=500")  # after a cut, the driver checks again that late
    return f"mongodb://{user}{at}{_LOOPBACK}:{port}{path or '/'}?{'&'.join(['directConnection=true', *given])}"


_REPLACED: Final = re.compile("(directConnection|replicaSet)=", re.IGNORECASE)


# --- the wire format ----------------------------------------------------------------------------------------------------

_REPLY_START: Final = {_OP_MSG: 4 + 1, _OP_REPLY: 4 + 8 + 4 + 4}
"""Offset of a reply's document: after flags and section kind, or flags, cursor, start and count."""


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    header = await reader.readexactly(_HEADER.size)
    length, _, _, opcode = _HEADER.unpack(header)
    if opcode == _OP_COMPRESSED:
        raise TidegateError(
            "a black pipe reads no compressed messages",
            todo="leave compressors out of the URI; start a mongod of a set with --networkMessageCompressors disabled",
        )
    if opcode not in {_OP_MSG, _OP_QUERY, _OP_REPLY}:
        what = "TLS" if header.startswith(_TLS) else f"messages of kind {opcode}"
        raise TidegateError(
            f"a black pipe reads no {what}", todo="connect a client of MongoDB without TLS: leave out tls and ssl"
        )
    return header, await reader.readexactly(length - _HEADER.size)


async def _sent(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(message)
    await writer.drain()


def _reply(opcode: int, answered: int, document: Body) -> bytes:
    is_msg = opcode == _OP_MSG
    payload = (b"\0" * 5 if is_msg else struct.pack("<iqii", 8, 0, 0, 1)) + bson.encode(document)
    return _HEADER.pack(_HEADER.size + len(payload), 0, answered, _OP_MSG if is_msg else _OP_REPLY) + payload


def _body_start(opcode: int, payload: bytes) -> int:
    """Drivers send the command's body as an OP_MSG's first section."""
    if opcode == _OP_MSG:  # flags, section kind
        return 4 + 1
    return payload.index(0, 4) + 1 + 8  # flags, collection, skip, limit


def _name_of(payload: bytes, start: int) -> str:
    name = start + 4 + 1  # document length, field type
    return payload[name : payload.index(0, name)].decode()


def _body_of(opcode: int, payload: bytes, start: int) -> Body:
    at = start + _size(payload, start)
    body: dict[str, Any] = bson.decode(payload[start:at])
    last = len(payload) - (4 if opcode == _OP_MSG and payload[0] & _CHECKSUM else 0)
    while at < last:
        at, end = (
            at + 1,
            at + 1 + _size(payload, at + 1),
        )  # section kind, then the length including itself
        documents = payload.index(0, at + 4) + 1
        body[payload[at + 4 : documents - 1].decode()] = bson.decode_all(payload[documents:end])
        at = end
    return body


def _size(payload: bytes, at: int) -> int:
    return int.from_bytes(payload[at : at + 4], "little")
