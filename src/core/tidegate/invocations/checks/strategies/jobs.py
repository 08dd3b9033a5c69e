"""Jobs of two tasks, queues and tenants, so that they meet."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.invocations.record.jobs import PRIORITY_MAX, PRIORITY_MIN, Job
from tidegate.model.documents import Document


@st.composite
def jobs(draw: DrawFn) -> Job:
    """Jobs, with each of what they may be without."""
    parent = draw(st.sampled_from((None, "p")))
    job = Job(
        task=draw(st.sampled_from(("send", "bill"))),
        queue=draw(st.sampled_from(("default", "mail"))),
        priority=draw(st.one_of(st.integers(-1, 1), st.integers(PRIORITY_MIN, PRIORITY_MAX))),
        tenant=draw(st.sampled_from((None, "ann", "bob"))),
        limited_by=draw(st.sampled_from((None, "running-1"))),
        rated_by=draw(st.sampled_from((None, "rate-1"))),
        parent=parent,
        root=None if parent is None else draw(st.sampled_from((parent, "r"))),
        deadline=draw(st.none() | st.integers(1, 10**12)),
        trace=draw(st.sampled_from((None, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))),
    )
    if draw(st.booleans()):
        return attrs.evolve(job, payload="upload")
    return attrs.evolve(job, arguments=Document.of(draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)))))
