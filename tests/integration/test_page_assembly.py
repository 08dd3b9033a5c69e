"""How a page is assembled (laws G1 to G5): text never becomes markup, and no other code runs."""

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
from importlib.resources import files
from typing import Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.sim.hostile_traces import (
    PLAIN,
    SPECIMENS,
    everywhere,
    everywhere_outside_of_documents,
    traces,
)

from tidegate.model.documents import one_line
from tidegate.model.errors import Misuse
from tidegate.sim.trace.page import page_data
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Mover, PolicyName, Trace, TraceStep
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate_adapters.page import live
from tidegate_adapters.page.assembly import MODULES, page, script, style
from tidegate_adapters.page.parts import script_of

Page: TypeAlias = Callable[[Trace, str], str]
Attributes: TypeAlias = list[tuple[str, str | None]]

FILE: Final = "trace.json"
SCRIPT: Final = script()
STYLE: Final = style()

# --- pages as a browser parses them -------------------------------------------------------------------------------------


class Seen(HTMLParser):
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
        return [
            text
            for given, text in zip(self.scripts, self.texts["script"], strict=True)
            if dict(given).get("type") == kind
        ]

    def policy(self) -> dict[str, list[str]]:
        metas = [dict(given) for tag, given in self.markup if tag == "meta"]
        policies = [each["content"] for each in metas if each.get("http-equiv") == "Content-Security-Policy"]
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
DIGEST: Final = re.compile(r"'sha256-[^']*'")
ELSEWHERE: Final = re.compile(r"https?:|[\"'(]//|url\(|@import|\bimport\b")
MARKUP_OR_NETWORK: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|\bFunction\(|createContextualFragment|DOMParser"
    r"|\bfetch\b(?!\")|\[\"fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|Storage|indexedDB|cookie|setAttribute\(\"(?:on|src|href|style)"
)


def the_page_is_alone(text: str) -> bool:
    """Law G3: the policy names the page's own style and script, and no others run or load."""
    seen = Seen(text)
    ours, styles = seen.scripts_of(None), seen.texts["style"]
    names = [(name, DIGEST.sub("", value or "")) for _, given in seen.markup for name, value in given if name]
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


def the_story_is_shown(text: str, trace: Trace) -> bool:
    """Law G4: without scripts the page shows the story. Browsers skip a line break after
    `<pre>`.
    """
    return Seen(text).texts["noscript"] == ["\n" + render(trace)] and ("pre", []) in Seen(text).markup


def the_page_has_a_utf8_form(text: str) -> bool:
    """Law G5, second half: the page is valid UTF-8, as it claims, and reads back the same."""
    try:
        return text.encode().decode() == text and ("meta", [("charset", "utf-8")]) in Seen(text).markup
    except UnicodeEncodeError:
        return False


def check_all(law: Callable[[Trace], bool]) -> None:
    @given(traces())
    @settings(max_examples=20)
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
    check_all(lambda trace: the_story_is_shown(page(trace, FILE), trace))


def check_g5(page: Page) -> None:
    check_all(lambda trace: the_page_has_a_utf8_form(page(trace, FILE)))
    assert the_page_has_a_utf8_form(page(everywhere_outside_of_documents("\ud83d"), "\udc80.json"))


def test_the_page_carries_the_trace() -> None:
    check_g1(page)


def test_nothing_that_a_trace_says_becomes_markup() -> None:
    check_g2(page)


def test_the_page_runs_and_loads_nothing_else() -> None:
    check_g3(page)


def test_without_scripts_the_page_tells_the_story() -> None:
    check_g4(page)


def test_the_page_has_a_utf8_form_whatever_the_trace_says() -> None:
    check_g5(page)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def planted(before: Callable[[Trace], str], after: Callable[[Trace], str]) -> Page:
    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(before(trace), after(trace))

    return wrong


def line(text: str) -> str:
    return escape(one_line(text))


def fact(trace: Trace, term: str) -> str:
    return dict(page_data(trace).facts)[term]


IN_SCRIPT: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def carried(trace: Trace) -> str:
    return raw_json(trace).translate(IN_SCRIPT)


def raw_json(trace: Trace) -> str:
    return json.dumps(encoded(trace), separators=(",", ":"))


def json_as_it_is() -> Page:
    return planted(lambda trace: carried(trace) + "<", lambda trace: raw_json(trace) + "<")


def json_as_html() -> Page:
    """Planted bug: HTML escapes, which no browser undoes in a script element."""
    return planted(lambda trace: carried(trace) + "<", lambda trace: escape(raw_json(trace)) + "<")


def json_without_the_last_step() -> Page:
    return planted(carried, lambda trace: carried(attrs.evolve(trace, steps=trace.steps[:-1])))


def law_as_markup() -> Page:
    return planted(lambda trace: f"<h1>{line(trace.law)}<", lambda trace: f"<h1>{trace.law}<")


def title_as_markup() -> Page:
    return planted(lambda trace: f"<title>{line(trace.law)}", lambda trace: f"<title>{trace.law}")


def fact_as_markup(term: str) -> Page:
    return planted(lambda trace: line(fact(trace, term)), lambda trace: fact(trace, term))


def file_as_markup() -> Page:
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
    return planted(lambda trace: f"<pre>\n{story_of(trace)}", lambda trace: f"<pre>\n{render(trace)}")


def story_cut() -> Page:
    return planted(story_of, lambda trace: story_of(trace)[:1_000])


def story_at_once() -> Page:
    """Planted bug: a browser skips the first line break of the story after `<pre>`."""
    return planted(lambda _: "<pre>\n", lambda _: "<pre>")


def handler() -> Page:
    return planted(lambda _: 'id="save"', lambda _: 'id="save" onclick="copy()"')


def library() -> Page:
    return planted(lambda _: "<style>", lambda _: '<link rel="stylesheet" href="//cdn.example/x.css"><style>')


def anything_goes() -> Page:
    return planted(lambda _: "script-src 'sha256", lambda _: "script-src 'unsafe-inline' 'sha256")


def script_changed() -> Page:
    return planted(lambda _: SCRIPT, lambda _: SCRIPT + "\n")


def script_says(before: str, after: str) -> Page:
    changed = SCRIPT.replace(before, after)
    assert changed != SCRIPT

    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(SCRIPT, changed).replace(hashed(SCRIPT), hashed(changed))

    return wrong


def style_says(more: str) -> Page:
    def wrong(trace: Trace, file: str) -> str:
        return page(trace, file).replace(STYLE, STYLE + more).replace(hashed(STYLE), hashed(STYLE + more))

    return wrong


@pytest.mark.parametrize("wrong", [json_as_it_is(), json_as_html(), json_without_the_last_step()])
def test_a_planted_bug_breaks_g1(wrong: Page) -> None:
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
        script_says("detail.replaceChildren(", "detail.innerHTML=("),
        script_says('"use strict";', '"use strict"; fetch(location.href);'),
        script_says('"use strict";', '"use strict"; localStorage.clear();'),
        script_says('"use strict";', '"use strict"; import("//cdn.example/x.js");'),
        style_says("body { background: url(x.png); }"),
        style_says('@import "x.css";'),
    ],
)
def test_a_planted_bug_breaks_g3(wrong: Page) -> None:
    with pytest.raises(AssertionError):
        check_g3(wrong)


@pytest.mark.parametrize("wrong", [story_as_markup(), story_cut(), story_at_once()])
def test_a_planted_bug_breaks_g4(wrong: Page) -> None:
    with pytest.raises(AssertionError):
        check_g4(wrong)


@pytest.mark.parametrize("wrong", [fact_as_markup("Scenario")])
def test_a_planted_bug_breaks_g5(wrong: Page) -> None:
    with pytest.raises(AssertionError):
        check_g5(wrong)


# --- determinism --------------------------------------------------------------------------------------------------------

PRINTS: Final = """
import sys, json
from tidegate_adapters.page.assembly import page
from tidegate.sim.trace.trace_json import decoded
trace = decoded(json.load(sys.stdin))
sys.stdout.reconfigure(encoding="utf-8", newline="")
sys.stdout.write(page(trace, "trace.json"))
"""


def printed(code: str, seed: int, trace: Trace) -> bytes:
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    sent = json.dumps(encoded(trace)).encode()
    return subprocess.run(
        [sys.executable, "-c", code], input=sent, env=environment, capture_output=True, check=True
    ).stdout


def check_the_same_text(code: str) -> None:
    steps = tuple(TraceStep(f"p{number}", "moves", f"fault {number}", ()) for number in range(20))
    trace = attrs.evolve(PLAIN, movers=tuple(Mover(step.process) for step in steps), steps=steps)
    assert printed(code, 1, trace) == printed(code, 2, trace) == page(trace, FILE).encode()


def test_a_trace_always_has_the_same_page() -> None:
    """Law G5, first half: the same bytes under different hash seeds."""
    check_the_same_text(PRINTS)


def test_a_set_in_the_page_breaks_g5() -> None:
    with pytest.raises(AssertionError):
        check_the_same_text(PRINTS + "sys.stdout.write(str({mover.name for mover in trace.movers}))\n")


# --- content ------------------------------------------------------------------------------------------------------------


def test_the_head_says_what_the_data_says() -> None:
    data = page_data(attrs.evolve(PLAIN, policy=PolicyName.SHRUNK))
    text = page(attrs.evolve(PLAIN, policy=PolicyName.SHRUNK), FILE)

    assert f"<title>{data.title} (tidegate)</title>" in text
    assert f'<p class="verdict">{data.verdict}</p>\n<h1>{data.heading}</h1>' in text
    assert all(f"<div><dt>{term}</dt><dd>{said}</dd></div>" in text for term, said in data.facts)
    assert f'<p id="reason" hidden>{data.reason}</p>' in text
    assert data.reason


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
@example("")
@example("it's")
@example("$(reboot)")
@example("a b")
def test_the_command_is_one_word_per_argument(file: str) -> None:
    command = Seen(page(PLAIN, file)).texts["code"][0]

    assert shlex.split(command) == ["tidegate", "replay", file]


def test_another_command_that_replays_it_is_shown() -> None:
    other = "pytest 'test_x.py::test_y[<1>]' --tidegate-replay='a b.json'"
    seen = Seen(page(PLAIN, "a b.json", other))

    assert seen.texts["code"] == ["tidegate replay 'a b.json'", other]
    assert [dict(given).get("data-copies") for tag, given in seen.markup if "data-copies" in dict(given)] == [
        "command",
        "also",
    ]


# --- its code -----------------------------------------------------------------------------------------------------------


def test_the_code_of_the_page_is_small() -> None:
    code = SCRIPT + STYLE

    assert code.isascii()
    assert len(code) <= 85_000
    assert len(page(attrs.evolve(PLAIN, passing=None, original=None), FILE).encode()) < 100_000


ASSETS: Final = {each.name: each.read_text("utf-8") for each in (files("tidegate_adapters.page") / "assets").iterdir()}
NAMED: Final = re.compile(r"(?m)^(?:export )?(?:const|let|class|function|async function) (\w+)")
IMPORTED: Final = re.compile(r'(?m) from "\./(\w+)\.js";$')


@pytest.mark.parametrize(
    ("modules", "script"), [(MODULES, SCRIPT), (live.MODULES, script_of(live.MODULES))], ids=["page", "live"]
)
def test_the_modules_of_a_script_are_one_program(modules: tuple[str, ...], script: str) -> None:
    """Each follows those it imports; names are unique, as all share one scope."""
    names = [name for module in modules for name in NAMED.findall(ASSETS[f"{module}.js"])]

    assert len(names) == len(set(names))
    for place, module in enumerate(modules):
        assert set(IMPORTED.findall(ASSETS[f"{module}.js"])) <= set(modules[:place])
    assert "import " not in script
    assert "export " not in script


def test_every_module_is_of_a_page() -> None:
    assert {f"{module}.js" for module in (*MODULES, *live.MODULES)} == {name for name in ASSETS if name.endswith(".js")}
