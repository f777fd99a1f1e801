import Foundation

/// What happens to a request. Each stream ends with exactly one of ``done(_:)``, ``cancelled(_:)`` and ``failed(_:)``, and nothing comes
/// after it.
public enum Event: Sendable {
    /// The prompt is computed, of which so many tokens were known from before.
    case started(promptTokens: Int, cachedTokens: Int)
    /// Text of the answer, in whole characters.
    case text(String)
    /// Reasoning before the answer.
    case reasoning(String)
    /// A call of a tool, or part of one.
    case toolCall(ToolCallPart)
    /// Under a policy: who answers.
    case source(Source)
    /// Under a policy: what was said so far is void, and another answers from the beginning.
    case replaced(Source)
    /// Under a policy: a person has to say whether something may leave. Answer with ``Consent/answer(_:)`` before the next event is read;
    /// where somebody reads on, nothing leaves.
    case consent(Consent)
    /// A later version of the library tells something that this one does not know.
    case other(JSON)
    /// The end: the whole answer.
    case done(Answer)
    /// The end of an answer that was cancelled, as far as it came.
    case cancelled(Answer)
    /// The end of an answer that failed.
    case failed(CactusError)

    /// Whether nothing comes after it.
    public var isLast: Bool {
        switch self {
        case .done, .cancelled, .failed: true
        default: false
        }
    }
}

/// A piece of a call of a tool: first ``id`` and ``name``, then pieces of ``arguments``, then the end.
public struct ToolCallPart: Sendable, Hashable {
    /// Which call of the answer it belongs to, from 0.
    public let index: Int
    public let id: String?
    public let name: String?
    /// A piece of a JSON object, as text.
    public let arguments: String?
    /// The call is complete.
    public let isEnd: Bool
    /// The call came to nothing, and was given out as text.
    public let isFailed: Bool
}

/// Who answers, as far as it is known by now.
public struct Source: Sendable, Hashable {
    public enum Side: String, Sendable {
        /// This machine.
        case local
        /// A target of the policy.
        case cloud
    }

    /// All that is known, under the names of the library.
    public let json: JSON
    public var side: Side? { json["side"]?.string.flatMap(Side.init) }
    /// The target's name.
    public var target: String? { json["target"]?.string }
    public var reason: String? { json["reason"]?.string }
    public var confidence: Double? { json["confidence"]?.double }
    /// What it costs in dollars. What may still be billed counts with the most that it may be.
    public var cost: Double? { json["cost_usd"]?.double }
}

/// A question to a person: whether something may leave this machine.
public struct Consent: Sendable {
    /// All that is known, under the names of the library.
    public let json: JSON
    let asked: Asked

    /// What would leave: `text`, `tool_result`, `image`, `audio`, `document`.
    public var classes: [String] { (json["classes"]?.array ?? []).compactMap(\.string) }
    /// The target's name.
    public var target: String? { json["target"]?.string }
    /// The host that it would go to.
    public var host: String? { json["host"]?.string }
    /// What it costs at most, as in `$0.0021`.
    public var most: String? { json["most"]?.string }
    /// Why the target is wanted.
    public var reason: String? { json["reason"]?.string }
    public var confidence: Double? { json["confidence"]?.double }

    /// Says whether it may leave.
    ///
    /// - Throws: ``CactusError`` of the kind `argument` where the question was answered already, or nobody waits for it any more.
    public func answer(_ yes: Bool) throws {
        guard let running = asked.running else { throw CactusError(code: Code.argument, message: "the answer is over") }
        try running.consent(yes)
    }

    /// The answer that asks. A question that nobody reads does not keep it.
    final class Asked: @unchecked Sendable {
        weak var running: Running?

        init(_ running: Running) { self.running = running }
    }
}

extension Event {
    /// Reads an event of the library.
    init(json: JSON, answer: Running) {
        switch json["event"]?.string {
        case "started":
            self = .started(promptTokens: json["prompt_tokens"]?.int ?? 0, cachedTokens: json["cached_tokens"]?.int ?? 0)
        case "text": self = .text(json["text"]?.string ?? "")
        case "reasoning": self = .reasoning(json["text"]?.string ?? "")
        case "tool_call":
            self = .toolCall(
                ToolCallPart(
                    index: json["index"]?.int ?? 0,
                    id: json["id"]?.string,
                    name: json["name"]?.string,
                    arguments: json["arguments"]?.string,
                    isEnd: json["end"]?.bool ?? false,
                    isFailed: json["failed"]?.bool ?? false
                ))
        case "source": self = .source(Source(json: json.without("event")))
        case "replaced": self = .replaced(Source(json: json.without("event")))
        case "consent": self = .consent(Consent(json: json.without("event"), asked: Consent.Asked(answer)))
        case "done": self = .done(Answer(json: json["result"] ?? [:]))
        case "cancelled": self = .cancelled(Answer(json: json["result"] ?? [:]))
        case "failed":
            self = .failed(CactusError(code: Int32(clamping: json["code"]?.int ?? -1), message: json["text"]?.string ?? ""))
        default: self = .other(json)
        }
    }

    /// The event as the library gives it.
    public var json: JSON {
        func event(_ name: JSON, _ fields: JSON) -> JSON {
            var all: JSON.Object = ["event": name]
            all.merge(fields.object ?? [:])
            return .object(all)
        }
        switch self {
        case .started(let promptTokens, let cachedTokens):
            return event("started", ["prompt_tokens": .integer(Int64(promptTokens)), "cached_tokens": .integer(Int64(cachedTokens))])
        case .text(let text): return event("text", ["text": .string(text)])
        case .reasoning(let text): return event("reasoning", ["text": .string(text)])
        case .toolCall(let part):
            var fields: JSON.Object = ["index": .integer(Int64(part.index))]
            fields["id"] = part.id.map(JSON.string)
            fields["name"] = part.name.map(JSON.string)
            fields["arguments"] = part.arguments.map(JSON.string)
            fields["end"] = part.isEnd ? true : nil
            fields["failed"] = part.isFailed ? true : nil
            return event("tool_call", .object(fields))
        case .source(let source): return event("source", source.json)
        case .replaced(let source): return event("replaced", source.json)
        case .consent(let consent): return event("consent", consent.json)
        case .done(let answer): return event("done", ["result": answer.json])
        case .cancelled(let answer): return event("cancelled", ["result": answer.json])
        case .failed(let error):
            return event("failed", ["text": .string(error.message), "code": .integer(Int64(error.code)), "kind": .string(error.kind.rawValue)])
        case .other(let json): return json
        }
    }
}

extension JSON {
    func without(_ name: String) -> JSON {
        guard var object else { return self }
        object[name] = nil
        return .object(object)
    }
}
