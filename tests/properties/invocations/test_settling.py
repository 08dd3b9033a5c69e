"""Bulk transitions; the scenario `transition.bulk` explores every interleaving and fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast, final

import attrs
import pytest
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.queue.bulk_transition import RecordMove, Settling, settle
from tidegate.invocations.record.record_documents import RECORD, viewed
from tidegate.invocations.record.status import NotAllowed, StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.record.transition import GaveUp, Granted, Outdated, Unknown
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Program, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.history import HISTORY_MAX
from tidegate.model.instants import SECOND
from tidegate.model.operations import UPDATES_MAX, BulkUpdate, DeleteOne, FindAll
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.world import Plain, contents, perform, world_with

RECORDS: Final = "records"
TABLE: Final = StatusTable(
    {"free"}, (StatusDefinition("free", {"held"}), StatusDefinition("held", {"free"}, acquires_owner=True))
)
FREE: Final = StatusRecord("free", None, 1)
HELD: Final = StatusRecord("held", "r", 2)
FORGOTTEN: Final = "the record does not remember that far back"


def stored(*keys: str) -> Plain:
    made = {"status": "free", "owner": None, "version": 1}
    history = ({"version": 1, "request": "made", "status": "free"},)
    return world_with({RECORDS: tuple(Document.of({"_id": key, **made, "history": history}) for key in keys)})


def move(key: str, expected: StatusRecord = FREE, target: str = "held", request: str = "mine") -> RecordMove:
    return RecordMove(key, expected, target, f"{request}.{key}")


def command(*moves: RecordMove, attempts: int = 8) -> Settling:
    return Settling(RECORDS, TABLE, moves, "r", attempts, pauses=Pauses(Fixed(0)))


T = TypeVar("T")


@final
class Store:
    def __init__(self, world: Plain) -> None:
        self.world = world
        self.asked: list[Effect[object]] = []

    def do(self, effect: Effect[object]) -> object:
        ((after, reply),) = perform(effect, self.world, "caller")
        self.world = cast("Plain", after)
        return reply

    def run(self, program: Program[T], *ways: Way) -> T:
        answer: object = None
        while True:
            try:
                effect = program.throw(answer) if isinstance(answer, Failure) else program.send(answer)
            except StopIteration as stopped:
                assert len(self.asked) >= len(ways), "the program ended before it met all ways"
                return cast("T", stopped.value)
            self.asked.append(effect)
            met = len(self.asked) - 1
            answer = ways[met](self, effect) if met < len(ways) else self.do(effect)

    @property
    def kinds(self) -> list[type[object]]:
        return [type(each) for each in self.asked]


Way = Callable[[Store, Effect[object]], object]


def answered(store: Store, effect: Effect[object]) -> object:
    return store.do(effect)


def fails(failure: Failure) -> Way:
    return lambda _, __: failure.fresh()


def lost_reply(store: Store, effect: Effect[object]) -> object:
    store.do(effect)
    return Ambiguous("no reply")


def partly(count: int) -> Way:
    def met(store: Store, effect: Effect[object]) -> object:
        assert isinstance(effect, BulkUpdate)
        for update in effect.updates[:count]:
            store.do(update)
        return Ambiguous("no reply")

    return met


DROPPED: Final = fails(Ambiguous("no reply"))
UNSENT: Final = fails(NotApplied("not sent"))


def test_one_request_is_enough_where_all_match() -> None:
    """Law TB2."""
    store = Store(stored("a", "b", "c"))
    moves = tuple(map(move, "abc"))

    assert store.run(command(*moves).run()) == (Granted(HELD),) * 3
    assert store.kinds == [BulkUpdate]
    assert [viewed(each) for each in contents(store.world, RECORDS)] == [HELD] * 3


def test_one_look_tells_of_all_where_fewer_match() -> None:
    """Law TB2: the history names the faster command."""
    store = Store(stored("a", "b", "c"))
    store.run(command(move("b", request="theirs")).run())
    store.asked.clear()
    denied = move("d", HELD, "held")
    answers = store.run(command(move("c"), denied, move("b"), move("a")).run())

    assert answers == (
        Granted(HELD),
        NotAllowed("held", "held", frozenset({"free"})),
        Outdated(FREE, HELD),
        Granted(HELD),
    )
    assert store.kinds == [BulkUpdate, FindAll]
    assert cast("FindAll", store.asked[1]).fields == RECORD


def test_attempts_are_apart() -> None:
    """As in a transition (TR8)."""
    store = Store(stored("a"))
    wanted = attrs.evolve(command(move("a")), pauses=Pauses(Fixed(SECOND)))

    assert store.run(wanted.run(), UNSENT, answered, DROPPED, answered, answered) == (Granted(HELD),)
    assert store.kinds == [BulkUpdate, Sleep, BulkUpdate, FindAll, Sleep, BulkUpdate]


@pytest.mark.parametrize(
    "ways",
    [
        (lost_reply,),
        (DROPPED,),
        (partly(1),),
        (partly(2), DROPPED, partly(1)),
        (UNSENT, fails(NotDurable("no majority yet"))),
        (lost_reply, DROPPED, lost_reply),
        (lost_reply, fails(NotApplied("not sent"))),
    ],
)
def test_whatever_becomes_of_requests_each_is_granted_once(ways: tuple[Way, ...]) -> None:
    """Law TB1: a repeated request has the same id and version, so it cannot count twice."""
    store = Store(stored("a", "b", "c"))

    assert store.run(command(*map(move, "abc")).run(), *ways) == (Granted(HELD),) * 3
    assert [viewed(each) for each in contents(store.world, RECORDS)] == [HELD] * 3


def test_what_was_never_sent_is_given_up_and_what_may_come_is_unknown() -> None:
    """Law TB1."""
    wanted = command(move("a"), attempts=2)

    assert Store(stored("a")).run(wanted.run(), UNSENT, UNSENT) == (GaveUp(2, FREE, None),)
    lost = (Unknown(2, "no reply to the last attempt"),)
    assert Store(stored("a")).run(wanted.run(), DROPPED, answered, DROPPED) == lost
    assert Store(stored("a")).run(wanted.run(), UNSENT, lost_reply, DROPPED) == lost


def test_a_refusal_is_passed_on_unless_a_request_may_have_been_done() -> None:
    """Law TB1: a refusal does not settle an earlier request."""
    no = fails(Refused("not authorised"))
    with pytest.raises(Refused):
        Store(stored("a")).run(command(move("a")).run(), no)
    assert Store(stored("a")).run(command(move("a")).run(), DROPPED, answered, no) == (Unknown(2, "not authorised"),)
    assert Store(stored("a")).run(command(move("a")).run(), DROPPED, no) == (Unknown(1, "not authorised"),)


def test_beyond_what_a_record_remembers_nobody_knows() -> None:
    """Law TB1."""
    store = Store(stored("a", "b", "c"))
    at = FREE
    for number in range(HISTORY_MAX + 1):
        (answer,) = store.run(command(move("a", at, "free" if at.status == "held" else "held", f"{number}")).run())
        assert isinstance(answer, Granted)
        at = answer.record
    store.do(DeleteOne(RECORDS, Eq(ID, "b")))
    other = StatusRecord("free", "somebody", 1)
    answers = store.run(command(move("a"), move("b"), move("c", other)).run())

    assert answers == (Unknown(1, FORGOTTEN), Unknown(1, FORGOTTEN), Outdated(other, FREE))


def test_the_function_is_the_class() -> None:
    one, other = Store(stored("a")), Store(stored("a"))

    assert one.run(settle(RECORDS, TABLE, (move("a"),), runner="r")) == other.run(command(move("a")).run())
    assert one.asked == other.asked


@pytest.mark.parametrize(
    "moves", [(), (move("a"), move("a", request="other")), tuple(map(move, map(str, range(UPDATES_MAX + 1))))]
)
def test_moves_are_of_different_records_and_not_too_many(moves: tuple[RecordMove, ...]) -> None:
    with pytest.raises(Misuse):
        command(*moves)
    assert attrs.evolve(command(move("a")), moves=tuple(map(move, "ab"))).moves[1].key == "b"


@OF_DESIGNS
def test_every_fault_strikes_where_it_is_explored() -> None:
    """Law TB1; `make thorough` explores two."""
    report = report_on("transition.bulk")

    assert report.ok
    assert {"partly_done", "late", "lost_reply", "dropped"} <= {*report.faults}
