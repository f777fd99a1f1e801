import CCactus
import Foundation

/// Who else may answer, what may leave this machine, and for how much. Without one nothing leaves.
///
/// ```swift
/// try await model.setPolicy(Policy(target: "http://192.168.0.7:8081/v1#house", budget: "0.05"))
/// let answer = try await model.respond(to: request) { question in
///     await ask("May \(question.classes) go to \(question.host ?? "")?")
/// }
/// ```
public struct Policy: Sendable, Hashable {
    public enum Handoff: String, Sendable {
        case auto, never, always
    }

    /// What may leave without a question.
    public enum Content: String, Sendable {
        case text
        case toolResult = "tool_result"
        case image, audio, document
    }

    /// The text of a policy file, not its path.
    public var text: String?
    /// Who may answer: a name of the policy, or an address with a model, as in `http://127.0.0.1:8081/v1#name`.
    public var target: String?
    /// The key of ``target``. It goes to that target's host alone, and is kept in memory alone.
    public var key: String?
    /// Keys by names of targets.
    public var keys: [String: String]?
    public var handoff: Handoff?
    /// The most that a session may cost, in dollars, as text.
    public var budget: String?
    public var consent: [Content]?
    /// The folder of budget, record and keys.
    public var state: String?
    /// Options of the library that have no name here. They come after those that have one.
    public var other: JSON.Object = [:]

    public init(
        text: String? = nil, target: String? = nil, key: String? = nil, handoff: Handoff? = nil, budget: String? = nil,
        consent: [Content]? = nil
    ) {
        self.text = text
        self.target = target
        self.key = key
        self.handoff = handoff
        self.budget = budget
        self.consent = consent
    }

    var options: JSON.Object {
        var fields: JSON.Object = [:]
        fields["target"] = target.map(JSON.string)
        fields["key"] = key.map(JSON.string)
        fields["keys"] = keys.map { keys in
            var object: JSON.Object = [:]
            for (name, key) in keys.sorted(by: { $0.key < $1.key }) { object[name] = .string(key) }
            return .object(object)
        }
        fields["handoff"] = handoff.map { .string($0.rawValue) }
        fields["budget"] = budget.map(JSON.string)
        fields["consent"] = consent.map { .array($0.map { .string($0.rawValue) }) }
        fields["state"] = state.map(JSON.string)
        fields.merge(other)
        return fields
    }
}

extension Optional<Policy> {
    func set(for owner: Owner) throws {
        let options = map(\.options)
        try lending(self?.text) { text in
            try lending(options.flatMap { $0.isEmpty ? nil : JSON.object($0).text }) { options in
                try check(cactus_model_set_policy(owner.pointer, text, options))
            }
        }
    }
}
