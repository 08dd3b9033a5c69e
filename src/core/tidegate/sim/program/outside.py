"""State outside of a program: all that its code reaches besides its frames, and whether it changes.

A program may depend only on its arguments and on replies. `reached` walks from the function that
starts a program over all functions that its code names or imports, their closures, defaults and
attributes, the globals that they name, attributes of classes and modules, and context variables. It
visits functions, classes and modules first, then data. A `Reach` then gives
    the clocks and random numbers that the code uses    `clocks`, `randoms`
    whether the order of a set, or `hash`, may matter   `has_sets`
    the present values of all that                      `Reach.snapshot`
A run that starts with warm caches must leave the snapshot unchanged at every await: a value that
changes may decide later.

The walk stops at the standard library, installed packages and tidegate, but not at the packages in
which the scenario's code is written: these are the user's. It walks through containers such as a
SimpleNamespace, a Counter, a queue, an event, a buffer or an iterator, and through wrappers such as
a `Linearizable` or `when_quiet`. Of a functools cache it counts only what can change. It runs no
user code: no property, descriptor or `__getattr__`, apart from `__class__`.

A clock or a random number is named by the path of attributes in the code, or by its own name if
data holds it: a table, a default argument, a class. A table that the code only looks values up in
is in no snapshot (`Reach.still`).

Known not to be seen: names made at run time (`getattr(module, "na" + "me")`, `sys.modules`), state
inside of extension types, files and the environment.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from datetime import date
from enum import Enum, unique
from functools import cached_property, partial
from inspect import getattr_static
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MappingProxyType, MethodType, ModuleType
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.bytecode import DEEP, READERS, Lookup, assigned, lookups, makes_sets
from tidegate.model.documents import Document
from tidegate.model.errors import Nondeterministic
from tidegate.sim.program._objects import (
    ATOMS,
    CONSTANT,
    INSTALLED,
    TOKENS_MAX,
    attributes_of,
    fields_of,
    is_constant,
    is_iterator,
    is_library,
    is_library_class,
    is_random,
    state_of,
    token_of,
)
from tidegate.sim.program.fingerprint import referents

CLOCKS: Final = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow", "today"}
)
RANDOM: Final = frozenset(
    {
        "random", "randint", "randrange", "randbytes", "getrandbits", "choice", "choices", "shuffle", "sample",
        "uniform", "uuid1", "uuid4", "urandom", "secrets", "token_bytes", "token_hex", "token_urlsafe", "randbelow",
        "betavariate", "binomialvariate", "expovariate", "gammavariate", "gauss", "lognormvariate", "normalvariate",
        "paretovariate", "triangular", "vonmisesvariate", "weibullvariate", "getrandom",
    }
)  # fmt: skip
_ALSO_CLOCKS: Final = frozenset(
    {"process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "times"}
)
_CLOCKS_WITHOUT: Final = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
"""Functions that read the clock if called with this many arguments."""
_STATE_OF_RANDOM: Final = frozenset({"seed", "getstate", "setstate"})
_SOURCES: Final = frozenset({"time", "random", "_random", "uuid", "secrets", "os", "posix", "nt", "datetime"})
"""Modules of clocks and random numbers."""
_ORDERED_BY_HASH: Final = frozenset({"set", "frozenset", "hash"})
_CODE_MAX: Final = 20_000
"""Limit of functions and classes visited by a walk."""
DATA_MAX: Final = 5_000
"""Limit of other objects, besides texts, numbers, and tuples of these."""
_WIDE_COST: Final = 8
"""This many numbers and texts in a collection take as long as one other value."""
_DEEP_MAX: Final = 6
_TODO: Final = "keep it in a local of an immutable kind, pass it as an argument, or ask for it with an effect"

_Place: TypeAlias = tuple[str, object, str]
"""A label, the holder of a name (a dictionary, a class, a module), and the name."""


@final
@unique
class Cause(Enum):
    """The most likely reason why executions differ."""

    GLOBAL = "something that outlives a run: a global, a class attribute, a default argument, a cache"
    CLOCK = "a clock"
    RANDOM = "a random number"
    CHANGES = "something that is another each time: a clock, a random number, an id of an object, the environment"
    ORDER = "the order of a set, or hash(): they change with PYTHONHASHSEED"


@final
@attrs.frozen(eq=False)
class Reach:
    """What the code of a program reaches outside of its frames.

    Attributes:
        places: Names that hold values.
        has_sets: It makes or holds sets, or calls hash().
        clocks: The clocks that it uses.
        randoms: The sources of random numbers that it uses.
        codes: The code of the user's functions.
        named: All places, also constant ones.
        objects: The mutable objects by id.
        left_out: The walk reached a limit.
        still: The numbers of places with tables that the code only reads: they are not watched.
        own: The user's packages.
        cut: Labels of places with too many values for a snapshot.
    """

    places: tuple[_Place, ...]
    has_sets: bool
    clocks: tuple[str, ...]
    randoms: tuple[str, ...]
    codes: tuple[CodeType, ...]
    named: tuple[_Place, ...]
    objects: Mapping[int, object] = attrs.field(repr=False)
    left_out: bool
    still: frozenset[int]
    own: frozenset[str]
    cut: set[str] = attrs.field(init=False, factory=set, repr=False)

    @property
    def has_code(self) -> bool:
        return bool(self.codes)

    def snapshot(self, left: list[int] | None = None, known: Container[str] = ()) -> tuple[object, ...]:
        """The value of each place, for comparison.

        Args:
            left: How many values this and other snapshots may still visit; the snapshot lowers it.
            known: Labels of places to leave out.
        """
        tokens: list[object] = []
        for number, (label, holder, name) in enumerate(self.places):
            if label in known or number in self.still:
                tokens.append(None)
                continue
            here = [TOKENS_MAX, 0]
            tokens.append(token_of(_held(holder, name), here, _DEEP_MAX, (), self.own))
            if here[0] < 0:
                self.cut.add(label)
            if left is not None:
                left[0] -= TOKENS_MAX - here[0] + here[1] // _WIDE_COST
        return tuple(tokens)

    def held(self) -> Iterator[tuple[str, object]]:
        for label, holder, name in self.places:
            if (held := _held(holder, name)) is not _NOTHING:
                yield label, held

    def names(self, holder: object, name: str) -> bool:
        return any(each is holder and called == name for _, each, called in self.named)

    def changed(
        self, before: tuple[object, ...], left: list[int] | None = None, known: Container[str] = ()
    ) -> tuple[str, ...]:
        """The labels of the places that have changed since a snapshot, without the known ones."""
        now = zip(self.places, before, self.snapshot(left, known), strict=True)
        return tuple([label for (label, _, _), one, other in now if label not in known and one != other])


def differs(
    what: str, process: str, line: str, reach: Reach, changes: Sequence[str] = (), *, is_second: bool = False
) -> Nondeterministic:
    """The error that a program, or another function of a scenario, is not deterministic.

    Args:
        what: The two different results.
        process: Its process.
        line: Its line in the source.
        reach: The reach of its code.
        changes: State outside of it that changed.
        is_second: The other execution was in a second process with another hash seed.
    """
    randoms = tuple(each for each in changes if each in reach.randoms) or reach.randoms
    if randoms:
        why, todo = f"it depends on {Cause.RANDOM.value}: {', '.join(randoms)}", _TODO
    elif reach.clocks:
        why, todo = f"it depends on {Cause.CLOCK.value}: {', '.join(reach.clocks)}", _TODO
    elif changes:
        names = ", ".join(f"`{each}`" for each in changes)
        why, todo = f"it depends on state outside of the program, which changes while it runs: {names}", _TODO
    elif is_second:
        why = f"it depends on {Cause.ORDER.value}; or on state of this process, such as a global that has changed"
        todo = "sort a set before its order matters: sorted(names); compute no hash() of a text"
    else:
        why, todo = (
            "it depends on something besides its arguments and replies: a global, a class, a cache, a clock, `is`",
            _TODO,
        )
    place = ", ".join(filter(None, (f"process {process}" if process else "", line and f"at {line}")))
    where = f"{place}; again in a second process with another PYTHONHASHSEED" if is_second else place
    return Nondeterministic(what, where=where, why=why, todo=todo)


_NOTHING: Final = ("nothing",)


def _held(holder: object, name: str) -> object:
    try:
        match holder:
            case dict():
                return cast("dict[str, object]", holder).get(name, _NOTHING)
            case ContextVar():
                return holder.get(_NOTHING)
            case type():
                return vars(holder).get(name, _NOTHING)  # raw: a descriptor may be user code
            case _:  # a function, a cell
                return getattr(holder, name, _NOTHING)
    except ValueError:  # an empty cell
        return _NOTHING


# --- the walk ---------------------------------------------------------------------------------


def reached(*roots: object) -> Reach:
    """Walk from functions over all that their code reaches.

    Args:
        roots: Functions that start a program, or other functions of a scenario.
    """
    walk = _Walk(_packages_of(roots))
    for root in roots:
        owner = root.func if isinstance(root, partial) else root
        owner = owner.__self__ if isinstance(owner, MethodType) else owner
        if not isinstance(owner, CONSTANT):  # a callable object may hold state
            label = type(owner).__name__
            walk.place(label, {label: owner}, label)
        walk.visit(root, "")
    walk.go_on()
    places = tuple(filter(walk.may_change, walk.places.values()))
    return Reach(
        places=places,
        has_sets=walk.has_sets,
        clocks=tuple(sorted(walk.clocks)),
        randoms=tuple(sorted(walk.randoms)),
        codes=tuple(walk.codes),
        named=tuple(walk.places.values()),
        objects={key: item for key, item in walk.seen.items() if not isinstance(item, CONSTANT)},
        left_out=walk.left_out,
        still=frozenset(number for number, place in enumerate(places) if walk.only_reads(place)),
        own=walk.own,
    )


def objects_at(holder: object, name: str, own: frozenset[str] = frozenset()) -> frozenset[int]:
    walk = _Walk(own)
    walk.push((_held(holder, name),), "")
    walk.go_on()
    return frozenset(key for key, item in walk.seen.items() if not is_constant(item, own))


def _packages_of(roots: Iterable[object]) -> frozenset[str]:
    """The installed packages of these functions, and of functions given to tidegate with them."""
    found, seen, todo = set[str](), dict[int, object](), list(roots)
    while todo:
        item = todo.pop()
        if id(item) in seen or type(item) in ATOMS:
            continue
        seen[id(item)] = item
        match item:
            case partial():
                todo += [item.func, *((*item.args, *item.keywords.values()) if _is_ours(item.func) else ())]
            case MethodType():
                todo += [item.__func__, item.__self__]
            case FunctionType():
                found.add(_package(item.__module__ or "", item.__code__.co_filename))
                held = (_held(cell, "cell_contents") for cell in item.__closure__ or ())
                todo += [*(held if _is_ours(item) else ()), vars(item).get("__wrapped__")]
            case type():
                file = getattr(sys.modules.get(item.__module__), "__file__", None)
                found.add(_package(item.__module__, file or ""))
            case tuple():
                todo += item
            case _:
                todo += [type(item), *(part for _, part in _functions_in(item))]
                if not _is_ours(type(item)):
                    todo.append(getattr_static(item, "__wrapped__", None))
                if callable(item) and _is_ours(type(item)):
                    todo += [part for _, part in fields_of(item, frozenset())]
    return frozenset(found - {""})


def _is_ours(item: object) -> bool:
    return str(getattr(item, "__module__", None)).partition(".")[0] == "tidegate"


def _package(module: str, file: str) -> str:
    """The installed package of the module; "" if none, as for a wrapper made by another package."""
    found = INSTALLED.search(file.replace("\\", "/"))
    return found[1] if found and module.partition(".")[0] in (found[1], "__main__") else ""


@final
class _Walk:
    """Visits functions, classes and modules before data, which may be a large table."""

    def __init__(self, own: frozenset[str]) -> None:
        self.own = own
        self.codes_todo: deque[tuple[object, str]] = deque()
        self.todo: deque[tuple[object, str]] = deque()
        self.data = 0
        self.left_out = False
        self.seen: dict[int, object] = {}
        self.places: dict[tuple[int, str], _Place] = {}
        self.has_sets = False
        self.codes: list[CodeType] = []
        self.names: set[str] = set()
        self.stored: set[str] = set()
        self.depths: dict[str, int] = {}
        self.shared: set[int] = set()
        self.modules: dict[str, ModuleType] = {}
        self.clocks: set[str] = set()
        self.randoms: set[str] = set()

    def go_on(self) -> None:
        """Visit the rest. Any code may look up any of its names in modules that data holds."""
        while self.codes_todo or self.todo:
            while (self.codes_todo or self.todo) and not self.left_out:
                self.visit(*(self.codes_todo or self.todo).popleft())
                self.left_out = self.data > DATA_MAX or len(self.seen) > _CODE_MAX
            if self.left_out:
                return
            for label, module in self.modules.items():
                self.visit_module(label, module, self.names)
        for label, module in self.modules.items():
            used = self.names & vars(module).keys() if _is_source(module) else set[str]()
            for name in (used - {label}) or used:  # the code names the module, which may hold a function of that name
                self.name_source(f"{label}.{name}", vars(module)[name], None)

    def push(self, items: Iterable[object], label: str) -> None:
        for item in items:
            if type(item) in ATOMS:
                continue
            if isinstance(item, (*CONSTANT, MethodType, partial)):
                self.codes_todo.append((item, label))
            elif not _is_plain(item):
                self.todo.append((item, label))

    def may_change(self, place: _Place) -> bool:
        """Whether the code assigns to the place, or its value is mutable."""
        label, holder, name = place
        if name in self.stored or label in self.stored or isinstance(holder, (ContextVar, _State)):
            return True
        held = _held(holder, name)
        is_unused = isinstance(holder, FunctionType) and held == {}  # a function without attributes or defaults
        return held is not _NOTHING and not is_unused and not is_constant(held, self.own)

    def only_reads(self, place: _Place) -> bool:
        """Whether the place is a table of constants, reached by one name, that the code
        only reads.
        """
        label, _, name = place
        name = label if name == "cell_contents" else name
        is_written = name in self.stored or label in self.stored or not self.names.isdisjoint(_LOOKERS)
        return not is_written and not self.left_out and 0 < self.depth_of(_held(*place[1:])) <= self.depths.get(name, 0)

    def depth_of(self, item: object, deep: int = _DEEP_MAX) -> int:
        """How many subscripts lead to constants only; `DEEP` if there are other values."""
        if _is_plain(item):
            return 0
        if type(item) not in _TABLES or id(item) in self.shared or not deep:
            return DEEP
        table = cast("Iterable[object]", item)
        parts = [*table.keys(), *table.values()] if isinstance(table, (dict, MappingProxyType)) else table
        return 1 + max((self.depth_of(part, deep - 1) for part in parts if type(part) not in ATOMS), default=0)

    def visit(self, item: object, label: str) -> None:
        if id(item) in self.seen:
            self.shared.add(id(item))
            return
        self.seen[id(item)] = item
        self.data += not isinstance(item, CONSTANT)
        match item:
            case FunctionType():
                self.name_source("", item, None)
                self.visit_function(item)
            case MethodType():
                self.push((item.__func__, item.__self__), label)
            case partial():
                self.visit_arguments(item)
                self.push((item.func, *item.args, *item.keywords.values()), label)
            case type():
                self.name_source("", item, None)
                self.visit_class(item)
                self.push((type(item),), label)
            case ModuleType():
                self.modules.setdefault(label, item)
            case BuiltinFunctionType():
                self.name_source("", item, None)
            case set() | frozenset():
                self.has_sets = True
                self.push(item, label)
            case dict() | MappingProxyType():
                self.push(item.values(), label)
            case tuple() | list() | deque():
                self.push(item, label)
            case GeneratorType():
                if item.gi_frame is not None:
                    self.visit_code(item.gi_code, item.gi_frame.f_globals, {})
                    self.push(referents(item), label)
            case _ if is_random(item):
                self.randoms.add(label)
            case _:
                self.push((getattr_static(item, "__wrapped__", None), type(item)), label)  # from a functools cache
                for name, part in (*fields_of(item, self.own), *_functions_in(item)):
                    self.push((part,), f"{label}.{name}")
                if is_iterator(item):
                    self.push(referents(item), label)

    def visit_arguments(self, call: partial[object]) -> None:
        function = call.func
        if isinstance(function, FunctionType) and not is_library(
            function.__module__ or "", function.__code__.co_filename, self.own
        ):
            given = {**dict(zip(function.__code__.co_varnames, call.args, strict=False)), **call.keywords}
            for name in given:
                self.place(name, given, name)

    def visit_function(self, function: FunctionType) -> None:
        bound: dict[str, list[object]] = {}
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.place(variable, cell, "cell_contents")
            bound[variable] = [_held(cell, "cell_contents")]
        self.push((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()), function.__name__)
        if is_library(function.__module__ or "", function.__code__.co_filename, self.own):
            return
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            self.place(f"{function.__name__}.{attribute}", function, attribute)
        for name, each in vars(function).items():
            self.push((each,), name)
        self.visit_code(function.__code__, function.__globals__, bound)

    def visit_code(self, code: CodeType, space: dict[str, object], bound: Mapping[str, list[object]]) -> None:
        """Follow the lookups of the code; `bound` holds known variables of enclosing functions."""
        names, bound = set(code.co_names), dict(bound)
        self.codes.append(code)
        self.names |= names
        self.stored |= assigned(code)
        self.has_sets = self.has_sets or makes_sets(code)
        self.has_sets = self.has_sets or not _ORDERED_BY_HASH.isdisjoint(names)
        for lookup in lookups(code):
            path = (lookup.name, *lookup.attributes)
            path = path[: -1 if path[-1] in READERS and lookup.depth else None]
            for name in path:
                depth = lookup.depth if name == path[-1] else 0
                self.depths[name] = min(depth, self.depths.get(name, depth))
            for found in self.found_by(lookup, space, bound):
                if lookup.kept:
                    bound[lookup.kept] = [*bound.get(lookup.kept, ()), found]
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.visit_code(constant, space, {name: bound[name] for name in constant.co_freevars if name in bound})
            self.has_sets = self.has_sets or isinstance(constant, frozenset)
        for name in sorted(names & space.keys()):
            held = space[name]
            if isinstance(held, ModuleType):
                self.visit_module(name, held, names)
            self.place(name, space, name)
        for name in sorted(self.stored & names - space.keys()):  # a global that is not there yet
            self.places.setdefault((id(space), name), (name, space, name))

    def found_by(self, lookup: Lookup, space: dict[str, object], bound: Mapping[str, list[object]]) -> Iterator[object]:
        """The values of a lookup. It notes clocks and random numbers on the path and visits
        imported modules.
        """
        if lookup.level is not None:
            module = _imported(lookup.name, lookup.level, space)
            begun: list[object] = [] if module is None else [module]
            for each in begun:
                self.visit_module(lookup.name, cast("ModuleType", each), {*lookup.attributes, *self.names})
        else:
            begun = list(bound.get(lookup.name, ()))
            if lookup.is_global and lookup.name in space and not begun:
                begun = [space[lookup.name]]
            for each in begun:
                if isinstance(each, ModuleType):
                    self.visit_module(lookup.name, each, {*lookup.attributes, *self.names})
        for held in begun:
            path = lookup.name
            for attribute in lookup.attributes:
                if isinstance(held, ModuleType):
                    submodule = sys.modules.get(f"{held.__name__}.{attribute}", _NOTHING)
                    held = vars(held).get(attribute, submodule)  # noqa: PLW2901
                elif _is_date(held) and attribute in _NOW:
                    self.clocks.add(f"{path}.{attribute}")
                    held = _NOTHING  # noqa: PLW2901
                else:
                    held = _NOTHING  # noqa: PLW2901
                path = f"{path}.{attribute}"
            if isinstance(held, ModuleType) and not lookup.kept and lookup.level is None:
                self.modules.setdefault(path, held)  # passed on, so other code may look up names there
            if not lookup.kept:
                self.name_source(path, held, lookup.given)
            if held is not _NOTHING:
                yield held

    def visit_module(self, label: str, module: ModuleType, names: AbstractSet[str]) -> None:
        """Visit the values that code with these names may look up in a user's module."""
        if is_library(module.__name__, vars(module).get("__file__"), self.own):
            return
        for attribute in sorted(names & vars(module).keys()):
            key, held = (id(vars(module)), attribute), vars(module)[attribute]
            if key not in self.places:
                self.place(f"{label}.{attribute}", vars(module), attribute)
                if isinstance(held, ModuleType):
                    self.visit_module(f"{label}.{attribute}", held, names)

    def name_source(self, path: str, held: object, given: int | None) -> None:
        """Note a clock or a source of random numbers.

        Args:
            path: Its name in the code; "" if reached otherwise.
            held: The candidate.
            given: The number of arguments of its call; None if unknown.
        """
        if isinstance(held, type):
            if any(kind.__module__ == "_random" for kind in held.__mro__) and (
                given == 0 or held.__qualname__ == "SystemRandom"
            ):
                self.randoms.add(path or held.__qualname__)
            return
        if not isinstance(held, (BuiltinFunctionType, FunctionType, MethodType)):
            return
        owner, name = getattr(held, "__self__", None), held.__name__
        module = getattr(held, "__module__", None) or getattr(
            owner if isinstance(owner, type) else type(owner), "__module__", ""
        )
        if module not in _SOURCES and not is_random(owner):
            return
        self.seen.setdefault(id(held), held)
        path = path or f"{'os' if module in ('posix', 'nt') else module}.{name}"
        is_without = name in _CLOCKS_WITHOUT and given in (None, -1, _CLOCKS_WITHOUT[name])
        if _is_date(owner) and name in _NOW:
            self.clocks.add(path)
        elif is_random(owner):
            self.place_random(path, held)
            if name not in _STATE_OF_RANDOM:
                self.randoms.add(path)
        elif name in RANDOM:
            self.randoms.add(path)
        elif name in CLOCKS | _ALSO_CLOCKS or is_without:
            self.clocks.add(path)

    def place_random(self, label: str, source: object) -> None:
        generator = getattr(source, "__self__", None)
        if hasattr(generator, "getstate"):
            self.places.setdefault((id(generator), "getstate"), (label, _State(generator), "state"))

    def visit_class(self, kind: type) -> None:
        for base in kind.__mro__:
            if is_library_class(base, self.own):
                continue
            for name, held in list(vars(base).items()):
                inner = held
                if isinstance(held, (staticmethod, classmethod)):
                    inner = held.__func__
                elif isinstance(held, (property, cached_property)):
                    inner = held.fget if isinstance(held, property) else held.func
                if isinstance(inner, FunctionType):
                    self.push((inner,), name)
                elif inner is not held:  # a built-in function
                    self.push((inner,), f"{base.__name__}.{name}")
                elif not name.startswith("__") or name == "__slots__":
                    self.place(f"{base.__name__}.{name}", base, name)

    def place(self, label: str, holder: object, name: str) -> None:
        held = _held(holder, name)
        if isinstance(held, ContextVar):
            self.places.setdefault((id(held), ""), (label, held, ""))
        is_new = (id(holder), name) not in self.places
        self.places.setdefault((id(holder), name), (label, holder, name))
        if is_new and not isinstance(held, ModuleType):  # `found_by` follows lookups in modules
            self.push((held,), label)


@final
@attrs.frozen(eq=False)
class _State:
    generator: object

    @property
    def state(self) -> object:
        return state_of(self.generator)


def _imported(name: str, level: int, space: Mapping[str, object]) -> ModuleType | None:
    if level:
        package = str(space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]).split(".")
        name = ".".join([*package[: len(package) + 1 - level], *filter(None, (name,))])
    return sys.modules.get(name)


_NOW: Final = frozenset({"now", "utcnow", "today"})


_LOOKERS: Final = frozenset({"globals", "locals", "vars", "eval", "exec"})
_TABLES: Final = (dict, list, tuple, set, frozenset, deque)


def _is_date(item: object) -> bool:
    return issubclass(item if isinstance(item, type) else type(item), date)


def _is_source(module: ModuleType) -> bool:
    return module.__name__ in _SOURCES


def _is_plain(item: object) -> bool:
    return type(item) in ATOMS or (type(item) is tuple and all(map(_is_plain, item)))


def _functions_in(item: object, deep: int = 2 * _DEEP_MAX) -> Iterator[tuple[str, object]]:
    """The functions inside of a tidegate value. Actors are confirmed by themselves."""
    for name, part in _parts_of(item) if deep else ():
        if not callable(part):
            yield from ((f"{name}.{inner}", each) for inner, each in _functions_in(part, deep - 1))
        elif not isinstance(part, type):
            yield name, part


def _parts_of(item: object) -> Iterable[tuple[str, object]]:
    match item:
        case Document():
            return ()
        case tuple() | frozenset():
            return (("each", part) for part in item if type(part) not in ATOMS)
        case dict() | MappingProxyType():
            return ((str(name), part) for name, part in item.items())
        case _ if _is_ours(type(item)) and not type(item).__module__.startswith("tidegate.sim."):
            return () if callable(item) or isinstance(item, CONSTANT) else attributes_of(item)
        case _:
            return ()
