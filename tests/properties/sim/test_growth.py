"""An endless search names what grows: locals, cells, fields of documents."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from tidegate.model.documents import ID, Add, Document, Eq, Field, Push
from tidegate.model.effects import Call, Program
from tidegate.model.operations import find_one, insert_one, upsert_one
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.report import Report, explore
from tidegate.sim.scenario import Actor, Scenario
from tidegate.sim.search.growth import DEPTH_MIN
from tidegate.sim.search.search import Progress
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.world.world import Cell, Outcomes, Plain, World, notes, perform
from tidegate.transactions.transacting import in_transaction

ROW = Eq(ID, "x")
N = Field[int]("n")


async def counts() -> None:
    tries = 0
    while await find_one("c", ROW) is None:
        tries += 1


async def collects() -> None:
    seen: tuple[str, ...] = ()
    while await find_one("c", ROW) is None:
        seen = (*seen, "")


async def counts_for_another() -> None:
    begun = ["kept"]  # it is no value, so the first await is not merged
    await asks("first")
    tries, kept = 0, begun[0]
    del begun
    await asks("second")
    while True:
        await asks(kept)
        tries -= 1


async def asks(key: str) -> None:
    await find_one("c", Eq(ID, key))


@attrs.frozen
class Round:
    number: int
    is_last: bool = False


async def counts_in_a_value() -> None:
    turn = Round(0)
    while True:
        await asks("a")
        turn = Round(turn.number + 1)


async def keeps_a_list() -> None:
    seen = []
    while True:
        seen.append(1)
        await find_one("c", ROW)


async def notes_more() -> None:
    while True:
        for _ in range(3):
            pass
        await Call("more")


async def adds() -> None:
    while True:
        await upsert_one("d", ROW, Add(N, 1))


async def pushes() -> None:
    while True:
        await upsert_one("d", Eq(ID, 7), Push(Field[tuple[int, ...]]("l"), 1))


async def inserts(letters: str = "") -> None:
    while True:
        await insert_one("d", Document.of({"_id": letters}))
        letters += "a"


MORE = Cell[tuple[Round, ...]](("more", "of it"), ())


def growing(effect: object, world: World, who: str) -> Outcomes:
    if isinstance(effect, Call):
        yield world.write(MORE, (*world.read(MORE), Round(1))), None
    else:
        yield from perform(effect, world, who)  # type: ignore[arg-type]


def explored(*actors: Actor, depth: int = DEPTH_MIN) -> tuple[str, ...]:
    report: Report = explore(
        Scenario("s", "", Plain(), actors, always={"fine": lambda _: True}), Exploration(depth_max=depth)
    )
    return report.uncovered[1:]


BOUND = "bound it, or let the programs stop"
AGAIN = "bound the loop, as by `for attempt in range(3)`, or do not keep it across the await"
HERE = "tests/properties/sim/test_growth.py"


def line(program: Callable[..., object], after: int) -> str:
    return f"{HERE}:{program.__code__.co_firstlineno + after} {program.__name__}"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            counts,
            (f"p: the local `tries` of counts grows each time around at {line(counts, 2)}, 129 times so far: {AGAIN}",),
        ),
        (
            collects,
            (
                f"p: the local `seen` of collects grows each time around at {line(collects, 2)}, 129 times so far: {AGAIN}",
            ),
        ),
        (
            counts_for_another,
            (
                f"p: the local `tries` of counts_for_another grows each time around at {line(asks, 1)}, 127 times so far: {AGAIN}",
            ),
        ),
        (
            keeps_a_list,
            (
                (
                    f"p: each pass of a loop is a new state: {line(keeps_a_list, 4).removeprefix('tests/properties/sim/')}: local seen is a "
                    "list, which is not immutable; keep immutable values across an await"
                ),
            ),
        ),
        (
            counts_in_a_value,
            (
                f"p: the local `turn` of counts_in_a_value grows each time around at {line(asks, 1)}, 129 times so far: {AGAIN}",
            ),
        ),
        (adds, (f"growing: the document 'x' of 'd', in `n`, 128 values so far: {BOUND}",)),
        (pushes, (f"growing: the document '7' of 'd', in `l`, 128 values so far: {BOUND}",)),
        (notes_more, (f"growing: the cell more of it, 128 values so far: {BOUND}",)),
    ],
)
def test_what_grows_is_named(program: Callable[[], Program[None]], told: tuple[str, ...]) -> None:
    assert explored(Process("p", factory(program), meaning=growing)) == told


def test_what_grows_beside_others_is_named() -> None:
    local, cell = explored(Process("p", factory(inserts)), Process("q", factory(asks, "a")))
    assert local.startswith("p: the local `letters` of inserts grows each time around")
    assert cell == f"growing: the collection 'd', 128 values so far: {BOUND}"


def test_notes_inboxes_and_states_of_reducers_that_grow_are_named() -> None:
    async def notes_all() -> None:
        while True:
            await Call("note")

    def noting(_: object, world: World, who: str) -> Outcomes:
        cell = notes(who)
        yield world.write(cell, (*world.read(cell), ("a", "b"))), None

    assert explored(Process("p", factory(notes_all), meaning=noting)) == (
        f"growing: the notes of p, 128 values so far: {BOUND}",
    )


def test_a_retry_without_an_end_is_said_to_want_a_policy_that_gives_up() -> None:
    async def pays() -> None:
        await upsert_one("d", ROW, Add(N, 1))

    one, other = (Process(name, factory(in_transaction, name, pays)) for name in "pq")
    told = explored(one, other, Expiry((one, other)), depth=320)
    assert [each.split(", ", 1)[0] for each in told if not each.startswith("growing: the cell session")] == [
        f"{name}: in_transaction tries again without an end" for name in "pq"
    ]
    assert told[0].endswith("in a scenario give it a policy that gives up, as policy=Policy(..., attempts_max=2)")


def test_what_is_long_and_ends_is_not_named() -> None:
    async def turns() -> None:
        for nth in range(200):
            await find_one("c", Eq(ID, str(nth % 2)))

    assert explored(Process("p", factory(turns))) == ()
    assert explored(Process("p", factory(counts)), depth=DEPTH_MIN - 1) == ()


def test_the_progress_of_a_search_names_what_grows() -> None:
    seen: list[Progress] = []

    def proceed(progress: Progress) -> bool:
        seen.append(progress)
        return progress.depth < 2 * DEPTH_MIN

    explore(Scenario("s", "", Plain(), (Process("p", factory(counts)),)), proceed=proceed)
    assert seen[DEPTH_MIN - 2].growing == ()
    assert len(seen[DEPTH_MIN].growing) == len(seen[-1].growing) == 1
