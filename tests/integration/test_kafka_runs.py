"""Workers on the simulated Kafka, by seed; `kafka_runs` has the runs and judges.

A failure shows the command that repeats the run and the page of its trace. With `--record` the
command keeps the decisions of each member for `tidegate replay`.
"""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.integration.kafka_runs import (
    BACK,
    BEYOND,
    FILLED_TO,
    GROWS,
    HELD,
    KEPT_FROM,
    KINDS,
    LATEST,
    NAMED,
    ORDERED,
    PARTITIONS,
    RECORDS,
    RECREATED,
    RETAINED,
    Story,
    course,
    found,
    judged,
    line,
    page_of,
)
from tests.integration.planting import Bug, first, own_seeds, planted
from tests.length import KAFKA_RUNS

from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.flow.offset_reset import begins, goes_on
from tidegate.consumer.flow.partition_pause import Holding
from tidegate.consumer.partition import _failures, _window_work
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules, _judged
from tidegate.model.instants import SECOND
from tidegate.sim.program.recording import Same, read
from tidegate.sim.trace.trace import Breach, Lane, Mover, Truth
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.cli.recordings import again
from tidegate_adapters.exploring.counterexamples import read as read_trace
from tidegate_adapters.kafka import client, static_membership, worker
from tidegate_adapters.kafka.assignment import Assignment, Topics
from tidegate_adapters.kafka.commits import Committing
from tidegate_adapters.kafka.handler_calls import UserCode
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.member import Member
from tidegate_adapters.kafka.poll_loop import PollLoop
from tidegate_adapters.kafka.producer import DeadLetters, KafkaSink
from tidegate_adapters.kafka.start_positions import Beginnings
from tidegate_adapters.kafka.static_membership import OwnName
from tidegate_adapters.runtime.reducers import Runtime, _Runners
from tidegate_adapters.sinks.port import Outbox

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Killed members leave coroutines that never end and warn when collected."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Garbage of a run is collected within its own test; older objects are frozen."""
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()


AGAIN: Final = ("rebalance", "stop", "evicted", "kill")
BUGS: Final[Mapping[str, Bug]] = {
    "a commit goes out under whatever generation there is": Bug(
        client.commit, "if wanted is not None and (wanted == NO_GENERATION or wanted != generation_of(consumer)):", "if False:", ("stall",),
        shown_by=("stall", 61)),
    "positions of a topic that has gone are committed of the next": Bug(
        Topics.is_gone, "self._is_gone(commit.partition, commit.generation)", "False", RECREATED,
        shown_by=("recreated", 232)),
    "what was done before a loss is handled again": Bug(PollLoop._deliver, "self._records.compared(partition, received) if state.kept else", "", ("blocks",)),
    "what was done before a loss counts by its offset alone": Bug(Records.compared, "known[each.offset] == _digest(each)", "True", ("anew",)),
    "what was done before a loss is not known again": Bug(Records.done, "if self._is_in_danger:", "if False:", ("blocks",)),
    "a generation is not asked for": Bug(
        Committing._sent, "self._assignment.granted.get(request[0].generation, ports.NO_GENERATION)", "None", ("stall",),
        shown_by=("stall", 61)),
    "the next owner begins one too late": Bug(client.committed, "(at.offset, at", "(at.offset + 1, at", AGAIN),
    "where a group begins is found anew by the next owner": Bug(Beginnings._told, '"" if is_first else None', '""', LATEST),
    "who has committed all begins anew": Bug(begins, "committed > end", "committed >= end", AGAIN),
    "a position beyond the end stays committed until something is done": Bug(Beginnings._told, "return position, None", 'return position, ""', BEYOND, shown_by=("beyond", 1312)),
    "a position below the start stays committed until something is done": Bug(Beginnings._held, "return log.start, None", 'return log.start, ""', RETAINED),
    "a position below the start is none": Bug(begins, "return Begins.AT_THE_START", "return Begins.AS_TOLD", RETAINED),
    "a member below the start begins again": Bug(goes_on, "return GoesOn.AT_THE_START", "return GoesOn.AGAIN", RETAINED),
    "a member below the start stays there": Bug(goes_on, "return GoesOn.AT_THE_START", "return GoesOn.WHERE_IT_IS", RETAINED, shown_by=("retained", 1405)),
    "a member below the start goes on at the end": Bug(PollLoop._go_on, "position, log)", "position, LogRange(log.end, log.end))", RETAINED),
    "the client goes to the end by itself": Bug(worker.Worker.run, "| _NO_RESET", "", RETAINED),
    "what is removed is not told": Bug(PollLoop._skip_removed, "self._beginnings.removed(partition, position, log)", "pass", RETAINED),
    "what was removed before a partition begins is not told": Bug(Beginnings._held, "self.removed(partition, committed[0], log)", "pass", RETAINED),
    "whose partition has gone while it looked where that begins has failed": Bug(
        Assignment._resumed, "if self.generations.get(partition) != generation:", "if False:", BEYOND
    , shown_by=("beyond", 654)),
    "a commit is one too high": Bug(Committing._sent, "(each.position, each.metadata)", "(each.position + 1, each.metadata)"),
    "nothing is drained": Bug(Member._revoked, "await wait.wait()", "pass", (*AGAIN, "slow", "hangs")),
    "paused partitions stay so": Bug(PollLoop._poll, "for each in plan.resume if", "for each in () if"),
    "a failure is told as a success": Bug(UserCode._handled_event, "failed.append(", "done.append(", ("raises",)),
    "a stop is not told": Bug(Member.stop, "self.life.tell(StopRequested(known))", "pass"),
    "a release is not told": Bug(Member._begin, "wait.set()", "pass"),
    "one record is handled for all of a batch": Bug(Records.received, "for offset in work.offsets", "for offset in work.offsets[:1] * len(work.offsets)", ("expected",)),
    "a BaseException of user code ends its runner": Bug(_Runners._run, "except BaseException as error", "except Exception as error", ("raises",)),
    "an observer may raise": Bug(Runtime._observe, "except BaseException as error", "except KeyError as error", ("observer", "recorder")),
    "of what came in one turn only the first is told": Bug(Runtime._turn, "= self._told, []", "= self._told[:1], []"),
    "what has ended is not looked at": Bug(Runtime._end, "self._come()", "pass"),
    "timers take a hundred times as long": Bug(Runtime._carry_out, "max(seconds, 0)", "100 * max(seconds, 0)", ("hangs", "slow")),
    "partitions change places": Bug(client.ours, "theirs_.partition)", "theirs_.partition ^ 1)"),
    "revocations are not told": Bug(client._Listener.on_partitions_revoked, "await self._on_revoked(sorted(map(ours, revoked)))", "pass", AGAIN),
    "assignments are not told": Bug(client._Listener.on_partitions_assigned, "await self._on_assigned(sorted(map(ours, assigned)))", "pass"),
    "each call is made twice": Bug(_Runners.enqueue, "for each in given]", "for each in given for _ in range(2)]"),
    "what a handler answers with is sent after it is told": Bug(_Runners._run, "reply = await work.then(", "asyncio.ensure_future(work.then(runner.given, reply)) if work.then else (", ("sends",)),
    "what a handler answers with is not sent": Bug(UserCode._ended, "await self._outbox.deliver(sends)", "pass", ("sends",)),
    "an acknowledgement is not waited for": Bug(KafkaSink._sent, "await acknowledged(records, sent)", "pass", ("sends", "letters")),
    "a send that fails counts": Bug(KafkaSink._sent, "return ports.send_failure(error)", "return None", ("sends",)),
    "a send that fails is a failure of its record": Bug(KafkaSink._sent, "return ports.send_failure(error)", "return Refused(str(error))", ("sends",)),
    "a payload that fails is not tried again": Bug(Outbox._event_for, "entry.error = failure\n", "entry.settle(None)\n", ("sends",)),
    "who waits for a payload is told of another": Bug(Outbox._event_for, "self._entries.get(number)", "self._entries.get(number + 1)", ("sends",)),
    "whoever waits for what is delivered is not told": Bug(Outbox._event_for, "entry.settle(None)", "pass", ("sends",)),
    "what cannot be delivered is not tried at its time": Bug(Outbox._begin, "return After((until - self._now()) / SECOND)", "return None", ("sends",)),
    "whoever waits while another's failure closes the producer has failed": Bug(KafkaSink._queued, "if self._producer is producer:", "if True:", ("sends",)),
    "what a batch is answered with is not waited for": Bug(UserCode._handled_batch, "await self._ended(work, attempt, given, await handle(given))", "asyncio.ensure_future(self._ended(work, attempt, given, await handle(given)))", ("batches",)),
    "what is parked is told as done": Bug(UserCode._handled_event, "parked.setdefault(reply.delay, []).append(offset)", "done.append(offset)", ("parks",)),
    "what is parked is not told": Bug(UserCode._handled_event, "self._tell(", "id(", ("parks",)),
    "a dead letter is not waited for": Bug(UserCode._answered_for, "await self._dead_letters.write(record, failed)", "asyncio.ensure_future(self._dead_letters.write(record, failed))", ("letters",)),
    "a dead letter that fails counts": Bug(DeadLetters.write, "await asyncio.sleep(then.delay / SECOND)", "return", ("letters",)),
    "what fails is skipped": Bug(UserCode._answered_for, "is not None", "is None", ("letters",)),
    "what a hook leaves unanswered is waited for": Bug(
        _window_work.apply_window_report, "if ended is None else", "if True else", ("partial",)
    ),
    "of a window a record is taken for all": Bug(
        Member._in_flight, "(each.given if isinstance(each.given, tuple) else (each.given,))", "each.given", ("expected",)
    ),
    "an estimate may raise": Bug(Member._estimated, "except BaseException as error", "except KeyError as error", ("expected",)),
    "what is polled along with what cannot be decoded is lost": Bug(PollLoop._read_on, "assignment.seek(partition, positions[partition])", "pass", ("poison",)),
    "what cannot be decoded is left out": Bug(PollLoop._read_on, "self._deliver(partition, found.records)", "pass", ("poison",)),
    "the group does not wait for the drain": Bug(
        worker.client_times, "heartbeat_ms * MILLISECOND + drain.total + _ON_THE_WAY", "5 * _ON_THE_WAY", ("slow", "hangs", "stubborn")
    ),
    "what outlives its partition does not count": Bug(
        ConsumerRules._stepped, "outliving = given_up(outliving, before, done.commands)", "pass", ("stubborn",)
    ),
    "who is cancelled does not drain": Bug(Member.run, "self.stop()", "raise", ("cancel",)),
    "an error of the client comes out as it is": Bug(
        Member._connect,
        "if failures == _STARTS_MAX or ports.has_begun(self._client):",
        "if failures:\n                raise OSError from error\n            if not failures:",
        ("requests", "request"),
    ),
    "questions that have been answered are kept": Bug(Lifecycle.spawn, "self._tasks.discard(task)", "pass", AGAIN),
    "records of what was let go are kept": Bug(Member._begin, "self._forget(partition)", "pass", AGAIN),
    "a client that does not start is not stopped": Bug(Member._left, "self._client.stop()", "asyncio.sleep(0)", ("requests", "request")),
    "who ends leaves commits behind": Bug(Member._finish, "await self._committing.close()", "pass", ("requests", "commits")),
    "who ends leaves questions behind": Bug(Member._finish, "await self._beginnings.close()", "pass", ("requests", "request"), shown_by=("requests", 50)),
    "commits that fail do not back off": Bug(Commits.unknown, "backs_off=True", "backs_off=False", ("commits",)),
    "a commit that is refused is told as committed": Bug(Committing._reply, "return found.reply", "return None", ("requests", "request", "evicted")),
    "who has left leaves again": Bug(Member._left, "if self._leave_by_s is None:", "if True:", ("sends",)),
    "what sends is not ended": Bug(Member._left, "self._outbox.stop()", "asyncio.sleep(0)", ("sends",)),
    "a question that failed is not asked again": Bug(Assignment._resumed, "continue", "return", ("asks",)),
    "a question that failed is never answered": Bug(Beginnings._is_answered, "found = error", "return True", ("asks",)),
    "the client sends again what has failed": Bug(client.commit, "if error.retriable:", "if False:", ("commits",), shown_by=("commits", 18)),
    "whoever exits twice does not drain": Bug(Lifecycle.end_with, "not self.is_called_off", "True", ("exits",)),
    "a log may raise": Bug(Lines.__call__, "except BaseException:", "except KeyError:", ("log",)),
    "a session that was lost is told as a revocation": Bug(Member._revoked, "is_lost = ports.generation_of(self._client) == ports.NO_GENERATION", "is_lost = False", ("evicted", "stall"), shown_by=("evicted", 185)),
    "what is parked is tried again at once": Bug(UserCode._handled_event, "parked.setdefault(reply.delay, [])", "parked.setdefault(Duration(0), [])", ("parks",)),
    "what has failed is tried again at once": Bug(Member._begin, "jittered(duration, jitter_ppm, draw) / SECOND", "0", ("log",)),
    "whose name was taken joins again": Bug(Member._revoked, "raise asyncio.CancelledError", "return", NAMED),
    "who has failed joins again while it asks why": Bug(PollLoop.run, "ports.join_no_more(self._client)", "pass", NAMED, shown_by=("named", 1267)),
    "nobody asks whether a name was taken": Bug(static_membership.is_taken, "return code == FENCED_INSTANCE_ID", "return False", NAMED),
    "whoever is put out has lost its name": Bug(static_membership.is_taken, "return code == FENCED_INSTANCE_ID", "return True", NAMED),
    "whoever asks for its name joins no more": Bug(OwnName.is_taken, "            return False\n        error", "            return True\n        error", NAMED),
    "whose name was taken is not told so": Bug(OwnName.is_taken, "self._life.tell(NameTaken())", "pass", NAMED),
    "keys are not told": Bug(PollLoop._deliver, "if self._needs_keys else ()", "if False else ()", ORDERED),
    "each record has a key of its own": Bug(PollLoop._deliver, "each.key for", "b'%d' % each.offset for", ORDERED),
    "records by offset do not wait": Bug(PartitionRules._assigned, "self.ordering is not Ordering.BY_OFFSET", "True", ORDERED),
    "the rest of a key that is dead-lettered is run": Bug(_failures.apply_failure_policy, "part.order.closing(request.offsets, drops=False)", "part.order", ORDERED),
    "held partitions are resumed and polled": Bug(
        PollLoop._poll, "asked = plan.poll or tuple(map(ours, self._client.paused()))",
        "asked = tuple(self._assignment.generations); self._client.resume(*self._client.paused())", HELD,
    ),
    "what a partition holds up is not looked at": Bug(Holding.decided, "type(self.hold) is Free and", "True or", HELD),
    "a gate does not close": Bug(_judged, "before if is_same", "before if True", HELD),
    "runners are not woken": Bug(_Runners._woken, "idle.set_result(None)", "pass"),
    "what is waited for is not woken": Bug(Runtime._turn, "self._wake()", "pass"),
}  # fmt: skip


MEMBER: Final = """
from tests.integration.kafka_runs import CLIENT, DRAIN, ConsumerRules, PartitionRules, Worker, course

async def handle(record): ...

worker, other = (
    Worker(["t"], handle, bootstrap="here:9092", group="g", **CLIENT,
           concurrency=executors, consumer=ConsumerRules(partition=PartitionRules(drain=DRAIN)))
    for executors in (course(17, ("nothing",)).executors, 1)
)
"""


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


AT_ONCE: Final = 20
"""Runs for each test, few enough to spread evenly over processes."""


ALONE: Final = (*KINDS, *LATEST, *GROWS, *RECREATED, *NAMED, *BEYOND, *ORDERED, *HELD, *RETAINED, *BACK)
SEEDS: Final = own_seeds(ALONE, KAFKA_RUNS, BUGS.values())


@pytest.mark.parametrize(
    ("kind", "nth"), [(kind, nth) for kind, seeds in SEEDS.items() for nth in range(0, len(seeds), AT_ONCE)]
)
def test_no_run_is_wrong(kind: str, nth: int) -> None:
    """The laws of `partition`, `group` and `shutdown` over the real worker, and plain ones."""
    kinds = (kind,)
    story = found(SEEDS[kind][nth : nth + AT_ONCE], kinds)
    if story is not None:
        page = page_of(story.course.seed, kinds, Path(".tidegate/failures"))
        pytest.fail(f"{story.wrong}\n    {line(story.course.seed, kinds)}\n    {page}", pytrace=False)


def test_a_hook_counts_until_the_worker_hears_that_another_has_answered_for_it() -> None:
    """In this run judge J7 once counted the hook's successor as one too many."""
    assert judged(15_327, ("partial",)).wrong == []


def test_a_partition_that_is_added_is_consumed_to_its_end() -> None:
    for seed in range(5):
        story = judged(seed, GROWS)
        assert story.wrong == []
        assert story.committed[PARTITIONS][0] == RECORDS
        assert {(PARTITIONS, offset) for offset in range(RECORDS)} <= story.finished


def test_a_topic_that_is_made_anew_is_consumed_from_its_beginning() -> None:
    for seed in range(5):
        story = judged(seed, RECREATED)
        assert story.wrong == []
        assert story.life == 1
        assert len(story.finished) == PARTITIONS * RECORDS
        assert [at for at, *_ in story.committed.values()] == [RECORDS] * PARTITIONS


def test_logs_lose_their_starts_under_members_and_before_they_begin() -> None:
    for seed in range(5):
        story = judged(seed, RETAINED)
        assert story.wrong == []
        assert {(number, at) for number in (1, 3) for at in range(KEPT_FROM)} <= story.removed
        assert {number for number, at in story.removed if at >= FILLED_TO} == set(range(PARTITIONS))


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_tells_the_same_story(seed: int) -> None:
    assert judged(seed).lines == judged(seed).lines


def test_the_jitter_of_retries_is_the_seeds() -> None:
    random.seed(1)
    lines = judged(3, ("sends",)).lines
    random.seed(2)
    assert judged(3, ("sends",)).lines == lines


def test_what_is_wrong_opens_as_a_page(tmp_path: Path) -> None:
    kinds = ("rebalance",)
    with planted(BUGS["a commit is one too high"]):
        story = found(SEEDS[kinds[0]], kinds)
        assert story is not None
        page = page_of(story.course.seed, kinds, tmp_path)
    trace = read_trace(page)

    assert trace.law == "J2: No position is committed while a record before it is unfinished (P1)."
    assert trace.why == story.wrong[0]
    assert trace.steps[-1].truths == ((trace.law, Truth.BROKEN),)
    assert [str(step.at) for step in trace.steps] == [
        str(round(each.at_s * SECOND)) for each in story.told[: len(trace.steps)]
    ]
    *_, seen = trace.states()
    assert {"committed", "finished", "at work"} == {name for name, _ in seen.items}
    assert Mover("a", Lane.PROCESS) in trace.movers
    assert f'<code id="command">{line(story.course.seed, kinds)}</code>' in page.read_text("utf-8")

    right = read_trace(page_of(story.course.seed, kinds, tmp_path))
    assert (right.law, right.breach) == ("", Breach.NONE)


def test_what_a_member_recorded_is_decided_again(tmp_path: Path) -> None:
    """`tidegate replay` reproduces it with the same rules and diverges with others."""
    assert judged(17, ("nothing",), tmp_path / "17").wrong == []
    (tmp_path / "member.py").write_text(MEMBER)
    recording = read((tmp_path / "17" / "a.jsonl").read_text("utf-8"))

    same = again(recording, f"{tmp_path}/member.py:worker")
    assert isinstance(same, Same)
    assert same.steps > 20
    assert not isinstance(again(recording, f"{tmp_path}/member.py:other"), Same)


def test_every_kind_of_fault_is_drawn() -> None:
    assert {course(seed).kind for seed in range(200)} == set(KINDS)


def of_kind(seed: int, kind: str) -> Story:
    return judged(seed, (kind,))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first(BUGS[name], of_kind, SEEDS) is not None, f"not found by the seeds of {', '.join(BUGS[name].kinds)}"
