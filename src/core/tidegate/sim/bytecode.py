"""Analysis of the bytecode of programs, for CPython 3.11 to 3.13.

`suspensions` describes each await: the live locals, the height of the value stack, and which awaits are the same.

CPython compiles some source twice: the condition of a `while` loop (before the loop and at its end), and a `finally` block
(for each way out of its `try`). The copies behave alike, so a program that is suspended in one of them is in the same state
as in the other. Two instructions are the same if they have the same name, argument, source position, height of the stack and
number of handled exceptions, and if their successors and exception handlers are the same: the coarsest such partition is a
bisimulation (Paige and Tarjan, "Three Partition Refinement Algorithms", 1987). The source position counts because it shows in
the traceback of an error, and so in what `Raised` says. Only code that reads `f_lasti` or `tb_lasti` itself can tell the
copies apart.
"""

from __future__ import annotations

import dis
from collections.abc import Hashable
from functools import cache
from types import CodeType
from typing import Final, NamedTuple

__all__ = ["Suspension", "suspensions", "uses"]

_ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
                         "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})  # fmt: skip
_IDLE: Final = frozenset({"NOP", "EXTENDED_ARG", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_HANDLED: Final = {"PUSH_EXC_INFO": 1, "POP_EXCEPT": -1}
_LOOKERS: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""Who calls one of these may read any local."""


class Suspension(NamedTuple):
    """What a frame holds at one of its awaits."""

    at: int  # the offset that stands for this await and for all that are the same
    live: tuple[str, ...]
    hidden: int  # values on the stack besides what is awaited
    height: int  # values on the stack
    handled: int  # exceptions that are being handled


@cache
def suspensions(code: CodeType) -> dict[int, Suspension]:
    """For each await of the code: what is live after it, and how much lies on the value stack."""
    steps = list(dis.get_instructions(code))
    at = {step.offset: index for index, step in enumerate(steps)}
    handlers = [
        (entry.start, entry.end, at[entry.target], entry.depth + entry.lasti + 1)
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]  # noqa: SLF001  there is no public one
    ]
    after = [_successors(index, steps, at) for index in range(len(steps))]
    caught = [[(to, depth) for start, end, to, depth in handlers if start <= step.offset < end] for step in steps]
    live = _liveness(steps, [[*near, *(to for to, _ in far)] for near, far in zip(after, caught, strict=True)])
    depth = _depths(steps, after, caught)
    always = (*code.co_cellvars, *code.co_freevars)  # shared with closures, so never dead
    if not _LOOKERS.isdisjoint(code.co_names):
        always += code.co_varnames
    found: dict[int, Suspension] = {}
    first = first_of_each_class(steps, after, caught, depth)
    for index, step in enumerate(steps):
        if step.opname != "YIELD_VALUE" or index not in depth:
            continue
        resume = steps[index + 1]
        delegated = (resume.arg or 0) & 3 in (2, 3)  # 2: yield from, 3: await
        names = set(always).union(*(live[to] for to in [*after[index], *(to for to, _ in caught[index])]))
        height, handled = depth[index]
        point = Suspension(
            steps[first[index]].offset, tuple(sorted(names)), height - 1 - delegated, height - 1, handled
        )
        found[step.offset] = point
        found.setdefault(resume.offset, point)  # since 3.13 a suspended frame stands at the RESUME
    return found


def first_of_each_class(
    steps: list[dis.Instruction],
    after: list[list[int]],
    caught: list[list[tuple[int, int]]],
    depth: dict[int, tuple[int, int]],
) -> list[int]:
    """For each instruction, the first one that is the same."""
    classes = _numbered([(*_meaning(step), depth.get(index)) for index, step in enumerate(steps)])
    awaits = [number for number, step in zip(classes, steps, strict=True) if step.opname == "YIELD_VALUE"]
    if len(set(awaits)) == len(awaits):  # none is compiled twice
        return list(range(len(steps)))
    ahead = [_past_jumps(index, steps, after) for index in range(len(steps))]
    count = 0
    while count != (count := len(set(classes))):
        classes = _numbered(
            [
                (
                    classes[index],
                    tuple([classes[ahead[to]] for to in (near[::-1] if _is_negated(steps[index]) else near)]),
                    tuple([(classes[ahead[to]], height) for to, height in far]),
                )
                for index, (near, far) in enumerate(zip(after, caught, strict=True))
            ]
        )
    firsts: dict[int, int] = {}
    return [firsts.setdefault(number, index) for index, number in enumerate(classes)]


def _numbered(keys: list[Hashable]) -> list[int]:
    """Equal keys as equal numbers."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _meaning(step: dis.Instruction) -> tuple[Hashable, ...]:
    """What an instruction does, without where it jumps to.

    Within one code object equal arguments have equal meanings. A local that need not be checked is bound there, and whether
    it is bound is part of a suspended program.
    """
    name = (
        step.opname.replace("_FORWARD_IF", "_IF").replace("_BACKWARD_IF", "_IF").replace("LOAD_FAST_CHECK", "LOAD_FAST")
    )
    if name.startswith("POP_JUMP_IF"):
        name = "POP_JUMP_IF_NONE" if "NONE" in name else "POP_JUMP_IF_TRUE"
    return name, None if _jumps(step) else step.arg, step.positions


def _is_negated(step: dis.Instruction) -> bool:
    return step.opname.startswith("POP_JUMP") and step.opname.endswith(("IF_FALSE", "IF_NOT_NONE"))


def _past_jumps(index: int, steps: list[dis.Instruction], after: list[list[int]]) -> int:
    """The first instruction from there on that does something; the last one before a loop that does nothing."""
    passed: set[int] = set()
    while steps[index].opname in _IDLE and after[index] and index not in passed:
        passed.add(index)
        (index,) = after[index]
    return index


def _jumps(step: dis.Instruction) -> bool:
    return step.opcode in dis.hasjrel or step.opcode in dis.hasjabs


def _successors(index: int, steps: list[dis.Instruction], at: dict[int, int]) -> list[int]:
    step = steps[index]
    near = [index + 1] if step.opname not in _ENDS and index + 1 < len(steps) else []
    return [*near, at[step.argval]] if _jumps(step) and step.argval in at else near


def _liveness(steps: list[dis.Instruction], after: list[list[int]]) -> list[frozenset[str]]:
    """The locals that may be read after each instruction begins, by backward data flow."""
    live: list[frozenset[str]] = [frozenset()] * len(steps)
    moved = True
    while moved:
        moved = False
        for index in range(len(steps) - 1, -1, -1):
            used, defined = uses(steps[index])
            now = (frozenset[str]().union(*(live[to] for to in after[index])) - defined) | used
            if now != live[index]:
                live[index], moved = now, True
    return live


def uses(step: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The locals that an instruction reads, and those that it writes."""
    none: frozenset[str] = frozenset()
    match step.opname:
        case "LOAD_FAST" | "LOAD_FAST_CHECK":
            return frozenset({step.argval}), none
        case "STORE_FAST":
            return none, frozenset({step.argval})
        case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
            return frozenset({step.argval}), frozenset({step.argval})
        case "LOAD_FAST_LOAD_FAST":
            return frozenset(step.argval), none
        case "STORE_FAST_STORE_FAST":
            return none, frozenset(step.argval)
        case "STORE_FAST_LOAD_FAST":
            stored, loaded = step.argval
            return frozenset({loaded} - {stored}), frozenset({stored})
        case _:
            return none, none


def _depths(
    steps: list[dis.Instruction], after: list[list[int]], caught: list[list[tuple[int, int]]]
) -> dict[int, tuple[int, int]]:
    """Of each instruction that can be reached: the height of the value stack before it, and the exceptions handled."""
    found, todo = {0: (0, 0)}, [0]
    while todo:
        index = todo.pop()
        step, (here, handled) = steps[index], found[index]
        arg = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        reached = [(to, depth, handled) for to, depth in caught[index] if step.opname != "PUSH_EXC_INFO"]
        for to in after[index]:
            is_jump = to != index + 1
            effect = 1 if step.opname == "RETURN_GENERATOR" else dis.stack_effect(step.opcode, arg, jump=is_jump)
            reached.append((to, here + effect, handled + _HANDLED.get(step.opname, 0)))
        for to, depth, handling in reached:
            if to not in found:
                found[to] = (depth, handling)
                todo.append(to)
    return found
