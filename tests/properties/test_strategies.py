from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy, integers

import tidegate


def offered() -> Iterator[tuple[str, Callable[[], SearchStrategy[object]]]]:
    for module in walk_packages(tidegate.__path__, "tidegate."):
        if "strategies" not in module.name.split("."):
            continue
        found = import_module(module.name)
        for name, function in vars(found).items():
            is_own = inspect.isfunction(function) and function.__module__ == found.__name__ and not name.startswith("_")
            if is_own and all(
                each.default is not each.empty for each in inspect.signature(function).parameters.values()
            ):
                yield f"{module.name}.{name}", function


OFFERED = dict(offered())


@pytest.mark.parametrize("name", OFFERED)
def test_a_strategy_draws_values(name: str) -> None:
    strategy = OFFERED[name]()

    @settings(max_examples=5, phases=(Phase.generate,))
    @given(strategy)
    def draw(value: object) -> None:
        assert isinstance(value, (list, dict)) or isinstance(hash(value), int)

    if isinstance(strategy, SearchStrategy):
        draw()


def drawn() -> list[int]:
    seen: list[int] = []

    @settings(max_examples=300)
    @given(integers())
    def look(number: int) -> None:
        seen.append(number)

    look()
    return seen


def test_what_is_imported_does_not_matter_to_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a test's result would depend on the tests that ran before it in the process."""
    before = drawn()
    module = ModuleType("imported")
    module.__file__ = str(tmp_path / "imported.py")
    Path(module.__file__).write_text(f"NUMBERS = {[*range(1_000, 1_500)]}\n")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert drawn() == before


def test_strategies_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "tidegate.strategies")

    with pytest.raises(ImportError, match=r"pip install 'tidegate\[hypothesis\]'"):
        importlib.import_module("tidegate.strategies")
