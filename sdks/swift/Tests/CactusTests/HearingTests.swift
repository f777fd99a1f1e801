import Foundation
import XCTest

@testable import Cactus

/// A tone that rises, or the beginning of one.
private func tone(seconds: Double = 4) -> [Int16] {
    (0..<Int(seconds * 16_000)).map { i in Int16(16_000 * sin(Double(i) * Double(i) * 1e-5)) }
}

final class HearingTests: XCTestCase {
    func testARecordingIsWrittenDown() async throws {
        let transcriber = try await Transcriber.load(try Given.bundle("hears"))
        let told = Locked<[String]>([])
        let options = TranscribeOptions(language: "de")
        let transcript = try await transcriber.transcribe(.samples(tone()), options: options) { text in told.with { $0.append(text) } }
        XCTAssertEqual(transcript.language, "de")
        XCTAssertEqual(told.with { $0.joined() }, transcript.segments.map(\.text).joined())
        let file = try Given.folder() + "/tone.wav"
        try wave(tone()).write(to: URL(fileURLWithPath: file))
        let same = try await transcriber.transcribe(.file(file), options: options)
        XCTAssertEqual(same.text, transcript.text)
        let floats = try await transcriber.transcribe(.samples(tone().map { Float($0) / 32768 }), options: options)
        XCTAssertEqual(floats.text, transcript.text)
        let language = try await transcriber.detectLanguage(.samples(tone()))
        XCTAssertTrue((0...1).contains(language.confidence))
        await expect(.argument) { _ = try await transcriber.transcribe(.samples([Int16]())) }
        await expect(.argument) { _ = try await transcriber.transcribe(.file("a\0b")) }
        await expect(.argument) {
            var cut = options
            cut.prompt = "a\0b"
            _ = try await transcriber.transcribe(.samples(tone()), options: cut)
        }
        await expect(.argument) { _ = try await transcriber.transcribe(.samples(tone()), options: TranscribeOptions(language: "xx")) }
        await expect(.unsupported) { _ = try await transcriber.speech(.samples(tone())) }
        do {
            _ = try await transcriber.transcribe(.file("/nowhere.wav"))
            XCTFail("there is no such file")
        } catch let error as CactusError {
            XCTAssertTrue(error.message.contains("nowhere"), error.message)
        }
        await transcriber.close()
        await transcriber.close()
        await expect(.handle) { _ = try await transcriber.transcribe(.samples(tone())) }
    }

    func testCancellingATaskStopsItsRecordingAlone() async throws {
        let transcriber = try await Transcriber.load(try Given.bundle("hears"))
        let options = TranscribeOptions(language: "de")
        let expected = try await transcriber.transcribe(.samples(tone(seconds: 1)), options: options).text
        // So long that it is not over before it is cancelled.
        let piece = tone(seconds: 4)
        let long = (0..<300).flatMap { _ in piece }
        let first = Task { try await transcriber.transcribe(.samples(long), options: options) }
        let second = Task { try await transcriber.transcribe(.samples(tone(seconds: 1)), options: options) }
        let third = Task { try await transcriber.transcribe(.samples(tone(seconds: 1)), options: options) }
        try await Task.sleep(nanoseconds: 100_000_000)
        third.cancel()
        first.cancel()
        let cancelled = Date()
        for task in [first, third] {
            do {
                _ = try await task.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
        }
        XCTAssertLessThan(Date().timeIntervalSince(cancelled), 5)
        let text = try await second.value.text
        XCTAssertEqual(text, expected)
        await transcriber.close()
    }

    func testACancelStopsWhatIsUnderWayWheneverItComes() async throws {
        // In place of the library: what is not under way is not stopped.
        let isStopped = Locked<Bool?>(nil)
        let turns = Turns { isStopped.with { $0 = $0.map { _ in true } } }
        var dice = Dice(seed: 3)
        for _ in 0..<300 {
            let task = Task {
                try await turns.take {
                    isStopped.with { $0 = false }
                    let end = Date().addingTimeInterval(20)
                    while isStopped.with({ $0 }) == false, Date() < end { usleep(50) }
                    let wasStopped = isStopped.with { stopped in
                        defer { stopped = nil }
                        return stopped
                    }
                    if wasStopped == true { throw CactusError(code: Code.cancelled, message: "stopped") }
                }
            }
            usleep(UInt32.random(in: 0..<200, using: &dice))
            task.cancel()
            do {
                try await task.value
                return XCTFail("the cancel was lost")
            } catch is CancellationError {}
        }
        // And nothing that comes later.
        let value = try await turns.take { 7 }
        XCTAssertEqual(value, 7)
    }

    func testSpeechIsFound() async throws {
        let finder = try await Transcriber.load(try Given.bundle("vad"))
        let spans = try await finder.speech(.samples(tone()), options: ["threshold": 0.1])
        XCTAssertFalse(spans.spans.isEmpty)
        for (a, b) in zip(spans.spans, spans.spans.dropFirst()) { XCTAssertLessThanOrEqual(a.upperBound, b.lowerBound) }
        await expect(.unsupported) { _ = try await finder.transcribe(.samples(tone())) }
        await finder.close()
    }

    func testLiveSpeechIsConfirmedAndEnds() async throws {
        let transcriber = try await Transcriber.load(try Given.bundle("hears"))
        var options = LiveOptions(speechModel: try Given.bundle("vad"), language: "zh")
        options.other = ["threshold": 0.01, "min_chunk_sec": 0.1, "silence_sec": 0.2, "max_segment_sec": 1.0]
        let live = try await transcriber.live(options)
        let samples = tone(seconds: 3)
        var confirmed = ""
        for start in stride(from: 0, to: samples.count, by: 8000) {
            confirmed += try await live.push(Array(samples[start..<min(start + 8000, samples.count)])).confirmed
        }
        let empty = try await live.push([Int16]())
        XCTAssertEqual(empty.confirmed, "")
        let last = try await live.finish()
        XCTAssertEqual(last.pending, "")
        confirmed += last.confirmed
        XCTAssertFalse(confirmed.isEmpty)
        await expect(.handle) { _ = try await live.push(samples) }
        await expect(.handle) { _ = try await live.finish() }
        await live.close()
        let other = try await transcriber.live(options)
        _ = try await other.push(samples.map { Float($0) / 32768 })
        await transcriber.close()
        await expect(.handle) { _ = try await other.push(samples) }
        await other.close()
        await expect(.handle) { _ = try await transcriber.live(options) }
    }
}
