// Made by `cargo xtask sdks` of crates/ffi/abi.json; do not edit.
// dart format off

/// The functions of `cactus.h`, one by one. Nothing here is part of the package's API.
library;

import 'dart:ffi';

/// The ABI that this file was made of.
const int abiVersion = 1;

/// A loaded model. Any number of threads may use it at once. A handle, not an
/// address.
typedef CactusModel = Void;

/// A request under way. A handle, not an address.
typedef CactusRequest = Void;

/// A conversation with a model. A handle, not an address.
typedef CactusSession = Void;

/// The last error of a thread.
final class CactusError extends Struct {
  /// A `CACTUS_CODE_...`, or `CACTUS_CODE_OK` where there was no error.
  @Int32()
  external int code;

  /// The code's name, as in `argument`. Valid for ever.
  external Pointer<Char> kind;

  /// What was expected, what was found, and where. Valid until the next call of
  /// the library on this thread.
  external Pointer<Char> message;
}

/// An event of a request. All it points to is valid until the callback returns.
final class CactusEvent extends Struct {
  /// Bytes of this structure, which may grow at its end.
  @Size()
  external int size;

  /// What it is: a `CACTUS_EVENT_KIND_...`.
  @Int32()
  external int kind;

  /// A `CACTUS_CODE_...` with `FAILED`, else 0.
  @Int32()
  external int code;

  /// UTF-8 text; empty where the kind has none, never NULL.
  external Pointer<Char> text;

  /// A JSON object; empty where the kind has none, never NULL.
  external Pointer<Char> json;
}

/// The ABI that this library has. It grows by functions; it changes its number
/// where a function changes. Codes that functions return. 0 is success, and all
/// others are negative. They never change their meaning. The functions of the
/// public engine return -1 for every failure but a buffer that is too small
/// (-2). `cactus_last_error` gives the code of theirs, too. (`int32_t` in C.)
abstract final class CactusCode {
  /// No error.
  static const int ok = 0;

  /// A defect of the library. What it was doing is lost; the library goes on.
  static const int internal = -1;

  /// The caller's buffer is too small.
  static const int bufferTooSmall = -2;

  /// An argument is null, out of range, not UTF-8, or JSON of the wrong form.
  static const int argument = -3;

  /// A handle was closed, is of another kind, or never was one.
  static const int handle = -4;

  /// The bundle is missing; or it, or a file of a graph or of weights, is
  /// damaged, or of a form or version that is not read.
  static const int bundle = -5;

  /// The model cannot do what is asked of it.
  static const int unsupported = -6;

  /// The tokenizer or the chat template is missing or fails.
  static const int text = -7;

  /// The prompt does not fit the context.
  static const int contextFull = -8;

  /// The model computed something that is no number.
  static const int numeric = -9;

  /// Too many requests wait already.
  static const int busy = -10;

  /// It was cancelled.
  static const int cancelled = -11;

  /// It cannot be done from inside a callback, because it would wait for that
  /// callback.
  static const int inCallback = -12;

  /// The model cannot be downloaded or converted: what came is damaged, or
  /// cannot be used.
  static const int fetch = -13;

  /// A file cannot be read or written, or memory or a thread cannot be had.
  static const int system = -14;

  /// This build of the library does not have it.
  static const int notInBuild = -15;

  /// There is no model of that name, or nothing at that path. The message has
  /// names like it.
  static const int notFound = -16;

  /// The model is not on this machine, and the network cannot be reached or is
  /// turned off.
  static const int offline = -17;

  /// The service wants a token, or refuses the one that it got.
  static const int unauthorized = -18;

  /// Under a policy, neither this machine nor a target has answered.
  static const int unanswered = -19;
}

/// What happens to a request. Each ends with exactly one of `DONE`, `CANCELLED`
/// and `FAILED`, and nothing comes after it. (`int32_t` in C.)
abstract final class CactusEventKind {
  /// The prompt is computed. `json` has `prompt_tokens` and `cached_tokens`.
  static const int started = 1;

  /// Text of the answer: `text`, whole characters.
  static const int text = 2;

  /// Reasoning before the answer: `text`.
  static const int reasoning = 3;

  /// A call of a tool, or part of one. `json` has `index` and, with the call's
  /// first event, `id` and `name`; then `arguments`, a piece of a JSON object
  /// as text; at its end `end`, or `failed` where it came to nothing and was
  /// given out as text.
  static const int toolCall = 4;

  /// The end: `json` is the whole result.
  static const int done = 5;

  /// The end of a request that was cancelled: `json` is the result as far as it
  /// came.
  static const int cancelled = 6;

  /// The end of a request that failed: `code` says how, `text` why.
  static const int failed = 7;

  /// Of a model with a policy: who answers, before the first of it. `json` has
  /// `side` (`local` or `cloud`), `target`, the target's name or null,
  /// `reason`, as the result has it in the end, or `unjudged` where nothing is
  /// decided yet, and what else the result says of the decision, as far as it
  /// is known: `route`, `answered_by`, `confidence`, `error_bound`, `cost_usd`,
  /// `cost_is_exact`, `time_to_first_token_ms`, `total_time_ms` and so on. What
  /// may still be billed counts with its worst case.
  static const int source = 8;

  /// Of a model with a policy: what was said so far is void, as who said it
  /// failed or was judged too unsure after a slow beginning. Another answers
  /// from the beginning. `json` has the fields of `SOURCE`, here of the answer
  /// that is void, and `reason` says why it is.
  static const int replaced = 9;

  /// Of a model with a policy: a person has to say whether this may leave, with
  /// `cactus_request_consent`. `json` has `classes` (of content), `target`,
  /// `host`, `most`, what it may cost at most in dollars, as text, and `reason`
  /// and `confidence`, why the target is wanted.
  static const int consent = 10;
}

/// Takes the progress of loading: `stage` is what is being done (`waiting`,
/// `downloading`, `checking`, `converting`, `reading source`, `choosing bits`,
/// `calibrating`, `measuring quality`, `loading`, or `note`, which the user
/// should read); `what` is what it is about (a model, a file, a text), or
/// empty; then how much of it is done and of how much, in bytes or in the
/// stage's own parts, 0 of 0 where that is not known. A result other than 0
/// stops within seconds, with `CACTUS_CODE_CANCELLED`; what was downloaded is
/// kept for the next time. It is called on the thread that loads, at most some
/// ten times a second while it downloads, and must not throw. Texts are valid
/// until it returns.
typedef CactusProgressCallback = Int Function(Pointer<Char> stage, Pointer<Char> what, Uint64 done, Uint64 total, Pointer<Void> userData);

/// Takes the events of a request, one after the other, on a thread of the
/// library. It may call the library, may close what it belongs to (which does
/// not wait then), and must not throw. A slow one delays its own request alone.
typedef CactusEventCallback = Void Function(Pointer<CactusEvent> event, Pointer<Void> userData);

/// Takes an answer as it is made: the text of a token (whole characters, so it
/// may be empty), the token, and what was given with the function. The text is
/// valid until it returns. It is called on the thread that waits for the
/// answer, may call the library, and must not throw.
typedef CactusTokenCallback = Void Function(Pointer<Char> token, Uint32 tokenId, Pointer<Void> userData);

/// Takes what the library has to say: level (0 debug, 1 information, 2 warning,
/// 3 error), part of the library, message, and what was given with the
/// function. It is called on the thread whose call it is about. Texts are valid
/// until it returns.
typedef CactusLogCallback = Void Function(Int level, Pointer<Char> component, Pointer<Char> message, Pointer<Void> userData);

/// Finds the address of a function by its name in C.
typedef Lookup = Pointer<T> Function<T extends NativeType>(String name);

/// The functions of the library. Each is looked up when it is called for the first time.
final class Raw {
  /// The functions that a lookup finds.
  Raw(this._lookup);

  final Lookup _lookup;

  /// The version of the library, as in `0.1.0`. Valid for ever.
  /// (`cactus_version`, since ABI 1; returns at once.)
  late final Pointer<Char> Function() version =
      _lookup<NativeFunction<Pointer<Char> Function()>>('cactus_version')
          .asFunction();

  /// The ABI of the library, to compare with the `CACTUS_ABI_VERSION` that a
  /// program was compiled with. A program needs this one or, once there are
  /// several, a later one that says it is compatible. (`cactus_abi_version`,
  /// since ABI 1; returns at once.)
  late final int Function() abiVersion =
      _lookup<NativeFunction<Uint32 Function()>>('cactus_abi_version')
          .asFunction();

  /// Writes the last error of this thread to `error`. A call that succeeds
  /// leaves it as it is. (`cactus_last_error`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusError> error) lastError =
      _lookup<NativeFunction<Int Function(Pointer<CactusError> error)>>('cactus_last_error')
          .asFunction();

  /// Forgets the last error of this thread. (`cactus_clear_error`, since ABI 1;
  /// returns at once.)
  late final void Function() clearError =
      _lookup<NativeFunction<Void Function()>>('cactus_clear_error')
          .asFunction();

  /// Frees a string that the library gave away (`char *` results). NULL is
  /// allowed. (`cactus_string_free`, since ABI 1; returns at once.)
  late final void Function(Pointer<Char> string) stringFree =
      _lookup<NativeFunction<Void Function(Pointer<Char> string)>>('cactus_string_free')
          .asFunction();

  /// The name of a code, as in `argument`; `unknown` for a number that is none.
  /// Valid for ever. (`cactus_error_kind`, since ABI 1; returns at once.)
  late final Pointer<Char> Function(int code) errorKind =
      _lookup<NativeFunction<Pointer<Char> Function(Int32 code)>>('cactus_error_kind')
          .asFunction();

  /// Loads the model `name`: the folder of a bundle, a GGUF file, a Hugging
  /// Face folder, a Hugging Face id (`org/name`, with `@revision` and `:file`
  /// where wanted), a known name such as `smollm2`, or the address (`https://`,
  /// or `http://` of this machine) of a GGUF file or of the folder of a bundle.
  /// What is not on this machine is downloaded, and what is no bundle
  /// converted, into the cache of this user first, where it is found the next
  /// time, by the command line and by Python too. `options_json` (NULL, or an
  /// object) says how that is done (`bits` for each weight, `calibrate`,
  /// `reconvert`, `offline`, `token`, and the folder of the `cache`) and how
  /// the model is run (`context_tokens`, `threads`, `decode_threads`, `pin`,
  /// `kv_dtype`, `chunk_tokens`, `sequences`, `queue`, `kv_tokens`). `progress`
  /// may be NULL. A library that was built without the store loads bundles
  /// alone, and gives `CACTUS_CODE_NOT_IN_BUILD` for everything else.
  /// (`cactus_model_load`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<CactusModel>> model) modelLoad =
      _lookup<NativeFunction<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<CactusModel>> model)>>('cactus_model_load')
          .asFunction();

  /// As `cactus_model_load`, without loading: writes the folder of the bundle
  /// to `*path`, as an owned string. To download a model before it is needed,
  /// or for `cactus_init`. `options_json` has `bits`, `calibrate`, `reconvert`,
  /// `offline`, `token` and `cache`. (`cactus_model_prepare`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<Char>> path) modelPrepare =
      _lookup<NativeFunction<Int Function(Pointer<Char> name, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusProgressCallback>> progress, Pointer<Void> userData, Pointer<Pointer<Char>> path)>>('cactus_model_prepare')
          .asFunction();

  /// Closes a model: cancels its requests, waits until nothing of them runs,
  /// and frees it. Requests and sessions of it still have to be closed. From
  /// inside a callback it does not wait. (`cactus_model_close`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final int Function(Pointer<CactusModel> model) modelClose =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model)>>('cactus_model_close')
          .asFunction();

  /// What is known of a model and what it has done, as an owned JSON object.
  /// (`cactus_model_info`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusModel> model, Pointer<Pointer<Char>> infoJson) modelInfo =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Pointer<Char>> infoJson)>>('cactus_model_info')
          .asFunction();

  /// Token ids of a text, with the tokens that the model puts around texts
  /// where `special`. `*tokens` is an owned array of `*count` ids, for
  /// `cactus_tokens_free`. (`cactus_model_tokenize`, since ABI 1; takes time:
  /// not for an isolate that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Char> text, bool special, Pointer<Pointer<Uint32>> tokens, Pointer<Size> count) modelTokenize =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> text, Bool special, Pointer<Pointer<Uint32>> tokens, Pointer<Size> count)>>('cactus_model_tokenize')
          .asFunction();

  /// Frees an array that `cactus_model_tokenize` gave, with its count. NULL is
  /// allowed. (`cactus_tokens_free`, since ABI 1; returns at once.)
  late final void Function(Pointer<Uint32> tokens, int count) tokensFree =
      _lookup<NativeFunction<Void Function(Pointer<Uint32> tokens, Size count)>>('cactus_tokens_free')
          .asFunction();

  /// The text of `count` token ids, as an owned string. Special tokens are
  /// spelled out where `special`, else left out. (`cactus_model_detokenize`,
  /// since ABI 1; takes time: not for an isolate that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, int count, bool special, Pointer<Pointer<Char>> text) modelDetokenize =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Bool special, Pointer<Pointer<Char>> text)>>('cactus_model_detokenize')
          .asFunction();

  /// How likely the tokens from `first` (at least 1) on are, each given all
  /// before it. `*score_json` is an owned JSON object with `logprob` (the sum
  /// of natural logarithms), `tokens` (how many were scored) and `logprobs` (of
  /// each). (`cactus_model_score`, since ABI 1; takes time: not for an isolate
  /// that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, int count, int first, Pointer<Pointer<Char>> scoreJson) modelScore =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Uint32> tokens, Size count, Size first, Pointer<Pointer<Char>> scoreJson)>>('cactus_model_score')
          .asFunction();

  /// Uses at most so many threads from now on, at most as many as the model was
  /// loaded with: `threads` for prompts, `decode_threads` for generating; 0
  /// leaves one as it is. For a device that gets hot, or an application that
  /// goes to the background. Answers are the same with any number.
  /// (`cactus_model_set_threads`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusModel> model, int threads, int decodeThreads) modelSetThreads =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Size threads, Size decodeThreads)>>('cactus_model_set_threads')
          .asFunction();

  /// Tells the library that memory is short. Every open model forgets what it
  /// keeps of earlier prompts, so that their memory can be used for those under
  /// way. Answers stay the same; later ones that begin like earlier ones come
  /// less soon. (`cactus_memory_pressure`, since ABI 1; returns at once.)
  late final void Function() memoryPressure =
      _lookup<NativeFunction<Void Function()>>('cactus_memory_pressure')
          .asFunction();

  /// Whether the bundle in the folder `path` can be used with this build.
  /// Returns 0 where it can, else a code. `*report_json`, which may be NULL,
  /// gets an owned JSON object in either case, with `usable` and, where not,
  /// `code`, `kind` and `message`; with what is known of the bundle where it
  /// can be opened. With `verify`, all of it is read and compared with its
  /// checksums. (`cactus_check_bundle`, since ABI 1; takes time: not for an
  /// isolate that draws.)
  late final int Function(Pointer<Char> path, bool verify, Pointer<Pointer<Char>> reportJson) checkBundle =
      _lookup<NativeFunction<Int Function(Pointer<Char> path, Bool verify, Pointer<Pointer<Char>> reportJson)>>('cactus_check_bundle')
          .asFunction();

  /// Begins a request: a JSON object with `messages`, `prompt` or `tokens`, and
  /// what else docs/reference/c-abi.md lists. With a callback, events go there;
  /// with NULL, `cactus_request_next` gives them. `*request` has to be closed
  /// in any case. (`cactus_request_start`, since ABI 1; takes time: not for an
  /// isolate that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request) requestStart =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>('cactus_request_start')
          .asFunction();

  /// Waits up to `timeout_ms` milliseconds (negative: for ever, 0: not at all)
  /// for the next event of a request without a callback. Writes it to
  /// `*event_json` as an owned JSON object with `event`, one of `started`,
  /// `text`, `reasoning`, `tool_call`, `done`, `cancelled` and `failed`; or
  /// NULL where none came in time. `*over`, which may be NULL, tells whether
  /// none will come any more. (`cactus_request_next`, since ABI 1; takes time:
  /// not for an isolate that draws.)
  late final int Function(Pointer<CactusRequest> request, int timeoutMs, Pointer<Pointer<Char>> eventJson, Pointer<Bool> over) requestNext =
      _lookup<NativeFunction<Int Function(Pointer<CactusRequest> request, Int64 timeoutMs, Pointer<Pointer<Char>> eventJson, Pointer<Bool> over)>>('cactus_request_next')
          .asFunction();

  /// Waits for the end of a request, and writes its whole result to
  /// `*result_json` as an owned JSON object. A request that failed gives its
  /// code; one that was cancelled gives a result as far as it came.
  /// (`cactus_request_wait`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<CactusRequest> request, Pointer<Pointer<Char>> resultJson) requestWait =
      _lookup<NativeFunction<Int Function(Pointer<CactusRequest> request, Pointer<Pointer<Char>> resultJson)>>('cactus_request_wait')
          .asFunction();

  /// Asks a request to stop, from any thread; it ends within a token. May be
  /// called again. (`cactus_request_cancel`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusRequest> request) requestCancel =
      _lookup<NativeFunction<Int Function(Pointer<CactusRequest> request)>>('cactus_request_cancel')
          .asFunction();

  /// Answers the event `CONSENT` of a request: whether what it lists may leave
  /// this machine. With a callback, before that returns, from any thread.
  /// Without one, before `cactus_request_next` is called with a time to wait,
  /// or `cactus_request_wait`. Where somebody goes on without an answer,
  /// nothing leaves, as nobody was there to be asked. Fails where nothing is
  /// asked. (`cactus_request_consent`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusRequest> request, bool yes) requestConsent =
      _lookup<NativeFunction<Int Function(Pointer<CactusRequest> request, Bool yes)>>('cactus_request_consent')
          .asFunction();

  /// Closes a request: cancels what is left of it, and waits until its callback
  /// has returned for the last time. Inside its own callback it does not wait;
  /// no further call begins then. Where callbacks of two requests close each
  /// other's request, one of them does not wait either: keep what `user_data`
  /// points to until both have returned. (`cactus_request_close`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final int Function(Pointer<CactusRequest> request) requestClose =
      _lookup<NativeFunction<Int Function(Pointer<CactusRequest> request)>>('cactus_request_close')
          .asFunction();

  /// Opens a conversation. `defaults_json` (NULL, or an object) has `messages`
  /// to begin with, and any other fields of a request, which hold for every
  /// request of the session where it does not say otherwise. What a request
  /// could not have is refused here. (`cactus_session_open`, since ABI 1; takes
  /// time: not for an isolate that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Char> defaultsJson, Pointer<Pointer<CactusSession>> session) sessionOpen =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> defaultsJson, Pointer<Pointer<CactusSession>> session)>>('cactus_session_open')
          .asFunction();

  /// Adds to a conversation and answers it: `request_json` is a JSON string
  /// (what the user says), or an object with the `messages` to add and other
  /// fields of a request. Events come as with `cactus_request_start`. At the
  /// end of the request, before its last event, the answer is part of the
  /// conversation; a request that failed leaves the conversation as it was. One
  /// request at a time. (`cactus_session_send`, since ABI 1; takes time: not
  /// for an isolate that draws.)
  late final int Function(Pointer<CactusSession> session, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request) sessionSend =
      _lookup<NativeFunction<Int Function(Pointer<CactusSession> session, Pointer<Char> requestJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>('cactus_session_send')
          .asFunction();

  /// Writes the messages of a conversation to `*messages_json`, as an owned
  /// JSON array. `cactus_session_open` takes it back, as `messages`.
  /// (`cactus_session_messages`, since ABI 1; returns at once.)
  late final int Function(Pointer<CactusSession> session, Pointer<Pointer<Char>> messagesJson) sessionMessages =
      _lookup<NativeFunction<Int Function(Pointer<CactusSession> session, Pointer<Pointer<Char>> messagesJson)>>('cactus_session_messages')
          .asFunction();

  /// Closes a conversation: cancels its request, which still has to be closed.
  /// (`cactus_session_close`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<CactusSession> session) sessionClose =
      _lookup<NativeFunction<Int Function(Pointer<CactusSession> session)>>('cactus_session_close')
          .asFunction();

  /// Writes the vector of a text to `embeddings_buffer`, which has
  /// `buffer_size` bytes, and how many floats it has to `embedding_dim` (which
  /// may be NULL). The model comes from `cactus_init` and a bundle that makes
  /// vectors. `normalize` gives the vector the length 1; most models give no
  /// other. No prompt stands before the text but the model's default one. A
  /// text that is too long is an error. Returns how many floats the vector has,
  /// -2 where they do not fit, or -1. (`cactus_embed`, since ABI 1; takes time:
  /// not for an isolate that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> text, Pointer<Float> embeddingsBuffer, int bufferSize, Pointer<Size> embeddingDim, bool normalize) embed =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> text, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim, Bool normalize)>>('cactus_embed')
          .asFunction();

  /// Writes the vector of a picture to `embeddings_buffer`, which has
  /// `buffer_size` bytes, and how many floats it has to `embedding_dim` (which
  /// may be NULL). The model comes from `cactus_init` and a bundle that makes
  /// vectors of texts and pictures (CLIP, SigLIP); `image_path` is a PNG, JPEG
  /// or WebP file. The vector is compared with those that `cactus_embed` makes
  /// of texts, and has the length 1 if theirs have. Returns how many floats the
  /// vector has, -2 where they do not fit, or -1. (`cactus_image_embed`, since
  /// ABI 1; takes time: not for an isolate that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> imagePath, Pointer<Float> embeddingsBuffer, int bufferSize, Pointer<Size> embeddingDim) imageEmbed =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> imagePath, Pointer<Float> embeddingsBuffer, Size bufferSize, Pointer<Size> embeddingDim)>>('cactus_image_embed')
          .asFunction();

  /// Writes down what is said in the file `audio_file_path`, of any format, or
  /// in `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a second):
  /// one of the two. The result, a JSON object with `response`, `segments` and
  /// `language`, goes to `response_buffer`, and the function returns its bytes;
  /// a negative number where it failed, with the reason in the buffer, too.
  /// `prompt` is text as if said before, after special tokens of Whisper's, of
  /// which language and task count. `callback` gets the text of each segment.
  /// `prompt`, `options_json` (`language`, `translate`, `temperature`,
  /// `custom_vocabulary`, and `hallucination_silence`: seconds of silence
  /// beside which text is left out that nobody may have said) and `callback`
  /// may be NULL. Under a policy (`cactus_model_set_policy`) the result has
  /// `cloud_handoff`, who answered, why and for how much, and `answered_by` of
  /// each segment; `callback` gets the text when it is final.
  /// (`cactus_transcribe`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> prompt, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusTokenCallback>> callback, Pointer<Void> userData, Pointer<Uint8> pcmBuffer, int pcmBufferSize) transcribe =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> prompt, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusTokenCallback>> callback, Pointer<Void> userData, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>('cactus_transcribe')
          .asFunction();

  /// Finds out which language is spoken at the beginning of the file
  /// `audio_file_path`, of any format, or of `pcm_buffer` (mono, 16 bits,
  /// little-endian, 16,000 samples a second): one of the two. The result, a
  /// JSON object with `language` (`unknown` where nobody speaks), `confidence`
  /// and `entropy`, goes to `response_buffer`, and the function returns its
  /// bytes; a negative number where it failed, with the reason in the buffer,
  /// too. `options_json` is not read, and may be NULL.
  /// (`cactus_detect_language`, since ABI 1; takes time: not for an isolate
  /// that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, int pcmBufferSize) detectLanguage =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>('cactus_detect_language')
          .asFunction();

  /// Finds where somebody speaks in the file `audio_file_path`, of any format,
  /// or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a
  /// second): one of the two. The result, a JSON object whose `segments` have
  /// `start` and `end` in samples of the model's rate, goes to
  /// `response_buffer`, and the function returns its bytes; a negative number
  /// where it failed, with the reason in the buffer, too. `options_json` has
  /// the names and defaults of Silero's `get_speech_timestamps`, and may be
  /// NULL. (`cactus_vad`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, int bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, int pcmBufferSize) vad =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Char> responseBuffer, Size bufferSize, Pointer<Char> optionsJson, Pointer<Uint8> pcmBuffer, Size pcmBufferSize)>>('cactus_vad')
          .asFunction();

  /// Opens the index in the folder `index_dir`, or makes one there, for vectors
  /// of `embedding_dim` numbers. NULL where that fails, also where the index
  /// that is there has vectors of another length. It is closed with
  /// `cactus_index_destroy`. (`cactus_index_init`, since ABI 1; takes time: not
  /// for an isolate that draws.)
  late final Pointer<Void> Function(Pointer<Char> indexDir, int embeddingDim) indexInit =
      _lookup<NativeFunction<Pointer<Void> Function(Pointer<Char> indexDir, Size embeddingDim)>>('cactus_index_init')
          .asFunction();

  /// Adds documents: for each an id that the index does not have yet, a text, a
  /// text that belongs to it (`metadatas` or one of its pointers may be NULL)
  /// and a vector. `embedding_dim` is that of the index. Returns 0, or -1 where
  /// nothing was added. (`cactus_index_add`, since ABI 1; takes time: not for
  /// an isolate that draws.)
  late final int Function(Pointer<Void> index, Pointer<Int> ids, Pointer<Pointer<Char>> documents, Pointer<Pointer<Char>> metadatas, Pointer<Pointer<Float>> embeddings, int count, int embeddingDim) indexAdd =
      _lookup<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Pointer<Pointer<Char>> documents, Pointer<Pointer<Char>> metadatas, Pointer<Pointer<Float>> embeddings, Size count, Size embeddingDim)>>('cactus_index_add')
          .asFunction();

  /// Deletes documents; ids that the index does not have are left out. Returns
  /// 0, or -1 where nothing was deleted. (`cactus_index_delete`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final int Function(Pointer<Void> index, Pointer<Int> ids, int idsCount) indexDelete =
      _lookup<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount)>>('cactus_index_delete')
          .asFunction();

  /// Writes text, metadata and vector of each document to the caller's buffers.
  /// Any of the three arrays of buffers may be NULL, and any buffer. The size
  /// beside a buffer says what it has room for, bytes or floats, and then what
  /// the result needed, zero byte included. An id that the index does not have
  /// is an error. Returns 0, -2 where something does not fit, or -1.
  /// (`cactus_index_get`, since ABI 1; takes time: not for an isolate that
  /// draws.)
  late final int Function(Pointer<Void> index, Pointer<Int> ids, int idsCount, Pointer<Pointer<Char>> documentBuffers, Pointer<Size> documentBufferSizes, Pointer<Pointer<Char>> metadataBuffers, Pointer<Size> metadataBufferSizes, Pointer<Pointer<Float>> embeddingBuffers, Pointer<Size> embeddingBufferSizes) indexGet =
      _lookup<NativeFunction<Int Function(Pointer<Void> index, Pointer<Int> ids, Size idsCount, Pointer<Pointer<Char>> documentBuffers, Pointer<Size> documentBufferSizes, Pointer<Pointer<Char>> metadataBuffers, Pointer<Size> metadataBufferSizes, Pointer<Pointer<Float>> embeddingBuffers, Pointer<Size> embeddingBufferSizes)>>('cactus_index_get')
          .asFunction();

  /// The nearest documents to each of `embeddings_count` vectors, by the
  /// cosine, the best first: ids and scores go to the caller's buffers, one of
  /// each for each vector. The size beside a buffer says how many it has room
  /// for, and then how many were found. `options_json` may have `top_k` (10),
  /// `score_threshold` (-1: none) and `filter`, which is ours. Returns 0, or
  /// -1. (`cactus_index_query`, since ABI 1; takes time: not for an isolate
  /// that draws.)
  late final int Function(Pointer<Void> index, Pointer<Pointer<Float>> embeddings, int embeddingsCount, int embeddingDim, Pointer<Char> optionsJson, Pointer<Pointer<Int>> idBuffers, Pointer<Size> idBufferSizes, Pointer<Pointer<Float>> scoreBuffers, Pointer<Size> scoreBufferSizes) indexQuery =
      _lookup<NativeFunction<Int Function(Pointer<Void> index, Pointer<Pointer<Float>> embeddings, Size embeddingsCount, Size embeddingDim, Pointer<Char> optionsJson, Pointer<Pointer<Int>> idBuffers, Pointer<Size> idBufferSizes, Pointer<Pointer<Float>> scoreBuffers, Pointer<Size> scoreBufferSizes)>>('cactus_index_query')
          .asFunction();

  /// Writes the file of an index anew, without what was deleted. Returns 0, or
  /// -1. (`cactus_index_compact`, since ABI 1; takes time: not for an isolate
  /// that draws.)
  late final int Function(Pointer<Void> index) indexCompact =
      _lookup<NativeFunction<Int Function(Pointer<Void> index)>>('cactus_index_compact')
          .asFunction();

  /// Closes an index. What was added is in its file. (`cactus_index_destroy`,
  /// since ABI 1; takes time: not for an isolate that draws.)
  late final void Function(Pointer<Void> index) indexDestroy =
      _lookup<NativeFunction<Void Function(Pointer<Void> index)>>('cactus_index_destroy')
          .asFunction();

  /// Begins to listen to live speech with a model that hears. A second model
  /// finds speech: the bundle that the option `vad` names, or the folder `vad`
  /// inside the model's own. Beside `vad` and the options of
  /// `cactus_transcribe`, `options_json` (which may be NULL) has
  /// `min_chunk_sec` (1.0; sound after which a phrase is written again, 0 for
  /// never), `silence_sec` (0.5; silence that ends a phrase), `sentence_sec`
  /// (0.2; silence that ends one whose text ends a sentence), `margin_sec`
  /// (silence behind a phrase that the model hears, where it is not to hear its
  /// whole window), `commit` (`agreement`, or `attention` with Whisper: which
  /// text stays), `max_segment_sec` (25; longer phrases are cut) and
  /// `threshold` (0.5; at which speech begins). NULL where that fails. Several
  /// streams may share a model. (`cactus_stream_transcribe_start`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final Pointer<Void> Function(Pointer<Void> model, Pointer<Char> optionsJson) streamTranscribeStart =
      _lookup<NativeFunction<Pointer<Void> Function(Pointer<Void> model, Pointer<Char> optionsJson)>>('cactus_stream_transcribe_start')
          .asFunction();

  /// Takes the next sound, in pieces of any size: mono, 16 bits, little-endian,
  /// 16,000 samples a second. The result, a JSON object, goes to
  /// `response_buffer`, and the function returns its bytes; a negative number
  /// where it failed, with the reason in the buffer, too. `confirmed` is the
  /// text that has become certain since the last call, `pending` is the text
  /// behind it that may still change, and `events` says what happened since
  /// then. Where the result did not fit, -2 is returned, the sound is taken all
  /// the same, and the next call gives what this one did not; it may come
  /// without sound (`pcm_buffer` NULL). (`cactus_stream_transcribe_process`,
  /// since ABI 1; takes time: not for an isolate that draws.)
  late final int Function(Pointer<Void> stream, Pointer<Uint8> pcmBuffer, int pcmBufferSize, Pointer<Char> responseBuffer, int bufferSize) streamTranscribeProcess =
      _lookup<NativeFunction<Int Function(Pointer<Void> stream, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> responseBuffer, Size bufferSize)>>('cactus_stream_transcribe_process')
          .asFunction();

  /// Ends live speech: what was said last becomes final and goes to
  /// `response_buffer`, as with `cactus_stream_transcribe_process`.
  /// `response_buffer` may be NULL; then nothing is written or waited for, and
  /// the function returns 0. The handle is closed whatever is returned.
  /// (`cactus_stream_transcribe_stop`, since ABI 1; takes time: not for an
  /// isolate that draws.)
  late final int Function(Pointer<Void> stream, Pointer<Char> responseBuffer, int bufferSize) streamTranscribeStop =
      _lookup<NativeFunction<Int Function(Pointer<Void> stream, Pointer<Char> responseBuffer, Size bufferSize)>>('cactus_stream_transcribe_stop')
          .asFunction();

  /// Loads the bundle in the folder `model_path`. NULL where that fails.
  /// `corpus_dir` may name a folder of documents, which the model answers from:
  /// its index, `.cactus-index`, is brought in step with it, so `cache_index`
  /// makes no difference. Vectors come from the model itself, if it makes some,
  /// or from the model that the environment variable CACTUS_EMBEDDER names. The
  /// handle is a `cactus_model *` of our own functions, too, unless the bundle
  /// hears, and is for `cactus_transcribe` or `cactus_vad` alone, or makes
  /// vectors, and is for `cactus_embed` and `cactus_image_embed` alone.
  /// (`cactus_init`, since ABI 1; takes time: not for an isolate that draws.)
  late final Pointer<Void> Function(Pointer<Char> modelPath, Pointer<Char> corpusDir, bool cacheIndex) init =
      _lookup<NativeFunction<Pointer<Void> Function(Pointer<Char> modelPath, Pointer<Char> corpusDir, Bool cacheIndex)>>('cactus_init')
          .asFunction();

  /// Closes a model: cancels what is under way with it, waits for that, and
  /// frees it. From inside a callback it does not wait. (`cactus_destroy`,
  /// since ABI 1; takes time: not for an isolate that draws.)
  late final void Function(Pointer<Void> model) destroy =
      _lookup<NativeFunction<Void Function(Pointer<Void> model)>>('cactus_destroy')
          .asFunction();

  /// Stops what is under way with a model, from any thread, within a token.
  /// What comes later is not stopped. (`cactus_stop`, since ABI 1; returns at
  /// once.)
  late final void Function(Pointer<Void> model) stop =
      _lookup<NativeFunction<Void Function(Pointer<Void> model)>>('cactus_stop')
          .asFunction();

  /// Sets the least level that is logged: 0 debug, 1 information, 2 warning
  /// (default), 3 error, 4 nothing. (`cactus_log_set_level`, since ABI 1;
  /// returns at once.)
  late final void Function(int level) logSetLevel =
      _lookup<NativeFunction<Void Function(Int level)>>('cactus_log_set_level')
          .asFunction();

  /// Sets the function that gets what is logged, from any thread that calls the
  /// library; without one, or with NULL, nothing is said. It must not throw.
  /// `user_data` has to live until another function is set.
  /// (`cactus_log_set_callback`, since ABI 1; returns at once.)
  late final void Function(Pointer<NativeFunction<CactusLogCallback>> callback, Pointer<Void> userData) logSetCallback =
      _lookup<NativeFunction<Void Function(Pointer<NativeFunction<CactusLogCallback>> callback, Pointer<Void> userData)>>('cactus_log_set_callback')
          .asFunction();

  /// Writes the `top_k` pieces of the model's documents that are nearest to a
  /// question to `response_buffer`, as a JSON object with `chunks`, the best
  /// first, and returns its bytes; a negative number where it failed, with the
  /// reason in the buffer, too. The model comes from `cactus_init` with a
  /// folder of documents. (`cactus_rag_query`, since ABI 1; takes time: not for
  /// an isolate that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> query, Pointer<Char> responseBuffer, int bufferSize, int topK) ragQuery =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> query, Pointer<Char> responseBuffer, Size bufferSize, Size topK)>>('cactus_rag_query')
          .asFunction();

  /// The prompt that a conversation becomes, as text. Returns its bytes; -1
  /// where it fails, -2 where the buffer is too small, and the text in it is
  /// empty then. (`cactus_render_prompt`, since ABI 1; takes time: not for an
  /// isolate that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> messagesJson, Pointer<Char> optionsJson, Pointer<Char> toolsJson, Pointer<Char> buffer, int bufferSize) renderPrompt =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> messagesJson, Pointer<Char> optionsJson, Pointer<Char> toolsJson, Pointer<Char> buffer, Size bufferSize)>>('cactus_render_prompt')
          .asFunction();

  /// Begins to write down what is said in the file `audio_file_path`, of any
  /// format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a
  /// second), which is copied: one of the two. It is a request as
  /// `cactus_request_start` begins one, and `cactus_request_cancel` stops it
  /// alone, also while it waits for another recording. Each event `TEXT` has
  /// the text of a segment, and in `json` its `start` and `end` in seconds. The
  /// result is that of `cactus_transcribe`; of one that was cancelled it has
  /// `response` and `segments` as far as they came. `options_json` (NULL, or an
  /// object) has the options of `cactus_transcribe`, and `prompt`. `*request`
  /// has to be closed in any case. (`cactus_transcription_start`, since ABI 1;
  /// takes time: not for an isolate that draws.)
  late final int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Uint8> pcmBuffer, int pcmBufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request) transcriptionStart =
      _lookup<NativeFunction<Int Function(Pointer<Void> model, Pointer<Char> audioFilePath, Pointer<Uint8> pcmBuffer, Size pcmBufferSize, Pointer<Char> optionsJson, Pointer<NativeFunction<CactusEventCallback>> callback, Pointer<Void> userData, Pointer<Pointer<CactusRequest>> request)>>('cactus_transcription_start')
          .asFunction();

  /// Gives a model a policy for its requests from now on: what the model should
  /// not answer may be handed to a target. `model` may be one that writes down
  /// what is said, too: then targets that do hear again what is doubtful of
  /// recordings (`cactus_transcribe`), and `target` may be the address of such
  /// a one. `policy_toml` is the text of a policy file
  /// (docs/reference/policy.md), or NULL. `options_json` is NULL or an object,
  /// which comes after the text: `target` (a name of the policy or of the table
  /// of targets, or an address with a model, as
  /// `http://127.0.0.1:8081/v1#name`), `key` (that target's key) and `keys` (an
  /// object of keys by names of targets), which come before what the policy
  /// says of keys, are sent to no other host, and are kept in memory alone
  /// until no request has the policy any more, `handoff` (`auto`, `never`,
  /// `always`), `budget` (the most that a session may cost, in dollars as
  /// text), `consent` (an array of what may leave without a question: `text`,
  /// `tool_result`, `image`, `audio`, `document`) and `state` (the folder of
  /// budget, record and keys; that of the command line where it is not given).
  /// With both NULL the model answers alone again. Requests under way stay as
  /// they are. What is wrong changes nothing. A library that was built without
  /// the cloud gives `CACTUS_CODE_NOT_IN_BUILD`. (`cactus_model_set_policy`,
  /// since ABI 1; takes time: not for an isolate that draws.)
  late final int Function(Pointer<CactusModel> model, Pointer<Char> policyToml, Pointer<Char> optionsJson) modelSetPolicy =
      _lookup<NativeFunction<Int Function(Pointer<CactusModel> model, Pointer<Char> policyToml, Pointer<Char> optionsJson)>>('cactus_model_set_policy')
          .asFunction();
}
