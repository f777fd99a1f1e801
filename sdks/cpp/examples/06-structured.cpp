// An answer that is a value: the model can write nothing else.
//
//     06-structured MODEL
#include <cactus_tools.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::Model model(argv[1]);
    const std::string schema = R"({
        "type": "object",
        "properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"type": "integer", "minimum": 1, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": false
    })";
    const std::string question = R"({"messages": [{"role": "user", "content": "Who is it?"}], "options": {"max_tokens": 80}})";
    // JSON text, for the JSON library that the rest of your program uses.
    std::cout << cactus::respond_as(model, question, schema) << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
