// Morphs one DOM subtree into another with few changes, so that focus, open details and scroll position stay.
// Elements with the same `data-key` or `id` are matched, also when they have moved.
const OWN = new Set(["open", "aria-busy", "data-busy"]);

// Attributes, not properties: a form with a field named `id` returns that field as its `id`.
function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") ?? node.getAttribute("id") ?? "" : "";
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function copyAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !OWN.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function laterTwin(node, from) {
  if (!keyOf(node)) return null;
  for (let one = from; one; one = one.nextSibling) if (alike(one, node)) return one;
  return null;
}

function importRow(node) {
  const made = document.importNode(node, true);
  if (made.nodeName === "TR") made.classList.add("arrived");
  return made;
}

export function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  copyAttributes(old, fresh);
  let mine = old.firstChild;
  for (const theirs of fresh.childNodes) {
    const twin = mine && alike(mine, theirs) ? mine : laterTwin(theirs, mine);
    if (!twin) {
      old.insertBefore(importRow(theirs), mine);
      continue;
    }
    if (twin !== mine) old.insertBefore(twin, mine);
    morph(twin, theirs);
    mine = twin.nextSibling;
  }
  while (mine) {
    const next = mine.nextSibling;
    mine.remove();
    mine = next;
  }
}
