// Tiny models of random weights, converted once by the library itself, and small things that tests share.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { Model, prepare } from "../dist/node.mjs";

const here = dirname(fileURLToPath(import.meta.url));
export const golden = process.env.CACTUS_GOLDEN ?? join(here, "..", "..", "..", "golden");

/** A folder that is gone when the process ends. */
export function folder() {
  const made = mkdtempSync(join(tmpdir(), "cactus-node-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  return made;
}

const cache = process.env.CACTUS_TEST_CACHE ?? folder();
mkdirSync(cache, { recursive: true });
const bundles = new Map();

/** The folder of a bundle of a golden model, such as `models/qwen2_tied`. */
export function bundle(name) {
  if (!bundles.has(name)) bundles.set(name, prepare(join(golden, name), { cache, offline: true }));
  return bundles.get(name);
}

/** A golden model that chats, with a context that calls of tools and long answers fit into, and its bundle. */
export const chatSource = roomy();
export const chatBundle = () => {
  if (!bundles.has("chat")) bundles.set("chat", prepare(chatSource, { cache, offline: true }));
  return bundles.get("chat");
};

function roomy() {
  const path = join(cache, "qwen2_roomy");
  if (!existsSync(path)) {
    cpSync(join(golden, "models/qwen2_tied"), path, { recursive: true });
    const config = join(path, "config.json");
    writeFileSync(config, readFileSync(config, "utf8").replace(/("max_position_embeddings": )\d+/, "$165536"));
  }
  return path;
}

/** A model that chats, with `options`. It is closed at the end of the test `t`. */
export async function chat(t, options = {}) {
  const model = await Model.load(await chatBundle(), { context_tokens: 60_000, threads: 1, queue: 4096, ...options });
  t.after(() => model.close());
  return model;
}

/** Tokens of an answer that is not over before somebody cancels it, however fast the machine is. */
export const ENDLESS = 50_000;

/** A request that goes on for `tokens`. */
export function long(tokens = 200, prompt = "Count.") {
  return { prompt, options: { max_tokens: tokens, temperature: 0, seed: 1, ignore_eos: true } };
}

export const LASTS = ["done", "cancelled", "failed"];

export async function eventsOf(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** Exactly one last event, at the end. */
export function assertContract(events) {
  const lasts = events.filter((event) => LASTS.includes(event.event));
  assert.equal(lasts.length, 1, JSON.stringify(events.map((event) => event.event)));
  assert.equal(events.at(-1), lasts[0]);
}

export function kind(wanted) {
  return (error) => {
    assert.equal(error.name, "CactusError", error.stack);
    assert.equal(error.kind, wanted, error.message);
    return true;
  };
}

/** A target that answers everything with `text`. Gives its address, and how often it was asked. */
export async function target(t, text) {
  const state = { asked: 0, address: "" };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      state.asked++;
      const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
      if (JSON.parse(body).stream === true) {
        const chunk = (delta, finish_reason) => ({ id: "x", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] });
        const last = { ...chunk({}, "stop"), usage };
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const one of [chunk({ role: "assistant", content: text }, null), last]) response.write(`data: ${JSON.stringify(one)}\n\n`);
        response.end("data: [DONE]\n\n");
        return;
      }
      const message = { role: "assistant", content: text };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "x", object: "chat.completion", created: 1, model: "m", choices: [{ index: 0, message, finish_reason: "stop" }], usage }));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  state.address = `http://127.0.0.1:${server.address().port}/v1#m`;
  return state;
}

/** The folder of a bundle that finds speech: it hears one tone, 250 Hz. In the form of Silero VAD's package. */
export async function detector() {
  const [fft, bin] = [256, 4];
  const bins = fft / 2 + 1;
  const basis = new Float32Array(2 * bins * fft);
  for (let i = 0; i < fft; i++) {
    const wave = Math.fround((2 * Math.PI * bin * i) / fft);
    basis[bin * fft + i] = Math.cos(wave);
    basis[(bins + bin) * fft + i] = Math.sin(wave);
  }
  const first = new Float32Array(bins * 3).fill(1, bin * 3, bin * 3 + 3);
  const layers = [2, 3, 4].flatMap((n) => [
    [`conv${n}.weight`, [1, 1, 3], [1, 1, 1]],
    [`conv${n}.bias`, [1], [0]],
  ]);
  const tensors = [
    ["stft_conv.weight", [2 * bins, 1, fft], basis],
    ["conv1.weight", [1, bins, 3], first],
    ["conv1.bias", [1], [0]],
    ...layers,
    ["lstm_cell.weight_ih", [4, 1], [0, 0, 0.1, 0]],
    ["lstm_cell.weight_hh", [4, 1], [0, 0, 0, 0]],
    ["lstm_cell.bias_ih", [4], [10, -10, 0, 10]],
    ["lstm_cell.bias_hh", [4], [0, 0, 0, 0]],
    ["final_conv.weight", [1, 1, 1], [20]],
    ["final_conv.bias", [1], [-10]],
  ];
  const header = {};
  const data = [];
  let at = 0;
  for (const [name, shape, values] of tensors) {
    const bytes = Buffer.from(Float32Array.from(values).buffer);
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    data.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  const path = join(folder(), "silero_vad_16k.safetensors");
  writeFileSync(path, Buffer.concat([size, text, ...data]));
  return prepare(path, { cache, offline: true });
}

/** Phrases of that tone, with silence between them, in samples. */
export function phrases() {
  const parts = [[0.5, 0.3], [0.6, 1.2], [0.6, 0.5]].map(([silence, tone]) => {
    const samples = new Int16Array(Math.round((silence + tone) * 16_000));
    const from = Math.round(silence * 16_000);
    for (let i = from; i < samples.length; i++) samples[i] = 16_000 * Math.sin((2 * Math.PI * 250 * (i - from)) / 16_000);
    return samples;
  });
  const all = new Int16Array(parts.reduce((sum, part) => sum + part.length, 8_000));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A tone that rises, in samples. */
export function rising(seconds = 2) {
  return Int16Array.from({ length: seconds * 16_000 }, (_, i) => Math.trunc(16_000 * Math.sin(i * i * 1e-5)));
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
