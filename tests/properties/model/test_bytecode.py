"""What code only writes to, and what it may read: by the instructions of each use of a name."""

from __future__ import annotations

from types import CodeType
from typing import cast

import pytest

from tidegate.model.bytecode import reads

WRITES = (
    "events.append(1)",
    "events.append(other)",
    "events.append(\n    other,\n)",
    "events['n'] += 1",
    "events[other] += other",
    "events['n'] = 1",
    "events.n += 1",
    "events.inner.n = 1",
    "events.inner.inc(by=2)",
    "events(*other)",
    "del events['n']",
    "global events\nevents += 1",
    "events = other",
    "other.append('events')",
    "def inner(): events.append(1)",
)
READS = (
    "return events",
    "other = events",
    "other.append(events)",
    "other(events)",
    "other[events['n']] = 1",
    "events.append(len(events))",
    "events['n'] = events['n'] + 1",
    "if events: pass",
    "if events.add(1): pass",
    "other = events.pop()",
    "events.pop().run()",
    "events.pop()()",
    "await events.put(1)",
    "for each in events: pass",
    "[each for each in events]",
    "f'{events}'",
    "other.events.append(other.events)",
    "return events.append(1)",
    "return lambda: events",
    "return lambda: events.append(1)",
    "with events: pass",
    "async with events: pass",
    "events",
    "events.pop().n = 1",
    "-events.append(1)",
    "assert events",
    "(events or other).append(1)",
    "global events\nevents = events + 1",
    "def inner(): return events",
    "return locals()",
    "eval('events')",
)


def codes(body: str) -> list[CodeType]:
    """The code of a function with this body, and of those in it."""
    names: dict[str, object] = {}
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    exec(f"async def function(other=None):\n{lines}\n", names)  # noqa: S102  written above
    found = [cast("CodeType", names["function"].__code__)]  # type: ignore[attr-defined]
    for code in found:  # which grows on the way
        found += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


@pytest.mark.parametrize("body", WRITES)
def test_what_is_assigned_to_or_called_without_a_use_of_the_result_is_not_read(body: str) -> None:
    """Neither is what has another name."""
    assert not any(reads(code, "events") for code in codes(body))


@pytest.mark.parametrize("body", READS)
def test_any_other_use_is_a_read(body: str) -> None:
    """So is an assignment to something that a call returns, and whatever may look up any name."""
    assert any(reads(code, "events") for code in codes(body))
