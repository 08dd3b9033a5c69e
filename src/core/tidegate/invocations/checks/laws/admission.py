"""The laws of `tidegate.invocations.limits.admission`, and IR4 of `registration`, as predicates over records, decisions and calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from tidegate.invocations.limits.admission import (
    Admitted,
    AlreadyAdmitted,
    Ask,
    Call,
    Control,
    Differs,
    NoFreePlace,
    NotThere,
    Place,
    RegistrationVerdict,
    Released,
    Reservation,
    Reuse,
    Rule,
    RunningVerdict,
    StillHeld,
)
from tidegate.invocations.record.invocation import CONCURRENCY_CONTROLLED, PAUSED, PENDING, REGISTERED, RUNNING
from tidegate.invocations.record.status import Accepted, StatusRecord, StatusTable, decide_transition

_AdmissionVerdict: TypeAlias = RegistrationVerdict | RunningVerdict


def no_more_run(records: Iterable[StatusRecord], at_most: int) -> bool:
    """Law AD1: at most `at_most` invocations of one set are pending, running or paused at any time."""
    return sum(record.status in {PENDING, RUNNING, PAUSED} for record in records) <= at_most


def no_more_are_registered(records: Iterable[StatusRecord]) -> bool:
    """Law AD2: at most one invocation of one set is registered at any time."""
    return sum(record.status == REGISTERED for record in records) <= 1


def answered_by_who_waits(verdict: RegistrationVerdict, waiting: Collection[str]) -> bool:
    """Law AD9: a call that knows the records of the slots' holders is admitted only if none of them
    waits to run.

    Args:
        verdict: The verdict for the call.
        waiting: The ids of holders that wait.
    """
    return not (waiting and isinstance(verdict, Admitted))


def leaves_nothing_behind(key: str, answered_by: str, left: Collection[str]) -> bool:
    """Law IR4: a call that gets an earlier invocation has stored nothing.

    Args:
        key: The id made for the call.
        answered_by: The id in its answer: its own or another.
        left: The ids of all stored documents.
    """
    return key == answered_by or key not in left


def refused_by_those_who_hold(verdict: _AdmissionVerdict, holding: Collection[str], at_most: int) -> bool:
    """Law AD3: a call that knows the holders' records is refused only if enough of them hold a
    slot.

    Args:
        verdict: The verdict with all records known.
        holding: The others that hold a slot, by their records.
        at_most: The number of slots.
    """
    match verdict:
        case Ask():
            return False
        case NoFreePlace() | Reuse() | Differs():
            return len(holding) >= at_most
        case _:
            return True


def asking_again_changes_nothing(again: _AdmissionVerdict) -> bool:
    """Law AD4: an admitted call that asks again at the same version gets the same answer, without a
    change.
    """
    return again == AlreadyAdmitted()


def has_a_way_on(table: StatusTable, record: StatusRecord, verdict: NoFreePlace) -> bool:
    """Law AD5: a refused invocation has a legal transition open to any runner, and may be picked up
    again or ends.
    """
    moved = decide_transition(table, record, verdict.target, None)
    if not isinstance(moved, Accepted):
        return False
    return table[verdict.target].final or (
        verdict.target == CONCURRENCY_CONTROLLED
        and any(table[status].available for status in table[verdict.target].targets)
    )


def share_exactly_if_they_exclude_each_other(
    rule: Rule, call: Call, other: Call, ids: tuple[str | None, str | None]
) -> bool:
    """Law AD6: two calls share a slot document exactly if they exclude each other by the rule."""
    if rule.control is Control.DISABLED:
        return ids == (None, None)
    agree = {
        Control.TASK: True,
        Control.ARGUMENTS: dict(call.arguments) == dict(other.arguments),
        Control.KEYS: all(dict(call.arguments).get(key) == dict(other.arguments).get(key) for key in rule.keys),
    }[rule.control]
    return None not in ids and (ids[0] == ids[1]) is (call.task == other.task and agree)


def takes_away_one_place(
    before: Reservation, place: Place, held: Mapping[Place, bool], answer: Released | StillHeld | NotThere
) -> bool:
    """Law AD7: a release removes the named slot at its version, and only if it is no longer held."""
    match answer:
        case Released(after):
            return (
                place in before.places
                and not held[place]
                and list(after.places) == [each for each in before.places if each != place]
            )
        case StillHeld():
            return place in before.places and held[place]
        case _:
            return place not in before.places


def no_place_goes_back(before: Reservation, verdict: _AdmissionVerdict) -> bool:
    """Law AD8: a slot yields to no earlier version of its own invocation."""
    if not isinstance(verdict, Admitted):
        return True
    versions = {place.invocation: place.version for place in before.places}
    return all(place.version >= versions.get(place.invocation, 0) for place in verdict.reservation.places)
