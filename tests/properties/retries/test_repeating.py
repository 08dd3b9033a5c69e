"""A repeated program returns its last run's result; laws AN1 to AN3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Now, Refused, Sleep, Unreadable
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Duration, Instant
from tidegate.model.operations import find_one
from tidegate.retries import idempotent as repeating
from tidegate.retries.attempt_delays import PAUSES, Pauses
from tidegate.retries.backoff import Fixed
from tidegate.retries.checks.laws import repeating as laws
from tidegate.retries.checks.strategies import pauses as drawn
from tidegate.retries.idempotent import ATTEMPTS, PASSING, repeat, repeated
from tidegate.sim.program.automaton import Asking, Failed, Returned, resume

PLENTY: Final = 30
"""A limit for endless repetitions without pauses; at most nine runs fail."""
TROUBLE: Final = (NotApplied("a"), Ambiguous("b"), NotDurable("c"), Refused("d"), Unreadable("e"))


@final
@attrs.frozen
class Replies:
    """Per run, which of its two requests fails and how; later replies are numbers."""

    runs: tuple[tuple[int, Failure], ...]
    takes: Duration = 0


@attrs.define
class Course:
    ends: list[object] = attrs.field(factory=list)
    end: object = None
    elapsed: Duration = 0
    slept: list[Sleep | None] = attrs.field(factory=list)


def course(replies: Replies, attempts: int | None, pauses: Pauses) -> Course:
    seen, numbers, asked, now = Course(), count(), [0], 0

    async def twice() -> tuple[object, ...]:
        asked[0] = 0
        seen.slept.append(None)
        try:
            heard = (await find_one("things", Eq(ID, "x")), await find_one("things", Eq(ID, "y")))
        except Failure as failure:
            seen.ends.append(failure.fresh())
            raise
        seen.ends.append(heard)
        return heard

    reply: object = None
    program = repeat(twice, attempts, pauses)
    while isinstance(status := resume(program, reply), Asking):
        match status.effect:
            case Now():
                reply = Instant(now, WALL)
            case Sleep() as sleep:
                now, reply = now + sleep.duration, None
                seen.slept.append(sleep)
            case _:
                run = len(seen.ends)
                at, failure = replies.runs[run] if run < len(replies.runs) else (-1, None)
                now, reply = now + replies.takes, failure if asked[0] == at else next(numbers)
                asked[0] += 1
                seen.elapsed = now
    match status:
        case Returned(end) | Failed(end):
            seen.end = end
        case _:
            raise AssertionError(status)
    return seen


@pytest.mark.parametrize("law", ["AN1", "AN2", "AN3"])
@given(
    st.builds(
        Replies,
        st.lists(st.tuples(st.integers(0, 1), st.sampled_from(TROUBLE)), max_size=9).map(tuple),
        st.integers(0, 2 * SECOND),
    ),
    st.none() | st.integers(1, 9),
    drawn.pauses(),
)
@example(Replies(((1, Ambiguous("a")),)), 3, PAUSES)
@example(Replies(((0, NotApplied("a")), (1, Ambiguous("b")))), 2, PAUSES)
@example(Replies(((0, NotDurable("a")), (0, Refused("b")))), None, PAUSES)
@example(Replies(((0, Refused("a")),)), 3, PAUSES)
@example(Replies(((0, Ambiguous("a")), (0, Ambiguous("b")), (0, Ambiguous("c")))), 3, PAUSES)
@example(Replies(((0, Ambiguous("a")),) * 2, SECOND), None, Pauses(Fixed(SECOND), elapsed_max=2 * SECOND))
def test_it_keeps_the_law(law: str, replies: Replies, attempts: int | None, pauses: Pauses) -> None:
    """Laws AN1 to AN3."""
    if attempts is None and not pauses.after(10**9).duration:
        attempts = PLENTY
    seen = course(replies, attempts, pauses)
    match law:
        case "AN1":
            assert laws.is_what_the_last_has_come_to(seen.ends, seen.end)
        case "AN2":
            assert laws.begins_anew_where_it_may(seen.ends)
        case _:
            assert laws.is_raised_at_last(pauses, attempts, seen.ends, seen.elapsed)


test_a_planted_bug_is_found = planted(
    repeating,
    # Our first version: the first missing reply ends it.
    bug("it gives up at once", ("except PASSING as", "except () as"), partial(test_it_keeps_the_law, "AN3")),
    # A refusal is repeated too.
    bug("it insists", ("except PASSING as", "except Failure as"), partial(test_it_keeps_the_law, "AN2")),
    # No reply is taken for no result.
    bug("it says nothing", ("raise failure", "return None"), partial(test_it_keeps_the_law, "AN1")),
    # The first failure is reported, not the last.
    bug(
        "it tells the first", ("failure = passing.fresh()", "failure = passing.fresh() if made == 1 else failure"),
        partial(test_it_keeps_the_law, "AN1"),
    ),
    bug(
        "one less", ("goes_on(pauses, attempts, made", "goes_on(pauses, attempts and max(1, attempts - 1), made"),
        partial(test_it_keeps_the_law, "AN3"),
    ),
)  # fmt: skip


def test_between_two_runs_lies_the_pause_after_so_many() -> None:
    """Laws PA1 and PA2."""
    seen = course(Replies(((0, Ambiguous("a")),) * 9), ATTEMPTS, PAUSES)
    assert [each for each in seen.slept if each is not None] == [PAUSES.after(made) for made in range(1, ATTEMPTS)]
    assert seen.slept[0] is None


def test_one_that_is_repeated_by_itself_keeps_its_name_and_arguments() -> None:
    @repeated
    async def named(first: int, *, second: int) -> int:
        return first + second + (await Now()).at

    program = named(1, second=2)
    assert getattr(program, "__name__", None) == "named"
    status = resume(program, None)
    for reply in (Ambiguous("a"), None, Instant(4, WALL)):
        assert isinstance(status, Asking)
        status = resume(program, reply)
    assert status == Returned(7)


def test_an_effect_is_sent_again() -> None:
    program = repeat(partial(find_one, "things", Eq(ID, "x")), 2, Pauses(Fixed(0)))
    assert resume(program, None) == Asking(find_one("things", Eq(ID, "x")))
    assert resume(program, Ambiguous("a")) == Asking(find_one("things", Eq(ID, "x")))
    assert resume(program, None) == Returned(None)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: resume(repeat(find_one("things")), None),  # type: ignore[arg-type]
        lambda: resume(repeat(Now, 0), None),
        lambda: resume(repeat(Now, 3, Fixed(1)), None),  # type: ignore[arg-type]
        lambda: resume(repeat(Now, None, Pauses(Fixed(0))), None),
        lambda: repeated(7),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


def test_what_may_be_otherwise_the_next_time_is_no_refusal() -> None:
    assert {type(each) for each in TROUBLE if isinstance(each, PASSING)} == {NotApplied, Ambiguous, NotDurable}
