// Models.

import { CactusError, calling, wrong } from "./errors.ts";
import { abortReason, type Held, opened, type Signal } from "./lifetime.ts";
import { type Handle, native, type OnProgress } from "./native.ts";
import { type Path, pathOf } from "./paths.ts";
import { Session } from "./session.ts";
import { requestOf, Talker } from "./talker.ts";
import type { Asked, Message, Request } from "./types.ts";

/** A step on the way to a model. */
export interface Progress {
  /** `downloading`, `converting`, `loading`, …; or `note`, which the user should read. */
  stage: string;
  /** What it is about: a model, a file, a text. */
  what: string;
  /** How much of it is done, and of how much; 0 of 0 where that is not known. */
  done: number;
  total: number;
}

/** How a model is got. */
export interface PrepareOptions {
  bits?: number;
  calibrate?: boolean;
  reconvert?: boolean;
  /** Use what is on this machine alone. */
  offline?: boolean;
  token?: string;
  /** Folder of the cache. */
  cache?: string;
  /** Hears how it goes on. What gives false stops it. */
  onProgress?: (progress: Progress) => unknown;
  /** Stops it; the promise is rejected with the signal's reason. What was downloaded is kept. */
  signal?: Signal;
}

/** How a model is got and run. */
export interface LoadOptions extends PrepareOptions {
  context_tokens?: number;
  threads?: number;
  decode_threads?: number;
  pin?: boolean;
  kv_dtype?: "int8" | "f16";
  chunk_tokens?: number;
  sequences?: number;
  queue?: number;
  kv_tokens?: number;
}

/** Who else may answer. Options come after the text of a policy file. */
export interface PolicyOptions {
  target?: string;
  key?: string;
  keys?: { [target: string]: string };
  handoff?: "auto" | "never" | "always";
  /** The most that a session may cost, in dollars, as text. */
  budget?: string;
  /** What may leave without a question: `text`, `tool_result`, `image`, `audio`, `document`. */
  consent?: string[];
  /** Folder of budget, record and keys. */
  state?: string;
}

/** How likely tokens are. */
export interface Score {
  /** Sum of natural logarithms. */
  logprob: number;
  /** How many were scored. */
  tokens: number;
  /** Of each. */
  logprobs: number[];
}

/** Calls `get` with options as text, and a function that hears progress. */
async function getting<T>(options: LoadOptions, get: (json: string | null, progress: OnProgress | null) => Promise<T>, drop: (got: T) => Promise<unknown>) {
  const { onProgress, signal, ...rest } = options;
  const isAborted = (): boolean => signal?.aborted === true;
  if (isAborted()) throw abortReason(signal!);
  let thrown: { error: unknown } | undefined;
  let isRefused = false;
  const goesOn = (): boolean => thrown === undefined && !isRefused && !isAborted();
  const progress: OnProgress = (stage, what, done, total) => {
    try {
      if (goesOn() && onProgress?.({ stage, what, done, total }) === false) isRefused = true;
    } catch (error) {
      thrown = { error };
    }
    return goesOn();
  };
  let cause: unknown;
  try {
    const got = await calling(() => get(JSON.stringify(rest), onProgress === undefined && signal === undefined ? null : progress));
    if (goesOn()) return got;
    // It was there before the library heard of it.
    await calling(() => drop(got));
  } catch (error) {
    if (goesOn()) throw error;
    cause = error;
  }
  if (thrown !== undefined) throw thrown.error;
  throw isAborted() ? abortReason(signal!) : new CactusError("cancelled", "`onProgress` has stopped it", undefined, cause);
}

/** Downloads and converts a model where need be, without loading it. Gives the folder of the bundle. */
export function prepare(source: Path, options: PrepareOptions = {}): Promise<string> {
  const name = pathOf(source, "source");
  return getting(options, (json, progress) => native().modelPrepare(name, json, progress), () => Promise.resolve());
}

/** A loaded model. Any number of requests may be under way; they are computed together. */
export class Model extends Talker {
  /** @internal */
  constructor(held: Held) {
    super("model", held);
  }

  /**
   * Loads a model: the folder of a bundle, a GGUF file, an address (`https://`) of either, a Hugging Face folder or id, or a known
   * name. What is not here is downloaded once, and what is no bundle converted.
   */
  static async load(source: Path, options: LoadOptions = {}): Promise<Model> {
    const name = pathOf(source, "source");
    const close: Held["close"] = (of, handle) => of.modelClose(handle);
    const get = (json: string | null, progress: OnProgress | null) => opened((of) => of.modelLoad(name, json, progress), close);
    return new Model(await getting(options, get, async (held) => close(held.of, held.handle)));
  }

  /** Downloads and converts a model where need be, without loading it. Gives the folder of the bundle. */
  static prepare(source: Path, options: PrepareOptions = {}): Promise<string> {
    return prepare(source, options);
  }

  /** Name, sizes, threads, memory and requests. */
  async info(): Promise<{ [name: string]: unknown }> {
    return JSON.parse(await this.call((of, model) => of.modelInfo(model)));
  }

  /** Token ids of a text; with the tokens that the model puts around texts where `special`. */
  async tokenize(text: string, special = false): Promise<Uint32Array> {
    return this.call((of, model) => of.modelTokenize(model, text, special));
  }

  /** The text of token ids. Special tokens are spelled out where `special`. */
  async detokenize(tokens: Iterable<number>, special = false): Promise<string> {
    return this.call((of, model) => of.modelDetokenize(model, ids(tokens), special));
  }

  /** How likely the tokens from `first` on are, each given all before it. */
  async score(tokens: Iterable<number>, first = 1): Promise<Score> {
    return JSON.parse(await this.call((of, model) => of.modelScore(model, ids(tokens), first)));
  }

  /** The prompt that a conversation becomes. */
  async renderPrompt(messages: Message[], tools?: unknown[]): Promise<string> {
    const given = tools === undefined ? null : JSON.stringify(tools);
    return this.call((of, model) => of.renderPrompt(model, JSON.stringify(messages), null, given));
  }

  /** At most so many threads from now on; 0 leaves one as it is. For a device that gets hot. Answers stay the same. */
  async setThreads(threads: number, decodeThreads = 0): Promise<void> {
    await this.call((of, model) => of.modelSetThreads(model, threads, decodeThreads));
  }

  /** Says who else may answer, as the text of a policy file and options. With neither, the model answers alone again. */
  async setPolicy(policy: string | null, options?: PolicyOptions | null): Promise<void> {
    const json = options === undefined || options === null ? null : JSON.stringify(options);
    await this.call((of, model) => of.modelSetPolicy(model, policy, json));
  }

  /** Opens a conversation. `defaults` has messages to begin with, and fields that hold for every request of it. */
  async session(defaults: Request = {}): Promise<Session> {
    const open = () => this.call((of, model) => of.sessionOpen(model, JSON.stringify(defaults)));
    return new Session(await opened(open, (of, session) => of.sessionClose(session), this));
  }

  protected begin(asked: Asked): Promise<Handle> {
    return this.call((of, model) => of.requestStart(model, JSON.stringify(requestOf(asked))));
  }

  protected messagesOf(request: Request): Message[] {
    if (request.messages === undefined) throw wrong("tools need `messages`");
    return request.messages;
  }

  protected nextRound(before: Message[], answer: Message, results: Message[]): Message[] {
    return [...before, answer, ...results];
  }
}

export function ids(tokens: Iterable<number>): Uint32Array {
  if (tokens instanceof Uint32Array) return tokens;
  const given = Array.from(tokens);
  const bad = given.find((token) => !Number.isInteger(token) || token < 0 || token > 0xffff_ffff);
  if (bad !== undefined) throw new CactusError("argument", `\`tokens\`: ${String(bad)} is no token`);
  return Uint32Array.from(given);
}
