// Finds and makes elements. What a trace says is only ever set as text.

export const byId = id => document.getElementById(id);

export const controls = byId("controls");
export const help = byId("help");
export const message = byId("message");
export const query = byId("query");
export const byProcess = byId("by-process");
export const byKind = byId("by-kind");
export const byKey = byId("by-key");
export const whichRun = byId("runs");
export const strips = byId("strips");
export const listed = byId("listed");
export const notice = byId("notice");
export const scroller = byId("scroller");
export const names = byId("names");
export const rows = byId("rows");
export const canvas = byId("canvas");
export const tabs = byId("tabs");
export const detail = byId("detail");
export const compared = byId("compared");
export const reason = byId("reason");

export function make(tag, classes, ...inner) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...inner); // strings become text
  return element;
}

export const tint = (element, lane) => element.style.setProperty("--tone", lane.tone);
export const setPressed = (element, is) => element.setAttribute("aria-pressed", String(Boolean(is)));

const INK = canvas.namespaceURI;

export function draw(tag, given, ...inner) {
  const element = document.createElementNS(INK, tag);
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, value);
  element.append(...inner);
  return element;
}

export function glyph(name, given = {}) {
  const sign = byId(`sign-${name}`) ?? byId("sign-other");
  return draw("path", {d: sign.getAttribute("d"), class: "glyph", ...given});
}

export const icon = name => draw("svg", {viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true"}, glyph(name));

export function button(label, action, ...inner) {
  const made = make("button", "", ...(inner.length ? inner : [label]));
  made.type = "button";
  made.title = label;
  if (inner.length) made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}
