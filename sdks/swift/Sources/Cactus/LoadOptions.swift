import CCactus
import Foundation

/// How a model is got and run. What is nil is the library's own.
public struct LoadOptions: Sendable, Hashable {
    /// Bits for each weight, where a model is converted: 1, 2, 3, 4, 5, 6, 8, 16 or 32.
    public var bits: Int?
    /// Use what is on this machine alone.
    public var offline: Bool?
    /// A token of the Hugging Face hub.
    public var token: String?
    /// The folder in which converted models are kept. On Apple's systems it is ``Storage/models`` without this, which backups leave out.
    public var cache: String?
    /// Tokens of prompt and answer together.
    public var contextTokens: Int?
    /// Threads for prompts.
    public var threads: Int?
    /// Threads for generating.
    public var decodeThreads: Int?
    /// Options of the library that have no name here. They come after those that have one.
    public var other: JSON.Object = [:]

    public init(contextTokens: Int? = nil, threads: Int? = nil, offline: Bool? = nil) {
        self.contextTokens = contextTokens
        self.threads = threads
        self.offline = offline
    }

    /// What says how a bundle is got.
    func store() throws -> JSON.Object {
        var fields: JSON.Object = [:]
        fields["bits"] = bits.map { .integer(Int64($0)) }
        fields["offline"] = offline.map(JSON.bool)
        fields["token"] = token.map(JSON.string)
        fields["cache"] = try (cache ?? Storage.defaultCache()).map(JSON.string)
        return fields
    }

    func load() throws -> JSON.Object {
        var fields = try store()
        fields["context_tokens"] = contextTokens.map { .integer(Int64($0)) }
        fields["threads"] = threads.map { .integer(Int64($0)) }
        fields["decode_threads"] = decodeThreads.map { .integer(Int64($0)) }
        fields.merge(other)
        return fields
    }
}

/// A step on the way to a model.
public struct LoadProgress: Sendable, Hashable {
    /// What is being done: `waiting`, `downloading`, `checking`, `converting`, `loading`, and others; or `note`, which the user should read.
    public let stage: String
    /// What it is about: a model, a file, a text.
    public let what: String
    public let done: UInt64
    /// 0 where it is not known.
    public let total: UInt64

    /// How much is done, from 0 to 1.
    public var fraction: Double? { total > 0 ? Double(done) / Double(total) : nil }
}

/// Hears of progress, and stops when its task is cancelled.
final class Listening: Sendable {
    private let isCancelled = Locked(false)
    private let hear: (@Sendable (LoadProgress) -> Void)?

    init(_ hear: (@Sendable (LoadProgress) -> Void)?) {
        self.hear = hear
    }

    /// Does `work` with a callback for the library and what belongs to it.
    func run<T: Sendable>(
        _ work: @escaping @Sendable (cactus_progress_callback, UnsafeMutableRawPointer) throws -> T
    ) async throws -> T {
        try await withTaskCancellationHandler {
            try await Worker.run { [self] in
                try withExtendedLifetime(self) {
                    do {
                        return try work(Listening.callback, Unmanaged.passUnretained(self).toOpaque())
                    } catch let error as CactusError where error.kind == .cancelled && isCancelled.with({ $0 }) {
                        throw CancellationError()
                    }
                }
            }
        } onCancel: {
            isCancelled.with { $0 = true }
        }
    }

    private static let callback: cactus_progress_callback = { stage, what, done, total, place in
        guard let place, let stage, let what else { return 0 }
        let this = Unmanaged<Listening>.fromOpaque(place).takeUnretainedValue()
        if this.isCancelled.with({ $0 }) { return 1 }
        this.hear?(LoadProgress(stage: String(cString: stage), what: String(cString: what), done: done, total: total))
        return 0
    }
}
