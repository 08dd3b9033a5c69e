"""Rescues stuck invocations: those whose owner died, and those left pending too long.

`tidegate.invocations.upkeep.recovery` decides; this module reads and writes. Any number of processes may
run a pass concurrently. A pass pages through all invocations that are neither finished nor queued
(`Recoverer.indexes`). For each page it reads the time (by a heartbeat of its own), then the
members.
Each step is a transition of the record decided on (status, owner, version), so a record that moved
in the meantime is skipped; after a miss or without a reply, the transition reads back. The write
that makes an invocation available also makes it due, and so queues it. A rescue may need two steps;
the next pass completes a half-done one.

Laws
    RP1  Nothing is taken from an owner that was alive when read, except one pending too long.
    RP2  Each version is made by one request and each change is legal, so a run happens once at
         its version.
    RP3  At rest an invocation is finished or queued, or time must pass before it counts as stuck.
    RP4  A pass reads every invocation that may be stuck, however many there are and despite
         failures of others. It reports those that it cannot recover, with the reason.
    RP5  Each run taken from its owner is counted once, by the write that takes it; no other change
         is. So a handler that kills its process is not rerun for ever (law WK17 of
         `tidegate.work.worker`).

Known not to work, beside the limits of `tidegate.invocations.upkeep.recovery`
    - The recovering process must be a member, because its heartbeats return the time.
    - An owner presumed dead that continues does its work a second time. Its last transition is
      refused by version, but its outside effects remain.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.invocations.record.invocation import INVOCATION, REROUTED, RUNNING_RECOVERY
from tidegate.invocations.record.record_documents import CHANGED_AT, DEATHS, OWNER, STATUS, TASK, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition
from tidegate.invocations.upkeep.recovery import PATIENCE, Item, Move, Patience, plan_recovery
from tidegate.model.documents import ID, Add, Ascending, Document, Field, In, Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import Index, Indexes, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, check_attempts
from tidegate.services.members import SEEN, beat, everybody, membership_of

ITEMS_MAX: Final = 100
"""The page size."""

OPEN: Final = tuple(sorted(each.status for each in INVOCATION.definitions if not each.final and not each.available))
"""The statuses in which an invocation may be stuck."""

ATTEMPTS: Final = 4
_KEY: Final = Field[Value](ID.name)


@final
@attrs.frozen
class NotRecovered:
    """An invocation that cannot be recovered.

    Attributes:
        key: Its id.
        reason: Its record is unreadable, or the store refuses the step.
    """

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r} is not recovered: {self.reason}"


@final
@attrs.frozen
class Looked:
    """The plan for a page of invocations.

    Attributes:
        steps: The next step of each stuck one.
        skipped: Those with unreadable records.
        last: The id after which the next page begins; empty for the last page.
    """

    steps: tuple[Move, ...]
    skipped: tuple[NotRecovered, ...] = ()
    last: tuple[Value, ...] = ()


@final
@attrs.frozen
class RecoveryPass:
    """The result of a pass.

    Attributes:
        is_done: All were read, and each due step is done. If not, run another pass soon.
        skipped: Those that cannot be recovered.
        owners: The former owner of each run that was taken, once per run.
    """

    is_done: bool
    skipped: tuple[NotRecovered, ...] = ()
    owners: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Recoverer:
    """Runs passes. Invariants: the id is not empty; 1 <= dead_after, attempts.

    Attributes:
        me: Its member id. Its request ids begin with it, so use it for one process life only.
        dead_after: The silence after which a member is presumed dead, in microseconds.
        patience: The limits of time in a status.
        tasks: Recover only invocations of these tasks; None for all.
        records, members: The collections.
        attempts: The attempts of each step; None for no limit.
        pauses: The delays between attempts.
    """

    me: str
    dead_after: Duration
    patience: Patience = PATIENCE
    tasks: tuple[str, ...] | None = None
    records: str = "invocations"
    members: str = "members"
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.me, "a member")
        check_int(self.dead_after, "a time of silence in microseconds", 1)
        check_type(self.patience, Patience, "a patience")
        if self.tasks is not None:
            check_tuple(self.tasks, str, "a task")
        check_attempts(self.attempts, self.pauses)
        for collection in (self.records, self.members):
            check_collection(collection)

    @property
    def indexes(self) -> Indexes:
        """The indexes for a pass by id, and for finding the invocations of an owner."""
        return {self.records: (Index((Ascending(STATUS),)), Index((Ascending(STATUS), Ascending(OWNER))))}

    async def run(self) -> RecoveryPass:
        """The program: one pass."""
        skipped: tuple[NotRecovered, ...] = ()
        owners: tuple[str, ...] = ()
        is_done = True
        after: tuple[Value, ...] = ()
        while True:
            try:
                page = await self._look(after)
            except (Ambiguous, NotApplied, NotDurable):
                return RecoveryPass(is_done=False, skipped=skipped, owners=owners)
            skipped += page.skipped
            for step in page.steps:
                version = 0
                try:
                    version = await self._move(step.key, step.expected, step.target)
                    if version and step.expected.owner is not None:
                        owners += (step.expected.owner,)
                    if version and not step.frees:
                        version = await self._move(step.key, StatusRecord(step.target, None, version), REROUTED)
                except Refused as refused:  # a refusal of one must not stop the others
                    skipped += (NotRecovered(step.key, refused.reason),)
                    version = 0
                is_done = bool(version) and is_done
            after = page.last
            if not after:
                return RecoveryPass(is_done, skipped, owners)

    async def _look(self, after: tuple[Value, ...]) -> Looked:
        """Plan a page. Members are read last, so a process that joined in between counts."""
        of = () if self.tasks is None else (In(TASK, self.tasks),)
        found = await find_all(self.records, In(STATUS, OPEN), *of, limit=ITEMS_MAX, after=after)
        beaten = await beat(self.members, self.me)
        if beaten is None:
            raise Misuse(f"{self.me!r} is not a member", todo="join first")
        members = await everybody(self.members)
        return self.planned(found, members, beaten[SEEN])

    def planned(
        self,
        found: tuple[Document, ...],
        members: tuple[Document, ...],
        now: Instant,
    ) -> Looked:
        """Plan a page from what was read.

        Raises:
            Misuse: A document is not of a member, or an instant is of another clock.
        """
        check_tuple(found, Document, "a record")
        items, skipped = _items(found)
        steps = plan_recovery(items, membership_of(members, self.dead_after), now, self.patience)
        return Looked(steps, skipped, (needed(found[-1], _KEY),) if len(found) == ITEMS_MAX else ())

    async def _move(self, key: str, expected: StatusRecord, target: str) -> int:
        """Return the new version; 0 if another writer was faster or the store did not answer."""
        answer = await Transition(
            self.records,
            INVOCATION,
            key,
            target,
            runner=None,
            request=f"{self.me}.{key}.{expected.version}",
            attempts=self.attempts,
            expected=expected,
            also=(Add(DEATHS, 1),) if target == RUNNING_RECOVERY else (),
            pauses=self.pauses,
        ).run()
        return answer.version if isinstance(answer, Granted) else 0


def _items(found: tuple[Document, ...]) -> tuple[tuple[Item, ...], tuple[NotRecovered, ...]]:
    """Split into readable and unreadable records; the latter must not block the former."""
    items: list[Item] = []
    skipped: list[NotRecovered] = []
    for record in found:
        try:
            items.append(item_of(record))
        except Misuse as misuse:
            skipped.append(NotRecovered(needed(record, _KEY), misuse.what))
    return tuple(items), tuple(skipped)


def item_of(record: Document) -> Item:
    """Read the input of the decision from a record.

    Raises:
        Misuse: It is no record of an invocation.
    """
    key, known = needed(record, ID), viewed(record)
    changed = record.get(CHANGED_AT)
    if known is None or changed is None:
        raise Misuse("a record has no date", where=f"{shown(key)}", todo="let only tidegate write in its collection")
    return Item(key, known, changed)
