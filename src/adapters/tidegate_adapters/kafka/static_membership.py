"""Detects that another member has taken this one's name.

A name (`group_instance_id`; KIP-345) may outlive its process. A process that joins under it takes
over the old member's partitions, without a rebalance. The broker answers FENCED_INSTANCE_ID (82) to
the old member's named heartbeats and commits, which ends the Java client.

aiokafka 0.14 sends the name only in joins and syncs: its versions of Heartbeat and OffsetCommit
have no field for it. So the old member gets UNKNOWN_MEMBER_ID, rejoins and takes the name back, for
ever. For code 82 it has no class, and raises `KafkaError("UnknownError()")`.

So a removed member sends a heartbeat of version 3, under its old identity, BEFORE it rejoins:

    FENCED_INSTANCE_ID     another member has the name
    UNKNOWN_MEMBER_ID      no member has it: the session expired
    NONE, and others       it is a member, or the broker cannot tell: it may continue

A refused member does not rejoin either: after an error aiokafka sends the next JoinGroup at once,
before this question has an answer.

Known not to work:

    A late join of a client that gave up takes the name from the next member, which is then fenced.
    Another member may join between that reply and the join: it is then the older one, and is
        fenced.
    If the broker does not answer in time, the member rejoins and fences a new owner of the name.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import HeartbeatResponse_v1
from aiokafka.protocol.types import Int32, Schema, String

from tidegate.consumer.worker.worker import NameTaken, fenced
from tidegate_adapters.base.log_fields import say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Client
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.settings import WorkerSettings

FENCED_INSTANCE_ID: Final = 82
_HEARTBEAT: Final = 12
_NOT_NOW: Final = frozenset({14, 15, 16})
"""The group is loading, has no coordinator, or has another one."""
_PATIENCE_S: Final = 5.0
"""Enough time to find a new coordinator."""
_AGAIN_S: Final = 0.1


@final
class Seat(NamedTuple):
    """The identity of a static member in its group."""

    group: str
    name: str
    generation: int
    member_id: str


class _Answer(Response):  # type: ignore[misc]  # untyped
    API_KEY, API_VERSION, SCHEMA = _HEARTBEAT, 3, HeartbeatResponse_v1.SCHEMA


class _Struct(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, RESPONSE_TYPE = _HEARTBEAT, 3, _Answer
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


@final
class NamedHeartbeat(Request[_Struct]):  # type: ignore[misc]
    """A heartbeat with the member's name."""

    API_KEY = _HEARTBEAT

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    def build(self, request_struct_class: Any) -> Any:
        seat = self.seat
        return request_struct_class(seat.group, seat.generation, seat.member_id, seat.name)


@final
class OwnName:
    """The name of one member, if it has one; the client must not stop while `is_asking` is held."""

    def __init__(self, client: Client, settings: WorkerSettings, life: Lifecycle) -> None:
        self._client, self._settings, self._life = client, settings, life
        self._last: Seat | None = None
        self.is_asking = asyncio.Lock()

    def remember(self) -> None:
        self._last = self.seat()

    def seat(self) -> Seat | None:
        return seat_of(self._client, self._settings.group, self._settings.options.get("group_instance_id"))

    async def is_taken(self, seat: Seat | None = None) -> bool:
        """Whether another member has the name of the seat or of the last assignment; if so, end
        this member.
        """
        seat = seat or self._last
        if seat is None:
            return False
        async with self.is_asking:
            if not await is_taken(self._client, seat):
                return False
            error = fenced(seat.name, seat.group, self._settings.topics)
            say(logging.ERROR, "%s; all is left to it", error.what)
            if not self._life.is_called_off:  # a requested stop has priority
                self._life.error = self._life.error or error
                self._life.is_called_off = True
            self._life.tell(NameTaken())
            return True


def seat_of(consumer: Client, group: str, name: object) -> Seat | None:
    generation, member_id = ports.generation_of(consumer), ports.member_id_of(consumer)
    if not isinstance(name, str) or generation is None or member_id is None:
        return None
    return Seat(group, name, generation, member_id)


async def is_taken(consumer: Client, seat: Seat) -> bool:
    """Whether another member has the name; False without a reply in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                code = await ports.ask_coordinator(consumer, NamedHeartbeat(seat))
                if code is not None and code not in _NOT_NOW:
                    return code == FENCED_INSTANCE_ID
                await asyncio.sleep(_AGAIN_S)
    return False
