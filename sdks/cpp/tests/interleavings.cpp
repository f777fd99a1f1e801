// Random interleavings of open, generate, cancel and close through C++: interleavings BUNDLE [ROUNDS [SEED]]
#include "cactus.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                           \
            std::abort();                                                                                                                  \
        }                                                                                                                                  \
    } while (0)

namespace {

const std::string ASK = R"({"prompt": "hello", "options": {"max_tokens": 40, "ignore_eos": true, "seed": 1}})";

// What two threads do with one request of a model that one of them may close.
void use(cactus::Model &model, cactus::Request &request, std::atomic<bool> &is_read, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int step = 0; step < 6; step++) {
        try {
            switch (random() % 6) {
            case 0: request.cancel(); break;
            case 1:
                if (random() % 3 == 0) request.close();
                break;
            case 2:
                if (random() % 4 == 0) model.close();
                break;
            case 3: request.wait(); break;
            case 4: model.info(); break;
            default:
                // Events of two threads come in no order.
                if (is_read.exchange(true)) break;
                for (int i = 0; i < 5 && !request.over(); i++) request.next(1);
                is_read = false;
            }
        } catch (const cactus::Error &error) {
            CHECK(error.code() == CACTUS_CODE_HANDLE || error.code() == CACTUS_CODE_CANCELLED);
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const long rounds = argc > 2 ? std::atol(argv[2]) : 100;
    const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device{}();
    std::printf("seed %llu, %ld rounds\n", static_cast<unsigned long long>(seed), rounds);
    std::fflush(stdout);
    std::mt19937_64 random(seed);
    long heard_ends = 0;
    for (long round = 0; round < rounds; round++) {
        cactus::Model model(argv[1], R"({"context_tokens": 128, "chunk_tokens": 16, "threads": 1, "sequences": 4})");
        std::atomic<int> ends{0}, late{0};
        auto heard = model.start(ASK, [&](const cactus::Event &event) {
            if (ends > 0) late++;
            ends += event.is_last();
        });
        auto polled = model.start(ASK);
        std::atomic<bool> is_read{false}, is_read_too{true};
        std::thread first(use, std::ref(model), std::ref(polled), std::ref(is_read), random());
        std::thread second(use, std::ref(model), std::ref(polled), std::ref(is_read), random());
        // A request with a callback is not read by hand.
        use(model, heard, is_read_too, random());
        first.join();
        second.join();
        if (random() % 2 == 0) model.close();
        heard.close();
        const int after = ends;
        CHECK(after <= 1 && late == 0);
        polled.close();
        heard_ends += after;
    }
    std::printf("%ld last events were heard\n", heard_ends);
}
