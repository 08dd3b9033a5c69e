"""What `make test` does in part, so that it ends in minutes, and `make thorough` in full: all of it, in one place."""

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
"""What `make thorough PART=...` runs: a test is in the first part whose pattern its id contains."""
PART: Final = os.environ.get("TIDEGATE_PART", "")
if PART and PART not in PARTS:
    raise SystemExit(f"no part is called {PART!r}; there are: {', '.join(PARTS)}")


def part_of(nodeid: str) -> str:
    """The part that a test is in."""
    return next(part for part, pattern in PARTS.items() if re.search(pattern, nodeid))


T = TypeVar("T")


class Storm(NamedTuple):
    """How hard a storm over a group on a real broker is.

    Attributes:
        records: How many there are to handle.
        members: How many processes handle them.
        strikes: How often one is killed, ended or stopped.
        rebalances: How many there are to be, at least.
        pause_s: How long it is calm between two of those at most.
        outages: The broker's, spread over the strikes: how long it stands still; 0 for a restart.
    """

    records: int
    members: int
    strikes: int
    rebalances: int
    pause_s: float
    outages: tuple[float, ...]


class ReactiveStorm(NamedTuple):
    """How hard a storm over reactive tasks on a real replica set is.

    Attributes:
        documents: How many there are at most.
        changes: How often they change.
        writers: How many change them.
        rate: How many changes there are in a second, about.
        processes: How many handle them.
        strikes: How often one of those is killed, or stands still.
        pause_s: How long it is calm between two of those at most.
        stills: How often one stands still afterwards, when nothing else waits, so that others take over what it is at.
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
    """How hard a storm over an orchestrator on a real replica set is.

    Attributes:
        invocations: How many there are, besides their children and those of a cron.
        processes: How many run them.
        strikes: How often one of those is killed, or stands still.
        pause_s: How long it is calm between two of those at most.
        nodes: Of the replica set; the primary of more than one steps down again and again.
    """

    invocations: int
    processes: int
    strikes: int
    pause_s: float
    nodes: int


class Soak(NamedTuple):
    """How long it is looked at what a worker takes.

    Attributes:
        seconds: So long.
        rate: How many records there are in a second.
        sample_s: How long from one look to the next.
        visits_s: How long another member stays in the group, and away from it.
    """

    seconds: float
    rate: int
    sample_s: float
    visits_s: float


def _either(in_part: T, at_length: T) -> T:
    return at_length if AT_LENGTH else in_part


NOTICED: Final = 10_000
"""Examples among which a planted bug that shows in one of seven hundred is missed once in a million times; what is found ends
the search."""

# On a real replica set.
RACING_TRANSITIONS: Final = _either(300, 2_000)
"""Each run of racing clients, with and without retryable writes: rarer interleavings."""
SEQUENCES: Final = _either(40, 1_000)
"""Random sequences of operations on a real MongoDB and on the embedded store, compared: rarer combinations."""
PAIRS: Final = _either(600, 10_000)
"""Random pairs of values that both compare."""
EDGES_STEP: Final = _either(4, 1)
"""Every so many of the updates of one edge alone, and of the filters by which many are deleted."""
BULK_EDGES_STEP: Final = _either(2, 1)
"""Every so many of the updates of many edges at once."""
SIZES_BEYOND: Final = _either((0, 1), (-1, 0, 1, 20_000))
"""How many bytes beyond the largest document: no doubt about -1, and 20,000 the server refuses as no document at all."""
COUNTED: Final = _either(40, 1_000)
"""How many collections of records are counted on a server and by the core."""
PROJECTED: Final = _either(400, 2_000)
"""Random documents that both project."""
FILTERED: Final = _either(6, 40)
"""Batches of random documents for each filter."""
PAYLOAD_MIB: Final = _either(80, 500)
"""How large the payload is that is put and read while it is looked at how much memory that takes."""
PAYLOAD_FAULTS_STEP: Final = _either(4, 1)
"""Every so many of the commands for a payload that are made to fail: the others after they are carried out, or before."""
PAYLOAD_RACES: Final = _either(12, 200)
"""Payloads that are put by each of those who race for a key: rarer interleavings."""
MONGO_CODES_STEP: Final = _either(10, 1)
"""Every so many of the codes that MongoDB is made to say."""
OUTCOMES_STEP: Final = _either(13, 1)
"""Every so many of the ways that a request may go, of all operations at once, by each kind of client."""
PROGRAM_FAULTS: Final = _either(1, 1_000)
"""So many of the commands of each program are made to fail in each way, spread over it, as far as there are so many."""
PROGRAM_FAULT_KINDS_STEP: Final = _either(4, 1)
"""Every so many of those ways; the next programs fail in the others."""
REACTIVE_RUNS: Final = _either(12, 500)
"""Short runs of applications of reactive tasks by seed, for each kind of fault: rarer interleavings."""
ORCHESTRATOR_RUNS: Final = _either(12, 500)
"""The same of applications of tasks."""
STORIES_STEP: Final = _either(3, 1)
"""Every so many of their faults under which a seed is run twice."""
PLANNER_SEEDS: Final = _either(12, 1_000)
"""So many runs of two planners of reactive tasks on a simulated event loop."""
LEASE_FAULTS_STEP: Final = _either(6, 1)
"""Every so many of the ways in which each command of a block under a lease fails."""
PROGRAM_CUTS_STEP: Final = _either(9, 1)
"""Every so many of the programs whose connections are cut, too: half a second each time."""
PROGRAM_KINDS_STEP: Final = _either(14, 1)
"""Every so many of the programs that run with an asynchronous client, or one that sends again by itself, too."""
TRANSACTION_FAULTS_STEP: Final = _either(9, 1)
"""Every so many of the faults that strike a transaction, for each kind of client."""
RESILIENCE_STEP: Final = _either(58, 1)
"""Every so many of the faults in each call of the resilience kit."""
RESILIENCE_FAILOVERS: Final = _either((True,), (False, True))
"""With and without `retryWrites`: half a minute each."""

FAILOVERS: Final = _either(1, 10)
"""Of a set of three nodes, of each kind: rarer moments."""
CUTS_OFF: Final = _either(("refused",), ("refused", "hanging", "hanging both ways"))
"""How the primary of such a set is cut off: the last one takes a quarter of a minute."""

# Of the HTTP server.
HALF_OPEN: Final = _either(200, 1_000)
"""Connections that do not ask."""

# Of crons.
CRONS: Final = _either(300, 5_000)
"""Random expressions around changes of the clocks of random zones; `make thorough` takes every change of 2024 to 2030."""

# Of the simulated MongoDB.
MONGO_SCRIPTS: Final = _either(10, 300)
"""Random scripts of calls that a real server and the simulated one are compared by: rarer combinations."""
MONGO_NETWORK_STEP: Final = _either(9, 1)
"""Every so many of the ways in which the network may lose what is sent for an operation, told apart by both."""
MONGO_RUNS: Final = _either(40, 5_600)
"""Short runs on the simulated MongoDB by seed, for each of nine workloads, whose thirteen faults take turns: rarer interleavings."""

MONGO_TRANSACTION_CODES_STEP: Final = _either(3, 1)
"""Every so many of the codes that are said in a transaction."""
MONGO_STEP_DOWNS: Final = _either(
    ("after the commit",), ("between statements", "before the commit", "after the commit")
)
"""When a primary steps down while there is a transaction: three seconds each."""
MONGO_STORIES_STEP: Final = _either(3, 1)
"""Every so many of the faults under which each workload is run twice, and others for the next one."""
REQUESTS_READ: Final = _either(20, int(os.environ.get("TIDEGATE_EXAMPLES", "50")))
"""Random operations as they go over the wire, read back."""

# Of the search.
SMALL_LOCK: Final = _either(1, 3)
"""Scopes of the small lock whose states are counted as TLC counts them: 170,000; then 952,000 and 1,118,000."""
LITTLE_SCENARIOS: Final = _either(300, 20_000)
"""Random little scenarios, searched by an interpreter that shares no code with the simulator: rarer combinations."""
CONFIRMED_STEP: Final = _either(30, 10)
"""Every so many of them are confirmed, too, in a second process, which takes four times as long."""
RANDOM_TABLES: Final = _either(80, 1_500)
"""Random actors over random tables, searched with and without merging."""
RANDOM_PROGRAMS: Final = _either(60, 300)
"""Random programs, likewise."""
LIVELOCKS: Final = _either(80, 200)
"""Random scenarios in which a livelock is found exactly where there is one."""
GIVES_UP: Final = _either(in_part=False, at_length=True)
"""Whether a partition whose drain is given up is searched without merging, too."""
THOROUGH_SCOPES: Final = _either(in_part=False, at_length=True)
"""Whether every scenario is explored in its thorough scope, one of them of more than a million states, and its states
compared with those on record."""
LONG_COUNTEREXAMPLES: Final = _either(in_part=False, at_length=True)
"""Whether two counterexamples of 16 and 18 steps are shown to be shortest by a search without merging."""
HASH_SEEDS: Final = _either(2, 10)
"""Processes under different hash seeds that explore the same five scenarios: rarer orders of sets."""

# Of the simulated Kafka.
KAFKA_SCRIPTS: Final = _either(2, 200)
"""Random scripts of calls that a real broker and the simulated one are compared by: rarer combinations."""
KAFKA_TABLE_STEP: Final = _either(45, 1)
"""Every so many of the ways in which a request may fail, told apart by both."""
KAFKA_HAND_STEP: Final = _either(4, 1)
"""Every so many of the scripts by hand."""
KAFKA_WAIT_S: Final = _either(3.0, 60.0)
"""Scripts that wait longer are left out: sessions and transactions that time out."""
KAFKA_RUNS: Final = _either(20, 2_000)
"""Short runs of workers on the simulated Kafka by seed, for each kind of fault: rarer interleavings."""
ONCE_RUNS: Final = _either(30, 2_000)
"""The same with answers in transactions: rarer moments at which one is cut off."""

# On a real broker.
STORM: Final = _either(Storm(5_000, 3, 4, 3, 0.5, (0.0,)), Storm(200_000, 4, 60, 50, 2.0, (0.0, 20.0, 0.0)))
"""A storm over a group: rarer strikes at rarer moments, and outages of the broker beyond all sessions."""
BRIEF_SOAK: Final = Soak(10.0, 300, 0.2, 0.4)
SOAK: Final = _either(BRIEF_SOAK, Soak(1_200.0, 500, 2.0, 15.0))
"""What a worker takes: slower leaks."""

# Of reactive tasks, on a real replica set.
REACTIVE_STORM: Final = _either(
    ReactiveStorm(100, 600, 4, 400, 2, 1, 0.5, 1), ReactiveStorm(20_000, 100_000, 8, 800, 4, 40, 4.0, 3)
)
"""A storm over an application: rarer strikes at rarer moments, and more records than one look takes."""

# Of an orchestrator, on a real replica set.
ORCHESTRATOR_STORM: Final = _either(OrchestratorStorm(100, 2, 2, 0.5, 1), OrchestratorStorm(10_000, 8, 45, 3.0, 3))
"""A storm over an application: rarer strikes at rarer moments, of the store as well, and more records than one look takes."""

# Of the pages.
REBUILT: Final = _either(30, 60)
"""States of random documents that a browser rebuilds: rarer values."""

# Of the command line.
APART_STEP: Final = _either(25, 10)
"""Every so many of the commands with bad input that run in a process of their own, too."""

# What `make thorough` alone runs.
STATES_MAX: Final = _either(sys.maxsize if os.environ.get("TIDEGATE_GOLDEN") else 20_000, sys.maxsize)
"""A specimen, or a variant of a design, with more states is not explored: one in ten of them has half of all states."""
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
"""Planted bugs that a test finds in half a second or more, and others that take long, by the test."""
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
"""How the ids of tests end that are marked `long`."""
