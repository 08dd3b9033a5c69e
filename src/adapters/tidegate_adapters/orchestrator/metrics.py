"""Prometheus metrics `tidegate_orchestrator_...`, by task or queue, never by invocation.

    begun_runs_total         runs with a called handler
    retried_runs_total       those after the first of their invocation
    ended_runs_total         by outcome: succeeded, failed (retried or not), cancelled, given_back,
                             lost (the invocation moved on without the run)
    handler_seconds          histogram of handler times, waits included
    interruptions_total      by reason: cancel, kill, lost, too_long, silent, stopping
    active_runs              runs with a slot
    waiting_runs             runs that wait for others or for a slot
    unwritten_runs           ended runs with an unwritten result
    slots                    concurrency of the process
    beat_age_seconds         time since the last confirmed heartbeat
    turns_total              checks: completed, abandoned, skipped, unanswered, no_member
    due_invocations          due in a queue, up to `BACKLOG_MAX`
    lag_seconds              how long the oldest has been due

Every process reports the last two for its queues: take their maximum; sum the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidegate.model.instants import SECOND
from tidegate.work.vocabulary import InterruptReason, Slot
from tidegate_adapters.observe.prometheus import Metric, counter, gauge, handler_seconds
from tidegate_adapters.orchestrator.stats import LOST, NOTHING, OUTCOMES, TURNS, Glance, Tallies

_NONE: Final = Tallies()
_PREFIX: Final = "tidegate_orchestrator_"
_REASONS: Final = tuple(each.name.lower() for each in InterruptReason if each is not InterruptReason.LEASE_LOST)


def families(now: Glance = NOTHING, tallies: Tallies = _NONE) -> Iterator[Metric]:
    yield from _of_runs(now)
    yield from _of_process(now)
    begun = ((task, tallies.begun[task]) for task in now.tasks)
    yield counter(f"{_PREFIX}begun_runs", "Runs whose handler was called.", ("task",), begun)
    retried = ((task, tallies.retried[task]) for task in now.tasks)
    yield counter(f"{_PREFIX}retried_runs", "Runs that were not the first of their invocation.", ("task",), retried)
    outcomes = (*OUTCOMES.values(), LOST)
    ended = ((task, each, tallies.ended[task, each]) for task in now.tasks for each in outcomes)
    yield counter(f"{_PREFIX}ended_runs", "Runs of whose end the store was told.", ("task", "outcome"), ended)
    interrupted = ((task, each, tallies.interrupted[task, each]) for task in now.tasks for each in _REASONS)
    yield counter(f"{_PREFIX}interruptions", "Handlers that were interrupted.", ("task", "reason"), interrupted)
    yield handler_seconds(f"{_PREFIX}handler_seconds", {task: tallies.times.took[task] for task in now.tasks})
    turns = ((each, tallies.turns[each]) for each in TURNS.values())
    yield counter(f"{_PREFIX}turns", "What became of the question whose turn it is.", ("outcome",), turns)


def _of_runs(now: Glance) -> Iterator[Metric]:
    state = now.state
    active = Counter(each.run.task for each in state.running if each.slot is Slot.HAS)
    waiting = Counter(each.run.task for each in state.running if each.slot in (Slot.AWAY, Slot.WANTS))
    unwritten = Counter(each.run.task for each in state.results)
    for name, about, found in (
        ("active_runs", "Runs whose handler has a slot.", active),
        ("waiting_runs", "Runs whose handler waits for others, or for its slot again.", waiting),
        ("unwritten_runs", "Runs that have ended, and whose end is not written down yet.", unwritten),
    ):
        yield gauge(f"{_PREFIX}{name}", about, ("task",), ((task, found[task]) for task in now.tasks))


def _of_process(now: Glance) -> Iterator[Metric]:
    yield gauge(f"{_PREFIX}slots", "How many handlers are active at a time.", (), [(now.slots,)])
    yield gauge(f"{_PREFIX}beat_age_seconds", "Since a beat was confirmed.", (), [(now.beaten_s,)])
    due = ((each.queue, each.waiting) for each in now.backlogs)
    yield gauge(f"{_PREFIX}due_invocations", "Invocations that wait and may run.", ("queue",), due)
    lags = ((each.queue, each.lag / SECOND) for each in now.backlogs)
    yield gauge(f"{_PREFIX}lag_seconds", "Since when the oldest of them is due.", ("queue",), lags)
