"""The part of the script that the reader's hands reach: choosing a step, keys, buttons, search and filters, the address.

The step stands in the address of the page, so a link can be sent; nothing else is kept anywhere.
"""

from __future__ import annotations

from typing import Final

HANDS: Final = r"""
// --- choosing ----------------------------------------------------------------------------------

const link = () => `#${run === main ? "" : `${run.name}:`}${base + chosen}`;
let later = 0;

function choose(number, scroll = true) {
  const next = Math.min(Math.max(number, 0), total());
  if (next === chosen) return;
  chosen = next;
  rows.setAttribute("aria-activedescendant", `step-${chosen}`);
  if (scroll) reveal(chosen);
  render();
  stand();
  look();
  bandNow();
  clearTimeout(later);  // browsers slow down who changes the address too often
  later = setTimeout(() => history.replaceState(null, "", link()), 150);
}

function switchTo(some) {
  if (run === some) return;
  run = some;
  const before = Math.min(chosen, total());
  chosen = -1;
  search();
  bandAnew();
  fillControls();
  choose(before);
  refresh();
}

// The next shown step in a direction; where it is hidden itself, the nearest one there.
function beside(by, from = chosen) {
  let index = rowOf.get(from);
  if (index === undefined) {
    const after = shown.findIndex(number => number > from);
    index = (after < 0 ? shown.length : after) - (by > 0 ? 1 : 0);
  }
  return shown[Math.min(Math.max(index + by, 0), shown.length - 1)];
}

function seek(by, is) {
  for (let number = chosen + by; number > 0 && number <= total(); number += by) if (is(number)) return choose(number);
  said.textContent = by > 0 ? "None after this step." : "None before this step.";
}

const toFault = by => seek(by, number => run.steps[number - 1].fault);
const toBroken = by => seek(by, isBroken);
const toChange = by => watched ? seek(by, number => isChange(watched, number)) : said.textContent = "Watch a path first: the pin beside it.";
const toHit = by => seek(by, number => hits.has(number));

let playing = 0;
function play() {
  if (playing) {
    clearInterval(playing);
    playing = 0;
  } else {
    if (chosen === total()) choose(0);
    playing = setInterval(() => chosen < total() ? choose(beside(1)) : play(), 600);
  }
  control(" ").replaceChildren(icon(playing ? "pause" : "play"));
  pressed(" ", playing > 0);
}

// --- search and filters ------------------------------------------------------------------------

let hits = new Set();

const hay = step => step.hay ??= [step.process, step.event, step.fault.replaceAll("_", " "), step.src,
  ...step.effects.map(effect => `${effect.what} ${effect.on.join("/")} ${effect.reply}`),
  ...step.ops.map(op => `${op.path} ${op.value === undefined ? "" : show(op.value)}`)].join("\n").toLowerCase();

function search() {
  view.query = query.value.toLowerCase();
  hits = new Set();
  if (view.query) run.steps.forEach((step, index) => { if (hay(step).includes(view.query)) hits.add(index + 1); });
  said.textContent = view.query ? `${grouped(hits.size)} ${hits.size === 1 ? "step" : "steps"}` : "";
}

query.addEventListener("input", () => { search(); render(true); });
query.addEventListener("keydown", event => { if (event.key === "Enter") toHit(event.shiftKey ? -1 : 1); });
for (const [name, input] of [["process", byProcess], ["kind", byKind], ["key", byKey]]) {
  input.addEventListener("input", () => {
    view[name] = input.value.trim();
    refresh();
  });
}

// --- controls ----------------------------------------------------------------------------------

const control = key => controls.querySelector(`[data-key="${key}"]`);
const pressed = (key, is) => control(key).setAttribute("aria-pressed", String(is));

function flipTime() {
  if (tellsTime()) view.time = view.time === "time" ? "steps" : "time";
  pressed("t", view.time === "time");
  refresh();
  reveal(chosen);
}

function flipCauses() {
  view.causes = !view.causes && tellsCauses();
  pressed("x", view.causes);
  render();
}

const flipRun = () => switchTo(runs.find(each => each.name === (run === main ? "original" : main.name)) ?? main);
const tellsTime = () => run.steps.some(step => step.at);

function choices(select, all, values) {
  const before = select.value;
  select.replaceChildren(...["", ...values].map(value => {
    const option = make("option", "", value ? tell(value, 40) : all);
    option.value = value;
    return option;
  }));
  select.value = before;
}

function fillControls() {
  choices(byProcess, "all processes", lanes.filter(lane => lane.kind !== "store").map(lane => lane.name));
  choices(byKind, "all kinds", [...new Set(run.steps.map(step => step.kind))].sort());
  control("t").disabled = !tellsTime();
  control("x").disabled = !tellsCauses();
  if (runs.length > 1) {
    whichRun.replaceChildren(...runs.map(each => {
      const made = button(`Show ${TITLES[each.name]}`, () => switchTo(each), `${TITLES[each.name]} (${grouped(each.steps.length)})`);
      press(made, run === each);
      return made;
    }));
  }
}

// --- tabs --------------------------------------------------------------------------------------

function tab(panel) {
  for (const made of tabs.children) {
    const is = made.getAttribute("aria-controls") === panel.id;
    made.setAttribute("aria-selected", String(is));
    document.getElementById(made.getAttribute("aria-controls")).hidden = !is;
  }
  if (panel === compared) compare();
}
tabs.addEventListener("click", event => {
  const made = event.target.closest("button");
  if (made) tab(document.getElementById(made.getAttribute("aria-controls")));
});

// --- keys --------------------------------------------------------------------------------------

function leap(by) {
  let number = chosen;
  for (let left = 10; left--;) number = beside(by, number);
  choose(number);
}

const ACTS = {
  j: () => choose(beside(1)), k: () => choose(beside(-1)), J: () => leap(1), K: () => leap(-1), Home: () => choose(0), End: () => choose(total()),
  n: () => toBroken(1), p: () => toBroken(-1), f: () => toFault(1), F: () => toFault(-1), w: () => toChange(1), W: () => toChange(-1), " ": play,
  "/": () => query.focus(), d: () => { isFull = !isFull; look(); }, t: flipTime, x: flipCauses, m: flipRun,
  v: () => tab(detail.hidden ? detail : compared), h: () => hide(laneOf.get(run.steps[chosen - 1]?.process)),
  c: () => copy(location.href.replace(/#.*/, "") + link()), "?": () => help.showModal(),
};
const ARROWS = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1};

document.addEventListener("keydown", event => {
  const {key, target, shiftKey} = event;
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (target.matches("input:not([type=range]), select")) {
    if (key === "Escape") target.blur();
    return;
  }
  const lane = lanes[target.closest?.(".name")?.dataset.lane];
  const isFree = !target.closest?.("button, summary, input, .detail, .compare");
  const by = ARROWS[key];
  let act = isFree || key.length === 1 && key !== " " ? ACTS[key] : undefined;
  if (by && isFree) act = shiftKey ? () => leap(by) : () => choose(beside(by));
  if (lane && by && shiftKey) act = () => move(lane, by);
  if (lane && key === "h") act = () => hide(lane);
  if (!act) return;
  event.preventDefault();
  said.textContent = "";
  act();
});

controls.addEventListener("click", event => ACTS[event.target.closest("button")?.dataset.key]?.());
document.getElementById("close").addEventListener("click", () => help.close());

// --- the head ----------------------------------------------------------------------------------

async function copy(text, place = said, from = said) {
  try {
    await navigator.clipboard.writeText(text);
    place.textContent = "Copied";
  } catch {
    if (place === said) said.textContent = text;
    else place.textContent = "Selected: press Ctrl+C";
    getSelection().selectAllChildren(from);
  }
}
for (const made of document.querySelectorAll("[data-copies]")) {
  const from = document.getElementById(made.dataset.copies);
  made.addEventListener("click", () => copy(from.textContent, made, from));
}
document.getElementById("save").addEventListener("click", () => {
  const saved = make("a", "");
  saved.href = URL.createObjectURL(new Blob([document.getElementById("trace").textContent], {type: "application/json"}));
  saved.download = `${meta.get("scenario").replace(/[^\w.-]/g, "_").slice(0, 80)}.json`;
  saved.click();
  URL.revokeObjectURL(saved.href);
});

// --- all of it ---------------------------------------------------------------------------------

document.body.classList.add("drawn");
document.body.classList.toggle("clean", !broken);
tab(detail);

function fit() {
  bandAnew();
  refresh();
  if (!view.printing) reveal(chosen);
}
new ResizeObserver(() => { if (!view.printing && strips.clientWidth !== fit.width) { fit.width = strips.clientWidth; fit(); } }).observe(strips);

function printed(isPrinting) {
  if (view.printing === isPrinting) return;
  view.printing = isPrinting;
  document.body.classList.toggle("printing", isPrinting);
  fit();
}
addEventListener("beforeprint", () => printed(true));
addEventListener("afterprint", () => printed(false));
matchMedia("print").addEventListener("change", event => printed(event.matches));

function asAsked(isFirst) {
  const found = /^#(?:(original|passing):)?(\d+)$/.exec(location.hash);
  if (!found && !isFirst) return;
  const some = found?.[1] && runs.find(each => each.name === found[1]) || main;
  if (!isFirst) switchTo(some);
  else {
    run = some;
    layout();
    bandAnew();
  }
  choose(found ? Number(found[2]) - base : broken ? Number(verdict.get("step")?.text ?? 0) - base || total() : 0);
}
layout();
asAsked(true);
addEventListener("hashchange", () => asAsked(false));
fillControls();
fit.width = strips.clientWidth;
fit();
"""
