// A question, and a conversation that remembers it.

import { Model, start } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  const model = await Model.load(source, { context_tokens: 2048 });
  const answer = await model.respond("Why is the sky blue?");
  say(answer.text);
  say(`${answer.usage.completion_tokens} tokens, ${answer.finishReason}`);

  const session = await model.session({
    messages: [{ role: "system", content: "Be brief." }],
    options: { max_tokens: 40, temperature: 0 },
  });
  say((await session.respond("What is a river?")).text);
  say((await session.respond("And a lake?")).text);
  say(`${(await session.messages()).length} messages`);

  await session.close();
  await model.close();
}
