// An answer as it is written.
//
//   node 03-stream.mjs MODEL

import { Model } from "cactus-engine";

const model = await Model.load(process.argv[2]);

for await (const event of model.stream("Tell me of the fox.")) {
  if (event.event === "text") process.stdout.write(event.text);
  if (event.event === "done") console.log(`\n${event.result.usage.completion_tokens} tokens`);
  if (event.event === "failed") console.error(event.text);
}

// Text alone.
for await (const text of model.stream("And of the bear?").text()) process.stdout.write(text);
console.log();

// Or a function, and the whole answer at the end.
const answer = await model.respond("And of the owl?", { onToken: (text) => process.stdout.write(text) });
console.log(`\n${answer.finishReason}`);

await model.close();
