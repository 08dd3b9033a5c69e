// The steps of the run that have what the reader searches for.

import {message, query} from "./elements.js";
import {grouped, show} from "./values.js";
import {observe, run, view} from "./view.js";

function searchText(step) {
  step.searchText ??= [
    step.process,
    step.event,
    step.fault.replaceAll("_", " "),
    step.src,
    ...step.effects.map(effect => `${effect.what} ${effect.on.join("/")} ${effect.reply}`),
    ...step.ops.map(op => `${op.path} ${op.value === undefined ? "" : show(op.value)}`)
  ]
    .join("\n")
    .toLowerCase();
  return step.searchText;
}

export function search() {
  view.query = query.value.toLowerCase();
  view.hits = new Set();
  if (view.query)
    run.steps.forEach((step, index) => {
      if (searchText(step).includes(view.query)) view.hits.add(index + 1);
    });
  message.textContent = view.query ? `${grouped(view.hits.size)} ${view.hits.size === 1 ? "step" : "steps"}` : "";
}

observe({run: search});
