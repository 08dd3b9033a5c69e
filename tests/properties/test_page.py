from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from typing import Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.documents import Document
from tidegate.errors import Misuse
from tidegate.patches import difference
from tidegate.sim.page import carried, facts_of, page, told
from tidegate.sim.page_assets import SCRIPT, STYLE
from tidegate.sim.story import story
from tidegate.sim.trace import Mover, Trace, TraceStep
from tidegate.sim.trace_json import decoded, encoded

Page: TypeAlias = Callable[[Trace, str], str]
Attributes: TypeAlias = list[tuple[str, str | None]]

FILE: Final = "trace.json"

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
    "long " * 20_000,
)

hostile = st.sampled_from(SPECIMENS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = hostile.map(lambda text: text.replace("\0", ""))
payloads = st.dictionaries(keys, hostile | strategies.values(), max_size=3).map(
    lambda items: Document(tuple(items.items()))
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Runs in which every text is hostile, and every patch fits."""
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
    """A run that says `text` wherever a trace can say anything, twice as a fault."""
    key = text.replace("\0", "")
    after = Document(((key, text), ("again", (Document(((key, text),)),))))
    step = TraceStep(text, text, text, difference(Document(), after))
    return Trace(text, text, text, text, text, (Mover(text),), Document(), (step, attrs.evolve(step, patch=())))


PLAIN: Final = everywhere("plain")


# --- what a browser makes of a page -------------------------------------------------------------------------------------


class Seen(HTMLParser):
    """What is markup in a page, and what is text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.markup: list[tuple[str, Attributes]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "noscript": [], "title": [], "code": []}
        self.scripts: list[Attributes] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self.markup.append((tag, attrs))
        if tag == "script":
            self.scripts.append(attrs)
        if tag in self.texts:
            self.open.append(tag)
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.markup.append((f"/{tag}", []))
        if tag in self.open:
            self.open.remove(tag)

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts[tag][-1] += data

    def handle_comment(self, data: str) -> None:
        self.markup.append(("!--", [("", data)]))

    def handle_decl(self, decl: str) -> None:
        self.markup.append(("!", [("", decl)]))

    def unknown_decl(self, data: str) -> None:
        self.markup.append(("![", [("", data)]))

    def handle_pi(self, data: str) -> None:
        self.markup.append(("?", [("", data)]))

    def scripts_of(self, kind: str | None) -> list[str]:
        """The texts of the scripts of one type."""
        return [
            text
            for given, text in zip(self.scripts, self.texts["script"], strict=True)
            if dict(given).get("type") == kind
        ]

    def policy(self) -> dict[str, list[str]]:
        """The content security policy, by directive."""
        told = [dict(given) for tag, given in self.markup if tag == "meta"]
        policies = [each["content"] for each in told if each.get("http-equiv") == "Content-Security-Policy"]
        assert len(policies) == 1
        directives = [directive.split() for directive in str(policies[0]).split(";")]
        return {name: sources for name, *sources in directives}


# --- laws ---------------------------------------------------------------------------------------------------------------


def the_page_carries_the_trace(text: str, trace: Trace) -> bool:
    """Law G1: the page's one JSON element, decoded, is exactly the trace."""
    carried = Seen(text).scripts_of("application/json")
    try:
        return len(carried) == 1 and decoded(json.loads(carried[0])) == trace
    except (json.JSONDecodeError, Misuse):
        return False


def nothing_said_is_markup(text: str, plain: str) -> bool:
    """Law G2: two pages have the same elements and attributes, whatever their traces say."""
    return Seen(text).markup == Seen(plain).markup


REFERENCES: Final = frozenset(
    {"src", "href", "srcset", "action", "formaction", "data", "style", "background", "poster"}
)
ELSEWHERE: Final = re.compile(r"https?:|[\"'(]//|url\(|@import|\bimport\b")
MARKUP_OR_NETWORK: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|\bFunction\(|createContextualFragment|DOMParser"
    r"|\bfetch\b|XMLHttpRequest|WebSocket|EventSource|sendBeacon|Storage|indexedDB|cookie|setAttribute\(\"(?:on|src|href|style)"
)


def the_page_is_alone(text: str) -> bool:
    """Law G3: the policy names the page's own style and script, and nothing else could run or load."""
    seen = Seen(text)
    ours, styles = seen.scripts_of(None), seen.texts["style"]
    names = [(name, value or "") for _, given in seen.markup for name, value in given if name]
    return (
        len(ours) == len(styles) == 1
        and len(seen.scripts) == 2
        and seen.policy()
        == {
            "default-src": ["'none'"],
            "style-src": [hashed(styles[0])],
            "script-src": [hashed(ours[0])],
            "base-uri": ["'none'"],
            "form-action": ["'none'"],
        }
        and not any(name.startswith("on") or name in REFERENCES for name, _ in names)
        and not any("//" in value or ELSEWHERE.search(value) for _, value in names)
        and not any(ELSEWHERE.search(code) for code in (ours[0], styles[0]))
        and not MARKUP_OR_NETWORK.search(ours[0])
    )


def hashed(code: str) -> str:
    return f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'"


def the_story_is_told(text: str, trace: Trace) -> bool:
    """Law G4: without scripts the page shows the story; browsers skip the line break that follows `<pre>`."""
    return Seen(text).texts["noscript"] == ["\n" + story(trace)] and ("pre", []) in Seen(text).markup


def the_page_has_a_utf8_form(text: str) -> bool:
    """Law G5, second half: the page can be written as UTF-8, which it claims to be, and reads back the same."""
    try:
        return text.encode().decode() == text and ("meta", [("charset", "utf-8")]) in Seen(text).markup
    except UnicodeEncodeError:
        return False


def check_all(law: Callable[[Trace], bool]) -> None:
    @given(traces())
    @settings(max_examples=40)
    def holds(trace: Trace) -> None:
        assert law(trace)

    for text in SPECIMENS:
        assert law(everywhere(text))
    holds()


def check_g1(page: Page) -> None:
    check_all(lambda trace: the_page_carries_the_trace(page(trace, FILE), trace))


def check_g2(page: Page) -> None:
    plain = page(PLAIN, FILE)
    check_all(lambda trace: nothing_said_is_markup(page(trace, trace.scenario), plain))


def check_g3(page: Page) -> None:
    check_all(lambda trace: the_page_is_alone(page(trace, trace.scenario)))


def check_g4(page: Page) -> None:
    check_all(lambda trace: the_story_is_told(page(trace, FILE), trace))


def check_g5(page: Page) -> None:
    check_all(lambda trace: the_page_has_a_utf8_form(page(trace, FILE)))
    assert the_page_has_a_utf8_form(page(everywhere_outside_of_documents("\ud83d"), "\udc80.json"))


def everywhere_outside_of_documents(text: str) -> Trace:
    """As `everywhere`; documents refuse lone surrogates, and other texts of a trace do not."""
    step = TraceStep(text, text, text, ())
    return Trace(text, text, text, text, text, (Mover(text),), Document(), (step,))


def test_the_page_carries_the_trace() -> None:
    """Law G1: so a page that was mailed can be replayed."""
    check_g1(page)


def test_nothing_that_a_trace_says_becomes_markup() -> None:
    """Law G2: payloads are hostile; the file's name as well."""
    check_g2(page)


def test_the_page_runs_and_loads_nothing_else() -> None:
    """Law G3: one file, from any disk, with no network and no storage."""
    check_g3(page)


def test_without_scripts_the_page_tells_the_story() -> None:
    """Law G4: the static fall-back is the text that a terminal shows."""
    check_g4(page)


def test_the_page_has_a_utf8_form_whatever_the_trace_says() -> None:
    """Law G5: whoever writes the page cannot fail at a lone surrogate."""
    check_g5(page)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def planted(before: Callable[[Trace], str], after: Callable[[Trace], str]) -> Page:
    """The page with one part done wrong; the part is there once or more."""

    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(before(trace), after(trace))

    return wrong


def raw_json(trace: Trace) -> str:
    return json.dumps(encoded(trace), separators=(",", ":"))


def json_as_it_is() -> Page:
    """Planted bug: a payload ends the element that holds the JSON."""
    return planted(lambda trace: carried(trace) + "<", lambda trace: raw_json(trace) + "<")


def json_as_html() -> Page:
    """Planted bug: the JSON is escaped as text is, where no browser undoes it."""
    return planted(lambda trace: carried(trace) + "<", lambda trace: escape(raw_json(trace)) + "<")


def json_without_the_last_step() -> Page:
    """Planted bug: the step that breaks the law is not carried."""
    return planted(carried, lambda trace: carried(attrs.evolve(trace, steps=trace.steps[:-1])))


def law_as_markup() -> Page:
    """Planted bug: the heading is not escaped."""
    return planted(lambda trace: f"<h1>{told(trace.law)}<", lambda trace: f"<h1>{trace.law}<")


def title_as_markup() -> Page:
    """Planted bug: the title is not escaped."""
    return planted(lambda trace: f"<title>{told(trace.law)}", lambda trace: f"<title>{trace.law}")


def fact_as_markup(term: str) -> Page:
    """Planted bug: one fact of the head is not escaped."""
    return planted(lambda trace: told(dict(facts_of(trace))[term]), lambda trace: dict(facts_of(trace))[term])


def file_as_markup() -> Page:
    """Planted bug: the command is not escaped."""

    def wrong(trace: Trace, file: str) -> str:
        return re.sub(
            '(<code id="command">).*?</code>',
            lambda found: f"{found[1]}tidegate replay {file}</code>",
            page(trace, file),
        )

    return wrong


def story_of(trace: Trace) -> str:
    return page(trace, FILE).partition("<noscript><pre>\n")[2].partition("</pre></noscript>")[0]


def story_as_markup() -> Page:
    """Planted bug: the story is not escaped."""
    return planted(lambda trace: f"<pre>\n{story_of(trace)}", lambda trace: f"<pre>\n{story(trace)}")


def story_cut() -> Page:
    """Planted bug: a long story is cut."""
    return planted(story_of, lambda trace: story_of(trace)[:1_000])


def story_at_once() -> Page:
    """Planted bug: no line break follows `<pre>`, so that a browser skips the first one of the story."""
    return planted(lambda _: "<pre>\n", lambda _: "<pre>")


def handler() -> Page:
    """Planted bug: a handler in an attribute."""
    return planted(lambda _: 'id="copy"', lambda _: 'id="copy" onclick="copy()"')


def library() -> Page:
    """Planted bug: a style from elsewhere."""
    return planted(lambda _: "<style>", lambda _: '<link rel="stylesheet" href="//cdn.example/x.css"><style>')


def anything_goes() -> Page:
    """Planted bug: the policy lets every script in the page run."""
    return planted(lambda _: "script-src 'sha256", lambda _: "script-src 'unsafe-inline' 'sha256")


def script_changed() -> Page:
    """Planted bug: the hash is that of another text."""
    return planted(lambda _: SCRIPT, lambda _: SCRIPT + "\n")


def script_says(before: str, after: str) -> Page:
    """Planted bug: the script does what it must not, and the policy names it."""
    changed = SCRIPT.replace(before, after)
    assert changed != SCRIPT

    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(SCRIPT, changed).replace(hashed(SCRIPT), hashed(changed))

    return wrong


def style_says(more: str) -> Page:
    """Planted bug: the style loads something, and the policy names it."""

    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(STYLE, STYLE + more).replace(hashed(STYLE), hashed(STYLE + more))

    return wrong


@pytest.mark.parametrize("wrong", [json_as_it_is(), json_as_html(), json_without_the_last_step()])
def test_a_planted_bug_breaks_g1(wrong: Page) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_g1(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        json_as_it_is(),
        law_as_markup(),
        title_as_markup(),
        file_as_markup(),
        story_as_markup(),
        *map(fact_as_markup, ["Scenario", "Faults", "Time", "Seed", "Written by"]),
    ],
)
def test_a_planted_bug_breaks_g2(wrong: Page) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_g2(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        json_as_it_is(),
        handler(),
        library(),
        anything_goes(),
        script_changed(),
        script_says("detail.replaceChildren(", "detail.innerHTML = ("),
        script_says('"use strict";', '"use strict"; fetch(location.href);'),
        script_says('"use strict";', '"use strict"; localStorage.clear();'),
        script_says('"use strict";', '"use strict"; import("//cdn.example/x.js");'),
        style_says("body { background: url(x.png); }"),
        style_says('@import "x.css";'),
    ],
)
def test_a_planted_bug_breaks_g3(wrong: Page) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_g3(wrong)


@pytest.mark.parametrize("wrong", [story_as_markup(), story_cut(), story_at_once()])
def test_a_planted_bug_breaks_g4(wrong: Page) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_g4(wrong)


@pytest.mark.parametrize("wrong", [fact_as_markup("Scenario")])
def test_a_planted_bug_breaks_g5(wrong: Page) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_g5(wrong)


# --- the same text always -----------------------------------------------------------------------------------------------

PRINTS: Final = """
import sys, json
from tidegate.sim.page import page
from tidegate.sim.trace_json import decoded
trace = decoded(json.load(sys.stdin))
sys.stdout.reconfigure(encoding="utf-8", newline="")
sys.stdout.write(page(trace, "trace.json"))
"""


def printed(code: str, seed: int, trace: Trace) -> bytes:
    """What the code prints of the trace in a process of its own."""
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    told = json.dumps(encoded(trace)).encode()
    return subprocess.run(
        [sys.executable, "-c", code], input=told, env=environment, capture_output=True, check=True
    ).stdout


def check_the_same_text(code: str) -> None:
    steps = tuple(TraceStep(f"p{number}", "moves", f"fault {number}", ()) for number in range(20))
    trace = attrs.evolve(PLAIN, movers=tuple(Mover(step.process) for step in steps), steps=steps)
    assert printed(code, 1, trace) == printed(code, 2, trace) == page(trace, FILE).encode()


def test_a_trace_always_has_the_same_page() -> None:
    """Law G5, first half: the same bytes in two processes whose hashes differ, and in this one."""
    check_the_same_text(PRINTS)


def test_a_set_in_the_page_breaks_g5() -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_the_same_text(PRINTS + "sys.stdout.write(str({mover.name for mover in trace.movers}))\n")


# --- what it says -------------------------------------------------------------------------------------------------------


def fact(trace: Trace, term: str) -> str:
    return dict(facts_of(trace))[term]


def test_the_head_counts_the_faults() -> None:
    """Feature 1: the faults used, each with how often it struck."""
    once, twice = TraceStep("a", "moves", "late", ()), TraceStep("a", "moves", "dropped", ())

    assert fact(attrs.evolve(PLAIN, steps=(twice, once, twice)), "Faults") == "dropped, 2 times, late"
    assert fact(attrs.evolve(PLAIN, steps=()), "Faults") == "none"


def test_a_run_that_breaks_nothing_has_a_page() -> None:
    """A recorded run need not be a counterexample."""
    clean = page(attrs.evolve(PLAIN, law="", seed=None), FILE)

    assert '<p class="verdict">No law broken</p>' in clean
    assert "<title>plain (tidegate)</title>" in clean


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
@example("")
@example("it's")
@example("$(reboot)")
@example("a b")
def test_the_command_is_one_word_per_argument(file: str) -> None:
    """A name that a shell would read as anything else is quoted; printable names are shown as they are."""
    command = Seen(page(PLAIN, file)).texts["code"][0]

    assert shlex.split(command) == ["tidegate", "replay", file]


def test_the_code_of_the_page_is_small() -> None:
    """At most 60 kB, of which a reader of the source can read every byte."""
    assert len(page(PLAIN, FILE).encode()) < 60_000
    assert (SCRIPT + STYLE).isascii()
