// Runs before anything is painted: stories that this browser hid are taken out while the page is being read.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  let hidden = {};
  try {
    hidden = JSON.parse(localStorage.getItem(`unseen${root.dataset.base}:hidden`)) ?? {};
  } catch {
    return;
  }
  if (!Object.keys(hidden).length) return;
  const check = (records) => {
    for (const { addedNodes } of records) {
      for (const node of addedNodes) {
        if (node.dataset?.id in hidden && node.closest("#stories")) node.hidden = true;
      }
    }
  };
  const observer = new MutationObserver(check);
  observer.observe(root, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", () => {
    check(observer.takeRecords());
    observer.disconnect();
  });
})();
