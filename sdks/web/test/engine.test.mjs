// The contract, in Node: one last event, cancelling, closing, handles, sessions, tools, and any order of all of it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { join } from "node:path";
import process from "node:process";
import { isFused } from "../dist/web/src/fusion.js";
import { assertContract, bundle, cactus, chat, folder, kind, LASTS, long } from "./support.mjs";

async function events(stream) {
  const all = [];
  for await (const event of stream) all.push(event);
  return all;
}

it("gives one last event, and the same tokens every time", async (t) => {
  const model = await chat(t);
  const first = await events(model.stream(long(40), { join: false }));
  assertContract(first);
  assert.equal(first[0].event, "started");
  const answer = await model.respond(long(40));
  assert.deepEqual(Array.from(answer.tokens), first.at(-1).result.tokens);
  assert.equal(answer.usage.completion_tokens, 40);
  assert.equal((await model.info()).isa, isFused() ? "simd128_fma" : "simd128");
});

it("cancels within a token", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(400), { join: false });
  let texts = 0;
  let after = 0;
  const all = [];
  for await (const event of stream) {
    all.push(event);
    if (event.event !== "text") continue;
    if (++texts === 5) stream.cancel();
    else if (texts > 5) after++;
  }
  assertContract(all);
  assert.equal(all.at(-1).event, "cancelled");
  assert.ok(after <= 1, `${after} texts after cancelling`);
});

it("cancels with a signal, and when the reader leaves", async (t) => {
  const model = await chat(t);
  const abort = new AbortController();
  const stream = model.stream(long(400), { signal: abort.signal });
  await stream.next();
  abort.abort();
  assert.equal((await events(stream)).at(-1).event, "cancelled");
  for await (const event of model.stream(long(400))) if (event.event === "text") break;
  const { requests } = await model.info();
  assert.equal(requests.running + requests.waiting, 0);
});

it("does other things while an answer is waited for, and cancels it", async (t) => {
  const model = await chat(t);
  const abort = new AbortController();
  const began = performance.now();
  let isDone = false;
  const waiting = model.respond(long(4800), { signal: abort.signal }).finally(() => (isDone = true));
  waiting.catch(() => {});
  let busy = 0;
  while (busy === 0 && !isDone) {
    const { requests } = await model.info();
    busy = requests.running + requests.waiting;
  }
  assert.deepEqual([busy, isDone], [1, false]);
  abort.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  const aborted = performance.now() - began;
  const { usage } = await model.respond(long(4800, "Other."));
  assert.equal(usage.completion_tokens, 4800, JSON.stringify(usage));
  assert.ok(aborted < performance.now() - began - aborted, `cancelled after ${aborted} ms`);
  const both = model.respond(long(4800));
  await model.close();
  assert.equal((await both).finishReason, "cancelled");
});

it("closes a conversation, and waits for its request", async (t) => {
  const model = await chat(t);
  const session = await model.session();
  const stream = session.stream({ messages: [{ role: "user", content: "x" }], options: long(400).options });
  await stream.next();
  await session.close();
  const { requests } = await model.info();
  assert.equal(requests.running + requests.waiting, 0, JSON.stringify(requests));
  // Its events are still there for who reads them.
  const rest = await events(stream);
  assertContract(rest);
  assert.equal(rest.at(-1).event, "cancelled");
  await stream.close();
});

it("stops a load where its progress says so", async () => {
  const path = bundle("models/qwen2_tied");
  const stages = [];
  const told = ({ stage }) => (stages.push(stage), false);
  await assert.rejects(cactus.Model.load(path, { context_tokens: 64, onProgress: told }), kind("cancelled"));
  assert.deepEqual(stages, ["loading"]);
  const abort = new AbortController();
  const aborted = cactus.Model.load(path, { context_tokens: 64, signal: abort.signal, onProgress: () => abort.abort(new Error("stop")) });
  await assert.rejects(aborted, /stop/);
  await assert.rejects(cactus.Model.load(path, { onProgress: () => assert.fail("thrown") }), /thrown/);
  const model = await cactus.Model.load(path, { context_tokens: 64, onProgress: () => {} });
  await model.close();
});

it("closes a model in the middle of an answer", async () => {
  const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 512 });
  const streams = [model.stream(long(400)), model.stream(long(400, "Other."))];
  for (const stream of streams) await stream.next();
  await Promise.all([model.close(), model.close()]);
  for (const stream of streams) {
    const rest = await events(stream);
    assert.equal(rest.filter(({ event }) => LASTS.includes(event)).length, 1);
    assert.equal(rest.at(-1).event, "cancelled");
    await stream.close();
  }
  await assert.rejects(model.respond(long(1)), kind("handle"));
  await assert.rejects(model.info(), kind("handle"));
});

it("computes requests together", async (t) => {
  const model = await chat(t);
  const alone = [];
  for (const prompt of ["One", "Two", "Three"]) alone.push((await model.respond(long(30, prompt))).text);
  const together = await Promise.all(["One", "Two", "Three"].map((prompt) => model.respond(long(30, prompt))));
  assert.deepEqual(together.map(({ text }) => text), alone);
});

it("keeps conversations", async (t) => {
  const model = await chat(t);
  const session = await model.session({ messages: [{ role: "system", content: "Be short." }] });
  const say = (content, tokens) => ({ messages: [{ role: "user", content }], options: long(tokens).options });
  const answer = await session.respond(say("Hello", 8));
  assert.equal(answer.json.usage.completion_tokens, 8);
  const messages = await session.messages();
  assert.deepEqual(messages.map(({ role }) => role), ["system", "user", "assistant"]);
  assert.equal(messages[2].content, answer.text);
  const going = session.stream(say("And?", 200));
  await assert.rejects(async () => {
    await going.ready();
    await session.respond("More?");
  }, kind("busy"));
  await going.close();
  await session.close();
  await session.close();
  await assert.rejects(session.messages(), kind("handle"));
});

it("answers in the form of a schema", async (t) => {
  const model = await chat(t);
  const schema = { type: "object", properties: { city: { enum: ["Rome", "Oslo"] }, warm: { type: "boolean" } }, required: ["city", "warm"], additionalProperties: false };
  const value = await model.respondAs({ prompt: "Where?", options: { max_tokens: 60, temperature: 0 } }, schema);
  assert.ok(["Rome", "Oslo"].includes(value.city), JSON.stringify(value));
  assert.equal(typeof value.warm, "boolean");
});

it("counts tokens, scores, and renders prompts", async (t) => {
  const model = await chat(t);
  const text = "the same model";
  const tokens = await model.tokenize(text);
  assert.equal(await model.detokenize(tokens), text);
  const score = await model.score(tokens, 1);
  assert.equal(score.logprobs.length, tokens.length - 1);
  assert.ok(score.logprob < 0);
  assert.match(await model.renderPrompt([{ role: "user", content: "Hi" }]), /Hi/);
});

it("says what is wrong", async (t) => {
  const model = await chat(t);
  await assert.rejects(cactus.Model.load("/nothing/here"), kind("not_found"));
  await assert.rejects(model.respond({ prompt: "x", options: { nonsense: 1 } }), kind("argument"));
  await assert.rejects(cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: -1 }), kind("argument"));
  await assert.rejects(model.setPolicy("x = 1"), kind("not_in_build"));
  const report = await cactus.checkBundle(bundle("models/qwen2_tied"), { verify: true });
  assert.equal(report.usable, true);
  assert.equal((await cactus.checkBundle(folder())).usable, false);
});

it("tells the package's ABI, and what the library says", async () => {
  assert.equal(cactus.abiVersion(), cactus.ABI_VERSION);
  const said = [];
  await cactus.setLog((level, part, message) => said.push(message), "info");
  const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 64 });
  await model.close();
  await cactus.setLog(null);
  assert.ok(said.some((message) => message.startsWith("loaded")), JSON.stringify(said));
});

it("survives any order of calls", async () => {
  let state = 12345;
  const random = (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const rounds = Number(process.env.CACTUS_SOAK ?? 100);
  const memory = [];
  for (let round = 0; round < rounds; round++) {
    const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 128 });
    const streams = [];
    const reading = [];
    for (let step = 0; step < 8; step++) {
      const stream = streams[random(streams.length)];
      switch (random(6)) {
        case 0:
        case 1: {
          const begun = model.stream(long(1 + random(30)));
          streams.push(begun);
          reading.push(events(begun).then(
            (all) => all.length > 0 && assert.ok(all.filter(({ event }) => LASTS.includes(event)).length <= 1),
            // It was closed before it began, or while it was read.
            (error) => kind("handle")(error),
          ));
          break;
        }
        case 2:
          stream?.cancel();
          break;
        case 3:
          void stream?.close();
          break;
        case 4:
          await new Promise((go) => setTimeout(go, random(4)));
          break;
        case 5:
          if (random(3) === 0) await model.close();
      }
    }
    await model.close();
    await Promise.all(reading);
    await Promise.all(streams.map((stream) => stream.close()));
    memory.push(await cactus.memoryBytes());
  }
  // The first rounds reach what any round needs.
  assert.equal(memory.at(-1), memory[Math.floor(rounds / 2)], `memory grows: ${memory[Math.floor(rounds / 2)]} to ${memory.at(-1)}`);
});

it("starts once, and knows that all of an ended engine is closed", async (t) => {
  const load = () => cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 128 });
  const old = await load();
  const session = await old.session();
  const stream = old.stream(long(100));
  await stream.next();
  cactus.stop();
  await assert.rejects(old.respond("x"), kind("handle"));
  assert.equal(old.isClosed, true);
  await assert.rejects(load(), kind("system"));
  await assert.rejects(cactus.memoryBytes(), kind("system"));
  await Promise.all([cactus.start(), cactus.start()]);
  const model = await load();
  t.after(() => model.close());
  // Numbers begin anew, and mean something else.
  await session.close();
  await stream.close();
  await old.close();
  await assert.rejects(old.respond("x"), kind("handle"));
  await assert.rejects(stream.next(), kind("handle"));
  assert.equal((await model.respond(long(4))).usage.completion_tokens, 4);
  cactus.stop();
  const ended = cactus.start();
  cactus.stop();
  await assert.rejects(ended, kind("system"));
  await cactus.start();
  await (await load()).close();
  cactus.stop();
  await assert.rejects(cactus.start({ wasm: join(folder(), "none.wasm") }), kind("not_in_build"));
  await cactus.start();
});

it("has the ABI that the C header has", () => {
  const header = readFileSync(new URL("../../../crates/ffi/include/cactus.h", import.meta.url), "utf8");
  assert.equal(Number(/define CACTUS_ABI_VERSION (\d+)/.exec(header)[1]), cactus.ABI_VERSION);
});
