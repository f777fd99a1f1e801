// Models, conversations, tools and values.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import test from "node:test";
import { z } from "zod";
import { Cactus, checkBundle, memoryPressure, Model, prepare, setLog, tool } from "../dist/node.mjs";
import { bundle, chat, chatBundle, chatSource, folder, kind, long } from "./support.mjs";

test("a model loads from a path or an address, and says what it is", async (t) => {
  const path = await chatBundle();
  const model = await Model.load(pathToFileURL(path), { context_tokens: 256, threads: 1 });
  t.after(() => model.close());
  const info = await model.info();
  assert.equal(info.context_tokens, 256);
  assert.match(Cactus.version(), /^\d+\.\d+/);
  assert.equal(Cactus.abiVersion(), 1);
  assert.equal((await checkBundle(path, { verify: true })).usable, true);
  const report = await checkBundle(folder());
  assert.equal(report.usable, false);
  assert.equal(report.kind, "bundle");
  await assert.rejects(Model.load("content://media/3"), /content/);
  await assert.rejects(Model.load(undefined), kind("argument"));
  await assert.rejects(Model.load("no such model at all", { offline: true }), (error) => ["not_found", "offline"].includes(error.kind));
  await assert.rejects(Model.load(path, { context_token: 5 }), /context_token/);
});

test("progress is told, stops where it gives false or is aborted, and passes on what it throws", async (t) => {
  const source = chatSource;
  const steps = [];
  const path = await prepare(source, { cache: folder(), offline: true, onProgress: (step) => void steps.push(step) });
  assert.ok(path.length > 0 && steps.some((step) => step.stage === "converting"), JSON.stringify(steps));
  const stages = [];
  await assert.rejects(prepare(source, { cache: folder(), offline: true, onProgress: ({ stage }) => (stages.push(stage), false) }), kind("cancelled"));
  // Nothing is told any more to whom it was refused.
  assert.equal(stages.length, 1, JSON.stringify(stages));
  // What is there too soon to be stopped is closed.
  await assert.rejects(Model.load(path, { context_tokens: 64, onProgress: ({ stage }) => stage !== "loading" }), kind("cancelled"));
  const abort = new AbortController();
  const aborted = Model.load(source, { cache: folder(), offline: true, signal: abort.signal, onProgress: () => abort.abort(new Error("stop")) });
  await assert.rejects(aborted, /stop/);
  await assert.rejects(Model.load(path, { signal: AbortSignal.abort(new Error("before")) }), /before/);
  const thrown = () => {
    throw new Error("from the callback");
  };
  await assert.rejects(Model.load(source, { cache: folder(), offline: true, onProgress: thrown }), /from the callback/);
});

test("tokens, texts and likelihoods", async (t) => {
  const model = await chat(t);
  const tokens = await model.tokenize("the river");
  assert.ok(tokens instanceof Uint32Array && tokens.length > 0);
  assert.equal(await model.detokenize(tokens), "the river");
  assert.equal(await model.detokenize(Array.from(tokens)), "the river");
  assert.deepEqual(await model.tokenize(""), new Uint32Array());
  const score = await model.score([1, 128, 202, 126]);
  assert.equal(score.tokens, 3);
  assert.ok(Math.abs(score.logprobs.reduce((a, b) => a + b, 0) - score.logprob) < 1e-6);
  await assert.rejects(model.detokenize([-1]), kind("argument"));
  await assert.rejects(model.detokenize([99_999]), kind("argument"));
  await assert.rejects(model.tokenize("a\0b"), kind("argument"));
  await assert.rejects(model.tokenize(5), kind("argument"));
  assert.match(await model.renderPrompt([{ role: "user", content: "hi" }]), /hi/);
});

test("threads and memory change no answer", async (t) => {
  const model = await chat(t, { threads: 2 });
  const before = (await model.respond(long(12))).tokens;
  await model.setThreads(1, 1);
  await memoryPressure();
  assert.deepEqual((await model.respond(long(12))).tokens, before);
});

test("a conversation remembers, one request at a time", async (t) => {
  const model = await chat(t);
  const session = await model.session({ options: { max_tokens: 6, temperature: 0 } });
  t.after(() => session.close());
  const stream = session.stream("one");
  await stream.ready();
  const second = session.respond("two").then(
    () => "answered",
    (error) => error.kind,
  );
  const first = await stream.answer();
  assert.ok(["busy", "answered"].includes(await second));
  const held = await session.messages();
  assert.deepEqual(held.slice(0, 2), [{ role: "user", content: "one" }, first.message]);
  await session.respond({ messages: [{ role: "user", content: "three" }] }, { onToken: () => {} });
  const again = await model.session({ messages: held, options: { max_tokens: 6, temperature: 0 } });
  const other = await model.session({ messages: held, options: { max_tokens: 6, temperature: 0 } });
  assert.deepEqual((await again.respond("more")).tokens, (await other.respond({ role: "user", content: "more" })).tokens);
  await Promise.all([again.close(), other.close(), again.close()]);
  await assert.rejects(again.messages(), kind("handle"));
  await assert.rejects(again.respond("x"), kind("handle"));
  await assert.rejects(model.session({ options: { max_tokens: "many" } }), kind("argument"));
});

const weather = (calls) =>
  tool({
    name: "weather",
    description: "Weather of a city",
    parameters: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"], additionalProperties: false },
    run(args) {
      calls.push(args);
      return { sky: "clear" };
    },
  });

const asked = { messages: [{ role: "user", content: "What is the weather?" }], tool_choice: "required", parallel_tool_calls: false, options: { max_tokens: 120, temperature: 0, seed: 7 } };

test("tools are called for at most so many rounds, by a model and by a conversation", async (t) => {
  const model = await chat(t, { context_tokens: 2048 });
  const calls = [];
  const answer = await model.respondWithTools(asked, [weather(calls)], { rounds: 2 });
  assert.equal(calls.length, 2);
  assert.ok(["Paris", "Rome"].includes(calls[0].city));
  assert.equal(answer.toolCalls[0].function.name, "weather");
  assert.equal(answer.finishReason, "tool_calls");
  const none = await model.respondWithTools({ ...asked, tool_choice: "none", options: { max_tokens: 5 } }, [weather(calls)]);
  assert.deepEqual(none.toolCalls, []);

  const session = await model.session();
  await session.respondWithTools({ ...asked }, [weather(calls)], { rounds: 1, confirm: () => false });
  assert.equal(calls.length, 2, "nobody called what was refused");
  const told = (await session.messages()).filter((message) => message.role === "tool");
  assert.equal(told[0].content, "error: the call was refused");
  await session.close();
  const fails = { ...weather([]), run: () => Promise.reject(new Error("no network")) };
  const spoken = await model.session();
  await spoken.respondWithTools({ ...asked }, [fails], { rounds: 1 });
  assert.equal((await spoken.messages()).find((message) => message.role === "tool").content, "error: no network");
  await spoken.close();
  const aborts = { ...weather([]), run: () => Promise.reject(new DOMException("no more", "AbortError")) };
  await assert.rejects(model.respondWithTools(asked, [aborts]), { name: "AbortError" });
  await assert.rejects(model.respondWithTools(asked, [weather([])], { confirm: () => Promise.reject(new Error("no dialog")) }), /no dialog/);
  const abort = new AbortController();
  const stops = { ...weather([]), run: () => abort.abort(new Error("enough")) };
  await assert.rejects(model.respondWithTools(asked, [stops], { signal: abort.signal }), /enough/);
  await assert.rejects(model.respondWithTools({ prompt: "x" }, [weather([])]), kind("argument"));
  await assert.rejects(model.respondWithTools("x", [{ name: "x" }]), kind("argument"));
});

test("what goes wrong with a call is told to the model, word by word", async () => {
  const { answerToCall } = createRequire(import.meta.url)("../dist/tools.js");
  const told = (name, args, confirm) => answerToCall({ id: "1", type: "function", function: { name, arguments: args } }, [echo], { confirm, signal: undefined });
  const echo = { name: "echo", run: (args) => args };
  assert.equal(await told("echo", '{"a":1}'), '{"a":1}');
  assert.equal(await told("echo", ""), "{}");
  assert.equal(await told("other", "{}"), "error: there is no tool `other`");
  for (const text of ["[]", "5", "null", '"x"', '{"a":']) assert.equal(await told("echo", text), "error: the arguments are no JSON object");
  assert.equal(await told("echo", "{}", () => false), "error: the call was refused");
});

test("an answer that was cancelled calls no tool", async (t) => {
  const model = await chat(t, { context_tokens: 2048 });
  const calls = [];
  const { respond } = model;
  const asks = { id: "1", type: "function", function: { name: "weather", arguments: '{"city":"Rome"}' } };
  t.mock.method(model, "respond", async (...given) => {
    const answer = await respond.apply(model, given);
    Object.assign(answer.json, { finish_reason: "cancelled", message: { ...answer.json.message, tool_calls: [asks] } });
    return answer;
  });
  const answer = await model.respondWithTools({ ...asked, options: { max_tokens: 4 } }, [weather(calls)]);
  assert.deepEqual([answer.finishReason, calls], ["cancelled", []]);
});

test("answers are values of a schema: JSON Schema, zod, and a function that parses", async (t) => {
  const model = await chat(t);
  const json = { type: "object", properties: { name: { enum: ["Ada", "Bob"] }, old: { type: "boolean" } }, required: ["name", "old"], additionalProperties: false };
  const request = { messages: [{ role: "user", content: "Who?" }], options: { max_tokens: 90, temperature: 0, seed: 7 } };
  const plain = await model.respondAs(request, json);
  assert.ok(["Ada", "Bob"].includes(plain.name) && typeof plain.old === "boolean");
  const zod = z.strictObject({ name: z.enum(["Ada", "Bob"]), old: z.boolean().transform((old) => (old ? "old" : "young")) });
  const typed = await model.respondAs(request, zod);
  assert.ok(["old", "young"].includes(typed.old), JSON.stringify(typed));
  const parsed = await model.respondAs(request, { schema: json, parse: (value) => ({ ...value, parsed: true }) });
  assert.equal(parsed.parsed, true);
  const never = z.strictObject({ name: z.enum(["Ada", "Bob"]) }).refine(() => false, "never right");
  await assert.rejects(model.respondAs(request, never), /never right/);
  await assert.rejects(model.respondAs({ ...request, options: { max_tokens: 2 } }, json), (error) => kind("cancelled")(error) && /`length`/.test(error.message));
  await assert.rejects(model.respondAs(request, 5), kind("argument"));
  const bare = { "~standard": { version: 1, vendor: "bare", validate: (value) => ({ value }) } };
  await assert.rejects(model.respondAs(request, bare), /bare/);
});

test("the log goes to a function, and to none", async (t) => {
  const lines = [];
  await setLog((level, component, message) => lines.push([level, component, message]), "debug");
  const model = await chat(t);
  await model.respond(long(2));
  await model.close();
  await new Promise((resolve) => setTimeout(resolve, 20));
  await setLog(null);
  const count = lines.length;
  assert.ok(lines.every(([level, component, message]) => level && component && typeof message === "string"));
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(lines.length, count);
});
