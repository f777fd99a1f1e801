// Text as it is made: by a callback, or read by your own thread.
//
//     03-stream MODEL
#include <cactus.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::Model model(argv[1]);
    const std::string question = R"({"messages": [{"role": "user", "content": "Tell me a story."}], "options": {"max_tokens": 60}})";

    // The callback runs on a thread of the library. A user interface hands the text over to its own thread here.
    auto heard = model.start(question, [](const cactus::Event &event) {
        if (event.kind == CACTUS_EVENT_KIND_TEXT) std::cout << event.text << std::flush;
    });
    heard.wait();
    std::cout << "\n";

    // Without a callback, events are read as JSON. The last is `done`, `cancelled` or `failed`.
    auto read = model.start(question);
    while (!read.over()) {
        if (const auto event = read.next()) std::cout << *event << "\n";
    }
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
