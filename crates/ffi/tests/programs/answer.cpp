// The C++ header with a model given on the command line: threads, exceptions, and closing at any time.
#include "cactus.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

static const char *const ASK = R"({"prompt": "hello", "options": {"max_tokens": 30, "ignore_eos": true}})";

static const char *const LONG = R"({"prompt": "hello", "options": {"max_tokens": 400, "ignore_eos": true}})";

static void streams(const cactus::Model &model) {
    std::string text;
    int ends = 0;
    auto request = model.start(ASK, [&](const cactus::Event &event) {
        if (event.kind == CACTUS_EVENT_KIND_TEXT) text += event.text;
        ends += event.is_last();
    });
    const std::string result = request.wait();
    request.close();
    CHECK(ends == 1);
    CHECK(result.find("\"completion_tokens\":30") != std::string::npos);

    auto polled = model.start(ASK);
    std::string last;
    while (!polled.over()) {
        if (auto event = polled.next()) last = *event;
    }
    CHECK(last.find("\"event\":\"done\"") != std::string::npos);
}

// Requests that are closed inside the callback of another one: none of their callbacks runs afterwards.
static void closing_others(const cactus::Model &model) {
    for (int round = 0; round < 10; round++) {
        std::vector<cactus::Request> others;
        for (int i = 0; i < 6; i++) {
            others.push_back(model.start(ASK, [what = std::string(200, 'x')](const cactus::Event &) { CHECK(what[3] == 'x'); }));
        }
        auto closer = model.start(ASK, [&](const cactus::Event &event) {
            if (event.kind == CACTUS_EVENT_KIND_TEXT && !others.empty()) others.pop_back();
        });
        closer.wait();
    }
}

static void exceptions(const cactus::Model &model) {
    // What is thrown reaches the one who waits, and stops the request. A request may end before its first event is
    // delivered, as threads get their turns, so one of many must be found stopped.
    for (int round = 0; model.info().find("\"cancelled\":0") != std::string::npos; round++) {
        CHECK(round < 100);
        auto request = model.start(LONG, [](const cactus::Event &) { throw 42; });
        try {
            request.wait();
            CHECK(false);
        } catch (int thrown) {
            CHECK(thrown == 42);
        }
    }
    try {
        model.start("{}");
        CHECK(false);
    } catch (const cactus::Error &error) {
        CHECK(error.code() == CACTUS_CODE_ARGUMENT);
        CHECK(std::string(error.kind()) == "argument");
    }
    for (const char *name : {"/nowhere", "no-such-model"}) {
        try {
            cactus::Model nowhere(name, R"({"offline": true})");
            CHECK(false);
        } catch (const cactus::Error &error) {
            CHECK(error.code() == CACTUS_CODE_NOT_FOUND);
        }
    }
}

// What may leave is asked about, and the answer of a poller and of a callback reaches the library. Nobody listens at the target.
static void consenting(cactus::Model &model, const std::string &state) {
    model.set_policy("", R"({"target": "http://127.0.0.1:9/v1#m", "handoff": "always", "state": ")" + state + "\"}");
    for (const bool yes : {false, true}) {
        const std::string reason = yes ? R"("reason":"cloud_failed")" : R"("reason":"denied_by_person")";
        int asked = 0;
        const std::string chat = R"({"messages": [{"role": "user", "content": "hello"}], "options": {"max_tokens": 3}})";
        auto heard = model.start(chat, [&](const cactus::Event &event) {
            CHECK((event.kind == CACTUS_EVENT_KIND_CONSENT) == static_cast<bool>(event.consent));
            if (!event.consent) return;
            CHECK(event.json.find("127.0.0.1:9") != std::string_view::npos);
            asked++;
            event.consent(yes);
        });
        CHECK(heard.wait().find(reason) != std::string::npos);
        auto polled = model.start(chat);
        std::string last;
        while (!polled.over()) {
            const auto event = polled.next();
            if (!event) continue;
            last = *event;
            if (last.find("\"event\":\"consent\"") == std::string::npos) continue;
            asked++;
            polled.consent(yes);
        }
        CHECK(asked == 2);
        CHECK(last.find(reason) != std::string::npos);
        try {
            polled.consent(true);
            CHECK(false);
        } catch (const cactus::Error &error) {
            CHECK(error.code() == CACTUS_CODE_ARGUMENT);
        }
    }
    model.set_policy("");
}

// Requests of many threads, one of which closes the model under the others.
static void closing(const char *path) {
    cactus::Model model(path, R"({"context_tokens": 128, "threads": 1})");
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            for (int n = 0; n < 20; n++) {
                try {
                    auto request = model.start(ASK, [&](const cactus::Event &) { begun++; });
                    if (n % 3 == i % 3) request.cancel();
                    if (n % 2 == 0) request.wait();
                } catch (const cactus::Error &error) {
                    // The model was closed.
                    CHECK(error.code() == CACTUS_CODE_HANDLE);
                    return;
                }
            }
        });
    }
    while (begun < 8) std::this_thread::yield();
    // Another thread may use the handle while it is closed; the object itself is not touched.
    cactus_model_close(model.get());
    for (auto &thread : threads) thread.join();
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(cactus::is_compatible());
    int stages = 0;
    cactus::Model model(argv[1], R"({"context_tokens": 256, "threads": 2})",
                        [&](const cactus::Progress &) { return ++stages < 100; });
    CHECK(stages > 0);
    streams(model);
    exceptions(model);
    closing_others(model);
    consenting(model, std::string(argv[1]) + "-state");
    const auto tokens = model.tokenize("hello there");
    CHECK(model.detokenize(tokens) == "hello there");
    CHECK(model.score(tokens).find("logprob") != std::string::npos);

    cactus::Session session(model, R"({"options": {"max_tokens": 5}})");
    session.send("\"one\"").wait();
    const std::string messages = session.messages();
    CHECK(messages.find("assistant") != std::string::npos);
    cactus::Model moved = std::move(model);
    CHECK(model.get() == nullptr && moved.get() != nullptr);
    closing(argv[1]);
    std::puts("ok");
}
