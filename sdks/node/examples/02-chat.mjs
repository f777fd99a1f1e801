// A question, and a conversation that remembers it.
//
//   node 02-chat.mjs MODEL

import { Model } from "cactus-engine";

const model = await Model.load(process.argv[2]);
const answer = await model.respond("Why is the sky blue?");
console.log(answer.text);
console.log(`${answer.usage.completion_tokens} tokens, ${answer.finishReason}`);

const session = await model.session({
  messages: [{ role: "system", content: "Be brief." }],
  options: { max_tokens: 40, temperature: 0 },
});
console.log((await session.respond("What is a river?")).text);
console.log((await session.respond("And a lake?")).text);
console.log(`${(await session.messages()).length} messages`);

await session.close();
await model.close();
