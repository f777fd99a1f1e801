// Runs a plan of the conformance suite through the public API of this package: conformance PLAN RESULTS
import Cactus
import Foundation

/// What the steps of a case have made, by name.
final class Case {
    private var models: [String: Model] = [:]
    private var sessions: [String: Session] = [:]
    private var streams: [String: Events] = [:]
    private var readers: [String: Events.Iterator] = [:]
    private var embedders: [String: Embedder] = [:]
    private var transcribers: [String: Transcriber] = [:]
    private var lives: [String: LiveTranscription] = [:]
    private var indexes: [String: Index] = [:]

    /// What was never made is as good as closed.
    private struct Missing: Error {}

    func result(of step: JSON) async -> JSON {
        do {
            return try await run(step)
        } catch let error as CactusError {
            return ["error": ["kind": .string(error.kind.rawValue), "message": .string(error.message)]]
        } catch is Missing {
            return ["error": ["kind": "handle", "message": "there is no such thing"]]
        } catch {
            return ["error": ["kind": "internal", "message": .string("\(error)")]]
        }
    }

    /// Closes what the case left open.
    func end() async {
        let names = Set(models.keys).union(sessions.keys).union(streams.keys).union(embedders.keys)
            .union(transcribers.keys).union(lives.keys).union(indexes.keys)
        for name in names { await close(name) }
    }

    private func close(_ name: String) async {
        await streams[name]?.close()
        await sessions[name]?.close()
        await lives[name]?.close()
        await models[name]?.close()
        await embedders[name]?.close()
        await transcribers[name]?.close()
        await indexes[name]?.close()
    }

    private func at<T>(_ named: [String: T], _ step: JSON) throws -> T {
        guard let name = (step["on"] ?? step["of"])?.string, let found = named[name] else { throw Missing() }
        return found
    }

    private func request(_ step: JSON) -> Request {
        switch step["request"] {
        case .string(let text): Request(text)
        case let request: Request(json: request?.object ?? [:])
        }
    }

    private func responding(_ step: JSON) throws -> any Responding {
        if let name = step["on"]?.string, let session = sessions[name] { return session }
        return try at(models, step)
    }

    private func stream(_ step: JSON) throws -> Events {
        try responding(step).stream(request(step))
    }

    /// Events of a whole stream.
    private func events(_ step: JSON) async throws -> JSON {
        let stream = try stream(step)
        var (events, texts) = ([JSON](), 0)
        for try await event in stream {
            events.append(event.json)
            if case .consent(let question) = event, let yes = step["consent"]?.bool { try question.answer(yes) }
            if case .text = event {
                texts += 1
                if texts == step["cancel_after"]?.int { stream.cancel() }
            }
        }
        return ["events": .array(events)]
    }

    /// At most so many events of a stream that was started.
    private func read(_ step: JSON, most: Int) async throws -> JSON {
        let reader = try at(readers, step)
        var events: [JSON] = []
        while events.count < most, let event = try await reader.next() { events.append(event.json) }
        return ["events": .array(events)]
    }

    private func respondWithTools(_ step: JSON) async throws -> JSON {
        let calls = Calls()
        func names(_ field: String) -> [String] { (step[field]?.array ?? []).compactMap(\.string) }
        let (refused, throwing) = (names("refuse"), names("throws"))
        let tools = (step["request"]?["tools"]?.array ?? []).map { tool -> any Tool in
            let function = tool["function"] ?? [:]
            let name = function["name"]?.string ?? ""
            let result = step["results"]?[name]?.string ?? ""
            let parameters = Schema(json: function["parameters"] ?? [:])
            return DynamicTool(name: name, description: function["description"]?.string ?? "", parameters: parameters) { arguments in
                await calls.add([.string(name), arguments])
                if throwing.contains(name) { throw Failure(errorDescription: result) }
                return result
            }
        }
        var fields = step["request"]?.object ?? [:]
        fields["tools"] = nil
        let use = ToolUse(mostRounds: step["most"]?.int ?? 0) { !refused.contains($0.name) }
        let answer = try await responding(step).respondWithTools(to: Request(json: fields), tools: tools, use: use)
        return ["answer": answer.json, "calls": .array(await calls.all)]
    }

    private func sound(_ step: JSON) throws -> Sound {
        if let file = step["file"]?.string { return .file(file) }
        return .samples(try samples(step))
    }

    private func samples(_ step: JSON) throws -> [Int16] {
        let data = try Data(contentsOf: URL(fileURLWithPath: step["pcm"]?.string ?? ""))
        return data.withUnsafeBytes { Array($0.bindMemory(to: Int16.self)) }
    }

    private func run(_ step: JSON) async throws -> JSON {
        let options = step["options"]?.object ?? [:]
        let name = step["as"]?.string ?? ""
        func text(_ field: String) -> String { step[field]?.string ?? "" }
        func tokens() -> [UInt32] { (step["tokens"]?.array ?? []).compactMap { $0.int.map { UInt32($0) } } }
        func ids() -> [Int32] { (step["ids"]?.array ?? []).compactMap { $0.int.map { Int32($0) } } }
        func vectors() -> [[Float]] { (step["vectors"]?.array ?? []).map { floats($0.string ?? "") } }
        switch text("op") {
        case "versions": return ["abi": .integer(Int64(Library.abiVersion))]
        case "check_bundle":
            return ["report": try await Library.checkBundle(text("path"), verify: step["verify"]?.bool ?? false).json]
        case "load":
            var load = LoadOptions()
            load.other = options
            models[name] = try await Model.load(text("source"), options: load)
        case "load_embedder": embedders[name] = try await Embedder.load(text("source"))
        case "load_transcriber": transcribers[name] = try await Transcriber.load(text("source"))
        case "info":
            let info = try at(models, step).info().json
            var found: JSON.Object = [:]
            for field in step["fields"]?.array ?? [] { found[field.string ?? ""] = info[field.string ?? ""] }
            return ["info": .object(found)]
        case "tokenize":
            let tokens = try await at(models, step).tokenize(text("text"), special: step["special"]?.bool ?? false)
            return ["tokens": .array(tokens.map { .integer(Int64($0)) })]
        case "detokenize":
            return ["text": .string(try await at(models, step).detokenize(tokens(), special: step["special"]?.bool ?? false))]
        case "score": return ["score": try await at(models, step).score(tokens(), from: step["first"]?.int ?? 1).json]
        case "session": sessions[name] = try await at(models, step).session(Request(json: step["defaults"]?.object ?? [:]))
        case "respond": return ["answer": try await stream(step).answer().json]
        case "stream": return try await events(step)
        case "start":
            let stream = try stream(step)
            streams[name] = stream
            readers[name] = stream.makeAsyncIterator()
        case "read": return try await read(step, most: step["count"]?.int ?? 0)
        case "collect": return try await read(step, most: .max)
        case "cancel": try at(streams, step).cancel()
        case "messages": return ["messages": .array(try at(sessions, step).messages().map(\.json))]
        case "tools": return try await respondWithTools(step)
        case "structured":
            return ["value": try await responding(step).respond(to: request(step), schema: Schema(json: step["schema"] ?? true))]
        case "set_policy":
            var policy = Policy(text: step["policy"]?.string)
            policy.other = options
            let isNone = policy.text == nil && (step["options"] ?? nil).isNull
            try await at(models, step).setPolicy(isNone ? nil : policy)
        case "set_threads": try at(models, step).setThreads(step["threads"]?.int ?? 0, decode: step["decode_threads"]?.int ?? 0)
        case "memory_pressure": Library.memoryPressure()
        case "embed":
            let texts = (step["texts"]?.array ?? []).compactMap(\.string)
            let found = try await at(embedders, step).embed(texts, normalize: step["normalize"]?.bool ?? true)
            return ["vectors": .array(found.map { .string(hex($0)) })]
        case "embed_image": return ["vectors": [.string(hex(try await at(embedders, step).embedImage(text("path"))))]]
        case "index_open": indexes[name] = try await Index.open(text("folder"), dimension: step["dimension"]?.int ?? 0)
        case "index_add":
            let (ids, vectors) = (ids(), vectors())
            try await at(indexes, step).add(
                ids.indices.map { i in
                    Index.Document(
                        id: ids[i], text: step["documents"]?[i]?.string ?? "", metadata: step["metadatas"]?[i]?.string, vector: vectors[i])
                })
        case "index_query":
            let found = try await at(indexes, step).query(
                vectors(), top: options["top_k"]?.int ?? 10, threshold: options["score_threshold"]?.double.map { Float($0) },
                filter: options["filter"])
            return ["found": .array(found.map { .array($0.map { [.integer(Int64($0.id)), .string(hex([$0.score]))] }) })]
        case "index_get":
            let found = try await at(indexes, step).get(ids())
            return ["documents": .array(found.map { [.string($0.text), .string($0.metadata ?? ""), .string(hex($0.vector))] })]
        case "index_delete": try await at(indexes, step).delete(ids())
        case "index_compact": try await at(indexes, step).compact()
        case "transcribe":
            var transcribe = TranscribeOptions()
            transcribe.other = options
            return ["result": try await at(transcribers, step).transcribe(sound(step), options: transcribe).json]
        case "detect_language": return ["result": try await at(transcribers, step).detectLanguage(sound(step)).json]
        case "speech": return ["result": try await at(transcribers, step).speech(sound(step), options: options).json]
        case "live":
            var live = LiveOptions()
            live.other = options
            lives[name] = try await at(transcribers, step).live(live)
        case "push":
            let all = try samples(step)
            let piece = Array(all[(step["from"]?.int ?? 0)..<(step["to"]?.int ?? all.count)])
            return ["result": try await at(lives, step).push(piece).json]
        case "finish": return ["result": try await at(lives, step).finish().json]
        case "close": await close(text("of"))
        default: return ["absent": "this runner does not know the operation"]
        }
        return [:]
    }
}

/// What a tool throws.
struct Failure: LocalizedError {
    let errorDescription: String?
}

/// Calls of tools, in their order.
actor Calls {
    private(set) var all: [JSON] = []

    func add(_ call: JSON) {
        all.append(call)
    }
}

/// Floats as the digits of their bits.
func hex(_ floats: [Float]) -> String {
    floats.map { number in
        let digits = String(number.bitPattern, radix: 16)
        return String(repeating: "0", count: 8 - digits.count) + digits
    }.joined()
}

func floats(_ hex: String) -> [Float] {
    let digits = Array(hex.utf8)
    return stride(from: 0, to: digits.count, by: 8).map { start in
        Float(bitPattern: UInt32(String(decoding: digits[start..<start + 8], as: UTF8.self), radix: 16) ?? 0)
    }
}

guard CommandLine.arguments.count == 3 else {
    print("usage: conformance PLAN RESULTS")
    exit(2)
}
let plan = try JSON(parsing: String(contentsOf: URL(fileURLWithPath: CommandLine.arguments[1]), encoding: .utf8))
_ = FileManager.default.createFile(atPath: CommandLine.arguments[2], contents: nil)
let results = try FileHandle(forWritingTo: URL(fileURLWithPath: CommandLine.arguments[2]))
func write(_ line: JSON) { results.write(Data((line.text + "\n").utf8)) }
let cases = plan["cases"]?.array ?? []
for each in cases {
    let made = Case()
    var found: [JSON] = []
    for step in each["steps"]?.array ?? [] { found.append(await made.result(of: step)) }
    await made.end()
    write(["case": each["name"] ?? "", "results": .array(found)])
}
write(["end": .integer(Int64(cases.count))])
