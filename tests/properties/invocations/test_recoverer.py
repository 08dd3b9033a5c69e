"""What a recoverer reads of an invocation; what it does is explored in the scenarios `recovery`."""

from __future__ import annotations

import pytest
from tests.properties.on_documents import is_read_or_misuse

from tidegate.invocations.recoverer import item_of, message_id
from tidegate.invocations.recovery import Item, MessageStatus
from tidegate.invocations.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant

RUNNING = Document.of({"_id": "x", "status": "running", "owner": "a", "version": 1, "changed_at": Instant(0)})


def test_an_item_is_what_its_record_says() -> None:
    """A message counts for the version that it was published for."""
    record = StatusRecord("running", "a", 1)
    assert item_of(RUNNING, {message_id("x", 1)}) == Item("x", record, Instant(0), MessageStatus.THERE)
    assert item_of(RUNNING, {message_id("x", 2)}) == Item("x", record, Instant(0), MessageStatus.MISSING)


def test_a_record_that_the_store_has_not_dated_is_misuse() -> None:
    """Nobody knows how long it has been as it is."""
    with pytest.raises(Misuse):
        item_of(Document.of({"_id": "x", "status": "running", "owner": "a", "version": 1}), set())


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    assert is_read_or_misuse(lambda doc: item_of(doc, set()), RUNNING)
