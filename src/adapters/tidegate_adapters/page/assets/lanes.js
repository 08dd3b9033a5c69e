// The lanes: one for each process, one for each place that processes share; and the arrows of a step from lane to lane.

import {isRefused, list, runs, trace} from "./runs.js";

export const lanes = list(trace, "processes").map(each =>
  each instanceof Map
    ? {name: each.get("name"), kind: each.get("kind")}
    : {name: each, kind: each === "clock" ? "clock" : "process"}
);
export const laneOf = new Map(lanes.map(lane => [lane.name, lane]));
const IN_NO_LANE = new Set(
  "processes notes budget clock life journal dead ids wakes ahead stuck unique unconfirmed earlier".split(" ")
);
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
  return OF_PARTITIONS.has(top) && next !== undefined
    ? laneNamed(`partition ${next}`, "store")
    : laneNamed(top, "store");
}

const QUIET = new Set(["sleep", "note", "time", "crash", "restart"]);
export const LOST = new Set([
  "unsent",
  "dropped",
  "failed",
  "never_returns",
  "cancelled",
  "sink_failed",
  "dead_letter_failed"
]);

// The arrows of a step: from which lane, to which, and how.
function arrowsOf(step, some) {
  const own = laneNamed(step.process, "process");
  const places = step.effects.map(effect => effect.on);
  for (const op of step.ops) {
    if (op.parts.length === 1 && op.value instanceof Map)
      places.push(...[...op.value.keys()].map(key => [...op.parts, key]));
    else if (op.kind !== "remove" || op.parts[0] === "documents") places.push(op.parts);
  }
  const ends = QUIET.has(step.kind) ? new Set() : new Set(places.map(laneAt));
  ends.delete(null);
  ends.delete(own);
  if (step.fault === "late") for (const end of ends) if (end.kind !== "store") ends.delete(end); // it is on its way there
  if (step.kind === "deliver" && !ends.size) {
    const from = step.cause.map(each => some.steps[each - 1]?.process).find(name => name !== step.process);
    if (from !== undefined) return [{from: laneNamed(from, "process"), to: own, how: step.fault}];
  }
  const isRead = step.kind === "read" || step.kind === "fetch";
  if (LOST.has(step.fault) && !ends.size) return [{from: own, to: null, how: step.fault}];
  return [...ends].map(end =>
    isRead && !LOST.has(step.fault)
      ? {from: end, to: own, how: step.fault}
      : {from: own, to: end, how: isRefused(step) ? "refused" : step.fault}
  );
}

// The arrows of all runs at once, so that all lanes are known.
for (const some of runs) for (const step of some.steps) step.arrows = arrowsOf(step, some);
const rank = lane => (lane.kind === "process" ? 0 : lane.kind === "store" ? 1 : 2);
lanes.sort((a, b) => rank(a) - rank(b));
lanes.forEach((lane, index) => {
  lane.tone = lane.kind === "store" ? "var(--soft)" : `oklch(var(--light) .11 ${(195 + index * 137.5) % 360})`;
});
