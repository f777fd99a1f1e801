// Without a network, and with little memory.

import { CactusError, memoryPressure, Model, prepare, start, stop } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  try {
    // Fetches the bundle where it is not kept yet; with `offline: true` it would say so instead.
    await prepare(source);
  } catch (error) {
    // `offline`, `not_found`, `fetch`, or `system` where there is no room.
    if (!(error instanceof CactusError)) throw error;
    say(`${error.kind}: ${error.message}`);
    return;
  }

  const model = await Model.load(source, { offline: true, context_tokens: 512 });
  const request = { prompt: "The capital of France is", options: { max_tokens: 8, temperature: 0 } };
  const before = await model.respond(request);
  await memoryPressure();
  const after = await model.respond(request);
  say(before.text === after.text ? "the same answer" : "another answer");
  await model.close();
  await model.respond("Anybody there?").catch((error) => say(error.kind));

  // The page is hidden, and its memory is wanted: everything goes.
  stop();
  await start();
  say("started again");
}
