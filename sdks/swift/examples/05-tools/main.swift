// A function of this program that the model calls.
//
//     swift run 05-tools MODEL
import Cactus
import Foundation

struct Weather: Tool {
    struct Arguments: Decodable, SchemaProviding {
        enum City: String, CaseIterable, Decodable, SchemaProviding { case paris = "Paris", rome = "Rome" }
        var city: City
        static let schema = Schema.object(["city": City.schema])
    }

    let name = "weather"
    let description = "The weather in a city, now."

    func call(arguments: Arguments) async throws -> String {
        "18 degrees in \(arguments.city.rawValue), light rain"
    }
}

guard CommandLine.arguments.count == 2 else {
    print("usage: 05-tools MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
let session = try await model.session()
var request = Request("Do I need an umbrella in Paris?")
request.options.maxTokens = 200
request.toolChoice = .required
let use = ToolUse(mostRounds: 1) { call in
    print("the model asks for \(call.name)(\(call.arguments))")
    return true
} onCall: { _, result in
    print("it is told: \(result)")
}
let answer = try await session.respondWithTools(to: request, tools: [Weather()], use: use)
print(answer.text.isEmpty ? "it asks for \(answer.toolCalls.map(\.name))" : answer.text)
await session.close()
await model.close()
