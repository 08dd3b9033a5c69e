"""Two ways to wait for results wrongly, each in one place of `tidegate.invocations.waiting`."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.ending import error_of
from tidegate.invocations.record_documents import ERROR, STATUS
from tidegate.invocations.scenarios.transition import RECORDS
from tidegate.invocations.scenarios.waiting import ENDS, KEYS, TRUE, waiting
from tidegate.invocations.waiting import Ended, Open, Waiting, told
from tidegate.model.documents import ID, Document
from tidegate.model.reading import needed
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def error_is_the_end(record: Document) -> Ended | Open:
    """What holds an error has failed, though it is to be tried again."""
    error = record.get(ERROR)
    return told(record) if error is None else Ended(needed(record, ID), record[STATUS], error=error_of(error))


def success_is_the_end(record: Document) -> Ended | Open:
    """What has not succeeded may yet."""
    answer = told(record)
    return answer if isinstance(answer, Open) or answer.error is None else Open(answer.key, answer.status)


FASTEST: Final = Waiting(keys=KEYS, records=RECORDS, least=1, most=1)

SPECIMENS: Final = (
    Specimen(
        "waiting.error_is_the_end",
        partial(
            waiting,
            attrs.evolve(FASTEST, tells=error_is_the_end),
            summary="Whoever waits takes the error of a run for the end of the invocation.",
            budget=0,
        ),
        TRUE,
        "Planted: the record keeps the error of the last try, and is not final for that.",
        of="waiting",
    ),
    Specimen(
        "waiting.success_is_the_end",
        partial(
            waiting,
            attrs.evolve(FASTEST, tells=success_is_the_end),
            summary="Whoever waits asks whether there is a result, and there never will be one.",
            budget=0,
        ),
        ENDS,
        "pynenc 0.4.0: a result that nobody stored is waited for without an end.",
        of="waiting",
    ),
)
