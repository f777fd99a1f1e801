// Functions that the model may call. They run on the page.

import { Model, start, tool } from "@cactus-engine/web";

export async function run(source, say) {
  await start();
  const weather = tool({
    name: "weather",
    description: "Weather of a city",
    // The model cannot write anything else.
    parameters: {
      type: "object",
      properties: { city: { enum: ["Paris", "Rome"] } },
      required: ["city"],
      additionalProperties: false,
    },
    run: ({ city }) => ({ city, sky: "clear", celsius: 21 }),
  });

  const model = await Model.load(source, { context_tokens: 2048 });
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
        say(`calls ${name} ${JSON.stringify(args)}`);
        return true;
      },
    },
  );
  say(`${answer.finishReason}: ${answer.text}`);
  await model.close();
}
