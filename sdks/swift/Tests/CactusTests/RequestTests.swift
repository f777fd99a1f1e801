import Foundation
import XCTest

@testable import Cactus

final class RequestTests: XCTestCase {
    func testARequestHasTheFieldsOfTheLibrary() {
        var request = Request(messages: [.system("Be brief."), .user([.text("What is it?"), .picture(Data([1, 2]))])])
        request.toolChoice = .named("find")
        request.tools = [ToolDescription(name: "find", description: "Finds.", parameters: .object(["what": .string()]))]
        request.reasoning = false
        request.priority = .high
        request.handoff = .never
        request.options = GenerationOptions(maxTokens: 5, temperature: 0, seed: .max)
        request.options.stop = ["."]
        request.other = ["user": "ada"]
        XCTAssertEqual(
            request.json,
            [
                "messages": [
                    ["role": "system", "content": "Be brief."],
                    ["role": "user", "content": [["type": "text", "text": "What is it?"], ["type": "image", "data": "AQI="]]],
                ],
                "tools": [
                    [
                        "type": "function",
                        "function": [
                            "name": "find", "description": "Finds.",
                            "parameters": [
                                "type": "object", "properties": ["what": ["type": "string"]], "required": ["what"], "additionalProperties": false,
                            ],
                        ],
                    ]
                ],
                "tool_choice": ["type": "function", "function": ["name": "find"]],
                "reasoning": false, "priority": "high", "handoff": "never",
                "options": ["max_tokens": 5, "temperature": 0.0, "seed": .unsigned(.max), "stop": ["."]],
                "user": "ada",
            ])
        XCTAssertEqual(Request(json: ["prompt": "x", "anything": 1]).json.text, "{\"prompt\":\"x\",\"anything\":1}")
    }

    func testASchemaSaysWhatAValueLooksLike() {
        struct Person: SchemaProviding {
            static let schema = Schema.object([
                "name": .string(description: "Of the person"), "tags": [String].schema, "age": Int?.schema, "mood": Mood.schema,
                "size": .number(from: 0), "any": .any(of: [.boolean(), .integer(to: 3)]),
            ])
        }
        enum Mood: String, CaseIterable, SchemaProviding { case good, bad }
        XCTAssertEqual(
            Person.schema.json.text,
            """
            {"type":"object","properties":{"name":{"type":"string","description":"Of the person"},"tags":{"type":"array","items":\
            {"type":"string"}},"age":{"type":"integer"},"mood":{"type":"string","enum":["good","bad"]},"size":{"type":"number","minimum":0.0},\
            "any":{"anyOf":[{"type":"boolean"},{"type":"integer","maximum":3}]}},"required":["name","tags","mood","size","any"],\
            "additionalProperties":false}
            """)
    }

    func testEventsAreReadAndGivenAlike() throws {
        let running = Running()
        for text in [
            "{\"event\":\"started\",\"prompt_tokens\":3,\"cached_tokens\":1}",
            "{\"event\":\"text\",\"text\":\"grüße\"}",
            "{\"event\":\"reasoning\",\"text\":\"hm\"}",
            "{\"event\":\"tool_call\",\"index\":0,\"id\":\"a\",\"name\":\"find\"}",
            "{\"event\":\"tool_call\",\"index\":0,\"arguments\":\"{\\\"a\"}",
            "{\"event\":\"tool_call\",\"index\":0,\"end\":true}",
            "{\"event\":\"tool_call\",\"index\":1,\"failed\":true}",
            "{\"event\":\"source\",\"side\":\"cloud\",\"target\":\"t\",\"cost_usd\":0.5}",
            "{\"event\":\"replaced\",\"reason\":\"failed\"}",
            "{\"event\":\"consent\",\"classes\":[\"text\"],\"most\":\"0.01\"}",
            "{\"event\":\"done\",\"result\":{\"tokens\":[1,2],\"message\":{\"role\":\"assistant\",\"content\":\"x\"}}}",
            "{\"event\":\"cancelled\",\"result\":{}}",
            "{\"event\":\"failed\",\"text\":\"no\",\"code\":-8,\"kind\":\"context_full\"}",
            "{\"event\":\"later\",\"what\":1}",
        ] {
            let json = try JSON(parsing: text)
            XCTAssertEqual(Event(json: json, answer: running).json, json)
        }
    }

    func testSoundIsAFileOfSamples() {
        let file = [UInt8](wave([1, -2]))
        XCTAssertEqual(file.count, 48)
        XCTAssertEqual(Array(file[0..<4]), Array("RIFF".utf8))
        XCTAssertEqual(Array(file[40...]), [4, 0, 0, 0, 1, 0, 0xFE, 0xFF])
        XCTAssertEqual(pcm([0, 1, -1, 2, 0.5]), [0, 32767, -32768, 32767, 16384])
    }

    func testAPolicyHasTheOptionsOfTheLibrary() {
        var policy = Policy(target: "t", key: "k", handoff: .auto, budget: "0.05", consent: [.text, .toolResult])
        policy.keys = ["b": "2", "a": "1"]
        XCTAssertEqual(
            JSON.object(policy.options).text,
            "{\"target\":\"t\",\"key\":\"k\",\"keys\":{\"a\":\"1\",\"b\":\"2\"},\"handoff\":\"auto\",\"budget\":\"0.05\",\"consent\":[\"text\",\"tool_result\"]}"
        )
    }

    func testAnOldSideIsNamed() {
        func message(_ found: UInt32, _ expected: UInt32) -> String? {
            if case .failure(let error) = Library.compared(found: found, expected: expected) { return error.message }
            return nil
        }
        XCTAssertNil(message(1, 1))
        XCTAssertTrue(message(1, 2)?.contains("the library is the old side") == true)
        XCTAssertTrue(message(3, 2)?.contains("the Swift package is the old side") == true)
    }
}
