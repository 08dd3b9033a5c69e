// The rows and their picture in a window that scrolls, and the heads of the lanes. Only the rows in sight are elements, so
// a run of thousands of steps scrolls as one of ten.

import {picture} from "./diagram.js";
import {button, make, tint} from "./dom.js";
import {canvas, listed, names, notice, rows, scroller} from "./elements.js";
import {lanes} from "./lanes.js";
import {height, laneWidth, layout, rowHeight, rowOf, shown, tops, visible} from "./layout.js";
import {classesOf, row} from "./rows.js";
import {statusOf, stepNumber, trace} from "./runs.js";
import {grouped, legible, short} from "./values.js";
import {causesOf, choose, chosen, observe, run, total, view} from "./view.js";

const drawn = new Map(); // number -> its element

function place(at) {
  // the first row that ends below
  let [low, high] = [0, tops.length - 1];
  while (low < high) {
    const half = (low + high) >> 1;
    if (tops[half] + rowHeight < at) low = half + 1;
    else high = half;
  }
  return low;
}

export function drawRows(isNew = false) {
  const top = scroller.scrollTop;
  const from = view.printing ? 0 : Math.max(place(top) - 4, 0);
  const to = view.printing ? shown.length - 1 : Math.min(place(top + scroller.clientHeight) + 4, shown.length - 1);
  if (isNew) {
    for (const item of drawn.values()) item.remove();
    drawn.clear();
  }
  const dims = view.causes && chosen > 0 ? causesOf(chosen) : null;
  const wanted = new Set(shown.slice(from, to + 1));
  for (const [number, item] of drawn) {
    if (wanted.has(number)) continue;
    item.remove();
    drawn.delete(number);
  }
  for (const number of wanted) {
    let item = drawn.get(number);
    if (!item) {
      item = row(number);
      drawn.set(number, item);
      item.style.top = `${tops[rowOf.get(number)]}px`;
      item.style.height = `${rowHeight}px`;
      rows.append(item);
    }
    item.className = `step ${classesOf(number, dims && !dims.has(number))}`;
    item.setAttribute("aria-selected", String(number === chosen));
  }
  canvas.replaceChildren(...picture(from, to, dims));
}

const says = new Map();

function drawHeads() {
  const seen = visible();
  const focused = document.activeElement?.dataset?.lane;
  says.clear();
  names.replaceChildren(
    ...seen.map((lane, index) => {
      const word = make("span", "says");
      says.set(lane, word);
      const head = button(
        `${legible(lane.name)}, ${lane.kind === "store" ? "what processes share" : lane.kind}; drag it, or Shift and an arrow, to move it; h hides it`,
        () => {},
        make("span", "text", short(lane.name, 40)),
        word
      );
      head.className = `name ${lane.kind}`;
      head.dataset.lane = lanes.indexOf(lane);
      head.style.left = `${index * laneWidth}px`;
      head.style.width = `${laneWidth}px`;
      tint(head, lane);
      return head;
    })
  );
  if (view.hidden.size) {
    names.append(
      ...[...view.hidden].map(lane => {
        const chip = button(
          `Show ${legible(lane.name)} again`,
          () => {
            view.hidden.delete(lane);
            redraw();
          },
          `+ ${short(lane.name, 20)}`
        );
        chip.className = "chip";
        return chip;
      })
    );
  }
  if (focused !== undefined) names.querySelector(`[data-lane="${focused}"]`)?.focus();
}

function updateHeads() {
  for (const [lane, word] of says) {
    const how = lane.kind === "store" ? {is: "plain", says: ""} : statusOf(run.states[chosen], lane.name);
    word.textContent = short(how.says, 60);
    word.className = `says ${how.is}`;
  }
}

export function redraw() {
  // after anything but the chosen step has changed
  layout();
  listed.classList.toggle("narrow", laneWidth < 58);
  listed.style.setProperty("--room", `${laneWidth * visible().length}px`);
  drawHeads();
  rows.style.height = `${height + 8}px`;
  const {first, last, of} = Object.fromEntries(
    [...(trace.get("window") ?? [])].map(([key, each]) => [key, grouped(Number(each.text))])
  );
  const hiding = total() + 1 - shown.length;
  notice.textContent = [
    of && `Of ${of} steps, this page holds ${first} to ${last}, around the violation; the trace itself has them all.`,
    hiding > 0 && `${grouped(hiding)} steps are ${view.printing ? "not printed" : "hidden"}.`,
    run.misfit && `The patch of step ${stepNumber(run.misfit)} does not fit; from there on the state is not known.`
  ]
    .filter(Boolean)
    .join(" ");
  drawRows(true);
  updateHeads();
}

export function reveal(number) {
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
    drawRows();
  });
});

rows.addEventListener("click", event => {
  const item = event.target.closest(".step");
  if (item) choose(Number(item.id.slice(5)), false);
});

export function move(lane, by) {
  const seen = visible();
  const other = seen[seen.indexOf(lane) + by];
  if (!other) return;
  lanes.splice(lanes.indexOf(lane), 1);
  lanes.splice(lanes.indexOf(other) + (by > 0 ? 1 : 0), 0, lane);
  redraw();
  names.querySelector(`[data-lane="${lanes.indexOf(lane)}"]`)?.focus();
}

export function hide(lane) {
  if (!lane || visible().length < 2) return;
  view.hidden.add(lane);
  redraw();
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
    for (let left = Math.abs(by); left--; ) move(lane, Math.sign(by));
  };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", drop, {once: true});
});

observe({
  step(scroll) {
    rows.setAttribute("aria-activedescendant", `step-${chosen}`);
    if (scroll) reveal(chosen);
    drawRows();
    updateHeads();
  },
  run: redraw,
  watches: redraw
});
