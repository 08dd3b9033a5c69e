"""The plug-in for pytest, in a project and process of its own."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable

import pytest
from tests.integration.command_lines import said_here

SCENARIOS = """
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.sim import factory, Fault, Faults, Process, Returned, Scenario, world_with

CRASHES = Faults.of(Fault.CRASH_BEFORE)
COUPON, USED_BY = Eq(ID, "coupon"), Field[str | None]("used_by")


async def careless(customer):
    coupon = await find_one("coupons", COUPON)
    if coupon[USED_BY] is not None:
        return False
    await find_one_and_update("coupons", COUPON, Put(USED_BY, customer))
    return True


async def careful(customer):
    return await find_one_and_update("coupons", AllOf((COUPON, Eq(USED_BY, None))), Put(USED_BY, customer)) is not None


def coupon(program, expect=None):
    return Scenario(
        name="coupon",
        summary="a coupon is used at most once",
        world=world_with({"coupons": (Document.of({"_id": "coupon", "used_by": None}),)}),
        actors=(Process("ann", factory(program, "ann"), CRASHES), Process("bob", factory(program, "bob"))),
        always={"once": lambda state: [*map(state.status, ("ann", "bob"))].count(Returned(value=True)) < 2},
        expect=expect,
    )
"""

Run = Callable[..., pytest.RunResult]
pytestmark = pytest.mark.usefixtures("set_aside")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "TIDEGATE_"))]:
        monkeypatch.delenv(name)
    pytester.makeini("[pytest]")
    pytester.makepyfile(coupons=SCENARIOS)

    def pytest_with(test: str | None, *options: str) -> pytest.RunResult:
        if test is not None:
            pytester.makepyfile(test_it=f"import pytest\nfrom coupons import *\n\n{test}")
        return pytester.runpytest("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options)

    return pytest_with


CARELESS = "def test_it(sim):\n    sim.explore(coupon(careless))\n"
CAREFUL = "def test_it(sim):\n    sim.explore(coupon(careful))\n"


def test_what_is_right_passes_and_is_reported_in_one_line(run: Run) -> None:
    done = run(CAREFUL, "--tidegate-seed=7", "--tidegate-stats")

    assert done.ret == 0, done.stdout.str()
    assert "tidegate: profile default, seed 7" in done.stdout.str()
    assert "1 explorations: 1 complete; seed 7" in done.stdout.str()
    assert re.search(r"test_it\.py::test_it: complete: coupon, \d+ states", done.stdout.str())


def test_a_counterexample_fails_the_test_and_its_line_replays_it(run: Run, pytester: pytest.Pytester) -> None:
    done = run(CARELESS)
    line = re.search(r"^replay    (.*)$", done.stdout.str(), re.MULTILINE)

    assert done.ret == 1
    assert "AssertionError: coupon breaks the law: once" in done.stdout.str()
    assert "<- once: broken here" in done.stdout.str()
    assert line is not None, done.stdout.str()
    command, *options = shlex.split(line[1])
    assert command == "pytest"
    replayed = run(None, *options)
    assert replayed.ret == 1
    assert re.search(r"reproduced 4 steps: coupon breaks the law: once", replayed.stdout.str())
    assert sorted(path.suffix for path in (pytester.path / ".tidegate" / "failures").glob("coupon-*")) == [
        ".html",
        ".json",
        ".txt",
    ]


def test_what_is_not_replayed_is_a_warning(run: Run, pytester: pytest.Pytester) -> None:
    run(CARELESS)
    (file,) = (pytester.path / ".tidegate" / "failures").glob("*.json")
    file.write_text(file.read_text().replace('"scenario": "test_it.py::test_it"', '"scenario": "coupons.py:coupon"'))
    done = run(CAREFUL, f"--tidegate-replay={file}", "-Wdefault::pytest.PytestWarning")
    assert done.ret == 0
    assert "was recorded in 'coupons.py:coupon': 'coupon' is explored, and nothing is replayed" in done.stdout.str()
    done = run("def test_it(sim):\n    sim.explore(coupon)\n")
    assert "a scenario must be a Scenario, got function" in done.stdout.str()


def test_a_replay_in_a_mended_program_says_where_it_diverges(
    run: Run, pytester: pytest.Pytester, tidegate: Callable[..., str]
) -> None:
    run(CARELESS)
    (file,) = (pytester.path / ".tidegate" / "failures").glob("*.json")
    done = run(CAREFUL, f"--tidegate-replay={file}")

    assert done.ret == 1
    assert "the replay diverged at step 0: the first state differs: /processes/ann" in done.stdout.str()
    line = re.search(r"explore from there: tidegate (.*)$", done.stdout.str(), re.MULTILINE)
    assert line is not None, done.stdout.str()
    assert "complete: " in tidegate(0, *shlex.split(line[1]))


@pytest.fixture
def tidegate(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def answer(code: int, *arguments: str) -> str:
        said = said_here(arguments, pytester.path, capsys)
        assert said.code == code, said.err
        return said.out + said.err

    return answer


def test_what_a_test_has_found_is_replayed_and_shrunk_from_the_command_line(
    run: Run, pytester: pytest.Pytester, tidegate: Callable[..., str]
) -> None:
    test = (
        "@pytest.mark.parametrize('program', [careful, careless])\n"
        "def test_it(sim, program):\n    sim.explore(coupon(careful))\n    sim.explore(coupon(program))\n"
    )
    run(test, "--tidegate-runs=50", "--tidegate-seed=3", "--tidegate-no-shrink")
    (page,) = (pytester.path / ".tidegate" / "failures").glob("*.html")
    command = re.search(r'<code id="command">tidegate replay (.*?)</code>', page.read_text())

    assert command is not None
    assert '"scenario": "test_it.py::test_it[careless]#2"' in page.with_suffix(".json").read_text()
    assert "reproduced 4 steps" in tidegate(0, "replay", command[1])
    assert "after step 2:" in tidegate(0, "replay", command[1], "--until", "2")
    assert "shrunk from 4 steps to 4" in tidegate(0, "shrink", command[1], "--no-store")
    line = ("test_it.py::test_it[careless]", f"--tidegate-replay={page.with_suffix('.json')}")
    assert "reproduced 4 steps: coupon" in run(None, *line).stdout.str()
    for lost in ("test_it.py::test_it[nobody]", "test_it.py::test_it[careful]#3", "coupons.py::coupon"):
        assert "explores no such scenario" in tidegate(2, "explore", lost)


def test_random_runs_are_had_again_by_the_seed_whatever_other_tests_there_are(run: Run) -> None:
    marked = "@pytest.mark.tidegate(runs=20)\n" + CARELESS
    other = marked.replace("test_it", "test_another")
    story = re.compile(r"coupon: breaks the law.*?(?=replay )", re.DOTALL)
    stories = {
        story.findall(done.stdout.str())[-1]
        for done in (
            run(marked, "--tidegate-seed=5"),
            run(other + marked, "--tidegate-seed=5"),
            run(marked, "--tidegate-seed=5", "-n2"),
        )
    }

    assert len(stories) == 1


def test_what_random_runs_find_is_reported_as_it_was_found_and_then_shrunk(run: Run, pytester: pytest.Pytester) -> None:
    options = ("--tidegate-runs=50", "--tidegate-seed=3", "--tidegate-policy=random", "--tidegate-artifacts=kept")
    done = run(CARELESS, *options)

    assert done.ret == 1
    found, shrunk = re.findall(r"^coupon: breaks the law: once\n(\d+) steps", done.stdout.str(), re.MULTILINE)
    assert (int(found) >= int(shrunk), shrunk) == (True, "4")
    assert re.search(rf"^shrunk from {found} steps to {shrunk}, ", done.stdout.str(), re.MULTILINE)
    files = sorted(path.name for path in (pytester.path / "kept").glob("*.json"))
    assert [len(files), files[1]] == [2, files[0].replace(".json", ".shrunk.json")]
    for line in re.findall(r"^replay    pytest (.*)$", done.stdout.str(), re.MULTILINE):
        assert "reproduced" in run(None, *shlex.split(line)).stdout.str()
    alone = run(None, *options, "--tidegate-no-shrink")
    assert alone.ret == 1
    assert len(re.findall(r"^coupon: breaks the law: once$", alone.stdout.str(), re.MULTILINE)) == 1


def test_a_goal_that_is_never_reached_is_a_warning_and_on_demand_a_failure(run: Run) -> None:
    """On demand: `-W error`."""
    test = (
        "import attrs\ndef test_it(sim):\n"
        "    sim.explore(attrs.evolve(coupon(careful), sometimes={'it flies': lambda state: False}))\n"
    )
    lenient, strict = (run(test, "-W", f"{filtered}::pytest.PytestWarning") for filtered in ("default", "error"))

    assert lenient.ret == 0
    assert "PytestWarning: tidegate: coupon: goal never reached: it flies" in lenient.stdout.str()
    assert strict.ret == 1


def test_a_worker_has_the_seed_of_the_session(run: Run, pytester: pytest.Pytester) -> None:
    tests = "".join(CAREFUL.replace("test_it", f"test_{number}") for number in range(3))
    done = run(tests, "-n2", "--junit-xml=junit.xml")

    header = re.search(r"tidegate: profile default, seed (\d+)", done.stdout.str())
    seeds = re.findall(r'name="tidegate_seed" value="(\d+)"', (pytester.path / "junit.xml").read_text())
    assert done.ret == 0, done.stdout.str()
    assert header is not None
    assert seeds == [header[1]] * 3


def test_random_runs_without_a_finding_pass_and_a_bound_that_stops_does_not(run: Run) -> None:
    """Random runs are known to prove nothing; a search stopped by a bound gives no answer."""
    seed = "--tidegate-seed=1"  # at one in twenty a fault may never strike, which warns
    sampled = run("@pytest.mark.tidegate(runs=5)\n" + CAREFUL, seed)
    stopped = run("@pytest.mark.tidegate(states_max=2)\n" + CAREFUL)

    assert sampled.ret == 0, sampled.stdout
    assert "1 inconclusive" in sampled.stdout.str()
    assert stopped.ret == 1
    assert "coupon is inconclusive" in stopped.stdout.str()


def test_what_is_expected_to_be_violated_passes_only_if_it_is(run: Run) -> None:
    caught = run(CARELESS.replace("(careless)", '(careless, expect="once")'))
    missed = run(CAREFUL.replace("(careful)", '(careful, expect="once")'))

    assert caught.ret == 0, caught.stdout
    assert missed.ret == 1
    assert "coupon is complete, and was expected to break: once" in missed.stdout.str()


def test_a_profile_and_an_option_are_stronger_than_the_mark(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "pyproject.toml").write_text("[tool.tidegate.profiles.ci]\nruns = 3\n")
    marked = "@pytest.mark.tidegate(runs=1)\n" + CAREFUL

    profiled = run(marked, "--tidegate-profile=ci", "--tidegate-stats")
    optioned = run(marked, "--tidegate-profile=ci", "--tidegate-stats", "--tidegate-runs=2")
    unknown = run(marked, "--tidegate-profile=cj")

    assert "profile ci" in profiled.stdout.str()
    assert "3 random runs" in profiled.stdout.str(), profiled.stdout
    assert "2 random runs" in optioned.stdout.str()
    assert unknown.ret == 4
    assert "there is no profile 'cj'" in unknown.stderr.str()


def test_the_mark_chooses_among_the_faults_of_a_scenario(run: Run) -> None:
    crashing = CAREFUL.replace("coupon(careful)", "attrs.evolve(coupon(careful), budget=1)").replace(
        "def ", "import attrs\n\ndef ", 1
    )

    struck, spared, unknown, bounded = (
        run(crashing, "--tidegate-stats", option)
        for option in (
            "--tidegate-faults=crash_before",
            "--tidegate-faults=none",
            "--tidegate-faults=crush",
            "--tidegate-max-faults=0",
        )
    )

    more, fewer, none = (re.findall(r"coupon, (\d+) states", done.stdout.str()) for done in (struck, spared, bounded))
    assert int(*more) > int(*fewer)
    assert none == fewer
    assert "there is no fault 'crush'" in unknown.stdout.str()


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("tidegate(run=1)", "tidegate knows no run; it knows runs"),
        ("tidegate(5)", "the mark tidegate takes names: runs"),
        ("tidegate(runs='many')", "runs is a number from 0 on, and not 'many'"),
        ("tidegate(runs=1, policy='luck')", "there is no policy 'luck'; there are: random"),
    ],
)
def test_a_mark_that_says_what_there_is_not_is_refused(run: Run, mark: str, complaint: str) -> None:
    done = run(f"@pytest.mark.{mark}\n{CAREFUL}")

    assert done.ret == 1
    assert "UsageError" in done.stdout.str()
    assert complaint in done.stdout.str()


def test_hooks_receive_reports_and_counterexamples(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "conftest.py").write_text(
        "def pytest_tidegate_report(item, report):\n    print('report', item.name, report.verdict.value)\n"
        "def pytest_tidegate_counterexample(item, trace, path):\n    print('found', trace.law, path.suffix)\n"
    )
    done = run(CARELESS, "-s")

    assert "report test_it violated" in done.stdout.str()
    assert "found once .json" in done.stdout.str()


def test_whoever_does_not_use_it_does_not_pay_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('tidegate.')]\n"
    )

    assert pytester.runpytest_subprocess("-p", "no:cacheprovider").ret == 0


def test_it_can_be_turned_off(run: Run) -> None:
    assert "fixture 'sim' not found" in run(CAREFUL, "-p", "no:tidegate").stdout.str()


def test_one_can_do_without_the_plug_in(run: Run) -> None:
    done = run(
        "from tidegate.testing import assert_no_counterexample\n"
        "def test_right():\n    assert assert_no_counterexample(coupon(careful)).states > 2\n"
        "def test_wrong():\n    assert_no_counterexample(coupon(careless))\n"
    )

    assert "1 failed, 1 passed" in done.stdout.str()
    assert "<- once: broken here" in done.stdout.str()


def test_the_summary_names_the_law_and_the_page(run: Run, pytester: pytest.Pytester) -> None:
    """Pytest cuts its own lines to the terminal."""
    done = run(CARELESS)
    page = re.search(
        r"^test_it.py::test_it: coupon breaks the law: once; page: (.*\.html)$", done.stdout.str(), re.MULTILINE
    )

    assert page is not None, done.stdout.str()
    assert (pytester.path / page[1]).is_file()


def test_the_library_has_no_frames_in_an_error(run: Run) -> None:
    """For misuse and for a law that raises, the traceback shows only the test."""
    misused = run("def test_it(sim):\n    sim.explore(coupon(lambda customer: None))\n")
    raising = run(
        "import attrs\n"
        "def law(state):\n    return 1 / 0\n"
        "def test_it(sim):\n    sim.explore(attrs.evolve(coupon(careful), always={'it raises': law}))\n"
    )

    for done, files in ((misused, {"test_it.py"}), (raising, {"test_it.py"})):
        assert done.ret == 1
        assert set(re.findall(r"^(\S+\.py):\d+: ", done.stdout.str(), re.MULTILINE)) == files, done.stdout.str()
        assert "During handling" not in done.stdout.str()


SQUARES = """
from tidegate_adapters.orchestrator import Orchestrator
app = Orchestrator("mongodb://localhost/?replicaSet=rs", database="x")

@app.task()
async def square(number: int) -> int:
    return number * number

def test_it(on_embedded):
    async def test(store):
        %s
    on_embedded(app, test)
"""


def test_the_library_has_no_frames_between_a_test_and_its_lines(pytester: pytest.Pytester) -> None:
    for body in ("assert await (await square.enqueue(2)).result() == 5", "await square.enqueue(number=object())"):
        pytester.makepyfile(test_it=SQUARES % body)
        done, full = (pytester.runpytest_inprocess(*more) for more in ((), ("--full-trace",)))
        shown, all_of_it = (
            set(re.findall(r"^(\S+\.py):\d+: ", each.stdout.str(), re.MULTILINE)) for each in (done, full)
        )
        assert shown == {"test_it.py"}, done.stdout.str()
        assert len(all_of_it) > 1


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("[tool]\ntidegate = 5\n", "[tool.tidegate] in pyproject.toml is a table, and not 5"),
        ("[tool.tidegate]\nprofiles = 5\n", "[tool.tidegate.profiles] in pyproject.toml is a table, and not 5"),
        ("[tool.tidegate.profiles]\nci = 5\n", "the profile 'ci' in pyproject.toml is a table, and not 5"),
    ],
)
def test_settings_that_are_no_tables_are_refused(
    run: Run, pytester: pytest.Pytester, settings: str, complaint: str
) -> None:
    (pytester.path / "pyproject.toml").write_text(settings)
    done = run(CAREFUL, "--tidegate-profile=ci")

    assert done.ret == 4
    assert complaint in done.stderr.str()


@pytest.mark.parametrize("phases", ["generate shrink", pytest.param("generate shrink explain", marks=pytest.mark.long)])
def test_with_hypothesis_the_story_is_told_once_and_draws_alike(
    run: Run, pytester: pytest.Pytester, phases: str
) -> None:
    """For the final test case; a test case has the same seed whenever it runs."""
    test = (
        "from hypothesis import HealthCheck, Phase, given, settings, strategies as st\n"
        f"@settings(phases=[Phase[name] for name in {phases.split()}],\n"
        "          suppress_health_check=list(HealthCheck), database=None, max_examples=200)\n"
        "@given(st.sampled_from([careful, careless]), st.integers(0, 99))\n"
        "@pytest.mark.tidegate(runs=20)\n"
        "def test_it(sim, program, number):\n    sim.explore(coupon(program))\n"
    )
    # With a seed all cases share their twenty runs, and some sessions would miss the bug.
    done = run(test, "--tidegate-no-shrink", "--tidegate-seed=7", "--junit-xml=junit.xml")

    assert done.ret == 1
    assert len(re.findall(r"^coupon: breaks the law: once$", done.stdout.str(), re.MULTILINE)) == 1
    assert "Flaky" not in done.stdout.str()
    assert done.stdout.str().count("coupon breaks the law: once; page: ") == 1
    (file,) = (pytester.path / ".tidegate" / "failures").glob("*.json")
    assert '"scenario": "test_it.py::test_it"' in file.read_text()


def test_a_kind_of_fault_that_is_not_there_is_told_beside_a_counterexample_too(run: Run) -> None:
    done = run(CARELESS, "--tidegate-faults=lost_reply,crash_before", "-Wdefault::pytest.PytestWarning")

    assert done.ret == 1
    assert "coupon: fault lost_reply strikes no process here, and it was asked for" in done.stdout.str()
