// The conformance runner of the web build, in Node: node conformance/run.mjs PLAN RESULTS

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import process from "node:process";
import { runPlan } from "../../node/conformance/runner.mjs";
import * as api from "../dist/web/src/node.js";

const [plan, results] = process.argv.slice(2);
if (results === undefined) {
  console.error("usage: run.mjs PLAN RESULTS");
  process.exit(2);
}
await api.start();
writeFileSync(results, "");
const { cases } = JSON.parse(readFileSync(plan, "utf8"));
const write = (line) => appendFileSync(results, `${line}\n`);
// What this build does not have.
const needsPolicy = ({ steps }) => steps.some(({ op }) => op === "set_policy");
for (const { name, steps } of cases.filter(needsPolicy)) {
  write(JSON.stringify({ case: name, results: steps.map(() => ({ absent: "policies are not in the web build" })) }));
}
const files = { read: async (path) => new Uint8Array(await readFile(path)) };
await runPlan(api, { cases: cases.filter((one) => !needsPolicy(one)) }, { ...files, write: (line) => !("end" in JSON.parse(line)) && write(line) });
write(JSON.stringify({ end: cases.length }));
api.stop();
