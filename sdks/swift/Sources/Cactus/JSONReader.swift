import Foundation

/// Reads JSON as RFC 8259 has it, and keeps the order of fields. An event is read with each token, and this takes a fraction of the
/// time that Foundation's decoder does.
struct JSONReader {
    private let bytes: UnsafeBufferPointer<UInt8>
    private var at = 0
    private var depth = 0

    /// Deeper than any answer of the library, and far from where the stack ends.
    private static let deepest = 256

    static func read(_ bytes: UnsafeBufferPointer<UInt8>) throws -> JSON {
        var reader = JSONReader(bytes: bytes)
        let value = try reader.value()
        reader.space()
        guard reader.at == bytes.count else { throw reader.wrong("the end") }
        return value
    }

    private init(bytes: UnsafeBufferPointer<UInt8>) {
        self.bytes = bytes
    }

    private func wrong(_ expected: String) -> CactusError {
        CactusError(code: Code.argument, message: "JSON: expected \(expected) at byte \(at)")
    }

    private var next: UInt8? { at < bytes.count ? bytes[at] : nil }

    private mutating func space() {
        while let byte = next, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 {
            at += 1
        }
    }

    private mutating func value() throws -> JSON {
        space()
        switch next {
        case UInt8(ascii: "{"): return try object()
        case UInt8(ascii: "["): return try array()
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        default: return try number()
        }
    }

    private mutating func word(_ text: StaticString, _ value: JSON) throws -> JSON {
        let length = text.utf8CodeUnitCount
        guard at + length <= bytes.count, memcmp(bytes.baseAddress! + at, text.utf8Start, length) == 0 else {
            throw wrong("a value")
        }
        at += length
        return value
    }

    private mutating func begin() throws {
        depth += 1
        guard depth <= JSONReader.deepest else { throw wrong("at most \(JSONReader.deepest) levels") }
        at += 1
        space()
    }

    /// Whether another element comes; else behind the closing `end`.
    private mutating func goesOn(_ end: UInt8) throws -> Bool {
        space()
        switch next {
        case UInt8(ascii: ","):
            at += 1
            return true
        case end:
            at += 1
            depth -= 1
            return false
        default: throw wrong("`,` or `\(Character(UnicodeScalar(end)))`")
        }
    }

    private mutating func array() throws -> JSON {
        try begin()
        var elements: [JSON] = []
        if next == UInt8(ascii: "]") {
            at += 1
            depth -= 1
            return .array(elements)
        }
        repeat {
            elements.append(try value())
        } while try goesOn(UInt8(ascii: "]"))
        return .array(elements)
    }

    private mutating func object() throws -> JSON {
        try begin()
        var object = JSON.Object()
        if next == UInt8(ascii: "}") {
            at += 1
            depth -= 1
            return .object(object)
        }
        repeat {
            space()
            guard next == UInt8(ascii: "\"") else { throw wrong("the name of a field") }
            let name = try string()
            space()
            guard next == UInt8(ascii: ":") else { throw wrong("`:`") }
            at += 1
            // Of two fields with one name, the last one counts.
            object[name] = try value()
        } while try goesOn(UInt8(ascii: "}"))
        return .object(object)
    }

    private mutating func number() throws -> JSON {
        let start = at
        var isWhole = true
        if next == UInt8(ascii: "-") { at += 1 }
        let digits = at
        while let byte = next, byte >= 0x30, byte <= 0x39 { at += 1 }
        guard at > digits, bytes[digits] != 0x30 || at == digits + 1 else { throw wrong("a value") }
        if next == UInt8(ascii: ".") {
            isWhole = false
            at += 1
            let fraction = at
            while let byte = next, byte >= 0x30, byte <= 0x39 { at += 1 }
            guard at > fraction else { throw wrong("a digit") }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            isWhole = false
            at += 1
            if next == UInt8(ascii: "+") || next == UInt8(ascii: "-") { at += 1 }
            let exponent = at
            while let byte = next, byte >= 0x30, byte <= 0x39 { at += 1 }
            guard at > exponent else { throw wrong("a digit") }
        }
        let text = String(decoding: bytes[start..<at], as: UTF8.self)
        if isWhole, let value = Int64(text) { return .integer(value) }
        if isWhole, let value = UInt64(text) { return .unsigned(value) }
        guard let value = Double(text), value.isFinite else { throw wrong("a number that is not too large") }
        return .number(value)
    }

    private mutating func string() throws -> String {
        at += 1
        let start = at
        while let byte = next {
            if byte == UInt8(ascii: "\"") {
                defer { at += 1 }
                return String(decoding: bytes[start..<at], as: UTF8.self)
            }
            if byte == UInt8(ascii: "\\") { return try escaped(from: start) }
            guard byte >= 0x20 else { break }
            at += 1
        }
        throw wrong("the end of a text")
    }

    /// Goes on where the first escape is.
    private mutating func escaped(from start: Int) throws -> String {
        var text = Array(bytes[start..<at])
        while let byte = next {
            at += 1
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: text, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let escape = next else { throw wrong("an escape") }
                at += 1
                switch escape {
                case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(escape)
                case UInt8(ascii: "n"): text.append(0x0A)
                case UInt8(ascii: "r"): text.append(0x0D)
                case UInt8(ascii: "t"): text.append(0x09)
                case UInt8(ascii: "b"): text.append(0x08)
                case UInt8(ascii: "f"): text.append(0x0C)
                case UInt8(ascii: "u"): text += String(Character(try scalar())).utf8
                default: throw wrong("an escape")
                }
            case 0..<0x20: throw wrong("the end of a text")
            default: text.append(byte)
            }
        }
        throw wrong("the end of a text")
    }

    private mutating func unit() throws -> UInt32 {
        guard at + 4 <= bytes.count else { throw wrong("four digits") }
        var value: UInt32 = 0
        for byte in bytes[at..<at + 4] {
            guard let digit = Character(UnicodeScalar(byte)).hexDigitValue else { throw wrong("four digits") }
            value = value << 4 | UInt32(digit)
        }
        at += 4
        return value
    }

    /// A character behind `\u`, of two halves where the first one says so. Half a character becomes U+FFFD.
    private mutating func scalar() throws -> UnicodeScalar {
        let replacement: UnicodeScalar = "\u{FFFD}"
        let first = try unit()
        guard (0xD800..<0xDC00).contains(first) else { return UnicodeScalar(first) ?? replacement }
        guard at + 1 < bytes.count, bytes[at] == UInt8(ascii: "\\"), bytes[at + 1] == UInt8(ascii: "u") else {
            return replacement
        }
        let back = at
        at += 2
        let second = try unit()
        guard (0xDC00..<0xE000).contains(second) else {
            at = back
            return replacement
        }
        return UnicodeScalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00)) ?? replacement
    }
}
