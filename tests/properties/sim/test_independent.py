"""The simulator finds what a brute force search finds that shares no code with it, only the meaning of the words.

`tests.properties.plain_search` asks the same actors as the real search, and so has their faults. Here programs, documents,
requests, faults, restarts, time, clocks of machines, failovers, streams and laws are interpreted a second time, from what the
documentation says of them (`tests.properties.independent`). What is compared: everything that can be seen of any state, of states at rest and of each
change; which faults strike; the verdict, the broken law, the length of the shortest way to it, and the goals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from tests import length
from tests.properties.independent import groups, machines
from tests.properties.independent.scenarios import DiffersError, compared, drawn
from tests.properties.sim.test_search import PLANTED as PLANTED_IN_THE_SEARCH

from tidegate.consumer.commands import Lost, Records
from tidegate.model.documents import ID, AllOf, Exists
from tidegate.reactive.change_stream import After
from tidegate.sim.actors import STARTS_AGAIN, Network, Process
from tidegate.sim.automaton import ProgramAutomaton
from tidegate.sim.clocks import Host
from tidegate.sim.failover import Behind, Failover
from tidegate.sim.fingerprint import Canon
from tidegate.sim.group import NO_GENERATION, Coordinator, Group
from tidegate.sim.reducers import Crash, ReducerProcess, Restart
from tidegate.sim.scenario import ActorStep
from tidegate.sim.search import Reductions, Search
from tidegate.sim.space import Space
from tidegate.sim.streams import KEPT, Forgetful, Stream
from tidegate.sim.world import CLOCK, UNCONFIRMED, Cell

BOTH = (Reductions(), Reductions(symmetry=True))
CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_simulator_and_a_brute_force_search_of_its_own_agree(chunk: int) -> None:
    """One to three processes; crashes, restarts, what becomes of requests, both kinds of time, symmetry, and laws.

    In some, machines with clocks of their own, a store that fails over, members that are behind, and a change stream.
    """
    for number in range(chunk, length.LITTLE_SCENARIOS, CHUNKS):
        compared(drawn(f"little {number}"), (BOTH[number % 2],), with_pairs=number % 3 == 0)


def test_the_same_is_found_of_reducers() -> None:
    """One or two; commands that come true in any order or at once, events that come later, timers, what is taken back.

    Programs carry out some commands; user code never returns; who has died starts again.
    """
    for number in range(length.LITTLE_REDUCERS):
        machines.compared(machines.drawn_reducers(f"reducers {number}"))


# --- planted bugs -------------------------------------------------------------------------------------------------------


def nothing(*_: object) -> None:
    """In place of what looks, or judges."""


def without_a_place(process: str) -> Cell[object]:
    return Cell(("nowhere", process), ())


def in_its_first_life(start: Callable[..., int]) -> Callable[..., int]:
    return lambda self, life: start(self, min(life, 0))


def takes_one_for_zero(key: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, item: key(self, 0 if type(item) is int and item == 1 else item)


def never_dies_after(steps: Callable[..., Any]) -> Callable[..., Any]:
    def fewer(self: Process, world: Any) -> Any:
        return [step for step in steps(self, world) if step.fault != "crash_after"]

    return fewer


def may_always_strike(spent: Callable[..., Any]) -> Callable[..., Any]:
    return lambda world, fault: spent(world, fault) and world


def never_sleeps(
    slept: Callable[[ProgramAutomaton, int, int], int],
) -> Callable[[ProgramAutomaton, int, int], int]:
    return lambda automaton, node, _: slept(automaton, node, 0)


def faults_must(steps: Callable[..., Any]) -> Callable[..., Any]:
    def all_must(self: Process, world: Any) -> Any:
        return [ActorStep(step.label, step.world, must=True, fault=step.fault) for step in steps(self, world)]

    return all_must


def takes_back_the_oldest(steps: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, world: steps(self, world.write(UNCONFIRMED, world.read(UNCONFIRMED)[::-1]))


def leaves_what_was_not_alone(unconfirmed: Callable[..., Any]) -> Callable[..., Any]:
    return lambda before, after, overwritten, *, alone: unconfirmed(
        before, after, overwritten if alone else (), alone=alone
    )


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


PLANTED: Mapping[str, tuple[object, str, Callable[[Any], Any], int]] = {
    "a late request is lost": (module("requests"), "under_way", instead(lambda world, *_: world), 15),
    "notes outlive their process": (module("actors"), "notes", instead(without_a_place), 12),
    "nothing that is under way arrives": (Network, "steps", instead(lambda *_: ()), 15),
    "a new life is the first one again": (ProgramAutomaton, "start", in_its_first_life, 263),
    "two programs are taken for one": (Canon, "key", takes_one_for_zero, 98),
    "nobody dies at the end": (Process, "steps", never_dies_after, 0),
    "a fault costs nothing": (module("requests"), "spent", may_always_strike, 3),
    "faults must happen": (Process, "steps", faults_must, 0),
    "nothing grows older": (module("steppers"), "aged", instead(lambda value, *_: value), 21),
    "all ages are the same": (module("steppers"), "aged", lambda aged: lambda value, by, _: aged(value, by, 0), 58),
    "no cycle is looked for": (module("search"), "restless", instead(lambda *_: []), 31),
    "who sleeps is at rest when time ends": (Space, "is_cut_short", instead(lambda *_: False), 25),
    "laws are judged for one naming": (Search, "named", instead(lambda _, states: states), 228),
    "nothing is taken back": (module("requests"), "unconfirmed", instead(lambda _, after, *__, **___: after), 3),
    "the oldest writes are taken back": (Failover, "steps", takes_back_the_oldest, 258),
    "what was written behind it stays": (module("requests"), "unconfirmed", leaves_what_was_not_alone, 95),
    "a majority confirms no earlier writes": (module("world"), "_confirmed", instead(lambda world: world), 3),
    "to write the same is a version": (
        module("failover"),
        "_changed",
        instead(lambda _, overwritten: overwritten),
        240,
    ),
    "no member is behind": (Behind, "read", instead(lambda self, cell: self.world.read(cell)), 95),
    "a stream tells a change twice": (module("streams"), "_number_of", goes_on_at_what_was_told, 126),
    "a stream tells too early": (module("streams"), "_known_end", instead(lambda world: world.read(KEPT).end), 69),
    "any epoch may store": (Stream, "fenced", without_a_fence, 8),
    "more is forgotten than may be": (Forgetful, "steps", forgets_all, 49),
    "a clock that was set is right again": (module("clocks"), "_read_clock", right_again, 63),
    "a fast clock sleeps as long": (Host, "lasts", instead(lambda _, duration: duration), 230),
    "no sleep is too short for the clock": (ProgramAutomaton, "slept", instead(lambda _, node, __: node), 29),
    "every sleep is too short for the clock": (ProgramAutomaton, "slept", never_sleeps, 12),
    "a stall takes no time": (Process, "stands", in_no_time, 89),
    "nobody has to come back": (Process, "steps", need_not_come_back, 112),
    **{
        bug: (*PLANTED_IN_THE_SEARCH[bug][:2], instead(PLANTED_IN_THE_SEARCH[bug][2]), number)
        for bug, number in (
            ("a read is not a look", 0),
            ("a step forgets what its law looked at", 0),
            ("a law looks at the same cells for ever", 20),
            ("nothing is at rest", 0),
        )  # the others take adversaries, and are seen there
    },
}
"""What is planted where, and the number of a scenario that shows it."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_in_the_simulator_makes_the_two_differ(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison sees each mechanism, the meanings that both searches of `tidegate` share included."""
    owner, name, planted, number = PLANTED[bug]
    little = drawn(f"little {number}")
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    with pytest.raises(DiffersError):
        compared(little, BOTH)


def keeps_what_runs(taken_back: Callable[..., Any]) -> Callable[..., Any]:
    return lambda machine, command: attrs.evolve(taken_back(machine, command), running=machine.running)


def always_the_first(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, command: next(iter(self.behaviours.values()), None) or behaviour(self, command)


PLANTED_IN_REDUCERS: Mapping[str, tuple[object, str, Callable[[Any], Any], int]] = {
    "what is taken back comes true": (module("reducers"), "_taken_back", instead(lambda machine, _: machine), 2),
    "all that is the same comes true at once": (module("reducers"), "_without", takes_all, 6),
    "a fault costs nothing": (module("requests"), "spent", may_always_strike, 0),
    "a late request is lost": (module("requests"), "under_way", instead(lambda world, *_: world), 7),
    "nobody crashes": (Crash, "steps", instead(lambda *_: ()), 0),
    "no timer is over": (module("reducers"), "spent", instead(lambda *_: None), 0),
    "a program that is taken back goes on": (module("reducers"), "_taken_back", keeps_what_runs, 2),
    "notes outlive their reducer": (module("reducers"), "notes", instead(without_a_place), 9),
    "nobody starts again": (Restart, "steps", instead(lambda *_: ()), 4),
    "what a program calls always returns": (ReducerProcess, "never_returns", instead(lambda *_: ()), 3),
    "all programs of a reducer are one": (ReducerProcess, "behaviour", always_the_first, 9),
}


@pytest.mark.parametrize("bug", PLANTED_IN_REDUCERS)
def test_a_planted_bug_in_reducers_makes_the_two_differ(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    owner, name, planted, number = PLANTED_IN_REDUCERS[bug]
    reducers = machines.drawn_reducers(f"reducers {number}")
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    with pytest.raises(DiffersError):
        machines.compared(reducers)


# --- groups -------------------------------------------------------------------------------------------------------------


def test_the_same_is_found_of_groups() -> None:
    """One to three consumers of one to four partitions, whatever they command, and a log that grows and is compacted.

    Rebalances of both kinds, evictions, deaths, and commits that are late, repeated, of no generation or of one that is over.
    """
    for number in range(length.LITTLE_GROUPS):
        groups.compared(groups.drawn_groups(f"groups {number}"))


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


PLANTED_IN_GROUPS: Mapping[str, tuple[object, str, Callable[[Any], Any], int]] = {
    "whoever releases a partition, it is released": (Coordinator, "is_released", released_by_anybody, 16),
    "a generation that is over may commit": (Group, "takes", instead(lambda self, *_: bool(self.members)), 7),
    "without a generation nothing is committed": (Group, "takes", never_without, 187),
    "who is put out is not told": (module("group"), "tell", tells_nobody_of_a_loss, 7),
    "holes are fetched": (module("group"), "fetched", holes_and_all, 22),
    "more is fetched than may be": (module("group"), "fetched", takes_nine, 0),
    "nobody comes again": (Coordinator, "has_learned_of_its_loss", instead(lambda *_: False), 7),
    "nothing moves in a cooperative rebalance": (module("group"), "_balanced", instead(lambda group: group.owners), 0),
    "a rebalance may begin at any time": (module("group"), "_begun", instead(lambda world: world), 2),
    "who is paused gets records": (module("group"), "paused", instead(without_a_place), 1),
}


@pytest.mark.parametrize("bug", PLANTED_IN_GROUPS)
def test_a_planted_bug_in_groups_makes_the_two_differ(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    owner, name, planted, number = PLANTED_IN_GROUPS[bug]
    drawn_one = groups.drawn_groups(f"groups {number}")
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    with pytest.raises(DiffersError):
        groups.compared(drawn_one)
