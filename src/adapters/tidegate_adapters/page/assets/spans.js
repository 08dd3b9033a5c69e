// What went on, as bars in lanes of one time; lanes that are indented make a tree.

import {setAddress} from "./asking.js";
import {button, make} from "./dom.js";
import {legible} from "./values.js";

// The lanes are made anew where they are others, and whatever had the focus has it again.
export function drawLanes(place, lanes) {
  const text = lanes ? JSON.stringify(lanes) : "";
  if (place.drawn === text) return;
  const focused = place.contains(document.activeElement) && document.activeElement.dataset.lane;
  place.drawn = text;
  place.replaceChildren();
  if (!lanes) return;
  const list = make("ol", "lanes", ...lanes.lanes.map(lane => laneOf(lane, lanes)));
  list.setAttribute("aria-label", legible(lanes.label));
  const ends = make("p", "ends", ...lanes.ends.map(each => make("span", "", legible(each))));
  ends.setAttribute("aria-hidden", "true");
  place.append(list, ends);
  if (focused) place.querySelector(`[data-lane="${CSS.escape(focused)}"]`)?.focus();
}

function laneOf(lane, {begin, end}) {
  const label = lane.story ? button(lane.label, () => setAddress("story", lane.story)) : make("span");
  label.textContent = legible(lane.label);
  label.title = label.textContent;
  if (lane.story) {
    label.className = "link";
    label.dataset.lane = lane.key;
  }
  const name = make("span", "lane-name", label);
  if (lane.more) name.append(make("span", lane.tone, legible(lane.more)));
  name.style.setProperty("--depth", lane.depth);
  const item = make(
    "li",
    "",
    name,
    make("span", "track", ...lane.spans.map(span => barOf(span, begin, end - begin || 1)))
  );
  if (lane.is_here) item.setAttribute("aria-current", "true");
  return item;
}

// Bars are for whoever points: what they tell stands in rows and labels, too.
function barOf(span, begin, time) {
  const bar = make("span", `bar ${span.tone}`);
  const percent = at => (Math.min(Math.max(at - begin, 0), time) / time) * 100;
  bar.style.setProperty("left", `${percent(span.begin)}%`);
  bar.style.setProperty("width", `${percent(span.end) - percent(span.begin)}%`);
  bar.title = legible(span.text);
  if (span.story) bar.addEventListener("click", () => setAddress("story", span.story));
  return bar;
}
