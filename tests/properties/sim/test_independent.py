"""The simulator agrees with a brute-force search that shares no code with it.

`tests.properties.plain_search` uses the real actors, and so has their faults. The search here
interprets everything a second time, from the documentation (`tests.properties.independent`). Each
number is one scenario: programs, one in five reducers, one in ten consumers of a group. The
comparison covers all visible states, rests and changes, faults, the verdict, the broken law, the
length of a shortest counterexample, its replay, and goals. In relative time the independent search
also compares itself with absolute time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pytest
from tests import length
from tests.properties.independent import groups, machines
from tests.properties.independent.scenarios import DiffersError, compared, drawn
from tests.properties.sim.test_search import PLANTED as PLANTED_IN_THE_SEARCH

from tidegate.consumer.protocol.commands import Lost, Records
from tidegate.model.documents import ID, AllOf, Document, Exists
from tidegate.model.effects import Refused
from tidegate.model.errors import TidegateError
from tidegate.reactive.planning.change_stream import After
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.program.fingerprint import Canon
from tidegate.sim.scenario import ActorStep, Scenario
from tidegate.sim.search.liveness import Graph
from tidegate.sim.search.properties import Always, Between
from tidegate.sim.search.search import Reductions, Search
from tidegate.sim.search.space import Space
from tidegate.sim.search.steppers import Overwriting, Remembering
from tidegate.sim.search.symmetry import Renaming, Symmetry
from tidegate.sim.servers.actors import STARTS_AGAIN, Network, Process
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.failover import Behind, Failover
from tidegate.sim.servers.group import NO_GENERATION, Coordinator, Group
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Restart
from tidegate.sim.servers.streams import KEPT, Forgetful, Stream
from tidegate.sim.world.cells import EARLIER, First
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Faults
from tidegate.sim.world.packing import Lens, Looked, Slot
from tidegate.sim.world.transactions import Open
from tidegate.sim.world.world import CLOCK, DOCUMENTS, FLIGHT, NOTES, PROCESS, UNCONFIRMED, WAKES, Cell

CHUNKS = 10


def compare(number: int) -> None:
    match number % CHUNKS:
        case 7 | 8:
            machines.compared(machines.drawn_reducers(f"reducers {number}"))
        case 9:
            groups.compared(groups.drawn_groups(f"groups {number}"))
        case _:
            reductions = Reductions(symmetry=number % 4 != 0)
            compared(drawn(f"little {number}"), (reductions,), with_pairs=number % 3 == 0)


@pytest.fixture(autouse=True)
def _dropped_programs(_dropped_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns when it drops a suspended program that awaits in `finally`."""
    _without_complaints(monkeypatch)


@pytest.fixture(scope="module")
def _dropped_here() -> Iterator[None]:
    """Drops the last ones here, not in another module's test."""
    yield
    with pytest.MonkeyPatch.context() as patched:
        _without_complaints(patched)
        gc.collect()


def _without_complaints(patch: pytest.MonkeyPatch) -> None:
    hook, said = sys.unraisablehook, "coroutine ignored GeneratorExit"
    patch.setattr(sys, "unraisablehook", lambda each: None if str(each.exc_value) == said else hook(each))


@pytest.mark.parametrize("chunk", range(6 * CHUNKS))
def test_the_simulator_and_a_brute_force_search_of_its_own_agree(chunk: int) -> None:
    """Some single-digit numbers also repeat what the search learned, which doubles the time."""
    for number in range(chunk, length.LITTLE_SCENARIOS, 6 * CHUNKS):
        with pytest.MonkeyPatch.context() as patched:
            if number // CHUNKS % length.CONFIRMED_STEP:
                leave_unconfirmed(patched)
            compare(number)


@pytest.mark.parametrize("number", [2_070, 3_571])
def test_numbers_that_once_differed_agree(number: int) -> None:
    """A truth in a note, and a third transaction's memory of two others under other names."""
    compare(number)


def leave_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Search, "confirm", nothing)
    patch.setattr(module("report"), "passing_near", nothing)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def nothing(*_: object, **__: object) -> None: ...


def without_a_place(process: str) -> Cell[object]:
    return Cell(("nowhere", process), ())


def in_its_first_life(start: Callable[..., int]) -> Callable[..., int]:
    return lambda self, life: start(self, min(life, 0))


def takes_one_for_zero(keys: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, items: keys(self, [0 if type(item) is int and item == 1 else item for item in items])


def never_dies_after(steps: Callable[..., Any]) -> Callable[..., Any]:
    def fewer(self: Process, world: Any) -> Any:
        return [step for step in steps(self, world) if step.fault != "crash_after"]

    return fewer


def may_always_strike(spent: Callable[..., Any]) -> Callable[..., Any]:
    return lambda world, fault: spent(world, fault) and world


def never_sleeps(
    slept: Callable[..., int],
) -> Callable[..., int]:
    return lambda automaton, node, _, lasts: slept(automaton, node, 0, lasts)


def faults_must(steps: Callable[..., Any]) -> Callable[..., Any]:
    def all_must(self: Process, world: Any) -> Any:
        return [ActorStep(step.label, step.world, must=True, fault=step.fault) for step in steps(self, world)]

    return all_must


def takes_back_the_oldest(steps: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, world: steps(self, world.write(UNCONFIRMED, world.read(UNCONFIRMED)[::-1]))


def by_itself(read: Callable[..., Any]) -> Callable[..., Any]:
    """Each cell as of before its own last write."""

    def each(self: Behind, cell: Cell[Any]) -> Any:
        versions = (each for each in self.world.read(EARLIER) if any(other.name == cell.name for other, _ in each))
        return read(attrs.evolve(self, version=next(versions, ())), cell)

    return each


def leaves_what_was_not_alone(unconfirmed: Callable[..., Any]) -> Callable[..., Any]:
    return lambda before, after, overwritten, *, alone: unconfirmed(
        before, after, overwritten if alone else (), alone=alone
    )


def leaves_unconfirmed_who_is_refused(performed: Callable[..., Any]) -> Callable[..., Any]:
    return lambda effect, world, who, size_max: (
        (after.write(UNCONFIRMED, world.read(UNCONFIRMED)) if isinstance(reply, Refused) else after, reply)
        for after, reply in performed(effect, world, who, size_max)
    )


def but_for_who_is_refused(not_durable: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *asked: (each for each in not_durable(*asked) if not isinstance(each[-1], Refused))


def goes_on_at_what_was_told(number_of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda position: number_of(position) - isinstance(position, After)


def without_a_fence(fenced: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, world, who, _, *updates: fenced(self, world, who, AllOf((Exists(ID),)), *updates)


def right_again(read_clock: Callable[..., Any]) -> Callable[..., Any]:
    return lambda host, name, world, ahead: (world, read_clock(host, name, world, ahead)[1])


def forgets_all(steps: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, world: steps(attrs.evolve(self, keep=0), world)


def need_not_come_back(steps: Callable[..., Any]) -> Callable[..., Any]:
    def may(self: Process, world: Any) -> Any:
        return [step._replace(must=step.must and step.label != STARTS_AGAIN) for step in steps(self, world)]

    return may


def in_no_time(stands: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, world, effect: (
        step._replace(world=step.world.write(CLOCK, world.read(CLOCK))) for step in stands(self, world, effect)
    )


def takes_all(without: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG001
    return lambda items, item: tuple(each for each in items if each != item)


def instead(replacement: object) -> Callable[[object], object]:
    return lambda _: replacement


def module(name: str) -> object:
    return sys.modules[f"tidegate.sim.{name}"]


# Memories of steps.


def lacks_a_bit(learn: Callable[..., Any]) -> Callable[..., Any]:
    """A step's key lacks the highest bit that it depends on."""

    def learned(self: Remembering, state: int) -> Any:
        entry, at = learn(self, state), (state >> self.shift) & self.low
        if self.masks[at]:
            self.masks[at] ^= 1 << (self.masks[at].bit_length() - 1)
        self.memo[state & self.masks[at]] = entry
        return entry

    return learned


def lacks_the_place(learn: Callable[..., Any]) -> Callable[..., Any]:
    def learned(self: Remembering, state: int) -> Any:
        entry, at = learn(self, state), (state >> self.shift) & self.low
        self.masks[at] &= ~(self.low << self.shift)
        self.memo[state & self.masks[at]] = entry
        return entry

    return learned


def is_remembered_for_ever(look: Callable[..., Any]) -> Callable[..., Any]:
    def looked(self: Overwriting, state: int) -> Any:
        found = look(self, state)
        self.looked.bits = 0
        self.known[0] = found
        return found

    return looked


def also_unaged(*kinds: str) -> Callable[[Any], Any]:
    return lambda unaged: unaged | set(kinds)


def reads_no(kind: str) -> Callable[..., Any]:
    return lambda read: (
        lambda self, cell: self.packing.slot(cell).get(self.state) if cell.name[0] == kind else read(self, cell)
    )


def forgets_states(expand: Callable[..., Any]) -> Callable[..., Any]:
    """States that differ only in their highest bits count as visited."""

    def expanded(self: Search, layer: list[int], found: list[int], quiet: list[int]) -> None:
        expand(self, layer, found, quiet)
        low = (1 << self.space.packing.bits * 4 // 5) - 1
        found[:] = {state & low: state for state in reversed(found)}.values()

    return expanded


def one_cell_for_all(cell: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _: cell("all")


# Budgets.


def ignores_kinds(taken: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, budget: self if len(budget.name) > 2 else taken(self, budget)


def keeps_the_last(taken: Callable[..., Any]) -> Callable[..., Any]:
    def took(self: Lens, budget: Cell[int]) -> Lens | None:
        after = taken(self, budget)
        return after if after is None or Lens(self.packing, after.state, Looked()).read(budget) else None

    return took


def never_looks(taken: Callable[..., Any]) -> Callable[..., Any]:
    def took(self: Lens, budget: Cell[int]) -> Lens | None:
        after: Lens | None = taken(attrs.evolve(self, looked=Looked()), budget)
        return after and attrs.evolve(after, looked=self.looked)

    return took


def is_free_for_crashes(taken: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, budget: taken(self, budget) and (self if self.blind else taken(self, budget))


# Laws.


def judges_the_first(broken_by: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, states: broken_by(self, states[:1])


def judges_ends(judge: Callable[..., Any]) -> Callable[..., Any]:
    """A step is judged once per target state."""

    def judged(self: Between, before: int, after: int, looked: Looked) -> None:
        ends = self.__dict__.setdefault("ends", set())
        if (after & self.looked.bits) not in ends or not self.looked.bits:
            judge(self, before, after, looked)
            ends.add(after & self.looked.bits)
        looked.bits |= self.looked.bits

    return judged


def first_parts(_: object) -> property:
    return property(lambda self: [*{law.name: law for law in reversed(self.stated)}.values(), *self.errors.values()])


def never_reached(_: object) -> Callable[..., Any]:
    return lambda name, holds: lambda view: isinstance(name, str) or holds(view)


def seldom_must(number: Callable[..., Any]) -> Callable[..., Any]:
    """With several steps of an actor, none is mandatory."""
    return lambda self, faults, musts: number(self, faults, musts if len(musts) < 2 else (False,) * len(musts))


def follows_all(_: object) -> Callable[..., Any]:
    def following(self: Graph, state: int) -> Iterator[tuple[str, int]]:
        for stepper in self.steppers:
            for _, after in stepper.steps(state):
                yield stepper.name, after if self.least is None else self.least(after)

    return following


def short_cycles(cycles: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: [cycle for cycle in cycles(*arguments) if len(cycle) < 2]


# Values and programs.


def summary_of(kind: str, summary: Callable[[Any], object]) -> Callable[..., Any]:
    return lambda key: lambda self, value: summary(value) if self.name[0] == kind else key(self, value)


def forgets_a_variable(kept: Callable[..., Any]) -> Callable[..., Any]:
    return lambda local, *more: "forgotten" if local == "b" else kept(local, *more)


def by_type(_: object) -> Callable[..., Any]:
    return lambda item, *_: type(item).__name__


# Symmetry.


def least_but_for_documents(_: object) -> Callable[..., Any]:
    """States that differ in documents are merged."""

    def least(self: Symmetry, state: int) -> int:
        slots = self.space.packing.slots.values()
        documents = sum(slot.mask for slot in slots if slot.name[0] == DOCUMENTS)
        key = min(image & ~documents for image in (state, *self.images(state)))
        first: int = self.__dict__.setdefault("firsts", {}).setdefault(key, state)
        return first

    return least


def knows_what_came_again(natural: Callable[..., Any]) -> Callable[..., Any]:
    """A reinserted document keeps its place."""

    def all_first(keys: Any) -> Any:
        order = next((each.order for each in keys if type(each) is First), ())
        return natural(tuple(First(each, order) if each in order else each for each in keys))

    return all_first


def leaves(kind: type) -> Callable[..., Any]:
    return lambda value: lambda self, item: item if isinstance(item, kind) else value(self, item)


# Time, transactions and requests.


def without(fault: str) -> Callable[..., Any]:
    return lambda strikes: lambda self, kind, effect: kind != fault and strikes(self, kind, effect)


def once(arrived: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: arrived(attrs.evolve(self, arrived=tuple(dict.fromkeys(self.arrived))))


def keeps_what_runs(taken_back: Callable[..., Any]) -> Callable[..., Any]:
    return lambda machine, command: attrs.evolve(taken_back(machine, command), running=machine.running)


def always_the_first(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, command: next(iter(self.behaviours.values()), None) or behaviour(self, command)


def released_by_anybody(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, group, number: number in {each for each, _ in group.released}  # noqa: ARG005


def never_without(takes: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, number, generation: generation != NO_GENERATION and takes(self, number, generation)


def tells_nobody_of_a_loss(tell: Callable[..., Any]) -> Callable[..., Any]:
    return lambda world, who, event: world if isinstance(event, Lost) else tell(world, who, event)


def holes_and_all(_: Callable[..., Any]) -> Callable[..., Any]:
    def fetched(entries: Any, position: int, most: int) -> Records | None:
        offsets = tuple(range(position, len(entries)))[:most]
        return Records(offsets) if offsets else None

    return fetched


def takes_nine(fetched: Callable[..., Any]) -> Callable[..., Any]:
    return lambda entries, position, _: fetched(entries, position, 9)


STEP_KINDS, INSIDE = "_StepKinds", "_Inside"
Patch = tuple[object, str, Callable[[Any], Any]]
PLANTED: Mapping[str, Patch] = {
    # The machinery of the search.
    "a key lacks a bit": (Remembering, "learn", lacks_a_bit),
    "a key lacks the place of its process": (Remembering, "learn", lacks_the_place),
    "the steps of a crash are remembered for ever": (Overwriting, "look", is_remembered_for_ever),
    "a read is not a look": (
        *PLANTED_IN_THE_SEARCH["a read is not a look"][:2],
        instead(PLANTED_IN_THE_SEARCH["a read is not a look"][2]),
    ),
    "a write is not a look": (Lens, "write", instead(PLANTED_IN_THE_SEARCH["a write is not a look"][2])),
    "requests under way are not looked at": (Lens, "read", reads_no(FLIGHT.name[0])),
    "states that differ in high bits are one": (Search, "expand", forgets_states),
    "requests under way are counted": (Slot, "key", summary_of(FLIGHT.name[0], len)),
    "notes are known by their names": (Slot, "key", summary_of(NOTES, lambda notes: tuple(name for name, _ in notes))),
    "all sleepers share an alarm": (module("actors"), "wakes", one_cell_for_all),
    "two programs are taken for one": (Canon, "keys", takes_one_for_zero),
    "a variable is forgotten": (module("fingerprint"), "_kept", forgets_a_variable),
    "the place in a loop is forgotten": (module("fingerprint"), "_resting", by_type),
    "a failure in hand is forgotten": (module("fingerprint"), "_being_handled", instead(lambda _: "failure")),
    "a fault costs nothing": (module("requests"), "spent", may_always_strike),
    "bounds of kinds are ignored": (Lens, "taken", ignores_kinds),
    "the last fault never strikes": (Lens, "taken", keeps_the_last),
    "a step does not depend on what is left": (Lens, "taken", never_looks),
    "a crash of a reducer costs nothing": (Lens, "taken", is_free_for_crashes),
    "faults that are not chosen strike": (Scenario, "choosing", instead(lambda self, _: self)),
    "the bound of an exploration is ignored": (Scenario, "at_most", instead(lambda self, _: self)),
    "a law is judged in one state of a layer": (Always, "broken_by", judges_the_first),
    "a law looks at the same cells for ever": (
        Always,
        "broken_by",
        instead(PLANTED_IN_THE_SEARCH["a law looks at the same cells for ever"][2]),
    ),
    "the first part of a law is judged": (Search, "laws", first_parts),
    "a step is judged by its end": (Between, "judge", judges_ends),
    "a step forgets what its law looked at": (
        Between,
        "judge",
        instead(PLANTED_IN_THE_SEARCH["a step forgets what its law looked at"][2]),
    ),
    "no goal is reached": (module("search"), "negated", never_reached),
    "nothing is at rest": (Search, "judged_at_rest", instead(nothing)),
    "an actor with several steps is at rest": (getattr(module("space"), STEP_KINDS), "number", seldom_must),
    "no cycle is looked for": (module("search"), "restless", instead(lambda *_: [])),
    "faults lead out of a cycle": (Graph, "following", follows_all),
    "cycles are of one state": (module("search"), "cycles", short_cycles),
    "who sleeps is at rest when time ends": (Space, "is_cut_short", instead(lambda *_: False)),
    "nothing grows older": (module("steppers"), "aged", instead(lambda value, *_: value)),
    "all ages are the same": (module("steppers"), "aged", lambda aged: lambda value, by, _: aged(value, by, 0)),
    "two instants are merged": (
        module("steppers"),
        "aged",
        lambda aged: lambda value, by, most: aged(value, by, most - by),
    ),
    "documents do not grow older": (module("steppers"), "UNAGED", also_unaged(DOCUMENTS)),
    "who sleeps never wakes": (module("steppers"), "UNAGED", also_unaged(WAKES)),
    "programs may hold instants": (module("automaton"), "_check_held", instead(nothing)),
    "laws are judged for one naming": (Search, "named", instead(lambda _, states: states)),
    "symmetry merges documents": (Symmetry, "least", least_but_for_documents),
    "names in documents are not renamed": (Renaming, "value", leaves(Document)),
    "texts are not renamed": (Renaming, "text", instead(lambda _, text: text)),
    "the order of ids is not kept": (module("space"), "natural", instead(lambda keys: tuple(sorted(map(str, keys))))),
    "what comes again was always there": (module("space"), "natural", knows_what_came_again),
    # What actors may do.
    "a late request is lost": (module("requests"), "under_way", instead(lambda world, *_: world)),
    "notes outlive their process": (module("actors"), "notes", instead(without_a_place)),
    "nothing that is under way arrives": (Network, "steps", instead(lambda *_: ())),
    "a new life is the first one again": (ProgramAutomaton, "start", in_its_first_life),
    "nobody dies at the end": (Process, "steps", never_dies_after),
    "faults must happen": (Process, "steps", faults_must),
    "a stall takes no time": (Process, "stands", in_no_time),
    "nobody has to come back": (Process, "steps", need_not_come_back),
    "a write of many is never partly done": (module("requests"), "_partly", instead(lambda *_: ())),
    "a request is never dropped": (Faults, "strikes", without("dropped")),
    "a duplicate never strikes": (Faults, "strikes", without("duplicate")),
    "a sort is the other way round": (module("world"), "_ordered", lambda sort: lambda *of: sort(*of)[::-1]),
    "a statement is never in conflict": (getattr(module("transactions"), INSIDE), "contend", instead(nothing)),
    "nobody waits for a transaction": (Open, "has_written", instead(lambda *_: False)),
    "a transaction sees what others commit": (Open, "after_others", instead(lambda self, *_: self)),
    "no transaction expires": (Expiry, "steps", instead(lambda *_: ())),
    "nothing is taken back": (module("requests"), "unconfirmed", instead(lambda _, after, *__, **___: after)),
    "the oldest writes are taken back": (Failover, "steps", takes_back_the_oldest),
    "what was written behind it stays": (module("requests"), "unconfirmed", leaves_what_was_not_alone),
    "a majority confirms no earlier writes": (module("world"), "all_confirmed", instead(lambda world: world)),
    "who is refused waits for no majority": (module("world"), "_performed", leaves_unconfirmed_who_is_refused),
    "who is refused always waits for a majority": (module("requests"), "_not_durable", but_for_who_is_refused),
    "a write of many is one step": (module("halfway"), "_onward", instead(lambda *_: ())),
    "an upsert looks and inserts at once": (module("halfway"), "_found_none", instead(lambda *_: None)),
    "what is late begins anew": (
        module("actors"),
        "under_way",
        lambda under_way: lambda world, who, effect, _=None: under_way(world, who, effect),
    ),
    "what begins to match is never met": (module("halfway"), "_new", instead(lambda *_: ())),
    "how far a request has come is kept": (Process, "unasked", instead(lambda _, world, __: world)),
    "to write the same is a version": (module("failover"), "_changed", instead(lambda _, overwritten: overwritten)),
    "a member is behind in each document by itself": (Behind, "read", by_itself),
    "no member is behind": (Behind, "read", instead(lambda self, cell: self.world.read(cell))),
    "a stream tells a change twice": (module("streams"), "_number_of", goes_on_at_what_was_told),
    "a stream tells too early": (module("streams"), "_known_end", instead(lambda world: world.read(KEPT).end)),
    "any epoch may store": (Stream, "fenced", without_a_fence),
    "more is forgotten than may be": (Forgetful, "steps", forgets_all),
    "a clock that was set is right again": (module("clocks"), "_read_clock", right_again),
    "a fast clock sleeps as long": (Host, "lasts", instead(lambda _, duration: duration)),
    "no sleep is too short for the clock": (ProgramAutomaton, "slept", instead(lambda _, node, *__: node)),
    "every sleep is too short for the clock": (ProgramAutomaton, "slept", never_sleeps),
    "nobody dies in a last sleep": (Process, "last_sleep", lambda _: lambda *_: None),
    # Reducers.
    "what is taken back comes true": (module("reducers"), "_taken_back", instead(lambda machine, _: machine)),
    "all that is the same comes true at once": (module("reducers"), "_without", takes_all),
    "what arrives twice is received once": (Machine, "in_order", once),
    "events are received together in one order": (
        module("reducers"),
        "permutations",
        instead(lambda events: [tuple(events)]),
    ),
    "nobody crashes": (Crash, "steps", instead(lambda *_: ())),
    "no timer is over": (module("reducers"), "spent", instead(lambda *_: None)),
    "a program that is taken back goes on": (module("reducers"), "_taken_back", keeps_what_runs),
    "notes outlive their reducer": (module("reducers"), "notes", instead(without_a_place)),
    "nobody starts again": (Restart, "steps", instead(lambda *_: ())),
    "what a program calls always returns": (ReducerProcess, "never_returns", instead(lambda *_: ())),
    "all programs of a reducer are one": (ReducerProcess, "behaviour", always_the_first),
    "programs of reducers sleep for ever": (module("steppers"), "UNAGED", also_unaged(PROCESS)),
    # Groups.
    "whoever releases a partition, it is released": (Coordinator, "is_released", released_by_anybody),
    "a generation that is over may commit": (Group, "takes", instead(lambda self, *_: bool(self.members))),
    "without a generation nothing is committed": (Group, "takes", never_without),
    "who is put out is not told": (module("group"), "tell", tells_nobody_of_a_loss),
    "holes are fetched": (module("group"), "fetched", holes_and_all),
    "more is fetched than may be": (module("group"), "fetched", takes_nine),
    "nobody comes again": (Coordinator, "has_learned_of_its_loss", instead(lambda *_: False)),
    "nothing moves in a cooperative rebalance": (module("group"), "_balanced", instead(lambda group: group.owners)),
    "a rebalance may begin at any time": (module("group"), "_begun", instead(lambda world: world)),
    "who is paused gets records": (module("group"), "paused", instead(without_a_place)),
}
FOUND_AT: Mapping[str, int] = {
    "a key lacks a bit": 76,
    "a key lacks the place of its process": 137,
    "the steps of a crash are remembered for ever": 8,
    "a read is not a look": 0,
    "a write is not a look": 76,
    "requests under way are not looked at": 8,
    "states that differ in high bits are one": 4,
    "requests under way are counted": 8,
    "notes are known by their names": 12,
    "all sleepers share an alarm": 195,
    "two programs are taken for one": 8,
    "a variable is forgotten": 12,
    "the place in a loop is forgotten": 25,
    "a failure in hand is forgotten": 35,
    "a fault costs nothing": 2,
    "bounds of kinds are ignored": 14,
    "the last fault never strikes": 0,
    "a step does not depend on what is left": 8,
    "a crash of a reducer costs nothing": 8,
    "faults that are not chosen strike": 23,
    "the bound of an exploration is ignored": 16,
    "a law is judged in one state of a layer": 1,
    "a law looks at the same cells for ever": 1,
    "the first part of a law is judged": 62,
    "a step is judged by its end": 0,
    "a step forgets what its law looked at": 3,
    "no goal is reached": 1,
    "nothing is at rest": 0,
    "an actor with several steps is at rest": 0,
    "no cycle is looked for": 40,
    "faults lead out of a cycle": 112,
    "cycles are of one state": 40,
    "who sleeps is at rest when time ends": 38,
    "nothing grows older": 64,
    "all ages are the same": 22,
    "two instants are merged": 22,
    "documents do not grow older": 22,
    "who sleeps never wakes": 64,
    "programs may hold instants": 16,
    "laws are judged for one naming": 95,
    "symmetry merges documents": 26,
    "names in documents are not renamed": 36,
    "texts are not renamed": 14,
    "the order of ids is not kept": 36,
    "what comes again was always there": 94,
    "a late request is lost": 8,
    "notes outlive their process": 4,
    "nothing that is under way arrives": 8,
    "a new life is the first one again": 73,
    "nobody dies at the end": 4,
    "faults must happen": 4,
    "a stall takes no time": 6,
    "nobody has to come back": 73,
    "a write of many is never partly done": 63,
    "a request is never dropped": 26,
    "a duplicate never strikes": 0,
    "a sort is the other way round": 155,
    "a statement is never in conflict": 70,
    "nobody waits for a transaction": 70,
    "a transaction sees what others commit": 70,
    "no transaction expires": 23,
    "nothing is taken back": 12,
    "the oldest writes are taken back": 12,
    "what was written behind it stays": 681,
    "a majority confirms no earlier writes": 10,
    "who is refused waits for no majority": 203,
    "who is refused always waits for a majority": 203,
    "a write of many is one step": 33,
    "an upsert looks and inserts at once": 15,
    "what is late begins anew": 15,
    "what begins to match is never met": 160,
    "how far a request has come is kept": 55,
    "to write the same is a version": 66,
    "a member is behind in each document by itself": 66,
    "no member is behind": 3,
    "a stream tells a change twice": 24,
    "a stream tells too early": 332,
    "any epoch may store": 1,
    "more is forgotten than may be": 16,
    "a clock that was set is right again": 32,
    "a fast clock sleeps as long": 513,
    "no sleep is too short for the clock": 1,
    "every sleep is too short for the clock": 38,
    "nobody dies in a last sleep": 60,
    "what is taken back comes true": 148,
    "all that is the same comes true at once": 8,
    "what arrives twice is received once": 127,
    "events are received together in one order": 107,
    "nobody crashes": 8,
    "no timer is over": 8,
    "a program that is taken back goes on": 148,
    "notes outlive their reducer": 8,
    "nobody starts again": 57,
    "what a program calls always returns": 137,
    "all programs of a reducer are one": 8,
    "programs of reducers sleep for ever": 117,
    "whoever releases a partition, it is released": 59,
    "a generation that is over may commit": 39,
    "without a generation nothing is committed": 199,
    "who is put out is not told": 29,
    "holes are fetched": 9,
    "more is fetched than may be": 9,
    "nobody comes again": 29,
    "nothing moves in a cooperative rebalance": 19,
    "a rebalance may begin at any time": 9,
    "who is paused gets records": 109,
}
"""The number of a scenario that finds it. Three rare ones need `make thorough`."""


@pytest.mark.parametrize("fault", PLANTED)
def test_the_comparison_finds_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted = PLANTED[fault]
    leave_unconfirmed(monkeypatch)
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    with pytest.raises((DiffersError, TidegateError)):  # or the simulator detects the fault itself
        compare(FOUND_AT[fault])
