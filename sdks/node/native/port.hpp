// Where a thread of JavaScript meets the library: what it has open, and what other threads have for it to do.
#ifndef CACTUS_JS_PORT_HPP
#define CACTUS_JS_PORT_HPP

#include "call.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace cactus::js {

/// One for each thread of JavaScript. A host derives from it. Only `post` may be called from other threads.
class Port : public std::enable_shared_from_this<Port> {
public:
    using Task = std::function<void(Port &port)>;

    explicit Port(const Symbols &symbols) : symbols_(symbols) {}
    Port(const Port &) = delete;
    Port &operator=(const Port &) = delete;
    virtual ~Port() = default;

    /// Has `task` run on the thread of JavaScript, if that is still there. A task holds nothing of the host's: it may be dropped on
    /// any thread.
    void post(Task task);

    /// Runs what was posted. A host calls it after `wake`.
    void drain();

    /// Begins a call on a thread of the pool; `done` runs at its end on the thread of JavaScript, unless that is gone.
    void begin(std::shared_ptr<Call> call, std::function<void(Port &, Call &)> done);

    /// Makes a call at once.
    void finish(Call &call);

    /// Nothing is run any more, and what is open is closed on another thread.
    void shut();

    /// Calls a function of JavaScript.
    virtual void call_listener(Listener &listener, const std::vector<Value> &values) = 0;

    /// The number of a handle, for JavaScript. Numbers are never used again, in the whole process.
    double keep(Handle handle);
    /// The handle of a number; null where it was closed, so that the library says so.
    Handle find(double number) const;
    /// The same, which is being closed.
    Handle take(double number);

    /// Lets go of the functions of JavaScript among the arguments of a call that is over, or that was never made.
    void forget(const std::vector<Value> &arguments);

    const Symbols &symbols() const noexcept { return symbols_; }
    size_t open_count() const noexcept { return handles_.size(); }

protected:
    /// Has `drain` called on the thread of JavaScript. Called from any thread.
    virtual void wake() = 0;
    /// Whether a call is under way, for which the thread has to go on.
    virtual void set_busy(bool is_busy) = 0;
    /// Lets go of a function of JavaScript.
    virtual void forget_listener(uint64_t function) = 0;

private:
    void ended(Call &call);

    const Symbols &symbols_;
    std::map<uint64_t, Handle> handles_;
    size_t underway_ = 0;

    std::mutex mutex_;
    std::vector<Task> posted_;
    bool is_shut_ = false;
};

} // namespace cactus::js

#endif
