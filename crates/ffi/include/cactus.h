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
   The bundle is missing, damaged, or of a version that is not read.
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
   The model cannot be found, downloaded or converted.
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
 Takes the progress of loading: what is being done (`resolve`, `download`, `convert`, `load`), how much of it is done and of
 how much, in bytes or in the stage's own parts; 0 of 0 where that is not known. A result other than 0 stops. It is called on
 the thread that loads, and must not throw.
 */
typedef int (*cactus_progress_callback)(const char *stage, uint64_t done, uint64_t total, void *user_data);

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
 Every code.
 */
#define cactus_code_ALL { cactus_code_Ok, cactus_code_Internal, cactus_code_BufferTooSmall, cactus_code_Argument, cactus_code_Handle, cactus_code_Bundle, cactus_code_Unsupported, cactus_code_Text, cactus_code_ContextFull, cactus_code_Numeric, cactus_code_Busy, cactus_code_Cancelled, cactus_code_InCallback, cactus_code_Fetch, cactus_code_System, cactus_code_NotInBuild, }

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
 Loads the bundle in the folder `path`. `options_json` (NULL, or an object) has `context_tokens`, `threads`, `decode_threads`,
 `pin`, `kv_dtype`, `chunk_tokens`, `sequences`, `queue` and `kv_tokens`. `progress` may be NULL.
 */
int cactus_model_load(const char *path,
                      const char *options_json,
                      cactus_progress_callback progress,
                      void *user_data,
                      struct cactus_model **model);

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
 Closes a request: cancels what is left of it, and waits until its callback has returned for the last time. From inside a
 callback it does not wait; no further call begins then.
 */
int cactus_request_close(struct cactus_request *request);

/*
 Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of a request,
 which hold for every request of the session where it does not say otherwise.
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
 Not in this build: bundles of language models give no embeddings. Returns -1.
 */
int cactus_embed(void *model,
                 const char *_text,
                 float *_embeddings_buffer,
                 size_t _buffer_size,
                 size_t *_embedding_dim,
                 bool _normalize);

/*
 Not in this build. Returns -1.
 */
int cactus_image_embed(void *model,
                       const char *_image_path,
                       float *_embeddings_buffer,
                       size_t _buffer_size,
                       size_t *_embedding_dim);

/*
 Not in this build. Returns -1.
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
 Not in this build. Returns -1.
 */
int cactus_transcribe(void *model,
                      const char *_audio_path,
                      const char *_prompt,
                      char *_response_buffer,
                      size_t _buffer_size,
                      const char *_options_json,
                      cactus_token_callback _callback,
                      void *_user_data,
                      const uint8_t *_pcm_buffer,
                      size_t _pcm_buffer_size);

/*
 Not in this build. Returns NULL.
 */
void *cactus_stream_transcribe_start(void *model, const char *_options_json);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_process(void *_stream,
                                     const uint8_t *_pcm_buffer,
                                     size_t _pcm_buffer_size,
                                     char *_response_buffer,
                                     size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_stop(void *_stream, char *_response_buffer, size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_rag_query(void *model, const char *_query, char *_response_buffer, size_t _buffer_size, size_t _top_k);

/*
 Not in this build. Returns NULL.
 */
void *cactus_index_init(const char *_index_dir, size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_add(void *_index,
                     const int *_ids,
                     const char *const *_documents,
                     const char *const *_metadatas,
                     const float *const *_embeddings,
                     size_t _count,
                     size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_delete(void *_index, const int *_ids, size_t _ids_count);

/*
 Not in this build. Returns -1.
 */
int cactus_index_get(void *_index,
                     const int *_ids,
                     size_t _ids_count,
                     char **_document_buffers,
                     size_t *_document_buffer_sizes,
                     char **_metadata_buffers,
                     size_t *_metadata_buffer_sizes,
                     float **_embedding_buffers,
                     size_t *_embedding_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_query(void *_index,
                       const float *const *_embeddings,
                       size_t _embeddings_count,
                       size_t _embedding_dim,
                       const char *_options_json,
                       int **_id_buffers,
                       size_t *_id_buffer_sizes,
                       float **_score_buffers,
                       size_t *_score_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_compact(void *_index);

/*
 Does nothing: there is no index to close in this build.
 */
void cactus_index_destroy(void *_index);

/*
 Answers a conversation. The result, a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative
 number where it failed, with the reason in the buffer, too. `options_json`, `tools_json`, `callback` and `pcm_buffer` may be
 NULL; sound is not in this build. Any number of threads may ask one model at once: their answers are computed together.
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
 Not in this build: bundles of language models give no embeddings. Returns -1.
 */
int cactus_embed(void *model,
                 const char *_text,
                 float *_embeddings_buffer,
                 size_t _buffer_size,
                 size_t *_embedding_dim,
                 bool _normalize);

/*
 Not in this build. Returns -1.
 */
int cactus_image_embed(void *model,
                       const char *_image_path,
                       float *_embeddings_buffer,
                       size_t _buffer_size,
                       size_t *_embedding_dim);

/*
 Not in this build. Returns -1.
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
 Not in this build. Returns -1.
 */
int cactus_transcribe(void *model,
                      const char *_audio_path,
                      const char *_prompt,
                      char *_response_buffer,
                      size_t _buffer_size,
                      const char *_options_json,
                      cactus_token_callback _callback,
                      void *_user_data,
                      const uint8_t *_pcm_buffer,
                      size_t _pcm_buffer_size);

/*
 Not in this build. Returns NULL.
 */
void *cactus_stream_transcribe_start(void *model, const char *_options_json);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_process(void *_stream,
                                     const uint8_t *_pcm_buffer,
                                     size_t _pcm_buffer_size,
                                     char *_response_buffer,
                                     size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_stop(void *_stream, char *_response_buffer, size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_rag_query(void *model, const char *_query, char *_response_buffer, size_t _buffer_size, size_t _top_k);

/*
 Not in this build. Returns NULL.
 */
void *cactus_index_init(const char *_index_dir, size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_add(void *_index,
                     const int *_ids,
                     const char *const *_documents,
                     const char *const *_metadatas,
                     const float *const *_embeddings,
                     size_t _count,
                     size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_delete(void *_index, const int *_ids, size_t _ids_count);

/*
 Not in this build. Returns -1.
 */
int cactus_index_get(void *_index,
                     const int *_ids,
                     size_t _ids_count,
                     char **_document_buffers,
                     size_t *_document_buffer_sizes,
                     char **_metadata_buffers,
                     size_t *_metadata_buffer_sizes,
                     float **_embedding_buffers,
                     size_t *_embedding_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_query(void *_index,
                       const float *const *_embeddings,
                       size_t _embeddings_count,
                       size_t _embedding_dim,
                       const char *_options_json,
                       int **_id_buffers,
                       size_t *_id_buffer_sizes,
                       float **_score_buffers,
                       size_t *_score_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_compact(void *_index);

/*
 Does nothing: there is no index to close in this build.
 */
void cactus_index_destroy(void *_index);

/*
 Answers a conversation. The result, a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative
 number where it failed, with the reason in the buffer, too. `options_json`, `tools_json`, `callback` and `pcm_buffer` may be
 NULL; sound is not in this build. Any number of threads may ask one model at once: their answers are computed together.
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
 Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` has to be NULL or empty: this build has no
 retrieval. The handle is a `cactus_model *` of our own functions, too.
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
 Token ids of a text, without tokens that the model puts around texts. 0; -1 where it fails; -2 where `buffer_size` ids are too
 few. In the last case, and with a NULL buffer of no ids, `out_token_len` gets how many there are.
 */
int cactus_tokenize(void *model,
                    const char *text,
                    uint32_t *token_buffer,
                    size_t token_buffer_len,
                    size_t *out_token_len);

/*
 The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small.
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
 sum of natural logarithms) and `tokens` (how many were scored). Returns its bytes, or a negative number.
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
 Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` has to be NULL or empty: this build has no
 retrieval. The handle is a `cactus_model *` of our own functions, too.
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
 Token ids of a text, without tokens that the model puts around texts. 0; -1 where it fails; -2 where `buffer_size` ids are too
 few. In the last case, and with a NULL buffer of no ids, `out_token_len` gets how many there are.
 */
int cactus_tokenize(void *model,
                    const char *text,
                    uint32_t *token_buffer,
                    size_t token_buffer_len,
                    size_t *out_token_len);

/*
 The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small.
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
 sum of natural logarithms) and `tokens` (how many were scored). Returns its bytes, or a negative number.
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
 Not in this build: bundles of language models give no embeddings. Returns -1.
 */
int cactus_embed(void *model,
                 const char *_text,
                 float *_embeddings_buffer,
                 size_t _buffer_size,
                 size_t *_embedding_dim,
                 bool _normalize);

/*
 Not in this build. Returns -1.
 */
int cactus_image_embed(void *model,
                       const char *_image_path,
                       float *_embeddings_buffer,
                       size_t _buffer_size,
                       size_t *_embedding_dim);

/*
 Not in this build. Returns -1.
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
 Not in this build. Returns -1.
 */
int cactus_transcribe(void *model,
                      const char *_audio_path,
                      const char *_prompt,
                      char *_response_buffer,
                      size_t _buffer_size,
                      const char *_options_json,
                      cactus_token_callback _callback,
                      void *_user_data,
                      const uint8_t *_pcm_buffer,
                      size_t _pcm_buffer_size);

/*
 Not in this build. Returns NULL.
 */
void *cactus_stream_transcribe_start(void *model, const char *_options_json);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_process(void *_stream,
                                     const uint8_t *_pcm_buffer,
                                     size_t _pcm_buffer_size,
                                     char *_response_buffer,
                                     size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_stream_transcribe_stop(void *_stream, char *_response_buffer, size_t _buffer_size);

/*
 Not in this build. Returns -1.
 */
int cactus_rag_query(void *model, const char *_query, char *_response_buffer, size_t _buffer_size, size_t _top_k);

/*
 Not in this build. Returns NULL.
 */
void *cactus_index_init(const char *_index_dir, size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_add(void *_index,
                     const int *_ids,
                     const char *const *_documents,
                     const char *const *_metadatas,
                     const float *const *_embeddings,
                     size_t _count,
                     size_t _embedding_dim);

/*
 Not in this build. Returns -1.
 */
int cactus_index_delete(void *_index, const int *_ids, size_t _ids_count);

/*
 Not in this build. Returns -1.
 */
int cactus_index_get(void *_index,
                     const int *_ids,
                     size_t _ids_count,
                     char **_document_buffers,
                     size_t *_document_buffer_sizes,
                     char **_metadata_buffers,
                     size_t *_metadata_buffer_sizes,
                     float **_embedding_buffers,
                     size_t *_embedding_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_query(void *_index,
                       const float *const *_embeddings,
                       size_t _embeddings_count,
                       size_t _embedding_dim,
                       const char *_options_json,
                       int **_id_buffers,
                       size_t *_id_buffer_sizes,
                       float **_score_buffers,
                       size_t *_score_buffer_sizes);

/*
 Not in this build. Returns -1.
 */
int cactus_index_compact(void *_index);

/*
 Does nothing: there is no index to close in this build.
 */
void cactus_index_destroy(void *_index);

/*
 Answers a conversation. The result, a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative
 number where it failed, with the reason in the buffer, too. `options_json`, `tools_json`, `callback` and `pcm_buffer` may be
 NULL; sound is not in this build. Any number of threads may ask one model at once: their answers are computed together.
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
 Loads the bundle in the folder `model_path`. NULL where that fails. `corpus_dir` has to be NULL or empty: this build has no
 retrieval. The handle is a `cactus_model *` of our own functions, too.
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
 Token ids of a text, without tokens that the model puts around texts. 0; -1 where it fails; -2 where `buffer_size` ids are too
 few. In the last case, and with a NULL buffer of no ids, `out_token_len` gets how many there are.
 */
int cactus_tokenize(void *model,
                    const char *text,
                    uint32_t *token_buffer,
                    size_t token_buffer_len,
                    size_t *out_token_len);

/*
 The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small.
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
 sum of natural logarithms) and `tokens` (how many were scored). Returns its bytes, or a negative number.
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
 Loads the bundle in the folder `path`. `options_json` (NULL, or an object) has `context_tokens`, `threads`, `decode_threads`,
 `pin`, `kv_dtype`, `chunk_tokens`, `sequences`, `queue` and `kv_tokens`. `progress` may be NULL.
 */
int cactus_model_load(const char *path,
                      const char *options_json,
                      cactus_progress_callback progress,
                      void *user_data,
                      struct cactus_model **model);

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
 Closes a request: cancels what is left of it, and waits until its callback has returned for the last time. From inside a
 callback it does not wait; no further call begins then.
 */
int cactus_request_close(struct cactus_request *request);

/*
 Opens a conversation. `defaults_json` (NULL, or an object) has `messages` to begin with, and any other fields of a request,
 which hold for every request of the session where it does not say otherwise.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CACTUS_H */
