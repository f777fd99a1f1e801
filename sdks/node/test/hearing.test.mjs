// Speech.

import assert from "node:assert/strict";
import test from "node:test";
import { Transcriber } from "../dist/node.mjs";
import { bundle, detector, kind, phrases, rising } from "./support.mjs";

test("recordings are written down, as samples of any kind", async (t) => {
  const model = await Transcriber.load(await bundle("speech/whisper"));
  t.after(() => model.close());
  const pcm = rising();
  let heard = "";
  const transcript = await model.transcribe({ pcm }, { language: "de", onText: (text) => (heard += text) });
  assert.equal(transcript.language, "de");
  assert.equal(heard, transcript.segments.map((segment) => segment.text).join(""));
  const bytes = new Uint8Array(pcm.buffer);
  const floats = Float32Array.from(pcm, (x) => x / 32768);
  for (const same of [bytes, pcm.buffer, floats]) {
    assert.equal((await model.transcribe({ pcm: same }, { language: "de" })).response, transcript.response);
  }
  const { language } = await model.detectLanguage({ pcm });
  assert.equal(typeof language, "string");
  await assert.rejects(model.transcribe("no such file.wav"));
  await assert.rejects(model.transcribe({ pcm: "x" }), kind("argument"));
  await assert.rejects(model.transcribe({ pcm }, { language: "xx" }), kind("argument"));
  const thrown = () => {
    throw new Error("from the callback");
  };
  await assert.rejects(model.transcribe({ pcm }, { language: "de", onText: thrown }), /from the callback/);
  await assert.rejects(model.transcribe({ pcm }, { signal: AbortSignal.abort(new Error("early")) }), /early/);
  const abort = new AbortController();
  const long = model.transcribe({ pcm: rising(120) }, { language: "de", signal: abort.signal, onText: () => abort.abort(new Error("late")) });
  await assert.rejects(long, /late/);
  // One is stopped alone, also while it waits for another.
  const stop = new AbortController();
  const first = model.transcribe({ pcm: rising(60) }, { language: "de" });
  const second = model.transcribe({ pcm: rising(120) }, { language: "de", signal: stop.signal });
  stop.abort(new Error("alone"));
  await assert.rejects(second, /alone/);
  const again = await model.transcribe({ pcm: rising(60) }, { language: "de" });
  assert.equal((await first).response, again.response);
  const under = model.transcribe({ pcm: rising(120) }, { language: "de" });
  const closed = assert.rejects(under, kind("cancelled"));
  await new Promise((next) => setTimeout(next, 50));
  await model.close();
  await closed;
  await assert.rejects(model.transcribe({ pcm }), kind("handle"));
});

test("speech is found, and live speech is confirmed piece by piece", async (t) => {
  const vad = await detector();
  const pcm = phrases();
  const finds = await Transcriber.load(vad);
  const { segments } = await finds.speech({ pcm });
  assert.ok(segments.length > 0 && segments.every(({ start, end }) => start < end && end <= pcm.length), JSON.stringify(segments));
  await finds.close();
  const model = await Transcriber.load(await bundle("speech/whisper"));
  t.after(() => model.close());
  const live = await model.live({ vad, language: "zh", min_chunk_sec: 0.1, silence_sec: 0.2, max_segment_sec: 1 });
  // Nobody waits: the order stays.
  const pieces = Array.from({ length: Math.ceil(pcm.length / 4000) }, (_, i) => pcm.subarray(i * 4000, (i + 1) * 4000));
  const results = await Promise.all(pieces.map((piece) => live.push(piece)));
  const last = await live.finish();
  assert.equal(last.pending, "");
  results.push(last);
  const finals = results.flatMap(({ events }) => events).filter(({ event }) => event === "final");
  const confirmed = results.map(({ confirmed }) => confirmed).join("");
  assert.ok(finals.length > 1 && confirmed.length > 0);
  assert.equal(confirmed, finals.map(({ segment, text }) => segment?.text ?? text).join(""));
  await assert.rejects(live.push(pcm), kind("handle"));
  await assert.rejects(live.finish(), kind("handle"));
  await live.close();
  const left = await model.live({ vad });
  const ignored = left.push(pcm);
  await Promise.all([left.close(), left.close(), ignored.catch(() => {})]);
  await assert.rejects(model.live({ vad, language: "xx" }), kind("argument"));
});
