"""The next record, compared with a linear search in a list of waiting ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.offsets._tables import Table, changed, entries, found
from tidegate.consumer.offsets.watermark import OffsetTracker, completed, delivered
from tidegate.consumer.partition import ready_queue as order
from tidegate.consumer.partition.ready_queue import Lines, Order, Queue

KEYS: Final = (b"k", b"l", None)
SCRIPTS: Final = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)), max_size=30)
KINDS: Final[dict[str, Callable[[], Order]]] = {
    "unordered": lambda: Queue(0),
    "one line": lambda: Queue(0, together=1),
    "one line of three together": lambda: Queue(0, together=3),
    "lines of keys": Lines,
}


@attrs.define
class Dumb:
    order: Order
    key: Callable[[int], bytes | None]
    waits: list[int] = attrs.field(factory=list)
    work: list[int] = attrs.field(factory=list)
    dropped: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    tracker: OffsetTracker = attrs.field(factory=lambda: OffsetTracker(0))
    closed: set[bytes] = attrs.field(factory=set)
    stop: int = 99_999

    def comes(self, many: int) -> None:
        first = self.tracker.frontier + many % 3
        new = tuple(range(first, first + many))
        self.tracker = delivered(self.tracker, new)
        drops = self.stop == 0
        self.order = self.order.came(new, [self.key(offset) for offset in new], drops=drops)
        for offset in new:
            is_dropped = offset >= self.stop or (drops and self.key(offset) in self.closed)
            (self.dropped.add if is_dropped else self.waits.append)(offset)

    def takes(self, most: int) -> None:
        """Laws OR1 to OR4, by linear search."""
        busy = {self.key(offset) for offset in self.work} - {None}
        may: list[int] = []
        for offset in sorted(self.waits):
            own = self.key(offset)
            if len(may) < most and own not in busy:
                if own in self.closed and may:
                    break
                may.append(offset)
                if own in self.closed:
                    break
            if own is not None and len(may) >= max(1, getattr(self.order, "together", 1)):
                busy.add(own)
        self.order, taken = self.order.taken(self.tracker, most)
        assert len({*taken} - self.begun) == len(taken), "OR1"
        assert self.dropped.isdisjoint(taken), "OR3"
        assert [*taken] == may, "OR4"
        self.begun |= {*taken}
        self.waits = [offset for offset in self.waits if offset not in may]
        self.work += may

    def settles(self, which: int) -> None:
        done = tuple(self.work[which % 3 :: 2])
        self.tracker = completed(self.tracker, done)
        self.order = self.order.settled(len(done), done)
        self.work = [offset for offset in self.work if offset not in done]

    def closes(self, which: int) -> None:
        if self.work:
            offset = self.work[which % len(self.work)]
            own = self.key(offset)
            self.order = self.order.closing((offset,), drops=False)
            self.closed |= {own} - {None}  # type: ignore[arg-type]

    def drops(self, at: int) -> None:
        self.stop = min(self.stop, at)
        self.order = self.order.stopped(at)
        self.dropped |= {offset for offset in self.waits if offset >= at}
        self.waits = [offset for offset in self.waits if offset < at]

    def agrees(self) -> None:
        """Laws OR2 and OR3."""
        assert self.order.queued(self.tracker) == tuple(sorted(self.waits)), "OR2"
        assert self.order.waiting == len(self.waits), "OR3"
        assert all(map(self.order.is_taken, self.work))
        assert self.order.all_taken(tuple(self.work))
        assert not any(map(self.order.is_taken, self.waits))
        assert self.order.closed == self.closed or isinstance(self.order, Queue)


def run(order: Order, keys: Sequence[bytes | None], script: Collection[tuple[int, int, int]]) -> None:
    def key(offset: int) -> bytes | None:
        if isinstance(order, Queue):
            return b"" if order.together else None
        return keys[offset % len(keys)]

    dumb = Dumb(order, key)
    for kind, some, _ in script:
        match kind:
            case 0 | 1 if dumb.stop == 99_999:
                dumb.comes(some)
            case 2 | 3:
                dumb.takes(some)
            case 4:
                dumb.settles(some)
            case 5 if some < 3:
                dumb.closes(some)
            case 6 if some < 2 and dumb.work:
                dumb.drops(dumb.work[some % len(dumb.work)])
            case _:
                pass
        dumb.agrees()


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=7), SCRIPTS)
@example([b"k", b"k", b"l"], [(0, 6, 0), (2, 2, 0), (4, 0, 0), (2, 2, 0)] * 2)
def test_an_order_agrees_with_a_list(kind: str, keys: list[bytes | None], script: list[tuple[int, int, int]]) -> None:
    """Laws OR1 to OR4."""
    run(KINDS[kind](), keys, script)


TAKEN: Final = "Lines(self.pages, self.lines, self.unkeyed, rest, self.waiting - len(offsets), self.closed), offsets"
OF_LINES: Final = partial(test_an_order_agrees_with_a_list, "lines of keys")

test_a_planted_bug_is_found = planted(
    order,
    bug("the first again and again", (TAKEN, TAKEN.replace(", offsets", ", (0, *offsets)")), OF_LINES, says="OR1"),
    bug("the highest first", (TAKEN, f"{TAKEN}[::-1]"), OF_LINES, says="OR4"),
    bug("not counted", (TAKEN, TAKEN.replace(" - len(offsets)", "")), OF_LINES, says="OR3"),
    bug("a line is forgotten", (TAKEN, TAKEN.replace("self.pages, self.lines", "(), ()")), OF_LINES, says="OR2"),
)


def test_a_record_that_comes_late_is_taken_first() -> None:
    """Law OR4: it precedes others that were taken before it came."""
    tracker = delivered(OffsetTracker(0), (5, 6))
    queue, first = Queue(0).came((5, 6)).taken(tracker, 1)
    tracker = delivered(tracker, (3,))
    queue, second = queue.came((3,)).taken(tracker, 2)

    assert (first, second, queue.waiting) == ((5,), (3, 6), 0)


@given(st.lists(st.tuples(st.integers(0, 300), st.none() | st.integers(0, 9)), max_size=40), st.booleans())
def test_a_table_is_a_map(changes: list[tuple[int, int | None]], one_by_one: bool) -> None:
    last = {b"%d" % key: value for key, value in changes}
    known = {key: value for key, value in last.items() if value is not None}
    table: Table[int] = ()
    for each in [{b"%d" % key: value} for key, value in changes] if one_by_one else [last]:
        table = changed(table, each)

    assert dict(entries(table)) == known
    assert [found(table, b"%d" % key) for key in range(301)] == [known.get(b"%d" % key) for key in range(301)]
    assert table == changed((), known)


def test_keys_of_a_table_may_share_a_page() -> None:
    keys = (b"", b"a", b"k1", b"k2", *(b"key-%d" % number for number in range(2_000)))
    table: Table[int] = changed((), {key: at for at, key in enumerate(keys)})

    assert [found(table, key) for key in keys] == [*range(len(keys))]
    assert changed(table, dict.fromkeys(keys)) == ()
