// A value in place of text. The engine lets the model write nothing else.
import { Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const schema = {
    type: "object",
    properties: { name: { enum: ["Ada", "Bob"] }, age: { type: "integer", minimum: 1, maximum: 120 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const parse = (value: unknown) => value as { name: string; age: number };
  const model = await Model.load(source);
  const request = { messages: [{ role: "user", content: "Who?" }], options: { max_tokens: 90, temperature: 0 } };
  const { name, age } = await model.respondAs(request, { schema, parse });
  show(`${name} ${age}`);
  await model.close();
}
