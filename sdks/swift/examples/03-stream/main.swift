// An answer that is shown while it is made.
//
//     swift run 03-stream MODEL
import Cactus
import Foundation

guard CommandLine.arguments.count == 2 else {
    print("usage: 03-stream MODEL")
    exit(2)
}
let model = try await Model.load(CommandLine.arguments[1])
var request = Request("Why is the sky blue?")
request.options.maxTokens = 100

for try await event in model.stream(request) {
    switch event {
    case .text(let text): FileHandle.standardOutput.write(Data(text.utf8))
    case .done(let answer): print("\n\(answer.finishReason.rawValue), \(answer.usage.completionTokens) tokens")
    case .failed(let error): print("\nit failed: \(error)")
    default: break
    }
}

// The same, where nothing but the text is wanted.
for try await text in model.stream(request).texts { FileHandle.standardOutput.write(Data(text.utf8)) }
print()
await model.close()
