// What tests share.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import * as cactus from "../dist/web/src/node.js";
import { bundle, here } from "./bundles.mjs";

export { bundle, cactus, here };

await cactus.start();

/** A folder that is gone when the process ends. */
export function folder() {
  const made = mkdtempSync(join(tmpdir(), "cactus-web-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** A model that chats. It is closed at the end of the test `t`. */
export async function chat(t, options = {}) {
  const model = await cactus.Model.load(bundle("models/qwen2_tied"), { context_tokens: 8192, queue: 4096, ...options });
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
