// Runs all examples on tiny models, with the host that is given: examples.mjs HOST [ARGUMENT...]

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { bundle, detector, chatBundle, folder, golden, rising } from "./support.mjs";

const run = promisify(execFile);
const examples = join(dirname(fileURLToPath(import.meta.url)), "..", "examples");
const host = process.argv.slice(2);

/** A sound in a file. */
function wave() {
  const pcm = Buffer.from(rising().buffer);
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + pcm.length, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(16_000, 24);
  head.writeUInt32LE(32_000, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(pcm.length, 40);
  const path = join(folder(), "rising.wav");
  writeFileSync(path, Buffer.concat([head, pcm]));
  return path;
}

/** A target that says one thing. */
async function target() {
  const server = createServer((request, response) => {
    request.resume();
    request.on("end", () => {
      const one = (delta, finish_reason) => `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }], ...(finish_reason ? { usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } } : {}) })}\n\n`;
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`${one({ role: "assistant", content: "from afar" }, null)}${one({}, "stop")}data: [DONE]\n\n`);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, address: `http://127.0.0.1:${server.address().port}/v1#m` };
}

const chat = await chatBundle();
const { server, address } = await target();
const sees = await bundle("seeing/smolvlm");
const answers = [];
const table = [
  ["01-install", [chat], /ABI 1\n[^]*tokens of context/],
  ["02-chat", [chat], /tokens, \w+\n[^]*5 messages/],
  ["03-stream", [chat], /\d+ tokens\n/],
  ["04-cancel", [chat], /cancelled after \d+ tokens\nleft\nAbortError\nclosed/],
  ["05-tools", [chat], /calls weather .*\ncalls weather .*\ntool_calls/],
  ["06-structured", [chat], /^(Ada|Bob) \d+\n\1 \(\d+\)/],
  ["07-picture-or-sound", [sees, join(golden, "pictures/files/rgb.png")], /./],
  ["07-picture-or-sound", [sees, join(golden, "pictures/files/gray.png")], /./],
  ["08-transcribe", [await bundle("speech/whisper"), wave(), await detector()], /segments, en\n(certain.*\n){3}the end/],
  ["09-embed-and-search", [await bundle("embedding/bert")], /^-?\d\.\d{3} .*\n-?\d\.\d{3} .*\n$/],
  ["10-offline-and-lifecycle", [chat], /can be used\nthe same answer\nhandle/],
  ["11-hybrid", [chat, address, "y"], /May text go to 127[^]*from afar\ncloud/],
  ["11-hybrid", [chat, address, "n"], /\nlocal/],
];
const env = { ...process.env, STATE: folder() };
for (const [name, args, expected] of table) {
  const { stdout, stderr } = await run(host[0], [...host.slice(1), join(examples, `${name}.mjs`), ...args], { env, timeout: 60_000 });
  assert.match(stdout, expected, `${name}: ${stdout}${stderr}`);
  if (args[0] === sees) answers.push(stdout);
  console.log(`ok: ${name}`);
}
assert.equal(new Set(answers).size, 2, `the same answer to two pictures: ${answers[0]}`);
server.close();
