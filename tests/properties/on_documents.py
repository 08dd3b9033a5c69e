from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tidegate.model.documents import Document, Field, Value
from tidegate.model.effects import Effect, Failure, Program
from tidegate.model.errors import Misuse
from tidegate.sim.runs.report import explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.world import Meaning, Plain, World, perform, world_with

T = TypeVar("T")

WRONG: tuple[Value, ...] = (None, True, -7, 1.5, "", "no", b"", (7,), ("no",), (Document(),), Document())


def done(world: Plain, *effects: Effect[object]) -> Plain:
    for effect in effects:
        ((after, _),) = perform(effect, world, "a")
        assert isinstance(after, Plain)
        world = after
    return world


def run(
    program: Program[T],
    world: World,
    fails: Callable[[Effect[object]], Failure | None] = lambda _: None,
    means: Meaning = perform,
) -> tuple[T, World]:
    reply: object = None
    while True:
        try:
            asked = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
        except StopIteration as stop:
            return stop.value, world
        reply = fails(asked)
        if reply is None:
            ((world, reply),) = means(asked, world, "caller")


def one(program: Callable[[], Program[object]], contents: Mapping[str, tuple[Document, ...]]) -> object:
    process = Process("a", lambda _: program())
    scenario = Scenario("one", "one program alone", world_with(contents), (process,))
    assert explore(scenario).ok
    return process.behaviour.nodes[-1].status


def spoiled(value: Value) -> Iterator[Value]:
    yield from WRONG
    if isinstance(value, Document):
        for name, part in value.items:
            yield value.without(Field[object](name))
            yield from (value.put(Field[object](name), wrong) for wrong in spoiled(part))
    elif isinstance(value, tuple) and value:
        yield from ((wrong, *value[1:]) for wrong in spoiled(value[0]))


def is_read_or_misuse(read: Callable[[Document], object], good: Document) -> bool:
    """Check that each spoiled document is read or raises Misuse, and that some raise it."""
    _ = read(good)
    refused = 0  # of some that are not documents, too
    for bad in spoiled(good):
        try:
            _ = read(bad)  # type: ignore[arg-type]
        except Misuse:
            refused += 1
    return refused > len(WRONG)  # these are no records, except the last
