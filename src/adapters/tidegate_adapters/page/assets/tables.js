// Tables that stay as they are but for what has changed: rows keep their elements, and with them focus and selection.

import {address, observe, setAddress, view} from "./asking.js";
import {button, byId, make} from "./dom.js";
import {drawLanes} from "./spans.js";
import {legible, short} from "./values.js";

const CELL = 240; // characters of a cell; the rest stands in its title
const SHORT_CELL = 24; // that stay on one line
const lists = byId("lists");

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Lets the children be those of the items, in this order: one is made where there is none with that key.
export function keep(parent, items, born, update) {
  const there = new Map([...parent.children].map(each => [each.dataset.key, each]));
  const wanted = new Set(items.map(each => each.key));
  for (const [key, element] of there) if (!wanted.has(key)) element.remove();
  items.forEach((item, at) => {
    const element = there.get(item.key) ?? born(item);
    element.dataset.key = item.key;
    update(element, item);
    if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] ?? null);
  });
}

// Buttons of actions; `act` is called with what an action is by then.
export function keepActions(parent, actions, act) {
  keep(
    parent,
    actions.map(action => ({key: action.name, action})),
    () => {
      const made = button("", () => act(made.action));
      return made;
    },
    (element, {action}) => {
      element.action = action;
      say(element, action.label);
      setAttribute(element, "title", action.key ? `${action.label} (${action.key})` : action.label);
    }
  );
}

// --- rows --------------------------------------------------------------------------------------

export const rows = () => [...lists.querySelectorAll("tbody tr")];
export const focusedRow = () => document.activeElement?.closest?.("tbody tr");
export const isOpen = item => Boolean(item.story) && address().get("story") === item.story;
export const open = key => setAddress("story", key);

// One row can be reached with Tab, and what is in it; arrows lead to the others.
function setReachable(chosen) {
  for (const row of rows())
    for (const each of [row, ...row.querySelectorAll("button")]) each.tabIndex = row === chosen ? 0 : -1;
}

export function goTo(row) {
  if (!row) return;
  setReachable(row);
  row.focus();
  row.scrollIntoView({block: "nearest"});
}

lists.addEventListener("focusin", event => setReachable(event.target.closest("tbody tr") ?? rows()[0]));

function cellOf(row, at, content, item) {
  const cell = row.children[at] ?? row.appendChild(make("td"));
  const isLink = at === 0 && Boolean(item.story);
  if (isLink && !cell.firstElementChild) {
    cell.append(button("", () => open(row.item.story)));
    cell.firstElementChild.className = "link";
  }
  const place = isLink ? cell.firstElementChild : cell;
  say(place, short(content.text, CELL));
  setAttribute(place, "title", legible(content.more || (content.text.length > CELL ? content.text : "")));
  cell.className = content.text.length > SHORT_CELL ? content.tone : `${content.tone} short`;
}

function drawRow(row, item, act) {
  row.item = item;
  item.cells.forEach((content, at) => {
    cellOf(row, at, content, item);
  });
  const last = row.children[item.cells.length] ?? row.appendChild(make("td"));
  keepActions(last, item.actions, act);
  setAttribute(row, "aria-current", String(isOpen(item)));
}

// --- tables ------------------------------------------------------------------------------------

function bornTable({table}) {
  const title = make("h2", "", make("span", "name"), make("span", "note"), make("span", "group"));
  title.id = `table-${table.name}`;
  const head = make("thead", "", make("tr"));
  const made = make("section", "", title, make("div", "spans"), make("table", "", head, make("tbody")));
  made.setAttribute("aria-labelledby", title.id);
  return made;
}

function drawTable(section, {table}, act) {
  say(section.querySelector(".name"), table.title);
  say(section.querySelector(".note"), legible(table.rows.length ? table.note : table.empty));
  keepActions(section.querySelector("h2 .group"), table.actions, act);
  drawLanes(section.querySelector(".spans"), table.lanes);
  keep(
    section.querySelector("thead tr"),
    [...table.columns, ""].map((text, at) => ({key: String(at), text})),
    () => Object.assign(make("th"), {scope: "col"}),
    (element, item) => say(element, item.text)
  );
  keep(
    section.querySelector("tbody"),
    table.rows,
    () => make("tr"),
    (row, item) => drawRow(row, item, act)
  );
}

export function drawTables(act) {
  observe(() => {
    if (!view.shown) return;
    const [before, at] = [focusedRow(), rows().indexOf(focusedRow())];
    keep(
      lists,
      view.shown.tables.map(table => ({key: table.name, table})),
      bornTable,
      (section, item) => drawTable(section, item, act)
    );
    if (before && !before.isConnected) goTo(rows()[Math.min(at, rows().length - 1)]);
    else setReachable(focusedRow() ?? rows().find(row => isOpen(row.item)) ?? rows()[0]);
  });
}
