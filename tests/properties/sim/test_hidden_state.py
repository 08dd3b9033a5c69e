"""Programs that keep state where no frame shows it: each can end badly, and a search never calls one complete.

Two ways lead to one suspended program as far as its locals tell, and what it does next depends on the way. Either the search
tells the two apart, and finds the bad end, or a fresh program that goes the second way gives them away.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import random  # noqa: TID251  as a program that should not
import sys
from collections.abc import Awaitable, Callable, Mapping
from random import Random  # noqa: TID251  for random runs
from typing import Any, Final, TypeAlias

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Note, Refused
from tidegate.model.errors import Nondeterministic
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.sim import Exploration, Process, Returned, Scenario, Verdict, explore, factory, world_with

Coded: TypeAlias = Callable[[], Awaitable[object]]
BAD, GOOD = "bad", "good"
FLAG: Final = Field[int]("flag")
PAUSE: Final = Note("pause", 0)

NUMBERS: Final = {"n": 0}
CONTEXT: Final = contextvars.ContextVar("CONTEXT", default=0)
LOCALS: Final = locals
KEPT: Final = [0]


async def flips() -> None:
    """The other process, which makes replies differ."""
    await find_one_and_update("c", Eq(ID, "x"), Put(FLAG, 1))


async def ask() -> int:
    found = await find_one("c", Eq(ID, "x"))
    assert found is not None
    return found[FLAG]


def ended(is_bad: object) -> str:
    return BAD if is_bad else GOOD


# --- after the third turn -----------------------------------------------------------------------------------------------


async def counts_in_a_class() -> str:
    class Total:
        value = 0

    while Total.value < 3:
        await PAUSE
        Total.value += 1
    return BAD


async def counts_in_a_module() -> str:
    NUMBERS["n"] = 0
    while NUMBERS["n"] < 3:
        await PAUSE
        NUMBERS["n"] += 1
    return BAD


async def counts_in_a_function() -> str:
    def counter() -> None: ...

    while getattr(counter, "n", 0) < 3:
        await PAUSE
        counter.n = getattr(counter, "n", 0) + 1  # type: ignore[attr-defined]
    return BAD


async def counts_in_defaults() -> str:
    def counter(n: int = 0) -> int:
        return n

    while counter() < 3:
        await PAUSE
        counter.__defaults__ = (counter() + 1,)
    return BAD


async def counts_in_a_bound_class() -> str:
    class Total:
        value = 0

        @classmethod
        def up(cls) -> int:
            cls.value += 1
            return cls.value

    up = Total.up
    while up() < 3:
        await PAUSE
    return BAD


async def counts_in_an_exception() -> str:
    error = Refused("x")
    while error.args != ("xxx",):
        await PAUSE
        error.args = (error.args[0] + "x",)
    return BAD


async def counts_in_notes() -> str:
    error = Refused("x")
    while len(getattr(error, "__notes__", ())) < 3:
        await PAUSE
        error.add_note("one more")
    return BAD


# --- by what was answered before ----------------------------------------------------------------------------------------


@functools.cache
def first() -> int:
    return KEPT[0]


async def remembers_in_a_cache() -> str:
    first.cache_clear()
    KEPT[0] = await ask()
    first()
    await PAUSE
    return ended(first())


async def remembers_in_a_context() -> str:
    CONTEXT.set(await ask())
    await PAUSE
    return ended(CONTEXT.get())


async def remembers_in_a_seed() -> str:
    random.seed(await ask())
    await PAUSE
    drawn = random.random()
    random.seed(1)
    return ended(drawn == random.random())


class Whole(int):
    """Equal to an int, and with room for more."""


class Chosen(frozenset[int]):
    """Equal to another set of the same."""


class Colour(enum.Enum):
    """A member keeps whatever is set on it."""

    RED = 1


@attrs.frozen(slots=False)
class Loose:
    """Frozen, and with a dictionary."""

    a: int = 0

    @functools.cached_property
    def seen(self) -> int:
        return KEPT[0]


async def remembers_in_a_number() -> str:
    number = Whole(1)
    number.seen = await ask()  # type: ignore[attr-defined]
    await PAUSE
    return ended(number.seen)  # type: ignore[attr-defined]


async def remembers_in_a_type() -> str:
    chosen = Chosen((1,)) if await ask() else frozenset((1,))
    await PAUSE
    return ended(type(chosen) is Chosen)


async def remembers_in_an_enum() -> str:
    Colour.RED.seen = await ask()  # type: ignore[attr-defined]
    await PAUSE
    return ended(Colour.RED.seen)  # type: ignore[attr-defined]


async def remembers_in_a_dictionary() -> str:
    loose = Loose()
    loose.__dict__["more"] = await ask()
    await PAUSE
    return ended(loose.__dict__["more"])


async def remembers_in_a_property() -> str:
    loose = Loose()
    KEPT[0] = await ask()
    assert loose.seen in (0, 1)
    await PAUSE
    return ended(loose.seen)


async def remembers_in_an_import() -> str:
    error = ImportError("x", name="a" if await ask() else "b")
    await PAUSE
    return ended(error.name == "a")


async def remembers_what_is_suppressed() -> str:
    error = ValueError("x")
    if await ask():
        error.__suppress_context__ = True
    await PAUSE
    return ended(error.__suppress_context__)


async def remembers_by_being_unbound() -> str:
    name = ("unbound",)
    if await ask():
        del name
    await PAUSE
    try:
        return ended(not name)
    except UnboundLocalError:
        return BAD


async def remembers_in_an_order() -> str:
    numbers = frozenset((0, 8)) if await ask() else frozenset((8, 0))
    await PAUSE
    return ended(next(iter(numbers)) == 0)


async def remembers_by_identity() -> str:
    one = tuple([1, 2])  # noqa: C409  made, not a constant
    other = one if await ask() else tuple([1, 2])  # noqa: C409
    await PAUSE
    return ended(one is other)


async def remembers_in_a_range() -> str:
    left = (range(0, 3 if await ask() else 4, 2), await PAUSE)  # type: ignore[func-returns-value]
    return ended(left[0].stop == 3)


async def remembers_in_a_frame() -> str:
    hidden = await ask()  # noqa: F841  it is looked at by another name
    await PAUSE
    return ended(LOCALS()["hidden"])


def peeked() -> object:
    return sys._getframe(1).f_locals["hidden"]  # noqa: SLF001


async def remembers_for_who_peeks() -> str:
    hidden = await ask()  # noqa: F841
    await PAUSE
    return ended(peeked())


async def remembers_in_what_is_gone() -> str:
    class Last:
        def __del__(self) -> None:
            NUMBERS["n"] += 1

    NUMBERS["n"] = 0
    last = Last()
    if await ask():
        del last
    await PAUSE
    return ended(NUMBERS["n"])


async def _outer(saved: Any, *, is_new: bool) -> Any:
    count = 0

    async def inner() -> None:
        nonlocal count
        await PAUSE
        count += 1

    if saved is None:
        return inner
    called = inner if is_new else saved
    del saved, is_new, inner
    await called()
    return count


async def remembers_in_a_shared_cell() -> str:
    is_new = bool(await ask())
    return ended(await _outer(await _outer(None, is_new=False), is_new=is_new))


PROGRAMS: Final[tuple[Coded, ...]] = (
    counts_in_a_class, counts_in_a_module, counts_in_a_function, counts_in_defaults, counts_in_a_bound_class,
    counts_in_an_exception, counts_in_notes, remembers_in_a_cache, remembers_in_a_context, remembers_in_a_seed,
    remembers_in_a_number, remembers_in_a_type, remembers_in_an_enum, remembers_in_a_dictionary, remembers_in_a_property,
    remembers_in_an_import, remembers_what_is_suppressed, remembers_by_being_unbound, remembers_in_an_order,
    remembers_by_identity, remembers_in_a_range, remembers_in_a_frame, remembers_for_who_peeks,
    remembers_in_what_is_gone, remembers_in_a_shared_cell,
)  # fmt: skip


def scenario(program: Any) -> Scenario:
    return Scenario(
        name="hidden",
        summary="A program, and another one that makes its replies differ.",
        world=world_with({"c": (Document.of({"_id": "x", "flag": 0}),)}),
        actors=(Process("a", factory(program)), Process("b", factory(flips))),
        always={"it ends well": lambda state: state.status("a") != Returned(BAD)},
    )


def verdict(program: Any, how: Exploration) -> Verdict | None:
    """None for a program that was refused."""
    try:
        return explore(scenario(program), how, seeding=Random).verdict
    except Nondeterministic:
        return None


WAYS: Final[Mapping[str, Exploration]] = {
    "exhaustively": Exploration(),
    "by random runs": Exploration(runs=60, steps_max=60, seed="3"),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_hidden_state_is_told_apart_or_refused(program: Coded, how: Exploration) -> None:
    """The bad end, which there is, is found; or the program is refused."""
    assert verdict(program, how) in {Verdict.VIOLATED, None}


async def keeps_all_in_locals() -> str:
    seen = await ask()
    await PAUSE
    return ended(seen == 2)


def test_a_program_without_any_is_complete() -> None:
    """Nobody is refused for nothing."""
    assert verdict(keeps_all_in_locals, Exploration()) is Verdict.COMPLETE
