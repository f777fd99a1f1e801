// An answer as it is written.
import { Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const model = await Model.load(source);
  let text = "";
  for await (const event of model.stream({ messages: [{ role: "user", content: "Tell me of the fox." }], options: { max_tokens: 60 } })) {
    if (event.event === "text") text += event.text;
    if (event.event === "done") show(`${event.result.usage.completion_tokens} tokens`);
    if (event.event === "failed") show(`failed: ${event.text}`);
  }
  show(text);
  const answer = await model.respond("And of the owl?", { onToken: (piece) => void (text += piece) });
  show(answer.finishReason);
  await model.close();
}
