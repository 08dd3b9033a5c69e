"""A suspended program as a value: what merges, and that merging changes no result."""

from __future__ import annotations

import ast
import dis
import enum
import gc
import re
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from random import Random  # noqa: TID251  seeded
from typing import Any, Final, NamedTuple, TypeVar, cast

import attrs
import pytest
from tests.properties.plain_search import explored

from tidegate.model import bytecode
from tidegate.model.bytecode import _first_of_each_class, _uses, split_pair, suspensions
from tidegate.model.documents import ID, Add, Document, Eq, Field, exactly
from tidegate.model.effects import Call, Effect, Failure, Note, Refused
from tidegate.model.errors import Misuse, Nondeterministic
from tidegate.model.immutable import is_value, must_be_value
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.sim.program import automaton, fingerprint
from tidegate.sim.program.automaton import Returned
from tidegate.sim.program.fingerprint import Canon, Unmergeable
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import Bounds, Explored, go_on
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import calling, world_with

T = TypeVar("T")
Coded = Callable[[], Coroutine[Effect[object], object, object]]
N = Field[int]("n")
ROW = Eq(ID, "x")
REPLIES = (1, 2, Refused("no"), Refused("never"))
RANDOM_PROGRAMS = 20
STATES_MAX = 200


async def ask() -> int:
    return cast("int", await Call("ask"))


async def row() -> int:
    found = await find_one("rows", ROW)
    return found[N] if found else -1


async def other() -> None:
    for _ in range(2):
        await find_one_and_update("rows", ROW, Add(N, 1))


def scenario(program: Coded, *replies: object, faults: Faults = Faults()) -> Scenario:
    return Scenario(
        name=program.__name__,
        summary="",
        world=world_with({"rows": (Document.of({"_id": "x", "n": 0}),)}),
        actors=(
            Process("p", factory(program), faults, calling({"ask": replies or REPLIES})),
            Process("other", factory(other)),
        ),
        budget=1 if faults.kinds else 0,
    )


# --- programs in every style --------------------------------------------------------------------------------------------


async def straight() -> object:
    first = await ask()
    second = await row()
    return first, second


async def polls() -> object:
    while await row() < 2:
        pass
    return "there"


async def polls_a_bounded_number_of_times() -> object:
    for nth in range(3):
        if await row() > 1:
            return nth
    return "never"


async def loops_over_a_tuple() -> object:
    total = 0
    for factor in (1, 10):
        total += factor * await row()
    return total


async def loops_in_a_loop() -> object:
    seen: tuple[object, ...] = ()
    for index, word in enumerate(("a", "b")):
        for left, right in zip(range(1), ("c",), strict=True):
            number = await row()
            seen = (*seen, index, word, left, right, number)
    return seen


async def unpacks_while_it_asks() -> object:
    seen: tuple[object, ...] = ()
    for _ in range(2):
        seen = (*seen, await row())
    return seen


async def dead_locals() -> object:
    first = await ask()
    kept = first > 1
    del first
    await row()
    return kept


async def nested() -> object:
    async def inner(depth: int) -> int:
        return await row() if depth == 0 else await inner_of(depth - 1)

    return await inner(0)


async def inner_of(depth: int) -> int:
    return await row() + depth


async def passes_arguments() -> object:
    return together(await ask(), await row(), last=await row())


def together(*items: object, **named: object) -> object:
    return items, tuple(named.items())


async def tries() -> object:
    try:
        answer: object = await ask()
    except Refused as refused:
        answer = refused.reason
    await row()
    return answer


async def tries_again() -> object:
    for _ in range(2):
        try:
            return await ask()
        except Failure:
            continue
    return await row()


async def handles_while_it_asks() -> object:
    try:
        return await ask()
    except Refused:
        await row()
        raise


async def handles_an_error_of_its_own() -> object:
    try:
        await ask()
        raise ValueError  # noqa: TRY301  it must be raised here
    except ValueError as error:
        await row()
        return type(error.__context__).__name__


async def handles_deep_down() -> object:
    try:
        return await ask()
    except Refused:
        await raises_again()
        return None


async def raises_again() -> None:
    await row()
    raise  # noqa: PLE0704  whatever its caller handles


async def looks_at_the_context() -> object:
    try:
        return await ask()
    except Refused:
        await row()
        try:
            raise ValueError  # noqa: TRY301  it must be raised here
        except ValueError as error:
            return str(error.__context__)


async def handles_what_has_a_cause() -> object:
    try:
        try:
            return await ask()
        except Refused as refused:
            raise ValueError(refused.reason) from refused
    except ValueError as error:
        await row()
        return str(error.__cause__)


async def handles_two() -> object:
    try:
        return await ask()
    except Refused as first:
        try:
            return await ask()
        except Refused as second:
            await row()
            return (first.reason, second.reason, str(second.__context__))


async def cleans_up() -> object:
    try:
        return await ask()
    finally:
        await row()


async def cleans_up_without_asking() -> object:
    seen = 0
    try:
        seen = await ask()
    except Refused:
        seen = -1
    finally:
        seen += 10
    await row()
    return seen


@attrs.frozen
class Quiet:
    name: str

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        pass


async def within_a_value() -> object:
    for name in ("a", "b"):
        with Quiet(name):
            await row()
    return "out"


@contextmanager
def generated() -> Iterator[int]:
    yield 1


async def within_a_generator() -> object:
    with generated() as one:
        return one + await row()


async def collects() -> object:
    found = []
    for _ in range(2):
        found.append(await row())  # noqa: PERF401  a comprehension is another case
    return tuple(found)


async def comprehends() -> object:
    return tuple([await row() for _ in range(2)])


async def numbers() -> AsyncIterator[int]:
    for _ in range(2):
        yield await row()


async def iterates() -> object:
    total = 0
    async for number in numbers():
        total += number
    return total


async def steps_another_one_itself() -> object:
    async def inner() -> object:
        first = await ask()
        await row()
        return first

    program = inner()
    asked = program.send(None)
    while True:
        reply = await asked
        try:
            asked = program.send(reply)
        except StopIteration as stop:
            return stop.value


async def keeps_one_that_is_over() -> object:
    async def returns() -> None:
        pass

    program = returns()
    program.close()
    await row()
    return repr(type(program))


async def counts_in_a_closure() -> object:
    count = 0

    def more() -> None:
        nonlocal count
        count += 1

    while count < 2:
        await row()
        more()
    return count


async def loops_over_what_may_change() -> object:
    names = ["a", "b"]
    seen = 0
    for name in names:
        for other in {"c": 1, "d": 2}.items():
            for third in ("e",):
                seen = len(name + other[0] + third) + await row()
    for name in reversed(["a", "b"]):
        seen = len(name) + await row()
    for name in (name + "c" for name in ("a", "b")):
        seen = len(name) + await row()
    for length in map(len, filter(None, ["a", "b"])):
        seen = length + await row()
    return seen


async def asks_in_a_function_of_its_own() -> object:
    count = 0

    async def asks() -> int:
        nonlocal count
        count += 1
        return await row()

    for _ in [1, 2]:
        count = min(count, await asks())
    return count


async def keeps_a_lambda() -> object:
    for _ in range(2):
        double: Callable[[int], int] = lambda number: 2 * number  # noqa: E731  a function as a value
        await row()
        double(1)
    return "done"


async def keeps_a_method() -> object:
    quiet = Quiet("a").__enter__
    await row()
    return quiet()


async def keeps_an_object() -> object:
    held = object()
    await row()
    return held is None


async def keeps_parts_on_the_stack() -> object:
    return tuple({"a": 1, "b": await row()}.items())


class Odd:
    def __await__(self) -> Generator[object, object, None]:
        return cast("Generator[object, object, None]", iter((Note("odd", 1),)))


async def awaits_an_iterator() -> object:
    await Odd()
    return "done"


@types.coroutine
def old_style() -> Generator[Effect[object], object, int]:
    answer = yield Call("ask")
    return cast("int", answer)


async def awaits_a_generator() -> object:
    answer = await cast("Awaitable[int]", old_style())
    await row()
    return answer


MERGED: tuple[Coded, ...] = (
    straight, polls_a_bounded_number_of_times, loops_over_a_tuple, loops_in_a_loop, dead_locals, passes_arguments, tries,
    tries_again, nested, keeps_parts_on_the_stack, cleans_up_without_asking, within_a_value, keeps_a_lambda, keeps_a_method, awaits_a_generator,
    handles_while_it_asks, handles_an_error_of_its_own, handles_deep_down, looks_at_the_context, cleans_up, comprehends, counts_in_a_closure,
    unpacks_while_it_asks, loops_over_what_may_change, asks_in_a_function_of_its_own,
    steps_another_one_itself,
)  # fmt: skip
UNMERGED: tuple[Coded, ...] = (
    handles_what_has_a_cause, handles_two, within_a_generator, collects, iterates, keeps_an_object, awaits_an_iterator,
    keeps_one_that_is_over,
)  # fmt: skip


def by_name(program: Coded) -> str:
    return program.__name__


@pytest.mark.parametrize("program", MERGED, ids=by_name)
def test_these_programs_are_values(program: Coded) -> None:
    assert not explore(scenario(program)).unmerged


@pytest.mark.parametrize("program", UNMERGED, ids=by_name)
def test_these_programs_are_not_values_and_the_report_says_where(program: Coded) -> None:
    unmerged = explore(scenario(program)).unmerged
    assert unmerged
    assert all(re.match(r"p: (test_fingerprint\.py:[0-9]+ \w+|it awaits a \w+)", where) for where in unmerged)


def observed(found: Explored) -> set[object]:
    slots = [slot for slot in found.search.space.packing.slots.values() if slot.name[0] != "process"]
    return {
        (
            frozenset((slot.name, exactly(slot.get(state))) for slot in slots if slot.get(state) is not slot.values[0]),
            frozenset(
                (name, exactly(process.status(found.search.space.packing.slots["process", name].get(state))))
                for name, process in found.search.space.processes.items()
            ),
        )
        for state in found.search.seen
    }


@pytest.mark.parametrize("program", [*MERGED, *UNMERGED], ids=by_name)
def test_merging_changes_nothing_that_can_be_seen(program: Coded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares with programs that are told apart by their reply history."""
    faults = Faults.of(Fault.LOST_REPLY, Fault.CRASH_BEFORE)
    merged = explored(scenario(program, faults=faults))
    monkeypatch.setattr(automaton, "fingerprint", lambda *_: Unmergeable("it is not asked for"))
    by_history = explored(scenario(program, faults=faults))
    assert observed(merged) == observed(by_history)
    assert merged.states <= by_history.states
    assert (merged.broken, by_history.broken) == (None, None)


def test_what_lies_above_what_is_awaited_is_stale() -> None:
    """An empty slot below the await counts, as before a call; further ones do not."""

    async def passes_on() -> object:
        with suppress(Refused):
            await ask()
        return str(await ask())

    keys = set()
    for reply in (1, Refused("no")):
        program = passes_on()
        program.send(None)
        _ = program.throw(reply) if isinstance(reply, Refused) else program.send(reply)
        keys.add(fingerprint.fingerprint(program, Canon()))
        program.close()
    assert len(keys) == 1


def test_a_poll_without_end_is_a_finite_cycle() -> None:
    report = explore(scenario(polls))
    assert (report.verdict, report.states) == (Verdict.COMPLETE, 4)


# --- code that is compiled twice ----------------------------------------------------------------------------------------


async def polls_in_the_body() -> object:
    while True:
        if await row() >= 2:
            break
    return "there"


async def cleans_up_on_two_ways() -> object:
    while True:
        try:
            if await row() < 1:
                continue
            if await ask() == 1:
                return "there"
        finally:
            await row()


@pytest.mark.parametrize(
    ("program", "awaits", "different"),
    [(polls, 2, 1), (polls_in_the_body, 1, 1), (cleans_up_on_two_ways, 6, 5), (straight, 2, 2)],
    ids=["while", "while True", "finally", "once"],
)
def test_an_await_that_is_compiled_twice_is_one(program: Coded, awaits: int, different: int) -> None:
    """A loop condition, or a `finally` left for the same place by two ways."""
    compiled = [step for step in dis.get_instructions(program.__code__) if step.opname == "YIELD_VALUE"]
    assert len(compiled) == awaits
    assert len({point.at for point in suspensions(program.__code__).values()}) == different


def test_a_loop_has_as_many_states_wherever_its_condition_is_written() -> None:
    """CPython compiles the condition of a `while` twice."""
    assert explore(scenario(polls)).states == explore(scenario(polls_in_the_body)).states


@pytest.mark.parametrize("same_line", [False, True])
def test_an_error_is_reported_on_the_line_that_raises_it(*, same_line: bool) -> None:
    """Two awaits with equal instructions differ by their position."""
    end = " " if same_line else "\n        "
    text = f"async def program():\n    if await ask() == 1:{end}await row(); fail()\n    else:{end}await row(); fail()"
    made: dict[str, Coded] = {}
    exec(text, {"ask": ask, "row": row, "fail": fails_twice}, made)  # noqa: S102  the text stands above
    report = explore(scenario(made["program"], 1, 2))
    assert report.verdict is Verdict.VIOLATED
    places = [point.at for point in suspensions(made["program"].__code__).values()]
    assert len(set(places)) == 3


AWAITED = ("await row() < 2", "await ask() == 1", "await row() and await ask() == 1", "not await row()")
CONDITIONS = (*AWAITED, "seen % 2")
SIMPLE = ("await row()", "seen = await ask()", "seen = (seen + await row()) % 3", "seen = 1", "seen = 2", "raise Refused('own')",
          "return seen")  # fmt: skip


CHANGES = (
    ("seen = 1", "seen = 2"), ("if ", "if not "), ("while ", "while not "), ("break", "continue"), ("finally:", "except Refused:"),
    ("except Refused:", "except ValueError:"), ("return", "await row(); return"), ("raise", "seen = 1; raise"),
)  # fmt: skip


def block(draw: Random, depth: int, *, loops: bool, indent: str) -> str:
    lines: list[str] = []
    for _ in range(draw.randint(1, 3)):
        kind = (
            draw.choice(("simple", "twins", "twins", "if", "while", "for", "finally", "except", "leave"))
            if depth
            else "simple"
        )
        inner = partial(block, draw, depth - 1, indent=f"{indent}  ")
        match kind:
            case "twins":
                one = inner(loops=loops)
                was, now = draw.choice([pair for pair in CHANGES if pair[0] in one] or [("", "")])
                lines += [f"{indent}if await ask() == 1:", one, f"{indent}else:", one.replace(was, now, 1)]
            case "if":
                lines += [f"{indent}if {draw.choice(CONDITIONS)}:", inner(loops=loops)]
                lines += [f"{indent}else:", inner(loops=loops)] if draw.randint(0, 1) else []
            case "while":
                lines += [f"{indent}while {draw.choice(AWAITED)}:", inner(loops=True)]
            case "for":
                lines += [f"{indent}for seen in (1, 2):", inner(loops=True)]
            case "finally":
                lines += [f"{indent}try:", inner(loops=loops), f"{indent}finally:", inner(loops=loops)]
            case "except":
                lines += [f"{indent}try:", inner(loops=loops), f"{indent}except Refused:", inner(loops=loops)]
            case "leave" if loops:
                lines += [f"{indent}{draw.choice(('break', 'continue'))}"]
            case _:
                lines += [f"{indent}{draw.choice(SIMPLE)}"]
    return "\n".join(lines)


def drawn(seed: int) -> Coded:
    """A random program with one source position for all instructions, to merge most."""
    tree = ast.parse(
        f"async def program():\n  seen = 0\n{block(Random(seed), 3, loops=False, indent='  ')}\n  return seen"
    )
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = 1  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    made: dict[str, Coded] = {}
    exec(compile(tree, "drawn.py", "exec"), {"ask": ask, "row": row, "Refused": Refused}, made)  # noqa: S102  drawn above
    return made["program"]


_Classes = Callable[..., list[int]]


def kept_apart(steps: Sequence[object], *_: object) -> list[int]:
    return list(range(len(steps)))


def without_arguments(classes: _Classes, steps: Sequence[dis.Instruction], *rest: object) -> list[int]:
    return classes([step._replace(arg=None) for step in steps], *rest)


def without_handlers(classes: _Classes, steps: object, after: object, caught: list[object], depth: object) -> list[int]:
    return classes(steps, after, [[] for _ in caught], depth)


def without_jumps(classes: _Classes, steps: object, after: list[object], *rest: object) -> list[int]:
    return classes(steps, [[] for _ in after], *rest)


def without_direction(classes: _Classes, steps: Sequence[dis.Instruction], *rest: object) -> list[int]:
    return classes([step._replace(opname=step.opname.replace("IF_FALSE", "IF_TRUE")) for step in steps], *rest)


def seen_by(classes: _Classes, program: Coded, monkeypatch: pytest.MonkeyPatch) -> tuple[set[object] | None, int]:
    """Visible results under these instruction classes (None if endless), and the state count."""
    with monkeypatch.context() as patched:
        patched.setattr(bytecode, "_first_of_each_class", classes)
        suspensions.cache_clear()
        alone = scenario(program, 1, 2, Refused("no"))
        alone = attrs.evolve(alone, actors=(*alone.actors[:1], Process("other", factory(once))))
        found = attempt(alone, lambda search: search.run(Bounds(states=STATES_MAX), go_on))
    suspensions.cache_clear()
    return (None if found.stopped else observed(found)), found.states


async def once() -> None:
    await find_one_and_update("rows", ROW, Add(N, 2))


@pytest.fixture
def dropped() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.usefixtures("dropped")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_merging_what_is_compiled_twice_changes_nothing_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = 0
    for seed in range(RANDOM_PROGRAMS):
        (merged, states), (apart, more) = (
            seen_by(classes, drawn(seed), monkeypatch) for classes in (_first_of_each_class, kept_apart)
        )
        if apart is None:
            continue
        assert merged == apart, seed
        assert states <= more, seed
        fewer += states < more
    assert fewer > RANDOM_PROGRAMS // 10


@pytest.mark.usefixtures("dropped")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wrong", [without_arguments, without_handlers, without_jumps, without_direction])
def test_classes_that_leave_something_out_are_found(wrong: _Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = _first_of_each_class

    def is_found(seed: int) -> bool:
        apart = seen_by(kept_apart, drawn(seed), monkeypatch)
        try:
            return seen_by(partial(wrong, classes), drawn(seed), monkeypatch)[0] != apart[0]
        except (Nondeterministic, AssertionError):
            return True

    assert any(map(is_found, range(RANDOM_PROGRAMS)))


# --- programs that stay apart -------------------------------------------------------------------------------------------


class Won(NamedTuple):
    n: int


class Lost(NamedTuple):
    n: int


class Colour(enum.StrEnum):
    RED = "red"


class Level(int):
    pass


class Busy(Exception):  # noqa: N818  as users name them
    def __init__(self, until: int) -> None:
        super().__init__("busy")
        self.until = until


@attrs.define
class Box:
    n: int = attrs.field(validator=attrs.validators.instance_of(int))


async def named_tuples() -> object:
    answer = Won(1) if await ask() == 1 else Lost(1)
    await row()
    return type(answer).__name__


async def text_and_enum() -> object:
    colour = "red" if await ask() == 1 else Colour.RED
    await row()
    return type(colour).__name__


async def numbers_alike() -> object:
    number: object = 1 if await ask() == 1 else True
    await row()
    return type(number).__name__


async def zeros() -> object:
    number = 0.0 if await ask() == 1 else -0.0
    await row()
    return str(number)


async def is_busy(until: int) -> None:
    raise Busy(until)


def fails_twice(number: int) -> None:
    try:
        raise KeyError(number)  # noqa: TRY301  it must be raised here
    except KeyError:
        raise ValueError from None


async def kept_errors() -> object:
    kept: Busy | None = None
    try:
        await is_busy(await ask())
    except Busy as busy:
        kept = busy
    await row()
    return kept and kept.until


async def errors_with_a_cause() -> object:
    kept: ValueError | None = None
    try:
        fails_twice(await ask())
    except ValueError as error:
        kept = error
    await row()
    return str(kept and kept.__context__)


async def boxes() -> object:
    box = Box(0)
    wanted = await ask()
    while box.n < wanted:
        await row()
        box.n += 1
    return box.n


async def reads_all_locals() -> object:
    hidden = await ask()
    await row()
    return locals()["hidden"]


async def swallowed() -> object:
    try:
        await Call("fail")
    except Failure as failure:
        await row()
        return str(failure)
    return None


async def functions_with_defaults() -> object:
    def name(number: int = await ask()) -> int:
        return number

    await row()
    return name()


async def functions_with_notes() -> object:
    def name() -> object:
        return vars(name)["said"]

    vars(name)["said"] = await ask()
    await row()
    return name()


async def on_the_stack() -> object:
    return (await ask(), await row())[0]


async def iterates_over_what_it_was_told() -> object:
    for number in [await ask(), 0]:
        await row()
        if number:
            return number
    return 0


async def is_further_in_a_list() -> object:
    numbers = iter([1, 2])
    for number in numbers if await ask() == 1 else [2]:
        await row()
        if number:
            return number
    return 0


async def draws_from_one_or_from_two() -> object:
    one, other = iter((0,) * 4), iter((0,) * 4)
    if await ask() == 1:
        other = one
    else:
        next(one)
        next(other)
    rounds = -1
    for _ in zip(one, other, strict=False):
        await row()
        rounds += 1
    return rounds


def ones() -> Iterator[int]:
    for each in (1, 1, 1, 1):  # noqa: UP028  what `yield from` iterates over is no value
        yield each


async def draws_from_one_generator_or_from_two() -> object:
    one, other = ones(), ones()
    if await ask() == 1:
        other = one
    else:
        next(one)
        next(other)
    rounds = 0
    for _ in zip(one, other, strict=False):
        await row()
        rounds += 1
    return rounds


async def shares_an_iterator_with_a_generator() -> object:
    one, other = iter((0,) * 4), iter((0,) * 4)
    if await ask() == 1:
        other = one
    else:
        next(one)
        next(other)
    rounds = 0
    for _ in zip(one, (each for each in other), strict=False):
        await row()
        rounds += 1
    return rounds


async def takes_the_first_of_a_set() -> object:
    numbers = frozenset((0, 8.0)) if await ask() == 1 else frozenset((8.0, 0))
    await row()
    return next(iter(numbers))


async def handles_one_error_of_two_lines() -> object:
    told = await ask()
    try:
        if told == 1:
            raise KeyError  # noqa: TRY301
        raise KeyError  # noqa: TRY301
    except KeyError as error:
        told = 0
        await row()
        at = cast("types.TracebackType", error.__traceback__)
        return at.tb_lineno - at.tb_frame.f_code.co_firstlineno


async def keeps_one_error_of_two_lines() -> object:
    told, kept = await ask(), None
    try:
        if told == 1:
            raise KeyError  # noqa: TRY301
        raise KeyError  # noqa: TRY301
    except KeyError as error:
        kept = error
    told = 0
    await row()
    at = cast("types.TracebackType", kept.__traceback__)
    return at.tb_lineno - at.tb_frame.f_code.co_firstlineno


class Both:
    def __init__(self, held: object) -> None:
        self.held = held

    def __await__(self) -> Generator[Effect[object], object, object]:
        return (None, self.held, (yield find_one("rows", Eq(ID, "r"))))[1]


async def awaits_what_is_its_own() -> object:
    told = await ask()
    both = Both(told)
    del told
    return await both


async def adds_a_name() -> object:
    told = await ask()
    exec("zz = 3")  # noqa: S102
    kept = (told, (told := 0), await row())
    return kept[0]


async def holds_its_own_code() -> object:
    code = sys._getframe().f_code  # noqa: SLF001
    told = await ask()
    kept = (told, (told := 0), await find_one("rows", ROW))
    code = None  # type: ignore[assignment]
    await row()
    return (kept[0], code)[0]


def of_another_module(limit: int) -> Callable[[], Awaitable[object]]:
    text = "async def finish():\n    await row()\n    return LIMIT\n"
    names: dict[str, Any] = {"row": row, "LIMIT": limit}
    exec(compile(text, "handler.py", "exec"), names)  # noqa: S102
    found: Callable[[], Awaitable[object]] = names["finish"]
    return found


VERSIONS: Final = {1: of_another_module(1), 2: of_another_module(2)}


async def runs_one_text_of_two_modules() -> object:
    return await VERSIONS[await ask()]()


def made_elsewhere(number: int) -> Callable[[], int]:
    return lambda: number


async def keeps_a_function_of_another_one() -> object:
    chosen = made_elsewhere(await ask())
    await row()
    return chosen()


TOLD_APART: Mapping[Coded, frozenset[object]] = {
    named_tuples: frozenset({"Won", "Lost"}),
    text_and_enum: frozenset({"str", "Colour"}),
    numbers_alike: frozenset({"int", "bool"}),
    zeros: frozenset({"0.0", "-0.0"}),
    kept_errors: frozenset({1, 2}),
    errors_with_a_cause: frozenset({"1", "2"}),
    boxes: frozenset({1, 2}),
    reads_all_locals: frozenset({1, 2}),
    functions_with_defaults: frozenset({1, 2}),
    functions_with_notes: frozenset({1, 2}),
    on_the_stack: frozenset({1, 2}),
    iterates_over_what_it_was_told: frozenset({1, 2}),
    is_further_in_a_list: frozenset({1, 2}),
    draws_from_one_or_from_two: frozenset({1, 2}),
    draws_from_one_generator_or_from_two: frozenset({2, 3}),
    shares_an_iterator_with_a_generator: frozenset({2, 3}),
    takes_the_first_of_a_set: frozenset({0, 8.0}),
    handles_one_error_of_two_lines: frozenset({4, 5}),
    keeps_one_error_of_two_lines: frozenset({4, 5}),
    awaits_what_is_its_own: frozenset({1, 2}),
    adds_a_name: frozenset({1, 2}),
    holds_its_own_code: frozenset({1, 2}),
    runs_one_text_of_two_modules: frozenset({1, 2}),
    keeps_a_function_of_another_one: frozenset({1, 2}),
    steps_another_one_itself: frozenset({1, 2}),
}


def results(found: Explored) -> set[object]:
    process = found.search.space.processes["p"]
    slot = found.search.space.packing.slots["process", "p"]
    statuses = (process.status(place) for place in slot.values if place is not None)
    return {standing.value for standing in statuses if isinstance(standing, Returned)}


@pytest.mark.parametrize("program", TOLD_APART, ids=by_name)
def test_programs_that_go_on_differently_are_told_apart(program: Coded) -> None:
    alone = scenario(program, 1, 2)
    alone = attrs.evolve(alone, actors=alone.actors[:1])  # a reply is received once, so none replaces another
    assert results(explored(alone)) == TOLD_APART[program]


def test_an_exception_that_is_handled_is_not_forgotten() -> None:
    """A bare `raise` uses interpreter state, which is part of the value."""
    failed = {str(standing) for standing in statuses(explored(scenario(handles_while_it_asks, *REPLIES[2:])))}
    assert {"failed: Refused(no)", "failed: Refused(never)"} <= failed


def statuses(found: Explored) -> list[object]:
    process = found.search.space.processes["p"]
    return [
        process.status(place) for place in found.search.space.packing.slots["process", "p"].values if place is not None
    ]


# --- the parts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    amount: Decimal
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slotted:
    parts: tuple[object, ...]


@dataclass
class Loose:
    number: int


class Below(Price):
    pass


class Own(Decimal):
    pass


VALUES: tuple[object, ...] = (
    None, True, 1, 1.5, "a", b"a", int, Colour.RED, (1, ("a",)), frozenset({1}), Document.of({"n": 1}), Refused("no"),
    ValueError("a", 1), Quiet("a"), Quiet("a").__enter__, by_name, len, sys.intern, Won(1), sys,
    Decimal("1.50"), Decimal("nan"), Fraction(1, 2), Price(Decimal(1), (1,)), Slotted((Colour.RED,)), (Decimal(1), sys),
)  # fmt: skip


def with_closure() -> Callable[[], object]:
    held: list[object] = []
    return lambda: held


def with_keywords(*, held: object = 1) -> object:
    return held


def with_mutable_default(held: list[int] = [1]) -> object:  # noqa: B006  the case in point
    return held


NO_VALUES: tuple[object, ...] = (
    [1], {"a": 1}, {1}, (1, [2]), frozenset({Busy(1)}), object(), Box(1), Busy(1), ValueError([1]),
    Quiet(cast("str", [])), Box(1).__repr__, [].append, with_closure(), with_keywords, with_mutable_default,
    Price(Decimal(1), cast("tuple[int, ...]", [1])), Loose(1), Below(Decimal(1), (1,)), Own(1),
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_these_are_values(value: object) -> None:
    assert is_value(value)
    must_be_value(value, "it")
    assert Canon().key(value) == Canon().key(value) is not None


@pytest.mark.parametrize("thing", NO_VALUES, ids=lambda thing: type(thing).__name__)
def test_these_are_not_values(thing: object) -> None:
    assert not is_value(thing)
    assert Canon().key(thing) is None
    with pytest.raises(Misuse, match="immutable"):
        must_be_value(thing, "it")


class Grants(frozenset[str]):
    pass


class Liar(str):
    __slots__ = ("more",)

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = str.__hash__


class Slot:
    __slots__ = ("more",)


@attrs.frozen
class Filled(Slot):
    n: int


class Failing(Exception):  # noqa: N818  as users name them
    __slots__ = ("more",)


@attrs.frozen
class Length:
    text: str

    @cached_property
    def length(self) -> int:
        return len(self.text)


def with_more(item: T, more: object) -> T:
    object.__setattr__(item, "more", more)
    return item


def compiled(number: int) -> object:
    space: dict[str, object] = {"NUMBER": number}
    exec("def function(): return NUMBER", space)  # noqa: S102  the text stands above
    return space["function"]


LOOK_ALIKE: Mapping[str, tuple[object, object]] = {
    "what Python keeps of an error": (FileNotFoundError(2, "no", "a"), FileNotFoundError(2, "no", "b")),
    "the name of an import": (ImportError("no", name="a"), ImportError("no", name="b")),
    "a slot of an error": (with_more(Failing(), 1), with_more(Failing(), 2)),
    "an attribute of a failure": (Refused("no"), with_more(Refused("no"), "no")),
    "a set of another kind": (frozenset("r"), Grants("r")),
    "a text of another kind": ("a", Liar("a")),
    "texts that say they are equal": (Liar("a"), Liar("b")),
    "a number of another kind": (Level(1), 1),
    "globals": (compiled(0), compiled(1)),
}


@pytest.mark.parametrize("alike", LOOK_ALIKE)
def test_values_that_look_alike_have_two_keys(alike: str) -> None:
    one, other = LOOK_ALIKE[alike]
    assert None not in {Canon().key(one), Canon().key(other)}
    assert Canon().key(one) != Canon().key(other)
    assert exactly(one) != exactly(other)


@pytest.mark.parametrize("held", [with_more(Filled(1), 2), with_more(Liar("a"), 2)], ids=["attrs", "str"])
def test_a_slot_that_is_no_field_makes_no_value(held: object) -> None:
    with pytest.raises(Misuse, match=r"a reply is a \w+, which is not known to be immutable") as refused:
        explore(scenario(straight, held))
    assert refused.value.why == "no field holds its 'more'"


def test_what_a_cached_property_keeps_in_a_slot_is_part_of_the_value() -> None:
    assert Length("a").length == 1
    looked = Length("a")
    assert looked.length == 1
    assert Canon().key(looked) == Canon().key(Length("a")) is not None


def test_a_value_that_holds_what_may_change_is_looked_through_again() -> None:
    canon, word = Canon(), Liar("a")
    held = Quiet(word)
    assert canon.key(held) is not None
    with_more(word, 1)
    assert canon.key(held) is None


def test_numbers_that_are_equal_and_print_otherwise_have_two_keys() -> None:
    assert Decimal("1.0") == Decimal("1.00")
    assert Canon().key(Decimal("1.0")) != Canon().key(Decimal("1.00"))
    assert Canon().key(Price(Decimal(1), ())) != Canon().key(Price(cast("Decimal", 1), ()))


@pytest.mark.parametrize(
    ("thing", "part"),
    [
        (((1, [2]),), "a list in `[0][1]`"),
        (Price(Decimal(1), cast("tuple[int, ...]", [1])), "a list in `parts`"),
        (Quiet(cast("str", {})), "a dict in `name`"),
        (Box(1).__repr__, "a Box in `__self__`"),
        (with_closure(), "a list in `held`"),
        (Call("a", (with_closure(),)), "a list in `held of arguments[0]`"),
    ],
)
def test_a_message_names_the_part_that_may_change(thing: object, part: str) -> None:
    with pytest.raises(Misuse, match=re.escape(f"it holds {part}, which is not known to be immutable")):
        must_be_value(thing, "it")


async def polls_with(held: object) -> None:
    while await Call("ask") is not held:
        pass


@pytest.mark.parametrize(
    ("held", "local"),
    [((1, [2]), "held[1] is a list"), (with_closure(), "held of held is a list"), (Busy(1), "held is a Busy")],
)
def test_why_a_program_is_not_a_value_names_the_local_and_its_part(held: object, local: str) -> None:
    program = polls_with(held)
    program.send(None)
    found = fingerprint.fingerprint(program, Canon())
    assert isinstance(found, Unmergeable)
    assert found.reason.endswith(f"local {local}, which is not immutable")


def closing_over(content: object) -> Callable[[], object]:
    return lambda: content


def calls_itself() -> Callable[[], object]:
    def function() -> object:
        return function

    return function


@pytest.mark.parametrize("make", [lambda: closing_over(1), calls_itself], ids=["a value", "itself"])
def test_a_program_may_hold_a_function_that_closes_over_values(make: Callable[[], object]) -> None:
    keys = set()
    for held in (make(), make(), closing_over(2)):
        program = polls_with(held)
        program.send(None)
        keys.add(fingerprint.fingerprint(program, Canon()))
    assert len(keys) == 2


def test_what_is_remembered_of_values_is_bounded() -> None:
    canon = Canon()
    kept = [float(number) for number in range(10_010)]
    for each in kept:
        canon.key(each)
    assert 0 < len(canon.known) <= 10_000


def test_functions_are_the_same_if_they_would_do_the_same() -> None:
    """Each run creates its functions, so code and defaults decide."""
    makes: Callable[[], object] = lambda: lambda number=1: number  # noqa: E731  each call makes another one
    assert Canon().key(makes()) == Canon().key(makes())
    assert Canon().key(Quiet("a").__enter__) == Canon().key(Quiet("a").__enter__) != Canon().key(Quiet("b").__enter__)


def test_a_python_whose_bytecode_is_not_known_merges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "_KNOWN_PYTHONS", ())
    (where,) = explore(scenario(straight, 1)).unmerged[:1]
    assert where == f"p: the bytecode of Python {sys.version_info[0]}.{sys.version_info[1]} is not known"


def test_an_await_that_is_not_known_merges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "suspensions", lambda _: {})
    unmerged = explore(scenario(straight, 1)).unmerged
    assert all("no known await" in where for where in unmerged)
    assert unmerged


def test_only_what_may_be_read_again_is_live() -> None:
    """A local that is written before it is read does not affect the future."""

    async def program(given: int) -> int:
        await row()
        kept = given
        await row()
        given = 1
        return kept + given

    lives = [set(point.live) for point in dict.fromkeys(suspensions(program.__code__).values())]
    assert {"given"} in lives
    assert {"kept"} in lives
    assert all(live <= {"given", "kept"} for live in lives)


USES: Mapping[tuple[str, object], tuple[AbstractSet[str], AbstractSet[str]]] = {
    ("LOAD_FAST", "a"): ({"a"}, set()),
    ("LOAD_FAST_CHECK", "a"): ({"a"}, set()),
    ("STORE_FAST", "a"): (set(), {"a"}),
    ("DELETE_FAST", "a"): ({"a"}, {"a"}),
    ("LOAD_FAST_AND_CLEAR", "a"): ({"a"}, {"a"}),
    ("LOAD_CONST", 1): (set(), set()),
}


@pytest.mark.parametrize(("name", "argument"), USES)
def test_every_instruction_on_locals_is_known(name: str, argument: object) -> None:
    step = cast("dis.Instruction", types.SimpleNamespace(opname=name, argval=argument))
    assert _uses(step) == USES[name, argument]


@pytest.mark.parametrize("name", ["LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"])
def test_an_instruction_on_two_locals_stands_for_two(name: str) -> None:
    step = next(dis.get_instructions(by_name))._replace(opname=name, arg=0x12, argval=("b", "c"))
    first, second = split_pair(step)
    assert f"{first.opname}_{second.opname}" == name
    assert (first.arg, first.argval, second.arg, second.argval) == (1, "b", 2, "c")
    assert {first.opcode, second.opcode} <= {dis.opmap["LOAD_FAST"], dis.opmap["STORE_FAST"]}
