// The runs that a page holds, up to three: the one that it explains, the one that this was shrunk from, and the nearest one
// that breaks no law. All begin in the same state. A run has its steps, the states between them, and what is known of the laws.

import {byId} from "./dom.js";
import {applied, cut, grouped, inside, Leaf, legible, opened, parsed, partsOf, show} from "./values.js";

export const trace = parsed(byId("trace").textContent);
export const meta = trace.get("meta");
export const verdict = trace.get("verdict") ?? new Map([["law", meta.get("law") ?? ""]]);
export const broken =
  verdict.get("law") || ((verdict.get("kind") ?? "none") !== "none" && `no ${verdict.get("kind")}`) || "";
export const list = (map, key) => map.get(key) ?? [];
export const base = Number(trace.get("steps")[0]?.get("i")?.text ?? 1) - 1; // a page may begin in the middle of a run
const firstState = opened(trace.get("initial"));

function stepOf(map) {
  const choice = map.get("choice");
  const at = map.get("t");
  return {
    process: map.get("process"),
    event: map.get("event") ?? map.get("what"),
    kind: map.get("kind") ?? "other",
    fault: map.get("fault"),
    at: at instanceof Leaf ? Number(at.text) : null,
    ops: map.get("patch").map(op => ({
      kind: op.get("op"),
      path: op.get("path"),
      parts: partsOf(op.get("path")),
      value: opened(op.get("value"))
    })),
    effects: list(map, "effects").map(each => ({
      what: each.get("what"),
      on: list(each, "on"),
      reply: each.get("reply") ?? ""
    })),
    enabled: choice ? list(choice, "enabled") : [],
    taken: choice ? Number(choice.get("taken").text) : 0,
    laws: map.get("properties") ?? new Map(),
    cause: list(map, "cause")
      .map(each => Number(each.text) - base)
      .filter(each => each > 0),
    src: map.get("src") ?? ""
  };
}

// A run with its states; where a patch does not fit, the states from there on are not known.
function runOf(name, encoded) {
  const run = {
    name,
    steps: list(encoded, "steps").map(stepOf),
    states: [opened(encoded.get("initial")) ?? firstState],
    misfit: 0
  };
  run.steps.forEach((step, index) => {
    let state = run.states[index];
    try {
      for (const op of step.ops) {
        op.before = op.parts.reduce(inside, run.states[index]);
        state = applied(state, op.parts, op);
      }
    } catch {
      run.misfit ||= index + 1;
    }
    run.states.push(state);
  });
  return run;
}

export const passing = trace.get("passing");
export const runs = [
  ["minimal", trace],
  ["original", trace.get("original")],
  ["passing", passing]
]
  .filter(([, encoded]) => encoded)
  .map(([name, encoded]) => runOf(name, encoded));
if (runs[1]?.name !== "original") runs[0].name = "run";
export const TITLES = {run: "this run", minimal: "shortest", original: "as found", passing: "passing"};
export const main = runs[0];

// The steps of the shortest run that the original has as well: a longest common subsequence of what was asked.
export const twins = new Map();
function matchSteps(few, many) {
  const name = step => `${step.process}|${step.fault}|${splitEvent(step.event)[0].replace(/\d+/g, "0")}`;
  const [a, b] = [few.map(name), many.map(name)];
  if (a.length * b.length > 4e6) return;
  const best = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1));
  for (let i = a.length; i--; ) {
    for (let j = b.length; j--; )
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) twins.set(`minimal${++i}`, ++j).set(`original${j}`, i);
    else if (best[i + 1][j] > best[i][j + 1]) i++;
    else j++;
  }
}

export const TRUTHS = ["", "open", "holds", "broken", "reached"];
export const BROKEN = 3; // places in TRUTHS
export const REACHED = 4;
export const TRUTH_SIGNS = {"": "\u00a0", open: "\u25cb", holds: "\u2713", broken: "\u2717", reached: "\u2605"};
export const laws = list(trace, "laws").map(law => ({name: law.get("name"), kind: law.get("kind")}));
if (broken) laws.unshift(laws.find(law => law.name === broken) ?? {name: broken, kind: ""});
laws.splice(0, Infinity, ...new Set(laws)); // the broken one first

// What is known of each law after each step of a run; each step says what is new.
export function truthsOf(some) {
  some.truths ??= laws.map(law => {
    const known = new Uint8Array(some.steps.length + 1);
    some.steps.forEach((step, index) => {
      const truth = TRUTHS.indexOf(step.laws.get(law.name) ?? "");
      known[index + 1] = truth > 0 ? truth : known[index] === BROKEN && !step.laws.size ? BROKEN : known[index];
    });
    const end = Number(verdict.get("step")?.text ?? 0) - base || some.steps.length;
    if (some.name !== "passing" && law.name === broken && !known.includes(BROKEN))
      known[some === main ? end : some.steps.length] = BROKEN;
    return known;
  });
  return some.truths;
}

export const breaks = (some, number) =>
  number > 0 && truthsOf(some).some(known => known[number] === BROKEN && known[number - 1] !== BROKEN);

// What the next step of the process shows anyway, and what is left of a budget.
export const isRoutine = op =>
  op.path.startsWith("/budget") || (op.path.startsWith("/processes/") && String(op.value).startsWith("about to"));

// What was asked and what was answered: an event is split at the first arrow that stands outside of a string.
// Has the store answered that it wrote nothing: refused it, or found no document that it fits?
export function isRefused(step) {
  return !step.fault && /^(write|insert|delete) (Refused|null$|0$)/.test(`${step.kind} ${splitEvent(step.event)[1]}`);
}

export function splitEvent(event) {
  let quoted = false;
  for (let at = 0; at < event.length; at++) {
    if (quoted && event[at] === "\\") at++;
    else if (event[at] === '"') quoted = !quoted;
    else if (!quoted && event.startsWith(" -> ", at))
      return [legible(event.slice(0, at)), legible(event.slice(at + 4))];
  }
  return [legible(event), ""];
}

export const faultOf = step => legible(step.fault).replaceAll("_", " ");

// What a process says of itself, and its status: crashed, ended, noted (it says something of itself), or plain.
export function statusOf(state, name) {
  const notes = inside(inside(state, "notes"), name);
  const status = String(inside(inside(state, "processes"), name));
  const says =
    notes instanceof Map
      ? [...notes]
          .filter(([, value]) => value !== false)
          .map(([note, value]) => (value === true ? note : `${note}: ${show(value)}`))
      : [];
  if (status === "crashed") return {is: "crashed", says: "crashed"};
  if (says.length) return {is: "noted", says: says.join(", ")};
  if (/^(finished|failed|raised)/.test(status)) return {is: "ended", says: status};
  return {is: "plain", says: name === "clock" ? String(inside(state, "clock") ?? "") : ""};
}

// Generations and epochs that a step brings, as they are shown on its lane.
export function tokens(step) {
  const found = [];
  const walk = (path, value) => {
    if (value instanceof Map) for (const [key, item] of value) walk([...path, key], item);
    else if (value instanceof Leaf) {
      const word = /generation|epoch|fenc|token/i.exec(path.at(-1) ?? "");
      if (word) found.push(`${/gen/i.test(word[0]) ? "gen" : "epoch"} ${cut(value.text, 8)}`);
    }
  };
  for (const op of step.ops) if (op.kind !== "remove" && op.parts[0] !== "processes") walk(op.parts, op.value);
  if (/skew|clock_/.test(step.fault)) found.push("skew");
  return [...new Set(found)].slice(0, 2);
}

export const stepNumber = number => grouped(base + number); // in the whole run

if (runs[1]?.name === "original") matchSteps(main.steps, runs[1].steps);
