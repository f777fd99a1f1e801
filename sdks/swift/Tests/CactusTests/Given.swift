import Foundation
import XCTest

@testable import Cactus

/// What `test.sh` has made: bundles of tiny models.
enum Given {
    static func bundle(_ name: String) throws -> String {
        guard let folder = ProcessInfo.processInfo.environment["CACTUS_TEST_BUNDLES"] else {
            throw XCTSkip("CACTUS_TEST_BUNDLES names no folder of bundles; sdks/swift/test.sh makes one")
        }
        return "\(folder)/\(name)"
    }

    static func golden(_ path: String) throws -> String {
        URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../../../golden/\(path)").standardized.path
    }

    /// A model that computes with one thread, and has room for what `long` says.
    static func model(contextTokens: Int = 60_000) async throws -> Model {
        var options = LoadOptions(contextTokens: contextTokens, threads: 1)
        options.other = ["chunk_tokens": 32, "queue": 4096]
        return try await Model.load(try bundle("chat"), options: options)
    }

    static func folder() throws -> String {
        let folder = NSTemporaryDirectory() + "cactus-swift-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        return folder
    }

    static let longTokens = 50_000

    /// Says more than any test waits for, however fast the machine is.
    static func long(_ text: String = "Count.", tokens: Int = longTokens) -> Request {
        var request = Request()
        request.prompt = text
        request.options = GenerationOptions(maxTokens: tokens, temperature: 0, seed: 1)
        request.options.other = ["ignore_eos": true]
        return request
    }

    static func short(_ text: String = "hello", tokens: Int = 8) -> Request {
        var request = Request(text)
        request.options = GenerationOptions(maxTokens: tokens, temperature: 0, seed: 7)
        return request
    }
}

extension XCTestCase {
    /// Runs something that has to throw an error of a kind.
    func expect(
        _ kind: CactusError.Kind, _ what: String = "", file: StaticString = #filePath, line: UInt = #line, _ body: () async throws -> Void
    ) async {
        do {
            try await body()
            XCTFail("nothing was thrown; expected \(kind) \(what)", file: file, line: line)
        } catch let error as CactusError {
            XCTAssertEqual(error.kind, kind, "\(error) \(what)", file: file, line: line)
        } catch {
            XCTFail("\(error); expected \(kind) \(what)", file: file, line: line)
        }
    }

    /// Waits until something is so.
    func eventually(_ what: String, within seconds: Double = 10, file: StaticString = #filePath, line: UInt = #line, _ holds: () -> Bool) async {
        let end = Date().addingTimeInterval(seconds)
        while !holds() {
            if Date() > end {
                XCTFail("it did not come to be: \(what)", file: file, line: line)
                return
            }
            try? await Task.sleep(nanoseconds: 5_000_000)
        }
    }
}

/// What the contract says of every stream.
func check(_ events: [Event], file: StaticString = #filePath, line: UInt = #line) {
    XCTAssertEqual(events.filter(\.isLast).count, 1, "one last event", file: file, line: line)
    XCTAssertEqual(events.last?.isLast, true, "nothing behind it", file: file, line: line)
    for event in events {
        if case .text(let text) = event {
            XCTAssertFalse(text.isEmpty || text.contains("\u{FFFD}"), "whole characters", file: file, line: line)
        }
    }
}

func all(_ events: Events) async throws -> [Event] {
    var found: [Event] = []
    for try await event in events { found.append(event) }
    return found
}

func text(_ events: [Event]) -> String {
    events.reduce(into: "") { if case .text(let piece) = $1 { $0 += piece } }
}

func isCancelled(_ event: Event?) -> Bool {
    if case .cancelled = event { true } else { false }
}
