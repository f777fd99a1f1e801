// Without a network, and with little memory.
//
//   node 10-offline-and-lifecycle.mjs MODEL

import { CactusError, checkBundle, memoryPressure, Model, prepare } from "cactus-engine";

const [source] = process.argv.slice(2);
try {
  // Downloads nothing. Without `offline`, this is how a model is fetched before it is needed.
  const path = await prepare(source, { offline: true });
  const { usable, message } = await checkBundle(path);
  console.log(usable ? "the bundle can be used" : message);
} catch (error) {
  // `kind` says what to do: `offline` and `not_found` here mean that the model has to be downloaded first.
  if (!(error instanceof CactusError)) throw error;
  console.log(error.kind, error.message);
  process.exit(1);
}

const model = await Model.load(source, { offline: true, context_tokens: 512 });
const before = await model.respond({ prompt: "The capital of France is", options: { max_tokens: 8, temperature: 0 } });

// The device is hot, or memory is short. Answers stay the same.
await model.setThreads(1, 1);
await memoryPressure();
const after = await model.respond({ prompt: "The capital of France is", options: { max_tokens: 8, temperature: 0 } });
console.log(before.text === after.text ? "the same answer" : "another answer");

await model.close();
try {
  await model.respond("Anybody there?");
} catch (error) {
  console.log(error.kind);
}
