"""The laws themselves: all are public, each says which one it is, and none is only written down."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Final

import pytest

import tidegate
from tidegate import laws

pytestmark = pytest.mark.xdist_group("laws")  # what the tests cite is read once, in one process

TESTS: Final = Path(__file__).parents[1]
NUMBERED: Final = re.compile(r"^    (?P<law>[A-Z]{1,3}[0-9]+) +\S", re.MULTILINE)
"""A law in the header of a module: `    W1  The committable position passes no open offset.`"""
CITED: Final = re.compile(r"\bLaws? (?:[A-Z]{1,3}[0-9]+(?:, | and |, and | to )?)+")
NAME: Final = re.compile(r"[A-Z]{1,3}[0-9]+")


def cited(text: str) -> set[str]:
    """The laws that a docstring cites: `Law W1`, `Laws P1, P2 and P4`."""
    return {name for citation in CITED.findall(text) for name in NAME.findall(citation)}


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            yield import_module(found.name)


def numbered() -> dict[str, list[str]]:
    """Each law that a header numbers, and the modules that do."""
    found: dict[str, list[str]] = {}
    for module in modules(tidegate):
        for law in NUMBERED.findall(inspect.getdoc(module) or ""):
            found.setdefault(law, []).append(module.__name__)
    return found


NUMBERS: Final = numbered()
LAWS: Final = laws.__all__


def functions(module: ModuleType) -> dict[str, Callable[..., object]]:
    """The public functions that a module defines."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: function for name, function in found if function.__module__ == module.__name__ and name[0] != "_"}


def predicates(module: ModuleType) -> dict[str, Callable[..., object]]:
    """The laws of a module: its predicates, but for those that others of its functions are made of."""
    all_functions = functions(module)
    used = {name for function in all_functions.values() for name in function.__code__.co_names}
    used |= {
        name
        for function in all_functions.values()
        for code in function.__code__.co_consts
        for name in getattr(code, "co_names", ())
    }
    return {
        name: function
        for name, function in all_functions.items()
        if function.__annotations__.get("return") in ("bool", bool) and name not in used
    }


@cache
def cited_by_predicates() -> frozenset[str]:
    every = (function for name in LAWS for function in predicates(getattr(laws, name)).values())
    return frozenset(law for function in every for law in cited(inspect.getdoc(function) or ""))


@cache
def cited_by_tests() -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    files = (file for file in TESTS.rglob("*.py") if file != Path(__file__))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    return frozenset(law for node in nodes if isinstance(node, kinds) for law in cited(ast.get_docstring(node) or ""))


def test_every_module_of_laws_is_public() -> None:
    """`tidegate.laws` exports the laws of each room, module by module, and nothing else."""
    rooms = {module.__name__ for module in modules(tidegate) if "laws" in module.__name__.split(".")[2:]}
    packages = {name.rpartition(".")[0] for name in rooms if name.rpartition(".")[0] in rooms}

    assert {getattr(laws, name).__name__ for name in LAWS} == rooms - packages


def test_every_predicate_says_which_law_it_is() -> None:
    """Its docstring begins with the law that it is: `Law W1: ...`, one that a header numbers."""
    found = {name: predicates(getattr(laws, name)) for name in LAWS}
    docs = {f"{name}.{law}": function.__doc__ or "" for name, each in found.items() for law, function in each.items()}

    assert [name for name, each in found.items() if not each] == []
    assert [law for law, doc in docs.items() if not re.match(r"Law [A-Z]{1,3}\d+\b", doc)] == []
    assert {law: numbers for law, doc in docs.items() if (numbers := cited(doc) - NUMBERS.keys())} == {}


def test_every_law_has_one_number() -> None:
    """No two modules give the same number to two laws, nor does one module."""
    assert {law: where for law, where in NUMBERS.items() if len(where) > 1} == {}


def test_every_numbered_law_is_judged() -> None:
    """Each law in a header is a predicate of `tidegate.laws`, or a test cites it."""
    known = cited_by_predicates() | cited_by_tests()
    assert {law: where for law, where in NUMBERS.items() if law not in known} == {}


def test_laws_are_found_and_citations_are_read() -> None:
    """The three patterns above find what they are meant to find, for else nothing was checked."""
    assert {"W1", "W10", "TR6", "AL4", "P6", "D2", "T1"} <= NUMBERS.keys()
    assert cited("Law W1. It is; laws W2 and W3 are not.") == {"W1"}
    assert cited("Laws P1, P2 and P4 of it, also Law TR3: so.") == {"P1", "P2", "P4", "TR3"}
    assert cited("A law of S1 is none.") == set()
    assert {"W10", "TR5", "S5"} <= cited_by_predicates()
    assert {"AL4", "TR3"} <= cited_by_tests()


# --- what a write that matches nothing means -------------------------------------------------------------------------------

PROGRAMS: Final = (
    "counters.increments", "invocations.array_push_lock", "invocations.asking", "invocations.metering", "invocations.picker", "invocations.placing",
    "invocations.recoverer", "invocations.registration", "invocations.settling", "invocations.transition", "leases.leader", "payloads.uploads",
    "reactive.deployments", "reactive.desk", "reactive.pausing", "reactive.reactive_task", "reactive.reconciler",
    "reactive.sweeper", "services.members", "services.service_runner", "triggers.evaluator",
)  # fmt: skip
"""Each module of a program that writes by a filter."""
MATCHES_NOTHING: Final = re.compile(r"matche?s?\s+nothing|nothing\s+matches|no\s+match|fewer", re.IGNORECASE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_makes_of_a_write_that_matches_nothing(name: str) -> None:
    """It may have been done by an earlier request: where that matters it is read back."""
    assert MATCHES_NOTHING.search(import_module(f"tidegate.{name}").__doc__ or "")
