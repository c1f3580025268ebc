// Choosing several residents, and adding up weights while they are typed.
const main = document.getElementById("main");
const boxes = () => [...document.querySelectorAll("#rows input[name=resident]")];

// Written only where it differs: the observer below sees every write.
function set(element, values) {
  for (const [name, value] of Object.entries(values)) if (element[name] !== value) element[name] = value;
}

function showSelection() {
  const picked = document.querySelector("[data-picked]");
  if (!picked) return;
  const all = boxes();
  const ids = all.filter((box) => box.checked).map((box) => box.value);
  const who = ids.length === 1 ? "1 resident" : `${ids.length} residents`;
  set(picked, {
    disabled: !ids.length,
    textContent: ids.length ? `Send ${ids.length} chosen to RMS` : "Send chosen to RMS",
  });
  set(picked.dataset, {
    body: JSON.stringify({ residents: ids }),
    title: `Send ${who} to the RMS?`,
    text: `Sends one event for each of the ${who} you chose. Those that were delivered before stay as they are.`,
    verb: `Send ${ids.length}`,
  });
  for (const box of document.querySelectorAll("[data-pick-all]")) {
    set(box, { checked: all.length > 0 && ids.length === all.length, indeterminate: ids.length > 0 && ids.length < all.length });
  }
}

function pickAll(on) {
  for (const box of boxes()) box.checked = on;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) pickAll(event.target.checked);
  if (event.target.closest("#rows")) showSelection();
});
document.addEventListener("acted", (event) => {
  if (!event.target.matches("[data-picked]")) return;
  pickAll(false);
  showSelection();
});
// Rows come and go while some are chosen: count those on the page.
new MutationObserver(showSelection).observe(main, { childList: true, subtree: true, attributeFilter: ["disabled"] });
showSelection();

const weights = document.querySelector("[data-weights]");
weights?.addEventListener("input", () => {
  const sum = [...weights.querySelectorAll("[data-weight]")].reduce((total, one) => total + Number(one.value), 0);
  const said = weights.querySelector("[data-sum]");
  said.textContent = `The weights add up to ${sum}`;
  said.classList.toggle("wrong", sum !== 100);
});
