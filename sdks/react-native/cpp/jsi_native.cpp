#include "jsi_native.hpp"

#include "library.hpp"
#include "port.hpp"

#include <cmath>
#include <cstring>
#include <unordered_map>

namespace cactus::js {

namespace {

namespace jsi = facebook::jsi;

jsi::Value value_of(jsi::Runtime &runtime, class JsiPort &port, Value &value);

/// An `Error` with the code and kind of the library.
jsi::Value error_of(jsi::Runtime &runtime, const Failure &failure) {
    auto message = jsi::String::createFromUtf8(runtime, failure.message);
    auto error = runtime.global().getPropertyAsFunction(runtime, "Error").callAsConstructor(runtime, message).getObject(runtime);
    error.setProperty(runtime, "code", failure.code);
    error.setProperty(runtime, "kind", jsi::String::createFromUtf8(runtime, failure.kind));
    return error;
}

/// The thread of one runtime.
class JsiPort final : public Port {
public:
    JsiPort(jsi::Runtime &runtime, std::shared_ptr<facebook::react::CallInvoker> invoker, const Symbols &symbols)
        : Port(symbols), runtime_(runtime), invoker_(std::move(invoker)) {}

    /// The runtime ends: whoever still holds the port holds nothing of the runtime.
    void end() {
        shut();
        functions_.clear();
        promises_.clear();
    }

    void call_listener(Listener &listener, const std::vector<Value> &values) override {
        const auto found = functions_.find(listener.function);
        if (found == functions_.end()) return;
        std::vector<jsi::Value> arguments;
        for (Value value : values) arguments.push_back(value_of(runtime_, *this, value));
        try {
            const auto result =
                found->second.call(runtime_, static_cast<const jsi::Value *>(arguments.data()), arguments.size());
            if (result.isBool() && !result.getBool()) listener.stops = true;
        } catch (const jsi::JSError &) {
            // The SDK's functions do not throw; whoever uses this layer alone gets what it was for stopped.
            listener.stops = true;
        }
    }

    uint64_t keep_function(jsi::Function function) {
        functions_.emplace(++last_, std::move(function));
        return last_;
    }

    /// A promise, and its number.
    std::pair<jsi::Value, uint64_t> make_promise() {
        const uint64_t number = ++last_;
        auto executor = jsi::Function::createFromHostFunction(
            runtime_, jsi::PropNameID::forAscii(runtime_, "executor"), 2,
            [this, number](jsi::Runtime &runtime, const jsi::Value &, const jsi::Value *arguments, size_t) {
                promises_.emplace(number, Promise{arguments[0].asObject(runtime).asFunction(runtime),
                                                  arguments[1].asObject(runtime).asFunction(runtime)});
                return jsi::Value::undefined();
            });
        auto promise = runtime_.global().getPropertyAsFunction(runtime_, "Promise").callAsConstructor(runtime_, std::move(executor));
        return {std::move(promise), number};
    }

    /// Settles a promise.
    void settle(uint64_t number, Call &call) {
        auto found = promises_.find(number);
        if (found == promises_.end()) return;
        const Promise promise = std::move(found->second);
        promises_.erase(found);
        if (call.failure) {
            promise.reject.call(runtime_, error_of(runtime_, *call.failure));
        } else {
            promise.resolve.call(runtime_, value_of(runtime_, *this, call.result));
        }
    }

protected:
    void wake() override {
        invoker_->invokeAsync([weak = weak_from_this()](jsi::Runtime &) {
            if (const auto port = weak.lock()) port->drain();
        });
    }

    /// A runtime of React Native does not end for lack of work.
    void set_busy(bool) override {}

    void forget_listener(uint64_t function) override { functions_.erase(function); }

private:
    struct Promise {
        jsi::Function resolve;
        jsi::Function reject;
    };

    jsi::Runtime &runtime_;
    std::shared_ptr<facebook::react::CallInvoker> invoker_;
    std::unordered_map<uint64_t, jsi::Function> functions_;
    std::unordered_map<uint64_t, Promise> promises_;
    uint64_t last_ = 0;
};

template <typename T> jsi::Value array_of(jsi::Runtime &runtime, const char *name, const std::vector<T> &numbers) {
    const auto bytes = static_cast<double>(numbers.size() * sizeof(T));
    auto buffer = runtime.global().getPropertyAsFunction(runtime, "ArrayBuffer").callAsConstructor(runtime, bytes).getObject(runtime);
    if (!numbers.empty()) std::memcpy(buffer.getArrayBuffer(runtime).data(runtime), numbers.data(), numbers.size() * sizeof(T));
    return runtime.global().getPropertyAsFunction(runtime, name).callAsConstructor(runtime, std::move(buffer));
}

jsi::Value text_of(jsi::Runtime &runtime, const std::string &text) { return jsi::String::createFromUtf8(runtime, text); }

jsi::Value value_of(jsi::Runtime &runtime, JsiPort &port, Value &value) {
    if (auto *flag = std::get_if<bool>(&value)) return *flag;
    if (auto *number = std::get_if<double>(&value)) return *number;
    if (auto *text = std::get_if<std::string>(&value)) return text_of(runtime, *text);
    if (auto *ids = std::get_if<Ids>(&value)) return array_of(runtime, "Uint32Array", *ids);
    if (auto *ints = std::get_if<Ints>(&value)) return array_of(runtime, "Int32Array", *ints);
    if (auto *floats = std::get_if<Floats>(&value)) return array_of(runtime, "Float32Array", *floats);
    if (auto *handle = std::get_if<Handle>(&value)) {
        const double number = port.keep(*handle);
        // It is the port's now.
        value = std::monostate();
        return number;
    }
    if (auto *strings = std::get_if<Strings>(&value)) {
        jsi::Array made(runtime, strings->size());
        for (size_t i = 0; i < strings->size(); i++) {
            const auto &string = (*strings)[i];
            made.setValueAtIndex(runtime, i, string ? text_of(runtime, *string) : jsi::Value::null());
        }
        return made;
    }
    if (auto *fields = std::get_if<std::shared_ptr<Fields>>(&value)) {
        jsi::Object made(runtime);
        for (auto &[name, field] : (*fields)->all) made.setProperty(runtime, name, value_of(runtime, port, field));
        return made;
    }
    return jsi::Value::undefined();
}

/// Reads one argument. Throws a `Failure` where it is of another type.
class Reader {
public:
    Reader(jsi::Runtime &runtime, JsiPort &port) : runtime_(runtime), port_(port) {}

    Value read(char letter, const jsi::Value &value, size_t place) {
        place_ = place;
        const bool is_nothing = value.isNull() || value.isUndefined();
        switch (letter) {
        case 't':
            if (is_nothing) return std::monostate();
            expect(value.isString(), "a string");
            return text(value);
        case 'b':
            if (is_nothing) return false;
            expect(value.isBool(), "a boolean");
            return value.getBool();
        case 'n': return number(value);
        case 'h': return port_.find(handle_ = number(value));
        case 'u': return array<uint32_t>(value, "Uint32Array");
        case 'i': return array<int32_t>(value, "Int32Array");
        case 'f': return array<float>(value, "Float32Array");
        case 'p':
            if (is_nothing) return std::monostate();
            return array<uint8_t>(value, "Uint8Array");
        case 'a': return strings(value);
        default: {
            if (is_nothing) return std::monostate();
            expect(value.isObject() && value.getObject(runtime_).isFunction(runtime_), "a function");
            auto listener = std::make_shared<Listener>();
            listener->port = port_.weak_from_this();
            listener->function = port_.keep_function(value.getObject(runtime_).getFunction(runtime_));
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

    double number(const jsi::Value &value) const {
        expect(value.isNumber() && !std::isnan(value.getNumber()), "a number");
        return value.getNumber();
    }

    std::string text(const jsi::Value &value) const {
        std::string text = value.getString(runtime_).utf8(runtime_);
        expect(text.find('\0') == std::string::npos, "a text without a zero character");
        return text;
    }

    template <typename T> std::vector<T> array(const jsi::Value &value, const char *name) const {
        expect(value.isObject(), name);
        const auto object = value.getObject(runtime_);
        expect(object.instanceOf(runtime_, runtime_.global().getPropertyAsFunction(runtime_, name)), name);
        const auto count = static_cast<size_t>(object.getProperty(runtime_, "length").asNumber());
        const auto offset = static_cast<size_t>(object.getProperty(runtime_, "byteOffset").asNumber());
        auto buffer = object.getPropertyAsObject(runtime_, "buffer").getArrayBuffer(runtime_);
        expect(offset <= buffer.size(runtime_) && count <= (buffer.size(runtime_) - offset) / sizeof(T), name);
        std::vector<T> numbers(count);
        if (count > 0) std::memcpy(numbers.data(), buffer.data(runtime_) + offset, count * sizeof(T));
        return numbers;
    }

    Strings strings(const jsi::Value &value) const {
        expect(value.isObject() && value.getObject(runtime_).isArray(runtime_), "an array");
        const auto array = value.getObject(runtime_).getArray(runtime_);
        Strings strings;
        for (size_t i = 0; i < array.size(runtime_); i++) {
            const auto element = array.getValueAtIndex(runtime_, i);
            if (element.isNull() || element.isUndefined()) {
                strings.emplace_back();
            } else {
                expect(element.isString(), "an array of strings");
                strings.emplace_back(text(element));
            }
        }
        return strings;
    }

    jsi::Runtime &runtime_;
    JsiPort &port_;
    double handle_ = 0;
    size_t place_ = 0;
};

jsi::Value call(jsi::Runtime &runtime, JsiPort &port, const Entry &entry, const jsi::Value *values, size_t count) {
    std::vector<Value> arguments;
    try {
        Reader reader(runtime, port);
        const auto nothing = jsi::Value::undefined();
        for (size_t i = 0; entry.arguments[i] != '\0'; i++) {
            arguments.push_back(reader.read(entry.arguments[i], i < count ? values[i] : nothing, i));
        }
        if (entry.is_at_once) {
            Call made(port.symbols(), entry, std::move(arguments));
            arguments.clear();
            port.finish(made);
            if (made.failure) throw *made.failure;
            return value_of(runtime, port, made.result);
        }
        auto [promise, number] = port.make_promise();
        // Not before all arguments are known to be right: a call that is refused closes nothing.
        if (entry.closes) port.take(reader.handle());
        auto made = std::make_shared<Call>(port.symbols(), entry, std::move(arguments));
        arguments.clear();
        port.begin(std::move(made), [number = number](Port &port, Call &call) { static_cast<JsiPort &>(port).settle(number, call); });
        return std::move(promise);
    } catch (const Failure &failure) {
        port.forget(arguments);
        throw jsi::JSError(runtime, error_of(runtime, failure));
    } catch (...) {
        port.forget(arguments);
        throw;
    }
}

/// Ends a port when the runtime lets go of the last function of it.
struct Owner {
    explicit Owner(std::shared_ptr<JsiPort> port) : port(std::move(port)) {}
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner() { port->end(); }

    std::shared_ptr<JsiPort> port;
};

/// The object with all functions.
class NativeObject final : public jsi::HostObject {
public:
    explicit NativeObject(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}

    jsi::Value get(jsi::Runtime &runtime, const jsi::PropNameID &name) override {
        const std::string wanted = name.utf8(runtime);
        for (size_t i = 0; i < ENTRY_COUNT; i++) {
            const Entry &entry = ENTRIES[i];
            if (wanted != entry.name) continue;
            return jsi::Function::createFromHostFunction(
                runtime, name, static_cast<unsigned>(std::strlen(entry.arguments)),
                [owner = owner_, &entry](jsi::Runtime &runtime, const jsi::Value &, const jsi::Value *values, size_t count) {
                    return call(runtime, *owner->port, entry, values, count);
                });
        }
        return jsi::Value::undefined();
    }

    std::vector<jsi::PropNameID> getPropertyNames(jsi::Runtime &runtime) override {
        std::vector<jsi::PropNameID> names;
        for (size_t i = 0; i < ENTRY_COUNT; i++) names.push_back(jsi::PropNameID::forAscii(runtime, ENTRIES[i].name));
        return names;
    }

private:
    std::shared_ptr<Owner> owner_;
};

} // namespace

void install(jsi::Runtime &runtime, std::shared_ptr<facebook::react::CallInvoker> invoker, const std::string &library) {
    auto port = std::make_shared<JsiPort>(runtime, std::move(invoker), open_library(library));
    auto native = std::make_shared<NativeObject>(std::make_shared<Owner>(std::move(port)));
    runtime.global().setProperty(runtime, GLOBAL, jsi::Object::createFromHostObject(runtime, std::move(native)));
}

} // namespace cactus::js
