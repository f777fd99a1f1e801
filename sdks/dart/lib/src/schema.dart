import 'error.dart';

/// A JSON Schema: the form of an answer, or of the arguments of a tool.
///
/// ```dart
/// final person = Schema.object({
///   'name': Schema.string(),
///   'age': Schema.integer(minimum: 0, maximum: 150),
/// });
/// ```
final class Schema {
  /// A schema as it is.
  const Schema.json(this._json);

  /// An object with these [properties]. All of them are required, but those in
  /// [optional]; others are not allowed, unless [open].
  Schema.object(
    Map<String, Schema> properties, {
    Set<String> optional = const {},
    bool open = false,
    String? description,
  }) : _json = {
         'type': 'object',
         'properties': {for (final MapEntry(:key, :value) in properties.entries) key: value.toJson()},
         'required': [
           for (final name in properties.keys)
             if (!optional.contains(name)) name,
         ],
         if (!open) 'additionalProperties': false,
         'description': ?description,
       };

  /// A list of [items].
  Schema.array(Schema items, {int? minItems, int? maxItems, String? description})
    : _json = {
        'type': 'array',
        'items': items.toJson(),
        'minItems': ?minItems,
        'maxItems': ?maxItems,
        'description': ?description,
      };

  /// A text, perhaps one that a regular expression describes.
  Schema.string({String? pattern, int? minLength, int? maxLength, String? description})
    : _json = {
        'type': 'string',
        'pattern': ?pattern,
        'minLength': ?minLength,
        'maxLength': ?maxLength,
        'description': ?description,
      };

  /// A whole number.
  Schema.integer({int? minimum, int? maximum, String? description})
    : _json = {'type': 'integer', 'minimum': ?minimum, 'maximum': ?maximum, 'description': ?description};

  /// A number.
  Schema.number({num? minimum, num? maximum, String? description})
    : _json = {'type': 'number', 'minimum': ?minimum, 'maximum': ?maximum, 'description': ?description};

  /// `true` or `false`.
  Schema.boolean({String? description}) : _json = {'type': 'boolean', 'description': ?description};

  /// One of these values.
  Schema.oneOf(List<Object?> values, {String? description}) : _json = {'enum': values, 'description': ?description};

  /// One of the names of an enumeration.
  Schema.enumeration(List<Enum> values, {String? description})
    : _json = {
        'enum': [for (final value in values) value.name],
        'description': ?description,
      };

  /// What any of these [schemas] describes.
  Schema.anyOf(List<Schema> schemas, {String? description})
    : _json = {
        'anyOf': [for (final schema in schemas) schema.toJson()],
        'description': ?description,
      };

  final Object _json;

  /// The same, or `null`.
  Schema get nullable => Schema.anyOf([
    this,
    const Schema.json({'type': 'null'}),
  ]);

  /// The schema as JSON.
  Object toJson() => _json;
}

/// How a value of `T` is asked for and read: its schema, and what makes one of
/// JSON that follows the schema.
final class Form<T> {
  /// A form. [read] gets decoded JSON.
  const Form(this.schema, this.read);

  /// A form of a class with a `fromJson` constructor.
  static Form<T> of<T>(Schema schema, T Function(Json json) fromJson) => Form(schema, (json) => fromJson(json as Json));

  /// What the answer has to follow.
  final Schema schema;

  /// Makes the value.
  final T Function(Object? json) read;
}
