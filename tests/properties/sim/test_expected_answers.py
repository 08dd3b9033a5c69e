"""Programs and laws written to mislead the search, each with the right answer.

Adds to `test_hidden_state`: hiding values, errors and iterators, objects shared outside the world,
waits and cycles, and laws about one of several interchangeable processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import pytest
from tests.properties.sim.test_hidden_state import BAD, FLAG, PAUSE, ask, ended, verdict

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.effects import Failure, Note
from tidegate.model.errors import Nondeterministic
from tidegate.model.operations import find_one, find_one_and_update, insert_one, update_one
from tidegate.sim import (
    Exploration,
    Fault,
    Faults,
    Process,
    Reductions,
    Returned,
    Scenario,
    State,
    Verdict,
    contents,
    explore,
    factory,
    notes,
    world_with,
)

WAYS: Final = (Reductions(), Reductions(symmetry=True))

# --- hidden in values ---------------------------------------------------------------------------------------------------


class Text(str):
    __slots__ = ("seen",)


class Pair(tuple[int, ...]):  # noqa: SLOT001  as users write it
    pass


@attrs.frozen(slots=False, order=False)
class Grows(list[int]):
    size: int = 0


@attrs.frozen
class Unseen:
    held: object = attrs.field(eq=False)


async def in_a_text() -> str:
    text: Any = Text("a")
    text.seen = await ask()
    await PAUSE
    return ended(text.seen)


async def in_a_pair() -> str:
    pair: Any = Pair((1,))
    pair.seen = await ask()
    await PAUSE
    return ended(pair.seen)


async def in_a_list_that_is_called_frozen() -> str:
    grown = Grows(0)
    if await ask():
        grown.append(1)
    await PAUSE
    return ended(len(grown))


async def in_what_equality_does_not_see() -> str:
    unseen = Unseen(await ask())
    await PAUSE
    return ended(unseen.held)


async def in_a_class_made_on_the_way() -> str:
    made: Any = type("Made", (), {"n": 0})
    made.n = await ask()
    await PAUSE
    return ended(made.n)


async def in_one_tuple_or_two() -> str:
    one = tuple([1, 2])  # noqa: C409  a new one
    other = one if await ask() else tuple([1, 2])  # noqa: C409
    await PAUSE
    return ended(one is other)


async def in_one_iterator_or_two() -> str:
    def zipped(each: Iterator[int], *, is_one: int) -> Iterator[tuple[int, int]]:
        return zip(each, each if is_one else iter((1, 1, 1, 1)), strict=False)

    turns = 0
    for _ in zipped(iter((1, 1, 1, 1)), is_one=await ask()):
        await PAUSE
        turns += 1
    return ended(turns == 2)


# --- hidden in errors ---------------------------------------------------------------------------------------------------


async def in_the_object_of_an_error() -> str:
    whose: Any = 1 if await ask() else 2
    try:
        whose.nothing  # noqa: B018
    except AttributeError as error:
        await PAUSE
        return ended(error.obj == 1)
    return ended(is_bad=False)


async def in_the_file_of_an_error() -> str:
    error = OSError(2, "no", "a" if await ask() else "b")
    await PAUSE
    return ended(error.filename == "a")


async def in_the_value_of_a_stop() -> str:
    stop = StopIteration(1 if await ask() else 2)
    await PAUSE
    return ended(stop.value == 1)


async def in_an_error_that_is_being_handled() -> str:
    try:
        raise KeyError(await ask())  # noqa: TRY301
    except KeyError:
        try:
            raise ValueError("x") from None  # noqa: TRY301
        except ValueError as error:
            error.__context__ = None
            del error
            await PAUSE
        try:
            raise
        except KeyError as error:
            return ended(error.args == (1,))


HIDDEN: Final[tuple[Callable[[], Any], ...]] = (
    in_a_text, in_a_pair, in_a_list_that_is_called_frozen, in_what_equality_does_not_see, in_a_class_made_on_the_way,
    in_one_tuple_or_two, in_one_iterator_or_two, in_the_object_of_an_error, in_the_file_of_an_error,
    in_the_value_of_a_stop, in_an_error_that_is_being_handled,
)  # fmt: skip


@pytest.mark.parametrize("program", HIDDEN, ids=lambda program: program.__name__)
def test_what_values_and_errors_hide_is_told_apart_or_refused(program: Callable[[], Any]) -> None:
    assert verdict(program, Exploration()) in {Verdict.VIOLATED, None}


# --- shared outside the world -------------------------------------------------------------------------------------------

SHARED: Final[dict[str, Any]] = {}


async def caches_what_it_found(me: str) -> str:  # noqa: ARG001
    found: Any = SHARED.get("x") or await find_one("c", Eq(ID, "x"))
    SHARED["x"] = found
    await update_one("c", Eq(ID, "x"), Put(FLAG, found[FLAG] + 1))
    return ended(found[FLAG] == 0)


async def locks_by_a_global(me: str) -> str:
    if "held" in SHARED:
        return BAD
    SHARED["held"] = me
    await PAUSE
    SHARED.clear()
    return ended(is_bad=False)


async def counts_for_all(me: str) -> str:  # noqa: ARG001
    SHARED["n"] = 0
    await PAUSE
    SHARED["n"] += 1
    await PAUSE
    return ended(SHARED["n"] == 2)


async def opens_after_three(me: str) -> str:  # noqa: ARG001
    while SHARED.setdefault("failures", 0) < 3:
        try:
            await insert_one("c", Document.of({"_id": "x"}))
        except Failure:
            SHARED["failures"] += 1
    return BAD


@pytest.mark.parametrize(
    "program",
    [caches_what_it_found, locks_by_a_global, counts_for_all, opens_after_three],
    ids=lambda program: program.__name__,
)
def test_what_processes_share_beside_the_world_is_seen_or_refused(program: Callable[[str], Any]) -> None:
    """Each ends badly in some order, so "complete" would be wrong."""
    SHARED.clear()
    try:
        found = explore(pair(program, always={"nobody ends badly": nobody_ends_badly})).verdict
    except Nondeterministic:
        return
    assert found is Verdict.VIOLATED


def pair(program: Callable[[str], Any], **laws: Any) -> Scenario:
    world = world_with({"c": (Document.of({"_id": "x", "flag": 0, "owner": None}),)})
    actors = tuple(Process(name, factory(program, name)) for name in "ab")
    return Scenario(name="pair", summary="two of a kind", world=world, actors=actors, **laws)


def nobody_ends_badly(state: State) -> bool:
    return Returned(BAD) not in map(state.status, "ab")


# --- deadlocks and livelocks --------------------------------------------------------------------------------------------

X, Y = Eq(ID, "x"), Eq(ID, "y")


async def polls(key: Eq[Any] = X) -> str:
    while not (found := await find_one("c", key)) or not found[FLAG]:
        pass
    return "seen"


async def polls_and_says_so() -> str:
    while not (found := await find_one("c", Y)) or not found[FLAG]:
        await Note("turn", 1)
        await Note("turn", 2)
    return "seen"


async def sets(key: Eq[Any] = X) -> None:
    await update_one("c", key, Put(FLAG, 1))


async def may_set() -> None:
    found = await find_one("c", Y)
    if found is not None and not found[FLAG]:
        await sets()


async def turns(mine: int, yours: int) -> None:
    while True:
        await find_one_and_update("c", AllOf((X, Eq(FLAG, mine))), Put(FLAG, yours))


def is_seen(state: State) -> bool:
    return state.status("a") == Returned("seen")


def is_set(state: State) -> bool:
    return contents(state, "c")[0][FLAG] == 1


DIES: Final = Faults.of(Fault.CRASH_BEFORE)
COMES_BACK: Final = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART)
ENDS: Final[Mapping[str, tuple[tuple[Process, ...], Callable[[State], bool], int, Verdict]]] = {
    "one waits for what the other does": (
        (Process("a", factory(polls)), Process("b", factory(sets))), is_seen, 0, Verdict.COMPLETE,
    ),
    "nobody does what one waits for": (
        (Process("a", factory(polls)), Process("b", factory(sets, Y))), is_seen, 0, Verdict.VIOLATED,
    ),
    "it depends on the order whether anybody does": (
        (Process("a", factory(polls)), Process("b", factory(may_set)), Process("d", factory(sets, Y))),
        is_seen, 0, Verdict.VIOLATED,
    ),
    "who would do it may crash": (
        (Process("a", factory(polls)), Process("b", factory(sets), DIES)), is_seen, 1, Verdict.VIOLATED,
    ),
    "who would do it need not come back": (
        (Process("a", factory(polls)), Process("b", factory(sets), COMES_BACK)), is_seen, 2, Verdict.VIOLATED,
    ),
    "one goes round where nobody looks": (
        (Process("a", factory(polls_and_says_so)), Process("b", factory(sets))), is_seen, 0, Verdict.VIOLATED,
    ),
    "one goes round, and the law is about another": (
        (Process("a", factory(polls_and_says_so)), Process("b", factory(sets))), is_set, 0, Verdict.INCONCLUSIVE,
    ),
    "two undo each other's work": (
        (Process("a", factory(turns, 0, 1)), Process("b", factory(turns, 1, 0))), is_set, 0, Verdict.VIOLATED,
    ),
    "two undo each other's work, which breaks no law": (
        (Process("a", factory(turns, 0, 1)), Process("b", factory(turns, 1, 0))), lambda _: True, 0,
        Verdict.INCONCLUSIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("reductions", WAYS, ids=str)
@pytest.mark.parametrize("name", ENDS)
def test_who_waits_and_who_goes_round_is_told(name: str, reductions: Reductions) -> None:
    actors, law, budget, wanted = ENDS[name]
    world = world_with({"c": tuple(Document.of({"_id": key, "flag": 0}) for key in "xy")})
    scenario = Scenario(
        name="ends", summary=name, world=world, actors=actors, budget=budget, eventually={"in the end": law}
    )
    assert explore(scenario, Exploration(reductions=reductions)).verdict is wanted


# --- laws about one process ---------------------------------------------------------------------------------------------

OWNER: Final = Field[str | None]("owner")


async def claims(me: str) -> None:
    if await find_one_and_update("c", AllOf((X, Eq(OWNER, None))), Put(OWNER, me)) is not None:
        await Note("turn", 1)
        await Note("turn", 2)


def owner(state: State) -> str | None:
    return contents(state, "c")[0][OWNER]


def laws_about(who: str) -> Mapping[str, Mapping[str, Any]]:
    return {
        "what it owns": {"always": {"it": lambda state: owner(state) != who}},
        "what it notes": {"always": {"it": lambda state: state.read(notes(who)) != (("turn", 1),)}},
        "what it comes to own": {"step": {"it": lambda before, after: owner(before) == owner(after) or owner(after) != who}},
        "how it ends": {"eventually": {"it": lambda state: owner(state) != who}},
    }  # fmt: skip


@pytest.mark.parametrize("reductions", WAYS, ids=str)
@pytest.mark.parametrize("who", "ab")
@pytest.mark.parametrize("how", laws_about(""))
def test_a_law_about_one_of_those_who_are_interchangeable_is_broken_as_soon(
    how: str, who: str, reductions: Reductions
) -> None:
    report = explore(pair(claims, symmetric=(("a", "b"),), **laws_about(who)[how]), Exploration(reductions=reductions))
    plain = explore(pair(claims, **laws_about(who)[how]), Exploration(reductions=WAYS[0]))
    assert report.trace is not None
    assert plain.trace is not None
    assert (report.verdict, len(report.trace.steps)) == (Verdict.VIOLATED, len(plain.trace.steps))
