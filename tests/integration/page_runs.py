from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from tidegate.model.documents import Document, Value
from tidegate.model.patches import Patch, Replaced, difference
from tidegate.sim.trace.trace import (
    Breach,
    Choice,
    Done,
    Lane,
    LawKind,
    Mover,
    NamedLaw,
    Option,
    Passing,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
)

MOVERS: Final = (
    Mover("w1"),
    Mover("w2"),
    Mover("network", Lane.NETWORK),
    Mover("clock", Lane.CLOCK),
    Mover("coordinator", Lane.COORDINATOR),
    Mover("changes", Lane.STREAM),
    Mover("faults", Lane.FAULTS),
)
COMMITTED: Final = "no offset is committed before it is finished"
FALLS: Final = "the epoch never falls"
DRAINED: Final = "at rest the log is drained"
TAKEN_OVER: Final = "a second worker took over"
LAWS: Final = (
    NamedLaw(FALLS, LawKind.STEP),
    NamedLaw(COMMITTED, LawKind.ALWAYS),
    NamedLaw(DRAINED, LawKind.EVENTUALLY),
    NamedLaw(TAKEN_OVER, LawKind.SOMETIMES),
)

State = dict[str, object]


def doc(tree: object) -> Value:
    if isinstance(tree, dict):
        return Document(tuple((str(key), doc(each)) for key, each in tree.items()))
    if isinstance(tree, (list, tuple)):
        return tuple(map(doc, tree))
    assert tree is None or isinstance(tree, (str, int, bool))
    return tree


def state(**parts: object) -> Document:
    found = doc({"processes": {"w1": "about to work", "w2": "about to work"}, **parts})
    assert isinstance(found, Document)
    return found


def lease(epoch: int, owner: str) -> State:
    return {"documents": {"leases": {"p0": {"_id": "p0", "epoch": epoch, "owner": owner}}}}


K: Final = StepKind
PLOT: Final[tuple[tuple[str, str, str, StepKind, tuple[str, ...], State], ...]] = (
    ("w1", 'claim leases "p0" -> 3', "", K.WRITE, ("documents", "leases", "p0"), lease(3, "w1")),
    ("coordinator", "assigns generation 4", "", K.REBALANCE, ("group",), {"group": {"generation": 4, "owner": "w1"}}),
    ("w1", "fetch p0@16", "", K.FETCH, ("log", "0"), {}),
    ("w1", "fetch p0@17", "duplicate", K.FETCH, ("log", "0"), {}),
    ("w1", "note holds p0: true", "", K.NOTE, (), {"notes": {"w1": {"holds p0": True}}}),
    ("w1", "work on p0@17", "", K.CALL, (), {"processed": {"0": [17]}}),
    ("w1", "save the count", "unsent", K.WRITE, ("documents", "counts", "n"), {}),
    ("w1", "save the count again", "dropped", K.WRITE, ("documents", "counts", "n"), {}),
    ("w1", "save the count at last", "lost_reply", K.WRITE, ("documents", "counts", "n"), {"counts": 1}),
    ("w1", "renew leases", "late", K.WRITE, ("documents", "leases", "p0"), {"in flight": ["w1's late request: renew"]}),
    ("clock", "30 s pass", "stall", K.TIME, (), {}),
    ("faults", "w1 crashes", "crash_before", K.CRASH, (), {"processes": {"w1": "crashed", "w2": "about to work"}}),
    ("faults", "the clock of w2 is ahead", "skew", K.OTHER, (), {}),
    ("w2", "sleep 5 ms", "", K.SLEEP, (), {}),
    ("w2", "read leases", "", K.READ, ("documents", "leases", "p0"), {}),
    ("w2", "claim leases", "", K.WRITE, ("documents", "leases", "p0"), lease(4, "w2")),
    ("coordinator", "tells w2", "", K.REBALANCE, ("inbox", "w2"), {"inbox": {"w2": ["assigned p0"]}}),
    ("w2", "is assigned p0", "", K.DELIVER, (), {"inbox": {"w2": []}}),
    ("network", "delivers w1's late request", "", K.DELIVER, ("documents", "leases", "p0"), lease(3, "w1")),
    ("w2", "insert a marker", "", K.INSERT, ("documents", "markers", "m"), {"markers": "m"}),
    ("w2", "delete the marker", "", K.DELETE, ("documents", "markers", "m"), {"markers": "gone"}),
    (
        "faults",
        "w1 starts again",
        "restart",
        K.RESTART,
        (),
        {"processes": {"w1": "about to begin", "w2": "about to work"}},
    ),
    ("w2", "commit p0@18 -> ok", "", K.COMMIT, ("committed", "0"), {"committed": {"0": 18}}),
)
TIMES: Final = {11: 30_000_000, 14: 30_005_000, 15: 30_006_000, 20: 30_007_000}
TRUTHS: Final[dict[int, tuple[tuple[str, Truth], ...]]] = {
    1: tuple(
        (law.name, Truth.OPEN if law.kind in {LawKind.EVENTUALLY, LawKind.SOMETIMES} else Truth.HOLDS) for law in LAWS
    ),
    16: ((TAKEN_OVER, Truth.REACHED),),
    19: ((FALLS, Truth.BROKEN),),
    20: ((FALLS, Truth.HOLDS),),
    23: ((COMMITTED, Truth.BROKEN),),
}
BESIDE: Final = Option("w2", "read leases")


def everything() -> Trace:
    steps = tuple(plotted())
    other = TraceStep(
        "w2", "wait", "", (), 30_007_000, K.SLEEP, Choice((BESIDE, Option("w2", "wait")), 1), causes=(22,)
    )
    noise = TraceStep("clock", "1 s pass", "", (), 0, K.TIME)
    before = (noise, *steps[:5], noise, *steps[5:])
    return Trace(
        scenario="takeover",
        version="1.2.3",
        law=COMMITTED,
        time="relative time, quanta of 5 ms",
        seed="0x5e1f",
        movers=MOVERS,
        initial=state(),
        steps=steps,
        breach=Breach.SAFETY,
        laws=LAWS,
        policy=PolicyName.SHRUNK,
        python="3.11.7",
        fingerprint="f" * 64,
        passing=Passing(23, (*steps[:22], other)),
        original=before,
    )


def plotted() -> Iterator[TraceStep]:
    parts: State = {}
    before = state()
    now = 0
    last: dict[str, int] = {}
    for number, (who, event, fault, kind, on, more) in enumerate(PLOT, 1):
        parts = {**parts, **more}
        after = state(**parts)
        now = TIMES.get(number, now)
        options = (BESIDE, Option(who, event, fault)) if number != 15 else (BESIDE,)
        lives = {last[each] for each in (who, "/".join(on)) if last.get(each)}
        yield TraceStep(
            process=who,
            event=event,
            fault=fault,
            patch=difference(before, after),
            at=now,
            kind=kind,
            choice=Choice(options, len(options) - 1),
            effects=(Done(event.partition(" -> ")[0], on, event.partition(" -> ")[2]),),
            truths=TRUTHS.get(number, ()),
            causes=tuple(sorted(lives)),
            src=f"takeover.py:{number} claim" if who.startswith("w") else "",
        )
        last |= {who: number, "/".join(on): number}
        before = after


def long(steps: int, workers: int = 8) -> Trace:
    names = [f"worker-{number}" for number in range(workers)]
    law = NamedLaw("versions only grow", LawKind.ALWAYS)
    made = tuple(
        TraceStep(
            names[number % workers],
            f'update jobs where _id = "{key(number)}": version := {number} -> 1',
            "lost_reply" if number % 97 == 0 else "",
            moved(names, number),
            number * 1_000,
            K.WRITE,
            Choice(tuple(Option(name, "update jobs") for name in names), number % workers),
            (Done("update jobs", ("documents", "jobs", key(number)), "1"),),
            ((law.name, Truth.HOLDS),) if number == 1 else ((law.name, Truth.BROKEN),) if number == steps else (),
            tuple(each for each in (number - workers, number - 1) if each > 0),
            "jobs.py:12 claim",
        )
        for number in range(1, steps + 1)
    )
    return attrs.evolve(
        everything(),
        scenario="jobs",
        law=law.name,
        laws=(law,),
        movers=tuple(map(Mover, names)),
        initial=jobs(names),
        steps=made,
        passing=None,
        original=None,
    )


def key(number: int) -> str:
    return f"d{number * 7 % 40}"


def jobs(names: list[str]) -> Document:
    documents = {f"d{number}": {"_id": f"d{number}", "version": 0, "owner": ""} for number in range(40)}
    found = doc({"processes": dict.fromkeys(names, "about to claim"), "documents": {"jobs": documents}})
    assert isinstance(found, Document)
    return found


def moved(names: list[str], number: int) -> Patch:
    place = f"/documents/jobs/{key(number)}"
    return Replaced(f"{place}/version", number), Replaced(f"{place}/owner", names[number % len(names)])
