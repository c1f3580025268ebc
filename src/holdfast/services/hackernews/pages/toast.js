// One message at a time at the bottom, with at most one button.
const SHOWN_MS = 8000;
const place = document.getElementById("toast");
let timer;

export const toast = (text, { label, act, fault = false } = {}) => {
  const said = document.createElement("span");
  said.textContent = text;
  said.classList.toggle("fault", fault);
  place.replaceChildren(said);
  if (label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      place.replaceChildren();
      act();
    });
    place.append(button);
  }
  clearTimeout(timer);
  timer = setTimeout(() => place.replaceChildren(), SHOWN_MS);
};
