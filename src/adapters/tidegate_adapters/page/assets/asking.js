// What the application says, asked for again and again while somebody looks. Whoever draws it registers. What narrows it
// down, and whose story is open, stands in the address.

const PAUSE_MS = 1500;
const AWAY_MS = 15000; // where nobody looks
const drawers = [];
export const observe = draw => drawers.push(draw);
export const view = {shown: undefined, story: undefined, trouble: ""};

export async function ask(path, sent) {
  const how = sent && {
    method: "POST",
    headers: {"Content-Type": "application/json", "X-Tidegate": "page"},
    body: JSON.stringify(sent)
  };
  const answer = await fetch(path, how);
  if (answer.status === 401) location.reload(); // the token was changed
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

export const address = () => new URLSearchParams(location.hash.slice(1));

export function setAddress(name, value) {
  const found = address();
  if (value) found.set(name, value);
  else found.delete(name);
  history.replaceState(null, "", `#${found}`);
  return look();
}

let waiting = 0;
let turn = 0;
export async function look() {
  clearTimeout(waiting);
  const mine = ++turn; // where somebody has asked for something else since, this answer is of no use
  const found = address();
  const key = found.get("story");
  found.delete("story");
  try {
    const [shown, story] = await Promise.all([
      ask(`state?${found}`),
      key && ask(`story?${new URLSearchParams({key})}`).catch(error => ({trouble: error.message}))
    ]);
    if (mine !== turn) return;
    Object.assign(view, {shown, story, trouble: ""});
  } catch (error) {
    if (mine !== turn) return;
    view.trouble = error instanceof TypeError ? "The application does not answer." : error.message;
  }
  for (const draw of drawers) draw();
  waiting = setTimeout(look, document.hidden ? AWAY_MS : PAUSE_MS);
}
document.addEventListener("visibilitychange", () => !document.hidden && look());
