// The console's scripts: acts with their dialogs, live regions, the menu on narrow screens.
import "./acts.js";
import "./live.js";

const menu = document.querySelector(".menu");
menu?.addEventListener("click", () => {
  const open = document.getElementById("side").classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});

// Where tabs are wider than the screen, the chosen one is in sight.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

// A choice in a filter takes effect at once; without scripts the form's button does it.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});

// Filters that say nothing stay out of the address.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "get") return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
});
