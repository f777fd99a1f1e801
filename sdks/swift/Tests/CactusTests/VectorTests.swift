import Foundation
import XCTest

@testable import Cactus

final class VectorTests: XCTestCase {
    func testTextsAndPicturesBecomeVectors() async throws {
        let embedder = try await Embedder.load(try Given.bundle("embeds"))
        let vectors = try await embedder.embed(["the word", "another", "the word"])
        XCTAssertEqual(vectors[0], vectors[2])
        XCTAssertNotEqual(vectors[0], vectors[1])
        XCTAssertEqual(vectors[0].reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        let none = try await embedder.embed([String]())
        XCTAssertTrue(none.isEmpty)
        await expect(.argument, "too long") { _ = try await embedder.embed(String(repeating: "the ", count: 90)) }
        await expect(.unsupported) { _ = try await embedder.embedImage(try Given.golden("pictures/files/rgba.png")) }
        await embedder.close()
        await expect(.handle) { _ = try await embedder.embed("x") }
        let pictures = try await Embedder.load(try Given.bundle("pictures"))
        let picture = try await pictures.embedImage(try Given.golden("pictures/files/rgba.png"))
        let text = try await pictures.embed("the")
        XCTAssertEqual(picture.count, text.count)
        await expect(.argument) { _ = try await pictures.embedImage("/nowhere.png") }
        await pictures.close()
    }

    func testAModelThatMakesNoVectorsSaysSo() async throws {
        await expect(.unsupported) { _ = try await Embedder.load(try Given.bundle("chat")) }
        await expect(.unsupported) { _ = try await Transcriber.load(try Given.bundle("chat")) }
        await eventually("what was opened is closed") { Owner.count.with { $0 } == 0 }
    }

    func testAnIndexKeepsFindsAndForgets() async throws {
        let folder = try Given.folder()
        let index = try await Index.open(folder, dimension: 2)
        let long = String(repeating: "grüße ", count: 400)
        try await index.add([
            .init(id: 1, text: "one", metadata: "first", vector: [1, 0]), .init(id: -2, text: long, vector: [0.6, 0.8]),
            .init(id: 3, text: "", vector: [-1, 0]),
        ])
        let found = try await index.query([[1, 0], [0, 1]], top: 2)
        XCTAssertEqual(found.map { $0.map(\.id) }, [[1, -2], [-2, 1]])
        XCTAssertEqual(found[0][0].score, 1, accuracy: 0.01)
        let near = try await index.query([1, 0], threshold: 0.9)
        XCTAssertEqual(near.map(\.id), [1])
        let filtered = try await index.query([0, 1], filter: ["metadata": "first"])
        XCTAssertEqual(filtered.map(\.id), [1])
        let documents = try await index.get([-2, 1])
        XCTAssertEqual(documents.map(\.text), [long, "one"], "also what does not fit at first")
        XCTAssertEqual(documents.map(\.metadata), [nil, "first"])
        XCTAssertEqual(documents[1].vector[0], 1, accuracy: 0.01)
        let nothing = try await index.get([])
        XCTAssertTrue(nothing.isEmpty)
        await expect(.argument, "an id that is there") { try await index.add([.init(id: 1, text: "", vector: [1, 0])]) }
        await expect(.argument, "another length") { try await index.add([.init(id: 9, text: "", vector: [1])]) }
        await expect(.argument, "another length") { _ = try await index.query([1, 2, 3]) }
        await expect(.argument, "an id that is not there") { _ = try await index.get([77]) }
        for top in [0, -1, 1 << 20 + 1, .max] {
            await expect(.argument, "top \(top)") { _ = try await index.query([1, 0], top: top) }
        }
        for document in [Index.Document(id: 9, text: "a\0b", vector: [1, 0]), .init(id: 9, text: "", metadata: "a\0b", vector: [1, 0])] {
            await expect(.argument, "a zero byte") { try await index.add([document]) }
        }
        try await index.add([])
        try await index.delete([1, 77])
        try await index.compact()
        await index.close()
        await index.close()
        await expect(.handle) { _ = try await index.query([1, 0]) }
        let again = try await Index.open(folder, dimension: 2)
        let left = try await again.query([1, 0])
        XCTAssertEqual(left.map(\.id), [-2, 3])
        await again.close()
        do {
            _ = try await Index.open(folder, dimension: 3)
            XCTFail("it has vectors of another length")
        } catch is CactusError {}
        for dimension in [0, -1, 1 << 20 + 1, .max] {
            await expect(.argument, "\(dimension)") { _ = try await Index.open(folder, dimension: dimension) }
        }
        await expect(.argument) { _ = try await Index.open("a\0b", dimension: 2) }
    }

    func testClosingWaitsForACall() async throws {
        let isFree = Locked(false)
        let owner = Owner(1) { _ in isFree.with { $0 = true } }
        let (hasBegun, mayEnd) = (Locked(false), Locked(false))
        let call = Task {
            try await Worker.run {
                try owner.use {
                    hasBegun.with { $0 = true }
                    while !mayEnd.with({ $0 }) { usleep(500) }
                    return isFree.with { $0 }
                }
            }
        }
        await eventually("it is under way") { hasBegun.with { $0 } }
        let closing = Task { await owner.closed() }
        // From here on calls are refused; the one before is waited for.
        await eventually("it is being closed") { (try? owner.use {}) == nil }
        try await Task.sleep(nanoseconds: 50_000_000)
        XCTAssertFalse(isFree.with { $0 })
        mayEnd.with { $0 = true }
        let wasFree = try await call.value
        XCTAssertFalse(wasFree)
        await closing.value
        XCTAssertTrue(isFree.with { $0 })
        XCTAssertThrowsError(try owner.use {}) { XCTAssertEqual(($0 as? CactusError)?.kind, .handle) }
    }

    func testAnIndexIsClosedWhileOthersUseIt() async throws {
        for _ in 0..<10 {
            let index = try await Index.open(try Given.folder(), dimension: 2)
            await withTaskGroup(of: Void.self) { group in
                for i in 0..<4 {
                    group.addTask {
                        do {
                            for j in 0..<1_000_000 {
                                try await index.add([.init(id: Int32(i * 1_000_000 + j), text: "x", vector: [1, 0])])
                                _ = try await index.query([1, 0])
                            }
                            XCTFail("it was never closed")
                        } catch {
                            XCTAssertEqual((error as? CactusError)?.kind, .handle, "\(error)")
                        }
                    }
                }
                group.addTask {
                    try? await Task.sleep(nanoseconds: 3_000_000)
                    await index.close()
                }
            }
        }
    }

    func testDocumentsAreFound() async throws {
        let folder = try Given.folder()
        try "# Cats\n\nA cat sleeps on the sofa.\n".write(toFile: folder + "/cats.md", atomically: true, encoding: .utf8)
        try "# Trains\n\nThe train leaves at nine.\n".write(toFile: folder + "/trains.md", atomically: true, encoding: .utf8)
        let embedder = try await Embedder.load(try Given.bundle("embeds"), documents: folder)
        let found = try await embedder.query("train", count: 2)
        XCTAssertEqual(found.first?.source, "trains.md")
        XCTAssertEqual(found.first?.headings, ["Trains"])
        XCTAssertTrue(found.first?.text.hasPrefix("The train leaves") == true)
        for count in [0, -1, 1 << 20 + 1, .max] {
            await expect(.argument, "\(count)") { _ = try await embedder.query("train", count: count) }
        }
        await embedder.close()
        let plain = try await Embedder.load(try Given.bundle("embeds"))
        await expect(.argument, "no documents") { _ = try await plain.query("train") }
        await plain.close()
        // A model that writes takes vectors of another, which the environment names.
        setenv("CACTUS_EMBEDDER", try Given.bundle("embeds"), 1)
        defer { unsetenv("CACTUS_EMBEDDER") }
        let model = try await Model.load(bundle: try Given.bundle("chat"), documents: folder)
        let passages = try await model.query("train", count: 1)
        XCTAssertEqual(passages.map(\.source), ["trains.md"])
        let answer = try await model.respond(to: Given.short())
        XCTAssertEqual(answer.usage.completionTokens, answer.tokens.count)
        await model.close()
    }
}
