// The head, the filters, the keys, and the start.

import {act} from "./acting.js";
import {address, look, observe, setAddress, view} from "./asking.js";
import {byId, make} from "./dom.js";
import {drawStory, factsOf} from "./story.js";
import {drawTables, focusedRow, goTo, keep, open, rows, say} from "./tables.js";
import {legible} from "./values.js";

const [verdict, title, facts, narrowing, help] = ["verdict", "title", "facts", "filters", "help"].map(byId);

// --- the head ----------------------------------------------------------------------------------

let drawnFacts = "";
observe(() => {
  document.body.classList.toggle("stale", Boolean(view.trouble));
  document.body.classList.toggle("clean", !view.trouble && view.shown?.is_well);
  say(verdict, legible(view.trouble || view.shown.verdict));
  if (!view.shown) return;
  say(title, legible(view.shown.title));
  document.title = legible(`${view.shown.title} (tidegate)`);
  const text = JSON.stringify(view.shown.facts);
  if (text !== drawnFacts) facts.replaceChildren(...factsOf(view.shown.facts));
  drawnFacts = text;
});

// --- filters -----------------------------------------------------------------------------------

let typing = 0;
function bornFilter({filter}) {
  const made = make(filter.choices.length ? "select" : "input");
  made.setAttribute("aria-label", filter.label);
  if (!filter.choices.length) Object.assign(made, {type: "search", placeholder: filter.label});
  made.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(setAddress, filter.choices.length ? 0 : 300, filter.name, made.value);
  });
  return made;
}

function drawFilter(element, {filter}) {
  if (filter.choices.length)
    keep(
      element,
      [{value: "", label: filter.label}, ...filter.choices].map(each => ({key: each.value, ...each})),
      each => make("option", "", legible(each.label)),
      (option, each) => {
        option.value = each.value;
      }
    );
  if (element !== document.activeElement) element.value = address().get(filter.name) ?? "";
}

observe(() => {
  if (view.shown)
    keep(
      narrowing,
      view.shown.filters.map(filter => ({key: filter.name, filter})),
      bornFilter,
      drawFilter
    );
});

// --- keys --------------------------------------------------------------------------------------

function move(by) {
  const all = rows();
  const at = all.indexOf(focusedRow());
  goTo(all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)]);
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  Home: () => goTo(rows()[0]),
  End: () => goTo(rows().at(-1)),
  "/": () => narrowing.firstElementChild?.focus(),
  "?": () => help.showModal()
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return false;
  if (event.key === "Escape") {
    if (focusedRow()) open("");
    else move(0);
    return true;
  }
  if (event.target.closest("input, select")) return false;
  const row = focusedRow();
  if (event.key === "Enter") {
    if (!row?.item.story || event.target !== row) return false;
    open(row.item.story);
    return true;
  }
  const action = row?.item.actions.find(each => each.key === event.key);
  if (action) act(action);
  else if (KEYS[event.key]) KEYS[event.key]();
  else return false;
  return true;
}
addEventListener("keydown", event => pressed(event) && event.preventDefault());

// --- the start ---------------------------------------------------------------------------------

byId("lists").addEventListener("click", event => {
  const row = event.target.closest("tbody tr");
  if (!row || event.target.closest("button")) return;
  goTo(row);
  if (row.item.story) open(row.item.story);
});
byId("keys").addEventListener("click", () => help.showModal());
addEventListener("hashchange", look);
drawTables(act);
drawStory(act);
document.body.classList.add("drawn");
look();
