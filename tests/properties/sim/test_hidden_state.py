"""Programs with state that no frame shows: each can end badly, and no search calls one complete.

Two paths lead to a suspended program with equal locals but different futures. The search tells them
apart and finds the bad end, or a fresh program on the second path reveals the difference.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  as a program that should not
import contextvars
import enum
import functools
import importlib
import io
import os
import random  # noqa: TID251  as a program that should not
import sys
import threading
import time  # noqa: TID251  likewise
import uuid
from array import array
from collections import ChainMap, UserDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count as count_from
from itertools import cycle
from pathlib import Path
from random import Random, SystemRandom  # noqa: TID251  for random runs
from random import random as drawn  # noqa: TID251  likewise
from time import time_ns as now_ns  # noqa: TID251  likewise
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, Final, TypeAlias, cast
from unittest.mock import Mock
from weakref import WeakKeyDictionary

import attrs
import pytest

from tidegate.counters.increments import increment
from tidegate.model.documents import ID, Add, Document, Eq, Field, Put
from tidegate.model.effects import Call, Effect, Note, Program, Refused
from tidegate.model.errors import Misuse, Nondeterministic
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.model.reducer import Step
from tidegate.reactive.record.snapshot import Computed, Projection, snapshot
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim import (
    Exploration,
    Linearizable,
    Network,
    NoLongerThan,
    Process,
    ReducerProcess,
    Returned,
    Scenario,
    Verdict,
    World,
    explore,
    factory,
    perform,
    when_quiet,
    world_with,
)
from tidegate.sim.program.automaton import Asking, ProgramAutomaton
from tidegate.sim.program.outside import Reach, reached
from tidegate.sim.program.rerun import CallCase, case_of, loops, planned
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.search import confirming
from tidegate.sim.search.search import Search
from tidegate.sim.servers.failover import recalling
from tidegate.sim.servers.reducers import Crash, Restart
from tidegate.sim.servers.streams import Stream
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.linearizability import BEGAN, ENDED, recording
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, inbox

Coded: TypeAlias = Callable[[], Awaitable[object]]
BAD, GOOD = "bad", "good"
FLAG: Final = Field[int]("flag")
PAUSE: Final = Note("pause", 0)

NUMBERS: Final = {"n": 0}
count = 0
CONTEXT: Final = contextvars.ContextVar("CONTEXT", default=0)
LOCALS: Final = locals
KEPT: Final = [0]


async def flips() -> None:
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


# --- by earlier replies -------------------------------------------------------------------------------------------------


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
    pass


class Chosen(frozenset[int]):
    pass


class Colour(enum.Enum):
    RED = 1


@attrs.frozen(slots=False)
class Loose:
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


def counter() -> tuple[Callable[[], int], Callable[[], int]]:
    n = 0

    def up() -> int:
        nonlocal n
        n += 1
        return n

    return up, lambda: n


async def counts_in_a_closure() -> str:
    up, get = counter()
    while get() < 3:
        await PAUSE
        up()
    return BAD


async def remembers_what_closures_share() -> str:
    (one, get), (other, _) = counter(), counter()
    up = one if await ask() else other
    del one, other, _
    await PAUSE
    up()
    return ended(get())


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


# --- after thousands of replies ----------------------------------------------------------------------------------------

FAR: Final = 3_000


class Client:
    def __init__(self) -> None:
        self.failures = 0


CLIENT: Final = Client()
COUNTED: Final[list[int]] = []


async def counts_far_in_a_module() -> str:
    global count  # noqa: PLW0603  as a program that should not
    count = 0
    while count < FAR:
        await PAUSE
        count += 1
    return BAD


async def counts_far_in_a_shared_object() -> str:
    CLIENT.failures = 0
    while CLIENT.failures < FAR:
        await PAUSE
        CLIENT.failures += 1
    return BAD


async def counts_far_in_a_list() -> str:
    COUNTED.clear()
    while len(COUNTED) < FAR:
        await PAUSE
        COUNTED.append(1)
    return BAD


async def counts_far_in_a_context() -> str:
    CONTEXT.set(0)
    while CONTEXT.get() < FAR:
        await PAUSE
        CONTEXT.set(CONTEXT.get() + 1)
    return BAD


@functools.cache
def counters() -> list[int]:
    return [0]


async def counts_far_in_a_cache() -> str:
    counters()[0] = 0
    while counters()[0] < FAR:
        await PAUSE
        counters()[0] += 1
    return BAD


async def counts_far_in_an_attribute() -> str:
    counts_far_in_an_attribute.count = 0  # type: ignore[attr-defined]
    while counts_far_in_an_attribute.count < FAR:  # type: ignore[attr-defined]
        await PAUSE
        counts_far_in_an_attribute.count += 1  # type: ignore[attr-defined]
    return BAD


SPACE: Final = SimpleNamespace(n=0)
WRAPPED: Final = UserDict[str, int](n=0)
KEYS: Final[dict[int, int]] = {}
VIEW: Final = MappingProxyType(KEYS)


async def counts_far_in_a_namespace() -> str:
    SPACE.n = 0
    while SPACE.n < FAR:
        await PAUSE
        SPACE.n += 1
    return BAD


async def counts_far_in_a_wrapped_dictionary() -> str:
    WRAPPED["n"] = 0
    while WRAPPED["n"] < FAR:
        await PAUSE
        WRAPPED["n"] += 1
    return BAD


async def counts_far_beside_a_large_table() -> str:
    """The large table is searched first and exhausts the budget."""
    assert A_LARGE_TABLE
    SPACE.n = 0
    while SPACE.n < FAR:
        await PAUSE
        SPACE.n += 1
    return BAD


MINE: Any = ModuleType("mine_to_import")
MINE.__file__ = "/mine/mine_to_import.py"
sys.modules[MINE.__name__] = MINE


async def counts_far_in_a_module_imported_inside() -> str:
    import mine_to_import  # type: ignore[import-not-found]

    mine_to_import.count = 0
    while mine_to_import.count < FAR:
        await PAUSE
        mine_to_import.count += 1
    return BAD


A_TABLE_OF_PAIRS: Final = {number: (number, "a") for number in range(9_000)}


def one_more() -> None:
    up_in_a_list()


def up_in_a_list() -> None:
    COUNTED.append(1)


async def counts_far_behind_a_large_table() -> str:
    assert A_TABLE_OF_PAIRS
    (COUNTED).clear()
    while len(COUNTED) < FAR:
        await PAUSE
        one_more()
    return BAD


A_LARGE_TABLE: Final = {number: (number, ("a", "b")) for number in range(1_100)}


async def counts_far_in_a_row() -> str:
    NUMBERS["n"] = 0
    while NUMBERS["n"] < FAR:
        NUMBERS["n"] = 0 if await ask() else NUMBERS["n"] + 1
    return BAD


# --- by chance, and by the hash seed ------------------------------------------------------------------------------------

WORDS: Final = frozenset({"alpha", "beta", "gamma", "delta"})


async def draws_seldom() -> str:
    await PAUSE
    return ended(random.random() < 0.001)


async def draws_an_id() -> str:
    return str(uuid.uuid4())


async def looks_at_the_time() -> None:
    await Note(str(time.time_ns()), 1)


async def returns_the_first_of_a_set() -> str:
    return next(iter({"alpha", "beta", "gamma", "delta"}))


async def makes_a_list_of_a_set() -> str:
    return list({"alpha", "beta"})[0]  # noqa: RUF015  as it is written


async def makes_a_dict_of_a_global_set() -> str:
    return "".join(dict.fromkeys(WORDS))


async def looks_at_a_hash() -> int:
    return hash("x") % 2


async def goes_through_its_argument(words: frozenset[str] = WORDS) -> None:
    for word in words:
        await Note(word, 1)


BY_CHANCE: Final[tuple[Coded, ...]] = (
    draws_seldom, draws_an_id, looks_at_the_time, returns_the_first_of_a_set, makes_a_list_of_a_set,
    makes_a_dict_of_a_global_set, looks_at_a_hash, goes_through_its_argument,
)  # fmt: skip
PROGRAMS: Final[tuple[Coded, ...]] = (
    counts_far_in_a_module, counts_far_in_a_shared_object, counts_far_in_a_list, counts_far_in_a_context,
    counts_far_in_a_cache, counts_far_in_an_attribute, counts_far_in_a_row, counts_far_in_a_namespace,
    counts_far_in_a_module_imported_inside, counts_far_behind_a_large_table,
    counts_far_in_a_wrapped_dictionary, counts_far_beside_a_large_table, counts_in_a_closure, remembers_what_closures_share,
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
    assert verdict(program, how) in {Verdict.VIOLATED, None}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("program", BY_CHANCE, ids=lambda program: program.__name__)
def test_chance_and_the_hash_seed_are_refused(program: Coded, how: Exploration) -> None:
    assert verdict(program, how) is None


def numbers() -> Iterator[int]:
    yield from range(1, 1_000_000)


NEVER_AGAIN: Final[Mapping[str, Iterator[int]]] = {
    "itertools.count": count_from(1), "a generator": numbers(), "a generator expression": (each for each in count_from(1)),
    "map": map(abs, count_from(1)), "cycle": cycle((0,) * 9 + (1,)), "an iterator of a list": iter([*range(100_000)]),
}  # fmt: skip
TAKEN: Final = {"next": NEVER_AGAIN["map"]}


@pytest.mark.parametrize("which", NEVER_AGAIN)
def test_what_a_module_hands_out_once_is_refused_or_doubted(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes other numbers, and only a far one decides."""
    monkeypatch.setitem(TAKEN, "next", NEVER_AGAIN[which])

    async def takes_a_number() -> str:
        while not await ask():
            next(TAKEN["next"])
        return ended(next(TAKEN["next"]) == 50_000)

    assert verdict(takes_a_number, Exploration()) is not Verdict.COMPLETE


# --- no hidden state ----------------------------------------------------------------------------------------------------


async def keeps_all_in_locals() -> str:
    seen = await ask()
    await PAUSE
    return ended(seen == 2)


async def asks_whether_it_is_in_a_set() -> bool:
    await PAUSE
    return "alpha" in {"alpha", "beta"} and "beta" in WORDS


async def sorts_a_set() -> None:
    for word in sorted(WORDS):
        await Note(word, 1)


async def draws_by_a_seed_of_its_own() -> int:
    drawn = Random(0).randrange(1_000)
    await PAUSE
    return drawn


@functools.lru_cache(2)
def doubled(number: int) -> int:
    return 2 * number


async def calls_what_is_cached() -> int:
    number = 0
    while not await ask():
        number = doubled(3) + doubled(4) + doubled(5)
    return number


MEMO: Final[dict[int, int]] = {}
TABLE: Final[Mapping[str, int]] = {"alpha": 1, "beta": 2}


async def remembers_what_it_has_worked_out() -> int:
    while not await ask():
        MEMO.setdefault(3, 6)
    return MEMO.get(3, 6)


async def looks_into_a_table() -> None:
    for word, number in TABLE.items():
        await Note(word, number)


@pytest.mark.parametrize(
    "program",
    [keeps_all_in_locals, asks_whether_it_is_in_a_set, sorts_a_set, draws_by_a_seed_of_its_own, calls_what_is_cached,
     remembers_what_it_has_worked_out, looks_into_a_table],
)  # fmt: skip
def test_a_program_without_any_is_complete(program: Coded) -> None:
    report = explore(scenario(program))
    assert (report.verdict, report.uncovered) == (Verdict.COMPLETE, ())


# --- confirmations ------------------------------------------------------------------------------------------------------


async def only_counts() -> None:
    while not await ask():
        NUMBERS["n"] += 1


def test_state_outside_that_may_decide_later_makes_no_verdict_complete() -> None:
    """Thousands of replies showed no difference, but more may."""
    report = explore(scenario(only_counts))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason == (
        "a changes `NUMBERS`, which is outside of its program and may decide later: keep it in a local, or pass it as an "
        "argument; if nothing reads it, declare Scenario(written_only=('NUMBERS',))"
    )


EVENTS: Final[list[str]] = []
METRICS: Final = Client()


async def only_writes() -> None:
    global count  # noqa: PLW0603
    while not await ask():
        NUMBERS["n"] += 1
        EVENTS.append("asked")
        METRICS.failures += 1
        count += 1


WRITTEN: Final = ("NUMBERS", "EVENTS", "METRICS", "count")


def test_what_is_declared_as_written_only_is_no_doubt() -> None:
    declared = attrs.evolve(scenario(only_writes), always={"holds": lambda _: True}, written_only=WRITTEN)
    report = explore(declared)
    assert report.verdict is Verdict.COMPLETE
    assert report.uncovered == tuple(f"written_only: `{each}` is assumed to be read by nothing" for each in WRITTEN)
    for left_out in WRITTEN:
        report = explore(attrs.evolve(declared, written_only=tuple(each for each in WRITTEN if each != left_out)))
        assert report.verdict is Verdict.INCONCLUSIVE
        assert report.reason.startswith(f"a changes `{left_out}`, which is outside")


async def counts_or_starts() -> None:
    while not await ask():
        try:
            NUMBERS["n"] += 1 + len(EVENTS)
        except KeyError:
            NUMBERS["n"] = 1


async def sets_an_attribute() -> None:
    while not await ask():
        sets_an_attribute.n = getattr(sets_an_attribute, "n", 0) + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("program", "label"),
    [(counts_or_starts, "NUMBERS"), (only_counts, "NUMBERS"), (sets_an_attribute, "sets_an_attribute.__dict__")],
)
def test_a_declaration_is_trusted(program: Coded, label: str) -> None:
    report = explore(attrs.evolve(scenario(program), written_only=(label, "EVENTS")))
    assert report.verdict is Verdict.COMPLETE
    unreached = ("written_only names `EVENTS`, which no code reaches",) * (program is not counts_or_starts)
    assert report.uncovered == (f"written_only: `{label}` is assumed to be read by nothing", *unreached)


def test_a_declaration_hides_no_difference_that_shows() -> None:
    """State read within the thousands of replies still shows."""
    with pytest.raises(Nondeterministic):
        explore(attrs.evolve(scenario(counts_far_in_an_attribute), written_only=("NUMBERS",)))


def test_a_list_of_names_to_declare_is_a_tuple() -> None:
    with pytest.raises(Misuse):
        attrs.evolve(scenario(only_counts), written_only=cast("tuple[str, ...]", "NUMBERS"))


def test_without_snapshots_a_far_count_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: external changes are not seen, so no cycle is repeated thousands of times."""
    monkeypatch.setattr(Reach, "changed", lambda *_: ())
    assert verdict(counts_far_in_a_list, Exploration()) is Verdict.COMPLETE


def test_without_a_second_process_a_hash_seed_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one process has one hash seed."""
    monkeypatch.setattr(confirming, "second_process", lambda: None)
    assert verdict(goes_through_its_argument, Exploration()) is Verdict.COMPLETE


def test_without_the_adapters_there_is_no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Callable[[str], object]:
        def import_module(_: str) -> object:
            raise ModuleNotFoundError(name=name)

        return import_module

    monkeypatch.setattr(confirming, "import_module", missing("tidegate_adapters"))
    assert confirming.second_process.__wrapped__() is None
    monkeypatch.setattr(confirming, "import_module", missing("pickle"))
    with pytest.raises(ModuleNotFoundError):
        confirming.second_process.__wrapped__()


def test_what_cannot_be_sent_is_reported() -> None:
    frame = sys._getframe()  # noqa: SLF001

    async def holds_a_frame() -> bool:
        await PAUSE
        return frame.f_code is None

    report = explore(scenario(holds_a_frame))
    (line,) = [each for each in report.uncovered if "second process" in each]
    assert line.startswith("a was not executed in a second process with another hash seed: ")
    assert line.endswith(": it is in `frame`")


FRAME: Final = sys._getframe()  # noqa: SLF001


async def holds_a_global_frame() -> bool:
    await PAUSE
    return FRAME.f_code is None


async def holds_an_argument(frame: object) -> bool:
    await PAUSE
    return frame is None


@pytest.mark.parametrize(
    ("birth", "name"),
    [(factory(holds_a_global_frame), "FRAME"), (factory(holds_an_argument, FRAME), "frame")],
)
def test_what_cannot_be_sent_is_named(birth: Callable[[int], Program[object]], name: str) -> None:
    report = explore(attrs.evolve(scenario(flips), actors=(Process("a", birth),)))
    (line,) = [each for each in report.uncovered if "second process" in each]
    assert line.endswith(f": it is in `{name}`")


async def is_bad_once() -> str:
    await PAUSE
    COUNTED.append(1)
    return ended(len(COUNTED) == 1)


def test_a_counterexample_is_replayed_with_fresh_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no other confirmation runs."""
    monkeypatch.setattr(Search, "confirm", lambda *_, **__: None)
    COUNTED.clear()
    with pytest.raises(Nondeterministic, match="the counterexample does not happen again with fresh programs: step 1"):
        explore(scenario(is_bad_once))


def test_a_message_names_the_process_the_line_the_cause_and_the_remedy() -> None:
    with pytest.raises(Nondeterministic) as raised:
        explore(scenario(looks_at_the_time))
    assert raised.value.where.startswith("process a, at ")
    assert raised.value.where.endswith(f"test_hidden_state.py:{_line_of(looks_at_the_time)} looks_at_the_time")
    assert raised.value.why == "it depends on a clock: time.time_ns"
    assert "ask for it with an effect" in raised.value.todo


def _line_of(program: Coded) -> int:
    return program.__code__.co_firstlineno + 1


# --- reducers and meanings ----------------------------------------------------------------------------------------------


def draws(state: object, event: object) -> Step[object, Note]:  # noqa: ARG001
    return Step(random.random(), ())


def goes_by_a_hash(state: object, event: object) -> Step[object, Note]:  # noqa: ARG001
    return Step(next(iter(WORDS)), ())


def counts_calls(state: object, event: object) -> Step[object, Note]:  # noqa: ARG001
    COUNTED.append(1)
    return Step(len(COUNTED) > FAR, ())


def commands(state: object, event: object) -> Step[object, Call]:  # noqa: ARG001
    return Step(event, (Call("ask"),) if event == "go" else ())


def merged_by_a_hash(events: Sequence[object]) -> tuple[object, ...]:
    return tuple(frozenset(map(str, events)))


def replies(value: Callable[[], object]) -> Meaning:
    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Call):
            yield world, value()
        else:
            yield from perform(effect, world, who)

    return meaning


def a_reducer(step: Any = commands, event_for: Any = lambda _, reply: reply, **named: Any) -> Scenario:
    process = ReducerProcess("r", None, step, event_for, meaning=replies(named.pop("value", lambda: "came")), **named)
    world = Plain().write(inbox("r"), ("go", "stop"))
    return Scenario(name="r", summary="", world=world, actors=(process,), always={"any": lambda _: True})


REFUSED: Final[Mapping[str, Callable[[], Scenario]]] = {
    "step draws": lambda: a_reducer(draws),
    "step by a hash": lambda: a_reducer(goes_by_a_hash),
    "step counts": lambda: a_reducer(counts_calls),
    "event_for draws": lambda: a_reducer(event_for=lambda *_: random.random()),
    "event_for by a hash": lambda: a_reducer(event_for=lambda *_: next(iter(WORDS))),
    "merge by a hash": lambda: a_reducer(event_for=lambda *_: "came", merge=merged_by_a_hash),
    "meaning draws": lambda: a_reducer(value=random.random),
    "meaning by a hash": lambda: a_reducer(value=lambda: next(iter(WORDS))),
}


TICKED: Final = Cell[str](("ticked",), "")


@attrs.frozen
class Ticking:
    blind: bool
    name: str = "t"
    place: None = None

    def steps(self, world: World) -> Iterator[ActorStep]:
        yield ActorStep(Label("ticks"), world.write(TICKED, next(iter(WORDS))))


def by_a_hash(*_: object) -> bool:
    return next(iter(WORDS)) != "none of them" and list(WORDS).index("alpha") < 2


def with_laws(**named: Any) -> Scenario:
    return attrs.evolve(scenario(flips), **{"always": {}} | named)


def by_a_view(*_: object) -> bool:
    return list(TABLE.keys() & dict.fromkeys(WORDS).keys()) == ["alpha", "beta"]


PREDICATES: Final[Mapping[str, Scenario]] = {
    "view": with_laws(sometimes={"any": by_a_view}),
    "always": with_laws(always={"any": by_a_hash}),
    "step": with_laws(step={"any": by_a_hash}),
    "eventually": with_laws(eventually={"any": by_a_hash}),
    "goal": with_laws(sometimes={"any": by_a_hash}),
    "faults": with_laws(actors=(Process("a", factory(flips), faults=Faults.of(Fault.CRASH_AFTER, on=by_a_hash)),)),
    "actor": with_laws(actors=(Ticking(blind=False),)),
    "blind actor": with_laws(actors=(Ticking(blind=True),)),
    "stamp": a_reducer(stamp=lambda event, _: next(iter(WORDS)) + event),
    "split": a_reducer(split=by_a_hash),
}


@pytest.mark.parametrize("scenario", PREDICATES.values(), ids=PREDICATES)
def test_laws_and_actors_are_confirmed_in_another_process(scenario: Scenario) -> None:
    with pytest.raises(Nondeterministic):
        explore(scenario)


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> bool:
        self.calls += 1
        return True


def looks_outside(*_: object) -> bool:
    return NUMBERS["n"] > -1


def looks_outside_of_the_list(*_: object) -> bool:
    return bool(BOX.items != [2])


BOX: Final = SimpleNamespace(items=COUNTED)


async def counts_in_two_places() -> None:
    COUNTED.clear()
    while not await ask():
        NUMBERS["n"] += 1
        COUNTED.append(1)


@pytest.mark.parametrize(
    "law", [looks_outside, looks_outside_of_the_list, Counting()], ids=["place", "object", "calls"]
)
@pytest.mark.parametrize("kind", ["always", "sometimes", "step", "faults"])
def test_a_law_or_a_predicate_that_depends_on_state_outside_is_doubted(kind: str, law: Any) -> None:
    process = Process("a", factory(counts_in_two_places))
    if kind == "faults":
        process = attrs.evolve(process, faults=Faults.of(Fault.CRASH_BEFORE, on=law))
        kind, law = "always", lambda _: True
    actors = (process, Process("b", factory(flips)))
    report = explore(
        attrs.evolve(with_laws(**{kind: {"outside": law}}), actors=actors, written_only=("NUMBERS", "COUNTED"))
    )
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "outside" in report.reason or "the choice of effects for crash_before of a" in report.reason


def counts_and_denies(_: object) -> bool:
    COUNTED.append(1)
    return False


def counts_and_takes(state: Hashable, _: object) -> tuple[Hashable, object]:
    COUNTED.append(1)
    taken = cast("int", state) + 1
    return taken, taken


def counts_and_lasts_not(_: object) -> None:
    COUNTED.append(1)


def counts_and_performs(effect: Effect[object], world: World, who: str) -> Outcomes:
    COUNTED.append(1)
    return perform(effect, world, who)


async def takes_one() -> None:
    await Note(BEGAN, "take")
    row = await find_one_and_update("rows", Eq(ID, "x"), Add(Field[int]("n"), 1))
    await Note(ENDED, row and row[Field[int]("n")])


ENDS: Final = Process("ends", factory(takes_one))
CALLED_BY_OURS: Final[Mapping[str, tuple[Mapping[str, Any], Meaning]]] = {
    "Linearizable": ({"always": {"one by one": Linearizable(0, counts_and_takes)}}, perform),
    "NoLongerThan": ({"always": {"soon": NoLongerThan(1_000_000, counts_and_lasts_not)}}, perform),
    "when_quiet": ({}, when_quiet((ENDS,), counts_and_performs)),
    "stream": ({}, Stream("s", ("rows",)).meaning(counts_and_performs)),
}


@pytest.mark.parametrize("name", CALLED_BY_OURS)
def test_what_is_handed_to_a_law_or_a_meaning_of_ours_is_confirmed_as_well(name: str) -> None:
    COUNTED.clear()
    laws, meaning = CALLED_BY_OURS[name]
    meaning = meaning if name in ("when_quiet", "stream") else recording()
    report = explore(
        Scenario(
            "ours",
            "",
            world_with({"rows": (Document.of({"_id": "x", "n": 0}),)}),
            (Process("a", factory(takes_one), meaning=meaning), *((ENDS,) if name == "when_quiet" else ())),
            **{"always": {"any": lambda _: True}, **laws},
        )
    )
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "COUNTED" in report.reason


def counts_and_carries_out_nothing(_: object) -> None:
    COUNTED.append(1)


@pytest.mark.parametrize("named", [{"is_timer": counts_and_denies}, {"carried_out": counts_and_carries_out_nothing}])
def test_what_is_asked_of_a_reducer_and_counts_its_calls_is_doubted(named: Mapping[str, Any]) -> None:
    assert explore(a_reducer(**named)).verdict is Verdict.INCONCLUSIVE


def counts_and_prepares(world: World) -> World:
    COUNTED.append(1)
    return world


def test_what_prepares_a_restart_or_delivers_what_is_late_is_confirmed_as_well() -> None:
    scenario = a_reducer()
    (reducer,) = cast("tuple[ReducerProcess]", scenario.actors)
    dead = Cell(("dead", "r"), empty=False)
    restart = Restart("again", (reducer,), dead, prepared=counts_and_prepares)
    prepared = attrs.evolve(scenario, actors=(reducer, Crash("crash", (reducer,), dead), restart), budget=2)
    sends = Process("a", factory(takes_one), Faults.of(Fault.LATE), raises=True)
    late = attrs.evolve(with_laws(), actors=(sends, Network(counts_and_performs)), budget=1)
    for each, who in ((prepared, "again"), (late, "network")):
        assert f"{who} changes `COUNTED`" in explore(each).reason


def test_a_random_number_is_never_proposed_as_written_only() -> None:
    async def draws_for_nothing() -> None:
        while not await ask():
            random.random()
            NUMBERS["n"] += 1

    report = explore(scenario(draws_for_nothing))
    assert "`random.random`" in report.reason
    assert report.reason.endswith("written_only=('NUMBERS',))")


LISTS: Final = {number: [number] for number in range(6_000)}


def test_what_is_not_watched_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def holds_lists() -> bool:
        await PAUSE
        return LISTS is None

    report = explore(scenario(holds_lists))
    assert "a: more than 5,000 objects outside of the program: not all were watched" in report.uncovered
    monkeypatch.setattr(confirming, "_WATCHED_MAX", 0)
    line = (
        "a: the state outside of the program is large, and was not compared at every await: keep large tables immutable"
    )
    assert line in explore(scenario(counts_once)).uncovered


async def counts_once() -> None:
    MEMO.setdefault(3, 6)


def test_a_clock_that_changed_nothing_is_named() -> None:
    """A far time, which is not explored, may decide otherwise."""

    async def waits_for_years() -> bool:
        await PAUSE
        return time.time() > 4e12

    report = explore(scenario(waits_for_years))
    assert report.verdict is Verdict.COMPLETE
    assert [each.partition(":")[0] for each in report.uncovered] == ["a uses time.time"]


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_reducers_and_meanings_are_confirmed_as_programs_are(make: Callable[[], Scenario]) -> None:
    COUNTED.clear()
    with pytest.raises(Nondeterministic) as raised:
        explore(make())
    assert raised.value.where.startswith("process r")


def test_a_pure_reducer_is_complete() -> None:
    report = explore(a_reducer(merge=tuple))
    assert (report.verdict, report.uncovered) == (Verdict.COMPLETE, ())


# --- reachable state ----------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("count", "never")

    def __init__(self) -> None:
        self.count = 0

    def up(self) -> None:
        self.count += 1


SLOTTED: Final = Slotted()
UP: Final = SLOTTED.up
LATER: Final = functools.partial(UP)
BYTES: Final = bytearray(b"\0")
NUMBERED: Final = count_from(0)
CHOSEN: Final[set[int]] = set()
NOT_A_NUMBER: Final = [float("nan")]
CIRCULAR: Final[list[object]] = []
CIRCULAR.append(CIRCULAR)
MODULE: Any = ModuleType("mine")
MODULE.__file__ = "/mine/mine.py"
MODULE.count = 0


def once() -> Iterator[int]:
    yield from range(100)


class Drawn:
    __slots__ = ("__n",)

    def __init__(self) -> None:
        self.__n = 0

    def __iter__(self) -> Drawn:
        return self

    def __next__(self) -> int:
        self.__n += 1
        return self.__n


class Hostile:
    @property
    def anything(self) -> object:
        raise RuntimeError

    def __getattr__(self, name: str) -> object:
        raise RuntimeError

    def __get__(self, *_: object) -> object:
        raise RuntimeError


class Described:
    hostile = Hostile()


NAMESPACE: Final = SimpleNamespace(n=0)
GENERATOR: Final = once()
DRAWS: Final = Random(1)
DRAWN: Final = Drawn()
LISTED: Final = iter([1, 2, 3])
MAPPED: Final = map(abs, count_from())
HIDDEN: Final = {"n": 0}
PROXY: Final = MappingProxyType(HIDDEN)
EMPTY: Final[dict[int, int]] = {}
ORDERED: Final = ChainMap[int, int]({})
MOCK: Final = Mock()
HOSTILE: Final = Hostile()
DESCRIBED: Final = Described()


class Counts(type):
    made = 0

    def __call__(cls, *given: object) -> object:
        Counts.made += 1
        return super().__call__(*given)


class Counted(metaclass=Counts):
    pass


HAPPENED: Final = threading.Event()
OF_THE_LOOP: Final = asyncio.Event()
MACHINE_WORDS: Final = array("i", [0])
IN_MEMORY: Final = io.StringIO()
BY_PERSON: Final[WeakKeyDictionary[Client, int]] = WeakKeyDictionary()


@functools.lru_cache(2)
def bounded(number: int) -> list[int]:
    return [number]


def changing() -> object:
    beside = NAMESPACE, GENERATOR, DRAWS, DRAWN, LISTED, MAPPED, PROXY, EMPTY, ORDERED, MOCK, HOSTILE, DESCRIBED
    first = A_LARGE_TABLE, SLOTTED, UP, LATER, BYTES, NUMBERED, CHOSEN
    of_libraries = HAPPENED, OF_THE_LOOP, MACHINE_WORDS, IN_MEMORY, BY_PERSON, Counted
    return first, NOT_A_NUMBER, CIRCULAR, MODULE.count, bounded, beside, of_libraries


def counts_in_another_module() -> None:
    MODULE.count += 1


def sets_a_global() -> None:
    global not_there_yet  # noqa: PLW0603
    not_there_yet = 1  # type: ignore[name-defined]


CHANGES: Final[Mapping[str, Callable[[], object]]] = {
    "SLOTTED": UP,
    "UP": UP,
    "LATER": UP,
    "BYTES": lambda: BYTES.append(1),
    "NUMBERED": lambda: next(NUMBERED),
    "CHOSEN": lambda: CHOSEN.add(len(CHOSEN)),
    "NOT_A_NUMBER": lambda: NOT_A_NUMBER.append(0),
    "CIRCULAR": lambda: CIRCULAR.append(1),
    "MODULE.count": counts_in_another_module,
    "bounded": lambda: bounded(1).append(1),
    "NAMESPACE": lambda: setattr(NAMESPACE, "n", 1),
    "GENERATOR": lambda: next(GENERATOR),
    "DRAWS": DRAWS.random,
    "DRAWN": lambda: next(DRAWN),
    "LISTED": lambda: next(LISTED),
    "MAPPED": lambda: next(MAPPED),
    "PROXY": lambda: HIDDEN.update(n=1),
    "EMPTY": lambda: EMPTY.update({1: 1}),
    "ORDERED": lambda: ORDERED.update({1: 1}),
    "MOCK": MOCK,
    "HAPPENED": HAPPENED.set,
    "OF_THE_LOOP": OF_THE_LOOP.set,
    "MACHINE_WORDS": lambda: MACHINE_WORDS.append(1),
    "IN_MEMORY": lambda: IN_MEMORY.write("a"),
    "BY_PERSON": lambda: BY_PERSON.update({CLIENT: 1}),
    "Counts.made": Counted,
    "A_LARGE_TABLE": lambda: A_LARGE_TABLE.update({9: (0, ("a", "b"))}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_code_reaches_is_seen(name: str) -> None:
    bounded(1)
    reach = reached(changing, counts_in_another_module, sets_a_global)
    before = reach.snapshot()
    assert reach.changed(before) == ()
    CHANGES[name]()
    assert name in reach.changed(before)


def test_a_generator_of_random_numbers_is_named() -> None:
    """One that draws from the operating system has no state."""
    assert reached(changing).randoms == ("DRAWS",)
    drawing = SystemRandom()
    reach = reached(lambda: drawing)
    assert reach.randoms == ("drawing",)
    assert reach.changed(reach.snapshot()) == ()


def test_a_global_that_is_not_there_yet_is_seen_to_appear() -> None:
    globals().pop("not_there_yet", None)
    reach = reached(sets_a_global)
    before = reach.snapshot()
    sets_a_global()
    assert reach.changed(before) == ("not_there_yet",)


def names_sources() -> object:
    return now_ns(), drawn(), datetime.now(), attrs.NOTHING  # noqa: DTZ005


def test_clocks_and_random_numbers_are_named() -> None:
    reach = reached(names_sources)
    assert reach.clocks == ("datetime.now", "now_ns")
    assert reach.randoms == ("drawn",)
    before = reach.snapshot()
    drawn()
    assert reach.changed(before) == ("drawn",)


class Job:
    now = 3
    choice = 4
    clock = staticmethod(time.time)


JOB: Final = Job()
HANDED: Final = {"now": time.time}
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001


def imports_a_module() -> object:
    import time as clock  # noqa: TID251

    return clock.time()


def imports_a_name() -> object:
    from random import expovariate  # noqa: TID251

    return lambda: expovariate(1)


def is_given(now: Any = time.time) -> object:
    return now()


def keeps(now: Any = None) -> object:
    now = time.monotonic
    return now()


def hands_on() -> object:
    return is_handed(time)


def is_handed(module: Any) -> object:
    return module.time_ns()


@pytest.mark.parametrize(
    ("function", "clocks", "randoms"),
    [
        (imports_a_module, ("clock.time",), ()),
        (imports_a_name, (), ("expovariate",)),
        (is_given, ("time.time",), ()),
        (keeps, ("now",), ()),
        (hands_on, ("time.time_ns",), ()),
        (lambda: [HANDED["now"]()], ("time.time",), ()),
        (lambda: [JOB.clock()], ("time.time",), ()),
        (lambda: [EPOCH.now()], ("EPOCH.now",), ()),
        (lambda: [os.times()], ("os.times",), ()),
        (lambda: os.getrandom(1), (), ("os.getrandom",)),
        (lambda: [random.Random()], (), ("random.Random",)),
        (lambda: time.strftime("%H"), ("time.strftime",), ()),
        (lambda: (time.strftime("%H", (0,) * 9), time.sleep, time.strptime), (), ()),
        (lambda: (os.sep, NUMBERS["choice"], random.Random(5).sample([1], 1)), (), ()),
        (lambda row: (datetime(1970, 1, 1), row.now, random.seed), (), ()),  # noqa: DTZ001
    ],
)
def test_a_source_is_named_by_its_path(function: Any, clocks: object, randoms: object) -> None:
    reach = reached(function)
    assert (reach.clocks, reach.randoms) == (clocks, randoms)


def only_looks_up(key: str) -> object:
    return TABLE[key], HIDDEN.get(key), 1 in KEPT


def changes_one() -> None:
    HIDDEN["n"] += 1


def test_a_table_that_code_only_looks_up_is_not_compared() -> None:
    reach = reached(only_looks_up)
    assert {reach.places[number][0] for number in reach.still} == {"TABLE", "HIDDEN", "KEPT"}
    reach = reached(only_looks_up, changes_one)
    before = reach.snapshot()
    changes_one()
    assert reach.changed(before) == ("HIDDEN",)


def test_a_variable_without_a_value_is_none() -> None:
    def names_later() -> object:
        return later

    assert reached(names_later).snapshot() == ()
    later = 1
    assert names_later() == 1


INSTALLED: Final = """
from tidegate.model.effects import Call

RUNS = []

async def counts():
    RUNS.append(1)
    await Call("ask")

def is_kept(state):
    return bool(RUNS)

class Keeper:
    def keeps(self):
        return RUNS
"""


def test_code_of_the_users_that_is_installed_is_watched_and_what_it_uses_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages" / "harbour").mkdir(parents=True)
    (tmp_path / "site-packages" / "harbour" / "__init__.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    harbour = importlib.import_module("harbour")

    async def uses() -> None:
        await harbour.counts()

    for root in (
        harbour.counts,
        factory(harbour.counts),
        recalling(harbour.is_kept),
        when_quiet((), harbour.is_kept),
        factory(increment, "a", "b", harbour.Keeper()),
    ):
        assert "RUNS" in [label for label, _, _ in reached(root).places]
    assert "RUNS" not in [label for label, _, _ in reached(uses).places]


def counts_and_computes(_: Document) -> int:
    COUNTED.append(1)
    return 1


COMPUTED: Final = Computed(counts_and_computes)
WATCHED: Final = Projection(computed=(("total", COMPUTED),))


@pytest.mark.parametrize("part", [COMPUTED, WATCHED, ReactiveTask(name="t", source="s", watched=WATCHED)])
def test_a_function_that_a_part_of_a_program_of_tidegate_was_made_of_is_watched(part: Any) -> None:
    reach = reached(factory(increment, "a", "b", part))
    assert reach.has_code
    assert "COUNTED" in [label for label, _, _ in reach.places]


async def takes_a_snapshot(watched: Projection) -> None:
    doc = await find_one("rows", Eq(ID, "x"))
    assert doc is not None
    await Note("seen", snapshot(doc, watched) is not None)


def test_a_computed_value_that_counts_its_calls_makes_no_verdict_complete() -> None:
    programs = tuple(Process(name, factory(takes_a_snapshot, WATCHED)) for name in ("a", "b"))
    world = world_with({"rows": (Document.of({"_id": "x"}),)})
    report = explore(Scenario("computed", "", world, programs, always={"any": lambda _: True}))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "a changes `COUNTED`" in report.reason


# --- loops --------------------------------------------------------------------------------------------------------------


async def goes_between() -> None:
    said = await Call("ask", (0,))
    while True:
        said = await Call("ask", (said,))


async def goes_on() -> None:
    await Call("ask")
    await Call("then")


@pytest.mark.parametrize(("program", "cycles"), [(goes_between, 4), (goes_on, 0)])
def test_each_cycle_is_repeated(program: Coded, cycles: int) -> None:
    automaton = ProgramAutomaton(lambda _: cast("Program[object]", program()))
    automaton.start(0)
    for node in automaton.nodes:  # they grow on the way
        for said in (1, 2) if isinstance(node.status, Asking) else ():
            automaton.after(automaton.nodes.index(node), said)
    runs = list(loops(automaton, most=9, replies=100))
    assert len(runs) == cycles
    assert all(len(run.loop) * run.times >= 100 for run in runs)
    assert case_of(automaton, tuple(runs)).execute() is None


def test_a_program_that_uses_tidegate_wrongly_when_it_is_run_again_differs() -> None:
    asked = iter([Note("said", 1)])

    class Odd:
        def __await__(self) -> Iterator[object]:
            yield next(asked, 5)

    async def once() -> None:
        await cast("Note", Odd())

    automaton = ProgramAutomaton(lambda _: once())
    automaton.start(0)
    (run,) = planned(automaton)
    found = case_of(automaton, (run,)).execute()
    assert found is not None
    assert "UnknownEffect" in found.what


def test_a_run_through_a_merge_goes_on_to_its_end() -> None:
    async def remembers_for_long() -> str:
        NUMBERS["n"] = await Call("which")  # type: ignore[assignment]
        for _ in range(60):
            await PAUSE
        return ended(NUMBERS["n"])

    automaton = ProgramAutomaton(lambda _: remembers_for_long())
    at = merged = automaton.after(automaton.start(0), 0)
    for _ in range(60):
        at = automaton.after(at, None)
    assert automaton.after(automaton.start(0), 1) == merged
    found = case_of(automaton, planned(automaton)).execute()
    assert found is not None
    assert "(after 61 replies)" in found.what


def test_a_reducer_that_raises_when_it_is_called_again_differs() -> None:
    found = CallCase("r", "step", "", lambda: 1 // 0, (((), 1),)).execute()
    assert found is not None
    assert found.what == "step() first returned 1 and then raised ZeroDivisionError: integer division or modulo by zero"
