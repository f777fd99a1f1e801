import Foundation

/// A function of your program that a model may ask for.
///
/// ```swift
/// struct Weather: Tool {
///     struct Arguments: Decodable, SchemaProviding {
///         var city: String
///         static let schema = Schema.object(["city": .string(description: "As in Paris")])
///     }
///
///     let name = "weather"
///     let description = "The weather in a city, now."
///
///     func call(arguments: Arguments) async throws -> String {
///         "18 degrees in \(arguments.city), rain"
///     }
/// }
/// ```
public protocol Tool: Sendable {
    associatedtype Arguments: Decodable

    /// Letters, digits, `_` and `-`.
    var name: String { get }
    /// What it does, for the model.
    var description: String { get }
    /// What its arguments look like. Arguments that are ``SchemaProviding`` say it themselves.
    var parameters: Schema { get }

    /// Does what the model asks for. What is thrown is told to the model, as text; only `CancellationError` ends the answer.
    func call(arguments: Arguments) async throws -> String
}

extension Tool where Arguments: SchemaProviding {
    public var parameters: Schema { Arguments.schema }
}

extension Tool {
    /// What the model is told.
    public var toolDescription: ToolDescription {
        ToolDescription(name: name, description: description, parameters: parameters)
    }

    func call(json: JSON) async throws -> String {
        try await call(arguments: json.decode(Arguments.self))
    }
}

/// A tool whose name and arguments are known only while the program runs.
public struct DynamicTool: Tool {
    public let name: String
    public let description: String
    public let parameters: Schema
    private let body: @Sendable (JSON) async throws -> String

    public init(
        name: String, description: String, parameters: Schema, call body: @escaping @Sendable (_ arguments: JSON) async throws -> String
    ) {
        self.name = name
        self.description = description
        self.parameters = parameters
        self.body = body
    }

    public func call(arguments: JSON) async throws -> String {
        try await body(arguments)
    }
}

/// What a model is told of a tool, as the OpenAI API has it.
public struct ToolDescription: Sendable, Hashable {
    public var json: JSON

    public init(json: JSON) {
        self.json = json
    }

    public init(name: String, description: String, parameters: Schema) {
        json = [
            "type": "function",
            "function": ["name": .string(name), "description": .string(description), "parameters": parameters.json],
        ]
    }
}

/// Who calls tools, and how often.
public struct ToolUse: Sendable {
    /// An answer may ask for tools so many times, one after the other; the next one is given without.
    public var mostRounds: Int
    /// Asked before each call. A call that is refused is told to the model as such.
    public var confirm: (@Sendable (ToolCall) async -> Bool)?
    /// Told of each call, with what the model is told: the tool's result, or what went wrong.
    public var onCall: (@Sendable (ToolCall, String) async -> Void)?

    public init(
        mostRounds: Int = 8,
        confirm: (@Sendable (ToolCall) async -> Bool)? = nil,
        onCall: (@Sendable (ToolCall, String) async -> Void)? = nil
    ) {
        self.mostRounds = mostRounds
        self.confirm = confirm
        self.onCall = onCall
    }

    /// Answers until no tool is wanted. `respond` gives an answer, and `after` the request behind it with what the tools have said.
    func answer(
        to request: Request, tools: [any Tool], respond: (Request) async throws -> Answer,
        after: (Request, Answer, [Message]) -> Request
    ) async throws -> Answer {
        var request = request
        request.tools += tools.map(\.toolDescription)
        var rounds = 0
        while true {
            let answer = try await respond(request)
            guard !answer.toolCalls.isEmpty, answer.finishReason != .cancelled, rounds < mostRounds else { return answer }
            rounds += 1
            request = after(request, answer, try await results(of: answer.toolCalls, from: tools))
        }
    }

    /// What the tools say to the calls of an answer, as messages.
    func results(of calls: [ToolCall], from tools: [any Tool]) async throws -> [Message] {
        var messages: [Message] = []
        for call in calls {
            try Task.checkCancellation()
            let result = try await result(of: call, from: tools)
            await onCall?(call, result)
            messages.append(.tool(result, callID: call.id))
        }
        return messages
    }

    /// What a tool gave, or what went wrong: in the words of all SDKs.
    private func result(of call: ToolCall, from tools: [any Tool]) async throws -> String {
        guard let tool = tools.first(where: { $0.name == call.name }) else {
            return "error: there is no tool `\(call.name)`"
        }
        guard let arguments = try? call.decode(JSON.self), arguments.object != nil else {
            return "error: the arguments are no JSON object"
        }
        if let confirm {
            guard await confirm(call) else { return "error: the call was refused" }
            // Somebody may have thought for long.
            try Task.checkCancellation()
        }
        do {
            return try await tool.call(json: arguments)
        } catch let error as CancellationError {
            throw error
        } catch {
            return "error: \(words(of: error))"
        }
    }
}

/// What an error says.
private func words(of error: any Error) -> String {
    if let error = error as? CactusError { return error.message }
    if let text = (error as? any LocalizedError)?.errorDescription { return text }
    return error is any CustomNSError || type(of: error) is NSError.Type ? error.localizedDescription : "\(error)"
}
