"""Planner queries select exactly the documents that a look would change: laws PQ1 to PQ5."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.checks.strategies.documents import values
from tidegate.model.documents import Document, Eq, Exists, Field, Filter, Not, OlderThan, Value, in_order, matches
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.reactive.checks.laws import plan_queries as laws
from tidegate.reactive.checks.strategies.snapshot import computed_projections
from tidegate.reactive.checks.strategies.tasks import records
from tidegate.reactive.planning.reconciler import ScannedTask
from tidegate.reactive.planning.reconciliation import TaskTrigger
from tidegate.reactive.record.orphans import CleanUp, DeleteWhen
from tidegate.reactive.record.snapshot import Computed, Digest, NotComputed, Projection, snapshot
from tidegate.reactive.record.task_documents import DIGEST, DOCUMENT, SNAPSHOT, stored
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.record.tasks import Matching, NotMatching, Seen, TaskRules, plan
from tidegate.reactive.task import plan_queries
from tidegate.reactive.task.plan_queries import (
    FindChanged,
    FindOrphaned,
    PlanPage,
    first_of,
    is_orphaned,
    must_look,
    of_document,
    together,
)
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import World, world_with

A: Final = Field[Any]("a")
WHERES: Final[tuple[Filter | None, ...]] = (None, Exists(A), Eq(A, 1), Not(Eq(A, None)))
DOCS: Final = st.dictionaries(st.sampled_from("abc"), values(), max_size=3).map(
    lambda held: Document((("_id", "x"), *held.items()))
)
NEVER: Final = Instant(0)
LATER: Final = Instant(10**18)


ALL: Final = Projection()


def asked(watched: Projection = ALL, where: Filter | None = None, limit: int = 10, *after: Value) -> FindChanged:
    return FindChanged("orders", "records", "bill", watched, where, limit, after)


def seen(query: FindChanged, doc: Document) -> Seen:
    if query.where is not None and not matches(query.where, doc, lambda: NEVER):
        return NotMatching()
    taken = snapshot(doc, query.watched)
    return taken if isinstance(taken, NotComputed) else Matching(taken)


@given(computed_projections(), st.sampled_from(WHERES), st.tuples(DOCS, DOCS), records(), st.sampled_from("-nsw"))
def test_what_a_look_would_write_about_is_looked_at(
    watched: Projection, where: Filter | None, docs: tuple[Document, Document], drawn: TaskRecord, which: str
) -> None:
    """Laws PQ1 and PQ2: records of every status, with a current, an old or no snapshot."""
    query, (doc, was) = asked(watched, where), docs
    kept = {"s": snapshot(doc, watched), "w": snapshot(was, watched)}.get(which)
    if isinstance(kept, NotComputed):
        return
    record = None if which == "-" else attrs.evolve(drawn, snapshot=kept)
    there = () if record is None else (stored(record, "bill", "x"),)
    verdict = plan(record, seen(query, doc), rules=TaskRules(), now=LATER, new_id="new")
    must, can_tell = must_look(query, doc, there), not isinstance(seen(query, doc), NotComputed)
    assert laws.what_is_not_looked_at_is_left(verdict, must_look=must)
    assert laws.no_more_is_looked_at(verdict, must_look=must, can_tell=can_tell)


WANTED = "    is_wanted = _matches(query.where, doc)\n"
test_a_planted_bug_is_found = planted(
    plan_queries,
    bug("everything is looked at", (WANTED, "    return True\n"), test_what_a_look_would_write_about_is_looked_at),
    bug("only what is new is looked at", (WANTED, "    return not records\n"), test_what_a_look_would_write_about_is_looked_at),
    bug(
        "what has left the filter is not looked at",
        (WANTED, f"{WANTED}    if not is_wanted:\n        return False\n"),
        test_what_a_look_would_write_about_is_looked_at,
    ),
    bug(
        "a snapshot is compared as it is stored",  # 1 is not 1.0, and NaN is not NaN
        ("    (record,) = records\n", """    (record,) = records
    if record.get(SNAPSHOT) != snapshot(doc, query.watched):
        return True\n"""),
        test_what_a_look_would_write_about_is_looked_at,
    ),
)  # fmt: skip


def test_where_the_store_cannot_tell_it_is_looked_at() -> None:
    doc = Document.of({"_id": "x", "a": 1})
    record = Document.of({"_id": "r", "task": "bill", "document": "x", "status": "completed", "snapshot": {"a": 1}})
    query = asked(Projection(("a",)))
    assert not must_look(query, doc, (record,))
    assert must_look(query, doc, (record, record))
    assert must_look(query, doc, (record.without(SNAPSHOT).put(DIGEST, Digest("0" * 64).sha256),))
    with pytest.raises(Misuse, match="how old"):
        _ = asked(where=OlderThan(A, 1))
    assert of_document(query, "x", (record, record.put(DOCUMENT, "y"))) == (record,)
    assert of_document(query, 7.0, (record.put(DOCUMENT, 7),)) == (record.put(DOCUMENT, 7),)


# --- the simulated store's answers --------------------------------------------------------------------------------------


def answer(effect: Effect[PlanPage], world: World) -> PlanPage:
    ((after, page),) = planning()(effect, world, "planner")
    assert after == world
    assert isinstance(page, PlanPage)
    return page


@given(st.lists(st.sampled_from(("a", "b", 1, 2, 10, "z")), unique=True), st.integers(1, 7), st.integers(0, 63))
def test_page_by_page_each_is_asked_about_once(keys: list[Any], limit: int, known: int) -> None:
    """Law PQ3, of documents and of records."""
    docs = tuple(Document.of({"_id": key}) for key in keys)
    there = tuple(
        Document.of({"_id": f"r{n}", "task": "bill", "document": key, "status": "completed", "snapshot": {"_id": key}})
        for n, key in enumerate(keys)
        if known >> n & 1
    )
    world = world_with({"orders": docs, "records": (*there, Document.of({"_id": "r0a", "task": "other"}))})
    found: list[Value] = []
    page = answer(asked(Projection(), None, limit), world)
    while page.after:
        found += page.ids
        page = answer(asked(Projection(), None, limit, *page.after), world)
    assert found == sorted((key for n, key in enumerate(keys) if not known >> n & 1), key=in_order)
    gone: list[Value] = []
    without = world_with({"records": there})
    page = answer(FindOrphaned("records", "orders", "bill", None, limit), without)
    while page.after:
        gone += page.ids
        page = answer(FindOrphaned("records", "orders", "bill", None, limit, page.after), without)
    assert gone == [record[DOCUMENT] for record in there]
    assert answer(FindOrphaned("records", "orders", "bill", None, 99), world).ids == ()


KEYS: Final = (None, 1, 2.0, "", "a", Document.of({"x": 1}))


def pages() -> st.SearchStrategy[PlanPage]:
    drawn = st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 5))
    of = drawn.map(lambda each: PlanPage(tuple(KEYS[at] for at in sorted(each[0]) if at <= each[1]), (KEYS[each[1]],)))
    return st.one_of(st.just(PlanPage()), of)


@given(st.lists(pages(), min_size=1, max_size=3).map(tuple))
@example((PlanPage((None, "a"), ("a",)), PlanPage((1,), (1,))))
def test_what_several_have_to_look_at_is_one_page(told: tuple[PlanPage, ...]) -> None:
    """Law PQ4."""
    assert laws.is_for_all(told, together(told))


test_a_planted_page_is_found = planted(
    plan_queries,
    # The page ends with the longest answer, so shorter ones skip ids.
    bug("the longest", ("end = min(ends", "end = max(ends"), test_what_several_have_to_look_at_is_one_page),
    bug(
        "the first",  # one task's ids count for all
        ("    ends = [", "    if all(page.after == pages[0].after for page in pages):\n        return pages[0]\n    ends = ["),
        test_what_several_have_to_look_at_is_one_page,
    ),
)  # fmt: skip


@given(pages(), st.integers(1, 5))
def test_what_is_cut_off_a_page_is_asked_for_again(page: PlanPage, count: int) -> None:
    """Law PQ5."""
    assert laws.is_cut(page, count, first_of(page, count))


def test_a_page_that_goes_on_behind_what_is_cut_off_breaks_the_law() -> None:
    """Law PQ5."""
    page = PlanPage((1, 2), (3,))
    assert not laws.is_cut(page, 1, PlanPage((1,), (3,)))


def test_a_task_asks_by_its_own_rules() -> None:
    expected = FindChanged("orders", "orders_tasks", "bill", Projection(), Exists(A), 5, ("x",))
    leaves = CleanUp(delete_when=DeleteWhen.SOURCE_GONE_OR_LEFT)
    for cleaning, where in ((CleanUp(), None), (leaves, Exists(A))):
        task = ReactiveTask(name="bill", source="orders", where=Exists(A), cleaning=cleaning)
        assert task.find_orphaned((), 5).send(None) == FindOrphaned("orders_tasks", "orders", "bill", where, 5)
        assert task.find_changed(("x",), 5).send(None) == expected
    assert is_orphaned(FindOrphaned("r", "s", "t", Exists(A), 1), Document())
    assert not is_orphaned(FindOrphaned("r", "s", "t", None, 1), Document())
    assert str(expected) == 'ask what of 5 of orders after "x" orders_tasks of bill do not know'
    assert str(PlanPage((1, 2), (7,))) == "2 to look at, up to 7"


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"after": ("a", "b")},
        {"task": ""},
        {"collection": "$c"},
        {"where": "a"},
        {"watched": Projection((), (("sum", Computed(lambda doc: doc)),))},
    ],
    ids=lambda wrong: next(iter(wrong)),  # its repr holds an address
)
def test_a_question_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        _ = attrs.evolve(asked(), **wrong)


def test_what_asks_for_a_reconciler_can_be_called() -> None:
    with pytest.raises(Misuse, match="asks which documents"):
        ScannedTask("orders", TaskTrigger("bill", None), 7)  # type: ignore[arg-type]
