"""Strategies for conditions and contexts. Few names, so that conditions often hold."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import Document, Value
from tidegate.model.instants import Instant
from tidegate.retries.checks.strategies.schedule import schedules
from tidegate.triggers.conditions import (
    Composite,
    Condition,
    Equal,
    Everything,
    Judge,
    Logic,
    OnCron,
    OnEvent,
    OnException,
    OnResult,
    OnStatus,
    ValueFilter,
    condition_id,
    sources,
)
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    Kind,
    ResultContext,
    Source,
    StatusContext,
)

_TASKS: Final = st.sampled_from(("a", "b"))
_STATUSES: Final = ("success", "failed", "retry")
_ERRORS: Final = ("ValueError", "KeyError")
_DOCUMENTS: Final = st.sampled_from(
    tuple(
        Document(items) for items in ((), (("k", 1),), (("k", True),), (("k", 1), ("m", "x")), (("m", "x"), ("k", 1.0)))
    )
)
_RESULTS: Final[SearchStrategy[Value]] = st.one_of(_DOCUMENTS, st.sampled_from((None, 1, "x")))


def yes(value: Value) -> object:
    del value
    return True


def no(value: Value) -> object:
    del value
    return False


def truthy(value: Value) -> object:
    del value
    return 1


def raises(value: Value) -> object:
    raise ValueError(value)


JUDGES: Final = tuple(Judge(each.__name__, each) for each in (yes, no, truthy, raises))


_FILTERS: Final[SearchStrategy[ValueFilter]] = st.one_of(
    st.just(Everything()), st.builds(Equal, _DOCUMENTS), st.sampled_from(JUDGES)
)
_ANY_STATUSES: Final = st.frozensets(st.sampled_from(_STATUSES), min_size=1)
_ANY_ERRORS: Final = st.frozensets(st.sampled_from(_ERRORS))


def _of(name: str) -> dict[Source, SearchStrategy[Condition]]:
    return {
        (Kind.STATUS, name): st.builds(OnStatus, st.just(name), _ANY_STATUSES, _FILTERS),
        (Kind.RESULT, name): st.builds(OnResult, st.just(name), _FILTERS, _FILTERS),
        (Kind.EXCEPTION, name): st.builds(OnException, st.just(name), _ANY_ERRORS, _FILTERS),
        (Kind.EVENT, name): st.builds(OnEvent, st.just(name), _FILTERS),
    }


_OF: Final = {**_of("a"), **_of("b")}


def filters() -> SearchStrategy[ValueFilter]:
    """Filters of all kinds, with functions that raise or return nonsense."""
    return _FILTERS


def _simple_conditions() -> SearchStrategy[Condition]:
    return st.one_of(st.builds(OnCron, schedules()), *_OF.values())


@st.composite
def composites(draw: DrawFn, depth_max: int = 2) -> Composite:
    """Composites: ALL over one source, or ANY over several, nested at most `depth_max` deep."""
    logic = draw(st.sampled_from(Logic))
    parts = _OF[draw(st.sampled_from(tuple(_OF)))]
    if logic is Logic.ANY:
        parts = st.one_of(*_OF.values(), *[composites(depth_max - 1)] * (depth_max > 1))
    return Composite(logic, tuple(draw(st.lists(parts, min_size=2, max_size=3, unique_by=condition_id))))


def conditions() -> SearchStrategy[Condition]:
    return st.one_of(_simple_conditions(), composites())


_INVOCATION: Final = (_TASKS, st.sampled_from(("i", "j")), st.integers(1, 3))
_HAPPENED: Final[dict[Kind, SearchStrategy[Context]]] = {
    Kind.CRON: st.builds(CronContext, schedules(), st.integers(0, 30).map(Instant)),
    Kind.STATUS: st.builds(StatusContext, *_INVOCATION, st.sampled_from(_STATUSES), _DOCUMENTS),
    Kind.RESULT: st.builds(ResultContext, *_INVOCATION, _RESULTS, _DOCUMENTS),
    Kind.EXCEPTION: st.builds(ExceptionContext, *_INVOCATION, st.sampled_from(_ERRORS), _DOCUMENTS),
    Kind.EVENT: st.builds(EventContext, _TASKS, st.sampled_from(("e", "f")), _DOCUMENTS),
}


def contexts() -> SearchStrategy[Context]:
    return st.one_of(*_HAPPENED.values())


@st.composite
def contexts_of(draw: DrawFn, condition: Condition) -> Context:
    """Contexts from a source of a condition, so that it often holds."""
    kind, name = draw(st.sampled_from(sorted(sources(condition), key=_by_name)))
    drawn = draw(_HAPPENED[kind])
    if isinstance(drawn, EventContext):
        return attrs.evolve(drawn, code=name)
    if not isinstance(drawn, CronContext):
        return attrs.evolve(drawn, task=name)
    assert isinstance(condition, OnCron), "no cron stands in a composite"
    return attrs.evolve(drawn, schedule=condition.schedule)


def _by_name(source: Source) -> tuple[str, str]:
    return source[0].value, source[1]
