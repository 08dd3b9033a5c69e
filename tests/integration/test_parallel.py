"""Runs in several processes, on any executor and on a cluster, give the answer of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.command_lines import said_here
from tests.integration.interruptible import INTERRUPTIBLE

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.tally import Tally
from tidegate.sim.search.search import Progress
from tidegate.sim.world.faults import Fault
from tidegate_adapters.base.errors import WorkersLostError
from tidegate_adapters.cli.command_line import main
from tidegate_adapters.exploring.parallel import Order, in_processes, spread

T = TypeVar("T")
FAILS = Order("transition.request_id_ignored", Exploration(seed="0"))
HOLDS = Order("transition", Exploration(seed="0"))

MINE = '''
import os
from multiprocessing import parent_process
from pathlib import Path
from tidegate.leases.checks.scenarios.small_lock import small_lock

def dies_once():
    """In the first process that is asked."""
    mark = Path(__file__).with_name("died")
    if not mark.exists():
        mark.touch()
        os._exit(9)
    return small_lock(2, 2, 1, 1)

def dies():
    os._exit(9)

def fine():
    return small_lock(2, 2, 1, 1)

def dies_once_apart():
    """Not in the process that loads it to know its name."""
    return dies_once() if parent_process() else fine()
'''


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sim.runs.tally.PIECE", 25)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def in_pieces(order: Order, runs: range) -> Tally:
    return spread(AtOnce(), order, runs, at_once=1)


class AtOnce(Executor):
    def submit(self, run: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(run(*arguments, **named))
        return done


class LastFirst(ThreadPoolExecutor):
    def submit(self, run: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        return super().submit(self.late, run, *arguments, **named)

    @staticmethod
    def late(run: Callable[..., T], order: Order, piece: range) -> T:
        time.sleep(0.5 / (1 + piece.start))
        return run(order, piece)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("order", [FAILS, HOLDS], ids=["fails", "holds"])
def test_however_many_make_the_runs_the_answer_is_one(order: Order) -> None:
    runs = range(150)
    whole = in_pieces(order, runs)
    assert (whole.failed is None) == (order is HOLDS)
    if order is FAILS:
        assert in_processes(order, runs, jobs=2) == whole
    with LastFirst(2) as threads:
        assert spread(threads, order, runs, at_once=6) == whole
    if whole.failed is not None:
        assert whole.runs == whole.failed.run + 1
        again = order.sampler().sampled(whole, "0", lambda found: found)
        assert (again.seed, again.broken is not None and again.broken.law) == (
            f"0.{whole.failed.run}",
            whole.failed.law,
        )


@pytest.mark.usefixtures("small_pieces")
def test_whoever_is_impatient_gets_what_was_found() -> None:
    received: list[Progress] = []

    def proceed(progress: Progress) -> bool:
        received.append(progress)
        return len(received) < 2

    found = spread(AtOnce(), HOLDS, range(500), at_once=1, proceed=proceed)
    assert (found.runs, found.is_cut, [each.waiting for each in received]) == (50, True, [475, 450])


@pytest.mark.usefixtures("small_pieces", "mine")
def test_a_process_that_dies_is_replaced_and_what_was_finished_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new pool replaces a broken one. The target is a file below this folder, as in a shell."""
    kinds = (Fault.CRASH_BEFORE,)
    order = Order("mine.py:dies_once", Exploration(seed="0", faults=kinds))
    whole = in_pieces(Order("mine.py:fine", Exploration(seed="0", faults=kinds)), range(100))
    assert in_processes(order, range(100), jobs=1) == whole
    assert Path("died").exists()
    assert [kind for kind, _ in whole.faults] == [*kinds]
    monkeypatch.setattr("tidegate_adapters.exploring.parallel.POOLS_MAX", 1)
    with pytest.raises(WorkersLostError, match="worker processes died in 1 pools"):
        in_processes(Order("mine.py:dies", Exploration(seed="0")), range(100), jobs=1)


def test_what_is_wrong_in_a_worker_is_reported_as_it_is_here() -> None:
    with pytest.raises(Misuse, match="there is no scenario 'nothing'") as raised:
        in_processes(Order("nothing", Exploration(seed="0")), range(50), jobs=1)
    assert "tidegate list" in raised.value.todo


# --- a cluster ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=False
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.long
def test_a_worker_of_a_cluster_that_is_killed_loses_nothing(cluster: Any) -> None:
    runs = range(600)
    pids = cluster.run(os.getpid)
    assert len(set(pids.values()) - {os.getpid()}) == 2
    killed: list[int] = []

    def proceed(progress: Progress) -> bool:
        if not killed and progress.waiting < len(runs):
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)
        return True

    found = spread(cluster.get_executor(), HOLDS, runs, at_once=8, proceed=proceed)
    assert killed
    assert killed[0] not in cluster.run(os.getpid).values()
    assert found == in_pieces(HOLDS, runs)


# --- the command line ---------------------------------------------------------------------------------------------------


def test_scenarios_side_by_side_are_reported_as_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for jobs in ("1", "2"):
        command = ("explore", "-k", "transition.ve", "-k", "transition.v", "--jobs", jobs, "--json", "--out", ".")
        done = said_here(command, tmp_path, capsys)
        assert done.code == 0, done.err
        found = json.loads(done.out)
        answers.append([{**scenario, "seconds": 0} for scenario in found["scenarios"]])
    assert answers[0] == answers[1]
    assert answers[0]


def test_a_process_that_dies_loses_no_scenario(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["explore", "mine.py:fine", "mine.py:dies_once_apart", "-j", "2", "--no-store", "-q"]
    assert main(both) == 0
    assert (mine / "died").exists()
    assert capsys.readouterr().out.count("complete") == 2
    (mine / "died").unlink()
    monkeypatch.setattr("tidegate_adapters.cli.exploring.POOLS_MAX", 1)
    assert main(both) == ExitCode.RAISED, "nobody used it wrongly"
    printed = capsys.readouterr()
    assert "worker processes died in 1 pools of 2\n  where: not explored: " in printed.err
    assert "mine.py:dies_once_apart" in printed.err


def test_an_interrupt_ends_the_processes_and_what_was_found_is_reported() -> None:
    """Ctrl-C reaches the whole group."""
    asked = ["explore", "transition", "--runs", "1000000", "--seed", "1", "-j", "2", "--no-store"]
    with subprocess.Popen(
        [*INTERRUPTIBLE, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "seed 1\n"
        time.sleep(1)  # they run by now; while they start, an interrupt must end them, too
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert is_gone(process.pid)


def is_gone(group: int) -> bool:
    """Python's helper process outlives its parent for a moment."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
