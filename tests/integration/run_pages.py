"""A short run by seed (`kafka_runs`, `mongo_runs`) as a trace with the page of a counterexample.

Its steps are the log; the last one is the first finding. It is recorded, not searched for: causes
are unknown, except the previous step of the same member.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import tidegate
from tidegate.model.documents import Document
from tidegate.model.instants import SECOND
from tidegate.model.patches import difference
from tidegate.sim.trace.trace import (
    Breach,
    Lane,
    LawKind,
    Mover,
    NamedLaw,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
)

JUDGE: Final = "judge"
_LANES: Final = {"network": Lane.NETWORK, "faults": Lane.FAULTS, "run": Lane.CLOCK, JUDGE: Lane.COORDINATOR}


class Told(NamedTuple):
    """An entry of a run's log; `law` is the law that it broke, `seen` the state visible from
    outside.
    """

    at_s: float
    who: str
    what: str
    kind: StepKind
    fault: str
    law: str
    seen: Document

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} {self.who} {self.what}{'  <- wrong' if self.law else ''}"


def laws_of(text: str) -> dict[str, str]:
    found = re.findall(r"^    ([A-Z]\d+) +(.*(?:\n {8,}.*)*)", text, re.MULTILINE)
    return {number: f"{number}: {' '.join(law.split())}" for number, law in found}


def trace_of(
    told: Sequence[Told], laws: dict[str, str], *, of: str, at_once: Collection[str], seed: int, summary: str
) -> Trace:
    """The run up to its first finding, or all of it."""
    last = next((number for number, each in enumerate(told) if each.law), len(told) - 1)
    kept = told[: last + 1]
    broken = laws.get(kept[-1].law, "")
    return Trace(
        scenario=f"a short run of {of}",
        version=tidegate.__version__,
        law=broken,
        time="virtual",
        seed=str(seed),
        movers=tuple(Mover(who, _LANES.get(who, Lane.PROCESS)) for who in dict.fromkeys(each.who for each in kept)),
        initial=Document(),
        steps=tuple(_steps(kept, laws, at_once)),
        breach=Breach.SAFETY if broken else Breach.NONE,
        laws=tuple(
            NamedLaw(law, LawKind.ALWAYS if number in at_once else LawKind.EVENTUALLY) for number, law in laws.items()
        ),
        policy=PolicyName.RECORDED,
        summary=summary,
        why=kept[-1].what if broken else "",
    )


def _steps(told: Sequence[Told], laws: dict[str, str], at_once: Collection[str]) -> Iterator[TraceStep]:
    before: dict[str, int] = {}
    seen = (Document(), *(each.seen for each in told))
    for number, (each, (old, new)) in enumerate(zip(told, pairwise(seen), strict=True), 1):
        truths = (
            {law: Truth.HOLDS if name in at_once else Truth.OPEN for name, law in laws.items()} if number == 1 else {}
        )
        if each.law:
            truths[laws[each.law]] = Truth.BROKEN
        yield TraceStep(
            each.who,
            each.what,
            each.fault,
            difference(old, new),
            round(each.at_s * SECOND),
            each.kind,
            truths=tuple(truths.items()),
            causes=(before[each.who],) if each.who in before else (),
        )
        before[each.who] = number
