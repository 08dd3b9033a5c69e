"""What fires, which pass may fire it, and what may be deleted.

An occurrence waits until each trigger of its condition has fired of it. One run of a trigger makes
one invocation:

    a trigger of one condition, or of any     one run per occurrence; its id is made of both
    a trigger of all its conditions           one run per complete set; its id is made of a number

A set is complete when each condition has an occurrence and they lie within `within` of each other.
Occurrences are taken in the order in which they were seen, as by a latch. Each joins those that are
not too old for it. Once all conditions are present, the run takes everything in the latch. So
firing depends on when occurrences were seen, not on when a pass ran. Runs of all conditions are
numbered consecutively. The maker of run n has seen what runs up to n - 1 used, and only one process
can insert n: the number is a fencing token for the set.

A pass, each step one write of one document:

    1  move the crons (`schedule`), since their instants may be older than what waits; THEN read the
       clock, THEN occurrences, THEN triggers and runs. So what is seen or registered meanwhile is
       not taken for late or unwanted
    2  `plan`              what fires, and what may be dropped
    3  `claim`             the run, with an expiry; its record keeps the occurrences, so that the
                           next pass can continue. A record that the store refuses is `set_aside`
    4  make the arguments (`trigger.provided`), and insert the invocation under the id of the run;
       an existing one is fine
    5  `fired`, `failed`   write the result into the run
    6  drop what the next plan allows

A crash leaves either no run, or a run whose claim expires. The invocation has the id of the run, so
inserting it twice makes one. A run that fails repeatedly is given up, on record, and blocks no
other.

Laws
    FI1  No occurrence is in two runs of one trigger.
    FI2  An occurrence is dropped only when each trigger that waits for it has fired of it, has
         given it up, or can no longer complete a set with it.
    FI3  No other pass takes a claim that has not expired; each claim is a new attempt.
    FI4  A fired run stays fired. A given-up run stays so, unless it turns out that it fired. Each
         change is one version.
    FI5  A run of all conditions holds an occurrence of each, none more than `within` older than the
         last.
    FI6  The time of planning does not change what fires, if occurrences became visible in the order
         seen.
    FI7  The order of the plan's inputs does not change it.
    FI8  The attempts never exceed the maximum; a run with none left is given up.
    FI9  A purge leaves what waits, what is not settled, and the last run of each trigger of all
         conditions.
    FI10 A run set aside is settled, has the id and the occurrences of its run, and none of their
         contents.

Known not to work
    - An occurrence that becomes visible after one that was seen later may miss its set, and then
      waits for the next one. So may an instant of a cron, if a pass plans before moving the crons.
    - A planner whose view is older than the retention of runs may fire again: its view holds an
      occurrence whose run is deleted.
    - The last run of a trigger of all conditions stays when the trigger is gone, as it may come
      back.
    - A plan has one new run of each trigger of all conditions, since the next number must have seen
      this one. Plan again once it is claimed or lost. So a backlog of n sets takes n plans (0.2 s
      each with 100,000 occurrences, 25 ms with 10,000).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.values import check_int, check_name, check_tuple, check_type, check_types
from tidegate.services.retention import Retention, Row, surplus
from tidegate.triggers._identity import identity
from tidegate.triggers.contexts import EventContext, without_contents
from tidegate.triggers.trigger import Occurrence, Trigger

# --- runs -----------------------------------------------------------------------------------------


@final
@attrs.frozen
class Held:
    """A pass has claimed the run until this instant, by the store's clock.

    `by` is the pass, so that it recognises a claim whose reply was lost.
    """

    settled: ClassVar[bool] = False
    by: str
    until: Instant

    def __attrs_post_init__(self) -> None:
        check_name(self.by, "a pass")
        check_type(self.until, Instant, "an instant")


@final
@attrs.frozen
class Failed:
    """There were no arguments, or no invocation. Another attempt may follow."""

    settled: ClassVar[bool] = False
    reasons: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        _check_reasons(self.reasons)


@final
@attrs.frozen
class GivenUp:
    """No attempt is left, or its trigger is gone: final."""

    settled: ClassVar[bool] = True
    reasons: tuple[str, ...]
    at: Instant

    def __attrs_post_init__(self) -> None:
        _check_reasons(self.reasons)
        check_type(self.at, Instant, "an instant")


@final
@attrs.frozen
class Fired:
    """The invocation exists, under the id of the run."""

    settled: ClassVar[bool] = True
    at: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.at, Instant, "an instant")


RunState: TypeAlias = Held | Failed | GivenUp | Fired


@final
@attrs.frozen
class Firing:
    """The occurrences that fire together, in the order seen.

    Invariants: 0 <= number; there is an occurrence, none twice.

    Attributes:
        number: The number of the run for a trigger of all conditions; else 0.
        id: The id of the run and of the invocation.
    """

    trigger_id: str
    occurrences: tuple[Occurrence, ...]
    number: int = 0
    id: str = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.trigger_id, "a trigger")
        check_int(self.number, "the number of a run", 0, INT64_MAX)
        check_tuple(self.occurrences, Occurrence, "an occurrence")
        if not self.occurrences or len({each.id for each in self.occurrences}) != len(self.occurrences):
            raise Misuse("a run has occurrences, each once")
        first, *others = self.occurrences
        if others and not self.number:
            raise Misuse("several occurrences in a run without a number", why="its id would name only one of them")
        run_of = self.number or first.id
        object.__setattr__(self, "id", identity("run", self.trigger_id, run_of))

    @property
    def parent(self) -> str | None:
        """The first event that it fires of, the parent of the invocation; else None."""
        contexts = (each.context for each in self.occurrences)
        return next((context.event_id for context in contexts if isinstance(context, EventContext)), None)

    def __str__(self) -> str:
        return f"run {self.id[:8]} of trigger {self.trigger_id[:8]}: {'; '.join(map(str, self.occurrences))}"


@final
@attrs.frozen
class TriggerRun:
    """The record of a run. Invariants: 1 <= attempt <= version."""

    firing: Firing
    state: RunState
    attempt: int = 1
    version: int = 1

    def __attrs_post_init__(self) -> None:
        check_type(self.firing, Firing, "a firing")
        check_type(self.state, (Held, Failed, GivenUp, Fired), "the state of a run")
        check_int(self.attempt, "an attempt", 1, INT64_MAX)
        check_int(self.version, "the version of a run", self.attempt, INT64_MAX)

    @property
    def id(self) -> str:
        return self.firing.id

    def __str__(self) -> str:
        return f"{self.firing}, {self.state} after {self.attempt} attempts, version {self.version}"


# --- 2: the plan ----------------------------------------------------------------------------------


@final
@attrs.frozen
class Plan:
    """What a pass does next.

    Attributes:
        firings: The runs to claim, in the order seen: new runs, and unsettled ones.
        given_up: Runs to write as given up, because their trigger is gone.
        dropped: The ids of unneeded occurrences; a pending instant of a cron is closed.
    """

    firings: tuple[Firing, ...]
    given_up: tuple[TriggerRun, ...]
    dropped: tuple[str, ...]


TRIGGER_GONE: Final = "its trigger is gone"


def plan(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """Decide what fires and what may be dropped, independent of the order of the arguments (FI7).

    Args:
        triggers: All registered triggers.
        occurrences: All that wait, with the pending instants of crons (`trigger.ticks`).
        runs: All unsettled runs, the runs of these occurrences, and the last one of each trigger of
            all conditions.
        now: The time, by the store's clock.
    """
    check_types(triggers, Trigger, "a trigger")
    check_types(occurrences, Occurrence, "an occurrence")
    check_types(runs, TriggerRun, "a run")
    check_type(now, Instant, "an instant")
    there: set[str] = set()
    waiting: dict[str, list[Occurrence]] = {}
    for each in sorted(occurrences, key=_by_sight):
        _ = now - each.seen  # Misuse where it was seen on another clock
        if each.id not in there:
            there.add(each.id)
            waiting.setdefault(each.condition_id, []).append(each)
    by_id = {
        run.id: run for run in sorted(runs, key=lambda run: run.version)
    }  # the highest version comes last, and stays
    of_trigger: dict[str, list[TriggerRun]] = {}
    for run in by_id.values():
        of_trigger.setdefault(run.firing.trigger_id, []).append(run)

    firings = {run.id: run.firing for run in by_id.values() if not run.state.settled}
    needed: set[str] = set()
    for trigger in triggers:
        mine = [each for condition in trigger.condition_ids for each in waiting.get(condition, ())]
        if trigger.joins:
            joined = _joined(trigger, sorted(mine, key=_by_sight), of_trigger.get(trigger.id, []), now)
            firings.update((each.id, each) for each in joined.firings)
            needed |= joined.needed
            continue
        for each in mine:
            firing = Firing(trigger.id, (each,))
            before = by_id.get(firing.id)
            if before is None or not before.state.settled:
                firings.setdefault(firing.id, firing)
                needed.add(each.id)

    known = {trigger.id for trigger in triggers}
    orphans = [run for run in by_id.values() if not run.state.settled and run.firing.trigger_id not in known]
    kept = [each for each in firings.values() if each.trigger_id in known]
    dropped = [each for some in waiting.values() for each in some if each.id not in needed]
    return Plan(
        tuple(sorted(kept, key=lambda firing: (_by_sight(firing.occurrences[0]), firing.id))),
        tuple(_changed(run, GivenUp((TRIGGER_GONE,), now)) for run in sorted(orphans, key=lambda run: run.id)),
        tuple(each.id for each in sorted(dropped, key=_by_sight)),
    )


@final
@attrs.frozen
class _Joined:
    """What a trigger of all conditions fires next, and the occurrences that it still needs."""

    firings: tuple[Firing, ...]
    needed: frozenset[str]


def _joined(trigger: Trigger, waiting: Iterable[Occurrence], runs: Collection[TriggerRun], now: Instant) -> _Joined:
    used = {each.id: run for run in runs for each in run.firing.occurrences}
    needed = {each for each, run in used.items() if not run.state.settled}
    left = deque(each for each in waiting if each.id not in used)
    # The latch holds what may still meet, oldest first; `there` counts its occurrences by
    # condition.
    latch: deque[Occurrence] = deque()
    there = dict.fromkeys(trigger.condition_ids, 0)
    while left and not all(there.values()):
        newest = left.popleft()
        # An occurrence too old for the newest is too old for all later ones, so it never returns.
        while latch and newest.seen - latch[0].seen > trigger.within:
            there[latch.popleft().condition_id] -= 1
        latch.append(newest)
        there[newest.condition_id] += 1
    if all(there.values()):
        number = 1 + max((run.firing.number for run in runs), default=0)
        needed.update(each.id for each in (*latch, *left))
        return _Joined((Firing(trigger.id, tuple(latch), number),), frozenset(needed))
    needed.update(each.id for each in latch if now - each.seen <= trigger.within)
    return _Joined((), frozenset(needed))


# --- 3: the claim ---------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Claims:
    """How long a claim lasts, in microseconds, and how often a run is tried.

    Invariants: 0 < expiry; 1 <= attempts_max.
    """

    expiry: Duration = 60 * SECOND
    attempts_max: int = 5

    def __attrs_post_init__(self) -> None:
        check_int(self.expiry, "an expiry in microseconds", 1, INT64_MAX)
        check_int(self.attempts_max, "a number of attempts", 1, INT64_MAX)


@final
@attrs.frozen
class Claimed:
    """The run belongs to the caller once the record is written. The record decides what fires."""

    run: TriggerRun


@final
@attrs.frozen
class Busy:
    """Another pass holds the run, until this instant."""

    until: Instant


@final
@attrs.frozen
class Settled:
    """The run has fired or was given up; write nothing."""

    run: TriggerRun


@final
@attrs.frozen
class Exhausted:
    """No attempt is left: write the run as given up."""

    run: TriggerRun


RunClaim: TypeAlias = Claimed | Busy | Settled | Exhausted


def claim(firing: Firing, run: TriggerRun | None, claims: Claims, *, by: str, now: Instant) -> RunClaim:
    """Decide whether this pass may start a run.

    `Claimed` has the record to insert, or to write by compare-and-set on its version; unchanged if
    this pass already holds it. The record of a numbered run may hold other occurrences than the
    firing: then another plan was first, and the record counts.
    """
    check_type(firing, Firing, "a firing")
    check_type(claims, Claims, "how runs are claimed")
    check_name(by, "a pass")
    check_type(now, Instant, "an instant")
    mine = Held(by, now + claims.expiry)
    if run is None:
        return Claimed(TriggerRun(firing, mine))
    check_type(run, TriggerRun, "a run")
    if run.id != firing.id:
        raise Misuse("the record is of another run", why=f"{run.id} is not {firing.id}")
    match run.state:
        case Fired() | GivenUp():
            return Settled(run)
        case Held(holder, until) if until - now > 0:
            return Claimed(run) if holder == by else Busy(until)
        case Held() if run.attempt >= claims.attempts_max:
            return Exhausted(_changed(run, GivenUp(("its last claim expired",), now)))
        case Failed(reasons) if run.attempt >= claims.attempts_max:
            return Exhausted(_changed(run, GivenUp(reasons, now)))
        case Held() | Failed():
            return Claimed(attrs.evolve(_changed(run, mine), attempt=run.attempt + 1))
        case _:
            assert_never(run.state)


def set_aside(run: TriggerRun, reason: str, now: Instant) -> TriggerRun:
    """Return the record of a run that the store refused to insert, for example because it is too
    large.

    The run is given up, and its occurrences wait no more (FI10).
    """
    check_type(run, TriggerRun, "a run")
    bare = [attrs.evolve(each, context=without_contents(each.context)) for each in run.firing.occurrences]
    return TriggerRun(attrs.evolve(run.firing, occurrences=tuple(bare)), GivenUp((reason,), now))


# --- 5: what came of it ---------------------------------------------------------------------------


@final
@attrs.frozen
class Changed:
    """Write this record if it is still at the version before."""

    run: TriggerRun


@final
@attrs.frozen
class Ignored:
    """The run was already settled, or another attempt is under way; write nothing."""

    run: TriggerRun


def fired(run: TriggerRun, now: Instant) -> Changed | Ignored:
    """Return the run after its invocation was inserted, by this attempt or any other: all share its
    id.
    """
    check_type(run, TriggerRun, "a run")
    check_type(now, Instant, "an instant")
    return Ignored(run) if isinstance(run.state, Fired) else Changed(_changed(run, Fired(now)))


def failed(run: TriggerRun, attempt: int, reasons: tuple[str, ...], claims: Claims, now: Instant) -> Changed | Ignored:
    """Return the run after it had no arguments, or its invocation was definitely refused.

    If the insert of the invocation is unknown, leave the claim to expire: the next attempt inserts
    it again. `reasons` hold no secrets. `Ignored` if the attempt is over.
    """
    check_type(run, TriggerRun, "a run")
    check_int(attempt, "an attempt", 1, INT64_MAX)
    _check_reasons(reasons)
    check_type(claims, Claims, "how runs are claimed")
    check_type(now, Instant, "an instant")
    if not isinstance(run.state, Held) or attempt != run.attempt:
        return Ignored(run)
    last = attempt >= claims.attempts_max
    return Changed(_changed(run, GivenUp(reasons, now) if last else Failed(reasons)))


# --- what is forgotten ----------------------------------------------------------------------------


@final
@attrs.frozen
class Purge:
    """What may be deleted: the ids of events, and of runs."""

    events: tuple[str, ...]
    runs: tuple[str, ...]


HISTORY: Final = Retention(age=7 * 24 * 60 * 60 * SECOND, count=0)
"""pynenc's default: a week, and any number."""


def purge(
    events: Mapping[str, Instant],
    runs: Collection[TriggerRun],
    waiting: Collection[Occurrence],
    *,
    now: Instant,
    keep_events: Retention = HISTORY,
    keep_runs: Retention = HISTORY,
) -> Purge:
    """Return the events and runs that may be deleted (FI9).

    The ids are sorted, oldest first; runs that go with the last of their events come last.
    """
    check_type(events, Mapping, "a mapping of events")
    check_types(runs, TriggerRun, "a run")
    check_types(waiting, Occurrence, "an occurrence")
    still = {each.id for each in waiting}
    # By trigger, the run of the highest number: it comes last, and stays.
    last = {run.firing.trigger_id: run.id for run in sorted(runs, key=lambda run: run.firing.number)}
    protected = {
        run.id
        for run in runs
        if not run.state.settled
        or (run.firing.number and last[run.firing.trigger_id] == run.id)
        or not still.isdisjoint(each.id for each in run.firing.occurrences)
    }
    needed = {event for run in runs if run.id in protected for event in _events(run.firing.occurrences)}
    old_events = surplus(
        tuple(Row(event, at, at) for event, at in events.items()),
        keep_events,
        protected=needed.union(_events(waiting)),
        now=now,
    )
    old_runs = surplus(tuple(map(_row, runs)), keep_runs, protected=protected, now=now)
    left = events.keys() - set(old_events)
    spared = protected.union(old_runs)
    with_their_events = [
        run.id
        for run in runs
        if run.id not in spared and (mine := _events(run.firing.occurrences)) and mine.isdisjoint(left)
    ]
    return Purge(old_events, (*old_runs, *sorted(with_their_events)))


# --- helpers --------------------------------------------------------------------------------------


def _by_sight(occurrence: Occurrence) -> tuple[int, str]:
    return occurrence.seen.at, occurrence.id


def _changed(run: TriggerRun, state: RunState) -> TriggerRun:
    return attrs.evolve(run, state=state, version=run.version + 1)


def _events(occurrences: Iterable[Occurrence]) -> frozenset[str]:
    contexts = (each.context for each in occurrences)
    return frozenset(context.event_id for context in contexts if isinstance(context, EventContext))


def _row(run: TriggerRun) -> Row:
    start = run.firing.occurrences[0].seen
    end = run.state.at if isinstance(run.state, (Fired, GivenUp)) else None
    return Row(run.id, start, end if end is None or end - start >= 0 else start)


def _check_reasons(reasons: tuple[str, ...]) -> None:
    check_tuple(reasons, str, "a reason")
    if not reasons:
        raise Misuse("a failure without a reason")
