"""The style and the script of the page of a run, as text.

The script needs nothing but the page: no library, no network, no storage. It reads the trace from the page's JSON, keeps
the order of keys and the digits of numbers (a JSON parser of a browser loses both), and rebuilds every state. Whatever
the trace says reaches the page as text.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = r"""
:root {
  --paper: #fbfaf7; --card: #fff; --ink: #1d2125; --soft: #5b6470; --line: #d9d6cf; --tint: #e6f0ef;
  --tide: #0b6b70; --bad: #b3261e; --bad-tint: #fdecea; --odd: #8a5300; --odd-tint: #fbf1df;
  --new: #1c6b34; --new-tint: #e5f4e9; --light: 48%;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1d2327; --ink: #e8e6e1; --soft: #a3abb3; --line: #363e44; --tint: #193235;
    --tide: #62c4c5; --bad: #ff9c92; --bad-tint: #3d1f1d; --odd: #f0bd6a; --odd-tint: #38290f;
    --new: #86d39b; --new-tint: #1a3222; --light: 70%;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
header { padding: 1.4rem clamp(.9rem, 2.5vw, 2.4rem) 1rem; border-bottom: 1px solid var(--line); }
h1 { margin: .1rem 0 .9rem; font-size: clamp(1.4rem, 3vw, 2.1rem); line-height: 1.15; letter-spacing: -.015em; }
h1::first-letter { text-transform: uppercase; }
h1, dd { max-height: 7.5rem; overflow: auto; overflow-wrap: anywhere; unicode-bidi: isolate; }
.verdict { margin: 0; color: var(--bad); font-weight: 650; letter-spacing: .02em; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 0 1rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; }
code, kbd, pre, .value, .path, .key { font-family: var(--mono); font-size: .86em; }
.replay { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
.replay code { padding: .35rem .7rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  overflow-wrap: anywhere; max-height: 7.5rem; overflow: auto; }
button { font: inherit; font-size: .86rem; color: var(--ink); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .7rem; }
button:hover { border-color: var(--tide); }
:focus-visible { outline: 2px solid var(--tide); outline-offset: 2px; }
.legend { margin-top: .8rem; max-width: 60rem; color: var(--soft); font-size: .9rem; }
.legend p { margin: .4rem 0 0; }
kbd { border: 1px solid var(--line); border-radius: 4px; padding: 0 .3em; background: var(--card); }
noscript pre { padding: 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
main > p { padding: 0 1rem; color: var(--soft); }

/* The lanes: rails side by side and the texts beside them all; with room enough, each text in its lane. */
.lanes { --mid: 1.05rem; padding: 0 clamp(.3rem, 2vw, 2rem) 2rem; min-width: 0; }
.names, .step { display: grid; grid-template-columns: 2rem repeat(var(--count), minmax(.5rem, 1.35rem)) minmax(0, 1fr); }
.names { position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line);
  padding: .5rem 0 .35rem; }
.name { grid-row: 1; min-width: 0; font-weight: 650; writing-mode: vertical-rl; transform: rotate(180deg);
  justify-self: start; max-height: 7rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; line-height: 1; }
.says { display: none; }
.step { position: relative; cursor: pointer; border-radius: 8px; scroll-margin: 9rem 0 48vh; }
.many .step { content-visibility: auto; contain-intrinsic-size: auto 4rem; }
.step:hover { background: color-mix(in srgb, var(--tint) 45%, transparent); }
.step[aria-selected=true] { background: var(--tint); box-shadow: inset 4px 0 var(--tide); }
.number { grid-column: 1; grid-row: 1; padding: .5rem .5rem 0 0; text-align: right; color: var(--soft);
  font-variant-numeric: tabular-nums; font-size: .86rem; }
.rail { grid-row: 1; position: relative; }
.rail::before, .rail::after { content: ""; position: absolute; left: .6rem; translate: -50%;
  border-left: 2px solid color-mix(in oklab, var(--tone) 60%, var(--paper)); }
.rail::before { top: 0; height: var(--mid); }
.rail::after { top: var(--mid); bottom: 0; }
.was-loud::before, .is-loud::after { border-left: 8px solid color-mix(in oklab, var(--tone) 80%, var(--paper)); }
.was-dead::before, .is-dead::after { border-left-style: dotted; border-left-color: var(--soft); }
.was-over::before, .is-over::after { border-left-width: 1px; border-left-color: var(--line); }
.begin .rail::before { display: none; }
.node { position: absolute; z-index: 1; left: .6rem; top: var(--mid); translate: -50% -50%; width: .8rem; height: .8rem;
  border: 2px solid var(--tone); border-radius: 50%; background: var(--card); }
.odd .node { width: .95rem; height: .95rem; border-radius: 2px; rotate: 45deg; border-color: var(--odd);
  background: var(--odd); }
.broken .node { width: 1.1rem; height: 1.1rem; border-radius: 3px; rotate: none; border-color: var(--bad);
  background: var(--bad); }
.broken .node::before { content: "\d7"; position: absolute; inset: 0; color: var(--card); font: 700 1.05rem/.8rem sans-serif;
  text-align: center; }
.card { grid-column: calc(var(--count) + 2); grid-row: 1; min-width: 0; padding: .42rem .6rem .5rem .3rem; font-size: .92rem;
  overflow-wrap: anywhere; unicode-bidi: isolate; }
.card > * { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.card > .who { display: inline; float: left; margin-right: .5em; font-weight: 650; }
.reply, .news { color: var(--soft); font-family: var(--mono); font-size: .78rem; margin-top: .1rem; }
.card > .reply { -webkit-line-clamp: 2; }
.news.add, .news.replace { color: var(--new); }
.news.remove { color: var(--bad); }
.mark { display: inline-block; width: fit-content; margin-top: .25rem; padding: .05rem .5rem; border-radius: 4px;
  border: 1px solid; font-size: .82rem; font-weight: 650; color: var(--odd); background: var(--odd-tint); }
.mark.law { color: var(--bad); background: var(--bad-tint); }
.passing .card { position: relative; width: fit-content; background: var(--paper); }
.passing[aria-selected=true] .card { background: var(--tint); }
.passing::before { content: ""; position: absolute; left: 2rem; right: .5rem; top: var(--mid);
  border-top: 1px dashed var(--soft); opacity: .6; }
@media screen {
  .wide .names, .wide .step { grid-template-columns: 2.4rem var(--columns); }
  .wide .name { writing-mode: initial; transform: none; justify-self: stretch; padding-left: .2rem; max-height: none;
    line-height: 1.3; }
  .wide .says { display: block; font-weight: 400; font-size: .8rem; color: var(--soft); white-space: nowrap; overflow: hidden;
    text-overflow: ellipsis; min-height: 1.2em; }
  .wide .says.loud { color: var(--ink); font-weight: 650; }
  .wide .card { grid-column: var(--lane); margin-left: 1.35rem; }
  .wide .card > .who { display: none; }
}

/* The step that is looked at. */
.detail { border-top: 2px solid var(--tide); background: var(--card); padding: .8rem clamp(.9rem, 2vw, 1.6rem) 1.6rem;
  position: sticky; bottom: 0; max-height: 44vh; overflow: auto; overflow-wrap: anywhere; z-index: 3; }
.bar { display: flex; gap: .5rem; align-items: baseline; }
h2 { flex: 1; margin: 0; font-size: 1.05rem; }
h3 { margin: 1.1rem 0 .3rem; font-size: .86rem; color: var(--soft); font-weight: 650; }
.said { margin: .5rem 0 0; unicode-bidi: isolate; }
.said.heard { margin-top: .2rem; color: var(--soft); }
.patch { list-style: none; margin: 0; padding: 0; }
.patch li { padding: .35rem .6rem; margin: .25rem 0; border-left: 4px solid var(--tide); border-radius: 0 5px 5px 0;
  background: color-mix(in srgb, var(--tint) 60%, transparent); }
.patch .add { border-color: var(--new); background: var(--new-tint); }
.patch .remove { border-color: var(--bad); background: var(--bad-tint); }
.patch .routine { background: none; border-left: 1px solid var(--line); color: var(--soft); padding-block: .1rem; }
.op { font-weight: 650; font-size: .82rem; margin-right: .5rem; }
.path b { font-weight: 700; }
.value { unicode-bidi: isolate; white-space: pre-wrap; }
.old { text-decoration: line-through; color: var(--soft); }
.fold { padding: 0 .4rem; font-size: .78rem; margin-left: .3rem; }
.tree details, .tree .leaf { margin-left: 1rem; }
.tree > details, .tree > .leaf { margin-left: 0; }
.tree summary { cursor: pointer; }
.tree .leaf { padding-left: 1rem; }
.tree .hint { color: var(--soft); font-size: .8rem; }
.tree .sign { font-weight: 700; font-family: var(--mono); padding-right: .35rem; }
.tree .add, .tree .replace { background: var(--new-tint); border-radius: 4px; }
.tree .remove { background: var(--bad-tint); border-radius: 4px; }
.key { color: var(--tide); }
@media print, screen and (min-width: 60rem) {
  main.drawn { display: grid; grid-template-columns: minmax(0, 1fr) minmax(min(22rem, 34%), 32%); align-items: start; }
  .detail { bottom: auto; top: 0; border-top: 0; border-left: 1px solid var(--line); }
}
@media screen and (min-width: 60rem) {
  .detail { max-height: 100vh; min-height: 100vh; }
  .step { scroll-margin: 5rem 0 2rem; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --tint: #fff;
    --tide: #0b6b70; --bad: #a11; --bad-tint: #fff; --odd: #744700; --odd-tint: #fff;
    --new: #1c6b34; --new-tint: #fff; --light: 45%; }
  html { font-size: 8.5pt; }
  body { font-size: 1rem; line-height: 1.25; }
  header { padding: 0 0 .4rem; }
  dl { margin-bottom: .4rem; gap: .2rem 1.5rem; }
  button, .legend { display: none; }
  .names, .detail { position: static; max-height: none; overflow: visible; }
  .lanes { padding: 0; --mid: .7rem; }
  .step { break-inside: avoid; }
  .many .step { content-visibility: visible; }
  .step[aria-selected=true] { box-shadow: none; }
  .card, .number { padding-block: .1rem; font-size: 1em; }
  .card > * { display: block; }
  .reply, .news { margin: 0; font-size: .9em; }
}
"""

SCRIPT: Final = r"""
"use strict";
// Whatever the trace says reaches the page as text, and what cannot be seen of it is written out.

const SHORT = 160;  // in the lanes
const LONG = 400;  // in the detail
const LINE = 72;
const SIGNS = {add: "+", remove: "\u2212", replace: "~"};
const WORDS = {add: "added", remove: "removed", replace: "replaced"};

// --- values ------------------------------------------------------------------------------------

class Leaf {  // a number, bytes or an instant, as it is shown
  constructor(text) { this.text = text; }
}

// JSON as it is written: objects become Maps, which keep the order of all keys; numbers keep their digits.
function parsed(json) {
  const tokens = json.match(/"(?:[^"\\]+|\\.)*"|[{}[\]]|[^\s,:"{}[\]]+/g);
  let at = 0;
  function value() {
    const token = tokens[at++];
    if (token === "{") {
      const map = new Map();
      while (tokens[at] !== "}") map.set(JSON.parse(tokens[at++]), value());
      at++;
      return map;
    }
    if (token === "[") {
      const list = [];
      while (tokens[at] !== "]") list.push(value());
      at++;
      return list;
    }
    return "\"tfn".includes(token[0]) ? JSON.parse(token) : new Leaf(token);
  }
  return value();
}

// The value that plain JSON stands for: tags are taken off, as tidegate.patches puts them on.
function opened(json) {
  if (Array.isArray(json)) return json.map(opened);
  if (!(json instanceof Map)) return json;
  const [tag, held] = json.size === 1 ? [...json][0] : [];
  if (tag === "$bytes") return new Leaf(`${held.length / 2} bytes 0x${held}`);
  if (tag === "$instant") return new Leaf(`${seconds(BigInt(held[0].text))}@${legible(held[1])}`);
  if (tag === "$float") return new Leaf({"7ff0000000000000": "inf", "fff0000000000000": "-inf"}[held] || "nan");
  return new Map([...(tag === "$document" ? held : json)].map(([key, item]) => [key, opened(item)]));
}

function seconds(at) {
  const size = at < 0n ? -at : at;
  for (const [unit, name] of [[1000000n, "s"], [1000n, "ms"]]) {
    if (at % unit && size < unit) continue;
    const rest = String(size % unit).padStart(String(unit).length - 1, "0").replace(/0+$/, "");
    return `${at < 0n ? "-" : ""}${size / unit}${rest && "."}${rest} ${name}`;
  }
  return `${at} us`;
}

function show(value) {
  if (value instanceof Map) return `{${[...value].map(([key, item]) => `${legible(key)}: ${show(item)}`).join(", ")}}`;
  if (Array.isArray(value)) return `[${value.map(show).join(", ")}]`;
  if (value instanceof Leaf) return value.text;
  if (typeof value !== "string") return String(value);
  return `"${legible(value.replace(/["\\]/g, "\\$&"))}"`;
}

// Where a process stands is a sentence already; quotes around it would only need quotes inside it.
function spoken(pointer, value) {
  return pointer.startsWith("/processes/") && typeof value === "string" ? legible(value) : show(value);
}

function legible(text) {
  return text.replace(/[\p{C}\p{Z}]/gu, char => {
    const code = char.codePointAt(0).toString(16);
    return char === " " ? char : code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
  });
}

function cut(text, most = SHORT) {
  return text.length <= most ? text : `${whole(text.slice(0, most))}\u2026 (${sized(text)})`;
}

const whole = text => text.replace(/[\ud800-\udbff]$/, "");
const sized = text => `${[...text].length.toLocaleString("en")} characters`;

// --- states ------------------------------------------------------------------------------------

const steps = pointer => pointer.split("/").slice(1).map(each => each.replace(/~1/g, "/").replace(/~0/g, "~"));

const inside = (value, key) => value instanceof Map ? value.get(key) : Array.isArray(value) ? value[key] : undefined;

// The value after one operation of a patch; what is not touched is shared with the value before.
function applied(value, [step, ...rest], op) {
  if (step === undefined) return op.value;
  const after = value instanceof Map ? new Map(value) : [...value];
  const inner = rest.length ? applied(inside(value, step), rest, op) : op.value;
  if (after instanceof Map) {
    if (op.kind === "remove" && !rest.length) after.delete(step);
    else after.set(step, inner);
  } else if (rest.length || op.kind === "replace") after[step] = inner;
  else if (op.kind === "add") after.splice(step, 0, inner);
  else after.splice(step, 1);
  return after;
}

const trace = parsed(document.getElementById("trace").textContent);
const meta = trace.get("meta");
const broken = trace.get("verdict").get("law");
const lanes = trace.get("processes").map(lane => lane.get("name"));
const run = trace.get("steps").map(step => ({
  process: step.get("process"),
  what: step.get("event"),
  fault: step.get("fault"),
  patch: step.get("patch").map(op => ({
    kind: op.get("op"), path: op.get("path"), steps: steps(op.get("path")), value: opened(op.get("value")),
  })),
}));
const states = [opened(trace.get("initial"))];
let misfit = 0;
for (const [index, step] of run.entries()) {
  let state = states[index];
  try {
    for (const op of step.patch) {
      op.before = op.steps.reduce(inside, states[index]);
      state = applied(state, op.steps, op);
    }
  } catch {
    misfit = misfit || index + 1;
  }
  states.push(state);
}

// What the next step of the process tells anyway, and what is left of a budget.
const isRoutine = op => op.path.startsWith("/budget")
  || (op.path.startsWith("/processes/") && String(op.value).startsWith("about to"));

// What a process says of itself, and how it stands: loud, dead, over, or plain.
function manner(state, name) {
  const notes = inside(inside(state, "notes"), name);
  const stands = String(inside(inside(state, "processes"), name));
  const says = notes instanceof Map
    ? [...notes].filter(([, value]) => value !== false).map(([note, value]) => value === true ? note : `${note}: ${show(value)}`)
    : [];
  if (says.length) return {is: "loud", says: says.join(", ")};
  if (stands === "crashed") return {is: "dead", says: "crashed"};
  if (/^(finished|failed|raised)/.test(stands)) return {is: "over", says: stands};
  return {is: "plain", says: name === "clock" ? String(inside(state, "clock") ?? "") : ""};
}

// --- elements ----------------------------------------------------------------------------------

function make(tag, classes, ...inner) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...inner);  // strings become text
  return element;
}

function folded(text) {
  if (text.length <= LONG) return make("span", "value", text);
  const start = whole(text.slice(0, SHORT));
  const shown = make("span", "", start);
  const button = make("button", "fold", `\u2026 all ${sized(text)}`);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(open));
    shown.textContent = open ? text : start;
    button.textContent = open ? "fold" : `\u2026 all ${sized(text)}`;
  });
  return make("span", "value", shown, button);
}

// What was asked and what was heard: apart at the first arrow that stands outside of a string.
function asked(what) {
  let quoted = false;
  for (let at = 0; at < what.length; at++) {
    if (quoted && what[at] === "\\") at++;
    else if (what[at] === "\"") quoted = !quoted;
    else if (!quoted && what.startsWith(" -> ", at)) return [legible(what.slice(0, at)), legible(what.slice(at + 4))];
  }
  return [legible(what), ""];
}

const faultOf = step => legible(step.fault).replaceAll("_", " ");
const isLast = number => number > 0 && number === run.length && broken !== "";

function marks(number) {
  const step = run[number - 1];
  const found = [];
  if (step && step.fault) found.push(make("span", "mark", `\u26a0\ufe0e fault: ${cut(faultOf(step), 60)}`));
  if (isLast(number)) found.push(make("span", "mark law", `\u00d7 breaks the law: ${cut(legible(broken))}`));
  return found;
}

// --- lanes -------------------------------------------------------------------------------------

function row(number) {
  const step = run[number - 1];
  const item = make("div", "step", make("span", "number", number ? String(number) : ""));
  item.id = `step-${number}`;
  item.setAttribute("role", "option");
  item.setAttribute("aria-selected", "false");
  const own = step ? lanes.indexOf(step.process) : -1;
  lanes.forEach((name, lane) => {
    const before = manner(states[Math.max(number - 1, 0)], name).is;
    const rail = make("span", `rail was-${before} is-${manner(states[number], name).is}`);
    rail.style.setProperty("grid-column", lane + 2);
    rail.style.setProperty("--tone", tone(lane));
    if (lane === own) rail.append(make("i", "node"));
    item.append(rail);
  });
  const card = make("div", "card");
  card.style.setProperty("--lane", own < 0 ? "2 / -1" : own + 2);
  item.append(card);
  if (!step) {
    item.classList.add("begin");
    card.append(make("span", "reply", "the beginning"));
    item.setAttribute("aria-label", "The beginning");
    return item;
  }
  if (step.fault) item.classList.add("odd");
  if (step.process === "clock") item.classList.add("passing");
  if (isLast(number)) item.classList.add("broken");
  const [what, reply] = asked(step.what);
  card.append(make("span", "who", cut(legible(step.process), 40)), make("span", "what", cut(what)));
  if (reply) card.append(make("span", "reply", `\u2192 ${cut(reply)}`));
  const news = step.patch.filter(op => !isRoutine(op) && !op.path.startsWith("/notes"));
  for (const op of news.slice(0, 3)) card.append(make("span", `news ${op.kind}`, brief(op)));
  if (news.length > 3) card.append(make("span", "news", `and ${news.length - 3} more`));
  card.append(...marks(number));
  item.setAttribute("aria-label", [
    `Step ${number}, ${cut(legible(step.process), 40)}: ${cut(what)}`,
    reply && `heard ${cut(reply)}`,
    step.fault && `fault ${cut(faultOf(step), 60)}`,
    isLast(number) && "breaks the law",
    `${step.patch.length} changes`,
  ].filter(Boolean).join("; "));
  return item;
}

const tone = lane => `oklch(var(--light) .11 ${(195 + lane * 137.5) % 360})`;

function brief(op) {
  const place = cut(legible(op.steps.slice(-2).join("/")), 60);
  if (op.kind === "remove") return `\u2212\u00a0${place}: ${cut(show(op.before), 80)}`;
  return `${SIGNS[op.kind]}\u00a0${place}: ${cut(spoken(op.path, op.value), 80)}`;
}

const listed = make("div", "lanes");
const names = make("div", "names");
const list = make("div", "list", ...states.map((_, number) => row(number)));
const heads = lanes.map((name, lane) => {
  const says = make("span", "says");
  const head = make("div", "name", cut(legible(name), 40), says);
  head.style.setProperty("grid-column", lane + 2);
  names.append(head);
  return says;
});
names.setAttribute("aria-hidden", "true");
list.setAttribute("role", "listbox");
list.setAttribute("aria-label", "Steps");
list.tabIndex = 0;
listed.append(names, list);
listed.classList.toggle("many", run.length > 300);  // then what is out of sight is not laid out
listed.style.setProperty("--count", lanes.length);

// Each lane is as wide as its texts ask for; where that is more than there is, the texts stand beside the rails.
const widest = lanes.map(() => 0);
run.forEach((step, index) => {
  const lane = lanes.indexOf(step.process);
  for (const line of list.children[index + 1].lastChild.children) {
    if (line.className !== "who") widest[lane] = Math.max(widest[lane], line.textContent.length);
  }
});
listed.style.setProperty("--columns", widest.map(length =>
  `minmax(9.5rem, ${Math.min(Math.max(length / 90, .3), 1)}fr)`).join(" "));
const room = widest.reduce((sum, length) => sum + (length > 24 ? 240 : 150), 60);
const fit = () => listed.classList.toggle("wide", listed.clientWidth >= room);

// --- the step that is looked at ----------------------------------------------------------------

function change(op) {
  const quiet = isRoutine(op);
  const item = make("li", quiet ? "routine" : op.kind);
  const path = make("span", "path");
  op.steps.forEach((step, index) => {
    path.append(index ? " / " : "", make(index === op.steps.length - 1 ? "b" : "span", "", cut(legible(step), 60)));
  });
  item.append(make("span", "op", `${SIGNS[op.kind]} ${WORDS[op.kind]}`), path, make("br"));
  if (op.kind !== "add" && !op.path.startsWith("/processes/")) item.append(make("span", "old", folded(show(op.before))));
  if (op.kind === "replace") item.append(" \u2192 ");
  if (op.kind !== "remove") item.append(folded(spoken(op.path, op.value)));
  return item;
}

const unfolded = new Map();  // pointer -> did the reader open it?

// What a value holds: each part, then each that the step removed from it.
function branches(value, pointer, ops) {
  const items = value instanceof Map ? [...value] : Array.isArray(value) ? [...value.entries()] : [];
  const gone = ops.filter(op => op.kind === "remove" && op.path.slice(0, op.path.lastIndexOf("/")) === pointer);
  return [
    ...items.map(([key, item]) =>
      tree(String(key), item, `${pointer}/${String(key).replace(/~/g, "~0").replace(/\//g, "~1")}`, ops)),
    ...gone.map(op => make("div", "leaf remove", make("span", "sign", SIGNS.remove),
      make("span", "key", cut(legible(op.steps.at(-1)), 80)), ": ", make("span", "old", folded(show(op.before))))),
  ];
}

function tree(key, value, pointer, ops) {
  const own = ops.find(op => op.path === pointer && op.kind !== "remove");
  const isInner = !own && ops.some(op => op.path.startsWith(`${pointer}/`));
  const sign = own ? SIGNS[own.kind] : isInner ? "\u2022" : "";
  const label = [sign && make("span", "sign", sign), make("span", "key", cut(legible(key), 80)), ": "].filter(Boolean);
  const size = value instanceof Map ? value.size : Array.isArray(value) ? value.length : 0;
  if (!isInner && (!size || show(value).length <= LINE)) {
    return make("div", `leaf ${own ? own.kind : ""}`, ...label, folded(spoken(pointer, value)));
  }
  const hint = make("span", "hint", Array.isArray(value) ? `[${size}]` : `{${size}}`);
  const branch = make("details", own ? own.kind : "", make("summary", "", ...label, hint));
  let isFilled = false;
  function fill() {
    if (isFilled) return;
    isFilled = true;
    branch.append(...branches(value, pointer, ops));
  }
  branch.open = unfolded.get(pointer) ?? (isInner || size <= 12);
  if (branch.open) fill();
  branch.addEventListener("toggle", () => {
    if (branch.open) fill();
  });
  branch.firstChild.addEventListener("click", () => unfolded.set(pointer, !branch.open));
  return branch;
}

function button(text, label, action) {
  const made = make("button", "", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}

const detail = make("section", "detail");
detail.tabIndex = 0;
detail.setAttribute("aria-label", "The chosen step");

function looked(number) {
  const step = run[number - 1];
  const title = step ? `Step ${number} of ${run.length}: ${cut(legible(step.process), 40)}` : "The beginning";
  const parts = [make("div", "bar", make("h2", "", title),
    button("\u2191", "Previous step", () => choose(chosen - 1)), button("\u2193", "Next step", () => choose(chosen + 1)))];
  const ops = step ? step.patch : [];
  if (step) {
    const [what, reply] = asked(step.what);
    parts.push(make("p", "said", folded(what)));
    if (reply) parts.push(make("p", "said heard", "\u2192 ", folded(reply)));
    parts.push(...marks(number), make("h3", "", "What changed"));
    const sorted = [...ops.filter(op => !isRoutine(op)), ...ops.filter(isRoutine)];
    parts.push(sorted.length ? make("ol", "patch", ...sorted.map(change)) : make("p", "said", "nothing"));
  }
  parts.push(make("h3", "", step ? "The state after this step" : "The first state"));
  if (misfit && number >= misfit) parts.push(make("p", "mark law", `The patch of step ${misfit} does not fit; the state is not known.`));
  const state = states[number];
  parts.push(make("div", "tree", ...branches(state, "", ops)));
  detail.replaceChildren(...parts);
}

let chosen = -1;

function choose(number, scroll = true) {
  const next = Math.min(Math.max(number, 0), run.length);
  if (next === chosen) return;
  list.children[Math.max(chosen, 0)].setAttribute("aria-selected", "false");
  chosen = next;
  const item = list.children[chosen];
  item.setAttribute("aria-selected", "true");
  list.setAttribute("aria-activedescendant", item.id);
  heads.forEach((says, lane) => {
    const how = manner(states[chosen], lanes[lane]);
    says.textContent = cut(legible(how.says), 60);
    says.className = `says ${how.is}`;
  });
  looked(chosen);
  if (scroll) item.scrollIntoView({block: "nearest"});
}

// --- hands -------------------------------------------------------------------------------------

list.addEventListener("click", event => {
  const item = event.target.closest(".step");
  if (item) choose([...list.children].indexOf(item), false);
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isFree = event.target === document.body || event.target === list;
  const goal = {
    j: chosen + 1, k: chosen - 1,
    ...(isFree && {ArrowDown: chosen + 1, ArrowUp: chosen - 1}),
    ...(event.target === list && {Home: 0, End: run.length}),
  }[event.key];
  if (goal === undefined) return;
  event.preventDefault();
  choose(goal);
});

const command = document.getElementById("command");
document.getElementById("copy").addEventListener("click", async event => {
  const told = event.target;
  try {
    await navigator.clipboard.writeText(command.textContent);
    told.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(command);
    told.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { told.textContent = "Copy command"; }, 2500);
});
document.getElementById("save").addEventListener("click", () => {
  const link = make("a", "");
  link.href = URL.createObjectURL(new Blob([document.getElementById("trace").textContent], {type: "application/json"}));
  link.download = `${meta.get("scenario").replace(/[^\w.-]/g, "_").slice(0, 80)}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
});

const main = document.getElementById("main");
main.replaceChildren(listed, detail);
main.className = "drawn";
addEventListener("resize", fit);
fit();
const asks = /^#(\d+)$/.exec(location.hash);
choose(asks ? Number(asks[1]) : broken ? run.length : 0, Boolean(asks));
"""
