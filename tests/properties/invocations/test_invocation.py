from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.invocations.checks.laws import status as laws
from tidegate.invocations.record import invocation
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import (
    Accepted,
    NoRunner,
    NotAllowed,
    NotOwner,
    StatusRecord,
    StatusTable,
    decide_transition,
)

DESCRIBED = """
registered                   | -  | Y | -  | -  | Rl | -  | pending, concurrency_controlled, concurrency_controlled_final
concurrency_controlled       | -  | - | -  | -  | Rl | -  | rerouted
rerouted                     | -  | Y | -  | -  | Rl | -  | pending, concurrency_controlled
pending                      | -  | - | Rq | Aq | -  | -  | running, killed, rerouted, pending_recovery
pending_recovery             | -  | - | -  | -  | Rl | Ov | rerouted
running                      | -  | - | Rq | -  | -  | -  | paused, killed, retry, success, failed, running_recovery
running_recovery             | -  | - | -  | -  | Rl | Ov | rerouted
paused                       | -  | - | Rq | -  | -  | -  | running, killed
killed                       | -  | - | -  | -  | Rl | -  | rerouted
retry                        | -  | Y | -  | -  | Rl | -  | pending
success                      | F  | - | -  | -  | Rl | -  |
failed                       | F  | - | -  | -  | Rl | -  |
concurrency_controlled_final | F  | - | -  | -  | Rl | -  |
"""
"""pynenc 0.3: final, available, requires, acquires, releases, overrides, next statuses."""

OURS = {
    ("rerouted", "concurrency_controlled_final"),
    ("paused", "running_recovery"),
    ("retry", "concurrency_controlled"),
    ("retry", "concurrency_controlled_final"),
}
OPEN = ("registered", "rerouted", "retry", "pending", "running", "paused", "killed", "concurrency_controlled")
DIRECT = {
    *((available, "running") for available in ("registered", "rerouted", "retry")),
    *((owned, "rerouted") for owned in ("running", "paused")),
    *((status, "cancelled") for status in (*OPEN, "pending_recovery", "running_recovery")),
}
CANCELLED = "cancelled | F | - | - | - | Rl | Ov |"

STATUSES = [definition.status for definition in INVOCATION.definitions]
OWNED = {"pending", "running", "paused"}


def described(more: str = "") -> dict[str, tuple[tuple[bool, ...], set[str]]]:
    rows = [
        [cell.strip() for cell in line.split("|")] for line in [*DESCRIBED.strip().splitlines(), *more.splitlines()]
    ]
    return {row[0]: (tuple(cell != "-" for cell in row[1:7]), set(filter(None, row[7].split(", ")))) for row in rows}


def ours() -> dict[str, tuple[tuple[bool, ...], set[str]]]:
    found = {
        status: (flags, targets | {target for source, target in OURS | DIRECT if source == status})
        for status, (flags, targets) in described(CANCELLED).items()
    }
    final, available, requires, _, releases, overrides = found["running"][0]
    return {**found, "running": ((final, available, requires, True, releases, overrides), found["running"][1])}


def after(*moves: tuple[str, str | None]) -> StatusRecord:
    record: StatusRecord | None = None
    for target, runner in moves:
        verdict = decide_transition(INVOCATION, record, target, runner)
        assert isinstance(verdict, Accepted)
        record = verdict.record
    assert record is not None
    return record


REGISTERED = after(("registered", None))
PENDING = after(("registered", None), ("pending", "r1"))
RUNNING = after(("registered", None), ("pending", "r1"), ("running", "r1"))
SUCCESS = after(("registered", None), ("pending", "r1"), ("running", "r1"), ("success", "r1"))


def test_the_table_is_the_described_one_but_for_what_is_marked_as_added() -> None:
    expected = {
        status: (flags, described()[status][1]) for status, (flags, _) in ours().items() if status != "cancelled"
    }
    table = {
        each.status: (
            (
                each.final,
                each.available,
                each.requires_owner,
                each.acquires_owner,
                each.releases_owner,
                each.overrides_owner,
            ),
            set(each.targets) - {edge.target for edge in each.added},
        )
        for each in INVOCATION.definitions
        if each.status != "cancelled"
    }

    assert table == expected
    assert INVOCATION.initial == {"registered"}


def test_our_edges_are_marked_with_their_reasons() -> None:
    """A dead owner's paused one, a refused one that runs again, and saved writes."""
    added = {(each.status, edge.target): edge.why for each in INVOCATION.definitions for edge in each.added}

    assert added.keys() == OURS | DIRECT
    assert all("refused" in why or "die" in why for edge, why in added.items() if edge in OURS)


@pytest.mark.parametrize("status", sorted({source for source, target in DIRECT if target == "cancelled"}))
@pytest.mark.parametrize("runner", [None, "r1", "r2"])
def test_whatever_is_not_final_is_cancelled_by_anybody(status: str, runner: str | None) -> None:
    record = StatusRecord(status, "r1" if status in OWNED else None, 7)

    assert decide_transition(INVOCATION, record, "cancelled", runner) == Accepted("cancelled", None, 8)


@pytest.mark.parametrize("status", ["registered", "rerouted", "retry"])
def test_what_is_available_begins_in_one_write(status: str) -> None:
    record = StatusRecord(status, None, 7)

    assert decide_transition(INVOCATION, record, "running", "r1") == Accepted("running", "r1", 8)
    assert decide_transition(INVOCATION, record, "running", None) == NoRunner(status, "running")


@pytest.mark.parametrize("status", ["running", "paused"])
def test_an_owner_gives_back_in_one_write(status: str) -> None:
    record = StatusRecord(status, "r1", 7)

    assert decide_transition(INVOCATION, record, "rerouted", "r1") == Accepted("rerouted", None, 8)
    assert decide_transition(INVOCATION, record, "rerouted", "r2") == NotOwner(status, "rerouted", "r1", "r2")


@pytest.mark.parametrize(("source", "target"), sorted(OURS))
@pytest.mark.parametrize("runner", [None, "r2"])
def test_our_edges_are_open_to_anybody_and_leave_no_owner(source: str, target: str, runner: str | None) -> None:
    owner = "r1" if source in OWNED else None

    assert decide_transition(INVOCATION, StatusRecord(source, owner, 7), target, runner) == Accepted(target, None, 8)


def test_without_our_edges_a_paused_invocation_is_stuck_and_a_blocked_retry_has_no_way_on() -> None:
    """Pynenc's table denies the moves that its recovery and its concurrency control need then."""
    table = StatusTable(
        INVOCATION.initial,
        tuple(
            attrs.evolve(each, targets=each.targets - {edge.target for edge in each.added}, added=())
            for each in INVOCATION.definitions
            if each.status != "cancelled"
        ),
    )

    for source, target in OURS:
        verdict = decide_transition(table, StatusRecord(source, "r1" if source in OWNED else None, 7), target, None)

        assert isinstance(verdict, NotAllowed)


def test_every_status_has_its_constant() -> None:
    constants = {value for name, value in vars(invocation).items() if name.isupper() and isinstance(value, str)}

    assert constants == set(STATUSES)
    assert all(getattr(invocation, status.upper()) == status and type(status) is str for status in STATUSES)


@pytest.mark.parametrize("runner", [None, "r1", "r2"])
@pytest.mark.parametrize("owner", [None, "r1"])
def test_every_move_is_answered_as_described(owner: str | None, runner: str | None) -> None:
    table = ours()
    for current in (None, *STATUSES):
        for target in STATUSES:
            record = None if current is None else StatusRecord(current, owner, 7)
            verdict = decide_transition(INVOCATION, record, target, runner)
            _, _, _, acquires, releases, overrides = table[target][0]
            requires = current is not None and table[current][0][2]
            if target not in (table[current][1] if current else {"registered"}):
                assert isinstance(verdict, NotAllowed)
            elif current and requires and not overrides and (runner is None or runner != owner):
                assert verdict == NotOwner(current, target, owner, runner)
            elif acquires and runner is None:
                assert verdict == NoRunner(current, target)
            else:
                kept = owner if current else None
                expected = runner if acquires else None if releases else kept
                assert verdict == Accepted(target, expected, 8 if current else 1)


@given(st.lists(st.tuples(st.sampled_from(STATUSES), st.sampled_from([None, "r1", "r2"])), max_size=60))
def test_an_invocation_is_owned_exactly_while_pending_running_or_paused(moves: list[tuple[str, str | None]]) -> None:
    """Law S2 for this table."""
    record = REGISTERED
    for target, runner in moves:
        verdict = decide_transition(INVOCATION, record, target, runner)
        if isinstance(verdict, Accepted):
            record = verdict.record

        assert (record.owner is not None) is (record.status in OWNED)
        assert laws.owned_as_the_table_says(INVOCATION, record)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("owner", [None, "r1"])
def test_the_table_alone_says_who_is_owned(status: str, owner: str | None) -> None:
    owned = laws.owned_as_the_table_says(INVOCATION, StatusRecord(status, owner, 1))

    assert owned is ((owner is not None) is (status in OWNED))


# --- the edge cases of pynenc -----------------------------------------------------------------------------------------


def test_a_new_invocation_does_not_run() -> None:
    """Pynenc, case 1."""
    assert decide_transition(INVOCATION, None, "running", "r1") == NotAllowed(
        None, "running", frozenset({"registered"})
    )


def test_a_registered_invocation_does_not_succeed() -> None:
    """Pynenc, case 2."""
    assert isinstance(decide_transition(INVOCATION, REGISTERED, "success", "r1"), NotAllowed)


def test_only_its_owner_runs_a_pending_invocation() -> None:
    """Pynenc, case 3."""
    assert decide_transition(INVOCATION, PENDING, "running", "r2") == NotOwner("pending", "running", "r1", "r2")
    assert decide_transition(INVOCATION, PENDING, "running", "r1") == Accepted("running", "r1", 3)


def test_nobody_cannot_pick_up_an_invocation() -> None:
    """Pynenc, case 4."""
    assert decide_transition(INVOCATION, REGISTERED, "pending", None) == NoRunner("registered", "pending")


def test_anybody_recovers_a_pending_invocation() -> None:
    """Pynenc, case 5."""
    recovered = after(("registered", None), ("pending", "r1"), ("pending_recovery", "r2"))

    assert recovered == StatusRecord("pending_recovery", None, 3)
    assert [decide_transition(INVOCATION, recovered, "rerouted", runner) for runner in (None, "r1", "r3")] == [
        Accepted("rerouted", None, 4)
    ] * 3


def test_a_running_invocation_has_its_own_recovery() -> None:
    """Not even its owner moves it to pending_recovery (pynenc, case 6)."""
    assert isinstance(decide_transition(INVOCATION, RUNNING, "pending_recovery", "r1"), NotAllowed)


@pytest.mark.parametrize("target", STATUSES)
def test_nothing_follows_success(target: str) -> None:
    """Pynenc, case 7."""
    assert decide_transition(INVOCATION, SUCCESS, target, "r1") == NotAllowed("success", target, frozenset())


def test_only_the_owner_succeeds() -> None:
    """Pynenc, case 8."""
    assert decide_transition(INVOCATION, RUNNING, "success", "r2") == NotOwner("running", "success", "r1", "r2")
    assert decide_transition(INVOCATION, RUNNING, "success", "r1") == Accepted("success", None, 4)


def test_of_two_who_pick_it_up_one_wins() -> None:
    """Pynenc, case 9."""
    stored = REGISTERED
    winners: list[str] = []
    decisions = {runner: decide_transition(INVOCATION, REGISTERED, "pending", runner) for runner in ("r1", "r2")}
    for runner, verdict in decisions.items():
        assert isinstance(verdict, Accepted)
        if stored == REGISTERED:
            stored = verdict.record
            winners.append(runner)

    assert winners == ["r1"]
    assert isinstance(decide_transition(INVOCATION, stored, "pending", "r2"), NotAllowed)


def test_records_do_not_change() -> None:
    """Pynenc, case 10."""
    with pytest.raises(AttributeError):
        REGISTERED.status = "pending"  # type: ignore[misc]
