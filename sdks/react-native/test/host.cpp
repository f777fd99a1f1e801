// A host of JSI on this machine: JavaScriptCore with an event loop, timers and files, and the SDK's native object.
//
//   host LIBRARY SCRIPT [ARGUMENT...]         runs a script until it calls `host.exit(code)`
//   host LIBRARY SCRIPT --reload TIMES MS     runs it so many milliseconds and destroys the runtime, so many times; then says how
//                                             many threads of the library are left

#include "jsi_native.hpp"

#include <JSCRuntime.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace jsi = facebook::jsi;
using Clock = std::chrono::steady_clock;

namespace {

/// The thread of JavaScript: what other threads have for it to do, and timers.
class Loop final : public facebook::react::CallInvoker {
public:
    void invokeAsync(facebook::react::CallFunc &&call) noexcept override {
        std::lock_guard<std::mutex> lock(mutex_);
        calls_.push_back(std::move(call));
        added_.notify_one();
    }

    void invokeSync(facebook::react::CallFunc &&) override { std::abort(); }

    void after(double ms, std::shared_ptr<jsi::Function> function) {
        const auto wait = std::chrono::microseconds(static_cast<int64_t>(ms * 1000));
        timers_.emplace(Clock::now() + wait, std::move(function));
    }

    /// Until somebody calls `exit`, or the time is over.
    void run(jsi::Runtime &runtime, std::optional<Clock::time_point> end) {
        while (!code && (!end || Clock::now() < *end)) {
            std::vector<facebook::react::CallFunc> calls;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                auto until = Clock::now() + std::chrono::seconds(1);
                if (!timers_.empty()) until = std::min(until, timers_.begin()->first);
                if (end) until = std::min(until, *end);
                added_.wait_until(lock, until, [&] { return !calls_.empty(); });
                calls.swap(calls_);
            }
            for (auto &call : calls) call(runtime);
            while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
                const auto function = timers_.begin()->second;
                timers_.erase(timers_.begin());
                function->call(runtime);
            }
        }
    }

    /// Before the runtime ends.
    void forget() { timers_.clear(); }

    std::optional<int> code;

private:
    std::mutex mutex_;
    std::condition_variable added_;
    std::vector<facebook::react::CallFunc> calls_;
    std::multimap<Clock::time_point, std::shared_ptr<jsi::Function>> timers_;
};

std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

using Body = std::function<jsi::Value(jsi::Runtime &, const jsi::Value *)>;

void define(jsi::Runtime &runtime, jsi::Object &object, const char *name, unsigned count, Body body) {
    auto function = jsi::Function::createFromHostFunction(
        runtime, jsi::PropNameID::forAscii(runtime, name), count,
        [body = std::move(body), name, count](jsi::Runtime &runtime, const jsi::Value &, const jsi::Value *values, size_t given) {
            if (given < count) throw jsi::JSError(runtime, std::string(name) + ": too few arguments");
            return body(runtime, values);
        });
    object.setProperty(runtime, name, std::move(function));
}

/// What the script may use beside the language.
void furnish(jsi::Runtime &runtime, const std::shared_ptr<Loop> &loop, const std::vector<std::string> &arguments) {
    jsi::Object host(runtime);
    jsi::Array given(runtime, arguments.size());
    for (size_t i = 0; i < arguments.size(); i++) given.setValueAtIndex(runtime, i, jsi::String::createFromUtf8(runtime, arguments[i]));
    host.setProperty(runtime, "arguments", given);
    const auto text = [](jsi::Runtime &runtime, const jsi::Value &value) { return value.asString(runtime).utf8(runtime); };
    define(runtime, host, "print", 1, [text](jsi::Runtime &runtime, const jsi::Value *values) {
        std::cout << text(runtime, values[0]) << std::endl;
        return jsi::Value::undefined();
    });
    define(runtime, host, "read", 1, [text](jsi::Runtime &runtime, const jsi::Value *values) {
        const std::string bytes = read(text(runtime, values[0]));
        auto buffer = runtime.global().getPropertyAsFunction(runtime, "ArrayBuffer");
        auto made = buffer.callAsConstructor(runtime, static_cast<double>(bytes.size())).getObject(runtime);
        std::memcpy(made.getArrayBuffer(runtime).data(runtime), bytes.data(), bytes.size());
        return jsi::Value(std::move(made));
    });
    define(runtime, host, "readText", 1, [text](jsi::Runtime &runtime, const jsi::Value *values) {
        return jsi::Value(jsi::String::createFromUtf8(runtime, read(text(runtime, values[0]))));
    });
    define(runtime, host, "append", 2, [text](jsi::Runtime &runtime, const jsi::Value *values) {
        std::ofstream(text(runtime, values[0]), std::ios::app | std::ios::binary) << text(runtime, values[1]);
        return jsi::Value::undefined();
    });
    define(runtime, host, "exit", 1, [loop](jsi::Runtime &, const jsi::Value *values) {
        loop->code = static_cast<int>(values[0].asNumber());
        return jsi::Value::undefined();
    });
    define(runtime, host, "now", 0, [](jsi::Runtime &, const jsi::Value *) {
        return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
    });
    runtime.global().setProperty(runtime, "host", host);
    auto global = runtime.global();
    define(runtime, global, "setTimeout", 2, [loop](jsi::Runtime &runtime, const jsi::Value *values) {
        loop->after(values[1].asNumber(), std::make_shared<jsi::Function>(values[0].asObject(runtime).asFunction(runtime)));
        return jsi::Value::undefined();
    });
}

int run(const std::string &library, const std::string &script, const std::vector<std::string> &arguments, std::optional<int> ms) {
    auto loop = std::make_shared<Loop>();
    {
        const auto runtime = facebook::jsc::makeJSCRuntime();
        furnish(*runtime, loop, arguments);
        cactus::js::install(*runtime, loop, library);
        runtime->evaluateJavaScript(std::make_shared<jsi::StringBuffer>(read(script)), script);
        std::optional<Clock::time_point> end;
        if (ms) end = Clock::now() + std::chrono::milliseconds(*ms);
        loop->run(*runtime, end);
        loop->forget();
    }
    return loop->code.value_or(0);
}

/// Threads that the library has begun for models and requests.
int library_threads() {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != nullptr) {
        const dirent *task = readdir(tasks);
        if (task == nullptr) break;
        std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/comm");
        std::string name;
        if (std::getline(file, name) && name.rfind("cactus", 0) == 0) count++;
    }
    if (tasks != nullptr) closedir(tasks);
    return count;
}

} // namespace

int main(int argc, char **argv) try {
    if (argc < 3) {
        std::cerr << "usage: host LIBRARY SCRIPT [ARGUMENT...]\n";
        return 2;
    }
    const std::string library = argv[1], script = argv[2];
    std::vector<std::string> arguments(argv + 3, argv + argc);
    std::optional<int> times, ms;
    for (size_t i = 0; i + 2 < arguments.size(); i++) {
        if (arguments[i] != "--reload") continue;
        times = std::stoi(arguments[i + 1]);
        ms = std::stoi(arguments[i + 2]);
        arguments.resize(i);
        break;
    }
    if (!times) return run(library, script, arguments, ms);
    for (int i = 0; i < *times; i++) {
        const int code = run(library, script, arguments, *ms + i % 7);
        if (code != 0) return code;
    }
    for (int i = 0; i < 500 && library_threads() > 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::cout << "reloaded " << *times << " times, threads left: " << library_threads() << std::endl;
    return library_threads() == 0 ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
