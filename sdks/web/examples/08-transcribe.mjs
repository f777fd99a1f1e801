// What is said in a recording, and live.

import { start, Transcriber } from "@cactus-engine/web";

/** `source` is a model that hears; `samples` is a Float32Array, mono, 16,000 a second, as an `AudioContext` of that rate gives. */
export async function run(source, say, samples) {
  await start();
  const hearer = await Transcriber.load(source);
  const { response, segments } = await hearer.transcribe({ pcm: samples }, { language: "en" });
  say(response);
  say(`${segments.length} segments`);
  await hearer.close();
}
