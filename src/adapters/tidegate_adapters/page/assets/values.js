// Reads and shows values. Objects become Maps, for a browser's own JSON reorders keys that look like numbers and rounds
// large numbers. What cannot be seen of a text, or turns its direction, is written out.

export const SHORT = 160; // in the lanes
export const LONG = 400; // in the panel
export const LINE = 72;
export const SIGNS = {add: "+", remove: "\u2212", replace: "~"};
export const WORDS = {add: "added", remove: "removed", replace: "replaced"};

// A number, bytes or an instant, as it is shown.
export class Leaf {
  constructor(text) {
    this.text = text;
  }
}

// JSON as it is written: objects become Maps, which keep the order of all keys; numbers keep their digits.
export function parsed(json) {
  let at = 0;
  function skip() {
    for (let code = json.charCodeAt(at); code < 33 || code === 44 || code === 58; code = json.charCodeAt(at)) at++;
    return json[at];
  }
  function text() {
    const start = at;
    at = json.indexOf('"', start + 1) + 1;
    const plain = json.slice(start + 1, at - 1);
    if (!plain.includes("\\")) return plain;
    for (at = start + 1; json[at] !== '"'; at++) if (json[at] === "\\") at++;
    return JSON.parse(json.slice(start, ++at));
  }
  function value() {
    const first = skip();
    if (first === "{") {
      const map = new Map();
      for (at++; skip() !== "}"; ) map.set(text(), value());
      at++;
      return map;
    }
    if (first === "[") {
      const list = [];
      for (at++; skip() !== "]"; ) list.push(value());
      at++;
      return list;
    }
    if (first === '"') return text();
    const start = at;
    for (let code = json.charCodeAt(at); code > 32 && code !== 44 && code !== 93 && code !== 125; )
      code = json.charCodeAt(++at);
    const word = json.slice(start, at);
    return "tfn".includes(first) ? JSON.parse(word) : new Leaf(word);
  }
  return value();
}

// The value that plain JSON stands for: tags are taken off, as tidegate.model.patches puts them on.
export function opened(json) {
  if (Array.isArray(json)) return json.map(opened);
  if (!(json instanceof Map)) return json;
  const [tag, held] = json.size === 1 ? [...json][0] : [];
  if (tag === "$bytes") return new Leaf(`${held.length / 2} bytes 0x${held}`);
  if (tag === "$instant") return new Leaf(`${seconds(BigInt(held[0].text))}@${legible(held[1])}`);
  if (tag === "$foreign") return new Leaf(`${legible(held[0])} 0x${held[1]}`);
  if (tag === "$float") return new Leaf({"7ff0000000000000": "inf", fff0000000000000: "-inf"}[held] || "nan");
  return new Map([...(tag === "$document" ? held : json)].map(([key, item]) => [key, opened(item)]));
}

export function seconds(at) {
  const size = at < 0n ? -at : at;
  for (const [unit, name] of [
    [1000000n, "s"],
    [1000n, "ms"]
  ]) {
    if (at % unit && size < unit) continue;
    const rest = String(size % unit)
      .padStart(String(unit).length - 1, "0")
      .replace(/0+$/, "");
    return `${at < 0n ? "-" : ""}${size / unit}${rest && "."}${rest} ${name}`;
  }
  return `${at} us`;
}

export function show(value) {
  if (value instanceof Map) return `{${[...value].map(([key, item]) => `${legible(key)}: ${show(item)}`).join(", ")}}`;
  if (Array.isArray(value)) return `[${value.map(show).join(", ")}]`;
  if (value instanceof Leaf) return value.text;
  if (typeof value !== "string") return String(value);
  return `"${legible(value.replace(/["\\]/g, "\\$&"))}"`;
}

// Where a process stands is a sentence already; quotes around it would only need quotes inside it.
export function spoken(pointer, value) {
  return pointer.startsWith("/processes/") && typeof value === "string" ? legible(value) : show(value);
}

export function legible(text) {
  return text.replace(/[\p{C}\p{Z}]/gu, char => {
    const code = char.codePointAt(0).toString(16);
    return char === " " ? char : code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

export function cut(text, most = SHORT) {
  return text.length <= most ? text : `${whole(text.slice(0, most))}\u2026 (${sized(text)})`;
}

export const short = (text, most) => cut(legible(text), most);
export const whole = text => text.replace(/[\ud800-\udbff]$/, "");
export const grouped = number => number.toLocaleString("en");
export const sized = text => `${grouped([...text].length)} characters`;

const unescaped = step => (step.includes("~") ? step.replace(/~1/g, "/").replace(/~0/g, "~") : step);
export const partsOf = pointer => pointer.split("/").slice(1).map(unescaped);
export const pointerTo = parts =>
  parts.map(each => `/${String(each).replace(/~/g, "~0").replace(/\//g, "~1")}`).join("");

export const inside = (value, key) =>
  value instanceof Map ? value.get(key) : Array.isArray(value) ? value[key] : undefined;

// The value after one operation of a patch; what is not touched is shared with the value before.
export function applied(value, path, op, depth = 0) {
  if (depth === path.length) return op.value;
  const step = path[depth];
  const isLast = depth === path.length - 1;
  const after = value instanceof Map ? new Map(value) : [...value];
  const inner = isLast ? op.value : applied(inside(value, step), path, op, depth + 1);
  if (after instanceof Map) {
    if (op.kind === "remove" && isLast) after.delete(step);
    else after.set(step, inner);
  } else if (!isLast || op.kind === "replace") after[step] = inner;
  else if (op.kind === "add") after.splice(step, 0, inner);
  else after.splice(step, 1);
  return after;
}
