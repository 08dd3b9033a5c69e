"""Symmetry: states that differ only in the names of interchangeable processes are one state.

A scenario names its interchangeable processes (`Scenario.symmetric`). A renaming moves the values
of one process's cells to those of another, and replaces each name that occurs as a word in a value:
an id, an owner, a request. Of all states that are equal apart from names, the search keeps the
least. After Ip and Dill 1996.

The node of a program is renamed by giving the renamed replies to the other process's program; for a
reducer in no group, to the program of the renamed command. That program must make the renamed
request; otherwise the processes are not interchangeable, which is misuse. So is a first world that
differs between them, and next steps that differ apart from names (checked for some states of each
layer).

Laws
    SY1  Two states are one exactly if a renaming of interchangeable processes maps one to the
         other.
    SY2  The search with symmetry breaks a state law, or reaches a goal, exactly if the plain one
         does: it checks every renaming of a state, so laws may single out a process.
    SY3  A run that the search with symmetry shows is a run, with each process's own name
         throughout.

Known not to work
    - Numbers that identify processes are not renamed: use names.
    - A program is not symmetric if it sorts by name, takes the first match of a scan, or writes all
      matches in one transaction.
    - The number of renamings is a product of factorials: use groups of two to five.
    - A step is checked for one naming only, so a scenario with step laws is searched without
      symmetry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, permutations, product
from typing import Final, cast, final

import attrs

from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse, shown
from tidegate.model.immutable import mapped
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.program.relative_time import plain_text
from tidegate.sim.search.space import Space, Stepper, in_order
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.reducers import Machine, ReducerProcess, Running
from tidegate.sim.world.cells import First
from tidegate.sim.world.packing import Packed, Slot
from tidegate.sim.world.world import BUDGET, IDS, PROCESS, Cell, Halfway, Plain

_CHECKED: Final = 4
"""States of each layer whose next steps are compared."""


@final
class Renaming:
    """One renaming of processes, applied to values, nodes and states.

    Args:
        space: The space of the states.
        names: Old names to new ones.
    """

    def __init__(self, space: Space, names: Mapping[str, str]) -> None:
        self.space, self.names = space, names
        self.pair = next((name, other) for name, other in names.items() if name != other)
        self.words = _words(names)
        self.nodes: dict[tuple[ProgramAutomaton, ProgramAutomaton, int], int] = {}
        self.tables: list[tuple[int, int, dict[int, int], Slot]] = []

    def text(self, text: str) -> str:
        return self.words.sub(lambda found: self.names[found[0]], text)

    def named(self, *values: object) -> list[str]:
        return sorted(set.intersection(*({*self.words.findall(plain_text(each))} for each in values)))

    def value(self, value: object) -> object:
        return mapped(value, self.part, self.text)

    def part(self, part: object) -> object:
        if type(part) is str:
            return self.text(part)
        return First(self.text(part), part.order) if isinstance(part, First) else part

    def node(self, process: str, node: int) -> int:
        if node in (ProgramAutomaton.CRASHED, ProgramAutomaton.CANCELLED):
            return node
        names = process, self.names.get(process, process)
        own, other = (cast("Process", self.space.processes[name]).behaviour for name in names)
        return self.after_the_same(own, other, node, names)

    def after_the_same(self, own: ProgramAutomaton, other: ProgramAutomaton, node: int, names: tuple[str, str]) -> int:
        """The other program's node after the same replies, renamed."""
        found = self.nodes.get((own, other, node))
        if found is None:
            at = own.nodes[node]
            if at.came is not None:
                came = self.after_the_same(own, other, at.came.node, names)
                found = other.after(came, self.value(at.came.reply))
            else:
                found = other.start(at.life)
            stands = other.nodes[found]
            if other.canon.key(self.value(at.status)) != stands.exact:
                why = f"one is {at.status}, the other {stands.status}"
                if names[0] == names[1]:
                    why = f"{names[0]} tells them apart: it is {at.status}, whoever is called what"
                raise _not_alike(
                    *(names if names[0] != names[1] else self.pair), why, self.named(at.status, stands.status)
                )
            self.nodes[own, other, node] = found
        return found

    def machine(self, own: ReducerProcess, machine: Machine) -> Machine:
        """The renamed machine of the other reducer, or of the same one if it is in no group."""
        other = cast("ReducerProcess", self.space.processes[self.names.get(own.name, own.name)])
        running: tuple[Running, ...] = ()
        for each in machine.running:
            command = cast("Effect[object]", self.value(each.command))
            if not other.is_program(command):
                raise _not_alike(
                    *self.pair, f"{own.name} carries out {each.command} by a program, and {other.name} not {command}"
                )
            programs = own.behaviour(each.command), other.behaviour(command)
            node = self.after_the_same(*programs, each.node, self.pair)
            running += (Running(command, node, each.until, cast("Halfway | None", self.value(each.come))),)
        return attrs.evolve(cast("Machine", self.value(attrs.evolve(machine, running=()))), running=running)

    def place(self, process: str, at: object) -> object:
        """The renamed value of a process's cell; a process in no group may hold names of others."""
        actor = self.space.processes.get(process)
        if isinstance(actor, Process):
            return self.node(process, cast("int", at))
        if isinstance(actor, ReducerProcess) and isinstance(at, Machine):
            return self.machine(actor, at)
        return self.value(at)

    def state(self, state: Packed) -> Packed:
        slots = self.space.packing.slots
        if len(self.tables) != len(slots):
            new = list(slots.values())[len(self.tables) :]
            self.tables += [(slot.shift, slot.low, {0: 0}, slot) for slot in new]
        renamed = 0
        for shift, low, table, slot in self.tables:
            at = (state >> shift) & low
            renamed += table[at] if at in table else self.number(table, slot, at)
        return renamed

    def cell(self, slot: Slot) -> tuple[str, ...]:
        kind, *rest = slot.name
        return (kind, *map(self.text, rest))

    def number(self, table: dict[int, int], slot: Slot, at: int) -> int:
        kind, *rest = slot.name
        name = self.cell(slot)
        cell = Cell[object](name, slot.values[0])
        target = slot if name == slot.name else self.space.packing.slot(cell)
        value = slot.values[at]
        if kind == BUDGET:
            table[at] = at << target.shift
            return table[at]
        value = self.place(rest[0], value) if kind == PROCESS else self.value(value)
        table[at] = target.put(0, in_order(kind, value))
        return table[at]


@final
class Symmetry:
    """The renamings of one search.

    Args:
        space: The space of the states.
        groups: The interchangeable processes.
        steppers: All actors; they must not distinguish these processes.
    """

    def __init__(self, space: Space, groups: tuple[tuple[str, ...], ...], steppers: Sequence[Stepper]) -> None:
        self.space, self.steppers = space, steppers
        self.renamings = [Renaming(space, names) for names in _others(groups)]
        for renaming in self.renamings:
            if renaming.state(space.first) != space.first:
                raise self.begun_otherwise(renaming)

    def begun_otherwise(self, renaming: Renaming) -> Misuse:
        first = self.space.first
        differ = first ^ renaming.state(first)
        slot = next(each for each in self.space.packing.slots.values() if differ & each.mask)
        held = slot.get(first)
        why = f"the world begins otherwise for one than for the other: {'/'.join(slot.name)} holds {plain_text(held)}"
        return _not_alike(*renaming.pair, why, renaming.named((slot.name, held)))

    def images(self, state: Packed) -> list[Packed]:
        return [renaming.state(state) for renaming in self.renamings]

    def least(self, state: Packed) -> Packed:
        """The representative of all states that differ only in names."""
        return min(state, *self.images(state))

    def check(self, layer: list[Packed]) -> None:
        """Compare the next steps of some states under every renaming.

        Raises:
            Misuse: They differ apart from names.
        """
        for state in layer[:: max(1, len(layer) // _CHECKED)]:
            after = self.after(state)
            for renaming in self.renamings:
                if {renaming.state(each) for each in after} != set(self.after(renaming.state(state))):
                    raise self.unlike(renaming)

    def unlike(self, renaming: Renaming | None = None) -> Misuse:
        return _not_alike(*(renaming or self.renamings[0]).pair, "in the other's place it has other steps to take")

    def after(self, state: Packed) -> list[Packed]:
        return [after for stepper in self.steppers for _, after in stepper.steps(state)]

    def renamed(self, run: list[Packed], last: Packed) -> list[Packed]:
        renaming = next(renaming for renaming in self.renamings if renaming.state(run[-1]) == last)
        return list(map(renaming.state, run))


def _words(names: Iterable[str]) -> re.Pattern[str]:
    words = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])")


def since_the_beginning(world: Plain, groups: tuple[tuple[str, ...], ...]) -> Plain:
    """Mark the first world's ids that contain names: see `First`."""
    words = _words(chain(*groups))
    for cell, had in world.cells.values():
        order = cast("tuple[str, ...]", had)
        if cell.name[0] == IDS and all(type(each) is str for each in order) and any(map(words.search, order)):
            world = world.write(cell, tuple(First(each, order) for each in order))
    return world


def _others(groups: tuple[tuple[str, ...], ...]) -> Iterator[Mapping[str, str]]:
    for chosen in product(*(permutations(group) for group in groups)):
        names = {
            name: other
            for group, order in zip(groups, chosen, strict=True)
            for name, other in zip(group, order, strict=True)
        }
        if any(name != other for name, other in names.items()):
            yield names


def _not_alike(one: str, other: str, why: str, named: Iterable[str] = ()) -> Misuse:
    """The error that two processes differ; another thing may share the name of a process."""
    words = " and ".join(map(shown, named))
    taken = f"; the text {words} in it was taken for the name of a process" if words else ""
    rename = f"call the process otherwise if {words} names something else there, such as a field; or " if words else ""
    return Misuse(
        f"{one} and {other} are not interchangeable",
        why=f"{why}{taken}",
        todo=f"{rename}take them out of the scenario's `symmetric`, or let them differ in nothing but their names",
    )
