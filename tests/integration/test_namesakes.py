"""A static member that was put out asks whether another has its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import errors

from tidegate_adapters.kafka.client import Client, join_no_more
from tidegate_adapters.kafka.static_membership import FENCED_INSTANCE_ID, NamedHeartbeat, Seat, is_taken, seat_of
from tidegate_adapters.testing.event_loop import run

SEAT = Seat("g", "shipping-1", 3, "shipping-1-abc")


def asked(answer: Callable[[int], int]) -> tuple[bool, int, float]:
    async def main(_: Random) -> tuple[bool, int, float]:
        sent: list[NamedHeartbeat] = []

        async def known() -> None: ...

        async def send(request: NamedHeartbeat) -> Any:
            sent.append(request)
            return SimpleNamespace(error_code=answer(len(sent)))

        coordinator = SimpleNamespace(ensure_coordinator_known=known, _send_req=send)
        began_s = asyncio.get_running_loop().time()
        found = await is_taken(cast("Client", SimpleNamespace(_coordinator=coordinator)), SEAT)
        assert {each.seat for each in sent} == {SEAT}
        return found, len(sent), asyncio.get_running_loop().time() - began_s

    return run(main, 1)


@pytest.mark.parametrize("code", [0, 25, 22, 27, FENCED_INSTANCE_ID])
def test_only_who_is_told_so_is_fenced(code: int) -> None:
    assert asked(lambda _: code)[:2] == (code == FENCED_INSTANCE_ID, 1)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_cannot_say_is_asked_again(code: int) -> None:
    assert asked(lambda nth: code if nth < 4 else FENCED_INSTANCE_ID)[:2] == (True, 4)


def test_what_is_not_answered_is_asked_again_for_a_while() -> None:
    """After a while it continues: the group does not wait for it for ever."""

    def lost(_: int) -> int:
        raise errors.KafkaConnectionError

    found, _, took_s = asked(lost)
    assert not found
    assert took_s == pytest.approx(5)


@pytest.mark.parametrize("error", [NotImplementedError("v0"), errors.GroupAuthorizationFailedError("g")])
def test_who_cannot_ask_is_not_fenced(error: Exception) -> None:
    def refused(_: int) -> int:
        raise error

    assert asked(refused)[:2] == (False, 1)


def test_a_heartbeat_says_the_name() -> None:
    made = NamedHeartbeat(SEAT).prepare({12: (0, 4)})
    assert (made.API_KEY, made.API_VERSION, made.FLEXIBLE_VERSION) == (12, 3, False)
    assert made.encode() == b"\x00\x01g\x00\x00\x00\x03\x00\x0eshipping-1-abc\x00\x0ashipping-1"
    with pytest.raises(NotImplementedError):
        NamedHeartbeat(SEAT).prepare({12: (0, 2)})


def test_who_is_not_to_join_again_is_ended() -> None:
    """Only the client's own join task is cancelled."""

    async def main(_: Random) -> bool:
        task = asyncio.ensure_future(asyncio.Event().wait())
        join_no_more(cast("Client", SimpleNamespace(_coordinator=SimpleNamespace(_coordination_task=task))))
        await asyncio.wait({task})
        return task.cancelled()

    assert run(main, 1)


def test_who_has_no_name_or_no_word_of_it_has_no_seat() -> None:
    told = cast("Client", SimpleNamespace(_coordinator=SimpleNamespace(generation=3, member_id="shipping-1-abc")))
    other = cast("Client", SimpleNamespace())
    assert seat_of(told, "g", "shipping-1") == SEAT
    assert seat_of(told, "g", None) is None
    assert seat_of(other, "g", "shipping-1") is None
    join_no_more(other)
    assert not asyncio.run(is_taken(other, SEAT))
