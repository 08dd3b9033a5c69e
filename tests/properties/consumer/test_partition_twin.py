"""Agreement with the twin, the partition as it was before its stages.

The twin has only windows, so a handled record is a window's only task. It receives the events of a
batch one by one, and its executors are assigned after the last. Batches come only while a commit is
in flight; otherwise the twin would commit in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.consumer.partition_helpers import TP
from tests.properties.consumer.twin import commands as old
from tests.properties.consumer.twin import partition as twin

from tidegate.consumer import fanout
from tidegate.consumer.checks.strategies import partition as drawn
from tidegate.consumer.flow.drain import InFlight
from tidegate.consumer.partition.partition import Ordering, Owned, PartitionRules, PartitionState, Unassigned
from tidegate.consumer.protocol import commands as new
from tidegate.consumer.protocol.commands import Handle, RecordsHandled
from tidegate.model.effects import Cancel

MOVE_BYTES: Final = 6
ROOM: Final = 3
KEYS: Final = (b"k", b"l", None)
Deed = tuple[Hashable, ...]


def twin_rules(rules: PartitionRules, room: int) -> twin.PartitionRules:
    names = {field.name for field in attrs.fields(twin.PartitionRules)} - {"parts"}
    given_to = {name: getattr(rules, name) for name in names}
    given_to |= {
        "ordering": twin.Ordering[rules.ordering.name],
        "failure_policy": twin.FailurePolicy[rules.failure_policy.name],
        "window_max": 1 if rules.is_plain else rules.window_max,
        "running_max": room,
    }
    return twin.PartitionRules(**given_to)


@attrs.define
class Both:
    rules: PartitionRules
    log: tuple[tuple[int, bytes | None], ...]
    room: int = ROOM
    state: PartitionState = attrs.field(factory=Unassigned)
    twin: twin.PartitionState = attrs.field(factory=twin.Unassigned)
    generation: int = 0
    committed: int = 0
    text: str = ""
    asked: list[Deed] = attrs.field(factory=list)
    window_of: dict[int, int] = attrs.field(factory=dict)

    # --- events

    def happens(self, event: new.Event, olds: Sequence[old.Event]) -> None:
        done = attrs.evolve(self.rules, running_max=self.room).step(self.state, event)
        rules = twin_rules(self.rules, self.room)
        commanded: list[old.Command] = []
        for each in olds if len(olds) > 1 else ():
            part = rules._stepped(self.twin, each, 0)  # noqa: SLF001  as its consumer does
            self.twin = part.state
            commanded += part.commands
        last = rules.step(self.twin, old.SlotFreed(TP) if len(olds) > 1 else olds[0])
        commanded += last.commands
        self.state, self.twin = done.state, last.state
        for command in commanded:
            self.note_window(command)
        ours = [deed for command in done.commands for deed in self.deeds(command)]
        theirs = [deed for command in commanded for deed in self.old_deeds(command)]
        assert Counter(ours) == Counter(theirs), (event, ours, theirs)
        for deed in ours:
            if deed[0] == "cancel":
                self.asked.remove(deed[1])  # type: ignore[arg-type]
            elif deed[0] not in ("interrupt", "release"):
                self.asked.append(deed)
        self.compare()

    def compare(self) -> None:
        ours, theirs = self.state, self.twin
        assert isinstance(ours, Owned) == isinstance(theirs, twin.Owned)
        if not isinstance(ours, Owned) or not isinstance(theirs, twin.Owned):
            self.asked = [deed for deed in self.asked if deed[0] == "commit"]
            return
        assert ours.phase.value == theirs.phase.value
        assert (ours.tracker, ours.failed) == (theirs.tracker, theirs.failed)
        assert (ours.queued, ours.running, ours.load) == (tuple(sorted(theirs.queued)), theirs.running, theirs.load)
        assert ours.records == ours.load.records
        assert (ours.fetching, ours.committing, ours.hold) == (theirs.fetching, theirs.committing, theirs.hold)
        assert ours.commits.alphabet is theirs.alphabet
        assert ours.commits.alphabet is None or ours.commits.unrecorded == theirs.unrecorded
        assert ours.order.closed == theirs.closed

    def note_window(self, command: old.Command) -> None:
        if self.rules.is_plain and isinstance(command, old.Work):
            self.window_of |= dict.fromkeys(command.offsets, command.request.window)

    # --- one vocabulary for the requests of both, record by record

    def deeds(self, command: new.Command) -> Iterable[Deed]:
        match command:
            case Cancel(effect):
                yield from (("cancel", deed) for deed in self.deeds(effect))  # type: ignore[arg-type]
            case new.Interrupt(work):
                yield from (("interrupt", deed) for deed in self.deeds(work))
            case new.Work(_, _, Handle(offsets, attempt)):
                yield from (("handle", offset, attempt) for offset in offsets)
            case new.Work(_, _, fanout.DeliverRecords(_, offsets)) if self.rules.is_plain:
                yield from (("answer", offset) for offset in offsets)
            case new.Work(_, _, request):
                yield "work", request
            case new.StartRetryTimer(_, _, Handle((offset,), attempt), duration):
                yield "retry", offset, attempt, duration
            case new.WorkUnanswered() | new.CommitsUnanswered():
                pass
            case _:
                yield self.other(command)

    def old_deeds(self, command: old.Command) -> Iterable[Deed]:
        match command:
            case Cancel(effect):
                yield from (("cancel", deed) for deed in self.old_deeds(effect))  # type: ignore[arg-type]
            case old.Interrupt(work):
                yield from (("interrupt", deed) for deed in self.old_deeds(work))
            case old.Work(_, _, fanout.Start(_, _, attempt), (offset,)) if self.rules.is_plain:
                yield "handle", offset, attempt
            case old.Work(_, _, fanout.DeliverRecords(_, offsets)) if self.rules.is_plain:
                yield from (("answer", offset) for offset in offsets)
            case old.Work(_, _, request):
                yield "work", request
            case old.StartRetryTimer(_, _, fanout.Start(window, _, attempt), duration) if self.rules.is_plain:
                yield "retry", next(at for at, of in self.window_of.items() if of == window), attempt, duration
            case _:
                yield self.other(command)

    def other(self, command: new.Command | old.Command) -> Deed:
        match command:
            case new.Fetch(_, generation, position) | old.Fetch(_, generation, position):
                return "fetch", generation, position
            case new.Commit(_, generation, position, text) | old.Commit(_, generation, position, text):
                return "commit", generation, position, text
            case new.StartDrainTimer(_, _, stage, duration) | old.StartDrainTimer(_, _, stage, duration):
                return "drain", stage, duration
            case new.StartRetryTimer(_, _, start, duration) | old.StartRetryTimer(_, _, start, duration):
                return "retry", start, duration
            case _:
                return ("release",)

    # --- moves

    def moves(self, move: bytes) -> None:
        kind, pick, how, *rest = move
        if kind % 8 == 0:
            self.room = how % 5
            self.happens(new.SlotFreed(TP), [old.SlotFreed(TP)])
        elif isinstance(self.state, Unassigned) or (kind % 8 == 1 and pick % 4 == 0):
            self.assigned()
        elif kind % 8 == 1:
            self.group(pick, how)
        elif self.asked:
            self.answers(self.asked[pick % len(self.asked)], how, rest)

    def assigned(self) -> None:
        if isinstance(self.state, Owned):
            self.happens(new.Lost(TP), [old.Lost(TP)])
        self.generation += 1
        self.asked, self.window_of = [], {}
        event = (TP, self.generation, self.committed, self.text, self.log[-1][0] + 1)
        self.happens(new.Assigned(*event), [old.Assigned(*event)])

    def group(self, pick: int, how: int) -> None:
        if pick % 4 == 1:
            self.happens(new.Lost(TP), [old.Lost(TP)])
            return
        in_work = [deed[1] for deed in self.asked if deed[0] in ("handle", "answer")]
        known = tuple(
            InFlight(offset, how % 3, (None, 1, 9, 99)[how // 4 % 4], how % 2 == 0)
            for offset in in_work[: how % 5]
            if isinstance(offset, int)
        )
        self.happens(new.Revoked(TP, known), [old.Revoked(TP, known)])

    def answers(self, deed: Deed, how: int, rest: Sequence[int]) -> None:
        match deed:
            case ("handle", int(offset), int(attempt)):
                self.handled(offset, attempt, how)
                return
            case ("fetch", _, int(position)):
                self.fetched(position, how)
                return
            case _:
                self.asked.remove(deed)
        ours, theirs = (TP, self.generation), (TP, self.generation)
        match deed:
            case ("answer", int(offset)) if how % 4 == 0:
                request = fanout.DeliverRecords(offset, (offset,), (offset,))
                window = attrs.evolve(request, window=self.window_of[offset])
                self.happens(new.WorkFailed(*ours, request), [old.WorkFailed(*theirs, window)])
            case ("answer", int(offset)):
                done, of_window = (
                    fanout.RecordsDelivered(offset, (offset,)),
                    fanout.RecordsDelivered(self.window_of[offset], (offset,)),
                )
                self.happens(new.WorkReported(*ours, done), [old.WorkReported(*theirs, of_window)])
            case ("retry", int(offset), int(attempt), _):
                start = fanout.Start(self.window_of[offset], (0,), attempt)
                self.happens(
                    new.RetryTimerFired(*ours, Handle((offset,), attempt)), [old.RetryTimerFired(*theirs, start)]
                )
            case ("retry", (fanout.Start() | None) as start, _):
                self.happens(new.RetryTimerFired(*ours, start), [old.RetryTimerFired(*theirs, start)])
            case ("drain", stage, _):
                self.happens(new.DrainTimerFired(*ours, stage), [old.DrainTimerFired(*theirs, stage)])  # type: ignore[arg-type]
            case ("commit", int(generation), int(position), str(text)):
                self.commit(generation, position, text, how)
            case ("work", request):
                self.worked(request, how, rest)
            case _:
                raise AssertionError(deed)

    def handled(self, offset: int, attempt: int, how: int) -> None:
        is_batch = isinstance(self.state, Owned) and self.state.committing is not None
        same = [deed for deed in self.asked if deed[0] == "handle" and deed[2] == attempt]
        ended = same[: 1 + how % 4] if is_batch else [("handle", offset, attempt)]
        for deed in ended:
            self.asked.remove(deed)
        bad = {deed[1] for at, deed in enumerate(ended) if how >> at & 8}
        done = tuple(deed[1] for deed in ended if deed[1] not in bad)
        failed = tuple(deed[1] for deed in ended if deed[1] in bad)
        olds: list[old.Event] = []
        for deed in reversed(ended) if how % 2 else ended:
            start = fanout.Start(self.window_of[deed[1]], (0,), attempt)  # type: ignore[index]
            if deed[1] in bad:
                olds.append(old.WorkFailed(TP, self.generation, start))
            else:
                report = fanout.TasksReported(start.window, (0,), attempt, fanout.Report.SUCCEEDED)
                olds.append(old.WorkReported(TP, self.generation, report))
        what = RecordsHandled(done, failed, attempt)  # type: ignore[arg-type]
        self.happens(new.WorkReported(TP, self.generation, what), olds)

    def fetched(self, position: int, how: int) -> None:
        ahead = [offset for offset, _ in self.log if offset >= position][: 1 + how % 4]
        if not ahead:
            return
        self.asked = [deed for deed in self.asked if deed[0] != "fetch"]
        again = [offset for offset, _ in self.log if offset < position][: how // 4 % 3]
        offsets = (*ahead, *again)
        event = (TP, self.generation, offsets, tuple(dict(self.log)[each] for each in offsets))
        self.happens(new.Fetched(*event), [old.Fetched(*event)])

    def commit(self, generation: int, position: int, text: str, how: int) -> None:
        kinds = (new.Committed, new.Committed, new.CommitUnknown, new.CommitRefused, new.MetadataRefused)
        kind = kinds[how % 5] if text or how % 5 < 4 else new.Committed
        if kind is new.Committed:
            self.committed, self.text = position, text
        if generation == self.generation:
            self.happens(kind(TP, generation, position), [getattr(old, kind.__name__)(TP, generation, position)])

    def worked(self, request: fanout.UserRequest, how: int, rest: Sequence[int]) -> None:
        if how % 6 == 0:
            self.happens(new.WorkFailed(TP, self.generation, request), [old.WorkFailed(TP, self.generation, request)])
            return
        what: fanout.FanoutEvent
        match request:
            case fanout.Arrange(window, offsets):
                listed = tuple((offsets[each % len(offsets)],) for each in rest[: rest[0] % 4])
                what = (
                    fanout.ArrangeFailed(window)
                    if how % 6 == 1
                    else fanout.WindowArranged(window, fanout.Tasks(listed))
                )
            case fanout.Start(window, numbers, attempt):
                what = fanout.TasksReported(
                    window, numbers, attempt, fanout.Report.FAILED if how % 3 == 1 else fanout.Report.SUCCEEDED
                )
            case fanout.Judge(window, (number, *_), attempt) if how % 6 == 2:
                what = fanout.TaskReplaced(window, number, attempt, fanout.Tasks(((0,),)))
            case fanout.Judge(window, numbers, attempt):
                what = fanout.TasksReported(
                    window, numbers, attempt, fanout.Report.RETRIED if how % 2 else fanout.Report.SKIPPED
                )
            case fanout.DeliverTasks(window, numbers, attempt):
                what = fanout.TasksReported(
                    window, numbers, attempt, fanout.Report.UNDELIVERED if how % 3 == 1 else fanout.Report.DELIVERED
                )
            case fanout.DeliverRecords(window, offsets):
                what = fanout.RecordsDelivered(window, offsets)
            case fanout.DeliverWindow(window):
                what = fanout.WindowDelivered(window)
        if isinstance(what, fanout.TaskReplaced) and len(request.numbers) > 1:  # type: ignore[union-attr]
            self.asked.append(("work", request))  # the others are not answered yet
        self.happens(new.WorkReported(TP, self.generation, what), [old.WorkReported(TP, self.generation, what)])


LOGS: Final = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(KEYS)), min_size=1, max_size=14).map(
    lambda steps: tuple((sum(step for step, _ in steps[:at]), key) for at, (_, key) in enumerate(steps))
)
SCRIPTS: Final = st.binary(min_size=10 * MOVE_BYTES, max_size=60 * MOVE_BYTES)


def plain(rules: PartitionRules, retries: int) -> PartitionRules:
    flags = {"task_delivery": False, "record_delivery": False, "window_delivery": False}
    return attrs.evolve(rules, hooks=False, fanout=attrs.evolve(rules.fanout, retries_max=retries, **flags))


def as_drawn(rules: PartitionRules, retries: int) -> PartitionRules:  # noqa: ARG001  as when it is plain
    return rules


@pytest.mark.parametrize("made", [plain, as_drawn])
def test_it_agrees_with_its_twin(made: Callable[[PartitionRules, int], PartitionRules]) -> None:
    @given(drawn.rules(), st.integers(0, 2), st.sampled_from((1, 2, 1_000)), LOGS, SCRIPTS)
    def agree(
        rules: PartitionRules, retries: int, batch: int, log: tuple[tuple[int, bytes | None], ...], script: bytes
    ) -> None:
        # The twin measures the metadata at each step, the machine only when it writes it.
        limits = attrs.evolve(rules.limits, metadata=None)
        both = Both(attrs.evolve(made(rules, retries), limits=limits, batch_max=batch), log)
        for at in range(0, len(script) - MOVE_BYTES + 1, MOVE_BYTES):
            both.moves(script[at : at + MOVE_BYTES])

    agree()


def test_it_knows_all_orders() -> None:
    assert {*Ordering.__members__} == {*twin.Ordering.__members__}
