// cactus_tools.hpp: tools that are called, and answers of a form, over cactus.hpp.
//
// Arguments, results and values stay JSON text: use the JSON library that the rest of your program uses.
#ifndef CACTUS_TOOLS_HPP
#define CACTUS_TOOLS_HPP

#include "cactus.hpp"

namespace cactus {

namespace detail {

/// As much of JSON as it takes to find a member of what the library wrote, which is well-formed.
class Json {
public:
    explicit Json(std::string_view text) : text_(text) {}

    /// The text of a member of an object; empty where there is none.
    std::string_view member(std::string_view name) {
        std::string_view found;
        each('{', '}', [&] {
            const std::string_view key = value();
            space();
            if (peek() != ':') throw wrong();
            place_++;
            const std::string_view inside = value();
            if (text(key) == name) found = inside;
        });
        return found;
    }

    /// The texts of the items of an array.
    std::vector<std::string_view> items() {
        std::vector<std::string_view> found;
        each('[', ']', [&] { found.push_back(value()); });
        return found;
    }

    /// What a string says.
    static std::string text(std::string_view string) {
        std::string said;
        if (string.size() < 2 || string.front() != '"') return said;
        string = string.substr(1, string.size() - 2);
        for (size_t i = 0; i < string.size(); i++) {
            if (string[i] != '\\') {
                said += string[i];
                continue;
            }
            const char escape = string[++i];
            static constexpr std::string_view from = "bfnrt", to = "\b\f\n\r\t";
            if (escape == 'u') {
                uint32_t code = unit(string.substr(i + 1, 4));
                i += 4;
                if (code >= 0xd800 && code < 0xdc00 && string.substr(i + 1, 2) == "\\u") {
                    code = 0x10000 + ((code - 0xd800) << 10) + (unit(string.substr(i + 3, 4)) - 0xdc00);
                    i += 6;
                }
                append(said, code);
            } else if (const size_t at = from.find(escape); at != std::string_view::npos) {
                said += to[at];
            } else {
                said += escape;
            }
        }
        return said;
    }

    /// Whether a text is JSON, as a model may have been cut off.
    static bool is_valid(std::string_view text) {
        Json json(text);
        try {
            if (!json.skip(0)) return false;
        } catch (const Error &) {
            return false;
        }
        json.space();
        return json.place_ == text.size();
    }

    static bool is_object(std::string_view text) {
        const size_t begin = text.find_first_not_of(" \t\r\n");
        return begin != std::string_view::npos && text[begin] == '{' && is_valid(text);
    }

    /// A text as a JSON string.
    static std::string quoted(std::string_view text) {
        static const char *const digits = "0123456789abcdef";
        std::string quoted = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') {
                quoted += '\\';
                quoted += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                quoted += "\\u00";
                quoted += digits[(c >> 4) & 15];
                quoted += digits[c & 15];
            } else {
                quoted += c;
            }
        }
        return quoted + "\"";
    }

    /// An object with a member more, before the others.
    static std::string with(std::string_view object, std::string_view name, std::string_view value) {
        const size_t begin = object.find('{');
        if (begin == std::string_view::npos) throw Error(CACTUS_CODE_ARGUMENT, "`request_json`: expected a JSON object");
        const std::string_view rest = object.substr(begin + 1);
        const size_t next = rest.find_first_not_of(" \t\r\n");
        const bool is_empty = next == std::string_view::npos || rest[next] == '}';
        return "{" + quoted(name) + ":" + std::string(value) + (is_empty ? "" : ",") + std::string(rest);
    }

private:
    static Error wrong() { return Error(CACTUS_CODE_ARGUMENT, "expected a JSON object or array"); }
    static uint32_t unit(std::string_view digits) { return static_cast<uint32_t>(std::stoul(std::string(digits), nullptr, 16)); }

    static void append(std::string &text, uint32_t code) {
        const auto byte = [&](uint32_t bits) { text += static_cast<char>(bits); };
        if (code < 0x80) return byte(code);
        if (code < 0x800) {
            byte(0xc0 | (code >> 6));
        } else {
            if (code < 0x10000) {
                byte(0xe0 | (code >> 12));
            } else {
                byte(0xf0 | (code >> 18));
                byte(0x80 | ((code >> 12) & 63));
            }
            byte(0x80 | ((code >> 6) & 63));
        }
        byte(0x80 | (code & 63));
    }

    /// Goes behind the value that begins here: false where there is none.
    bool skip(size_t depth) {
        space();
        const char first = peek();
        if (first == '"') return skip_string();
        if (first != '{' && first != '[') return skip_scalar();
        if (depth == 256) return false;
        const char close = first == '{' ? '}' : ']';
        place_++;
        space();
        for (bool is_first = true; peek() != close; is_first = false, space()) {
            if (!is_first && text_[place_++] != ',') return false;
            space();
            if (first == '{') {
                if (peek() != '"' || !skip_string()) return false;
                space();
                if (peek() != ':') return false;
                place_++;
            }
            if (!skip(depth + 1)) return false;
        }
        place_++;
        return true;
    }

    bool skip_string() {
        static constexpr std::string_view hex = "0123456789abcdefABCDEF";
        for (place_++; peek() != '"'; place_++) {
            if (static_cast<unsigned char>(peek()) < 0x20) return false;
            if (peek() != '\\') continue;
            place_++;
            if (std::string_view("\"\\/bfnrtu").find(peek()) == std::string_view::npos) return false;
            if (peek() != 'u') continue;
            for (int digit = 0; digit < 4; digit++) {
                place_++;
                if (hex.find(peek()) == std::string_view::npos) return false;
            }
        }
        place_++;
        return true;
    }

    bool skip_scalar() {
        const size_t end = std::min(text_.find_first_of(",}] \t\r\n", place_), text_.size());
        const std::string_view word = text_.substr(place_, end - place_);
        place_ = end;
        if (word.empty()) return false;
        if (word == "true" || word == "false" || word == "null") return true;
        size_t at = word[0] == '-' ? 1 : 0;
        const auto digits = [&] {
            const size_t from = at;
            while (at < word.size() && word[at] >= '0' && word[at] <= '9') at++;
            return at - from;
        };
        const bool leads_with_zero = at < word.size() && word[at] == '0';
        const size_t whole = digits();
        if (whole == 0 || (leads_with_zero && whole > 1)) return false;
        if (at < word.size() && word[at] == '.') {
            at++;
            if (digits() == 0) return false;
        }
        if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
            at++;
            if (at < word.size() && (word[at] == '+' || word[at] == '-')) at++;
            if (digits() == 0) return false;
        }
        return at == word.size();
    }

    char peek() const {
        if (place_ >= text_.size()) throw wrong();
        return text_[place_];
    }
    void space() {
        while (place_ < text_.size() && std::string_view(" \t\r\n").find(text_[place_]) != std::string_view::npos) place_++;
    }

    template <typename Item>
    void each(char open, char close, Item item) {
        space();
        if (peek() != open) throw wrong();
        place_++;
        for (space(); peek() != close; space()) {
            item();
            space();
            if (peek() == ',') place_++;
        }
        place_++;
    }

    /// The text of the value that begins here.
    std::string_view value() {
        space();
        const size_t begin = place_;
        size_t depth = 0;
        do {
            const char c = peek();
            if (c == '"') {
                for (place_++; peek() != '"'; place_++) place_ += peek() == '\\';
                place_++;
            } else if (c == '{' || c == '[') {
                depth++;
                place_++;
            } else if (c == '}' || c == ']') {
                if (depth == 0) throw wrong();
                depth--;
                place_++;
            } else if (depth > 0) {
                place_++;
            } else {
                const size_t end = text_.find_first_of(",}] \t\r\n", place_);
                if (end == place_) throw wrong();
                place_ = end == std::string_view::npos ? text_.size() : end;
            }
        } while (depth > 0);
        return text_.substr(begin, place_ - begin);
    }

    std::string_view text_;
    size_t place_ = 0;
};

} // namespace detail

/// What a model may call.
struct Tool {
    std::string name;
    std::string description;
    /// A JSON Schema of its arguments, which is an object.
    std::string parameters_json;
    /// Takes the arguments, a JSON object, and gives the text that the model reads. A std::exception that it throws is told to the model by its
    /// `what()`. What is none, such as the end of a thread that is cancelled, ends the answer, and comes to whoever asked.
    std::function<std::string(const std::string &arguments_json)> call;
};

/// A call that a model wants.
struct ToolCall {
    std::string id;
    std::string name;
    std::string arguments_json;
};

/// The calls of a result.
inline std::vector<ToolCall> tool_calls(const std::string &result_json) {
    using detail::Json;
    std::vector<ToolCall> calls;
    const std::string_view message = Json(result_json).member("message");
    const std::string_view listed = message.empty() ? message : Json(message).member("tool_calls");
    if (listed.empty()) return calls;
    for (const std::string_view call : Json(listed).items()) {
        const std::string_view function = Json(call).member("function");
        calls.push_back({Json::text(Json(call).member("id")), Json::text(Json(function).member("name")),
                         Json::text(Json(function).member("arguments"))});
    }
    return calls;
}

/// The text of a result's answer.
inline std::string text(const std::string &result_json) {
    const std::string_view message = detail::Json(result_json).member("message");
    return message.empty() ? std::string() : detail::Json::text(detail::Json(message).member("content"));
}

/// Asked before each call: false refuses it, and the model reads that it was.
using Confirm = std::function<bool(const ToolCall &)>;

namespace detail {

inline std::string finish_reason(const std::string &result_json) { return Json::text(Json(result_json).member("finish_reason")); }

/// What the model reads of a call that it wants.
inline std::string called(const std::vector<Tool> &tools, ToolCall call, const Confirm &confirm) {
    const auto found = std::find_if(tools.begin(), tools.end(), [&](const Tool &tool) { return tool.name == call.name; });
    if (found == tools.end()) return "error: there is no tool `" + call.name + "`";
    if (call.arguments_json.empty()) call.arguments_json = "{}";
    if (!Json::is_object(call.arguments_json)) return "error: the arguments are no JSON object";
    if (confirm && !confirm(call)) return "error: the call was refused";
    try {
        return found->call(call.arguments_json);
    } catch (const std::exception &error) {
        return std::string("error: ") + error.what();
    }
}

} // namespace detail

/// Answers a request, calls the tools that the model wants, and goes on with what they give: at most `most_rounds` times. The result is that of
/// the last answer. The request has `messages`, and what else it may have but `tools`. What is wrong with a call is told to the model; none is made
/// for an answer that was cancelled.
inline std::string respond_with_tools(const Model &model, const std::string &request_json, const std::vector<Tool> &tools,
                                      size_t most_rounds = 8, const Confirm &confirm = {}) {
    using detail::Json;
    std::string offered;
    for (const auto &tool : tools) {
        offered += std::string(offered.empty() ? "" : ",") + R"({"type":"function","function":{"name":)" + Json::quoted(tool.name) +
                   R"(,"description":)" + Json::quoted(tool.description) + R"(,"parameters":)" + tool.parameters_json + "}}";
    }
    Session session(model, Json::with(request_json, "tools", "[" + offered + "]"));
    std::string result = session.respond("{}");
    for (size_t round = 0; round < most_rounds; round++) {
        const auto calls = tool_calls(result);
        if (calls.empty() || detail::finish_reason(result) == "cancelled") break;
        std::string said;
        for (const auto &call : calls) {
            said += std::string(said.empty() ? "" : ",") + R"({"role":"tool","tool_call_id":)" + Json::quoted(call.id) + R"(,"content":)" +
                    Json::quoted(detail::called(tools, call, confirm)) + "}";
        }
        result = session.respond(R"({"messages":[)" + said + "]}");
    }
    return result;
}

/// Answers a request in the form of a JSON Schema, and gives the JSON text of the value. An answer that ends before it is whole is an error of the
/// kind "cancelled", which names the reason.
inline std::string respond_as(const Model &model, const std::string &request_json, const std::string &schema_json) {
    const std::string result = model.respond(detail::Json::with(request_json, "schema", schema_json));
    const std::string value = text(result);
    if (detail::Json(result).member("whole") != "true" || !detail::Json::is_valid(value)) {
        throw Error(CACTUS_CODE_CANCELLED, "the answer ended (" + detail::finish_reason(result) + ") before it was whole");
    }
    return value;
}

} // namespace cactus

#endif // CACTUS_TOOLS_HPP
