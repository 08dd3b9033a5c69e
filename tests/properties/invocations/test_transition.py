from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from itertools import chain, product, repeat
from typing import Final, TypeAlias, TypeVar, cast, final
from uuid import UUID

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.on_documents import is_read_or_misuse

from tidegate.invocations.checks.laws import transition as laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.checks.specimens.transition import (
    AMBIGUOUS_IS_REFUSED,
    BEGINS,
    FAILS_INSTEAD,
    HISTORY_IN_A_SECOND_WRITE,
    NO_VERSION_IN_FILTER,
    NOT_READ_AGAIN,
    ONLY_THE_LAST_REQUEST_ID,
    OWNER_NOT_CHECKED,
    REQUEST_ID_IGNORED,
    SPECIMENS,
    VERSION_NOT_RAISED,
    bug,
)
from tidegate.invocations.record.record_documents import (
    CHANGED_AT,
    DUE,
    HISTORY,
    OWNER,
    STATUS,
    TIMES,
    VERSION,
    VIEW,
    history,
    viewed,
)
from tidegate.invocations.record.status import (
    Accepted,
    NoRunner,
    NotAllowed,
    NotOwner,
    StatusDefinition,
    StatusRecord,
    StatusTable,
    decide_transition,
)
from tidegate.invocations.record.transition import (
    GaveUp,
    Granted,
    Outdated,
    Transition,
    Unknown,
    transition,
)
from tidegate.model.documents import ID, AllOf, Document, Eq, Foreign, Push, Put, PutServerTime, Remove, frozen
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Effect, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    DeleteOne,
    FindOne,
    FindOneAndUpdate,
    StoreTime,
    UpdateOne,
    find_one,
    insert_one,
    is_key,
)
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.world import Plain, document, perform, world_with

T = TypeVar("T")

RECORDS: Final = "records"
KEY: Final = "x"
AT_ONCE: Final = Pauses(Fixed(0))
TABLE: Final = StatusTable(
    {"free"},
    (
        StatusDefinition("free", {"held", "lent", "gone"}, releases_owner=True),
        StatusDefinition("held", {"free", "lent"}, acquires_owner=True, requires_owner=True),
        StatusDefinition("lent", {"held", "free"}),
        StatusDefinition("gone", final=True, releases_owner=True),
    ),
)
FORGOTTEN: Final = Unknown(2, "the record does not remember that far back")


# --- a store and its replies ------------------------------------------------------------------------------------------


@final
@attrs.define
class Store:
    world: Plain = attrs.field(factory=Plain)
    late: list[Effect[object]] = attrs.field(factory=list)
    asked: list[Effect[object]] = attrs.field(factory=list)

    def do(self, effect: Effect[object]) -> object:
        ((after, reply),) = perform(effect, self.world, "caller")
        assert isinstance(after, Plain)
        self.world = after
        return reply

    @property
    def record(self) -> Document:
        found = self.world.read(document(RECORDS, KEY))
        assert found is not None
        return found


Way: TypeAlias = Callable[[Store, Effect[object]], object]


def answered(store: Store, effect: Effect[object]) -> object:
    return store.do(effect)


def unsent(_: Store, __: Effect[object]) -> object:
    return NotApplied("not sent")


def dropped(_: Store, __: Effect[object]) -> object:
    return Ambiguous("no reply")


def lost_reply(store: Store, effect: Effect[object]) -> object:
    store.do(effect)
    return Ambiguous("no reply")


def late(store: Store, effect: Effect[object]) -> object:
    store.late.append(effect)
    return Ambiguous("no reply")


def not_durable(store: Store, effect: Effect[object]) -> object:
    reply = store.do(effect)
    return reply if isinstance(effect, FindOne) or isinstance(reply, Refused) else NotDurable("no majority yet")


def rolled_back(_: Store, __: Effect[object]) -> object:
    return NotDurable("no majority yet")


def refused(reason: str) -> Way:
    return lambda _, __: Refused(reason)


def after(happened: Callable[[Store], object], way: Way = answered) -> Way:
    def met(store: Store, effect: Effect[object]) -> object:
        happened(store)
        return way(store, effect)

    return met


def arrival(store: Store) -> None:
    store.do(store.late.pop(0))


def deletion(store: Store) -> None:
    store.do(DeleteOne(RECORDS, Eq(ID, KEY)))


def rival(target: str, runner: str | None = None, request: str = "theirs") -> Callable[[Store], None]:
    def made(store: Store) -> None:
        assert isinstance(fed(command(target, runner=runner, request=request).run(), store.do), Granted)

    return made


def rounds(count: int) -> Callable[[Store], None]:
    def made(store: Store) -> None:
        for number in range(count):
            rival("lent" if store.record[STATUS] == "held" else "held", "r1", f"theirs-{number}")(store)

    return made


def command(
    target: str = "held",
    *,
    runner: str | None = "r1",
    request: str = "mine",
    attempts: int = 8,
    table: StatusTable = TABLE,
) -> Transition:
    return Transition(RECORDS, table, KEY, target, runner, request, attempts, pauses=AT_ONCE)


def granted(version: int, status: str = "held") -> Granted:
    return Granted(StatusRecord(status, "r1" if status == "held" else None, version))


def fed(program: Coroutine[Effect[object], object, T], reply: Callable[[Effect[object]], object]) -> T:
    answer: object = None
    try:
        while True:
            effect = program.throw(answer) if isinstance(answer, Failure) else program.send(answer)
            answer = reply(effect)
    except StopIteration as stopped:
        return cast("T", stopped.value)


def run(wanted: Transition, store: Store, *ways: Way) -> object:
    left = chain(ways, repeat(answered))
    met = 0

    def reply(effect: Effect[object]) -> object:
        nonlocal met
        met += 1
        store.asked.append(effect)
        return next(left)(store, effect)

    answer = fed(wanted.run(), reply)
    assert met >= len(ways), "the program ended before it met all ways"
    return answer


def stored(status: str = "free", owner: str | None = None, version: int = 1) -> Store:
    entries = tuple(
        {"version": number, "request": f"before-{number}", "status": status if number == version else "free"}
        for number in range(max(1, version - HISTORY_MAX + 1), version + 1)
    )
    doc = {"_id": KEY, "status": status, "owner": owner, "version": version, "history": entries}
    return Store(world_with({RECORDS: (Document.of(doc),)}))


def kinds(store: Store) -> list[str]:
    return [type(effect).__name__ for effect in store.asked]


# --- granted ----------------------------------------------------------------------------------------------------------


def test_a_transition_is_one_read_and_one_compare_and_set() -> None:
    store = stored("held", "r1", 4)
    entry = Document.of({"version": 5, "request": "mine", "status": "free"})
    unchanged = AllOf((Eq(ID, KEY), Eq(STATUS, "held"), Eq(OWNER, "r1"), Eq(VERSION, 4)))
    changes = (
        Put(STATUS, "free"),
        Put(OWNER, None),
        Put(VERSION, 5),
        PutServerTime(CHANGED_AT),
        PutServerTime(TIMES[5]),
        Remove(DUE),
        Push(HISTORY, entry, last=HISTORY_MAX),
    )

    assert run(command("free"), store) == granted(5, "free")
    assert store.asked == [find_one(RECORDS, Eq(ID, KEY), fields=VIEW), UpdateOne(RECORDS, unchanged, changes)]
    assert viewed(store.record) == StatusRecord("free", None, 5)
    assert history(store.record)[-1] == Change(5, "mine", "free")


def test_a_new_record_is_inserted_at_version_1() -> None:
    store = Store()
    doc = Document.of(
        {
            "_id": KEY,
            "status": "free",
            "owner": None,
            "version": 1,
            "changed_at": Instant(0),
            "at1": Instant(0),
            "history": ({"version": 1, "request": "mine", "status": "free"},),
        }
    )

    assert run(command("free"), store) == granted(1, "free")
    assert store.asked == [find_one(RECORDS, Eq(ID, KEY), fields=VIEW), StoreTime(), insert_one(RECORDS, doc)]
    assert store.record == doc


def test_the_function_is_the_class() -> None:
    one, other = stored(), stored()
    program = transition(RECORDS, TABLE, KEY, "held", runner="r1", request="mine")

    assert fed(program, one.do) == run(command(), other) == granted(2)
    assert one.record == other.record


def test_a_record_remembers_its_last_16_versions() -> None:
    store = stored()
    rounds(39)(store)

    assert [change.version for change in history(store.record)] == list(range(25, 41))


# --- callers that know the record --------------------------------------------------------------------------------------


KNOWN: Final = StatusRecord("free", None, 1)


def test_who_knows_the_record_asks_once() -> None:
    store = stored()
    first = run(attrs.evolve(command(), expected=KNOWN), store)
    assert isinstance(first, Granted)
    then = run(attrs.evolve(command("free", request="next"), expected=first.record), store)

    assert (first, then) == (granted(2), granted(3, "free"))
    assert kinds(store) == ["UpdateOne"] * 2


def test_what_is_known_no_more_is_read_at_once() -> None:
    store = stored()
    rival("held", "r2")(store)
    answer = run(attrs.evolve(command(), expected=KNOWN, attempts=1, pauses=Pauses()), store)

    assert answer == Outdated(KNOWN, StatusRecord("held", "r2", 2))
    assert kinds(store) == ["UpdateOne", "FindOne"]


def test_a_command_that_what_is_known_forbids_asks_for_nothing() -> None:
    store = stored()

    assert isinstance(run(attrs.evolve(command("lent"), expected=KNOWN), store), Granted)
    assert isinstance(run(attrs.evolve(command("gone"), expected=StatusRecord("held", "r1", 9)), store), NotAllowed)
    assert kinds(store) == ["UpdateOne"]


@pytest.mark.parametrize("others", [0, 1, HISTORY_MAX - 1])
@pytest.mark.parametrize("way", [lost_reply, not_durable])
def test_a_lost_success_of_who_knows_the_record_is_recognised(way: Way, others: int) -> None:
    """Law TR4: its own version is in the history."""
    store = stored()

    assert run(attrs.evolve(command(), expected=KNOWN), store, way, after(rounds(others))) == granted(2)
    assert kinds(store) == ["UpdateOne", "FindOne"]


@pytest.mark.parametrize("way", [unsent, dropped])
def test_what_who_knows_the_record_has_not_written_is_written_again(way: Way) -> None:
    store = stored()

    assert run(attrs.evolve(command(), expected=KNOWN), store, way) == granted(2)
    assert kinds(store) == ["UpdateOne", "FindOne", "UpdateOne"]


# --- denied -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "wanted", "answer"),
    [
        (stored("held", "r1"), command("gone"), NotAllowed("held", "gone", frozenset({"free", "lent"}))),
        (stored("held", "r1"), command("nowhere"), NotAllowed("held", "nowhere", frozenset({"free", "lent"}))),
        (stored("gone"), command("free"), NotAllowed("gone", "free", frozenset())),
        (Store(), command("held"), NotAllowed(None, "held", frozenset({"free"}))),
        (stored("held", "r2"), command("free"), NotOwner("held", "free", "r2", "r1")),
        (stored("held", "r2"), command("free", runner=None), NotOwner("held", "free", "r2", None)),
        (stored("free"), command("held", runner=None), NoRunner("free", "held")),
    ],
)
def test_a_denial_has_its_reason_and_writes_nothing(store: Store, wanted: Transition, answer: object) -> None:
    before = store.world

    assert run(wanted, store) == answer
    assert kinds(store) == ["FindOne"]
    assert store.world == before


# --- a reply is lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", range(HISTORY_MAX))
@pytest.mark.parametrize("way", [lost_reply, not_durable])
def test_a_lost_success_is_recognised_while_it_is_remembered(way: Way, others: int) -> None:
    """Law TR4: the record remembers 16 versions."""
    store = stored()

    assert run(command(), store, answered, way, after(rounds(others))) == granted(2)
    assert store.record[VERSION] == 2 + others
    assert kinds(store) == ["FindOne", "UpdateOne", "FindOne"]


@pytest.mark.parametrize("others", range(HISTORY_MAX))
@pytest.mark.parametrize("way", [lost_reply, not_durable])
def test_a_lost_insert_is_recognised_while_it_is_remembered(way: Way, others: int) -> None:
    """Law TR4, for a new record."""
    assert run(command("free"), Store(), answered, answered, way, after(rounds(others))) == granted(1, "free")


@pytest.mark.parametrize("others", [HISTORY_MAX, HISTORY_MAX + 1, 3 * HISTORY_MAX])
def test_a_success_is_unknown_once_it_is_forgotten(others: int) -> None:
    """Law TR5: from 16 later versions on, the program cannot know, and it writes nothing again."""
    store = stored()

    assert run(command(), store, answered, lost_reply, after(rounds(others))) == FORGOTTEN
    assert kinds(store) == ["FindOne", "UpdateOne", "FindOne"]


@pytest.mark.parametrize("others", range(1, HISTORY_MAX + 1))
def test_a_lost_request_is_decided_anew_while_it_is_known_that_another_won(others: int) -> None:
    """Law TR4: another id has the version of our request, so our request can no longer apply."""
    store = stored()
    answer = run(command(), store, answered, dropped, after(rounds(others)))

    is_held = others % 2 == 1
    assert answer == (NotAllowed("held", "held", frozenset({"free", "lent"})) if is_held else granted(2 + others))


@pytest.mark.parametrize("ways", [(unsent,), (after(rival("free", request="theirs too")),)])
def test_once_it_is_known_that_another_won_there_is_no_more_doubt(ways: tuple[Way, ...]) -> None:
    """Law TR5: later failures give GaveUp, not Unknown."""
    overtaken = after(rival("lent"))
    answer = run(command(attempts=2), stored(), answered, dropped, overtaken, *ways)

    assert isinstance(answer, GaveUp)
    assert answer.expected == StatusRecord("lent", None, 2)


def test_once_it_is_known_that_another_won_a_refusal_is_raised() -> None:
    """Law TR4: no other request is in doubt by then."""
    with pytest.raises(Refused):
        run(command(), stored(), answered, dropped, after(rival("lent")), refused("not authorised"))


@pytest.mark.parametrize("others", [HISTORY_MAX + 1, HISTORY_MAX + 2])
def test_a_lost_request_is_unknown_once_it_is_forgotten(others: int) -> None:
    """Law TR5: one version later than for a success, since one of theirs has our version."""
    assert run(command(), stored(), answered, dropped, after(rounds(others))) == FORGOTTEN


@pytest.mark.parametrize("way", [dropped, late, rolled_back])
@pytest.mark.parametrize("attempts", [1, 3])
def test_after_the_last_attempt_no_reply_is_unknown(way: Way, attempts: int) -> None:
    """Law TR5: it may still arrive, so GaveUp would be wrong."""
    store = stored()
    answer = run(command(attempts=attempts), store, *[answered, dropped] * (attempts - 1), answered, way)

    assert answer == Unknown(attempts, "no reply to the last attempt")
    assert kinds(store) == [*["FindOne", "UpdateOne"] * attempts, "FindOne"]


@pytest.mark.parametrize("way", [lost_reply, not_durable])
@pytest.mark.parametrize("attempts", [1, 3])
def test_one_last_look_tells_what_became_of_the_last_attempt(way: Way, attempts: int) -> None:
    """Law TR5: it was done. Without that read, or without its reply, the answer is Unknown."""
    ways = (*[answered, dropped] * (attempts - 1), answered, way)

    assert run(command(attempts=attempts), stored(), *ways) == granted(2)
    for blind in (unsent, dropped):
        unknown = Unknown(attempts, "no reply to the last attempt")
        assert run(command(attempts=attempts), stored(), *ways, blind) == unknown


@pytest.mark.parametrize("way", [dropped, lost_reply])
def test_one_last_look_that_is_refused_or_finds_it_forgotten_is_unknown(way: Way) -> None:
    """Law TR5: the final read counts as no attempt."""
    gone = after(rounds(HISTORY_MAX + 1))

    assert run(command(attempts=1), stored(), answered, way, refused("no")) == Unknown(1, "no")
    assert run(command(attempts=1), stored(), answered, way, gone) == attrs.evolve(FORGOTTEN, attempts=1)


@pytest.mark.parametrize("ways", [(unsent,), (dropped,), (answered, unsent)])
def test_what_may_be_under_way_stays_unknown_when_later_attempts_fail_for_certain(ways: tuple[Way, ...]) -> None:
    """Law TR5: neither an unsent second request nor a read without a reply settles the first."""
    answer = run(command(attempts=2), stored(), answered, late, *ways)

    assert answer == Unknown(2, "no reply to the last attempt")


@pytest.mark.parametrize("entries", [(), ({"version": 1, "request": "before-1", "status": "free"},)])
def test_a_history_with_gaps_remembers_nothing(entries: tuple[object, ...]) -> None:
    """Law TR5: a lost reply is Unknown, never GaveUp."""
    bare = Document.of({"_id": KEY, "status": "free", "owner": None, "version": 3, "history": entries})

    def rewrite(store: Store) -> None:
        store.world = world_with({RECORDS: (bare,)})

    assert run(command(), stored(), answered, lost_reply, after(rewrite)) == FORGOTTEN


def test_a_record_without_a_history_begins_one() -> None:
    bare = Document.of({"_id": KEY, "status": "free", "owner": None, "version": 3})
    store = Store(world_with({RECORDS: (bare,)}))

    assert run(command(), store, answered, lost_reply) == granted(4)
    assert history(store.record) == (Change(4, "mine", "held"),)


BARE: Final = Document.of({"_id": KEY, "status": "free"})


@pytest.mark.parametrize("given", [{}, {"owner": None, "version": None}, {"version": 0}], ids=str)
@pytest.mark.parametrize("way", [answered, lost_reply, dropped, unsent, not_durable])
def test_a_record_that_was_there_before_is_adopted(given: dict[str, object], way: Way) -> None:
    store = Store(world_with({RECORDS: (Document.of({**dict(BARE.items), **given}),)}))

    assert run(command(), store, answered, way) == granted(1)
    assert history(store.record) == (Change(1, "mine", "held"),)
    assert run(command("free", request="next"), store) == granted(2, "free")


def test_one_of_two_adopts_a_record() -> None:
    store = Store(world_with({RECORDS: (BARE,)}))
    rivals = after(lambda each: (rival("lent", request="a")(each), rival("free", request="b")(each)))

    assert run(command(), store, answered, rivals) == granted(3)


@pytest.mark.parametrize(
    "key", [7, Foreign("objectId", b"object id 12"), UUID(int=7), Document.of({"a": 1}), Instant(0)], ids=repr
)
def test_a_record_has_an_id_of_any_type(key: object) -> None:
    found = run(attrs.evolve(command(), key=key), Store(), lambda *_: BARE, lambda *_: 1)
    assert found == granted(1)
    if is_key(frozen(key)):
        assert run(attrs.evolve(command("free"), key=key), Store()) == granted(1, "free")
    else:
        with pytest.raises(Misuse, match="an ObjectId or a UUID"):
            run(attrs.evolve(command("free"), key=key), Store())


# --- a request is late ------------------------------------------------------------------------------------------------


def test_a_late_request_that_arrives_before_the_read_is_recognised() -> None:
    """Law TR3: under its own id."""
    store = stored()

    assert run(command(), store, answered, late, after(arrival)) == granted(2)
    assert kinds(store) == ["FindOne", "UpdateOne", "FindOne"]


def test_a_late_request_that_arrives_between_read_and_write_counts_once() -> None:
    """Law TR3: the repeated write has the same id and version."""
    store = stored()

    assert run(command(), store, answered, late, answered, after(arrival)) == granted(2)
    assert [change.request_id for change in history(store.record)] == ["before-1", "mine"]
    assert kinds(store) == ["FindOne", "UpdateOne", "FindOne", "UpdateOne", "FindOne"]


@pytest.mark.parametrize(("begin", "target"), [(stored, "held"), (Store, "free")])
def test_a_late_request_that_arrives_after_its_repetition_does_nothing(begin: Callable[[], Store], target: str) -> None:
    """Law TR3: the version has grown, or the id is taken."""
    store = begin()
    answer = run(command(target), store, answered, late)
    record = store.record
    arrival(store)

    assert answer == granted(record[VERSION], target)
    assert store.record == record


def test_a_late_request_that_another_overtook_does_nothing() -> None:
    """Law TR4: its late arrival leaves the denial true."""
    store = stored()
    answer = run(command(), store, answered, late, after(rival("held", "r2")))
    record = store.record
    arrival(store)

    assert answer == NotAllowed("held", "held", frozenset({"free", "lent"}))
    assert store.record == record


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_a_conflict_is_decided_anew() -> None:
    store = stored("lent")

    assert run(command(), store, answered, after(rival("free"))) == granted(3)
    assert kinds(store) == ["FindOne", "UpdateOne"] * 2


def test_a_conflict_that_makes_the_wish_illegal_is_a_denial() -> None:
    """Law TR4: the faster command made the wanted change."""
    answer = run(command(), stored(), answered, after(rival("held", "r2")))

    assert answer == NotAllowed("held", "held", frozenset({"free", "lent"}))


def test_a_rival_that_creates_the_record_first_is_a_conflict() -> None:
    store = Store()
    answer = run(command("free"), store, answered, answered, after(rival("free")))

    assert answer == NotAllowed("free", "free", frozenset({"held", "lent", "gone"}))
    assert kinds(store) == ["FindOne", "StoreTime", "InsertOne", "FindOne"]


def test_a_new_record_whose_time_is_not_told_is_not_sent() -> None:
    """Law TR4: a time request changes nothing, so GaveUp is certain."""
    assert run(command("free"), Store(), answered, dropped) == granted(1, "free")
    assert run(command("free", attempts=1), Store(), answered, dropped) == GaveUp(1, None, None)


@pytest.mark.parametrize("attempts", [1, 2, 8])
def test_after_so_many_conflicts_it_is_lost(attempts: int) -> None:
    """Law TR4: GaveUp has the expected and the actual record."""

    def to_and_fro(store: Store) -> None:
        rival("lent" if store.record[STATUS] == "free" else "free", request=f"theirs-{store.record[VERSION]}")(store)

    store = stored()
    answer = run(command(attempts=attempts), store, *[answered, after(to_and_fro)] * attempts)

    expected = StatusRecord("free" if attempts % 2 else "lent", None, attempts)
    assert answer == GaveUp(attempts, expected, viewed(store.record))
    assert "mine" not in [change.request_id for change in history(store.record)]


def test_an_answer_says_what_was_expected_and_what_is_there_instead() -> None:
    """Pynenc's error has the last read record in all three places."""
    expected, actual = StatusRecord("held", "r1", 6), StatusRecord("lent", "r2", 7)

    assert str(GaveUp(8, expected, actual)) == (
        "gave up after attempt 8: expected 'held' of 'r1' at version 6, actual 'lent' of 'r2' at version 7"
    )
    assert str(GaveUp(3, None, None)) == "gave up after attempt 3: expected nothing, actual nothing"
    assert str(granted(2)) == "granted: version 2"
    assert str(Outdated(expected, None)) == f"outdated: expected {expected}, actual nothing"
    assert str(FORGOTTEN) == "unknown after attempt 2: the record does not remember that far back"


# --- refused, not applied, not durable, deleted -----------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "target"), [(stored, "held"), (Store, "free")])
@pytest.mark.parametrize("reason", ["not authorised", f"{DUPLICATE_KEY} of the index on email"])
def test_any_other_refusal_is_raised(begin: Callable[[], Store], target: str, reason: str) -> None:
    for ways in ((refused(reason),), (answered, refused(reason))):
        with pytest.raises(Refused) as caught:
            run(command(target), begin(), *ways)

        assert caught.value == Refused(reason)


@pytest.mark.parametrize(
    "ways",
    [
        (dropped, refused("not authorised")),
        (lost_reply, refused("not authorised")),
        (late, refused("not authorised")),
        (late, answered, refused("not authorised")),
    ],
)
def test_a_refusal_says_nothing_of_a_request_before_it(ways: tuple[Way, ...]) -> None:
    """Law TR4: the earlier request may be done, or may still arrive."""
    assert run(command(), stored(), answered, *ways) == Unknown(2, "not authorised")


@pytest.mark.parametrize(
    "ways", [(unsent,), (dropped,), (answered, unsent), (answered, unsent, unsent, answered, unsent)]
)
def test_what_was_not_applied_is_asked_for_again(ways: tuple[Way, ...]) -> None:
    store = stored()

    assert run(command(), store, *ways) == granted(2)
    assert store.record[VERSION] == 2


@pytest.mark.parametrize("way", [unsent, dropped])
def test_without_a_single_read_it_is_lost(way: Way) -> None:
    answer = fed(command(attempts=3).run(), lambda effect: way(stored(), effect))

    assert answer == GaveUp(3, None, None)


def test_what_was_never_applied_is_lost() -> None:
    """Law TR4."""
    answer = run(command(attempts=3), stored(), *[answered, unsent] * 3)

    assert answer == GaveUp(3, StatusRecord("free", None, 1), StatusRecord("free", None, 1))


def test_what_was_rolled_back_is_written_again() -> None:
    """The node that did it has lost it."""
    store = stored()

    assert run(command(), store, answered, rolled_back) == granted(2)
    assert kinds(store) == ["FindOne", "UpdateOne"] * 2


@pytest.mark.parametrize(
    ("target", "answer"), [("free", granted(1, "free")), ("held", NotAllowed(None, "held", frozenset({"free"})))]
)
def test_a_record_that_was_deleted_meanwhile_is_decided_on_as_a_new_one(target: str, answer: object) -> None:
    assert run(command(target), stored("lent"), answered, after(deletion)) == answer


@pytest.mark.parametrize("way", [dropped, lost_reply, late])
def test_a_record_that_was_deleted_after_a_lost_reply_is_unknown(way: Way) -> None:
    """Law TR5: its history is gone, too."""
    assert run(command(), stored(), answered, way, after(deletion)) == FORGOTTEN


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *product(("request", "target"), ["", None, 1, b"x", ("x",)]),
        *product(("key",), ["", None, ("x",), Foreign("regex", b"x\0\0")]),
    ],
)
def test_a_wish_needs_names(name: str, bad: object) -> None:
    with pytest.raises(Misuse, match=r"must be|cannot|name of"):
        attrs.evolve(command(), **{name: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["", 1, b"x", ("x",)])
def test_a_runner_is_named_or_none(bad: str) -> None:
    with pytest.raises(Misuse, match="the name of a runner must be"):
        command(runner=bad)

    assert command(runner=None).runner is None


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1"])
def test_a_wish_has_at_least_one_attempt(bad: int) -> None:
    with pytest.raises(Misuse, match="number of attempts"):
        command(attempts=bad)


@pytest.mark.parametrize("bad", ["", None, 1, "a..b", "$a", "x" * 1_000])
def test_records_are_in_a_collection(bad: str) -> None:
    with pytest.raises(Misuse, match="name of a collection"):
        Transition(bad, TABLE, KEY, "held", "r1", "mine")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"status": 7}, "the name of a status must be"),
        ({"status": ...}, "has no 'status'"),
        ({"owner": 7}, "the name of a runner must be"),
        ({"version": 2.0}, r"the version of a record must be an integer from 0 on, got 2\.0"),
        ({"history": 7}, "not a collection"),
        ({"history": (7,)}, "a version in the history of a record must be a Document, got int 7"),
        ({"history": ({"version": 2, "status": "held"},)}, "has no 'request'"),
        ({"history": ({"version": 2, "status": "held", "request": None},)}, "the name of a request must be"),
    ],
    ids=str,
)
def test_a_document_that_is_not_a_record_is_refused(changed: dict[str, object], complaint: str) -> None:
    good: dict[str, object] = {"_id": KEY, "status": "held", "owner": "r1", "version": 2, "history": ()}
    broken = Document.of({name: value for name, value in (good | changed).items() if value is not ...})

    def replaced(store: Store) -> None:
        deletion(store)
        store.do(insert_one(RECORDS, broken))

    ways = (answered, dropped) if "history" in changed else ()
    with pytest.raises(Misuse, match=complaint):
        run(command(), stored(), *ways, after(replaced))


def test_a_record_without_an_owner_has_none() -> None:
    store = Store(world_with({RECORDS: (Document.of({"_id": KEY, "status": "free", "version": 1}),)}))

    assert run(command(), store) == granted(2)
    assert viewed(store.record) == StatusRecord("held", "r1", 2)


def test_the_function_refuses_bad_input_before_it_asks_for_anything() -> None:
    program = transition(RECORDS, TABLE, "", "held", runner="r1", request="mine")

    with pytest.raises(Misuse, match="cannot name a record"):
        fed(program, Store().do)


# --- any schedule -----------------------------------------------------------------------------------------------------

ENOUGH: Final = 32
"""More attempts than possible conflicts and faults."""


@final
@attrs.frozen
class Schedule:
    commands: tuple[tuple[tuple[str, str | None], ...], ...]
    moves: tuple[tuple[int, Way], ...]
    attempts: int = ENOUGH


@st.composite
def schedules(draw: st.DrawFn, faults: tuple[Way, ...]) -> Schedule:
    """No more versions than a record remembers."""
    a_command = st.tuples(
        st.sampled_from(["held", "lent", "free", "held", "lent", "free", "gone"]),
        st.sampled_from(["r1", "r1", "r1", "r2", None]),
    )
    commands = draw(st.lists(st.lists(a_command, min_size=2, max_size=4).map(tuple), min_size=2, max_size=4))
    who = st.integers(0, len(commands))  # one more than there are callers: the network
    moves = draw(st.lists(st.tuples(who, st.sampled_from([answered] * 8 + [*faults])), min_size=10, max_size=40))
    struck = [number for number, (_, way) in enumerate(moves) if way is not answered]
    kept = tuple((caller, answered if number in struck[4:] else way) for number, (caller, way) in enumerate(moves))
    return Schedule(tuple(commands), kept, draw(st.sampled_from([1, 2, ENOUGH, ENOUGH])))


OVERTAKEN: Final = Schedule(
    ((("lent", "r2"),), (("held", "r1"),)),
    ((0, answered), (0, lost_reply), (1, answered), (1, answered), (0, answered)),
)
"""A success without a reply, then another version that would deny the same command."""


@final
@attrs.frozen
class Play:
    seen: tuple[Version, ...]
    answers: tuple[Answered, ...]
    attempts: int
    asked: Mapping[str, str]


@final
@attrs.define
class Caller:
    commands: list[Transition]
    answers: list[Answered] = attrs.field(factory=list)
    program: Coroutine[Effect[object], object, object] | None = None
    effect: Effect[object] | None = None

    def go_on(self, answer: object) -> None:
        while self.commands:
            if self.program is None:
                self.program, answer = self.commands[0].run(), None
            try:
                self.effect = self.program.throw(answer) if isinstance(answer, Failure) else self.program.send(answer)
            except StopIteration as stopped:
                self.answers.append(Answered(self.commands.pop(0).request, stopped.value))
                self.program = self.effect = None
            else:
                return


def played(made: type[Transition], schedule: Schedule, store: Store) -> Play:
    callers = [
        Caller(
            [
                made(RECORDS, TABLE, KEY, *wanted, f"{who}.{nth}", schedule.attempts, pauses=AT_ONCE)
                for nth, wanted in enumerate(commands)
            ],
        )
        for who, commands in enumerate(schedule.commands)
    ]
    runners = {each.request: each.runner for caller in callers for each in caller.commands}
    asked = {each.request: each.target for caller in callers for each in caller.commands}
    seen: list[Version] = []
    senders: list[str] = []

    def see(before: Document | None, request: str) -> None:
        doc = store.world.read(document(RECORDS, KEY))
        record = viewed(doc)
        if doc is None or record is None or record == viewed(before):
            return
        newest = history(doc)[-1:]
        recorded = newest == (Change(record.version, request, record.status),)
        seen.append(Version(record, request if recorded else "", runners.get(request)))

    def move(caller: Caller, way: Way) -> None:
        assert caller.effect is not None
        before, request = store.world.read(document(RECORDS, KEY)), caller.commands[0].request
        answer = way(store, caller.effect)
        senders.extend([request] * (len(store.late) - len(senders)))
        see(before, request)
        caller.go_on(answer)

    def deliver() -> None:
        before = store.world.read(document(RECORDS, KEY))
        arrival(store)
        see(before, senders.pop(0))

    see(None, "before-1")
    for caller in callers:
        caller.go_on(None)
    for number, way in schedule.moves:
        if number < len(callers) and callers[number].effect is not None:
            move(callers[number], way)
        elif number == len(callers) and store.late:
            deliver()
    while busy := [caller for caller in callers if caller.effect is not None]:
        move(busy[0], answered)
    while store.late:
        deliver()
    answers = tuple(answer for caller in callers for answer in caller.answers)
    return Play(tuple(seen), answers, schedule.attempts, asked)


def is_as_asked(play: Play) -> bool:
    made = ((play.asked[each.request], each.record.status) for each in play.seen if each.request in play.asked)
    return laws.requests_make_what_they_are_for(made)


def begins_at_1(play: Play) -> bool:
    return not play.seen or play.seen[0].record.version == 1


def begins_legally(play: Play) -> bool:
    if not play.seen:
        return True
    record, runner = play.seen[0].record, play.seen[0].runner
    return decide_transition(TABLE, None, record.status, runner) == Accepted(record.status, record.owner, 1)


LAWS: Final[dict[str, Callable[[Play], bool]]] = {
    "TR1": lambda play: begins_at_1(play) and laws.versions_are_consecutive(play.seen),
    "TR2": lambda play: begins_legally(play) and laws.changes_are_legal(TABLE, play.seen),
    "TR3": lambda play: laws.requests_count_once([each for each in play.seen if each.request]),
    "TR4": lambda play: laws.answers_are_true(play.seen, play.answers),
    "TR5": lambda play: play.attempts < ENOUGH or laws.nothing_is_unknown(play.answers),
    "TR6": lambda play: laws.versions_are_recorded(play.seen),
    "TR7": is_as_asked,
}


def check_laws(
    made: type[Transition],
    judged: Collection[str] = LAWS,
    *,
    begin: Callable[[], Store] = stored,
    faults: tuple[Way, ...] = (unsent, dropped, lost_reply, late, not_durable),
    how: settings | None = None,
) -> None:
    @(how or settings(max_examples=300))
    @given(schedules(faults))
    @example(OVERTAKEN)
    def holds(schedule: Schedule) -> None:
        play = played(made, schedule, begin())
        assert [law for law in judged if not LAWS[law](play)] == [], play

    holds()


@pytest.mark.parametrize("begin", [stored, Store])
def test_whatever_the_schedule_all_laws_hold(begin: Callable[[], Store]) -> None:
    """Laws TR1, TR2, TR3, TR4, TR5, TR6 and TR7, for an existing and for a new record."""
    check_laws(Transition, begin=begin)


def test_with_few_attempts_unknown_is_said_only_where_nobody_can_tell() -> None:
    """Laws TR4 and TR5."""

    @given(st.integers(1, 3), st.lists(st.sampled_from([answered, unsent, dropped, lost_reply, late, not_durable])))
    def holds(attempts: int, ways: list[Way]) -> None:
        store, left, doubted = stored(), iter(ways), 0

        def reply(effect: Effect[object]) -> object:
            nonlocal doubted
            answer = next(left, answered)(store, effect)
            doubted += isinstance(effect, (FindOneAndUpdate, UpdateOne)) and isinstance(answer, (Ambiguous, NotDurable))
            return answer

        answer = fed(command(attempts=attempts).run(), reply)
        is_made = "mine" in [change.request_id for change in history(store.record)]

        match answer:
            case Granted():
                assert is_made
            case GaveUp():
                assert not is_made
                assert not doubted
            case _:
                assert isinstance(answer, Unknown)
                assert doubted

    holds()


@pytest.mark.parametrize("read", [viewed, history])
def test_a_record_that_another_has_spoiled_is_read_or_misuse(read: Callable[[Document], object]) -> None:
    made = {"version": 1, "request": "r", "status": "running"}
    record = {"_id": "x", "status": "running", "owner": "a", "version": 1, "history": (made,)}
    assert is_read_or_misuse(read, Document.of(record))


# --- planted bugs -----------------------------------------------------------------------------------------------------


NEVER_SURE: Final = bug(("self._outcome(record, sent.version - 1)", "Forgotten()"))
"""Planted bug: a lost reply gives Unknown, although the record could tell."""


GIVING_UP_FREES: Final = bug((BEGINS, BEGINS + FAILS_INSTEAD), SUCCESS="held", FAILED="free")
"""The specimen `giving_up_is_failure` among these statuses."""

"""A counterexample to a specimen need not be a small one."""
BREAKS: Final = [
    (NO_VERSION_IN_FILTER, "TR1"),
    (VERSION_NOT_RAISED, "TR1"),
    (NOT_READ_AGAIN, "TR1"),
    (NOT_READ_AGAIN, "TR2"),
    (OWNER_NOT_CHECKED, "TR2"),
    (REQUEST_ID_IGNORED, "TR3"),
    (REQUEST_ID_IGNORED, "TR4"),
    (ONLY_THE_LAST_REQUEST_ID, "TR4"),
    (AMBIGUOUS_IS_REFUSED, "TR4"),
    (NEVER_SURE, "TR5"),
    (HISTORY_IN_A_SECOND_WRITE, "TR6"),
    (GIVING_UP_FREES, "TR7"),
]


@pytest.mark.parametrize(("planted", "law"), BREAKS)
def test_a_planted_bug_breaks_the_law(planted: Callable[[], type[Transition]], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_laws(planted(), judged=[law], faults=(dropped, lost_reply, late), how=settings())


def test_every_specimen_and_every_law_is_among_them() -> None:
    """The test catches every shipped bug without the simulator."""
    shipped = {each.name for each in SPECIMENS if each.name.count(".") == 1}  # the others are the same bugs
    shipped -= {"transition.tries_again_at_once"}  # visible only with a clock
    assert len({planted for planted, _ in BREAKS} - {NEVER_SURE}) == len(shipped)
    assert set(LAWS) == {law for _, law in BREAKS}
