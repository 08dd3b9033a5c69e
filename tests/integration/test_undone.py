"""Records that a member recognises after it lost and regained their partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
import pytest

from tidegate.consumer.offsets.kept import Kept
from tidegate.consumer.protocol.commands import Handle, Work
from tidegate.model.records import TopicPartition
from tidegate_adapters.kafka import in_flight
from tidegate_adapters.kafka.in_flight import Records

TP: Final = TopicPartition("t", 0)
WORK: Final = Work(TP, 1, Handle((0,)), (0,))


@attrs.frozen
class Came:
    offset: int
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    timestamp: int = 17
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = 0
    topic: str = "t"
    partition: int = 0


def done(offsets: Iterable[int], stood_s: float = 2.0, *, knows: bool = True) -> Records:
    now_s = [0.0]
    records = Records(lambda: now_s[0], knows=knows)
    records.turned()
    records.begin(TP, 1)
    records.came(TP, 1, [*map(Came, offsets)], 0.0)
    now_s[0] += stood_s
    records.done(WORK, [*offsets])
    return records


def known(records: Records, stop: int) -> tuple[int, ...]:
    records.forget(TP, None, Kept(TP, 0, ((0, stop),)))
    return records.compared(TP, [*map(Came, range(stop + 1))])[0]


@pytest.mark.parametrize(
    "other",
    [{"key": None}, {"key": b""}, {"value": None}, {"value": b""}, {"timestamp": 18}, {"headers": (("n", None),)}],
    ids=str,
)
def test_a_record_is_known_again_by_all_that_it_carries(other: dict[str, Any]) -> None:
    records = done(range(3))
    assert known(records, 2) == (0, 1)
    assert records.compared(TP, [Came(0), Came(7)]) == ((0,), False)
    assert records.compared(TP, [Came(0, **other), Came(1)]) == ((1,), True)


def test_only_what_is_done_once_the_loop_has_stood_still_is_known() -> None:
    assert known(done(range(3), 0.5), 3) == ()
    assert known(done(range(3), knows=False), 3) == ()
    records = done(range(3))
    records.turned()
    records.came(TP, 1, [*map(Came, range(3, 6))], 0.0)
    records.done(WORK, [3])
    records.committed(TP, 2)
    records.done(WORK, [4])
    records.keep(TP, 1, ())
    assert known(records, 6) == (2, 3)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "_KNOWN_MAX", 5)
    assert known(done(range(50)), 50) == (0, 1, 2, 3, 4)


def test_what_is_not_kept_is_not_known() -> None:
    records = done(range(3))
    records.forget(TP, None, None)
    assert known(records, 3) == ()
