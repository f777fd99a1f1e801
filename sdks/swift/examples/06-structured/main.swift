// An answer that is a value of a type.
//
//     swift run 06-structured MODEL
import Cactus
import Foundation

struct Person: Decodable, SchemaProviding {
    var name: String
    var age: Int
    var hobbies: [String]

    static let schema = Schema.object([
        "name": .one(of: ["Ada", "Grace", "Barbara"]),
        "age": .integer(description: "In years", from: 1, to: 120),
        "hobbies": .array(of: .one(of: ["chess", "sailing", "code"]), to: 3),
    ])
}

guard CommandLine.arguments.count == 2 else {
    print("usage: 06-structured MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
var request = Request("Invent a person.")
request.options.maxTokens = 200
let person = try await model.respond(to: request, generating: Person.self)
print("\(person.name), \(person.age), likes \(person.hobbies)")
await model.close()
