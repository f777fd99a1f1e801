// Calls of libcactus with values of no host. Made by `cargo xtask sdks`; do not edit.

#include "call.hpp"

namespace cactus::js {

namespace {

void cactus_version_call(Call &call) {
    call.give_text(call.c().cactus_version());
}

void cactus_abi_version_call(Call &call) {
    call.give_number(call.c().cactus_abi_version());
}

void cactus_model_load_call(Call &call) {
    struct cactus_model *given = nullptr;
    if (!call.check(call.c().cactus_model_load(call.text(0), call.text(1), call.progress(2), call.listener(2), &given))) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_model_close(static_cast<cactus_model *>(given)); });
}

void cactus_model_prepare_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_model_prepare(call.text(0), call.text(1), call.progress(2), call.listener(2), &given))) return;
    call.give_owned(given);
}

void cactus_model_close_call(Call &call) {
    call.check(call.c().cactus_model_close(static_cast<struct cactus_model *>(call.handle(0))));
}

void cactus_model_info_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_model_info(static_cast<struct cactus_model *>(call.handle(0)), &given))) return;
    call.give_owned(given);
}

void cactus_model_tokenize_call(Call &call) {
    uint32_t *given = nullptr;
    size_t count = 0;
    if (!call.check(call.c().cactus_model_tokenize(static_cast<struct cactus_model *>(call.handle(0)), call.text(1), call.flag(2), &given, &count))) return;
    call.give_ids(given, count);
}

void cactus_model_detokenize_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_model_detokenize(static_cast<struct cactus_model *>(call.handle(0)), call.ids(1).data(), call.ids(1).size(), call.flag(2), &given))) return;
    call.give_owned(given);
}

void cactus_model_score_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_model_score(static_cast<struct cactus_model *>(call.handle(0)), call.ids(1).data(), call.ids(1).size(), call.number<size_t>(2), &given))) return;
    call.give_owned(given);
}

void cactus_model_set_threads_call(Call &call) {
    call.check(call.c().cactus_model_set_threads(static_cast<struct cactus_model *>(call.handle(0)), call.number<size_t>(1), call.number<size_t>(2)));
}

void cactus_memory_pressure_call(Call &call) {
    call.c().cactus_memory_pressure();
}

void cactus_check_bundle_call(Call &call) {
    char *given = nullptr;
    const int code = call.c().cactus_check_bundle(call.text(0), call.flag(1), &given);
    if (given == nullptr && !call.check(code)) return;
    call.give_owned(given);
}

void cactus_request_start_call(Call &call) {
    struct cactus_request *given = nullptr;
    if (!call.check(call.c().cactus_request_start(static_cast<struct cactus_model *>(call.handle(0)), call.text(1), nullptr, nullptr, &given))) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_request_close(static_cast<cactus_request *>(given)); });
}

void cactus_request_wait_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_request_wait(static_cast<struct cactus_request *>(call.handle(0)), &given))) return;
    call.give_owned(given);
}

void cactus_request_cancel_call(Call &call) {
    call.check(call.c().cactus_request_cancel(static_cast<struct cactus_request *>(call.handle(0))));
}

void cactus_request_consent_call(Call &call) {
    call.check(call.c().cactus_request_consent(static_cast<struct cactus_request *>(call.handle(0)), call.flag(1)));
}

void cactus_request_close_call(Call &call) {
    call.check(call.c().cactus_request_close(static_cast<struct cactus_request *>(call.handle(0))));
}

void cactus_session_open_call(Call &call) {
    struct cactus_session *given = nullptr;
    if (!call.check(call.c().cactus_session_open(static_cast<struct cactus_model *>(call.handle(0)), call.text(1), &given))) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_session_close(static_cast<cactus_session *>(given)); });
}

void cactus_session_send_call(Call &call) {
    struct cactus_request *given = nullptr;
    if (!call.check(call.c().cactus_session_send(static_cast<struct cactus_session *>(call.handle(0)), call.text(1), nullptr, nullptr, &given))) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_request_close(static_cast<cactus_request *>(given)); });
}

void cactus_session_messages_call(Call &call) {
    char *given = nullptr;
    if (!call.check(call.c().cactus_session_messages(static_cast<struct cactus_session *>(call.handle(0)), &given))) return;
    call.give_owned(given);
}

void cactus_session_close_call(Call &call) {
    call.check(call.c().cactus_session_close(static_cast<struct cactus_session *>(call.handle(0))));
}

void cactus_embed_call(Call &call) {
    FloatBuffer given(call);
    do {
        given.tried(call.c().cactus_embed(static_cast<void *>(call.handle(0)), call.text(1), given.place(), given.bytes(), given.dim(), call.flag(2)));
    } while (given.again());
}

void cactus_image_embed_call(Call &call) {
    FloatBuffer given(call);
    do {
        given.tried(call.c().cactus_image_embed(static_cast<void *>(call.handle(0)), call.text(1), given.place(), given.bytes(), given.dim()));
    } while (given.again());
}

void cactus_transcribe_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_transcribe(static_cast<void *>(call.handle(0)), call.text(1), call.text(2), given.place(), given.bytes(), call.text(3), call.tokens(4), call.listener(4), call.bytes(5), call.bytes_count(5)));
    } while (given.again());
}

void cactus_detect_language_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_detect_language(static_cast<void *>(call.handle(0)), call.text(1), given.place(), given.bytes(), call.text(2), call.bytes(3), call.bytes_count(3)));
    } while (given.again());
}

void cactus_vad_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_vad(static_cast<void *>(call.handle(0)), call.text(1), given.place(), given.bytes(), call.text(2), call.bytes(3), call.bytes_count(3)));
    } while (given.again());
}

void cactus_index_init_call(Call &call) {
    void *given = call.c().cactus_index_init(call.text(0), call.number<size_t>(1));
    if (!call.check(given == nullptr ? -1 : 0)) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_index_destroy(given); });
}

void cactus_index_add_call(Call &call) {
    const Texts documents(call, 2, call.ints(1).size());
    const Texts metadatas(call, 3, call.ints(1).size());
    const Rows embeddings(call, 4, 5, call.ints(1).size());
    if (call.has_failed()) return;
    call.check(call.c().cactus_index_add(static_cast<void *>(call.handle(0)), call.ints(1).data(), documents.data(), metadatas.data(), embeddings.data(), call.ints(1).size(), call.number<size_t>(5)));
}

void cactus_index_delete_call(Call &call) {
    call.check(call.c().cactus_index_delete(static_cast<void *>(call.handle(0)), call.ints(1).data(), call.ints(1).size()));
}

void cactus_index_compact_call(Call &call) {
    call.check(call.c().cactus_index_compact(static_cast<void *>(call.handle(0))));
}

void cactus_index_destroy_call(Call &call) {
    call.c().cactus_index_destroy(static_cast<void *>(call.handle(0)));
}

void cactus_stream_transcribe_start_call(Call &call) {
    void *given = call.c().cactus_stream_transcribe_start(static_cast<void *>(call.handle(0)), call.text(1));
    if (!call.check(given == nullptr ? -1 : 0)) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_stream_transcribe_stop(given, nullptr, 0); });
}

void cactus_stream_transcribe_process_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_stream_transcribe_process(static_cast<void *>(call.handle(0)), call.bytes(1), call.bytes_count(1), given.place(), given.bytes()));
    } while (given.again());
}

void cactus_init_call(Call &call) {
    void *given = call.c().cactus_init(call.text(0), call.text(1), call.flag(2));
    if (!call.check(given == nullptr ? -1 : 0)) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_destroy(given); });
}

void cactus_destroy_call(Call &call) {
    call.c().cactus_destroy(static_cast<void *>(call.handle(0)));
}

void cactus_stop_call(Call &call) {
    call.c().cactus_stop(static_cast<void *>(call.handle(0)));
}

void cactus_log_set_level_call(Call &call) {
    call.c().cactus_log_set_level(call.number<int>(0));
}

void cactus_log_set_callback_call(Call &call) {
    call.keep_log_listener(0);
    call.c().cactus_log_set_callback(call.log(0), call.listener(0));
}

void cactus_rag_query_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_rag_query(static_cast<void *>(call.handle(0)), call.text(1), given.place(), given.bytes(), call.number<size_t>(2)));
    } while (given.again());
}

void cactus_render_prompt_call(Call &call) {
    TextBuffer given(call);
    do {
        given.tried(call.c().cactus_render_prompt(static_cast<void *>(call.handle(0)), call.text(1), call.text(2), call.text(3), given.place(), given.bytes()));
    } while (given.again());
}

void cactus_transcription_start_call(Call &call) {
    struct cactus_request *given = nullptr;
    if (!call.check(call.c().cactus_transcription_start(static_cast<void *>(call.handle(0)), call.text(1), call.bytes(2), call.bytes_count(2), call.text(3), nullptr, nullptr, &given))) return;
    call.give_handle(given, [](const Symbols &symbols, void *given) { symbols.cactus_request_close(static_cast<cactus_request *>(given)); });
}

void cactus_model_set_policy_call(Call &call) {
    call.check(call.c().cactus_model_set_policy(static_cast<struct cactus_model *>(call.handle(0)), call.text(1), call.text(2)));
}

} // namespace

const Entry ENTRIES[] = {
    {"version", "", true, false, cactus_version_call},
    {"abiVersion", "", true, false, cactus_abi_version_call},
    {"modelLoad", "ttc", false, false, cactus_model_load_call},
    {"modelPrepare", "ttc", false, false, cactus_model_prepare_call},
    {"modelClose", "h", false, true, cactus_model_close_call},
    {"modelInfo", "h", true, false, cactus_model_info_call},
    {"modelTokenize", "htb", false, false, cactus_model_tokenize_call},
    {"modelDetokenize", "hub", false, false, cactus_model_detokenize_call},
    {"modelScore", "hun", false, false, cactus_model_score_call},
    {"modelSetThreads", "hnn", true, false, cactus_model_set_threads_call},
    {"memoryPressure", "", true, false, cactus_memory_pressure_call},
    {"checkBundle", "tb", false, false, cactus_check_bundle_call},
    {"requestStart", "ht", false, false, cactus_request_start_call},
    {"requestNext", "hn", false, false, cactus_request_next_by_hand},
    {"requestWait", "h", false, false, cactus_request_wait_call},
    {"requestCancel", "h", true, false, cactus_request_cancel_call},
    {"requestConsent", "hb", true, false, cactus_request_consent_call},
    {"requestClose", "h", false, true, cactus_request_close_call},
    {"sessionOpen", "ht", false, false, cactus_session_open_call},
    {"sessionSend", "ht", false, false, cactus_session_send_call},
    {"sessionMessages", "h", true, false, cactus_session_messages_call},
    {"sessionClose", "h", false, true, cactus_session_close_call},
    {"embed", "htb", false, false, cactus_embed_call},
    {"imageEmbed", "ht", false, false, cactus_image_embed_call},
    {"transcribe", "htttcp", false, false, cactus_transcribe_call},
    {"detectLanguage", "http", false, false, cactus_detect_language_call},
    {"vad", "http", false, false, cactus_vad_call},
    {"indexInit", "tn", false, false, cactus_index_init_call},
    {"indexAdd", "hiaafn", false, false, cactus_index_add_call},
    {"indexDelete", "hi", false, false, cactus_index_delete_call},
    {"indexGet", "hi", false, false, cactus_index_get_by_hand},
    {"indexQuery", "hfntn", false, false, cactus_index_query_by_hand},
    {"indexCompact", "h", false, false, cactus_index_compact_call},
    {"indexDestroy", "h", false, true, cactus_index_destroy_call},
    {"streamTranscribeStart", "ht", false, false, cactus_stream_transcribe_start_call},
    {"streamTranscribeProcess", "hp", false, false, cactus_stream_transcribe_process_call},
    {"streamTranscribeStop", "hb", false, true, cactus_stream_transcribe_stop_by_hand},
    {"init", "ttb", false, false, cactus_init_call},
    {"destroy", "h", false, true, cactus_destroy_call},
    {"stop", "h", true, false, cactus_stop_call},
    {"logSetLevel", "n", true, false, cactus_log_set_level_call},
    {"logSetCallback", "c", true, false, cactus_log_set_callback_call},
    {"ragQuery", "htn", false, false, cactus_rag_query_call},
    {"renderPrompt", "httt", false, false, cactus_render_prompt_call},
    {"transcriptionStart", "htpt", false, false, cactus_transcription_start_call},
    {"modelSetPolicy", "htt", false, false, cactus_model_set_policy_call},
};

const size_t ENTRY_COUNT = sizeof ENTRIES / sizeof ENTRIES[0];

} // namespace cactus::js
