"""Finds the scenarios of a target name.

    transition                   a shipped scenario, in its default scope
    transition@thorough          the same in another scope
    tests/takeover.py:two        the attribute `two` of the file: a scenario, a function without
                                 arguments that makes one or some, or a list or tuple of them
    shop.scenarios:two           the same in an importable module
    tests/takeover.py:all[two]   the scenario named `two` in a list, or in a function's result
    tests/test_it.py::test_two   the scenario that a test explores with the fixture `sim`; with
                                 `#2` the second one

Traces record the last two forms. A name in a trace is not the user's own input, and loading it runs
code: so only files beneath the current directory are followed; name any other on the command line.
Known not to help: a trace that names a script of the user's own project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, iscoroutine, iscoroutinefunction, isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Final, cast, final

import attrs

from tidegate import catalogue
from tidegate.model.errors import Misuse
from tidegate.sim.runs.registry import Scope, scoped
from tidegate.sim.scenario import Scenario
from tidegate_adapters.base.decorators import loading, module_from
from tidegate_adapters.base.errors import NothingSelectedError, message, near, origin, raised
from tidegate_adapters.exploring.scenario_in_test import TEST, scenario_in

_ATTRIBUTE: Final = re.compile(r"(?P<module>.+?):(?P<attribute>[^\W\d]\w*)(?:\[(?P<name>.*)\])?", re.DOTALL)

_TO_NAME_IT: Final = "go to the directory where it was recorded, or name the scenario: tidegate replay TRACE TARGET"


@final
@attrs.frozen(eq=False)
class Target:
    """A scenario and its identity: its name, or `path.py:attr`."""

    identity: str
    scenario: Scenario

    @property
    def is_shipped(self) -> bool:
        return _is_shipped(self.identity)


def select(
    texts: Iterable[str],
    expression: str = "",
    *,
    scope: str = Scope.DEFAULT,
    only: str | None = None,
    is_sample: bool = False,
) -> tuple[Target, ...]:
    """The scenarios that the texts name, each once, in order; all shipped ones without a text.

    Args:
        texts: Names, `path.py:attr` or `module:attr`.
        expression: A part of the name.
        scope: The default scope of shipped scenarios; without texts, a scope that they must have.
        only: The kind.
        is_sample: Without texts, only the first design and specimen of each family.

    Raises:
        Misuse: A scenario does not exist, or cannot be loaded.
        NothingSelectedError: No scenario matches.
    """
    given = tuple(texts)
    if not given:  # skips loading what ships
        shipped = catalogue.SAMPLE if is_sample else catalogue.CATALOGUE
        given = tuple(name for name, each in shipped.items() if scope in each.scopes)
    named = (_BY_DECISION.get(text, text) for text in given)
    asked = (scoped(text, Scope(scope)) if _is_shipped(text) and "@" not in text else text for text in named)
    found = {target.identity: target for text in asked for target in _named(text)}
    selected = tuple(
        target
        for target in found.values()
        if expression in target.scenario.name and only in (None, target.scenario.kind)
    )
    if not selected:
        named_so = f" has {expression!r} in its name" if expression else " is selected"
        raise NothingSelectedError(f"no scenario{named_so}", todo="tidegate list shows what ships")
    return selected


def one(text: str) -> Target:
    """The only scenario that the text names.

    Raises:
        Misuse: There is none, or more than one, or it cannot be loaded.
        CodeRaisedError: The user's function raised.
    """
    match _named(text):
        case (only,):
            return only
        case found:
            several = _listed(target.identity for target in found)
            raise Misuse(f"{text} is {len(found)} scenarios", todo=f"choose one: {several}")


def recorded(identity: str) -> Target:
    """The scenario that a trace names, if it ships or lies beneath the current directory; raises as
    `one`.
    """
    test, attribute = TEST.fullmatch(identity), _ATTRIBUTE.fullmatch(identity)
    module = test["file"] if test else attribute["module"] if attribute else ""
    if module and not _lies_here(module):
        raise Misuse(
            f"the trace names a scenario that does not lie beneath this directory: {identity}",
            why="to load it is to run its code, and a trace may come from anywhere",
            todo=_TO_NAME_IT,
        )
    if not module and not _is_shipped(identity):
        raise Misuse(
            f"there is no scenario {identity!r} among those that ship, and the trace names it",
            why="explore() records what a scenario is called, and not where it is",
            todo="name it: tidegate replay TRACE path.py:attr",
        )
    if module.endswith(".py") and not Path(module).is_file():
        raise Misuse(f"there is no file {near(module)}, and the trace names a scenario in it", todo=_TO_NAME_IT)
    return one(identity)


def there(text: str) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """The scenarios of a file, or those that the text names; and functions of the file that may
    make more but lack the annotation.

    Those functions are not called: they may do anything.
    """
    if not text.endswith(".py"):
        return _named(text), ()
    module = _loaded(text)
    offered = _offered(module)
    silent = [name for name, value in offered.items() if isfunction(value) and "return" not in value.__annotations__]
    found = [_scenarios(value, f"{text}:{name}", module) for name, value in offered.items() if name not in silent]
    return tuple(target for some in found for target in some), tuple(silent)


def attribute(text: str) -> tuple[object, ModuleType]:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None or match["name"] is not None:
        raise Misuse(f"{text!r} names nothing in a module", todo="write path.py:attr or module:attr")
    module = _loaded(match["module"])
    if not hasattr(module, match["attribute"]):
        raise Misuse(f"there is no {match['attribute']!r} in {match['module']}")
    return getattr(module, match["attribute"]), module


_BY_DECISION: Final = {
    "watermark": "partition", "OffsetTracker": "partition", "offset_to_commit": "partition",
    "backpressure": "group", "decide_backpressure": "group",
    "decide_atomic_service_claim": "atomic_service",
    "status": "transition", "decide_status_transition": "transition",
    "snapshot": "reactive_task", "diff_snapshots": "reactive_task",
}  # fmt: skip
"""By the name of a decision: the design that explores it."""


def _named(text: str) -> tuple[Target, ...]:
    text = _BY_DECISION.get(text, text)
    if _is_shipped(text):
        return (Target(text, catalogue.shipped(text)),)
    if test := TEST.fullmatch(text):
        if not Path(test["file"]).is_file():
            raise Misuse(f"there is no file {near(test['file'])}")
        return (Target(text, scenario_in(text)),)
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise _unknown(text)
    module = _loaded(match["module"])
    base = f"{match['module']}:{match['attribute']}"
    if not hasattr(module, match["attribute"]):
        raise Misuse(f"there is no {match['attribute']!r} in {match['module']}", todo=_offers(module))
    found = _scenarios(getattr(module, match["attribute"]), base, module)
    if match["name"] is None:
        return found
    identities = [target.identity for target in found]
    if text not in identities:
        raise Misuse(f"there is no scenario {match['name']!r} in {base}", todo=f"there are: {_listed(identities)}")
    return (found[identities.index(text)],)


def _is_shipped(text: str) -> bool:
    return ":" not in text and not text.endswith(".py") and text.partition("@")[0] in catalogue.CATALOGUE


def _unknown(text: str) -> Misuse:
    if text.endswith(".py"):
        names = _listed(f"{text}:{name}" for name in _offered(_loaded(text)))
        return Misuse(f"{text} is a file, and which scenario of it?", todo=f"name it: {names or f'{text}:ATTR'}")
    near = get_close_matches(text, catalogue.CATALOGUE, n=1)
    return Misuse(
        f"there is no scenario {text!r}",
        why="a target is a scenario that ships, path.py:attr, or module:attr",
        todo=(f"did you mean {near[0]}? " if near else "") + "tidegate list shows what ships",
    )


# --- loading --------------------------------------------------------------------------------------


def _loaded(module: str) -> ModuleType:
    try:
        with loading():
            return _from_file(Path(module).resolve()) if module.endswith(".py") else _from_here(module)
    except Misuse as error:
        error.where = error.where or origin(error)
        raise
    except (Exception, SystemExit) as error:
        raise Misuse(f"cannot load {module}", where=origin(error), why=message(error)) from error


def _from_here(module: str) -> ModuleType:
    _reach(Path.cwd())
    return import_module(module)


@cache
def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise Misuse(f"there is no file {near(str(file))}")
    name = f"tidegate_target_{file.stem.replace('.', '_')}"
    while name in sys.modules:
        name += "_"
    _reach(file.parent)
    return module_from(name, str(file))


def _reach(directory: Path) -> None:
    """Make modules beside the target importable, before installed packages but behind the standard
    library, whose late imports, such as `queue`, must not load a file there.
    """
    if str(directory) not in sys.path:
        places = (
            number for number, each in enumerate(sys.path) if Path(each).name in {"site-packages", "dist-packages"}
        )
        sys.path.insert(next(places, len(sys.path)), str(directory))


def _lies_here(module: str) -> bool:
    """Whether loading it would run a file beneath the current directory."""
    if module.endswith(".py"):
        return _is_here(Path(module))
    _reach(Path.cwd())
    try:
        spec = find_spec(module.partition(".")[0])  # of the package: a submodule would be imported
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = spec.submodule_search_locations or ([spec.origin] if spec.origin and spec.has_location else [])
    return bool(places) and all(_is_here(Path(place)) for place in places)


def _is_here(path: Path) -> bool:
    return path.resolve().is_relative_to(Path.cwd())


# --- from a value to scenarios --------------------------------------------------------------------


def _scenarios(value: object, base: str, module: ModuleType) -> tuple[Target, ...]:
    made = _called(value, base) if callable(value) else value
    if not isinstance(made, (list, tuple)):
        return (Target(base, _scenario(made, value, base, module)),)
    some = [
        _scenario(_called(item, base) if callable(item) else item, item, base, module)
        for item in cast("Sequence[object]", made)
    ]
    names = [each.name for each in some]
    if not some:
        raise Misuse(f"{base} {'makes no Scenario' if callable(value) else 'is empty'}", todo=_offers(module))
    if len(set(names)) < len(names):
        raise Misuse(f"two scenarios of {base} have one name: {_listed(names)}")
    return tuple(Target(f"{base}[{each.name}]", each) for each in some)


def _scenario(made: object, value: object, base: str, module: ModuleType) -> Scenario:
    if not isinstance(made, Scenario):
        fault = "makes no" if callable(value) else "is not a"
        raise Misuse(f"{base} {fault} Scenario: {type(made).__name__}", todo=_offers(module))
    return made


def _called(make: Callable[[], object], base: str) -> object:
    if not takes_nothing(make):
        raise Misuse(f"{base} takes arguments", todo="a target is called without any: wrap it in a function of its own")
    try:
        made = make()
    except (Exception, SystemExit) as error:
        if isinstance(error, Misuse):
            error.where = error.where or origin(error)
            raise
        raise raised(error, f"{base} raised an error") from error
    if iscoroutine(made):
        made.close()  # avoids the "never awaited" warning
    return made


def takes_nothing(make: Callable[..., object]) -> bool:
    try:
        parameters = signature(make).parameters.values()
    except (TypeError, ValueError):  # some built-ins have none
        return False
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return all(each.default is not Parameter.empty or each.kind in optional for each in parameters)


def _offers(module: ModuleType) -> str:
    found = _offered(module)
    return (
        f"found there: {_listed(found)}" if found else "found there: no scenario, and no function that could make one"
    )


def _offered(module: ModuleType) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and _can_be_target(value, module)
    }


def _can_be_target(value: object, module: ModuleType) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, Scenario) for item in cast("Sequence[object]", value))
    if isfunction(value):
        is_here = value.__module__ == module.__name__ and takes_nothing(value) and not iscoroutinefunction(value)
        return is_here and Scenario.__name__ in str(value.__annotations__.get("return", Scenario))  # a string or a type
    return isinstance(value, Scenario)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
