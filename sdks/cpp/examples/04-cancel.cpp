// Stopping an answer: from another thread, by a std::stop_token (C++20), or by leaving.
//
//     04-cancel MODEL
#include <cactus.hpp>
#include <chrono>
#include <iostream>
#include <thread>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::Model model(argv[1]);
    const std::string question = R"({"prompt": "Once upon a time", "options": {"max_tokens": 400, "ignore_eos": true}})";

    auto request = model.start(question);
    std::thread impatient([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        request.cancel();
    });
    // Ends within a token. The result is what came until then, and its finish_reason is "cancelled".
    std::cout << request.wait() << "\n";
    impatient.join();

#if defined(CACTUS_HAS_STOP_TOKEN)
    std::stop_source stop;
    auto stopped = model.start(question);
    stopped.stop_with(stop.get_token());
    stop.request_stop();
    std::cout << stopped.wait() << "\n";
#endif

    // A request that goes is cancelled, and nothing of it runs any more behind this line.
    { auto left = model.start(question); }
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
