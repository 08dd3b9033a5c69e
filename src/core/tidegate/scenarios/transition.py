"""Three runners on one record: two of them under one runner id, while the third recovers it.

The runners claim it, run it, and succeed or retry, as user code decides. The recovering one takes it from whoever has it
and routes it again. Every request may meet every fault of the network; processes crash and start again with new ids.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from tidegate import invocation as status
from tidegate import laws
from tidegate.documents import ID, Document, Eq
from tidegate.effects import Ambiguous, Call, Effect, NotApplied
from tidegate.invocation import INVOCATION
from tidegate.laws.transition import Answered, Version
from tidegate.operations import find_one
from tidegate.programs.transition import (
    HISTORY,
    OWNER,
    REQUEST,
    STATUS,
    VERSION,
    Answer,
    Granted,
    Transition,
    viewed,
)
from tidegate.sim.actors import Network, Program
from tidegate.sim.behaviour import Birth, Returned
from tidegate.sim.scenario import Fault, Faults, Kind, Law, Scenario, State
from tidegate.sim.world import calling, journal, journaled, seeded

RECORDS: Final = "invocations"
KEY: Final = "x"
Wish: TypeAlias = Callable[[str, str | None, str], Transition]
"""(target, runner, request id) -> the program's value; specimens give a faulty one."""

FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.RESTART, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE
)


def ours(target: str, runner: str | None, request: str) -> Transition:
    return Transition(RECORDS, INVOCATION, KEY, target, runner, request)


async def work(wish: Wish, runner: str, life: str) -> tuple[Answered, ...]:
    """Claim the record, run it, and say how it went; stop at the first answer that is no grant."""
    answered: tuple[Answered, ...] = ()
    for target in (status.PENDING, status.RUNNING):
        answer = await wish(target, runner, f"{life}.{target}").run()
        answered = (*answered, Answered(f"{life}.{target}", answer))
        if not isinstance(answer, Granted):
            return answered
    outcome = await Call("user code")
    answer = await wish(str(outcome), runner, f"{life}.finish").run()
    return (*answered, Answered(f"{life}.finish", answer))


async def recover(wish: Wish, life: str) -> tuple[Answered, ...]:
    """Take the record from whoever has it, and route it again."""
    stuck = await look()
    target = {status.PENDING: status.PENDING_RECOVERY, status.RUNNING: status.RUNNING_RECOVERY}.get(stuck)
    if target is None:
        return ()
    answer: Answer = await wish(target, None, f"{life}.recover").run()
    answered = (Answered(f"{life}.recover", answer),)
    if not isinstance(answer, Granted):
        return answered
    answer = await wish(status.REROUTED, None, f"{life}.reroute").run()
    return (*answered, Answered(f"{life}.reroute", answer))


async def look() -> str:
    while True:
        try:
            record = await find_one(RECORDS, Eq(ID, KEY))
        except (Ambiguous, NotApplied):
            continue
        return record[STATUS] if record else ""


def seen(record: Document) -> Document:
    """What the journal keeps of a version."""
    made_by = record[HISTORY][-1][REQUEST] if record[HISTORY] else ""
    return Document.of(
        {"version": record[VERSION], "status": record[STATUS], "owner": record[OWNER], "request": made_by}
    )


def history(state: State) -> tuple[Version, ...]:
    """The full history of the record, as the journal has it."""
    return versions(state.read(journal(RECORDS, KEY)))


@cache
def versions(entries: tuple[Document, ...]) -> tuple[Version, ...]:
    records = ((viewed(entry), entry[REQUEST]) for entry in entries)
    return tuple(Version(record, request) for record, request in records if record is not None)


def answers(state: State, process: str) -> tuple[Answered, ...]:
    """What the process was told, once it has finished."""
    match state.standing(process):
        case Returned(tuple() as told):
            return told
        case _:
            return ()


def is_told_the_truth(process: str) -> Law:
    return lambda state: not answers(state, process) or laws.transition.answers_are_true(
        history(state), answers(state, process)
    )


def is_told_something(process: str) -> Law:
    return lambda state: laws.transition.nothing_is_unknown(answers(state, process))


def worker(wish: Wish, name: str) -> Birth:
    return lambda life: work(wish, "runner", f"{name}.{life}")


def transition(
    wish: Wish = ours,
    *,
    name: str = "transition",
    summary: str = "three runners on one record: at most once, and every answer is the truth",
    budget: int = 2,
    faults: Faults = FAULTS,
    expect: str | None = None,
    workers: int = 2,
    recovers: bool = True,
) -> Scenario:
    """The scenario, for our program or a faulty variant of it.

    Args:
        wish: Makes the program's value.
        name: The scenario's name.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Which.
        expect: The law that a faulty variant breaks.
        workers: How many runners work on the record, all under one runner id.
        recovers: Does another one recover it?
    """
    means = journaled(RECORDS, KEY, seen, calling({"user code": (status.SUCCESS, status.RETRY)}))
    first = Document.of(
        {"_id": KEY, "status": status.REGISTERED, "owner": None, "version": 1, "history": ({"version": 1, "request": "made", "status": status.REGISTERED},)}
    )
    actors = [Program(name_, worker(wish, name_), faults, means) for name_ in ("r1", "r2")[:workers]]
    if recovers:
        actors.append(Program("recovery", lambda life: recover(wish, f"recovery.{life}"), faults, means))
    names = tuple(actor.name for actor in actors)
    world = seeded({RECORDS: (first,)}).write(journal(RECORDS, KEY), (seen(first),))
    always: dict[str, Law | tuple[Law, ...]] = {
        "every answer is the truth": tuple(map(is_told_the_truth, names)),
        "versions are consecutive": lambda state: laws.transition.versions_are_consecutive(history(state)),
        "changes are legal": lambda state: laws.transition.changes_are_legal(INVOCATION, history(state)),
        "requests count once": lambda state: laws.transition.requests_count_once(history(state)),
        "nothing is unknown": tuple(map(is_told_something, names)),
    }
    return Scenario(
        name=name,
        summary=summary,
        world=world,
        actors=(*actors, Network(means)),
        budget=budget,
        always=always,
        sometimes={} if expect else {
            "it succeeds": lambda state: history(state)[-1].record.status == status.SUCCESS,
            "it is recovered and run again": lambda state: [v.record.status for v in history(state)].count(status.RUNNING) > 1,
        },
        expect=expect,
        kind=Kind.SPECIMEN if expect else Kind.PROGRAM,
    )
