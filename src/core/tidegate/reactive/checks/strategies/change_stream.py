"""What change streams report, the commands of a consumer, and the events that answer them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import MILLISECOND
from tidegate.reactive.planning.change_stream import (
    After,
    Again,
    ChangeStreamConsumer,
    CommandDone,
    CommandFailed,
    DocumentChange,
    Elected,
    Fenced,
    Flush,
    From,
    HandleChanged,
    HandleDeleted,
    LeadershipLost,
    Locate,
    Located,
    Page,
    Pass,
    PassLeft,
    Position,
    Read,
    Received,
    Reconcile,
    ResetHistory,
    Save,
    SaveIdle,
    StartTimer,
    StopRequested,
    StreamCommand,
    StreamEvent,
    StreamFailed,
    TimerFired,
)

_IDS = st.sampled_from((1, 2, 1.0, "1", None))
_COLLECTIONS = st.sampled_from(("orders", "users"))
_EPOCHS = st.integers(1, 3)
_SMALL = st.integers(0, 2)


def consumers() -> SearchStrategy[ChangeStreamConsumer]:
    """Consumers with small batches and short times."""
    times = st.integers(0, 100).map(lambda n: n * MILLISECOND)
    return st.builds(ChangeStreamConsumer, size=st.integers(1, 4), wait=times, idle=times, pause=st.integers(1, 100))


def positions() -> SearchStrategy[Position]:
    """Some tokens and times."""
    return st.one_of(_SMALL.map(After), _SMALL.map(From))


def changes() -> SearchStrategy[DocumentChange]:
    """Changes of few documents, some of which have the same id in another collection, or in another type."""
    return st.builds(DocumentChange, _COLLECTIONS, _IDS, st.booleans())


def pages() -> SearchStrategy[Page]:
    """Pages of some changes, or of none."""
    return st.builds(Page, st.lists(changes(), max_size=4).map(tuple), positions())


def passes() -> SearchStrategy[Pass]:
    """Passes over some documents."""
    ids = st.lists(_IDS, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(HandleDeleted, _EPOCHS, _SMALL, _COLLECTIONS, ids),
        st.builds(HandleChanged, _EPOCHS, _SMALL, _COLLECTIONS, ids),
    )


def stores() -> SearchStrategy[Save | ResetHistory]:
    """What is written under an epoch."""
    return st.one_of(st.builds(Save, _EPOCHS, _SMALL, positions()), st.builds(ResetHistory, _EPOCHS, st.integers(1, 3)))


def reads() -> SearchStrategy[Read]:
    """Requests to read."""
    return st.builds(Read, _EPOCHS, positions())


def waits() -> SearchStrategy[StartTimer]:
    """Waits for everything that there is to wait for."""
    timers = st.one_of(st.builds(Flush, _EPOCHS, _SMALL), _EPOCHS.map(SaveIdle))
    then = st.one_of(timers, _EPOCHS.map(Again), _EPOCHS.map(Locate), reads(), passes(), stores())
    return st.builds(StartTimer, then, st.integers(0, 99))


def commands() -> SearchStrategy[StreamCommand]:
    """Every kind of command."""
    asked = st.builds(Reconcile, _EPOCHS, _SMALL)
    return st.one_of(_EPOCHS.map(Locate), reads(), passes(), stores(), asked, waits())


def events() -> SearchStrategy[StreamEvent]:
    """Every kind of event, mostly of what is not awaited."""
    positions_or_none = st.one_of(st.none(), positions())
    return st.one_of(
        st.builds(Elected, _EPOCHS, _SMALL, positions_or_none),
        _EPOCHS.map(LeadershipLost),
        st.just(StopRequested()),
        st.builds(Located, _EPOCHS.map(Locate), positions()),
        st.builds(Received, reads(), pages()),
        st.builds(StreamFailed, reads(), st.sampled_from((None, 43, 280, 286))),
        st.one_of(passes(), stores()).map(CommandDone),
        st.one_of(_EPOCHS.map(Locate), passes(), stores()).map(CommandFailed),
        passes().map(lambda each: PassLeft(each, each.ids[:1])),
        stores().map(Fenced),
        waits().map(TimerFired),
    )
