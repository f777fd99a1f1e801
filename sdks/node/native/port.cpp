#include "port.hpp"

#include "pool.hpp"

#include <cmath>
#include <cstring>
#include <exception>

namespace cactus::js {

void Port::post(Task task) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_shut_) return;
    posted_.push_back(std::move(task));
    if (posted_.size() == 1) wake();
}

void Port::drain() {
    std::vector<Task> tasks;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        tasks.swap(posted_);
    }
    for (auto &task : tasks) {
        try {
            task(*this);
        } catch (const std::exception &) {
            // JavaScript is being stopped. What the others hold still has to be let go.
        }
    }
}

void Port::begin(std::shared_ptr<Call> call, std::function<void(Port &, Call &)> done) {
    if (underway_++ == 0) set_busy(true);
    const bool begun = Pool::get().run([call, done, port = weak_from_this()] {
        call->run();
        const auto there = port.lock();
        if (!there) return;
        there->post([call, done](Port &port) {
            port.ended(*call);
            done(port, *call);
        });
    });
    if (!begun) {
        call->fail(Failure::system("a thread cannot be started"));
        post([call, done](Port &port) {
            port.ended(*call);
            done(port, *call);
        });
    }
}

void Port::ended(Call &call) {
    if (--underway_ == 0) set_busy(false);
    forget(call.arguments());
}

void Port::forget(const std::vector<Value> &arguments) {
    for (const auto &argument : arguments) {
        if (const auto *listener = std::get_if<std::shared_ptr<Listener>>(&argument)) forget_listener((*listener)->function);
    }
}

void Port::finish(Call &call) {
    call.run();
    // The log goes on.
    if (std::strcmp(call.entry().name, "logSetCallback") != 0) forget(call.arguments());
}

void Port::shut() {
    std::vector<Task> dropped;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_shut_ = true;
        dropped.swap(posted_);
    }
    if (handles_.empty()) return;
    // What was opened last belongs to what was opened before.
    std::vector<Handle> open;
    for (auto i = handles_.rbegin(); i != handles_.rend(); ++i) open.push_back(i->second);
    handles_.clear();
    Pool::get().run([&symbols = symbols_, open = std::move(open)] {
        for (const auto &handle : open) handle.close(symbols, handle.pointer);
    });
}

double Port::keep(Handle handle) {
    static std::atomic<uint64_t> next{1};
    const uint64_t number = next++;
    handles_.emplace(number, handle);
    return static_cast<double>(number);
}

Handle Port::find(double number) const {
    if (!(number >= 1 && number < 9007199254740992.0) || number != std::floor(number)) return {};
    const auto found = handles_.find(static_cast<uint64_t>(number));
    return found == handles_.end() ? Handle{} : found->second;
}

Handle Port::take(double number) {
    const Handle handle = find(number);
    if (handle.pointer != nullptr) handles_.erase(static_cast<uint64_t>(number));
    return handle;
}

} // namespace cactus::js
