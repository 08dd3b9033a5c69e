from __future__ import annotations

from itertools import pairwise
from typing import Final

import attrs
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.model.documents import Document
from tidegate.model.patches import Patch, difference
from tidegate.sim.trace.trace import (
    Choice,
    Done,
    LawKind,
    Mover,
    NamedLaw,
    Option,
    Passing,
    StepKind,
    Trace,
    TraceStep,
    Truth,
)

SPECIMENS: Final = (
    "</script><script>alert(1)</script>",
    "</noscript><script>alert(1)</script>",
    "</pre><h1>",
    "</title><style>",
    "<!--<script>",
    "-->",
    "<img src=x onerror=alert(1)>",
    '" onfocus=alert(1) autofocus="',
    "'",
    '"',
    "&lt;&#60;&amp",
    "]]>",
    "\u2028\u2029",
    "\0\x01\x1b[31m\x7f\x9b",
    "\r\n",
    "\u202elanosrep\u2066",
    "\ufeff\u200b",
    "\\u003c\\",
    "https://example.org//x",
    "__proto__",
    "${1}`",
    "\U0001f40c",
    "long " * 2_000,
)

hostile = st.sampled_from(SPECIMENS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = hostile.map(lambda text: text.replace("\0", ""))
payloads = st.dictionaries(keys, hostile | strategies.values(), max_size=3).map(
    lambda items: Document(tuple(items.items()))
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    states = draw(st.lists(payloads, min_size=1, max_size=4))
    return Trace(
        scenario=draw(hostile),
        version=draw(hostile),
        law=draw(st.just("") | hostile),
        time=draw(hostile),
        seed=draw(st.none() | hostile),
        movers=tuple(map(Mover, draw(st.lists(hostile, max_size=3)))),
        initial=states[0],
        steps=tuple(
            TraceStep(draw(hostile), draw(hostile), draw(st.just("") | hostile), difference(before, after))
            for before, after in pairwise(states)
        ),
    )


def everywhere(text: str) -> Trace:
    key = text.replace("\0", "")
    after = Document(((key, text), ("again", (Document(((key, text),)),))))
    return telling(text, difference(Document(), after))


def telling(text: str, patch: Patch) -> Trace:
    choice, done = Choice((Option(text, text, text),), 0), Done(text, (text,), text)
    step = TraceStep(text, text, text, patch, 7, StepKind.WRITE, choice, (done,), ((text, Truth.BROKEN),), (), text)
    steps = (step, attrs.evolve(step, patch=(), causes=(1,)))
    trace = Trace(text, text, text, text, text, (Mover(text),), Document(), steps)
    return attrs.evolve(
        trace,
        laws=(NamedLaw(text, LawKind.ALWAYS),),
        python=text,
        fingerprint=text,
        passing=Passing(1, steps),
        original=steps,
    )


PLAIN: Final = everywhere("plain")


def everywhere_outside_of_documents(text: str) -> Trace:
    """As `everywhere`, but documents refuse lone surrogates."""
    return telling(text, ())


def counting(steps: int) -> Trace:
    states = [Document((("at", number),)) for number in range(steps + 1)]
    made = tuple(TraceStep("a", f"step {n}", "", difference(*pair)) for n, pair in enumerate(pairwise(states), 1))
    return attrs.evolve(PLAIN, initial=states[0], steps=made, passing=None, original=None)
