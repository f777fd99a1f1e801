// Recordings and live sound with the official Node client, unmodified. Run by clients/run.py, which sets CACTUS_URL and, as the
// client speaks over encrypted connections alone, CACTUS_TLS_URL, whose authority is in NODE_EXTRA_CA_CERTS.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { toFile } from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const RATE = 24_000;
const SAMPLES = 3 * RATE;

/** A rising tone in 16 bits, of which the tiny model makes something that never changes. */
function tone() {
  const sound = Buffer.alloc(2 * SAMPLES);
  for (let i = 0; i < SAMPLES; i++) sound.writeInt16LE(Math.trunc(16_000 * Math.sin(i * i * 4e-6)), 2 * i);
  return sound;
}

/** `sound` as a WAV file. */
function wav(sound) {
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + sound.length, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE, 24);
  head.writeUInt32LE(2 * RATE, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(sound.length, 40);
  return Buffer.concat([head, sound]);
}

const client = new OpenAI({ baseURL: `${process.env.CACTUS_URL}/v1`, apiKey: "none", maxRetries: 0 });

test("a recording, whole, with times and as a stream", async () => {
  const file = () => toFile(wav(tone()), "tone.wav");
  const options = { model: "whisper", language: "de" };
  const whole = await client.audio.transcriptions.create({ ...options, file: await file() });
  assert.ok(whole.text);
  const told = await client.audio.transcriptions.create({ ...options, file: await file(), response_format: "verbose_json" });
  assert.ok(Math.abs(told.duration - 3) < 0.01);
  assert.equal(told.segments.map((segment) => segment.text).join("").trim(), whole.text.trim());
  const events = [];
  for await (const event of await client.audio.transcriptions.create({ ...options, file: await file(), stream: true })) events.push(event);
  const done = events.pop();
  assert.equal(done.type, "transcript.text.done");
  assert.equal(events.map((event) => event.delta).join(""), done.text);
  assert.equal(done.text, whole.text);
});

test("live sound over a realtime session", { timeout: 120_000 }, async () => {
  const encrypted = new OpenAI({ baseURL: `${process.env.CACTUS_TLS_URL}/v1`, apiKey: "a-key", maxRetries: 0 });
  const session = new OpenAIRealtimeWS({ model: "whisper" }, encrypted);
  const waiting = [];
  const come = [];
  session.on("event", (event) => (waiting.length ? waiting.shift().resolve(event) : come.push(event)));
  // An event of the kind `error` is told twice.
  session.on("error", (error) => { if (!error.error) waiting.shift()?.reject(error); });
  const next = () => come.length ? Promise.resolve(come.shift()) : new Promise((resolve, reject) => waiting.push({ resolve, reject }));

  const created = await next();
  assert.equal(created.type, "session.created");
  assert.equal(created.session.type, "transcription");
  const input = { transcription: { model: "whisper", language: "de" }, turn_detection: null };
  session.send({ type: "session.update", session: { type: "transcription", audio: { input } } });
  const updated = await next();
  assert.equal(updated.type, "session.updated");
  assert.equal(updated.session.audio.input.transcription.language, "de");

  const sound = tone();
  const said = [];
  for (let turn = 0; turn < 2; turn++) {
    for (let at = 0; at < sound.length; at += 9_600) {
      session.send({ type: "input_audio_buffer.append", audio: sound.subarray(at, at + 9_600).toString("base64") });
    }
    session.send({ type: "input_audio_buffer.commit" });
    const committed = await next();
    assert.equal(committed.type, "input_audio_buffer.committed");
    let text = "";
    let event = await next();
    for (; event.type === "conversation.item.input_audio_transcription.delta"; event = await next()) {
      assert.equal(event.item_id, committed.item_id);
      text += event.delta;
    }
    assert.equal(event.type, "conversation.item.input_audio_transcription.completed");
    assert.equal(event.transcript, text);
    said.push(text);
  }
  assert.ok(said[0]);
  assert.equal(said[1], said[0]);

  session.send({ type: "input_audio_buffer.commit" });
  const empty = await next();
  assert.equal(empty.type, "error");
  assert.equal(empty.error.code, "input_audio_buffer_commit_empty");
  session.close();
});
