from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.reactive.checks.strategies.change_stream import commands
from tidegate.reactive.planning import change_stream
from tidegate.reactive.planning.change_stream import (
    After,
    DocumentChange,
    Flush,
    HandleChanged,
    SaveIdle,
    StartTimer,
    StreamCommand,
)

START: Final = After("t0")


@given(commands())
def test_commands_print_on_one_line(command: StreamCommand) -> None:
    assert len(str(command).splitlines()) == 1
    assert hash(command) == hash(command)


def test_changes_and_commands_say_what_they_are() -> None:
    each = (
        DocumentChange("a", 1),
        DocumentChange("a", 1, is_gone=True),
        StartTimer(Flush(5, 0), SECOND),
        StartTimer(SaveIdle(5), 1),
        HandleChanged(5, 0, "a", (1, 2)),
    )
    assert [str(value) for value in each] == [
        "changed a/1",
        "deleted a/1",
        "in 1 s: batch 0",
        "in 1 us: save while nothing changes",
        "handle 2 changed of a (batch 0)",
    ]


STREAM: Final[Any] = change_stream


@pytest.mark.parametrize(
    "construct",
    [
        lambda: STREAM.After([1]),
        lambda: STREAM.From({"a": 1}),
        lambda: STREAM.DocumentChange("", 1),
        lambda: STREAM.DocumentChange("a", object()),
        lambda: STREAM.DocumentChange("a", 1, is_gone=1),
        lambda: STREAM.Page([], START),
        lambda: STREAM.Page(("a",), START),
        lambda: STREAM.Page((), "t0"),
    ],
)
def test_what_means_nothing_is_refused(construct: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        _ = construct()


def test_positions_are_compared_exactly() -> None:
    assert After(Document.of({"_data": "82"})) == After(Document.of({"_data": "82"}))
    assert After(1) != After(1.0)
