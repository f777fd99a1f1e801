// Browsers: the engine in a Web Worker, bundles fetched and kept in the origin's private file system.

import { CactusError } from "../../node/src/errors.ts";
import { provide } from "../../node/src/native.ts";
import type { Answered } from "./engine.ts";
import { type Port, Remote } from "./remote.ts";

export * from "../../node/src/api.ts";

export interface StartOptions {
  /** Where the module is; beside this package without it. */
  wasm?: string | URL;
  /** The worker; made of the package's own file without it. For bundlers that want to see `new Worker(new URL(…))`. */
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

let running: Remote | undefined;
let starting: Promise<void> | undefined;

/** Starts the engine. To be called before anything else; once is enough. */
export function start(options: StartOptions = {}): Promise<void> {
  starting ??= begin(options).catch((thrown: unknown) => {
    starting = undefined;
    throw thrown;
  });
  return starting;
}

async function begin({ wasm, worker }: StartOptions): Promise<void> {
  const address = wasm ?? new URL("../../../cactus.wasm", import.meta.url);
  const answer = await fetch(address);
  if (!answer.ok) throw new CactusError("not_in_build", `the module cannot be fetched from ${String(address)}: status ${answer.status}`, -15);
  // A server that does not know the type of the file hinders compiling while it comes, and nothing else.
  const isWasm = answer.headers.get("content-type")?.startsWith("application/wasm") === true;
  const module = isWasm ? await WebAssembly.compileStreaming(answer) : await WebAssembly.compile(await answer.arrayBuffer());
  const remote = new Remote(portOf(worker ?? new Worker(new URL("./worker.js", import.meta.url), { type: "module" })));
  await remote.start(module);
  running = remote;
  provide(() => remote.native());
}

function engine(): Remote {
  if (running === undefined) throw new CactusError("internal", "the engine was not started; await start() first");
  return running;
}

/** Ends the engine, whatever it does, and gives back its memory. What was open is closed; `start` begins anew. */
export function stop(): void {
  running?.end();
  running = undefined;
  starting = undefined;
}

/** Bytes of the engine's memory, which grows and never shrinks until `stop`. */
export function memoryBytes(): Promise<number> {
  return engine().extra("memoryBytes");
}

/** Makes a file for the library, in memory: a picture or recording, which requests then name by this path. */
export async function putFile(path: string, data: Blob | ArrayBuffer | Uint8Array): Promise<void> {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data instanceof Blob ? await data.arrayBuffer() : data);
  await engine().extra("putFile", path, bytes);
}

/** Takes such a file away. */
export function removeFile(path: string): Promise<void> {
  return engine().extra("removeFile", path);
}

/** The bundles that are kept on this device. */
export function listBundles(): Promise<KeptBundle[]> {
  return engine().extra("listBundles");
}

/** Forgets a kept bundle, so that its space can be used. */
export function removeBundle(source: string | URL): Promise<void> {
  return engine().extra("removeBundle", String(source));
}
