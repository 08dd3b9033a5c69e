"""Planted bugs: the test replaces source text of a module, and each named law must fail.

A law is an ordinary test. A bug names the text to replace (which occurs once), the new text, and
the laws that find it:

    test_a_planted_bug_is_found = planted(
        backpressure,
        bug("it never opens", ("load <= low", "load < 0"), test_b3_nothing_is_held_below_low),
    )

Importers of the module or of its functions use the faulty version meanwhile; laws and strategies do
not. A class keeps its identity and gets the faulty methods, so its values still equal existing
ones.

Known not to work
    - A table in another module that holds a function keeps the right one.
    - A replacement that calls the original function needs another name for it: `RIGHT =
      module.plan`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Final, TypeAlias

import attrs
import pytest
from hypothesis import settings

from tidegate.sim.trace.variants import variant

Law: TypeAlias = Callable[..., None]
_RIGHT: Final = (".laws.", ".strategies.")


@attrs.frozen
class Bug:
    """`names` replaces module names where no text can; `says` is a pattern of the failure."""

    name: str
    replacements: tuple[tuple[str, str], ...]
    names: Mapping[str, object]
    laws: tuple[Law, ...]
    says: str | None = None


def bug(name: str, *parts: tuple[str, str] | Law, says: str | None = None, **names: object) -> Bug:
    replacements = tuple(each for each in parts if isinstance(each, tuple))
    return Bug(name, replacements, names, tuple(each for each in parts if not isinstance(each, tuple)), says)


def planted(module: ModuleType, *bugs: Bug) -> Law:
    @pytest.mark.parametrize(
        ("bug", "law"), [pytest.param(each, law, id=f"{each.name}-{_name(law)}") for each in bugs for law in each.laws]
    )
    def test_a_planted_bug_is_found(bug: Bug, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
        plant(bug, module, monkeypatch)
        finds(law, monkeypatch, bug.says)

    return test_a_planted_bug_is_found


def finds(law: Law, patch: pytest.MonkeyPatch, says: str | None = None) -> None:
    # The settings of the test do not apply here: they run few examples and shrink failures.
    searched = settings.get_profile("planted")
    patch.setattr(getattr(law, "func", law), "_hypothesis_internal_use_settings", searched, raising=False)
    with pytest.raises(AssertionError, match=says):
        law()


def _name(law: Law) -> str:
    arguments = "".join(f" {getattr(each, '__name__', each)}" for each in getattr(law, "args", ()))
    name: str = getattr(law, "func", law).__name__
    return name.removeprefix("test_") + arguments


def plant(bug: Bug, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    faulty = variant(module, *bug.replacements, **bug.names)
    changed = {name: made for name, made in vars(faulty).items() if getattr(module, name, None) is not made}
    classes = {made for made in changed.values() if isinstance(made, type)}
    for name, made in changed.items():
        if isinstance(made, type):
            for each, method in _methods(made, faulty):
                patch.setattr(getattr(module, name), each, method)
        if isinstance(made, type) or type(made) in classes:
            changed[name] = vars(faulty)[name] = getattr(module, name)
    users = (each for name, each in [*sys.modules.items()] if name.startswith(("tests.", "tidegate.")))
    for user in users:
        if user is module or any(each in f"{user.__name__}." for each in _RIGHT):
            continue
        for name, value in [*vars(user).items()]:
            if value is module:
                patch.setattr(user, name, faulty)
            elif name in changed and value is getattr(module, name, changed):
                patch.setattr(user, name, changed[name])


def _methods(made: type, faulty: ModuleType) -> Iterator[tuple[str, object]]:
    for name, each in vars(made).items():
        function = getattr(each, "__func__", getattr(each, "fget", each))
        if getattr(function, "__globals__", None) is vars(faulty):
            yield name, each
