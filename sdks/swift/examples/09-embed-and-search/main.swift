// Texts that are found by what they mean.
//
//     swift run 09-embed-and-search MODEL [FOLDER]
import Cactus
import Foundation

guard CommandLine.arguments.count >= 2 else {
    print("usage: 09-embed-and-search MODEL [FOLDER]")
    exit(2)
}
let embedder = try await Embedder.load(CommandLine.arguments[1])
let texts = ["A cat sleeps on the sofa.", "The train leaves at nine.", "Bread is baked from flour and water."]
let vectors = try await embedder.embed(texts)

let folder = CommandLine.arguments.count > 2 ? CommandLine.arguments[2] : NSTemporaryDirectory() + "cactus-example-\(UUID().uuidString)"
let index = try await Index.open(folder, dimension: vectors[0].count)
try await index.add(texts.indices.map { Index.Document(id: Int32($0), text: texts[$0], metadata: "example", vector: vectors[$0]) })

let question = try await embedder.embed("When does my train go?")
for hit in try await index.query(question, top: 2) {
    let document = try await index.get([hit.id])[0]
    print("\(hit.score): \(document.text)")
}
try await index.delete(texts.indices.map { Int32($0) })
try await index.compact()
await index.close()
await embedder.close()
