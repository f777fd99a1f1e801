// Functions of this program that the model may call.
//
//     05-tools MODEL
#include <cactus_tools.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::Model model(argv[1], R"({"context_tokens": 2048})");
    const cactus::Tool weather{
        "weather",
        "The weather of a city",
        R"({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": false})",
        // The arguments follow the schema.
        [](const std::string &arguments) {
            std::cout << "asked for " << arguments << "\n";
            return std::string("sunny, 24 degrees");
        },
    };
    const std::string question = R"({
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "options": {"max_tokens": 120}
    })";
    // A person may be asked before each call. At most two rounds of calls.
    const auto confirm = [](const cactus::ToolCall &call) { return call.name == "weather"; };
    std::cout << cactus::text(cactus::respond_with_tools(model, question, {weather}, 2, confirm)) << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
