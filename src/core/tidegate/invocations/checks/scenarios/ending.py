"""A runner tells how three runs have ended while another process takes two of them over, as if the runner were dead.

One run has succeeded, one is tried again, and one has failed once too often. Every request may meet every fault of the
network, and end after any of its records; the runner crashes, and starts again with what it knew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.checks.scenarios.settling import ALL_FAULTS, RUNNER, RUNNING, answers, record, settles
from tidegate.invocations.checks.scenarios.transition import RECORDS, seen, versions
from tidegate.invocations.queue.bulk_transition import Settling
from tidegate.invocations.queue.completion import Ending, Failed, RunEnd, RunError, Succeeded
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.record_documents import DUE, FAILING_SINCE, HISTORY, REQUEST, STATUS, VERSION
from tidegate.model.documents import Document
from tidegate.model.effects import Program
from tidegate.model.instants import SECOND
from tidegate.model.reading import needed
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Faults
from tidegate.sim.world.world import Meaning, document, journal, journaled, perform, world_with

TRUE: Final = "every answer is the truth"
RESULTS: Final = "a result is of the run that was granted"
AVAILABLE: Final = "what is available is due, and nothing else is"
ALLOWED: Final = "a task is tried as often as is allowed"
NOTICED: Final = "listeners have a notice of the version that was made for them, and of no other"
DELAY: Final = "a try is due after its delay"

SUCCEEDS, FAILS, LAST = "succeeds", "fails", "fails for the last time"
KEYS: Final = (SUCCEEDS, FAILS, LAST)
POLICY: Final = Policy(backoff=Fixed(SECOND), attempts_max=3)
ERROR_OF: Final = Failed(RunError("ValueError", "no"), POLICY)
RUNS: Final = (
    RunEnd(key=SUCCEEDS, record=RUNNING, end=Succeeded("result"), is_listened=True),
    RunEnd(key=FAILS, record=RUNNING, end=ERROR_OF, tries=2),
    RunEnd(key=LAST, record=RUNNING, end=ERROR_OF, tries=3, is_listened=True),
)


async def ends(made: type[Ending]) -> tuple[Answered, ...]:
    found = await made(runs=RUNS, records=RECORDS).run()
    return tuple(Answered(f"{run.key}: by its runner", answer) for run, answer in zip(RUNS, found.answers, strict=True))


def recovers(life: int) -> Program[tuple[Answered, ...]]:
    targets = (status.RUNNING_RECOVERY, status.REROUTED)
    return settles(Settling, KEYS[:2], None, f"recovery.{life}", targets)


def is_by_runner(request: str) -> bool:
    return request.startswith(f"{RUNNER}.")


def history(state: State, key: str) -> tuple[Version, ...]:
    made = versions(state.read(journal(RECORDS, key)))
    return tuple(
        Version(each.record, f"{key}: by its runner", RUNNER) if is_by_runner(each.request) else each for each in made
    )


def gets_true_answers(key: str, state: State) -> bool:
    of_key = [each for each in answers(state, "runner") if each.request.startswith(f"{key}:")]
    return not of_key or laws.transition.answers_are_true(history(state, key), of_key)


def of_records(law: Callable[[str, Document], bool]) -> tuple[Law, ...]:
    return tuple(partial(_holds, law, key) for key in KEYS)


def _holds(law: Callable[[str, Document], bool], key: str, state: State) -> bool:
    record = state.read(document(RECORDS, key))
    return record is not None and law(key, record)


def made_by_runner(record: Document) -> tuple[int, ...]:
    """The versions that the runner has made."""
    return tuple(entry[VERSION] for entry in record[HISTORY] if is_by_runner(entry[REQUEST]))


def holds_its_result(key: str, record: Document) -> bool:
    is_in = key == SUCCEEDS and bool(made_by_runner(record))
    return laws.ending.result_is_of_the_granted(record, ("result",) if is_in else ())


def is_due(_: str, record: Document) -> bool:
    return laws.ending.available_is_due(record)


def is_tried_as_allowed(key: str, record: Document) -> bool:
    (tries,) = (run.tries for run in RUNS if run.key == key)
    has_failed = key != SUCCEEDS and bool(made_by_runner(record))
    return not has_failed or laws.ending.as_often_as_allowed(record, tries, POLICY.attempts_max)


def is_noticed(key: str, record: Document) -> bool:
    return laws.ending.versions_are_noticed(record, () if key == FAILS else made_by_runner(record))


def is_delayed(_: str, record: Document) -> bool:
    if record[STATUS] != status.RETRY:
        return True
    return laws.ending.a_try_is_due_after_the_delay(needed(record, DUE), needed(record, FAILING_SINCE), SECOND, SECOND)


def ending(
    made: type[Ending] = Ending,
    *,
    summary: str = "three runs have ended, and two are taken over meanwhile: each end is written once, with all that belongs to it",
    budget: int = 1,
    faults: Faults = ALL_FAULTS,
) -> Scenario:
    """The scenario, for our program or a faulty variant of it.

    Args:
        made: The program, or a faulty variant of it.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Which.
    """
    means: Meaning = perform
    for key in KEYS:
        means = journaled(RECORDS, key, seen, means)
    world = world_with({RECORDS: tuple(map(record, KEYS))})
    for key in KEYS:
        world = world.write(journal(RECORDS, key), (seen(record(key)),))
    return Scenario(
        name="ending",
        summary=summary,
        world=world,
        actors=(
            Process("runner", lambda _: ends(made), faults, means, raises=True),
            Process("recovery", recovers, faults, means, raises=True),
            Network(means),
        ),
        budget=budget,
        always={
            TRUE: tuple(partial(gets_true_answers, key) for key in KEYS),
            RESULTS: of_records(holds_its_result),
            AVAILABLE: of_records(is_due),
            ALLOWED: of_records(is_tried_as_allowed),
            NOTICED: of_records(is_noticed),
            DELAY: of_records(is_delayed),
        },
        sometimes={
            "each has ended": lambda state: all(
                made_by_runner(each) for key in KEYS if (each := state.read(document(RECORDS, key))) is not None
            ),
            "one was taken over": lambda state: history(state, SUCCEEDS)[-1].record.status == status.REROUTED,
        },
    )


SCENARIOS: Final = (Shipped("ending", ending, thorough=partial(ending, budget=2), large=partial(ending, budget=6)),)
