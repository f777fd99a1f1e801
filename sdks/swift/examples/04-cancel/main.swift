// An answer that is stopped: by a call, by leaving the loop, and by cancelling the task that waits for it.
//
//     swift run 04-cancel MODEL
import Cactus
import Foundation

guard CommandLine.arguments.count == 2 else {
    print("usage: 04-cancel MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
var request = Request()
request.prompt = "One, two, three,"
request.options.maxTokens = 1500
request.options.other = ["ignore_eos": true]

let stream = model.stream(request)
for try await event in stream {
    if case .text = event { stream.cancel() }
    if case .cancelled(let answer) = event { print("cancelled after \(answer.usage.completionTokens) tokens: \(answer.text)") }
}

for try await text in model.stream(request).texts {
    print("left after \(text)")
    break
}

let asked = request
let task = Task { try await model.respond(to: asked) }
await Task.yield()
task.cancel()
do {
    _ = try await task.value
    print("it was faster than the cancellation")
} catch is CancellationError {
    print("the task was cancelled")
}
await model.close()
