// A question about a picture, by a model that sees, or about a sound, by one that hears.
//
//     swift run 07-picture-or-sound MODEL FILE
import Cactus
import Foundation

guard CommandLine.arguments.count == 3 else {
    print("usage: 07-picture-or-sound MODEL FILE")
    exit(2)
}
let file = URL(fileURLWithPath: CommandLine.arguments[2])
let data = try Data(contentsOf: file)
let isPicture = ["png", "jpg", "jpeg", "webp"].contains(file.pathExtension.lowercased())
let model = try await Model.load(CommandLine.arguments[1])
var request = Request(messages: [.user([isPicture ? .picture(data) : .sound(data), .text(isPicture ? "What is this?" : "What do you hear?")])])
request.options.maxTokens = 60
let answer = try await model.respond(to: request)
print(answer.text)
print("(\(answer.usage.promptTokens) tokens read)")
await model.close()
