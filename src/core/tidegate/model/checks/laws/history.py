"""The laws of `tidegate.model.history` as predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidegate.model.history import HISTORY_MAX, Change, Forgotten, NotYet, RequestOutcome, Superseded, Won


def the_answer_is_true(
    outcome: RequestOutcome, changes: Sequence[Change], decided_version: int, request_id: str
) -> bool:
    """Law H1, judged by `changes`, the full history of the record from version 1 on."""
    made = next((change for change in changes if change.version == decided_version + 1), None)
    match outcome:
        case Won(version):
            return made is not None and made.request_id == request_id and made.version == version
        case Superseded(to):
            return made == to and to.request_id != request_id
        case NotYet():
            return made is None
        case Forgotten():
            return True
        case _:
            assert_never(outcome)


def the_last_versions_are_remembered(outcome: RequestOutcome, record_version: int, decided_version: int) -> bool:
    """Law H2, for a history without gaps."""
    return not isinstance(outcome, Forgotten) or not 0 <= record_version - decided_version <= HISTORY_MAX
