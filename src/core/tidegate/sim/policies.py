"""Which of the enabled steps comes next in a run that is drawn and not searched for?

A menu is what may happen next, whatever the state: a policy sees how many steps there are, whose they are and which are
faults, and nothing else. So each of them works on any scenario.

    random    each enabled step is as likely as any other.
    pct d     probabilistic concurrency testing: lanes run by priority, and d - 1 times in a run, at steps drawn before it
              begins, the lane that would move falls below all others.
    swarm     each run draws a subset of the kinds of fault, and how often one strikes; what is not drawn does not happen.

What PCT promises. A bug of depth d is one that some d steps make happen when they come in one order. A run finds each such
bug with a probability of at least 1 / (n k^(d-1)), where n is the number of lanes and k bounds the length of the run. Here
    - a lane is what an actor does: a process, the network, the clock, a coordinator, each is one. What befalls an actor is
      a lane of its own, so that a fault is one step among others, which waits until its lane has priority.
    - k is measured: the longest of a few random runs, which depend on the scenario alone. After k steps a run goes on at
      random, so that a lane which never rests does not keep the others waiting for ever.
    - where a lane has c steps to choose from, such as several faults or several messages, it takes one of them at random.
      The promise is then smaller by a factor of c for each of the d steps that is chosen so.
It is a floor and no speed-up: what a random run finds by its tenth, PCT may find by its hundredth. What needs one lane to
wait for long while others run is where it shines. So a portfolio takes all of them in turns.

Whatever is drawn is `random()` or `getrandbits()` of the generator that was handed in: of `random.Random`, both are the
same for one seed in every version of Python. No order of a set or a hash is drawn from.

Known not to work
    A clean run proves nothing, with any policy. A bug that needs exactly alternating steps of two lanes has as many change
    points as it has steps: there PCT is hopeless, and random finds it.

Sources: Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding bugs" (PCT); Groce and
others, "Swarm testing"; Shuttle and Coyote, whose portfolios mix such policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.sim.faults import Fault

_DEPTH_MAX: Final = 100
_KINDS: Final = tuple(Fault)
"""Bit i of what a swarm draws stands for kind i."""
_DRAWN_BITS: Final = 64
_RATES: Final = (0.5, 0.2, 0.05)
"""Of the steps that could be faults, how many are: one of these, drawn once a run."""
NOTHING: Final = -1
"""Picked where no step may be taken."""


class Generator(Protocol):
    """A seeded generator, such as `random.Random`."""

    def random(self) -> float: ...
    def getrandbits(self, bits: int, /) -> int: ...
    def randrange(self, stop: int, /) -> int: ...


Seeding: TypeAlias = Callable[[str], Generator]
"""Makes a generator of a seed: `random.Random`."""


@final
class Decision(NamedTuple):
    """Which step is taken, whatever else there is.

    Attributes:
        actor: Whose; its number.
        fault: Which fault it is, if any.
        which: Its number among the steps of this actor that are of this kind.
    """

    actor: int
    fault: Fault | None
    which: int


@final
@attrs.frozen(eq=False)
class Menu:
    """What may happen next: the steps of all actors, one actor after the other.

    Attributes:
        lanes: Whose step each is: 2 h for what actor h does, 2 h + 1 for what befalls it.
        faults: Which fault each is, if any.
        must: Must one of them happen in the end?
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
        """The steps that are not faults, and the faults of the kinds that were drawn."""
        drawn &= self.kinds
        found = self.without.get(drawn)
        if found is None:
            plain = tuple(index for index, fault in enumerate(self.faults) if fault is None)
            faults = tuple(index for index, fault in enumerate(self.faults) if fault and drawn & bits((fault,)))
            found = self.without[drawn] = (plain, faults)
        return found


def decisions(steps: Iterable[tuple[int, Fault | None]]) -> Iterator[Decision]:
    """What it is to take each of the steps, which are given as lane and fault."""
    counts: Counter[tuple[int, Fault | None]] = Counter()
    for lane, fault in steps:
        kind = (lane // 2, fault)
        yield Decision(*kind, counts[kind])
        counts[kind] += 1


def bits(kinds: Collection[Fault]) -> int:
    """The kinds as bits of one number."""
    return sum(1 << number for number, kind in enumerate(_KINDS) if kind in kinds)


Pick: TypeAlias = Callable[[Menu], int]
"""One run's choice: the number of a step, or NOTHING to end the run. Called once a step, in order."""


@final
@attrs.frozen
class Shape:
    """How large runs are, as measured.

    Attributes:
        lanes: n; two for each actor.
        steps: k; the longest of the runs that were measured.
    """

    lanes: int
    steps: int

    def one_in(self, depth: int) -> int:
        """PCT finds a bug of this depth in at least one run in this many, on average."""
        return int(self.lanes * max(1, self.steps) ** (depth - 1))


UNMEASURED: Final = Shape(0, 0)


class Policy(Protocol):
    """Picks the steps of a run.

    Attributes:
        name: As people ask for it.
        needs_shape: Must runs be measured before it can begin?
    """

    @property
    def name(self) -> str: ...
    @property
    def needs_shape(self) -> bool: ...
    def begin(self, generator: Generator, shape: Shape, /) -> Pick:
        """Draw what holds for a whole run, and answer how it picks."""
        ...

    def described(self, generator: Generator, shape: Shape, offered: Collection[Fault], /) -> str:
        """In words: what was drawn for the run of this generator. `offered` are the faults that could have struck."""
        ...


@final
@attrs.frozen
class Uniform:
    """Each step is as likely as any other."""

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
    """Lanes run by priority, with depth - 1 points where it changes.

    Attributes:
        depth: d, from 1 on.
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
        priority = [float(self.depth) + draw() for _ in range(shape.lanes)]  # all above those of the change points
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
        """How often a run finds a bug of its depth, on average."""
        measured = f"{shape.lanes} lanes, {shape.steps} steps"
        return (
            f"{self.name} ({measured}: a bug of depth {self.depth} in at least 1 of {shape.one_in(self.depth):,} runs)"
        )


@final
@attrs.frozen
class Swarm:
    """Each run has some kinds of fault, at some rate, and no others."""

    name: str = attrs.field(default="swarm", init=False)
    needs_shape: bool = attrs.field(default=False, init=False)

    def drawn(self, generator: Generator) -> tuple[int, float]:
        """Which kinds, as bits, and how often one of them strikes where it could."""
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
"""In turns, for no single one of them finds everything; first those that need no runs to be measured."""


def policies(name: str, depth: int) -> tuple[Policy, ...]:
    """What is taken in turns under the name.

    Args:
        name: random, pct, swarm or portfolio.
        depth: Of pct.

    Raises:
        Misuse: There is no such policy.
    """
    known: dict[str, tuple[Policy, ...]] = {"random": (Uniform(),), "pct": (Pct(depth),), "swarm": (Swarm(),)}
    known["portfolio"] = PORTFOLIO
    if name not in known:
        raise Misuse(f"there is no policy {name!r}", todo=f"there are: {', '.join(known)}")
    return known[name]
