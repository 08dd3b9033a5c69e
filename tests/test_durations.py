"""`make durations` records how long each test function takes; `make test` allows no slow ones."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

RECORD: Final = Path(__file__).with_name("durations.json")
SLOWEST_S: Final = 5.0
KEPT: Final = {
    "tests/integration/test_benchmarks.py::test_a_benchmark_of_the_core_runs": 10.0,
    "tests/integration/test_benchmarks.py::test_a_benchmark_on_kafka_runs": 15.0,
    "tests/integration/test_benchmarks.py::test_a_benchmark_on_mongodb_runs": 10.0,
    "tests/integration/test_crons.py::test_what_is_named_around_a_change_of_the_clocks_is_what_they_show": 10.0,
    "tests/integration/test_determinism.py::test_what_a_program_depends_on_is_found": 10.0,
    "tests/integration/test_exactly_once.py::test_each_answer_is_seen_once_though_members_are_killed_and_stopped": 10.0,
    "tests/integration/test_kafka_agreement.py::test_scripts_by_hand_are_answered_alike": 50.0,
    "tests/integration/test_kafka_agreement.py::test_scripts_of_the_table_and_at_random_are_answered_alike": 20.0,
    "tests/integration/test_kafka_soak.py::test_what_a_worker_takes_does_not_grow_and_leaks_are_seen": 25.0,
    "tests/integration/test_kafka_storm.py::test_nothing_is_lost_in_a_storm": 40.0,
    "tests/integration/test_mongo_agreement.py::test_every_update_makes_the_same_of_every_edge": 12.0,
    "tests/integration/test_mongo_failover.py::test_a_new_primary_tells_nothing_from_before": 20.0,
    "tests/integration/test_mongo_failover.py::test_no_grant_is_lost_and_none_is_doubled": 15.0,
    "tests/integration/test_mongodash_faults.py::test_11_no_position_is_saved_before_what_lies_before_it": 15.0,
    "tests/integration/test_orchestrator_listening.py::test_it_is_heard_where_nothing_has_happened_for_long": 18.0,
    "tests/integration/test_orchestrator_runs.py::test_a_planted_bug_is_found": 10.0,
    "tests/integration/test_orchestrator_runs.py::test_a_seed_tells_the_same_story": 10.0,
    "tests/integration/test_orchestrator_storm.py::test_every_invocation_ends_once_in_a_storm": 15.0,
    "tests/integration/test_reactive_held.py::test_a_process_that_dies_in_its_transaction_holds_up_its_document_alone": 12.0,
    "tests/integration/test_reactive_runs.py::test_a_planted_bug_is_found": 12.0,
    "tests/integration/test_reactive_runs.py::test_a_seed_tells_the_same_story": 12.0,
    "tests/integration/test_reactive_runs.py::test_no_run_is_wrong": 10.0,
    "tests/integration/test_reactive_storm.py::test_what_documents_say_is_handled_in_a_storm": 30.0,
    "tests/integration/test_readme.py::test_tasks_and_reactive_tasks_run": 12.0,
    "tests/integration/test_security.py::test_the_page_leads_to_a_worker_that_is_let_in": 12.0,
    "tests/integration/test_security.py::test_who_is_not_let_in_or_does_not_trust_the_broker_is_told_so": 10.0,
    "tests/integration/test_serving.py::test_nothing_is_smuggled_through_a_proxy": 15.0,
    "tests/integration/test_simulated_mongo.py::test_transactions_are_answered_alike": 12.0,
    "tests/integration/test_simulated_worker.py::test_a_rebalance_leaves_nothing_behind": 10.0,
    "tests/properties/model/test_strategies.py::test_pairs_are_often_nearly_equal": 10.0,
    "tests/properties/sim/test_aging.py::test_relative_states_are_the_forms_of_absolute_ones_for_random_programs": 10.0,
    "tests/properties/sim/test_automaton.py::test_what_each_run_does_in_its_own_way_is_misuse_and_not_called_nondeterministic": 10.0,
    "tests/properties/sim/test_independent.py::test_the_simulator_and_a_brute_force_search_of_its_own_agree": 10.0,
    "tests/properties/sim/test_search.py::test_both_searches_find_the_same_in_random_tables": 10.0,
    "tests/properties/test_scenarios.py::test_every_shipped_scenario_meets_its_expectation": 10.0,
}
"""One of each kind that may take longer, and its limit."""
MISSING_MAX: Final = 0.05


def test_no_test_is_slow() -> None:
    """Shorten the test, or mark it `long`; then run `make durations`."""
    recorded: dict[str, dict[str, float]] = json.loads(RECORD.read_text(encoding="utf-8"))
    took = {f"{file}::{name}": s for file, names in recorded.items() for name, s in names.items()}

    assert {test: s for test, s in took.items() if s > KEPT.get(test, SLOWEST_S)} == {}


def test_the_record_is_complete(request: pytest.FixtureRequest) -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    run = [item.nodeid.partition("[")[0].rpartition("::") for item in request.session.items]
    missing = [name for file, _, name in run if name not in recorded.get(file, {})]

    assert len(missing) <= len(run) * MISSING_MAX or len(missing) < 10, missing[:10]


def write(junit: Path) -> None:
    recorded: dict[str, dict[str, float]] = {}
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314  pytest has written it
        file = case.attrib["classname"].replace(".", "/") + ".py"
        name, seconds = re.split(r"[\[@]", case.attrib["name"])[0], round(float(case.attrib["time"]), 1)
        names = recorded.setdefault(file, {})
        names[name] = max(seconds, names.get(name, 0.0))
    lines = (
        f" {json.dumps(file)}: {json.dumps(dict(sorted(names.items())))}" for file, names in sorted(recorded.items())
    )
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
