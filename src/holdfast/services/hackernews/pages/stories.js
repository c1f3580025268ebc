// The list of stories: hide with undo, more pages, keyboard, what is new. Each change shows at once and is taken
// back where the server refuses it.
import { hideLocally, lastVisit, localHidden, showLocally } from "./memory.js";
import { hideOnServer, mergeOnServer, showOnServer } from "./server.js";
import { toast } from "./toast.js";

const { reader } = document.documentElement.dataset;
const MERGED_MAX = 10000;
const FEW = 10;
const list = document.getElementById("stories");
const nothing = document.getElementById("nothing");
const more = document.getElementById("more");
const undoable = [];
let loading = null;
let current = null;

const all = () => [...list.children];
const visible = () => all().filter((story) => story.checkVisibility());
const titleOf = (story) => story.querySelector(".title");

const said = (story) => {
  const text = titleOf(story).textContent;
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};

// The server leaves out what a signed-in reader hid, so that its pages begin that much earlier.
const settle = () => {
  const stories = all();
  const gone = reader ? stories.filter((story) => story.dataset.hid).length : 0;
  if (more?.isConnected) {
    const url = new URL(more.href);
    url.searchParams.set("skip", Number(list.dataset.skip) + stories.length - gone);
    more.href = url.href;
  }
  const left = visible().length;
  nothing.hidden = left > 0 || Boolean(more?.isConnected);
  if (left < FEW && more?.isConnected) loadMore();
};

const conceal = (story, yes) => {
  story.hidden = yes;
  if (yes) story.dataset.hid = "1";
  else delete story.dataset.hid;
  settle();
};

const select = (story) => {
  if (!story) return;
  current?.classList.remove("at");
  current = story;
  story.classList.add("at");
  titleOf(story).focus({ preventScroll: true });
  story.scrollIntoView({ block: "nearest" });
};

const hide = async (story) => {
  const { id } = story.dataset;
  const stories = visible();
  const at = stories.indexOf(story);
  conceal(story, true);
  select(stories[at + 1] ?? stories[at - 1]);
  undoable.push(story);
  toast(`Hidden: ${said(story)}`, { label: "Undo", act: undo });
  try {
    if (reader) await hideOnServer(id);
    else hideLocally(id, { title: titleOf(story).textContent, url: titleOf(story).href });
  } catch (fault) {
    // Undone meanwhile, it is shown already.
    if (undoable.includes(story)) undoable.splice(undoable.indexOf(story), 1);
    conceal(story, false);
    toast(`Not hidden: ${fault.message}`, { label: "Try again", act: () => hide(story), fault: true });
  }
};

const undo = async () => {
  const story = undoable.pop();
  if (!story) return toast("Nothing to undo");
  conceal(story, false);
  select(story);
  toast(`Shown again: ${said(story)}`);
  try {
    if (reader) await showOnServer(story.dataset.id);
    else showLocally(story.dataset.id);
  } catch (fault) {
    conceal(story, true);
    undoable.push(story);
    toast(`Still hidden: ${fault.message}`, { label: "Try again", act: undo, fault: true });
  }
};

const add = (page) => {
  const known = new Set(all().map((story) => story.dataset.id));
  const hidden = localHidden();
  for (const story of page.querySelectorAll("#stories > .story")) {
    if (known.has(story.dataset.id)) continue;
    const added = document.adoptNode(story);
    added.hidden = added.dataset.id in hidden;
    list.append(added);
  }
  if (!page.getElementById("more")) more.remove();
};

const loadMore = () => {
  loading ??= (async () => {
    more.setAttribute("aria-busy", "true");
    more.textContent = "Loading…";
    try {
      const response = await fetch(more.href);
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      add(new DOMParser().parseFromString(await response.text(), "text/html"));
      more.textContent = "More stories";
    } catch {
      more.textContent = "Not loaded. Try again";
      throw new Error("not loaded");
    } finally {
      more.removeAttribute("aria-busy");
      loading = null;
    }
    markNew();
    settle();
  })().catch(() => {});
  return loading;
};

const last = lastVisit();

const markNew = () => {
  if (!last) return;
  for (const story of all()) story.classList.toggle("new", Number(story.dataset.time) > last);
  const count = list.querySelectorAll(".new").length;
  const news = document.getElementById("news");
  news.hidden = !count;
  if (!count) return;
  const number = document.createElement("b");
  number.textContent = `${count} new`;
  const only = document.createElement("button");
  only.type = "button";
  only.className = "plain";
  only.textContent = list.classList.contains("only-new") ? "Show all" : "Show only new";
  only.addEventListener("click", () => {
    list.classList.toggle("only-new");
    markNew();
  });
  news.replaceChildren(number, ` here since your last visit ${since(last)} · `, only);
};

const since = (at) => {
  const minutes = Math.max(1, Math.round((Date.now() - at) / 60000));
  if (minutes < 60) return `${minutes} min ago`;
  return minutes < 2880 ? `${Math.round(minutes / 60)} h ago` : `${Math.round(minutes / 1440)} d ago`;
};

// Stories hidden before signing in go to the account, and leave this browser only when they have arrived.
const merge = async () => {
  const ids = Object.keys(localHidden()).slice(0, MERGED_MAX);
  if (!reader || !ids.length) return;
  try {
    await mergeOnServer(ids);
    showLocally(...ids);
    for (const story of all()) if (ids.includes(story.dataset.id)) story.dataset.hid = "1";
    toast(`${ids.length} ${ids.length === 1 ? "story" : "stories"} hidden in this browser moved to your account`);
    settle();
  } catch (fault) {
    toast(`Your hidden stories are still in this browser alone: ${fault.message}`, { fault: true });
  }
};

const step = (by) => {
  const stories = visible();
  const at = stories.indexOf(current);
  select(stories[at < 0 ? (by > 0 ? 0 : stories.length - 1) : at + by]);
};

const keys = {
  j: () => step(1),
  k: () => step(-1),
  o: () => current && window.open(titleOf(current).href, "_blank", "noopener"),
  h: () => current?.checkVisibility() && hide(current),
  u: undo,
  "/": () => document.querySelector(".search input[type=search]").focus(),
};

export const start = () => {
  document.getElementById("hide").addEventListener("submit", (event) => {
    event.preventDefault();
    hide(event.submitter.closest(".story"));
  });
  list.addEventListener("focusin", (event) => {
    const story = event.target.closest(".story");
    if (story !== current) current?.classList.remove("at");
    current = story;
  });
  more?.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    loadMore();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  markNew();
  settle();
  merge();
};
