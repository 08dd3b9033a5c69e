"""The part of the script that draws the lanes: rails, arrows and marks beside a line of text a step.

Only the rows in sight are elements, so a run of thousands of steps scrolls as one of ten. All positions are numbers that
`layout` computes: of each shown step in logical time one row after another, in virtual time further apart the more time
has passed, long waits folded and labelled.
"""

from __future__ import annotations

from typing import Final

LANES: Final = r"""
// --- elements ----------------------------------------------------------------------------------

function make(tag, classes, ...inner) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...inner);  // strings become text
  return element;
}

const tint = (element, lane) => element.style.setProperty("--tone", lane.tone);
const press = (element, is) => element.setAttribute("aria-pressed", String(Boolean(is)));

const INK = canvas.namespaceURI;

function draw(tag, given, ...inner) {
  const element = document.createElementNS(INK, tag);
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, value);
  element.append(...inner);
  return element;
}

function glyph(name, given = {}) {
  const sign = document.getElementById(`sign-${name}`) ?? document.getElementById("sign-other");
  return draw("path", {d: sign.getAttribute("d"), class: "glyph", ...given});
}

const icon = name => draw("svg", {viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true"}, glyph(name));

function button(label, action, ...inner) {
  const made = make("button", "", ...inner.length ? inner : [label]);
  made.type = "button";
  made.title = label;
  if (inner.length) made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}

// --- what is shown -----------------------------------------------------------------------------

const view = {time: "steps", causes: false, query: "", process: "", kind: "", key: "", hidden: new Set(), printing: false};
let chosen = -1;
let shown = [];  // the numbers of the steps that have a row, 0 for the beginning
let tops = [];  // where the row of each begins
let height = 0;
let rowHeight = 46;
let laneWidth = 60;
const rowOf = new Map();  // number -> its place in `shown`
const GAP_MAX = 64;

const visible = () => lanes.filter(lane => !view.hidden.has(lane));

function keyPattern(key) {
  const found = /^(?:.*[^\d])?(\d+):(\d+)$/.exec(key);
  return found && new RegExp(`(^|\\D)${found[1]}\\s?[@:]\\s?${found[2]}(?!\\d)`);
}

function passes(step) {
  const {process, kind, key} = view;
  if (view.hidden.has(laneOf.get(step.process)) || (process && step.process !== process) || (kind && step.kind !== kind)) return false;
  if (!key) return true;
  const pattern = keyPattern(key);
  if (pattern) return pattern.test(step.event) || step.effects.some(effect => pattern.test(effect.what));
  return step.effects.some(effect => effect.on.includes(key)) || step.ops.some(op => op.steps.includes(key));
}

function layout() {
  shown = [0];
  run.steps.forEach((step, index) => { if (passes(step)) shown.push(index + 1); });
  if (view.printing && shown.length > 28) {
    const at = shown.findIndex(number => number >= chosen);
    const from = Math.min(Math.max((at < 0 ? shown.length : at) - 20, 0), shown.length - 27);
    shown = shown.slice(from, from + 27);
  }
  rowHeight = view.printing ? 25 : 46;
  const at = number => number ? run.steps[number - 1].at : 0;
  const gaps = shown.map((number, index) => index && view.time === "time" ? Math.max((at(number) ?? 0) - (at(shown[index - 1]) ?? 0), 0) : 0);
  const real = gaps.filter(Boolean).sort((a, b) => a - b);
  const scale = real.length ? 30 / real[real.length >> 1] : 0;
  height = 0;
  rowOf.clear();
  tops = shown.map((number, index) => {
    gapOf[index] = gaps[index];
    folds[index] = gaps[index] * scale > GAP_MAX;
    height += gaps[index] && Math.max(22, Math.min(gaps[index] * scale, GAP_MAX));
    rowOf.set(number, index);
    return (height += rowHeight) - rowHeight;
  });
}
const gapOf = [];
const folds = [];

// --- rows --------------------------------------------------------------------------------------

function marked(text) {
  const at = view.query ? text.toLowerCase().indexOf(view.query) : -1;
  if (at < 0) return [text];
  return [text.slice(0, at), make("mark", "", text.slice(at, at + view.query.length)), ...marked(text.slice(at + view.query.length))];
}

function brief(op) {
  const place = tell(op.steps.slice(-2).join("/"), 60);
  if (op.kind === "remove") return `\u2212\u00a0${place}: ${cut(show(op.before), 80)}`;
  return `${SIGNS[op.kind]}\u00a0${place}: ${cut(spoken(op.path, op.value), 80)}`;
}

function marks(number) {
  const step = run.steps[number - 1];
  const found = [];
  if (step?.fault) found.push(make("span", "mark", `\u26a0\ufe0e fault: ${cut(faultOf(step), 60)}`));
  truthsOf(run).forEach((known, index) => {
    if (!number || known[number] === known[number - 1]) return;
    const name = tell(laws[index].name);
    if (known[number] === 3) found.push(make("span", "mark law", `\u00d7 breaks the law: ${name}`));
    if (known[number] === 4) found.push(make("span", "mark goal", `\u2605 reached: ${name}`));
  });
  return found;
}

const told = number => grouped(base + number);

function row(number) {
  const step = run.steps[number - 1];
  const also = twins.get(run.name + number);
  const beside = view.time === "time" && step?.at != null ? seconds(BigInt(step.at)) : also ? `${run.name === "original" ? "kept as" : "was"} ${also}` : "";
  const item = make("div", "step", make("span", "number", number ? told(number) : "", make("small", "", beside)));
  item.id = `step-${number}`;
  item.setAttribute("role", "option");
  item.setAttribute("aria-posinset", rowOf.get(number) + 1);
  item.setAttribute("aria-setsize", shown.length);
  const card = make("div", "card");
  item.append(card);
  if (!step) {
    card.append(make("div", "line soft", "the beginning"));
    item.setAttribute("aria-label", "The beginning");
    return item;
  }
  const [what, reply] = asked(step.event);
  const who = make("b", "who", tell(step.process, 24));
  tint(who, laneOf.get(step.process));
  card.append(make("div", "line", who, make("span", "what", ...marked(cut(what)))));
  const news = step.ops.filter(op => !isRoutine(op) && !op.path.startsWith("/notes"));
  const more = make("div", "line more", ...marks(number));
  for (const op of news.slice(0, 2)) more.append(make("span", `news ${op.kind}`, ...marked(brief(op))));
  if (news.length > 2) more.append(make("span", "news", `and ${news.length - 2} more`));
  if (reply) more.append(make("span", "reply", "\u2192 ", ...marked(cut(reply))));
  card.append(more);
  item.setAttribute("aria-label", [
    `Step ${told(number)}, ${tell(step.process, 40)}: ${cut(what)}`,
    reply && `heard ${cut(reply)}`,
    ...marks(number).map(each => each.textContent.slice(2)),
    `${step.ops.length} changes`,
  ].filter(Boolean).join("; "));
  return item;
}

function classesOf(number, dim) {
  const step = run.steps[number - 1];
  return [!step && "begin", step?.fault && "odd", isBroken(number) && "broken", dim && "dim",
    view.query && hits.has(number) && "hit"].filter(Boolean).join(" ");
}

// --- the picture -------------------------------------------------------------------------------

const middle = index => tops[index] + rowHeight / 2;

function arrow(each, own, y, x) {
  const from = x(each.from);
  const to = each.to ? x(each.to) : from + 34;
  if (from === undefined || to === undefined) return [];
  const way = Math.sign(to - from) || 1;
  const stop = lane => lane === own ? 10 : 3;  // at the rim of the sign
  const [start, end] = [from + stop(each.from) * way, to - stop(each.to) * way];
  const head = at => draw("path", {class: "head", d: `M${at} ${y}l${-7 * way}-4v8z`});
  const half = (start + end) / 2;
  const small = (name, at) => glyph(name, {class: "glyph sign", transform: `translate(${at - 6} ${y - 6}) scale(.75)`});
  const line = (at, kind = "") => draw("path", {class: `arrow ${kind}`, d: `M${start} ${y}H${at}`});
  if (LOST.has(each.how)) return [line(half - 4 * way, each.how === "unsent" ? "faint" : ""), small("cross", half)];
  if (each.how === "lost_reply") return [line(end), head(end), small("cross", start + 9 * way)];
  if (each.how === "late") return [line(end, "faint"), head(end), small("hourglass", half)];
  if (each.how === "duplicate") return [line(end), head(end), head(end - 7 * way)];
  return [line(end), head(end)];
}

function picture(from, to, dims) {
  const seen = visible();
  const places = new Map(seen.map((lane, index) => [lane, (index + .5) * laneWidth]));
  const x = lane => places.get(lane);
  const parts = [];
  for (const lane of seen) {
    const rails = new Map();
    for (let index = from; index <= to; index++) {
      const number = shown[index];
      const before = index ? tops[index - 1] + rowHeight / 2 : middle(0);
      const was = lane.kind === "store" ? "store" : manner(run.states[Math.max(number - 1, 0)], lane.name).is;
      rails.set(was, `${rails.get(was) ?? ""}M${x(lane)} ${before}V${middle(index)}`);
      if (index === to) {
        const is = lane.kind === "store" ? "store" : manner(run.states[number], lane.name).is;
        rails.set(is, `${rails.get(is) ?? ""}M${x(lane)} ${middle(index)}v${number < total() ? rowHeight : 0}`);
      }
    }
    const group = draw("g", {class: `lane ${lane.kind}`}, ...[...rails].map(([how, d]) => draw("path", {class: `rail ${how}`, d})));
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
      const label = draw("text", {class: "gap", x: 4, y: tops[index] - 7}, `${folds[index] ? "\u22ee folded: " : ""}${seconds(BigInt(gapOf[index]))} later`);
      parts.push(draw("path", {class: `gap ${folds[index] ? "fold" : ""}`, d: `M0 ${tops[index] - 2}H${seen.length * laneWidth}`}), label);
    }
    if (!step) continue;
    const own = laneOf.get(step.process);
    const group = draw("g", {class: classesOf(number, dims && !dims.has(number)), "data-step": number});
    tint(group, own);
    group.append(...arrowsOf(step).flatMap(each => arrow(each, own, y, x)));
    if (x(own) !== undefined) {
      const place = `translate(${x(own)} ${y})`;
      const shape = isBroken(number) ? draw("rect", {class: "node", x: -9, y: -9, width: 18, height: 18, rx: 3})
        : step.fault ? draw("rect", {class: "node", x: -8, y: -8, width: 16, height: 16, rx: 2, transform: "rotate(45)"})
        : draw("circle", {class: "node", r: 8.5});
      const name = isBroken(number) ? "cross" : step.kind;
      group.append(draw("g", {transform: place}, shape, glyph(name, {transform: "translate(-5.6 -5.6) scale(.7)"})));
      const token = tokens(step).join(", ");
      if (token && laneWidth > 40) {
        const most = Math.max(4, Math.floor(laneWidth / 6));
        group.append(draw("text", {class: "token", x: x(own), y: y - 12, "text-anchor": "middle"}, token.slice(0, most)));
      }
    }
    parts.push(group);
  }
  return parts;
}

// --- the window on the rows --------------------------------------------------------------------

const drawn = new Map();  // number -> its element

function place(at) {  // the first row that ends below
  let [low, high] = [0, tops.length - 1];
  while (low < high) {
    const half = (low + high) >> 1;
    if (tops[half] + rowHeight < at) low = half + 1;
    else high = half;
  }
  return low;
}

function render(isNew = false) {
  const top = scroller.scrollTop;
  const from = view.printing ? 0 : Math.max(place(top) - 4, 0);
  const to = view.printing ? shown.length - 1 : Math.min(place(top + scroller.clientHeight) + 4, shown.length - 1);
  if (isNew) {
    for (const item of drawn.values()) item.remove();
    drawn.clear();
  }
  const dims = view.causes && chosen > 0 ? past(chosen) : null;
  const wanted = new Set(shown.slice(from, to + 1));
  for (const [number, item] of drawn) {
    if (wanted.has(number)) continue;
    item.remove();
    drawn.delete(number);
  }
  for (const number of wanted) {
    let item = drawn.get(number);
    if (!item) {
      drawn.set(number, item = row(number));
      item.style.top = `${tops[rowOf.get(number)]}px`;
      item.style.height = `${rowHeight}px`;
      rows.append(item);
    }
    item.className = "step " + classesOf(number, dims && !dims.has(number));
    item.setAttribute("aria-selected", String(number === chosen));
  }
  canvas.replaceChildren(...picture(from, to, dims));
}

const says = new Map();

function heads() {
  const seen = visible();
  const focused = document.activeElement?.dataset?.lane;
  says.clear();
  names.replaceChildren(...seen.map((lane, index) => {
    const word = make("span", "says");
    says.set(lane, word);
    const head = button(`${legible(lane.name)}, ${lane.kind === "store" ? "what processes share" : lane.kind}; drag it, or Shift and an arrow, to move it; h hides it`,
      () => {}, make("span", "text", tell(lane.name, 40)), word);
    head.className = `name ${lane.kind}`;
    head.dataset.lane = lanes.indexOf(lane);
    head.style.left = `${index * laneWidth}px`;
    head.style.width = `${laneWidth}px`;
    tint(head, lane);
    return head;
  }));
  if (view.hidden.size) {
    names.append(...[...view.hidden].map(lane => {
      const chip = button(`Show ${legible(lane.name)} again`, () => { view.hidden.delete(lane); refresh(); }, `+ ${tell(lane.name, 20)}`);
      chip.className = "chip";
      return chip;
    }));
  }
  if (focused !== undefined) names.querySelector(`[data-lane="${focused}"]`)?.focus();
}

function stand() {
  for (const [lane, word] of says) {
    const how = lane.kind === "store" ? {is: "plain", says: ""} : manner(run.states[chosen], lane.name);
    word.textContent = tell(how.says, 60);
    word.className = `says ${how.is}`;
  }
}

function refresh() {  // after anything but the chosen step has changed
  const count = visible().length;
  const wide = view.printing ? 420 : listed.clientWidth;
  laneWidth = Math.floor(Math.max(18, Math.min(96, wide * (wide < 560 ? .38 : .52) / Math.max(count, 1))));
  listed.classList.toggle("narrow", laneWidth < 58);
  listed.style.setProperty("--room", `${laneWidth * count}px`);
  layout();
  heads();
  rows.style.height = `${height + 8}px`;
  const {first, last, of} = Object.fromEntries([...trace.get("window") ?? []].map(([key, each]) => [key, grouped(Number(each.text))]));
  const hiding = total() + 1 - shown.length;
  notice.textContent = [of && `Of ${of} steps, this page holds ${first} to ${last}, around the violation; the trace itself has them all.`,
    hiding > 0 && `${grouped(hiding)} steps are ${view.printing ? "not printed" : "hidden"}.`,
    run.misfit && `The patch of step ${told(run.misfit)} does not fit; from there on the state is not known.`].filter(Boolean).join(" ");
  render(true);
  stand();
}

function reveal(number) {
  const index = rowOf.get(number);
  if (index === undefined) return;
  const [top, bottom] = [tops[index] - 30, tops[index] + rowHeight + 30 + names.offsetHeight];
  const [above, below] = [scroller.scrollTop - top, bottom - scroller.scrollTop - scroller.clientHeight];
  if (Math.max(above, below) > 4 * rowHeight) scroller.scrollTop = top - scroller.clientHeight / 2;
  else if (above > 0) scroller.scrollTop = top;
  else if (below > 0) scroller.scrollTop += below;
}

let isWaiting = false;
scroller.addEventListener("scroll", () => {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    render();
  });
});

rows.addEventListener("click", event => {
  const item = event.target.closest(".step");
  if (item) choose(Number(item.id.slice(5)), false);
});

function move(lane, by) {
  const seen = visible();
  const other = seen[seen.indexOf(lane) + by];
  if (!other) return;
  lanes.splice(lanes.indexOf(lane), 1);
  lanes.splice(lanes.indexOf(other) + (by > 0 ? 1 : 0), 0, lane);
  refresh();
  names.querySelector(`[data-lane="${lanes.indexOf(lane)}"]`)?.focus();
}

function hide(lane) {
  if (!lane || visible().length < 2) return;
  view.hidden.add(lane);
  refresh();
}

names.addEventListener("pointerdown", event => {
  const head = event.target.closest(".name");
  if (!head) return;
  const lane = lanes[head.dataset.lane];
  const start = event.clientX;
  const drag = moved => head.style.setProperty("translate", `${moved.clientX - start}px`);
  const drop = moved => {
    removeEventListener("pointermove", drag);
    head.style.removeProperty("translate");
    const by = Math.round((moved.clientX - start) / laneWidth);
    for (let left = Math.abs(by); left--;) move(lane, Math.sign(by));
  };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", drop, {once: true});
});
"""
