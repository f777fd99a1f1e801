// Functions that the model may call.
//
//   node 05-tools.mjs MODEL

import { Model, tool } from "cactus-engine";

const weather = tool({
  name: "weather",
  description: "Weather of a city",
  // A JSON Schema, or a schema of zod and others; the model cannot write anything else.
  parameters: {
    type: "object",
    properties: { city: { enum: ["Paris", "Rome"] } },
    required: ["city"],
    additionalProperties: false,
  },
  run: ({ city }) => ({ city, sky: "clear", celsius: 21 }),
});

const model = await Model.load(process.argv[2]);
const answer = await model.respondWithTools(
  {
    messages: [{ role: "user", content: "How is the weather in Paris?" }],
    tool_choice: "required",
    options: { max_tokens: 80, temperature: 0 },
  },
  [weather],
  {
    rounds: 2,
    confirm(name, args) {
      console.log(`calls ${name} ${JSON.stringify(args)}`);
      return true;
    },
  },
);
console.log(answer.finishReason, answer.text);
await model.close();
