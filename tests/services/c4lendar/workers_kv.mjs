// Puts the pairs of a bulk dump into a local Workers KV and dumps what is there then.
// node workers_kv.mjs <folder of node_modules> <dump to load> <dump to write>
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, source, target] = process.argv.slice(2);
const { Miniflare } = createRequire(`${modules}/`)("miniflare");
// Inside a worker, where a call takes no trip through a proxy.
const script = `
async function inGroups(all, act, size = 100) {
  const results = [];
  for (let at = 0; at < all.length; at += size) results.push(...(await Promise.all(all.slice(at, at + size).map(act))));
  return results;
}
export default {
  async fetch(request, { EVENTS }) {
    const pairs = await request.json();
    await inGroups(pairs, ({ key, value, expiration, metadata }) => EVENTS.put(key, value, { expiration, metadata }));
    const keys = [];
    let page = { cursor: undefined };
    do {
      page = await EVENTS.list({ cursor: page.cursor, limit: 1000 });
      keys.push(...page.keys);
    } while (!page.list_complete);
    return Response.json(await inGroups(keys, async ({ name, expiration, metadata }) => (
      { key: name, value: await EVENTS.get(name), expiration, metadata: metadata ?? undefined }
    )));
  },
};`;
const miniflare = new Miniflare({ modules: true, script, kvNamespaces: ["EVENTS"], compatibilityDate: "2025-01-01" });
const answer = await miniflare.dispatchFetch("http://kv/", { method: "POST", body: readFileSync(source) });
if (!answer.ok) throw new Error(await answer.text());
writeFileSync(target, await answer.text());
await miniflare.dispose();
