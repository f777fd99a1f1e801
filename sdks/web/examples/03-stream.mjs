// An answer as it is made, while the model comes with progress.

import { Model, start } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  const model = await Model.load(source, {
    context_tokens: 2048,
    onProgress: ({ stage, done, total }) => say(total > 0 ? `${stage} ${Math.round((100 * done) / total)} %` : stage),
  });
  const stream = model.stream({ prompt: "Once upon a time", options: { max_tokens: 40 } });
  for await (const event of stream) {
    if (event.event === "text") say(event.text);
    if (event.event === "done") say(`${event.result.usage.completion_tokens} tokens`);
  }
  await model.close();
}
