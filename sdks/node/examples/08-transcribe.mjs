// Writes down what is said in a file, and live.
//
//   node 08-transcribe.mjs MODEL SOUND [VAD]

import { Transcriber } from "cactus-engine";

const [source, file, vad] = process.argv.slice(2);
const model = await Transcriber.load(source);

const transcript = await model.transcribe(file, { language: "en", onText: (text) => process.stdout.write(text) });
console.log(`\n${transcript.segments.length} segments, ${transcript.language}`);

if (vad !== undefined) {
  // Samples of a microphone: mono, 16,000 a second, 16 bits. Here a tone stands in for it.
  const live = await model.live({ vad, language: "en" });
  const second = Int16Array.from({ length: 16_000 }, (_, i) => 8_000 * Math.sin(i / 10));
  for (let i = 0; i < 3; i++) {
    const { confirmed, pending } = await live.push(second);
    console.log(`certain: ${JSON.stringify(confirmed)}, perhaps: ${JSON.stringify(pending)}`);
  }
  console.log(`the end: ${JSON.stringify((await live.finish()).confirmed)}`);
}
await model.close();
