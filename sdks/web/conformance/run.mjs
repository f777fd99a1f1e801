// The conformance runner of the web build, in Node: node conformance/run.mjs PLAN RESULTS

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import process from "node:process";
import * as api from "../dist/web/src/node.js";
import { runWeb } from "./plan.mjs";

const [plan, results] = process.argv.slice(2);
if (results === undefined) {
  console.error("usage: run.mjs PLAN RESULTS");
  process.exit(2);
}
await api.start();
writeFileSync(results, "");
await runWeb(api, JSON.parse(readFileSync(plan, "utf8")), {
  read: async (path) => new Uint8Array(await readFile(path)),
  write: (line) => appendFileSync(results, `${line}\n`),
});
api.stop();
