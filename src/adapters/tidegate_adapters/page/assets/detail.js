// The chosen step: what changed comes first; then the state, of which only what changed is shown until the reader asks for
// all of it; then why it happened: what was asked of the world, what could have happened instead, what it depends on.

import {button, icon, make, setPressed} from "./dom.js";
import {detail, reason} from "./elements.js";
import {pin, watches} from "./overview.js";
import {marks} from "./rows.js";
import {isRoutine, main, splitEvent, stepNumber} from "./runs.js";
import {cut, LINE, LONG, legible, pointerTo, SHORT, SIGNS, short, show, sized, spoken, WORDS, whole} from "./values.js";
import {causesOf, choose, chosen, hasCauses, observe, run} from "./view.js";

function folded(text) {
  if (text.length <= LONG) return make("span", "value", text);
  const start = whole(text.slice(0, SHORT));
  const shownText = make("span", "", start);
  const all = `\u2026 all ${sized(text)}`;
  const made = make("button", "fold", all);
  made.type = "button";
  made.setAttribute("aria-expanded", "false");
  made.addEventListener("click", () => {
    const isOpen = made.getAttribute("aria-expanded") === "false";
    made.setAttribute("aria-expanded", String(isOpen));
    shownText.textContent = isOpen ? text : start;
    made.textContent = isOpen ? "fold" : all;
  });
  return make("span", "value", shownText, made);
}

function pinFor(path) {
  const is = watches.includes(path);
  const made = button(`${is ? "Watch no longer" : "Watch"} ${legible(path)}`, () => pin(path), icon("pin"));
  made.className = "pin";
  setPressed(made, is);
  return made;
}

function change(op) {
  const quiet = isRoutine(op);
  const item = make("li", quiet ? "routine" : op.kind);
  const path = make("span", "path");
  op.parts.forEach((step, index) => {
    path.append(index ? " / " : "", make(index === op.parts.length - 1 ? "b" : "span", "", short(step, 60)));
  });
  item.append(make("span", "op", `${SIGNS[op.kind]} ${WORDS[op.kind]}`), path, pinFor(op.path), make("br"));
  if (op.kind !== "add" && !op.path.startsWith("/processes/"))
    item.append(make("span", "old", folded(show(op.before))));
  if (op.kind === "replace") item.append(" \u2192 ");
  if (op.kind !== "remove") item.append(folded(spoken(op.path, op.value)));
  return item;
}

const unfolded = new Map(); // pointer -> did the reader open it?
let isFull = false;

export function flipFull() {
  isFull = !isFull;
  drawDetail();
}

// What a value holds: each part, then each that the step removed from it. Unless all is shown, only what changed.
function branches(value, pointer, ops, isAll) {
  const items = value instanceof Map ? [...value] : Array.isArray(value) ? [...value.entries()] : [];
  const gone = ops.filter(op => op.kind === "remove" && op.path.slice(0, op.path.lastIndexOf("/")) === pointer);
  const touches = path => ops.some(op => op.path === path || op.path.startsWith(`${path}/`));
  const parts = [];
  let same = 0;
  for (const [key, item] of items) {
    const path = pointer + pointerTo([key]);
    if (isAll || touches(path)) parts.push(tree(String(key), item, path, ops, isAll));
    else same++;
  }
  parts.push(
    ...gone.map(op =>
      make(
        "div",
        "leaf remove",
        make("span", "sign", SIGNS.remove),
        make("span", "key", short(op.parts.at(-1), 80)),
        ": ",
        make("span", "old", folded(show(op.before)))
      )
    )
  );
  if (same) parts.push(make("div", "leaf same", `${same} unchanged`));
  return parts;
}

function tree(key, value, pointer, ops, isAll) {
  const own = ops.find(op => op.path === pointer && op.kind !== "remove");
  const isInner = !own && ops.some(op => op.path.startsWith(`${pointer}/`));
  const sign = own ? SIGNS[own.kind] : isInner ? "\u2022" : "";
  const label = [sign && make("span", "sign", sign), make("span", "key", short(key, 80)), ": "].filter(Boolean);
  const size = value instanceof Map ? value.size : Array.isArray(value) ? value.length : 0;
  if (!isInner && (!size || show(value).length <= LINE)) {
    return make("div", `leaf ${own ? own.kind : ""}`, ...label, folded(spoken(pointer, value)), pinFor(pointer));
  }
  const hint = make("span", "hint", Array.isArray(value) ? `[${size}]` : `{${size}}`);
  const branch = make("details", own ? own.kind : "", make("summary", "", ...label, hint, pinFor(pointer)));
  let isFilled = false;
  function fill() {
    if (isFilled) return;
    isFilled = true;
    branch.append(...branches(value, pointer, ops, isAll || Boolean(own)));
  }
  branch.open = unfolded.get(pointer) ?? (isInner || size <= 12);
  if (branch.open) fill();
  branch.addEventListener("toggle", () => {
    if (branch.open) fill();
  });
  branch.firstChild.addEventListener("click", event => {
    if (event.target.closest("button")) event.preventDefault();
    else unfolded.set(pointer, !branch.open);
  });
  return branch;
}

function stepLink(number) {
  const step = run.steps[number - 1];
  return make(
    "li",
    "",
    button(
      `Go to step ${stepNumber(number)}`,
      () => choose(number),
      `${stepNumber(number)}  ${short(step.process, 24)}: ${cut(splitEvent(step.event)[0], 90)}`
    )
  );
}

function decisionPart(step) {
  const parts = step.effects.map(effect =>
    make(
      "li",
      "",
      folded(legible(effect.what)),
      ...(effect.on.length ? [" ", make("span", "on", legible(effect.on.join(" / ")))] : []),
      ...(effect.reply ? [make("div", "answer", "\u2192 ", folded(legible(effect.reply)))] : [])
    )
  );
  if (!parts.length && !step.src) return [];
  return [
    make("h3", "", "The decision"),
    make("ul", "plain", ...parts),
    ...(step.src ? [make("p", "src", "in ", make("code", "", legible(step.src)))] : [])
  ];
}

function schedulePart(step) {
  if (!step.enabled.length) return [];
  const count = step.enabled.length;
  const items = step.enabled.map((each, index) => {
    const fault = each.get("fault");
    const item = make(
      "li",
      index === step.taken ? "taken" : "",
      index === step.taken ? "\u25b6 " : "",
      make("b", "", short(each.get("process"), 24)),
      ` ${short(each.get("event"), 120)}`
    );
    if (fault) item.append(" ", make("span", "mark", legible(fault).replaceAll("_", " ")));
    return item;
  });
  return [
    make("h3", "", count === 1 ? "Nothing else could happen" : `One of ${count} things that could happen`),
    make("ul", "plain options", ...items),
    make("p", "soft", run === main ? reason.textContent : "")
  ];
}

function causesPart(number) {
  if (!hasCauses()) return [];
  const {cause} = run.steps[number - 1];
  const all = causesOf(number).size - 1;
  return [
    make("h3", "", `Depends on ${all} earlier ${all === 1 ? "step" : "steps"}, directly on`),
    cause.length ? make("ul", "plain links", ...cause.map(stepLink)) : make("p", "soft", "none")
  ];
}

function drawDetail() {
  const step = run.steps[chosen - 1];
  const title = step ? `Step ${stepNumber(chosen)}: ${short(step.process, 40)}` : "The beginning";
  const ops = step ? step.ops : [];
  const parts = [make("h2", "", title)];
  if (step) {
    const [what, reply] = splitEvent(step.event);
    parts.push(make("p", "event", folded(what)));
    if (reply) parts.push(make("p", "event answer", "\u2192 ", folded(reply)));
    parts.push(...marks(chosen), make("h3", "", "What changed"));
    const sorted = [...ops.filter(op => !isRoutine(op)), ...ops.filter(isRoutine)];
    parts.push(sorted.length ? make("ol", "patch", ...sorted.map(change)) : make("p", "soft", "nothing"));
  }
  const isAll = isFull || !step;
  const flip = button("Changes only, or the whole state (d)", flipFull, isFull ? "only what changed" : "all of it");
  setPressed(flip, isFull);
  parts.push(make("h3", "", step ? "The state after it " : "The first state ", ...(step ? [flip] : [])));
  if (run.misfit && chosen >= run.misfit)
    parts.push(
      make("p", "mark law", `The patch of step ${stepNumber(run.misfit)} does not fit; the state is not known.`)
    );
  parts.push(make("div", "tree", ...branches(run.states[chosen], "", ops, isAll)));
  if (step) parts.push(...decisionPart(step), ...schedulePart(step), ...causesPart(chosen));
  detail.replaceChildren(...parts);
  detail.scrollTop = 0;
}

observe({step: drawDetail, watches: drawDetail});
