"""All shipped scenarios and specimens, by name, in the order of exploration: designs first.

A module of a package's `scenarios` lists SCENARIOS of `Shipped`; the module of its `specimens` with
the same name lists SPECIMENS of `Specimen`. Modules load on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast, final

from tidegate.model.errors import Misuse
from tidegate.sim.runs.registry import Scope, Shipped, Specimen
from tidegate.sim.scenario import Scenario

_DESIGNED: Final[Mapping[str, tuple[str, ...]]] = {
    "leases": ("leader", "small_lock"),
    "counters": ("counter", "counter_read"),
    "transactions": ("transfers", "on_call"),
    "payloads": (),
    "services": (),
    "invocations": (
        "admission", "array_push_lock", "asking", "ending", "waiting", "purging", "enqueueing", "metering", "taking", "heeding",
        "recovery", "registration", "transition", "settling",
    ),
    "triggers": ("evaluator", "noticing", "turn"),
    "reactive": (
        "change_stream", "deployments", "desk", "planners", "reactive_task", "reconciler", "sweeper", "unconfirmed", "unheard",
    ),
    "consumer": ("partition", "shutdown", "transactions"),
    "sinks": (),
    "pipeline": (),
}  # fmt: skip
"""By package: the modules of its `scenarios`; empty if that is a module itself."""
_PLANTED: Final[Mapping[str, tuple[str, ...]]] = {**_DESIGNED, "transactions": ()}
"""The same for `specimens`."""

if TYPE_CHECKING:  # __getattr__ below makes them on first use
    DESIGNS: tuple[Shipped, ...]
    SPECIMENS: tuple[Specimen, ...]
    SAMPLE: Mapping[str, Shipped | Specimen]


@final
class _Catalogue(Mapping[str, Shipped | Specimen]):
    """A name loads the modules called after its family first; iteration loads all."""

    def __getitem__(self, name: str) -> Shipped | Specimen:
        family = name.partition(".")[0]
        for module in sorted(_modules(), key=lambda module: family not in module):
            for each in _listed(module):
                if each.name == name:
                    return each
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in _all())

    def __len__(self) -> int:
        return len(tuple(_all()))


CATALOGUE: Final[Mapping[str, Shipped | Specimen]] = _Catalogue()


def shipped(name: str) -> Scenario:
    """The scenario of that name, or in another scope, of `name@scope`."""
    bare, _, scope = name.partition("@")
    found = CATALOGUE.get(bare)
    if found is None:
        raise Misuse(f"there is no scenario {bare!r}", todo=f"there are: {', '.join(CATALOGUE)}")
    if scope not in ("", *Scope):
        raise Misuse(f"there is no scope {scope!r}", where=name, todo=f"there are: {', '.join(Scope)}")
    return found.scenario(Scope(scope or Scope.DEFAULT))


def _all() -> Iterator[Shipped | Specimen]:
    for module in _modules():
        yield from _listed(module)


def _modules() -> Iterator[str]:
    for kind, packages in (("scenarios", _DESIGNED), ("specimens", _PLANTED)):
        for package, modules in packages.items():
            yield from (f"tidegate.{package}.{kind}.{each}" for each in modules)
            if not modules:
                yield f"tidegate.{package}.{kind}"


def _listed(module: str) -> tuple[Shipped | Specimen, ...]:
    name = "SPECIMENS" if ".specimens" in module else "SCENARIOS"
    return cast("tuple[Shipped | Specimen, ...]", getattr(import_module(module), name))


@cache
def __getattr__(name: str) -> object:
    match name:
        case "DESIGNS":
            return tuple(each for each in _all() if isinstance(each, Shipped))
        case "SPECIMENS":
            return tuple(each for each in _all() if isinstance(each, Specimen))
        case "SAMPLE":  # the first design and the first specimen of each family
            first = {(each.name.partition(".")[0], type(each)): each for each in reversed(list(_all()))}
            return {each.name: each for each in reversed(first.values())}
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
