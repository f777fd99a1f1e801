// Functions that the model may call.
import { Model, tool } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const weather = tool({
    name: "weather",
    parameters: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] },
    run: (args) => ({ ...(args as object), sky: "clear" }),
  });
  const model = await Model.load(source);
  const request = { messages: [{ role: "user", content: "Weather?" }], tool_choice: "required", options: { max_tokens: 80, temperature: 0 } };
  const confirm = (name: string, args: unknown) => (show(`calls ${name} ${JSON.stringify(args)}`), true);
  show((await model.respondWithTools(request, [weather], { rounds: 1, confirm })).finishReason);
  await model.close();
}
