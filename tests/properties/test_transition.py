from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import chain, repeat
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tidegate.documents import ID, AllOf, Document, Eq, Push, Put, PutServerTime
from tidegate.effects import DUPLICATE_KEY, Ambiguous, Effect, Failure, NotApplied, NotDurable, Refused
from tidegate.errors import Misuse
from tidegate.laws import transition as laws
from tidegate.laws.transition import Answered, Version
from tidegate.operations import DeleteOne, FindOne, FindOneAndUpdate, InsertOne, find_one, insert_one
from tidegate.programs.transition import (
    CHANGED_AT,
    HISTORY,
    OWNER,
    REQUEST,
    STATUS,
    VERSION,
    Granted,
    Lost,
    Transition,
    Unknown,
    history,
    transition,
    viewed,
)
from tidegate.sim.report import Verdict, explore
from tidegate.sim.world import Plain, document, perform, seeded
from tidegate.specimens.transition import SPECIMENS, specimen
from tidegate.status import (
    HISTORY_MAX,
    Accepted,
    Change,
    NoRunner,
    NotAllowed,
    NotOwner,
    StatusDefinition,
    StatusRecord,
    StatusTable,
    decide_transition,
)

T = TypeVar("T")

RECORDS: Final = "records"
KEY: Final = "x"
TABLE: Final = StatusTable(
    {"free"},
    (
        StatusDefinition("free", {"held", "lent", "gone"}, releases_owner=True),
        StatusDefinition("held", {"free", "lent"}, acquires_owner=True, requires_owner=True),
        StatusDefinition("lent", {"held", "free"}),
        StatusDefinition("gone", final=True, releases_owner=True),
    ),
)
"""A record can go round, so that it is again what it was, only at another version."""


# --- a store, and what may become of a request ------------------------------------------------------------------------


@final
@attrs.define
class Store:
    """A store, and the requests to it that are still under way."""

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
"""What becomes of one request, and what its caller hears."""


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
    """What was written is there, unconfirmed; a read, and what was refused, have nothing to confirm."""
    reply = store.do(effect)
    return reply if isinstance(effect, FindOne) or isinstance(reply, Refused) else NotDurable("no majority yet")


def rolled_back(_: Store, __: Effect[object]) -> object:
    return NotDurable("no majority yet")


def refused(reason: str) -> Way:
    return lambda _, __: Refused(reason)


def after(happened: Callable[[Store], object], way: Way = answered) -> Way:
    """Something happens, and then the request meets its way."""

    def met(store: Store, effect: Effect[object]) -> object:
        happened(store)
        return way(store, effect)

    return met


def arrival(store: Store) -> None:
    """The oldest request that is under way arrives."""
    store.do(store.late.pop(0))


def deletion(store: Store) -> None:
    store.do(DeleteOne(RECORDS, Eq(ID, KEY)))


def rival(target: str, runner: str | None = None, request: str = "theirs") -> Callable[[Store], None]:
    """Another caller makes a version."""

    def made(store: Store) -> None:
        assert isinstance(fed(wish(target, runner=runner, request=request).run(), store.do), Granted)

    return made


def rounds(count: int) -> Callable[[Store], None]:
    """Other processes of the same runner make so many versions, round and round."""

    def made(store: Store) -> None:
        for number in range(count):
            rival("lent" if store.record[STATUS] == "held" else "held", "r1", f"theirs-{number}")(store)

    return made


def wish(
    target: str = "held", *, runner: str | None = "r1", request: str = "mine", attempts: int = 8, table: StatusTable = TABLE
) -> Transition:
    return Transition(RECORDS, table, KEY, target, runner, request, attempts)


def fed(program: Coroutine[Effect[object], object, T], reply: Callable[[Effect[object]], object]) -> T:
    """Run a program to its end."""
    heard: object = None
    try:
        while True:
            effect = program.throw(heard) if isinstance(heard, Failure) else program.send(heard)
            heard = reply(effect)
    except StopIteration as stopped:
        return cast("T", stopped.value)


def run(wished: Transition, store: Store, *ways: Way) -> object:
    """The answer, when the requests meet these ways, and those after them nothing bad; all ways must be met."""
    left = chain(ways, repeat(answered))
    met = 0

    def reply(effect: Effect[object]) -> object:
        nonlocal met
        met += 1
        store.asked.append(effect)
        return next(left)(store, effect)

    answer = fed(wished.run(), reply)
    assert met >= len(ways), "the program ended before it met all ways"
    return answer


def stored(status: str = "free", owner: str | None = None, version: int = 1) -> Store:
    """A store that holds the record, made by as many requests as it has versions."""
    entries = tuple(
        {"version": number, "request": f"before-{number}", "status": status if number == version else "free"}
        for number in range(max(1, version - HISTORY_MAX + 1), version + 1)
    )
    doc = {"_id": KEY, "status": status, "owner": owner, "version": version, "history": entries}
    return Store(seeded({RECORDS: (Document.of(doc),)}))


def kinds(store: Store) -> list[str]:
    """What was asked for, in short."""
    return [type(effect).__name__ for effect in store.asked]


# --- granted ----------------------------------------------------------------------------------------------------------


def test_a_transition_is_one_read_and_one_compare_and_set() -> None:
    """Design of the program: the filter has id, status, owner and version; one write leaves the history as well."""
    store = stored("held", "r1", 4)
    entry = Document.of({"version": 5, "request": "mine", "status": "free"})
    unchanged = AllOf((Eq(ID, KEY), Eq(STATUS, "held"), Eq(OWNER, "r1"), Eq(VERSION, 4)))
    changes = (
        Put(STATUS, "free"),
        Put(OWNER, None),
        Put(VERSION, 5),
        PutServerTime(CHANGED_AT),
        Push(HISTORY, entry, last=HISTORY_MAX),
    )

    assert run(wish("free"), store) == Granted(5)
    assert store.asked == [find_one(RECORDS, Eq(ID, KEY)), FindOneAndUpdate(RECORDS, unchanged, changes)]
    assert viewed(store.record) == StatusRecord("free", None, 5)
    assert history(store.record)[-1] == Change(5, "mine", "free")


def test_a_new_record_is_inserted_at_version_1() -> None:
    """A record that does not exist begins in an initial status, with the request that made it in its history."""
    store = Store()
    doc = Document.of(
        {
            "_id": KEY,
            "status": "free",
            "owner": None,
            "version": 1,
            "history": ({"version": 1, "request": "mine", "status": "free"},),
        }
    )

    assert run(wish("free"), store) == Granted(1)
    assert store.asked == [find_one(RECORDS, Eq(ID, KEY)), insert_one(RECORDS, doc)]
    assert store.record == doc


def test_the_function_is_the_class() -> None:
    """`transition(...)` asks for the same as `Transition(...).run()`, and answers the same."""
    one, other = stored(), stored()
    program = transition(RECORDS, TABLE, KEY, "held", runner="r1", request="mine")

    assert fed(program, one.do) == run(wish(), other) == Granted(2)
    assert one.record == other.record


def test_a_record_remembers_its_last_16_versions() -> None:
    """The push is bounded: after 40 versions it holds the changes 25 to 40, newest last."""
    store = stored()
    rounds(39)(store)

    assert [change.version for change in history(store.record)] == list(range(25, 41))


# --- denied -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "wished", "answer"),
    [
        (stored("held", "r1"), wish("gone"), NotAllowed("held", "gone", frozenset({"free", "lent"}))),
        (stored("held", "r1"), wish("nowhere"), NotAllowed("held", "nowhere", frozenset({"free", "lent"}))),
        (stored("gone"), wish("free"), NotAllowed("gone", "free", frozenset())),
        (Store(), wish("held"), NotAllowed(None, "held", frozenset({"free"}))),
        (stored("held", "r2"), wish("free"), NotOwner("held", "free", "r2", "r1")),
        (stored("held", "r2"), wish("free", runner=None), NotOwner("held", "free", "r2", None)),
        (stored("free"), wish("held", runner=None), NoRunner("free", "held")),
    ],
)
def test_a_denial_has_its_reason_and_writes_nothing(store: Store, wished: Transition, answer: object) -> None:
    """The reasons are those of `tidegate.status`; one read is all that was asked for."""
    before = store.world

    assert run(wished, store) == answer
    assert kinds(store) == ["FindOne"]
    assert store.world == before


# --- a reply is lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", range(HISTORY_MAX))
@pytest.mark.parametrize("way", [lost_reply, not_durable])
def test_a_lost_success_is_recognised_while_it_is_remembered(way: Way, others: int) -> None:
    """Law TR4. Own version and up to 15 of others after it: own id is among the 16 that the record remembers."""
    store = stored()

    assert run(wish(), store, answered, way, after(rounds(others))) == Granted(2)
    assert store.record[VERSION] == 2 + others
    assert kinds(store) == ["FindOne", "FindOneAndUpdate", "FindOne"]


@pytest.mark.parametrize("others", [HISTORY_MAX, HISTORY_MAX + 1, 3 * HISTORY_MAX])
@pytest.mark.parametrize("way", [lost_reply, dropped])
def test_what_became_of_it_is_unknown_once_it_is_forgotten(way: Way, others: int) -> None:
    """Law TR5. From 16 versions of others on nobody can tell: not even that it was lost, if it was."""
    if way is dropped:
        others += 1  # one of theirs is the version that ours would have been
    store = stored()
    answer = run(wish(), store, answered, way, after(rounds(others)))

    assert answer == Unknown(2, "the record does not remember that far back")
    assert kinds(store) == ["FindOne", "FindOneAndUpdate", "FindOne"]


@pytest.mark.parametrize("others", range(1, HISTORY_MAX + 1))
def test_a_lost_request_is_decided_anew_while_it_is_known_that_another_won(others: int) -> None:
    """Law TR4. Another's id stands at the version that ours was to make, so ours is lost: wish again."""
    store = stored()
    answer = run(wish("held"), store, answered, dropped, after(rounds(others)))

    if others % 2 == 0:  # they left it lent, from where it may be held
        assert answer == Granted(2 + others)
    else:
        assert answer == NotAllowed("held", "held", frozenset({"free", "lent"}))
    laws_hold = [change for change in history(store.record) if change.request_id == "mine"]
    assert len(laws_hold) == (others % 2 == 0)


@pytest.mark.parametrize("others", range(HISTORY_MAX))
@pytest.mark.parametrize("way", [lost_reply, not_durable])
def test_a_lost_insert_is_recognised_while_it_is_remembered(way: Way, others: int) -> None:
    """Law TR4 for a new record: its first version is remembered as any other."""
    store = Store()

    assert run(wish("free"), store, answered, way, after(rounds(others))) == Granted(1)


@pytest.mark.parametrize("way", [dropped, lost_reply, late, not_durable, rolled_back])
@pytest.mark.parametrize("attempts", [1, 3])
def test_after_the_last_attempt_no_reply_is_unknown(way: Way, attempts: int) -> None:
    """Law TR5. It may have been done, or may still be: to say Lost would be a lie."""
    ways = [*[answered, dropped] * (attempts - 1), answered, way]
    store = stored()

    assert run(wish(attempts=attempts), store, *ways) == Unknown(attempts, "no reply to the last attempt")
    assert len(store.asked) == 2 * attempts


@pytest.mark.parametrize("way", [unsent, dropped])
def test_what_may_be_under_way_stays_unknown_when_later_attempts_fail_for_certain(way: Way) -> None:
    """Law TR5. That the second request was not sent says nothing of the first; nor does a read without a reply."""
    store = stored()

    assert isinstance(run(wish(attempts=2), store, answered, late, way), Unknown) or way is unsent
    assert isinstance(run(wish(attempts=2), stored(), answered, late, answered, unsent), Unknown)


@pytest.mark.parametrize("entries", [(), ({"version": 1, "request": "before-1", "status": "free"},)])
def test_a_history_with_gaps_remembers_nothing(entries: tuple[object, ...]) -> None:
    """Somebody wrote without keeping the history; what became of a lost reply is Unknown, never Lost."""
    bare = Document.of({"_id": KEY, "status": "free", "owner": None, "version": 3, "history": entries})

    def rewritten(store: Store) -> None:
        store.world = seeded({RECORDS: (bare,)})

    assert isinstance(run(wish(), stored(), answered, lost_reply, after(rewritten)), Unknown)


def test_a_record_without_a_history_is_moved_all_the_same() -> None:
    """The field is made by the first push; only what lies before it is not remembered."""
    bare = Document.of({"_id": KEY, "status": "free", "owner": None, "version": 3})
    store = Store(seeded({RECORDS: (bare,)}))

    assert run(wish(), store, answered, lost_reply) == Unknown(2, "the record does not remember that far back") or (
        run(wish(), store) == Granted(4)
    )
    assert history(store.record) == (Change(4, "mine", "held"),)


# --- a request is late ------------------------------------------------------------------------------------------------


def test_a_late_request_that_arrives_before_the_read_is_recognised() -> None:
    """Law TR3. It is found under its own id."""
    store = stored()

    assert run(wish(), store, answered, late, after(arrival)) == Granted(2)
    assert kinds(store) == ["FindOne", "FindOneAndUpdate", "FindOne"]


def test_a_late_request_that_arrives_between_read_and_write_counts_once() -> None:
    """Law TR3. The same again, with the same id and version, finds no match; the history tells that it was ours."""
    store = stored()

    assert run(wish(), store, answered, late, answered, after(arrival)) == Granted(2)
    assert [change.request_id for change in history(store.record)] == ["before-1", "mine"]
    assert kinds(store) == ["FindOne", "FindOneAndUpdate", "FindOne", "FindOneAndUpdate", "FindOne"]


@pytest.mark.parametrize("store", [stored(), Store()])
def test_a_late_request_that_arrives_after_its_repetition_does_nothing(store: Store) -> None:
    """Law TR3. The version has grown, or the id is taken."""
    target = "held" if store.world.cells else "free"
    answer = run(wish(target), store, answered, late, answered, answered)
    record = store.record
    arrival(store)

    assert answer == Granted(record[VERSION])
    assert store.record == record


def test_a_late_request_that_another_overtook_does_nothing() -> None:
    """Law TR4. Ours was lost, so it was decided anew and denied; when the late one arrives, the answer is still true."""
    store = stored()
    answer = run(wish(), store, answered, late, after(rival("held", "r2")))
    record = store.record
    arrival(store)

    assert isinstance(answer, NotAllowed)
    assert store.record == record


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_a_conflict_is_decided_anew() -> None:
    """Another moved the record between read and write; the wish is still legal there."""
    store = stored("lent")

    assert run(wish("held", table=SHARED), store, answered, after(rival_of(SHARED, "free"))) == Granted(3)
    assert kinds(store) == ["FindOne", "FindOneAndUpdate"] * 2


SHARED: Final = StatusTable(
    {"free"},
    (
        StatusDefinition("free", {"held", "lent"}, releases_owner=True),
        StatusDefinition("lent", {"held", "free"}),
        StatusDefinition("held", final=True, acquires_owner=True),
    ),
)
"""From free and from lent a record may be held, so a rival that goes to and fro never makes the wish illegal."""


def rival_of(table: StatusTable, target: str, request: str = "theirs") -> Callable[[Store], None]:
    def made(store: Store) -> None:
        ours = list(store.asked)
        assert isinstance(run(wish(target, request=request, table=table), store), Granted)
        store.asked = ours

    return made


def to_and_fro(store: Store) -> None:
    target = "lent" if store.record[STATUS] == "free" else "free"
    rival_of(SHARED, target, f"theirs-{store.record[VERSION]}")(store)


def test_a_conflict_that_makes_the_wish_illegal_is_a_denial() -> None:
    """Law TR4. Who was faster took what was wished for."""
    answer = run(wish(), stored(), answered, after(rival("held", "r2")))

    assert answer == NotAllowed("held", "held", frozenset({"free", "lent"}))


@pytest.mark.parametrize("attempts", [1, 2, 8])
def test_after_so_many_conflicts_it_is_lost(attempts: int) -> None:
    """Law TR4. Lost says what the last decision expected, and what the record is instead."""
    store = stored()
    answer = run(wish(table=SHARED, attempts=attempts), store, *[answered, after(to_and_fro)] * attempts)

    assert isinstance(answer, Lost)
    assert (answer.attempts, answer.expected) == (attempts, StatusRecord("free" if attempts % 2 else "lent", None, attempts))
    assert answer.actual == viewed(store.record)
    assert "mine" not in [change.request_id for change in history(store.record)]


def test_a_rival_that_creates_the_record_first_is_a_conflict() -> None:
    """The id is taken, so the record is read, and decided on anew."""
    store = Store()
    answer = run(wish("free"), store, answered, after(rival("free")))

    assert answer == NotAllowed("free", "free", frozenset({"held", "lent", "gone"}))
    assert kinds(store) == ["FindOne", "InsertOne", "FindOne"]


@pytest.mark.parametrize("store", [Store(), stored()])
def test_any_other_refusal_is_raised(store: Store) -> None:
    """The world said no, definitely: not authorised, or the id is taken in another index than that of `_id`."""
    target = "held" if store.world.cells else "free"
    for reason in ("not authorised", f"{DUPLICATE_KEY} of the index on email"):
        with pytest.raises(Refused) as caught:
            run(wish(target), store, answered, refused(reason))
        assert caught.value == Refused(reason)
        with pytest.raises(Refused):
            run(wish(target), store, refused(reason))


@pytest.mark.parametrize("ways", [(refused("not authorised"),), (answered, refused("not authorised"))])
@pytest.mark.parametrize("first", [dropped, lost_reply, late])
def test_a_refusal_after_a_lost_reply_is_no_answer_about_the_request_before(first: Way, ways: tuple[Way, ...]) -> None:
    """Law TR4: ambiguity is never turned into refusal. The request before it may have been done, or may still be."""
    if first is lost_reply and len(ways) == 2:
        ways = ways[:1]  # the read finds itself, and nothing is written again

    assert isinstance(run(wish(), stored(), answered, first, *ways), Unknown)


# --- not applied, not durable, deleted --------------------------------------------------------------------------------


@pytest.mark.parametrize("ways", [(unsent,), (answered, unsent), (dropped,), (answered, unsent, unsent, answered, unsent)])
def test_what_was_not_applied_is_asked_for_again(ways: tuple[Way, ...]) -> None:
    """A write that was not applied, and any read, are free to repeat; nothing needs to be recognised."""
    store = stored()

    assert run(wish(), store, *ways) == Granted(2)
    assert store.record[VERSION] == 2


@pytest.mark.parametrize("way", [unsent, dropped])
def test_without_a_single_read_it_is_lost(way: Way) -> None:
    """The store was never reached: nothing was asked of it, so nothing will be done."""
    store = stored()

    assert run(wish(attempts=3), store, way, way, way) == Lost(3, None, None)
    assert kinds(store) == ["FindOne"] * 3


def test_what_was_never_applied_is_lost() -> None:
    """Law TR4. Each request is known not to have been sent."""
    store = stored()
    answer = run(wish(attempts=3), store, *[answered, unsent] * 3)

    assert answer == Lost(3, StatusRecord("free", None, 1), StatusRecord("free", None, 1))


def test_what_was_rolled_back_is_written_again() -> None:
    """It was done on a node that lost it: the read back finds the version decided on, so the same may be asked again."""
    store = stored()

    assert run(wish(), store, answered, rolled_back) == Granted(2)
    assert kinds(store) == ["FindOne", "FindOneAndUpdate"] * 2


@pytest.mark.parametrize("target", ["free", "held"])
def test_a_record_that_was_deleted_meanwhile_is_decided_on_as_a_new_one(target: str) -> None:
    """Between read and write it disappeared: a new record may be free, and may not be held."""
    store = stored("lent") if target == "held" else stored("held", "r1")
    answer = run(wish(target), store, answered, after(deletion))

    assert answer == (Granted(1) if target == "free" else NotAllowed(None, "held", frozenset({"free"})))


@pytest.mark.parametrize("way", [dropped, lost_reply, late])
def test_a_record_that_was_deleted_after_a_lost_reply_is_unknown(way: Way) -> None:
    """Law TR5. What it remembered is gone with it."""
    answer = run(wish(), stored(), answered, way, after(deletion))

    assert answer == Unknown(2, "the record does not remember that far back")


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", None, 1, b"x", ("x",)])
@pytest.mark.parametrize("name", ["key", "request", "target"])
def test_a_wish_needs_names(name: str, bad: object) -> None:
    """Id, request and target are strings that are not empty."""
    with pytest.raises(Misuse, match="cannot name"):
        attrs.evolve(wish(), **{name: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["", 1, b"x", ("x",)])
def test_a_runner_is_named_or_none(bad: str) -> None:
    """Nobody in particular is None, and never an empty name."""
    with pytest.raises(Misuse, match="cannot name a runner"):
        wish(runner=bad)
    assert wish(runner=None).runner is None


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1", None])
def test_a_wish_has_at_least_one_attempt(bad: int) -> None:
    """The number of attempts is an integer from 1 on."""
    with pytest.raises(Misuse, match="number of attempts"):
        wish(attempts=bad)


def test_the_function_refuses_bad_input_before_it_asks_for_anything() -> None:
    """Misuse is raised where the program would ask first."""
    program = transition(RECORDS, TABLE, "", "held", runner="r1", request="mine")

    with pytest.raises(Misuse, match="cannot name a record"):
        fed(program, Store().do)


# --- any schedule -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Schedule:
    """Who wishes what, one after the other, and who is let on next, on which way. All wishes are seen through at last."""

    wishes: tuple[tuple[tuple[str, str | None], ...], ...]
    moves: tuple[tuple[int, Way], ...]


WAYS: Final[tuple[Way, ...]] = (unsent, dropped, lost_reply, late, not_durable)
STRUCK_MAX: Final = 4
"""Fewer faults than attempts, so that no wish runs out of them."""


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Up to four callers with up to four wishes: no more versions than a record remembers."""
    a_wish = st.tuples(st.sampled_from(["free", "held", "held", "lent", "gone"]), st.sampled_from(["r1", "r1", "r2", None]))
    wishes = draw(st.lists(st.lists(a_wish, min_size=1, max_size=4).map(tuple), min_size=2, max_size=4).map(tuple))
    who = st.integers(0, len(wishes))  # one more than there are callers: the network
    moves = draw(st.lists(st.tuples(who, st.sampled_from([answered, answered, answered, *WAYS])), max_size=40))
    struck = 0
    kept: list[tuple[int, Way]] = []
    for caller, way in moves:
        struck += way is not answered
        kept.append((caller, way if struck <= STRUCK_MAX else answered))
    return Schedule(wishes, tuple(kept))


@final
@attrs.define
class Caller:
    """Wishes one thing after the other, and remembers the answers."""

    name: str
    wishes: list[Transition]
    answers: list[Answered] = attrs.field(factory=list)
    program: Coroutine[Effect[object], object, object] | None = None
    effect: Effect[object] | None = None

    def go_on(self, heard: object) -> None:
        """Up to the next effect, or to the end of all wishes."""
        while self.wishes:
            if self.program is None:
                self.program, heard = self.wishes[0].run(), None
            try:
                self.effect = self.program.throw(heard) if isinstance(heard, Failure) else self.program.send(heard)
            except StopIteration as stopped:
                self.answers.append(Answered(self.wishes.pop(0).request, stopped.value))
                self.program = self.effect = None
            else:
                return


@final
@attrs.define
class Observer:
    """Sees who does what to the store, and keeps the full history of the record."""

    store: Store
    runners: dict[str, str | None]
    seen: list[Version] = attrs.field(factory=list)
    late: list[str] = attrs.field(factory=list)

    def see(self, before: Document | None, request: str) -> None:
        """A version counts as recorded if the record says that it was made by whoever made it."""
        doc = self.store.world.read(document(RECORDS, KEY))
        if doc is None or doc == before:
            return
        told = doc[HISTORY][-1]
        recorded = (told[VERSION], told[REQUEST], told[STATUS]) == (doc[VERSION], request, doc[STATUS])
        was = viewed(doc)
        assert was is not None
        self.seen.append(Version(was, request if recorded else "", self.runners[request]))


def played(bug: type[Transition], schedule: Schedule, store: Store) -> tuple[list[Version], list[Answered]]:
    """The full history of the record, and all answers."""
    callers = [
        Caller(
            str(number),
            [
                bug(RECORDS, TABLE, KEY, target, runner, f"{number}.{count}")
                for count, (target, runner) in enumerate(wishes)
            ],
        )
        for number, wishes in enumerate(schedule.wishes)
    ]
    observer = Observer(store, {each.request: each.runner for caller in callers for each in caller.wishes} | {"before-1": None})
    observer.see(None, "before-1")

    def move(caller: Caller, way: Way) -> None:
        assert caller.effect is not None
        before, request, under_way = store.world.read(document(RECORDS, KEY)), caller.wishes[0].request, len(store.late)
        heard = way(store, caller.effect)
        observer.late += [request] * (len(store.late) - under_way)
        observer.see(before, request)
        caller.go_on(heard)

    def deliver() -> None:
        before = store.world.read(document(RECORDS, KEY))
        arrival(store)
        observer.see(before, observer.late.pop(0))

    for caller in callers:
        caller.go_on(None)
    for number, way in schedule.moves:
        if number < len(callers):
            if callers[number].effect is not None:
                move(callers[number], way)
        elif store.late:
            deliver()
    while busy := [caller for caller in callers if caller.effect is not None]:
        move(busy[0], answered)
    while store.late:
        deliver()
    return observer.seen, [answer for caller in callers for answer in caller.answers]


def check_laws(bug: type[Transition], begin: Callable[[], Store] = stored, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    """Laws TR1 to TR6, whatever the schedule."""

    @settings(max_examples=600, phases=phases)
    @given(schedules())
    def holds(schedule: Schedule) -> None:
        seen, answers = played(bug, schedule, begin())
        assert laws.versions_are_consecutive(seen), "TR1"
        assert laws.changes_are_legal(TABLE, seen), "TR2"
        assert laws.requests_count_once(seen), "TR3"
        assert laws.answers_are_true(seen, answers), "TR4"
        assert laws.nothing_is_unknown(answers), "TR5"
        assert laws.versions_are_recorded(seen), "TR6"
        assert not seen or seen[0].record.version == 1, "TR1: the first version is 1"
        if seen:
            first = seen[0]
            legal = decide_transition(TABLE, None, first.record.status, first.runner)
            assert legal == Accepted(first.record.status, first.record.owner, 1), "TR2: a new record is legal"

    holds()


@pytest.mark.parametrize("begin", [stored, Store])
def test_whatever_the_schedule_all_laws_hold(begin: Callable[[], Store]) -> None:
    """Laws TR1, TR2, TR3, TR4, TR5 and TR6, of a record that is there and of one that is yet to be made."""
    check_laws(Transition, begin)


def test_unknown_is_said_only_where_nobody_can_tell() -> None:
    """Law TR5, where attempts are few: after an Unknown, the last attempt had no answer or the record has forgotten."""

    @given(st.integers(1, 3), st.lists(st.sampled_from([answered, *WAYS]), max_size=6))
    def holds(attempts: int, ways: list[Way]) -> None:
        store, left = stored(), iter(ways)

        def reply(effect: Effect[object]) -> object:
            store.asked.append(effect)
            return next(left, answered)(store, effect)

        answer = fed(wish(attempts=attempts).run(), reply)
        met = [way for _, way in zip(store.asked, chain(ways, repeat(answered)), strict=False)]
        may_be_done = any(
            isinstance(effect, FindOneAndUpdate) and way in (dropped, lost_reply, late, not_durable)
            for effect, way in zip(store.asked, met, strict=True)
        )
        made = [change for change in history(store.record) if change.request_id == "mine"]
        assert not isinstance(answer, Unknown) or may_be_done
        assert isinstance(answer, Granted) <= bool(made)
        assert isinstance(answer, Lost) <= (not may_be_done and not made)
        assert isinstance(answer, (Granted, Lost, Unknown))

    holds()


# --- planted bugs -----------------------------------------------------------------------------------------------------

BROKEN: Final = {
    "transition.no_version_in_filter": "TR1",
    "transition.version_not_raised": "TR1",
    "transition.request_id_ignored": "TR4",
    "transition.only_the_last_request_id": "TR4",
    "transition.not_read_again": "TR1",
    "transition.owner_not_checked": "TR2",
    "transition.ambiguous_is_refused": "TR4",
    "transition.history_in_a_second_write": "TR4|TR6",
}
"""The law that each breaks; a history that is late lets a success look lost, if it is read in between."""


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_planted_bug_breaks_the_law(name: str) -> None:
    """Each specimen of the program is caught by random schedules, by the law that it says."""
    with pytest.raises(AssertionError, match=BROKEN[name]):
        check_laws(SPECIMENS[name].bug, phases=(Phase.generate,))


@pytest.mark.parametrize("name", SPECIMENS)
def test_the_simulator_catches_the_same_bug(name: str) -> None:
    """The scenario of each specimen breaks the law that it names, and no other."""
    report = explore(specimen(name))

    assert (report.verdict, report.law) == (Verdict.VIOLATED, SPECIMENS[name].law)


@attrs.frozen
class CountsAnInsertTwice(Transition):
    """Planted bug: a request that lost its reply is sent again without its version, and so counts again."""

    async def write(self, expected: StatusRecord | None, verdict: Accepted) -> bool:
        anyway = Eq(ID, self.key)
        changes = (Put(VERSION, verdict.version), *(each for each in self.changes(verdict) if each.field != VERSION))
        try:
            return await super().write(expected, verdict)
        except Ambiguous:
            pass
        return await FindOneAndUpdate(self.collection, anyway, changes) is not None


@attrs.frozen
class UnknownAtOnce(Transition):
    """Planted bug: no reply is answered by Unknown, although the record could tell."""

    def fate(self, record: Document | None, sent: int) -> object:
        found = super().fate(record, sent)
        return found if record is None else type("Forgotten", (), {})()


def test_each_law_of_the_program_is_broken_by_something() -> None:
    """Laws TR1 to TR6: a law that nothing breaks proves nothing."""
    with pytest.raises(AssertionError, match="TR"):
        check_laws(CountsAnInsertTwice, phases=(Phase.generate,))
    assert isinstance(InsertOne, type)
    assert FindOne is not DeleteOne
