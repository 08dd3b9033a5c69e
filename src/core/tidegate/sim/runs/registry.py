"""Shipped scenarios: a design in three scopes, and specimens, each a faulty variant of a design.

Scopes
    default    complete in about two seconds: for tests and a plain `tidegate explore`
    thorough   complete in at most a minute: more processes, more faults, more time
    large      too large for an exhaustive search, for random runs

The name of a scenario selects its default scope; `name@scope` selects another one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, unique
from typing import Protocol, TypeAlias, TypeVar, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.sim.runs.coverage import cannot_follow
from tidegate.sim.scenario import Kind, Scenario

_Make: TypeAlias = Callable[[], Scenario]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class _MakeOf(Protocol[T_contra]):
    def __call__(self, made: T_contra, /, *, summary: str) -> Scenario: ...


@final
@unique
class Scope(StrEnum):
    """The size of a scenario; see the module."""

    DEFAULT = "default"
    THOROUGH = "thorough"
    LARGE = "large"


@final
@attrs.frozen(eq=False)
class Shipped:
    """A design: programs and reducers that are meant to be correct.

    Attributes:
        name: Its name. Scenarios with the same part before the first dot are a family and share
            laws.
        default: Makes the default scope.
        thorough: Makes the thorough scope.
        large: Makes the large scope.
    """

    name: str
    default: _Make
    thorough: _Make
    large: _Make

    @property
    def summary(self) -> str:
        return self.default().summary

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(Scope)

    def scenario(self, scope: Scope = Scope.DEFAULT) -> Scenario:
        make = {Scope.DEFAULT: self.default, Scope.THOROUGH: self.thorough, Scope.LARGE: self.large}[scope]
        made = make()
        never = dict.fromkeys(cannot_follow(made), 0)  # intended: all scopes have the same faults
        return attrs.evolve(made, name=scoped(self.name, scope), budgets={**made.budgets, **never})


@final
@attrs.frozen(eq=False)
class Specimen:
    """A faulty variant of a design, in the scenario that shows it.

    Attributes:
        name: Its name.
        make: Makes the design's scenario with the bug planted.
        law: The law that it breaks.
        source: The origin of the bug, in a sentence.
        of: The name of the design's scenario.
        alone: Check only that law, because the bug breaks another one sooner.
        says: The bug in a sentence; "" if only the scenario describes it.
    """

    name: str
    make: _Make
    law: str
    source: str
    of: str
    alone: bool = False
    says: str = ""

    @property
    def summary(self) -> str:
        """The bug in a sentence; does not make the faulty program if `says` is given."""
        return self.says or self.make().summary

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """One scope is enough to catch a bug."""
        return (Scope.DEFAULT,)

    def scenario(self, scope: Scope = Scope.DEFAULT) -> Scenario:
        """The scenario that catches the bug. It has no goals, since the search ends at the broken
        law, and no symmetry, since a bug may single out a process.

        Raises:
            Misuse: The scope is not the default.
        """
        if scope is not Scope.DEFAULT:
            raise Misuse(f"{self.name} has no {scope} scope", todo=f"it has: {', '.join(self.scopes)}")
        made = self.make()
        if self.alone:
            made = attrs.evolve(
                made,
                always={name: law for name, law in made.always.items() if name == self.law},
                step={name: law for name, law in made.step.items() if name == self.law},
                eventually={name: law for name, law in made.eventually.items() if name == self.law},
            )
        return attrs.evolve(made, name=self.name, expect=self.law, kind=Kind.SPECIMEN, sometimes={}, symmetric=())


def specimen(
    name: str,
    law: str,
    says: str,
    source: str,
    vary: Callable[[], T],
    *,
    make: _MakeOf[T],
    of: str,
    alone: bool = False,
) -> Specimen:
    """A specimen with a bug in production code.

    Args:
        name: Its name.
        law: The law that it breaks.
        says: The bug in a sentence.
        source: The origin of the bug.
        vary: Makes the faulty program (`tidegate.sim.trace.variants`).
        make: Makes the scenario of a program with its own summary.
        of: The name of the design's scenario.
        alone: Check only that law.
    """
    return Specimen(name, lambda: make(vary(), summary=says), law, source, of, alone, says)


def scoped(name: str, scope: Scope) -> str:
    return name if scope is Scope.DEFAULT else f"{name}@{scope}"
