import Foundation

/// A JSON value. Objects keep the order of their fields, because the order of a schema's properties is the order in which a model
/// writes them.
///
/// ```swift
/// let schema: JSON = ["type": "object", "properties": ["name": ["type": "string"]]]
/// ```
public enum JSON: Sendable, Hashable {
    case null
    case bool(Bool)
    case integer(Int64)
    /// A whole number that is too large for `integer`.
    case unsigned(UInt64)
    case number(Double)
    case string(String)
    case array([JSON])
    case object(Object)

    /// Fields in their order.
    public struct Object: Sendable, Hashable, Sequence, ExpressibleByDictionaryLiteral {
        public private(set) var fields: [(name: String, value: JSON)] = []

        public init() {}

        /// Of two fields with one name, the last one counts.
        public init(dictionaryLiteral elements: (String, JSON)...) {
            for (name, value) in elements {
                self[name] = value
            }
        }

        /// The value of a field. Assigning nil takes the field out.
        public subscript(name: String) -> JSON? {
            get { fields.first { $0.name == name }?.value }
            set {
                let place = fields.firstIndex { $0.name == name }
                switch (place, newValue) {
                case (let place?, let value?): fields[place].value = value
                case (let place?, nil): fields.remove(at: place)
                case (nil, let value?): fields.append((name, value))
                case (nil, nil): break
                }
            }
        }

        public var isEmpty: Bool { fields.isEmpty }
        public var count: Int { fields.count }

        public func makeIterator() -> IndexingIterator<[(name: String, value: JSON)]> {
            fields.makeIterator()
        }

        /// Lays the fields of another object over this one.
        public mutating func merge(_ other: Object) {
            for (name, value) in other {
                self[name] = value
            }
        }

        public static func == (a: Object, b: Object) -> Bool {
            a.count == b.count && a.fields.allSatisfy { b[$0.name] == $0.value }
        }

        public func hash(into hasher: inout Hasher) {
            // Equal objects may have their fields in another order.
            hasher.combine(fields.reduce(0) { $0 ^ $1.name.hashValue })
        }
    }

    /// The value of a field of an object; nil where this is none, or has no such field.
    public subscript(name: String) -> JSON? { object?[name] }

    /// An element of an array; nil where this is none, or is too short.
    public subscript(index: Int) -> JSON? {
        guard let array, array.indices.contains(index) else { return nil }
        return array[index]
    }

    public var string: String? {
        if case .string(let text) = self { text } else { nil }
    }

    public var bool: Bool? {
        if case .bool(let value) = self { value } else { nil }
    }

    public var array: [JSON]? {
        if case .array(let elements) = self { elements } else { nil }
    }

    public var object: Object? {
        if case .object(let object) = self { object } else { nil }
    }

    /// A whole number; also one that is written as `3.0`.
    public var int: Int? {
        switch self {
        case .integer(let value): Int(exactly: value)
        case .unsigned(let value): Int(exactly: value)
        case .number(let value): Int(exactly: value)
        default: nil
        }
    }

    public var double: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .unsigned(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }

    public var isNull: Bool { self == .null }
}

extension JSON: ExpressibleByNilLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByStringLiteral, ExpressibleByStringInterpolation, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(nilLiteral: ()) { self = .null }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(stringLiteral value: String) { self = .string(value) }
    public init(arrayLiteral elements: JSON...) { self = .array(elements) }
    public init(dictionaryLiteral elements: (String, JSON)...) {
        var object = Object()
        for (name, value) in elements {
            object[name] = value
        }
        self = .object(object)
    }
}

extension JSON {
    /// Reads a value.
    ///
    /// - Throws: ``CactusError`` of the kind `argument`, with the place of what is wrong.
    public init(parsing text: String) throws {
        var text = text
        self = try text.withUTF8 { bytes in try JSONReader.read(bytes) }
    }

    /// What a value looks like as JSON. Numbers that JSON does not have become null.
    public var text: String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(64)
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Takes over any value that can be encoded.
    ///
    /// - Throws: What encoding throws.
    public init(encoding value: some Encodable) throws {
        if let json = value as? JSON {
            self = json
            return
        }
        let bytes = try JSONEncoder().encode(value)
        self = try bytes.withUnsafeBytes { try JSONReader.read($0.bindMemory(to: UInt8.self)) }
    }

    /// Makes a value of another type of it.
    ///
    /// - Throws: What decoding throws.
    public func decode<T: Decodable>(_ type: T.Type = T.self) throws -> T {
        if let same = self as? T {
            return same
        }
        return try JSONDecoder().decode(type, from: Data(text.utf8))
    }

    private func write(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes += "null".utf8
        case .bool(let value): bytes += (value ? "true" : "false").utf8
        case .integer(let value): bytes += String(value).utf8
        case .unsigned(let value): bytes += String(value).utf8
        case .number(let value): bytes += (value.isFinite ? "\(value)" : "null").utf8
        case .string(let text): JSON.write(text, to: &bytes)
        case .array(let elements):
            bytes.append(UInt8(ascii: "["))
            for (i, element) in elements.enumerated() {
                if i > 0 { bytes.append(UInt8(ascii: ",")) }
                element.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let object):
            bytes.append(UInt8(ascii: "{"))
            for (i, field) in object.fields.enumerated() {
                if i > 0 { bytes.append(UInt8(ascii: ",")) }
                JSON.write(field.name, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                field.value.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    private static func write(_ text: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""): bytes += "\\\"".utf8
            case UInt8(ascii: "\\"): bytes += "\\\\".utf8
            case 0x0A: bytes += "\\n".utf8
            case 0x0D: bytes += "\\r".utf8
            case 0x09: bytes += "\\t".utf8
            case 0..<0x20:
                let digits = String(byte, radix: 16)
                bytes += "\\u00".utf8
                bytes += (digits.count < 2 ? "0" + digits : digits).utf8
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }
}

extension JSON: Codable {
    public init(from decoder: any Decoder) throws {
        if let keyed = try? decoder.container(keyedBy: Name.self) {
            var object = Object()
            for key in keyed.allKeys {
                object[key.stringValue] = try keyed.decode(JSON.self, forKey: key)
            }
            self = .object(object)
            return
        }
        if var unkeyed = try? decoder.unkeyedContainer() {
            var elements: [JSON] = []
            while !unkeyed.isAtEnd {
                elements.append(try unkeyed.decode(JSON.self))
            }
            self = .array(elements)
            return
        }
        let single = try decoder.singleValueContainer()
        if single.decodeNil() {
            self = .null
        } else if let value = try? single.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? single.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? single.decode(UInt64.self) {
            self = .unsigned(value)
        } else if let value = try? single.decode(Double.self) {
            self = .number(value)
        } else {
            self = .string(try single.decode(String.self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        switch self {
        case .object(let object):
            var keyed = encoder.container(keyedBy: Name.self)
            for (name, value) in object {
                try keyed.encode(value, forKey: Name(stringValue: name))
            }
        case .array(let elements):
            var unkeyed = encoder.unkeyedContainer()
            for element in elements {
                try unkeyed.encode(element)
            }
        default:
            var single = encoder.singleValueContainer()
            switch self {
            case .bool(let value): try single.encode(value)
            case .integer(let value): try single.encode(value)
            case .unsigned(let value): try single.encode(value)
            case .number(let value): try single.encode(value)
            case .string(let value): try single.encode(value)
            default: try single.encodeNil()
            }
        }
    }

    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}
