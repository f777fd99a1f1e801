// One call of libcactus, with values of no host: arguments come as `Value`s, and a `Value` or a `Failure` is left.
//
// A host (Node's addon, React Native's module) reads and makes its own values, and says how a function of JavaScript is called. It
// knows no function of the library; `raw.cpp`, which is generated, and `by_hand.cpp` know no host.
#ifndef CACTUS_JS_CALL_HPP
#define CACTUS_JS_CALL_HPP

#include "symbols.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cactus::js {

class Port;

/// Why a call failed, as the library says it.
struct Failure {
    int32_t code;
    std::string kind;
    std::string message;

    static Failure argument(std::string message) { return {CACTUS_CODE_ARGUMENT, "argument", std::move(message)}; }
    static Failure system(std::string message) { return {CACTUS_CODE_SYSTEM, "system", std::move(message)}; }
};

/// Something of the library that is open, and how it is closed where nobody does.
struct Handle {
    void *pointer = nullptr;
    void (*close)(const Symbols &symbols, void *pointer) = nullptr;
};

/// A function of JavaScript that the library may call, from any thread. It runs later, on the thread of JavaScript.
struct Listener : std::enable_shared_from_this<Listener> {
    std::weak_ptr<Port> port;
    /// Its number in the port.
    uint64_t function = 0;
    /// It gave false: what it listens to has to stop.
    std::atomic<bool> stops{false};
};

struct Fields;
using Bytes = std::vector<uint8_t>;
using Ids = std::vector<uint32_t>;
using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;
using Strings = std::vector<std::optional<std::string>>;

/// A value of JavaScript.
using Value = std::variant<std::monostate, bool, double, std::string, Bytes, Ids, Ints, Floats, Strings, Handle,
                           std::shared_ptr<Listener>, std::shared_ptr<Fields>>;

/// An object with names.
struct Fields {
    std::vector<std::pair<const char *, Value>> all;
};

class Call;

/// A function of the library as JavaScript sees it.
struct Entry {
    const char *name;
    /// A letter for each argument: text or null, bool, number, handle, u: Uint32Array, i: Int32Array, f: Float32Array, p: bytes of
    /// sound or null, a: array of texts or nulls, c: function or null.
    const char *arguments;
    /// It returns at once, and is called on the thread of JavaScript.
    bool is_at_once;
    /// It closes the handle that is its first argument.
    bool closes;
    void (*run)(Call &call);
};

/// All of them; made by `cargo xtask sdks`.
extern const Entry ENTRIES[];
extern const size_t ENTRY_COUNT;

/// A call under way. What it gives and nobody takes is closed with it.
class Call {
public:
    Call(const Symbols &symbols, const Entry &entry, std::vector<Value> arguments)
        : symbols_(symbols), entry_(entry), arguments_(std::move(arguments)) {}
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call();

    /// Calls the function.
    void run() {
        if (!failure) entry_.run(*this);
    }

    const Symbols &c() const noexcept { return symbols_; }
    const Entry &entry() const noexcept { return entry_; }
    std::vector<Value> &arguments() noexcept { return arguments_; }

    // Arguments. A host gives each of the type that its letter says, so nothing is checked again.

    const char *text(size_t i) const {
        const auto *text = std::get_if<std::string>(&arguments_[i]);
        return text == nullptr ? nullptr : text->c_str();
    }
    bool flag(size_t i) const { return std::get<bool>(arguments_[i]); }
    void *handle(size_t i) const { return std::get<Handle>(arguments_[i]).pointer; }
    const Ids &ids(size_t i) const { return std::get<Ids>(arguments_[i]); }
    const Ints &ints(size_t i) const { return std::get<Ints>(arguments_[i]); }
    const Floats &floats(size_t i) const { return std::get<Floats>(arguments_[i]); }
    const Strings &strings(size_t i) const { return std::get<Strings>(arguments_[i]); }
    const uint8_t *bytes(size_t i) const {
        const auto *bytes = std::get_if<Bytes>(&arguments_[i]);
        if (bytes == nullptr) return nullptr;
        // No sound is not the same as none given.
        static const uint8_t nothing = 0;
        return bytes->empty() ? &nothing : bytes->data();
    }
    size_t bytes_count(size_t i) const {
        const auto *bytes = std::get_if<Bytes>(&arguments_[i]);
        return bytes == nullptr ? 0 : bytes->size();
    }
    /// What no `T` can hold becomes what is nearest, and the library refuses it.
    template <typename T> T number(size_t i) const { return nearest<T>(std::get<double>(arguments_[i])); }

    cactus_progress_callback progress(size_t i) const { return listener(i) == nullptr ? nullptr : on_progress; }
    cactus_token_callback tokens(size_t i) const { return listener(i) == nullptr ? nullptr : on_token; }
    cactus_log_callback_t log(size_t i) const { return listener(i) == nullptr ? nullptr : on_log; }
    Listener *listener(size_t i) const {
        const auto *listener = std::get_if<std::shared_ptr<Listener>>(&arguments_[i]);
        return listener == nullptr ? nullptr : listener->get();
    }
    /// Keeps the listener of the log until there is another.
    void keep_log_listener(size_t i) const;

    // Results.

    /// Whether the library did it; else takes over why not.
    bool check(int code);
    void fail(Failure why) { failure = std::move(why); }
    bool has_failed() const noexcept { return failure.has_value(); }
    void give(Value value) { result = std::move(value); }
    void give_text(const char *text) { result = std::string(text == nullptr ? "" : text); }
    void give_number(double number) { result = number; }
    void give_owned(char *text);
    void give_ids(uint32_t *ids, size_t count);
    void give_handle(void *pointer, void (*close)(const Symbols &, void *)) { result = Handle{pointer, close}; }

    Value result;
    std::optional<Failure> failure;

private:
    template <typename T> static T nearest(double number);

    static int on_progress(const char *stage, const char *what, uint64_t done, uint64_t total, void *listener);
    static void on_token(const char *text, uint32_t token, void *listener);
    static void on_log(int level, const char *component, const char *message, void *listener);

    const Symbols &symbols_;
    const Entry &entry_;
    std::vector<Value> arguments_;
};

template <> inline size_t Call::nearest<size_t>(double number) {
    if (!(number > 0)) return 0;
    return number < 9007199254740992.0 && number < static_cast<double>(SIZE_MAX) ? static_cast<size_t>(number) : SIZE_MAX;
}

template <> inline int32_t Call::nearest<int32_t>(double number) {
    if (!(number > -2147483648.0)) return number <= -2147483648.0 ? INT32_MIN : 0;
    return number < 2147483647.0 ? static_cast<int32_t>(number) : INT32_MAX;
}

/// Pointers to texts, for the time of a call.
class Texts {
public:
    Texts(Call &call, size_t argument, size_t count);
    const char *const *data() const noexcept { return pointers_.data(); }

private:
    std::vector<const char *> pointers_;
};

/// Pointers to vectors that stand one behind the other, for the time of a call.
class Rows {
public:
    Rows(Call &call, size_t argument, size_t dimension_argument, size_t count);
    const float *const *data() const noexcept { return pointers_.data(); }

private:
    std::vector<const float *> pointers_;
};

/// Room for a result of the public functions. Pages that are not written take no memory.
class TextBuffer {
public:
    static constexpr size_t BYTES = size_t{16} << 20;

    explicit TextBuffer(Call &call) : call_(call), place_(static_cast<char *>(std::malloc(BYTES))) {}
    TextBuffer(const TextBuffer &) = delete;
    TextBuffer &operator=(const TextBuffer &) = delete;
    ~TextBuffer() { std::free(place_); }

    char *place() const noexcept { return place_; }
    size_t bytes() const noexcept { return place_ == nullptr ? 0 : BYTES; }
    void tried(int code) {
        if (call_.check(code)) call_.give(std::string(place_));
    }
    bool again() const noexcept { return false; }

private:
    Call &call_;
    char *place_;
};

/// Room for a vector; as much as it needs at the second try.
class FloatBuffer {
public:
    explicit FloatBuffer(Call &call) : call_(call), floats_(4096) {}

    float *place() noexcept { return floats_.data(); }
    size_t bytes() const noexcept { return floats_.size() * sizeof(float); }
    size_t *dim() noexcept { return &dim_; }
    void tried(int code) {
        again_ = code == CACTUS_CODE_BUFFER_TOO_SMALL && dim_ > floats_.size();
        if (again_) {
            floats_.resize(dim_);
        } else if (call_.check(code)) {
            floats_.resize(dim_);
            call_.give(std::move(floats_));
        }
    }
    bool again() const noexcept { return again_; }

private:
    Call &call_;
    Floats floats_;
    size_t dim_ = 0;
    bool again_ = false;
};

void cactus_request_next_by_hand(Call &call);
void cactus_stream_transcribe_stop_by_hand(Call &call);
void cactus_index_get_by_hand(Call &call);
void cactus_index_query_by_hand(Call &call);

} // namespace cactus::js

#endif
