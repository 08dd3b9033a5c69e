"""The core is pure: limits on imports and calls, with attrs as the only dependency."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

import tidegate

CORE: Final = Path(tidegate.__file__).parent
EXEMPT: Final = ("__main__", "strategies")
VALUES: Final = {
    "__future__": "annotations that are not evaluated",
    "ast": "what a planted bug changes in the text of a module, see sim.trace.variants; what a package exports, see _lazy",
    "attrs": "frozen values",
    "bisect": "search in sorted tuples",
    "collections": "counting",
    "collections.abc": "types",
    "contextlib": "an error that says nothing",
    "contextvars": "what programs keep in them, see sim.program.outside",
    "dataclasses": "the fields of those of users",
    "datetime": "instants from and to people's dates; its clocks are banned below",
    "decimal": "values of users",
    "difflib": "which known name is nearest to one that is misspelled",
    "dis": "where a suspended program stands, see model.bytecode",
    "enum": "closed sets of names",
    "functools": "partial application, and the caches listed below",
    "gc": "what lies on the value stack of a suspended program, see sim.program.fingerprint",
    "hashlib": "digests of values",
    "importlib": "a room of the catalogue, once something of it is asked for; the adapter of sim.rerun, if it is installed",
    "inspect": "what kind of function a law is; what an object holds, without its properties",
    "itertools": "iteration",
    "json": "the text of a trace in a page",
    "fractions": "numbers of all types in one order",
    "math": "NaN and infinity",
    "operator": "functions for operators",
    "re": "the text of a claim",
    "struct": "the bits of a float",
    "sys": "which Python runs, see model.bytecode; the modules that code imports, see sim.program.outside",
    "types": "what a suspended program is",
    "typing": "types",
    "zlib": "a checksum, see consumer.offsets._tables",
}
"""External modules that the core may import, and why. None has a clock, randomness or I/O."""

ONLY_IN: Final = {
    "ast": ("_lazy", "sim.trace.variants"),
    "dis": ("model.bytecode", "sim.program.fingerprint"),
    "gc": ("sim.program.fingerprint",),
    "sys": ("_lazy", "model.bytecode", "sim.program.fingerprint", "sim.program.outside", "sim.trace.variants"),
    "importlib": ("_lazy", "catalogue", "sim.search.confirming", "sim.trace.variants"),
}
SYS: Final = frozenset({"modules", "version_info"})

BANNED_NAMES: Final = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "exit", "globals", "input", "open", "print", "quit"}
)
CLOCKS: Final = frozenset({"now", "utcnow", "today"})
CACHES: Final = {
    "_lazy._imports": "what a package exports, once per package",
    "sim.search.confirming.second_process": "the adapter that is installed, see sim.program.rerun",
    "catalogue.__getattr__": "what ships, once it was asked for",
    "model.immutable._attributes": "what instances of a class may hold, once per class",
    "model.immutable._is_bare": "whether a class holds data, once per class",
    "model.values._error_slots": "what errors of a class hold besides attributes, once per class",
    "model.values._field_names": "the fields of a class, once per class",
    "sim.program.tagged._form_of": "what a class and its fields are called, once per class",
    "model.operations._check_collection_name": "whether a name may name a collection, once per name",
    "reactive.checks.scenarios.reactive_task.read": "a record as laws want it, for a while",
    "triggers.checks.scenarios.evaluator.run_of": "a run as laws want it, for a while",
    "invocations.checks.scenarios.transition.versions": "a history as laws want it, once per journal",
    "sim.world.faults.bound": "the cells of budgets, one for each kind of fault",
    "sim.servers.actors.come": "the cells that say how far the store has come with a request, by process",
    "sim.servers.actors.stuck": "the cells that say whether user code never returns, by process",
    "sim.servers.log.log": "the cells of logs, by partition",
    "sim.servers.log.made_anew": "the cells of how often logs were made anew",
    "sim.world.world.paused": "the cells of what consumers have paused",
    "model.immutable._reader": "what reads the fields of a class, once per class",
    "model.immutable.frozen_fields": "the fields of a class, once per class",
    "model.sealed._fields_of": "what reads the fields of a class, once per class",
    "pipeline.identity._quoted": "a name as a key has it, for a while",
    "work.vocabulary.places": "where each queue stands, once per rules",
    "model.bytecode.lookups": "what a function looks up, once per code object",
    "model.bytecode.outline": "what a function calls, once per code object",
    "model.bytecode.suspensions": "what is live where, once per code object",
    "sim.world.world.document": "the cell of a document, for a while",
    "sim.world.world.uniques": "the cells of unique indexes, by collection",
    "sim.runs.successors._lanes": "the kinds of lanes of actors",
    "sim.program._objects._form_of": "how a class holds what its instances have, once per class",
    "sim.trace.variants._statements": "what a module says, once per module",
    "sim.trace.variants._compiled": "what a planted bug has executed again, once per bug",
    "sim.world.world.notes": "the cell of a process's notes, for a while",
}
"""The only state that outlives a call: caches of functions of values, visible only in run time."""

MUTATORS: Final = frozenset(
    {
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "sort",
        "update",
    }
)
MUTABLE: Final = frozenset({"Counter", "bytearray", "defaultdict", "deque", "dict", "list", "set"})


def is_exempt(module: str) -> bool:
    return not set(EXEMPT).isdisjoint(module.split("."))


@cache
def parsed() -> dict[str, ast.Module]:
    files = {".".join(file.relative_to(CORE).with_suffix("").parts): file for file in CORE.rglob("*.py")}
    return {name: ast.parse(file.read_text("utf-8")) for name, file in files.items() if not is_exempt(name)}


MODULES: Final = sorted(parsed())


# --- what each module may use -----------------------------------------------------------------------------------------


def imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module, _, 0):
                found.add(module or "")
            case ast.ImportFrom(module):
                found.add(f".{module}")  # relative, and so on no list
            case _:
                pass
    return found


def is_ours(name: str) -> bool:
    return name == "tidegate" or name.startswith("tidegate.")


def imports_too_much(module: str, tree: ast.Module) -> set[str]:
    return {
        name
        for name in imported(tree)
        if is_exempt(name) or not (is_ours(name) or name in VALUES) or module not in ONLY_IN.get(name, (module,))
    }


def reaches_outside(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) if name in BANNED_NAMES:
                found.add(name)
            case ast.Attribute(ast.Name("sys"), name) if name not in SYS:
                found.add(f"sys.{name}")
            case ast.Attribute(ast.Name("datetime") | ast.Attribute(_, "datetime"), name) if name in CLOCKS:
                found.add(name)
            case _:
                pass
    return found


def keeps_state(tree: ast.Module) -> set[str]:
    bound: list[str] = []
    found: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name("__all__")], ast.List()):
                pass
            case ast.Assign(targets, value):
                made = [name.id for name in ast.walk(ast.Tuple(targets)) if isinstance(name, ast.Name)]
                bound += made
                found.update(made if is_mutable(value) else ())
            case ast.AnnAssign(ast.Name(name), annotation, value):
                bound.append(name)
                found.update([name] if is_mutable(value) and not ast.unparse(annotation).startswith("Final") else ())
            case ast.ClassDef(name, body=body):
                fields = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign))]
                found.update(f"{name}: {ast.unparse(node)}" for node in fields if is_mutable(node.value))
            case _:
                pass
    found |= {name for name in bound if bound.count(name) > 1}
    found |= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return found | (set(bound) & changed(tree)) - bound_in_functions(tree)


def is_mutable(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            return True
        case ast.Call(ast.Name(name)):
            return name in MUTABLE
        case _:
            return False


def changed(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(ast.Name(name), _, ast.Store() | ast.Del()) | ast.AugAssign(ast.Name(name)):
                found.add(name)
            case ast.Call(ast.Attribute(ast.Name(name), method)) if method in MUTATORS:
                found.add(name)
            case _:
                pass
    return found


def bound_in_functions(tree: ast.Module) -> set[str]:
    scopes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
    inside = [node for scope in scopes for node in ast.walk(scope)]
    names = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.arg for node in inside if isinstance(node, ast.arg)}


def caches(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) if any("cache" in ast.unparse(each) for each in node.decorator_list):
                found.add(name)
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("cache" | "lru_cache"))):
                found.add(name)
            case _:
                pass
    return found


def test_the_core_imports_attrs_value_modules_and_itself() -> None:
    assert {each: found for each, tree in parsed().items() if (found := imports_too_much(each, tree))} == {}


def test_no_more_is_allowed_than_is_needed() -> None:
    assert VALUES.keys() == {name for tree in parsed().values() for name in imported(tree) if not is_ours(name)}


def test_nothing_in_the_core_reaches_outside() -> None:
    found = {each: names for each, tree in parsed().items() if (names := reaches_outside(tree))}
    assert found == {"sim.trace.variants": {"compile", "exec"}}  # our modules, with a bug


def test_no_module_keeps_state() -> None:
    assert {each: found for each, tree in parsed().items() if (found := keeps_state(tree))} == {}


def test_the_caches_are_those_that_are_listed() -> None:
    assert CACHES.keys() == {f"{module}.{name}" for module, tree in parsed().items() for name in caches(tree)}


@pytest.mark.parametrize(
    "planted",
    [
        "import time",
        "import random as r",
        "from os import environ",
        "from . import status",
        "from tidegate.strategies import offsets",
        "import gc",
        "def f():\n    import socket",
        "print(1)",
        "f = open",
        "def f(): return __import__('os')",
        "def f(x): return eval(x)",
        "sys.stdout.write('x')",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "SEEN = {}",
        "SEEN: dict[str, int] = dict()",
        "SEEN: Final = []\ndef f(x): SEEN.append(x)",
        "SEEN: Final = {}\ndef f(x): SEEN[x] = 1",
        "COUNT = 0\ndef f():\n    global COUNT\n    COUNT += 1",
        "A = 1\nA = 2",
        "class A:\n    seen: list[int] = []",
    ],
)
def test_what_is_not_pure_is_found(planted: str) -> None:
    tree = ast.parse(planted)

    assert imports_too_much("status", tree) | reaches_outside(tree) | keeps_state(tree)


# --- in isolation -----------------------------------------------------------------------------------------------------


def python(paths: Sequence[Path], *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}; sys.dont_write_bytecode = True; "
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", path + arguments[0], *arguments[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def attrs_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attrs")
    for name in ("attr", "attrs"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent, target_is_directory=True)
    return folder


def test_with_attrs_alone_every_module_of_the_core_imports(attrs_alone: Path) -> None:
    dotted = [f"tidegate.{name}".removesuffix(".__init__").replace("tidegate.__init__", "tidegate") for name in MODULES]
    every = "; ".join(f"import {name}" for name in dotted)
    loaded = "print(*sorted(name for name in sys.modules if name.partition('.')[0] in ('attr', 'attrs', 'tidegate')))"
    done = python([CORE.parent, attrs_alone], f"{every}; {loaded}")

    assert (done.returncode, done.stderr) == (0, "")
    assert set(dotted) <= set(done.stdout.split())


def test_without_attrs_it_says_what_is_missing() -> None:
    done = python([CORE.parent], "import tidegate.invocations.record.status")

    assert done.returncode == 1
    assert "No module named 'attrs'" in done.stderr


def test_the_strategies_without_hypothesis_say_what_to_install(attrs_alone: Path) -> None:
    done = python([CORE.parent, attrs_alone], "import tidegate.strategies")

    assert done.returncode == 1
    assert "MissingExtra: tidegate.strategies needs an extra" in done.stderr
    assert done.stderr.rstrip().endswith("help: pip install 'tidegate[hypothesis]'")


@pytest.mark.parametrize("arguments", [(), ("--version",), ("explore",)])
def test_the_command_without_its_extra_says_what_to_install(attrs_alone: Path, arguments: tuple[str, ...]) -> None:
    run = "import runpy; runpy.run_module('tidegate', run_name='__main__')"
    done = python([CORE.parent, attrs_alone], run, *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: needs extra: pip install 'tidegate[cli]'\n"
