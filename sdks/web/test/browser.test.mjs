// The package in headless Chromium: bundles that are fetched, broken off, gone on with, damaged, kept and removed; and answers, which
// are those of every other machine. Skipped, loudly, where there is no Chromium.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { join } from "node:path";
import { Browser, chromium } from "./chromium.mjs";
import { serve } from "./serve.mjs";
import { bundle, cactus, here } from "./support.mjs";

const MANIFESTS = ["/components/manifest.json", "/weights_manifest.json"];

describe("in Chromium", { skip: chromium === undefined ? "SKIPPED: there is no Chromium" : false }, () => {
  const browser = chromium === undefined ? undefined : new Browser();
  let server;
  let broken = 0;

  before(async () => {
    const folder = bundle("models/qwen2_tied");
    server = await serve(
      { "/web/": join(here, ".."), "/bundle/": folder, "/damaged/": folder, "/slow/": folder, "/": here },
      {
        breaks: (path) => (path.startsWith("/bundle/") && path.endsWith(".weights") && broken++ === 0 ? 50_000 : undefined),
        stalls: (path) => path.startsWith("/slow/") && path.endsWith(".weights"),
        change: (path, bytes, at) => {
          if (!path.startsWith("/damaged/") || !path.endsWith(".weights") || at > 9000 || at + bytes.length <= 9000) return undefined;
          const changed = Buffer.from(bytes);
          changed[9000 - at] ^= 1;
          return changed;
        },
      },
    );
  });

  after(async () => {
    server?.close();
    await browser?.end();
  });

  async function part(name, seconds = 60) {
    server.asked.length = 0;
    await browser.open(`${server.address}/page.html?part=${name}`);
    const { ok, failed } = await server.result(seconds).catch((error) => ({ failed: `${error.message}\n${browser.said.slice(-2000)}` }));
    assert.equal(failed, undefined, failed);
    await browser.close();
    return { ...ok, asked: server.asked.filter(({ path }) => !path.startsWith("/web/") && !path.startsWith("/page")) };
  }

  /** The tokens of Node's engine, which are those of libcactus. */
  async function tokensOfNode() {
    const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 512 });
    const { tokens } = await model.respond({ prompt: "Count.", options: { max_tokens: 24, temperature: 0, ignore_eos: true } });
    await model.close();
    return Array.from(tokens);
  }

  it("goes on with a bundle that broke off", async () => {
    const found = await part("fetch");
    assert.ok(["offline", "fetch"].includes(found.broken?.kind), JSON.stringify(found.broken));
    assert.equal(found.partly.length, 1);
    assert.equal(found.partly[0].whole, false);
    const weights = found.asked.filter(({ path }) => path.endsWith(".weights"));
    assert.equal(weights.length, 2, JSON.stringify(weights));
    assert.equal(weights[0].range, undefined);
    // What had come is not fetched again, of any file.
    assert.match(weights[1].range ?? "", /^bytes=[1-9]\d*-$/);
    const counts = new Map();
    for (const { path } of found.asked) counts.set(path, (counts.get(path) ?? 0) + 1);
    for (const [path, count] of counts) {
      if (!path.endsWith(".weights") && !MANIFESTS.some((manifest) => path.endsWith(manifest))) assert.equal(count, 1, path);
    }
    const stages = new Set(found.told.map(({ stage }) => stage));
    assert.deepEqual([...stages], ["downloading", "checking", "loading"]);
    const loads = found.told.filter(({ stage }) => stage === "downloading");
    assert.ok(loads.every(({ done, total }, i) => done <= total && done >= (loads[i - 1]?.done ?? 0)), JSON.stringify(loads));
    assert.equal(loads.at(-1).done, loads.at(-1).total);
    assert.equal(found.kept[0].whole, true);
    assert.equal(found.inUse?.kind, "busy");
    assert.deepEqual(found.tokens, await tokensOfNode());
  });

  it("answers from what it keeps, without the network", async () => {
    const found = await part("kept");
    assert.deepEqual(found.asked.filter(({ path }) => path.startsWith("/bundle/")), []);
    // Of the two modules the one that this machine can run.
    assert.equal(found.isa, found.fused ? "simd128_fma" : "simd128");
    assert.equal(found.otherwise.isa, "simd128");
    assert.deepEqual(found.otherwise.tokens, found.tokens);
    assert.deepEqual(found.tokens, await tokensOfNode());
    assert.equal(found.all.at(-1), "cancelled");
    assert.ok(found.all.length <= 6, `cancelled late: ${found.all}`);
    const [one, two] = found.both.map((events) => events.filter(({ event }) => event === "text").map(({ text }) => text).join(""));
    assert.equal(one, two);
    assert.equal(found.closed?.kind, "handle");
    assert.equal(found.elsewhere?.kind, "offline");
    assert.equal(found.missing?.kind, "not_found");
  });

  it("refuses a bundle that came damaged, and forgets it", async () => {
    const found = await part("damaged");
    assert.equal(found.error?.kind, "bundle");
    assert.match(found.error.message, /\.weights/);
    assert.equal(found.kept.some((source) => source.includes("damaged")), false);
  });

  it("lets the page draw, and starts anew", async () => {
    const found = await part("draws");
    assert.ok(found.longest < 250, `the page waited ${found.longest} ms`);
    assert.equal(found.stopped?.kind, "system");
    assert.equal(found.ended?.kind, "system");
  });

  it("stops loads", async () => {
    const found = await part("stops");
    assert.equal(found.refused?.kind, "cancelled", JSON.stringify(found.refused));
    assert.equal(found.aborted?.name, "AbortError", JSON.stringify(found.aborted));
    assert.ok(found.took < 5000, `stopped after ${found.took} ms`);
    assert.equal(found.loading?.kind, "cancelled", JSON.stringify(found.loading));
    assert.deepEqual(found.kept.sort(), [["/bundle/", true], ["/slow/", false]]);
    assert.deepEqual([found.removed, found.absent], [null, null]);
  });

  it("removes what it keeps", async () => {
    const found = await part("remove");
    assert.equal(found.report.usable, true, JSON.stringify(found.report));
    assert.equal(found.inUse?.kind, "busy");
    assert.deepEqual(found.tokens, await tokensOfNode());
    assert.equal(found.before, 1);
    assert.deepEqual(found.after, []);
  });
});
