"""Adapters, driver, kit, leases, payloads and streams on the simulated MongoDB, by seed.

`mongo_runs` has the runs and judges. A failure shows the command that repeats the run and the page
of its trace.
"""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.integration.mongo_runs import (
    APPLICATIONS,
    FAULTS,
    FAULTS_OF,
    WORKLOADS,
    Story,
    course,
    found,
    judged,
    line,
    main,
    page_of,
)
from tests.integration.mongo_workloads import WORKLOAD  # import before a bug is planted, or modules keep it
from tests.integration.planting import Bug, first, own_seeds, planted
from tests.length import MONGO_RUNS, MONGO_STORIES_STEP

from tidegate.sim.trace.trace import Breach, Truth
from tidegate.transactions import transacting
from tidegate_adapters.exploring.counterexamples import read as read_trace
from tidegate_adapters.kit import leases, resilience
from tidegate_adapters.kit.payloads import AsyncPayloads
from tidegate_adapters.mongo import attempts, calls, connection, elections, errors, sessions, store
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.runtime import driver

OF_RECORDS: Final = ("transitions", "settling")
OF_TRANSFERS: Final = ("transfers",)
BUGS: Final[Mapping[str, Bug]] = {
    "what is ambiguous is told as not applied": Bug(errors.failure, "return said.outcome(reason)", "return (NotApplied if said.outcome is Ambiguous else said.outcome)(reason)", OF_RECORDS, shown_by=("transitions", 44)),
    "what is ambiguous is told as refused": Bug(errors.failure, "return said.outcome(reason)", "return (Refused if said.outcome is Ambiguous else said.outcome)(reason)", ("counters",)),
    "a no after an earlier request is believed": Bug(errors.failure, "if (before is Before.OPEN and is_no)", "if (False and is_no)", ("kit",), shown_by=("kit", 225)),
    "what is not durable is told as done": Bug(errors.failure, "return said.outcome(reason)", "return None if said.outcome is NotDurable else said.outcome(reason)", ("kit",), shown_by=("kit", 110)),
    "a part that was done is forgotten": Bug(errors.failure_of_many, "if type(said) not in {Refused, NotApplied} or is_of_all:", "if True:", ("kit",), shown_by=("kit", 17139)),
    "earlier requests are forgotten": Bug(attempts.before, "others = requests[:-1] if error is None or is_said_by(requests[-1], error) else requests", "others = []", ("kit",), shown_by=("kit", 199)),
    "of two requests one is seen": Bug(attempts.Attempts.started, "requests.append({})", "requests[:] = [{}]", ("kit",), shown_by=("kit", 199)),
    "requests are not seen": Bug(store.AsyncMongo._ask, "REQUESTS.set(requests)", "REQUESTS.set(None)", OF_RECORDS, shown_by=("transitions", 34)),
    "reads see what no majority has": Bug(elections._of, "ReadConcern(level) if elections is None else _After(level, elections)", "ReadConcern('local')", ("counters",), shown_by=("counters", 2335)),
    "reads of a new primary see what was before": Bug(elections._of, "if elections is None else _After(level, elections)", "", ("transitions",), shown_by=("transitions", 344)),
    "writes are acknowledged by one": Bug(connection.opened, "**_HANDLE", "**{**_HANDLE, 'write_concern': WriteConcern(1)}", (*OF_RECORDS, "increments")),
    "the kit takes what one has for done": Bug(resilience.AsyncKit.__init__, "**_HANDLE", "**{**_HANDLE, 'write_concern': WriteConcern(1)}", ("kit",)),
    "the kit forgets that it has sent": Bug(resilience._failing, "before(requests, error) if listens(client) else Before.NOTHING", "Before.NOTHING", ("kit",), shown_by=("kit", 199)),
    "a step that may be done is told as not done": Bug(resilience._Bounds.ended, "self.may_count |= reply == 1 or isinstance(reply, (Ambiguous, NotDurable))", "pass", ("counters",)),
    "the kit does not know what it has inserted": Bug(resilience._insert, "return Duplicate.OWN if found.raw == sent else Duplicate.ANOTHERS", "return Duplicate.ANOTHERS", ("kit",)),
    "a cancellation is taken for an answer": Bug(driver.run_async, "except Failure as failure:\n                reply = failure", "except (Failure, asyncio.CancelledError) as failure:\n                reply = failure if isinstance(failure, Failure) else Refused('cancelled')", ("transitions", "kit"), shown_by=("kit", 296)),
    "a failure is told as an answer": Bug(driver._resumed, "program.throw(reply.fresh()) if isinstance(reply, Failure) else program.send(reply)", "program.send(1 if isinstance(reply, Failure) else reply)", ("increments",)),
    "a block goes on when its lease is lost": Bug(leases._Tenancy._work_ended, "self._on_lost()", "pass", ("leases",), shown_by=("leases", 6)),
    "a lease is not released": Bug(leases._Tenancy._stopped, "self._runtime.tell(StopRequested(self._now()))", "pass", ("leases",)),
    "the timer of a lease does not fire": Bug(leases._Tenancy._wake, "self._runtime.tell(TimerFired(self._now()))", "pass", ("leases",)),
    "the time of a lease stands still": Bug(leases._Tenancy._now, "self._loop.time()", "0", ("leases",)),
    "two uploads have one id": Bug(AsyncPayloads.put, "uuid4().hex", "'one'", ("payloads",)),
    "a stream forgets what came at once": Bug(ChangeStream._read, "return self._told(await self._open(position))", "_ = await self._open(position)", ("streams",)),
    "a stream does not tell of deletions": Bug(ChangeStream._told, "kind in _CHANGES", "kind in _CHANGES[:3]", ("streams",)),
    "a stream does not end its session": Bug(ChangeStream.close, "await cursor.session.end_session()", "pass", ("streams",)),
    "a stream that cannot be opened keeps its session": Bug(ChangeStream._open, "await session.end_session()", "pass", ("streams",), shown_by=("streams", 294)),
    "a stream that is cancelled keeps its session": Bug(ChangeStream.close, "finally:  # also where that is cancelled", "except KeyError:\n            pass\n        else:", ("streams",)),
    "a stream keeps a cursor that has failed": Bug(ChangeStream.read, "await self.close()", "pass", ("streams",), shown_by=("streams", 59)),
    "a commit is not asked for again": Bug(transacting.in_transaction, "failures.Operation.RECOGNISED, policy)", "failures.Operation.RECOGNISED, attrs.evolve(policy, attempts_max=1))", OF_TRANSFERS, shown_by=("transfers", 1550)),
    "an unknown commit is taken for a no": Bug(transacting.in_transaction, "return Unknown(sent.failure, attempts)", "return NotDone(sent.failure, attempts)", OF_TRANSFERS, shown_by=("transfers", 45477)),
    "a commit that no majority has is taken for one": Bug(errors.failure_of_commit, "return said if isinstance(said, NotDurable)", "return True if isinstance(said, NotDurable)", OF_TRANSFERS, shown_by=("transfers", 45477)),
    "a commit of nothing is taken for one": Bug(transacting.in_transaction, "if sent.reply:", "if True:", OF_TRANSFERS, shown_by=("transfers", 658)),
    "a conflict is taken for lasting": Bug(errors.failure_of_statement, "return NotApplied(f", "return Refused(f", OF_TRANSFERS),
    "the session of a transaction is not ended": Bug(sessions.Sessions._over, "await call(session.raw.end_session)", "pass", OF_TRANSFERS),
    "statements go beside the transaction": Bug(calls.carrying, "session=session)", ")", OF_TRANSFERS),
    "reads go beside the transaction": Bug(calls.carrying, "session=session)", "**({} if isinstance(operation, FindOne) else {'session': session}))", OF_TRANSFERS, shown_by=("transfers", 328)),
    "a stream begins anew from now": Bug(ChangeStream._pipeline, '{"$changeStream": begin}', '{"$changeStream": {}}', ("streams",)),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("collected")

AT_ONCE: Final = 25
"""Runs for each test, few enough to spread evenly over processes."""
SEEDS: Final = own_seeds(WORKLOADS, MONGO_RUNS, BUGS.values())


def of_kind(seed: int, workload: str) -> Story:
    return judged(seed, (workload,), (FAULTS[seed % len(FAULTS)],))


@pytest.mark.parametrize(
    ("workload", "nth"), [(workload, nth) for workload, seeds in SEEDS.items() for nth in range(0, len(seeds), AT_ONCE)]
)
def test_no_run_is_wrong(workload: str, nth: int) -> None:
    for seed in SEEDS[workload][nth : nth + AT_ONCE]:
        story = of_kind(seed, workload)
        if story.wrong:
            told = (workload,), (story.course.fault,)
            page = page_of(seed, *told, Path(".tidegate/failures"))
            pytest.fail(f"{story.wrong}\n    {line(seed, *told)}\n    {page}", pytrace=False)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_tells_the_same_story(workload: str) -> None:
    first = WORKLOADS.index(workload) % MONGO_STORIES_STEP
    for seed in SEEDS[workload][: len(FAULTS)][first::MONGO_STORIES_STEP]:
        assert of_kind(seed, workload).lines == of_kind(seed, workload).lines


def test_every_course_is_drawn() -> None:
    courses = [course(seed) for seed in range(1_000)]
    assert set(WORKLOAD) == set(WORKLOADS)
    assert {(each.workload, each.fault) for each in courses} == {(one, two) for one in WORKLOADS for two in FAULTS}


def test_no_run_is_under_a_fault_that_its_workload_does_not_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its judges do not know such a fault and would report it."""
    for workloads in (APPLICATIONS, ("kit", *APPLICATIONS)):
        courses = [course(seed, workloads) for seed in range(300)]
        assert all(each.fault in FAULTS_OF[each.workload] for each in courses)

    for named, says in (
        (
            ("--workloads", "reactive", "--faults", "kill,cancel"),
            "reactive has no fault 'cancel': it has nothing, kill, stop,",
        ),
        (("--workloads", "kits"), "no workload is named 'kits': there are transitions, settling,"),
    ):
        monkeypatch.setattr(sys, "argv", ["mongo_runs", "4545", *named])
        with pytest.raises(SystemExit):
            main()
        assert says in capsys.readouterr().err


def test_what_is_wrong_opens_as_a_page(tmp_path: Path) -> None:
    workloads = ("kit",)
    with planted(BUGS["the kit takes what one has for done"]):
        story = found(SEEDS["kit"], workloads)
        assert story is not None
        page = page_of(story.course.seed, workloads, None, tmp_path)
    trace = read_trace(page)

    assert trace.law.startswith("M2: ")
    assert trace.why == story.wrong[0]
    assert trace.steps[-1].truths == ((trace.law, Truth.BROKEN),)
    assert f'<code id="command">{line(story.course.seed, workloads)}</code>' in page.read_text("utf-8")

    right = read_trace(page_of(story.course.seed, workloads, None, tmp_path))
    assert (right.law, right.breach) == ("", Breach.NONE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a stuck run leaves its clients open
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first(BUGS[name], of_kind, SEEDS) is not None, f"not found by the seeds of {', '.join(BUGS[name].kinds)}"
