#include "pool.hpp"

#include <chrono>
#include <thread>

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif

namespace cactus::js {

namespace {

/// Loading a model converts it, on this thread. Some systems would give it 512 KiB, or 128.
constexpr size_t STACK_BYTES = size_t{8} << 20;
constexpr auto KEPT_FOR = std::chrono::seconds(10);

} // namespace

Pool &Pool::get() {
    static auto *pool = new Pool();
    return *pool;
}

bool Pool::run(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() <= idle_) {
        added_.notify_one();
        return true;
    }
    if (begin_thread()) return true;
    tasks_.pop_back();
    return false;
}

bool Pool::begin_thread() {
#ifdef _WIN32
    try {
        std::thread([this] { work(); }).detach();
        return true;
    } catch (const std::system_error &) {
        return false;
    }
#else
    // Signals are the host's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const int code = pthread_create(&thread, &attributes, &Pool::enter, this);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return code == 0;
#endif
}

void *Pool::enter(void *pool) {
    static_cast<Pool *>(pool)->work();
    return nullptr;
}

void Pool::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        while (!tasks_.empty()) {
            auto task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            // What it holds may call back into the pool.
            task = nullptr;
            lock.lock();
        }
        idle_++;
        const bool found = added_.wait_for(lock, KEPT_FOR, [this] { return !tasks_.empty(); });
        idle_--;
        if (!found) return;
    }
}

} // namespace cactus::js
