"""A bug planted into a function while runs by seed search for it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Protocol, final

import attrs
import pytest


class Judged(Protocol):
    @property
    def wrong(self) -> list[str]: ...


@final
@attrs.frozen
class Bug:
    """The text `right` in the source of `place`, and its faulty replacement.

    Attributes:
        kinds: Kinds of runs that show it.
        shown_by: Kind and seed of a run that showed it; None if any few seeds do.
    """

    place: Callable[..., object]
    right: str
    wrong: str
    kinds: tuple[str, ...] = ("nothing",)
    shown_by: tuple[str, int] | None = None


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    source = textwrap.dedent(inspect.getsource(bug.place))
    assert source.count(bug.right) >= 1, f"{bug.place.__qualname__} says no longer {bug.right!r}"
    module = sys.modules[bug.place.__module__]
    made: dict[str, Any] = {}
    text = "from __future__ import annotations\n" + source.replace(bug.right, bug.wrong)
    exec(text, vars(module), made)  # noqa: S102  our own source
    owner: Any = module
    *names, name = bug.place.__qualname__.split(".")
    for each in names:
        owner = getattr(owner, each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, made[name])
        for other in [] if names else [*sys.modules.values()]:  # modules that imported it by name
            if vars(other).get(name) is bug.place and other.__name__.startswith("tidegate"):
                patch.setattr(other, name, made[name])
        yield


def own_seeds(kinds: Iterable[str], each: int, bugs: Iterable[Bug] = ()) -> Mapping[str, Sequence[int]]:
    """Distinct seeds for each kind, after those known to show a bug of that kind."""
    shown = {bug.shown_by for bug in bugs if bug.shown_by is not None}
    return {
        kind: (*sorted(seed for of, seed in shown if of == kind), *range(nth * each, (nth + 1) * each))
        for nth, kind in enumerate(dict.fromkeys(kinds))
    }


def first(bug: Bug, judged: Callable[[int, str], Judged], seeds: Mapping[str, Sequence[int]]) -> int | None:
    """The first seed whose run is wrong with the bug and right without it."""
    turns = product(range(min(len(seeds[kind]) for kind in bug.kinds)), bug.kinds)
    shown = [bug.shown_by] if bug.shown_by is not None else []
    for kind, seed in (*shown, *((kind, seeds[kind][nth]) for nth, kind in turns)):
        with planted(bug):
            is_wrong = bool(judged(seed, kind).wrong)
        if is_wrong and not judged(seed, kind).wrong:
            return seed
    return None
