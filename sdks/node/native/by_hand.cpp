// The calls whose shape no other has; `xtask/src/sdks/node.rs` says what they take and give.

#include "call.hpp"

namespace cactus::js {

/// An event, and all that came with it, in one array: whoever reads slowly gets more at once, not more often.
void cactus_request_next_by_hand(Call &call) {
    auto *request = static_cast<cactus_request *>(call.handle(0));
    const double asked = call.number<int32_t>(1);
    std::string events = "[";
    bool over = false;
    for (auto timeout_ms = static_cast<int64_t>(asked);; timeout_ms = 0) {
        char *event = nullptr;
        if (!call.check(call.c().cactus_request_next(request, timeout_ms, &event, &over))) {
            if (events.size() == 1) return;
            // It was closed meanwhile; what came before is still told.
            call.failure.reset();
            break;
        }
        if (event == nullptr) break;
        if (events.size() > 1) events += ',';
        events += event;
        call.c().cactus_string_free(event);
    }
    if (events.size() == 1 && !over && asked < 0) {
        call.fail({CACTUS_CODE_HANDLE, "handle", "the request was closed"});
        return;
    }
    call.give(events + ']');
}

void cactus_stream_transcribe_stop_by_hand(Call &call) {
    if (!call.flag(1)) {
        if (call.check(call.c().cactus_stream_transcribe_stop(call.handle(0), nullptr, 0))) call.give(std::string());
        return;
    }
    TextBuffer given(call);
    given.tried(call.c().cactus_stream_transcribe_stop(call.handle(0), given.place(), given.bytes()));
}

void cactus_index_get_by_hand(Call &call) {
    const Ints &ids = call.ints(1);
    const size_t count = ids.size();
    // A place that is not null, so that sizes are told.
    std::vector<size_t> text_sizes(count, 256), metadata_sizes(count, 256), vector_sizes(count, 1024);
    for (int tries = 0; tries < 8; tries++) {
        std::vector<std::string> texts(count), metadatas(count);
        std::vector<Floats> vectors(count);
        std::vector<char *> text_places(count), metadata_places(count);
        std::vector<float *> vector_places(count);
        for (size_t i = 0; i < count; i++) {
            texts[i].resize(text_sizes[i]);
            metadatas[i].resize(metadata_sizes[i]);
            vectors[i].resize(vector_sizes[i]);
            text_places[i] = &texts[i][0];
            metadata_places[i] = &metadatas[i][0];
            vector_places[i] = vectors[i].data();
        }
        const int code = call.c().cactus_index_get(call.handle(0), ids.data(), count, text_places.data(), text_sizes.data(),
                                                   metadata_places.data(), metadata_sizes.data(), vector_places.data(),
                                                   vector_sizes.data());
        // What does not fit has told its size. Others may write meanwhile, so it may not fit the next time either.
        if (code == CACTUS_CODE_BUFFER_TOO_SMALL) continue;
        if (!call.check(code)) return;
        Strings documents, extras;
        Floats embeddings;
        for (size_t i = 0; i < count; i++) {
            documents.emplace_back(texts[i].c_str());
            extras.emplace_back(metadatas[i].c_str());
            embeddings.insert(embeddings.end(), vectors[i].begin(), vectors[i].begin() + static_cast<ptrdiff_t>(vector_sizes[i]));
        }
        auto fields = std::make_shared<Fields>();
        fields->all.emplace_back("documents", std::move(documents));
        fields->all.emplace_back("metadatas", std::move(extras));
        fields->all.emplace_back("embeddings", std::move(embeddings));
        call.give(std::move(fields));
        return;
    }
    call.check(CACTUS_CODE_BUFFER_TOO_SMALL);
}

void cactus_index_query_by_hand(Call &call) {
    const auto dimension = call.number<size_t>(2), room = call.number<size_t>(4);
    const size_t count = dimension == 0 ? 0 : call.floats(1).size() / dimension;
    const Rows rows(call, 1, 2, count);
    if (call.has_failed()) return;
    if (room > (size_t{1} << 24) / (count == 0 ? 1 : count)) {
        call.fail(Failure::argument("`top_k`: " + std::to_string(room) + " results for each of " + std::to_string(count) +
                                    " vectors are too many"));
        return;
    }
    std::vector<Ints> ids(count, Ints(room + 1));
    std::vector<Floats> scores(count, Floats(room + 1));
    std::vector<size_t> id_sizes(count, room), score_sizes(count, room);
    std::vector<int *> id_places(count);
    std::vector<float *> score_places(count);
    for (size_t i = 0; i < count; i++) {
        id_places[i] = ids[i].data();
        score_places[i] = scores[i].data();
    }
    const int code = call.c().cactus_index_query(call.handle(0), rows.data(), count, dimension, call.text(3), id_places.data(),
                                                 id_sizes.data(), score_places.data(), score_sizes.data());
    if (!call.check(code)) return;
    Ids counts;
    Ints found;
    Floats weights;
    for (size_t i = 0; i < count; i++) {
        counts.push_back(static_cast<uint32_t>(id_sizes[i]));
        found.insert(found.end(), ids[i].begin(), ids[i].begin() + static_cast<ptrdiff_t>(id_sizes[i]));
        weights.insert(weights.end(), scores[i].begin(), scores[i].begin() + static_cast<ptrdiff_t>(score_sizes[i]));
    }
    auto fields = std::make_shared<Fields>();
    fields->all.emplace_back("counts", std::move(counts));
    fields->all.emplace_back("ids", std::move(found));
    fields->all.emplace_back("scores", std::move(weights));
    call.give(std::move(fields));
}

} // namespace cactus::js
