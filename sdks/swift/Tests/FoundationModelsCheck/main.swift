import Cactus
import CactusFoundationModels
import Foundation
import FoundationModels

/// Ends with 1 where something is not as it should be.
func expect(_ condition: Bool, _ what: @autoclosure () -> String) {
    if !condition {
        print("FAILED: \(what())")
        exit(1)
    }
}

func text(_ text: String) -> [FoundationModels.Transcript.Segment] { [.text(.init(content: text))] }

/// What was sent as text of the response.
func text(of said: [String]) -> String {
    said.filter { $0.hasPrefix("response text ") }.map { $0.dropFirst("response text ".count) }.joined()
}

let model = try await Cactus.Model.load(CommandLine.arguments[1], options: LoadOptions(contextTokens: 512, threads: 1))
let language = CactusLanguageModel(model)
expect(language.capabilities.contains(.toolCalling) && !language.capabilities.contains(.reasoning), "capabilities")
expect(language.executorConfiguration == CactusLanguageModel(model).executorConfiguration, "one model has one executor")
let executor = try CactusExecutor(configuration: language.executorConfiguration)

func respond(
    _ entries: [FoundationModels.Transcript.Entry], tools: [FoundationModels.Transcript.ToolDefinition] = [], schema: GenerationSchema? = nil,
    mode: FoundationModels.GenerationOptions.ToolCallingMode? = nil, most: Int = 8
) async throws -> [String] {
    let channel = LanguageModelExecutorGenerationChannel()
    let options = FoundationModels.GenerationOptions(samplingMode: .greedy, maximumResponseTokens: most, toolCallingMode: mode)
    let request = LanguageModelExecutorGenerationRequest(
        id: UUID(), transcript: .init(entries: entries), enabledTools: tools, schema: schema, generationOptions: options,
        contextOptions: ContextOptions(), metadata: [:])
    try await executor.respond(to: request, model: language, streamingInto: channel)
    return await channel.said
}

// The same text as without the framework.
let entries: [FoundationModels.Transcript.Entry] = [.instructions(.init(segments: text("Be brief."))), .prompt(.init(segments: text("Hello")))]
var same = Request(messages: [.system("Be brief."), .user("Hello")])
same.options = Cactus.GenerationOptions(maxTokens: 8, temperature: 0)
let answer = try await model.respond(to: same)
let said = try await respond(entries)
let streamed = text(of: said)
expect(streamed == answer.text, "\(streamed) is not \(answer.text)")
expect(said.last == "response usage \(answer.usage.promptTokens) 8", "usage comes last: \(said)")

// A schema holds the answer.
let held = try await respond(entries, schema: GenerationSchema(isObject: false), most: 20)
expect(["\"yes\"", "\"no\""].contains(text(of: held)), "\(held)")

// A tool has to be called, its output is answered.
let tool = FoundationModels.Transcript.ToolDefinition(name: "choose", description: "Chooses", parameters: GenerationSchema(isObject: true))
let called = try await respond(entries, tools: [tool], mode: .required, most: 60)
expect(called.first?.hasPrefix("calls choose ") == true && called.last?.hasPrefix("calls usage") == true, "\(called)")
let call = FoundationModels.Transcript.ToolCall(id: "1", toolName: "choose", arguments: GeneratedContent(json: "{}"))
let outcome = FoundationModels.Transcript.ToolOutput(id: "1", toolName: "choose", segments: text("yes"))
let answered = try await respond(entries + [.toolCalls(.init([call])), .toolOutput(outcome)], tools: [tool], mode: .disallowed)
expect(answered.contains { $0.hasPrefix("response text") }, "\(answered)")

// Errors that applications know.
do {
    _ = try await respond([.prompt(.init(segments: text(String(repeating: "long ", count: 600))))])
    expect(false, "what does not fit is an error")
} catch LanguageModelError.contextSizeExceeded(let error) {
    expect(error.contextSize == 512, "\(error)")
}
do {
    _ = try await respond([.prompt(.init(segments: [.attachment("picture")]))])
    expect(false, "a picture is an error")
} catch LanguageModelError.unsupportedTranscriptContent {}

// A target that breaks off: what it said is void, and this machine answers.
var policy = Policy(target: CommandLine.arguments[2], handoff: .always, budget: "0.05", consent: [.text])
policy.state = CommandLine.arguments[3]
try await model.setPolicy(policy)
let replaced = try await respond(entries)
try await model.setPolicy(nil)
let texts = replaced.filter { $0.hasPrefix("response") && !$0.hasPrefix("response usage") }
expect(texts.first == "response text Half an answer", "\(replaced)")
let void = texts.firstIndex(of: "response replaced by ")
expect(void != nil && text(of: Array(texts[(void ?? 0)...])) == answer.text, "\(replaced)")

executor.prewarm(model: language, transcript: .init(entries: entries))
await model.close()
print("Foundation Models: passed")
