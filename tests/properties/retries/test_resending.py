"""The result of a resent effect is true under any faults and any other writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import pytest
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import (
    Ambiguous,
    Failure,
    NotApplied,
    NotDurable,
    Now,
    Program,
    Refused,
    Sleep,
    duplicate_key,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.operations import delete_one, find_one, insert_one, update_one
from tidegate.retries import retrying
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.failures import Duplicate, Operation
from tidegate.retries.retrying import RETRIES, Done, NotDone, Sent, Unknown, insert, send
from tidegate.sim import explore
from tidegate.sim.program.automaton import Asking, Returned, resume
from tidegate.sim.runs.report import Verdict
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.observing import observed, seen
from tidegate.sim.world.world import Cell, perform, world_with

ALL: Final = "things"
KEY: Final = Eq(ID, "x")
MADE_BY: Final = Field[str]("made_by")
TWICE: Final = Policy(backoff=Fixed(0), attempts_max=2)
FAULTS: Final = Faults.of(
    Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, Fault.NOT_DURABLE, Fault.CRASH_BEFORE
)
TRUE: Final = "Done is said of what was done (RS1), and NotDone of what was not and will not be (RS2)"

EVER: Final[Cell[frozenset[str]]] = seen("ever made by", frozenset())


def noted(ever: frozenset[str], _: Document | None, after: Document | None) -> frozenset[str]:
    return ever if after is None else ever | {after[MADE_BY]}


def thing(name: str) -> Document:
    return Document.of({"_id": "x", "made_by": name})


async def looked(name: str) -> Duplicate:
    found = await find_one(ALL, KEY)
    if found is None:
        return Duplicate.GONE
    return Duplicate.OWN if found == thing(name) else Duplicate.ANOTHERS


async def made(name: str) -> Sent[None]:
    return await insert(insert_one(ALL, thing(name)), lambda: looked(name), TWICE)


async def alter() -> None:
    await update_one(ALL, KEY, Put(MADE_BY, "another"))


def is_true_of(name: str) -> Callable[[State], bool]:
    def holds(state: State) -> bool:
        match state.status(name):
            case Returned(Done()):
                return name in state.read(EVER)
            case Returned(NotDone()):
                return name not in state.read(EVER)
            case _:
                return True

    return holds


def inserting(budget: int = 2) -> Scenario:
    means = observed(ALL, "x", EVER, noted, perform)
    names = ("a", "b")
    return Scenario(
        name="resending",
        summary="two insert under one id, and a third one changes what is there",
        world=world_with({ALL: ()}),
        actors=(
            *(Process(name, factory(made, name), FAULTS, means) for name in names),
            Process("c", factory(alter), meaning=means),
            Network(means),
        ),
        budget=budget,
        always={TRUE: tuple(map(is_true_of, names))},
        sometimes={
            "Unknown": lambda state: any(_ends(state, name, Unknown) for name in names),
            "NotDone": lambda state: any(_ends(state, name, NotDone) for name in names),
            "Done at the second attempt": lambda state: any(
                state.status(name) == Returned(Done(None, 2)) for name in names
            ),
        },
    )


def _ends(state: State, name: str, kind: type) -> bool:
    status = state.status(name)
    return isinstance(status, Returned) and isinstance(status.value, kind)


def test_what_is_said_of_an_insert_is_true() -> None:
    """Laws RS1 and RS2."""
    report = explore(inserting())
    assert report.trace is None, report.trace
    assert report.verdict is Verdict.COMPLETE, report


test_a_planted_bug_is_found = planted(
    retrying,
    # The article's first draft: a duplicate key is one's own success.
    bug("a duplicate is success", ("await _looked(look)", "Duplicate.OWN"), test_what_is_said_of_an_insert_is_true),
    # Giving up reports that it was not done.
    bug(
        "giving up is not done", ("NotDone if tried.known is Knowledge.NOT_DONE else Unknown", "NotDone"),
        test_what_is_said_of_an_insert_is_true,
    ),
    # Foreign content is taken for a proof that one's own was never there.
    bug(
        "another's content is not done",
        (
            "is Duplicate.ANOTHERS:\n                return _known(tried)",
            "is Duplicate.ANOTHERS:\n                return NotDone(tried.failure)",
        ),
        test_what_is_said_of_an_insert_is_true,
    ),
)  # fmt: skip


# --- texts and replies --------------------------------------------------------------------------------------------------

START: Final = Instant(0, WALL)
TAKEN: Final = duplicate_key("_id")
OF_DELETES: Final[Mapping[str, tuple[tuple[object, ...], Sent[int]]]] = {
    "answered": ((1,), Done(1, 1)),
    "answered at last": ((NotApplied("no server"), Ambiguous("no reply"), 0), Done(0, 3)),
    "not confirmed, then confirmed": ((NotDurable("no majority"), 0), Done(0, 2)),
    "refused": ((Refused("no"),), NotDone(Refused("no"), 1)),
    "never sent": ((NotApplied("a"), NotApplied("b"), NotApplied("c")), NotDone(NotApplied("c"), 3)),
    "no reply": ((NotApplied("a"), Ambiguous("b"), NotApplied("c")), Unknown(NotApplied("c"), 3)),
    "no reply, then refused": ((Ambiguous("a"), Refused("b")), Unknown(Refused("b"), 2)),
    "never confirmed": ((NotDurable("a"),) * 3, Unknown(NotDurable("a"), 3)),
}
OF_INSERTS: Final[Mapping[str, tuple[tuple[object, ...], Sent[None]]]] = {
    "answered": ((None,), Done(None, 1)),
    "one's own": ((Ambiguous("a"), TAKEN, thing("a")), Done(None, 2)),
    "one's own from an earlier life": ((TAKEN, thing("a")), Done(None, 1)),
    "another's": ((TAKEN, thing("b")), NotDone(TAKEN, 1)),
    "another's by now": ((Ambiguous("a"), TAKEN, thing("b")), Unknown(TAKEN, 2)),
    "another's, gone again": ((TAKEN, None, None), Done(None, 2)),
    "nobody can look": ((Ambiguous("a"), TAKEN, Ambiguous("b"), TAKEN, Ambiguous("c")), Unknown(TAKEN, 3)),
    "nobody can look whose it is": ((TAKEN, Ambiguous("a")) * 3, Unknown(TAKEN, 3)),
    "confirmed by reading": ((NotDurable("a"), thing("a")), Done(None, 1)),
    "taken back by a failover": ((NotDurable("a"), None, None), Done(None, 2)),
    "refused": ((Refused("no"),), NotDone(Refused("no"), 1)),
}
THRICE: Final = Policy(backoff=Fixed(SECOND), attempts_max=3, jitter_ppm=7)


def ended(program: Program[Any], replies: tuple[object, ...]) -> object:
    left, now = list(replies), START
    reply: object = None
    while isinstance(status := resume(program, reply), Asking):
        match status.effect:
            case Now():
                reply = now
            case Sleep(duration, jitter_ppm):
                assert (duration, jitter_ppm) == (SECOND, 7)
                now, reply = now + duration, None
            case _:
                reply = left.pop(0)
    assert isinstance(status, Returned), status
    assert not left
    return status.value


@pytest.mark.parametrize("course", OF_DELETES)
def test_a_delete_ends_with_what_is_known_of_all_attempts(course: str) -> None:
    replies, end = OF_DELETES[course]
    assert ended(send(delete_one(ALL, KEY), Operation.RECOGNISED, THRICE), replies) == end


@pytest.mark.parametrize("course", OF_INSERTS)
def test_an_insert_ends_with_what_is_known_of_all_attempts(course: str) -> None:
    replies, end = OF_INSERTS[course]
    assert ended(insert(insert_one(ALL, thing("a")), lambda: looked("a"), THRICE), replies) == end


def test_nothing_is_sent_when_the_time_of_the_policy_is_over() -> None:
    policy = attrs.evolve(THRICE, attempts_max=9, elapsed_max=2 * SECOND)
    deletes, inserts = [Ambiguous("a")] * 3, [TAKEN, None] * 3
    assert ended(send(delete_one(ALL, KEY), Operation.RECOGNISED, policy), (*deletes,)) == Unknown(Ambiguous("a"), 3)
    assert ended(insert(insert_one(ALL, thing("a")), lambda: looked("a"), policy), (*inserts,)) == NotDone(TAKEN, 3)


@pytest.mark.parametrize("failure", [Ambiguous("a"), NotDurable("a")])
def test_what_would_count_twice_is_not_sent_again(failure: Failure) -> None:
    """Law RS3: nor if it is done without a majority (a real MongoDB counted twice)."""
    blind = update_one(ALL, KEY, Put(MADE_BY, "a"))
    assert ended(send(blind, Operation.BLIND, THRICE), (failure,)) == Unknown(failure, 1)
    assert ended(send(blind, Operation.BLIND, THRICE), (NotApplied("b"), failure)) == Unknown(failure, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: send(7, Operation.READ),  # type: ignore[arg-type]
        lambda: send(delete_one(ALL, KEY), "a read"),  # type: ignore[arg-type]
        lambda: send(delete_one(ALL, KEY), Operation.READ, 3),  # type: ignore[arg-type]
        lambda: insert(insert_one(ALL, thing("a")), None),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], Program[Any]]) -> None:
    with pytest.raises(Misuse):
        ended(wrong(), ())


def test_what_is_said_says_what_to_do() -> None:
    assert str(Done(1)) == "done (attempts: 1)"
    assert str(NotDone(NotApplied("no server"), 2)) == "not done: no server (attempts: 2; send it again)"
    assert "correct what was asked" in str(NotDone(Refused("no")))
    assert "does no harm" in str(Unknown(Ambiguous("no reply")))
    assert RETRIES.attempts_max == 8
