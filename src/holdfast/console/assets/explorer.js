// The form of an API operation: sends the request that its fields make, and shows the answer and the curl command.
import { ask, say } from "./acts.js";

const SHOWN_CHARACTERS_MAX = 200_000;
const form = document.getElementById("request");
const { method, path, origin, title } = form.dataset;

function fields(place) {
  return [...form.querySelectorAll(`[data-in="${place}"]`)].filter((field) => field.value !== "" || place === "path");
}

function address() {
  const filled = fields("path").reduce((url, { name, value }) => url.replace(`{${name}}`, encodeURIComponent(value) || `{${name}}`), path);
  const query = new URLSearchParams();
  for (const { name, value, dataset } of fields("query")) {
    for (const one of "repeated" in dataset ? value.split(",") : [value]) query.append(name, one.trim());
  }
  return query.size ? `${filled}?${query}` : filled;
}

function request() {
  const headers = Object.fromEntries(fields("header").map(({ name, value }) => [name, value]));
  const [body] = fields("body").map((field) => field.value);
  if (body !== undefined) headers["content-type"] = "application/json";
  return { method, headers, body };
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function command() {
  const { headers, body } = request();
  const said = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)} `).join("");
  const data = body === undefined ? "" : ` -d ${quoted(body)}`;
  return `curl ${document.getElementById("token") ? "" : "-N "}-X ${method} -H 'Authorization: Bearer hf_…' ${said}${quoted(origin + address())}${data}`;
}

function show() {
  document.getElementById("curl").textContent = command();
}

function laidOut(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function send() {
  const asked = request();
  const token = document.getElementById("token").value.trim();
  // Requests with a token are a program's: without the session.
  if (token) asked.headers.authorization = `Bearer ${token}`;
  else asked.headers["x-csrf-token"] = document.querySelector("meta[name=csrf]").content;
  const began = performance.now();
  const response = await fetch(address(), { ...asked, credentials: token ? "omit" : "same-origin" });
  const text = await response.text();
  const part = (name) => document.getElementById(`answer-${name}`);
  part("status").textContent = `${response.status} ${response.statusText} in ${Math.round(performance.now() - began)} ms`;
  part("headers").textContent = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  part("body").textContent = laidOut(text).slice(0, SHOWN_CHARACTERS_MAX);
  document.getElementById("answer").hidden = false;
}

form.addEventListener("input", show);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const changes = method !== "GET";
  if (changes && !(await ask({ title: `${title}?`, text: `Sends ${method} ${address()}, which may change something.`, verb: "Send" }))) return;
  try {
    await send();
  } catch {
    say("The server can't be reached. Nothing was done as far as we know; try again.", { bad: true });
  }
});
show();
