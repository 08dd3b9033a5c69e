// The story of the chosen row, as a time line.

import {observe, view} from "./asking.js";
import {byId, make} from "./dom.js";
import {drawLanes} from "./spans.js";
import {keepActions, say} from "./tables.js";
import {legible} from "./values.js";

const [heading, doing, told, beside] = ["heading", "doing", "told", "beside"].map(byId);
let drawn = "";

const lines = text => text.split("\n").map(legible).join("\n");

export const factsOf = facts =>
  facts.map(([term, fact]) => make("div", "", make("dt", "", legible(term)), make("dd", "", legible(fact))));

function moment({at, what, more, tone}) {
  const item = make("li", tone, make("span", "at", legible(at)), make("span", "what", legible(what)));
  if (more) item.append(make("span", "more", lines(more)));
  return item;
}

export function drawStory(act) {
  observe(() => {
    const story = view.story;
    say(heading, legible(story ? (story.title ?? "There is no story") : "No row is chosen"));
    keepActions(doing, story?.actions ?? [], act);
    drawLanes(beside, story?.lanes);
    const text = JSON.stringify([story?.facts, story?.moments, story?.trouble]);
    if (text === drawn) return;
    drawn = text;
    told.replaceChildren();
    if (story?.trouble) told.append(make("p", "bad", legible(story.trouble)));
    if (story?.moments)
      told.append(make("dl", "facts", ...factsOf(story.facts)), make("ol", "story", ...story.moments.map(moment)));
  });
}
