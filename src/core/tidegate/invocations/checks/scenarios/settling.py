"""A runner moves three running records in bulk, while another process takes two of them over and
reroutes them.

Each passes its records on, so only the result of a bulk is read. Every request may meet every
network fault, and stop after any of its records; the runner crashes and restarts with its records
and new request ids.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.checks.scenarios.transition import FAULTS, RECORDS, seen, versions
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted
from tidegate.model.documents import Document
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import Meaning, journal, journaled, perform, world_with

KEYS: Final = ("a", "b", "c")
RUNNER: Final = "runner"
RUNNING: Final = StatusRecord(status.RUNNING, RUNNER, 3)
ALL_FAULTS: Final = attrs.evolve(FAULTS, kinds={**FAULTS.kinds, Fault.PARTLY_DONE: all_effects})


async def settles(
    made: type[Settling], keys: tuple[str, ...], runner: str | None, life: str, targets: tuple[str, ...]
) -> tuple[Answered, ...]:
    """Move these records along these statuses, as far as granted."""
    known = tuple((key, RUNNING) for key in keys)
    answered: tuple[Answered, ...] = ()
    for target in targets:
        moves = tuple(RecordMove(key, record, target, f"{life}.{key}.{target}") for key, record in known)
        answers = await made(RECORDS, INVOCATION, moves, runner).run()
        answered += tuple(Answered(move.request, answer) for move, answer in zip(moves, answers, strict=True))
        granted = zip(moves, answers, strict=True)
        known = tuple((move.key, answer.record) for move, answer in granted if isinstance(answer, Granted))
        if not known:
            break
    return answered


def runner(made: type[Settling]) -> Birth:
    return lambda life: settles(made, KEYS, RUNNER, f"runner:{RUNNER}.{life}", (status.SUCCESS,))


def recoverer(made: type[Settling]) -> Birth:
    targets = (status.RUNNING_RECOVERY, status.REROUTED)
    return lambda life: settles(made, KEYS[1:], None, f"recovery.{life}", targets)


def record(key: str) -> Document:
    """The record as the runner claimed it."""
    made = ((1, "made", status.REGISTERED), (2, "claimed", status.PENDING), (3, "begun", status.RUNNING))
    history = tuple({"version": version, "request": request, "status": which} for version, request, which in made)
    fields = {"status": RUNNING.status, "owner": RUNNING.owner, "version": RUNNING.version}
    return Document.of({"_id": key, **fields, "history": history})


def history(state: State, key: str) -> tuple[Version, ...]:
    return versions(state.read(journal(RECORDS, key)))


def of_each(law: Callable[[tuple[Version, ...]], bool]) -> tuple[Law, ...]:
    """The law of a history, for each record."""
    return tuple(partial(_holds, law, key) for key in KEYS)


def _holds(law: Callable[[tuple[Version, ...]], bool], key: str, state: State) -> bool:
    return law(history(state, key))


def answers(state: State, process: str) -> tuple[Answered, ...]:
    """The answers to a finished process."""
    match state.status(process):
        case Returned(tuple() as found):
            return found
        case _:
            return ()


def gets_true_answers(process: str, key: str, state: State) -> bool:
    of_key = [each for each in answers(state, process) if f".{key}." in each.request]
    return not of_key or laws.transition.answers_are_true(history(state, key), of_key)


def gets_known_answers(process: str, state: State) -> bool:
    return laws.transition.nothing_is_unknown(answers(state, process))


def is_as_asked(made: tuple[Version, ...]) -> bool:
    by_us = (each for each in made if "." in each.request)
    return laws.transition.requests_make_what_they_are_for(
        (each.request.rpartition(".")[2], each.record.status) for each in by_us
    )


def how_many(state: State, which: str) -> int:
    return sum(history(state, key)[-1].record.status == which for key in KEYS)


GOALS: Final[dict[str, Law]] = {
    "all succeed": lambda state: how_many(state, status.SUCCESS) == len(KEYS),
    "some are taken over, and one succeeds": lambda state: (
        (how_many(state, status.REROUTED), how_many(state, status.SUCCESS)) == (2, 1)
    ),
    "each gets one": lambda state: (how_many(state, status.REROUTED), how_many(state, status.SUCCESS)) == (1, 2),
}


def settling(
    made: type[Settling] = Settling,
    *,
    summary: str = "three records are settled in bulk while two are taken over: each at most once, every answer is true",
    budget: int = 1,
    faults: Faults = ALL_FAULTS,
) -> Scenario:
    """The scenario, perhaps with a planted bug.

    Args:
        made: The program.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Those that may strike.
    """
    means: Meaning = perform
    for key in KEYS:
        means = journaled(RECORDS, key, seen, means)
    names = ("runner", "recovery")
    world = world_with({RECORDS: tuple(map(record, KEYS))})
    for key in KEYS:
        world = world.write(journal(RECORDS, key), (seen(record(key)),))
    always: dict[str, Law | tuple[Law, ...]] = {
        "every answer is the truth": tuple(partial(gets_true_answers, name, key) for name in names for key in KEYS),
        "versions are consecutive": of_each(laws.transition.versions_are_consecutive),
        "versions are recorded": of_each(laws.transition.versions_are_recorded),
        "changes are legal": of_each(partial(laws.transition.changes_are_legal, INVOCATION)),
        "requests count once": of_each(laws.transition.requests_count_once),
        "nothing is unknown": tuple(partial(gets_known_answers, name) for name in names),
        "requests make what they are for": of_each(is_as_asked),
    }
    return Scenario(
        name="transition.bulk",
        summary=summary,
        world=world,
        actors=(
            Process("runner", runner(made), faults, means, raises=True),
            Process("recovery", recoverer(made), faults, means, raises=True),
            Network(means),
        ),
        budget=budget,
        always=always,
        sometimes=GOALS,
    )


SCENARIOS: Final = (
    Shipped(
        "transition.bulk",
        partial(settling, budget=1),
        thorough=partial(settling, budget=2),
        large=partial(settling, budget=4),
    ),
)
