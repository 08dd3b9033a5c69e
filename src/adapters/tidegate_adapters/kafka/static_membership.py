"""Does another member have the name of this one?

Members may have names that outlive their processes (`group_instance_id`; KIP-345). Who joins a group under a name that another
member has takes its place and all that it owned; the group does not rebalance. Whoever names itself in a heartbeat or a commit
is then told so (FENCED_INSTANCE_ID, 82), which ends the Java client.

aiokafka 0.14 names itself when it joins and when it syncs, and in nothing else: it speaks the first two versions of Heartbeat, and
of OffsetCommit those before the seventh, which have no place for a name. So the older one is told UNKNOWN_MEMBER_ID, as if its
session had ended, joins again, and takes the name back; and so on, for ever. Where a join or a sync is refused with code 82,
which it has no class for, it raises `KafkaError("UnknownError()")`.

So whoever was put out asks here before it joins again, by a heartbeat of the third version as the member that it was:

    FENCED_INSTANCE_ID     another has the name
    UNKNOWN_MEMBER_ID      nobody has it: its session was over
    NONE, and others       it is a member, or nobody can tell: it may go on

Nor does whoever was refused so join again: after an error that it has raised, aiokafka sends the next JoinGroup at once, while
the worker still asks what was wrong.

Known not to work
    A join that was given up by its own client and arrives late takes the name from the next one, which then is fenced.
    Between that answer and the join another may come: then that one is the older, and is fenced.
    A broker that does not say so in time is asked no more; should the other have come, it is the one that is fenced.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import HeartbeatResponse_v1
from aiokafka.protocol.types import Int32, Schema, String

from tidegate.consumer.worker import NameTaken, fenced
from tidegate_adapters.base.log_fields import say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Client
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.settings import WorkerSettings

FENCED_INSTANCE_ID: Final = 82
_HEARTBEAT: Final = 12
_NOT_NOW: Final = frozenset({14, 15, 16})
"""The group is being loaded, nobody coordinates it, or another broker does."""
_PATIENCE_S: Final = 5.0
"""How long it is asked, again and again: as long as it takes until a coordinator that has gone is found again."""
_AGAIN_S: Final = 0.1


@final
class Seat(NamedTuple):
    """As whom a group knows a member that has a name.

    Attributes:
        group: The group.
        name: Its `group_instance_id`.
        generation: Of which it is a member.
        member_id: What the group calls it.
    """

    group: str
    name: str
    generation: int
    member_id: str


class _Answer(Response):  # type: ignore[misc]  # it has no types
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
    """A heartbeat of a member that says its name."""

    API_KEY = _HEARTBEAT

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    def build(self, request_struct_class: Any) -> Any:
        seat = self.seat
        return request_struct_class(seat.group, seat.generation, seat.member_id, seat.name)


@final
class OwnName:
    """The name of one member, if it has one: as whom the group knows it, and whether another member has taken the name.

    Args:
        client: It is a member of the group.
        settings: What the worker was told.
        life: Of the member.

    Attributes:
        is_asking: Held while the group is asked: the client must not be stopped meanwhile.
    """

    def __init__(self, client: Client, settings: WorkerSettings, life: Lifecycle) -> None:
        self._client, self._settings, self._life = client, settings, life
        self._last: Seat | None = None
        self.is_asking = asyncio.Lock()

    def remember(self) -> None:
        """Keep as whom the group knows the member now."""
        self._last = self.seat()

    def seat(self) -> Seat | None:
        """As whom the group knows the member now."""
        return seat_of(self._client, self._settings.group, self._settings.options.get("group_instance_id"))

    async def is_taken(self, seat: Seat | None = None) -> bool:
        """Whether another member has the name, by default that of the last assignment; if so, this member ends with an error."""
        seat = seat or self._last
        if seat is None:
            return False
        async with self.is_asking:
            if not await is_taken(self._client, seat):
                return False
            error = fenced(seat.name, seat.group, self._settings.topics)
            say(logging.ERROR, "%s; all is left to it", error.what)
            if not self._life.is_called_off:  # a member that was asked to stop ends as it was asked to
                self._life.error = self._life.error or error
                self._life.is_called_off = True
            self._life.tell(NameTaken())
            return True


def seat_of(consumer: Client, group: str, name: object) -> Seat | None:
    """As whom the group knows a client now; None where it has no name, or does not say.

    Args:
        consumer: It.
        group: Its group.
        name: Its `group_instance_id`, if it has one.
    """
    generation, member_id = ports.generation_of(consumer), ports.member_id_of(consumer)
    if not isinstance(name, str) or generation is None or member_id is None:
        return None
    return Seat(group, name, generation, member_id)


async def is_taken(consumer: Client, seat: Seat) -> bool:
    """Whether another member has that name by now; False where nobody says so in time.

    Args:
        consumer: Whose connection is used.
        seat: As whom the group knew it last.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                code = await ports.ask_coordinator(consumer, NamedHeartbeat(seat))
                if code is not None and code not in _NOT_NOW:
                    return code == FENCED_INSTANCE_ID
                await asyncio.sleep(_AGAIN_S)
    return False
