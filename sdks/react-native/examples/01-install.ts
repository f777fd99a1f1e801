// Which library is this, and can it use a model?
import { Cactus, Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  show(`libcactus ${Cactus.version()}, ABI ${Cactus.abiVersion()}`);
  const model = await Model.load(source, { onProgress: ({ stage, done, total }) => total > 0 && show(`${stage} ${Math.round((100 * done) / total)} %`) });
  const info = await model.info();
  show(`${info.family}, ${info.context_tokens} tokens of context`);
  await model.close();
}
