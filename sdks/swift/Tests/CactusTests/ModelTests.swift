import Foundation
import XCTest

@testable import Cactus

final class ModelTests: XCTestCase {
    func testAModelAnswersAndSaysWhatItIs() async throws {
        let steps = Locked<[String]>([])
        var options = LoadOptions(contextTokens: 256, threads: 1)
        options.decodeThreads = 1
        let model = try await Model.load(try Given.bundle("chat"), options: options) { step in steps.with { $0.append(step.stage) } }
        XCTAssertTrue(steps.with { $0 }.contains("loading"))
        let info = try model.info()
        XCTAssertEqual(info.contextTokens, 256)
        XCTAssertEqual([info.threads, info.decodeThreads], [1, 1])
        XCTAssertTrue(info.canChat && info.vocabularySize > 0 && !info.family.isEmpty)
        let answer = try await model.respond(to: Given.short())
        XCTAssertEqual(answer.usage.completionTokens, answer.tokens.count)
        XCTAssertEqual(answer.usage.totalTokens, answer.usage.promptTokens + answer.usage.completionTokens)
        XCTAssertEqual(answer.message.role, "assistant")
        XCTAssertEqual(answer.message.content, answer.text)
        XCTAssertNil(answer.route)
        let again = try await model.respond(to: Given.short())
        XCTAssertEqual(again.text, answer.text)
        await model.close()
    }

    func testTokensGoThereAndBack() async throws {
        let model = try await Given.model()
        let tokens = try await model.tokenize("hello there")
        XCTAssertFalse(tokens.isEmpty)
        let back = try await model.detokenize(tokens)
        XCTAssertEqual(back, "hello there")
        let none = try await model.tokenize("")
        XCTAssertEqual(none, [])
        let score = try await model.score(tokens)
        XCTAssertEqual(score.tokens, tokens.count - 1)
        XCTAssertEqual(score.logprob, score.logprobs.reduce(0, +), accuracy: 1e-6)
        await expect(.argument) { _ = try await model.score(tokens, from: -1) }
        await expect(.argument) { _ = try await model.detokenize([.max]) }
        await expect(.argument) { _ = try await model.tokenize("a\0b") }
        for threads in [-1, 1 << 20 + 1, .max] {
            await expect(.argument, "\(threads)") { try model.setThreads(threads) }
            await expect(.argument, "\(threads)") { try model.setThreads(1, decode: threads) }
        }
        await expect(.argument) { _ = try await Model.load("a\0b") }
        await expect(.argument) { _ = try await Model.prepare("a\0b") }
        await expect(.argument) { _ = try await Model.load(bundle: try Given.bundle("chat"), documents: "a\0b") }
        await expect(.argument) { _ = try await Embedder.load("a\0b") }
        await expect(.argument) { _ = try await Library.checkBundle("a\0b") }
        await expect(.argument) { try await model.setPolicy(Policy(text: "a\0b")) }
        await model.close()
    }

    func testWhatIsWrongIsSaid() async throws {
        let model = try await Given.model(contextTokens: 512)
        await expect(.argument, "unknown field") { _ = try await model.respond(to: Request(json: ["temprature": 1])) }
        await expect(.argument, "nothing asked") { _ = try await model.respond(to: Request()) }
        await expect(.contextFull) { _ = try await model.respond(to: String(repeating: "long ", count: 2000)) }
        await expect(.argument, "unknown option") {
            var options = LoadOptions()
            options.other = ["context_token": 5]
            _ = try await Model.load(try Given.bundle("chat"), options: options)
        }
        do {
            _ = try await Model.load("/nowhere/at/all", options: LoadOptions(offline: true))
            XCTFail("there is no such model")
        } catch let error as CactusError {
            XCTAssertTrue([.notFound, .bundle].contains(error.kind), "\(error)")
            XCTAssertTrue(error.message.contains("nowhere"))
        }
        await model.close()
    }

    func testAClosedObjectSaysSoAlways() async throws {
        let model = try await Given.model()
        let session = try await model.session()
        let stream = model.stream(Given.short())
        await stream.close()
        await stream.close()
        await expect(.handle) { _ = try await stream.answer() }
        await session.close()
        await session.close()
        await expect(.handle) { _ = try await session.respond(to: "hello") }
        await expect(.handle) { _ = try session.messages() }
        let other = try await model.session()
        await model.close()
        await model.close()
        await expect(.handle) { _ = try await model.respond(to: "hello") }
        await expect(.handle) { _ = try await model.tokenize("x") }
        await expect(.handle) { _ = try await model.detokenize([1]) }
        await expect(.handle) { _ = try await model.score([1, 2]) }
        await expect(.handle) { _ = try model.info() }
        await expect(.handle) { try model.setThreads(1) }
        await expect(.handle) { try await model.setPolicy(nil) }
        await expect(.handle) { _ = try await model.session() }
        await expect(.handle) { _ = try await model.query("x") }
        await expect(.handle) { _ = try await other.respond(to: "hello") }
        await other.close()
    }

    func testHintsChangeNoAnswer() async throws {
        let model = try await Given.model()
        let before = try await model.respond(to: Given.short())
        try model.setThreads(1, decode: 1)
        Library.memoryPressure()
        let after = try await model.respond(to: Given.short())
        XCTAssertEqual(after.text, before.text)
        XCTAssertEqual(after.usage.cachedTokens, 0, "what was kept is forgotten")
        await model.close()
    }

    func testAPromptThatIsComputedBeforeIsKnown() async throws {
        let model = try await Given.model()
        let session = try await model.session(Request(messages: [.system(String(repeating: "Be brief. ", count: 20))]))
        try await session.prewarm()
        XCTAssertEqual(try session.messages().count, 1, "which leaves the conversation as it was")
        var request = Request("hello")
        request.options.maxTokens = 4
        let answer = try await session.respond(to: request)
        XCTAssertGreaterThan(answer.usage.cachedTokens, 0)
        await session.close()
        await model.close()
    }

    func testCancellingStopsLoading() async throws {
        let bundle = try Given.bundle("chat")
        let task = Task {
            try await Model.load(bundle) { _ in Thread.sleep(forTimeInterval: 0.2) }
        }
        task.cancel()
        do {
            _ = try await task.value
            XCTFail("it was cancelled")
        } catch is CancellationError {}
    }

    func testABundleIsCheckedBeforeItIsLoaded() async throws {
        let report = try await Library.checkBundle(try Given.bundle("chat"), verify: true)
        XCTAssertTrue(report.isUsable)
        XCTAssertNil(report.error)
        XCTAssertGreaterThan(report.mappedBytes ?? 0, 0)
        let support = try await Library.support(bundle: try Given.bundle("chat"))
        XCTAssertTrue(support.isUsable, "\(support.obstacles)")
        let missing = try await Library.support(bundle: "/nowhere/at/all")
        guard case .missing? = missing.obstacles.first else { return XCTFail("\(missing.obstacles)") }
        let newer = try Given.folder() + "/newer"
        try FileManager.default.copyItem(atPath: try Given.bundle("chat"), toPath: newer)
        let manifest = URL(fileURLWithPath: newer + "/components/manifest.json")
        let text = try String(contentsOf: manifest, encoding: .utf8)
        let later = text.replacingOccurrences(of: "\"version\": *[0-9]+", with: "\"version\": 999", options: .regularExpression)
        XCTAssertNotEqual(text, later)
        try later.write(to: manifest, atomically: true, encoding: .utf8)
        let unread = try await Library.support(bundle: newer)
        guard case .version(let message)? = unread.obstacles.first else { return XCTFail("\(unread.obstacles)") }
        XCTAssertTrue(message.contains("999"), message)
        XCTAssertFalse(Library.support(downloading: .max, to: URL(fileURLWithPath: "/nowhere")).isUsable)
        XCTAssertTrue(Library.support(downloading: 1, to: URL(fileURLWithPath: NSTemporaryDirectory())).isUsable)
    }

    func testTheLibraryTellsWhatItDoes() async throws {
        XCTAssertFalse(Library.version.isEmpty)
        XCTAssertEqual(Library.abiVersion, 1)
        let said = Locked<[String]>([])
        Library.setLog(level: .information) { _, part, _ in said.with { $0.append(part) } }
        let embedder = try await Embedder.load(try Given.bundle("embeds"))
        await embedder.close()
        Library.setLog(nil)
        let count = said.with { $0.count }
        let again = try await Embedder.load(try Given.bundle("embeds"))
        await again.close()
        XCTAssertGreaterThan(count, 0)
        XCTAssertEqual(said.with { $0.count }, count, "and then it is silent")
    }

    func testModelsAreKeptInAFolderOfTheirOwn() throws {
        let folder = URL(fileURLWithPath: try Given.folder()).appendingPathComponent("a/b", isDirectory: true)
        var isFolder: ObjCBool = false
        XCTAssertTrue(FileManager.default.fileExists(atPath: try Storage.excluded(folder).path, isDirectory: &isFolder) && isFolder.boolValue)
        XCTAssertEqual(try Storage.models.lastPathComponent, "Cactus")
    }
}
