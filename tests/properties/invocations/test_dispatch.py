"""The dispatch of a process, over random courses: looks, handlers, beats and ends come to what they may, in any order, at any time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random  # noqa: TID251  seeded
from typing import Any, Final, TypeAlias, final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.length import NOTICED

from tidegate.invocations import dispatch
from tidegate.invocations.dispatch import (
    Active,
    Announced,
    Beat,
    Beaten,
    DispatchCommand,
    DispatchEvent,
    DispatchRules,
    DispatchState,
    DispatchStep,
    DispatchStopRequested,
    DispatchTimerFired,
    EndsOutcome,
    EndsRefused,
    EndsWritten,
    Handle,
    HandlersEnded,
    Heeded,
    Held,
    HeldChanged,
    Interrupt,
    InterruptReason,
    Leave,
    Left,
    Outcome,
    Resume,
    Run,
    RunGoesOn,
    RunsFound,
    RunsTaken,
    RunWaits,
    Slot,
    StartDispatchTimer,
    Stray,
    Take,
    WriteEnds,
    dispatch_event_for,
)  # fmt: skip
from tidegate.invocations.ending import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.laws import dispatch as laws
from tidegate.invocations.status import StatusRecord
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, ClockName, Instant
from tidegate.retries.backoff import Policy
from tidegate.retries.polling import PollingBounds

CLOCK: Final = ClockName("loop")
POLLING: Final = PollingBounds(least=100 * MILLISECOND, most=SECOND, jitter=0)
RULES: Final = DispatchRules(
    slots=4, batch=3, drain=SECOND, leave=SECOND, beat_every=SECOND, dead_after=3 * SECOND, polling=POLLING
)
CROWDED: Final = attrs.evolve(RULES, deaths_max=2)
POLICY: Final = Policy()
Stepping: TypeAlias = Callable[[DispatchRules, DispatchState, DispatchEvent], DispatchStep]


def at(us: int) -> Instant:
    return Instant(us, CLOCK)


def run_of(number: int, longest: int | None = None, deaths: int = 0) -> Run:
    return Run(f"i{number}", 2, "bill", longest, POLICY, deaths=deaths)


@final
class Course:
    """A dispatch, and a world that answers it at random."""

    def __init__(self, random: Random, stepping: Stepping = DispatchRules.step, steps: int = 80) -> None:
        self.random, self.stepping = random, stepping
        self.state, self.now = DispatchState(), 0
        self.asked: list[DispatchCommand] = []  # and not answered
        self.handlers: dict[Run, str] = {}  # "told", "runs", "waits", "wants"
        self.interrupted: set[Run] = set()
        self.commands: list[DispatchCommand] = []
        self.taken: list[Run] = []
        self.settled: set[Run] = set()
        self.wrong: set[str] = set()
        self.wake_at: int | None = None
        self.life: laws.Life = None
        self.sent_at = 0  # the beat under way
        self.number = 0  # of invocations
        self.found: tuple[Stray, ...] = ()  # in its name, by the last beat of this life
        self.is_known = True  # whether the look under way then has ended
        self.hidden: list[tuple[int, Run]] = []  # what looks have taken that failed, and under which life
        self.begun: dict[int, tuple[Run, ...]] = {}  # what the look under way has taken and not told, by its life
        self.is_troubled = random.random() < 0.4
        self.rules = attrs.evolve(CROWDED, slots=random.randint(1, 2))
        self.tell(DispatchTimerFired(at(0)))
        for number in range(steps):
            self.go_on(ends=number > steps // 2)
        self.finish()

    def tell(self, event: DispatchEvent) -> None:
        before = self.state
        match event:
            case Beaten(_, Beat(life), True) if life == before.life:
                self.life = life, at(self.sent_at) + self.rules.dead_after
            case Beaten(_, Beat(life), False) if life == before.life:
                self.life = None
            case _:
                pass
        match event:
            case Beaten(_, Beat(life), is_alive, heeded) if life == before.life and is_alive is not None:
                self.found, self.is_known = heeded.strays if is_alive else (), before.looking is None
            case RunsTaken(_, command) if command == before.looking:
                self.is_known = True
            case _:
                pass
        self.state, commands = attrs.astuple(self.stepping(self.rules, before, event), recurse=False)
        self.commands.extend(commands)
        for each in commands:
            match each:
                case StartDispatchTimer(duration):
                    self.wake_at = self.now + duration
                case Handle(runs):
                    self.handlers |= dict.fromkeys(runs, "told")
                case Resume(runs):
                    self.handlers |= {run: "runs" for run in runs if self.handlers.get(run) == "wants"}
                case Interrupt(runs):
                    self.interrupted |= {*runs} & self.handlers.keys()
                case _:
                    self.sent_at = self.now if isinstance(each, Beat) else self.sent_at
                    self.asked.append(each)
        now = event.at
        self.judge(laws.who_is_active_has_a_slot(self.rules, self.state), "DI1")
        self.judge(laws.an_end_is_written_at_last(self.taken, self.commands, self.settled, is_over=False), "DI2")
        self.judge(laws.nothing_is_taken_by_the_silent(self.life, commands, now), "DI3")
        self.judge(laws.a_life_that_is_over_interrupts(self.life, self.state, now), "DI4")
        self.judge(laws.one_of_each_is_under_way(before, event, commands), "DI5")
        self.judge(laws.what_is_asked_is_obeyed(self.state, now), "DI6")
        self.judge(before.is_stopped or laws.nothing_is_taken_to_stop(self.rules, self.state, commands, now), "DI7")
        self.judge(laws.one_who_waits_is_woken(self.state), "DI8")
        self.judge(laws.what_is_announced_is_looked_for(self.state, event, commands), "DI9")
        self.judge(laws.who_wants_a_slot_comes_first(self.rules, self.state, commands), "DI10")
        if self.state.life != before.life:
            self.found = ()
        told = {run.key for run in (*self.taken, *(run for runs in self.begun.values() for run in runs))}
        for each in commands:
            if isinstance(each, Beat):
                self.judge(laws.strays_are_given_back(each, self.found, told, is_known=self.is_known), "DI11")
        self.judge(laws.what_is_ahead_waits_not_for_long(self.state, now), "DI12")
        waiting = {run for run, how in self.handlers.items() if how == "waits"}
        self.judge(laws.who_waits_has_no_slot(self.state, waiting), "DI13")
        self.judge(laws.a_killer_is_not_called(self.rules, self.state, commands), "DI14")

    def judge(self, holds: bool, law: str) -> None:
        if not holds:
            self.wrong.add(law)

    def go_on(self, *, ends: bool) -> None:
        draw = self.random.random()
        if draw < 0.74:
            self.call_some()
        if draw < 0.4 and self.asked:
            self.answer(self.asked.pop(self.random.randrange(len(self.asked))))
        elif draw < 0.5 and self.handlers:
            self.end_some()
        elif draw < 0.65 and self.handlers:
            self.wait_or_go_on()
        elif draw < 0.7:
            due = at(self.now + self.random.choice([0, 1, 50, 900, 2_500]) * MILLISECOND)
            self.tell(Announced(at(self.now), self.random.choice([None, due])))
        elif draw < 0.72:
            self.tell(HeldChanged(at(self.now), self.random.choice([Held(), Held(tasks=frozenset({"bill"}))])))
        elif draw < 0.74 and ends:
            self.tell(DispatchStopRequested(at(self.now)))
        else:
            self.pass_time()

    def pass_time(self) -> None:
        """The timer fires, more or less late."""
        if self.wake_at is None:
            self.now += 10 * MILLISECOND
            return
        late = self.random.choice([0, 0, 0, 50 * MILLISECOND, SECOND])
        self.now, self.wake_at = max(self.now, self.wake_at) + late, None
        self.call_some()
        self.tell(DispatchTimerFired(at(self.now)))

    def call_some(self) -> None:
        """What was told is called; what may not be has come to nothing."""
        late: list[tuple[Run, End | None]] = []
        for run, how in [*self.handlers.items()]:
            if how == "told" and run not in self.interrupted:
                may_call = self.state.may_call(at(self.now))
                self.judge(laws.who_may_be_dead_calls_nobody(self.life, at(self.now), may_call=may_call), "DI15")
                self.handlers[run] = "runs"
                if not may_call:
                    del self.handlers[run]
                    late.append((run, None))
        if late:
            self.tell(HandlersEnded(at(self.now), tuple(late)))

    def wait_or_go_on(self) -> None:
        """A handler waits, or waits no more; who wants its slot again may have another task that begins to wait."""
        called = [run for run, how in self.handlers.items() if how != "told"]
        if not called:
            return
        run = self.random.choice(called)
        if self.handlers[run] == "waits":
            self.handlers[run] = "wants"
            self.tell(RunGoesOn(at(self.now), run))
        elif self.handlers[run] == "runs" or self.random.random() < 0.5:
            self.handlers[run] = "waits"
            self.tell(RunWaits(at(self.now), run))

    def end_some(self) -> None:
        able = [
            run for run, how in self.handlers.items() if how == "runs" or (how == "told" and run in self.interrupted)
        ]
        some = self.random.sample(able, self.random.randint(0, len(able)))
        ended = []
        for run in some:
            del self.handlers[run]
            answers: list[End | None] = [Succeeded(1), Failed(RunError("E"), POLICY)]
            ended.append((run, self.random.choice([None, *answers] if run in self.interrupted else answers)))
        self.tell(HandlersEnded(at(self.now), tuple(ended)))

    def answer(self, command: DispatchCommand) -> None:
        now, is_hard = at(self.now), self.is_troubled and self.random.random() < 0.4
        match command:
            case Take(life, most):
                runs = self.begun.pop(life, None) or self.some(most)
                if is_hard:
                    self.hidden += [(life, run) for run in runs]
                    runs = ()
                self.taken.extend(runs)
                due_in = self.random.choice([None, 0, 300 * MILLISECOND])
                self.tell(RunsTaken(now, command, RunsFound(runs, self.random.random() < 0.2, due_in)))
            case WriteEnds(ends) if is_hard and self.random.random() < 0.5:
                self.settled |= {each.run for each in ends} if len(ends) == 1 and ends[0].is_last else set()
                self.tell(EndsRefused(now, command))
            case WriteEnds(ends):
                left = tuple(each for each in ends if is_hard and self.random.random() < 0.5)
                self.settled |= {each.run for each in ends if each not in left}
                self.tell(EndsWritten(now, command, left, is_more=self.random.random() < 0.2))
            case Beat(_, runs):
                asked = tuple(
                    (run, self.random.choice([InterruptReason.CANCEL, InterruptReason.LOST]))
                    for run in runs
                    if self.random.random() < 0.1
                )
                is_alive = self.random.choice([None, False]) if is_hard else True
                strays = self.strays(command) if is_alive else ()
                if is_alive and command.life == self.state.life:
                    self.settled |= {run for run, why in asked if why is InterruptReason.LOST}
                self.tell(Beaten(now, command, is_alive, Heeded(asked if is_alive else (), strays)))
            case Leave():
                self.tell(Left(now))
            case _:
                raise AssertionError(command)

    def some(self, most: int) -> tuple[Run, ...]:
        """What a look takes."""
        limits = [None, None, 500 * MILLISECOND]
        runs = tuple(
            run_of(self.number + each, self.random.choice(limits), self.random.choice([0, 0, 1, 2, 3]))
            for each in range(self.random.randint(0, most))
        )
        self.number += len(runs)
        return runs

    def strays(self, beat: Beat) -> tuple[Stray, ...]:
        """What is in its name and does not run: what it gives back no more, if that was done."""
        gone = {each.key for each in beat.strays if self.random.random() < 0.8}
        self.hidden = [(life, run) for life, run in self.hidden if run.key not in gone]
        for each in self.asked:
            if isinstance(each, Take) and each.life == beat.life and each.life not in self.begun:
                self.begun[each.life] = self.some(each.most)
        found = [run for life, run in self.hidden if life == beat.life]
        found += self.begun.get(beat.life, ())
        found += [each.run for each in self.state.ended if each.life == beat.life]
        found += [run for run in self.taken[-3:] if run not in beat.runs and run not in self.settled]
        keys = dict.fromkeys(run.key for run in found)
        return tuple(Stray(key, StatusRecord("running", "me", 2), 1) for key in keys)

    def finish(self) -> None:
        """It is asked to stop, and everything answers; or nothing does."""
        answers = self.random.random() < 0.8
        self.tell(DispatchStopRequested(at(self.now)))
        for _ in range(1_000):
            if self.state.is_stopped:
                break
            if not answers:
                self.pass_time()
            elif self.asked:
                self.answer(self.asked.pop())
            elif self.handlers and self.handlers.keys() <= self.interrupted:
                self.wait_or_go_on() if "waits" in self.handlers.values() else self.end_some()
            else:
                self.pass_time()
        self.judge(self.state.is_stopped, "DI7")
        is_over = self.state.is_idle
        self.judge(laws.an_end_is_written_at_last(self.taken, self.commands, self.settled, is_over=is_over), "DI2")


LARGE: Final = (HealthCheck.large_base_example, HealthCheck.too_slow)
RANDOMS: Final = st.randoms(use_true_random=False)


@settings(suppress_health_check=LARGE)
@given(RANDOMS)
def test_the_laws_hold_over_random_courses(random: Random) -> None:
    """Laws DI1 to DI15."""
    assert Course(random).wrong == set()


# --- planted bugs -----------------------------------------------------------------------------------------------------


def calls_all(rules: DispatchRules, state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> Any:
    """Calls what was taken ahead at once."""
    return RIGHT["_calling"](attrs.evolve(rules, slots=10**6), state, at, commands)


def resumes_all(rules: DispatchRules, state: DispatchState, commands: list[DispatchCommand]) -> Any:
    """Lets everybody go on who wants to."""
    return RIGHT["_resuming"](attrs.evolve(rules, slots=10**6), state, commands)


def resumes_nobody(rules: DispatchRules, state: DispatchState, commands: list[DispatchCommand]) -> Any:
    del rules, commands
    return state


def forgets_who_waits(state: DispatchState, run: Run, before: frozenset[Slot], after: Slot) -> Any:
    """A run that waits keeps its slot, and one that goes on takes another."""
    moved = RIGHT["_moved"](state, run, before, after)
    return moved if after is Slot.AWAY else RIGHT["_moved"](moved, run, frozenset({Slot.WANTS}), Slot.HAS)


def holds_who_is_interrupted(
    rules: DispatchRules, state: DispatchState, commands: list[DispatchCommand]
) -> DispatchState:
    """Who was interrupted waits for a slot as others do."""
    whole: DispatchState = attrs.evolve(state, active=tuple(attrs.evolve(each, why=None) for each in state.active))
    slots = {each.run: each.slot for each in RIGHT["_resuming"](rules, whole, commands).active}
    return attrs.evolve(state, active=tuple(attrs.evolve(each, slot=slots[each.run]) for each in state.active))


def holds_who_waits_again(state: DispatchState, run: Run, before: frozenset[Slot], after: Slot) -> Any:
    """Of who wants its slot again it is not heard that it waits."""
    return RIGHT["_moved"](state, run, before - {Slot.WANTS}, after)


def drops_what_nobody_confirmed(rules: DispatchRules, state: DispatchState, event: EndsWritten) -> Any:
    return RIGHT["_written"](rules, state, attrs.evolve(event, left=()))


def drops_what_is_refused(state: DispatchState, event: EndsRefused) -> Any:
    return attrs.evolve(RIGHT["_refused"](state, event), ended=state.ended)


def drops_what_it_cannot_handle(rules: DispatchRules, state: DispatchState, event: RunsTaken) -> Any:
    """What is taken when it is to stop is left as it is."""
    after = RIGHT["_taken"](rules, state, event)
    return attrs.evolve(after, ended=state.ended) if state.stop_at else after


def handles_what_another_life_took(rules: DispatchRules, state: DispatchState, event: RunsTaken) -> Any:
    command = attrs.evolve(event.command, life=state.life)
    if state.looking != event.command:
        return state
    return RIGHT["_taken"](rules, attrs.evolve(state, looking=command), attrs.evolve(event, command=command))


def calls_what_kills(rules: DispatchRules, state: DispatchState, event: RunsTaken) -> Any:
    """Nobody looks at how many have died."""
    return RIGHT["_taken"](attrs.evolve(rules, deaths_max=1_000), state, event)


def calls_what_it_was_told(state: DispatchState, now: Instant) -> bool:
    """As long as no event has told it that its life is over."""
    del now
    return state.alive_until is not None


def looks_before_it_is_known(rules: DispatchRules, state: DispatchState) -> Any:
    """Takes before anybody has confirmed that it is a member."""
    return state.looking is None and room_of(rules, state) > 0


def looks_twice(rules: DispatchRules, state: DispatchState) -> Any:
    return RIGHT["_may_look"](rules, attrs.evolve(state, looking=None))


def beats_twice(state: DispatchState) -> Any:
    return RIGHT["_may_beat"](attrs.evolve(state, beating=None))


def never_silent(rules: DispatchRules, state: DispatchState, event: Beaten) -> Any:
    """Who was confirmed once is alive for ever."""
    return RIGHT["_beaten"](attrs.evolve(rules, dead_after=10**12), state, event)


def forgets(reason: InterruptReason) -> Callable[[DispatchState, Active, Instant], InterruptReason | None]:
    def found(state: DispatchState, each: Active, now: Instant) -> InterruptReason | None:
        why: InterruptReason | None = RIGHT["_reason"](state, each, now)
        return None if why is reason else why

    return found


def takes_to_the_end(rules: DispatchRules, state: DispatchState, now: Instant) -> DispatchStep:
    """Looks on though it is to stop."""
    commands: list[DispatchCommand] = []
    found: DispatchStep = RIGHT["_onward"](rules, state, now)
    after = RIGHT["_looking"](rules, found.state, now, commands) if state.stop_at else found.state
    return attrs.evolve(found, state=after, commands=(*found.commands, *commands))


def waits_for_what_never_comes(rules: DispatchRules, state: DispatchState, now: Instant) -> DispatchStep:
    found: DispatchStep = RIGHT["_onward"](attrs.evolve(rules, leave=10**15), state, now)
    return found


def never_wakes(rules: DispatchRules, state: DispatchState, now: Instant) -> None:
    del rules, state, now


def waits_its_turn(rules: DispatchRules, state: DispatchState, now: Instant) -> Any:
    """What is announced is looked for when it is due."""
    del rules, now
    return state


def wakes_others_alone(rules: DispatchRules, state: DispatchState, event: EndsWritten) -> Any:
    """Who is due by its own end is left to its next look, or to others."""
    return RIGHT["_written"](rules, state, attrs.evolve(event, is_more=False))


def calls_twice(rules: DispatchRules, state: DispatchState, now: Instant, commands: list[DispatchCommand]) -> Any:
    after: DispatchState = RIGHT["_calling"](rules, state, now, commands)
    return attrs.evolve(
        after, active=tuple(attrs.evolve(each, since=None) for each in after.active[:1]) + after.active[1:]
    )


def forgets_strays(state: DispatchState) -> Any:
    return attrs.evolve(state, doubted=(), strays=())


def strays_at_sight(state: DispatchState) -> Any:
    """What the look under way may tell of is given back."""
    return attrs.evolve(RIGHT["_strayed"](attrs.evolve(state, looking=None)), looking=state.looking)


def whatever_is_in_its_name(state: DispatchState) -> Any:
    """What has ended, and is not written down yet, is given back."""
    found: DispatchState = RIGHT["_strayed"](attrs.evolve(state, ended=(), ending=None))
    return attrs.evolve(found, ended=state.ended, ending=state.ending)


RIGHT: Final[dict[str, Any]] = dict(vars(dispatch))
room_of: Final = RIGHT["_room"]

PLANTED: Final[dict[str, tuple[str, str, Any]]] = {
    "all are called": ("DI1", "_calling", calls_all),
    "all go on who want to": ("DI1", "_resuming", resumes_all),
    "a slot is given away twice": ("DI1", "_moved", forgets_who_waits),
    "what nobody confirmed is forgotten": ("DI2", "_written", drops_what_nobody_confirmed),
    "what is refused is forgotten": ("DI2", "_refused", drops_what_is_refused),
    "what is taken at the end is dropped": ("DI2", "_taken", drops_what_it_cannot_handle),
    "handlers are called twice": ("DI2", "_calling", calls_twice),
    "it takes before it is a member": ("DI3", "_may_look", looks_before_it_is_known),
    "its silence is not noticed": ("DI3", "_beaten", never_silent),
    "what runs goes on after its life": ("DI4", "_reason", forgets(InterruptReason.SILENT)),
    "two looks at a time": ("DI5", "_may_look", looks_twice),
    "two beats at a time": ("DI5", "_may_beat", beats_twice),
    "a handler takes as long as it likes": ("DI6", "_reason", forgets(InterruptReason.TOO_LONG)),
    "what is asked is not heard": ("DI6", "_reason", forgets(InterruptReason.CANCEL)),
    "who is to stop takes more": ("DI7", "_onward", takes_to_the_end),
    "who is to stop waits for ever": ("DI7", "_reason", forgets(InterruptReason.STOPPING)),
    "who is to stop waits for what never comes": ("DI7", "_onward", waits_for_what_never_comes),
    "no timer": ("DI8", "_next", never_wakes),
    "what is announced waits": ("DI9", "_announced", waits_its_turn),
    "whom an end woke waits": ("DI9", "_written", wakes_others_alone),
    "who wants a slot gets none": ("DI10", "_resuming", resumes_nobody),
    "what is in its name is forgotten": ("DI11", "_strayed", forgets_strays),
    "what a look may tell of is given back": ("DI11", "_strayed", strays_at_sight),
    "what has ended is given back": ("DI11", "_strayed", whatever_is_in_its_name),
    "what is taken ahead waits for ever": ("DI12", "_reason", forgets(InterruptReason.LATE)),
    "who was interrupted waits for a slot": ("DI13", "_resuming", holds_who_is_interrupted),
    "who waits again is not heard": ("DI13", "_moved", holds_who_waits_again),
    "what has killed many is called again": ("DI14", "_taken", calls_what_kills),
    "what has killed many is given back": ("DI14", "_died", lambda _: GivenBack()),
    "who stood still calls what it was told": ("DI15", "DispatchState.may_call", calls_what_it_was_told),
    "nobody is called": ("DI15", "DispatchState.may_call", lambda _, at: not at),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_its_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, function, wrong = PLANTED[name]
    monkeypatch.setattr(f"{dispatch.__name__}.{function}", wrong)

    assert any(law in Course(Random(seed)).wrong for seed in range(NOTICED))


# --- one after the other ----------------------------------------------------------------------------------------------


def alive(*more: DispatchEvent) -> DispatchStep:
    """A dispatch that is a member, and what follows after these events."""
    told = RULES.step(DispatchState(), DispatchTimerFired(at(0)))
    for event in (Beaten(at(0), Beat(1, ()), True), *more):
        told = RULES.step(told.state, event)
    return told


def test_runs_are_taken_handled_and_ended() -> None:
    first = RULES.step(DispatchState(), DispatchTimerFired(at(0)))
    assert first.commands[0] == Beat(1, ())
    assert not any(isinstance(each, Take) for each in first.commands)
    told = RULES.step(first.state, Beaten(at(5), Beat(1, ()), True))
    assert Take(1, 3) in told.commands
    runs = (run_of(1), run_of(2))
    told = RULES.step(told.state, RunsTaken(at(6), Take(1, 3), RunsFound(runs)))
    assert Handle(runs) in told.commands
    told = RULES.step(told.state, HandlersEnded(at(9), ((runs[0], Succeeded(7)),)))
    one = WriteEnds((Outcome(runs[0], 1, Succeeded(7)),))
    assert one in told.commands
    told = RULES.step(told.state, HandlersEnded(at(9), ((runs[1], Failed(RunError("E"), POLICY)),)))
    assert not any(isinstance(each, WriteEnds) for each in told.commands)  # one at a time
    told = RULES.step(told.state, EndsWritten(at(10), one))
    assert WriteEnds((Outcome(runs[1], 1, Failed(RunError("E"), POLICY)),)) in told.commands


LATE: Final = Failed(
    RunError("TimeoutError", "it took longer than 2 s", above=("OSError", "Exception", "BaseException")), POLICY
)


@pytest.mark.parametrize(
    ("why", "answer", "end"),
    [
        (InterruptReason.CANCEL, None, Cancelled()),
        (InterruptReason.CANCEL, Failed(RunError("E")), Cancelled()),
        (InterruptReason.CANCEL, Succeeded(3), Succeeded(3)),
        (InterruptReason.KILL, None, GivenBack()),
        (InterruptReason.LOST, Succeeded(3), None),
        (InterruptReason.TOO_LONG, None, LATE),
        (InterruptReason.TOO_LONG, Succeeded(3), LATE),
        (InterruptReason.STOPPING, None, GivenBack()),
    ],
)
def test_what_an_interrupted_handler_comes_to(why: InterruptReason, answer: End | None, end: End | None) -> None:
    run = run_of(1, 2 * SECOND)
    told = alive(RunsTaken(at(0), Take(1, 3), RunsFound((run,))))
    if why is InterruptReason.TOO_LONG:
        told = RULES.step(told.state, DispatchTimerFired(at(2 * SECOND)))
    elif why is InterruptReason.STOPPING:
        told = RULES.step(told.state, DispatchStopRequested(at(1)))
        told = RULES.step(told.state, DispatchStopRequested(at(2)))
    else:
        told = RULES.step(told.state, DispatchTimerFired(at(SECOND)))
        told = RULES.step(told.state, Beaten(at(SECOND), Beat(1, (run,)), True, Heeded(((run, why),))))
    assert Interrupt((run,), why) in told.commands
    told = RULES.step(told.state, HandlersEnded(at(2 * SECOND), ((run, answer),)))
    ends = [each for each in told.commands if isinstance(each, WriteEnds)]
    assert ends == ([] if end is None else [WriteEnds((Outcome(run, 1, end),))])


def test_whose_owners_died_too_often_has_failed_and_is_not_called() -> None:
    """Whatever its policy says of failures: it was tried again after each death, and the others are called."""
    often, less = run_of(1, deaths=RULES.deaths_max), run_of(2, deaths=RULES.deaths_max - 1)
    told = alive(RunsTaken(at(0), Take(1, 3), RunsFound((often, less))))
    said = "5 times whoever ran it died, or was silent for so long that it was taken for dead"
    failed = Failed(RunError("ProcessDied", said, above=("Exception", "BaseException")))
    assert Handle((less,)) in told.commands
    assert WriteEnds((Outcome(often, 1, failed),)) in told.commands


def test_where_handlers_are_short_more_is_taken_than_there_are_slots() -> None:
    """As many as would end within `AHEAD`; they are called when others end, and given back where that takes too long."""
    rules = attrs.evolve(RULES, batch=50)
    runs = tuple(map(run_of, range(28)))
    ends = [tuple((run, Succeeded()) for run in runs[first : first + 4]) for first in range(0, 28, 4)]
    told = alive()
    looks: list[int] = []

    def tell(event: DispatchEvent) -> None:
        nonlocal told
        told = rules.step(told.state, event)
        looks.extend(each.most for each in told.commands if isinstance(each, Take))

    tell(RunsTaken(at(10 * MILLISECOND), Take(1, 3), RunsFound(runs[:4], is_more=True)))
    tell(HandlersEnded(at(20 * MILLISECOND), ends[0]))  # four in 20 ms: 20 in 100 ms
    assert looks == [4 + 20]
    tell(RunsTaken(at(30 * MILLISECOND), Take(1, 24), RunsFound(runs[4:], is_more=True)))
    assert Handle(runs[4:8]) in told.commands
    tell(HandlersEnded(at(31 * MILLISECOND), ends[1]))
    assert Handle(runs[8:12]) in told.commands
    tell(HandlersEnded(at(32 * MILLISECOND), ends[2]))
    assert looks == [24]  # as long as half of them wait
    tell(HandlersEnded(at(33 * MILLISECOND), ends[3]))
    assert looks == [24, 50 - 8]
    tell(DispatchTimerFired(at(1_030 * MILLISECOND)))
    assert [each.run for each in told.state.active] == [*runs[16:20]]
    assert [each for each in told.state.ended if isinstance(each.end, GivenBack)] == [
        Outcome(run, 1, GivenBack()) for run in runs[20:]
    ]


def test_who_was_silent_gives_back_what_runs_and_begins_another_life() -> None:
    run = run_of(1)
    told = alive(RunsTaken(at(0), Take(1, 3), RunsFound((run,))))
    told = RULES.step(told.state, DispatchTimerFired(at(3 * SECOND)))
    assert Interrupt((run,), InterruptReason.SILENT) in told.commands
    assert Beat(2, ()) in told.commands
    told = RULES.step(told.state, HandlersEnded(at(3 * SECOND), ((run, None),)))
    assert WriteEnds((Outcome(run, 1, GivenBack()),)) in told.commands
    assert told.state.alive_until is None


def test_silence_counts_from_before_a_beat_was_sent() -> None:
    told = RULES.step(DispatchState(), DispatchTimerFired(at(0)))
    told = RULES.step(told.state, Beaten(at(2 * SECOND), Beat(1, ()), is_alive=True))
    assert told.state.alive_until == at(3 * SECOND)


def test_a_life_that_others_ended_is_over_at_once() -> None:
    told = RULES.step(alive().state, DispatchTimerFired(at(SECOND)))
    told = RULES.step(told.state, Beaten(at(SECOND), Beat(1, ()), is_alive=False))
    assert Beat(2, ()) in told.commands


def test_who_was_interrupted_and_is_lost_is_not_heard() -> None:
    run = run_of(1)
    told = alive(RunsTaken(at(0), Take(1, 3), RunsFound((run,))), DispatchTimerFired(at(SECOND)))
    told = RULES.step(told.state, Beaten(at(SECOND), Beat(1, (run,)), True, Heeded(((run, InterruptReason.CANCEL),))))
    told = RULES.step(told.state, DispatchTimerFired(at(2 * SECOND)))
    told = RULES.step(told.state, Beaten(at(2 * SECOND), Beat(1, (run,)), True, Heeded(((run, InterruptReason.LOST),))))
    told = RULES.step(told.state, HandlersEnded(at(2 * SECOND), ((run, Succeeded(1)),)))
    assert not any(isinstance(each, WriteEnds) for each in told.commands)


def test_of_two_ends_of_an_invocation_one_is_written_at_a_time() -> None:
    """It was given back, nobody has confirmed it, and this process has taken it again."""
    first, again = run_of(1), attrs.evolve(run_of(1), version=4)
    ended = tuple(Outcome(each, 1, GivenBack()) for each in (first, again))
    told = RULES.step(attrs.evolve(alive().state, ended=ended), DispatchTimerFired(at(1)))
    assert WriteEnds(ended[:1]) in told.commands
    assert told.state.ended == ended[1:]


EVENTS: Final[tuple[tuple[DispatchCommand, object, DispatchEvent | None], ...]] = (
    (Take(7, 3), Ambiguous("x"), RunsTaken(at(1), Take(7, 3), RunsFound(), has_failed=True)),
    (Take(7, 3), RunsFound((run_of(1),)), RunsTaken(at(1), Take(7, 3), RunsFound((run_of(1),)))),
    (WriteEnds(()), Refused("x"), EndsRefused(at(1), WriteEnds(()))),
    (WriteEnds(()), Ambiguous("x"), EndsWritten(at(1), WriteEnds(()))),
    (WriteEnds(()), EndsOutcome(is_more=True), EndsWritten(at(1), WriteEnds(()), is_more=True)),
    (Beat(1, ()), Ambiguous("x"), Beaten(at(1), Beat(1, ()), None)),
    (Beat(1, ()), None, Beaten(at(1), Beat(1, ()), is_alive=False)),
    (Beat(1, ()), Heeded(), Beaten(at(1), Beat(1, ()), is_alive=True)),
    (Handle(()), (), HandlersEnded(at(1), ())),
    (Leave(1), None, Left(at(1))),
    (StartDispatchTimer(1), None, DispatchTimerFired(at(1))),
    (Interrupt((), InterruptReason.KILL), None, None),
    (Resume(()), None, None),
)


@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_what_became_of_a_command_is_an_event(number: int) -> None:
    command, reply, event = EVENTS[number]
    assert dispatch_event_for(command, reply, at(1)) == event
    assert str(command)
    if event is not None:
        assert str(RULES.step(DispatchState(), event).state)


@pytest.mark.parametrize(
    "event", [event for _, _, event in EVENTS if event is not None], ids=lambda each: type(each).__name__
)
def test_what_is_late_changes_nothing(event: DispatchEvent) -> None:
    """An answer to what was never asked, and whatever comes after the end."""
    stopped = attrs.evolve(DispatchState(), is_stopped=True)
    assert RULES.step(stopped, event) == DispatchStep(stopped)
    before = alive().state
    after = RULES.step(before, event).state
    assert (after.active, after.ended, after.looking) == (before.active, before.ended, before.looking)


@pytest.mark.parametrize("moves", [RunWaits, RunGoesOn])
def test_who_does_not_run_here_neither_waits_nor_goes_on(moves: type[RunWaits | RunGoesOn]) -> None:
    before = alive().state
    assert RULES.step(before, moves(at(0), run_of(9))).state == before


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: DispatchRules(slots=0),
        lambda: DispatchRules(beat_every=SECOND, dead_after=SECOND),
        lambda: Run("", 1, "t"),
        lambda: Run("a", 1, "t", 0),
        lambda: Run("a", 1, "t", tries=0),
        partial(RULES.step, DispatchState(), "x"),  # type: ignore[arg-type]
        partial(dispatch_event_for, DispatchState(), None, at(1)),  # type: ignore[arg-type]
        partial(RULES.step, DispatchState(), HandlersEnded(at(1), ((run_of(1), 7),))),  # type: ignore[arg-type]
        partial(
            RULES.step,
            DispatchState(),
            Beaten(at(1), Beat(1, ()), True, Heeded(((run_of(1), InterruptReason.TOO_LONG),))),
        ),
    ],
)
def test_what_is_wrong_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
