// A row for each step: its number, what was asked and answered, what changed.

import {make, tint} from "./dom.js";
import {laneOf} from "./lanes.js";
import {rowOf, shown} from "./layout.js";
import {BROKEN, faultOf, isRefused, isRoutine, laws, REACHED, splitEvent, stepNumber, truthsOf, twins} from "./runs.js";
import {cut, SIGNS, seconds, short, show, spoken} from "./values.js";
import {isBroken, run, view} from "./view.js";

function marked(text) {
  const at = view.query ? text.toLowerCase().indexOf(view.query) : -1;
  if (at < 0) return [text];
  return [
    text.slice(0, at),
    make("mark", "", text.slice(at, at + view.query.length)),
    ...marked(text.slice(at + view.query.length))
  ];
}

function brief(op) {
  const place = short(op.parts.slice(-2).join("/"), 60);
  if (op.kind === "remove") return `\u2212\u00a0${place}: ${cut(show(op.before), 80)}`;
  return `${SIGNS[op.kind]}\u00a0${place}: ${cut(spoken(op.path, op.value), 80)}`;
}

export function marks(number) {
  const step = run.steps[number - 1];
  const found = [];
  truthsOf(run).forEach((known, index) => {
    if (!number || known[number] === known[number - 1]) return;
    const name = short(laws[index].name);
    if (known[number] === BROKEN) found.unshift(make("span", "mark law", `\u00d7 breaks the law: ${name}`));
    if (known[number] === REACHED) found.push(make("span", "mark goal", `\u2605 reached: ${name}`));
  });
  if (step?.fault) found.push(make("span", "mark", `\u26a0\ufe0e fault: ${cut(faultOf(step), 60)}`));
  return found; // what is broken stands first, for a row may be cut
}

export function row(number) {
  const step = run.steps[number - 1];
  const also = twins.get(run.name + number);
  const note =
    view.time === "time" && step?.at != null
      ? seconds(BigInt(step.at))
      : also
        ? `${run.name === "original" ? "kept as" : "was"} ${also}`
        : "";
  const item = make("div", "step", make("span", "number", number ? stepNumber(number) : "", make("small", "", note)));
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
  const [what, reply] = splitEvent(step.event);
  const who = make("b", "who", short(step.process, 24));
  tint(who, laneOf.get(step.process));
  card.append(make("div", "line", who, make("span", "what", ...marked(cut(what)))));
  const news = step.ops.filter(op => !isRoutine(op) && !op.path.startsWith("/notes"));
  const more = make("div", "line more", ...marks(number));
  for (const op of news.slice(0, 2)) more.append(make("span", `news ${op.kind}`, ...marked(brief(op))));
  if (news.length > 2) more.append(make("span", "news", `and ${news.length - 2} more`));
  if (reply) more.append(make("span", isRefused(step) ? "reply refused" : "reply", "\u2192 ", ...marked(cut(reply))));
  card.append(more);
  item.setAttribute(
    "aria-label",
    [
      `Step ${stepNumber(number)}, ${short(step.process, 40)}: ${cut(what)}`,
      reply && `answered ${cut(reply)}`,
      ...marks(number).map(each => each.textContent.slice(2)),
      `${step.ops.length} changes`
    ]
      .filter(Boolean)
      .join("; ")
  );
  return item;
}

export function classesOf(number, dim) {
  const step = run.steps[number - 1];
  return [
    !step && "begin",
    step?.fault && "odd",
    isBroken(number) && "broken",
    dim && "dim",
    view.query && view.hits.has(number) && "hit"
  ]
    .filter(Boolean)
    .join(" ");
}
