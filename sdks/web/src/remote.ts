// `Native` over a worker: each call is a message, and its answer another.

import { CactusError } from "../../node/src/errors.ts";
import { ABI_VERSION, type Native, provide } from "../../node/src/native.ts";
import type { Answered, Asked } from "./engine.ts";

/** What of a worker is used; that of a browser and that of Node differ. */
export interface Port {
  post(asked: Asked, transfer?: Transferable[]): void;
  /** `fail` is called when the worker ends before it should. */
  listen(take: (answered: Answered) => void, fail: (why: string) => void): void;
  /** Keeps a process alive while something is awaited. */
  hold?(holds: boolean): void;
  end(): void;
}

interface Waiting {
  call: string;
  give: (value: never) => void;
  fail: (error: CactusError) => void;
  callbacks: Map<number, (...given: unknown[]) => unknown>;
}

/** Functions that stay with the library after the call that gave them. */
const KEEPS = new Set(["logSetCallback"]);
/** Functions that are told whether to go on. */
const STOPS = new Set(["modelLoad", "modelPrepare"]);

/** An engine in a worker. */
export class Remote {
  readonly #port: Port;
  #next = 1;
  #waiting = new Map<number, Waiting>();
  #kept = new Map<string, number>();
  #ended: string | undefined;
  #versions: { version: string; abiVersion: number } | undefined;

  constructor(port: Port) {
    this.#port = port;
    port.listen(
      (answered) => this.#take(answered),
      (why) => this.#lose(why),
    );
  }

  /** Gives the worker its module, and compares the ABI. */
  async start(module: WebAssembly.Module): Promise<void> {
    const versions = await this.#ask<{ version: string; abiVersion: number }>((id) => ({ id, call: "start", module }), new Map(), "start");
    if (versions.abiVersion !== ABI_VERSION) {
      const [old, which] = versions.abiVersion < ABI_VERSION ? ["the WebAssembly module", "it"] : ["this package", "it"];
      throw new CactusError("not_in_build", `${old} is too old: the module has ABI ${versions.abiVersion}, this package ${ABI_VERSION}; update ${which}`, -15);
    }
    this.#versions = versions;
  }

  /** Ends the worker, whatever it does. */
  end(): void {
    this.#lose("the engine was ended");
    this.#port.end();
  }

  /** A function that `Native` does not have. */
  extra<T>(call: string, ...given: unknown[]): Promise<T> {
    return this.#call(call, given) as Promise<T>;
  }

  native(): Native {
    const now = {
      version: () => this.#known().version,
      abiVersion: () => this.#known().abiVersion,
      // One thread does one thing at a time.
      transcriptionStart: undefined,
    };
    return new Proxy(now as unknown as Native, {
      get: (now, name) => (name in now ? now[name as "version"] : (...given: unknown[]) => this.#call(String(name), given)),
    });
  }

  #known(): { version: string; abiVersion: number } {
    if (this.#versions === undefined) throw new CactusError("internal", "the engine was not started");
    return this.#versions;
  }

  #call(call: string, given: unknown[]): Promise<unknown> {
    const callbacks = new Map<number, (...given: unknown[]) => unknown>();
    const plain = given.map((value, place) => {
      if (typeof value !== "function") return value;
      callbacks.set(place, value as (...given: unknown[]) => unknown);
      return null;
    });
    return this.#ask((id) => ({ id, call, given: plain, callbacks: [...callbacks.keys()] }), callbacks, call);
  }

  #ask<T>(asked: (id: number) => Asked, callbacks: Waiting["callbacks"], call: string): Promise<T> {
    if (this.#ended !== undefined) return Promise.reject(new CactusError("system", this.#ended, -14));
    const id = this.#next++;
    return new Promise<T>((give, fail) => {
      this.#waiting.set(id, { call, give: give as Waiting["give"], fail, callbacks });
      this.#hold();
      this.#port.post(asked(id));
      if (KEEPS.has(call)) {
        const before = this.#kept.get(call);
        this.#kept.set(call, id);
        if (before !== undefined) this.#waiting.delete(before);
      }
    });
  }

  #hold(): void {
    const kept = [...this.#kept.values()].filter((id) => this.#waiting.has(id)).length;
    this.#port.hold?.(this.#waiting.size > kept);
  }

  #take(answered: Answered): void {
    const waiting = this.#waiting.get(answered.id);
    if (waiting === undefined) return;
    if ("callback" in answered) {
      const says = waiting.callbacks.get(answered.callback)?.(...answered.given);
      if (STOPS.has(waiting.call)) this.#port.post({ id: answered.id, goesOn: says !== false });
      return;
    }
    if (![...this.#kept.values()].includes(answered.id)) this.#waiting.delete(answered.id);
    this.#hold();
    if ("fails" in answered) {
      const { code, kind, message } = answered.fails;
      waiting.fail(new CactusError(kind as CactusError["kind"], message, code));
    } else {
      waiting.give(answered.gives as never);
    }
  }

  #lose(why: string): void {
    this.#ended ??= why;
    const all = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#hold();
    for (const { fail } of all) fail(new CactusError("system", why, -14));
  }
}

/** The one engine of a page or a process. */
export class Running {
  #remote: Remote | undefined;
  #starting: Promise<void> | undefined;
  #missing = () => new CactusError("internal", "the engine was not started; await start() first");

  constructor() {
    provide(() => this.remote.native());
  }

  /** The engine, once it has started. */
  get remote(): Remote {
    if (this.#remote === undefined) throw this.#missing();
    return this.#remote;
  }

  /** Starts the engine, unless it runs or is being started. `compile` makes its module, and `port` its worker. */
  start(compile: () => Promise<WebAssembly.Module>, port: () => Port): Promise<void> {
    if (this.#starting !== undefined) return this.#starting;
    const starting: Promise<void> = this.#begin(compile, port, () => this.#starting === starting).catch((thrown: unknown) => {
      if (this.#starting === starting) this.#starting = undefined;
      throw thrown;
    });
    this.#starting = starting;
    return starting;
  }

  async #begin(compile: () => Promise<WebAssembly.Module>, port: () => Port, isWanted: () => boolean): Promise<void> {
    const module = await compile();
    const ended = (): CactusError => new CactusError("system", "the engine was ended while it started", -14);
    if (!isWanted()) throw ended();
    const remote = new Remote(port());
    try {
      await remote.start(module);
      if (!isWanted()) throw ended();
    } catch (thrown) {
      remote.end();
      throw thrown;
    }
    this.#remote = remote;
    provide(() => this.remote.native());
  }

  /** Ends the engine, whatever it does, also while it starts. What was open is closed. */
  stop(): void {
    this.#remote?.end();
    this.#remote = undefined;
    this.#starting = undefined;
    this.#missing = () => new CactusError("system", "the engine was ended; await start() to begin anew", -14);
    // Whatever was open of it is known to be closed.
    provide(() => this.remote.native());
  }
}
