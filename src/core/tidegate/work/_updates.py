"""Changes of a worker's state that its modules share."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.model.instants import Instant
from tidegate.model.sealed import evolve
from tidegate.work.state import QueueState, Running, WorkerState
from tidegate.work.vocabulary import Request, Slot


def with_queue(state: WorkerState, place: int, changed: QueueState) -> WorkerState:
    return evolve(state, queues=(*state.queues[:place], changed, *state.queues[place + 1 :]))


def with_running(state: WorkerState, running: Iterable[Running]) -> WorkerState:
    running = tuple(running)
    slots = [each.slot for each in running]
    return evolve(
        state,
        running=running,
        used=slots.count(Slot.HAS),
        queued=slots.count(Slot.NEXT),
        wanting=slots.count(Slot.WANTS),
    )


def asked(state: WorkerState, command: Request, at: Instant) -> WorkerState:
    return evolve(state, requests=(*state.requests, (command, at)))


def answered(state: WorkerState, command: Request) -> WorkerState:
    return evolve(state, requests=tuple(each for each in state.requests if each[0] != command))
