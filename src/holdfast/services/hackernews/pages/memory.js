// What this browser remembers: stories hidden without an account, the last visit, whether somebody was signed in.
const { base } = document.documentElement.dataset;
const VISIT_MS = 30 * 60 * 1000;

const read = (name) => {
  try {
    return JSON.parse(localStorage.getItem(`unseen${base}:${name}`));
  } catch {
    return null;
  }
};

// Throws where the browser has no room: whoever hides a story then says so.
const write = (name, value) => {
  const key = `unseen${base}:${name}`;
  if (value === null) localStorage.removeItem(key);
  else localStorage.setItem(key, JSON.stringify(value));
};

export const localHidden = () => read("hidden") ?? {};

export const hideLocally = (id, story) => write("hidden", { ...localHidden(), [id]: { ...story, at: Date.now() } });

export const showLocally = (...ids) => {
  const left = localHidden();
  for (const id of ids) delete left[id];
  write("hidden", Object.keys(left).length ? left : null);
};

// When the last visit ended; null at the first. Loading pages within half an hour is one visit.
export const lastVisit = () => {
  const known = read("visit");
  const now = Date.now();
  const last = known && now - known.seen > VISIT_MS ? known.seen : (known?.last ?? null);
  try {
    write("visit", { last, seen: now });
  } catch {
    // A browser that keeps nothing has no visits to compare.
  }
  return last;
};

// Another site's link brings no strict cookie: a page may say "nobody" though this browser is signed in.
export const findSession = async (reader) => {
  try {
    if (reader) {
      sessionStorage.removeItem("unseen:asked");
      return write("reader", reader);
    }
    if (!read("reader") || sessionStorage.getItem("unseen:asked")) return;
    sessionStorage.setItem("unseen:asked", "1");
    const { name } = await (await fetch(`${base}/api/v1/me`)).json();
    if (name) location.replace(location.href);
    else write("reader", null);
  } catch {
    // Then the page stays as it is, which is right for somebody who is not signed in.
  }
};
