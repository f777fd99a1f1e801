// The examples run, in Node; the same files run in a page.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { it } from "node:test";
import { join } from "node:path";
import { bundle, folder, here } from "./support.mjs";

const golden = join(here, "..", "..", "..", "golden");
const picture = async (name) => new Blob([await readFile(join(golden, "pictures", "files", `${name}.png`))]);
/** Model, what else it takes, and what is said. */
const EXAMPLES = {
  "01-install": ["models/qwen2_tied", undefined, /^cactus \d+\.\d+\.\d+, ABI 1 of 1$/],
  "02-chat": ["models/qwen2_tied", undefined, /\n5 messages$/],
  "03-stream": ["models/qwen2_tied", undefined, /loading\n[^]*40 tokens$/],
  "04-cancel": ["models/qwen2_tied", undefined, /stopped after \d+ tokens\ncancelled\nleft after \d+ characters$/],
  "05-tools": ["models/qwen2_tied", undefined, /^calls weather {"city":"(Paris|Rome)"}\n/],
  "06-structured": ["models/qwen2_tied", undefined, / has [02468] legs$/],
  "07-picture-or-sound": ["seeing/smolvlm", () => picture("gray"), /./],
  "08-transcribe": ["speech/whisper", async () => Float32Array.from({ length: 32_000 }, (_, i) => 0.5 * Math.sin(i * i * 1e-5)), /\d+ segments$/],
  "09-embed-and-search": ["embedding/bert", async () => join(folder(), "index"), /^-?[01]\.\d{3} .+\n-?[01]\.\d{3} .+$/],
  "10-offline-and-lifecycle": ["models/qwen2_tied", undefined, /^the same answer\nhandle\nstarted again$/],
};

for (const [name, [model, extra, wanted]] of Object.entries(EXAMPLES)) {
  it(name, async () => {
    const { run } = await import(`../examples/${name}.mjs`);
    const said = [];
    await run(bundle(model), (text) => said.push(text), ...(extra === undefined ? [] : [await extra()]));
    assert.match(said.join("\n"), wanted);
  });
}

it("07-picture-or-sound answers another picture otherwise", async () => {
  const { run } = await import("../examples/07-picture-or-sound.mjs");
  const said = [];
  for (const name of ["rgb", "gray"]) await run(bundle("seeing/smolvlm"), (text) => said.push(text), await picture(name));
  assert.equal(said.length, 2);
  assert.notEqual(said[0], said[1]);
});
