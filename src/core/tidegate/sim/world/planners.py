"""Queries of planners and operators to the simulated store: documents that a planner must check
(`tidegate.reactive.task.plan_queries`), and counts of records (`tidegate.model.record_counts`).

    meaning = planning(perform)      # of planners and operators

The store answers as of one time, by the same decisions as the real queries.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeAlias, cast

from tidegate.model.documents import ID, Document, Field, Value, equal, in_order, matches
from tidegate.model.effects import Effect
from tidegate.model.record_counts import CountRecords, counted
from tidegate.reactive.record.task_documents import DOCUMENT, TASK
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned, PlanPage, is_orphaned, must_look, of_document
from tidegate.sim.world.world import CLOCK, Meaning, Outcomes, Reads, World, contents, perform

MustLook: TypeAlias = Callable[[FindChanged, Document, tuple[Document, ...]], bool]
_KEY = Field[Value](ID.name)


def planning(otherwise: Meaning = perform, decide: MustLook = must_look) -> Meaning:
    """A meaning that answers planners and operators.

    Args:
        otherwise: The meaning of all other effects.
        decide: Whether a planner must check a document; a specimen passes a wrong one.
    """

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case FindChanged():
                yield world, _changed(effect, world, decide)
            case FindOrphaned():
                yield world, _orphaned(effect, world)
            case CountRecords():
                yield world, counted(effect, _meant(effect, world))
            case _:
                yield from otherwise(effect, world, who)

    return meaning


def _changed(query: FindChanged, world: Reads, decide: MustLook) -> PlanPage:
    page, records = _page(query, contents(world, query.collection)), contents(world, query.records)
    keys = (doc[_KEY] for doc in page if decide(query, doc, of_document(query, doc[_KEY], records)))
    return PlanPage(tuple(keys), tuple(doc[_KEY] for doc in page[-1:]))


def _orphaned(query: FindOrphaned, world: Reads) -> PlanPage:
    mine = tuple(each for each in contents(world, query.collection) if each.held(TASK) == query.task)
    page, docs = _page(query, mine), contents(world, query.source)

    def document(record: Document) -> Document | None:
        return next((doc for doc in docs if equal(doc[_KEY], record.held(DOCUMENT))), None)

    keys = (cast("Value", record.held(DOCUMENT)) for record in page if is_orphaned(query, document(record)))
    return PlanPage(tuple(keys), tuple(record[_KEY] for record in page[-1:]))


def _meant(query: CountRecords, world: World) -> tuple[Document, ...]:
    mine = (each for each in contents(world, query.collection) if each.held(TASK) in query.tasks)
    return tuple(each for each in mine if query.where is None or matches(query.where, each, lambda: world.read(CLOCK)))


def _page(query: FindChanged | FindOrphaned, docs: tuple[Document, ...]) -> tuple[Document, ...]:
    begin = [in_order(each) for each in query.after]
    ordered = sorted(docs, key=lambda doc: in_order(doc[_KEY]))
    later = (doc for doc in ordered if not begin or in_order(doc[_KEY]) > begin[0])
    return tuple(islice(later, query.limit))
