from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.properties.on_documents import is_read_or_misuse

from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.triggers.contexts import CronContext, StatusContext
from tidegate.triggers.firing import Firing, GivenUp, Held, TriggerRun
from tidegate.triggers.trigger import Occurrence
from tidegate.triggers.trigger_documents import (
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    stored_cell,
    stored_occurrence,
    stored_run,
)

TIME = Instant(0)
CRON = Occurrence("c", CronContext(Schedule("* * * * *", Missed.EACH, 5), TIME), TIME)
STATUS = Occurrence("c", StatusContext("t", "i", 3, "failed"), TIME)

READ: Mapping[str, tuple[Callable[[Document], object], Document]] = {
    "cron": (loaded_occurrence, stored_occurrence(CRON)),
    "occurrence": (loaded_occurrence, stored_occurrence(STATUS)),
    "cell": (loaded_cell, stored_cell("c", ScheduleCell(TIME, 2, (TIME,)))),
    "held": (loaded_run, stored_run(TriggerRun(Firing("t", (STATUS,)), Held("a", TIME)))),
    "given up": (loaded_run, stored_run(TriggerRun(Firing("t", (STATUS,)), GivenUp(("no",), TIME)))),
}


@pytest.mark.parametrize("name", READ)
def test_a_record_that_another_has_spoiled_is_read_or_misuse(name: str) -> None:
    assert is_read_or_misuse(*READ[name])
