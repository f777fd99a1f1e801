// A question, and a conversation that remembers it.
import { Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const model = await Model.load(source);
  show((await model.respond("Why is the sky blue?")).text);
  const session = await model.session({ messages: [{ role: "system", content: "Be brief." }], options: { max_tokens: 40 } });
  show((await session.respond("What is a river?")).text);
  show((await session.respond("And a lake?")).text);
  show(`${(await session.messages()).length} messages`);
  await session.close();
  await model.close();
}
