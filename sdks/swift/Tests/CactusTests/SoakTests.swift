import Foundation
import XCTest

@testable import Cactus

/// Random interleavings of open, generate, cancel, read, leave and close. CACTUS_SOAK says how many, 100 without it.
final class SoakTests: XCTestCase {
    func testRandomInterleavingsKeepTheContractAndLeakNothing() async throws {
        await eventually("nothing is left of other tests") { Owner.count.with { $0 } == 0 && Running.count.with { $0 } == 0 }
        let rounds = ProcessInfo.processInfo.environment["CACTUS_SOAK"].flatMap { Int($0) } ?? 100
        let seed = UInt64(20_26)
        // What is loaded once and kept is there before it is counted.
        for i in 0..<4 { try await Self.round(Dice(seed: seed &+ UInt64(1_000_000 + i))) }
        let (threads, memory) = (Self.threads(), Self.memory())
        let next = Locked(0)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<3 {
                group.addTask {
                    while let i = next.with({ i in
                        i += 1
                        return i <= rounds ? i : nil
                    }) {
                        try await Self.round(Dice(seed: seed &+ UInt64(i)))
                    }
                }
            }
            try await group.waitForAll()
        }
        await eventually("all handles are closed, and nothing runs") { Owner.count.with { $0 } == 0 && Running.count.with { $0 } == 0 }
        #if os(Linux)
        await eventually("threads end") { Self.threads() <= threads + 8 }
        let grown = Self.memory() - memory
        // A model that leaks has some 3 MB each, so this is far from what a round would leave.
        // ThreadSanitizer keeps notes of its own.
        if ProcessInfo.processInfo.environment["TSAN_OPTIONS"] == nil {
            XCTAssertLessThan(grown, 64 << 20, "memory has grown by \(grown) bytes")
        }
        print("soak: \(rounds) interleavings, \(grown >> 10) KiB more memory, \(Self.threads()) threads (\(threads) before)")
        #endif
    }

    private static func round(_ given: Dice) async throws {
        var dice = given
        let model = try await Given.model(contextTokens: 512)
        let session = try await model.session()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<Int.random(in: 1...4, using: &dice) {
                let (kind, after, delay) = (
                    Int.random(in: 0..<7, using: &dice), Int.random(in: 0..<6, using: &dice), UInt64.random(in: 0..<4_000_000, using: &dice)
                )
                group.addTask { await Self.act(kind, after: after, delay: delay, model, session) }
            }
            if Bool.random(using: &dice) {
                let delay = UInt64.random(in: 0..<6_000_000, using: &dice)
                group.addTask {
                    try? await Task.sleep(nanoseconds: delay)
                    await model.close()
                }
            }
            if Int.random(in: 0..<4, using: &dice) == 0 { group.addTask { await session.close() } }
        }
        // Others are closed by being forgotten.
        if Bool.random(using: &dice) {
            await session.close()
            await model.close()
        }
    }

    /// One thing that a program does. Errors are those of closed objects, of sessions that answer already, and of cancelled tasks.
    private static func act(_ kind: Int, after: Int, delay: UInt64, _ model: Model, _ session: Session) async {
        do {
            switch kind {
            case 0:
                let answer = try await model.respond(to: Given.short(tokens: 3 + after))
                XCTAssertFalse(answer.finishReason.rawValue.isEmpty)
            case 1, 2:
                let stream = kind == 1 ? model.stream(Given.long(tokens: 400)) : session.stream(Given.short(tokens: 30))
                var events: [Event] = []
                for try await event in stream {
                    events.append(event)
                    if events.count == after { stream.cancel() }
                }
                check(events)
            case 3:
                var count = 0
                for try await _ in model.stream(Given.long(tokens: 400)) {
                    count += 1
                    if count > after { break }
                }
            case 4:
                let task = Task { try await all(model.stream(Given.long(tokens: 400))) }
                try await Task.sleep(nanoseconds: delay)
                task.cancel()
                check(try await task.value)
            case 5:
                let stream = model.stream(Given.long(tokens: 400))
                try await Task.sleep(nanoseconds: delay)
                await stream.close()
                await stream.close()
            default:
                _ = model.stream(Given.long(tokens: 400))
                try await Task.sleep(nanoseconds: delay)
                Library.memoryPressure()
            }
        } catch let error as CactusError {
            XCTAssertTrue([.handle, .busy].contains(error.kind), "\(error)")
        } catch {
            XCTAssertTrue(error is CancellationError, "\(error)")
        }
    }

    #if os(Linux)
    private static func status(_ name: String) -> Int {
        let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix(name) }
        return line.flatMap { Int($0.filter(\.isNumber)) } ?? 0
    }

    private static func threads() -> Int { status("Threads:") }

    private static func memory() -> Int { status("RssAnon:") << 10 }
    #else
    private static func threads() -> Int { 0 }
    private static func memory() -> Int { 0 }
    #endif
}
