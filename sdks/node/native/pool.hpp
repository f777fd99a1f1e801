// Threads for calls that wait: as many as there are calls at once, kept for a while when they are done.
//
// A host's own pool would not do. libuv has four threads for files and names of the whole process, which four streams would hold.
#ifndef CACTUS_JS_POOL_HPP
#define CACTUS_JS_POOL_HPP

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace cactus::js {

class Pool {
public:
    /// The one of this process. It is never destroyed: its threads may wait inside the library when the process ends.
    static Pool &get();

    /// Runs `task` on a thread, at once. False where no thread can be had; then it is not run.
    bool run(std::function<void()> task);

private:
    bool begin_thread();
    void work();
    static void *enter(void *pool);

    std::mutex mutex_;
    std::condition_variable added_;
    std::deque<std::function<void()>> tasks_;
    /// Threads that wait for a task.
    size_t idle_ = 0;
};

} // namespace cactus::js

#endif
