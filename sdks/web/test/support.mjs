// Tiny bundles of random weights, and what tests share.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import * as cactus from "../dist/web/src/node.js";

export { cactus };
export const here = dirname(fileURLToPath(import.meta.url));
const golden = join(here, "..", "..", "..", "golden");

await cactus.start();

/** A folder that is gone when the process ends. */
export function folder() {
  const made = mkdtempSync(join(tmpdir(), "cactus-web-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** The bundle of a golden model, such as `models/qwen2_tied`: made by `test.sh`, or here, by the program that CACTUS_PROGRAM names. */
export function bundle(name) {
  const bundles = process.env.CACTUS_TEST_BUNDLES ?? join(here, "..", "build", "bundles");
  const path = join(bundles, name.replaceAll("/", "-"));
  if (existsSync(join(path, "components", "manifest.json"))) return path;
  mkdirSync(bundles, { recursive: true });
  const program = process.env.CACTUS_PROGRAM ?? "cactus";
  const { status, stderr, error } = spawnSync(program, ["convert", join(golden, name), path], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${name} cannot be converted by \`${program}\`: ${stderr ?? error}`);
  return path;
}

/** A model that chats. It is closed at the end of the test `t`. */
export async function chat(t, options = {}) {
  const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 512, queue: 4096, ...options });
  t.after(() => model.close());
  return model;
}

/** A request that goes on for `tokens`. */
export function long(tokens = 200, prompt = "Count.") {
  return { prompt, options: { max_tokens: tokens, temperature: 0, seed: 1, ignore_eos: true } };
}

export const LASTS = ["done", "cancelled", "failed"];

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
