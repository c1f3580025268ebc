// Choosing several residents, and adding up weights while they are typed.
const picked = document.querySelector("[data-picked]");

function chosen() {
  return [...document.querySelectorAll("#rows input[name=resident]:checked")].map((box) => box.value);
}

function tellChoice() {
  const ids = chosen();
  const who = ids.length === 1 ? "1 resident" : `${ids.length} residents`;
  picked.disabled = !ids.length;
  picked.textContent = ids.length ? `Tell RMS of ${ids.length} chosen` : "Tell RMS of those chosen";
  picked.dataset.body = JSON.stringify({ residents: ids });
  picked.dataset.title = `Tell the RMS about ${who}?`;
  picked.dataset.text = `Sends one event for each of the ${who} you chose. Those that were delivered before stay as they are.`;
  picked.dataset.verb = `Send ${ids.length}`;
  const all = document.querySelectorAll("#rows input[name=resident]").length;
  for (const box of document.querySelectorAll("[data-pick-all]")) {
    box.checked = all > 0 && ids.length === all;
    box.indeterminate = ids.length > 0 && ids.length < all;
  }
}

function pickAll(on) {
  for (const box of document.querySelectorAll("#rows input[name=resident]")) box.checked = on;
}

if (picked) {
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) pickAll(event.target.checked);
    if (event.target.closest("#rows")) tellChoice();
  });
  picked.addEventListener("acted", () => {
    pickAll(false);
    tellChoice();
  });
  // Rows may go while they are chosen: what is counted is what is there.
  new MutationObserver(tellChoice).observe(document.getElementById("rows"), { childList: true, subtree: true });
  tellChoice();
}

const weights = document.querySelector("[data-weights]");
weights?.addEventListener("input", () => {
  const sum = [...weights.querySelectorAll("[data-weight]")].reduce((total, one) => total + Number(one.value), 0);
  const said = weights.querySelector("[data-sum]");
  said.textContent = `The weights add up to ${sum}`;
  said.classList.toggle("wrong", sum !== 100);
});
