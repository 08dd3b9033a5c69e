// Finds and makes elements. What a trace or a server says is only ever set as text.

export const byId = id => document.getElementById(id);

export function make(tag, classes, ...inner) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...inner); // strings become text
  return element;
}

export const tint = (element, lane) => element.style.setProperty("--tone", lane.tone);
export const setPressed = (element, is) => element.setAttribute("aria-pressed", String(Boolean(is)));

const INK = byId("ink").namespaceURI;

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
