// The conformance runner of the web build in headless Chromium: node conformance/chromium.mjs PLAN RESULTS
//
// A server on this machine gives a page the bundles that the plan names, under the paths that it names, and takes its results.

import { appendFileSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { Browser, chromium } from "../test/chromium.mjs";
import { serve } from "../test/serve.mjs";

/** Seconds in which a page has to have done a case. */
const CASE_SECONDS = 120;

const [plan, results] = process.argv.slice(2);
if (results === undefined) {
  console.error("usage: chromium.mjs PLAN RESULTS");
  process.exit(2);
}
if (chromium === undefined) {
  console.log("SKIPPED: there is no Chromium");
  process.exit(77);
}

/** Every text in a value. */
function texts(value) {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(texts) : [];
}

const stat = (path) => statSync(path, { throwIfNoEntry: false });
/** The file of a path, or all below the folder. */
const below = (path) => (stat(path)?.isDirectory() ? readdirSync(path).flatMap((name) => below(join(path, name))) : stat(path)?.isFile() ? [path] : []);

const { cases } = JSON.parse(readFileSync(plan, "utf8"));
const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const mounts = { "/sdks/web/": web, "/sdks/node/conformance/": join(web, "..", "node", "conformance") };
for (const path of new Set(texts(cases))) {
  if (!path.startsWith("/") || path.length > 4096 || stat(path) === undefined) continue;
  mounts[stat(path).isDirectory() ? `${path}/` : path] = path;
}
// What a step reads by its path, rather than loads from its address, is a file in memory in a page.
const files = Object.fromEntries(cases.map(({ name, steps }) => [name, [...new Set(steps.flatMap(({ path, file }) => [path, file]))].filter(Boolean).flatMap(below)]));

const server = await serve(mounts, { data: { "/plan.json": JSON.stringify({ cases, files }) } });
const browser = new Browser();
writeFileSync(results, "");
try {
  await browser.open(`${server.address}/sdks/web/conformance/page.html`);
  for (;;) {
    const { line, failed } = await server.result(CASE_SECONDS);
    if (failed !== undefined) throw new Error(failed);
    appendFileSync(results, `${line}\n`);
    if ("end" in JSON.parse(line)) break;
  }
} catch (error) {
  console.error(`${error.stack}\n${browser.said.slice(-2000)}`);
  process.exitCode = 1;
} finally {
  await browser.end();
  server.close();
}
