from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from os import environ
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Final, TypeVar

import tidegate
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


def test_the_public_names_are_those_on_record() -> None:
    """TIDEGATE_GOLDEN=write rewrites the list; commit only intended changes."""
    shown = (module for module in modules() if not re.search(r"\.(scenarios|specimens)\b", module.__name__))
    now = "".join(f"{module.__name__}: {' '.join(sorted(names))}\n" for module in shown if (names := listed(module)))
    if environ.get("TIDEGATE_GOLDEN") == "write":
        NAMES.write_text(now, encoding="utf-8")
    assert now.splitlines() == NAMES.read_text(encoding="utf-8").splitlines()


def test_exit_codes_are_those_of_the_field() -> None:
    assert [code.value for code in ExitCode][:7] == [0, 1, 2, 3, 4, 5, 6]
    assert tidegate.__version__.count(".") == 2
