// Changes on the server, one after the other for each story, so that a hide and its undo arrive in order.
const { base } = document.documentElement.dataset;
const pending = new Map();

const send = async (method, path, body) => {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), keepalive: true };
  let response;
  try {
    response = await fetch(`${base}/api/v1${path}`, options);
  } catch {
    throw new Error("the server can't be reached");
  }
  if (response.status === 401) throw new Error("your session has ended; sign in again");
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
};

const inOrder = (id, act) => {
  const before = pending.get(id) ?? Promise.resolve();
  const next = before.catch(() => {}).then(act);
  pending.set(id, next);
  return next;
};

export const hideOnServer = (id) => inOrder(id, () => send("POST", "/hidden", { hidden: Number(id) }));
export const showOnServer = (id) => inOrder(id, () => send("DELETE", `/hidden/${id}`));
export const mergeOnServer = (ids) => send("POST", "/hidden", { hidden: ids.map(Number) });
