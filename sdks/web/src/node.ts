// Node: the engine in a worker thread. For tests, and where no native library can be had; the package for Node is faster.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { CactusError } from "../../node/src/errors.ts";
import type { Answered } from "./engine.ts";
import { isFused } from "./fusion.ts";
import { type Port, Running } from "./remote.ts";

export * from "../../node/src/api.ts";

function portOf(worker: Worker): Port {
  let fail: ((why: string) => void) | undefined;
  worker.on("error", (error: unknown) => fail?.(`the engine's thread failed: ${error instanceof Error ? error.message : String(error)}`));
  worker.on("exit", () => fail?.("the engine's thread has ended"));
  return {
    post: (asked) => worker.postMessage(asked),
    listen: (take, lost) => {
      fail = lost;
      worker.on("message", (answered: Answered) => take(answered));
    },
    hold: (holds) => (holds ? worker.ref() : worker.unref()),
    end: () => void worker.terminate(),
  };
}

const running = new Running();

/** Starts the engine. `wasm` is the file of the module, which lies in the package. To be called before anything else; once is enough. */
export function start({ wasm }: { wasm?: string } = {}): Promise<void> {
  const path = wasm ?? process.env["CACTUS_WASM_PATH"] ?? fileURLToPath(new URL(`../../../${isFused() ? "cactus-fma" : "cactus"}.wasm`, import.meta.url));
  return running.start(() => compile(path), () => portOf(new Worker(new URL("./worker_node.js", import.meta.url))));
}

async function compile(path: string): Promise<WebAssembly.Module> {
  if (!existsSync(path)) throw new CactusError("not_in_build", `there is no module at ${path}`, -15);
  return WebAssembly.compile(await readFile(path));
}

/** Ends the engine, whatever it does. What was open is closed; `start` begins anew. */
export function stop(): void {
  running.stop();
}

/** Bytes of the engine's memory, which grows and never shrinks until `stop`. */
export async function memoryBytes(): Promise<number> {
  return running.remote.extra("memoryBytes");
}
