// Three ways to stop: a signal, `cancel`, and leaving the loop.

import { Model, start } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  const model = await Model.load(source, { context_tokens: 2048 });
  const request = { prompt: "Count to a million.", options: { max_tokens: 1000, ignore_eos: true } };

  const abort = new AbortController();
  setTimeout(() => abort.abort(), 100);
  for await (const event of model.stream(request, { signal: abort.signal })) {
    if (event.event === "cancelled") say(`stopped after ${event.result.usage.completion_tokens} tokens`);
  }

  const stream = model.stream(request);
  for await (const event of stream) {
    // A button would do this.
    if (event.event === "text") stream.cancel();
    if (event.event === "cancelled") say("cancelled");
  }

  for await (const text of model.stream(request).text()) {
    say(`left after ${text.length} characters`);
    break;
  }
  await model.close();
}
