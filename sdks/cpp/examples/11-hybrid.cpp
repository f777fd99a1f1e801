// What this machine should not answer may go to a target, when a person says yes.
//
//     11-hybrid MODEL TARGET STATE          such as http://127.0.0.1:8081/v1#name
#include <cactus_tools.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 4) return 2;
    cactus::Model model(argv[1]);
    // Without `consent` in the options, each request asks. `always` is for the example; `auto` hands over what is doubtful.
    model.set_policy("", std::string(R"({"target": ")") + argv[2] + R"(", "handoff": "always", "budget": "0.05", "state": ")" + argv[3] + "\"}");
    const std::string question = R"({"messages": [{"role": "user", "content": "Why is the sky blue?"}], "options": {"max_tokens": 20}})";
    auto request = model.start(question, [](const cactus::Event &event) {
        if (event.kind == CACTUS_EVENT_KIND_TEXT) std::cout << event.text << std::flush;
        // What was said so far is void: another answers from the beginning.
        if (event.kind == CACTUS_EVENT_KIND_REPLACED) std::cout << "\n[from the beginning]\n";
        if (event.kind != CACTUS_EVENT_KIND_CONSENT) return;
        std::cout << "May this leave? " << event.json << " [y/N] " << std::flush;
        std::string said;
        std::getline(std::cin, said);
        event.consent(said == "y");
    });
    // Who answered (`answered_by`), why (`reason`), for how much (`cost_usd`).
    std::cout << "\n" << request.wait() << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
