// An answer that is a value of a form.

import { Model, start } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  const model = await Model.load(source, { context_tokens: 2048 });
  const schema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 20 }, legs: { enum: [0, 2, 4, 6, 8] } },
    required: ["name", "legs"],
    additionalProperties: false,
  };
  const animal = await model.respondAs({ messages: [{ role: "user", content: "Name an animal." }], options: { max_tokens: 80 } }, schema);
  say(`${animal.name} has ${animal.legs} legs`);
  await model.close();
}
