"""A trace: one run as a value, step by step, from the beginning to the step that breaks a law.

It holds the decisions (who could move, who did, and what happened), what they changed, and why: the first state in full,
then for each step a JSON patch, the effects with what they were done to and the reply, which laws changed their
truth, which earlier steps it depends on, and the line of the program that asked for it. So it can be shown
(`tidegate.sim.rendering`), encoded (`tidegate.sim.trace_json`), exported, shown as a page, and replayed exactly
(`tidegate.sim.replay`). Where it comes from a search, `tidegate.sim.tracing` makes it.

A step depends on the step of its own process before it, and on the last step that wrote what it looked at: that is
happens-before over the cells that the simulator itself has seen the step look at, so nobody declares it, and nothing is
left out. What depends on what is the transitive closure.

Laws
    TC1  decoding an encoded trace gives the same trace.
    TC2  replaying a trace in the scenario that it came from reproduces it.
    TC3  every cause is an earlier step; and leaving out all steps that the last one does not depend on, directly or not,
         leaves out no step that wrote what the last one has read.
    TC4  the nearest passing run takes the decisions of the run up to where it differs, breaks no law, and ends at rest.

A trace is replayed from its decisions, not from the seed of a generator, so changing the generator does not invalidate it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum, unique
from typing import cast, final

import attrs

from tidegate.model.documents import Document, Value
from tidegate.model.errors import Misuse
from tidegate.model.patches import Patch, applied


@final
@unique
class Lane(StrEnum):
    """What kind of actor moves in a lane."""

    PROCESS = "process"
    NETWORK = "network"
    CLOCK = "clock"
    COORDINATOR = "coordinator"
    STREAM = "stream"
    FAULTS = "faults"


@final
@unique
class StepKind(StrEnum):
    """What kind of thing a step is."""

    READ = "read"
    WRITE = "write"
    INSERT = "insert"
    DELETE = "delete"
    SLEEP = "sleep"
    NOTE = "note"
    CALL = "call"
    FETCH = "fetch"
    COMMIT = "commit"
    DELIVER = "deliver"
    CRASH = "crash"
    RESTART = "restart"
    TIME = "time"
    REBALANCE = "rebalance"
    OTHER = "other"


@final
@unique
class LawKind(StrEnum):
    """What a law is about: a state, a step, a state at rest, or a goal."""

    ALWAYS = "always"
    STEP = "step"
    EVENTUALLY = "eventually"
    SOMETIMES = "sometimes"


@final
@unique
class Truth(StrEnum):
    """What is known of a law after a step. Open: it was not judged here, or the goal is not reached yet."""

    HOLDS = "holds"
    BROKEN = "broken"
    REACHED = "reached"
    OPEN = "open"


@final
@unique
class Breach(StrEnum):
    """In which way a run breaks its law."""

    SAFETY = "safety"
    STEP = "step"
    LIVENESS = "liveness"
    DEADLOCK = "deadlock"
    LIVELOCK = "livelock"
    ERROR = "error"
    LINEARIZABILITY = "linearizability"
    NONE = "none"


@final
@unique
class PolicyName(StrEnum):
    """Where the decisions of a run come from."""

    EXHAUSTIVE = "exhaustive"
    RANDOM = "random"
    PCT = "pct"
    SWARM = "swarm"
    SHRUNK = "shrunk"
    REPLAYED = "replayed"
    RECORDED = "recorded"


@final
@attrs.frozen
class Mover:
    """Who moves, and which kind of lane it has."""

    name: str
    kind: Lane = Lane.PROCESS


@final
@attrs.frozen
class NamedLaw:
    """A law that is judged."""

    name: str
    kind: LawKind


@final
@attrs.frozen
class Option:
    """What may happen next."""

    process: str
    event: str
    fault: str = ""


@final
@attrs.frozen
class Choice:
    """What could happen in a state, and which of it did.

    Invariant: 0 <= taken < len(enabled), or nothing is known and taken is 0.
    """

    enabled: tuple[Option, ...] = ()
    taken: int = 0

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.taken < max(1, len(self.enabled)):
            raise Misuse(f"choice {self.taken} of {len(self.enabled)}", where="a trace")


@final
@attrs.frozen
class Done:
    """An effect that was carried out, or a command.

    Attributes:
        what: The effect, in words.
        on: What it was done to: the way to it in the tree of the state; empty if to nothing in it.
        reply: The reply, in words; "" for nothing.
    """

    what: str
    on: tuple[str, ...] = ()
    reply: str = ""


@final
@attrs.frozen
class TraceStep:
    """One step.

    Attributes:
        process: Who moved.
        event: What happened, in words; with the process it is the decision that a replay takes.
        fault: Which fault it was, or "".
        patch: What it changed.
        at: How much time had passed after it, in microseconds; None where time stands.
        kind: What kind of thing it is.
        choice: What else could have happened.
        effects: What was asked of the world in it.
        truths: The laws of which something else is known than after the step before; after the first step, all.
        causes: The numbers of the earlier steps that it depends on directly.
        src: `file.py:line function` of the `await`, or of the decision, that it comes from; "" if of none.
    """

    process: str
    event: str
    fault: str = ""
    patch: Patch = ()
    at: int | None = None
    kind: StepKind = StepKind.OTHER
    choice: Choice = Choice()
    effects: tuple[Done, ...] = ()
    truths: tuple[tuple[str, Truth], ...] = ()
    causes: tuple[int, ...] = ()
    src: str = ""


@final
@attrs.frozen
class Passing:
    """The nearest run that breaks no law: it follows the failing one for as long as any does.

    Attributes:
        differs_at: The first step that is another one, counted from 1; one beyond the last where it rests before.
        steps: All of its steps; what else could have happened is left out.
    """

    differs_at: int
    steps: tuple[TraceStep, ...]


@final
@attrs.frozen
class Trace:
    """One run.

    Attributes:
        scenario: The scenario's name, or `path.py:attr` where it is not a shipped one.
        version: Of tidegate, when it was recorded.
        law: The law that the last step breaks; "" for none.
        time: Which kind of time it ran in.
        seed: Of the sampled run that it came from; None for an exhaustive search.
        movers: The lanes, in order.
        initial: The first state.
        steps: What happened then.
        breach: In which way the law is broken.
        laws: The laws that were judged.
        policy: Where its decisions come from.
        python: The version of Python, when it was recorded.
        fingerprint: Of the scenario, as far as it can be known without running it: equal ones begin alike.
        passing: The nearest run that breaks no law, if it was looked for and found.
        original: The steps of the run that this one was shrunk from; what else could have happened is left out.
        summary: What the scenario is about, in a line.
        why: Who waits, or goes round for ever; "" where the steps say all.
        loop: How many of the last steps repeat for ever; 0 if the run ends.
        never: Which faults could not strike.
    """

    scenario: str
    version: str
    law: str
    time: str
    seed: str | None
    movers: tuple[Mover, ...]
    initial: Document
    steps: tuple[TraceStep, ...]
    breach: Breach = Breach.NONE
    laws: tuple[NamedLaw, ...] = ()
    policy: PolicyName = PolicyName.EXHAUSTIVE
    python: str = ""
    fingerprint: str = ""
    passing: Passing | None = None
    original: tuple[TraceStep, ...] | None = None
    summary: str = ""
    why: str = ""
    loop: int = 0
    never: tuple[str, ...] = ()

    @property
    def faults(self) -> Mapping[str, int]:
        """Which faults struck, and how often."""
        return Counter(str(step.fault) for step in self.steps if step.fault)

    def states(self) -> Iterator[Document]:
        """Every state, the first one included."""
        return states_of(self.initial, self.steps)


def states_of(initial: Document, steps: tuple[TraceStep, ...]) -> Iterator[Document]:
    """Every state of a run, the first one included."""
    state: Value = initial
    yield initial
    for step in steps:
        state = applied(step.patch, state)
        yield cast("Document", state)


def past(steps: tuple[TraceStep, ...], number: int) -> frozenset[int]:
    """The numbers of the steps that the step depends on, directly or not, and its own."""
    found, todo = {number}, [number]
    while todo:
        new = set(steps[todo.pop() - 1].causes) - found
        found |= new
        todo += new
    return frozenset(found)
