// The contract on real JSI, and how much an event costs: contract.js BUNDLE
import * as api from "../src/index.ts";

const [path] = host.arguments;
const { Model, CactusError } = api;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(is, what) {
  if (!is) throw new Error(`not so: ${what}`);
}

async function refused(work, kind) {
  try {
    await (typeof work === "function" ? work() : work);
  } catch (error) {
    check(error instanceof CactusError && error.kind === kind, `expected ${kind}, found ${error.kind}: ${error.message}`);
    return;
  }
  throw new Error(`expected an error of the kind ${kind}`);
}

const long = (tokens) => ({ prompt: "Count.", options: { max_tokens: tokens, temperature: 0, seed: 1, ignore_eos: true } });
/** Tokens of an answer that is not over before somebody cancels it, however fast the machine is. */
const ENDLESS = 50_000;
const LASTS = ["done", "cancelled", "failed"];

async function eventsOf(stream) {
  const events = [];
  for (;;) {
    const { done, value } = await stream.next();
    if (done) break;
    events.push(value);
  }
  check(events.filter((event) => LASTS.includes(event.event)).length === 1, "one last event");
  check(LASTS.includes(events[events.length - 1].event), "nothing after it");
  return events;
}

const tests = {
  async "a stream has one last event, and its texts are the answer"(model) {
    const events = await eventsOf(model.stream(long(20), { join: false }));
    const text = events.filter(({ event }) => event === "text").map(({ text }) => text).join("");
    check(text === events[events.length - 1].result.message.content, "texts are the answer");
    check(text === (await model.respond(long(20))).text, "and the same when it is waited for");
  },
  async "cancel, leaving and closing"(model) {
    const stream = model.stream(long(ENDLESS), { join: false });
    await stream.next();
    stream.cancel();
    stream.cancel();
    const events = await eventsOf(stream);
    check(events[events.length - 1].event === "cancelled", "cancelled");
    const left = model.stream(long(ENDLESS));
    await left.next();
    await left.return();
    check((await left.next()).done, "nothing after leaving");
    const closed = model.stream(long(ENDLESS), { join: false });
    await closed.next();
    const waiting = (async () => {
      while (!(await closed.next()).done);
    })();
    await Promise.all([closed.close(), closed.close()]);
    await refused(waiting, "handle");
    await refused(() => closed.next(), "handle");
  },
  async "errors have kinds"(model) {
    await refused(model.respond({ prompt: "x", nothing: 1 }), "argument");
    await refused(() => model.tokenize("a\0b"), "argument");
    await refused(() => model.tokenize(5), "argument");
    await refused(() => Model.load("content://x"), "argument");
    const raw = globalThis.__cactusNative;
    for (const handle of [0, -1, 1.5, 1e300]) {
      let kind;
      try {
        raw.modelInfo(handle);
      } catch (error) {
        kind = error.kind;
      }
      check(kind === "handle", `${handle} is no handle`);
    }
    check(Object.keys(raw).length > 40 && raw.nothing === undefined, "names");
  },
  async "progress stops what gives false"() {
    const stages = [];
    const model = await Model.load(path, { context_tokens: 128, threads: 1, onProgress: ({ stage }) => void stages.push(stage) });
    await model.close();
    await refused(model.info(), "handle");
    await refused(model.respond("x"), "handle");
    check(stages.includes("loading"), stages.join());
    await refused(Model.load(path, { context_tokens: 128, onProgress: ({ stage }) => stage !== "loading" }), "cancelled");
    let thrown;
    const fails = () => {
      throw new Error("the screen is gone");
    };
    await Model.load(path, { context_tokens: 128, onProgress: fails }).catch((error) => (thrown = error.message));
    check(thrown === "the screen is gone", `passes on what it throws: ${thrown}`);
  },
  async "a call that is refused closes nothing"() {
    const raw = globalThis.__cactusNative;
    const handle = await raw.modelLoad(path, '{"context_tokens": 128, "threads": 1}', null);
    let kind;
    try {
      // Closes what the first argument names, but the second is wrong.
      raw.streamTranscribeStop(handle, "yes");
    } catch (error) {
      kind = error.kind;
    }
    check(kind === "argument", `refused: ${kind}`);
    await raw.modelInfo(handle);
    await raw.modelClose(handle);
    try {
      raw.modelInfo(handle);
    } catch (error) {
      kind = error.kind;
    }
    check(kind === "handle", `closed: ${kind}`);
  },
  async "closing a conversation waits for its request"(model) {
    const session = await model.session();
    const stream = session.stream({ messages: [{ role: "user", content: "x" }], options: long(ENDLESS).options });
    await stream.next();
    await session.close();
    const { requests } = await model.info();
    check(requests.running + requests.waiting === 0, JSON.stringify(requests));
    const events = await eventsOf(stream);
    check(events[events.length - 1].event === "cancelled", "cancelled");
  },
  async "many streams at once"(model) {
    const all = await Promise.all(Array.from({ length: 32 }, () => eventsOf(model.stream(long(30), { join: false }))));
    const texts = all.map((events) => events[events.length - 1].result.message.content);
    check(texts.every((text) => text === texts[0]), "all the same");
  },
};

async function interleavings(count) {
  let state = 7;
  const draw = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const load = () => Model.load(path, { context_tokens: 128, threads: 1, queue: 64 });
  let model = await load();
  const ends = {};
  for (let round = 0; round < count; round++) {
    const work = [];
    for (let i = 0; i <= draw(4); i++) {
      const stream = model.stream(long(1 + draw(60)), { join: draw(2) === 0 });
      const leave = draw(10);
      work.push(
        (async () => {
          let count = 0;
          let last;
          try {
            for (;;) {
              const { done, value } = await stream.next();
              if (done) break;
              check(last === undefined, "nothing after the last event");
              if (LASTS.includes(value.event)) last = value.event;
              if (++count === leave) await [() => stream.cancel(), () => stream.close(), () => stream.return(), () => {}][draw(4)]();
            }
          } catch (error) {
            check(error.kind === "handle", error.stack);
            return "handle";
          }
          if (draw(2) === 0) await stream.close();
          return last ?? "left";
        })(),
      );
    }
    if (draw(5) === 0) await sleep(draw(3));
    if (draw(8) === 0) work.push(model.close().then(() => "closed"));
    for (const end of await Promise.all(work)) ends[end] = (ends[end] ?? 0) + 1;
    if (model.isClosed) model = await load();
  }
  await model.close();
  check(ends.done > 0 && ends.cancelled > 0 && ends.closed > 0, JSON.stringify(ends));
  return JSON.stringify(ends);
}

async function main() {
  const model = await Model.load(path, { context_tokens: 60_000, threads: 1, queue: 4096 });
  for (const [name, test] of Object.entries(tests)) {
    await test(model);
    host.print(`ok: ${name}`);
  }
  await model.close();
  const rounds = Number(host.arguments[1] ?? 100);
  host.print(`ok: ${rounds} interleavings ${await interleavings(rounds)}`);
}

main().then(
  () => host.exit(0),
  (error) => {
    host.print(`FAILED: ${error?.stack ?? error} ${error?.message ?? ""}`);
    host.exit(1);
  },
);
