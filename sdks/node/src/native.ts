// What a host gives to the SDK: the functions of libcactus. Made by `cargo xtask sdks`; do not edit.
//
// Everything else of the SDK is written over this interface and knows no host: Node's addon, React Native's module and the
// WebAssembly build each give an object of the type `Native` to `provide`.
//
// Functions of the first part of the interface return at once; a host whose library is on another thread may give a promise. All
// others read files, compute or wait: they run on a thread of the host's own, never on the one that runs JavaScript, and as many at
// once as are called. What fails throws, or rejects with, an `Error` that has `code` and `kind` of the C library.

/** A number that stands for an object of the library. A number that was closed gives an error of the kind `handle`, for ever. */
export type Handle = number;

/** Text, or null where there is none. */
export type Text = string | null;

/** A value, at once or later. */
export type Soon<T> = T | Promise<T>;

/** Takes the progress of loading. Called on the thread of JavaScript while the function runs; false stops it within seconds. */
export type OnProgress = (stage: string, what: string, done: number, total: number) => unknown;

/** Takes the text of a token, and the token. */
export type OnToken = (text: string, token: number) => unknown;

/** Takes what the library has to say: level (0 debug, 1 information, 2 warning, 3 error), part of the library, and message. */
export type OnLog = (level: number, component: string, message: string) => unknown;

/** The ABI that this package was made for. */
export const ABI_VERSION = 1;

/** Why a call failed. */
export type ErrorKind =
  /** No error. */
  | "ok"
  /** A defect of the library. What it was doing is lost; the library goes on. */
  | "internal"
  /** The caller's buffer is too small. */
  | "buffer_too_small"
  /** An argument is null, out of range, not UTF-8, or JSON of the wrong form. */
  | "argument"
  /** A handle was closed, is of another kind, or never was one. */
  | "handle"
  /** The bundle is missing; or it, or a file of a graph or of weights, is damaged, or of a form or version that is not read. */
  | "bundle"
  /** The model cannot do what is asked of it. */
  | "unsupported"
  /** The tokenizer or the chat template is missing or fails. */
  | "text"
  /** The prompt does not fit the context. */
  | "context_full"
  /** The model computed something that is no number. */
  | "numeric"
  /** Too many requests wait already. */
  | "busy"
  /** It was cancelled. */
  | "cancelled"
  /** It cannot be done from inside a callback, because it would wait for that callback. */
  | "in_callback"
  /** The model cannot be downloaded or converted: what came is damaged, or cannot be used. */
  | "fetch"
  /** A file cannot be read or written, or memory or a thread cannot be had. */
  | "system"
  /** This build of the library does not have it. */
  | "not_in_build"
  /** There is no model of that name, or nothing at that path. The message has names like it. */
  | "not_found"
  /** The model is not on this machine, and the network cannot be reached or is turned off. */
  | "offline"
  /** The service wants a token, or refuses the one that it got. */
  | "unauthorized"
  /** Under a policy, neither this machine nor a target has answered. */
  | "unanswered";

/** What happens to a request. */
export type EventName =
  /** The prompt is computed. `json` has `prompt_tokens` and `cached_tokens`. */
  | "started"
  /** Text of the answer: `text`, whole characters. */
  | "text"
  /** Reasoning before the answer: `text`. */
  | "reasoning"
  /**
   * A call of a tool, or part of one. `json` has `index` and, with the call's first event, `id` and `name`; then `arguments`, a
   * piece of a JSON object as text; at its end `end`, or `failed` where it came to nothing and was given out as text.
   */
  | "tool_call"
  /** The end: `json` is the whole result. */
  | "done"
  /** The end of a request that was cancelled: `json` is the result as far as it came. */
  | "cancelled"
  /** The end of a request that failed: `code` says how, `text` why. */
  | "failed"
  /**
   * Of a model with a policy: who answers, before the first of it. `json` has `side` (`local` or `cloud`), `target`, the target's
   * name or null, `reason`, as the result has it in the end, or `unjudged` where nothing is decided yet, and what else the result
   * says of the decision, as far as it is known: `route`, `answered_by`, `confidence`, `error_bound`, `cost_usd`, `cost_is_exact`,
   * `time_to_first_token_ms`, `total_time_ms` and so on. What may still be billed counts with its worst case.
   */
  | "source"
  /**
   * Of a model with a policy: what was said so far is void, as who said it failed or was judged too unsure after a slow beginning.
   * Another answers from the beginning. `json` has the fields of `SOURCE`, here of the answer that is void, and `reason` says why
   * it is.
   */
  | "replaced"
  /**
   * Of a model with a policy: a person has to say whether this may leave, with `cactus_request_consent`. `json` has `classes` (of
   * content), `target`, `host`, `most`, what it may cost at most in dollars, as text, and `reason` and `confidence`, why the target
   * is wanted.
   */
  | "consent";

export interface Native {
  /** The version of the library, as in `0.1.0`. Valid for ever. */
  version(): string;
  /**
   * The ABI of the library, to compare with the `CACTUS_ABI_VERSION` that a program was compiled with. A program needs this one or,
   * once there are several, a later one that says it is compatible.
   */
  abiVersion(): number;
  /** What is known of a model and what it has done, as an owned JSON object. */
  modelInfo(model: Handle): Soon<string>;
  /**
   * Uses at most so many threads from now on, at most as many as the model was loaded with: `threads` for prompts, `decode_threads`
   * for generating; 0 leaves one as it is. For a device that gets hot, or an application that goes to the background. Answers are
   * the same with any number.
   */
  modelSetThreads(model: Handle, threads: number, decode_threads: number): Soon<void>;
  /**
   * Tells the library that memory is short. Every open model forgets what it keeps of earlier prompts, so that their memory can be
   * used for those under way. Answers stay the same; later ones that begin like earlier ones come less soon.
   */
  memoryPressure(): Soon<void>;
  /** Asks a request to stop, from any thread; it ends within a token. May be called again. */
  requestCancel(request: Handle): Soon<void>;
  /**
   * Answers the event `CONSENT` of a request: whether what it lists may leave this machine. With a callback, before that returns,
   * from any thread. Without one, before `cactus_request_next` is called with a time to wait, or `cactus_request_wait`. Where
   * somebody goes on without an answer, nothing leaves, as nobody was there to be asked. Fails where nothing is asked.
   */
  requestConsent(request: Handle, yes: boolean): Soon<void>;
  /**
   * Writes the messages of a conversation to `*messages_json`, as an owned JSON array. `cactus_session_open` takes it back, as
   * `messages`.
   */
  sessionMessages(session: Handle): Soon<string>;
  /** Stops what is under way with a model, from any thread, within a token. What comes later is not stopped. */
  stop(model: Handle): Soon<void>;
  /** Sets the least level that is logged: 0 debug, 1 information, 2 warning (default), 3 error, 4 nothing. */
  logSetLevel(level: number): Soon<void>;
  /**
   * Sets the function that gets what is logged, from any thread that calls the library; without one, or with NULL, nothing is said.
   * It must not throw. `user_data` has to live until another function is set.
   */
  logSetCallback(callback: OnLog | null): Soon<void>;
  /**
   * Loads the model `name`: the folder of a bundle, a GGUF file, a Hugging Face folder, a Hugging Face id (`org/name`, with
   * `@revision` and `:file` where wanted), a known name such as `smollm2`, or the address (`https://`, or `http://` of this
   * machine) of a GGUF file or of the folder of a bundle. What is not on this machine is downloaded, and what is no bundle
   * converted, into the cache of this user first, where it is found the next time, by the command line and by Python too.
   * `options_json` (NULL, or an object) says how that is done (`bits` for each weight, `calibrate`, `reconvert`, `offline`,
   * `token`, and the folder of the `cache`) and how the model is run (`context_tokens`, `threads`, `decode_threads`, `pin`,
   * `kv_dtype`, `chunk_tokens`, `sequences`, `queue`, `kv_tokens`). `progress` may be NULL. A library that was built without the
   * store loads bundles alone, and gives `CACTUS_CODE_NOT_IN_BUILD` for everything else.
   */
  modelLoad(name: string, options_json: Text, progress: OnProgress | null): Promise<Handle>;
  /**
   * As `cactus_model_load`, without loading: writes the folder of the bundle to `*path`, as an owned string. To download a model
   * before it is needed, or for `cactus_init`. `options_json` has `bits`, `calibrate`, `reconvert`, `offline`, `token` and `cache`.
   */
  modelPrepare(name: string, options_json: Text, progress: OnProgress | null): Promise<string>;
  /**
   * Closes a model: cancels its requests, waits until nothing of them runs, and frees it. Requests and sessions of it still have to
   * be closed. From inside a callback it does not wait.
   */
  modelClose(model: Handle): Promise<void>;
  /**
   * Token ids of a text, with the tokens that the model puts around texts where `special`. `*tokens` is an owned array of `*count`
   * ids, for `cactus_tokens_free`.
   */
  modelTokenize(model: Handle, text: string, special: boolean): Promise<Uint32Array>;
  /** The text of `count` token ids, as an owned string. Special tokens are spelled out where `special`, else left out. */
  modelDetokenize(model: Handle, tokens: Uint32Array, special: boolean): Promise<string>;
  /**
   * How likely the tokens from `first` (at least 1) on are, each given all before it. `*score_json` is an owned JSON object with
   * `logprob` (the sum of natural logarithms), `tokens` (how many were scored) and `logprobs` (of each).
   */
  modelScore(model: Handle, tokens: Uint32Array, first: number): Promise<string>;
  /**
   * Whether the bundle in the folder `path` can be used with this build. Returns 0 where it can, else a code. `*report_json`, which
   * may be NULL, gets an owned JSON object in either case, with `usable` and, where not, `code`, `kind` and `message`; with what is
   * known of the bundle where it can be opened. With `verify`, all of it is read and compared with its checksums.
   */
  checkBundle(path: string, verify: boolean): Promise<string>;
  /**
   * Begins a request: a JSON object with `messages`, `prompt` or `tokens`, and what else docs/reference/c-abi.md lists. With a
   * callback, events go there; with NULL, `cactus_request_next` gives them. `*request` has to be closed in any case.
   */
  requestStart(model: Handle, request_json: string): Promise<Handle>;
  /**
   * Waits up to `timeout_ms` milliseconds (negative: for ever, 0: not at all) for the next event of a request without a callback.
   * Writes it to `*event_json` as an owned JSON object with `event`, one of `started`, `text`, `reasoning`, `tool_call`, `done`,
   * `cancelled` and `failed`; or NULL where none came in time. `*over`, which may be NULL, tells whether none will come any more.
   * Here it gives a JSON array with that event and all that came with it; an empty one where none came in time or none will come
   * any more. A request that is closed meanwhile is an error of the kind `handle`.
   */
  requestNext(request: Handle, timeout_ms: number): Promise<string>;
  /**
   * Waits for the end of a request, and writes its whole result to `*result_json` as an owned JSON object. A request that failed
   * gives its code; one that was cancelled gives a result as far as it came.
   */
  requestWait(request: Handle): Promise<string>;
  /**
   * Closes a request: cancels what is left of it, and waits until its callback has returned for the last time. Inside its own
   * callback it does not wait; no further call begins then. Where callbacks of two requests close each other's request, one of them
   * does not wait either: keep what `user_data` points to until both have returned.
   */
  requestClose(request: Handle): Promise<void>;
  /**
   * Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of a request,
   * which hold for every request of the session where it does not say otherwise. What a request could not have is refused here.
   */
  sessionOpen(model: Handle, defaults_json: Text): Promise<Handle>;
  /**
   * Adds to a conversation and answers it: `request_json` is a JSON string (what the user says), or an object with the `messages`
   * to add and other fields of a request. Events come as with `cactus_request_start`. At the end of the request, before its last
   * event, the answer is part of the conversation; a request that failed leaves the conversation as it was. One request at a time.
   */
  sessionSend(session: Handle, request_json: string): Promise<Handle>;
  /** Closes a conversation: cancels its request, which still has to be closed. */
  sessionClose(session: Handle): Promise<void>;
  /**
   * Writes the vector of a text to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to
   * `embedding_dim` (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors. `normalize` gives the
   * vector the length 1; most models give no other. No prompt stands before the text but the model's default one. A text that is
   * too long is an error. Returns how many floats the vector has, -2 where they do not fit, or -1.
   */
  embed(model: Handle, text: string, normalize: boolean): Promise<Float32Array>;
  /**
   * Writes the vector of a picture to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to
   * `embedding_dim` (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors of texts and pictures
   * (CLIP, SigLIP); `image_path` is a PNG, JPEG or WebP file. The vector is compared with those that `cactus_embed` makes of texts,
   * and has the length 1 if theirs have. Returns how many floats the vector has, -2 where they do not fit, or -1.
   */
  imageEmbed(model: Handle, image_path: string): Promise<Float32Array>;
  /**
   * Writes down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
   * samples a second): one of the two. The result, a JSON object with `response`, `segments` and `language`, goes to
   * `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
   * `prompt` is text as if said before, after special tokens of Whisper's, of which language and task count. `callback` gets the
   * text of each segment. `prompt`, `options_json` (`language`, `translate`, `temperature`, `custom_vocabulary`, and
   * `hallucination_silence`: seconds of silence beside which text is left out that nobody may have said) and `callback` may be
   * NULL. Under a policy (`cactus_model_set_policy`) the result has `cloud_handoff`, who answered, why and for how much, and
   * `answered_by` of each segment; `callback` gets the text when it is final.
   */
  transcribe(model: Handle, audio_file_path: Text, prompt: Text, options_json: Text, callback: OnToken | null, pcm_buffer: Uint8Array | null): Promise<string>;
  /**
   * Finds out which language is spoken at the beginning of the file `audio_file_path`, of any format, or of `pcm_buffer` (mono, 16
   * bits, little-endian, 16,000 samples a second): one of the two. The result, a JSON object with `language` (`unknown` where
   * nobody speaks), `confidence` and `entropy`, goes to `response_buffer`, and the function returns its bytes; a negative number
   * where it failed, with the reason in the buffer, too. `options_json` is not read, and may be NULL.
   */
  detectLanguage(model: Handle, audio_file_path: Text, options_json: Text, pcm_buffer: Uint8Array | null): Promise<string>;
  /**
   * Finds where somebody speaks in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian,
   * 16,000 samples a second): one of the two. The result, a JSON object whose `segments` have `start` and `end` in samples of the
   * model's rate, goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason
   * in the buffer, too. `options_json` has the names and defaults of Silero's `get_speech_timestamps`, and may be NULL.
   */
  vad(model: Handle, audio_file_path: Text, options_json: Text, pcm_buffer: Uint8Array | null): Promise<string>;
  /**
   * Opens the index in the folder `index_dir`, or makes one there, for vectors of `embedding_dim` numbers. NULL where that fails,
   * also where the index that is there has vectors of another length. It is closed with `cactus_index_destroy`.
   */
  indexInit(index_dir: string, embedding_dim: number): Promise<Handle>;
  /**
   * Adds documents: for each an id that the index does not have yet, a text, a text that belongs to it (`metadatas` or one of its
   * pointers may be NULL) and a vector. `embedding_dim` is that of the index. Returns 0, or -1 where nothing was added.
   */
  indexAdd(index: Handle, ids: Int32Array, documents: (string | null)[], metadatas: (string | null)[], embeddings: Float32Array, embedding_dim: number): Promise<void>;
  /** Deletes documents; ids that the index does not have are left out. Returns 0, or -1 where nothing was deleted. */
  indexDelete(index: Handle, ids: Int32Array): Promise<void>;
  /**
   * Writes text, metadata and vector of each document to the caller's buffers. Any of the three arrays of buffers may be NULL, and
   * any buffer. The size beside a buffer says what it has room for, bytes or floats, and then what the result needed, zero byte
   * included. An id that the index does not have is an error. Returns 0, -2 where something does not fit, or -1. Here vectors stand
   * one behind the other, and buffers are as large as need be.
   */
  indexGet(index: Handle, ids: Int32Array): Promise<{ documents: string[]; metadatas: string[]; embeddings: Float32Array }>;
  /**
   * The nearest documents to each of `embeddings_count` vectors, by the cosine, the best first: ids and scores go to the caller's
   * buffers, one of each for each vector. The size beside a buffer says how many it has room for, and then how many were found.
   * `options_json` may have `top_k` (10), `score_threshold` (-1: none) and `filter`, which is ours. Returns 0, or -1. Here vectors
   * stand one behind the other, and so do the results; `counts` says how many each has. `room` is the most that one can have.
   */
  indexQuery(index: Handle, embeddings: Float32Array, embedding_dim: number, options_json: Text, room: number): Promise<{ counts: Uint32Array; ids: Int32Array; scores: Float32Array }>;
  /** Writes the file of an index anew, without what was deleted. Returns 0, or -1. */
  indexCompact(index: Handle): Promise<void>;
  /** Closes an index. What was added is in its file. */
  indexDestroy(index: Handle): Promise<void>;
  /**
   * Begins to listen to live speech with a model that hears. A second model finds speech: the bundle that the option `vad` names,
   * or the folder `vad` inside the model's own. Beside `vad` and the options of `cactus_transcribe`, `options_json` (which may be
   * NULL) has `min_chunk_sec` (1.0; sound after which a phrase is written again, 0 for never), `silence_sec` (0.5; silence that
   * ends a phrase), `sentence_sec` (0.2; silence that ends one whose text ends a sentence), `margin_sec` (silence behind a phrase
   * that the model hears, where it is not to hear its whole window), `commit` (`agreement`, or `attention` with Whisper: which text
   * stays), `max_segment_sec` (25; longer phrases are cut) and `threshold` (0.5; at which speech begins). NULL where that fails.
   * Several streams may share a model.
   */
  streamTranscribeStart(model: Handle, options_json: Text): Promise<Handle>;
  /**
   * Takes the next sound, in pieces of any size: mono, 16 bits, little-endian, 16,000 samples a second. The result, a JSON object,
   * goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the
   * buffer, too. `confirmed` is the text that has become certain since the last call, `pending` is the text behind it that may
   * still change, and `events` says what happened since then. Where the result did not fit, -2 is returned, the sound is taken all
   * the same, and the next call gives what this one did not; it may come without sound (`pcm_buffer` NULL).
   */
  streamTranscribeProcess(stream: Handle, pcm_buffer: Uint8Array | null): Promise<string>;
  /**
   * Ends live speech: what was said last becomes final and goes to `response_buffer`, as with `cactus_stream_transcribe_process`.
   * `response_buffer` may be NULL; then nothing is written or waited for, and the function returns 0. The handle is closed whatever
   * is returned. Here `finish` says whether what was said last is wanted; without it nothing is waited for, and the text is empty.
   */
  streamTranscribeStop(stream: Handle, finish: boolean): Promise<string>;
  /**
   * Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` may name a folder of documents, which the
   * model answers from: its index, `.cactus-index`, is brought in step with it, so `cache_index` makes no difference. Vectors come
   * from the model itself, if it makes some, or from the model that the environment variable CACTUS_EMBEDDER names. The handle is a
   * `cactus_model *` of our own functions, too, unless the bundle hears, and is for `cactus_transcribe` or `cactus_vad` alone, or
   * makes vectors, and is for `cactus_embed` and `cactus_image_embed` alone.
   */
  init(model_path: string, corpus_dir: Text, cache_index: boolean): Promise<Handle>;
  /** Closes a model: cancels what is under way with it, waits for that, and frees it. From inside a callback it does not wait. */
  destroy(model: Handle): Promise<void>;
  /**
   * Writes the `top_k` pieces of the model's documents that are nearest to a question to `response_buffer`, as a JSON object with
   * `chunks`, the best first, and returns its bytes; a negative number where it failed, with the reason in the buffer, too. The
   * model comes from `cactus_init` with a folder of documents.
   */
  ragQuery(model: Handle, query: string, top_k: number): Promise<string>;
  /**
   * The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small, and
   * the text in it is empty then.
   */
  renderPrompt(model: Handle, messages_json: string, options_json: Text, tools_json: Text): Promise<string>;
  /**
   * Begins to write down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits,
   * little-endian, 16,000 samples a second), which is copied: one of the two. It is a request as `cactus_request_start` begins one,
   * and `cactus_request_cancel` stops it alone, also while it waits for another recording. Each event `TEXT` has the text of a
   * segment, and in `json` its `start` and `end` in seconds. The result is that of `cactus_transcribe`; of one that was cancelled
   * it has `response` and `segments` as far as they came. `options_json` (NULL, or an object) has the options of
   * `cactus_transcribe`, and `prompt`. `*request` has to be closed in any case.
   */
  transcriptionStart(model: Handle, audio_file_path: Text, pcm_buffer: Uint8Array | null, options_json: Text): Promise<Handle>;
  /**
   * Gives a model a policy for its requests from now on: what the model should not answer may be handed to a target. `model` may be
   * one that writes down what is said, too: then targets that do hear again what is doubtful of recordings (`cactus_transcribe`),
   * and `target` may be the address of such a one. `policy_toml` is the text of a policy file (docs/reference/policy.md), or NULL.
   * `options_json` is NULL or an object, which comes after the text: `target` (a name of the policy or of the table of targets, or
   * an address with a model, as `http://127.0.0.1:8081/v1#name`), `key` (that target's key) and `keys` (an object of keys by names
   * of targets), which come before what the policy says of keys, are sent to no other host, and are kept in memory alone until no
   * request has the policy any more, `handoff` (`auto`, `never`, `always`), `budget` (the most that a session may cost, in dollars
   * as text), `consent` (an array of what may leave without a question: `text`, `tool_result`, `image`, `audio`, `document`) and
   * `state` (the folder of budget, record and keys; that of the command line where it is not given). With both NULL the model
   * answers alone again. Requests under way stay as they are. What is wrong changes nothing. A library that was built without the
   * cloud gives `CACTUS_CODE_NOT_IN_BUILD`.
   */
  modelSetPolicy(model: Handle, policy_toml: Text, options_json: Text): Promise<void>;
}

let provided: Native | undefined;
let maker: (() => Native) | undefined;

/** Says where the functions come from. `make` is called when the first of them is needed, and once, unless it throws. */
export function provide(make: () => Native): void {
  provided = undefined;
  maker = make;
}

/** The functions of this host. */
export function native(): Native {
  if (provided === undefined) {
    if (maker === undefined) throw new Error("no host has given the functions of libcactus; import the package of your platform");
    provided = maker();
  }
  return provided;
}
