"""Rules, calls that nearly exclude each other, places, and what is decided on them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.invocations.limits.admission import (
    Call,
    Control,
    Found,
    NotThere,
    Place,
    Purpose,
    RegistrationVerdict,
    Released,
    Reservation,
    Rule,
    RunningVerdict,
    StillHeld,
    decide_registration,
    decide_running,
    release,
)
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import StatusRecord

_STATUSES: Final = st.sampled_from([each.status for each in INVOCATION.definitions])
_IDS: Final[SearchStrategy[str]] = st.sampled_from(("x", "y", "z"))
_VERSIONS: Final = st.integers(0, 4)
_NAMES: Final = st.sampled_from(("a", "b", "ab", "keys"))
_VALUES: Final = st.sampled_from(("", "1", "b", "1b", "\x00", "\ud800", "null"))
_KEYS: Final = st.lists(_NAMES, min_size=1, max_size=3, unique=True).map(tuple)


_YES_OR_NO: Final = st.booleans()
_AT_MOST: Final = st.integers(1, 2)
_PURPOSES: Final = st.sampled_from(Purpose)
_ARGUMENTS: Final = st.dictionaries(_NAMES, _VALUES, max_size=3).map(lambda drawn: tuple(drawn.items()))
_RULES: Final = st.one_of(
    st.sampled_from((Control.DISABLED, Control.TASK, Control.ARGUMENTS)).map(Rule),
    st.builds(Rule, st.just(Control.KEYS), _KEYS),
)
_CALLS: Final = st.builds(Call, st.sampled_from(("t", "ta", "task")), _ARGUMENTS)
_PLACES: Final = st.builds(Place, _IDS, _VERSIONS)
_RESERVATIONS: Final = st.builds(
    Reservation, st.lists(_PLACES, max_size=3, unique_by=lambda place: place.invocation).map(tuple)
)


def _record(status: str, version: int) -> StatusRecord:
    return StatusRecord(status, "r1" if INVOCATION[status].requires_owner else None, version)


_RECORDS: Final = st.builds(_record, _STATUSES, st.integers(1, 5))
_READ: Final = st.one_of(st.none(), _RECORDS)
_READ_OF_EACH: Final[SearchStrategy[dict[str, StatusRecord | None]]] = st.dictionaries(_IDS, _READ, max_size=3)
_FOUNDS: Final = st.builds(Found, _CALLS, _READ)
_FOUND_OF_EACH: Final[SearchStrategy[dict[str, Found]]] = st.dictionaries(_IDS, _FOUNDS, max_size=3)


def rules() -> SearchStrategy[Rule]:
    """A rule of each kind."""
    return _RULES


def calls() -> SearchStrategy[Call]:
    """Calls of few tasks with few arguments, so that two agree in some: names and values run together, or are empty."""
    return _CALLS


def places() -> SearchStrategy[Place]:
    """Places of few invocations, so that they meet."""
    return _PLACES


def reservations() -> SearchStrategy[Reservation]:
    """Documents with up to three places."""
    return _RESERVATIONS


def founds() -> SearchStrategy[Found]:
    """What is known of an invocation that was reserved for; now and then it has no record."""
    return _FOUNDS


def invocation_records() -> SearchStrategy[StatusRecord]:
    """Records of invocations in every status, owned where it is, at versions as `places` have them."""
    return _RECORDS


@st.composite
def registrations(draw: DrawFn) -> RegistrationVerdict:
    """What is decided on a call: of others nothing, something or everything is known."""
    return decide_registration(
        draw(_RESERVATIONS), draw(_IDS), draw(_CALLS), draw(_FOUND_OF_EACH), must_agree=draw(_YES_OR_NO)
    )


@st.composite
def runnings(draw: DrawFn) -> RunningVerdict:
    """What is decided on an invocation: of others nothing, something or everything is known."""
    return decide_running(
        draw(_RESERVATIONS),
        draw(_IDS),
        draw(_RECORDS),
        draw(_READ_OF_EACH),
        at_most=draw(_AT_MOST),
        reroute=draw(_YES_OR_NO),
    )


@st.composite
def releases(draw: DrawFn) -> Released | StillHeld | NotThere:
    """What becomes of a place that is given back."""
    reservation = draw(_RESERVATIONS)
    place = draw(st.sampled_from((*reservation.places, Place("x", 9))))
    return release(draw(_PURPOSES), reservation, place, draw(_READ))
