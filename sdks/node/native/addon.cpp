// Node's addon: values of Node-API from and to `Value`s, and promises for calls that wait. Bun and Deno load it, too.
//
// `open(path)` gives an object with all functions of `raw.cpp`, which is a `Native` of `src/native.ts`.

#include "library.hpp"
#include "port.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

#define NAPI_VERSION 8
#include <node_api.h>

namespace cactus::js {

namespace {

/// A call of Node-API that failed, with an exception pending or without.
struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(napi_status status, const char *what) {
    if (status != napi_ok) throw Broken(what);
}

napi_value null_of(napi_env env) {
    napi_value value;
    check(napi_get_null(env, &value), "null");
    return value;
}

napi_value text_of(napi_env env, const std::string &text) {
    napi_value value;
    check(napi_create_string_utf8(env, text.data(), text.size(), &value), "a text");
    return value;
}

/// An `Error` with the code and kind of the library.
napi_value error_of(napi_env env, const Failure &failure) {
    napi_value error, code;
    check(napi_create_error(env, nullptr, text_of(env, failure.message), &error), "an error");
    check(napi_create_int32(env, failure.code, &code), "a code");
    check(napi_set_named_property(env, error, "code", code), "a code");
    check(napi_set_named_property(env, error, "kind", text_of(env, failure.kind)), "a kind");
    return error;
}

template <typename T> napi_value array_of(napi_env env, napi_typedarray_type type, const std::vector<T> &numbers) {
    void *place = nullptr;
    napi_value buffer, array;
    check(napi_create_arraybuffer(env, numbers.size() * sizeof(T), &place, &buffer), "a buffer");
    if (!numbers.empty()) std::memcpy(place, numbers.data(), numbers.size() * sizeof(T));
    check(napi_create_typedarray(env, type, numbers.size(), buffer, 0, &array), "an array");
    return array;
}

class NodePort;

/// A function of the object that `open` gives.
struct Bound {
    NodePort *port;
    const Entry *entry;
};

napi_value value_of(napi_env env, NodePort &port, Value &value);

/// A thread of JavaScript: the main one, or a worker's.
class NodePort final : public Port {
public:
    NodePort(napi_env env, const Symbols &symbols) : Port(symbols), env_(env) {
        for (size_t i = 0; i < ENTRY_COUNT; i++) bound_.push_back({this, &ENTRIES[i]});
    }

    /// Its functions, which live as long as the environment.
    const std::vector<Bound> &bound() const noexcept { return bound_; }

    /// Begins to listen to other threads, until the environment ends.
    void open() {
        napi_value name = text_of(env_, "cactus");
        check(napi_create_threadsafe_function(env_, nullptr, nullptr, name, 0, 1, nullptr, nullptr, this, &NodePort::woken, &wakes_),
              "a function for other threads");
        check(napi_unref_threadsafe_function(env_, wakes_), "a function for other threads");
        itself_ = std::static_pointer_cast<NodePort>(shared_from_this());
        check(napi_add_env_cleanup_hook(env_, &NodePort::env_ends, this), "a hook");
    }

    void call_listener(Listener &listener, const std::vector<Value> &values) override {
        const auto found = functions_.find(listener.function);
        if (found == functions_.end()) return;
        napi_value function, undefined, result;
        std::vector<napi_value> arguments;
        check(napi_get_reference_value(env_, found->second, &function), "a function");
        check(napi_get_undefined(env_, &undefined), "undefined");
        for (Value value : values) arguments.push_back(value_of(env_, *this, value));
        if (napi_call_function(env_, undefined, function, arguments.size(), arguments.data(), &result) != napi_ok) {
            // The SDK's functions do not throw; whoever uses this layer alone gets what it was for stopped.
            napi_value thrown;
            napi_get_and_clear_last_exception(env_, &thrown);
            listener.stops = true;
            return;
        }
        bool goes_on = true;
        if (napi_get_value_bool(env_, result, &goes_on) == napi_ok && !goes_on) listener.stops = true;
    }

    uint64_t keep_function(napi_value function) {
        napi_ref reference;
        check(napi_create_reference(env_, function, 1, &reference), "a reference");
        functions_.emplace(++last_function_, reference);
        return last_function_;
    }

    uint64_t keep_deferred(napi_deferred deferred) {
        deferred_.emplace(++last_deferred_, deferred);
        return last_deferred_;
    }

    /// Settles a promise.
    void settle(uint64_t number, Call &call) {
        const auto found = deferred_.find(number);
        if (found == deferred_.end()) return;
        const napi_deferred deferred = found->second;
        deferred_.erase(found);
        if (call.failure) {
            check(napi_reject_deferred(env_, deferred, error_of(env_, *call.failure)), "a promise");
        } else {
            check(napi_resolve_deferred(env_, deferred, value_of(env_, *this, call.result)), "a promise");
        }
    }

protected:
    void wake() override { napi_call_threadsafe_function(wakes_, nullptr, napi_tsfn_nonblocking); }

    void set_busy(bool is_busy) override {
        is_busy ? napi_ref_threadsafe_function(env_, wakes_) : napi_unref_threadsafe_function(env_, wakes_);
    }

    void forget_listener(uint64_t function) override {
        const auto found = functions_.find(function);
        if (found == functions_.end()) return;
        napi_delete_reference(env_, found->second);
        functions_.erase(found);
    }

private:
    static void woken(napi_env env, napi_value, void *context, void *) {
        // Without an environment the process is about to end.
        if (env == nullptr) return;
        static_cast<NodePort *>(context)->drain();
    }

    static void env_ends(void *self) {
        auto *port = static_cast<NodePort *>(self);
        port->shut();
        napi_release_threadsafe_function(port->wakes_, napi_tsfn_abort);
        port->itself_.reset();
    }

    napi_env env_;
    std::vector<Bound> bound_;
    napi_threadsafe_function wakes_ = nullptr;
    std::shared_ptr<NodePort> itself_;
    std::unordered_map<uint64_t, napi_ref> functions_;
    std::unordered_map<uint64_t, napi_deferred> deferred_;
    uint64_t last_function_ = 0;
    uint64_t last_deferred_ = 0;
};

napi_value value_of(napi_env env, NodePort &port, Value &value) {
    napi_value made;
    if (auto *flag = std::get_if<bool>(&value)) {
        check(napi_get_boolean(env, *flag, &made), "a boolean");
    } else if (auto *number = std::get_if<double>(&value)) {
        check(napi_create_double(env, *number, &made), "a number");
    } else if (auto *text = std::get_if<std::string>(&value)) {
        return text_of(env, *text);
    } else if (auto *ids = std::get_if<Ids>(&value)) {
        return array_of(env, napi_uint32_array, *ids);
    } else if (auto *ints = std::get_if<Ints>(&value)) {
        return array_of(env, napi_int32_array, *ints);
    } else if (auto *floats = std::get_if<Floats>(&value)) {
        return array_of(env, napi_float32_array, *floats);
    } else if (auto *handle = std::get_if<Handle>(&value)) {
        check(napi_create_double(env, port.keep(*handle), &made), "a handle");
        // It is the port's now.
        value = std::monostate();
    } else if (auto *strings = std::get_if<Strings>(&value)) {
        check(napi_create_array_with_length(env, strings->size(), &made), "an array");
        for (uint32_t i = 0; i < strings->size(); i++) {
            const auto &string = (*strings)[i];
            check(napi_set_element(env, made, i, string ? text_of(env, *string) : null_of(env)), "an array");
        }
    } else if (auto *fields = std::get_if<std::shared_ptr<Fields>>(&value)) {
        check(napi_create_object(env, &made), "an object");
        for (auto &[name, field] : (*fields)->all) {
            check(napi_set_named_property(env, made, name, value_of(env, port, field)), "an object");
        }
    } else {
        check(napi_get_undefined(env, &made), "undefined");
    }
    return made;
}

/// Reads one argument. Throws a `Failure` where it is of another type.
class Reader {
public:
    Reader(napi_env env, NodePort &port) : env_(env), port_(port) {}

    Value read(char letter, napi_value value, size_t place) {
        place_ = place;
        napi_valuetype type;
        check(napi_typeof(env_, value, &type), "a type");
        const bool is_nothing = type == napi_null || type == napi_undefined;
        switch (letter) {
        case 't':
            if (is_nothing) return std::monostate();
            expect(type == napi_string, "a string");
            return text(value);
        case 'b': {
            bool flag = false;
            if (is_nothing) return false;
            expect(napi_get_value_bool(env_, value, &flag) == napi_ok, "a boolean");
            return flag;
        }
        case 'n': return number(value);
        case 'h': return port_.find(handle_ = number(value));
        case 'u': return array<uint32_t>(value, napi_uint32_array, "a Uint32Array");
        case 'i': return array<int32_t>(value, napi_int32_array, "an Int32Array");
        case 'f': return array<float>(value, napi_float32_array, "a Float32Array");
        case 'p':
            if (is_nothing) return std::monostate();
            return array<uint8_t>(value, napi_uint8_array, "a Uint8Array");
        case 'a': return strings(value);
        default: {
            if (is_nothing) return std::monostate();
            expect(type == napi_function, "a function");
            auto listener = std::make_shared<Listener>();
            listener->port = port_.weak_from_this();
            listener->function = port_.keep_function(value);
            return listener;
        }
        }
    }

    /// The number of the handle, of which a call has one.
    double handle() const noexcept { return handle_; }

private:
    void expect(bool is_right, const char *what) const {
        if (!is_right) throw Failure::argument("argument " + std::to_string(place_ + 1) + ": expected " + what);
    }

    double number(napi_value value) const {
        double number = 0;
        expect(napi_get_value_double(env_, value, &number) == napi_ok && !std::isnan(number), "a number");
        return number;
    }

    std::string text(napi_value value) const {
        size_t bytes = 0;
        check(napi_get_value_string_utf8(env_, value, nullptr, 0, &bytes), "a text");
        std::string text(bytes, '\0');
        check(napi_get_value_string_utf8(env_, value, &text[0], bytes + 1, &bytes), "a text");
        expect(text.find('\0') == std::string::npos, "a text without a zero character");
        return text;
    }

    template <typename T> std::vector<T> array(napi_value value, napi_typedarray_type wanted, const char *what) const {
        bool is_array = false;
        check(napi_is_typedarray(env_, value, &is_array), "an array");
        expect(is_array, what);
        napi_typedarray_type type;
        size_t count = 0;
        void *data = nullptr;
        check(napi_get_typedarray_info(env_, value, &type, &count, &data, nullptr, nullptr), "an array");
        expect(type == wanted, what);
        const auto *numbers = static_cast<const T *>(data);
        return count == 0 ? std::vector<T>() : std::vector<T>(numbers, numbers + count);
    }

    Strings strings(napi_value value) const {
        bool is_array = false;
        check(napi_is_array(env_, value, &is_array), "an array");
        expect(is_array, "an array");
        uint32_t count = 0;
        check(napi_get_array_length(env_, value, &count), "an array");
        Strings strings;
        for (uint32_t i = 0; i < count; i++) {
            napi_value element;
            napi_valuetype type;
            check(napi_get_element(env_, value, i, &element), "an array");
            check(napi_typeof(env_, element, &type), "a type");
            if (type == napi_null || type == napi_undefined) {
                strings.emplace_back();
            } else {
                expect(type == napi_string, "an array of strings");
                strings.emplace_back(text(element));
            }
        }
        return strings;
    }

    napi_env env_;
    NodePort &port_;
    double handle_ = 0;
    size_t place_ = 0;
};

napi_value call(napi_env env, napi_callback_info info) {
    constexpr size_t MOST = 8;
    napi_value values[MOST];
    size_t count = MOST;
    void *data = nullptr;
    if (napi_get_cb_info(env, info, &count, values, nullptr, &data) != napi_ok) return nullptr;
    NodePort &port = *static_cast<Bound *>(data)->port;
    const Entry &entry = *static_cast<Bound *>(data)->entry;
    std::vector<Value> arguments;
    try {
        const size_t wanted = std::strlen(entry.arguments);
        Reader reader(env, port);
        for (size_t i = 0; i < wanted; i++) {
            napi_value value;
            check(i < count ? napi_ok : napi_get_undefined(env, &value), "undefined");
            arguments.push_back(reader.read(entry.arguments[i], i < count ? values[i] : value, i));
        }
        if (entry.is_at_once) {
            Call made(port.symbols(), entry, std::move(arguments));
            arguments.clear();
            port.finish(made);
            if (made.failure) throw *made.failure;
            return value_of(env, port, made.result);
        }
        napi_deferred deferred;
        napi_value promise;
        check(napi_create_promise(env, &deferred, &promise), "a promise");
        // Not before all arguments are known to be right: a call that is refused closes nothing.
        if (entry.closes) port.take(reader.handle());
        auto made = std::make_shared<Call>(port.symbols(), entry, std::move(arguments));
        arguments.clear();
        const uint64_t number = port.keep_deferred(deferred);
        port.begin(std::move(made), [number](Port &port, Call &call) { static_cast<NodePort &>(port).settle(number, call); });
        return promise;
    } catch (const Failure &failure) {
        port.forget(arguments);
        napi_throw(env, error_of(env, failure));
    } catch (const Broken &broken) {
        port.forget(arguments);
        bool is_pending = false;
        napi_is_exception_pending(env, &is_pending);
        if (!is_pending) napi_throw_error(env, nullptr, broken.what());
    }
    return nullptr;
}

napi_value open(napi_env env, napi_callback_info info) {
    napi_value value, object;
    size_t count = 1;
    try {
        check(napi_get_cb_info(env, info, &count, &value, nullptr, nullptr), "arguments");
        size_t bytes = 0;
        check(napi_get_value_string_utf8(env, value, nullptr, 0, &bytes), "a path");
        std::string path(bytes, '\0');
        check(napi_get_value_string_utf8(env, value, &path[0], bytes + 1, &bytes), "a path");
        const auto port = std::make_shared<NodePort>(env, open_library(path));
        port->open();
        check(napi_create_object(env, &object), "an object");
        for (const auto &bound : port->bound()) {
            napi_value function;
            void *data = const_cast<Bound *>(&bound);
            check(napi_create_function(env, bound.entry->name, NAPI_AUTO_LENGTH, &call, data, &function), "a function");
            check(napi_set_named_property(env, object, bound.entry->name, function), "an object");
        }
        return object;
    } catch (const std::exception &error) {
        napi_throw(env, error_of(env, Failure{CACTUS_CODE_NOT_IN_BUILD, "not_in_build", error.what()}));
    }
    return nullptr;
}

} // namespace

} // namespace cactus::js

NAPI_MODULE_INIT() {
    napi_value open;
    cactus::js::stay_loaded();
    if (napi_create_function(env, "open", NAPI_AUTO_LENGTH, &cactus::js::open, nullptr, &open) != napi_ok) return nullptr;
    if (napi_set_named_property(env, exports, "open", open) != napi_ok) return nullptr;
    return exports;
}
