"""Reactive tasks as queues of a worker (`tidegate.work.worker`).

Each task is a queue, and each run has a lease. Tasks whose records share a collection are a group.
The token of a run is that of its claim. The task's programs execute the worker's commands
(`tidegate.reactive.task.fetching`, `tidegate.reactive.task.completion`).
"""

from __future__ import annotations

from typing import Final, cast, final

import attrs

from tidegate.model.instants import Duration
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.reactive.record.tasks import Why, WhyNot
from tidegate.reactive.task import fetching
from tidegate.reactive.task.completion import HandlerAnswer, Later
from tidegate.reactive.task.fetching import Idle, SetAside
from tidegate.work.vocabulary import InterruptReason, NoAnswer, PollResult, Renewal, Result, Run, WriteReply

_NOTHING: Final = (Idle.NOTHING_DUE, Idle.NOT_CLAIMED, Idle.HELD, Idle.UNHEARD)
"""After a lost race or no reply, the next poll waits as after an empty one."""


@final
@attrs.frozen
class TaskResults:
    """The results of runs of reactive tasks."""

    refused: None = None

    def result(self, run: Run, answer: object, why: InterruptReason | None) -> HandlerAnswer:
        """A handler that returns although it was interrupted succeeded. A run that never started is
        due now.
        """
        del run
        if isinstance(answer, NoAnswer):
            return Later(0)
        if answer is None or isinstance(answer, Later):
            return answer
        check_type(answer, str, "the answer of a handler")
        text = cast("str", answer)
        return text if why is None else Later(0) if why is InterruptReason.STOPPING else why.value


def run_of(task: str, run: fetching.Run, timeout: Duration | None = None) -> Run:
    """A run of a task, as the worker's value."""
    check_type(run, fetching.Run, "a run")
    return Run(task, run.claim.id, run.claim.token, timeout, run.trouble, run)


def runs_of(runs: tuple[Run, ...]) -> tuple[fetching.Run, ...]:
    """Runs of a task, as its programs take them."""
    check_tuple(runs, Run, "a run")
    return tuple(cast("fetching.Run", run.detail) for run in runs)


def ends(results: tuple[Result, ...]) -> tuple[tuple[fetching.Run, HandlerAnswer], ...]:
    """The results of runs, as `Completer.end` takes them."""
    check_tuple(results, Result, "a result")
    return tuple((cast("fetching.Run", each.run.detail), cast("HandlerAnswer", each.value)) for each in results)


def poll_result(task: str, timeout: Duration | None, most: int, reply: tuple[object, ...]) -> PollResult:
    """The result of a poll for `most` runs, from the reply of `Fetcher.take`."""
    check_int(most, "a number of runs", 1)
    check_type(reply, tuple, "runs, and what became of the others")
    runs, others = cast(
        "tuple[tuple[fetching.Run, ...], tuple[object, ...]]", reply if len(reply) == 2 else (reply, ())
    )
    check_tuple(runs, fetching.Run, "a run")
    check_tuple(others, (Idle, SetAside), "what became of a record")
    lost = others.count(Idle.NOT_CLAIMED) + others.count(Idle.HELD)  # so the next poll chooses among more
    return PollResult(
        tuple(run_of(task, each, timeout) for each in runs),
        is_more=any(each not in _NOTHING for each in others) or (bool(runs) and len(runs) + lost >= most),
        lost=lost,
        is_uncertain=Idle.UNHEARD in others or Idle.HELD in others,  # a late write may yet be done
    )


def renewals(verdicts: tuple[Why | WhyNot | None, ...]) -> tuple[Renewal, ...]:
    """The renewals, from the reply of `Completer.renew_all`."""
    check_tuple(verdicts, (Why, WhyNot, type(None)), "what became of a renewal")
    return tuple(
        Renewal.UNKNOWN if each is None else Renewal.BUSY if each is Why.COMPLETING
        else Renewal.RENEWED if isinstance(each, Why) else Renewal.LOST
        for each in verdicts
    )  # fmt: skip


def write_reply(results: tuple[Result, ...], verdicts: tuple[Why | WhyNot | None, ...]) -> WriteReply:
    """The result of a request to write results, from the reply of `Completer.end`."""
    check_tuple(results, Result, "a result")
    check_tuple(verdicts, (Why, WhyNot, type(None)), "what became of an end")
    check_int(len(verdicts), "the number of verdicts", len(results), len(results))
    left = tuple(each for each, verdict in zip(results, verdicts, strict=True) if verdict is None)
    # A run that had ended was ended by its handler, or by a request without a reply: what follows
    # is unknown.
    is_more = Why.RUNS_AGAIN in verdicts or WhyNot.ENDED in verdicts
    later = (each.value for each in results if each not in left)
    return WriteReply(left, is_more, dues=tuple(each.after for each in later if isinstance(each, Later)))
