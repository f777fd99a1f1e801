import CCactus
import Foundation

/// How live speech is heard. What is nil is the library's own.
public struct LiveOptions: Sendable, Hashable {
    /// The bundle of a model that finds speech.
    public var speechModel: String?
    public var transcribe = TranscribeOptions()
    /// Options of the library that have no name here, as `silence_sec`. They come after those that have one.
    public var other: JSON.Object = [:]

    public init(speechModel: String? = nil, language: String? = nil) {
        self.speechModel = speechModel
        transcribe.language = language
    }

    var json: JSON.Object {
        var fields = transcribe.json
        fields["vad"] = speechModel.map(JSON.string)
        fields.merge(other)
        return fields
    }
}

/// Text while somebody speaks.
///
/// ```swift
/// let live = try await transcriber.live()
/// for await samples in microphone {
///     let heard = try await live.push(samples)
///     transcript += heard.confirmed
///     show(transcript, then: heard.pending)
/// }
/// transcript += try await live.finish().confirmed
/// ```
public final class LiveTranscription: Sendable {
    private let owner: Owner
    private let queue: DispatchQueue
    /// The model is open as long as this is.
    private let model: Owner

    init(owner: Owner, queue: DispatchQueue, model: Owner) {
        self.owner = owner
        self.queue = queue
        self.model = model
    }

    /// Takes the next sound, in pieces of any size: mono, 16,000 samples a second.
    public func push(_ samples: [Int16]) async throws -> LiveText {
        try await Worker.run(on: queue) { [owner] in
            var isFirst = true
            return try owner.use {
                let json = try written { buffer, size in
                    // Where a result did not fit, the sound was taken all the same.
                    let given = isFirst ? samples : []
                    isFirst = false
                    return lent(given) { cactus_stream_transcribe_process(owner.raw, $1 > 0 ? $0 : nil, $1, buffer, size) }
                }
                return LiveText(json: json)
            }
        }
    }

    /// Takes the next sound, of samples from -1 to 1, as `AVAudioPCMBuffer` has them.
    public func push(_ samples: [Float]) async throws -> LiveText {
        try await push(pcm(samples))
    }

    /// Ends it: what was said last becomes final. It is closed then, also where this throws.
    public func finish() async throws -> LiveText {
        try await Worker.run(on: queue) { [owner] in
            // The library has closed the handle whatever this returns.
            defer { owner.close() }
            return try owner.use {
                let bytes = 1 << 24
                let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: bytes)
                defer { buffer.deallocate() }
                let code = cactus_stream_transcribe_stop(owner.raw, buffer, bytes)
                guard code >= 0 else { throw CactusError.last }
                return LiveText(json: try JSON(parsing: String(cString: buffer)))
            }
        }
    }

    /// Ends it, and throws away what is not final. It waits for a piece that is under way. May be called any number of times.
    public func close() async {
        await owner.closed()
    }
}

/// What has become of the sound since the last call.
public struct LiveText: Sendable, Hashable {
    /// All that is known, under the names of the library.
    public let json: JSON

    /// Text that stays. All of it, one after the other, is the transcript.
    public var confirmed: String { json["confirmed"]?.string ?? "" }
    /// Text behind it that may still change.
    public var pending: String { json["pending"]?.string ?? "" }
    /// The language of the last phrase.
    public var language: String? { json["language"]?.string }
    /// What happened.
    public var events: [JSON] { json["events"]?.array ?? [] }
}
