"""What runs of invocations are to a worker (`tidegate.work.worker`), and what they have come to.

A worker of invocations has one queue, for all that it takes, keeps its claims by life, and prefetches. The token of a run is the
version of the record since it runs: a write is for the owner and the version that it knows, so what others have recovered
meanwhile is not written.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.invocations.ending import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.status import StatusRecord
from tidegate.model.instants import seconds
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import Policy
from tidegate.work.vocabulary import InterruptReason, NoAnswer, Run

WORK_QUEUE: Final = "invocations"
"""The name of the one queue of a worker."""


@final
@attrs.frozen
class Held:
    """What nothing is taken from: these queues, and these tasks."""

    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()


@final
@attrs.frozen
class Attempt:
    """The detail of a run of an invocation. Invariant: 1 <= tries.

    Attributes:
        tries: How many runs of it have begun, this one included.
        policy: When it is tried again if it takes too long; None for never.
    """

    tries: int = 1
    policy: Policy | None = None

    def __attrs_post_init__(self) -> None:
        check_int(self.tries, "a number of runs", 1)
        check_type(self.policy, (Policy, type(None)), "a policy")


def tries_of(run: Run) -> int:
    """How many runs of the invocation have begun, this one included."""
    check_type(run, Run, "a run")
    return run.detail.tries if isinstance(run.detail, Attempt) else 1


def died(deaths: int) -> Failed:
    """What a run is rejected with whose owners have died so often, while they ran it."""
    check_int(deaths, "a number of deaths", 0)
    said = f"{deaths} times whoever ran it died, or was silent for so long that it was taken for dead"
    return Failed(RunError("ProcessDied", said, above=("Exception", "BaseException")))


_REFUSED: Final = Failed(
    RunError("Refused", "the store refuses to keep what it has come to", above=("Exception", "BaseException"))
)


@final
@attrs.frozen
class InvocationResults:
    """What the runs of invocations have come to."""

    refused: End = _REFUSED

    def result(self, run: Run, answer: object, why: InterruptReason | None) -> End:
        """A run that has succeeded although it was interrupted has, unless it took too long; any other answer of an interrupted run
        does not count.
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
    """An invocation that is claimed in the name of a process which does not track it.

    Attributes:
        key: Its id.
        record: What its record is.
        tries: How many runs of it have begun.
        limited_by: The set that it is of; None for none.
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
        """Its id."""
        return self.key

    @property
    def token(self) -> int:
        """The version of its record."""
        return self.record.version
