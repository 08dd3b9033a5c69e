"""A real `AsyncMongoClient` on an in-memory network to a simulated replica set.

Two parts of pymongo are replaced: the pool's connections pass messages in memory, and the monitor
learns of changes from the set. Sessions, retryable writes, deadlines, events and server selection
are pymongo's own.

The outcomes of a command, apart from an error code (`Code`):
    UNSENT      the connection breaks before the server has the command
    LOST_REPLY  the connection breaks after the server executed the command
    LATE        the connection breaks; the server executes the command later, unless the primary
        changed
    DROPPED     the command is lost; the client waits until it gives up
    SILENCE     the server executes the command; the client waits until it gives up
    SLOW        the command arrives late and is answered
A client that gives up closes the connection; a command in flight still arrives.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping
from enum import Enum, unique
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, final

import bson
from pymongo import AsyncMongoClient, _csot
from pymongo.asynchronous.pool import AsyncConnection, Pool
from pymongo.errors import DocumentTooLarge
from pymongo.hello import Hello
from pymongo.message import _OpMsg
from pymongo.server_description import ServerDescription

from tidegate_adapters.mongo import REPLY_MS
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.bson import CODEC
from tidegate_adapters.mongo.elections import Elections
from tidegate_adapters.testing.mongo.commands import ADDRESS, REPLICA_SET, Code, Commands
from tidegate_adapters.testing.mongo.replica_set import SimulatedReplicaSet


@final
@unique
class Outcome(Enum):
    """Failures of a command."""

    UNSENT = "unsent"
    LOST_REPLY = "lost reply"
    LATE = "late"
    DROPPED = "dropped"
    SILENCE = "silence"
    SLOW = "slow"


Strike: TypeAlias = Callable[[str, Mapping[str, Any]], "Outcome | Code | None"]
"""The outcome of a client's command; None for no failure."""

_NOTICED_S: Final = 0.5
"""Longest delay of a monitor's requested check."""


@final
class Network:
    """The network to a replica set; `strike` is not called for handshakes.

    `delay_s` bounds the one-way delay, `late_s` that of late or slow commands.
    """

    def __init__(
        self,
        replica_set: SimulatedReplicaSet,
        random: Random,
        *,
        delay_s: tuple[float, float] = (0.000_2, 0.002),
        late_s: tuple[float, float] = (0.001, 3.0),
        strike: Strike = lambda _client, _command: None,
    ) -> None:
        self.replica_set, self.strike = replica_set, strike
        self.commands = Commands(replica_set)
        self.is_open = True
        self._random, self._delay_s, self._late_s = random, delay_s, late_s
        self._links: dict[_Link, None] = {}  # ordered, so that a seed decides all
        self._monitors: list[_Monitor] = []
        replica_set.on_role.append(self._look)
        replica_set.on_death.append(self._break)

    def client(self, name: str, **options: Any) -> AsyncMongoClient[dict[str, Any]]:
        """Configured like `tidegate_adapters.mongo.connect_async`; `strike` receives its name."""
        options = {
            "event_listeners": [Attempts(), Elections()],
            "socketTimeoutMS": REPLY_MS,
            "waitQueueTimeoutMS": REPLY_MS,
            **options,
        }
        return AsyncMongoClient(
            f"mongodb://{ADDRESS[0]}:{ADDRESS[1]}/?replicaSet={REPLICA_SET}",
            **options,
            _pool_class=partial(_Pool, self, name),
            _monitor_class=partial(_Monitor, self),
        )

    def close(self) -> None:
        self.is_open = False
        self._break()
        self._look()

    def open(self) -> None:
        self.is_open = True
        self._look()

    def delay_s(self) -> float:
        return self._between(self._delay_s)

    def _between(self, bounds: tuple[float, float]) -> float:
        shortest, longest = bounds
        return shortest + self._random.random() * (longest - shortest)

    def _look(self) -> None:
        for monitor in self._monitors:
            monitor.look(self.delay_s())

    def _break(self) -> None:
        for link in tuple(self._links):
            link.break_()

    def send(self, link: _Link, command: Mapping[str, Any], *, is_handshake: bool) -> asyncio.Future[dict[str, Any]]:
        struck = None if is_handshake else self.strike(link.client, command)
        loop, term = self.replica_set.loop, self.replica_set.term
        link.reply = reply = loop.create_future()

        def arrive(answer: Callable[[dict[str, Any]], None], code: Code | None = None) -> None:
            if self.replica_set.term == term or not link.is_closing():
                self._handle(command, link, code, answer)  # late requests reach no new primary

        def back(said: dict[str, Any]) -> None:
            loop.call_later(self.delay_s(), link.answered, reply, said)

        delay_s = self.delay_s()
        match struck:
            case None | Code():
                loop.call_later(delay_s, arrive, back, struck)
            case Outcome.SLOW:
                loop.call_later(delay_s + self._between(self._late_s), arrive, back)
            case Outcome.UNSENT:
                loop.call_later(delay_s, link.break_)
            case Outcome.LOST_REPLY:
                loop.call_later(delay_s, arrive, lambda _: link.break_())
            case Outcome.LATE:
                loop.call_later(delay_s, link.break_)
                loop.call_later(delay_s + self._between(self._late_s), arrive, _ignored)
            case Outcome.SILENCE:
                loop.call_later(delay_s, arrive, _ignored)
            case Outcome.DROPPED:
                pass
        return reply

    def _handle(
        self, command: Mapping[str, Any], link: _Link, code: Code | None, answer: Callable[[dict[str, Any]], None]
    ) -> None:
        try:
            self.commands.handle(command, link.client, code, answer)
        except Exception as error:  # noqa: BLE001  goes to the sender
            link.failed(error)


def _ignored(_: dict[str, Any]) -> None:
    pass


@final
class _Link:
    """The network's end of one connection: pymongo's networking interface."""

    def __init__(self, network: Network, client: str) -> None:
        self.network, self.client = network, client
        self.reply: asyncio.Future[dict[str, Any]] | None = None
        self.gettimeout: float | None = None
        self._is_broken = False
        network._links[self] = None  # noqa: SLF001  of this very module

    @property
    def get_conn(self) -> _Link:
        return self

    def settimeout(self, timeout: float | None) -> None:
        self.gettimeout = timeout

    def is_closing(self) -> bool:
        return self._is_broken

    async def close(self) -> None:
        self.break_()

    def break_(self) -> None:
        self._is_broken = True
        self.network._links.pop(self, None)  # noqa: SLF001
        self.failed(OSError("connection closed"))

    def answered(self, reply: asyncio.Future[dict[str, Any]], said: dict[str, Any]) -> None:
        if reply is self.reply and not self._is_broken and not reply.done():
            self.reply = None
            reply.set_result(said)

    def failed(self, error: BaseException) -> None:
        reply, self.reply = self.reply, None
        if reply is not None and not reply.done():
            reply.set_exception(error)


class _Connection(AsyncConnection):
    conn: Any
    _sent: tuple[Mapping[str, Any], asyncio.Future[dict[str, Any]]]

    async def send_message(self, message: bytes, max_doc_size: int) -> None:
        if max_doc_size > self.max_bson_size:
            raise DocumentTooLarge(f"BSON document too large ({max_doc_size} bytes)")
        if self.conn.is_closing():
            await self._raise_connection_failure(OSError("connection closed"))
        command = _read(message)
        is_handshake = not self.ready
        self._reply = self.conn.network.send(self.conn, command, is_handshake=is_handshake)

    async def receive_message(self, request_id: int | None) -> _OpMsg:  # noqa: ARG002  there is one
        seconds = self.conn.gettimeout
        if _csot.get_timeout():
            seconds = max(_csot.get_deadline() - time.monotonic(), 0)
        try:
            async with asyncio.timeout(seconds):
                return _OpMsg(0, bson.encode(await self._reply, codec_options=CODEC))
        except BaseException as error:  # noqa: BLE001  a cancellation closes the connection, too
            told = TimeoutError("timed out") if isinstance(error, TimeoutError) else error
            await self._raise_connection_failure(told)


def _read(message: bytes) -> dict[str, Any]:
    _, _, _, opcode, _ = _HEADER.unpack_from(message)
    assert opcode == _OP_MSG, f"a message of kind {opcode}"
    command: dict[str, Any] = {}
    at = _HEADER.size
    while at < len(message):
        kind, (size,) = message[at], _SIZE.unpack_from(message, at + 1)
        end = at + 1 + size
        if kind == 0:
            command = bson.decode(message[at + 1 : end], CODEC) | command
        else:
            zero = message.index(b"\0", at + 5)
            command[message[at + 5 : zero].decode()] = bson.decode_all(message[zero + 1 : end], CODEC)
        at = end
    return command


_HEADER: Final = struct.Struct("<iiiii")
_SIZE: Final = struct.Struct("<i")
_OP_MSG: Final = 2013


class _Pool(Pool):
    def __init__(self, network: Network, client: str, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._network, self._client = network, client

    async def connect(self, handler: Any = None) -> AsyncConnection:
        number, self.next_connection_id = self.next_connection_id, self.next_connection_id + 1
        await asyncio.sleep(self._network.delay_s())
        link = _Link(self._network, self._client)
        conn = _Connection(link, self, self.address, number, self.is_sdam)  # type: ignore[arg-type]  # it does what is asked of it
        link.settimeout(self.opts.socket_timeout)
        if not self._network.is_open:
            await conn._raise_connection_failure(ConnectionRefusedError("connection refused"))  # noqa: SLF001
        self.active_contexts.add(conn.cancel_context)
        try:
            await conn.hello()
            self.is_writable = conn.is_writable
            if handler:
                handler.contribute_socket(conn, completed_handshake=False)
            await conn.authenticate()
        except BaseException:
            self.active_contexts.discard(conn.cancel_context)
            await conn.close_conn(None)
            raise
        return conn


@final
class _Monitor:
    def __init__(
        self,
        network: Network,
        server_description: Any,
        topology: Any,
        pool: Any,  # noqa: ARG002  it has no connection of its own
        topology_settings: Any,
    ) -> None:
        self._network, self._topology, self._address = network, topology, server_description.address
        self._listeners = topology_settings.pool_options._event_listeners  # noqa: SLF001  as those of the driver do
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_asked = False

    def open(self) -> None:
        if self not in self._network._monitors:  # noqa: SLF001  of this very module
            self._network._monitors.append(self)  # noqa: SLF001
            self.look(self._network.delay_s())

    def look(self, seconds: float) -> None:
        task = asyncio.get_running_loop().create_task(self._told(seconds), name="monitor")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def request_check(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self.look(_NOTICED_S * self._network._random.random())  # noqa: SLF001

    async def _told(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._is_asked = False
        if self._network.is_open:
            hello = Hello(self._network.commands.hello())
            self._listeners.publish_server_heartbeat_succeeded(self._address, 0.0, hello, awaited=False)
            found = ServerDescription(self._address, hello, 0.0)
        else:
            found = ServerDescription(self._address, error=ConnectionRefusedError("connection refused"))
        await self._topology.on_change(found, reset_pool=not self._network.is_open)

    def cancel_check(self) -> None: ...

    def gc_safe_close(self) -> None:
        if self in self._network._monitors:  # noqa: SLF001
            self._network._monitors.remove(self)  # noqa: SLF001
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def close(self) -> None:
        self.gc_safe_close()

    async def join(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
