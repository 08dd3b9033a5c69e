"""Four ways to get a partition wrong. Each differs from `tidegate.partition` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.drain import Budget, InFlight
from tidegate.instants import SECOND
from tidegate.partition import Owned, Phase, Processor, Step
from tidegate.scenarios.partition import ALL, FINISHED, GIVES_UP, ONE_COMMIT, OWNER, partition
from tidegate.scenarios.shipping import Specimen
from tidegate.watermark import committable, done_offsets
from tidegate.wishes import Event, Release


@attrs.frozen
class CommitsTheHighest(Processor):
    """The highest finished offset is committed, whatever is unfinished before it."""

    def _to_commit(self, part: Owned) -> int | None:
        done = done_offsets(part.ledger)
        return done[-1] + 1 if done and part.committing is None else None


@attrs.frozen
class CountsLateResults(Processor):
    """What comes of an older generation is taken for news of this one."""

    def _is_current(self, part: Owned, event: Event) -> bool:  # noqa: ARG002  that is the bug
        return True


@attrs.frozen
class TwoCommitsInFlight(Processor):
    """A commit does not wait for the one before: the lower one may land last."""

    def _to_commit(self, part: Owned) -> int | None:
        position = committable(part.ledger)
        return None if position is None or position <= (part.committing or 0) else position


@attrs.frozen
class RevokesWithoutDrain(Processor):
    """The partition is released at once, and what runs goes on."""

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> Step:  # noqa: ARG002
        going_on = attrs.evolve(part, phase=Phase.STOPPED, queued=())
        return Step(going_on, (Release(part.partition),))


AT_ONCE: Final = Budget(30 * SECOND)
"""To drain, with no time to clean up or to commit."""


def planted(name: str, bug: type[Processor], law: str, source: str) -> Specimen:
    """The scenario of the reducer, with the bug in its place."""
    make = partial(
        partition,
        bug(running_max=2, drain=AT_ONCE, metadata_max=0),
        summary=(bug.__doc__ or "").partition("\n")[0],
        records=2,
        rebalances=1,
        kinds=GIVES_UP,
    )
    return Specimen(f"partition.{name}", make, law, source, of="partition")


SPECIMENS: Final = (
    planted(
        "commits_the_highest",
        CommitsTheHighest,
        FINISHED,
        "Consumers that commit the last record they have finished lose those before it that are still running.",
    ),
    planted(
        "counts_late_results",
        CountsLateResults,
        ALL,
        "Kafka: what a consumer hears after a rebalance may belong to an assignment that it no longer has.",
    ),
    planted(
        "two_commits_in_flight",
        TwoCommitsInFlight,
        ONE_COMMIT,
        "Kafka takes any position: neither the broker nor aiokafka refuses one that is lower than the last.",
    ),
    planted(
        "revokes_without_drain",
        RevokesWithoutDrain,
        OWNER,
        "Kafka: whoever returns from the callback of a revocation has given the partition away.",
    ),
)
