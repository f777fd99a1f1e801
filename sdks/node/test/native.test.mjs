// The raw layer, the package, and how the library is found.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import * as api from "../dist/node.mjs";
import { bundle, chatBundle, detector, folder } from "./support.mjs";

const require = createRequire(import.meta.url);
const root = fileURLToPath(new URL("..", import.meta.url));
const { native } = require("../dist/native.js");
const run = promisify(execFile);

test("arguments of another type and numbers that are no handle are refused", async () => {
  const raw = native();
  for (const handle of [0, -1, 1.5, 2 ** 60, 12_345, Number.POSITIVE_INFINITY]) {
    await assert.rejects(raw.modelClose(handle), { kind: "handle" });
    assert.throws(() => raw.modelInfo(handle), { kind: "handle", code: -4 });
    await assert.rejects(raw.requestNext(handle, 0), { kind: "handle" });
  }
  for (const call of [
    () => raw.modelInfo("1"),
    () => raw.modelInfo(),
    () => raw.modelInfo(Number.NaN),
    () => raw.modelLoad(5, null, null),
    () => raw.modelLoad("x\0y", null, null),
    () => raw.modelLoad("x", null, 5),
    () => raw.modelDetokenize(1, [1], false),
    () => raw.modelDetokenize(1, new Int32Array(1), false),
    () => raw.indexAdd(1, new Int32Array(1), "x", [], new Float32Array(2), 2),
    () => raw.vad(1, null, null, "x"),
  ]) {
    assert.throws(call, { kind: "argument", code: -3 });
  }
  const index = await raw.indexInit(folder(), 2);
  await assert.rejects(raw.indexAdd(index, new Int32Array(2), ["x"], [null], new Float32Array(4), 2), { kind: "argument" });
  await assert.rejects(raw.indexAdd(index, new Int32Array(1), ["x"], [null], new Float32Array(3), 2), { kind: "argument" });
  await assert.rejects(raw.indexQuery(index, new Float32Array(2), 2, null, 2 ** 40), { kind: "argument" });
  await raw.indexDestroy(index);
  await assert.rejects(raw.indexDestroy(index).then(() => raw.indexCompact(index)), { kind: "handle" });
});

test("a call that is refused closes nothing, and keeps no function", async () => {
  const raw = native();
  const model = await raw.init(await bundle("speech/whisper"), null, false);
  const live = await raw.streamTranscribeStart(model, JSON.stringify({ vad: await detector() }));
  assert.throws(() => raw.streamTranscribeStop(live, "yes"), { kind: "argument" });
  assert.equal(await raw.streamTranscribeStop(live, false), "");
  await assert.rejects(raw.streamTranscribeStop(live, false), { kind: "handle" });
  await raw.destroy(model);
  const script = `
    const { native } = require(${JSON.stringify(join(root, "dist", "native.js"))});
    require(${JSON.stringify(join(root, "dist", "node.js"))});
    const raw = native();
    let left = 0;
    const gone = new FinalizationRegistry(() => left--);
    for (let i = 0; i < 50; i++) {
      left++;
      const hears = () => i;
      gone.register(hears);
      try { raw.transcribe(1, "x", null, null, hears, "no sound"); left = -1000; } catch (error) { if (error.kind !== "argument") throw error; }
    }
    (async () => {
      for (let i = 0; i < 100 && left > 1; i++) { gc(); await new Promise((done) => setTimeout(done, 10)); }
      console.log(left);
    })();`;
  const { stdout } = await run(process.execPath, ["--expose-gc", "--eval", script]);
  assert.ok(Number(stdout) >= 0 && Number(stdout) <= 1, stdout);
});

test("events come together, and a request that is closed meanwhile says so", async () => {
  const raw = native();
  const model = await raw.modelLoad(await chatBundle(), '{"context_tokens": 256, "threads": 1}', null);
  const request = await raw.requestStart(model, JSON.stringify({ prompt: "x", options: { max_tokens: 20, ignore_eos: true } }));
  await raw.requestWait(request);
  const events = JSON.parse(await raw.requestNext(request, -1));
  assert.deepEqual([events[0].event, events.at(-1).event], ["started", "done"]);
  assert.equal(await raw.requestNext(request, -1), "[]");
  await raw.requestClose(request);
  const other = await raw.requestStart(model, JSON.stringify({ prompt: "x", options: { max_tokens: 200, ignore_eos: true } }));
  const waits = async () => {
    for (;;) await raw.requestNext(other, -1);
  };
  const refused = assert.rejects(waits(), { kind: "handle" });
  await raw.requestClose(other);
  await refused;
  await raw.modelClose(model);
});

/** Compiles a library that only says its ABI. */
function old(abi) {
  const path = join(folder(), "libcactus.so");
  const code = `#include <stdint.h>\nuint32_t cactus_abi_version(void) { return ${abi}; }\n`;
  execFileSync(process.env.CC ?? "cc", ["-shared", "-fPIC", "-x", "c", "-", "-o", path], { input: code });
  return path;
}

test("a library of another ABI is refused, and the message names the old side", { skip: process.platform === "win32" }, async () => {
  const said = async (path) => {
    const script = `import { Cactus } from ${JSON.stringify(new URL("../dist/node.mjs", import.meta.url).href)}; try { Cactus.version() } catch (error) { console.log(error.kind, error.message) }`;
    return (await run(process.execPath, ["--input-type=module", "--eval", script], { env: { ...process.env, CACTUS_LIB_PATH: path } })).stdout;
  };
  assert.match(await said(old(0)), /^not_in_build .*the library is old/);
  assert.match(await said(old(99)), /^not_in_build .*the package is old/);
  assert.match(await said(old(api.ABI_VERSION)), /has no function `cactus_\w+`: the library is old/);
  assert.match(await said("/no/such/libcactus.so"), /^not_in_build .*no\/such/);
});

test("both kinds of modules have the same classes, and `useLibrary` comes before the environment", async () => {
  const common = require("../dist/node.js");
  assert.equal(common.Model, api.Model);
  assert.deepEqual(Object.keys(common).filter((name) => name !== "__esModule").sort(), Object.keys(api).sort());
  const script = `const c = require(${JSON.stringify(join(root, "dist", "node.js"))}); c.useLibrary(process.argv[1]); console.log(c.version());`;
  const env = { ...process.env, CACTUS_LIB_PATH: "/nowhere" };
  const { stdout } = await run(process.execPath, ["--eval", script, process.env.CACTUS_LIB_PATH], { env });
  assert.equal(stdout.trim(), api.version());
});

test("types are read by programs", { timeout: 120_000 }, async () => {
  const at = folder();
  mkdirSync(join(at, "node_modules"), { recursive: true });
  execFileSync("cp", ["-r", join(root, "dist"), join(at, "node_modules", "cactus-engine")]);
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8").replaceAll("./dist/", "./"));
  writeFileSync(join(at, "node_modules", "cactus-engine", "package.json"), JSON.stringify(manifest));
  const program = `
    import { Model, tool, type Event } from "cactus-engine";
    const model = await Model.load("x", { bits: 4 });
    const stream = model.stream("x");
    for await (const event of stream) { if (event.event === "done") { const text: string = event.result.message.content; void text; } }
    const named = await model.respondAs("x", { schema: {}, parse: (value) => ({ name: String(value) }) });
    const name: string = named.name;
    tool({ name, parameters: { schema: {}, parse: () => 5 }, run: (args) => args.toFixed(2) });
    // @ts-expect-error: there is no such option
    await Model.load("x", { bit: 4 });
    export type Kind = Event["event"];
  `;
  writeFileSync(join(at, "program.mts"), program);
  writeFileSync(join(at, "tsconfig.json"), JSON.stringify({ compilerOptions: { module: "nodenext", target: "es2022", lib: ["ES2022", "ESNext.Disposable"], types: [], strict: true, noEmit: true, skipLibCheck: false }, files: ["program.mts"] }));
  const tsc = join(require.resolve("typescript/package.json"), "..", "bin", "tsc");
  const { stdout } = await run(process.execPath, [tsc, "-p", at]).catch((error) => error);
  assert.equal(stdout, "");
});
