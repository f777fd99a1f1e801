// The functions of libcactus that JavaScript calls. Made by `cargo xtask sdks`; do not edit.
#ifndef CACTUS_JS_SYMBOLS_HPP
#define CACTUS_JS_SYMBOLS_HPP

#include "cactus.h"

namespace cactus::js {

/// Pointers to the functions of one library.
struct Symbols {
    decltype(&::cactus_version) cactus_version;
    decltype(&::cactus_abi_version) cactus_abi_version;
    decltype(&::cactus_last_error) cactus_last_error;
    decltype(&::cactus_clear_error) cactus_clear_error;
    decltype(&::cactus_string_free) cactus_string_free;
    decltype(&::cactus_error_kind) cactus_error_kind;
    decltype(&::cactus_model_load) cactus_model_load;
    decltype(&::cactus_model_prepare) cactus_model_prepare;
    decltype(&::cactus_model_close) cactus_model_close;
    decltype(&::cactus_model_info) cactus_model_info;
    decltype(&::cactus_model_tokenize) cactus_model_tokenize;
    decltype(&::cactus_tokens_free) cactus_tokens_free;
    decltype(&::cactus_model_detokenize) cactus_model_detokenize;
    decltype(&::cactus_model_score) cactus_model_score;
    decltype(&::cactus_model_set_threads) cactus_model_set_threads;
    decltype(&::cactus_memory_pressure) cactus_memory_pressure;
    decltype(&::cactus_check_bundle) cactus_check_bundle;
    decltype(&::cactus_request_start) cactus_request_start;
    decltype(&::cactus_request_next) cactus_request_next;
    decltype(&::cactus_request_wait) cactus_request_wait;
    decltype(&::cactus_request_cancel) cactus_request_cancel;
    decltype(&::cactus_request_consent) cactus_request_consent;
    decltype(&::cactus_request_close) cactus_request_close;
    decltype(&::cactus_session_open) cactus_session_open;
    decltype(&::cactus_session_send) cactus_session_send;
    decltype(&::cactus_session_messages) cactus_session_messages;
    decltype(&::cactus_session_close) cactus_session_close;
    decltype(&::cactus_embed) cactus_embed;
    decltype(&::cactus_image_embed) cactus_image_embed;
    decltype(&::cactus_transcribe) cactus_transcribe;
    decltype(&::cactus_detect_language) cactus_detect_language;
    decltype(&::cactus_vad) cactus_vad;
    decltype(&::cactus_index_init) cactus_index_init;
    decltype(&::cactus_index_add) cactus_index_add;
    decltype(&::cactus_index_delete) cactus_index_delete;
    decltype(&::cactus_index_get) cactus_index_get;
    decltype(&::cactus_index_query) cactus_index_query;
    decltype(&::cactus_index_compact) cactus_index_compact;
    decltype(&::cactus_index_destroy) cactus_index_destroy;
    decltype(&::cactus_stream_transcribe_start) cactus_stream_transcribe_start;
    decltype(&::cactus_stream_transcribe_process) cactus_stream_transcribe_process;
    decltype(&::cactus_stream_transcribe_stop) cactus_stream_transcribe_stop;
    decltype(&::cactus_init) cactus_init;
    decltype(&::cactus_destroy) cactus_destroy;
    decltype(&::cactus_stop) cactus_stop;
    decltype(&::cactus_log_set_level) cactus_log_set_level;
    decltype(&::cactus_log_set_callback) cactus_log_set_callback;
    decltype(&::cactus_rag_query) cactus_rag_query;
    decltype(&::cactus_render_prompt) cactus_render_prompt;
    decltype(&::cactus_transcription_start) cactus_transcription_start;
    decltype(&::cactus_model_set_policy) cactus_model_set_policy;
};

/// Calls `f(name, place)` for the place of each pointer.
template <typename F>
void for_each_symbol(Symbols &symbols, F f) {
    f("cactus_version", reinterpret_cast<void **>(&symbols.cactus_version));
    f("cactus_abi_version", reinterpret_cast<void **>(&symbols.cactus_abi_version));
    f("cactus_last_error", reinterpret_cast<void **>(&symbols.cactus_last_error));
    f("cactus_clear_error", reinterpret_cast<void **>(&symbols.cactus_clear_error));
    f("cactus_string_free", reinterpret_cast<void **>(&symbols.cactus_string_free));
    f("cactus_error_kind", reinterpret_cast<void **>(&symbols.cactus_error_kind));
    f("cactus_model_load", reinterpret_cast<void **>(&symbols.cactus_model_load));
    f("cactus_model_prepare", reinterpret_cast<void **>(&symbols.cactus_model_prepare));
    f("cactus_model_close", reinterpret_cast<void **>(&symbols.cactus_model_close));
    f("cactus_model_info", reinterpret_cast<void **>(&symbols.cactus_model_info));
    f("cactus_model_tokenize", reinterpret_cast<void **>(&symbols.cactus_model_tokenize));
    f("cactus_tokens_free", reinterpret_cast<void **>(&symbols.cactus_tokens_free));
    f("cactus_model_detokenize", reinterpret_cast<void **>(&symbols.cactus_model_detokenize));
    f("cactus_model_score", reinterpret_cast<void **>(&symbols.cactus_model_score));
    f("cactus_model_set_threads", reinterpret_cast<void **>(&symbols.cactus_model_set_threads));
    f("cactus_memory_pressure", reinterpret_cast<void **>(&symbols.cactus_memory_pressure));
    f("cactus_check_bundle", reinterpret_cast<void **>(&symbols.cactus_check_bundle));
    f("cactus_request_start", reinterpret_cast<void **>(&symbols.cactus_request_start));
    f("cactus_request_next", reinterpret_cast<void **>(&symbols.cactus_request_next));
    f("cactus_request_wait", reinterpret_cast<void **>(&symbols.cactus_request_wait));
    f("cactus_request_cancel", reinterpret_cast<void **>(&symbols.cactus_request_cancel));
    f("cactus_request_consent", reinterpret_cast<void **>(&symbols.cactus_request_consent));
    f("cactus_request_close", reinterpret_cast<void **>(&symbols.cactus_request_close));
    f("cactus_session_open", reinterpret_cast<void **>(&symbols.cactus_session_open));
    f("cactus_session_send", reinterpret_cast<void **>(&symbols.cactus_session_send));
    f("cactus_session_messages", reinterpret_cast<void **>(&symbols.cactus_session_messages));
    f("cactus_session_close", reinterpret_cast<void **>(&symbols.cactus_session_close));
    f("cactus_embed", reinterpret_cast<void **>(&symbols.cactus_embed));
    f("cactus_image_embed", reinterpret_cast<void **>(&symbols.cactus_image_embed));
    f("cactus_transcribe", reinterpret_cast<void **>(&symbols.cactus_transcribe));
    f("cactus_detect_language", reinterpret_cast<void **>(&symbols.cactus_detect_language));
    f("cactus_vad", reinterpret_cast<void **>(&symbols.cactus_vad));
    f("cactus_index_init", reinterpret_cast<void **>(&symbols.cactus_index_init));
    f("cactus_index_add", reinterpret_cast<void **>(&symbols.cactus_index_add));
    f("cactus_index_delete", reinterpret_cast<void **>(&symbols.cactus_index_delete));
    f("cactus_index_get", reinterpret_cast<void **>(&symbols.cactus_index_get));
    f("cactus_index_query", reinterpret_cast<void **>(&symbols.cactus_index_query));
    f("cactus_index_compact", reinterpret_cast<void **>(&symbols.cactus_index_compact));
    f("cactus_index_destroy", reinterpret_cast<void **>(&symbols.cactus_index_destroy));
    f("cactus_stream_transcribe_start", reinterpret_cast<void **>(&symbols.cactus_stream_transcribe_start));
    f("cactus_stream_transcribe_process", reinterpret_cast<void **>(&symbols.cactus_stream_transcribe_process));
    f("cactus_stream_transcribe_stop", reinterpret_cast<void **>(&symbols.cactus_stream_transcribe_stop));
    f("cactus_init", reinterpret_cast<void **>(&symbols.cactus_init));
    f("cactus_destroy", reinterpret_cast<void **>(&symbols.cactus_destroy));
    f("cactus_stop", reinterpret_cast<void **>(&symbols.cactus_stop));
    f("cactus_log_set_level", reinterpret_cast<void **>(&symbols.cactus_log_set_level));
    f("cactus_log_set_callback", reinterpret_cast<void **>(&symbols.cactus_log_set_callback));
    f("cactus_rag_query", reinterpret_cast<void **>(&symbols.cactus_rag_query));
    f("cactus_render_prompt", reinterpret_cast<void **>(&symbols.cactus_render_prompt));
    f("cactus_transcription_start", reinterpret_cast<void **>(&symbols.cactus_transcription_start));
    f("cactus_model_set_policy", reinterpret_cast<void **>(&symbols.cactus_model_set_policy));
}

#ifdef CACTUS_LINKED
/// The functions of the library that is linked into the program.
inline void link_symbols(Symbols &symbols) {
    symbols.cactus_version = &::cactus_version;
    symbols.cactus_abi_version = &::cactus_abi_version;
    symbols.cactus_last_error = &::cactus_last_error;
    symbols.cactus_clear_error = &::cactus_clear_error;
    symbols.cactus_string_free = &::cactus_string_free;
    symbols.cactus_error_kind = &::cactus_error_kind;
    symbols.cactus_model_load = &::cactus_model_load;
    symbols.cactus_model_prepare = &::cactus_model_prepare;
    symbols.cactus_model_close = &::cactus_model_close;
    symbols.cactus_model_info = &::cactus_model_info;
    symbols.cactus_model_tokenize = &::cactus_model_tokenize;
    symbols.cactus_tokens_free = &::cactus_tokens_free;
    symbols.cactus_model_detokenize = &::cactus_model_detokenize;
    symbols.cactus_model_score = &::cactus_model_score;
    symbols.cactus_model_set_threads = &::cactus_model_set_threads;
    symbols.cactus_memory_pressure = &::cactus_memory_pressure;
    symbols.cactus_check_bundle = &::cactus_check_bundle;
    symbols.cactus_request_start = &::cactus_request_start;
    symbols.cactus_request_next = &::cactus_request_next;
    symbols.cactus_request_wait = &::cactus_request_wait;
    symbols.cactus_request_cancel = &::cactus_request_cancel;
    symbols.cactus_request_consent = &::cactus_request_consent;
    symbols.cactus_request_close = &::cactus_request_close;
    symbols.cactus_session_open = &::cactus_session_open;
    symbols.cactus_session_send = &::cactus_session_send;
    symbols.cactus_session_messages = &::cactus_session_messages;
    symbols.cactus_session_close = &::cactus_session_close;
    symbols.cactus_embed = &::cactus_embed;
    symbols.cactus_image_embed = &::cactus_image_embed;
    symbols.cactus_transcribe = &::cactus_transcribe;
    symbols.cactus_detect_language = &::cactus_detect_language;
    symbols.cactus_vad = &::cactus_vad;
    symbols.cactus_index_init = &::cactus_index_init;
    symbols.cactus_index_add = &::cactus_index_add;
    symbols.cactus_index_delete = &::cactus_index_delete;
    symbols.cactus_index_get = &::cactus_index_get;
    symbols.cactus_index_query = &::cactus_index_query;
    symbols.cactus_index_compact = &::cactus_index_compact;
    symbols.cactus_index_destroy = &::cactus_index_destroy;
    symbols.cactus_stream_transcribe_start = &::cactus_stream_transcribe_start;
    symbols.cactus_stream_transcribe_process = &::cactus_stream_transcribe_process;
    symbols.cactus_stream_transcribe_stop = &::cactus_stream_transcribe_stop;
    symbols.cactus_init = &::cactus_init;
    symbols.cactus_destroy = &::cactus_destroy;
    symbols.cactus_stop = &::cactus_stop;
    symbols.cactus_log_set_level = &::cactus_log_set_level;
    symbols.cactus_log_set_callback = &::cactus_log_set_callback;
    symbols.cactus_rag_query = &::cactus_rag_query;
    symbols.cactus_render_prompt = &::cactus_render_prompt;
    symbols.cactus_transcription_start = &::cactus_transcription_start;
    symbols.cactus_model_set_policy = &::cactus_model_set_policy;
}
#endif

} // namespace cactus::js

#endif
