"""Ways to recover wrongly. Each differs from `tidegate.invocations.recoverer` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.invocation import INVOCATION, PENDING, PENDING_RECOVERY
from tidegate.invocations.recoverer import ITEMS_MAX, Recoverer
from tidegate.invocations.recovery import Move, RecoveryAction, Trouble
from tidegate.invocations.scenarios.recovery import DONE, HISTORY, SPARED, recovery, together
from tidegate.invocations.specimens.transition import NoVersionInFilter
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Transition, viewed
from tidegate.model.documents import ID, Document
from tidegate.model.instants import Instant
from tidegate.model.operations import find_all
from tidegate.services.members import SEEN, beat, everybody
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen


@attrs.frozen(kw_only=True)
class Unguarded(Recoverer):
    """A step moves whatever is there by now: what another has recovered, and a living worker claimed, is taken again."""

    def _transition(self, key: str, expected: StatusRecord, target: str, request: str) -> Transition:
        return attrs.evolve(super()._transition(key, expected, target, request), expected=None)


@attrs.frozen(kw_only=True)
class VersionNotCompared(Recoverer):
    """A step is written over status and owner alone, and these can come round to what they were."""

    def _transition(self, key: str, expected: StatusRecord, target: str, request: str) -> Transition:
        attempts = self.attempts
        return NoVersionInFilter(self.records, INVOCATION, key, target, None, request, attempts, expected)


@attrs.frozen(kw_only=True)
class MembersFirst(Recoverer):
    """The members are read first: who beats and claims in between is taken for dead."""

    async def _planned(self) -> tuple[RecoveryAction, ...]:
        beaten = await beat(self.members, self.me)
        assert beaten is not None
        members = await everybody(self.members)
        found = await find_all(self.records, limit=ITEMS_MAX)
        published = await find_all(self.messages, limit=ITEMS_MAX)
        return self.decided(found, published, members, beaten[SEEN])


@attrs.frozen(kw_only=True)
class OnlyWhatIsOwned(Recoverer):
    """Pending and running are looked at, and nothing else: what no message leads to is never run."""

    def decided(
        self,
        found: tuple[Document, ...],
        published: tuple[Document, ...],
        members: tuple[Document, ...],
        now: Instant,
    ) -> tuple[RecoveryAction, ...]:
        steps = super().decided(found, published, members, now)
        return tuple(step for step in steps if isinstance(step, Move) and step.expected.owner is not None)


@attrs.frozen(kw_only=True)
class HalfOfTheWay(Recoverer):
    """The way from the recovery status on is left to a second round, that never looks at what was left there."""

    def decided(
        self,
        found: tuple[Document, ...],
        published: tuple[Document, ...],
        members: tuple[Document, ...],
        now: Instant,
    ) -> tuple[RecoveryAction, ...]:
        steps = super().decided(found, published, members, now)
        return tuple(step for step in steps if step.trouble is not Trouble.LEFT_HALFWAY)

    async def _moved(self, key: str, expected: StatusRecord, target: str) -> int:
        return 0 if expected.owner is None else await super()._moved(key, expected, target)


@attrs.frozen(kw_only=True)
class NoPatience(Recoverer):
    """What is pending is taken at once, though a process takes time to start."""

    def decided(
        self,
        found: tuple[Document, ...],
        published: tuple[Document, ...],
        members: tuple[Document, ...],
        now: Instant,
    ) -> tuple[RecoveryAction, ...]:
        known = tuple((str(each[ID]), viewed(each)) for each in found)
        hasty = (
            Move(key, record, PENDING_RECOVERY, Trouble.PENDING_TOO_LONG)
            for key, record in known
            if record is not None and record.status == PENDING
        )
        return tuple(hasty) or super().decided(found, published, members, now)


def planted(
    name: str, make: partial[Scenario], law: str, source: str, of: str = "recovery", *, alone: bool = False
) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    summary = (make.args[0].__doc__ or "").partition("\n")[0]
    return Specimen(f"recovery.{name}", partial(make, summary=summary), law, source, of, alone)


SPECIMENS: Final = (
    planted(
        "unguarded",
        partial(together, Unguarded),
        SPARED,
        "pynenc sets all items to their recovery status and then all of them on, without guards per item.",
        of="recovery.together",
    ),
    planted(
        "version_not_compared",
        partial(together, VersionNotCompared),
        HISTORY,
        "The ABA problem: status and owner are what they were, and the record went round in between.",
        of="recovery.together",
        alone=True,
    ),
    planted(
        "members_first",
        partial(together, MembersFirst),
        SPARED,
        "Planted, after what the simulator found in the flow of the atomic service: who is alive is to be read last.",
        of="recovery.together",
    ),
    planted(
        "only_what_is_owned",
        partial(recovery, OnlyWhatIsOwned, is_sent=False),
        DONE,
        "pynenc recovers pending and running alone: after a pop and a crash, registered without a message is lost.",
        of="recovery.no_message",
    ),
    planted(
        "half_of_the_way",
        partial(recovery, HalfOfTheWay, moves=2, budget=0),
        DONE,
        "pynenc: one item that has moved in between stops the pass, and those before it stay in pending_recovery.",
    ),
    planted(
        "no_patience",
        partial(recovery, NoPatience, budget=0),
        SPARED,
        "pynenc takes what has been pending for 5 s, and a process that starts more slowly loses what it was to run.",
    ),
)
