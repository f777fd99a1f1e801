// Streams that run when the runtime is destroyed: reload.js BUNDLE --reload TIMES MS
import { Model, setLog } from "../src/index.ts";

const [path] = host.arguments;
const request = { prompt: "Count.", options: { max_tokens: 450, temperature: 0, ignore_eos: true } };

async function main() {
  await setLog(() => {}, "debug");
  for (;;) {
    const model = await Model.load(path, { context_tokens: 512, threads: 1, queue: 64, onProgress: () => true });
    const streams = Array.from({ length: 4 }, () => model.stream(request, { join: false }));
    await Promise.all([...streams.map((stream) => stream.answer()), model.respond(request), model.tokenize("the river")]);
  }
}

main().catch((error) => {
  host.print(`FAILED: ${error?.message} ${error?.stack}`);
  host.exit(1);
});
