// Written from Apple's documentation of FoundationModels 27, and compiled against stand-ins of its declarations
// (Tests/FoundationModels). Apple's own framework was never there to compile it with.

#if canImport(FoundationModels, _version: 2)
import Cactus
import Foundation
import FoundationModels

/// A model of Cactus behind Apple's `LanguageModelSession`.
///
/// ```swift
/// let model = try await Cactus.Model.load("smollm2")
/// let session = LanguageModelSession(model: CactusLanguageModel(model))
/// let response = try await session.respond(to: "Why is the sky blue?")
/// ```
///
/// Tools, streaming and `@Generable` types are those of the framework. The model stays yours: close it when no session needs it any more.
@available(iOS 27.0, macOS 27.0, visionOS 27.0, *)
public struct CactusLanguageModel: LanguageModel {
    public typealias Executor = CactusExecutor

    public let capabilities: LanguageModelCapabilities
    public let executorConfiguration: CactusExecutor.Configuration

    /// - Parameter reasons: Whether the model can reason before it answers, which its template says.
    public init(_ model: Cactus.Model, reasons: Bool = false) {
        capabilities = LanguageModelCapabilities([.toolCalling, .guidedGeneration] + (reasons ? [.reasoning] : []))
        executorConfiguration = CactusExecutor.Configuration(model: model)
    }
}

/// Carries requests of the framework to a model of Cactus, and its events back.
@available(iOS 27.0, macOS 27.0, visionOS 27.0, *)
public struct CactusExecutor: LanguageModelExecutor {
    public typealias Model = CactusLanguageModel

    /// The loaded model. Sessions of one model share what it keeps of earlier prompts.
    public struct Configuration: Hashable, Sendable {
        let model: Cactus.Model

        public static func == (a: Configuration, b: Configuration) -> Bool { a.model === b.model }

        public func hash(into hasher: inout Hasher) {
            hasher.combine(ObjectIdentifier(model))
        }
    }

    private let model: Cactus.Model

    public init(configuration: Configuration) throws {
        model = configuration.model
    }

    public func prewarm(model: CactusLanguageModel, transcript: FoundationModels.Transcript) {
        guard var messages = try? transcript.messages(), !messages.isEmpty else { return }
        // Templates want a question at the end.
        if messages.last?.role != "user" { messages.append(.user("")) }
        let request = Request(messages: messages)
        Task { [model = self.model] in try? await model.prewarm(request) }
    }

    public func respond(
        to request: LanguageModelExecutorGenerationRequest, model: CactusLanguageModel,
        streamingInto channel: LanguageModelExecutorGenerationChannel
    ) async throws {
        do {
            try await send(self.model.stream(try request.translated()), into: channel)
        } catch let error as CactusError {
            throw translated(error)
        }
    }

    private func send(_ events: Events, into channel: LanguageModelExecutorGenerationChannel) async throws {
        var calls: [Int: (id: String, name: String)] = [:]
        var (hasText, hasReasoning) = (false, false)
        for try await event in events {
            switch event {
            case .text(let text):
                hasText = true
                await channel.send(.response(action: .appendText(text, tokenCount: 0)))
            case .reasoning(let text):
                hasReasoning = true
                await channel.send(.reasoning(action: .appendText(text, tokenCount: 0)))
            case .toolCall(let part):
                if let id = part.id, let name = part.name { calls[part.index] = (id, name) }
                guard let call = calls[part.index], part.id != nil || part.arguments != nil else { continue }
                let arguments = part.arguments ?? ""
                await channel.send(
                    .toolCalls(action: .toolCall(id: call.id, name: call.name, action: .appendArguments(arguments, tokenCount: 0))))
            case .replaced:
                // What was said is void. A call that was begun is not taken back.
                guard calls.isEmpty else { throw Events.Replaced() }
                if hasText { await channel.send(.response(action: .replaceTextSegment("", tokenCount: 0))) }
                if hasReasoning { await channel.send(.reasoning(action: .replaceTextSegment("", tokenCount: 0))) }
                (hasText, hasReasoning) = (false, false)
            case .done(let answer):
                // Pieces of text are not tokens, so tokens are counted here alone.
                let usage = answer.usage
                let input = LanguageModelExecutorGenerationChannel.Usage.Input(
                    totalTokenCount: usage.promptTokens, cachedTokenCount: usage.cachedTokens)
                let output = LanguageModelExecutorGenerationChannel.Usage.Output(
                    totalTokenCount: usage.completionTokens, reasoningTokenCount: 0)
                if answer.toolCalls.isEmpty {
                    await channel.send(.response(action: .updateUsage(input: input, output: output)))
                } else {
                    await channel.send(.toolCalls(action: .updateUsage(input: input, output: output)))
                }
            case .cancelled: throw CancellationError()
            case .failed(let error): throw error
            // A question that nobody answers lets nothing leave.
            case .started, .source, .consent, .other: continue
            }
        }
    }

    /// Errors that applications know from the framework.
    private func translated(_ error: CactusError) -> any Error {
        guard error.kind == .contextFull, let context = try? model.info().contextTokens else { return error }
        // The library does not count what does not fit: it is at least one token too many.
        return LanguageModelError.contextSizeExceeded(
            LanguageModelError.ContextSizeExceeded(contextSize: context, tokenCount: context + 1, debugDescription: error.message))
    }
}

@available(iOS 27.0, macOS 27.0, visionOS 27.0, *)
extension LanguageModelExecutorGenerationRequest {
    /// As the library takes it.
    fileprivate func translated() throws -> Request {
        var request = Request(messages: try transcript.messages())
        let mode = generationOptions.toolCallingMode?.kind
        if mode != .disallowed {
            request.tools = try enabledToolDefinitions.map {
                ToolDescription(name: $0.name, description: $0.description, parameters: Schema(json: try JSON(encoding: $0.parameters)))
            }
            if mode == .required { request.toolChoice = .required }
        }
        if let schema { request.schema = Schema(json: try JSON(encoding: schema)) }
        request.options.maxTokens = generationOptions.maximumResponseTokens
        request.options.temperature = generationOptions.samplingMode == .greedy ? 0 : generationOptions.temperature
        if contextOptions.reasoningLevel != nil { request.reasoning = true }
        return request
    }
}

@available(iOS 27.0, macOS 27.0, visionOS 27.0, *)
extension FoundationModels.Transcript {
    /// The conversation as the library takes it. What the model thought before is not told to it again.
    fileprivate func messages() throws -> [Message] {
        try compactMap { entry -> Message? in
            switch entry {
            case .instructions(let instructions): return .system(try text(of: instructions.segments, in: entry))
            case .prompt(let prompt): return .user(try text(of: prompt.segments, in: entry))
            case .response(let response): return .assistant(try text(of: response.segments, in: entry))
            case .toolCalls(let calls):
                let all = calls.map { call -> JSON in
                    let function: JSON = ["name": .string(call.toolName), "arguments": .string(call.arguments.jsonString)]
                    return ["id": .string(call.id), "type": "function", "function": function]
                }
                return Message(json: ["role": "assistant", "content": "", "tool_calls": .array(all)])
            case .toolOutput(let output): return .tool(try text(of: output.segments, in: entry), callID: output.id)
            default: return nil
            }
        }
    }

    private func text(of segments: [Segment], in entry: Entry) throws -> String {
        try segments.map { segment -> String in
            switch segment {
            case .text(let text): return text.content
            case .structure(let structure): return structure.content.jsonString
            default:
                throw LanguageModelError.unsupportedTranscriptContent(
                    LanguageModelError.UnsupportedTranscriptContent(
                        unsupportedContent: [entry], debugDescription: "CactusLanguageModel passes on text and structured content alone."))
            }
        }.joined(separator: "\n")
    }
}
#endif
