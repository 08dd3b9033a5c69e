"""The part of the script that knows runs: their steps, the states between them, the laws, what depends on what.

A page holds up to three runs: the one that it tells of, the one that this was shrunk from, and the nearest one that
breaks no law. All begin in the same state.
"""

from __future__ import annotations

from typing import Final

RUNS: Final = r"""
// --- runs --------------------------------------------------------------------------------------

const trace = parsed(document.getElementById("trace").textContent);
const meta = trace.get("meta");
const verdict = trace.get("verdict") ?? new Map([["law", meta.get("law") ?? ""]]);
const broken = verdict.get("law") || (verdict.get("kind") ?? "none") !== "none" && `no ${verdict.get("kind")}` || "";
const list = (map, key) => map.get(key) ?? [];
const base = Number(trace.get("steps")[0]?.get("i")?.text ?? 1) - 1;  // a page may begin in the middle of a run
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
      kind: op.get("op"), path: op.get("path"), steps: steps(op.get("path")), value: opened(op.get("value")),
    })),
    effects: list(map, "effects").map(each => ({what: each.get("what"), on: list(each, "on"), reply: each.get("reply") ?? ""})),
    enabled: choice ? list(choice, "enabled") : [],
    taken: choice ? Number(choice.get("taken").text) : 0,
    laws: map.get("properties") ?? new Map(),
    cause: list(map, "cause").map(each => Number(each.text) - base).filter(each => each > 0),
    src: map.get("src") ?? "",
  };
}

// A run with its states; where a patch does not fit, the states from there on are not known.
function runOf(name, told) {
  const run = {name, steps: list(told, "steps").map(stepOf), states: [opened(told.get("initial")) ?? firstState], misfit: 0};
  run.steps.forEach((step, index) => {
    let state = run.states[index];
    try {
      for (const op of step.ops) {
        op.before = op.steps.reduce(inside, run.states[index]);
        state = applied(state, op.steps, op);
      }
    } catch {
      run.misfit ||= index + 1;
    }
    run.states.push(state);
  });
  return run;
}

const passing = trace.get("passing");
const runs = [["minimal", trace], ["original", trace.get("original")], ["passing", passing]]
  .filter(([, told]) => told).map(([name, told]) => runOf(name, told));
if (runs[1]?.name !== "original") runs[0].name = "run";
const TITLES = {run: "this run", minimal: "shortest", original: "as found", passing: "passing"};
const main = runs[0];
let run = main;
const total = () => run.steps.length;

// The steps of the shortest run that the original has as well: a longest common subsequence of what was asked.
const twins = new Map();
function kept(few, many) {
  const name = step => `${step.process}|${step.fault}|${asked(step.event)[0].replace(/\d+/g, "0")}`;
  const [a, b] = [few.map(name), many.map(name)];
  if (a.length * b.length > 4e6) return;
  const best = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1));
  for (let i = a.length; i--;) {
    for (let j = b.length; j--;) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) twins.set(`minimal${++i}`, ++j).set(`original${j}`, i);
    else if (best[i + 1][j] > best[i][j + 1]) i++;
    else j++;
  }
}

// --- laws --------------------------------------------------------------------------------------

const TRUTHS = ["", "open", "holds", "broken", "reached"];
const TRUTH_SIGNS = {"": "\u00a0", open: "\u25cb", holds: "\u2713", broken: "\u2717", reached: "\u2605"};
const laws = list(trace, "laws").map(law => ({name: law.get("name"), kind: law.get("kind")}));
if (broken) laws.unshift(laws.find(law => law.name === broken) ?? {name: broken, kind: ""});
laws.splice(0, Infinity, ...new Set(laws));  // the broken one first

// What is known of each law after each step of a run; each step tells what is new.
function truthsOf(some) {
  return some.truths ??= laws.map(law => {
    const known = new Uint8Array(some.steps.length + 1);
    some.steps.forEach((step, index) => {
      const truth = TRUTHS.indexOf(step.laws.get(law.name) ?? "");
      known[index + 1] = truth > 0 ? truth : known[index] === 3 && !step.laws.size ? 3 : known[index];
    });
    const end = Number(verdict.get("step")?.text ?? 0) - base || some.steps.length;
    if (some !== runs.find(each => each.name === "passing") && law.name === broken && !known.includes(3)) known[some === main ? end : some.steps.length] = 3;
    return known;
  });
}

const isBroken = number => number > 0 && truthsOf(run).some(known => known[number] === 3 && known[number - 1] !== 3);

// --- what depends on what ----------------------------------------------------------------------

const tellsCauses = () => run.steps.some(step => step.cause.length);

function past(number) {
  const found = new Set([number]);
  for (const each of found) for (const cause of run.steps[each - 1]?.cause ?? []) found.add(cause);
  return found;
}

// --- what a step says --------------------------------------------------------------------------

// What the next step of the process tells anyway, and what is left of a budget.
const isRoutine = op => op.path.startsWith("/budget")
  || (op.path.startsWith("/processes/") && String(op.value).startsWith("about to"));

// What was asked and what was heard: apart at the first arrow that stands outside of a string.
function asked(event) {
  let quoted = false;
  for (let at = 0; at < event.length; at++) {
    if (quoted && event[at] === "\\") at++;
    else if (event[at] === "\"") quoted = !quoted;
    else if (!quoted && event.startsWith(" -> ", at)) return [legible(event.slice(0, at)), legible(event.slice(at + 4))];
  }
  return [legible(event), ""];
}

const faultOf = step => legible(step.fault).replaceAll("_", " ");

// What a process says of itself, and how it stands: loud, dead, over, or plain.
function manner(state, name) {
  const notes = inside(inside(state, "notes"), name);
  const stands = String(inside(inside(state, "processes"), name));
  const says = notes instanceof Map
    ? [...notes].filter(([, value]) => value !== false).map(([note, value]) => value === true ? note : `${note}: ${show(value)}`)
    : [];
  if (stands === "crashed") return {is: "dead", says: "crashed"};
  if (says.length) return {is: "loud", says: says.join(", ")};
  if (/^(finished|failed|raised)/.test(stands)) return {is: "over", says: stands};
  return {is: "plain", says: name === "clock" ? String(inside(state, "clock") ?? "") : ""};
}

// Generations and epochs that a step brings, as they are told on its lane.
function tokens(step) {
  const found = [];
  const walk = (path, value) => {
    if (value instanceof Map) for (const [key, item] of value) walk([...path, key], item);
    else if (value instanceof Leaf) {
      const word = /generation|epoch|fenc|token/i.exec(path.at(-1) ?? "");
      if (word) found.push(`${/gen/i.test(word[0]) ? "gen" : "epoch"} ${cut(value.text, 8)}`);
    }
  };
  for (const op of step.ops) if (op.kind !== "remove" && op.steps[0] !== "processes") walk(op.steps, op.value);
  if (/skew|clock_/.test(step.fault)) found.push("skew");
  return [...new Set(found)].slice(0, 2);
}

// --- lanes -------------------------------------------------------------------------------------

const lanes = list(trace, "processes").map(each => each instanceof Map
  ? {name: each.get("name"), kind: each.get("kind")} : {name: each, kind: each === "clock" ? "clock" : "process"});
const laneOf = new Map(lanes.map(lane => [lane.name, lane]));
const IN_NO_LANE = new Set("processes notes budget clock life journal dead ids wakes ahead stuck unique unconfirmed earlier".split(" "));
const OF_PARTITIONS = new Set("committed metadata end processed log records".split(" "));

function laneNamed(name, kind) {
  if (!laneOf.has(name)) {
    const lane = {name, kind};
    laneOf.set(name, lane);
    lanes.push(lane);
  }
  return laneOf.get(name);
}

const laneOfKind = kind => lanes.find(lane => lane.kind === kind);

// The lane that a place in the state belongs to: a collection, a partition, a process that is sent something.
function laneAt([top, next]) {
  if (top === undefined || IN_NO_LANE.has(top)) return null;
  if (top === "documents") return next === undefined ? null : laneNamed(next, "store");
  if (top === "inbox") return laneOf.get(next) ?? null;
  if (top === "group") return laneOfKind("coordinator") ?? laneOf.get("coordinator") ?? laneNamed("group", "store");
  if (top === "in flight") return laneOfKind("network") ?? null;
  return OF_PARTITIONS.has(top) && next !== undefined ? laneNamed(`partition ${next}`, "store") : laneNamed(top, "store");
}

const QUIET = new Set(["sleep", "note", "time", "crash", "restart"]);
const LOST = new Set(["unsent", "dropped", "failed", "never_returns", "cancelled", "sink_failed", "dead_letter_failed"]);

// The arrows of a step: from which lane, to which, and how.
function arrowsOf(step) {
  if (step.arrows) return step.arrows;
  const own = laneNamed(step.process, "process");
  const places = step.effects.map(effect => effect.on);
  for (const op of step.ops) {
    if (op.steps.length === 1 && op.value instanceof Map) places.push(...[...op.value.keys()].map(key => [...op.steps, key]));
    else if (op.kind !== "remove" || op.steps[0] === "documents") places.push(op.steps);
  }
  const ends = QUIET.has(step.kind) ? new Set() : new Set(places.map(laneAt));
  ends.delete(null);
  ends.delete(own);
  if (step.fault === "late") for (const end of ends) if (end.kind !== "store") ends.delete(end);  // it is on its way there
  if (step.kind === "deliver" && !ends.size) {
    const from = step.cause.map(each => run.steps[each - 1]?.process).find(name => name !== step.process);
    if (from !== undefined) return step.arrows = [{from: laneNamed(from, "process"), to: own, how: step.fault}];
  }
  const isRead = step.kind === "read" || step.kind === "fetch";
  step.arrows = [...ends].map(end => isRead && !LOST.has(step.fault) ? {from: end, to: own, how: step.fault} : {from: own, to: end, how: step.fault});
  if (LOST.has(step.fault) && !ends.size) step.arrows = [{from: own, to: null, how: step.fault}];
  return step.arrows;
}

for (const some of runs) {
  run = some;
  for (const step of run.steps) arrowsOf(step);  // so that all lanes are known
}
run = main;
const rank = lane => lane.kind === "process" ? 0 : lane.kind === "store" ? 1 : 2;
lanes.sort((a, b) => rank(a) - rank(b));
lanes.forEach((lane, index) => {
  lane.tone = lane.kind === "store" ? "var(--soft)" : `oklch(var(--light) .11 ${(195 + index * 137.5) % 360})`;
});
if (runs[1]?.name === "original") kept(main.steps, runs[1].steps);
"""
