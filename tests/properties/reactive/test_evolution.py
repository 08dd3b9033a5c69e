from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.reactive.checks.laws import evolution as laws
from tidegate.reactive.checks.strategies.evolution import actions, definitions, evolution_policies
from tidegate.reactive.planning import evolution
from tidegate.reactive.planning.evolution import (
    Action,
    Definition,
    EvolutionPolicy,
    ForgetReconciled,
    OnNewVersion,
    Remember,
    Reprocess,
    evolve,
)
from tidegate.reactive.record.task_records import TaskStatus

NEVER, FAILED, ALL = (EvolutionPolicy(on_new_version=each) for each in OnNewVersion)
NEW: Final = Definition("new", 2)


@given(st.one_of(st.none(), definitions()), definitions(), evolution_policies())
@example(None, NEW, ALL)
def test_re31_nothing_is_left_to_do(stored: Definition | None, current: Definition, policy: EvolutionPolicy) -> None:
    known = laws.stored_after(stored, evolve(stored, current, policy))
    assert laws.leaves_nothing_to_do(evolve(known, current, policy))


@given(st.one_of(st.none(), definitions()), definitions(), evolution_policies(), st.integers(0, 3))
@example(None, NEW, ALL, 1)
@example(None, NEW, ALL, 2)
def test_re32_it_asks_again_after_a_crash(
    stored: Definition | None, current: Definition, policy: EvolutionPolicy, carried_out: int
) -> None:
    actions = evolve(stored, current, policy)
    known = laws.stored_after(stored, actions[:carried_out])
    assert laws.asks_again_after_a_crash(actions, carried_out, evolve(known, current, policy))


@given(st.one_of(st.none(), definitions()), definitions(), evolution_policies())
@example(NEW, Definition("new", 1), ALL)
def test_re33_it_never_goes_back(stored: Definition | None, current: Definition, policy: EvolutionPolicy) -> None:
    assert laws.never_goes_back(stored, current, evolve(stored, current, policy))


@given(st.one_of(st.none(), definitions()), definitions(), evolution_policies())
@example(NEW, Definition("new", 1), ALL)
@example(NEW, Definition("other", 2), EvolutionPolicy(reconciles=False))
def test_re34_no_more_is_done_than_asked(
    stored: Definition | None, current: Definition, policy: EvolutionPolicy
) -> None:
    assert laws.does_no_more_than_asked(stored, current, policy, evolve(stored, current, policy))


test_a_planted_bug_is_found = planted(
    evolution,
    # Every start repeats all of it.
    bug("forgotten", ("    if remembered != stored:\n        actions.append(Remember(remembered))\n", ""), test_re31_nothing_is_left_to_do, test_re33_it_never_goes_back),
    # mongodash: the new definition is stored before documents are processed again.
    bug("remembered first", ("tuple(actions)", "tuple(actions[::-1])"), test_re32_it_asks_again_after_a_crash),
    # The return from a rollback counts as a new version.
    bug("rolled back", ("max(version, current.version)", "current.version"), test_re33_it_never_goes_back),
    bug("any other version", ("if current.version > version", "if current.version != version"), test_re34_no_more_is_done_than_asked),
    bug("whatever the policy", (" and (stored is None or policy.reconciles)", ""), test_re34_no_more_is_done_than_asked),
)  # fmt: skip


def test_a_new_version_runs_again_what_the_policy_says() -> None:
    """mongodash, 31: version 1 to 2 reruns failures, 3 everything finished; default nothing."""
    old, new = Definition("new", 1), Definition("new", 2)

    assert evolve(old, new, NEVER) == (Remember(new),)
    assert evolve(old, new, FAILED) == (Reprocess(frozenset({TaskStatus.FAILED})), Remember(new))
    assert evolve(new, Definition("new", 3), ALL) == (
        Reprocess(frozenset({TaskStatus.FAILED, TaskStatus.COMPLETED})),
        Remember(Definition("new", 3)),
    )
    assert EvolutionPolicy() == NEVER


def test_another_trigger_has_every_document_looked_at() -> None:
    """mongodash, 30 and 32: another filter or projection. Without `reconciles` nothing."""
    old, new = Definition("status = 'A'"), Definition("status in 'AB'")

    assert evolve(old, new, EvolutionPolicy()) == (ForgetReconciled(), Remember(new))
    assert evolve(old, new, EvolutionPolicy(reconciles=False)) == (Remember(new),)
    assert evolve(old, old, EvolutionPolicy()) == ()


def test_a_new_task_is_looked_at_in_every_case() -> None:
    """mongodash, 33: its documents are not known to be processed; its version counts from 1."""
    for policy in (EvolutionPolicy(), EvolutionPolicy(reconciles=False)):
        assert evolve(None, Definition("new"), policy) == (ForgetReconciled(), Remember(Definition("new")))
    assert evolve(None, NEW, FAILED)[0] == Reprocess(frozenset({TaskStatus.FAILED}))


def test_a_task_that_was_stored_without_a_version_has_none() -> None:
    """mongodash: 0 for a known task without one, so its first version is new."""
    assert evolve(Definition("new", 0), Definition("new", 1), FAILED)[0] == Reprocess(frozenset({TaskStatus.FAILED}))


def test_a_rollback_does_nothing() -> None:
    """mongodash: the higher version stays stored, so going forward again does nothing either."""
    assert evolve(NEW, Definition("new", 1), ALL) == ()


def test_triggers_are_compared_exactly() -> None:
    """1 and 1.0 may mean another filter; the cost is one look per document."""
    assert evolve(Definition(1), Definition(1.0), EvolutionPolicy())[0] == ForgetReconciled()
    assert Definition(Document.of({"a": 1})) == Definition(Document.of({"a": 1}))


EVOLUTION: Final[Any] = evolution


@pytest.mark.parametrize(
    "construct",
    [
        lambda: EVOLUTION.Definition([1]),
        lambda: EVOLUTION.Definition({"a": 1}),
        lambda: EVOLUTION.Definition("new", -1),
        lambda: EVOLUTION.Definition("new", "invalid"),
        lambda: EVOLUTION.Definition("new", True),
        lambda: EVOLUTION.EvolutionPolicy(on_new_version="reprocess_all"),
        lambda: EVOLUTION.EvolutionPolicy(reconciles="yes"),
        lambda: EVOLUTION.EvolutionPolicy(reconciles=None),
        lambda: EVOLUTION.evolve("new", NEW, EvolutionPolicy()),
        lambda: EVOLUTION.evolve(None, None, EvolutionPolicy()),
        lambda: EVOLUTION.evolve(None, NEW, None),
    ],
)
def test_what_means_nothing_is_refused(construct: Callable[[], object]) -> None:
    """mongodash, 31: a version that is not a number, a policy that is not one."""
    with pytest.raises(Misuse):
        construct()


@given(actions())
def test_actions_print_on_one_line(action: Action) -> None:
    assert str(action)
    assert len(str(action).splitlines()) == 1
    assert hash(action) == hash(action)


def test_actions_say_what_they_do() -> None:
    assert [str(each) for each in evolve(None, NEW, ALL)] == [
        "reset what is completed or failed",
        "look at every document again",
        'remember version 2 on "new"',
    ]
