"""The services of an app, which one process at a time runs: recovery, triggers, and user services.

    services = Services(site, collections, rules, declared, owner=..., silences=...)
    await services.run()                              # until it is cancelled

Every `check_every`, each process checks for the turn (`tidegate.services.service_runner`). The
process with the turn loops until its window ends (`tidegate.triggers.leader_duties`). Only the store's clock
counts. An unsolved problem is logged once until it changes.

The app's own services are tasks with a cron, in a queue that every process fetches from
(`OWN_QUEUE`). A user's task of the same name (`RECOVERY`, `PURGE`) replaces them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar, final
from uuid import uuid4

from tidegate.invocations.limits.admission import Call, Rule
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.upkeep.recoverer import Recoverer, RecoveryPass
from tidegate.model.effects import Call as Ask
from tidegate.model.effects import Failure, Program
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant, duration
from tidegate.model.operations import Indexes, StoreTime
from tidegate.model.programs import insert_new
from tidegate.services.atomic_service import (
    AtomicServiceRun,
)
from tidegate.services.members import everybody, membership_of
from tidegate.services.membership import Membership
from tidegate.services.service_runner import (
    Abandoned,
    Completed,
    NoMember,
    ServiceOutcome,
    ServiceRunner,
    Skipped,
    new_gate,
)
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.definitions import Definitions
from tidegate.triggers.evaluator import Evaluator, MakeJob, Noted, TriggerPass, plain_call
from tidegate.triggers.firing import TriggerRun
from tidegate.triggers.leader_duties import Duty, DutyFailedError, Turn, duties
from tidegate.triggers.outbox_relay import UPLOADED, NoticePass, Noticer, listened
from tidegate_adapters.base.cancellation import check_awaited_failure
from tidegate_adapters.base.crons import next_after
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.status import processes_of
from tidegate_adapters.orchestrator.triggers import When
from tidegate_adapters.orchestrator.turns import ServiceRules
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.driver import choosing, documents, local_async, run_async

T = TypeVar("T")
log: Final = logging.getLogger(__name__)

Work: TypeAlias = Callable[[AtomicServiceRun, int], Awaitable[object]]
"""A user service, called once a round with the run and its growing token."""

RECOVERY: Final = "tidegate.recover"
PURGE: Final = "tidegate.purge"
OWN_QUEUE: Final = "tidegate"
"""The queue of these tasks, so recovery also works behind a backlog or without consumers."""
KEY: Final = "turn"
_CROWDED: Final = (
    "too many processes: none has a turn, no cron fires and nothing is recovered; make the interval of services longer"
)


async def recovered(recoverer: Recoverer) -> RecoveryPass:
    found = await recoverer.run()
    for owner, number in Counter(found.owners).items():
        log.info("recovered %d invocations of %s, which is silent or gone", number, owner)
    return found


def _say_failed(tasks: Mapping[str, str], run: TriggerRun, reasons: tuple[str, ...]) -> None:
    task = tasks[run.firing.trigger_id]
    log.error("a trigger could not start %s, try %d: %s", task, run.attempt, redacted("; ".join(reasons)))


async def _members(collection: str, dead_after: Duration) -> tuple[Instant, Membership]:
    known = membership_of(await everybody(collection), dead_after)
    return await StoreTime(), known


_DECLARE_S: Final = 60.0
"""The interval of declaring triggers, well before the store would forget them."""


@final
class Services:
    """The services of a process.

    Args:
        make_call: Builds the identity of a call for `registration`.
        owner: The member id of the process, if it has joined.
        silences: The silence that ends a turn, and that of presumed death, in microseconds.
        told: Called with the outcome of each check.
    """

    def __init__(
        self,
        site: Site,
        collections: Collections,
        rules: ServiceRules,
        triggers: Mapping[str, Sequence[When]],
        *,
        make_job: MakeJob,
        owner: Callable[[], str | None],
        silences: tuple[Duration, Duration],
        make_call: Callable[[Job], Call] = plain_call,
        registration: Mapping[str, Rule] | None = None,
        works: Mapping[str, Work] | None = None,
        told: Callable[[ServiceOutcome], object] = lambda _: None,
        uploaded: Callable[[str], Awaitable[str]],
    ) -> None:
        self._site, self._rules, self._owner, self._silences, self._told = site, rules, owner, silences, told
        self._silent: frozenset[str] = frozenset()
        self._names, self._works = collections, dict(works or {})
        self._checks = 0
        self._said: dict[str, object] = {}
        self.triggers: Final = tuple(each.of(task) for task, some in triggers.items() for each in some)
        ids = [each.id for each in self.triggers]
        if len(set(ids)) < len(ids):
            raise Misuse("a trigger is declared twice", todo="leave one of them out, or give its function another name")
        self._evaluator = Evaluator(
            triggers=self.triggers, next_after=next_after, make_job=make_job, make_call=make_call,
            rules=tuple((registration or {}).items()),
            occurrences=collections.occurrences, cells=collections.crons, runs=collections.runs,
            definitions=collections.triggers, invocations=collections.invocations, places=collections.places,
            calls=collections.calls, failed=partial(_say_failed, {each.id: each.task for each in self.triggers}),
        )  # fmt: skip
        self._noticer = Noticer(
            conditions=self._evaluator.conditions, records=collections.invocations, occurrences=collections.occurrences,
            definitions=collections.triggers,
        )  # fmt: skip
        self._definitions = Definitions(
            triggers=self.triggers, definitions=collections.triggers, cells=collections.crons
        )
        works_of = local_async(
            {UPLOADED: uploaded, **{name: self._worked(name, work) for name, work in self._works.items()}}
        )
        self._handle = choosing(documents(site.store), works_of)

    @property
    def listened(self) -> Mapping[str, frozenset[str]]:
        return listened(self._evaluator.conditions)

    @property
    def indexes(self) -> Indexes:
        return {**self._noticer.indexes, **self._evaluator.indexes}

    async def purge(self, until: Instant) -> None:
        """Remove trigger runs that ended a week ago; `until` limits the time."""
        if not await self._site.run(self._evaluator.purge(until)):
            log.info("more runs of triggers are over than are forgotten at a time: the next purge goes on")
        await self._site.run(self._definitions.forget())

    async def emit(self, event: EventContext) -> Noted:
        return await self._site.run(self._evaluator.notice(event, uuid4().hex))

    def emitted(self, event: EventContext) -> Program[Noted]:
        """`emit` as a program, for a user's transaction."""
        return self._evaluator.notice_beside(event)

    async def run(self) -> None:
        if concerns := self._rules.start_up.concerns:
            log.warning("%s", "; ".join(map(str, concerns)))
        is_prepared, declared_until = False, 0.0
        while True:
            try:
                if not is_prepared:
                    await self._site.run(insert_new(self._names.gates, new_gate(KEY)))
                    is_prepared = True
                if asyncio.get_running_loop().time() >= declared_until:
                    is_declared = await self._site.run(self._definitions.declare())
                    declared_until = asyncio.get_running_loop().time() + (_DECLARE_S if is_declared else 0)
                await self.check()
                self._say("check", "")
            except (Failure, DutyFailedError, Misuse) as failure:
                self._say("check", f"a check of whose turn it is has failed: {redacted(str(failure))}")
            await asyncio.sleep(self._rules.check_every.total_seconds())

    async def check(self) -> ServiceOutcome | None:
        """Check for the turn once, and use it; None if this process is no member.

        Raises:
            DutyFailedError: A duty of the round failed; the others ran.
        """
        me = self._owner()
        if me is None:
            return None
        await self._look_for_the_silent(me)
        self._checks += 1
        run_id = f"{me}.{self._checks}"
        try:
            outcome = await run_async(self._runner(me).attempt(run_id), self._handle)
        except DutyFailedError as failed:
            self._told(Abandoned(run_id, f"failed: {type(failed).__name__}"))
            raise
        if isinstance(outcome, Completed):
            log.debug("%s has had its turn", me)
        elif not isinstance(outcome, Skipped) or outcome.is_recorded:
            log.log(logging.WARNING if isinstance(outcome, NoMember) else logging.INFO, "no turn: %s", outcome)
        self._say(
            "turns", f"{_CROWDED} ({outcome.reason})" if isinstance(outcome, Skipped) and outcome.is_crowded else ""
        )
        self._told(outcome)
        return outcome

    async def _look_for_the_silent(self, me: str) -> None:
        """Log processes that miss heartbeats, with the time of takeover, and their return."""
        now, known = await self._site.run(_members(self._names.members, self._silences[1]))
        there = {each.member.id: each for each in processes_of(known, self._silences, now) if each.member.id != me}
        silent = frozenset(who for who, each in there.items() if each.is_alive and not each.is_well)
        for who in sorted(silent - self._silent):
            log.warning("process %s is %s", who, there[who])
        for who in sorted(who for who in self._silent if who in there and there[who].is_well):
            log.info("process %s is heard of again", who)
        self._silent = silent

    # --- duties ---

    def _runner(self, me: str) -> ServiceRunner:
        rules, names = self._rules, self._names
        recoverer = Recoverer(
            me=me, dead_after=self._silences[1], patience=rules.patience, tasks=(RECOVERY,), records=names.invocations,
            members=names.members,
        )  # fmt: skip
        mine = tuple(Duty(name, self._asks(name)) for name in self._works)
        rounds = duties(recoverer, self._noticer, self._evaluator, mine)
        turn = Turn(duties=tuple(map(self._logged, rounds)), every=duration(rules.round_every))
        return ServiceRunner(
            me=me, service=rules.service, key=KEY, work=turn.work, polls=1, least=duration(rules.margin), dead_after=self._silences[0],
            members=names.members, gates=names.gates, history=names.executions, keep=rules.keep,
        )  # fmt: skip

    def _asks(self, name: str) -> Callable[[AtomicServiceRun, int, int], Program[object]]:
        async def asks(run: AtomicServiceRun, token: int, number: int) -> object:
            del number
            return await Ask(name, (run, token))

        return asks

    def _logged(self, duty: Duty) -> Duty:
        async def does(run: AtomicServiceRun, token: int, number: int) -> object:
            found = await duty.round(run, token, number)
            skipped = found.skipped if isinstance(found, (TriggerPass, NoticePass, RecoveryPass)) else ()
            self._say(duty.name, redacted("; ".join(map(str, skipped))))
            return found

        return Duty(duty.name, does)

    def _say(self, about: str, what: str) -> None:
        if what and self._said.get(about) != what:
            log.error("%s: %s", about, what)
        self._said[about] = what

    @staticmethod
    def _worked(name: str, work: Work) -> Callable[..., Awaitable[object]]:
        async def worked(run: AtomicServiceRun, token: int) -> None:
            try:
                await work(run, token)
            except BaseException as error:
                check_awaited_failure(error)
                log.exception("the work %s has failed", name)

        return worked
