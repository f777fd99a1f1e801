// A function of this program that the model calls.
//
//     swift run 05-tools MODEL
import Cactus
import Foundation

struct Rain: Tool {
    struct Arguments: Decodable, SchemaProviding {
        enum City: String, CaseIterable, Decodable, SchemaProviding {
            case paris = "Paris"
            case rome = "Rome"
        }
        var city: City
        static let schema = Schema.object(["city": City.schema])
    }

    let name = "rain"
    let description = "Rain"

    func call(arguments: Arguments) async throws -> String {
        arguments.city == .paris ? "yes" : "no"
    }
}

guard CommandLine.arguments.count == 2 else {
    print("usage: 05-tools MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
let session = try await model.session()
var request = Request("Rain")
request.options.maxTokens = 90
request.toolChoice = .required
let use = ToolUse(mostRounds: 1) { call in
    print("the model asks for \(call.name)(\(call.arguments))")
    return true
} onCall: { _, result in
    print("it is told: \(result)")
}
let answer = try await session.respondWithTools(to: request, tools: [Rain()], use: use)
print(answer.text)
await session.close()
await model.close()
