import 'dart:convert';

/// A JSON object, as it goes to the library and comes from it.
typedef Json = Map<String, Object?>;

/// A call that failed, or an answer that did.
///
/// [kind] says what a program can do about it, and [message] what a person
/// should read: what was expected, what was found, and where.
final class CactusError implements Exception {
  /// An error with a code of the library and its name.
  const CactusError(this.code, this.kind, this.message);

  /// An argument that cannot be right, whatever the library says.
  const CactusError.argument(this.message) : code = -3, kind = 'argument';

  /// An object that was closed.
  const CactusError.handle(String what)
    : code = -4,
      kind = 'handle',
      message = 'expected $what that is open, found one that was closed';

  /// A number below 0, the same for ever: `CACTUS_CODE_...` in C.
  final int code;

  /// The name of [code]: `handle`, `argument`, `bundle`, `not_found`, `offline`
  /// and so on.
  final String kind;

  /// What was expected, what was found, and where.
  final String message;

  /// Whether the object was closed before the call.
  bool get isHandle => kind == 'handle';

  @override
  String toString() => 'CactusError($kind): $message';
}

/// Reads a JSON object that the library gave.
Json decodeObject(String text) => jsonDecode(text) as Json;
