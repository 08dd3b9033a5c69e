"""Which module may import which, type-checking imports included: no cycles, one order of rooms."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import tidegate

CORE: Final = Path(tidegate.__file__).parents[1]
ROOTS: Final = (CORE, CORE.parent / "adapters")
Imports: TypeAlias = Mapping[str, Collection[str]]
ROOMS: Final = (
    "model", "retries", "transactions", "counters", "payloads", "leases", "work", "services", "invocations", "triggers", "reactive", "consumer",
    "sinks", "pipeline",
)  # fmt: skip
"""Decisions and programs of a room import only earlier rooms."""
KINDS: Final = ("laws", "scenarios", "specimens", "strategies")
NEVER: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("sim", "laws", "scenarios", "specimens", "strategies"),
    "laws": ("sim", "scenarios", "specimens", "strategies"),
    "scenarios": ("specimens", "strategies"),
    "specimens": ("strategies",),
    "strategies": (),
}
"""Rooms and kinds that each kind of module must not import; "" is decisions and programs."""
FACES: Final = (*KINDS, "catalogue", "conformance", "testing")
SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "group": ("consumer",), "log": ("consumer",), "planners": ("reactive",), "streams": ("reactive",),
}  # fmt: skip

ADAPTERS: Final = (
    "base", "embedded", "mongo", "runtime", "kit", "observe", "sinks", "page", "exploring", "shell", "kafka", "cli", "testing",
    "orchestrator", "reactive", "pipeline",
)  # fmt: skip
"""Packages of the adapters. Each imports only itself and earlier ones, also inside functions."""


@cache
def files() -> Mapping[str, Path]:
    return {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for root in ROOTS
        if root.is_dir()
        for file in sorted(root.rglob("*.py"))
    }


def imported(text: str, known: Collection[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                found |= {each.name for each in names}
            case ast.ImportFrom(str() as module, names):
                full = {f"{module}.{each.name}" for each in names}
                found |= full & set(known) | ({module} if full - set(known) else set())
            case _:
                pass
    return found


@cache
def imports() -> Imports:
    return {name: imported(file.read_text("utf-8"), files()) - {name} for name, file in files().items()}


def circles(graph: Imports) -> list[list[str]]:
    """Remove modules without successors or predecessors until only cycles are left."""
    left = {name: {each for each in ahead if each in graph} for name, ahead in graph.items()}
    while leaves := [name for name, ahead in left.items() if not ahead & left.keys()]:
        for name in leaves:
            del left[name]
    ahead = {name: reached(left, name) for name in left}
    groups = {
        tuple(sorted(each for each in there if name in ahead[each])) for name, there in ahead.items() if name in there
    }
    return sorted(map(list, groups))


def reached(graph: Imports, start: str) -> set[str]:
    found: set[str] = set()
    todo = [*graph[start]]
    while todo:
        name = todo.pop()
        if name in graph and name not in found:
            found.add(name)
            todo += graph[name]
    return found


def placed(module: str) -> tuple[str, str]:
    _, *parts = module.split(".")
    if not parts or parts[0] not in (*ROOMS, "sim"):
        return "", ""
    kind = parts[1] if len(parts) > 1 and parts[0] in ROOMS and parts[1] in KINDS else ""
    return parts[0], kind


def against_the_order(graph: Imports) -> Iterator[str]:
    for module, ahead in graph.items():
        room, kind = placed(module)
        if room:
            yield from (f"{module} imports {other}" for other in sorted(ahead) if is_wrong(module, room, kind, other))


def is_wrong(module: str, room: str, kind: str, other: str) -> bool:
    if other == "hypothesis" or other.startswith("hypothesis."):
        return kind != "strategies"
    if not other.startswith("tidegate."):
        return False
    theirs, their_kind = placed(other)
    if not theirs:  # a face re-exports from all rooms, so no module of a room may need it
        return other.split(".")[1] in FACES
    if room == "sim":
        return theirs not in ("sim", "model", *SERVED.get(module.rpartition(".")[2], ())) or bool(their_kind)
    if not kind and theirs in ROOMS and ROOMS.index(theirs) > ROOMS.index(room):
        return True
    return (theirs if theirs == "sim" else their_kind) in NEVER[kind]


# --- the order holds ----------------------------------------------------------------------------------------------------


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(imports()) == []


def test_rooms_stand_in_order() -> None:
    """Laws never import the simulator, and only strategies import hypothesis."""
    assert list(against_the_order(imports())) == []


def test_every_room_is_in_the_order() -> None:
    there = {file.parent.name for file in (CORE / "tidegate").glob("*/__init__.py")}
    assert there == {*ROOMS, "sim"}


def test_packages_of_adapters_import_packages_before_them() -> None:
    """Short paths such as `tidegate_adapters.leases` are for users: no package imports them."""
    order = {name: place for place, name in enumerate(ADAPTERS)}
    modules = {name: name.split(".")[1] for name in imports() if name.startswith("tidegate_adapters.")}
    packages = {name: package for name, package in modules.items() if package in order}
    assert set(packages.values()) == set(order)
    assert [
        f"{name} imports {other}"
        for name, package in packages.items()
        for other in sorted(imports()[name])
        if other in modules and order.get(modules[other], len(order)) > order[package]
    ] == []


FILE_MAX, CLASS_MAX = 800, 400


def test_no_file_and_no_class_is_too_long_to_read_at_once() -> None:
    longer = set[str]()
    for name, file in files().items():
        text = file.read_text("utf-8")
        classes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
        lines = [(each.end_lineno or 0) - each.lineno + 1 for each in classes]
        longer |= {name} if text.count("\n") > FILE_MAX or max(lines, default=0) > CLASS_MAX else set()
    assert longer == set()


# --- the checks can fail ------------------------------------------------------------------------------------------------


def test_what_only_a_checker_imports_counts() -> None:
    text = (
        "import os.path\nfrom a import b, C\nif TYPE_CHECKING:\n    from a.d import E\ndef f():\n    from a import d\n"
    )
    assert imported(text, {"a", "a.b", "a.d"}) == {"os.path", "a", "a.b", "a.d"}


def test_a_circle_is_found_and_whoever_leads_into_it_is_not_in_it() -> None:
    graph = {
        "a": ["b"],
        "b": ["a", "x"],
        "x": [],
        "in": ["a"],
        "p": ["q"],
        "q": ["r"],
        "r": ["p", "a"],
        "alone": ["os"],
    }
    assert circles(graph) == [["a", "b"], ["p", "q", "r"]]


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("leases.lease", "consumer.partition.partition"),
        ("leases.lease", "sim.world.world"),
        ("leases.lease", "leases.checks.scenarios.leader"),
        ("leases.lease", "leases.checks.laws"),
        ("leases.checks.laws", "sim.scenario"),
        ("consumer.checks.laws.fanout", "consumer.checks.strategies.fanout"),
        ("consumer.checks.scenarios.partition", "consumer.checks.specimens.partition"),
        ("sim.search.search", "consumer.protocol.commands"),
        ("sim.servers.streams", "consumer.protocol.commands"),
        ("leases.lease", "strategies"),
    ],
)
def test_an_import_against_the_order_is_found(module: str, other: str) -> None:
    wrong = {f"tidegate.{module}": [f"tidegate.{other}"]}
    assert list(against_the_order(wrong)) == [f"tidegate.{module} imports tidegate.{other}"]


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("leases.lease", "model.instants"),
        ("consumer.checks.specimens.partition", "consumer.checks.scenarios.partition"),
        ("leases.checks.scenarios.leader", "consumer.checks.laws.partition"),
        ("sim.servers.log", "consumer.protocol.commands"),
        ("leases.checks.strategies", "leases.lease"),
    ],
)
def test_an_import_in_order_is_none(module: str, other: str) -> None:
    assert list(against_the_order({f"tidegate.{module}": [f"tidegate.{other}"]})) == []


@pytest.mark.parametrize("module", ["leases.lease", "leases.checks.laws", "sim.world.world"])
def test_hypothesis_is_for_strategies(module: str) -> None:
    assert list(against_the_order({f"tidegate.{module}": ["hypothesis.strategies"]}))
    assert not list(against_the_order({"tidegate.leases.checks.strategies": ["hypothesis.strategies"]}))
