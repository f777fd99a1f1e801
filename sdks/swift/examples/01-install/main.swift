// Whether the library is found, and whether a model can be used with it.
//
//     swift run 01-install MODEL
import Cactus
import Foundation

guard CommandLine.arguments.count == 2 else {
    print("usage: 01-install MODEL")
    exit(2)
}
print("libcactus \(Library.version), ABI \(Library.abiVersion)")

// The folder of the model's bundle. What is no bundle yet is downloaded and converted first, once.
let bundle = try await Model.prepare(CommandLine.arguments[1]) { step in
    if let fraction = step.fraction { print("\(step.stage) \(step.what) \(Int(fraction * 100)) %") }
}
let support = try await Library.support(bundle: bundle)
print(support.isUsable ? "\(support.report?.name ?? bundle) can be used" : "it cannot be used: \(support.obstacles)")
exit(support.isUsable ? 0 : 1)
