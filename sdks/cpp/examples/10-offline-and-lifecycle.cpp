// A model without the network, on a device that gets hot and short of memory, and its end.
//
//     10-offline-and-lifecycle MODEL
#include <cactus.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    // A name is looked for on this machine alone. Progress is told, and `false` would stop it.
    const auto told = [](const cactus::Progress &progress) {
        std::cout << progress.stage << " " << progress.done << "/" << progress.total << "\n";
        return true;
    };
    cactus::Model model(argv[1], R"({"offline": true})", told);

    // The system says that memory is short, and that the device is hot. Answers stay the same.
    cactus::memory_pressure();
    model.set_threads(1, 1);

    // Whatever is under way is cancelled, and nothing of the model runs behind `close`.
    auto request = model.start(R"({"prompt": "Once upon a time", "options": {"max_tokens": 400, "ignore_eos": true}})");
    model.close();
    model.close();
    while (!request.over()) request.next();
    try {
        model.info();
        return 1;
    } catch (const cactus::Error &error) {
        std::cout << error.kind() << ": " << error.what() << "\n";
    }
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
