from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import get_args

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.hostile import HOSTILE, refuses_wrong_types
from tests.properties.lawbook import bug, planted

from tidegate.invocations.checks.laws import status as laws
from tidegate.invocations.checks.strategies.status import (
    may_lack_an_owner,
    runner_ids,
    status_definitions,
    status_records,
    status_tables,
    transitions,
)
from tidegate.invocations.record import status
from tidegate.invocations.record.status import (
    Accepted,
    Added,
    NoRunner,
    NotAllowed,
    NotOwner,
    StatusDefinition,
    StatusRecord,
    StatusTable,
    TransitionVerdict,
    decide_transition,
)
from tidegate.model.errors import Misuse


class Shade(StrEnum):
    X = "x"


FREE = StatusDefinition("free", {"taken", "gone"}, available=True, releases_owner=True)
TAKEN = StatusDefinition("taken", {"free", "kept", "seized"}, acquires_owner=True, requires_owner=True)
KEPT = StatusDefinition("kept", {"free", "gone"}, requires_owner=True)
SEIZED = StatusDefinition("seized", {"free"}, releases_owner=True, overrides_owner=True)
GONE = StatusDefinition("gone", final=True, releases_owner=True)
TABLE = StatusTable({"free"}, (FREE, TAKEN, KEPT, SEIZED, GONE))
TAKEN_AT_ONCE = StatusTable({"taken"}, (StatusDefinition("taken", acquires_owner=True, final=True),))


# --- random tables, and random lives of a record ----------------------------------------------------------------------


@attrs.frozen
class Life:
    table: StatusTable
    commands: tuple[tuple[int, str | None], ...]

    def steps(self) -> list[tuple[StatusRecord | None, StatusRecord, str | None]]:
        steps: list[tuple[StatusRecord | None, StatusRecord, str | None]] = []
        record: StatusRecord | None = None
        for command, runner in self.commands:
            likely = sorted(self.table.following(None if record is None else record.status))
            statuses = [*likely, *(each.status for each in self.table.definitions)]
            verdict = decide_transition(self.table, record, statuses[command % len(statuses)], runner)
            if isinstance(verdict, Accepted):
                after = verdict.record
                steps.append((record, after, runner))
                record = after
        return steps


lives = st.builds(
    Life,
    status_tables() | st.just(TABLE),
    st.lists(st.tuples(st.integers(0, 59), runner_ids()), max_size=20).map(tuple),
)


# --- the laws of a transition -----------------------------------------------------------------------------------------


@given(lives)
def test_nothing_leaves_a_final_status(life: Life) -> None:
    """Law S1."""
    assert all(laws.nothing_leaves_a_final_status(life.table, *step[:2]) for step in life.steps())


@given(lives)
@example(Life(TAKEN_AT_ONCE, ((0, None),)))
@example(Life(TABLE, ((0, None), (1, "r1"), (0, "r1"))))
def test_a_record_is_owned_as_its_status_says(life: Life) -> None:
    """Law S2."""
    assert all(laws.owned_as_the_table_says(life.table, after) for _, after, _ in life.steps())


@given(lives)
@example(Life(TABLE, ((0, None), (1, "r1"), (1, "r2"))))
def test_only_the_owner_leaves_a_status_that_requires_it(life: Life) -> None:
    """Law S3."""
    assert all(laws.only_the_owner_leaves(life.table, *step) for step in life.steps())


@given(lives)
def test_each_transition_makes_one_version(life: Life) -> None:
    """Law S4."""
    assert all(laws.each_change_makes_one_version(*step[:2]) for step in life.steps())


@given(lives)
def test_only_edges_of_the_table_are_taken(life: Life) -> None:
    """Law S5."""
    assert all(laws.only_edges_are_taken(life.table, *step[:2]) for step in life.steps())


test_a_planted_bug_is_found = planted(
    status,
    bug(
        "a record in a final status is taken for none",
        ("current = None if record is None else record.status", "current = None if record is None or table[record.status].final else record.status"),
        test_nothing_leaves_a_final_status,
    ),
    bug("it keeps what it should release", ("    elif entered.releases_owner:\n        owner = None\n", ""), test_a_record_is_owned_as_its_status_says),
    bug(
        "nobody acquires",  # pynenc's rule 2: a new record, or a target that overrides, needs no runner
        ("        if runner is None:\n            return NoRunner(current, target)\n", ""),
        test_a_record_is_owned_as_its_status_says,
    ),
    bug("the owner is not checked", ("(runner is None or runner != owner)", "False"), test_only_the_owner_leaves_a_status_that_requires_it),
    bug("the version is not raised", ("else record.version + 1", "else record.version"), test_each_transition_makes_one_version),
    bug("edges are not looked at", ("if target not in allowed", "if False"), test_only_edges_of_the_table_are_taken),
)  # fmt: skip


# --- the rules, one by one --------------------------------------------------------------------------------------------


def by_the_rules(table: StatusTable, record: StatusRecord | None, target: str, runner: str | None) -> TransitionVerdict:
    by_name = {each.status: each for each in table.definitions}
    current = record.status if record else None
    allowed = table.initial if current is None else by_name[current].targets if current in by_name else frozenset[str]()
    rule_1 = target in allowed
    if not rule_1:
        return NotAllowed(current, target, allowed)
    rule_2 = record is None or by_name[target].overrides_owner
    rule_3 = (
        record is None or not by_name[record.status].requires_owner or (runner == record.owner and runner is not None)
    )
    if record is not None and not rule_2 and not rule_3:
        return NotOwner(record.status, target, record.owner, runner)
    rule_4 = runner is not None or not by_name[target].acquires_owner
    if not rule_4:
        return NoRunner(current, target)
    owner = record.owner if record else None
    owner = runner if by_name[target].acquires_owner else owner
    owner = None if by_name[target].releases_owner else owner
    return Accepted(target, owner, record.version + 1 if record else 1)


@given(status_tables(), st.integers(1, 9), runner_ids(), runner_ids())
@example(TABLE, 1, None, None)
def test_the_decision_is_total_and_agrees_with_a_dumb_twin(
    table: StatusTable, version: int, owner: str | None, runner: str | None
) -> None:
    statuses = [*(each.status for each in table.definitions), "elsewhere"]
    records = [None, *(StatusRecord(status, owner, version) for status in statuses)]

    for record in records:
        for target in statuses:
            assert by_the_rules(table, record, target, runner) == decide_transition(table, record, target, runner)


@pytest.mark.parametrize(
    ("record", "target", "runner", "verdict", "text"),
    [
        (None, "free", None, Accepted("free", None, 1), "accepted: 'free' at version 1"),
        (
            StatusRecord("free", None, 4),
            "taken",
            "r1",
            Accepted("taken", "r1", 5),
            "accepted: 'taken' of 'r1' at version 5",
        ),
        (
            StatusRecord("free", None, 1),
            "seized",
            "r1",
            NotAllowed("free", "seized", frozenset({"taken", "gone"})),
            "not allowed: 'free' may become 'gone', 'taken', not 'seized'",
        ),
        (
            None,
            "gone",
            "r1",
            NotAllowed(None, "gone", frozenset({"free"})),
            "not allowed: a new record may become 'free', not 'gone'",
        ),
        (
            StatusRecord("gone", None, 2),
            "free",
            "r1",
            NotAllowed("gone", "free", frozenset()),
            "not allowed: 'gone' may become nothing, not 'free'",
        ),
        (
            StatusRecord("taken", "r1", 2),
            "kept",
            "r2",
            NotOwner("taken", "kept", "r1", "r2"),
            "not the owner: 'taken' of 'r1' may not become 'kept' by 'r2'",
        ),
        (
            StatusRecord("free", None, 2),
            "taken",
            None,
            NoRunner("free", "taken"),
            "no runner: 'free' may become 'taken' only by a runner",
        ),
        (
            StatusRecord("taken", "r1", 2),
            "seized",
            "r2",
            Accepted("seized", None, 3),
            "accepted: 'seized' at version 3",
        ),
    ],
)
def test_a_verdict_says_what_and_why(
    record: StatusRecord | None, target: str, runner: str | None, verdict: TransitionVerdict, text: str
) -> None:
    assert decide_transition(TABLE, record, target, runner) == verdict
    assert str(verdict) == text


def test_nobody_is_not_an_owner() -> None:
    broken = StatusRecord("taken", None, 3)

    assert decide_transition(TABLE, broken, "kept", None) == NotOwner("taken", "kept", None, None)
    assert decide_transition(TABLE, broken, "seized", None) == Accepted("seized", None, 4)


def test_a_new_record_that_is_acquired_needs_a_runner() -> None:
    """Law S2 over pynenc's rule 2, which allows it where there is no record."""
    assert decide_transition(TAKEN_AT_ONCE, None, "taken", None) == NoRunner(None, "taken")
    assert decide_transition(TAKEN_AT_ONCE, None, "taken", "r1") == Accepted("taken", "r1", 1)


# --- tables that make no sense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: StatusDefinition("x", acquires_owner=True, releases_owner=True), "acquires and releases"),
        (lambda: StatusDefinition("x", requires_owner=True, overrides_owner=True), "requires its owner and overrides"),
        (lambda: StatusDefinition("x", {"y"}, final=True), "final, yet 'y' may follow"),
        (lambda: StatusDefinition("x", {"x"}), "may follow itself"),
        (lambda: StatusDefinition(""), "cannot name a status"),
        (lambda: StatusTable({"x"}, (StatusDefinition("x", {"y", "z"}),)), "no definition of 'y', 'z'"),
        (lambda: StatusTable({"y"}, (StatusDefinition("x"),)), "no definition of 'y'"),
        (lambda: StatusTable({Shade.X}, (StatusDefinition("x"),)), "cannot name a status"),
        (lambda: StatusTable({"x"}, (StatusDefinition("x"), StatusDefinition("x"))), "defined twice: 'x', 'x'"),
        (lambda: StatusTable({"x"}, (StatusDefinition("x"), StatusDefinition("y", {"x"}))), "nothing leads to 'y'"),
        (lambda: StatusTable(set[str](), (StatusDefinition("x"),)), "nothing leads to 'x'"),
        (lambda: StatusTable({"x"}, (StatusDefinition("x", requires_owner=True),)), "entered without one"),
        (lambda: TABLE["elsewhere"], "no status 'elsewhere'"),
        (lambda: StatusDefinition("x", {"y"}, added=(Added("z", "so"),)), "'z' cannot be the edges added to 'x'"),
        (lambda: StatusDefinition("x", {"y"}, added=(Added("y", "so"),) * 2), "'y', 'y' cannot be the edges added"),
        (lambda: Added("y", ""), "the name of the reason of an edge must be"),
        (lambda: Added("", "so"), "cannot name a status"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(wrong: Callable[[], object], complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint):
        _ = wrong()


@given(status_tables())
def test_an_added_edge_is_an_edge_like_any_other(table: StatusTable) -> None:
    plain = StatusTable(table.initial, tuple(attrs.evolve(each, added=()) for each in table.definitions))

    assert all({edge.target for edge in each.added} <= each.targets for each in table.definitions)
    for current in (None, *(StatusRecord(each.status, "r1", 1) for each in table.definitions)):
        for each in table.definitions:
            expected = decide_transition(plain, current, each.status, "r1")

            assert expected == decide_transition(table, current, each.status, "r1")


@given(status_definitions())
def test_a_table_is_refused_exactly_if_a_required_owner_may_be_missing(drawn: tuple[StatusDefinition, ...]) -> None:
    lacking = may_lack_an_owner({"s0"}, drawn)
    stuck = any(each.requires_owner for each in drawn if each.status in lacking)

    if stuck:
        with pytest.raises(Misuse, match="entered without one"):
            _ = StatusTable({"s0"}, drawn)
    else:
        assert StatusTable({"s0"}, drawn).definitions == drawn


def test_a_table_is_a_value() -> None:
    again = StatusTable(["free"], tuple(attrs.evolve(each, targets=sorted(each.targets)) for each in TABLE.definitions))

    assert again == TABLE
    assert hash(again) == hash(TABLE)


@pytest.mark.parametrize("name", ["", 7, b"r1"])
def test_a_name_is_a_string_that_is_not_empty(name: str) -> None:
    for wrong in (
        lambda: decide_transition(TABLE, None, "free", name),
        lambda: decide_transition(TABLE, None, name, "r1"),
        lambda: StatusRecord(name, None, 1),
        lambda: StatusRecord("taken", name, 1),
    ):
        with pytest.raises(Misuse, match=r"the name of a (runner|status) must be"):
            _ = wrong()


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", None])
def test_a_version_is_a_natural_number(number: int) -> None:
    with pytest.raises(Misuse, match="the version of a record must be"):
        StatusRecord("free", None, number)
    assert StatusRecord("free", None, 0).version == 0


# --- bad input, and the strategies --------------------------------------------------------------------------------------

FLAGS = ["final", "available", "requires_owner", "acquires_owner", "releases_owner", "overrides_owner", "added"]
CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Added": (Added, {"target": "x", "why": "so"}),
    "StatusDefinition": (StatusDefinition, {"status": "x", "targets": {"y"}, **dict.fromkeys(FLAGS[:-1], False)}),
    "StatusDefinition, added": (StatusDefinition, {"status": "x", "added": ()}),
    "StatusTable": (StatusTable, {"initial": {"free"}, "definitions": TABLE.definitions}),
    "StatusRecord": (StatusRecord, {"status": "free", "owner": None, "version": 1}),
    "decide_transition": (
        decide_transition,
        {"table": TABLE, "record": StatusRecord("free", None, 1), "target": "taken", "runner": "r1"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_meet_misuse_and_nothing_else(name: str) -> None:
    refuses_wrong_types(*CALLS[name])


def test_what_the_table_does_not_know_has_no_edges() -> None:
    for hostile in HOSTILE[1:]:
        assert TABLE.following(hostile) == frozenset()  # type: ignore[arg-type]


@given(status_tables(), st.data())
def test_a_record_of_a_table_is_in_one_of_its_statuses(table: StatusTable, data: st.DataObject) -> None:
    record = data.draw(status_records(table))

    assert table[record.status].status == record.status


@pytest.mark.parametrize("case", get_args(TransitionVerdict))
def test_every_verdict_is_drawn(case: type[TransitionVerdict]) -> None:
    must_draw(transitions(), lambda verdict: isinstance(verdict, case))
