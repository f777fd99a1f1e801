// The core without JavaScript, to be watched by ThreadSanitizer: a thread that plays JavaScript begins calls, gets their ends, opens,
// cancels and closes at random, and is shut down while calls run. core_test LIBRARY BUNDLE [ROUNDS]

#include "library.hpp"
#include "pool.hpp"
#include "port.hpp"

#include <condition_variable>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

using namespace cactus::js;

namespace {

class TestPort final : public Port {
public:
    using Port::Port;

    void call_listener(Listener &, const std::vector<Value> &) override { heard++; }

    /// Runs what was posted, for a while.
    void turn(std::chrono::milliseconds time) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            woken_.wait_for(lock, time, [this] { return is_woken_; });
            is_woken_ = false;
        }
        drain();
    }

    int heard = 0;

protected:
    void wake() override {
        std::lock_guard<std::mutex> lock(mutex_);
        is_woken_ = true;
        woken_.notify_one();
    }
    void set_busy(bool) override {}
    void forget_listener(uint64_t) override {}

private:
    std::mutex mutex_;
    std::condition_variable woken_;
    bool is_woken_ = false;
};

const Entry &entry(const char *name) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if (std::strcmp(ENTRIES[i].name, name) == 0) return ENTRIES[i];
    }
    throw std::runtime_error(name);
}

class Player {
public:
    Player(const Symbols &symbols, std::string bundle, unsigned seed)
        : port_(std::make_shared<TestPort>(symbols)), bundle_(std::move(bundle)), random_(seed) {}

    void play(int steps) {
        for (int i = 0; i < steps; i++) {
            step();
            port_->turn(std::chrono::milliseconds(draw(3)));
        }
        // While calls run.
        port_->shut();
        port_->drain();
    }

    int events = 0;
    int failures = 0;

private:
    int draw(int below) { return std::uniform_int_distribution<>(0, below - 1)(random_); }

    double any(const std::vector<double> &numbers) { return numbers.empty() ? 77 : numbers[static_cast<size_t>(draw(static_cast<int>(numbers.size())))]; }

    void begin(const char *name, std::vector<Value> arguments, std::function<void(Call &)> done) {
        auto call = std::make_shared<Call>(port_->symbols(), entry(name), std::move(arguments));
        port_->begin(std::move(call), [this, done](Port &, Call &call) {
            if (call.failure) failures++;
            else done(call);
        });
    }

    void keep(Call &call, std::vector<double> &numbers) {
        numbers.push_back(port_->keep(std::get<Handle>(call.result)));
        call.result = std::monostate();
    }

    void next(double request) {
        begin("requestNext", {port_->find(request), -1.0}, [this, request](Call &call) {
            const auto &text = std::get<std::string>(call.result);
            events += static_cast<int>(text.size() > 2);
            if (text.find("\"result\"") == std::string::npos && text != "[]" && draw(6) != 0) next(request);
        });
    }

    void step() {
        switch (draw(8)) {
        case 0: {
            auto listener = std::make_shared<Listener>();
            listener->port = port_;
            if (models_.size() < 3) {
                const std::string options = R"({"context_tokens": 128, "threads": 1})";
                begin("modelLoad", {bundle_, options, listener}, [this](Call &call) { keep(call, models_); });
            }
            break;
        }
        case 1: begin("modelClose", {port_->take(any(models_))}, [](Call &) {}); break;
        case 2:
        case 3:
        case 4: {
            const std::string request = R"({"prompt": "x", "options": {"max_tokens": 40, "ignore_eos": true}})";
            begin("requestStart", {port_->find(any(models_)), request}, [this](Call &call) {
                keep(call, requests_);
                next(requests_.back());
            });
            break;
        }
        case 5: {
            Call call(port_->symbols(), entry("requestCancel"), {port_->find(any(requests_))});
            port_->finish(call);
            break;
        }
        case 6: begin("requestClose", {port_->take(any(requests_))}, [](Call &) {}); break;
        default: begin("modelTokenize", {port_->find(any(models_)), std::string("the river"), false}, [](Call &) {}); break;
        }
    }

    std::shared_ptr<TestPort> port_;
    std::string bundle_;
    std::mt19937 random_;
    std::vector<double> models_, requests_;
};

} // namespace

int main(int argc, char **argv) try {
    if (argc < 3) return 2;
    const Symbols &symbols = open_library(argv[1]);
    const int rounds = argc > 3 ? std::stoi(argv[3]) : 20;
    int events = 0, failures = 0;
    for (int round = 0; round < rounds; round++) {
        // Two threads of JavaScript at once, as with workers.
        Player first(symbols, argv[2], static_cast<unsigned>(2 * round)), second(symbols, argv[2], static_cast<unsigned>(2 * round + 1));
        std::thread other([&] { second.play(60); });
        first.play(60);
        other.join();
        events += first.events + second.events;
        failures += first.failures + second.failures;
    }
    // What was left open is closed on threads of the pool.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::cout << rounds << " rounds, " << events << " fetches with events, " << failures << " calls refused\n";
    return events > 0 && failures > 0 ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
