"""Laws of `tidegate.invocations.queue.results`, over results and the present records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.invocations.queue.results import Absent, Awaited, Ended, told
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import STATUS
from tidegate.model.documents import Document


def what_is_told_is_so(answers: Iterable[Awaited], records: Mapping[str, Document | None]) -> bool:
    """Law WT1: the result of an ended invocation is that of its record; an absent one has no
    record.

    Args:
        answers: The results.
        records: The records, then or later.
    """
    for answer in answers:
        record = records[answer.key]
        if isinstance(answer, Absent) and record is not None:
            return False
        if isinstance(answer, Ended) and (record is None or told(record) != answer):
            return False
    return True


def nobody_waits_for_what_has_ended(records: Iterable[Document], *, is_waiting: bool) -> bool:
    """Law WT2: at rest, a caller waits only while some invocation is not final.

    Args:
        records: The awaited records.
        is_waiting: Whether a caller still waits.
    """
    return not is_waiting or not all(INVOCATION[record[STATUS]].final for record in records)
