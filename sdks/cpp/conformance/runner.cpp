// Runs the plan of the conformance suite through cactus.hpp.
#include "cactus_tools.hpp"

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

// Members stay in the order in which they are written.
using Json = nlohmann::ordered_json;

namespace {

template <typename T>
using Named = std::map<std::string, T>;

std::string hex(const std::vector<float> &floats) {
    std::string text;
    for (const float number : floats) {
        uint32_t bits;
        std::memcpy(&bits, &number, sizeof bits);
        char digits[9];
        std::snprintf(digits, sizeof digits, "%08x", bits);
        text += digits;
    }
    return text;
}

std::vector<float> floats(const std::string &hex) {
    std::vector<float> floats(hex.size() / 8);
    for (size_t i = 0; i < floats.size(); i++) {
        const auto bits = static_cast<uint32_t>(std::stoul(hex.substr(i * 8, 8), nullptr, 16));
        std::memcpy(&floats[i], &bits, sizeof bits);
    }
    return floats;
}

cactus::Samples samples(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    cactus::Samples samples(bytes.size() / 2);
    std::memcpy(samples.data(), bytes.data(), samples.size() * 2);
    return samples;
}

std::string text_of(const Json &value) { return value.is_null() ? std::string() : value.dump(); }

// One case: what it has made, by name.
class Case {
public:
    Json run(const Json &step) {
        try {
            return result(step);
        } catch (const cactus::Error &error) {
            return {{"error", {{"kind", error.kind()}, {"message", error.what()}}}};
        }
    }

private:
    // What was never made is as good as closed.
    template <typename T>
    static T &at(Named<T> &named, const std::string &name) {
        const auto found = named.find(name);
        if (found == named.end()) throw cactus::Error(CACTUS_CODE_HANDLE, "there is no `" + name + "`");
        return found->second;
    }

    cactus::Request begin(const Json &step) {
        const std::string on = step["on"], request = step["request"].dump();
        if (sessions_.count(on) != 0) return sessions_.at(on).send(request);
        return at(models_, on).start(request);
    }

    // Events to the end, or `most` of them.
    static Json events(cactus::Request &request, const Json &step, size_t most = SIZE_MAX) {
        Json events = Json::array();
        size_t texts = 0;
        while (events.size() < most) {
            const auto text = request.next();
            if (!text) {
                if (request.over()) break;
                continue;
            }
            Json event = Json::parse(*text);
            if (event["event"] == "consent" && step.contains("consent")) request.consent(step["consent"].get<bool>());
            if (event["event"] == "text" && step.contains("cancel_after") && ++texts == step["cancel_after"]) request.cancel();
            events.push_back(std::move(event));
        }
        return {{"events", std::move(events)}};
    }

    static bool names(const Json &step, const std::string &field, const std::string &name) {
        const Json named = step.value(field, Json::array());
        return std::find(named.begin(), named.end(), name) != named.end();
    }

    Json tools(const Json &step) {
        Json request = step["request"];
        std::vector<cactus::Tool> tools;
        Json calls = Json::array();
        for (const Json &tool : request["tools"]) {
            const Json &function = tool["function"];
            const std::string name = function["name"];
            tools.push_back({name, function["description"], function["parameters"].dump(), [&step, &calls, name](const std::string &arguments) {
                                 calls.push_back({name, Json::parse(arguments)});
                                 const std::string result = step["results"][name];
                                 if (names(step, "throws", name)) throw std::runtime_error(result);
                                 return result;
                             }});
        }
        request.erase("tools");
        const auto confirm = [&](const cactus::ToolCall &call) { return !names(step, "refuse", call.name); };
        const std::string result = cactus::respond_with_tools(at(models_, step["on"]), request.dump(), tools, step["most"], confirm);
        return {{"answer", Json::parse(result)}, {"calls", calls}};
    }

    template <typename File, typename Pcm>
    static Json heard(const Json &step, File file, Pcm pcm) {
        const std::string result = step.contains("file") ? file(step["file"].get<std::string>()) : pcm(samples(step["pcm"]));
        return {{"result", Json::parse(result)}};
    }

    Json close(const std::string &name) {
        const auto closed = [&](auto &named) {
            const auto found = named.find(name);
            if (found == named.end()) return false;
            found->second.close();
            return true;
        };
        closed(models_) || closed(sessions_) || closed(requests_) || closed(embedders_) || closed(transcribers_) || closed(indexes_) ||
            closed(lives_);
        return Json::object();
    }

    Json result(const Json &step) {
        const std::string op = step["op"];
        const std::string on = step.value("on", step.value("of", "")), as = step.value("as", "");
        const std::string options = text_of(step.value("options", Json()));
        const Json none = Json::object();
        if (op == "versions") return {{"abi", cactus_abi_version()}};
        if (op == "check_bundle") return {{"report", Json::parse(cactus::check_bundle(step["path"], step["verify"]))}};
        if (op == "load") return models_.emplace(as, cactus::Model(step["source"], options)), none;
        if (op == "load_embedder") return embedders_.emplace(as, cactus::Embedder(step["source"])), none;
        if (op == "load_transcriber") return transcribers_.emplace(as, cactus::Transcriber(step["source"])), none;
        if (op == "info") {
            const Json info = Json::parse(at(models_, on).info());
            Json chosen = Json::object();
            for (const std::string field : step["fields"]) chosen[field] = info.at(field);
            return {{"info", chosen}};
        }
        if (op == "tokenize") return {{"tokens", at(models_, on).tokenize(step["text"], step["special"])}};
        if (op == "detokenize") return {{"text", at(models_, on).detokenize(step["tokens"], step["special"])}};
        if (op == "score") return {{"score", Json::parse(at(models_, on).score(step["tokens"], step["first"]))}};
        if (op == "session") return sessions_.emplace(as, cactus::Session(at(models_, on), text_of(step["defaults"]))), none;
        if (op == "respond") return {{"answer", Json::parse(begin(step).wait())}};
        if (op == "stream") {
            auto request = begin(step);
            return events(request, step);
        }
        if (op == "start") return requests_.emplace(as, begin(step)), none;
        if (op == "read") return events(at(requests_, on), step, step["count"]);
        if (op == "collect") return events(at(requests_, on), step);
        if (op == "cancel") return at(requests_, on).cancel(), none;
        if (op == "messages") return {{"messages", Json::parse(at(sessions_, on).messages())}};
        if (op == "tools") return tools(step);
        if (op == "structured") {
            return {{"value", Json::parse(cactus::respond_as(at(models_, on), step["request"].dump(), step["schema"].dump()))}};
        }
        if (op == "set_policy") {
            at(models_, on).set_policy(step["policy"].is_null() ? "" : step["policy"].get<std::string>(), options);
            return none;
        }
        if (op == "set_threads") return at(models_, on).set_threads(step["threads"], step["decode_threads"]), none;
        if (op == "memory_pressure") return cactus::memory_pressure(), none;
        if (op == "embed") {
            Json vectors = Json::array();
            for (const auto &vector : at(embedders_, on).embed(step["texts"].get<std::vector<std::string>>(), step["normalize"])) {
                vectors.push_back(hex(vector));
            }
            return {{"vectors", vectors}};
        }
        if (op == "embed_image") return {{"vectors", Json::array({hex(at(embedders_, on).embed_image(step["path"]))})}};
        if (op == "index_open") return indexes_.emplace(as, cactus::Index(step["folder"], step["dimension"])), none;
        if (op == "index_add") {
            std::vector<cactus::Document> documents;
            for (size_t i = 0; i < step["ids"].size(); i++) {
                const Json &metadata = step["metadatas"][i];
                documents.push_back({step["ids"][i], step["documents"][i], floats(step["vectors"][i]),
                                     metadata.is_null() ? "" : metadata.get<std::string>()});
            }
            return at(indexes_, on).add(documents), none;
        }
        if (op == "index_query") {
            Json found = Json::array();
            for (const std::string vector : step["vectors"]) {
                Json hits = Json::array();
                for (const auto &hit : at(indexes_, on).query(floats(vector), options)) {
                    hits.push_back(Json::array({hit.id, hex({hit.score})}));
                }
                found.push_back(hits);
            }
            return {{"found", found}};
        }
        if (op == "index_get") {
            Json documents = Json::array();
            for (const auto &document : at(indexes_, on).get(step["ids"])) {
                documents.push_back(Json::array({document.text, document.metadata, hex(document.vector)}));
            }
            return {{"documents", documents}};
        }
        if (op == "index_delete") return at(indexes_, on).remove(step["ids"]), none;
        if (op == "index_compact") return at(indexes_, on).compact(), none;
        if (op == "transcribe") {
            auto &hears = at(transcribers_, on);
            return heard(step, [&](const auto &file) { return hears.transcribe(file, options); },
                         [&](const auto &pcm) { return hears.transcribe(pcm, options); });
        }
        if (op == "detect_language") {
            auto &hears = at(transcribers_, on);
            return heard(step, [&](const auto &file) { return hears.detect_language(file); },
                         [&](const auto &pcm) { return hears.detect_language(pcm); });
        }
        if (op == "speech") {
            auto &hears = at(transcribers_, on);
            return heard(step, [&](const auto &file) { return hears.speech(file, options); },
                         [&](const auto &pcm) { return hears.speech(pcm, options); });
        }
        if (op == "live") return lives_.emplace(as, at(transcribers_, on).live(options)), none;
        if (op == "push") {
            const cactus::Samples all = samples(step["pcm"]);
            const size_t from = step["from"], to = step["to"];
            return {{"result", Json::parse(at(lives_, on).push(all.data() + from, to - from))}};
        }
        if (op == "finish") return {{"result", Json::parse(at(lives_, on).finish())}};
        if (op == "close") return close(on);
        return {{"absent", "this runner does not know the operation"}};
    }

    // Closed from the last to the first: what was made of something goes before it.
    Named<cactus::Model> models_;
    Named<cactus::Embedder> embedders_;
    Named<cactus::Index> indexes_;
    Named<cactus::Transcriber> transcribers_;
    Named<cactus::LiveTranscription> lives_;
    Named<cactus::Session> sessions_;
    Named<cactus::Request> requests_;
};

} // namespace

int main(int argc, char **argv) try {
    if (argc != 3) {
        std::cerr << "usage: " << argv[0] << " PLAN RESULTS\n";
        return 2;
    }
    cactus::require_compatible();
    std::ifstream file(argv[1]);
    const Json plan = Json::parse(file);
    std::ofstream out(argv[2]);
    for (const Json &each : plan["cases"]) {
        Case running;
        Json results = Json::array();
        for (const Json &step : each["steps"]) results.push_back(running.run(step));
        out << Json{{"case", each["name"]}, {"results", results}}.dump() << std::endl;
    }
    out << Json{{"end", plan["cases"].size()}}.dump() << std::endl;
    return out.good() ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
