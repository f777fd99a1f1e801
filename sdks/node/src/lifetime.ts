// What is open and has to be closed: once, by whoever has it, or by a finalizer where it was forgotten.

import { CactusError, calling, understood } from "./errors.ts";
import { type Handle, type Native, native, type Soon } from "./native.ts";

/** Old hosts have no such symbols; then these have another name, and nothing breaks. */
export const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? (Symbol.for("Symbol.dispose") as never);
export const ASYNC_DISPOSE: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as never);

/** A handle, and how it is closed. It does not know whose it is, so that this can be forgotten. */
export interface Held {
  handle: Handle;
  /** The host that has given it. Another, such as an engine that was started anew, means something else by the same number. */
  of: Native;
  /** What must not be closed by a finalizer as long as this is open: a conversation needs its model. */
  owner?: object;
  close: (of: Native, handle: Handle) => Soon<unknown>;
}

/** Opens something of the host. */
export async function opened(open: (of: Native) => Soon<Handle>, close: Held["close"], owner?: object): Promise<Held> {
  const of = native();
  const handle = await calling(() => open(of));
  return owner === undefined ? { handle, of, close } : { handle, of, owner, close };
}

/** Whether a host is the one that is used now. */
export function isCurrent(of: Native): boolean {
  try {
    return native() === of;
  } catch {
    return false;
  }
}

/** What closing `held` gives; nothing where its host has ended, as that closes everything. */
export async function unlessEnded(held: Held, closing: Promise<unknown>): Promise<void> {
  try {
    await closing;
  } catch (thrown) {
    if (isCurrent(held.of)) throw thrown;
  }
}

function closeForgotten(held: Held): void {
  // Nobody is there to hear of an error.
  void calling(() => held.close(held.of, held.handle)).catch(() => {});
}

const forgotten = typeof FinalizationRegistry === "undefined" ? undefined : new FinalizationRegistry<Held>(closeForgotten);

/** Closes `held` when `owner` is forgotten, unless `spare` is called before. */
export function keep(owner: object, held: Held): void {
  forgotten?.register(owner, held, held);
}

export function spare(held: Held): void {
  forgotten?.unregister(held);
}

/** Something that is open. */
export abstract class Closable {
  readonly #what: string;
  #held: Held | undefined;
  #closing: Promise<void> | undefined;
  /** Calls under way. */
  readonly #calls = new Set<Promise<void>>();

  protected constructor(what: string, held: Held) {
    this.#what = what;
    this.#held = held;
    keep(this, held);
  }

  /** What is open. Throws an error of the kind `handle` once it is closed, or its host has ended. */
  protected get held(): Held {
    if (this.#held === undefined || !isCurrent(this.#held.of)) throw new CactusError("handle", `the ${this.#what} was closed`);
    return this.#held;
  }

  /** Makes a call with it. It is not forgotten as long as that is under way. */
  protected async call<T>(make: (of: Native, handle: Handle) => Soon<T>): Promise<T> {
    const { of, handle } = this.held;
    let end!: () => void;
    const ended = new Promise<void>((resolve) => (end = resolve));
    this.#calls.add(ended);
    try {
      return await calling(() => make(of, handle));
    } finally {
      this.#calls.delete(ended);
      end();
    }
  }

  /** Waits until no call is under way. */
  protected async idle(): Promise<void> {
    while (this.#calls.size > 0) await Promise.all(this.#calls);
  }

  /** Whether `close` was called, or the host has ended. */
  get isClosed(): boolean {
    return this.#held === undefined || !isCurrent(this.#held.of);
  }

  /** Closes it: cancels what is under way, and waits for that. May be called any number of times. */
  close(): Promise<void> {
    if (this.#held !== undefined) {
      const held = this.#held;
      this.#held = undefined;
      spare(held);
      this.#closing = unlessEnded(held, this.closing(held));
    }
    return this.#closing ?? Promise.resolve();
  }

  protected async closing(held: Held): Promise<void> {
    await calling(() => held.close(held.of, held.handle));
  }

  /** For `await using`. */
  [ASYNC_DISPOSE](): Promise<void> {
    return this.close();
  }

  /** For `using`: begins to close it, and does not wait. */
  [DISPOSE](): void {
    this.close().catch(() => {});
  }
}

/** Called behind a wait, so that what is waited for is not forgotten before. */
export function keepAlive(_: object): void {}

/** What of `AbortSignal` is used; so a polyfill will do. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** Calls `stop` when `signal` is aborted, until the function that this gives is called. */
export function onAbort(signal: Signal | undefined, stop: () => void): () => void {
  if (signal === undefined) return () => {};
  if (signal.aborted) {
    stop();
    return () => {};
  }
  signal.addEventListener("abort", stop);
  return () => signal.removeEventListener("abort", stop);
}

/** The error of what was aborted: the signal's reason. */
export function abortReason(signal: Signal): unknown {
  return signal.reason ?? new CactusError("cancelled", "it was aborted");
}

/** Waits for `work`, which `stop` ends early; then this throws the signal's reason. */
export async function abortable<T>(signal: Signal | undefined, stop: () => Soon<unknown>, work: () => Promise<T>): Promise<T> {
  if (signal?.aborted) throw abortReason(signal);
  const stopQuietly = (): void => void calling(stop).catch(() => {});
  const quit = onAbort(signal, stopQuietly);
  try {
    const done = await work();
    if (signal?.aborted) throw abortReason(signal);
    return done;
  } catch (thrown) {
    throw signal?.aborted ? abortReason(signal) : understood(thrown);
  } finally {
    quit();
  }
}
