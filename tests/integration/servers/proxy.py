"""A proxy that understands MongoDB's wire format and breaks what passes through it by rules.

It stands between one client and one node, in a thread with an event loop of its own, so tests of any kind can use it.
Requests are recognised by their command, and a reply by the request that it answers (responseTo), so a rule can lose exactly
the reply of the third `update` and leave heartbeats alone. Every fault that was carried out is counted.
Clients connect with `directConnection=true` (it is in `Proxy.uri`), without TLS and without compression.

Known not to work: OP_COMPRESSED, and replies with moreToCome other than those of monitors, which pass untouched.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Self, final

import attrs
import bson

from .processes import LOOPBACK

HEADER: Final = struct.Struct("<iiii")  # length, requestID, responseTo, opCode; then the payload
BUFFER_BYTES: Final = 1 << 20
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time

Body = Mapping[str, Any]


class Action(Enum):
    """What becomes of a request and its reply."""

    FORWARD = "forward"
    CLOSE = "close"
    """The request is lost: the connection is reset before the server sees it."""
    DROP_REQUEST = "drop request"
    """The request is lost without a sign: no answer ever comes."""
    DELAY_REQUEST = "delay request"
    """The request arrives late, also when the client has given up and closed the connection."""
    DROP_REPLY = "drop reply"
    """The request is carried out, and its reply lost: the connection is reset."""
    DELAY_REPLY = "delay reply"
    HANG_REPLY = "hang reply"
    """The request is carried out, and its reply lost without a sign."""


DELAYS: Final = {Action.DELAY_REQUEST, Action.DELAY_REPLY}


@final
@attrs.frozen
class Rule:
    """The first rule that fits a request decides about it.

    Args:
        command: The command's name as on the wire, such as "update", "findAndModify", "getMore", "commitTransaction".
        action: What to do.
        where: If given, must hold for the command's body, whose document sequences ("updates", "documents", "deletes")
            are among its keys. Called in the proxy's thread.
        times: How often it is applied at most, None for always.
        probability: The chance that a request that fits is taken, by the proxy's seeded generator.
        seconds: The delay, of the two actions that delay.
    """

    command: str
    action: Action
    where: Callable[[Body], bool] | None = None
    times: int | None = None
    probability: float = 1.0
    seconds: float = 0.0

    def __attrs_post_init__(self) -> None:
        assert self.times is None or self.times > 0, self
        assert 0 < self.probability <= 1, self
        assert (self.seconds > 0) == (self.action in DELAYS), self


@final
class Proxy:
    """Listens on a free port of this machine while its `with` block lasts.

    Methods may be called from any thread. An error within the proxy, one of a rule's predicate included, is raised
    at the end of the block.

    Args:
        port: The node's port.
        rules: The first rules, see `obey`.
        seed: Of the generator that decides probabilities.

    Attributes:
        uri: For MongoClient.
    """

    uri: str

    def __init__(self, port: int, *rules: Rule, seed: int = 0) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._counts: Counter[tuple[str, Action]] = Counter()
        self._errors: list[BaseException] = []
        self.obey(*rules)

    def obey(self, *rules: Rule) -> None:
        """Replaces all rules, from the next request on; without any, everything is forwarded."""
        with self._lock:
            self._rules = rules
            self._left = [rule.times for rule in rules]

    def count(self, command: str, action: Action) -> int:
        """How often that was done; a reply is lost once the server has sent it, whatever it says."""
        with self._lock:
            return self._counts[command, action]

    def __enter__(self) -> Self:
        listening: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(listening)), name="proxy", daemon=True)
        self._thread.start()
        self.uri = (
            f"mongodb://{LOOPBACK}:{listening.result(timeout=10)}/?directConnection=true&heartbeatFrequencyMS=500"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    async def _run(self, listening: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(task := asyncio.create_task(self._connection(reader, writer)))
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(connected, LOOPBACK, 0, limit=BUFFER_BYTES)
        listening.set_result(server.sockets[0].getsockname()[1])
        await self._stopped.wait()
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        writers = [client_out]
        try:
            server_in, server_out = await asyncio.open_connection(LOOPBACK, self._target, limit=BUFFER_BYTES)
            writers.append(server_out)
            pending: dict[int, tuple[str, Rule]] = {}
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._requests(client_in, server_out, pending))
                pumps.create_task(self._replies(server_in, client_out, pending))
        except* (OSError, EOFError):  # either side closed, or a rule did: the client sees a reset
            with suppress(OSError):
                client_out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        except* Exception as errors:  # noqa: BLE001  raised in the thread of the test
            self._errors.extend(errors.exceptions)
        finally:
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _requests(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, pending: dict[int, tuple[str, Rule]]
    ) -> None:
        while True:
            try:
                header, payload = await message(client)
            except (OSError, EOFError):
                break
            _, request_id, _, opcode = HEADER.unpack(header)
            start = body_start(opcode, payload)
            command = name_of(payload, start)
            rule = self._rule(command, payload, start)
            match rule.action:
                case Action.CLOSE:
                    self._did(command, rule)
                    raise ConnectionResetError
                case Action.DROP_REQUEST:
                    self._did(command, rule)
                    continue
                case Action.DELAY_REQUEST:
                    await asyncio.sleep(rule.seconds)
                    self._did(command, rule)
                case Action.FORWARD:
                    self._did(command, rule)
                case _:
                    pending[request_id] = command, rule
            server.write(header + payload)
            await server.drain()
        # The client is gone. The server reads what was sent, late requests included, before it sees the end.
        server.write_eof()

    async def _replies(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, pending: dict[int, tuple[str, Rule]]
    ) -> None:
        while True:
            header, payload = await message(server)
            _, _, answered, _ = HEADER.unpack(header)
            if (expected := pending.pop(answered, None)) is not None:
                command, rule = expected
                self._did(command, rule)
                match rule.action:
                    case Action.DROP_REPLY:
                        raise ConnectionResetError
                    case Action.HANG_REPLY:
                        continue
                    case _:
                        await asyncio.sleep(rule.seconds)
            client.write(header + payload)
            await client.drain()

    def _rule(self, command: str, payload: bytes, start: int) -> Rule:
        with self._lock:
            for index, rule in enumerate(self._rules):
                left = self._left[index]
                if rule.command != command or left == 0:
                    continue
                if rule.where is not None and not rule.where(body_of(payload, start)):
                    continue
                if self._random.random() < rule.probability:
                    self._left[index] = None if left is None else left - 1
                    return rule
        return Rule(command, Action.FORWARD)

    def _did(self, command: str, rule: Rule) -> None:
        with self._lock:
            self._counts[command, rule.action] += 1


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One message: its header and its payload, as they are."""
    header = await reader.readexactly(HEADER.size)
    length: int = HEADER.unpack(header)[0]
    return header, await reader.readexactly(length - HEADER.size)


def body_start(opcode: int, payload: bytes) -> int:
    """Where the command's body lies in a request; drivers make it the first section of an OP_MSG."""
    match opcode:
        case 2013:  # OP_MSG: flags, and the kind of the first section
            return 4 + 1
        case 2004:  # OP_QUERY, the first hello of a connection: flags, collection, how many to skip and to return
            return payload.index(0, 4) + 1 + 8
        case _:
            raise ValueError(f"opcode {opcode} is not understood (2012 is compression)")


def name_of(payload: bytes, start: int) -> str:
    """The command's name: the key of the first field of its body."""
    name = start + 4 + 1  # the length of the document, and the type of the field
    return payload[name : payload.index(0, name)].decode()


def body_of(payload: bytes, start: int) -> Body:
    """A request's body, with the document sequences that follow it in an OP_MSG as lists."""

    def size(at: int) -> int:
        return int.from_bytes(payload[at : at + 4], "little")

    at = start + size(start)
    body: dict[str, Any] = bson.decode(payload[start:at])
    while at < len(payload):
        at, end = at + 1, at + 1 + size(at + 1)  # the kind of the section, and its length with these four bytes
        documents = payload.index(0, at + 4) + 1
        body[payload[at + 4 : documents - 1].decode()] = bson.decode_all(payload[documents:end])
        at = end
    return body
