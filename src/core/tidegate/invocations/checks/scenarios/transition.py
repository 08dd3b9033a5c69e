"""Three runners on one record: two share a runner id, and the third recovers the record.

The runners claim it, run it, and succeed or retry, as user code decides. The third takes it from
any owner and reroutes it. Each request may meet each network fault; processes crash and restart
with new ids. By default one fault strikes per run; only the thorough scope explores two.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.laws.transition import Answered, Version
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import HISTORY, OWNER, REQUEST, STATUS, VERSION, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition, TransitionOutcome
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, Call, Effect, NotApplied, Sleep
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FindOne, find_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Exponential
from tidegate.retries.checks.laws import pauses as retries
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.failover import recalling
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    CLOCK,
    Cell,
    Meaning,
    Outcomes,
    World,
    calling,
    journal,
    journaled,
    perform,
    world_with,
)

WAITS: Final = "what contends is not tried again before its time"
RECORDS: Final = "invocations"
KEY: Final = "x"
APART: Final = Pauses(Exponential(100 * MILLISECOND, cap=200 * MILLISECOND), jitter_ppm=0)
"""The pauses between attempts, with a clock. Jitter would allow shorter ones, which no law could
see.
"""
RECOVERY: Final = {status.PENDING: status.PENDING_RECOVERY, status.RUNNING: status.RUNNING_RECOVERY}
FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.RESTART, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE
)
RESTARTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART)
STALE: Final = Faults.of(Fault.STALE_READ, Fault.LOST_REPLY, Fault.DUPLICATE)


async def work(made: type[Transition], runner: str, life: str, *, knows: bool) -> tuple[Answered, ...]:
    """Claim the record, run it, and write the end; stop at the first answer that is not a grant.

    Args:
        made: The program of a transition.
        runner: The runner's id.
        life: The prefix of its requests.
        knows: Whether each step gets the record of the one before.
    """
    answered: tuple[Answered, ...] = ()
    known: StatusRecord | None = None
    for step in (status.PENDING, status.RUNNING, ""):
        target = step or str(await Call("user code"))
        request = f"{life}.{target}"
        answer = await made(RECORDS, INVOCATION, KEY, target, runner, request, expected=known).run()
        answered = (*answered, Answered(request, answer))
        if not isinstance(answer, Granted):
            break
        known = answer.record if knows else None
    return answered


async def recover(made: type[Transition], life: str) -> tuple[Answered, ...]:
    """Take the record from any owner, and reroute it."""
    stuck = await look()
    if stuck not in RECOVERY:
        return ()
    answered: tuple[Answered, ...] = ()
    for target in (RECOVERY[stuck], status.REROUTED):
        request = f"{life}.{target}"
        answer = await made(RECORDS, INVOCATION, KEY, target, None, request).run()
        answered = (*answered, Answered(request, answer))
        if not isinstance(answer, Granted):
            break
    return answered


async def look() -> str:
    while True:
        try:
            record = await find_one(RECORDS, Eq(ID, KEY))
        except (Ambiguous, NotApplied):
            continue
        return record[STATUS] if record else ""


def seen(record: Document) -> Document:
    """The part of a version in the journal."""
    newest = record[HISTORY][-1]
    made_by = newest[REQUEST] if newest[VERSION] == record[VERSION] else ""
    return Document.of(
        {"version": record[VERSION], "status": record[STATUS], "owner": record[OWNER], "request": made_by}
    )


def history(state: State) -> tuple[Version, ...]:
    """The full history of the record, from the journal."""
    return versions(state.read(journal(RECORDS, KEY)))


@cache
def versions(entries: tuple[Document, ...]) -> tuple[Version, ...]:
    records = ((viewed(entry), entry[REQUEST]) for entry in entries)
    return tuple(Version(record, request, runner_of(request)) for record, request in records if record is not None)


def runner_of(request: str) -> str | None:
    """The owner of a request: `<process>:<runner>.<life>.<target>`."""
    return request.partition(".")[0].partition(":")[2] or None


def answers(state: State, process: str) -> tuple[Answered, ...]:
    """The answers to a finished process."""
    match state.status(process):
        case Returned(tuple() as found):
            return found
        case _:
            return ()


def is_as_asked(state: State) -> bool:
    made = ((each.request.rpartition(".")[2], each.record.status) for each in history(state))
    # The record was made before the first request; other cells tell who made a version that hides
    # its request.
    return laws.transition.requests_make_what_they_are_for(each for each in made if each[0] not in ("", "made"))


def gets_true_answers(process: str) -> Law:
    return lambda state: (
        not answers(state, process) or laws.transition.answers_are_true(history(state), answers(state, process))
    )


def gets_known_answers(process: str) -> Law:
    return lambda state: laws.transition.nothing_is_unknown(answers(state, process))


def worker(made: type[Transition], name: str, runner: str, *, knows: bool) -> Birth:
    return lambda life: work(made, runner, f"{name}:{runner}.{life}", knows=knows)


def recoverer(made: type[Transition]) -> Birth:
    return lambda life: recover(made, f"recovery.{life}")


GOALS: Final[dict[str, Law]] = {
    "it succeeds": lambda state: history(state)[-1].record.status == status.SUCCESS,
    "it is recovered and run again": lambda state: (
        [version.record.status for version in history(state)].count(status.RUNNING) > 1
    ),
}


def transition(
    made: type[Transition] = Transition,
    *,
    summary: str = "three runners on one record: at most once, and every answer is the truth",
    budget: int = 1,
    faults: Faults = FAULTS,
    runners: tuple[str, str] = ("runner", "runner"),
    knows: bool = False,
) -> Scenario:
    """The scenario, perhaps with a planted bug.

    Args:
        made: The program.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Those that may strike.
        runners: The ids of the two runners.
        knows: Whether these two pass the record on instead of reading it again.
    """
    means = journaled(RECORDS, KEY, seen, calling({"user code": (status.SUCCESS, status.RETRY)}))
    if faults.allows(Fault.STALE_READ):
        means = recalling(means)
    entry = {"version": 1, "request": "made", "status": status.REGISTERED}
    first = Document.of({"_id": KEY, "status": status.REGISTERED, "owner": None, "version": 1, "history": (entry,)})
    names = ("r1", "r2", "recovery")
    actors = (
        Process("r1", worker(made, "r1", runners[0], knows=knows), faults, means, raises=True),
        Process("r2", worker(made, "r2", runners[1], knows=knows), faults, means, raises=True),
        Process("recovery", recoverer(made), faults, means),
        Network(means),
    )
    world = world_with({RECORDS: (first,)}).write(journal(RECORDS, KEY), (seen(first),))
    always: dict[str, Law | tuple[Law, ...]] = {
        "every answer is the truth": tuple(map(gets_true_answers, names)),
        "versions are consecutive": lambda state: laws.transition.versions_are_consecutive(history(state)),
        "versions are recorded": lambda state: laws.transition.versions_are_recorded(history(state)),
        "changes are legal": lambda state: laws.transition.changes_are_legal(INVOCATION, history(state)),
        "requests count once": lambda state: laws.transition.requests_count_once(history(state)),
        "nothing is unknown": tuple(map(gets_known_answers, names)),
        "requests make what they are for": is_as_asked,
    }
    return Scenario(
        name="transition.known" if knows else "transition",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always=always,
        sometimes=GOALS,
        symmetric=(names[:2],) if len({*runners}) == 1 else (),
    )


# --- with a clock -------------------------------------------------------------------------------------------------------


HORIZON: Final = 200 * MILLISECOND


def attempts(process: str) -> Cell[tuple[int, Duration, Instant | None]]:
    """The number of reads of the process, the pause before the last one (up to HORIZON), and its
    last action.
    """
    return Cell(("attempts", process), (0, 0, None))


def timed(otherwise: Meaning) -> Meaning:
    """Semantics that record the times of attempts; each begins with a read."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        cell, now = attempts(who), world.read(CLOCK)
        made, gap, last = world.read(cell)
        if isinstance(effect, FindOne):
            made, gap = made + 1, 0 if last is None else min(HORIZON, now - last)
        for after, reply in otherwise(effect, world, who):
            yield after if isinstance(effect, Sleep) else after.write(cell, (made, gap, now)), reply

    return meaning


def waits(process: str) -> Law:
    def law(state: State) -> bool:
        made, gap, _ = state.read(attempts(process))
        return made < 2 or retries.is_after_its_pause(APART, made - 1, gap)

    return law


async def take(made: type[Transition], runner: str) -> TransitionOutcome:
    """Claim the record."""
    return await made(RECORDS, INVOCATION, KEY, status.PENDING, runner, f"{runner}.taken", pauses=APART).run()


def pauses(
    made: type[Transition] = Transition,
    *,
    summary: str = "two runners want one record: who loses, or has no answer, waits before it tries again",
    budget: int = 1,
) -> Scenario:
    """The scenario with time between attempts.

    Args:
        made: The program, perhaps with a planted bug.
        summary: One line for people.
        budget: How many faults may strike.
    """
    names, faults, means = ("r1", "r2"), Faults.of(Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY), timed(perform)
    first = Document.of({"_id": KEY, "status": status.REGISTERED, "owner": None, "version": 1, "history": ()})
    return Scenario(
        name="transition.pauses",
        summary=summary,
        world=world_with({RECORDS: (first,)}),
        actors=tuple(Process(name, factory(take, made, name), faults, means) for name in names),
        budget=budget,
        clock=Clock(100 * MILLISECOND, horizon=HORIZON),
        always={WAITS: tuple(map(waits, names))},
        sometimes={"one tries again": lambda state: any(state.read(attempts(name))[0] > 1 for name in names)},
        symmetric=(names,),
    )


_KNOWN: Final = partial(
    transition, knows=True, summary="the same where a runner knows what it has moved, and writes without a look"
)
_RESTARTS: Final = partial(
    transition, faults=RESTARTS, summary="the same where a runner that crashed comes back under new request ids"
)
_STALE: Final = partial(
    transition,
    faults=STALE,
    summary="the same where a look may show what was there before, and a request may be delivered twice",
)

SCENARIOS: Final = (
    Shipped("transition", transition, thorough=partial(transition, budget=2), large=partial(transition, budget=6)),
    Shipped("transition.known", _KNOWN, thorough=partial(_KNOWN, budget=2), large=partial(_KNOWN, budget=6)),
    Shipped(
        "transition.restarts",
        partial(_RESTARTS, budget=2),
        thorough=partial(_RESTARTS, budget=4),
        large=partial(_RESTARTS, budget=9),
    ),
    Shipped("transition.stale", _STALE, thorough=partial(_STALE, budget=2), large=partial(_STALE, budget=6)),
    Shipped("transition.pauses", pauses, thorough=partial(pauses, budget=3), large=partial(pauses, budget=9)),
)
