// What a stream costs beside the answer itself: CPU time of this process for each event, through this package and through C.
//
//     swift run -c release overhead MODEL [TOKENS]
import CCactus
import Cactus
import Foundation

/// CPU time of this process so far, in microseconds.
func cpu() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
}

/// Answers through C alone, whose events are fetched and thrown away.
func throughC(_ model: OpaquePointer, _ request: String) -> Int {
    var (handle, count): (OpaquePointer?, Int) = (nil, 0)
    guard cactus_request_start(model, request, nil, nil, &handle) == 0 else { return 0 }
    while true {
        var (event, over): (UnsafeMutablePointer<CChar>?, Bool) = (nil, false)
        guard cactus_request_next(handle, -1, &event, &over) == 0, !over else { break }
        if event != nil { count += 1 }
        cactus_string_free(event)
    }
    cactus_request_close(handle)
    return count
}

let arguments = CommandLine.arguments
guard arguments.count >= 2 else {
    print("usage: overhead MODEL [TOKENS]")
    exit(2)
}
let tokens = arguments.count > 2 ? Int(arguments[2]) ?? 400 : 400
var request = Request()
request.prompt = "Count."
request.options = GenerationOptions(maxTokens: tokens, temperature: 0, seed: 1)
request.options.other = ["ignore_eos": true]
var raw: OpaquePointer?
guard cactus_model_load(arguments[1], "{\"threads\":1,\"context_tokens\":512}", nil, nil, &raw) == 0, let raw else {
    print("the model cannot be loaded")
    exit(1)
}
let model = try await Model.load(arguments[1], options: LoadOptions(contextTokens: 512, threads: 1))
var differences: [Double] = []
var events = 0
for round in 0..<21 {
    var start = cpu()
    let counted = throughC(raw, request.json.text)
    let c = cpu() - start
    start = cpu()
    events = 0
    for try await _ in model.stream(request) { events += 1 }
    let swift = cpu() - start
    guard events == counted else {
        print("expected \(counted) events, found \(events)")
        exit(1)
    }
    // The first round computes the prompt.
    if round > 0 { differences.append((swift - c) / Double(events)) }
}
differences.sort()
let median = differences[differences.count / 2]
func rounded(_ number: Double) -> String { String(format: "%.1f", number) }
let range = "\(rounded(differences[0])) to \(rounded(differences[differences.count - 1]))"
print("\(events) events; \(rounded(median)) microseconds of CPU an event beside C (\(range))")
print("at 200 tokens a second: \(String(format: "%.2f", median * 200 / 1e4)) % of a core")
cactus_model_close(raw)
await model.close()
