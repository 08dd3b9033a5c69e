"""Laws in your own tests: an exploration that any test runner can assert.

    def test_a_coupon_is_used_once() -> None:
        assert_no_counterexample(coupons())

With pytest the fixture `sim` of `tidegate_adapters.testing.pytest_plugin` does the same, and adds
options, seeds, files and a line that replays the failure.
"""

from __future__ import annotations

from typing import assert_never

from tidegate.model.documents import one_line
from tidegate.model.values import check_type
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.search import STATES_MAX
from tidegate.sim.trace.rendering import render


def assert_no_counterexample(
    scenario: Scenario,
    *,
    states_max: int = STATES_MAX,
    faults_max: int | None = None,
    require_sometimes: bool = False,
) -> Report:
    """Explore every interleaving and fault within the budgets of the scenario.

    Args:
        scenario: The scenario.
        states_max: Give up after this many distinct states.
        faults_max: The most faults of a run; None for the scenario's budget.
        require_sometimes: Fail also if a goal is never reached, a possible fault never strikes, or
            a law is never evaluated.

    Returns:
        The report, if the scenario's expectation is met.

    Raises:
        AssertionError: It is not, or not everything could be explored; the message shows the trace.
        Misuse: The scenario, or a program in it, breaks a contract.
    """
    check_type(scenario, Scenario, "a scenario")
    report = explore(
        scenario, Exploration(states_max=states_max, faults_max=faults_max, require_sometimes=require_sometimes)
    )
    if not report.ok:
        raise AssertionError(unexpected(report) + (f"\n{render(report.trace)}" if report.trace else ""))
    return report


def unexpected(report: Report) -> str:
    """How the report differs from the scenario's expectation, in one line."""
    check_type(report, Report, "a report")
    name, expected = one_line(report.scenario), one_line(report.expect or "")
    match report.verdict:
        case Verdict.VIOLATED:
            instead = f", and was expected to break: {expected}" if expected else ""
            who = f"; {one_line(report.why)}" if report.why else ""
            return f"{name} breaks the law: {one_line(report.law or '')}{instead}{who}"
        case Verdict.INCONCLUSIVE:
            return f"{name} is inconclusive: {one_line(report.reason)}"
        case Verdict.COMPLETE:
            return f"{name} is complete, and was expected to break: {expected}"
        case _ as never:
            assert_never(never)
