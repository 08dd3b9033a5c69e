"""Adapts invocations to the worker (`tidegate.work.worker`): their runs and results.

A worker of invocations has one queue for all that it takes, keeps its claims by process life, and
prefetches. The token of a run is the version of its record: a write is filtered by owner and
version, so a run that recovery has taken is not written.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.invocations.queue.completion import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.instants import seconds
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import Policy
from tidegate.work.vocabulary import InterruptReason, NoAnswer, Run

WORK_QUEUE: Final = "invocations"
"""The name of the one queue of a worker."""


@final
@attrs.frozen
class Held:
    """The paused queues and tasks."""

    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()


@final
@attrs.frozen
class Attempt:
    """The detail of a run. Invariant: 1 <= tries.

    Attributes:
        tries: The number of runs begun, including this one.
        policy: The retry policy after a timeout; None for no retry.
    """

    tries: int = 1
    policy: Policy | None = None

    def __attrs_post_init__(self) -> None:
        check_int(self.tries, "a number of runs", 1)
        check_type(self.policy, (Policy, type(None)), "a policy")


def tries_of(run: Run) -> int:
    """The number of runs begun, including this one."""
    check_type(run, Run, "a run")
    return run.detail.tries if isinstance(run.detail, Attempt) else 1


def died(deaths: int) -> Failed:
    """The rejection of an invocation whose owners have died this often while they ran it."""
    check_int(deaths, "a number of deaths", 0)
    said = f"{deaths} times whoever ran it died, or was silent for so long that it was taken for dead"
    return Failed(RunError("ProcessDied", said, above=("Exception", "BaseException")))


_REFUSED: Final = Failed(
    RunError("Refused", "the store refuses to keep what it has come to", above=("Exception", "BaseException"))
)


@final
@attrs.frozen
class InvocationResults:
    """The results of runs."""

    refused: End = _REFUSED

    def result(self, run: Run, answer: object, why: InterruptReason | None) -> End:
        """The success of an interrupted run counts, except after a timeout. Its other answers do
        not.
        """
        is_late = why is InterruptReason.TOO_LONG
        if isinstance(answer, Succeeded | Failed | GivenBack | Cancelled) and (
            why is None or (isinstance(answer, Succeeded) and not is_late)
        ):
            return answer
        check_type(answer, (Succeeded, Failed, GivenBack, Cancelled, NoAnswer), "how a run has ended")
        if why is InterruptReason.CANCEL:
            return Cancelled()
        if not is_late:
            return GivenBack()
        said = f"it took longer than {seconds(run.timeout or 0)}"
        policy = run.detail.policy if isinstance(run.detail, Attempt) else None
        return Failed(RunError("TimeoutError", said, above=("OSError", "Exception", "BaseException")), policy)


@final
@attrs.frozen(cache_hash=True)
class UntrackedRun:
    """An invocation claimed by this process that it does not track.

    Attributes:
        key: Its id.
        record: Its record.
        tries: The number of runs begun.
        limited_by: Its set; None for none.
    """

    key: str
    record: StatusRecord
    tries: int
    limited_by: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.record, StatusRecord, "a record")
        check_int(self.tries, "a number of runs", 0)
        check_type(self.limited_by, (str, type(None)), "a set of invocations")

    @property
    def id(self) -> str:
        return self.key

    @property
    def token(self) -> int:
        return self.record.version
