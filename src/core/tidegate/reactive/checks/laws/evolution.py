"""The laws of `tidegate.reactive.planning.evolution`."""

from __future__ import annotations

from tidegate.model.documents import exactly
from tidegate.reactive.planning.evolution import (
    STATUSES,
    Action,
    Definition,
    EvolutionPolicy,
    ForgetReconciled,
    Remember,
    Reprocess,
)


def leaves_nothing_to_do(again: tuple[Action, ...]) -> bool:
    """Law RE31: after all actions there is nothing left to do."""
    return again == ()


def asks_again_after_a_crash(actions: tuple[Action, ...], carried_out: int, again: tuple[Action, ...]) -> bool:
    """Law RE32: after this many actions, at least the others are required again."""
    return set(actions[carried_out:]) <= set(again)


def never_goes_back(stored: Definition | None, current: Definition, actions: tuple[Action, ...]) -> bool:
    """Law RE33: the stored definition has the deployed trigger, and the highest version so far."""
    known = stored_after(stored, actions)
    highest = max(current.version, 1 if stored is None else stored.version)
    return known is not None and (exactly(known.trigger), known.version) == (exactly(current.trigger), highest)


def does_no_more_than_asked(
    stored: Definition | None, current: Definition, policy: EvolutionPolicy, actions: tuple[Action, ...]
) -> bool:
    """Law RE34: records run again for a higher version by the policy, documents for another
    trigger.
    """
    is_higher = current.version > (1 if stored is None else stored.version)
    statuses = STATUSES[policy.on_new_version] if is_higher else frozenset()
    is_another = stored is None or (policy.reconciles and exactly(stored.trigger) != exactly(current.trigger))
    reset = [action.statuses for action in actions if isinstance(action, Reprocess)]
    return reset == [statuses] * bool(statuses) and (ForgetReconciled() in actions) == is_another


def stored_after(stored: Definition | None, actions: tuple[Action, ...]) -> Definition | None:
    """The stored definition after these actions."""
    remembered = [action.definition for action in actions if isinstance(action, Remember)]
    return remembered[-1] if remembered else stored
