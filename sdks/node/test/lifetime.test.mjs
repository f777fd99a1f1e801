// Objects that are closed in any order, forgotten, or left behind; and many streams at once.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import test from "node:test";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { Index, Model } from "../dist/node.mjs";
import { ENDLESS, assertContract, chat, chatBundle, eventsOf, folder, kind, long, sleep } from "./support.mjs";

const rounds = Number(process.env.CACTUS_SOAK ?? 100);
const run = promisify(execFile);
const api = new URL("../dist/node.mjs", import.meta.url).href;

/** Draws from a seed. */
function draws(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** How many threads of this process the library has, or 0 where the system does not say. A thread may end while they are counted. */
function threads() {
  const tasks = "/proc/self/task";
  const name = (id) => { try { return readFileSync(`${tasks}/${id}/comm`, "utf8"); } catch { return ""; } };
  return existsSync(tasks) ? readdirSync(tasks).filter((id) => name(id).startsWith("cactus")).length : 0;
}

test(`${rounds} interleavings of open, generate, cancel and close`, { timeout: 540_000 }, async () => {
  const path = await chatBundle();
  const draw = draws(Number(process.env.CACTUS_SEED ?? 7));
  const load = () => Model.load(path, { context_tokens: 256, threads: 1, queue: 64 });
  const ends = {};
  let model = await load();
  for (let round = 0; round < rounds; round++) {
    const owner = draw(3) === 0 ? await model.session().catch(() => model) : model;
    const work = [];
    for (let i = 0; i <= draw(4); i++) {
      const { options } = long(1 + draw(60));
      const stream = owner.stream({ messages: [{ role: "user", content: "Go on." }], options }, { join: draw(2) === 0 });
      const leave = draw(12);
      work.push(
        (async () => {
          const events = [];
          try {
            for (;;) {
              const { done, value } = await stream.next();
              if (done) break;
              events.push(value);
              if (events.length === leave) {
                const how = draw(4);
                if (how === 0) stream.cancel();
                if (how === 1) await stream.close();
                if (how === 2) return "left";
                if (how === 3) await stream.return();
              }
            }
          } catch (error) {
            assert.ok(["handle", "busy", "context_full"].includes(error.kind), error.stack);
            assert.ok(events.every((event) => !["done", "cancelled", "failed"].includes(event.event)));
            return error.kind;
          }
          if (events.some((event) => ["done", "cancelled", "failed"].includes(event.event))) assertContract(events);
          return events.at(-1)?.event ?? "none";
        })().finally(() => (draw(2) === 0 ? stream.close() : undefined)),
      );
      if (draw(5) === 0) stream.cancel();
    }
    if (draw(4) === 0) await sleep(draw(3));
    if (draw(6) === 0) work.push(owner.close().then(() => "closed"));
    if (draw(10) === 0) {
      work.push(model.close().then(() => "closed"));
      for (const end of await Promise.all(work)) ends[end] = (ends[end] ?? 0) + 1;
      model = await load();
    } else {
      for (const end of await Promise.all(work)) ends[end] = (ends[end] ?? 0) + 1;
    }
    if (owner !== model && draw(2) === 0) await owner.close();
    if (model.isClosed) model = await load();
  }
  await model.close();
  assert.ok((ends.done ?? 0) > 0 && (ends.cancelled ?? 0) > 0 && (ends.closed ?? 0) > 0, JSON.stringify(ends));
});

test("streams at once do not hold the four threads that files need", { timeout: 120_000 }, async (t) => {
  const model = await chat(t, { context_tokens: 512, sequences: 4 });
  const streams = Array.from({ length: 64 }, () => model.stream(long(200)));
  await Promise.all(streams.map((stream) => stream.ready()));
  const all = streams.map(eventsOf);
  let over = false;
  const ended = Promise.all(all).then((events) => ((over = true), events));
  // All are waiting for an event now; a file is read all the same.
  await readFile(new URL(import.meta.url));
  assert.equal(over, false, "files waited for the streams");
  for (const events of await ended) assertContract(events);
});

const inChild = async (code, ...flags) => {
  const path = await chatBundle();
  const script = `import { Model, Transcriber } from ${JSON.stringify(api)};\nconst path = ${JSON.stringify(path)};\n${code}`;
  return run(process.execPath, [...flags, "--input-type=module", "--eval", script], { timeout: 60_000 });
};

test("a process ends while answers are made, and goes on until they are", { timeout: 120_000 }, async () => {
  const load = "const model = await Model.load(path, { context_tokens: 512, threads: 1 });\n";
  const request = JSON.stringify(long(400));
  const left = await inChild(`${load}const stream = model.stream(${request}, { join: false }); await stream.next(); console.log("left"); process.exit(0);`);
  assert.equal(left.stdout.trim(), "left");
  // Nothing but the answer keeps the process.
  const waited = await inChild(`${load}model.respond(${request}).then((answer) => console.log(answer.finishReason));`);
  assert.equal(waited.stdout.trim(), "length");
  // An open model alone does not.
  const idle = await inChild(`${load}console.log("idle");`);
  assert.equal(idle.stdout.trim(), "idle");
});

test("what is forgotten is closed by the collector", { timeout: 120_000, skip: process.platform !== "linux" }, async () => {
  const code = `
    import { readdirSync, readFileSync } from "node:fs";
    const name = (id) => { try { return readFileSync("/proc/self/task/" + id + "/comm", "utf8"); } catch { return ""; } };
    // One for each model.
    const models = () => readdirSync("/proc/self/task").filter((id) => name(id).startsWith("cactus-sched")).length;
    const model = await Model.load(path, { context_tokens: 512, threads: 1, queue: 4096, sequences: 1 });
    let most = 0;
    async function forget() {
      for (let i = 0; i < 40; i++) { const stream = model.stream(${JSON.stringify(long(500))}); await stream.ready(); }
      for (let i = 0; i < 3; i++) await Model.load(path, { context_tokens: 128, threads: 1 });
      most = models();
    }
    await forget();
    let requests;
    for (let i = 0; i < 500; i++) {
      gc();
      await new Promise((done) => setTimeout(done, 10));
      ({ requests } = await model.info());
      if (models() === 1 && requests.running + requests.waiting === 0) break;
    }
    console.log(JSON.stringify({ wereMore: most > 1, models: models(), left: requests.running + requests.waiting, wereCancelled: requests.cancelled > 0 }));
    await model.close();`;
  const { stdout } = await inChild(code, "--expose-gc");
  assert.deepEqual(JSON.parse(stdout), { wereMore: true, models: 1, left: 0, wereCancelled: true });
});

test("what answers is not closed while an answer or a conversation needs it", { timeout: 120_000 }, async () => {
  const code = `
    let over = false;
    const load = () => Model.load(path, { context_tokens: 2048, threads: 1 });
    const request = ${JSON.stringify(long(1000))};
    async function streams() { return (await load()).stream(request); }
    async function answers() { return (await (await load()).respond(request)).finishReason; }
    async function talks() { return (await load()).session(); }
    async function reads() {
      const stream = await streams();
      await new Promise((done) => setTimeout(done, 300));
      let last;
      for await (const { event } of stream) last = event;
      return last;
    }
    async function says() {
      const session = await talks();
      await new Promise((done) => setTimeout(done, 300));
      return (await session.respond({ messages: [{ role: "user", content: "x" }], options: request.options })).finishReason;
    }
    const all = Promise.all([reads(), answers(), says()]).finally(() => (over = true));
    while (!over) { gc(); await new Promise((done) => setTimeout(done, 5)); }
    console.log(JSON.stringify(await all));`;
  const { stdout } = await inChild(code, "--expose-gc");
  assert.deepEqual(JSON.parse(stdout), ["done", "length", "length"]);
});

test("closing a conversation waits for its request, and closing an index for its calls", async (t) => {
  const model = await chat(t);
  const session = await model.session();
  const stream = session.stream({ messages: [{ role: "user", content: "x" }], options: long(ENDLESS).options });
  await stream.next();
  await session.close();
  const { requests } = await model.info();
  assert.equal(requests.running + requests.waiting, 0, JSON.stringify(requests));
  assert.equal((await eventsOf(stream)).at(-1).event, "cancelled");
  // One that is closed while it begins, too.
  const other = await model.session();
  const begun = other.stream("x");
  await other.close();
  const after = (await model.info()).requests;
  assert.equal(after.running + after.waiting, 0, JSON.stringify(after));
  await begun.close();

  const index = await Index.open(folder(), 64);
  const entries = Array.from({ length: 2000 }, (_, id) => ({ id, document: "x".repeat(200), vector: new Float32Array(64).fill(1 + id) }));
  let added = false;
  const adding = index.add(entries).then(() => (added = true));
  await index.close();
  assert.ok(added, "the index was closed before");
  await adding;
  await assert.rejects(index.get([1]), kind("handle"));
});

test("a worker that is stopped while streams run leaves nothing open", { timeout: 120_000 }, async () => {
  const path = await chatBundle();
  const code = `
    import { parentPort } from "node:worker_threads";
    const { Model } = await import(${JSON.stringify(api)});
    const model = await Model.load(${JSON.stringify(path)}, { context_tokens: 512, threads: 1, queue: 64 });
    const streams = Array.from({ length: 4 }, () => model.stream(${JSON.stringify(long(480))}, { join: false }));
    for (const stream of streams) (async () => { for await (const _ of stream); })().catch(() => {});
    await streams[0].ready();
    parentPort.postMessage("runs");`;
  const before = threads();
  for (let i = 0; i < 5; i++) {
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`));
    await new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject));
    await worker.terminate();
  }
  for (let i = 0; i < 200 && threads() > before; i++) await sleep(20);
  assert.ok(threads() <= before, `${threads()} threads of the library, ${before} before`);
});

test("memory does not grow with requests and models", { timeout: 240_000, skip: process.env.ASAN_OPTIONS !== undefined }, async () => {
  const code = `
    const cycle = async (count) => {
      for (let i = 0; i < count; i++) {
        const model = await Model.load(path, { context_tokens: 128, threads: 1 });
        const session = await model.session();
        for (let j = 0; j < 10; j++) {
          for await (const _ of model.stream({ prompt: "x", options: { max_tokens: 20 } }, { join: false }));
          const left = model.stream({ prompt: "x", options: { max_tokens: 90 } });
          await left.next();
          await left.close();
          await model.tokenize("the river is quick");
        }
        await session.close();
        await model.close();
        gc();
      }
    };
    await cycle(15);
    const before = process.memoryUsage.rss();
    await cycle(${Math.max(15, rounds / 4)});
    console.log(process.memoryUsage.rss() - before);`;
  const { stdout } = await inChild(code, "--expose-gc");
  assert.ok(Number(stdout) < 8 << 20, `${(Number(stdout) / 2 ** 20).toFixed(1)} MiB more`);
});
