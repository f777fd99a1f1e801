// A policy: a target may answer what the model should not, when a person agrees.
//
//     swift run 11-hybrid MODEL TARGET [STATE]      (TARGET as http://127.0.0.1:8081/v1#name)
import Cactus
import Foundation

guard CommandLine.arguments.count >= 3 else {
    print("usage: 11-hybrid MODEL TARGET [STATE]")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
var policy = Policy(target: CommandLine.arguments[2], handoff: .always, budget: "0.05")
policy.state = CommandLine.arguments.count > 3 ? CommandLine.arguments[3] : nil
try await model.setPolicy(policy)
var request = Request("hello")
request.options.maxTokens = 20

// In an application, a dialog. Without an answer nothing leaves.
for yes in [false, true] {
    let answer = try await model.respond(to: request) { question in
        print("May \(question.classes) go to \(question.host ?? "?"), for at most \(question.most ?? "?")? \(yes ? "yes" : "no")")
        return yes
    }
    print("\(answer.answeredBy ?? "?") (\(answer.routeReason ?? "?")): \(answer.text)")
}

// The same as events: who answers is known before the first text.
for try await event in model.stream(request) {
    switch event {
    case .consent(let question): try question.answer(true)
    case .source(let source): print("answered by \(source.target ?? "this machine"), because \(source.reason ?? "?")")
    case .done(let answer): print("for \(answer.cost ?? 0) dollars")
    default: break
    }
}
await model.close()
