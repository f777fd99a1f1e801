// Stand-ins of what CactusFoundationModels uses of Apple's framework, declared as its documentation has them (iOS 27). A channel keeps what
// is sent to it, so that a check can look at it.

import Foundation

public protocol LanguageModel: Sendable {
    associatedtype Executor: LanguageModelExecutor where Self == Self.Executor.Model
    var capabilities: LanguageModelCapabilities { get }
    var executorConfiguration: Executor.Configuration { get }
}

public protocol LanguageModelExecutor: Sendable {
    associatedtype Configuration: Hashable, Sendable
    associatedtype Model: LanguageModel
    init(configuration: Configuration) throws
    func prewarm(model: Model, transcript: Transcript)
    nonisolated(nonsending) func respond(
        to request: LanguageModelExecutorGenerationRequest, model: Model, streamingInto channel: LanguageModelExecutorGenerationChannel
    ) async throws
}

public struct LanguageModelCapabilities: Sendable {
    public struct Capability: Sendable, Hashable {
        let name: String
        public static var toolCalling: Capability { Capability(name: "toolCalling") }
        public static var guidedGeneration: Capability { Capability(name: "guidedGeneration") }
        public static var reasoning: Capability { Capability(name: "reasoning") }
        public static var vision: Capability { Capability(name: "vision") }
    }

    let all: [Capability]
    public init(_ capabilities: [Capability]) { all = capabilities }
    public func contains(_ capability: Capability) -> Bool { all.contains(capability) }
}

public struct GenerationSchema: Sendable, Codable {
    let isObject: Bool

    /// One of two words, or an object with such a field, as a `@Generable` type would be encoded.
    public init(isObject: Bool) { self.isObject = isObject }
    public init(from decoder: any Decoder) throws { isObject = false }

    public func encode(to encoder: any Encoder) throws {
        var keyed = encoder.container(keyedBy: Key.self)
        guard isObject else {
            try keyed.encode(["yes", "no"], forKey: .enum)
            return
        }
        try keyed.encode("object", forKey: .type)
        try keyed.encode(["of": GenerationSchema(isObject: false)], forKey: .properties)
        try keyed.encode(["of"], forKey: .required)
        try keyed.encode(false, forKey: .additionalProperties)
    }

    private enum Key: String, CodingKey { case `enum`, type, properties, required, additionalProperties }
}

public struct GeneratedContent: Sendable {
    public let jsonString: String
    public init(json: String) { jsonString = json }
}

public protocol ConvertibleToGeneratedContent: Sendable {}

public struct GenerationOptions: Sendable {
    public struct SamplingMode: Sendable, Equatable {
        public static var greedy: SamplingMode { SamplingMode() }
    }

    public struct ToolCallingMode: Sendable {
        public enum Kind: Sendable { case allowed, required, disallowed }
        public let kind: Kind
        public static let allowed = ToolCallingMode(kind: .allowed)
        public static let required = ToolCallingMode(kind: .required)
        public static let disallowed = ToolCallingMode(kind: .disallowed)
    }

    public var samplingMode: SamplingMode?
    public var temperature: Double?
    public var maximumResponseTokens: Int?
    public var toolCallingMode: ToolCallingMode?
    public init(
        samplingMode: SamplingMode? = nil, temperature: Double? = nil, maximumResponseTokens: Int? = nil, toolCallingMode: ToolCallingMode?
    ) {
        (self.samplingMode, self.temperature) = (samplingMode, temperature)
        (self.maximumResponseTokens, self.toolCallingMode) = (maximumResponseTokens, toolCallingMode)
    }
}

public struct ContextOptions: Sendable {
    public struct ReasoningLevel: Sendable {}
    public var reasoningLevel: ReasoningLevel?
    public init() {}
}

public struct Transcript: Sendable, RandomAccessCollection {
    public enum Segment: Sendable {
        case text(TextSegment)
        case structure(StructuredSegment)
        case attachment(String)
    }

    public struct TextSegment: Sendable {
        public let content: String
        public init(content: String) { self.content = content }
    }

    public struct StructuredSegment: Sendable {
        public let content: GeneratedContent
    }

    public struct Instructions: Sendable {
        public let segments: [Segment]
        public init(segments: [Segment]) { self.segments = segments }
    }

    public struct Prompt: Sendable {
        public let segments: [Segment]
        public init(segments: [Segment]) { self.segments = segments }
    }

    public struct Response: Sendable {
        public let segments: [Segment]
        public init(segments: [Segment]) { self.segments = segments }
    }

    public struct ToolCall: Sendable {
        public let id: String
        public let toolName: String
        public let arguments: GeneratedContent
        public init(id: String, toolName: String, arguments: GeneratedContent) {
            (self.id, self.toolName, self.arguments) = (id, toolName, arguments)
        }
    }

    public struct ToolCalls: Sendable, RandomAccessCollection {
        let all: [ToolCall]
        public init(_ calls: [ToolCall]) { all = calls }
        public var startIndex: Int { 0 }
        public var endIndex: Int { all.count }
        public subscript(place: Int) -> ToolCall { all[place] }
    }

    public struct ToolOutput: Sendable {
        public let id: String
        public let toolName: String
        public let segments: [Segment]
        public init(id: String, toolName: String, segments: [Segment]) {
            (self.id, self.toolName, self.segments) = (id, toolName, segments)
        }
    }

    public struct ToolDefinition: Sendable {
        public var name: String
        public var description: String
        public var parameters: GenerationSchema
        public init(name: String, description: String, parameters: GenerationSchema) {
            (self.name, self.description, self.parameters) = (name, description, parameters)
        }
    }

    public enum Entry: Sendable {
        case instructions(Instructions)
        case prompt(Prompt)
        case toolCalls(ToolCalls)
        case toolOutput(ToolOutput)
        case response(Response)
        case reasoning(String)
    }

    let entries: [Entry]
    public init(entries: [Entry]) { self.entries = entries }
    public var startIndex: Int { 0 }
    public var endIndex: Int { entries.count }
    public subscript(place: Int) -> Entry { entries[place] }
}

public struct LanguageModelExecutorGenerationRequest: Sendable {
    public var transcript: Transcript
    public var enabledToolDefinitions: [Transcript.ToolDefinition]
    public var schema: GenerationSchema?
    public var generationOptions: GenerationOptions
    public var contextOptions: ContextOptions
    public init(
        id: UUID, transcript: Transcript, enabledTools: [Transcript.ToolDefinition], schema: GenerationSchema? = nil,
        generationOptions: GenerationOptions, contextOptions: ContextOptions, metadata: [String: any ConvertibleToGeneratedContent]
    ) {
        (self.transcript, enabledToolDefinitions, self.schema) = (transcript, enabledTools, schema)
        (self.generationOptions, self.contextOptions) = (generationOptions, contextOptions)
    }
}

public struct LanguageModelExecutorGenerationChannel: Sendable {
    public enum Usage {
        public struct Input: Sendable {
            public let totalTokenCount: Int
            public init(totalTokenCount: Int, cachedTokenCount: Int) { self.totalTokenCount = totalTokenCount }
        }

        public struct Output: Sendable {
            public let totalTokenCount: Int
            public init(totalTokenCount: Int, reasoningTokenCount: Int) { self.totalTokenCount = totalTokenCount }
        }
    }

    public enum Response {
        public struct Action: Sendable {
            let said: String
            public static func appendText(_ text: String, segmentID: String? = nil, tokenCount: Int) -> Action { Action(said: "text \(text)") }
            public static func replaceTextSegment(_ text: String, segmentID: String? = nil, tokenCount: Int) -> Action {
                Action(said: "replaced by \(text)")
            }
            public static func updateUsage(
                input: Usage.Input, output: Usage.Output, metadata: [String: any ConvertibleToGeneratedContent] = [:]
            ) -> Action { Action(said: "usage \(input.totalTokenCount) \(output.totalTokenCount)") }
        }
    }

    public enum Reasoning {
        public struct Action: Sendable {
            let said: String
            public static func appendText(_ text: String, segmentID: String? = nil, tokenCount: Int) -> Action { Action(said: "text \(text)") }
            public static func replaceTextSegment(_ text: String, segmentID: String? = nil, tokenCount: Int) -> Action {
                Action(said: "replaced by \(text)")
            }
        }
    }

    public enum ToolCalls {
        public enum ToolCall {
            public struct Action: Sendable {
                let said: String
                public static func appendArguments(_ content: String, tokenCount: Int) -> Action { Action(said: content) }
            }
        }

        public struct Action: Sendable {
            let said: String
            public static func toolCall(id: String, name: String, action: ToolCall.Action) -> Action { Action(said: "\(name) \(action.said)") }
            public static func updateUsage(
                input: Usage.Input, output: Usage.Output, metadata: [String: any ConvertibleToGeneratedContent] = [:]
            ) -> Action { Action(said: "usage \(input.totalTokenCount) \(output.totalTokenCount)") }
        }
    }

    public struct Event: Sendable {
        public let said: String
        public static func response(entryID: String? = nil, action: Response.Action) -> Event { Event(said: "response \(action.said)") }
        public static func reasoning(entryID: String? = nil, action: Reasoning.Action) -> Event { Event(said: "reasoning \(action.said)") }
        public static func toolCalls(entryID: String? = nil, action: ToolCalls.Action) -> Event { Event(said: "calls \(action.said)") }
    }

    private actor Kept {
        var events: [Event] = []
        func add(_ event: Event) { events.append(event) }
    }

    private let kept = Kept()
    public init() {}
    public func send(_ event: Event) async { await kept.add(event) }
    public var said: [String] { get async { await kept.events.map(\.said) } }
}

public enum LanguageModelError: Error {
    public struct ContextSizeExceeded: Sendable {
        public let contextSize: Int
        public init(contextSize: Int, tokenCount: Int, debugDescription: String, metadata: [String: any Sendable] = [:]) {
            self.contextSize = contextSize
        }
    }

    public struct UnsupportedTranscriptContent: Sendable {
        public init(unsupportedContent: [Transcript.Entry], debugDescription: String, metadata: [String: any Sendable] = [:]) {}
    }

    case contextSizeExceeded(ContextSizeExceeded)
    case unsupportedTranscriptContent(UnsupportedTranscriptContent)
}
