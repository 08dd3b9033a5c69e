"""Each program of the core on a real MongoDB, while any of its commands fails before or after it is
carried out.

Each program runs in a scenario with the laws of its package (`real_runs` judges). A fault strikes
the n-th command, for every n. Most faults are replies of the server: after a cut connection, the
driver looks for the server for half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import isclass, iscoroutinefunction
from itertools import count
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Final, TypeAlias, final
from uuid import uuid4

import attrs
import pytest
from pymongo import AsyncMongoClient, MongoClient
from tests.integration import real_runs
from tests.integration import real_scenarios as own
from tests.integration.real_runs import Ended, RealRun, Watched, unique_of
from tests.integration.servers import MongoServer
from tests.length import PROGRAM_CUTS_STEP, PROGRAM_FAULT_KINDS_STEP, PROGRAM_FAULTS, PROGRAM_KINDS_STEP

import tidegate
from tidegate.catalogue import SPECIMENS, shipped
from tidegate.invocations.checks.scenarios import taking
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.instants import MILLISECOND, SECOND, Duration
from tidegate.model.record_counts import RecordCount
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.reactive.task.plan_queries import PlanPage
from tidegate.services.checks.scenarios import ghost
from tidegate.sim.program.recording import Same, executed, read
from tidegate.sim.program.tagged import named_classes
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.observe.recorder import Recorder
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Body, Rule, command_error, write_concern_error

Raw: TypeAlias = dict[str, Any]
MakeProxy: TypeAlias = Callable[..., BlackPipe]


@final
@attrs.frozen
class Row:
    """A scenario, and how it runs here.

    Attributes:
        passes_on: Processes outside the core, which pass failures of the store on.
        waived: Laws that hold only without failures, as their module says.
        left: Laws that need a survivor: none is left after a refusal or two unconfirmed commands.
    """

    make: Callable[[], Scenario]
    passes_on: tuple[str, ...] = ()
    waived: tuple[str, ...] = ()
    ago: Duration = 0
    left: tuple[str, ...] = ()

    def scenario(self) -> Scenario:
        made = self.make()
        assert {*self.waived} <= {*made.always, *made.eventually}
        return attrs.evolve(
            made,
            always={name: law for name, law in made.always.items() if name not in self.waived},
            eventually={name: law for name, law in made.eventually.items() if name not in self.waived},
        )


def ships(name: str, *passes_on: str, **more: Any) -> tuple[str, Row]:
    return name, Row(partial(shipped, name), passes_on, **more)


ROWS: Final[Mapping[str, Row]] = dict(
    (
        ("leader", Row(own.brief_election)),
        ships("counter"),
        ships("counter.found"),
        ships("payloads"),
        ("payload deleted", Row(own.deleted)),
        ("members", Row(own.members)),
        ships("atomic_service"),
        ("service", Row(own.brief_service)),
        ("ghost", Row(partial(ghost, polls=4), ago=5 * SECOND)),
        ships("admission"),
        ships(
            "array_push_lock",
            *("a", "b"),
            waived=("a claim stands at most once", "at rest no claim remains"),  # known not to work: a reply is lost
        ),
        ships("array_push_lock.guarded", "a", "b", waived=("at rest no claim remains",)),  # known not to work
        ships("recovery", "a", "b"),
        ships("recovery.held_back", "a", "b", ago=5 * SECOND, left=("at rest it is done, or not stuck yet",)),
        ("recovery of the dead", Row(own.stuck, ("a", "b"), ago=5 * SECOND)),
        ships("registration", "runner"),
        ships("enqueueing"),
        ships("enqueueing.beside"),
        ships("taking", ago=5 * SECOND),
        ships("taking.spread", ago=5 * SECOND),
        ships("taking.limited", ago=5 * SECOND),
        ships(
            "taking.waking", ago=5 * SECOND, left=("nobody sleeps while there is a place",)
        ),  # a refused read wakes no other
        ships("taking.crowded", ago=5 * SECOND),
        ("taking.rated", Row(partial(taking.rated, keys=("a", "b", "c", "d", "e")), ago=5 * SECOND)),
        ships("metering"),
        ships("metering.swept", ago=5 * SECOND),
        ships("transition"),
        ships("transition.known"),
        ships("transition.bulk"),
        ships("ending"),
        ships("waiting", "runner", left=(real_runs.ENDS,)),
        ships("asking", "runner"),
        ships("purging"),
        ships("purging.swept"),
        ("swept", Row(own.swept)),
        ("set aside", Row(own.set_aside, ago=5 * SECOND)),
        ("looked at", Row(own.looked_at)),
        ships("asking.kill", "runner"),
        ships("asking.held", "runner"),
        ships("asking.repeated"),
        ("transition and settle", Row(own.wrapped)),
        ships("noticing", "runner"),
        ships("turn", "w", ago=20 * SECOND, left=("at rest nobody who is gone has anything",)),
        ships("triggers"),
        ships("triggers.all_conditions"),
        ships("triggers.purged"),
        ships("triggers.beside"),
        ships("triggers.reporting"),
        ships("triggers.rolling"),
        ("definitions", Row(own.definitions, ago=20 * SECOND)),
        ("crons", Row(own.crons, ago=820 * MILLISECOND)),
        ships("reactive_task", "editor"),
        ships("reactive_task.asks", "editor"),
        ships("reactive_task.new"),
        ships("reactive_task.takes", "editor"),
        ships("reactive_task.deleted", "editor"),
        ships("reactive_task.comes_back", "editor"),
        ships("reactive_task.indexed", "editor"),
        ships("reactive_task.renewed"),
        ships("reactive_task.unheard"),
        ships("reactive_task.unconfirmed"),
        ships("desk"),
        ships("desk.running"),
        ships("pausing"),
        ("asked", Row(own.asked)),
        ("imported", Row(own.imported)),
        ("first sight", Row(own.first_sight, ("editor",))),
        ("completing", Row(own.completing, ("editor",))),
        ("reconciling", Row(own.reconciling)),
        ships("reconciler"),
        ships("deployments", "worker"),
        ships("sweeper", ago=10 * SECOND),
        ("planned", Row(own.planned)),
        ("consumed", Row(own.consumed)),
        ("documents", Row(own.documents)),
        ("resent", Row(own.resent)),
        ships("transfer"),
        ships("transfer.reader"),
        ships("on_call"),
    )
)


# --- faults -------------------------------------------------------------------------------------------------------------

WRITES: Final = {"insert", "update", "delete", "findAndModify"}
ENDS: Final = {"commitTransaction", "abortTransaction"}
TOO_LATE, NOT_AUTHORISED, CONFLICT, NO_MAJORITY, UNHEARD_OF = 50, 13, 112, 64, 424_242
TWICE: Final = "not durable, twice"
STRIKES: Final = frozenset(Action) - {Action.FORWARD}


def is_confirmed(body: Body) -> bool:
    return next(iter(body)) in ENDS or (next(iter(body)) in WRITES and "autocommit" not in body)


def is_of_documents(body: Body) -> bool:
    """An index that may not be created is an adapter's error before any document is touched."""
    return next(iter(body)) != "createIndexes"


def instead(code: int, where: Callable[[Body], bool] | None = None) -> Callable[[int], Rule]:
    return lambda n: Rule(None, Action.ANSWER, where, skip=n - 1, times=1, reply=command_error(code))


def unconfirmed(times: int) -> Callable[[int], Rule]:
    return lambda n: Rule(
        None, Action.AMEND, is_confirmed, skip=n - 1, times=times, reply=write_concern_error(NO_MAJORITY)
    )


FAULTS: Final[Mapping[str, Callable[[int], Rule]]] = {
    "the request is lost": instead(TOO_LATE),
    "the reply is lost": lambda n: Rule(None, Action.AMEND, skip=n - 1, times=1, reply=command_error(TOO_LATE)),
    "two replies are lost": lambda n: Rule(None, Action.AMEND, skip=n - 1, times=2, reply=command_error(TOO_LATE)),
    "refused": instead(NOT_AUTHORISED, is_of_documents),
    "not applied": instead(CONFLICT),
    "nobody knows": instead(UNHEARD_OF),
    "not durable": unconfirmed(1),
    TWICE: unconfirmed(2),
}
"""Faults of the n-th command, one for each class of errors (`mongo.error_codes`)."""
CUTS: Final[Mapping[str, Callable[[int], Rule]]] = {
    "the request is cut": lambda n: Rule(None, Action.CUT_REQUEST, skip=n - 1, times=1),
    "the reply is cut": lambda n: Rule(None, Action.CUT_REPLY, skip=n - 1, times=1),
}
UNKNOWN: Final = "nothing is unknown"
"""Not judged where a read is refused."""


# --- runs ---------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Bench:
    row: Row
    watched: Watched
    pipe: BlackPipe
    client: MongoClient[Raw] | AsyncMongoClient[Raw]
    loop: asyncio.Runner
    scenario: Scenario = attrs.field(init=False, default=attrs.Factory(lambda it: it.row.scenario(), takes_self=True))

    def run(self, *rules: Rule, seed: int = 0) -> Ended:
        scenario, name = self.scenario, self.watched.database.name
        unique = unique_of(scenario.world)
        if isinstance(self.client, MongoClient):
            store: Callable[[Any], object] = Mongo(self.client, name, unique)
        else:
            asked = AsyncMongo(self.client, name, unique)
            store = lambda effect: self.loop.run(asked(effect))  # noqa: E731
        run = RealRun(scenario, self.watched, store, self.struck, seed=seed, ago=self.row.ago)
        self.pipe.obey(*rules)
        try:
            return run.run()
        finally:
            self.pipe.obey()

    def struck(self) -> int:
        return sum(
            self.pipe.count(command, action)
            for command in (*WRITES, *ENDS, "find", "aggregate", "getMore", "createIndexes")
            for action in STRIKES
        )

    def each(self, fault: Callable[[int], Rule], first: int, step: int, last: int) -> Iterator[tuple[int, Ended]]:
        """A run for each command that the fault strikes, or every `step` of them."""
        for n in range(first, last + 1, step) if step > 1 else count(first):
            if (ended := self.run(fault(n), seed=n)).struck is None and ended.law is None:
                return
            yield n, ended


MakeBench: TypeAlias = Callable[..., Bench]


def closed(loop: asyncio.Runner, client: AsyncMongoClient[Raw]) -> None:
    loop.run(client.close())


@pytest.fixture
def bench(mongod: MongoServer, make_proxy: MakeProxy, database: str) -> Iterator[MakeBench]:
    with asyncio.Runner() as loop, MongoClient[Raw](mongod.uri) as spared:
        made: list[Callable[[], object]] = []

        def make(row: Row, how: str, *, retries: bool, name: str = database) -> Bench:
            pipe, said = make_proxy(), str(retries).lower()
            uri, listeners = f"{pipe.uri}&retryWrites={said}&retryReads={said}", [Attempts()]
            if how == "sync":
                client: Any = MongoClient[Raw](uri, event_listeners=listeners)
                made.append(client.close)
            else:
                client = AsyncMongoClient[Raw](uri, event_listeners=listeners)
                made.append(partial(closed, loop, client))
            return Bench(row, Watched(spared, name), pipe, client, loop)

        yield make
        for close in made:
            close()


def complaints(row: Row, fault: str, n: int, ended: Ended) -> Iterator[str]:
    is_refused = fault in {"refused", "nobody knows"}  # a planner's query treats an unknown code as a refusal
    is_excused = (is_refused and ended.law == UNKNOWN) or ((is_refused or fault == TWICE) and ended.law in row.left)
    if ended.law is not None and not is_excused:
        yield f"{fault}, {n}: {ended}"
    for name, failure in ended.failed.items():
        raises = name in row.passes_on or (is_refused and isinstance(failure, Refused))
        if not raises:
            yield f"{fault}, {n}: {name} has no answer but {failure}\n{ended}"


REPLIED: Final = named_classes([PlanPage, RecordCount, TaskStatus])


def other_decisions(row: Row, ended: Ended, folder: Path) -> Iterator[str]:
    births = {each.name: each.birth for each in row.scenario().actors if isinstance(each, Process)}
    for name, heard in ended.heard.items():
        with Recorder(folder / f"{uuid4().hex}.jsonl", name) as recorder:
            replies = iter(heard)
            handle = recorder.recorded(partial(replied, replies))
            for effect, _ in heard:
                with suppress(Failure, asyncio.CancelledError):
                    handle(effect)
        found = executed(read(recorder.path.read_text()), births[name](0), REPLIED)
        if not isinstance(found, Same):
            yield f"{name}: {found}"


def replied(heard: Iterator[tuple[Effect[object], object]], _: Effect[object]) -> object:
    _, reply = next(heard)
    if isinstance(reply, BaseException):
        raise reply
    return reply


KINDS: Final = (("sync", False), ("async", False), ("sync", True), ("async", True))
CASES: Final = [(name, *KINDS[0]) for name in ROWS] + [(name, *kind) for kind in KINDS[1:] for name in ROWS][
    ::PROGRAM_KINDS_STEP
]


@pytest.mark.parametrize(("name", "how", "retries"), CASES, ids=str)
def test_any_command_of_a_program_may_fail(
    bench: MakeBench, tmp_path: Path, name: str, how: str, *, retries: bool
) -> None:
    """The laws hold in each state, the answer is true, and the recording replays."""
    row = ROWS[name]
    at = bench(row, how, retries=retries)
    clean = at.run()
    wrong = [*complaints(row, "nothing fails", 0, clean), *other_decisions(row, clean, tmp_path)]
    at_case = CASES.index((name, how, retries))
    is_cut = at_case % PROGRAM_CUTS_STEP == 0
    faults = {**FAULTS, **(CUTS if is_cut else {})}
    step = max(1, clean.commands // PROGRAM_FAULTS)
    for nth, (fault, rule) in [*enumerate(faults.items())][
        at_case % PROGRAM_FAULT_KINDS_STEP :: PROGRAM_FAULT_KINDS_STEP
    ]:
        for n, ended in at.each(rule, 1 + nth * step // len(faults), step, clean.commands):
            wrong += [*complaints(row, fault, n, ended), *other_decisions(row, ended, tmp_path)]

    assert not wrong, "\n\n".join(wrong)


# --- all programs -------------------------------------------------------------------------------------------------------

ELSEWHERE: Final[Mapping[str, str]] = {
    "tidegate.conformance.": "it runs on a real server in a test of its own",
    "tidegate.consumer.worker.transactions.": "of Kafka",
    "tidegate.invocations.record.array_push_lock.ClaimedRecord.leave": "of who is ended (`tests/integration/test_array_push_lock.py`)",
    "tidegate.invocations.queue.enqueueing.Enqueue._beside": "in a body, as transfers.move (the row `enqueueing.beside`)",
    "tidegate.invocations.worker.heartbeat._give_back": "where a process has taken what it was not told of, which a run may show or not",
    "tidegate.invocations.upkeep.pruning._is_past": "where a page is full (`tests/properties/invocations/test_purging.py`)",
    "tidegate.payloads.uploads._why_missing": "where a sweep overtakes a reader, which a run may show or not",
    "tidegate.reactive.task.fetching.Fetcher.held_of": "where a claim has no answer, or another was faster",
    "tidegate.reactive.task.reactive_task._is_not_known": "where no planner says (`tests/integration/test_reactive_planner.py` has one)",
    "tidegate.reactive.record._record_store.RecordStore.set_aside": "where a record cannot be read",
    "tidegate.reactive.task.completion.Completer.complete": "in a body, as transfers.move (the row `completing`)",
    "tidegate.reactive.task.reactive_task.ReactiveTask.work": "work_one, for ever",
    "tidegate.reactive.planning.garbage_collection.Sweeper.run": "turn, for ever",
    "tidegate.retries.attempt_delays.begins": "it asks for the time where attempts have a maximum duration",
    "tidegate.triggers._starting.RunStarter.start_apart": "where one of several is misuse (`tests/properties/triggers/test_evaluator.py`)",
    "tidegate.triggers._starting.RunStarter._prepared": "where what was uploaded is read (likewise)",
    "tidegate.triggers._cron_cells.CronCells.pending": "where a trigger waits for a cron (likewise)",
    "tidegate.triggers.evaluator._last": "where a trigger of all conditions has run (`tests/integration/test_orchestrator_upkeep.py`)",
    "tidegate.triggers.evaluator.Evaluator.notice_beside": "in a body, as transfers.move (the row `triggers.beside`)",
    "tidegate.triggers.evaluator._add_missing": "in a body, as transfers.move (the rows `triggers.beside` and `triggers.reporting`)",
    "tidegate.triggers.outbox_relay.Noticer.seen": "where a filter asks for what was uploaded (`tests/properties/triggers/test_noticing.py`)",
    "tidegate.triggers.outbox_relay._page": "likewise",
    "tidegate.triggers.outbox_relay._text": "likewise",
    "tidegate.triggers.outbox_relay.whole": "likewise",
    "tidegate.transactions.transfers.move": "a body, which in_transaction resumes, and does not await",
    "tidegate.services.members.forget": "of the purge (`tests/integration/test_orchestrator_retention.py`)",
    "tidegate.services.service_runner._now": "where the work fails",
    "tidegate.services.service_runner.ServiceRunner._look": "where another is inside, which a run may show or not",
    "tidegate.services.service_runner.ServiceRunner._record": "likewise",
}
"""Coroutine functions of the core that no row runs, or not always, by prefix, with the reason."""


def coroutines() -> set[str]:
    found = set()
    for module in walk_packages(tidegate.__path__, "tidegate."):
        parts = module.name.split(".")
        if (
            parts[1] == "sim"
            or parts[-1].startswith("__")
            or {"scenarios", "specimens", "strategies", "laws"} & {*parts}
        ):
            continue
        names = vars(import_module(module.name))
        spaces = [names, *(vars(each) for each in names.values() if isclass(each) and each.__module__ == module.name)]
        for space in spaces:
            functions = (each for each in space.values() if iscoroutinefunction(each))
            found |= {f"{each.__module__}.{each.__qualname__}" for each in functions if each.__module__ == module.name}
    return found


@pytest.mark.long  # it reruns them all
def test_every_program_of_the_core_has_a_row(bench: MakeBench, database: str) -> None:
    """A new program needs a scenario on a real server, or a reason in `ELSEWHERE`."""
    ran = set[str]()
    for number, row in enumerate(ROWS.values()):
        ran |= bench(row, "sync", retries=False, name=f"{database}-{number}").run().ran

    there = coroutines()
    assert [each for each in sorted(there - ran) if not each.startswith((*ELSEWHERE,))] == []
    assert [each for each in ELSEWHERE if not any(name.startswith(each) for name in there)] == []


# --- planted bugs -------------------------------------------------------------------------------------------------------

NOTHING_FAILS: Final = "nothing fails"
PLANTED: Final[Mapping[str, str]] = {
    "leader.release_deletes": NOTHING_FAILS,
    "counter.no_reply_is_yes": "the request is lost",
    "payloads.deletes_the_old_first": NOTHING_FAILS,
    "registration.place_is_enough": "the request is lost",
    "array_push_lock.lost_reply": "the reply is lost",
    "transition.ambiguous_is_refused": "the reply is lost",
    "transition.known.request_id_ignored": "the reply is lost",
    "transition.bulk.not_looked": "the reply is lost",
    "transition.bulk.not_yet_is_never": "the request is lost",
    "triggers.settles_before_it_invokes": NOTHING_FAILS,
    "triggers.claims_are_taken": NOTHING_FAILS,
    "reactive_task.refusal_is_done": NOTHING_FAILS,
    "deployments.keeps_flags": NOTHING_FAILS,
    "sweeper.begins_under_any_epoch": NOTHING_FAILS,
    "transfer.in_two_writes": NOTHING_FAILS,
    "transfer.read_apart": NOTHING_FAILS,
    "transfer.commit_is_not_asked_again": "the reply is lost",
    "transfer.goes_on_after_a_failure": "the request is lost",
    "transfer.begun_anew_after_the_commit": "the reply is lost",
    "on_call.write_skew": NOTHING_FAILS,
}
"""Specimens and the fault that shows them, or the schedule alone."""
RUNS: Final = 150


def test_an_end_that_is_written_beside_its_transaction_is_found(bench: MakeBench) -> None:
    at = bench(Row(partial(own.completing, own.invoiced_apart)), "sync", retries=False)
    assert at.run().law == own.INVOICED


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(bench: MakeBench, name: str) -> None:
    (specimen,) = [each for each in SPECIMENS if each.name == name]
    at, fault = bench(Row(specimen.scenario), "sync", retries=False), FAULTS.get(PLANTED[name])
    runs = (at.run(*(() if fault is None else (fault(1 + seed % 20),)), seed=seed) for seed in range(RUNS))

    assert any(ended.law == specimen.law for ended in runs)
