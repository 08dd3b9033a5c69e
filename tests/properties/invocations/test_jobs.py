from __future__ import annotations

import pytest
from hypothesis import given
from tests.properties.lawbook import bug, planted
from tests.properties.on_documents import is_read_or_misuse

from tidegate.invocations.checks.strategies.jobs import jobs
from tidegate.invocations.record import jobs as job_module
from tidegate.invocations.record.jobs import Job, job_fields, job_of
from tidegate.invocations.record.record_documents import new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant


def recorded(stored: Document) -> Document:
    return new_record("x", StatusRecord("registered", None, 1), "q", Instant(0), due=Instant(0), more=stored)


@given(jobs())
def test_a_job_is_read_as_it_was_kept(job: Job) -> None:
    """Law JB1."""
    assert job_of(recorded(job_fields(job))) == job


test_a_planted_bug_is_found = planted(
    job_module,
    bug("all of it waits in one line", ("for field in _OPTIONAL)", "for field in _OPTIONAL if field != TENANT)"), test_a_job_is_read_as_it_was_kept),
)  # fmt: skip


def test_what_is_not_there_takes_no_place() -> None:
    assert [name for name, _ in job_fields(Job(task="t")).items] == ["task", "arguments", "queue", "priority"]


def test_arguments_are_not_shown() -> None:
    assert "geheim" not in repr(Job(task="t", arguments=Document.of({"password": "geheim"})))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"priority": 101}, "priority"),
        ({"queue": ""}, "queue"),
        ({"deadline": 0}, "time"),
        ({"payload": "p", "arguments": Document.of({"a": 1})}, "payload"),
        ({"parent": "p"}, "parent"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_wrong_job_is_refused_early(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(Misuse, match=what):
        Job(task="t", **wrong)  # type: ignore[arg-type]


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    assert is_read_or_misuse(job_of, recorded(job_fields(Job(task="t", tenant="a", parent="p", root="p", deadline=1))))
