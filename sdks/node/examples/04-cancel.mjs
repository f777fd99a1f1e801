// Four ways to stop an answer. Each works within a token.
//
//   node 04-cancel.mjs MODEL

import { Model } from "cactus-engine";

const model = await Model.load(process.argv[2]);
const request = { prompt: "Count to a thousand: one, two,", options: { max_tokens: 1500, ignore_eos: true } };

// By name. The last event says so.
const stream = model.stream(request);
for await (const event of stream) {
  if (event.event === "text") stream.cancel();
  if (event.event === "cancelled") console.log(`cancelled after ${event.result.usage.completion_tokens} tokens`);
}

// By leaving the loop.
for await (const _ of model.stream(request)) break;
console.log("left");

// By a signal, as `fetch` has it.
const abort = new AbortController();
try {
  await model.respond(request, { signal: abort.signal, onToken: () => abort.abort() });
} catch (error) {
  console.log(error.name);
}

// By closing the model, which waits until nothing runs.
const last = model.stream(request);
await last.next();
await model.close();
console.log("closed");
