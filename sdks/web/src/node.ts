// Node: the engine in a worker thread. For tests, and where no native library can be had; the package for Node is faster.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { CactusError } from "../../node/src/errors.ts";
import { provide } from "../../node/src/native.ts";
import type { Answered } from "./engine.ts";
import { type Port, Remote } from "./remote.ts";

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

let running: Remote | undefined;

/** Starts the engine. `wasm` is the file of the module, which lies in the package. To be called before anything else; once is enough. */
export async function start({ wasm }: { wasm?: string } = {}): Promise<void> {
  if (running !== undefined) return;
  const path = wasm ?? process.env["CACTUS_WASM_PATH"] ?? fileURLToPath(new URL("../../../cactus.wasm", import.meta.url));
  if (!existsSync(path)) throw new CactusError("not_in_build", `there is no module at ${path}`, -15);
  const module = await WebAssembly.compile(await readFile(path));
  const remote = new Remote(portOf(new Worker(new URL("./worker_node.js", import.meta.url))));
  await remote.start(module);
  running = remote;
  provide(() => remote.native());
}

/** Ends the engine, whatever it does. What was open is closed; `start` begins anew. */
export function stop(): void {
  running?.end();
  running = undefined;
}

/** Bytes of the engine's memory, which grows and never shrinks until `stop`. */
export function memoryBytes(): Promise<number> {
  if (running === undefined) throw new CactusError("internal", "the engine was not started");
  return running.extra("memoryBytes");
}
