"""The laws of `tidegate.invocations.queue.enqueueing`, over answers and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.invocations.limits.registration import NotRegistered, Registered, RegistrationOutcome


def answers_are_there(answers: Iterable[RegistrationOutcome], there: Iterable[str]) -> bool:
    """Law EQ1: an invocation reported as registered, or as the answer, has a record."""
    keys = {*there}
    return all(isinstance(each, NotRegistered) or each.invocation in keys for each in answers)


def maker_is_told(answers: Mapping[str, Iterable[RegistrationOutcome]], made: Mapping[str, str]) -> bool:
    """Law EQ2: a command that reports a registration has made it.

    Args:
        answers: The answer of each command, by name.
        made: The command that made each record, by id.
    """
    return all(
        not isinstance(each, Registered) or made.get(each.invocation) == command
        for command, known in answers.items()
        for each in known
    )


def is_one_with_the_rest(*, is_there: bool, is_written: bool) -> bool:
    """Law EQ4: in a transaction it exists exactly if the caller's other write does."""
    return is_there == is_written


def are_apart(uploads: Iterable[str]) -> bool:
    """Law EQ5: no two requests upload arguments under one name.

    Args:
        uploads: The name of each request's upload.
    """
    names = tuple(uploads)
    return len({*names}) == len(names)
