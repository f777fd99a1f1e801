// Runs a program for wasm32-wasip1, as Cargo's runner: `node wasi.mjs PROGRAM ARGUMENTS…`. It sees the whole file system.
// Calls that the package's faster module has as instructions are instructions here, too; Node 20 takes them with
// --experimental-wasm-relaxed-simd.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";
import { fuse } from "./fuse.mjs";

const [program, ...rest] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...rest],
  env: { ...process.env, PWD: process.cwd() },
  preopens: { "/": "/" },
  returnOnExit: true,
});
const bytes = await readFile(program);
fuse(bytes);
const module = await WebAssembly.compile(bytes);
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);
