// cactus.hpp: C++17 over cactus.h. Header only; link with libcactus.
//
// Models, sessions and requests close themselves, and can be moved. Errors are exceptions of the type cactus::Error. What a callback
// throws is kept, stops the request, and is thrown again where the request is waited for. JSON stays text: use the JSON library that
// the rest of your program uses.
#ifndef CACTUS_HPP
#define CACTUS_HPP

#include "cactus.h"

#include <condition_variable>
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
template <typename T, int (*Close)(T *)>
class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) {
            close();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle() { close(); }

    T *get() const noexcept { return handle_; }
    T **place() noexcept { return &handle_; }
    void close() noexcept {
        if (handle_ != nullptr) Close(std::exchange(handle_, nullptr));
    }

private:
    T *handle_ = nullptr;
};

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
        detail::check(cactus_request_next(handle_.get(), timeout_ms, &event, &over_));
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
        listener_.reset();
    }

    Request(Request &&) noexcept = default;
    Request &operator=(Request &&other) noexcept {
        close();
        handle_ = std::move(other.handle_);
        listener_ = std::move(other.listener_);
        over_ = other.over_;
        return *this;
    }
    ~Request() { close(); }

private:
    friend class Model;
    friend class Session;

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
        if (!on_event) {
            detail::check(begin(nullptr, nullptr, request.handle_.place()));
            return request;
        }
        request.listener_ = std::make_shared<Listener>();
        request.listener_->on_event = std::move(on_event);
        detail::check(begin(&Request::hear, request.listener_.get(), request.handle_.place()));
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

    detail::Handle<cactus_request, cactus_request_close> handle_;
    std::shared_ptr<Listener> listener_;
    bool over_ = false;
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

inline const char *or_null(const std::string &text) noexcept { return text.empty() ? nullptr : text.c_str(); }

} // namespace detail

/// The folder of a bundle of the model `name`, which is downloaded and converted where need be, and not loaded.
inline std::string prepare(const std::string &name, const std::string &options_json = {}, OnProgress on_progress = {}) {
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
        detail::Listening listening(std::move(on_progress));
        listening.check(cactus_model_load(name.c_str(), detail::or_null(options_json), listening.callback(), &listening,
                                          handle_.place()));
    }

    /// Begins a request. Without `on_event`, `Request::next` gives the events.
    Request start(const std::string &request_json, OnEvent on_event = {}) const {
        return Request::start(std::move(on_event), [&](auto callback, void *user_data, cactus_request **place) {
            return cactus_request_start(handle_.get(), request_json.c_str(), callback, user_data, place);
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
    detail::Handle<cactus_model, cactus_model_close> handle_;
};

/// A conversation.
class Session {
public:
    explicit Session(const Model &model, const std::string &defaults_json = {}) {
        detail::check(cactus_session_open(model.get(), detail::or_null(defaults_json), handle_.place()));
    }

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
    detail::Handle<cactus_session, cactus_session_close> handle_;
};

inline std::string version() { return cactus_version(); }

/// Whether the library has the ABI that this program was compiled for.
inline bool is_compatible() noexcept { return cactus_abi_version() == CACTUS_ABI_VERSION; }

} // namespace cactus

#endif // CACTUS_HPP
