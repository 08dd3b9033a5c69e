"""Planted bugs: what the code that runs says is replaced, and each law that is named has to find that.

A law is an ordinary test. A bug is what a module says, once, what it is to say instead, and the laws that find it:

    test_a_planted_bug_is_found = planted(
        backpressure,
        bug("it never opens", ("load <= thresholds.low", "load < 0"), test_b3_nothing_is_held_below_low),
    )

Whoever has imported the module, or a function of it, has the faulty one meanwhile, but for laws and strategies. A class stays
and is given the faulty methods, so that its values still equal those that others make.

Known not to work
    - A table of another module that holds a function goes on with the right one.
    - What stands for a function of the module and calls that one itself needs it by another name: `RIGHT = module.plan`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Final, TypeAlias

import attrs
import pytest
from hypothesis import settings

from tidegate.sim.variants import variant

Law: TypeAlias = Callable[..., None]
"""A test without arguments, but for what Hypothesis draws: it raises AssertionError where something is wrong."""
_RIGHT: Final = (".laws.", ".strategies.")


@attrs.frozen
class Bug:
    """What a module is to say instead of what it says.

    Attributes:
        name: What is wrong, in a few words.
        replacements: What the module says, exactly once, and what it is to say instead.
        names: What names of the module are to stand for instead, where no text says it.
        laws: Each of them finds it.
        says: A pattern of what they say then, where that tells which part of a law finds it.
    """

    name: str
    replacements: tuple[tuple[str, str], ...]
    names: Mapping[str, object]
    laws: tuple[Law, ...]
    says: str | None = None


def bug(name: str, *parts: tuple[str, str] | Law, says: str | None = None, **names: object) -> Bug:
    """A bug: its replacements, then its laws."""
    replacements = tuple(each for each in parts if isinstance(each, tuple))
    return Bug(name, replacements, names, tuple(each for each in parts if not isinstance(each, tuple)), says)


def planted(module: ModuleType, *bugs: Bug) -> Law:
    """The test that each law finds the bugs that name it."""

    @pytest.mark.parametrize(
        ("bug", "law"), [pytest.param(each, law, id=f"{each.name}-{_name(law)}") for each in bugs for law in each.laws]
    )
    def test_a_planted_bug_is_found(bug: Bug, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
        plant(bug, module, monkeypatch)
        finds(law, monkeypatch, bug.says)

    return test_a_planted_bug_is_found


def finds(law: Law, patch: pytest.MonkeyPatch, says: str | None = None) -> None:
    """Check that the law finds what is wrong by now, however long it looks."""
    # A test is given its settings where it is defined: it may look at few examples, and would shrink what it finds.
    searched = settings.get_profile("planted")
    patch.setattr(getattr(law, "func", law), "_hypothesis_internal_use_settings", searched, raising=False)
    with pytest.raises(AssertionError, match=says):
        law()


def _name(law: Law) -> str:
    """For the id of a test: what a law says; of a part of one also with which arguments."""
    arguments = "".join(f" {getattr(each, '__name__', each)}" for each in getattr(law, "args", ()))
    name: str = getattr(law, "func", law).__name__
    return name.removeprefix("test_") + arguments


def plant(bug: Bug, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Give whoever uses the module the faulty one."""
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
    """What the module's own text makes of a class, without what attrs adds to it."""
    for name, each in vars(made).items():
        function = getattr(each, "__func__", getattr(each, "fget", each))
        if getattr(function, "__globals__", None) is vars(faulty):
            yield name, each
