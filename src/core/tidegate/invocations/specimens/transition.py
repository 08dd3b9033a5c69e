"""Eight ways to get a status transition wrong. Each differs from `tidegate.invocations.transition` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.scenarios.transition import transition
from tidegate.invocations.status import Accepted, Denied, StatusRecord, decide_transition
from tidegate.invocations.transition import (
    HISTORY,
    OWNER,
    STATUS,
    VERSION,
    Answer,
    GaveUp,
    Granted,
    Transition,
    viewed,
)
from tidegate.model.documents import ID, AllOf, Document, Eq, Filter, Push, Put, Update
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.history import HISTORY_MAX, NotYet
from tidegate.model.operations import find_one, find_one_and_update, update_one
from tidegate.sim.shipping import Specimen

TRUTH: Final = "every answer is the truth"
CONSECUTIVE: Final = "versions are consecutive"
RECORDED: Final = "versions are recorded"
LEGAL: Final = "changes are legal"
ONCE: Final = "requests count once"
KNOWN: Final = "nothing is unknown"


@attrs.frozen
class NoVersionInFilter(Transition):
    """The write asks for status and owner only. They can be the same again later: the record went round in between."""

    def _unchanged(self, expected: StatusRecord) -> Filter:
        return AllOf((Eq(ID, self.key), Eq(STATUS, expected.status), Eq(OWNER, expected.owner)))


@attrs.frozen
class VersionNotRaised(Transition):
    """The version is in the filter, and never grows: it tells nothing."""

    def _changes(self, verdict: Accepted) -> tuple[Update, ...]:
        kept = Put(VERSION, verdict.version - 1)
        return (kept, *(change for change in super()._changes(verdict) if change.field != VERSION))


@attrs.frozen
class RequestIdIgnored(Transition):
    """A retry does not look for its own request id: after a lost reply it is told that its own success is illegal."""

    def _fate(self, record: Document | None, sent: int) -> object:  # noqa: ARG002  that is the bug
        return NotYet()


@attrs.frozen
class OnlyTheLastRequestId(Transition):
    """The record keeps the request id of its last version only: once others have written, a success looks lost."""

    def _changes(self, verdict: Accepted) -> tuple[Update, ...]:
        kept = Push(HISTORY, self._entry(verdict), last=1)
        return (*(change for change in super()._changes(verdict) if change.field != HISTORY), kept)

    def _fate(self, record: Document | None, sent: int) -> object:
        last = record[HISTORY][-1] if record else None
        return super()._fate(record, sent) if last and last[VERSION] == sent + 1 else NotYet()


@attrs.frozen
class NotReadAgain(Transition):
    """A conflict is answered by writing again what was decided on the old record, whatever it is by now."""

    def _unchanged(self, expected: StatusRecord) -> Filter:  # noqa: ARG002  that is the bug
        return Eq(ID, self.key)

    async def _write(self, expected: StatusRecord | None, verdict: Accepted) -> bool:
        assert expected is not None
        first = AllOf((Eq(ID, self.key), Eq(VERSION, expected.version)))
        if await find_one_and_update(self.collection, first, *self._changes(verdict)) is not None:
            return True
        return await super()._write(expected, verdict)


@attrs.frozen
class OwnerNotChecked(Transition):
    """Whoever asks passes for the owner."""

    def _decided(self, record: Document | None) -> Accepted | Denied:
        owner = self.runner if record is None or self.runner is None else record[OWNER] or self.runner
        return decide_transition(self.table, viewed(record), self.target, owner)


@attrs.frozen
class AmbiguousIsRefused(Transition):
    """No reply is taken for a no."""

    async def run(self) -> Answer:
        try:
            record = await find_one(self.collection, Eq(ID, self.key))
        except (Ambiguous, NotApplied):
            return GaveUp(1, None, None)
        verdict = self._decided(record)
        if not isinstance(verdict, Accepted):
            return verdict
        try:
            applied = await self._write(viewed(record), verdict)
        except (Ambiguous, NotApplied):
            applied = False
        return Granted(verdict.version) if applied else GaveUp(1, viewed(record), None)


@attrs.frozen
class HistoryInASecondWrite(Transition):
    """The history is pushed after the write that it tells of: who looks in between does not find itself."""

    async def _write(self, expected: StatusRecord | None, verdict: Accepted) -> bool:
        assert expected is not None
        first = tuple(change for change in self._changes(verdict) if change.field != HISTORY)
        if await find_one_and_update(self.collection, self._unchanged(expected), *first) is None:
            return False
        await update_one(self.collection, Eq(ID, self.key), Push(HISTORY, self._entry(verdict), last=HISTORY_MAX))
        return True


def planted(
    name: str,
    bug: type[Transition],
    law: str,
    source: str,
    *,
    runners: tuple[str, str] = ("runner", "runner"),
    alone: bool = False,
) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    make = partial(transition, bug, summary=(bug.__doc__ or "").partition("\n")[0], runners=runners)
    return Specimen(f"transition.{name}", make, law, source, of="transition", alone=alone)


SPECIMENS: Final = (
    planted(
        "no_version_in_filter",
        NoVersionInFilter,
        CONSECUTIVE,
        "The ABA problem: pynenc-mongo compares the status it has read, and a record can come round to it again.",
    ),
    planted("version_not_raised", VersionNotRaised, CONSECUTIVE, "Planted: a version that tells nothing."),
    planted(
        "request_id_ignored",
        RequestIdIgnored,
        TRUTH,
        "The resilience article: who tries again after a lost reply must recognise a success of its own.",
    ),
    planted(
        "only_the_last_request_id",
        OnlyTheLastRequestId,
        TRUTH,
        "Planted: what the record remembers is too short for a retry that comes after another's write.",
    ),
    planted(
        "not_read_again",
        NotReadAgain,
        CONSECUTIVE,
        "pynenc-mongo writes by id alone once it believes that it holds the lock, whatever the record is by then.",
    ),
    planted(
        "owner_not_checked",
        OwnerNotChecked,
        LEGAL,
        "Planted: two runners, and either passes for the owner of what the other one claimed.",
        runners=("one", "two"),
    ),
    planted(
        "ambiguous_is_refused",
        AmbiguousIsRefused,
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "history_in_a_second_write",
        HistoryInASecondWrite,
        RECORDED,
        "pynenc-mongo keeps the history in a collection of its own, written after the status.",
    ),
    planted(
        "history_in_a_second_write.twice",
        HistoryInASecondWrite,
        ONCE,
        "The same: of two versions without a history nobody can tell which request made them.",
        alone=True,
    ),
    planted(
        "version_not_raised.unknown",
        VersionNotRaised,
        KNOWN,
        "The same: a record whose version tells nothing cannot answer for a request without a reply.",
        alone=True,
    ),
)
