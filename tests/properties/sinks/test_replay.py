from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import shake_256
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.offsets.watermark import delivered
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, STORE, WALL, Instant
from tidegate.model.records import PRODUCER, Record, Send
from tidegate.sinks import replay
from tidegate.sinks.checks.laws import replay as laws
from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput, Undecodable, decode, encode
from tidegate.sinks.replay import (
    Choice,
    Leave,
    ReplayRules,
    ReplayState,
    Selection,
    Stop,
    begin,
    choose,
    plan,
    settle,
)


def at(ms: int) -> Instant:
    return Instant(ms * MILLISECOND, WALL)


def letter(place: int, output: RefusedOutput | None = None, **changes: Any) -> DeadLetter:
    """A letter of one of two partitions of one of two topics, with an error of one of two classes."""
    record = Record(
        ("orders", "mails")[place % 2],
        place // 2 % 2,
        place,
        b"%d" % place,
        b"value",
        (("h", b"1"),),
        Instant(0, PRODUCER),
    )
    made = DeadLetter(
        record=record, group="shop", attempts=1, error=("ValueError", "Timeout")[place % 2], at=at(place), output=output
    )
    return attrs.evolve(made, **changes)


def refused(place: int, content: bytes | None = b"{}") -> RefusedOutput:
    return RefusedOutput(sink=("hits", "rows")[place % 2], key=f"k{place}", index=0, content=content)


def stored(offset: int, of: DeadLetter | None) -> Record:
    sent = None if of is None else encode(of, "dead")
    return Record("dead", 0, offset) if sent is None else Record("dead", 0, offset, sent.key, sent.value, sent.headers)


def _letter_at(place: int, kind: int) -> DeadLetter | None:
    return (letter(place), letter(place, refused(place)), letter(place, refused(place, None)), None)[kind]


TOPICS: Final = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=8).map(
    lambda some: {
        sum(gap for gap, _ in some[: place + 1]) - 1: _letter_at(place, kind) for place, (_, kind) in enumerate(some)
    }
)
"""The letters of a partition by offset, with gaps; None is a record that is none."""
FEW: Final = st.frozensets(st.integers(0, 1), max_size=1)
SELECTIONS: Final = st.builds(
    Selection,
    topics=st.sampled_from((frozenset(), frozenset({"orders"}))),
    partitions=FEW,
    offsets=st.sampled_from(((), ((1, 2), (5, 5)))),
    sinks=st.sampled_from((frozenset(), frozenset({"hits"}))),
    error=st.sampled_from(("", "valueERROR", "nothing")),
    since=st.sampled_from((None, at(2))),
    until=st.sampled_from((None, at(5))),
)
EVERYTHING: Final = ReplayRules()
RULES: Final = st.builds(
    ReplayRules,
    selection=st.one_of(st.just(Selection()), SELECTIONS),
    requeues=st.booleans(),
    limit=st.one_of(st.none(), st.integers(1, 4)),
    skips_failed=st.booleans(),
)


@attrs.define
class Group:
    """A partition of letters, and what replays of a group have done with them."""

    letters: dict[int, DeadLetter | None]
    committed: tuple[int, str] | None = None
    deliveries: Counter[int] = attrs.field(factory=Counter)
    uncommitted: list[frozenset[int]] = attrs.field(factory=list)
    choices: list[tuple[int, Choice]] = attrs.field(factory=list)
    stop: Stop | None = None

    @property
    def end(self) -> int:
        return max(self.letters, default=-1) + 1

    def replay(
        self, rules: ReplayRules, batch: int = 2, failing: frozenset[int] = frozenset(), dies_after: int | None = None
    ) -> None:
        """One replay; it dies after so many plans, BEFORE it commits the last one."""
        self.choices, self.stop = [], None
        state = begin(self.committed, 0, self.end)
        position, plans = state.tracker.frontier, 0
        while self.stop is None and position < self.end:
            read = [stored(each, self.letters[each]) for each in sorted(self.letters) if each >= position][:batch]
            position = read[-1].offset + 1
            planned, choices = plan(rules, state, read)
            self.choices += choices
            begun = [offset for offset, choice in choices if not isinstance(choice, Leave)]
            good = [each for each in begun if each not in failing]
            self.deliveries.update(good)
            settled = settle(rules, planned, good, len(begun) - len(good))
            plans += 1
            if plans == dies_after:
                self.uncommitted.append(frozenset(good))
                return
            self.committed = settled.commit or self.committed
            state, self.stop = settled.state, settled.stop


RUNS: Final = st.lists(
    st.tuples(RULES, st.integers(1, 3), st.frozensets(st.integers(0, 23), max_size=3), st.none() | st.integers(1, 4)),
    max_size=4,
)
Runs = Sequence[tuple[ReplayRules, int, frozenset[int], int | None]]
FIVE: Final = {offset: letter(offset) for offset in range(5)}
ORDERS: Final = ReplayRules(selection=Selection(topics=frozenset({"orders"})))


@given(TOPICS, RUNS)
@example(FIVE, [(EVERYTHING, 2, frozenset({1}), None)])
@example(FIVE, [(ORDERS, 2, frozenset(), None), (EVERYTHING, 2, frozenset(), None)])
@example(FIVE, [(ORDERS, 2, frozenset(), None), (EVERYTHING, 2, frozenset(), 1), (EVERYTHING, 2, frozenset(), None)])
@example(FIVE, [(attrs.evolve(EVERYTHING, skips_failed=True), 2, frozenset({1}), None)])
@example(FIVE, [(attrs.evolve(EVERYTHING, limit=3), 2, frozenset(), None)])
def test_replays_keep_their_laws(letters: dict[int, DeadLetter | None], runs: Runs) -> None:
    """Laws RY1 to RY4."""
    group = Group(letters)
    for rules, batch, failing, dies_after in runs:
        group.replay(rules, batch, failing, dies_after)
        held = laws.replayed(group.committed, letters, group.end)
        assert laws.commits_what_was_acknowledged(held, group.deliveries), "RY1"
        assert laws.repeats_little(group.deliveries, group.uncommitted), "RY2"
        failed = failing & {offset for offset, choice in group.choices if not isinstance(choice, Leave)}
        if failed and dies_after is None:
            assert (group.stop is Stop.FAILED) is not rules.skips_failed, "RY3"
        assert laws.delivers_what_is_selected(rules, letters, group.choices), "RY4"


@given(TOPICS, RUNS)
@example(FIVE, [(ORDERS, 2, frozenset({2}), None)])
def test_at_last_no_letter_is_left(letters: dict[int, DeadLetter | None], runs: Runs) -> None:
    """Law RY6, whatever was replayed before."""
    group = Group(letters)
    for run in runs:
        group.replay(*run)
    group.replay(EVERYTHING)
    wanted = {offset for offset, each in letters.items() if each is not None}
    assert laws.leaves_none(wanted, group.deliveries), "RY6"
    assert group.stop is None
    before = group.deliveries.copy()
    group.replay(EVERYTHING)
    assert group.deliveries == before


@given(st.integers(0, 7), st.sampled_from((None, refused(0), refused(1), refused(0, None))), st.booleans())
@example(0, None, False)
@example(0, refused(0), False)
@example(0, refused(0), True)
def test_ry5_what_is_delivered_is_as_it_was(place: int, output: RefusedOutput | None, requeues: bool) -> None:
    """Law RY5."""
    made = letter(place, output)
    choice = choose(ReplayRules(requeues=requeues), decode(stored(0, made)))
    assert laws.is_as_it_was(made, choice, made.record)
    has_content = output is not None and output.content is not None
    assert isinstance(choice, RefusedOutput if has_content and not requeues else Send)


@given(SELECTIONS, st.integers(0, 23), st.booleans())
@example(Selection(until=at(5)), 5, False)
@example(Selection(since=at(2)), 2, False)
def test_a_selection_agrees_with_its_plain_twin(selection: Selection, place: int, is_output: bool) -> None:
    """Law RY4: a letter is selected if no condition rules it out."""
    made = letter(place, refused(place) if is_output else None)
    wrong = [
        selection.topics and made.record.topic not in selection.topics,
        selection.partitions and made.record.partition not in selection.partitions,
        selection.offsets and made.record.offset not in (1, 2, 5),
        selection.sinks and (not is_output or place % 2 == 1),
        selection.error == "nothing" or (selection.error and made.error != "ValueError"),
        selection.since and place < 2,
        selection.until and place >= 5,
    ]
    assert selection.has(made) is not any(wrong)


OPEN: Final = "if is_open(tracker, stored.offset) else Leave.REPLAYED"
test_a_planted_bug_is_found = planted(
    replay,
    bug(
        "what is read counts as replayed",
        ("tracker = completed(state.tracker, delivered_)", "tracker = completed(state.tracker, range(state.tracker.frontier))"),
        test_replays_keep_their_laws, says="RY1",
    ),
    bug(
        "the end of the last letter is committed",
        ("commit = (found.position, found.text)", 'commit = (tracker.frontier, "")'),
        test_replays_keep_their_laws, says="RY1",
    ),
    bug(
        "only the position is kept", ("commit = (found.position, found.text)", 'commit = (found.position, "")'),
        test_replays_keep_their_laws, says="RY2",
    ),
    bug("what is replayed is not looked up", (OPEN, ""), test_replays_keep_their_laws, says="RY2"),
    bug("it goes on after failures", ("if failed and not rules.skips_failed:", "if False:"), test_replays_keep_their_laws, says="RY3"),
    bug("it stops at any failure", ("if failed and not rules.skips_failed:", "if failed:"), test_replays_keep_their_laws, says="RY3"),
    bug("the limit counts plans", ("        if rules.limit is not None and begun >= rules.limit:\n            break\n", ""), test_replays_keep_their_laws, says="RY4"),
    bug("all letters", ("if not rules.selection.has(letter):", "if False:"), test_replays_keep_their_laws, says="RY4"),
    bug(
        "N16: with the headers of the letter",
        ("record.headers, record.partition", '(*record.headers, ("tidegate.letter", b"2")), record.partition'),
        test_ry5_what_is_delivered_is_as_it_was,
    ),
    bug("N16: without the key", ("record.value, record.key,", "record.value, None,"), test_ry5_what_is_delivered_is_as_it_was),
    bug("chance picks the partition", ("record.headers, record.partition", "record.headers"), test_ry5_what_is_delivered_is_as_it_was),
    bug(
        "a replay begins at the end of the last one",
        ("is None or committed[0] > end else committed", "is None or committed[0] > end else (end, '')"),
        test_at_last_no_letter_is_left, says="RY6",
    ),
    bug(
        "letters that are not selected count",
        ("begun += not isinstance(choice, Leave)", "begun += not isinstance(choice, Leave)\n        tracker = completed(tracker, (stored.offset,) * (choice is Leave.OTHER))"),
        test_at_last_no_letter_is_left, says="RY6",
    ),
    bug("any condition is enough", (
        "(not self.partitions or record.partition in self.partitions)\n            and", "(not self.partitions or record.partition in self.partitions)\n            or"),
        test_a_selection_agrees_with_its_plain_twin),
    bug("the end of the time belongs to it", ("letter.at - self.until < 0", "letter.at - self.until <= 0"), test_a_selection_agrees_with_its_plain_twin),
    bug("upper case matters", ("self.error.casefold() in text.casefold()", "self.error in text"), test_a_selection_agrees_with_its_plain_twin),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_position_beyond_the_end_is_of_another_topic() -> None:
    assert begin((9, ""), 0, 5) == ReplayState(begin(None, 0, 5).tracker)
    assert begin((5, ""), 2, 5, 7) == ReplayState(begin(None, 5, 5).tracker, 7)


def test_letters_replayed_between_others_survive_retention() -> None:
    group = Group({offset: letter(offset) for offset in range(8)})
    group.replay(ORDERS)
    state = begin(group.committed, 4, 8)
    _, choices = plan(EVERYTHING, state, [stored(offset, letter(offset)) for offset in range(4, 8)])
    assert [choice is Leave.REPLAYED for _, choice in choices] == [True, False, True, False]


def test_a_replay_stops_before_it_forgets_what_it_replayed() -> None:
    """A position and 4,096 characters hold a part of 200,000 letters of which random ones are replayed."""
    state = begin(None, 0, 10**6)
    noise = shake_256(b"letters").digest(25_000)
    apart = [offset for offset in range(200_000) if noise[offset >> 3] >> (offset & 7) & 1]
    tracker = delivered(state.tracker, range(200_000))
    settled = settle(EVERYTHING, ReplayState(tracker), apart, 0)
    assert settled.stop is Stop.FULL
    assert settled.commit is not None
    assert len(settled.commit[1]) <= 4_096


def test_what_cannot_be_read_is_left() -> None:
    assert choose(EVERYTHING, decode(Record("dead", 0, 7))) is Leave.UNREADABLE
    assert isinstance(decode(Record("dead", 0, 7)), Undecodable)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Selection(topics={"orders"}),  # type: ignore[arg-type]
        lambda: Selection(offsets=((3, 2),)),
        lambda: Selection(offsets=((-1, 2),)),
        lambda: Selection(error=None),  # type: ignore[arg-type]
        lambda: Selection(since=Instant(0, STORE)),
        lambda: Selection(until=5),  # type: ignore[arg-type]
        lambda: ReplayRules(limit=0),
        lambda: ReplayRules(requeues="sink"),  # type: ignore[arg-type]
        lambda: ReplayRules(skips_failed=1),  # type: ignore[arg-type]
        lambda: ReplayRules(selection=None),  # type: ignore[arg-type]
        lambda: begin(None, 5, 4),
        lambda: choose(None, decode(Record("dead", 0, 7))),  # type: ignore[arg-type]
        lambda: plan(EVERYTHING, None, []),  # type: ignore[arg-type]
        lambda: settle(None, ReplayState(begin(None, 0, 0).tracker), [], 0),  # type: ignore[arg-type]
        lambda: settle(EVERYTHING, ReplayState(begin(None, 0, 0).tracker), [], -1),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
