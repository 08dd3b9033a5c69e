"""Analysis of the bytecode of programs, for CPython 3.11 to 3.13.

CPython compiles some source twice: a `while` condition and a `finally` block. The copies behave
alike, so a program suspended in one is in the same state as in the other. Two instructions are
equivalent if they agree in name, argument, source position, stack height and number of handled
exceptions, and if their successors and handlers are equivalent: the coarsest such partition (Paige
and Tarjan, "Three Partition Refinement Algorithms", 1987). The source position counts because
`Raised` contains it. Only code that reads `f_lasti` or `tb_lasti` can distinguish the copies.
"""

from __future__ import annotations

import dis
import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import CodeType
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.documents import one_line
from tidegate.model.values import check_int, check_type

PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
_KNOWN_PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
_ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
                         "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})  # fmt: skip
_IDLE: Final = frozenset({"NOP", "EXTENDED_ARG", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_HANDLED: Final = {"PUSH_EXC_INFO": 1, "POP_EXCEPT": -1}
_PAIRS: Final = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_LOOKERS: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""A caller of one of these may read any local."""


def is_known_python() -> bool:
    return sys.version_info[:2] in _KNOWN_PYTHONS


def placed(module: str, code: CodeType, line: int) -> str:
    """A source line as module path, line and function, without the directories of this machine."""
    check_type(module, str, "the name of a module")
    check_type(code, CodeType, "code")
    check_int(line, "a line", 0)
    parts = code.co_filename.replace("\\", "/").split("/")
    return one_line(f"{'/'.join(parts[-1 - module.count('.') :])}:{line} {code.co_qualname}")


class Suspension(NamedTuple):
    """The contents of a frame at one of its awaits."""

    at: int  # the offset of the first equivalent await
    live: tuple[str, ...]
    hidden: int  # values on the stack besides what is awaited
    height: int  # values on the stack
    handled: int  # exceptions that are being handled


class _Flow(NamedTuple):
    """The instructions of a code object and the control flow between them, by index."""

    steps: list[dis.Instruction]
    after: list[list[int]]
    caught: list[list[tuple[int, int]]]
    depth: dict[int, tuple[int, int]]


def _flow(code: CodeType) -> _Flow:
    steps = [part for step in dis.get_instructions(code) for part in split_pair(step)]
    at: dict[int, int] = {}
    for index, step in enumerate(steps):
        at.setdefault(step.offset, index)
    handlers = [
        (entry.start, entry.end, at[entry.target], entry.depth + entry.lasti + 1)
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]  # noqa: SLF001  there is no public one
    ]
    after = [_successors(index, steps, at) for index in range(len(steps))]
    caught = [[(to, depth) for start, end, to, depth in handlers if start <= step.offset < end] for step in steps]
    return _Flow(steps, after, caught, _depths(steps, after, caught))


def split_pair(step: dis.Instruction) -> list[dis.Instruction]:
    """The two instructions that a combined one of 3.13 represents; any other is returned alone."""
    check_type(step, dis.Instruction, "an instruction")
    names = _PAIRS.get(step.opname)
    if names is None:
        return [step]
    args = divmod(step.arg or 0, 16)
    return [
        step._replace(opname=name, opcode=dis.opmap[name], arg=arg, argval=local)
        for name, arg, local in zip(names, args, step.argval, strict=True)
    ]


@cache
def suspensions(code: CodeType) -> dict[int, Suspension]:
    steps, after, caught, depth = flow = _flow(code)
    live = _liveness(steps, [[*near, *(to for to, _ in far)] for near, far in zip(after, caught, strict=True)])
    always = (*code.co_cellvars, *code.co_freevars)  # shared with closures, so never dead
    if not _LOOKERS.isdisjoint(code.co_names):
        always += code.co_varnames
    found: dict[int, Suspension] = {}
    first = _first_of_each_class(*flow)
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


def _first_of_each_class(
    steps: list[dis.Instruction],
    after: list[list[int]],
    caught: list[list[tuple[int, int]]],
    depth: dict[int, tuple[int, int]],
) -> list[int]:
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
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _meaning(step: dis.Instruction) -> tuple[Hashable, ...]:
    """Equal arguments have equal meanings within one code object. A checked local equals an
    unchecked one, because the suspended program already records whether it is bound.
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
    live: list[frozenset[str]] = [frozenset()] * len(steps)
    moved = True
    while moved:
        moved = False
        for index in range(len(steps) - 1, -1, -1):
            used, defined = _uses(steps[index])
            now = (frozenset[str]().union(*(live[to] for to in after[index])) - defined) | used
            if now != live[index]:
                live[index], moved = now, True
    return live


def _uses(step: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    none: frozenset[str] = frozenset()
    match step.opname:
        case "LOAD_FAST" | "LOAD_FAST_CHECK":
            return frozenset({step.argval}), none
        case "STORE_FAST":
            return none, frozenset({step.argval})
        case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
            return frozenset({step.argval}), frozenset({step.argval})
        case _:
            return none, none


def _depths(
    steps: list[dis.Instruction], after: list[list[int]], caught: list[list[tuple[int, int]]]
) -> dict[int, tuple[int, int]]:
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


# --- calls --------------------------------------------------------------------------------------------------------------

Reference: TypeAlias = tuple[str, ...]
"""A path to a value: "global", "local" or "code", a name (or an index of a constant),
attributes.
"""
CALLED: Final = "()"
"""In a path: the result of calling the value found so far."""


class CallSite(NamedTuple):
    """A call in a function.

    Attributes:
        unused: How the code drops the result; "" if it is used or that is unknown.
        attributes: The only use of the result: a class with one of them counts as kept.
        caught: The names in the `except` clauses around a dropped result. None is an unknown name,
            a catch-all or a `with`.
    """

    callee: Reference
    line: int
    unused: str
    attributes: tuple[str, ...]
    caught: tuple[Reference | None, ...]


class Outline(NamedTuple):
    """The references of a function.

    Attributes:
        locals: None for a local assigned more than once or with an unknown value.
        fields: The same for attributes of its first argument.
        rebound: Other assigned names: globals, outer variables and, with a dot, attributes.
        returns: A path for each return, None if unknown; it ends in `CALLED` for a fresh result.
    """

    calls: tuple[CallSite, ...]
    mentions: tuple[Reference, ...]
    locals: Mapping[str, Reference | None]
    fields: Mapping[str, Reference | None]
    rebound: frozenset[str]
    returns: tuple[Reference | None, ...]


@cache
def outline(code: CodeType) -> Outline:  # noqa: PLR0915  one flat match over instructions
    """Outline a function: its calls, assignments and returns."""
    flow = _flow(code)
    targets = {to for index, near in enumerate(flow.after) for to in near if to != index + 1}
    stack: list[Reference | None] = []
    calls: list[CallSite] = []
    mentions: dict[Reference, None] = {}
    stored: dict[str, Reference | None] = {}
    fields: dict[str, Reference | None] = {}
    inner = frozenset[str]().union(*(outline(each).rebound for each in code.co_consts if isinstance(each, CodeType)))
    free, arguments = {*code.co_freevars}, {*code.co_varnames[: _argument_count(code)]}
    rebound = {*inner}
    loads: Counter[str] = Counter(code.co_cellvars)
    returns: list[Reference | None] = []
    callee: Reference | None = None
    for index, (height, _) in sorted(flow.depth.items()):
        step = flow.steps[index]
        stack = [*stack[:height], *[None] * (height - len(stack))]
        if index in targets and stack:
            stack[-1] = None  # it comes from two sides
        arg, name = step.arg or 0, str(step.argval)
        match step.opname:
            case "LOAD_GLOBAL":
                found: Reference = ("global", name)
                pushed = [_NULL, found] if not _CALLABLE_FIRST else [found, _NULL]
                stack += pushed if arg & 1 else [found]
                mentions[found] = None
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_DEREF" | "LOAD_CLASSDEREF":
                stack.append(("local", name))
                mentions["local", name] = None
                loads[name] += 1
            case "LOAD_CONST":
                stack.append(("code", str(arg)) if isinstance(step.argval, CodeType) else None)
            case "PUSH_NULL":
                stack.append(_NULL)
            case "MAKE_FUNCTION":
                stack = [*stack[: height - 1 - (0 if _CALLABLE_FIRST else arg.bit_count())], stack[-1]]
            case "SET_FUNCTION_ATTRIBUTE":  # pragma: no cover  since 3.13
                stack = [*stack[:-2], stack[-1]]
            case "LOAD_ATTR" | "LOAD_METHOD":
                of = stack.pop()
                found_in = None if of is None else (*of, name)
                if found_in is not None:
                    mentions[found_in] = None
                is_method = step.opname == "LOAD_METHOD" or (arg & 1 and _HAS_METHOD_BIT)
                stack += [found_in, None] if is_method else [found_in]
            case "STORE_FAST" | "STORE_DEREF" | "DELETE_FAST" | "DELETE_DEREF" if name not in free:
                made = stack.pop() if stack and step.opname.startswith("STORE") else None
                stored[name] = None if name in stored or name in arguments or name in inner else made
            case "STORE_ATTR" if stack[-1] == ("local", code.co_varnames[0] if arguments else ""):
                fields[name] = None if name in fields else stack[-2]
                rebound.add(f".{name}")
            case _ if step.opname in _ASSIGNMENTS:
                rebound.add(f".{name}" if step.opname.endswith("ATTR") else name)
            case "PRECALL":  # of 3.11, where the arguments are gone at the CALL
                callee = _called(stack[height - arg - 2 : height - arg])
            case "CALL" | "CALL_KW" | "CALL_FUNCTION_EX":
                first = height - 2 - {"CALL": arg, "CALL_KW": arg + 1}.get(step.opname, 1 + (arg & 1))
                if not (step.opname == "CALL" and _HAS_PRECALL):
                    callee = _called(stack[first : first + 2])
                at = flow.depth[index + 1][0] - 1 if index + 1 in flow.depth else first
                stack = [*stack[:at], None if callee is None else (*callee, CALLED)]
                if callee is not None:
                    unused, attributes = _use(index + 1, at, flow, code)
                    line = step.positions.lineno or 0 if step.positions else 0
                    caught = _caught(index, flow) if unused.endswith(_UNUSED) else ()
                    calls.append(CallSite(callee, line, unused, attributes, caught))
            case "RETURN_VALUE":
                returns.append(stack[-1])
            case "RETURN_CONST":  # pragma: no cover  since 3.12
                returns.append(None)
            case "SWAP" | "COPY":
                stack = [*stack[: height - arg], *[None] * (arg + (step.opname == "COPY"))]
            case _ if index + 1 in flow.depth and step.opname not in _ENDS:
                after = flow.depth[index + 1][0]
                is_pushed = after > height and step.opname.startswith(("BUILD_", "LOAD_"))
                stack = [*stack[: min(height, after) - (step.opname not in _TAKERS and not is_pushed)]]
            case _:
                pass
    returned = [
        stored.get(path[1], path) if path is not None and path[0] == "local" and loads[path[-1]] == 1 else path
        for path in returns
    ]
    return Outline(tuple(calls), tuple(mentions), stored, fields, frozenset(rebound), tuple(returned))


def _called(slots: list[Reference | None]) -> Reference | None:
    return slots[slots[0] == _NULL] if len(slots) == 2 else None


def _argument_count(code: CodeType) -> int:
    stars = bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
    return code.co_argcount + code.co_kwonlyargcount + stars


_NULL: Final[Reference] = ("",)
_HAS_PRECALL: Final = "PRECALL" in dis.opmap
_HAS_METHOD_BIT: Final = "LOAD_METHOD" not in dis.opmap or "CALL_INTRINSIC_1" in dis.opmap
"""Since 3.12 a LOAD_ATTR may load a method."""
_CALLABLE_FIRST: Final = "CALL_KW" in dis.opmap
"""Since 3.13 a callable lies below its NULL, and function attributes are set one by one."""
_TAKERS: Final = frozenset({"POP_TOP", "NOP", "RESUME", "CACHE", "KW_NAMES", "EXTENDED_ARG"})
_PUSHERS: Final = frozenset({"LOAD_CONST", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "PUSH_NULL"})
_TESTED: Final = "only tested"
_TRUTH: Final = ("__bool__", "__len__")
"""Without these methods an object is always true."""


def _caught(index: int, flow: _Flow) -> tuple[Reference | None, ...]:
    found: list[Reference | None] = []
    handlers = [to for to, _ in flow.caught[index]]
    for handler in handlers:  # which grows on the way
        handlers += [to for to, _ in flow.caught[handler] if to not in handlers]
        paths: list[Reference | None] = []
        index = handler + 1
        while (step := flow.steps[index]).opname in _CLAUSE or step.opname.startswith("LOAD_"):
            match step.opname:
                case "LOAD_ATTR" if paths[-1] is not None:
                    paths[-1] = (*paths[-1], str(step.argval))
                case name if name.startswith("LOAD_"):
                    paths.append(("global", str(step.argval)) if name == "LOAD_GLOBAL" else None)
                case "CHECK_EXC_MATCH":
                    found += paths
                    paths = []
                case _:
                    pass
            index = flow.after[index][-1]  # after a jump, the next clause
        match [each.opname for each in flow.steps[index : index + 2]]:
            case ["WITH_EXCEPT_START", "GET_AWAITABLE"]:  # an `async with` is a lock rather than a check
                pass
            case ["POP_TOP" | "COPY" | "BUILD_LIST" | "WITH_EXCEPT_START", *_]:  # any error, `except*`, `with`
                found.append(None)
            case _:
                pass
    return tuple(found)


_CLAUSE: Final = frozenset(
    {"BUILD_TUPLE", "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "NOP", "EXTENDED_ARG"}
)
_UNUSED: Final = ("dropped", "never used")


def _use(
    index: int, at: int, flow: _Flow, code: CodeType, stores: frozenset[int] = frozenset()
) -> tuple[str, tuple[str, ...]]:
    """How the code drops the value at stack position `at`; "" if it is used or that is unknown.

    `stores`: instructions that stored it in a local so far. A cycle between locals counts as a use.
    """
    copies = ""
    while True:
        index = _past_jumps(index, flow.steps, flow.after)
        step, above = flow.steps[index], flow.depth[index][0] - at - 1
        match step.opname, above:
            case ("POP_TOP", 0):
                return copies or "its result is dropped", ()
            case ("STORE_FAST", 0):
                return _use_of_local(index, flow, code, stores)
            case ("COPY", 0) if flow.steps[index + 1].opname == "STORE_FAST":  # x := ...
                copies, attributes = _use_of_local(index + 1, flow, code, stores)
                if not copies or attributes:
                    return "", ()
                index += 2
            case ("IS_OP", 1) if flow.steps[index - 1].opname == "LOAD_CONST":
                return f"its result is {_TESTED}", ()
            case ("TO_BOOL" | "UNARY_NOT", 0):
                return f"its result is {_TESTED}", _TRUTH
            case (name, 0) if name.startswith("POP_JUMP"):
                return f"its result is {_TESTED}", () if name.endswith("NONE") else _TRUTH
            case ("CONTAINS_OP", 0):
                return f"its result is {_TESTED}", ("__contains__", "__iter__", "__getitem__")
            case ("BINARY_SUBSCR", 1) | ("GET_ITER" | "UNPACK_SEQUENCE", 0):
                return "its result is used like a reply", ("__iter__", "__getitem__")
            case ("LOAD_ATTR" | "LOAD_METHOD", 0):
                return "its result is used like a reply", (str(step.argval),)
            case ("BUILD_TUPLE" | "BUILD_LIST" | "BUILD_SET", _) if flow.steps[index + 1].opname == "POP_TOP":
                return ("its result is dropped" if above < (step.arg or 0) else ""), ()
            case (name, _) if name in _PUSHERS and len(flow.after[index]) == 1:
                index += 1
            case _:
                return "", ()


def _use_of_local(index: int, flow: _Flow, code: CodeType, stores: frozenset[int]) -> tuple[str, tuple[str, ...]]:
    name = str(flow.steps[index].argval)
    if index in stores or not _LOOKERS.isdisjoint(code.co_names):
        return "", ()
    stores |= {index}
    todo, seen = list(flow.after[index]), set[int]()
    loads: list[int] = []
    while todo:
        if (index := todo.pop()) in seen:
            continue
        seen.add(index)
        used, defined = _uses(flow.steps[index])
        if name in used and name not in defined:
            loads.append(index)
        if name not in defined:
            todo += [*flow.after[index], *(to for to, _ in flow.caught[index])]
    found = [_use(load + 1, flow.depth[load][0], flow, code, stores) for load in loads]
    if not all(unused for unused, _ in found):
        return "", ()
    how = "never used" if not found else min({unused.removeprefix("its result is ") for unused, _ in found})
    return f"its result is assigned to `{name}`, which is {how}", tuple(name for _, names in found for name in names)


def assigned(code: CodeType) -> set[str]:
    """The names that the code assigns besides locals: globals, attributes and outer variables."""
    check_type(code, CodeType, "code")
    return {step.argval for step in dis.get_instructions(code) if step.opname in _ASSIGNMENTS}


def makes_sets(code: CodeType) -> bool:
    """Whether the code builds a set, also by combining dictionary views (`a.keys() & b.keys()`)."""
    check_type(code, CodeType, "code")
    has_views = not _VIEWS.isdisjoint(code.co_names)
    return any(
        step.opname in _SETS or (has_views and step.opname == "BINARY_OP" and step.argrepr in _SET_OPERATORS)
        for step in dis.get_instructions(code)
    )


def _begins(step: dis.Instruction) -> tuple[int | None, int | None] | None:
    place = step.positions
    return None if place is None or place.col_offset is None else (place.lineno, place.col_offset)


class Lookup(NamedTuple):
    """A name that the code looks up.

    Attributes:
        level: The package level of a relative import; None for a name.
        given: The number of call arguments; None without a call, -1 if unknown.
        kept: The local that it is assigned to directly; "" for none.
        depth: How many subscripts (or accessors such as `get`) precede another use.
    """

    name: str
    level: int | None
    attributes: tuple[str, ...]
    given: int | None
    kept: str
    is_global: bool
    depth: int = 0


@cache
def lookups(code: CodeType) -> tuple[Lookup, ...]:
    """The names and imports of the code in line order, without nested functions."""
    check_type(code, CodeType, "code")
    steps = [part for step in dis.get_instructions(code) for part in split_pair(step) if part.opname not in _SILENT]
    found: list[Lookup] = []
    for index, step in enumerate(steps):
        if step.opname in _LOADS_OF_NAMES:
            found.append(_lookup(step.argval, None, (), index, steps, is_global=step.opname in _LOADS_OF_GLOBALS))
        elif step.opname == "IMPORT_NAME":
            level, chosen = steps[index - 2].argval, steps[index - 1].argval
            found += _imported(step.argval, level, index, steps, is_from=chosen is not None)
    return tuple(found)


def _imported(name: str, level: int, index: int, steps: list[dis.Instruction], *, is_from: bool) -> Iterator[Lookup]:
    yield Lookup(name, level, (), None, "", is_global=False)
    top = name.partition(".")[0]
    bound = next((at for at in range(index + 1, len(steps)) if steps[at].opname.startswith("STORE_")), index)
    if not is_from:  # `import a.b` binds `a`, and `import a.b as c` looks up `b` in `a` first
        yield Lookup(name if bound > index + 1 else top, level, (), None, str(steps[bound].argval), is_global=False)
        return
    while steps[index + 1].opname == "IMPORT_FROM":
        yield _lookup(name, level, (steps[index + 1].argval,), index + 1, steps, is_global=False)
        index += 2


def _lookup(
    name: str,
    level: int | None,
    attributes: tuple[str, ...],
    index: int,
    steps: list[dis.Instruction],
    *,
    is_global: bool,
) -> Lookup:
    begins, index = _begins(steps[index]), index + 1
    while index < len(steps) and steps[index].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        attributes += (steps[index].argval,)
        index += 1
    given, kept = None, ""
    if index < len(steps) and steps[index].opname in ("STORE_FAST", "STORE_DEREF"):
        kept = steps[index].argval
    elif begins is None:
        given = -1
    else:
        later = (step for step in islice(steps, index, None) if step.opname != "LOAD_CONST")
        used = next((step for step in later if _begins(step) == begins), None)  # a call begins where its callee does
        if used is not None and used.opname in _CALLS:
            given = -1 if used.opname == "CALL_FUNCTION_EX" else used.arg
    depth = 0 if kept or begins is None else _subscripts(attributes, given, index, begins, steps)
    return Lookup(name, level, attributes, given, kept, is_global, depth)


def _subscripts(
    attributes: tuple[str, ...], given: int | None, index: int, begins: object, steps: list[dis.Instruction]
) -> int:
    if attributes and attributes[-1] in READERS and given is not None:
        return 1
    following = steps[index].opname if index < len(steps) else ""
    if following in ("CONTAINS_OP", "TO_BOOL", "UNARY_NOT") or following.startswith("POP_JUMP"):
        return DEEP
    if following == "GET_ITER":
        return 1
    depth = 0
    for step in islice(steps, index, None):
        if _begins(step) != begins or step.opname == "LOAD_CONST":
            continue
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "COPY", "SWAP"):
            return 0
        if step.opname != "BINARY_SUBSCR":
            break
        depth += 1
    return depth


READERS: Final = frozenset({"get", "items", "keys", "values"})
DEEP: Final = 99

_ASSIGNMENTS: Final = frozenset(
    {f"{what}_{where}" for what in ("STORE", "DELETE") for where in ("GLOBAL", "ATTR", "DEREF")}
)
_SETS: Final = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
_VIEWS: Final = frozenset({"keys", "items"})
_SET_OPERATORS: Final = frozenset({"&", "|", "-", "^", "&=", "|=", "-=", "^="})
_SILENT: Final = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "KW_NAMES", "PUSH_NULL"})
_CALLS: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_LOADS: Final = frozenset(
    {f"LOAD_{kind}" for kind in ("GLOBAL", "NAME", "DEREF", "CLASSDEREF", "ATTR", "METHOD")}
    | {f"LOAD_FROM_DICT_OR_{kind}" for kind in ("DEREF", "GLOBALS")}
)
_LOADS_OF_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_LOADS_OF_NAMES: Final = (_LOADS - {"LOAD_ATTR", "LOAD_METHOD"}) | {"LOAD_FAST", "LOAD_FAST_CHECK"}
