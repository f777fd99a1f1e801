/* Made of crates/ffi/abi.json by `cargo xtask sdks`; do not edit. */

#include "cactus.h"
#include <jni.h>

/* The functions of the library, once it is opened. */
static struct {
    __typeof__(&cactus_version) cactus_version;
    __typeof__(&cactus_abi_version) cactus_abi_version;
    __typeof__(&cactus_last_error) cactus_last_error;
    __typeof__(&cactus_clear_error) cactus_clear_error;
    __typeof__(&cactus_string_free) cactus_string_free;
    __typeof__(&cactus_error_kind) cactus_error_kind;
    __typeof__(&cactus_model_load) cactus_model_load;
    __typeof__(&cactus_model_prepare) cactus_model_prepare;
    __typeof__(&cactus_model_close) cactus_model_close;
    __typeof__(&cactus_model_info) cactus_model_info;
    __typeof__(&cactus_model_tokenize) cactus_model_tokenize;
    __typeof__(&cactus_tokens_free) cactus_tokens_free;
    __typeof__(&cactus_model_detokenize) cactus_model_detokenize;
    __typeof__(&cactus_model_score) cactus_model_score;
    __typeof__(&cactus_model_set_threads) cactus_model_set_threads;
    __typeof__(&cactus_memory_pressure) cactus_memory_pressure;
    __typeof__(&cactus_check_bundle) cactus_check_bundle;
    __typeof__(&cactus_request_start) cactus_request_start;
    __typeof__(&cactus_request_next) cactus_request_next;
    __typeof__(&cactus_request_wait) cactus_request_wait;
    __typeof__(&cactus_request_cancel) cactus_request_cancel;
    __typeof__(&cactus_request_consent) cactus_request_consent;
    __typeof__(&cactus_request_close) cactus_request_close;
    __typeof__(&cactus_session_open) cactus_session_open;
    __typeof__(&cactus_session_send) cactus_session_send;
    __typeof__(&cactus_session_messages) cactus_session_messages;
    __typeof__(&cactus_session_close) cactus_session_close;
    __typeof__(&cactus_embed) cactus_embed;
    __typeof__(&cactus_image_embed) cactus_image_embed;
    __typeof__(&cactus_transcribe) cactus_transcribe;
    __typeof__(&cactus_detect_language) cactus_detect_language;
    __typeof__(&cactus_vad) cactus_vad;
    __typeof__(&cactus_index_init) cactus_index_init;
    __typeof__(&cactus_index_add) cactus_index_add;
    __typeof__(&cactus_index_delete) cactus_index_delete;
    __typeof__(&cactus_index_get) cactus_index_get;
    __typeof__(&cactus_index_query) cactus_index_query;
    __typeof__(&cactus_index_compact) cactus_index_compact;
    __typeof__(&cactus_index_destroy) cactus_index_destroy;
    __typeof__(&cactus_stream_transcribe_start) cactus_stream_transcribe_start;
    __typeof__(&cactus_stream_transcribe_process) cactus_stream_transcribe_process;
    __typeof__(&cactus_stream_transcribe_stop) cactus_stream_transcribe_stop;
    __typeof__(&cactus_init) cactus_init;
    __typeof__(&cactus_destroy) cactus_destroy;
    __typeof__(&cactus_stop) cactus_stop;
    __typeof__(&cactus_log_set_level) cactus_log_set_level;
    __typeof__(&cactus_log_set_callback) cactus_log_set_callback;
    __typeof__(&cactus_rag_query) cactus_rag_query;
    __typeof__(&cactus_render_prompt) cactus_render_prompt;
    __typeof__(&cactus_transcription_start) cactus_transcription_start;
    __typeof__(&cactus_model_set_policy) cactus_model_set_policy;
} lib;

#include "support.h"

static jmethodID method_cactus_progress_callback;
static jmethodID method_cactus_token_callback;
static jmethodID method_cactus_log_callback_t;

static int call_cactus_progress_callback(const char *stage, const char *what, uint64_t done, uint64_t total, void *user_data) {
    closure *self = user_data;
    JNIEnv *env = environment();
    if (env == NULL || self->thrown != NULL) return 1;
    jint result = 1;
    jbyteArray j_stage = bytes_of(env, stage);
    jbyteArray j_what = bytes_of(env, what);
    if (!(*env)->ExceptionCheck(env)) result = (*env)->CallIntMethod(env, self->object, method_cactus_progress_callback, j_stage, j_what, (jlong)done, (jlong)total);
    if (caught(env, self)) result = 1;
    drop(env, j_stage);
    drop(env, j_what);
    return result;
}

static void call_cactus_token_callback(const char *token, uint32_t token_id, void *user_data) {
    closure *self = user_data;
    JNIEnv *env = environment();
    if (env == NULL || self->thrown != NULL) return;
    jbyteArray j_token = bytes_of(env, token);
    if (!(*env)->ExceptionCheck(env)) (*env)->CallVoidMethod(env, self->object, method_cactus_token_callback, j_token, (jint)token_id);
    caught(env, self);
    drop(env, j_token);
}

static void call_cactus_log_callback_t(int level, const char *component, const char *message, void *user_data) {
    closure *self = user_data;
    JNIEnv *env = environment();
    if (env == NULL || self->thrown != NULL) return;
    jbyteArray j_component = bytes_of(env, component);
    jbyteArray j_message = bytes_of(env, message);
    if (!(*env)->ExceptionCheck(env)) (*env)->CallVoidMethod(env, self->object, method_cactus_log_callback_t, (jint)level, j_component, j_message);
    caught(env, self);
    drop(env, j_component);
    drop(env, j_message);
}

static jbyteArray JNICALL jni_cactus_version(JNIEnv *env, jclass raw) {
    (void)raw;
    (void)env;
    jbyteArray result = NULL;
    result = bytes_of(env, lib.cactus_version());
    return result;
}

static jint JNICALL jni_cactus_abi_version(JNIEnv *env, jclass raw) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_abi_version();
    return result;
}

static jint JNICALL jni_cactus_last_error(JNIEnv *env, jclass raw, jintArray error_numbers, jobjectArray error_texts) {
    (void)raw;
    (void)env;
    jint result = -1;
    struct cactus_error c_error = {0};
    result = (jint)lib.cactus_last_error(&c_error);
    number_at(env, error_numbers, 0, c_error.code);
    string_at(env, error_texts, 0, c_error.kind);
    string_at(env, error_texts, 1, c_error.message);
    return result;
}

static void JNICALL jni_cactus_clear_error(JNIEnv *env, jclass raw) {
    (void)raw;
    (void)env;
    lib.cactus_clear_error();
}

static jbyteArray JNICALL jni_cactus_error_kind(JNIEnv *env, jclass raw, jint code) {
    (void)raw;
    (void)env;
    jbyteArray result = NULL;
    result = bytes_of(env, lib.cactus_error_kind((int32_t)code));
    return result;
}

static jint JNICALL jni_cactus_model_load(JNIEnv *env, jclass raw, jbyteArray name, jbyteArray options_json, jobject progress, jlongArray model) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_name = NULL;
    char *c_options_json = NULL;
    closure c_progress = {0};
    struct cactus_model *c_model = NULL;
    if (text_in(env, name, &c_name) &&
        text_in(env, options_json, &c_options_json) &&
        closure_begin(env, progress, &c_progress)) {
        result = (jint)lib.cactus_model_load(c_name, c_options_json, progress == NULL ? NULL : call_cactus_progress_callback, &c_progress, &c_model);
        handle_out(env, model, c_model);
    }
    free(c_name);
    free(c_options_json);
    closure_end(env, &c_progress);
    return result;
}

static jint JNICALL jni_cactus_model_prepare(JNIEnv *env, jclass raw, jbyteArray name, jbyteArray options_json, jobject progress, jobjectArray path) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_name = NULL;
    char *c_options_json = NULL;
    closure c_progress = {0};
    char *c_path = NULL;
    if (text_in(env, name, &c_name) &&
        text_in(env, options_json, &c_options_json) &&
        closure_begin(env, progress, &c_progress)) {
        result = (jint)lib.cactus_model_prepare(c_name, c_options_json, progress == NULL ? NULL : call_cactus_progress_callback, &c_progress, path == NULL ? NULL : &c_path);
        owned_out(env, path, c_path);
    }
    free(c_name);
    free(c_options_json);
    closure_end(env, &c_progress);
    return result;
}

static jint JNICALL jni_cactus_model_close(JNIEnv *env, jclass raw, jlong model) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_model_close((struct cactus_model *)(intptr_t)model);
    return result;
}

static jint JNICALL jni_cactus_model_info(JNIEnv *env, jclass raw, jlong model, jobjectArray info_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_info_json = NULL;
    result = (jint)lib.cactus_model_info((struct cactus_model *)(intptr_t)model, info_json == NULL ? NULL : &c_info_json);
    owned_out(env, info_json, c_info_json);
    return result;
}

static jint JNICALL jni_cactus_model_tokenize(JNIEnv *env, jclass raw, jlong model, jbyteArray text, jboolean special, jobjectArray tokens) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_text = NULL;
    uint32_t *c_tokens = NULL;
    size_t c_tokens_count = 0;
    if (text_in(env, text, &c_text)) {
        result = (jint)lib.cactus_model_tokenize((struct cactus_model *)(intptr_t)model, c_text, special != JNI_FALSE, &c_tokens, &c_tokens_count);
        tokens_out(env, tokens, c_tokens, c_tokens_count);
    }
    free(c_text);
    return result;
}

static jint JNICALL jni_cactus_model_detokenize(JNIEnv *env, jclass raw, jlong model, jintArray tokens, jlong count, jboolean special, jobjectArray text) {
    (void)raw;
    (void)env;
    jint result = -1;
    jint *c_tokens = NULL;
    char *c_text = NULL;
    if (ints_in(env, tokens, (size_t)count, &c_tokens)) {
        result = (jint)lib.cactus_model_detokenize((struct cactus_model *)(intptr_t)model, (const uint32_t *)c_tokens, (size_t)count, special != JNI_FALSE, text == NULL ? NULL : &c_text);
        owned_out(env, text, c_text);
    }
    free(c_tokens);
    return result;
}

static jint JNICALL jni_cactus_model_score(JNIEnv *env, jclass raw, jlong model, jintArray tokens, jlong count, jlong first, jobjectArray score_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    jint *c_tokens = NULL;
    char *c_score_json = NULL;
    if (ints_in(env, tokens, (size_t)count, &c_tokens)) {
        result = (jint)lib.cactus_model_score((struct cactus_model *)(intptr_t)model, (const uint32_t *)c_tokens, (size_t)count, (size_t)first, score_json == NULL ? NULL : &c_score_json);
        owned_out(env, score_json, c_score_json);
    }
    free(c_tokens);
    return result;
}

static jint JNICALL jni_cactus_model_set_threads(JNIEnv *env, jclass raw, jlong model, jlong threads, jlong decode_threads) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_model_set_threads((struct cactus_model *)(intptr_t)model, (size_t)threads, (size_t)decode_threads);
    return result;
}

static void JNICALL jni_cactus_memory_pressure(JNIEnv *env, jclass raw) {
    (void)raw;
    (void)env;
    lib.cactus_memory_pressure();
}

static jint JNICALL jni_cactus_check_bundle(JNIEnv *env, jclass raw, jbyteArray path, jboolean verify, jobjectArray report_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_path = NULL;
    char *c_report_json = NULL;
    if (text_in(env, path, &c_path)) {
        result = (jint)lib.cactus_check_bundle(c_path, verify != JNI_FALSE, report_json == NULL ? NULL : &c_report_json);
        owned_out(env, report_json, c_report_json);
    }
    free(c_path);
    return result;
}

static jint JNICALL jni_cactus_request_start(JNIEnv *env, jclass raw, jlong model, jbyteArray request_json, jlongArray request) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_request_json = NULL;
    struct cactus_request *c_request = NULL;
    if (text_in(env, request_json, &c_request_json)) {
        result = (jint)lib.cactus_request_start((struct cactus_model *)(intptr_t)model, c_request_json, NULL, NULL, &c_request);
        handle_out(env, request, c_request);
    }
    free(c_request_json);
    return result;
}

static jint JNICALL jni_cactus_request_next(JNIEnv *env, jclass raw, jlong request, jlong timeout_ms, jobjectArray event_json, jbooleanArray over) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_event_json = NULL;
    bool c_over = false;
    result = (jint)lib.cactus_request_next((struct cactus_request *)(intptr_t)request, (int64_t)timeout_ms, event_json == NULL ? NULL : &c_event_json, over == NULL ? NULL : &c_over);
    owned_out(env, event_json, c_event_json);
    flag_out(env, over, c_over);
    return result;
}

static jint JNICALL jni_cactus_request_wait(JNIEnv *env, jclass raw, jlong request, jobjectArray result_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_result_json = NULL;
    result = (jint)lib.cactus_request_wait((struct cactus_request *)(intptr_t)request, result_json == NULL ? NULL : &c_result_json);
    owned_out(env, result_json, c_result_json);
    return result;
}

static jint JNICALL jni_cactus_request_cancel(JNIEnv *env, jclass raw, jlong request) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_request_cancel((struct cactus_request *)(intptr_t)request);
    return result;
}

static jint JNICALL jni_cactus_request_consent(JNIEnv *env, jclass raw, jlong request, jboolean yes) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_request_consent((struct cactus_request *)(intptr_t)request, yes != JNI_FALSE);
    return result;
}

static jint JNICALL jni_cactus_request_close(JNIEnv *env, jclass raw, jlong request) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_request_close((struct cactus_request *)(intptr_t)request);
    return result;
}

static jint JNICALL jni_cactus_session_open(JNIEnv *env, jclass raw, jlong model, jbyteArray defaults_json, jlongArray session) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_defaults_json = NULL;
    struct cactus_session *c_session = NULL;
    if (text_in(env, defaults_json, &c_defaults_json)) {
        result = (jint)lib.cactus_session_open((struct cactus_model *)(intptr_t)model, c_defaults_json, &c_session);
        handle_out(env, session, c_session);
    }
    free(c_defaults_json);
    return result;
}

static jint JNICALL jni_cactus_session_send(JNIEnv *env, jclass raw, jlong session, jbyteArray request_json, jlongArray request) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_request_json = NULL;
    struct cactus_request *c_request = NULL;
    if (text_in(env, request_json, &c_request_json)) {
        result = (jint)lib.cactus_session_send((struct cactus_session *)(intptr_t)session, c_request_json, NULL, NULL, &c_request);
        handle_out(env, request, c_request);
    }
    free(c_request_json);
    return result;
}

static jint JNICALL jni_cactus_session_messages(JNIEnv *env, jclass raw, jlong session, jobjectArray messages_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_messages_json = NULL;
    result = (jint)lib.cactus_session_messages((struct cactus_session *)(intptr_t)session, messages_json == NULL ? NULL : &c_messages_json);
    owned_out(env, messages_json, c_messages_json);
    return result;
}

static jint JNICALL jni_cactus_session_close(JNIEnv *env, jclass raw, jlong session) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_session_close((struct cactus_session *)(intptr_t)session);
    return result;
}

static jint JNICALL jni_cactus_embed(JNIEnv *env, jclass raw, jlong model, jbyteArray text, jobject embeddings_buffer, jlong buffer_size, jlongArray embedding_dim, jboolean normalize) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_text = NULL;
    void *c_embeddings_buffer = NULL;
    size_t *c_embedding_dim = NULL;
    if (text_in(env, text, &c_text) &&
        room_in(env, embeddings_buffer, (size_t)buffer_size, &c_embeddings_buffer) &&
        sizes_in(env, embedding_dim, &c_embedding_dim)) {
        result = (jint)lib.cactus_embed((void *)(intptr_t)model, c_text, (float *)c_embeddings_buffer, (size_t)buffer_size, c_embedding_dim, normalize != JNI_FALSE);
        sizes_out(env, embedding_dim, c_embedding_dim);
    }
    free(c_text);
    free(c_embedding_dim);
    return result;
}

static jint JNICALL jni_cactus_image_embed(JNIEnv *env, jclass raw, jlong model, jbyteArray image_path, jobject embeddings_buffer, jlong buffer_size, jlongArray embedding_dim) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_image_path = NULL;
    void *c_embeddings_buffer = NULL;
    size_t *c_embedding_dim = NULL;
    if (text_in(env, image_path, &c_image_path) &&
        room_in(env, embeddings_buffer, (size_t)buffer_size, &c_embeddings_buffer) &&
        sizes_in(env, embedding_dim, &c_embedding_dim)) {
        result = (jint)lib.cactus_image_embed((void *)(intptr_t)model, c_image_path, (float *)c_embeddings_buffer, (size_t)buffer_size, c_embedding_dim);
        sizes_out(env, embedding_dim, c_embedding_dim);
    }
    free(c_image_path);
    free(c_embedding_dim);
    return result;
}

static jint JNICALL jni_cactus_transcribe(JNIEnv *env, jclass raw, jlong model, jbyteArray audio_file_path, jbyteArray prompt, jobject response_buffer, jlong buffer_size, jbyteArray options_json, jobject callback, jobject pcm_buffer, jlong pcm_buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_audio_file_path = NULL;
    char *c_prompt = NULL;
    void *c_response_buffer = NULL;
    char *c_options_json = NULL;
    closure c_callback = {0};
    void *c_pcm_buffer = NULL;
    if (text_in(env, audio_file_path, &c_audio_file_path) &&
        text_in(env, prompt, &c_prompt) &&
        room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer) &&
        text_in(env, options_json, &c_options_json) &&
        closure_begin(env, callback, &c_callback) &&
        room_in(env, pcm_buffer, (size_t)pcm_buffer_size, &c_pcm_buffer)) {
        result = (jint)lib.cactus_transcribe((void *)(intptr_t)model, c_audio_file_path, c_prompt, (char *)c_response_buffer, (size_t)buffer_size, c_options_json, callback == NULL ? NULL : call_cactus_token_callback, &c_callback, (const uint8_t *)c_pcm_buffer, (size_t)pcm_buffer_size);
    }
    free(c_audio_file_path);
    free(c_prompt);
    free(c_options_json);
    closure_end(env, &c_callback);
    return result;
}

static jint JNICALL jni_cactus_detect_language(JNIEnv *env, jclass raw, jlong model, jbyteArray audio_file_path, jobject response_buffer, jlong buffer_size, jbyteArray options_json, jobject pcm_buffer, jlong pcm_buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_audio_file_path = NULL;
    void *c_response_buffer = NULL;
    char *c_options_json = NULL;
    void *c_pcm_buffer = NULL;
    if (text_in(env, audio_file_path, &c_audio_file_path) &&
        room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer) &&
        text_in(env, options_json, &c_options_json) &&
        room_in(env, pcm_buffer, (size_t)pcm_buffer_size, &c_pcm_buffer)) {
        result = (jint)lib.cactus_detect_language((void *)(intptr_t)model, c_audio_file_path, (char *)c_response_buffer, (size_t)buffer_size, c_options_json, (const uint8_t *)c_pcm_buffer, (size_t)pcm_buffer_size);
    }
    free(c_audio_file_path);
    free(c_options_json);
    return result;
}

static jint JNICALL jni_cactus_vad(JNIEnv *env, jclass raw, jlong model, jbyteArray audio_file_path, jobject response_buffer, jlong buffer_size, jbyteArray options_json, jobject pcm_buffer, jlong pcm_buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_audio_file_path = NULL;
    void *c_response_buffer = NULL;
    char *c_options_json = NULL;
    void *c_pcm_buffer = NULL;
    if (text_in(env, audio_file_path, &c_audio_file_path) &&
        room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer) &&
        text_in(env, options_json, &c_options_json) &&
        room_in(env, pcm_buffer, (size_t)pcm_buffer_size, &c_pcm_buffer)) {
        result = (jint)lib.cactus_vad((void *)(intptr_t)model, c_audio_file_path, (char *)c_response_buffer, (size_t)buffer_size, c_options_json, (const uint8_t *)c_pcm_buffer, (size_t)pcm_buffer_size);
    }
    free(c_audio_file_path);
    free(c_options_json);
    return result;
}

static jlong JNICALL jni_cactus_index_init(JNIEnv *env, jclass raw, jbyteArray index_dir, jlong embedding_dim) {
    (void)raw;
    (void)env;
    jlong result = 0;
    char *c_index_dir = NULL;
    if (text_in(env, index_dir, &c_index_dir)) {
        result = (jlong)(intptr_t)lib.cactus_index_init(c_index_dir, (size_t)embedding_dim);
    }
    free(c_index_dir);
    return result;
}

static jint JNICALL jni_cactus_index_add(JNIEnv *env, jclass raw, jlong index, jintArray ids, jobjectArray documents, jobjectArray metadatas, jobjectArray embeddings, jlong count, jlong embedding_dim) {
    (void)raw;
    (void)env;
    jint result = -1;
    jint *c_ids = NULL;
    char **c_documents = NULL;
    char **c_metadatas = NULL;
    const float **c_embeddings = NULL;
    if (ints_in(env, ids, 0, &c_ids) &&
        texts_in(env, documents, (size_t)count, &c_documents) &&
        texts_in(env, metadatas, (size_t)count, &c_metadatas) &&
        rooms_in(env, embeddings, (void ***)&c_embeddings)) {
        result = (jint)lib.cactus_index_add((void *)(intptr_t)index, (const int *)c_ids, (const char *const *)c_documents, (const char *const *)c_metadatas, c_embeddings, (size_t)count, (size_t)embedding_dim);
    }
    free(c_ids);
    texts_free(c_documents, (size_t)count);
    texts_free(c_metadatas, (size_t)count);
    free((void *)c_embeddings);
    return result;
}

static jint JNICALL jni_cactus_index_delete(JNIEnv *env, jclass raw, jlong index, jintArray ids, jlong ids_count) {
    (void)raw;
    (void)env;
    jint result = -1;
    jint *c_ids = NULL;
    if (ints_in(env, ids, (size_t)ids_count, &c_ids)) {
        result = (jint)lib.cactus_index_delete((void *)(intptr_t)index, (const int *)c_ids, (size_t)ids_count);
    }
    free(c_ids);
    return result;
}

static jint JNICALL jni_cactus_index_get(JNIEnv *env, jclass raw, jlong index, jintArray ids, jlong ids_count, jobjectArray document_buffers, jlongArray document_buffer_sizes, jobjectArray metadata_buffers, jlongArray metadata_buffer_sizes, jobjectArray embedding_buffers, jlongArray embedding_buffer_sizes) {
    (void)raw;
    (void)env;
    jint result = -1;
    jint *c_ids = NULL;
    char **c_document_buffers = NULL;
    size_t *c_document_buffer_sizes = NULL;
    char **c_metadata_buffers = NULL;
    size_t *c_metadata_buffer_sizes = NULL;
    float **c_embedding_buffers = NULL;
    size_t *c_embedding_buffer_sizes = NULL;
    if (ints_in(env, ids, (size_t)ids_count, &c_ids) &&
        rooms_in(env, document_buffers, (void ***)&c_document_buffers) &&
        sizes_in(env, document_buffer_sizes, &c_document_buffer_sizes) &&
        rooms_in(env, metadata_buffers, (void ***)&c_metadata_buffers) &&
        sizes_in(env, metadata_buffer_sizes, &c_metadata_buffer_sizes) &&
        rooms_in(env, embedding_buffers, (void ***)&c_embedding_buffers) &&
        sizes_in(env, embedding_buffer_sizes, &c_embedding_buffer_sizes)) {
        result = (jint)lib.cactus_index_get((void *)(intptr_t)index, (const int *)c_ids, (size_t)ids_count, c_document_buffers, c_document_buffer_sizes, c_metadata_buffers, c_metadata_buffer_sizes, c_embedding_buffers, c_embedding_buffer_sizes);
        sizes_out(env, document_buffer_sizes, c_document_buffer_sizes);
        sizes_out(env, metadata_buffer_sizes, c_metadata_buffer_sizes);
        sizes_out(env, embedding_buffer_sizes, c_embedding_buffer_sizes);
    }
    free(c_ids);
    free(c_document_buffers);
    free(c_document_buffer_sizes);
    free(c_metadata_buffers);
    free(c_metadata_buffer_sizes);
    free(c_embedding_buffers);
    free(c_embedding_buffer_sizes);
    return result;
}

static jint JNICALL jni_cactus_index_query(JNIEnv *env, jclass raw, jlong index, jobjectArray embeddings, jlong embeddings_count, jlong embedding_dim, jbyteArray options_json, jobjectArray id_buffers, jlongArray id_buffer_sizes, jobjectArray score_buffers, jlongArray score_buffer_sizes) {
    (void)raw;
    (void)env;
    jint result = -1;
    const float **c_embeddings = NULL;
    char *c_options_json = NULL;
    int **c_id_buffers = NULL;
    size_t *c_id_buffer_sizes = NULL;
    float **c_score_buffers = NULL;
    size_t *c_score_buffer_sizes = NULL;
    if (rooms_in(env, embeddings, (void ***)&c_embeddings) &&
        text_in(env, options_json, &c_options_json) &&
        rooms_in(env, id_buffers, (void ***)&c_id_buffers) &&
        sizes_in(env, id_buffer_sizes, &c_id_buffer_sizes) &&
        rooms_in(env, score_buffers, (void ***)&c_score_buffers) &&
        sizes_in(env, score_buffer_sizes, &c_score_buffer_sizes)) {
        result = (jint)lib.cactus_index_query((void *)(intptr_t)index, c_embeddings, (size_t)embeddings_count, (size_t)embedding_dim, c_options_json, c_id_buffers, c_id_buffer_sizes, c_score_buffers, c_score_buffer_sizes);
        sizes_out(env, id_buffer_sizes, c_id_buffer_sizes);
        sizes_out(env, score_buffer_sizes, c_score_buffer_sizes);
    }
    free((void *)c_embeddings);
    free(c_options_json);
    free(c_id_buffers);
    free(c_id_buffer_sizes);
    free(c_score_buffers);
    free(c_score_buffer_sizes);
    return result;
}

static jint JNICALL jni_cactus_index_compact(JNIEnv *env, jclass raw, jlong index) {
    (void)raw;
    (void)env;
    jint result = -1;
    result = (jint)lib.cactus_index_compact((void *)(intptr_t)index);
    return result;
}

static void JNICALL jni_cactus_index_destroy(JNIEnv *env, jclass raw, jlong index) {
    (void)raw;
    (void)env;
    lib.cactus_index_destroy((void *)(intptr_t)index);
}

static jlong JNICALL jni_cactus_stream_transcribe_start(JNIEnv *env, jclass raw, jlong model, jbyteArray options_json) {
    (void)raw;
    (void)env;
    jlong result = 0;
    char *c_options_json = NULL;
    if (text_in(env, options_json, &c_options_json)) {
        result = (jlong)(intptr_t)lib.cactus_stream_transcribe_start((void *)(intptr_t)model, c_options_json);
    }
    free(c_options_json);
    return result;
}

static jint JNICALL jni_cactus_stream_transcribe_process(JNIEnv *env, jclass raw, jlong stream, jobject pcm_buffer, jlong pcm_buffer_size, jobject response_buffer, jlong buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    void *c_pcm_buffer = NULL;
    void *c_response_buffer = NULL;
    if (room_in(env, pcm_buffer, (size_t)pcm_buffer_size, &c_pcm_buffer) &&
        room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer)) {
        result = (jint)lib.cactus_stream_transcribe_process((void *)(intptr_t)stream, (const uint8_t *)c_pcm_buffer, (size_t)pcm_buffer_size, (char *)c_response_buffer, (size_t)buffer_size);
    }
    return result;
}

static jint JNICALL jni_cactus_stream_transcribe_stop(JNIEnv *env, jclass raw, jlong stream, jobject response_buffer, jlong buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    void *c_response_buffer = NULL;
    if (room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer)) {
        result = (jint)lib.cactus_stream_transcribe_stop((void *)(intptr_t)stream, (char *)c_response_buffer, (size_t)buffer_size);
    }
    return result;
}

static jlong JNICALL jni_cactus_init(JNIEnv *env, jclass raw, jbyteArray model_path, jbyteArray corpus_dir, jboolean cache_index) {
    (void)raw;
    (void)env;
    jlong result = 0;
    char *c_model_path = NULL;
    char *c_corpus_dir = NULL;
    if (text_in(env, model_path, &c_model_path) &&
        text_in(env, corpus_dir, &c_corpus_dir)) {
        result = (jlong)(intptr_t)lib.cactus_init(c_model_path, c_corpus_dir, cache_index != JNI_FALSE);
    }
    free(c_model_path);
    free(c_corpus_dir);
    return result;
}

static void JNICALL jni_cactus_destroy(JNIEnv *env, jclass raw, jlong model) {
    (void)raw;
    (void)env;
    lib.cactus_destroy((void *)(intptr_t)model);
}

static void JNICALL jni_cactus_stop(JNIEnv *env, jclass raw, jlong model) {
    (void)raw;
    (void)env;
    lib.cactus_stop((void *)(intptr_t)model);
}

static void JNICALL jni_cactus_log_set_level(JNIEnv *env, jclass raw, jint level) {
    (void)raw;
    (void)env;
    lib.cactus_log_set_level((int)level);
}

static void JNICALL jni_cactus_log_set_callback(JNIEnv *env, jclass raw, jobject callback) {
    (void)raw;
    (void)env;
    closure *c_callback = NULL;
    if (closure_keep(env, callback, &c_callback)) {
        lib.cactus_log_set_callback(callback == NULL ? NULL : call_cactus_log_callback_t, c_callback);
    }
}

static jint JNICALL jni_cactus_rag_query(JNIEnv *env, jclass raw, jlong model, jbyteArray query, jobject response_buffer, jlong buffer_size, jlong top_k) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_query = NULL;
    void *c_response_buffer = NULL;
    if (text_in(env, query, &c_query) &&
        room_in(env, response_buffer, (size_t)buffer_size, &c_response_buffer)) {
        result = (jint)lib.cactus_rag_query((void *)(intptr_t)model, c_query, (char *)c_response_buffer, (size_t)buffer_size, (size_t)top_k);
    }
    free(c_query);
    return result;
}

static jint JNICALL jni_cactus_render_prompt(JNIEnv *env, jclass raw, jlong model, jbyteArray messages_json, jbyteArray options_json, jbyteArray tools_json, jobject buffer, jlong buffer_size) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_messages_json = NULL;
    char *c_options_json = NULL;
    char *c_tools_json = NULL;
    void *c_buffer = NULL;
    if (text_in(env, messages_json, &c_messages_json) &&
        text_in(env, options_json, &c_options_json) &&
        text_in(env, tools_json, &c_tools_json) &&
        room_in(env, buffer, (size_t)buffer_size, &c_buffer)) {
        result = (jint)lib.cactus_render_prompt((void *)(intptr_t)model, c_messages_json, c_options_json, c_tools_json, (char *)c_buffer, (size_t)buffer_size);
    }
    free(c_messages_json);
    free(c_options_json);
    free(c_tools_json);
    return result;
}

static jint JNICALL jni_cactus_transcription_start(JNIEnv *env, jclass raw, jlong model, jbyteArray audio_file_path, jobject pcm_buffer, jlong pcm_buffer_size, jbyteArray options_json, jlongArray request) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_audio_file_path = NULL;
    void *c_pcm_buffer = NULL;
    char *c_options_json = NULL;
    struct cactus_request *c_request = NULL;
    if (text_in(env, audio_file_path, &c_audio_file_path) &&
        room_in(env, pcm_buffer, (size_t)pcm_buffer_size, &c_pcm_buffer) &&
        text_in(env, options_json, &c_options_json)) {
        result = (jint)lib.cactus_transcription_start((void *)(intptr_t)model, c_audio_file_path, (const uint8_t *)c_pcm_buffer, (size_t)pcm_buffer_size, c_options_json, NULL, NULL, &c_request);
        handle_out(env, request, c_request);
    }
    free(c_audio_file_path);
    free(c_options_json);
    return result;
}

static jint JNICALL jni_cactus_model_set_policy(JNIEnv *env, jclass raw, jlong model, jbyteArray policy_toml, jbyteArray options_json) {
    (void)raw;
    (void)env;
    jint result = -1;
    char *c_policy_toml = NULL;
    char *c_options_json = NULL;
    if (text_in(env, policy_toml, &c_policy_toml) &&
        text_in(env, options_json, &c_options_json)) {
        result = (jint)lib.cactus_model_set_policy((struct cactus_model *)(intptr_t)model, c_policy_toml, c_options_json);
    }
    free(c_policy_toml);
    free(c_options_json);
    return result;
}

static const symbol symbols[] = {
    {"cactus_version", (void **)&lib.cactus_version},
    {"cactus_abi_version", (void **)&lib.cactus_abi_version},
    {"cactus_last_error", (void **)&lib.cactus_last_error},
    {"cactus_clear_error", (void **)&lib.cactus_clear_error},
    {"cactus_string_free", (void **)&lib.cactus_string_free},
    {"cactus_error_kind", (void **)&lib.cactus_error_kind},
    {"cactus_model_load", (void **)&lib.cactus_model_load},
    {"cactus_model_prepare", (void **)&lib.cactus_model_prepare},
    {"cactus_model_close", (void **)&lib.cactus_model_close},
    {"cactus_model_info", (void **)&lib.cactus_model_info},
    {"cactus_model_tokenize", (void **)&lib.cactus_model_tokenize},
    {"cactus_tokens_free", (void **)&lib.cactus_tokens_free},
    {"cactus_model_detokenize", (void **)&lib.cactus_model_detokenize},
    {"cactus_model_score", (void **)&lib.cactus_model_score},
    {"cactus_model_set_threads", (void **)&lib.cactus_model_set_threads},
    {"cactus_memory_pressure", (void **)&lib.cactus_memory_pressure},
    {"cactus_check_bundle", (void **)&lib.cactus_check_bundle},
    {"cactus_request_start", (void **)&lib.cactus_request_start},
    {"cactus_request_next", (void **)&lib.cactus_request_next},
    {"cactus_request_wait", (void **)&lib.cactus_request_wait},
    {"cactus_request_cancel", (void **)&lib.cactus_request_cancel},
    {"cactus_request_consent", (void **)&lib.cactus_request_consent},
    {"cactus_request_close", (void **)&lib.cactus_request_close},
    {"cactus_session_open", (void **)&lib.cactus_session_open},
    {"cactus_session_send", (void **)&lib.cactus_session_send},
    {"cactus_session_messages", (void **)&lib.cactus_session_messages},
    {"cactus_session_close", (void **)&lib.cactus_session_close},
    {"cactus_embed", (void **)&lib.cactus_embed},
    {"cactus_image_embed", (void **)&lib.cactus_image_embed},
    {"cactus_transcribe", (void **)&lib.cactus_transcribe},
    {"cactus_detect_language", (void **)&lib.cactus_detect_language},
    {"cactus_vad", (void **)&lib.cactus_vad},
    {"cactus_index_init", (void **)&lib.cactus_index_init},
    {"cactus_index_add", (void **)&lib.cactus_index_add},
    {"cactus_index_delete", (void **)&lib.cactus_index_delete},
    {"cactus_index_get", (void **)&lib.cactus_index_get},
    {"cactus_index_query", (void **)&lib.cactus_index_query},
    {"cactus_index_compact", (void **)&lib.cactus_index_compact},
    {"cactus_index_destroy", (void **)&lib.cactus_index_destroy},
    {"cactus_stream_transcribe_start", (void **)&lib.cactus_stream_transcribe_start},
    {"cactus_stream_transcribe_process", (void **)&lib.cactus_stream_transcribe_process},
    {"cactus_stream_transcribe_stop", (void **)&lib.cactus_stream_transcribe_stop},
    {"cactus_init", (void **)&lib.cactus_init},
    {"cactus_destroy", (void **)&lib.cactus_destroy},
    {"cactus_stop", (void **)&lib.cactus_stop},
    {"cactus_log_set_level", (void **)&lib.cactus_log_set_level},
    {"cactus_log_set_callback", (void **)&lib.cactus_log_set_callback},
    {"cactus_rag_query", (void **)&lib.cactus_rag_query},
    {"cactus_render_prompt", (void **)&lib.cactus_render_prompt},
    {"cactus_transcription_start", (void **)&lib.cactus_transcription_start},
    {"cactus_model_set_policy", (void **)&lib.cactus_model_set_policy},
};

static jbyteArray JNICALL jni_open(JNIEnv *env, jclass raw, jbyteArray path, jint abi_version) {
    (void)raw;
    return open_library(env, path, abi_version, symbols, sizeof symbols / sizeof *symbols);
}

static const JNINativeMethod methods[] = {
    {(char *)"open", (char *)"([BI)[B", (void *)jni_open},
    {(char *)"version", (char *)"()[B", (void *)jni_cactus_version},
    {(char *)"abiVersion", (char *)"()I", (void *)jni_cactus_abi_version},
    {(char *)"lastError", (char *)"([I[[B)I", (void *)jni_cactus_last_error},
    {(char *)"clearError", (char *)"()V", (void *)jni_cactus_clear_error},
    {(char *)"errorKind", (char *)"(I)[B", (void *)jni_cactus_error_kind},
    {(char *)"modelLoad", (char *)"([B[BLdev/cactusengine/raw/ProgressCallback;[J)I", (void *)jni_cactus_model_load},
    {(char *)"modelPrepare", (char *)"([B[BLdev/cactusengine/raw/ProgressCallback;[[B)I", (void *)jni_cactus_model_prepare},
    {(char *)"modelClose", (char *)"(J)I", (void *)jni_cactus_model_close},
    {(char *)"modelInfo", (char *)"(J[[B)I", (void *)jni_cactus_model_info},
    {(char *)"modelTokenize", (char *)"(J[BZ[[I)I", (void *)jni_cactus_model_tokenize},
    {(char *)"modelDetokenize", (char *)"(J[IJZ[[B)I", (void *)jni_cactus_model_detokenize},
    {(char *)"modelScore", (char *)"(J[IJJ[[B)I", (void *)jni_cactus_model_score},
    {(char *)"modelSetThreads", (char *)"(JJJ)I", (void *)jni_cactus_model_set_threads},
    {(char *)"memoryPressure", (char *)"()V", (void *)jni_cactus_memory_pressure},
    {(char *)"checkBundle", (char *)"([BZ[[B)I", (void *)jni_cactus_check_bundle},
    {(char *)"requestStart", (char *)"(J[B[J)I", (void *)jni_cactus_request_start},
    {(char *)"requestNext", (char *)"(JJ[[B[Z)I", (void *)jni_cactus_request_next},
    {(char *)"requestWait", (char *)"(J[[B)I", (void *)jni_cactus_request_wait},
    {(char *)"requestCancel", (char *)"(J)I", (void *)jni_cactus_request_cancel},
    {(char *)"requestConsent", (char *)"(JZ)I", (void *)jni_cactus_request_consent},
    {(char *)"requestClose", (char *)"(J)I", (void *)jni_cactus_request_close},
    {(char *)"sessionOpen", (char *)"(J[B[J)I", (void *)jni_cactus_session_open},
    {(char *)"sessionSend", (char *)"(J[B[J)I", (void *)jni_cactus_session_send},
    {(char *)"sessionMessages", (char *)"(J[[B)I", (void *)jni_cactus_session_messages},
    {(char *)"sessionClose", (char *)"(J)I", (void *)jni_cactus_session_close},
    {(char *)"embed", (char *)"(J[BLjava/nio/ByteBuffer;J[JZ)I", (void *)jni_cactus_embed},
    {(char *)"imageEmbed", (char *)"(J[BLjava/nio/ByteBuffer;J[J)I", (void *)jni_cactus_image_embed},
    {(char *)"transcribe", (char *)"(J[B[BLjava/nio/ByteBuffer;J[BLdev/cactusengine/raw/TokenCallback;Ljava/nio/ByteBuffer;J)I", (void *)jni_cactus_transcribe},
    {(char *)"detectLanguage", (char *)"(J[BLjava/nio/ByteBuffer;J[BLjava/nio/ByteBuffer;J)I", (void *)jni_cactus_detect_language},
    {(char *)"vad", (char *)"(J[BLjava/nio/ByteBuffer;J[BLjava/nio/ByteBuffer;J)I", (void *)jni_cactus_vad},
    {(char *)"indexInit", (char *)"([BJ)J", (void *)jni_cactus_index_init},
    {(char *)"indexAdd", (char *)"(J[I[[B[[B[Ljava/nio/ByteBuffer;JJ)I", (void *)jni_cactus_index_add},
    {(char *)"indexDelete", (char *)"(J[IJ)I", (void *)jni_cactus_index_delete},
    {(char *)"indexGet", (char *)"(J[IJ[Ljava/nio/ByteBuffer;[J[Ljava/nio/ByteBuffer;[J[Ljava/nio/ByteBuffer;[J)I", (void *)jni_cactus_index_get},
    {(char *)"indexQuery", (char *)"(J[Ljava/nio/ByteBuffer;JJ[B[Ljava/nio/ByteBuffer;[J[Ljava/nio/ByteBuffer;[J)I", (void *)jni_cactus_index_query},
    {(char *)"indexCompact", (char *)"(J)I", (void *)jni_cactus_index_compact},
    {(char *)"indexDestroy", (char *)"(J)V", (void *)jni_cactus_index_destroy},
    {(char *)"streamTranscribeStart", (char *)"(J[B)J", (void *)jni_cactus_stream_transcribe_start},
    {(char *)"streamTranscribeProcess", (char *)"(JLjava/nio/ByteBuffer;JLjava/nio/ByteBuffer;J)I", (void *)jni_cactus_stream_transcribe_process},
    {(char *)"streamTranscribeStop", (char *)"(JLjava/nio/ByteBuffer;J)I", (void *)jni_cactus_stream_transcribe_stop},
    {(char *)"init", (char *)"([B[BZ)J", (void *)jni_cactus_init},
    {(char *)"destroy", (char *)"(J)V", (void *)jni_cactus_destroy},
    {(char *)"stop", (char *)"(J)V", (void *)jni_cactus_stop},
    {(char *)"logSetLevel", (char *)"(I)V", (void *)jni_cactus_log_set_level},
    {(char *)"logSetCallback", (char *)"(Ldev/cactusengine/raw/LogCallback;)V", (void *)jni_cactus_log_set_callback},
    {(char *)"ragQuery", (char *)"(J[BLjava/nio/ByteBuffer;JJ)I", (void *)jni_cactus_rag_query},
    {(char *)"renderPrompt", (char *)"(J[B[B[BLjava/nio/ByteBuffer;J)I", (void *)jni_cactus_render_prompt},
    {(char *)"transcriptionStart", (char *)"(J[BLjava/nio/ByteBuffer;J[B[J)I", (void *)jni_cactus_transcription_start},
    {(char *)"modelSetPolicy", (char *)"(J[B[B)I", (void *)jni_cactus_model_set_policy},
};

static const callback_method callback_methods[] = {
    {"dev/cactusengine/raw/ProgressCallback", "([B[BJJ)I", &method_cactus_progress_callback},
    {"dev/cactusengine/raw/TokenCallback", "([BI)V", &method_cactus_token_callback},
    {"dev/cactusengine/raw/LogCallback", "(I[B[B)V", &method_cactus_log_callback_t},
};

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    (void)reserved;
    return on_load(vm, "dev/cactusengine/raw/Raw", methods, sizeof methods / sizeof *methods, callback_methods,
                   sizeof callback_methods / sizeof *callback_methods);
}
