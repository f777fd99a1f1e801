import CCactus
import Foundation

/// A loaded model. Any number of tasks may use it at once; their answers are computed together.
///
/// ```swift
/// let model = try await Model.load("smollm2")
/// let answer = try await model.respond(to: "Why is the sky blue?")
/// print(answer.text)
/// await model.close()
/// ```
public final class Model: Sendable {
    let owner: Owner

    init(owner: Owner) {
        self.owner = owner
    }

    /// Loads a model: the folder of a bundle, a GGUF file, an address (`https://`) of either, a Hugging Face folder or id, or a
    /// known name.
    ///
    /// What is not here is downloaded first, once, and what is no bundle converted. Nothing but a name or an address that is not on this machine uses the network. Cancelling
    /// the task stops that within seconds, and what was downloaded is kept.
    ///
    /// `onProgress` is called on a thread of the library's, at most some ten times a second.
    ///
    /// - Throws: ``CactusError``, `CancellationError`.
    public static func load(
        _ source: String, options: LoadOptions = LoadOptions(), onProgress: (@Sendable (LoadProgress) -> Void)? = nil
    ) async throws -> Model {
        let options = try JSON.object(options.load()).text
        let source = try whole(source)
        return try await Listening(onProgress).run { callback, place in
            try Library.check()
            var handle: OpaquePointer?
            try check(cactus_model_load(source, options, callback, place, &handle))
            return Model(owner: Owner(UInt(bitPattern: handle)) { cactus_model_close(OpaquePointer(bitPattern: $0)) })
        }
    }

    /// Loads a bundle, and keeps an index of a folder of documents, for ``query(_:count:)``.
    ///
    /// Vectors are made by the model that the environment variable `CACTUS_EMBEDDER` names, or one that is on this machine.
    public static func load(bundle: String, documents folder: String) async throws -> Model {
        Model(owner: try await opened(bundle, documents: folder))
    }

    /// As ``load(_:options:onProgress:)``, without loading: gives the folder of the bundle.
    public static func prepare(
        _ source: String, options: LoadOptions = LoadOptions(), onProgress: (@Sendable (LoadProgress) -> Void)? = nil
    ) async throws -> String {
        var fields = try options.store()
        fields.merge(options.other)
        let text = JSON.object(fields).text
        let source = try whole(source)
        return try await Listening(onProgress).run { callback, place in
            try Library.check()
            return try taking { cactus_model_prepare(source, text, callback, place, $0) }
        }
    }

    /// What is known of the model, and what it has done.
    public func info() throws -> ModelInfo {
        ModelInfo(json: try JSON(parsing: taking { cactus_model_info(owner.pointer, $0) }))
    }

    /// Token ids of a text; with `special`, those that the model puts around texts, too.
    public func tokenize(_ text: String, special: Bool = false) async throws -> [UInt32] {
        let text = try whole(text)
        return try await Worker.run { [owner] in
            var tokens: UnsafeMutablePointer<UInt32>?
            var count = 0
            try check(cactus_model_tokenize(owner.pointer, text, special, &tokens, &count))
            defer { cactus_tokens_free(tokens, count) }
            return Array(UnsafeBufferPointer(start: tokens, count: count))
        }
    }

    /// The text of token ids. Special tokens are spelled out with `special`, else left out.
    public func detokenize(_ tokens: [UInt32], special: Bool = false) async throws -> String {
        try await Worker.run { [owner] in
            try taking { cactus_model_detokenize(owner.pointer, tokens, tokens.count, special, $0) }
        }
    }

    /// How likely the tokens from `first` on are, each given all before it.
    public func score(_ tokens: [UInt32], from first: Int = 1) async throws -> Score {
        try await Worker.run { [owner] in
            // What is below 0 is refused as what is too large.
            let first = UInt(bitPattern: first)
            return Score(json: try JSON(parsing: taking { cactus_model_score(owner.pointer, tokens, tokens.count, Int(bitPattern: first), $0) }))
        }
    }

    /// Uses at most so many threads from now on, for prompts and for generating; 0 leaves one as it is. No answer changes.
    public func setThreads(_ threads: Int, decode: Int = 0) throws {
        try check(cactus_model_set_threads(owner.pointer, counted(threads, "threads"), counted(decode, "decode")))
    }

    /// Says who else may answer, what may leave and for how much, from now on. With nil the model answers alone again.
    public func setPolicy(_ policy: Policy?) async throws {
        try await Worker.run { [owner] in try policy.set(for: owner) }
    }

    /// Begins an answer, and gives its events.
    public func stream(_ request: Request) -> Events {
        let json = request.json.text
        return Events(
            Running.start([owner]) { [owner] in
                var handle: OpaquePointer?
                try check(cactus_request_start(owner.pointer, json, nil, nil, &handle))
                return UInt(bitPattern: handle)
            })
    }

    /// Begins an answer to what a user says.
    public func stream(_ text: String) -> Events {
        stream(Request(text))
    }

    /// The whole answer. Cancelling the task ends it within a token, and throws `CancellationError`.
    ///
    /// `consent` is asked where something would leave this machine under a policy. Without it nothing does.
    public func respond(to request: Request, consent: (@Sendable (Consent) async -> Bool)? = nil) async throws -> Answer {
        try await stream(request).answer(consent: consent)
    }

    /// The whole answer to what a user says.
    public func respond(to text: String) async throws -> Answer {
        try await respond(to: Request(text))
    }

    /// Opens a conversation. `defaults` hold for every request of it, and its messages come first.
    public func session(_ defaults: Request = Request()) async throws -> Session {
        let json = defaults.json
        return try await Worker.run { [self] in
            var handle: OpaquePointer?
            try check(cactus_session_open(owner.pointer, json.text, &handle))
            let opened = Owner(UInt(bitPattern: handle)) { cactus_session_close(OpaquePointer(bitPattern: $0)) }
            return Session(model: self, owner: opened, defaults: json)
        }
    }

    /// Opens a conversation that begins with instructions.
    public func session(instructions: String) async throws -> Session {
        try await session(Request(messages: [.system(instructions)]))
    }

    /// Computes a prompt before it is needed, so that an answer to it, or to one that begins like it, comes sooner.
    ///
    /// It is an answer of one token, at low priority, which is thrown away.
    public func prewarm(_ request: Request) async throws {
        var request = request
        request.options.maxTokens = 1
        request.priority = .low
        request.handoff = .never
        _ = try await respond(to: request)
    }

    /// Closes the model: cancels what is under way, and waits for it. May be called any number of times.
    ///
    /// Streams end with ``Event/cancelled(_:)``. Whatever is asked afterwards gives an error of the kind `handle`.
    public func close() async {
        await owner.closed()
    }
}

extension Owner {
    /// Closes it on another thread, and waits.
    func closed() async {
        _ = try? await Worker.run { self.close() }
    }
}

/// Opens a bundle by the function of the public engine.
func opened(_ bundle: String, documents folder: String? = nil) async throws -> Owner {
    try await Worker.run {
        try Library.check()
        let handle = try lending(folder) { try cactus_init(whole(bundle), $0, false) }
        guard let handle else { throw CactusError.last }
        return Owner(UInt(bitPattern: handle)) { cactus_destroy(UnsafeMutableRawPointer(bitPattern: $0)) }
    }
}

/// What is known of a model.
public struct ModelInfo: Sendable, Hashable {
    /// All that is known, under the names of the library.
    public let json: JSON

    public var name: String { json["name"]?.string ?? "" }
    public var family: String { json["family"]?.string ?? "" }
    public var task: String { json["task"]?.string ?? "" }
    public var contextTokens: Int { json["context_tokens"]?.int ?? 0 }
    public var vocabularySize: Int { json["vocab_size"]?.int ?? 0 }
    public var threads: Int { json["threads"]?.int ?? 0 }
    public var decodeThreads: Int { json["decode_threads"]?.int ?? 0 }
    /// Whether it has a chat template.
    public var canChat: Bool { json["chat"]?.bool ?? false }
}

/// How likely tokens are.
public struct Score: Sendable, Hashable {
    public let json: JSON

    /// The sum of natural logarithms.
    public var logprob: Double { json["logprob"]?.double ?? 0 }
    /// How many tokens were scored.
    public var tokens: Int { json["tokens"]?.int ?? 0 }
    /// Of each.
    public var logprobs: [Double] { (json["logprobs"]?.array ?? []).compactMap(\.double) }
}
