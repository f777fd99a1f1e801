// Browsers: the engine in a Web Worker, bundles fetched and kept in the origin's private file system.

import { CactusError } from "../../node/src/errors.ts";
import type { Answered } from "./engine.ts";
import { isFused } from "./fusion.ts";
import { type Port, Running } from "./remote.ts";

export * from "../../node/src/api.ts";

export interface StartOptions {
  /** Where the module is that every engine can run; beside this package without it. */
  wasm?: string | URL;
  /** Where the faster one is, for engines with a fused multiply-add; beside this package where `wasm` is not given either. */
  fused?: string | URL;
  /** The worker, a new one for each start; made of the package's own file without it. For bundlers that do not see `new Worker(new URL(…))`. */
  worker?: Worker;
}

/** A bundle that is kept. */
export interface KeptBundle {
  /** Its address, as it was loaded. */
  source: string;
  /** Bytes that are there. */
  bytes: number;
  /** All of it is there, and its checksums were right. */
  whole: boolean;
}

function portOf(worker: Worker): Port {
  return {
    post: (asked) => worker.postMessage(asked),
    listen: (take, lost) => {
      worker.onmessage = (event: MessageEvent<Answered>) => take(event.data);
      worker.onerror = (event) => lost(`the engine's worker failed: ${event.message ?? "it cannot be started"}`);
    },
    end: () => worker.terminate(),
  };
}

const running = new Running();

/** Starts the engine. To be called before anything else; once is enough. */
export function start(options: StartOptions = {}): Promise<void> {
  const worker = () => options.worker ?? new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  return running.start(() => compile(moduleOf(options)), () => portOf(worker()));
}

function moduleOf({ wasm, fused }: StartOptions): string | URL {
  const faster = fused ?? (wasm === undefined ? new URL("../../../cactus-fma.wasm", import.meta.url) : undefined);
  return faster !== undefined && isFused() ? faster : (wasm ?? new URL("../../../cactus.wasm", import.meta.url));
}

async function compile(address: string | URL): Promise<WebAssembly.Module> {
  const answer = await fetch(address);
  if (!answer.ok) throw new CactusError("not_in_build", `the module cannot be fetched from ${String(address)}: status ${answer.status}`, -15);
  // A server that does not know the type of the file hinders compiling while it comes, and nothing else.
  const isWasm = answer.headers.get("content-type")?.startsWith("application/wasm") === true;
  return isWasm ? WebAssembly.compileStreaming(answer) : WebAssembly.compile(await answer.arrayBuffer());
}

/** Ends the engine, whatever it does, and gives back its memory. What was open is closed; `start` begins anew. */
export function stop(): void {
  running.stop();
}

/** Bytes of the engine's memory, which grows and never shrinks until `stop`. */
export async function memoryBytes(): Promise<number> {
  return running.remote.extra("memoryBytes");
}

/** Makes a file for the library, in memory: a picture or recording, which requests then name by this path. */
export async function putFile(path: string, data: Blob | ArrayBuffer | Uint8Array): Promise<void> {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data instanceof Blob ? await data.arrayBuffer() : data);
  await running.remote.extra("putFile", path, bytes);
}

/** Takes such a file away. */
export async function removeFile(path: string): Promise<void> {
  return running.remote.extra("removeFile", path);
}

/** The bundles that are kept on this device. */
export async function listBundles(): Promise<KeptBundle[]> {
  return running.remote.extra("listBundles");
}

/** Forgets a kept bundle, so that its space can be used. */
export async function removeBundle(source: string | URL): Promise<void> {
  return running.remote.extra("removeBundle", String(source));
}
