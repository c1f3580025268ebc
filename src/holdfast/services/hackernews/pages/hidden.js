// The list of hidden stories: the account's, or this browser's own.
import { localHidden, showLocally } from "./memory.js";
import { showOnServer } from "./server.js";
import { toast } from "./toast.js";

const { reader } = document.documentElement.dataset;
const list = document.getElementById("hidden-stories");
const nothing = document.getElementById("nothing");

const element = (tag, fields, ...children) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
};

const row = ([id, { title, url, at }]) => {
  const safe = /^https?:\/\//i.test(url) ? url : `https://news.ycombinator.com/item?id=${Number(id)}`;
  const link = element("a", { className: "title", href: safe, dir: "auto" }, title || `Story ${id}`);
  const hid = element("p", {}, `hidden ${new Date(at).toLocaleString()}`);
  const button = element("button", { className: "hide framed", ariaLabel: `Show again: ${title || id}` }, "Show again");
  button.setAttribute("form", "unhide");
  const story = element("li", { className: "story" }, element("div", { className: "body" }, element("h2", {}, link), hid), button);
  story.dataset.id = id;
  return story;
};

const count = () => {
  nothing.hidden = [...list.children].some((story) => !story.hidden);
};

const show = async (story) => {
  story.hidden = true;
  count();
  try {
    if (reader) await showOnServer(story.dataset.id);
    else showLocally(story.dataset.id);
    toast("Shown again");
  } catch (fault) {
    story.hidden = false;
    count();
    toast(`Still hidden: ${fault.message}`, { label: "Try again", act: () => show(story), fault: true });
  }
};

export const start = () => {
  if (!reader) list.append(...Object.entries(localHidden()).sort(([, a], [, b]) => b.at - a.at).map(row));
  count();
  document.getElementById("unhide").addEventListener("submit", (event) => {
    event.preventDefault();
    show(event.submitter.closest(".story"));
  });
};
