from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, WALL, Duration, Instant
from tidegate.services import executions
from tidegate.services.atomic_service import (
    AtomicService,
    AtomicServiceClaim,
    AtomicServiceRun,
    LateStart,
    Runner,
    ScheduledRunnerInGrace,
    SlotWindowInvalid,
    Window,
    decide_atomic_service_claim,
)
from tidegate.services.checks.laws import executions as laws
from tidegate.services.checks.strategies.atomic_service import claims, runs
from tidegate.services.checks.strategies.executions import admissions, endings, gates, histories, margins, releases
from tidegate.services.checks.strategies.executions import executions as rows
from tidegate.services.executions import (
    NO_MARGIN,
    Admitted,
    AlreadyEnded,
    Blocked,
    Ended,
    Enough,
    Execution,
    ExecutionStatus,
    Gate,
    GateVerdict,
    NoMargin,
    NotInTheGate,
    Released,
    skipped,
)
from tidegate.services.retention import Retention, surplus

EPOCH = Instant(0)
FAR = Instant(10**9)
LIVE = st.sets(st.sampled_from(("r0", "r1", "r2")))


def run_of(runner: str, run: str, window: Window | None = None) -> AtomicServiceRun:
    window = window or Window(EPOCH, FAR)
    return AtomicServiceRun(runner, run, window.start, window, window.start)


IN = Gate(3, Execution(id="x", runner_id="r0", start=EPOCH))


# --- the laws of one step -------------------------------------------------------------------------------------------------


ADMISSION: dict[str, Callable[[Gate, GateVerdict, Collection[str]], bool]] = {
    "EX1": laws.the_living_are_not_replaced,
    "EX2": lambda gate, admission, _: laws.tokens_grow(gate, admission),
    "EX3": laws.the_gone_block_nobody,
    "EX4": lambda gate, admission, _: laws.who_leaves_is_recorded(gate, admission),
}


@pytest.mark.parametrize("law", ADMISSION)
@given(gates(), runs(), LIVE)
@example(IN, run_of("r1", "y"), {"r0", "r1"})
@example(IN, run_of("r1", "y"), {"r1"})
@example(IN, run_of("r0", "x"), {"r0"})
@example(Gate(3), run_of("r0", "y"), {"r0"})
def test_an_admission_keeps(law: str, gate: Gate, run: AtomicServiceRun, live: set[str]) -> None:
    assert ADMISSION[law](gate, executions.admit(gate, run, live=live, now=FAR), live)


@given(
    st.one_of(st.none(), rows(st.just("x"))),
    st.sampled_from((ExecutionStatus.COMPLETED, ExecutionStatus.ABANDONED)),
)
@example(
    Execution(id="x", runner_id="r0", start=EPOCH, status=ExecutionStatus.ABANDONED, end=EPOCH),
    ExecutionStatus.COMPLETED,
)
def test_ex5_the_first_end_counts(row: Execution | None, outcome: ExecutionStatus) -> None:
    answer = executions.ended(row, run_of("r0", "x"), outcome, now=FAR)

    assert laws.the_first_end_counts(row, answer.execution)
    assert answer.execution.end is not None


@given(histories(), LIVE)
def test_ex6_exactly_the_gone_are_reaped(history: tuple[Execution, ...], live: set[str]) -> None:
    changed = executions.reaped(history, live=live, now=FAR)
    after = {each.id: each for each in (*history, *changed)}

    again = executions.reaped(tuple(after.values()), live=live, now=FAR)
    assert laws.exactly_the_gone_are_reaped(history, live, changed, again)


@given(runs(), st.integers(0, 20), st.integers(-70, 150))
@example(run_of("r0", "x", Window(EPOCH, Instant(10))), 4, 6)
@example(run_of("r0", "x", Window(EPOCH, Instant(10))), 0, 11)
def test_ex7_work_has_its_margin(run: AtomicServiceRun, least: Duration, at: int) -> None:
    now = Instant(at)

    assert laws.work_has_its_margin(run, least, now, executions.margin(run, least, now))


@given(histories(), st.integers(0, 25), st.integers(0, 25), st.integers(-1, 4))
def test_ex8_a_range_is_that(history: tuple[Execution, ...], since: int, until: int, limit: int) -> None:
    span = Instant(since), Instant(until)

    assert laws.is_the_range(history, *span, limit, executions.in_range(history, *span, limit=limit))


@given(gates(), st.sampled_from("xyz"), st.integers(1, 9))
@example(IN, "x", 3)
@example(IN, "y", 3)
@example(IN, "x", 2)
def test_ex9_only_the_run_in_the_gate_leaves(gate: Gate, run_id: str, token: int) -> None:
    assert laws.only_the_run_in_the_gate_leaves(gate, run_id, token, executions.released(gate, run_id, token))


# --- the laws of a race ---------------------------------------------------------------------------------------------------


@attrs.define
class World:
    lost: list[bool]
    gate: Gate = attrs.field(factory=Gate)
    history: dict[str, Execution] = attrs.field(factory=dict)
    live: set[str] = attrs.field(factory=set)
    now: Instant = EPOCH
    tokens: list[int] = attrs.field(factory=list)

    def swap(self, seen: Gate, to: Gate) -> bool:
        """Return whether the caller learns of its success; unreported writes may have happened."""
        if self.gate != seen:
            return False
        self.gate = to
        return not (self.lost and self.lost.pop())

    def tell(self, row: Execution) -> None:
        before = self.history.get(row.id)
        assert laws.the_first_end_counts(before, row)
        self.history[row.id] = row


def life(world: World, me: str) -> Generator[None, None, None]:
    for number in range(3):
        run = run_of(me, f"{me}.{number}")
        while True:
            seen, live = world.gate, frozenset(world.live)
            yield
            admission = executions.admit(seen, run, live=live, now=world.now)
            if isinstance(admission, Blocked):
                world.tell(admission.execution)
                break
            for row in admission.reaped:
                answer = executions.ended(
                    world.history.get(row.id, row),
                    run_of(row.runner_id, row.id),
                    ExecutionStatus.ABANDONED,
                    now=world.now,
                )
                world.tell(answer.execution)
            yield
            if admission.gate != seen and not world.swap(seen, admission.gate):
                continue
            yield from work(world, run, admission.gate)
            break


def work(world: World, run: AtomicServiceRun, gate: Gate) -> Generator[None, None, None]:
    assert gate.active is not None
    world.tokens.append(gate.token)
    yield
    row = world.history.get(run.run_id, gate.active)
    world.tell(executions.ended(row, run, ExecutionStatus.COMPLETED, now=world.now).execution)
    yield
    while True:
        seen = world.gate
        yield
        answer = executions.released(seen, run.run_id, gate.token)
        if isinstance(answer, NotInTheGate) or world.swap(seen, answer.gate):
            break


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("sssssk")), max_size=60),
    st.lists(st.booleans(), max_size=4),
)
@example([(0, "s"), (0, "s"), (0, "s"), (0, "k"), (1, "s"), (1, "s")], [])
@example([(0, "s"), (1, "s"), (0, "s"), (1, "s"), (0, "s"), (1, "s")], [])
def test_runners_race_and_are_killed(schedule: list[tuple[int, str]], lost: list[bool]) -> None:
    world = World(list(lost))
    lives = {f"r{number}": life(world, f"r{number}") for number in range(6)}
    world.live = set(lives)
    for who, what in schedule:
        step(world, lives, f"r{who}", what)
    for me in sorted(lives):
        for _ in range(100):
            step(world, lives, me, "s")
    settle(world)


def step(world: World, lives: dict[str, Generator[None, None, None]], me: str, what: str) -> None:
    if me not in lives:
        return
    world.now += 1
    before = world.gate
    if what == "k":
        world.live.discard(me)
        del lives[me]
        return
    next(lives[me], None)
    after = world.gate
    if after != before and before.active is not None and after.active is not None:
        assert before.active.runner_id not in world.live
    assert after.token >= before.token
    assert after == before or after.active is None or after.token > before.token


def settle(world: World) -> None:
    world.live = {"new"}
    admission = executions.admit(world.gate, run_of("new", "new"), live=world.live, now=world.now)

    assert isinstance(admission, Admitted)
    recorded = {each.id for each in admission.reaped} | world.history.keys()
    assert world.gate.active is None or world.gate.active.id in recorded
    assert world.tokens == sorted(set(world.tokens)), "each run that works has a greater token than all before it"


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    executions,
    # pynenc's shipped gate: a runner killed at work blocks it forever.
    bug(
        "nobody is reaped", ("if active is not None and active.runner_id in live:", "if active is not None:"),
        partial(test_an_admission_keeps, "EX3"), test_runners_race_and_are_killed,
    ),
    # Every running run is taken for an abandoned one.
    bug(
        "whoever comes is let in", ("if active is not None and active.runner_id in live:", "if False:"),
        ("(active,), live=live", "(active,), live=()"),
        partial(test_an_admission_keeps, "EX1"), test_runners_race_and_are_killed,
    ),
    # A reaped run and the admitted one look alike.
    bug(
        "one token", ("Gate(gate.token + 1, entered)", "Gate(max(1, gate.token), entered)"),
        partial(test_an_admission_keeps, "EX2"), test_runners_race_and_are_killed,
    ),
    bug("silently reaped", ("() if active is None else (active,)", "()"), partial(test_an_admission_keeps, "EX4")),
    bug(
        "the last end counts", ("    if execution.end is not None:\n        return AlreadyEnded(execution)\n", ""),
        test_ex5_the_first_end_counts, test_runners_race_and_are_killed,
    ),
    bug(
        "all that run are reaped", ("each.end is None and each.runner_id not in live", "each.end is None"),
        test_ex6_exactly_the_gone_are_reaped,
    ),
    bug(
        "what is over is ended once more",
        ("each.end is None and each.runner_id not in live", "each.runner_id not in live"),
        test_ex6_exactly_the_gone_are_reaped,
    ),
    # pynenc: a documented setting that no code reads.
    bug(
        "the margin is not read", ("Enough(left) if left >= max(1, least) else NoMargin(left, least)", "Enough(left)"),
        test_ex7_work_has_its_margin,
    ),
    # As in pynenc.
    bug(
        "what is under way counts by its start alone",
        ("(each.end is None or each.end - since >= 0)", "(each.end or each.start) - since >= 0"),
        test_ex8_a_range_is_that,
    ),
    bug("oldest first", ("[: max(0, limit)]", "[: max(0, limit)][::-1]"), test_ex8_a_range_is_that),
    # The runner that lost the gate empties it for its new holder.
    bug(
        "whoever is in leaves",
        ("if gate.active is None or gate.active.id != run_id or gate.token != token:", "if False:"),
        test_ex9_only_the_run_in_the_gate_leaves,
    ),
    bug(
        "whatever the token", ("gate.active.id != run_id or gate.token != token", "gate.active.id != run_id"),
        test_ex9_only_the_run_in_the_gate_leaves,
    ),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------


@given(claims())
def test_a_skip_is_recorded_where_somebody_should_know(claim: AtomicServiceClaim) -> None:
    left = skipped(claim, run_id="run", now=FAR)

    is_recorded = isinstance(claim.verdict, (SlotWindowInvalid, ScheduledRunnerInGrace, LateStart))
    assert [each.status for each in left] == [ExecutionStatus.BLOCKED] * is_recorded
    assert all(each.duration == 0 and each.reason == str(claim.verdict) for each in left)


def test_a_late_start_leaves_a_row_and_a_timely_one_none() -> None:
    """pynenc, case 12: 60 s, t = 45 s."""
    service, runner = AtomicService(interval=MINUTE, spread=0), (Runner("a", EPOCH),)
    rows_left = [
        skipped(
            decide_atomic_service_claim(
                service=each, runner_id="a", runners=runner, now=Instant(45 * SECOND), run_id="run"
            ),
            run_id="run",
            now=Instant(45 * SECOND),
        )
        for each in (service, attrs.evolve(service, start_fraction_ppm=0))
    ]

    assert [len(each) for each in rows_left] == [1, 0]
    assert rows_left[0][0].reason.startswith("late_start: 75.00%")


def test_of_sixteen_that_are_cleared_one_is_let_in() -> None:
    """pynenc, cases 21 and 22: the blocked rows name the run before them."""
    live = {f"r{number}" for number in range(16)}
    gate, blocked = Gate(), list[Execution]()
    for runner in sorted(live):
        admission = executions.admit(gate, run_of(runner, f"run-{runner}"), live=live, now=FAR)
        if isinstance(admission, Admitted):
            gate = admission.gate
        else:
            blocked.append(admission.execution)

    assert gate == Gate(1, Execution(id="run-r0", runner_id="r0", start=FAR))
    assert [each.reason for each in blocked] == ["prior_running:run-r0 runner:r0"] * 15


def test_a_joiner_whose_slot_it_is_finds_the_gate_taken() -> None:
    """pynenc, case 23."""
    service = AtomicService(interval=MINUTE, spread=0)
    both = (Runner("a", EPOCH), Runner("b", EPOCH))
    ask = {"service": service, "run_id": "run"}
    alone = decide_atomic_service_claim(**ask, runner_id="a", runners=both[:1], now=EPOCH)  # type: ignore[arg-type]
    gate = executions.admit(Gate(), alone.verdict.run, live={"a"}, now=EPOCH).gate  # type: ignore[union-attr]
    later = decide_atomic_service_claim(
        service=service, runner_id="b", runners=both, now=Instant(30 * SECOND), run_id="other"
    )
    admission = executions.admit(gate, later.verdict.run, live={"a", "b"}, now=FAR)  # type: ignore[union-attr]

    assert isinstance(admission, Blocked)
    assert admission.execution.runner_id == "b"


def test_a_runner_knows_itself_again() -> None:
    """Its gate write got no reply; the retry finds the run under the same token."""
    run = run_of("r0", "x")
    first = executions.admit(Gate(7), run, live={"r0"}, now=EPOCH)
    assert isinstance(first, Admitted)
    assert first.gate.token == 8

    assert executions.admit(first.gate, run, live={"r0"}, now=FAR) == Admitted(first.gate)


def test_a_runner_that_was_killed_at_work_is_reaped() -> None:
    """pynenc: documented, but its shipped gate stays shut."""
    admission = executions.admit(IN, run_of("r1", "y"), live={"r1"}, now=FAR)

    assert isinstance(admission, Admitted)
    assert admission.gate == Gate(4, Execution(id="y", runner_id="r1", start=FAR))
    assert admission.reaped == (
        Execution(
            id="x", runner_id="r0", start=EPOCH, status=ExecutionStatus.ABANDONED, end=FAR, reason="runner_gone:r0"
        ),
    )


@pytest.mark.parametrize(
    ("least", "at", "expected"),
    [
        (50 * MILLISECOND, 90 * SECOND - 50 * MILLISECOND, Enough(50 * MILLISECOND)),
        (50 * MILLISECOND, 90 * SECOND - 10 * MILLISECOND, NoMargin(10 * MILLISECOND, 50 * MILLISECOND)),
        (0, 90 * SECOND - 1, Enough(1)),
        (0, 90 * SECOND, NoMargin(0, 0)),
        (0, 91 * SECOND, NoMargin(-SECOND, 0)),
    ],
)
def test_a_claim_at_the_end_of_its_slot_does_no_work(least: int, at: int, expected: Enough | NoMargin) -> None:
    """pynenc: grants a claim 10 ms before the end of the slot."""
    run = run_of("a", "x", Window(EPOCH, Instant(90 * SECOND)))

    assert executions.margin(run, least, Instant(at)) == expected


def test_no_margin_reads_as_one_line() -> None:
    assert str(NoMargin(SECOND, 2 * SECOND)) == f"{NO_MARGIN}: 1 s of the window are left, and 2 s are needed"


def test_an_end_tells_how_long_it_took() -> None:
    row, run = Execution(id="x", runner_id="r0", start=Instant(10), reason="old"), run_of("r0", "x")
    ended = executions.ended(row, run, ExecutionStatus.COMPLETED, now=Instant(15))
    missing = executions.ended(None, run, ExecutionStatus.ABANDONED, reason="exception:ValueError", now=Instant(15))
    back = executions.ended(row, run, ExecutionStatus.ABANDONED, reason=NO_MARGIN, now=Instant(5))

    assert isinstance(ended, Ended)
    assert (ended.execution.duration, ended.execution.reason) == (5, "old")
    assert (missing.execution.duration, missing.execution.reason) == (0, "exception:ValueError")
    assert (back.execution.end, back.execution.reason) == (Instant(10), NO_MARGIN)
    assert executions.ended(ended.execution, run, ExecutionStatus.ABANDONED, now=FAR) == AlreadyEnded(ended.execution)
    assert row.duration == 0


def finished(name: str, start: int, length: Duration, runner: str = "r0") -> Execution:
    return Execution(
        id=name,
        runner_id=runner,
        start=Instant(start * SECOND),
        status=ExecutionStatus.COMPLETED,
        end=Instant(start * SECOND + length),
    )


def test_a_range_can_be_narrowed() -> None:
    """pynenc, cases 26 and 30."""
    history = (finished("a", 1, SECOND // 2), finished("b", 2, 1_200 * MILLISECOND), finished("c", 3, SECOND, "r1"))

    def found(**narrowed: Any) -> str:
        return "".join(each.id for each in executions.in_range(history, EPOCH, FAR, **{"limit": 9, **narrowed}))

    assert found() == "cba"
    assert found(duration_min=SECOND + 1) == "b"
    assert found(runner_id="r1") == "c"
    assert found(limit=2) == "cb"
    assert found(limit=0) == found(limit=-1) == ""


def test_a_history_is_cut_and_keeps_what_runs() -> None:
    """pynenc, cases 27 to 29: a running row stays at any age."""
    history = (
        Execution(id="runs", runner_id="r0", start=EPOCH),
        *(finished(str(number), number, 0) for number in range(5)),
    )
    gone = surplus(
        tuple(each.row for each in history),
        Retention(age=2 * MINUTE, count=2),
        protected={"0"},
        now=Instant(2 * MINUTE + SECOND + 1),
    )

    assert gone == ("1", "2")


def test_an_execution_reads_as_one_line() -> None:
    assert str(finished("x", 1, 5)) == "run 'x' of 'r0' from 1 s@store, completed"
    assert str(skipped_row()) == "run 'y' of 'r1' from 0 s@store, blocked: prior_running:x runner:r0"


def skipped_row() -> Execution:
    admission = executions.admit(IN, run_of("r1", "y"), live={"r0", "r1"}, now=EPOCH)
    assert isinstance(admission, Blocked)
    return admission.execution


# --- bad input ----------------------------------------------------------------------------------------------------------

CLAIM = decide_atomic_service_claim(service=AtomicService(), runner_id="a", runners=(), now=EPOCH, run_id="x")
ROW: dict[str, Any] = {"id": "x", "runner_id": "r0", "start": Instant(5)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"runner_id": None},
        {"start": 5},
        {"end": Instant(6)},
        {"status": ExecutionStatus.COMPLETED},
        {"status": "running"},
        {"status": ExecutionStatus.COMPLETED, "end": Instant(4)},
        {"status": ExecutionStatus.COMPLETED, "end": 6},
        {"status": ExecutionStatus.COMPLETED, "end": Instant(6, WALL)},
        {"status": ExecutionStatus.BLOCKED, "end": Instant(6)},
        {"reason": None},
    ],
    ids=lambda wrong: type(wrong).__name__,
)
def test_an_execution_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Execution(**{**ROW, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [None, True, -1, 1.5, "x", b"x", object(), (None,), ExecutionStatus, FAR],
    ids=lambda wrong: type(wrong).__name__,
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    run = run_of("r0", "x")
    none: Any = object()
    instant: Any = none if wrong == FAR else wrong
    calls: list[Callable[[], object]] = [
        lambda: Gate(0 if wrong is None else wrong, IN.active),
        lambda: Gate(1, none if wrong is None else wrong),
        lambda: Gate(1, finished("x", 1, 1)),
        lambda: skipped(wrong, run_id="x", now=FAR),
        lambda: skipped(CLAIM, run_id=none if wrong == "x" else wrong, now=FAR),
        lambda: skipped(CLAIM, run_id="x", now=instant),
        lambda: executions.admit(wrong, run, live=(), now=FAR),
        lambda: executions.admit(IN, wrong, live=(), now=FAR),
        lambda: executions.admit(IN, run, live=wrong, now=FAR),
        lambda: executions.admit(IN, run, live=(), now=instant),
        lambda: executions.reaped(wrong, live=(), now=FAR),
        lambda: executions.reaped((), live=wrong, now=FAR),
        lambda: executions.reaped((), live=(), now=instant),
        lambda: executions.margin(wrong, 1, FAR),
        lambda: executions.margin(run, wrong, FAR),
        lambda: executions.margin(run, 1, instant),
        lambda: executions.ended(none if wrong is None else wrong, run, ExecutionStatus.COMPLETED, now=FAR),
        lambda: executions.ended(None, wrong, ExecutionStatus.COMPLETED, now=FAR),
        lambda: executions.ended(None, run, wrong, now=FAR),
        lambda: executions.ended(None, run, ExecutionStatus.COMPLETED, now=instant),
        lambda: executions.ended(IN.active, run, ExecutionStatus.COMPLETED, now=instant),
        lambda: executions.ended(None, run, ExecutionStatus.COMPLETED, reason=none if wrong == "x" else wrong, now=FAR),
        lambda: executions.released(wrong, "x", 1),
        lambda: executions.released(IN, none if wrong == "x" else wrong, 1),
        lambda: executions.released(IN, "x", wrong),
        lambda: executions.in_range(wrong, EPOCH, FAR, limit=1),
        lambda: executions.in_range((), EPOCH, instant, limit=1),
        lambda: executions.in_range((), instant, FAR, limit=1),
        lambda: executions.in_range((), EPOCH, FAR, limit=none if wrong == -1 else wrong),
        lambda: executions.in_range((), EPOCH, FAR, limit=1, runner_id=none if wrong in (None, "x") else wrong),
        lambda: executions.in_range((), EPOCH, FAR, limit=1, duration_min=wrong),
    ]
    for call in calls:
        with pytest.raises(Misuse):
            call()


def test_a_run_ends_as_completed_or_abandoned_and_in_its_own_row() -> None:
    with pytest.raises(Misuse, match="as completed or as abandoned"):
        executions.ended(None, run_of("r0", "x"), ExecutionStatus.BLOCKED, now=FAR)
    with pytest.raises(Misuse, match="is not run 'y'"):
        executions.ended(IN.active, run_of("r0", "y"), ExecutionStatus.COMPLETED, now=FAR)


def test_two_clocks_are_not_compared() -> None:
    """Law T2 of instants."""
    with pytest.raises(Misuse, match="compare"):
        executions.admit(IN, run_of("r1", "y"), live={"r1"}, now=Instant(5, WALL))


@pytest.mark.parametrize(
    ("drawn", "case"),
    [
        (admissions(), lambda verdict: isinstance(verdict, Blocked)),
        (admissions(), lambda verdict: isinstance(verdict, Admitted) and not verdict.reaped),
        (admissions(), lambda verdict: isinstance(verdict, Admitted) and verdict.reaped),
        *((margins(), lambda verdict, kind=kind: isinstance(verdict, kind)) for kind in (Enough, NoMargin)),
        *((endings(), lambda verdict, kind=kind: isinstance(verdict, kind)) for kind in (Ended, AlreadyEnded)),
        *((releases(), lambda verdict, kind=kind: isinstance(verdict, kind)) for kind in (Released, NotInTheGate)),
    ],
)
def test_every_case_is_drawn(drawn: st.SearchStrategy[object], case: Callable[[object], bool]) -> None:
    must_draw(drawn, case)
