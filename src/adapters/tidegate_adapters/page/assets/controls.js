// What the reader does: moving from step to step, search and filters, buttons, tabs, keys, and copying.

import {compare} from "./compare.js";
import {flipFull} from "./detail.js";
import {button, byId, icon, make, setPressed} from "./dom.js";
import {
  byKey,
  byKind,
  byProcess,
  compared,
  controls,
  detail,
  help,
  message,
  query,
  tabs,
  whichRun
} from "./elements.js";
import {laneOf, lanes} from "./lanes.js";
import {rowOf, shown} from "./layout.js";
import {isChange, watched} from "./overview.js";
import {main, meta, runs, TITLES} from "./runs.js";
import {search} from "./search.js";
import {drawRows, hide, move, redraw, reveal} from "./timeline.js";
import {grouped, short} from "./values.js";
import {address, choose, chosen, hasCauses, hasTimes, isBroken, observe, run, switchTo, total, view} from "./view.js";

// --- moving ------------------------------------------------------------------------------------

// The next shown step in a direction; where it is hidden itself, the nearest one there.
function neighbour(by, from = chosen) {
  let index = rowOf.get(from);
  if (index === undefined) {
    const after = shown.findIndex(number => number > from);
    index = (after < 0 ? shown.length : after) - (by > 0 ? 1 : 0);
  }
  return shown[Math.min(Math.max(index + by, 0), shown.length - 1)];
}

function seek(by, is) {
  for (let number = chosen + by; number > 0 && number <= total(); number += by) if (is(number)) return choose(number);
  message.textContent = by > 0 ? "None after this step." : "None before this step.";
}

const toFault = by => seek(by, number => run.steps[number - 1].fault);
const toBroken = by => seek(by, isBroken);
function toChange(by) {
  if (watched) seek(by, number => isChange(watched, number));
  else message.textContent = "Watch a path first: the pin beside it.";
}
const toHit = by => seek(by, number => view.hits.has(number));

let playing = 0;
function play() {
  if (playing) {
    clearInterval(playing);
    playing = 0;
  } else {
    if (chosen === total()) choose(0);
    playing = setInterval(() => (chosen < total() ? choose(neighbour(1)) : play()), 600);
  }
  control(" ").replaceChildren(icon(playing ? "pause" : "play"));
  setKeyPressed(" ", playing > 0);
}

// --- search and filters ------------------------------------------------------------------------

query.addEventListener("input", () => {
  search();
  drawRows(true);
});
query.addEventListener("keydown", event => {
  if (event.key === "Enter") toHit(event.shiftKey ? -1 : 1);
});
for (const [name, input] of [
  ["process", byProcess],
  ["kind", byKind],
  ["key", byKey]
]) {
  input.addEventListener("input", () => {
    view[name] = input.value.trim();
    redraw();
  });
}

// --- buttons -----------------------------------------------------------------------------------

const control = key => controls.querySelector(`[data-key="${key}"]`);
const setKeyPressed = (key, is) => control(key).setAttribute("aria-pressed", String(is));

function flipTime() {
  if (hasTimes()) view.time = view.time === "time" ? "steps" : "time";
  setKeyPressed("t", view.time === "time");
  redraw();
  reveal(chosen);
}

function flipCauses() {
  view.causes = !view.causes && hasCauses();
  setKeyPressed("x", view.causes);
  drawRows();
}

const flipRun = () => switchTo(runs.find(each => each.name === (run === main ? "original" : main.name)) ?? main);

function choices(select, all, values) {
  const before = select.value;
  select.replaceChildren(
    ...["", ...values].map(value => {
      const option = make("option", "", value ? short(value, 40) : all);
      option.value = value;
      return option;
    })
  );
  select.value = before;
}

function fillControls() {
  choices(
    byProcess,
    "all processes",
    lanes.filter(lane => lane.kind !== "store").map(lane => lane.name)
  );
  choices(byKind, "all kinds", [...new Set(run.steps.map(step => step.kind))].sort());
  control("t").disabled = !hasTimes();
  control("x").disabled = !hasCauses();
  if (runs.length > 1) {
    whichRun.replaceChildren(
      ...runs.map(each => {
        const made = button(
          `Show ${TITLES[each.name]}`,
          () => switchTo(each),
          `${TITLES[each.name]} (${grouped(each.steps.length)})`
        );
        setPressed(made, run === each);
        return made;
      })
    );
  }
}

// --- tabs --------------------------------------------------------------------------------------

export function tab(panel) {
  for (const made of tabs.children) {
    const is = made.getAttribute("aria-controls") === panel.id;
    made.setAttribute("aria-selected", String(is));
    byId(made.getAttribute("aria-controls")).hidden = !is;
  }
  if (panel === compared) compare();
}
tabs.addEventListener("click", event => {
  const made = event.target.closest("button");
  if (made) tab(byId(made.getAttribute("aria-controls")));
});

// --- keys --------------------------------------------------------------------------------------

function jump(by) {
  let number = chosen;
  for (let left = 10; left--; ) number = neighbour(by, number);
  choose(number);
}

const ACTIONS = {
  j: () => choose(neighbour(1)),
  k: () => choose(neighbour(-1)),
  J: () => jump(1),
  K: () => jump(-1),
  Home: () => choose(0),
  End: () => choose(total()),
  n: () => toBroken(1),
  p: () => toBroken(-1),
  f: () => toFault(1),
  F: () => toFault(-1),
  w: () => toChange(1),
  W: () => toChange(-1),
  " ": play,
  "/": () => query.focus(),
  d: flipFull,
  t: flipTime,
  x: flipCauses,
  m: flipRun,
  v: () => tab(detail.hidden ? detail : compared),
  h: () => hide(laneOf.get(run.steps[chosen - 1]?.process)),
  c: () => copy(location.href.replace(/#.*/, "") + address()),
  "?": () => help.showModal()
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
  let act = isFree || (key.length === 1 && key !== " ") ? ACTIONS[key] : undefined;
  if (by && isFree) act = shiftKey ? () => jump(by) : () => choose(neighbour(by));
  if (lane && by && shiftKey) act = () => move(lane, by);
  if (lane && key === "h") act = () => hide(lane);
  if (!act) return;
  event.preventDefault();
  message.textContent = "";
  act();
});

controls.addEventListener("click", event => ACTIONS[event.target.closest("button")?.dataset.key]?.());
byId("close").addEventListener("click", () => help.close());

// --- copying and saving ------------------------------------------------------------------------

async function copy(text, place = message, from = message) {
  try {
    await navigator.clipboard.writeText(text);
    place.textContent = "Copied";
  } catch {
    if (place === message) message.textContent = text;
    else place.textContent = "Selected: press Ctrl+C";
    getSelection().selectAllChildren(from);
  }
}
for (const made of document.querySelectorAll("[data-copies]")) {
  const from = byId(made.dataset.copies);
  made.addEventListener("click", () => copy(from.textContent, made, from));
}
byId("save").addEventListener("click", () => {
  const saved = make("a", "");
  saved.href = URL.createObjectURL(new Blob([byId("trace").textContent], {type: "application/json"}));
  const name = meta.get("scenario").replace(/[^\w.-]/g, "_");
  saved.download = `${name.slice(0, 80)}.json`;
  saved.click();
  URL.revokeObjectURL(saved.href);
});

observe({run: fillControls});
