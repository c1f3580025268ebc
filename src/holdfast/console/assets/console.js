// The console's scripts: acts with their dialogs, live regions, the menu on narrow screens.
import { say } from "./acts.js";
import "./live.js";

const menu = document.querySelector(".menu");
menu?.addEventListener("click", () => {
  const open = document.getElementById("side").classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});

// Where tabs are wider than the screen, the chosen one is in sight.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

// A choice in a filter takes effect at once; without scripts the form's button does it. Whoever chose by keyboard
// goes on where they were.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-submits]")) return;
  sessionStorage.setItem("chosen", event.target.name);
  event.target.form.requestSubmit();
});
const chosen = sessionStorage.getItem("chosen");
sessionStorage.removeItem("chosen");
if (chosen) document.querySelector(`[data-submits][name="${CSS.escape(chosen)}"]`)?.focus({ preventScroll: true });

// Filters that say nothing stay out of the address.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "get") return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});
// A browser that goes back would show the choice that left the page, above a page that shows what was asked before.
addEventListener("pageshow", (event) => {
  const back = event.persisted || performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
  if (back) for (const form of document.querySelectorAll("form[method=get]")) form.reset();
});

// Copying needs a secure context; where there is none, the buttons stay hidden and the text can be selected.
if (navigator.clipboard) for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  say("Copied.");
});
