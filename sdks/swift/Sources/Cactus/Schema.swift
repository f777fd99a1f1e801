import Foundation

/// What a value has to look like: a JSON Schema, which the engine holds a model to.
///
/// ```swift
/// let person = Schema.object([
///     "name": .string(),
///     "age": .integer(from: 0, to: 150),
///     "email": .string(format: "email").optional,
/// ])
/// ```
///
/// A model writes fields in the order that they have here.
public struct Schema: Sendable, Hashable {
    /// As JSON Schema has it.
    public var json: JSON
    private var isOptional = false

    /// A schema that was written by hand.
    public init(json: JSON) {
        self.json = json
    }

    public static func object(_ fields: KeyValuePairs<String, Schema>, description: String? = nil) -> Schema {
        var properties: JSON.Object = [:]
        var required: [JSON] = []
        for (name, schema) in fields {
            properties[name] = schema.json
            if !schema.isOptional { required.append(.string(name)) }
        }
        return Schema(json: [
            "type": "object", "properties": .object(properties), "required": .array(required), "additionalProperties": false,
        ]).described(description)
    }

    public static func string(description: String? = nil, format: String? = nil, pattern: String? = nil, longest: Int? = nil) -> Schema {
        var fields: JSON.Object = ["type": "string"]
        fields["format"] = format.map(JSON.string)
        fields["pattern"] = pattern.map(JSON.string)
        fields["maxLength"] = longest.map { .integer(Int64($0)) }
        return Schema(json: .object(fields)).described(description)
    }

    public static func integer(description: String? = nil, from least: Int? = nil, to most: Int? = nil) -> Schema {
        var fields: JSON.Object = ["type": "integer"]
        fields["minimum"] = least.map { .integer(Int64($0)) }
        fields["maximum"] = most.map { .integer(Int64($0)) }
        return Schema(json: .object(fields)).described(description)
    }

    public static func number(description: String? = nil, from least: Double? = nil, to most: Double? = nil) -> Schema {
        var fields: JSON.Object = ["type": "number"]
        fields["minimum"] = least.map(JSON.number)
        fields["maximum"] = most.map(JSON.number)
        return Schema(json: .object(fields)).described(description)
    }

    public static func boolean(description: String? = nil) -> Schema {
        Schema(json: ["type": "boolean"]).described(description)
    }

    public static func array(of element: Schema, description: String? = nil, from least: Int? = nil, to most: Int? = nil) -> Schema {
        var fields: JSON.Object = ["type": "array", "items": element.json]
        fields["minItems"] = least.map { .integer(Int64($0)) }
        fields["maxItems"] = most.map { .integer(Int64($0)) }
        return Schema(json: .object(fields)).described(description)
    }

    /// One of some texts.
    public static func one(of values: [String], description: String? = nil) -> Schema {
        Schema(json: ["type": "string", "enum": .array(values.map(JSON.string))]).described(description)
    }

    /// A value that has one of some forms.
    public static func any(of schemas: [Schema]) -> Schema {
        Schema(json: ["anyOf": .array(schemas.map(\.json))])
    }

    /// The same, of a field that may be left out.
    public var optional: Schema {
        var schema = self
        schema.isOptional = true
        return schema
    }

    /// The same, with what a model is told about it.
    public func described(_ text: String?) -> Schema {
        guard let text, var fields = json.object else { return self }
        var schema = self
        fields["description"] = .string(text)
        schema.json = .object(fields)
        return schema
    }
}

/// A type that says what its values look like as JSON, for structured output and for arguments of tools.
///
/// ```swift
/// struct Person: Decodable, SchemaProviding {
///     var name: String
///     var age: Int
///
///     static let schema = Schema.object(["name": String.schema, "age": .integer(from: 0, to: 150)])
/// }
/// ```
public protocol SchemaProviding {
    static var schema: Schema { get }
}

extension String: SchemaProviding {
    public static var schema: Schema { .string() }
}

extension Int: SchemaProviding {
    public static var schema: Schema { .integer() }
}

extension Double: SchemaProviding {
    public static var schema: Schema { .number() }
}

extension Bool: SchemaProviding {
    public static var schema: Schema { .boolean() }
}

extension Array: SchemaProviding where Element: SchemaProviding {
    public static var schema: Schema { .array(of: Element.schema) }
}

extension Optional: SchemaProviding where Wrapped: SchemaProviding {
    public static var schema: Schema { Wrapped.schema.optional }
}

extension SchemaProviding where Self: CaseIterable & RawRepresentable, RawValue == String {
    /// One of the cases.
    public static var schema: Schema { .one(of: allCases.map(\.rawValue)) }
}
