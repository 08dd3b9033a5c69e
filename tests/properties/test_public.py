from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from os import environ
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from types import ModuleType
from typing import Final, TypeVar

import tidegate
import tidegate_adapters
from tidegate import ExitCode

NAMES: Final = Path(__file__).with_name("public_names.txt")

BESIDE: Final = frozenset({"laws", "scenarios", "specimens", "strategies"})
QUALIFIED: Final = {
    ("consumer", "NEXT"),
    ("consumer", "check_event"),
    ("consumer", "event_for"),
    ("consumer", "plan"),
    ("invocations", "ATTEMPTS"),
    ("invocations", "STATUS"),
    ("services", "beat"),
    ("services", "join"),
    ("services", "leave"),
    ("sim", "asked"),
    ("sim", "judged"),
}
"""Names (no types) that two modules of a room share, so users qualify them: `drain.plan`."""


def modules() -> Iterator[ModuleType]:
    yield tidegate
    for found in walk_packages(tidegate.__path__, "tidegate."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def listed(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return [*module.__all__]
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    assigned = [target for each in tree.body if isinstance(each, ast.Assign) for target in each.targets]
    assigned += [each.target for each in tree.body if isinstance(each, ast.AnnAssign)]
    names = {at.id for target in assigned for at in ast.walk(target) if isinstance(at, ast.Name)}
    names |= {
        each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    return [name for name in names if name[0] != "_" and not isinstance(getattr(module, name), TypeVar)]


def test_within_a_room_a_name_stands_for_one_thing() -> None:
    meant: dict[tuple[str, str], list[object]] = {}
    for module in modules():
        _, room, *inner = [*module.__name__.split("."), ""]
        if BESIDE.isdisjoint(inner):
            for name in listed(module):
                things, thing = meant.setdefault((room, name), []), getattr(module, name)
                if not any(thing is other for other in things):
                    things.append(thing)

    assert {name for name, things in meant.items() if len(things) > 1} == QUALIFIED


def exported() -> Iterator[tuple[str, list[str]]]:
    """The names of `tidegate`, its packages and top-level modules, and those of `tidegate_adapters`."""
    for root in (tidegate, tidegate_adapters):
        for name in (root.__name__, *(each.name for each in iter_modules(root.__path__, f"{root.__name__}."))):
            if name.rpartition(".")[2][0] == "_":
                continue
            module = importlib.import_module(name)
            stars = re.findall(r"^from ([\w.]+) import \*", Path(str(module.__file__)).read_text("utf-8"), re.MULTILINE)
            for source in (module, *map(importlib.import_module, stars)):
                if source is not module or hasattr(source, "__all__") or not hasattr(source, "__path__"):
                    yield name, listed(source)


def test_the_public_names_are_those_on_record() -> None:
    """TIDEGATE_GOLDEN=write rewrites the list; commit only intended changes."""
    now = "".join(f"{name}: {' '.join(sorted(names))}\n" for name, names in exported() if names)
    if environ.get("TIDEGATE_GOLDEN") == "write":
        NAMES.write_text(now, encoding="utf-8")
    assert now.splitlines() == NAMES.read_text(encoding="utf-8").splitlines()


def test_exit_codes_are_those_of_the_field() -> None:
    assert [code.value for code in ExitCode][:7] == [0, 1, 2, 3, 4, 5, 6]
    assert tidegate.__version__.count(".") == 2
