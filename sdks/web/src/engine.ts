// The engine in its worker: takes calls as messages, and answers with messages. It knows neither browsers nor Node.

import type { Handle } from "../../node/src/native.ts";
import { Folder, MemoryFile } from "./files.ts";
import { Failure, Library } from "./library.ts";

/** What the host asks of the worker. A function among the arguments is its place in `callbacks`. */
export type Asked =
  | { id: number; call: "start"; module: WebAssembly.Module }
  | { id: number; call: string; given: unknown[]; callbacks: number[] };

/** What the worker answers. */
export type Answered =
  | { id: number; gives: unknown }
  | { id: number; fails: { code: number; kind: string; message: string } }
  | { id: number; callback: number; given: unknown[] };

/** Where bundles come from. It makes what a name means visible to the library, and says under which path. */
export interface Sources {
  /** Stops with an error of the kind `cancelled` where `tell` says false. */
  open(library: Library, name: string, options: SourceOptions, tell: Tell): Promise<string>;
  /** Nobody needs what was opened as `path` any more. */
  close(library: Library, path: string): Promise<void>;
  /** Everything that the library may be told to read is visible, as `path`. */
  show(library: Library, path: string): Promise<string>;
  /** Where bundles are kept: which there are, and away with one. */
  listBundles?(): Promise<unknown>;
  removeBundle?(name: string): Promise<void>;
}

export interface SourceOptions {
  cache?: string;
  offline?: boolean;
  /** Fetch again what is there. */
  reconvert?: boolean;
}

export type Tell = (stage: string, what: string, done: number, total: number) => void;

/** Options of `modelLoad` that say how a bundle is got. */
const SOURCE_OPTIONS = ["bits", "calibrate", "reconvert", "offline", "token", "cache"];

/** Lets messages that have come be read: a task of its own behind them. */
type Turn = () => Promise<void>;

export class Engine {
  #library: Library | undefined;
  readonly #sources: Sources;
  readonly #answer: (answered: Answered, transfer?: Transferable[]) => void;
  readonly #turn: Turn;
  readonly #root: () => Folder;
  /** Paths of models by handle, to be let go with them. */
  #paths = new Map<Handle, string>();

  constructor(sources: Sources, answer: (answered: Answered, transfer?: Transferable[]) => void, turn: Turn, root: () => Folder = () => new Folder()) {
    this.#sources = sources;
    this.#root = root;
    this.#answer = answer;
    this.#turn = turn;
  }

  /** Does what a message asks. */
  async take(asked: Asked): Promise<void> {
    const { id } = asked;
    try {
      const gives = "module" in asked ? await this.#start(asked.module) : await this.#call(asked.call, this.#restored(id, asked));
      const transfer = gives instanceof Float32Array || gives instanceof Uint32Array ? [gives.buffer as ArrayBuffer] : [];
      this.#answer({ id, gives }, transfer);
    } catch (thrown) {
      const { code, kind, message } = thrown instanceof Failure ? thrown : new Failure(-14, "system", thrown instanceof Error ? thrown.message : String(thrown));
      this.#answer({ id, fails: { code, kind, message } });
    }
  }

  async #start(module: WebAssembly.Module): Promise<unknown> {
    this.#library = await Library.make(module, this.#root());
    return { version: this.#library.calls.version(), abiVersion: this.#library.calls.abiVersion() };
  }

  /** The arguments, with functions that send their own. */
  #restored(id: number, asked: { given: unknown[]; callbacks: number[] }): unknown[] {
    return asked.given.map((given, place) => {
      if (!asked.callbacks.includes(place)) return given;
      return (...given: unknown[]) => this.#answer({ id, callback: place, given });
    });
  }

  async #call(name: string, given: unknown[]): Promise<unknown> {
    const library = this.#library;
    if (library === undefined) throw new Failure(-1, "internal", "the engine was not started");
    switch (name) {
      case "requestNext":
        return this.#next(library, given[0] as Handle, given[1] as number);
      case "modelLoad":
      case "modelPrepare":
        return this.#load(library, name, given);
      case "init": {
        const path = await this.#sources.open(library, given[0] as string, {}, () => {});
        const corpus = given[1] === null ? null : await this.#sources.show(library, given[1] as string);
        return this.#opened(library, path, () => library.calls.init(path, corpus, given[2] as boolean));
      }
      case "modelClose":
      case "destroy": {
        library.calls[name](given[0] as Handle);
        await this.#closed(library, given[0] as Handle);
        return undefined;
      }
      case "checkBundle": {
        const path = await this.#sources.show(library, given[0] as string);
        return library.calls.checkBundle(path, given[1] as boolean);
      }
      case "transcribe":
      case "detectLanguage":
      case "vad":
      case "imageEmbed":
        if (typeof given[1] === "string") given[1] = await this.#sources.show(library, given[1]);
        break;
      case "memoryBytes":
        return library.memoryBytes;
      case "putFile":
        library.files.put(given[0] as string, new MemoryFile(given[1] as Uint8Array));
        return undefined;
      case "removeFile":
        library.files.remove(given[0] as string);
        return undefined;
      case "listBundles":
      case "removeBundle":
        return this.#sources[name]?.(...(given as [string]));
    }
    const call = (library.calls as unknown as { [name: string]: (...given: unknown[]) => unknown })[name];
    if (call === undefined) throw new Failure(-1, "internal", `the engine has no function \`${name}\``);
    return call(...given);
  }

  async #load(library: Library, name: "modelLoad" | "modelPrepare", given: unknown[]): Promise<unknown> {
    const [source, text, hears] = given as [string, string | null, ((...given: unknown[]) => void) | null];
    const options = (text === null ? {} : JSON.parse(text)) as { [name: string]: unknown };
    const tell: Tell = (stage, what, done, total) => hears?.(stage, what, done, total);
    const how: SourceOptions = {};
    if (typeof options["cache"] === "string") how.cache = options["cache"];
    if (options["offline"] === true) how.offline = true;
    if (options["reconvert"] === true) how.reconvert = true;
    const path = await this.#sources.open(library, source, how, tell);
    if (name === "modelPrepare") {
      await this.#sources.close(library, path);
      return path;
    }
    // The library of this build gets no bundles, and so knows nothing of how.
    const rest = Object.fromEntries(Object.entries(options).filter(([name]) => !SOURCE_OPTIONS.includes(name)));
    tell("loading", source, 0, 0);
    return this.#opened(library, path, () => library.calls.modelLoad(path, JSON.stringify(rest), null));
  }

  async #opened(library: Library, path: string, open: () => Handle): Promise<Handle> {
    try {
      const handle = open();
      this.#paths.set(handle, path);
      return handle;
    } catch (thrown) {
      await this.#sources.close(library, path);
      throw thrown;
    }
  }

  async #closed(library: Library, handle: Handle): Promise<void> {
    const path = this.#paths.get(handle);
    this.#paths.delete(handle);
    if (path !== undefined) await this.#sources.close(library, path);
  }

  /** Events of a request as they come: pass after pass, with a look at the messages in between. */
  async #next(library: Library, request: Handle, timeout: number): Promise<string> {
    const deadline = timeout < 0 ? Infinity : performance.now() + timeout;
    for (;;) {
      const { events, over } = library.requestStep(request);
      if (events !== "[]" || over || performance.now() >= deadline) return events;
      await this.#turn();
    }
  }
}

/** A turn by a message to oneself: no timer of a browser waits as little. */
export function turns(): Turn {
  const { port1, port2 } = new MessageChannel();
  const waiting: (() => void)[] = [];
  port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((go) => {
      waiting.push(go);
      port2.postMessage(0);
    });
}
