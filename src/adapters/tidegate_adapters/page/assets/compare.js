// Two runs side by side.

import {button, make} from "./dom.js";
import {compared} from "./elements.js";
import {base, breaks, faultOf, main, passing, runs, splitEvent, stepNumber, TITLES} from "./runs.js";
import {cut, short} from "./values.js";
import {choose, switchTo} from "./view.js";

export function compare(most = 200) {
  const other = runs.find(each => each.name === "passing");
  if (!other) {
    compared.replaceChildren(make("p", "soft", "This page holds no run that passes."));
    return;
  }
  const at = Number(passing.get("differs_at").text) - base;
  const side = (some, number) => {
    const step = some.steps[number - 1];
    if (!step) return make("td", "soft", number === some.steps.length + 1 ? "the end" : "");
    const [what, reply] = splitEvent(step.event);
    const go = button(
      `Go to step ${stepNumber(number)} of ${TITLES[some.name]}`,
      () => {
        switchTo(some);
        choose(number);
      },
      stepNumber(number)
    );
    const cell = make("td", step.fault ? "odd" : "", go, make("b", "", short(step.process, 24)), ` ${cut(what, 120)}`);
    if (reply) cell.append(make("div", "answer", `\u2192 ${cut(reply, 100)}`));
    if (step.fault) cell.append(make("span", "mark", faultOf(step)));
    if (some === main && breaks(main, number)) cell.append(make("span", "mark law", "\u00d7 breaks the law"));
    return cell;
  };
  const end = Math.max(main.steps.length, other.steps.length) + 1;
  const body = make("tbody", "");
  for (let number = Math.max(at, 1); number <= Math.min(end, at + most); number++) {
    const line = make("tr", number === at ? "differs" : "", side(main, number), side(other, number));
    body.append(line);
  }
  const head = make("thead", "", make("tr", "", make("th", "", "breaks the law"), make("th", "", "passes")));
  const parts = [
    make("h2", "", "The nearest run that passes"),
    make(
      "p",
      "soft",
      `${at > 1 ? `Steps 1 to ${stepNumber(at - 1)} are the same. ` : ""}Step ${stepNumber(at)} is the first different choice.`
    ),
    make("table", "", head, body)
  ];
  if (end > at + most) parts.push(button("Show more steps", () => compare(2 * most)));
  compared.replaceChildren(...parts);
}
