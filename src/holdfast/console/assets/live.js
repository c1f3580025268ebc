// Live regions: when something they are about has changed, the page is fetched again and they are made like it.
import { morph } from "./morph.js";

const APART_MS = 400;
const RETRY_MS = 2000;
const RETRY_MS_MAX = 30000;

const shown = document.getElementById("live-state");
const topics = new Set([...document.querySelectorAll("[data-live]")].flatMap((one) => one.dataset.live.split(" ")));
let source = null;
let retryMs = RETRY_MS;
let retryTimer;
let refreshing = false;
let asked = [];

function tell(state, words) {
  if (!shown) return;
  shown.classList.toggle("on", state === "on");
  shown.classList.toggle("off", state === "off");
  const said = shown.querySelector(".said");
  if (said.textContent !== words) said.textContent = words;
}

async function fetchOnce() {
  // So that a page nobody looks after does not keep its session from ending.
  const answer = await fetch(location.href, { headers: { accept: "text/html", "x-live": "1" } });
  if (answer.redirected && new URL(answer.url).pathname === "/sign-in") {
    location.reload();
    return;
  }
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(region.id);
    if (fresh) morph(region, fresh);
  }
}

async function refreshAll() {
  while (asked.length) {
    const those = asked;
    asked = [];
    await fetchOnce().catch(() => {});
    for (const seen of those) seen();
    await new Promise((resolve) => setTimeout(resolve, APART_MS));
  }
  refreshing = false;
}

// Done once what is true now is shown; whatever changes later is somebody else's wait.
export function refresh() {
  const seen = new Promise((resolve) => asked.push(resolve));
  if (!refreshing) {
    refreshing = true;
    refreshAll();
  }
  return seen;
}

function connect() {
  clearTimeout(retryTimer);
  if (source || !topics.size || document.hidden) return;
  source = new EventSource("/api/v1/changes");
  source.addEventListener("open", () => {
    retryMs = RETRY_MS;
    tell("on", "live");
    // What changed while nobody listened is not told again.
    refresh();
  });
  source.addEventListener("changed", (event) => {
    const changed = JSON.parse(event.data);
    if (changed.some((topic) => topic === "*" || topics.has(topic))) refresh();
  });
  source.addEventListener("error", () => {
    disconnect();
    tell("off", "offline, retrying");
    retryTimer = setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 2, RETRY_MS_MAX);
  });
}

function disconnect() {
  source?.close();
  source = null;
}

// A browser opens few connections to one place: pages nobody looks at give theirs back.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
