import Foundation

/// The whole answer to a request.
public struct Answer: Sendable, Hashable {
    /// The result as the library gives it, with everything that has no name here.
    public let json: JSON

    init(json: JSON) {
        self.json = json
    }

    /// The message, ready to be part of the next request.
    public var message: Message { Message(json: json["message"] ?? [:]) }
    public var text: String { json["message"]?["content"]?.string ?? "" }
    /// What the model thought before it answered; empty where it did not.
    public var reasoning: String { json["message"]?["reasoning_content"]?.string ?? "" }
    /// Tools that the model wants to be called.
    public var toolCalls: [ToolCall] { (json["message"]?["tool_calls"]?.array ?? []).map(ToolCall.init(json:)) }
    public var finishReason: FinishReason { FinishReason(rawValue: json["finish_reason"]?.string ?? "") }
    public var usage: Usage { Usage(json: json["usage"] ?? [:]) }
    /// Ids of the tokens of the answer.
    public var tokens: [UInt32] { (json["tokens"]?.array ?? []).compactMap { $0.int.flatMap(UInt32.init(exactly:)) } }
    /// The seed that was drawn with; with it and the same request comes the same answer.
    public var seed: UInt64? { json["seed"]?.unsigned }
    /// What the person who wrote the request should know.
    public var notes: [String] { (json["notes"]?.array ?? []).compactMap(\.string) }

    /// Under a policy, which side has answered; nil without one.
    public var route: Source.Side? { json["route"]?.string.flatMap(Source.Side.init) }
    /// Who has answered: `local`, or the name of a target.
    public var answeredBy: String? { json["answered_by"]?.string }
    /// Why it was answered there.
    public var routeReason: String? { json["reason"]?.string }
    /// How sure the answer is, from 0 to 1.
    public var confidence: Double? { json["confidence"]?.double }
    /// What it has cost, in dollars.
    public var cost: Double? { json["cost_usd"]?.double }

    /// Why an answer has ended.
    public struct FinishReason: RawRepresentable, Sendable, Hashable, ExpressibleByStringLiteral {
        public let rawValue: String

        public init(rawValue: String) { self.rawValue = rawValue }
        public init(stringLiteral value: String) { rawValue = value }

        /// The model has ended it, or a stop string.
        public static let stop: FinishReason = "stop"
        /// It has as many tokens as were allowed.
        public static let length: FinishReason = "length"
        /// It wants tools to be called.
        public static let toolCalls: FinishReason = "tool_calls"
        public static let cancelled: FinishReason = "cancelled"
    }

    /// Counts of tokens.
    public struct Usage: Sendable, Hashable {
        public let promptTokens: Int
        /// Of the prompt, what was known from before.
        public let cachedTokens: Int
        public let completionTokens: Int
        public let totalTokens: Int

        init(json: JSON) {
            promptTokens = json["prompt_tokens"]?.int ?? 0
            cachedTokens = json["cached_tokens"]?.int ?? 0
            completionTokens = json["completion_tokens"]?.int ?? 0
            totalTokens = json["total_tokens"]?.int ?? 0
        }
    }
}

/// A call of a tool that the model wants.
public struct ToolCall: Sendable, Hashable {
    public let id: String
    /// The name of the tool.
    public let name: String
    /// A JSON object, as the model has written it.
    public let arguments: String

    init(json: JSON) {
        id = json["id"]?.string ?? ""
        name = json["function"]?["name"]?.string ?? ""
        arguments = json["function"]?["arguments"]?.string ?? ""
    }

    /// The arguments as a value. None are an empty object.
    ///
    /// - Throws: What decoding throws.
    public func decode<T: Decodable>(_ type: T.Type = T.self) throws -> T {
        try JSON(parsing: arguments.isEmpty ? "{}" : arguments).decode(type)
    }
}

extension JSON {
    /// A whole number from 0.
    public var unsigned: UInt64? {
        switch self {
        case .integer(let value): UInt64(exactly: value)
        case .unsigned(let value): value
        default: nil
        }
    }
}
