"""Waiting for results, poll by poll; the scenario `waiting` explores every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from tests.properties.invocations.test_settling import DROPPED, UNSENT, Store, Way, answered
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks import laws
from tidegate.invocations.queue.completion import RunError
from tidegate.invocations.queue.results import Absent, Awaited, Ended, Open, Waiting, told
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.record_documents import ERROR, RESULT, RESULT_PAYLOAD, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document, In
from tidegate.model.effects import Effect, Now, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Duration, Instant
from tidegate.model.operations import FindAll
from tidegate.sim.world.world import world_with

RECORDS: Final = "invocations"
ERROR_OF: Final = RunError("ValueError", "no")


def record(key: str, which: str, *more: tuple[str, Any]) -> Document:
    owner = "r" if which == status.RUNNING else None
    return new_record(key, StatusRecord(which, owner, 3), "made", Instant(0), more=Document(more))


SUCCEEDED: Final = record("a", status.SUCCESS, (RESULT.name, 42))
UPLOADED: Final = record("b", status.SUCCESS, (RESULT_PAYLOAD.name, "b@2"))
FAILED: Final = record("c", status.FAILED, (ERROR.name, ERROR_OF.document()))
RUNNING: Final = record("d", status.RUNNING, (ERROR.name, ERROR_OF.document()))
CANCELLED: Final = record("e", status.CANCELLED)


def stored(*records: Document) -> Store:
    return Store(world_with({RECORDS: records}))


def waits(store: Store, wanted: Waiting, *ways: Way) -> tuple[Awaited, ...]:
    return cast("tuple[Awaited, ...]", store.run(cast("Any", wanted.run()), *ways))


def at(now: Duration) -> Way:
    return lambda _, __: Instant(now, WALL)


def becomes(*records: Document) -> Way:
    def met(store: Store, effect: Effect[object]) -> object:
        assert isinstance(effect, Sleep)
        store.world = world_with({RECORDS: records})
        return None

    return met


def slept(_: Store, effect: Effect[object]) -> object:
    assert isinstance(effect, Sleep)
    return None


def test_each_is_told_as_it_stands() -> None:
    """Law WT1: in the order of keys, by one request where all have ended."""
    store = stored(SUCCEEDED, UPLOADED, FAILED, CANCELLED)
    answers = waits(store, Waiting(keys=("e", "c", "nobody", "b", "a")))

    assert answers == (
        Ended("e", status.CANCELLED),
        Ended("c", status.FAILED, error=ERROR_OF),
        Absent("nobody"),
        Ended("b", status.SUCCESS, upload="b@2"),
        Ended("a", status.SUCCESS, 42),
    )
    assert store.kinds == [FindAll]
    assert told(RUNNING) == Open("d", status.RUNNING)


def test_what_has_ended_is_not_asked_for_again_and_pauses_grow_up_to_a_cap() -> None:
    """Law WT3: later polls ask only for the rest."""
    store = stored(SUCCEEDED, RUNNING)
    ended = record("d", status.FAILED)
    ways = (answered, slept, answered, slept, DROPPED, slept, UNSENT, becomes(SUCCEEDED, ended))
    wanted = Waiting(keys=("a", "d"), least=SECOND, most=3 * SECOND)

    assert waits(store, wanted, *ways) == (Ended("a", status.SUCCESS, 42), Ended("d", status.FAILED))
    looks = [cast("In[str]", effect.where).values for effect in store.asked if isinstance(effect, FindAll)]
    assert looks == [("a", "d"), ("d",), ("d",), ("d",), ("d",)]
    pauses = [effect.duration for effect in store.asked if isinstance(effect, Sleep)]
    assert pauses == [SECOND, 2 * SECOND, 3 * SECOND, 3 * SECOND]


def test_who_gives_a_time_waits_as_long_and_looks_once_more_at_its_end() -> None:
    """Law WT4: the last delay is cut, so that the last poll is exactly at the deadline."""
    store = stored(RUNNING)
    wanted = Waiting(keys=("d",), limit=5 * SECOND, least=4 * SECOND, most=4 * SECOND)
    ways = (at(0), answered, at(0), slept, answered, at(4 * SECOND), slept, answered, at(5 * SECOND))

    assert waits(store, wanted, *ways) == (Open("d", status.RUNNING),)
    assert [effect.duration for effect in store.asked if isinstance(effect, Sleep)] == [4 * SECOND, SECOND]
    assert store.kinds[-2:] == [FindAll, Now]
    nobody = (at(0), DROPPED, at(0), slept, DROPPED, at(6 * SECOND))
    assert waits(stored(), wanted, *nobody) == (Open("d", None),)
    assert waits(stored(SUCCEEDED), Waiting(keys=("a",), limit=0)) == (Ended("a", status.SUCCESS, 42),)


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(Refused):
        waits(stored(), Waiting(keys=("a",)), lambda _, __: Refused("not authorised"))


def test_a_result_is_in_no_text() -> None:
    assert "42" not in f"{told(SUCCEEDED)!r} {told(SUCCEEDED)}"
    assert str(Open("d", None)) == "'d' has not ended: nobody answers"
    assert str(Absent("d")).startswith("there is no 'd'")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Waiting(keys=()),
        lambda: Waiting(keys=("a", "a")),
        lambda: Waiting(keys=("",)),
        lambda: Waiting(keys=("a",), limit=-1),
        lambda: Waiting(keys=("a",), least=2, most=1),
        lambda: told(Document.of({"_id": "a"})),
    ],
    ids=["none", "twice", "no name", "no time", "pauses that shrink", "no record"],
)
def test_what_cannot_be_waited_for_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()


@OF_DESIGNS
def test_whoever_waits_is_told_whatever_becomes_of_requests() -> None:
    """Laws WT1 and WT2, with two faults."""
    assert report_on("waiting").ok
    assert laws.waiting.what_is_told_is_so((Absent("x"),), {"x": None})
    assert not laws.waiting.what_is_told_is_so((Absent("a"),), {"a": SUCCEEDED})
