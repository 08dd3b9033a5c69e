"""The transitions of windows: `step`, and the outputs of each event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, assert_never, final

import attrs

from tidegate.consumer.fanout._bitmaps import bits_of, numbers_in, picked
from tidegate.consumer.fanout._windows import (
    heirs_of,
    in_phase,
    moved,
    phase_of,
    place_of,
    window_of,
    with_window,
    without_window,
)
from tidegate.consumer.fanout.state import (
    MOVES,
    NEXT,
    SETTLED,
    Fanout,
    FanoutStep,
    Loan,
    Roll,
    TaskPhase,
    Window,
    WindowStage,
)
from tidegate.consumer.fanout.vocabulary import (
    Arrange,
    ArrangeFailed,
    Bar,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    FanoutEvent,
    Ignored,
    Judge,
    Output,
    Reason,
    RecordsDelivered,
    RecordsSettled,
    Report,
    Rules,
    Start,
    TaskGivenUp,
    TaskReplaced,
    Tasks,
    TasksReported,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
    WindowSettled,
    check_event,
)
from tidegate.model.reducer import Step
from tidegate.model.values import check_type

_RUNNING, _FAILING, _DELIVERING, _SUCCEEDED, _FAILED, _REPLACED = TaskPhase
_NO_TASKS: Final = (0, 0)
"""The mask of a record without tasks."""


def step(state: Fanout, event: FanoutEvent, rules: Rules) -> FanoutStep:
    """Apply an event.

    Args:
        state: The windows in flight.
        event: The event.
        rules: The deliveries and the bounds of retries, the same for the whole life of a state.

    Returns:
        The next state, and the outputs: requests, settlements, and the ignored parts with their
        reasons.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(rules, Rules, "a set of rules")
    check_event(event)
    if isinstance(event, WindowOpened):
        return _opened(state, event.offsets)
    window = window_of(state, event.window)
    if window is None:
        reason = Reason.WINDOW_SETTLED if event.window < state.opened else Reason.NO_WINDOW
        return Step(state, (Ignored(reason, event.window, _named(event)),))
    if isinstance(event, (WindowArranged, ArrangeFailed)):
        if window.stage is not WindowStage.ARRANGING:
            return Step(state, (Ignored(Reason.ARRANGED, event.window),))
        return _arranged(state, window, event, rules)
    if window.stage is WindowStage.ARRANGING:
        return Step(state, (Ignored(Reason.NOT_ARRANGED, event.window, _named(event)),))
    match event:
        case TasksReported():
            return _reported(state, window, event, rules)
        case TaskReplaced():
            return _replaced(state, window, event, rules)
        case RecordsDelivered():
            return _records_delivered(state, window, event.offsets)
        case WindowDelivered():
            return _window_delivered(state, window)
        case _:
            assert_never(event)


def _opened(state: Fanout, offsets: tuple[int, ...]) -> FanoutStep:
    low, high = min(offsets, default=0), max(offsets, default=0)
    new = {*offsets}
    for window in state.windows:
        known = window.roll.offsets
        if known[0] <= high and low <= known[-1]:  # otherwise they share none, the common case
            new.difference_update(known)
    ignored: tuple[Output, ...] = ()
    if not new or len(new) < len(offsets):
        ignored = _ignored(None, offsets, new, lambda _: Reason.IN_FLIGHT)
        if not new:
            return Step(state, ignored)
    roll = Roll(state.opened, tuple(sorted(new)))
    opened = Fanout(state.opened + 1, (*state.windows, Window(roll)))
    return Step(opened, (Arrange(roll.number, roll.offsets), *ignored))


def _arranged(state: Fanout, window: Window, event: WindowArranged | ArrangeFailed, rules: Rules) -> FanoutStep:
    everyone = range(len(window.roll.offsets))
    roll = attrs.evolve(window.roll, masks=(_NO_TASKS,) * len(everyone))
    if isinstance(event, ArrangeFailed):
        roll = attrs.evolve(roll, is_failed=True)
        return _settled(state, attrs.evolve(window, stage=WindowStage.WORKING, roll=roll), 0, rules, everyone)
    roll = attrs.evolve(roll, settles_as_one=rules.window_delivery and bool(event.tasks.offsets))
    window = attrs.evolve(window, stage=WindowStage.WORKING, roll=roll)
    added = _added(state, window, event.tasks, roll.offsets, rules)
    done = _settled(added.state, added.window, added.settled, rules, everyone)
    return Step(done.state, (*added.outputs, *done.commands, *added.ignored))


def _reported(state: Fanout, window: Window, event: TasksReported, rules: Rules) -> FanoutStep:
    accepted, ignored = _accepted(window, event.numbers, event.attempt, event.report)
    if not accepted:
        return Step(state, ignored)
    if event.report is Report.RETRIED:
        done = _retried(state, window, accepted, event.attempt, rules)
        return Step(done.state, (*done.commands, *ignored))
    before, after = MOVES[event.report]
    if after is _DELIVERING and not rules.task_delivery:
        after = _SUCCEEDED
    window = moved(window, accepted, before, after)
    if after is _DELIVERING or after is _FAILING:
        follows = DeliverTasks if after is _DELIVERING else Judge
        asked = follows(event.window, tuple(numbers_in(accepted)), event.attempt)
        return Step(with_window(state, window), (asked, *ignored))
    done = _settled(state, window, accepted, rules)
    return Step(done.state, (*done.commands, *ignored)) if ignored else done


def _retried(state: Fanout, window: Window, accepted: int, attempt: int, rules: Rules) -> FanoutStep:
    roll = window.roll
    given = accepted & roll.given
    again = accepted ^ given if attempt <= rules.retries_max else 0
    spent = accepted ^ given ^ again
    outputs: list[Output] = []
    if again:
        numbers = tuple(numbers_in(again))
        attempts = list(roll.attempts)
        for number in numbers:
            attempts[number] = attempt + 1
        roll = attrs.evolve(roll, attempts=tuple(attempts), retried=roll.retried | again)
        window = moved(attrs.evolve(window, roll=roll), again, _FAILING, _RUNNING)
        outputs.append(Start(roll.number, numbers, attempt + 1))
    if given:
        outputs.append(TaskGivenUp(roll.number, tuple(numbers_in(given)), Bar.GIVEN))
    if spent:
        outputs.append(TaskGivenUp(roll.number, tuple(numbers_in(spent)), Bar.RETRIES))
    barred = given | spent
    done = _settled(state, moved(window, barred, _FAILING, _FAILED), barred, rules)
    return Step(done.state, (*outputs, *done.commands))


def _replaced(state: Fanout, window: Window, event: TaskReplaced, rules: Rules) -> FanoutStep:
    number, tasks = event.number, event.tasks
    accepted, ignored = _accepted(window, (number,), event.attempt, Report.SKIPPED)
    if not accepted:
        return Step(state, ignored)
    if not tasks.offsets or window.roll.generations[number] >= rules.generations_max:
        bar = Bar.GENERATIONS if tasks.offsets else Bar.NO_REPLACEMENT
        done = _settled(state, moved(window, accepted, _FAILING, _FAILED), accepted, rules)
        return Step(done.state, (TaskGivenUp(event.window, (number,), bar), *done.commands))
    heirs = heirs_of(state, window, number)
    left = {*heirs}.difference(chain.from_iterable(tasks.offsets))
    if left:  # F9: a record that no replacement lists waits for all of them
        tasks = attrs.evolve(tasks, offsets=tuple((*each, *sorted(left)) for each in tasks.offsets))
    added = _added(state, window, tasks, heirs, rules, replaced=number)
    done = _settled(added.state, moved(added.window, accepted, _FAILING, _REPLACED), accepted | added.settled, rules)
    return Step(done.state, (*added.outputs, *done.commands, *added.ignored))


def _records_delivered(state: Fanout, window: Window, offsets: tuple[int, ...]) -> FanoutStep:
    accepted = window.delivering
    if offsets != window.roll.offsets:  # otherwise all records, the common case
        places = [place_of(window.roll, offset) for offset in offsets]
        accepted &= bits_of({place for place in places if place is not None})
    ignored: tuple[Output, ...] = ()
    if not accepted or accepted.bit_count() < len(offsets):

        def why(offset: int) -> Reason:
            place = place_of(window.roll, offset)
            if place is None:
                return Reason.NO_RECORD
            return Reason.DELIVERED if window.delivered >> place & 1 else Reason.NOT_DUE

        ignored = _ignored(window.roll.number, offsets, picked(window.roll.offsets, accepted), why)
        if not accepted:
            return Step(state, ignored)
    done = _delivered(state, window, window.delivering ^ accepted, accepted)
    return Step(done.state, (*done.commands, *ignored)) if ignored else done


def _window_delivered(state: Fanout, window: Window) -> FanoutStep:
    number = window.roll.number
    if window.stage is not WindowStage.DELIVERING:
        return Step(state, (Ignored(Reason.NOT_DUE, number),))
    settled = (RecordsSettled(number, window.roll.offsets), WindowSettled(number, window.tally))
    return Step(without_window(state, number), settled)


# --- which tasks a report changes ---------------------------------------------------------------------------------------


def _accepted(window: Window, numbers: tuple[int, ...], attempt: int, report: Report) -> tuple[int, tuple[Output, ...]]:
    """The bitmap of the tasks that the report changes, and the ignored rest."""
    roll = window.roll
    accepted = in_phase(window, numbers, attempt, MOVES[report][0])
    if accepted and accepted.bit_count() == len(numbers):
        return accepted, ()
    return accepted, _ignored(
        roll.number, numbers, numbers_in(accepted), lambda each: _why(window, each, attempt, report)
    )


def _why(window: Window, number: int, attempt: int, report: Report) -> Reason:
    if number >= len(window.roll.records):
        return Reason.NO_RUN
    phase = phase_of(window, number)
    at = window.roll.attempts[number]
    if phase in SETTLED or attempt == at:
        reason = NEXT[phase][report]
        assert isinstance(reason, Reason), f"{report} changes a task that is {phase}"
        return reason
    return Reason.EARLIER_ATTEMPT if attempt < at else Reason.NO_RUN


def _ignored(
    window: int | None, named: Sequence[int], accepted: Iterable[int], why: Callable[[int], Reason]
) -> tuple[Output, ...]:
    """The named but not accepted parts, by reason. An accepted part named again is ignored the
    second time.
    """
    if not named:
        return (Ignored(Reason.NOTHING, window),)
    left, known = {*accepted}, {*accepted}
    ignored: dict[Reason, list[int]] = {}
    for each in named:
        if each in left:
            left.discard(each)
        else:
            ignored.setdefault(Reason.TWICE if each in known else why(each), []).append(each)
    return tuple(Ignored(reason, window, tuple(which)) for reason, which in ignored.items())


def _named(event: FanoutEvent) -> tuple[int, ...]:
    match event:
        case TasksReported():
            return event.numbers
        case TaskReplaced():
            return (event.number,)
        case RecordsDelivered() | WindowOpened():
            return event.offsets
        case _:
            return ()


# --- what follows -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Matched:
    """The records of new tasks.

    Attributes:
        records: For each new task, the positions of its records in its own window.
        masks: As in `Roll`, including the new tasks.
        loans: By window, the loans of its records.
        unknown: The listed offsets of which no record waits for tasks.
        is_one_each: Whether new task i is for record i, for all records of the window.
    """

    records: list[tuple[int, ...]]
    masks: list[tuple[int, int]]
    loans: Mapping[int, list[Loan]] = attrs.field(factory=dict)
    unknown: Mapping[int, None] = attrs.field(factory=dict)
    is_one_each: bool = False


def _matched(state: Fanout, window: Window, tasks: Tasks, heirs: tuple[int, ...]) -> _Matched:
    """Match the listed offsets with waiting records. A task that lists none of these is for all
    heirs.
    """
    roll = window.roll
    first, masks = len(roll.records), list(roll.masks)
    places = dict(zip(picked(roll.offsets, window.waiting), numbers_in(window.waiting), strict=True))
    if not any(bits for _, bits in masks):
        alone = _one_each(tasks.offsets, places)
        if alone is not None:  # the common case: one task for each record
            for task, place in enumerate(alone, first):
                masks[place] = (task, 1)
            in_order = alone == [*range(len(masks))]
            return _Matched([(place,) for place in alone], masks, is_one_each=in_order)
    records: list[tuple[int, ...]] = []
    more: dict[int, list[int]] = {}
    loans: dict[int, list[Loan]] = {}
    unknown: dict[int, None] = {}
    for task, offsets in enumerate(tasks.offsets, first):
        own: tuple[int, ...]
        if len(offsets) == 1 and offsets[0] in places:
            own = (places[offsets[0]],)
        else:
            own, others, lost = _targets(state, places, offsets)
            unknown |= dict.fromkeys(lost)
            if not own and not others:
                own, others, _ = _targets(state, places, heirs)
            for home, place in others:
                loans.setdefault(home, []).append(Loan(roll.number, task, place))
        records.append(own)
        for place in own:
            # A mask starts at the first task of its record, so it stays short in a window of many
            # tasks. Further tasks are set in one go, because each change copies the mask.
            if not masks[place][1]:
                masks[place] = (task, 1)
            else:
                more.setdefault(place, []).append(task)
    for place, later in more.items():
        low, bits = masks[place]
        masks[place] = (low, bits | bits_of([task - low for task in later]))
    return _Matched(records, masks, loans, unknown)


@final
@attrs.frozen
class _Added:
    """The result of adding tasks. `settled` is the bitmap of the new tasks that are settled
    already.
    """

    state: Fanout
    window: Window
    outputs: tuple[Output, ...]
    settled: int
    ignored: tuple[Output, ...]


def _added(
    state: Fanout, window: Window, tasks: Tasks, heirs: tuple[int, ...], rules: Rules, *, replaced: int | None = None
) -> _Added:
    roll = window.roll
    first, count = len(roll.records), len(tasks.offsets)
    matched = _matched(state, window, tasks, heirs)
    for home, lent in matched.loans.items():
        other = window_of(state, home)
        assert other is not None, f"window {home} is in flight"
        state = with_window(state, attrs.evolve(other, loans=(*other.loans, *lent)))
    # The new tasks are the `count` bits from `first` on. Those with a given result do not run (F7).
    good, bad = bits_of(tasks.succeeded) << first, bits_of(tasks.failed) << first
    run = ((1 << count) - 1 << first) ^ good ^ bad
    phases = list(window.phases)
    phases[_RUNNING] |= run
    phases[_FAILING] |= bad
    phases[_DELIVERING if rules.task_delivery else _SUCCEEDED] |= good
    roll = attrs.evolve(
        roll,
        records=(*roll.records, *matched.records),
        masks=tuple(matched.masks),
        generations=roll.generations + (0 if replaced is None else roll.generations[replaced] + 1,) * count,
        attempts=roll.attempts + (1,) * count,
        given=roll.given | good | bad,
        lent=roll.lent | bits_of({loan.number for lent in matched.loans.values() for loan in lent}),
        is_one_each=not first and matched.is_one_each,
    )
    outputs: list[Output] = []
    if run:
        outputs.append(Start(roll.number, tuple(numbers_in(run)), 1, replaced))
    if bad:
        outputs.append(Judge(roll.number, tuple(numbers_in(bad)), 1))
    if good and rules.task_delivery:
        outputs.append(DeliverTasks(roll.number, tuple(numbers_in(good)), 1))
    ignored = (Ignored(Reason.NOT_WAITING, roll.number, tuple(matched.unknown)),) if matched.unknown else ()
    window = attrs.evolve(window, roll=roll, phases=tuple(phases))
    return _Added(state, window, tuple(outputs), 0 if rules.task_delivery else good, ignored)


def _one_each(tasks: tuple[tuple[int, ...], ...], places: Mapping[int, int]) -> list[int] | None:
    """The positions of the records if each task is for one waiting record here, and no two for the
    same.
    """
    found = [places.get(offsets[0], -1) if len(offsets) == 1 else -1 for offsets in tasks]
    return found if -1 not in found and len({*found}) == len(found) else None


def _targets(
    state: Fanout, places: Mapping[int, int], offsets: Iterable[int]
) -> tuple[tuple[int, ...], list[tuple[int, int]], list[int]]:
    """The records of these offsets: positions here, (window, position) elsewhere, and offsets of
    none.
    """
    own: list[int] = []
    others: list[tuple[int, int]] = []
    lost: list[int] = []
    for offset in dict.fromkeys(offsets):
        here = places.get(offset)
        if here is not None:
            own.append(here)
            continue
        for other in state.windows:
            place = place_of(other.roll, offset)
            if place is not None and not (other.delivering | other.delivered) >> place & 1:
                others.append((other.roll.number, place))
                break
        else:
            lost.append(offset)
    return tuple(own), others, lost


def _settled(
    state: Fanout, window: Window, bits: int, rules: Rules, touched: Iterable[int] | None = None
) -> FanoutStep:
    """The effects of settled tasks (`bits`). `touched` are the positions of their records."""
    roll = window.roll
    if touched is None:
        touched = {place for number in numbers_in(bits) for place in roll.records[number]} if window.open_tasks else ()
    done = _ready(state, window, touched, rules)
    if not bits & roll.lent:  # no record of another window waits for these tasks
        return done
    state, outputs = done.state, list(done.commands)
    for other in state.windows:
        repaid = {
            loan: attrs.evolve(loan, outcome=phase_of(window, loan.number))
            for loan in other.loans
            if loan.window == roll.number and bits >> loan.number & 1
        }
        if repaid:
            paid = attrs.evolve(other, loans=tuple(repaid.get(loan, loan) for loan in other.loans))
            done = _ready(state, paid, [loan.record for loan in repaid], rules)
            state = done.state
            outputs += done.commands
    return Step(state, tuple(outputs))


def _ready(state: Fanout, window: Window, touched: Iterable[int], rules: Rules) -> FanoutStep:
    """The effects for the window, and for those of these records whose tasks are all settled now."""
    if window.stage is WindowStage.ARRANGING:
        return Step(with_window(state, window))
    roll = window.roll
    ready = window.waiting  # with no task open: all of them, not only the touched ones
    unsettled = window.open_tasks
    if unsettled:
        masks = roll.masks  # (low, bits): the open tasks are shifted to match
        ready &= bits_of([place for place in touched if not unsettled >> masks[place][0] & masks[place][1]])
    if window.loans:
        ready &= ~bits_of({loan.record for loan in window.loans if loan.outcome is None})
    failed = _failures(window, ready)
    due = ready if rules.record_delivery else failed
    done = _delivered(state, window, window.delivering | due, ready ^ due)
    if not due:
        return done
    deliver = DeliverRecords(roll.number, picked(roll.offsets, due), picked(roll.offsets, failed))
    return Step(done.state, (deliver, *done.commands))


def _delivered(state: Fanout, window: Window, delivering: int, newly: int) -> FanoutStep:
    """The effects of newly finished deliveries, while the records in `delivering` still wait for
    theirs.
    """
    roll, delivered = window.roll, window.delivered | newly
    settled: tuple[Output, ...] = ()
    if newly and not roll.settles_as_one:
        settled = (RecordsSettled(roll.number, picked(roll.offsets, newly)),)
    after = attrs.evolve(window, delivering=delivering, delivered=delivered)
    if delivered != roll.everyone or window.open_tasks:
        return Step(with_window(state, after), settled)
    if roll.settles_as_one:
        after = attrs.evolve(after, stage=WindowStage.DELIVERING)
        return Step(with_window(state, after), (DeliverWindow(roll.number, after.tally),))
    return Step(without_window(state, roll.number), (*settled, WindowSettled(roll.number, window.tally)))


def _failures(window: Window, ready: int) -> int:
    """Bitmap of those of these records that user code must answer for (F6)."""
    if window.roll.is_failed:
        return ready
    bits = 0
    failed = window.phases[_FAILED]
    if failed:
        masks = window.roll.masks
        bits = bits_of([place for place in numbers_in(ready) if failed >> masks[place][0] & masks[place][1]])
    if window.loans:
        bits |= bits_of({loan.record for loan in window.loans if loan.outcome is _FAILED})
    return bits & ready
