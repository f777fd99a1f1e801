import Foundation
import XCTest

@testable import Cactus

final class StreamTests: XCTestCase {
    func testAStreamHasTheAnswerAndOneEnd() async throws {
        let model = try await Given.model()
        let events = try await all(model.stream(Given.short(tokens: 12)))
        check(events)
        guard case .started(let prompt, _) = events.first, case .done(let answer) = events.last else { return XCTFail("\(events)") }
        XCTAssertEqual(prompt, answer.usage.promptTokens)
        XCTAssertEqual(text(events), answer.text)
        var pieces = ""
        for try await piece in model.stream(Given.short(tokens: 12)).texts { pieces += piece }
        XCTAssertEqual(pieces, answer.text)
        var last = ""
        for try await snapshot in model.stream(Given.short(tokens: 12)).snapshots {
            XCTAssertTrue(snapshot.hasPrefix(last) && snapshot != last)
            last = snapshot
        }
        XCTAssertEqual(last, answer.text)
        await model.close()
    }

    func testCancellingEndsAStreamWithinATokenAnyNumberOfTimes() async throws {
        let model = try await Given.model()
        let stream = model.stream(Given.long())
        var events: [Event] = []
        for try await event in stream {
            events.append(event)
            if case .text = event, events.count == 4 {
                DispatchQueue.global().async { stream.cancel() }
                stream.cancel()
            }
        }
        check(events)
        guard case .cancelled(let answer) = events.last else { return XCTFail("\(events)") }
        XCTAssertEqual(answer.finishReason, .cancelled)
        XCTAssertEqual(answer.text, text(events))
        XCTAssertLessThan(answer.usage.completionTokens, Given.longTokens)
        stream.cancel()
        let rest = try await all(stream)
        XCTAssertTrue(rest.isEmpty, "nothing comes after the end")
        await model.close()
    }

    func testLeavingALoopCancels() async throws {
        let model = try await Given.model()
        let before = try model.info().json["requests"]?["cancelled"]?.int ?? 0
        let stream = model.stream(Given.long())
        for try await event in stream {
            if case .text = event { break }
        }
        for try await _ in model.stream(Given.long()).texts { break }
        await eventually("both are cancelled") { (try? model.info().json["requests"]?["cancelled"]?.int) == before + 2 }
        _ = stream
        await model.close()
    }

    func testAStreamThatNobodyReadsIsCancelledWhenItIsForgotten() async throws {
        let model = try await Given.model()
        _ = model.stream(Given.long())
        await eventually("nothing is under way") { Running.count.with { $0 } == 0 }
        XCTAssertNotNil(try? model.info())
        await model.close()
    }

    func testAReaderWhoseTaskIsCancelledGetsTheLastEvent() async throws {
        let model = try await Given.model()
        let begun = Locked(false)
        let task = Task {
            var events: [Event] = []
            for try await event in model.stream(Given.long()) {
                events.append(event)
                if case .text = event { begun.with { $0 = true } }
            }
            return events
        }
        await eventually("it answers") { begun.with { $0 } }
        task.cancel()
        let events = try await task.value
        check(events)
        XCTAssertTrue(isCancelled(events.last))
        await model.close()
    }

    func testReadersOfTextsWhoseTaskIsCancelledThrow() async throws {
        let model = try await Given.model()
        for read in [{ $0.texts }, { $0.snapshots }] as [@Sendable (Events) -> Events.Texts] {
            let begun = Locked(false)
            let task = Task {
                for try await _ in read(model.stream(Given.long())) { begun.with { $0 = true } }
            }
            await eventually("it answers") { begun.with { $0 } }
            task.cancel()
            do {
                try await task.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
            // One that was cancelled before, and one that is cancelled from elsewhere.
            let early = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                for try await _ in read(model.stream(Given.long())) {}
            }
            do {
                try await early.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
            let stream = model.stream(Given.long())
            do {
                for try await _ in read(stream) { stream.cancel() }
                XCTFail("it was cancelled")
            } catch is CancellationError {}
        }
        await model.close()
    }

    func testAnAnswerWhoseTaskIsCancelledThrows() async throws {
        let model = try await Given.model()
        let task = Task { try await model.respond(to: Given.long()) }
        try await Task.sleep(nanoseconds: 20_000_000)
        task.cancel()
        do {
            _ = try await task.value
            XCTFail("it was cancelled")
        } catch is CancellationError {}
        await model.close()
    }

    func testClosingAModelEndsItsStreams() async throws {
        let model = try await Given.model()
        let session = try await model.session()
        var request = Given.long()
        (request.messages, request.prompt) = ([.user("hello")], nil)
        let streams = [model.stream(Given.long()), model.stream(Given.long("And.")), session.stream(request)]
        let iterators = streams.map { $0.makeAsyncIterator() }
        for i in iterators.indices { _ = try await iterators[i].next() }
        await model.close()
        XCTAssertEqual(Running.count.with { $0 }, 0, "close waits")
        for i in iterators.indices {
            var last: Event?
            while let event = try await iterators[i].next() {
                XCTAssertNotEqual(last?.isLast, true)
                last = event
            }
            XCTAssertTrue(isCancelled(last), "\(String(describing: last))")
        }
        await session.close()
    }

    func testManyCloseAtOnce() async throws {
        let model = try await Given.model()
        let iterator = model.stream(Given.long()).makeAsyncIterator()
        var events = [try await iterator.next()].compactMap { $0 }
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 { group.addTask { await model.close() } }
        }
        while let event = try await iterator.next() { events.append(event) }
        check(events)
        XCTAssertTrue(isCancelled(events.last))
    }

    func testOneStreamMayHaveSeveralReaders() async throws {
        let model = try await Given.model()
        let expected = try await model.respond(to: Given.short(tokens: 20)).text
        let stream = model.stream(Given.short(tokens: 20))
        let counts = try await withThrowingTaskGroup(of: [Event].self) { group in
            for _ in 0..<4 { group.addTask { try await all(stream) } }
            return try await group.reduce(into: [Event]()) { $0 += $1 }
        }
        XCTAssertEqual(counts.filter(\.isLast).count, 1)
        XCTAssertEqual(text(counts).unicodeScalars.sorted(), expected.unicodeScalars.sorted())
        await model.close()
    }

    func testModelsLiveAsLongAsTheirStreams() async throws {
        var model: Model? = try await Given.model()
        let isGone = { [weak owner = model?.owner] in owner == nil }
        let stream = try XCTUnwrap(model?.stream(Given.short(tokens: 12)))
        model = nil
        let events = try await all(stream)
        check(events)
        guard case .done = events.last else { return XCTFail("\(events)") }
        await eventually("it is closed") { isGone() }
    }

    func testForgottenObjectsAreClosed() async throws {
        await eventually("nothing is left of other tests") { Owner.count.with { $0 } == 0 }
        do {
            let model = try await Given.model()
            _ = try await model.session()
            _ = try await Embedder.load(try Given.bundle("embeds"))
            _ = try await Index.open(try Given.folder(), dimension: 2)
            XCTAssertGreaterThan(Owner.count.with { $0 }, 0)
        }
        await eventually("all are closed") { Owner.count.with { $0 } == 0 }
    }

    func testNothingWaitsInTheCooperativePool() async throws {
        let model = try await Given.model()
        let cores = ProcessInfo.processInfo.activeProcessorCount
        // More readers than the pool has threads.
        let readers = (0..<cores * 4).map { _ in Task { try await model.respond(to: Given.long()) } }
        var slowest = 0.0
        for _ in 0..<50 {
            let start = Date()
            await Task { await Task.yield() }.value
            slowest = max(slowest, Date().timeIntervalSince(start))
            try await Task.sleep(nanoseconds: 1_000_000)
        }
        readers.forEach { $0.cancel() }
        var stopped = 0
        for reader in readers {
            do { _ = try await reader.value } catch is CancellationError { stopped += 1 }
        }
        XCTAssertLessThan(slowest, 2, "other tasks get their turn")
        XCTAssertGreaterThan(stopped, 0, "answers were under way all the time")
        await model.close()
    }
}
