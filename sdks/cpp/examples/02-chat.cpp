// A conversation: each question knows what was said before.
//
//     02-chat MODEL
#include <cactus_tools.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::Model model(argv[1]);
    cactus::Session session(model, R"({
        "messages": [{"role": "system", "content": "Answer in one sentence."}],
        "options": {"max_tokens": 60}
    })");
    // A question is a JSON string, or an object with messages and options.
    std::cout << cactus::text(session.respond(R"("Why is the sky blue?")")) << "\n";
    std::cout << cactus::text(session.respond(R"("And at sunset?")")) << "\n";
    // This is all that has to be kept to go on another day.
    std::cout << session.messages() << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
