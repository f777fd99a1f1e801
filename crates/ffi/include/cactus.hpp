// cactus.hpp: C++17 over cactus.h. Header only; link with libcactus.
//
// Models, sessions and requests close themselves, and can be moved. Errors are exceptions of the type cactus::Error. What a callback
// throws is kept, stops the request, and is thrown again where the request is waited for. JSON stays text: use the JSON library that
// the rest of your program uses.
//
// Any function may be called from any thread, `close` too. That of models, embedders, transcribers and requests cancels what is under way and
// waits for it; that of a session cancels its request, and does not wait. Where two threads close an object, one of them waits. What was closed
// throws an Error of the kind "handle" from then on. Only moving and destroying an object is for one thread.
#ifndef CACTUS_HPP
#define CACTUS_HPP

#include "cactus.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#if defined(__cpp_lib_jthread)
#define CACTUS_HAS_STOP_TOKEN 1
#endif
#endif

namespace cactus {

/// A call that failed. `what()` says what was expected, what was found, and where.
class Error : public std::runtime_error {
public:
    Error(int32_t code, const std::string &message) : std::runtime_error(message), code_(code) {}

    /// A CACTUS_CODE_...
    int32_t code() const noexcept { return code_; }
    /// Its name, as in "argument".
    const char *kind() const noexcept { return cactus_error_kind(code_); }

    /// The last error of this thread.
    static Error last() {
        cactus_error error{};
        cactus_last_error(&error);
        return Error(error.code, error.message != nullptr ? error.message : "");
    }

private:
    int32_t code_;
};

namespace detail {

inline void check(int code) {
    if (code != 0) throw Error::last();
}

inline std::string take(char *text) {
    std::unique_ptr<char, void (*)(char *)> owned(text, cactus_string_free);
    return text != nullptr ? std::string(text) : std::string();
}

/// A handle that is closed once.
template <typename T, auto Close>
class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.handle_.exchange(nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) {
            close();
            handle_ = other.handle_.exchange(nullptr);
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle() { close(); }

    T *get() const noexcept { return handle_; }
    /// Gives it up, to be closed otherwise.
    T *release() noexcept { return handle_.exchange(nullptr); }
    void close() noexcept {
        if (T *handle = release()) Close(handle);
    }

private:
    std::atomic<T *> handle_{nullptr};
};

/// Throws where a library has another ABI than this program was compiled for, with a message that names the old side.
inline void compare_abi(uint32_t library) {
    if (library == CACTUS_ABI_VERSION) return;
    const char *old = library < CACTUS_ABI_VERSION ? "the library libcactus is older" : "this program is older";
    throw Error(CACTUS_CODE_UNSUPPORTED, std::string("libcactus has ABI ") + std::to_string(library) + ", this program was compiled for " +
                                             std::to_string(CACTUS_ABI_VERSION) + ": " + old);
}

/// A bundle, by the loader of those that do not only write.
inline void *init(const std::string &bundle, const char *documents = nullptr) {
    compare_abi(cactus_abi_version());
    void *handle = cactus_init(bundle.c_str(), documents, documents != nullptr);
    if (handle == nullptr) throw Error::last();
    return handle;
}

inline const char *or_null(const std::string &text) noexcept { return text.empty() ? nullptr : text.c_str(); }

} // namespace detail

/// An event of a request. Texts are valid until the callback returns.
struct Event {
    int32_t kind;
    int32_t code;
    std::string_view text;
    std::string_view json;
    /// Of the event `CONSENT`, and empty otherwise: says whether what it lists may leave. To be called before the callback
    /// returns, which is a no without it.
    std::function<void(bool)> consent = {};

    bool is_last() const noexcept { return kind >= CACTUS_EVENT_KIND_DONE && kind <= CACTUS_EVENT_KIND_FAILED; }
};

using OnEvent = std::function<void(const Event &)>;

/// A request under way. Destroying it cancels what is left of it, and waits.
class Request {
public:
    Request() = default;

    /// The whole result, a JSON object. Throws what the callback threw, or how the request failed.
    std::string wait() {
        char *result = nullptr;
        const int code = cactus_request_wait(handle_.get(), &result);
        if (listener_) {
            std::lock_guard<std::mutex> lock(listener_->mutex);
            if (listener_->thrown) {
                cactus_string_free(result);
                std::rethrow_exception(std::exchange(listener_->thrown, nullptr));
            }
        }
        detail::check(code);
        return detail::take(result);
    }

    /// The next event as JSON, of a request without a callback: none where none came in time, or none will come any more.
    std::optional<std::string> next(int64_t timeout_ms = -1) {
        char *event = nullptr;
        bool over = false;
        detail::check(cactus_request_next(handle_.get(), timeout_ms, &event, &over));
        over_ = over;
        if (event == nullptr) return std::nullopt;
        return detail::take(event);
    }

    /// Whether `next` found that none will come any more.
    bool over() const noexcept { return over_; }

    /// Answers the event `CONSENT` of a request without a callback, before `next` is called again: whether what it lists may leave.
    /// A callback has `Event::consent`.
    void consent(bool yes) { detail::check(cactus_request_consent(handle_.get(), yes)); }

    void cancel() { detail::check(cactus_request_cancel(handle_.get())); }

    /// Cancels what is left of it, and waits until its callback has returned for the last time.
    void close() noexcept {
        handle_.close();
        if (listener_) {
            std::lock_guard<std::mutex> lock(listener_->mutex);
        }
    }

#if defined(CACTUS_HAS_STOP_TOKEN)
    /// Cancels it when `token` asks for a stop.
    void stop_with(std::stop_token token) {
        stop_ = std::make_unique<Stop>(std::move(token), Cancel{handle_.get()});
    }
#endif

    Request(Request &&other) noexcept
        : handle_(std::move(other.handle_)), listener_(std::move(other.listener_)), over_(other.over_.load()) {
#if defined(CACTUS_HAS_STOP_TOKEN)
        stop_ = std::move(other.stop_);
#endif
    }
    Request &operator=(Request &&other) noexcept {
        close();
        handle_ = std::move(other.handle_);
        listener_ = std::move(other.listener_);
        over_ = other.over_.load();
#if defined(CACTUS_HAS_STOP_TOKEN)
        stop_ = std::move(other.stop_);
#endif
        return *this;
    }
    ~Request() { close(); }

private:
    friend class Model;
    friend class Session;
    friend class Transcriber;

    using Handle = detail::Handle<cactus_request, cactus_request_close>;

#if defined(CACTUS_HAS_STOP_TOKEN)
    /// A handle that was closed is none of any other request, so this harms nothing whenever it is called.
    struct Cancel {
        cactus_request *request;
        void operator()() const noexcept { cactus_request_cancel(request); }
    };
    using Stop = std::stop_callback<Cancel>;
#endif

    struct Listener : std::enable_shared_from_this<Listener> {
        OnEvent on_event;
        std::mutex mutex;
        std::condition_variable begun;
        std::exception_ptr thrown;
        /// Once it has begun.
        cactus_request *request = nullptr;
        /// Events that were heard to the end: what a callback wrote is there for whoever locks the mutex after it.
        size_t heard = 0;
    };

    template <typename Start>
    static Request start(OnEvent on_event, Start begin) {
        Request request;
        cactus_request *handle = nullptr;
        if (!on_event) {
            detail::check(begin(nullptr, nullptr, &handle));
            request.handle_ = Handle(handle);
            return request;
        }
        request.listener_ = std::make_shared<Listener>();
        request.listener_->on_event = std::move(on_event);
        detail::check(begin(&Request::hear, request.listener_.get(), &handle));
        request.handle_ = Handle(handle);
        std::lock_guard<std::mutex> lock(request.listener_->mutex);
        request.listener_->request = request.handle_.get();
        request.listener_->begun.notify_all();
        if (request.listener_->thrown) cactus_request_cancel(request.listener_->request);
        return request;
    }

    static void hear(const cactus_event *event, void *user_data) noexcept {
        // The request may be closed inside its own callback.
        const auto listener = static_cast<Listener *>(user_data)->shared_from_this();
        {
            std::lock_guard<std::mutex> lock(listener->mutex);
            if (listener->thrown) return;
        }
        try {
            Event heard{event->kind, event->code, event->text, event->json};
            if (event->kind == CACTUS_EVENT_KIND_CONSENT) {
                heard.consent = [listener = listener.get()](bool yes) {
                    std::unique_lock<std::mutex> lock(listener->mutex);
                    listener->begun.wait(lock, [&] { return listener->request != nullptr; });
                    detail::check(cactus_request_consent(listener->request, yes));
                };
            }
            listener->on_event(heard);
            std::lock_guard<std::mutex> lock(listener->mutex);
            listener->heard++;
        } catch (...) {
            std::lock_guard<std::mutex> lock(listener->mutex);
            listener->thrown = std::current_exception();
            if (listener->request != nullptr) cactus_request_cancel(listener->request);
        }
    }

    Handle handle_;
    std::shared_ptr<Listener> listener_;
    std::atomic<bool> over_{false};
#if defined(CACTUS_HAS_STOP_TOKEN)
    std::unique_ptr<Stop> stop_;
#endif
};

/// A step on the way to a model. Texts are valid until the callback returns.
struct Progress {
    std::string_view stage;
    std::string_view what;
    uint64_t done;
    uint64_t total;
};

/// Gives false to stop.
using OnProgress = std::function<bool(const Progress &)>;

namespace detail {

/// Hears progress, and keeps what the function throws.
class Listening {
public:
    explicit Listening(OnProgress on_progress) : on_progress_(std::move(on_progress)) {}

    cactus_progress_callback callback() const noexcept { return on_progress_ ? &Listening::tell : nullptr; }

    /// Throws what the function threw, or how the call failed.
    void check(int code) const {
        if (thrown_) std::rethrow_exception(thrown_);
        detail::check(code);
    }

private:
    static int tell(const char *stage, const char *what, uint64_t done, uint64_t total, void *user_data) noexcept {
        auto *self = static_cast<Listening *>(user_data);
        try {
            return self->on_progress_(Progress{stage, what, done, total}) ? 0 : 1;
        } catch (...) {
            self->thrown_ = std::current_exception();
            return 1;
        }
    }

    OnProgress on_progress_;
    std::exception_ptr thrown_;
};

} // namespace detail

namespace detail {

/// What a function writes to a buffer, which grows until it fits.
template <typename Write>
std::string into_buffer(Write write, size_t room = size_t{1} << 18) {
    for (size_t size = room; size <= size_t{1} << 28; size <<= 2) {
        // Not a string, which would be filled with zeros.
        const std::unique_ptr<char[]> buffer(new char[size]);
        buffer[0] = 0;
        const int written = write(buffer.get(), size);
        if (written >= 0) return std::string(buffer.get());
        if (written != CACTUS_CODE_BUFFER_TOO_SMALL) break;
    }
    throw Error::last();
}

} // namespace detail

/// The folder of a bundle of the model `name`, which is downloaded and converted where need be, and not loaded.
inline std::string prepare(const std::string &name, const std::string &options_json = {}, OnProgress on_progress = {}) {
    detail::compare_abi(cactus_abi_version());
    detail::Listening listening(std::move(on_progress));
    char *path = nullptr;
    listening.check(cactus_model_prepare(name.c_str(), detail::or_null(options_json), listening.callback(), &listening, &path));
    return detail::take(path);
}

/// A loaded model. Any number of threads may use it at once.
class Model {
public:
    /// Loads a model: a bundle, a GGUF file, a Hugging Face folder or id, or a known name.
    explicit Model(const std::string &name, const std::string &options_json = {}, OnProgress on_progress = {}) {
        detail::compare_abi(cactus_abi_version());
        detail::Listening listening(std::move(on_progress));
        cactus_model *handle = nullptr;
        listening.check(cactus_model_load(name.c_str(), detail::or_null(options_json), listening.callback(), &listening, &handle));
        handle_ = Handle(handle);
    }

    /// Loads the bundle in a folder with a folder of documents, which it answers from, and which `find` searches.
    static Model with_documents(const std::string &bundle, const std::string &documents) {
        return Model(Handle(static_cast<cactus_model *>(detail::init(bundle, documents.c_str()))));
    }

    /// Begins a request. Without `on_event`, `Request::next` gives the events.
    Request start(const std::string &request_json, OnEvent on_event = {}) const {
        return Request::start(std::move(on_event), [&](auto callback, void *user_data, cactus_request **place) {
            return cactus_request_start(handle_.get(), request_json.c_str(), callback, user_data, place);
        });
    }

    /// Asks, waits, and gives the whole result.
    std::string respond(const std::string &request_json) const { return start(request_json).wait(); }

    /// The pieces of the documents that say most about `text`, the best first, as JSON.
    std::string find(const std::string &text, size_t count = 5) const {
        return detail::into_buffer([&](char *buffer, size_t size) {
            return cactus_rag_query(handle_.get(), text.c_str(), buffer, size, count);
        });
    }

    /// Token ids of a text.
    std::vector<uint32_t> tokenize(const std::string &text, bool special = false) const {
        uint32_t *tokens = nullptr;
        size_t count = 0;
        detail::check(cactus_model_tokenize(handle_.get(), text.c_str(), special, &tokens, &count));
        const auto free = [count](uint32_t *owned) { cactus_tokens_free(owned, count); };
        std::unique_ptr<uint32_t, decltype(free)> owned(tokens, free);
        return std::vector<uint32_t>(tokens, tokens + count);
    }

    /// The text of token ids.
    std::string detokenize(const std::vector<uint32_t> &tokens, bool special = false) const {
        char *text = nullptr;
        detail::check(cactus_model_detokenize(handle_.get(), tokens.data(), tokens.size(), special, &text));
        return detail::take(text);
    }

    /// How likely the tokens from `first` on are, as JSON.
    std::string score(const std::vector<uint32_t> &tokens, size_t first = 1) const {
        char *score = nullptr;
        detail::check(cactus_model_score(handle_.get(), tokens.data(), tokens.size(), first, &score));
        return detail::take(score);
    }

    /// What is known of the model, as JSON.
    std::string info() const {
        char *info = nullptr;
        detail::check(cactus_model_info(handle_.get(), &info));
        return detail::take(info);
    }

    /// Gives it a policy, as the text of a policy file (not its path) and options as JSON, such as `{"keys": {"house": "..."}}`; with
    /// both empty it answers alone again. A key in the options goes to its target's host alone, and is kept in memory alone.
    void set_policy(const std::string &policy_toml, const std::string &options_json = {}) {
        detail::check(cactus_model_set_policy(handle_.get(), detail::or_null(policy_toml), detail::or_null(options_json)));
    }

    void set_threads(size_t threads, size_t decode_threads) {
        detail::check(cactus_model_set_threads(handle_.get(), threads, decode_threads));
    }

    void close() noexcept { handle_.close(); }
    cactus_model *get() const noexcept { return handle_.get(); }

private:
    using Handle = detail::Handle<cactus_model, cactus_model_close>;
    explicit Model(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

/// A conversation.
class Session {
public:
    explicit Session(const Model &model, const std::string &defaults_json = {}) {
        cactus_session *handle = nullptr;
        detail::check(cactus_session_open(model.get(), detail::or_null(defaults_json), &handle));
        handle_ = Handle(handle);
    }

    /// Adds to the conversation, waits for the answer, and gives the whole result.
    std::string respond(const std::string &request_json) { return send(request_json).wait(); }

    /// Adds to the conversation and answers it: a JSON string, or an object as for `Model::start`.
    Request send(const std::string &request_json, OnEvent on_event = {}) {
        return Request::start(std::move(on_event), [&](auto callback, void *user_data, cactus_request **place) {
            return cactus_session_send(handle_.get(), request_json.c_str(), callback, user_data, place);
        });
    }

    /// The messages so far, a JSON array.
    std::string messages() const {
        char *messages = nullptr;
        detail::check(cactus_session_messages(handle_.get(), &messages));
        return detail::take(messages);
    }

    void close() noexcept { handle_.close(); }

private:
    using Handle = detail::Handle<cactus_session, cactus_session_close>;
    Handle handle_;
};

/// A bundle that makes vectors.
class Embedder {
public:
    explicit Embedder(const std::string &bundle) : handle_(detail::init(bundle)) {}

    /// The vector of a text, of the length 1 with `normalize`.
    std::vector<float> embed(const std::string &text, bool normalize = true) const {
        return vector([&](float *place, size_t bytes, size_t *count) {
            return cactus_embed(handle_.get(), text.c_str(), place, bytes, count, normalize);
        });
    }

    /// The vectors of texts, in their order.
    std::vector<std::vector<float>> embed(const std::vector<std::string> &texts, bool normalize = true) const {
        std::vector<std::vector<float>> vectors;
        for (const auto &text : texts) vectors.push_back(embed(text, normalize));
        return vectors;
    }

    /// The vector of a PNG, JPEG or WebP file.
    std::vector<float> embed_image(const std::string &path) const {
        return vector([&](float *place, size_t bytes, size_t *count) {
            return cactus_image_embed(handle_.get(), path.c_str(), place, bytes, count);
        });
    }

    void close() noexcept { handle_.close(); }

private:
    template <typename Write>
    static std::vector<float> vector(Write write) {
        size_t count = 0;
        std::vector<float> floats(1024);
        int written = write(floats.data(), floats.size() * sizeof(float), &count);
        if (written == CACTUS_CODE_BUFFER_TOO_SMALL) {
            floats.resize(count);
            written = write(floats.data(), floats.size() * sizeof(float), &count);
        }
        if (written < 0) throw Error::last();
        floats.resize(static_cast<size_t>(written));
        return floats;
    }

    detail::Handle<void, cactus_destroy> handle_;
};

/// A document of an index.
struct Document {
    int id;
    std::string text;
    std::vector<float> vector;
    /// A text that belongs to it, such as a JSON object; filters know it as `metadata`.
    std::string metadata = {};
};

/// A document that was found, and how near it is: the cosine.
struct Hit {
    int id;
    float score;
};

/// An index of vectors in a folder.
class Index {
public:
    Index(const std::string &folder, size_t dimension) : dimension_(dimension), handle_(open(folder, dimension)) {}

    /// Adds all of them, or none.
    void add(const std::vector<Document> &documents) {
        std::vector<int> ids;
        std::vector<const char *> texts, metadatas;
        std::vector<const float *> vectors;
        for (const auto &document : documents) {
            checked(document.vector);
            ids.push_back(document.id);
            texts.push_back(document.text.c_str());
            metadatas.push_back(detail::or_null(document.metadata));
            vectors.push_back(document.vector.data());
        }
        checked(cactus_index_add(handle_.get(), ids.data(), texts.data(), metadatas.data(), vectors.data(), ids.size(), dimension_));
    }

    /// Documents by their ids. One that is not there is an error.
    std::vector<Document> get(const std::vector<int> &ids) const {
        const size_t count = ids.size();
        std::vector<size_t> texts(count, 1024), metadatas(count, 1024), floats(count, dimension_);
        // The sizes that were needed are known after the first call.
        for (int round = 0;; round++) {
            std::vector<std::string> text(count), metadata(count);
            std::vector<std::vector<float>> vector(count);
            std::vector<char *> text_places, metadata_places;
            std::vector<float *> vector_places;
            for (size_t i = 0; i < count; i++) {
                text[i].resize(texts[i]);
                metadata[i].resize(metadatas[i]);
                vector[i].resize(floats[i]);
                text_places.push_back(text[i].data());
                metadata_places.push_back(metadata[i].data());
                vector_places.push_back(vector[i].data());
            }
            const int code = cactus_index_get(handle_.get(), ids.data(), count, text_places.data(), texts.data(), metadata_places.data(),
                                              metadatas.data(), vector_places.data(), floats.data());
            // Another program may make a text longer between two calls.
            if (code == CACTUS_CODE_BUFFER_TOO_SMALL && round < 4) continue;
            checked(code);
            std::vector<Document> documents;
            for (size_t i = 0; i < count; i++) {
                documents.push_back({ids[i], text[i].c_str(), std::move(vector[i]), metadata[i].c_str()});
            }
            return documents;
        }
    }

    /// The nearest documents, the best first. Options are JSON: `top_k` (10), `score_threshold`, `filter`.
    std::vector<Hit> query(const std::vector<float> &vector, const std::string &options_json = {}) const {
        checked(vector);
        size_t room = 16;
        for (;;) {
            std::vector<int> ids(room);
            std::vector<float> scores(room);
            int *id_place = ids.data();
            float *score_place = scores.data();
            const float *place = vector.data();
            size_t found = room, scored = room;
            checked(cactus_index_query(handle_.get(), &place, 1, dimension_, detail::or_null(options_json), &id_place, &found,
                                       &score_place, &scored));
            // There may be more where all the room is used.
            if (found == room && room < size_t{1} << 20) {
                room *= 4;
                continue;
            }
            std::vector<Hit> hits;
            for (size_t i = 0; i < found; i++) hits.push_back({ids[i], scores[i]});
            return hits;
        }
    }

    /// Deletes documents; ids that are not there are left out.
    void remove(const std::vector<int> &ids) { checked(cactus_index_delete(handle_.get(), ids.data(), ids.size())); }

    /// Writes the file anew, without what was deleted.
    void compact() { checked(cactus_index_compact(handle_.get())); }

    void close() noexcept { handle_.close(); }

private:
    static void *open(const std::string &folder, size_t dimension) {
        detail::compare_abi(cactus_abi_version());
        void *handle = cactus_index_init(folder.c_str(), dimension);
        if (handle == nullptr) throw Error::last();
        return handle;
    }
    static void checked(int code) {
        if (code != 0) throw Error::last();
    }
    void checked(const std::vector<float> &vector) const {
        if (vector.size() == dimension_) return;
        throw Error(CACTUS_CODE_ARGUMENT, "a vector has " + std::to_string(vector.size()) + " numbers, those of the index have " +
                                              std::to_string(dimension_));
    }

    size_t dimension_;
    detail::Handle<void, cactus_index_destroy> handle_;
};

/// Samples: mono, 16,000 a second.
using Samples = std::vector<int16_t>;

/// Live speech. Each result is JSON: `confirmed` stays, `pending` may change, `events` happened.
class LiveTranscription {
public:
    /// Takes the next samples.
    std::string push(const int16_t *samples, size_t count) {
        const auto *bytes = reinterpret_cast<const uint8_t *>(samples);
        return detail::into_buffer([&, first = true](char *buffer, size_t size) mutable {
            // What did not fit is kept, and comes without sound.
            const bool with = std::exchange(first, false);
            return cactus_stream_transcribe_process(handle_.get(), with ? bytes : nullptr, with ? count * 2 : 0, buffer, size);
        });
    }
    std::string push(const Samples &samples) { return push(samples.data(), samples.size()); }

    /// The sound is over: what was said last becomes final. It is closed then.
    std::string finish() {
        // The first call closes it, so there has to be room.
        constexpr size_t size = size_t{1} << 24;
        const std::unique_ptr<char[]> buffer(new char[size]);
        buffer[0] = 0;
        if (cactus_stream_transcribe_stop(handle_.release(), buffer.get(), size) < 0) throw Error::last();
        return std::string(buffer.get());
    }

    /// Forgets what was said and is not final.
    void close() noexcept { handle_.close(); }

private:
    friend class Transcriber;
    explicit LiveTranscription(void *handle) noexcept : handle_(handle) {}

    static void stop(void *handle) noexcept { cactus_stream_transcribe_stop(handle, nullptr, 0); }
    detail::Handle<void, &LiveTranscription::stop> handle_;
};

/// A bundle that writes down what is said, or that finds speech. Results are JSON.
class Transcriber {
public:
    explicit Transcriber(const std::string &bundle) : handle_(detail::init(bundle)) {}

    /// What is said in a file. Options are JSON: `language`, `translate`, `temperature`, `custom_vocabulary` and others.
    std::string transcribe(const std::string &file, const std::string &options_json = {}) const {
        return hear(&file, nullptr, options_json, transcribing);
    }
    std::string transcribe(const Samples &samples, const std::string &options_json = {}) const {
        return hear(nullptr, &samples, options_json, transcribing);
    }

    /// Begins to write down what is said, as a request: its texts are segments, with `start` and `end` in `json`, and it is cancelled alone.
    /// Options may have `prompt`, too.
    Request start(const std::string &file, const std::string &options_json = {}, OnEvent on_event = {}) const {
        return begin(file.c_str(), nullptr, options_json, std::move(on_event));
    }
    Request start(const Samples &samples, const std::string &options_json = {}, OnEvent on_event = {}) const {
        return begin(nullptr, &samples, options_json, std::move(on_event));
    }

    /// Which language is spoken at the beginning.
    std::string detect_language(const std::string &file) const { return hear(&file, nullptr, {}, cactus_detect_language); }
    std::string detect_language(const Samples &samples) const { return hear(nullptr, &samples, {}, cactus_detect_language); }

    /// Where somebody speaks, in samples, of a bundle that finds speech.
    std::string speech(const std::string &file, const std::string &options_json = {}) const {
        return hear(&file, nullptr, options_json, cactus_vad);
    }
    std::string speech(const Samples &samples, const std::string &options_json = {}) const {
        return hear(nullptr, &samples, options_json, cactus_vad);
    }

    /// Begins to listen. The option `vad` names a bundle that finds speech.
    LiveTranscription live(const std::string &options_json = {}) const {
        void *stream = cactus_stream_transcribe_start(handle_.get(), detail::or_null(options_json));
        if (stream == nullptr) throw Error::last();
        return LiveTranscription(stream);
    }

    /// Who else may hear what is doubtful, as `Model::set_policy`.
    void set_policy(const std::string &policy_toml, const std::string &options_json = {}) {
        detail::check(cactus_model_set_policy(static_cast<cactus_model *>(handle_.get()), detail::or_null(policy_toml),
                                              detail::or_null(options_json)));
    }

    /// Ends what is under way.
    void cancel() const noexcept { cactus_stop(handle_.get()); }

    void close() noexcept { handle_.close(); }

private:
    Request begin(const char *file, const Samples *samples, const std::string &options, OnEvent on_event) const {
        return Request::start(std::move(on_event), [&](auto callback, void *user_data, cactus_request **place) {
            return cactus_transcription_start(handle_.get(), file, samples != nullptr ? reinterpret_cast<const uint8_t *>(samples->data()) : nullptr,
                                              samples != nullptr ? samples->size() * 2 : 0, detail::or_null(options), callback, user_data, place);
        });
    }

    static int transcribing(void *model, const char *file, char *buffer, size_t size, const char *options, const uint8_t *pcm,
                            size_t bytes) {
        return cactus_transcribe(model, file, nullptr, buffer, size, options, nullptr, nullptr, pcm, bytes);
    }

    /// Room for many hours, as what does not fit is heard again from the beginning.
    static constexpr size_t room = size_t{1} << 24;

    template <typename Function>
    std::string hear(const std::string *file, const Samples *samples, const std::string &options, Function function) const {
        return detail::into_buffer([&](char *buffer, size_t size) {
            return function(handle_.get(), file != nullptr ? file->c_str() : nullptr, buffer, size, detail::or_null(options),
                            samples != nullptr ? reinterpret_cast<const uint8_t *>(samples->data()) : nullptr,
                            samples != nullptr ? samples->size() * 2 : 0);
        }, room);
    }

    detail::Handle<void, cactus_destroy> handle_;
};

inline std::string version() { return cactus_version(); }

/// Whether the library has the ABI that this program was compiled for.
inline bool is_compatible() noexcept { return cactus_abi_version() == CACTUS_ABI_VERSION; }

/// Throws where it has not, with a message that names the old side. Whatever loads or opens something does so, too.
inline void require_compatible() { detail::compare_abi(cactus_abi_version()); }

/// Whether a bundle can be used, and why not, as JSON with `usable`. With `verify` all of it is read.
inline std::string check_bundle(const std::string &path, bool verify = false) {
    char *report = nullptr;
    const int code = cactus_check_bundle(path.c_str(), verify, &report);
    if (report == nullptr) detail::check(code);
    return detail::take(report);
}

/// Memory is short: every open model forgets what it keeps of earlier prompts.
inline void memory_pressure() noexcept { cactus_memory_pressure(); }

} // namespace cactus

#endif // CACTUS_HPP
