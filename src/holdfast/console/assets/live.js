// Live regions: when a topic of theirs changes, the page is fetched again and the regions are morphed to match it.
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
let pending = [];

function showState(state, words) {
  if (!shown) return;
  shown.classList.toggle("on", state === "on");
  shown.classList.toggle("off", state === "off");
  const said = shown.querySelector(".said");
  if (said.textContent !== words) said.textContent = words;
}

async function fetchOnce() {
  // The header keeps an unattended page from extending its session.
  const response = await fetch(location.href, { headers: { accept: "text/html", "x-live": "1" } });
  if (response.redirected && new URL(response.url).pathname === "/sign-in") {
    // An open dialog may show a secret that is shown once; the refresh after it reloads.
    if (!document.querySelector("dialog[open]")) location.reload();
    return;
  }
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const region of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(region.id);
    if (fresh) morph(region, fresh);
  }
}

async function refreshAll() {
  while (pending.length) {
    const waiting = pending;
    pending = [];
    await fetchOnce().catch(() => {});
    for (const resolve of waiting) resolve();
    await new Promise((resolve) => setTimeout(resolve, APART_MS));
  }
  refreshing = false;
}

// Resolves once a page fetched after this call is shown.
export function refresh() {
  const shown = new Promise((resolve) => pending.push(resolve));
  if (!refreshing) {
    refreshing = true;
    refreshAll();
  }
  return shown;
}

function connect() {
  clearTimeout(retryTimer);
  if (source || !topics.size || document.hidden) return;
  source = new EventSource("/api/v1/changes");
  source.addEventListener("open", () => {
    retryMs = RETRY_MS;
    showState("on", "live");
    // Changes while disconnected are not sent again.
    refresh();
  });
  source.addEventListener("changed", (event) => {
    const changed = JSON.parse(event.data);
    if (changed.some((topic) => topic === "*" || topics.has(topic))) refresh();
  });
  source.addEventListener("error", () => {
    disconnect();
    showState("off", "offline, retrying");
    retryTimer = setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 2, RETRY_MS_MAX);
  });
}

function disconnect() {
  source?.close();
  source = null;
}

// Browsers limit connections per host: hidden pages close theirs.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
