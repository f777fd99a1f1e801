// Tiny bundles of random weights: `node test/bundles.mjs` makes them all, by the program that CACTUS_PROGRAM names.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));
const golden = join(here, "..", "..", "..", "golden");
const bundles = process.env.CACTUS_TEST_BUNDLES ?? join(here, "..", "build", "bundles");
/** The golden models that tests use, and how many tokens they are to read where that is more than they were made for. */
const MODELS = { "models/qwen2_tied": 65536, "seeing/smolvlm": undefined, "speech/whisper": undefined, "embedding/bert": undefined };

/** The bundle of a golden model, such as `models/qwen2_tied`, which is made where it is missing. */
export function bundle(name) {
  const tokens = MODELS[name];
  const path = join(bundles, `${name.replaceAll("/", "-")}${tokens === undefined ? "" : `-${tokens}`}`);
  if (existsSync(join(path, "components", "manifest.json"))) return path;
  mkdirSync(bundles, { recursive: true });
  let source = join(golden, name);
  if (tokens !== undefined) {
    // Calls of tools and long answers need more context than the model was made for. It says nothing sensible in any.
    source = `${path}.source`;
    cpSync(join(golden, name), source, { recursive: true });
    const config = join(source, "config.json");
    writeFileSync(config, readFileSync(config, "utf8").replace(/("max_position_embeddings": )\d+/, `$1${tokens}`));
  }
  const program = process.env.CACTUS_PROGRAM ?? "cactus";
  const { status, stderr, error } = spawnSync(program, ["convert", source, path], { encoding: "utf8" });
  if (tokens !== undefined) rmSync(source, { recursive: true });
  if (status !== 0) throw new Error(`${name} cannot be converted by \`${program}\`: ${stderr ?? error}`);
  return path;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) Object.keys(MODELS).forEach(bundle);
