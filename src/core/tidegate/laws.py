"""Every law as a named predicate over a state, a step or a history; one module a subject.

The properties of this project, its simulator and its tests on real servers use the same predicates;
use them in your tests.
"""

from tidegate.consumer.checks.laws import (
    backpressure,
    batching,
    beginning,
    commit_answers,
    commit_metadata,
    consumer,
    drain,
    explanation,
    fanout,
    health,
    partition,
    transactions,
    watermark,
    worker,
)
from tidegate.counters.checks import laws as counter
from tidegate.invocations.checks.laws import (
    admission,
    array_push_lock,
    asking,
    ending,
    enqueueing,
    purging,
    rates,
    recovery,
    status,
    taking,
    transition,
    waiting,
)
from tidegate.leases.checks.laws import claim_lock, election, lease
from tidegate.model.checks.laws import history
from tidegate.payloads.checks.laws import upload_records
from tidegate.reactive.checks.laws import (
    change_stream,
    debounce,
    deployments,
    desk,
    evolution,
    orphans,
    plan_queries,
    reactive_task,
    reconciliation,
    snapshot,
    sweeper,
    tasks,
)
from tidegate.retries.checks.laws import backoff, budget, failures, pauses, polling, repeating, schedule
from tidegate.services.checks.laws import atomic_service, executions, membership, retention
from tidegate.sinks.checks.laws import circuit_breaker, dead_letters, dead_records, delivery, letter_writing, outbox
from tidegate.transactions.checks import laws as transfers
from tidegate.triggers.checks.laws import conditions, evaluator, firing, noticing, trigger, turn
from tidegate.work.checks import laws as work

__all__ = [
    "admission", "array_push_lock", "asking", "atomic_service", "backoff", "backpressure", "batching", "beginning", "budget",
    "change_stream", "circuit_breaker", "claim_lock", "commit_answers", "commit_metadata", "conditions", "consumer",
    "counter", "dead_letters", "dead_records", "debounce", "delivery", "deployments", "desk", "drain",
    "election", "ending", "enqueueing", "evaluator", "evolution", "executions", "explanation", "failures", "fanout",
    "firing", "health", "history", "lease", "letter_writing", "membership", "noticing", "orphans", "outbox",
    "partition", "pauses", "plan_queries", "polling", "purging", "rates", "reactive_task", "reconciliation",
    "recovery", "repeating", "retention", "schedule", "snapshot", "status", "sweeper", "taking", "tasks", "transactions",
    "transfers", "transition", "trigger", "turn", "upload_records", "waiting", "watermark", "work", "worker",
]  # fmt: skip
