from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import refuses_wrong_types
from tests.properties.lawbook import bug, planted

from tidegate.model import history as memory
from tidegate.model.checks.laws import history as laws
from tidegate.model.checks.strategies.history import histories, outcomes
from tidegate.model.errors import Misuse
from tidegate.model.history import HISTORY_MAX, Change, Forgotten, NotYet, RequestOutcome, Superseded, Won, outcome_of


@attrs.frozen
class Past:
    changes: tuple[Change, ...]
    history: tuple[Change, ...]
    decided_version: int
    request_id: str

    def answer(self) -> RequestOutcome:
        return outcome_of(len(self.changes), self.history, self.decided_version, self.request_id)


def changes_by(request_ids: Iterable[str]) -> tuple[Change, ...]:
    return tuple(Change(version, request_id, "free") for version, request_id in enumerate(request_ids, 1))


THREE = changes_by(["q1", "q2", "q3"])
TWENTY = changes_by(f"q{version}" for version in range(1, 21))


@st.composite
def pasts(draw: st.DrawFn, *, unbroken: bool = False) -> Past:
    changes = draw(histories())
    history = changes[-HISTORY_MAX:]
    if history and not unbroken and draw(st.booleans()):
        missing = draw(st.integers(0, len(history) - 1))
        history = history[:missing] + history[missing + 1 :]
    behind = st.sampled_from([0, 1, HISTORY_MAX, HISTORY_MAX + 1]) | st.integers(-2, 2 * HISTORY_MAX)
    decided = max(0, len(changes) - draw(behind))
    return Past(changes, history, decided, draw(st.sampled_from(["q1", "q2", "q3"])))


@given(pasts())
@example(Past(THREE, THREE[::2], 1, "q2"))
@example(Past(THREE, THREE, 1, "q2"))
def test_the_answer_about_a_request_is_true(past: Past) -> None:
    """Law H1, by the full history; also with a gap."""
    outcome = past.answer()

    assert laws.the_answer_is_true(outcome, past.changes, past.decided_version, past.request_id)


@given(pasts(unbroken=True))
@example(Past(TWENTY, TWENTY[-HISTORY_MAX:], 20 - HISTORY_MAX, "q5"))
def test_the_last_versions_are_remembered(past: Past) -> None:
    """Law H2: exactly the last HISTORY_MAX versions, and the next one."""
    outcome = past.answer()

    assert laws.the_last_versions_are_remembered(outcome, len(past.changes), past.decided_version)


MADE = "history[decided_version + 1 - oldest]"
FORGOTTEN = "<= record_version:\n        return Forgotten()"

test_a_planted_bug_is_found = planted(
    memory,
    # An absent id counts as lost.
    bug(
        "the forgotten has lost",
        (FORGOTTEN, f"{FORGOTTEN.removesuffix('Forgotten()')}Superseded(history[0]) if history else Forgotten()"),
        test_the_answer_about_a_request_is_true,
    ),
    # It mistakes an earlier attempt of the request for this one.
    bug(
        "its id is found anywhere",
        (
            "    made = ",
            "    for each in history:\n        if each.request_id == request_id:\n            return Won(each.version)\n    made = ",
        ),
        test_the_answer_about_a_request_is_true,
    ),
    # As if no other write could follow.
    bug("only the last version is asked", (MADE, "history[-1]"), test_the_answer_about_a_request_is_true),
    # One version too early.
    bug(
        "the version decided on is looked at", (MADE, "history[max(0, decided_version - oldest)]"),
        test_the_answer_about_a_request_is_true,
    ),
    # By position in the history, gap or not.
    bug(
        "counted from the end",
        ("if any(change.version != version for version, change in enumerate(history, oldest)):", "if False:"),
        test_the_answer_about_a_request_is_true,
    ),
    # No change after the expected version is found, so none was made.
    bug(
        "any silence is trusted", (FORGOTTEN, FORGOTTEN.replace("Forgotten", "NotYet")),
        test_the_answer_about_a_request_is_true,
    ),
    # The window is one short.
    bug(
        "one is forgotten too early", ("if not oldest <= decided", "if not oldest < decided"),
        test_the_last_versions_are_remembered,
    ),
)  # fmt: skip


def test_both_sides_of_what_a_record_remembers() -> None:
    """Version 20 remembers 5 to 20."""
    history = TWENTY[-HISTORY_MAX:]

    assert [change.version for change in history] == list(range(5, 21))
    assert outcome_of(20, history, 4, "q5") == Won(5)
    assert outcome_of(20, history, 4, "mine") == Superseded(Change(5, "q5", "free"))
    assert outcome_of(20, history, 3, "q4") == Forgotten()
    assert outcome_of(20, history, 19, "q20") == Won(20)
    assert outcome_of(20, history, 20, "mine") == NotYet()
    assert outcome_of(20, history, 21, "mine") == Forgotten()
    assert str(TWENTY[4]) == "version 5: 'free' by request 'q5'"


def test_a_record_that_is_not_there_yet_has_version_0() -> None:
    """Once another has created it, the late request never will."""
    assert outcome_of(0, (), 0, "mine") == NotYet()
    assert outcome_of(1, changes_by(["mine"]), 0, "mine") == Won(1)
    assert outcome_of(1, changes_by(["q"]), 0, "mine") == Superseded(Change(1, "q", "free"))


@pytest.mark.parametrize(
    "history",
    [
        changes_by("abc")[:2],
        changes_by("abc")[:1] + changes_by("abc")[2:],
        changes_by("abcd"),
        changes_by("abc")[::-1],
        (*changes_by("abc"), changes_by("abc")[2]),
    ],
    ids=["behind", "gap", "ahead", "backwards", "twice"],
)
def test_a_history_that_does_not_fit_its_record_remembers_nothing(history: tuple[Change, ...]) -> None:
    assert outcome_of(3, history, 2, "c") == Forgotten()
    assert outcome_of(3, history, 2, "mine") == Forgotten()
    assert outcome_of(3, history, 3, "mine") == Forgotten()


# --- bad input, and the strategies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", 7, b"r1"])
def test_a_name_is_a_string_that_is_not_empty(name: str) -> None:
    for wrong in (
        lambda: Change(1, name, "free"),
        lambda: Change(1, "q", name),
        lambda: outcome_of(0, (), 0, name),
    ):
        with pytest.raises(Misuse, match="the name of "):
            _ = wrong()


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", None])
def test_a_version_is_a_natural_number(number: int) -> None:
    for wrong in (
        lambda: Change(number, "q", "free"),
        lambda: outcome_of(number, (), 0, "q"),
        lambda: outcome_of(0, (), number, "q"),
    ):
        with pytest.raises(Misuse, match=r"the version .* must be"):
            _ = wrong()


CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Change": (Change, {"version": 1, "request_id": "q", "status": "free"}),
    "outcome_of": (
        outcome_of,
        {"record_version": 1, "history": changes_by("q"), "decided_version": 0, "request_id": "q"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_meet_misuse_and_nothing_else(name: str) -> None:
    refuses_wrong_types(*CALLS[name])


@given(histories())
def test_the_changes_of_a_history_begin_at_version_1(changes: tuple[Change, ...]) -> None:
    assert [change.version for change in changes] == list(range(1, len(changes) + 1))


@pytest.mark.parametrize("case", get_args(RequestOutcome))
def test_every_outcome_is_drawn(case: type[RequestOutcome]) -> None:
    must_draw(outcomes(), lambda outcome: isinstance(outcome, case))
