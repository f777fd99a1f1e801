// What is said in a recording, and while somebody speaks.
//
//     swift run 08-transcribe MODEL RECORDING [SPEECH_MODEL]
import Cactus
import Foundation

guard CommandLine.arguments.count >= 3 else {
    print("usage: 08-transcribe MODEL RECORDING [SPEECH_MODEL]")
    exit(2)
}
let transcriber = try await Transcriber.load(CommandLine.arguments[1])
let recording = CommandLine.arguments[2]
let transcript = try await transcriber.transcribe(.file(recording)) { text in print("… \(text)") }
print("\(transcript.language ?? "?"): \(transcript.text)")
for segment in transcript.segments { print("\(segment.start) s to \(segment.end) s: \(segment.text)") }

// Live: pieces of sound, as a microphone gives them. Here they come from the file, which has 16,000 samples of 16 bits a second.
if CommandLine.arguments.count > 3 {
    let live = try await transcriber.live(LiveOptions(speechModel: CommandLine.arguments[3], language: "en"))
    let samples = try Data(contentsOf: URL(fileURLWithPath: recording)).dropFirst(44).withUnsafeBytes { Array($0.bindMemory(to: Int16.self)) }
    var confirmed = ""
    for start in stride(from: 0, to: samples.count, by: 8000) {
        let heard = try await live.push(Array(samples[start..<min(start + 8000, samples.count)]))
        confirmed += heard.confirmed
        if !heard.pending.isEmpty { print("\(confirmed) [\(heard.pending)]") }
    }
    confirmed += try await live.finish().confirmed
    print("live: \(confirmed)")
}
await transcriber.close()
