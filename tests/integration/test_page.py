"""The pages of the counterexamples that ship, and what a real browser makes of a page, where there is one."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Final, cast

import pytest

from tidegate.documents import Document, Value, show
from tidegate.instants import Instant
from tidegate.patches import difference
from tidegate.scenarios.catalogue import shipped
from tidegate.sim.page import page
from tidegate.sim.replay import Reproduced, replay
from tidegate.sim.report import explore
from tidegate.sim.trace import Mover, Trace, TraceStep
from tidegate.sim.trace_json import decoded

SCENARIOS: Final = ("array_push_lock.stall.2", "array_push_lock.lost_reply", "transition.not_read_again")


def counterexample(scenario: str) -> Trace:
    trace = explore(shipped(scenario)).trace
    assert trace is not None
    return trace


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_page_alone_is_enough_to_replay_the_run(scenario: str) -> None:
    """Features 16 and 1: the JSON in the page is the trace, and it happens again as recorded."""
    trace = counterexample(scenario)

    found = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page(trace, "trace.json"))
    carried = decoded(json.loads(found[0]))

    assert carried == trace
    assert replay(carried, shipped(scenario)) == Reproduced(len(trace.steps))


# --- in a browser -------------------------------------------------------------------------------------------------------

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
    "--dump-dom",
)

Ask = Callable[[str, str], object]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Opens a page in a browser and evaluates an expression there, after the page has run; answers plain JSON."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("there is no Chromium on this machine")

    def asked(html: str, expression: str) -> object:
        probe = PROBE.replace("EXPRESSION", expression)
        name = b64encode(sha256(probe.encode()).digest()).decode()
        html = html.replace("script-src ", f"script-src 'sha256-{name}' ", 1)
        html = html.replace("<title>", f"<script>{probe}</script><title>", 1)
        file = tmp_path / "page.html"
        file.write_bytes(html.encode())
        seen = subprocess.run(
            [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout.decode()
        answer = re.search("<html[^>]*>(.*)</html>", seen, re.DOTALL)
        assert answer is not None
        return cast("object", json.loads(unescape(answer[1])))

    return asked


PROBE: Final = """
const wrong = [];
addEventListener("error", event => wrong.push(event.message));
addEventListener("securitypolicyviolation", event => wrong.push(event.violatedDirective));
addEventListener("load", () => setTimeout(() => {
  const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const all = (which, within = document) => [...within.querySelectorAll(which)];
  const text = which => all(which).map(each => each.textContent);
  const answer = JSON.stringify(EXPRESSION);
  document.documentElement.textContent = answer;
}, 500));  // violations are told some time after they happened
"""

HOSTILE: Final = (
    "</script><script>wrong.push('script')</script>",
    "</noscript></pre><script>wrong.push('noscript')</script>",
    "<img src=x onerror=wrong.push('image')>",
    "<!--<script>",
    '" onfocus="wrong.push(1)" autofocus tabindex=0 x="',
    "\u2028\u202e\u0001\r\n",
    "__proto__",
    "a/b~c",
    "9",
    "1",
    "\u00e9\U0001f40c",
    'quoted " -> \\',
    "long " * 20_000,
)


def built(states: list[Document]) -> Trace:
    """A run through these states, which says hostile things besides."""
    steps = tuple(
        TraceStep(
            HOSTILE[number % 9], f'{text} "{text}" -> {text}', text if number % 3 else "", difference(before, after)
        )
        for number, (before, after) in enumerate(pairwise(states))
        for text in (HOSTILE[number % len(HOSTILE)],)
    )
    return Trace(
        HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[4], HOSTILE[5], tuple(map(Mover, HOSTILE[:9])), states[0], steps
    )


def value(draw: random.Random, depth: int = 0) -> Value:
    """Any value; keys and texts are hostile, numbers are such as a browser's own JSON would round."""
    kind = draw.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return tuple(value(draw, depth + 1) for _ in range(draw.randrange(4)))
    if kind == 8:
        return document(draw, depth + 1)
    scalars: tuple[Value, ...] = (
        draw.choice(HOSTILE),
        draw.choice((2**53 + 1, -(2**63), 0, 7)),
        draw.choice((1.0, -0.0, 1e16, 1e-7, math.inf, -math.inf, math.nan)),
        Instant(draw.choice((0, 1_500_000, -2_000, 253_402_300_799_999_000))),
        draw.choice((True, False)),
        None,
        (),
    )
    return scalars[kind]


def document(draw: random.Random, depth: int = 0) -> Document:
    names = draw.sample((*HOSTILE, "$bytes", "$document", "plain"), draw.randrange(6))
    return Document(tuple((name, value(draw, depth)) for name in names))


def visible(text: str) -> str:
    """As `show` writes a text, but for quotes and backslashes: what it leaves alone in the keys of documents."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def test_a_browser_rebuilds_every_state(ask: Ask) -> None:
    """Feature 7: the script's states are those of the core, to the order of keys and the last digit of a number."""
    draw = random.Random(7)
    trace = built([document(draw) for _ in range(120)])

    seen = ask(page(trace, "trace.json"), "[states.map(show), misfit, wrong]")

    assert seen == [[visible(show(state)) for state in trace.states()], 0, []]


def test_hostile_payloads_stay_text_in_a_browser(ask: Ask) -> None:
    """Feature 19: nothing runs and nothing is loaded, and the elements are those of a plain run."""
    draw = random.Random(11)
    trace = built([document(draw) for _ in range(40)])

    seen = ask(
        page(trace, "trace.json"),
        "[run.map((_, index) => choose(index)), all('img, iframe, object, a, h1 *').length, all('script').length, wrong]",
    )

    assert seen == [[None] * len(trace.steps), 0, 3, []]  # the third script is the one that asks


def test_the_policy_stops_what_was_not_escaped(ask: Ask) -> None:
    """Feature 19, second wall: with the heading planted as markup, neither its script nor its handler runs."""
    planted = page(counterexample(SCENARIOS[1]), "trace.json").replace("<h1>", f"<h1>{HOSTILE[0]}{HOSTILE[2]}", 1)

    seen = ask(planted, "wrong")

    assert isinstance(seen, list)
    assert sorted(set(seen)) == ["img-src", "script-src-attr", "script-src-elem"]


def test_the_page_tells_how_two_came_to_hold_the_lock(ask: Ask) -> None:
    """Features 1, 2 and 7: the lanes of the stall, step by step, with the keyboard alone."""
    trace = counterexample("array_push_lock.stall.2")

    seen = ask(
        page(trace, "trace.json"),
        """{
          law: text("h1"),
          lanes: text(".name").map(name => name.replace(/holds the lock$/, " holds the lock")),
          broken: text(".broken .mark"),
          chosen: text("h2"),
          before: (press("k"), press("k"), text("h2")),
          after: (press("j"), text("h2")),
          change: (choose(12), text(".patch .remove, .patch .old")),
          loud: all(".step").map(row => all(".is-loud", row).length),
          selected: all("[aria-selected=true]").map(row => row.id),
          first: (choose(-5), text(".detail h3")),
          wrong,
        }""",
    )

    assert seen == {
        "law": ["at most one holds the lock"],
        "lanes": ["a holds the lock", "b holds the lock", "network", "clock9 s"],
        "broken": ["\u00d7 breaks the law: at most one holds the lock"],
        "chosen": ["Step 18 of 18: b"],
        "before": ["Step 16 of 18: b"],
        "after": ["Step 17 of 18: b"],
        "change": [
            '\u2212 removeddocuments / invocations / x / transition_lock / 0"a-0:0.000000"',
            '"a-0:0.000000"',
        ],
        "loud": [0, 0, 0, 0, *[1] * 14, 2],
        "selected": ["step-12"],
        "first": ["The first state"],
        "wrong": [],
    }


def test_a_long_text_is_folded_and_says_how_long_it_is(ask: Ask) -> None:
    """Feature 17: a payload of 100,000 characters does not bury the page, and is there on demand."""
    trace = built([Document(), Document((("payload", HOSTILE[-1]),))])

    seen = ask(
        page(trace, "trace.json"),
        """[text(".tree .fold"), text(".tree .value")[0].length < 500, all(".tree .fold")[0].click(),
            text(".tree .value > span")[0].length, text(".tree .fold")]""",
    )

    assert seen == [["\u2026 all 100,002 characters"], True, None, 100_002, ["fold"]]
