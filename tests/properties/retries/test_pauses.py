from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from inspect import isclass, iscoroutinefunction
from itertools import count
from pkgutil import walk_packages
from typing import Protocol, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

import tidegate
from tidegate.catalogue import shipped
from tidegate.counters import increments as counting
from tidegate.counters.counter import new_counter
from tidegate.counters.increments import increment
from tidegate.invocations.admin import commands
from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.invocations.limits.admission import Call as Called
from tidegate.invocations.limits.admission import Control, Place, Rule
from tidegate.invocations.limits.rate_limit import Rate
from tidegate.invocations.limits.rate_limiting import Metering
from tidegate.invocations.limits.registration import Registrar
from tidegate.invocations.limits.slot_acquisition import Picker
from tidegate.invocations.limits.slots import Placing, Wish, wake
from tidegate.invocations.queue.bulk_transition import RecordMove, settle
from tidegate.invocations.queue.completion import Ending, Failed, RunEnd, RunError
from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.record.array_push_lock import ClaimedRecord
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import transition
from tidegate.model.effects import Ambiguous, Call, Effect, NotApplied, NotDurable, Now, Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, SECOND, WALL, Duration, Instant
from tidegate.model.operations import FindOne, FindOneAndUpdate, Operation, StoreTime, UpdateOne
from tidegate.payloads import uploads
from tidegate.reactive.admin.commands import Desk
from tidegate.reactive.record.record_queries import Query
from tidegate.reactive.record.tasks import Claim
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries import attempt_delays
from tidegate.retries.attempt_delays import PAUSES, Pauses, check_attempts, goes_on, pause
from tidegate.retries.backoff import LONGEST, Cron, Exponential, Fixed, Policy, Series
from tidegate.retries.checks.laws import pauses as laws
from tidegate.retries.checks.strategies import pauses as drawn
from tidegate.retries.checks.strategies.backoff import EachPeriod, attempts, draws
from tidegate.retries.idempotent import repeat
from tidegate.sim.program.automaton import Asking, Returned, resume
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.world import World
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator

REQUESTS = (*get_args(Operation), StoreTime)


class GoesOn(Protocol):
    def __call__(self, pauses: Pauses, attempts: int | None, made: int, since: Instant | None, /) -> Program[bool]: ...


@given(drawn.pauses(), attempts(), draws())
@example(Pauses(Fixed(2), jitter_ppm=1), 1, PPM)
def test_pa1_nothing_comes_before_its_time(pauses: Pauses, made: int, draw: int) -> None:
    assert laws.is_after_its_pause(pauses, made, pauses.after(made).lasting(draw))


@given(drawn.pauses(), attempts())
@example(Pauses(Exponential(1)), 2)
def test_pa2_it_is_the_delay_after_so_many(pauses: Pauses, made: int) -> None:
    assert laws.is_of(pauses, made, pauses.after(made))


def follows(pauses: Pauses, attempts: int | None, made: int, elapsed: Duration) -> bool:
    slept: Sleep | None = None
    program, reply = goes_on(pauses, attempts, made, Instant(0, WALL)), None
    while isinstance(status := resume(program, reply), Asking):
        slept = status.effect if isinstance(status.effect, Sleep) else slept
        reply = Instant(elapsed, WALL) if isinstance(status.effect, Now) else None
    assert isinstance(status, Returned)
    assert slept == (pauses.after(made) if status.value and pauses.after(made).duration else None)
    return bool(status.value)


@given(drawn.pauses(), st.none() | st.integers(1, 12), st.integers(1, 12), st.integers(0, 2 * LONGEST))
@example(Pauses(Fixed(2), elapsed_max=5), None, 2, 3)
@example(Pauses(Fixed(2), elapsed_max=5), None, 2, 4)
@example(Pauses(Fixed(0), elapsed_max=5), 3, 3, 0)
def test_pa3_attempts_follow_as_long_as_they_may(
    pauses: Pauses, most: int | None, made: int, elapsed: Duration
) -> None:
    another = follows(pauses, most, made, elapsed)
    assert laws.goes_on_as_long_as_it_may(pauses, most, made, elapsed, follows=another)


test_a_planted_bug_is_found = planted(
    attempt_delays,
    bug("jitter takes all", ("attempts), self.jitter_ppm)", "attempts), PPM)"), test_pa1_nothing_comes_before_its_time),
    bug(
        "at once", ("Sleep(delay_after(self.delays, attempts), self.jitter_ppm)", "Sleep(0)"),
        test_pa1_nothing_comes_before_its_time,
    ),
    bug(
        "always the first delay", ("Sleep(delay_after(self.delays, attempts)", "Sleep(delay_after(self.delays, 1)"),
        test_pa2_it_is_the_delay_after_so_many,
    ),
    bug("all wake together", ("attempts), self.jitter_ppm)", "attempts))"), test_pa2_it_is_the_delay_after_so_many),
    bug(
        "the time is forgotten", ("if made and since is not None and", "if False and"),
        test_pa3_attempts_follow_as_long_as_they_may,
    ),
    bug(
        "the delay is forgotten", (" + pauses.after(made).duration >", " >"),
        test_pa3_attempts_follow_as_long_as_they_may,
    ),
    bug("one more", ("made >= attempts", "made > attempts"), test_pa3_attempts_follow_as_long_as_they_may),
    bug(
        "it stops too soon",
        ("    await pause(pauses, made)\n", "    if made == 2:\n        return False\n    await pause(pauses, made)\n"),
        test_pa3_attempts_follow_as_long_as_they_may,
    ),
)  # fmt: skip


def test_the_default_is_that_of_mongodb_s_drivers() -> None:
    """Specification "Client Backpressure": 100 ms, doubled, up to 10 s, full jitter."""
    delays = [PAUSES.after(made).duration // MILLISECOND for made in range(1, 10)]
    assert delays == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    assert {PAUSES.after(made).least for made in range(1, 10)} == {0}


def test_nothing_lies_before_the_first_attempt_nor_where_the_delay_is_nothing() -> None:
    assert resume(pause(PAUSES, 0), None) == resume(pause(Pauses(Fixed(0)), 3), None) == Returned(None)
    assert resume(pause(Pauses(Fixed(SECOND), 7), 3), None) == Asking(Sleep(SECOND, 7))


def test_lengths_are_taken_as_python_has_them() -> None:
    second = timedelta(seconds=1)
    assert Pauses(Series((second, 2 * second)), elapsed_max=second) == Pauses(
        Series((SECOND, 2 * SECOND)), elapsed_max=SECOND
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Pauses(Cron("* * * * *", EachPeriod(1))),  # type: ignore[arg-type]
        lambda: Pauses(Fixed(1), PPM + 1),
        lambda: Pauses(Fixed(1), -1),
        lambda: Pauses(Fixed(2), elapsed_max=1),
        lambda: Pauses(Fixed(0), elapsed_max=-1),
        lambda: check_attempts(0, PAUSES),
        lambda: check_attempts(True, PAUSES),
        lambda: check_attempts(None, Pauses(Series((SECOND, 0)))),
        lambda: check_attempts(8, Fixed(SECOND)),
        lambda: PAUSES.after(0),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


# --- all programs -------------------------------------------------------------------------------------------------------

PROGRAMS = (
    ("counter", "t"),
    ("payloads", "w"),
    ("payloads", "r1"),
    ("atomic_service", "a"),
    ("admission", "worker x"),
    ("registration", "caller x"),
    ("transition", "r1"),
    ("triggers.all_conditions", "reporter"),
    ("reactive_task.indexed", "planner 1"),
)
TROUBLE: Mapping[str, Callable[[Effect[object]], object]] = {
    "no reply": lambda _: Ambiguous("no reply"),
    "not sent": lambda _: NotApplied("not sent"),
    "not durable": lambda effect: (
        NotDurable("no majority") if isinstance(effect, (FindOneAndUpdate, UpdateOne)) else ...
    ),
    "another was faster": lambda effect: (
        0 if isinstance(effect, UpdateOne) else None if isinstance(effect, FindOneAndUpdate) else ...
    ),
}


def course(process: Process, scenario: str, at: int, trouble: Callable[[Effect[object]], object]) -> Iterator[object]:
    world: World = shipped(scenario).world
    program, requests = process.birth(0), count()
    reply: object = None
    for _ in range(120):
        status = resume(program, reply)
        if not isinstance(status, Asking):
            return
        effect = status.effect
        yield effect
        reply = trouble(effect) if isinstance(effect, REQUESTS) and next(requests) == at else ...
        if reply is not ...:
            yield None
        elif isinstance(effect, Sleep):
            reply = None
        else:
            outcomes = tuple(process.meaning(effect, world, process.name))
            if not outcomes:
                return
            world, reply = outcomes[0]


def again_at_once(scenario: str, who: str) -> list[str]:
    process = next(each for each in shipped(scenario).actors if isinstance(each, Process) and each.name == who)
    found = []
    for what, trouble in TROUBLE.items():
        for at in range(25):
            asked = [*course(process, scenario, at, trouble)]
            if None in asked:
                number = asked.index(None)
                after = asked[number + 1 :]
                again = after.index(asked[number - 1]) if asked[number - 1] in after else None
                if again is not None and not any(isinstance(each, Sleep) for each in after[:again]):
                    found.append(f"{what}: {asked[number - 1]}")
    return found


@pytest.mark.parametrize(("scenario", "who"), PROGRAMS)
def test_no_program_asks_again_at_once(scenario: str, who: str) -> None:
    """Laws PA1 and TR8."""
    assert again_at_once(scenario, who) == []


@pytest.mark.parametrize(("scenario", "who"), PROGRAMS)
def test_without_pauses_every_program_asks_again_at_once(
    scenario: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_delays.Pauses, "after", lambda *_: Sleep(0))
    assert again_at_once(scenario, who) != []


# --- time limits ----------------------------------------------------------------------------------------------------------

MINUTE_LONG = Pauses(Exponential(100 * MILLISECOND, cap=10 * SECOND), elapsed_max=60 * SECOND)
CALL = Called("t")
MOVE = RecordMove("x", StatusRecord("pending", "r", 3), "running", "q")
RUNNING = StatusRecord("running", "r", 3)
CLAIM = Claim("t@x", "w", 1, None, 1, None)
NAMES: Mapping[str, Callable[[Pauses], Program[object]]] = {
    "increment": lambda pauses: increment("counters", "c", "t", attempts=None, pauses=pauses),
    "sweep a counter": lambda pauses: counting.sweep("counters", "c", attempts=None, pauses=pauses),
    "put": lambda pauses: uploads.put(stored(pauses), "k", "u", "zlib"),
    "find": lambda pauses: uploads.find(stored(pauses), "k"),
    "delete": lambda pauses: uploads.delete(stored(pauses), "k", "u"),
    "sweep": lambda pauses: uploads.sweep(stored(pauses)),
    "transition": lambda pauses: transition(
        "jobs", INVOCATION, "x", "pending", runner="r", request="q", attempts=None, pauses=pauses
    ),
    "settle": lambda pauses: settle("jobs", INVOCATION, (MOVE,), runner="r", attempts=None, pauses=pauses),
    "pick": lambda pauses: Picker(
        key="x", call=CALL, rule=Rule(Control.TASK), runner="r", request="q", attempts=None, pauses=pauses
    ).run(),
    "register": lambda pauses: Registrar(
        key="x", call=CALL, rule=Rule(Control.TASK), request="q", attempts=None, pauses=pauses
    ).run(),
    "notice": lambda pauses: Evaluator(triggers=(), next_after=EachPeriod(1), attempts=None, pauses=pauses).notice(
        EventContext("e", "e"), "r"
    ),
    "plan": lambda pauses: task(pauses).plan_pass(("x",), "q"),
    "renew": lambda pauses: task(pauses).completer.renew("x", CLAIM),
    "clean up": lambda pauses: task(pauses).clean_up(("x",)),
    "list invocations": lambda pauses: commands.Asking(request="q", attempts=None, pauses=pauses).ask(
        commands.Command.CANCEL, InvocationQuery()
    ),
    "list records": lambda pauses: desk(pauses).retry(Query()),
    "show an invocation": lambda pauses: commands.Asking(request="q", attempts=None, pauses=pauses).show("x"),
    "count records": lambda pauses: desk(pauses).count(Query()),
    "what is paused": lambda pauses: desk(pauses).paused(),
    "repeat": lambda pauses: repeat(StoreTime, None, pauses),
    "pause": lambda pauses: desk(pauses).pause("t"),
    "enqueue": lambda pauses: Enqueue(
        wanted=(NewInvocation("x", Job(task="t"), 0),), request="q", attempts=None, pauses=pauses
    ).run(),
    "end": lambda pauses: Ending(
        runs=(RunEnd(key="x", record=RUNNING, end=Failed(error=RunError(type="E"), policy=Policy())),),
        attempts=None,
        pauses=pauses,
    ).run(),
    "meter": lambda pauses: Metering(key="s", rate=Rate(1, SECOND), wanted=1, attempts=None, pauses=pauses).run(),
    "place": lambda pauses: Placing(
        wishes=(Wish(key="x", record=MOVE.expected, limited_by="s"),), attempts=None, pauses=pauses
    ).place(),
    "look who waits": lambda pauses: Placing(wishes=(), attempts=None, pauses=pauses).look((("s", (Place("x", 1),)),)),
    "wake": lambda pauses: wake("jobs", (("s", 1),), None, pauses),
    "lock": lambda pauses: ClaimedRecord("jobs", "x", "q", None, pauses).take(nothing),
    "unlock": lambda pauses: ClaimedRecord("jobs", "x", "q", 10**6, pauses).release("q:1"),
}
AFTER: Mapping[str, str] = {
    "counters.increments._send": "increment",
    "invocations.admin.commands.Asking._brought_about": "list invocations",
    "invocations.queue.fetching.Taker._read": "what it has taken is asked for until it is known",
    "payloads.uploads._announced": "put, where the payload is large",
    "payloads.uploads._kept": "put",
    "payloads.uploads.get": "find",
    "payloads.uploads.read": "find",
    "reactive.admin.commands.Desk._reset": "list records",
    "reactive.task.fetching.Fetcher.begin": "plan",
    "services.service_runner.ServiceRunner._entered": "a beat, which is made once",
    "services.service_runner.ServiceRunner._insist": "a beat, which is made once",
    "triggers._starting.RunStarter._claimed": "notice",
    "triggers._starting._registered": "notice",
    "triggers._starting._settle": "notice",
}
"""Programs that retry only after an earlier reply, with that reply, or the reason for none."""


async def nothing(claim: str) -> str:
    return claim


def desk(pauses: Pauses) -> Desk:
    return Desk(tasks=(task(pauses),), attempts=None, pauses=pauses)


def stored(pauses: Pauses) -> uploads.PayloadStore:
    return uploads.PayloadStore("payloads", "chunks", attempts=None, pauses=pauses)


def task(pauses: Pauses) -> ReactiveTask:
    return ReactiveTask(name="t", source="docs", attempts=None, pauses=pauses)


def out_of_reach(_: Effect[object], __: Duration) -> object:
    return NotApplied("no server")


def unconfirmed(effect: Effect[object], now: Duration) -> object:
    if not isinstance(effect, FindOne):
        return NotDurable("no majority")
    return new_counter("c") if now > 50 * SECOND else NotApplied("no server")


def begun(
    program: Program[object], requests: int, answer: Callable[[Effect[object], Duration], object] = out_of_reach
) -> list[Duration]:
    now, asked = 0, list[Duration]()
    reply: object = None
    calls = {"whole": b"payload", "facts": (7, "digest")}
    while isinstance(status := resume(program, reply), Asking) and len(asked) < requests:
        effect = status.effect
        if isinstance(effect, Now):
            reply = Instant(now, WALL)
        elif isinstance(effect, Sleep):
            now, reply = now + effect.duration, None
        elif isinstance(effect, Call):
            reply = calls[effect.name]
        else:
            asked.append(now)
            now += SECOND
            reply = answer(effect, now)
    program.close()
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_every_program_tries_as_long_as_it_may(name: str) -> None:
    """Law PA3: it stops within a minute, or goes on until the store is back."""
    within = begun(NAMES[name](MINUTE_LONG), 300)

    assert 8 < len(within) < 300
    assert 60 * SECOND - 11 * SECOND < within[-1] <= 60 * SECOND
    assert len(begun(NAMES[name](PAUSES), 300)) == 300


def test_a_step_that_is_sent_again_is_an_attempt_like_any_other() -> None:
    minute = begun(increment("counters", "c", "t", attempts=None, pauses=MINUTE_LONG), 300, unconfirmed)
    eight = begun(increment("counters", "c", "t", attempts=8), 300, lambda effect, _: unconfirmed(effect, 60 * SECOND))

    assert 50 * SECOND < minute[-1] <= 60 * SECOND
    assert len(eight) == 1 + 8  # a read and the step


def trying() -> dict[str, object]:
    found = dict[str, object]()
    for module in walk_packages(tidegate.__path__, "tidegate."):
        if {"sim", "scenarios", "specimens", "strategies", "laws", "__main__"} & {*module.name.split(".")}:
            continue
        names = vars(import_module(module.name))
        spaces = [names, *(vars(each) for each in names.values() if isclass(each) and each.__module__ == module.name)]
        for each in (each for space in spaces for each in space.values() if iscoroutinefunction(each)):
            if each.__module__ == module.name and "goes_on" in each.__code__.co_names:
                found[f"{each.__module__}.{each.__qualname__}".removeprefix("tidegate.")] = each.__code__
    return found


def test_every_program_that_tries_again_has_a_row() -> None:
    ran = set[object]()
    before = sys.getprofile()
    sys.setprofile(lambda frame, *_: ran.add(frame.f_code))
    try:
        for program in NAMES.values():
            begun(program(MINUTE_LONG), 3)
    finally:
        sys.setprofile(before)

    assert {name for name, code in trying().items() if code not in ran} == {*AFTER}
