"""A worker under random courses: every reply comes in any way, order and time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from random import Random  # noqa: TID251  seeded
from types import ModuleType
from typing import Any, Final, TypeAlias, cast, final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.length import NOTICED

from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, ClockName, Instant
from tidegate.retries.polling import PollingBounds
from tidegate.sim.trace.variants import variant
from tidegate.work import _liveness as liveness
from tidegate.work import worker
from tidegate.work.checks import laws
from tidegate.work.events import (
    CapacityRequested,
    GroupPolled,
    HandlersEnded,
    HeartbeatAcked,
    LeasesRenewed,
    Left,
    PollCompleted,
    QueuesPaused,
    QueueThrottled,
    ResultsRefused,
    ResultsWritten,
    ResumeRequested,
    RunSuspended,
    StopRequested,
    TimerFired,
    UntrackedReturned,
    WorkAnnounced,
    WorkerEvent,
    work_event_for,
)
from tidegate.work.state import WorkerState, WorkerStep
from tidegate.work.vocabulary import (
    ByLife,
    CapacityGranted,
    Heartbeat,
    HeartbeatReply,
    Interrupt,
    InterruptReason,
    Leave,
    NoAnswer,
    Poll,
    PollGroup,
    PollResult,
    Queue,
    Renewal,
    RenewLeases,
    Result,
    Resume,
    ReturnUntracked,
    Run,
    StartHandlers,
    StartTimer,
    WorkerCommand,
    WorkerRules,
    WriteReply,
    WriteResults,
)
from tidegate.work.worker import Worker

CLOCK: Final = ClockName("loop")
LEASE: Final = 3 * SECOND
NO_ANSWER: Final = NoAnswer.NO_ANSWER
POLLING: Final = PollingBounds(least=100 * MILLISECOND, most=SECOND, jitter=0)


@final
@attrs.frozen
class Results:
    refused: object = "refused"

    def result(self, run: Run, answer: object, why: InterruptReason | None) -> object:
        del run
        return answer if why is None and answer is not NO_ANSWER else why


BY_LEASE: Final = WorkerRules(
    queues=(Queue(name="bill", polling=POLLING, lease=LEASE), Queue(name="ship", polling=POLLING, lease=LEASE)),
    results=Results(), concurrency=4, batch=3, results_max=3, drain=SECOND, leave=SECOND,
)  # fmt: skip
GROUPED: Final = attrs.evolve(BY_LEASE, queues=tuple(attrs.evolve(queue, group="here") for queue in BY_LEASE.queues))
BY_LIFE: Final = WorkerRules(
    queues=(Queue(name="bill", polling=POLLING),), results=Results(), liveness=ByLife(heartbeat_every=SECOND, dead_after=LEASE),
    concurrency=4, batch=3, results_max=3, prefetch=True, drain=SECOND, leave=SECOND,
)  # fmt: skip
Stepping: TypeAlias = Callable[[WorkerRules, WorkerState, WorkerEvent], WorkerStep]


def step(rules: WorkerRules, state: WorkerState, event: WorkerEvent) -> WorkerStep:
    return Worker(rules).step(state, event)


def at(us: int) -> Instant:
    return Instant(us, CLOCK)


def run_of(number: int, timeout: int | None = None, rejected: str | None = None, task: str = "bill") -> Run:
    return Run(task, f"r{number}", 2, timeout, rejected)


@final
@attrs.frozen
class Claim:
    id: str
    token: int = 2


@final
class Course:
    def __init__(self, random: Random, stepping: Stepping = step, rules: WorkerRules | None = None) -> None:
        self.random, self.stepping = random, stepping
        self.rules = rules or random.choice(
            [
                BY_LEASE, GROUPED, attrs.evolve(BY_LEASE, queues=BY_LEASE.queues[:1], prefetch=True, concurrency=2),
                *[attrs.evolve(BY_LIFE, prefetch=random.random() < 0.9, concurrency=random.randint(1, 2))] * 3,
            ]
        )  # fmt: skip
        self.is_life = isinstance(self.rules.liveness, ByLife)
        self.state, self.now, self.wake_at = WorkerState(), 0, cast("int | None", None)
        self.asked: list[WorkerCommand] = []  # and unanswered
        self.sent: dict[WorkerCommand, Instant] = {}
        self.commands: list[WorkerCommand] = []
        self.handlers: dict[Run, str] = {}  # "told", "runs", "waits", "wants"
        self.interrupted: set[Run] = set()
        self.taken: list[Run] = []
        self.left: list[Run] = []  # runs with unconfirmed results, once per missing confirmation
        self.lost: set[Run] = set()
        self.unconfirmed: dict[str, ResultsWritten] = {}
        self.known: set[str] = set()  # queues with known due runs
        self.expected: list[tuple[str, Instant]] = []
        self.laters: list[tuple[str, Instant]] = []
        self.failed: frozenset[str] = frozenset()
        self.capacity: list[CapacityRequested] = []
        self.held_until: dict[Run, Instant] = {}
        self.uncertain: dict[str, Instant] = {}
        self.looked: dict[str, Instant] = {}
        self.life: laws.Life = None
        self.found: tuple[Claim, ...] = ()  # by the last heartbeat of this life
        self.is_known = True  # whether the poll in flight at that time has ended
        self.hidden: list[tuple[int, Run]] = []  # runs claimed by failed polls, with the life of each
        self.begun: dict[int, tuple[Run, ...]] = {}  # runs claimed by the poll in flight but unreported, by life
        self.is_troubled = random.random() < 0.4
        self.is_quiet = random.random() < 0.2  # the poll is empty but announces later runs
        self.wrong: set[str] = set()
        self.tell(TimerFired(at(0)))
        for number in range(80):
            self.go_on(ends=number > 40)
        self.finish()

    # --- events and their commands ---

    def tell(self, event: WorkerEvent) -> None:
        before = self.state
        self.hear(event)
        self.state, commands = attrs.astuple(self.stepping(self.rules, before, event), recurse=False)
        self.commands.extend(commands)
        for each in commands:
            match each:
                case StartTimer(duration):
                    self.wake_at = self.now + duration
                case StartHandlers(runs):
                    self.handlers |= dict.fromkeys(runs, "told")
                case Resume(runs):
                    self.handlers |= {run: "runs" for run in runs if self.handlers.get(run) == "wants"}
                case Interrupt(runs, why):
                    self.interrupted |= {*runs} & self.handlers.keys()
                    self.lost |= {*runs} if why is InterruptReason.LEASE_LOST else set()
                case CapacityGranted(most=0):
                    pass
                case _:
                    self.asked.append(each)
                    self.sent[each] = event.at
        self.expect(event, commands)
        self.judge_all(before, event, commands)

    def hear(self, event: WorkerEvent) -> None:
        life, is_polling = self.state.membership, any(isinstance(each, Poll) for each, _ in self.state.requests)
        mine = 1 if life is None else life.life
        match event:
            case PollCompleted(now, command, result):
                self.held_until |= dict.fromkeys(result.runs, self.sent[command] + LEASE)
                self.is_known = True
                if result.is_uncertain:
                    self.uncertain[command.queue] = now
                if isinstance(command, Poll):
                    mark = {command.queue}
                    self.failed = self.failed | mark if result.has_failed else self.failed - mark
            case LeasesRenewed(now, command, renewals):
                for run, renewal in zip(command.runs, renewals, strict=True):
                    if renewal is not Renewal.UNKNOWN:
                        self.held_until[run] = now if renewal is Renewal.LOST else self.sent[command] + LEASE
            case ResultsWritten(_, command, reply):
                self.left += [each.run for each in reply.left]
            case ResultsRefused(_, command):
                self.left += [each.run for each in command.results if not each.is_last]
            case UntrackedReturned(now, command):
                self.looked[command.queue] = now
            case HeartbeatAcked(_, command, is_alive, reply) if command.life == mine and is_alive is not None:
                self.life = (mine, self.sent[command] + LEASE) if is_alive else None
                self.found, self.is_known = cast("tuple[Claim, ...]", reply.untracked), not is_polling
                self.lost |= {run for run, why in reply.asked if why is InterruptReason.LOST}
            case CapacityRequested():
                self.capacity.append(event)
            case _:
                pass

    def expect(self, event: WorkerEvent, commands: tuple[WorkerCommand, ...]) -> None:
        match event:
            case WorkAnnounced(_, queue, None):
                self.known.add(queue)
            case WorkAnnounced(_, queue, Instant() as due):
                self.expected.append((queue, due))
            case GroupPolled(now, _, dues):
                self.known |= {queue for queue, after in dues if not after}
                self.expected += [(queue, now + after) for queue, after in dues if after]
            case PollCompleted(now, Poll(queue), result):
                self.known |= {queue} if result.runs or result.is_more or result.has_failed else set()
                self.expected += [] if result.due_in is None else [(queue, now + result.due_in)]
            case ResultsWritten(now, command, reply):
                self.known |= {command.queue} if reply.is_more else set()
                self.expected += [(command.queue, now + after) for after in reply.dues]
            case UntrackedReturned(_, command, number) if number:
                self.known.add(command.queue)
            case _:
                pass
        self.laters += [each for each in self.expected if each not in self.laters]
        polled = {each.queue for each in commands if isinstance(each, Poll)}
        self.expected = [(queue, due) for queue, due in self.expected if queue not in polled or due - event.at > 0]

    def judge_all(self, before: WorkerState, event: WorkerEvent, commands: tuple[WorkerCommand, ...]) -> None:
        rules, state, now = self.rules, self.state, event.at
        due = self.known | {queue for queue, later in self.laters if later - now <= 0}
        self.judge(laws.runs_have_slots(rules, state, commands), "WK1")
        self.judge(self.are_settled(is_over=False), "WK2")
        self.judge(laws.only_members_poll(rules, self.life, commands, now), "WK3")
        self.judge(laws.a_lost_claim_interrupts(rules, state, self.life, now), "WK4")
        self.judge(laws.one_request_of_each_kind(rules, state, commands, now), "WK5")
        self.judge(laws.timeouts_and_orders_are_obeyed(state, now), "WK6")
        self.judge(before.is_stopped or laws.it_stops_in_time(rules, state, commands, now), "WK7")
        self.judge(laws.it_has_something_to_wait_for(rules, state), "WK8")
        self.judge(laws.announced_work_is_polled(rules, state, event, commands), "WK9")
        self.judge(laws.expected_work_is_polled(rules, state, self.expected, now), "WK10")
        self.judge(laws.a_wanted_slot_comes_first(rules, state, commands), "WK11")
        suspended = {run for run, how in self.handlers.items() if how == "waits"}
        self.judge(laws.suspended_runs_have_no_slot(state, suspended), "WK12")
        if self.is_life and before.membership is not None and state.membership is not None:
            self.found = self.found if state.membership.life == before.membership.life else ()
            told = {run.id for run in (*self.taken, *(run for runs in self.begun.values() for run in runs))}
            for each in commands:
                if isinstance(each, Heartbeat):
                    returned = laws.untracked_claims_are_returned_by_heartbeat
                    self.judge(returned(each, self.found, told, is_known=self.is_known), "WK13")
        self.judge(laws.untracked_claims_are_looked_for(rules, state, self.uncertain, self.looked, now), "WK14")
        self.judge(laws.untracked_claims_are_not_in_hand(rules, state, commands), "WK15")
        self.judge(laws.prefetched_runs_wait_briefly(state, now), "WK16")
        self.judge(laws.a_rejected_run_is_not_started(state, commands), "WK17")
        if isinstance(event, ResultsWritten) and event.reply.left:
            self.unconfirmed[event.command.queue] = event
        again = laws.unconfirmed_results_are_written_again
        self.judge(again(rules, state, self.unconfirmed, commands, now), "WK19")
        for each in commands:
            if isinstance(each, WriteResults):
                self.unconfirmed.pop(each.queue, None)
        self.judge(laws.capacity_is_granted_last(rules, state, commands, now), "WK20")
        self.judge(laws.each_capacity_request_is_answered(state, self.capacity, self.commands), "WK21")
        self.judge(laws.a_group_is_polled_together(rules, state, due, commands, now), "WK22")
        self.judge(laws.a_group_is_polled_first(rules, state, commands, now), "WK23")
        self.judge(laws.failed_queues_are_not_polled_in_groups(self.failed, commands), "WK24")
        if isinstance(event, LeasesRenewed):
            self.judge(laws.a_busy_lease_is_kept(rules, before, event, state), "WK25")
        self.known -= {each.queue for each in commands if isinstance(each, Poll)}

    def are_settled(self, *, is_over: bool) -> bool:
        return laws.each_run_is_settled_once(self.taken, self.commands, self.left, self.lost, is_over=is_over)

    def judge(self, holds: bool, law: str) -> None:
        if not holds:
            self.wrong.add(law)

    # --- random events ---

    def go_on(self, *, ends: bool) -> None:
        draw = self.random.choice([0.3, 0.67, 0.99, 0.99]) if self.is_quiet else self.random.random()
        if draw < 0.8:
            self.call()
        queue = self.random.choice(["bill", "ship", "unknown"])
        if draw < 0.35 and self.asked:
            self.answer(self.asked.pop(self.random.randrange(len(self.asked))))
        elif draw < 0.48 and self.handlers:
            self.end_some()
        elif draw < 0.6 and self.handlers:
            self.suspend_or_resume()
        elif draw < 0.68:
            later = at(self.now + self.random.choice([0, 1, 50, 900, 2_500]) * MILLISECOND)
            self.tell(WorkAnnounced(at(self.now), queue, later if self.is_quiet else self.random.choice([None, later])))
        elif draw < 0.75:
            self.now += self.random.choice([0, 0, 120 * MILLISECOND])  # the timer is late
            request = f"request {len(self.capacity)}"
            self.tell(CapacityRequested(at(self.now), queue, self.random.randint(1, 5), request))
        elif draw < 0.76:
            until = at(self.now + self.random.choice([-1, 0, 1, 700]) * MILLISECOND)
            self.tell(QueueThrottled(at(self.now), queue, until))
        elif draw < 0.78:
            paused = self.random.sample(["bill", "ship"], self.random.randrange(2))
            self.tell(QueuesPaused(at(self.now), frozenset(paused)))
        elif draw < 0.8 and ends:
            self.tell(StopRequested(at(self.now)))
        else:
            self.pass_time()

    def pass_time(self) -> None:
        if self.wake_at is None:
            self.now += 10 * MILLISECOND
            return
        late = self.random.choice([0, 0, 0, 50 * MILLISECOND, SECOND])
        self.now, self.wake_at = max(self.now, self.wake_at) + late, None
        self.call()
        self.tell(TimerFired(at(self.now)))

    def call(self) -> None:
        late: list[Run] = []
        for run, how in [*self.handlers.items()]:
            if how == "told" and run not in self.interrupted:
                may_call = self.state.may_call(run, at(self.now))
                until = (None if self.life is None else self.life[1]) if self.is_life else self.held_until[run]
                self.judge(laws.it_may_call_while_it_holds(until, at(self.now), may_call=may_call), "WK18")
                self.handlers[run] = "runs"
                if not may_call:
                    del self.handlers[run]
                    late.append(run)
        if late:
            self.tell(HandlersEnded(at(self.now), tuple((run, NO_ANSWER) for run in late)))

    def suspend_or_resume(self) -> None:
        called = [run for run, how in self.handlers.items() if how != "told"]
        if not called:
            return
        run = self.random.choice(called)
        if self.handlers[run] == "waits":
            self.handlers[run] = "wants"
            self.tell(ResumeRequested(at(self.now), run))
        elif self.handlers[run] == "runs" or self.random.random() < 0.5:
            self.handlers[run] = "waits"
            self.tell(RunSuspended(at(self.now), run))

    def end_some(self) -> None:
        able = [
            run for run, how in self.handlers.items() if how == "runs" or (how == "told" and run in self.interrupted)
        ]
        ended = []
        for run in self.random.sample(able, self.random.randint(0, len(able))):
            del self.handlers[run]
            answers: list[object] = ["well", "it fails"]
            ended.append((run, self.random.choice([NO_ANSWER, *answers] if run in self.interrupted else answers)))
        self.tell(HandlersEnded(at(self.now), tuple(ended)))

    def answer(self, command: WorkerCommand) -> None:
        now, is_hard = at(self.now), self.is_troubled and self.random.random() < 0.4
        match command:
            case Poll() | CapacityGranted():
                self.tell(PollCompleted(now, command, self.polled(command, is_hard=is_hard)))
            case PollGroup(_, queues, within):
                some = self.random.sample(queues, self.random.randint(0, len(queues)))
                self.tell(
                    GroupPolled(now, command, tuple((each, self.random.choice([0, within // 2])) for each in some))
                )
            case WriteResults() if is_hard and self.random.random() < 0.5:
                self.tell(ResultsRefused(now, command))
            case WriteResults(_, results):
                left = tuple(each for each in results if is_hard and self.random.random() < 0.5)
                dues = tuple(self.random.choice([(), (), (0, 5), (250 * MILLISECOND,)]))
                self.tell(ResultsWritten(now, command, WriteReply(left, self.random.random() < 0.2, (), dues)))
            case RenewLeases(_, runs):
                renewals = [Renewal.RENEWED, Renewal.RENEWED, Renewal.BUSY, Renewal.UNKNOWN, Renewal.LOST]
                self.tell(LeasesRenewed(now, command, tuple(self.random.choice(renewals) for _ in runs)))
            case ReturnUntracked():
                self.tell(UntrackedReturned(now, command, self.random.choice([0, 0, 1])))
            case Heartbeat(_, runs):
                reasons = [InterruptReason.CANCEL, InterruptReason.LOST]
                asked = tuple((run, self.random.choice(reasons)) for run in runs if self.random.random() < 0.1)
                is_alive = self.random.choice([None, False]) if is_hard else True
                reply = HeartbeatReply(asked, self.untracked(command)) if is_alive else HeartbeatReply()
                self.tell(HeartbeatAcked(now, command, is_alive, reply))
            case Leave():
                self.tell(Left(now))
            case _:
                raise AssertionError(command)

    def polled(self, command: Poll | CapacityGranted, *, is_hard: bool) -> PollResult:
        runs = self.begun.pop(command.life, None) if isinstance(command, Poll) else None
        runs = self.some(command) if runs is None else runs
        if is_hard and isinstance(command, Poll):
            self.hidden += [(command.life, run) for run in runs]
            return PollResult(has_failed=True, is_uncertain=True)
        self.taken.extend(runs)
        is_more = self.random.random() < 0.2 and not self.is_quiet
        due_in = self.random.choice([None, 0, 300 * MILLISECOND]) if self.is_life else None
        return PollResult(runs, is_more, due_in, is_uncertain=self.random.random() < 0.1)

    def some(self, command: Poll | CapacityGranted) -> tuple[Run, ...]:
        number = 0 if self.is_quiet else self.random.randint(0, command.most)
        first = len(self.taken) + len(self.hidden) + sum(map(len, self.begun.values()))
        limits, troubles = [None, None, 500 * MILLISECOND], [None, None, None, "cannot be computed"]
        return tuple(
            run_of(first + each, self.random.choice(limits), self.random.choice(troubles), command.queue)
            for each in range(number)
        )

    def untracked(self, heartbeat: Heartbeat) -> tuple[Claim, ...]:
        gone = {each.id for each in heartbeat.untracked if self.random.random() < 0.8}
        life = heartbeat.life
        self.hidden = [
            (of, attrs.evolve(run, id=f"{run.id} gone") if run.id in gone else run) for of, run in self.hidden
        ]
        for each in self.asked:
            if isinstance(each, Poll) and each.life == life and life not in self.begun:
                self.begun[life] = self.some(each)
        found = [run for of, run in self.hidden if of == life and not run.id.endswith("gone")]
        found += [*self.begun.get(life, ()), *(each.run for each in self.state.results if each.life == life)]
        found += [run for run in self.taken[-3:] if run in self.handlers and run not in heartbeat.runs]
        return tuple(Claim(each) for each in dict.fromkeys(run.id for run in found))

    def finish(self) -> None:
        answers = self.random.random() < 0.8
        self.tell(StopRequested(at(self.now)))
        for _ in range(1_000):
            if self.state.is_stopped:
                break
            if not answers:
                self.pass_time()
            elif self.asked:
                self.answer(self.asked.pop())
            elif self.handlers and self.handlers.keys() <= self.interrupted:
                self.suspend_or_resume() if "waits" in self.handlers.values() else self.end_some()
            else:
                self.pass_time()
        self.judge(self.state.is_stopped, "WK7")
        self.judge(self.are_settled(is_over=self.state.is_idle), "WK2")


LARGE: Final = (HealthCheck.large_base_example, HealthCheck.too_slow)
RANDOMS: Final = st.randoms(use_true_random=False)


@settings(suppress_health_check=LARGE)
@given(RANDOMS)
def test_the_laws_hold_over_random_courses(random: Random) -> None:
    """Laws WK1 to WK24."""
    assert Course(random).wrong == set()


# --- planted bugs -----------------------------------------------------------------------------------------------------

_POLLED: Final = "        state = _poll(rules, state, at, commands)\n"
_GRANTED: Final = "        state = _grant_capacity(rules, state, at, commands)\n"
_GROUPS: Final = (
    "        state = _poll_groups(rules, _due_now(rules, state, at), at, commands)  # it takes no room from a poll\n"
)
PLANTED: Final[dict[str, tuple[str, ModuleType, tuple[tuple[str, str], ...]]]] = {
    "polls under way are not counted": ("WK1", worker, ((" - reserved + ahead", " + ahead"),)),
    "all that were prefetched are started": ("WK1", worker, (("room = _room(rules, state) if rules.prefetch else rules.concurrency - state.used", "room = state.queued"),)),
    "all resume that want to": ("WK1", worker, (("whole[: _room(rules, state)]", "whole"),)),
    "a slot is given away twice": ("WK1", worker, (("frozenset({Slot.AWAY}), Slot.WANTS)", "frozenset({Slot.AWAY}), Slot.HAS)"),)),
    "results are forgotten": ("WK2", worker, (("for queue, result in found:", "for queue, result in ():"),)),
    "results are written twice": ("WK2", worker, (("results=tuple(left), retry_at", "results=known.results, retry_at"), ("state.unwritten - len(chosen)", "state.unwritten"))),
    "handlers are started twice": ("WK2", worker, (("running.append(evolve(each, started_at=at, slot=Slot.HAS))", "running.append(evolve(each, started_at=at))"),)),
    "what a stopping worker has taken is dropped": ("WK2", worker, (("        elif is_over or state.stop_at is not None:\n", "        elif state.stop_at is not None:\n            pass\n        elif is_over:\n"),)),
    "an unconfirmed result is dropped": ("WK2", worker, (("each in command.results if each in reply.left)", "each in ())"),)),
    "a refused result is dropped": ("WK2", worker, (("results = () if results[0].is_last else", "results = () if True else"),)),
    "a process polls before it is a member": ("WK3", worker, (("state.membership is None or state.membership.alive_until is not None", "True"),)),
    "a silence is not noticed": ("WK3", liveness, (("sent + liveness.dead_after", "sent + 10**12"),)),
    "a run goes on after its life": ("WK4", liveness, (("return InterruptReason.SILENT", "return None"),)),
    "an expired lease is not noticed": ("WK4", liveness, (("return None if is_held else", "return None if True else"),)),
    "leases are looked after too late": ("WK4", worker, (("check_at=_next_check(state)", "check_at=(_next_check(state) or at) + SECOND"),)),
    "a lease is renewed when it expires": ("WK4", liveness, (("queue.lease // _RENEWED", "queue.lease"),)),
    "two polls of a queue": ("WK5", worker, ((" or queue.name in claiming)", ")"),)),
    "two polls of a group": ("WK5", worker, (("if group in polling or all(", "if all("),)),
    "two heartbeats": ("WK5", liveness, (("return is_member and not any(isinstance(each, Heartbeat) for each, _ in state.requests)", "return is_member"),)),
    "a paused queue is polled": ("WK5", worker, (("or queue.name in state.paused or", "or"),)),
    "a throttled queue is polled": ("WK5", worker, (("not (is_throttled or ", "not ("),)),
    "a handler takes as long as it likes": ("WK6", worker, (("return InterruptReason.TOO_LONG", "return None"),)),
    "an order is not obeyed": ("WK6", worker, (("return each.asked", "return None"),)),
    "a stopping worker takes more": ("WK7", worker, (("state = _stop(rules, state, at, commands)", "state = _poll(rules, _stop(rules, state, at, commands), at, commands)"),)),
    "a stopping worker waits for handlers": ("WK7", worker, (("return InterruptReason.STOPPING", "return None"),)),
    "a stopping worker waits for answers": ("WK7", worker, (("if is_late or (is_idle", "if (is_idle"),)),
    "no timer": ("WK8", worker, (("wake_at = _next_wake(rules, state, at)", "wake_at = None"),)),
    "announced work waits": ("WK9", worker, (("    return with_queue(state, place, _woken(rules, state.queues[place], place, at))", "    return state"),)),
    "work that a result makes due waits": ("WK9", worker, (("if reply.is_more else state", "if False else state"),)),
    "later work is forgotten": ("WK10", worker, (("    return with_queue(state, place, _expecting(state.queues[place], due))", "    return state"),)),
    "one of two later times is forgotten": ("WK10", worker, (("due if due - last > 0 else last", "due if due - first < 0 else first"),)),
    "what a group's poll saw is forgotten": ("WK10", worker, (("_expecting(known, event.at + after) if after else", "known if after else"),)),
    "nobody resumes": ("WK11", worker, (("    if not state.wanting:\n", "    if True:\n"),)),
    "an interrupted run waits for a slot": ("WK12", worker, (("for each in wanting if each.why is not None}", "for each in ()}"),)),
    "a second suspension is not heard": ("WK12", worker, (("frozenset({Slot.HAS, Slot.WANTS, Slot.WITHOUT})", "frozenset({Slot.HAS, Slot.WITHOUT})"),)),
    "untracked claims are forgotten": ("WK13", liveness, (("doubted=reply.untracked", "doubted=()"),)),
    "what a poll may tell of is given back": ("WK13", liveness, (("    if any(isinstance(each, Poll) for each, _ in state.requests):\n        return evolve", "    if False:\n        return evolve"),)),
    "what has ended is given back with a heartbeat": ("WK13", liveness, (("(*(each.run for each in state.running), *(each.run for each in state.results))", "tuple(each.run for each in state.running)"),)),
    "an uncertain poll is trusted": ("WK14", worker, (("if result.is_uncertain:", "if False:"),)),
    "untracked claims are looked for once": ("WK14", liveness, (("uncertain=(again_at, known.uncertain[1])", "uncertain=None"),)),
    "what a poll takes is given back": ("WK15", liveness, ((" and not _is_claiming(state, queue)", ""),)),
    "what has ended is given back": ("WK15", liveness, (("return (*running, *waiting, *(each.run for request in requests for each in request.results))", "return (*running,)"),)),
    "a prefetched run waits for ever": ("WK16", worker, (("return InterruptReason.LATE if started is None", "return None if started is None"),)),
    "a rejected run is started": ("WK17", worker, (("if run.rejected is not None and not is_over:", "if False:"),)),
    "a rejected run is given back": ("WK17", worker, (("Result(run, life, run.rejected)", "Result(run, life, None)"),)),
    "an unconfirmed result waits": ("WK19", worker, (("each in command.results if each in reply.left)", "each in ())"),)),
    "an unconfirmed result is written at once": ("WK19", worker, (("is_early = known.retry_at is not None", "is_early = False"),)),
    "what is planned passes by what is due": ("WK20", worker, ((_POLLED + _GRANTED, _GRANTED + _POLLED),)),
    "a request for capacity waits for each poll": ("WK21", worker, (("isinstance(each, Poll) and sent - request.at < 0", "isinstance(each, Poll)"),)),
    "each idle queue is polled alone": ("WK22", worker, (("is_grouped = queue.group is not None and not known.is_woken", "is_grouped = False"),)),
    "one queue keeps others unpolled": ("WK23", worker, ((_GROUPS + _POLLED, _POLLED + _GROUPS),)),
    "a failed queue is polled with its group": ("WK24", worker, (("known.is_woken or result.has_failed", "known.is_woken"),)),
    "a busy lease is lost": ("WK25", liveness, (("                return evolve(each, held_until=sent + lease, renew_at=at + lease // _RETRIED)", "                return evolve(each, held_until=at)"),)),
    "a busy lease is not renewed soon": ("WK25", liveness, (("renew_at=at + lease // _RETRIED)", "renew_at=sent + lease // _RENEWED)"),)),
}  # fmt: skip


def finds(law: str, stepping: Stepping) -> bool:
    return any(law in Course(Random(seed), stepping).wrong for seed in range(NOTICED))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_its_law(name: str) -> None:
    law, module, replacements = PLANTED[name]
    made = (
        variant(worker, *replacements) if module is worker else variant(worker, liveness=variant(module, *replacements))
    )

    assert finds(law, lambda rules, state, event: made.Worker(rules).step(state, event))


@pytest.mark.parametrize(
    "wrong", [lambda state, run, _: any(each.run == run for each in state.running), lambda *_: False]
)
def test_a_handler_that_is_called_too_late_breaks_its_law(
    wrong: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerState, "may_call", wrong)

    assert finds("WK18", step)


# --- single steps -----------------------------------------------------------------------------------------------------

LEASED: Final = Worker(BY_LEASE)
MEMBER: Final = Worker(BY_LIFE)


def told(of: Worker, *those: WorkerEvent) -> WorkerStep:
    step = of.step(WorkerState(), TimerFired(at(0)))
    alive = (HeartbeatAcked(at(0), Heartbeat(1, ()), is_alive=True),) if of.rules.liveness != BY_LEASE.liveness else ()
    for event in (*alive, *those):
        step = of.step(step.state, event)
    return step


def taken(*runs: Run, most: int = 3, us: int = 0) -> PollCompleted:
    return PollCompleted(at(us), Poll("bill", most), PollResult(runs))


def written(*results: tuple[Run, object], life: int = 1) -> WriteResults:
    return WriteResults("bill", tuple(Result(run, life, value) for run, value in results))


def idle() -> WorkerStep:
    return told(LEASED, taken(us=1), PollCompleted(at(1), Poll("ship", 1)))


def granted(step: WorkerStep) -> dict[str, int]:
    return {each.request: each.most for each in step.commands if isinstance(each, CapacityGranted)}


@pytest.mark.parametrize("of", [LEASED, MEMBER])
def test_runs_are_taken_started_and_written(of: Worker) -> None:
    first = told(of)
    assert Poll("bill", 3) in first.commands
    one, two = run_of(1), run_of(2)
    step = of.step(first.state, taken(one, two, us=5))
    assert StartHandlers((one, two)) in step.commands
    step = of.step(step.state, HandlersEnded(at(9), ((one, 7),)))
    assert written((one, 7)) in step.commands
    step = of.step(step.state, HandlersEnded(at(9), ((two, 8),)))
    assert not any(isinstance(each, WriteResults) for each in step.commands)  # one at a time
    step = of.step(step.state, ResultsWritten(at(10), written((one, 7)), WriteReply()))
    assert written((two, 8)) in step.commands


def test_a_member_polls_once_it_has_joined() -> None:
    first = MEMBER.step(WorkerState(), TimerFired(at(0)))
    assert first.commands[0] == Heartbeat(1, ())
    assert not any(isinstance(each, Poll) for each in first.commands)


def test_a_lease_that_waits_for_the_transaction_of_its_handler_is_not_lost() -> None:
    renew = RenewLeases("bill", (run_of(1),))
    asked = told(LEASED, taken(run_of(1)), TimerFired(at(LEASE // 2)))
    assert renew in asked.commands
    busy = LEASED.step(asked.state, LeasesRenewed(at(LEASE), renew, (Renewal.BUSY,)))
    (one,) = busy.state.running
    assert (one.why, one.held_until, one.renew_at) == (None, at(LEASE // 2 + LEASE), at(LEASE + LEASE // 12))
    assert renew in LEASED.step(busy.state, TimerFired(at(LEASE + LEASE // 12))).commands
    unknown = LEASED.step(asked.state, LeasesRenewed(at(LEASE), renew, (Renewal.UNKNOWN,)))
    assert any(isinstance(each, Interrupt) for each in unknown.commands)


def test_the_answer_of_a_run_whose_lease_is_lost_does_not_count() -> None:
    one = run_of(1)
    step = told(LEASED, taken(one), TimerFired(at(LEASE)))
    assert Interrupt((one,), InterruptReason.LEASE_LOST) in step.commands
    step = LEASED.step(step.state, HandlersEnded(at(LEASE + 1), ((one, 7),)))
    assert not any(isinstance(each, WriteResults) for each in step.commands)


@pytest.mark.parametrize("of", [LEASED, MEMBER])
def test_a_second_request_to_stop_gives_no_more_time(of: Worker) -> None:
    one = run_of(1)
    step = told(of, taken(one), StopRequested(at(5)))
    assert not any(isinstance(each, Interrupt) for each in step.commands)
    step = of.step(step.state, StopRequested(at(7)))
    assert Interrupt((one,), InterruptReason.STOPPING) in step.commands
    step = of.step(step.state, StopRequested(at(8)))
    assert step.state.stop_at == at(7)
    assert of.step(step.state, TimerFired(at(7 + of.rules.leave))).state.is_stopped


def test_capacity_is_granted_where_no_poll_wants_it() -> None:
    step = LEASED.step(idle().state, CapacityRequested(at(2), "bill", 9, "a request"))
    assert step.commands == (CapacityGranted("bill", "a request"),)
    assert granted(step) == {"a request": 3}
    step = LEASED.step(step.state, WorkAnnounced(at(3), "bill"))
    assert granted(step) == {}
    step = LEASED.step(step.state, CapacityRequested(at(3), "ship", 9, "another"))
    assert granted(step) == {"another": 1}
    claimed = PollCompleted(at(4), CapacityGranted("bill", "a request"), PollResult((run_of(1),)))
    step = LEASED.step(step.state, claimed)
    assert {StartHandlers((run_of(1),)), Poll("bill", 2)} <= {*step.commands}


def test_a_request_for_capacity_waits_for_the_poll_under_way_and_for_no_other() -> None:
    """Law WK21. Else postponed work is announced, and each request meets a poll in flight."""
    polled = LEASED.step(idle().state, WorkAnnounced(at(2), "bill"))
    asked = LEASED.step(polled.state, CapacityRequested(at(3), "bill", 9, "a request"))
    assert granted(asked) == {}
    assert granted(LEASED.step(asked.state, taken(us=4))) == {"a request": 3}
    again = LEASED.step(asked.state, WorkAnnounced(at(4), "bill"))
    step = LEASED.step(again.state, taken(us=5))
    assert Poll("bill", 3) in step.commands
    assert granted(step) == {"a request": 0}
    assert granted(LEASED.step(asked.state, StopRequested(at(4)))) == {"a request": 0}
    given_up = LEASED.step(asked.state, PollCompleted(at(4), CapacityGranted("bill", "a request")))
    assert granted(LEASED.step(given_up.state, taken(us=5))) == {}
    assert granted(told(MEMBER, CapacityRequested(at(1), "bill", 1, "a request"), taken(us=2))) == {"a request": 0}


def test_idle_queues_of_a_group_are_one_request() -> None:
    group, poll = Worker(GROUPED), PollGroup("here", ("bill", "ship"), POLLING.least)
    assert told(group).commands == (poll,)
    step = told(group, GroupPolled(at(5), poll, (("ship", 40),)))
    assert step.commands == (StartTimer(40),)
    step = group.step(step.state, TimerFired(at(45)))
    assert [each for each in step.commands if isinstance(each, Poll)] == [Poll("ship", 3)]
    assert str(poll) == "ask what is due in 2 queues of here within 100 ms"


def test_one_queue_that_has_much_to_do_keeps_no_other_of_its_group_waiting() -> None:
    """Law WK23. It reuses its own free slots, and the group is still polled for the other queue."""
    of, one = Worker(attrs.evolve(GROUPED, concurrency=1)), run_of(1)
    found = GroupPolled(at(1), PollGroup("here", ("bill", "ship"), POLLING.least), (("bill", 0),))
    step = told(of, found, taken(one, most=1, us=2))
    assert hash(step.state) == hash(attrs.evolve(step.state)), "a state is a value"
    step = of.step(step.state, HandlersEnded(at(SECOND), ((one, None),)))
    assert Poll("bill", 1) in step.commands
    assert [each.queues for each in step.commands if isinstance(each, PollGroup)] == [("ship",)]


def test_a_poll_that_has_failed_is_sent_again_at_its_pace_whatever_its_group_finds() -> None:
    """Law WK24. A group poll during failures must not wake the queue."""
    of, polls, now = Worker(attrs.evolve(GROUPED, queues=GROUPED.queues[:1])), list[int](), 0
    step = told(of)
    for _ in range(1_000):
        if now > 10 * SECOND:
            break
        for each in step.commands:
            if isinstance(each, ReturnUntracked):
                more = of.step(step.state, UntrackedReturned(at(now), each))
                step = attrs.evolve(more, commands=(*step.commands, *more.commands))
        asked = next((each for each in step.commands if isinstance(each, (Poll, PollGroup))), None)
        if asked is None:
            assert step.state.wake_at is not None
            now = max(now + 1, step.state.wake_at - at(0))
            step = of.step(step.state, TimerFired(at(now)))
            continue
        polls += [now] if isinstance(asked, Poll) else []
        now += MILLISECOND
        event = work_event_for(
            asked, (("bill", 0),) if isinstance(asked, PollGroup) else Ambiguous("no reply"), at(now)
        )
        assert event is not None
        step = of.step(step.state, event)
    gaps = [later - sooner for sooner, later in pairwise(polls)]
    assert gaps[:4] == [100 * MILLISECOND, 200 * MILLISECOND, 400 * MILLISECOND, 800 * MILLISECOND]
    assert set(gaps[4:]) == {SECOND}


def test_what_is_due_later_is_polled_then() -> None:
    step = LEASED.step(idle().state, WorkAnnounced(at(2), "bill", at(30)))
    assert step.commands == (StartTimer(28),)
    assert Poll("bill", 3) in LEASED.step(step.state, TimerFired(at(30))).commands


def test_a_step_compares_the_name_of_each_of_many_queues_a_few_times() -> None:
    """A search per queue took the process's whole time, and its leader lost the lease."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    many = 200
    named = (Name(f"queue {number}") for number in range(many))
    rules = WorkerRules(
        queues=tuple(Queue(name=name, lease=MINUTE) for name in named), results=Results(), concurrency=1
    )
    step = told(Worker(rules))
    while polls := [each for each in step.commands if isinstance(each, Poll)]:  # polls run in turn and find nothing
        step = Worker(rules).step(step.state, PollCompleted(at(0), polls[0]))
    assert all(known.pace is not None for known in step.state.queues)
    compared = 0
    _ = Worker(rules).step(step.state, TimerFired(at(1)))
    assert compared < 10 * many


def test_a_worker_that_has_lost_claims_chooses_among_more_at_once_and_comes_back() -> None:
    """Law SP2."""
    step = told(LEASED, PollCompleted(at(1), Poll("bill", 3), PollResult((run_of(1),), is_more=True, lost=2)))
    again = Poll("bill", 2, 2)
    assert again in step.commands
    assert str(again) == "poll bill, 2 at most, of 4"
    step = LEASED.step(step.state, PollCompleted(at(2), again, PollResult((run_of(2), run_of(3)))))
    assert step.state.queues[0].factor == 1


def test_claims_that_a_poll_did_not_tell_of_are_given_back() -> None:
    step = told(LEASED, taken(run_of(1)), WorkAnnounced(at(1), "bill"))
    assert Poll("bill", 2) in step.commands
    failed = PollResult(has_failed=True, is_uncertain=True)
    step = LEASED.step(step.state, PollCompleted(at(2), Poll("bill", 2), failed))
    give_back = ReturnUntracked("bill", (run_of(1),))
    assert step.commands[0] == give_back
    step = LEASED.step(step.state, WorkAnnounced(at(3), "bill"))
    assert not any(isinstance(each, (Poll, ReturnUntracked)) for each in step.commands)
    step = LEASED.step(step.state, UntrackedReturned(at(4), give_back, 1))
    assert Poll("bill", 2) in step.commands
    step = LEASED.step(step.state, PollCompleted(at(5), Poll("bill", 2)))
    assert give_back in LEASED.step(step.state, TimerFired(at(4 + LEASE // 12))).commands
    over = LEASED.step(step.state, TimerFired(at(2 + LEASE)))
    assert not any(isinstance(each, ReturnUntracked) for each in over.commands)


def test_a_result_that_is_not_confirmed_is_written_again() -> None:
    """Law WK19. In halves, so that a refused one delays few others."""
    ended = tuple((run_of(number), number) for number in range(3))
    step = told(LEASED, taken(*(run for run, _ in ended)), HandlersEnded(at(1), ended))
    all_three, again_at = written(*ended), 2 + LEASE // 12
    assert all_three in step.commands
    step = LEASED.step(step.state, ResultsWritten(at(2), all_three, WriteReply(all_three.results[1:])))
    assert not any(isinstance(each, WriteResults) for each in step.commands)
    step = LEASED.step(step.state, TimerFired(at(again_at)))
    assert written(ended[1]) in step.commands
    step = LEASED.step(step.state, ResultsWritten(at(again_at + 1), written(ended[1]), WriteReply()))
    assert written(ended[2]) in step.commands
    alone = ResultsWritten(at(again_at + 2), written(ended[2]), WriteReply(written(ended[2]).results))
    step = LEASED.step(LEASED.step(step.state, alone).state, HandlersEnded(at(again_at + 3), ()))
    assert [each.value for each in step.state.results] == [2]


def test_where_handlers_are_short_more_is_taken_than_there_are_slots() -> None:
    of = Worker(attrs.evolve(BY_LIFE, batch=50, results_max=50))
    runs = tuple(map(run_of, range(28)))
    ends = [tuple((run, "well") for run in runs[first : first + 4]) for first in range(0, 28, 4)]
    step, polls = told(of), list[int]()

    def tell(event: WorkerEvent) -> None:
        nonlocal step
        step = of.step(step.state, event)
        polls.extend(each.most for each in step.commands if isinstance(each, Poll))

    tell(PollCompleted(at(10 * MILLISECOND), Poll("bill", 4), PollResult(runs[:4], is_more=True)))
    tell(HandlersEnded(at(20 * MILLISECOND), ends[0]))  # four in 20 ms: 20 in 100 ms
    assert polls == [4 + 20]
    tell(PollCompleted(at(30 * MILLISECOND), Poll("bill", 24), PollResult(runs[4:], is_more=True)))
    assert StartHandlers(runs[4:8]) in step.commands
    tell(HandlersEnded(at(31 * MILLISECOND), ends[1]))
    assert StartHandlers(runs[8:12]) in step.commands
    tell(HandlersEnded(at(32 * MILLISECOND), ends[2]))
    assert polls == [24]  # while half of them wait
    tell(HandlersEnded(at(33 * MILLISECOND), ends[3]))
    assert polls == [24, 50 - 8]
    tell(TimerFired(at(1_030 * MILLISECOND)))
    assert [each.run for each in step.state.running] == [*runs[16:20]]
    late = [each.run for each in step.state.results if each.value is InterruptReason.LATE]
    assert late == [*runs[20:]]


def test_a_process_that_was_silent_gives_back_what_runs_and_begins_another_life() -> None:
    run = run_of(1)
    step = told(MEMBER, taken(run), TimerFired(at(3 * SECOND)))
    assert Interrupt((run,), InterruptReason.SILENT) in step.commands
    assert Heartbeat(2, ()) in step.commands
    step = MEMBER.step(step.state, HandlersEnded(at(3 * SECOND), ((run, NO_ANSWER),)))
    assert written((run, InterruptReason.SILENT)) in step.commands
    assert not step.state.may_call(None, at(3 * SECOND))


def test_a_silence_counts_from_before_a_heartbeat_was_sent() -> None:
    step = MEMBER.step(WorkerState(), TimerFired(at(0)))
    step = MEMBER.step(step.state, HeartbeatAcked(at(2 * SECOND), Heartbeat(1, ()), is_alive=True))
    assert step.state.may_call(None, at(3 * SECOND - 1))
    assert not step.state.may_call(None, at(3 * SECOND))


def test_a_life_that_others_ended_is_over_at_once() -> None:
    step = told(MEMBER, TimerFired(at(SECOND)), HeartbeatAcked(at(SECOND), Heartbeat(1, ()), is_alive=False))
    assert Heartbeat(2, ()) in step.commands


def test_the_answer_of_an_interrupted_run_that_is_lost_does_not_count() -> None:
    run = run_of(1)
    beats = [
        HeartbeatAcked(at(number * SECOND), Heartbeat(1, (run,)), True, HeartbeatReply(((run, why),)))
        for number, why in ((1, InterruptReason.CANCEL), (2, InterruptReason.LOST))
    ]
    timers = TimerFired(at(SECOND)), TimerFired(at(2 * SECOND))
    ended = HandlersEnded(at(2 * SECOND), ((run, 1),))
    step = told(MEMBER, taken(run), timers[0], beats[0], timers[1], beats[1], ended)
    assert not any(isinstance(each, WriteResults) for each in step.commands)


def test_of_two_results_of_a_record_one_is_written_at_a_time() -> None:
    first, again = run_of(1), attrs.evolve(run_of(1), token=4)
    step = told(MEMBER, taken(first, again), HandlersEnded(at(1), ((first, 1), (again, 2))))
    assert written((first, 1)) in step.commands
    assert [each.run for each in step.state.results] == [again, first]


EVENTS: Final[tuple[tuple[WorkerCommand, object, WorkerEvent | None], ...]] = (
    (
        Poll("q", 3),
        Ambiguous("x"),
        PollCompleted(at(1), Poll("q", 3), PollResult(has_failed=True, is_uncertain=True)),
    ),
    (Poll("q", 3), PollResult((run_of(1),)), PollCompleted(at(1), Poll("q", 3), PollResult((run_of(1),)))),
    (PollGroup("g", ("q",), 1), Ambiguous("x"), GroupPolled(at(1), PollGroup("g", ("q",), 1))),
    (PollGroup("g", ("q",), 1), (("q", 0),), GroupPolled(at(1), PollGroup("g", ("q",), 1), (("q", 0),))),
    (written((run_of(1), 7)), Refused("x"), ResultsRefused(at(1), written((run_of(1), 7)))),
    (
        written((run_of(1), 7)),
        Ambiguous("x"),
        ResultsWritten(at(1), written((run_of(1), 7)), WriteReply(written((run_of(1), 7)).results)),
    ),
    (written(), WriteReply(is_more=True), ResultsWritten(at(1), written(), WriteReply(is_more=True))),
    (
        RenewLeases("q", (run_of(1),)),
        Ambiguous("x"),
        LeasesRenewed(at(1), RenewLeases("q", (run_of(1),)), (Renewal.UNKNOWN,)),
    ),
    (ReturnUntracked("q", ()), Ambiguous("x"), UntrackedReturned(at(1), ReturnUntracked("q", ()))),
    (ReturnUntracked("q", ()), 2, UntrackedReturned(at(1), ReturnUntracked("q", ()), 2)),
    (Heartbeat(1, ()), Ambiguous("x"), HeartbeatAcked(at(1), Heartbeat(1, ()), None)),
    (Heartbeat(1, ()), None, HeartbeatAcked(at(1), Heartbeat(1, ()), is_alive=False)),
    (Heartbeat(1, ()), HeartbeatReply(), HeartbeatAcked(at(1), Heartbeat(1, ()), is_alive=True)),
    (StartHandlers(()), (), HandlersEnded(at(1), ())),
    (Leave(1), None, Left(at(1))),
    (StartTimer(1), None, TimerFired(at(1))),
    (Interrupt((), InterruptReason.KILL), None, None),
    (CapacityGranted("q", "a request"), None, None),
    (Resume(()), None, None),
)


@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_what_became_of_a_command_is_an_event(number: int) -> None:
    command, reply, event = EVENTS[number]
    assert work_event_for(command, reply, at(1)) == event
    assert str(command)


@pytest.mark.parametrize(
    "event", [event for _, _, event in EVENTS if event is not None], ids=lambda each: type(each).__name__
)
@pytest.mark.parametrize("of", [LEASED, MEMBER])
def test_a_late_answer_changes_nothing(of: Worker, event: WorkerEvent) -> None:
    stopped = attrs.evolve(WorkerState(), is_stopped=True)
    assert of.step(stopped, event) == WorkerStep(stopped)
    before = told(of).state
    after = of.step(before, event).state
    assert (after.running, [*after.results], after.queues) == (before.running, [*before.results], before.queues)
    assert str(after)


@pytest.mark.parametrize("moves", [RunSuspended, ResumeRequested])
def test_a_run_that_is_not_here_is_neither_suspended_nor_resumed(moves: type[RunSuspended | ResumeRequested]) -> None:
    before = told(MEMBER).state
    assert MEMBER.step(before, moves(at(0), run_of(9))).state == before


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: attrs.evolve(BY_LEASE, queues=(BY_LEASE.queues[0], BY_LEASE.queues[0])),
        lambda: attrs.evolve(BY_LEASE, concurrency=0),
        lambda: attrs.evolve(BY_LEASE, prefetch=True),
        lambda: attrs.evolve(BY_LEASE, queues=BY_LIFE.queues),
        lambda: ByLife(heartbeat_every=SECOND, dead_after=SECOND),
        lambda: Queue(name=""),
        lambda: Run("a", "", 1),
        lambda: Run("a", "i", 1, 0),
        lambda: Run("a", "i", 0),
        lambda: work_event_for(Poll("bill", 3), "x", at(1)),
        lambda: work_event_for(cast("Any", Ambiguous("x")), None, at(1)),
        partial(LEASED.step, WorkerState(), cast("Any", "x")),
        partial(LEASED.step, WorkerState(), HandlersEnded(at(1), cast("Any", ((run_of(1),),)))),
        partial(
            MEMBER.step,
            WorkerState(),
            HeartbeatAcked(at(1), Heartbeat(1, ()), True, HeartbeatReply(((run_of(1), InterruptReason.TOO_LONG),))),
        ),
    ],
)
def test_what_is_wrong_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
