import Foundation
import XCTest

@testable import Cactus

final class JSONTests: XCTestCase {
    func testValuesAreReadAndWrittenAlike() throws {
        for (text, value) in [
            ("null", JSON.null), ("true", true), (" [ ] ", []), ("{}", [:]), ("-0", 0), ("7", 7), ("1.5e3", 1500.0), ("-2.5", -2.5),
            ("9223372036854775807", .integer(.max)), ("18446744073709551615", .unsigned(.max)), ("1e400", nil),
            ("\"a\\n\\u00e9\\ud83d\\ude00\\\"\\\\\\/\"", "a\né😀\"\\/"), ("\"\\ud83d!\"", "\u{FFFD}!"), ("\"\\ude00\"", "\u{FFFD}"),
            ("{\"b\":1,\"a\":[null,{\"c\":\"\"}]}", ["b": 1, "a": [nil, ["c": ""]]]), ("{\"a\":1,\"a\":2}", ["a": 2]),
        ] as [(String, JSON?)] {
            guard let value else {
                XCTAssertThrowsError(try JSON(parsing: text), text)
                continue
            }
            let read = try JSON(parsing: text)
            XCTAssertEqual(read, value, text)
            XCTAssertEqual(try JSON(parsing: read.text), value, text)
        }
    }

    func testWrongTextsAreRefusedWithTheirPlace() {
        for text in [
            "", "nul", "[1,]", "[1 2]", "{\"a\"}", "{a:1}", "\"", "\"\\x\"", "\"\\u12g4\"", "01", "1.", "-", "1e", "[", "{\"a\":1", "1 2",
            "\"\u{1}\"", String(repeating: "[", count: 300),
        ] {
            XCTAssertThrowsError(try JSON(parsing: text), text) { error in
                XCTAssertEqual((error as? CactusError)?.kind, .argument)
                XCTAssertTrue("\(error)".contains("byte"), "\(error)")
            }
        }
    }

    func testObjectsKeepTheOrderOfTheirFields() throws {
        let text = "{\"z\":1,\"a\":2,\"m\":3}"
        var json = try JSON(parsing: text)
        XCTAssertEqual(json.text, text)
        XCTAssertEqual(json, try JSON(parsing: "{\"a\":2,\"m\":3,\"z\":1}"), "which says nothing about equality")
        var object = try XCTUnwrap(json.object)
        object["a"] = nil
        object["n"] = "x"
        json = .object(object)
        XCTAssertEqual(json.text, "{\"z\":1,\"m\":3,\"n\":\"x\"}")
    }

    func testOtherTypesAreTakenAndGiven() throws {
        struct Point: Codable, Equatable {
            var x: Int
            var name: String?
        }
        let json = try JSON(encoding: [Point(x: 1, name: nil), Point(x: 2, name: "b")])
        XCTAssertEqual(json, [["x": 1], ["x": 2, "name": "b"]])
        XCTAssertEqual(try json.decode([Point].self), [Point(x: 1, name: nil), Point(x: 2, name: "b")])
        XCTAssertEqual(try JSONDecoder().decode(JSON.self, from: JSONEncoder().encode(json)), json)
        XCTAssertEqual(try JSON(parsing: "{\"a\":[1,2.5,true,null]}").decode([String: [JSON]].self), ["a": [1, 2.5, true, nil]])
        XCTAssertEqual(JSON.number(3).int, 3)
        XCTAssertNil(JSON.number(3.5).int)
        XCTAssertEqual(JSON.number(.infinity).text, "null")
    }

    func testRandomValuesSurvive() throws {
        var random = Dice(seed: 7)
        func value(_ depth: Int) -> JSON {
            switch Int.random(in: 0..<(depth > 0 ? 8 : 6), using: &random) {
            case 0: .null
            case 1: .bool(.random(using: &random))
            case 2: .integer(.random(in: .min ... .max, using: &random))
            case 3: .number(Double(bitPattern: .random(in: 0 ... .max, using: &random)))
            case 4: .unsigned(.random(in: UInt64(Int64.max) + 1 ... .max, using: &random))
            case 5:
                .string(
                    String(String.UnicodeScalarView((0..<8).compactMap { _ in UnicodeScalar(UInt32.random(in: 0..<0x11000, using: &random)) })))
            case 6: .array((0..<3).map { _ in value(depth - 1) })
            default: .object(["a": value(depth - 1), "\"\\": value(depth - 1)])
            }
        }
        for _ in 0..<2000 {
            let made = value(3)
            let read = try JSON(parsing: made.text)
            XCTAssertEqual(read.text, made.text)
        }
    }
}

/// Numbers that are the same in every run.
struct Dice: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
