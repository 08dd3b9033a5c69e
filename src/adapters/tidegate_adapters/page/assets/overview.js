// The run as a whole: the scrubber, and a strip for each law and each watched path, to the same scale. What is
// broken or reached is never narrower than a mark that can be seen, however many steps there are.

import {button, draw, icon, make} from "./dom.js";
import {strips} from "./elements.js";
import {base, laws, stepNumber, TRUTH_SIGNS, TRUTHS, truthsOf} from "./runs.js";
import {cut, grouped, inside, legible, partsOf, seconds, short, show} from "./values.js";
import {choose, chosen, isBroken, notify, observe, run, total, view} from "./view.js";

const INSET = 8; // half of the scrubber's thumb
const PAPER = 515; // how wide the strips are on paper: when it is drawn, nobody knows the width of the sheet
const scrubber = make("input", "scrubber");
scrubber.type = "range";
scrubber.min = 0;
scrubber.setAttribute("aria-label", "Step");
scrubber.addEventListener("input", () => choose(Number(scrubber.value)));
const playhead = make("div", "playhead");
const ticks = draw("svg", {class: "ticks", "aria-hidden": "true"});
const where = make("output", "where");
export const watches = []; // pointers, and of which the next change is looked for
export let watched = "";
let stripWidth = 0;

const along = number => INSET + (stripWidth - 2 * INSET) * (total() ? number / total() : 0);
const under = event => {
  const {left} = event.currentTarget.getBoundingClientRect();
  return Math.round(((event.clientX - left - INSET) / (stripWidth - 2 * INSET)) * total());
};

// Runs of equal cells, as [value, first, last].
function stretches(values) {
  const found = [];
  for (let number = 0; number < values.length; number++) {
    const last = found.at(-1);
    if (last && last[0] === values[number]) last[2] = number;
    else found.push([values[number], number, number]);
  }
  return found;
}

function cells(classNames) {
  const wide = (stripWidth - 2 * INSET) / Math.max(total(), 1);
  const parts = wide < 7 ? stretches(classNames) : classNames.map((name, number) => [name, number, number]);
  const strip = draw("svg", {class: "strip", "aria-hidden": "true"});
  const flat = [];
  const marksOf = [];
  for (const [name, first, last] of parts) {
    if (!name) continue;
    const gap = wide < 7 ? 0 : 1;
    const isMark = name === "broken" || name === "reached" || name === "change";
    const [x, end] = [along(first) - wide / 2 + gap, along(last) + wide / 2 - gap];
    const width = Math.max(end - x, isMark ? 4 : 1);
    const band = {holds: [5, 4], open: [6.5, 1], change: [2, 10]}[name] ?? [1, 12];
    (isMark ? marksOf : flat).push(
      draw("rect", {class: name, x: isMark && width === 4 ? (x + end) / 2 - 2 : x, y: band[0], width, height: band[1]})
    );
    if (name === "broken") marksOf.push(draw("path", {class: "cross", d: `M${along(first) - 3} 4l6 6m0-6l-6 6`}));
  }
  strip.append(...flat, ...marksOf);
  return strip;
}

const firstOf = (known, truth) => known.indexOf(TRUTHS.indexOf(truth));

function lawRow(law, index) {
  const known = truthsOf(run)[index];
  const goal = [firstOf(known, "broken"), firstOf(known, "reached")].find(number => number > 0) ?? 0;
  const strip = cells([...known].map(truth => TRUTHS[truth]));
  strip.addEventListener("click", event => choose(event.target.classList.contains("broken") ? goal : under(event)));
  const sign = make("span", "truth");
  const end = goal
    ? `go to step ${stepNumber(goal)}, where it is first ${TRUTHS[known[goal]]}`
    : law.kind === "sometimes"
      ? "never reached"
      : "never broken";
  const label = button(
    `${legible(law.name)} (${law.kind}): ${end}`,
    () => goal && choose(goal),
    sign,
    make("span", "text", short(law.name, 80))
  );
  label.className = "label";
  label.dataset.law = index;
  return [label, strip];
}

const valueAt = (path, number) => partsOf(path).reduce(inside, run.states[number]);
export const isChange = (path, number) => number > 0 && valueAt(path, number) !== valueAt(path, number - 1);

function watchRow(path) {
  const strip = cells(run.states.map((_, number) => (isChange(path, number) ? "change" : "open")));
  strip.addEventListener("click", event => choose(under(event)));
  const label = button(
    `Watched: ${legible(path)}; w goes to its next change`,
    () => {
      watched = path;
      drawOverview();
    },
    icon("pin"),
    make("span", "text", legible(path))
  );
  label.className = `label watch ${path === watched ? "active" : ""}`;
  const value = make("span", "now");
  value.dataset.path = path;
  const drop = button(`Watch ${legible(path)} no longer`, () => pin(path), "\u00d7");
  drop.className = "drop";
  return [make("div", "labels", label, drop), make("div", "watched", strip, value)];
}

export function pin(path) {
  const at = watches.indexOf(path);
  if (at < 0) watches.push(path);
  else watches.splice(at, 1);
  watched = at < 0 ? path : (watches.at(-1) ?? "");
  notify("watches");
}

export function drawOverview() {
  const focus = document.activeElement?.dataset?.law;
  scrubber.max = total();
  const head = make("div", "labels", where);
  const track = make("div", "track", ticks, scrubber);
  strips.replaceChildren(playhead, head, track);
  stripWidth = view.printing ? PAPER : track.clientWidth;
  const found = [];
  run.steps.forEach((step, index) => {
    const x = along(index + 1);
    if (step.fault) found.push(draw("path", {class: "tick odd", d: `M${x} 0l4.5 4.5-4.5 4.5-4.5-4.5z`}));
    if (isBroken(index + 1)) found.push(draw("path", {class: "tick law", d: `M${x - 4} 0l8 8m0-8l-8 8`}));
  });
  ticks.replaceChildren(...found);
  strips.append(...laws.flatMap(lawRow), ...watches.flatMap(watchRow));
  if (chosen >= 0) updateOverview();
  if (focus !== undefined) strips.querySelector(`[data-law="${focus}"]`)?.focus();
}

function updateOverview() {
  const step = run.steps[chosen - 1];
  scrubber.value = chosen;
  const place = `${chosen ? `Step ${stepNumber(chosen)}` : "The beginning"} of ${grouped(base + total())}${step?.at != null ? `, ${seconds(BigInt(step.at))}` : ""}`;
  scrubber.setAttribute("aria-valuetext", place);
  where.textContent = place;
  playhead.style.left = `calc(var(--label) + ${along(chosen)}px)`;
  laws.forEach((_, index) => {
    const truth = TRUTHS[truthsOf(run)[index][chosen]];
    const sign = strips.querySelector(`[data-law="${index}"] .truth`);
    sign.textContent = TRUTH_SIGNS[truth];
    sign.className = `truth ${truth}`;
    sign.setAttribute("aria-label", truth === "open" ? "not judged here" : truth);
  });
  for (const value of strips.querySelectorAll("[data-path]"))
    value.textContent = cut(shownValue(valueAt(value.dataset.path, chosen)), 200);
}

const shownValue = value => (value === undefined ? "(not there)" : show(value));

observe({step: updateOverview, run: drawOverview, watches: drawOverview});
