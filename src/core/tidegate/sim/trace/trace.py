"""A trace: one run as a value, from the first state to the step that breaks a law.

It holds the decisions (the enabled movers, the chosen one, the event), their changes and their
reasons. After the full first state, each step has a JSON patch, its effects with their targets and
replies, the laws whose truth changed, the earlier steps that it depends on, and the program's line.
So it can be shown (`tidegate.sim.trace.rendering`), encoded (`tidegate.sim.trace.trace_json`), exported, shown
as a page, and replayed exactly (`tidegate.sim.runs.replay`). `tidegate.sim.runs.tracing` makes it from a
search.

A step depends on the previous step of its process, and on the last write of each cell that it
reads: happens-before. The simulator observes the reads itself, so none is declared or left out.
Dependence is the transitive closure.

Laws
    TC1  Decoding an encoded trace gives the same trace.
    TC2  Replaying a trace in its scenario reproduces it.
    TC3  Every cause is an earlier step. Leaving out all steps that the last one does not depend on,
         directly or not, leaves out no step that wrote a cell that the last one reads.
    TC4  The nearest passing run takes the run's decisions up to the difference, breaks no law, and
         ends at rest.

A replay uses the decisions, not a seed, so a changed generator does not invalidate a trace.
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
    """The kind of actor in a lane."""

    PROCESS = "process"
    NETWORK = "network"
    CLOCK = "clock"
    COORDINATOR = "coordinator"
    STREAM = "stream"
    FAULTS = "faults"


@final
@unique
class StepKind(StrEnum):
    """The kind of a step."""

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
    """The subject of a law: a state, a step, a state at rest, or a goal."""

    ALWAYS = "always"
    STEP = "step"
    EVENTUALLY = "eventually"
    SOMETIMES = "sometimes"


@final
@unique
class Truth(StrEnum):
    """The truth of a law after a step. Open: it was not checked here, or the goal is not reached
    yet.
    """

    HOLDS = "holds"
    BROKEN = "broken"
    REACHED = "reached"
    OPEN = "open"


@final
@unique
class Breach(StrEnum):
    """How a run breaks its law."""

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
    """The origin of a run's decisions."""

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
    """An actor and the kind of its lane."""

    name: str
    kind: Lane = Lane.PROCESS


@final
@attrs.frozen
class NamedLaw:
    """A law of the scenario."""

    name: str
    kind: LawKind


@final
@attrs.frozen
class Option:
    """A possible next step."""

    process: str
    event: str
    fault: str = ""


@final
@attrs.frozen
class Choice:
    """The enabled steps of a state, and the one taken.

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
    """An effect or command that was carried out.

    Attributes:
        what: The effect, in words.
        on: The path of its target in the tree of the state; empty if it has none.
        reply: The reply, in words; "" for none.
    """

    what: str
    on: tuple[str, ...] = ()
    reply: str = ""


@final
@attrs.frozen
class TraceStep:
    """One step.

    Attributes:
        event: The event in words; with the process, the decision that a replay takes.
        fault: Its fault, or "".
        at: The time passed after it, in microseconds; None without a clock.
        truths: The laws whose truth it changed; after the first step, all.
        causes: The numbers of the earlier steps that it depends on directly.
        src: `file.py:line function` of its `await` or decision; "" for none.
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
    """The nearest run that breaks no law: it follows the failing one as long as possible.

    Attributes:
        differs_at: Its first different step, counted from 1; one beyond the last if it rests
            before.
        steps: All of its steps, without the other enabled ones.
    """

    differs_at: int
    steps: tuple[TraceStep, ...]


@final
@attrs.frozen
class Trace:
    """One run.

    Attributes:
        scenario: The scenario's name, or `path.py:attr` if it is not a shipped one.
        version: The version of tidegate that recorded it.
        law: The law that the last step breaks; "" for none.
        seed: Of a sampled run; None for an exhaustive search.
        initial: The first state.
        breach: How the law is broken.
        policy: The origin of its decisions.
        python: The version of Python that recorded it.
        fingerprint: Of the scenario, as far as known without running it; equal ones begin alike.
        passing: The nearest run that breaks no law, if one was searched and found.
        original: The steps of the run before shrinking, without the other enabled ones.
        summary: One line about the scenario.
        why: The processes that wait or loop for ever; "" if the steps show all.
        loop: How many of the last steps repeat for ever; 0 if the run ends.
        never: The faults that could not occur.
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
        return Counter(str(step.fault) for step in self.steps if step.fault)

    def states(self) -> Iterator[Document]:
        return states_of(self.initial, self.steps)


def states_of(initial: Document, steps: tuple[TraceStep, ...]) -> Iterator[Document]:
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
