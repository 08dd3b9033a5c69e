"""A trace: one run as a value, step by step, from the beginning to the step that breaks a law.

It holds the decisions (who moved, and what happened) and what they changed: the first state in full, then a JSON patch a
step. So it can be printed, encoded, shown as a page, and replayed exactly: the replay takes the recorded decisions in the
scenario as it is today and compares every patch. Where it cannot, it names the first step that differs.

Laws
    TC1  decoding an encoded trace gives the same trace.
    TC2  replaying a trace in the scenario that it came from reproduces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final, TypeAlias, assert_never, cast, final

import attrs

from tidegate.documents import INT64, Document, Value, checked, one_line, show
from tidegate.errors import Misuse
from tidegate.instants import seconds
from tidegate.patches import (
    Added,
    Json,
    Patch,
    Removed,
    Replaced,
    applied,
    difference,
    from_json,
    patch_from_json,
    patch_to_json,
    to_json,
)
from tidegate.sim.explore import Hand, Search, attempt
from tidegate.sim.packing import Lens, Looked, Packed
from tidegate.sim.scenario import Scenario
from tidegate.sim.world import CLOCK

SCHEMA: Final = "tidegate/trace@1"
HIDDEN: Final = frozenset({"ids", "wakes", "unique"})
"""Cells that only serve the store and the clock; what they say is seen elsewhere."""
EMPTY: Final = Document()
PICTURED_MAX: Final = 50
"""What is nested deeper than that is told as text; documents hold 100."""


@final
@attrs.frozen
class TraceStep:
    """One step.

    Attributes:
        process: Who moved.
        what: What happened, in words; with the process it is the decision that a replay takes.
        fault: Which fault it was, or "".
        patch: What it changed.
    """

    process: str
    what: str
    fault: str
    patch: Patch


@final
@attrs.frozen
class Trace:
    """One run.

    Attributes:
        scenario: The scenario's name, or `path.py:attr` where it is not a shipped one.
        version: Of tidegate, when it was recorded.
        law: The law that the last step breaks; "" for none.
        time: Which kind of time it ran in.
        seed: Of the sampled run that it came from; None for an exhaustive search.
        processes: The lanes, in order.
        initial: The first state.
        steps: What happened then.
    """

    scenario: str
    version: str
    law: str
    time: str
    seed: str | None
    processes: tuple[str, ...]
    initial: Document
    steps: tuple[TraceStep, ...]

    def states(self) -> Iterator[Document]:
        """Every state, the first one included."""
        state: Value = self.initial
        yield self.initial
        for step in self.steps:
            state = applied(step.patch, state)
            yield cast("Document", state)


# --- recording ----------------------------------------------------------------------------------------------------------


def recorded(
    search: Search, path: tuple[Packed, ...], *, law: str, version: str, time: str, seed: str | None = None
) -> Trace:
    """The trace of a path that a search found.

    Args:
        search: The search, which knows what the packed states mean.
        path: Its states, each one step after the one before.
        law: What the last state, or step, breaks.
        version: Of tidegate.
        time: Which kind of time.
        seed: Of the sampled run, if it is one.
    """
    states = list(accumulate(path, lambda like, state: described(search, state, like), initial=EMPTY))[1:]
    steps = []
    for index, (before, after) in enumerate(pairwise(path)):
        who, step = search.chosen(before, after)
        patch = difference(states[index], states[index + 1])
        steps.append(TraceStep(who, one_line(str(step.label)), step.fault or "", patch))
    lanes = tuple(hand.name for hand in search.hands)
    return Trace(search.scenario.name, version, law, time, seed, lanes, states[0], tuple(steps))


Branch: TypeAlias = "dict[str, Branch | Value]"


def described(search: Search, state: Packed, like: Document = EMPTY) -> Document:
    """The state as a tree that people can read: where each process stands, then every cell that is not empty.

    Keys stand in the order in which they stood in `like`, the state before, so that a patch tells of nothing else.
    """
    lens = Lens(search.packing, state, Looked())
    tree: Branch = {
        "processes": {
            printable_key(name): pictured(process.standing(lens.read(process.place)))
            for name, process in search.processes.items()
            if process.place is not None
        }
    }
    for name, slot in sorted(search.packing.slots.items()):
        value = slot.get(state)
        if name[0] in HIDDEN or name[0] == "process" or value is slot.values[0]:
            continue
        branch = tree
        for part in map(printable_key, name[:-1]):
            below = branch.setdefault(part, {})
            if not isinstance(below, dict):  # a cell whose name begins like another one's
                below = branch[part] = {"": below}
            branch = below
        branch[printable_key(name[-1])] = named_notes(value) if name[0] == "notes" else pictured(value)
    if search.scenario.clock is not None and not search.relative:
        tree["clock"] = seconds(lens.read(CLOCK).at)
    return planted(tree, like)


def planted(tree: Branch, like: Value) -> Document:
    """The tree as a document, its keys in the order of `like` and new ones last."""
    before = like if isinstance(like, Document) else EMPTY
    old = [key for key, _ in before.items if key in tree]
    keys = [*old, *(key for key in tree if key not in old)]
    had = dict(before.items)
    items: list[tuple[str, Value]] = []
    for key in keys:
        value = tree[key]
        items.append((key, planted(value, had.get(key)) if isinstance(value, dict) else value))
    return Document(tuple(items))


def named_notes(value: object) -> Value:
    said = cast("tuple[tuple[str, object], ...]", value)
    return Document(tuple((printable_key(name), pictured(each)) for name, each in said))


def printable_key(name: str) -> str:
    """A name as documents can have it."""
    return name if name.isprintable() else show(name)


def pictured(value: object, depth: int = 1) -> Value:
    """Any value as one that a document can hold: frozen values by field, and what has a text of its own as that."""
    match value:
        case int() if value not in INT64:
            return str(value)
        case str() if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return show(value)
        case bool() | int() | float() | str() | bytes() | None | Document():
            return value
        case tuple() if depth < PICTURED_MAX:
            return tuple(pictured(item, depth + 1) for item in value)
        case _:
            return pictured_by_field(value, depth)


def pictured_by_field(value: object, depth: int) -> Value:
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is None or type(value).__str__ is not object.__str__ or depth >= PICTURED_MAX:
        return show(value)
    return Document(
        tuple(
            (field.name.lstrip("_"), pictured(getattr(value, field.name), depth + 1)) for field in fields if field.repr
        )
    )


# --- replaying ----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Reproduced:
    """Every step happened as recorded."""

    steps: int


@final
@attrs.frozen
class Diverged:
    """The scenario does something else than was recorded.

    Attributes:
        step: The first step that differs, counted from 1; 0 for the first state.
        reason: What differs.
        enabled: What could have happened instead, as `process: what`.
    """

    step: int
    reason: str
    enabled: tuple[str, ...] = ()


Replayed: TypeAlias = Reproduced | Diverged


def replay(trace: Trace, scenario: Scenario) -> Replayed:
    """Take the recorded decisions in the scenario, and compare what they change.

    Args:
        trace: The recorded run.
        scenario: The scenario as it is today.
    """
    clock = scenario.clock
    if clock is not None and trace.time.startswith("absolute"):  # it may have been relative but for another run
        scenario = attrs.evolve(scenario, clock=attrs.evolve(clock, horizon=None))
    return attempt(scenario, lambda search: replayed(trace, search))


def replayed(trace: Trace, search: Search) -> Replayed:
    state = search.first
    before = described(search, state)
    if difference(trace.initial, before):
        return Diverged(0, f"the first state differs: {told(difference(trace.initial, before))}")
    for number, step in enumerate(trace.steps, 1):
        enabled = list(choices(search.hands, state))
        chosen = [after for who, what, after in enabled if (who, what) == (step.process, step.what)]
        if not chosen:
            there = tuple(f"{who}: {what}" for who, what, _ in enabled)
            return Diverged(number, f"{step.process} cannot: {step.what}", there)
        patches = {after: difference(before, described(search, after, before)) for after in chosen}
        state = next((after for after, patch in patches.items() if patch == step.patch), chosen[0])
        if patches[state] != step.patch:
            return Diverged(number, f"{step.process}: {step.what} changes something else: {told(patches[state])}")
        before = described(search, state, before)
    return Reproduced(len(trace.steps))


def choices(hands: list[Hand], state: Packed) -> Iterator[tuple[str, str, Packed]]:
    """Who may do what in the state, and where it leads."""
    for hand in hands:
        for step, after in hand.steps(state):
            yield hand.name, one_line(str(step.label)), after


# --- encoding -----------------------------------------------------------------------------------------------------------


def encoded(trace: Trace) -> dict[str, Json]:
    """The trace as plain JSON."""
    return {
        "schema": SCHEMA,
        "meta": {
            "scenario": trace.scenario,
            "version": trace.version,
            "law": trace.law,
            "time": trace.time,
            "seed": trace.seed,
        },
        "processes": list(trace.processes),
        "initial": to_json(trace.initial),
        "steps": [
            {
                "i": number,
                "process": step.process,
                "what": step.what,
                "fault": step.fault,
                "patch": patch_to_json(step.patch),
            }
            for number, step in enumerate(trace.steps, 1)
        ],
    }


def decoded(json: object) -> Trace:
    """The trace that was encoded.

    Raises:
        Misuse: it is no trace, or one of another version.
    """
    if not isinstance(json, dict) or not str(json.get("schema", "")).startswith("tidegate/trace@"):
        raise Misuse("this is no trace", todo="traces are written by tidegate explore")
    if json["schema"] != SCHEMA:
        raise Misuse(f"a trace of version {json['schema']!r}", why=f"this tidegate reads {SCHEMA!r}")
    try:
        meta = cast("dict[str, str]", json["meta"])
        steps = tuple(
            TraceStep(text(step["process"]), text(step["what"]), text(step["fault"]), patch_from_json(step["patch"]))
            for step in cast("list[dict[str, object]]", json["steps"])
        )
        initial = from_json(json["initial"])
        if not isinstance(initial, Document):
            raise Misuse("the first state of a trace is an object")
        seed = cast("str | None", meta["seed"])
        trace = Trace(
            text(meta["scenario"]),
            text(meta["version"]),
            text(meta["law"]),
            text(meta["time"]),
            None if seed is None else text(seed),
            tuple(text(name) for name in cast("list[object]", json["processes"])),
            initial,
            steps,
        )
        for state in trace.states():  # the patches fit
            assert isinstance(state, Document)
    except (KeyError, TypeError, AttributeError, AssertionError) as error:
        raise Misuse("a trace is damaged", why=f"{type(error).__name__}: {error}") from error
    return trace


def text(item: object) -> str:
    if isinstance(item, str):
        checked(item, "a trace")
        return item
    raise Misuse(f"a trace has {item!r} where a text belongs")


# --- printing -----------------------------------------------------------------------------------------------------------


def story(trace: Trace) -> str:
    """The trace for people: a line a step, and below it what changed."""
    width = max(map(len, trace.processes), default=0)
    lines = [
        f"{one_line(trace.scenario)}: "
        + (f"breaks the law: {one_line(trace.law)}" if trace.law else "no law is broken")
    ]
    lines += [f"{len(trace.steps)} steps, {one_line(trace.time + (f', seed {trace.seed}' if trace.seed else ''))}"]
    for number, step in enumerate(trace.steps, 1):
        fault = f"  [{one_line(step.fault)}]" if step.fault else ""
        lines.append(f"{number:>4}  {one_line(step.process):<{width}}  {one_line(step.what)}{fault}")
        if seen := told(tuple(change for change in step.patch if not is_routine(change))):
            lines.append(f"{'':>4}  {'':<{width}}    {seen}")
    if trace.law:
        lines.append(f"{'':>4}  {'':<{width}}  <- {one_line(trace.law)}: broken here")
    return "\n".join(lines) + "\n"


def is_routine(change: Added | Removed | Replaced) -> bool:
    """Where a process stands next is told by its next step; only how it ends is news."""
    if change.path.startswith("/budget"):
        return True
    return (
        change.path.startswith("/processes/")
        and not isinstance(change, Removed)
        and isinstance(change.value, str)
        and change.value.startswith("about to")
    )


def told(patch: Patch) -> str:
    """The patch on one line."""
    return "; ".join(map(sentence, patch))


def sentence(change: Added | Removed | Replaced) -> str:
    match change:
        case Added(path, value):
            return f"+ {one_line(path)}: {show(value)}"
        case Removed(path):
            return f"- {one_line(path)}"
        case Replaced(path, value):
            return f"{one_line(path)} := {show(value)}"
        case _:
            assert_never(change)
