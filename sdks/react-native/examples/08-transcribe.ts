// Writes down what is said: samples of a microphone, mono, 16,000 a second, 16 bits; or the path of a file in place of them.
import { Transcriber } from "cactus-engine-react-native";

export async function example(show: (line: string) => void, source: string, pcm: Int16Array): Promise<void> {
  const model = await Transcriber.load(source);
  const transcript = await model.transcribe({ pcm }, { language: "en", onText: show });
  show(`${transcript.segments.length} segments, ${transcript.language}`);
  await model.close();
}
