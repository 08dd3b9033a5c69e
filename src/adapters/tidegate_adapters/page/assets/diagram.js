// The picture beside the rows: rails, arrows and signs.

import {draw, glyph, tint} from "./dom.js";
import {LOST, laneOf} from "./lanes.js";
import {folds, gapOf, laneWidth, rowHeight, rowOf, shown, tops, visible} from "./layout.js";
import {classesOf} from "./rows.js";
import {statusOf, tokens} from "./runs.js";
import {seconds} from "./values.js";
import {chosen, isBroken, run, total, view} from "./view.js";

const middle = index => tops[index] + rowHeight / 2;

function arrow(each, own, y, x) {
  const from = x(each.from);
  const to = each.to ? x(each.to) : from + 34;
  if (from === undefined || to === undefined) return [];
  const way = Math.sign(to - from) || 1;
  const stop = lane => (lane === own ? 10 : 3); // at the rim of the sign
  const [start, end] = [from + stop(each.from) * way, to - stop(each.to) * way];
  const head = at => draw("path", {class: "head", d: `M${at} ${y}l${-7 * way}-4v8z`});
  const half = (start + end) / 2;
  const small = (name, at) => glyph(name, {class: "glyph sign", transform: `translate(${at - 6} ${y - 6}) scale(.75)`});
  const line = (at, kind = "") => draw("path", {class: `arrow ${kind}`, d: `M${start} ${y}H${at}`});
  if (LOST.has(each.how)) return [line(half - 4 * way, each.how === "unsent" ? "faint" : ""), small("cross", half)];
  if (each.how === "lost_reply") return [line(end), head(end), small("cross", start + 9 * way)];
  if (each.how === "refused") return [line(end), draw("path", {class: "sign", d: `M${end} ${y - 7}v14`})];
  if (each.how === "late") return [line(end, "faint"), head(end), small("hourglass", half)];
  if (each.how === "duplicate") return [line(end), head(end), head(end - 7 * way)];
  return [line(end), head(end)];
}

export function picture(from, to, dims) {
  const seen = visible();
  const places = new Map(seen.map((lane, index) => [lane, (index + 0.5) * laneWidth]));
  const x = lane => places.get(lane);
  const parts = [];
  for (const lane of seen) {
    const rails = new Map();
    for (let index = from; index <= to; index++) {
      const number = shown[index];
      const before = index ? tops[index - 1] + rowHeight / 2 : middle(0);
      const was = lane.kind === "store" ? "store" : statusOf(run.states[Math.max(number - 1, 0)], lane.name).is;
      rails.set(was, `${rails.get(was) ?? ""}M${x(lane)} ${before}V${middle(index)}`);
      if (index === to) {
        const is = lane.kind === "store" ? "store" : statusOf(run.states[number], lane.name).is;
        rails.set(is, `${rails.get(is) ?? ""}M${x(lane)} ${middle(index)}v${number < total() ? rowHeight : 0}`);
      }
    }
    const group = draw(
      "g",
      {class: `lane ${lane.kind}`},
      ...[...rails].map(([how, d]) => draw("path", {class: `rail ${how}`, d}))
    );
    tint(group, lane);
    parts.push(group);
  }
  if (view.causes && chosen > 0) {
    const end = rowOf.get(chosen);
    for (const cause of run.steps[chosen - 1].cause) {
      const begin = rowOf.get(cause);
      const [a, b] = [cause, chosen].map(number => x(laneOf.get(run.steps[number - 1].process)));
      if (begin === undefined || end === undefined || a === undefined || b === undefined) continue;
      const [y, z] = [middle(begin), middle(end)];
      parts.push(draw("path", {class: "because", d: `M${a} ${y}Q${(a + b) / 2 - 30} ${(y + z) / 2} ${b} ${z}`}));
    }
  }
  for (let index = from; index <= to; index++) {
    const number = shown[index];
    const step = run.steps[number - 1];
    const y = middle(index);
    if (gapOf[index]) {
      const label = draw(
        "text",
        {class: "gap", x: 4, y: tops[index] - 7},
        `${folds[index] ? "\u22ee folded: " : ""}${seconds(BigInt(gapOf[index]))} later`
      );
      parts.push(
        draw("path", {
          class: `gap ${folds[index] ? "fold" : ""}`,
          d: `M0 ${tops[index] - 2}H${seen.length * laneWidth}`
        }),
        label
      );
    }
    if (!step) continue;
    const own = laneOf.get(step.process);
    const group = draw("g", {class: classesOf(number, dims && !dims.has(number)), "data-step": number});
    tint(group, own);
    group.append(...step.arrows.flatMap(each => arrow(each, own, y, x)));
    if (x(own) !== undefined) {
      const place = `translate(${x(own)} ${y})`;
      const shape = isBroken(number)
        ? draw("rect", {class: "node", x: -9, y: -9, width: 18, height: 18, rx: 3})
        : step.fault
          ? draw("rect", {class: "node", x: -8, y: -8, width: 16, height: 16, rx: 2, transform: "rotate(45)"})
          : draw("circle", {class: "node", r: 8.5});
      const name = isBroken(number) ? "cross" : step.kind;
      group.append(draw("g", {transform: place}, shape, glyph(name, {transform: "translate(-5.6 -5.6) scale(.7)"})));
      const token = tokens(step).join(", ");
      if (token && laneWidth > 40) {
        const most = Math.max(4, Math.floor(laneWidth / 6));
        group.append(
          draw("text", {class: "token", x: x(own), y: y - 12, "text-anchor": "middle"}, token.slice(0, most))
        );
      }
    }
    parts.push(group);
  }
  return parts;
}
