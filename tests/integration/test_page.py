"""The pages of shipped counterexamples in a real browser."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, cast

import attrs
import pytest
from tests.integration.browser import Browser, Tab
from tests.integration.kafka_runs import found, line
from tests.integration.kafka_runs import page_of as page_of_workers
from tests.integration.page_runs import everything, long
from tests.integration.planting import planted
from tests.integration.test_kafka_runs import BUGS, SEEDS
from tests.length import REBUILT

from tidegate.catalogue import shipped
from tidegate.model.documents import Document, Value, show
from tidegate.model.instants import Instant
from tidegate.model.patches import Json, difference
from tidegate.sim.runs.replay import Reproduced, replay
from tidegate.sim.runs.report import explore
from tidegate.sim.trace.page import page_data_of, windowed
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Mover, Trace, TraceStep, past
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate_adapters.page.assembly import page, page_of

SCENARIOS: Final = ("array_push_lock.stall.2", "array_push_lock.lost_reply", "transition.not_read_again")


def counterexample(scenario: str) -> Trace:
    trace = explore(shipped(scenario)).trace
    assert trace is not None
    return trace


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_page_alone_is_enough_to_replay_the_run(scenario: str) -> None:
    trace = counterexample(scenario)

    found = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page(trace, "trace.json"))
    carried = decoded(json.loads(found[0]))

    assert carried == trace
    assert replay(carried, shipped(scenario)) == Reproduced(len(trace.steps))


# --- in a browser -------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.xdist_group("browser")

PICTURES: Final = Path(__file__).parents[2] / ".tidegate" / "artifacts"


Open = Callable[..., Tab]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    tabs: list[Tab] = []

    def opened(html: str, **how: object) -> Tab:
        file = tmp_path / f"page {len(tabs)}.html"
        file.write_bytes(html.encode())
        tabs.append(browser.open(file, **how))
        return tabs[-1]

    yield opened
    wrong = [tab.wrong() for tab in tabs]
    for tab in tabs:
        tab.close()
    assert wrong == [[]] * len(tabs)


def chosen(tab: Tab) -> object:
    return tab.run("chosen")


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
    """Hostile keys and texts, and numbers that a browser's JSON would round."""
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
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def test_a_browser_rebuilds_every_state(open_page: Open) -> None:
    """To the order of keys and the last digit of a number."""
    draw = random.Random(7)
    trace = built([document(draw) for _ in range(REBUILT)])

    tab = open_page(page(trace, "trace.json"))

    assert tab.run("[run.states.map(show), run.misfit]") == [[visible(show(state)) for state in trace.states()], 0]


def test_hostile_payloads_stay_text_in_a_browser(open_page: Open) -> None:
    draw = random.Random(11)
    trace = built([document(draw) for _ in range(12)])

    tab = open_page(page(trace, "trace.json"))
    tab.press("t", "x", "v", "v", "d")
    tab.run("run.steps.forEach((step, index) => { choose(index); step.ops.slice(0, 1).forEach(op => pin(op.path)); })")

    assert tab.run("document.querySelectorAll('img, iframe, object, h1 *, dd *').length") == 0
    assert tab.run("document.querySelectorAll('script').length") == 2


def test_the_policy_stops_what_was_not_escaped(browser: Browser, tmp_path: Path) -> None:
    """The second defence: the heading is planted as markup."""
    planted = page(counterexample(SCENARIOS[1]), "trace.json").replace("<h1>", f"<h1>{HOSTILE[0]}{HOSTILE[2]}", 1)
    file = tmp_path / "planted.html"
    file.write_bytes(planted.encode())

    tab = browser.open(file)
    wrong = " ".join(tab.wrong())
    tab.close()

    assert all(directive in wrong for directive in ("script-src", "img-src", "Executing inline event handler"))
    assert "is not defined" not in wrong


def test_the_page_tells_how_two_came_to_hold_the_lock(open_page: Open) -> None:
    trace = counterexample("array_push_lock.stall.2")

    tab = open_page(page(trace, "trace.json"), height=1_500)

    assert tab.texts("h1") == ["at most one holds the lock"]
    assert tab.texts(".name .text") == ["a", "b", "invocations", "network", "clock"]
    assert tab.texts(".name .says") == ["holds the lock", "holds the lock", "", "", "6 s"]
    assert tab.texts(".step.broken .mark") == ["\u00d7 breaks the law: at most one holds the lock"]
    assert tab.texts("#detail h2") == ["Step 16: b"]
    tab.press("k", "k", "j")
    assert tab.texts("#detail h2") == ["Step 15: b"]
    tab.press("k", "k", "k")
    assert tab.texts(".patch .remove, .patch .old") == [
        '\u2212 removeddocuments / invocations / x / transition_lock / 0"a-0:0.000000"',
        '"a-0:0.000000"',
    ]
    tab.press("Home", "k")
    assert tab.texts("#detail h2, #detail h3") == ["The beginning", "The first state "]
    tab.picture(PICTURES / "stall.png")


def test_the_page_tells_what_a_worker_did_wrong(open_page: Open, tmp_path: Path) -> None:
    with planted(BUGS["a commit is one too high"]):
        story = found(SEEDS["rebalance"], ("rebalance",))
        assert story is not None
        html = page_of_workers(story.course.seed, ("rebalance",), tmp_path)

    tab = open_page(html.read_text("utf-8"), height=1_500)

    assert tab.texts("h1") == ["J2: No position is committed while a record before it is unfinished (P1)."]
    assert tab.texts(".step.broken .mark") == [f"\u00d7 breaks the law: {tab.texts('h1')[0]}"]
    assert {"run", "a", "judge"} <= set(tab.texts(".name .text"))
    assert tab.texts(".replay code") == [line(story.course.seed, ("rebalance",))]
    tab.press("k")
    assert "committed" in tab.texts("#detail")[0]
    tab.picture(PICTURES / "workers.png")


def test_a_long_text_is_folded_and_says_how_long_it_is(open_page: Open) -> None:
    """100,000 characters, on demand."""
    trace = built([Document(), Document((("payload", HOSTILE[-1]),))])

    tab = open_page(page(trace, "trace.json"))

    assert tab.texts(".patch .fold") == ["\u2026 all 100,002 characters"]
    assert len(tab.texts(".patch .value")[0]) < 500
    tab.run("document.querySelector('.patch .fold').click()")
    assert len(tab.texts(".patch .value > span")[0]) == 100_002
    assert tab.texts(".patch .fold") == ["fold"]


# --- every feature ------------------------------------------------------------------------------------------------------

EVERYTHING: Final = everything()
COUNT: Final = len(EVERYTHING.steps)
TALL: Final = 2_600  # tall enough for all rows


def test_the_head_says_what_happened_and_how_to_replay_it(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json", "pytest test_x.py --tidegate-replay=a.json"))

    facts = dict(zip(tab.texts("dt"), tab.texts("dd"), strict=False))
    assert tab.texts(".verdict, h1") == [f"Law broken at step {COUNT}", EVERYTHING.law]
    assert facts["Steps"] == f"{COUNT}, {COUNT + 2} before shrinking"
    assert (facts["Seed"], facts["Schedule"], facts["Scenario"]) == ("0x5e1f", "shrunk", "takeover")
    assert facts["Written by"] == "tidegate 1.2.3, Python 3.11.7, tidegate/trace@1"
    assert facts["Faults"] == ", ".join(EVERYTHING.faults)
    assert tab.texts(".replay code") == ["tidegate replay a.json", "pytest test_x.py --tidegate-replay=a.json"]
    tab.click("[data-copies=also]")
    tab.run("new Promise(done => setTimeout(done, 100))")
    assert tab.texts("[data-copies=also]")[0] in {"Copied", "Selected: press Ctrl+C"}
    assert tab.run("getSelection().toString() || 'copied'") in {"copied", "pytest test_x.py --tidegate-replay=a.json"}


def test_lanes_are_moved_and_hidden(open_page: Open) -> None:
    """With the mouse, or Shift and an arrow."""
    tab = open_page(page(EVERYTHING, "a.json"), width=1_920, height=TALL)
    lanes = ["w1", "w2", "leases", "partition 0", "counts", "markers", *(mover.name for mover in EVERYTHING.movers[2:])]

    assert tab.texts(".name .text") == lanes
    tab.drag(".name:nth-child(1)", cast("float", tab.run("laneWidth * 2")))
    assert tab.texts(".name .text")[:3] == ["w2", "leases", "w1"]
    tab.run("document.querySelector('.name:nth-child(3)').focus()")
    tab.press("Shift+ArrowLeft", "Shift+ArrowLeft")
    assert tab.texts(".name .text") == lanes
    tab.press("h")
    assert tab.texts(".name .text") == lanes[1:]
    assert not any(name == "w1" for name in tab.texts(".step .who"))
    assert tab.texts(".notice") == ["9 steps are hidden."]
    tab.click(".chip")
    assert sorted(tab.texts(".name .text")) == sorted(lanes)
    assert len(tab.texts(".step")) == COUNT + 1


def test_an_arrow_says_what_became_of_a_request(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"), width=1_920, height=TALL)

    signs = cast(
        "list[list[object]]",
        tab.run(
            """run.steps.map((step, index) => {
              const group = canvas.querySelector(`[data-step="${index + 1}"]`);
              const name = path => document.querySelector(`#ink [d="${path.getAttribute("d")}"]`).id.slice(5);
              return [name(group.querySelector(".node ~ .glyph")), [...group.querySelectorAll(".sign")].map(name),
                group.querySelectorAll(".head").length, group.querySelectorAll(".arrow").length];
            })"""
        ),
    )
    broken = {19, COUNT}
    assert [sign for sign, *_ in signs] == [
        "cross" if number in broken else step.kind.value for number, step in enumerate(EVERYTHING.steps, 1)
    ]
    by_fault = {step.fault: (each, heads) for step, (_, each, heads, _) in zip(EVERYTHING.steps, signs, strict=True)}
    assert by_fault["unsent"] == by_fault["dropped"] == (["cross"], 0)
    assert by_fault["lost_reply"] == (["cross"], 1)
    assert by_fault["late"] == (["hourglass"], 1)
    assert by_fault["duplicate"] == ([], 2)
    assert by_fault[""] == ([], 1)
    assert [arrows for *_, arrows in signs] == [1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    assert tab.texts(".token") == ["epoch 3", "gen 4", "skew", "epoch 4", "epoch 3"]
    assert tab.run("[...document.querySelectorAll('.rail.crashed, .rail.noted')].length") == 2
    tab.picture(PICTURES / "signs.png")


def test_what_the_store_refused_looks_refused_and_a_broken_law_stands_first(open_page: Open) -> None:
    *before, last = EVERYTHING.steps
    insert = attrs.evolve(before[19], event="insert a marker -> Refused(duplicate key)", patch=())
    missed = attrs.evolve(before[20], event="delete the marker -> 0", patch=())
    steps = (*before[:19], insert, missed, before[21], attrs.evolve(last, fault="duplicate"))
    tab = open_page(page(attrs.evolve(EVERYTHING, steps=steps), "a.json"), width=1_920, height=TALL)

    heads, bars = (
        tab.run(f"[20, 21, 23].map(step => canvas.querySelectorAll(`[data-step='${{step}}'] > {part}`).length)")
        for part in (".head", ".sign")
    )
    assert (heads, bars) == ([0, 0, 2], [1, 1, 0])
    assert tab.texts(".reply.refused") == ["\u2192 Refused(duplicate key)", "\u2192 0"]
    assert [text[:16] for text in tab.texts(f"#step-{COUNT} .mark")] == [
        "\u00d7 breaks the law",
        "\u26a0\ufe0e fault: duplic",
    ]


def test_virtual_time_folds_what_is_long(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"), height=TALL)
    before = cast("list[float]", tab.run("tops"))

    tab.press("t")
    after = cast("list[float]", tab.run("tops"))

    assert {late - early for early, late in pairwise(before)} == {46}
    assert tab.texts("text.gap") == ["\u22ee folded: 30 s later", "5 ms later", "1 ms later", "1 ms later"]
    assert [number for number, (early, late) in enumerate(pairwise(after), 1) if late - early > 46] == [11, 14, 15, 20]
    assert tab.run("control('t').getAttribute('aria-pressed')") == "true"
    assert tab.texts(".number small")[-1] == "30.007 s"


def test_the_scrubber_the_keys_and_the_address_choose_the_step(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"), hash="#3")

    def at(*keys: str) -> object:
        tab.press(*keys)
        return chosen(tab)

    assert chosen(tab) == 3
    assert [at("j"), at("k"), at("ArrowDown"), at("ArrowUp"), at("End"), at("Home")] == [4, 3, 4, 3, COUNT, 0]
    assert [at("Shift+ArrowDown"), at("Shift+J"), at("Shift+K")] == [10, 20, 10]
    assert [at("f"), at("Shift+F"), at("Shift+F")] == [11, 10, 9]
    assert [at("n"), at("n"), at("n"), at("p")] == [19, COUNT, COUNT, 19]
    tab.run("choose(1); pin('/documents/leases/p0/epoch')")
    assert [at("w"), at("w"), at("w"), at("Shift+W")] == [16, 19, 19, 16]
    tab.run("new Promise(done => setTimeout(done, 250))")
    assert str(tab.run("location.hash")) == "#16"
    tab.run("location.hash = '#5'; new Promise(done => setTimeout(done, 50))")
    assert chosen(tab) == 5
    tab.run("scrubber.focus()")
    tab.press("ArrowRight", "ArrowRight")
    assert (chosen(tab), tab.run("scrubber.getAttribute('aria-valuetext')")) == (7, f"Step 7 of {COUNT}, 0 s")
    tab.run("scrubber.blur()")
    tab.press("Space")
    tab.run("new Promise(done => setTimeout(done, 800))")
    tab.press("Space")
    assert cast("int", chosen(tab)) > 7
    assert tab.run("playing") == 0


@pytest.mark.parametrize("number", [1, 10, 16, 18, COUNT])
def test_the_panel_tells_the_step_the_state_and_why(open_page: Open, number: int) -> None:
    step, after = EVERYTHING.steps[number - 1], list(EVERYTHING.states())[number]
    tab = open_page(page(EVERYTHING, "a.json"), hash=f"#{number}", height=TALL)

    assert sorted(tab.texts(".patch .path")) == sorted(" / ".join(change.path.split("/")[1:]) for change in step.patch)
    assert tab.texts(".tree > .same") == [
        f"{len(after.items) - len({change.path.split('/')[1] for change in step.patch})} unchanged"
    ]
    assert tab.texts(".tree .sign")[: len(step.patch)] or not step.patch
    tab.press("d")
    assert tab.run("run.states[chosen] && show(run.states[chosen])") == show(after)
    assert tab.texts(".tree .same") == []
    assert tab.run(
        "[...document.querySelectorAll('.tree > * > .key, .tree > * > summary > .key')].map(key => key.textContent)"
    ) == [name for name, _ in after.items]
    assert tab.texts(".on") == [" / ".join(step.effects[0].on)] * bool(step.effects[0].on)
    assert tab.texts(".src code") == [step.src] * bool(step.src)
    assert tab.texts(".options .taken b") == [step.process]
    assert len(tab.texts(".options li")) == len(step.choice.enabled)
    assert tab.texts("#detail p.soft")[-1].startswith("Kept when" if step.causes else "none")
    assert [each.split()[0] for each in tab.texts(".links button")] == list(map(str, step.causes))
    tab.press("x")
    dim = tab.run(
        "[...document.querySelectorAll('.step.dim')].map(row => Number(row.id.slice(5))).filter(Boolean).sort((a, b) => a - b)"
    )
    assert dim == [each for each in range(1, COUNT + 1) if each not in past(EVERYTHING.steps, number)]


def test_the_laws_are_shown_at_every_step(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"))
    order = [EVERYTHING.law, *(law.name for law in EVERYTHING.laws if law.name != EVERYTHING.law)]
    truths: dict[str, str] = {}

    assert tab.texts(".label .text") == order
    for number, step in enumerate(EVERYTHING.steps, 1):
        truths |= {law: truth.value for law, truth in step.truths}
        tab.run(f"choose({number})")
        seen = cast(
            "list[str]", tab.run("[...document.querySelectorAll('.truth')].map(sign => sign.className.slice(6))")
        )
        cells = cast(
            "list[str]",
            tab.run(f"""[...document.querySelectorAll(".strip")].map(strip => [...strip.querySelectorAll("rect")]
              .find(cell => Math.abs(cell.x.baseVal.value + cell.width.baseVal.value / 2 - along({number})) < 2).getAttribute("class"))"""),
        )
        assert seen == cells == [truths[law] for law in order]
    went = []
    for index in range(len(order)):
        tab.run("choose(2)")
        tab.click(f"[data-law='{index}']")
        went.append(chosen(tab))
    assert went == [COUNT, 19, 2, 16]
    tab.run(
        "document.querySelectorAll('.strip')[1].querySelector('.broken').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert chosen(tab) == 19


def test_a_watched_path_has_a_row_of_its_own(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"), hash="#16")

    tab.click(".patch .pin")
    values = [(tab.run(f"choose({number})"), tab.texts(".now"))[1] for number in (0, 1, 16, 19)]

    assert tab.texts(".watch .text") == ["/documents/leases/p0/epoch"]
    assert values == [["(not there)"], ["3"], ["4"], ["3"]]
    assert tab.run("document.querySelectorAll('.strip .change').length") == 3
    tab.click(".drop")
    assert tab.texts(".watch") == []


def test_two_runs_stand_side_by_side(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"))

    tab.press("v")
    assert tab.texts("#compared p") == ["Steps 1 to 22 are the same. Step 23 is the first different choice."]
    assert [each.split(" ", 1)[0] for each in tab.texts(".differs td")] == ["23w2", "23w2"]
    assert tab.texts(".differs .law") == ["\u00d7 breaks the law"]
    tab.picture(PICTURES / "compare.png")
    tab.click(".differs td:nth-child(2) button")
    assert (tab.run("run.name"), chosen(tab), tab.texts(".truth")[0]) == ("passing", 23, "\u2713")


def test_the_original_run_is_there_as_well(open_page: Open) -> None:
    """Steps that were kept have their number in both."""
    tab = open_page(page(EVERYTHING, "a.json"), height=TALL)
    assert tab.texts(".number small")[1:8] == ["was 2", "was 3", "was 4", "was 5", "was 6", "was 8", "was 9"]

    tab.press("m")

    assert (tab.run("run.name"), len(tab.texts(".step"))) == ("original", COUNT + 3)
    assert tab.texts(".number small")[1:8] == ["", "kept as 1", "kept as 2", "kept as 3", "kept as 4", "kept as 5", ""]
    assert "as found (25)" in tab.texts("#runs [aria-pressed=true]")
    tab.press("End")
    assert tab.texts(".step.broken .law")[-1] == f"\u00d7 breaks the law: {EVERYTHING.law}"
    tab.run("new Promise(done => setTimeout(done, 250))")
    assert tab.run("location.hash") == "#original:25"


def test_steps_are_searched_and_filtered(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"), height=TALL)

    tab.press("/", *"owner")
    found = tab.run("[...view.hits]")
    assert found == [
        number
        for number, step in enumerate(EVERYTHING.steps, 1)
        if any("owner" in f"{change}" for change in step.patch)
    ]
    assert tab.texts("#message") == [f"{len(cast('list[int]', found))} steps"]
    tab.run("choose(0)")
    tab.press("Enter")
    assert chosen(tab) == cast("list[int]", found)[0]

    def only(name: str, value: str) -> object:
        tab.run(f"{name}.value = {json.dumps(value)}; {name}.dispatchEvent(new Event('input'))")
        seen = tab.run("shown.slice(1)")
        tab.run(f"{name}.value = ''; {name}.dispatchEvent(new Event('input'))")
        return seen

    steps = list(enumerate(EVERYTHING.steps, 1))
    assert only("byProcess", "w2") == [number for number, step in steps if step.process == "w2"]
    assert only("byKind", "fetch") == [3, 4]
    assert only("byKey", "counts") == [7, 8, 9]
    assert only("byKey", "0:17") == [4, 6]
    assert only("byKey", "p0:1") == []
    assert tab.run("shown.length") == COUNT + 1


def test_whatever_can_be_pressed_has_a_name_and_takes_the_focus(open_page: Open) -> None:
    tab = open_page(page(EVERYTHING, "a.json"))

    nameless = tab.run(
        """[...document.querySelectorAll("button, input, select, summary, [tabindex], [role]")].filter(each => each.tagName !== "PATH")
          .filter(each => !(each.getAttribute("aria-label") || each.textContent.trim())).map(each => each.outerHTML)"""
    )
    assert nameless == []
    assert tab.run("rows.getAttribute('aria-activedescendant')") == f"step-{COUNT}"
    tab.press("c")
    tab.run("new Promise(done => setTimeout(done, 100))")
    assert tab.texts("#message")[0] in {"Copied", f"{tab.address}#{COUNT}"}
    tab.press("?")
    assert tab.run("help.open") is True
    tab.run("document.getElementById('close').click()")
    assert tab.run("help.open") is False


def test_the_trace_is_saved_from_the_page(open_page: Open, browser: Browser, tmp_path: Path) -> None:
    tab = open_page(page(EVERYTHING, "a.json"))
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))

    tab.click("#save")
    tab.run("new Promise(done => setTimeout(done, 500))")

    assert decoded(json.loads((tmp_path / "takeover.json").read_text())) == EVERYTHING


def test_the_page_is_light_dark_and_one_sheet_of_paper(open_page: Open) -> None:
    """Printed, a run of any length is one page."""
    light, dark = open_page(page(EVERYTHING, "a.json")), open_page(page(EVERYTHING, "a.json"), dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"

    assert (light.run(paper), dark.run(paper)) == ("rgb(251, 250, 247)", "rgb(20, 24, 27)")
    dark.picture(PICTURES / "dark.png")
    for name, trace in (("short", EVERYTHING), ("long", long(300))):
        printed = open_page(page(trace, "a.json")).paper(PICTURES / f"{name}.pdf")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


@pytest.mark.parametrize(("width", "lanes"), [(360, 2), (360, 8), (1_000, 8)])
def test_nothing_is_wider_than_the_window(open_page: Open, width: int, lanes: int) -> None:
    """The page never scrolls sideways."""
    tab = open_page(page(long(6, lanes), "a.json"), width=width, height=800)

    assert cast("int", tab.run("document.documentElement.scrollWidth")) <= width
    assert len(tab.texts(".name")) == lanes + 1
    assert cast("float", tab.run("document.querySelector('.step .card').clientWidth")) > width / 6
    assert tab.run(
        "[...document.querySelectorAll('.facts dd')].every(fact => fact.getBoundingClientRect().right <= innerWidth)"
    )
    tab.picture(PICTURES / f"width-{width}-{lanes}.png")


def test_of_thousands_of_steps_only_those_in_sight_are_elements(open_page: Open) -> None:
    """Some dozens of rows of a run of 2,000 steps are drawn."""
    trace = long(2_000)
    tab = open_page(page(trace, "a.json"))

    def seen() -> list[int]:
        return sorted(map(int, cast("list[str]", tab.run("[...drawn.keys()].map(String)"))))

    assert chosen(tab) == 2_000
    for number in (2_000, 1, 970, 1_500):
        tab.run(f"choose({number}); new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert number in seen()
        assert len(seen()) < 60
        assert tab.texts("#detail h2") == [f"Step {number:,}: {trace.steps[number - 1].process}"]
    tab.run("scroller.scrollTop = 0; new Promise(done => setTimeout(done, 100))")
    assert seen()[:3] == [0, 1, 2]
    state = next(islice(trace.states(), 150, None))
    assert tab.run("show(run.states[150])") == show(state)


def test_a_part_of_a_run_keeps_its_numbers(open_page: Open) -> None:
    trace = long(300)
    tab = open_page(page_of(page_data_of(windowed(trace, 100), ""), "a.json"), hash="#250")

    assert tab.texts(".notice") == [
        "Of 300 steps, this page holds 201 to 300, around the violation; the trace itself has them all."
    ]
    assert tab.texts("#detail h2") == [f"Step 250: {trace.steps[249].process}"]
    assert [each.split()[0] for each in tab.texts(".links button")] == ["242", "249"]
    assert tab.run("show(run.states[chosen])") == show(next(islice(trace.states(), 250, None)))
    tab.press("End")
    assert tab.texts(".where") == ["Step 300 of 300, 300 ms"]


def test_without_scripts_the_story_is_read(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(page(EVERYTHING, "a.json").encode())
    tab = browser.open(file)
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    tab.reload()
    seen = tab.visible()
    tab.close()

    assert render(EVERYTHING) in seen
    assert "No offset is committed before it is finished" in seen or EVERYTHING.law in seen
    assert "time" not in seen.splitlines()
    assert "search" not in seen.splitlines()


def test_an_older_trace_has_a_page(open_page: Open) -> None:
    run = encoded(EVERYTHING)
    steps = cast("list[dict[str, Json]]", run["steps"])
    old: dict[str, Json] = {
        "schema": run["schema"],
        "meta": {"scenario": "old", "version": "0.1", "law": "a law", "time": "time stands", "seed": None},
        "processes": ["w1", "w2"],
        "initial": run["initial"],
        "steps": [
            {"i": step["i"], "process": step["process"], "what": step["event"], "fault": "", "patch": step["patch"]}
            for step in steps
        ],
    }

    tab = open_page(page_of(page_data_of(old, ""), "a.json"))

    assert tab.texts("#detail h2") == [f"Step {COUNT}: w2"]
    assert tab.texts(".label .text, .truth") == ["\u2717", "a law"]
    assert tab.run("[control('t').disabled, control('x').disabled]") == [True, True]
    assert tab.run("show(run.states[chosen])") == show(list(EVERYTHING.states())[COUNT])
