// Does what a button says, and tells what was done.

import {ask, look} from "./asking.js";
import {byId} from "./dom.js";
import {say} from "./tables.js";
import {legible} from "./values.js";

const [sure, question, message] = ["sure", "question", "message"].map(byId);

const agreed = text =>
  new Promise(resolve => {
    say(question, legible(text));
    sure.returnValue = "";
    sure.addEventListener("close", () => resolve(sure.returnValue === "yes"), {once: true});
    sure.showModal();
  });

export async function act(action) {
  if (action.asks && !(await agreed(action.asks))) return;
  try {
    const {done} = await ask("act", {action: action.name, given: action.given});
    say(message, legible(done));
  } catch (error) {
    say(message, legible(error.message));
  }
  await look();
}
