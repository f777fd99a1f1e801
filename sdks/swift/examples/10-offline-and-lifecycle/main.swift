// A model without the network, in an application that comes and goes.
//
//     swift run 10-offline-and-lifecycle MODEL
import Cactus
import Foundation

guard CommandLine.arguments.count == 2 else {
    print("usage: 10-offline-and-lifecycle MODEL")
    exit(2)
}
print("models may be kept in \(try Storage.models.path)")

// Nothing but what is on this machine. A name that would have to be downloaded is an error.
let model = try await Model.load(CommandLine.arguments[1], options: LoadOptions(offline: true))
do {
    _ = try await Model.load("nobody/has-this-model", options: LoadOptions(offline: true))
} catch let error as CactusError {
    print("not downloaded: \(error.kind)")
}

#if canImport(Darwin)
// Passes on what the system says about memory and heat, as long as it is kept.
let lifecycle = try Lifecycle(of: model)
#endif
var request = Request("hello")
request.options.maxTokens = 8
let before = try await model.respond(to: request)
// When memory is short, and when the device is hot. No answer changes.
Library.memoryPressure()
try model.setThreads(1, decode: 1)
let after = try await model.respond(to: request)
print(before.tokens.count, after.tokens.count)

// A screen that is left: the answer under way is cancelled, and close waits for it.
var long = Request()
long.prompt = "One, two, three,"
long.options.maxTokens = 400
long.options.other = ["ignore_eos": true]
for try await event in model.stream(long) {
    if case .started = event { await model.close() }
    if case .cancelled = event { print("cancelled when it was closed") }
}
do {
    _ = try await model.respond(to: request)
} catch let error as CactusError {
    print("a closed model says: \(error.kind)")
}
