import Foundation
import XCTest

@testable import Cactus

final class SessionTests: XCTestCase {
    private func defaults(_ instructions: String = "Be brief.") -> Request {
        var request = Request(messages: [.system(instructions)])
        request.options = GenerationOptions(maxTokens: 6, temperature: 0, seed: 3)
        return request
    }

    func testASessionRemembersAndGoesOnFromItsMessages() async throws {
        let model = try await Given.model()
        let session = try await model.session(defaults())
        let first = try await session.respond(to: "hello")
        XCTAssertEqual(try session.messages().map(\.role), ["system", "user", "assistant"])
        XCTAssertEqual(try session.messages().last, first.message)
        let fork = try await session.fork()
        let second = try await session.respond(to: "and then?")
        let other = try await fork.respond(to: "and then?")
        XCTAssertEqual(other.text, second.text)
        XCTAssertEqual(try fork.messages(), try session.messages())
        await session.close()
        await fork.close()
        await model.close()
    }

    func testASessionAnswersOneRequestAtATime() async throws {
        let model = try await Given.model()
        let session = try await model.session()
        var request = Request("count")
        request.options = GenerationOptions(maxTokens: Given.longTokens, temperature: 0)
        request.options.other = ["ignore_eos": true]
        let stream = session.stream(request)
        let iterator = stream.makeAsyncIterator()
        _ = try await iterator.next()
        await expect(.busy) { _ = try await session.respond(to: "more") }
        await session.close()
        var last: Event?
        while let event = try await iterator.next() { last = event }
        XCTAssertTrue(isCancelled(last))
        await model.close()
    }

    func testTwoSessionsDoNotMix() async throws {
        let model = try await Given.model()
        var alone: [String] = []
        for instructions in ["One", "Two"] {
            let session = try await model.session(defaults(instructions))
            alone.append(try await session.respond(to: "hello").text)
            await session.close()
        }
        let sessions = try await [model.session(defaults("One")), model.session(defaults("Two"))]
        async let first = sessions[0].respond(to: "hello")
        async let second = sessions[1].respond(to: "hello")
        let together = try await [first.text, second.text]
        XCTAssertEqual(together, alone)
        for session in sessions { await session.close() }
        await model.close()
    }

    private struct Rain: Tool {
        struct Arguments: Decodable, SchemaProviding, Sendable {
            enum City: String, CaseIterable, Decodable, SchemaProviding {
                case paris = "Paris"
                case rome = "Rome"
            }
            var city: City
            static let schema = Schema.object(["city": City.schema])
        }

        let name = "rain"
        let description = "Rain"
        let heard = Locked<[Arguments]>([])
        var fails = false

        func call(arguments: Arguments) async throws -> String {
            heard.with { $0.append(arguments) }
            if fails { throw CactusError(code: Code.text, message: "no umbrella") }
            return "yes"
        }
    }

    /// The tiny model has room for one call and its result, and the beginning of an answer.
    private func asking(_ text: String) -> Request {
        var request = Given.short(text, tokens: 90)
        request.toolChoice = .required
        return request
    }

    func testToolsAreCalledAndTheirResultsAnswered() async throws {
        let model = try await Given.model()
        let rain = Rain()
        let calls = Locked<[String]>([])
        let use = ToolUse(mostRounds: 1) {
            $0.name == "rain"
        } onCall: { call, result in
            calls.with { $0.append("\(call.name) \(result)") }
        }
        let answer = try await model.respondWithTools(to: asking("?"), tools: [rain], use: use)
        XCTAssertEqual(calls.with { $0 }, ["rain yes"])
        XCTAssertEqual(rain.heard.with { $0.count }, 1)
        XCTAssertGreaterThan(answer.usage.cachedTokens, 0, "it goes on from the call")
        // What may not be called is for the caller.
        let first = try await model.respondWithTools(to: asking("?"), tools: [rain], use: ToolUse(mostRounds: 0))
        XCTAssertEqual(first.toolCalls.map(\.name), ["rain"])
        XCTAssertEqual(first.finishReason, .toolCalls)
        XCTAssertNoThrow(try first.toolCalls[0].decode(Rain.Arguments.self))
        XCTAssertEqual(rain.heard.with { $0.count }, 1)
        // In a session, what was called and said is part of the conversation.
        let session = try await model.session()
        _ = try await session.respondWithTools(to: asking("?"), tools: [rain], use: ToolUse(mostRounds: 1))
        let messages = try session.messages()
        XCTAssertEqual(messages.map(\.role), ["user", "assistant", "tool", "assistant"])
        XCTAssertEqual(messages[2].content, "yes")
        await session.close()
        await model.close()
    }

    func testRefusedFailedAndUnknownCallsAreToldToTheModel() async throws {
        let model = try await Given.model()
        var rain = Rain()
        rain.fails = true
        let told = Locked<[String]>([])
        let keep: @Sendable (ToolCall, String) async -> Void = { _, result in told.with { $0.append(result) } }
        let first = try await model.respond(
            to: {
                var request = asking("?")
                request.tools = [rain.toolDescription]
                return request
            }())
        for (tools, confirm) in [([rain], true), ([rain], false), ([], true)] as [([Rain], Bool)] {
            let use = ToolUse(confirm: { _ in confirm }, onCall: keep)
            let messages = try await use.results(of: first.toolCalls, from: tools)
            XCTAssertEqual(messages.map(\.role), ["tool"])
            XCTAssertEqual(messages[0].json["tool_call_id"]?.string, first.toolCalls[0].id)
            XCTAssertEqual(messages[0].content, told.with { $0.last })
        }
        let found = told.with { $0 }
        XCTAssertEqual(found, ["error: no umbrella", "error: the call was refused", "error: there is no tool `rain`"])
        XCTAssertEqual(rain.heard.with { $0.count }, 1, "a call that is refused is not made")
        await model.close()
    }

    /// An answer that wants calls of `rain`.
    private func wanting(_ arguments: String..., reason: String = "tool_calls") -> Answer {
        let calls = arguments.map { arguments -> JSON in
            ["id": "1", "type": "function", "function": ["name": "rain", "arguments": .string(arguments)]]
        }
        return Answer(json: ["finish_reason": .string(reason), "message": ["role": "assistant", "tool_calls": .array(calls)]])
    }

    func testWhatGoesWrongWithAToolIsToldInTheWordsOfAllSDKs() async throws {
        struct Plain: Error, CustomStringConvertible { let description = "no power" }
        struct Localized: LocalizedError { let errorDescription: String? = "no net" }
        func said(_ arguments: String, _ body: @escaping @Sendable (JSON) async throws -> String) async throws -> [String] {
            let tool = DynamicTool(name: "rain", description: "", parameters: .object([:]), call: body)
            return try await ToolUse().results(of: wanting(arguments).toolCalls, from: [tool]).map(\.content)
        }
        for (arguments, expected) in [
            ("", "{}"), ("{\"a\":1}", "{\"a\":1}"), ("[1]", "error: the arguments are no JSON object"),
            ("so", "error: the arguments are no JSON object"), ("{", "error: the arguments are no JSON object"),
        ] {
            let found = try await said(arguments) { $0.text }
            XCTAssertEqual(found, [expected], arguments)
        }
        var found = try await said("{}") { _ in throw Plain() }
        XCTAssertEqual(found, ["error: no power"])
        found = try await said("{}") { _ in throw Localized() }
        XCTAssertEqual(found, ["error: no net"])
        found = try await said("{}") { _ in throw NSError(domain: "x", code: 1, userInfo: [NSLocalizedDescriptionKey: "no file"]) }
        XCTAssertEqual(found, ["error: no file"])
        do {
            _ = try await said("{}") { _ in throw CancellationError() }
            XCTFail("it ends the answer")
        } catch is CancellationError {}
    }

    func testNoToolIsCalledForAnAnswerThatWasCancelled() async throws {
        let rain = Rain()
        let answers = [wanting("{\"city\":\"Paris\"}"), wanting("{\"city\":\"Rome\"}", reason: "cancelled")]
        var asked: [Request] = []
        let answer = try await ToolUse().answer(to: Request("?"), tools: [rain]) {
            asked.append($0)
            return answers[asked.count - 1]
        } after: { request, _, results in
            XCTAssertEqual(results.map(\.content), ["yes"])
            return request
        }
        XCTAssertEqual(answer.finishReason, .cancelled)
        XCTAssertEqual(rain.heard.with { $0.map(\.city) }, [.paris])
        XCTAssertEqual(asked.map(\.tools.count), [1, 1])
    }

    func testAValueThatIsNotWholeIsCancelled() throws {
        // It could be read, and is not what the model would have written.
        let fields: JSON.Object = ["finish_reason": "length", "message": ["content": "12"], "usage": ["completion_tokens": 2]]
        for (isWhole, kind) in [(true, nil), (false, CactusError.Kind.cancelled)] {
            var json = fields
            json["whole"] = .bool(isWhole)
            do {
                let value = try Answer(json: .object(json)).value()
                XCTAssertEqual(value, 12)
                XCTAssertNil(kind)
            } catch let error as CactusError {
                XCTAssertEqual(error.kind, kind)
                XCTAssertTrue(error.message.contains("length"), error.message)
            }
        }
    }

    private struct Person: Decodable, SchemaProviding, Equatable {
        var name: String
        var age: Int
        var tags: [String]?
        static let schema = Schema.object(["name": .one(of: ["Ada", "Bob"]), "age": .integer(from: 1, to: 120)])
    }

    func testAnAnswerHasTheFormOfAType() async throws {
        let model = try await Given.model()
        let person = try await model.respond(to: Given.short("Who?", tokens: 60), generating: Person.self)
        XCTAssertTrue(["Ada", "Bob"].contains(person.name) && (1...120).contains(person.age))
        let session = try await model.session(defaults())
        let flag: Bool = try await session.respond(to: Given.short("Yes?", tokens: 20), generating: Bool.self)
        XCTAssertEqual(try session.messages().last?.content, "\(flag)")
        let value = try await model.respond(to: Given.short("Two.", tokens: 40), schema: .array(of: .boolean(), from: 2, to: 2))
        XCTAssertEqual(value.array?.count, 2)
        await expect(.cancelled) { _ = try await model.respond(to: Given.short("Who?", tokens: 2), generating: Person.self) }
        await session.close()
        await model.close()
    }
}
