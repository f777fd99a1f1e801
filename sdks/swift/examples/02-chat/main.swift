// A conversation that remembers what was said.
//
//     swift run 02-chat MODEL
import Cactus
import Foundation

guard CommandLine.arguments.count == 2 else {
    print("usage: 02-chat MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
var defaults = Request(messages: [.system("Be brief.")])
defaults.options.maxTokens = 100
let session = try await model.session(defaults)
for question in ["My name is Ada.", "What is my name?"] {
    let answer = try await session.respond(to: question)
    print("> \(question)\n\(answer.text)")
    print("(\(answer.usage.promptTokens) tokens read, \(answer.usage.completionTokens) written)")
}
print("\(try session.messages().count) messages")
await session.close()
await model.close()
