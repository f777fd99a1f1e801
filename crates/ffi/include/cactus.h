/*
 * cactus.h: the C library of Cactus, language models on this machine. Made by cbindgen; do not edit.
 *
 * Two layers share one library, and a model of one is a model of the other: functions of our own (cactus_model_...,
 * cactus_session_..., cactus_request_...), and those of the public Cactus engine (cactus_init, cactus_complete, ...), which write
 * into buffers of the caller. New programs want the former. docs/guides/c.md begins with twenty lines that answer a question.
 *
 * Results.  Our functions return 0 (CACTUS_CODE_OK) or a negative code. cactus_last_error gives code, kind and message of the
 *   last call that failed on this thread. The public functions return what they always did.
 * Handles.  Models, sessions and requests are numbers in the clothes of pointers. Never read through one. A handle that was
 *   closed, is of another kind or never was one gives CACTUS_CODE_HANDLE, for ever. Each is closed once, by its own function.
 * Strings.  All text is UTF-8 and ends with a zero byte. A `char *` that a function gives belongs to the caller, until
 *   cactus_string_free. A `const char *` belongs to the library, and is valid as long as its function says. What is given to a
 *   function is read before it returns, and not kept.
 * Pointers. Where a function takes a buffer and its size, so much of it has to be there. NULL gives an error where something is
 *   needed. Sizes are bytes, or elements where the name says count or len.
 * Threads.  Every function may be called from any thread at any time. Many requests to one model are computed together.
 * Callbacks. A callback may call any function. What would wait for the callback itself does not wait, or gives
 *   CACTUS_CODE_IN_CALLBACK. A callback must not throw, longjmp, or end its thread.
 * Closing.  A model or request may be closed at any time, from any thread: what is under way is cancelled, and the function
 *   waits for it, unless it is called from inside a callback.
 * Processes. A child of fork() cannot use what was loaded before: load models after forking.
 * Times are milliseconds, sizes bytes, logarithms natural.
 */

#ifndef CACTUS_H
#define CACTUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The ABI that this library has. It grows by functions; it changes its number where a function changes.
 */
#define CACTUS_ABI_VERSION 1

/*
 Codes that functions return. 0 is success, and all others are negative. They never change their meaning.

 The functions of the public engine return -1 for every failure but a buffer that is too small (-2). `cactus_last_error`
 gives the code of theirs, too.
 */
enum cactus_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   No error.
   */
  CACTUS_CODE_OK = 0,
  /*
   A defect of the library. What it was doing is lost; the library goes on.
   */
  CACTUS_CODE_INTERNAL = -1,
  /*
   The caller's buffer is too small.
   */
  CACTUS_CODE_BUFFER_TOO_SMALL = -2,
  /*
   An argument is null, out of range, not UTF-8, or JSON of the wrong form.
   */
  CACTUS_CODE_ARGUMENT = -3,
  /*
   A handle was closed, is of another kind, or never was one.
   */
  CACTUS_CODE_HANDLE = -4,
  /*
   The bundle is missing; or it, or a file of a graph or of weights, is damaged, or of a form or version that is not read.
   */
  CACTUS_CODE_BUNDLE = -5,
  /*
   The model cannot do what is asked of it.
   */
  CACTUS_CODE_UNSUPPORTED = -6,
  /*
   The tokenizer or the chat template is missing or fails.
   */
  CACTUS_CODE_TEXT = -7,
  /*
   The prompt does not fit the context.
   */
  CACTUS_CODE_CONTEXT_FULL = -8,
  /*
   The model computed something that is no number.
   */
  CACTUS_CODE_NUMERIC = -9,
  /*
   Too many requests wait already.
   */
  CACTUS_CODE_BUSY = -10,
  /*
   It was cancelled.
   */
  CACTUS_CODE_CANCELLED = -11,
  /*
   It cannot be done from inside a callback, because it would wait for that callback.
   */
  CACTUS_CODE_IN_CALLBACK = -12,
  /*
   The model cannot be downloaded or converted: what came is damaged, or cannot be used.
   */
  CACTUS_CODE_FETCH = -13,
  /*
   A file cannot be read or written, or memory or a thread cannot be had.
   */
  CACTUS_CODE_SYSTEM = -14,
  /*
   This build of the library does not have it.
   */
  CACTUS_CODE_NOT_IN_BUILD = -15,
  /*
   There is no model of that name, or nothing at that path. The message has names like it.
   */
  CACTUS_CODE_NOT_FOUND = -16,
  /*
   The model is not on this machine, and the network cannot be reached or is turned off.
   */
  CACTUS_CODE_OFFLINE = -17,
  /*
   The service wants a token, or refuses the one that it got.
   */
  CACTUS_CODE_UNAUTHORIZED = -18,
  /*
   Under a policy, neither this machine nor a target has answered.
   */
  CACTUS_CODE_UNANSWERED = -19,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cactus_code cactus_code;
#else
typedef int32_t cactus_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 What happens to a request. Each ends with exactly one of `DONE`, `CANCELLED` and `FAILED`, and nothing comes after it.
 */
enum cactus_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The prompt is computed. `json` has `prompt_tokens` and `cached_tokens`.
   */
  CACTUS_EVENT_KIND_STARTED = 1,
  /*
   Text of the answer: `text`, whole characters.
   */
  CACTUS_EVENT_KIND_TEXT = 2,
  /*
   Reasoning before the answer: `text`.
   */
  CACTUS_EVENT_KIND_REASONING = 3,
  /*
   A call of a tool, or part of one. `json` has `index` and, with the call's first event, `id` and `name`; then `arguments`, a
   piece of a JSON object as text; at its end `end`, or `failed` where it came to nothing and was given out as text.
   */
  CACTUS_EVENT_KIND_TOOL_CALL = 4,
  /*
   The end: `json` is the whole result.
   */
  CACTUS_EVENT_KIND_DONE = 5,
  /*
   The end of a request that was cancelled: `json` is the result as far as it came.
   */
  CACTUS_EVENT_KIND_CANCELLED = 6,
  /*
   The end of a request that failed: `code` says how, `text` why.
   */
  CACTUS_EVENT_KIND_FAILED = 7,
  /*
   Of a model with a policy: who answers, before the first of it. `json` has `side` (`local` or `cloud`), `target`, the
   target's name or null, `reason`, as the result has it in the end, or `unjudged` where nothing is decided yet, and what else
   the result says of the decision, as far as it is known: `route`, `answered_by`, `confidence`, `error_bound`, `cost_usd`,
   `cost_is_exact`, `time_to_first_token_ms`, `total_time_ms` and so on. What may still be billed counts with its worst case.
   */
  CACTUS_EVENT_KIND_SOURCE = 8,
  /*
   Of a model with a policy: what was said so far is void, as who said it failed or was judged too unsure after a slow
   beginning. Another answers from the beginning. `json` has the fields of `SOURCE`, here of the answer that is void, and
   `reason` says why it is.
   */
  CACTUS_EVENT_KIND_REPLACED = 9,
  /*
   Of a model with a policy: a person has to say whether this may leave, with `cactus_request_consent`. `json` has `classes`
   (of content), `target`, `host`, `most`, what it may cost at most in dollars, as text, and `reason` and `confidence`, why the
   target is wanted.
   */
  CACTUS_EVENT_KIND_CONSENT = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cactus_event_kind cactus_event_kind;
#else
typedef int32_t cactus_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A loaded model. Any number of threads may use it at once. A handle, not an address.
 */
typedef struct cactus_model cactus_model;

/*
 A request under way. A handle, not an address.
 */
typedef struct cactus_request cactus_request;

/*
 A conversation with a model. A handle, not an address.
 */
typedef struct cactus_session cactus_session;

/*
 The last error of a thread.
 */
typedef struct cactus_error {
  /*
   A `CACTUS_CODE_...`, or `CACTUS_CODE_OK` where there was no error.
   */
  int32_t code;
  /*
   The code's name, as in `argument`. Valid for ever.
   */
  const char *kind;
  /*
   What was expected, what was found, and where. Valid until the next call of the library on this thread.
   */
  const char *message;
} cactus_error;

/*
 Takes the progress of loading: `stage` is what is being done (`waiting`, `downloading`, `checking`, `converting`,
 `reading source`, `choosing bits`, `calibrating`, `measuring quality`, `loading`, or `note`, which the user should read); `what`
 is what it is about (a model, a file, a text), or empty; then how much of it is done and of how much, in bytes or in the stage's
 own parts, 0 of 0 where that is not known. A result other than 0 stops within seconds, with `CACTUS_CODE_CANCELLED`; what was
 downloaded is kept for the next time. It is called on the thread that loads, at most some ten times a second while it
 downloads, and must not throw. Texts are valid until it returns.
 */
typedef int (*cactus_progress_callback)(const char *stage,
                                        const char *what,
                                        uint64_t done,
                                        uint64_t total,
                                        void *user_data);

/*
 An event of a request. All it points to is valid until the callback returns.
 */
typedef struct cactus_event {
  /*
   Bytes of this structure, which may grow at its end.
   */
  size_t size;
  /*
   What it is: a `CACTUS_EVENT_KIND_...`.
   */
  int32_t kind;
  /*
   A `CACTUS_CODE_...` with `FAILED`, else 0.
   */
  int32_t code;
  /*
   UTF-8 text; empty where the kind has none, never NULL.
   */
  const char *text;
  /*
   A JSON object; empty where the kind has none, never NULL.
   */
  const char *json;
} cactus_event;

/*
 Takes the events of a request, one after the other, on a thread of the library. It may call the library, may close what it
 belongs to (which does not wait then), and must not throw. A slow one delays its own request alone.
 */
typedef void (*cactus_event_callback)(const struct cactus_event *event, void *user_data);

/*
 Takes an answer as it is made: the text of a token (whole characters, so it may be empty), the token, and what was given with
 the function. The text is valid until it returns. It is called on the thread that waits for the answer, may call the library,
 and must not throw.
 */
typedef void (*cactus_token_callback)(const char *token, uint32_t token_id, void *user_data);

/*
 Takes what the library has to say: level (0 debug, 1 information, 2 warning, 3 error), part of the library, message, and what
 was given with the function. It is called on the thread whose call it is about. Texts are valid until it returns.
 */
typedef void (*cactus_log_callback_t)(int level, const char *component, const char *message, void *user_data);

/*
 What is known of a node.
 */
typedef struct cactus_tensor_info_t {
  /*
   0 INT8, 1 FP16, 2 FP32, 3 to 6 codebook indices of 1 to 4 bits.
   */
  int32_t precision;
  /*
   How many sizes count.
   */
  size_t rank;
  /*
   Sizes of the axes; 0 behind the last.
   */
  size_t shape[8];
  /*
   Elements.
   */
  size_t num_elements;
  /*
   Bytes of the elements.
   */
  size_t byte_size;
} cactus_tensor_info_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library, as in `0.1.0`. Valid for ever.
 */
const char *cactus_version(void);

/*
 The ABI of the library, to compare with the `CACTUS_ABI_VERSION` that a program was compiled with. A program needs this one
 or, once there are several, a later one that says it is compatible.
 */
uint32_t cactus_abi_version(void);

/*
 Writes the last error of this thread to `error`. A call that succeeds leaves it as it is.
 */
int cactus_last_error(struct cactus_error *error);

/*
 Forgets the last error of this thread.
 */
void cactus_clear_error(void);

/*
 Frees a string that the library gave away (`char *` results). NULL is allowed.
 */
void cactus_string_free(char *string);

/*
 The name of a code, as in `argument`; `unknown` for a number that is none. Valid for ever.
 */
const char *cactus_error_kind(int32_t code);

/*
 Loads the model `name`: the folder of a bundle, a GGUF file, a Hugging Face folder, a Hugging Face id (`org/name`, with
 `@revision` and `:file` where wanted), a known name such as `smollm2`, or the address (`https://`, or `http://` of this machine) of
 a GGUF file or of the folder of a bundle. What is not on this machine is downloaded, and what is no bundle converted, into the
 cache of this user first, where it is found the next time, by the command line and by Python too. `options_json` (NULL, or an
 object) says how that is done (`bits` for each weight, `calibrate`, `reconvert`, `offline`, `token`,
 and the folder of the `cache`) and how the model is run
 (`context_tokens`, `threads`, `decode_threads`, `pin`, `kv_dtype`, `chunk_tokens`, `sequences`, `queue`, `kv_tokens`).
 `progress` may be NULL. A library that was built without the store loads bundles alone, and gives `CACTUS_CODE_NOT_IN_BUILD` for
 everything else.
 */
int cactus_model_load(const char *name,
                      const char *options_json,
                      cactus_progress_callback progress,
                      void *user_data,
                      struct cactus_model **model);

/*
 As `cactus_model_load`, without loading: writes the folder of the bundle to `*path`, as an owned string. To download a model
 before it is needed, or for `cactus_init`. `options_json` has `bits`, `calibrate`, `reconvert`, `offline`,
 `token` and `cache`.
 */
int cactus_model_prepare(const char *name,
                         const char *options_json,
                         cactus_progress_callback progress,
                         void *user_data,
                         char **path);

/*
 Closes a model: cancels its requests, waits until nothing of them runs, and frees it. Requests and sessions of it still have to
 be closed. From inside a callback it does not wait.
 */
int cactus_model_close(struct cactus_model *model);

/*
 What is known of a model and what it has done, as an owned JSON object.
 */
int cactus_model_info(struct cactus_model *model, char **info_json);

/*
 Token ids of a text, with the tokens that the model puts around texts where `special`. `*tokens` is an owned array of `*count`
 ids, for `cactus_tokens_free`.
 */
int cactus_model_tokenize(struct cactus_model *model,
                          const char *text,
                          bool special,
                          uint32_t **tokens,
                          size_t *count);

/*
 Frees an array that `cactus_model_tokenize` gave, with its count. NULL is allowed.
 */
void cactus_tokens_free(uint32_t *tokens, size_t count);

/*
 The text of `count` token ids, as an owned string. Special tokens are spelled out where `special`, else left out.
 */
int cactus_model_detokenize(struct cactus_model *model,
                            const uint32_t *tokens,
                            size_t count,
                            bool special,
                            char **text);

/*
 How likely the tokens from `first` (at least 1) on are, each given all before it. `*score_json` is an owned JSON object with
 `logprob` (the sum of natural logarithms), `tokens` (how many were scored) and `logprobs` (of each).
 */
int cactus_model_score(struct cactus_model *model,
                       const uint32_t *tokens,
                       size_t count,
                       size_t first,
                       char **score_json);

/*
 Uses at most so many threads from now on, at most as many as the model was loaded with: `threads` for prompts,
 `decode_threads` for generating; 0 leaves one as it is. For a device that gets hot, or an application that goes to the
 background. Answers are the same with any number.
 */
int cactus_model_set_threads(struct cactus_model *model, size_t threads, size_t decode_threads);

/*
 Tells the library that memory is short. Every open model forgets what it keeps of earlier prompts, so that their memory can be
 used for those under way. Answers stay the same; later ones that begin like earlier ones come less soon.
 */
void cactus_memory_pressure(void);

/*
 Whether the bundle in the folder `path` can be used with this build. Returns 0 where it can, else a code. `*report_json`, which
 may be NULL, gets an owned JSON object in either case, with `usable` and, where not, `code`, `kind` and `message`; with what is
 known of the bundle where it can be opened. With `verify`, all of it is read and compared with its checksums.
 */
int cactus_check_bundle(const char *path,
                        bool verify,
                        char **report_json);

/*
 Begins a request: a JSON object with `messages`, `prompt` or `tokens`, and what else docs/reference/c-abi.md lists. With a
 callback, events go there; with NULL, `cactus_request_next` gives them. `*request` has to be closed in any case.
 */
int cactus_request_start(struct cactus_model *model,
                         const char *request_json,
                         cactus_event_callback callback,
                         void *user_data,
                         struct cactus_request **request);

/*
 Waits up to `timeout_ms` milliseconds (negative: for ever, 0: not at all) for the next event of a request without a callback.
 Writes it to `*event_json` as an owned JSON object with `event`, one of `started`, `text`, `reasoning`, `tool_call`, `done`,
 `cancelled` and `failed`; or NULL where none came in time. `*over`, which may be NULL, tells whether none will come any more.
 */
int cactus_request_next(struct cactus_request *request,
                        int64_t timeout_ms,
                        char **event_json,
                        bool *over);

/*
 Waits for the end of a request, and writes its whole result to `*result_json` as an owned JSON object. A request that failed
 gives its code; one that was cancelled gives a result as far as it came.
 */
int cactus_request_wait(struct cactus_request *request,
                        char **result_json);

/*
 Asks a request to stop, from any thread; it ends within a token. May be called again.
 */
int cactus_request_cancel(struct cactus_request *request);

/*
 Answers the event `CONSENT` of a request: whether what it lists may leave this machine. With a callback, before that returns,
 from any thread. Without one, before `cactus_request_next` is called with a time to wait, or `cactus_request_wait`. Where somebody
 goes on without an answer, nothing leaves, as nobody was there to be asked. Fails where nothing is asked.
 */
int cactus_request_consent(struct cactus_request *request,
                           bool yes);

/*
 Closes a request: cancels what is left of it, and waits until its callback has returned for the last time. Inside its own
 callback it does not wait; no further call begins then. Where callbacks of two requests close each other's request, one of them
 does not wait either: keep what `user_data` points to until both have returned.
 */
int cactus_request_close(struct cactus_request *request);

/*
 Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of a request,
 which hold for every request of the session where it does not say otherwise. What a request could not have is refused here.
 */
int cactus_session_open(struct cactus_model *model,
                        const char *defaults_json,
                        struct cactus_session **session);

/*
 Adds to a conversation and answers it: `request_json` is a JSON string (what the user says), or an object with the `messages`
 to add and other fields of a request. Events come as with `cactus_request_start`. At the end of the request, before its last
 event, the answer is part of the conversation; a request that failed leaves the conversation as it was. One request at a time.
 */
int cactus_session_send(struct cactus_session *session,
                        const char *request_json,
                        cactus_event_callback callback,
                        void *user_data,
                        struct cactus_request **request);

/*
 Writes the messages of a conversation to `*messages_json`, as an owned JSON array. `cactus_session_open` takes it back, as
 `messages`.
 */
int cactus_session_messages(struct cactus_session *session,
                            char **messages_json);

/*
 Closes a conversation: cancels its request, which still has to be closed.
 */
int cactus_session_close(struct cactus_session *session);

/*
 Not in this build: no model that is read here makes vectors of sound. Returns -1.
 */
int cactus_audio_embed(void *model,
                       const char *_audio_path,
                       float *_embeddings_buffer,
                       size_t _buffer_size,
                       size_t *_embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_preprocess_audio_features(const char *_wav_path,
                                     const char *_model_type,
                                     size_t _mel_bins,
                                     float *_features_buffer,
                                     size_t _buffer_size,
                                     size_t *_out_count,
                                     size_t *_out_mel_bins,
                                     size_t *_out_frames);

/*
 Answers a conversation. The result, a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative
 number where it failed, with the reason in the buffer, too. `options_json`, `tools_json`, `callback` and `pcm_buffer` may be
 NULL. Sound in `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a second) belongs to the last message of the user, for a model
 that hears. Any number of threads may ask one model at once: their answers are computed together.
 */
int cactus_complete(void *model,
                    const char *messages_json,
                    char *response_buffer,
                    size_t buffer_size,
                    const char *options_json,
                    const char *tools_json,
                    cactus_token_callback callback,
                    void *user_data,
                    const uint8_t *pcm_buffer,
                    size_t pcm_buffer_size);

/*
 Computes a conversation ahead of time, so that an answer to it, or to one that begins like it, comes sooner. The result goes to
 `response_buffer` as with `cactus_complete`.
 */
int cactus_prefill(void *model,
                   const char *messages_json,
                   char *response_buffer,
                   size_t buffer_size,
                   const char *options_json,
                   const char *tools_json,
                   const uint8_t *pcm_buffer,
                   size_t pcm_buffer_size);

/*
 Writes the vector of a text to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to `embedding_dim`
 (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors. `normalize` gives the vector the length 1;
 most models give no other. No prompt stands before the text but the model's default one. A text that is too long is an error.
 Returns how many floats the vector has, -2 where they do not fit, or -1.
 */
int cactus_embed(void *model,
                 const char *text,
                 float *embeddings_buffer,
                 size_t buffer_size,
                 size_t *embedding_dim,
                 bool normalize);

/*
 Writes the vector of a picture to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to `embedding_dim`
 (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors of texts and pictures (CLIP, SigLIP);
 `image_path` is a PNG, JPEG or WebP file. The vector is compared with those that `cactus_embed` makes of texts, and has the length 1 if
 theirs have. Returns how many floats the vector has, -2 where they do not fit, or -1.
 */
int cactus_image_embed(void *model,
                       const char *image_path,
                       float *embeddings_buffer,
                       size_t buffer_size,
                       size_t *embedding_dim);

/*
 Writes down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
 samples a second): one of the two. The result, a JSON object with `response`, `segments` and `language`, goes to `response_buffer`, and the
 function returns its bytes; a negative number where it failed, with the reason in the buffer, too. `prompt` is text
 as if said before, after special tokens of Whisper's, of which language and task count. `callback` gets the text of each segment.
 `prompt`, `options_json` (`language`, `translate`, `temperature`, `custom_vocabulary`, and `hallucination_silence`: seconds of silence beside
 which text is left out that nobody may have said) and `callback` may be NULL. Under a policy (`cactus_model_set_policy`) the result has
 `cloud_handoff`, who answered, why and for how much, and `answered_by` of each segment; `callback` gets the text when it is final.
 */
int cactus_transcribe(void *model,
                      const char *audio_file_path,
                      const char *prompt,
                      char *response_buffer,
                      size_t buffer_size,
                      const char *options_json,
                      cactus_token_callback callback,
                      void *user_data,
                      const uint8_t *pcm_buffer,
                      size_t pcm_buffer_size);

/*
 Finds out which language is spoken at the beginning of the file `audio_file_path`, of any format, or of `pcm_buffer` (mono, 16 bits,
 little-endian, 16,000 samples a second): one of the two. The result, a JSON object with `language` (`unknown` where nobody speaks),
 `confidence` and `entropy`, goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the
 reason in the buffer, too. `options_json` is not read, and may be NULL.
 */
int cactus_detect_language(void *model,
                           const char *audio_file_path,
                           char *response_buffer,
                           size_t buffer_size,
                           const char *options_json,
                           const uint8_t *pcm_buffer,
                           size_t pcm_buffer_size);

/*
 Finds where somebody speaks in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
 samples a second): one of the two. The result, a JSON object whose `segments` have `start` and `end` in samples of the model's rate,
 goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
 `options_json` has the names and defaults of Silero's `get_speech_timestamps`, and may be NULL.
 */
int cactus_vad(void *model,
               const char *audio_file_path,
               char *response_buffer,
               size_t buffer_size,
               const char *options_json,
               const uint8_t *pcm_buffer,
               size_t pcm_buffer_size);

/*
 Opens the index in the folder `index_dir`, or makes one there, for vectors of `embedding_dim` numbers. NULL where that fails, also
 where the index that is there has vectors of another length. It is closed with `cactus_index_destroy`.
 */
void *cactus_index_init(const char *index_dir,
                        size_t embedding_dim);

/*
 Adds documents: for each an id that the index does not have yet, a text, a text that belongs to it (`metadatas` or one of its
 pointers may be NULL) and a vector. `embedding_dim` is that of the index. Returns 0, or -1 where nothing was added.
 */
int cactus_index_add(void *index,
                     const int *ids,
                     const char *const *documents,
                     const char *const *metadatas,
                     const float *const *embeddings,
                     size_t count,
                     size_t embedding_dim);

/*
 Deletes documents; ids that the index does not have are left out. Returns 0, or -1 where nothing was deleted.
 */
int cactus_index_delete(void *index, const int *ids, size_t ids_count);

/*
 Writes text, metadata and vector of each document to the caller's buffers. Any of the three arrays of buffers may be NULL, and any
 buffer. The size beside a buffer says what it has room for, bytes or floats, and then what the result needed, zero byte included. An id
 that the index does not have is an error. Returns 0, -2 where something does not fit, or -1.
 */
int cactus_index_get(void *index,
                     const int *ids,
                     size_t ids_count,
                     char **document_buffers,
                     size_t *document_buffer_sizes,
                     char **metadata_buffers,
                     size_t *metadata_buffer_sizes,
                     float **embedding_buffers,
                     size_t *embedding_buffer_sizes);

/*
 The nearest documents to each of `embeddings_count` vectors, by the cosine, the best first: ids and scores go to the caller's buffers,
 one of each for each vector. The size beside a buffer says how many it has room for, and then how many were found. `options_json` may
 have `top_k` (10), `score_threshold` (-1: none) and `filter`, which is ours. Returns 0, or -1.
 */
int cactus_index_query(void *index,
                       const float *const *embeddings,
                       size_t embeddings_count,
                       size_t embedding_dim,
                       const char *options_json,
                       int **id_buffers,
                       size_t *id_buffer_sizes,
                       float **score_buffers,
                       size_t *score_buffer_sizes);

/*
 Writes the file of an index anew, without what was deleted. Returns 0, or -1.
 */
int cactus_index_compact(void *index);

/*
 Closes an index. What was added is in its file.
 */
void cactus_index_destroy(void *index);

/*
 Begins to listen to live speech with a model that hears. A second model finds speech: the bundle that the option `vad` names,
 or the folder `vad` inside the model's own. Beside `vad` and the options of `cactus_transcribe`, `options_json` (which may be NULL)
 has `min_chunk_sec` (1.0; sound after which a phrase is written again, 0 for never), `silence_sec` (0.5; silence that ends a phrase),
 `sentence_sec` (0.2; silence that ends one whose text ends a sentence), `margin_sec` (silence behind a phrase that the model hears, where
 it is not to hear its whole window), `commit` (`agreement`, or `attention` with Whisper: which text stays), `max_segment_sec` (25; longer phrases are cut) and `threshold` (0.5; at which speech begins). NULL
 where that fails. Several streams may share a model.
 */
void *cactus_stream_transcribe_start(void *model,
                                     const char *options_json);

/*
 Takes the next sound, in pieces of any size: mono, 16 bits, little-endian, 16,000 samples a second. The result, a JSON object, goes to
 `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
 `confirmed` is the text that has become certain since the last call, `pending` is the text behind it that may still change, and `events`
 says what happened since then. Where the result did not fit, -2 is returned, the sound is taken all the same, and the next call gives
 what this one did not; it may come without sound (`pcm_buffer` NULL).
 */
int cactus_stream_transcribe_process(void *stream,
                                     const uint8_t *pcm_buffer,
                                     size_t pcm_buffer_size,
                                     char *response_buffer,
                                     size_t buffer_size);

/*
 Ends live speech: what was said last becomes final and goes to `response_buffer`, as with `cactus_stream_transcribe_process`.
 `response_buffer` may be NULL; then nothing is written or waited for, and the function returns 0. The handle is closed whatever is
 returned.
 */
int cactus_stream_transcribe_stop(void *stream,
                                  char *response_buffer,
                                  size_t buffer_size);

/*
 Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` may name a folder of documents, which the model answers
 from: its index, `.cactus-index`, is brought in step with it, so `cache_index` makes no difference. Vectors come from the model itself,
 if it makes some, or from the model that the environment variable CACTUS_EMBEDDER names. The handle is a `cactus_model *` of our own functions, too, unless the bundle hears, and is for `cactus_transcribe` or
 `cactus_vad` alone, or makes vectors, and is for `cactus_embed` and `cactus_image_embed` alone.
 */
void *cactus_init(const char *model_path,
                  const char *corpus_dir,
                  bool _cache_index);

/*
 Closes a model: cancels what is under way with it, waits for that, and frees it. From inside a callback it does not wait.
 */
void cactus_destroy(void *model);

/*
 Forgets what was computed before, so that the next prompt is computed from its beginning.
 */
void cactus_reset(void *model);

/*
 Stops what is under way with a model, from any thread, within a token. What comes later is not stopped.
 */
void cactus_stop(void *model);

/*
 Chooses where models are computed: 0 for `auto` and `cpu`, which are the same here; -1 for anything else.
 */
int cactus_set_backend(const char *backend);

/*
 The message of the last error of this thread; empty where there was none, never NULL. Valid until the next call of the
 library on this thread. `cactus_last_error` gives its code, too.
 */
const char *cactus_get_last_error(void);

/*
 Sets the least level that is logged: 0 debug, 1 information, 2 warning (default), 3 error, 4 nothing.
 */
void cactus_log_set_level(int level);

/*
 Sets the function that gets what is logged, from any thread that calls the library; without one, or with NULL,
 nothing is said. It must not throw. `user_data` has to live until another function is set.
 */
void cactus_log_set_callback(cactus_log_callback_t callback, void *user_data);

/*
 Does nothing: this library sends no telemetry.
 */
void cactus_set_telemetry_environment(const char *_framework, const char *_cache_location, const char *_version);

/*
 Does nothing: this library sends no telemetry.
 */
void cactus_set_app_id(const char *_app_id);

/*
 Does nothing: this library sends no telemetry.
 */
void cactus_telemetry_flush(void);

/*
 Does nothing: this library sends no telemetry.
 */
void cactus_telemetry_shutdown(void);

/*
 Writes the `top_k` pieces of the model's documents that are nearest to a question to `response_buffer`, as a JSON object with
 `chunks`, the best first, and returns its bytes; a negative number where it failed, with the reason in the buffer, too. The model comes
 from `cactus_init` with a folder of documents.
 */
int cactus_rag_query(void *model,
                     const char *query,
                     char *response_buffer,
                     size_t buffer_size,
                     size_t top_k);

/*
 Token ids of a text, without tokens that the model puts around texts. 0; -1 where it fails; -2 where `buffer_size` ids are too
 few. In the last case, and with a NULL buffer of no ids, `out_token_len` gets how many there are.
 */
int cactus_tokenize(void *model,
                    const char *text,
                    uint32_t *token_buffer,
                    size_t token_buffer_len,
                    size_t *out_token_len);

/*
 The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small, and the
 text in it is empty then.
 */
int cactus_render_prompt(void *model,
                         const char *messages_json,
                         const char *options_json,
                         const char *tools_json,
                         char *buffer,
                         size_t buffer_size);

/*
 How likely tokens are: those from `start` to before `end`, each given all before it, back to `context` tokens before `start`.
 The first token of all follows nothing and is not scored. The JSON object in `response_buffer` has `success`, `logprob` (the
 sum of natural logarithms) and `tokens` (how many were scored). Returns its bytes; a negative number where it failed, with
 the reason in the buffer, too.
 */
int cactus_score_window(void *model,
                        const uint32_t *tokens,
                        size_t token_len,
                        size_t start,
                        size_t end,
                        size_t context,
                        char *response_buffer,
                        size_t buffer_size);

/*
 Rotary embedding of the halves of each head of `[batch, seq, heads, head_dim]`; the first row has position
 `position_offset`.
 */
int cactus_graph_rope(void *graph, uint64_t x, float theta, size_t position_offset, uint64_t *out);

/*
 Rotary embedding of neighbors, of the first `rotary` elements of each head; 0 for all.
 */
int cactus_graph_rope_gptj(void *graph, uint64_t x, float theta, size_t position_offset, size_t rotary, uint64_t *out);

/*
 `(q [batch, seq, heads, d], k [batch, keys, kv_heads, d], v [batch, keys, kv_heads, e]) -> [batch, seq, heads, e]`.
 The first query has position `position_offset` and sees `window` keys before its own at most (0 for all). The mask is
 `[batch, seq, keys]` or `[batch, heads, seq, keys]`, added to the scores where `additive`, else 0 where a key is not
 seen.
 */
int cactus_graph_attention(void *graph,
                           uint64_t query,
                           uint64_t key,
                           uint64_t value,
                           float scale,
                           bool causal,
                           size_t position_offset,
                           size_t window,
                           bool use_mask,
                           uint64_t mask,
                           bool additive,
                           uint64_t *out);

/*
 Causal attention of the last positions of two caches: the new keys and values have been appended to them.
 `position_offset` is where the caches say, so that it is not read.
 */
int cactus_graph_attention_cached(void *graph,
                                  uint64_t query,
                                  uint64_t key,
                                  uint64_t value,
                                  uint64_t key_cache,
                                  uint64_t value_cache,
                                  float scale,
                                  size_t position_offset,
                                  size_t window,
                                  size_t value_dim,
                                  uint64_t *out);

/*
 As `cactus_graph_attention_cached`, with a mask as of `cactus_graph_attention`, whose first columns count.
 */
int cactus_graph_attention_cached_masked(void *graph,
                                         uint64_t query,
                                         uint64_t key,
                                         uint64_t value,
                                         uint64_t key_cache,
                                         uint64_t value_cache,
                                         float scale,
                                         size_t position_offset,
                                         size_t window,
                                         size_t value_dim,
                                         bool causal,
                                         uint64_t mask,
                                         bool additive,
                                         uint64_t *out);

/*
 `(q [batch, seq, heads, d], relative [batch or 1, 2 seq - 1 or more, heads, d]) -> [batch, heads, seq, seq]`: scores
 of distances.
 */
int cactus_graph_rel_pos_bias(void *graph, uint64_t query, uint64_t relative, float scale, uint64_t *out);

/*
 Attention to both sides with scores of distances of a second query; the mask `[batch, seq]` is added.
 */
int cactus_graph_rel_pos_attention(void *graph,
                                   uint64_t query,
                                   uint64_t key,
                                   uint64_t value,
                                   uint64_t relative_query,
                                   uint64_t relative_key,
                                   bool use_mask,
                                   uint64_t mask,
                                   float scale,
                                   size_t window,
                                   uint64_t *out);

/*
 Attention to a cache of whole numbers with a scale for each 32 elements of a row, and to new keys and values behind it. The
 cache `[cache_len, kv_heads, head_dim]` and its scales are copied.
 */
int cactus_graph_attention_int8_hybrid(void *graph,
                                       uint64_t query,
                                       uint64_t key,
                                       uint64_t value,
                                       float scale,
                                       size_t position_offset,
                                       const int8_t *cached_keys,
                                       const int8_t *cached_values,
                                       const float *key_scales,
                                       const float *value_scales,
                                       size_t cache_len,
                                       size_t kv_heads,
                                       size_t head_dim,
                                       size_t window,
                                       uint64_t *out);

/*
 `(x [n, c, l], w [o, c, k], bias? [o]) -> [n, o, (l - k) / stride + 1]`.
 */
int cactus_graph_conv1d(void *graph,
                        uint64_t x,
                        uint64_t weight,
                        bool has_bias,
                        uint64_t bias,
                        size_t stride,
                        uint64_t *out);

/*
 As `cactus_graph_conv1d`, each channel on its own: `w [c, 1, k]`.
 */
int cactus_graph_conv1d_depthwise(void *graph,
                                  uint64_t x,
                                  uint64_t weight,
                                  bool has_bias,
                                  uint64_t bias,
                                  size_t stride,
                                  uint64_t *out);

/*
 `(x [n, c, l], w [o, c, 3]) -> [n, o, (l - 1) / stride + 1]`, a zero at both ends.
 */
int cactus_graph_conv1d_k3(void *graph, uint64_t x, uint64_t weight, size_t stride, uint64_t *out);

/*
 `(x [n, c, l], w [c, 7, o], bias [o]) -> [n, o, (l - 7) / 3 + 1]`.
 */
int cactus_graph_conv1d_k7s3(void *graph, uint64_t x, uint64_t weight, uint64_t bias, uint64_t *out);

/*
 Depthwise, no position sees a later one: `(x [n, l, c], w [c, 1, k]) -> [n, l, c]`.
 */
int cactus_graph_conv1d_causal(void *graph,
                               uint64_t x,
                               uint64_t weight,
                               size_t kernel_size,
                               size_t dilation,
                               uint64_t *out);

/*
 As `cactus_graph_conv1d_causal`, `x [n, c, l]`.
 */
int cactus_graph_conv1d_causal_channel_first(void *graph,
                                             uint64_t x,
                                             uint64_t weight,
                                             size_t kernel_size,
                                             size_t dilation,
                                             uint64_t *out);

/*
 Depthwise, four zeros at both ends: `(x [n, l, c], w [c, 9] or [c, 1, 9], bias? [c]) -> [n, l, c]`.
 */
int cactus_graph_conv1d_same_depthwise_k9(void *graph,
                                          uint64_t x,
                                          uint64_t weight,
                                          bool has_bias,
                                          uint64_t bias,
                                          uint64_t *out);

/*
 `(x [n, l, c], w [o, c] or [o, c, 1], bias? [o]) -> [n, l, o]`.
 */
int cactus_graph_conv1d_pointwise(void *graph,
                                  uint64_t x,
                                  uint64_t weight,
                                  bool has_bias,
                                  uint64_t bias,
                                  uint64_t *out);

/*
 `(x [n, c, h, w], weight [o, c, 3, 3], bias? [o])`, stride 2, a zero around.
 */
int cactus_graph_conv2d_k3s2p1(void *graph, uint64_t x, uint64_t weight, bool has_bias, uint64_t bias, uint64_t *out);

/*
 `(x [n, c, h, w], weight [o, c, 3, 3], bias? [o])`, stride 1, a zero around.
 */
int cactus_graph_conv2d_k3s1p1(void *graph, uint64_t x, uint64_t weight, bool has_bias, uint64_t bias, uint64_t *out);

/*
 `(x [n, c, h, w], weight [c, 3, 3] or [c, 1, 3, 3], bias? [c])`, stride 2, a zero around, each channel on its own.
 */
int cactus_graph_conv2d_depthwise_k3s2p1(void *graph,
                                         uint64_t x,
                                         uint64_t weight,
                                         bool has_bias,
                                         uint64_t bias,
                                         uint64_t *out);

/*
 `(x [n, c, h, w], weight [o, c] or [o, c, 1, 1], bias? [o]) -> [n, o, h, w]`.
 */
int cactus_graph_conv2d_pointwise_1x1(void *graph,
                                      uint64_t x,
                                      uint64_t weight,
                                      bool has_bias,
                                      uint64_t bias,
                                      uint64_t *out);

/*
 `(x [n, c, h, w], weight [o, c / groups, k, l], bias? [o])`, the same step, zeros and dilation on both axes.
 */
int cactus_graph_conv2d(void *graph,
                        uint64_t x,
                        uint64_t weight,
                        bool has_bias,
                        uint64_t bias,
                        size_t stride,
                        size_t padding,
                        size_t dilation,
                        size_t groups,
                        uint64_t *out);

/*
 One step: `(x [b, m], h [b, n], c [b, n], w_ih [4n, m], w_hh [4n, n], b_ih [4n], b_hh [4n]) -> [b, n, 2]`, output and
 cell; gates input, forget, cell, output.
 */
int cactus_graph_lstm_cell(void *graph,
                           uint64_t x,
                           uint64_t h,
                           uint64_t c,
                           uint64_t weight_ih,
                           uint64_t weight_hh,
                           uint64_t bias_ih,
                           uint64_t bias_hh,
                           uint64_t *out);

/*
 One position of the gated delta rule: `(q, k [b, 1, hk, d], v [b, 1, h, e], log decay, rate [b, 1, h], state [b, d, h,
 e]) -> [b, 1 + d, h, e]`, the result, then the state. A scale of 0 is `1/sqrt(d)`.
 */
int cactus_graph_gated_deltanet_decode(void *graph,
                                       uint64_t query,
                                       uint64_t key,
                                       uint64_t value,
                                       uint64_t gate_log,
                                       uint64_t beta,
                                       uint64_t state,
                                       float scale,
                                       uint64_t *out);

/*
 The gated delta rule over `t` positions: `-> [b, t + d, h, e]`, results, then the state. `chunk_size` is a hint that
 is not needed.
 */
int cactus_graph_gated_deltanet_prefill(void *graph,
                                        uint64_t query,
                                        uint64_t key,
                                        uint64_t value,
                                        uint64_t gate_log,
                                        uint64_t beta,
                                        uint64_t state,
                                        size_t chunk_size,
                                        float scale,
                                        uint64_t *out);

/*
 `a + b`, broadcast.
 */
int cactus_graph_add(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 `a + b`, broadcast, kept within what half precision can hold.
 */
int cactus_graph_add_clipped(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 `a - b`, broadcast.
 */
int cactus_graph_subtract(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 `a * b`, broadcast.
 */
int cactus_graph_multiply(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 `a / b`, broadcast.
 */
int cactus_graph_divide(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a != b`, else 0; broadcast.
 */
int cactus_graph_not_equal(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a == b`, else 0; broadcast.
 */
int cactus_graph_equal(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a < b`, else 0; broadcast.
 */
int cactus_graph_less(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a <= b`, else 0; broadcast.
 */
int cactus_graph_less_equal(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a > b`, else 0; broadcast.
 */
int cactus_graph_greater(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 1 where `a >= b`, else 0; broadcast.
 */
int cactus_graph_greater_equal(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 Bits that the whole numbers of both have; broadcast.
 */
int cactus_graph_bitwise_and(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 Bits that the whole numbers of any have; broadcast.
 */
int cactus_graph_bitwise_or(void *graph, uint64_t a, uint64_t b, uint64_t *out);

/*
 `condition != 0 ? a : b`, broadcast.
 */
int cactus_graph_where(void *graph, uint64_t condition, uint64_t a, uint64_t b, uint64_t *out);

/*
 `x`, not below `low` and not above `high`.
 */
int cactus_graph_clamp(void *graph, uint64_t x, float low, float high, uint64_t *out);

/*
 The rows of `x` where `mask`, which has the first axes of `x`, is not 0; zeros behind. `[n, …]`, as many rows as the
 mask has elements.
 */
int cactus_graph_masked_select_prefix(void *graph, uint64_t x, uint64_t mask, uint64_t *out);

/*
 `x`, but where `mask` is not 0 the elements of `source` in order; the last one again where there are too few.
 */
int cactus_graph_masked_scatter(void *graph, uint64_t x, uint64_t mask, uint64_t source, uint64_t *out);

/*
 `x` in another precision: 0 INT8 (rounded, from -128 to 127), 1 FP16 (rounded), 2 FP32.
 */
int cactus_graph_precision_cast(void *graph, uint64_t x, int precision, uint64_t *out);

/*
 Not in this build: products quantize what they read by themselves. Sets the last error and returns -1.
 */
int cactus_graph_quantize_activations(void *graph, uint64_t x, uint64_t *out);

/*
 An empty graph, which `cactus_graph_destroy` ends; NULL where there are too many. A graph does one thing at a time: calls
 from several threads take turns.
 */
void *cactus_graph_create(void);

/*
 Ends a graph. What its functions gave pointers to is gone.
 */
void cactus_graph_destroy(void *graph);

/*
 Removes all nodes and everything they hold.
 */
int cactus_graph_hard_reset(void *graph);

/*
 Writes a graph to a file: its nodes, and the elements of embedded inputs. Weight files are named in it, and caches are empty
 when it is loaded.
 */
int cactus_graph_save(void *graph,
                      const char *path);

/*
 The graph of a file that `cactus_graph_save` wrote, its nodes with the numbers they had; NULL where it cannot be read. A node
 whose weight file is not there has to be bound before it is executed.
 */
void *cactus_graph_load(const char *path);

/*
 Accepts the back end of a node: 0 CPU, 1 Metal. Everything is computed on the CPU.
 */
int cactus_graph_set_node_backend(void *graph, uint64_t node, int backend);

/*
 Writes what is known of a node.
 */
int cactus_graph_get_output_info(void *graph, uint64_t node, struct cactus_tensor_info_t *info);

/*
 Writes the number of what a node computes. Numbers are of this library and do not change.
 */
int cactus_graph_get_node_op_type(void *graph, uint64_t node, int *op_type);

/*
 Writes the nodes that a node reads, and how many they are. `count` says how many there is room for; with `nodes` NULL only
 the number is written.
 */
int cactus_graph_get_node_inputs(void *graph,
                                 uint64_t node,
                                 uint64_t *nodes,
                                 size_t *count);

/*
 Nodes to read beside those that no other node reads, in place of those named before. Others are computed again when they are
 read.
 */
int cactus_graph_retain_outputs(void *graph,
                                const uint64_t *nodes,
                                size_t count);

/*
 `(a […, m, k], b […, k, n]) -> […, m, n]`; `b` is `[…, n, k]` where `transposed`.
 */
int cactus_graph_matmul(void *graph, uint64_t a, uint64_t b, bool transposed, uint64_t *out);

/*
 Experts `w2 (activation(w1 x) * w3 x)` of which each row has `chosen`: `(x [t, n], probabilities [t, experts], indices
 [t, chosen])`, three weights for each expert.
 */
int cactus_graph_moe_layer_gated(void *graph,
                                 uint64_t x,
                                 uint64_t probabilities,
                                 uint64_t indices,
                                 const uint64_t *w1,
                                 const uint64_t *w3,
                                 const uint64_t *w2,
                                 size_t experts,
                                 size_t chosen,
                                 bool normalize,
                                 float epsilon,
                                 float factor,
                                 int activation,
                                 uint64_t *out);

/*
 Experts `w2 activation(w1 x)`, otherwise as `cactus_graph_moe_layer_gated`.
 */
int cactus_graph_moe_layer_ungated(void *graph,
                                   uint64_t x,
                                   uint64_t probabilities,
                                   uint64_t indices,
                                   const uint64_t *w1,
                                   const uint64_t *w2,
                                   size_t experts,
                                   size_t chosen,
                                   bool normalize,
                                   float epsilon,
                                   float factor,
                                   int activation,
                                   uint64_t *out);

/*
 `down (gelu(gate_scale * gate x) * up x * product_scale)`, weights `[m, n]`, `[m, n]`, `[n, m]` of any precision.
 */
int cactus_graph_dense_mlp_tq_fused(void *graph,
                                    uint64_t x,
                                    uint64_t gate,
                                    uint64_t up,
                                    uint64_t down,
                                    float product_scale,
                                    float gate_scale,
                                    uint64_t *out);

/*
 Three products joined: `(x […, n], q [a, n], k [b, n], v [c, n]) -> […, a + b + c]`.
 */
int cactus_graph_qkv_tq_fused(void *graph, uint64_t x, uint64_t query, uint64_t key, uint64_t value, uint64_t *out);

/*
 Two products joined: `(x […, n], first [a, n], second [b, n]) -> […, a + b]`.
 */
int cactus_graph_projection_pair_tq_fused(void *graph, uint64_t x, uint64_t first, uint64_t second, uint64_t *out);

/*
 `cap * tanh(scale * weight x / cap)`; without the bend where `cap` is 0.
 */
int cactus_graph_logits_tq_softcap(void *graph, uint64_t x, uint64_t weight, float cap, float scale, uint64_t *out);

/*
 `(coefs [seq, n * n], n streams [seq, d]) -> [n * seq, d]`: each stream and its mix of all.
 */
int cactus_graph_altup_predict(void *graph, uint64_t coefs, const uint64_t *streams, size_t count, uint64_t *out);

/*
 `(coefs [seq, n], innovation [seq, d], n predictions [seq, d]) -> [n * seq, d]`: each prediction and its share of the
 innovation.
 */
int cactus_graph_altup_correct(void *graph,
                               uint64_t coefs,
                               uint64_t innovation,
                               const uint64_t *predictions,
                               size_t count,
                               uint64_t *out);

/*
 A token of the last row of logits, `[1]`, FP32: the likeliest where `temperature` (0 to 100) is 0, else one drawn from the
 `top_k` likeliest (0 for all) and of these the likeliest with a share of `top_p` (0 to 1; 0 and 1 for all).
 */
int cactus_graph_sample(void *graph,
                        uint64_t logits,
                        float temperature,
                        float top_p,
                        size_t top_k,
                        uint64_t *out);

/*
 Sum of an axis, which goes; -1 for all elements, as `[1]`.
 */
int cactus_graph_sum(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Arithmetic mean of an axis, which goes; -1 for all elements, as `[1]`.
 */
int cactus_graph_mean(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Variance (divided by the count) of an axis, which goes; -1 for all elements, as `[1]`.
 */
int cactus_graph_variance(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Smallest element of an axis, which goes; -1 for all elements, as `[1]`.
 */
int cactus_graph_min(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Largest element of an axis, which goes; -1 for all elements, as `[1]`.
 */
int cactus_graph_max(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Sums up to each element of an axis.
 */
int cactus_graph_cumsum(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 Softmax of an axis; -1 for the last.
 */
int cactus_graph_softmax(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 First half of an axis times the logistic function of the second.
 */
int cactus_graph_glu(void *graph, uint64_t x, int axis, uint64_t *out);

/*
 `max(x - (mean + ppf * deviation), 0)` of each row.
 */
int cactus_graph_gaussian_topk(void *graph, uint64_t x, float ppf, uint64_t *out);

/*
 `x / sqrt(mean(x^2) + epsilon) * weight` of each row.
 */
int cactus_graph_rms_norm(void *graph, uint64_t x, uint64_t weight, float epsilon, uint64_t *out);

/*
 Layer norm of each row; `bias` counts where `has_bias`.
 */
int cactus_graph_layernorm(void *graph,
                           uint64_t x,
                           uint64_t weight,
                           uint64_t bias,
                           float epsilon,
                           bool has_bias,
                           uint64_t *out);

/*
 Group norm of `[batch, channels, …]`.
 */
int cactus_graph_groupnorm(void *graph,
                           uint64_t x,
                           uint64_t weight,
                           uint64_t bias,
                           size_t groups,
                           float epsilon,
                           uint64_t *out);

/*
 Batch norm by running mean and variance, channels at `axis`.
 */
int cactus_graph_batchnorm(void *graph,
                           uint64_t x,
                           uint64_t weight,
                           uint64_t bias,
                           uint64_t mean,
                           uint64_t variance,
                           int axis,
                           float epsilon,
                           uint64_t *out);

/*
 Adds an input of a shape of 1 to 8 axes.
 */
int cactus_graph_input(void *graph, const size_t *shape, size_t rank, int precision, uint64_t *out);

/*
 Sets an input to a copy of its elements, row-major, in any precision but that of codebooks.
 */
int cactus_graph_set_input(void *graph, uint64_t node, const void *data, int precision);

/*
 Makes an input read memory of the caller whenever the graph is executed. It has to stay until the input is set anew or the
 graph is destroyed or reset.
 */
int cactus_graph_set_external_input(void *graph,
                                    uint64_t node,
                                    void *data,
                                    int precision);

/*
 Makes the value of an input part of the graph: it is saved with it, and prepared once.
 */
int cactus_graph_mark_embedded_input(void *graph, uint64_t node);

/*
 Says which axes of an input may change: as many bytes as it has axes, not 0 for those.
 */
int cactus_graph_set_input_dynamic_dims(void *graph, uint64_t node, const uint8_t *dynamic, size_t rank);

/*
 Gives an input another shape, and all nodes those that follow from it. Where one does not fit, nothing changes. The input has
 to be set again.
 */
int cactus_graph_set_runtime_input_shape(void *graph,
                                         uint64_t node,
                                         const size_t *shape,
                                         size_t rank);

/*
 Computes every node that no other node reads, and those that are retained. Caches move on if it succeeds.
 */
int cactus_graph_execute(void *graph);

/*
 Writes where the elements of a node lie, row-major in its precision. They stay until the graph is executed, changed or
 destroyed.
 */
int cactus_graph_get_output_ptr(void *graph, uint64_t node, void **data);

/*
 `x + value`.
 */
int cactus_graph_scalar_add(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `x - value`.
 */
int cactus_graph_scalar_subtract(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `x * value`.
 */
int cactus_graph_scalar_multiply(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `x / value`.
 */
int cactus_graph_scalar_divide(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `floor(x / value)`.
 */
int cactus_graph_scalar_floor_divide(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x != value`, else 0.
 */
int cactus_graph_scalar_not_equal(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x == value`, else 0.
 */
int cactus_graph_scalar_equal(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x < value`, else 0.
 */
int cactus_graph_scalar_less(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x <= value`, else 0.
 */
int cactus_graph_scalar_less_equal(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x > value`, else 0.
 */
int cactus_graph_scalar_greater(void *graph, uint64_t x, float value, uint64_t *out);

/*
 1 where `x >= value`, else 0.
 */
int cactus_graph_scalar_greater_equal(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `x` to the power `value`.
 */
int cactus_graph_pow(void *graph, uint64_t x, float value, uint64_t *out);

/*
 `e^x`.
 */
int cactus_graph_scalar_exp(void *graph, uint64_t x, uint64_t *out);

/*
 Square root.
 */
int cactus_graph_scalar_sqrt(void *graph, uint64_t x, uint64_t *out);

/*
 Cosine, radians.
 */
int cactus_graph_scalar_cos(void *graph, uint64_t x, uint64_t *out);

/*
 Sine, radians.
 */
int cactus_graph_scalar_sin(void *graph, uint64_t x, uint64_t *out);

/*
 Natural logarithm.
 */
int cactus_graph_scalar_log(void *graph, uint64_t x, uint64_t *out);

/*
 Absolute value.
 */
int cactus_graph_abs(void *graph, uint64_t x, uint64_t *out);

/*
 `max(x, 0)`.
 */
int cactus_graph_relu(void *graph, uint64_t x, uint64_t *out);

/*
 `x * sigmoid(x)`.
 */
int cactus_graph_silu(void *graph, uint64_t x, uint64_t *out);

/*
 GELU by the tanh approximation.
 */
int cactus_graph_gelu(void *graph, uint64_t x, uint64_t *out);

/*
 Exact GELU.
 */
int cactus_graph_gelu_erf(void *graph, uint64_t x, uint64_t *out);

/*
 `1 / (1 + e^-x)`.
 */
int cactus_graph_sigmoid(void *graph, uint64_t x, uint64_t *out);

/*
 Hyperbolic tangent.
 */
int cactus_graph_tanh(void *graph, uint64_t x, uint64_t *out);

/*
 1 where `x` is 0, else 0.
 */
int cactus_graph_logical_not(void *graph, uint64_t x, uint64_t *out);

/*
 All bits of the whole numbers turned.
 */
int cactus_graph_bitwise_not(void *graph, uint64_t x, uint64_t *out);

/*
 The same elements under another shape.
 */
int cactus_graph_view(void *graph, uint64_t x, const size_t *shape, size_t rank, uint64_t *out);

/*
 The same elements under another shape.
 */
int cactus_graph_reshape(void *graph, uint64_t x, const size_t *shape, size_t rank, uint64_t *out);

/*
 `x` broadcast to a shape.
 */
int cactus_graph_expand(void *graph, uint64_t x, const size_t *shape, size_t rank, uint64_t *out);

/*
 Axis `i` of the result is axis `permutation[i]` of `x`.
 */
int cactus_graph_transpose_n(void *graph, uint64_t x, const size_t *permutation, size_t rank, uint64_t *out);

/*
 The last two axes in the other order.
 */
int cactus_graph_transpose(void *graph, uint64_t x, uint64_t *out);

/*
 Axes from `start` to `end`, both included, as one; negative ones count from behind.
 */
int cactus_graph_flatten(void *graph, uint64_t x, int start, int end, uint64_t *out);

/*
 `length` elements of an axis, from `start` on.
 */
int cactus_graph_slice(void *graph, uint64_t x, int axis, size_t start, size_t length, uint64_t *out);

/*
 `length` elements of an axis, from `start` on, each `step`th.
 */
int cactus_graph_strided_slice(void *graph,
                               uint64_t x,
                               int axis,
                               size_t start,
                               size_t length,
                               size_t step,
                               uint64_t *out);

/*
 Element `index` of an axis, which goes.
 */
int cactus_graph_index(void *graph, uint64_t x, size_t index, int axis, uint64_t *out);

/*
 Windows of `size` elements of an axis, `step` apart, as a last axis.
 */
int cactus_graph_unfold(void *graph, uint64_t x, int axis, size_t size, size_t step, uint64_t *out);

/*
 `value` before and behind the last axes: `count` sizes in pairs, the last axis first.
 */
int cactus_graph_pad(void *graph, uint64_t x, const size_t *pads, size_t count, float value, uint64_t *out);

/*
 `a` and `b` joined at an axis.
 */
int cactus_graph_concat(void *graph, uint64_t a, uint64_t b, int axis, uint64_t *out);

/*
 `count` nodes joined at an axis.
 */
int cactus_graph_cat(void *graph, const uint64_t *nodes, size_t count, int axis, uint64_t *out);

/*
 Rows of `x` by number: `(x [n, …], indices […]) -> [indices…, …]`.
 */
int cactus_graph_gather(void *graph, uint64_t x, uint64_t indices, uint64_t *out);

/*
 Elements of an axis of `x` by number: as `cactus_graph_gather` for axis 0, and where `indices` has fewer or more axes
 than `x`; otherwise as `torch.gather`.
 */
int cactus_graph_gather_dim(void *graph, uint64_t x, uint64_t indices, int axis, uint64_t *out);

/*
 Rows of a table by number: `(table [rows, n], indices […]) -> [indices…, n]`.
 */
int cactus_graph_embedding_from_tensor(void *graph, uint64_t table, uint64_t indices, uint64_t *out);

/*
 The `k` largest of each row: `[rows, n] -> [2, rows, k]`, FP32: their places, then themselves, the largest first.
 */
int cactus_graph_topk(void *graph, uint64_t x, size_t k, uint64_t *out);

/*
 `(indices [rows, k], values [rows, k]) -> [classes, rows]`, zeros elsewhere, FP32.
 */
int cactus_graph_scatter_topk(void *graph, uint64_t indices, uint64_t values, size_t classes, uint64_t *out);

/*
 `(x [n, c, l], weight [2 bins, c, k]) -> [n, 2 bins, (l - k) / stride + 1]`: real parts, then imaginary ones.
 */
int cactus_graph_stft(void *graph, uint64_t x, uint64_t weight, size_t stride, size_t bins, uint64_t *out);

/*
 `[…, n] -> […, n/2 + 1, 2]`: real and imaginary parts; up to 8192 points.
 */
int cactus_graph_rfft(void *graph, uint64_t x, uint64_t *out);

/*
 `[…, n/2 + 1, 2] -> […, n]`, the inverse of `cactus_graph_rfft`.
 */
int cactus_graph_irfft(void *graph, uint64_t x, size_t length, uint64_t *out);

/*
 Triangles `[bins, filters]`, FP32. Norm: 0 peaks of 1, 1 equal areas; scale: 0 HTK, 1 Kaldi, 2 Slaney.
 */
int cactus_graph_mel_filter_bank(void *graph,
                                 size_t bins,
                                 size_t filters,
                                 float low,
                                 float high,
                                 size_t rate,
                                 int norm,
                                 int scale,
                                 uint64_t *out);

/*
 `(wave [n], filters [fft/2 + 1, m]) -> [m, frames]`, FP32, as `transformers.audio_utils.spectrogram` with a Hann
 window. Padding: 0 mirrored, 1 zeros; logarithm: 0 none, 1 natural, 2 decimal. Dither is not in this build.
 */
int cactus_graph_spectrogram(void *graph,
                             uint64_t wave,
                             uint64_t filters,
                             size_t frame_length,
                             size_t hop_length,
                             size_t fft_length,
                             float power,
                             bool center,
                             int pad_mode,
                             float mel_floor,
                             int log_mode,
                             float dither,
                             float preemphasis,
                             bool remove_dc,
                             uint64_t *out);

/*
 A picture `[height, width, channels]` (INT8 is read as bytes) resized by bilinear interpolation, rescaled, normalized
 by channel, and cut: `[patches, patch_size^2 * channels]`, FP32.
 */
int cactus_graph_image_preprocess(void *graph,
                                  uint64_t pixels,
                                  int source_width,
                                  int source_height,
                                  int target_width,
                                  int target_height,
                                  int patch_size,
                                  int channels,
                                  float rescale,
                                  const float *mean,
                                  const float *deviation,
                                  uint64_t *out);

/*
 A square of embeddings `[n * n, d]` as `[height * width, d]`, the corners staying.
 */
int cactus_graph_bilinear_interpolation(void *graph, uint64_t x, size_t height, size_t width, uint64_t *out);

/*
 A cache of keys or of values, empty at first: up to `capacity` positions `[heads, head_dim]`, of which `window` are
 kept (0 for all), the first `sink` always. One slot.
 */
int cactus_graph_kv_cache_state(void *graph,
                                size_t capacity,
                                size_t heads,
                                size_t head_dim,
                                size_t window,
                                size_t sink,
                                size_t slots,
                                uint64_t *out);

/*
 Appends rows to a cache; gives how many positions it holds, `[1]`, FP32. 0 for what the cache says.
 */
int cactus_graph_kv_cache_append(void *graph, uint64_t rows, uint64_t cache, size_t window, size_t sink, uint64_t *out);

/*
 The last `window` rows `[channels]` that a convolution read, zeros at first.
 */
int cactus_graph_conv_cache_state(void *graph, size_t window, size_t channels, uint64_t *out);

/*
 Appends rows; gives the window behind them, `[window, channels]`.
 */
int cactus_graph_conv_cache_append(void *graph, uint64_t rows, uint64_t cache, uint64_t *out);

/*
 Makes the window the last of these rows, zeros before them where they are fewer; gives nothing, `[0]`.
 */
int cactus_graph_conv_cache_initialize(void *graph, uint64_t rows, uint64_t cache, uint64_t *out);

/*
 What the next execution finds in a cache; gives it.
 */
int cactus_graph_recurrent_cache_write(void *graph, uint64_t value, uint64_t cache, uint64_t *out);

/*
 The value of the first execution, until it is invalidated.
 */
int cactus_graph_persistent(void *graph, uint64_t x, uint64_t *out);

/*
 A tensor carried from execution to execution, zeros at first.
 */
int cactus_graph_recurrent_cache_state(void *graph, const size_t *shape, size_t rank, int precision, uint64_t *out);

/*
 Writes 1 where a persistent node holds a value, else 0.
 */
int cactus_graph_is_populated(void *graph, uint64_t node, int *populated);

/*
 Makes the next execution compute a persistent node anew.
 */
int cactus_graph_invalidate_persistent(void *graph, uint64_t node);

/*
 Maps a weight file, whose elements are the node.
 */
int cactus_graph_mmap_weights(void *graph, const char *path, uint64_t *out);

/*
 Maps a weight file that is a table of rows; otherwise as `cactus_graph_mmap_weights`.
 */
int cactus_graph_mmap_embeddings(void *graph, const char *path, uint64_t *out);

/*
 Rows of a weight file by number: a node of the file, and one that reads it.
 */
int cactus_graph_embedding_from_file(void *graph, const char *path, uint64_t indices, uint64_t *out);

/*
 Gives a node the elements of a weight file of its shape.
 */
int cactus_graph_bind_mmap_weights(void *graph, uint64_t node, const char *path);

/*
 Gives the whole numbers of an input `[n, k]` scales, half-precision floats `[n, groups]`, one for each `group_size` elements.
 */
int cactus_graph_set_grouped_scales(void *graph,
                                    uint64_t node,
                                    size_t group_size,
                                    size_t groups,
                                    const void *scales);

/*
 Says that the rows of an input lie in blocks of four, four elements of each in turn; `rows` is their number, or 0.
 */
int cactus_graph_set_interleaved(void *graph, uint64_t node, bool interleaved, size_t rows);

/*
 A hint about the memory of a weight file. Its pages come and go by themselves, so that only the node is checked.
 */
int cactus_graph_release_weight_pages(void *graph, uint64_t node);

/*
 As `cactus_graph_release_weight_pages`.
 */
int cactus_graph_prefetch_weight_pages(void *graph, uint64_t node);

/*
 As `cactus_graph_release_weight_pages`, for all weight files.
 */
int cactus_graph_release_all_weight_pages(void *graph);

/*
 Begins to write down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
 samples a second), which is copied: one of the two. It is a request as `cactus_request_start` begins one, and `cactus_request_cancel` stops
 it alone, also while it waits for another recording. Each event `TEXT` has the text of a segment, and in `json` its `start` and `end` in
 seconds. The result is that of `cactus_transcribe`; of one that was cancelled it has `response` and `segments` as far as they came.
 `options_json` (NULL, or an object) has the options of `cactus_transcribe`, and `prompt`. `*request` has to be closed in any case.
 */
int cactus_transcription_start(void *model,
                               const char *audio_file_path,
                               const uint8_t *pcm_buffer,
                               size_t pcm_buffer_size,
                               const char *options_json,
                               cactus_event_callback callback,
                               void *user_data,
                               struct cactus_request **request);

/*
 Gives a model a policy for its requests from now on: what the model should not answer may be handed to a target. `model` may be one that
 writes down what is said, too: then targets that do hear again what is doubtful of recordings (`cactus_transcribe`), and `target` may be
 the address of such a one. `policy_toml`
 is the text of a policy file (docs/reference/policy.md), or NULL. `options_json` is NULL or an object, which comes after the
 text: `target` (a name of the policy or of the table of targets, or an address with a model, as
 `http://127.0.0.1:8081/v1#name`), `key` (that target's key) and `keys` (an object of keys by names of targets), which come
 before what the policy says of keys, are sent to no other host, and are kept in memory alone until no request has the policy
 any more, `handoff` (`auto`, `never`, `always`), `budget` (the most that a session may cost, in dollars as text), `consent`
 (an array of what may leave without a question: `text`, `tool_result`, `image`, `audio`, `document`) and `state` (the folder
 of budget, record and keys; that of the command line where it is not given). With both NULL the model answers alone again.
 Requests under way stay as they are. What is wrong changes nothing. A library that was built without the cloud gives
 `CACTUS_CODE_NOT_IN_BUILD`.
 */
int cactus_model_set_policy(struct cactus_model *model,
                            const char *policy_toml,
                            const char *options_json);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CACTUS_H */
