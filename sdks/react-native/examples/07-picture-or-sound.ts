// A question about a picture, given as base64: what an image picker gives.
import { Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string, data: string): Promise<void> {
  const model = await Model.load(source);
  const content = [
    { type: "image", data },
    { type: "text", text: "What is in the picture?" },
  ];
  show((await model.respond({ messages: [{ role: "user", content }], options: { max_tokens: 20 } })).text);
  await model.close();
}
