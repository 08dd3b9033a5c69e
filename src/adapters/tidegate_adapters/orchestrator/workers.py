"""The workers of invocations, which execute the commands of `tidegate.work.worker`.

Log lines about a run have its task and invocation as fields and omit its arguments.
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
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final

import attrs

from tidegate.invocations.queue import completion
from tidegate.invocations.queue.completion import Ending, Failed, GivenBack, Succeeded, upload_name
from tidegate.invocations.queue.fetching import TakenRun, Taker
from tidegate.invocations.record.invocation import RUNNING
from tidegate.invocations.record.record_documents import DEATHS, FAILING_SINCE
from tidegate.invocations.record.transition import GaveUp, Granted, Unknown
from tidegate.invocations.worker.heartbeat import heed
from tidegate.invocations.worker.worker import WORK_QUEUE, Attempt, Held, UntrackedRun, died, tries_of
from tidegate.model.documents import Document
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.retries.backoff import Policy, Retry, decide, draw_of
from tidegate.services.members import beat, join, leave
from tidegate.services.membership import Joined
from tidegate.work.events import ResumeRequested, RunSuspended
from tidegate.work.vocabulary import (
    Heartbeat,
    HeartbeatReply,
    InterruptReason,
    Leave,
    NoAnswer,
    Poll,
    PollResult,
    Result,
    Resume,
    Run,
    WorkerCommand,
    WorkerRules,
    WriteReply,
    WriteResults,
)
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.kit.payloads import PayloadUnsettled
from tidegate_adapters.orchestrator.children import ChildCall, Children
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.errors import failed, told
from tidegate_adapters.orchestrator.handles import CURRENT, SERVED, Current, HandleApp
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.uploads import Uploads
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.handlers import threaded
from tidegate_adapters.runtime.later import Later
from tidegate_adapters.runtime.reducers import Call, Ended
from tidegate_adapters.runtime.workers import INTERRUPTED, HandlerWorkers, WorkerObserver

if TYPE_CHECKING:
    from tidegate_adapters.orchestrator.spans import Spans

T = TypeVar("T")
log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_ATTEMPTS: Final = 2


@final
@attrs.frozen(kw_only=True)
class Post:
    """The context of a worker process.

    Attributes:
        who: Its unique name.
        name: Its stable name, if any.
        dead_after: The silence that presumes it dead, in microseconds.
        listened: The statuses that triggers observe, by task.
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
        return self.who if life == 1 else f"{self.who}.{life}"


@final
class Workers(HandlerWorkers):
    """Runs due invocations of these tasks in the event loop in which it is made.

    Args:
        ended: Called with the id of each invocation whose result is written.
        deaths_max: The owner deaths after which an invocation fails.
    """

    def __init__(
        self,
        declared: Iterable[Declared],
        rules: WorkerRules,
        post: Post,
        ended: Callable[[str], None],
        observers: Iterable[WorkerObserver] = (),
        *,
        deaths_max: int = 5,
        spans: Spans | None = None,
    ) -> None:
        super().__init__(rules, log, observers)
        self._spans, self._post, self._tell_ended, self._deaths_max = spans, post, ended, deaths_max
        self._children = Children(self._check_alive)
        self._declared: Final = {each.name: each for each in declared}
        self._calls: Final = {each.name: self._call(each) for each in declared}
        self._taken: dict[Run, TakenRun] = {}
        self._waits: dict[Run, _Waits] = {}
        self._lost: set[Run] = set()
        self._joined = 0
        self._beaten: frozenset[str] = frozenset()
        self.held = Held()
        """The current pauses."""

    @property
    def member(self) -> str | None:
        """Its member id; None until it joins in this life."""
        return self._post.owner(self._joined) if self._joined and self._joined == self._life else None

    @property
    def _life(self) -> int:
        return 1 if self.state.membership is None else self.state.membership.life

    def announce(self, after: Duration = 0) -> None:
        self._announce(WORK_QUEUE, after)

    def hold(self, held: Held) -> None:
        self.held = held

    # --- commands and events ---

    def _request(self, command: WorkerCommand) -> Call | None:
        match command:
            case Poll():
                return Call(lambda: self._take(command))
            case WriteResults(_, results):
                return Call(lambda: self._write(results))
            case Heartbeat():
                return Call(lambda: self._beat(command))
            case Leave(life):
                return Call(lambda: self._leave(life))
            case Resume(runs):
                for run in runs:
                    if run in self._waits:
                        self._waits[run].resume()
                return None
            case _:
                return None

    async def _take(self, command: Poll) -> PollResult:
        taker = self._taker(command)
        if taker is None:
            return PollResult()
        found = await self._post.site.run(taker.take(command.most, command.factor, command.cursor))
        for key in found.unreadable:
            log.error("no invocation can be made of %s: it is due no more", key)
        runs = []
        for each in found.runs:
            declared = self._declared[each.job.task]
            longest = each.job.deadline or declared.timeout
            late = declared.policy if issubclass(TimeoutError, declared.retry_for) else None
            deaths = each.document.get(DEATHS) or 0
            rejected = died(deaths) if deaths >= self._deaths_max else None
            run = Run(each.job.task, each.key, each.record.version, longest, rejected, Attempt(each.tries, late))
            self._taken[run] = each
            runs.append(run)
        return PollResult(tuple(runs), found.is_more, found.due_in, found.lost, found.turn)

    def _taker(self, command: Poll) -> Taker | None:
        post, held = self._post, self.held
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
        return self._post.listened.get(task, frozenset())

    async def _write(self, results: tuple[Result, ...]) -> WriteReply:
        """Write results; return those with unknown outcome. A lost run is another process's."""
        gone = tuple(each for each in results if each.run not in self._taken)
        ends = tuple(each for each in results if each.run in self._taken)
        if not ends:
            return WriteReply(lost=gone)
        runs = tuple(
            _run_end(each, self._taken[each.run], is_listened=bool(self._heard(each.run.task) - {RUNNING}))
            for each in ends
        )
        program = Ending(runs=runs, records=self._post.collections.invocations, attempts=_ATTEMPTS).run()
        try:
            ended = await self._post.site.run(program)
        except Misuse as misuse:  # a result fits no document, or a record is invalid
            raise Refused(str(misuse)) from misuse
        answered = tuple(zip(ends, ended.answers, strict=True))
        left = tuple(each for each, answer in answered if isinstance(answer, (GaveUp, Unknown)))
        lost = tuple(each for each, answer in answered if not isinstance(answer, (GaveUp, Unknown, Granted)))
        for each in ends:
            if each not in left:
                if each.run.rejected is not None and isinstance(each.value, Failed):
                    self._say_failed(each.run, None, f"it is run no more, {each.value.error.message}", None)
                self._taken.pop(each.run, None)
                self._tell_ended(each.run.id)
        return WriteReply(left, ended.is_more, (*gone, *lost))

    async def _beat(self, command: Heartbeat) -> HeartbeatReply | None:
        """Join or heartbeat, then read control requests and untracked runs."""
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
        untracked = cast("tuple[UntrackedRun, ...]", command.untracked)
        for each in untracked:
            log.warning("%s is its own and not known to it: it is given back if it still is", each.key)
        await self._beat_for_children(owner)
        reply = await post.site.run(heed(post.collections.invocations, owner, command.runs, untracked))
        running = {each.run for each in self.state.running}
        self._lost |= {run for run, why in reply.asked if why is InterruptReason.LOST and run in running}
        return reply

    async def _beat_for_children(self, owner: str) -> None:
        """Heartbeat for children, for operators; this process owns their runs."""
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
        """Drop runs that were lost before their call, which have no end."""
        state = self.state
        if not any(isinstance(each, Poll) for each, _ in state.requests):
            here = {*(each.run for each in state.running), *(each.run for each in state.results)}
            self._taken = {run: taken for run, taken in self._taken.items() if run in here}
            self._lost &= here

    async def _leave(self, life: int) -> None:
        for who in self._beaten:
            await self._post.site.store(leave(self._post.collections.members, who))
        await self._post.site.store(leave(self._post.collections.members, self._post.owner(life)))

    # --- handlers ---

    def _call(self, declared: Declared) -> Callable[[Any], Awaitable[Any]]:
        @wraps(declared.handler)
        def call(bound: Any) -> Any:
            self._check_alive()
            return declared.handler(*bound.args, **bound.kwargs)

        return call if declared.is_async else threaded(call, lambda: self._threads)

    def _check_alive(self) -> None:
        """The last check before a call. Refused counts as an interrupt: the run may have moved."""
        if not self.state.may_call(None, self._now()):
            raise Refused(INTERRUPTED.reason)

    async def _handle(self, run: Run) -> Succeeded | Failed | GivenBack:
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
        upload = await _insisted(run, lambda: uploads.kept(upload_name(run.id, run.token), text))
        return Succeeded(text) if upload is None else Succeeded(upload=upload)

    async def _in_child(self, run: Run, declared: Declared, arguments: Document) -> str | Failed | GivenBack:
        handler = declared.handler
        return await self._children.call(
            ChildCall(
                handler.__module__,
                handler.__qualname__,
                cast("Any", dict(arguments.items)),
                run,
                self._taken[run].job.root or run.id,
                self._taken[run].tries,
                self._post.settings,
                getattr(sys.modules.get(handler.__module__), "__file__", None),
            ),
            declared,
        )

    async def _in_here(self, run: Run, declared: Declared, arguments: Document) -> str:
        taken, bound = self._taken[run], declared.bound(arguments)
        root = taken.job.root or run.id
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
        """Release the slot during the block; continue only after the worker resumes the run."""
        waits.number += 1
        if waits.number == 1 and not waits.is_over:
            waits.resume()  # a waiting task of the handler frees the slot for all
            self._runtime.tell(RunSuspended(self._now(), run))
        try:
            yield
        finally:
            waits.number -= 1
            if waits.number == 0 and not waits.is_over:
                resumed = waits.wants()
                self._runtime.tell(ResumeRequested(self._now(), run))
                await _in_any_case(resumed)

    def _answer(self, run: Run, ended: Ended) -> completion.End | NoAnswer:
        if run in self._lost:
            self._lost.discard(run)
            self._taken.pop(run, None)
        if ended.reply == INTERRUPTED:
            return NoAnswer.NO_ANSWER
        where = self._fields(None, run)
        if isinstance(ended.reply, Later):
            ended = ended._replace(reply=GivenBack(delay=ended.reply.delay))
        if isinstance(ended.reply, GivenBack):
            later = seconds(ended.reply.delay or 0)
            log.info("the handler of %s asks to be called again in %s", self._named(run), later, extra=where)
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
            log.debug("the handler of %s has returned after %.3f s", self._named(run), ended.seconds, extra=where)
        return cast("Succeeded", ended.reply)

    def _say_failed(self, run: Run, policy: Policy | None, why: str, error: BaseException | None) -> None:
        """Log a warning while retries remain, else an error. The store sets the real retry time."""
        taken, where = self._taken.get(run), self._fields(None, run)
        now = Instant(time.time_ns() // 1_000)  # only for the log
        verdict = None
        if policy is not None and taken is not None:
            verdict = decide(policy, taken.tries, now, now, draw_of(f"{run.id} {taken.tries}"))
        if isinstance(verdict, Retry):
            again = seconds(verdict.at - now)
            log.warning(
                "the handler of %s has failed, and is called again in %s: %s", self._named(run), again, why, extra=where
            )
            log.debug("where the handler of %s has failed", self._named(run), exc_info=error, extra=where)
        else:
            log.error("the handler of %s has failed: %s", self._named(run), why, exc_info=error, extra=where)

    def _closing(self) -> None:
        super()._closing()
        for waits in self._waits.values():
            waits.end()

    def _closed(self) -> None:
        super()._closed()
        self._children.close()

    def _named(self, run: Run) -> str:
        return _named(run)

    def _fields(self, command: object, given: object) -> Mapping[str, object]:
        del command
        if not isinstance(given, Run):
            return {}
        return {"task": given.task, "invocation": given.id, "version": given.token, "attempt": tries_of(given)}


@final
class _Waits:
    """The pending waits of a run, and the future that resumes it.

    A task that a handler leaves behind may wait after its run ended; it has no slot to release.
    """

    def __init__(self) -> None:
        self.number, self.is_over = 0, False
        self._resumed: asyncio.Future[None] | None = None

    def wants(self) -> asyncio.Future[None]:
        self._resumed = asyncio.get_running_loop().create_future()
        return self._resumed

    def resume(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def end(self) -> None:
        self.is_over = True
        self.resume()


async def _in_any_case(awaited: asyncio.Future[None]) -> None:
    """Wait even if cancelled, then re-raise the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not awaited.done():
        try:
            await asyncio.wait({awaited})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _insisted(run: Run, ask: Callable[[], Awaitable[T]]) -> T:
    """Retry an upload request until the store answers: an outage is no fault of the handler."""
    while True:
        try:
            return await ask()
        except PayloadUnsettled as unsettled:
            log.warning("%s is asked again for what is uploaded: %s", _named(run), redacted(str(unsettled)))


def _answered(reply: object) -> object:
    if isinstance(reply, Failure):
        raise reply
    return reply


def _run_end(result: Result, taken: TakenRun, *, is_listened: bool) -> completion.RunEnd:
    return completion.RunEnd(
        key=result.run.id, record=taken.record, end=cast("ending.End", result.value), tries=taken.tries,
        failing_since=taken.document.get(FAILING_SINCE), is_listened=is_listened,
        limited_by=taken.job.limited_by, due=taken.due,
    )  # fmt: skip


def _named(run: Run) -> str:
    return f"{run.task}, invocation {run.id}, attempt {tries_of(run)},"
