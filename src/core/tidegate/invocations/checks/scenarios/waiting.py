"""A caller waits for two invocations: one succeeds, the other fails, is retried, and fails for
good.

Their runner may die between two writes, and then nothing more happens. The caller loses requests
and replies.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios.settling import RUNNER, RUNNING, record
from tidegate.invocations.checks.scenarios.transition import RECORDS
from tidegate.invocations.queue.bulk_transition import RecordMove, settle
from tidegate.invocations.queue.completion import Ending, Failed, RunEnd, RunError, Succeeded
from tidegate.invocations.queue.results import Awaited, Waiting
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.transition import Granted
from tidegate.model.documents import Document
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, perform, world_with

TRUE: Final = "what is told is so"
ENDS: Final = "nobody waits for what has ended"
KEYS: Final = ("succeeds", "fails")
CRASH: Final = Faults.of(Fault.CRASH_BEFORE)
LOST: Final = Faults.of(Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)
POLICY: Final = Policy(backoff=Fixed(0), attempts_max=2)


async def works() -> bool:
    """The runs of both: two of the failing one, as far as granted."""
    succeeds, fails = KEYS
    done = RunEnd(key=succeeds, record=RUNNING, end=Succeeded(42))
    failed = RunEnd(key=fails, record=RUNNING, end=Failed(RunError("ValueError", "not yet"), POLICY))
    await Ending(runs=(done,), records=RECORDS).run()
    (answer,) = (await Ending(runs=(failed,), records=RECORDS).run()).answers
    if not isinstance(answer, Granted):
        return False
    again = RecordMove(fails, answer.record, status.RUNNING, f"{RUNNER}.again")
    (answer,) = await settle(RECORDS, INVOCATION, (again,), runner=RUNNER)
    if not isinstance(answer, Granted):
        return False
    last = Failed(RunError("ValueError", "never"), POLICY)
    await Ending(runs=(RunEnd(key=fails, record=answer.record, end=last, tries=2),), records=RECORDS).run()
    return True


def waiting(
    made: type[Waiting] = Waiting,
    *,
    summary: str = "somebody waits for two invocations: what he is told is so, and he waits no longer than until they have ended",
    budget: int = 2,
) -> Scenario:
    """The scenario, perhaps with a planted bug.

    Args:
        made: The program.
        summary: One line for people.
        budget: How many faults may strike.
    """
    wanted = made(keys=KEYS, records=RECORDS, least=1, most=1)

    def answers(state: State) -> tuple[Awaited, ...]:
        match state.status("waiter"):
            case Returned(tuple() as told):
                return told
            case _:
                return ()

    def records(state: State) -> dict[str, Document | None]:
        return {key: state.read(document(RECORDS, key)) for key in KEYS}

    def is_true(state: State) -> bool:
        return laws.waiting.what_is_told_is_so(answers(state), records(state))

    def has_ended(state: State) -> bool:
        there = [record for record in records(state).values() if record is not None]
        return laws.waiting.nobody_waits_for_what_has_ended(there, is_waiting=not answers(state))

    return Scenario(
        name="waiting",
        summary=summary,
        world=world_with({RECORDS: tuple(map(record, KEYS))}),
        actors=(
            Process("waiter", lambda _: wanted.run(), LOST, perform),
            Process("runner", lambda _: works(), CRASH, perform),
        ),
        budget=budget,
        always={TRUE: is_true},
        eventually={ENDS: has_ended},
        sometimes={"both are told": lambda state: len(answers(state)) == len(KEYS)},
    )


SCENARIOS: Final = (Shipped("waiting", waiting, thorough=partial(waiting, budget=4), large=partial(waiting, budget=8)),)
