// Which steps have a row, and where. In logical time one row follows another; in virtual time they are the further apart
// the more time has passed, long waits folded.

import {listed} from "./elements.js";
import {laneOf, lanes} from "./lanes.js";
import {chosen, run, view} from "./view.js";

export let shown = []; // the numbers of the steps that have a row, 0 for the beginning
export let tops = []; // where the row of each begins
export let height = 0;
export let rowHeight = 46;
export let laneWidth = 60;
export const rowOf = new Map(); // number -> its place in `shown`
export const gapOf = []; // by row: how much time passed before it
export const folds = []; // by row: is that more than is drawn?
const GAP_MAX = 64;

export const visible = () => lanes.filter(lane => !view.hidden.has(lane));

function keyPattern(key) {
  const found = /^(?:.*[^\d])?(\d+):(\d+)$/.exec(key);
  return found && new RegExp(`(^|\\D)${found[1]}\\s?[@:]\\s?${found[2]}(?!\\d)`);
}

function passes(step) {
  const {process, kind, key} = view;
  if (
    view.hidden.has(laneOf.get(step.process)) ||
    (process && step.process !== process) ||
    (kind && step.kind !== kind)
  )
    return false;
  if (!key) return true;
  const pattern = keyPattern(key);
  if (pattern) return pattern.test(step.event) || step.effects.some(effect => pattern.test(effect.what));
  return step.effects.some(effect => effect.on.includes(key)) || step.ops.some(op => op.parts.includes(key));
}

export function layout() {
  shown = [0];
  run.steps.forEach((step, index) => {
    if (passes(step)) shown.push(index + 1);
  });
  if (view.printing && shown.length > 28) {
    const at = shown.findIndex(number => number >= chosen);
    const from = Math.min(Math.max((at < 0 ? shown.length : at) - 20, 0), shown.length - 27);
    shown = shown.slice(from, from + 27);
  }
  const wide = view.printing ? 420 : listed.clientWidth;
  laneWidth = Math.floor(
    Math.max(18, Math.min(96, (wide * (wide < 560 ? 0.38 : 0.52)) / Math.max(visible().length, 1)))
  );
  rowHeight = view.printing ? 25 : 46;
  const at = number => (number ? run.steps[number - 1].at : 0);
  const gaps = shown.map((number, index) =>
    index && view.time === "time" ? Math.max((at(number) ?? 0) - (at(shown[index - 1]) ?? 0), 0) : 0
  );
  const real = gaps.filter(Boolean).sort((a, b) => a - b);
  const scale = real.length ? 30 / real[real.length >> 1] : 0;
  height = 0;
  rowOf.clear();
  tops = shown.map((number, index) => {
    gapOf[index] = gaps[index];
    folds[index] = gaps[index] * scale > GAP_MAX;
    height += gaps[index] && Math.max(22, Math.min(gaps[index] * scale, GAP_MAX));
    rowOf.set(number, index);
    height += rowHeight;
    return height - rowHeight;
  });
}
