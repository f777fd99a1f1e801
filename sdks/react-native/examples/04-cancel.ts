// Ways to stop an answer. Each works within a token. A screen that is left aborts its signal.
import { Model } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string): Promise<void> {
  const model = await Model.load(source);
  const request = { prompt: "Count to a thousand: one, two,", options: { max_tokens: 1500, ignore_eos: true } };
  const stream = model.stream(request);
  stream.cancel();
  show((await stream.answer()).finishReason);
  for await (const _ of model.stream(request)) break;
  show("left");
  const abort = new AbortController();
  await model.respond(request, { signal: abort.signal, onToken: () => abort.abort() }).catch(() => show("aborted"));
  const last = model.stream(request);
  await last.next();
  await model.close();
  show("closed");
}
