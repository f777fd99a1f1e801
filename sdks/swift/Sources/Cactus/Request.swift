import Foundation

/// What a model is asked.
///
/// One of ``messages``, ``prompt`` and ``tokens`` has to be there. In a session it is ``messages``, and they are added to those before.
///
/// ```swift
/// var request = Request("Name three rivers.")
/// request.options.maxTokens = 50
/// request.options.temperature = 0
/// ```
public struct Request: Sendable, Hashable {
    /// A conversation.
    public var messages: [Message]?
    /// A text that is continued without a template.
    public var prompt: String?
    /// Token ids, likewise.
    public var tokens: [UInt32]?
    /// Tools that the model may ask for. `respondWithTools` adds those that it is given.
    public var tools: [ToolDescription] = []
    /// Whether it may, has to, or must not ask for one.
    public var toolChoice: ToolChoice?
    /// Offer only so many of the tools, those that the question is most likely about.
    public var mostTools: Int?
    /// What the answer has to follow; at most one of schema, regex and grammar.
    public var schema: Schema?
    /// A regular expression, likewise.
    public var regex: String?
    /// A grammar in Lark's form, likewise.
    public var grammar: String?
    /// Whether the model reasons first; without it, as its template has it.
    public var reasoning: Bool?
    public var priority: Priority?
    /// In place of the policy's.
    public var handoff: Policy.Handoff?
    public var options = GenerationOptions()
    /// Fields of the library that have no name here. They come after those that have one.
    public var other: JSON.Object = [:]

    public init() {}

    /// Asks what a user says.
    public init(_ text: String) {
        messages = [.user(text)]
    }

    public init(messages: [Message]) {
        self.messages = messages
    }

    /// A request that was written for the library, or for another SDK.
    public init(json: JSON.Object) {
        other = json
    }

    public enum ToolChoice: Sendable, Hashable {
        case auto, none, required
        case named(String)
    }

    public enum Priority: String, Sendable {
        case low, normal, high
    }

    /// What the library gets.
    public var json: JSON {
        var fields: JSON.Object = [:]
        fields["messages"] = messages.map { .array($0.map(\.json)) }
        fields["prompt"] = prompt.map(JSON.string)
        fields["tokens"] = tokens.map { .array($0.map { .integer(Int64($0)) }) }
        if !tools.isEmpty { fields["tools"] = .array(tools.map(\.json)) }
        switch toolChoice {
        case .auto: fields["tool_choice"] = "auto"
        case .some(.none): fields["tool_choice"] = "none"
        case .required: fields["tool_choice"] = "required"
        case .named(let name): fields["tool_choice"] = ["type": "function", "function": ["name": .string(name)]]
        case nil: break
        }
        fields["most_tools"] = mostTools.map { .integer(Int64($0)) }
        fields["schema"] = schema?.json
        fields["regex"] = regex.map(JSON.string)
        fields["grammar"] = grammar.map(JSON.string)
        fields["reasoning"] = reasoning.map(JSON.bool)
        fields["priority"] = priority.map { .string($0.rawValue) }
        fields["handoff"] = handoff.map { .string($0.rawValue) }
        let given = options.json
        if !given.isEmpty { fields["options"] = .object(given) }
        fields.merge(other)
        return .object(fields)
    }
}

/// How an answer is drawn. What is nil is the model's own.
public struct GenerationOptions: Sendable, Hashable {
    public var maxTokens: Int?
    /// 0 takes the likeliest token each time.
    public var temperature: Double?
    public var topP: Double?
    public var topK: Int?
    public var minP: Double?
    public var repetitionPenalty: Double?
    /// With the same seed and request comes the same answer.
    public var seed: UInt64?
    /// Texts that end the answer.
    public var stop: [String]?
    /// Log-probabilities of so many tokens at each place.
    public var logprobs: Int?
    /// Options of the library that have no name here. They come after those that have one.
    public var other: JSON.Object = [:]

    public init(maxTokens: Int? = nil, temperature: Double? = nil, seed: UInt64? = nil) {
        self.maxTokens = maxTokens
        self.temperature = temperature
        self.seed = seed
    }

    var json: JSON.Object {
        var fields: JSON.Object = [:]
        fields["max_tokens"] = maxTokens.map { .integer(Int64($0)) }
        fields["temperature"] = temperature.map(JSON.number)
        fields["top_p"] = topP.map(JSON.number)
        fields["top_k"] = topK.map { .integer(Int64($0)) }
        fields["min_p"] = minP.map(JSON.number)
        fields["repetition_penalty"] = repetitionPenalty.map(JSON.number)
        fields["seed"] = seed.map { value in Int64(exactly: value).map(JSON.integer) ?? .unsigned(value) }
        fields["stop"] = stop.map { .array($0.map(JSON.string)) }
        fields["logprobs"] = logprobs.map { .integer(Int64($0)) }
        fields.merge(other)
        return fields
    }
}
