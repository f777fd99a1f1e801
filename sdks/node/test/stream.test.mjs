// The contract of streams.

import assert from "node:assert/strict";
import test from "node:test";
import { CactusError } from "../dist/node.mjs";
import { ENDLESS, assertContract, chat, eventsOf, kind, long, sleep, target, folder } from "./support.mjs";

test("a stream has one last event, and its texts are the answer", async (t) => {
  const model = await chat(t);
  const hello = { messages: [{ role: "user", content: "hello there" }], options: { max_tokens: 60, temperature: 0 } };
  for (const join of [true, false]) {
    const events = await eventsOf(model.stream(hello, { join }));
    assertContract(events);
    assert.equal(events[0].event, "started");
    const text = events.filter((event) => event.event === "text").map((event) => event.text).join("");
    const last = events.at(-1);
    assert.equal(last.event, "done");
    assert.equal(text, last.result.message.content);
    assert.ok(events.every((event) => event.event !== "text" || event.text !== ""));
  }
  const stream = model.stream(hello);
  const answer = await stream.answer();
  assert.equal(answer.text, (await model.respond(hello)).text);
  assert.ok((await model.respond("hello there")).tokens.length > 0);
  assert.deepEqual(await stream.next(), { done: true, value: undefined });
});

test("cancel ends a stream within a token, however often and whenever it is called", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(ENDLESS), { join: false });
  const events = [];
  for await (const event of stream) {
    events.push(event);
    if (events.filter((event) => event.event === "text").length === 3) for (let i = 0; i < 3; i++) stream.cancel();
  }
  assertContract(events);
  assert.equal(events.at(-1).event, "cancelled");
  stream.cancel();
  const early = model.stream(long(ENDLESS));
  early.cancel();
  assert.equal((await eventsOf(early)).at(-1).event, "cancelled");
});

test("an aborted signal cancels: streams end as cancelled, promises are rejected with its reason", async (t) => {
  const model = await chat(t);
  const abort = new AbortController();
  const stream = model.stream(long(ENDLESS), { signal: abort.signal });
  await stream.next();
  abort.abort();
  const events = await eventsOf(stream);
  assert.equal(events.at(-1).event, "cancelled");
  await assert.rejects(model.respond(long(), { signal: AbortSignal.abort("why") }), (error) => error === "why");
  const later = new AbortController();
  setTimeout(() => later.abort(new Error("enough")), 3);
  await assert.rejects(model.respond(long(ENDLESS), { signal: later.signal }), /enough/);
  const heard = new AbortController();
  await assert.rejects(model.respond(long(ENDLESS), { signal: heard.signal, onToken: () => heard.abort() }), { name: "AbortError" });
});

test("leaving a loop cancels, and nothing comes after it", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(ENDLESS), { join: false });
  let count = 0;
  for await (const _ of stream) if (++count === 2) break;
  assert.deepEqual(await stream.next(), { done: true, value: undefined });
  await assert.rejects(stream.answer(), kind("handle"));
  let pieces = 0;
  for await (const piece of model.stream(long(ENDLESS), { join: false }).text()) {
    assert.equal(typeof piece, "string");
    if (++pieces === 2) break;
  }
});

test("close waits, may be called again, and a closed stream gives the error handle", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(ENDLESS), { join: false });
  await stream.next();
  const waiting = async () => {
    for (;;) if ((await stream.next()).done) return "done";
  };
  const refused = assert.rejects(waiting(), kind("handle"));
  await Promise.all([stream.close(), stream.close()]);
  await refused;
  await assert.rejects(stream.next(), kind("handle"));
  await stream.close();
  stream.cancel();
  await assert.rejects(stream.consent(true), kind("handle"));
  // One that has not begun.
  const early = model.stream(long(ENDLESS));
  await early.close();
  await assert.rejects(early.next(), kind("handle"));
  // As `await using` and `using` do.
  const left = model.stream(long(ENDLESS));
  await left[Symbol.asyncDispose]();
  await assert.rejects(left.next(), kind("handle"));
  model.stream(long(ENDLESS))[Symbol.dispose]();
});

test("a request that is refused says so where it is asked for, and is no unhandled rejection", async (t) => {
  const model = await chat(t);
  const stream = model.stream({ prompt: "x", nothing: 1 });
  await assert.rejects(stream.ready(), (error) => error instanceof CactusError && error.kind === "argument" && error.message.includes("nothing"));
  await assert.rejects(stream.next(), kind("argument"));
  await stream.close();
  model.stream({ prompt: "x", nothing: 1 });
  await sleep(20);
  await assert.rejects(model.respond({ prompt: "x", regex: "(" }), kind("argument"));
  await assert.rejects(model.respond(7), kind("argument"));
});

test("closing a model ends its streams as cancelled", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(ENDLESS), { join: false });
  await stream.next();
  await model.close();
  const events = await eventsOf(stream);
  assertContract(events);
  assert.equal(events.at(-1).event, "cancelled");
  await assert.rejects(model.respond("hello"), kind("handle"));
  await assert.rejects(model.stream("hello").next(), kind("handle"));
  await model.close();
});

test("texts that came while nobody read are joined, and a loop leaves room for timers", async (t) => {
  const model = await chat(t);
  const split = await eventsOf(model.stream(long(300), { join: false }));
  const joined = model.stream(long(300));
  await joined.next();
  // The rest has come when nothing is under way any more.
  for (let busy = true; busy; await sleep(5)) {
    const { requests } = await model.info();
    busy = requests.running + requests.waiting > 0;
  }
  const events = await eventsOf(joined);
  const text = (events) => events.filter((event) => event.event === "text").map((event) => event.text).join("");
  assert.equal(text(events), text(split));
  assert.ok(events.length < split.length / 4, `${events.length} of ${split.length}`);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  for (let i = 0; i < 5; i++) await eventsOf(model.stream(long(300), { join: false }));
  clearInterval(timer);
  assert.ok(turns > 3, `${turns} turns`);
});

test("those who ask at the same time get the events in their order", async (t) => {
  const model = await chat(t);
  const stream = model.stream(long(20), { join: false });
  const all = await Promise.all(Array.from({ length: 40 }, () => stream.next()));
  const events = all.filter(({ done }) => !done).map(({ value }) => value);
  assertContract(events);
  assert.ok(all.at(-1).done);
});

test("characters come whole", async (t) => {
  const model = await chat(t);
  for (let seed = 1; seed < 6; seed++) {
    const request = { prompt: "Write: ", regex: "[äöß€東😀😃]{9}", options: { max_tokens: 120, temperature: 1, seed } };
    const events = await eventsOf(model.stream(request, { join: false }));
    for (const event of events) if (event.event === "text") assert.match(event.text, /^[äöß€東😀😃]+$/u);
  }
});

test("nothing leaves without a yes", async (t) => {
  const model = await chat(t);
  const far = await target(t, "from afar");
  const options = { target: far.address, handoff: "always", state: folder() };
  await model.setPolicy(null, options);
  // Whoever goes on without an answer has said no.
  const unanswered = await eventsOf(model.stream("hello"));
  assert.ok(unanswered.some((event) => event.event === "consent"));
  assert.equal(unanswered.at(-1).result.route, "local");
  assert.equal((await model.respond("hello")).route, "local");
  for (const yes of [false, true]) {
    assert.equal(far.asked, 0);
    const stream = model.stream("hello");
    for await (const event of stream) if (event.event === "consent") await stream.consent(yes);
    assert.equal((await stream.answer()).route, yes ? "cloud" : "local");
  }
  const questions = [];
  const answer = await model.respond("hello", {
    async onConsent(question) {
      questions.push(question);
      await sleep(20);
      return true;
    },
  });
  assert.deepEqual([answer.route, answer.text, questions.length, questions[0].classes], ["cloud", "from afar", 1, ["text"]]);
  assert.ok(answer.costUsd !== undefined && answer.answeredBy !== undefined);
  const thrown = model.stream("hello", { onConsent: () => Promise.reject(new Error("no dialog")) });
  await assert.rejects(eventsOf(thrown), /no dialog/);
  await thrown.close();
  // Whoever cancels or closes does not wait for a dialog.
  let asks;
  const asking = () => new Promise((resolve) => (asks = resolve));
  const never = () => (asks(), new Promise(() => {}));
  for (const leave of ["cancel", "close", "return"]) {
    const asked = asking();
    const stream = model.stream("hello", { onConsent: never });
    const reading = eventsOf(stream).catch((error) => [error]);
    await asked;
    await stream[leave]();
    const events = await reading;
    if (leave === "cancel") assertContract(events);
    // Whoever closed or left it hears nothing more.
    else assert.ok(events.length === 0 || (events[0].kind === "handle" && leave === "close"), JSON.stringify(events));
    await stream.close();
  }
  const abort = new AbortController();
  const aborted = asking();
  const stopped = model.respond("hello", { onConsent: never, signal: abort.signal });
  await aborted;
  abort.abort(new Error("gone"));
  await assert.rejects(stopped, /gone/);
  await assert.rejects(model.setPolicy("version = 1\nhandof = 1\n", { state: options.state }), kind("argument"));
  await model.setPolicy(null, null);
  assert.equal((await model.respond("hello")).route, undefined);
  assert.equal(far.asked, 2);
});
