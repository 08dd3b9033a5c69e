"""The laws of `tidegate.invocations.queue.enqueueing` as predicates: over what was answered, and the records that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.invocations.limits.registration import NotRegistered, Registered, RegistrationOutcome


def answers_are_there(answers: Iterable[RegistrationOutcome], there: Iterable[str]) -> bool:
    """Law EQ1: where an invocation is said to be registered, or to answer, it has a record."""
    keys = {*there}
    return all(isinstance(each, NotRegistered) or each.invocation in keys for each in answers)


def maker_is_told(answers: Mapping[str, Iterable[RegistrationOutcome]], made: Mapping[str, str]) -> bool:
    """Law EQ2: who says that he has registered it has.

    Args:
        answers: What each command answered, by its name.
        made: Which command made each record, by its id.
    """
    return all(
        not isinstance(each, Registered) or made.get(each.invocation) == command
        for command, known in answers.items()
        for each in known
    )


def is_one_with_the_rest(*, is_there: bool, is_written: bool) -> bool:
    """Law EQ4: in a transaction it is there exactly if what the caller wrote beside it is."""
    return is_there == is_written


def are_apart(uploads: Iterable[str]) -> bool:
    """Law EQ5: no two requests upload arguments under one name.

    Args:
        uploads: The name that each request has uploaded under.
    """
    names = tuple(uploads)
    return len({*names}) == len(names)
