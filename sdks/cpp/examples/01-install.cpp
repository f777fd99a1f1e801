// Is the library there, does it fit this program, and can this model be used?
//
//     01-install MODEL
#include <cactus.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 2) return 2;
    cactus::require_compatible();
    std::cout << "libcactus " << cactus::version() << "\n";
    // `usable` is true, or `message` says why not.
    std::cout << cactus::check_bundle(argv[1]) << "\n";
    const cactus::Model model(argv[1]);
    std::cout << model.info() << "\n";
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
