// The functions of libcactus in a WebAssembly module, with values of JavaScript: the interface `Native`, on one thread.
//
// There are no threads, so the engine computes where somebody waits. `requestStep` is how events are fetched without waiting: one
// pass of the model, and what came of it.

import type { ErrorKind, Handle, Native, OnLog, OnProgress, OnToken, Text } from "../../node/src/native.ts";
import { Folder } from "./files.ts";
import { Exit, Wasi } from "./wasi.ts";

/** What a call gives, where `Native` has a promise. */
type Now<F> = F extends (...given: infer A) => infer R ? (...given: A) => Awaited<R> : never;

/** `Native`, but for what is fetched from elsewhere, waits, or goes on beside others. */
export type Calls = { [N in Exclude<keyof Native, "requestNext" | "transcriptionStart">]: Now<Native[N]> };

type Function = (...given: (number | bigint)[]) => number;

/** Bytes that a text of the library may have where it says no size beforehand. All at once: with less, it would be computed again. */
const TEXT_BYTES = 16 << 20;
const BUFFER_TOO_SMALL = -2;

/** A failure of the library, as `Native` throws it. */
export class Failure extends Error {
  readonly code: number;
  readonly kind: ErrorKind;

  constructor(code: number, kind: ErrorKind, message: string) {
    super(message);
    this.code = code;
    this.kind = kind;
  }
}

/** Memory of one call, given back at its end. */
class Arena {
  #places: number[] = [];
  readonly #library: Library;

  constructor(library: Library) {
    this.#library = library;
  }

  place(bytes: number): number {
    const at = this.#library.allocate(bytes);
    this.#places.push(at);
    return at;
  }

  bytes(from: Uint8Array | null): number {
    if (from === null) return 0;
    const at = this.place(from.length);
    this.#library.bytes(at, from.length).set(from);
    return at;
  }

  text(text: Text): number {
    if (text === null) return 0;
    if (typeof text !== "string") throw new Failure(-3, "argument", `expected a text, found ${typeof text}`);
    if (text.includes("\0")) throw new Failure(-3, "argument", "a text has a zero character");
    return this.bytes(new TextEncoder().encode(`${text}\0`));
  }

  array(from: Uint32Array | Int32Array | Float32Array): number {
    return this.bytes(new Uint8Array(from.buffer, from.byteOffset, from.byteLength));
  }

  /** Pointers to texts. */
  texts(from: Text[]): number {
    return this.array(Uint32Array.from(from, (text) => this.text(text)));
  }

  /** Pointers to the rows of a matrix. */
  rows(from: Float32Array, dimension: number): number {
    const rows = dimension === 0 ? 0 : Math.floor(from.length / dimension);
    return this.array(Uint32Array.from({ length: rows }, (_, i) => this.array(from.subarray(i * dimension, (i + 1) * dimension))));
  }

  free(): void {
    for (const at of this.#places) this.#library.release(at);
  }
}

export class Library {
  readonly calls: Calls;
  readonly files: Folder;
  readonly #memory: WebAssembly.Memory;
  readonly #c: { [name: string]: Function };
  readonly #table: WebAssembly.Table;
  readonly #freeEntries: number[] = [];
  #log: number | undefined;
  #defect: string | undefined;
  #said: string[] = [];

  /** Makes a library of a compiled module. `files` is its file system. */
  static async make(module: WebAssembly.Module, files: Folder = new Folder()): Promise<Library> {
    const said: string[] = [];
    const wasi = new Wasi(files, (line) => said.push(line));
    const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi.imports() });
    const exports = instance.exports as { [name: string]: unknown };
    wasi.attach(exports["memory"] as WebAssembly.Memory);
    return new Library(exports, files, said);
  }

  private constructor(exports: { [name: string]: unknown }, files: Folder, said: string[]) {
    this.files = files;
    this.#said = said;
    this.#memory = exports["memory"] as WebAssembly.Memory;
    this.#table = exports["__indirect_function_table"] as WebAssembly.Table;
    const functions = Object.entries(exports).filter(([, value]) => typeof value === "function");
    this.#c = Object.fromEntries(functions.map(([name, call]) => [name, this.#guarded(call as Function)]));
    if ("_initialize" in exports) this.#c["_initialize"]!();
    this.calls = this.#functions();
  }

  /** A function of the library. After a defect nothing is called any more, as its memory may be anything. */
  #guarded(call: Function): Function {
    return (...given) => {
      if (this.#defect !== undefined) throw new Failure(-1, "internal", this.#defect);
      try {
        return call(...given);
      } catch (thrown) {
        if (!(thrown instanceof WebAssembly.RuntimeError || thrown instanceof RangeError || thrown instanceof Exit)) throw thrown;
        const why = this.#said.length > 0 ? this.#said.join(" ") : String(thrown);
        this.#defect = `a defect of Cactus, please report it; nothing of this engine can be used any more: ${why}`;
        throw new Failure(-1, "internal", this.#defect);
      }
    };
  }

  allocate(bytes: number): number {
    const at = this.#c["malloc"]!(Math.max(bytes, 1)) >>> 0;
    if (at === 0) throw new Failure(-14, "system", `${bytes} bytes of memory cannot be had`);
    return at;
  }

  release(at: number): void {
    this.#c["free"]!(at);
  }

  bytes(at: number, length: number): Uint8Array {
    return new Uint8Array(this.#memory.buffer, at, length);
  }

  /** Bytes of the library's memory. */
  get memoryBytes(): number {
    return this.#memory.buffer.byteLength;
  }

  #u32(at: number): number {
    return new DataView(this.#memory.buffer).getUint32(at, true);
  }

  #text(at: number): string {
    if (at === 0) return "";
    const all = new Uint8Array(this.#memory.buffer);
    return new TextDecoder().decode(all.slice(at, all.indexOf(0, at)));
  }

  /** A text that has to be given back. */
  #owned(at: number): string {
    const text = this.#text(at);
    if (at !== 0) this.#c["cactus_string_free"]!(at);
    return text;
  }

  #failure(): Failure {
    const error = this.allocate(12);
    try {
      this.#c["cactus_last_error"]!(error);
      const code = new DataView(this.#memory.buffer).getInt32(error, true);
      return new Failure(code, this.#text(this.#u32(error + 4)) as ErrorKind, this.#text(this.#u32(error + 8)));
    } finally {
      this.release(error);
    }
  }

  #check(code: number): number {
    if (code < 0) throw this.#failure();
    return code;
  }

  #with<T>(use: (arena: Arena) => T): T {
    const arena = new Arena(this);
    try {
      return use(arena);
    } finally {
      if (this.#defect === undefined) arena.free();
    }
  }

  /** What a call writes to a pointer, which is its last argument. */
  #given(use: (arena: Arena, place: number) => number): number {
    return this.#with((arena) => {
      const place = arena.bytes(new Uint8Array(8));
      this.#check(use(arena, place));
      return this.#u32(place);
    });
  }

  /** As `#given`, of a text. */
  #givenText(use: (arena: Arena, place: number) => number): string {
    return this.#owned(this.#given(use));
  }

  /** A handle that is returned. */
  #returned(use: (arena: Arena) => number): Handle {
    return this.#with((arena) => {
      this.#c["cactus_clear_error"]!();
      const handle = use(arena) >>> 0;
      if (handle === 0) throw this.#failure();
      return handle;
    });
  }

  /** A text in a buffer. */
  #buffered(use: (arena: Arena, place: number, bytes: number) => number): string {
    return this.#with((arena) => {
      const place = arena.place(TEXT_BYTES);
      this.bytes(place, 1)[0] = 0;
      this.#check(use(arena, place, TEXT_BYTES));
      return this.#text(place);
    });
  }

  /** A vector in a buffer. */
  #vector(use: (arena: Arena, place: number, bytes: number, dimension: number) => number): Float32Array {
    for (let room = 4096; ; ) {
      const found = this.#with((arena) => {
        const [place, dimension] = [arena.place(4 * room), arena.bytes(new Uint8Array(4))];
        const code = use(arena, place, 4 * room, dimension);
        const floats = this.#u32(dimension);
        if (code === BUFFER_TOO_SMALL && floats > room) return floats;
        this.#check(code);
        return new Float32Array(this.bytes(place, 4 * floats).slice().buffer);
      });
      if (typeof found !== "number") return found;
      room = found;
    }
  }

  /** A place in the table of functions for one of JavaScript; types are those of WebAssembly, `i` and `j` for 32 and 64 bits. */
  #callback(parameters: string, result: string, call: (...given: never[]) => unknown): number {
    const types: { [name: string]: number } = { i: 0x7f, j: 0x7e };
    const list = (text: string): number[] => [text.length, ...[...text].map((name) => types[name]!)];
    const section = (id: number, bytes: number[]): number[] => [id, bytes.length, ...bytes];
    const signature = [1, 0x60, ...list(parameters), ...list(result)];
    // Imports `f.f` and exports it, which makes a function with a type of it.
    const module = new WebAssembly.Module(
      new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, signature), ...section(2, [1, 1, 0x66, 1, 0x66, 0, 0]), ...section(7, [1, 1, 0x66, 0, 0])]),
    );
    const typed = new WebAssembly.Instance(module, { f: { f: call as (...given: unknown[]) => unknown } }).exports["f"];
    const entry = this.#freeEntries.pop() ?? this.#table.grow(1);
    this.#table.set(entry, typed as () => unknown);
    return entry;
  }

  #forget(entry: number): void {
    if (entry === 0) return;
    this.#table.set(entry, null);
    this.#freeEntries.push(entry);
  }

  #withCallback<T>(entry: number, use: () => T): T {
    try {
      return use();
    } finally {
      this.#forget(entry);
    }
  }

  #progress(progress: OnProgress | null): number {
    if (progress === null) return 0;
    return this.#callback("iijji", "i", (stage: number, what: number, done: bigint, total: bigint) =>
      progress(this.#text(stage >>> 0), this.#text(what >>> 0), Number(done), Number(total)) === false ? 1 : 0,
    );
  }

  #tokens(callback: OnToken | null): number {
    if (callback === null) return 0;
    return this.#callback("iii", "", (text: number, token: number) => void callback(this.#text(text >>> 0), token >>> 0));
  }

  /**
   * Events that have come of a request, each as JSON. Computes one pass where nothing has come. `over` says that nothing will come
   * any more.
   */
  requestStep(request: Handle): { events: string[]; over: boolean } {
    return this.#with((arena) => {
      const place = arena.bytes(new Uint8Array(8));
      const events: string[] = [];
      for (;;) {
        this.#check(this.#c["cactus_request_next"]!(request, 0n, place, place + 4));
        const event = this.#u32(place);
        if (event === 0) return { events, over: this.bytes(place + 4, 1)[0] !== 0 };
        const text = this.#owned(event);
        events.push(text);
        // The last one. What else has come is there without a pass; a token more would delay this one.
        if (/^\{"event":"(text|reasoning|done|cancelled|failed|consent)"/.test(text)) return { events, over: false };
      }
    });
  }

  #functions(): Calls {
    const c = this.#c;
    const flag = (yes: boolean): number => (yes ? 1 : 0);
    return {
      version: () => this.#text(c["cactus_version"]!() >>> 0),
      abiVersion: () => c["cactus_abi_version"]!() >>> 0,
      modelInfo: (model) => this.#givenText((_, place) => c["cactus_model_info"]!(model, place)),
      modelSetThreads: (model, threads, decode) => void this.#check(c["cactus_model_set_threads"]!(model, threads, decode)),
      memoryPressure: () => void c["cactus_memory_pressure"]!(),
      requestCancel: (request) => void this.#check(c["cactus_request_cancel"]!(request)),
      requestConsent: (request, yes) => void this.#check(c["cactus_request_consent"]!(request, flag(yes))),
      sessionMessages: (session) => this.#givenText((_, place) => c["cactus_session_messages"]!(session, place)),
      stop: (model) => void c["cactus_stop"]!(model),
      logSetLevel: (level) => void c["cactus_log_set_level"]!(level),
      logSetCallback: (callback) => {
        const before = this.#log;
        const told = (listener: OnLog) => (level: number, component: number, message: number) =>
          void listener(level, this.#text(component >>> 0), this.#text(message >>> 0));
        this.#log = callback === null ? 0 : this.#callback("iiii", "", told(callback));
        c["cactus_log_set_callback"]!(this.#log, 0);
        this.#forget(before ?? 0);
      },
      modelLoad: (name, options, progress) => {
        const heard = this.#progress(progress);
        return this.#withCallback(heard, () =>
          this.#given((arena, place) => c["cactus_model_load"]!(arena.text(name), arena.text(options), heard, 0, place)),
        );
      },
      modelPrepare: (name, options, progress) => {
        const heard = this.#progress(progress);
        return this.#withCallback(heard, () =>
          this.#givenText((arena, place) => c["cactus_model_prepare"]!(arena.text(name), arena.text(options), heard, 0, place)),
        );
      },
      modelClose: (model) => void this.#check(c["cactus_model_close"]!(model)),
      modelTokenize: (model, text, special) =>
        this.#with((arena) => {
          const place = arena.bytes(new Uint8Array(8));
          this.#check(c["cactus_model_tokenize"]!(model, arena.text(text), flag(special), place, place + 4));
          const [tokens, count] = [this.#u32(place), this.#u32(place + 4)];
          const all = new Uint32Array(this.bytes(tokens, 4 * count).slice().buffer);
          c["cactus_tokens_free"]!(tokens, count);
          return all;
        }),
      modelDetokenize: (model, tokens, special) =>
        this.#givenText((arena, place) => c["cactus_model_detokenize"]!(model, arena.array(tokens), tokens.length, flag(special), place)),
      modelScore: (model, tokens, first) =>
        this.#givenText((arena, place) => c["cactus_model_score"]!(model, arena.array(tokens), tokens.length, first, place)),
      checkBundle: (path, verify) =>
        this.#with((arena) => {
          const place = arena.bytes(new Uint8Array(4));
          const code = c["cactus_check_bundle"]!(arena.text(path), flag(verify), place);
          const report = this.#u32(place);
          if (report === 0) this.#check(code);
          return this.#owned(report);
        }),
      requestStart: (model, request) => this.#given((arena, place) => c["cactus_request_start"]!(model, arena.text(request), 0, 0, place)),
      requestWait: (request) => this.#givenText((_, place) => c["cactus_request_wait"]!(request, place)),
      requestClose: (request) => void this.#check(c["cactus_request_close"]!(request)),
      sessionOpen: (model, defaults) => this.#given((arena, place) => c["cactus_session_open"]!(model, arena.text(defaults), place)),
      sessionSend: (session, request) => this.#given((arena, place) => c["cactus_session_send"]!(session, arena.text(request), 0, 0, place)),
      sessionClose: (session) => void this.#check(c["cactus_session_close"]!(session)),
      embed: (model, text, normalize) =>
        this.#vector((arena, place, bytes, dimension) => c["cactus_embed"]!(model, arena.text(text), place, bytes, dimension, flag(normalize))),
      imageEmbed: (model, path) =>
        this.#vector((arena, place, bytes, dimension) => c["cactus_image_embed"]!(model, arena.text(path), place, bytes, dimension)),
      transcribe: (model, file, prompt, options, callback, pcm) => {
        const heard = this.#tokens(callback);
        return this.#withCallback(heard, () =>
          this.#buffered((arena, place, bytes) =>
            c["cactus_transcribe"]!(model, arena.text(file), arena.text(prompt), place, bytes, arena.text(options), heard, 0, arena.bytes(pcm), pcm?.length ?? 0),
          ),
        );
      },
      detectLanguage: (model, file, options, pcm) =>
        this.#buffered((arena, place, bytes) =>
          c["cactus_detect_language"]!(model, arena.text(file), place, bytes, arena.text(options), arena.bytes(pcm), pcm?.length ?? 0),
        ),
      vad: (model, file, options, pcm) =>
        this.#buffered((arena, place, bytes) =>
          c["cactus_vad"]!(model, arena.text(file), place, bytes, arena.text(options), arena.bytes(pcm), pcm?.length ?? 0),
        ),
      indexInit: (folder, dimension) => this.#returned((arena) => c["cactus_index_init"]!(arena.text(folder), dimension)),
      indexAdd: (index, ids, documents, metadatas, embeddings, dimension) =>
        this.#with((arena) => {
          const [texts, extras] = [arena.texts(documents), arena.texts(metadatas)];
          this.#check(c["cactus_index_add"]!(index, arena.array(ids), texts, extras, arena.rows(embeddings, dimension), ids.length, dimension));
        }),
      indexDelete: (index, ids) => this.#with((arena) => void this.#check(c["cactus_index_delete"]!(index, arena.array(ids), ids.length))),
      indexGet: (index, ids) => this.#indexGet(index, ids),
      indexQuery: (index, embeddings, dimension, options, room) =>
        this.#with((arena) => {
          const count = dimension === 0 ? 0 : Math.floor(embeddings.length / dimension);
          const rows = (): number[] => Array.from({ length: count }, () => arena.place(4 * (room + 1)));
          const [ids, scores] = [rows(), rows()];
          const sizes = (): number => arena.array(new Uint32Array(count).fill(room));
          const [idSizes, scoreSizes] = [sizes(), sizes()];
          const pointers = (of: number[]): number => arena.array(Uint32Array.from(of));
          this.#check(
            c["cactus_index_query"]!(
              index,
              arena.rows(embeddings, dimension),
              count,
              dimension,
              arena.text(options),
              pointers(ids),
              idSizes,
              pointers(scores),
              scoreSizes,
            ),
          );
          const counts = new Uint32Array(this.bytes(idSizes, 4 * count).slice().buffer);
          const total = counts.reduce((sum, n) => sum + n, 0);
          const found = { counts, ids: new Int32Array(total), scores: new Float32Array(total) };
          let at = 0;
          counts.forEach((n, i) => {
            found.ids.set(new Int32Array(this.bytes(ids[i]!, 4 * n).slice().buffer), at);
            found.scores.set(new Float32Array(this.bytes(scores[i]!, 4 * n).slice().buffer), at);
            at += n;
          });
          return found;
        }),
      indexCompact: (index) => void this.#check(c["cactus_index_compact"]!(index)),
      indexDestroy: (index) => void c["cactus_index_destroy"]!(index),
      streamTranscribeStart: (model, options) => this.#returned((arena) => c["cactus_stream_transcribe_start"]!(model, arena.text(options))),
      streamTranscribeProcess: (stream, pcm) =>
        this.#buffered((arena, place, bytes) =>
          c["cactus_stream_transcribe_process"]!(stream, arena.bytes(pcm), pcm?.length ?? 0, place, bytes),
        ),
      streamTranscribeStop: (stream, finish) => {
        if (finish) return this.#buffered((_, place, bytes) => c["cactus_stream_transcribe_stop"]!(stream, place, bytes));
        this.#check(c["cactus_stream_transcribe_stop"]!(stream, 0, 0));
        return "";
      },
      init: (path, corpus, cache) => this.#returned((arena) => c["cactus_init"]!(arena.text(path), arena.text(corpus), flag(cache))),
      destroy: (model) => void c["cactus_destroy"]!(model),
      ragQuery: (model, query, top) => this.#buffered((arena, place, bytes) => c["cactus_rag_query"]!(model, arena.text(query), place, bytes, top)),
      renderPrompt: (model, messages, options, tools) =>
        this.#buffered((arena, place, bytes) =>
          c["cactus_render_prompt"]!(model, arena.text(messages), arena.text(options), arena.text(tools), place, bytes),
        ),
      modelSetPolicy: (model, policy, options) =>
        this.#with((arena) => void this.#check(c["cactus_model_set_policy"]!(model, arena.text(policy), arena.text(options)))),
    };
  }

  #indexGet(index: Handle, ids: Int32Array): { documents: string[]; metadatas: string[]; embeddings: Float32Array } {
    const count = ids.length;
    const sizes = [256, 256, 1024].map((size) => new Uint32Array(count).fill(size));
    for (;;) {
      const found = this.#with((arena) => {
        const unit = [1, 1, 4];
        const places = sizes.map((of, i) => Array.from(of, (size) => arena.place(unit[i]! * size)));
        const pointers = places.map((of) => arena.array(Uint32Array.from(of)));
        const told = sizes.map((of) => arena.array(of));
        const given = pointers.flatMap((pointer, i) => [pointer, told[i]!]);
        const code = this.#c["cactus_index_get"]!(index, arena.array(ids), count, ...given);
        if (code === BUFFER_TOO_SMALL) {
          sizes.forEach((of, i) => of.set(new Uint32Array(this.bytes(told[i]!, 4 * count).slice().buffer)));
          return undefined;
        }
        this.#check(code);
        const lengths = new Uint32Array(this.bytes(told[2]!, 4 * count).slice().buffer);
        const embeddings = new Float32Array(lengths.reduce((sum, n) => sum + n, 0));
        let at = 0;
        lengths.forEach((n, i) => {
          embeddings.set(new Float32Array(this.bytes(places[2]![i]!, 4 * n).slice().buffer), at);
          at += n;
        });
        const texts = (of: number[]): string[] => of.map((place) => this.#text(place));
        return { documents: texts(places[0]!), metadatas: texts(places[1]!), embeddings };
      });
      if (found !== undefined) return found;
    }
  }
}
