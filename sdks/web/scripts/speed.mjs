// Tokens a second of a bundle, in Node and in Chromium: node scripts/speed.mjs BUNDLE
//
// To be compared with one thread of AVX2: CACTUS_ISA=avx2 cactus bench BUNDLE --threads 1

import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import * as cactus from "../dist/web/src/node.js";
import { Browser, chromium } from "../test/chromium.mjs";
import { serve } from "../test/serve.mjs";

const folder = resolve(process.argv[2]);
const [prompt, tokens] = [256, 64];

await cactus.start();
const begun = performance.now();
const model = await cactus.Model.load(folder, { context_tokens: 1024 });
console.log(`node: loaded in ${((performance.now() - begun) / 1000).toFixed(2)} s`);
const best = { decode: 0, prefill: 0 };
for (let round = 0; round < 3; round++) {
  const request = { prompt: `${round} ${"word ".repeat(prompt)}`, options: { max_tokens: tokens, temperature: 0, ignore_eos: true, prompt_lookup: 0 } };
  const { timings } = (await model.respond(request)).json;
  best.decode = Math.max(best.decode, timings.decode_tokens_per_second);
  best.prefill = Math.max(best.prefill, timings.prefill_tokens_per_second);
}
console.log(`node, ${(await model.info()).isa}: prompt ${best.prefill.toFixed(1)}, answer ${best.decode.toFixed(1)} tokens/s, ${((await cactus.memoryBytes()) / 2 ** 20).toFixed(0)} MiB`);
await model.close();
cactus.stop();

if (chromium === undefined) {
  console.log("SKIPPED: there is no Chromium");
} else {
  const here = join(dirname(fileURLToPath(import.meta.url)), "..");
  const server = await serve({ "/web/": here, "/bundle/": folder, "/": join(here, "test") });
  for (const module of ["", "&wasm=/web/cactus.wasm"]) {
    const browser = new Browser();
    await browser.open(`${server.address}/page.html?part=speed&prompt=${prompt}&tokens=${tokens}${module}`);
    const { ok, failed } = await server.result(600);
    const said = failed ?? `prompt ${ok.prefill.toFixed(1)}, answer ${ok.decode.toFixed(1)} tokens/s, ${(ok.memory / 2 ** 20).toFixed(0)} MiB`;
    console.log(`chromium, ${ok?.isa}: ${said}`);
    await browser.end();
  }
  server.close();
}
