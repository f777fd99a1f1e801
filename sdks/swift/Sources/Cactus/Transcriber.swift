import CCactus
import Foundation

/// Sound for a model that hears.
public enum Sound: Sendable {
    /// The path of a file of any format.
    case file(String)
    /// Mono, 16,000 samples a second.
    case samples([Int16])

    /// Mono, 16,000 samples a second, from -1 to 1, as `AVAudioPCMBuffer` has them.
    public static func samples(_ floats: [Float]) -> Sound {
        .samples(pcm(floats))
    }
}

/// Samples of 16 bits of those from -1 to 1.
func pcm(_ floats: [Float]) -> [Int16] {
    floats.map { Int16(max(-32768, min(32767, ($0 * 32768).rounded()))) }
}

/// A model that writes down what is said, or that finds speech.
///
/// ```swift
/// let transcriber = try await Transcriber.load("whisper-base")
/// print(try await transcriber.transcribe(.file("meeting.m4a")).text)
/// ```
///
/// It listens to one recording at a time; others wait.
public final class Transcriber: Sendable {
    private let owner: Owner
    private let turns: Turns

    private init(owner: Owner) {
        self.owner = owner
        turns = Turns { [owner] in cactus_stop(owner.raw) }
    }

    /// Loads a bundle. ``Model/prepare(_:options:onProgress:)`` makes one of what is none.
    ///
    /// - Throws: ``CactusError``; of the kind `unsupported` where the model does not hear.
    public static func load(_ bundle: String) async throws -> Transcriber {
        let owner = try await opened(bundle)
        return try await Worker.run {
            // It says so where the model does not hear, before it sees that there is no sound.
            var room = [CChar](repeating: 0, count: 512)
            if cactus_vad(owner.raw, nil, &room, room.count, nil, nil, 0) < 0, CactusError.last.kind == .unsupported {
                let error = CactusError.last
                owner.close()
                throw error
            }
            return Transcriber(owner: owner)
        }
    }

    /// Writes down what is said. Cancelling the task stops it.
    ///
    /// `onSegment` is told the text of each segment, on a thread of the library's.
    public func transcribe(
        _ sound: Sound, options: TranscribeOptions = TranscribeOptions(), onSegment: (@Sendable (String) -> Void)? = nil
    ) async throws -> Transcript {
        let (json, prompt) = (JSON.object(options.json).text, options.prompt)
        let teller = onSegment.map(Teller.init)
        let result = try await turns.take { [owner] in
            try withExtendedLifetime(teller) {
                try sound.lend { file, samples, bytes in
                    try lending(prompt) { prompt in
                        try written { buffer, size in
                            cactus_transcribe(
                                owner.raw, file, prompt, buffer, size, json, teller == nil ? nil : Teller.callback,
                                teller.map { Unmanaged.passUnretained($0).toOpaque() }, samples, bytes)
                        }
                    }
                }
            }
        }
        return Transcript(json: result)
    }

    /// Which language is spoken at the beginning, by a model that tells languages apart.
    public func detectLanguage(_ sound: Sound) async throws -> DetectedLanguage {
        let result = try await turns.take { [owner] in
            try sound.lend { file, samples, bytes in
                try written { cactus_detect_language(owner.raw, file, $0, $1, nil, samples, bytes) }
            }
        }
        return DetectedLanguage(json: result)
    }

    /// Where somebody speaks, by a model that finds speech.
    ///
    /// Options are Silero's, as `threshold` and `min_silence_duration_ms`.
    public func speech(_ sound: Sound, options: JSON.Object = [:]) async throws -> SpeechSpans {
        let json = JSON.object(options).text
        let result = try await turns.take { [owner] in
            try sound.lend { file, samples, bytes in
                try written { cactus_vad(owner.raw, file, $0, $1, json, samples, bytes) }
            }
        }
        return SpeechSpans(json: result)
    }

    /// Begins to listen while somebody speaks. A second model finds speech: the bundle that ``LiveOptions/speechModel`` names, or the folder
    /// `vad` inside of this model's own.
    public func live(_ options: LiveOptions = LiveOptions()) async throws -> LiveTranscription {
        let json = JSON.object(options.json).text
        return try await Worker.run(on: turns.queue) { [owner, queue = turns.queue] in
            guard let handle = cactus_stream_transcribe_start(owner.raw, json) else { throw CactusError.last }
            let stream = Owner(UInt(bitPattern: handle)) { cactus_stream_transcribe_stop(UnsafeMutableRawPointer(bitPattern: $0), nil, 0) }
            return LiveTranscription(owner: stream, queue: queue, model: owner)
        }
    }

    /// Says who else may hear, what may leave and for how much. With nil the model hears alone again.
    public func setPolicy(_ policy: Policy?) async throws {
        try await Worker.run { [owner] in try policy.set(for: owner) }
    }

    /// Closes it: cancels what is under way, and waits for it. May be called any number of times.
    public func close() async {
        await owner.closed()
    }
}

/// Does one thing after the other, on a thread of its own, and stops what belongs to a cancelled task. The library can only be told to stop
/// whatever is under way, so it must be known what that is.
final class Turns: Sendable {
    private final class Job: Sendable {
        let isCancelled = Locked(false)
    }

    let queue = DispatchQueue(label: "cactus.hearing", qos: .userInitiated)
    private let current = Locked<Job?>(nil)
    private let halt: @Sendable () -> Void

    init(halt: @escaping @Sendable () -> Void) {
        self.halt = halt
    }

    /// Does `work` when it is its turn. A cancelled task throws `CancellationError`.
    func take<T: Sendable>(_ work: @escaping @Sendable () throws -> T) async throws -> T {
        let job = Job()
        return try await withTaskCancellationHandler {
            try await Worker.run(on: queue) { [current] in
                // It is known first, and looked at then: whoever cancels meanwhile is seen here, or stops it.
                current.with { $0 = job }
                defer { current.with { $0 = nil } }
                if job.isCancelled.with({ $0 }) { throw CancellationError() }
                do {
                    return try work()
                } catch let error as CactusError where error.kind == .cancelled && job.isCancelled.with({ $0 }) {
                    throw CancellationError()
                }
            }
        } onCancel: {
            job.isCancelled.with { $0 = true }
            stop(job)
        }
    }

    /// Stops a job as long as it is under way; what was not begun yet when it was stopped is not stopped by that.
    private func stop(_ job: Job) {
        let isUnderWay = current.with { current in
            guard current === job else { return false }
            halt()
            return true
        }
        guard isUnderWay else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + 0.02) { self.stop(job) }
    }
}

/// Keeps a function for a callback of C.
private final class Teller: Sendable {
    let tell: @Sendable (String) -> Void

    init(_ tell: @escaping @Sendable (String) -> Void) {
        self.tell = tell
    }

    static let callback: cactus_token_callback = { text, _, place in
        guard let text, let place else { return }
        Unmanaged<Teller>.fromOpaque(place).takeUnretainedValue().tell(String(cString: text))
    }
}

extension Sound {
    /// Lends it to C: a path, or samples.
    fileprivate func lend<R>(_ body: (UnsafePointer<CChar>?, UnsafePointer<UInt8>?, Int) throws -> R) throws -> R {
        switch self {
        case .file(let path): try whole(path).withCString { try body($0, nil, 0) }
        case .samples(let samples): try lent(samples) { try body(nil, $0, $1) }
        }
    }
}

/// Lends samples as bytes.
func lent<R>(_ samples: [Int16], _ body: (UnsafePointer<UInt8>?, Int) throws -> R) rethrows -> R {
    // Every system that Swift runs on has the lower byte first.
    try samples.withUnsafeBytes { try body($0.bindMemory(to: UInt8.self).baseAddress, $0.count) }
}

/// How a recording is written down. What is nil is the library's own.
public struct TranscribeOptions: Sendable, Hashable {
    /// A code, as in `de`; without it the model finds out.
    public var language: String?
    /// Write English, whatever is spoken.
    public var translate: Bool?
    /// Words that may be said.
    public var vocabulary: [String]?
    /// Text as if it had been said before.
    public var prompt: String?
    /// Options of the library that have no name here. They come after those that have one.
    public var other: JSON.Object = [:]

    public init(language: String? = nil) {
        self.language = language
    }

    var json: JSON.Object {
        var fields: JSON.Object = [:]
        fields["language"] = language.map(JSON.string)
        fields["translate"] = translate.map(JSON.bool)
        fields["custom_vocabulary"] = vocabulary.map { .array($0.map(JSON.string)) }
        fields.merge(other)
        return fields
    }
}

/// What was said.
public struct Transcript: Sendable, Hashable {
    /// All that is known, under the names of the library.
    public let json: JSON

    public struct Segment: Sendable, Hashable {
        /// In seconds.
        public let start: Double
        public let end: Double
        public let text: String
    }

    public var text: String { json["response"]?.string ?? "" }
    public var language: String? { json["language"]?.string }
    public var segments: [Segment] {
        (json["segments"]?.array ?? []).map {
            Segment(start: $0["start"]?.double ?? 0, end: $0["end"]?.double ?? 0, text: $0["text"]?.string ?? "")
        }
    }
}

/// Which language is spoken.
public struct DetectedLanguage: Sendable, Hashable {
    public let json: JSON

    /// A code, as in `de`; nil where nobody speaks.
    public var language: String? { json["language"]?.string.flatMap { $0 == "unknown" ? nil : $0 } }
    public var confidence: Double { json["confidence"]?.double ?? 0 }
}

/// Where somebody speaks.
public struct SpeechSpans: Sendable, Hashable {
    public let json: JSON

    /// In samples, of which a second has 16,000.
    public var spans: [Range<Int>] {
        (json["segments"]?.array ?? []).compactMap {
            guard let start = $0["start"]?.int, let end = $0["end"]?.int, start <= end else { return nil }
            return start..<end
        }
    }
}
