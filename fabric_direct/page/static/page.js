// Keeps what is shown up to date: when the server says that something changed, and every ten seconds for the ages.
// Without scripts, the page loads itself again instead.
"use strict";
const note = document.getElementById("live");
const live = document.querySelectorAll("[data-live]");
const pause = document.createElement("button");
let paused = false;
let due = false;
let events = null;

function tell(text) {
  note.firstChild.textContent = text + " ";
}

function inUse(part) {
  const chosen = document.getSelection();
  const selects = chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  return selects || (part.contains(document.activeElement) && document.activeElement !== part);
}

async function refresh() {
  if (paused || due || document.hidden) return;
  due = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 401) {
      location.reload();
      return;
    }
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of live) {
      const now = page.getElementById(old.id);
      if (!now || inUse(old) || now.innerHTML === old.innerHTML) continue;
      old.className = now.className;
      old.replaceChildren(...now.childNodes);
    }
  } catch {
    tell("The server does not answer.");
  } finally {
    due = false;
  }
}

function show() {
  pause.textContent = paused ? "Go on" : "Pause";
  tell(paused ? "This page stays as it is." : "This page follows the site.");
}

// A page that nobody sees asks for nothing.
function follow() {
  if (document.hidden) {
    events?.close();
    return;
  }
  events = new EventSource("/events");
  events.addEventListener("operations", refresh);
  events.addEventListener("change", refresh);
  events.onerror = () => tell("The connection to the server is lost; it is tried again.");
  events.onopen = show;
}

if (note && live.length) {
  note.append("", pause);
  note.hidden = false;
  show();
  pause.addEventListener("click", () => {
    paused = !paused;
    show();
    refresh();
  });
  document.addEventListener("visibilitychange", follow);
  follow();
  setInterval(refresh, 10000);
}
