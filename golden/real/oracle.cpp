// Prints what llama.cpp computes for a GGUF model: token ids, and greedy continuations with
// the margin of each choice. golden/real/make.py builds and runs it.
//
//   oracle MODEL tokenize          < texts     one JSON line a text
//   oracle MODEL greedy TOKENS     < prompts   one JSON line a prompt
//
// Texts are separated by NUL bytes. Bytes are printed in hexadecimal, so that no JSON string
// has to be escaped here.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "llama.h"

namespace {

using Tokens = std::vector<llama_token>;

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "oracle: %s\n", what);
    std::exit(1);
}

std::vector<std::string> read_texts() {
    const std::string all{std::istreambuf_iterator<char>(std::cin), {}};
    std::vector<std::string> texts(1);
    for (char c : all) {
        if (c == '\0') {
            texts.emplace_back();
        } else {
            texts.back().push_back(c);
        }
    }
    return texts;
}

Tokens tokenize(const llama_vocab * vocab, const std::string & text, bool parse_special) {
    Tokens ids(text.size() + 8);
    const int n = llama_tokenize(vocab, text.data(), (int32_t) text.size(), ids.data(), (int32_t) ids.size(), true, parse_special);
    if (n < 0) fail("tokenize needs more room");
    ids.resize(n);
    return ids;
}

std::string piece(const llama_vocab * vocab, llama_token id) {
    std::string out(256, '\0');
    const int n = llama_token_to_piece(vocab, id, out.data(), (int32_t) out.size(), 0, true);
    if (n < 0) fail("token text is too long");
    out.resize(n);
    return out;
}

void print_ids(const char * name, const Tokens & ids) {
    std::printf("\"%s\":[", name);
    for (size_t i = 0; i < ids.size(); i++) std::printf("%s%d", i ? "," : "", ids[i]);
    std::printf("]");
}

void print_hex(const char * name, const std::string & bytes) {
    std::printf("\"%s\":\"", name);
    for (unsigned char c : bytes) std::printf("%02x", c);
    std::printf("\"");
}

void decode(llama_context * ctx, Tokens & ids) {
    if (llama_decode(ctx, llama_batch_get_one(ids.data(), (int32_t) ids.size())) != 0) fail("decode failed");
}

// The `count` largest logits, best first.
Tokens top(const float * logits, int vocab_size, int count) {
    Tokens order(vocab_size);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [logits](llama_token a, llama_token b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    order.resize(count);
    return order;
}

void greedy(llama_model * model, const std::string & prompt, int max_tokens) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    Tokens ids = tokenize(vocab, prompt, true);
    if (ids.empty()) fail("empty prompt");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t) ids.size() + max_tokens;
    params.n_batch = params.n_ctx;
    params.n_threads = params.n_threads_batch = 2;
    llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == nullptr) fail("no context");

    std::printf("{");
    print_ids("prompt_ids", ids);
    Tokens out;
    std::vector<float> margins;
    std::string text, first_top;
    bool ended = false;
    Tokens next = ids;
    while ((int) out.size() < max_tokens) {
        decode(ctx, next);
        const float * logits = llama_get_logits_ith(ctx, -1);
        const Tokens best = top(logits, llama_vocab_n_tokens(vocab), 8);
        if (out.empty()) {
            for (llama_token id : best) {
                char line[64];
                std::snprintf(line, sizeof line, "%s[%d,%.5f]", first_top.empty() ? "" : ",", id, logits[id]);
                first_top += line;
            }
        }
        out.push_back(best[0]);
        margins.push_back(logits[best[0]] - logits[best[1]]);
        if (llama_vocab_is_eog(vocab, best[0])) {
            ended = true;
            break;
        }
        text += piece(vocab, best[0]);
        next = {best[0]};
    }
    std::printf(",\"first_top\":[%s],", first_top.c_str());
    print_ids("token_ids", out);
    std::printf(",\"margins\":[");
    for (size_t i = 0; i < margins.size(); i++) std::printf("%s%.4f", i ? "," : "", margins[i]);
    std::printf("],\"ended\":%s,", ended ? "true" : "false");
    print_hex("text_hex", text);
    std::printf("}\n");
    llama_free(ctx);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 3) fail("usage: oracle MODEL tokenize | greedy TOKENS");
    const std::string mode = argv[2];
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.vocab_only = mode == "tokenize";
    llama_model * model = llama_model_load_from_file(argv[1], params);
    if (model == nullptr) fail("cannot load the model");
    for (const std::string & text : read_texts()) {
        if (mode == "tokenize") {
            const llama_vocab * vocab = llama_model_get_vocab(model);
            std::printf("{");
            print_ids("ids", tokenize(vocab, text, false));
            std::printf(",");
            print_ids("ids_parse_special", tokenize(vocab, text, true));
            std::printf("}\n");
        } else if (mode == "greedy" && argc == 4) {
            greedy(model, text, std::atoi(argv[3]));
        } else {
            fail("unknown mode");
        }
    }
    llama_model_free(model);
}
