// A question about a picture, for a model that sees.
//
//     07-picture-or-sound MODEL PICTURE
#include <cactus_tools.hpp>
#include <fstream>
#include <iostream>
#include <iterator>

// A file as base64.
static std::string base64(const std::string &path) {
    static const char *const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
        for (size_t k = 0; k < 4; k++) text += i + k > bytes.size() ? '=' : digits[three >> (18 - 6 * k) & 63];
    }
    return text;
}

int main(int argc, char **argv) try {
    if (argc != 3) return 2;
    cactus::Model model(argv[1], R"({"context_tokens": 1024})");
    // A sound is the part {"type": "audio", "data": …}, for a model that hears.
    const std::string question = R"({"messages": [{"role": "user", "content": [{"type": "image", "data": ")" + base64(argv[2]) +
                                 R"("}, {"type": "text", "text": "What is this?"}]}], "options": {"max_tokens": 40}})";
    std::cout << cactus::text(model.respond(question)) << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
