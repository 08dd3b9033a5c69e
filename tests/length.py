"""The sizes of `make test`, which ends in minutes, and of `make thorough`, all at full length."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

AT_LENGTH: Final = bool(os.environ.get("TIDEGATE_AT_LENGTH"))
PARTS: Final[Mapping[str, str]] = {
    "search": r"properties/(sim/|test_scenarios|test_specimens)",
    "properties": r"properties/",
    "kafka": r"integration/test_(kafka|worker|exactly|simulated_worker|handlers)",
    "reactive": r"integration/test_(reactive|desk|mongodash)",
    "orchestrator": r"integration/test_(orchestrator|taking|enqueueing|asked)",
    "mongodb": r"integration/test_(mongo|simulated_mongo|programs|resilience|payloads|leases|change_streams|embedded|black)",
    "rest": "",
}
"""A part of `make thorough PART=...`: a test is in the first whose pattern its id contains."""
PART: Final = os.environ.get("TIDEGATE_PART", "")
if PART and PART not in PARTS:
    raise SystemExit(f"no part is called {PART!r}; there are: {', '.join(PARTS)}")


def part_of(nodeid: str) -> str:
    return next(part for part, pattern in PARTS.items() if re.search(pattern, nodeid))


T = TypeVar("T")


class Storm(NamedTuple):
    """A storm over a group on a real broker; an outage of 0 is a restart."""

    records: int
    members: int
    strikes: int
    rebalances: int
    pause_s: float
    outages: tuple[float, ...]


class ReactiveStorm(NamedTuple):
    """A storm over reactive tasks on a real replica set.

    Attributes:
        strikes: Kills, and stops of a process.
        stills: Stops afterwards, while the others are idle and take the work over.
    """

    documents: int
    changes: int
    writers: int
    rate: int
    processes: int
    strikes: int
    pause_s: float
    stills: int


class OrchestratorStorm(NamedTuple):
    """A storm over an orchestrator; with several `nodes` the primary steps down repeatedly."""

    invocations: int
    processes: int
    strikes: int
    pause_s: float
    nodes: int


class Soak(NamedTuple):
    """A soak of a worker, which another member joins and leaves for `visits_s` each."""

    seconds: float
    rate: int
    sample_s: float
    visits_s: float


def _either(in_part: T, at_length: T) -> T:
    return at_length if AT_LENGTH else in_part


NOTICED: Final = 10_000
"""A bug that shows in one of 700 is missed once in a million times; a finding ends the search."""

# On a real replica set.
RACING_TRANSITIONS: Final = _either(300, 2_000)
SEQUENCES: Final = _either(40, 1_000)
PAIRS: Final = _either(600, 10_000)
EDGES_STEP: Final = _either(4, 1)
BULK_EDGES_STEP: Final = _either(2, 1)
SIZES_BEYOND: Final = _either((0, 1), (-1, 0, 1, 20_000))
"""Bytes beyond the largest document. The server refuses 20,000 as no document at all."""
COUNTED: Final = _either(40, 1_000)
PROJECTED: Final = _either(400, 2_000)
FILTERED: Final = _either(6, 40)
PAYLOAD_MIB: Final = _either(80, 500)
PAYLOAD_FAULTS_STEP: Final = _either(4, 1)
PAYLOAD_RACES: Final = _either(12, 200)
MONGO_CODES_STEP: Final = _either(10, 1)
OUTCOMES_STEP: Final = _either(13, 1)
PROGRAM_FAULTS: Final = _either(1, 1_000)
PROGRAM_FAULT_KINDS_STEP: Final = _either(4, 1)
REACTIVE_RUNS: Final = _either(12, 500)
ORCHESTRATOR_RUNS: Final = _either(12, 500)
STORIES_STEP: Final = _either(3, 1)
PLANNER_SEEDS: Final = _either(12, 1_000)
LEASE_FAULTS_STEP: Final = _either(6, 1)
PROGRAM_CUTS_STEP: Final = _either(9, 1)
PROGRAM_KINDS_STEP: Final = _either(14, 1)
TRANSACTION_FAULTS_STEP: Final = _either(9, 1)
RESILIENCE_STEP: Final = _either(58, 1)
RESILIENCE_FAILOVERS: Final = _either((True,), (False, True))
FAILOVERS: Final = _either(1, 10)
CUTS_OFF: Final = _either(("refused",), ("refused", "hanging", "hanging both ways"))
# Of the HTTP server.
HALF_OPEN: Final = _either(200, 1_000)
# Of crons.
CRONS: Final = _either(300, 5_000)
"""Random crons around clock changes; `make thorough` adds every change of 2024 to 2030."""

# Of the simulated MongoDB.
MONGO_SCRIPTS: Final = _either(10, 300)
MONGO_NETWORK_STEP: Final = _either(9, 1)
MONGO_RUNS: Final = _either(40, 5_600)
"""For each of nine workloads, whose thirteen faults alternate."""

MONGO_TRANSACTION_CODES_STEP: Final = _either(3, 1)
MONGO_STEP_DOWNS: Final = _either(
    ("after the commit",), ("between statements", "before the commit", "after the commit")
)
MONGO_STORIES_STEP: Final = _either(3, 1)
REQUESTS_READ: Final = _either(20, int(os.environ.get("TIDEGATE_EXAMPLES", "50")))
# Of the search.
SMALL_LOCK: Final = _either(1, 3)
"""Scopes of the small lock counted against TLC: 170,000 states; then 952,000 and 1,118,000."""
LITTLE_SCENARIOS: Final = _either(300, 20_000)
"""Searched by a second interpreter that shares no code with the simulator."""
CONFIRMED_STEP: Final = _either(30, 10)
"""Of those, how many are also confirmed in a second process, which takes four times as long."""
RANDOM_TABLES: Final = _either(80, 1_500)
RANDOM_PROGRAMS: Final = _either(60, 300)
LIVELOCKS: Final = _either(80, 200)
GIVES_UP: Final = _either(in_part=False, at_length=True)
"""Whether a partition whose drain is given up is also searched without merging."""
THOROUGH_SCOPES: Final = _either(in_part=False, at_length=True)
"""Whether every scenario is explored in its thorough scope, one of them beyond a million states."""
LONG_COUNTEREXAMPLES: Final = _either(in_part=False, at_length=True)
"""Whether two counterexamples of 16 and 18 steps are proven shortest without merging."""
HASH_SEEDS: Final = _either(2, 10)
# Of the simulated Kafka.
KAFKA_SCRIPTS: Final = _either(2, 200)
KAFKA_TABLE_STEP: Final = _either(45, 1)
KAFKA_HAND_STEP: Final = _either(4, 1)
KAFKA_WAIT_S: Final = _either(3.0, 60.0)
"""Scripts that wait longer are left out: session and transaction timeouts."""
KAFKA_RUNS: Final = _either(20, 2_000)
ONCE_RUNS: Final = _either(30, 2_000)
# On a real broker.
STORM: Final = _either(Storm(5_000, 3, 4, 3, 0.5, (0.0,)), Storm(200_000, 4, 60, 50, 2.0, (0.0, 20.0, 0.0)))
BRIEF_SOAK: Final = Soak(10.0, 300, 0.2, 0.4)
SOAK: Final = _either(BRIEF_SOAK, Soak(1_200.0, 500, 2.0, 15.0))
# Of reactive tasks, on a real replica set.
REACTIVE_STORM: Final = _either(
    ReactiveStorm(100, 600, 4, 400, 2, 1, 0.5, 1), ReactiveStorm(20_000, 100_000, 8, 800, 4, 40, 4.0, 3)
)
# Of an orchestrator, on a real replica set.
ORCHESTRATOR_STORM: Final = _either(OrchestratorStorm(100, 2, 2, 0.5, 1), OrchestratorStorm(10_000, 8, 45, 3.0, 3))
# Of the pages.
REBUILT: Final = _either(30, 60)
# Of the command line.
APART_STEP: Final = _either(25, 10)
# `make thorough` alone.
STATES_MAX: Final = _either(sys.maxsize if os.environ.get("TIDEGATE_GOLDEN") else 20_000, sys.maxsize)
"""A tenth of the specimens and variants, not explored, has half of all states."""
_SLOW: Final[Mapping[str, tuple[str, ...]]] = {
    "/consumer/test_partition_bugs.py::test_a_planted_bug_breaks_the_law_in_some_mode": (
        "drops what is before",
        "loses without a release",
        "takes any report",
    ),
    "/consumer/test_partition_bugs.py::test_a_planted_bug_breaks_the_law_in_the_plain_mode": (
        "starts while draining",
        "two commits",
    ),
    "/invocations/test_admission.py::test_a_planted_bug_is_found": (
        "a place is given back at once-ad1_no_more_run_than_may",
        "it never asks-ad3_nobody_waits_for_ever",
        "paused is free-ad1_no_more_run_than_may",
    ),
    "/work/test_worker.py::test_a_planted_bug_breaks_its_law": ("a second suspension is not heard",),
    "/invocations/test_transition.py::test_a_planted_bug_breaks_the_law": ("bug5-TR3",),
    "/sim/test_independent.py::test_the_comparison_finds_a_planted_fault": (
        "a program that is taken back goes on",
        "a stream tells too early",
        "events are received together in one order",
        "faults lead out of a cycle",
        "no cycle is looked for",
        "what is taken back comes true",
        "what was written behind it stays",
        "whoever releases a partition, it is released",
        "without a generation nothing is committed",
    ),
    "/sim/test_search.py::test_a_planted_bug_in_the_search_makes_the_two_differ": ("nothing is at rest",),
    "/test_simulated_worker.py::test_a_log_that_loses_its_end_shows_what_is_planted": ("what is committed holds",),
    "/test_programs_under_faults.py::test_a_planted_bug_is_found": (
        "registration.place_is_enough",
        "transfer.begun_anew_after_the_commit",
        "transfer.commit_is_not_asked_again",
        "transfer.read_apart",
    ),
    "/test_simulated_mongo.py::test_transactions_are_answered_alike": ("without",),
    "/invocations/test_status.py::test_every_verdict_is_drawn": ("NotOwner",),
    "/test_reactive_runs.py::test_a_planted_bug_is_found": (
        "a lease that waits for its own transaction is lost",
        "texts are compared by the collation of the user's collection",
        "what cannot be written now holds up all changes",
    ),
    "/test_orchestrator_triggers.py::test_a_cron_fires_once_an_instant_whoever_looks": ("embedded",),
    "/test_orchestrator_triggers.py::test_all_that_wait_for_an_event_hear_of_it": ("embedded",),
    "/test_orchestrator_triggers.py::test_triggers_are_given_what_is_large": ("embedded",),
    "/test_orchestrator_metrics.py::test_a_registry_shows_what_has_happened_and_what_is": ("embedded",),
    "/test_orchestrator_page.py::test_it_tells_what_there_is": ("embedded",),
    "/test_orchestrator_retention.py::test_what_has_ended_goes_once_it_was_kept_for_long_enough": ("embedded",),
    "/test_orchestrator_retention.py::test_the_record_of_a_process_goes_some_time_after_it_is_gone": ("embedded",),
    "/test_orchestrator_retention.py::test_the_places_of_a_key_go_with_the_last_of_its_invocations": ("embedded",),
    "/test_mongo_snapshot.py::test_another_expression_is_found_out": ("expression-without_literal",),
    "/test_mongo_settling.py::test_a_planted_bug_is_found_on_a_real_server": (
        "once-total_is_for_each",
        "retried-not_looked",
        "retried-total_is_for_each",
    ),
    "/test_mongo_transactions.py::test_what_is_cut_is_answered_truly": ("every reply to a commit-ask_sync-False",),
    "/test_mongodash_faults.py::test_23_whose_clock_is_wrong_takes_nothing_from_others": ("3600",),
    "/test_reactive_attacks.py::test_an_app_runs_on_other_pythons": ("3.12",),
    "/test_simulated_worker.py::test_a_rebalance_leaves_nothing_behind": (
        "a task",
        "an object",
    ),
    "/test_embedded_log.py::test_a_second_signal_ends_a_process_of_which_something_will_not_end": (
        "begins",
        "will_not_be_cancelled",
    ),
    "/test_embedded_log.py::test_a_signal_ends_a_process_of_which_something_will_not_end_by_its_deadline": (
        "will_not_be_cancelled_soon",
    ),
    "/test_leases.py::test_a_block_that_swallows_its_cancellation_is_cancelled_again": ("3",),
    "/test_change_streams.py::test_an_error_is_told_by_its_code": (
        "10334-aggregate",
        "136-aggregate",
        "280-aggregate",
        "43-aggregate",
        "43-getMore",
        "10334-getMore",
    ),
    "/test_change_streams.py::test_a_history_that_the_server_has_cut_off_is_lost": ("no cursor",),
    "/test_mongo_errors.py::test_a_no_to_the_drivers_second_request_says_nothing_of_the_first": (
        "a type",
        "a type, of an update",
        "no match",
        "no match, of an update",
    ),
    "/test_mongo_errors.py::test_a_client_that_would_wait_for_ever_is_given_a_deadline": (
        "a commit-sync",
        "a read-sync",
        "a statement-async",
        "a write-async",
        "hello-sync",
    ),
    "/test_mongo_errors.py::test_an_index_takes_longer_than_a_deadline": (
        "none-sync",
        "of calls-async",
        "of replies-sync",
    ),
    "/test_mongo_outcomes.py::test_of_a_client_that_does_not_tell_less_is_known": (
        "closed-async",
        "done and not the primary-async",
        "overloaded-async",
        "turned away-async",
    ),
    "/test_simulated_mongo.py::test_scripts_by_hand_are_answered_alike": ("without",),
    "/test_simulated_mongo.py::test_what_the_network_does_is_answered_alike": ("with",),
    "/test_reactive_planner_runs.py::test_a_planted_bug_is_found": (
        "Planner-_look-looks_for_one",
        "tidegate_adapters.reactive.planner-deploy-deploys_nothing",
    ),
    "/test_conformance.py::test_a_planted_bug_breaks_k1": (
        "answers_before",
        "overwrites",
    ),
    "/test_scenarios.py::test_what_is_wrong_with_the_array_push_lock": (
        "array_push_lock.skewed",
        "array_push_lock.stall.3",
    ),
    "/test_mongo_agreement.py::test_a_store_that_answers_otherwise_is_found_out": ("documents in another order",),
    "/test_mongo_agreement.py::test_they_agree_on_what_a_unique_index_refuses": (
        "a",
        "a+b",
    ),
    "/test_mongo_failover.py::test_nobody_reads_from_a_node_that_follows": ("sync",),
    "/sim/test_search.py::test_both_searches_find_the_same_in_small_scopes": (
        "array_push_lock.late",
        "array_push_lock.stall.2",
        "array_push_lock.overwrite.2",
    ),
    "/sim/test_group.py::test_a_group_keeps_its_laws_whoever_stalls_or_dies": (
        "-eager",
        "crash-cooperative",
    ),
    "/sim/test_aging.py::test_relative_states_are_the_forms_of_absolute_ones": (
        "2-1000000-kinds4-8",
        "2-2000000-kinds2-16",
    ),
    "/test_mongo_transition.py::test_every_accepted_transition_is_legal_and_every_answer_true": (
        "threads-without retryWrites",
    ),
}
"""Planted bugs that take half a second or more to find, and other slow cases, by test."""
LONG: Final = (
    *(f"{test}[{name}]" for test, names in _SLOW.items() for name in names),
    "/test_benchmarks.py::test_a_benchmark_on_mongodb_runs[benchmarks.reactive]",
    "/consumer/test_partition_totality.py::test_a_partition_that_takes_what_is_of_another_is_caught",
    "/test_mongo_agreement.py::test_every_filter_means_the_same_to_many",
    "/test_mongo_agreement.py::test_every_update_of_many_makes_the_same",
    "/test_mongo_agreement.py::test_every_upsert_makes_the_same_of_every_edge",
    "/test_mongo_failover.py::test_an_index_is_made_while_a_node_is_dead",
    "/test_mongo_failover.py::test_no_grant_is_lost_where_the_primary_is_cut_off[refused]",
    "/test_mongodash_faults.py::test_22_a_look_at_all_that_takes_longer_than_the_lease_keeps_it",
    "/test_pythons.py::test_runs_under_different_hash_seeds_give_the_same_reports_and_traces",
    "/test_reactive_page.py::test_many_are_run_again_by_a_filter_after_a_question",
    "/test_reactive_page.py::test_operators_pause_and_resume_a_task",
    "/test_reactive_storm.py::test_a_new_version_does_again_once_what_its_policy_says",
    "/test_resilience.py::test_a_primary_that_dies_and_one_that_steps_down_lose_and_double_nothing[True]",
)
