#include "call.hpp"

#include "pool.hpp"
#include "port.hpp"

namespace cactus::js {

namespace {

std::string or_empty(const char *text) { return text == nullptr ? std::string() : std::string(text); }

/// Has a function of JavaScript called, soon.
void tell(Listener *listener, std::vector<Value> values) {
    if (const auto port = listener->port.lock()) {
        port->post([listener = listener->shared_from_this(), values = std::move(values)](Port &port) {
            port.call_listener(*listener, values);
        });
    }
}

} // namespace

Call::~Call() {
    const auto *handle = std::get_if<Handle>(&result);
    if (handle == nullptr || handle->pointer == nullptr) return;
    // Closing waits, and this may be the thread of JavaScript.
    Pool::get().run([&symbols = symbols_, handle = *handle] { handle.close(symbols, handle.pointer); });
}

bool Call::check(int code) {
    if (code >= 0) return true;
    cactus_error error{};
    symbols_.cactus_last_error(&error);
    failure = Failure{error.code, or_empty(error.kind), or_empty(error.message)};
    return false;
}

void Call::give_owned(char *text) {
    result = or_empty(text);
    symbols_.cactus_string_free(text);
}

void Call::give_ids(uint32_t *ids, size_t count) {
    result = Ids(ids, ids + count);
    symbols_.cactus_tokens_free(ids, count);
}

void Call::keep_log_listener(size_t i) const {
    // Another thread may be inside of an earlier one, so none is ever let go. There are few.
    static std::mutex mutex;
    static auto *kept = new std::vector<std::shared_ptr<Listener>>();
    const auto *listener = std::get_if<std::shared_ptr<Listener>>(&arguments_[i]);
    if (listener == nullptr) return;
    std::lock_guard<std::mutex> lock(mutex);
    kept->push_back(*listener);
}

int Call::on_progress(const char *stage, const char *what, uint64_t done, uint64_t total, void *user_data) {
    auto *listener = static_cast<Listener *>(user_data);
    tell(listener, {or_empty(stage), or_empty(what), static_cast<double>(done), static_cast<double>(total)});
    return listener->stops ? 1 : 0;
}

void Call::on_token(const char *text, uint32_t token, void *user_data) {
    tell(static_cast<Listener *>(user_data), {or_empty(text), static_cast<double>(token)});
}

void Call::on_log(int level, const char *component, const char *message, void *user_data) {
    tell(static_cast<Listener *>(user_data), {static_cast<double>(level), or_empty(component), or_empty(message)});
}

Texts::Texts(Call &call, size_t argument, size_t count) {
    const Strings &strings = call.strings(argument);
    if (strings.size() != count) {
        call.fail(Failure::argument("expected as many texts as ids, " + std::to_string(count) + ", found " +
                                    std::to_string(strings.size())));
        return;
    }
    for (const auto &string : strings) pointers_.push_back(string ? string->c_str() : nullptr);
}

Rows::Rows(Call &call, size_t argument, size_t dimension_argument, size_t count) {
    const Floats &floats = call.floats(argument);
    const auto dimension = call.number<size_t>(dimension_argument);
    if (dimension == 0 || floats.size() % dimension != 0 || floats.size() / dimension != count) {
        call.fail(Failure::argument("expected " + std::to_string(count) + " vectors of " + std::to_string(dimension) +
                                    " numbers, found " + std::to_string(floats.size()) + " numbers"));
        return;
    }
    for (size_t i = 0; i < count; i++) pointers_.push_back(floats.data() + i * dimension);
}

} // namespace cactus::js
