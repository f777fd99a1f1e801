// Runs the examples: examples.js CHAT SEES HEARS EMBEDS PICTURE FOLDER
import * as e01 from "../examples/01-install.ts";
import * as e02 from "../examples/02-chat.ts";
import * as e03 from "../examples/03-stream.ts";
import * as e04 from "../examples/04-cancel.ts";
import * as e05 from "../examples/05-tools.ts";
import * as e06 from "../examples/06-structured.ts";
import * as e07 from "../examples/07-picture-or-sound.ts";
import * as e08 from "../examples/08-transcribe.ts";
import * as e09 from "../examples/09-embed-and-search.ts";
import * as e10 from "../examples/10-offline-and-lifecycle.ts";
import * as e11 from "../examples/11-hybrid.ts";
import { prepare } from "../src/index.ts";

// React Native has one; this host has none.
globalThis.AbortController ??= class {
  signal = {
    aborted: false,
    reason: undefined,
    listeners: new Set(),
    addEventListener(_, listener) {
      this.listeners.add(listener);
    },
    removeEventListener(_, listener) {
      this.listeners.delete(listener);
    },
  };
  abort() {
    this.signal.aborted = true;
    for (const listener of this.signal.listeners) listener();
  }
};

function base64(bytes) {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  let text = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const [a, b, c] = [bytes[i], bytes[i + 1] ?? 0, bytes[i + 2] ?? 0];
    const part = [a >> 2, ((a & 3) << 4) | (b >> 4), ((b & 15) << 2) | (c >> 6), c & 63].map((digit) => digits[digit]).join("");
    text += part.slice(0, i + 1 < bytes.length ? (i + 2 < bytes.length ? 4 : 3) : 2).padEnd(4, "=");
  }
  return text;
}

async function main() {
  const [golden, folder] = host.arguments;
  const made = (name) => prepare(`${golden}/${name}`, { cache: `${folder}/models`, offline: true });
  const chat = await made("models/qwen2_tied");
  const sees = await made("seeing/smolvlm");
  const picture = (name) => base64(new Uint8Array(host.read(`${golden}/pictures/files/${name}.png`)));
  const answers = [];
  const rising = Int16Array.from({ length: 32_000 }, (_, i) => 16_000 * Math.sin(i * i * 1e-5));
  const table = [
    ["01-install", e01, [chat], /ABI 1\n[^]*tokens of context/],
    ["02-chat", e02, [chat], /5 messages/],
    ["03-stream", e03, [chat], /\d+ tokens\n/],
    ["04-cancel", e04, [chat], /cancelled\nleft\naborted\nclosed/],
    ["05-tools", e05, [chat], /calls weather .*\n(tool_calls|context_full|length)/],
    ["06-structured", e06, [chat], /^(Ada|Bob) \d+/],
    ["07-picture-or-sound", e07, [sees, picture("rgb")], /./],
    ["07-picture-or-sound", e07, [sees, picture("gray")], /./],
    ["08-transcribe", e08, [await made("speech/whisper"), rising], /segments, en/],
    ["09-embed-and-search", e09, [await made("embedding/bert"), `${folder}/index`], /^-?\d\.\d{3} .*\n-?\d\.\d{3} .*$/],
    ["10-offline-and-lifecycle", e10, [chat], /can be used\nthe same answer\nhandle/],
    // Nobody says yes, so nobody is asked.
    ["11-hybrid", e11, [chat, "http://127.0.0.1:9/v1#m", async () => false, `${folder}/state`], /^local, because of /],
  ];
  for (const [name, { example }, args, expected] of table) {
    const lines = [];
    await example((line) => lines.push(line), ...args);
    const said = lines.join("\n");
    if (!expected.test(said)) throw new Error(`${name}: ${said}`);
    if (args[0] === sees) answers.push(said);
    host.print(`ok: ${name}`);
  }
  if (answers.length !== 2 || answers[0] === answers[1]) throw new Error(`the same answer to two pictures: ${answers[0]}`);
}

main().then(
  () => host.exit(0),
  (error) => {
    host.print(`FAILED: ${error?.message} ${error?.stack}`);
    host.exit(1);
  },
);
