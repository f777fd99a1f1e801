// The engine in its worker: takes calls as messages, and answers with messages. It knows neither browsers nor Node.

import type { Handle } from "../../node/src/native.ts";
import { Folder, MemoryFile } from "./files.ts";
import { Failure, Library } from "./library.ts";

/** What the host asks of the worker. A function among the arguments is its place in `callbacks`. */
export type Asked =
  | { id: number; call: "start"; module: WebAssembly.Module }
  /** What a function that was called back says: whether to go on. */
  | { id: number; goesOn: boolean }
  | { id: number; call: string; given: unknown[]; callbacks: number[] };

/** What the worker answers. */
export type Answered =
  | { id: number; gives: unknown }
  | { id: number; fails: { code: number; kind: string; message: string } }
  | { id: number; callback: number; given: unknown[] };

/** Where bundles come from. It makes what a name means visible to the library, and says under which path. */
export interface Sources {
  /** Each path that is given has to be closed. Stops soon after `heard` was aborted, with its error. */
  open(library: Library, name: string, options: SourceOptions, heard: Heard): Promise<string>;
  /** Nobody needs what was opened or shown as `path` any more. */
  close(library: Library, path: string): Promise<void>;
  /** Makes visible what a call reads, and says under which path. That has to be closed. */
  show(library: Library, path: string): Promise<string>;
  /** As `show`, of a bundle that a call loads beside its model. It is fetched where it has to be. */
  reach(library: Library, path: string): Promise<string>;
  /** What `open` takes for a path that it gave. */
  nameOf(path: string): string;
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

/** Milliseconds after which a load that has nothing to say asks whether to go on. */
const ASK_EVERY = 250;

/** What hears of the progress of a load, and may stop it. */
export class Heard {
  readonly #hear: ((...given: unknown[]) => void) | null;
  readonly #stop = new AbortController();
  #last: unknown[] | undefined;
  /** Words that nobody has answered yet, and who waits for that. */
  #unanswered = 0;
  #waiting: (() => void)[] = [];

  constructor(hear: ((...given: unknown[]) => void) | null) {
    this.#hear = hear;
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  tell(stage: string, what: string, done: number, total: number): void {
    if (this.#hear === null || this.signal.aborted) return;
    this.#last = [stage, what, done, total];
    this.#unanswered++;
    this.#hear(...this.#last);
  }

  /** Tells the last word again where nobody has to answer one: a server that says nothing must not keep a load from being stopped. */
  ask(): void {
    if (this.#unanswered === 0 && this.#last !== undefined) this.tell(...(this.#last as [string, string, number, number]));
  }

  answered(goesOn: boolean): void {
    this.#unanswered--;
    if (!goesOn) this.#stop.abort(new Failure(-11, "cancelled", "the load was stopped"));
    if (this.#unanswered > 0 && goesOn) return;
    for (const go of this.#waiting.splice(0)) go();
  }

  /** Waits for the answers to what was told. Throws where one of them was to stop. */
  async goesOn(): Promise<void> {
    if (this.#unanswered > 0 && !this.signal.aborted) await new Promise<void>((go) => this.#waiting.push(go));
    this.signal.throwIfAborted();
  }
}

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
  #paths = new Map<Handle, string[]>();
  /** Loads under way, by the message that asked for them. */
  #loads = new Map<number, Heard>();
  /** Events that came while somebody waited for the end of a request, and nobody has asked for yet. */
  #events = new Map<Handle, string[]>();

  constructor(sources: Sources, answer: (answered: Answered, transfer?: Transferable[]) => void, turn: Turn, root: () => Folder = () => new Folder()) {
    this.#sources = sources;
    this.#root = root;
    this.#answer = answer;
    this.#turn = turn;
  }

  /** Does what a message asks. */
  async take(asked: Asked): Promise<void> {
    const { id } = asked;
    if ("goesOn" in asked) {
      this.#loads.get(id)?.answered(asked.goesOn);
      return;
    }
    try {
      const gives = "module" in asked ? await this.#start(asked.module) : await this.#call(id, asked.call, this.#restored(id, asked));
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

  async #call(id: number, name: string, given: unknown[]): Promise<unknown> {
    const library = this.#library;
    if (library === undefined) throw new Failure(-1, "internal", "the engine was not started");
    switch (name) {
      case "requestNext":
        return this.#next(library, given[0] as Handle, given[1] as number);
      case "requestWait":
        return this.#wait(library, given[0] as Handle);
      case "requestClose":
        this.#events.delete(given[0] as Handle);
        break;
      case "modelLoad":
      case "modelPrepare":
        return this.#load(library, id, name, given);
      case "init": {
        const path = await this.#sources.open(library, given[0] as string, {}, new Heard(null));
        return this.#opened(library, [path], async (paths) => {
          const corpus = given[1] === null ? null : await this.#sources.show(library, given[1] as string);
          if (corpus !== null) paths.push(corpus);
          return library.calls.init(path, corpus, given[2] as boolean);
        });
      }
      case "modelClose":
      case "destroy": {
        library.calls[name](given[0] as Handle);
        await this.#closed(library, given[0] as Handle);
        return undefined;
      }
      case "checkBundle":
        return this.#shown(library, given[0] as string, (path) => library.calls.checkBundle(path, given[1] as boolean));
      case "transcribe":
      case "detectLanguage":
      case "vad":
      case "imageEmbed": {
        const call = library.calls[name] as (...given: unknown[]) => unknown;
        if (typeof given[1] !== "string") break;
        return this.#shown(library, given[1], (path) => call(given[0], path, ...given.slice(2)));
      }
      case "streamTranscribeStart":
        return this.#listen(library, given[0] as Handle, given[1] as string | null);
      case "streamTranscribeStop": {
        const result = library.calls.streamTranscribeStop(given[0] as Handle, given[1] as boolean);
        await this.#closed(library, given[0] as Handle);
        return result;
      }
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

  /** Makes a call with a file that is visible as long as it lasts. */
  async #shown<T>(library: Library, name: string, call: (path: string) => T): Promise<T> {
    const path = await this.#sources.show(library, name);
    try {
      return call(path);
    } finally {
      await this.#sources.close(library, path);
    }
  }

  async #load(library: Library, id: number, name: "modelLoad" | "modelPrepare", given: unknown[]): Promise<unknown> {
    const [source, text, hears] = given as [string, string | null, ((...given: unknown[]) => void) | null];
    const heard = new Heard(hears);
    this.#loads.set(id, heard);
    const asking = setInterval(() => heard.ask(), ASK_EVERY);
    try {
      const options = (text === null ? {} : JSON.parse(text)) as { [name: string]: unknown };
      const how: SourceOptions = {};
      if (typeof options["cache"] === "string") how.cache = options["cache"];
      if (options["offline"] === true) how.offline = true;
      if (options["reconvert"] === true) how.reconvert = true;
      const path = await this.#sources.open(library, source, how, heard);
      if (name === "modelPrepare") {
        const kept = this.#sources.nameOf(path);
        await this.#sources.close(library, path);
        return kept;
      }
      return await this.#opened(library, [path], async () => {
        heard.tell("loading", source, 0, 0);
        // What follows is computed as a whole.
        await heard.goesOn();
        // The library of this build gets no bundles, and so knows nothing of how.
        const rest = Object.fromEntries(Object.entries(options).filter(([name]) => !SOURCE_OPTIONS.includes(name)));
        return library.calls.modelLoad(path, JSON.stringify(rest), null);
      });
    } finally {
      clearInterval(asking);
      this.#loads.delete(id);
    }
  }

  /** Begins to listen. The option `vad` names the bundle that finds speech. */
  async #listen(library: Library, model: Handle, text: string | null): Promise<Handle> {
    const options = (text === null ? {} : JSON.parse(text)) as { [name: string]: unknown };
    const { vad } = options;
    if (typeof vad !== "string") return library.calls.streamTranscribeStart(model, text);
    const path = await this.#sources.reach(library, vad);
    return this.#opened(library, [path], async () => library.calls.streamTranscribeStart(model, JSON.stringify({ ...options, vad: path })));
  }

  /** Opens a model of paths, which are let go with it. */
  async #opened(library: Library, paths: string[], open: (paths: string[]) => Promise<Handle>): Promise<Handle> {
    try {
      const handle = await open(paths);
      this.#paths.set(handle, paths);
      return handle;
    } catch (thrown) {
      for (const path of paths) await this.#sources.close(library, path);
      throw thrown;
    }
  }

  async #closed(library: Library, handle: Handle): Promise<void> {
    const paths = this.#paths.get(handle) ?? [];
    this.#paths.delete(handle);
    for (const path of paths) await this.#sources.close(library, path);
  }

  /** Events of a request as they come: pass after pass, with a look at the messages in between. */
  async #next(library: Library, request: Handle, timeout: number): Promise<string> {
    const deadline = timeout < 0 ? Infinity : performance.now() + timeout;
    for (;;) {
      const before = this.#events.get(request);
      if (before !== undefined) {
        this.#events.delete(request);
        return `[${before.join(",")}]`;
      }
      const { events, over } = library.requestStep(request);
      if (events.length > 0 || over || performance.now() >= deadline) return `[${events.join(",")}]`;
      await this.#turn();
    }
  }

  /** The result of a request, as `#next` gets there. Its events are kept for who asks for them. */
  async #wait(library: Library, request: Handle): Promise<string> {
    for (;;) {
      const { events, over } = library.requestStep(request);
      const kept = this.#events.get(request);
      if (kept !== undefined) kept.push(...events);
      else if (events.length > 0) this.#events.set(request, events);
      if (over) return library.calls.requestWait(request);
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
