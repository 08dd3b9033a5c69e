// What the reader looks at: which run, which step, with which filters. Whoever draws it registers, and is called when that
// changes.

import {base, breaks, main} from "./runs.js";

export const view = {
  time: "steps",
  causes: false,
  query: "",
  hits: new Set(),
  process: "",
  kind: "",
  key: "",
  hidden: new Set(),
  printing: false
};
export let run = main;
export let chosen = -1;

// Each observer has a function for the changes that it draws: `step`, `run`, `watches`.
const observers = [];
export const observe = observer => observers.push(observer);
export function notify(change, ...given) {
  for (const observer of observers) observer[change]?.(...given);
}

export const total = () => run.steps.length;
export const hasTimes = () => run.steps.some(step => step.at);
export const hasCauses = () => run.steps.some(step => step.cause.length);
export const isBroken = number => breaks(run, number);

// The step and all that it depends on.
export function causesOf(number) {
  const found = new Set([number]);
  // What is added while a Set is gone through is gone through as well.
  for (const each of found) for (const cause of run.steps[each - 1]?.cause ?? []) found.add(cause);
  return found;
}

// The part of the address that names the run and the step.
export const address = () => `#${run === main ? "" : `${run.name}:`}${base + chosen}`;

export function choose(number, scroll = true) {
  const next = Math.min(Math.max(number, 0), total());
  if (next === chosen) return;
  chosen = next;
  notify("step", scroll);
}

export function switchTo(some) {
  if (run === some) return;
  run = some;
  const before = Math.min(chosen, total());
  chosen = -1;
  notify("run");
  choose(before);
}
