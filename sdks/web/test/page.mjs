// What the browser does in the tests: the part that the address names, whose result is posted to the server.

import { isFused } from "/web/dist/web/src/fusion.js";
import * as cactus from "/web/dist/web/src/index.js";

const { Model, CactusError, checkBundle, prepare, start, stop, listBundles, removeBundle, putFile, memoryBytes } = cactus;
const query = new URLSearchParams(location.search);
const MODULE = query.get("wasm") ?? undefined;
const OPTIONS = { context_tokens: 512 };
const REQUEST = { prompt: "Count.", options: { max_tokens: 24, temperature: 0, ignore_eos: true } };

/** What a promise fails with. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    if (!(error instanceof CactusError)) return { name: error.name, message: String(error.stack ?? error) };
    return { kind: error.kind, message: error.message };
  }
  return null;
}

async function events(stream) {
  const all = [];
  for await (const event of stream) all.push(event);
  return all;
}

const PARTS = {
  /** The first time breaks off, the second goes on. */
  async fetch() {
    const told = [];
    const broken = await failure(Model.load("/bundle/", OPTIONS));
    const partly = await listBundles();
    const model = await Model.load("/bundle/", { ...OPTIONS, onProgress: (progress) => void told.push(progress) });
    const answer = await model.respond(REQUEST);
    const kept = await listBundles();
    const inUse = await failure(removeBundle("/bundle/"));
    await model.close();
    return { broken, partly, told, tokens: Array.from(answer.tokens), text: answer.text, kept, inUse, isolated: self.crossOriginIsolated };
  },

  /** From what is kept. */
  async kept() {
    const [one, two] = await Promise.all([Model.load("/bundle/", { ...OPTIONS, offline: true }), Model.load("/bundle/", OPTIONS)]);
    const answer = await one.respond(REQUEST);
    const stream = two.stream({ ...REQUEST, options: { ...REQUEST.options, max_tokens: 300 } });
    let seen = 0;
    const all = [];
    for await (const event of stream) {
      all.push(event.event);
      if (event.event === "text" && ++seen === 3) stream.cancel();
    }
    // Two at once, on models of one bundle.
    const both = await Promise.all([one, two].map((model) => events(model.stream(REQUEST, { join: false }))));
    const info = await one.info();
    await Promise.all([one.close(), two.close(), one.close()]);
    const closed = await failure(one.respond(REQUEST));
    const elsewhere = await failure(Model.load("/nothing/", { ...OPTIONS, offline: true }));
    const missing = await failure(Model.load("/nothing/", OPTIONS));
    const found = { tokens: Array.from(answer.tokens), all, both, isa: info.isa, threads: info.threads, closed, elsewhere, missing, memory: await memoryBytes() };
    // The module for all engines gives the same.
    stop();
    await start({ wasm: "/web/cactus.wasm" });
    const plain = await Model.load("/bundle/", { ...OPTIONS, offline: true });
    const otherwise = { isa: (await plain.info()).isa, tokens: Array.from((await plain.respond(REQUEST)).tokens) };
    await plain.close();
    return { ...found, otherwise, fused: isFused() };
  },

  /** A file that came damaged. */
  async damaged() {
    const error = await failure(Model.load("/damaged/", OPTIONS));
    return { error, kept: (await listBundles()).map(({ source }) => source) };
  },

  /** Loads that are stopped: of a server that says nothing more, of one in the queue behind it, and of what is there. */
  async stops() {
    const abort = new AbortController();
    const slow = failure(Model.load("/slow/", { ...OPTIONS, signal: abort.signal }));
    let stages = 0;
    const behind = failure(Model.load("/slow/", { ...OPTIONS, onProgress: () => ++stages < 2 }));
    const refused = await behind;
    const began = performance.now();
    abort.abort();
    const aborted = await slow;
    const took = performance.now() - began;
    const loading = await failure(Model.load("/bundle/", { ...OPTIONS, onProgress: ({ stage }) => stage !== "loading" }));
    const kept = (await listBundles()).map(({ source, whole }) => [new URL(source).pathname, whole]);
    // Nothing of it is open any more.
    const removed = await failure(removeBundle("/slow/"));
    const absent = await failure(removeBundle("/slow/"));
    return { aborted, took, refused, loading, kept, removed, absent };
  },

  async remove() {
    const report = await checkBundle("/bundle/", { verify: true });
    const loaded = await Model.load(await prepare("/bundle/"), { ...OPTIONS, offline: true });
    await checkBundle("/bundle/");
    const inUse = await failure(removeBundle("/bundle/"));
    const answer = await loaded.respond(REQUEST);
    await loaded.close();
    const before = (await listBundles()).length;
    for (const { source } of await listBundles()) await removeBundle(source);
    return { report, inUse, tokens: Array.from(answer.tokens), before, after: await listBundles() };
  },

  /** The page draws while the engine computes: longest time between two turns of its event loop. */
  async draws() {
    const model = await Model.load("/bundle/", OPTIONS);
    let longest = 0;
    let last = performance.now();
    const timer = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 5);
    await model.respond({ ...REQUEST, options: { ...REQUEST.options, max_tokens: 200 } });
    clearInterval(timer);
    await model.close();
    await putFile("/notes/hello.txt", new TextEncoder().encode("hello"));
    stop();
    const stopped = await failure(Model.load("/bundle/"));
    const starting = start();
    stop();
    const ended = await failure(starting);
    await Promise.all([start(), start()]);
    const again = await Model.load("/bundle/", OPTIONS);
    await again.close();
    return { longest, stopped, ended };
  },

  /** Tokens a second, of a prompt and of an answer. */
  async speed() {
    const model = await Model.load(query.get("bundle") ?? "/bundle/", { context_tokens: 1024 });
    const tokens = Number(query.get("tokens") ?? 64);
    const prompt = "word ".repeat(Number(query.get("prompt") ?? 256));
    const best = { decode: 0, prefill: 0 };
    for (let round = 0; round < 3; round++) {
      const { timings } = (await model.respond({ prompt: `${round} ${prompt}`, options: { max_tokens: tokens, temperature: 0, ignore_eos: true, prompt_lookup: 0 } })).json;
      best.decode = Math.max(best.decode, timings.decode_tokens_per_second);
      best.prefill = Math.max(best.prefill, timings.prefill_tokens_per_second);
    }
    const { isa } = await model.info();
    await model.close();
    return { ...best, isa, memory: await memoryBytes() };
  },
};

let result;
try {
  await start({ wasm: MODULE });
  result = { ok: await PARTS[query.get("part")]() };
} catch (error) {
  result = { failed: String(error?.stack ?? error) };
}
await fetch("/result", { method: "POST", body: JSON.stringify(result) });
