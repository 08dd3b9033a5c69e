"""The workers of a process: they carry out what `tidegate.invocations.dispatch` commands, and decide nothing.

    Take, WriteEnds, Beat, Leave    the programs of invocations and of members, on the database
    Handle                          the handlers, async ones in the event loop, plain functions in threads, which hold up no end, and
                                    those that want it in processes of their own; each if the dispatch still says so at its call
    Resume                          wakes who has waited for others, and has a slot again
    Interrupt                       their cancellation
    StartDispatchTimer              one timer

Times are those of the loop's monotonic clock. Lines of the log that are about a run have its task and invocation as fields, and
nothing of what it was called with.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.invocations import ending
from tidegate.invocations.dispatch import (
    Announced,
    Beat,
    DispatchCommand,
    DispatchEvent,
    DispatchRules,
    DispatchState,
    DispatchStopRequested,
    DispatchTimerFired,
    EndsOutcome,
    Handle,
    Heeded,
    Held,
    HeldChanged,
    Interrupt,
    InterruptReason,
    Leave,
    Outcome,
    Resume,
    Run,
    RunGoesOn,
    RunsFound,
    RunWaits,
    StartDispatchTimer,
    Take,
    WriteEnds,
    dispatch_event_for,
)
from tidegate.invocations.ending import Ending, Failed, GivenBack, Succeeded, upload_name
from tidegate.invocations.heeding import heed
from tidegate.invocations.invocation import RUNNING
from tidegate.invocations.record_documents import DEATHS, FAILING_SINCE
from tidegate.invocations.taking import TakenRun, Taker
from tidegate.invocations.transition import GaveUp, Granted, Unknown
from tidegate.model.documents import Document
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, ClockName, Duration, Instant, seconds
from tidegate.retries.backoff import Policy, Retry, decide, draw_of
from tidegate.services.members import beat, join, leave
from tidegate.services.membership import Joined
from tidegate_adapters.cancelling import CLOSE_S
from tidegate_adapters.daemon_threads import DaemonThreads
from tidegate_adapters.handlers import threaded
from tidegate_adapters.later import Later
from tidegate_adapters.orchestrator.children import ChildCall, Children
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.failing import failed, told
from tidegate_adapters.orchestrator.handles import CURRENT, SERVED, Current, HandleApp
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.uploads import Uploads
from tidegate_adapters.payloads import PayloadUnsettled
from tidegate_adapters.printable import redacted
from tidegate_adapters.runtime import Call, CallEach, Ended, InterruptEach, Observer, Runtime, as_failure
from tidegate_adapters.runtime import Job as Task
from tidegate_adapters.sites import Site

if TYPE_CHECKING:
    from tidegate_adapters.orchestrator.spans import Spans

__all__ = ["DispatchObserver", "Workers"]

T = TypeVar("T")
DispatchObserver: TypeAlias = Observer[DispatchEvent, DispatchState, DispatchCommand]

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_LOOP: Final = ClockName("loop")
_INTERRUPTED: Final = Refused("interrupted")
"""What the runtime says of code that was interrupted (law RT5)."""
_ATTEMPTS: Final = 2
"""How often a request for ends is made before the dispatch hears that nobody answers."""


@final
@attrs.frozen(kw_only=True)
class Post:
    """Where a process works, and as what.

    Attributes:
        app: Whose handlers are called.
        site: The database.
        collections: Of it.
        uploads: Large arguments and results.
        queues: Which it takes from.
        who: Its name; another one for each process.
        name: Its lasting name; None if it has none.
        dead_after: After how much silence one is presumed dead, in microseconds.
        settings: Of the app, for children.
        listened: Of which tasks triggers hear of which statuses.
    """

    app: HandleApp
    site: Site
    collections: Collections
    uploads: Uploads
    queues: tuple[str, ...]
    who: str
    name: str | None
    dead_after: Duration
    settings: OrchestratorSettings
    listened: Mapping[str, frozenset[str]] = MappingProxyType({})

    def owner(self, life: int) -> str:
        """The member that it is in this life."""
        return self.who if life == 1 else f"{self.who}.{life}"


@final
class Workers:
    """Run what is due of these tasks, in the event loop in which they are made.

    Args:
        declared: The tasks.
        rules: How the process works.
        post: Where.
        ended: Called with the id of each invocation of which the end is written.
        observers: Called with each event, the state after it, and the commands that follow.
        spans: Makes a span for each run; None for none.
    """

    def __init__(
        self,
        declared: Iterable[Declared],
        rules: DispatchRules,
        post: Post,
        ended: Callable[[str], None],
        observers: Iterable[DispatchObserver] = (),
        *,
        spans: Spans | None = None,
    ) -> None:
        self._spans, self._rules = spans, rules
        self._post, self._loop, self._tell_ended = post, asyncio.get_running_loop(), ended
        self._threads, self._children = DaemonThreads("tidegate-handler"), Children(self._check_alive)
        self._declared: Final = {each.name: each for each in declared}
        self._calls: Final = {each.name: self._call(each) for each in declared}
        self._taken: dict[Run, TakenRun] = {}
        self._waits: dict[Run, _Waits] = {}
        self._lost: set[Run] = set()
        self._joined = 0
        self._beaten: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._runtime: Runtime[DispatchState, DispatchEvent, DispatchCommand] = Runtime(
            rules, DispatchState(), self._begin, self._event_for, observers=observers, fields=_fields
        )

    @property
    def member(self) -> str | None:
        """The member that this process is; None where it has not joined in this life."""
        life = self.state.life
        return self._post.owner(life) if self._joined == life else None

    @property
    def state(self) -> DispatchState:
        """Where they stand."""
        return self._runtime.state

    @property
    def left_s(self) -> float:
        """How many seconds are left to write down what handlers have come to, if it is to stop at the latest now."""
        now = self._now()
        return max((self.state.stop_at or now) + self._rules.leave - now, 0) / SECOND

    async def run(self) -> None:
        """Work until `stop`, a cancellation, or an exit of user code; then let handlers end, and write down their ends.

        Raises:
            CancelledError, SystemExit, KeyboardInterrupt: As it came, after the rest.
        """
        owed: BaseException | None = None
        self._runtime.tell(DispatchTimerFired(self._now()))
        try:
            while not self.state.is_stopped:
                try:
                    await self._runtime.until(lambda state: state.is_stopped)
                except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                    owed = owed or error
                    self.stop()
        finally:
            await self._close()
        if owed is not None:
            raise owed

    def stop(self) -> None:
        """Take nothing more, and let `run` return when what runs has ended; called once more, wait for no handler."""
        self._runtime.tell(DispatchStopRequested(self._now()))

    def announce(self, after: Duration = 0) -> None:
        """Something is due, now or after a time in microseconds."""
        now = self._now()
        self._runtime.tell(Announced(now, now + after if after else None))

    def hold(self, held: Held) -> None:
        """From now on nothing is taken from these, and all else is."""
        if held != self.state.held:
            self._runtime.tell(HeldChanged(self._now(), held))

    # --- commands and events ---

    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def _begin(self, command: DispatchCommand) -> Task | None:
        """What to do for a command."""
        match command:
            case Take():
                return Call(lambda: self._take(command))
            case Handle(runs):
                return CallEach(self._handle, runs)
            case WriteEnds(ends):
                return Call(lambda: self._write(ends))
            case Beat():
                return Call(lambda: self._beat(command))
            case Leave(life):
                return Call(lambda: self._leave(life))
            case Resume(runs):
                for run in runs:
                    if run in self._waits:
                        self._waits[run].resume()
                return None
            case Interrupt(runs, why):
                for each in runs:
                    log.warning(
                        "interrupted the handler of %s: %s", _named(each)[:-1], why.value, extra=_fields(command, each)
                    )
                ended = frozenset(runs)
                return InterruptEach(lambda of, given: isinstance(of, Handle) and given in ended)
            case StartDispatchTimer(duration):
                self._start_timer(duration)
                return None

    def _event_for(self, command: DispatchCommand, reply: object) -> DispatchEvent | None:
        """What became of it, as an event."""
        if isinstance(command, Handle) and isinstance(reply, tuple):
            reply = tuple((each.given, self._answer(each)) for each in cast("tuple[Ended, ...]", reply))
        elif isinstance(reply, Exception):
            log.error("%s has failed: %s", command, redacted(str(reply)), extra=_fields(command, None))
        return dispatch_event_for(command, as_failure(reply), self._now())

    async def _take(self, command: Take) -> RunsFound:
        """The runs that it has begun."""
        taker = self._taker(command)
        if taker is None:
            return RunsFound()
        found = await self._post.site.run(taker.take(command.most, command.factor, command.turn))
        for key in found.unreadable:
            log.error("no invocation can be made of %s: it is due no more", key)
        runs = []
        for each in found.runs:
            declared = self._declared[each.job.task]
            longest = each.job.deadline or declared.timeout
            late = declared.policy if issubclass(TimeoutError, declared.retry_for) else None
            deaths = each.document.get(DEATHS) or 0
            run = Run(each.key, each.record.version, each.job.task, longest, late, each.tries, deaths)
            self._taken[run] = each
            runs.append(run)
        return RunsFound(tuple(runs), found.is_more, found.due_in, found.lost, found.turn)

    def _taker(self, command: Take) -> Taker | None:
        """What takes; None where all is held."""
        post, held = self._post, command.held
        queues = tuple(name for name in post.queues if name not in held.queues)
        tasks = tuple(
            attrs.evolve(each.takeable, is_heard=RUNNING in self._heard(name))
            for name, each in self._declared.items()
            if name not in held.tasks
        )
        if not queues or not tasks:
            return None
        return Taker(
            runner=post.owner(command.life), queues=queues, tasks=tasks, records=post.collections.invocations,
            places=post.collections.places, meters=post.collections.meters,
        )  # fmt: skip

    def _heard(self, task: str) -> frozenset[str]:
        """Of which of its statuses triggers hear."""
        return self._post.listened.get(task, frozenset())

    async def _write(self, ends: tuple[Outcome, ...]) -> EndsOutcome:
        """Write ends; those of which nobody knows whether that is done. Of what was lost nothing is written: it is another's."""
        gone = tuple(each for each in ends if each.run not in self._taken)
        ends = tuple(each for each in ends if each.run in self._taken)
        if not ends:
            return EndsOutcome(lost=gone)
        runs = tuple(
            _run_end(each, self._taken[each.run], is_listened=bool(self._heard(each.run.task) - {RUNNING}))
            for each in ends
        )
        program = Ending(runs=runs, records=self._post.collections.invocations, attempts=_ATTEMPTS).run()
        try:
            ended = await self._post.site.run(program)
        except Misuse as misuse:  # what they have come to can be no document, or one is no record any more
            raise Refused(str(misuse)) from misuse
        answered = tuple(zip(ends, ended.answers, strict=True))
        left = tuple(each for each, answer in answered if isinstance(answer, (GaveUp, Unknown)))
        lost = tuple(each for each, answer in answered if not isinstance(answer, (GaveUp, Unknown, Granted)))
        for each in ends:
            if each not in left:
                if each.run.deaths >= self._rules.deaths_max and isinstance(each.end, ending.Failed):
                    self._say_failed(each.run, None, f"it is run no more, {each.end.error.message}", None)
                self._taken.pop(each.run, None)
                self._tell_ended(each.run.key)
        return EndsOutcome(left, ended.is_more, (*gone, *lost))

    async def _beat(self, command: Beat) -> Heeded | None:
        """Join, or beat; and what there is in its name."""
        post, owner = self._post, self._post.owner(command.life)
        if self._joined != command.life:
            answer = await post.site.run(join(post.collections.members, owner, post.dead_after, name=post.name))
            if not isinstance(answer, Joined):
                return None
            self._joined = command.life
            log.info("%s has joined", owner)
        elif _answered(await post.site.store(beat(post.collections.members, owner, post.dead_after))) is None:
            return None
        self._forget()
        for each in command.strays:
            log.warning("%s is its own and not known to it: it is given back if it still is", each.key)
        await self._beat_for_children(owner)
        heeded = await post.site.run(heed(post.collections.invocations, owner, command.runs, command.strays))
        active = {each.run for each in self.state.active}
        self._lost |= {run for run, why in heeded.asked if why is InterruptReason.LOST and run in active}
        return heeded

    async def _beat_for_children(self, owner: str) -> None:
        """Join or beat as each child that lives, and leave as those that do not: for operators, for what they run is this process's."""
        post, there = self._post, {f"{owner}/{number}.{pid}": number for number, pid in self._children.there}
        members = post.collections.members
        try:
            for who in self._beaten - there.keys():
                _ = _answered(await post.site.store(leave(members, who)))
                self._beaten -= {who}
            for who in self._beaten:
                _ = _answered(await post.site.store(beat(members, who, post.dead_after)))
            for who in there.keys() - self._beaten:
                name = None if post.name is None else f"{post.name}/{there[who]}"
                await post.site.run(join(members, who, post.dead_after, name=name, runner=owner))
                self._beaten |= {who}
        except Failure as failure:
            log.debug("no beat for children: %s", redacted(str(failure)))

    def _forget(self) -> None:
        """What was lost before it was called came to no end."""
        state = self.state
        if state.looking is None:
            ends = (*state.ended, *(state.ending.ends if state.ending else ()))
            here = {*(each.run for each in state.active), *(each.run for each in ends)}
            self._taken = {run: taken for run, taken in self._taken.items() if run in here}
            self._lost &= here

    async def _leave(self, life: int) -> None:
        for who in self._beaten:
            await self._post.site.store(leave(self._post.collections.members, who))
        await self._post.site.store(leave(self._post.collections.members, self._post.owner(life)))

    # --- handlers ---

    def _call(self, declared: Declared) -> Callable[[Any], Awaitable[Any]]:
        """The user's handler, as an async function of bound arguments."""

        @wraps(declared.handler)
        def call(bound: Any) -> Any:
            self._check_alive()
            return declared.handler(*bound.args, **bound.kwargs)

        return call if declared.is_async else threaded(call, lambda: self._threads)

    def _check_alive(self) -> None:
        """The last thing before a handler is called, in whatever thread that is.

        Raises:
            Refused: It may run elsewhere by now: as if this call had been interrupted.
        """
        if not self.state.may_call(self._now()):
            raise Refused(_INTERRUPTED.reason)

    async def _handle(self, run: Run) -> Succeeded | Failed | GivenBack:
        """Call a handler; how it has succeeded, or has ended otherwise in a child."""
        job, declared = self._taken[run].job, self._declared[run.task]
        uploads, payload = self._post.uploads, job.payload
        arguments = job.arguments if payload is None else await _insisted(run, lambda: uploads.arguments(payload))
        call = self._in_child if declared.is_process else self._in_here
        with nullcontext() if self._spans is None else self._spans.of(self._taken[run]) as span:
            text = await call(run, declared, arguments)
            if isinstance(text, GivenBack):
                return text
            if isinstance(text, Failed):
                if span is not None:
                    span.failed(text)
                return text
        upload = await _insisted(run, lambda: uploads.kept(upload_name(run.key, run.version), text))
        return Succeeded(text) if upload is None else Succeeded(upload=upload)

    async def _in_child(self, run: Run, declared: Declared, arguments: Document) -> str | Failed | GivenBack:
        """The text of what a handler returns that is called in a child."""
        handler = declared.handler
        return await self._children.call(
            ChildCall(
                handler.__module__,
                handler.__qualname__,
                cast("Any", dict(arguments.items)),
                run,
                self._taken[run].job.root or run.key,
                self._taken[run].tries,
                self._post.settings,
                getattr(sys.modules.get(handler.__module__), "__file__", None),
            ),
            declared,
        )

    async def _in_here(self, run: Run, declared: Declared, arguments: Document) -> str:
        """The text of what a handler returns that is called in this process."""
        taken, bound = self._taken[run], declared.bound(arguments)
        root = taken.job.root or run.key
        waits = self._waits[run] = _Waits()
        token = CURRENT.set(Current(run, root, taken.tries, lambda: self._waiting(run, waits)))
        served = SERVED.set(self._post.app)
        try:
            result = await self._calls[run.task](bound)
        finally:
            SERVED.reset(served)
            CURRENT.reset(token)
            self._waits.pop(run).end()
        return declared.result.text(result, f"what {run.task} returned")

    @asynccontextmanager
    async def _waiting(self, run: Run, waits: _Waits) -> AsyncGenerator[None, None]:
        """Its slot is given away until the block ends, and whatever ends that, it goes on when it is resumed."""
        waits.number += 1
        if waits.number == 1 and not waits.is_over:
            waits.resume()  # a task of the same handler that wants the slot: for as long as one waits, none needs it
            self._runtime.tell(RunWaits(self._now(), run))
        try:
            yield
        finally:
            waits.number -= 1
            if waits.number == 0 and not waits.is_over:
                resumed = waits.wants()
                self._runtime.tell(RunGoesOn(self._now(), run))
                await _in_any_case(resumed)

    def _answer(self, ended: Ended) -> ending.End | None:
        """What a handler has come to."""
        run: Run = cast("Run", ended.given)
        if run in self._lost:
            self._lost.discard(run)
            self._taken.pop(run, None)
        if ended.reply == _INTERRUPTED:
            return None
        where = _fields(None, run)
        if isinstance(ended.reply, Later):
            ended = ended._replace(reply=GivenBack(delay=ended.reply.delay))
        if isinstance(ended.reply, GivenBack):
            later = seconds(ended.reply.delay or 0)
            log.info("the handler of %s asks to be called again in %s", _named(run), later, extra=where)
            return ended.reply
        if isinstance(ended.reply, BaseException):
            declared = self._declared[run.task]
            found = failed(ended.reply, declared.retry_for, declared.policy)
            self._say_failed(run, found.policy, told(ended.reply), ended.reply)
            return found
        if isinstance(ended.reply, Failed):  # in a child
            kept = ended.reply.error
            self._say_failed(run, ended.reply.policy, f"{kept.type}: {kept.message}", None)
            return ended.reply
        if log.isEnabledFor(logging.DEBUG):
            log.debug("the handler of %s has returned after %.3f s", _named(run), ended.seconds, extra=where)
        return cast("Succeeded", ended.reply)

    def _say_failed(self, run: Run, policy: Policy | None, why: str, error: BaseException | None) -> None:
        """A warning where its tries are not used up; when it is tried again is the store's to say."""
        taken, where = self._taken.get(run), _fields(None, run)
        now = Instant(time.time_ns() // 1_000)  # for the line of the log alone
        verdict = None
        if policy is not None and taken is not None:
            verdict = decide(policy, taken.tries, now, now, draw_of(f"{run.key} {taken.tries}"))
        if isinstance(verdict, Retry):
            again = seconds(verdict.at - now)
            log.warning(
                "the handler of %s has failed, and is called again in %s: %s", _named(run), again, why, extra=where
            )
            log.debug("where the handler of %s has failed", _named(run), exc_info=error, extra=where)
        else:
            log.error("the handler of %s has failed: %s", _named(run), why, exc_info=error, extra=where)

    def _start_timer(self, duration: Duration) -> None:
        """In the place of the one before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(
            duration / SECOND, lambda: self._runtime.tell(DispatchTimerFired(self._now()))
        )

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waits in self._waits.values():
            waits.end()
        await self._runtime.close(min(max(self.left_s / 2, CLOSE_S), 1.0))
        self._threads.close()
        self._children.close()


@final
class _Waits:
    """How often a run waits at a time, and what wakes it when it has a slot again; over when nobody will.

    A task that a handler has left behind waits on when its run is over, and has no slot to give away.
    """

    def __init__(self) -> None:
        self.number, self.is_over = 0, False
        self._resumed: asyncio.Future[None] | None = None

    def wants(self) -> asyncio.Future[None]:
        """Ends when it has a slot."""
        self._resumed = asyncio.get_running_loop().create_future()
        return self._resumed

    def resume(self) -> None:
        """It goes on."""
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def end(self) -> None:
        """It needs no slot any more."""
        self.is_over = True
        self.resume()


async def _in_any_case(awaited: asyncio.Future[None]) -> None:
    """Wait for it also where that is cancelled meanwhile, and only then end as cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while not awaited.done():
        try:
            await asyncio.wait({awaited})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _insisted(run: Run, ask: Callable[[], Awaitable[T]]) -> T:
    """What is answered about an upload, once anybody answers: of what a handler has done, or is to do, an outage says nothing."""
    while True:
        try:
            return await ask()
        except PayloadUnsettled as unsettled:
            log.warning("%s is asked again for what is uploaded: %s", _named(run), redacted(str(unsettled)))


def _answered(reply: object) -> object:
    """What the store has answered; a failure is raised."""
    if isinstance(reply, Failure):
        raise reply
    return reply


def _run_end(outcome: Outcome, taken: TakenRun, *, is_listened: bool) -> ending.RunEnd:
    return ending.RunEnd(
        key=outcome.run.key, record=taken.record, end=outcome.end, tries=taken.tries,
        failing_since=taken.document.get(FAILING_SINCE), is_listened=is_listened,
        limited_by=taken.job.limited_by, due=taken.due,
    )  # fmt: skip


def _fields(command: object, given: object) -> Mapping[str, object]:
    """The fields of a line of the log."""
    del command
    if not isinstance(given, Run):
        return {}
    return {"task": given.task, "invocation": given.key, "version": given.version, "attempt": given.tries}


def _named(run: Run) -> str:
    """A run in a line of the log."""
    return f"{run.task}, invocation {run.key}, attempt {run.tries},"
