"""Policies pick the next step of a random run.

A menu lists the possible next steps. A policy sees only their number, their actors and their
faults, so it works on any scenario.

    random    every enabled step is equally likely.
    pct d     probabilistic concurrency testing: lanes run by priority. At d - 1 steps drawn in
              advance, the lane about to move falls below all others.
    swarm     each run draws a subset of the kinds of fault and a rate; other faults do not occur.

The guarantee of PCT: a bug of depth d needs d steps in one order. A run finds each such bug with a
probability of at least 1 / (n k^(d-1)) for n lanes and runs of at most k steps. Here
    - a lane is an actor: a process, the network, the clock or a coordinator. The faults of an actor
      are another lane, so a fault waits until its lane has priority.
    - k is measured as the longest of a few random runs, which depend only on the scenario. After k
      steps a run continues at random, so that a lane that never rests does not block the others.
    - a lane with c possible steps, such as faults or messages, takes one at random. The guarantee
      shrinks by a factor of c for each of the d steps chosen so.
It is a lower bound, not a speed-up: PCT may need a hundred runs for a bug that random finds in ten.
It is best where one lane must wait long while others run. So a portfolio takes all in turns.

Policies draw only `random()` or `getrandbits()` of the given generator: those of `random.Random`
are the same for one seed in every version of Python. They never use the order of a set or a hash.

Known not to work
    A clean run proves nothing under any policy. A bug that needs two lanes to alternate exactly has
    as many change points as steps: PCT is hopeless there, and random finds it.

Sources: Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding
bugs" (PCT); Groce and others, "Swarm testing"; Shuttle and Coyote mix such policies in portfolios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.sim.world.faults import Fault

_DEPTH_MAX: Final = 100
_KINDS: Final = tuple(Fault)
"""Bit i of a swarm's draw selects kind i."""
_DRAWN_BITS: Final = 64
_RATES: Final = (0.5, 0.2, 0.05)
"""A run draws one of these as the share of faults among steps that can be one."""
NOTHING: Final = -1
"""Picked if no step may be taken."""


class Generator(Protocol):
    """A seeded generator, for example `random.Random`."""

    def random(self) -> float: ...
    def getrandbits(self, bits: int, /) -> int: ...
    def randrange(self, stop: int, /) -> int: ...


Seeding: TypeAlias = Callable[[str], Generator]
"""Makes a generator from a seed: `random.Random`."""


@final
class Decision(NamedTuple):
    """A step, independent of the other enabled ones.

    Attributes:
        actor: The number of its actor.
        which: Its number among the actor's steps of this kind.
    """

    actor: int
    fault: Fault | None
    which: int


@final
@attrs.frozen(eq=False)
class Menu:
    """The possible next steps, actor by actor.

    Attributes:
        lanes: The lane of each step: 2 h for steps of actor h, 2 h + 1 for its faults.
        faults: The fault of each step, if any.
        must: Whether one of them must happen in the end.
    """

    lanes: tuple[int, ...]
    faults: tuple[Fault | None, ...]
    must: bool
    size: int = attrs.field(init=False)
    of_lane: dict[int, tuple[int, ...]] = attrs.field(init=False)
    kinds: int = attrs.field(init=False)
    decisions: tuple[Decision, ...] = attrs.field(init=False)
    places: dict[Decision, int] = attrs.field(init=False)
    without: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("size", len(self.lanes))
        put("of_lane", {lane: tuple(at for at, its in enumerate(self.lanes) if its == lane) for lane in self.lanes})
        put("kinds", bits([*filter(None, self.faults)]))
        put("decisions", tuple(decisions(zip(self.lanes, self.faults, strict=True))))
        put("places", {decision: at for at, decision in enumerate(self.decisions)})

    def parted(self, drawn: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        drawn &= self.kinds
        found = self.without.get(drawn)
        if found is None:
            plain = tuple(index for index, fault in enumerate(self.faults) if fault is None)
            faults = tuple(index for index, fault in enumerate(self.faults) if fault and drawn & bits((fault,)))
            found = self.without[drawn] = (plain, faults)
        return found


def decisions(steps: Iterable[tuple[int, Fault | None]]) -> Iterator[Decision]:
    counts: Counter[tuple[int, Fault | None]] = Counter()
    for lane, fault in steps:
        kind = (lane // 2, fault)
        yield Decision(*kind, counts[kind])
        counts[kind] += 1


def bits(kinds: Collection[Fault]) -> int:
    return sum(1 << number for number, kind in enumerate(_KINDS) if kind in kinds)


Pick: TypeAlias = Callable[[Menu], int]
"""The choice of one run: the number of a step, or NOTHING to end it. Called once a
step, in order.
"""


@final
@attrs.frozen
class Shape:
    """The measured size of runs.

    Attributes:
        lanes: n; two for each actor.
        steps: k; of the longest measured run.
    """

    lanes: int
    steps: int

    def one_in(self, depth: int) -> int:
        """PCT finds a bug of this depth in at least one of this many runs, on average."""
        return int(self.lanes * max(1, self.steps) ** (depth - 1))


UNMEASURED: Final = Shape(0, 0)


class Policy(Protocol):
    """Picks the steps of a run.

    Attributes:
        name: Its name for users.
        needs_shape: Whether runs must be measured first.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs_shape(self) -> bool: ...
    def begin(self, generator: Generator, shape: Shape, /) -> Pick:
        """Draw the values of a whole run."""
        ...

    def described(self, generator: Generator, shape: Shape, offered: Collection[Fault], /) -> str:
        """The draws of this generator in words; `offered` are the faults that could
        have occurred.
        """
        ...


@final
@attrs.frozen
class Uniform:
    """Every step is equally likely."""

    name: str = attrs.field(default="random", init=False)
    needs_shape: bool = attrs.field(default=False, init=False)

    def begin(self, generator: Generator, shape: Shape) -> Pick:  # noqa: ARG002  any run will do
        return at_random(generator)

    def described(self, generator: Generator, shape: Shape, offered: Collection[Fault]) -> str:  # noqa: ARG002  nothing drawn
        return self.name


def at_random(generator: Generator) -> Pick:
    draw = generator.random

    def pick(menu: Menu) -> int:
        return int(draw() * menu.size) if menu.size else NOTHING

    return pick


@final
@attrs.frozen
class Pct:
    """Lanes run by priority, which changes at depth - 1 points.

    Attributes:
        depth: d >= 1.
    """

    depth: int
    needs_shape: bool = attrs.field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.depth <= _DEPTH_MAX:
            raise Misuse(f"PCT with depth {self.depth}", why=f"it is from 1 to {_DEPTH_MAX}")

    @property
    def name(self) -> str:
        return f"pct {self.depth}"

    def begin(self, generator: Generator, shape: Shape) -> Pick:
        draw = generator.random
        priority = [float(self.depth) + draw() for _ in range(shape.lanes)]  # above those of all change points
        changes = {int(draw() * shape.steps): float(rank) for rank in range(self.depth - 1)}
        lanes = sorted(range(shape.lanes), key=priority.__getitem__, reverse=True)
        after = at_random(generator)
        at, length = -1, shape.steps

        def pick(menu: Menu) -> int:
            nonlocal at
            at += 1
            if at >= length:
                return after(menu)
            if at in changes and (lane := first(menu)) is not None:
                priority[lane] = changes[at]
                lanes.sort(key=priority.__getitem__, reverse=True)
            of_lane = menu.of_lane
            for lane in lanes:
                if lane in of_lane:
                    steps = of_lane[lane]
                    return steps[int(draw() * len(steps))] if len(steps) > 1 else steps[0]
            return NOTHING

        def first(menu: Menu) -> int | None:
            return next((lane for lane in lanes if lane in menu.of_lane), None)

        return pick

    def described(self, generator: Generator, shape: Shape, offered: Collection[Fault]) -> str:  # noqa: ARG002  see Policy
        return self.promised(shape)

    def promised(self, shape: Shape) -> str:
        measured = f"{shape.lanes} lanes, {shape.steps} steps"
        return (
            f"{self.name} ({measured}: a bug of depth {self.depth} in at least 1 of {shape.one_in(self.depth):,} runs)"
        )


@final
@attrs.frozen
class Swarm:
    """Each run has only some kinds of fault, at one rate."""

    name: str = attrs.field(default="swarm", init=False)
    needs_shape: bool = attrs.field(default=False, init=False)

    def drawn(self, generator: Generator) -> tuple[int, float]:
        return generator.getrandbits(_DRAWN_BITS), _RATES[int(generator.random() * len(_RATES))]

    def begin(self, generator: Generator, shape: Shape) -> Pick:  # noqa: ARG002  any run will do
        kinds, rate = self.drawn(generator)
        draw = generator.random

        def pick(menu: Menu) -> int:
            plain, faults = menu.without.get(kinds & menu.kinds) or menu.parted(kinds)
            steps = faults if faults and (not plain or draw() < rate) else plain
            return steps[int(draw() * len(steps))] if steps else NOTHING

        return pick

    def described(self, generator: Generator, shape: Shape, offered: Collection[Fault]) -> str:  # noqa: ARG002  see Policy
        drawn, rate = self.drawn(generator)
        kinds = ", ".join(kind for kind in _KINDS if kind in offered and drawn & bits((kind,)))
        return f"swarm ({kinds or 'no faults'}; {rate:g} of the steps where one could strike)"


PORTFOLIO: Final[tuple[Policy, ...]] = (Uniform(), Swarm(), Pct(2), Pct(3), Pct(5))
"""Taken in turns, since no policy finds everything; those without measuring come first."""


def policies(name: str, depth: int) -> tuple[Policy, ...]:
    """The policies under a name, to be taken in turns.

    Args:
        name: random, pct, swarm or portfolio.
        depth: Of pct.

    Raises:
        Misuse: The name is unknown.
    """
    known: dict[str, tuple[Policy, ...]] = {"random": (Uniform(),), "pct": (Pct(depth),), "swarm": (Swarm(),)}
    known["portfolio"] = PORTFOLIO
    if name not in known:
        raise Misuse(f"there is no policy {name!r}", todo=f"there are: {', '.join(known)}")
    return known[name]
