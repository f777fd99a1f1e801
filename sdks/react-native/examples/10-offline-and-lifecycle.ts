// Without a network, and with little memory.
import { CactusError, checkBundle, memoryPressure, Model, prepare } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const path = await prepare(source, { offline: true });
  show((await checkBundle(path)).usable ? "the bundle can be used" : "it cannot");
  const model = await Model.load(source, { offline: true });
  const request = { prompt: "The capital of France is", options: { max_tokens: 8, temperature: 0 } };
  const before = await model.respond(request);
  // The device is hot, or memory is short.
  await model.setThreads(1, 1);
  await memoryPressure();
  show((await model.respond(request)).text === before.text ? "the same answer" : "another answer");
  await model.close();
  await model.respond(request).catch((error) => show(error instanceof CactusError ? error.kind : String(error)));
}
