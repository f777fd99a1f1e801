// Texts by what they mean.
//
//     09-embed-and-search EMBEDDER FOLDER
#include <cactus.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    if (argc != 3) return 2;
    cactus::Embedder embedder(argv[1]);
    const std::vector<std::string> texts = {"The river is quick.", "Bread is baked.", "Rain falls on the hill."};
    const auto vectors = embedder.embed(texts);

    // The index is a file in the folder, and is there again the next time.
    cactus::Index index(argv[2], vectors[0].size());
    std::vector<cactus::Document> documents;
    for (size_t i = 0; i < texts.size(); i++) {
        documents.push_back({static_cast<int>(i + 1), texts[i], vectors[i], R"({"chapter": 1})"});
    }
    index.remove({1, 2, 3});
    index.add(documents);
    for (const auto &hit : index.query(embedder.embed("water"), R"({"top_k": 2})")) {
        std::cout << hit.score << " " << index.get({hit.id})[0].text << "\n";
    }
} catch (const cactus::Error &error) {
    std::cerr << error.kind() << ": " << error.what() << "\n";
    return 1;
}
