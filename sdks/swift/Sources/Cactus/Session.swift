import CCactus
import Foundation

/// A conversation with a model, which remembers its messages. It answers one request at a time; another gives an error of the kind `busy`.
///
/// ```swift
/// let session = try await model.session(instructions: "Be brief.")
/// print(try await session.respond(to: "My name is Ada.").text)
/// print(try await session.respond(to: "What is my name?").text)
/// ```
public final class Session: Sendable {
    /// The model that answers.
    public let model: Model
    private let owner: Owner
    private let defaults: JSON

    init(model: Model, owner: Owner, defaults: JSON) {
        self.model = model
        self.owner = owner
        self.defaults = defaults
    }

    /// The messages so far. A session that is opened with them goes on where this one is.
    public func messages() throws -> [Message] {
        let json = try JSON(parsing: taking { cactus_session_messages(owner.pointer, $0) })
        return (json.array ?? []).map(Message.init(json:))
    }

    /// Adds to the conversation, and begins an answer. One that fails leaves the conversation as it was.
    public func stream(_ request: Request) -> Events {
        send(request.json)
    }

    /// Begins an answer to what a user says.
    public func stream(_ text: String) -> Events {
        send(.string(text))
    }

    private func send(_ request: JSON) -> Events {
        let json = request.text
        return Events(
            Running.start([owner, model.owner]) { [owner] in
                var handle: OpaquePointer?
                try check(cactus_session_send(owner.pointer, json, nil, nil, &handle))
                return UInt(bitPattern: handle)
            })
    }

    /// The whole answer. Cancelling the task ends it within a token, and throws `CancellationError`; what was said by then is part of the
    /// conversation.
    ///
    /// `consent` is asked where something would leave this machine under a policy. Without it nothing does.
    public func respond(to request: Request, consent: (@Sendable (Consent) async -> Bool)? = nil) async throws -> Answer {
        try await stream(request).answer(consent: consent)
    }

    /// The whole answer to what a user says.
    public func respond(to text: String) async throws -> Answer {
        try await stream(text).answer()
    }

    /// Another conversation that begins as this one is now.
    public func fork() async throws -> Session {
        var fields = defaults.object ?? [:]
        fields["messages"] = .array(try messages().map(\.json))
        return try await model.session(Request(json: fields))
    }

    /// Computes the conversation so far before it is needed, with the beginning of what may be said next, so that the answer comes sooner.
    public func prewarm(_ beginning: String = "") async throws {
        var fields = defaults.object ?? [:]
        fields["messages"] = .array(try (messages() + [.user(beginning)]).map(\.json))
        var options = fields["options"]?.object ?? [:]
        options["max_tokens"] = 1
        fields["options"] = .object(options)
        fields["priority"] = "low"
        fields["handoff"] = "never"
        _ = try await model.respond(to: Request(json: fields))
    }

    /// Closes the conversation: cancels its answer, and waits for it. May be called any number of times.
    public func close() async {
        await owner.closed()
    }
}
