"""What is stuck is found and freed, one step at a time, whoever else does the same.

What is decided is in `tidegate.invocations.recovery` and `tidegate.services.membership`; this is what is asked of the store,
and in which order. A pass reads the invocations that may be stuck, which is neither what has ended nor what waits to be taken, a
page after the other (`Recoverer.indexes`); of each page, then the time (by a beat of its own), then the members. Each step is
a transition of the very record that it was decided on (status, owner and version), so it comes to nothing if that has moved
(where its write matches nothing, or has no answer, the transition reads back which). The write that makes it available makes it
due, so it is in the queue by the same write. Who moves an invocation half of the way goes on with it; if it does not come that
far, the next pass finds it there.

Laws
    RP1  Nothing is taken from an owner that was alive when it was looked at, unless it was pending for too long.
    RP2  Each version is made by one request and each change is legal, so what is run is run once at that version.
    RP3  At rest the invocation is finished or in the queue, or time has to pass before anybody can know that it is stuck.
    RP4  A pass looks at each invocation that may be stuck, however many there are and whatever becomes of the others;
         what it can do nothing for, it names, with the reason.
    RP5  Each run that is taken from its owner is counted once, by the write that takes it, and nothing else is: so a handler that
         kills whoever runs it is not run again without end (law WK17 of `tidegate.work.worker`).

Known not to work, beside what `tidegate.invocations.recovery` names
    - The recovering process has to be a member itself, for its beats reply the time.
    - An owner that is presumed dead and goes on does its work a second time, as far as the world outside is concerned. Its
      last transition is refused, for the version is another one.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.invocations.invocation import INVOCATION, REROUTED, RUNNING_RECOVERY
from tidegate.invocations.record_documents import CHANGED_AT, DEATHS, OWNER, STATUS, TASK, viewed
from tidegate.invocations.recovery import PATIENCE, Item, Move, Patience, plan_recovery
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Granted, Transition
from tidegate.model.documents import ID, Add, Ascending, Document, Field, In, Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import Index, Indexes, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.pauses import PAUSES, Pauses, check_attempts
from tidegate.services.members import SEEN, beat, everybody, membership_of

ITEMS_MAX: Final = 100
"""How many invocations a page has."""

OPEN: Final = tuple(sorted(each.status for each in INVOCATION.definitions if not each.final and not each.available))
"""The statuses that an invocation may be stuck in."""

ATTEMPTS: Final = 4
_KEY: Final = Field[Value](ID.name)


@final
@attrs.frozen
class NotRecovered:
    """An invocation that nothing could be done for.

    Attributes:
        key: Its id.
        reason: Why: its record cannot be read, or the store refuses its step.
    """

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r} is not recovered: {self.reason}"


@final
@attrs.frozen
class Looked:
    """What there is to do for a page of invocations.

    Attributes:
        steps: The next step of each that is stuck.
        skipped: Those whose records cannot be read.
        last: The id after which the next page begins; empty if this was the last one.
    """

    steps: tuple[Move, ...]
    skipped: tuple[NotRecovered, ...] = ()
    last: tuple[Value, ...] = ()


@final
@attrs.frozen
class RecoveryPass:
    """What a pass came to.

    Attributes:
        is_done: All were looked at, and each step that was due is done; if not, look again soon.
        skipped: Those that nothing could be done for.
        owners: Whose the runs were that it has taken, once for each.
    """

    is_done: bool
    skipped: tuple[NotRecovered, ...] = ()
    owners: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Recoverer:
    """Looks after invocations, a pass at a time. Invariants: the id is not empty; 1 <= dead_after, attempts.

    Attributes:
        me: Its id as a member; its requests begin with it, so it is used for this life only.
        dead_after: After how much silence a member is presumed dead, in microseconds.
        patience: How long is too long.
        tasks: It looks after invocations of these tasks alone; None for all.
        records, members: The collections.
        attempts: How often to ask for each step; None for any number.
        pauses: How long it waits in between.
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
        """What a pass needs, which reads the invocations that may be stuck in the order of their ids, and a look at what one owns."""
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
                except Refused as refused:  # what is said of one must not keep the others
                    skipped += (NotRecovered(step.key, refused.reason),)
                    version = 0
                is_done = bool(version) and is_done
            after = page.last
            if not after:
                return RecoveryPass(is_done, skipped, owners)

    async def _look(self, after: tuple[Value, ...]) -> Looked:
        """A page of what there is, and what to do for it: the members are read last, so that nobody seems gone who came in between."""
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
        """What there is to do, by what was read: a page of invocations, and the members.

        Raises:
            Misuse: A document is not of a member, or an instant is of another clock.
        """
        check_tuple(found, Document, "a record")
        items, skipped = _items(found)
        steps = plan_recovery(items, membership_of(members, self.dead_after), now, self.patience)
        return Looked(steps, skipped, (needed(found[-1], _KEY),) if len(found) == ITEMS_MAX else ())

    async def _move(self, key: str, expected: StatusRecord, target: str) -> int:
        """Move an invocation from that record and no other: the version that was made; 0 if others were faster, or nobody answered."""
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
    """Those that can be read, and the others: one that was spoiled must not keep those behind it."""
    items: list[Item] = []
    skipped: list[NotRecovered] = []
    for record in found:
        try:
            items.append(item_of(record))
        except Misuse as misuse:
            skipped.append(NotRecovered(needed(record, _KEY), misuse.what))
    return tuple(items), tuple(skipped)


def item_of(record: Document) -> Item:
    """What the decision needs to know of an invocation.

    Raises:
        Misuse: It is not the record of one.
    """
    key, known = needed(record, ID), viewed(record)
    changed = record.get(CHANGED_AT)
    if known is None or changed is None:
        raise Misuse("a record has no date", where=f"{shown(key)}", todo="let only tidegate write in its collection")
    return Item(key, known, changed)
