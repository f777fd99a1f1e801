// A value in place of text. The engine lets the model write nothing else.
//
//   node 06-structured.mjs MODEL

import { Model } from "cactus-engine";

const person = {
  type: "object",
  properties: { name: { enum: ["Ada", "Bob"] }, age: { type: "integer", minimum: 1, maximum: 120 } },
  required: ["name", "age"],
  additionalProperties: false,
};

const model = await Model.load(process.argv[2]);
const request = { messages: [{ role: "user", content: "Who wrote the first program?" }], options: { max_tokens: 90, temperature: 0 } };

const { name, age } = await model.respondAs(request, person);
console.log(name, age);

// With a function that makes a value of it. A schema of zod is taken as it is: `respondAs(request, z.object({ … }))`.
const text = await model.respondAs(request, { schema: person, parse: ({ name, age }) => `${name} (${age})` });
console.log(text);
await model.close();
