from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias, TypeVar, final, get_args

import attrs
import pytest
from hypothesis import Phase as Stage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tidegate.documents import ID, Eq
from tidegate.effects import Ambiguous, Cancel, Effect, Failure, NotApplied, NotDurable, Now, Refused
from tidegate.errors import Misuse
from tidegate.instants import SECOND
from tidegate.laws import partition as laws
from tidegate.operations import find_one
from tidegate.partition import (
    Assigned,
    AwaitDrain,
    Commit,
    CommitRefused,
    Committed,
    CommitUnanswered,
    Completed,
    DrainTimedOut,
    Event,
    Failed,
    Fetch,
    Fetched,
    Handle,
    Lost,
    Owned,
    Phase,
    Processor,
    Release,
    Revoked,
    RoomMade,
    State,
    Step,
    TopicPartition,
    Unassigned,
    Wish,
    heard,
)
from tidegate.specimens.partition import SPECIMENS
from tidegate.watermark import Ledger, completed, delivered, done_offsets, open_offsets

W = TypeVar("W", bound=Wish)

TP: Final = TopicPartition("t", 0)
Make: TypeAlias = Callable[[int, int, int], Processor]
"""running_max, span_max, drain -> a processor, or a faulty variant of one."""


# --- the laws, over any course of events ------------------------------------------------------------------------------


@final
@attrs.define
class Life:
    """What a dumb observer knows of one assignment, from the wishes and events alone; in sets."""

    generation: int
    floor: int
    seen: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    running: set[int] = attrs.field(factory=set)
    done: set[int] = attrs.field(factory=set)
    failed: set[int] = attrs.field(factory=set)
    is_revoked: bool = False

    @property
    def opened(self) -> set[int]:
        return self.seen - self.done

    @property
    def waiting(self) -> set[int]:
        return self.seen - self.begun

    @property
    def is_flowing(self) -> bool:
        return not self.failed and not self.is_revoked

    @property
    def ready(self) -> int | None:
        """What may be committed: one past the highest done one that has nothing open below it."""
        below = [offset for offset in self.done if all(offset < other for other in self.opened)]
        return max(below) + 1 if below else None

    @property
    def span(self) -> int:
        """How many stand from the lowest open one on."""
        return sum(offset >= min(self.opened) for offset in self.seen) if self.opened else 0

    def acknowledge(self, position: int) -> None:
        if self.ready is not None:
            self.floor = max(self.floor, min(position, self.ready))
            self.seen = {offset for offset in self.seen if offset >= self.floor}
            self.done &= self.seen


ALL: Final = ("P1", "P2", "P3", "P4", "P5", "P6")


class Partition(RuleBasedStateMachine):
    """One partition at one consumer: its wishes come true in any order, or are taken back, and the group does as it likes.

    Args:
        make: Makes the processor.
        judged: The laws that are judged; where it is all of them, every state is compared with the dumb observer's too.
    """

    def __init__(self, make: Make = Processor, judged: Collection[str] = ALL) -> None:
        super().__init__()
        self.make, self.judged = make, judged
        self.state: State = Unassigned()
        self.life: Life | None = None
        self.generation = 0
        self.wishes: list[Wish] = []
        self.ghosts: list[Wish] = []
        self.news: list[Event] = []
        self.owed = 0
        self.is_cut_short = self.is_broken = False
        self.committed = 0
        self.processed: set[int] = set()
        self.log: list[int] = [0]
        self.room = self.span_max = 1

    @initialize(
        gaps=st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=2, max_size=8),
        room=st.sampled_from([1, 1, 2, 3]),
        span_max=st.integers(1, 6),
    )
    def begin(self, gaps: list[int], room: int, span_max: int) -> None:
        self.log = list(accumulate(gaps))
        self.room, self.span_max = room, span_max

    def must(self, law: str, holds: object) -> None:
        self.is_broken |= not holds and law in self.judged
        assert not self.is_broken, law

    def agrees(self, holds: object) -> None:
        self.is_broken |= not holds and self.judged is ALL
        assert not self.is_broken, self.state

    # --- what happens, and what is wished for then

    def happens(self, event: Event) -> tuple[Wish, ...]:
        self.news.append(event)
        done = self.make(self.room, self.span_max, 0).step(self.state, event)
        self.state = done.state
        return done.wishes

    def ignores(self, event: Event) -> bool:
        before = self.state
        return (self.happens(event), self.state) == ((), before)

    def takes(self, wishes: Iterable[Wish]) -> None:
        for wish in wishes:
            match wish:
                case Cancel():
                    self.cancelled(wish.effect)
                case Release():
                    self.released()
                case _:
                    self.wished(wish)
                    self.wishes.append(wish)
        if isinstance(self.state, Unassigned):
            self.ends()

    def told(self, wish: Wish, reply: object) -> None:
        event = heard(wish, reply)
        assert event is not None
        self.takes(self.happens(event))

    def wished(self, wish: Wish) -> None:
        life = self.life
        self.must("P5", life is not None)
        if life is None:
            return
        match wish:
            case Handle(_, generation, offset):
                self.must("P4", not life.failed)
                self.must("P5", not life.is_revoked)
                self.must("P6", laws.handlers_are_bounded([*self.wishes, wish], self.room))
                self.agrees(generation == life.generation and offset == min(life.waiting))
                life.begun.add(offset)
                life.running.add(offset)
            case Fetch(_, generation, position):
                self.must("P4", not life.failed)
                self.must("P5", not life.is_revoked)
                self.must("P6", life.span < self.span_max)
                self.agrees(not any(isinstance(other, Fetch) for other in self.wishes))
                self.agrees(generation == life.generation)
                self.agrees(position == max([life.floor, *(offset + 1 for offset in life.seen)]))
            case Commit(_, generation, position):
                self.must("P1", all(position <= offset for offset in life.opened))
                self.must("P2", laws.one_commit_in_flight([*self.wishes, wish], life.generation))
                self.must("P4", all(position <= offset for offset in life.failed))
                self.agrees(generation == life.generation and position == life.ready)
            case _:
                self.agrees(wish == AwaitDrain(TP, life.generation, 0) and life.is_revoked)

    def cancelled(self, effect: object) -> None:
        """Only what is wished for can be taken back."""
        found = [wish for wish in self.wishes if wish == effect]
        self.agrees(found)
        for wish in found:
            self.wishes.remove(wish)
            self.ghosts.append(wish)

    def released(self) -> None:
        """Nothing runs and what may be committed is, or somebody else has ended it."""
        self.owed -= 1
        self.must("P5", self.owed == 0)
        if self.life is not None and not self.is_cut_short:
            self.must("P5", not self.life.running and self.life.ready is None)

    def ends(self) -> None:
        """All that is still wished for comes true in another life, if at all."""
        self.ghosts += self.wishes
        self.wishes, self.life = [], None

    # --- the group

    @precondition(lambda self: self.life is None)
    @rule(later=st.integers(1, 2), is_revoked=st.booleans())
    def assigned(self, later: int, *, is_revoked: bool = False) -> None:
        """It may be revoked although it was given up before."""
        if is_revoked:
            self.revoked()
        self.generation += later
        wishes = self.happens(Assigned(TP, self.generation, self.committed))
        new = [number for number, wish in enumerate(wishes) if not isinstance(wish, (Cancel, Release))]
        self.cut_short(lambda: self.takes(wishes[: new[0]]))
        self.life = Life(self.generation, self.committed)
        self.takes(wishes[new[0] :])

    @precondition(lambda self: self.life is not None)
    @rule(what=st.sampled_from(["stays", "stays", "stays", "revokes", "revokes", "loses", "forgets"]))
    def rebalanced(self, what: str) -> None:
        """The partition stays, is revoked, is taken without a word, or is assigned anew without having been revoked."""
        match what:
            case "revokes" if self.owed == 0:
                self.revoked()
            case "loses":
                self.cut_short(lambda: self.takes(self.happens(Lost(TP))))
            case "forgets":
                self.assigned(1)
            case _:
                self.takes(self.happens(RoomMade(TP)))

    def revoked(self) -> None:
        self.owed += 1
        if self.life is not None:
            self.life.is_revoked = True
        self.takes(self.happens(Revoked(TP)))

    def cut_short(self, act: Callable[[], None]) -> None:
        """The life ends here, whatever runs; what runs is taken back, and who waits for a release gets it."""
        self.is_cut_short = True
        act()
        self.is_cut_short = False
        self.must("P5", self.owed == 0)
        self.agrees(not any(isinstance(wish, (Handle, Fetch, AwaitDrain)) for wish in self.wishes))
        self.ends()

    # --- wishes come true

    def drawn(self, data: st.DataObject, kind: type[W]) -> W:
        """One of the wishes, which is none any more."""
        wish = data.draw(st.sampled_from([wish for wish in self.wishes if isinstance(wish, kind)]), "wish")
        self.wishes.remove(wish)
        return wish

    def wishes_for(self, kind: type[Wish]) -> bool:
        return any(isinstance(wish, kind) for wish in self.wishes)

    @precondition(lambda self: self.wishes_for(Fetch))
    @rule(data=st.data())
    def records_come(self, data: st.DataObject) -> None:
        wish = self.drawn(data, Fetch)
        ahead = [offset for offset in self.log if offset >= wish.position]
        behind = [offset for offset in self.log if offset < wish.position]
        self.fetched(wish, data.draw(self.orders(ahead, behind), "offsets"))

    @precondition(lambda self: self.wishes_for(Handle))
    @rule(data=st.data())
    def work_ends(self, data: st.DataObject) -> None:
        self.handled(self.drawn(data, Handle), fails=False)

    @precondition(lambda self: self.wishes_for(Handle))
    @rule(data=st.data())
    def work_ends_one_way_or_the_other(self, data: st.DataObject) -> None:
        self.handled(self.drawn(data, Handle), fails=data.draw(st.booleans(), "fails"))

    @precondition(lambda self: self.wishes_for(Commit))
    @rule(data=st.data())
    def a_commit_is_answered(self, data: st.DataObject) -> None:
        unsure = [Ambiguous("no reply"), NotApplied("not sent"), NotDurable("no majority yet")]
        reply = data.draw(st.sampled_from([None, None, None, *unsure, Refused("illegal generation")]), "reply")
        self.answered(self.drawn(data, Commit), reply, is_done=data.draw(st.booleans(), "is done"))

    @precondition(lambda self: self.wishes_for(AwaitDrain))
    @rule(data=st.data())
    def time_is_up(self, data: st.DataObject) -> None:
        self.cut_short(lambda: self.told(self.drawn(data, AwaitDrain), None))

    @st.composite
    @staticmethod
    def orders(draw: st.DrawFn, ahead: list[int], behind: list[int]) -> tuple[int, ...]:
        """The next records in any order, some twice, and some that came before."""
        new = ahead[: draw(st.integers(min(1, len(ahead)), len(ahead)))]
        again = draw(st.lists(st.sampled_from([*new, *behind]), max_size=2)) if new or behind else []
        return tuple(draw(st.permutations([*new, *again])))

    def fetched(self, wish: Fetch, offsets: tuple[int, ...]) -> None:
        assert self.life is not None
        self.life.seen |= {offset for offset in offsets if offset >= self.life.floor}
        self.told(wish, offsets)

    def handled(self, wish: Handle, *, fails: bool) -> None:
        assert self.life is not None
        self.life.running.discard(wish.offset)
        if fails:
            self.life.failed.add(wish.offset)
        else:
            self.life.done.add(wish.offset)
            self.processed.add(wish.offset)
        self.told(wish, Refused("user code raised") if fails else None)

    def answered(self, wish: Commit, reply: Failure | None, *, is_done: bool) -> None:
        """Whether it is done is open where the reply is ambiguous."""
        assert self.life is not None
        if reply is None or isinstance(reply, NotDurable) or (isinstance(reply, Ambiguous) and is_done):
            self.must("P1", laws.committed_never_falls(self.committed, wish.position))
            self.committed = wish.position
        if reply is None:
            self.life.acknowledge(wish.position)
        if isinstance(reply, Refused):
            self.cut_short(lambda: self.told(wish, reply))
        else:
            self.told(wish, reply)

    # --- what comes too late

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data(), reply=st.sampled_from([None, Ambiguous("no reply"), Refused("no")]))
    def a_ghost_is_heard(self, data: st.DataObject, reply: Failure | None) -> None:
        """What was taken back, or wished for in another life, comes true all the same; so is a commit refused by then."""
        ghost = data.draw(st.sampled_from(self.ghosts), "ghost")
        self.ghosts.remove(ghost)
        event = heard(ghost, tuple(self.log) if isinstance(ghost, Fetch) and reply is None else reply)
        assert event is not None
        self.must("P3", self.ignores(event))

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def old_news(self, data: st.DataObject) -> None:
        """What was heard in another life is heard again."""
        now = self.generation + 1 if self.life is None else self.life.generation
        named = [event for event in self.news if not isinstance(event, (Revoked, Lost, RoomMade))]
        old = [event for event in named if event.generation < now]
        if self.life is None:
            old = [event for event in old if not isinstance(event, Assigned)]
        if old:
            self.must("P3", self.ignores(data.draw(st.sampled_from(old), "event")))

    @precondition(lambda self: self.life is not None)
    @rule(more=st.integers(0, 2))
    def room_is_made(self, more: int) -> None:
        """Elsewhere handlers end or begin, so another number of them may run here now."""
        assert self.life is not None
        self.room = len(self.life.running) + more
        self.takes(self.happens(RoomMade(TP)))

    # --- what is always true

    @invariant()
    def what_may_be_done_is_wished_for(self) -> None:
        """Nothing waits without a reason, for nothing would wake it."""
        life, kinds = self.life, [type(wish) for wish in self.wishes]
        if life is None:
            return
        self.must("P5", laws.only_the_owner_handles(self.wishes, life.generation))
        self.agrees(Commit in kinds or life.ready is None)
        if life.is_revoked:
            self.must("P5", life.running or Commit in kinds)
        elif not life.failed:
            self.agrees(len(life.running) >= self.room or not life.waiting)
            self.agrees(Fetch in kinds or life.span >= self.span_max)

    @invariant()
    def the_state_is_what_was_seen(self) -> None:
        """Agreement with the dumb observer."""
        life = self.life
        if life is None:
            self.agrees(self.state == Unassigned())
            return
        phase = Phase.DRAINING if life.is_revoked else Phase.STOPPED if life.failed else Phase.FLOWING
        waiting = sorted(life.waiting) if phase is Phase.FLOWING else []
        expected = (life.generation, phase, life.floor, life.opened, life.done, life.running, waiting)
        self.agrees(isinstance(self.state, Owned) and told_of(self.state) == expected)

    @invariant()
    def what_is_committed_is_processed(self) -> None:
        """Law P1, as the broker sees it."""
        self.must("P1", laws.committed_is_finished(self.committed, self.log, self.processed))

    def teardown(self) -> None:
        """In the end everything comes true, nothing fails, and the reply to nothing is lost."""
        if self.is_broken:
            return
        for _ in range(100):
            live = [wish for wish in self.wishes if not isinstance(wish, AwaitDrain)]
            wish = next((wish for wish in live if not isinstance(wish, Fetch) or wish.position <= self.log[-1]), None)
            if wish is None:
                break
            self.wishes.remove(wish)
            match wish:
                case Fetch(_, _, position):
                    self.fetched(wish, tuple(offset for offset in self.log if offset >= position))
                case Handle():
                    self.handled(wish, fails=False)
                case Commit():
                    self.answered(wish, None, is_done=True)
                case _:
                    raise AssertionError(wish)
        self.must("P5", self.owed == 0)
        if self.life is not None and not self.life.failed and self.room:
            gaps = set(range(self.log[-1] + 1)) - set(self.log)
            self.agrees(laws.all_is_processed(self.committed, self.processed | gaps, self.log[-1] + 1))


def told_of(part: Owned) -> tuple[object, ...]:
    """What the state says, in sets."""
    opened, done = set(open_offsets(part.ledger)), set(done_offsets(part.ledger))
    return part.generation, part.phase, part.ledger.floor, opened, done, set(part.running), sorted(part.queued)


def check_laws(make: Make, judged: Collection[str], runs: int, phases: Collection[Stage] = tuple(Stage)) -> None:
    run_state_machine_as_test(
        partial(Partition, make, judged),  # type: ignore[arg-type]  # a factory will do: it is called
        settings=settings(max_examples=runs, stateful_step_count=50, phases=phases),
    )


def test_whatever_comes_in_whatever_order_the_laws_hold() -> None:
    """Laws P1, P2, P3, P4, P5 and P6, and agreement with a dumb observer that knows wishes and events alone."""
    check_laws(Processor, ALL, 200)


# --- planted bugs -----------------------------------------------------------------------------------------------------


@attrs.frozen
class CommitsOverAFailure(Processor):
    """Planted bug: a record whose handler failed counts as done."""

    def owned(self, part: Owned, event: Event) -> Step:
        return super().owned(
            part, Completed(TP, event.generation, event.offset) if isinstance(event, Failed) else event
        )


@attrs.frozen
class GoesOnAfterAFailure(Processor):
    """Planted bug: what was queued is started although a handler failed."""

    def owned(self, part: Owned, event: Event) -> Step:
        step = super().owned(part, event)
        if isinstance(event, Failed) and part.queued and isinstance(step.state, Owned):
            return attrs.evolve(step, wishes=(*step.wishes, Handle(TP, part.generation, part.queued[0])))
        return step


@attrs.frozen
class StartsWhileDraining(Processor):
    """Planted bug: a revocation waits for what is queued as well."""

    def revoked(self, part: Owned) -> Step:
        step = super().revoked(part)
        return attrs.evolve(step, wishes=(*step.wishes, *(Handle(TP, part.generation, each) for each in part.queued)))


@attrs.frozen
class LosesWithoutARelease(Processor):
    """Planted bug: who waits for the release of a partition that is lost meanwhile waits for ever."""

    def step(self, state: State, event: Event) -> Step:
        step = super().step(state, event)
        kept = tuple(wish for wish in step.wishes if not (isinstance(event, Lost) and isinstance(wish, Release)))
        return attrs.evolve(step, wishes=kept)


@attrs.frozen
class ReleasesTwice(Processor):
    """Planted bug: it is released when it is revoked, and again when it is drained."""

    def revoked(self, part: Owned) -> Step:
        step = super().revoked(part)
        return attrs.evolve(step, wishes=(*step.wishes, Release(TP)))


@attrs.frozen
class RunsOneMore(Processor):
    """Planted bug: one handler more than may."""

    def settled(self, part: Owned) -> Step:
        return Processor(self.running_max + 1, self.span_max, self.drain).settled(part)


@attrs.frozen
class FetchesOn(Processor):
    """Planted bug: one record more than may is fetched beyond a stuck head."""

    def settled(self, part: Owned) -> Step:
        return Processor(self.running_max, self.span_max + 1, self.drain).settled(part)


SHIPPED: Final = {
    "partition.commits_the_highest": "P1",
    "partition.counts_late_results": "P3",
    "partition.two_commits_in_flight": "P2",
    "partition.revokes_without_drain": "P5",
}


@pytest.mark.parametrize(
    ("bug", "law"),
    [
        *((SPECIMENS[name][0], law) for name, law in SHIPPED.items()),
        (SPECIMENS["partition.two_commits_in_flight"][0], "P1"),
        (CommitsOverAFailure, "P1"),
        (CommitsOverAFailure, "P4"),
        (GoesOnAfterAFailure, "P4"),
        (StartsWhileDraining, "P5"),
        (LosesWithoutARelease, "P5"),
        (ReleasesTwice, "P5"),
        (RunsOneMore, "P6"),
        (FetchesOn, "P6"),
    ],
)
def test_a_planted_bug_breaks_the_law(bug: type[Processor], law: str) -> None:
    """Each law has a specimen that breaks it."""
    with pytest.raises(AssertionError, match=law):
        check_laws(bug, [law], 2_000, [Stage.generate])


def test_every_shipped_bug_is_caught_without_the_simulator() -> None:
    """All four specimens of the partition break a law of the machine above."""
    assert SHIPPED.keys() == SPECIMENS.keys()


# --- every state x every event ----------------------------------------------------------------------------------------

FEW: Final = Processor(running_max=2, span_max=3, drain=1)
OFFSETS: Final = ((), (0,), (1, 0), (0, 0, 2), (1,), (2, 1))


def events(generation: int) -> list[Event]:
    """One of each kind, and more, of records 0 to 2."""
    named: list[Event] = [DrainTimedOut(TP, generation)]
    named += [Assigned(TP, generation, committed) for committed in range(2)]
    named += [Fetched(TP, generation, offsets) for offsets in OFFSETS]
    named += [kind(TP, generation, offset) for kind in (Completed, Failed) for offset in range(3)]
    kinds = (Committed, CommitRefused, CommitUnanswered)
    return named + [kind(TP, generation, position) for kind in kinds for position in range(1, 4)]


UNNAMED: Final[list[Event]] = [Revoked(TP), Lost(TP), RoomMade(TP)]


def reachable() -> dict[State, dict[Event, Step]]:
    """Every state that any course of the events leads to, and what becomes of it with each event."""
    found: dict[State, dict[Event, Step]] = {}
    left: deque[State] = deque([Unassigned()])
    while left:
        state = left.popleft()
        if state not in found:
            found[state] = {event: FEW.step(state, event) for event in (*UNNAMED, *events(1), *events(2))}
            left += [step.state for step in found[state].values()]
    return found


REACHABLE: Final = reachable()


def test_every_state_has_an_answer_to_every_event() -> None:
    """Totality: an event of any kind, of a former generation, this one and the next, in every state, phase by phase."""
    phases = {state.phase for state in REACHABLE if isinstance(state, Owned)}
    kinds = {type(event) for answers in REACHABLE.values() for event in answers}

    assert phases == set(Phase)
    assert kinds == set(get_args(Event))
    assert all(isinstance(step, Step) for answers in REACHABLE.values() for step in answers.values())


def test_an_older_generation_changes_nothing() -> None:
    """Law P3, in every state: not the state, and nothing is wished for."""
    for state, answers in REACHABLE.items():
        if isinstance(state, Owned) and state.generation == 2:
            assert {event: answers[event] for event in events(1)} == dict.fromkeys(events(1), Step(state))


def test_an_assignment_is_heard_once() -> None:
    """Law P3. Of the generation that the partition is in, it is old news."""
    for state, answers in REACHABLE.items():
        if isinstance(state, Owned):
            assert all(answers[Assigned(TP, state.generation, committed)] == Step(state) for committed in range(2))


def test_only_the_answer_to_the_commit_in_flight_frees_the_way_for_the_next() -> None:
    """Law P2, in every state: news of another position leaves the one in flight in flight."""
    for state, answers in REACHABLE.items():
        for event, step in answers.items():
            if isinstance(state, Owned) and state.committing and isinstance(step.state, Owned):
                is_answer = event in {
                    kind(TP, state.generation, state.committing) for kind in (Committed, CommitUnanswered)
                }
                is_new = step.state.generation > state.generation
                assert is_answer or is_new or step.state.committing == state.committing, (state, event)


def test_what_is_not_owned_is_not_worked_on() -> None:
    """Law P5: unassigned, a revocation is released at once, and whatever else comes is ignored."""
    for event, step in REACHABLE[Unassigned()].items():
        if isinstance(event, Revoked):
            assert step == Step(Unassigned(), (Release(TP),))
        elif not isinstance(event, Assigned):
            assert step == Step(Unassigned())


def test_nothing_is_left_to_do_after_a_step() -> None:
    """Whatever may be done was wished for by the step before: as much room as before makes no difference."""
    assert all(answers[RoomMade(TP)] == Step(state) for state, answers in REACHABLE.items())


def test_no_commit_is_wished_for_beyond_what_is_open() -> None:
    """Law P1, in every step, also where a lower record comes late: it is held back from then on."""
    for answers in REACHABLE.values():
        for step in answers.values():
            opened = open_offsets(step.state.ledger) if isinstance(step.state, Owned) else ()
            wished = [wish.position for wish in step.wishes if isinstance(wish, Commit)]
            assert all(position <= offset for position in wished for offset in opened)


def test_every_state_keeps_its_bounds() -> None:
    """Laws P4, P5 and P6, in every state: what runs is in bounds, and what does not flow fetches and queues nothing."""
    for state in REACHABLE:
        if isinstance(state, Owned):
            assert len(state.running) <= FEW.running_max
            assert state.phase is Phase.FLOWING or (state.fetching, state.queued) == (None, ())


def test_a_release_is_wished_for_exactly_where_a_revocation_ends() -> None:
    """Law P5, in every state and step: leaving the drain, or when it is not owned; never otherwise, never twice."""
    for state, answers in REACHABLE.items():
        for event, step in answers.items():
            was_draining = isinstance(state, Owned) and state.phase is Phase.DRAINING
            is_draining = isinstance(step.state, Owned) and step.state.phase is Phase.DRAINING
            asked = isinstance(event, Revoked) and not was_draining
            released = sum(isinstance(wish, Release) for wish in step.wishes)
            assert was_draining + asked == is_draining + released, (state, event)


def test_a_revocation_that_is_asked_for_twice_is_released_once() -> None:
    """Law P5. While it drains, the second one is heard of already."""
    running = Owned(TP, 1, Phase.FLOWING, Ledger(), running=(0,))
    draining = FEW.step(running, Revoked(TP)).state

    assert FEW.step(draining, Revoked(TP)) == Step(draining)


# --- step by step -----------------------------------------------------------------------------------------------------


def course(processor: Processor, *happened: Event) -> list[tuple[str, ...]]:
    """What was wished for after each event, in words."""
    state: State = Unassigned()
    told: list[tuple[str, ...]] = []
    for event in happened:
        step = processor.step(state, event)
        state = step.state
        told.append(tuple(map(str, step.wishes)))
    return told


def test_a_life_from_assignment_to_release() -> None:
    """The header's story: fetched, handled out of order, committed in order, revoked, drained, released."""
    processor = Processor(running_max=2, span_max=10, drain=30 * SECOND)
    told = course(
        processor,
        Assigned(TP, 7, 10),
        Fetched(TP, 7, (10, 12, 13)),
        Completed(TP, 7, 12),
        Completed(TP, 7, 10),
        Revoked(TP),
        Committed(TP, 7, 13),
        Completed(TP, 7, 13),
        CommitUnanswered(TP, 7, 14),
        Committed(TP, 7, 14),
    )

    assert told == [
        ("fetch t-0 from 10 (generation 7)",),
        (
            "handle t-0 @10 (generation 7)",
            "handle t-0 @12 (generation 7)",
            "fetch t-0 from 14 (generation 7)",
        ),
        ("handle t-0 @13 (generation 7)",),
        ("commit t-0 @13 (generation 7)",),
        ("wait 30 s for t-0 to drain (generation 7)", "no longer fetch t-0 from 14 (generation 7)"),
        (),
        ("commit t-0 @14 (generation 7)",),
        ("commit t-0 @14 (generation 7)",),
        ("no longer wait 30 s for t-0 to drain (generation 7)", "release t-0"),
    ]


def test_what_is_before_a_failure_is_finished_and_committed() -> None:
    """Law P4: records 0 and 2 run when 1 fails; 1 is committed, 2 is finished and not committed, 3 never starts."""
    processor = Processor(running_max=3)
    told = course(
        processor,
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2, 3)),
        Failed(TP, 1, 1),
        Completed(TP, 1, 2),
        Completed(TP, 1, 0),
        Committed(TP, 1, 1),
    )

    assert told[2:] == [("no longer fetch t-0 from 4 (generation 1)",), (), ("commit t-0 @1 (generation 1)",), ()]


def test_what_was_wished_for_in_vain_is_taken_back() -> None:
    """Law P5: a partition that is lost takes back what runs and what is fetched; a commit is past taking back."""
    told = course(Processor(2, 9), Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), Completed(TP, 1, 0), Lost(TP))

    assert told[-2:] == [
        ("commit t-0 @1 (generation 1)",),
        ("no longer handle t-0 @1 (generation 1)", "no longer fetch t-0 from 2 (generation 1)"),
    ]


def test_a_time_to_drain_that_is_over_releases_whatever_runs() -> None:
    """Law P5: the timer came true, so it is not taken back."""
    told = course(Processor(2, 9, 0), Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), Revoked(TP), DrainTimedOut(TP, 1))

    assert told[-1] == ("no longer handle t-0 @0 (generation 1)", "release t-0")


# --- what becomes of a wish -------------------------------------------------------------------------------------------

FAILURES: Final = (Refused("no"), NotApplied("no"), Ambiguous("no"), NotDurable("no"))


@pytest.mark.parametrize(
    ("wish", "reply", "event"),
    [
        (Fetch(TP, 3, 5), (5, 7), Fetched(TP, 3, (5, 7))),
        (Fetch(TP, 3, 5), (), Fetched(TP, 3, ())),
        *((Fetch(TP, 3, 5), failure, Fetched(TP, 3, ())) for failure in FAILURES),
        (Handle(TP, 3, 5), None, Completed(TP, 3, 5)),
        (Handle(TP, 3, 5), "a value", Completed(TP, 3, 5)),
        *((Handle(TP, 3, 5), failure, Failed(TP, 3, 5)) for failure in (*FAILURES, ValueError("user code"))),
        (Commit(TP, 3, 5), None, Committed(TP, 3, 5)),
        (Commit(TP, 3, 5), Refused("no"), CommitRefused(TP, 3, 5)),
        *((Commit(TP, 3, 5), failure, CommitUnanswered(TP, 3, 5)) for failure in FAILURES[1:]),
        *((AwaitDrain(TP, 3, 5), reply, DrainTimedOut(TP, 3)) for reply in (None, *FAILURES)),
        *((Release(TP), reply, None) for reply in (None, *FAILURES)),
        *((Cancel(Handle(TP, 3, 5)), reply, None) for reply in (None, *FAILURES)),
    ],
)
def test_every_reply_to_every_wish_is_heard_as_one_event(wish: Wish, reply: object, event: Event | None) -> None:
    """The only channel from wishes back to the reducer: each kind of wish with each kind of reply."""
    assert heard(wish, reply) == event


def test_a_commit_is_answered_by_nothing_or_a_failure() -> None:
    """Whatever else the handler of a commit answers is its bug, and not taken for a success."""
    with pytest.raises(Misuse, match="was answered 5"):
        heard(Commit(TP, 3, 5), 5)


@pytest.mark.parametrize("effect", [Now(), find_one("c", Eq(ID, "x"))])
def test_what_a_partition_does_not_wish_for_is_not_heard(effect: Effect[object]) -> None:
    """Only wishes have events."""
    with pytest.raises(Misuse, match="no wish of a partition"):
        heard(effect, None)


# --- misuse, printing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [{"running_max": -1}, {"span_max": 0}, {"drain": -1}]
    + [{name: bad} for name in ("running_max", "span_max", "drain") for bad in (True, 1.0, "1", None)],
)
def test_a_processor_has_bounds_that_are_whole_numbers(bad: dict[str, int]) -> None:
    """Checked at construction: no handler at all may run, at least one record may stand, and a drain takes no time or more."""
    with pytest.raises(Misuse):
        Processor(**bad)

    assert Processor(running_max=0, span_max=1, drain=0).running_max == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Revoked(TP), "revoked t-0"),
        (Lost(TP), "lost t-0"),
        (Assigned(TP, 3, 5), "assigned t-0 from 5 (generation 3)"),
        (Fetched(TP, 3, (5, 7)), "fetched t-0 [5, 7] (generation 3)"),
        (Completed(TP, 3, 5), "completed t-0 @5 (generation 3)"),
        (Failed(TP, 3, 5), "failed t-0 @5 (generation 3)"),
        (Committed(TP, 3, 5), "committed t-0 @5 (generation 3)"),
        (CommitRefused(TP, 3, 5), "refused to commit t-0 @5 (generation 3)"),
        (CommitUnanswered(TP, 3, 5), "no answer to the commit of t-0 @5 (generation 3)"),
        (DrainTimedOut(TP, 3), "time to drain t-0 is over (generation 3)"),
        (RoomMade(TP), "room for another handler of t-0"),
        (Unassigned(), "unassigned"),
        (Owned(TP, 3, Phase.FLOWING, Ledger(5)), "flowing (generation 3), floor 5"),
        (
            Owned(TP, 3, Phase.DRAINING, completed(delivered(Ledger(5), (5, 7, 8)), (5,)), (8,), (7,), None, 6),
            "draining (generation 3), floor 5, queued [8], running [7], done [5], committing 6",
        ),
    ],
)
def test_everything_has_a_form_of_one_line(value: object, text: str) -> None:
    """What a person can paste into an issue."""
    assert str(value) == text
