"""The pool of a process, over random courses: looks, handlers, renewals and ends come to what they may, in any order, at any time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from random import Random  # noqa: TID251  seeded
from typing import Any, Final, TypeAlias, final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.length import NOTICED

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, ClockName, Instant
from tidegate.reactive import pool
from tidegate.reactive.completion import HandlerAnswer, Later
from tidegate.reactive.fetching import Idle, Run, SetAside
from tidegate.reactive.laws import pool as laws
from tidegate.reactive.pool import (
    Announced,
    DuesSeen,
    End,
    EndsWritten,
    GiveBack,
    GivenBack,
    Glance,
    Granted,
    Handle,
    HandlersEnded,
    Interrupt,
    InterruptReason,
    PoolCommand,
    PooledTask,
    PoolEvent,
    PoolRules,
    PoolState,
    PoolStep,
    PoolStopRequested,
    PoolTimerFired,
    Renew,
    RoomAsked,
    RunsRenewed,
    RunsTaken,
    StartPoolTimer,
    Take,
    TasksPaused,
    TaskThrottled,
    pool_event_for,
)
from tidegate.reactive.task_records import TaskRecord, TaskStatus
from tidegate.reactive.tasks import Claim, Why, WhyNot
from tidegate.retries.polling import PollingBounds

CLOCK: Final = ClockName("loop")
LEASE: Final = 3 * SECOND
POLLING: Final = PollingBounds(least=100 * MILLISECOND, most=SECOND, jitter=0)
RULES: Final = PoolRules(
    tasks=(
        PooledTask(name="bill", lease=LEASE, polling=POLLING, longest=2 * SECOND),
        PooledTask(name="ship", lease=LEASE, polling=POLLING),
    ),
    executors=4,
    batch=3,
    drain=SECOND,
    leave=SECOND,
)
TOGETHER: Final = attrs.evolve(RULES, tasks=tuple(attrs.evolve(task, records="here") for task in RULES.tasks))
"""Tasks that are polled by one request."""
Stepping: TypeAlias = Callable[[PoolRules, PoolState, PoolEvent], PoolStep]


def at(us: int) -> Instant:
    return Instant(us, CLOCK)


def run_of(number: int, trouble: str | None = None) -> Run:
    record = TaskRecord(
        id=f"r{number}",
        version=2,
        status=TaskStatus.PROCESSING,
        snapshot=Document(()),
        next_run_at=Instant(1),
        due_at=Instant(0),
        changed_at=Instant(0),
        waiting_since=None,
        created_at=Instant(0),
        attempts=1,
        token=1,
        owner="w",
        claimed_at=Instant(0),
    )
    return Run(number, record, Claim(record.id, "w", 1, record.snapshot, 1, None), trouble)


@final
class Course:
    """A pool, and a world that answers it at random."""

    def __init__(self, random: Random, stepping: Stepping = PoolRules.step, steps: int = 80) -> None:
        self.random = random
        self.stepping = stepping
        self.state, self.now = PoolState(), 0
        self.rules = random.choice([RULES, TOGETHER])
        self.astray: dict[str, Instant] = {}
        """The tasks of which a look did not tell of all, and when that was."""
        self.looked: dict[str, Instant] = {}
        """When what is in its name was last looked through."""
        self.known: set[str] = set()
        """The tasks of which something is known to be due."""
        self.failed: frozenset[str] = frozenset()
        """Those whose last look has failed."""
        self.laters: list[tuple[str, Instant]] = []
        self.asked: list[PoolCommand] = []  # and not answered
        self.rooms: list[RoomAsked] = []
        self.handlers: dict[tuple[str, int], tuple[str, Run, bool]] = {}
        self.told: dict[str, tuple[str, Run]] = {}
        """Whose handlers are to be called, and were not."""
        self.sent: dict[PoolCommand, Instant] = {}
        self.held_until: dict[str, Instant] = {}
        self.commands: list[PoolCommand] = []
        self.taken: list[Run] = []
        self.left: list[Run] = []
        """The runs of which nobody knew whether their ends were written, each as often as that was so."""
        self.unconfirmed: dict[str, EndsWritten] = {}
        """The tasks of which there are some, until they are asked for again."""
        self.wrong: set[str] = set()
        self.wake_at: int | None = None
        self.expected: list[tuple[str, Instant]] = []
        self.is_quiet = random.random() < 0.3  # nothing is found, but what is due later is announced
        self.tell(PoolTimerFired(at(0)))
        for number in range(steps):
            self.go_on(ends=number > steps // 2)
        self.finish()

    def tell(self, event: PoolEvent) -> None:
        before = self.state
        self.hear(event)
        self.state, commands = attrs.astuple(self.stepping(self.rules, before, event), recurse=False)
        self.commands.extend(commands)
        for each in commands:
            match each:
                case StartPoolTimer(duration):
                    self.wake_at = self.now + duration
                case Handle(task, runs):
                    self.handlers |= {(run.claim.id, 1): (task, run, False) for run in runs}
                    self.told |= {run.claim.id: (task, run) for run in runs}
                case Interrupt(task, runs):
                    for run in runs:
                        self.told.pop(run.claim.id, None)
                        if (run.claim.id, 1) in self.handlers:
                            self.handlers[run.claim.id, 1] = (task, run, True)
                case Granted(most=0):
                    pass
                case _:
                    self.asked.append(each)
                    self.sent[each] = event.at
        now = event.at
        self.expect(event, commands)
        self.judge(laws.who_runs_has_an_executor(self.rules, self.state), "PW1")
        self.judge(laws.each_run_is_settled_once(self.taken, self.commands, self.left, is_over=False), "PW2")
        self.judge(laws.a_lost_lease_interrupts(self.rules, self.state, now), "PW3")
        self.judge(laws.one_request_a_task(self.state, commands, now), "PW4")
        self.judge(laws.a_late_handler_has_failed(self.rules, self.state, now), "PW5")
        self.judge(before.is_stopped or laws.nothing_is_taken_to_stop(self.rules, self.state, commands, now), "PW6")
        self.judge(laws.one_who_waits_is_woken(self.rules, self.state), "PW7")
        self.judge(laws.what_is_announced_is_looked_for(self.rules, self.state, event, commands), "PW8")
        self.judge(laws.what_is_expected_is_looked_for(self.rules, self.state, self.expected, now), "PW9")
        self.rooms += [event] if isinstance(event, RoomAsked) else []
        self.judge(laws.a_grant_passes_nothing_by(self.rules, self.state, commands, now), "PW10")
        self.judge(laws.who_asks_is_answered(self.state, self.rooms, self.commands), "PW11")
        self.judge(laws.a_glance_is_of_all(self.rules, self.state, self.due(event), commands, now), "PW12")
        self.judge(laws.a_glance_goes_first(self.rules, self.state, commands, now), "PW13")
        if isinstance(event, RunsTaken) and isinstance(event.command, Take):
            others = self.failed - {event.command.task}
            self.failed = others | {event.command.task} if event.has_failed else others
        self.judge(laws.what_fails_is_not_glanced(self.failed, commands), "PW14")
        self.known -= {each.task for each in commands if isinstance(each, Take)}
        match event:
            case RunsTaken(_, Take(task) | Granted(task), is_unheard=True):
                self.astray[task] = now
            case GivenBack(_, GiveBack(task)):
                self.looked[task] = now
            case _:
                pass
        self.judge(laws.what_is_astray_is_looked_for(self.rules, self.state, self.astray, self.looked, now), "PW15")
        self.judge(laws.gives_back_what_is_in_no_hands(self.state, commands), "PW16")
        self.judge_ends(event, commands)

    def hear(self, event: PoolEvent) -> None:
        """Until when leases are held, and of which ends nobody knew."""
        match event:
            case EndsWritten(left=left):
                self.left += [run for run, _ in left]
            case RunsTaken(_, command, runs):
                self.held_until |= {run.claim.id: self.sent[command] + LEASE for run in runs}
            case RunsRenewed(now, command, verdicts):
                for run, verdict in zip(command.runs, verdicts, strict=True):
                    if verdict is not None:
                        is_lost = isinstance(verdict, WhyNot)
                        self.held_until[run.claim.id] = now if is_lost else self.sent[command] + LEASE
            case _:
                pass

    def call(self) -> None:
        """What is to be called is; what may not be has come to nothing."""
        while self.told:
            key, (task, run) = self.told.popitem()
            may_call = self.state.may_call(run, at(self.now))
            holds = laws.who_has_no_lease_calls_nobody(self.held_until[key], at(self.now), may_call=may_call)
            self.judge(holds, "PW18")
            if not may_call:
                del self.handlers[key, 1]
                self.tell(HandlersEnded(at(self.now), task, ((run, Later(0)),)))

    def judge_ends(self, event: PoolEvent, commands: tuple[PoolCommand, ...]) -> None:
        if isinstance(event, EndsWritten) and event.left:
            self.unconfirmed[event.command.task] = event
        holds = laws.what_nobody_confirms_is_asked_for_again
        self.judge(holds(self.rules, self.state, self.unconfirmed, commands, event.at), "PW17")
        asked = {each.task for each in commands if isinstance(each, End)}
        self.unconfirmed = {task: told for task, told in self.unconfirmed.items() if task not in asked}

    def due(self, event: PoolEvent) -> frozenset[str]:
        """Of which tasks something is known to be due."""
        match event:
            case Announced(_, task, None):
                self.known.add(task)
            case DuesSeen(_, _, dues):
                self.known |= {task for task, after in dues if not after}
            case RunsTaken(_, Take(task), runs, is_more, _, has_failed) if runs or is_more or has_failed:
                self.known.add(task)
            case EndsWritten(_, End(task), is_more=True):
                self.known.add(task)
            case GivenBack(_, GiveBack(task), number) if number:
                self.known.add(task)
            case _:
                pass
        return frozenset(self.known | {task for task, later in self.laters if later - event.at <= 0})

    def expect(self, event: PoolEvent, commands: tuple[PoolCommand, ...]) -> None:
        """What is known to be due later, until it is looked for."""
        match event:
            case Announced(_, task, Instant() as due):
                self.expected.append((task, due))
            case EndsWritten(now, End(task, ended), _, left):
                known = [answer for each in ended if each not in left and isinstance(answer := each[1], Later)]
                self.expected += [(task, now + answer.after) for answer in known]
            case DuesSeen(now, _, dues):
                self.expected += [(task, now + after) for task, after in dues]
            case _:
                pass
        self.laters += [each for each in self.expected if each not in self.laters]
        looked = {each.task for each in commands if isinstance(each, Take)}
        self.expected = [(task, due) for task, due in self.expected if task not in looked or due - event.at > 0]

    def judge(self, holds: bool, law: str) -> None:
        if not holds:
            self.wrong.add(law)

    def go_on(self, *, ends: bool) -> None:
        draw = self.random.choice([0.3, 0.57, 0.99, 0.99]) if self.is_quiet else self.random.random()
        if draw < 0.75:
            self.call()
        if draw < 0.35 and self.asked:
            self.answer(self.asked.pop(self.random.randrange(len(self.asked))))
        elif draw < 0.55 and self.handlers:
            self.end_some()
        elif draw < 0.6:
            later = at(self.now + self.random.choice([0, 1, 50, 900, 2_500]) * MILLISECOND)
            due = later if self.is_quiet else self.random.choice([None, later])
            self.tell(Announced(at(self.now), self.random.choice(["bill", "ship", "unknown"]), due))
        elif draw < 0.7:
            task, most = self.random.choice(["bill", "ship", "unknown"]), self.random.randint(1, 5)
            self.now += self.random.choice([0, 0, 120 * MILLISECOND])  # the timer is late
            self.tell(RoomAsked(at(self.now), task, most, f"pass {len(self.rooms)}"))
        elif draw < 0.71:
            until = at(self.now + self.random.choice([-1, 0, 1, 700]) * MILLISECOND)
            self.tell(TaskThrottled(at(self.now), self.random.choice(["bill", "ship", "unknown"]), until))
        elif draw < 0.73:
            self.tell(
                TasksPaused(at(self.now), frozenset(self.random.sample(["bill", "ship"], self.random.randrange(2))))
            )
        elif draw < 0.75 and ends:
            self.tell(PoolStopRequested(at(self.now)))
        else:
            self.pass_time()

    def pass_time(self) -> None:
        """The timer fires, more or less late."""
        if self.wake_at is None:
            self.now += 10 * MILLISECOND
            return
        late = self.random.choice([0, 0, 0, 50 * MILLISECOND, SECOND])
        self.now, self.wake_at = max(self.now, self.wake_at) + late, None
        self.call()
        self.tell(PoolTimerFired(at(self.now)))

    def end_some(self) -> None:
        keys = self.random.sample([*self.handlers], self.random.randint(1, len(self.handlers)))
        by_task: dict[str, list[tuple[Run, HandlerAnswer]]] = {}
        for key in keys:
            task, run, is_interrupted = self.handlers.pop(key)
            later = Later(self.random.choice([0, 5, 250 * MILLISECOND]))
            answers: list[HandlerAnswer] = [None, "interrupted"] if is_interrupted else [None, "it fails", later]
            by_task.setdefault(task, []).append((run, self.random.choice(answers)))
        for task, ended in by_task.items():
            self.tell(HandlersEnded(at(self.now), task, tuple(ended)))

    def answer(self, command: PoolCommand) -> None:
        match command:
            case Take() if self.random.random() < 0.1:
                self.tell(RunsTaken(at(self.now), command, (), has_failed=True, is_unheard=True))
            case Take(most=most) | Granted(most=most):
                runs = tuple(
                    run_of(len(self.taken) + number, self.random.choice([None, None, None, "cannot be computed"]))
                    for number in range(0 if self.is_quiet else self.random.randint(0, most))
                )
                self.taken.extend(runs)
                is_more, is_unheard = self.random.random() < 0.2, self.random.random() < 0.1
                self.tell(RunsTaken(at(self.now), command, runs, is_more and not self.is_quiet, is_unheard=is_unheard))
            case Glance(_, tasks, within):
                some = self.random.sample(tasks, self.random.randint(0, len(tasks)))
                self.tell(
                    DuesSeen(
                        at(self.now), command, tuple((name, self.random.choice([0, within // 2])) for name in some)
                    )
                )
            case Renew(_, runs):
                verdicts = [Why.RENEWED, Why.RENEWED, Why.COMPLETING, None, WhyNot.ANOTHER_CLAIM]
                self.tell(RunsRenewed(at(self.now), command, tuple(self.random.choice(verdicts) for _ in runs)))
            case End(_, ended):
                known = self.random.choice([0.0, 0.5, 1.0, 1.0, 1.0])
                left = tuple(each for each in ended if self.random.random() >= known)
                self.tell(EndsWritten(at(self.now), command, self.random.random() < 0.2, left))
            case GiveBack():
                self.tell(GivenBack(at(self.now), command, self.random.choice([0, 0, 1])))
            case _:
                raise AssertionError(command)

    def finish(self) -> None:
        """It is asked to stop, and everything answers; or nothing does."""
        answers = self.random.random() < 0.8
        self.tell(PoolStopRequested(at(self.now)))
        for _ in range(1_000):
            if self.state.is_stopped:
                break
            if not answers:
                self.pass_time()
            elif self.asked:
                self.answer(self.asked.pop())
            elif self.handlers and all(is_interrupted for _, _, is_interrupted in self.handlers.values()):
                self.end_some()
            else:
                self.pass_time()
        self.judge(self.state.is_stopped, "PW6")
        self.judge(
            laws.each_run_is_settled_once(self.taken, self.commands, self.left, is_over=self.state.is_idle), "PW2"
        )


LARGE: Final = (HealthCheck.large_base_example, HealthCheck.too_slow)
RANDOMS: Final = st.randoms(use_true_random=False)


@settings(suppress_health_check=LARGE)
@given(RANDOMS)
def test_the_laws_hold_over_random_courses(random: Random) -> None:
    """Laws PW1 to PW18."""
    assert Course(random).wrong == set()


def room_of_all(rules: PoolRules, state: PoolState) -> int:
    """Forgets the looks under way."""
    return max(rules.executors - len(state.working), 0)


def forgets_the_lease(rules: PoolRules, state: PoolState, each: pool.Working, now: Instant) -> InterruptReason | None:
    return None if (found := RIGHT_REASON(rules, state, each, now)) is InterruptReason.LEASE_LOST else found


def forgets_the_limit(rules: PoolRules, state: PoolState, each: pool.Working, now: Instant) -> InterruptReason | None:
    return None if (found := RIGHT_REASON(rules, state, each, now)) is InterruptReason.TOO_LONG else found


def forgets_the_drain(rules: PoolRules, state: PoolState, each: pool.Working, now: Instant) -> InterruptReason | None:
    return None if (found := RIGHT_REASON(rules, state, each, now)) is InterruptReason.STOPPING else found


def looks_twice(state: PoolState, task: str, now: Instant) -> bool:
    return RIGHT_MAY_LOOK(attrs.evolve(state, looking=()), task, now)


def looks_though_paused(state: PoolState, task: str, now: Instant) -> bool:
    return RIGHT_MAY_LOOK(attrs.evolve(state, paused=frozenset()), task, now)


def looks_though_throttled(state: PoolState, task: str, now: Instant) -> bool:
    return RIGHT_MAY_LOOK(attrs.evolve(state, throttled=()), task, now)


def forgets_later(rules: PoolRules, state: PoolState, name: str, due: Instant) -> PoolState:
    """Finds what is due later when it is its turn."""
    del rules, name, due
    return state


def knows_one_time(rules: PoolRules, state: PoolState, name: str, due: Instant) -> PoolState:
    """Of the times that are known, the first."""
    after: PoolState = RIGHT_EXPECTED(rules, state, name, due)
    return attrs.evolve(after, expected=tuple((of, first, first) for of, first, _ in after.expected))


def waits_for_what_never_comes(rules: PoolRules, state: PoolState, now: Instant) -> PoolStep:
    found: PoolStep = RIGHT_ONWARD(attrs.evolve(rules, leave=10**15), state, now)
    return found


def grants_first(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    """What is due waits for what is planned."""
    after: PoolState = LOOKING(rules, GRANTING(rules, state, now, commands), now, commands)
    return after


def waits_for_each_look(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    """Who asks for room waits for looks that have begun since."""
    after: PoolState = state if state.looking else GRANTING(rules, state, now, commands)
    return after


def polls_alone(state: PoolState, task: PooledTask) -> bool:
    """Each task is looked for when it is due for it."""
    del state, task
    return False


def glances_twice(state: PoolState, task: PooledTask) -> bool:
    """Does not wait for the answer."""
    del state, task
    return False


def glances_last(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    """Glances where looks have left room."""
    looked: PoolState = LOOKING(rules, state, now, [])
    after: PoolState = GLANCING(rules, state, now, commands) if vars(pool)["_room"](rules, looked) else state
    return after


def forgets_what_it_saw(rules: PoolRules, state: PoolState, event: DuesSeen) -> PoolState:
    """Of what was seen, what is due later is found by the next glance."""
    now: PoolState = RIGHT_SEEN(
        rules, state, attrs.evolve(event, dues=tuple(each for each in event.dues if not each[1]))
    )
    return now


def writes_no_ends(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    del rules, now, commands
    return attrs.evolve(state, ended=())


def writes_ends_twice(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    after: PoolState = RIGHT_ENDING(rules, state, now, commands)
    return attrs.evolve(after, ended=state.ended[:1]) if state.ended and not state.ending else after


def calls_what_it_was_told(state: PoolState, run: Run, now: Instant) -> bool:
    """As long as no event has told it that the lease is over."""
    del now
    return any(each.run == run and each.why is None for each in state.working)


def leaves_what_nobody_confirms(rules: PoolRules, state: PoolState, event: EndsWritten) -> PoolState:
    """What was not written waits for the end of its lease."""
    after: PoolState = RIGHT_WRITTEN(rules, state, attrs.evolve(event, left=()))
    return after


def asks_again_at_once(rules: PoolRules, state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    """What is refused is asked for as fast as it is refused."""
    after: PoolState = RIGHT_ENDING(rules, attrs.evolve(state, unconfirmed=()), now, commands)
    return after


def takes_to_the_end(rules: PoolRules, state: PoolState, now: Instant) -> PoolStep:
    """Looks on though it is to stop."""
    commands: list[PoolCommand] = []
    found = RIGHT_ONWARD(rules, state, now)
    after = LOOKING(rules, found.state, now, commands) if state.stop_at and not found.state.is_stopped else found.state
    return attrs.evolve(found, state=after, commands=(*found.commands, *commands))


def never_wakes(rules: PoolRules, state: PoolState, now: Instant) -> None:
    del rules, state, now


def looks_too_late(rules: PoolRules, state: PoolState, now: Instant) -> Instant | None:
    """Looks after handlers a second after there is something to be done."""
    found: Instant | None = RIGHT_NEXT_OF_RUNS(rules, state, now)
    return None if found is None else found + SECOND


def waits_its_turn(rules: PoolRules, state: PoolState, name: str, now: Instant) -> PoolState:
    """What is announced is looked for when it is due."""
    del rules, name, now
    return state


def from_the_answer(rules: PoolRules, state: PoolState, event: RunsTaken) -> PoolState:
    """Renews too late: only when the lease is over."""
    after: PoolState = RIGHT_TAKEN(rules, state, event)
    return attrs.evolve(after, working=tuple(attrs.evolve(each, renew_at=each.held_until) for each in after.working))


def forgets_that_it_failed(rules: PoolRules, state: PoolState, event: RunsTaken) -> PoolState:
    """A look that has failed is taken for one that found nothing."""
    after: PoolState = RIGHT_TAKEN(rules, state, attrs.evolve(event, has_failed=False))
    return after


def drops_what_it_cannot_handle(rules: PoolRules, state: PoolState, event: RunsTaken) -> PoolState:
    """What is taken when it is to stop is left claimed."""
    after: PoolState = RIGHT_TAKEN(rules, state, event)
    return attrs.evolve(after, ended=state.ended) if state.stop_at else after


def leaves_what_is_astray(state: PoolState, task: PooledTask, now: Instant) -> PoolState:
    """What it was not told of waits for the end of its lease."""
    del task, now
    return state


def looks_through_once(rules: PoolRules, state: PoolState, event: GivenBack) -> PoolState:
    """What arrives after that waits."""
    after: PoolState = GIVEN_BACK(rules, state, event)
    return attrs.evolve(after, astray=())


def does_not_wait_for_looks(state: PoolState, now: Instant, commands: list[PoolCommand]) -> PoolState:
    """Gives back what a look under way is about to tell of."""
    after: PoolState = GIVING_BACK(attrs.evolve(state, looking=()), now, commands)
    return attrs.evolve(after, looking=state.looking)


def names_what_is_handled(state: PoolState, task: str) -> tuple[Run, ...]:
    """Gives back what has ended, and was not written yet."""
    return tuple(each.run for each in state.working if each.task == task)


RIGHT_REASON: Final = vars(pool)["_reason"]
RIGHT_ENDING: Final = vars(pool)["_ending"]
RIGHT_WRITTEN: Final = vars(pool)["_written"]
RIGHT_ONWARD: Final = vars(pool)["_onward"]
LOOKING: Final = vars(pool)["_looking"]
GLANCING: Final = vars(pool)["_glancing"]
GRANTING: Final = vars(pool)["_granting"]
RIGHT_TAKEN: Final = vars(pool)["_taken"]
RIGHT_NEXT_OF_RUNS: Final = vars(pool)["_next_of_runs"]
RIGHT_MAY_LOOK: Final[Callable[[PoolState, str, Instant], bool]] = vars(pool)["_may_look"]
RIGHT_EXPECTED: Final = vars(pool)["_expected"]
RIGHT_SEEN: Final = vars(pool)["_seen"]
GIVING_BACK: Final = vars(pool)["_giving_back"]
GIVEN_BACK: Final = vars(pool)["_given_back"]

PLANTED: Final[dict[str, tuple[str, str, Any]]] = {
    "looks under way are not counted": ("PW1", "_room", room_of_all),
    "ends are forgotten": ("PW2", "_ending", writes_no_ends),
    "ends are written twice": ("PW2", "_ending", writes_ends_twice),
    "what is taken at the end is dropped": ("PW2", "_taken", drops_what_it_cannot_handle),
    "a lease that is over is not noticed": ("PW3", "_reason", forgets_the_lease),
    "handlers are looked after too late": ("PW3", "_next_of_runs", looks_too_late),
    "a lease is renewed when it is over": ("PW3", "_taken", from_the_answer),
    "two looks at a time": ("PW4", "_may_look", looks_twice),
    "what is paused is looked at": ("PW4", "_may_look", looks_though_paused),
    "a handler takes as long as it likes": ("PW5", "_reason", forgets_the_limit),
    "who is to stop takes more": ("PW6", "_onward", takes_to_the_end),
    "who is to stop waits for ever": ("PW6", "_reason", forgets_the_drain),
    "no timer": ("PW7", "_next", never_wakes),
    "what is announced waits": ("PW8", "_announced", waits_its_turn),
    "what is throttled is looked at": ("PW4", "_may_look", looks_though_throttled),
    "who is to stop waits for what never comes": ("PW6", "_onward", waits_for_what_never_comes),
    "what is due later is forgotten": ("PW9", "_expected", forgets_later),
    "one of two later times is forgotten": ("PW9", "_expected", knows_one_time),
    "what is planned passes by what is due": ("PW10", "_looking", grants_first),
    "each idle task is polled alone": ("PW12", "_is_glanced", polls_alone),
    "two glances at a time": ("PW4", "_is_under_way", glances_twice),
    "what a glance saw is forgotten": ("PW9", "_seen", forgets_what_it_saw),
    "who has much to do keeps others unpolled": ("PW13", "_glancing", glances_last),
    "what fails is glanced at": ("PW14", "_taken", forgets_that_it_failed),
    "what is astray is left": ("PW15", "_strayed", leaves_what_is_astray),
    "what is astray is looked for once": ("PW15", "_given_back", looks_through_once),
    "what is looked for is given back": ("PW16", "_giving_back", does_not_wait_for_looks),
    "what has ended is given back": ("PW16", "_hands", names_what_is_handled),
    "an end that nobody confirms is left": ("PW2", "_written", leaves_what_nobody_confirms),
    "an end that nobody confirms waits": ("PW17", "_written", leaves_what_nobody_confirms),
    "what nobody confirms is asked for at once": ("PW17", "_ending", asks_again_at_once),
    "who stood still calls what it was told": ("PW18", "PoolState.may_call", calls_what_it_was_told),
    "nobody is called": ("PW18", "PoolState.may_call", lambda *told: not told),
    "who asks for room waits for ever": ("PW11", "_granting", waits_for_each_look),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_its_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, function, wrong = PLANTED[name]
    monkeypatch.setattr(f"{pool.__name__}.{function}", wrong)

    assert any(law in Course(Random(seed)).wrong for seed in range(NOTICED))


def test_runs_are_handled_and_ended() -> None:
    told = RULES.step(PoolState(), PoolTimerFired(at(0)))
    assert told.commands[:2] == (Take("bill", 3), Take("ship", 1))
    runs = (run_of(1), run_of(2, "cannot be computed"))
    told = RULES.step(told.state, RunsTaken(at(5), Take("bill", 3), runs))
    assert told.commands[:2] == (Handle("bill", runs[:1]), End("bill", ((runs[1], "cannot be computed"),)))
    told = RULES.step(told.state, HandlersEnded(at(9), "bill", ((runs[0], Later(7)),)))
    assert not any(isinstance(each, End) for each in told.commands)  # one at a time
    told = RULES.step(told.state, EndsWritten(at(12), End("bill", ((runs[1], "cannot be computed"),))))
    assert End("bill", ((runs[0], Later(7)),)) in told.commands


def test_a_lease_that_waits_for_the_transaction_of_its_handler_is_not_lost() -> None:
    """Law PW19: it is asked for again after a twelfth of the lease, and the handler goes on."""
    rules = PoolRules(tasks=(PooledTask(name="bill", lease=LEASE),))
    renew = Renew("bill", (run_of(1),))
    state = attrs.evolve(working(run_of(1)), renewing=((renew, at(LEASE // 2)),))
    step = rules.step(state, RunsRenewed(at(LEASE), renew, (Why.COMPLETING,)))

    (one,) = step.state.working
    assert (one.why, one.held_until, one.renew_at) == (None, at(LEASE // 2 + LEASE), at(LEASE + LEASE // 12))
    again = rules.step(step.state, PoolTimerFired(one.renew_at))
    assert renew in again.commands
    lost = rules.step(state, RunsRenewed(at(LEASE), renew, (None,)))
    assert any(isinstance(each, Interrupt) for each in lost.commands)


def working(*runs: Run) -> PoolState:
    told = RULES.step(PoolState(), PoolTimerFired(at(0)))
    return RULES.step(told.state, RunsTaken(at(0), Take("bill", 3), runs)).state


@pytest.mark.parametrize(
    ("now", "why", "answer", "end"),
    [
        (2 * SECOND, InterruptReason.TOO_LONG, "interrupted", InterruptReason.TOO_LONG.value),
        (2 * SECOND, InterruptReason.TOO_LONG, None, None),
        (2 * SECOND, InterruptReason.TOO_LONG, Later(9), Later(9)),
        (3 * SECOND, InterruptReason.LEASE_LOST, None, "nobody hears of it"),
    ],
)
def test_what_an_interrupted_handler_comes_to(
    now: int, why: InterruptReason, answer: HandlerAnswer, end: HandlerAnswer
) -> None:
    one = run_of(1)
    told = RULES.step(working(one), PoolTimerFired(at(now)))
    assert Interrupt("bill", (one,), why) in told.commands
    told = RULES.step(told.state, HandlersEnded(at(now + 1), "bill", ((one, answer),)))
    ends = [each for each in told.commands if isinstance(each, End)]
    assert ends == ([] if why is InterruptReason.LEASE_LOST else [End("bill", ((one, end),))])


def test_who_is_to_stop_gives_back_what_still_runs() -> None:
    """It is called again elsewhere, at once, and that is no failure."""
    one = run_of(1)
    told = RULES.step(working(one), PoolStopRequested(at(5)))
    told = RULES.step(told.state, PoolTimerFired(at(5 + RULES.drain)))
    assert Interrupt("bill", (one,), InterruptReason.STOPPING) in told.commands
    told = RULES.step(told.state, HandlersEnded(at(5 + RULES.drain), "bill", ((one, "interrupted"),)))
    assert End("bill", ((one, Later(0)),)) in told.commands


def test_who_is_told_to_stop_once_more_gives_no_more_time() -> None:
    one = run_of(1)
    told = RULES.step(working(one), PoolStopRequested(at(5)))
    told = RULES.step(told.state, PoolStopRequested(at(7)))
    assert Interrupt("bill", (one,), InterruptReason.STOPPING) in told.commands
    told = RULES.step(told.state, PoolStopRequested(at(8)))
    assert told.state.stop_at == at(7)
    assert RULES.step(told.state, PoolTimerFired(at(7 + RULES.leave))).state.is_stopped


def idle() -> PoolState:
    """Both tasks were looked at, and nothing was found."""
    told = RULES.step(PoolState(), PoolTimerFired(at(0)))
    for command in told.commands[:2]:
        assert isinstance(command, Take)
        told = RULES.step(told.state, RunsTaken(at(1), command, ()))
    return told.state


def test_room_is_granted_where_no_look_wants_it() -> None:
    """What was granted is a look under way: its runs are handled, and nobody looks for the task meanwhile."""
    told = RULES.step(idle(), RoomAsked(at(2), "bill", 9, "a pass"))
    assert told.commands == (Granted("bill", "a pass"),)
    assert granted(told) == {"a pass": 3}
    told = RULES.step(told.state, Announced(at(3), "bill"))
    assert granted(told) == {}
    told = RULES.step(told.state, RoomAsked(at(3), "ship", 9, "another"))
    assert granted(told) == {"another": 1}
    told = RULES.step(told.state, RunsTaken(at(4), Granted("bill", "a pass"), (run_of(1),)))
    assert told.commands[:2] == (Handle("bill", (run_of(1),)), Take("bill", 2))


def test_who_asks_for_room_waits_for_the_look_under_way_and_for_no_other() -> None:
    """Law PW11. Without, what was planned for want of room is announced, so that the next pass finds a look under way, for ever."""
    looked = RULES.step(idle(), Announced(at(2), "bill"))
    asked = RULES.step(looked.state, RoomAsked(at(3), "bill", 9, "a pass"))
    assert granted(asked) == {}
    told = RULES.step(asked.state, RunsTaken(at(4), Take("bill", 3), ()))
    assert granted(told) == {"a pass": 3}
    again = RULES.step(asked.state, Announced(at(4), "bill"))
    told = RULES.step(again.state, RunsTaken(at(5), Take("bill", 3), ()))
    assert Take("bill", 3) in told.commands
    assert granted(told) == {"a pass": 0}
    assert granted(RULES.step(asked.state, PoolStopRequested(at(4)))) == {"a pass": 0}
    given_up = RULES.step(asked.state, RunsTaken(at(4), Granted("bill", "a pass"), ()))
    assert granted(RULES.step(given_up.state, RunsTaken(at(5), Take("bill", 3), ()))) == {}


def granted(told: PoolStep) -> dict[str, int]:
    return {each.request: each.most for each in told.commands if isinstance(each, Granted)}


def test_idle_tasks_of_a_collection_are_one_request() -> None:
    """A thousand as well as two; and when the lease of a dead worker ends, its task is looked for."""
    told = TOGETHER.step(PoolState(), PoolTimerFired(at(0)))
    glance = Glance("here", ("bill", "ship"), POLLING.least)
    assert told.commands == (glance,)
    told = TOGETHER.step(told.state, DuesSeen(at(5), glance, (("ship", 40),)))
    assert told.commands == (StartPoolTimer(40),)
    told = TOGETHER.step(told.state, PoolTimerFired(at(45)))
    assert [each for each in told.commands if isinstance(each, Take)] == [Take("ship", 3)]
    assert pool_event_for(glance, Ambiguous("no reply"), at(1)) == DuesSeen(at(1), glance)
    assert pool_event_for(glance, (("bill", 0),), at(1)) == DuesSeen(at(1), glance, (("bill", 0),))
    assert str(glance) == "ask what of 2 tasks of here is due within 100 ms"


def test_one_task_that_has_much_to_do_keeps_no_other_of_its_collection_waiting() -> None:
    """Law PW13. Each executor that gets free is its own at once; and still it is glanced whether something of the other is due."""
    rules, one = attrs.evolve(TOGETHER, executors=1), run_of(1)
    told = rules.step(PoolState(), PoolTimerFired(at(0)))
    told = rules.step(told.state, DuesSeen(at(1), Glance("here", ("bill", "ship"), POLLING.least), (("bill", 0),)))
    assert hash(told.state) == hash(attrs.evolve(told.state)), "what it knows is a value"
    told = rules.step(told.state, RunsTaken(at(2), Take("bill", 1), (one,)))
    told = rules.step(told.state, HandlersEnded(at(SECOND), "bill", ((one, None),)))
    assert Take("bill", 1) in told.commands
    (glance,) = (each for each in told.commands if isinstance(each, Glance))
    assert glance.tasks == ("ship",)


def test_a_look_that_has_failed_is_sent_at_its_pace_whatever_is_glanced() -> None:
    """Law PW14. A glance that is answered while looks fail would else wake the task each time, and each look say that it fails."""
    rules, looks, now = attrs.evolve(TOGETHER, tasks=TOGETHER.tasks[:1]), list[int](), 0
    told = rules.step(PoolState(), PoolTimerFired(at(0)))
    for _ in range(1_000):
        if now > 10 * SECOND:
            break
        for each in told.commands:
            if isinstance(each, GiveBack):
                more = rules.step(told.state, GivenBack(at(now), each))
                told = attrs.evolve(more, commands=(*told.commands, *more.commands))
        asked = next((each for each in told.commands if isinstance(each, (Take, Glance))), None)
        if asked is None:
            assert told.state.wake_at is not None
            now = max(now + 1, told.state.wake_at - at(0))
            told = rules.step(told.state, PoolTimerFired(at(now)))
            continue
        looks += [now] if isinstance(asked, Take) else []
        reply = (("bill", 0),) if isinstance(asked, Glance) else Ambiguous("no reply")
        now += MILLISECOND
        event = pool_event_for(asked, reply, at(now))
        assert event is not None
        told = rules.step(told.state, event)
    gaps = [later - look for look, later in pairwise(looks)]
    assert gaps[:4] == [100 * MILLISECOND, 200 * MILLISECOND, 400 * MILLISECOND, 800 * MILLISECOND]
    assert set(gaps[4:]) == {SECOND}


def test_what_is_due_later_is_looked_for_then() -> None:
    told = RULES.step(idle(), Announced(at(2), "bill", at(30)))
    assert told.commands == (StartPoolTimer(28),)
    assert Take("bill", 3) in RULES.step(told.state, PoolTimerFired(at(30))).commands


def test_what_has_changed_while_it_was_processed_is_looked_for_at_once() -> None:
    end = End("bill", ((run_of(1), None),))
    again = pool_event_for(end, (Why.RUNS_AGAIN,), at(12))
    assert again == EndsWritten(at(12), end, is_more=True)
    assert Take("bill", 3) in RULES.step(idle(), again).commands
    assert pool_event_for(end, (Why.SUCCEEDED,), at(12)) == EndsWritten(at(12), end)
    # Its handler has ended it, or a request whose reply was lost: something may have changed before that.
    assert pool_event_for(end, (WhyNot.ENDED,), at(12)) == EndsWritten(at(12), end, is_more=True)
    assert pool_event_for(end, (WhyNot.ANOTHER_CLAIM,), at(12)) == EndsWritten(at(12), end)


def test_a_step_compares_the_name_of_each_of_many_tasks_a_few_times() -> None:
    """With a thousand of them a process that looks for each would do nothing else, and its leader lose the lease."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    many = 200
    named = (Name(f"task {number}") for number in range(many))
    rules = PoolRules(tasks=tuple(PooledTask(name=name, lease=MINUTE) for name in named), executors=1)
    step = rules.step(PoolState(), PoolTimerFired(at(0)))
    while takes := [each for each in step.commands if isinstance(each, Take)]:  # one after the other has nothing due
        step = rules.step(step.state, RunsTaken(at(0), takes[0], ()))
    assert len(step.state.paces) == many
    compared = 0
    _ = rules.step(step.state, PoolTimerFired(at(1)))
    assert compared < 10 * many


def test_who_has_lost_claims_draws_among_more_at_once_and_comes_back() -> None:
    """Law SP2. There is more that is due, though less was won than was asked for."""
    told = RULES.step(PoolState(), PoolTimerFired(at(0)))
    told = RULES.step(told.state, RunsTaken(at(1), Take("bill", 3), (run_of(1),), lost=2))
    assert Take("bill", 2, 2) in told.commands
    assert str(Take("bill", 2, 2)) == "take up to 2 of bill among 4"
    told = RULES.step(told.state, RunsTaken(at(2), Take("bill", 2, 2), (run_of(2), run_of(3))))
    assert told.state.factors == ()


def test_what_a_look_did_not_tell_of_is_given_back() -> None:
    """At once, and again with each twelfth of the lease until that is over; it is due then, and nobody looks for it in between."""
    told = RULES.step(working(run_of(1)), Announced(at(1), "bill"))
    assert Take("bill", 2) in told.commands
    told = RULES.step(told.state, RunsTaken(at(2), Take("bill", 2), (), has_failed=True, is_unheard=True))
    give_back = GiveBack("bill", (run_of(1),))
    assert told.commands[0] == give_back
    assert str(give_back) == "give back what of bill is in its name, but for 1 runs"
    told = RULES.step(told.state, Announced(at(3), "bill"))
    assert not any(isinstance(each, (Take, GiveBack)) for each in told.commands)
    told = RULES.step(told.state, GivenBack(at(4), give_back, 1))
    assert Take("bill", 2) in told.commands
    told = RULES.step(told.state, RunsTaken(at(5), Take("bill", 2), ()))
    assert give_back in RULES.step(told.state, PoolTimerFired(at(4 + LEASE // 12))).commands
    over = RULES.step(told.state, PoolTimerFired(at(2 + LEASE)))
    assert not any(isinstance(each, GiveBack) for each in over.commands)


def test_an_end_that_nobody_confirms_is_asked_for_again() -> None:
    """Law PW17. A quarter of a second later here, and for half of them: one that is refused for good holds up no other for long."""
    ended = tuple((run_of(number), None) for number in range(3))
    told = RULES.step(working(*(run for run, _ in ended)), HandlersEnded(at(1), "bill", ended))
    end = End("bill", ended)
    assert end in told.commands
    told = RULES.step(told.state, EndsWritten(at(2), end, left=ended[1:]))
    assert not any(isinstance(each, End) for each in told.commands)
    told = RULES.step(told.state, PoolTimerFired(at(2 + LEASE // 12)))
    assert End("bill", ended[1:2]) in told.commands
    told = RULES.step(told.state, EndsWritten(at(3 + LEASE // 12), End("bill", ended[1:2])))
    assert End("bill", ended[2:]) in told.commands


def test_each_answer_has_its_event() -> None:
    take, one = Take("bill", 3), run_of(1)
    assert pool_event_for(take, ((one,), (Idle.NOT_CLAIMED,)), at(1)) == RunsTaken(at(1), take, (one,), lost=1)
    assert pool_event_for(take, ((), (SetAside("r", "torn"),)), at(1)) == RunsTaken(at(1), take, (), is_more=True)
    failed = RunsTaken(at(1), take, (), has_failed=True, is_unheard=True)
    assert pool_event_for(take, Ambiguous("no reply"), at(1)) == failed
    assert pool_event_for(take, ((), (Idle.UNHEARD,)), at(1)) == RunsTaken(at(1), take, (), is_unheard=True)
    # What is held is drawn among more the next time, and a late write of it may yet be done.
    held = RunsTaken(at(1), take, (one,), lost=1, is_unheard=True)
    assert pool_event_for(take, ((one,), (Idle.HELD,)), at(1)) == held
    give_back = GiveBack("bill", (one,))
    assert pool_event_for(give_back, 2, at(1)) == GivenBack(at(1), give_back, 2)
    assert pool_event_for(give_back, Ambiguous("no reply"), at(1)) == GivenBack(at(1), give_back, 0)
    renew = Renew("bill", (one,))
    assert pool_event_for(renew, (Why.RENEWED,), at(1)) == RunsRenewed(at(1), renew, (Why.RENEWED,))
    assert pool_event_for(renew, Ambiguous("no reply"), at(1)) == RunsRenewed(at(1), renew, (None,))
    end = End("bill", ((one, None),))
    assert pool_event_for(end, Ambiguous("no reply"), at(1)) == EndsWritten(at(1), end, left=end.ended)
    assert pool_event_for(end, (None,), at(1)) == EndsWritten(at(1), end, left=end.ended)
    assert pool_event_for(Handle("bill", (one,)), ((one, None),), at(1)) == HandlersEnded(at(1), "bill", ((one, None),))
    assert pool_event_for(StartPoolTimer(5), None, at(1)) == PoolTimerFired(at(1))
    assert pool_event_for(Interrupt("bill", (one,), InterruptReason.STOPPING), None, at(1)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: pool_event_for(Take("bill", 3), "x", at(1)),
        lambda: pool_event_for(Ambiguous("x"), None, at(1)),  # type: ignore[arg-type]
        lambda: PoolRules(tasks=(RULES.tasks[0], RULES.tasks[0])),
        lambda: PoolRules(tasks=(), executors=0),
        lambda: PooledTask(name="", lease=1),
        partial(RULES.step, PoolState(), "x"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
