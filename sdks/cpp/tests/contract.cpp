// The contract of sdks/README.md, through C++: contract BUNDLE EMBEDDER HEARS VAD FOLDER
#include "cactus_tools.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <type_traits>

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                           \
            std::exit(1);                                                                                                                  \
        }                                                                                                                                  \
    } while (0)

namespace {

const std::string ENDLESS = R"({"prompt": "hello", "options": {"max_tokens": 100000, "ignore_eos": true}})";
const char *const SIZES = R"({"context_tokens": 110000, "threads": 1, "sequences": 4})";

template <typename Call>
std::string kind_of(Call call) {
    try {
        call();
    } catch (const cactus::Error &error) {
        CHECK(error.what()[0] != '\0');
        return error.kind();
    }
    return "none";
}

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// Exactly one last event, and nothing after it.
std::string last_of(cactus::Request &request) {
    std::string last;
    int ends = 0;
    while (!request.over()) {
        const auto event = request.next();
        if (!event) continue;
        CHECK(ends == 0);
        for (const char *kind : {"done", "cancelled", "failed"}) ends += has(*event, std::string(R"("event":")") + kind + "\"");
        last = *event;
    }
    CHECK(ends == 1);
    CHECK(!request.next(0).has_value());
    return last;
}

void cancelling(const cactus::Model &model) {
    auto request = model.start(ENDLESS);
    std::thread other([&] {
        for (int i = 0; i < 3; i++) request.cancel();
    });
    CHECK(has(last_of(request), R"("event":"cancelled")"));
    other.join();
    request.cancel();
#if defined(CACTUS_HAS_STOP_TOKEN)
    std::stop_source stop;
    auto stopped = model.start(ENDLESS);
    stopped.stop_with(stop.get_token());
    auto moved = std::move(stopped);
    stop.request_stop();
    CHECK(has(last_of(moved), R"("event":"cancelled")"));
    // One that was asked for before.
    auto late = model.start(ENDLESS);
    late.stop_with(stop.get_token());
    CHECK(has(late.wait(), R"("finish_reason":"cancelled")"));
#endif
}

void closing(const std::string &bundle) {
    cactus::Model model(bundle, SIZES);
    cactus::Session session(model);
    auto request = model.start(ENDLESS);
    auto waited = model.start(ENDLESS);
    std::string result;
    std::thread waiter([&] { result = waited.wait(); });
    CHECK(request.next().has_value());
    model.close();
    model.close();
    waiter.join();
    CHECK(has(result, R"("finish_reason":"cancelled")"));
    CHECK(has(last_of(request), R"("event":"cancelled")"));
    request.close();
    request.close();
    session.close();
    session.close();
    for (const auto &kind : {kind_of([&] { model.info(); }), kind_of([&] { model.start("{}"); }), kind_of([&] { request.next(); }),
                             kind_of([&] { request.wait(); }), kind_of([&] { request.cancel(); }), kind_of([&] { session.messages(); }),
                             kind_of([&] { session.send("\"x\""); }), kind_of([&] { cactus::Session again(model); })}) {
        CHECK(kind == "handle");
    }
    // A request that is closed by another thread while this one reads it.
    cactus::Model again(bundle, SIZES);
    auto read = again.start(ENDLESS);
    std::thread closer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        read.close();
    });
    std::string kind = "none";
    while (kind == "none" && !read.over()) kind = kind_of([&] { read.next(); });
    closer.join();
    CHECK(kind == "none" || kind == "handle");
}

void leaving(const cactus::Model &model) {
    for (int i = 0; i < 20; i++) {
        auto left = model.start(ENDLESS, [](const cactus::Event &) {});
        if (i % 2 == 0) left = model.start(ENDLESS);
    }
    CHECK(has(model.info(), R"("running":0)"));
}

void tools(const cactus::Model &model) {
    int called = 0;
    const cactus::Tool tool{"t-1", "d \"ö\n", R"({"type":"object","properties":{"a":{"enum":["é\"","\\"]}},"required":["a"],"additionalProperties":false})",
                            [&](const std::string &arguments) {
                                called++;
                                CHECK(arguments.front() == '{');
                                return std::string("ok \"\n\t ö");
                            }};
    const std::string request =
        R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required","parallel_tool_calls":false,"options":{"max_tokens":80,"seed":1}})";
    std::string result = cactus::respond_with_tools(model, request, {tool}, 2);
    CHECK(called == 2 && cactus::tool_calls(result).at(0).name == "t-1");
    int asked = 0;
    cactus::respond_with_tools(model, request, {tool}, 1, [&](const cactus::ToolCall &call) {
        asked++;
        CHECK(!call.id.empty());
        return false;
    });
    CHECK(asked == 1 && called == 2);
    // What is wrong with a call is told to the model.
    const auto told = [&](const char *name, const char *arguments, bool may = true) {
        const cactus::Tool fails{"fails", "", "{}", [](const std::string &) -> std::string { throw std::runtime_error("there is no network"); }};
        const cactus::Tool echo{"echo", "", "{}", [](const std::string &given) { return given; }};
        return cactus::detail::called({fails, echo}, {"c", name, arguments}, [may](const cactus::ToolCall &) { return may; });
    };
    CHECK(told("echo", "") == "{}" && told("echo", R"({"a": 1})") == R"({"a": 1})");
    CHECK(told("ech", "{}") == "error: there is no tool `ech`");
    CHECK(told("echo", "{}", false) == "error: the call was refused");
    CHECK(told("fails", "{}") == "error: there is no network");
    for (const char *wrong : {"[1]", "{\"a\": ", "5", "{\"a\" 1}", "{} {}"}) CHECK(told("echo", wrong) == "error: the arguments are no JSON object");
    // What is no std::exception comes to whoever asked.
    const cactus::Tool throws{"t", "", R"({"type":"object","properties":{},"additionalProperties":false})",
                              [](const std::string &) -> std::string { throw 42; }};
    try {
        cactus::respond_with_tools(model, request, {throws}, 1);
        CHECK(false);
    } catch (int thrown) {
        CHECK(thrown == 42);
    }
    const std::string schema = R"({"enum":["\u00e4\ud83d\ude00", "b"]})";
    const std::string asks = R"({ "messages": [{"role": "user", "content": "x"}], "options": {"max_tokens": 40, "seed": 1}})";
    const std::string value = cactus::respond_as(model, asks, schema);
    CHECK(value == "\"b\"" || cactus::detail::Json::text(value) == "ä😀");
    // Also what could be read.
    for (const std::string &form : {schema, std::string(R"({"type":"integer","minimum":100000,"maximum":999999})")}) {
        try {
            cactus::respond_as(model, R"({"messages":[{"role":"user","content":"x"}],"options":{"max_tokens":1}})", form);
            CHECK(false);
        } catch (const cactus::Error &error) {
            CHECK(std::string(error.kind()) == "cancelled" && has(error.what(), "(length)"));
        }
    }
}

void json() {
    using cactus::detail::Json;
    const std::string text = R"( { "a" : [1, {"b": "]}\""}, -2.5e3] , "c\n" : {"d": null} , "e":true} )";
    CHECK(Json(text).member("a") == R"([1, {"b": "]}\""}, -2.5e3])");
    CHECK(Json(text).member("e") == "true");
    CHECK(Json(text).member("c\n") == R"({"d": null})");
    CHECK(Json(text).member("d").empty());
    const auto items = Json(Json(text).member("a")).items();
    CHECK(items.size() == 3 && items[0] == "1" && items[2] == "-2.5e3");
    CHECK(Json("[]").items().empty() && Json("{}").member("a").empty());
    CHECK(Json::text(R"("a\u00e4\ud83d\ude00\n\\\/\"\t")") == "aä😀\n\\/\"\t");
    CHECK(Json::quoted("a\"\\\n\x01ö") == R"("a\"\\\u000a\u0001ö")");
    CHECK(Json::with(" { } ", "a", "1") == R"({"a":1 } )");
    CHECK(Json::with(R"({"b":2})", "a", "1") == R"({"a":1,"b":2})");
    for (const char *valid : {"{}", " [1, -2.5e+3, \"a\\u00e4\\n\", {\"a\": [true, null]}] ", "0", "\"\""}) CHECK(Json::is_valid(valid));
    for (const char *invalid : {"", "{", "[1,]", "{,}", "[,1]", "{\"a\"}", "01", "1.", "-", "tru", "\"a", "\"\\x\"", "\"\\u12\"", "\"\n\"", "1 2", "[1}"}) {
        CHECK(!Json::is_valid(invalid));
    }
    CHECK(!Json::is_valid(std::string(100000, '[')));
    CHECK(Json::is_object(" {}") && !Json::is_object("[]"));
    for (const char *wrong : {"", "{", "[1", "{\"a\"}", "x"}) {
        CHECK(kind_of([&] { Json(wrong).member("a"); }) == "argument" || wrong[0] == '[');
        CHECK(kind_of([&] { Json(wrong).items(); }) == "argument");
    }
}

void vectors(const std::string &bundle, const std::string &folder) {
    cactus::Embedder embedder(bundle);
    const auto one = embedder.embed("the word");
    CHECK(one.size() == 32);
    CHECK(embedder.embed(std::vector<std::string>{"bread", "the word"})[1] == one);
    CHECK(kind_of([&] { embedder.embed_image("nothing.png"); }) == "unsupported");
    cactus::Index index(folder, 2);
    // Texts that do not fit the room of the first try, and more of them than are read at once.
    std::vector<cactus::Document> documents;
    for (int i = 0; i < 40; i++) documents.push_back({i - 5, std::string(static_cast<size_t>(i) * 200, 'x'), {1.0f, static_cast<float>(i)}, "{}"});
    index.add(documents);
    CHECK(index.query({1.0f, 0.0f}, R"({"top_k": 100})").size() == 40);
    CHECK(index.query({1.0f, 0.0f})[0].id == -5);
    const auto found = index.get({34, -5});
    CHECK(found[0].text.size() == 7800 && found[1].text.empty() && found[0].metadata == "{}");
    CHECK(kind_of([&] { index.add({{1, "again", {1.0f, 1.0f}}}); }) == "argument");
    CHECK(kind_of([&] { index.add({{100, "short", {1.0f}}}); }) == "argument");
    CHECK(kind_of([&] { index.get({1000}); }) == "argument");
    index.remove({34, 5555});
    index.compact();
    CHECK(index.query({1.0f, 0.0f}, R"({"top_k": 100})").size() == 39);
    index.close();
    index.close();
    embedder.close();
    CHECK(kind_of([&] { index.compact(); }) == "handle");
    CHECK(kind_of([&] { embedder.embed("x"); }) == "handle");
    CHECK(kind_of([&] { cactus::Embedder nowhere("nowhere"); }) != "none");
}

void hearing(const std::string &bundle, const std::string &vad) {
    cactus::Transcriber transcriber(bundle);
    const cactus::Samples silence(16000);
    CHECK(has(transcriber.transcribe(silence, R"({"language": "de"})"), R"("segments")"));
    CHECK(has(transcriber.detect_language(silence), R"("language")"));
    CHECK(kind_of([&] { transcriber.transcribe("nothing.wav"); }) == "system");
    CHECK(has(transcriber.start(silence, R"({"language": "de"})").wait(), R"("segments")"));
    CHECK(kind_of([&] { transcriber.start("nothing.wav").wait(); }) == "system");
    // One is cancelled alone: the other, which waits for it, comes to its end.
    cactus::Samples long_tone(16000 * 600);
    for (size_t i = 0; i < long_tone.size(); i++) long_tone[i] = static_cast<int16_t>(16000.0 * std::sin(static_cast<double>(i * i) * 1e-5));
    auto first = transcriber.start(long_tone, R"({"language": "de"})");
    CHECK(first.next().has_value());
    auto second = transcriber.start(silence, R"({"language": "de"})");
    first.cancel();
    std::string last;
    while (const auto event = first.next()) last = *event;
    CHECK(first.over() && has(last, R"("event":"cancelled")"));
    CHECK(has(second.wait(), R"("segments")"));
    CHECK(kind_of([&] { transcriber.speech(silence); }) == "unsupported");
    auto live = transcriber.live(R"({"language": "zh", "max_segment_sec": 1.0, "vad": ")" + vad + "\"}");
    CHECK(has(live.push(silence), R"("confirmed")"));
    CHECK(has(live.finish(), R"("pending":"")"));
    CHECK(kind_of([&] { live.push(silence); }) == "handle");
    CHECK(kind_of([&] { live.finish(); }) == "handle");
    auto left = transcriber.live(R"({"language": "zh", "max_segment_sec": 1.0, "vad": ")" + vad + "\"}");
    left.close();
    transcriber.close();
    CHECK(kind_of([&] { transcriber.transcribe(silence); }) == "handle");
}

} // namespace

int main(int argc, char **argv) {
    CHECK(argc == 6);
    static_assert(!std::is_copy_constructible_v<cactus::Model> && std::is_nothrow_move_constructible_v<cactus::Model>);
    static_assert(!std::is_copy_constructible_v<cactus::Request> && std::is_nothrow_move_constructible_v<cactus::Request>);
    cactus::require_compatible();
    for (const uint32_t other : {CACTUS_ABI_VERSION - 1u, CACTUS_ABI_VERSION + 1u}) {
        try {
            cactus::detail::compare_abi(other);
            CHECK(false);
        } catch (const cactus::Error &error) {
            CHECK(std::string(error.kind()) == "unsupported");
            CHECK(has(error.what(), other < CACTUS_ABI_VERSION ? "the library libcactus is older" : "this program is older"));
        }
    }
    CHECK(has(cactus::check_bundle(argv[1], true), R"("usable":true)"));
    CHECK(has(cactus::check_bundle("nowhere"), R"("usable":false)"));
    json();
    {
        const cactus::Model model(argv[1], SIZES);
        cancelling(model);
        leaving(model);
        tools(model);
        cactus::memory_pressure();
    }
    closing(argv[1]);
    vectors(argv[2], argv[5]);
    hearing(argv[3], argv[4]);
    std::puts("the contract holds");
}
