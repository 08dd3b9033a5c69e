// Printing, the address, and the start. The step stands in the address, so a link can be sent; nothing else is kept
// anywhere.

import {tab} from "./controls.js";
import {icon} from "./dom.js";
import {detail, strips} from "./elements.js";
import {drawOverview} from "./overview.js";
import {base, broken, main, runs, verdict} from "./runs.js";
import {redraw, reveal} from "./timeline.js";
import {address, choose, chosen, notify, observe, switchTo, total, view} from "./view.js";

// --- the size of the window, and of the paper --------------------------------------------------

let width = 0;
function fit() {
  width = strips.clientWidth;
  drawOverview();
  redraw();
  if (!view.printing) reveal(chosen);
}
new ResizeObserver(() => {
  if (!view.printing && strips.clientWidth !== width) fit();
}).observe(strips);

function setPrinting(isPrinting) {
  if (view.printing === isPrinting) return;
  view.printing = isPrinting;
  document.body.classList.toggle("printing", isPrinting);
  fit();
}
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
matchMedia("print").addEventListener("change", event => setPrinting(event.matches));

// --- the address -------------------------------------------------------------------------------

let pending = 0;
observe({
  step() {
    clearTimeout(pending); // browsers slow down who changes the address too often
    pending = setTimeout(() => history.replaceState(null, "", address()), 150);
  }
});

function goToAddress(isFirst) {
  const found = /^#(?:(original|passing):)?(\d+)$/.exec(location.hash);
  if (!found && !isFirst) return;
  switchTo(runs.find(each => each.name === found?.[1]) ?? main);
  choose(found ? Number(found[2]) - base : broken ? Number(verdict.get("step")?.text ?? 0) - base || total() : 0);
}
addEventListener("hashchange", () => goToAddress(false));

// --- the start ---------------------------------------------------------------------------------

document.body.classList.add("drawn");
document.body.classList.toggle("clean", !broken);
for (const place of document.querySelectorAll("[data-sign]")) place.prepend(icon(place.dataset.sign));
tab(detail);
notify("run");
goToAddress(true);
fit();
