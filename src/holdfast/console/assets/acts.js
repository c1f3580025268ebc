// Action buttons and forms. `data-act` is the URL to POST to, `data-body` the JSON body; with `data-text` a dialog asks
// for confirmation. With `data-dry` that body is sent first, and {fields} of the response fill the texts. A form with
// `data-form` is sent there as JSON: a field `one.two` is nested in `one`, `one.0` is the first of a list `one`; number
// fields are sent as numbers, ticked boxes as true, fields with `data-list` as lists of words, and fields with
// `data-json` as the JSON they hold. A submit button with a `data-form` of its own sends the fields there and keeps them.
import { refresh } from "./live.js";

const dialog = document.getElementById("confirm");
const toast = document.getElementById("toast");
const csrf = document.querySelector("meta[name=csrf]").content;
let toastTimer;
let answered = Promise.resolve();

class Refused extends Error {}

async function send(url, body, method = "POST") {
  let response;
  try {
    response = await fetch(url, {
      method,
      headers: { "content-type": "application/json", "x-csrf-token": csrf, accept: "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refused("The server can't be reached. Nothing was done as far as we know; try again.");
  }
  const result = await response.json().catch(() => ({}));
  if (response.ok) return result;
  if (response.status === 401) throw new Refused("You are signed out. Load the page again to sign in.");
  // A service may have errors of its own shape, with the message beside the code.
  const error = typeof result.error === "string" ? result : result.error;
  throw new Refused(reason(error) ?? `The server answered ${response.status}.`);
}

// Where fields do not fit, the message only says that some don't; what is wrong with each is in the details.
function reason(error) {
  const faults = Array.isArray(error?.details) ? error.details : [];
  return faults.length ? faults.map(({ key, message }) => (key ? `${key}: ${message}` : message)).join("; ") : error?.message;
}

function fill(text, values) {
  return text.replace(/\{([\w.]+)\}/g, (whole, path) => {
    const value = path.split(".").reduce((one, name) => one?.[name], values);
    return value === undefined || value === null ? whole : String(value);
  });
}

export function say(text, { bad = false } = {}) {
  toast.textContent = text;
  toast.classList.toggle("bad", bad);
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.hidden = true; }, bad ? 12000 : 5000);
}

function part(name) {
  return document.getElementById(`confirm-${name}`);
}

// Dialogs wait for each other: a second one would replace a secret that is shown once.
export function ask(question) {
  answered = answered.then(() => open(question));
  return answered;
}

function open({ title, text, verb, shown = "" }) {
  part("title").textContent = title;
  part("text").textContent = text;
  part("ok").textContent = verb;
  part("fault").hidden = true;
  part("shown").hidden = !shown;
  part("shown").value = shown;
  dialog.returnValue = "";
  dialog.showModal();
  if (shown) part("shown").select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

async function finish(element, result) {
  const { then, show, done: words, if: field, else: otherwise } = element.dataset;
  if (then) {
    await answered;
    location.assign(fill(then, result));
    return;
  }
  if (show) {
    await ask({ title: "Keep this now", text: "It is shown once.", verb: "Close", shown: result[show] });
  } else if (field && !result[field]) {
    say(fill(otherwise, result), { bad: true });
  } else if (words) {
    say(fill(words, result));
  }
  element.dispatchEvent(new CustomEvent("acted", { bubbles: true, detail: result }));
  await refresh();
}

async function act(button) {
  const { act: url, body = "{}", dry, title, text, verb, method } = button.dataset;
  if (text) {
    const foreseen = dry ? await send(url, JSON.parse(dry)) : {};
    if (!(await ask({ title: fill(title, foreseen), text: fill(text, foreseen), verb: fill(verb, foreseen) }))) return;
  }
  await finish(button, await send(url, JSON.parse(body), method));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (fault) {
    throw new Refused(`This is not JSON: ${fault.message}`);
  }
}

function read(field, value) {
  if ("json" in field.dataset) return parsed(value);
  if (field.type === "number" || "number" in field.dataset) return Number(value);
  if (field.type === "checkbox") return true;
  return "list" in field.dataset ? value.split(/[\s,]+/).filter(Boolean) : value;
}

function typed(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (value === "") continue;
    const path = name.split(".");
    const last = path.pop();
    const place = path.reduce((one, word, depth) => (one[word] ??= /^\d+$/.test(path[depth + 1] ?? last) ? [] : {}), fields);
    place[last] = read(form.elements[name], value);
  }
  return fields;
}

async function guarded(control, doing) {
  if (control.dataset.busy) return;
  control.dataset.busy = "yes";
  control.setAttribute("aria-busy", "true");
  try {
    await doing();
  } catch (fault) {
    if (!(fault instanceof Refused)) throw fault;
    say(fault.message, { bad: true });
  } finally {
    delete control.dataset.busy;
    control.removeAttribute("aria-busy");
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) guarded(button, () => act(button));
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-form]");
  if (!form) return;
  event.preventDefault();
  const asked = event.submitter?.dataset.form ? event.submitter : form;
  guarded(form, async () => {
    const { form: url, method, title, text, verb } = asked.dataset;
    const fields = typed(form);
    if (text && !(await ask({ title, text, verb }))) return;
    const result = await send(url, fields, method);
    if (asked === form) form.reset();
    await finish(asked, result);
  });
});
