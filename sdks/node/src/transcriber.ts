// Models that hear, and models that find speech.

import { CactusError, calling, wrong } from "./errors.ts";
import { abortable, abortReason, Closable, type Held, onAbort, opened, type Signal } from "./lifetime.ts";
import type { PolicyOptions } from "./model.ts";
import type { Native } from "./native.ts";
import { type Path, pathOf } from "./paths.ts";

/** Samples: mono, 16,000 a second. Bytes are 16 bits, little-endian; floats are from -1 to 1. */
export type Pcm = Int16Array | Float32Array | Uint8Array | ArrayBuffer;

/** A recording: a file of any format, or samples. */
export type Sound = Path | { pcm: Pcm };

export interface TranscribeOptions {
  /** Such as `de`; without it, the model finds out. */
  language?: string;
  /** Into English. */
  translate?: boolean;
  temperature?: number;
  /** Words that may be said. */
  custom_vocabulary?: string[];
  /** Seconds of silence beside which text is left out that nobody may have said. */
  hallucination_silence?: number;
  /** Text as if said before. */
  prompt?: string;
  /** Hears the text of each segment. */
  onText?: (text: string) => void;
  /** Stops this transcription, also while it waits for another; the promise is rejected with the signal's reason. */
  signal?: Signal;
  [name: string]: unknown;
}

export interface Segment {
  start: number;
  end: number;
  text: string;
  [name: string]: unknown;
}

export interface Transcript {
  response: string;
  /** With times in seconds. */
  segments: Segment[];
  language: string;
  [name: string]: unknown;
}

export interface LiveOptions extends Omit<TranscribeOptions, "prompt" | "onText" | "signal"> {
  /** Folder of the bundle that finds speech; the folder `vad` inside the model's own without it. */
  vad?: string;
  min_chunk_sec?: number;
  silence_sec?: number;
  sentence_sec?: number;
  margin_sec?: number;
  commit?: "agreement" | "attention";
  max_segment_sec?: number;
  threshold?: number;
}

export interface LiveResult {
  /** What has become certain since the last call. It is never taken back. */
  confirmed: string;
  /** What is behind it, and may still change. */
  pending: string;
  language: string | null;
  events: { event: string; [name: string]: unknown }[];
  [name: string]: unknown;
}

/** What happens to a transcription. */
type HeardEvent =
  | { event: "text"; text: string }
  | { event: "done" | "cancelled"; result: Transcript }
  | { event: "failed"; kind: CactusError["kind"]; text: string; code: number };

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** The bytes of samples. */
export function bytesOf(pcm: Pcm): Uint8Array {
  if (pcm instanceof Uint8Array) return pcm;
  if (pcm instanceof ArrayBuffer) return new Uint8Array(pcm);
  let samples: Int16Array;
  if (pcm instanceof Int16Array) samples = pcm;
  else if (pcm instanceof Float32Array) samples = Int16Array.from(pcm, (x) => Math.max(-32768, Math.min(32767, Math.round(x * 32768))));
  else throw wrong("`pcm`: expected an Int16Array, a Float32Array, or bytes");
  if (isLittleEndian) return new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  const bytes = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, i) => bytes.setInt16(i * 2, sample, true));
  return new Uint8Array(bytes.buffer);
}

function soundOf(sound: Sound): { file: string | null; pcm: Uint8Array | null } {
  if (typeof sound === "object" && sound !== null && "pcm" in sound) return { file: null, pcm: bytesOf(sound.pcm) };
  return { file: pathOf(sound, "sound"), pcm: null };
}

/** A model that writes down what is said, or one that finds where somebody speaks. One recording at a time; others wait. */
export class Transcriber extends Closable {
  /** Loads the bundle in a folder: Whisper, Parakeet or Moonshine, or Silero VAD. */
  static async load(bundle: Path): Promise<Transcriber> {
    const path = pathOf(bundle, "bundle");
    return new Transcriber("transcriber", await opened((of) => of.init(path, null, false), (of, model) => of.destroy(model)));
  }

  /** Writes down what is said. */
  async transcribe(sound: Sound, options: TranscribeOptions = {}): Promise<Transcript> {
    const { onText, signal, ...rest } = options;
    const { file, pcm } = soundOf(sound);
    // The web's library has no threads: a recording is written down as a whole there.
    if ((this.held.of as Partial<Native>).transcriptionStart === undefined) return this.#transcribed(file, pcm, options);
    if (signal?.aborted) throw abortReason(signal);
    const start = () => this.call((of, model) => of.transcriptionStart(model, file, pcm, JSON.stringify(rest)));
    const { of, handle } = await opened(start, (of, request) => of.requestClose(request), this);
    const quit = onAbort(signal, () => void calling(() => of.requestCancel(handle)).catch(() => {}));
    try {
      for (;;) {
        const events = JSON.parse(await calling(() => of.requestNext(handle, -1))) as HeardEvent[];
        for (const event of events) {
          if (event.event === "text") onText?.(event.text);
          else if (signal?.aborted) throw abortReason(signal);
          else if (event.event === "done") return event.result;
          else if (event.event === "failed") throw new CactusError(event.kind, event.text, event.code);
          else throw new CactusError("cancelled", "the transcription was stopped", -11);
        }
        if (events.length === 0) throw new CactusError("internal", "a transcription ended without a last event");
      }
    } finally {
      quit();
      await calling(() => of.requestClose(handle));
    }
  }

  async #transcribed(file: string | null, pcm: Uint8Array | null, options: TranscribeOptions): Promise<Transcript> {
    const { prompt = null, onText, signal, ...rest } = options;
    const { of, handle } = this.held;
    let thrown: { error: unknown } | undefined;
    const hear = (text: string): void => {
      try {
        if (thrown === undefined && text !== "") onText?.(text);
      } catch (error) {
        thrown = { error };
      }
    };
    const stop = () => of.stop(handle);
    const work = () => this.call((of, model) => of.transcribe(model, file, prompt, JSON.stringify(rest), onText === undefined ? null : hear, pcm));
    const json = await abortable(signal, stop, work);
    if (thrown !== undefined) throw thrown.error;
    return JSON.parse(json);
  }

  /** Finds out which language is spoken at the beginning. */
  async detectLanguage(sound: Sound, options: { [name: string]: unknown } = {}): Promise<{ language: string; confidence: number; entropy: number; [name: string]: unknown }> {
    const { file, pcm } = soundOf(sound);
    return JSON.parse(await this.call((of, model) => of.detectLanguage(model, file, JSON.stringify(options), pcm)));
  }

  /** Where somebody speaks, in samples; of a model that finds speech. Options are those of Silero's `get_speech_timestamps`. */
  async speech(sound: Sound, options: { [name: string]: unknown } = {}): Promise<{ segments: { start: number; end: number }[]; [name: string]: unknown }> {
    const { file, pcm } = soundOf(sound);
    return JSON.parse(await this.call((of, model) => of.vad(model, file, JSON.stringify(options), pcm)));
  }

  /** Begins to listen to live speech. A second model finds speech: the option `vad` names its folder. */
  async live(options: LiveOptions = {}): Promise<LiveTranscription> {
    const open = () => this.call((of, model) => of.streamTranscribeStart(model, JSON.stringify(options)));
    return new LiveTranscription(await opened(open, (of, live) => of.streamTranscribeStop(live, false), this));
  }

  /** Who else may hear what is doubtful. With both null, nobody. */
  async setPolicy(policy: string | null, options?: PolicyOptions | null): Promise<void> {
    const json = options === undefined || options === null ? null : JSON.stringify(options);
    await this.call((of, model) => of.modelSetPolicy(model, policy, json));
  }
}

/** Live speech. */
export class LiveTranscription extends Closable {
  #last: Promise<unknown> = Promise.resolve();
  #finish = false;
  #finished: string | undefined;

  /** @internal */
  constructor(held: Held) {
    super("live transcription", held);
  }

  /** Takes the next samples, as many as there are. */
  push(pcm: Pcm): Promise<LiveResult> {
    // Threads overtake each other; sound must not.
    const push = async () => JSON.parse(await this.call((of, live) => of.streamTranscribeProcess(live, bytes))) as LiveResult;
    const bytes = bytesOf(pcm).slice();
    const pushed = this.#last.then(push, push);
    this.#last = pushed.catch(() => {});
    return pushed;
  }

  /** Makes final what was said last, and closes it. */
  async finish(): Promise<LiveResult> {
    await this.#last;
    void this.held;
    this.#finish = true;
    await this.close();
    if (this.#finished === undefined) throw new CactusError("handle", "the live transcription was closed");
    return JSON.parse(this.#finished);
  }

  protected override async closing(held: Held): Promise<void> {
    const finish = this.#finish;
    if (!finish) await this.#last;
    this.#finished = await calling(() => held.of.streamTranscribeStop(held.handle, finish));
  }
}

