"""The record of a gate; what its runners do with it is explored in the scenarios `atomic_service`."""

from __future__ import annotations

import pytest
from tests.properties.on_documents import is_read_or_misuse

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.services.executions import Execution, Gate
from tidegate.services.service_runner import gate_of, new_gate

HELD = Document.of({"_id": "x", "token": 1, "run": "r", "runner": "a", "started": Instant(0)})


def test_a_gate_is_what_its_record_says() -> None:
    """A new one is empty; one that was entered holds the run, under its token."""
    assert gate_of(new_gate("x")) == Gate()
    assert gate_of(HELD) == Gate(1, Execution(id="r", runner_id="a", start=Instant(0)))


def test_what_is_not_a_gate_is_misuse() -> None:
    """A record that lacks fields, and a name that is empty."""
    with pytest.raises(Misuse):
        gate_of(Document.of({"_id": "x"}))
    with pytest.raises(Misuse):
        new_gate("")


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    assert is_read_or_misuse(gate_of, HELD)
