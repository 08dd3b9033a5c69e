"""What ships: the scenario of a design in three scopes, and specimens, each a faulty variant of a design.

Scopes
    default    complete in about two seconds: what tests and a plain `tidegate explore` see
    thorough   complete in at most a minute: more processes, more faults, more time
    large      too large to be seen whole, to draw runs from

A scenario is asked for by its name, which is its default scope, or by `name@scope`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, unique
from typing import Protocol, TypeAlias, TypeVar, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.sim.coverage import cannot_follow
from tidegate.sim.scenario import Kind, Scenario

_Make: TypeAlias = Callable[[], Scenario]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class _MakeOf(Protocol[T_contra]):
    def __call__(self, made: T_contra, /, *, summary: str) -> Scenario: ...


@final
@unique
class Scope(StrEnum):
    """How large a scenario is, see the module."""

    DEFAULT = "default"
    THOROUGH = "thorough"
    LARGE = "large"


@final
@attrs.frozen(eq=False)
class Shipped:
    """The scenario of a design: of programs and reducers that are meant to be right, or expected to be.

    Attributes:
        name: How it is asked for. What stands before the first dot is its family: those share their laws.
        default: Makes it in its default scope.
        thorough: In its thorough scope.
        large: In its large scope.
    """

    name: str
    default: _Make
    thorough: _Make
    large: _Make

    @property
    def summary(self) -> str:
        """What is explored, in a sentence."""
        return self.default().summary

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """All of them."""
        return tuple(Scope)

    def scenario(self, scope: Scope = Scope.DEFAULT) -> Scenario:
        """The scenario in that scope."""
        make = {Scope.DEFAULT: self.default, Scope.THOROUGH: self.thorough, Scope.LARGE: self.large}[scope]
        made = make()
        never = dict.fromkeys(cannot_follow(made), 0)  # all scopes have the same faults, on purpose
        return attrs.evolve(made, name=scoped(self.name, scope), budgets={**made.budgets, **never})


@final
@attrs.frozen(eq=False)
class Specimen:
    """A faulty variant of a design, in the scenario that shows it.

    Attributes:
        name: How it is asked for.
        make: Makes the scenario: that of the design, with the bug planted.
        law: The law that it breaks.
        source: Where the bug was seen, in a sentence.
        of: The name of the scenario of the design.
        alone: Judge that law alone, for the bug breaks another one sooner.
        says: What is wrong, in a sentence; "" where only the scenario says it.
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
        """What is wrong, in a sentence. The program with the bug is not made."""
        return self.says or self.make().summary

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """One is enough to be caught in."""
        return (Scope.DEFAULT,)

    def scenario(self, scope: Scope = Scope.DEFAULT) -> Scenario:
        """The scenario in which the bug is caught. It has no goals, for the search ends where the law is broken, and nobody
        is interchangeable, for a bug may single somebody out.

        Raises:
            Misuse: It is asked for in another scope.
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
    """A specimen whose bug is in the code that runs.

    Args:
        name: How it is asked for.
        law: The law that it breaks.
        says: What is wrong, in a sentence.
        source: Where it was seen.
        vary: Makes the program with the bug in it, see `tidegate.sim.variants`.
        make: Makes the scenario of a program, with a summary of its own.
        of: The name of the scenario of the design.
        alone: Judge that law alone.
    """
    return Specimen(name, lambda: make(vary(), summary=says), law, source, of, alone, says)


def scoped(name: str, scope: Scope) -> str:
    """How a scenario is asked for in that scope."""
    return name if scope is Scope.DEFAULT else f"{name}@{scope}"
