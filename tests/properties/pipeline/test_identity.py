from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.pipeline import identity, tasks
from tidegate.pipeline.checks import laws
from tidegate.pipeline.effects import Hook, TaskSpec

NAMES = st.text(min_size=1, max_size=6).filter(lambda text: text.strip() and "\0" not in text) | st.sampled_from(
    ("a", "a/1", "=", "ä", "x" * 300)
)
PARTS = st.tuples(
    NAMES, st.integers(0, 3), st.integers(0, 3), st.none() | NAMES, st.sampled_from(Hook), NAMES, st.integers(0, 2)
)


@given(st.lists(PARTS, unique=True, max_size=8))
def test_keys_of_different_outputs_differ(outputs: list[tuple[str, int, int, str | None, Hook, str, int]]) -> None:
    """Laws ID1 and ID2."""
    keys = [identity.output_key(*each) for each in outputs]
    assert laws.keys_differ(keys)
    assert all(map(laws.is_short_and_printable, keys))


@given(
    st.lists(
        st.lists(st.text(max_size=3) | st.integers(0, 9) | st.binary(max_size=3), min_size=1, max_size=3).map(tuple),
        unique_by=repr,
    )
)
def test_ids_of_different_parts_differ(many: list[tuple[str | int | bytes, ...]]) -> None:
    """Law ID3."""
    assert laws.keys_differ([identity.stable_id("p", *each) for each in many])


def test_an_id_is_the_same_in_every_process() -> None:
    assert identity.stable_id("thumb", "a", 7) == "thumb-13074be3dc00c11d"


SPECS = st.lists(
    st.builds(TaskSpec, st.sampled_from("abc"), st.lists(st.integers(0, 3), max_size=2).map(tuple)), max_size=4
)


@given(SPECS, st.frozensets(st.integers(0, 3)), st.frozensets(st.sampled_from("abc"), max_size=2))
def test_tasks_are_of_their_window_and_have_ids_of_their_own(
    specs: list[TaskSpec], offsets: frozenset[int], live: frozenset[str]
) -> None:
    """Law TK1."""
    assert (tasks.refused_tasks(specs, offsets, live) is None) == laws.are_own_tasks(specs, offsets, live)


@given(st.lists(st.integers(), max_size=4).map(tuple), st.lists(st.integers(), min_size=1, max_size=4), st.booleans())
def test_tasks_keep_their_numbers(known: tuple[int, ...], made: list[int], is_taken: bool) -> None:
    """Law TK2."""
    after = tasks.tasks_after(known, made, len(known) + (len(made) if is_taken else 0))
    assert laws.keeps_numbers(known, made, after)
    assert len(after) == len(known) + (len(made) if is_taken else 0)


test_a_planted_bug_of_keys_is_found = planted(
    identity,
    bug("blanks and slashes are left", ("_quoted(sink)", "sink"), test_keys_of_different_outputs_differ),
    bug("a long key is cut", ("sha256(key.encode()).hexdigest()", "key[:9]"), test_keys_of_different_outputs_differ),
    bug("parts are joined", ('f"{type(part).__name__} {len(data)}:".encode() + data', "data"), test_ids_of_different_parts_differ),
)  # fmt: skip
test_a_planted_bug_of_tasks_is_found = planted(
    tasks,
    bug("ids of one call are not compared", ("        known.add(each.id)\n", ""), test_tasks_are_of_their_window_and_have_ids_of_their_own),
    bug("any record will do", ("if not there.issuperset(each.offsets):", "if False:"), test_tasks_are_of_their_window_and_have_ids_of_their_own),
    bug("new tasks come first", ("(*known, *made)", "(*made, *known)"), test_tasks_keep_their_numbers),
    bug("an event that was ignored adds tasks", ("known if count <= len(known) else ", ""), test_tasks_keep_their_numbers),
)  # fmt: skip


@pytest.mark.parametrize("parts", [(), (1.5,), (True,), (None,)])
def test_an_id_of_odd_parts_is_refused(parts: tuple[object, ...]) -> None:
    with pytest.raises(Misuse):
        identity.stable_id("p", *parts)  # type: ignore[arg-type]
