"""Strategies for triggers, providers, and occurrences of their conditions."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.triggers.checks.strategies.conditions import conditions, contexts, contexts_of
from tidegate.triggers.conditions import Logic, condition_id
from tidegate.triggers.contexts import Context, Kind
from tidegate.triggers.trigger import FirstOf, FromAll, FromContext, Occurrence, Provider, Static, Trigger


def described(context: Context) -> object:
    return {"context": str(context)}


def counted(contexts: tuple[Context, ...]) -> object:
    return Document((("contexts", len(contexts)),))


def nothing(contexts: object) -> None:
    del contexts


def fails(contexts: object) -> object:
    raise LookupError(contexts)


_STATIC: Final = st.sampled_from((Document(), Document((("k", 1),)), Document((("k", 1.0),)))).map(Static)
_SIMPLE: Final = st.one_of(
    _STATIC,
    st.builds(FromContext, st.just("described"), st.sampled_from(Kind), st.just(described)),
    st.sampled_from((FromAll("counted", counted), FromAll("nothing", nothing), FromAll("fails", fails))),
)
_PROVIDERS: Final[SearchStrategy[Provider]] = st.one_of(
    _SIMPLE, st.builds(FirstOf, st.lists(_SIMPLE, min_size=1, max_size=3).map(tuple))
)


def providers() -> SearchStrategy[Provider]:
    """Providers of every kind, with functions that raise or return nonsense."""
    return _PROVIDERS


@st.composite
def triggers(draw: DrawFn, tasks: SearchStrategy[str] = st.sampled_from(("t", "u"))) -> Trigger:  # noqa: B008  immutable
    """Triggers of one to three conditions."""
    return Trigger(
        task=draw(tasks),
        conditions=tuple(draw(st.lists(conditions(), min_size=1, max_size=3, unique_by=condition_id))),
        logic=draw(st.sampled_from(Logic)),
        provider=draw(_PROVIDERS),
        within=draw(st.integers(1, 20)),
    )


@st.composite
def occurrences(draw: DrawFn, of: Trigger | None = None) -> Occurrence:
    """Occurrences of a trigger's conditions, or of any; the condition may not hold."""
    condition = draw(conditions() if of is None else st.sampled_from(of.conditions))
    context = draw(st.one_of(contexts_of(condition), contexts()))
    return Occurrence(condition_id(condition), context, draw(st.integers(0, 40).map(Instant)))
