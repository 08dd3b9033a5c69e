"""The runtime of reducers with misbehaving code, on the deterministic loop."""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeAlias, final

import attrs
import pytest
from tests.integration import planting
from tests.integration.planting import Bug

from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.reducer import Step
from tidegate_adapters.runtime.reducers import (
    After,
    Call,
    CallEach,
    Ended,
    Interrupt,
    InterruptEach,
    Job,
    Observer,
    Runtime,
    Withdraw,
    _Runners,
)
from tidegate_adapters.testing.event_loop import run, stall

RUNS: Final = 300
PATIENCE_S: Final = 1.0

# --- a reducer: tasks with a limit, tried at most twice -------------------------------------------------------------------


@final
@attrs.frozen
class Task:
    number: int
    attempt: int
    how: tuple[str, ...] = attrs.field(eq=False)


@final
@attrs.frozen
class Limit:
    task: Task


@final
@attrs.frozen
class GiveUp:
    what: Task | Limit
    quietly: bool


Command: TypeAlias = Task | Limit | GiveUp


@final
@attrs.frozen
class Came:
    tasks: tuple[Task, ...]


@final
@attrs.frozen
class Reported:
    task: Task
    calls: tuple[tuple[int, bool], ...]


@final
@attrs.frozen
class Over:
    task: Task


Event: TypeAlias = Came | Reported | Over


@final
@attrs.frozen
class Crew:
    waiting: tuple[Task, ...] = ()
    under_way: tuple[tuple[Task, frozenset[int], bool], ...] = ()
    done: tuple[tuple[int, bool], ...] = ()
    wrong: tuple[str, ...] = ()


@final
@attrs.frozen
class Rules:
    """At most two tasks run, a failed one is retried once. Merged events may come late."""

    is_merged: bool = False

    def step(self, state: Crew, event: Event) -> Step[Crew, Command]:
        match event:
            case Came(tasks):
                return self.filled(attrs.evolve(state, waiting=(*state.waiting, *tasks)), ())
            case Over(task):
                if not self.is_merged and not any(task == each for each, *_ in state.under_way):
                    return Step(attrs.evolve(state, wrong=(*state.wrong, f"the timer of {task} was withdrawn")))
                return Step(state, (GiveUp(task, quietly=False),))
            case Reported(task, calls):
                return self.reported(state, task, calls)

    def reported(self, state: Crew, task: Task, calls: tuple[tuple[int, bool], ...]) -> Step[Crew, Command]:
        if any(place < 0 for place, _ in calls):
            raise Misuse("there is no such place")
        found = [each for each in state.under_way if each[0] == task]
        if not found or not {place for place, _ in calls} <= found[0][1] or not calls:
            return Step(attrs.evolve(state, wrong=(*state.wrong, f"{task} {calls} was told twice, or not asked for")))
        left = found[0][1] - {place for place, _ in calls}
        has_failed = found[0][2] or any(failed for _, failed in calls)
        others = tuple(each for each in state.under_way if each[0] != task)
        if left:
            return Step(attrs.evolve(state, under_way=(*others, (task, left, has_failed))))
        limit = GiveUp(Limit(task), quietly=True)
        if has_failed and task.attempt == 1:
            again = Task(task.number, 2, task.how)
            return self.filled(attrs.evolve(state, under_way=others, waiting=(*state.waiting, again)), (limit,))
        done = (*state.done, (task.number, has_failed))
        return self.filled(attrs.evolve(state, under_way=others, done=done), (limit,))

    def filled(self, state: Crew, first: tuple[Command, ...]) -> Step[Crew, Command]:
        commands = list(first)
        while state.waiting and len(state.under_way) < 2:
            task, *rest = state.waiting
            begun = (task, frozenset(range(len(task.how))), False)
            state = attrs.evolve(state, waiting=tuple(rest), under_way=(*state.under_way, begun))
            commands += (Limit(task), task)
            if "at once" in task.how:  # interrupted before any of it has begun
                commands.append(GiveUp(task, quietly=False))
        return Step(state, tuple(commands))


# --- user code ------------------------------------------------------------------------------------------------------------

PLACE: contextvars.ContextVar[object] = contextvars.ContextVar("PLACE", default=None)
HOW: Final = (
    "returns", "returns", "waits", "waits", "raises", "cancels", "cancels itself", "exits", "is interrupted", "hangs", "swallows", "is stubborn",
    "answers nonsense", "answers for another", "sets a variable", "times out", "at once", "stalls", "closes", "returns an error", "is no coroutine",
)  # fmt: skip


@final
class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.begun: list[tuple[int, int, int]] = []
        self.ended: list[tuple[int, int, int]] = []
        self.exits: list[BaseException] = []
        self.met: dict[Task, asyncio.Barrier] = {}
        self.wrong: list[str] = []

    async def code(self, task: Task, place: int) -> object:
        name, how = (task.number, task.attempt, place), task.how[place]
        me = asyncio.current_task()
        assert me is not None
        self.begun.append(name)
        if PLACE.get() is not None or me.cancelling():
            self.wrong.append(f"{name} finds what another has left: {PLACE.get()}, {me.cancelling()} cancellations")
        try:
            return await self.does(how, task, me)
        finally:
            self.ended.append(name)

    async def does(self, how: str, task: Task, me: asyncio.Task[Any]) -> object:
        if how in {"hangs", "at once"}:
            await asyncio.Event().wait()
        match how:
            case "meets":
                self.met.setdefault(task, asyncio.Barrier(len(task.how)))
                await self.met[task].wait()
            case "waits":
                await asyncio.sleep(self.random.choice([0, 0.5, 1]))
            case "stalls":
                stall(timedelta(seconds=self.random.choice([0.5, 1.5])))
                await asyncio.sleep(0)
            case "raises":
                await asyncio.sleep(self.random.choice([0, 0.5]))
                raise ValueError("on purpose")
            case "cancels":
                raise asyncio.CancelledError
            case "cancels itself":
                me.cancel()
                await asyncio.sleep(self.random.choice([0, 1]))
            case "exits" | "is interrupted":
                self.exits.append(SystemExit(3) if how == "exits" else KeyboardInterrupt())
                raise self.exits[-1]
            case "swallows":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await asyncio.sleep(1)
            case "is stubborn":
                for _ in range(2):
                    try:
                        await asyncio.sleep(3)
                    except asyncio.CancelledError:
                        continue
                    raise ValueError("was not interrupted, and is late")
            case "sets a variable":
                PLACE.set(task)
                await asyncio.sleep(self.random.choice([0, 1]))
            case "times out":
                try:
                    async with asyncio.timeout(1):
                        await asyncio.Event().wait()
                except TimeoutError:
                    pass
            case "closes":
                raise GeneratorExit
            case "returns an error":
                return ValueError("returned")
            case "answers nonsense" | "answers for another":
                return how
            case _:
                pass
        return None

    def begin(self, command: Command) -> Job | None:
        match command:
            case Task(how=how) as task:
                if how[0] == "is no coroutine":
                    return CallEach(lambda _: None, range(len(how)))  # type: ignore[arg-type, return-value]
                if len(how) == 1:
                    return Call(lambda: self.code(task, 0))
                return CallEach(lambda place: self.code(task, place), range(len(how)))
            case Limit():
                return After(PATIENCE_S)
            case GiveUp(Task() as what, quietly=False) if len(what.how) > 1:
                return InterruptEach(lambda command, _: command == what)
            case GiveUp(what, quietly):
                return Withdraw(what) if quietly else Interrupt(what)

    def event_for(self, command: Command, reply: object) -> Event | None:
        match command:
            case Task(how=how) as task:
                if isinstance(reply, Exception) and len(how) > 1:  # RT3: remaining calls are unknown
                    return Reported(task, ((0, True),))
                replies = reply if isinstance(reply, tuple) else (Ended(0, reply),)
                if any(each.reply == "answers for another" for each in replies):
                    return Reported(task, ((-1, False),))
                if any(each.reply == "answers nonsense" for each in replies):
                    raise Misuse("nonsense is no answer") if len(how) == 1 else AssertionError
                return Reported(task, tuple((each.given, isinstance(each.reply, BaseException)) for each in replies))
            case Limit(task):
                assert reply is None
                return Over(task)
            case GiveUp():
                return None


def merged(events: Sequence[Event]) -> Iterable[Event]:
    came = tuple(task for event in events if isinstance(event, Came) for task in event.tasks)
    return [*([Came(came)] if came else []), *(event for event in events if not isinstance(event, Came))]


def tasks(random: Random, count: int) -> tuple[Task, ...]:
    found = []
    for number in range(count):
        how = tuple(random.choices(HOW, k=random.choice([1, 1, 2, 4])))
        if len(how) > 1:  # one nonsensical reply of several is checked with one call
            alone = {"answers nonsense", "answers for another", "is no coroutine"}
            how = tuple("raises" if each in alone else each for each in how)
        found.append(Task(number, 1, random.choice([how, how, how, ("meets",) * len(how) * 2])))
    return tuple(found)


@final
@attrs.frozen
class Told:
    events: list[Event] = attrs.field(factory=list)

    def note(self, event: Event, _: Crew, __: Sequence[Command]) -> None:
        self.events.append(event)


Made: TypeAlias = type[Runtime[Crew, Event, Command]]


def course(made: Made) -> Callable[[Random], Any]:
    async def main(random: Random) -> None:
        world, told = World(random), Told()
        fails, raised = random.choice([0, 0.3, 1]), list[None]()

        def fallible(*_: object) -> None:
            if random.random() < fails:
                raised.append(None)
                raise random.choice([ValueError, asyncio.CancelledError])

        merge = random.choice([None, merged])
        observers: list[Observer[Event, Crew, Command]] = [fallible, told.note]
        runtime = made(
            Rules(is_merged=merge is not None), Crew(), world.begin, world.event_for, merge=merge,
            observers=observers, observer_failures_max=random.choice([None, 3]),
        )  # fmt: skip
        asked = tasks(random, random.randint(3, 8))
        heap = random.randint(1, len(asked))
        runtime.tell(Came(asked[:heap]))
        for task in asked[heap:]:
            runtime.tell(Came((task,)))
            await asyncio.sleep(random.choice([0, 0, 1]))
        exits: list[BaseException] = []
        state = Crew()
        while len(state.done) < len(asked):
            try:
                state = await runtime.until(lambda state: len(state.done) == len(asked))
            except (SystemExit, KeyboardInterrupt) as error:
                exits.append(error)
        assert (runtime.working(), runtime._works) == ([], {}), "RT1: all has ended, and is forgotten"
        events = len(told.events)
        runtime.tell(Came((Task(99, 1, ("hangs", "returns", "waits")),)))
        if random.random() < 0.7:
            await asyncio.sleep(random.choice([0, 0.2]))
        before = len(told.events)
        await runtime.close()
        await asyncio.sleep(100)

        assert world.wrong == [], "RT5, and what one call leaves the next does not find"
        assert state.wrong == (), "RT1"
        assert sorted(number for number, _ in state.done) == list(range(len(asked))), "RT1"
        assert list(map(id, exits)) == list(map(id, world.exits)), "RT2"
        assert before == len(told.events) <= events + 3, "RT7"
        assert len(asyncio.all_tasks()) == 1, "RT7"
        assert runtime.observer_failures == len(raised), "RT4"
        assert max(Counter(world.begun).values(), default=1) == 1, "RT1"
        at_once = {task.number for task in asked if "at once" in task.how}
        assert not at_once & {number for number, *_ in world.begun}, "RT5"
        failed = {number for number, has_failed in state.done if has_failed}
        stalls = any("stalls" in task.how for task in asked)  # then the time may be over before they meet
        assert stalls or not failed & {task.number for task in asked if "meets" in task.how}, "RT8"
        came = [task.number for event in told.events if isinstance(event, Came) for task in event.tasks]
        assert came[: len(asked)] == list(range(len(asked))), "RT6"
        ended = [
            (event.task.number, event.task.attempt, place)
            for event in told.events
            if isinstance(event, Reported)
            for place, _ in event.calls
        ]
        alone = [each for each in ended if each in world.ended]
        of_task = {each[:2]: [one for one in alone if one[:2] == each[:2]] for each in alone}
        for name, order in of_task.items():
            assert name[0] == 99 or order == [each for each in world.ended if each[:2] == name], "RT6"

    return main


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.tidegate(runs=RUNS)
def test_whatever_code_does_each_call_is_told_once_and_nothing_is_left(seeded: Any) -> None:
    """Laws RT1 to RT8."""
    seeded.run(course(Runtime))


# --- planted faults -------------------------------------------------------------------------------------------------------


class ObserverLosesCommands(Runtime[Crew, Event, Command]):
    """Planted: later commands are lost where an observer raises."""

    def _follow(self, event: Event, step: Step[Crew, Command]) -> None:
        failures = self.observer_failures
        silent = Step[Crew, Command](step.state)
        super()._follow(event, silent)
        if failures == self.observer_failures:
            for command in step.commands:
                self._carry_out(command)


class CancellationSwallowed(Runtime[Crew, Event, Command]):
    """Planted: code that ends with CancelledError counts as a cancelled runner."""

    def _end(self, work: Any, given: object, reply: object, seconds: float = 0.0) -> None:
        if not isinstance(reply, asyncio.CancelledError):
            super()._end(work, given, reply, seconds)


class SlotLeaked(Runtime[Crew, Event, Command]):
    """Planted: only an Exception counts as an end."""

    def _end(self, work: Any, given: object, reply: object, seconds: float = 0.0) -> None:
        if not isinstance(reply, SystemExit | KeyboardInterrupt | GeneratorExit):
            super()._end(work, given, reply, seconds)


class TimerNotCancelled(Runtime[Crew, Event, Command]):
    def _withdraw(self, work: Any) -> None:
        if work.timer is None:
            super()._withdraw(work)


class OutOfOrder(Runtime[Crew, Event, Command]):
    def _turn(self) -> None:
        self._told.reverse()
        super()._turn()


class EndsOutOfOrder(Runtime[Crew, Event, Command]):
    """Planted: of calls that ended in one turn, the last is reported first."""

    def _as_event(self, told: Any) -> Any:
        if not isinstance(told, Came | Reported | Over):
            told.ended.reverse()
        return super()._as_event(told)


class MergedHalfway(Runtime[Crew, Event, Command]):
    """Planted: where a merged batch raises, the events before it step twice."""

    def _step_merged(self, _: Any, told: Any) -> None:
        found = [pair for each in told if (pair := self._as_event(each)) is not None]
        self._step(*found[0])
        for pair in found:
            self._step(*pair)


class NonsenseIsDropped(Runtime[Crew, Event, Command]):
    def _answered(self, command: Command, reply: object) -> Event | None:
        try:
            return self._event_for(command, reply)
        except Exception:  # noqa: BLE001
            return None


class WithdrawnIsTold(Runtime[Crew, Event, Command]):
    """Planted: a call withdrawn in the turn of its end is reported, as it once was."""

    def _turn(self) -> None:
        for each in self._told:
            if not isinstance(each, Came | Reported | Over):
                each.is_withdrawn = False
        told = [self._as_event(each) for each in self._told]
        self._told = [pair[1] for pair in told if pair is not None]
        super()._turn()


class ExitSwallowed(Runtime[Crew, Event, Command]):
    def _note(self, error: BaseException) -> None:
        pass


class ToldAfterClosing(Runtime[Crew, Event, Command]):
    """Planted: events step after the end."""

    def _turn(self) -> None:
        is_closed, self._is_closed = self._is_closed, False
        super()._turn()
        self._is_closed = is_closed


PLANTED: Final[tuple[Made, ...]] = (
    ObserverLosesCommands, CancellationSwallowed, SlotLeaked, TimerNotCancelled, OutOfOrder, EndsOutOfOrder, MergedHalfway,
    NonsenseIsDropped, WithdrawnIsTold, ExitSwallowed, ToldAfterClosing,
)  # fmt: skip
CALLED_IN: Final = "for _ in range(min(2, len(self._queue) - self._coming)):"
AS_NEW: Final = """    for _ in range(runner.cancels):
        runner.task.uncancel()
    runner.cancels = 0
    return not runner.task.cancelling() and"""
OF_RUNNERS: Final[Mapping[str, Bug]] = {
    "interrupted code is told at once, and again when it ends": Bug(_Runners.interrupt, "runner.cancel()", "self._ended(runner.work, runner.given, Refused('interrupted'), 0.0); runner.cancel()"),
    "code that has not begun is not interrupted": Bug(_Runners.interrupt, "[each for each in self._queue if is_wanted(*each)]", "[]"),
    "a runner is used again whatever is left in its context": Bug(_Runners._is_as_new, "and contextvars.copy_context() == self.context", ""),
    "a runner that was interrupted is used again as it is": Bug(_Runners._is_as_new, AS_NEW, "    runner.cancels = 0\n    return"),
    "one call after the other": Bug(_Runners._call_in, CALLED_IN, "for _ in range(0 if self._all else 1):"),
    "closing cancels nothing": Bug(Runtime.close, "runner.cancel()", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.__name__)
def test_a_planted_fault_is_found(planted: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the seeds, through a law, a deadlock, or an endless run."""
    check_found(planted, monkeypatch)


def test_that_nobody_comes_for_a_runner_that_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    four = Bug(_Runners._call_in, CALLED_IN, CALLED_IN.replace("):", " if len(self._all) < 4 else 0):"))
    with planting.planted(four), planting.planted(Bug(_Runners._retired, "if not self.is_closed:", "if False:")):
        check_found(Runtime, monkeypatch)


@pytest.mark.parametrize("bug", OF_RUNNERS)
def test_a_planted_fault_of_the_runners_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planting.planted(OF_RUNNERS[bug]):
        check_found(Runtime, monkeypatch)


def check_found(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate_adapters.testing.event_loop.TURNS_MAX", 20_000)

    def is_found(seed: int) -> bool:
        try:
            run(course(made), seed)
        except (AssertionError, TidegateError):
            return True
        return False

    assert any(map(is_found, range(RUNS)))


def test_what_a_call_is_given_is_made_when_its_turn_has_come() -> None:
    """Laws RT1 and RT2: an exception while making the value is the reply."""
    made: list[int] = []
    told: list[Ended] = []

    def make(each: int) -> str:
        made.append(each)
        if each == 2:
            raise KeyError(each)
        return str(each)

    async def code(given: str) -> None:
        assert made[-1] == int(given)
        await asyncio.Event().wait()

    @attrs.frozen
    class Both:
        def step(self, state: int, event: object) -> Step[int, object]:
            if isinstance(event, tuple):
                told.extend(event)
            return Step(state + isinstance(event, tuple), (event,) if isinstance(event, str) else ())

    def begin(command: object) -> CallEach | InterruptEach:
        return CallEach(code, (1, 2, 3), None, make) if command == "call" else InterruptEach(lambda *_: True)

    async def scenario(*, is_late: bool) -> list[tuple[object, str]]:
        made.clear()
        told.clear()
        runtime = Runtime(Both(), 0, begin, lambda _, reply: reply)
        runtime.tell("call")
        if is_late:
            await runtime.until(lambda _: len(told) == 1)
            await asyncio.sleep(1)
        runtime.tell("interrupt")
        await runtime.until(lambda _: len(told) == 3)
        await runtime.close()
        return sorted(((each.given, type(each.reply).__name__) for each in told), key=str)

    assert run(lambda _: scenario(is_late=False), 1) == [(each, "Refused") for each in (1, 2, 3)]
    assert made == []
    assert run(lambda _: scenario(is_late=True), 1) == [("1", "Refused"), ("3", "Refused"), (2, "KeyError")]
    assert sorted(made) == [1, 2, 3]


def test_what_a_call_ends_with_has_ended_before_it_is_told() -> None:
    """Law RT9. Its exceptions are the reply, and it is interrupted alike."""

    @attrs.frozen
    class Asked:
        given: tuple[object, ...]

    @attrs.frozen
    class All:
        def step(self, state: tuple[object, ...], event: object) -> Step[tuple[object, ...], object]:
            return Step(state, (event,)) if isinstance(event, Asked | Interrupt) else Step((*state, event))

    async def scenario() -> None:
        ended: list[object] = []

        async def code(given: object) -> object:
            return None if given == "none" else given

        async def then(given: object, reply: object) -> object:
            assert given == reply
            await asyncio.sleep(0)
            if given == "raises":
                raise KeyError(given)
            if given == "hangs":
                await asyncio.Event().wait()
            ended.append(given)
            return "replaced"

        def begin(command: object) -> CallEach | InterruptEach:
            if isinstance(command, Asked):
                return CallEach(code, command.given, then)
            return InterruptEach(lambda _, given: given == "hangs")

        def told(_: object, reply: object) -> object:
            assert isinstance(reply, tuple)
            assert all(each.reply != "replaced" or each.given in ended for each in reply)
            return tuple((each.given, each.reply) for each in reply)

        runtime: Runtime[tuple[object, ...], object, object] = Runtime(All(), (), begin, told)
        runtime.tell(Asked(("none", "sends", "raises", "hangs")))
        await runtime.until(lambda state: sum(map(len, state)) == 3)  # type: ignore[arg-type]
        runtime.tell(Interrupt(None))
        state = await runtime.until(lambda state: sum(map(len, state)) == 4)  # type: ignore[arg-type]
        found = {given: reply for some in state for given, reply in some}  # type: ignore[attr-defined]
        assert isinstance(found.pop("raises"), KeyError)
        assert found == {"none": None, "sends": "replaced", "hangs": Refused("interrupted")}
        await runtime.close()

    asyncio.run(scenario())


def test_code_that_raises_a_cancellation_of_its_own_was_not_interrupted() -> None:
    """Law RT2, in the first call of a runner and in later ones."""

    @attrs.frozen
    class Asks:
        def step(self, state: tuple[object, ...], event: object) -> Step[tuple[object, ...], object]:
            return Step(state, (event,)) if isinstance(event, int) else Step((*state, type(event)))

    async def scenario() -> None:
        async def code() -> None:
            raise asyncio.CancelledError

        runtime: Runtime[tuple[object, ...], object, object]
        runtime = Runtime(Asks(), (), lambda _: Call(code), lambda _, reply: reply)
        for number in range(2):
            runtime.tell(number)
            state = await runtime.until(lambda state, number=number: len(state) == number + 1)  # type: ignore[misc]
            assert state == (asyncio.CancelledError,) * (number + 1)
        await runtime.close()

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_what_cannot_begin_and_is_withdrawn_is_not_told() -> None:
    """Law RT1, of a command that already failed to start."""

    @attrs.frozen
    class Asks:
        def step(self, state: int, event: object) -> Step[int, object]:
            return Step(state, ("begin", "withdraw")) if event == "both" else Step(state + 1)

    def begin(command: object) -> Withdraw:
        if command == "begin":
            raise ValueError(command)
        return Withdraw("begin")

    async def scenario() -> int:
        runtime: Runtime[int, object, object] = Runtime(Asks(), 0, begin, lambda _, reply: reply)
        runtime.tell("both")
        runtime.tell("other")
        await runtime.stepped()
        await asyncio.sleep(1)
        await runtime.close()
        return runtime.state

    assert run(lambda _: scenario(), 1) == 1


def test_what_a_reducer_does_not_take_fails_the_runtime() -> None:
    """Law RT3: waiters get the error, running calls are cancelled, and no event steps."""

    @attrs.frozen
    class Fails:
        def step(self, state: int, event: object) -> Step[int, object]:
            if event == "nonsense":
                raise KeyError(event)
            return Step(state + 1, (event,))

    async def scenario() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def code() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        runtime: Runtime[int, object, object]
        runtime = Runtime(Fails(), 0, lambda _: Call(code), lambda _, reply: reply)
        runtime.tell("asked")
        await begun.wait()
        runtime.tell("nonsense")
        runtime.tell("asked")
        for _ in range(2):
            with pytest.raises(KeyError, match="nonsense"):
                await runtime.until(lambda state: state == 2)
        await ended.wait()
        runtime.tell("asked")
        await asyncio.sleep(0)
        assert await runtime.stepped() == 1
        await runtime.close()

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_code_that_has_missed_its_cancellation_ends_all_the_same() -> None:
    """Law RT7. Before Python 3.12 `wait_for` drops a cancellation that meets its result."""

    @attrs.frozen
    class Asks:
        def step(self, state: int, event: object) -> Step[int, object]:
            return Step(state + 1, (event,))

    async def scenario() -> None:
        begun = asyncio.Event()

        async def code() -> None:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

        runtime: Runtime[int, object, object]
        runtime = Runtime(Asks(), 0, lambda _: Call(code), lambda _, reply: reply)
        runtime.tell("asked")
        await begun.wait()
        await runtime.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert runtime.working() == []

    asyncio.run(scenario())


def test_calls_with_nothing_have_ended_at_once() -> None:
    """Law RT1."""

    @attrs.frozen
    class Asks:
        def step(self, state: tuple[object, ...], event: object) -> Step[tuple[object, ...], object]:
            return Step(state, (event,)) if event == "asked" else Step((*state, event))

    async def scenario() -> Runtime[tuple[object, ...], object, object]:
        async def code(_: object) -> None: ...

        runtime: Runtime[tuple[object, ...], object, object]
        runtime = Runtime(Asks(), (), lambda _: CallEach(code, ()), lambda _, reply: reply)
        runtime.tell("asked")
        assert await asyncio.wait_for(runtime.until(lambda state: state != ()), 10) == ((),)
        await runtime.close()
        return runtime

    asyncio.run(scenario()).tell("asked")  # RT7: the loop is closed, without an error


def test_a_runner_that_is_cancelled_as_it_is_woken_loses_no_call() -> None:
    """Law RT1: code may have kept and cancelled the runner's task."""

    @attrs.frozen
    class Asks:
        def step(self, state: int, event: object) -> Step[int, object]:
            return Step(state, (event,)) if event == "asked" else Step(state + 1)

    async def scenario() -> None:
        tasks: list[asyncio.Task[Any]] = []

        async def code() -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)

        runtime: Runtime[int, object, object] = Runtime(Asks(), 0, lambda _: Call(code), lambda _, __: "ended")
        runtime.tell("asked")
        await runtime.until(lambda state: state == 1)
        runtime.tell("asked")
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        await asyncio.wait_for(runtime.until(lambda state: state == 2), 10)
        assert tasks[0] is not tasks[1]
        await runtime.close()

    asyncio.run(scenario())


@final
@attrs.frozen
class Asks:
    def step(self, state: int, event: object) -> Step[int, object]:
        return Step(state, (event,)) if isinstance(event, str) else Step(state + len(event))  # type: ignore[arg-type]


@pytest.mark.parametrize("calls", [1, 2, 3, 4, 9])
def test_as_many_runners_are_made_as_there_are_calls_that_wait(calls: int) -> None:
    """Law RT8: without more for calls that a waking runner will take."""
    made: set[str] = set()

    async def main(_: Random) -> None:
        async def code(_: object) -> None:
            await asyncio.sleep(1)
            made.update(each.get_name() for each in asyncio.all_tasks() if "_Runners._run" in str(each.get_coro()))

        runtime: Runtime[int, object, object]
        runtime = Runtime(Asks(), 0, lambda _: CallEach(code, range(calls)), lambda _, reply: reply)
        runtime.tell("asked")
        assert await runtime.until(lambda state: state == calls) == calls
        await runtime.close()

    run(main, calls)
    assert len(made) == calls


def test_calls_that_do_not_wait_share_a_task() -> None:
    """A runner is reused, also after an idle time, unless code has set a context variable in it."""

    async def scenario(*, sets: bool) -> int:
        tasks: set[int] = set()
        kept: list[object] = []

        async def code(given: object) -> None:
            if sets:
                PLACE.set(given)
            task = asyncio.current_task()
            kept.append(task)  # otherwise its id may be reused
            tasks.add(id(task))

        runtime: Runtime[int, object, object]
        runtime = Runtime(Asks(), 0, lambda _: CallEach(code, range(20)), lambda _, reply: reply)
        for ended in (20, 40, 60):
            runtime.tell("asked")
            await asyncio.wait_for(runtime.until(ended.__eq__), 10)
        await runtime.close()
        return len(tasks)

    assert asyncio.run(scenario(sets=False)) <= 2
    assert asyncio.run(scenario(sets=True)) == 60
