"""Traces in which every text is hostile, for readers and printers of traces."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegate.model.documents import Document
from tidegate.model.patches import Added, Patch, Removed, Replaced
from tidegate.sim.trace.trace import (
    Breach,
    Choice,
    Done,
    Lane,
    LawKind,
    Mover,
    NamedLaw,
    Option,
    Passing,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
)

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ['"</script>', "a\nb", "\x1b[31m", "\u202e", "/a~1b~0", "$where", "", " ", "a" * 300, "\\u0000", "\0"]
    ),
).filter(lambda text: text.isprintable() or "\ud800" not in text)


OPTIONS = st.builds(Option, TEXTS, TEXTS, TEXTS)
CHOICES = st.just(Choice()) | st.lists(OPTIONS, min_size=1, max_size=2).map(
    lambda options: Choice(tuple(options), len(options) - 1)
)
EFFECTS = st.lists(st.builds(Done, TEXTS, st.lists(TEXTS, max_size=2).map(tuple), TEXTS), max_size=2).map(tuple)


@st.composite
def runs(draw: st.DrawFn) -> tuple[TraceStep, ...]:
    patches: list[Patch] = [
        (),
        (Replaced("/a", draw(TEXTS)),),
        (Removed("/b/0"),),
        (Added("/b/0", draw(TEXTS)), Replaced("/a", 1)),
    ]
    return tuple(
        TraceStep(
            process=draw(TEXTS),
            event=draw(TEXTS),
            fault=draw(TEXTS),
            patch=draw(st.sampled_from(patches)),
            at=draw(st.none() | st.integers(0, 2**63 - 1)),
            kind=draw(st.sampled_from(StepKind)),
            choice=draw(CHOICES),
            effects=draw(EFFECTS),
            truths=tuple(draw(st.dictionaries(TEXTS, st.sampled_from(Truth), max_size=2)).items()),
            causes=tuple(range(1, number)),
            src=draw(TEXTS),
        )
        for number in range(1, draw(st.integers(1, 4)))
    )


@st.composite
def hostile_traces(draw: st.DrawFn) -> Trace:
    steps = draw(runs())
    return Trace(
        scenario=draw(TEXTS),
        version=draw(TEXTS),
        law=draw(TEXTS),
        time=draw(TEXTS),
        seed=draw(st.none() | TEXTS),
        movers=tuple(draw(st.lists(st.builds(Mover, TEXTS, st.sampled_from(Lane)), max_size=3))),
        initial=Document.of({"a": draw(TEXTS), "b": (1, True, 1.5, b"\0", None)}),
        steps=steps,
        breach=draw(st.sampled_from(Breach)),
        laws=tuple(draw(st.lists(st.builds(NamedLaw, TEXTS, st.sampled_from(LawKind)), max_size=2))),
        policy=draw(st.sampled_from(PolicyName)),
        python=draw(TEXTS),
        fingerprint=draw(TEXTS),
        passing=draw(st.none() | st.builds(Passing, st.integers(0, 1), st.just(steps))),
        original=draw(st.none() | runs()),
        summary=draw(TEXTS),
        why=draw(TEXTS),
        loop=draw(st.integers(0, len(steps))),
    )
