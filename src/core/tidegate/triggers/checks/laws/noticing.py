"""The laws of `tidegate.triggers.outbox_relay`, over what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.invocations.record.record_documents import NOTICE
from tidegate.model.documents import Document


def what_happened_is_heard_of(happened: Iterable[str], noticed: Collection[str], pending: Collection[str]) -> bool:
    """Law NO1, over the ids of occurrences; a notice leads to the `pending` ones."""
    return all(each in noticed or each in pending for each in happened)


def no_notice_is_left(records: Iterable[Document]) -> bool:
    """Law NO2."""
    return not any(record.has(NOTICE) for record in records)


def nothing_else_is_heard_of(noticed: Iterable[str], happened: Collection[str]) -> bool:
    """Law NO3: no occurrence exists of what did not happen."""
    return all(each in happened for each in noticed)


def a_filter_is_asked_about_all(*, holds: bool, is_noticed: bool) -> bool:
    """Law NO6: an occurrence exists exactly if the filter holds of the whole context."""
    return holds == is_noticed
