// What is said in a recording, and while somebody speaks.
//
//     08-transcribe MODEL SOUND [VAD]
#include <cactus.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc < 3) return 2;
    cactus::Transcriber transcriber(argv[1]);
    // `segments` have the times. Without `language` the model finds out which it is.
    std::cout << transcriber.transcribe(argv[2], R"({"language": "en"})") << "\n";

    if (argc < 4) return 0;
    // Live speech takes a second model, which finds where somebody speaks. Here the microphone is silent.
    auto live = transcriber.live(std::string(R"({"language": "en", "max_segment_sec": 1.0, "vad": ")") + argv[3] + "\"}");
    const cactus::Samples tenth_of_a_second(1600);
    for (int i = 0; i < 10; i++) std::cout << live.push(tenth_of_a_second) << "\n";
    std::cout << live.finish() << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
