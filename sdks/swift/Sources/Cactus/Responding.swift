import Foundation

/// What answers: a ``Model``, which forgets, and a ``Session``, which remembers.
public protocol Responding: Sendable {
    func stream(_ request: Request) -> Events
}

extension Model: Responding {}
extension Session: Responding {}

extension Responding {
    /// An answer that has the form of a type.
    ///
    /// ```swift
    /// let person = try await model.respond(to: Request("Who wrote it?"), generating: Person.self)
    /// ```
    ///
    /// - Throws: ``CactusError`` of the kind `cancelled` where the answer ended before it was whole, as by ``GenerationOptions/maxTokens``;
    ///   what decoding throws.
    public func respond<T: Decodable & SchemaProviding>(
        to request: Request, generating type: T.Type = T.self, consent: (@Sendable (Consent) async -> Bool)? = nil
    ) async throws -> T {
        try await value(for: request, schema: T.schema, consent: consent).decode(type)
    }

    /// An answer that has the form of a type, to what a user says.
    public func respond<T: Decodable & SchemaProviding>(to text: String, generating type: T.Type = T.self) async throws -> T {
        try await respond(to: Request(text), generating: type)
    }

    /// An answer that follows a schema.
    public func respond(
        to request: Request, schema: Schema, consent: (@Sendable (Consent) async -> Bool)? = nil
    ) async throws -> JSON {
        try await value(for: request, schema: schema, consent: consent)
    }

    private func value(for request: Request, schema: Schema, consent: (@Sendable (Consent) async -> Bool)?) async throws -> JSON {
        var request = request
        request.schema = schema
        let answer = try await stream(request).answer(consent: consent)
        return try answer.value()
    }

    /// An answer for which tools are called, as often as the model asks for them.
    ///
    /// ```swift
    /// let answer = try await session.respondWithTools(to: Request("Do I need a coat in Paris?"), tools: [Weather()])
    /// ```
    ///
    /// `use` says how often, and who is asked before a call.
    public func respondWithTools(
        to request: Request, tools: [any Tool], use: ToolUse = ToolUse(), consent: (@Sendable (Consent) async -> Bool)? = nil
    ) async throws -> Answer {
        try await use.answer(to: request, tools: tools) {
            try await stream($0).answer(consent: consent)
        } after: { asked, answer, results in
            // A session knows what was said.
            var request = asked
            request.add(self is Session ? results : [answer.message] + results, after: self is Session)
            return request
        }
    }
}

extension Answer {
    /// What a schema has made of it.
    func value() throws -> JSON {
        guard json["whole"]?.bool != false else {
            let what = "the answer ended before it was whole (\(finishReason.rawValue)), after \(usage.completionTokens) tokens"
            throw CactusError(code: Code.cancelled, message: what)
        }
        return try JSON(parsing: text)
    }
}

extension Request {
    /// Goes on with other messages: alone, where a session remembers those before.
    fileprivate mutating func add(_ added: [Message], after isRemembered: Bool) {
        let before = messages ?? (other["messages"]?.array ?? []).map(Message.init(json:))
        other["messages"] = nil
        messages = isRemembered ? added : before + added
    }
}
